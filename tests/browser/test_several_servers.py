"""deploy/nginx.conf as it is, in front of two real web servers, with a real Chromium: what several servers must not break.

Only its ports and its cache folder are exchanged. The main file around it is ours, and its log says which server answered.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.sync.client import connect

from app import asgi
from tests.browser.conftest import assert_clean, end, free_port, start_web, visit, wait_idle
from tests.browser.test_lesson_one import slider
from tests.browser.test_present import write_lessons
from tests.conftest import ROOT

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
NOBODY = "http://127.0.0.1:9"  # these pages need no compute service
MAIN = """
user {user}; error_log {folder}/error.log; pid {folder}/nginx.pid; daemon off; worker_processes 1;
events {{ worker_connections 4096; }}
http {{
  types {{ text/html html; }}
  log_format who '$upstream_addr|$status|$uri|$cookie_seat';
  access_log {folder}/access.log who;
  {temp}
  include {folder}/lab.conf;
}}
"""


@dataclass(frozen=True)
class Cluster:
    """servers: address (host:port) → process, in the order of the file; the room is at the first."""

    url: str
    servers: dict[str, subprocess.Popen]
    log: Path
    client: httpx.Client  # without a memory for cookies

    def who_answered(self, path: str, seat: str = "-") -> list[str]:
        """The servers that answered a seat's requests for a path, in order; a WebSocket stands there once it has ended."""
        lines = [line.split("|") for line in self.log.read_text().splitlines()]
        return [upstream.split(", ")[-1] for upstream, status, uri, who in lines if (uri, who) == (path, seat) and status in ("101", "200")]

    def seat_at(self, server: str) -> str:
        """A cookie whose session is at that server."""
        for n in range(64):
            if self.asked(seat := f"{n:032x}") == server:
                return seat
        raise AssertionError(f"64 seats, and none at {server}")

    def asked(self, seat: str) -> str:
        before = len(self.who_answered("/_stcore/health", seat))
        assert self.client.get("/_stcore/health", headers=at(seat)).status_code == 200
        return until(lambda: self.who_answered("/_stcore/health", seat)[before:])[-1]

    def session(self, seat: str):
        host = urlsplit(self.url).netloc
        return connect(f"ws://{host}/_stcore/stream", subprotocols=["streamlit"], additional_headers=at(seat), origin=self.url)


def at(seat: str) -> dict[str, str]:
    return {"Cookie": f"seat={seat}"}


def until(found, seconds: float = 20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError("did not come within time")


@contextmanager
def proxied(folder: Path, servers: list[str]) -> Iterator[tuple[str, subprocess.Popen]]:
    """nginx with deploy/nginx.conf before two servers (host:port): its address and its process."""
    port = free_port()
    text = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    for written, here in (("listen 8501", f"listen 127.0.0.1:{port}"), ("/var/cache/", f"{folder}/"),
                          *zip(("127.0.0.1:8601", "127.0.0.1:8602"), servers)):
        assert written in text, f"deploy/nginx.conf has no {written} any more"
        text = text.replace(written, here)
    temp = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "lab.conf").write_text(text, encoding="utf-8")
    (folder / "main.conf").write_text(MAIN.format(folder=folder, temp=temp, user=getpass.getuser()), encoding="utf-8")
    nginx = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(folder / "main.conf")], stderr=subprocess.PIPE, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: nginx.poll() is not None or answers(url))
        assert nginx.poll() is None, nginx.stderr.read().decode()
        yield url, nginx
    finally:
        end(nginx)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if not NGINX:
        pytest.skip("no nginx here: `python3 run.py test` installs it where apt may be used, or apt install nginx-light")
    folder = tmp_path_factory.mktemp("nginx")
    lessons = write_lessons(folder / "lessons", "first")
    with ThreadPoolExecutor() as pool:
        started = list(pool.map(lambda _: start_web(NOBODY, INFERENCE_LAB_LESSONS=str(lessons)), range(2)))
    servers = {urlsplit(url).netloc: process for url, process in started}
    try:
        with proxied(folder, list(servers)) as (url, _), httpx.Client(base_url=url, headers={"origin": url}) as client:
            client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
            yield Cluster(url, servers, folder / "access.log", client)
    finally:
        for process in servers.values():
            end(process)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.HTTPError:
        return False


