"""The clock: the ideal bound against compute/roofline.py, the calibrated one against arithmetic written out, and its error on
published whole-engine runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compute import calibrated, facts, functions, judged, roofline
from compute.batching import Scheduler
from compute.errors import BadInput, Refused
from compute.paging import BlockPool
from compute.simulate import Job, simulate

MODELS = ("qwen3.8-27b", "llama-2-7b", "mistral-7b", "gpt-oss-20b", "qwen3-8b")


@given(st.sampled_from(MODELS), st.integers(1, 16), st.integers(0, 5000))
@settings(max_examples=60, deadline=None)
def test_the_ideal_clock_is_the_roofline_of_decode(model, batch, context):
    """Catches a matrix, a cache or a state that only one of the two counts."""
    clock = calibrated.ideal(model, "h100-sxm")
    assert float(clock.step(batch, batch * context)) == pytest.approx(roofline.decode(model, "h100-sxm", batch, context).step_seconds, rel=1e-12)


@given(st.sampled_from(MODELS), st.integers(1, 20_000))
@settings(max_examples=60, deadline=None)
def test_the_ideal_clock_is_the_roofline_of_prefill(model, prompt):
    """Catches pairs of a window or of causality counted twice, and an lm_head that the ideal bound charges for every token."""
    clock = calibrated.ideal(model, "h100-sxm")
    assert float(clock.step(0, 0, prompt, prompt**2 / 2, 1)) == pytest.approx(roofline.prefill(model, "h100-sxm", prompt).seconds, rel=1e-12)


def test_a_calibrated_step_of_llama_2_7b_written_out():
    """Catches a kind of kernel that is left out, launched too often, or charged at another's rate."""
    chip, rates = facts.chip("a100-80g-sxm"), calibrated.classes()["a100-80g-sxm"]["bf16"]
    batch, context, layers, h, ff, vocabulary = 32, 1000, 32, 4096, 11008, 32000

    def kernel(rate, flops, bytes_):
        return math.hypot(flops / (rate.compute * chip.peak), bytes_ / (rate.memory * chip.bandwidth_bytes_per_s))

    weights = [(h * h, layers), (2 * h * h, layers), (h * h, layers), (3 * h * ff, layers), (h * vocabulary, 1)]
    seconds = sum(kernel(rates.gemm, 2 * n * count * batch, 2 * n * count) for n, count in weights)
    seconds += (layers * 4 + 1) * rates.gemm.launch_seconds  # qkv, out, gate and up, down; lm_head
    kv = 2 * h * 2 * context * batch * layers
    seconds += layers * rates.decode_attention.launch_seconds + kernel(rates.decode_attention, 4 * h * context * batch * layers, kv)
    seconds += 3 * layers * rates.small_launch_seconds
    seconds += batch * layers * 2 * (8 * h + 3 * ff) / (rates.gemm.memory * chip.bandwidth_bytes_per_s)
    assert float(calibrated.calibrated("llama-2-7b", "a100-80g-sxm").step(batch, batch * context)) == pytest.approx(seconds, rel=1e-9)


def test_lm_head_works_only_where_logits_are_wanted():
    """Catches a prefill that is charged a vocabulary for every token of the prompt."""
    clock = calibrated.calibrated("llama-3-8b", "h100-sxm")
    without, with_ = float(clock.step(0, 0, 4096, 4096**2 / 2, 0)), float(clock.step(0, 0, 4096, 4096**2 / 2, 1))
    rate = clock.rates.gemm
    head = 4096 * 128_256
    assert with_ - without == pytest.approx(rate.launch_seconds + math.hypot(2 * head / (rate.compute * clock.chip.peak), 2 * head / (rate.memory * 3.35e12)), rel=1e-6)


