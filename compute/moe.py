"""What a layer of experts holds, what a token goes through, and what a step over several tokens reads. No torch.

Two counts are told apart everywhere: what lies in memory, and what one step reads. A token alone reads the experts that it is sent
to; a batch reads an expert once for all of its tokens, and every expert that any of them is sent to.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compute.errors import BadInput
from compute.shapes import Matrices, ModelShape


def experts_of(shape: ModelShape) -> Matrices:
    """The experts among a model's matrices. Raises BadInput where there are none."""
    found = [m for m in shape.matrices if m.copies > 1]
    if not found:
        raise BadInput("model", shape.name, "it has no experts", "它没有专家")
    return found[0]


def read_parameters(shape: ModelShape, distinct: float) -> float:
    """Parameters multiplied in a step in which every layer reads `distinct` experts, lm_head included."""
    experts = experts_of(shape)
    return sum(m.loaded for m in shape.matrices if m is not experts) + experts.parameters * experts.layers * distinct


def balance(choices: ArrayLike, probabilities: ArrayLike) -> float:
    """E · Σᵢ fᵢ·Pᵢ (Switch Transformer, Fedus et al. 2021, eq. 4): f, share of the choices that fell on expert i; P, the mean probability
    that the router gave it; both (E), adding up to 1. It is 1 where all are used alike, and E where one expert gets everything."""
    f, p = np.asarray(choices, np.float64), np.asarray(probabilities, np.float64)
    return float(len(f) * (f * p).sum())


def loads(chosen: NDArray[np.integer], experts: int) -> NDArray[np.float64]:
    """Share of the choices that fell on each expert: chosen (N, k) → (experts), adding up to 1."""
    counts = np.bincount(chosen.ravel(), minlength=experts)
    return counts / max(1, counts.sum())


def known(first: NDArray[np.integer], label: NDArray[np.integer]) -> float:
    """How much of the uncertainty about `first` is gone once `label` is known: mutual information over entropy, 0 … 1. Both (N)."""
    table = np.zeros((first.max() + 1, label.max() + 1))
    np.add.at(table, (first, label), 1)
    joint = table / table.sum()
    a, b = joint.sum(1, keepdims=True), joint.sum(0, keepdims=True)
    entropy = -float((a[a > 0] * np.log(a[a > 0])).sum())
    seen = joint > 0
    return float((joint[seen] * np.log(joint[seen] / (a @ b)[seen])).sum()) / entropy if entropy else 0.0


def distinct(masks: NDArray[np.uint8]) -> float:
    """Mean number of experts that the tokens of a row are sent to between them. masks (rows, tokens): bit i is set where the token is sent to
    expert i, of at most 8."""
    return float(np.bitwise_count(np.bitwise_or.reduce(masks, axis=1)).mean())


def masks(chosen: NDArray[np.integer]) -> NDArray[np.uint8]:
    """(N, k) → (N), a bit for each of at most 8 experts."""
    return np.bitwise_or.reduce(np.left_shift(1, chosen.astype(np.int64)), axis=1).astype(np.uint8)
