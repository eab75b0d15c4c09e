"""Keys and values in 8 and 4 bits: one head's vector at a time by hand, the stored cache against the round trip, and its bytes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from compute.engine.generate import generate
from compute.engine.model import KVCache, forward, place
from compute.errors import BadInput
from compute.quantize.grid import Grid, Uniform, kv_vector_bits, quantize
from compute.quantize.kv import KVRoundTrip, QuantizedKVCache, encode, restore, there_and_back
from tests.engine import tiny
from tests.engine.tiny import ids

BITS = (8, 4)


def rows(batch: int, tokens: int, first: int = 0) -> torch.Tensor:
    return torch.arange(first, first + tokens).expand(batch, tokens)


class Naive:
    """The cache as a loop: every vector of every position is quantized by grid.py, every query looks for itself."""

    def __init__(self, bits: int):
        self.grid, self.kept = Grid(Uniform(bits, symmetric=False), "channel"), {}

    def place(self, positions, device):
        return place(positions, device)

    def attend(self, layer, queries, keys, values, here):
        held = self.kept.setdefault(layer, {})
        made = torch.zeros_like(queries)
        for b, t in np.ndindex(*here.positions.shape):
            now = int(here.positions[b, t])
            held[b, now] = [torch.from_numpy(quantize(x[b, t].numpy(), self.grid).restored()) for x in (keys, values)]
            for head in range(queries.shape[2]):
                of = head // (queries.shape[2] // keys.shape[2])
                seen_keys, seen_values = (torch.stack([held[b, s][which][of] for s in range(now + 1)]) for which in (0, 1))
                shares = (seen_keys @ queries[b, t, head] / queries.shape[3] ** 0.5).softmax(0)
                made[b, t, head] = shares @ seen_values
        return made


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 5), st.sampled_from([2, 8])), elements=st.floats(-1e3, 1e3, width=32)), st.sampled_from(BITS)
)
@settings(deadline=None)
def test_the_tensors_grid_is_numpy_s(x, bits):
    """Catches: two grids that drift apart: scales, zero points, codes, restored values, bit for bit."""
    made = quantize(x, Grid(Uniform(bits, symmetric=False), "channel"))
    codes, scales, zeros = encode(torch.from_numpy(x), bits)
    assert np.array_equal(scales.float().numpy(), made.steps.scales) and np.array_equal(zeros.numpy(), made.steps.zeros)
    assert np.array_equal(codes.numpy(), made.codes) and np.array_equal(restore(codes, scales, zeros).numpy(), made.restored())


def test_one_vector_by_hand():
    """Catches: a range without zero, a zero point by the wrong end. −1 … 2 in 4 bits: 3 / 15 = 0.2, as a float16 that reaches both ends
    0.20007; z = rint(1 / 0.20007) = 5; 0.3 → rint(1.499) + 5 = 6, back 0.2; 2 → 10 + 5."""
    codes, scales, zeros = encode(torch.tensor([-1.0, 0.3, 0.0, 2.0]), 4)
    assert scales.tolist() == [float(np.nextafter(np.float16(0.2), np.float16(1)))] and zeros.tolist() == [5]
    assert codes.tolist() == [0, 6, 5, 15]
    assert np.allclose(restore(codes, scales, zeros), [-1.0, 0.2, 0, 2.0], atol=1e-3)


def test_a_key_beyond_float16_is_held_at_its_end():
    """Catches: an infinite scale, and NaN in every later attention."""
    codes, scales, zeros = encode(torch.tensor([3e6, 0.0, -1.0]), 4)
    assert restore(codes, scales, zeros).tolist() == [15 * 65504, 0, 0]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("case", ["llama, grouped heads, tied", "llama, one key head for all", "qwen3, query and key norms"])
def test_a_text_through_the_round_trip_is_a_loop_over_vectors(made, case, bits):
    """Catches: a scale shared by heads or positions, keys quantized before they are turned, one's own key seen exactly."""
    weights = made(case)[1].weights
    tokens = torch.cat([ids(12), ids(12, seed=1)])
    ours = forward(weights, tokens, KVRoundTrip(bits), rows(2, 12))
    loop = forward(weights, tokens, Naive(bits), rows(2, 12))
    exact = forward(weights, tokens, None, rows(2, 12))
    assert tiny.far_apart(ours, loop) < 1e-5
    assert tiny.far_apart(ours, exact) > 1e-4  # it does something