def test_the_cache_lies_in_a_folder_that_every_system_has():
    """Catches a configuration that nginx refuses where it was just installed: it makes the last folder of the path, and Debian has no /var/cache/nginx."""
    (path,) = re.findall(r"^proxy_cache_path (\S+)", (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8"), re.MULTILINE)
    assert Path(path).parent == Path("/var/cache")


class Slow(BaseHTTPRequestHandler):
    """A server whose answers take a while, as the first ones of a web server do."""

    def do_GET(self):
        time.sleep(0.3)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def slow_servers(ports: list[int]) -> Iterator[None]:
    servers = [ThreadingHTTPServer(("127.0.0.1", port), Slow) for port in ports]
    for server in servers:
        Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


@pytest.mark.skipif(not NGINX, reason="no nginx here")
def test_after_an_outage_the_first_page_gets_all_of_its_files(tmp_path):
    """Catches a blank page after all servers were away: nginx that lets one request through to see, and refuses the page's scripts meanwhile."""
    ports = [free_port(), free_port()]
    with ExitStack() as stack:
        with slow_servers(ports):
            url, _ = stack.enter_context(proxied(tmp_path, [f"127.0.0.1:{port}" for port in ports]))
        until(lambda: httpx.get(url).status_code == 503)
        with slow_servers(ports), ThreadPoolExecutor(12) as pool:
            assert {answer.status_code for answer in pool.map(lambda n: httpx.get(f"{url}/static/{n}.js"), range(12))} == {200}


def test_headers_compression_and_cache(cluster):
    """Catches security headers lost or doubled on the way, scripts sent uncompressed or asked for twice, and a cookie on a file
    that is kept for everybody."""
    with httpx.Client(base_url=cluster.url) as client:
        page = client.get("/first?lang=en")
        for name, value in asgi.HEADERS.items():
            assert page.headers.get_list(name) == [value], name
        assert re.fullmatch(r"seat=[0-9a-f]{32}; Path=/; HttpOnly; SameSite=Lax", page.headers["set-cookie"])
        assert "set-cookie" not in client.get("/first?lang=en").headers, "a browser keeps the seat it has"
        script = "/" + re.search(r"static/js/index\.[\w-]+\.js", page.text)[0]
        seat = client.cookies["seat"]
        for _ in range(2):
            found = client.get(script, headers={"accept-encoding": "gzip"})
            assert found.headers["content-encoding"] == "gzip" and "immutable" in found.headers["cache-control"] and "set-cookie" not in found.headers
            assert int(found.num_bytes_downloaded) < 0.5 * len(found.content)
        assert until(lambda: [each for each in (cluster.who_answered(script, seat),) if len(each) == 2])[0][1] == "-", "the second came from nginx"
        assert client.post("/room", content=b"x" * 20_000).status_code == 413


def test_sessions_spread_and_each_stays_on_its_server(cluster):
    """Catches a class behind one address that lands on one server, and a reconnect that finds another server and so an empty session."""
    seats = [f"{n:032x}" for n in range(40)]
    homes = {seat: cluster.asked(seat) for seat in seats}
    assert set(homes.values()) == set(cluster.servers)
    one_each = [next(seat for seat in seats if homes[seat] == server) for server in cluster.servers]
    for seat in one_each:
        for _ in range(3):
            with cluster.session(seat) as session:
                assert session.subprotocol == "streamlit"
    for seat in one_each:
        assert until(lambda: len(cluster.who_answered("/_stcore/stream", seat)) == 3 and cluster.who_answered("/_stcore/stream", seat)) == [homes[seat]] * 3


def test_one_room_for_all(cluster):
    """Catches a teacher on one server whose class on another waits for ever."""
    place = {"slug": "first", "step": "opening", "parameters": {}}
    client, (teacher, learner) = cluster.client, (at(cluster.seat_at(server)) for server in reversed(cluster.servers))
    token = client.post("/room", json={"do": "take"}, headers=teacher).json()["token"]
    shown = client.post("/room", json={"do": "show", "token": token} | place, headers=teacher).json()
    assert client.get("/room", headers=learner).json() == {"version": shown["version"], "state": "on"} | place
    link = client.post("/present/link", json=place | {"lang": "en"}, headers=learner).json()["address"]
    assert link.startswith(cluster.url + "/go/"), "the address of the proxy, not of a server behind it"
    assert client.get(link, headers=teacher).headers["location"].startswith("/first?")
    client.post("/room", json={"do": "leave", "token": token}, headers=teacher)


def test_a_dead_server_is_stood_in_for(cluster, chromium):
    """Catches a page that stays dead with its server, and one that comes back without its settings. The last test: a server goes."""
    home, other = reversed(cluster.servers)
    page = visit(chromium, cluster.url, "/first?roofline-placer.batch=16&roofline-placer.guess=skip", lang="en")
    try:
        assert_clean(page)
        page.context.add_cookies([{"name": "seat", "value": cluster.seat_at(home), "url": cluster.url}])
        page.reload()
        wait_idle(page)
        batch = slider(page, "roofline-placer", "batch")
        before, address = batch.get_attribute("aria-valuetext"), page.url
        os.killpg(cluster.servers[home].pid, signal.SIGKILL)
        page.wait_for_selector(".stApp:not([data-test-connection-state='CONNECTED'])", timeout=10_000)
        wait_idle(page)
        assert page.url == address and batch.get_attribute("aria-valuetext") == before
        batch.press("ArrowRight")
        page.wait_for_url(lambda url: "batch=16&" not in url, timeout=20_000)
        assert page.locator("[data-testid='stException'], .lab-refusal[role=alert]").count() == 0
        assert {cluster.asked(f"{n:032x}") for n in range(8)} == {other}, "its seats went to the other"
    finally:
        page.context.close()
