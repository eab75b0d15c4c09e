"""The clock against whole engines: what it predicts for every published run, and by how much it is off.

The runs are those of data/measured-public.toml. None had a part in the fit (compute/calibrate.py reads kernels only). A row that the
published table gives several times, for several releases of one engine, counts each time: n counts rows, of which some tell the same twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import log
from typing import Any, Literal

import numpy as np

from compute import facts
from compute.calibrated import Error, Precision, ideal, line, rates
from compute.quantity import Source
from compute.shapes import ModelShape

PRECISIONS: dict[str, Precision] = {"fp16": "bf16", "bf16": "bf16", "fp8": "fp8"}
Kind = Literal["dense", "ungrouped", "experts"]
"""dense: every weight works on every token. ungrouped: query heads share KV heads, and the engine of the day read the KV once for each
query head all the same (data/measured-public.toml says where). experts: a router picks some of many."""
FEW = 6  # rows that an error may rest on


@dataclass(frozen=True)
class Judgement:
    """One published run. published, ideal, calibrated: generated token/s of the whole batch, or seconds to the first token."""

    what: Literal["throughput", "first_token"]
    engine: str
    model: str
    chip: str
    precision: Precision
    batch: int
    tensor_parallel: int
    prompt: int
    output: int
    published: float
    ideal: float
    calibrated: float
    source: Source
    kind: Kind

    @property
    def error(self) -> float:
        """Predicted speed over published speed, minus 1; the speed of a first token is one over its seconds. Above 0: too fast."""
        return self._speed(self.calibrated)

    @property
    def ideal_error(self) -> float:
        return self._speed(self.ideal)

    def _speed(self, predicted: float) -> float:
        return (predicted / self.published if self.what == "throughput" else self.published / predicted) - 1


def kind(shape: ModelShape) -> Kind:
    return "experts" if any(m.copies > m.used for m in shape.matrices) else "dense"


@cache
@facts.made_of("measured-public.toml")
def judgements() -> tuple[Judgement, ...]:
    data = facts.read_toml(facts.DATA / "measured-public.toml")
    made = []
    for what in ("throughput", "first_token"):
        for row in data[what]:
            precision, cards = PRECISIONS[row["dtype"]], row.get("tensor_parallel", 1)
            output = row.get("output_tokens", 1)
            bound = ideal(row["model"], row["chip"], precision, cards)
            real = replace(bound, rates=rates(bound.chip, precision))
            predicted = [line(clock, row["batch"], row["input_tokens"], output) for clock in (bound, real)]
            told = [each.tokens_per_second if what == "throughput" else each.first_token_seconds for each in predicted]
            s = data["sources"][row["source"]]
            source = Source(s["title"], s["url"].format(release=row["release"]), s.get("where", ""), s["read_on"], "self-reported" if s.get("self_reported") else "")
            made.append(Judgement(
                what, f"{s['engine']} {row['release']}", row["model"], row["chip"], precision, row["batch"], cards, row["input_tokens"], output,
                row["tokens_per_s"] if what == "throughput" else row["seconds"], *told, source, "ungrouped" if row.get("ungrouped") else kind(bound.shape),
            ))  # fmt: skip
    return tuple(made)


@dataclass(frozen=True)
class Summary:
    """Of |error| over rows; bias: the mean with its sign; worst: the largest, signed."""

    n: int
    mean: float
    bias: float
    worst: float
    ideal_mean: float


def summary(rows: Iterable[Judgement]) -> Summary | None:
    """None of no rows."""
    if not (rows := list(rows)):
        return None
    off = np.array([row.error for row in rows])
    ideal_off = np.array([row.ideal_error for row in rows])
    return Summary(len(rows), float(np.abs(off).mean()), float(off.mean()), float(off[np.abs(off).argmax()]), float(np.abs(ideal_off).mean()))


@cache
def expected(model_kind: Kind, chip_class: str, precision: Precision, several: bool = False) -> Error | None:
    """What to print beside a calibrated throughput: the error on published runs most like it, on one card or on several. Of the same
    card and precision where there are at least six; else of any card in that arithmetic; and `where` says which."""
    runs = [row for row in judgements() if row.what == "throughput" and row.kind == model_kind and (row.tensor_parallel > 1) == several]
    arithmetic: Precision = "fp8" if precision == "fp8" else "bf16"
    alike = [row for row in runs if row.precision == arithmetic]
    same = [row for row in alike if row.chip == chip_class] if precision == arithmetic else []
    for chosen in (same, alike, runs):
        if len(chosen) >= FEW:
            break
    else:
        return None
    found = summary(chosen)
    models, cards = (sorted({name(row) for row in chosen}) for name in (lambda row: facts.model(row.model).name, lambda row: facts.chip(row.chip).name))
    bits = sorted({row.precision for row in chosen})
    zh, en = ("", "") if chosen is same else ("；也有别的卡或精度的", "; other cards or precisions too") if same else ("；不是这张卡或这种精度的", "; not this card or this precision")
    where = {
        "zh": f"{found.n} 次公布的整机运行：{'、'.join(models)}，{'、'.join(cards)}，{'、'.join(bits)}{zh}",
        "en": f"{found.n} published whole-engine runs of {', '.join(models)} on {', '.join(cards)} in {', '.join(bits)}{en}",
    }
    return Error(found.mean, found.worst, found.n, where)


@cache
def first_token_error(prompt: int) -> Error | None:
    """Of the published first tokens whose prompts are nearest in length: short ones come out too fast, as an engine's own work counts
    for more there."""
    rows = [row for row in judgements() if row.what == "first_token"]
    if not rows:
        return None
    near = min((row.prompt for row in rows), key=lambda n: abs(log(n / prompt)))
    rows = [row for row in rows if row.prompt == near]
    found = summary(rows)
    return Error(found.mean, found.worst, found.n, {
        "zh": f"{found.n} 次公布的首 token 时间，一个 {near:,} token 的 prompt，都是 7B 模型",
        "en": f"{found.n} published first tokens, one prompt of {near:,} tokens, all of 7B models",
    })  # fmt: skip
