"""One decoded token and one prompt on the same clock: what is moved, what is computed, and which of the two is long."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from functools import partial
from math import floor, log10
from typing import Literal

from components import Guess, Html, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Stops
from components.text import Words, amount, digits, short
from compute import facts, roofline
from compute.facts import Chip, ChipName, ModelName
from compute.quantity import Quantity
from compute.roofline import Batch, Bits, Context, Group, KvBits, Op, Prompt

BATCHES = (1, 2, 4, 8, 16, 32, 58, 64, 128, 256, 512)
PROMPTS = (1, 4, 16, 64, 250, 1000, 2048, 4096, 8192, 16384, 32768)
CONTEXTS = (0, 128, 512, 1000, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
HAIR = 0.012  # a bar shorter than this part of the axis gets a magnifier
LENS_FILL = 0.55  # the most of the magnifier's width that the bar in it may take


@parameters
class Params:
    model: ModelName = "qwen3.8-27b"
    chip: ChipName = "h100-sxm"
    batch: Batch = 1
    context: Context = 4096
    prompt: Prompt = 1000
    weight_bits: Bits = 16
    group: Group = 128
    kv_bits: KvBits = 16


Tone = Literal["weights", "kv", "state"]


@dataclass(frozen=True)
class Part:
    """A row of the account: matrices of one sort, or what the requests keep."""

    id: str
    tone: Tone
    bytes: float
    flops: float


@dataclass(frozen=True)
class Phase:
    tokens: int  # tokens that the phase yields (decode) or reads (prefill)
    parts: tuple[Part, ...]
    bytes: float
    flops: float
    memory_seconds: float
    compute_seconds: float

    @property
    def seconds(self) -> float:
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def bound(self) -> roofline.Bound:
        return "memory" if self.memory_seconds >= self.compute_seconds else "compute"

    @property
    def ratio(self) -> float:
        """Moving time over computing time."""
        return self.memory_seconds / self.compute_seconds

    @property
    def compute_share(self) -> float:
        return self.compute_seconds / self.seconds


@dataclass(frozen=True)
class Account:
    params: Params
    model_name: str
    chip: Chip
    decode: Phase
    prefill: Phase
    textbook: bool
    cards_needed: int

    @property
    def phases(self) -> tuple[tuple[str, Phase], ...]:
        return ("decode", self.decode), ("prefill", self.prefill)


def run(params: Params, answer=None) -> Account:
    shape, chip = facts.model(params.model), facts.chip(params.chip)
    stored = {"weight_bits": params.weight_bits, "group": params.group, "kv_bits": params.kv_bits}
    step = roofline.decode(params.model, params.chip, params.batch, params.context, **stored)
    sides = {
        phase: roofline.ledger(params.model, params.chip, phase, params.batch, params.context, params.prompt, **stored)
        for phase in ("decode", "prefill")
    }
    decode, prefill = (
        Phase(tokens, _parts(side.ops), side.bytes, side.flops, side.memory_seconds, side.compute_seconds)
        for tokens, side in ((params.batch, sides["decode"]), (params.prompt, sides["prefill"]))
    )
    return Account(params, shape.name, chip, decode, prefill, step.textbook, step.cards_needed)


FEED_FORWARD = ("swiglu", "router", "experts", "shared_expert")


def _parts(ops: tuple[Op, ...]) -> tuple[Part, ...]:
    """Ops of one sort added up, in the order of the first of each; activations stay on the chip and are not charged."""
    sums: dict[tuple[str, Tone], list[float]] = {}
    for op in ops:
        if op.name == "activations":
            continue
        row = sums.setdefault(_sort(op), [0.0, 0.0])
        row[0] += op.bytes
        row[1] += op.flops
    return tuple(Part(id, tone, *row) for (id, tone), row in sums.items())


def _sort(op: Op) -> tuple[str, Tone]:
    if op.name.endswith(".cache"):
        return "kv", "kv"
    if op.name == "state":
        return "state", "state"
    if op.name in FEED_FORWARD:
        return "experts" if op.name != "swiglu" else "feed_forward", "weights"
    if op.name in ("lm_head", "weights"):
        return op.name, "weights"
    return "linear_attention" if op.name.startswith("gdn.") else "attention", "weights"


# ---- drawing


def draw(result: Account, scene: Scene) -> View:
    words = scene.words
    simplified = words("simplified")
    if result.textbook:
        simplified = words("textbook", bytes=amount(result.decode.bytes, "B", scene.lang), cards=result.cards_needed,
                           memory=f"{result.chip.memory_bytes / 1e9:g} GB") + simplified  # fmt: skip
    if result.params.weight_bits < 16:
        simplified += words("weight_only", bits=f"{result.params.weight_bits:g}", group=result.params.group)
    if any(part.id == "experts" for part in result.decode.parts):
        simplified += words("experts")
    return View(
        picture=Stage(picture(result, scene), steps=1, height=470),
        beside=(Html(_ledger(result, scene)),),
        readouts=_readouts(result, scene),
        sentence=_says(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        simplified=simplified,
    )


def picture(result: Account, scene: Scene) -> dict:
    """What view.js draws: lengths as parts of one linear time axis, words and numbers ready to print."""
    words, lang, p = scene.words, scene.lang, result.params
    show = partial(amount, lang=lang)
    axis = max(s for _, phase in result.phases for s in (phase.memory_seconds, phase.compute_seconds))
    before = dict(scene.before.phases) if scene.before is not None else {}
    count = {"batch": f"{p.batch:,}", "context": f"{p.context:,}", "prompt": show(p.prompt, "token")}
    panels = []
    for id, phase in result.phases:
        old = before.get(id)
        many = "batch" if id == "decode" and p.batch > 1 else "one" if id == "decode" else "prompt"
        panels.append({
            "id": id,
            "title": words(f"panel.{id}.{many}", **count),
            "about": _textbook(result, words, lang) if result.textbook and id == "decode" else words(f"panel.{id}.about", **count),
            "bound": phase.bound,
            "move": {
                "name": words("bar.move"), "length": phase.memory_seconds / axis, "seconds": show(phase.memory_seconds, "s"),
                "what": show(phase.bytes, "B"), "ghost": _ghost(old and old.memory_seconds, phase.memory_seconds, axis),
                "parts": [
                    {"tone": part.tone, "name": words(f"part.{part.id}"), "amount": show(part.bytes, "B"), "length": part.bytes / phase.bytes * phase.memory_seconds / axis}
                    for part in phase.parts if part.bytes
                ],
            },
            "compute": {
                "name": words("bar.compute"), "length": phase.compute_seconds / axis, "seconds": show(phase.compute_seconds, "s"),
                "what": show(phase.flops, "FLOP"), "ghost": _ghost(old and old.compute_seconds, phase.compute_seconds, axis),
            },
            "lens": _lens(phase, axis, words, lang),
        })  # fmt: skip
    return {
        "panels": panels,
        "axis": {"title": words("axis"), **_ticks(axis, lang)},
        "legend": {tone: words(f"legend.{tone}") for tone in ("weights", "kv", "state", "compute")},
        "shown": [tone for tone in ("weights", "kv", "state") if any(part.tone == tone for part in result.decode.parts if part.bytes)] + ["compute"],
        "ghost": words("legend.ghost") if before else "",
    }


def _textbook(result: Account, words: Words, lang: str) -> str:
    memory = f"{result.chip.memory_bytes / 1e9:g} GB"
    return words("panel.decode.textbook", bytes=amount(result.decode.bytes, "B", lang), cards=result.cards_needed, memory=memory)


def _ghost(old: float | None, now: float, axis: float) -> float | None:
    return None if old is None or abs(old - now) < 1e-9 * now else old / axis


def _lens(phase: Phase, axis: float, words: Words, lang: str) -> dict | None:
    """A magnifier at the axis's zero for a computing bar that is only a hair."""
    hair = phase.compute_seconds / axis
    if hair >= HAIR or phase.bound == "compute":
        return None
    factor = _round_down(LENS_FILL / hair)
    return {
        "factor": factor,
        "length": hair * factor,
        "title": words("lens.title", factor=f"{factor:,}"),
        "label": f"{words('bar.compute')} {amount(phase.compute_seconds, 's', lang)}",
        "beyond": words("lens.beyond", screens=digits(factor * phase.memory_seconds / axis, 2)),
        **_ticks(axis / factor, lang),
    }


