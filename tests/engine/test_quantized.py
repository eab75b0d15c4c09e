"""Quantized models in the engine, as targets and drafts, by name, and how many of them are kept.

Their products round activations to bfloat16. A row's product is the same to the bit in any company, but attention and norms add
up in float32 in another order here than in `generate`; an activation that lies between two bfloat16 numbers then goes to the
other one, and logits move by some thousandths of the largest. So "the same text" means: token for token, up to a step at
which the two best logits of the reference are closer than that.
"""

import threading

import pytest
import torch

from compute.engine import decoding, device, drafts, mtp, registry
from compute.engine import running as module
from compute.engine.decoding import shared_out
from compute.engine.engine import Ask, Engine
from compute.engine.generate import decode, generate
from compute.engine.model import forward
from compute.engine.paged import PagedCache, Part
from compute.engine.running import Running, running
from compute.engine.speculate import ModelDraft, speculate
from compute.errors import BadInput, Busy, Unavailable, UnknownName
from compute.quantize.model import quantized
from compute.quantize.schemes import scheme
from compute.sampling import Sampling

from . import tiny
from .test_engine import asks
from .test_mtp import random_head
from .test_speculate import drafters, pair, written  # noqa: F401

CLOSE = 2.0**-6  # of the largest logit
SCHEMES = ("int8-channel", "int4-g32", "int4-g32-asym", "int8-channel-head8", "bf16")


@pytest.fixture(scope="module")
def small(model):
    """small(scheme) → the tiny model under it."""
    made = {name: quantized(model, scheme(name)) for name in SCHEMES}
    return made.__getitem__


def same_text(model, prompt, tokens, new) -> int:
    """Tokens that equal the reference's; all of them, or those before a near tie."""
    for at, (expected, row, *_) in enumerate(decode(model, list(prompt), new, lambda row: int(row.argmax()), True)):
        if tokens[at] != expected:
            best, found = float(row.max()), float(row[tokens[at]])
            assert best - found <= CLOSE * float(row.abs().max()), f"token {at}: {found} is not {best}"
            return at
    return new


@pytest.mark.parametrize("name", SCHEMES)
def test_a_batch_writes_what_each_text_would_alone(small, name):
    """Catches: a product of the wrong buffer, a scheme that the decoder drops, rows of neighbours mixed up."""
    model, requests = small(name), asks(10, seed=3, shared=6)
    texts = Engine(model, slots=4, block_size=4).run(requests)
    equal = [same_text(model, ask.tokens, text[0], ask.max_new_tokens) == ask.max_new_tokens for ask, text in zip(requests, texts)]
    assert sum(equal) >= 7, "near ties are rare"


@pytest.mark.parametrize("name", SCHEMES)
def test_the_decoder_computes_the_same_model(small, name):
    """Catches: a bias, a norm or the rounding of activations forgotten on the short way. Referee: the general forward."""
    model, ids = small(name), tiny.ids(12)[0].tolist()
    weights, cache = decoding.prepared(model.weights), PagedCache(model.weights, 8, 4)
    decoder, blocks = decoding.decoder(weights, cache, threads=2), (3, 1, 5)
    rows = [decoder.logits([token], [Part(blocks, at, 1)])[0].clone() for at, token in enumerate(ids)]
    expected = forward(model.weights, torch.tensor([ids]), None, torch.arange(len(ids))[None])[0]
    assert tiny.far_apart(torch.stack(rows), expected) < CLOSE


def test_biases_are_added_on_every_way(made):
    """Catches: the bias lost where the product goes straight into a buffer."""
    biased = quantized(made("llama, biases everywhere")[1], scheme("int4-g32"))
    texts = Engine(biased, slots=2, block_size=4).run([Ask((5, 6, 7), 12, ignore_end=True), Ask((9, 8), 12, ignore_end=True)])
    assert sum(same_text(biased, prompt, text[0], 12) for prompt, text in zip(((5, 6, 7), (9, 8)), texts)) >= 12


def test_sampled_texts_come_from_the_quantized_distribution(small):
    """Catches: sampling that looks at another model's logits. The first token is drawn from the prompt's own forward."""
    model, prompt = small("int4-g32"), tuple(tiny.ids(9)[0].tolist())
    (texts,) = Engine(model, slots=8).run([Ask(prompt, 1, Sampling(), seed=1, n=8, ignore_end=True)])
    assert texts == [[next(generate(model, prompt, 1, sampling=Sampling(), seed=1 + i, ignore_end=True)).token] for i in range(8)]


