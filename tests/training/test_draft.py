"""SmolLM2's draft: what the target writes for it, the loss on a part of the vocabulary, a few steps, the committed weights.

mini-256 stands for SmolLM2, which is not on every machine.
"""

import json
import math

import numpy as np
import pytest
import torch

from compute.engine import registry
from compute.engine.generate import generate
from compute.engine.loader import load
from compute.engine.model import forward
from compute.facts import speculation_prompts
from compute.training import draft, prompts_en, teach, train
from compute.training import model as mini

PROMPTS = ("小明把苹果给了", "今天早上，外面下着小雨。", "小红带着一本故事书来到公园。", "To open a file, choose")


@pytest.fixture(scope="module")
def target():
    model = load(train.CHECKPOINTS / "mini-256", device="cpu", dtype="float32")
    torch.set_num_threads(1)
    return model


@pytest.fixture(scope="module")
def answers(target):
    ids = [target.tokenizer.encode(t) for t in PROMPTS]
    return teach.answer(target, ids * 5, [0.0, 0.0, 0.0, 0.0] * 4 + [1.0] * 4, seed=1, new=48)


def test_answers_are_those_of_the_plain_loop(target, answers):
    """Catches: a padded row that sees the padding, a row that leaves the batch with another's cache, an end that is missed."""
    assert len(set(answers.lengths[:4])) > 1, "no row ended early, so leaving was not tried"
    for row, text in enumerate(PROMPTS):
        steps = list(generate(target, target.tokenizer.encode(text), 48))
        assert answers.tokens[row, : answers.lengths[row]].tolist() == [s.token for s in steps]


def test_kept_distributions_are_the_targets(target, answers):
    """Catches: a distribution stored beside the token after, probabilities at the sampling temperature or renormalised."""
    for row in (1, 17):  # greedy, drawn
        start, length = answers.prompt_lengths[row], answers.lengths[row]
        ids = torch.tensor([*answers.prompts[row, :start], *answers.tokens[row, :length]], dtype=torch.int64)[None]
        p = forward(target.weights, ids, None, torch.arange(ids.shape[1])[None])[0].softmax(-1)
        for i in (0, length // 2, length - 1):
            values, best = p[start - 1 + i].topk(teach.TOP)
            assert np.allclose(answers.top_p[row, i], values, atol=2e-3)
            assert answers.top_ids[row, i, 0] == best[0]


def test_a_batch_puts_distributions_at_their_positions(answers):
    """Catches: a shift by one between hidden states and the distributions they learn from; padding that is learned."""
    batch = draft.assemble([(answers, np.arange(4))])
    assert int(batch.real.sum()) == answers.lengths[:4].sum()
    for row in range(4):
        following = batch.tokens[row, batch.at[row][batch.real[row]][:-1] + 1]
        assert torch.equal(following, batch.ids[row, :, 0][batch.real[row]][:-1])  # greedy: the most likely token comes next
    assert torch.allclose(batch.p.sum(-1)[batch.real], torch.ones(int(batch.real.sum())), atol=1e-5)


def test_sampled_softmax():
    """Catches: a part of the vocabulary counted twice or not at all. With all others drawn it is the full softmax; with
    some, right on average."""
    torch.manual_seed(0)
    hidden, embedding, ids = torch.randn(6, 8), torch.randn(500, 8) * 0.3, torch.randint(0, 500, (6, 5))
    full = hidden @ embedding.T
    top, denominator = draft.sampled_logits(hidden, embedding, ids, 500, torch.Generator())
    assert torch.allclose(top, full.gather(1, ids), atol=1e-5) and torch.allclose(denominator, full.logsumexp(-1), atol=1e-5)
    draws = [
        draft.sampled_logits(hidden, embedding, ids, 60, torch.Generator().manual_seed(s))[1].exp() for s in range(300)
    ]
    assert torch.allclose(torch.stack(draws).mean(0), full.exp().sum(-1), rtol=0.02)


def test_principal_components_keep_what_there_is():
    """Catches: axes of least variance instead of most; weights that are ignored."""
    generator = torch.Generator().manual_seed(0)
    embedding = torch.randn(300, 4, generator=generator) @ torch.randn(4, 32, generator=generator)
    small = draft.principal(embedding, torch.full((300,), 1 / 300), 4).double()
    centred = (embedding - embedding.mean(0)).double()
    products, expected = small @ small.T, centred @ centred.T  # inner products survive, up to one factor
    assert torch.allclose(products / products.abs().max(), expected / expected.abs().max(), atol=1e-5)
    assert float(small.pow(2).mean().sqrt()) == pytest.approx(draft.SCALE, rel=1e-5)


def test_training_raises_agreement_and_resumes(target, answers, tmp_path):
    """Catches: a loss that is not the draft's, a start from other weights than the given, state that a stop loses."""
    lessons = draft.Lessons((answers,))
    recipe = train.Recipe("smoke", "mini-64", steps=30, rows=8, warmup=5, window=48)
    figures = draft.watch(lessons)

    def run(folder, **more):
        begun = draft.begin(target, lessons, recipe)
        loss = draft.loss_from(begun, recipe.steps, others=300)
        return train.run(recipe, loss, lessons, folder, watch=figures, watch_every=10, model=begun, **more)

    before = figures(draft.begin(target, lessons, recipe))
    whole, log = run(tmp_path / "whole")
    assert log["curve"][1]["val_loss"] < before["val_loss"] - 1 and log["curve"][-1]["val_greedy"] > before["val_greedy"] + 0.2
    run(tmp_path / "parts", stop_after=11)
    parts, _ = run(tmp_path / "parts")
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    ("same", "k", "count"),
    [([1, 1, 1, 1, 1, 1], 2, 2), ([0, 0, 0], 4, 3), ([1, 0, 1, 1, 0, 1], 1, 4), ([1, 1, 0, 1], 4, 2), ([1, 1], 8, 1)],
)
def test_rounds(same, k, count):
    """Catches: the target's own token forgotten, or guesses beyond k. Referee: counted by hand."""
    assert draft.rounds(np.array(same, dtype=bool), k) == count


