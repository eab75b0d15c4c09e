"""The training loop on a small model and a few stories: it learns, and a stop costs nothing."""

import json
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from compute.training import distil, evaluate, mixture, tokenizer, train
from compute.training import model as mini
from compute.training.muon import Muon, orthogonal

RECIPE = train.Recipe("smoke", "mini-64", steps=20, rows=4, warmup=4)


@pytest.fixture(scope="module")
def batches() -> mixture.Mixture:
    learned = tokenizer.load(train.CHECKPOINTS / "mini-256")
    streams = {name: mixture.encode(learned, mixture.read_text(name)[:120]) for name in ("stories-zh", "gnome-zh")}
    return mixture.Mixture.of(streams, tokenizer.newline_id(learned), {"stories-zh": 3, "gnome-zh": 1})


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_twenty_steps_lower_the_loss(batches, tmp_path):
    """Catches: a sign, a rate or a shifted target with which nothing is learned."""
    _, log = train.run(RECIPE, train.next_token, batches, tmp_path, watch_every=4)
    losses = [row["loss"] for row in log["curve"]]
    assert losses[0] > 6.5 and losses[-1] < losses[0] - 1.0, losses
    assert log["curve"][-1]["tokens"] == RECIPE.tokens == 20 * 4 * 256


def test_a_stopped_run_ends_with_the_same_weights(batches, tmp_path):
    """Catches: state that is not kept (momentum, step, place in the data) or not put back."""
    short = train.Recipe("resume", "mini-64", steps=8, rows=2, warmup=2)
    whole, log = train.run(short, train.next_token, batches, tmp_path / "whole", watch_every=3)
    train.run(short, train.next_token, batches, tmp_path / "parts", stop_after=5, watch_every=3)
    parts, resumed = train.run(short, train.next_token, batches, tmp_path / "parts", watch_every=3)
    assert resumed["stops"] == 1 and log["stops"] == 0
    for (name, a), b in zip(whole.state_dict().items(), parts.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert [r["loss"] for r in resumed["curve"]] == pytest.approx([r["loss"] for r in log["curve"]], abs=0)


def test_a_run_of_another_recipe_is_not_continued(batches, tmp_path):
    """Catches: mixing two recipes in one checkpoint; refusing a longer budget while the rate is still flat."""
    from dataclasses import replace

    short = train.Recipe("a", "mini-64", steps=20, rows=2, warmup=2)
    train.run(short, train.next_token, batches, tmp_path, stop_after=2)
    with pytest.raises(ValueError, match="another recipe"):
        train.run(replace(short, seed=2), train.next_token, batches, tmp_path, stop_after=1)
    assert train.continues(short, replace(short, steps=40), 9)
    assert not train.continues(short, replace(short, steps=40), 15)


def test_rate_rises_stays_and_falls():
    """Catches: a schedule that never decays, or starts the decay at once."""
    recipe = train.Recipe("r", "mini-64", steps=1000, warmup=100, decay=0.4)
    assert recipe.rate(0) == pytest.approx(0.01) and recipe.rate(99) == recipe.rate(600) == 1.0
    assert recipe.rate(800) == pytest.approx(0.5) and recipe.rate(999) == pytest.approx(0.02)


def test_batches_depend_on_seed_and_step_alone(batches):
    """Catches: hidden state in the data order, which a resumed run would not have."""
    first = batches.batch(1, 7, 8)
    batches.batch(1, 8, 8)
    assert torch.equal(first, batches.batch(1, 7, 8)) and first.shape == (8, mixture.CONTEXT + 1)
    assert not torch.equal(first, batches.batch(1, 8, 8)) and not torch.equal(first, batches.batch(2, 7, 8))


def test_half_of_the_windows_begin_with_a_paragraph(batches):
    """Catches: windows that all start anywhere, so that no prompt ever looks like the start of a text."""
    stream = batches.streams["stories-zh"]
    starts = {tuple(stream[s : s + 8]) for s in batches.starts["stories-zh"]}
    only = mixture.Mixture({"stories-zh": stream}, {"stories-zh": batches.starts["stories-zh"]}, {"stories-zh": 1})
    rows = only.batch(3, 0, 400)
    share = sum(tuple(row[:8].numpy().astype(np.uint16)) in starts for row in rows) / 400
    assert 0.42 < share < 0.62, share


def test_muon_steps_are_orthogonal_and_those_of_torch():
    """Catches: a wrong coefficient, momentum or scale. torch.optim.Muon works in bfloat16, hence the tolerance."""
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(3, 24, 64)))
    assert 0.6 < values.min() and values.max() < 1.3
    for shape in ((32, 16), (16, 32)):
        ours, theirs = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
        a = Muon([ours], lr=0.1)
        b = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.01, momentum=0.95, adjust_lr_fn="original")
        for _ in range(3):
            ours.grad = torch.randn(shape)
            theirs.grad = ours.grad.clone()
            a.step()
            b.step()
        assert (ours - theirs).abs().max() < 0.02 * (ours - 1).abs().max()


