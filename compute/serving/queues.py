"""One server and a queue in closed form: times in the system, in mean service times, at a load ρ below 1."""

from __future__ import annotations

from math import exp, log

import numpy as np


def mm1_mean(rho: float) -> float:
    """Mean time in the system, waiting and service, in mean service times. M/M/1, first come first served."""
    return 1 / (1 - rho)


def mm1_p99(rho: float) -> float:
    """Its 99th percentile: the time in an M/M/1 system is exponential."""
    return log(100) / (1 - rho)


def md1_mean(rho: float) -> float:
    """The same where every service takes equally long (Pollaczek–Khinchine)."""
    return 1 + rho / (2 * (1 - rho))


def md1_p99(rho: float) -> float:
    """Waits by Franx (2001), a sum of positive terms only: with (k − 1) services ≤ t < k,
    P(wait ≤ t) = e^(−ρ(k − t)) · Σ_j Q(k − 1 − j) · (ρ(k − t))^j / j!, Q(m) = P(at most m + 1 in the system)."""
    at_most = np.cumsum(_md1_numbers(rho, 400))

    def within(t: float) -> float:
        k = int(t) + 1
        load, term, total = rho * (k - t), 1.0, 0.0
        for j in range(k):
            total += at_most[k - j] * term
            term *= load / (j + 1)
        return exp(-load) * total

    low, high = 0.0, 200.0
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) >= 0.99 else (middle, high)
    return 1 + high


def _md1_numbers(rho: float, most: int) -> list[float]:
    """Probabilities of 0, 1, … customers in an M/D/1 system, by Ramaswami's recursion over the tails of the arrivals in one service."""
    arrivals = [exp(-rho)]
    for k in range(1, most + 2):
        arrivals.append(arrivals[-1] * rho / k)
    tails = [1.0]
    for k in range(most + 1):
        tails.append(max(0.0, tails[-1] - arrivals[k]))
    numbers = [1 - rho]
    for i in range(1, most + 1):
        numbers.append((numbers[0] * tails[i] + sum(numbers[j] * tails[i + 1 - j] for j in range(1, i))) / arrivals[0])
    return numbers
