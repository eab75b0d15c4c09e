"""The roofline and the KV cache against arithmetic written out here, from the published shapes.

The referee never asks compute/ for a shape: every number below is multiplied out from the config or the data sheet.
"""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compute import facts, kv, roofline
from compute.claims import CLAIMS
from compute.errors import BadInput, LabError, Refused, UnknownName
from compute.functions import call, complaint

ANCHOR, H100, A100 = "qwen3.8-27b", "h100-sxm", "a100-80g-sxm"
MODELS = sorted(facts.models())
CHIPS = sorted(facts.published_chips())
REAL = [m for m in MODELS if not facts.model(m).textbook]
assert len(REAL) >= 18 and len(CHIPS) >= 11, "no models or chips found"


def near(value: float, digits: int = 4):
    """Equal to that many digits: half a unit of the last one."""
    return pytest.approx(value, rel=0.5 * 10 ** (1 - digits))


# ---- the anchor, multiplied out from its config

HIDDEN, VOCABULARY, WIDTH = 5120, 248_320, 17_408
FULL, LINEAR = 16, 48  # of 64 layers, every fourth is full attention
GATED_GQA = HIDDEN * 2 * 24 * 256 + HIDDEN * 2 * 4 * 256 + 24 * 256 * HIDDEN  # q with its gate, k and v, out
GDN_MIXED = 2 * 16 * 128 + 48 * 128  # q, k, v
GDN = HIDDEN * (GDN_MIXED + 48 * 128) + HIDDEN * 2 * 48 + GDN_MIXED * 4 + 48 * 128 * HIDDEN  # qkv and z, a and b, conv, out
SWIGLU = 3 * HIDDEN * WIDTH
MULTIPLIED = FULL * GATED_GQA + LINEAR * GDN + 64 * SWIGLU + HIDDEN * VOCABULARY
KV_TOKEN = 2 * 4 * 256 * 2 * FULL
STATE = LINEAR * 48 * 128 * 128 * 4
PEAK, BANDWIDTH, MEMORY = 989.5e12, 3.35e12, 80e9
CHECKPOINT = 55_562_855_904  # vision tower and MTP layer included


def test_weights_read_per_token():
    """Catches: the embedding row counted as read, lm_head forgotten, the output gate's half of q_proj forgotten."""
    assert MULTIPLIED == 25_623_920_640
    assert facts.model(ANCHOR).parameters_per_token == MULTIPLIED
    with_embedding = MULTIPLIED + HIDDEN * VOCABULARY
    assert facts.model(ANCHOR).parameters_per_token != with_embedding
    assert roofline.decode(ANCHOR, H100, context=0).bytes_per_step == 2 * MULTIPLIED + 2 * STATE


@pytest.mark.parametrize(
    "claim, value, digits",
    [
        ("anchor.weights_read", 25.624e9, 5),
        ("anchor.weight_bytes", 51.25e9, 4),
        ("anchor.decode_bound", 65.4, 3),
        ("anchor.compute_bound", 19_308, 5),
        ("anchor.compute_share", 0.0034, 2),
        ("anchor.ridge", 295, 3),
        ("upgrade.compute", 3.17, 3),
        ("upgrade.decode", 1.64, 3),
        ("anchor.kv_per_token", 64 * 1024, 9),
        ("anchor.kv_as_mha", 384 * 1024, 9),
        ("anchor.state_bytes", 150_994_944, 9),
        ("anchor.requests_4k", 58, 9),
        ("anchor.requests_reserving_maximum", 1, 9),
        ("anchor.batch1.step_seconds", 15.5e-3, 3),
        ("anchor.batch58.step_seconds", 25.2e-3, 3),
        ("anchor.batch1.tokens_per_second", 64.6, 3),
        ("anchor.batch58.tokens_per_second", 2304, 4),
        ("anchor.int4.bytes", 13.21e9, 4),
        ("anchor.int4.decode_bound", 254, 3),
        ("anchor.prefill_32k.seconds", 1.91, 3),
        ("kv.without_cache", 503_500, 9),
        ("kv.with_cache", 1_003, 9),
        ("textbook.bytes", 140e9, 9),
        ("textbook.read_seconds", 42e-3, 2),
        ("textbook.tokens_per_second", 24, 2),
        ("textbook.compute_seconds", 0.14e-3, 9),
        ("textbook.ratio", 300, 1),
        ("textbook.cards", 2, 9),
        ("llama-2-7b.kv_per_token", 512 * 1024, 9),
        ("llama-3-8b.kv_per_token", 128 * 1024, 9),
        ("llama-3-70b.kv_per_token", 320 * 1024, 9),
        ("deepseek-v3.kv_per_token", 61 * (512 + 64) * 2, 9),
    ],
)
def test_claims_are_the_stated_values(claim, value, digits):
    """Catches: a formula drifting from the lecture's figures by more than their last digit."""
    assert CLAIMS[claim]().value == near(value, digits)


