"""The frontier against compute/roofline.py, arithmetic written out, and a look at every size one by one."""

import json
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compute import calibrated, facts, functions, judged, kv, roofline
from compute.errors import BadInput, Refused
from compute.frontier import EVERY, FURTHER, MOST, frontier, sampled
from compute.judged import first_token_error

ANCHOR = ("qwen3.8-27b", "h100-sxm")
BANDWIDTH, PEAK = 3.35e12, 989.5e12
WEIGHTS, TOKEN, STATE = 51_247_055_104, 64 * 1024, 48 * 48 * 128 * 128 * 4  # bytes: read in a step, KV of a token, state of a request


def of(curve, batch):
    return next(point for point in curve.points if point.batch == batch)


def test_the_anchor_alone_and_with_58():
    """15.5 → 25.2 ms, 64.6 → 2,304 token/s, ×35.6, and the 59th does not fit. Catches a state read once, the embedding row counted in."""
    found = frontier(*ANCHOR)
    alone, full = found.ideal.alone, found.ideal.chosen
    for point, step in ((alone, WEIGHTS + 4096 * TOKEN + 2 * STATE), (full, WEIGHTS + 58 * (4096 * TOKEN + 2 * STATE))):
        assert point.step_seconds == pytest.approx(step / BANDWIDTH, rel=1e-4) and point.tokens_per_second == pytest.approx(point.batch / point.step_seconds, rel=1e-12)
        assert point.step_seconds == pytest.approx(roofline.decode(*ANCHOR, point.batch, 4096).step_seconds, rel=1e-12)
    assert (round(1e3 * alone.step_seconds, 1), round(1e3 * full.step_seconds, 1)) == (15.5, 25.2)
    assert (round(alone.tokens_per_second, 1), round(full.tokens_per_second)) == (64.6, 2304)
    assert round(full.tokens_per_second / alone.tokens_per_second, 1) == 35.6
    assert found.memory.fits == 58 == len(found.ideal.points) == kv.capacity(*ANCHOR, 4096).requests and found.ideal.points[-1].batch == 58
    assert found.memory.missing_bytes(58) == 0 and found.memory.missing_bytes(59) == pytest.approx(59 * (4096 * TOKEN + STATE) - (80e9 - 55_562_855_904))


def test_a_first_token_written_out():
    """Alone it is the prefill; among 57 a step of theirs, then one that also reads the prompt. Catches a newcomer that nobody holds up,
    a prompt without its causal half, and the others' tokens forgotten."""
    found = frontier(*ANCHOR).ideal
    assert found.alone.first_token_seconds == pytest.approx(roofline.prefill(*ANCHOR, 4096).seconds, rel=1e-12)
    attention = 16 * 24 * 256 * 4  # FLOPs of a pair of query and key, 16 layers
    both = 2 * WEIGHTS / 2 * (57 + 4096) + attention * (57 * 4096 + 4096**2 / 2)
    assert found.chosen.first_token_seconds == pytest.approx(of(found, 57).step_seconds + both / PEAK, rel=1e-4)
    together = frontier(*ANCHOR, arrival="all").ideal
    assert together.chosen.first_token_seconds == pytest.approx(58 * roofline.prefill(*ANCHOR, 4096).seconds, rel=1e-3)
    assert together.alone == found.alone


def test_the_calibrated_curve_is_the_clock_of_generate():
    """Catches a curve of its own beside roofline.generate's: its first token of a whole batch, and its first step, one position later."""
    found = frontier("llama-2-7b", "a100-80g-sxm", context=300, batch=20, arrival="all").calibrated
    line = calibrated.generate("llama-2-7b", "a100-80g-sxm", 20, 300, 2).calibrated
    assert found.chosen.first_token_seconds == pytest.approx(line.first_token_seconds)
    later = frontier("llama-2-7b", "a100-80g-sxm", context=301, batch=20).calibrated
    assert later.chosen.step_seconds == pytest.approx(line.step_seconds[0])
    assert found.error == line.error and found.error.mean > 0 and frontier(*ANCHOR).ideal.error is None


def test_the_anchor_as_kernels_run():
    """Catches a calibrated curve that is the ideal one, and an error that is not on it."""
    real = frontier(*ANCHOR).calibrated
    assert real.alone.step_seconds == pytest.approx(float(calibrated.calibrated(*ANCHOR).step(1, 4096)), rel=1e-12)
    assert real.error == calibrated.calibrated(*ANCHOR).error and "not this card" in real.error.where["en"]
    rows = [row for row in judged.judgements() if row.what == "first_token" and row.prompt == 2048]
    assert real.first_token_error.n == len(rows) >= 8 and real.first_token_error.mean == pytest.approx(sum(abs(row.error) for row in rows) / len(rows))
    assert first_token_error(100).mean > 2 * first_token_error(32_768).mean and "128" in first_token_error(100).where["en"]


MODELS = ("qwen3.8-27b", "llama-2-7b", "mistral-7b", "gpt-oss-20b", "qwen3-8b", "mixtral-8x7b")
CHIPS = ("a100-80g-sxm", "h100-sxm", "b200", "l40s", "rtx-4090")


