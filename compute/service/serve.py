"""Starts the service as a process of its own: `python -m compute serve`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import uvicorn

from compute.service.api import create_app
from compute.service.jobs import Limits
from compute.service.machine import Machine
from compute.service.schema import ADDRESS_VARIABLE

NICE = 10  # the web process goes first
DEVICE_VARIABLE = "INFERENCE_LAB_DEVICE"  # where functions read which device was asked for


def serve(
    host: str = "127.0.0.1", port: int = 8502, device: str = "auto", *, allow_hosts: list[str] | None = None,
    limits: Limits | None = None, preload: bool = True,
) -> int:  # fmt: skip
    """Serves until SIGTERM or SIGINT, gives running calls `limits.drain_seconds`, and ends the process with 0. Returns only when it
    cannot serve: the exit status 2, with one sentence on stderr, when the address cannot be had, or the device or a list of models
    that was asked for is not there."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    machine, limits = Machine(device), limits or Limits()
    os.environ[DEVICE_VARIABLE] = device
    if device not in ("auto", "cpu"):  # cpu and auto always work, and looking costs the import of torch
        from compute.engine.errors import ModelError

        try:
            machine.prepare()
        except ModelError as error:
            return _sorry(str(error))
    try:
        listening = listen(host, port)
    except OSError as error:
        return _sorry(f"The compute service cannot listen on {host}:{port} ({error.strerror or error}); "
                      "stop what runs there or choose another --port.")  # fmt: skip
    give_way()
    app = create_app(machine, limits, allow_hosts, preload)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_keep_alive=75, server_header=False,
        timeout_graceful_shutdown=int(limits.drain_seconds) + 2,
        loop="asyncio", http="h11",  # the same everywhere: Ray brings others along, which uvicorn would take
    )  # fmt: skip
    # uvicorn raises the signal again when it has finished; by then it has been obeyed
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    os.environ[ADDRESS_VARIABLE] = reachable(listening)
    with suppress(OSError):  # a full disk under the log is no reason not to serve
        print(f"compute service: http://{_shown(host)}:{listening.getsockname()[1]} (pid {os.getpid()})", flush=True)
    DrainingServer(config).run(sockets=[listening])
    leave()


def leave() -> NoReturn:
    """Everybody has been told, and nothing waits to be written: what Python would still do is take torch apart, half a second of
    processor time, which at low priority on a busy machine is longer than whoever asked it to end waits before killing it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(0)


def give_way() -> None:
    """Lowers this process's priority, and that of the session that it leads: where Linux shares the processor out by sessions
    (autogroup), nice counts only within one."""
    if not hasattr(os, "nice"):  # Windows
        return
    os.nice(NICE)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # no such thing here
            Path("/proc/self/autogroup").write_text(str(NICE))


class DrainingServer(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.service.stop(asyncio.get_running_loop())
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises OSError."""
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)[0]
    listening = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY only when the protocol is named
    try:
        if os.name == "posix":  # on Windows this option would let two servers share the port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening


def reachable(listening: socket.socket) -> str:
    """The base URL under which this machine reaches it; a service for all addresses is reached at loopback's."""
    host, port = listening.getsockname()[:2]
    return f"http://{_shown({'0.0.0.0': '127.0.0.1', '::': '::1'}.get(host, host))}:{port}"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _sorry(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 2
