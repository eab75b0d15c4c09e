"""A rule tried on real distributions, as command line and page do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from compute import distributions, speculative
from compute.sampling import Order, Sampling, probabilities
from compute.speculative import Rule, Verdict

Prompt = Literal["manual", "english", "giving", "poem"]
Draft = Literal["mini-128", "mini-64"]
TARGET = "mini-256"


@dataclass(frozen=True)
class Seen:
    """One token: what target and draft gave it, and how often it came out."""

    token: int
    piece: str
    p: float
    q: float
    count: int


@dataclass(frozen=True)
class Trial:
    prompt: str
    target: str
    draft: str
    rule: Rule
    n: int
    seed: int
    verdict: Verdict
    top: tuple[Seen, ...]  # those with the most of p or q


def monte_carlo(
    prompt: Annotated[Prompt, Field(description="one of the stored prompts")] = "giving",
    draft: Draft = "mini-64",
    rule: Rule = "correct",
    n: Annotated[int, Field(ge=1, le=10_000_000, description="independent draws")] = 100_000,
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0,
    temperature: Annotated[float, Field(ge=0)] = 1.0,
    top_k: Annotated[int, Field(ge=0)] = 0,
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0,
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0,
    order: Order = "transformers",
    top: Annotated[int, Field(ge=1, le=2048, description="tokens listed")] = 20,
) -> Trial:
    """Drafts one token from q and settles it by a rule, n times: acceptance, distance from p and χ² against it."""
    found = distributions.stored(prompt)
    sampling = Sampling(temperature, top_k, top_p, min_p, order)
    p, q = (probabilities(found.logits[model], sampling) for model in (TARGET, draft))
    runs = speculative.monte_carlo(rule, p, q, n, seed)
    likeliest = np.argsort(-np.maximum(p, q), kind="stable")[:top]
    seen = tuple(Seen(int(t), found.piece(int(t)), float(p[t]), float(q[t]), int(runs.counts[t])) for t in likeliest)
    return Trial(prompt, TARGET, draft, rule, n, seed, speculative.judge(runs, p, q), seen)
