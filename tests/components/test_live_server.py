"""The live server: what it makes of a snapshot, presses that are neither lost nor done twice, its form and its words."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from components import live_server
from components.text import load_words
from compute.batching import POLICIES, Scheduler
from compute.errors import BadInput, Busy, Unavailable
from compute.paging import BlockPool
from compute.simulate import Job, simulate

HERE = Path(live_server.__file__).parent
TEXT = tomllib.loads((HERE / "text.toml").read_text(encoding="utf-8"))
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in HERE.glob("*.js")}


def words(lang="en"):
    return load_words(HERE / "text.toml", lang)


# ---- what is sent to the browser


@pytest.fixture()
def snapshot():
    """As compute/service/live.py writes it, of a simulated run: two requests in two slots, three blocks of four cells."""
    run = simulate(Scheduler(BlockPool(3, 4), 2), [Job(3, 4), Job(2, 1)])
    steps = [{"index": 10 + at, **step} for at, step in enumerate(run.to_json()["steps"])]
    return {
        "version": 1, "model": "toy", "policy": "continuous", "slots": 2, "blocks": 3, "block_size": 4, "now": 9.0, "first": 10, "next": 10 + len(steps),
        "steps": steps, "sequences": run.to_json()["sequences"], "mine": [0], "queue": [], "tables": {"0": [2, 0]}, "filled": [1, 0, 4], "refs": [1, 0, 2],
        "cached": [], "tokens_per_second": 3.0, "learners": 2, "texts": [],
    }  # fmt: skip


def test_a_snapshot_loses_nothing_on_its_way(snapshot):
    """Catches a step whose fields change places, and blocks in use that are not told of."""
    brief = live_server.brief(json.loads(json.dumps(snapshot)))
    names = ("index", "ended", "took", "lanes", "waiting", "running", "used", "preempted", "finished")
    assert [dict(zip(names, row, strict=True)) for row in brief["steps"]] == [{name: step[name] for name in names} for step in json.loads(json.dumps(snapshot["steps"]))]
    assert brief["used"] == [[0, 1, 1], [2, 2, 4]] and "refs" not in brief and "filled" not in brief
    assert {name: brief[name] for name in ("mine", "tables", "cached", "next", "now", "texts")} == {name: snapshot[name] for name in ("mine", "tables", "cached", "next", "now", "texts")}


def test_the_browser_reads_a_step_in_the_order_in_which_it_is_written(snapshot):
    """Catches a field that Python or the script moves without the other."""
    read = re.search(r"function step\(\[([\w, ]+)\]", SCRIPTS["history.js"])[1].split(", ")
    assert read == ["index", "ended", "took", "lanes", "waiting", "running", "used", "preempted", "finished"]


# ---- presses


@pytest.fixture()
def page(monkeypatch):
    """A page's state, and a service that writes down what it is asked. `raises` is raised by the next call."""
    service = SimpleNamespace(sent=[], cancelled=[], raises=None)

    def answer(list_, what):
        if service.raises:
            error, service.raises = service.raises, None
            raise error
        list_.append(what)

    monkeypatch.setattr(live_server.client, "send", lambda text, **asked: answer(service.sent, {"text": text, **asked}))
    monkeypatch.setattr(live_server.client, "cancel_live", lambda request, learner: answer(service.cancelled, (request, learner)))
    monkeypatch.setattr(live_server, "learner", lambda: "somebody")
    monkeypatch.setattr(live_server, "_write_url", lambda state: None)
    state = {"lang": "en", "form": live_server.Form(), "written": {}, "complaints": [], "since": 0, "run": "", "done": [], "refused": None, "beat": 0}
    return state, service


def press(number, do, value=None):
    return {"number": number, "do": do, "value": value}


def test_a_press_is_done_once_however_often_it_is_told(page):
    """Catches a request that is sent twice because its first answer came late, and a second press that is taken for the first."""
    state, service = page
    first, second = press("a.1", "send", {"tokens": 16}), press("a.2", "send", {"tokens": 32})
    for presses in ([first], [first, second], [first, second], []):
        live_server.hear(state, {"since": 7, "run": "3", "presses": presses})
    assert [sent["max_tokens"] for sent in service.sent] == [16, 32] and state["done"] == ["a.1", "a.2"]
    assert state["since"] == 7 and state["run"] == "3"


@pytest.mark.parametrize("lang,prompt", live_server.PROMPT.items())
def test_an_untouched_prompt_is_that_of_the_language(page, lang, prompt):
    """Catches an English page that asks in Chinese, and a learner's text that is replaced."""
    state, service = page
    state["lang"] = lang
    live_server.hear(state, {"presses": [press("1", "send", {"prompt": ""}), press("2", "send", {"prompt": "Mine", "temperature": 0, "n": 2})]})
    assert [sent["text"] for sent in service.sent] == [prompt, "Mine"]
    assert service.sent[1] == {"text": "Mine", "max_tokens": 128, "temperature": 0.0, "n": 2, "model": "", "learner": "somebody"}