@pytest.mark.parametrize(
    "claim, written_out",
    [
        ("anchor.weights_read", MULTIPLIED),
        ("anchor.decode_bound", BANDWIDTH / (2 * MULTIPLIED)),
        ("anchor.compute_bound", PEAK / (2 * MULTIPLIED)),
        ("anchor.compute_share", BANDWIDTH / PEAK),
        ("anchor.ridge", PEAK / BANDWIDTH),
        ("upgrade.compute", 989.5 / 312),
        ("upgrade.decode", 3.35 / 2.039),
        ("anchor.batch1.step_seconds", (2 * MULTIPLIED + 4096 * KV_TOKEN + 2 * STATE) / BANDWIDTH),
        ("anchor.batch58.step_seconds", (2 * MULTIPLIED + 58 * (4096 * KV_TOKEN + 2 * STATE)) / BANDWIDTH),
        ("anchor.int4.bytes", MULTIPLIED * (4 + 16 / 128) / 8),
        ("anchor.prefill_32k.seconds", (2 * MULTIPLIED * 32768 + FULL * 2 * 32768**2 * 24 * 256) / PEAK),
        ("textbook.read_seconds", 140e9 / 3.35e12),
    ],
)
def test_claims_to_nine_digits(claim, written_out):
    """Catches: an error too small for the rounded figures (a scale forgotten, a state read once instead of twice)."""
    assert CLAIMS[claim]().value == pytest.approx(written_out, rel=1e-9)


def test_decode_of_the_anchor_at_58():
    """Catches: attention FLOPs or KV counted for one request instead of the batch."""
    d = roofline.decode(ANCHOR, H100, batch=58, context=4096)
    bytes_ = 2 * MULTIPLIED + 58 * (4096 * KV_TOKEN + 2 * STATE)
    flops = 58 * (2 * MULTIPLIED + FULL * 4096 * 4 * 24 * 256)
    assert d.bytes_per_step == bytes_ and d.flops_per_step == flops
    assert d.step_seconds == near(25.17e-3) and d.tokens_per_second == near(2304)
    assert d.bound == "memory" and d.compute_share == pytest.approx((flops / PEAK) / (bytes_ / BANDWIDTH), rel=1e-12)


def test_prefill_of_32k():
    """Catches: attention forgotten (1.70 s) or counted in full instead of causally (2.12 s)."""
    p = roofline.prefill(ANCHOR, H100, prompt=32768)
    assert p.seconds == near(1.91, 3) and p.bound == "compute"
    assert p.flops == 2 * MULTIPLIED * 32768 + FULL * 2 * 32768**2 * 24 * 256
    assert p.bytes == 2 * MULTIPLIED + 32768 * KV_TOKEN + STATE


def test_int4_reads_the_scales_too():
    """Catches: 4 bits taken as exactly a quarter (12.81 GB, 261 token/s)."""
    d = roofline.decode(ANCHOR, H100, context=0, weight_bits=4, group=128)
    weights = d.bytes_per_step - 2 * STATE
    assert weights == near(13.21e9) and BANDWIDTH / weights == near(254, 3)
    assert d.flops_per_step == 2 * MULTIPLIED, "fewer bits do not make fewer multiplications"


