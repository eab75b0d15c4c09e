"""AWQ: the few input channels with large activations matter most, so their weights are made larger before rounding, and what
comes in smaller. Lin et al. 2024, §3.2. NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compute.quantize.grid import Floats, Grid, quantize

POINTS = 21  # of the grid for β, 0 and 1 included


@dataclass(frozen=True)
class Found:
    """scales (in): s; errors: of every β tried, mean over tokens of ‖Δ x‖²; β = 0 is plain rounding."""

    beta: float
    scales: Floats
    errors: tuple[float, ...]


def scales(mean: Floats, beta: float) -> Floats:
    """s = mean|x|^β (eq. 5; their α), around 1: divided by √(max s · min s). mean (in); a channel that was never active counts as the
    least active one."""
    active = mean[mean > 0]
    s = np.maximum(mean, active.min() if len(active) else 1.0).astype(np.float64) ** beta
    return (s / np.sqrt(s.max() * s.min())).astype(np.float32)


def search(
    weights: Floats, mean: Floats, sample: Floats, grid: Grid, points: int = POINTS, check: Callable[[], None] = lambda: None
) -> Found:
    """The β in [0, 1] whose restored weights, Q(W s) / s, give the smallest output error on the sample.

    weights (out, in); mean (in), of |x|; sample (rows, in) inputs. Raises BadInput as `quantize` does. check: called before each.
    """
    betas = np.linspace(0, 1, points)
    errors = []
    for beta in betas:
        check()
        s = scales(mean, beta)
        delta = quantize(weights * s, grid).restored() / s - weights
        errors.append(float(np.square(sample @ delta.T, dtype=np.float64).sum(-1).mean()))
    best = int(np.argmin(errors))
    return Found(float(betas[best]), scales(mean, betas[best]), tuple(errors))