def test_a_full_queue_is_said_with_its_seconds_and_forgotten_when_it_took_one(page):
    """Catches a refusal without the time, one that stays after it is over, and a press that is tried again by itself."""
    state, service = page
    service.raises = Busy(128, 7.0)
    live_server.hear(state, {"presses": [press("1", "send", {})]})
    live_server.hear(state, {"presses": [press("1", "send", {})]})
    told = live_server._told(state["refused"], "en")
    assert told["seconds"] == 7.0 and "7 s" in told["says"] and service.sent == [] and state["done"] == ["1"]
    live_server.hear(state, {"presses": [press("2", "send", {})]})
    assert len(service.sent) == 1 and state["refused"] is None


def test_one_cancels_with_ones_own_name(page):
    """Catches a cancel under another name, which would end somebody else's or nothing."""
    state, service = page
    live_server.hear(state, {"presses": [press("1", "cancel", 12)]})
    assert service.cancelled == [(12, "somebody")]


def test_nothing_is_sent_from_a_wrong_form(page):
    """Catches a value out of bounds that reaches the service or brings the page down."""
    state, service = page
    live_server.hear(state, {"presses": [press("1", "send", {"tokens": 100_000})]})
    assert service.sent == [] and len(state["complaints"]) == 1 and "100000" in str(state["complaints"][0])


def test_reset_brings_the_form_back(page):
    """Catches a reset that keeps a value or a refusal."""
    state, service = page
    service.raises = Unavailable("unavailable", reason="gone", reason_zh="没了")
    live_server.hear(state, {"presses": [press("1", "send", {"prompt": "x", "n": 4}), press("2", "reset")]})
    assert state["form"] == live_server.Form() and state["refused"] is None


def test_the_steps_asked_for_are_of_the_run_that_the_browser_has_seen(page, monkeypatch):
    """Catches a restarted service that is asked for the steps after the old one's last, of which it has none, or one model's engine for
    another's, and a page that begins with all that the service keeps."""
    state, _ = page
    asked = []
    monkeypatch.setattr(live_server.client, "status", lambda: SimpleNamespace(pid=5))
    monkeypatch.setattr(live_server.client, "live", lambda since, **more: asked.append(since) or {"steps": [], "refs": [], "filled": [], "next": 1000})
    state.update(since=40, run="5 ")
    assert live_server._look(state)[0]["run"] == "5 "
    for other in ("4 ", "5 mini-64"):
        state.update(since=40, run=other)
        live_server._look(state)
    assert asked == [40, *[live_server.NEVER, 1000 - live_server.RECENT] * 2]


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_away_is_said_quietly_and_a_fault_by_its_own_sentence(lang):
    """Catches a page that speaks of stored results which it does not have, and a wrong model that is taken for an absence."""
    assert live_server._missing(Unavailable("unavailable", reason="r", reason_zh="r"), lang) == words(lang)("view.away")
    wrong = BadInput("model", "x", "no", "不")
    assert live_server._missing(wrong, lang) == wrong.message(lang) and live_server._missing(None, lang) == ""


# ---- the address


@pytest.mark.parametrize("said,good,complaint", [
    ({"prompt": "从前", "tokens": "64", "temperature": "0", "n": "2"}, {"prompt": "从前", "tokens": 64, "temperature": 0.0, "n": 2}, ""),
    ({"tokens": "0", "n": "2"}, {"n": 2}, "tokens"),
    ({"temperature": "nan"}, {}, "temperature"),
    ({"prompt": "x" * 401}, {}, "400"),
    ({"colour": "<b>"}, {}, "colour"),
])  # fmt: skip
def test_what_the_address_says_is_checked(said, good, complaint):
    """Catches a value that is passed over in silence, and one wrong field that costs the others."""
    form, complaints = live_server._checked(said)
    assert form == live_server.Form(**good) and bool(complaints) == bool(complaint) and all(complaint in str(each) for each in complaints)


def test_what_can_be_chosen_can_be_asked_for():
    """Catches an option of the page that its own form, or the service, refuses."""
    from compute.service.live import Send

    for tokens in live_server.TOKENS:
        for temperature in live_server.TEMPERATURES:
            for n in live_server.SAMPLES:
                form = live_server.Form(tokens=tokens, temperature=temperature, n=n)
                Send(text="x" * live_server.LONGEST_PROMPT, max_tokens=form.tokens, temperature=form.temperature, n=form.n)


# ---- words


def test_words_are_the_same_in_both_languages():
    """Catches an untranslated word, one that a script asks for and nobody wrote, and half-width marks in Chinese."""
    zh, en = words("zh").table, words("en").table
    assert set(zh) == set(en)
    source = "".join(SCRIPTS.values())
    asked = set(re.findall(r"W\((?:self, )?'([a-zA-Z_.]+)'", source)) | {f"policy.{name}" for name in POLICIES}
    asked |= {f"figure.{name}" for name in re.findall(r"'(\w+)'", re.search(r"FIGURES = \[(.*?)\]", source)[1])}
    assert len(asked) > 40 and asked <= set(zh), asked - set(zh)
    for key in zh:
        assert set(re.findall(r"\{\w+\}|\[\w+\]", zh[key])) == set(re.findall(r"\{\w+\}|\[\w+\]", en[key])), key
    han = r"[\u4e00-\u9fff]"
    said = json.dumps(TEXT["zh"], ensure_ascii=False).replace("\\n", " ")
    assert not re.findall(rf"{han}[,:;?!]|[,:;?!]{han}|{han}\(|\){han}", said)
    assert not re.findall(rf"{han}[A-Za-z]|[A-Za-z]{han}", said), "a space between Han and Latin"
