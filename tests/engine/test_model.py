"""The forward pass on its own: several sequences at once, and what it refuses."""

import pytest
import torch

from compute.engine.generate import decode
from compute.engine.model import PACKED_ROWS, Config, KVCache, Linear, Rope, forward, packed, packed_matrix

from . import tiny


def test_sequences_of_different_lengths_in_one_batch_equal_each_alone(made):
    """Catches: a row that sees another row's keys, padding that is looked at, positions shared by all rows."""
    _, model, _ = made("qwen3, query and key norms")
    lengths, rounds = [5, 12, 9], 6
    prompts = [tiny.ids(n, seed=n)[0] for n in lengths]
    alone = [list(decode(model, p.tolist(), rounds, lambda row: int(row.argmax()), True)) for p in prompts]

    cache = KVCache(model.weights, 3, 12 + rounds)
    padded = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True)
    logits = forward(model.weights, padded, cache, torch.arange(12).expand(3, 12))
    rows = logits[torch.arange(3), torch.tensor(lengths) - 1]
    for step in range(rounds):
        assert rows.argmax(-1).tolist() == [run[step][0] for run in alone]
        assert tiny.far_apart(rows, torch.stack([run[step][1] for run in alone])) < 2e-5
        positions = torch.tensor(lengths)[:, None] + step
        rows = forward(model.weights, rows.argmax(-1)[:, None], cache, positions)[:, -1]


def test_one_row_may_be_checked_for_several_tokens_while_others_differ(made):
    """Catches: a mask that lets a guess see the guesses after it; the case of speculative decoding over a batch."""
    _, model, _ = made("llama, grouped heads, tied")
    whole = torch.cat([tiny.ids(20, seed=1), tiny.ids(20, seed=2)])
    expected = forward(model.weights, whole, None, torch.arange(20).expand(2, 20))
    cache, starts = KVCache(model.weights, 2, 20), torch.tensor([[7], [11]])
    forward(model.weights, whole[:, :11], cache, torch.arange(11).expand(2, 11))
    positions = starts + torch.arange(4)
    logits = forward(model.weights, whole.gather(1, positions), cache, positions)
    rows = torch.arange(2)[:, None]
    assert tiny.far_apart(logits, expected[rows, positions]) < 2e-5


def test_last_only_is_the_last_row(model):
    """Catches: the first position's logits returned."""
    ids, positions = tiny.ids(9), torch.arange(9)[None]
    everything = forward(model.weights, ids, None, positions)
    last = forward(model.weights, ids, None, positions, last_only=True)
    assert last.shape == (1, 1, 320) and tiny.far_apart(last, everything[:, -1:]) < 1e-6


def test_cache_takes_the_bytes_of_the_formula(model):
    """Catches: a cache as wide as the query heads. 2 · layers · key heads · head_dim · 4 bytes a token, here
    2 · 3 · 2 · 16 · 4 = 768."""
    assert KVCache(model.weights, batch=5, capacity=7).bytes == 5 * 7 * 768


def test_without_a_cache_a_continuation_is_refused(model):
    """Catches: attention over the new tokens alone, which gives plausible and wrong logits."""
    with pytest.raises(ValueError, match="whole sequences"):
        forward(model.weights, tiny.ids(1), None, torch.tensor([[4]]))


def test_weights_read_per_token_are_the_multiplied_matrices(made):
    """Catches: the embedding row counted as read, or lm_head forgotten. Written out for the untied Llama, head_dim 24."""
    weights = made("llama, untied, head_dim 24 ≠ 64 / 4")[1].weights
    layer = 64 * (4 + 2 + 2) * 24 + 4 * 24 * 64 + 3 * 64 * 96
    assert weights.bytes_per_decoded_token() == 4 * (3 * layer + 320 * 64)


@pytest.mark.parametrize("change, words", [({"layers": 0}, "layers = 0"), ({"heads": 3}, "3 query"), ({"head_dim": 5}, "5 is odd")])
def test_impossible_shapes_are_refused_at_birth(change, words):
    """Catches: a shape that fails later with a message about tensor sizes."""
    shape = dict(vocabulary=8, hidden=8, intermediate=8, layers=1, heads=2, kv_heads=2, head_dim=4, context=8)
    with pytest.raises(ValueError, match=words):
        Config(architecture="LlamaForCausalLM", norm_eps=1e-5, rope=Rope(1e4), **(shape | change))


@pytest.mark.parametrize("rows", [1, 2, PACKED_ROWS - 1, PACKED_ROWS, 5, 9, 64])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_matrix_gives_the_plain_product(rows, bias):
    """Catches: a forgotten bias, a transposed or wrongly shaped packing, a batch dimension lost."""
    random = torch.Generator().manual_seed(rows)
    plain = Linear(torch.randn(96, 64, generator=random), torch.randn(96, generator=random) if bias else None)
    x = torch.randn(1, rows, 64, generator=random)
    made = packed_matrix(plain)
    assert (made.packed is not None) == torch.backends.mkldnn.is_available()
    exact = x.double() @ plain.weight.double().T + (plain.bias.double() if bias else 0)
    assert made(x).shape == (1, rows, 96)
    assert float((made(x) - exact).abs().max()) < 1e-4


def test_only_float32_is_packed():
    """Catches: a bfloat16 matrix handed to a float32 kernel."""
    assert packed_matrix(Linear(torch.ones(8, 8, dtype=torch.bfloat16))).packed is None


def test_packed_weights_give_the_same_logits(made):
    """Catches: a matrix packed in another's place."""
    _, model, _ = made("llama, grouped heads, tied")
    tokens, positions = tiny.ids(12, seed=3), torch.arange(12)[None]
    plain, again = (forward(weights, tokens, None, positions) for weights in (model.weights, packed(model.weights)))
    assert tiny.far_apart(again, plain) < 2e-5 and packed(model.weights).layers[0].down.packed is not None
