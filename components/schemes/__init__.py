"""Accuracy against bytes: every scheme a point, what training again would change as a band, and what the chosen one is made of."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from components import Guess, Html, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice
from components.text import Words, amount, digits, short
from compute import facts, numbers, precompute
from compute.errors import BadInput, BrokenData
from compute.measures.quantize import TABLES
from compute.quantity import Quantity
from compute.quantize import schemes
from compute.quantize.grid import DOUBLE_BLOCK, Grid, Table, Uniform, grouped, storage_bits
from compute.quantize.paired import SIGMAS, Change, Verdict, noise_floor, verdict
from compute.quantize.schemes import SCHEMES, Scheme, Stored

OURS, PUBLIC = MODELS = ("mini-256", "smollm2-135m")
DOMAINS = ("all", "modern", "classical", "english", "stories", "stories-en")
FAMILIES = ("float", "rtn", "gptq", "awq", "fp8", "fp4", "w8a8", "kv")
LANES = ("float", "w8a8", "kv")  # families that have no place on the axis: 16 bits, or something else than weights in fewer
NAMED = ("int8-channel", "int4-g64", "int4-channel", "int3-g32", "int2-g32", "nf4", "mxfp4", "nvfp4", "fp8-e4m3-channel", "fp8-e5m2-channel", "gptq-int3-channel", "int3-channel", "int4-tensor")
LARGE, CHIP, LARGE_ROW = "70b-dense", "h100-sxm", 4096  # the textbook's; rows as in the lesson's counts of bits
TIMED = {"bf16": "bf16", "int8-channel-head8": "int8", "int4-g64-head8": "int4", "int4-g64": "int4-head16"}  # schemes that decoding was timed with
SMALL_CHANGE = 1e-3  # nats: below, the axis is linear
VERDICTS: tuple[Verdict, ...] = ("none", "noise", "beyond")


@parameters
class Params:
    """chosen: the scheme that is looked at. domain: of the text that the loss is taken on. zoom: of the upward axis."""

    model: Literal["mini-256", "smollm2-135m"] = "mini-256"
    chosen: str = "int4-g64"
    family: Literal["all", "float", "rtn", "gptq", "awq", "fp8", "fp4", "w8a8", "kv"] = "all"
    zoom: Literal["all", "floor"] = "all"
    domain: Literal["all", "modern", "classical", "english", "stories", "stories-en"] = "all"
    sort: Literal["bits", "loss", "family"] = "bits"


@dataclass(frozen=True)
class Point:
    """A scheme that was measured. changes: by domain, nats per token. judged: on the domain that is looked at. part: known from a
    part of the text only, just now."""

    scheme: Scheme
    stored: Stored
    changes: Mapping[str, Change]
    change: Change
    judged: Verdict
    conditions: Mapping[str, Any]
    part: bool = False
    pareto: bool = False

    @property
    def lane(self) -> str:
        return self.scheme.family if self.scheme.family in LANES else ""


@dataclass(frozen=True)
class Fresh:
    """What the service measured just now, on a part of the text."""

    scheme: str
    change: Change
    seconds: float
    conditions: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """floors: 3σ of re-trainings, by domain; {} where nobody trained again. loss: of the model as it is. asked: what was chosen, if that was not measured here."""

    params: Params
    points: tuple[Point, ...]
    loss: float | None
    floors: Mapping[str, float]
    chosen: Point
    asked: str
    fresh: Fresh | None
    speeds: Mapping[str, Quantity]  # tokens/s of decoding on one machine, by scheme
    mark: Literal["live", "precomputed"]

    @property
    def domain(self) -> str:
        return domain_of(self.params)

    @property
    def floor(self) -> float | None:
        return self.floors.get(self.domain)

    @property
    def shown(self) -> tuple[Point, ...]:
        return tuple(p for p in self.points if self.params.family in ("all", p.scheme.family))

    def count(self, judged: Verdict) -> int:
        return sum(p.judged == judged for p in self.points)


def domain_of(params: Params) -> str:
    """Another's model has one kind of text."""
    return params.domain if params.model == OURS else "all"


