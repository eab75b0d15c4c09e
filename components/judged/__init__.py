"""The calibrated clock before its judges: every published run of a whole engine, what the clock says of it, and the kernels it was
fitted on."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from components import Guess, Html, Readout, Scene, Vega, View, Widget, parameters, theme
from components.controls import Choice
from components.text import Words, amount, digits
from compute import calibrated, facts, judged
from compute.judged import Judgement, Summary
from compute.quantity import Quantity, Source

CARDS = {"a100-80g-sxm": "A100", "h100-sxm": "H100", "h200-sxm": "H200", "b200": "B200", "l40s": "L40S"}
KERNELS = ("gemm", "decode_attention", "decode_attention_grouped", "prefill_attention")
RATIOS = (0.4, 4.0)  # the axis: predicted over published
TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 4)
LANE, TITLE, AXIS = 64, 32, 82  # px: a lane, in it the two lines of text above the dots, and what is under the lanes


def one(row: Judgement) -> bool:
    return row.what == "throughput" and row.kind == "dense" and row.tensor_parallel == 1


GROUPS: dict[str, Callable[[Judgement], bool]] = {
    "a100": lambda row: one(row) and row.chip == "a100-80g-sxm",
    "l40s": lambda row: one(row) and row.chip == "l40s",
    "h100": lambda row: one(row) and row.chip == "h100-sxm",
    "h200": lambda row: one(row) and row.chip == "h200-sxm",
    "cards": lambda row: row.what == "throughput" and row.kind == "dense" and row.tensor_parallel > 1,
    "ungrouped": lambda row: row.what == "throughput" and row.kind == "ungrouped",
    "experts": lambda row: row.what == "throughput" and row.kind == "experts",
    "long": lambda row: row.what == "first_token" and row.prompt > 1000,
    "short": lambda row: row.what == "first_token" and row.prompt < 1000,
}
"""Every published run is in exactly one."""


@parameters
class Params:
    """group: whose runs the table and the figures are about. chip, precision, kernel: of the kernels below."""

    group: Literal["a100", "l40s", "h100", "h200", "cards", "ungrouped", "experts", "long", "short"] = "a100"
    chip: Literal["a100-80g-sxm", "h100-sxm", "h200-sxm", "b200", "l40s"] = "a100-80g-sxm"
    kernel: Literal["gemm", "decode_attention", "decode_attention_grouped", "prefill_attention"] = "gemm"


@dataclass(frozen=True)
class Kernel:
    """A measured kernel of the sample. seconds: measured, at the ideal bound, by the fitted shares."""

    shape: str
    measured: float
    ideal: float
    fitted: float


@dataclass(frozen=True)
class Result:
    params: Params
    runs: tuple[tuple[str, Judgement], ...]  # with the group of each
    summaries: dict[str, Summary]
    kernels: tuple[Kernel, ...]
    rate: calibrated.Rate
    engine: str  # whose kernels
    naive: float  # mean |error| of the ideal bound on all kernels of this kind

    @property
    def chosen(self) -> tuple[Judgement, ...]:
        return tuple(run for group, run in self.runs if group == self.params.group)

    @property
    def summary(self) -> Summary:
        return self.summaries[self.params.group]


@cache
def grouped() -> tuple[tuple[tuple[str, Judgement], ...], dict[str, Summary]]:
    runs = tuple((next(id for id, holds in GROUPS.items() if holds(run)), run) for run in judged.judgements())
    return runs, {id: judged.summary(run for group, run in runs if group == id) for id in GROUPS}


def run(params: Params, answer=None) -> Result:
    runs, summaries = grouped()
    row = calibrated.file()["classes"][params.chip]["bf16"][params.kernel]
    rate = getattr(calibrated.classes()[params.chip]["bf16"], params.kernel)
    kernels = tuple(
        Kernel(shape, measured, max(flops, bytes_), float(np.hypot(flops / rate.compute, bytes_ / rate.memory)) + rate.launch_seconds)
        for shape, flops, bytes_, measured in calibrated.file()["samples"][params.chip]["bf16"][params.kernel]
    )
    return Result(params, runs, summaries, kernels, rate, row["engine"], row["ideal_error"])


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, lang, s = scene.words, scene.lang, result.summary
    group = words(f"option.group.{result.params.group}")
    return View(
        picture=Vega(_strip(result, scene), clicks={"group": "group"}),
        after=(Html(_table(result, scene)), Html(_kernels_title(result, words)), Vega(_kernels(result, scene))),
        readouts=_readouts(result, scene),
        sentence=words("says", group=group, n=s.n, mean=percent(s.mean), ideal=percent(s.ideal_mean), worst=signed(s.worst)) + ("" if lang == "zh" else " ") + words(f"why.{result.params.group}"),
        rows=_rows(result),
        papers=_papers(result, lang),
        simplified=words("simplified"),
    )


def percent(value: float) -> str:
    return digits(100 * value, 2) + "%"


def signed(value: float) -> str:
    return f"{value:+.0%}".replace("-", "−")


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, s = scene.words, result.summary
    old = scene.before.summary if scene.before is not None and scene.before.params.group != result.params.group else None
    was = lambda value: words("before", value=value) if old else ""  # noqa: E731
    return (
        Readout(words("readout.calibrated"), digits(100 * s.mean, 2), "%", was(old and percent(old.mean)), words("note.runs", n=s.n)),
        Readout(words("readout.ideal"), digits(100 * s.ideal_mean, 2), "%", was(old and percent(old.ideal_mean))),
        Readout(words("readout.bias"), signed(s.bias), "", was(old and signed(old.bias)), words("note.bias")),
        Readout(words("readout.worst"), signed(s.worst), "", was(old and signed(old.worst))),
        Readout(words("readout.kernels"), digits(100 * result.rate.error, 2), "%", "", words("note.kernels", n=f"{result.rate.rows:,}", ideal=percent(result.naive))),
    )


def _strip(result: Result, scene: Scene) -> dict[str, Any]:
    """A lane a group: the ideal bound hollow, the calibrated clock solid, and 1 is what was published."""
    words, lang, tone = scene.words, scene.lang, partial(theme.colour, theme=scene.theme)
    low, high = RATIOS
    order = list(GROUPS)
    dots = [
        {"group": group, "clock": clock, "x": min(max(value, low), high), "ratio": value, "label": told(run, lang), "jitter": (at * 0.618) % 1}
        for at, (group, run) in enumerate(result.runs)
        for clock, value in (("ideal", 1 + run.ideal_error), ("calibrated", 1 + run.error))
    ]
    titles = [
        {"group": id, "name": words(f"option.group.{id}"), "mean": words("lane", mean=percent(s.mean), ideal=percent(s.ideal_mean))}
        for id, s in result.summaries.items()
    ]
    x = {"field": "x", "type": "quantitative", "scale": {"type": "log", "domain": [low, high], "nice": False}, "title": [words("axis"), words("axis_marks")],
         "axis": {"values": [v for v in TICKS if low <= v <= high], "labelExpr": "'×' + format(datum.value, '~g')"}}  # fmt: skip
    y = {"field": "group", "type": "nominal", "sort": order, "axis": None, "scale": {"type": "band", "padding": 0}}
    spread = {"field": "jitter", "type": "quantitative", "scale": {"domain": [0, 1], "range": [TITLE + 10, LANE - 8]}}
    chosen = f"datum.group === '{result.params.group}'"
    ink = {"condition": {"test": chosen, "value": tone("ink")}, "value": tone("muted")}
    faded = {"condition": {"test": chosen, "value": 1}, "value": 0.45}
    tip = [{"field": "label", "title": words("tip.run")}, {"field": "ratio", "title": words("tip.ratio"), "format": ".3~g"}]

    def layer(clock: str, mark: dict) -> dict:
        return {"data": {"values": [d for d in dots if d["clock"] == clock]}, "mark": {"type": "point", "cursor": "pointer"} | mark,
                "encoding": {"x": x, "y": y, "yOffset": spread, "opacity": faded, "tooltip": tip}}  # fmt: skip

    def text(field: str, line: int) -> dict:
        return {"data": {"values": titles}, "mark": {"type": "text", "align": "left", "baseline": "top", "dy": 3 - LANE // 2 + 17 * line, "font": theme.SANS[lang], "fontSize": 13},
                "encoding": {"x": {"value": 4}, "y": y, "text": {"field": field}, "color": ink}}  # fmt: skip

    return {
        "height": LANE * len(order) + AXIS,
        "config": theme.vega_config(scene.theme, lang),
        "layer": [
            {"data": {"values": [{"x": 0.95, "x2": 1.05}]}, "mark": {"type": "rect", "color": tone("accepted"), "opacity": 0.16}, "encoding": {"x": x, "x2": {"field": "x2"}}},
            {"data": {"values": [{"x": 1}]}, "mark": {"type": "rule", "color": tone("ink"), "strokeWidth": 1.5}, "encoding": {"x": x}},
            {"data": {"values": [{"group": id} for id in order[1:]]}, "mark": {"type": "rule", "color": tone("hairline"), "yOffset": -LANE / 2}, "encoding": {"y": y}},
            layer("ideal", {"filled": False, "size": 42, "strokeWidth": 1.2, "color": tone("bound")}),
            layer("calibrated", {"filled": True, "size": 46, "color": tone("accent")}) | {"params": [{"name": "group", "select": {"type": "point", "fields": ["group"], "clear": False}}]},
            text("name", 0),
            text("mean", 1),
        ],
    }  # fmt: skip


def told(run: Judgement, lang: str) -> str:
    cards = f" × {run.tensor_parallel}" if run.tensor_parallel > 1 else ""
    return f"{run.engine} · {facts.model(run.model).name} · {facts.chip(run.chip).name}{cards} · {run.precision} · {run.batch} × {run.prompt:,} + {run.output:,}"


def _kernels_title(result: Result, words: Words) -> str:
    told = words("kernels.title", kernel=words(f"option.kernel.{result.params.kernel}"), chip=CARDS[result.params.chip], n=len(result.kernels), rows=f"{result.rate.rows:,}")
    return f'<p class="lab-quiet"><b>{html.escape(told)}</b> {html.escape(words("kernels.y"))}</p>'


def _kernels(result: Result, scene: Scene) -> dict[str, Any]:
    words, lang, tone = scene.words, scene.lang, partial(theme.colour, theme=scene.theme)
    dots = [
        {"x": k.measured * 1e6, "y": value / k.measured, "clock": clock, "label": k.shape}
        for k in result.kernels
        for clock, value in (("ideal", k.ideal), ("calibrated", k.fitted))
    ]
    low = min(d["y"] for d in dots)
    x = {"field": "x", "type": "quantitative", "scale": {"type": "log"}, "title": words("kernels.x"), "axis": {"format": ",~g", "values": [10.0**e for e in range(6)]}}
    y = {"field": "y", "type": "quantitative", "scale": {"type": "log", "domain": [max(0.01, low * 0.8), 2.5], "nice": False}, "title": None,
         "axis": {"values": [0.03, 0.1, 0.3, 0.5, 1, 2], "minExtent": 44, "labelExpr": "'×' + format(datum.value, '~g')"}}  # fmt: skip
    marks = {"ideal": {"filled": False, "color": tone("bound"), "strokeWidth": 1.2}, "calibrated": {"filled": True, "color": tone("accent")}}
    return {
        "height": 200,
        "config": theme.vega_config(scene.theme, lang),
        "layer": [
            {"data": {"values": [{"y": 1}]}, "mark": {"type": "rule", "color": tone("ink"), "strokeWidth": 1.5}, "encoding": {"y": y}},
            *({"data": {"values": [d for d in dots if d["clock"] == clock]}, "mark": {"type": "point", "size": 46, **mark},
               "encoding": {"x": x, "y": y, "tooltip": [{"field": "label", "title": words("tip.shape")}, {"field": "y", "title": words("tip.kernel"), "format": ".2~f"}]}}
              for clock, mark in marks.items()),
        ],
    }  # fmt: skip


def _table(result: Result, scene: Scene) -> str:
    words, lang = scene.words, scene.lang
    heads = ("engine", "model", "cards", "setting", "published", "calibrated", "error", "ideal", "ideal_error")
    head = "".join(f'<th scope="col">{html.escape(words(f"column.{h}"))}</th>' for h in heads)

    def value(run: Judgement, number: float) -> str:
        return amount(number, "token/s" if run.what == "throughput" else "s", lang)

    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in (
            run.engine, facts.model(run.model).name, facts.chip(run.chip).name + (f" × {run.tensor_parallel}" if run.tensor_parallel > 1 else "") + f", {run.precision}",
            f"{run.batch} × {run.prompt:,}" + (f" + {run.output:,}" if run.what == "throughput" else ""), value(run, run.published), value(run, run.calibrated), signed(run.error), value(run, run.ideal), signed(run.ideal_error),
        )) + "</tr>"
        for run in sorted(result.chosen, key=lambda run: abs(run.error))
    )  # fmt: skip
    title = html.escape(words("table", group=words(f"option.group.{result.params.group}"), n=len(result.chosen)))
    return f'<details class="lab-papers"><summary>{title}</summary><div class="lab-scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>'


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    runs = [
        {"row": "run", "group": group, "what": run.what, "engine": run.engine, "model": run.model, "chip": run.chip, "precision": run.precision, "batch": run.batch,
         "tensor_parallel": run.tensor_parallel, "prompt": run.prompt, "output": run.output, "published": run.published, "calibrated": run.calibrated, "ideal": run.ideal, "error": run.error, "ideal_error": run.ideal_error}
        for group, run in result.runs
    ]  # fmt: skip
    kernels = [{"row": "kernel", "chip": result.params.chip, "kernel": result.params.kernel, "shape": k.shape, "measured_seconds": k.measured, "ideal_seconds": k.ideal, "fitted_seconds": k.fitted} for k in result.kernels]
    return tuple(runs + kernels)


def _papers(result: Result, lang: str) -> tuple[Quantity, ...]:
    made, rate = calibrated.file()["made"], result.rate
    source = Source(f"{made['source']['package']} {made['source']['version']}", made["source"]["url"], f"{result.params.kernel}, {result.engine}", made["date"], made["source"]["licence"])
    conditions = {"chip": result.params.chip, "precision": "bf16", "rows": rate.rows, "command": made["command"], "seed": made["seed"]}
    shares = tuple(
        Quantity(value, unit, "quoted", "fitted: √((FLOP / share of peak)² + (bytes / share of bandwidth)²) + launch", source=source, conditions=conditions, says={"zh": zh, "en": en})
        for value, unit, zh, en in (
            (rate.compute, "ratio", "达到峰值算力的份额", "share of the peak"), (rate.memory, "ratio", "达到带宽的份额", "share of the bandwidth"),
            (rate.launch_seconds, "s", "每次启动的开销", "cost of a launch"),
        )
    )  # fmt: skip
    s = result.summary
    mean = Quantity(s.mean, "ratio", "computed", "mean of |predicted / published − 1|", {"runs": s.n, "command": "python -m compute call roofline.generate"}, says={"zh": "标定时钟的平均误差", "en": "mean error of the calibrated clock"})
    titles = {run.source.title: run for run in result.chosen}
    published = tuple(
        Quantity(run.published, "token/s" if run.what == "throughput" else "s", "quoted", source=run.source, conditions={"setting": told(run, lang)}, says={"zh": "公布的结果之一，自报", "en": "one of the published results, self-reported"})
        for run in titles.values()
    )  # fmt: skip
    return (mean, *shares, *published)


WIDGET = Widget(
    id="judged",
    Params=Params,
    controls=(Choice("group", lambda: tuple(GROUPS)), Choice("chip", lambda: tuple(CARDS), CARDS.get), Choice("kernel", lambda: KERNELS)),
    run=run,
    draw=draw,
    shown=1,
    guesses={"off": Guess(lambda result: Quantity(result.summary.ideal_mean, "ratio", "computed", "mean of |ideal / published − 1|"), choices=("exact", "slow", "fast", "wild"), right=lambda result: "fast")},
)
