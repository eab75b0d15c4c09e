"""The SmoothQuant slider: the factors against their formula, the curve against what is stored, the picture, the words."""

import json
import shutil
import subprocess

import numpy as np
import pytest

from components import Scene
from components.smoothquant import WIDGET, Params
from compute import precompute
from compute.measures.layers import ALPHAS, PLANTED, SMOOTHED
from compute.quantize import outliers

from .test_replay import NODE


def draw(params=Params(), lang="zh", before=None):
    return WIDGET.draw(WIDGET.run(params), Scene(WIDGET.words(lang), lang, "light", before))


@pytest.mark.parametrize("alpha", (0.0, 0.5, 0.75, 1.0))
def test_what_alpha_moves(alpha):
    """Catches α and 1 − α swapped, or a factor on one side only. max|X| · max|W| of a channel stays, whatever s; after smoothing the
    activation is (max|X| · max|W|)^(1−α) and the weight its power α, by eq. 4 put into X/s and W·s."""
    result = WIDGET.run(Params(alpha=alpha))
    x, w = np.array(result.activations.before), np.array(result.weights.before)
    assert np.allclose(result.activations.after, (x * w) ** (1 - alpha), rtol=1e-5)
    assert np.allclose(result.weights.after, (x * w) ** alpha, rtol=1e-5)


def test_the_ends_and_the_middle():
    """Catches the picture upside down."""
    one, zero, half = (WIDGET.run(Params(alpha=a)) for a in (1, 0, 0.5))
    assert one.activations.spreads[1] == pytest.approx(1) and zero.weights.spreads[1] == pytest.approx(1)
    assert np.allclose(half.activations.after, half.weights.after)
    assert one.weights.spreads[1] > half.weights.spreads[1] > zero.weights.spreads[1]


@pytest.mark.parametrize("matrix", SMOOTHED)
def test_errors_are_the_stored_ones(matrix):
    """Catches: the error of a neighbouring α, and planted outliers where no norm stands before the matrix."""
    for planted in (True, False):
        result = WIDGET.run(Params(matrix=matrix, alpha=0.3, planted=planted))
        kept = precompute.recorded(f"quantize.layers.{matrix}.outlier")["planted" if planted and matrix in PLANTED else "real"]
        assert result.error == kept["smoothed"][6] and result.plain == kept["plain"]
        assert len(result.planted) == (outliers.COUNT if planted and matrix in PLANTED else 0)
        first, last = result.flat
        assert first <= result.best <= last and all(result.errors[ALPHAS.index(a)] <= 1.05 * min(result.errors) for a in (first, last))


def test_an_alpha_between_two_is_the_nearest_measured():
    """Catches an error shown for an α at which none was measured."""
    result = WIDGET.run(Params(alpha=0.37))
    assert result.alpha == 0.35 and "0.35" in draw(Params(alpha=0.37)).sentence and "0.37" not in draw(Params(alpha=0.37)).sentence


def test_levels_are_shares_of_the_largest_channel():
    """Catches bars of a scale of their own. The tallest has all 127; the median's share is the read-out turned over."""
    stage, result = draw(Params(planted=False)).picture.data, WIDGET.run(Params(planted=False))
    for side, named in zip(stage["sides"], (result.activations, result.weights)):
        assert max(side["before"]) == max(side["after"]) == 127
        assert np.median(side["after"]) == pytest.approx(127 / named.spreads[1], abs=0.1)
    assert stage["sides"][0]["before"] == sorted(stage["sides"][0]["before"], reverse=True)
    planted = draw().picture.data
    assert sorted(planted["channels"][i] for i in planted["planted"]) == outliers.planted_channels(256)


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_planted_is_said_and_harm_is_said(lang):
    """Catches planted outliers shown as the model's own, and smoothing praised where it does harm."""
    words = WIDGET.words(lang)
    assert f"{outliers.FACTOR}" in draw(lang=lang).sentence and words("simplified_planted", factor=64, tokens=0)[:12] == draw(lang=lang).simplified[:12]
    harmed = Params(matrix="3.down", alpha=0.0, planted=False)
    result = WIDGET.run(harmed)
    assert result.error > result.plain and words("sentence_worse").split("{plain}")[0][-8:] in draw(harmed, lang).sentence
    assert "LLM.int8()" in draw(harmed, lang).simplified and "20" in draw(harmed, lang).simplified


def test_the_guesses():
    """Catches an answer that does not follow from the curve."""
    result = WIDGET.run(Params())
    assert WIDGET.guesses["one"].right(result) == ("yes" if int(np.argmin(result.errors)) == 20 else "no") == "no"
    assert WIDGET.guesses["repair"].right(result) == "all" and result.error < 0.1 * result.plain
    assert WIDGET.guesses["repair"].right(WIDGET.run(Params(planted=False))) == "little"


def test_rows_of_the_download():
    """Catches a curve without its point before smoothing, and channels in the order of the picture."""
    rows = draw(Params(matrix="3.down")).rows
    assert [row["channel"] for row in rows[:768]] == list(range(768)) and [row["alpha"] for row in rows[768:]] == ["none", *ALPHAS]
    assert rows[5]["activation_max"] / rows[5]["activation_max_smoothed"] == pytest.approx(rows[5]["weight_max_smoothed"] / rows[5]["weight_max"], rel=1e-4)


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize("params", [Params(), Params(planted=False, matrix="3.down", alpha=1), Params(order="channel", alpha=0)])
def test_the_picture_is_a_function_of_its_data(params):
    """Catches a coordinate that is no number at any width."""
    stage = draw(params, before=WIDGET.run(Params(matrix=params.matrix, alpha=0.25))).picture
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps(stage.data), "1"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
