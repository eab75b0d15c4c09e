"""AWQ's scales, and the search over β, against a loop written out."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compute.errors import BadInput, Cancelled
from compute.quantize.awq import POINTS, scales, search
from compute.quantize.grid import Grid, Uniform, quantize
from compute.quantize.rescale import tied

GRID = Grid(Uniform(3), 16)


def layer(seed: int, spread: float = 30.0, rows: int = 8, width: int = 32, tokens: int = 64):
    """Weights, mean |x|, and inputs whose channels differ `spread`-fold."""
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(tokens, width)) * np.geomspace(1, spread, width)[rng.permutation(width)]).astype(np.float32)
    return rng.normal(size=(rows, width)).astype(np.float32), np.abs(x).mean(0), x


def test_the_search_is_the_loop_written_out():
    """Catches an error that is not the layer's output error, and a β that is not the best one tried."""
    weights, mean, x = layer(0)
    found = search(weights, mean, x, GRID)
    errors = []
    for point in range(POINTS):
        beta, s = point / 20, np.ones(32)
        for j in range(32):
            s[j] = float(mean[j]) ** beta
        s = (s / np.sqrt(s.max() * s.min())).astype(np.float32)
        made = quantize(weights * s, GRID).restored()
        outputs = x.astype(np.float64) @ weights.T - (x / s).astype(np.float64) @ made.T
        errors.append((outputs**2).sum(1).mean())
    np.testing.assert_allclose(found.errors, errors, rtol=1e-3)
    assert found.beta == np.argmin(errors) / 20 and 0 < found.beta
    np.testing.assert_array_equal(found.scales, scales(mean, found.beta))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([1.0, 10.0, 100.0]))
def test_never_worse_than_plain_rounding_on_what_it_looked_at(seed, spread):
    """Catches a grid for β without its end at 0."""
    weights, mean, x = layer(seed, spread)
    found = search(weights, mean, x, GRID)
    plain = np.square(x.astype(np.float64) @ (quantize(weights, GRID).restored() - weights).T).sum(-1).mean()
    assert min(found.errors) <= found.errors[0] == pytest.approx(plain, rel=1e-4)


def test_equal_channels_leave_nothing_to_scale():
    """Catches scales that come from anywhere but the differences between channels."""
    np.testing.assert_array_equal(scales(np.full(8, 0.3, np.float32), 0.7), np.ones(8))
    np.testing.assert_array_equal(scales(np.arange(1, 9, dtype=np.float32), 0.0), np.ones(8))


def test_a_channel_that_was_never_active():
    """Catches 0^β, by which its weights would be divided away."""
    s = scales(np.array([0, 0.25, 1], np.float32), 0.5)
    np.testing.assert_allclose(s, np.array([0.5, 0.5, 1]) / np.sqrt(0.5), rtol=1e-6)
    np.testing.assert_array_equal(scales(np.zeros(3, np.float32), 0.5), np.ones(3))


def test_refusals_and_stopping():
    weights, mean, x = layer(1)
    with pytest.raises(BadInput, match="divide rows of 32"):
        search(weights, mean, x, Grid(Uniform(3), 5))
    with pytest.raises(BadInput, match="not finite"):
        search(np.full_like(weights, np.inf), mean, x, GRID)

    def leave():
        raise Cancelled()

    with pytest.raises(Cancelled):
        search(weights, mean, x, GRID, check=leave)


def test_heads_that_share_a_value_share_a_scale():
    """Catches the larger of two query heads taken for both. Two value heads of two channels, each for two query heads."""
    shape = SimpleNamespace(kv_heads=2, head_dim=2)
    np.testing.assert_array_equal(tied(shape, np.array([1, 2, 3, 4, 10, 20, 30, 40.0])), [2, 3, 2, 3, 20, 30, 20, 30])
