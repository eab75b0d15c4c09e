"""Few weights, to look at while they are rounded: four that can be done by hand, and 24 from a normal distribution, one of
which may be an outlier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from compute.quantize.grid import Grid, Uniform, quantize, restore

Preset = Literal["worked", "normal"]
WORKED = (0.12, -0.53, 0.31, 0.90)
COUNT, SPREAD = 24, 0.3
OUTLIER_AT = 20  # the place that an outlier takes


def weights(preset: Preset, seed: int = 0, outlier: float = 0.0) -> tuple[float, ...]:
    """The four, or 24 draws from N(0, 0.3²) to two decimals. outlier: what one of the 24 is instead; 0 for none."""
    if preset == "worked":
        return WORKED
    drawn = np.random.default_rng(seed).normal(0, SPREAD, COUNT).round(2)
    if outlier:
        drawn[OUTLIER_AT] = outlier
    return tuple(drawn.tolist())


@dataclass(frozen=True)
class Group:
    """Weights that share a scale. codes: what is stored for each; restored: what the code stands for; points: every value that
    this group's codes can stand for, ascending; exact_scale: before it was rounded to its own format; zero: the zero point."""

    weights: tuple[float, ...]
    codes: tuple[int, ...]
    restored: tuple[float, ...]
    points: tuple[float, ...]
    scale: float
    exact_scale: float
    zero: int


@dataclass(frozen=True)
class Squeezed:
    """bits: codes, scales and zero points of all groups. relative_error: mean of |ŵ − w| / |w| over the weights that are not 0;
    0 is a point of every grid here, so those that are stay exact. zeros: weights that were not 0 and are now."""

    groups: tuple[Group, ...]
    bits: int
    relative_error: float
    zeros: int

    @property
    def count(self) -> int:
        return sum(len(group.weights) for group in self.groups)

    @property
    def bits_per_weight(self) -> float:
        return self.bits / self.count


def squeeze(values: tuple[float, ...], grid: Grid) -> Squeezed:
    """One row of weights through `compute.quantize.grid`. Raises what it raises."""
    made = quantize(np.array([values], np.float32), grid)
    size = len(values) // made.steps.scales.shape[1]
    restored = made.restored()[0].astype(float).tolist()
    groups = tuple(_group(n, values, made, restored, slice(n * size, (n + 1) * size)) for n in range(len(values) // size))
    changed = [(w, r) for w, r in zip(values, restored) if w != 0]
    errors = [abs(r - w) / abs(w) for w, r in changed]
    return Squeezed(groups, made.bits, sum(errors) / len(errors) if errors else 0.0, sum(r == 0 for _, r in changed))


def _group(n: int, values, made, restored, at: slice) -> Group:
    numbers, part = made.grid.numbers, values[at]
    scale, zero = float(made.steps.scales[0, n]), int(made.steps.zeros[0, n]) if made.steps.zeros is not None else 0
    codes = np.arange(numbers.smallest, numbers.largest + 1) if isinstance(numbers, Uniform) else np.arange(numbers.levels)
    alone = Grid(numbers, "tensor", made.grid.scales)
    steps = type(made.steps)(made.steps.scales[:, n : n + 1], made.steps.zeros[:, n : n + 1] if made.steps.zeros is not None else None)
    points = restore(codes[None].astype(np.int16), steps, alone)[0]
    reach = max(map(abs, part)) if not isinstance(numbers, Uniform) or numbers.symmetric else max(*part, 0) - min(*part, 0)
    return Group(part, tuple(made.codes[0, at].tolist()), tuple(restored[at]), tuple(points.astype(float).tolist()), scale, reach / numbers.largest, zero)
