"""One request to an endpoint, sent and heard to its end or to its error. Nothing here raises for what a server does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import httpcore

from compute.meter import answers, failures
from compute.meter.answers import Api, Events, Garbage, Usage
from compute.meter.failures import Why
from compute.meter.report import Failed, Measured, Underway

MOST_ERROR_BYTES = 16_384
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True)
class Target:
    """Where requests go. url: without a trailing slash, such as http://127.0.0.1:8502/v1. model: empty, the first that the server
    lists. api: None, completions where they are served, else chat. key: never shown; key_from: the environment variable that holds it."""

    name: str
    url: str
    model: str = ""
    api: Api | None = None
    key: str = field(default="", repr=False)
    key_from: str = ""


@dataclass(frozen=True)
class Patience:
    """Seconds for a connection, until the first chunk, between chunks, after the text has ended, for the whole answer; and its bytes.
    Chunks with text: at most 4 a token that was asked for, and some."""

    connect: float = 5.0
    first: float = 60.0
    between: float = 30.0
    after: float = 2.0
    total: float = 300.0
    bytes: int = 16 * 2**20

    def chunks(self, asked: int) -> int:
        return 4 * asked + 64


@dataclass(frozen=True)
class Dialect:
    """How this server is spoken to: what it refused is left out. limit: what it calls the length of the answer."""

    api: Api = "completions"
    limit: str = "max_tokens"
    options: tuple[tuple[str, Any], ...] = (("stream_options", {"include_usage": True}), ("ignore_eos", True), ("temperature", 0))

    def body(self, model: str, prompt: str, tokens: int) -> bytes:
        text = {"prompt": prompt} if self.api == "completions" else {"messages": [{"role": "user", "content": prompt}]}
        asked = {"model": model, **text, self.limit: tokens, "stream": True, **dict(self.options)}
        return json.dumps(asked, ensure_ascii=False).encode()

    @property
    def path(self) -> str:
        return "/completions" if self.api == "completions" else "/chat/completions"

    def without(self, refusal: Why, free: bool) -> Dialect | None:
        """What to try after a refusal; None where nothing is left to try. free: the other protocol may be tried."""
        if refusal.status in (404, 405, 501):
            return replace(self, api="chat") if free and self.api == "completions" else None
        if refusal.status not in (400, 422):
            return None
        if "max_completion_tokens" in refusal.message and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        kept = tuple((name, value) for name, value in self.options if name not in refusal.message)
        if not self.options:
            return None
        return replace(self, options=kept if len(kept) < len(self.options) else ())


def headers(target: Target) -> list[tuple[bytes, bytes]]:
    found = [(b"Content-Type", b"application/json"), (b"Accept", EVENT_STREAM.encode()), (b"User-Agent", b"inference-lab-meter")]
    return found + ([(b"Authorization", b"Bearer " + target.key.encode())] if target.key else [])


class Asking:
    """A request on its way. due: when it was to be sent, on perf_counter's clock, as are all times here."""

    def __init__(self, id: int, due: float):
        self.id, self.due = id, due
        self.sent = due
        self.first: float | None = None
        self.last = due
        self.chunks: list[float] = []
        self.bytes = 0
        self.server_spoke = self.heard = self.finished = False  # the head of an answer; any event; the word that the text has ended
        self.usage: Usage | None = None
        self.server = self.fingerprint = ""
        self.why: Why | None = None
        self.ended = due

    def keep(self, target: Target) -> None:
        """The secret: a server may repeat the key anywhere in what it says, and whoever reads a report must not learn it."""
        self.server, self.fingerprint = hidden(self.server, target), hidden(self.fingerprint, target)
        if self.why:
            self.why = replace(self.why, **{name: hidden(getattr(self.why, name), target) for name in ("en", "zh", "message")})

    def measured(self, zero: float) -> Measured | Failed:
        """What it came to. zero: the moment that counts as 0."""
        if self.why:
            return Failed(self.id, self.sent - zero, self.ended - zero, self.why.kind, self.why.says)
        usage = self.usage if self.usage and self.usage.output else None
        return Measured(
            self.id, self.sent - zero, self.first - zero, self.last - zero, usage and usage.prompt, usage.output if usage else len(self.chunks),
            "usage" if usage else "chunks", tuple(at - zero for at in self.chunks), self.sent - self.due, usage and usage.cached,
        )  # fmt: skip

    def underway(self, zero: float) -> Underway:
        return Underway(self.id, self.sent - zero, None if self.first is None else self.first - zero, tuple(at - zero for at in self.chunks))


