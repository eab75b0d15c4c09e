"""GPTQ on a few weights of a real matrix: a column is rounded, the columns still free make up for its error, and so on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Stops, Toggle
from components.text import Words, digits
from compute import precompute
from compute.measures import layers
from compute.measures.layers import BITS, COLUMNS, MATRICES, MODEL, ROWS
from compute.quantize import gptq
from compute.quantize.grid import Grid, Uniform, quantize
from compute.quantity import Quantity, Source

Matrix = Literal[MATRICES]
WEAK = 0.15  # mean |correlation| of inputs of which little can be made up for
DAMPINGS = (0.0, 0.001, 0.01, 0.1, 1.0)


@parameters
class Params:
    """inputs: the twelve input channels that go together most strongly; the first twelve; or the former as if nothing went
    together. row: which of the eight is followed. damping: share of the Hessian's mean diagonal that is added to it."""

    matrix: Matrix = "1.out"
    bits: Annotated[int, Field(ge=min(BITS), le=max(BITS))] = 3
    inputs: Literal["linked", "neighbours", "diagonal"] = "linked"
    act_order: bool = False
    row: Annotated[int, Field(ge=1, le=ROWS)] = 4
    damping: Annotated[float, Field(ge=0, le=1)] = layers.DAMPING


@dataclass(frozen=True)
class Result:
    """Weights in steps of their row's grid, (rows, columns), columns in the order of their turn.

    stands[k]: all weights after k columns; errors and plain_errors: relative output error after each half of a column's turn
    (nothing yet, then rounded and made up for, again and again), by GPTQ and when rounded as they came."""

    params: Params
    rows: tuple[int, ...]  # of the matrix
    columns: tuple[int, ...]  # input channels
    levels: int  # the largest code
    stands: tuple[tuple[tuple[float, ...], ...], ...]
    plain: tuple[tuple[float, ...], ...]
    errors: tuple[float, ...]
    plain_errors: tuple[float, ...]
    weight_error: float
    plain_weight_error: float
    strength: float  # mean |correlation| between two of the inputs
    shape: tuple[int, int]
    whole: Mapping[str, float]  # the whole matrix at these bits
    conditions: Mapping[str, Any]
    mark: Literal["computed"] = "computed"

    @property
    def came(self) -> tuple[tuple[float, ...], ...]:
        return self.stands[0]

    @property
    def ratio(self) -> float:
        return self.errors[-1] / self.plain_errors[-1]

    @property
    def elsewhere(self) -> int:
        """Weights that end on another level than the one nearest to them."""
        return int((np.rint(self.stands[-1]) != np.rint(self.plain)).sum())

    @property
    def whole_output(self) -> float:
        return self.whole["gptq_order_output" if self.params.act_order else "gptq_output"]


def run(params: Params) -> Result:
    kept = precompute.recorded(f"quantize.layers.{params.matrix}.gptq_ratio")
    part = kept["neighbours" if params.inputs == "neighbours" else "linked"]
    weights, hessian = np.array(part["weights"], np.float32), np.array(part["hessian"])
    if params.inputs == "diagonal":
        hessian = np.diag(np.diag(hessian))
    grid = Grid(Uniform(params.bits), "channel")
    rounded = quantize(weights, grid)
    told = list(gptq.steps(weights, hessian, grid, params.damping, params.act_order))
    order, nothing = [step.column for step in told], np.zeros_like(hessian[0])

    now, plain = weights.astype(np.float64), weights.astype(np.float64)
    stands, errors, plain_errors = [now.copy()], [0.0], [0.0]
    for step in told:
        now[:, step.column] = step.restored
        plain[:, step.column] = rounded.restored()[:, step.column]
        halves = [now.copy(), now]
        now[:, step.later] += step.spread
        for half in halves[: 1 + (len(step.later) > 0)]:
            errors.append(layers.relative_error(half - weights, weights, hessian))
            plain_errors.append(layers.relative_error(plain - weights, weights, hessian))
        stands.append(now.copy())

    scales = rounded.steps.scales.astype(np.float64)
    strength = np.abs(layers.correlation(hessian))[~np.eye(COLUMNS, dtype=bool)].mean()
    return Result(
        params, tuple(kept["rows"]), tuple(part["columns"][c] for c in order), grid.numbers.largest,
        tuple(_tuples(stand[:, order] / scales) for stand in stands), _tuples(plain[:, order] / scales), tuple(errors), tuple(plain_errors),
        layers.weight_error(now - weights, weights), layers.weight_error(plain - weights, weights), float(strength), tuple(kept["shape"]),
        next(row for row in kept["whole"] if row["bits"] == params.bits), kept["conditions"],
    )  # fmt: skip


