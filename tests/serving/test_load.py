"""One rate and many: what a run comes to, against arithmetic written out and against itself at other lengths."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from compute import calibrated, functions, serving
from compute.errors import BadInput, Cancelled, Refused, UnknownName
from compute.serving import knee
from compute.serving.flow import Flow, flow
from compute.serving.load import BLOCK_SIZE, Capacity, at_rate, backlog, capacity, curve, judged, little, server
from compute.serving.requests import WORKLOADS
from compute.serving.waits import dependence, percentile

FAST = {"requests": 200, "clock": "ideal"}


def chat(policy="continuous", slots=58, budget=512):
    return server("qwen3.8-27b", "h100-sxm", policy, slots, budget, "bf16", 1, "ideal")


# ---- percentiles and shares


def test_percentiles_written_out():
    """1,000 independent times 1 … 1000 s. Catches: a percentile from the wrong end, an interval of ranks that is off, p99 of too few."""
    seconds = np.random.default_rng(0).permutation(np.arange(1.0, 1001.0))
    p99, p50 = percentile(seconds, 0.99), percentile(seconds, 0.5)
    assert p99.seconds == pytest.approx(990.01) and p50.seconds == 500.5 and p99.n == 1000 and p99.why_not is None
    assert 982 <= p99.low <= 985 and (p99.high is None or p99.high >= 995)  # binomial: 984 and 996 of 1000
    assert 455 <= p50.low <= 470 and 530 <= p50.high <= 545  # 469 and 531
    few = percentile(seconds[:999], 0.99)
    assert few.seconds is few.low is few.high is None and "1000" in few.why_not["en"] and "999" in few.why_not["zh"]
    assert percentile(seconds[:20], 0.5).seconds is not None and percentile(seconds[:19], 0.5).seconds is None


def test_neighbours_that_depend_on_each_other_tell_less():
    """Catches: an interval as narrow for a thousand waits in one queue as for a thousand independent ones."""
    alone = np.random.default_rng(0).random(10_000) < 0.1
    assert 1 <= dependence(alone) < 3
    blocks = np.repeat(np.random.default_rng(0).random(1000) < 0.1, 10)
    assert 5 < dependence(blocks) < 40
    assert dependence(np.zeros(100, bool)) == dependence(np.ones(5, bool)) == 1


def hand_made(**changed) -> Flow:
    """Four requests: arrived at 0, 1, 2, 3 s; first tokens after 1, 1, 3, 1 s; 11, 11, 11 and one token; 2, 8, 2 and 0 s to the last."""
    arrived = np.arange(4.0)
    first = arrived + [1, 1, 3, 1]
    return replace(Flow(arrived, arrived, first, first + [2, 8, 2, 0], np.full(4, 5), np.array([11, 11, 11, 1]), 0, 9), **changed)


def test_a_request_is_good_when_it_meets_both_targets():
    """TTFT at most 2 s and TPOT at most 0.5 s: the second fails the one, the third the other. Catches: either target enough, TPOT over
    all tokens instead of those after the first, a reply of one token thrown out or divided by zero, a target met exactly that fails."""
    most = Capacity(10.0, 100.0, 1000)
    for ttft, tpot, share in ((2.0, 0.5, 0.5), (3.0, 0.5, 0.75), (2.0, 0.8, 0.75), (3.0, 0.8, 1.0), (0.9, 0.8, 0.0), (1.0, 0.2, 0.5)):
        run = judged(hand_made(), chat(), most, 1.0, slice(0, 4), ttft, tpot)
        assert run.good.share == share and run.good.requests_per_second == share * 1.0, (ttft, tpot)
        assert run.good.low <= share <= run.good.high
    assert run.tpot.n == 3 and run.tpot.mean == pytest.approx((0.2 + 0.8 + 0.2) / 3) and run.ttft.mean == 1.5 and run.latency.mean == 4.5
    assert run.busy == 1 and run.slots_used == pytest.approx((3 + 2 + 1) / 3 / 58) and run.tokens_per_second == 0  # from 0 to 3 s
    gap = judged(hand_made(finished=np.array([0.5, 1.25, 9.0, 9.0])), chat(), most, 1.0, slice(0, 4), 1.0, 1.0)
    assert gap.busy == pytest.approx((0.5 + 0.25 + 1) / 3) and gap.tokens_per_second == pytest.approx(22 / 3)


def test_little_and_the_curve_written_out():
    """Over the ten seconds 3, 9, 5 and 1 request-seconds pass. Catches: time before the first arrival or after the last token counted,
    a curve that counts the waiting as running."""
    found = hand_made(admitted=np.array([0.0, 1.0, 4.0, 3.0]))
    law = little(found)
    assert (law.in_system, law.rate, law.seconds) == pytest.approx((18 / 10, 4 / 10, 18 / 4)) and law.difference == pytest.approx(0, abs=1e-12)
    seen = curve(found, 0.0, 3.0)
    at = {round(t, 2): (w, n) for t, w, n in zip(seen.at, seen.waiting, seen.in_system)}
    shown = lambda t: at[min(at, key=lambda other: abs(other - t))]  # noqa: E731
    assert [shown(t) for t in (0.5, 1.5, 2.5, 3.5, 6.0, 9.9)] == [(0, 1), (0, 2), (1, 3), (1, 3), (0, 2), (0, 1)]


# ---- runs


@pytest.mark.parametrize("policy", ("static", "continuous", "prefill-first", "chunked"))
@pytest.mark.parametrize("part", (0.5, 1.5))
def test_littles_law_holds_in_every_run(policy, part):
    """Steady and in overload. Catches: a request that is lost, or leaves twice."""
    served = chat(policy)
    most = capacity(served, WORKLOADS["chat"], backlog(58), 0)
    run = at_rate(served, WORKLOADS["chat"], most, part * most.requests_per_second, 300, 1.0, 0.05)
    law = run.little
    assert law.in_system > 5 and abs(law.difference) < 1e-9 * law.in_system and law.in_system == pytest.approx(law.rate * law.seconds)
    assert run.verdict == ("steady" if part < 1 else "overload") and max(run.queue.in_system) > 5
    assert len(run.queue.at) == len(run.queue.waiting) == len(run.queue.in_system) <= 400


@pytest.mark.parametrize("policy", ("static", "continuous", "prefill-first", "chunked"))
@pytest.mark.parametrize("workload", ("chat", "code"))
def test_the_capacity_is_what_an_overloaded_server_answers(policy, workload):
    """Requests come twice as fast as the capacity says; what is answered while they wait is the capacity, on other draws. Catches: the
    filling or the emptying counted, lengths that are shorter than the workload's, tokens counted as requests."""
    served, work = chat(policy), WORKLOADS[workload]
    most = capacity(served, work, backlog(58), 0)
    run = at_rate(served, work, most, 2 * most.requests_per_second, 2000, 1.0, 0.05, seed=7)
    assert run.verdict == "overload" and run.growth == pytest.approx(most.requests_per_second)
    assert run.seen_growth == pytest.approx(run.growth, rel=0.1)
    assert run.tokens_per_second == pytest.approx(most.tokens_per_second, rel=0.06)
    assert 1000 * most.tokens_per_second / most.requests_per_second == pytest.approx(1000 * served_mean(work), rel=0.03)


