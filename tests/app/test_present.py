"""The class's room and its address: who may write, what is let through, who hears of it, and when it ends."""

from __future__ import annotations

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app import present
from app.lesson import words
from app.room import LEASE_S, Place, Refused, Room

SLUGS = ["roofline", "sampling", "follow"]
OURS = {"origin": "http://testserver"}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture()
def client(monkeypatch, sample_lessons):
    monkeypatch.setattr(present, "room", Room())
    monkeypatch.setattr(present, "PATIENCE_S", 0.05)
    with TestClient(Starlette(routes=present.routes(lambda: SLUGS)), follow_redirects=False) as client:
        yield client


def taken(room: Room, token: str = "", password: str = "") -> str:
    return asyncio.run(room.take(token, password))


def test_the_first_teacher_holds_the_room_until_silence():
    """Catches: a learner who opens ?present=1 and takes the class; a closed laptop that blocks the room for good."""
    clock = Clock()
    room = Room(clock=clock)
    assert room.look().state == "waiting"
    token = taken(room)
    assert room.look().state == "waiting", "nothing was shown yet, so there is nowhere to go"
    room.show(token, Place("roofline", "0"))
    assert room.look().state == "on"
    with pytest.raises(Refused, match="busy"):
        taken(room)
    with pytest.raises(Refused, match="lost"):
        room.show("0" * 32, Place("sampling", "0"))
    clock.now += LEASE_S - 1
    room.show(token, Place("roofline", "0"))  # a sign of life
    clock.now += LEASE_S - 1
    assert taken(room, token) == token, "after a reload the same browser goes on"
    before = room.look().version
    clock.now += LEASE_S
    assert room.look().state == "stopped" and room.look().version != before
    with pytest.raises(Refused, match="lost"):
        room.show(token, Place("roofline", "1"))
    assert taken(room) != token


def test_with_a_password_only_who_knows_it_teaches(monkeypatch):
    """Catches: a room that whoever comes first gets in spite of the password; asking again after each reload."""
    from app import room as module

    monkeypatch.setattr(module, "GUESS_S", 0.0)
    room = Room(password="春天 spring", clock=(clock := Clock()))
    with pytest.raises(Refused, match="password"):
        taken(room)
    with pytest.raises(Refused, match="wrong"):
        taken(room, password="spring")
    token = taken(room, password="春天 spring")
    assert taken(room, token) == token
    clock.now += 2 * LEASE_S
    assert taken(room, token) == token, "no second time in this browser"
    with pytest.raises(Refused, match="password"):
        taken(room, "f" * 32)


def test_attempts_at_the_password_are_slow(monkeypatch):
    """Catches: attempts made side by side, which would take no longer than one."""
    from app import room as module

    monkeypatch.setattr(module, "GUESS_S", 0.02)

    async def many():
        room = Room(password="x")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(room.take(password=str(n)) for n in range(5)), return_exceptions=True)
        return loop.time() - began

    assert asyncio.run(many()) >= 5 * 0.02


@pytest.mark.parametrize("said", [
    None, [], {"slug": "nope"}, {"slug": "../x"}, {"slug": "roofline", "step": "<b>"}, {"slug": "roofline", "step": 3}, {"slug": "roofline", "step": "a" * 80},
    {"slug": "roofline", "parameters": []}, {"slug": "roofline", "parameters": {"roofline-placer.batch": 8}},
    {"slug": "roofline", "parameters": {"roofline-placer.batch": "8\n9"}}, {"slug": "roofline", "parameters": {"roofline-placer.batch": "8" * 500}},
    {"slug": "roofline", "parameters": {f"roofline-placer.{n}": "1" for n in range(200)}},
])
def test_what_is_no_place_of_the_course_is_refused(said):
    with pytest.raises(Refused, match="place"):
        Place.read(said, SLUGS)


def test_only_settings_reach_the_class():
    """Catches: a teacher's sentence, guess, language or learner's name on every screen of the class."""
    place = Place.read({"slug": "roofline", "step": "3.1", "lang": "zh", "parameters": {
        "roofline-placer.batch": "58", "roofline-placer.2.chip": "a100-80g-sxm", "time-ledger.guess": "under1", "kv-stepper.text": "我的密码",
        "kv-stepper.t": "4", "live-server.prompt": "secret", "lang": "en", "learner": "me", "roofline-placer.nope": "1", "__proto__.x": "1"}}, SLUGS)
    assert place == Place("roofline", "3.1", {
        "roofline-placer.batch": "58", "roofline-placer.2.chip": "a100-80g-sxm", "time-ledger.guess": "skip", "kv-stepper.t": "4"})


def test_who_follows_hears_at_once_and_nobody_is_woken_for_nothing():
    """Catches: news only when patience is over; a sign of life that makes a hundred browsers ask again."""

    async def lesson():
        room = Room()
        token = await room.take()
        known = room.show(token, Place("roofline", "0")).version
        waiting = [asyncio.create_task(room.after(known, 5)) for _ in range(100)]
        await asyncio.sleep(0.01)
        assert room.followers == 100
        room.show(token, Place("roofline", "0"))
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        room.show(token, Place("roofline", "1"))
        heard = await asyncio.wait_for(asyncio.gather(*waiting), 1)
        assert {seen.place.step for seen in heard} == {"1"} and room.followers == 0
        task = asyncio.create_task(room.after(heard[0].version, 5))
        await asyncio.sleep(0.01)
        room.leave(token)
        assert (await asyncio.wait_for(task, 1)).state == "stopped"

    asyncio.run(lesson())


