"""What many measured waits come to: percentiles and shares, with how sure they are.

Neighbours in a queue wait together, so a thousand of their waits tell less than a thousand independent ones; intervals say by how
much. And a percentile is given only where some lie beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from scipy import stats

from compute.serving.requests import Floats

BEYOND = 10  # observations that must lie beyond a percentile before it is given
BATCHES = 10  # consecutive groups, by which waits that depend on each other are told from independent ones
STEADIER = 0.9  # further out there are too few to tell by, so that p99 is taken to depend as p90 does
Z = 1.96


@dataclass(frozen=True)
class Percentile:
    """The time that a `share` of n requests did not exceed, and an interval meant to hold it with 95 % confidence: the times of two
    ranks, by the binomial distribution, for as many requests as would tell as much if their waits did not depend on each other. Against
    M/M/1 it held it in 89 to 98 of 100 runs that were long enough to settle, and in fewer of shorter ones.
    high is None where the run is too short to bound it from above. seconds is None, with the reason, where fewer than BEYOND
    requests lie beyond it."""

    share: float
    seconds: float | None
    low: float | None
    high: float | None
    n: int
    why_not: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Latency:
    """Seconds, of n requests."""

    n: int
    mean: float
    p50: Percentile
    p90: Percentile
    p95: Percentile
    p99: Percentile


@dataclass(frozen=True)
class Good:
    """Requests that met both targets. share: of those measured, with its 95 % interval; requests_per_second: the goodput."""

    share: float
    low: float
    high: float
    requests_per_second: float


def dependence(flags: np.ndarray) -> float:
    """How many dependent requests tell as much as one: by how much more the share of these flags varies between consecutive batches
    than it would for independent ones, and as much more again as so few batches leave open. At least 1. (n,) → number"""
    p, size = flags.mean(), len(flags) // BATCHES
    if size < 1 or not 0 < p < 1:
        return 1.0
    batches = flags[: size * BATCHES].reshape(BATCHES, size).mean(axis=1)
    return max(1.0, float(batches.var(ddof=1) * size / (p * (1 - p))) * (stats.t.ppf(0.975, BATCHES - 1) / Z) ** 2)


def percentile(seconds: Floats, share: float) -> Percentile:
    """seconds in order of arrival. (n,)"""
    n, rarer = len(seconds), min(share, 1 - share)
    if n < (least := ceil(round(BEYOND / rarer, 6))):
        name = f"p{share * 100:g}"
        en = f"{name} needs {least} requests, so that {BEYOND} lie beyond it; here are {n}"
        return Percentile(share, None, None, None, n, {"zh": f"{name} 至少要 {least} 个请求，才有 {BEYOND} 个落在它之外；这里只有 {n} 个", "en": en})
    ordered = np.sort(seconds)
    most_told = np.quantile(ordered, min(share, STEADIER))
    alone = max(1, round(n / dependence(seconds > most_told)))
    low, high = stats.binom.ppf((0.025, 0.975), alone, share)
    at = lambda rank: float(ordered[min(n, max(1, round(rank / alone * n))) - 1])  # noqa: E731
    return Percentile(share, float(np.quantile(ordered, share)), at(low) if low else 0.0, at(high + 1) if high < alone else None, n)


def spread(seconds: Floats) -> Latency | None:
    if not len(seconds):
        return None
    return Latency(len(seconds), float(seconds.mean()), *(percentile(seconds, share) for share in (0.5, 0.9, 0.95, 0.99)))


def share(met: np.ndarray, rate: float) -> Good:
    """Wilson's interval, with as many requests as would tell as much if they were independent."""
    p, n = float(met.mean()), len(met) / dependence(met)  # as many as would tell as much alone
    centre, wide = p + Z**2 / (2 * n), Z * sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return Good(p, max(0.0, (centre - wide) / (1 + Z**2 / n)), min(1.0, (centre + wide) / (1 + Z**2 / n)), p * rate)