def served_mean(work) -> float:
    return serving.lengths(work, 200_000, 3)[1].mean()


def test_beyond_the_capacity_the_wait_is_a_matter_of_how_long_one_looks():
    """10 % above: twice the requests, about twice the crowd at the end; 10 % below: no more than before. Catches: overload
    declared where there is none, and a steady queue declared where there is none."""
    served, work = chat(), WORKLOADS["chat"]
    most = capacity(served, work, backlog(58), 0)

    def at_the_end(part: float, requests: int) -> float:
        runs = [at_rate(served, work, most, part * most.requests_per_second, requests, 1.0, 0.05, seed) for seed in range(2)]
        assert {run.verdict for run in runs} == {"overload" if part > 1 else "steady"}
        return float(np.mean([np.interp(run.queue.until, run.queue.at, run.queue.in_system) for run in runs]))

    assert at_the_end(1.1, 4000) > 1.5 * at_the_end(1.1, 2000) > 200
    assert at_the_end(0.9, 4000) < 1.5 * at_the_end(0.9, 1000)


def test_a_quiet_server_answers_as_fast_as_one_request_alone():
    """Catches: waits where nobody waits; a first token without its prompt's reading; steps that are not the clock's."""
    price = calibrated.calibrated("qwen3.8-27b", "h100-sxm")
    run = serving.run(rate=0.001, requests=100, workload="paragraphs")
    prompts, outputs = serving.lengths("paragraphs", 100 + 2 * 116, 0)
    prompts, outputs = prompts[116:-116], outputs[116:-116]
    first = [float(price.step(prefilled=p, pairs=p**2 / 2, prompts=1)) for p in prompts]
    whole = [one + sum(float(price.step(1, p + n)) for n in range(o - 1)) for one, p, o in zip(first, prompts, outputs)]
    assert run.ttft.mean == pytest.approx(np.mean(first)) and run.latency.mean == pytest.approx(np.mean(whole))
    assert run.good.share == 1 and run.good.requests_per_second == 0.001 and run.settled and run.clock == "calibrated" and run.preemptions == 0