def test_measured_prompts_are_not_trained_on():
    """Catches: a measured prompt among the training prompts; prompts that change from run to run."""
    texts = prompts_en.prompts(0, 2_000)
    assert len(set(texts)) == 2_000 and texts == prompts_en.prompts(0, 2_000)
    for target in ("smollm2-135m", "mini-256"):
        fixed = speculation_prompts(target)
        assert len(fixed) == 16 and len({p.id for p in fixed}) == 16
        assert all(p.text in p.sent for p in fixed)
    assert not {p.text for p in speculation_prompts("smollm2-135m")} & set(texts)
    with pytest.raises(Exception, match="gpt-9"):
        speculation_prompts("gpt-9")


def test_the_committed_draft_loads():
    """Catches: float16 files that the engine runs in float16; a vocabulary or end token that is not SmolLM2's."""
    folder = train.CHECKPOINTS / draft.NAME
    model = registry.discover().get(draft.NAME)
    assert model.weights.dtype == torch.float32 and model.config.vocabulary == 49_152 and model.config.stop_tokens == (2,)
    sent = speculation_prompts(draft.TARGET)[0].sent
    ids = model.tokenizer.encode(sent)
    assert ids[0] == 1 and ids.count(2) == 2 and model.tokenizer.decode(ids) == sent
    small = mini.load(folder)
    ours = forward(model.weights, torch.tensor([ids]), None, torch.arange(len(ids))[None])
    with torch.no_grad():
        assert torch.allclose(ours, small(torch.tensor([ids])), atol=1e-3)
    final = json.loads((folder / "training-log.json").read_text(encoding="utf-8"))["final"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"greedy agreement {final['greedy']:.3f}" in card and f"{mini.parameters(small):,} parameters" in card
    assert (folder / "model.safetensors").stat().st_size < 15e6 and "Apache License" in (folder / "LICENSE").read_text()
    assert math.isclose(sum(p["tokens"] for p in final["prompts"]), final["tokens"])


def test_the_committed_draft_agrees_as_its_card_says():
    """Catches: a card of other weights. Needs SmolLM2."""
    listed = {line.id: line for line in registry.discover().listing()}
    if listed[draft.TARGET].trouble:
        pytest.skip("SmolLM2 is not there")
    model, target = mini.load(train.CHECKPOINTS / draft.NAME), registry.discover().get(draft.TARGET)
    final = json.loads((train.CHECKPOINTS / draft.NAME / "training-log.json").read_text(encoding="utf-8"))["final"]
    prompt, stored = speculation_prompts(draft.TARGET)[0], final["prompts"][0]
    ids = target.tokenizer.encode(prompt.sent)
    answer = [s.token for s in generate(target, ids, 96)]
    with torch.no_grad():
        guessed = model(torch.tensor([ids + answer[:-1]]))[0, len(ids) - 1 :].argmax(-1)
    assert len(answer) == stored["tokens"]
    assert float((guessed == torch.tensor(answer)).float().mean()) == pytest.approx(stored["greedy"], abs=0.02)