def test_capacity_counts_everything_that_is_loaded():
    """Catches: vision tower and MTP layer forgotten (62 requests), the embedding forgotten (68), the state forgotten (91),
    a prefix mixed up (80 GiB: 72)."""
    c = kv.capacity(ANCHOR, H100, context=4096)
    assert c.weights_bytes == CHECKPOINT
    assert c.requests == int((MEMORY - CHECKPOINT) // (4096 * KV_TOKEN + STATE)) == 58
    assert c.requests_reserving_maximum == int((MEMORY - CHECKPOINT) // (262_144 * KV_TOKEN + STATE)) == 1
    request = 4096 * KV_TOKEN + STATE
    mistakes = {62: (MEMORY - 2 * 26_895_998_464) / request, 68: (MEMORY - 2 * MULTIPLIED) / request,
                91: (MEMORY - CHECKPOINT) / (4096 * KV_TOKEN), 72: (80 * 2**30 - CHECKPOINT) / request}  # fmt: skip
    assert all(int(requests) == named for named, requests in mistakes.items())


# ---- lesson 38


def test_lesson_38():
    """Catches: the textbook exception lost (a refusal), or its two cards not said."""
    d = roofline.decode("70b-dense", H100, context=0)
    assert d.bytes_per_step == 140e9 and d.flops_per_step == 140e9
    assert d.memory_seconds == near(41.79e-3) and d.tokens_per_second == near(23.93)
    assert 140e9 / 1000e12 == 0.14e-3 and d.memory_seconds / 0.14e-3 == near(298.5)
    assert d.textbook and d.cards_needed == 2


def test_only_the_textbook_may_exceed_the_card():
    """Catches: the exception widened to real models of the same size."""
    with pytest.raises(Refused):
        roofline.decode("llama-3-70b", H100, context=0)
    assert not any(facts.model(m).textbook for m in REAL)


# ---- KV per token, from each config by hand

PER_TOKEN = {  # 2 × KV heads × head_dim × 2 B × layers, each typed from its config.json
    "llama-7b": 2 * 32 * 128 * 2 * 32,
    "llama-2-7b": 2 * 32 * 128 * 2 * 32,
    "llama-2-13b": 2 * 40 * 128 * 2 * 40,
    "llama-3-8b": 2 * 8 * 128 * 2 * 32,
    "llama-3-70b": 2 * 8 * 128 * 2 * 80,
    "mistral-7b": 2 * 8 * 128 * 2 * 32,
    "mixtral-8x7b": 2 * 8 * 128 * 2 * 32,
    "qwen3-0.6b": 2 * 8 * 128 * 2 * 28,  # hidden 1,024 over 16 heads would be 64
    "qwen3-4b": 2 * 8 * 128 * 2 * 36,  # 2,560 over 32 heads would be 80
    "qwen3-8b": 2 * 8 * 128 * 2 * 36,
    "qwen3.8-27b": 2 * 4 * 256 * 2 * 16,  # 5,120 over 24 heads is no whole number
    "glm-4.5": 2 * 8 * 128 * 2 * 92,  # 5,120 over 96 heads would be 53
    "gpt-oss-20b": 2 * 8 * 64 * 2 * 24,  # 2,880 over 64 heads would be 45
    "smollm2-135m": 2 * 3 * 64 * 2 * 30,
    "deepseek-v3": (512 + 64) * 2 * 61,
}


@pytest.mark.parametrize("model, bytes_", PER_TOKEN.items())
def test_kv_per_token(model, bytes_):
    """Catches: head_dim = hidden / heads, query heads instead of KV heads, MLA counted for K and V (twice)."""
    assert kv.per_token(model).bytes == bytes_


def test_named_kv_sizes():
    """Catches: KB for KiB."""
    sizes = {m: kv.per_token(m).bytes / 1024 for m in ("llama-2-7b", "llama-3-8b", "llama-3-70b", ANCHOR)}
    assert sizes == {"llama-2-7b": 512, "llama-3-8b": 128, "llama-3-70b": 320, ANCHOR: 64}
    assert kv.per_token(ANCHOR).as_mha_bytes == 384 * 1024 == 2 * 24 * 256 * 2 * FULL
    assert kv.per_token(ANCHOR).state_bytes == 150_994_944 == 144 * 2**20


def test_half_the_bits_are_half_the_bytes():
    """Catches: kv_bits ignored, or taken for bytes."""
    assert kv.per_token(ANCHOR, kv_bits=8).bytes == 32 * 1024
    assert kv.per_token(ANCHOR, kv_bits=8).state_bytes == STATE, "the recurrent state stays FP32"


def test_mla_is_one_latent_a_layer():
    """Catches: num_key_value_heads (128 in the config) taken at its word: 57 times too much."""
    rows = kv.per_token("deepseek-v3").rows
    assert [(r.kind, r.layers, r.values_per_token) for r in rows] == [("mla", 61, 576)]
    heads = kv.heads("deepseek-v3")
    assert heads.values("mha") == 128 * (128 + 64) + 128 * 128 and heads.values("mla") == 576


def test_windows_stop_growing():
    """Catches: a sliding window ignored in the cache, in its reading, or in the causal pairs of a prefill."""
    shape = facts.model("gpt-oss-20b")  # 12 of 24 layers keep 128 tokens
    layer = 2 * 8 * 64 * 2
    assert roofline.cache_bytes(shape, 100, 16) == 24 * 100 * layer
    assert roofline.cache_bytes(shape, 4096, 16) == 12 * 4096 * layer + 12 * 128 * layer
    kept = kv.per_token("gpt-oss-20b")
    assert (kept.bytes, kept.bytes_beyond_window) == (24 * layer, 12 * layer)
    assert kv.per_token("mistral-7b").bytes_beyond_window == 0
    window = next(c for c in shape.caches if c.window)
    assert window.causal_pairs(1000) == 1000 * 128 - 128 * 128 / 2


@pytest.mark.parametrize("kind, values", [("mha", 2 * 32 * 128), ("gqa", 2 * 8 * 128), ("mqa", 2 * 128), ("mla", 512 + 64)])
def test_a_shape_by_hand(kind, values):
    """Catches: K or V forgotten, MLA doubled."""
    assert kv.of_shape(kind, layers=32, heads=32, kv_heads=8, head_dim=128, latent=512, rope_dim=64) == 32 * values * 2


@pytest.mark.parametrize("prompt, new", [(4, 1000), (1, 1), (3, 9), (17, 250)])
def test_computations_by_counting(prompt, new):
    """Catches: an off-by-one (the last new token is never fed back: 1,003 and not 1,004)."""
    without = with_ = cached = 0
    for step in range(new):
        seen = prompt + step
        without += seen
        with_ += seen - cached
        cached = seen
    c = kv.computations(prompt, new)
    assert (c.without_cache, c.with_cache) == (without, with_)


# ---- objects of one's own


def test_llama_2_13b_by_its_bytes():
    """26 GB of weights, 6.7 GB of KV a sequence, 6.56 TB/s. Catches: KV not multiplied with the batch, or capped."""
    model = {"parameters": 13e9, "kv_bytes_per_token": 6.7e9 / 4096}
    chip = {"memory_bytes": 400e9, "bandwidth_bytes_per_s": 6.56e12, "flops_bf16": 1e15}
    for batch, milliseconds in ((1, 4.98), (8, 12.13), (16, 20.30), (32, 36.65)):
        d = roofline.decode(model, chip, batch=batch, context=4096)
        assert d.step_seconds == pytest.approx((26e9 + batch * 6.7e9) / 6.56e12, rel=1e-9)
        assert round(d.step_seconds * 1e3, 2) == milliseconds


INLINE = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
          "intermediate_size": 14336, "vocab_size": 128256}  # fmt: skip
CARD = {"name": "mine", "memory_bytes": 24e9, "bandwidth_bytes_per_s": 1e12, "flops_bf16": 1e14}


def test_an_inline_config_is_the_published_model():
    """Catches: an inline object taking another way than a named one (head_dim absent: hidden / heads holds)."""
    for function in (roofline.decode, roofline.prefill, roofline.ledger):
        assert function(INLINE, H100) == function("llama-3-8b", H100)
    assert kv.per_token(INLINE) == kv.per_token("llama-3-8b")
    assert kv.capacity(INLINE, CARD).requests == kv.capacity("llama-3-8b", CARD).requests
    layer = 4096 * 4096 * 2 + 4096 * 2 * 8 * 128 + 3 * 4096 * 14336
    assert facts.model(INLINE).parameters_per_token == 32 * layer + 4096 * 128256


def test_an_inline_head_dim_is_taken_at_its_word():
    """Catches: hidden / heads although the config says otherwise."""
    assert kv.per_token({**INLINE, "head_dim": 256}).bytes == 2 * kv.per_token(INLINE).bytes


def test_tied_embeddings_are_loaded_once():
    """Catches: a tied embedding counted again beside lm_head."""
    tied, untied = facts.model({**INLINE, "tie_word_embeddings": True}), facts.model(INLINE)
    assert untied.parameters - tied.parameters == 4096 * 128256
    assert untied.parameters_per_token == tied.parameters_per_token


# ---- experts


def test_experts_used_and_read():
    """Catches: all experts multiplied for each token, or only the used ones loaded."""
    expert, layers = 3 * 4096 * 14336, 32
    shape = facts.model("mixtral-8x7b")
    row = next(m for m in shape.matrices if m.name == "experts")
    assert (row.per_token, row.loaded) == (2 * expert * layers, 8 * expert * layers)
    assert row.read(1) == pytest.approx(2 * expert * layers)
    assert row.read(2) == pytest.approx((8 - 8 * (6 / 8) ** 2) * expert * layers), "expected distinct experts of two tokens"
    assert row.read(10_000) == pytest.approx(row.loaded)


# ---- the ledger adds up

SETTINGS = [
    {}, {"batch": 58}, {"batch": 7, "context": 1000, "kv_bits": 8}, {"weight_bits": 4, "context": 0}, {"weight_bits": 3, "group": 32, "batch": 3},
    {"prompt": 1}, {"prompt": 32768, "context": 1, "kv_bits": 4},
]  # fmt: skip
HUGE = {"memory_bytes": 1e15, "bandwidth_bytes_per_s": 1e12, "flops_bf16": 1e14}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_ledger_adds_up(model, setting):
    """Catches: a row forgotten in one of the two, or activations charged."""
    stored = {k: v for k, v in setting.items() if k not in ("batch", "context", "prompt")}
    batch, context, prompt = setting.get("batch", 1), setting.get("context", 4096), setting.get("prompt", 4096)
    decode, prefill = roofline.decode(model, HUGE, batch, context, **stored), roofline.prefill(model, HUGE, prompt, **stored)
    for phase, bytes_, flops in (("decode", decode.bytes_per_step, decode.flops_per_step), ("prefill", prefill.bytes, prefill.flops)):
        rows = roofline.ledger(model, HUGE, phase, batch, context, prompt, **stored)
        assert sum(op.weight_bytes + op.kv_bytes + op.state_bytes for op in rows.ops) == pytest.approx(bytes_, rel=1e-12)
        assert sum(op.flops for op in rows.ops) == pytest.approx(flops, rel=1e-12)
        assert rows.bytes == bytes_ and rows.flops == flops
    shape = facts.model(model)
    weights = sum(op.weight_bytes for op in roofline.ledger(model, HUGE, "decode", 1, context, prompt, **stored).ops)
    assert weights == pytest.approx(shape.parameters_per_token * roofline.weight_bytes(stored.get("weight_bits", 16), stored.get("group", 128)))


def test_lm_head_is_two_flops_a_weight():
    """Catches: one FLOP per multiply-add in the last matrix."""
    rows = {op.name: op for op in roofline.ledger(ANCHOR, H100).ops}
    assert rows["lm_head"].flops == 2 * HIDDEN * VOCABULARY
    assert rows["swiglu"].flops == 2 * 64 * SWIGLU and rows["swiglu"].weight_bytes == 2 * 64 * SWIGLU
    assert rows["gqa.cache"].kv_bytes == 4096 * KV_TOKEN and rows["gqa.cache"].flops == FULL * 4096 * 4 * 24 * 256
    assert rows["state"].state_bytes == 2 * STATE, "read and written back"
    assert rows["activations"].bytes == 0 and rows["activations"].activation_bytes > 0


# ---- properties

models = st.sampled_from(REAL)
chips = st.sampled_from(CHIPS)
bits = st.sampled_from([2, 3, 4, 8, 16])


@settings(max_examples=150, deadline=None)
@given(models, chips, st.integers(1, 300), st.integers(1, 300), st.integers(0, 60_000), st.integers(0, 60_000), bits, st.sampled_from([4, 8, 16]))
def test_more_is_never_faster(model, chip, b1, b2, c1, c2, weight_bits, kv_bits):
    """Catches: a sign error, or a window that shrinks with the length."""
    (b1, b2), (c1, c2) = sorted((b1, b2)), sorted((c1, c2))
    try:
        more = roofline.decode(model, chip, b2, c2, weight_bits=weight_bits, kv_bits=kv_bits)
    except Refused:
        assume(False)
    less = roofline.decode(model, chip, b1, c1, weight_bits=weight_bits, kv_bits=kv_bits)
    assert less.step_seconds <= more.step_seconds * (1 + 1e-12)
    assert less.bytes_per_step <= more.bytes_per_step * (1 + 1e-12) and less.flops_per_step <= more.flops_per_step
    wider = roofline.decode(model, chip, b2, c1, weight_bits=weight_bits, kv_bits=kv_bits)
    assert less.tokens_per_second <= wider.tokens_per_second * (1 + 1e-12), "a larger batch never lowers the total"
    assert 0 < more.compute_share <= 1 and (more.bound == "compute") == (more.compute_share == 1 and more.memory_seconds < more.compute_seconds)


@settings(max_examples=150, deadline=None)
@given(models, chips, st.integers(1, 100_000), bits, st.sampled_from([4, 8, 16]))
def test_capacity_is_where_decode_starts_to_refuse(model, chip, context, weight_bits, kv_bits):
    """Catches: capacity and refusal counting different things; a speed printed past the memory."""
    stored = {"weight_bits": weight_bits, "kv_bits": kv_bits}
    try:
        most = kv.capacity(model, chip, context, **stored).requests
    except Refused:
        with pytest.raises(Refused):
            roofline.decode(model, chip, 1, context, **stored)
        return
    if 0 < most <= 65_536:
        assert roofline.decode(model, chip, most, context, **stored).tokens_per_second > 0
    if most < 65_536:
        with pytest.raises(Refused) as refusal:
            roofline.decode(model, chip, most + 1, context, **stored)
        assert refusal.value.values["missing_bytes"] > 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**7), st.integers(1, 4096), st.integers(0, 10**9))