def test_the_calibrated_clock_is_slower_and_says_how_far_off_it_is():
    """Catches: the error of the clock lost on the way, both clocks the same."""
    real, ideal = (serving.run(rate=2.0, requests=200, clock=clock) for clock in ("calibrated", "ideal"))
    assert real.tpot.mean > 1.05 * ideal.tpot.mean and real.capacity.requests_per_second < ideal.capacity.requests_per_second
    assert ideal.error is None and real.clock == "calibrated"
    assert real.error is None or real.error.n > 0


def test_a_seed_is_a_run():
    """Catches: a seed that is not used, or a clock or set order that is."""
    one, same, other = (serving.run(**FAST, seed=seed) for seed in (1, 1, 2))
    assert one == same and one.latency != other.latency


def test_replayed_arrivals_reach_the_server():
    """All of a record's arrivals come at once, every hundred seconds. Catches: a record that is not replayed."""
    times = [100.0 * n + 1e-3 * k for n in range(5) for k in range(40)]
    run = serving.run(rate=0.4, requests=200, arrive="replay", times=times)
    plain = serving.run(rate=0.4, requests=200)
    assert run.ttft.mean > 2 * plain.ttft.mean and max(run.queue.in_system) >= 35 > max(plain.queue.in_system)


def test_few_requests_have_no_p99():
    run = serving.run(**FAST)
    assert run.ttft.p90.seconds is not None and run.ttft.p99.seconds is None and run.ttft.p99.why_not and run.requests == run.ttft.n == 200


def test_memory_that_runs_out_preempts():
    """140 slots leave little for KV, and long replies outgrow it. Catches: blocks counted without the states, memory without a limit."""
    served = chat(slots=140)
    price = calibrated.ideal("qwen3.8-27b", "h100-sxm")
    taken = served.blocks * BLOCK_SIZE * 64 * 1024 + 140 * 150_994_944
    assert 0 <= price.free_bytes - taken < BLOCK_SIZE * 64 * 1024
    most = capacity(served, WORKLOADS["reasoning"], 300, 0)
    run = at_rate(served, WORKLOADS["reasoning"], most, 2 * most.requests_per_second, 200, 1.0, 0.05)
    assert run.preemptions > 50


@pytest.mark.parametrize("wrong, field", [
    ({"rate": 0.0}, "rate"), ({"rate": -1.0}, "rate"), ({"rate": float("inf")}, "rate"), ({"rate": 1e-300}, "rate"), ({"ttft_target": 0.0}, "ttft_target"), ({"tpot_target": -0.1}, "tpot_target"),
    ({"requests": 19}, "requests"), ({"requests": 200_001}, "requests"), ({"slots": 1000}, "slots"), ({"slots": 0}, "slots"), ({"budget": 0}, "budget"),
    ({"arrive": "replay"}, "times"), ({"tensor_parallel": 5}, "tensor_parallel"), ({"slots": 150, "workload": "documents"}, "workload"),
])  # fmt: skip
def test_what_is_impossible_is_named(wrong, field):
    """In both languages. Catches: a traceback, or a figure, in place of a sentence."""
    for call in (serving.run, serving.sweep):
        if call is serving.sweep and "rate" in wrong:
            wrong = {"rates": [wrong["rate"]]}
        with pytest.raises(BadInput) as why:
            call(**(FAST | wrong))
        assert why.value.values["field"] == field and why.value.message("zh") != why.value.message("en")


