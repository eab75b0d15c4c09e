"""One server, one request at a time: the simulation beside the closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from compute.batching import Work
from compute.serving.flow import Server, never
from compute.serving.load import Rate, Requests, Run, Seed, at_rate, backlog, capacity, check, positive
from compute.serving.requests import Floats, Whole

QUANTUM = 100_000  # parts of the mean service, in which services are counted


@dataclass(frozen=True)
class Reading:
    """A price: seconds for every prompt token, nothing else. With replies of one token a request's service is its prompt's length,
    which turns the scheduler into a plain queue."""

    seconds_per_token: float
    kind: Literal["ideal"] = "ideal"
    windows: tuple[int, ...] = ()

    def __call__(self, work: Work) -> float:
        return self.seconds_per_token * sum(read.tokens for read in work.reads)

    def decode(self, decoding: int, cells: int, in_windows: list[int]) -> float:
        return self.seconds_per_token * decoding

    def mixed(self, decoding: int, cells: int, in_windows: list[int], chunks: list[tuple[int, int, bool]]) -> float:
        return self.seconds_per_token * (decoding + sum(tokens for _, tokens, _ in chunks))


@dataclass(frozen=True)
class Service:
    """A workload whose services are exponential ("mm1"), or all alike ("md1"), in parts of QUANTUM."""

    id: Literal["mm1", "md1"]

    def at(self, prompts: Floats, outputs: Floats) -> tuple[Whole, Whole]:
        tokens = -np.log1p(-prompts) if self.id == "mm1" else np.ones(len(prompts))
        return np.maximum(1, np.rint(tokens * QUANTUM)).astype(np.int64), np.ones(len(prompts), np.int64)

    @property
    def longest(self) -> int:
        return 64 * QUANTUM


@dataclass(frozen=True)
class Theory:
    """The run, and what the closed forms say of an endless one: None in overload. M/M/1: the time in the system is exponential with
    mean 1/(μ − λ). M/D/1: Pollaczek and Khinchine's mean; its percentiles have no short form. Seconds."""

    kind: Literal["mm1", "md1"]
    run: Run
    load: float
    wait: float | None  # mean, before service begins
    stay: float | None  # mean, service included
    in_system: float | None
    percentiles: dict[str, float] | None  # of the stay: p50 p90 p95 p99, mm1 only


def single(service: float) -> Server:
    """One request at a time, of so many seconds on average."""
    return Server("continuous", 1, 1, 64 * QUANTUM, 1, Reading(service / QUANTUM))


def queue(
    kind: Literal["mm1", "md1"] = "mm1",
    rate: Rate = 0.8,
    service: Annotated[float, Field(gt=0, le=1e6, description="mean seconds of a service")] = 1.0,
    requests: Requests = 10_000,
    seed: Seed = 0,
    cancelled: Callable[[], bool] = never,
) -> Theory:
    """A queue in front of a single server, simulated by the scheduler of the batching lesson with one slot, beside the closed form."""
    positive("service", service)
    check(rate, requests, 1.0, 1.0)
    load, served = Service(kind), single(service)
    most = replace(capacity(served, load, backlog(1), seed, cancelled), requests_per_second=1 / service)  # the service's mean is given, so this is known
    run = at_rate(served, load, most, rate, requests, 1e6, 1e6, seed, cancelled=cancelled)
    rho, mu = rate * service, 1 / service
    if rho >= 1:
        return Theory(kind, run, rho, None, None, None, None)
    wait = rho / (mu - rate) if kind == "mm1" else rho / (2 * mu * (1 - rho))
    stay = wait + service
    exact = {f"p{p}": log(100 / (100 - p)) / (mu - rate) for p in (50, 90, 95, 99)} if kind == "mm1" else None
    return Theory(kind, run, rho, wait, stay, rate * stay, exact)