def _round_down(x: float) -> int:
    """The largest of 1, 2, 5 × 10ⁿ that is not above x."""
    decade = 10 ** floor(log10(x))
    return int(next(m for m in (5, 2, 1) if m * decade <= x) * decade)


def _ticks(end: float, lang: str) -> dict:
    """Round times from zero to the end of an axis, nine at most, all in one unit."""
    decade = 10 ** floor(log10(end))
    step = next(m for m in (0.1, 0.2, 0.5, 1, 2) if end / (m * decade) <= 8) * decade
    _, unit = short(end, "s", lang)
    factor = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}[unit]
    marks = [i * step for i in range(int(end / step * (1 + 1e-9)) + 1)]
    return {"ticks": [{"at": t / end, "label": f"{t * factor:,.6g}"} for t in marks], "unit": unit}


def _readouts(result: Account, scene: Scene) -> tuple[Readout, ...]:
    words, lang, old = scene.words, scene.lang, scene.before
    d, f = result.decode, result.prefill

    def one(id: str, value: float, unit: str, was: float | None, note: str = "") -> Readout:
        change = "" if was is None or digits(was) == digits(value) else words("before", value=amount(was, unit, lang))
        return Readout(words(f"readout.{id}"), *short(value, unit, lang), change, note)

    each = words("readout.each.note", prefill=amount(f.seconds / f.tokens, "s", lang))
    return (
        one("move", d.memory_seconds, "s", old and old.decode.memory_seconds, amount(d.bytes, "B", lang)),
        one("compute", d.compute_seconds, "s", old and old.decode.compute_seconds, amount(d.flops, "FLOP", lang)),
        one("ratio", d.ratio, "×", old and old.decode.ratio, words("readout.ratio.note", share=amount(d.compute_share, "ratio", lang))),
        one("speed", d.tokens / d.seconds, "token/s", old and old.decode.tokens / old.decode.seconds),
        one("each", d.seconds / d.tokens, "s", old and old.decode.seconds / old.decode.tokens, each),
    )