def test_longest_is_the_last_that_fits(extra, each, fixed):
    """Catches: the bisection off by one."""
    budget = fixed + each + extra
    n = kv.longest(lambda tokens: fixed + each * tokens, budget)
    assert n == (budget - fixed) // each
    assert kv.longest(lambda tokens: fixed + each * min(tokens, 7), fixed + each * 7) is None


# ---- complaints

COMPLAINTS = [  # function, parameters, what both sentences must name
    ("roofline.decode", {"model": "qwen4", "chip": H100}, UnknownName, ["qwen4", ANCHOR]),
    ("roofline.decode", {"model": ANCHOR, "chip": "h1000"}, UnknownName, ["h1000", H100]),
    ("roofline.decode", {"model": ANCHOR, "chip": H100, "batch": 0}, BadInput, ["batch", "0", "1"]),
    ("roofline.decode", {"model": ANCHOR, "chip": H100, "batch": "many"}, BadInput, ["batch", "many"]),
    ("roofline.decode", {"model": ANCHOR, "chip": H100, "weight_bits": 64}, BadInput, ["weight_bits", "64", "32"]),
    ("roofline.decode", {"model": ANCHOR, "chip": H100, "wight_bits": 4}, UnknownName, ["wight_bits", "weight_bits"]),
    ("roofline.decode", {"model": ANCHOR}, BadInput, ["chip"]),
    ("roofline.decode", {"model": {"hidden_size": 64}, "chip": H100}, BadInput, ["model.num_hidden_layers"]),
    ("roofline.decode", {"model": {**INLINE, "num_key_value_heads": 5}, "chip": H100}, BadInput, ["num_key_value_heads", "5", "32"]),
    ("roofline.decode", {"model": {"parameters": -1}, "chip": H100}, BadInput, ["model.parameters", "-1"]),
    ("roofline.decode", {"model": ANCHOR, "chip": {"memory_bytes": 1e9}}, BadInput, ["chip", "bandwidth_bytes_per_s", "flops_bf16"]),
    ("roofline.decode", {"model": ANCHOR, "chip": {**CARD, "bandwidth_bytes_per_s": 0}}, BadInput, ["chip.bandwidth_bytes_per_s", "0"]),
    ("roofline.ledger", {"model": ANCHOR, "chip": H100, "phase": "both"}, BadInput, ["phase", "both"]),
    ("kv.capacity", {"model": "70b-dense", "chip": H100}, BadInput, ["kv_bytes_per_token"]),
    ("kv.computations", {"prompt": 0}, BadInput, ["prompt", "0"]),
    ("kv.of_shape", {"kind": "mqs"}, BadInput, ["kind", "mqs", "mqa"]),
]  # fmt: skip


