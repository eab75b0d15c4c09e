"""Price and gain of fewer bits: what bytes promise and what the clock says, by hand; what is said where nothing was timed."""

import json
import shutil
import subprocess

import pytest

from components import Scene
from components.quant_speed import MATRICES, WIDGET, Params
from compute import numbers, precompute

from .test_schemes import NODE


@pytest.fixture()
def kept(monkeypatch):
    """Made-up timings: bf16 reads 200 MB in 20 ms, of which 16 ms in matrices; int4 60 MB in 8 ms, 5 of them in matrices.
    A product's time is that of one of its 30 layers, except lm_head's."""
    entries = {}

    def put(format, bytes_, speed, inside, **around):
        key, conditions = f"quantize.smollm2-135m.{format}", {"cpu": "a processor", "threads": 2} | around
        entries[f"{key}.tokens_per_second"] = {"value": speed, "unit": "token/s", "kind": "measured", "conditions": conditions}
        entries[f"{key}.bytes_per_token"] = {"value": bytes_, "unit": "B", "kind": "computed", "conditions": {}}
        for name in MATRICES if inside else ():
            entries[f"{key}.product.{name}.step"] = {"value": inside / len(MATRICES) / (1 if name == "head" else 30), "unit": "s", "kind": "measured", "conditions": conditions}

    put("fp32", 400e6, 25.0, 0.034)
    put("bf16", 200e6, 50.0, 0.016)
    put("int4", 60e6, 125.0, 0.005, quartiles=[120.0, 130.0])
    put("llama-q4", 80e6, 140.0, 0)
    entries["quantize.smollm2-135m.int4-g64-head8.loss_change"] = {"value": 0.03, "unit": "nat/token", "kind": "measured", "interval95": [0.028, 0.032], "n": 90_000, "conditions": {"model": "smollm2-135m"}}
    monkeypatch.setattr(precompute, "stored", lambda path=None: {})
    monkeypatch.setattr(numbers, "measured_entries", lambda: entries)
    return entries


def draw(params=Params(), lang="zh", before=None):
    return WIDGET.draw(WIDGET.run(params), Scene(WIDGET.words(lang), lang, "light", before))


def test_promise_and_clock_by_hand(kept):
    """Catches: a ratio the wrong way round, or against another base. 200/60 = 3.33, 125/50 = 2.5; against fp32 6.67 and 5."""
    result = WIDGET.run(Params())
    assert result.predicted(result.chosen) == pytest.approx(10 / 3) and result.measured(result.chosen) == 2.5
    assert [r.value for r in draw().readouts] == ["+0.0300", "60.0", "×3.33", "×2.50", "125"]
    assert "6.67" in draw(Params(base="fp32")).sentence and "×5.00" in draw(Params(base="fp32")).sentence
    assert {q.kind for q in draw().papers} == {"computed", "measured"}


def test_ratios_are_those_within_the_rounds(kept):
    """Catches: a ratio of medians where prose prints the median of ratios; against fp32 there is no other than the former."""
    kept["quantize.smollm2-135m.int4.speedup"] = {"value": 2.4, "unit": "×", "kind": "measured", "conditions": {"quartiles": [2.3, 2.6]}}
    result = WIDGET.run(Params())
    assert result.measured(result.chosen) == 2.4 and result.spread(result.chosen) == (2.3, 2.6)
    other = WIDGET.run(Params(base="fp32"))
    assert other.measured(other.chosen) == 5 and other.spread(other.chosen) == (120 / 25, 130 / 25)


def test_why_it_falls_short_by_hand(kept):
    """Catches: matrices that are not taken from the whole. Matrices 16 → 5 ms, ×3.2; 8 − 5 = 3 ms stay, 37.5 % of a token."""
    said = draw(lang="en").sentence
    assert "from 16.0 ms to 5.00 ms, 3.20 times faster" in said and "other 3.00 ms" in said and "37.5%" in said
    kept["quantize.smollm2-135m.rest_per_token"] = {"value": 0.002, "unit": "s", "kind": "measured", "conditions": {"cpu": "a processor"}}
    assert draw(lang="en").sentence.endswith("the products left out, take 2.00 ms.") and any(q.value == 0.002 for q in draw().papers)
    assert "matrix products" not in draw(Params(chosen="llama-q4"), "en").sentence  # another program's parts were not timed


def test_price_stands_beside_the_gain(kept):
    """Catches: a speed without its loss, and a loss invented where none was measured."""
    rows = {row["id"]: row for row in draw(lang="en").picture.data["rows"]}
    assert rows["int4"]["change"] == [0.03, 0.028, 0.032] and rows["int4"]["quartiles"] == (2.4, 2.6)
    assert rows["fp32"]["says"] == "the reference, no change" and rows["bf16"]["says"] == "loss not measured" and "published file" in rows["llama-q4"]["says"]
    assert draw(Params(chosen="llama-q4")).readouts[0].value == "–"


def test_without_timings_only_the_promise_is_shown(monkeypatch):
    """Catches: a clock invented where there is none. SmolLM2 in fp32: 134,479,872 weights of 4 bytes; bf16 is half."""
    monkeypatch.setattr(precompute, "stored", lambda path=None: {})
    monkeypatch.setattr(numbers, "measured_entries", dict)
    result, view = WIDGET.run(Params(base="fp32", chosen="bf16")), draw(Params(base="fp32", chosen="bf16"), "en")
    assert result.of("fp32").bytes == 4 * 134_479_872 and result.predicted(result.chosen) == 2 and result.measured(result.chosen) is None
    assert [s.format for s in result.speeds] == ["fp32", "bf16", "int8", "int4", "int4-head16"]
    assert "was not measured here yet" in view.sentence and [r.value for r in view.readouts][3:] == ["–", "–"]
    assert {q.kind for q in view.papers} == {"computed"} and view.picture.data["parts"] == []


def test_the_guess_is_about_int4_whatever_is_looked_at(kept):
    """Catches: an answer for the row in focus. 2.5 of 3.33 is 75 %."""
    guess = WIDGET.guesses["int4"]
    for chosen in ("bf16", "int4"):
        assert guess.right(WIDGET.run(Params(chosen=chosen))) == "most" and guess.truth(WIDGET.run(Params(chosen=chosen))).value == pytest.approx(0.75, abs=0.01)


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
def test_the_picture_is_a_function_of_its_data(kept):
    """Catches: a format without loss or parts that breaks the drawing."""
    stages = [draw(p, before=WIDGET.run(Params())).picture.data | {"part": "speed"} for p in (Params(), Params(chosen="llama-q4", base="fp32"))]
    del kept["quantize.smollm2-135m.int4.tokens_per_second"]
    stages.append(draw().picture.data | {"part": "untimed"})
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps(stages)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-300:]
