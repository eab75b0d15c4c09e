"""What the models say comes next: logits over the full vocabulary, stored for four prompts and made live for any text.

The pages turn them into distributions with compute/sampling.py; nothing is cut or normalised here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compute import precompute
from compute.errors import UnknownName
from compute.measures.distributions import MODELS, PROMPTS
from compute.sampling import Floats

__all__ = ["MODELS", "PROMPTS", "Next", "answered", "stored", "vocabulary"]

@dataclass(frozen=True)
class Next:
    """logits: by model, each (V) of the token after `text`. pieces: how tokens read, by id; rare ones may be missing."""

    text: str
    prompt_pieces: tuple[str, ...]
    logits: Mapping[str, Floats]
    pieces: Mapping[int, str]
    conditions: Mapping[str, Any]

    def piece(self, token: int) -> str:
        return self.pieces.get(token, f"#{token}")


def vocabulary() -> dict[int, str]:
    """How the 2,048 tokens of our models read; a part of a character as its bytes."""
    return dict(enumerate(precompute.recorded("mini.vocabulary")))


def stored(prompt: str) -> Next:
    """The recorded logits of one of PROMPTS, from all three models."""
    if prompt not in PROMPTS:
        raise UnknownName("prompt", "提示", prompt, list(PROMPTS))
    kept = precompute.recorded(f"next.{prompt}.entropy")
    return _next(kept, vocabulary())


def answered(answer: Mapping[str, Any]) -> Next:
    """What the service's `next.logits` said."""
    pieces = {int(token): piece for token, piece in answer["pieces"].items()}
    ours = all(len(row) == len(vocabulary()) for row in answer["logits"].values())
    return _next(answer, vocabulary() | pieces if ours else pieces)


def _next(said: Mapping[str, Any], pieces: Mapping[int, str]) -> Next:
    logits = {model: np.asarray(row, dtype=np.float64) for model, row in said["logits"].items()}
    return Next(said["text"], tuple(said["prompt_pieces"]), logits, pieces, said["conditions"])
