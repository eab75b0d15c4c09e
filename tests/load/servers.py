"""The servers under load, as processes of their own on loopback, and what the system says of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180
OURS = ("uvicorn", "app.asgi:app", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning", "--timeout-graceful-shutdown", "2")
PLAIN = ("streamlit", "run", "app/main.py", "--server.address", "127.0.0.1", "--server.port", "{port}", "--runner.postScriptGC", "true")
COMPUTE = ("compute", "serve", "--port", "{port}")
HEALTH = {OURS: "/healthz", PLAIN: "/_stcore/health", COMPUTE: "/healthz"}


@contextmanager
def started(command: tuple[str, ...], **environment: str) -> Iterator[tuple[str, int]]:
    """(host:port, process id) of `python -m command` once it answers; it ends with the block. The children stay in this process's
    session, so that what it got of the processor is theirs too. Raises RuntimeError when it does not start."""
    port = _free_port()
    process = subprocess.Popen([sys.executable, "-m", *(part.format(port=port) for part in command)], cwd=ROOT, process_group=0,
                               env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "PASSIVE"} | environment, stdout=sys.stderr)  # fmt: skip
    try:
        _await(f"http://127.0.0.1:{port}{HEALTH[command]}", process)
        yield f"127.0.0.1:{port}", process.pid
    finally:
        _end(process)


@contextmanager
def two(**environment: str) -> Iterator[tuple[str, list[int]]]:
    """Two of our web servers behind deploy/nginx.conf: its address, and the process ids of both and of nginx."""
    from tests.browser.test_several_servers import proxied

    with tempfile.TemporaryDirectory() as folder, started(OURS, **environment) as (one, first), started(OURS, **environment) as (other, second), \
            proxied(Path(folder), [one, other]) as (url, nginx):  # fmt: skip
        yield url.removeprefix("http://"), [first, second, nginx.pid]


@contextmanager
def one(command: tuple[str, ...], **environment: str) -> Iterator[tuple[str, list[int]]]:
    with started(command, **environment) as (url, pid):
        yield url, [pid]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await(url: str, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{url} ended with exit code {process.returncode} before it answered")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not answer within {START_SECONDS} s")


def _end(process: subprocess.Popen) -> None:
    for number, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                pass


def cpu_seconds(pid: int) -> float:
    """Of all its threads, since it began."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
