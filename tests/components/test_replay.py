"""The replay's recordings against the rule, its steps, and what it does with a live answer."""

import json
import shutil
import subprocess

import pytest

from components import Scene
from components.replay import WIDGET, Params, opening, recorded, steps
from compute import functions, precompute, speculative
from compute.errors import BrokenData
from compute.measures.distributions import PROMPTS
from compute.measures.drafting import DRAFTS, REPLAY_KS, REPLAY_TEMPERATURES, replay_name

STORED = [(p, d) for p in PROMPTS for d in DRAFTS if f"drafting.replay.{p}.{d}" in precompute.stored()]


def draw(params=Params(), lang="zh", answer=None, before=None):
    return WIDGET.draw(WIDGET.run(params, answer), Scene(WIDGET.words(lang), lang, "light", before))


def test_the_recordings_obey_the_rule():
    """Catches: a recording of another rule. Every check says accepted exactly where u · q < p; after the first rejection
    nothing is checked; the round writes the accepted guesses and one token more."""
    assert len(STORED) >= 12
    rounds = 0
    for prompt, draft in STORED:
        runs = recorded(prompt, draft)
        assert set(runs) == {replay_name(k, t) for k in REPLAY_KS for t in REPLAY_TEMPERATURES}
        for run in runs.values():
            for told in run["rounds"]:
                rounds += 1
                checked = [g for g in told["guesses"] if g["accepted"] is not None]
                assert all(g["accepted"] == (g["u"] * g["q"] < g["p"]) or abs(g["u"] * g["q"] - g["p"]) < 1e-5 for g in checked)
                assert all(g["accepted"] for g in checked[:-1]) and told["bonus"] == all(g["accepted"] for g in checked)
                assert told["bonus"] == (len(checked) == len(told["guesses"]) and all(g["accepted"] for g in checked))
                assert told["written"] <= sum(g["accepted"] for g in checked) + 1 and len(told["guesses"]) <= run["k"]
            tally = run["tally"]
            assert tally["tokens"] == tally["accepted"] + tally["rounds"] and tally["rounds"] == len(run["rounds"])
    assert rounds > 500


def test_expected_is_the_formula_of_this_runs_alpha():
    """Catches: E of another k or of the share instead of α."""
    result = WIDGET.run(Params())
    tally = result.run["tally"]
    alpha = tally["overlap"] / tally["checked"]
    assert result.expected == pytest.approx(sum(alpha**i for i in range(5)))  # 1 + α + … + α⁴
    assert result.expected == pytest.approx(speculative.expected_tokens(alpha, 4))


def test_rounds_without_a_guess_expect_one_token():
    """Catches: the formula for k guesses applied where look-up had none."""
    result = WIDGET.run(Params(draft="lookup", prompt="english"))
    guessed = sum(bool(told["guesses"]) for told in result.run["rounds"]) / len(result.run["rounds"])
    assert guessed < 1
    assert result.expected == pytest.approx(guessed * speculative.expected_tokens(result.acceptance, 4) + (1 - guessed))


def test_steps_show_every_check_once():
    """Catches: a check that is skipped, or shown twice."""
    run = WIDGET.run(Params()).run
    found = steps(run)
    checks = sum(g["accepted"] is not None for told in run["rounds"] for g in told["guesses"])
    assert len(found) == checks + 2 * len(run["rounds"]) and len(set(found)) == len(found)
    i, event = found[opening(run, found)]
    assert not run["rounds"][i]["bonus"] and event == sum(g["accepted"] is not None for g in run["rounds"][i]["guesses"]) + 1


def test_settings_that_were_not_run_are_not_passed_off_as_run():
    """Catches: a recording of k = 4 shown as k = 5 without a word."""
    assert not WIDGET.run(Params()).waiting
    for params in (Params(k=5), Params(temperature=0.3), Params(seed=1), Params(text="一只小猫")):
        assert WIDGET.run(params).waiting, params
    assert not WIDGET.run(Params(text=PROMPTS["poem"])).waiting and WIDGET.run(Params(text=PROMPTS["poem"])).run["text"] == PROMPTS["poem"]
    assert not WIDGET.run(Params(prompt="manual", draft="mini-128", k=8, temperature=0.7)).waiting


def live_answer():
    run = json.loads(json.dumps(recorded("giving", "mini-64")[replay_name(2, 1.0)]))
    for told in run["rounds"]:
        told |= {"draft_seconds": 0.002, "target_seconds": 0.003}
    return run


def test_a_live_answer_brings_its_clock():
    """Catches: a live run labelled as a replay, and times without their run."""
    result = WIDGET.run(Params(k=2), live_answer())
    assert result.mark == "live" and not result.waiting
    assert draw(Params(k=2), answer=live_answer()).readouts[-1].value == "2.00 + 3.00"
    assert len(draw().readouts) == 3, "a recording has no clock"


def test_the_live_call_is_one_that_the_service_accepts():
    """Catches: a parameter renamed on one side only."""
    for params in (Params(), Params(text="x" * 200, k=8, temperature=1.6, seed=99, draft="mtp")):
        arguments = WIDGET.live.arguments(params)
        assert functions.check(WIDGET.live.function, arguments).items() >= arguments.items()


def test_the_data_hold_every_number_of_the_picture():
    """Catches: a download without u or p/q, or rows of a round that are not there."""
    rows = draw().rows
    run = WIDGET.run(Params()).run
    assert len(rows) == sum(len(told["guesses"]) + 1 for told in run["rounds"])
    first = next(row for row in rows if row["accepted"] is False)
    assert first["u"] * first["q"] >= first["p"] and first["p_over_q"] == pytest.approx(first["p"] / first["q"])
    assert {row["from"] for row in rows} <= {"draft", "residual", "bonus"}


def test_without_recordings_it_says_what_to_do(monkeypatch, tmp_path):
    """Catches: an empty picture when the stored file is not there."""
    monkeypatch.setattr(precompute, "STORE", tmp_path / "precomputed.json")
    with pytest.raises(BrokenData, match="drafting.replay.giving.mini-64.*precompute"):
        WIDGET.run(Params())


NODE = """
const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1])), data = JSON.parse(process.argv[2]), n = +process.argv[3];
const at = (t, width) => { const svg = {}; view.draw(svg, data, t, {...tools, width}); return svg.innerHTML; };
const tools = { lang: 'zh', still: false, moved: false, colour: (n) => n, words: (k, v) => k + JSON.stringify(v ?? ''), measure: (s, px) => s.length * px * .8, number: (n) => n.toLocaleString('en-US'), esc: (s) => s };
const first = at(3 % n, 1152); at(n - 1, 390);
if (at(3 % n, 1152) !== first) throw new Error('not pure');
for (let t = 0; t < n; t++) for (const width of [390, 720, 1152]) {
  if (/NaN|undefined|Infinity/.test(at(t, width) + view.says(data, t, tools))) throw new Error(`step ${t}: a coordinate is no number`);
}
if (view.height(data, 390, tools) <= view.height(data, 1152, tools) - 400) throw new Error('no room on a phone');
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize("params", [Params(), Params(draft="lookup", temperature=0.0, k=8), Params(prompt="english", k=2)])
def test_the_picture_is_a_function_of_the_step(params):
    """Catches: a drawing that depends on what was drawn before, and a round without guesses that breaks it."""
    stage = draw(params).picture
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps(stage.data), str(stage.steps)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
