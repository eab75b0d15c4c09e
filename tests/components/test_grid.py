"""The few weights of `grid`: the textbook's numbers, an outlier's damage and the rescue, and what the picture is told."""

import numpy as np
import pytest

from components import Scene, grid
from components.text import LANGUAGES
from compute import roofline
from compute.errors import BadInput
from compute.quantize import examples
from compute.quantize.grid import Grid, Uniform

WIDGET = grid.WIDGET


def result(**params):
    return WIDGET.run(WIDGET.Params(**params))


def view(found, lang="en", before=None):
    return WIDGET.draw(found, Scene(WIDGET.words(lang), lang, "light", before))


def test_the_worked_example():
    """[0.12, −0.53, 0.31, 0.90] at 4 bits, by hand. Catches: another rounding, a scale of another range, a wrong sign."""
    (group,) = result(preset="worked").squeezed.groups
    assert group.codes == (1, -4, 2, 7)
    assert round(group.scale, 3) == 0.129 and group.scale == float(np.float16(0.90 / 7))
    assert [f"{v:.3f}" for v in group.restored] == ["0.129", "-0.514", "0.257", "0.900"]
    shown = view(result(preset="worked"))
    for text in ("0.12, −0.53, 0.31, 0.90", "s = 0.129", "[1, −4, 2, 7]", "0.129, −0.514, 0.257, 0.900"):
        assert text in shown.sentence
    by_hand = np.mean([abs(v - w) / abs(w) for w, v in zip((0.12, -0.53, 0.31, 0.9), (0.12854, -0.51416, 0.25708, 0.89978))])
    assert result(preset="worked").squeezed.relative_error == pytest.approx(by_hand, rel=1e-4)


def test_the_worked_table_and_derivation_hold_its_digits():
    """Catches: a table whose rows are of another example, a derivation whose arithmetic does not come out."""
    shown = view(result(preset="worked"))
    table = shown.beside[0].body
    for text in ("0.12857", "0.12854", "2.412", "−4.123", "0.053"):
        assert text in table
    assert "\\frac{0.9}{7} = 0.12857" in shown.derivation and "0.12" in shown.derivation
    four = view(result(preset="worked", numbers="fp4"))
    assert "[1, −4, 2, 6]" in four.sentence and [d[2] for d in four.picture.data["strips"][0]["dots"]] == ["1", "−4", "2", "6"], "values, not places"
    zero = view(result(preset="worked", symmetric=False))
    assert "z = 6" in zero.beside[0].body and "zero point 6" in zero.sentence


def test_storage_is_counted_with_scales():
    """Arithmetic written out. Catches: free scales or zero points, a size that forgets them."""
    for params, bits in ((dict(), (24 * 4 + 16) / 24), (dict(block=8), (24 * 4 + 3 * 16) / 24), (dict(block=4, bits=2, symmetric=False), (24 * 2 + 6 * (16 + 2)) / 24),
                         (dict(preset="worked"), (4 * 4 + 16) / 4), (dict(numbers="nf4", block=12), (24 * 4 + 2 * 16) / 24)):  # fmt: skip
        found = result(**params)
        assert found.squeezed.bits_per_weight == pytest.approx(bits)
        assert found.bytes == pytest.approx(70e9 * bits / 8) and found.tokens_per_second == pytest.approx(3.35e12 / found.bytes)
    assert result().full_tokens_per_second == pytest.approx(roofline.decode("70b-dense", "h100-sxm", context=0).tokens_per_second)


def test_one_outlier_squeezes_the_others_and_groups_rescue():
    """A weight becomes 0 when it is under half a step; counted here without the quantizer. Catches: an outlier that is not in
    the range, groups that share its scale, the outlier's own weight counted."""
    weights = np.array(examples.weights("normal", 0, 6.0))
    others = np.delete(weights, examples.OUTLIER_AT)
    together = result(outlier=6.0)
    assert together.squeezed.zeros == (np.abs(others) < 6 / 7 / 2).sum() == 22
    assert result(outlier=0).squeezed.zeros == 5
    apart = result(outlier=6.0, block=8)
    rest = [weights[:8], weights[8:16], np.delete(weights[16:], examples.OUTLIER_AT - 16)]
    scales = [np.abs(rest[0]).max() / 7, np.abs(rest[1]).max() / 7, 6 / 7]
    assert apart.squeezed.zeros == sum((np.abs(part) < scale / 2).sum() for part, scale in zip(rest, scales)) == 8
    assert apart.squeezed.relative_error < together.squeezed.relative_error / 2
    assert "22 of its 23" in view(together).sentence and "7 of its 7" in view(apart).sentence and "1 of 16" in view(apart).sentence


def test_the_question_is_about_one_setting():
    """Catches: a truth that changes with what the lesson happens to show."""
    guess = WIDGET.guesses["outlier"]
    assert {guess.truth(result(outlier=o, block=b, bits=n)).value for o in (0, 6, 12) for b in ("tensor", 8) for n in (2, 4)} == {22}