def _tuples(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in values.tolist())


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words = scene.words
    return View(
        picture=Stage(_stage(result), steps=len(result.errors), height=640, start=_opening(result), picks=("row",)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, words),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified", rows=ROWS, all_rows=result.shape[0], columns=COLUMNS, all_columns=result.shape[1], tokens=f"{result.conditions['tokens']:,}"),
        derivation=words("derivation", damping=f"{result.params.damping:g}"),
    )


def _stage(result: Result) -> dict[str, Any]:
    return {
        "stands": [[[round(w, 3) for w in row] for row in stand] for stand in result.stands], "plain": [[round(w) for w in row] for row in result.plain],
        "errors": result.errors, "plain_errors": result.plain_errors, "columns": result.columns, "rows": result.rows, "levels": result.levels,
        "row": result.params.row - 1, "matrix": result.params.matrix, "diagonal": result.params.inputs == "diagonal",
    }  # fmt: skip


def _opening(result: Result) -> int:
    """The turn whose error moves another weight of the followed row farthest, when it has been made up for."""
    row = [np.array(stand[result.params.row - 1]) for stand in result.stands]
    moved = [np.abs(after - before)[k + 1 :].max(initial=0) for k, (before, after) in enumerate(zip(row, row[1:]))]
    return 2 * int(np.argmax(moved[: COLUMNS // 2])) + 2


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, before = scene.words, scene.before
    was = f"{before.ratio:.2f}" if before is not None else ""
    whole = result.whole_output / result.whole["rtn_output"]
    return (
        Readout(words("readout.output"), f"{_percent(result.errors[-1])} | {_percent(result.plain_errors[-1])}", "%", "", words("readout.output_note")),
        Readout(words("readout.ratio"), f"×{result.ratio:.2f}", "", words("readout.before", value=f"×{was}") if was and was != f"{result.ratio:.2f}" else "",
                words("readout.ratio_note")),
        Readout(words("readout.weight"), f"{_percent(result.weight_error)} | {_percent(result.plain_weight_error)}", "%", "",
                words("readout.weight_note", n=result.elsewhere, all=ROWS * COLUMNS)),
        Readout(words("readout.whole"), f"×{whole:.2f}", "", "",
                words("readout.whole_note", gptq=_percent(result.whole_output), rtn=_percent(result.whole["rtn_output"]), rows=result.shape[0], columns=result.shape[1])),
    )  # fmt: skip


def _percent(ratio: float) -> str:
    return digits(100 * ratio)


def _sentence(result: Result, words: Words) -> str:
    values = {
        "matrix": result.params.matrix, "bits": result.params.bits, "gptq": _percent(result.errors[-1]), "rtn": _percent(result.plain_errors[-1]), "ratio": f"{result.ratio:.2f}",
        "gptq_weight": _percent(result.weight_error), "rtn_weight": _percent(result.plain_weight_error), "strength": f"{result.strength:.2f}", "n": result.elsewhere, "all": ROWS * COLUMNS,
    }  # fmt: skip
    if result.params.inputs == "diagonal":
        return words("sentence_diagonal", **values)
    if result.ratio > 0.995 and result.elsewhere:
        return words("sentence_worse", **values, whole=f"{result.whole_output / result.whole['rtn_output']:.2f}")
    return words("sentence" if result.strength > WEAK and result.elsewhere else "sentence_weak", **values)


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "turn": turn + 1, "input_channel": channel, "row": row, "weight_steps": result.came[i][turn], "before_rounding_steps": result.stands[turn][i][turn],
            "gptq_level": round(result.stands[-1][i][turn]), "nearest_level": round(result.plain[i][turn]),
            "gptq_output_error": result.errors[min(2 * turn + 2, len(result.errors) - 1)], "rounding_output_error": result.plain_errors[2 * turn + 1],
        }
        for turn, channel in enumerate(result.columns) for i, row in enumerate(result.rows)
    )  # fmt: skip


PAPER = Source("GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", "https://arxiv.org/abs/2210.17323", "algorithm 1", "2026-11-29")


def _papers(result: Result) -> tuple[Quantity, ...]:
    params = result.params
    given = {"matrix": params.matrix, "rows": list(result.rows), "input_channels": list(result.columns), "bits": params.bits, "damping": params.damping, "act_order": params.act_order}
    formula = "‖(W − Ŵ)X‖ / ‖WX‖ = √(tr(ΔW H ΔWᵀ) / tr(W H Wᵀ)), H = 2/n · XXᵀ"
    around = dict(result.conditions) | {"matrix": params.matrix, "bits": params.bits, "block": "channel", "damping": layers.DAMPING, "act_order": params.act_order}
    whole = "‖(W − Ŵ)X‖ / ‖WX‖"
    return (
        Quantity(result.errors[-1], "ratio", "computed", formula, given, PAPER, says={"zh": "GPTQ：这一小块的输出误差", "en": "GPTQ: output error of this part"}),
        Quantity(result.plain_errors[-1], "ratio", "computed", formula, given, says={"zh": "直接舍入：这一小块的输出误差", "en": "rounding: output error of this part"}),
        Quantity(result.weight_error, "ratio", "computed", "‖W − Ŵ‖ / ‖W‖", given, says={"zh": "GPTQ：这一小块的权重误差", "en": "GPTQ: weight error of this part"}),
        Quantity(result.plain_weight_error, "ratio", "computed", "‖W − Ŵ‖ / ‖W‖", given, says={"zh": "直接舍入：这一小块的权重误差", "en": "rounding: weight error of this part"}),
        Quantity(result.whole_output, "ratio", "measured", whole, {}, None, around, says={"zh": "GPTQ：整个矩阵的输出误差", "en": "GPTQ: output error of the whole matrix"}),
        Quantity(result.whole["rtn_output"], "ratio", "measured", whole, {}, None, around, says={"zh": "直接舍入：整个矩阵的输出误差", "en": "rounding: output error of the whole matrix"}),
    )  # fmt: skip


def _nearer(result: Result) -> str:
    return "farther" if result.weight_error > result.plain_weight_error else "nearer"


WIDGET = Widget(
    id="gptq-stepper",
    Params=Params,
    controls=(
        Choice("inputs", lambda: ("linked", "neighbours", "diagonal")), Choice("bits", lambda: BITS, name=str), Choice("matrix", lambda: MATRICES, name=lambda id: id),
        Range("row", 1, ROWS), Toggle("act_order"), Stops("damping", DAMPINGS, show=lambda v: f"{v:g}"),
    ),
    shown=4,
    run=run,
    draw=draw,
    guesses={
        "weights": Guess(
            truth=lambda result: Quantity(result.weight_error / result.plain_weight_error, "×", "computed", "‖W − Ŵ_GPTQ‖ / ‖W − Ŵ_RTN‖"),
            choices=("nearer", "same", "farther"), right=_nearer,
        )
    },
)  # fmt: skip
