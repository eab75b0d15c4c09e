"""Speculative sampling: the rule, once, and what follows from it.

p (V) is the target's distribution, q (V) the draft's, both as `sampling.probabilities` made them. The engine, the replay
and the Monte Carlo runs all decide by `settle`. Leviathan, Kalman, Matias 2023 (§2.3, eq. 1, theorem 3.5); Chen et al. 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from compute import sampling
from compute.sampling import Floats

Tokens = NDArray[np.intp]
Rule = Literal["correct", "equal-only", "resample-from-p"]
RULES: tuple[Rule, ...] = ("correct", "equal-only", "resample-from-p")


@dataclass(frozen=True)
class Ready:
    """A rule prepared for one p and q, for who settles many drafts with them. ratio (V): p/q; redraw: the second draw."""

    ratio: Floats
    redraw: Callable[[Floats], Tokens]


def ready(rule: Rule, p: Floats, q: Floats) -> Ready:
    return Ready(np.divide(p, q, out=np.zeros_like(p), where=q > 0), sampling.drawer(second(rule, p, q)))


def settle(
    rule: Rule, p: Floats, q: Floats, x: Tokens, u: Floats, v: Floats, prepared: Ready | None = None
) -> tuple[Tokens, NDArray[np.bool_]]:
    """What becomes of n drafted tokens at one place in the text: (tokens, accepted), each (n).

    x (n) was drawn from q; u and v (n) are uniform numbers in [0, 1), u for the acceptance, v for a second draw.
      correct          keep x with probability min(1, p(x)/q(x)), else draw from the residual (p − q)+ normalised: gives p
      equal-only       draw y from p and keep x only if y = x: gives p, but hardly ever accepts
      resample-from-p  as correct, but a rejected token is drawn from p again: does not give p
    """
    redraw = prepared.redraw if prepared else lambda v: sampling.draw(second(rule, p, q), v)
    if rule == "equal-only":
        y = redraw(v)
        return y, x == y
    accepted = u < (prepared.ratio[x] if prepared else p[x] / q[x])  # a drafted x has q(x) > 0
    rejected = np.flatnonzero(~accepted)
    if not len(rejected):
        return x, accepted
    tokens = x.copy()
    tokens[rejected] = redraw(v[rejected])
    return tokens, accepted


def second(rule: Rule, p: Floats, q: Floats) -> Floats:
    """The distribution (V) of a second draw."""
    return residual(p, q) if rule == "correct" else p


def residual(p: Floats, q: Floats) -> Floats:
    """What is drawn after a rejection: (p − q)+ normalised, (V). p itself where p = q, when nothing is ever rejected."""
    over = np.maximum(p - q, 0)
    total = over.sum()
    return over / total if total > 0 else p


def acceptance(p: Floats, q: Floats) -> float:
    """Probability that a drafted token is accepted: α = Σ min(p, q) = 1 − total variation (theorem 3.5)."""
    return float(np.minimum(p, q).sum())


def equal_only_acceptance(p: Floats, q: Floats) -> float:
    """Probability that two independent draws agree: Σ p·q."""
    return float((p * q).sum())


def kept(rule: Rule, p: Floats, q: Floats) -> Floats:
    """Probability that a token is drafted and accepted, (V); the sum is the rule's acceptance."""
    return p * q if rule == "equal-only" else np.minimum(p, q)


def output(rule: Rule, p: Floats, q: Floats) -> Floats:
    """The distribution that a rule gives, (V). It is p for all but resample-from-p."""
    if rule == "resample-from-p":
        return np.minimum(p, q) + (1 - acceptance(p, q)) * p
    return p


# ---- one round: k guesses, one forward of the target


@dataclass(frozen=True)
class Check:
    """One guess. p, q: of the guessed token; u: the uniform number that decided."""

    token: int
    p: float
    q: float
    u: float
    accepted: bool


@dataclass(frozen=True)
class Round:
    """checks end with the first rejection. The round writes the accepted guesses and `last`: drawn from the residual after
    a rejection, from the target's next distribution when all were accepted (the bonus token)."""

    checks: tuple[Check, ...]
    last: int
    v: float  # the uniform number behind `last`

    @property
    def accepted(self) -> int:
        return sum(check.accepted for check in self.checks)

    @property
    def bonus(self) -> bool:
        return all(check.accepted for check in self.checks)

    @property
    def tokens(self) -> tuple[int, ...]:
        return (*(check.token for check in self.checks if check.accepted), self.last)


def play_round(p: Floats, q: Floats, guesses: list[int], random: np.random.Generator, rule: Rule = "correct") -> Round:
    """Decides k guesses. p (k + 1, V): the target's distributions at the guesses and after the last; q (k, V): those that
    the guesses were drawn from. Uses one pair of uniform numbers a check, and one number for the bonus."""
    checks = []
    for i, guess in enumerate(guesses):
        u, v = random.random(2)
        (token,), (accepted,) = settle(rule, p[i], q[i], np.array([guess]), np.array([u]), np.array([v]))
        checks.append(Check(guess, float(p[i, guess]), float(q[i, guess]), float(u), bool(accepted)))
        if not accepted:
            return Round(tuple(checks), int(token), float(v))
    v = random.random()
    return Round(tuple(checks), int(sampling.draw(p[-1], [v])[0]), float(v))


# ---- what it is worth


def expected_tokens(acceptance: float, k: int) -> float:
    """Tokens per forward of the target when each guess is accepted independently with probability α:
    E = (1 − α^(k+1)) / (1 − α) (eq. 1). Between 1 and k + 1."""
    return float(k + 1) if acceptance == 1 else (1 - acceptance ** (k + 1)) / (1 - acceptance)


