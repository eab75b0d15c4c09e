"""A service process for tests, and this process as its client."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from compute import functions
from compute.service import client
from tests.service import toys

ROOT = Path(__file__).parents[2]


class Server:
    """`python -m tests.service.server` on a free port. Everything it prints to stderr is kept."""

    def __init__(self, port: int = 0, **limits):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.server", str(port), json.dumps(limits)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"the service did not start: {line!r} {self.process.stderr.read()}"
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = ""
        threading.Thread(target=self._read, daemon=True).start()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                httpx.get(f"{self.url}/healthz", trust_env=False).raise_for_status()
                return
            except httpx.TransportError:
                time.sleep(0.02)
        raise AssertionError("the service did not answer")

    def _read(self):
        for line in self.process.stderr:
            self.log += line

    def health(self) -> dict:
        return httpx.get(f"{self.url}/healthz", trust_env=False, timeout=10).json()

    def post(self, function: str, body=None, **more) -> httpx.Response:
        more = {"content": body} if isinstance(body, (str, bytes)) else {"json": body or {}} | more
        return httpx.post(f"{self.url}/run/{function}", trust_env=False, timeout=20, **more)

    def idle_within(self, seconds: float) -> float:
        """Waits until nothing runs; the seconds that took. Fails after `seconds`."""
        start = time.monotonic()
        while self.health()["running"]:
            assert time.monotonic() - start < seconds, f"still running after {seconds} s"
            time.sleep(0.02)
        return time.monotonic() - start

    def signal(self, number: int):
        self.process.send_signal(number)

    def stop(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait(10)


@pytest.fixture
def start():
    """start(port=0, **limits) → Server; all are stopped at the end."""
    servers = []

    def starter(port: int = 0, **limits) -> Server:
        servers.append(Server(port, **limits))
        return servers[-1]

    yield starter
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def _shared():
    server = Server(running=2, waiting=1, seconds=3, body_bytes=2000)
    yield server
    server.stop()


@pytest.fixture
def use(monkeypatch):
    """use(server or address): the client of this process calls there, and knows the toys."""
    monkeypatch.setattr(functions, "TABLE", {**functions.TABLE, **toys.TOYS})

    def choose(where):
        monkeypatch.setenv(client.VARIABLE, getattr(where, "url", where))
        client._statuses.clear()

    return choose


@pytest.fixture
def server(_shared, use):
    """One service for the tests that leave it whole: 2 running, 1 waiting, 3 s, 2000 bytes."""
    _shared.idle_within(5)
    use(_shared)
    return _shared
