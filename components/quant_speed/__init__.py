"""What fewer bits cost and what they bought, on one page: SmolLM2's loss, the speed that its bytes promise, and the clock's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice
from components.schemes import TIMED, matrix_shapes, of_model, shown
from components.text import Words, amount, digits, short
from compute import facts, numbers, precompute
from compute.quantity import Quantity
from compute.quantize import schemes
from compute.quantize.paired import Change

MODEL = "smollm2-135m"
FORMATS = ("fp32", "bf16", "int8", "int4", "int4-head16", "llama-q4")
SCHEMES = {"fp32": ""} | {format: scheme for scheme, format in TIMED.items()}
BESIDE = f"quantize.{MODEL}.rest_per_token"
LAYERS = facts.model(MODEL).layers
MATRICES = ("qkv", "out", "gate_up", "down", "head")


@parameters
class Params:
    """chosen: the format that is looked at. base: what the others are faster than."""

    chosen: Literal["fp32", "bf16", "int8", "int4", "int4-head16", "llama-q4"] = "int4"
    base: Literal["bf16", "fp32"] = "bf16"


@dataclass(frozen=True)
class Speed:
    """A format: bytes read for one token, tokens/s (with quartiles of the runs), its ratio to bf16's within each round
    (median and quartiles), what its scheme changes in loss, and seconds of
    a token in each kind of matrix. bandwidth_share: of what this machine's memory delivers. None and {}: not measured here."""

    format: str
    scheme: str
    bytes: float
    change: Change | None
    speed: float | None = None
    quartiles: tuple[float, float] | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    over_bf16: tuple[float, float, float] | None = None
    bandwidth_share: float | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rest(self) -> float:
        """Seconds of a token outside the matrices."""
        return max(0.0, 1 / self.speed - sum(self.seconds.values()))


@dataclass(frozen=True)
class Result:
    """beside: what is computed beside the products of a token, timed with the products left out; the same in every format."""

    params: Params
    speeds: tuple[Speed, ...]
    beside: Quantity | None = None
    mark: Literal["precomputed"] = "precomputed"

    def of(self, format: str) -> Speed:
        return next(s for s in self.speeds if s.format == format)

    @property
    def chosen(self) -> Speed:
        return next((s for s in self.speeds if s.format == self.params.chosen), self.speeds[-1])

    def predicted(self, s: Speed) -> float:
        """Times faster than the base, were nothing but bytes to count."""
        return self.of(self.params.base).bytes / s.bytes

    def measured(self, s: Speed) -> float | None:
        """Within the rounds where that is known, else medians of runs that took turns."""
        if self.params.base == "bf16" and s.over_bf16:
            return s.over_bf16[0]
        base = self.of(self.params.base).speed
        return None if s.speed is None or base is None else s.speed / base

    def spread(self, s: Speed) -> tuple[float, float] | None:
        """The middle half of what `measured` is the median of."""
        if self.params.base == "bf16" and s.over_bf16:
            return s.over_bf16[1:]
        base = self.of(self.params.base).speed
        return (s.quartiles[0] / base, s.quartiles[1] / base) if s.quartiles and base else None


def run(params: Params, answer: None = None) -> Result:
    kept = precompute.stored() | numbers.measured_entries()
    speeds = tuple(_speed(kept, format) for format in FORMATS if format in SCHEMES or _timed(format) in kept)
    return Result(params, speeds, numbers.resolve(f"~{BESIDE}") if BESIDE in kept else None)


def _timed(format: str) -> str:
    return f"quantize.{MODEL}.{format}.tokens_per_second"


def _speed(kept: Mapping[str, Any], format: str) -> Speed:
    key, timed = f"quantize.{MODEL}.{format}", kept.get(_timed(format))
    scheme = SCHEMES.get(format, "")
    loss = kept.get(f"quantize.{MODEL}.{scheme}.loss_change")
    change = Change(loss["value"], *loss["interval95"], loss["n"], 0) if loss else None
    if timed is None:
        return Speed(format, scheme, of_model(schemes.scheme(scheme), MODEL).bytes if scheme else 4.0 * sum(rows * width for rows, width in matrix_shapes(MODEL)), change)
    around, products = timed["conditions"], {name: kept.get(f"{key}.product.{name}.step") for name in MATRICES}
    seconds = {name: entry["value"] * (1 if name == "head" else LAYERS) for name, entry in products.items() if entry}
    return Speed(format, scheme, kept[f"{key}.bytes_per_token"]["value"], change, timed["value"], _middle(timed), seconds, _ratio(kept.get(f"{key}.speedup")), kept.get(f"{key}.bandwidth_share", {}).get("value"), around)


