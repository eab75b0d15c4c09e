"""From the command to a usable page, and what stays in memory: `python -m tests.bench.start [--rounds 3] [--json]`.

Starts `run.py` as a learner does, with everything installed, and measures from there: until the web server answers, until the
contents page is usable in Chromium (drawn, connected, nothing left to run), and how long lesson 1 then takes to open. Then runs
each of our models once and reads the resident memory of both processes. Linux only, as it reads /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable

from tests.bench.pages import chromium, conditions, own_output
from tests.browser.conftest import free_port, visit
from tests.browser.test_lesson_one import SKIPPED, drawn
from tests.conftest import ROOT

MODELS = ("mini-256", "mini-128", "mini-64")
PATIENCE_S = 120


@dataclass(frozen=True)
class Start:
    """One start of run.py; seconds from the command, megabytes (10⁶ bytes) resident."""

    answers_s: float
    usable_s: float
    lesson_s: float  # opening lesson 1 after that, everything still cold in this browser but what both pages share
    service_ready_s: float
    web_mb: float
    service_mb: float
    models: tuple[str, ...]  # loaded in the service when its memory was read


def wait_for(found: Callable[[], Any], what: str, process: subprocess.Popen) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"run.py ended with exit code {process.returncode} before {what}")
        if value := found():
            return value
        time.sleep(0.02)
    raise SystemExit(f"{what} did not happen within {PATIENCE_S} s")


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=1) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


def children(pid: int) -> dict[int, list[str]]:
    """The processes that `pid` started, with their command lines."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                found[int(status.parent.name)] = (status.parent / "cmdline").read_bytes().decode().split("\0")
        except (OSError, ValueError):
            continue  # it ended meanwhile
    return found


def resident_mb(pid: int) -> float:
    """Of a process and all that it started."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024 / 1e6 + sum(resident_mb(child) for child in children(pid))


def load_models(service: str) -> tuple[str, ...]:
    loaded = []
    for model in MODELS:
        body = json.dumps({"model": model, "new": 12}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{service}/run/kv.compare", body, {"content-type": "application/json"}), timeout=PATIENCE_S) as reply:
                last = json.loads(reply.read().decode().strip().splitlines()[-1])
        except urllib.error.HTTPError:
            continue  # not in data/checkpoints
        if "result" in last:
            loaded.append(model)
    return tuple(loaded)


def start(browser) -> Start:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, str(ROOT / "run.py"), "--port", str(port)], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: healthy(url), "the web server answered", process)
        answers = time.monotonic() - began
        page = visit(browser, url, "/", lang="zh")
        page.wait_for_function("() => !document.querySelector('.stApp [data-testid=stSkeleton]') && document.querySelectorAll('.stApp [data-testid=stPageLink] a').length > 0")
        usable = time.monotonic() - began
        opening = time.monotonic()
        page.goto(f"{url}/roofline?lang=zh&{SKIPPED}")
        drawn(page)
        lesson = time.monotonic() - opening
        service_pid, command = wait_for(lambda: next(((pid, line) for pid, line in children(process.pid).items() if "serve" in line), None), "the compute service started", process)
        service = f"http://127.0.0.1:{command[command.index('--port') + 1]}"
        wait_for(lambda: healthy(service), "the compute service answered", process)
        ready = time.monotonic() - began
        models = load_models(service)
        web_pid = next(pid for pid, line in children(process.pid).items() if "uvicorn" in line)
        found = Start(answers, usable, lesson, ready, resident_mb(web_pid), resident_mb(service_pid), models)
        page.context.close()
        return found
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.start", description="Seconds from run.py to a usable page, and resident memory.")
    parser.add_argument("--rounds", type=int, default=3, help="starts (3)")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least 1")
    if not Path("/proc/self/status").exists():
        parser.error("memory is read from /proc, which this system lacks")
    around, out = conditions(), own_output()
    with chromium() as browser:
        around["chromium"] = browser.version
        starts = [start(browser) for _ in range(options.rounds)]
    around["load average after"] = list(os.getloadavg())
    if options.json:
        print(json.dumps({"conditions": around, "starts": [asdict(s) for s in starts]}, indent=1), file=out)
        return 0
    print("; ".join(f"{name}: {value}" for name, value in around.items()), file=out)
    print(f"\n{'':<52}{'median':>9}{'slowest':>9}   {options.rounds} starts", file=out)
    for field, what in (
        ("answers_s", "run.py to the web server's first answer, s"), ("usable_s", "run.py to the contents page usable, s"),
        ("lesson_s", "opening lesson 1 after that, s"), ("service_ready_s", "run.py to the compute service ready, s"),
        ("web_mb", "web process, resident, MB"), ("service_mb", f"service with {' '.join(starts[-1].models) or 'no model'}, MB"),
    ):  # fmt: skip
        values = [getattr(s, field) for s in starts]
        print(f"{what:<52}{statistics.median(values):>9.4g}{max(values):>9.4g}", file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
