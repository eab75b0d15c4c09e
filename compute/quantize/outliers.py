"""Channels of activations that are far larger than the rest: found in a model, or planted into one. NumPy.

Large models have them, always the same few channels (Dettmers et al. 2022, LLM.int8, §4.1); ours are too small. A planted model
computes the same function with such channels before its matrices, so that what they do to int8 can be seen; whoever shows one
says that they are planted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compute.errors import BadInput
from compute.quantize.grid import Floats
from compute.quantize.rescale import NORMED, rescaled

if TYPE_CHECKING:
    from compute.engine.model import Weights

FACTOR = 64
COUNT = 4
RATIO = 6.0


@dataclass(frozen=True)
class Outlier:
    """largest: max |x| of the channel; ratio: to the median channel's."""

    channel: int
    largest: float
    ratio: float


def found(largest: Floats, ratio: float = RATIO) -> list[Outlier]:
    """Channels whose max |x| is at least `ratio` times the median channel's, the largest first. largest (in)."""
    median = float(np.median(largest))
    if median == 0:
        return []
    order = np.argsort(-largest, kind="stable")
    return [Outlier(int(j), float(largest[j]), float(largest[j]) / median) for j in order if largest[j] >= ratio * median]


def planted_channels(width: int, count: int = COUNT, seed: int = 0) -> list[int]:
    """The same for every layer, as in large models. Raises BadInput unless 1 ≤ count ≤ width."""
    if not 1 <= count <= width:
        raise BadInput("count", count, f"there are {width} channels", f"共有 {width} 个通道")
    return sorted(map(int, np.random.default_rng(seed).choice(width, count, replace=False)))


def plant(weights: Weights, *, factor: float = FACTOR, count: int = COUNT, seed: int = 0) -> Weights:
    """The same function; `count` input channels of every qkv and gate_up are `factor` times larger: the norm's scale × factor, the
    matrix's columns / factor. With a power of two not even the last bit of a result changes in float32."""
    width = weights.config.hidden
    s = np.ones(width, np.float32)
    s[planted_channels(width, count, seed)] = 1 / factor
    return rescaled(weights, {f"{n}.{name}": s for n in range(len(weights.layers)) for name in NORMED})