# ---- what is stored


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    """Raises UnknownName for a scheme that there is not, BrokenData where nothing was measured on this model."""
    schemes.scheme(params.chosen)
    kept = precompute.stored() | numbers.measured_entries()
    floors = _floors() if params.model == OURS else {}
    points = [_point(kept, params, scheme, floors) for scheme in SCHEMES.values() if _key(params.model, scheme.id) in kept]
    if not points:
        raise BrokenData("data/precomputed.json", f"no entry quantize.{params.model}.…; run python -m compute precompute --only quantize.{params.model}",
                         f"没有 quantize.{params.model}.… 这些条目；请运行 python -m compute precompute --only quantize.{params.model}")  # fmt: skip
    fresh = _fresh(answer) if answer is not None else None
    if fresh and _key(params.model, fresh.scheme) not in kept:
        measured = _judged(schemes.scheme(fresh.scheme), params, {domain_of(params): fresh.change}, fresh.conditions, floors)
        points.append(replace(measured, part=True))
    points = _with_pareto(points)
    chosen = next((p for p in points if p.scheme.id == params.chosen), None)
    asked = "" if chosen else params.chosen
    chosen = chosen or _nearest(points, schemes.scheme(params.chosen))
    own = kept.get(f"quantize.{params.model}.loss")
    return Result(params, tuple(points), own and own["value"], floors, chosen, asked, fresh, _speeds(params.model), "live" if fresh else "precomputed")


def _speeds(model: str) -> dict[str, Quantity]:
    keys = {scheme: f"~quantize.{model}.{format}.tokens_per_second" for scheme, format in TIMED.items()}
    return {scheme: numbers.resolve(key) for scheme, key in keys.items() if key[1:] in numbers.measured_entries()}


def _key(model: str, scheme: str) -> str:
    return f"quantize.{model}.{scheme}.loss_change"


def _point(kept: Mapping[str, Any], params: Params, scheme: Scheme, floors: Mapping[str, float]) -> Point:
    key = _key(params.model, scheme.id)
    entry, told = kept[key], precompute.recorded(key)["domains"]
    changes = {"all": Change(entry["value"], *entry["interval95"], entry["n"], 0)}
    changes |= {domain: Change(c["change"], c["low"], c["high"], c["tokens"], 0) for domain in DOMAINS if (c := told.get(domain))}
    return _judged(scheme, params, changes, entry["conditions"], floors)


def _judged(scheme: Scheme, params: Params, changes: Mapping[str, Change], conditions: Mapping[str, Any], floors: Mapping[str, float]) -> Point:
    domain = domain_of(params)
    change = changes.get(domain) or changes["all"]
    return Point(scheme, of_model(scheme, params.model), changes, change, verdict(change, floors.get(domain, math.inf)), conditions)


@cache
@facts.made_of("checkpoints/noise-floor.json")
def _floors() -> dict[str, float]:
    """3σ of re-trainings with other seeds, by domain, and "all": over the whole text."""
    told = facts.read_json(facts.DATA / "checkpoints" / "noise-floor.json")
    return {domain: SIGMAS * row["sd_nats_per_token"] for domain, row in told["spread"].items()} | {"all": noise_floor().value}


def _with_pareto(points: list[Point]) -> list[Point]:
    """Marks those that no scheme on the axis undercuts in bits and in loss at once."""
    best, found = math.inf, set()
    for p in sorted((p for p in points if not p.lane and p.scheme.head is None), key=lambda p: (p.stored.bits_per_weight, p.change.value)):
        if p.change.value < best:
            best = p.change.value
            found.add(p.scheme.id)
    return [replace(p, pareto=p.scheme.id in found) for p in points]


def _nearest(points: list[Point], wanted: Scheme) -> Point:
    """The measured scheme most like the one that was not: its family, then its bits."""
    bits = lambda s: s.weights.numbers.bits if s.weights else schemes.REST_BITS  # noqa: E731
    return min(points, key=lambda p: (p.scheme.family != wanted.family, abs(bits(p.scheme) - bits(wanted)), p.scheme.weights != wanted.weights))


def _fresh(answer: Mapping[str, Any]) -> Fresh:
    return Fresh(answer["scheme"], Change(**answer["cost"]["change"]), answer["seconds"], answer["conditions"])


@cache
def of_model(scheme: Scheme, model: str) -> Stored:
    *matrices, head = matrix_shapes(model)
    return schemes.stored(scheme, matrices, head)


