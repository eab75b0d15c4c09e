"""The service as a process of the tests."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

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
