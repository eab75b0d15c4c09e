"""The kv-stepper's sums against arithmetic written out, its recorded runs, and what it does with a live answer."""

import json
import shutil
import subprocess

import pytest

from components import Scene
from components.kv_stepper import WIDGET, Params, tiny
from compute import functions, precompute
from compute.errors import BrokenData
from compute.measures.kv import SENTENCES

VIEW_JS = WIDGET.folder / "view.js"


def draw(params: Params, lang: str = "zh", answer=None, before=None):
    return WIDGET.draw(WIDGET.run(params, answer), Scene(WIDGET.words(lang), lang, "light", before))


def live_answer(prompt: int = 5, new: int = 3) -> dict:
    """What the service says, in shape; the numbers are made up."""
    return {
        "model": "mini-64", "text": "你好", "prompt_pieces": ["你"] * prompt, "tokens": [7] * new, "pieces": ["好"] * new,
        "with_cache": {"tokens": [7] * new, "seconds": [0.003, 0.001, 0.001], "kv_computed": [prompt] + [1] * (new - 1)},
        "without_cache": {"tokens": [7] * new, "seconds": [0.003, 0.004, 0.005], "kv_computed": [prompt + i for i in range(new)]},
        "largest_logit_difference": 2.4e-6, "largest_logit": 11.5, "equal": True, "conditions": {"model": "mini-64", "device": "cpu"},
    }  # fmt: skip


def test_the_account_by_hand():
    """Catches an off-by-one in the sums: 4 tokens and 1,000 new ones are 503,500 against 1,003."""
    result = WIDGET.run(Params())
    assert result.account.without_cache == sum(4 + i for i in range(1000)) == 503_500
    assert result.account.with_cache == 4 + 999 == 1_003
    shown = [r.value for r in draw(Params()).readouts]
    assert shown[:3] == ["503,500", "1,003", "502"]


@pytest.mark.parametrize("lang,text", SENTENCES.items())
def test_the_recording_counts_what_its_steps_say(lang, text):
    """Catches a recording whose counts do not belong to its prompt: row i computes prompt + i, or one."""
    run = WIDGET.run(Params(text=text, tokens=64)).run
    prompt = len(run.prompt_pieces)
    assert "".join(run.prompt_pieces) == text and len(run.pieces) == 64
    assert list(run.without_cache) == [prompt + i for i in range(64)]
    assert list(run.with_cache) == [prompt] + [1] * 63
    assert sum(run.without_cache) == functions.call("kv.computations", {"prompt": prompt, "new": 64})["without_cache"]
    assert run.equal and run.largest_logit_difference < 1e-3


def test_fewer_tokens_are_the_beginning_of_the_recording():
    """Catches a slider that shows another text than the longer setting begins with."""
    long, short = WIDGET.run(Params(tokens=64)).run, WIDGET.run(Params(tokens=5)).run
    assert short.pieces == long.pieces[:5] and short.without_cache == long.without_cache[:5]
    assert draw(Params(tokens=5)).picture.steps == 5


def test_an_unrun_sentence_is_not_passed_off_as_run():
    """Catches the example shown as if it were the learner's sentence."""
    own = WIDGET.run(Params(text="一只小猫在树上"))
    assert own.waiting and own.mark == "replay" and own.run.text == SENTENCES["zh"]
    assert WIDGET.run(Params(text="A cat sat on")).run.text == SENTENCES["en"]
    assert WIDGET.run(Params(model="mini-64")).waiting, "the recording is of mini-256"
    assert not WIDGET.run(Params()).waiting


def test_a_live_answer_is_shown_with_its_conditions():
    """Catches a live result labelled as a replay, times without conditions, and counters of another run."""
    params = Params(text="你好", model="mini-64", tokens=3)
    result = WIDGET.run(params, live_answer())
    assert result.mark == "live" and not result.waiting
    view = draw(params, answer=live_answer())
    assert view.picture.data["without"] == (5, 6, 7) and view.picture.data["with"] == (5, 1, 1)
    assert view.picture.data["milliseconds"] == {"without": [3.0, 4.0, 5.0], "with": [3.0, 1.0, 1.0]}
    assert view.readouts[-1].value == "4.0 → 1.0" and view.readouts[-1].unit == "ms"
    measured = [q for q in view.papers if q.kind == "measured"]
    assert len(measured) == 3 and all(q.conditions["device"] == "cpu" for q in measured)
    assert "18" in view.sentence and "7" in view.sentence and "2.4×10⁻⁶" in view.sentence  # 5 + 6 + 7 against 5 + 1 + 1
    assert [row["seconds_with_cache"] for row in view.rows] == [0.003, 0.001, 0.001]


