"""A row of a real model's weights on a grid, and what the same grid does to the whole matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from components import Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Toggle
from components.text import Words, amount, digits
from compute.quantity import Quantity
from compute.quantize import matrices
from compute.quantize.grid import Grid, Uniform
from compute.quantize.matrices import DRAWN, DRAWN_SIZE, DRAWN_SPREAD, MODELS, NAMES, SERVED, Row, Whole

BLOCKS = ("tensor", "channel", 128, 64, 32)
STAND_IN = "mini-256"
SHOWN = 1024  # weights of a row that are drawn


@parameters
class Params:
    """matrix: by the engine's name. row: one that the matrix lacks means its last. block: weights that share a scale."""

    model: Literal["mini-256", "mini-128", "mini-64", "smollm2-135m", "normal-4096"] = "mini-256"
    matrix: Literal[NAMES] = "3.down"
    row: Annotated[int, Field(ge=0, lt=DRAWN_SIZE)] = 157
    bits: Annotated[int, Field(ge=2, le=8)] = 4
    block: Literal["tensor", "channel"] | Annotated[int, Field(ge=1, le=DRAWN_SIZE)] = "channel"
    symmetric: bool = True


@dataclass(frozen=True)
class Result:
    """params: what is shown; `asked` is otherwise while a model's weights have not come yet. number: of the row."""

    params: Params
    asked: Params
    number: int
    row: Row
    whole: Whole
    mark: Literal["live", "computed"]

    @property
    def zero_share(self) -> float:
        return self.whole.zeros / self.whole.weights


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    """Until SmolLM2's weights are here, our own model stands in, and the picture says so."""
    shown = params if answer is not None or params.model != SERVED else replace(params, model=STAND_IN)
    grid = Grid(Uniform(shown.bits, shown.symmetric), shown.block)
    source = matrices.received(answer) if answer is not None else matrices.source(shown.model, shown.matrix)
    whole = matrices.whole(source, grid) if answer is not None else _whole(shown.model, shown.matrix, grid)
    number = min(shown.row, source.rows - 1)
    return Result(shown, params, number, matrices.row(source, number, grid), whole, "computed" if answer is None else "live")


@lru_cache(256)
def _whole(model: str, matrix: str, grid: Grid) -> Whole:
    """Kept apart from the row: that moves more often, and 16.7 million weights take a good part of a second."""
    return matrices.whole(matrices.source(model, matrix), grid)


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, p = scene.words, result.params
    shown = min(SHOWN, result.whole.width)
    up, across = result.whole.errors.shape
    said = words("simplified", up=up, across=across, each=f"{result.whole.weights // (up * across):,}")
    if shown < result.whole.width:
        said += words("simplified_shown", shown=f"{shown:,}", of=f"{result.whole.width:,}")
    if p.model == SERVED:
        said += words("simplified_served")
    if p.model == DRAWN:
        said += words("simplified_drawn", spread=f"{DRAWN_SPREAD:g}")
    return View(
        picture=Stage(_stage(result, scene), height=640, picks=("row",)),
        readouts=_readouts(result, scene.before, words, scene.lang),
        sentence=_sentence(result, words, scene.lang),
        rows=_rows(result),
        papers=_papers(result),
        simplified=said,
    )


def _same(before: Result | None, result: Result, *fields: str) -> bool:
    return before is not None and before.params != result.params and all(getattr(before.params, f) == getattr(result.params, f) for f in fields)


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    row, whole, before, words = result.row, result.whole, scene.before, scene.words
    shown = min(SHOWN, whole.width)
    numbers = Uniform(result.params.bits, result.params.symmetric)
    same_row = _same(before, result, "model", "matrix", "row")
    same_codes = _same(before, result, "model", "matrix", "bits", "symmetric") and before.whole.codes != whole.codes
    share = np.array(whole.codes) / whole.weights
    return {
        "weights": _short(row.weights[:shown]), "restored": _short(row.restored[:shown]),
        "old": _short(before.row.restored[:shown] - before.row.weights[:shown]) if same_row else None,
        "zeroed": row.zeros, "blocks": _blocks(row, shown, numbers), "levels": numbers.levels,
        "codes": {"first": numbers.smallest, "shares": _short(share), "old": _short(np.array(before.whole.codes) / before.whole.weights) if same_codes else None,
                  "zero": 0 if numbers.symmetric else None},
        "errors": [_short(line, 3) for line in whole.errors], "place": (result.number + 0.5) / whole.rows, "worst": whole.worst,
        "says": {
            "row": f"{result.number:,}", "matrix": _name(result, words), "shown": f"{shown:,}", "width": f"{whole.width:,}", "rows": f"{whole.rows:,}",
            "weights": f"{whole.weights:,}", "zeros": amount(result.zero_share, "ratio", scene.lang), "part": words("part", shown=f"{shown:,}") if shown < whole.width else "",
        },
        "waiting": result.asked != result.params,
    }  # fmt: skip


