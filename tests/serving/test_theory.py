"""A single server: request by request against Lindley's recursion, on average against the closed forms."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from compute import serving
from compute.errors import BadInput
from compute.serving.flow import flow
from compute.serving.requests import arrivals, lengths
from compute.serving.theory import QUANTUM, Service, single


@pytest.mark.parametrize("kind", ("mm1", "md1"))
@pytest.mark.parametrize("load", (0.5, 0.98, 1.3))
def test_every_wait_is_that_of_the_recursion(kind, load):
    """W' = max(0, W + service − gap) (Lindley 1952). Catches: a request served before its turn, a step that begins before the
    arrival that it serves, a clock that drifts."""
    tokens, ones = lengths(Service(kind), 3000, 5)
    arrives = arrivals("poisson", load / 2.0, 3000, 5)
    found = flow(single(2.0), arrives, tokens, ones)
    services, wait, expected = tokens * (2.0 / QUANTUM), 0.0, []
    for service, gap in zip(services, [*np.diff(arrives), 0.0]):
        expected.append(wait + service)
        wait = max(0.0, wait + service - gap)
    np.testing.assert_allclose(found.finished - found.arrived, expected, rtol=1e-9)
    np.testing.assert_allclose(found.first, found.finished)
    np.testing.assert_allclose(found.admitted - found.arrived, np.array(expected) - services, atol=1e-6)


SEEDS = range(5)


@pytest.mark.parametrize("kind, load", [("mm1", 0.5), ("mm1", 0.8), ("md1", 0.5), ("md1", 0.8)])
def test_means_and_percentiles_are_those_of_the_closed_forms(kind, load):
    """Mean service 0.5 s. M/M/1: wait ρ/(μ − λ), stay 1/(μ − λ), its percentiles ln(1/(1 − p))/(μ − λ). M/D/1: wait ρ/(2μ(1 − ρ)).
    Within four standard errors of five runs. Catches: arrivals or services of another distribution, requests measured before the
    queue has filled, a wait without its service, a formula of the other queue."""
    mu, rate = 2.0, 2.0 * load
    wait = load / (mu - rate) if kind == "mm1" else load / (2 * mu * (1 - load))
    found = [serving.queue(kind, rate, 0.5, requests=6000, seed=seed) for seed in SEEDS]
    assert all(one.run.settled and one.wait == pytest.approx(wait) and one.stay == pytest.approx(wait + 0.5) for one in found)

    def close(values, truth):
        values = np.array(values)
        assert abs(values.mean() - truth) < 4 * max(values.std(ddof=1), 0.02 * truth) / sqrt(len(values)), (values.mean(), truth)

    close([one.run.latency.mean for one in found], wait + 0.5)
    close([one.run.little.in_system for one in found], rate * (wait + 0.5))
    close([one.run.busy for one in found], load)
    close([one.run.slots_used for one in found], load)
    if kind == "mm1":
        for name, beyond in (("p50", 0.5), ("p90", 0.1), ("p99", 0.01)):
            truth = -np.log(beyond) / (mu - rate)
            assert all(one.percentiles[name] == pytest.approx(truth) for one in found)
            close([getattr(one.run.latency, name).seconds for one in found], truth)


@pytest.mark.parametrize("kind", ("mm1", "md1"))
@pytest.mark.parametrize("load", (0.9, 0.98, 0.999, 1.0, 1.05, 1.3))
def test_overload_is_told_from_a_long_queue(kind, load):
    """Every seed. Catches: a queue that merely takes long to settle called overload, a slow overload called steady, a latency given
    in overload; a growth that is not what arrives less what is served; a load near 1 judged by what a few drawn services cost."""
    for seed in range(8):
        found = serving.queue(kind, load, 1.0, requests=2000, seed=seed)
        run = found.run
        assert run.verdict == ("steady" if load < 1 else "overload"), seed
        assert run.capacity.requests_per_second == 1 and run.load == load and (found.stay is None) == (load >= 1)
        latencies = run.ttft, run.latency, run.good
        if load < 1:
            assert None not in latencies and run.growth is run.seen_growth is run.why_not is None
        else:
            assert latencies == (None, None, None) and run.tpot is None and set(run.why_not) == {"zh", "en"}
            assert run.growth == pytest.approx(load - 1, abs=0.004)
            deviation = 4 * sqrt(2.4 * (load + 1) / 2000)  # of a straight line fitted to a random walk of so many steps
            assert run.seen_growth == pytest.approx(load - 1, abs=deviation), seed
            assert not run.settled and found.percentiles is found.stay is found.in_system is None


def test_near_the_capacity_a_short_run_says_that_it_is_short():
    """Catches: percentiles of a queue that still fills up given as the system's. At 98 % an M/M/1 queue needs some hundred thousand."""
    for load, requests, settled in ((0.5, 1000, True), (0.9, 1000, False), (0.9, 5000, True), (0.98, 20_000, False)):
        run = serving.queue("mm1", load, requests=requests).run
        assert run.settled == settled and (requests >= run.needs) == settled
    assert 60_000 < run.needs < 120_000


def test_an_interval_holds_the_truth():
    """40 runs of M/M/1 at 70 %. Catches: neighbours' waits taken as independent, which makes the interval of p99 a third as wide and
    wrong four times in ten."""
    held = dict.fromkeys(("p50", "p90", "p99"), 0)
    for seed in range(40):
        found = serving.queue("mm1", 0.7, requests=1000, seed=100 + seed)
        for name in held:
            got = getattr(found.run.latency, name)
            held[name] += got.low <= found.percentiles[name] <= (got.high or np.inf)
    assert all(times >= 32 for times in held.values()), held


def test_refusals():
    for wrong in ({"rate": 0.0}, {"rate": -1.0}, {"service": 0.0}, {"requests": 5}):
        with pytest.raises(BadInput) as why:
            serving.queue(**({"rate": 0.5} | wrong))
        assert why.value.values["field"] in wrong
