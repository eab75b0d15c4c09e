"""What a cache costs: bytes a token, a request, a card, for MHA, GQA, MQA, MLA and layers with a fixed state."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from math import floor, log10
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from components import Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Stops
from components.text import BINARY, Words, amount, digits, short
from compute import facts, kv, roofline
from compute.errors import BadInput
from compute.facts import Chip, ChipName
from compute.kv import Heads, Kind
from compute.quantity import Quantity, Source
from compute.roofline import Batch, Bits, Context, Group, KvBits

BY_HAND = "by-hand"
KINDS: tuple[Kind, ...] = ("mha", "gqa", "mqa", "mla")
CONTEXTS = (128, 512, 1000, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576)
BATCHES = (1, 2, 4, 8, 16, 32, 58, 64, 128, 256)
HEADROOM = 1.16  # the memory axis above the ceiling, for the names of the curves
STATE_BYTES = 4  # per number of a recurrent state, FP32


def known_model(id: str) -> str:
    return id if id == BY_HAND else facts.model(id).id


@parameters
class Params:
    """kind … parameters_billion describe a model by hand and count only where model is "by-hand"."""

    model: Annotated[str, AfterValidator(known_model)] = "qwen3.8-27b"
    chip: ChipName = "h100-sxm"
    context: Context = 4096
    batch: Batch = 1
    kv_bits: KvBits = 16
    weight_bits: Bits = 16
    group: Group = 128
    axes: Literal["linear", "log"] = "linear"
    kind: Kind = "gqa"
    layers: Annotated[int, Field(ge=1, le=1000)] = 64
    state_layers: Annotated[int, Field(ge=0, le=1000)] = 0
    heads: Annotated[int, Field(ge=1, le=1024)] = 32
    kv_heads: Annotated[int, Field(ge=1, le=1024)] = 8
    head_dim: Annotated[int, Field(ge=1, le=2048)] = 128
    latent: Annotated[int, Field(ge=1, le=16384)] = 512
    rope_dim: Annotated[int, Field(ge=0, le=1024)] = 64
    parameters_billion: Annotated[float, Field(ge=0, le=10_000)] = 32


@dataclass(frozen=True)
class Layers:
    """Attention layers of one sort; window: only the last so many tokens are kept."""

    count: int
    window: int | None = None

    def kept(self, tokens: int) -> int:
        return min(tokens, self.window) if self.window else tokens


@dataclass(frozen=True)
class Layout:
    """A model as far as its memory is concerned."""

    name: str
    kind: Kind
    heads: Heads
    attention: tuple[Layers, ...]
    state_layers: int
    state_bytes: int
    state_formula: str
    weights_bytes: float
    context_maximum: int | None
    source: Source | None


@dataclass(frozen=True)
class Curve:
    """One way to build the same attention layers."""

    kind: Kind
    own: bool
    values: int  # numbers a token leaves in one layer
    attention: tuple[Layers, ...]
    kv_bits: float
    state_bytes: int

    @property
    def bytes_per_token(self) -> float:
        return sum(layers.count for layers in self.attention) * self.values * self.kv_bits / 8

    def cache_bytes(self, tokens: int) -> float:
        return sum(layers.count * layers.kept(tokens) for layers in self.attention) * self.values * self.kv_bits / 8

    def request_bytes(self, tokens: int) -> float:
        return self.cache_bytes(tokens) + self.state_bytes


@dataclass(frozen=True)
class Sizes:
    params: Params
    layout: Layout
    chip: Chip
    curves: tuple[Curve, ...]  # MHA first, the model's own among them

    @property
    def own(self) -> Curve:
        return next(curve for curve in self.curves if curve.own)

    @property
    def mha(self) -> Curve:
        return self.curves[0]

    @property
    def free_bytes(self) -> float:
        """Memory beside the weights; negative where they do not fit."""
        return self.chip.memory_bytes - self.layout.weights_bytes

    @property
    def weights_fit(self) -> bool:
        return self.free_bytes >= 0

    def requests(self, curve: Curve) -> int:
        """Requests of the chosen length that fit beside the weights."""
        return int(self.free_bytes // curve.request_bytes(self.params.context)) if self.weights_fit else 0

    def longest(self, curve: Curve) -> int | None:
        """Tokens that each of `batch` requests may reach; None where the cache stops growing before the card is full."""
        if self.free_bytes < self.params.batch * curve.request_bytes(0):
            return 0
        return kv.longest(lambda n: self.params.batch * curve.request_bytes(n), self.free_bytes)

    @property
    def missing_bytes(self) -> float:
        return max(0.0, self.params.batch * self.own.request_bytes(self.params.context) - self.free_bytes)


def run(params: Params, answer=None) -> Sizes:
    layout = _by_hand(params) if params.model == BY_HAND else _published(params)
    curves = tuple(
        Curve(kind, kind == layout.kind, layout.heads.values(kind), layout.attention, params.kv_bits, layout.state_bytes)
        for kind in KINDS
        if kind in ("mha", layout.kind) or _differs(kind, layout.heads)
    )
    return Sizes(params, layout, facts.chip(params.chip), curves)


def _differs(kind: Kind, heads: Heads) -> bool:
    """GQA with as many groups as heads is MHA, with one it is MQA: shown once."""
    return kind != "gqa" or 1 < heads.kv < heads.query


def _published(params: Params) -> Layout:
    shape, heads = facts.model(params.model), kv.heads(params.model)
    states = next((m.layers for m in shape.matrices if m.name.startswith("gdn.")), 0)
    c = shape.config.get("text_config", shape.config)
    formula = ""
    if states:
        formula = rf"{states} \times {c['linear_num_value_heads']} \times {c['linear_key_head_dim']} \times {c['linear_value_head_dim']} \times {STATE_BYTES}"
    return Layout(
        shape.name, shape.caches[0].kind, heads, tuple(Layers(cache.layers, cache.window) for cache in shape.caches),
        states, shape.state_bytes, formula, shape.loaded_bytes(roofline.weight_bytes(params.weight_bits, params.group)),
        shape.context_maximum, shape.source,
    )  # fmt: skip


def _by_hand(params: Params) -> Layout:
    p = params
    if p.state_layers >= p.layers:
        raise BadInput("state_layers", p.state_layers, f"at least one of the {p.layers} layers has to keep K and V", f"{p.layers} 层里至少要有一层存 K、V")
    if p.kind == "gqa" and p.heads % p.kv_heads:
        raise BadInput("kv_heads", p.kv_heads, f"it must divide the {p.heads} query heads", f"要能整除 {p.heads} 个查询头")
    state = p.state_layers * p.heads * p.head_dim * p.head_dim * STATE_BYTES
    formula = rf"{p.state_layers} \times {p.heads} \times {p.head_dim} \times {p.head_dim} \times {STATE_BYTES}" if state else ""
    weights = p.parameters_billion * 1e9 * roofline.weight_bytes(p.weight_bits, p.group)
    heads = Heads(p.heads, p.kv_heads, p.head_dim, p.head_dim, p.latent, p.rope_dim)
    return Layout("", p.kind, heads, (Layers(p.layers - p.state_layers),), p.state_layers, state, formula, weights, None, None)


# ---- drawing


def binary(value: float) -> str:
    """KiB, MiB … as caches are quoted: 64 KiB, 22.5 KiB, 4.88 MiB."""
    prefix, factor = next(((p, f) for p, f in reversed(BINARY) if abs(value) >= f), BINARY[0])
    n = value / factor
    return f"{n:,.0f} {prefix}B" if n == int(n) else f"{digits(n)} {prefix}B"


def draw(result: Sizes, scene: Scene) -> View:
    words, layout = scene.words, result.layout
    simplified = words("simplified")
    if any(curve.kind == "mla" and not curve.own for curve in result.curves) and result.params.model != BY_HAND:
        simplified += words("rule.mla")
    if layout.kind != "gqa" and any(curve.kind == "gqa" for curve in result.curves) and result.params.model != BY_HAND:
        simplified += words("rule.gqa", groups=layout.heads.kv)
    if any(layers.window for layers in layout.attention):
        simplified += words("rule.window")
    return View(
        picture=Stage(picture(result, scene), steps=1, height=460),
        readouts=_readouts(result, scene),
        sentence=_says(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        simplified=simplified,
        derivation=_derivation(result, scene),
    )


def _name(result: Sizes, words: Words) -> str:
    return f"{result.layout.name} " if result.layout.name else words("option.model.by-hand")


def _times(ratio: float) -> str:
    return f"{ratio:,.3g}"


def _against(ratio: float) -> str:
    return f"×{_times(ratio)}" if ratio >= 1 else f"÷{_times(1 / ratio)}"


def _groups(curve: Curve, heads: Heads, words: Words) -> str:
    """"24 × K, V", "1,024 + 128": what one token leaves in one layer."""
    if curve.kind == "mla":
        return words("bar.latent", latent=f"{heads.latent:,}", rope=heads.rope_dim)
    return words("bar.groups", n={"mha": heads.query, "gqa": heads.kv, "mqa": 1}[curve.kind])


def picture(result: Sizes, scene: Scene) -> dict:
    words, heads = scene.words, result.layout.heads
    most = max(curve.bytes_per_token for curve in result.curves)
    before = scene.before
    bars = [
        {
            "kind": curve.kind, "own": curve.own, "name": words(f"kind.{curve.kind}"), "what": _groups(curve, heads, words),
            "length": curve.bytes_per_token / most, "amount": binary(curve.bytes_per_token),
            "times": "" if curve.own else _against(curve.bytes_per_token / result.own.bytes_per_token),
            "cells": {"mha": heads.query, "gqa": heads.kv, "mqa": 1, "mla": 1}[curve.kind],
        }
        for curve in result.curves
    ]  # fmt: skip
    ghost = None
    if before is not None and before.own.bytes_per_token != result.own.bytes_per_token:
        ghost = min(1.0, before.own.bytes_per_token / most)
    return {
        "bars": {"title": words("bars.title"), "rows": bars, "ghost": ghost, "notes": _notes(result, scene)},
        "plot": _plot(result, scene),
        "side": words("bars.layers", layers=sum(layers.count for layers in result.layout.attention)),
    }


def _notes(result: Sizes, scene: Scene) -> list[dict]:
    """Layers that do not grow with the length, as what they are."""
    words, layout, notes = scene.words, result.layout, []
    if layout.state_bytes:
        tokens = layout.state_bytes / result.own.bytes_per_token
        notes.append({"tone": "state", "text": words("note.state", layers=layout.state_layers, bytes=binary(layout.state_bytes)),
                      "more": words("note.state.worth", tokens=f"{tokens:,.0f}")})  # fmt: skip
    for layers in layout.attention:
        if layers.window:
            notes.append({"tone": "kv", "text": words("note.window", layers=layers.count, window=f"{layers.window:,}"), "more": words("note.window.more")})
    return notes


def _plot(result: Sizes, scene: Scene) -> dict:
    """Curves in parts of the two axes. Linear: the card's memory, weights below, cache on top of them up to the ceiling.
    Log-log, or where the weights alone do not fit: the cache by itself."""
    words, lang, p = scene.words, scene.lang, result.params
    log = p.axes == "log"
    carded = result.weights_fit and not log
    base = result.layout.weights_bytes if carded else 0.0
    low = 100.0 if log else 0.0
    end = _longest_shown(result, log)
    most = max(c.request_bytes(int(end)) for c in result.curves) * p.batch
    top = result.chip.memory_bytes * HEADROOM if carded else result.free_bytes * 8 if result.weights_fit else most * (2 if log else 1.05)
    floor_ = min(p.batch * c.request_bytes(int(low)) for c in result.curves) * 0.7 if log else 0.0

    def x(tokens: float) -> float:
        return log10(max(tokens, low) / low) / log10(end / low) if log else tokens / end

    def y(bytes_: float) -> float:
        return log10(max(bytes_, floor_) / floor_) / log10(top / floor_) if log else bytes_ / top

    def points(sizes: Sizes, curve: Curve) -> list[list[float]]:
        elbows = [layers.window for layers in curve.attention if layers.window and layers.window < end]
        steps = [low * (end / low) ** (i / 60) for i in range(61)] if log else [0.0, *elbows, end]
        return [[x(n), y(base + sizes.params.batch * curve.request_bytes(int(n)))] for n in sorted(steps)]

    ceiling = result.chip.memory_bytes if carded else result.free_bytes
    curves = []
    for curve in result.curves:
        full = result.longest(curve) if result.weights_fit else None
        cross = None
        if full is not None and full <= end and y(ceiling) <= 1:
            cross = {"x": x(full), "y": y(ceiling), "tokens": _tokens(full), "label": words("plot.full", tokens=_tokens(full))}
        curves.append({"kind": curve.kind, "own": curve.own, "name": words(f"kind.{curve.kind}"), "points": points(result, curve), "cross": cross})
    before, ghost = scene.before, None
    if before is not None and (before.own.request_bytes(1000), before.params.batch) != (result.own.request_bytes(1000), p.batch):
        ghost = points(before, before.own)
    here = base + p.batch * result.own.request_bytes(p.context)
    maximum = result.layout.context_maximum
    return {
        "title": words("plot.title.card" if carded else "plot.title.cache", chip=result.chip.name, batch=f"{p.batch:,}", kind=words(f"kind.{result.own.kind}"))
        if p.batch == 1 else words("plot.title.card.batch" if carded else "plot.title.cache.batch", chip=result.chip.name, batch=f"{p.batch:,}"),
        "curves": curves,
        "ghost": ghost,
        "ceiling": {"y": y(ceiling), "tick": f"{ceiling / 1e9:.3g} GB", "label": "" if carded else words("plot.free")}
        if result.weights_fit and ceiling > floor_ and y(ceiling) <= 1 else None,
        "weights": {"y": y(base), "label": words("plot.weights", bytes=amount(base, "B", lang))} if carded and base else None,
        "state": {"y0": y(base), "y1": y(base + p.batch * result.layout.state_bytes), "label": words("plot.state", bytes=amount(p.batch * result.layout.state_bytes, "B", lang))}
        if result.layout.state_bytes and not log else None,
        "here": {"x": x(p.context), "y": min(y(here), 1.0), "fits": not result.missing_bytes or not result.weights_fit,
                 "label": words("plot.here", tokens=f"{p.context:,}", bytes=amount(here - base, "B", lang))} if low <= p.context <= end else None,
        "maximum": {"x": x(maximum), "label": words("plot.maximum", tokens=f"{maximum:,}")} if maximum and low < maximum < end else None,
        "refused": None if result.weights_fit else words(
            "plot.refused", weights=amount(result.layout.weights_bytes, "B", lang), memory=f"{result.chip.memory_bytes / 1e9:g} GB",
            missing=amount(-result.free_bytes, "B", lang), cards=-int(-result.layout.weights_bytes // result.chip.memory_bytes)),
        "x": {"title": words("plot.x.log" if log else "plot.x"), "ticks": [{"at": x(n), "label": _tokens(n)} for n in _ticks(low, end, log)]},
        "y": {"title": words("plot.y.log" if log else "plot.y" if carded else "plot.y.cache"),
              "ticks": [{"at": y(b), "label": " ".join(_bytes(b)).strip()} for b in _ticks(floor_, top, log)]},
    }  # fmt: skip


def _longest_shown(result: Sizes, log: bool) -> float:
    """Where the length axis ends: a little past where the chosen shape fills the card; else past what the model may read."""
    p, maximum = result.params, result.layout.context_maximum or 0
    windows = [layers.window for layers in result.layout.attention if layers.window]
    full = result.longest(result.own) if result.weights_fit else None
    if full:
        end = max(result.longest(curve) or full for curve in result.curves) * 1.3 if log else full * 1.12
    else:
        end = max(maximum, 4 * max(windows, default=0), 8192)
    return max(end, p.context * 1.1, 1000.0)


def _ticks(low: float, high: float, log: bool) -> list[float]:
    if log:
        decades = range(floor(log10(low)), floor(log10(high)) + 1)
        marks = [m * 10.0**e for e in decades for m in ((1, 3) if high / low < 1e5 else (1,))]
        return [v for v in marks if low <= v <= high]
    decade = 10 ** floor(log10(high))
    step = next(m for m in (0.1, 0.2, 0.5, 1, 2) if high / (m * decade) <= 6) * decade
    return [i * step for i in range(int(high / step) + 1)]


def _tokens(n: float) -> str:
    """Lengths on an axis: 0, 4,096, 262k, 1.05M."""
    if n < 10_000:
        return f"{n:,.0f}"
    return f"{n / 1e6:.3g}M" if n >= 1e6 else f"{n / 1e3:,.0f}k"


def _bytes(b: float) -> tuple[str, str]:
    number, unit = short(b, "B") if b else ("0", "")
    return (number.rstrip("0").rstrip(".") if "." in number else number), unit


def _readouts(result: Sizes, scene: Scene) -> tuple[Readout, ...]:
    words, lang, old, p = scene.words, scene.lang, scene.before, result.params
    own, layout = result.own, result.layout

    def change(now: str, was: str | None) -> str:
        return "" if was is None or was == now else words("before", value=was)

    def split(text: str) -> tuple[str, str]:
        number, _, unit = text.partition(" ")
        return number, unit

    per_token, per_request = binary(own.bytes_per_token), amount(own.request_bytes(p.context), "B", lang)
    found = [
        Readout(words("readout.token"), *split(per_token), change(per_token, old and binary(old.own.bytes_per_token)),
                words("readout.token.note", bytes=binary(result.mha.bytes_per_token)) if own.kind != "mha" else ""),
    ]  # fmt: skip
    if layout.state_bytes:
        state = binary(layout.state_bytes)
        found.append(Readout(words("readout.state"), *split(state), change(state, old and binary(old.layout.state_bytes)), words("readout.state.note")))
    found.append(
        Readout(words("readout.request", tokens=f"{p.context:,}"), *split(per_request), change(per_request, old and amount(old.own.request_bytes(old.params.context), "B", lang)),
                words("readout.request.note", kv=amount(own.cache_bytes(p.context), "B", lang)) if layout.state_bytes else "")
    )  # fmt: skip
    if not result.weights_fit:
        found.append(Readout(words("readout.requests"), words("readout.refused"), "", "", words("readout.refused.note", bytes=amount(-result.free_bytes, "B", lang))))
        return tuple(found)
    requests = amount(result.requests(own), "request", lang)
    was = old and (amount(old.requests(old.own), "request", lang) if old.weights_fit else words("readout.refused"))
    found.append(Readout(words("readout.requests"), *split(requests), change(requests, was), words("readout.requests.note", free=amount(result.free_bytes, "B", lang))))
    longest = result.longest(own)
    shown = words("readout.never") if longest is None else f"{longest:,}"
    was = old and old.weights_fit and (words("readout.never") if old.longest(old.own) is None else f"{old.longest(old.own):,}") or None
    beyond = longest is not None and layout.context_maximum is not None and longest > layout.context_maximum
    found.append(
        Readout(words("readout.longest.one" if p.batch == 1 else "readout.longest", batch=f"{p.batch:,}"), shown, "" if longest is None else short(longest, "token", lang)[1], change(shown, was),
                words("readout.longest.note", maximum=f"{layout.context_maximum:,}") if beyond else "")
    )  # fmt: skip
    return tuple(found)


def _says(result: Sizes, scene: Scene) -> str:
    words, lang, p, own, layout = scene.words, scene.lang, result.params, result.own, result.layout
    count = sum(layers.count for layers in layout.attention)
    show = partial(amount, lang=lang)
    text = words("says.token", name=_name(result, words), layers=count, kind=words(f"kind.{own.kind}"), what=_groups(own, layout.heads, words), bytes=binary(own.bytes_per_token))
    if layout.state_bytes:
        text += words("says.state", layers=layout.state_layers, bytes=binary(layout.state_bytes))
    text += words("says.request", tokens=f"{p.context:,}", bytes=show(own.request_bytes(p.context), "B"))
    if not result.weights_fit:
        return text + words("says.refused", chip=result.chip.name, weights=show(layout.weights_bytes, "B"), memory=f"{result.chip.memory_bytes / 1e9:g} GB", missing=show(-result.free_bytes, "B"))
    text += words("says.card", chip=result.chip.name, free=show(result.free_bytes, "B"), requests=show(result.requests(own), "request"))
    if result.missing_bytes:
        text += words("says.full", batch=f"{p.batch:,}", missing=show(result.missing_bytes, "B"))
    if own.kind != "mha":
        times = result.mha.bytes_per_token / own.bytes_per_token
        text += words("says.mha", bytes=binary(result.mha.bytes_per_token), times=_times(times), requests=show(result.requests(result.mha), "request"))
    return text


def _rows(result: Sizes) -> tuple[dict, ...]:
    setting = asdict(result.params)
    end = int(_longest_shown(result, False))
    lengths = sorted({*(n for n in CONTEXTS if n <= end), result.params.context, end})
    return tuple(
        setting | {"shape": curve.kind, "own": curve.own, "tokens": n, "bytes_per_token": curve.bytes_per_token, "cache_bytes_per_request": curve.cache_bytes(n),
                   "state_bytes_per_request": curve.state_bytes, "batch_bytes": result.params.batch * curve.request_bytes(n),
                   "weights_bytes": result.layout.weights_bytes, "free_bytes": result.free_bytes}
        for curve in result.curves for n in lengths
    )  # fmt: skip


# ---- the derivation, and where the numbers come from


def _tex(value: float) -> str:
    return f"{value:,.0f}".replace(",", "{,}") if float(value).is_integer() else f"{value:,.6g}".replace(",", "{,}")


def _derivation(result: Sizes, scene: Scene) -> str:
    words, p, own, layout, heads = scene.words, result.params, result.own, result.layout, result.layout.heads
    count = sum(layers.count for layers in layout.attention)
    each = rf"{p.kv_bits / 8:g}\,\mathrm{{B}}"
    if own.kind == "mla":
        inner, key = rf"({_tex(heads.latent)} + {heads.rope_dim}) \times {each} \times {count}", "derive.token.mla"
    else:
        groups = {"mha": heads.query, "gqa": heads.kv, "mqa": 1}[own.kind]
        inner, key = rf"2 \times {groups} \times {heads.key_dim} \times {each} \times {count}", "derive.token"
    lines = [words(key), f"$${inner} = {_tex(own.bytes_per_token)}\\,\\mathrm{{B}} = \\text{{{binary(own.bytes_per_token)}}}$$"]
    windows = [layers for layers in layout.attention if layers.window]
    if windows:
        lines.append(words("derive.window", layers=sum(w.count for w in windows), window=f"{windows[0].window:,}", rest=count - sum(w.count for w in windows)))
    if layout.state_bytes:
        lines += [words("derive.state"), f"$${layout.state_formula}\\,\\mathrm{{B}} = {_tex(layout.state_bytes)}\\,\\mathrm{{B}} = \\text{{{binary(layout.state_bytes)}}}$$"]
    per_layer = own.values * p.kv_bits / 8
    kept = " + ".join(rf"{layers.count} \times {_tex(layers.kept(p.context))} \times {_tex(per_layer)}" for layers in layout.attention)
    state = f" + {_tex(layout.state_bytes)}" if layout.state_bytes else ""
    request = own.request_bytes(p.context)
    lines += [words("derive.request", tokens=f"{p.context:,}"), f"$${kept}{state} = {_tex(request)}\\,\\mathrm{{B}}$$"]
    weights, memory = layout.weights_bytes, result.chip.memory_bytes
    if result.weights_fit:
        lines += [words("derive.card"), rf"$$\left\lfloor \frac{{{_tex(memory)} - {_tex(round(weights))}}}{{{_tex(request)}}} \right\rfloor = {_tex(result.requests(own))}$$"]
    else:
        lines += [words("derive.refused"), f"$${_tex(round(weights))} > {_tex(memory)}$$"]
    return "\n\n".join(lines)


def _papers(result: Sizes) -> tuple[Quantity, ...]:
    p, own, layout, heads, chip = result.params, result.own, result.layout, result.layout.heads, result.chip
    count = sum(layers.count for layers in layout.attention)
    bits = p.kv_bits / 8

    def computed(value, unit, formula, zh, en, **inputs):
        return Quantity(value, unit, "computed", formula, inputs, says={"zh": zh, "en": en})

    found = []
    for curve in sorted(result.curves, key=lambda c: not c.own):
        name = curve.kind.upper()
        says = (f"每个 token 的 KV（{name}）", f"KV of one token ({name})")
        if curve.kind == "mla":
            found.append(computed(curve.bytes_per_token, "B", "(latent + rotary key) × bytes × layers: once, not for K and V", *says,
                                  latent=heads.latent, rotary=heads.rope_dim, bytes=bits, layers=count))  # fmt: skip
        else:
            groups = {"mha": heads.query, "gqa": heads.kv, "mqa": 1}[curve.kind]
            found.append(computed(curve.bytes_per_token, "B", "K/V heads × (key dim + value dim) × bytes × layers", *says,
                                  kv_heads=groups, key_dim=heads.key_dim, value_dim=heads.value_dim, bytes=bits, layers=count))  # fmt: skip
    if layout.state_bytes:
        found.append(computed(layout.state_bytes, "B", "layers × heads × key dim × value dim × 4 B (FP32)", "固定状态", "fixed state", layers=layout.state_layers))
    found.append(computed(own.request_bytes(p.context), "B", "tokens kept × bytes per token + state", "一个请求", "one request", context=p.context, state=layout.state_bytes))
    found.append(computed(layout.weights_bytes, "B", "all loaded weights", "卡上的权重", "weights on the card", weight_bits=p.weight_bits))
    if result.weights_fit:
        found.append(computed(result.requests(own), "request", "⌊(memory − weights) / one request⌋", "放得下的请求", "requests that fit",
                              memory=chip.memory_bytes, weights=layout.weights_bytes, request=own.request_bytes(p.context)))  # fmt: skip
        longest = result.longest(own)
        if longest is not None:
            found.append(computed(longest, "token", "most n with batch × (n × KV + state) ≤ memory − weights", "每个请求最长", "longest request", batch=p.batch, free=result.free_bytes))
    note = {"note": chip.note or (chip.source.note if chip.source else "")}
    found.append(Quantity(chip.memory_bytes, "B", "measured" if chip.measured else "quoted", source=chip.source, conditions=note, says={"zh": f"{chip.name} 显存", "en": f"{chip.name} memory"}))
    if layout.source:
        found.append(Quantity(count, "layer", "quoted", source=layout.source, says={"zh": f"{layout.name} 的层、头与宽度", "en": f"layers, heads and widths of {layout.name}"},
                              conditions={"heads": heads.query, "key_dim": heads.key_dim}))  # fmt: skip
    return tuple(found)


def models_with_heads() -> tuple[str, ...]:
    return (*(id for id, shape in facts.models().items() if shape.caches), BY_HAND)


def _is_by_hand(params: Params) -> bool:
    return params.model == BY_HAND


WIDGET = Widget(
    id="kv-calculator",
    Params=Params,
    controls=(
        Choice("model", models_with_heads, lambda id: facts.model(id).name),
        Stops("context", CONTEXTS),
        Stops("batch", BATCHES),
        Stops("kv_bits", (4, 8, 16), lambda v: f"{v:g}"),
        Choice("chip", lambda: tuple(facts.chips()), lambda id: facts.chip(id).name),
        Stops("weight_bits", (2, 3, 4, 6, 8, 16), lambda v: f"{v:g}"),
        Choice("axes", lambda: ("linear", "log")),
        Choice("kind", lambda: KINDS, when=_is_by_hand),
        Range("layers", 1, 128, when=_is_by_hand),
        Range("state_layers", 0, 127, when=_is_by_hand),
        Stops("heads", (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64, 96, 128), when=_is_by_hand),
        Stops("kv_heads", (1, 2, 4, 8, 16, 32, 64, 128), when=_is_by_hand),
        Stops("head_dim", (32, 64, 80, 96, 128, 192, 256), when=_is_by_hand),
        Stops("latent", (64, 128, 256, 512, 1024, 1536, 2048), when=_is_by_hand),
        Stops("rope_dim", (0, 16, 32, 64, 128), when=_is_by_hand),
        Stops("parameters_billion", (0, 0.1, 0.5, 1, 4, 8, 14, 32, 70, 120, 235, 671), lambda v: f"{v:g}", when=_is_by_hand),
    ),
    run=run,
    draw=draw,
)
