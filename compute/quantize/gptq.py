"""GPTQ: round one column after the other, and let the columns that are still free make up for the error.
Frantar et al. 2023, algorithm 1; the names W, H, q, E are theirs.

    made = gptq(weights, hessian, grid)
    for step in steps(weights, hessian, grid): …    # the same run, a record a column

What is minimised is the layer's squared output error ‖W x − Ŵ x‖², which is tr(Δ H Δᵀ) / 2 with H = 2/n Σ x xᵀ.
NumPy, float64 inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from compute.errors import BadInput
from compute.quantize.grid import Codes, Floats, Grid, Quantized, Steps, checked, encode, fit, quantize, restore

Array = NDArray[np.float64]
DAMPING = 0.01
COLUMNS = 128


def gptq(
    weights: Floats, hessian: Array, grid: Grid, damping: float = DAMPING, act_order: bool = False, columns: int = COLUMNS
) -> Quantized:
    """weights (out, in), hessian (in, in).

    damping: share of the mean diagonal that is added to the diagonal (the paper's step 3). act_order: columns by falling diagonal.
    columns: so many are rounded before the rest is updated in one product (its step 2); rounded up to whole groups; changes nothing
    but rounding in float64.

    The scales of a group are fitted when its first column is reached, to weights that already carry the errors of the columns
    before. Scales of a row, of the matrix, or with a second level (NVFP4, double) are fitted to the weights as they came, and so
    are groups under act_order, whose columns are not neighbours in the order (the paper's code calls these static groups).
    A channel that calibration never saw is rounded to nearest and takes no part.

    Raises BadInput as `quantize` does, for a Hessian of another shape or not finite, and where it stays singular; for a negative
    damping and fewer than one column.
    """
    if columns < 1:
        raise BadInput("columns", columns, "it must be at least 1", "至少为 1")
    run = _begin(weights, hessian, grid, damping, act_order)
    width, group = run.w.shape[1], run.group or 1
    size = -(-columns // group) * group
    for first in range(0, width, size):
        last = min(first + size, width)
        errors = [run.round(at, last) for at in range(first, last)]
        run.w[:, last:] -= np.stack(errors, 1) @ run.factor[first:last, last:]
    return run.made()


@dataclass(frozen=True)
class Step:
    """One column rounded. Vectors (out) unless said otherwise."""

    column: int
    scales: Floats  # of its group in every row, or one for all
    before: Array  # the weights as they stood when it was reached
    codes: Codes
    restored: Floats
    error: Array  # (before − restored) / √[H⁻¹]ⱼⱼ of the columns still free
    later: NDArray[np.int64]  # the columns that are still free, in the order of their turn
    spread: Array  # (out, later): added to each of them
    output_error: float  # ½ tr(Δ H Δᵀ): mean over tokens of ‖Δ x‖², with the weights as they stand now
    plain_error: float  # the same columns rounded to nearest, all others as they came


def steps(
    weights: Floats, hessian: Array, grid: Grid, damping: float = DAMPING, act_order: bool = False
) -> Iterator[Step]:
    """`gptq`, told column by column. A record holds out · in numbers at most: for small matrices."""
    run = _begin(weights, hessian, grid, damping, act_order)
    came = run.w.copy()
    hessian = np.asarray(hessian, np.float64)[np.ix_(run.order, run.order)]
    plain, plainly = quantize(weights, grid).restored()[:, run.order], came.copy()
    for at, column in enumerate(run.order):
        before, free = run.w[:, at].copy(), run.w[:, at + 1 :].copy()
        error = run.round(at, len(run.order))
        plainly[:, at] = plain[:, at]
        group = column // run.group if run.group else 0
        yield Step(
            int(column), run.scales[:, group].copy(), before, run.codes[:, column].copy(), run.w[:, at].astype(np.float32), error,
            run.order[at + 1 :], run.w[:, at + 1 :] - free, output_error(run.w - came, hessian), output_error(plainly - came, hessian),
        )  # fmt: skip


def output_error(delta: NDArray, hessian: Array) -> float:
    """½ tr(Δ H Δᵀ), the mean over tokens of ‖Δ x‖². delta (out, in): restored less true weights."""
    delta = np.asarray(delta, np.float64)
    return float(((delta @ hessian) * delta).sum() / 2)


# ---- one run


@dataclass
class _Run:
    """w (out, in): columns in the order of their turn; rounded ones hold what they restore to. factor: H⁻¹ = factorᵀ factor, upper
    triangular. group: columns of a group, None where all share; fitted: their scales are not touched again."""

    grid: Grid
    w: Array
    factor: Array
    order: NDArray[np.int64]
    codes: Codes
    scales: Floats
    zeros: Codes | None
    group: int | None
    fitted: bool

    def round(self, at: int, last: int) -> Array:
        """Rounds the column whose turn it is and lets those before `last` make up for it. Returns E (out)."""
        column = self.order[at]
        if not self.fitted and column % self.group == 0:
            self.fit(at)
        steps, one = self.steps(column), replace(self.grid, block="channel")
        before = self.w[:, at].astype(np.float32)[:, None]
        code = encode(before, steps, one)
        self.codes[:, column] = code[:, 0]
        restored = restore(code, steps, one)[:, 0]
        error = (self.w[:, at] - restored) / self.factor[at, at]
        self.w[:, at] = restored
        self.w[:, at + 1 : last] -= np.outer(error, self.factor[at, at + 1 : last])
        return error

    def fit(self, at: int) -> None:
        group = self.order[at] // self.group
        made = fit(self.w[:, at : at + self.group].astype(np.float32), replace(self.grid, block="channel"))
        self.scales[:, group] = made.scales[:, 0]
        if self.zeros is not None:
            self.zeros[:, group] = made.zeros[:, 0]

    def steps(self, column: int) -> Steps:
        group = column // self.group if self.group else 0
        zeros = None if self.zeros is None else self.zeros[:, group, None]
        return Steps(self.scales[:, group, None], zeros)

    def made(self) -> Quantized:
        return Quantized(self.grid, self.codes, Steps(self.scales, self.zeros))


def _begin(weights: Floats, hessian: Array, grid: Grid, damping: float, act_order: bool) -> _Run:
    weights = checked(weights)
    hessian = _hessian(hessian, weights.shape[1])
    if not 0 <= damping < np.inf:
        raise BadInput("damping", damping, "it is a share of the mean diagonal, at least 0", "它是对角线平均值的一个比例，至少为 0")
    order = np.argsort(-np.diag(hessian), kind="stable") if act_order else np.arange(weights.shape[1])
    group = grid.block if isinstance(grid.block, int) else None
    found = fit(weights, grid)  # of groups that are fitted when reached, only the shape remains
    fitted = group is None or act_order or grid.scales.tensor_bits > 0
    return _Run(
        grid, np.asfortranarray(weights[:, order], np.float64), _factor(hessian[np.ix_(order, order)], damping), order,
        np.zeros(weights.shape, np.int16), found.scales.copy(), None if found.zeros is None else found.zeros.copy(), group, fitted,
    )  # fmt: skip


def _hessian(hessian: Array, width: int) -> Array:
    hessian = np.asarray(hessian, np.float64)
    if hessian.shape != (width, width) or not np.isfinite(hessian).all():
        raise BadInput("hessian", list(hessian.shape), f"a finite matrix ({width}, {width}) is needed", f"需要有限数的矩阵 ({width}, {width})")
    return hessian


def _factor(hessian: Array, damping: float) -> Array:
    """Upper triangular, factorᵀ factor = (H + damping · mean diagonal · I)⁻¹."""
    diagonal = np.diag(hessian)
    dead = diagonal <= 0
    damped = hessian + np.diag(np.where(dead, 1.0, damping * diagonal[~dead].mean() if not dead.all() else 0.0))
    try:
        pivots = np.diag(np.linalg.cholesky(damped)) ** 2
    except np.linalg.LinAlgError:
        pivots = np.zeros(1)
    if pivots.min() <= len(diagonal) * np.finfo(np.float64).eps * max(np.diag(damped).max(), 0):
        raise BadInput("hessian", f"damping {damping:g}", "it is singular; take more calibration text or more damping", "它是奇异的；请用更长的校准文本，或加大阻尼")
    return np.linalg.cholesky(np.linalg.inv(damped)).T
