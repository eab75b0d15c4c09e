"""One rate of arrivals at one server: how long its users wait, how many are well served; or that it cannot keep up.

Whether it can is asked first. With a backlog that never ends a server answers `capacity` requests a second, and a queue stays
finite if and only if requests come more slowly than that (the saturation rule, Baccelli & Foss 1995). Beyond it the wait grows as
long as one looks, so no percentile is given of it, only how fast the queue grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence as Row
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from compute import calibrated
from compute.batching import PolicyName
from compute.calibrated import Clock, Error, Parallel, Precision
from compute.errors import BadInput
from compute.facts import ChipRef, ModelRef
from compute.serving.flow import Flow, Server, flow, never
from compute.serving.requests import Floats, Kind, Paragraphs, Whole, Workload, arrivals, lengths, positive, workload as named
from compute.serving.waits import Good, Latency, share, spread

BLOCK_SIZE = 16
POINTS = 240  # of the queue's curve
KEPT = 64  # capacities, the newest
SLOWEST = 1e-6  # requests a second; at fewer a clock that has run so long cannot tell milliseconds any more

Report = Callable[..., None]  # (fraction, note, partial=None)
ClockName = Literal["calibrated", "ideal"]

Rate = Annotated[float, Field(gt=0, le=1e6, description="requests that arrive in a second, on average")]
Requests = Annotated[int, Field(ge=20, le=200_000, description="requests that are measured; as many as a tenth of them come before and after")]
Slots = Annotated[int, Field(ge=1, le=4096, description="requests that run together at most")]
Budget = Annotated[int, Field(ge=1, le=1_000_000, description="tokens a step may read, where the policy heeds it")]
Target = Annotated[float, Field(gt=0, le=1e6, description="seconds, at most")]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]


_capacities: dict[tuple[Any, ...], Capacity] = {}


def silent(fraction: float, note: str, partial: Any = None) -> None:
    pass


@dataclass(frozen=True)
class Little:
    """Over the whole run, from an empty system to an empty one: the mean number in the system, the requests a second, the mean
    seconds that each stays. The first is counted over time, the last over requests; difference is L − λ·W."""

    in_system: float
    rate: float
    seconds: float
    difference: float


@dataclass(frozen=True)
class Queue:
    """Requests that wait to be admitted, and all that are in the system, at times spread evenly over the run; the measured ones
    arrive between `since` and `until`."""

    at: tuple[float, ...]
    waiting: tuple[int, ...]
    in_system: tuple[int, ...]
    since: float
    until: float


@dataclass(frozen=True)
class Capacity:
    """What the server answers a second when there is always somebody waiting; measured in a run of so many requests."""

    requests_per_second: float
    tokens_per_second: float
    requests: int


@dataclass(frozen=True)
class Run:
    """verdict "overload": requests come at least as fast as `capacity`; then ttft, tpot, latency and good are None and why_not says
    so. growth: requests by which the system fills up each second in the long run, the rate less the capacity; seen_growth: as a
    straight line fitted to this run has it. Both None where the queue is steady.

    ttft: from arrival to the first token. tpot: from there to the last one, over the tokens in between, so a stall in the middle
    counts with its mean only; requests of one token have none. latency: from arrival to the last token.
    tokens_per_second, busy and slots_used: while the measured requests arrive, the tokens of replies that end; the share of the time
    in which a step runs; the mean share of slots in use. In overload the tokens are counted until the queue is empty. settled: the run is long enough for its queue to have forgotten that it began empty; needs: requests that
    would be. error: of the calibrated clock, {mean, worst, n, where} or None at the ideal bound."""

    verdict: Literal["steady", "overload"]
    rate: float
    requests: int
    load: float  # rate / capacity
    capacity: Capacity
    growth: float | None
    seen_growth: float | None
    ttft: Latency | None
    tpot: Latency | None
    latency: Latency | None
    good: Good | None
    why_not: Mapping[str, str] | None
    tokens_per_second: float
    busy: float
    slots_used: float
    preemptions: int
    steps: int
    little: Little
    queue: Queue
    settled: bool
    needs: int
    slots: int
    blocks: int
    clock: ClockName
    error: Error | None = None


# ---- the server


def server(model: ModelRef, chip: ChipRef, policy: PolicyName, slots: int, budget: int, precision: Precision, tensor_parallel: int, clock: ClockName) -> Server:
    """Its KV memory is what the weights and the states of all slots leave. Raises as the clocks do, and BadInput, also for more
    slots than states fit."""
    for name, value in (("slots", slots), ("budget", budget)):
        if value < 1:
            raise BadInput(name, value, "at least 1 is needed", "至少要 1")
    price: Clock = getattr(calibrated, clock)(model, chip, precision, tensor_parallel)
    price = replace(price, block_size=BLOCK_SIZE)
    if (blocks := price.blocks(BLOCK_SIZE, slots)) < slots:
        most = price.capacity(BLOCK_SIZE)
        en = f"the memory beside the weights holds {most} requests of {BLOCK_SIZE} tokens at most; take fewer slots"
        raise BadInput("slots", slots, en, f"权重之外的显存最多放得下 {most} 个各 {BLOCK_SIZE} 个 token 的请求；请减少槽位")
    return Server(policy, slots, budget, min(blocks, 2_000_000), BLOCK_SIZE, price)


def capacity(server: Server, load: Workload | Paragraphs, requests: int, seed: int, cancelled: Callable[[], bool] = never) -> Capacity:
    """What is known is not measured again. Raises Cancelled."""
    asked = (server, load, requests, seed)
    if (found := _capacities.get(asked)) is None:
        found = _capacities[asked] = saturated(*asked, cancelled)
        for oldest in list(_capacities)[:-KEPT]:
            _capacities.pop(oldest, None)
    return found


def saturated(server: Server, load: Workload | Paragraphs, requests: int, seed: int, cancelled: Callable[[], bool] = never) -> Capacity:
    """All there from the beginning; counted from when the slots have been filled and emptied twice until the queue is empty. The
    lengths cut their distribution into equal shares, which leaves from one seed to the next about 1 %, and 3 % where the batch is
    static: there a few dozen batches are all that is counted."""
    prompts, outputs = lengths(load, requests, seed, even=True)
    found = flow(server, np.zeros(requests), prompts, outputs, cancelled)
    ended = np.sort(found.finished)
    full = found.admitted.max()  # the last one has left the queue
    first = ended[min(2 * server.slots, requests // 4)]
    inside = (found.finished > first) & (found.finished <= full)
    seconds = float(full - first)
    if inside.sum() < 2 or seconds <= 0:  # no backlog to speak of
        inside, seconds = np.ones(requests, bool), float(ended[-1])
    return Capacity(float(inside.sum() / seconds), float(outputs[inside].sum() / seconds), requests)


def backlog(slots: int) -> int:
    """Requests of a saturated run: enough for the filling and the emptying to be a small part of it."""
    return max(1000, 12 * slots)


# ---- one rate


def run(
    model: ModelRef = "qwen3.8-27b",
    chip: ChipRef = "h100-sxm",
    policy: PolicyName = "continuous",
    rate: Rate = 2.0,
    requests: Requests = 1000,
    workload: Annotated[str, Field(description="lengths of prompts and replies, by name")] = "chat",
    slots: Slots = 58,
    budget: Budget = 512,
    precision: Precision = "bf16",
    tensor_parallel: Parallel = 1,
    clock: ClockName = "calibrated",
    ttft_target: Target = 1.0,
    tpot_target: Target = 0.05,
    seed: Seed = 0,
    arrive: Annotated[Kind, Field(description="how requests arrive")] = "poisson",
    times: Annotated[list[float], Field(max_length=100_000, description="recorded arrivals in seconds, to be replayed")] = [],
    report: Report = silent,
    cancelled: Callable[[], bool] = never,
) -> Run:
    """Requests that arrive at a rate, served under a policy, every step priced by a clock: percentiles of the waits, goodput, the
    queue; or overload. Raises BadInput and Refused."""
    check(rate, requests, ttft_target, tpot_target)
    served, load = server(model, chip, policy, slots, budget, precision, tensor_parallel, clock), named(workload)
    report(0.0, "capacity")
    most = capacity(served, load, backlog(slots), seed, cancelled)
    report(0.3, f"λ = {rate:g}")
    return at_rate(served, load, most, rate, requests, ttft_target, tpot_target, seed, arrive, times, cancelled)


def check(rate: float, requests: int, ttft_target: float, tpot_target: float) -> None:
    for field, value in (("rate", rate), ("ttft_target", ttft_target), ("tpot_target", tpot_target)):
        positive(field, value)
    if rate < SLOWEST:
        raise BadInput("rate", rate, f"at least {SLOWEST:g} requests a second are needed", f"每秒至少要 {SLOWEST:g} 个请求")
    if not 20 <= requests <= 200_000:
        raise BadInput("requests", requests, "between 20 and 200000 can be measured", "可以测 20 到 200000 个")


def at_rate(
    server: Server, load: Workload | Paragraphs, most: Capacity, rate: float, requests: int, ttft_target: float, tpot_target: float,
    seed: int = 0, arrive: Kind = "poisson", times: Row[float] = (), cancelled: Callable[[], bool] = never,
) -> Run:  # fmt: skip
    found, measured = simulated(server, load, rate, requests, seed, arrive, times, cancelled)
    return judged(found, server, most, rate, measured, ttft_target, tpot_target)


def simulated(
    server: Server, load: Workload | Paragraphs, rate: float, requests: int, seed: int = 0, arrive: Kind = "poisson", times: Row[float] = (),
    cancelled: Callable[[], bool] = never,
) -> tuple[Flow, slice]:  # fmt: skip
    """All that arrive, and which of them are measured: the middle ones. Those before fill the system, those after keep it busy to the
    last of them."""
    around = max(requests // 10, 2 * server.slots)
    prompts, outputs = lengths(load, requests + 2 * around, seed)
    arrives = arrivals(arrive, rate, requests + 2 * around, seed, times)
    return flow(server, arrives, prompts, outputs, cancelled), slice(around, around + requests)


def judged(found: Flow, server: Server, most: Capacity, rate: float, measured: slice, ttft_target: float, tpot_target: float) -> Run:
    """The same requests may be judged again by other targets."""
    at = {name: getattr(found, name)[measured] for name in ("arrived", "first", "finished", "outputs")}
    since, until = float(at["arrived"][0]), float(at["arrived"][-1])
    overload = rate >= most.requests_per_second
    growth = seen_growth = ttft = tpot = latency = good = why_not = None
    requests = len(at["arrived"])
    if overload:
        growth, seen_growth = rate - most.requests_per_second, slope(found, since, until)
        why_not = {
            "zh": "请求来得比服务器能答的快：看得越久，等得越久，所以没有哪个时间是这个系统的延迟",
            "en": "requests come faster than the server can answer: the longer one looks, the longer they wait, so no time is this system's latency",
        }
    else:
        first, between = at["first"] - at["arrived"], (at["finished"] - at["first"]) / np.maximum(at["outputs"] - 1, 1)
        ttft, latency = spread(first), spread(at["finished"] - at["arrived"])
        tpot = spread(between[at["outputs"] > 1])
        met = (first <= ttft_target) & ((between <= tpot_target) | (at["outputs"] == 1))
        good = share(met, rate)
    working = max(until, float(found.admitted.max())) if overload else until  # as long as there is a backlog
    over = (found.finished >= since) & (found.finished < working)
    needs = relaxation(rate, most.requests_per_second)
    return Run(
        "overload" if overload else "steady", rate, requests, rate / most.requests_per_second, most, growth, seen_growth, ttft, tpot, latency, good, why_not,
        float(found.outputs[over].sum()) / (working - since), busy(found, since, until),
        mean_between(found.admitted, found.finished, since, until) / server.slots, found.preemptions, found.steps, little(found), curve(found, since, until),
        not overload and requests >= needs, needs, server.slots, server.blocks, getattr(server.price, "kind", "ideal"), getattr(server.price, "error", None),
    )  # fmt: skip


def relaxation(rate: float, most: float) -> int:
    """Requests until a queue has forgotten its beginning: ten times the heavy-traffic relaxation time 2σ²/(μ − λ)² (Abate & Whitt
    1987), with the variance of Poisson arrivals and of services that vary as much."""
    return ceil(10 * rate * 2 * (rate + most) / (most - rate) ** 2) if rate < most else 0


# ---- what a run comes to


def in_system(found: Flow, at: Floats) -> Whole:
    return np.searchsorted(np.sort(found.arrived), at, "right") - np.searchsorted(np.sort(found.finished), at, "right")


def mean_between(begins: Floats, ends: Floats, since: float, until: float) -> float:
    """How many of these spans are open at a time, on average from `since` to `until`."""
    return float(np.maximum(np.minimum(ends, until) - np.maximum(begins, since), 0.0).sum()) / (until - since)


def busy(found: Flow, since: float, until: float) -> float:
    """No policy idles while somebody is there, so the idle spans end with an arrival to an empty system."""
    empty_from = np.concatenate([[0.0], np.maximum.accumulate(found.finished)[:-1]])
    idle = np.minimum(found.arrived, until) - np.maximum(empty_from, since)
    return 1 - float(np.maximum(idle, 0.0).sum()) / (until - since)


def little(found: Flow) -> Little:
    times = np.concatenate([found.arrived, found.finished])
    order = np.argsort(times, kind="stable")
    there = np.cumsum(np.concatenate([np.ones(len(found.arrived)), -np.ones(len(found.finished))])[order])
    lasts = np.diff(times[order])
    seconds = float(times.max() - times.min())
    inside, rate, stay = float((there[:-1] * lasts).sum()) / seconds, len(found.arrived) / seconds, float((found.finished - found.arrived).mean())
    return Little(inside, rate, stay, inside - rate * stay)


def curve(found: Flow, since: float, until: float) -> Queue:
    """waiting: those that were never admitted yet; whoever is preempted counts as running."""
    at = np.linspace(0.0, float(found.finished.max()), POINTS)
    inside = in_system(found, at)
    waiting = np.searchsorted(np.sort(found.arrived), at, "right") - np.searchsorted(np.sort(found.admitted), at, "right")
    return Queue(tuple(at.tolist()), tuple(waiting.tolist()), tuple(inside.tolist()), since, until)


def slope(found: Flow, since: float, until: float) -> float:
    """Requests a second by which the number in the system grows, as a straight line fitted to the time of the measured arrivals."""
    at = np.linspace(since, until, POINTS)
    return float(np.polyfit(at - at[0], in_system(found, at), 1)[0])