def _short(values, significant: int = 4) -> list[float]:
    """For the way to the browser."""
    return [float(f"{v:.{significant}g}") for v in np.asarray(values).tolist()]


def _blocks(row: Row, shown: int, numbers: Uniform) -> list[list[float]]:
    """[first column, end, smallest point, step] of each stretch with a scale of its own."""
    change = np.flatnonzero((np.diff(row.scales[:shown]) != 0) | (np.diff(row.zero_points[:shown]) != 0)) + 1
    starts = [0, *change.tolist()]
    return [
        [start, end, float((numbers.smallest - row.zero_points[start]) * row.scales[start]), float(row.scales[start])]
        for start, end in zip(starts, [*starts[1:], shown])
    ]


def _name(result: Result, words: Words) -> str:
    p = result.params
    return words("drawn") if p.model == DRAWN else f"{p.model} {p.matrix}"


def _readouts(result: Result, before: Result | None, words: Words, lang: str) -> tuple[Readout, ...]:
    def was(of) -> str:
        return words("before", value=of(before)) if before is not None and of(before) != of(result) else ""

    def bits(r: Result) -> str:
        return digits(r.whole.bits_per_weight)

    def row(r: Result) -> str:
        return amount(r.row.relative_rms, "ratio", lang)

    def matrix(r: Result) -> str:
        return amount(r.whole.relative_rms, "ratio", lang)

    def zeros(r: Result) -> str:
        return amount(r.zero_share, "ratio", lang)

    def peak(r: Result) -> str:
        return digits(r.row.peak)

    return (
        Readout(words("readout.bits"), bits(result), words("unit.bits"), was(bits), words("note.bits", over=digits(result.whole.bits_per_weight - result.params.bits))),
        Readout(words("readout.peak"), peak(result), words("unit.times"), was(peak), words("note.peak", most=digits(result.whole.peak), row=f"{result.whole.peak_row:,}")),
        Readout(words("readout.row"), row(result).removesuffix("%"), "%", was(row), words("note.row", zeros=f"{result.row.zeros:,}", width=f"{result.whole.width:,}")),
        Readout(words("readout.matrix"), matrix(result).removesuffix("%"), "%", was(matrix), words("note.matrix")),
        Readout(words("readout.zeros"), zeros(result).removesuffix("%"), "%", was(zeros), words("note.zeros", zeros=f"{result.whole.zeros:,}")),
    )  # fmt: skip


def _sentence(result: Result, words: Words, lang: str) -> str:
    p, row, whole = result.params, result.row, result.whole
    share = words("share.group", n=p.block) if isinstance(p.block, int) else words(f"share.{p.block}")
    return words(
        "sentence", row=f"{result.number:,}", matrix=_name(result, words), peak=digits(row.peak), bits=p.bits, share=share, zeros=f"{row.zeros:,}",
        width=f"{whole.width:,}", error=amount(row.relative_rms, "ratio", lang), all=amount(whole.relative_rms, "ratio", lang), each=digits(whole.bits_per_weight),
    )  # fmt: skip


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    row, p = result.row, result.params
    shown = min(SHOWN, result.whole.width)
    columns = zip(*(of[:shown].tolist() for of in (row.weights, row.codes, row.scales, row.zero_points, row.restored)))
    first = Uniform(p.bits, p.symmetric).smallest
    return tuple(
        {"of": "row", "row": result.number, "column": i, "weight": w, "code": q, "scale": s, "zero_point": z, "restored": v} for i, (w, q, s, z, v) in enumerate(columns)
    ) + tuple({"of": "matrix", "code": code, "weights": n} for code, n in enumerate(result.whole.codes, first))


