"""Connections that note when their bytes came.

The moment is taken in the event loop's own callback, before any parsing, so that streams that are heard at the same time do not wait
for each other's parsers. httpcore (what httpx sends with) lets its connections be replaced, which httpx itself does not.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import httpcore

MOST_BUFFERED = 2**20  # bytes that wait for a reader; then the other side has to
KEPT_SECONDS = 1.0  # an idle connection; the other side may hang up on an older one just as it is used again


def pool() -> httpcore.AsyncConnectionPool:
    """Connections to any host, as many as are asked for. HTTP/1.1, no proxies, no redirects, no retries."""
    return httpcore.AsyncConnectionPool(max_connections=None, keepalive_expiry=KEPT_SECONDS, network_backend=Backend())


class Wire(asyncio.Protocol):
    """What came, with the time at which it did, until somebody reads it."""

    def __init__(self):
        self.arrived: deque[tuple[float, bytes]] = deque()
        self.buffered = 0
        self.lost = False
        self.error: Exception | None = None
        self.transport: asyncio.Transport | None = None
        self._news: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.arrived.append((perf_counter(), data))
        self.buffered += len(data)
        if self.buffered > MOST_BUFFERED:
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost, self.error = True, error
        self._wake()

    def eof_received(self) -> bool:
        self.lost = True
        self._wake()
        return False

    def _wake(self) -> None:
        if self._news and not self._news.done():
            self._news.set_result(None)

    async def news(self) -> None:
        """Returns once there is something to read, or nothing will come any more."""
        if not self.arrived and not self.lost:
            self._news = asyncio.get_running_loop().create_future()
            await self._news

    def take(self, most: int) -> tuple[float, bytes]:
        when, data = self.arrived.popleft()
        if len(data) > most:
            self.arrived.appendleft((when, data[most:]))
            data = data[:most]
        if self.buffered > MOST_BUFFERED >= self.buffered - len(data):
            self.transport.resume_reading()
        self.buffered -= len(data)
        return when, data


class Stream(httpcore.AsyncNetworkStream):
    """sent_at: when the first byte of the request now under way left; read_at: when the bytes read last had come. A request that
    follows another on the same connection begins with the first write after a read."""

    def __init__(self, wire: Wire):
        self.wire = wire
        self.sent_at = self.read_at = perf_counter()
        self._asking = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._asking = False
        try:
            async with asyncio.timeout(timeout):
                await self.wire.news()
        except TimeoutError:
            raise httpcore.ReadTimeout from None
        if self.wire.arrived:
            self.read_at, data = self.wire.take(max_bytes)
            return data
        if self.wire.error:
            raise httpcore.ReadError(str(self.wire.error))
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Returns at once: a prompt is small, and what the socket does not take now the transport keeps."""
        if self.wire.lost:
            raise httpcore.WriteError("the connection is closed")
        if not self._asking:
            self._asking, self.sent_at = True, perf_counter()
        self.wire.transport.write(buffer)

    async def aclose(self) -> None:
        self.wire.transport.abort()  # whoever leaves in the middle of an answer wants no more of it

    async def start_tls(self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None) -> Stream:
        loop, wire = asyncio.get_running_loop(), self.wire
        try:
            async with asyncio.timeout(timeout):
                wire.transport = await loop.start_tls(wire.transport, wire, ssl_context, server_hostname=server_hostname)
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        except OSError as error:  # ssl.SSLError too
            raise httpcore.ConnectError(str(error)) from error
        return self

    def get_extra_info(self, info: str) -> Any:
        match info:
            case "is_readable":  # asked of an idle connection: anything to read there means that it is over
                return bool(self.wire.lost or self.wire.arrived)
            case "ssl_object" | "socket":
                return self.wire.transport.get_extra_info(info)
            case "server_addr":
                return self.wire.transport.get_extra_info("peername")


class Backend(httpcore.AsyncNetworkBackend):
    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Iterable[Any] | None = None
    ) -> Stream:
        try:
            async with asyncio.timeout(timeout):
                _, wire = await asyncio.get_running_loop().create_connection(Wire, host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that no name server can be asked for
            raise httpcore.ConnectError(str(error)) from error
        return Stream(wire)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
