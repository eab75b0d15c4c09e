"""How pages call a function: over HTTP to the compute service, or inside this process. Neither torch nor FastAPI here.

`INFERENCE_LAB_COMPUTE` chooses the way: an address (default http://127.0.0.1:8502), or `embedded` for threads of
this process. Functions marked `web` are cheap and always run here, in the caller's thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import cache
from typing import Any

import httpx

from compute import functions, turns
from compute.errors import LabError, TimedOut, Unavailable, unforeseen
from compute.service.jobs import JobQueue, Limits
from compute.service.machine import Machine
from compute.service.schema import VERSION, NotOurs, Progress, Result, Status, decode, lines, live_from, plain, status_from

VARIABLE = "INFERENCE_LAB_COMPUTE"
DEFAULT_ADDRESS = "http://127.0.0.1:8502"
EMBEDDED = "embedded"

CONNECT_SECONDS = 2.0
SILENT_SECONDS = 15.0  # the service says something every half second; longer silence means that it hangs
STATUS_SECONDS = 1.0  # what /healthz may take
STATUS_KEPT_SECONDS = 2.0
BROKEN_OFF = ("it stopped in the middle of the answer", "回答到一半就停了")
LOOK_SECONDS = 0.5  # how often a quiet embedded run hands control back to the page


def address() -> str:
    """Where functions run: `embedded` or a base URL without a trailing slash."""
    return os.environ.get(VARIABLE, "").strip().rstrip("/") or DEFAULT_ADDRESS


def run(
    function: str, params: dict[str, Any], *, timeout: float = 120.0, learner: str = ""
) -> Iterator[Progress | Result]:
    """Yields Progress at least every half second, then one Result. Closing the iterator cancels the work.

    timeout: seconds for everything, waiting included. learner: any stable id; the service limits calls by it.
    Raises the function's own LabError; BadInput, UnknownName; Busy (with `retry_after` seconds in its values) when the
    queue is full; TimedOut; Unavailable when the service is down, stops, falls silent or is not ours.
    """
    known = functions.TABLE.get(function)
    if known is None or known.where == "web":  # functions.call names the closest ones when there is none
        yield _run_here(function, params)
    elif address() == EMBEDDED:
        yield from _run_embedded(function, params, timeout)
    else:
        yield from _run_remote(address(), function, params, timeout, learner)


def call(function: str, params: dict[str, Any], *, timeout: float = 120.0, learner: str = "") -> Result:
    """The result alone. Raises as `run` does."""
    with closing(run(function, params, timeout=timeout, learner=learner)) as events:
        for event in events:
            if isinstance(event, Result):
                return event
    raise AssertionError("a run ends with a result or raises")


# --- in this process ---------------------------------------------------------------------------------------------


@cache
def _machine() -> Machine:
    return Machine()


@cache
def _queue() -> JobQueue:
    return JobQueue(Limits(), _machine().conditions, name="embedded")


def _run_here(function: str, params: dict[str, Any]) -> Result:
    started = time.monotonic()
    try:
        value = plain(functions.call(function, params))
    except LabError as error:
        raise as_sent(error) from None
    except Exception as error:  # the same boundary as in the service: a number to find it by, no traceback on a page
        raise unforeseen(f"running {function}", error) from error
    return Result(value, _machine().conditions(time.monotonic() - started, _seed(params)))


def _run_embedded(function: str, params: dict[str, Any], timeout: float) -> Iterator[Progress | Result]:
    news = threading.Event()

    def work(report, cancelled):
        return functions.call(function, params, report=report, cancelled=cancelled)

    queue, deadline = _queue(), time.monotonic() + timeout
    job = queue.submit(function, work, wake=news.set, seed=_seed(params))
    try:
        while True:
            with turns.lent():
                heard = news.wait(min(LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
            news.clear()
            if time.monotonic() >= deadline:
                queue.cancel(job, TimedOut("timed_out", function=function, limit=timeout))
            job.check_time()
            for event in job.take() if heard or job.ended else [job.beat(queue.ahead(job))]:
                if isinstance(event, LabError):
                    raise as_sent(event)
                yield event
                if isinstance(event, Result):
                    return
    finally:
        queue.cancel(job)


def as_sent(error: LabError) -> LabError:
    """The error as a caller over HTTP gets it: of one of the classes in compute/errors.py, whoever raised it."""
    return LabError.from_json(error.to_json()).with_traceback(error.__traceback__)


def _seed(params: Any) -> int | None:
    seed = params.get("seed") if isinstance(params, dict) else None
    return seed if type(seed) is int else None


# --- over HTTP ---------------------------------------------------------------------------------------------------


@cache
def _http(base: str) -> httpx.Client:
    """One pool of connections for each address, shared by all threads. The environment's proxies do not apply."""
    return httpx.Client(
        trust_env=False,
        timeout=httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=200, max_keepalive_connections=20),
    )