def _says(result: Account, scene: Scene) -> str:
    words, p = scene.words, result.params
    show = partial(amount, lang=scene.lang)
    d, f = result.decode, result.prefill
    many = "one" if p.batch == 1 else "batch"
    decode = words(
        f"says.decode.{d.bound}.{many}", batch=f"{p.batch:,}", bytes=show(d.bytes, "B"), move=show(d.memory_seconds, "s"), flops=show(d.flops, "FLOP"),
        compute=show(d.compute_seconds, "s"), ratio=digits(d.ratio), inverse=digits(1 / d.ratio), share=show(d.compute_share, "ratio"),
    )  # fmt: skip
    prefill = words(
        f"says.prefill.{f.bound}", prompt=show(p.prompt, "token"), bytes=show(f.bytes, "B"), move=show(f.memory_seconds, "s"),
        compute=show(f.compute_seconds, "s"), ratio=digits(f.ratio), inverse=digits(1 / f.ratio),
    )  # fmt: skip
    return decode + prefill


def _rows(result: Account) -> tuple[dict, ...]:
    setting = {**asdict(result.params), "ideal_bound": True}
    bandwidth, peak = result.chip.bandwidth_bytes_per_s, result.chip.peak
    rows = []
    for id, phase in result.phases:
        rows += [
            {"phase": id, "part": part.id, "bytes": part.bytes, "flops": part.flops,
             "memory_seconds": part.bytes / bandwidth, "compute_seconds": part.flops / peak}
            for part in phase.parts
        ]  # fmt: skip
        rows.append({"phase": id, "part": "total", "bytes": phase.bytes, "flops": phase.flops,
                     "memory_seconds": phase.memory_seconds, "compute_seconds": phase.compute_seconds})  # fmt: skip
    return tuple(setting | row for row in rows)


# ---- the itemised account