def test_refusals_of_the_clock_come_through():
    with pytest.raises(Refused, match="published"):
        serving.run(chip="tpu-v5e", model="qwen3-4b")
    with pytest.raises(Refused, match="does not fit"):
        serving.run(model="llama-3-70b", **FAST)
    with pytest.raises(UnknownName):
        serving.run(workload="novels", **FAST)


def test_who_leaves_is_not_computed_for():
    """Catches: a simulation that nobody can stop."""
    asked = []
    with pytest.raises(Cancelled):
        serving.run(rate=3.0, requests=50_000, cancelled=lambda: asked.append(1) or len(asked) > 2)
    assert len(asked) == 3
    with pytest.raises(Cancelled):
        serving.sweep(**FAST, cancelled=lambda: True)
    asked.clear()
    with pytest.raises(Cancelled):  # the capacity alone would take a minute
        serving.run(policy="chunked", budget=1, slots=4, requests=20, workload="documents", cancelled=lambda: asked.append(1) or len(asked) > 2)
    assert len(asked) == 3


def test_served_by_name():
    """Catches: a result that JSON cannot carry, a parameter that the command line refuses."""
    for name, params in (("serving.run", FAST | {"rate": 20}), ("serving.run", FAST), ("serving.sweep", FAST | {"rates": [1, 2]})):
        json.dumps(functions.call(name, params), allow_nan=False)
    with pytest.raises(BadInput):
        functions.call("serving.run", {"rate": 0})


# ---- the knee


@pytest.mark.parametrize("limit, bound", [(0.3, "targets"), (0.52, "targets"), (0.94, "targets"), (0.97, "targets"), (2.0, "capacity")])
def test_the_knee_of_a_step_is_its_edge(limit, bound):
    """Good up to a limit that no grid knows. Catches: the nearest point of the grid, the wrong side of the edge, a rate beyond the
    capacity, more runs than halving needs."""
    asked = []
    found = knee.largest(lambda rate: asked.append(rate) or rate <= limit, [0.1, 0.5, 0.9, 1.2], 1.0)
    assert found <= limit and (found > min(limit, 0.99) - 0.0101) and max(asked) <= 0.99 and len(asked) <= 1 + 3 + 1 + 6
    for grid in ([0.001, 0.1, 0.5], [1.2, 3.0]):  # also where the grid lies on one side
        assert knee.largest(lambda rate: rate <= 0.01, grid, 1.0) is None
        assert 0.04 < knee.largest(lambda rate: rate <= 0.05, grid, 1.0) <= 0.05


def test_a_sweep_finds_where_the_targets_fail():
    """Catches: a knee whose own run misses the targets, one that could be higher, points in another order, what is reported on the way."""
    seen = []
    found = serving.sweep(requests=400, workload="documents", ttft_target=2.0, report=lambda fraction, note, partial=None: seen.append((fraction, partial)))
    assert found.bound == "targets" and found.at_knee.good.share >= 0.9 and found.at_knee.rate == found.knee and found.done
    served = server("qwen3.8-27b", "h100-sxm", "continuous", 58, 512, "bf16", 1, "calibrated")
    beyond = at_rate(served, WORKLOADS["documents"], found.capacity, found.knee + 0.011 * found.capacity.requests_per_second, 400, 2.0, 0.05)
    assert beyond.good.share < 0.9
    assert [p.rate for p in found.points] == sorted(p.rate for p in found.points)
    assert [p.verdict for p in found.points] == ["steady" if p.load < 1 else "overload" for p in found.points] and {p.verdict for p in found.points} == {"steady", "overload"}
    assert all((p.good is None) == (p.verdict == "overload") == (p.growth is not None) for p in found.points)
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(fractions) and not any(partial.done for _, partial in seen if partial) and len(seen[-1][1].points) == len(found.points)


def test_targets_that_nobody_meets_and_targets_that_all_meet():
    never, always = serving.sweep(**FAST, tpot_target=1e-4), serving.sweep(**FAST, ttft_target=1e3, tpot_target=1e3)
    assert never.knee is never.at_knee is never.bound is None and set(never.why_not) == {"zh", "en"}
    assert always.bound == "capacity" and always.knee == pytest.approx(always.capacity.requests_per_second, rel=0.011)