def _run_remote(
    base: str, function: str, params: dict[str, Any], timeout: float, learner: str
) -> Iterator[Progress | Result]:
    """Where an answer breaks off it is asked for once more: of a cluster another machine may answer, and the same parameters give
    the same result. Only progress is told again."""
    deadline, heard = time.monotonic() + timeout, False
    try:
        with closing(_told(base, function, params, timeout, learner, deadline)) as events:
            for event in events:
                heard = True
                yield event
        return
    except Unavailable as error:
        if not heard or error.values.get("reason") != BROKEN_OFF[0]:
            raise
        broken_off = error
    try:
        yield from _told(base, function, params, timeout, learner, deadline)
    except Unavailable:
        raise broken_off from None


def _told(
    base: str, function: str, params: dict[str, Any], timeout: float, learner: str, deadline: float
) -> Iterator[Progress | Result]:
    with _reached(base), closing(_open(base, f"/run/{function}", learner, json=params, stream=True)) as response:
        if response.status_code != 200:
            raise _refusal(response, base)
        for line in turns.waiting(lines(response.iter_bytes())):
            event = decode(line)
            if isinstance(event, LabError):
                raise event
            if isinstance(event, Progress) and time.monotonic() > deadline:
                raise TimedOut("timed_out", function=function, limit=timeout)
            yield event
            if isinstance(event, Result):
                return
        raise _away(base, *BROKEN_OFF)


@contextmanager
def _reached(base: str) -> Iterator[None]:
    """Whatever can go wrong on the way there and back, as Unavailable."""
    try:
        yield
    except httpx.ConnectTimeout as error:
        raise _away(base, f"{base} does not answer", f"{base} 没有应答") from error
    except httpx.TimeoutException as error:
        raise _away(base, f"silent for {SILENT_SECONDS:.0f} s", f"已有 {SILENT_SECONDS:.0f} 秒没有回音") from error
    except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise _away(base, f"nothing answers at {base}", f"{base} 没有服务") from error
    except httpx.TransportError as error:
        raise _away(base, *BROKEN_OFF) from error
    except (NotOurs, httpx.DecodingError) as error:
        raise _away(base, f"what answers at {base} is not understood", f"{base} 的回答看不懂") from error


def _open(
    base: str, path: str, learner: str, *, method: str = "POST", stream: bool = False, **more: Any
) -> httpx.Response:
    """Sends the call and reads the headers; with `stream` the body is still to come. A kept connection may have died with
    the last service process: that shows only when it is used, so one more try with a fresh one."""
    http = _http(base)
    headers = {"X-Learner": learner} if learner else {}
    request = http.build_request(method, f"{base}{path}", headers=headers, **more)
    with turns.lent():
        try:
            return http.send(request, stream=stream)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return http.send(request, stream=stream)


def _refusal(response: httpx.Response, base: str) -> LabError:
    with turns.lent():
        body = response.read()
    event = decode(body)
    if not isinstance(event, LabError):
        raise NotOurs(f"status {response.status_code} without an error: {body[:80]!r}")
    return event


def _away(base: str, reason: str, reason_zh: str) -> Unavailable:
    _statuses.pop(base, None)  # look again rather than trust what was seen before
    return Unavailable("unavailable", reason=reason, reason_zh=reason_zh)


