"""What observing matrices write down, against the products of a plain forward written out."""

import numpy as np
import pytest
import torch

from compute.engine.model import MATRICES, forward, rms_norm
from compute.errors import BadInput, Cancelled
from compute.quantize.observe import ROWS, Watch, enough, in_turn, observe
from tests.engine.conftest import made, model  # noqa: F401

TEXTS = [[5 + (7 * i * j) % 300 for i in range(length)] for j, length in enumerate((40, 100, 40, 7, 100, 90), 1)]
TOKENS = sum(map(len, TEXTS))


def test_what_is_seen_is_what_flows(model):
    """Catches inputs counted twice or left out, a Hessian over padding, and matrices that go by another's name. Referee: the first
    layer's qkv sees the normed embeddings, the head the normed result that its logits are made of."""
    seen = observe(model.weights, TEXTS)
    assert list(seen) == [f"{n}.{name}" for n in range(3) for name in MATRICES] + ["head"]
    w, c = model.weights, model.config
    x = rms_norm(w.embedding[torch.tensor(sum(TEXTS, []))], w.layers[0].attention_norm, c.norm_eps).double().numpy()
    first = seen["0.qkv"]
    np.testing.assert_allclose(first.hessian, 2 / TOKENS * x.T @ x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(first.largest, np.abs(x).max(0), rtol=1e-6)
    np.testing.assert_allclose(first.mean, np.abs(x).mean(0), rtol=1e-5)
    rows = {tuple(np.round(row, 4)) for row in x}
    assert len(first.sample) <= ROWS and all(tuple(np.round(row.astype(np.float64), 4)) in rows for row in first.sample)
    logits = torch.cat([forward(w, torch.tensor([t]), None, torch.arange(len(t))[None])[0] for t in TEXTS])
    hidden = torch.linalg.lstsq(w.head.weight.double(), logits.double().T).solution.T.numpy()
    np.testing.assert_allclose(seen["head"].hessian, 2 / TOKENS * hidden.T @ hidden, rtol=1e-3, atol=1e-3)
    assert {len(i.largest) for i in seen.values()} == {64, 96} and all(i.tokens == TOKENS for i in seen.values())


def test_the_sample_is_spread_over_the_text(model):
    """Catches a sample of the first batch only. A head of twenty batches gives the rows of every stride-th token."""
    texts = [TEXTS[1]] * 30  # equal rows, so that a place in the text can be told from a row
    seen = observe(model.weights, texts)["0.qkv"]
    alone = observe(model.weights, [TEXTS[1]])["0.qkv"].sample  # all hundred tokens
    stride = -(-3000 // ROWS)
    np.testing.assert_array_equal(seen.sample, alone[np.arange(0, 3000, stride) % 100])


def test_what_is_not_kept_is_let_go(model):
    """Catches a sample whose rows are views, so that every input of the text stays in memory."""
    watch = Watch(model.weights.layers[0].qkv, 1000, False)
    watch.see(torch.randn(1000, 64))
    (kept,) = watch.sample
    assert len(kept) == 250 and kept.untyped_storage().nbytes() == 250 * 64 * 4


def test_without_hessian_the_rest_is_the_same(model):
    plain, short = observe(model.weights, TEXTS), observe(model.weights, TEXTS, hessian=False)
    for name, inputs in plain.items():
        assert short[name].hessian is None
        np.testing.assert_array_equal(inputs.largest, short[name].largest)


def test_in_turn_sees_what_observe_sees_while_nothing_changes(model):
    """Catches a layer that is run with another's weights, or twice. Referee: one ordinary pass."""
    seen, told = observe(model.weights, TEXTS), {}

    def keep(number, layer, inputs):
        told.update({f"{number}.{name}": found for name, found in inputs.items()})
        return layer

    same = in_turn(model.weights, TEXTS, keep)
    assert same.layers == model.weights.layers
    for name, found in told.items():
        np.testing.assert_allclose(found.hessian, seen[name].hessian, rtol=1e-6)
        np.testing.assert_array_equal(found.largest, seen[name].largest)


def test_in_turn_gives_later_layers_what_the_changed_ones_make(model):
    """Catches calibration on a model that will not exist. Referee: an ordinary pass over the model with that layer changed."""
    from dataclasses import replace

    told = {}

    def change(number, layer, inputs):
        told[number] = inputs["qkv"]
        return replace(layer, mlp_norm=layer.mlp_norm * 3) if number == 0 else layer

    changed = in_turn(model.weights, TEXTS, change)
    np.testing.assert_allclose(told[2].hessian, observe(changed, TEXTS)["2.qkv"].hessian, rtol=1e-6)
    assert not np.allclose(told[2].hessian, observe(model.weights, TEXTS)["2.qkv"].hessian, rtol=0.01)


def test_too_short_a_text(model):
    """Catches a singular Hessian that damping would hide."""
    seen = observe(model.weights, [TEXTS[0], TEXTS[0]])  # 80 tokens
    assert enough(seen["0.qkv"]) is seen["0.qkv"]
    with pytest.raises(BadInput, match="'80 tokens' is not possible: a matrix of 96 input channels needs at least 96 tokens") as caught:
        enough(seen["0.down"])
    assert "至少要 96 个 token" in caught.value.message("zh")
    for texts in ([], [[]]):
        with pytest.raises(BadInput, match="no token to calibrate with"):
            observe(model.weights, texts)
    with pytest.raises(BadInput, match="longer than the model's context of 128"):
        observe(model.weights, [[5] * 129])


def test_observing_can_be_stopped(model):
    """Catches a pass that runs to its end after the reader has left."""
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 2:
            raise Cancelled()

    with pytest.raises(Cancelled):
        observe(model.weights, TEXTS, check=check)
    assert len(calls) == 2
