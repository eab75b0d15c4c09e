"""Integers on a grid, and what they take: arithmetic written out, torchao, and properties of any matrix."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from compute.errors import BadInput
from compute.quantize.grid import (
    DOUBLE, E2M1, E4M3, E4M3_SCALES, E5M2, E8M0, FLOAT16, FLOAT32, NF4, Grid, Steps, Uniform, encode, fit, from_bytes, pack, quantize, restore, to_bytes, unpack,
)  # fmt: skip
from compute.quantize.schemes import SCHEMES

from .referees import torchao

BITS = range(2, 9)
GRIDS = sorted({scheme.weights for scheme in SCHEMES.values() if scheme.weights}, key=repr)
assert len(GRIDS) > 30, "no grids found"


def normal(*shape: int, seed: int = 0, spread: float = 0.05) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * spread).astype(np.float32)


def matrices(largest: float = 1e3):
    """Up to 4 × 16 weights of any magnitude below `largest`, zeros and repeated values among them."""
    weights = st.floats(-largest, largest, width=32)
    return arrays.arrays(np.float32, st.tuples(st.integers(1, 4), st.sampled_from([4, 8, 16])), elements=weights)


uniforms = st.builds(Uniform, st.integers(2, 8), st.booleans())
blocks = st.sampled_from(["tensor", "channel", 1, 2, 4])
integer_grids = st.builds(Grid, uniforms, blocks, st.sampled_from([FLOAT16, FLOAT32]))
any_grids = st.one_of(integer_grids, st.builds(Grid, st.sampled_from([E2M1, E4M3, E5M2, NF4]), blocks, st.sampled_from([FLOAT16, FLOAT32, E8M0, E4M3_SCALES, DOUBLE])))


def each_step(made) -> np.ndarray:
    """The scale of each weight, (out, in)."""
    out, width = made.codes.shape
    if made.grid.block == "tensor":
        return np.broadcast_to(made.steps.scales, (out, width))
    return made.steps.scales.repeat(width // made.steps.scales.shape[1], axis=1)


# ---- written out


def test_the_worked_example():
    """Catches: a range of 2^4 − 1 where 2^3 − 1 belongs, truncation instead of rounding.
    s = 0.90 / 7 = 0.12857. 0.12 / s = 0.933 → 1; −0.53 / s = −4.122 → −4; 0.31 / s = 2.411 → 2; 0.90 / s = 7.
    Back: 1 · s = 0.129; −4 · s = −0.514; 2 · s = 0.257; 7 · s = 0.900. The same with a 16-bit scale, 0.12854."""
    for scales in (FLOAT32, FLOAT16):
        made = quantize(np.array([[0.12, -0.53, 0.31, 0.90]]), Grid(Uniform(4), "channel", scales))
        assert made.codes.tolist() == [[1, -4, 2, 7]]
        assert np.round(made.restored(), 3).tolist() == [np.float32([0.129, -0.514, 0.257, 0.9]).tolist()]
        assert round(float(made.steps.scales[0, 0]), 4) == (0.1286 if scales is FLOAT32 else 0.1285)


def test_the_worked_example_with_a_zero_point():
    """Catches: a zero point of the wrong sign or not rounded. Range −0.53 … 0.90: s = 1.43 / 15 = 0.095333; z = rint(0.53 / s) =
    rint(5.559) = 6. 0.12 / s = 1.259 → 1 + 6; −0.53 / s = −5.559 → −6 + 6; 0.31 / s = 3.252 → 3 + 6; 0.90 / s = 9.441 → 9 + 6."""
    made = quantize(np.array([[0.12, -0.53, 0.31, 0.90]]), Grid(Uniform(4, False), "channel", FLOAT32))
    assert made.steps.zeros.tolist() == [[6]] and made.codes.tolist() == [[7, 0, 9, 15]]
    assert np.allclose(made.restored(), [[0.09533, -0.572, 0.286, 0.858]], atol=5e-5)


def test_ties_go_to_the_even_code():
    """Catches: rounding half away from zero. The scale is 1, as the largest weight is 7."""
    made = quantize(np.array([[0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 6.5, 7.0]]), Grid(Uniform(4), "channel"))
    assert made.codes.tolist() == [[0, 2, 2, 0, -2, -2, 6, 7]]


def test_which_weights_share_a_scale():
    """Catches: groups along the wrong axis, rows that share."""
    weights = np.array([[1, 2, 30, 4], [5, 6, 7, 8]], np.float32) * 7
    scales = {block: fit(weights, Grid(Uniform(4), block)).scales.tolist() for block in ("tensor", "channel", 2, 1)}
    assert scales == {"tensor": [[30]], "channel": [[30], [8]], 2: [[2, 30], [6, 8]], 1: [[1, 2, 30, 4], [5, 6, 7, 8]]}


def test_an_outlier_takes_the_others_with_it_and_a_group_saves_them():
    """Catches: groups that do not shield each other. 0.1 beside 10: step 10 / 7 = 1.43, and 0.1 becomes zero."""
    weights = np.full((1, 8), 0.1, np.float32)
    weights[0, 7] = 10
    assert not quantize(weights, Grid(Uniform(4), "channel")).restored()[0, :7].any()
    grouped = quantize(weights, Grid(Uniform(4), 4)).restored()[0]
    assert np.allclose(grouped[:4], 0.1, rtol=1e-3) and not grouped[4:7].any()


# ---- torchao


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("bits", "group"), [(8, 128), (8, 32), (4, 128), (4, 32), (3, 64), (2, 32)])
def test_torchao_chooses_the_same_grid(bits, group, symmetric):
    """Catches: another range, zero point, or rounding than everybody's. torchao multiplies by 1 / scale, so a weight in the middle
    of two codes may fall to the other side."""
    ao = torchao("quantization.quant_primitives")
    weights, numbers = normal(64, 256, seed=bits), Uniform(bits, symmetric)
    made = quantize(weights, Grid(numbers, group, FLOAT32))
    kind, dtype = (ao.MappingType.SYMMETRIC, torch.int8) if symmetric else (ao.MappingType.ASYMMETRIC, torch.uint8)
    options = (1, group), dtype, numbers.smallest, numbers.largest
    scales, zeros = ao.choose_qparams_affine(torch.from_numpy(weights), kind, *options)
    assert np.allclose(scales, made.steps.scales, rtol=1e-6)
    assert not symmetric or not zeros.any()
    assert symmetric or np.array_equal(zeros, made.steps.zeros)
    theirs = ao.quantize_affine(torch.from_numpy(weights), (1, group), scales, zeros, *options[1:]).numpy()
    differ = theirs != made.codes
    assert differ.mean() < 1e-3
    distance = weights / each_step(made)
    assert np.allclose(np.abs(distance - np.floor(distance) - 0.5)[differ], 0, atol=1e-4)


@pytest.mark.parametrize("symmetric", [True, False])
def test_torchao_restores_the_same_from_16_bit_scales(symmetric):
    """Catches: weights divided by another scale than the one that is stored, restored by another formula."""
    ao = torchao("quantization.quant_primitives")
    weights, numbers = normal(32, 128), Uniform(4, symmetric)
    made = quantize(weights, Grid(numbers, 32, FLOAT16))
    assert np.array_equal(made.steps.scales, made.steps.scales.astype(np.float16))
    scales, zeros = torch.from_numpy(made.steps.scales), torch.from_numpy(made.steps.zeros if made.steps.zeros is not None else np.zeros((32, 4), np.int16))
    dtype = torch.int8 if symmetric else torch.uint8
    theirs = ao.dequantize_affine(torch.from_numpy(made.codes).to(dtype), (1, 32), scales, zeros, dtype, numbers.smallest, numbers.largest)
    assert np.allclose(theirs, made.restored(), rtol=1e-6, atol=0)


# ---- of any matrix


@given(matrices(), integer_grids)
@settings(deadline=None)
def test_no_weight_is_more_than_half_a_step_away(weights, grid):
    """Catches: a scale that rounding to 16 bits, or to a subnormal, made too small for the largest weight."""
    made = quantize(weights, grid)
    error = np.abs(made.restored().astype(np.float64) - weights)
    assert (error <= each_step(made) * (0.5 + 1e-4) + 1e-40).all()  # below 1e-40 a float32 scale may be zero
    assert made.codes.min() >= grid.numbers.smallest and made.codes.max() <= grid.numbers.largest


@given(matrices(), any_grids)
@settings(deadline=None)
def test_restored_weights_lie_on_the_grid(weights, grid):
    """Catches: codes that are not those of the values they stand for (a table's order, a zero point applied once)."""
    made = quantize(weights, grid)
    assert np.isfinite(made.restored()).all()
    again = restore(encode(made.restored(), made.steps, grid), made.steps, grid)
    assert np.array_equal(again, made.restored())


@given(matrices(), st.builds(Grid, st.builds(Uniform, st.integers(2, 8)), blocks))
@settings(deadline=None)
def test_quantizing_twice_is_quantizing_once(weights, grid):
    """Catches: a scale that creeps when it is measured again."""
    once = quantize(weights, grid)
    twice = quantize(once.restored(), grid)
    assert np.array_equal(twice.codes, once.codes) and np.array_equal(twice.restored(), once.restored())


@given(matrices(), st.one_of(st.builds(Uniform, st.integers(2, 8)), st.sampled_from([E2M1, E4M3, E5M2])), blocks)
@settings(deadline=None)
def test_a_symmetric_grid_treats_signs_alike(weights, numbers, block):
    """Catches: a grid with one more code below zero, ties that go up."""
    grid = Grid(numbers, block)
    assert np.array_equal(quantize(-weights, grid).restored(), -quantize(weights, grid).restored())


@given(matrices(), any_grids.filter(lambda grid: grid.scales is not FLOAT16), st.integers(-20, 20))
@settings(deadline=None)
def test_a_power_of_two_changes_only_the_scale(weights, grid, power):
    """Catches: thresholds with a unit in them (an epsilon under the scale). FLOAT16 has subnormals, hence not here."""
    weights = np.where(np.abs(weights) < 1e-20, 0, weights)  # nor float32's
    made, larger = quantize(weights, grid), quantize(weights * np.float32(2.0**power), grid)
    assert np.array_equal(larger.codes, made.codes)
    assert np.array_equal(larger.restored(), made.restored() * np.float32(2.0**power))


@given(matrices(), any_grids)
@settings(deadline=None)
def test_order_survives(weights, grid):
    """Catches: a code misplaced in its table. A larger weight of a block is never restored as a smaller one."""
    row = np.sort(weights.reshape(1, -1))
    made = quantize(row, Grid(grid.numbers, "channel", grid.scales)).restored()
    assert (np.diff(made) >= 0).all()


@given(st.sampled_from(GRIDS), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_zeros_stay_zeros(grid, rows):
    """Catches: 0 / 0, and a scale of scales that lifts them. A block of zeros, alone and among others."""
    weights = np.zeros((rows, 512), np.float32)
    with np.errstate(invalid="raise", divide="raise"):
        assert not quantize(weights, grid).restored().any()
        weights[:, 256:] = normal(rows, 256)
        made = quantize(weights, grid).restored()
    assert np.isfinite(made).all() and not made[:, :256].any()


@given(matrices(), uniforms)
@settings(deadline=None)
def test_a_group_of_one_costs_a_scale_and_loses_the_scale_s_rounding(weights, numbers):
    """Catches: one-element groups falling out of some reduction. |w| = largest · s, so only the scale is rounded: by 2^−11 for
    float16, up to 2^−10 where it is rounded up."""
    weights = np.where(np.abs(weights) < 0.02, 0, weights)  # above float16's subnormals
    made = quantize(weights, Grid(numbers, 1))
    assert made.steps.scales.shape == weights.shape
    assert np.allclose(made.restored(), weights, rtol=2**-10 * 1.01, atol=0)


def test_tiny_weights_keep_a_scale():
    """Catches: a 16-bit scale that underflows to zero and erases its block. 2^−24 is the smallest."""
    for weight in (1e-9, 3e-7, 2e-6):
        made = quantize(np.array([[weight, -weight / 2]]), Grid(Uniform(8), "channel"))
        assert made.steps.scales[0, 0] >= 2**-24
        assert np.abs(made.restored() - [[weight, -weight / 2]]).max() <= made.steps.scales[0, 0] / 2
    assert np.allclose(quantize(np.array([[1e-30, -5e-31]]), Grid(Uniform(8), "channel", FLOAT32)).restored(), [[1e-30, -5e-31]], rtol=0.01)


def test_huge_weights_are_refused_or_held():
    """Catches: an infinite scale. 10^7 / 127 = 78,740 is beyond float16."""
    with pytest.raises(BadInput, match="65,504.*float32"):
        quantize(np.array([[1e7, 1.0]]), Grid(Uniform(8), "channel"))
    weights = np.array([[3e38, -3e38, 1e38]])
    for numbers in (Uniform(8), Uniform(8, False), E4M3, NF4):
        assert np.allclose(quantize(weights, Grid(numbers, "channel", FLOAT32)).restored(), weights, rtol=0.07)


# ---- refused


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_with_its_place(bad):
    """Catches: NaN codes, and an error that leaves one to search."""
    weights = normal(6, 8)
    weights[4, 5] = weights[5, 0] = bad
    with pytest.raises(BadInput, match="2 of 48 weights are not finite, the first in row 4, column 5") as caught:
        quantize(weights, Grid(Uniform(4), 4))
    assert "第 4 行第 5 列" in caught.value.message("zh")


@pytest.mark.parametrize("bits", [-1, 0, 1, 9, 16])
def test_one_bit_and_nine_are_refused(bits):
    """Catches: a grid without levels, codes beyond a byte."""
    with pytest.raises(BadInput, match="2 to 8 bits"):
        Uniform(bits)


@pytest.mark.parametrize(("width", "group", "fits"), [(576, 128, "2, 4, 8, 16, 32, 64, 576"), (7, 4, "7"), (64, 0, "64"), (64, -8, "64"), (96, 64, "32, 96"), (8, "row", "8")])
def test_groups_that_do_not_fill_a_row_are_refused_with_those_that_would(width, group, fits):
    """Catches: a last group that is cut off, or mixed with the next row's weights."""
    with pytest.raises(BadInput, match=f"{fits} would"):
        quantize(normal(2, width), Grid(Uniform(4), group))


@pytest.mark.parametrize("shape", [(8,), (2, 2, 2), (0, 8), (4, 0)])
def test_only_matrices(shape):
    """Catches: a vector taken for a row."""
    with pytest.raises(BadInput, match="a matrix"):
        quantize(np.zeros(shape), Grid(Uniform(4), "channel"))


# ---- stored

N = 256 * 1024  # weights of the matrix below
PER_WEIGHT = {
    "int8-tensor": 8 + 16 / N,
    "int8-channel": 8 + 16 / 1024,
    "int8-g128": 8 + 16 / 128,  # 8.125
    "int6-g32": 6 + 16 / 32,  # 6.5
    "int4-tensor": 4 + 16 / N,
    "int4-channel": 4 + 16 / 1024,
    "int4-g128": 4 + 16 / 128,  # 4.125
    "int4-g64": 4 + 16 / 64,  # 4.25
    "int4-g32": 4 + 16 / 32,  # 4.5
    "int4-g128-asym": 4 + 16 / 128 + 4 / 128,  # 4.15625
    "int4-g32-asym": 4 + 16 / 32 + 4 / 32,  # 4.625
    "int3-g32": 3 + 16 / 32,
    "int3-g32-asym": 3 + 16 / 32 + 3 / 32,
    "int2-g32-asym": 2 + 16 / 32 + 2 / 32,
    "fp8-e4m3-channel": 8 + 32 / 1024,
    "fp8-e5m2-channel": 8 + 32 / 1024,
    "mxfp4": 4 + 8 / 32,  # 4.25
    "nvfp4": 4 + 8 / 16 + 32 / N,  # 4.5, and one float32
    "nf4": 4 + 32 / 64,  # 4.5
    "nf4-double": 4 + 8 / 64 + 32 / (64 * 256) + 32 / N,  # 4.127, and a mean
}


@pytest.mark.parametrize("name", PER_WEIGHT)
def test_bits_per_weight(name):
    """Catches: scales, zero points or what a matrix has once left out, or counted twice."""
    made = quantize(normal(256, 1024), SCHEMES[name].weights)
    assert made.bits_per_weight == PER_WEIGHT[name]


@pytest.mark.parametrize("grid", GRIDS, ids=repr)
def test_as_many_bits_as_counted_hold_the_matrix(grid):
    """Catches: a count that cannot be kept. All of it as bytes, and the same matrix from these bytes alone."""
    made = quantize(normal(48, 768), grid)
    data = to_bytes(made)
    assert 0 <= len(data) * 8 - made.bits < 24  # each of at most three parts is filled up to a byte
    again = from_bytes(data, grid, (48, 768))
    assert np.array_equal(again.codes, made.codes) and np.array_equal(again.restored(), made.restored())
    assert to_bytes(again) == data


@given(matrices(), any_grids)
@settings(deadline=None)
def test_any_matrix_comes_back_from_its_bytes(weights, grid):
    """Catches: zeros, subnormal scales and odd shapes that a layout forgets."""
    made = quantize(weights, grid)
    again = from_bytes(to_bytes(made), grid, weights.shape)
    assert np.array_equal(again.codes, made.codes) and np.array_equal(again.restored(), made.restored())


def test_scales_that_their_format_does_not_hold_are_not_stored():
    """Catches: a count for 16 bits beside scales that were never rounded to them."""
    made = quantize(normal(2, 8), Grid(Uniform(4), 8))
    with pytest.raises(ValueError, match="float16"):
        to_bytes(type(made)(made.grid, made.codes, Steps(made.steps.scales * np.float32(1.0001))))


@given(st.integers(2, 8), st.booleans(), st.integers(1, 40), st.integers(0, 2**32))
@settings(deadline=None)
def test_packed_codes_are_a_row_of_bits(bits, symmetric, count, seed):
    """Catches: bits in another order, lost with the last byte. The referee writes the number as text, bit by bit."""
    numbers = Uniform(bits, symmetric)
    codes = np.random.default_rng(seed).integers(numbers.smallest, numbers.largest + 1, (1, count)).astype(np.int16)
    text = "".join(f"{code - numbers.smallest:0{bits}b}"[::-1] for code in codes[0].tolist())
    expected = bytes(int(text[i : i + 8].ljust(8, "0")[::-1], 2) for i in range(0, len(text), 8))
    assert pack(codes, numbers) == expected
    assert np.array_equal(unpack(expected, numbers, codes.shape), codes)
