"""Products that read small formats, against the restored weights in float64.

How far they may be apart: activations, scales and offsets are rounded to bfloat16, and so is what comes out, each by at most
2⁻⁹ of itself. The sums themselves are in float32, whose errors are a thousandth of that.
"""

import numpy as np
import pytest
import torch

from compute.engine.model import Linear, Weights, forward
from compute.quantize import kernels
from compute.quantize.grid import E2M1, E4M3, E8M0, FLOAT32, NF4, Grid, Uniform, quantize
from compute.quantize.kernels import Half, Int4, Int8, half, halved, matrix
from compute.quantize.model import quantized
from compute.quantize.schemes import scheme
from tests.engine.conftest import made, model  # noqa: F401

HALF_STEP = 2.0**-9  # of bfloat16, as a share
TAKEN = [Grid(Uniform(8), "channel")] + [Grid(Uniform(4, symmetric), group) for symmetric in (True, False) for group in kernels.GROUPS]
SHAPES = [(48, 256), (320, 512)]


def weights(shape, seed=0):
    """With rows of different size, some beside the middle, and an outlier in every hundredth place."""
    random = np.random.default_rng(seed)
    w = random.normal(0.01, 0.1, shape) * random.uniform(0.1, 3, (shape[0], 1))
    w[random.random(shape) < 0.01] *= 8
    return w.astype(np.float32)


