"""FP8, FP4 with block scales, NF4: against torch's own types, the published code points, and torchao."""

from fractions import Fraction

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import norm

from compute.quantize.grid import (
    DOUBLE, E2M1, E4M3, E4M3_SCALES, E5M2, E8M0, FLOAT32, NF4, Grid, Uniform, from_bytes, keep, nearest, opened, quantize, to_bytes,
)  # fmt: skip
from compute.quantize.kv import from_the_least
from compute.quantize.schemes import SCHEMES

from .referees import torchao
from .test_grid import each_step, normal

EIGHT = {E4M3: torch.float8_e4m3fn, E5M2: torch.float8_e5m2}
TABLES = [E4M3, E5M2, E2M1, NF4]


# ---- FP8


@pytest.mark.parametrize("table", EIGHT, ids=lambda table: table.name)
def test_every_byte_of_fp8(table):
    """Catches: a bias off by one, a missing subnormal, infinity or NaN taken for a number. E4M3: 256 − 2 NaN, 0 and −0 are one;
    E5M2: 256 − 2 · 4 for infinities and NaN, one zero less."""
    values = torch.arange(256, dtype=torch.uint8).view(EIGHT[table]).float()
    finite = values[values.isfinite()].unique().tolist()
    assert list(table.values) == finite and len(finite) == {E4M3: 253, E5M2: 247}[table]
    assert table.largest == torch.finfo(EIGHT[table]).max == {E4M3: 448, E5M2: 57344}[table]


@pytest.mark.parametrize("table", EIGHT, ids=lambda table: table.name)
def test_rounding_to_fp8_is_torch_s(table):
    """Catches: ties away from even, subnormals rounded to zero or down. Every value, every middle of two, their neighbours in
    float32, and a million others; beyond the largest ours is the largest, where torch has that, infinity or NaN."""
    points = np.array(table.values, np.float32)
    middles = (points[1:] + points[:-1]) / 2
    edges = np.concatenate([points, middles])
    others = np.random.default_rng(0).standard_normal(2**20) * np.exp2(np.random.default_rng(1).integers(-20, 16, 2**20))
    x = np.concatenate([edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf)), others.astype(np.float32)])
    theirs = torch.from_numpy(x).to(EIGHT[table]).float().numpy()
    inside = np.abs(x) <= table.largest
    ours = points[nearest(x, table)]
    assert np.array_equal(ours[inside], theirs[inside])
    assert (~inside).any() and np.array_equal(ours[~inside], np.sign(x[~inside]) * table.largest)


@pytest.mark.parametrize("name", ["fp8-e4m3-channel", "fp8-e5m2-channel"])
def test_fp8_weights_are_a_cast_of_the_scaled_row(name):
    """Catches: a scale that puts the largest weight elsewhere than on 448 or 57,344."""
    grid = SCHEMES[name].weights
    weights = normal(8, 256)
    scales = np.abs(weights).max(1, keepdims=True) / np.float32(grid.numbers.largest)
    cast = torch.from_numpy(weights / scales).to(EIGHT[grid.numbers]).float().numpy() * scales
    assert np.array_equal(quantize(weights, grid).restored(), cast)


# ---- any table


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_nearest_is_nearest(table, data):
    """Catches: borders shifted by a place. The referee measures the distance to every value."""
    largest = float(np.float32(table.largest * 1.2))
    x = data.draw(arrays.arrays(np.float32, 20, elements=st.floats(-largest, largest, width=32)))
    distances = np.abs(x[:, None].astype(np.float64) - np.array(table.values))
    assert np.array_equal(distances[np.arange(20), nearest(x, table)], distances.min(1))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_nearest_on_both_sides_of_every_border(table):
    """Catches: a border rounded to the wrong side of the middle. The three float32 around each middle, by exact distances."""
    points = np.array(table.values)
    middles = ((points[1:] + points[:-1]) / 2).astype(np.float32)
    x = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))])
    distances = [[abs(Fraction(float(number)) - Fraction(value)) for value in table.values] for number in x]
    assert all(row[place] == min(row) for row, place in zip(distances, nearest(x, table)))


# ---- MXFP4


