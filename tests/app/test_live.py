"""The live server under AppTest: what the page hands to the browser, in both languages, without a service and with the
engine in this process."""

from __future__ import annotations

import json
import time

import pytest
from streamlit.testing.v1 import AppTest

from app import live, shell
from app.lesson import words
from components import live_server
from compute.service import client
from tests.conftest import ROOT

LANGUAGES = ("zh", "en")
pytestmark = pytest.mark.usefixtures("fresh_streamlit")


@pytest.fixture()
def nobody_computes(monkeypatch):
    monkeypatch.setenv("INFERENCE_LAB_COMPUTE", "http://127.0.0.1:9")


@pytest.fixture()
def embedded(monkeypatch):
    monkeypatch.setenv("INFERENCE_LAB_COMPUTE", client.EMBEDDED)


def visit(**query: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=60)
    for name, value in {"lesson": "live", **query}.items():
        at.query_params[name] = value
    return again(at)


def again(at: AppTest) -> AppTest:
    at.run()
    assert not at.exception, [each.value for each in at.exception]
    return at


def sent(at: AppTest, field: str) -> dict:
    return next(data for data in (json.loads(each.proto.json) for each in at.get("bidi_component")) if field in data)


def news(at: AppTest) -> dict:
    return sent(at, "beat")


def until(at: AppTest, there, seconds: float = 30) -> dict:
    """Looks again until `there` is true of what is seen, and returns that."""
    deadline = time.monotonic() + seconds
    while not there(seen := news(again(at))["seen"]):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)
    return seen


def html_of(at: AppTest) -> str:
    return "\n".join(each.proto.body for each in at.get("html"))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_without_a_service_the_page_stands_and_says_so(lang, nobody_computes):
    """Catches a page that is empty, in the other language, or an error, when nobody answers."""
    at = visit(lang=lang)
    page, told = sent(at, "choices"), news(at)
    assert words(lang)("live_lead") in html_of(at) and 'class="lab-refusal"' not in html_of(at)
    assert page["lang"] == lang and page["words"]["title"] and page["prompt"] == live_server.PROMPT[lang]
    assert told["seen"] is None and told["away"] == page["words"]["view.away"] and not told["complaints"] and told["refused"] is None


@pytest.mark.parametrize("lang", LANGUAGES)
def test_it_is_in_the_sidebar_and_has_an_address(lang, nobody_computes):
    """Catches a page that can be reached only by those who know of it."""
    assert "live" in shell.slugs() and shell.title_of("live", lang) == words(lang)("live")
    labels = [each.proto.label for each in visit(lang=lang).get("page_link")]
    assert words(lang)("live") in labels


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_way_to_the_lesson_replays_what_just_ran(lang, nobody_computes):
    """Catches a link that opens the lesson at its own requests, or in the other language."""
    link = next(each.proto for each in visit(lang=lang).get("page_link") if each.proto.page == live.LESSON and "swim-lane" in each.proto.query_string)
    assert "swim-lane.source=live" in link.query_string and f"lang={lang}" in link.query_string


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_address_sets_the_form(lang, nobody_computes):
    """Catches a teacher's link that loses its prompt in the other language, and a wrong one that is passed over in silence."""
    told = news(visit(**{"lang": lang, "live-server.prompt": "从前有一座山", "live-server.tokens": "32"}))
    assert told["form"]["prompt"] == "从前有一座山" and told["form"]["tokens"] == 32 and not told["complaints"]
    wrong = news(visit(**{"lang": lang, "live-server.n": "99", "live-server.size": "3"}))
    assert wrong["form"]["n"] == 1 and len(wrong["complaints"]) == 2


def test_a_learner_sees_the_own_text_and_of_others_only_numbers(embedded):
    """Catches a prompt of somebody else that reaches a page, and an own one that is not found there; the engine is the real one."""
    at = visit(lang="en")
    assert news(at)["seen"]["model"] == "mini-256" and news(at)["away"] == ""
    client.send("a zebra that nobody sees", max_tokens=24, learner="somebody else")
    client.send("To open the file, click", max_tokens=24, learner=at.session_state["learner"])
    seen = until(at, lambda seen: seen["texts"] and all(text["finish"] for text in seen["texts"]))
    assert [text["prompt"] for text in seen["texts"]] == ["To open the file, click"] and seen["texts"][0]["text"]
    assert "zebra" not in json.dumps([json.loads(each.proto.json) for each in at.get("bidi_component")])
    assert len({life["request"] for life in seen["sequences"]}) >= 2 and len(seen["mine"]) == 1


def test_only_steps_that_the_browser_lacks_are_sent(embedded):
    """Catches the whole history with every look."""
    at = visit(lang="en")
    client.send("Once", max_tokens=8, learner="x")
    seen = until(at, lambda seen: len(seen["steps"]) > 2)
    last = seen["steps"][-1][0]
    assert last == seen["next"] - 1
    for since in (seen["next"], last):
        steps = live_server._look({"since": since, "run": seen["run"], "form": live_server.Form()})[0]["steps"]
        assert all(step[0] >= since for step in steps) and (since > last or steps[0][0] == last)
