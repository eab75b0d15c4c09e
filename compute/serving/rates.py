"""The runs behind the pictures, each made once: another target judges the same requests again, another rate leaves the curve as it is."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from compute import numbers, serving
from compute.batching import PolicyName
from compute.calibrated import Precision
from compute.quantity import Quantity
from compute.serving import Point, Run, Theory, load
from compute.serving.flow import Flow, Server, flow
from compute.serving.knee import WITHIN, largest
from compute.serving.queues import md1_mean, md1_p99, mm1_mean, mm1_p99
from compute.serving.requests import Floats, Kind, workload

GRID = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.96)  # of the capacity; beyond it there is no latency to draw
SHARE = 0.9  # of the requests that must meet both targets, for a rate to count as served well
ALONE = 200  # requests served one after the other, for the mean time of a service
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # simulated in a queue with one server
FINE = tuple(np.round(np.linspace(0.02, 0.97, 39), 4).tolist())  # where its closed forms are drawn
CUSTOMERS = 5000  # of such a queue
BARS = 32  # of a histogram


@lru_cache
def usual_prompt(workload: str) -> int:
    """Tokens: as many prompts are shorter as longer."""
    return int(np.median(serving.lengths(workload, ALONE, 0, even=True)[0]))


@dataclass(frozen=True)
class Setting:
    """A server and its users, but for how fast they come. requests: as many are measured at a rate."""

    model: str
    chip: str
    policy: PolicyName
    workload: str
    arrive: Kind
    slots: int
    budget: int
    precision: Precision
    clock: load.ClockName
    requests: int
    seed: int


@lru_cache(64)
def server(s: Setting) -> Server:
    """Raises as compute/serving does."""
    return load.server(s.model, s.chip, s.policy, s.slots, s.budget, s.precision, 1, s.clock)


def capacity(s: Setting) -> load.Capacity:
    return load.capacity(server(s), workload(s.workload), load.backlog(s.slots), s.seed)


@lru_cache(256)
def served(s: Setting, rate: float) -> tuple[Flow, slice]:
    """All requests, and which of them are measured; the requests of load.at_rate, kept without its targets."""
    around = max(s.requests // 10, 2 * s.slots)
    prompts, outputs = serving.lengths(s.workload, s.requests + 2 * around, s.seed)
    arrives = serving.arrivals(s.arrive, rate, s.requests + 2 * around, s.seed)
    return flow(server(s), arrives, prompts, outputs), slice(around, around + s.requests)


@lru_cache(512)
def judged(s: Setting, rate: float, ttft_target: float, tpot_target: float) -> Run:
    found, measured = served(s, rate)
    return load.judged(found, server(s), capacity(s), rate, measured, ttft_target, tpot_target)


@dataclass(frozen=True)
class Curve:
    """Rates up to the capacity. knee: the largest one at which still SHARE of the requests meet both targets, None where already
    the slowest misses them. at_capacity: the targets hold as long as the queue does."""

    points: tuple[Point, ...]
    knee: float | None
    at_knee: Point | None
    capacity: float

    @property
    def at_capacity(self) -> bool:
        return self.knee is not None and self.knee >= self.capacity * (1 - WITHIN) * (1 - 1e-9)


@lru_cache(64)
def curve(s: Setting, ttft_target: float, tpot_target: float) -> Curve:
    most = capacity(s).requests_per_second
    grid = [part * most for part in GRID]

    def point(rate: float) -> Point:
        run = judged(s, rate, ttft_target, tpot_target)
        return Point(**{f.name: getattr(run, f.name) for f in fields(Point)})

    knee = largest(lambda rate: (good := point(rate).good) is not None and good.share >= SHARE, grid, most)
    return Curve(tuple(map(point, grid)), knee, knee and point(knee), most)


# ---- how the waits of one rate are spread


@dataclass(frozen=True)
class Histogram:
    """Bars over a logarithmic axis: `edges` in seconds, one more than `counts`. met: share of the n requests within the target."""

    name: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    n: int
    target: float
    met: float


@lru_cache(256)
def waits(s: Setting, rate: float, ttft_target: float, tpot_target: float) -> tuple[Histogram, ...]:
    """Of TTFT and TPOT; a request of one token has no TPOT."""
    found, measured = served(s, rate)
    first = (found.first - found.arrived)[measured]
    between = ((found.finished - found.first) / np.maximum(found.outputs - 1, 1))[measured][found.outputs[measured] > 1]
    return tuple(_histogram(name, seconds, target) for name, seconds, target in (("ttft", first, ttft_target), ("tpot", between, tpot_target)) if len(seconds))


def _histogram(name: str, seconds: Floats, target: float) -> Histogram:
    low, high = float(seconds.min()), float(seconds.max())
    edges = np.geomspace(low, high if high > low * 1.001 else low * 1.1, BARS + 1)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    counts = np.histogram(seconds, edges)[0]
    return Histogram(name, tuple(edges.tolist()), tuple(counts.tolist()), len(seconds), target, float((seconds <= target).mean()))


@lru_cache(64)
def alone_seconds(s: Setting) -> float:
    """Mean time of a request that has the server to itself: its service, as a queue with one server would call it."""
    prompts, outputs = serving.lengths(s.workload, ALONE, s.seed, even=True)
    found = flow(server(s), np.arange(ALONE) * 1e6, prompts, outputs)
    return float((found.finished - found.arrived).mean())


def stay_in_services(s: Setting, part: float) -> float:
    """The 99th percentile of the time in the system at a part of the capacity, in mean services."""
    found, measured = served(s, part * capacity(s).requests_per_second)
    return float(np.quantile((found.finished - found.arrived)[measured], 0.99)) / alone_seconds(s)


# ---- one server, one request at a time


@lru_cache(256)
def queue(kind: str, rho: float, seed: int) -> Theory:
    return serving.queue(kind, rho, 1.0, CUSTOMERS, seed)


def queues(kind: str, loads: tuple[float, ...], seed: int) -> list[Theory]:
    return [queue(kind, rho, seed) for rho in loads]


@dataclass(frozen=True)
class Closed:
    """Of an endless queue, by formula: mean number in the system, mean and 99th percentile of the time in it, in services."""

    rho: float
    in_system: float
    stay: float
    p99: float


@lru_cache(512)
def closed(kind: str, rho: float) -> Closed:
    mean, p99 = (mm1_mean, mm1_p99) if kind == "mm1" else (md1_mean, md1_p99)
    return Closed(rho, rho * mean(rho), mean(rho), p99(rho))


def counter() -> Quantity:
    """The 99th percentile of the time in M/M/1 at a load of 0.8, in services, as the lesson states it."""
    return numbers.resolve("=serving.mm1.p99.80")
