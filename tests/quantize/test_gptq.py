"""GPTQ against least squares, against itself in other blocks, and against plain rounding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compute.errors import BadInput
from compute.quantize.gptq import gptq, output_error, steps
from compute.quantize.grid import DOUBLE, E2M1, E4M3_SCALES, NF4, Grid, Uniform, fit, quantize

GRIDS = {
    "tensor": Grid(Uniform(4), "tensor"),
    "channel": Grid(Uniform(3), "channel"),
    "groups": Grid(Uniform(4), 8),
    "groups of one": Grid(Uniform(3), 1),
    "zero points": Grid(Uniform(3, False), 8),
    "a table": Grid(NF4, 16),
    "scales of scales": Grid(E2M1, 16, E4M3_SCALES),
    "double": Grid(NF4, 16, DOUBLE),
}


def layer(seed: int, rows: int = 6, width: int = 32, tokens: int = 200):
    """Weights, and the Hessian of inputs whose channels go together and differ in size, as activations do."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(width, width)) + 3 * rng.normal(size=(width, 1))
    x = rng.normal(size=(tokens, width)) @ mixing * rng.uniform(0.2, 2, width)
    return rng.normal(size=(rows, width)).astype(np.float32), 2 / tokens * x.T @ x, x


@pytest.mark.parametrize("act_order", (False, True))
def test_free_columns_are_the_least_squares_answer(act_order):
    """Catches a wrong factor, a wrong sign, or errors spread to the wrong columns. Referee: with the codes so far held fast, the
    remaining weights that minimise ‖W x − Ŵ x‖² + damping, by lstsq on the inputs themselves."""
    weights, hessian, x = layer(0, rows=3, width=12)
    damping = 0.02
    ridge = np.sqrt(damping * np.diag(hessian).mean() * len(x) / 2) * np.eye(12)
    data = np.vstack([x, ridge])
    now, fixed = weights.astype(np.float64), []
    for step in steps(weights, hessian, Grid(Uniform(3), "channel"), damping, act_order):
        free = step.later
        np.testing.assert_allclose(step.before, now[:, step.column], atol=1e-9)
        now[:, step.column] = step.restored
        now[:, free] += step.spread
        fixed.append(step.column)
        missing = data[:, fixed] @ (weights - now)[:, fixed].T  # what the fixed columns get wrong
        expected = weights[:, free].T + np.linalg.lstsq(data[:, free], missing, rcond=None)[0]
        np.testing.assert_allclose(now[:, free].T, expected, atol=1e-7)
    assert sorted(fixed) == list(range(12))


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_blocks_of_columns_change_nothing(grid):
    """Catches a lazy update that forgets a column, and a group fitted before its columns are up to date."""
    weights, hessian, _ = layer(1)
    whole = gptq(weights, hessian, grid, columns=32)
    for columns in (1, 5, 8, 12):
        made = gptq(weights, hessian, grid, columns=columns)
        np.testing.assert_array_equal(made.codes, whole.codes)
        np.testing.assert_array_equal(made.steps.scales, whole.steps.scales)


@pytest.mark.parametrize("act_order", (False, True))
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_the_steps_are_the_algorithm(grid, act_order):
    """Catches a picture that differs from what is stored: codes, restored weights and both running errors."""
    weights, hessian, _ = layer(2)
    made, told = gptq(weights, hessian, grid, act_order=act_order), list(steps(weights, hessian, grid, act_order=act_order))
    codes = np.empty_like(made.codes)
    for step in told:
        codes[:, step.column] = step.codes
        np.testing.assert_array_equal(made.restored()[:, step.column], step.restored)
    np.testing.assert_array_equal(codes, made.codes)
    assert told[-1].output_error == pytest.approx(output_error(made.restored() - weights, hessian))
    rounded, now = quantize(weights, grid).restored(), weights.copy()
    for step in told:  # catches all columns rounded from the start, and columns in the order of the matrix under act_order
        now[:, step.column] = rounded[:, step.column]
        assert step.plain_error == pytest.approx(output_error(now - weights, hessian))
    assert told[0].later.size == 31 and told[-1].later.size == told[-1].spread.size == 0


def test_the_output_error_is_what_tokens_see():
    """Catches a forgotten half. Referee: the products themselves."""
    weights, hessian, x = layer(3)
    delta = quantize(weights, GRIDS["groups"]).restored() - weights
    assert output_error(delta, hessian) == pytest.approx(np.square(x @ delta.T).sum(-1).mean())


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_uncorrelated_inputs_leave_plain_rounding(grid):
    """Catches any compensation where there is nothing to compensate with, also with act-order and damping."""
    weights, plain = layer(4)[0], quantize(layer(4)[0], grid)
    for act_order in (False, True):
        made = gptq(weights, np.eye(32), grid, damping=0.1, act_order=act_order)
        np.testing.assert_array_equal(made.codes, plain.codes)
        np.testing.assert_array_equal(made.steps.scales, plain.steps.scales)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(["tensor", "channel", "groups", "zero points", "a table"]))
