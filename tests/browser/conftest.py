"""A real Chromium against the real server.

    server                  the app under uvicorn on a free port with the real lessons, started once a session
    sample_server           the same with the small course of tests/app/lessons
    open_page(path="/", lang="zh", width=1440, height=1000, theme="light", at=None)
                            a fresh browser context; returns the Playwright page once the app is idle. `page.requests`
                            lists every address that was asked for, `page.problems` what the console complained about.
    assert_clean(page)      no st.exception, no unexpected error on the page or its console, no request off this machine
    wait_idle(page)         until the last rerun has been drawn

INFERENCE_LAB_COMPUTE decides what stands behind the pages: unset, a real `python -m compute serve`.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Iterator
from urllib.parse import urlsplit

import pytest

from tests.conftest import ROOT, SAMPLE_LESSONS

SIZES = {"desktop": (1440, 1000), "phone": (390, 844)}
# The client looks for its server under each page's own address first; the 404 is how it learns where it is.
EXPECTED_COMPLAINT = re.compile(r"the server responded with a status of 404|ResizeObserver loop")


@dataclass(frozen=True)
class Server:
    url: str
    compute: str
    web: subprocess.Popen
    service: subprocess.Popen | None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launch(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", *arguments], cwd=ROOT, env=environment, start_new_session=True)


def wait_until_healthy(url: str, process: subprocess.Popen, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, f"{url} ended with exit code {process.returncode} before it answered"
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=2) as reply:
                if reply.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"{url}/healthz did not answer within {seconds:.0f} s")


def end(process: subprocess.Popen | None) -> None:
    if process is None or process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def start_service(port: int | None = None) -> tuple[str, subprocess.Popen]:
    """A compute service of its own; tests that kill one use this."""
    port = port or free_port()
    process = launch(["compute", "serve", "--port", str(port)], os.environ | {"OMP_WAIT_POLICY": "PASSIVE"})
    url = f"http://127.0.0.1:{port}"
    wait_until_healthy(url, process)
    return url, process


def start_web(compute: str, **environment: str) -> tuple[str, subprocess.Popen]:
    port = free_port()
    process = launch(["uvicorn", "app.asgi:app", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"],
                     os.environ | {"INFERENCE_LAB_COMPUTE": compute} | environment)
    url = f"http://127.0.0.1:{port}"
    wait_until_healthy(url, process)
    return url, process


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    compute, service = os.environ.get("INFERENCE_LAB_COMPUTE"), None
    if not compute:
        compute, service = start_service()
    url, web = start_web(compute)
    yield Server(url, compute, web, service)
    end(web)
    end(service)


@pytest.fixture(scope="session")
def sample_server() -> Iterator[Server]:
    compute = "http://127.0.0.1:9"  # nobody answers there: these pages need no service
    url, web = start_web(compute, INFERENCE_LAB_LESSONS=str(SAMPLE_LESSONS))
    yield Server(url, compute, web, None)
    end(web)


_left = []  # contexts that were left: empty, and with the framework's scripts fetched and compiled, which is a third of a first visit


def fresh_page(chromium, width: int = 1440, height: int = 1000, theme: str = "light", reduced_motion: str = "no-preference"):
    """A page in a context that nobody else is in and that keeps nothing of who was."""
    page = (_left.pop() if _left else chromium.new_context()).new_page()
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=theme, reduced_motion=reduced_motion)
    return page


def leave(page) -> None:
    """For pages of `fresh_page` and `visit`, instead of closing their context."""
    context = page.context
    for each in context.pages:
        each.close()
    context.clear_permissions()
    context.set_storage_state({"cookies": [], "origins": []})
    _left.append(context)


def visit(chromium, url: str, path: str = "/", lang: str | None = "zh", **look):
    """A page in a context of its own, so that nothing kept by one test reaches another. look: as `fresh_page` takes it."""
    page = fresh_page(chromium, **look)
    page.requests, page.problems = [], []
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("websocket", lambda socket: page.requests.append(socket.url))
    page.on("console", lambda line: page.problems.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    if lang and "lang=" not in path:
        path += ("&" if "?" in path else "?") + f"lang={lang}"
    page.goto(url + path)
    wait_idle(page)
    return page


def wait_idle(page, seconds: float = 30) -> None:
    """The app is connected, no script is running, and the page has a heading or a refusal."""
    page.wait_for_selector(".stApp[data-test-connection-state='CONNECTED'][data-test-script-state='notRunning']", timeout=seconds * 1000)
    page.wait_for_selector(".stApp :is(h1, .lab-refusal)", timeout=seconds * 1000)
    page.wait_for_timeout(150)
    page.wait_for_selector(".stApp[data-test-script-state='notRunning']", timeout=seconds * 1000)


@pytest.fixture()
def open_page(request, chromium):
    """Opens pages of `server`, or of another one with at=…; closes them when the test ends."""
    opened = []

    def open(path: str = "/", *, at: Server | None = None, **look):
        page = visit(chromium, (at or request.getfixturevalue("server")).url, path, **look)
        opened.append(page)
        return page

    yield open
    for page in opened:
        leave(page)


def outbound(page) -> list[str]:
    """Requests that left this machine."""
    return [url for url in page.requests if urlsplit(url).scheme in ("http", "https", "ws", "wss") and urlsplit(url).hostname != "127.0.0.1"]


def assert_clean(page) -> None:
    assert page.locator("[data-testid='stException']").count() == 0, page.locator("[data-testid='stException']").first.inner_text()
    assert page.locator(".lab-refusal[role=alert]").count() == 0, page.locator(".lab-refusal[role=alert]").first.inner_text()
    assert page.locator(".stApp h1").count() >= 1, f"no heading on {page.url}"
    unexpected = [text for text in page.problems if not EXPECTED_COMPLAINT.search(text)]
    assert not unexpected, unexpected
    assert not outbound(page), outbound(page)


def sideways(page) -> int:
    """Pixels by which the page, or anything on it that may not, is wider than the window."""
    return page.evaluate("""() => {
      const main = document.querySelector('[data-testid=stMain]');
      return Math.max(document.documentElement.scrollWidth - innerWidth, main.scrollWidth - main.clientWidth);
    }""")
