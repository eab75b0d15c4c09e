"""Whom both servers answer: a browser that another site leads here says so, and gets nothing."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app import asgi
from app.doors import SETTING, Doors
from compute.service.rates import counted
from tests.conftest import ROOT
from tests.security.conftest import guarded

JSON = {"content-type": "application/json"}


def ask(url: str, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> http.client.HTTPResponse:
    """Headers as given, Host among them."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    answer.text = answer.read().decode(errors="replace")
    connection.close()
    return answer


def opened(url: str, **headers: str) -> int:
    """The status of a WebSocket's handshake at the pages' own address; 101 when it is open."""
    return ask(url, "/_stcore/stream", Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Version="13",
               Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==", **headers).status  # fmt: skip


def web(listed: str = "") -> TestClient:
    """The web server's doors before a page that says what came through."""

    async def inside(request):
        return PlainTextResponse("inside " + request.headers.get("origin", "-"))

    app = Starlette(routes=[Route("/{path:path}", inside, methods=["GET", "POST"])], middleware=[Middleware(Doors, headers=asgi.HEADERS)])
    return TestClient(app, base_url="http://127.0.0.1:8501")


OWN = [
    {}, {"host": "localhost:8501"}, {"host": "[::1]:8501"}, {"host": "10.1.2.3:8501"}, {"host": "10.1.2.3"}, {"host": "lab.example"}, {"host": "LAB.example:443"},
    {"origin": "http://127.0.0.1:8501"}, {"host": "10.1.2.3:8501", "origin": "http://10.1.2.3:8501"}, {"origin": "https://lab.example"},
    {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
]  # fmt: skip
FOREIGN = [
    {"host": "evil.example"}, {"host": ""}, {"host": "evil.example:8501"}, {"host": "127.0.0.1.evil.example"}, {"host": "127.0.0.1@evil.example"},
    {"host": "127.0.0.1:x"}, {"host": "[::1"}, {"host": "evil.lab.example"},
    {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1"}, {"origin": "http://127.0.0.1:8888"}, {"origin": "http://localhost:8501"},
    {"origin": "http://evil.example/127.0.0.1:8501"}, {"origin": "http://10.1.2.3:8501"}, {"origin": "https://lab.example.evil.example"},
    {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
]  # fmt: skip


@pytest.mark.parametrize("headers", OWN, ids=str)
def test_our_own_pages_come_in(headers, monkeypatch):
    """Catches: a class that reaches its teacher's machine by an IP address, or through a proxy, and is turned away."""
    monkeypatch.setenv(SETTING, "lab.example, other.example")
    assert web().get("/", headers=headers).status_code == 200


def test_a_name_may_be_listed_with_its_port(monkeypatch):
    """Catches: an address copied from the browser that lists nobody, and a mistyped one that lets in who gives no name."""
    monkeypatch.setenv(SETTING, "Lab.example:8501 :8501")
    assert web().get("/", headers={"host": "lab.example:8501"}).status_code == 200
    assert web().get("/", headers={"host": ""}).status_code == 403


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_strangers_stay_outside(headers, monkeypatch):
    """Catches: another site's page that uses a learner's browser; a name that its owner points here; another server of this machine."""
    monkeypatch.setenv(SETTING, "lab.example")
    for method in ("GET", "POST"):
        answer = web().request(method, "/", headers=headers)
        assert answer.status_code == 403 and "inside" not in answer.text
        assert len(answer.text.splitlines()) == 2 and SETTING in answer.text, "one sentence in each language, with the way out"
        assert answer.headers["content-type"].startswith("text/plain") and answer.headers["content-security-policy"]


def test_a_link_from_elsewhere_may_be_followed_but_never_posts(monkeypatch):
    """Catches: a form of another site."""
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert web().get("/", headers=headers).status_code == 200 and web().post("/", headers=headers).status_code == 403


def test_any_name_where_the_operator_says_so(monkeypatch):
    monkeypatch.setenv(SETTING, "*")
    assert web().get("/", headers={"host": "any.example", "origin": "https://other.example"}).status_code == 200


def test_streamlit_never_judges_an_origin(monkeypatch):
    """Catches: Streamlit's own check, which asks a host on the Internet for our address before it refuses."""
    client, headers = web(), {"origin": "http://127.0.0.1:8501"}
    assert client.get("/_stcore/health", headers=headers).text == "inside -"
    assert client.post("/room", headers=headers).text == "inside http://127.0.0.1:8501", "our own routes look at it once more"


@pytest.mark.parametrize("address,together", [
    ("10.0.0.1", "10.0.0.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), ("::1", "::1"), ("", ""), ("testclient", "testclient"),
])  # fmt: skip
def test_one_machine_is_one_client(address, together):
    """Catches: a machine that takes a fresh IPv6 address for each call."""
    assert counted(address) == together


# ---- the servers themselves


@pytest.mark.parametrize("headers", [
    {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost:1"}, {"Host": "evil.example"}, {"Host": "evil.example", "Origin": "http://evil.example"},
], ids=str)  # fmt: skip
def test_a_page_elsewhere_opens_no_websocket(lab, headers):
    """Catches: a learner's session driven by another site, directly or by DNS rebinding."""
    assert opened(lab.url, **headers) == 403


def test_our_own_page_opens_its_websocket(lab):
    """Catches: a check that locks everybody out, also behind a proxy that writes another Host."""
    own = lab.url.removeprefix("http://")
    assert opened(lab.url, Origin=lab.url) == 101
    assert opened(lab.url, Host=f"10.1.2.3:{lab.port}", Origin=f"http://10.1.2.3:{lab.port}") == 101
    assert opened(lab.url, Host=own, Origin="https://lab.example") == 101


@pytest.mark.parametrize("path", ["/", "/planted", "/_stcore/health", "/_stcore/host-config", "/static/js/none.js", "/app/static/icon.svg", "/healthz", "/style.css",
                                  "/room", "/go/x", "/no%00such", "/../x"])  # fmt: skip
def test_every_answer_of_the_web_server_has_its_headers(lab, path):
    """Catches: a refusal, a file or an error that a browser may frame, sniff or run. The room waits for news: it is asked in vain."""
    for answer in (ask(lab.url, path, Host="evil.example"), *([ask(lab.url, path)] if path != "/room" else [])):
        assert answer.status < 500
        assert {name: answer.headers[name] for name in asgi.HEADERS} == asgi.HEADERS


def test_a_mistake_of_ours_is_one_sentence_with_headers():
    """Catches: a traceback, or a bare answer, where a route fails."""

    async def broken(request):
        raise RuntimeError("the inside of the machine")

    app = Starlette(routes=[Route("/", broken)], exception_handlers={Exception: asgi.failed}, middleware=[Middleware(Doors, headers=asgi.HEADERS)])
    answer = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False).get("/")
    assert answer.status_code == 500 and "machine" not in answer.text and len(answer.text.splitlines()) == 2
    assert {name: answer.headers[name] for name in asgi.HEADERS} == asgi.HEADERS


@pytest.mark.parametrize("headers", [
    {"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    {"Host": "127.0.0.1@evil.example"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("path", ["/healthz", "/run/kv.computations", "/v1/models", "/live", "/docs"])
def test_the_service_answers_no_other_site(lab, path, headers):
    """Catches: a form (text/plain needs no leave), a script, an image or a rebound name of another site that starts work here."""
    for method, body in (("GET", None), ("POST", b"{}")):
        answer = ask(lab.compute, path, method, body, Content_Type="text/plain", **headers)
        assert answer.status == 403 and json.loads(answer.text)["error"]["code"] == "bad_input"
        assert answer.headers["content-security-policy"] and answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path,status", [("/healthz", 200), ("/none", 404), ("/run/none", 404), ("/v1/none", 404), ("/v1/models", 200), ("/docs", 200)])
def test_every_answer_of_the_service_has_its_headers(lab, path, status):
    answer = ask(lab.compute, path, *(("POST", b"{}") if path.startswith("/run") else ()))
    assert answer.status == status and "default-src 'none'" in answer.headers["content-security-policy"] and "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_the_guard_sees_what_leaves(tmp_path):
    """Catches: a guard that would never find anything. Streamlit's own check of a foreign origin is what it once found."""
    code = "from streamlit import config; from streamlit.web.server.server_util import is_url_from_allowed_origins as allowed; assert not allowed('http://evil.example')"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=guarded(tmp_path / "seen.txt"), check=True, capture_output=True, timeout=60)
    assert "checkip" in (tmp_path / "seen.txt").read_text()
    assert not os.environ.get("INFERENCE_LAB_TEST_OUTBOUND"), "this process is not guarded"
