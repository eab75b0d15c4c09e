"""SmoothQuant: a few activation channels are so large that int8 steps swallow all the others; part of the difficulty is moved
into the weights. Xiao et al. 2023. W8A8 as plain arithmetic; the torch matrix is in w8a8.py. NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compute.errors import BadInput
from compute.quantize.grid import FLOAT16, Floats, Grid, Uniform, quantize

WEIGHTS = Grid(Uniform(8), "channel", FLOAT16)
LARGEST = 127


def factors(largest: Floats, weights: Floats, alpha: float = 0.5) -> Floats:
    """s_j = max|X_j|^α / max|W_j|^(1−α) (eq. 4), by which weight columns are multiplied and inputs divided.

    largest (in), max |x| over calibration text; weights (out, in). 1 where a channel or its column is zero. α = 1 moves all of
    the difficulty into the weights, α = 0 makes all columns of weights equally large. Raises BadInput unless 0 ≤ α ≤ 1.
    """
    if not 0 <= alpha <= 1:
        raise BadInput("alpha", alpha, "it is a share, from 0 to 1", "应在 0 到 1 之间")
    columns = np.abs(weights).max(0)
    known = (largest > 0) & (columns > 0)
    s = np.where(known, largest, 1).astype(np.float64) ** alpha / np.where(known, columns, 1).astype(np.float64) ** (1 - alpha)
    return np.where(known, s, 1).astype(np.float32)


def rounded(x: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Each token by itself, symmetric: x (rows, in) → codes, scales (rows, 1) = max |x| / 127. A token of zeros has scale 0."""
    scales = np.abs(x).max(-1, keepdims=True) / np.float32(LARGEST)
    codes = np.rint(np.divide(x, scales, out=np.zeros_like(x), where=scales > 0))
    return codes.astype(np.int8), scales


def product(x: Floats, weights: Floats) -> Floats:
    """x Wᵀ (rows, out) as W8A8 computes it: integers times integers, then both scales. x (rows, in), weights (out, in)."""
    codes, scales = rounded(np.asarray(x, np.float32))
    made = quantize(weights, WEIGHTS)
    sums = codes.astype(np.int32) @ made.codes.astype(np.int32).T
    return sums.astype(np.float32) * scales * made.steps.scales[:, 0]


def error(x: Floats, weights: Floats, s: Floats | float = 1.0) -> float:
    """‖ŷ − y‖² / ‖y‖² of W8A8 with inputs divided and columns multiplied by s."""
    true = np.asarray(x, np.float64) @ np.asarray(weights, np.float64).T
    made = product(x / np.float32(s), weights * np.float32(s))
    return float(np.square(made - true).sum() / np.square(true).sum())