def bound(made, x):
    """The largest error that the roundings allow, for each number that comes out."""
    w, rows = made.restored().astype(np.float64), made.codes.shape[0]
    step = np.repeat(made.steps.scales.astype(np.float64), made.codes.shape[1] // made.steps.scales.shape[1], 1)
    offset = 0 if made.steps.zeros is None else (8 - np.repeat(made.steps.zeros, made.grid.block, 1)) * step
    parts = np.abs(w - offset) + np.abs(offset)  # code · scale and offset are rounded apart
    return (np.abs(x) @ (parts + np.abs(w)).T + np.abs(x @ w.T)) * HALF_STEP * 1.02 + 1e-6 * rows


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("grid", TAKEN, ids=lambda g: f"{g.numbers.bits}-{g.block}-{g.numbers.symmetric}")
def test_products_are_those_of_the_restored_weights(grid, shape):
    """Catches: nibbles in the wrong order, scales of another group or row, a zero point with the wrong sign, a bias lost,
    leading dimensions mixed up."""
    made, bias = quantize(weights(shape), grid), torch.randn(shape[0], generator=torch.Generator().manual_seed(1))
    small = matrix(made, bias)
    assert small.shape == shape and small.bias is bias
    x = torch.randn(2, 3, shape[1], generator=torch.Generator().manual_seed(2))
    found, flat = small(x), x.reshape(6, -1).double().numpy()
    expected = flat @ made.restored().astype(np.float64).T
    assert found.shape == (2, 3, shape[0]) and found.dtype == torch.float32
    assert (np.abs(found.view(6, -1).double().numpy() - bias.numpy() - expected) <= bound(made, flat) + 1e-6).all()
    assert torch.equal(small(x[0, 0]), found[0, 0]) and torch.equal(small(x[1]), found[1])
    assert matrix(made, None)(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("grid", TAKEN, ids=lambda g: f"{g.numbers.bits}-{g.block}-{g.numbers.symmetric}")
def test_every_weight_is_where_it_belongs(grid):
    """Catches one weight in another's place, which a sum may hide. Scales are powers of two, so nothing is rounded: unit
    vectors must give the restored matrix back to the bit."""
    shape, largest = (32, 512), grid.numbers.largest
    block = shape[1] if grid.block == "channel" else grid.block
    random = np.random.default_rng(3)
    codes = random.integers(grid.numbers.smallest, largest + 1, shape)
    codes[:, ::block], codes[:, 1::block] = largest, grid.numbers.smallest  # so that the range is known
    zero = 0 if grid.numbers.symmetric else 5
    steps = 2.0 ** np.repeat(random.integers(-4, 5, (shape[0], shape[1] // block)), block, 1)
    made = quantize(((codes - zero) * steps).astype(np.float32), grid)
    np.testing.assert_array_equal(made.restored(), (codes - zero) * steps)
    np.testing.assert_array_equal(matrix(made, None)(torch.eye(shape[1])).numpy().T, made.restored())


@pytest.mark.parametrize("grid", [
    Grid(Uniform(8), 64), Grid(Uniform(8, False), "channel"), Grid(Uniform(8), "tensor"), Grid(Uniform(6), "channel"), Grid(Uniform(3), 32),
    Grid(Uniform(4), "channel"), Grid(Uniform(4), "tensor"), Grid(Uniform(4), 16), Grid(Uniform(4), 512), Grid(NF4, 64, FLOAT32), Grid(E2M1, 32, E8M0),
    Grid(E4M3, "channel", FLOAT32),
])  # fmt: skip
def test_what_no_kernel_reads(grid):
    """Catches a format that is taken for another one, which would run and say nonsense."""
    assert matrix(quantize(weights((32, 512)), grid), None) is None


def test_rows_that_the_kernels_do_not_take():
    """Catches a matrix of 20 rows that stops the process in the 4-bit kernel; the 8-bit one takes any number."""
    assert matrix(quantize(weights((20, 64)), Grid(Uniform(4), 32)), None) is None
    made = quantize(weights((20, 64)), Grid(Uniform(8), "channel"))
    x = torch.randn(1, 64, generator=torch.Generator().manual_seed(4))
    assert (np.abs(matrix(made, None)(x).numpy() - x.numpy() @ made.restored().T) <= bound(made, x.double().numpy())).all()


@pytest.mark.parametrize("grid", [TAKEN[0], TAKEN[1], TAKEN[6]])
def test_a_row_does_not_depend_on_its_company(grid):
    """Catches a text that changes with its neighbours in a batch, or with the number of threads."""
    small, x = matrix(quantize(weights((320, 512)), grid), None), torch.randn(16, 512, generator=torch.Generator().manual_seed(5))
    before, whole = torch.get_num_threads(), small(x)
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for rows in (1, 2, 3, 4, 5, 8, 16):
                assert torch.equal(torch.cat([small(part) for part in x.split(rows)]), whole)
    finally:
        torch.set_num_threads(before)


def test_bytes_are_those_of_the_tensors():
    """Catches scales left out. By hand: 320 · 512 bytes and 320 · 2; half of that and 320 · 512 / 32 · 4; 320 · 512 · 2."""
    w = weights((320, 512))
    assert matrix(quantize(w, TAKEN[0]), None).bytes == 163_840 + 640
    assert matrix(quantize(w, TAKEN[1]), None).bytes == 81_920 + 20_480
    assert half(Linear(torch.from_numpy(w))).bytes == 327_680


def test_bfloat16_by_columns_is_the_same_matrix():
    """Catches rows taken for columns. Referee: float64 with the rounded weights."""
    w, bias = torch.from_numpy(weights((48, 256))), torch.arange(48.0)
    small, x = half(Linear(w, bias)), torch.randn(3, 256, generator=torch.Generator().manual_seed(6))
    expected = x.bfloat16().double() @ w.bfloat16().double().t()
    assert small.shape == (48, 256)
    assert ((small(x) - bias).double() - expected).abs().max() <= 2 * HALF_STEP * (expected.abs().max() + bias.max())


def test_kinds(model):  # noqa: F811
    """Catches a scheme that runs on restored weights where a kernel reads its format, and one that does not say it in its bytes.
    The tiny model has widths of 64 and 96."""
    def kinds(name):
        return {type(m) for m in quantized(model, scheme(name)).weights.matrices()[:-1]}

    assert kinds("int8-channel") == {Int8} and kinds("int4-g32") == kinds("int4-g32-asym") == {Int4} and kinds("bf16") == {Half}
    assert kinds("int3-g32") == kinds("mxfp4") == {Linear}
    assert {type(m) for m in halved(model.weights).matrices()} == {Half}
    plain, small = model.weights.bytes_per_decoded_token(), quantized(model, scheme("int8-channel-head8")).weights
    assert plain / 4 < small.bytes_per_decoded_token() < plain / 4 * 1.05


def test_elsewhere_than_on_a_cpu_the_restored_weights_are_used(model, monkeypatch):  # noqa: F811
    """Catches a matrix in the CPU's order that is sent to a GPU. The device is only claimed: none is needed to choose."""
    monkeypatch.setattr(Weights, "device", property(lambda self: torch.device("cuda")))
    small = quantized(model, scheme("int4-g32"))
    monkeypatch.undo()
    assert {type(m) for m in small.weights.matrices()} == {Linear}
    ids = torch.arange(5, 25)[None]
    exact = quantized(model, scheme("int4-g32"), kernels=False)
    assert torch.equal(*(forward(m.weights, ids, None, torch.arange(20)[None]) for m in (small, exact)))
