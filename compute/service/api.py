"""The functions over HTTP: `POST /run/{function}` with the parameters as JSON, answered by a stream of events."""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from compute import functions
from compute.errors import BadInput, LabError, Unavailable, UnknownName, unforeseen
from compute.service import docs, openai
from compute.service.doors import LOOPBACK, name_of, stranger
from compute.service.http import JSON_TYPE, client_of, learner_of, read_params, while_listened_to
from compute.service.jobs import Job, JobQueue, Limits
from compute.service.machine import MISSING, Machine
from compute.service.rates import Rates
from compute.service.schema import EVENT_TYPE, VERSION, Event, Progress, Status, encode

log = logging.getLogger(__name__)

LOOKS = 5  # at the live engine, for one call: the live page looks about every second
BEAT_SECONDS = 0.5  # the longest silence inside a stream


class Service:
    """What the routes share."""

    def __init__(self, machine: Machine, limits: Limits):
        self.machine, self.limits = machine, limits
        self.queue = JobQueue(limits, machine.conditions)
        self.rates = Rates(limits.per_minute)
        self.looks = Rates(LOOKS * limits.per_minute)
        self.started_at = time.monotonic()
        self.stopping = False

    def status(self, address: str) -> Status:
        running, waiting = self.queue.counts()
        whole = self.mend()
        words = shutting_down().values if self.stopping else {} if whole else {"reason": "a computation hangs", "reason_zh": "有一次计算卡住了"}
        return Status(
            up=whole and not self.stopping, address=address, version=VERSION, pid=os.getpid(), running=running, waiting=waiting,
            uptime_seconds=time.monotonic() - self.started_at, **words, **self.machine.facts(),
        )  # fmt: skip

    def admit(self, request: Request) -> None:
        """Raises Unavailable when the service is stopping, Busy when this client has called too often."""
        if self.stopping:
            raise shutting_down()
        if client := client_of(request):
            self.rates.take(client, time.monotonic())

    def admit_look(self, request: Request) -> None:
        """A look begins the engine of a model that nobody asked for yet. Raises Busy."""
        if client := client_of(request):
            self.looks.take(client, time.monotonic())

    def mend(self) -> bool:
        """Threads that ended by themselves are started again. False where one hangs: who watches this process starts another."""
        return all([self.queue.mend(), of_engines("mend", lambda: True)()])

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """No new work; what runs has `drain_seconds` left, then its callers are told."""
        self.stopping = True
        loop.call_later(self.limits.drain_seconds, self.end)

    def end(self) -> None:
        """Whatever still runs is told that the service goes."""
        self.queue.cancel_all(shutting_down())
        of_engines("close_all", lambda error: None)(shutting_down())