def test_correlated_inputs_are_worth_using(seed, name):
    """Catches compensation that works only where it was tried. Four layers together, as single ones may go the other way."""
    before = after = 0.0
    for part in range(4):
        weights, hessian, _ = layer(4 * seed + part)
        before += output_error(quantize(weights, GRIDS[name]).restored() - weights, hessian)
        after += output_error(gptq(weights, hessian, GRIDS[name]).restored() - weights, hessian)
    assert after < before


def test_a_group_is_fitted_when_it_is_reached():
    """Catches scales of the untouched weights. Referee: `fit` on the columns as the steps say they stood."""
    weights, hessian, _ = layer(5)
    grid, now = Grid(Uniform(4), 8), layer(5)[0].astype(np.float64)
    for step in steps(weights, hessian, grid):
        if step.column % 8 == 0:
            expected = fit(now[:, step.column : step.column + 8].astype(np.float32), Grid(Uniform(4), "channel")).scales[:, 0]
        np.testing.assert_array_equal(step.scales, expected)
        now[:, step.column] = step.restored
        now[:, step.later] += step.spread
    untouched = fit(weights, grid).scales
    made = gptq(weights, hessian, grid).steps.scales
    assert (made[:, 0] == untouched[:, 0]).all() and (made[:, 1:] != untouched[:, 1:]).any()


def test_act_order_takes_large_activations_first_and_keeps_groups():
    """Catches an order by rising diagonal, and codes left in the order of their turn."""
    weights, hessian, _ = layer(6)
    order = [step.column for step in steps(weights, hessian, GRIDS["groups"], act_order=True)]
    assert (np.diff(np.diag(hessian)[order]) <= 0).all()
    made = gptq(weights, hessian, GRIDS["groups"], act_order=True)
    np.testing.assert_array_equal(made.steps.scales, fit(weights, GRIDS["groups"]).scales)  # static groups
    assert np.abs(made.restored() - weights).max() < 8 * made.steps.scales.max()


def test_a_channel_that_was_never_active_is_rounded_to_nearest():
    """Catches a division by zero, and a dead channel that takes over what others got wrong."""
    weights, _, x = layer(7)
    x[:, [3, 20]] = 0
    made = gptq(weights, 2 / len(x) * x.T @ x, GRIDS["channel"])
    np.testing.assert_array_equal(made.codes[:, [3, 20]], quantize(weights, GRIDS["channel"]).codes[:, [3, 20]])
    np.testing.assert_array_equal(gptq(weights, np.zeros((32, 32)), GRIDS["channel"]).codes, quantize(weights, GRIDS["channel"]).codes)


def test_damping_is_measured_on_the_channels_that_live():
    """Catches a mean diagonal into which dead channels count as 0: the others would be damped less. Referee: the matrix without them."""
    weights, _, x = layer(7)
    x[:, 8:], weights[:, 8:] = 0, 0
    made = gptq(weights, 2 / len(x) * x.T @ x, GRIDS["channel"], damping=1)
    np.testing.assert_array_equal(made.codes[:, :8], gptq(weights[:, :8], 2 / len(x) * x[:, :8].T @ x[:, :8], GRIDS["channel"], damping=1).codes)


def test_rows_and_groups_of_zeros_stay_zeros():
    """Catches 0 / 0 in a scale, and errors of other rows that leak in."""
    weights, hessian, _ = layer(8)
    weights[2], weights[4, :8] = 0, 0
    restored = gptq(weights, hessian, GRIDS["groups"]).restored()
    assert (restored[2] == 0).all() and (restored[4, :8] == 0).all() and np.isfinite(restored).all()


def test_what_cannot_be():
    """Catches a traceback of LAPACK, and quiet nonsense."""
    weights, hessian, x = layer(9)
    with pytest.raises(BadInput, match="divide rows of 32"):
        gptq(weights, hessian, Grid(Uniform(4), 5))
    with pytest.raises(BadInput, match="2 to 8 bits"):
        Grid(Uniform(1), 8)
    for wrong in (hessian[:8, :8], np.full_like(hessian, np.nan)):
        with pytest.raises(BadInput, match=r"\(32, 32\) is needed"):
            gptq(weights, wrong, GRIDS["groups"])
    for bad in (np.nan, np.inf):
        with pytest.raises(BadInput, match="not finite, the first in row 1, column 2"):
            gptq(np.where((np.arange(6) == 1)[:, None] & (np.arange(32) == 2), bad, weights), hessian, GRIDS["groups"])
    for damping in (-1, -5, np.nan, np.inf):
        with pytest.raises(BadInput, match="at least 0"):
            gptq(weights, hessian, GRIDS["groups"], damping=damping)
    with pytest.raises(BadInput, match="columns"):
        gptq(weights, hessian, GRIDS["groups"], columns=0)
    with pytest.raises(BadInput, match="singular"):
        gptq(weights, -hessian, GRIDS["groups"])
    few = 2 / 20 * x[:20].T @ x[:20]  # 20 tokens, 32 channels
    with pytest.raises(BadInput, match="singular; take more calibration text"):
        gptq(weights, few, GRIDS["groups"], damping=0)
    assert np.isfinite(gptq(weights, few, GRIDS["groups"]).restored()).all()