def test_e2m1_code_points():
    """Catches: a wrong bias or subnormal. S EE M, bias 1: 0 00 0 = 0, 0 00 1 = ½ · 2^0, 0 01 m = (1 + m/2) · 2^0 = 1, 1.5,
    0 10 m = 2, 3, 0 11 m = 4, 6; no infinity, no NaN (OCP MX 1.0, table 5)."""
    positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    assert list(E2M1.values) == sorted({sign * value for value in positive for sign in (1, -1)})


@pytest.mark.parametrize(("value", "becomes"), [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0), (5.01, 6.0), (9.0, 6.0)])
def test_ties_of_fp4_go_to_the_even_mantissa(value, becomes):
    """Catches: ties by place in the table of 15 with the wrong parity, as it has one zero for two codes."""
    assert [E2M1.values[place] for place in nearest(np.array([value, -value]), E2M1)] == [becomes, -becomes]


def test_mx_scales_are_powers_of_two_from_2_to_the_minus_127():
    """Catches: a logarithm that rounds up just below a power of two, a zero block without a scale. The largest magnitude m has
    the scale 2^(floor(log2 m) − 2), as 4 = 2² is the power in E2M1's largest number."""
    below = float(np.nextafter(np.float32(4), np.float32(0)))
    for largest, power in ((4.0, 0), (below, -1), (7.99, 0), (8.0, 1), (0.0, -127), (1e-45, -127), (3e38, 125)):
        made = quantize(np.full((1, 32), largest, np.float32), Grid(E2M1, 32, E8M0))
        assert made.steps.scales.tolist() == [[2.0**power]], largest
        assert made.steps.kept[0].tolist() == [[power + 127]]


@given(st.integers(0, 2**32), st.integers(-60, 60), st.sampled_from([E2M1, E4M3, E5M2]))
@settings(max_examples=40, deadline=None)
def test_torchao_makes_the_same_mx(seed, power, table):
    """Catches: another scale than the specification's floor, saturation, order within a block. All of MXFP4 and MXFP8."""
    ao = torchao("prototype.mx_formats.mx_tensor")
    dtype = {E2M1: torch.float4_e2m1fn_x2, **EIGHT}[table]
    weights = normal(4, 128, seed=seed) * np.float32(2.0**power)
    weights[1, :32] = 0
    theirs = ao.MXTensor.to_mx(torch.from_numpy(weights), dtype, 32)
    made = quantize(weights, Grid(table, 32, E8M0))
    assert np.array_equal(theirs.scale.view(torch.uint8).numpy(), made.steps.kept[0])
    assert np.array_equal(theirs.dequantize(torch.float32).numpy(), made.restored())


# ---- NVFP4