def _ratio(entry: Mapping[str, Any] | None) -> tuple[float, float, float] | None:
    middle = _middle(entry) if entry else None
    return (entry["value"], *middle) if middle else None


def _middle(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """The middle half of the runs."""
    found = entry["conditions"].get("quartiles")
    return tuple(found) if found else None


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    return View(
        picture=Stage(_stage(result, scene), height=520, picks=("chosen",)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene.words, scene.lang),
        rows=_rows(result),
        papers=_papers(result),
        simplified=_simplified(result, scene.words),
    )


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    words, lang = scene.words, scene.lang
    old = scene.before.measured if scene.before is not None and scene.before.params.base != result.params.base else None
    rows = [
        {
            "id": s.format, "name": words(f"option.chosen.{s.format}"), "bytes": amount(s.bytes, "B", lang), "predicted": result.predicted(s), "measured": result.measured(s),
            "speed": words("speed", speed=digits(s.speed)) if s.speed else "", "quartiles": result.spread(s),
            "change": [s.change.value, s.change.low, s.change.high] if s.change else None, "says": _cost(s, words), "chosen": s is result.chosen,
            "ghost": old(s) if old else None,
        }
        for s in result.speeds
    ]  # fmt: skip
    parts = [
        {"name": words(f"option.chosen.{s.format}"), "parts": [*(1e3 * s.seconds[m] for m in MATRICES), 1e3 * s.rest], "chosen": s is result.chosen}
        for s in result.speeds if set(s.seconds) == set(MATRICES)
    ]  # fmt: skip
    return {"rows": rows, "parts": parts, "base": words(f"option.base.{result.params.base}"), "says": _sentence(result, words, lang)}


def _simplified(result: Result, words: Words) -> str:
    around = next((s.conditions for s in result.speeds if s.speed), None)
    return words("simplified_timed", cpu=around.get("cpu", ""), threads=around.get("threads", "")) if around else words("simplified")


def _cost(s: Speed, words: Words) -> str:
    if s.change is None:
        return words(f"cost.{s.format}" if s.format in ("fp32", "llama-q4") else "cost.unknown")
    value, low, high = shown(s.change)
    return words("cost.says", value=value, low=low, high=high)


def _interval(s: Speed, words: Words) -> str:
    if s.change is None:
        return _cost(s, words)
    _, low, high = shown(s.change)
    return words("cost.interval", low=low, high=high)


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, s, base = scene.words, scene.lang, result.chosen, words_of(result, scene.words)
    old = scene.before.chosen if scene.before is not None and scene.before.params.chosen != result.params.chosen else None

    def was(of) -> str:
        return words("before", value=of(old)) if old is not None and of(old) != of(s) else ""

    return (
        Readout(words("readout.cost"), shown(s.change)[0] if s.change else "–", words("unit.nats") if s.change else "", "", _interval(s, words)),
        Readout(words("readout.bytes"), *short(s.bytes, "B", lang), was(lambda x: amount(x.bytes, "B", lang)), words("note.share", share=amount(s.bandwidth_share, "ratio", lang)) if s.bandwidth_share else ""),
        Readout(words("readout.predicted"), f"×{result.predicted(s):.2f}", "", was(lambda x: f"×{result.predicted(x):.2f}"), words("note.against", base=base)),
        Readout(words("readout.measured"), _times(result.measured(s)), "", was(lambda x: _times(result.measured(x))), words("note.against", base=base) if result.measured(s) else words("untimed")),
        Readout(words("readout.speed"), digits(s.speed) if s.speed else "–", "token/s" if s.speed else "", was(lambda x: digits(x.speed or 0)),
                words("note.base", base=base, speed=digits(result.of(result.params.base).speed)) if result.measured(s) else words("untimed")),
    )  # fmt: skip


def _times(value: float | None) -> str:
    return "–" if value is None else f"×{value:.2f}"


def words_of(result: Result, words: Words) -> str:
    return words(f"option.base.{result.params.base}")


def _sentence(result: Result, words: Words, lang: str) -> str:
    s, base = result.chosen, result.of(result.params.base)
    said = words("sentence", format=words(f"option.chosen.{s.format}"), bytes=amount(s.bytes, "B", lang), base=words_of(result, words), base_bytes=amount(base.bytes, "B", lang),
                 predicted=f"{result.predicted(s):.2f}")  # fmt: skip
    if result.measured(s):
        said += words("sentence_clock", measured=f"{result.measured(s):.2f}", speed=digits(s.speed), base_speed=digits(base.speed))
    else:
        said += words("sentence_untimed")
    if s.change:
        value, low, high = shown(s.change)
        said += words("sentence_cost", value=value, low=low, high=high)
    if s.seconds and base.seconds and s is not base:
        inside, before = sum(s.seconds.values()), sum(base.seconds.values())
        said += words("sentence_why", inside=amount(inside, "s", lang), before=amount(before, "s", lang), times=f"{before / inside:.2f}", rest=amount(s.rest, "s", lang),
                      share=amount(s.rest * s.speed, "ratio", lang))  # fmt: skip
        if result.beside:
            said += words("sentence_beside", beside=amount(result.beside.value, "s", lang))
    return said


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "model": MODEL, "format": s.format, "scheme": s.scheme, "bytes_per_token": s.bytes, "tokens_per_second": s.speed, "base": result.params.base,
            "speedup_by_bytes": result.predicted(s), "speedup_measured": result.measured(s), "loss_change_nats_per_token": s.change.value if s.change else None,
            "low95": s.change.low if s.change else None, "high95": s.change.high if s.change else None,
            **{f"seconds_{m}": s.seconds.get(m) for m in MATRICES}, "seconds_elsewhere": s.rest if s.seconds else None,
        }
        for s in result.speeds
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    s, base = result.chosen, result.of(result.params.base)
    found = [
        Quantity(result.predicted(s), "×", "computed", "bytes of the base / bytes", {"base": base.bytes, "bytes": s.bytes}, says=SAYS["predicted"]),
        Quantity(s.bytes, "B", "computed", "Σ bits of the matrices / 8, scales and lm_head included", {"format": s.format, "scheme": s.scheme or "float32"}, says=SAYS["bytes"]),
    ]  # fmt: skip
    if result.measured(s):
        found += [
            Quantity(s.speed, "token/s", "measured", "tokens / seconds of decoding, batch 1", {}, None, dict(s.conditions), says=SAYS["speed"]),
            Quantity(result.measured(s), "×", "measured", "tokens/s over the base’s tokens/s", {}, None, dict(s.conditions) | {"base": base.format, "quartiles": result.spread(s)}, says=SAYS["measured"]),
        ]  # fmt: skip
    if result.beside:
        found.append(result.beside)
    if s.change:
        around = numbers.measured_entries().get(f"quantize.{MODEL}.{s.scheme}.loss_change", {}).get("conditions") or {"scheme": s.scheme, "model": MODEL}
        found.append(Quantity(s.change.value, "nat/token", "measured", "loss(scheme) − loss(fp32), in pairs", {}, None, around, (s.change.low, s.change.high), SAYS["change"]))
    return tuple(found)


