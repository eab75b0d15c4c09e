"""Many rates: up to which one the targets are met, and up to which the queue stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from compute.batching import PolicyName
from compute.calibrated import Parallel, Precision
from compute.facts import ChipRef, ModelRef
from compute.serving.flow import never
from compute.serving.load import (
    Budget, Capacity, ClockName, Rate, Report, Requests, Seed, Slots, Target, at_rate, backlog, capacity, check, server, silent,
)  # fmt: skip
from compute.serving.requests import Kind, positive, workload as named
from compute.serving.waits import Good, Latency

GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.05, 1.2)  # of the capacity: rates, where none are asked for
WITHIN = 0.01  # of the capacity: how closely the knee is found
QUIET = 0.02  # of the capacity: where requests hardly meet; targets that are missed here are missed everywhere


@dataclass(frozen=True)
class Point:
    """One rate; good and the latencies are None in overload, growth otherwise."""

    rate: float
    load: float
    verdict: Literal["steady", "overload"]
    growth: float | None
    tokens_per_second: float
    good: Good | None
    ttft: Latency | None
    tpot: Latency | None
    latency: Latency | None
    settled: bool


@dataclass(frozen=True)
class Sweep:
    """points: the rates asked for, in order. knee: the largest rate at which still a `share` of the requests meets both targets,
    found by halving to within WITHIN of the capacity; None, with the reason, where they are missed even at a QUIET rate. at_knee:
    that run. bound "targets": they fail before the queue does; "capacity": they hold as long as the queue does. done: False in
    what is reported on the way."""

    points: tuple[Point, ...]
    knee: float | None
    at_knee: Point | None
    bound: Literal["targets", "capacity"] | None
    why_not: Mapping[str, str] | None
    share: float
    capacity: Capacity
    done: bool = True


def sweep(
    model: ModelRef = "qwen3.8-27b",
    chip: ChipRef = "h100-sxm",
    policy: PolicyName = "continuous",
    rates: Annotated[list[Rate], Field(max_length=100, description="requests a second; none: spread over the capacity and a little beyond")] = [],
    requests: Requests = 1000,
    workload: Annotated[str, Field(description="lengths of prompts and replies, by name")] = "chat",
    slots: Slots = 58,
    budget: Budget = 512,
    precision: Precision = "bf16",
    tensor_parallel: Parallel = 1,
    clock: ClockName = "calibrated",
    ttft_target: Target = 1.0,
    tpot_target: Target = 0.05,
    share: Annotated[float, Field(gt=0, le=1, description="of the requests that must meet both targets, for a rate to count as served well")] = 0.9,
    seed: Seed = 0,
    arrive: Annotated[Kind, Field(description="how requests arrive")] = "poisson",
    times: Annotated[list[float], Field(max_length=100_000, description="recorded arrivals in seconds, to be replayed")] = [],
    report: Report = silent,
    cancelled: Callable[[], bool] = never,
) -> Sweep:
    """The same requests at many rates: goodput and percentiles at each, the knee and the capacity."""
    positive("share", share)
    for rate in rates or [1.0]:
        check(rate, requests, ttft_target, tpot_target)
    served, load = server(model, chip, policy, slots, budget, precision, tensor_parallel, clock), named(workload)
    report(0.0, "capacity")
    most = capacity(served, load, backlog(slots), seed, cancelled)
    grid = sorted({*rates} or {most.requests_per_second * part for part in GRID})
    found: dict[float, Point] = {}

    def point(rate: float) -> Point:
        if rate not in found:
            so_far = Sweep(tuple(found[at] for at in grid if at in found), None, None, None, None, share, most, done=False)
            report(min(0.98, (1 + len(found)) / (len(grid) + 8)), f"λ = {rate:.3g}", so_far)
            run = at_rate(served, load, most, rate, requests, ttft_target, tpot_target, seed, arrive, times, cancelled)
            found[rate] = Point(rate, run.load, run.verdict, run.growth, run.tokens_per_second, run.good, run.ttft, run.tpot, run.latency, run.settled)
        return found[rate]

    points = tuple(map(point, grid))
    knee = largest(lambda rate: (good := point(rate).good) is not None and good.share >= share, grid, most.requests_per_second)
    why_not = None
    if knee is None:
        quiet, part = f"{QUIET * most.requests_per_second:.2g}", f"{share * 100:g}%"
        en = f"even at {quiet} requests a second, where they hardly meet, fewer than {part} of the requests reach both targets"
        why_not = {"zh": f"每秒只来 {quiet} 个请求、几乎互不相遇时，同时达到两个目标的请求也不到 {part}", "en": en}
    bound = None if knee is None else "capacity" if knee >= most.requests_per_second * (1 - WITHIN) else "targets"
    return Sweep(points, knee, point(knee) if knee else None, bound, why_not, share, most)


def largest(good: Callable[[float], bool], grid: list[float], most: float) -> float | None:
    """The largest good rate, to within WITHIN · most: looked for between the first of the grid that is not good and the one before
    it; never above (1 − WITHIN) · most. None where not even a QUIET rate is good."""
    low, top = QUIET * most, (1 - WITHIN) * most
    if not good(low):
        return None
    high = next((rate for rate in grid if low < rate < top and not good(rate)), top)
    if high == top and good(top):
        return top
    low = max([low, *(rate for rate in grid if rate < high)])
    while high - low > WITHIN * most:
        middle = (low + high) / 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low
