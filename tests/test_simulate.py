"""The simulator against steps written out by hand and against itself step by step; its prices against the roofline's formulas
and against arithmetic written out."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from compute import facts, functions, roofline as bounds
from compute.batching import POLICIES, Move, Read, Scheduler, Work
from compute.errors import BadInput, LabError, Refused
from compute.paging import BlockPool, Copy
from compute.simulate import PCIE_5_X16, Job, roofline, simulate, unit
from compute.trace import Recorder, Step, Steps, Stretch, from_json, summary


def scheduler(policy="continuous", slots=2, blocks=20, block_size=2, caching=False, **more) -> Scheduler:
    return Scheduler(BlockPool(blocks, block_size, caching=caching), slots, policy, **more)


def step_by_step(s: Scheduler, jobs, price=unit):
    return simulate(s, jobs, price, watch=lambda work, plan: None)


# ---- what a run is

JOBS = [Job(3, 2), Job(2, 4), Job(2, 2), Job(1, 1)]
WRITTEN_OUT = {  # per step: sequence p(refill) or d(ecode), in the order of slots
    "static": ["0p 1p", "0d 1d", "- 1d", "- 1d", "2p 3p", "2d -"],
    "continuous": ["0p 1p", "0d 1d", "2p 1d", "2d 1d", "3p -"],
    "prefill-first": ["0p 1p", "0d 1d", "2p -", "2d 1d", "3p -", "- 1d"],
    "chunked": ["0p -", "0d 1p", "2p 1d", "2d 1d", "3p 1d"],
}


@pytest.mark.parametrize("policy", POLICIES)
def test_four_requests_written_out_by_hand(policy):
    """Two slots, three tokens a step where a policy heeds that. Catches: a batch refilled too soon or too late, a prompt read
    beside decoding where it must not be, a token written in the step after the one that read its prompt."""
    trace = simulate(scheduler(policy, budget=3 if policy == "chunked" else 5), JOBS)
    seen = []
    for step in trace.steps:
        row = ["-", "-"]
        for lane, sequence, kind, read, written in step.lanes:
            row[lane] = f"{sequence}{kind[0]}"
        seen.append(" ".join(row))
    assert seen == WRITTEN_OUT[policy]
    busy = sum(2 - row.count("-") for row in seen)
    assert trace.utilisation == busy / (2 * len(seen)) and trace.seconds == len(seen) and trace.clock == "step"
    ends = [max(at for at, row in enumerate(seen, 1) if str(number) in row) for number in range(4)]
    assert [life.finished for life in trace.sequences] == trace.latencies() == ends
    found = summary(trace)
    assert (found.steps, found.tokens, found.mean_latency) == (len(seen), 9, sum(ends) / 4)
    assert found.p50_latency == (sorted(ends)[1] + sorted(ends)[2]) / 2
    assert found.p99_latency == pytest.approx(sorted(ends)[2] + 0.97 * (sorted(ends)[3] - sorted(ends)[2]))


def test_the_clock_waits_for_arrivals():
    """Catches: a clock that goes on from zero when nobody is there, latencies from the beginning of the run, order of arrival
    lost among equals."""
    trace = simulate(scheduler(slots=1), [Job(1, 2, 10.5), Job(1, 1, 10.5), Job(1, 3, 0.0)])
    assert [life.prompt for life in trace.sequences] == [1, 1, 1] and [life.written for life in trace.sequences] == [3, 2, 1]
    assert [step.ended for step in trace.steps] == [1, 2, 3, 11.5, 12.5, 13.5]
    assert trace.latencies() == [3, 2, 3] and [life.admitted for life in trace.sequences] == [0, 10.5, 12.5]


def test_samples_share_a_prompt_and_a_life():
    """Catches: a sample without its request's arrival, and the first tokens of samples counted nowhere."""
    trace = simulate(scheduler(slots=4), [Job(3, 2, 5.0, samples=3), Job(2, 1, 5.0, samples=1)])
    assert [(life.request, life.arrived, life.admitted, life.first, life.written) for life in trace.sequences] == [
        (0, 5, 5, 6, 2), (1, 5, 5, 6, 1), (0, 5, 5, 6, 2), (0, 5, 5, 6, 2)]  # fmt: skip
    assert trace.tokens == 7


