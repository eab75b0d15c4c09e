"""The GPTQ stepper: its steps against the whole run and against norms, its picture, its words."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from components import Scene
from components.gptq_stepper import WIDGET, Params
from compute import precompute
from compute.measures.layers import BITS, COLUMNS, MATRICES, ROWS
from compute.quantize.gptq import gptq
from compute.quantize.grid import Grid, Uniform

from .test_replay import NODE


def draw(params=Params(), lang="zh", before=None):
    return WIDGET.draw(WIDGET.run(params), Scene(WIDGET.words(lang), lang, "light", before))


def recorded(params):
    return precompute.recorded(f"quantize.layers.{params.matrix}.gptq_ratio")


def part(params):
    kept = recorded(params)["linked"]
    return np.array(kept["weights"], np.float32), np.array(kept["hessian"])


@pytest.mark.parametrize("act_order", (False, True))
def test_the_end_is_what_gptq_makes(act_order):
    """Catches columns shown in another order than their weights. Referee: the run of the whole part at once."""
    params = Params(act_order=act_order)
    weights, hessian = part(params)
    made = gptq(weights, hessian, Grid(Uniform(3), "channel"), params.damping, act_order)
    result, columns = WIDGET.run(params), recorded(params)["linked"]["columns"]
    at = [columns.index(c) for c in result.columns]
    assert (np.rint(result.stands[-1]) == made.codes[:, at]).all()
    assert (at == list(range(COLUMNS))) != act_order
    if act_order:
        assert (np.diff(np.diag(hessian)[at]) <= 0).all()


def test_errors_are_norms_of_outputs():
    """Catches errors of another half of a turn. Referee: inputs with this Hessian, by its Cholesky factor, and their outputs."""
    result = WIDGET.run(Params())
    weights, hessian = part(Params())
    x = np.linalg.cholesky(hessian).T  # xᵀx = H
    scale = np.abs(weights).max(1, keepdims=True) / 3
    true = weights @ x.T
    for k in (1, 5, COLUMNS - 1):
        stand = np.array(result.stands[k]) * scale
        assert result.errors[2 * k] == pytest.approx(np.linalg.norm((stand - weights) @ x.T) / np.linalg.norm(true), rel=1e-2)
    rounded = np.rint(weights / scale) * scale
    assert result.plain_errors[-1] == pytest.approx(np.linalg.norm((rounded - weights) @ x.T) / np.linalg.norm(true), rel=1e-2)
    assert len(result.errors) == len(result.plain_errors) == 2 * COLUMNS


@pytest.mark.parametrize("matrix", MATRICES)
def test_making_up_for_an_error_never_adds_to_it(matrix):
    """Catches a compensation of the wrong sign. Without damping it is the least squares answer, so the error falls in each
    second half of a turn; and rounding that touches nothing else leaves the free columns as they came."""
    result = WIDGET.run(Params(matrix=matrix, damping=0.0))
    for k in range(1, COLUMNS):
        assert result.errors[2 * k] <= result.errors[2 * k - 1] + 1e-9
        assert result.plain_errors[2 * k] == result.plain_errors[2 * k - 1]
    assert result.weight_error >= result.plain_weight_error


@pytest.mark.parametrize("bits", BITS)
def test_unlinked_inputs_make_gptq_plain_rounding(bits):
    """Catches errors that are spread where there is nothing to spread them by."""
    result = WIDGET.run(Params(inputs="diagonal", bits=bits))
    assert (np.rint(result.stands[-1]) == np.rint(result.plain)).all() and result.elsewhere == 0
    assert result.errors == pytest.approx(result.plain_errors, rel=1e-9) and result.strength == 0
    assert (np.array(result.stands[3])[:, 3:] == np.array(result.came)[:, 3:]).all()


def test_linked_inputs_gain_more_than_neighbours():
    """Catches the two parts swapped. How much is made up for grows with how strongly inputs go together."""
    ratios = {inputs: np.mean([WIDGET.run(Params(matrix=m, inputs=inputs)).ratio for m in MATRICES]) for inputs in ("linked", "neighbours")}
    assert ratios["linked"] < 0.85 < 0.95 < ratios["neighbours"] <= 1.01


def test_it_opens_where_an_error_is_being_spread():
    """Catches an opening at a turn that moves nothing."""
    for matrix in MATRICES:
        result, stage = WIDGET.run(Params(matrix=matrix)), draw(Params(matrix=matrix)).picture
        k, row = stage.start // 2, result.params.row - 1
        assert stage.start % 2 == 0 and 1 <= k < COLUMNS and stage.steps == 2 * COLUMNS
        moved = np.abs(np.array(result.stands[k])[row] - np.array(result.stands[k - 1])[row])
        assert moved[k:].max() > 0.02


def test_the_guess_and_the_address():
    """Catches: a guess whose answer is the hope instead of the result; a number of bits that an address cannot carry."""
    guess, result = WIDGET.guesses["weights"], WIDGET.run(Params())
    assert guess.right(result) == "farther" and guess.truth(result).value > 1
    assert Params(bits="4", row="8").bits == 4
    assert draw().picture.picks == ("row",)


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("params, word", [(Params(), "sentence"), (Params(inputs="neighbours", matrix="3.down", bits=2), "sentence_weak"), (Params(inputs="diagonal"), "sentence_diagonal")])
def test_the_sentence_says_what_is_seen(params, word, lang):
    """Catches a gain that is told where there is none."""
    result, words = WIDGET.run(params), WIDGET.words(lang)
    said = draw(params, lang).sentence
    assert said.split("{")[0][:4] == f"{params.matrix}"[:4] and words(word).split("}")[-1] in said
    assert f"{100 * result.errors[-1]:.3g}" in said


def test_a_part_where_gptq_does_not_win_is_told_so():
    """Catches praise by default: column by column nothing is guaranteed, and one of ours is a loss."""
    worse = [Params(matrix=m, bits=b, inputs=i) for m in MATRICES for b in BITS for i in ("linked", "neighbours")
             if (r := WIDGET.run(Params(matrix=m, bits=b, inputs=i))).ratio > 1 and r.elsewhere]  # fmt: skip
    assert 1 <= len(worse) <= 12
    words = WIDGET.words("en")
    assert all(words("sentence_worse").split("}")[-1] in draw(p, "en").sentence for p in worse)


def test_rows_of_the_download():
    """Catches a level of another row, or weights in another order than the channels beside them."""
    view, kept = draw(), recorded(Params())
    assert len(view.rows) == ROWS * COLUMNS
    weights, channels = np.array(kept["linked"]["weights"]), kept["linked"]["columns"]
    for told in view.rows[::17]:
        i, j = kept["rows"].index(told["row"]), channels.index(told["input_channel"])
        assert told["weight_steps"] == pytest.approx(weights[i, j] / (np.abs(weights[i]).max() / 3), rel=1e-2)
        assert told["nearest_level"] == round(told["weight_steps"])


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize("params", [Params(), Params(matrix="3.down", bits=2, act_order=True, row=8), Params(inputs="diagonal", bits=4)])
def test_the_picture_is_a_function_of_the_step(params):
    """Catches: a drawing that depends on what was drawn before, and a turn without a move that breaks it."""
    stage = draw(params).picture
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps(stage.data), str(stage.steps)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
