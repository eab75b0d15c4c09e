"""The web server's own routes and addresses, sent whatever there is: an answer or a refusal, never a mistake of ours.

INFERENCE_LAB_FUZZ=N multiplies the number of tries, with fresh ones each time.
"""

from __future__ import annotations

import asyncio
import json
import os
import re

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app import asgi, present
from app.room import Room
from tests.security.strategies import ANYTHING, TEXT

DEEPER = int(os.environ.get("INFERENCE_LAB_FUZZ", "0"))
OURS = {"origin": "http://testserver", "content-type": "application/json"}
tries = settings(max_examples=60 * max(1, DEEPER), deadline=None, derandomize=not DEEPER, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(present, "room", Room("the teacher's word"))
    monkeypatch.setattr(present, "PATIENCE_S", 0.0)
    monkeypatch.setattr("app.room.GUESS_S", 0.0)
    inner = [*present.routes(lambda: ["roofline"]), Route("/{path:path}", lambda request: PlainTextResponse("inner"), methods=["GET", "POST"])]
    return TestClient(Starlette(routes=inner, middleware=[Middleware(asgi.Documents)]), follow_redirects=False)


said = st.fixed_dictionaries({}, optional={
    "do": st.sampled_from(["take", "show", "leave"]) | ANYTHING, "token": ANYTHING, "password": ANYTHING, "slug": st.just("roofline") | ANYTHING, "step": st.just("2") | ANYTHING,
    "lang": ANYTHING, "parameters": st.dictionaries(st.sampled_from(["roofline-placer.batch", "kv-stepper.text", "x"]) | TEXT, TEXT | ANYTHING, max_size=3) | ANYTHING,
})  # fmt: skip


def test_the_room_and_the_links_take_any_body(client):
    """Catches: a token or a password that cannot be compared, half a character, arrays within arrays."""

    @tries
    @example(b'{"do": "take", "password": "\\ud800"}')
    @example('{"do": "show", "token": "é"}'.encode())
    @example(b'{"slug": "roofline", "parameters": {"roofline-placer.batch": "\\udfff"}}')
    @example(b"[" * 16_000)
    @example(b'{"do": ' + b"9" * 10_000 + b"}")
    @given(st.binary(max_size=40) | said.map(lambda body: json.dumps(body).encode()))
    def every(body):
        for path in ("/room", "/present/link"):
            answer = client.post(path, content=body, headers=OURS)
            assert answer.status_code in (200, 400) and "Traceback" not in answer.text
            for link in re.findall(r'"address":"([^"]*)"', answer.text):
                assert link.startswith("http://testserver/go/")
                assert client.get(link.removeprefix("http://testserver")).headers["location"].startswith(("/roofline?", "/?"))

    every()


def test_any_address_is_a_page_or_leads_to_one(client):
    """Catches: a redirect to another host, a header made from an address, a mistake of ours."""

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    @tries
    @example("//evil.example", "")
    @example("/\\evil.example", "")
    @example("/http://evil.example", "lang=en")
    @example("/roofline", "%0d%0aset-cookie:x")
    @given(TEXT.map("/".__add__), TEXT)
    def every(path, query):
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(errors="replace"), "query_string": query.encode(errors="replace"), "root_path": "",
                 "headers": [(b"host", b"testserver")], "scheme": "http", "server": ("testserver", 80), "client": ("127.0.0.1", 1), "http_version": "1.1"}  # fmt: skip
        asyncio.run(client.app(scope, receive, send))
        assert sent[0]["status"] < 500
        where = dict(sent[0]["headers"]).get(b"location", b"/")
        assert where.startswith(b"/") and not where.startswith((b"//", b"/\\")) and not {10, 13} & set(where)

    every()