def test_different_tokens_are_admitted():
    """Catches a sentence that claims equality whatever came out."""
    answer = live_answer() | {"equal": False}
    for lang, claim in (("zh", "一个不差"), ("en", "write the same tokens")):
        assert claim in draw(Params(), lang, live_answer()).sentence
        assert claim not in draw(Params(), lang, answer).sentence.replace("do not write the same tokens", "")


def test_the_live_call_is_one_that_the_service_accepts():
    """Catches a parameter renamed on one side only, and bounds that differ."""
    for params in (Params(), Params(text="x" * 200, tokens=64)):
        arguments = WIDGET.live.arguments(params)
        assert functions.check(WIDGET.live.function, arguments) == arguments
    assert functions.function(WIDGET.live.function).where == "service"


def test_the_former_account_stays_as_a_ghost():
    """Catches a move without a trace, and a ghost where only the sentence changed."""
    before = WIDGET.run(Params(new=100))
    view = draw(Params(), before=before)
    assert view.picture.data["ghost"] == {"prompt": 4, "new": 100}
    assert "5,350" in view.readouts[0].change  # Σ (4 + i), i < 100
    assert draw(Params(tokens=5), before=WIDGET.run(Params())).picture.data["ghost"] is None


def test_the_guess_knows_the_right_choice():
    """Catches a right answer that belongs to other sliders than those shown."""
    guess = WIDGET.guesses["times"]
    assert guess.right(WIDGET.run(Params())) == "500"
    assert guess.right(WIDGET.run(Params(new=40))) == "20"  # 4·40 + 40·39/2 = 940, over 43: 21.9
    assert guess.truth(WIDGET.run(Params())).value == pytest.approx(503_500 / 1_003)


def test_without_recordings_it_says_what_to_do(monkeypatch, tmp_path):
    """Catches an empty picture or a traceback when the stored file is not there."""
    monkeypatch.setattr(precompute, "STORE", tmp_path / "precomputed.json")
    with pytest.raises(BrokenData, match="kv-stepper.zh.tokens.*precompute"):
        WIDGET.run(Params())


@pytest.mark.parametrize("value,written", [(0, "0"), (2.4e-6, "2.4×10⁻⁶"), (1e-5, "1.0×10⁻⁵"), (9.96e-6, "1.0×10⁻⁵"), (0.5, "0.500")])
def test_small_numbers(value, written):
    """Catches 10.0×10⁻⁶, and zeros that hide the size of a rounding error."""
    assert tiny(value) == written


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser tests draw the same picture")
def test_the_picture_is_a_function_of_the_step():
    """Catches a drawing that depends on what was drawn before, overlaps on a phone, and sums that are not the data's."""
    data = json.dumps(draw(Params()).picture.data)
    script = """
    const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1])), data = JSON.parse(process.argv[2]);
    const at = (t, width) => { const svg = {}; view.draw(svg, data, t, {...tools, width}); return svg.innerHTML; };
    const tools = { lang: 'zh', still: false, moved: false, colour: (n) => n, words: (k, v) => k + JSON.stringify(v ?? ''), measure: (s, px) => s.length * px * .8, number: (n) => n.toLocaleString('en-US'), esc: (s) => s };
    const first = at(3, 1152); at(9, 390);
    if (at(3, 1152) !== first) throw new Error('not pure');
    if (/NaN|undefined|Infinity/.test(first + at(0, 390) + at(11, 720))) throw new Error('a coordinate is no number');
    if (!first.includes('>22<') || !first.includes('>7<')) throw new Error('4 + 5 + 6 + 7 = 22 and 4 + 1 + 1 + 1 = 7 are not there');
    if (view.height(data, 390, tools) <= view.height(data, 1152, tools)) throw new Error('a phone stacks the two');
    """
    run = subprocess.run(["node", "--input-type=module", "-e", script, VIEW_JS.read_text(encoding="utf-8"), data], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