@pytest.mark.parametrize("function, params, error, named", COMPLAINTS, ids=lambda v: str(v)[:40])
def test_bad_input_is_one_sentence_in_both_languages(function, params, error, named):
    """Catches: a traceback, a sentence without the value or without the way out, an English reason on a Chinese page."""
    with pytest.raises(LabError) as caught:
        call(function, params)
    assert isinstance(caught.value, error)
    zh, en = caught.value.message("zh"), caught.value.message("en")
    for word in named:
        assert word in zh and word in en
    assert any("\u4e00" <= c <= "\u9fff" for c in zh) and not any("\u4e00" <= c <= "\u9fff" for c in en)
    assert "\n" not in zh + en and len(en) < 600


@pytest.mark.parametrize("value, zh", [("4097", "参数 block = 4097 不行：至多 4096。"), ("x", "参数 block = 'x' 不行：只能是 'tensor' 或 'channel'。"),
                                       ("3.3", "参数 outlier = '3.3' 不行：要是 0.5 的倍数。")])  # fmt: skip
def test_a_name_or_a_number_is_complained_about_by_its_own_name(value, zh):
    """Catches: pydantic's names for the parts of a union in a sentence, and a number told that it is no name."""

    class Params(pydantic.BaseModel):
        block: Literal["tensor", "channel"] | Annotated[int, pydantic.Field(ge=1, le=4096)] = "channel"
        outlier: Annotated[float, pydantic.Field(multiple_of=0.5)] = 6.0

    with pytest.raises(pydantic.ValidationError) as caught:
        Params(**{"outlier" if value == "3.3" else "block": value})
    assert complaint(caught.value, []).message("zh") == zh


