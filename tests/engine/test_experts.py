"""Layers with experts behind a router. Architecture and texts against transformers' Mixtral are among tiny.CASES; here is what is
particular to experts: who is chosen, what is read, what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from compute import functions
from compute.engine import errors, registry, routing
from compute.engine.loader import load
from compute.engine.model import Experts, Linear, forward, mixture, route
from compute.errors import BadInput
from compute.quantize import sent
from compute.quantize.loss import score
from compute.quantize.model import quantized
from compute.quantize.schemes import scheme

from . import tiny

CASE = "mixtral, 2 of 5 experts"


@pytest.fixture(scope="module")
def mixed(made):
    return made(CASE)[1]


@pytest.fixture
def ours(made, mixed, model, monkeypatch):
    """A registry with one model that has experts and one that has none."""
    found = registry.Registry({name: registry.Entry(name, name, made(CASE)[2], "operator") for name in ("mixed", "plain")}, "mixed", {"mixed": mixed, "plain": model})
    for module in (routing, sent):
        monkeypatch.setattr(module, "shared", lambda: found)
    monkeypatch.setattr("compute.quantize.loss.shared", lambda: found)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(-30, 30, width=32), min_size=6, max_size=6, unique=True), min_size=1, max_size=5), st.integers(1, 6))
def test_a_router_chooses_k_and_their_shares_add_up_to_one(scores, k):
    """Catches: softmax over all experts without renormalising, shares that belong to other experts, one expert chosen twice."""
    chosen, shares = route(torch.tensor(scores), k)
    exact = np.exp(np.array(scores) - np.max(scores, axis=1, keepdims=True))
    for given_, row, experts, share in zip(np.array(scores), exact, chosen.numpy(), shares.numpy()):
        assert list(experts) == list(np.argsort(-given_)[:k])
        assert share.sum() == pytest.approx(1, abs=1e-6)
        assert share == pytest.approx(row[experts] / row[experts].sum(), abs=1e-6)


def test_a_token_gets_the_weighted_outputs_of_its_experts():
    """Catches: rows that come back in another order, a share applied to another's output, experts added to nothing. Referee: every
    expert for every token in float64, unchosen ones weighted with nothing."""
    draw = torch.Generator().manual_seed(0)
    E, M, F, N = 5, 16, 12, 23
    new = lambda *shape: torch.randn(*shape, generator=draw) / 3  # noqa: E731
    router, gate_up, down = new(E, M), [new(2 * F, M) for _ in range(E)], [new(M, F) for _ in range(E)]
    x = torch.randn(1, N, M, generator=draw)
    found = mixture(Experts(Linear(router), tuple(map(Linear, gate_up)), tuple(map(Linear, down)), 2), x)
    assert found.shape == x.shape
    exact, p = torch.zeros(N, M, dtype=torch.float64), (x[0] @ router.T).double().softmax(-1)
    for n in range(N):
        best = p[n].argsort(descending=True)[:2]
        for e in best:
            gate, up = (gate_up[e].double() @ x[0, n].double()).chunk(2)
            exact[n] += p[n, e] / p[n, best].sum() * (down[e].double() @ (gate * torch.sigmoid(gate) * up))
    assert (found[0] - exact).abs().max() < 1e-5


class Counted(Linear):
    """A matrix that notes how many rows it was given."""

    def __call__(self, x):
        self.rows.append(len(x))
        return super().__call__(x)


def test_an_expert_that_nobody_is_sent_to_is_not_read(mixed):
    """Catches: all experts computed for all tokens, which gives the right text and none of the saving."""
    weights, rows = mixed.weights, {}

    def watch(name, matrix):
        counted = Counted(matrix.weight)
        object.__setattr__(counted, "rows", rows.setdefault(name, []))
        return counted

    layer = weights.layers[0].with_matrices(watch)
    for tokens in (1, 9):
        [given_.clear() for given_ in rows.values()]
        x = torch.randn(1, tokens, 64, generator=torch.Generator().manual_seed(tokens))
        mixture(layer.experts, x)
        chosen, _ = route(x[0] @ layer.experts.router.weight.T, 2)
        assert {name for name, seen in rows.items() if seen and name.endswith("down")} == {f"experts.{e}.down" for e in chosen.unique().tolist()}
        assert sum(sum(seen) for name, seen in rows.items() if name.endswith("down")) == 2 * tokens


def test_what_a_token_reads_and_what_there_is(made):
    """Catches: idle experts counted as read, or a router forgotten. By hand: 5 experts of three 64 × 96 matrices a layer, 2 used."""
    theirs, ours, _ = made(CASE)
    attention, router, expert = 64 * (4 + 2 + 2) * 16 + 64 * 64, 5 * 64, 3 * 64 * 96
    assert ours.weights.bytes_per_decoded_token() == 4 * (3 * (attention + router + 2 * expert) + 320 * 64)
    assert ours.weights.parameters() - ours.weights.active_parameters() == 3 * 3 * expert
    assert ours.weights.parameters() == theirs.num_parameters()
    assert len(ours.weights.matrices()) == 3 * (3 + 2 * 5) + 1


def test_routers_say_what_transformers_routers_say(made):
    """Catches: scores of another layer or token, or of what comes before the norm."""
    theirs, ours, _ = made(CASE)
    ids = tiny.ids(30, seed=4)
    found = routing.scores(ours.weights, ids)
    with torch.inference_mode():
        said = theirs(ids, output_router_logits=True).router_logits  # transformers gives probabilities or scores, by version
    for mine, layer in zip(found, said):
        assert torch.allclose(mine[0].softmax(-1), layer.softmax(-1) if layer.min() < 0 else layer, atol=1e-5)


def test_the_served_routes_of_a_text(ours, mixed):
    """Catches: a load that leaves out a token, shares of other experts than those named, pieces that are not the text."""
    answer = functions.call("moe.route", {"model": "mixed", "text": "小明 sat on the mat."})
    tokens = len(answer["pieces"])
    assert "".join(answer["pieces"]) == answer["text"] or tokens == len(mixed.tokenizer.encode(answer["text"]))
    assert np.shape(answer["probabilities"]) == (3, tokens, 5) and np.shape(answer["experts"]) == np.shape(answer["shares"]) == (3, tokens, 2)
    assert np.sum(answer["load"], axis=1).tolist() == [2 * tokens] * 3
    p, experts, shares = (np.array(answer[key]) for key in ("probabilities", "experts", "shares"))
    best = np.take_along_axis(p, experts, axis=2)
    assert p.sum(2) == pytest.approx(1, abs=1e-5) and (best[..., 1] >= np.sort(p, axis=2)[..., -2] - 1e-9).all()
    assert shares == pytest.approx(best / best.sum(2, keepdims=True), abs=1e-4)
    assert answer["conditions"]["dtype"] == "float32"


@pytest.mark.parametrize("asked, words", [({"model": "plain"}, "plain.*no router"), ({"text": ""}, "at least 1 character"), ({"text": "x" * 201}, "at most 200")])
def test_what_cannot_be_routed_is_refused(ours, asked, words):
    """Catches: a traceback where a model has no router or a text is too long."""
    with pytest.raises(BadInput, match=words) as caught:
        functions.call("moe.route", {"model": "mixed"} | asked)
    assert caught.value.message("zh")


def test_quantizing_is_refused_in_words(ours, mixed):
    """Catches: an AttributeError from a layer without gate_up, and an int4 model whose bytes are counted as if all experts were read."""
    for call in (lambda: quantized(mixed, scheme("int4-g32")), lambda: quantized(mixed, scheme("gptq-int4-g32")), lambda: score("mixed", "int4-g32"),
                 lambda: ours.get("mixed:int4-g32"), lambda: sent.matrix("mixed", "0.down")):  # fmt: skip
        with pytest.raises(BadInput, match="5 experts in a layer") as caught:
            call()
        assert "5 个专家" in caught.value.message("zh")


def changed(config=(), tensors=lambda held: None):
    def change(folder):
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | dict(config)))
        held = load_file(folder / "model.safetensors")
        tensors(held)
        save_file(held, folder / "model.safetensors")

    return change


AT = "model.layers.1.block_sparse_moe"
BROKEN = {
    "a lost expert matrix": (changed(tensors=lambda t: t.pop(f"{AT}.experts.3.w2.weight")), errors.TensorWrong, r"experts\.3\.w2\.weight \[64, 96\] is missing"),
    "an expert of another width": (changed(tensors=lambda t: t.update({f"{AT}.experts.3.w1.weight": torch.zeros(90, 64)})), errors.TensorWrong, r"experts\.3\.w1.*\[90, 64\].*\[96, 64\]"),
    "a router of too few rows": (changed(tensors=lambda t: t.update({f"{AT}.gate.weight": torch.zeros(4, 64)})), errors.TensorWrong, r"gate\.weight is \[4, 64\].*\[5, 64\]"),
    "fewer experts than in the file": (changed({"num_local_experts": 4}), errors.TensorWrong, r"gate\.weight is \[5, 64\].*\[4, 64\]"),
    "more chosen than there are": (changed({"num_experts_per_tok": 6}), errors.FileCorrupt, "6 experts for each token, but a layer has only 5"),
    "no expert at all": (changed({"num_experts_per_tok": 0}), errors.FileCorrupt, "chosen = 0"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_wrong_files_are_named(made, tmp_path, what):
    """Catches: an expert left at random, or a KeyError that reaches the page."""
    change, kind, words = BROKEN[what]
    shutil.copytree(made(CASE)[2], tmp_path, dirs_exist_ok=True)
    change(tmp_path)
    with pytest.raises(kind, match=words) as caught:
        load(tmp_path, device="cpu")
    assert caught.value.message("zh")


def test_a_sliding_window_ends_the_context(made, tmp_path):
    """Catches: full attention computed in silence where Mixtral's config asks for a window."""
    shutil.copytree(made(CASE)[2], tmp_path, dirs_exist_ok=True)
    changed({"sliding_window": 32})(tmp_path)
    assert load(tmp_path, device="cpu").config.context == 32


def test_bfloat16_runs(made):
    """Catches: shares in float32 that do not fit the outputs' number format."""
    model = load(made(CASE)[2], device="cpu", dtype="bfloat16")
    assert forward(model.weights, tiny.ids(7), None, torch.arange(7)[None]).isfinite().all()
