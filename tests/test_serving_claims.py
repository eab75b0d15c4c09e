"""The figures of lesson 5, by hand."""

from __future__ import annotations

from decimal import Decimal, getcontext
from math import factorial, log

import numpy as np
import pytest

from compute import numbers

WEIGHTS = 2 * 25_623_920_640  # bytes that a step of the anchor reads
LOADED = 55_562_855_904  # bytes that lie on the card
KV, STATE = 65_536, 150_994_944  # bytes of a token, of a request
BANDWIDTH, PEAK, MEMORY = 3.35e12, 989.5e12, 80e9  # of an H100
PAIR = 16 * 24 * 256 * 4  # FLOP of a query and a key, all attention layers
READER = 4096 * KV + 2 * STATE  # bytes that a step moves for one reader of 4K
LONG = 32_768


def said(name: str):
    return numbers.resolve(f"=serving.{name}").value


def test_what_a_target_leaves_of_a_full_batch():
    """Catches: a batch that misses the target by one, a share taken of another batch. 20 ms move 67 GB: less the weights, that is
    27.6 readers of 4K."""
    readers = (0.020 * BANDWIDTH - WEIGHTS) / READER
    assert 27 < readers < 28 and said("target.batch") == 27
    step = (WEIGHTS + 27 * READER) / BANDWIDTH
    assert step <= said("target.tpot") == 0.020
    assert said("target.tokens_per_second") == pytest.approx(27 / step, rel=1e-9)
    full = 58 / ((WEIGHTS + 58 * READER) / BANDWIDTH)
    assert said("target.share") == pytest.approx(27 / step / full, rel=1e-9)
    assert said("each.batch58") == pytest.approx(full / 58, rel=1e-9)


def test_an_answer_from_question_to_last_word():
    """Catches: the first token counted twice, a context that does not grow."""
    first = (WEIGHTS * 1000 + PAIR * 1000**2 / 2) / PEAK
    others = sum((WEIGHTS + (1000 + i) * KV + 2 * STATE) / BANDWIDTH for i in range(1, 300))
    assert said("answer.first") == pytest.approx(first, rel=1e-9)
    assert said("answer.all") == pytest.approx(first + others, rel=1e-9)
    assert said("answer.first_share") == pytest.approx(first / (first + others), rel=1e-9)
    assert said("quiz.end_to_end") == pytest.approx(10.5)  # 0.5 + 250 × 0.04


def test_four_requests_on_paper():
    """Catches: one target checked instead of both, means that no longer meet the targets while half of the requests miss them."""
    assert said("example.ttft_mean") == pytest.approx((0.4 + 0.6 + 2.1 + 0.9) / 4) and said("example.ttft_mean") <= said("example.ttft_limit")
    assert said("example.tpot_mean") == pytest.approx((30 + 80 + 25 + 45) / 4000) and said("example.tpot_mean") <= said("example.tpot_limit")
    assert said("example.rate") == 4 / 10
    assert said("example.goodput") == 2 / 10  # the second is too slow a token, the third waits too long
    assert said("quiz.rate") == 5 / 5
    assert said("quiz.goodput") == 3 / 5  # 0.8 s with 55 ms and 1.4 s with 30 ms miss one target each


def test_characters_on_paper():
    """Catches: tokens over characters. 60 × 800 / 500 = 96; 90 × 800 / 800 = 90."""
    assert said("quiz.characters") == pytest.approx(96) and said("quiz.characters_other") == pytest.approx(90)


def test_how_soon_one_meets_the_p99():
    """Catches: 0.99 and 0.01 exchanged. 0.99^20 = 0.8179; ln 2 / −ln 0.99 = 68.97."""
    assert said("p99.of_twenty") == pytest.approx(0.1821, abs=1e-4)
    assert said("p99.even") == 69 and 0.99**68 > 0.5 > 0.99**69


# ---- the long prompt


def steps_by_hand(each: int) -> list[float]:
    """Seconds of each step: weights once, 48 readers whose texts grow by a token a step, the chunk's own KV and that before it;
    products for every token, attention for every pair."""
    made = []
    for number, start in enumerate(range(0, LONG, each)):
        end = min(start + each, LONG)
        flops = WEIGHTS * (48 + end - start) + PAIR * (48 * (4096 + number) + (end**2 - start**2) / 2)
        moved = WEIGHTS + 48 * ((4096 + number) * KV + 2 * STATE) + KV * end + STATE * (2 if start else 1)
        made.append(max(moved / BANDWIDTH, flops / PEAK))
    return made


