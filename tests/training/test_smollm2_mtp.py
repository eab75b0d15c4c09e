"""SmolLM2's prediction head, with mini-256 in SmolLM2's place: what it starts from, its file, a few steps."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from compute.engine import mtp as engine
from compute.engine import registry
from compute.engine.model import KVCache, hidden_states
from compute.training import mtp, smollm2_mtp, teach, train
from compute.training import model as mini


@pytest.fixture(scope="module")
def target():
    torch.set_num_threads(1)
    return registry.shared().get("mini-256")


@pytest.fixture(scope="module")
def lessons(target, tmp_path_factory):
    prompts = [target.tokenizer.encode(t) for t in ("小明把苹果给了", "今天早上，外面下着小雨。")] * 10
    answers = teach.answer(target, prompts, [0.0, 0.0] + [1.0] * 18, seed=1, new=24)
    at, states = tmp_path_factory.mktemp("answers"), tmp_path_factory.mktemp("states")
    answers.save(at / "group-000.npz")
    smollm2_mtp.keep_states(target, at, states)
    return smollm2_mtp.Lessons.load(target.config, at, states)


def test_states_are_the_targets(target, lessons):
    """Catches: rows exchanged by the sorting, padding kept as a state."""
    batch = lessons.assemble(lessons.taught[[0, 7]])
    for row, (g, r) in enumerate(lessons.taught[[0, 7]]):
        ids = torch.from_numpy(smollm2_mtp.sequence(lessons.groups[g], r))
        alone = hidden_states(target.weights, ids[None], None, torch.arange(len(ids))[None])[0]
        assert torch.allclose(batch.hidden[row, : len(ids)], alone, atol=2e-2)


def test_what_is_guessed_stands_where_the_guess_is_made(lessons):
    """Catches: a shift by one: the guess at j, which knows token j + 1, is one of token j + 2. Row 0 is greedy."""
    batch = lessons.assemble(lessons.taught[:1])
    real = batch.real[0]
    named = lessons.shortlist[batch.best[0][real]]
    assert named.tolist() == batch.tokens[0, batch.at[0][real] + 2].tolist() and int(real.sum()) == lessons.groups[0].lengths[0] - 1


def test_the_start_knows_more_than_chance(target, lessons):
    """Catches: matrices of the last layer in wrong places, inputs of the projection exchanged."""
    figures = smollm2_mtp.watch(lessons, target.weights.embedding, depth=1)
    random, begun = smollm2_mtp.blank(target.config), smollm2_mtp.begin(target, lessons, answers=18)
    random.norm.weight.data.copy_(target.weights.norm)
    assert figures(begun)["greedy_1"] > figures(random)["greedy_1"] + 0.1


def test_the_engine_computes_the_trained_head(target, lessons, tmp_path):
    """Catches: rotary positions of another base, float16 that is read as such, a file that the engine refuses, training that
    does not lower the loss."""
    config = replace(target.config, rope=replace(target.config.rope, theta=1e5))
    frequencies = 1e5 ** -(torch.arange(0, 64, 2) / 64)
    other = replace(target, weights=replace(target.weights, config=config, inverse_frequencies=frequencies))
    embedding, kept = target.weights.embedding, torch.from_numpy(lessons.shortlist[::2].copy())
    start = smollm2_mtp.blank(other.config)
    recipe = train.Recipe("smoke", "mini-256", steps=8, rows=4, warmup=2)
    loss = smollm2_mtp.loss_from(start, embedding, embedding[lessons.shortlist], lambda step: 2, others=200)
    head, log = train.run(recipe, loss, lessons, tmp_path / "run", watch_every=4, model=start)
    assert log["curve"][-1]["loss"] < log["curve"][0]["loss"]
    mtp.save(head, tmp_path / "saved", target="x", dtype=torch.float16, shortlist=kept)
    theirs, ours = mtp.load(tmp_path / "saved").requires_grad_(False), engine.load(other, tmp_path / "saved")
    tokens = torch.randint(0, 2048, (1, 12), generator=torch.Generator().manual_seed(0))
    hidden = hidden_states(target.weights, tokens, None, torch.arange(12)[None])[:, :-1].clone()
    first, second = theirs(hidden, embedding[tokens[:, 1:]], 2)
    cache = KVCache(ours, 1, 32)
    out = engine.outputs(ours, other, hidden[:, :8], tokens[:, 1:9], cache, torch.arange(8)[None])
    assert torch.allclose(out[0], first[0, :8], atol=1e-3)
    out = engine.outputs(ours, other, out[:, -1:], tokens[:, 9:10], cache, torch.tensor([[8]]))
    assert torch.allclose(out[0, 0], second[0, 8], atol=1e-3)
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["shortlist"] == len(kept)


@pytest.mark.parametrize(
    ("same", "k", "count"),
    [([[1, 1, 1, 1], [1, 1, 1, 1]], 2, 2), ([[0, 0, 0]], 1, 3), ([[1, 0, 1, 1], [0, 1, 0, 1]], 2, 2), ([[1, 1, 1], [0, 0, 0]], 2, 2)],
)
def test_rounds(same, k, count):
    """Catches: agreement of the wrong depth, the target's own token forgotten. Referee: counted by hand."""
    assert smollm2_mtp.rounds(np.array(same, dtype=bool), k) == count


def test_the_committed_head():
    """Catches: a card of other weights, sizes that are not SmolLM2's, a shortlist in another order or without the end token."""
    folder = train.CHECKPOINTS / smollm2_mtp.NAME
    head, tensors = mtp.load(folder), load_file(folder / "model.safetensors")
    kept = tensors["shortlist"]
    assert kept.dtype == torch.int64 and len(kept) == smollm2_mtp.SHORTLIST and 2 in kept and bool((kept.diff() > 0).all())
    assert {v.dtype for k, v in tensors.items() if k != "shortlist"} == {torch.float16}
    assert head.shape == replace(mini.SHAPES["smollm2-mtp"], layers=head.shape.layers, vocabulary=head.shape.vocabulary)
    assert head.theta == 1e5 and all(bool(p.isfinite().all()) for p in head.parameters())
    final = json.loads((folder / "training-log.json").read_text(encoding="utf-8"))["final"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"{final['greedy'][0]:.3f}" in card and f"{mini.parameters(head):,} parameters" in card
    assert final["tokens_a_round"]["1"] == pytest.approx(1 + final["greedy"][0], abs=0.15) and (folder / "LICENSE").exists()