@cache
def matrix_shapes(model: str) -> list[tuple[int, int]]:
    """(out, in) of a Llama model's matrices as they are read and quantized, lm_head last."""
    config = facts.model(model).config
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    heads, both = config["num_attention_heads"] * head, 2 * config["num_key_value_heads"] * head
    layer = [(heads + both, hidden), (hidden, heads), (2 * inner, hidden), (hidden, inner)]
    return [*layer * config["num_hidden_layers"], (config["vocab_size"], hidden)]


def bits_of_large(scheme: Scheme) -> float:
    """Bits per weight in a large model's rows."""
    return storage_bits(scheme.weights, LARGE_ROW, LARGE_ROW) / LARGE_ROW**2 if scheme.weights else schemes.REST_BITS


def arithmetic(grid: Grid, rows: int, width: int) -> str:
    """How the bits of a weight come about in a matrix (rows, width): "4 + (16 + 4)/32"."""
    scales, symmetric = grid.scales, isinstance(grid.numbers, Table) or grid.numbers.symmetric
    share = rows * width if grid.block == "tensor" else grouped(width, grid.block)
    own = f"{scales.bits}" if symmetric else f"({scales.bits} + {grid.numbers.bits})"
    told = f"{grid.numbers.bits} + {own}/{share:,}"
    if scales.name == "double":
        return told + f" + {scales.tensor_bits}/({DOUBLE_BLOCK} × {share:,}) + {scales.tensor_bits}/{rows * width:,}"
    return told + (f" + {scales.tensor_bits}/{rows * width:,}" if scales.tensor_bits else "")


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words = scene.words
    domains = (Stage(_domains(result, scene), height=260),) if len(result.chosen.changes) > 2 else ()  # with one kind, it is all there is
    return View(
        picture=Stage(_stage(result, scene), height=520, picks=("chosen",)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        after=(*domains, Html(_card(result, scene)), Html(_table(result, scene))),
        simplified=_simplified(result, words),
    )


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    params, words, floor = result.params, scene.words, result.floor
    old = scene.before
    moved = old.chosen if old is not None and old.params.model == params.model and old.chosen.scheme.id != result.chosen.scheme.id else None
    changes = [p.change for p in result.points]
    most = max(c.high for c in changes)
    if params.zoom == "all":
        scale = {"kind": "symlog", "linear": SMALL_CHANGE, "low": min(-2 * SMALL_CHANGE, *(c.low for c in changes)), "high": most * 1.25}
    else:
        near = 1.35 * floor if floor else max(10 * SMALL_CHANGE, sorted(c.high for c in changes)[len(changes) // 2] * 1.5)
        scale = {"kind": "linear", "linear": 0, "low": -near / 8, "high": min(near, most * 1.25)}
    return {
        "part": "chart", "scale": scale | {"ticks": _ticks(scale)}, "floor": floor, "floorHigh": noise_floor().high if floor and result.domain == "all" else floor, "lanes": [lane for lane in LANES if any(p.lane == lane for p in result.shown)],
        "points": [
            {
                "id": p.scheme.id, "x": p.stored.bits_per_weight, "lane": p.lane, "y": p.change.value, "low": p.change.low, "high": p.change.high,
                "family": p.scheme.family, "pareto": p.pareto, "named": p.scheme.id in NAMED, "chosen": p is result.chosen, "planted": p.scheme.planted,
                "tip": f"{p.scheme.id} · {digits(p.stored.bits_per_weight)} bit · {signed(p.change)}",
            }
            for p in result.shown
        ],
        "ghost": moved.scheme.id if moved else None, "families": [f for f in FAMILIES if any(p.scheme.family == f for p in result.points)],
        "fresh": {"id": result.fresh.scheme, "y": result.fresh.change.value, "low": result.fresh.change.low, "high": result.fresh.change.high} if result.fresh and not result.chosen.part else None,
        "floorText": words("band", floor=digits(floor)) if floor else "", "says": _sentence(result, scene),
    }  # fmt: skip


def _ticks(scale: Mapping[str, Any]) -> list[float]:
    if scale["kind"] == "symlog":
        return [v for v in (-0.01, -0.001, 0, 0.001, 0.01, 0.1, 1, 10) if scale["low"] <= v <= scale["high"]]
    step = 10 ** math.floor(math.log10(scale["high"]))
    step = next(k * step for k in (0.1, 0.2, 0.25, 0.5, 1, 2) if scale["high"] / (k * step) <= 6)
    return [k * step for k in range(math.ceil(scale["low"] / step), math.floor(scale["high"] / step) + 1)]


def _domains(result: Result, scene: Scene) -> dict[str, Any]:
    words, chosen = scene.words, result.chosen
    changes, decimals = chosen.changes, decimals_of(*chosen.changes.values())
    floors = [result.floors.get(d, 0.0) for d in chosen.changes]
    low, high = min(0.0, *(c.low for c in changes.values())), max(c.high for c in changes.values())
    reach = 1.15 * max(*floors, high, -low) if max(floors) else 1.15 * max(high, -low)
    return {
        "part": "domains", "title": words("domains", scheme=chosen.scheme.id), "low": -reach if -low > 0.1 * reach else -0.25 * reach, "high": reach,
        "rows": [
            {"name": words(f"option.domain.{domain}"), "chosen": domain == result.domain, "value": c.value, "low": c.low, "high": c.high,
             "floor": result.floors.get(domain), "text": signed(c, decimals)}
            for domain, c in changes.items()
        ],
        "says": words("domains", scheme=chosen.scheme.id) + words("colon") + words("semicolon").join(
            words("domain_says", domain=words(f"option.domain.{d}"), change=signed(c), low=shown(c)[1], high=shown(c)[2]) for d, c in changes.items()),
    }  # fmt: skip


def decimals_of(*changes: Change) -> int:
    """Enough for two digits of the widest interval's reach; more would mean nothing."""
    reach = max(1e-5, *((c.high - c.low) / 2 for c in changes))
    return min(6, max(2, 1 - math.floor(math.log10(reach))))


def shown(change: Change, decimals: int | None = None) -> tuple[str, str, str]:
    """Value, low and high, signed."""
    decimals = decimals_of(change) if decimals is None else decimals
    return tuple(f"{v:+.{decimals}f}".replace("-", "−") for v in (change.value, change.low, change.high))


def signed(change: Change, decimals: int | None = None) -> str:
    return shown(change, decimals)[0]


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, p, old = scene.words, scene.lang, result.chosen, scene.before.chosen if scene.before is not None else None
    large, bandwidth = _large(p.scheme)
    bytes_, unit = short(p.stored.bytes, "B", lang)

    def was(of) -> str:
        return words("before", value=of(old)) if old is not None and of(old) != of(p) else ""

    return (
        Readout(words("readout.change"), signed(p.change), words("unit.nats"), was(lambda q: signed(q.change)), words("interval", low=shown(p.change)[1], high=shown(p.change)[2])),
        Readout(words("readout.perplexity"), f"×{math.exp(p.change.value):.3f}" if p.change.value < 2 else "×" + digits(math.exp(p.change.value)), "", was(lambda q: f"×{math.exp(q.change.value):.3f}"),
                _verdict(p, result, words)),
        Readout(words("readout.bits"), _bits(p.stored.bits_per_weight), words("unit.bits"), was(lambda q: _bits(q.stored.bits_per_weight)), words("note.bits")),
        Readout(words("readout.bytes"), bytes_, unit, was(lambda q: amount(q.stored.bytes, "B", lang)), words("note.bytes", times=digits(4 * _weights(result.params.model) / p.stored.bytes))),
        Readout(words("readout.large"), *short(large, "B", lang), was(lambda q: amount(_large(q.scheme)[0], "B", lang)), words("note.large", speed=amount(bandwidth / large, "token/s", lang))),
    )  # fmt: skip


def _bits(value: float) -> str:
    return f"{value:.2f}"


def _weights(model: str) -> int:
    return sum(rows * width for rows, width in matrix_shapes(model))


def _large(scheme: Scheme) -> tuple[float, float]:
    """Bytes of 70 billion weights under the scheme, and the card's bandwidth."""
    return facts.model(LARGE).parameters_per_token * bits_of_large(scheme) / 8, facts.chip(CHIP).bandwidth_bytes_per_s


def _sentence(result: Result, scene: Scene) -> str:
    words, p, params = scene.words, result.chosen, result.params
    said = words("asked", asked=result.asked, model=params.model, shown=p.scheme.id, why=_why_not(result, scene)) if result.asked else ""
    said += words(f"sentence.{p.scheme.family if p.lane else 'weights'}", scheme=p.scheme.id, model=params.model, bits=_bits(p.stored.bits_per_weight), change=signed(p.change),
                  low=shown(p.change)[1], high=shown(p.change)[2], domain=words("text.part" if p.part else f"text.{result.domain if params.model == OURS else params.model}"))  # fmt: skip
    said += words(f"judged.{p.judged}" if result.floor else f"unjudged.{'none' if p.judged == 'none' else 'some'}", floor=digits(result.floor or 0))
    counts = {name: result.count(name) for name in VERDICTS}
    said += words("counts" if result.floor else "counts_unjudged", n=len(result.points), some=len(result.points) - counts["none"], **counts)
    if result.fresh and result.fresh.scheme == p.scheme.id and not p.part:
        c = result.fresh.change
        said += words("fresh", change=signed(c), low=shown(c)[1], high=shown(c)[2], tokens=f"{c.tokens:,}")
    return said


def _why_not(result: Result, scene: Scene) -> str:
    """Why a scheme has no stored result: it does not fit, or nobody asked yet."""
    try:
        of_model(schemes.scheme(result.asked), result.params.model)
    except BadInput as refusal:
        return refusal.message(scene.lang)
    return scene.words("asked_live")


def _simplified(result: Result, words: Words) -> str:
    said = words("simplified") + (_floor_says(words) if result.floors else words("no_floor"))
    return said + (words("source_is_4bit") if result.params.model == PUBLIC else "")


def _floor_says(words: Words) -> str:
    floor = noise_floor()
    return words("floor_says", n=len(floor.losses), steps=floor.steps, low=digits(floor.low, 2), high=digits(floor.high, 2))


# ---- the chosen one, taken apart


def format_says(scheme: Scheme, words: Words) -> str:
    """What is stored, in a sentence."""
    grid = scheme.weights
    if grid is None:
        parts = [words("format.cast", type=scheme.cast) if scheme.cast else words("format.unchanged")]
    else:
        block = words(f"format.block.{grid.block}") if isinstance(grid.block, str) else words("format.block.group", n=grid.block)
        parts = [_numbers_say(grid.numbers, words), words(f"format.scale.{grid.scales.name}", block=block), words(f"format.method.{scheme.method}")]
    marks = {"order": scheme.act_order, "activations": scheme.activations, "head": scheme.head, "planted": scheme.planted}
    parts += [words(f"format.{mark}") for mark, there in marks.items() if there]
    if scheme.smooth is not None:
        parts.append(words("format.smooth", alpha=f"{scheme.smooth:g}"))
    if scheme.kv:
        parts.append(words("format.kivi" if scheme.kv_group else "format.kv", bits=scheme.kv, group=scheme.kv_group))
    return words("semicolon").join(parts) + words("stop")


def _numbers_say(numbers: Uniform | Table, words: Words) -> str:
    if isinstance(numbers, Table):
        return words(f"format.{numbers.name}")
    return words("format.symmetric" if numbers.symmetric else "format.asymmetric", bits=numbers.bits, low=f"−{numbers.largest}", high=numbers.largest)


def _card(result: Result, scene: Scene) -> str:
    words, lang, p, model = scene.words, scene.lang, result.chosen, result.params.model
    scheme, shapes = p.scheme, matrix_shapes(model)
    lines = [(words("card.format"), format_says(scheme, words))]
    if scheme.weights:
        sums = dict.fromkeys(f"{arithmetic(scheme.weights, rows, width)} = {storage_bits(scheme.weights, rows, width) / (rows * width):.4g}" for rows, width in shapes[:-1])
        mean = words("card.mean", bits=f"{p.stored.bits_per_weight:.4g}") if len(sums) > 1 else ""
        lines.append((words("card.bits"), words("semicolon").join(list(sums)[:2]) + mean))
    head = storage_bits(scheme.head, *shapes[-1]) / 8 if scheme.head else shapes[-1][0] * shapes[-1][1] * schemes.REST_BITS / 8
    lines.append((words("card.bytes", model=model), words("card.bytes_says", layers=amount(p.stored.bytes - head, "B", lang), head=amount(head, "B", lang), all=amount(p.stored.bytes, "B", lang),
                                                          bits=_bits(p.stored.model_bits_per_weight))))  # fmt: skip
    large, bandwidth = _large(scheme)
    lines.append((words("card.large"), words("card.large_says", bits=f"{bits_of_large(scheme):.4g}", bytes=amount(large, "B", lang), bandwidth=amount(bandwidth, "B/s", lang),
                                             speed=amount(bandwidth / large, "token/s", lang))))  # fmt: skip
    if result.loss is not None and not p.part:
        lines.append((words("card.loss"), words("card.loss_says", loss=digits(result.loss, 4), after=digits(result.loss + p.changes["all"].value, 4), tokens=f"{p.changes['all'].tokens:,}")))
    if scheme.id in result.speeds:
        timed, plain = result.speeds[scheme.id], result.speeds.get("bf16")
        lines.append((words("card.speed"), words("card.speed_says", speed=digits(timed.value), cpu=timed.conditions.get("cpu", ""))
                      + (words("card.speed_plain", speed=digits(plain.value)) if plain and scheme.id != "bf16" else "")))  # fmt: skip
    rows = "".join(f'<dt style="color:var(--lab-muted);font-size:.875rem;padding-top:6px">{html.escape(k)}</dt><dd style="margin:0;padding:0;line-height:1.55">{html.escape(v)}</dd>' for k, v in lines)
    return f'<h4 style="font-size:1rem;margin:0 0 4px">{html.escape(words("card.title", scheme=scheme.id))}</h4><dl style="margin:0;padding:0;max-width:var(--lab-prose)">{rows}</dl>'


TABLE = ("scheme", "family", "bits", "bytes", "change", "interval", "verdict")
CHOSEN = ' style="background:var(--lab-accent-soft);font-weight:650"'
SIGNS: Mapping[Verdict, tuple[str, str]] = {"none": ("○", "accepted"), "noise": ("◐", "draft"), "beyond": ("●", "rejected")}


ORDER = {
    "bits": lambda p: (p.stored.model_bits_per_weight, p.change.value),
    "loss": lambda p: p.change.value,
    "family": lambda p: (FAMILIES.index(p.scheme.family), p.stored.bits_per_weight),
}


def _table(result: Result, scene: Scene) -> str:
    words, lang = scene.words, scene.lang
    heads = "".join(f'<th scope="col" style="position:sticky;top:0;background:var(--lab-paper)">{html.escape(words(f"table.{c}"))}</th>' for c in TABLE)
    lines = []
    for p in sorted(result.shown, key=ORDER[result.params.sort]):
        sign, tone = SIGNS[p.judged]
        figures = (_bits(p.stored.bits_per_weight), amount(p.stored.bytes, "B", lang), signed(p.change), " … ".join(shown(p.change)[1:]))
        lines.append(
            f"<tr{CHOSEN if p is result.chosen else ''}><th scope=row>{p.scheme.id}</th><td>{html.escape(words(f'option.family.{p.scheme.family}'))}</td>"
            + "".join(f'<td class="n">{figure}</td>' for figure in figures)
            + f'<td><span style="color:var(--lab-{tone})" aria-hidden="true">{sign}</span> {html.escape(_verdict(p, result, words))}</td></tr>'
        )
    title = html.escape(words("table.title", n=len(result.shown), order=words(f"option.sort.{result.params.sort}")))
    return (
        f'<p style="margin:12px 0 4px;font-weight:600">{title}</p><div class="lab-papers lab-ledger"><div class="lab-scroll" tabindex="0" role="region" aria-label="{title}" '
        f'style="max-height:26rem;overflow:auto"><table style="width:100%"><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div></div>'
    )


def _verdict(p: Point, result: Result, words: Words) -> str:
    return words(f"verdict.{p.judged}" if result.floor or p.judged == "none" else "verdict.unjudged")


# ---- rows, papers


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "model": result.params.model, "scheme": p.scheme.id, "family": p.scheme.family, "domain": domain, "bits_per_weight": p.stored.bits_per_weight,
            "model_bits_per_weight": p.stored.model_bits_per_weight, "bytes_per_token": p.stored.bytes, "loss_change_nats_per_token": c.value, "low95": c.low, "high95": c.high,
            "noise_floor_nats_per_token": result.floors.get(domain), "verdict": verdict(c, result.floors.get(domain, math.inf)), "pareto": p.pareto,
        }
        for p in result.points
        for domain, c in p.changes.items()
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    p, params = result.chosen, result.params
    name = {"zh": f"{p.scheme.id}：", "en": f"{p.scheme.id}: "}

    def says(key: str) -> dict[str, str]:
        return {lang: name[lang] + SAYS[key][lang] for lang in name}

    found = [Quantity(p.change.value, "nat/token", "measured", "loss(scheme) − loss(fp32), in pairs", {}, None, dict(p.conditions) | {"key": _key(params.model, p.scheme.id), "domain": result.domain}, (p.change.low, p.change.high), says("change"))]
    if result.floor:
        found.append(_floor_paper(result))
    large, bandwidth = _large(p.scheme)
    found += [
        Quantity(p.stored.bits_per_weight, "bit", "computed", "(codes + scales + zero points) / weights", {"scheme": p.scheme.id, "matrices": params.model}, says=says("bits")),
        Quantity(p.stored.bytes, "B", "computed", "Σ bits of the matrices / 8, lm_head included", {"scheme": p.scheme.id, "model": params.model}, says=says("bytes")),
        Quantity(large, "B", "computed", "parameters × bits per weight / 8", {"parameters": facts.model(LARGE).parameters_per_token, "bits": bits_of_large(p.scheme)}, says=says("large")),
        Quantity(bandwidth / large, "token/s", "computed", "bandwidth / bytes", {"bandwidth": bandwidth, "chip": facts.chip(CHIP).name, "bytes": large}, says=says("bound")),
    ]
    if p.scheme.id in result.speeds:
        found.append(result.speeds[p.scheme.id])
    if result.fresh:
        c = result.fresh.change
        found.append(Quantity(c.value, "nat/token", "measured", "loss(scheme) − loss(fp32), in pairs", {}, None, dict(result.fresh.conditions) | {"tokens": c.tokens, "seconds": result.fresh.seconds}, (c.low, c.high), SAYS["fresh"]))
    return tuple(found)


def _floor_paper(result: Result) -> Quantity:
    floor = noise_floor()
    around = {"trainings": len(floor.losses), "steps": floor.steps, "tokens of each": floor.tokens, "recipe": "mini-256’s, cut short", "file": "data/checkpoints/noise-floor.json", "domain": result.domain}
    return Quantity(result.floor, "nat/token", "measured", "3σ of the losses of trainings that differ in their seed", {}, None, around, (floor.low, floor.high) if result.domain == "all" else None, SAYS["floor"])


SAYS = {
    "change": {"zh": "损失比 fp32 多多少", "en": "loss above that of fp32"},
    "floor": {"zh": "换种子重新训练，损失会变多少", "en": "what training with another seed changes the loss by"},
    "bits": {"zh": "每个权重真正占的位数", "en": "bits that a weight really takes"},
    "bytes": {"zh": "写一个 token 要读的权重字节", "en": "weight bytes read for one token"},
    "large": {"zh": "70B 模型全部权重这样存", "en": "70 billion weights stored so"},
    "bound": {"zh": "70B 模型在 H100 上的带宽上限", "en": "bandwidth bound of the 70B model on an H100"},
    "fresh": {"zh": "刚才在一部分文本上测的", "en": "measured just now, on a part of the text"},
}


# ---- guesses, live


def _beyond(result: Result) -> Quantity:
    return Quantity(result.count("beyond"), "count", "measured", "schemes whose change is larger than 3σ of re-trainings", {}, None, {"model": result.params.model, "schemes": len(result.points)})


def _four(result: Result) -> Quantity:
    c = _four_bits(result).change
    return Quantity(c.value, "nat/token", "measured", "loss(int4-g64) − loss(fp32)", {}, None, dict(_four_bits(result).conditions), (c.low, c.high))


def _four_bits(result: Result) -> Point:
    return next((p for p in result.points if p.scheme.id == "int4-g64"), result.chosen)


WIDGET = Widget(
    id="schemes",
    Params=Params,
    controls=(
        Choice("model", lambda: MODELS), Choice("chosen", lambda: tuple(SCHEMES), name=lambda id: id), Choice("family", lambda: ("all", *FAMILIES)),
        Choice("zoom", lambda: ("all", "floor")), Choice("domain", lambda: DOMAINS, when=lambda p: p.model == OURS), Choice("sort", lambda: ("bits", "loss", "family")),
    ),
    run=run,
    draw=draw,
    guesses={
        "beyond": Guess(truth=_beyond, bounds=(0, len(TABLES[OURS]))),
        "four": Guess(truth=_four, choices=VERDICTS, right=lambda result: _four_bits(result).judged),
    },
    live=Live("quantize.score", lambda p: {"model": p.model, "scheme": p.chosen, "domain": domain_of(p)}),
)  # fmt: skip