def test_the_long_prompt_by_hand():
    """Catches: a chunk that does not look back, readers left out of the budget, the long prompt said to be faster in chunks."""
    step = (WEIGHTS + 48 * READER) / BANDWIDTH
    (whole,), chunks, small = steps_by_hand(LONG), steps_by_hand(512 - 48), steps_by_hand(256 - 48)
    assert said("long.step") == pytest.approx(step, rel=1e-9)
    assert said("long.silence") == pytest.approx(whole, rel=1e-9) and f"{whole:.2f}" == "1.91"
    assert said("long.steps_missed") == pytest.approx(whole / step, rel=1e-9)
    assert said("long.in_tpot") == pytest.approx((whole - step) / 299, rel=1e-9)
    assert said("long.chunks") == len(chunks) == 71 and said("long.small.chunks") == len(small) == 158
    assert said("long.longest") == pytest.approx(max(chunks), rel=1e-9)
    assert said("long.chunked_ttft") == pytest.approx(sum(chunks), rel=1e-9) and sum(chunks) > whole
    assert said("long.small.longest") == pytest.approx(max(small), rel=1e-9)
    assert said("long.small.chunked_ttft") == pytest.approx(sum(small), rel=1e-9) and sum(small) > 1.5 * whole


def test_the_handover_by_hand():
    """Catches: the state left behind, both directions of the link counted. NVLink 4: 900 GB/s both ways together."""
    bytes_ = LONG * KV + STATE
    assert said("long.handover_bytes") == bytes_
    assert said("long.handover") == pytest.approx(bytes_ / 450e9, rel=1e-12)


@pytest.mark.parametrize("clock, names", [("ideal", ("silence", "chunked_ttft")), ("calibrated", ("calibrated_whole", "calibrated_chunked"))])
def test_the_long_prompt_step_by_step(clock: str, names: tuple[str, str]):
    """Catches: figures that are not those of the timeline. The referee runs scheduler and blocks, a step at a time."""
    from compute.stall import stall

    found = stall(readers=said("long.readers"), budget=said("long.budget"), prompt=said("long.tokens"), clock=clock)
    assert found["whole"].first_token_seconds == pytest.approx(said(f"long.{names[0]}"), rel=1e-9)
    assert found["chunked"].first_token_seconds == pytest.approx(said(f"long.{names[1]}"), rel=1e-9)


# ---- queues


@pytest.mark.parametrize("rho", [0.5, 0.8, 0.9, 0.95])
def test_queues_in_closed_form(rho: float):
    """Catches: the wait given for the time in the system, or a percentile of another queue. M/M/1 by its exponential; the M/D/1
    percentile put into Crommelin's alternating sum, which needs many digits and shares nothing with ours:
    P(wait ≤ t) = (1 − ρ) Σ_k e^(ρ(t − k)) (−ρ(t − k))^k / k!, k ≤ t."""
    at = round(100 * rho)
    assert said(f"mm1.mean.{at}") == pytest.approx(1 / (1 - rho))
    assert 1 - np.exp(-(1 - rho) * said(f"mm1.p99.{at}")) == pytest.approx(0.99)
    assert said(f"md1.mean.{at}") - 1 == pytest.approx((said(f"mm1.mean.{at}") - 1) / 2)  # half the wait
    getcontext().prec = 80
    load, t = Decimal(str(rho)), Decimal(said(f"md1.p99.{at}") - 1)
    below = (1 - load) * sum(((-load * (t - k)) ** k / factorial(k) if k else Decimal(1)) * (load * (t - k)).exp() for k in range(int(t) + 1))
    assert float(below) == pytest.approx(0.99, abs=1e-8)


def test_eighty_per_cent_is_23_service_times():
    """Catches: the percentile of the wait, or 4.6 service times, as ln 100 alone would give."""
    assert said("mm1.p99.80") == pytest.approx(log(100) * 5) and f"{said('mm1.p99.80'):.0f}" == "23"


def test_littles_law_and_overload_on_paper():
    """Catches: a queue that grows by all that arrive, minutes taken for seconds. One request a second too many, for 600 s."""
    assert said("little.in_flight") == said("little.rate") * said("little.seconds") == 48
    assert said("overload.waiting") == (11 - 10) * 600 and said("overload.wait") == 600 / 10


