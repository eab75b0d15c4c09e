"""Whole matrices added up band by band, against the plain way with everything in memory."""

import subprocess
import sys

import numpy as np
import pytest

from compute.errors import BadInput, UnknownName
from compute.quantize import matrices
from compute.quantize.grid import E2M1, Grid, Uniform, quantize
from compute.quantize.matrices import DRAWN, NAMES

GRIDS = [Grid(Uniform(4), "channel"), Grid(Uniform(4), "tensor"), Grid(Uniform(3, False), "tensor"), Grid(Uniform(2, False), 64), Grid(Uniform(8), 32), Grid(E2M1, 32)]


def all_of(source):
    return np.concatenate(list(source))


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("name", ["3.down", "0.qkv"])
def test_bands_add_up_to_the_whole(name, grid):
    """Catches: a tensor's scale taken from one band, cells of the wrong rows or columns, bits that count a scale for each band."""
    source = matrices.source("mini-256", name)
    weights = all_of(source)
    made, found = quantize(weights, grid), matrices.whole(source, grid)
    off = made.restored().astype(float) - weights
    assert (found.rows, found.width) == weights.shape and found.bits == made.bits
    assert found.relative_rms == pytest.approx(np.sqrt((off**2).sum() / (weights.astype(float) ** 2).sum()), rel=1e-5)
    assert found.zeros == ((made.restored() == 0) & (weights != 0)).sum()
    low = grid.numbers.smallest if isinstance(grid.numbers, Uniform) else 0
    assert found.codes == tuple((made.codes == low + i).sum() for i in range(grid.numbers.levels))
    up, across = found.errors.shape
    for j, i in ((0, 0), (up - 1, 0), (up // 2, across - 1)):
        cell = off[j * weights.shape[0] // up : (j + 1) * weights.shape[0] // up, i * weights.shape[1] // across : (i + 1) * weights.shape[1] // across]
        assert found.errors[j, i] == pytest.approx(np.sqrt((cell**2).mean() / (weights.astype(float) ** 2).mean()), rel=1e-4)
    lost = (off**2).sum(1).reshape(up, -1)
    assert list(found.worst) == [i * lost.shape[1] + row for i, row in enumerate(lost.argmax(1))]
    peaks = np.abs(weights).max(1) / np.sqrt((weights.astype(float) ** 2).mean(1))
    assert found.peak_row == peaks.argmax() and found.peak == pytest.approx(peaks.max())


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_row_is_that_row_of_the_quantized_matrix(grid):
    """Catches: a row with scales of its own where the matrix shares one, scales of the neighbouring block."""
    source = matrices.source("mini-128", "1.gate_up")
    weights = all_of(source)
    made = quantize(weights, grid)
    for number in (0, 200, source.rows - 1):
        row = matrices.row(source, number, grid)
        assert np.array_equal(row.weights, weights[number]) and np.array_equal(row.codes, made.codes[number]) and np.array_equal(row.restored, made.restored()[number])
        if isinstance(grid.numbers, Uniform):
            assert np.allclose((row.codes - row.zero_points) * row.scales, row.restored)
        assert row.zeros == ((row.restored == 0) & (row.weights != 0)).sum()


def test_names_are_the_engines():
    """The same numbers as the engine's own loader. Catches: q, k and v joined in another order, gate and up swapped."""
    from compute.engine.registry import shared

    weights = shared().get("mini-64").weights
    for name in NAMES:
        layer, part = name.split(".")
        theirs = getattr(weights.layers[int(layer)], part)
        assert np.array_equal(all_of(matrices.source("mini-64", name)), theirs.weight.float().cpu().numpy()), name


def test_shapes_are_known_without_the_weights():
    """Catches: a slider of rows that the matrix does not have."""
    for model in matrices.MODELS:
        for name in NAMES:
            assert matrices.rows(model, name) == matrices.source(model, name).rows, (model, name)
    assert [matrices.rows(matrices.SERVED, f"0.{part}") for part in matrices.PARTS] == [960, 576, 3072, 576], "as its GGUF file has them"
    assert matrices.rows(DRAWN, "0.out") == 4096


def test_the_outlier_row_that_pages_open_at():
    """The row's largest weight is ten times its RMS, and groups save it. Catches: other weights in the checkpoint, a default that
    no longer shows anything."""
    source = matrices.source("mini-256", "3.down")
    alone, grouped = (matrices.row(source, 157, Grid(Uniform(4), block)) for block in ("channel", 32))
    assert matrices.whole(source, Grid(Uniform(4), "channel")).peak_row == 157 and alone.peak > 10
    assert alone.zeros > 768 / 2 > 2 * grouped.zeros and grouped.relative_rms < alone.relative_rms / 3


def test_the_drawn_matrix():
    """Catches: bands that repeat each other, another spread, a row that is not in its band."""
    source = matrices.source(DRAWN, "")
    assert source.rows == source.width == 4096
    first, last = source.band(0), source.band(source.bands - 1)
    assert not np.array_equal(first, last) and np.array_equal(source.band(0), first)
    assert first.std() == pytest.approx(0.02, rel=0.01) and abs(np.corrcoef(first[0], last[0])[0, 1]) < 0.1
    deep = 4096 // source.bands
    assert np.array_equal(source.row(deep * 3 + 5)[0], source.band(3)[5])
    found = matrices.whole(source, Grid(Uniform(8), "channel"))
    assert found.weights == 2**24 == sum(found.codes) and found.bits == 2**24 * 8 + 4096 * 16
    # a normal weight's error is uniform within a step s = peak / 127: rms s / √12, with each row's own peak near 3.8
    assert 3.4 / 127 / np.sqrt(12) < found.relative_rms < 4.2 / 127 / np.sqrt(12)


def test_matrices_of_zeros_and_of_one_row():
    """Catches: a division by the zero mean square, by a single band."""
    for weights in (np.zeros((4, 32), np.float32), np.zeros((1, 1), np.float32), np.ones((1, 7), np.float32)):
        source = matrices.in_bands(weights)
        for block in ("tensor", "channel"):
            found, row = matrices.whole(source, Grid(Uniform(4), block)), matrices.row(source, 0, Grid(Uniform(4), block))
            assert found.relative_rms == pytest.approx(row.relative_rms) and found.zeros == 0 and np.isfinite(found.errors).all() and row.relative_rms < 1e-3


def test_refusals():
    """Catches: the last row for one too far, groups that do not fill a row."""
    source = matrices.source("mini-64", "0.out")
    for number in (-1, 64):
        with pytest.raises(BadInput):
            matrices.row(source, number, GRIDS[0])
    for call in (matrices.whole, lambda s, g: matrices.row(s, 0, g)):
        with pytest.raises(BadInput):
            call(source, Grid(Uniform(4), 128))
    for model, name in (("mini-512", "0.out"), ("mini-64", "4.out"), ("mini-64", "head")):
        with pytest.raises(UnknownName):
            matrices.source(model, name)


def test_pages_read_weights_without_torch():
    """Catches: torch in the web process."""
    code = "import sys; from components import real_row as r; r.WIDGET.run(r.WIDGET.Params()); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).returncode == 0
