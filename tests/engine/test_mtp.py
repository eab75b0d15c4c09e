"""The MTP head: against a naive chain written out, against the training's unrolled recursion, and its file."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from compute.engine import mtp, registry
from compute.engine.errors import ModelMissing, TensorWrong
from compute.engine.model import KVCache, Layer, Linear, hidden_states
from compute.sampling import GREEDY, Sampling

from . import tiny

PROMPT = tiny.ids(10)[0].tolist()


def random_head(target, seed=3, shortlist=None) -> mtp.Head:
    """An untrained head for any target."""
    c, draw = target.config, torch.Generator().manual_seed(seed)
    heads = c.heads + 2 * c.kv_heads

    def some(*shape):
        return torch.randn(shape, generator=draw) * 0.15

    def norm():
        return 1 + some(c.hidden)

    layer = Layer(
        norm(), Linear(some(heads * c.head_dim, c.hidden)), None, Linear(some(c.hidden, c.heads * c.head_dim)), norm(),
        Linear(some(2 * c.intermediate, c.hidden)), Linear(some(c.hidden, c.intermediate)),
    )  # fmt: skip
    plain = replace(c, layers=1, qkv_bias=False, out_bias=False, mlp_bias=False, qk_norm=False)
    return mtp.Head(plain, norm(), norm(), Linear(some(c.hidden, 2 * c.hidden)), layer, norm(), output(target, shortlist), shortlist)


def output(target, shortlist):
    return target.weights.head if shortlist is None else Linear(target.weights.head.weight[shortlist])


def stored(head: mtp.Head) -> dict[str, torch.Tensor]:
    """The tensors under the names of the checkpoint."""
    c, l = head.config, head.layer
    q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    parts = dict(zip(("q", "k", "v"), l.qkv.weight.split([q, kv, kv]))) | {"o": l.out.weight}
    gate, up = l.gate_up.weight.chunk(2)
    tensors = {f"layer.self_attn.{n}_proj.weight": w for n, w in parts.items()}
    tensors |= {"layer.mlp.gate_proj.weight": gate, "layer.mlp.up_proj.weight": up, "layer.mlp.down_proj.weight": l.down.weight}
    tensors |= {"layer.input_layernorm.weight": l.attention_norm, "layer.post_attention_layernorm.weight": l.mlp_norm}
    tensors |= {"hidden_norm.weight": head.hidden_norm, "embedding_norm.weight": head.embedding_norm, "norm.weight": head.norm}
    tensors |= {} if head.shortlist is None else {"shortlist": head.shortlist}
    return {k: v.contiguous() for k, v in (tensors | {"projection.weight": head.projection.weight}).items()}


@pytest.fixture()
def folder(model, tmp_path):
    save_file(stored(random_head(model)), tmp_path / "model.safetensors")
    return tmp_path


def test_a_head_comes_back_from_its_file(model, folder):
    """Catches: q, k, v or gate, up joined in another order than the block multiplies them."""
    ours, loaded = random_head(model), mtp.load(model, folder)
    for name, tensor in stored(ours).items():
        assert torch.equal(tensor, stored(loaded)[name]), name
    assert loaded.parameters() == sum(t.numel() for t in stored(ours).values()) + model.weights.head.weight.numel()


def test_a_shortlist_bounds_the_guesses(model, tmp_path):
    """Catches: guesses that name places in the shortlist instead of tokens, or q with mass beside it."""
    shortlist = torch.arange(3, model.config.vocabulary, 7)
    save_file(stored(random_head(model, shortlist=shortlist)), tmp_path / "model.safetensors")
    head = mtp.load(model, tmp_path)
    assert torch.equal(head.shortlist, shortlist) and torch.equal(head.output.weight, model.weights.head.weight[shortlist])
    h = hidden_states(model.weights, torch.tensor([PROMPT[:-1]]), None, torch.arange(len(PROMPT) - 1)[None])[0]
    for sampling in (GREEDY, Sampling(1.0)):
        found = mtp.MtpDraft(head, model, 64).draft(PROMPT, h, 4, sampling, np.random.default_rng(0))
        assert set(found.tokens) <= set(shortlist.tolist())
        beside = np.setdiff1d(np.arange(model.config.vocabulary), shortlist)
        assert not found.q[:, beside].any() and found.q.sum(-1) == pytest.approx(1)
    row = mtp.outputs(head, model, h[None], torch.tensor([PROMPT[1:]]), KVCache(head, 1, 64), torch.arange(len(h))[None])[0, -1]
    assert found.q[0] == pytest.approx(_softmax_over(row, model, shortlist), abs=1e-5)


def _softmax_over(row, model, shortlist):
    scores = {int(t): float(row @ model.weights.head.weight[t]) for t in shortlist}
    total = sum(np.exp(s) for s in scores.values())
    return np.array([np.exp(scores[t]) / total if t in scores else 0.0 for t in range(model.config.vocabulary)])


def test_an_unsure_head_guesses_less(model):
    """Catches: a threshold that is never asked, or asked of the wrong distribution."""
    head = random_head(model)
    h = hidden_states(model.weights, torch.tensor([PROMPT[:-1]]), None, torch.arange(len(PROMPT) - 1)[None])[0]
    counts = [len(mtp.MtpDraft(head, model, 64, sure).draft(PROMPT, h, 4, GREEDY, np.random.default_rng(0)).tokens) for sure in (0.0, 1.1)]
    assert counts == [4, 0]


def test_a_wrong_file_is_refused(model, folder):
    """Catches: a head of another width, and one with a tensor that nobody reads."""
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"projection.weight": torch.zeros(3, 4)}, folder / "model.safetensors")
    with pytest.raises(TensorWrong, match="projection"):
        mtp.load(model, folder)
    save_file(tensors | {"extra.weight": torch.zeros(3)}, folder / "model.safetensors")
    with pytest.raises(TensorWrong, match="extra"):
        mtp.load(model, folder)


def test_no_head_is_said(model):
    """Catches: a traceback where a target has none."""
    with pytest.raises(ModelMissing, match="no MTP head"):
        mtp.load(replace(model, name="nobody"))


def greedy_chain(head, target, text, k):
    """Guesses without any cache: the whole chain is one sequence, computed anew for each guess."""
    w = target.weights
    h = hidden_states(w, torch.tensor([text]), None, torch.arange(len(text))[None])
    states, following, guesses = h[:, : len(text) - 1], text[1:], []
    for _ in range(k):
        n = len(following)
        scratch = KVCache(head, 1, 64)
        out = mtp.outputs(head, target, states, torch.tensor([following]), scratch, torch.arange(n)[None])
        guesses.append(int((out[0, -1] @ w.embedding.T).argmax()))
        states, following = torch.cat([states, out[:, -1:]], 1), [*following, guesses[-1]]
    return tuple(guesses)


def test_guesses_equal_the_chain_without_a_cache(model):
    """Catches: a position off by one, the token at i instead of i + 1, the chain's own states not fed back."""
    head = random_head(model)
    for n in range(2, len(PROMPT)):
        text = PROMPT[:n]
        h = hidden_states(model.weights, torch.tensor([text[:-1]]), None, torch.arange(n - 1)[None])[0]
        drafter = mtp.MtpDraft(head, model, 64)
        found = drafter.draft(text, h, 4, GREEDY, np.random.default_rng(0))
        assert found.tokens == greedy_chain(head, model, text, 4)
        assert found.q.shape == (4, model.config.vocabulary) and found.q.sum() == 4