def made(*given, **more):
    try:
        return frontier(*given, **more)
    except Refused:
        assume(False)


@given(st.sampled_from(MODELS), st.sampled_from(CHIPS), st.integers(100, 60_000), st.sampled_from(("one", "all")))
@settings(max_examples=60, deadline=None)
def test_more_in_all_and_slower_for_each(model, chip, context, arrival):
    """Catches sizes in disorder, a throughput that falls, a reader who gains by company, and kernels faster than the bound."""
    found = made(model, chip, context, arrival=arrival)
    for curve in filter(None, (found.ideal, found.calibrated)):
        points = curve.points
        for one, next_one in zip(points, points[1:]):
            assert one.batch < next_one.batch and one.step_seconds <= next_one.step_seconds * (1 + 1e-12)
            assert one.tokens_per_second <= next_one.tokens_per_second * (1 + 1e-12)
            assert one.first_token_seconds <= next_one.first_token_seconds * (1 + 1e-12)
        assert points[0] == curve.alone and points[-1].batch == min(found.memory.fits, MOST)
        assert found.memory.missing_bytes(found.memory.fits) == 0 < found.memory.missing_bytes(found.memory.fits + 1)
    if found.calibrated:
        assert all(real.step_seconds > bound.step_seconds for real, bound in zip(found.calibrated.points, found.ideal.points))