def test_a_lease_that_ends_is_told_without_anybody_writing(monkeypatch):
    from app import room as module

    monkeypatch.setattr(module, "LEASE_S", 0.05)

    async def lesson():
        room = Room()
        seen = room.show(await room.take(), Place("roofline", "0"))
        return await asyncio.wait_for(room.after(seen.version, 5), 1)

    assert asyncio.run(lesson()).state == "stopped"


def test_teaching_over_the_wire(client):
    token = client.post("/room", json={"do": "take"}, headers=OURS).json()["token"]
    reply = client.post("/room", json={"do": "show", "token": token, "slug": "roofline", "step": "2", "parameters": {"roofline-placer.batch": "8"}}, headers=OURS)
    assert reply.status_code == 200 and reply.json()["version"]
    seen = client.get("/room")
    assert seen.json() == {"version": reply.json()["version"], "state": "on", "slug": "roofline", "step": "2", "parameters": {"roofline-placer.batch": "8"}}
    assert seen.headers["cache-control"] == "no-store" and token not in seen.text
    assert client.post("/room", json={"do": "take"}, headers=OURS).json() == {"refused": "busy"}
    assert client.post("/room", json={"do": "show", "token": "x", "slug": "sampling", "step": "0"}, headers=OURS).json() == {"refused": "lost"}
    assert client.post("/room", json={"do": "leave", "token": token}, headers=OURS).status_code == 200
    assert client.get("/room").json()["state"] == "stopped" and "slug" not in client.get("/room").json()


@pytest.mark.parametrize("headers,body", [
    ({"origin": "http://evil.example", "content-type": "application/json"}, '{"do": "take"}'),
    ({"origin": "null", "content-type": "application/json"}, '{"do": "take"}'),
    ({"content-type": "application/json"}, '{"do": "take"}'),
    (OURS | {"content-type": "text/plain"}, '{"do": "take"}'),
    (OURS | {"content-type": "application/json"}, '{"do": "take"'),
    (OURS | {"content-type": "application/json"}, '["take"]'),
    (OURS | {"content-type": "application/json"}, '{"do": "take", "x": "' + "a" * 40_000 + '"}'),
    (OURS | {"content-type": "application/json"}, '{"do": "reset"}'),
])
def test_another_site_or_a_broken_body_changes_nothing(client, headers, body):
    """Catches: a page elsewhere that makes a learner's browser take the room, by a form (text/plain) or a script."""
    assert client.post("/room", content=body, headers=headers).status_code == 400
    assert present.room.look().state == "waiting" and not present.room.holder


def test_a_short_address_leads_to_the_same_state(client):
    """Catches: an open redirect; a code that differs at each press; a drawing that is not of this address."""
    said = {"slug": "roofline", "step": "3", "lang": "en", "parameters": {"roofline-placer.batch": "58", "kv-stepper.text": "hi"}}
    made = client.post("/present/link", json=said, headers=OURS).json()
    assert made == client.post("/present/link", json=said, headers=OURS).json()
    assert made["address"].startswith("http://testserver/go/") and made["reachable"] and made["code"].startswith("<svg")
    to = client.get(made["address"].removeprefix("http://testserver")).headers["location"]
    assert to == "/roofline?lang=en&step=3&roofline-placer.batch=58"
    assert client.get("/go/nope").headers["location"] == "/"
    assert client.post("/present/link", json={"slug": "//evil.example"}, headers=OURS).status_code == 400


def test_the_drawing_is_the_address():
    """Referee: the modules of segno's own matrix, counted against the dark runs of the SVG path."""
    import re

    import segno

    text = "http://192.168.1.5:8501/go/abcde"
    path = re.search(r'class="qrline"[^>]* d="([^"]+)"', present.drawing(text))
    assert path, present.drawing(text)[:300]
    dark = sum(int(length) for length in re.findall(r"h(\d+)", path[1]))
    assert dark == sum(sum(1 for module in row if module) for row in segno.make(text, error="m", micro=False).matrix)


def test_every_word_of_the_stage_is_there_in_both_languages(client):
    """Catches: a key of the help sheet without its words, which would show as ⟨does.spot⟩."""
    import re

    source = present.source()
    keys = re.search(r"const KEYS = \[([^\]]+)\]", source)[1]
    asked = {f"{part}.{name}" for part in ("key", "does") for name in re.findall(r"'(\w+)'", keys)}
    asked |= set(re.findall(r"\bsay\('([a-z_]+)'", source))
    for lang in ("zh", "en"):
        known = client.get(f"/present.json?lang={lang}").json()
        assert asked <= set(known["words"]), asked - set(known["words"])
        assert known["minutes"]["roofline"] > 0
        assert all(words(lang)(name) for name in ("follow", "follow_question", "follow_lead"))