@pytest.mark.parametrize("bits", BITS)
def test_the_stored_cache_gives_back_what_the_round_trip_does(model, bits):
    """Catches: codes that are lost in packing. The same logits when the text is read at once."""
    tokens = torch.cat([ids(20), ids(20, seed=1)])
    cache = QuantizedKVCache(model.weights, 2, 24, bits)
    stored, passed = (forward(model.weights, tokens, way, rows(2, 20)) for way in (cache, KVRoundTrip(bits)))
    assert tiny.far_apart(stored, passed) < 1e-6


@pytest.mark.parametrize("bits", BITS)
def test_token_by_token_in_parts_and_at_once(model, bits):
    """Catches: a slot that changes when the next token comes, rows of different lengths written to each other's places. In parts a
    product adds in another order, and a value between two codes may fall to the other: hence not to the last bit."""
    tokens = ids(20)
    whole = forward(model.weights, tokens, KVRoundTrip(bits), rows(1, 20))
    for part in (1, 7):
        cache = QuantizedKVCache(model.weights, 1, 20, bits)
        made = [forward(model.weights, tokens[:, at : at + part], cache, rows(1, 20)[:, at : at + part]) for at in range(0, 20, part)]
        assert tiny.far_apart(torch.cat(made, 1), whole) < {8: 2e-3, 4: 2e-2}[bits]


def test_rows_of_different_lengths(model):
    """Catches: scales stored at another row's positions. Two texts of 9 and 5 tokens go on by one; each as if alone."""
    texts = [ids(10)[0], ids(6, seed=1)[0]]
    cache = QuantizedKVCache(model.weights, 2, 10, 8)
    padded = torch.zeros(2, 9, dtype=torch.long)
    for row, text in enumerate(texts):
        padded[row, : len(text) - 1] = text[:-1]
    forward(model.weights, padded, cache, rows(2, 9))
    together = forward(model.weights, torch.stack([text[-1:] for text in texts]), cache, torch.tensor([[9], [5]]))
    for row, text in enumerate(texts):
        alone = forward(model.weights, text[None], KVRoundTrip(8), rows(1, len(text)))
        assert tiny.far_apart(together[row, 0], alone[0, -1]) < 2e-3


@pytest.mark.parametrize("bits", BITS)
def test_generation_reads_the_quantized_cache(model, bits):
    """Catches: `generate` building a cache of its own. Greedy against the round trip over the whole text at each step."""
    prompt, n = ids(8)[0].tolist(), 12
    cache = QuantizedKVCache(model.weights, 1, 20, bits)
    steps = list(generate(model, prompt, n, cache=cache, ignore_end=True))
    assert cache.codes[:, :, :, :19].any(-1).all() and not cache.codes[:, :, :, 19:].any()  # the last token is not read again
    text = list(prompt)
    for step in steps:
        row = forward(model.weights, torch.tensor([text]), KVRoundTrip(bits), rows(1, len(text)))[0, -1]
        assert row[step.token] >= row.max() - 0.01 * row.abs().max()
        text.append(step.token)


def kivi(vector: np.ndarray, bits: int) -> list[float]:
    """Liu et al. 2024, eq. 1: z = min x, s = (max x − z) / (2^B − 1), both float16."""
    z, s = float(np.float16(vector.min())), float(np.float16((vector.max() - vector.min()) / (2**bits - 1)))
    return [z + s * min(max(round((float(x) - z) / s), 0), 2**bits - 1) if s else z for x in vector]


class NaiveChannels:
    """KIVI as a loop: a query sees full groups before its own through the grid, keys channel by channel; the rest as it is."""

    def __init__(self, bits: int, group: int):
        self.bits, self.group = bits, group

    def place(self, positions, device):
        return place(positions, device)

    def attend(self, layer, queries, keys, values, here):
        made = torch.zeros_like(queries)
        for b, t, head in np.ndindex(*queries.shape[:3]):
            of, old = head // (queries.shape[2] // keys.shape[2]), t // self.group * self.group
            seen_keys, seen_values = keys[b, : t + 1, of].clone(), values[b, : t + 1, of].clone()
            for first in range(0, old, self.group):
                part = slice(first, first + self.group)
                seen_keys[part] = torch.tensor([kivi(channel, self.bits) for channel in seen_keys[part].T.numpy()]).T
                seen_values[part] = torch.tensor([kivi(vector, self.bits) for vector in seen_values[part].numpy()])
            shares = (seen_keys @ queries[b, t, head] / queries.shape[3] ** 0.5).softmax(0)
            made[b, t, head] = shares @ seen_values
        return made