def _papers(result: Result) -> tuple[Quantity, ...]:
    p, row, whole = result.params, result.row, result.whole
    ours = {"weights": "SmolLM2-135M-Instruct, its published Q4_1 file, as float16"} if p.model == SERVED else {"weights": f"our checkpoint {p.model}, float32"}
    origin = {"weights": f"N(0, {DRAWN_SPREAD}²), {DRAWN_SIZE} × {DRAWN_SIZE}", "seed": 0} if p.model == DRAWN else ours | {"matrix": p.matrix}
    given = origin | {"bits": p.bits, "block": p.block, "symmetric": p.symmetric, "scale": "float16", "codes": "round to nearest"}
    zeros = "" if p.symmetric else " + blocks × bits of a zero point"
    return (
        Quantity(whole.bits_per_weight, "bit", "computed", f"(weights × bits + blocks × 16{zeros}) / weights", {"weights": whole.weights, "bits in all": whole.bits}, says=SAYS["bits"]),
        Quantity(row.peak, "×", "computed", "max |w| / √(mean w²)", origin | {"row": result.number}, says=SAYS["peak"]),
        Quantity(whole.peak, "×", "computed", "largest of all rows: max |w| / √(mean w²)", origin | {"row": whole.peak_row}, says=SAYS["most"]),
        Quantity(row.relative_rms, "ratio", "computed", "√(Σ(ŵ − w)² / Σw²)", given | {"row": result.number}, says=SAYS["row"]),
        Quantity(row.zeros, "count", "computed", "weights with ŵ = 0 and w ≠ 0", given | {"row": result.number}, says=SAYS["row_zeros"]),
        Quantity(whole.relative_rms, "ratio", "computed", "√(Σ(ŵ − w)² / Σw²)", given, says=SAYS["matrix"]),
        Quantity(result.zero_share, "ratio", "computed", "weights with ŵ = 0 and w ≠ 0 / weights", given, says=SAYS["zeros"]),
    )  # fmt: skip


SAYS = {
    "bits": {"zh": "每个权重占的位数，连同缩放因子（和零点）", "en": "bits per weight, scales (and zero points) included"},
    "peak": {"zh": "这一行最大的 |w| 是均方根的几倍", "en": "largest |w| of the row over its RMS"},
    "most": {"zh": "所有行里最大的这个倍数", "en": "the largest such ratio of any row"},
    "row": {"zh": "这一行的相对均方根误差", "en": "relative RMS error of the row"},
    "row_zeros": {"zh": "这一行里被挤成 0 的权重", "en": "weights of the row squeezed to 0"},
    "matrix": {"zh": "整个矩阵的相对均方根误差", "en": "relative RMS error of the matrix"},
    "zeros": {"zh": "整个矩阵里被挤成 0 的比例", "en": "share of the matrix squeezed to 0"},
}


# ---- controls


def _real(params: Params) -> bool:
    return params.model != DRAWN


HEIGHTS = sorted({matrices.rows(model, f"0.{part}") for model in (*MODELS, SERVED, DRAWN) for part in matrices.PARTS})

WIDGET = Widget(
    id="real-row",
    Params=Params,
    controls=(
        Choice("block", lambda: BLOCKS),
        Range("bits", 2, 8),
        Choice("matrix", lambda: NAMES, lambda id: id, when=_real),
        *(Range("row", 0, n - 1, when=lambda p, n=n: matrices.rows(p.model, p.matrix) == n) for n in HEIGHTS),
        Choice("model", lambda: (*MODELS, SERVED, DRAWN), lambda id: id),
        Toggle("symmetric"),
    ),
    run=run,
    draw=draw,
    live=Live(
        "quantize.matrix", lambda p: {"model": p.model, "matrix": p.matrix}, when=lambda p: p.model == SERVED, about=lambda p: (p.model, p.matrix),
    ),
)  # fmt: skip