def test_the_training_unrolls_the_same_recursion():
    """Catches: an engine that feeds the head otherwise than it was trained: the training's code, on mini-256, is the referee
    for three guesses in a row."""
    training = pytest.importorskip("compute.training.mtp")
    from compute.training import model as mini

    target = registry.shared().get("mini-256")
    theirs = mini.load(mtp.CHECKPOINTS / "mini-256")
    head = training.Head(theirs.shape, seed=5)
    head.norm.weight.data.copy_(theirs.norm.weight.data)
    from tempfile import TemporaryDirectory
    from pathlib import Path

    with TemporaryDirectory() as at:
        training.save(head, Path(at))
        ours = mtp.load(target, Path(at))
    tokens = torch.randint(0, 2048, (1, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        depth = training.guesses(head, theirs, theirs.hidden(tokens), tokens, 3)
    hidden = hidden_states(target.weights, tokens[:, :-1], None, torch.arange(11)[None])
    cache = KVCache(ours, 1, 32)
    out = mtp.outputs(ours, target, hidden, tokens[:, 1:], cache, torch.arange(11)[None])
    first = out[0] @ target.weights.embedding.T
    assert torch.allclose(first, depth[0][1][0], atol=2e-3)
    # row j of depth 2 continues from the head's own output at j − 1, and sees true rows up to there
    second_rows = depth[1][1][0]
    for j in (3, 7, 9):
        scratch = KVCache(ours, 1, 32)
        prefix = mtp.outputs(ours, target, hidden[:, :j], tokens[:, 1 : j + 1], scratch, torch.arange(j)[None])
        chained = mtp.outputs(ours, target, prefix[:, -1:], tokens[:, j + 1 : j + 2], scratch, torch.tensor([[j]]))
        row = chained[0, -1] @ target.weights.embedding.T
        assert torch.allclose(row, second_rows[j - 1 if len(second_rows) == 10 else j], atol=2e-3)