@pytest.mark.parametrize("function", ["roofline.decode", "roofline.prefill", "roofline.ledger", "kv.capacity"])
def test_what_does_not_fit_shows_no_speed(function):
    """70.6 B parameters on 80 GB. Catches: a plausible figure for an impossible setting; the missing bytes left out."""
    with pytest.raises(Refused) as refusal:
        call(function, {"model": "llama-3-70b", "chip": H100})
    embedding_and_head, norms = 2 * 8192 * 128256, 161 * 8192
    layer = 2 * 8192 * 8192 + 8192 * 2 * 8 * 128 + 3 * 8192 * 28672
    weights = 2 * (80 * layer + embedding_and_head + norms)
    assert refusal.value.values["weights_gb"] == pytest.approx(weights / 1e9, rel=1e-6)
    for lang in ("zh", "en"):
        assert f"{refusal.value.values['missing_gb']:.4g} GB" in refusal.value.message(lang)


def test_the_command_of_the_readme():
    """Catches: result fields renamed (they are what other people's scripts read)."""
    d = call("roofline.decode", {"model": ANCHOR, "chip": H100, "batch": 58, "context": 4096})
    assert d["step_seconds"] == near(25.17e-3) and d["tokens_per_second"] == near(2304)
    assert {"bytes_per_step", "flops_per_step", "compute_share", "bound"} <= set(d)
    assert {"seconds", "flops", "bytes", "bound"} <= set(call("roofline.prefill", {"model": ANCHOR, "chip": H100}))
    assert {"bytes", "state_bytes"} <= set(call("kv.per_token", {"model": ANCHOR}))
    assert {"requests", "requests_reserving_maximum"} <= set(call("kv.capacity", {"model": ANCHOR, "chip": H100}))
    assert call("kv.computations", {}) == {"without_cache": 503_500, "with_cache": 1_003}


def test_only_the_lecture_s_model_may_be_too_large():
    """Catches: an inline parameter count that gets a speed on a card which cannot hold it."""
    with pytest.raises(Refused):
        roofline.decode({"parameters": 70e9}, "rtx-4090")
    step = roofline.decode("70b-dense", "h100-sxm", context=0)
    assert step.textbook and step.cards_needed == 2  # 140 GB on cards of 80 GB


def test_qwen3_next_has_a_shared_expert_of_its_own_width():
    """Catches the shared expert forgotten (it has no n_shared_experts), its gate, and the output gate that configs of
    this family do not name. Referee: the parameters of the same model built by transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = {
        "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "vocab_size": 1000, "full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "num_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 40, "shared_expert_intermediate_size": 56, "tie_word_embeddings": False,
    }  # fmt: skip
    with torch.device("meta"):
        built = transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**config))
    assert facts.model(config | {"model_type": "qwen3_next"}).parameters == sum(p.numel() for p in built.parameters())