# ---- the calibrated clock and its judges


def test_a_calibrated_figure_is_slower_than_its_bound_and_carries_its_error():
    """Catches: the ideal clock given for the calibrated one, a batch or context other than lesson 1's, an error that is not beside it."""
    for name, bound in (("batch1", "=anchor.batch1.step_seconds"), ("batch58", "=anchor.batch58.step_seconds"), ("long", "=anchor.prefill_32k.seconds")):
        found, ideal = numbers.resolve(f"=serving.calibrated.{name}"), numbers.resolve(bound).value
        assert ideal < found.value < 2 * ideal
        assert found.conditions["mean error"].endswith("%")
        assert ("first tokens" if name == "long" else "A100") in found.conditions["note"]["en"]
    assert 1 <= said("calibrated.target.batch") < said("target.batch")


def test_the_worst_matrices_of_a_step_by_hand():
    """Catches: a clock that forgets the launches or takes the shares of another precision. Most of a step at batch 1 is matrix products
    that wait for memory: each alone takes no less than its bytes at the share of bandwidth that was fitted, and its launch."""
    import json

    from compute import facts

    rate = json.loads((facts.DATA / "calibration.json").read_text())["classes"]["h100-sxm"]["bf16"]["gemm"]
    assert said("calibrated.batch1") > WEIGHTS / (rate["memory"] * BANDWIDTH) > WEIGHTS / BANDWIDTH


def test_verdicts_by_hand():
    """Catches: rows that were left out, errors averaged with their signs, ideal and calibrated exchanged. Counted anew from the file
    of published results, step by step."""
    import tomllib

    from compute import calibrated, facts

    data = tomllib.loads((facts.DATA / "measured-public.toml").read_text(encoding="utf-8"))
    dense = ("llama-7b", "llama-2-7b", "llama-2-13b", "llama-2-70b", "mistral-7b", "llama-3-8b")
    rows = [r for r in data["throughput"] if r["chip"] == "a100-80g-sxm" and r.get("tensor_parallel", 1) == 1 and r["model"] in dense and not r.get("ungrouped")]
    assert len(rows) == said("judged.a100.n") > 20
    off = {"ideal": [], "calibrated": []}
    for r in rows:
        batch, prompt, output = r["batch"], r["input_tokens"], r["output_tokens"]
        for name in off:
            clock = getattr(calibrated, name)(r["model"], r["chip"])
            contexts = prompt + np.arange(1, output)
            seconds = float(clock.step(0, 0, batch * prompt, batch * prompt**2 / 2, batch)) + float(clock.step(batch, batch * contexts).sum())
            off[name].append(batch * output / seconds / r["tokens_per_s"] - 1)
    assert said("judged.a100.ideal_mean") == pytest.approx(np.mean(np.abs(off["ideal"])), rel=1e-9)
    assert said("judged.a100.mean") == pytest.approx(np.mean(np.abs(off["calibrated"])), rel=1e-9)
    assert said("judged.a100.worst") == pytest.approx(max(off["calibrated"], key=abs), rel=1e-9)
    assert said("judged.a100.mean") < said("judged.h100.mean") < said("judged.cards.mean") < said("judged.experts.mean")
    assert said("judged.a100.worst") > 0  # "too fast", as the text says


def test_short_prompts_come_out_too_fast():
    """Catches: a bias with its sign turned around, seconds compared where the text speaks of speed. Prompts of 128 tokens, one at a time."""
    import tomllib

    from compute import calibrated, facts

    rows = [r for r in tomllib.loads((facts.DATA / "measured-public.toml").read_text(encoding="utf-8"))["first_token"] if r["input_tokens"] == 128]
    off = []
    for r in rows:
        clock = calibrated.calibrated(r["model"], r["chip"], {"fp16": "bf16"}.get(r["dtype"], r["dtype"]), r.get("tensor_parallel", 1))
        off.append(r["seconds"] / float(clock.step(0, 0, r["batch"] * 128, r["batch"] * 128**2 / 2, r["batch"])) - 1)
    assert len(off) >= 10 and said("judged.short.bias") == pytest.approx(np.mean(off), rel=1e-9) and np.mean(off) > 0
