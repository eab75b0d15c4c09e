"""What the picture of a real row is told, against the row and matrix themselves."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from components import Scene, real_row
from components.controls import Range
from components.text import LANGUAGES
from compute.errors import BadInput, UnknownName
from compute.functions import check
from compute.quantize import matrices, sent
from compute.quantize.grid import Grid, Uniform, quantize

WIDGET = real_row.WIDGET


def result(**params):
    return WIDGET.run(WIDGET.Params(**params))


def view(found, lang="en", before=None):
    return WIDGET.draw(found, Scene(WIDGET.words(lang), lang, "light", before))


@pytest.mark.parametrize("params", [dict(), dict(block=32), dict(bits=3, block=64, symmetric=False), dict(bits=8, block="tensor", matrix="0.qkv", row=3)])
def test_the_picture_is_the_quantized_row(params):
    """Every restored weight lies on a grid point of its block. Catches: blocks that begin elsewhere, a zero point forgotten."""
    found = result(**params)
    data, p = view(found).picture.data, found.params
    weights = np.concatenate(list(matrices.source(p.model, p.matrix)))
    made = quantize(weights, Grid(Uniform(p.bits, p.symmetric), p.block))
    assert data["weights"] == pytest.approx(weights[p.row], rel=1e-3) and data["restored"] == pytest.approx(made.restored()[p.row], rel=1e-3)
    assert [b[0] for b in data["blocks"]][0] == 0 and data["blocks"][-1][1] == len(data["weights"])
    for start, end, low, step in data["blocks"]:
        places = (np.array(data["restored"][start:end]) - low) / step
        assert np.abs(places - np.rint(places)).max() < 0.05 and -0.5 < places.min() and places.max() < data["levels"] - 0.5
    assert sum(data["codes"]["shares"]) == pytest.approx(1, abs=1e-3) and len(data["codes"]["shares"]) == data["levels"]
    assert np.array(data["errors"]).shape == found.whole.errors.shape and max(data["worst"]) < len(weights)
    assert data["place"] == pytest.approx((p.row + 0.5) / len(weights)) and view(found).picture.picks == ("row",)


def test_what_it_opens_at_teaches_something():
    """Catches: read-outs that are not the sentence's, a rescue that does not show."""
    alone, grouped = result(), result(block=32)
    shown = view(grouped, before=alone)
    assert "480 of its 768" in view(alone).sentence and "150 of its 768" in shown.sentence
    assert any("43.7%" in r.change for r in shown.readouts) and any(r.value == "14.1" for r in shown.readouts)
    assert shown.picture.data["old"] == pytest.approx(alone.row.restored - alone.row.weights, rel=1e-2, abs=1e-6) and shown.picture.data["codes"]["old"] is not None


def test_ghosts_are_of_the_same_weights():
    """Catches: errors of another row, codes of another width, behind what is shown."""
    now = result()
    for other, row, codes in ((result(row=3), False, False), (result(bits=3), True, False), (result(block=64), True, True), (result(matrix="2.down"), False, False), (now, False, False)):
        data = view(now, before=other).picture.data
        assert (data["old"] is not None) == row and (data["codes"]["old"] is not None) == codes


def test_a_row_that_the_matrix_lacks_is_its_last():
    """Catches: a matrix that is refused because another had more rows, a slider that reaches beyond."""
    assert result(matrix="0.gate_up", row=1500).number == 1500
    assert result(matrix="0.out", row=1500).number == 255
    for params in ({}, {"matrix": "0.qkv"}, {"model": "mini-64", "matrix": "1.out"}, {"model": "normal-4096"}):
        p = WIDGET.Params(**params)
        (slider,) = [c for c in WIDGET.controls if isinstance(c, Range) and c.field == "row" and c.when(p)]
        assert slider.high == matrices.source(p.model, p.matrix).rows - 1


def test_four_thousand_by_four_thousand_is_light_on_the_way_to_the_browser():
    """Catches: 16.7 million weights, or a whole row of them, sent to be drawn."""
    found = result(model="normal-4096", bits=3)
    shown = view(found)
    assert len(json.dumps(shown.picture.data)) < 60_000 and len(shown.rows) <= real_row.SHOWN + 8
    assert "1,024" in shown.simplified and "no model" in shown.simplified and found.whole.weights == 4096**2
    assert result(model="normal-4096", bits=3, row=9).whole is found.whole, "another row is no reason to add up the matrix again"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_groups_wider_than_a_row_are_refused(lang):
    """Catches: a group of 128 over two rows of 64."""
    with pytest.raises(BadInput) as refusal:
        result(model="mini-64", matrix="0.out", block=128)
    assert "64" in refusal.value.message(lang)
    for wrong in ({"bits": 1}, {"row": -1}, {"matrix": "9.down"}, {"model": "gpt-4"}, {"block": "row"}):
        with pytest.raises(ValueError):
            WIDGET.Params(**wrong)


def test_weights_that_come_from_the_service():
    """An answer of the served function, here of our own model so that nothing must be fetched. Catches: rows and columns swapped
    on the way, the stand-in shown under the other model's name, an answer forgotten when a slider moves."""
    waiting = result(model="smollm2-135m")
    assert waiting.mark == "computed" and view(waiting).picture.data["waiting"] and "mini-256 3.down" in view(waiting).sentence
    answer = sent.matrix("mini-128", "3.down")
    live = WIDGET.run(WIDGET.Params(model="smollm2-135m", row=5), asdict(answer))
    weights = np.concatenate(list(matrices.source("mini-128", "3.down")))
    assert live.mark == "live" and not view(live).picture.data["waiting"] and "smollm2-135m 3.down" in view(live).sentence and "Q4_1" in view(live).simplified
    assert np.array_equal(live.row.weights, weights[5].astype(np.float16)) and (live.whole.rows, live.whole.width) == weights.shape
    about, arguments = WIDGET.live.about, WIDGET.live.arguments
    assert about(live.params) == about(WIDGET.Params(model="smollm2-135m", bits=2, row=9)) != about(WIDGET.Params(model="smollm2-135m", matrix="0.out"))
    assert check("quantize.matrix", arguments(live.params)) == arguments(live.params)


def test_only_weights_that_are_there_are_sent():
    """Catches: a quantized model's matrix that has no weights, a name of a layer that the model lacks."""
    with pytest.raises(BadInput):
        sent.matrix("mini-64:int8-channel", "0.out")
    with pytest.raises(UnknownName):
        sent.matrix("mini-64", "4.out")