def test_grouped_heads_are_charged_by_kv_heads():
    """Catches the fault of a well-known tool, which reads the KV once for each query head: four times too much here."""
    shape = facts.model("llama-3-8b")
    clock = calibrated.ideal("llama-3-8b", "h100-sxm")
    assert clock.kv_bytes == 32 * 2 * 8 * 128 * 2
    assert clock.capacity(8192) == int((80e9 - shape.loaded_bytes(2)) // (8192 * clock.kv_bytes))


def test_generate_integrates_the_growing_context():
    """Catches a run priced at its final or mean context for every token, and a first token counted twice."""
    made = calibrated.generate("llama-2-7b", "a100-80g-sxm", 8, 100, 5)
    clock = calibrated.calibrated("llama-2-7b", "a100-80g-sxm")
    steps = [float(clock.step(8, 8 * (100 + written))) for written in range(1, 5)]
    assert made.calibrated.step_seconds == pytest.approx(steps)
    assert made.calibrated.first_token_seconds == pytest.approx(float(clock.step(0, 0, 800, 8 * 100**2 / 2, 8)))
    assert made.calibrated.tokens_per_second == pytest.approx(8 * 5 / (made.calibrated.first_token_seconds + sum(steps)))
    assert made.ideal.tokens_per_second > made.calibrated.tokens_per_second


def test_cards_share_weights_heads_and_sums():
    """Catches a card that reads all weights, KV heads that are cut, and sums across cards left out."""
    one, four = (calibrated.ideal("llama-2-70b", "h200-sxm", tensor_parallel=cards) for cards in (1, 4))
    assert four.free_bytes == pytest.approx(141e9 - facts.model("llama-2-70b").loaded_bytes(2) / 4)
    assert four.kv_bytes == one.kv_bytes / 4
    assert calibrated.ideal("qwen3.8-27b", "h200-sxm", tensor_parallel=8).kv_bytes == calibrated.ideal("qwen3.8-27b", "h200-sxm", tensor_parallel=4).kv_bytes
    sums = 2 * 80 * 64 * 8192 * 2 * 2 * 3 / 4 / 450e9  # twice a layer, 64 tokens, 16 bits, 2 (n − 1) / n of them over NVLink
    assert float(four.step(64, 64 * 100)) == pytest.approx(float(one.step(64, 64 * 100)) / 4 + sums, rel=1e-9)


def test_int4_stores_a_scale_for_every_128():
    """Catches scales that are forgotten in what fits or in what is read."""
    clock = calibrated.ideal("llama-3-8b", "h100-sxm", "int4")
    matrices = sum(m.loaded for m in facts.model("llama-3-8b").matrices)
    assert float(clock.step(1, 0)) == pytest.approx(matrices * (4 + 16 / 128) / 8 / 3.35e12, rel=1e-9)


@pytest.mark.parametrize("arguments, error, says", [
    ({"tensor_parallel": 5}, BadInput, "must divide the 32 query heads"),
    ({"tensor_parallel": 9}, BadInput, "at most 8"),
    ({"model": "qwen3.8-27b", "tensor_parallel": 3}, BadInput, "the 4 KV heads"),
    ({"model": "qwen3.8-27b", "tensor_parallel": 6}, BadInput, "the 4 KV heads"),
    ({"chip": {"memory_bytes": 8e10, "bandwidth_bytes_per_s": 1e-300, "flops_bf16": 3e14}}, BadInput, "at least 1"),
    ({"chip": "mi300x", "tensor_parallel": 2}, BadInput, "link between cards is not known"),
    ({"chip": "a100-80g-sxm", "precision": "fp8"}, BadInput, "no 8-bit floating-point units"),
    ({"model": {"parameters": 7e9}, "tensor_parallel": 2}, BadInput, "no heads to share out"),
    ({"batch": 0}, BadInput, "at least 1"),
    ({"output": 0}, BadInput, "at least 1"),
    ({"batch": 5000}, Refused, "does not fit"),
    ({"model": "llama-3-70b"}, Refused, "does not fit"),
])  # fmt: skip
def test_impossible_settings_are_refused_in_words(arguments, error, says):
    """Catches a plausible figure for what cannot be, and a sentence that one language lacks."""
    with pytest.raises(error) as refused:
        functions.call("roofline.generate", {"model": "llama-2-7b", "chip": "h100-sxm", "batch": 4, "prompt": 128, "output": 16} | arguments)
    assert says in refused.value.message("en") and refused.value.message("zh")


def test_a_card_that_nobody_measured_has_an_ideal_line_only():
    """Catches factors that are lent from one card to another without a word."""
    made = calibrated.generate("llama-2-7b", "mi300x", 1, 128, 16)
    assert made.calibrated is None and made.ideal.tokens_per_second > 0
    assert "MI300X" in made.why_not["en"] and "MI300X" in made.why_not["zh"]
    with pytest.raises(Refused):
        calibrated.calibrated("llama-2-7b", "mi300x")


@given(st.sampled_from(("llama-2-7b", "qwen3-8b", "mixtral-8x7b")), st.sampled_from(("a100-80g-sxm", "h100-sxm", "h200-sxm", "l40s", "b200")), st.integers(1, 64), st.integers(1, 4000), st.integers(0, 4000))
@settings(max_examples=80, deadline=None)
def test_real_kernels_are_never_faster_than_the_bound(model, chip, batch, context, prompt):
    """Catches a share above 1, an operation that is left out, and work that makes a step shorter."""
    try:
        bound, real = calibrated.ideal(model, chip), calibrated.calibrated(model, chip)
    except Refused:
        return
    prompts = 1 if prompt else 0
    amounts = (batch, batch * context, prompt, prompt**2 / 2, prompts)
    head = 2 * facts.model(model).matrices[-1].per_token * max(0, prompt - prompts) / bound.chip.peak  # logits that the bound charges and the kernels do not compute
    assert float(real.step(*amounts)) > float(bound.step(*amounts)) - head
    assert float(real.step(batch + 1, batch * context + context, prompt, prompt**2 / 2, prompts)) >= float(real.step(*amounts))


def test_many_steps_cost_what_single_ones_do():
    """Catches a stretch of decoding whose contexts stand still."""
    clock = calibrated.calibrated("mistral-7b", "h100-sxm")
    scheduler = Scheduler(BlockPool(4000, 16), 4)
    jobs = [Job(prompt, 200) for prompt in (5000, 10, 3950, 700)]
    quick = simulate(scheduler, jobs, clock)
    slow = simulate(Scheduler(BlockPool(4000, 16), 4), jobs, lambda work: clock(work))
    assert [step.took for step in quick.steps] == pytest.approx([step.took for step in slow.steps], rel=1e-9)


# ---- judged on whole engines


def test_the_judged_table():
    """Catches a clock that lost its aim: at most 5 % on average over the published runs of dense models on one card in 16 bits, where
    the ideal bound is off by more than 40 %. The two runs that everything is judged on are predicted from the file as published."""
    runs = [row for row in judged.judgements() if row.what == "throughput" and row.kind == "dense" and row.precision == "bf16" and row.tensor_parallel == 1]
    found = judged.summary(runs)
    assert found.n >= 30 and found.mean <= 0.05 and found.ideal_mean > 0.4
    named = {(row.batch, row.prompt, row.output): row for row in runs if row.engine == "TensorRT-LLM 0.8.0" and row.model == "llama-7b"}
    assert named[256, 128, 128].published == 5353 and named[32, 128, 2048].published == 1518
    assert all(abs(row.error) < 0.05 for row in named.values())
    assert named[256, 128, 128].calibrated == pytest.approx(calibrated.generate("llama-7b", "a100-80g-sxm", 256, 128, 128).calibrated.tokens_per_second)


def test_every_published_run_is_judged_and_none_was_fitted():
    """Catches rows that are dropped because they look bad, and a fit that reads them."""
    data = facts.read_toml(facts.DATA / "measured-public.toml")
    assert len(judged.judgements()) == len(data["throughput"]) + len(data["first_token"])
    source = (facts.DATA.parent / "compute" / "calibrate.py").read_text(encoding="utf-8")
    assert "measured-public" not in source and "judged" not in source


def test_an_error_says_where_it_was_found():
    """Catches the error of one card beside the figure of another without a word."""
    own = calibrated.calibrated("llama-2-7b", "a100-80g-sxm").error
    lent = calibrated.calibrated("llama-2-7b", "h100-sxm").error
    assert own.mean == lent.mean and "not this card" not in own.where["en"] and "not this card" in lent.where["en"]
    assert calibrated.ideal("llama-2-7b", "a100-80g-sxm").error is None
    rows = [row for row in judged.judgements() if row.what == "throughput" and row.chip == "l40s" and row.kind == "dense"]
    assert calibrated.calibrated("llama-2-7b", "l40s", "fp8").error.mean == pytest.approx(np.mean([abs(row.calibrated / row.published - 1) for row in rows]))


def test_short_prompts_are_said_to_fail():
    """Catches a page that promises for a first token what only holds for throughput."""
    firsts = [row for row in judged.judgements() if row.what == "first_token"]
    short, long = (judged.summary(row for row in firsts if row.prompt == n) for n in (128, 2048))
    assert short.mean > 0.15 > long.mean


def test_a_first_token_has_an_error_of_its_own():
    """Catches the throughput's error beside a first token of a short prompt, which is several times as far off."""
    made = calibrated.generate("qwen3.8-27b", "h100-sxm", 1, 128, 2)
    rows = [row for row in judged.judgements() if row.what == "first_token" and row.prompt == 128]
    assert made.calibrated.first_token_error.mean == pytest.approx(np.mean([abs(row.published / row.calibrated - 1) for row in rows]))
    assert made.calibrated.first_token_error.mean > 3 * made.calibrated.error.mean and made.ideal.first_token_error is None
