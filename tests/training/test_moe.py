"""mini-moe: how it begins from mini-256, its balance loss, and that a few steps train experts and router alike."""

import json

import pytest
import torch
from safetensors.torch import load_file

from compute import moe as account
from compute.training import evaluate, mixture, moe, tokenizer, train
from compute.training import model as mini
from tests.training.test_train import one_thread  # noqa: F401: one thread for all tests here

RECIPE = train.Recipe("moe-smoke", "mini-256", steps=3, rows=2, muon_rate=0.01, adam_rate=1.5e-3, warmup=1)


@pytest.fixture(scope="module")
def dense() -> dict[str, torch.Tensor]:
    return {name.removeprefix("model."): tensor for name, tensor in load_file(train.CHECKPOINTS / moe.SOURCE / "model.safetensors").items()}


@pytest.fixture(scope="module")
def batches() -> mixture.Mixture:
    learned = tokenizer.load(train.CHECKPOINTS / moe.SOURCE)
    return mixture.Mixture.of({"stories-zh": mixture.encode(learned, mixture.read_text("stories-zh")[:40])}, tokenizer.newline_id(learned), {"stories-zh": 1})


def test_the_balance_loss_written_out():
    """Catches: choices that are not divided by k, probabilities of the chosen experts only, a factor left out. Four tokens, three experts,
    two chosen: f = (3, 4, 1) / 8."""
    p = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.7, 0.1], [0.3, 0.3001, 0.3999], [0.45, 0.5, 0.05]])
    chosen = p.topk(2, dim=-1).indices
    f = torch.tensor([3, 4, 1]) / 8
    expected = 3 * sum(f[i] * p[:, i].sum() / 4 for i in range(3))
    assert float(moe.balance(p.log(), chosen)) == pytest.approx(float(expected), rel=1e-6)
    assert account.balance(f, p.mean(0)) == pytest.approx(float(expected), rel=1e-6)


def test_balance_is_one_when_even_and_largest_when_one_gets_all():
    """Catches: a loss whose least value is not at even use. Its gradient takes from the expert that is used too much."""
    even = moe.balance(torch.zeros(8, 8), torch.arange(16).view(8, 2) % 8)
    assert float(even) == pytest.approx(1)
    scores = torch.full((6, 8), -20.0)
    scores[:, 3] = 20
    assert float(moe.balance(scores, torch.full((6, 1), 3))) == pytest.approx(8)
    uneven = (torch.eye(8)[3] * 0.5).expand(6, 8).clone().requires_grad_()
    moe.balance(uneven, torch.full((6, 1), 3)).backward()
    assert (uneven.grad[:, 3] > 0).all() and (uneven.grad[:, :3] < 0).all()


def test_two_experts_of_a_pair_begin_as_the_mlp(dense):
    """Catches: neurons lost or doubled, gate and up mixed up. With equal shares the pair must give exactly what the MLP gave."""
    model = moe.upcycled(dense)
    x, at = torch.randn(5, 256, generator=torch.Generator().manual_seed(0)), "layers.1.mlp"
    gate, up, down = (dense[f"{at}.{part}_proj.weight"] for part in ("gate", "up", "down"))
    expected = (torch.nn.functional.silu(x @ gate.T) * (x @ up.T)) @ down.T
    experts = model.layers[1].block_sparse_moe.experts
    with torch.no_grad():
        for pair in range(4):
            made = (experts[2 * pair](x) + experts[2 * pair + 1](x)) / 2
            assert (made - expected).abs().max() < 1e-5 * expected.abs().max()
    assert torch.equal(model.layers[2].self_attn.q_proj.weight, dense["layers.2.self_attn.q_proj.weight"])


def test_a_few_steps_move_experts_and_routers_and_a_checkpoint_reads_back(dense, batches, tmp_path):
    """Catches: a router without a gradient, an optimiser that leaves experts out, names or shapes lost on the way to disk."""
    model = moe.upcycled(dense)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model, log = train.run(RECIPE, moe.loss_of(model), batches, tmp_path / "run", model=model, watch_every=3, watch=lambda m: {"balance": float(m.balance().detach())})
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert {f"layers.{i}.block_sparse_moe.gate.weight" for i in range(4)} <= moved
    assert {f"layers.{i}.block_sparse_moe.experts.{e}.w{n}.weight" for i in range(4) for e in range(8) for n in (1, 2, 3)} <= moved
    assert 0.9 < log["curve"][-1]["balance"] < 8 and log["curve"][-1]["tokens"] == 3 * 2 * 256
    moe.save(model, tmp_path / "out")
    again, ids = moe.load(tmp_path / "out"), torch.arange(3, 30)[None]
    with torch.no_grad():
        assert torch.equal(model.eval()(ids), again(ids))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["model_type"], config["num_local_experts"], config["num_experts_per_tok"], config["intermediate_size"]) == ("mixtral", 8, 2, 384)
    assert mini.parameters(again) == 10_758_400


def test_the_trainers_model_is_the_engines_and_transformers(dense, tmp_path):
    """Catches: routing in training that differs from what runs later. Referees: transformers' Mixtral, and our engine."""
    from transformers import MixtralForCausalLM

    from compute.engine.loader import load
    from compute.engine.model import forward

    model = moe.upcycled(dense, seed=4).eval()
    moe.save(model, tmp_path)
    ids = torch.randint(0, 2048, (1, 40), generator=torch.Generator().manual_seed(1))
    theirs = MixtralForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.no_grad():
        ours, said = model(ids), theirs(ids).logits
    assert (ours - said).abs().max() < 1e-4
    assert (forward(load(tmp_path, device="cpu", dtype="float32").weights, ids, None, torch.arange(40)[None]) - said).abs().max() < 1e-4


def test_the_control_was_trained_as_this_model_was():
    """Catches: a control of another recipe, other batches or other windows, and a card that tells of it by other figures."""
    folder = train.CHECKPOINTS / moe.NAME
    kept, log = (json.loads((folder / name).read_text(encoding="utf-8")) for name in (moe.CONTROL, "training-log.json"))
    assert kept["recipe"] | {"name": moe.NAME} == log["recipe"] and kept["curve"][-1]["tokens"] == log["curve"][-1]["tokens"]
    assert {name: len(nats) for name, nats in kept["windows"].items()} == {name: -(-row["tokens"] // mixture.CONTEXT) for name, row in log["final"]["sources"].items()}
    assert [(row["windows"], row["seed"]) for row in (kept["training_text"], log["final"]["training_text"])] == [(moe.DRAWN, 0)] * 2
    before = {name: round(row["source_nats_per_token"], 5) for name, row in kept["training_text"]["domains"].items()}
    assert before == {name: round(row["source_nats_per_token"], 5) for name, row in log["final"]["training_text"]["domains"].items()}


def test_losses_by_window_add_up_to_the_loss(batches):
    """Catches: the last, shorter window left out, a mean for a sum."""
    model, stream = mini.load(train.CHECKPOINTS / "mini-64"), batches.streams["stories-zh"][: 2 * mixture.CONTEXT + 41]
    by_window = evaluate.nats(model, stream)
    assert len(by_window) == 3 and sum(by_window) / (len(stream) - 1) == pytest.approx(evaluate.loss(model, stream), rel=1e-5)
    with torch.no_grad():
        last = torch.nn.functional.cross_entropy(model(torch.from_numpy(stream[2 * mixture.CONTEXT : -1].astype("int64"))[None])[0], torch.from_numpy(stream[2 * mixture.CONTEXT + 1 :].astype("int64")))
    assert by_window[-1] / 40 == pytest.approx(float(last), rel=1e-4)
