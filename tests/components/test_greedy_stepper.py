"""Greedy speculation: the worked example, recorded runs against the target's own text, and its picture."""

import json
import shutil
import subprocess

import pytest

from components import Scene
from components.greedy_stepper import WIDGET, Params, worked
from compute import functions, precompute
from compute.measures.distributions import PROMPTS
from compute.measures.drafting import DRAFTS

from .test_replay import NODE


def draw(params=Params(), lang="zh", answer=None, before=None):
    return WIDGET.draw(WIDGET.run(params, answer), Scene(WIDGET.words(lang), lang, "light", before))


def test_the_worked_example():
    """Catches: a mean per round instead of a running one. 4, then 4 + 1 over 2, then 9 over 3."""
    result = WIDGET.run(Params(preset="example"))
    assert result.ratios == (4 / 1, 5 / 2, 9 / 3) and result.tokens == 9
    view = draw(Params(preset="example"))
    assert "4.00 → 2.50 → 3.00" in view.sentence and "9" in view.sentence and view.picture.steps == 3
    assert view.papers[0].kind == "computed" and result.mark == "computed" and "不是模型的运行" in view.simplified
    assert WIDGET.live.when(Params()) and not WIDGET.live.when(Params(preset="example"))


def test_turns_from_accept_counts():
    """Catches: tokens numbered by guess instead of by place in the text."""
    one, two, three = worked((3, 0, 4), 4)
    assert (one.guesses, one.last, one.written) == (("1", "2", "3", "✗"), "4", 4)
    assert (two.guesses, two.last, two.written) == (("✗", "·", "·", "·"), "5", 1)
    assert (three.guesses, three.last, three.written) == (("6", "7", "8", "9"), "10", 5)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_every_draft_leads_to_the_same_text(prompt):
    """Catches: a recording whose text depends on the draft. Greedy text is the target's, whoever guesses."""
    texts = {}
    for draft in DRAFTS:
        if f"drafting.replay.{prompt}.{draft}" in precompute.stored():
            for k in (2, 4, 8):
                result = WIDGET.run(Params(prompt=prompt, draft=draft, k=k))
                texts[draft, k] = [p for t in result.turns for p in (*t.guesses[: t.accepted], t.last)[: t.written]]
                assert all(1 <= t.written <= k + 1 for t in result.turns)
                assert not result.waiting
    assert len(texts) >= 9 and len({tuple(text) for text in texts.values()}) == 1


def test_the_guess():
    """Catches: a worst case of nothing: the target's own token is always there."""
    guess = WIDGET.guesses["worst"]
    assert guess.right(WIDGET.run(Params())) == "1" and guess.truth(WIDGET.run(Params())).value == 1
    assert min(turn.written for turn in WIDGET.run(Params(draft="lookup")).turns) == 1


def test_other_settings_wait_and_the_live_call_fits():
    """Catches: k = 3 shown from the recording of k = 2 or 4 without a word; a call that the service refuses."""
    assert WIDGET.run(Params(k=3)).waiting and WIDGET.run(Params(text="一只小猫")).waiting
    arguments = WIDGET.live.arguments(Params(text="一只小猫", k=8))
    assert functions.check(WIDGET.live.function, arguments).items() >= arguments.items() and arguments["temperature"] == 0


def test_where_the_text_ends():
    """Catches: the model's mark for the end printed as text, and the target's token counted although the text ended before it."""
    stage = draw(Params()).picture.data
    guesses, accepted, last, written = stage["turns"][-1]
    assert written == accepted and guesses[accepted - 1] == WIDGET.words("zh")("view.end")
    assert "<|" not in json.dumps(stage)


@pytest.mark.parametrize("draft, alone", [("mini-64", 1), ("mini-128", 0)])
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_forwards_without_a_right_guess_are_told_only_where_there_are_some(draft, alone, lang):
    """Catches: "0 times …, and each still wrote 1"."""
    view, words = draw(Params(draft=draft), lang), WIDGET.words(lang)
    assert view.sentence.endswith(words("sentence_alone", alone=alone)) == (alone > 0)
    worst = next(readout for readout in view.readouts if readout.label == words("readout.worst"))
    assert worst.unit == words("unit.one" if worst.value == "1" else "unit.many")


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize("params", [Params(), Params(preset="example"), Params(draft="lookup", k=8, prompt="english")])
def test_the_picture_is_a_function_of_the_step(params):
    """Catches: a drawing that depends on what was drawn before, and a forward without guesses that breaks it."""
    stage = draw(params).picture
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps(stage.data), str(stage.steps)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