async def ask(pool: httpcore.AsyncConnectionPool, target: Target, dialect: Dialect, asking: Asking, prompt: str, tokens: int, patience: Patience) -> None:
    """Sends it and listens to the end; what came of it stands in `asking`. A kept connection that the server closed meanwhile, as it
    may, is no answer of the server's: then the request goes out once more."""
    while not await asked(pool, target, dialect, asking, prompt, tokens, patience) and asking.why and asking.why.kind == "closed" and not asking.server_spoke:
        asking.why = None


async def asked(pool: httpcore.AsyncConnectionPool, target: Target, dialect: Dialect, asking: Asking, prompt: str, tokens: int, patience: Patience) -> bool:
    """Whether it went out on a connection of its own."""
    begun = asking.sent = perf_counter()
    fresh = False
    clock = asyncio.get_running_loop().time
    end = clock() + patience.total

    async def traced(event: str, info: dict[str, Any]) -> None:
        nonlocal fresh
        fresh = fresh or event == "connection.connect_tcp.started"
        if event == "http11.send_request_headers.started":  # connected: now it is the server's turn
            limit.reschedule(min(clock() + patience.first, end))

    extensions = {"timeout": {"connect": patience.connect}, "trace": traced}
    try:
        async with asyncio.timeout(patience.total) as limit:
            content = dialect.body(target.model, prompt, tokens)
            async with pool.stream("POST", target.url + dialect.path, headers=headers(target), content=content, extensions=extensions) as response:
                asking.server_spoke = True
                wire = response.extensions["network_stream"]
                asking.sent = wire.sent_at
                asking.server = next((answers.shown(hidden(value.decode("latin-1"), target)) for name, value in response.headers if name.lower() == b"server"), "")
                await refuse(response, target)
                await listen(response, wire, asking, target, tokens, patience, limit, end)
    except TimeoutError:
        if asking.finished:
            pass  # the text had ended, and the server only keeps the connection
        elif perf_counter() - begun >= patience.total - 0.01:
            asking.why = failures.endless_time(patience.total)
        else:
            asking.why = failures.stalled(patience.between, len(asking.chunks)) if asking.heard else failures.silent(patience.first)
    except Why as why:
        asking.why = why
    except Garbage as garbage:
        asking.why = failures.garbage(garbage.en, garbage.zh)
    except httpcore.ConnectTimeout:
        asking.why = failures.no_connection_within(patience.connect)
    except (httpcore.ConnectError, httpcore.UnsupportedProtocol, httpcore.LocalProtocolError) as error:
        asking.why = failures.not_connected(answers.shown(hidden(str(error), target), 120))
    except (httpcore.NetworkError, httpcore.RemoteProtocolError) as error:
        asking.why = broken(error, asking)
    asking.ended = perf_counter()
    asking.keep(target)
    if asking.why is None and not asking.chunks:
        asking.why = failures.empty()
    return fresh


def broken(error: Exception, asking: Asking) -> Why:
    """A connection cut short, or bytes that are no HTTP."""
    said = str(error).lower()
    if isinstance(error, httpcore.RemoteProtocolError) and "disconnected" not in said and "closed" not in said:
        return failures.garbage(f"not HTTP ({answers.shown(str(error))})", f"不是 HTTP（{answers.shown(str(error))}）")
    return failures.closed(len(asking.chunks))


