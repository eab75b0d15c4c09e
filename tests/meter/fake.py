"""A server that does what it is told, well or badly, over raw sockets and in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
OPEN = SSE + b"Connection: close\r\n\r\n"  # the end of the connection is the end of the answer
CHUNKED = SSE + b"Transfer-Encoding: chunked\r\n\r\n"
NEVER = 3600.0


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Any
    number: int


Answer = Callable[[Request], AsyncIterator[bytes]]
"""Yields what is to be sent, and waits as long as it wants in between; then the connection is closed, unless `keep` was set."""


@dataclass
class Fake:
    """With `Fake(answer) as fake`. requests: what was asked; left: how many hung up before the answer's end; most: asked at one time."""

    answer: Answer
    keep: bool = False
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    left: int = 0
    most: int = 0
    now: int = 0
    sent: list[float] = field(default_factory=list)  # when each piece was handed to the socket

    def __enter__(self) -> Fake:
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()

        async def serve():
            self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
            self.port = self.server.sockets[0].getsockname()[1]
            ready.set()

        def run():
            asyncio.set_event_loop(self.loop)
            self.loop.create_task(serve())
            self.loop.run_forever()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_):
        def stop():
            self.server.close()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.call_soon(self.loop.stop)

        self.loop.call_soon_threadsafe(stop)
        self.thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.connections += 1
        try:
            while request := await self.read(reader):
                self.requests.append(request)
                self.now += 1
                self.most = max(self.most, self.now)
                gone = asyncio.ensure_future(reader.read(1))
                telling = asyncio.ensure_future(self.tell(request, writer))
                await asyncio.wait({gone, telling}, return_when=asyncio.FIRST_COMPLETED)
                self.now -= 1
                if not telling.done():
                    self.left += 1
                    telling.cancel()
                    return
                gone.cancel()
                await asyncio.wait({gone})
                if not self.keep:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def tell(self, request: Request, writer: asyncio.StreamWriter):
        async for piece in self.answer(request):
            self.sent.append(perf_counter())
            writer.write(piece)
            await writer.drain()

    async def read(self, reader: asyncio.StreamReader) -> Request | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Request(first.split()[1], headers, json.loads(body) if body else None, len(self.requests))


# ---- pieces of answers


def event(body: Any) -> bytes:
    return b"data: " + (body if isinstance(body, bytes) else json.dumps(body).encode()) + b"\n\n"


def text(words: str = "a", finish: str | None = None, **more: Any) -> bytes:
    return event({"id": "x", "object": "text_completion", "choices": [{"index": 0, "text": words, "finish_reason": finish}], **more})


def delta(finish: str | None = None, **said: Any) -> bytes:
    return event({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": said, "finish_reason": finish}]})


def usage(prompt: int, output: int) -> bytes:
    return event({"id": "x", "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}})


DONE = event(b"[DONE]")


def chunked(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def plain(status: int, body: Any, *headers: str, kind: str = "application/json") -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = "".join(f"{line}\r\n" for line in (f"Content-Type: {kind}", f"Content-Length: {len(raw)}", *headers))
    return f"HTTP/1.1 {status} Whatever\r\n{fields}\r\n".encode() + raw


def answer(*pieces: bytes | float) -> Answer:
    """The same to everybody: bytes are sent, seconds are waited."""

    async def tell(request: Request):
        for piece in pieces:
            if isinstance(piece, bytes):
                yield piece
            else:
                await asyncio.sleep(piece)

    return tell


def obedient(tokens_a_chunk: int = 1, counts: bool = True) -> Answer:
    """As many tokens as were asked for, well told, in chunks of a response that may be followed by another. It says nothing that
    was not asked for: usage only with stream_options."""

    async def tell(request: Request):
        if request.path.endswith("/models"):
            yield plain(200, {"object": "list", "data": [{"id": "fake"}, {"id": "other"}]})
            return
        tokens = request.body["max_tokens"]
        chat = request.path.endswith("/chat/completions")
        yield CHUNKED
        if chat:
            yield chunked(delta(role="assistant", content=""))
        for at in range(0, tokens, tokens_a_chunk):
            await asyncio.sleep(0)
            yield chunked(delta(content="a") if chat else text("a"))
        yield chunked(delta("length") if chat else text("", "length"))
        if counts and request.body.get("stream_options", {}).get("include_usage"):
            yield chunked(usage(len(str(request.body.get("prompt", request.body.get("messages")))) // 5, tokens))
        yield chunked(DONE) + b"0\r\n\r\n"

    return tell