def test_several_threads_only_where_they_pay(monkeypatch):
    """Catches: a small product that waits for other threads, a large one that stays on one, and threads touched where the
    model runs on one."""
    asked = []
    monkeypatch.setattr(decoding.torch, "set_num_threads", asked.append)
    product, x = lambda x, out: out, torch.zeros(2, 4)
    shared_out(product, decoding.SHARED_BYTES // 2, 3)(x, x)
    shared_out(product, decoding.SHARED_BYTES // 2 - 1, 3)(x, x)
    assert asked == [3, 1] and shared_out(product, 2**30, 1) is product


def test_threads_follow_the_bytes_that_are_left(model, monkeypatch):
    """Catches: a quantized model on as many threads as its original needs, and one that is restored on a single one."""
    monkeypatch.setattr(device, "SMALL_MODEL_BYTES", model.weights.bytes_per_decoded_token() // 2)
    monkeypatch.setattr(device, "cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [quantized(model, scheme(name)).threads for name in ("int8-channel-head8", "int3-g32")] == [1, 4]


# ---- speculation


@pytest.mark.parametrize("kind", ["draft", "itself", "lookup", "mtp", "either"])
@pytest.mark.parametrize("name", ["int4-g32", "int8-channel-head8"])
def test_a_quantized_target_is_checked_by_itself(pair, small, name, kind):  # noqa: F811
    """Catches: guesses checked by other weights, for every drafter."""
    target, n = small(name), 24
    for prompt in ([5, 6, 7, 8], tiny.ids(8)[0].tolist()):
        drafter = drafters(target, pair[1], len(prompt) + n + 4)[kind]
        text = written(speculate(target, drafter, prompt, n, 3, ignore_end=True))
        assert len(text) == n and same_text(target, prompt, text, n) >= 4


@pytest.mark.parametrize("name", ["int4-g32", "bf16"])
def test_a_quantized_draft_changes_no_text(model, small, name):
    """Catches: a draft whose guesses are believed. The target is in float32, where texts are equal token for token; its own
    quantized self guesses many of them."""
    prompt, n = tiny.ids(8)[0].tolist(), 30
    turns = list(speculate(model, ModelDraft(small(name), 60), prompt, n, 4, ignore_end=True))
    assert written(turns) == [step.token for step in generate(model, prompt, n, ignore_end=True)]
    assert sum(turn.played.accepted for turn in turns) > n / 3


def test_drafts_by_name_of_a_quantized_target():
    """Catches: an MTP head looked for under the target's whole name, prompts of another model, a draft whose name has a scheme
    refused as unknown, a scheme that is not there taken for a draft."""
    target = registry.shared().get("mini-256:int4-g32")
    assert target.name == "mini-256:int4-g32"
    for name in ("mini-64", "mini-64:int4-g32", drafts.LOOKUP, drafts.MTP):
        assert drafts.source(name, target).name == name
    told = drafts.run("mini-256:int4-g32", "mini-64:int4-g32", 4, "春天来了，", temperature=0.0, new=12)
    assert told.target == "mini-256:int4-g32" and told.conditions["model"] == told.target and told.rounds
    with pytest.raises(UnknownName, match="mini-64:int5"):
        drafts.source("mini-64:int5", target)


def test_a_shortlist_of_a_quantized_output_matrix(model, small, tmp_path, monkeypatch):
    """Catches: rows taken out of packed codes. A tied head's rows are the embedding's."""
    target, seen = small("int8-channel-head8"), random_head(model)
    parts = {"hidden_norm.weight": seen.hidden_norm, "embedding_norm.weight": seen.embedding_norm, "projection.weight": seen.projection.weight,
             "norm.weight": seen.norm, "shortlist": torch.arange(0, 300, 3)}  # fmt: skip
    c, layer = model.config, seen.layer
    queries, pairs = c.heads * c.head_dim, c.kv_heads * c.head_dim
    q, k, v = layer.qkv.weight.split([queries, pairs, pairs])
    gate, up = layer.gate_up.weight.chunk(2)
    parts |= {f"layer.self_attn.{name}.weight": tensor for name, tensor in (("q_proj", q), ("k_proj", k), ("v_proj", v), ("o_proj", layer.out.weight))}
    parts |= {f"layer.mlp.{name}.weight": tensor for name, tensor in (("gate_proj", gate), ("up_proj", up), ("down_proj", layer.down.weight))}
    parts |= {"layer.input_layernorm.weight": layer.attention_norm, "layer.post_attention_layernorm.weight": layer.mlp_norm}
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous().clone() for name, tensor in parts.items()}, tmp_path / "model.safetensors")
    head = mtp.load(target, tmp_path)
    assert torch.equal(head.output.weight, model.weights.embedding[::3][:100])
    text = written(speculate(target, mtp.MtpDraft(head, target, 40), [5, 6, 7], 16, 3, ignore_end=True))
    assert same_text(target, [5, 6, 7], text, 16) >= 4


# ---- by name


def test_names_with_a_scheme():
    """Catches: a scheme of an unknown model, an unknown or empty scheme, an operator's own id with a colon taken apart."""
    models = registry.discover()
    assert models.named("mini-64") == (models.entries["mini-64"], None)
    assert models.named("mini-64:nf4") == (models.entries["mini-64"], scheme("nf4"))
    for name, words in (("mini-1:nf4", "no model called 'mini-1:nf4'"), ("mini-64:nf5", "no scheme called 'nf5'.*nf4"), ("mini-64:", "no scheme called ''")):
        with pytest.raises(UnknownName, match=words):
            models.get(name)
    models.entries["mine:8b"] = models.entries["mini-64"]
    assert models.named("mine:8b")[1] is None and models.named("mine:8b:nf4")[1] == scheme("nf4")
    assert [registry.unquantized(name) for name in ("mine:8b", "mine:8b:nf4", "mini-64", ":nf4")] == ["mine:8b", "mine:8b", "mini-64", ":nf4"]


def test_few_quantized_models_are_kept():
    """Catches: every scheme that was ever asked for held in memory for ever; the model itself thrown out with them."""
    models = registry.discover()
    plain, names = models.get("mini-64"), [f"mini-64:int{bits}-g32" for bits in (8, 6, 4, 3, 2)]
    first = models.get(names[0])
    for name in names[1:]:
        models.get(names[0])  # in use all the time
        assert models.get(name).name == name
    assert [*models._quantized] == [names[3], names[0], names[4]]
    assert models.get(names[0]) is first and models.get("mini-64") is plain
    assert models.get(names[1]).name == names[1]


def test_who_waits_for_a_scheme_keeps_nobody_else_waiting(monkeypatch):
    """Catches: the whole service held up while one model is quantized, and one that is made twice by two who ask at once."""
    from compute.quantize import model as making

    models, inside, go, made = registry.discover(), threading.Event(), threading.Event(), []

    def slow(model, scheme):
        made.append(scheme.id)
        inside.set()
        assert go.wait(20)
        return quantized(model, scheme)

    models.get("mini-64")
    monkeypatch.setattr(making, "quantized", slow)
    found = []
    threads = [threading.Thread(target=lambda: found.append(models.get("mini-64:int4-g32"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert inside.wait(20) and models.get("mini-64").name == "mini-64" and not found
    go.set()
    for thread in threads:
        thread.join(20)
    assert made == ["int4-g32"] and found[0] is found[1]


@pytest.fixture
def engines(monkeypatch):
    """Nobody else's engines; closed at the end."""
    monkeypatch.setattr(module, "_runnings", {})
    yield module._runnings
    module.close_all(Unavailable("unavailable", reason="the test is over", reason_zh="测试结束"))


def test_few_engines_of_quantized_models_are_kept(engines):
    """Catches: a thread and a block pool for every scheme; one at work closed; the plain model's engine closed."""
    names = [f"mini-64:int{bits}-g32" for bits in (8, 6, 4, 3)]
    plain, first = running("mini-64"), running(names[0])
    assert running(names[0]) is first and first.model.name == names[0]
    for name in names[1:3]:
        running(name)
    work = first.submit(Ask((7, 8, 9), 400, ignore_end=True))
    assert running(names[3]).model.name == names[3]
    assert [*engines] == ["mini-64", names[0], names[2], names[3]], "the idle one that was asked for longest ago has gone"
    for one in (running(names[2]), running(names[3])):
        one.submit(Ask((7, 8, 9), 400, ignore_end=True))
    with pytest.raises(Busy):
        running(names[1])
    assert running("mini-64") is plain
    first.cancel(work)


def test_what_the_engine_cannot_do_is_refused(engines):
    """Catches: a scheme of the KV cache that is served with the cache as it always is."""
    for ask in (running, registry.shared().get):  # and what asks the registry: kv.compare, speculate.run, next.logits
        with pytest.raises(BadInput, match="measured, not served"):
            ask("mini-64:kv4")
        with pytest.raises(BadInput, match="model = 'mini-64:int4-g128'.*a group of 128 does not divide"):
            ask("mini-64:int4-g128")
    assert not engines
