"""When requests arrive, and how long they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence as Row
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from compute import batching_requests
from compute.errors import BadInput, UnknownName

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

Kind = Literal["poisson", "even", "bursty", "replay"]
KINDS: tuple[Kind, ...] = ("poisson", "even", "bursty", "replay")
BURSTY = 0.25  # shape of the gaps' Gamma distribution: their deviation is twice their mean; 1 would be Poisson


def arrivals(kind: Kind, rate: float | None, requests: int, seed: int = 0, times: Row[float] = ()) -> Floats:
    """Seconds at which so many requests arrive, in order. (requests,)

    poisson: gaps are exponential and independent, as from many people who do not know of each other. even: all gaps alike.
    bursty: gaps of the same mean from a Gamma distribution of shape BURSTY. replay: `times` as they were recorded, squeezed or
    stretched to the rate unless it is None, and over again where more requests are asked for than were recorded. Gaps of one
    seed are the same at every rate but for their scale, so that rates can be compared. Raises BadInput."""
    if requests < 1:
        raise BadInput("requests", requests, "at least 1 is needed", "至少要 1")
    if rate is not None or kind != "replay":
        positive("rate", rate)
    if kind == "replay":
        return replayed(times, rate, requests)
    random = np.random.default_rng([seed, 1])
    if kind == "poisson":
        gaps = random.exponential(1.0, requests)
    elif kind == "bursty":
        gaps = random.gamma(BURSTY, 1 / BURSTY, requests)
    elif kind == "even":
        gaps = np.ones(requests)
    else:
        raise UnknownName("kind of arrivals", "到达方式", kind, list(KINDS))
    return np.cumsum(gaps) / rate


def replayed(times: Row[float], rate: float | None, requests: int) -> Floats:
    """The recorded times as gaps, the first of which is the mean one: where the record begins nothing is known before it."""
    found = np.sort(np.asarray(times, float))
    if len(found) < 2 or not found[-1] > found[0] or not np.isfinite(found).all():
        raise BadInput("times", len(found), "a replay needs at least two arrivals at different times", "回放至少要有两个不同时刻的到达")
    gaps = np.diff(found)
    gaps = np.concatenate([[gaps.mean()], gaps])
    if rate is not None:
        gaps = gaps / (gaps.mean() * rate)
    return np.cumsum(np.resize(gaps, requests))


def positive(field: str, value: float | None) -> None:
    if value is None or not 0 < value < float("inf"):
        raise BadInput(field, value, "it must be a positive number", "要填正数")


# ---- how long they are


@dataclass(frozen=True)
class Lengths:
    """Log-normal: half are shorter than `median`, about two thirds lie between median / e^spread and median · e^spread; whatever
    is longer than `most` is `most`. Without a spread all are alike."""

    median: int
    spread: float
    most: int

    def at(self, shares: Floats) -> Whole:
        """The length that such a share of the requests does not exceed. (n,) → (n,)"""
        return np.clip(np.rint(self.median * np.exp(self.spread * ndtri(shares))), 1, self.most).astype(np.int64)


@dataclass(frozen=True)
class Workload:
    """Prompts and replies, drawn independently of each other."""

    id: str
    prompt: Lengths
    output: Lengths
    says: Mapping[str, str] = field(hash=False, compare=False)

    def at(self, prompts: Floats, outputs: Floats) -> tuple[Whole, Whole]:
        return self.prompt.at(prompts), self.output.at(outputs)

    @property
    def longest(self) -> int:
        """Positions that the longest request takes."""
        return self.prompt.most + self.output.most


@dataclass(frozen=True)
class Paragraphs:
    """The 64 real paragraphs of compute/batching_requests.py: prompt and reply belong together."""

    id: str
    says: Mapping[str, str] = field(hash=False, compare=False)

    def at(self, prompts: Floats, outputs: Floats) -> tuple[Whole, Whole]:
        """The share picks the paragraph; the second one is not needed."""
        pairs = _paragraphs()
        return tuple(pairs[np.minimum((prompts * len(pairs)).astype(int), len(pairs) - 1)].T)

    @property
    def longest(self) -> int:
        return int(_paragraphs().sum(axis=1).max())


@cache
def _paragraphs() -> Whole:
    return np.array([(len(request.prompt), request.output) for request in batching_requests.requests()])


WORKLOADS: dict[str, Workload | Paragraphs] = {
    w.id: w
    for w in (
        Workload("chat", Lengths(200, 1.0, 4096), Lengths(200, 0.8, 2048), {"zh": "对话：提示和回复都不长，长短差别大", "en": "chat: short prompts and replies of very different lengths"}),
        Workload("documents", Lengths(6000, 0.6, 32_768), Lengths(150, 0.7, 1024), {"zh": "长文档：长提示，短回复", "en": "documents: long prompts, short replies"}),
        Workload("code", Lengths(1500, 0.6, 8192), Lengths(30, 0.9, 512), {"zh": "代码补全：中等提示，很短的回复", "en": "code completion: middling prompts, very short replies"}),
        Workload("reasoning", Lengths(250, 0.8, 4096), Lengths(1500, 0.7, 8192), {"zh": "长思考：短提示，长回复", "en": "reasoning: short prompts, long replies"}),
        Paragraphs("paragraphs", {"zh": "批处理一课的 64 个真实段落", "en": "the 64 real paragraphs of the batching lesson"}),
    )
}
"""All but the paragraphs are ours: shapes that such services are said to have, not measured traces. Say so where they are shown."""


def workload(ref: str | Workload | Paragraphs) -> Workload | Paragraphs:
    if not isinstance(ref, str):
        return ref
    if ref not in WORKLOADS:
        raise UnknownName("workload", "负载", ref, list(WORKLOADS))
    return WORKLOADS[ref]


def lengths(ref: str | Workload | Paragraphs, n: int, seed: int = 0, *, even: bool = False) -> tuple[Whole, Whole]:
    """Prompt and output tokens of n requests. even: the n lengths cut the distribution into equal shares, in random order, so
    that their mean hardly depends on the draw; otherwise each is drawn by itself."""
    random = np.random.default_rng([seed, 2])
    if even:
        shares = ((np.stack([random.permutation(n), random.permutation(n)]) + 0.5) / n).astype(float)
    else:
        shares = random.random((2, n))
    return workload(ref).at(*shares)
