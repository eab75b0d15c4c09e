"""Is a difference of two losses one? The same text read twice, compared window by window. No torch: pages judge with it.

Two models find the same places of a text hard, so the differences scatter far less than the losses. What scatters
independently was looked at on mini-256: the differences of neighbouring windows correlate by 0.03 to 0.10, since documents run on
from one to the next. So four neighbours are one unit, which widens the intervals by 5 to 15 %; eight add at most as much
again. And sources differ, but which sources there are is no accident: the mix is fixed, and each is its own stratum. An interval
says what other text of the same twelve sources, in the same shares, might have given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from compute import facts
from compute.errors import BadInput

TOGETHER = 4  # neighbouring windows that are one unit
SIGMAS = 3

Verdict = Literal["none", "noise", "beyond"]
"""none: the interval holds zero, no difference was measured. noise: measured, and no larger than what another seed's training
changes. beyond: larger than that."""


@dataclass(frozen=True)
class Change:
    """value: nats per token that the second loss lies above the first; low, high: 95 %. tokens: all; units: what the interval
    counts as independent."""

    value: float
    low: float
    high: float
    tokens: int
    units: int


def change(before: ArrayLike, after: ArrayLike, counts: ArrayLike, sources: ArrayLike, together: int = TOGETHER) -> Change:
    """before, after (N): nats of each window, summed; counts (N): its tokens; sources (N): whose windows, in order of the text.

    The ratio Σ nats / Σ tokens; its variance linearised in each source and added up (the separate ratio estimate of Cochran 1977,
    §6.10), Student's t. A source of one unit scatters around the whole. Raises BadInput for fewer than two units."""
    from scipy.special import stdtrit

    counts, sources = np.asarray(counts), np.asarray(sources)
    difference = np.asarray(after, np.float64) - np.asarray(before, np.float64)
    strata = [(_stretches(difference[mine], together), _stretches(counts[mine], together)) for name in dict.fromkeys(sources.tolist()) for mine in [sources == name]]
    units, tokens = sum(len(sums) for sums, _ in strata), int(counts.sum())
    if units < 2:
        raise BadInput("text", tokens, "tokens are too few for an interval: two stretches of text are needed", "这些 token 太少，算不出区间：至少要两段文本")
    value = float(difference.sum() / tokens)
    variance = sum(_squares(sums, sizes, value) for sums, sizes in strata) / tokens**2
    reach = float(stdtrit(max(units - len(strata), 1), 0.975)) * math.sqrt(variance)
    return Change(value, value - reach, value + reach, tokens, units)


def _stretches(values: np.ndarray, together: int) -> np.ndarray:
    return np.add.reduceat(values, np.arange(0, len(values), together))


def _squares(sums: np.ndarray, sizes: np.ndarray, whole: float) -> float:
    n = len(sums)
    centre, correction = (sums.sum() / sizes.sum(), n / (n - 1)) if n > 1 else (whole, 1.0)
    return float(((sums - centre * sizes) ** 2).sum()) * correction


def verdict(change: Change, floor: float) -> Verdict:
    """floor: what another seed's training changes, nats per token; 0 for a model that nobody trained twice."""
    if change.low <= 0 <= change.high:
        return "none"
    return "noise" if abs(change.value) <= floor else "beyond"


# ---- what another seed changes


@dataclass(frozen=True)
class Floor:
    """value: SIGMAS standard deviations of the loss between trainings that differ in their seed alone, nats per token over the
    whole validation text; low, high: 95 %, wide, as a spread of few trainings is; losses: theirs."""

    value: float
    low: float
    high: float
    losses: tuple[float, ...]
    steps: int
    tokens: int


@facts.made_of("checkpoints/noise-floor.json")
def noise_floor() -> Floor:
    """From data/checkpoints/noise-floor.json: mini-256's recipe cut to few steps, five seeds. Interval of a standard deviation by
    χ² with n − 1."""
    from scipy.special import chdtri

    kept = facts.read_json(facts.DATA / "checkpoints" / "noise-floor.json")
    log = facts.read_json(facts.DATA / "checkpoints" / "mini-256" / "training-log.json")
    tokens = {name: row["tokens"] for name, row in log["final"]["domains"].items()}
    losses = [sum(run[name]["nats_per_token"] * n for name, n in tokens.items()) / sum(tokens.values()) for run in kept["losses"].values()]
    value, free = SIGMAS * float(np.std(losses, ddof=1)), len(losses) - 1
    low, high = (value * math.sqrt(free / float(chdtri(free, tail))) for tail in (0.025, 0.975))
    return Floor(value, low, high, tuple(losses), kept["recipe"]["steps"], kept["tokens_a_run"])