SAYS = {
    "predicted": {"zh": "按字节该快多少", "en": "speed-up that the bytes promise"},
    "bytes": {"zh": "写一个 token 要读的权重字节", "en": "weight bytes read for one token"},
    "speed": {"zh": "实测速度", "en": "measured speed"},
    "measured": {"zh": "实测快了多少", "en": "measured speed-up"},
    "change": {"zh": "损失比 fp32 多多少", "en": "loss above that of fp32"},
}

# ---- guess


def _kept(result: Result) -> Quantity:
    """What share of the promise the clock keeps, for int4; untimed, nothing can be said but the promise itself."""
    s = result.of("int4")
    if result.measured(s) is None:
        return Quantity(result.predicted(s), "×", "computed", "bytes of the base / bytes", {"base": result.of(result.params.base).bytes, "bytes": s.bytes})
    return Quantity(_share(result), "ratio", "measured", "measured speed-up of int4 / the one that its bytes promise", {}, None, dict(s.conditions) | {"base": result.params.base})


def _share(result: Result) -> float:
    s = result.of("int4")
    return (result.measured(s) or result.predicted(s)) / result.predicted(s)


def _right(result: Result) -> str:
    share = _share(result)
    return "all" if share >= 0.9 else "most" if share >= 0.6 else "less"


WIDGET = Widget(
    id="quant-speed",
    Params=Params,
    controls=(Choice("chosen", lambda: FORMATS), Choice("base", lambda: ("bf16", "fp32"))),
    run=run,
    draw=draw,
    guesses={"int4": Guess(truth=_kept, choices=("all", "most", "less"), right=_right)},
)
