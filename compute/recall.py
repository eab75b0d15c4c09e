"""How much a state of fixed size remembers: key-value pairs written one after the other into a d × d matrix, and asked for.

Keys and values are random directions of d numbers. Three ways to remember them:

    additive   S ← S + v kᵀ                        linear attention; reads S k
    delta      S ← S + β (v − S k) kᵀ, β = 1       what the key returned before is taken out first (Yang et al. 2024; Gated
                                                   DeltaNet adds a decay, which this leaves at 1: nothing is forgotten on purpose)
    softmax    keeps every pair; reads Σ softmax(SHARP · kᵢ·k) vᵢ

Asked for each key after the last pair was written: cosine between what comes back and the value, and whether that value is the
nearest of all stored ones. Means over DRAWINGS drawings. Rewritten: each key is written twice in a row, with another value before
the one that counts; nothing tells a softmax over keys alone which was the later (a real model has positions for that).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

Rule = Literal["additive", "delta", "softmax"]
RULES: tuple[Rule, ...] = ("additive", "delta", "softmax")
PAIRS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
WIDTHS = (16, 32, 64, 128)
DRAWINGS = 4
SHARP = 64.0
"""Of the softmax: its own key scores 64, a random one 64/√d away from 0 or so."""

Width = Annotated[int, Field(ge=4, le=128)]
Pairs = Annotated[int, Field(ge=1, le=512)]
Seed = Annotated[int, Field(ge=0, le=999)]


@dataclass(frozen=True)
class Recall:
    """Of `pairs` pairs in a d × d state. cosines: of each pair, the one written first at first."""

    pairs: int
    cosine: float
    found: float
    cosines: tuple[float, ...]


def draw(width: int, pairs: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Keys, values and the values that stood there before, (drawings, pairs, width), each of length 1. The first n are the same
    however many follow."""
    drawn = np.stack([np.random.default_rng([seed, drawing]).standard_normal((pairs, 3, width)) for drawing in range(DRAWINGS)])
    drawn /= np.linalg.norm(drawn, axis=-1, keepdims=True)
    return drawn[:, :, 0], drawn[:, :, 1], drawn[:, :, 2]


def write(state: NDArray[np.float64], key: NDArray[np.float64], value: NDArray[np.float64], rule: Rule) -> None:
    """One pair into the states (drawings, d, d), in place."""
    known = np.einsum("bij,bj->bi", state, key) if rule == "delta" else 0.0
    state += (value - known)[:, :, None] * key[:, None, :]


@lru_cache(64)
def curve(rule: Rule = "delta", width: Width = 64, rewritten: bool = False, seed: Seed = 0) -> tuple[Recall, ...]:
    """What is remembered of the first n pairs right after the n-th, for each n of PAIRS."""
    keys, values, before = draw(width, PAIRS[-1], seed)
    state, found, done = np.zeros((DRAWINGS, width, width)), [], 0
    for pairs in PAIRS:
        if rule == "softmax":
            answers = _softmax(keys[:, :pairs], (values[:, :pairs] + before[:, :pairs]) / 2 if rewritten else values[:, :pairs])
        else:
            for i in range(done, pairs):
                if rewritten:
                    write(state, keys[:, i], before[:, i], rule)
                write(state, keys[:, i], values[:, i], rule)
            done, answers = pairs, keys[:, :pairs] @ state.swapaxes(1, 2)
        found.append(_judge(answers, values[:, :pairs]))
    return tuple(found)


def curves(width: Width = 64, rewritten: bool = False, seed: Seed = 0) -> dict[Rule, tuple[Recall, ...]]:
    """`curve` of each rule."""
    return {rule: curve(rule, width, rewritten, seed) for rule in RULES}


def _softmax(keys: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A key that stands there twice, with two values, gets their mean: the scores are the same."""
    scores = SHARP * keys @ keys.swapaxes(1, 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ values / weights.sum(-1, keepdims=True)


def _judge(answers: NDArray[np.float64], values: NDArray[np.float64]) -> Recall:
    near = answers @ values.swapaxes(1, 2)  # (drawings, asked, stored)
    own = np.diagonal(near, axis1=1, axis2=2)
    cosines = own / np.maximum(np.linalg.norm(answers, axis=-1), 1e-12)
    right = near.argmax(-1) == np.arange(values.shape[1])
    return Recall(values.shape[1], float(cosines.mean()), float(right.mean()), tuple(cosines.mean(0).tolist()))
