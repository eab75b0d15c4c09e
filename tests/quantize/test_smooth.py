"""SmoothQuant's factors, and W8A8 against naive arithmetic in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compute.errors import BadInput
from compute.quantize import smooth, w8a8
from compute.quantize.grid import quantize


def layer(seed: int, rows: int = 5, width: int = 24, out: int = 7, outlier: float = 1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    x[:, 3] *= outlier
    return x, rng.normal(size=(out, width)).astype(np.float32)


def naive(x, weights):
    """Loops over Python floats: scales of a token and of a row, integers, their sum, and back."""
    made = quantize(weights, smooth.WEIGHTS)
    y = np.zeros((len(x), len(weights)))
    for t, token in enumerate(x):
        step = float(np.float32(max(abs(float(v)) for v in token)) / np.float32(127))
        for o in range(len(weights)):
            row = float(made.steps.scales[o, 0])
            total = sum((round(float(v) / step) if step else 0) * int(made.codes[o, j]) for j, v in enumerate(token))
            y[t, o] = total * step * row
    return y


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_both_w8a8_are_the_naive_arithmetic(seed):
    """Catches sums that are not exact, a scale of the batch instead of the token, and two implementations that differ."""
    x, weights = layer(seed)
    matrix = w8a8.matrix(quantize(weights, smooth.WEIGHTS), torch.zeros(1), None)
    expected = naive(x, weights)
    np.testing.assert_allclose(smooth.product(x, weights), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(matrix(torch.from_numpy(x)).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_the_matrix_takes_any_shape_bias_and_zeros():
    """Catches 0 / 0 for a token of zeros, a lost bias, and tokens of a batch that look at each other."""
    x, weights = layer(1, rows=12)
    x[4] = 0
    bias = torch.linspace(-1, 1, 7)
    matrix = w8a8.matrix(quantize(weights, smooth.WEIGHTS), torch.zeros(1), bias)
    together = matrix(torch.from_numpy(x).view(3, 4, 24))
    assert together.shape == (3, 4, 7) and matrix.shape == (7, 24) and matrix.bytes == 7 * 24 + 7 * 2
    assert torch.equal(together[1, 0], bias)
    for row in (0, 4, 11):
        assert torch.equal(together.view(12, 7)[row], matrix(torch.from_numpy(x[row : row + 1]))[0])
    half = w8a8.matrix(quantize(weights, smooth.WEIGHTS), torch.zeros(1), bias.bfloat16())
    assert half(torch.from_numpy(x).bfloat16()).dtype == torch.bfloat16


def test_integers_are_summed_exactly():
    """Catches sums in float32: 4,096 products of 127 · 127 pass 2^24."""
    x = torch.full((1, 4096), 127, dtype=torch.int8)
    w = torch.full((8, 4096), 127, dtype=torch.int8)
    w[0, 0] = 126
    assert w8a8.integer_product(x, w)[0, :2].tolist() == [127 * 127 * 4096 - 127, 127 * 127 * 4096]
    assert w8a8.in_floats(x, w).tolist() == w8a8.integer_product(x, w).tolist()  # where the processor cuts sums off


def test_the_factors_are_equation_4():
    """Catches the two exponents swapped. Figures by hand: α = 1/2 of max|X| = 16, max|W| = 4 is √16 / √4 = 2."""
    weights = np.array([[4, 1, 0, -0.5], [-1, -1, 0, 0.25]], np.float32)
    largest = np.array([16, 1, 5, 0], np.float32)
    np.testing.assert_allclose(smooth.factors(largest, weights), [2, 1, 1, 1])  # a channel or column of zeros is left alone
    np.testing.assert_allclose(smooth.factors(largest, weights, 1.0), [16, 1, 1, 1])
    np.testing.assert_allclose(smooth.factors(largest, weights, 0.0), [0.25, 1, 1, 1])
    np.testing.assert_allclose(smooth.factors(largest, weights, 0.75), [8 / 4**0.25, 1, 1, 1])


def test_one_half_makes_both_sides_equally_hard():
    """Catches factors that leave the larger maximum where it was: after α = 1/2 both have the same maximum in every channel."""
    x, weights = layer(2, outlier=50)
    s = smooth.factors(np.abs(x).max(0), weights)
    np.testing.assert_allclose(np.abs(x / s).max(0), np.abs(weights * s).max(0), rtol=1e-5)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_an_outlier_is_made_harmless(seed):
    """Catches smoothing that changes the function, or does not help where it should."""
    x, weights = layer(seed, rows=32, outlier=80)
    s = smooth.factors(np.abs(x).max(0), weights)
    np.testing.assert_allclose((x / s) @ (weights * s).T, x @ weights.T, rtol=1e-3, atol=1e-3)
    rest = [j for j in range(24) if j != 3]  # what the other channels say, which the large one drowns
    assert smooth.error(x[:, rest], weights[:, rest]) < 1e-3
    assert smooth.error(x, weights, s) < smooth.error(x, weights)


def test_alpha_is_a_share():
    for alpha in (-0.1, 1.5, float("nan")):
        with pytest.raises(BadInput, match="from 0 to 1"):
            smooth.factors(np.ones(4, np.float32), np.ones((2, 4), np.float32), alpha)
