"""The learner's own machine under its own two walls: what its bandwidth promises our models, and what the clock gives."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from components import Guess, Html, Live, Readout, Scene, Vega, View, Widget, parameters, theme
from components.controls import Choice
from components.text import Words, amount, digits, short
from compute import facts, precompute, walls
from compute.errors import BrokenData
from compute.quantity import Quantity

OURS, PUBLIC = MODELS = ("mini-256", "smollm2-135m")
RATES = ("read.gemv.float32", "read.gemv.bfloat16", "read.sum.float32", "peak.float32", "peak.bfloat16")
CACHED_BELOW = 32 * 2**20  # bytes: weights that a processor's last cache may hold whole; said as a guess, not as a fact
LOW, HIGH = 0.1, 100.0  # FLOP/byte: the chart's range
SQUARE = 1_536  # of the matrix product that the peak is taken from


@parameters
class Params:
    model: Literal["mini-256", "smollm2-135m"] = "mini-256"


@dataclass(frozen=True)
class Rate:
    """B/s or FLOP/s: median, slowest and fastest run."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Decode:
    """One model, float32, batch 1. speed: token/s, measured; promised: what the walls allow at most."""

    model: str
    speed: Rate
    promise: walls.Promise

    @property
    def share(self) -> float:
        return self.speed.value / self.promise.tokens_per_second


@dataclass(frozen=True)
class Machine:
    rates: Mapping[str, Rate]
    decodes: Mapping[str, Decode]
    conditions: Mapping[str, Any]

    @property
    def bandwidth(self) -> float:
        return self.rates["read.gemv.float32"].value

    @property
    def peak(self) -> float:
        return self.rates["peak.float32"].value

    @property
    def ridge(self) -> float:
        return self.peak / self.bandwidth


@dataclass(frozen=True)
class Result:
    """shown: fresh where something was measured here, else the stored one. asked: the model that was chosen, where the machine
    has not got it."""

    params: Params
    stored: Machine
    fresh: Machine | None
    mark: Literal["live", "precomputed"]

    @property
    def shown(self) -> Machine:
        return self.fresh or self.stored

    @property
    def chosen(self) -> Decode:
        return self.shown.decodes.get(self.params.model) or self.shown.decodes[OURS]

    @property
    def asked(self) -> str:
        return "" if self.params.model in self.shown.decodes else self.params.model


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    """answer: what machine.measure says. Raises BrokenData where no run is stored."""
    timed = precompute.timings()
    if f"lab.machine.decode.{OURS}" not in timed:
        raise BrokenData("data/measured/lab-machine.json", f"no entry lab.machine.decode.{OURS}; run python -m compute bench cache")
    rates = {id: _stored_rate(timed[f"lab.machine.{id}"]) for id in RATES}
    runs = [
        (model, _stored_rate(entry), entry["conditions"]["context"])
        for model in MODELS if (entry := timed.get(f"lab.machine.decode.{model}"))
    ]  # fmt: skip
    stored = _machine(rates, runs, timed["lab.machine.peak.float32"]["conditions"])
    if answer is None:
        return Result(params, stored, None, "precomputed")
    found = {r["id"]: Rate(r["value"], r["low"], r["high"]) for r in answer["rates"]}
    decodes = [(d["model"], Rate(d["tokens_per_second"], d["low"], d["high"]), d["context"]) for d in answer["decodes"] if d["dtype"] == "float32"]
    return Result(params, stored, _machine(found, decodes, answer["conditions"]), "live")


def _stored_rate(entry: Mapping[str, Any]) -> Rate:
    return Rate(entry["value"], *entry["conditions"]["slowest_and_fastest"])


def _machine(rates: Mapping[str, Rate], runs, conditions: Mapping[str, Any]) -> Machine:
    bandwidth, peak = rates["read.gemv.float32"].value, rates["peak.float32"].value
    return Machine(rates, {model: Decode(model, speed, walls.promise(model, bandwidth, peak, context)) for model, speed, context in runs}, conditions)


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, lang, c = scene.words, scene.lang, result.shown.conditions
    simplified = words("simplified", cpu=c["cpu"], threads=c["threads"], date=c["date"], load=c["load average"], where=words("here" if result.fresh else "there"))
    if result.asked:
        simplified += words("lacking", model=facts.model(result.asked).name)
    return View(
        picture=Vega(_speeds(result, scene)),
        beside=(Vega(_roof(result, scene)),),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, words, lang),
        after=(Html(_table(result, words, lang)),),
        rows=_rows(result),
        papers=_papers(result),
        simplified=simplified,
    )


