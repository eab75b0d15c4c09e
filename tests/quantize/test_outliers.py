"""Planted outliers, and the exact rescaling behind them, AWQ and SmoothQuant."""

import numpy as np
import pytest
import torch

from compute.engine.model import MATRICES, forward
from compute.errors import BadInput
from compute.quantize import outliers
from compute.quantize.observe import observe
from compute.quantize.rescale import rescaled, tied
from tests.engine.conftest import made, model  # noqa: F401

TEXT = [5 + (7 * i * i) % 300 for i in range(100)]
CASES = ("llama, grouped heads, tied", "llama, biases everywhere", "llama, one key head for all", "qwen3, norms and biases")


def logits(weights):
    return forward(weights, torch.tensor([TEXT]), None, torch.arange(100)[None])[0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", MATRICES)
def test_rescaling_leaves_the_function(made, case, name):
    """Catches a factor divided out at the wrong place: other rows, another norm, a forgotten bias."""
    weights = made(case)[1].weights
    rng = np.random.default_rng(0)
    factors = {}
    for n, layer in enumerate(weights.layers):
        s = rng.uniform(0.1, 8, getattr(layer, name).shape[1])
        factors[f"{n}.{name}"] = tied(weights.config, s) if name == "out" else s
    changed = rescaled(weights, factors)
    before, after = logits(weights), logits(changed)
    assert float((after - before).abs().max()) < 2e-5 * float(before.abs().max()) + 1e-5
    assert not torch.equal(getattr(changed.layers[0], name).weight, getattr(weights.layers[0], name).weight)


def test_inputs_are_divided(model):
    """Catches columns that are multiplied while the inputs stay. Referee: observed before and after."""
    rng = np.random.default_rng(1)
    before = observe(model.weights, [TEXT])
    factors = {name: rng.uniform(0.5, 4, len(seen.mean)) for name, seen in before.items() if name != "head"}
    factors |= {name: tied(model.config, s) for name, s in factors.items() if name.endswith("out")}
    after = observe(rescaled(model.weights, factors), [TEXT])
    for name, s in factors.items():
        np.testing.assert_allclose(after[name].largest * s, before[name].largest, rtol=1e-3)
    np.testing.assert_allclose(after["head"].largest, before["head"].largest, rtol=1e-3)


def test_planting_changes_not_one_bit_of_the_result(model):
    """Catches a planted model that is another model: with a factor of two's power even rounding is the same."""
    before = logits(model.weights)
    assert torch.equal(logits(outliers.plant(model.weights)), before)
    odd = logits(outliers.plant(model.weights, factor=30, count=7, seed=3))
    assert float((odd - before).abs().max()) < 1e-4 and not torch.equal(odd, before)


def test_planted_channels_are_found_and_no_others(model):
    """Catches outliers before the wrong matrices, or in a channel that is not the one named."""
    weights = outliers.plant(model.weights, seed=2)
    channels = outliers.planted_channels(64, seed=2)
    assert len(channels) == outliers.COUNT and channels != outliers.planted_channels(64, seed=5)
    before, after = observe(model.weights, [TEXT]), observe(weights, [TEXT])
    for name, seen in after.items():
        factor = seen.largest / before[name].largest
        planted = name.endswith(("qkv", "gate_up"))
        assert [j for j in range(len(factor)) if factor[j] > 1.5] == (channels if planted else [])
        if planted:
            found = outliers.found(seen.largest)
            assert sorted(o.channel for o in found) == channels and min(o.ratio for o in found) > 10
            assert found[0].largest == seen.largest.max() == pytest.approx(found[0].ratio * np.median(seen.largest), rel=1e-5)


def test_naming_outliers():
    """By hand: a median of 2, so 12 is six times as large and 11.9 is not."""
    largest = np.array([2, 1, 2, 12, 3, 11.9, 40], np.float32)
    largest[4] = 2
    assert [(o.channel, o.ratio) for o in outliers.found(largest)] == [(6, 20.0), (3, 6.0)]
    assert outliers.found(np.zeros(4, np.float32)) == [] == outliers.found(np.ones(4, np.float32))


def test_what_cannot_be_planted():
    for count in (0, 65):
        with pytest.raises(BadInput, match="there are 64 channels"):
            outliers.planted_channels(64, count)