def test_a_life_is_told_from_its_first_admission():
    """The second is preempted in step 3, when both need a third block of four, and finds its own beginning in the cache later.
    Catches: the later admission taken for the first, and its hits for a prompt that was found."""
    trace = simulate(scheduler(blocks=4, caching=True), [Job((1, 2, 3), 4), Job((4, 5, 6), 4), Job((4, 5, 9), 1, 20.0)])
    assert [step.preempted for step in trace.steps] == [(), (), (1,), (), (), (), ()]
    assert [(life.admitted, life.hits, life.preemptions) for life in trace.sequences] == [(0, 0, 0), (0, 0, 1), (20, 2, 0)]
    assert [step.running for step in trace.steps] == [2, 2, 1, 1, 1, 1, 1] and trace.steps[4].lanes[0][3] == 3


# ---- many steps at once


def random_jobs(r: Random, slots: int, room: int) -> list[Job]:
    jobs = []
    for _ in range(r.randint(1, 10)):
        prompt = r.randint(1, 16)
        text = ([0, 1, 0, 0, 1, 1, 1, 0][r.choice([0, 0, 3]) :] + [r.randrange(2) for _ in range(11)])[:prompt]
        arrives = r.choice([0.0, 0.0, r.random() * 60])
        jobs.append(Job(r.choice([prompt, tuple(text)]), r.randint(1, room - prompt), arrives, r.choice([1, 1, r.randint(1, slots)])))
    return jobs