@pytest.mark.parametrize("params", [dict(), dict(symmetric=False, block=6), dict(numbers="fp4", block=8), dict(numbers="nf4"), dict(bits=8, outlier=0)])
def test_the_picture_says_what_was_computed(params):
    """Every landed dot lies on a drawn point, the nearest one. Catches: points of another group, a dot between two points."""
    found = result(**params)
    data = view(found).picture.data
    weights = examples.weights("normal", 0, found.params.outlier)
    assert [d[0] for s in data["strips"] for d in s["dots"]] == list(weights)
    for strip, group in zip(data["strips"], found.squeezed.groups):
        points = np.array(group.points)
        first, step, count, _ = strip["even"] or [0, 0, 0, 0]
        drawn = first + step * np.arange(count) if strip["even"] else np.array([point for point, _ in strip["points"]])
        assert drawn == pytest.approx(points, abs=1e-4) and (np.diff(drawn) > 0).all()
        for w, v, *_ in strip["dots"]:
            assert np.abs(points - v).min() < 1e-5
            if params.get("symmetric", True):  # a zero point is rounded, so an end of the range may be cut
                assert abs(v - w) <= np.abs(points - w).min() + 1e-5


@pytest.mark.parametrize("block", ["tensor", 8, 4])
def test_dragging_shows_what_the_server_will_say(block):
    """Every size that the hand can stop at, against a run with that outlier. Catches: the strip of another group, sizes off by one,
    a dot that is not the outlier's."""
    data = view(result(block=block)).picture.data
    assert data["outliers"][data["at"]] == 6.0 and len(data["hits"]) == len(data["outliers"])
    for t, outlier in enumerate(data["outliers"]):
        there = view(result(block=block, outlier=outlier)).picture.data
        assert there["at"] == t and there["strips"][there["hit"]] == data["hits"][t]
        assert [s for i, s in enumerate(there["strips"]) if i != data["hit"]] == [s for i, s in enumerate(data["strips"]) if i != data["hit"]]
        assert not outlier or data["hits"][t]["dots"][data["place"]][0] == outlier
    assert view(result(preset="worked")).picture.picks == () and view(result()).picture.picks == ("outlier",)


def test_the_ghost_is_where_the_same_weights_were():
    """Catches: ghosts of other weights, of dots that did not move, and of the same state."""
    now, before = result(block=8), result()

    def olds(data):
        return [d[3] for s in data["strips"] for d in s["dots"]]

    def landed(found):
        return [v for group in found.squeezed.groups for v in group.restored]

    data = view(now, before=before).picture.data
    assert data["ghost"] and olds(data) == [r if r != v else None for r, v in zip(map(grid._short, landed(before)), map(grid._short, landed(now)))]
    for other in (result(seed=5), result(preset="worked"), now):
        data = view(now, before=other).picture.data
        assert not data["ghost"] and set(olds(data)) == {None}
    lone = olds(view(result(outlier=4), before=before).picture.data)
    assert lone[examples.OUTLIER_AT] is None and any(old is not None for old in lone), "the outlier is another weight now"


def test_seeds_and_zeros():
    """Catches: draws that depend on the outlier, a division by a weight that is 0."""
    for seed in range(20):
        calm, wild = (examples.weights("normal", seed, outlier) for outlier in (0, 6))
        assert [i for i in range(24) if calm[i] != wild[i]] == [examples.OUTLIER_AT]
    with_zero = examples.squeeze((0.0, 0.5, 1.0), Grid(Uniform(4), "tensor"))
    assert with_zero.zeros == 0 and with_zero.relative_error == pytest.approx(np.mean([abs(v - w) / w for w, v in zip((0.5, 1.0), with_zero.groups[0].restored[1:])]))
    nothing = examples.squeeze((0.0, 0.0), Grid(Uniform(4), "tensor"))
    assert nothing.relative_error == 0 and nothing.zeros == 0 and nothing.groups[0].restored == (0.0, 0.0)


def test_groups_that_do_not_fill_the_row_are_refused():
    """Catches: a link with groups of 7 that drops three weights."""
    with pytest.raises(BadInput):
        result(block=7)
    for wrong in ({"bits": 1}, {"bits": 9}, {"outlier": -1}, {"outlier": 6.3}, {"block": 0}, {"numbers": "int4"}):
        with pytest.raises(ValueError):
            WIDGET.Params(**wrong)
    assert WIDGET.Params(block="8").block == 8, "an address holds text"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_rows_are_the_picture(lang):
    """Catches: a download of other numbers."""
    found = result(block=6, symmetric=False)
    rows = view(found, lang).rows
    assert len(rows) == 24 and [row["group"] for row in rows] == [n for n in range(1, 5) for _ in range(6)]
    for row in rows:
        assert (row["code"] - row["zero_point"]) * row["scale"] == pytest.approx(row["restored"])