# --- the live engine -----------------------------------------------------------------------------------------------


def live(since: int = 0, *, model: str = "", learner: str = "") -> dict[str, Any]:
    """How the engine that everybody shares stands, and its steps from index `since` on (compute/service/live.py shows the
    fields). Only `learner`'s own texts are in it. Raises Unavailable, Busy, UnknownName for the model, BadInput."""
    return _live("GET", "/live", {"since": since, "model": model}, learner)


def send(
    text: str, *, max_tokens: int = 64, temperature: float = 1.0, seed: int | None = None, n: int = 1, model: str = "",
    learner: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Asks the engine to continue `text` n times, and does not wait: {"request", "model", "seed"}; what is written is found
    among the learner's texts in `live`. Without a seed one is drawn. Raises as `live` does."""
    asked = {"text": text, "max_tokens": max_tokens, "temperature": temperature, "n": n, "model": model}
    return _live("POST", "/live/send", asked | ({} if seed is None else {"seed": seed}), learner)


def cancel_live(request: int, *, learner: str = "") -> None:
    """Ends a request of the learner's own; harmless when it has ended. Raises UnknownName for any other, and as `live`."""
    _live("POST", "/live/cancel", {"request": request}, learner)


def _live(method: str, path: str, asked: dict[str, Any], learner: str) -> dict[str, Any]:
    base = address()
    if base == EMBEDDED:
        return _live_here(path, asked, learner)
    with _reached(base):
        body = {"params": asked} if method == "GET" else {"json": asked}
        response = _open(base, path, learner, method=method, **body)
        if response.status_code != 200 or response.content.lstrip().startswith(b'{"error":'):  # one that came late has the status of an answer
            raise _refusal(response, base)
        return live_from(response.content)


def _live_here(path: str, asked: dict[str, Any], learner: str) -> dict[str, Any]:
    with turns.lent():  # the first call imports torch and loads a model
        from compute.service import live as here  # torch belongs in this process only when everything runs here

        try:
            return live_from(here.ROUTES[path](asked, learner).encode())
        except LabError as error:
            raise as_sent(error) from None
        except Exception as error:
            raise unforeseen(f"answering {path}", error) from error


# --- how it is ---------------------------------------------------------------------------------------------------

_looking = threading.Lock()
_statuses: dict[str, tuple[float, Status]] = {}  # address → (when looked, what was seen)


def status() -> Status:
    """Up or down, never an exception. Looks at most every 2 s; a look takes at most about 1 s."""
    base = address()
    if base == EMBEDDED:
        return _embedded_status()
    looked_at, seen = _statuses.get(base, (0.0, None))
    if seen and time.monotonic() - looked_at < STATUS_KEPT_SECONDS:
        return seen
    with turns.lent():
        return _looked(base, seen)


def _looked(base: str, seen: Status | None) -> Status:
    if not _looking.acquire(blocking=seen is None):
        return seen  # somebody is looking; a hung service must not make everybody wait for it
    try:
        looked_at, seen = _statuses.get(base, (0.0, None))  # somebody else may just have looked
        if not seen or time.monotonic() - looked_at >= STATUS_KEPT_SECONDS:
            seen = _look(base)
            _statuses[base] = (time.monotonic(), seen)
        return seen
    finally:
        _looking.release()


def _look(base: str) -> Status:
    try:
        return status_from(_http(base).get(f"{base}/healthz", timeout=STATUS_SECONDS).json(), base)
    except httpx.TimeoutException:
        return Status(False, base, "it does not answer in time", "没有及时应答")
    except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL):
        return Status(False, base, f"nothing answers at {base}", f"{base} 没有服务")
    except (httpx.HTTPError, ValueError):  # a refusal, a torn answer, or no JSON
        return Status(False, base, f"what answers at {base} is not understood", f"{base} 的回答看不懂")


def _embedded_status() -> Status:
    _queue().mend()
    running, waiting = _queue().counts()
    return Status(
        up=True, address=EMBEDDED, version=VERSION, pid=os.getpid(), running=running, waiting=waiting,
        **_machine().facts(),
    )  # fmt: skip