@pytest.mark.parametrize("policy", POLICIES)
def test_long_stretches_come_out_as_step_by_step(policy):
    """Catches: a stretch that goes on past an arrival, an admission, an end, a lack of blocks or the last guesses; blocks handed
    out, sealed or evicted in another order; times added up otherwise."""
    stretched = 0
    prices = unit, roofline("qwen3.8-27b", "h100-sxm", block_size=4), roofline("gpt-oss-20b", "h100-sxm")
    for seed, preemption, ahead, caching in product(range(14), ("recompute", "swap"), (0, 1, 3), (False, True)):
        r = Random(f"{seed} {policy} {preemption} {ahead} {caching}")
        size, slots, price = r.randint(1, 5), r.randint(1, 5), r.choice(prices)
        jobs = random_jobs(r, slots, 40 - ahead)
        if price is not unit:
            jobs = [Job(job.prompt, job.output, job.arrives / 100, job.samples) for job in jobs]
        one, two = (
            scheduler(policy, slots, total, size, caching, budget=budget, preemption=preemption, ahead=ahead)
            for total, budget in [(r.randint(40 // size + 1, 120 // size), r.randint(1, 12))] for _ in range(2)
        )  # fmt: skip
        fast, slow = simulate(one, jobs, price), step_by_step(two, jobs, price)
        assert fast == slow
        assert vars(one.pool) == vars(two.pool) and one.pool.free == one.pool.total
        asked = sorted(jobs, key=lambda job: job.arrives)
        wished = dict(zip((life.id for life in fast.sequences if life.id == life.request), asked, strict=True))
        assert all(life.written == wished[life.request].output for life in fast.sequences)
        assert len(fast.sequences) == sum(job.samples for job in jobs)
        assert fast.utilisation == sum(len(step.lanes) for step in slow.steps) / (slots * len(slow.steps))
        assert json.dumps(fast.to_json()) == json.dumps(slow.to_json()) and from_json(json.loads(json.dumps(fast.to_json()))) == slow
        assert not any(isinstance(part, Stretch) for part in slow.steps.parts)
        stretched += len(slow.steps) - len(fast.steps.parts)
    assert stretched > 1000  # it looked at something


def test_a_price_without_many_is_asked_for_every_step():
    """Catches: a price that depends on what a stretch does not know, skipped."""
    asked = []
    trace = simulate(scheduler(slots=1), [Job(1, 9)], lambda work: asked.append(work.reads[0].start) or 0.5)
    assert asked == list(range(9)) and trace.seconds == 4.5 and trace.clock == "second"


def test_steps_are_a_row_like_any_other():
    """Catches: an index inside a stretch off by one, a slice or a step from the end that does not know of stretches."""
    lanes = ((0, 0, "decode", 1, 1),)
    step = lambda n: Step(float(n), 1.0, lanes, 0, 1, n, (), ())  # noqa: E731
    plain = [step(n) for n in range(1, 10)]
    stretch = lambda a, b: Stretch(*(tuple(map(kind, each)) for kind, each in ((float, range(a, b)), (lambda n: 1.0, range(a, b)), (int, range(a, b)))), lanes, 0, 1)  # noqa: E731
    row = Steps([step(1), stretch(2, 5), step(5), stretch(6, 10)])
    assert list(row) == plain and len(row) == 9 and row == plain and row == tuple(plain) and row == Steps(plain) and row != plain[1:] and row != plain[:-1]
    assert [row[i] for i in range(-9, 9)] == plain + plain and row[2:8:3] == tuple(plain[2:8:3]) and row.busy == 9
    with pytest.raises(IndexError):
        row[9]
    assert not Steps([]) and list(reversed(row)) == plain[::-1]


def test_a_record_counts_what_comes_true_and_who_left():
    """Catches: several tokens of a step counted as one, a cancelled life among the latencies, hits of a later admission, steps
    that are trimmed with those who were still there."""
    s = Scheduler(BlockPool(20, 2, caching=True), 2, ahead=3)
    record = Recorder(s)
    one, two = s.submit([1, 2, 3], 6), s.submit([1, 2, 4], 6)
    for sequence in (one, two):
        record.arrived(sequence, 0.0)
    for clock, tokens in enumerate(({one: [5], two: [5]}, {one: [6, 7, 8], two: [6]}, {one: [9, 9]}), 1):
        work = s.apply(plan := s.plan())
        record.step(plan, work, tokens, s.commit(work, tokens), float(clock), 1.0)
        if clock == 2:
            s.cancel(two)
            record.cancelled(two, 2.5)
    trace = record.trace()
    assert [(life.written, life.finished, life.cancelled) for life in trace.sequences] == [(6, 3, False), (2, 2.5, True)]
    assert trace.latencies() == [3] and [step.lanes for step in trace.steps][1:] == [
        ((0, 0, "decode", 4, 3), (1, 1, "decode", 4, 1)), ((0, 0, "decode", 2, 2),)]  # fmt: skip
    assert trace.steps[2].running == 1 and trace.steps[2].finished == (0,)
    record.trim(1)
    later = record.trace()
    assert (later.first, len(later.steps), [life.id for life in later.sequences]) == (2, 1, [0, 1]) and from_json(later.to_json()) == later
    with pytest.raises(ValueError, match="version 9"):
        from_json(later.to_json() | {"version": 9})


# ---- prices


def decoding(batch: int, context: int, tokens: int = 1) -> Work:
    return Work(tuple(Read(None, context, tokens, False, lane) for lane in range(batch)))


def reading(start: int, tokens: int) -> Work:
    return Work((Read(None, start, tokens, True, 0),))


def test_the_anchor():
    """The published conventions' 25.2 ms for 58 requests at 4,096 tokens. Catches: weights counted once a request."""
    assert round(roofline("qwen3.8-27b", "h100-sxm")(decoding(58, 4096)) * 1e3, 1) == 25.2


@pytest.mark.parametrize("model", sorted(facts.models()))
def test_the_roofline_is_repeated(model):
    """Catches: any convention of decode or prefill that the price of a mixed step handles otherwise: windows, latents,
    experts, states, scales."""
    card = {"memory_bytes": 1e15, "bandwidth_bytes_per_s": 3.35e12, "flops_bf16": 989.5e12}
    for bits, kv_bits in ((16, 16), (4, 8)):
        price = roofline(model, card, weight_bits=bits, kv_bits=kv_bits)
        for batch, context in ((1, 0), (1, 4096), (58, 4096), (700, 100), (3, 200_000)):
            truth = bounds.decode(model, card, batch, context, weight_bits=bits, kv_bits=kv_bits).step_seconds
            assert price(decoding(batch, context)) == pytest.approx(truth, rel=1e-9)
        for prompt in (1, 60, 4096, 200_000):
            truth = bounds.prefill(model, card, prompt, weight_bits=bits, kv_bits=kv_bits).seconds
            assert price(reading(0, prompt)) == pytest.approx(truth, rel=1e-9)


PLAIN = {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 100, "num_attention_heads": 4, "intermediate_size": 128}
WEIGHTS = 3 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 100
TOKEN = 3 * 2 * 64 * 2  # bytes of KV a position: layers, K and V, width, 16 bits
PAIR = 3 * 4 * 64  # FLOPs of a query with a cached position: two products of 64 in each layer


BYTES = {"memory_bytes": 1e15, "bandwidth_bytes_per_s": 1.0, "flops_bf16": 1e24}  # a card on which seconds are bytes
FLOPS = {"memory_bytes": 1e15, "bandwidth_bytes_per_s": 1e24, "flops_bf16": 1.0}


def test_a_mixed_step_written_out():
    """Seconds are bytes on one card and FLOPs on the other. Catches: weights read for prompts and decoding apart, a later chunk
    that does not read what is before it or does not attend to it, guesses that read the cache once each."""
    work = Work((Read(None, 50, 1, False, 0), Read(None, 30, 3, False, 1), Read(None, 0, 20, True, 2), Read(None, 40, 10, True, 3)))
    moved = WEIGHTS * 2 + TOKEN * (50 + 30 + 20 + (40 + 10))
    assert roofline(PLAIN, BYTES)(work) == pytest.approx(moved, rel=1e-12)
    pairs = 50 + (30 + 31 + 32) + 20**2 / 2 + (50**2 - 40**2) / 2
    flops = 2 * WEIGHTS * (1 + 3 + 20 + 10) + PAIR * pairs
    assert roofline(PLAIN, FLOPS)(work) == pytest.approx(flops, rel=1e-12)
    slow = facts.Chip("slow", "slow in 32 bits", 1e15, 1e24, {"bf16": 1.0, "fp32": 0.25})
    assert replace(roofline(PLAIN, FLOPS, weight_bits=32), chip=slow)(work) == pytest.approx(4 * flops, rel=1e-12)


def test_chunks_of_a_prompt_attend_as_much_as_the_whole():
    """Catches: pairs between chunks lost or counted twice, also past a window; a recurrent state that is read before it is there."""
    for model in ("gpt-oss-20b", "qwen3.8-27b"):
        price, shape = roofline(model, FLOPS), facts.model(model)
        chunks = sum(price(reading(start, 100)) for start in range(0, 1000, 100))
        assert chunks == pytest.approx(price(reading(0, 1000)), rel=1e-9)
        price = roofline(model, BYTES)
        first, second = price(reading(0, 100)), price(reading(100, 100))
        assert second - first == pytest.approx(bounds.cache_bytes(shape, 100, 16) + shape.state_bytes, rel=1e-6)


def test_swapping_and_copying_cost_their_bytes():
    """Catches: a preemption that is free, a block counted as one position, a state left behind."""
    price = roofline("qwen3.8-27b", "h100-sxm", block_size=16)
    plain, block, state = price(decoding(2, 100)), 16 * 64 * 1024, 150_994_944
    copied = Work(decoding(2, 100).reads, copies=(Copy(1, 2), Copy(1, 3)))
    assert price(copied) - plain == pytest.approx(2 * 2 * block / 3.35e12, rel=1e-6)
    for work in (Work(decoding(2, 100).reads, swapped_out=(Move(None, (4, 5, 6)),)), Work(decoding(2, 100).reads, swapped_in=(Move(None, (4, 5, 6)),))):
        assert price(work) - plain == pytest.approx((3 * block + state) / PCIE_5_X16, rel=1e-6)
    assert round(PCIE_5_X16 / 1e9, 1) == 63.0
    assert roofline("qwen3.8-27b", "h100-sxm", link_bytes_per_s=1e9)(work) - plain == pytest.approx((3 * block + state) / 1e9)


def test_a_swap_in_a_run_takes_longer_than_none():
    """Catches: moves that never reach the price, as the anchor's sequences leave and come back."""
    jobs = [Job(1000, 200), Job(1000, 200)]
    price = roofline("qwen3.8-27b", "h100-sxm")
    tight, wide = (simulate(Scheduler(BlockPool(blocks, 16), 2, preemption="swap"), jobs, price) for blocks in (145, 200))
    assert summary(tight).preemptions == 1 and summary(wide).preemptions == 0 and tight.seconds > wide.seconds


def test_weights_that_do_not_fit_have_no_price():
    """Catches: a plausible figure for a card that cannot hold the model."""
    with pytest.raises(Refused, match="missing"):
        roofline("deepseek-v3", "h100-sxm")


# ---- the function


def test_the_function_gives_what_the_parts_give():
    """Catches: parameters that do not arrive, a result that is no JSON."""
    asked = dict(prompts=[5, 30, 7], outputs=[9, 8, 20], arrivals=[0, 0, 3.5], policy="chunked", slots=2, blocks=12, block_size=4, budget=6, preemption="swap")
    found = json.loads(json.dumps(functions.call("batching.simulate", asked), allow_nan=False))
    truth = simulate(scheduler("chunked", 2, 12, 4, budget=6, preemption="swap"), [Job(5, 9), Job(30, 8), Job(7, 20, 3.5)])
    assert from_json(found["trace"]) == truth and found["summary"] == functions.plain(summary(truth))
    priced = functions.call("batching.simulate", asked | {"model": "qwen3.8-27b", "chip": "h100-sxm"})
    assert priced["trace"]["clock"] == "second" and 0 < priced["trace"]["steps"][0]["took"] < 0.1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompts": []}, ["prompts", "at least 1 entry"]),
        ({"prompts": 5}, ["prompts", "a list"]),
        ({"prompts": [5] * 1001}, ["prompts", "at most 1000 entries"]),
        ({"prompts": [0, 1]}, ["prompts.0", "at least 1"]),
        ({"outputs": [1]}, ["outputs", "as many", "2"]),
        ({"outputs": [1, "x"]}, ["outputs.1", "a whole number"]),
        ({"outputs": [50_000, 50_001]}, ["outputs", "100000"]),
        ({"outputs": [1, 65]}, ["outputs.1 = 65", "64 positions"]),
        ({"arrivals": [0]}, ["arrivals", "as many"]),
        ({"arrivals": [0, -1]}, ["arrivals.1", "at least 0"]),
        ({"policy": "best"}, ["policy", "'chunked'"]),
        ({"slots": 0}, ["slots", "at least 1"]),
        ({"model": "qwen3-8b"}, ["chip", "both"]),
        ({"model": "qwen3-8b", "chip": "h100"}, ["h100-sxm"]),
        ({"model": "deepseek-v3", "chip": "h100-sxm"}, ["does not fit"]),
    ],
)
def test_bad_input_is_one_sentence(change, words):
    """Catches: tracebacks, a run without end, and complaints that do not name the entry."""
    with pytest.raises(LabError) as wrong:
        functions.call("batching.simulate", {"prompts": [3, 4], "outputs": [5, 6], "blocks": 4, "block_size": 16} | change)
    for lang in ("zh", "en"):
        assert "\n" not in wrong.value.message(lang)
    for word in words:
        assert word in wrong.value.message("en"), wrong.value.message("en")


def test_a_request_too_long_for_the_pool_is_refused_when_it_comes():
    """Catches: a simulation that never ends because its first request waits for ever."""
    with pytest.raises(BadInput, match="40 positions"):
        simulate(scheduler(), [Job(30, 11)])
