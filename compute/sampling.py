"""From logits to one token: temperature, truncation, one draw.

All in float64 on the full vocabulary. The distribution that comes out here is the only one in the house: the pages draw
it, the engine samples from it, and speculative decoding drafts, accepts and resamples with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compute.errors import BadInput

Floats = NDArray[np.float64]
Rule = Literal["temperature", "top_k", "top_p", "min_p"]
Order = Literal["transformers", "vllm", "llama.cpp"]

ORDERS: Mapping[Order, tuple[Rule, ...]] = {
    "transformers": ("temperature", "top_k", "top_p", "min_p"),
    "vllm": ("temperature", "min_p", "top_k", "top_p"),
    "llama.cpp": ("top_k", "top_p", "min_p", "temperature"),
}
"""In which order engines apply the rules by default (sources: sampling.order.* in data/papers.toml; llama.cpp without the
steps that do nothing by default). Each rule sees the distribution that the earlier ones left, normalised over it; so the
order changes what is kept."""


@dataclass(frozen=True)
class Sampling:
    """How a distribution becomes a token. temperature 0 is greedy, whatever the rest; top_k 0, top_p 1 and min_p 0 are off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    order: Order = "transformers"

    def __post_init__(self) -> None:
        for name, value, good, en, zh in (
            ("temperature", self.temperature, 0 <= self.temperature < float("inf"), "it must be 0 (greedy) or more", "应为 0（贪心）或更大"),
            ("top_k", self.top_k, self.top_k >= 0, "it must be 0 (off) or more", "应为 0（不用）或更大"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "it must be above 0 and at most 1", "应大于 0、不超过 1"),
            ("min_p", self.min_p, 0 <= self.min_p <= 1, "it must lie between 0 and 1", "应在 0 到 1 之间"),
            ("order", self.order, self.order in ORDERS, f"it must be one of {', '.join(ORDERS)}", f"只能是 {'、'.join(ORDERS)}"),
        ):
            if not good:
                raise BadInput(name, value, en, zh)


GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Stage:
    """The distribution after one rule. kept (V) bool: not cut so far; p (V): normalised over the kept."""

    rule: Rule
    kept: NDArray[np.bool_]
    p: Floats

    @property
    def count(self) -> int:
        return int(self.kept.sum())


def stages(logits: ArrayLike, sampling: Sampling) -> tuple[Stage, ...]:
    """What each rule does, in its order. logits (V).

    At temperature 0 the temperature's stage keeps the largest logit alone; of equal ones the lowest token id.
    """
    z, found = _shifted(logits), []
    for rule in ORDERS[sampling.order]:
        z = _apply(rule, z, sampling)
        found.append(Stage(rule, z > -np.inf, softmax(z)))
    return tuple(found)


def probabilities(logits: ArrayLike, sampling: Sampling) -> Floats:
    """The distribution from which the token is drawn: logits (…, V) → (…, V), 0 for what was cut."""
    z = _shifted(logits)
    if sampling.temperature == 0:  # no rule ever cuts the largest
        return softmax(_apply("temperature", z, sampling))
    for rule in ORDERS[sampling.order]:
        z = _apply(rule, z, sampling)
    return softmax(z)


def _shifted(logits: ArrayLike) -> Floats:
    z = np.asarray(logits, dtype=np.float64)
    return z - z.max(axis=-1, keepdims=True)  # so that a temperature near 0 cannot overflow


def _apply(rule: Rule, z: Floats, s: Sampling) -> Floats:
    """Logits after one rule; what it cuts becomes −inf."""
    match rule:
        case "temperature" if s.temperature == 0:
            largest = np.arange(z.shape[-1]) == z.argmax(axis=-1, keepdims=True)
            return np.where(largest, 0.0, -np.inf)
        case "temperature":
            return z if s.temperature == 1 else z / s.temperature
        case "top_k" if s.top_k:
            return np.where(top_k(z, s.top_k), z, -np.inf)
        case "top_p" if s.top_p < 1:
            return np.where(top_p(softmax(z), s.top_p), z, -np.inf)
        case "min_p" if s.min_p:
            return np.where(min_p(softmax(z), s.min_p), z, -np.inf)
    return z


