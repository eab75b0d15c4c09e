"""Batch against throughput and waiting: what one read of the weights can be shared by, and who pays for it.

`batch` requests decode together, each with `context` positions in memory. Every step gives each of them one token, so a step's time is
the time per output token (TPOT) that each of them sees, and batch / step is what the card writes in all: a curve in the plane of the
two has the batch along it and ends where memory does.

Targets cut a part out of it. The sizes that meet both are feasible; the throughput of the best of them is what the service can sell,
and that is what is called goodput here: tokens per second while all decode. The time that reading prompts takes is not taken off, and
nobody queues; compute/serving counts requests that met the targets among arrivals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from compute import judged
from compute.calibrated import Clock, Error, Parallel, Precision, calibrated, ideal, require_fit
from compute.errors import Refused
from compute.facts import ChipRef, ModelRef

MOST = 16_384  # sizes that are looked at; the curve ends there if memory does not end it before
EVERY = 100  # up to here each size is a point of the curve
FURTHER = 60  # points beyond, evenly spaced in the logarithm

Size = Annotated[int, Field(ge=1, le=MOST, description="requests decoded together, to be looked at closely")]
Length = Annotated[int, Field(ge=1, le=100_000_000, description="tokens of every request: read from its prompt, and looked back at in a step")]
Target = Annotated[float, Field(gt=0, le=1e6, description="at most so many seconds")]
Arrival = Literal["one", "all"]
"""one: a request comes among batch − 1 that decode, at the worst moment, when a step of theirs has just begun; it waits for that step,
and the next one reads its whole prompt while the others write a token. all: the whole batch comes at once and is read in one step."""
Stop = Literal["tpot", "ttft", "memory", "peak", "drawn"]
EVEN = 1e-9  # relative; sizes whose throughput differs by less write the same


@dataclass(frozen=True)
class Point:
    """step_seconds: TPOT of each request; tokens_per_second: of all; first_token_seconds: TTFT, as Arrival says."""

    batch: int
    step_seconds: float
    tokens_per_second: float
    first_token_seconds: float
    feasible: bool


@dataclass(frozen=True)
class Curve:
    """stops: what rules out one request more than `best` ("peak": nothing, but it would write no more in all); where no size is feasible,
    what rules out a single one. error: of throughput and TPOT; first_token_error: of TTFT. Both None at the ideal bound."""

    kind: Literal["ideal", "calibrated"]
    points: tuple[Point, ...]
    alone: Point
    chosen: Point | None  # None where it does not fit
    best: Point | None  # None where no size meets the targets
    stops: tuple[Stop, ...]
    error: Error | None = None
    first_token_error: Error | None = None


@dataclass(frozen=True)
class Memory:
    """On each card. fits: requests beside the weights; None for a textbook model, whose memory nobody counts."""

    fits: int | None
    memory_bytes: float
    weights_bytes: float
    request_bytes: float

    def missing_bytes(self, batch: int) -> float:
        return max(0.0, self.weights_bytes + batch * self.request_bytes - self.memory_bytes)


@dataclass(frozen=True)
class Frontier:
    """calibrated is None where nobody published kernel measurements of the card, and why_not says so. refused: why the chosen batch
    does not fit, where it does not."""

    ideal: Curve
    calibrated: Curve | None
    memory: Memory
    why_not: Mapping[str, str] | None = None
    refused: Mapping[str, str] | None = None


def frontier(
    model: ModelRef, chip: ChipRef, context: Length = 4096, batch: Size = 58, ttft_target: Target = 1.0, tpot_target: Target = 0.025,
    tensor_parallel: Parallel = 1, precision: Precision = "bf16", arrival: Arrival = "one",
) -> Frontier:  # fmt: skip
    """Time per token, total throughput and first token for every batch that fits, at the ideal bound and as measured kernels make it;
    which sizes meet both targets, and the one among them that writes most.

    Raises Refused where not even one request fits beside the weights, BadInput for cards that cannot share the model."""
    bound = ideal(model, chip, precision, tensor_parallel)
    refused = None
    if bound.shape.textbook:
        most, fits = MOST, None
    else:
        require_fit(bound, 1, context)
        fits = bound.capacity(context)
        most = min(fits, MOST)
        refused = _why(lambda: require_fit(bound, batch, context))
    memory = Memory(fits, bound.chip.memory_bytes, bound.chip.memory_bytes - bound.free_bytes, bound.request_bytes(context))
    try:
        real, why_not = calibrated(model, chip, precision, tensor_parallel), None
    except Refused as reason:
        if reason.code != "not_calibrated":
            raise
        real, why_not = None, _both(reason)
    every = [clock and _every(clock, most, context, ttft_target, tpot_target, arrival) for clock in (bound, real)]
    drawn = sorted({*sampled(most), min(batch, most), *(e.best for e in every if e and e.best)})
    return Frontier(*(e and _curve(e, drawn, context, batch, fits) for e in every), memory, why_not, refused)


@dataclass(frozen=True)
class _Every:
    """Of sizes 1, 2, 3, … in this order, as arrays. slow, late: beyond the targets of TPOT and TTFT."""

    clock: Clock
    step: np.ndarray
    first: np.ndarray
    slow: np.ndarray
    late: np.ndarray

    @property
    def rate(self) -> np.ndarray:
        return np.arange(1, len(self.step) + 1) / self.step

    @cached_property
    def best(self) -> int | None:
        """The smallest of the feasible sizes that write most: past the ridge of an ideal card more requests write no more."""
        rate = np.where(self.slow | self.late, 0.0, self.rate)
        return int(np.argmax(rate >= rate.max() * (1 - EVEN))) + 1 if rate.any() else None

    def point(self, size: int) -> Point:
        i = size - 1
        return Point(size, float(self.step[i]), float(self.rate[i]), float(self.first[i]), not (self.slow[i] or self.late[i]))

    def stops(self, fits: int | None) -> tuple[Stop, ...]:
        i = self.best or 0  # of one more
        if i == len(self.step):
            return ("memory",) if i == fits else ("drawn",)
        return tuple(name for name, fails in (("tpot", self.slow), ("ttft", self.late)) if fails[i]) or ("peak",)


def _every(clock: Clock, most: int, context: int, ttft_target: float, tpot_target: float, arrival: Arrival) -> _Every:
    sizes = np.arange(1.0, most + 1)
    step = clock.step(sizes, sizes * context)
    first = first_token(clock, sizes, context, arrival, step)
    return _Every(clock, step, first, step > tpot_target, first > ttft_target)


def _curve(every: _Every, drawn: list[int], context: int, batch: int, fits: int | None) -> Curve:
    clock, best = every.clock, every.best
    return Curve(
        clock.kind, tuple(map(every.point, drawn)), every.point(1), every.point(batch) if batch <= len(every.step) else None,
        every.point(best) if best else None, every.stops(fits), clock.error, judged.first_token_error(context) if clock.rates else None,
    )  # fmt: skip


def first_token(clock: Clock, sizes: np.ndarray, context: int, arrival: Arrival, step: np.ndarray) -> np.ndarray:
    """Seconds until a newcomer has its first token, for sizes 1, 2, 3, …; step: the times of their decode steps."""
    if arrival == "all":
        return clock.step(0 * sizes, 0 * sizes, sizes * context, sizes * context**2 / 2, sizes)
    running = np.concatenate([[0.0], step[:-1]])  # of those who are there already: one fewer
    return running + clock.step(sizes - 1, (sizes - 1) * context, context, context**2 / 2, 1)


def sampled(most: int) -> list[int]:
    """Sizes that make a curve: every one as far as EVERY, then FURTHER, evenly in the logarithm, and the powers of two, to the last."""
    near = list(range(1, min(most, EVERY) + 1))
    if most <= EVERY:
        return near
    powers = (2**e for e in range(most.bit_length()))
    return sorted({*near, *np.geomspace(EVERY, most, FURTHER + 1).round().astype(int).tolist(), *powers})


def _why(check) -> dict[str, str] | None:
    try:
        check()
    except Refused as reason:
        return _both(reason)
    return None


def _both(reason: Refused) -> dict[str, str]:
    return {lang: reason.message(lang) for lang in ("zh", "en")}
