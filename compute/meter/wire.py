"""Connections that note when their bytes came.

On Linux the kernel says when they did (SO_TIMESTAMPNS), however late this process gets to run; elsewhere the moment is taken as soon as
they are read, before any parsing. httpcore (what httpx sends with) lets its connections be replaced, which httpx itself does not.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import httpcore

MOST_BUFFERED = 2**20  # bytes that wait for a reader; then the other side has to
KEPT_SECONDS = 1.0  # an idle connection; the other side may hang up on an older one just as it is used again
TIMESTAMPS = 35  # SO_TIMESTAMPNS of Linux, which Python has no name for
TIME = struct.Struct("ll")  # seconds, nanoseconds
ROOM = socket.CMSG_SPACE(TIME.size) if hasattr(socket, "CMSG_SPACE") else 0


def pool(lags: array | None = None) -> httpcore.AsyncConnectionPool:
    """Connections to any host, as many as are asked for. HTTP/1.1, no proxies, no redirects, no retries. lags: gets the seconds by which
    this process read later than the bytes had come, where the kernel says when they had."""
    return httpcore.AsyncConnectionPool(max_connections=None, keepalive_expiry=KEPT_SECONDS, network_backend=Backend(array("f") if lags is None else lags))


class Socket(socket.socket):
    """Knows when the bytes came that were read last, on perf_counter's clock."""

    def __init__(self, *args: Any, lags: array | None = None):
        super().__init__(*args)
        self.setblocking(False)
        self.lags = lags
        self.by_kernel = False  # whether it was the kernel that said so
        self._came: float | None = None
        self._last = 0.0
        self._asks = False
        if sys.platform == "linux":
            try:
                self.setsockopt(socket.SOL_SOCKET, TIMESTAMPS, 1)
                self._asks = True
            except OSError:
                pass  # a kernel without: the process's clock will do

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self._asks:
            return super().recv(size, flags)
        data, said, _, _ = self.recvmsg(size, ROOM, flags)
        self._note(said)
        return data

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        """What asyncio calls below TLS."""
        if not self._asks:
            return super().recv_into(buffer, size, flags)
        count, said, _, _ = self.recvmsg_into([buffer], ROOM, flags)
        self._note(said)
        return count

    def _note(self, said: list[tuple[int, int, bytes]]) -> None:
        """The kernel's stamp of the newest of the bytes, on the clock of the calendar; how long ago that is holds on every clock. A
        calendar that was set meanwhile cannot make it later than now or earlier than the bytes before."""
        now, calendar = perf_counter(), time.time()
        for level, kind, data in said:
            if (level, kind, len(data)) == (socket.SOL_SOCKET, TIMESTAMPS, TIME.size):
                seconds, nanoseconds = TIME.unpack(data)
                ago = calendar - seconds - 1e-9 * nanoseconds
                self._came = self._last = min(max(now - ago, self._last), now)
                self.by_kernel = True
                if self.lags is not None:
                    self.lags.append(now - self._came)

    def came(self) -> float:
        found, self._came = self._came, None
        return perf_counter() if found is None else found


class Wire(asyncio.Protocol):
    """What came, with the time at which it did, until somebody reads it."""

    def __init__(self, sock: Socket):
        self.sock = sock
        self.arrived: deque[tuple[float, bytes]] = deque()
        self.buffered = 0
        self.lost = False
        self.error: Exception | None = None
        self.transport: asyncio.Transport | None = None
        self._news: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.arrived.append((self.sock.came(), data))
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
        """Waits as long as it takes: whoever asks for the whole answer has a limit for each of its parts."""
        self._asking = False
        await self.wire.news()
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
    def __init__(self, lags: array | None = None):
        self.lags = lags

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Iterable[Any] | None = None
    ) -> Stream:
        try:
            async with asyncio.timeout(timeout):
                return await self._connect(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that no name server can be asked for
            raise httpcore.ConnectError(str(error)) from error

    async def _connect(self, host: str, port: int) -> Stream:
        """To the first of the host's addresses that answers. Raises OSError."""
        loop, failed = asyncio.get_running_loop(), OSError("it has no address")
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP):
            sock = Socket(family, kind, protocol, lags=self.lags)
            try:
                await loop.sock_connect(sock, address)
                _, wire = await loop.create_connection(lambda: Wire(sock), sock=sock)
                return Stream(wire)
            except OSError as error:
                sock.close()
                failed = error
            except BaseException:
                sock.close()
                raise
        raise failed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