def _speeds(result: Result, scene: Scene) -> dict[str, Any]:
    """Predicted against measured: an empty bar that the bandwidth promises, a solid one that the clock gave."""
    words, lang, tone = scene.words, scene.lang, partial(theme.colour, theme=scene.theme)
    rows = [
        {"name": facts.model(d.model).name, "promised": d.promise.tokens_per_second, "speed": d.speed.value, "low": d.speed.low, "high": d.speed.high, "zero": 1,
         "promised_text": words("bar.promised", speed=digits(d.promise.tokens_per_second)), "promised_brief": digits(d.promise.tokens_per_second), "speed_brief": f"{digits(d.speed.value)} · {amount(d.share, 'ratio', lang, 2)}", "speed_text": words("bar.speed", speed=digits(d.speed.value), share=amount(d.share, "ratio", lang, 2))}
        for d in result.shown.decodes.values()
    ]  # fmt: skip
    before = [{"name": facts.model(d.model).name, "speed": d.speed.value} for d in result.stored.decodes.values() if d.model in result.shown.decodes] if result.fresh else []
    most = max(max(r["promised"], r["high"]) for r in rows) * 30
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"grid": False, "ticks": False, "domain": False, "labelLimit": 120, "labelFont": theme.SANS[lang], "labelColor": tone("ink")}}
    x = {"type": "quantitative", "scale": {"type": "log", "domain": [1, most], "nice": False}, "title": words("axis.speed"), "axis": {"values": [1, 10, 100, 1000, 10_000], "format": ",~g"}}
    half = {"band": 0.34}


    def bar(field: str, band: float, **mark) -> dict[str, Any]:
        return {"mark": {"type": "bar", "height": half, "yOffset": {"expr": f"{band - 0.5} * bandwidth('y')"}, **mark}, "encoding": {"y": y, "x": {**x, "field": field}, "x2": {"field": "zero"}}}

    def label(field: str, after: str, band: float) -> dict[str, Any]:
        return {"mark": {"type": "text", "align": "left", "dx": 8, "font": theme.SANS[lang], "fontSize": 13, "color": tone("ink"), "yOffset": {"expr": f"{band - 0.5} * bandwidth('y')"}},
                "encoding": {"y": y, "x": {**x, "field": after}, "text": {"field": f"{field}_shown"}},
                "transform": [{"calculate": f"width < 420 ? datum.{field}_brief : datum.{field}_text", "as": f"{field}_shown"}]}  # fmt: skip

    layers = [
        bar("promised", 0.28, filled=False, stroke=tone("bound"), strokeDash=[5, 4], strokeWidth=1.5),
        bar("speed", 0.72, color=tone("weights")),
        {"mark": {"type": "rule", "strokeWidth": 2, "color": tone("ink"), "yOffset": {"expr": "0.22 * bandwidth('y')"}}, "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        label("promised", "promised", 0.28), label("speed", "high", 0.72),
    ]  # fmt: skip
    if before:
        layers.append({"data": {"values": before}, "mark": {"type": "point", "shape": "diamond", "filled": False, "size": 120, "strokeWidth": 1.6, "color": tone("ink"), "yOffset": {"expr": "0.22 * bandwidth('y')"}},
                       "encoding": {"y": y, "x": {**x, "field": "speed"}}})  # fmt: skip
    return {"height": 84 * len(rows) + 50, "config": theme.vega_config(scene.theme, lang), "data": {"values": rows}, "layer": layers}


def _roof(result: Result, scene: Scene) -> dict[str, Any]:
    """log-log: this machine's roof, and each model under it: hollow on the roof, filled where the clock found it."""
    words, lang, tone, m = scene.words, scene.lang, partial(theme.colour, theme=scene.theme), result.shown

    def roof(machine: Machine) -> list[dict[str, float]]:
        return [{"x": x, "y": min(machine.peak, machine.bandwidth * x)} for x in (LOW, machine.ridge, HIGH)]

    dots = []
    for d in m.decodes.values():
        flops, x = d.promise.flops_per_step, d.promise.intensity
        dots.append({"name": facts.model(d.model).name, "x": x, "roof": d.promise.tokens_per_second * flops, "y": d.speed.value * flops, "low": d.speed.low * flops, "high": d.speed.high * flops,
                     "align": "left"})  # fmt: skip
    floor = min(min(d["low"] for d in dots), LOW * m.bandwidth) * 0.5
    x = {"field": "x", "type": "quantitative", "scale": {"type": "log", "domain": [LOW, HIGH], "nice": False}, "title": words("axis.x"), "axis": {"values": [0.1, 0.3, 1, 3, 10, 30, 100], "format": "~g"}}
    y = {"field": "y", "type": "quantitative", "scale": {"type": "log", "domain": [floor, m.peak * 2.5], "nice": False},
         "title": words("axis.y"), "axis": {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleX": -46, "titleY": -16,
                                            "values": [10.0**e for e in range(6, 16)], "labelExpr": "datum.value >= 1e12 ? format(datum.value/1e12, '~g') + ' T' : datum.value >= 1e9 ? format(datum.value/1e9, '~g') + ' G' : format(datum.value/1e6, '~g') + ' M'"}}  # fmt: skip
    text = {"type": "text", "font": theme.SANS[lang], "fontSize": 13}
    line = {"type": "line", "interpolate": "linear", "strokeDash": [6, 4], "strokeWidth": 2, "color": tone("bound")}
    layers = [
        {"data": {"values": roof(m)}, "mark": line, "encoding": {"x": x, "y": y}},
        {"data": {"values": dots}, "mark": {"type": "rule", "strokeWidth": 1.5, "color": tone("weights")}, "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}},
        {"data": {"values": dots}, "mark": {"type": "point", "filled": False, "size": 140, "strokeWidth": 1.8, "color": tone("bound")}, "encoding": {"x": x, "y": {**y, "field": "roof"}}},
        {"data": {"values": dots}, "mark": {"type": "point", "filled": True, "size": 120, "opacity": 1, "color": tone("weights")}, "encoding": {"x": x, "y": y, "tooltip": [{"field": "name", "title": " "}]}},
        *({"data": {"values": [d]}, "mark": {**text, "align": "left", "dx": 12, "dy": 8 if i == 0 and len(dots) > 1 else 0, "color": tone("ink")}, "encoding": {"x": x, "y": y, "text": {"field": "name"}}} for i, d in enumerate(sorted(dots, key=lambda d: d["y"]))),
        {"data": {"values": [{"x": HIGH, "y": m.peak, "t": words("wall.compute", rate=amount(m.peak, "FLOP/s", lang))}]}, "mark": {**text, "align": "right", "dy": -12, "color": tone("muted")}, "encoding": {"x": x, "y": y, "text": {"field": "t"}}},
        {"data": {"values": [{"x": m.ridge / 4, "y": m.peak / 4, "t": words("wall.memory", rate=amount(m.bandwidth, "B/s", lang))}]}, "mark": {**text, "align": "right", "dx": -12, "dy": -4, "color": tone("muted")}, "encoding": {"x": x, "y": y, "text": {"field": "t"}}, "transform": [{"calculate": "width < 420 ? '' : datum.t", "as": "t"}]},
    ]  # fmt: skip
    if result.fresh:
        layers.insert(0, {"data": {"values": roof(result.stored)}, "mark": {**line, "strokeDash": [1, 3], "color": tone("ghost")}, "encoding": {"x": x, "y": y}})
    return {"height": 300, "config": theme.vega_config(scene.theme, lang), "layer": layers}


def _table(result: Result, words: Words, lang: str) -> str:
    lines = []

    def line(name: str, unit: str, old: Rate | None, new: Rate | None) -> None:
        cells = "".join(f"<td class='n'>{_e(amount(rate.value, unit, lang)) + f' <small>{digits(rate.low / rate.value * 100)}–{digits(rate.high / rate.value * 100)}%</small>' if rate else '–'}</td>" for rate in (old, new))
        lines.append(f"<tr><td>{_e(name)}</td>{cells}</tr>")

    for id in RATES:
        line(words(f"rate.{id}"), "B/s" if id.startswith("read") else "FLOP/s", result.stored.rates[id], result.fresh and result.fresh.rates.get(id))
    for model in MODELS:
        old, new = result.stored.decodes.get(model), result.fresh.decodes.get(model) if result.fresh else None
        if old or new:
            line(words("rate.decode", model=facts.model(model).name), "token/s", old and old.speed, new and new.speed)
    head = "".join(f"<th>{_e(words(f'table.{h}'))}</th>" for h in ("what", "stored", "fresh"))
    return (
        f'<details class="lab-papers lab-ledger few" open><summary>{_e(words("table.title"))}</summary><div class="lab-scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    )


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, m, d = scene.words, scene.lang, result.shown, result.chosen
    old = result.stored.decodes.get(d.model)

    def kept(value: float, unit: str) -> str:
        return words("kept", value=amount(value, unit, lang)) if result.fresh else ""

    return (
        Readout(words("readout.bandwidth"), *short(m.bandwidth, "B/s", lang), "", kept(result.stored.bandwidth, "B/s")),
        Readout(words("readout.peak"), *short(m.peak, "FLOP/s", lang), "", kept(result.stored.peak, "FLOP/s")),
        Readout(words("readout.promised"), digits(d.promise.tokens_per_second), "token/s", "", words("note.bytes", bytes=amount(d.promise.weight_bytes, "B", lang))),
        Readout(words("readout.speed"), digits(d.speed.value), "token/s", "", kept(old.speed.value, "token/s") if old else ""),
        Readout(words("readout.share"), *short(d.share, "ratio", lang, 2), "", kept(old.share, "ratio") if old else ""),
    )  # fmt: skip


def _sentence(result: Result, words: Words, lang: str) -> str:
    d, m = result.chosen, result.shown
    said = words("sentence", model=facts.model(d.model).name, bandwidth=amount(m.bandwidth, "B/s", lang), bytes=amount(d.promise.weight_bytes, "B", lang),
                 promised=digits(d.promise.tokens_per_second), speed=digits(d.speed.value), share=amount(d.share, "ratio", lang, 2))  # fmt: skip
    return said + words("sentence_cached" if d.promise.weight_bytes < CACHED_BELOW else "sentence_memory", ridge=digits(m.ridge), at=digits(d.promise.intensity))


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    found = []
    for name, machine in (("stored", result.stored), ("fresh", result.fresh)):
        if machine is None:
            continue
        found += [{"run": name, "what": id, "value": r.value, "unit": "B/s" if id.startswith("read") else "FLOP/s", "low": r.low, "high": r.high, "promised": None, "share": None} for id, r in machine.rates.items()]
        found += [{"run": name, "what": f"decode.{d.model}", "value": d.speed.value, "unit": "token/s", "low": d.speed.low, "high": d.speed.high, "promised": d.promise.tokens_per_second, "share": d.share} for d in machine.decodes.values()]
    return tuple(found)


def _papers(result: Result) -> tuple[Quantity, ...]:
    m, d = result.shown, result.chosen
    around = dict(m.conditions)
    return (
        Quantity(m.bandwidth, "B/s", "measured", "bytes of the matrix / seconds of a matrix-vector product in fp32; median", {}, None, around, says=SAYS["bandwidth"]),
        Quantity(m.peak, "FLOP/s", "measured", "2 n³ / seconds of a square matrix product in fp32; median", {"n": SQUARE}, None, around, says=SAYS["peak"]),
        Quantity(d.promise.tokens_per_second, "token/s", "computed", "1 / max(bytes / bandwidth, FLOP / peak)", {"bytes": d.promise.bytes_per_step, "FLOP": d.promise.flops_per_step}, says=SAYS["promised"]),
        Quantity(d.speed.value, "token/s", "measured", "1 / median step", {}, None, around | {"model": d.model, "dtype": "float32", "batch": 1}, says=SAYS["speed"]),
        Quantity(d.share, "ratio", "measured", "measured / promised", {}, None, around, says=SAYS["share"]),
    )  # fmt: skip


SAYS = {
    "bandwidth": {"zh": "读内存的带宽", "en": "memory bandwidth"},
    "peak": {"zh": "矩阵乘法的峰值", "en": "peak of matrix products"},
    "promised": {"zh": "按带宽该写多快", "en": "speed that the bandwidth promises"},
    "speed": {"zh": "实测的速度", "en": "measured speed"},
    "share": {"zh": "实测是许诺的几成", "en": "measured over promised"},
}


def _e(text: Any) -> str:
    return html.escape(str(text))


def _right(result: Result) -> str:
    share = result.chosen.share
    return "more" if share > 1.1 else "most" if share > 0.8 else "part"


WIDGET = Widget(
    id="own-machine",
    Params=Params,
    controls=(Choice("model", lambda: MODELS, name=lambda id: facts.model(id).name),),
    run=run,
    draw=draw,
    guesses={"share": Guess(truth=lambda r: Quantity(r.chosen.share, "ratio", "measured", "measured / promised", {}, None, dict(r.shown.conditions)), choices=("more", "most", "part"), right=_right)},
    live=Live("machine.measure", lambda p: {}),
)