def of_engines(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A function of compute/engine/running.py; where torch is not loaded, or not yet, no engine runs."""
    return getattr(sys.modules.get("compute.engine.running"), name, otherwise)


def shutting_down() -> Unavailable:
    return Unavailable("unavailable", reason="it is shutting down", reason_zh="正在关闭")


def create_app(
    machine: Machine | None = None, limits: Limits = Limits(), allow_hosts: list[str] | None = None, preload: bool = True
) -> FastAPI:
    """allow_hosts: names besides loopback under which browsers and clients may address the service; "*" for any.
    preload: load torch in the background at start instead of at the first call that needs it."""
    service = Service(machine or Machine(), limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        if preload:
            threading.Thread(target=_prepare, args=(service.machine,), name="prepare", daemon=True).start()
        yield
        service.end()

    app = FastAPI(title="Inference lab: compute service", version=VERSION, lifespan=lifespan,
                  openapi_url=None, docs_url=None, redoc_url=None)  # fmt: skip
    app.state.service = service
    app.mount("/v1", openai.create(service))
    app.add_middleware(SameHost, hosts={*LOOPBACK, *(host.lower() for host in allow_hosts or ())})
    app.add_exception_handler(LabError, lambda request, error: answer(error))
    app.add_exception_handler(Exception, lambda request, error: answer(unforeseen(f"answering {request.url.path}", error)))

    @app.get("/healthz", response_class=JSONResponse)
    async def healthz(request: Request):
        status = service.status(str(request.base_url).rstrip("/"))
        return JSONResponse(asdict(status), 200 if status.up or service.stopping else 503)

    @app.get("/functions", response_class=JSONResponse)
    async def list_functions():
        return JSONResponse(await run_in_threadpool(docs.describe))

    @app.post("/run/{function}")
    async def run(function: str, request: Request):
        service.admit(request)
        if function not in functions.TABLE:
            close = difflib.get_close_matches(function, functions.TABLE, 5, 0.3)
            raise UnknownName("function", "函数", function[:80], close or sorted(functions.TABLE))
        params = await read_params(request, limits.body_bytes)
        await check(function, params)
        return EventStream(service.queue, function, params)

    @app.delete("/run/{id}", status_code=204)
    async def cancel(id: str):
        job = service.queue.find(id)
        if job is None:
            raise UnknownName("run", "运行", id[:80], ["—"])
        service.queue.cancel(job)
        return Response(status_code=204)

    @app.get("/live")
    async def look(request: Request):
        service.admit_look(request)
        return await live_answer("/live", dict(request.query_params), learner_of(request))

    @app.post("/live/send")
    @app.post("/live/cancel")
    async def act(request: Request):
        service.admit(request)
        return await live_answer(request.url.path, await read_params(request, limits.body_bytes), learner_of(request))

    @app.get("/openapi.json", response_class=JSONResponse)
    async def openapi():
        return JSONResponse(await run_in_threadpool(docs.openapi))

    @app.get("/docs", response_class=HTMLResponse)
    async def page():
        html = await run_in_threadpool(docs.page)
        return HTMLResponse(html, headers={"Content-Security-Policy": docs.POLICY})

    @app.get("/")
    async def root():
        return RedirectResponse("/docs")

    return app


def _prepare(machine: Machine) -> None:
    """Loads torch while the service already answers, so that the first live call does not wait for it."""
    try:
        machine.prepare()
    except (ImportError, MemoryError, OSError, RuntimeError, LabError):  # the service goes on without; what needs torch says so itself
        machine.device = MISSING
        log.exception("torch could not be loaded")


# --- requests ----------------------------------------------------------------------------------------------------


HEADERS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'", "x-content-type-options": "nosniff",
    "x-frame-options": "DENY", "referrer-policy": "no-referrer", "cross-origin-resource-policy": "same-origin",
}  # fmt: skip


class SameHost:
    """Answers only when addressed by a name of ours, and only to pages of ours: a web page elsewhere must not use a
    visitor's browser to reach this service (neither directly nor by pointing its own name here). No answer is for embedding."""

    def __init__(self, app: ASGIApp, hosts: set[str]):
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def closed(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there)]
            await send(message)

        if "*" not in self.hosts and (wrong := stranger(scope, self.ours, lambda origin, host: self.ours(name_of(origin)))):
            error = BadInput(*wrong, "start the service with --allow-host to allow it", "启动服务时用 --allow-host 允许它")
            return await answer(error, 403)(scope, receive, closed)
        return await self.app(scope, receive, closed)

    def ours(self, name: str) -> bool:
        return name in self.hosts


# --- answers -----------------------------------------------------------------------------------------------------

STATUS_CODES = {
    "bad_input": 422, "unknown_name": 422, "does_not_fit": 409, "not_measured": 409, "not_calibrated": 409, "no_model": 409, "busy": 503, "unavailable": 503,
    "out_of_memory": 503, "rate_limited": 429, "cancelled": 499, "timed_out": 504, "internal": 500, "disk_full": 507, "broken_data": 500, "worker_lost": 503,
}  # fmt: skip