def test_loss_is_that_of_a_plain_loop(batches):
    """Catches: windows that overlap or leave out tokens, a mean of means, a target shifted by one."""
    model = mini.Llama(mini.SHAPES["mini-64"], seed=5).eval()
    stream = batches.streams["gnome-zh"][:700]
    ids = torch.from_numpy(stream.astype(np.int64))
    nats, predicted = 0.0, 0
    for start in range(0, len(ids) - 1, mixture.CONTEXT):
        window = ids[start : start + mixture.CONTEXT + 1]
        p = model(window[None, :-1])[0].softmax(-1).detach()
        for position, target in enumerate(window[1:]):
            nats -= math.log(float(p[position, target]))
            predicted += 1
    assert predicted == 699
    assert evaluate.loss(model, stream) == pytest.approx(nats / predicted, rel=1e-5)


def test_agreement_with_itself_is_complete(batches):
    """Catches: α or greedy agreement that is not 1 for equal models, or not below it for different ones."""
    a, b = (mini.Llama(mini.SHAPES["mini-64"], seed=s).eval() for s in (1, 2))
    stream = batches.streams["gnome-zh"][:300]
    same, other = evaluate.agreement(a, a, stream), evaluate.agreement(a, b, stream)
    assert same["alpha"] == pytest.approx(1, abs=1e-5) and same["greedy"] == 1
    ids = torch.from_numpy(stream[:256].astype(np.int64))[None]
    p, q = (m(ids).softmax(-1).detach() for m in (a, b))
    plain = float(torch.minimum(p, q).sum(-1).mean())
    assert evaluate.agreement(a, b, stream[:257])["alpha"] == pytest.approx(plain, rel=1e-4)
    assert other["greedy"] < 1


def test_distillation_raises_alpha():
    """Catches: a loss whose gradient moves the student away from the teacher."""
    torch.manual_seed(0)
    p = torch.randn(4, 6, 50).mul(2).softmax(-1)
    for loss in (distil.to_distribution, distil.to_acceptance):
        logits = torch.zeros(4, 6, 50, requires_grad=True)
        before = torch.minimum(p, logits.softmax(-1)).sum(-1).mean()
        optimiser = torch.optim.SGD([logits], lr=20.0)
        for _ in range(20):
            optimiser.zero_grad()
            loss(logits, p).backward()
            optimiser.step()
        assert torch.minimum(p, logits.softmax(-1)).sum(-1).mean() > before + 0.1, loss.__name__
    assert torch.allclose(distil.to_distribution(p.log(), p), -(p * p.log()).sum(-1).mean())
    assert float(distil.to_acceptance(p.log(), p)) == pytest.approx(0, abs=1e-5)


def test_the_second_half_of_the_steps_has_the_other_loss():
    """Catches: the switch of the loss at the wrong step."""
    teacher, student = (mini.Llama(mini.SHAPES["mini-64"], seed=s) for s in (1, 2))
    batch = torch.randint(0, 2048, (1, 9))
    with torch.no_grad():
        p, logits = teacher(batch[:, :-1]).softmax(-1), student(batch[:, :-1])
        loss = distil.loss_from(teacher, steps=10)
        assert torch.allclose(loss(student, batch, 4), distil.to_distribution(logits, p))
        assert torch.allclose(loss(student, batch, 5), distil.to_acceptance(logits, p))


def test_a_checkpoint_reads_back(tmp_path):
    """Catches: names, shapes or tied weights lost on the way to disk."""
    model = mini.Llama(mini.SHAPES["mini-128"], seed=3).eval()
    mini.save(model, train.TOKENIZER, tmp_path)
    again = mini.load(tmp_path)
    ids = torch.arange(20)[None]
    assert torch.equal(model(ids), again(ids))
    assert json.loads((tmp_path / "config.json").read_text())["head_dim"] == 32
    assert not list(tmp_path.glob("*.partial"))


def test_the_model_is_transformers_llama():
    """Catches: rotary layout, grouped heads or norm placed unlike Llama's. Referee: transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = mini.SHAPES["mini-64"]
    ours = mini.Llama(shape, seed=4).eval()
    theirs = LlamaForCausalLM(LlamaConfig(**mini.config(shape))).eval()
    named = {f"model.{k}": v for k, v in ours.state_dict().items()}
    missing, unexpected = theirs.load_state_dict(named, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    ids = torch.randint(0, 2048, (2, 40))
    with torch.no_grad():
        assert torch.allclose(ours(ids), theirs(ids).logits, atol=1e-4)
        assert torch.allclose(F.softmax(ours(ids), -1).sum(-1), torch.ones(2, 40))
