"""The table of drafts: its arithmetic written out, what it says where something was not measured, and its picture."""

import json
import shutil
import subprocess

import pytest

from components import Scene, draft_choice
from components.draft_choice import WIDGET, Params
from compute import functions, numbers, precompute
from compute.errors import BrokenData

from .test_replay import NODE


@pytest.fixture()
def kept(monkeypatch):
    """Made-up entries: two drafts of mini-256 at k = 4, one of them timed."""
    entries = {}

    def put(key, value, **conditions):
        entries[key] = {"value": value, "unit": "", "kind": "measured", "conditions": conditions, "n": 16}

    for draft, alpha, tokens, c in (("mini-64", 0.6, 2.2, 0.1), ("mini-128", 0.7, 2.6, 0.3)):
        put(f"drafting.{draft}.cost_by_parameters", c)
        for part, value in (("acceptance", alpha), ("tokens_per_forward", tokens), ("identical", 16)):
            put(f"drafting.{draft}.k4.t0.{part}", value)
    for part, value in (("speedup", 0.8), ("cost_by_time", 0.5), ("check_over_step", 1.5), ("tokens_per_second", 400.0), ("plain_tokens_per_second", 500.0)):
        put(f"drafting.mini-64.k4.t0.{part}", value, quartiles=[0.7, 0.9])
    put("drafting.mini-64.k4.t0.same_raced", 8, of=8)
    for width in range(1, 10):
        put(f"drafting.forward.mini-256.m{width}", 0.001 * width, cpu="a processor")
    monkeypatch.setattr(precompute, "stored", lambda path=None: {})
    monkeypatch.setattr(numbers, "measured_entries", lambda: entries)
    return entries


def draw(params=Params(), lang="zh", answer=None, before=None):
    return WIDGET.draw(WIDGET.run(params, answer), Scene(WIDGET.words(lang), lang, "light", before))


def cell(params=Params(), answer=None):
    return WIDGET.run(params, answer).chosen


def test_the_three_numbers_by_hand(kept):
    """Catches: c of the wrong kind, k left out. 2.2 / (1 + 0.1·4) = 1.571, 2.2 / (1 + 0.5·4) = 0.733, and the clock's 0.8."""
    found = cell()
    assert found.tokens == 2.2 and found.ran
    assert found.predicted_by_parameters == pytest.approx(1.5714, abs=1e-4)
    assert found.predicted_by_time == pytest.approx(0.7333, abs=1e-4)
    assert found.speedup == 0.8 and found.quartiles == (0.7, 0.9) and found.same == (16, 16)
    view = draw()
    assert [r.value for r in view.readouts] == ["2.20", "0.100", "1.57", "0.800", "16/16"]
    assert "反而慢了" in view.sentence and "没有一格比不投机快" in view.sentence
    assert {q.kind for q in view.papers} == {"computed", "measured"}
    assert "2.20" in view.derivation and "0.629" in view.derivation  # 2.2 / (1.5 + 0.5·4)


def test_what_was_not_measured_is_not_invented(kept):
    """Catches: a zero or a figure of another cell where there is none. k = 2 was not run: the formula stands in, and says so."""
    other = cell(Params(draft="mini-128"))
    assert other.speedup is None and other.predicted_by_time is None and other.predicted_by_parameters == pytest.approx(2.6 / 2.2)
    two = cell(Params(k=2))
    assert not two.ran and two.tokens == pytest.approx(1 + 0.6 + 0.36) and two.speedup is None
    assert any(q.kind == "computed" and "α^(k+1)" in q.formula for q in draw(Params(k=2)).papers)
    with pytest.raises(BrokenData, match="drafting.lookup"):
        WIDGET.run(Params(draft="lookup"))
    assert "还没有量过" in draw(Params(draft="mini-128")).sentence


def test_without_any_entry_it_says_what_to_do(monkeypatch):
    """Catches: an empty table passed off as a result."""
    monkeypatch.setattr(precompute, "stored", lambda path=None: {})
    monkeypatch.setattr(numbers, "measured_entries", dict)
    with pytest.raises(BrokenData, match="precompute"):
        WIDGET.run(Params())


