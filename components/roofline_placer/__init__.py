"""Where prefill and decode land under a chip's roof, and what moves them."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from functools import partial
from math import hypot, log10

from components import Guess, Html, Live, Readout, Scene, Vega, View, Widget, parameters, theme
from components.controls import Choice, Stops
from components.text import amount, digits, short
from compute import calibrated, facts, judged, kv, roofline
from compute.calibrated import Precision, Rate
from compute.errors import BadInput, Refused
from compute.facts import Chip, MeasuredRun, ModelName
from compute.quantity import Quantity
from compute.roofline import Batch, Bits, Context, Decode, Group, KvBits, Op, Prefill, Prompt

BATCHES = (1, 2, 4, 8, 16, 32, 58, 64, 128, 256, 512, 1024)
LENGTHS = (128, 512, 1000, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
INTENSITIES = (0.3, 10_000.0)  # the chart's range, FLOP/byte
NARROW = 640  # plot width in px below which the lesser labels are left out
HEIGHT, PLOT = 400, 300  # px: the picture, and in it the plot without its axes


@parameters
class Params:
    model: ModelName = "qwen3.8-27b"
    chip: str = "h100-sxm"
    batch: Batch = 1
    context: Context = 4096
    prompt: Prompt = 4096
    weight_bits: Bits = 16
    group: Group = 128
    kv_bits: KvBits = 16


@dataclass(frozen=True)
class Spot:
    """A point on the roof. flops_per_s is what the bound allows there."""

    intensity: float
    flops_per_s: float


@dataclass(frozen=True)
class Dot:
    """A run that somebody measured on this chip with this model, where it lies under the roof."""

    spot: Spot
    low: float | None  # FLOP/s of the slowest and fastest run, where known
    high: float | None
    run: MeasuredRun
    of_bound: float  # measured over the ideal bound at its own batch and mean context


@dataclass(frozen=True)
class Real:
    """The same step and the same prompt on the calibrated clock, and how far that was off on published engines: error of throughputs,
    prefill_error of first tokens."""

    step_seconds: float
    prefill_seconds: float
    error: calibrated.Error
    prefill_error: calibrated.Error
    gemm: Rate  # shares that the line is drawn with
    peak: float

    def line(self, chip: Chip, intensity: float) -> float:
        """FLOP/s of a large matrix product at so many FLOP/byte, its launch apart."""
        return 1 / hypot(1 / (self.gemm.compute * self.peak), 1 / (self.gemm.memory * chip.bandwidth_bytes_per_s * intensity))


@dataclass(frozen=True)
class Other:
    """Another model at the same setting: the bytes of its step, or that it does not fit."""

    id: str
    name: str
    bytes_per_step: float
    fits: bool


@dataclass(frozen=True)
class Placement:
    params: Params
    model_name: str
    chip: Chip
    decode: Decode
    prefill: Prefill
    ops: tuple[Op, ...]
    walk: tuple[tuple[int, Spot], ...]  # decode at each batch that fits
    most: int | None  # requests that fit at this context; a textbook model fits nowhere in particular
    upgrade: float  # decode step time, A100 80G over H100, weights only: the same for every dense model
    others: tuple[Other, ...]
    dots: tuple[Dot, ...]
    real: Real | None  # None where nobody measured kernels of this card at these bits

    @property
    def decode_spot(self) -> Spot:
        return Spot(self.decode.intensity, self.decode.flops_per_step / self.decode.step_seconds)

    @property
    def prefill_spot(self) -> Spot:
        return Spot(self.prefill.intensity, self.prefill.flops / self.prefill.seconds)


def run(params: Params, answer=None) -> Placement:
    shape, chip = facts.model(params.model), facts.chip(params.chip)
    stored = {"weight_bits": params.weight_bits, "group": params.group, "kv_bits": params.kv_bits}
    decode = roofline.decode(params.model, params.chip, params.batch, params.context, **stored)
    prefill = roofline.prefill(params.model, params.chip, params.prompt, **stored)
    ops = roofline.decode_ops(shape, params.batch, params.context, *stored.values())
    most = None if shape.textbook else kv.capacity(params.model, params.chip, params.context, **stored).requests
    walk = []
    for batch in sorted({*(b for b in BATCHES if b <= (most or params.batch)), most or params.batch, params.batch}):
        step = roofline.decode(params.model, params.chip, batch, params.context, **stored)
        walk.append((batch, Spot(step.intensity, step.flops_per_step / step.step_seconds)))
    a100, h100 = facts.chip("a100-80g-sxm"), facts.chip("h100-sxm")
    return Placement(
        params, shape.name, chip, decode, prefill, ops, tuple(walk), most,
        h100.bandwidth_bytes_per_s / a100.bandwidth_bytes_per_s, _others(params, chip, stored), _dots(params), _real(params),
    )  # fmt: skip


PRECISIONS: dict[tuple[float, int, float], Precision] = {(16, 128, 16): "bf16", (8, 128, 8): "fp8", (8, 128, 16): "int8", (4, 128, 16): "int4"}


def _real(params: Params) -> Real | None:
    """16 and 8 bits have no groups; their group does not matter."""
    group = params.group if params.weight_bits < 8 else 128
    precision = PRECISIONS.get((params.weight_bits, group, params.kv_bits))
    if precision is None:
        return None
    try:
        clock = calibrated.calibrated(params.model, params.chip, precision)
    except (Refused, BadInput):
        return None
    if clock.error is None or not clock.shape.hidden:
        return None
    step = float(clock.step(params.batch, params.batch * params.context))
    prefill = float(clock.step(0, 0, params.prompt, params.prompt**2 / 2, 1))
    return Real(step, prefill, clock.error, judged.first_token_error(params.prompt), clock.rates.gemm, clock.peak)


def _dots(params: Params) -> tuple[Dot, ...]:
    found = []
    for run in facts.measured_runs():
        if (run.model, run.chip) != (params.model, params.chip):
            continue
        try:
            ideal = roofline.bound_of_run(run)
        except Refused:
            continue  # "80 GB" of a real card is a little more than 80e9 bytes
        per_token = ideal.flops_per_step / run.batch
        low, high = (rate and rate * per_token for rate in (run.low, run.high))
        spot = Spot(ideal.intensity, run.tokens_per_second * per_token)
        found.append(Dot(spot, low, high, run, run.tokens_per_second / ideal.tokens_per_second))
    return tuple(found)


def _others(params: Params, chip: Chip, stored) -> tuple[Other, ...]:
    found = []
    for shape in facts.models().values():
        if shape.textbook:
            continue
        ops = roofline.decode_ops(shape, params.batch, params.context, *stored.values())
        need = roofline.memory(shape, chip, params.batch, params.context, *stored.values())
        found.append(Other(shape.id, shape.name, sum(op.bytes for op in ops), not need.missing_bytes))
    return tuple(found)


# ---- drawing


def draw(result: Placement, scene: Scene) -> View:
    words, lang, p = scene.words, scene.lang, result.params
    d = result.decode
    show = partial(amount, lang=lang)
    says = words(
        f"says.{d.bound}", batch=f"{p.batch:,}", bytes=show(d.bytes_per_step, "B"), step=show(d.step_seconds, "s"),
        share=show(d.compute_share, "ratio"), flops=show(d.flops_per_step, "FLOP"),
    )  # fmt: skip
    says += words(f"says.prefill.{result.prefill.bound}", prompt=f"{p.prompt:,}", seconds=show(result.prefill.seconds, "s"))
    simplified, space = words("simplified"), "" if lang == "zh" else " "
    if result.real:
        e, first = result.real.error, result.real.prefill_error
        simplified += space + words("calibrated", first=amount(first.mean, "ratio", lang, 2), first_where=first.where[lang], mean=amount(e.mean, "ratio", lang, 2), worst=f"{e.worst:+.0%}".replace("-", "−"), where=e.where[lang])
    if result.dots:
        simplified += space + words("dots", low=show(min(x.of_bound for x in result.dots), "ratio"), high=show(max(x.of_bound for x in result.dots), "ratio"))
        if max(x.of_bound for x in result.dots) > 1:
            simplified += space + words("cached")
    longest = facts.model(p.model).context_maximum
    if longest and max(p.context, p.prompt) > longest:
        simplified += space + words("beyond", longest=f"{longest:,}")
    if d.textbook:
        simplified += space + words("textbook", cards=d.cards_needed)
    if any(m.copies > m.used for m in facts.model(p.model).matrices):
        simplified += space + words("experts")
    return View(
        picture=Vega(_roof(result, scene), clicks={"chip": "chip"}),
        beside=(Html(_ledger(result, scene)), Vega(_strip(result, scene), clicks={"model": "model"})),
        readouts=_readouts(result, scene),
        sentence=says,
        rows=_rows(result),
        papers=_papers(result),
        simplified=simplified,
    )


def _readouts(result: Placement, scene: Scene) -> tuple[Readout, ...]:
    words, lang, before = scene.words, scene.lang, scene.before

    def one(id: str, value: float, unit: str, old: float | None, note: str = "") -> Readout:
        change = "" if old is None or digits(old) == digits(value) else words("before", value=amount(old, unit, lang))
        return Readout(words(f"readout.{id}"), *short(value, unit, lang), change, note)

    def real(value: float, unit: str, error: calibrated.Error) -> str:
        return words("real", value=amount(value, unit, lang), error=amount(error.mean, "ratio", lang, 2))

    b, r, p = before, result.real, result.params
    return (
        one("throughput", result.decode.tokens_per_second, "token/s", b and b.decode.tokens_per_second, real(p.batch / r.step_seconds, "token/s", r.error) if r else ""),
        one("step", result.decode.step_seconds, "s", b and b.decode.step_seconds, real(r.step_seconds, "s", r.error) if r else ""),
        one("share", result.decode.compute_share, "ratio", b and b.decode.compute_share),
        one("prefill", result.prefill.seconds, "s", b and b.prefill.seconds, real(r.prefill_seconds, "s", r.prefill_error) if r else ""),
        *((one("most", result.most, "request", b and b.most),) if result.most else ()),
    )


def _rows(result: Placement) -> tuple[dict, ...]:
    setting = asdict(result.params)
    points = [{"row": "decode", "intensity_flop_per_byte": result.decode_spot.intensity, "flops_per_s": result.decode_spot.flops_per_s},
              {"row": "prefill", "intensity_flop_per_byte": result.prefill_spot.intensity, "flops_per_s": result.prefill_spot.flops_per_s}]  # fmt: skip
    walk = [{"row": "walk", "batch": n, "intensity_flop_per_byte": s.intensity, "flops_per_s": s.flops_per_s} for n, s in result.walk]
    ops = [
        {"row": f"op:{op.name}", "flops": op.flops, "weight_bytes": op.weight_bytes, "kv_bytes": op.kv_bytes,
         "state_bytes": op.state_bytes, "activation_bytes": op.activation_bytes}
        for op in result.ops
    ]  # fmt: skip
    dots = [
        {"row": "measured", "engine": d.run.engine, "batch": d.run.batch, "context": d.run.context, "tokens_per_second": d.run.tokens_per_second,
         "of_bound": d.of_bound, "intensity_flop_per_byte": d.spot.intensity, "flops_per_s": d.spot.flops_per_s}
        for d in result.dots
    ]  # fmt: skip
    real = []
    if r := result.real:
        real = [{"row": "calibrated", "step_seconds": r.step_seconds, "prefill_seconds": r.prefill_seconds, "tokens_per_second": result.params.batch / r.step_seconds,
                 "mean_error": r.error.mean, "worst_error": r.error.worst, "judged_on": r.error.n, "prefill_mean_error": r.prefill_error.mean}]  # fmt: skip
    return tuple(setting | row for row in points + walk + dots + real + ops)


def _papers(result: Placement) -> tuple[Quantity, ...]:
    d, p, chip = result.decode, result.params, result.chip
    shape = facts.model(p.model)

    def computed(value, unit, formula, zh, en, **inputs):
        return Quantity(value, unit, "computed", formula, inputs, says={"zh": zh, "en": en})

    dots = tuple(
        Quantity(x.run.tokens_per_second, "token/s", "quoted" if x.run.low is None else "measured", source=x.run.source,
                 conditions={"batch": x.run.batch, "mean context": x.run.context, "bits": x.run.bits, "of the ideal bound": f"{x.of_bound:.0%}"},
                 says={"zh": x.run.engine, "en": x.run.engine})
        for x in result.dots
    )  # fmt: skip
    real = ()
    if r := result.real:
        real = (
            computed(r.step_seconds, "s", "Σ launches × cost + √((FLOP / share of peak)² + (bytes / share of bandwidth)²), by kind of kernel", "标定后解码一步的时间", "time of a decode step, calibrated",
                     gemm_share_of_peak=r.gemm.compute, gemm_share_of_bandwidth=r.gemm.memory, launch_seconds=r.gemm.launch_seconds, mean_error=r.error.mean, judged_on=r.error.where),
        )  # fmt: skip
    return dots + real + (
        computed(d.step_seconds, "s", "max(bytes / bandwidth, FLOP / peak)", "解码一步的时间", "time of a decode step",
                 bytes=d.bytes_per_step, bandwidth=chip.bandwidth_bytes_per_s, flop=d.flops_per_step, peak=chip.peak),
        computed(d.bytes_per_step, "B", "weights + batch × (context × KV per token + 2 × state)", "一步搬的字节", "bytes of a step",
                 batch=p.batch, context=p.context, weight_bits=p.weight_bits, kv_bits=p.kv_bits),
        computed(d.flops_per_step, "FLOP", "batch × (2 × parameters + 4 × context × heads × head_dim × layers)", "一步的运算", "arithmetic of a step",
                 parameters=shape.parameters_per_token, batch=p.batch, context=p.context),
        computed(result.prefill.seconds, "s", "max(bytes / bandwidth, (2 × parameters × n + Σ 2 n² × heads × head_dim) / peak)",
                 "prefill 的时间", "time of the prefill", n=p.prompt, flop=result.prefill.flops),
        Quantity(chip.bandwidth_bytes_per_s, "B/s", "measured" if chip.measured else "quoted", source=chip.source,
                 conditions={"note": chip.note or (chip.source.note if chip.source else "")}, says={"zh": f"{chip.name} 带宽", "en": f"{chip.name} bandwidth"}),
        Quantity(chip.peak, "FLOP/s", "measured" if chip.measured else "quoted", source=chip.source,
                 conditions={"note": chip.note or (chip.source.note if chip.source else "")}, says={"zh": f"{chip.name} 16 位峰值（稠密）", "en": f"{chip.name} 16-bit peak (dense)"}),
        Quantity(shape.parameters_per_token, "parameter", "quoted", "Σ matrices multiplied", source=shape.source,
                 says={"zh": f"{shape.name} 的 config", "en": f"config of {shape.name}"}),
    )  # fmt: skip


def _roof(result: Placement, scene: Scene) -> dict:
    """log-log: achieved FLOP/s against FLOP/byte; other chips' ridges can be clicked."""
    words, lang, tone = scene.words, scene.lang, partial(theme.colour, theme=scene.theme)
    chip, decode, prefill = result.chip, result.decode_spot, result.prefill_spot
    ridge = roofline.ridge(chip)
    low, high = _reach(ridge)
    bandwidth = chip.bandwidth_bytes_per_s
    roof = [{"x": x, "y": min(chip.peak, bandwidth * x)} for x in (low, ridge, high)]
    chips = facts.chips().values()
    y_low = min(low * bandwidth * 0.7, decode.flops_per_s * 0.4, chip.peak / (200 if ridge >= 3 else 2000))
    y_high = max(max(c.peak for c in chips if not c.measured) * 1.6, chip.peak * 2)
    ridges = [
        {"chip": c.id, "name": c.name, "x": roofline.ridge(c), "y": c.peak, "bandwidth": c.bandwidth_bytes_per_s / 1e12, "peak": c.peak / 1e12}
        for c in chips
        if y_low < c.peak < y_high
    ]
    spots = (
        ("decode", decode, words("spot.decode", batch=f"{result.params.batch:,}"), result.decode.tokens_per_second),
        ("prefill", prefill, words("spot.prefill", prompt=f"{result.params.prompt:,}"), result.prefill.tokens_per_second),
    )
    points = [
        _labelled(f"{label}\n{amount(rate, 'token/s', lang)}", f"{label}\n{amount(rate, 'token/s', lang)}".replace(" · ", "\n"), BOLD, phase=phase, x=s.intensity, y=s.flops_per_s)
        for phase, s, label, rate in spots
    ]
    points[0] |= {"other_x": prefill.intensity, "other_y": prefill.flops_per_s, "other_w": points[1]["w"], "other_short_w": points[1]["short_w"]}
    ghosts = []
    if scene.before is not None:
        for phase, spot, now in (("decode", scene.before.decode_spot, decode), ("prefill", scene.before.prefill_spot, prefill)):
            if abs(log10(spot.intensity / now.intensity)) + abs(log10(spot.flops_per_s / now.flops_per_s)) > 0.01:
                ghosts.append({"phase": phase, "x": spot.intensity, "y": spot.flops_per_s, "x2": now.intensity, "y2": now.flops_per_s})
    walk = [{"x": s.intensity, "y": s.flops_per_s} for _, s in result.walk]
    real, spots_real = [], []
    if result.real:
        real = [{"x": x, "y": result.real.line(chip, x)} for x in (low * (high / low) ** (i / 60) for i in range(61))]
        r = result.real
        for phase, flops, seconds, at, e in (
            ("decode", result.decode.flops_per_step, r.step_seconds, decode, r.error.mean), ("prefill", result.prefill.flops, r.prefill_seconds, prefill, r.prefill_error.mean),
        ):  # fmt: skip
            rate = flops / seconds
            spots_real.append({"phase": phase, "x": at.intensity, "y": rate, "low": rate * (1 - e), "high": rate * (1 + e), "label": words("tip.real", share=amount(rate / at.flops_per_s, "ratio", lang))})
    full = []
    if result.most not in (None, result.params.batch):  # at the last batch the point itself says so
        full = [_labelled(words("walk.full", batch=f"{result.most:,}"), **walk[-1])]
    dots = [
        _labelled(words("measured", engine=d.run.engine, batch=d.run.batch, rate=amount(d.run.tokens_per_second, "token/s", lang)),
                  x=d.spot.intensity, y=d.spot.flops_per_s, low=d.low or d.spot.flops_per_s, high=d.high or d.spot.flops_per_s, share=d.of_bound)
        for d in result.dots
    ]  # fmt: skip
    x = {"field": "x", "type": "quantitative", "scale": {"type": "log", "domain": [low, high], "nice": False}, "title": words("axis.x"),
         "axis": {"values": [v for e in range(-3, 5) for v in (10.0**e, 3 * 10.0**e) if low <= v <= high], "labelOverlap": "parity", "labelSeparation": 8, "format": ",~g", "grid": True}}  # fmt: skip
    decades = [10.0**e for e in range(int(log10(y_low)) - 1, int(log10(y_high)) + 2)]
    y = {"field": "y", "type": "quantitative", "scale": {"type": "log", "domain": [y_low, y_high], "nice": False}, "title": words("axis.y"),
         "axis": {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleX": -46, "titleY": -16, "values": [v for v in decades if y_low <= v <= y_high], "labelExpr": "datum.value >= 1e12 ? format(datum.value/1e12, ',~g') + ' T' : format(datum.value/1e9, ',~g') + ' G'"}}  # fmt: skip
    colour = {"field": "phase", "type": "nominal", "scale": {"domain": ["decode", "prefill"], "range": [tone("decode"), tone("prefill")]}, "legend": None}
    shape = {"field": "phase", "type": "nominal", "scale": {"domain": ["decode", "prefill"], "range": ["circle", "diamond"]}, "legend": None}

    def layer(values, mark, **encoding):
        """Nothing where there is nothing: an empty layer has no extent, and Vega says so on the console."""
        return [{"data": {"values": values}, "mark": mark, "encoding": {"x": x, "y": y, **encoding}}] if values else []

    line = {"type": "line", "interpolate": "linear"}
    text = {"type": "text", "font": theme.SANS[lang], "fontSize": 13, "lineBreak": "\n", "lineHeight": 18, "align": "left", "clip": True}
    short_when_narrow = {"expr": f"width < {NARROW} ? datum.short : datum.label"}

    def label(values, mark, **encoding):
        """Text on a halo of paper: lines that cross it do not cut it."""
        halo = {"stroke": tone("paper"), "strokeWidth": 5, "strokeJoin": "round"}
        still = {k: v for k, v in encoding.items() if k != "color"}
        return layer(values, {**text, **mark, "color": tone("paper"), **halo}, **still) + layer(values, {**text, **mark}, **encoding)

    top = _labelled(words("wall.compute", rate=amount(chip.peak, "FLOP/s", lang)), amount(chip.peak, "FLOP/s", lang), x=high, y=chip.peak)
    foot = _labelled(words("ridge", x=digits(ridge)), words("ridge_short", x=digits(ridge)), x=ridge, y=y_low)
    near = decode.intensity > ridge / 4  # then decode's label is to the right of the ridge, and the ridge's own to the left
    walls = [
        _labelled(words("wall.memory", rate=amount(bandwidth, "B/s", lang)), id="wall", tone=tone("muted"), x=x0, y=x0 * bandwidth)
        for x0 in (low * (ridge / low) ** share for share in (0.5, 0.3, 0.7, 0.15))
    ]
    if real:
        x0 = low * (ridge / low) ** (0.45 if result.decode_spot.intensity < low * (ridge / low) ** 0.3 else 0.2)  # away from decode and its words
        walls.append(_labelled(words("wall.real"), id="real", tone=tone("muted"), x=x0, y=result.real.line(chip, x0)))
    lesser = [d | {"id": "dots", "far": ((9, 24), (9, 40)), "tone": tone("ink")} for d in dots[:1]] + [f | {"id": "full", "tone": tone("decode")} for f in full] + walls
    named = [_labelled(words.get(f"chip.{r['chip']}", r["name"]), id=r["chip"], tone=tone("ink" if r["chip"] == chip.id else "muted"), x=r["x"], y=r["y"]) for r in ridges]
    texts = []
    for least, most, ids in NAMED:
        frame = Frame(low, high, y_low, y_high, least)
        wide_enough = least >= NARROW
        w, lines = ("w", 2) if wide_enough else ("short_w", 3)
        taken = [frame.box(p["x"], p["y"], -10, -10, 20, 20) for p in points]
        taken += [frame.box(p["x"], p["y"], 12, 12, p[w], lines * LINE) for p in points]
        taken += [frame.box(top["x"], top["y"], -top[w], -28, top[w], LINE), frame.box(foot["x"], foot["y"], -foot[w] - 6 if near else 6, -24, foot[w], LINE)]
        taken += [frame.box(d["x"], d["y"], -5, -5, 10, 10) for d in dots]
        taken += [frame.box(t["x"], t["y"], -6, -6, 12, 12) for t in ridges]
        chosen = sorted((n for n in named if n["id"] in (chip.id, *ids)), key=lambda n: (n["id"] != chip.id, n["id"] not in ALWAYS))
        texts += [t | {"from": least, "to": most} for t in _with_room((lesser if wide_enough else []) + chosen, frame, taken, frame.lines(chip))]
    return {
        "height": HEIGHT,
        "config": theme.vega_config(scene.theme, lang),
        "layer": [
            *layer([{"x": ridge, "y": y_low, "y2": chip.peak}], {"type": "rule", "strokeDash": [2, 4], "color": tone("bound")}, y2={"field": "y2"}),
            *layer(roof, {**line, "strokeDash": [6, 4], "strokeWidth": 2, "color": tone("bound")}),
            *layer(real, {**line, "strokeWidth": 1.5, "color": tone("bound")}),
            *layer(walk, {**line, "strokeWidth": 7, "color": tone("decode"), "opacity": 0.22}),
            {
                **layer(ridges, {"type": "point", "shape": "triangle-up", "filled": True, "size": 70, "cursor": "pointer"})[0],
                "params": [{"name": "chip", "select": {"type": "point", "fields": ["chip"], "clear": False}}],
                "encoding": {
                    "x": x, "y": y,
                    "color": {"condition": {"test": f"datum.chip === '{chip.id}'", "value": tone("ink")}, "value": tone("ghost")},
                    "tooltip": [{"field": "name", "title": words("tip.chip")},
                                {"field": "peak", "title": "TFLOP/s", "format": ",.4~g"}, {"field": "bandwidth", "title": "TB/s", "format": ",.4~g"}],
                },
            },
            *label(texts, {"baseline": "middle", "dx": {"expr": "datum.dx"}, "dy": {"expr": "datum.dy"},
                           "text": {"expr": "width >= datum.from && width < datum.to ? datum.label : ''"}},
                   color={"field": "tone", "type": "nominal", "scale": None}),
            *label([top], {"align": "right", "dx": -4, "dy": -14, "color": tone("muted"), "text": short_when_narrow}),
            *label([foot], {"dx": _inside(f"-(width < {NARROW} ? datum.short_w : datum.w) - 6" if near else "6"), "dy": -10, "color": tone("muted"), "text": short_when_narrow}),
            *layer(dots, {"type": "rule", "color": tone("ink")}, y={**y, "field": "low"}, y2={"field": "high"}),
            *layer(dots, {"type": "point", "filled": True, "size": 60, "color": tone("ink"), "opacity": 0.9},
                   tooltip=[{"field": "label", "title": words("tip.measured")}, {"field": "share", "title": words("tip.of_bound"), "format": ".0%"}]),
            *layer(spots_real, {"type": "rule", "strokeWidth": 2}, y={**y, "field": "low"}, y2={"field": "high"}, color=colour),
            *layer(spots_real, {"type": "point", "filled": True, "size": 55, "opacity": 1}, color=colour, shape=shape, tooltip=[{"field": "label", "title": words("tip.calibrated")}]),
            *layer(ghosts, {"type": "rule", "strokeDash": [1, 3], "color": tone("ghost")}, x2={"field": "x2"}, y2={"field": "y2"}),
            *layer(ghosts, {"type": "point", "filled": False, "size": 130, "strokeWidth": 1.5}, color=colour, shape=shape),
            *label(points, {"fontWeight": 600, "fontSize": 14, "baseline": "top", "dx": _inside("12"), "dy": {"expr": _BELOW}, "text": short_when_narrow}, color=colour),
            *layer(points, {"type": "point", "filled": True, "size": 190, "opacity": 1, "stroke": tone("paper"), "strokeWidth": 1.5}, color=colour, shape=shape,
                   tooltip=[{"field": "label", "title": words("tip.point")}, {"field": "x", "title": "FLOP/B", "format": ",.3~g"}]),
        ],
    }  # fmt: skip


def _reach(ridge: float) -> tuple[float, float]:
    """The chart's range in FLOP/byte; wider to the left where the ridge would stand at the axis."""
    low, high = INTENSITIES
    return (low, high) if ridge >= 3 else (low / 10, high)


# ---- labels: how wide they are, and how they stay inside the plot and off each other

LINE = 18
BOLD = 1.1  # how much wider than 13 px type in regular weight


def _width(text: str) -> float:
    """About the width in px of 13 px type, the longest line's; a little more rather than less."""
    return max(sum(13.5 if ord(c) > 0x2E7F else 8.6 if c.isupper() or c.isdigit() else 7.4 for c in line) for line in text.split("\n"))


def _labelled(label: str, short: str = "", scale: float = 1, **row) -> dict:
    return row | {"label": label, "short": short or label, "w": scale * _width(label), "short_w": scale * _width(short or label)}


def _start(offset: str, row: str = "") -> str:
    """Where a text `offset` px from its x begins, in px, so that neither end leaves the plot; `width` is Vega's signal of
    the plot's width. row "other_": the same of the other point."""
    w = f"(width < {NARROW} ? datum.{row}short_w : datum.{row}w)"
    return f"clamp(scale('x', datum.{row}x) + ({offset}), 4, max(4, width - {w} - 4))"


def _inside(offset: str) -> dict:
    return {"expr": f"{_start(offset)} - scale('x', datum.x)"}


# Decode's label steps below prefill's where the two would lie on each other; neither leaves the plot below.
_TALL = f"(width < {NARROW} ? {3 * LINE} : {2 * LINE})"
_BELOW = (
    f"min(height - {_TALL} - 2 - scale('y', datum.y), isValid(datum.other_x) && {_start('12')} + (width < {NARROW} ? datum.short_w : datum.w) > {_start('12', 'other_')}"
    f" && abs(scale('y', datum.other_y) - scale('y', datum.y)) < {_TALL} + 6"
    f" ? scale('y', datum.other_y) - scale('y', datum.y) + {_TALL} + 18 : 12)"
)


ALWAYS = ("h100-sxm", "a100-80g-sxm")  # the prose speaks of them
NAMED = ((250, NARROW, ALWAYS), (NARROW, 1000, ALWAYS), (1000, 10_000, tuple(facts.published_chips())))  # plot widths, and whose names they have room for


@dataclass(frozen=True)
class Frame:
    """The plot in px, for finding room for names: as narrow as it may be, for they only move apart when it grows."""

    low: float
    high: float
    y_low: float
    y_high: float
    width: float

    def at(self, x: float) -> float:
        return self.width * log10(x / self.low) / log10(self.high / self.low)

    def holds(self, x: float, dx: float, w: float) -> bool:
        return 0 <= self.at(x) + dx and self.at(x) + dx + w <= self.width

    def box(self, x: float, y: float, dx: float, dy: float, w: float, h: float) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of what lies (dx, dy) px off a point, kept inside the plot."""
        left = max(0.0, min(self.at(x) + dx, self.width - w))
        top = PLOT * log10(self.y_high / y) / log10(self.y_high / self.y_low) + dy
        return left, top, left + w, top + h

    def lines(self, chip: Chip) -> list:
        """The roof, as small boxes along it."""
        xs = [self.low * (self.high / self.low) ** (i / 200) for i in range(201)]
        return [self.box(x, min(chip.peak, chip.bandwidth_bytes_per_s * x), -3, -3, 6, 6) for x in xs]


def _with_room(wanted: list[dict], frame: Frame, taken: list, lines: list) -> list[dict]:
    """The texts that find a place beside their points, first come, first served; of several with one id the first that does.
    A text may lie on a line (it has a halo), but only where no other place is left."""
    taken, placed = list(taken), {}
    for row in wanted:
        w = row["w"]
        places = ((-w - 9, 0), (9, 0), (-w / 2, -17), (-w / 2, 17), (-w - 9, -11), (9, 11), (9, -11), (-w - 9, 11), *row.get("far", ()))
        boxes = [(dx, dy, frame.box(row["x"], row["y"], dx, dy - 8, w, 16)) for dx, dy in places]
        free = [
            (dx, dy, box) for dx, dy, box in boxes
            if 0 <= box[1] and box[3] <= PLOT and frame.holds(row["x"], dx, w) and not any(_meet(box, other) for other in taken)
        ]  # fmt: skip
        clear = [b for b in free if not any(_meet(b[2], line) for line in lines)]
        if free and row["id"] not in placed:
            dx, dy, box = (clear or free)[0]
            taken.append(box)
            placed[row["id"]] = row | {"dx": dx, "dy": dy}
    return list(placed.values())


def _meet(a, b) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _strip(result: Placement, scene: Scene) -> dict:
    """Other models at the same setting on a line of bytes per step; a click takes one."""
    words, lang, tone = scene.words, scene.lang, partial(theme.colour, theme=scene.theme)
    values = [
        _labelled(o.name, scale=BOLD, model=o.id, x=o.bytes_per_step, fits=words("strip.fits") if o.fits else words("strip.misfit"), ok=o.fits)
        for o in result.others
    ]
    mine = result.params.model
    me = [v for v in values if v["model"] == mine]  # none for the textbook model
    domain = [min(v["x"] for v in values) / 1.5, max(v["x"] for v in values) * 1.5]
    x = {"field": "x", "type": "quantitative", "scale": {"type": "log", "domain": domain, "nice": False}, "title": words("axis.strip").split("\n"),
         "axis": {"grid": False, "values": [10.0**e for e in range(5, 14) if domain[0] <= 10.0**e <= domain[1]], "labelOverlap": "greedy", "titleLineHeight": LINE,
                  "labelExpr": "datum.value >= 1e9 ? format(datum.value/1e9, ',~g') + ' GB' : format(datum.value/1e6, ',~g') + ' MB'"}}  # fmt: skip
    name = {
        "data": {"values": me},
        "mark": {"type": "text", "align": "left", "clip": True, "dx": _inside("-datum.w / 2"), "dy": -13, "fontSize": 13, "fontWeight": 600, "color": tone("weights")},
        "encoding": {"x": x, "y": {"value": 26}, "text": {"field": "label"}},
    }  # fmt: skip
    return {
        "height": 112,
        "config": theme.vega_config(scene.theme, lang),
        "layer": [
            {
                "data": {"values": values},
                "params": [{"name": "model", "select": {"type": "point", "fields": ["model"], "clear": False}}],
                "mark": {"type": "point", "size": 110, "filled": True, "cursor": "pointer", "opacity": 1},
                "encoding": {
                    "x": x,
                    "y": {"value": 26},
                    "shape": {"condition": {"test": "datum.ok", "value": "circle"}, "value": "M-1,-1L1,1M-1,1L1,-1"},
                    "color": {"condition": {"test": f"datum.model === '{mine}'", "value": tone("weights")}, "value": tone("ghost")},
                    "stroke": {"condition": {"test": f"datum.model === '{mine}'", "value": tone("weights")}, "value": tone("ghost")},
                    "tooltip": [{"field": "label", "title": words("control.model")}, {"field": "x", "format": ".3s", "title": "B"}, {"field": "fits", "title": " "}],
                },
            },
            *([name] if me else []),
        ],
    }  # fmt: skip


PARTS = (("weights", "weight_bytes"), ("kv", "kv_bytes"), ("state", "state_bytes"))


def _ledger(result: Placement, scene: Scene) -> str:
    """The rows behind the step, folded: bytes of each group and its arithmetic; they add up to the step's totals."""
    words, lang = scene.words, scene.lang
    total = result.decode.bytes_per_step
    rows = []
    for op in result.ops:
        kind = next((k for k, field in PARTS if getattr(op, field)), "activations")
        bytes_ = op.bytes or op.activation_bytes
        width = 0 if kind == "activations" else 100 * bytes_ / total
        bar = f'<i style="display:block;height:10px;width:{width:.2f}%;min-width:1px;background:var(--lab-{kind if kind != "activations" else "ghost"})"></i>'
        note = f" ({words('ledger.uncharged')})" if kind == "activations" else ""
        rows.append(
            f"<tr><th scope='row'>{html.escape(words.get('op.' + op.name, op.name))}{html.escape(note)}</th><td class='n'>{op.layers or ''}</td><td class='n'>{amount(bytes_, 'B', lang)}</td>"
            f"<td style='width:30%'>{bar}</td><td class='n'>{amount(op.flops, 'FLOP', lang) if op.flops else '–'}</td></tr>"
        )
    d = result.decode
    rows.append(
        f"<tr class='total'><th scope='row'>{words('ledger.total')}</th><td></td><td class='n'>{amount(d.bytes_per_step, 'B', lang)} → {amount(d.memory_seconds, 's', lang)}</td>"
        f"<td></td><td class='n'>{amount(d.flops_per_step, 'FLOP', lang)} → {amount(d.compute_seconds, 's', lang)}</td></tr>"
    )
    heads = "".join(f"<th scope='col'>{words('ledger.' + c)}</th>" for c in ("part", "layers", "bytes", "share", "flops"))
    return (
        f'<details class="lab-papers lab-ledger"><summary>{words("ledger.title", bytes=amount(d.bytes_per_step, "B", lang), flops=amount(d.flops_per_step, "FLOP", lang))}</summary>'
        f'<div class="lab-scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div></details>'
    )


def _model_name(id: str) -> str:
    return facts.model(id).name


def _chips() -> tuple[str, ...]:
    return (*facts.published_chips(), "this-machine")


def _chip_name(id: str) -> str:
    return facts.chip(id).name


WIDGET = Widget(
    id="roofline-placer",
    Params=Params,
    controls=(
        Choice("model", lambda: tuple(facts.models()), _model_name),
        Choice("chip", _chips, _chip_name),
        Stops("batch", BATCHES),
        Stops("context", LENGTHS),
        Stops("prompt", (16, 64, *LENGTHS)),
        Stops("weight_bits", (2, 3, 4, 5, 6, 8, 16, 32), lambda v: f"{v:g}"),
        Stops("group", (32, 64, 128, 256, 1024)),
        Stops("kv_bits", (4, 8, 16, 32), lambda v: f"{v:g}"),
    ),
    run=run,
    draw=draw,
    live=Live("machine.measure", lambda params: {}, when=lambda params: params.chip == "this-machine"),
    guesses={
        "upgrade": Guess(
            choices=("same", "decode", "compute", "ten"),
            right=lambda r: "decode",
            truth=lambda r: Quantity(r.upgrade, "×", "computed", "bandwidth(H100) / bandwidth(A100)"),
        ),
    },
)