def softmax(z: Floats) -> Floats:
    """Over the last axis; −inf becomes 0."""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# ---- the three rules: probabilities (…, V) → kept (…, V)


def top_k(p: Floats, k: int) -> NDArray[np.bool_]:
    """The k most likely (logits do as well). Tokens tied with the k-th are all kept, as in transformers: their order would
    be an accident. Fan, Lewis, Dauphin 2018, §5.4."""
    if k >= p.shape[-1]:
        return np.ones_like(p, dtype=bool)
    return p >= np.partition(p, -k, axis=-1)[..., -k, None]


def top_p(p: Floats, mass: float) -> NDArray[np.bool_]:
    """The fewest most likely tokens whose probabilities reach `mass`; the token that reaches it is kept, so at least one
    is. Of equally likely tokens the lower id comes first; transformers keeps as many but leaves open which. Holtzman et al.
    2020, §3.1."""
    falling = -np.sort(-p, axis=-1)
    count = np.sum(np.cumsum(falling, axis=-1) - falling < mass, axis=-1, keepdims=True)  # those before which mass is missing
    last = np.take_along_axis(falling, count - 1, axis=-1)
    above, tied = p > last, p == last
    places = count - above.sum(axis=-1, keepdims=True)  # left for those as likely as the last
    return above | tied & (np.cumsum(tied, axis=-1) <= places)


def min_p(p: Floats, base: float) -> NDArray[np.bool_]:
    """Tokens at least `base` times as likely as the most likely one; equality keeps. Nguyen et al. 2024, §3."""
    return p >= base * p.max(axis=-1, keepdims=True)


# ---- measures of a distribution, and the draw


def entropy(p: ArrayLike) -> Floats:
    """Shannon entropy in nats over the last axis."""
    p = np.asarray(p, dtype=np.float64)
    return -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=-1)


def draw(p: Floats, u: ArrayLike) -> NDArray[np.intp]:
    """Tokens for uniform numbers in [0, 1): the one in whose share of the cumulative distribution u falls. p (V), u (n) → (n).

    A token of probability 0 is never drawn.
    """
    return np.searchsorted(_cumulative(p), u, side="right")


def drawer(p: Floats) -> Callable[[Floats], NDArray[np.intp]]:
    """`draw` from one p many times: the same tokens, found without a search for nearly all u. Chen, Asau 1974 (guide table)."""
    cumulative = _cumulative(p)
    small = np.min_scalar_type(-len(p))  # the table stays in the processor's cache
    ends = np.bincount(np.ceil(cumulative * BUCKETS).astype(np.intp), minlength=BUCKETS + 1)  # BUCKETS is a power of 2: exact
    first = np.cumsum(ends, dtype=small)  # by bucket, the token in whose share it begins
    guide = np.where(first[:-1] == first[1:], first[:-1], small.type(-1))  # −1: more than one token shares the bucket

    def draws(u: Floats) -> NDArray[np.intp]:
        tokens = guide[(u * BUCKETS).astype(np.intp)].astype(np.intp)
        shared = np.flatnonzero(tokens < 0)
        tokens[shared] = np.searchsorted(cumulative, u[shared], side="right")
        return tokens

    return draws


BUCKETS = 2**15


def _cumulative(p: Floats) -> Floats:
    """Exactly 1 from the last token of a probability above 0 on."""
    sums = np.cumsum(p)
    return sums / sums[-1]


# ---- measures of a text


def repetition(tokens: ArrayLike, n: int = 4) -> float:
    """Share of the n-grams that occurred before in the same text; 0 for texts shorter than n + 1."""
    grams = _grams(tokens, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def distinct(tokens: ArrayLike, n: int) -> float:
    """Different n-grams over all n-grams (distinct-n, Li et al. 2016, §5.2); 1 for texts shorter than n."""
    grams = _grams(tokens, n)
    return len(set(grams)) / len(grams) if grams else 1.0


def _grams(tokens: ArrayLike, n: int) -> list[tuple[int, ...]]:
    ids = [int(t) for t in np.asarray(tokens)]
    return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