async def refuse(response: httpcore.Response, target: Target) -> None:
    """Raises Why for every answer that is not a stream of events."""
    fields = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    kind = fields.get(b"content-type", "")
    if 300 <= response.status < 400:
        raise failures.redirected(response.status, answers.shown(hidden(fields.get(b"location", "?"), target), 120))
    packed = answers.shown(fields.get(b"content-encoding", "")).lower().replace("identity", "")
    if response.status == 200 and kind.lower().startswith(EVENT_STREAM):
        if packed:
            raise failures.garbage(f"it is compressed ({packed}), which was not asked for", f"它压缩过（{packed}），而我们没有要求")
        return
    body = b"" if packed else hidden((await beginning(response, MOST_ERROR_BYTES)).decode(errors="replace"), target).encode()
    if response.status != 200:
        raise failures.http(response.status, answers.refusal(body), retry_after(fields))
    named = answers.shown(hidden(kind, target)) or "—"
    raise failures.garbage(f"{named}, not a stream of events: {answers.shown(body)}", f"{named}，不是事件流：{answers.shown(body)}")


async def beginning(response: httpcore.Response, most: int) -> bytes:
    body = b""
    async for part in response.aiter_stream():
        body += part
        if len(body) >= most:
            break
    return body[:most]


def retry_after(fields: dict[bytes, str]) -> float | None:
    """Seconds; None where it is not said, or said as a date."""
    said = fields.get(b"retry-after", "").strip()
    return min(float(said), 1e6) if said.isascii() and said.isdigit() else None


def hidden(text: str, target: Target) -> str:
    """The text without the key, which some servers repeat when they refuse it."""
    return text.replace(target.key, "…") if target.key and target.key in text else text


async def listen(
    response: httpcore.Response, wire: Any, asking: Asking, target: Target, tokens: int, patience: Patience, limit: asyncio.Timeout, end: float
) -> None:
    """Reads chunks to the end of the answer, each with the time at which the bytes that completed it had come. Raises Why and Garbage."""
    events, clock, over, set_at = Events(), asyncio.get_running_loop().time, False, 0.0
    async for part in response.aiter_stream():
        at = wire.read_at
        asking.bytes += len(part)
        if asking.bytes > patience.bytes:
            raise failures.endless_bytes(patience.bytes)
        for event in events.push(part) if not over else ():  # to the end of the response, so that the connection can be used again
            said = answers.read(hidden(event, target))
            if said.error:
                raise failures.gave_up(said.error)
            if said.text:
                asking.first = asking.first or at
                asking.chunks.append(at)
                if len(asking.chunks) > patience.chunks(tokens):
                    raise failures.endless_chunks(patience.chunks(tokens), tokens)
            if said.text or said.finish and not asking.finished:
                asking.last = at
            asking.heard, over = True, over or said.over
            asking.finished = asking.finished or over or bool(said.finish)
            asking.usage = said.usage or asking.usage
            asking.fingerprint = asking.fingerprint or said.fingerprint
            if asking.finished:
                limit.reschedule(min(clock() + patience.after, end))
            elif (now := clock()) - set_at > patience.between / 100:  # not with every chunk: this takes as long as reading one
                set_at = now
                limit.reschedule(min(now + patience.between, end))
    if not asking.finished:
        raise failures.closed(len(asking.chunks))


async def first_model(pool: httpcore.AsyncConnectionPool, target: Target, patience: Patience) -> str:
    """The model that the server lists first. Raises Why."""
    try:
        async with asyncio.timeout(patience.connect + patience.first):
            request = dict(headers=headers(target), extensions={"timeout": {"connect": patience.connect}})
            async with pool.stream("GET", target.url + "/models", **request) as response:
                if response.status != 200:
                    await refuse(response, target)
                body = await beginning(response, MOST_ERROR_BYTES * 64)
        return str(json.loads(body)["data"][0]["id"])
    except TimeoutError:
        raise failures.silent(patience.first) from None
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        said = answers.shown(hidden(body.decode(errors="replace"), target))
        raise failures.garbage(f"not a list of models: {said}", f"不是模型清单：{said}") from None
    except httpcore.ConnectTimeout:
        raise failures.no_connection_within(patience.connect) from None
    except httpcore.ConnectError as error:
        raise failures.not_connected(answers.shown(str(error), 120)) from None
    except (httpcore.NetworkError, httpcore.RemoteProtocolError) as error:
        raise broken(error, Asking(0, 0.0)) from None
