"""Keys and values from a short vector: the NumPy forward against the engine, the factorisation against a plain SVD, the cache that
holds only c against the model that computes the same function."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from compute import latent
from compute.engine import latents
from compute.engine.model import forward, hidden_states, rotate, rotation
from compute.engine.registry import shared
from compute.errors import BadInput

TEXT = "小明把苹果给了小王。小王很高兴，"


@pytest.fixture(scope="module")
def model():
    return shared().get("mini-256")


@pytest.fixture(scope="module")
def read(model):
    ids = model.tokenizer.encode(TEXT)
    return ids, latent.read(tuple(ids))


def run(model, weights, ids):
    return forward(weights, torch.tensor([ids]), None, torch.arange(len(ids))[None])[0]


def test_the_forward_here_is_the_engines(model, read):
    """Catches: a norm, rotation, mask or gate that differs from the engine's in any layer. The tap sees what the engine multiplies."""
    ids, seen = read
    found = {}

    class Tap:
        def __init__(self, name, matrix):
            self.name, self.matrix, self.shape, self.bytes, self.bias = name, matrix, matrix.shape, matrix.bytes, matrix.bias

        def __call__(self, x):
            found[self.name] = (x[0], self.matrix(x)[0])
            return self.matrix(x)

    from compute.engine.model import with_matrices

    hidden_states(with_matrices(model.weights, Tap), torch.tensor([ids]), None, torch.arange(len(ids))[None])
    for i, layer in enumerate(seen):
        hidden, qkv = (x.numpy() for x in found[f"{i}.qkv"])
        assert np.abs(layer.hidden - hidden).max() < 2e-4
        assert np.abs(layer.kept - qkv[:, -latent.shape().kept :]).max() < 5e-4
        assert np.abs(latent.attend(layer.queries, layer.kept) - found[f"{i}.out"][0].numpy()).max() < 5e-4


def test_attention_against_torch(read):
    """Catches: a head that looks at another group's keys, or at tokens to come."""
    _, seen = read
    s, x, T = latent.shape(), seen[2], len(seen[2].kept)
    turn = rotation(torch.arange(T)[None], torch.tensor(1.0 / s.theta ** (np.arange(0, s.head_dim, 2) / s.head_dim), dtype=torch.float32))
    k, v = torch.tensor(x.kept).view(1, T, 2, s.kv_heads, s.head_dim).unbind(2)
    q, k = rotate(torch.tensor(x.queries)[None], turn), rotate(k, turn)
    k, v = (y.repeat_interleave(s.heads // s.kv_heads, dim=2).transpose(1, 2) for y in (k, v))
    want = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True).transpose(1, 2).reshape(T, -1)
    assert np.abs(latent.attend(x.queries, x.kept) - want.numpy()).max() < 1e-4


def test_no_rank_r_product_is_nearer_than_an_svd_allows():
    """Catches: directions of the wrong matrix, or in the wrong order. Referee: the truncated SVD of Y = W H itself on the calibrating
    text, whose error is the square of the singular values that are dropped."""
    from compute.quantize import calibration

    flat = [t for text in calibration.written() for t in text][: latent.CALIBRATING * calibration.LENGTH]
    windows = [flat[i : i + calibration.LENGTH] for i in range(0, len(flat), calibration.LENGTH)]
    hidden = np.concatenate([latent.read(tuple(w))[3].hidden for w in windows]).astype(np.float64)
    y = hidden @ latent.layer(3).keys_values.T.astype(np.float64)
    singular = np.linalg.svd(y, compute_uv=False)
    for rank in (32, 128):
        made = latent.factors(3, rank)
        assert made.down.shape == (rank, 256) and made.up.shape == (256, rank)
        again = (hidden @ made.down.T) @ made.up.T
        assert np.sum((y - again) ** 2) == pytest.approx(np.sum(singular[rank:] ** 2), rel=1e-4)
    plain = latent.factors(3, 64, "weights")
    assert np.sum((y - hidden @ plain.down.T @ plain.up.T) ** 2) > 1.5 * np.sum(singular[64:] ** 2)


def test_all_directions_change_nothing_and_few_change_much(model, read):
    """Catches: rows of queries or of another layer replaced with those of keys and values."""
    ids, seen = read
    own = run(model, model.weights, ids)
    assert (run(model, latents.low_rank(model.weights, 256), ids) - own).abs().max() < 1e-3
    assert (run(model, latents.low_rank(model.weights, 16), ids) - own).abs().max() > 1
    lost = latent.lost(1, seen[1], latent.rebuilt(seen[1], latent.factors(1, 256))[1])
    assert max(lost.keys, lost.values, lost.attention) < 1e-4


def test_a_cache_of_latents_computes_the_same_function(model, read):
    """Catches: c taken after rotation, keys not turned again, or a cache that secretly holds more than r numbers a token."""
    ids, _ = read
    cache = latents.LatentCache(model.weights, 1, len(ids), 96)
    assert cache.bytes == 4 * len(ids) * 96 * 4  # layers × tokens × r × float32
    parts = [ids[:4], *[[i] for i in ids[4:]]]
    at, found = 0, []
    for part in parts:
        positions = torch.arange(at, at + len(part))[None]
        found.append(forward(model.weights, torch.tensor([part]), cache, positions)[0])
        at += len(part)
    assert (torch.cat(found) - run(model, latents.low_rank(model.weights, 96), ids)).abs().max() < 1e-3


def test_pooled_heads_are_the_mean_of_two(model):
    """Catches: K averaged with V, or only the first head kept. By hand from the checkpoint's rows: 4 × 64 of queries, then K, K, V, V."""
    rows = model.weights.layers[2].qkv.weight[256:].numpy().astype(np.float64)
    got = latent.pooled(2)
    for first in (0, 128):
        mean = (rows[first : first + 64] + rows[first + 64 : first + 128]) / 2
        assert np.allclose(got[first : first + 64], mean) and np.allclose(got[first + 64 : first + 128], mean)
    assert (latents.pooled(model.weights).layers[2].qkv.weight[:256] == model.weights.layers[2].qkv.weight[:256]).all()


def test_texts_that_cannot_be_shown_are_refused():
    """Catches: a picture of nothing, or of hundreds of tokens."""
    for text in ("", "很" * 60):
        with pytest.raises(BadInput):
            latent.read_text(text)
