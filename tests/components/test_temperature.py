"""Temperature's picture against softmax written out, at its edges, and with a live answer."""

import json
import math
import shutil
import subprocess

import numpy as np
import pytest

from components import Scene
from components.temperature import SHOWN, WIDGET, Params
from compute import distributions, functions

VIEW_JS = WIDGET.folder / "view.js"
ANSWER = {
    "text": "<b>你好</b>", "prompt_pieces": ["你", "好"], "logits": {"mini-256": [0.5, 3.0, 3.0, -2.0] + [-9.0] * 16},
    "pieces": {"0": "a", "1": "<i>", "2": "\n", "3": " d"}, "conditions": {"model": "mini-256", "device": "cpu"},
}  # fmt: skip


def draw(params: Params, lang: str = "zh", answer=None, before=None):
    return WIDGET.draw(WIDGET.run(params, answer), Scene(WIDGET.words(lang), lang, "light", before))


@pytest.mark.parametrize("prompt", distributions.PROMPTS)
@pytest.mark.parametrize("t", [0.1, 0.5, 1, 1.7, 3])
def test_probabilities_by_hand(prompt, t):
    """Every bar, and all the tokens without one. Catches: T multiplied instead of divided, and a softmax over the shown alone."""
    logits = distributions.stored(prompt).logits["mini-256"]
    high = max(logits)
    weights = [math.exp((z - high) / t) for z in logits]
    share = sorted((w / math.fsum(weights) for w in weights), reverse=True)
    data = draw(Params(prompt=prompt, temperature=t)).picture.data
    assert [row["p"] for row in data["rows"]] == pytest.approx(share[:SHOWN], rel=1e-9)
    assert data["rest"]["p"] == pytest.approx(math.fsum(share[SHOWN:]), rel=1e-9)
    assert [row["z"] for row in data["rows"]] == sorted(logits, reverse=True)[:SHOWN]


def test_the_left_never_moves_and_the_order_never_changes():
    """Catches: logits or ranks that follow T."""
    at = [draw(Params(temperature=t)).picture.data for t in (0, 0.3, 1, 3)]
    for data in at[1:]:
        assert [(row["name"], row["z"]) for row in data["rows"]] == [(row["name"], row["z"]) for row in at[0]["rows"]]
        assert data["histogram"] == at[0]["histogram"] and sum(data["histogram"]["counts"]) == 2048
        assert [row["p"] for row in data["rows"]] == sorted((row["p"] for row in data["rows"]), reverse=True)


def test_greedy_is_one_bar():
    """Catches: a T of 0 that divides, or leaves something for the others."""
    result = WIDGET.run(Params(temperature=0))
    data = draw(Params(temperature=0)).picture.data
    assert [row["p"] for row in data["rows"]] == [1.0] + [0.0] * (SHOWN - 1) and data["rest"]["p"] == 0 and data["greedy"]
    assert result.entropy == 0 and result.ranked[0] == np.argmax(result.logits)


def test_a_live_answer_stays_while_the_temperature_moves():
    """Catches: the example shown again after a move, a live result marked as stored, a ghost of another text, raw HTML."""
    params = Params(text="<b>你好</b>", temperature=1)
    assert WIDGET.live.about is None and WIDGET.live.arguments(params) == WIDGET.live.arguments(Params(text="<b>你好</b>", temperature=2))
    functions.check(WIDGET.live.function, WIDGET.live.arguments(params))
    waiting, live = WIDGET.run(params), WIDGET.run(params, ANSWER)
    assert waiting.waiting and waiting.mark == "precomputed" and not live.waiting and live.mark == "live"
    assert live.p[1] == live.p[2] and list(live.ranked[:2]) == [1, 2], "of equal logits the lower id"
    view = draw(params, answer=ANSWER, before=waiting)
    assert view.picture.data["old_t"] == "" and all(row["old"] is None for row in view.picture.data["rows"])
    assert view.picture.data["rows"][1]["name"] == "⏎" and "20" in view.readouts[-1].note


def test_a_stored_prompt_typed_by_hand_is_the_stored_one():
    """Catches: a call for help where the answer is there."""
    result = WIDGET.run(Params(text="春风"))
    assert result.said.text == "春风" and not result.waiting
    assert WIDGET.run(Params(model="smollm2-135m")).waiting, "a model without stored logits"


def test_a_long_text_does_not_drown_the_sentence():
    """Catches: two hundred characters of the learner's before the first figure; a short text cut."""
    long = ANSWER | {"text": "好" * 199 + "啊"}
    sentence = draw(Params(text=long["text"]), answer=long).sentence
    assert "…" + "好" * 39 + "啊”" in sentence and "好" * 40 not in sentence
    assert "…" not in draw(Params(), answer=ANSWER).sentence


def test_the_guess():
    """Catches: a right answer that is not the computation's."""
    guess = WIDGET.guesses["order"]
    for t in (0, 0.2, 3):
        result = WIDGET.run(Params(temperature=t))
        assert guess.right(result) == "never" and guess.truth(result).value == 0


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser shows the same picture")
def test_the_picture_draws_at_every_size():
    """Catches: a coordinate that is no number, a ghost without a legend, raw HTML from the text."""
    before = WIDGET.run(Params(text="<b>你好</b>", temperature=2), ANSWER)
    pictures = [draw(Params(temperature=t)).picture.data for t in (0, 1, 3)] + [draw(Params(text="<b>你好</b>"), answer=ANSWER, before=before).picture.data]
    script = """
    const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1]));
    const tools = { lang: 'zh', still: false, moved: false, colour: (n) => n, words: (k, v) => k + JSON.stringify(v ?? ''), measure: (s, px) => s.length * px * .8, number: (n) => n.toLocaleString('en-US'), esc: (s) => s.replace(/</g, '&lt;') };
    for (const data of JSON.parse(process.argv[2])) for (const width of [300, 390, 720, 1152]) {
      const svg = {}; view.draw(svg, data, 0, { ...tools, width });
      if (/NaN|undefined|Infinity/.test(svg.innerHTML)) throw new Error('a coordinate is no number at ' + width);
      if (svg.innerHTML.includes('<b>')) throw new Error('raw HTML');
      if ((data.old_t !== '') !== svg.innerHTML.includes('old{')) throw new Error('the ghost is not named');
      if (view.height(data, width, { ...tools, width }) > 620) throw new Error('too tall');
    }
    """
    run = subprocess.run(["node", "--input-type=module", "-e", script, VIEW_JS.read_text(encoding="utf-8"), json.dumps(pictures)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
