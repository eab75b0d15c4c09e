"""Faults, one after the other: docs/faults.md is the table, each row with the tests that show it.

    pages                    the web server with the real lessons and no compute service behind it
    wire(port) → Wire        a loopback connection in front of a server that can be cut and mended, as a network does
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.browser.conftest import Server, end, start_web


NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="session")
def pages() -> Iterator[Server]:
    url, web = start_web(NOBODY)
    yield Server(url, NOBODY, web, None)
    end(web)


class Wire:
    """port: where it is reached."""

    def __init__(self, to: int):
        self.to, self.up, self._ends = to, True, set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        self.up = False
        for end in list(self._ends):
            shut(end)

    def mend(self) -> None:
        self.up = True

    def close(self) -> None:
        self.cut()
        shut(self._listening)
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if not self.up:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.to))
            self._ends |= {near, far}
            for here, there in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(here, there), daemon=True).start()

    def _carry(self, here: socket.socket, there: socket.socket) -> None:
        try:
            while some := here.recv(65536):
                there.sendall(some)
        except OSError:
            pass
        shut(here)
        shut(there)
        self._ends.discard(here)


def shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:  # it is already
        pass


@pytest.fixture()
def wire():
    made = []

    def lay(port: int) -> Wire:
        made.append(Wire(port))
        return made[-1]

    yield lay
    for each in made:
        each.close()