def _ledger(result: Account, scene: Scene) -> str:
    """Bytes and FLOPs by part, both phases side by side, each column in one unit so that it can be added up by eye."""
    words, lang = scene.words, scene.lang
    columns = [(phase, field, unit) for _, phase in result.phases for field, unit in (("bytes", "B"), ("flops", "FLOP"))]
    scaled = [_scale(getattr(phase, field), unit, lang) for phase, field, unit in columns]
    ids = list(dict.fromkeys(part.id for _, phase in result.phases for part in phase.parts))
    found = [{part.id: part for part in phase.parts} for _, phase in result.phases]
    number = "text-align:right;font-family:var(--lab-figures);font-variant-numeric:tabular-nums;padding:5px 0 5px 10px;white-space:nowrap"
    line = "border:0;border-top:1px solid var(--lab-hairline)"

    def cells(values, extra="") -> str:
        return "".join(
            f'<td style="{line};{number};{extra}">{f"{v / factor:,.{places}f}" if v else "–"}</td>' for v, (factor, places, _) in zip(values, scaled)
        )

    body = ""
    for id in ids:
        part = next(p[id] for p in found if id in p)
        values = [getattr(p[id], field) if id in p else 0.0 for p, field in ((found[0], "bytes"), (found[0], "flops"), (found[1], "bytes"), (found[1], "flops"))]
        swatch = f'<i style="display:inline-block;width:10px;height:10px;margin-right:7px;background:var(--lab-{part.tone});border-radius:{"50%" if part.tone == "state" else "1px"}"></i>'
        body += f'<tr><th scope="row" style="{line};text-align:left;font-weight:400;padding:5px 0">{swatch}{html.escape(words(f"part.{id}"))}</th>{cells(values)}</tr>'
    totals = [getattr(phase, field) for phase, field, _ in columns]
    strong = "border-top:1.5px solid var(--lab-ink);font-weight:600"
    body += f'<tr><th scope="row" style="{line};{strong};text-align:left;padding:5px 0">{words("ledger.total")}</th>{cells(totals, strong)}</tr>'
    heads = "".join(
        f'<th scope="col" style="border:0;{number};font-weight:500;color:var(--lab-muted);vertical-align:bottom">{words("bar." + ("move" if unit == "B" else "compute"))}<br>{shown}</th>'
        for (_, _, unit), (_, _, shown) in zip(columns, scaled)
    )
    over = "".join(
        f'<th scope="colgroup" colspan="2" style="border:0;border-bottom:2px solid var(--lab-{id});text-align:right;padding:2px 0 4px 10px;font-weight:600">{html.escape(words(f"ledger.{id}", tokens=f"{phase.tokens:,}"))}</th>'
        for id, phase in result.phases
    )
    return (
        f'<div style="overflow-x:auto"><table style="border-collapse:collapse;width:100%;font-size:14px;line-height:1.4">'
        f'<thead><tr><td style="border:0"></td>{over}</tr><tr><td style="border:0"></td>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
        f'<p class="lab-simplified" style="margin-top:6px">{html.escape(words("ledger.adds"))}</p>'
    )


def _scale(total: float, unit: str, lang: str) -> tuple[float, int, str]:
    """Divisor, decimals and unit for a column whose total shows three digits or more."""
    _, shown = short(total, unit, lang)
    factor = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}[shown.removesuffix(unit)]
    return factor, (3 if total / factor < 10 else 2), shown


# ---- where the numbers come from