@pytest.mark.parametrize(("bits", "group", "tokens"), [(2, 4, 12), (4, 4, 14), (4, 32, 12), (3, 1, 5)])
def test_keys_by_channel_are_a_loop_over_groups(model, bits, group, tokens):
    """Catches: channels and positions exchanged, a query that sees through the grid what is not yet quantized, or that looks into
    the future through a scale."""
    tokens_there = torch.cat([ids(tokens), ids(tokens, seed=1)])
    ours = forward(model.weights, tokens_there, KVRoundTrip(bits, group), rows(2, tokens))
    loop = forward(model.weights, tokens_there, NaiveChannels(bits, group), rows(2, tokens))
    exact = forward(model.weights, tokens_there, None, rows(2, tokens))
    assert tiny.far_apart(ours, loop) < 1e-5
    assert (tiny.far_apart(ours, exact) < 1e-5) == (group > tokens)


def test_one_large_channel_harms_vectors_and_not_channels():
    """Catches: groups that do not separate what they are there to separate. Keys of ±1 with one channel at 100: by vectors the step is
    about 101 / 15 = 6.7 and all else becomes zero; by channels it is 2 / 15, in the large one too."""
    keys = torch.randn(1, 32, 1, 8, generator=torch.Generator().manual_seed(0)).clamp(-1, 1)
    keys[..., 3] += 100
    by_vector = there_and_back(keys, 4)
    by_channel = KVRoundTrip(4, group=32).by_channel(keys, keys)[0][:, :32]
    others = [0, 1, 2, 4, 5, 6, 7]
    assert not by_vector[..., others].any()
    assert (by_channel - keys)[..., others].abs().max() < 1.01 / 15
    assert (by_channel - keys)[..., 3].abs().max() < 1.01 / 15 + 2**-5  # the least value is a float16: steps of 2^−4 near 100


def test_bits_of_a_vector():
    """Catches: scales or zero points left out. A vector of 64: in 8 bits 64 + 1 + 2 = 67 bytes, in 4 bits 32 + ½ + 2 = 34½."""
    assert [kv_vector_bits(64, bits) for bits in (8, 4)] == [67 * 8, 34 * 8 + 4]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("case", ["llama, grouped heads, tied", "llama, untied, head_dim 24 ≠ 64 / 4"])
def test_the_cache_takes_what_is_counted(made, case, bits):
    """Catches: a count beside what lies in memory. All tensors of the cache, byte for byte."""
    weights = made(case)[1].weights
    c = weights.config
    cache = QuantizedKVCache(weights, 2, 10, bits)
    held = sum(x.numel() * x.element_size() for x in (cache.codes, cache.scales))
    vectors = 2 * 10 * c.layers * c.kv_heads * 2
    assert cache.bytes == held == vectors * kv_vector_bits(c.head_dim, bits) / 8
    assert KVCache(weights, 2, 10).bytes == vectors * c.head_dim * 4  # float32


@pytest.mark.parametrize("bits", [0, 1, 2, 16])
def test_other_widths_are_refused(model, bits):
    """Catches: codes that do not fill bytes, a grid without levels."""
    with pytest.raises(BadInput, match="8 or 4 bits"):
        QuantizedKVCache(model.weights, 1, 8, bits)
    if bits != 2:
        with pytest.raises(BadInput, match="2 to 8 bits"):
            KVRoundTrip(bits)
    with pytest.raises(BadInput, match="at least 1"):
        KVRoundTrip(4, group=0)


def test_the_round_trip_takes_whole_texts_only(model):
    """Catches: a text continued on a cache that keeps nothing."""
    with pytest.raises(ValueError, match="whole sequences"):
        forward(model.weights, ids(4), KVRoundTrip(8), rows(1, 4, first=4))