def test_nvfp4_written_out():
    """Catches: scales of scales that do not reach 448. Largest weight 12: over the matrix 12 / 6 / 448; its block has the scale
    448 · that = 2 and the codes 6, −3, 1.5 of 12, −6, 3. The block of 1: 1 / 6 = 0.16667 is 37.33 of these, in E4M3 36, that
    is 0.16071; 1 / 0.16071 = 6.22 → 6, back 0.9643."""
    weights = np.zeros((1, 32), np.float32)
    weights[0, :3], weights[0, 16] = (12, -6, 3), 1
    made = quantize(weights, Grid(E2M1, 16, E4M3_SCALES))
    assert [E4M3.values[place] for place in made.steps.kept[0][0]] == [448, 36]
    assert np.allclose(made.steps.scales, [[2, 36 * 12 / 6 / 448]], rtol=1e-6)
    assert np.allclose(made.restored()[0, [0, 1, 2, 16]], [12, -6, 3, 0.9643], rtol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_torchao_makes_the_same_nvfp4(seed):
    """Catches: another recipe for both scales. torchao's smallest scale is E4M3's smallest normal number, 2^−6; blocks above it."""
    ao = torchao("prototype.mx_formats.nvfp4_tensor")
    weights = normal(64, 256, seed=seed) * np.exp2(np.random.default_rng(seed).integers(-4, 1, (64, 1))).astype(np.float32)
    whole = ao.per_tensor_amax_to_scale(torch.tensor(np.abs(weights).max()))
    theirs = ao.NVFP4Tensor.to_nvfp4(torch.from_numpy(weights), per_tensor_scale=whole)
    made = quantize(weights, Grid(E2M1, 16, E4M3_SCALES))
    scales = theirs.scale.float().numpy().reshape(made.steps.scales.shape)
    assert scales.min() > 2**-6
    assert np.array_equal(scales, np.array(E4M3.values, np.float32)[made.steps.kept[0]])
    assert np.isclose(float(whole), made.steps.kept[1][0], rtol=1e-6)
    differ = ~np.isclose(theirs.dequantize(torch.float32).numpy(), made.restored(), rtol=1e-5)
    assert differ.mean() < 1e-3  # it multiplies by a reciprocal, so a tie may fall the other way


def test_a_small_block_of_nvfp4_keeps_a_scale():
    """Catches: a block erased because its scale rounds to E4M3's zero. Beside a 1, a block of 2^−20 wants 2^−20 · 448 = 2^−11.2 of the
    largest scale, and gets the smallest, 2^−9."""
    weights = np.zeros((1, 48), np.float32)
    weights[0, 0], weights[0, 16:32] = 1, 2.0**-20
    made = quantize(weights, Grid(E2M1, 16, E4M3_SCALES))
    assert [E4M3.values[place] for place in made.steps.kept[0][0]] == [448, 2.0**-9, 0]
    assert np.abs(made.restored() - weights).max() <= 0.25 * made.steps.scales[0, 1]
    assert made.restored()[0, 16] > 0 and not made.restored()[0, 32:].any()


def test_nvfp4_of_almost_nothing():
    """Catches: a division by a float32 that underflowed."""
    with np.errstate(invalid="raise", divide="raise"):
        made = quantize(np.full((1, 16), 1e-44, np.float32), Grid(E2M1, 16, E4M3_SCALES))
    assert not made.restored().any() and not made.steps.scales.any()


# ---- NF4


def test_nf4_is_where_a_normal_distribution_is_equally_full():
    """Catches: a digit of the table. Built anew: 8 quantiles above zero, 7 below, from 1 − (1/32 + 1/30) / 2 = 0.9677083, zero
    between, all over the largest. bitsandbytes and the paper's appendix E print the result."""
    most = 1 - (1 / 32 + 1 / 30) / 2
    above, below = norm.ppf(np.linspace(most, 0.5, 9)[:-1]), -norm.ppf(np.linspace(most, 0.5, 8)[:-1])
    expected = np.sort(np.concatenate([above, [0], below])) / above.max()
    assert np.allclose(NF4.values, expected, atol=2e-7)
    printed = [-1, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0, 0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1]
    assert np.allclose(NF4.values, printed, atol=5e-9 + 5e-8)


def test_torchao_makes_the_same_nf4():
    """Catches: another table or rounding than QLoRA's; double quantization that strays. torchao writes the table
    with four digits, and chooses codes by the exact scales: compared with ours without double quantization. Its scales of scales
    are 8 bits around the mean, too."""
    ao = torchao("quantization.quantize_.workflows.nf4.nf4_tensor")
    weights = normal(128, 512)
    theirs = ao.to_nf4(torch.from_numpy(weights), 64, 256)
    assert np.allclose(theirs.nf4, NF4.values, atol=5.1e-5)
    pairs = theirs.quantized_data.numpy().reshape(128, -1)
    assert (np.stack([pairs >> 4, pairs & 15], -1).reshape(128, 512) == quantize(weights, Grid(NF4, 64, FLOAT32)).codes).mean() > 0.999
    made = quantize(weights, Grid(NF4, 64, DOUBLE))
    scales = theirs.dequantize_scalers(theirs.quantized_scalers, theirs.quantization_factor, 256).numpy().reshape(128, 8)
    exact = np.abs(weights.reshape(128, 8, 64)).max(-1)
    step = np.abs(exact - exact.mean()).max() / 127
    assert np.abs(scales - exact).max() < 1.05 * step and np.abs(made.steps.scales - exact).max() <= 0.501 * step


def test_double_quantization_written_out():
    """Catches: the mean left out, groups of 256 cut wrong. 257 rows of one block: the last scale has a float32 of its own."""
    weights = np.zeros((257, 64), np.float32)
    weights[:, 0] = np.linspace(1, 3, 257)
    made = quantize(weights, Grid(NF4, 64, DOUBLE))
    eight, factors, mean = made.steps.kept
    assert np.isclose(mean[0], 2) and np.allclose(factors, [1 / 127, 1 / 127]) and [eight[0, 0], eight[128, 0], eight[256, 0]] == [-127, 0, 127]
    assert np.allclose(made.steps.scales[:, 0], weights[:, 0], atol=0.5 / 127 + 1e-6)
    assert made.bits == 257 * 64 * 4 + 257 * 8 + 32 * (2 + 1)


def test_a_double_quantized_scale_is_never_negative():
    """Catches: signs that turn over in a block of almost nothing. Scales 1, 2.5, 1, 1, 1, 1, 1, 1, 0, 0: mean 0.95, steps of 1.55 / 127
    = 0.0122; 0 is −0.95 = −77.84 steps, rounded to −78, and −78 · 0.0122 + 0.95 = −0.002."""
    weights = np.zeros((1, 64 * 10), np.float32)
    weights[0, ::64] = [1, 2.5, 1, 1, 1, 1, 1, 1, 0, 0]
    made = quantize(weights, Grid(NF4, 64, DOUBLE))
    assert made.steps.kept[0][0, -1] == -78 and made.steps.scales[0, -1] == 0
    assert not made.restored()[0, -64:].any()


# ---- a published 4-bit file


def test_a_zero_point_does_not_find_the_values_of_q4_1_again():
    """Catches: the belief that quantizing SmolLM2's published file to 4 bits with zero points costs nothing. The file has a scale and a
    minimum for 32 weights, both float16; the minimum is no whole number of steps. From both, as KIVI does it, they come back."""
    weights = normal(64, 256)
    file = gguf.dequantize(gguf.quantize(weights, gguf.GGMLQuantizationType.Q4_1), gguf.GGMLQuantizationType.Q4_1)
    again = quantize(file, Grid(Uniform(4, False), 32)).restored()
    assert 0.05 < np.sqrt(((again - file) ** 2).mean() / (file**2).mean()) < 0.15
    assert np.abs(from_the_least(torch.from_numpy(file).view(-1, 32), 4).view(64, 256).numpy() - file).max() < 1e-3 * np.abs(file).max()


# ---- every format that has a short float in it


@pytest.mark.parametrize("name", ["fp8-e4m3-channel", "fp8-e5m2-channel", "mxfp4", "nvfp4", "nf4", "nf4-double"])
def test_error_is_half_a_gap_of_the_table(name):
    """Catches: a scale and a code that do not belong together. Only the formats whose scale is rounded down cut anything off."""
    grid = SCHEMES[name].weights
    weights = normal(64, 256)
    made = quantize(weights, grid)
    scaled = np.abs(weights / each_step(made))
    inside = scaled <= grid.numbers.largest
    assert inside.mean() > 0.9
    points = np.array(grid.numbers.values)
    place = np.searchsorted(points, weights / each_step(made)).clip(1, len(points) - 1)
    half = (points[place] - points[place - 1]) / 2 * each_step(made)
    assert (np.abs(made.restored() - weights) <= half * (1 + 1e-4))[inside].all()
    if name in ("fp8-e4m3-channel", "fp8-e5m2-channel", "nf4"):
        assert scaled.max() <= grid.numbers.largest * (1 + 1e-6)
    assert scaled.max() < {"mxfp4": 8, "nvfp4": 6 * (1 + 1 / 16), "nf4-double": 1.05}.get(name, np.inf)


def test_scales_alone():
    """Catches: a scale rounded to another format than the one in which it is kept."""
    scales = np.abs(normal(4, 8, spread=1)).astype(np.float64)

    def stored(grid: Grid) -> np.ndarray:
        return opened(keep(scales, grid), grid)

    assert np.array_equal(stored(Grid(Uniform(4), 8)).astype(np.float16), scales.astype(np.float16))
    assert np.log2(stored(Grid(E2M1, 8, E8M0))).tolist() == (np.floor(np.log2(scales * 6)) - 2).tolist()


def test_a_file_of_mxfp4_read_by_hand():
    """Catches: a layout that only its own reader understands. One block: a byte for the scale, then two codes a byte, the first in
    the lower half; codes are places from −6."""
    weights = np.tile(np.float32([6, -6, 0.5, 0]), 8)[None]
    data = to_bytes(quantize(weights, Grid(E2M1, 32, E8M0)))
    assert len(data) == 1 + 16 and data[0] == 127  # 2^0
    assert data[1:3] == bytes([14 | 0 << 4, 8 | 7 << 4]) and list(E2M1.values).index(0.5) == 8
    assert np.array_equal(from_bytes(data, Grid(E2M1, 32, E8M0), (1, 32)).restored(), weights)