def speedup(acceptance: float, k: int, cost: float) -> float:
    """E / (1 + c·k): against one token a forward. cost c: a forward of the draft over one of the target; checking k + 1
    tokens is taken to cost the same as one (theorem 3.8)."""
    return expected_tokens(acceptance, k) / (1 + cost * k)


def tokens_spread(acceptance: float, k: int) -> float:
    """Standard deviation of the tokens of one round; their mean is expected_tokens."""
    accepted = np.arange(k + 1)
    chance = acceptance**accepted * np.where(accepted < k, 1 - acceptance, 1.0)
    return float(np.sqrt(max(0.0, (chance * accepted**2).sum() - (chance * accepted).sum() ** 2)))


def play_rounds(acceptance: float, k: int, rounds: int, seed: int) -> Tokens:
    """Accepted guesses of so many rounds, each guess accepted independently with probability α; (rounds). A round writes
    one token more than it accepts."""
    kept = np.random.default_rng(seed).random((rounds, k)) < acceptance
    return np.cumprod(kept, axis=1).sum(axis=1)


def best_k(acceptance: float, cost: float, most: int = 32) -> int:
    """The k of the largest speed-up, 0 when no guess pays."""
    return max(range(most + 1), key=lambda k: speedup(acceptance, k, cost))


# ---- Monte Carlo


@dataclass(frozen=True)
class Runs:
    """n independent draws under one rule. counts (V): how often each token came out."""

    rule: Rule
    n: int
    seed: int
    counts: NDArray[np.int64]
    accepted: int


CHUNK = 2**14  # draws at a time: they stay in the processor's cache


def monte_carlo(rule: Rule, p: Floats, q: Floats, n: int, seed: int) -> Runs:
    """Draft from q, settle, count: n times. The same seed gives the same drafts whatever the rule."""
    random = np.random.default_rng(seed)
    counts, accepted = np.zeros(len(p), dtype=np.int64), 0
    draft, prepared = sampling.drawer(q), ready(rule, p, q)
    for start in range(0, n, CHUNK):
        w, u, v = random.random((3, min(CHUNK, n - start)))
        tokens, taken = settle(rule, p, q, draft(w), u, v, prepared)
        counts += np.bincount(tokens, minlength=len(p))
        accepted += int(np.count_nonzero(taken))
    return Runs(rule, n, seed, counts, accepted)


def total_variation(counts: NDArray[np.int64], p: Floats) -> float:
    """½ Σ |counts/n − p|."""
    return float(np.abs(counts / counts.sum() - p).sum() / 2)


def total_variation_by_chance(p: Floats, n: int) -> float:
    """What total_variation gives on average for n draws from p itself: half the sum of the binomials' mean deviations,
    E|X − np| = 2 m C(n, m) pᵐ (1 − p)ⁿ⁻ᵐ⁺¹ with m = ⌊np⌋ + 1 (de Moivre 1730)."""
    from scipy.special import gammaln

    p = p[(p > 0) & (p < 1)]
    m = np.floor(n * p) + 1
    ways = gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1)
    return float((m * np.exp(ways + m * np.log(p) + (n - m + 1) * np.log1p(-p))).sum() / n)


def wilson(successes: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Score interval for a proportion, 95 % by default (Wilson 1927)."""
    share, spread = successes / n, z * z / n
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return (middle - half) / (1 + spread), (middle + half) / (1 + spread)


@dataclass(frozen=True)
class ChiSquare:
    statistic: float
    degrees: int  # of freedom
    p_value: float


def chi_square(counts: NDArray[np.int64], p: Floats, least: float = 5.0) -> ChiSquare:
    """Pearson's test of counts (V) against p. Tokens expected fewer than `least` times are counted together as one.
    A token that came out although p gives it nothing settles the matter: p-value 0."""
    from scipy.special import gammaincc

    expected = counts.sum() * p
    alone = expected >= least
    seen = np.append(counts[alone], counts[~alone].sum())
    meant = np.append(expected[alone], expected[~alone].sum())
    if len(meant) > 1 and meant[-1] < least:  # too small a rest joins the rarest of the others
        rarest = int(meant[:-1].argmin())
        seen[rarest] += seen[-1]
        meant[rarest] += meant[-1]
        seen, meant = seen[:-1], meant[:-1]
    statistic, degrees = float(((seen - meant) ** 2 / meant).sum()), len(meant) - 1
    if counts[p == 0].any():
        return ChiSquare(statistic, degrees, 0.0)
    return ChiSquare(statistic, degrees, float(gammaincc(degrees / 2, statistic / 2)) if degrees else 1.0)


DOUBT = 0.001  # below this p-value a run "cannot come from p": one honest run in a thousand is wrongly accused


@dataclass(frozen=True)
class Verdict:
    """What statistics says of Runs against p. *_expected: of the rule, exact; by_chance: of n draws from p itself."""

    acceptance: float
    acceptance_interval95: tuple[float, float]
    acceptance_expected: float
    total_variation: float
    total_variation_by_chance: float
    total_variation_expected: float  # of the rule's output against p, were n infinite
    chi_square: ChiSquare
    agrees: bool


def judge(runs: Runs, p: Floats, q: Floats) -> Verdict:
    test = chi_square(runs.counts, p)
    return Verdict(
        acceptance=runs.accepted / runs.n,
        acceptance_interval95=wilson(runs.accepted, runs.n),
        acceptance_expected=float(kept(runs.rule, p, q).sum()),
        total_variation=total_variation(runs.counts, p),
        total_variation_by_chance=total_variation_by_chance(p, runs.n),
        total_variation_expected=float(np.abs(output(runs.rule, p, q) - p).sum() / 2),
        chi_square=test,
        agrees=test.p_value >= DOUBT,
    )
