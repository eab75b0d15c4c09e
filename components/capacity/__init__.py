"""How many requests fit on a card beside the weights: each reserving its maximum, or handed blocks as it grows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from math import floor, log, log10
from typing import Annotated, Any

from pydantic import Field

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Stops
from components.text import amount, digits, short
from compute import facts, kv, roofline
from compute.errors import BadInput
from compute.facts import Chip, ChipName, ModelName
from compute.quantity import Quantity
from compute.roofline import Bits, Group, KvBits
from compute.shapes import ModelShape

CONTEXTS = (128, 512, 1000, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
RESERVES = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576)
SHORTEST = 128  # tokens: where the curve begins, unless the chosen length is shorter
POINTS = 96  # of the curve


@parameters
class Params:
    """context: tokens that each request really has in memory. reserve: tokens that it reserves where one reserves; more than
    the model may read counts as that. block: tokens of a page."""

    model: ModelName = "qwen3.8-27b"
    chip: ChipName = "h100-sxm"
    context: Annotated[int, Field(ge=1, le=10_000_000)] = 4096
    reserve: Annotated[int, Field(ge=1, le=10_000_000)] = 262144
    block: Annotated[int, Field(ge=1, le=1024)] = 16
    weight_bits: Bits = 16
    group: Group = 128
    kv_bits: KvBits = 16


@dataclass(frozen=True)
class Way:
    """Equal requests side by side. Bytes of one: state + written + unwritten = each."""

    requests: int
    tokens: int  # that one has memory for
    state: float
    written: float
    each: float

    @property
    def unwritten(self) -> float:
        return self.each - self.state - self.written

    def share(self, free: float) -> float:
        """Of the memory beside the weights, what holds something."""
        return self.requests * (self.state + self.written) / free if free else 0.0


@dataclass(frozen=True)
class Sizes:
    params: Params
    shape: ModelShape
    chip: Chip
    weights: float
    free: float  # bytes beside the weights
    reserved: Way
    paged: Way
    curve: tuple[tuple[int, int], ...]  # (tokens a request has, requests that fit in pages)


def run(params: Params, answer=None) -> Sizes:
    """Raises Refused when the weights alone do not fit, BadInput when requests would outgrow what they reserve."""
    shape, chip = facts.model(params.model), facts.chip(params.chip)
    reserve = min(params.reserve, shape.context_maximum or params.reserve)
    if params.context > reserve:
        if reserve < params.reserve:
            en, zh = f"{shape.name} reads at most {reserve:,} tokens", f"{shape.name} 最多读 {reserve:,} 个 token"
        else:
            en, zh = f"each request reserves only {reserve:,}", f"每个请求只预留 {reserve:,} 个 token"
        raise BadInput("context", params.context, en, zh)
    fit = partial(kv.capacity, params.model, params.chip, weight_bits=params.weight_bits, group=params.group, kv_bits=params.kv_bits)
    written = roofline.cache_bytes(shape, params.context, params.kv_bits)

    def way(tokens: int) -> Way:
        room = fit(context=tokens)
        return Way(room.requests, tokens, shape.state_bytes, written, room.bytes_per_request)

    room = fit(context=reserve)
    curve = tuple((n, fit(context=_whole(n, params.block)).requests) for n in _lengths(params.context, reserve))
    return Sizes(params, shape, chip, room.weights_bytes, room.free_bytes, way(reserve), way(_whole(params.context, params.block)), curve)


def _whole(tokens: int, block: int) -> int:
    """Tokens of the blocks that hold so many."""
    return -(-tokens // block) * block


def _lengths(context: int, reserve: int) -> list[int]:
    low = min(SHORTEST, context, reserve)
    return sorted({round(low * (reserve / low) ** (i / (POINTS - 1))) for i in range(POINTS)} | {context})


# ---- drawing


def draw(result: Sizes, scene: Scene) -> View:
    words = scene.words
    return View(
        picture=Stage(_stage(result, scene), steps=1, height=460),
        readouts=_readouts(result, scene),
        sentence=_says(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified") + (words("simplified_window") if any(cache.window for cache in result.shape.caches) else ""),
        derivation=_derivation(result, scene),
    )


def percent(ratio: float) -> str:
    return f"{digits(100 * ratio)}%"


def _stage(result: Sizes, scene: Scene) -> dict[str, Any]:
    words, lang, before = scene.words, scene.lang, scene.before
    size = partial(amount, unit="B", lang=lang)

    def bar(id: str, way: Way) -> dict[str, Any]:
        left = result.free - way.requests * way.each
        count, unit = short(way.requests, "request", lang)
        return {
            "id": id, "name": words(f"bar.{id}"), "more": words(f"bar.{id}.more", tokens=f"{way.tokens:,}", block=result.params.block), "count": count, "unit": unit,
            "n": way.requests, "each": way.each / result.free if result.free else 2, "parts": [part / way.each for part in (way.state, way.written, way.unwritten)],
            "size": words("bar.each", bytes=size(way.each)), "share": words("bar.share", share=percent(way.share(result.free))),
            "left": words("bar.left" if way.requests else "bar.none", left=size(left), each=size(way.each)),
        }  # fmt: skip

    ghost = before.curve if before is not None and replace(before.params, context=result.params.context) != result.params else ()
    was = [before.params.context, before.paged.requests] if before is not None and before.paged.requests else None
    most = max(n for _, n in (*result.curve, (0, result.reserved.requests), *ghost))
    least = min(n for _, n in (*result.curve, (0, result.reserved.requests), *ghost) if n) if most else 1
    decades = range(floor(log10(least)), floor(log10(1.5 * max(most, 2))) + 1)
    low, high = result.curve[0][0], result.reserved.tokens
    return {
        "card": {
            "weights": result.weights / result.chip.memory_bytes, "name": result.chip.name, "memory_label": words("card.memory", bytes=size(result.chip.memory_bytes)),
            "weights_label": words("card.weights", bytes=size(result.weights)), "free_label": words("card.free", bytes=size(result.free)),
        },
        "bars": [bar("reserved", result.reserved), bar("paged", result.paged)],
        "has_state": bool(result.shape.state_bytes),
        "plot": {
            "x": [low, high], "y": [0.7 * 10 ** decades[0], max(most, 2) * 1.5], "paged": [point for point in result.curve if point[1]],
            "ghost": [point for point in ghost if point[1] and low <= point[0] <= high], "reserved": result.reserved.requests,
            "was": was if was and low <= was[0] <= high else None,
            "here": [result.params.context, result.paged.requests], "here_label": words("plot.here", tokens=f"{result.params.context:,}", n=amount(result.paged.requests, "request", lang)),
            "here_short": amount(result.paged.requests, "request", lang),
            "paged_label": words("plot.paged"), "reserved_label": words("plot.reserved", tokens=f"{high:,}", n=amount(result.reserved.requests, "request", lang)),
            "x_ticks": [[n, f"{n:,}"] for n in CONTEXTS + RESERVES[-1:] if low <= n <= high and n != 1000], "y_ticks": [[10**e, f"{10**e:,}"] for e in decades],
        },
    }  # fmt: skip


def _readouts(result: Sizes, scene: Scene) -> tuple[Readout, ...]:
    words, lang, old = scene.words, scene.lang, scene.before

    def figure(label: str, of, unit: str, note: str = "") -> Readout:
        number, name = short(of(result), unit, lang)
        was = old and amount(of(old), unit, lang)
        return Readout(words(label), number, name, words("before", value=was) if was and was != amount(of(result), unit, lang) else "", note)

    reserved, paged = result.reserved, result.paged
    parts = words("readout.parts", kv=amount(paged.written, "B", lang), state=amount(paged.state, "B", lang)) if paged.state else ""
    return (
        figure("readout.paged", lambda r: r.paged.requests, "request", words("readout.share", share=percent(paged.share(result.free)))),
        figure("readout.reserved", lambda r: r.reserved.requests, "request", words("readout.share", share=percent(reserved.share(result.free)))),
        figure("readout.each", lambda r: r.paged.each, "B", parts),
        figure("readout.each_reserved", lambda r: r.reserved.each, "B", words("readout.tokens", tokens=f"{reserved.tokens:,}")),
        figure("readout.free", lambda r: r.free, "B", words("readout.of", memory=amount(result.chip.memory_bytes, "B", lang))),
    )


def _says(result: Sizes, scene: Scene) -> str:
    words, p, reserved, paged = scene.words, result.params, result.reserved, result.paged
    size, requests = partial(amount, unit="B", lang=scene.lang), partial(amount, unit="request", lang=scene.lang)
    said = words("says.card", chip=result.chip.name, model=result.shape.name, weights=size(result.weights), free=size(result.free))
    said += words("says.paged", tokens=f"{p.context:,}", each=size(paged.each), n=requests(paged.requests))
    if p.reserve > reserved.tokens:
        said += words("says.most", model=result.shape.name, tokens=f"{reserved.tokens:,}")
    said += words("says.reserved", tokens=f"{reserved.tokens:,}", each=size(reserved.each), n=requests(reserved.requests))
    return said + words("says.share", share=percent(reserved.share(result.free)), paged=percent(paged.share(result.free)))


def _rows(result: Sizes) -> tuple[dict[str, Any], ...]:
    setting = asdict(result.params)
    bars = tuple(
        setting | {"layout": name, "tokens": way.tokens, "requests": way.requests, "bytes_per_request": way.each, "state_bytes": way.state, "kv_written_bytes": way.written,
                   "unwritten_bytes": way.unwritten, "weights_bytes": result.weights, "free_bytes": result.free}
        for name, way in (("reserved", result.reserved), ("paged", result.paged))
    )  # fmt: skip
    return bars + tuple(setting | {"layout": "paged", "context": n, "tokens": _whole(n, result.params.block), "requests": requests} for n, requests in result.curve)


def _tex(value: float) -> str:
    return f"{round(value):,}".replace(",", "{,}")


def _derivation(result: Sizes, scene: Scene) -> str:
    words, p, memory = scene.words, result.params, result.chip.memory_bytes
    lines = []
    for name, way in (("reserved", result.reserved), ("paged", result.paged)):
        lines.append(words(f"derive.{name}", context=f"{p.context:,}", block=p.block, tokens=f"{way.tokens:,}"))
        one = f"{_tex(way.each - way.state)} + {_tex(way.state)}" if way.state else _tex(way.each)
        lines.append(rf"$$\left\lfloor \frac{{{_tex(memory)} - {_tex(result.weights)}}}{{{one}}} \right\rfloor = {_tex(way.requests)}$$")
    return "\n\n".join(lines)


def _papers(result: Sizes) -> tuple[Quantity, ...]:
    p, chip, shape = result.params, result.chip, result.shape
    found = []
    for way, zh, en in ((result.reserved, "按最大长度预留", "reserving the maximum"), (result.paged, "按需发放", "in pages")):
        given = {"memory": chip.memory_bytes, "weights": result.weights, "tokens": way.tokens, "request": way.each}
        found += [
            Quantity(way.requests, "request", "computed", "⌊(memory − weights) / one request⌋", given, says={"zh": f"放得下的请求，{zh}", "en": f"requests that fit, {en}"}),
            Quantity(way.each, "B", "computed", "tokens × KV of one token + state", {"tokens": way.tokens, "state": way.state, "kv_bits": p.kv_bits}, says={"zh": f"一个请求，{zh}", "en": f"one request, {en}"}),
            Quantity(way.share(result.free), "ratio", "computed", "requests × (KV written + state) / (memory − weights)", {"written": way.written, "state": way.state, "context": p.context},
                     says={"zh": f"权重之外的显存里存着东西的，{zh}", "en": f"memory beside the weights that holds something, {en}"}),
        ]  # fmt: skip
    found.append(Quantity(result.weights, "B", "computed", "all loaded weights", {"weight_bits": p.weight_bits}, says={"zh": "卡上的权重", "en": "weights on the card"}))
    note = {"note": chip.note or (chip.source.note if chip.source else "")}
    found.append(Quantity(chip.memory_bytes, "B", "measured" if chip.measured else "quoted", source=chip.source, conditions=note, says={"zh": f"{chip.name} 显存", "en": f"{chip.name} memory"}))
    if shape.context_maximum and shape.source:
        found.append(Quantity(shape.context_maximum, "token", "quoted", source=shape.source, says={"zh": f"{shape.name} 最长能读", "en": f"the most that {shape.name} reads"}))
    return tuple(found)


# ---- controls and guess

OFFERED = ("58", "20", "5", "1")


def _nearest(result: Sizes) -> str:
    return min(OFFERED, key=lambda id: abs(log(int(id) / max(1, result.reserved.requests))))


def _truth(result: Sizes) -> Quantity:
    return Quantity(result.reserved.requests, "request", "computed", "⌊(memory − weights) / one request⌋", {"free": result.free, "request": result.reserved.each})


def models() -> tuple[str, ...]:
    """Those that keep KV."""
    return tuple(id for id, shape in facts.models().items() if shape.caches)


WIDGET = Widget(
    id="capacity",
    Params=Params,
    controls=(
        Choice("model", models, lambda id: facts.model(id).name),
        Choice("chip", lambda: tuple(facts.chips()), lambda id: facts.chip(id).name),
        Stops("context", CONTEXTS),
        Stops("reserve", RESERVES),
        Stops("weight_bits", (2, 3, 4, 6, 8, 16), lambda v: f"{v:g}"),
        Stops("kv_bits", (4, 8, 16), lambda v: f"{v:g}"),
        Stops("block", (1, 8, 16, 32, 64, 128, 256)),
    ),
    run=run,
    draw=draw,
    guesses={"reserved": Guess(truth=_truth, choices=OFFERED, right=_nearest)},
)