def status_code(error: LabError) -> int:
    """By the error's code; a name in the path that is unknown is 404, one among the parameters 422."""
    if error.code == "unknown_name" and error.values["what"] in ("function", "run", "request"):
        return 404
    return STATUS_CODES.get(error.code, 500)


def answer(error: LabError, code: int | None = None) -> Response:
    headers = dict(HEADERS)  # a mistake of ours is told past every middleware
    if "retry_after" in error.values:
        headers["Retry-After"] = str(math.ceil(error.values["retry_after"]))
    return Response(encode(error), code or status_code(error), headers, JSON_TYPE)


async def check(function: str, params: dict[str, Any]) -> None:
    """Raises what is wrong with the parameters, unless that takes long: the function's module may have to import torch, on a busy
    machine for longer than callers bear silence. Then the job, which checks them too, tells how it stands meanwhile."""
    checked = begun(functions.check, function, params)
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(checked), BEAT_SECONDS)


def begun(work: Callable[..., Any], *arguments: Any) -> asyncio.Future:
    """In a thread, not on the event loop."""
    future = asyncio.ensure_future(run_in_threadpool(work, *arguments))
    future.add_done_callback(lambda known: known.cancelled() or known.exception())  # heard, also where nobody waits any more
    return future


async def live_answer(path: str, params: dict[str, Any], learner: str) -> Response:
    def work() -> bytes:
        from compute.service import live  # imports torch

        return live.ROUTES[path](params, learner).encode()

    told = begun(work)
    await asyncio.wait([told], timeout=BEAT_SECONDS)
    headers = {"Cache-Control": "no-store"}
    return Response(told.result(), 200, headers, JSON_TYPE) if told.done() else StreamingResponse(beating(told, path), 200, headers, JSON_TYPE)


async def beating(told: asyncio.Future, path: str) -> AsyncIterator[bytes]:
    """Blanks, which JSON may begin with, while torch or a model is still loaded: a silent service counts as one that hangs. Then the
    answer, or in its place the error, since the status has been said."""
    while not (await asyncio.wait([told], timeout=BEAT_SECONDS))[0]:
        yield b" "
    try:
        yield told.result()
    except LabError as error:
        yield encode(error)
    except Exception as error:
        yield encode(unforeseen(f"answering {path}", error))


class EventStream(Response):
    """Runs the job while somebody listens. An error that comes before anything else has the status code of an error;
    once the stream has started it is the last event. The caller's leaving cancels the job."""

    def __init__(self, queue: JobQueue, function: str, params: dict[str, Any]):
        self.queue, self.background = queue, None
        self.news, loop = asyncio.Event(), asyncio.get_running_loop()

        def work(report, cancelled):
            return functions.call(function, params, report=report, cancelled=cancelled)

        def wake():
            if not loop.is_closed():
                loop.call_soon_threadsafe(self.news.set)

        seed = params.get("seed")
        self.job = queue.submit(function, work, wake=wake, seed=seed if type(seed) is int else None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_listened_to(self.tell(scope, receive, send), receive)
        finally:
            self.queue.cancel(self.job)

    async def tell(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await self.next()
        if isinstance(first[0], LabError):
            return await answer(first[0])(scope, receive, send)
        headers = [(b"content-type", EVENT_TYPE.encode()), (b"x-run-id", self.job.id.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        events = first
        while True:
            over = not isinstance(events[-1], Progress)
            await send({"type": "http.response.body", "body": b"".join(map(encode, events)), "more_body": not over})
            if over:
                return
            events = await self.next()

    async def next(self) -> list[Event]:
        """What is new, or after half a second of silence how the job stands."""
        try:
            await asyncio.wait_for(self.news.wait(), BEAT_SECONDS)
        except TimeoutError:
            self.job.check_time()
        self.news.clear()
        return self.job.take() or [self.job.beat(self.queue.ahead(self.job))]