def _papers(result: Account) -> tuple[Quantity, ...]:
    p, chip, shape = result.params, result.chip, facts.model(result.params.model)
    per_weight = roofline.weight_bytes(p.weight_bits, p.group)
    d, f = result.decode, result.prefill
    setting = {"model": shape.name, "chip": chip.name}

    def computed(value, unit, formula, zh, en, **inputs):
        return Quantity(value, unit, "computed", formula, inputs, conditions=setting, says={"zh": zh, "en": en})

    def given(value, unit, zh, en):
        kind = "measured" if chip.measured else "quoted"
        note = {"note": chip.note or (chip.source.note if chip.source else "")}
        return Quantity(value, unit, kind, source=chip.source, conditions=note, says={"zh": f"{chip.name} {zh}", "en": f"{chip.name} {en}"})

    return (
        computed(d.memory_seconds, "s", "bytes / bandwidth", "decode 一步搬运的时间", "moving time of a decode step", bytes=d.bytes, bandwidth=chip.bandwidth_bytes_per_s),
        computed(d.bytes, "B", "weights read + batch × (context × KV per token + 2 × state)", "decode 一步搬的字节", "bytes of a decode step",
                 bytes_per_weight=per_weight, batch=p.batch, context=p.context, kv_bits=p.kv_bits, state=shape.state_bytes),
        computed(d.compute_seconds, "s", "FLOP / peak", "decode 一步计算的时间", "computing time of a decode step", flop=d.flops, peak=chip.peak),
        computed(d.flops, "FLOP", "batch × (2 × parameters + attention over the context)", "decode 一步的运算", "arithmetic of a decode step",
                 parameters=shape.parameters_per_token, batch=p.batch, context=p.context),
        computed(d.ratio, "×", "moving time / computing time", "搬 ÷ 算", "moving over computing", moving=d.memory_seconds, computing=d.compute_seconds),
        computed(d.compute_share, "ratio", "computing time / max(moving, computing)", "用到的算力", "share of the arithmetic in use", computing=d.compute_seconds, step=d.seconds),
        computed(d.tokens / d.seconds, "token/s", "batch / max(moving, computing)", "decode 吞吐", "decode throughput", batch=p.batch, step=d.seconds),
        computed(f.memory_seconds, "s", "(weights read once + KV written + state) / bandwidth", "prefill 搬运的时间", "moving time of the prefill", bytes=f.bytes, bandwidth=chip.bandwidth_bytes_per_s),
        computed(f.compute_seconds, "s", "(2 × parameters × n + Σ 2 n² × heads × head_dim) / peak", "prefill 计算的时间", "computing time of the prefill", n=p.prompt, flop=f.flops, peak=chip.peak),
        computed(f.seconds / f.tokens, "s", "max(moving, computing) / n", "prefill 里每个 token 的时间", "time per token in the prefill", n=p.prompt, seconds=f.seconds),
        given(chip.bandwidth_bytes_per_s, "B/s", "带宽", "bandwidth"),
        given(chip.peak, "FLOP/s", "16 位峰值(稠密)", "16-bit peak (dense)"),
        Quantity(shape.parameters_per_token, "parameter", "quoted", "Σ matrices multiplied (lm_head included, embedding row not)", source=shape.source,
                 says={"zh": f"{shape.name} 每个 token 参与相乘的参数,由 config 得出", "en": f"parameters {shape.name} multiplies per token, from its config"}),
    )  # fmt: skip


SHARES = {"p03": 0.003, "p3": 0.03, "p30": 0.3, "p90": 0.9}


def nearest_share(result: Account) -> str:
    """The offered share that is nearest to the true one, by ratio."""
    return min(SHARES, key=lambda id: abs(log10(SHARES[id] / result.decode.compute_share)))


WIDGET = Widget(
    id="time-ledger",
    Params=Params,
    controls=(
        Choice("model", lambda: tuple(facts.models()), lambda id: facts.model(id).name),
        Choice("chip", lambda: tuple(facts.chips()), lambda id: facts.chip(id).name),
        Stops("batch", BATCHES),
        Stops("prompt", PROMPTS),
        Stops("context", CONTEXTS),
        Stops("weight_bits", (2, 3, 4, 6, 8, 16), lambda v: f"{v:g}"),
        Stops("group", (32, 64, 128, 256, 1024)),
        Stops("kv_bits", (4, 8, 16), lambda v: f"{v:g}"),
    ),
    run=run,
    draw=draw,
    guesses={
        "share": Guess(
            choices=tuple(SHARES),
            right=nearest_share,
            truth=lambda r: Quantity(
                r.decode.compute_share, "ratio", "computed", "computing time / step time",
                {"computing": r.decode.compute_seconds, "step": r.decode.seconds},
            ),
        ),
    },
)  # fmt: skip
