"""The verification desk under AppTest: what the page hands to its table, in both languages, without a service."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from streamlit.testing.v1 import AppTest

from app.lesson import words
from compute import numbers, precompute
from tests.conftest import ROOT

LANGUAGES = ("zh", "en")
pytestmark = pytest.mark.usefixtures("fresh_streamlit")


@pytest.fixture(autouse=True)
def nobody_computes(monkeypatch):
    monkeypatch.setenv("INFERENCE_LAB_COMPUTE", "http://127.0.0.1:9")


@pytest.fixture()
def store(tmp_path, monkeypatch):
    path = tmp_path / "precomputed.json"
    shutil.copy(precompute.STORE, path)
    shutil.copytree(precompute.STORE.parent / "precomputed", tmp_path / "precomputed")
    monkeypatch.setattr(precompute, "STORE", path)
    return path


def visit(**query: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=60)
    for name, value in {"lesson": "check", **query}.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception, [each.value for each in at.exception]
    return at


def table(at: AppTest) -> dict:
    return next(data for data in (json.loads(each.proto.json) for each in at.get("bidi_component")) if "outcomes" in data)


def html_of(at: AppTest) -> str:
    return "\n".join(each.proto.body for each in at.get("html"))


def test_no_two_answers_are_the_same():
    """Catches a table that asks no more once an answer said what the last one had said, as during one long job: the framework
    does not hand an equal answer on, and the next question only follows an answer."""
    at = visit(lang="zh")
    first = table(at)
    assert table(at.run()) != first


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_desk_shows_every_number_in_both_languages(lang):
    """Catches a page without its question, a table without its numbers, and one that calls them checked although nobody computed."""
    at = visit(lang=lang)
    data = table(at)
    assert words(lang)("check_lead") in html_of(at)
    assert {name.lstrip("=~") for name in numbers.names()} <= {row["key"] for row in data["rows"]}
    assert data["lang"] == lang and data["words"]["title"] and data["away"] is True and data["run"] is None and data["outcomes"] == {}
    assert not data["complaints"]


def test_an_edited_digit_is_red_on_the_page(store):
    """Catches an edit that only the command line sees."""
    data = json.loads(store.read_text(encoding="utf-8"))
    data["entries"]["anchor.ridge"]["value"] += 1e-9
    store.write_text(json.dumps(data), encoding="utf-8")
    told = table(visit(lang="zh"))["outcomes"]
    assert {key: each["verdict"] for key, each in told.items()} == {"anchor.ridge": "differs"} and "封签" in told["anchor.ridge"]["reason"]


@pytest.mark.parametrize("lang, met, each, unchecked", [("zh", "达标", "看选哪个", "没有核对"), ("en", "met", "by choice", "not checked")])
def test_the_acceptance_criteria_stand_on_the_page(lang, met, each, unchecked, store):
    """Catches: a criterion that is not there, one that stays met on a number that somebody edited."""

    def verdicts() -> list[str]:
        (section,) = (body for body in (element.proto.body for element in visit(lang=lang).get("html")) if "lab-criteria" in body)
        return re.findall(r'role="listitem"><b class="\w+">. ([^<]+)</b>', section)

    shutil.copytree(ROOT / "data" / "measured", store.parent / "measured")
    assert verdicts() == [met, met, met, each]
    data = json.loads(store.read_text(encoding="utf-8"))
    data["entries"]["drafting.mtp.k2.t0.identical"]["value"] -= 1e-9
    store.write_text(json.dumps(data), encoding="utf-8")
    assert verdicts()[2] == unchecked


def test_an_edited_array_is_red_on_the_page(store):
    """Catches arrays beside the store that the page takes on trust."""
    key = next(key for key, entry in precompute.stored().items() if "trace" in entry)
    file = store.parent / precompute.stored()[key]["trace"]["file"]
    file.write_bytes(file.read_bytes().replace(b"1", b"2", 1))
    assert {k: each["verdict"] for k, each in table(visit())["outcomes"].items()} == {key: "differs"}


def test_a_broken_store_is_one_sentence(store):
    """Catches a page that fails as a whole; quoted figures stay."""
    store.write_text("[]", encoding="utf-8")
    data = table(visit(lang="zh"))
    assert len(data["complaints"]) == 1 and "precomputed.json" in data["complaints"][0] and {row["kind"] for row in data["rows"]} <= {"quoted", "timing"}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_address_sets_the_filter(lang):
    """Catches a link that loses its filter in the other language, and a wrong one that is passed over in silence."""
    at = visit(**{"lang": lang, "ledger.text": "vllm", "ledger.kind": "quoted"})
    assert table(at)["filter"] == {"text": "vllm", "kind": "quoted", "verdict": ""} and not table(at)["complaints"]
    wrong = table(visit(**{"lang": lang, "ledger.kind": "<b>x</b>", "ledger.size": "3"}))
    assert wrong["filter"]["kind"] == "" and len(wrong["complaints"]) == 2 and "<b>x</b>" in "".join(wrong["complaints"])


def test_rows_are_sent_until_the_browser_has_them():
    """Catches hundreds of kilobytes with every look, and a browser that never gets them."""
    at = visit(lang="en")
    first = table(at)
    at.session_state["ledger"]["has"] = first["version"]
    assert "rows" in table(at.run()), "a whole run of the page sends them: the browser may have begun anew"