def test_the_best_cell_is_the_fastest_by_the_clock(kept):
    """Catches: the best by prediction."""
    assert (WIDGET.run(Params()).best.draft, WIDGET.run(Params()).best.k) == ("mini-64", 4)
    kept["drafting.mini-128.k4.t0.speedup"] = dict(kept["drafting.mini-64.k4.t0.speedup"], value=1.2)
    result = WIDGET.run(Params())
    assert result.best.draft == "mini-128" and "×1.20" in draw().sentence


def test_the_guess_follows_the_clock(kept):
    """Catches: an answer by acceptance. Untimed, the prediction decides: 2.6/2.2 against 2.2/1.4."""
    guess = WIDGET.guesses["larger"]
    result = WIDGET.run(Params())
    assert guess.truth(result).kind == "computed" and guess.right(result) == "slower"
    for part in ("speedup", "cost_by_time", "check_over_step", "tokens_per_second", "plain_tokens_per_second"):
        kept[f"drafting.mini-128.k4.t0.{part}"] = dict(kept[f"drafting.mini-64.k4.t0.{part}"])
    kept["drafting.mini-128.k4.t0.tokens_per_second"]["value"] = 440.0
    result = WIDGET.run(Params())
    assert guess.truth(result).kind == "measured" and guess.right(result) == "faster" and guess.truth(result).value == pytest.approx(1.1)


def test_a_live_cell_replaces_its_own_alone(kept):
    """Catches: a live figure put beside the stored ones of another cell, or shown without its conditions."""
    answer = {"draft": "mini-64", "k": 4, "acceptance": 0.5, "tokens_per_forward": 2.0, "cost_by_parameters": 0.1, "cost_by_time": 0.4, "check_over_step": 1.2, "speedup": 1.1,
              "tokens_per_second": 550.0, "plain_tokens_per_second": 500.0, "same": 4, "prompts": 4, "conditions": {"device": "cpu", "cpu": "mine"}}
    result = WIDGET.run(Params(), answer)
    assert result.mark == "live" and result.chosen.now and result.chosen.speedup == 1.1 and result.chosen.same == (4, 4)
    assert not any(c.now for c in result.cells if c is not result.chosen)
    assert any(q.conditions.get("cpu") == "mine" for q in draw(answer=answer).papers)


def test_the_live_call_is_one_that_the_service_accepts():
    """Catches: a parameter renamed on one side only; bf16 is timed by the benchmark, not on the page."""
    for params in (Params(), Params(target="smollm2-135m", public_draft="lookup", k=8), Params(temperature="0.7", draft="mtp")):
        arguments = WIDGET.live.arguments(params)
        assert functions.check(WIDGET.live.function, arguments).items() >= arguments.items()
    assert WIDGET.live.arguments(Params(target="smollm2-135m", temperature="1"))["temperature"] == 0
    assert not WIDGET.live.when(Params(target="smollm2-135m", dtype="bfloat16"))


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_option_has_a_label(lang):
    """Catches: a page that breaks because a control asks for a word that is not there."""
    words = WIDGET.words(lang)
    for control in WIDGET.controls:
        for id in control.options() if hasattr(control, "options") and control.name is None else ():
            assert words(f"option.{control.field}.{id}")


def test_a_ghost_of_the_k_before(kept):
    """Catches: a move without a trace."""
    kept["drafting.mini-64.k2.t0.speedup"] = dict(kept["drafting.mini-64.k4.t0.speedup"], value=0.9)
    for part in ("cost_by_time", "check_over_step", "tokens_per_second", "plain_tokens_per_second"):
        kept[f"drafting.mini-64.k2.t0.{part}"] = kept[f"drafting.mini-64.k4.t0.{part}"]
    rows = draw(before=WIDGET.run(Params(k=2))).picture.data["rows"]
    assert rows[0]["ghost"] == 0.9 and rows[0]["speedup"] == 0.8
    assert draft_choice.drafted(Params(target="smollm2-135m")) == "smollm2-draft"


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize("params", [Params(), Params(k=2), Params(draft="mini-128")])
def test_the_picture_is_a_function_of_its_data(kept, params):
    """Catches: a cell without figures that breaks the drawing."""
    stage = draw(params).picture
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps(stage.data), "1"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
