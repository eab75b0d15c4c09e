"""Many quick requests: who is counted, behind a proxy too, and that one who asks too often keeps nobody else out."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app import room as rooms
from app.room import Refused, Room
from compute.service.api import create_app
from compute.service.http import TRUSTS
from compute.service.jobs import Limits
from compute.service.machine import Machine
from compute.service.rates import Rates

PER_MINUTE = 3


@pytest.fixture(scope="module")
def service():
    """The service as uvicorn serves it: service(peer) → a client at that address."""
    app = ProxyHeadersMiddleware(create_app(Machine("cpu"), Limits(per_minute=PER_MINUTE), ["*"], preload=False), trusted_hosts="127.0.0.1,10.0.0.2")
    return lambda peer: TestClient(app, client=(peer, 1))


def statuses(client: TestClient, times: int = PER_MINUTE + 3, path: str = "/run/kv.computations", **headers: str) -> Counter:
    return Counter(client.post(path, json={}, headers={name.replace("_", "-"): value for name, value in headers.items()}).status_code for _ in range(times))


def test_a_client_of_the_network_is_counted_by_its_address(service):
    """Catches: a client that calls itself another at each call, or says that another one asked."""
    assert statuses(service("10.1.0.1")) == {200: PER_MINUTE, 429: 3}
    assert statuses(service("10.1.0.1"), 2, X_Learner="fresh", X_Forwarded_For="10.9.9.9") == {429: 2}
    assert statuses(service("10.1.0.3"), 1) == {200: 1}


def test_behind_a_proxy_the_address_that_it_saw_counts(service):
    """Catches: a class behind a proxy that is counted as one or as nobody; a client that writes the header itself."""
    for proxy in ("127.0.0.1", "10.0.0.2"):
        near, far = f"10.2.{proxy[-1]}.1", f"10.2.{proxy[-1]}.2"
        assert statuses(service(proxy), X_Forwarded_For=near) == {200: PER_MINUTE, 429: 3}
        assert statuses(service(proxy), 2, X_Forwarded_For=f"127.0.0.1, 10.7.7.7, {near}") == {429: 2}
        assert statuses(service(proxy), 1, X_Forwarded_For=far) == {200: 1}


def test_an_untrusted_proxy_is_one_client(service):
    """Catches: trust in whoever sends the header."""
    assert sum((statuses(service("10.3.0.1"), 2, X_Forwarded_For=f"10.8.0.{n}") for n in range(4)), Counter()) == {200: PER_MINUTE, 429: 5}


def test_learners_of_a_trusted_web_server_are_counted_apart(service, monkeypatch):
    monkeypatch.setenv(TRUSTS, "10.4.0.1")
    for name in ("ann", "bob"):
        assert statuses(service("10.4.0.1"), X_Learner=name) == {200: PER_MINUTE, 429: 3}


@pytest.mark.parametrize("path,method", [("/live/send", "POST"), ("/live/cancel", "POST"), ("/v1/completions", "POST"), ("/live?model=no-such", "GET")])
def test_every_way_to_work_is_limited(service, path, method):
    """Catches: a route by which one client gets around the limit. A refusal counts as much as an answer."""
    client, found = service(f"10.5.{len(path)}.1"), Counter()
    for _ in range(PER_MINUTE * 8):
        found[client.request(method, path, **({"json": {}} if method == "POST" else {})).status_code] += 1
    assert found[429] and not any(status >= 500 for status in found), found


def test_clients_that_come_once_are_forgotten():
    """Catches: memory that grows by each address that ever called."""
    rates = Rates(per_minute=1, kept=10)
    for n in range(100):
        rates.take(f"10.0.0.{n}", now=float(n))
    assert len(rates._buckets) == 10


def test_who_tries_passwords_keeps_the_teacher_waiting_no_longer(monkeypatch):
    """Catches: a learner who sends wrong passwords all the time, so that the right one is refused; attempts without end."""
    monkeypatch.setattr(rooms, "GUESS_S", 0.01)

    async def attack():
        room = Room(password="right")
        tried = [asyncio.ensure_future(room.take(password=f"{n}", client="10.0.0.66")) for n in range(50)]
        await asyncio.sleep(0)
        token = await room.take(password="right", client="10.0.0.1")
        refused = await asyncio.gather(*tried, return_exceptions=True)
        assert all(isinstance(one, Refused) for one in refused) and not room._lanes
        return token, room

    token, room = asyncio.run(attack())
    assert room.holder == token


def test_few_clients_may_try_at_once(monkeypatch):
    """Catches: attempts from very many addresses, side by side."""
    monkeypatch.setattr(rooms, "GUESS_S", 0.01)
    compared = []
    monkeypatch.setattr(rooms, "_same", lambda one, other: compared.append(one) or False)

    async def attack():
        room = Room(password="right")
        await asyncio.gather(*(room.take(password=str(n), client=str(n)) for n in range(200)), return_exceptions=True)

    asyncio.run(attack())
    assert len(compared) == rooms.MOST_GUESSING


def test_notes_of_one_address_are_limited(monkeypatch):
    """Catches: a program that calls itself another browser for each note, and takes the minute's notes of all."""
    from types import SimpleNamespace

    from app import question_box

    kept, state = [], {"question:roofline": "why?"}
    fake = SimpleNamespace(session_state=state, context=SimpleNamespace(ip_address="10.0.0.66"))
    monkeypatch.setattr(question_box, "st", fake)
    monkeypatch.setattr(question_box, "_rates", Rates(per_minute=5))
    monkeypatch.setattr(question_box.notes, "store", lambda: SimpleNamespace(add=lambda browser, *rest: kept.append(browser)))
    for n in range(8):
        state["question:roofline"] = "why?"
        question_box._keep(f"{n:032x}", "roofline", "en")
    assert len(kept) == 5 and state["question-told:roofline"] == ("wrong", "too_fast", {}) and state["question:roofline"] == "why?", "the text stays in the box"
    fake.context.ip_address = "10.0.0.1"
    question_box._keep("f" * 32, "roofline", "en")
    assert kept[-1] == "f" * 32, "others go on"
