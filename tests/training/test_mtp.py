"""The prediction head on mini-256: the unrolled recursion, its target, a few steps of training, the committed weights."""

import json

import pytest
import torch

from compute.training import distil, evaluate, mixture, mtp, tokenizer, train
from compute.training import model as mini


@pytest.fixture(scope="module")
def target():
    torch.set_num_threads(1)
    return mini.load(train.CHECKPOINTS / mtp.TARGET).requires_grad_(False)


@pytest.fixture(scope="module")
def batches():
    learned = tokenizer.load(train.CHECKPOINTS / mtp.TARGET)
    stream = mixture.encode(learned, mixture.read_text("stories-zh")[:120])
    return mixture.Mixture.of({"stories-zh": stream}, tokenizer.newline_id(learned), {"stories-zh": 1})


def chain(head, hidden, embedded, j, depth):
    """As inference does it: rows of true h up to position j − depth + 1, then the head's own outputs, one by one."""
    rows = [torch.cat([head.hidden_norm(h), head.embedding_norm(e)]) for h, e in zip(hidden, embedded)][: j - depth + 2]
    while True:
        x = head.projection(torch.stack(rows)[None])
        output = head.norm(head.layer(x, head.cos[: len(rows)], head.sin[: len(rows)]))[0, -1]
        if len(rows) == j + 1:
            return output
        rows.append(torch.cat([head.hidden_norm(output), head.embedding_norm(embedded[len(rows)])]))


def test_the_unrolled_recursion_is_that_of_inference(target):
    """Catches: a key of the wrong chain or position, a state moved by one, a mask that lets later tokens in."""
    head = mtp.Head(target.shape, seed=3).requires_grad_(False)
    for parameter in head.parameters():
        if parameter.ndim == 1:
            parameter.copy_(torch.rand(parameter.shape) + 0.5)
    ids = torch.randint(0, 2048, (1, 13), generator=torch.Generator().manual_seed(0))
    hidden, embedded = target.hidden(ids)[:, :-1], target.embed_tokens.weight[ids[:, 1:]]
    outputs = head(hidden, embedded, 4)
    for depth in (1, 2, 3, 4):
        for j in range(depth - 1, 12):
            expected = chain(head, hidden[0], embedded[0], j, depth)
            assert torch.allclose(outputs[depth - 1][0, j], expected, atol=1e-4), (depth, j)


def test_a_guess_is_judged_by_the_target_one_token_on(target):
    """Catches: p of the wrong position: the guess at j, which knows token j + 1, is one of token j + 2."""
    head = mtp.Head(target.shape)
    ids = torch.randint(0, 2048, (2, 10))
    found = mtp.guesses(head, target, target.hidden(ids), ids, 3)
    p = target(ids).softmax(-1)
    for depth, (judged, logits) in enumerate(found):
        assert torch.allclose(judged, p[:, 1 + depth :], atol=1e-6) and logits.shape == judged.shape


def test_training_lowers_the_loss_and_resumes(target, batches, tmp_path):
    """Catches: a head that cannot learn; a start that is not the given weights; state that a stop loses."""
    recipe = train.Recipe("smoke", mtp.TARGET, steps=12, rows=2, warmup=3)
    loss = mtp.loss_from(target, target.hidden, 1000)
    head, log = train.run(recipe, loss, batches, tmp_path / "whole", watch_every=4, model=mtp.begin(target, recipe))
    assert log["curve"][-1]["loss"] < log["curve"][0]["loss"] - 0.5
    train.run(recipe, loss, batches, tmp_path / "parts", stop_after=5, model=mtp.begin(target, recipe))
    again, _ = train.run(recipe, loss, batches, tmp_path / "parts", model=mtp.begin(target, recipe))
    assert all(torch.equal(a, b) for a, b in zip(head.state_dict().values(), again.state_dict().values(), strict=True))
    mtp.save(head, tmp_path / "saved")
    kept = mtp.load(tmp_path / "saved").state_dict()
    assert all(torch.equal(kept[name], value) for name, value in head.state_dict().items())


def test_the_second_half_has_the_other_loss(target):
    """Catches: the switch at the wrong step, depths that are left out of the mean."""
    head, batch = mtp.Head(target.shape, seed=1), torch.randint(0, 2048, (1, 9))
    loss = mtp.loss_from(target, target.hidden, steps=10)
    with torch.no_grad():
        found = mtp.guesses(head, target, target.hidden(batch[:, :-1]), batch[:, :-1], mtp.DEPTH)
        for step, of in ((4, distil.to_distribution), (5, distil.to_acceptance)):
            mean = sum(of(logits, p) for p, logits in found) / mtp.DEPTH
            assert torch.allclose(loss(head, batch, step), mean)


def test_the_committed_head(target):
    """Catches: a card of other weights, or of another target; tensors under other names than the engine reads."""
    folder = train.CHECKPOINTS / mtp.NAME
    head = mtp.load(folder)
    expected = {"hidden_norm", "embedding_norm", "projection", "norm"} | {
        f"layer.{n}"
        for n in (
            "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
            "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
        )
    }  # fmt: skip
    assert set(head.state_dict()) == {f"{name}.weight" for name in expected}
    final = json.loads((folder / "training-log.json").read_text(encoding="utf-8"))["final"]
    stream = evaluate.streams(tokenizer.load(train.CHECKPOINTS / mtp.TARGET))["gnome-zh"][0]
    for found, stored in zip(mtp.agreement(target, head, stream, 2), final["sources"]["gnome-zh"]["depths"]):
        assert found["alpha"] == pytest.approx(stored["alpha"], abs=1e-3)
        assert found["greedy"] == pytest.approx(stored["greedy"], abs=2e-3)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"{final['domains']['modern']['depths'][0]['alpha']:.3f}" in card and f"{mini.parameters(head):,} parameters" in card