@given(
    st.sampled_from(MODELS), st.sampled_from(CHIPS), st.sampled_from((2000, 4096, 16_000)), st.floats(0.003, 0.2), st.floats(0.02, 30), st.sampled_from(("one", "all")),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_the_best_size_is_found_by_looking_at_each(model, chip, context, tpot, ttft, arrival):
    """The referee prices one size after the other, each alone. Catches a target that is not asked, a best size that only a drawn point can
    be, and a reason that is not the reason."""
    found = made(model, chip, context, ttft_target=ttft, tpot_target=tpot, arrival=arrival)
    assume(found.memory.fits <= 600)

    def meets(clock, batch):
        step = float(clock.step(batch, batch * context))
        if arrival == "all":
            first = float(clock.step(0, 0, batch * context, batch * context**2 / 2, batch))
        else:
            others = batch - 1
            first = (float(clock.step(others, others * context)) if others else 0) + float(clock.step(others, others * context, context, context**2 / 2, 1))
        return step <= tpot, first <= ttft, batch / step

    for clock, curve in ((calibrated.ideal(model, chip), found.ideal), (found.calibrated and calibrated.calibrated(model, chip), found.calibrated)):
        if curve is None:
            continue
        looks = {batch: meets(clock, batch) for batch in range(1, found.memory.fits + 1)}
        good = {batch: rate for batch, (fast, soon, rate) in looks.items() if fast and soon}
        assert {p.batch for p in curve.points if p.feasible} == good.keys() & {p.batch for p in curve.points}
        if not good:
            assert curve.best is None and set(curve.stops) == {name for name, ok in zip(("tpot", "ttft"), looks[1]) if not ok}
            continue
        assert curve.best.tokens_per_second == pytest.approx(max(good.values()), rel=1e-8) and curve.best.batch in good and curve.best in curve.points
        after = looks.get(curve.best.batch + 1)
        if after is None:
            assert curve.stops == ("memory",)
        elif after[0] and after[1]:
            assert curve.stops == ("peak",) and after[2] == pytest.approx(curve.best.tokens_per_second, rel=1e-8)
        else:
            assert set(curve.stops) == {name for name, ok in zip(("tpot", "ttft"), after) if not ok}


def test_what_25_ms_can_sell():
    """By hand, from the bytes: (0.025 · 3.35e12 − weights) / (KV + 2 states) = 56.9 → 56. Catches a goodput that is the throughput of a
    batch nobody may run; and with no limit in the way the wall is memory."""
    found = frontier(*ANCHOR).ideal
    assert math.floor((0.025 * BANDWIDTH - WEIGHTS) / (4096 * TOKEN + 2 * STATE)) == found.best.batch == 56
    assert found.best.feasible and not found.chosen.feasible and found.stops == ("tpot",)
    assert found.best.tokens_per_second < found.chosen.tokens_per_second
    lenient = frontier(*ANCHOR, tpot_target=1.0).ideal
    assert lenient.best == lenient.chosen and lenient.stops == ("memory",)
    assert frontier(*ANCHOR, tpot_target=1.0, arrival="all").ideal.best.batch == math.floor(1 / roofline.prefill(*ANCHOR, 4096).seconds) == 4


def test_no_size_is_feasible():
    """Catches a best batch of nothing, and a target that fails in silence. A 32K prompt takes 1.91 s alone."""
    found = frontier(*ANCHOR, context=32_768, batch=1)
    assert round(found.ideal.alone.first_token_seconds, 2) == 1.91 and found.ideal.best is None and found.ideal.stops == ("ttft",)
    assert frontier(*ANCHOR, tpot_target=0.01, ttft_target=0.1).ideal.stops == ("tpot", "ttft")
    assert not any(point.feasible for point in found.ideal.points)


def test_past_the_ridge_more_requests_sell_no_more():
    """An ideal card full of arithmetic writes the same with 500 as with 5,000. Catches a best size that only makes everybody wait."""
    found = frontier("qwen3-8b", "b200", context=128, tpot_target=1.0).ideal
    shape, chip = facts.model("qwen3-8b"), facts.chip("b200")
    flops = sum(2 * m.per_token for m in shape.matrices) + sum(c.layers * c.flops_decode * 128 for c in shape.caches)
    assert found.stops == ("peak",) and found.best.tokens_per_second == pytest.approx(chip.peak / flops)
    assert found.points[-1].tokens_per_second == pytest.approx(found.best.tokens_per_second) and found.points[-1].batch > 10 * found.best.batch


def test_a_batch_beyond_memory_is_refused_and_the_curve_stays():
    """Catches a plausible figure for a batch that cannot exist, and a page that shows nothing because of it."""
    found = frontier(*ANCHOR, batch=64)
    assert found.ideal.chosen is None and found.calibrated.chosen is None and len(found.ideal.points) == 58
    missing = (64 * (4096 * TOKEN + STATE) - (80e9 - 55_562_855_904)) / 1e9
    assert "does not fit" in found.refused["en"] and f"{missing:.4g} GB are missing" in found.refused["en"] and "放不下" in found.refused["zh"]
    assert frontier(*ANCHOR).refused is None
    with pytest.raises(Refused, match="does not fit"):
        frontier(*ANCHOR, context=1_000_000)
    with pytest.raises(Refused, match="does not fit"):
        frontier("llama-3-70b", "h100-sxm")


def test_a_card_that_nobody_measured_has_the_ideal_curve_only():
    """Catches factors lent from one card to another; and a textbook model whose memory would end at nothing."""
    found = frontier("qwen3-8b", "mi300x")
    assert found.calibrated is None and "MI300X" in found.why_not["en"] and found.why_not["zh"] and found.ideal.best
    textbook = frontier("70b-dense", "h100-sxm", context=1)
    assert textbook.memory.fits is None and textbook.refused is None and textbook.ideal.points[-1].batch == MOST
    assert textbook.ideal.alone.step_seconds == pytest.approx(140e9 / BANDWIDTH, rel=1e-3)


def test_several_cards_hold_more_and_step_faster():
    """Catches a wall that stays at one card's memory: each of two holds half of the weights and two of four KV heads."""
    found = frontier(*ANCHOR, tensor_parallel=2)
    assert found.memory.fits == (80_000_000_000 - 55_562_855_904 // 2) // ((4096 * TOKEN + STATE) // 2)
    assert found.ideal.alone.step_seconds < frontier(*ANCHOR).ideal.alone.step_seconds / 1.9


@given(st.integers(1, MOST))
def test_sampled_sizes_cover_the_curve(most):
    """Catches an end that is missing, a batch that the slider offers and the curve leaves out, and a curve of thousands of points."""
    sizes = sampled(most)
    assert sizes == sorted(set(sizes)) and sizes[0] == 1 and sizes[-1] == most and len(sizes) <= EVERY + FURTHER + 10
    assert set(range(1, min(most, EVERY) + 1)) <= set(sizes) and {n for n in (58, 128, 256, 512, 1024) if n <= most} <= set(sizes)
    assert all(b / a < 1.1 for a, b in zip(sizes[EVERY:], sizes[EVERY + 1 :]))


@pytest.mark.parametrize("arguments, says, sagt", [
    ({"tpot_target": 0}, "more than 0", "要大于 0"),
    ({"ttft_target": -1}, "more than 0", "要大于 0"),
    ({"batch": 0}, "at least 1", "至少要 1"),
    ({"batch": MOST + 1}, "at most 16384", "至多 16384"),
    ({"context": 0}, "at least 1", "至少要 1"),
    ({"tensor_parallel": 5}, "must divide the 24 query heads", "要能整除"),
    ({"precision": "int2"}, "it must be", "只能是"),
    ({"arrival": "two"}, "it must be", "只能是"),
])  # fmt: skip
def test_impossible_settings_are_refused_in_words(arguments, says, sagt):
    """Catches a target of nothing that every batch fails without a word."""
    with pytest.raises(BadInput) as refused:
        functions.call("serving.frontier", {"model": "qwen3.8-27b", "chip": "h100-sxm"} | arguments)
    assert says in refused.value.message("en") and sagt in refused.value.message("zh")


def test_the_command_answers_in_plain_json():
    """Catches NumPy's own numbers on the way to the command line."""
    said = functions.call("serving.frontier", {"model": "qwen3.8-27b", "chip": "h100-sxm"})
    assert json.loads(json.dumps(said, allow_nan=False)) == said and len(said["calibrated"]["points"]) == 58
    assert said["ideal"]["points"][57]["feasible"] is False
