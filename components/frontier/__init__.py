"""Batch along a curve of waiting and throughput: more in all, slower for each; and what targets and memory leave of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Stops
from components.text import Words, amount, digits
from compute import calibrated, facts
from compute.calibrated import Parallel, Precision
from compute.facts import ChipName, ModelName
from compute.frontier import Arrival, Curve, Frontier, Length, Point, Size, Target, frontier
from compute.quantity import Quantity

BATCHES = (1, 2, 4, 8, 16, 32, 58, 64, 128, 256, 512, 1024, 4096)
CONTEXTS = (128, 512, 1000, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
TPOTS = (0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.1, 0.2)
TTFTS = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
MARKED = (1, 8, 16, 32, 58)  # sizes that the curve names
MARKED_FAR = (1, 32, 128, 512, 2048, 8192)  # where it goes further than twice as far


@parameters
class Params:
    """context: tokens of every request, read from its prompt and looked back at. Targets in seconds."""

    model: ModelName = "qwen3.8-27b"
    chip: ChipName = "h100-sxm"
    precision: Precision = "bf16"
    tensor_parallel: Parallel = 1
    context: Length = 4096
    batch: Size = 58
    tpot_target: Target = 0.025
    ttft_target: Target = 1.0
    arrival: Arrival = "one"


@dataclass(frozen=True)
class Result:
    params: Params
    frontier: Frontier

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The ideal one, and the calibrated one where there is one."""
        return tuple(filter(None, (self.frontier.ideal, self.frontier.calibrated)))

    @property
    def main(self) -> Curve:
        return self.curves[-1]


def run(params: Params, answer=None) -> Result:
    """Raises as compute.frontier does: Refused where not even one request fits, BadInput for cards that cannot share the model."""
    return Result(params, frontier(**asdict(params)))


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    return View(
        picture=Stage(_stage(result, scene), steps=1, height=520, picks=("batch",)),
        readouts=_readouts(result, scene),
        sentence=_says(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        simplified=_simplified(result, scene),
    )


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    words, lang, p, found = scene.words, scene.lang, result.params, result.frontier
    sizes = [point.batch for point in found.ideal.points]

    def curve(it: Curve) -> dict[str, Any]:
        return {
            "step": [point.step_seconds for point in it.points], "first": [point.first_token_seconds for point in it.points],
            "good": [point.feasible for point in it.points], "best": sizes.index(it.best.batch) if it.best else None,
            "error": it.error.mean if it.error else 0, "first_error": it.first_token_error.mean if it.first_token_error else 0,
        }  # fmt: skip

    real, before = found.calibrated, scene.before
    moved = before is not None and replace(before.params, batch=p.batch, tpot_target=p.tpot_target, ttft_target=p.ttft_target) != p
    name = words("curve.calibrated", error=amount(real.error.mean, "ratio", lang)) if real and real.error else words("curve.calibrated_unjudged")
    return {
        "sizes": sizes, "asked": p.batch, "at": None if found.refused else sizes.index(p.batch), "marked": _marked(sizes),
        "ideal": curve(found.ideal), "real": real and curve(real), "names": [words("curve.ideal"), name],
        "tpot": p.tpot_target, "ttft": p.ttft_target,
        "tpot_label": words("target.tpot", target=_round(p.tpot_target)), "ttft_label": words("target.ttft", target=_round(p.ttft_target)),
        "none": result.main.best is None, "fits": found.memory.fits if sizes[-1] == found.memory.fits else None, "wall": _wall(result, scene),
        "ghost": _ghost(before) if moved else None,
        "was": _place(before.main.chosen) if before is not None and before.main.chosen and (moved or before.params.batch != p.batch) else None,
    }  # fmt: skip


def _round(seconds: float) -> str:
    """A target as it was set: "25 ms", "1 s"."""
    return f"{1000 * seconds:g} ms" if seconds < 1 else f"{seconds:,g} s"


def _marked(sizes: list[int]) -> list[int]:
    return [sizes.index(n) for n in (MARKED if sizes[-1] <= 2 * MARKED[-1] else MARKED_FAR) if n in sizes]


def _place(point: Point) -> tuple[float, float]:
    return point.step_seconds, point.tokens_per_second


def _ghost(before: Result) -> list[tuple[float, float]]:
    return [_place(point) for point in before.main.points]


def _wall(result: Result, scene: Scene) -> list[str]:
    """What stands behind the wall: the first request that does not fit, or the chosen ones, and the bytes that are missing."""
    memory, p = result.frontier.memory, result.params
    if memory.fits is None:
        return []
    beyond = p.batch if result.frontier.refused else memory.fits + 1
    return [scene.words("wall.name", fits=f"{memory.fits:,}"), scene.words("wall.missing", n=f"{beyond:,}", bytes=amount(memory.missing_bytes(beyond), "B", scene.lang))]


def _shown(values: list[float], unit: str) -> tuple[str, str]:
    """Several values in one unit, that of the largest: ("25.2 | 31.5", "ms")."""
    name, scale = ("ms", 1e-3) if unit == "s" and max(values) < 1 else (unit, 1.0)
    if unit == "×":
        return " | ".join(f"×{digits(value)}" for value in values), ""
    return " | ".join(digits(value / scale) for value in values), name


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, real = scene.words, scene.lang, result.frontier.calibrated

    def error(of) -> str:
        found = real and of(real)
        said = words("note.error", error=amount(found.mean, "ratio", lang)) if found else words("note.unjudged")
        return words("note.pair", error=said) if real else words("note.ideal")

    def figure(id: str, of, unit: str, note: str) -> Readout:
        if result.main.chosen is None:
            return Readout(words(f"readout.{id}"), "–", "", "", words("note.refused"))
        now = _shown([of(curve) for curve in result.curves], unit)
        before = scene.before and scene.before.main.chosen and _shown([of(curve) for curve in scene.before.curves], unit)
        return Readout(words(f"readout.{id}"), now[0], "" if unit == "token/s" else now[1], words("before", value=" ".join(before).strip()) if before and before != now else "", note)

    best = [curve.best for curve in result.curves]
    sold = words("note.sold", rate=" | ".join(digits(point.tokens_per_second) if point else "0" for point in best)) if any(best) else words("note.none")
    was = scene.before and " | ".join(_count(curve.best, words) for curve in scene.before.curves)
    now = " | ".join(_count(point, words) for point in best)
    throughput = error(lambda curve: curve.error)
    return (
        figure("step", lambda curve: curve.chosen.step_seconds, "s", throughput),
        figure("rate", lambda curve: curve.chosen.tokens_per_second, "token/s", throughput),
        figure("times", lambda curve: curve.chosen.tokens_per_second / curve.alone.tokens_per_second, "×", words("note.alone", rate=" | ".join(digits(c.alone.tokens_per_second) for c in result.curves))),
        figure("first", lambda curve: curve.chosen.first_token_seconds, "s", error(lambda curve: curve.first_token_error)),
        Readout(words("readout.best"), now, "", words("before", value=was) if was and was != now else "", sold),
    )  # fmt: skip


def _count(point: Point | None, words: Words) -> str:
    return f"{point.batch:,}" if point else words("none")


def _says(result: Result, scene: Scene) -> str:
    words, lang, p, found = scene.words, scene.lang, result.params, result.frontier
    show = partial(amount, lang=lang)
    said = ""
    if found.refused:
        memory = found.memory
        said += words("says.refused", n=f"{p.batch:,}", bytes=show(memory.missing_bytes(p.batch), "B"), fits=f"{memory.fits:,}")
    for curve in result.curves if not found.refused else ():
        alone, chosen = curve.alone, curve.chosen
        given = {"n": f"{p.batch:,}", "step": show(chosen.step_seconds, "s"), "rate": show(chosen.tokens_per_second, "token/s"), "first": show(chosen.first_token_seconds, "s"),
                 "alone_step": show(alone.step_seconds, "s"), "alone_rate": show(alone.tokens_per_second, "token/s"),
                 "times": show(chosen.tokens_per_second / alone.tokens_per_second, "×"), "longer": show(chosen.step_seconds / alone.step_seconds, "×")}  # fmt: skip
        said += words(f"says.{curve.kind}{'_alone' if p.batch == 1 else ''}", **given)
        if curve.kind == "calibrated":
            said += words("says.error", error=show(curve.error.mean, "ratio")) if curve.error else words("says.unjudged")
    if not found.refused and found.memory.fits is not None:
        said += words("says.fits", fits=f"{found.memory.fits:,}")
    said += words("says.targets", tpot=_round(p.tpot_target), ttft=_round(p.ttft_target))
    judged = []
    for curve in result.curves:
        kind = words(f"kind.{curve.kind}")
        if curve.best:
            judged.append(words("says.best", kind=kind, n=f"{curve.best.batch:,}", rate=show(curve.best.tokens_per_second, "token/s"), stops=words(f"stops.{'_'.join(curve.stops)}")))
        else:
            judged.append(words(f"says.none.{'_'.join(curve.stops)}", kind=kind, step=show(curve.alone.step_seconds, "s"), first=show(curve.alone.first_token_seconds, "s")))
    return said + words("says.and").join(judged) + words("says.end")


def _simplified(result: Result, scene: Scene) -> str:
    words, lang, p, found = scene.words, scene.lang, result.params, result.frontier
    show = partial(amount, lang=lang)
    said = words("simplified.ideal")
    if real := found.calibrated:
        worst = lambda error: f"{error.worst:+.0%}".replace("-", "−")  # noqa: E731
        if real.error:
            said += words("simplified.error", mean=show(real.error.mean, "ratio"), worst=worst(real.error), where=real.error.where[lang])
        else:
            said += words("simplified.unjudged")
        if error := real.first_token_error:
            said += words("simplified.first_error", mean=show(error.mean, "ratio"), worst=worst(error), where=error.where[lang])
    else:
        said += words("simplified.why_not", why=found.why_not[lang].rstrip("。."))
    said += words(f"simplified.{p.arrival}") + words("simplified.goodput", context=f"{p.context:,}")
    shape = facts.model(p.model)
    if shape.context_maximum and p.context > shape.context_maximum:
        said += words("simplified.beyond", model=shape.name, longest=f"{shape.context_maximum:,}")
    if any(m.copies > m.used for m in shape.matrices):
        said += words("simplified.experts")
    if found.memory.fits and found.memory.fits > found.ideal.points[-1].batch:
        said += words("simplified.drawn", drawn=f"{found.ideal.points[-1].batch:,}", fits=f"{found.memory.fits:,}")
    return said


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    setting = asdict(result.params)
    del setting["batch"]
    return tuple(
        setting | {"clock": curve.kind, "error": curve.error.mean if curve.error else None, "chosen": point.batch == result.params.batch} | vars(point)
        for curve in result.curves for point in curve.points
    )  # fmt: skip


SAYS = {
    "step": {"zh": "每个 token 的时间", "en": "time per token"},
    "rate": {"zh": "总吞吐", "en": "total throughput"},
    "first": {"zh": "首 token 时间", "en": "time to the first token"},
    "best": {"zh": "达标时的总吞吐", "en": "throughput within the targets"},
}
FORMULAS = {
    "ideal": "max(bytes / bandwidth, FLOP / peak), bytes = weights + batch × (context × KV + 2 × state)",
    "calibrated": "Σ launches × cost + √((FLOP / share of peak)² + (bytes / share of bandwidth)²), kernel by kernel",
}
FIRST = {"one": "step of batch − 1 + step that reads the prompt beside them", "all": "step that reads batch prompts"}


def _papers(result: Result) -> tuple[Quantity, ...]:
    p, found = result.params, result.frontier
    given = {"context": p.context, "precision": p.precision, "cards": p.tensor_parallel}
    made = []
    for curve in result.curves:
        name = {"ideal": {"zh": "，理想上界", "en": ", ideal bound"}, "calibrated": {"zh": "，标定", "en": ", calibrated"}}[curve.kind]
        says = lambda id: {lang: SAYS[id][lang] + name[lang] for lang in ("zh", "en")}  # noqa: E731
        off = lambda error: {"mean error": f"{error.mean:.1%}", "judged on": error.where} if error else {}  # noqa: E731
        for point in dict.fromkeys(filter(None, (curve.alone, curve.chosen))):
            inputs = given | {"batch": point.batch}
            made += [
                Quantity(point.step_seconds, "s", "computed", FORMULAS[curve.kind], inputs, conditions=off(curve.error), says=says("step")),
                Quantity(point.tokens_per_second, "token/s", "computed", "batch / step", inputs, conditions=off(curve.error), says=says("rate")),
                Quantity(point.first_token_seconds, "s", "computed", FIRST[p.arrival], inputs, conditions=off(curve.first_token_error), says=says("first")),
            ]  # fmt: skip
        if curve.best:
            made.append(Quantity(curve.best.tokens_per_second, "token/s", "computed", "max of batch / step where step ≤ TPOT target and first token ≤ TTFT target",
                                 given | {"batch": curve.best.batch, "tpot_target": p.tpot_target, "ttft_target": p.ttft_target}, conditions=off(curve.error), says=says("best")))  # fmt: skip
    memory = found.memory
    if memory.fits is not None:
        made.append(Quantity(memory.fits, "request", "computed", "⌊(memory − weights) / (context × KV + state)⌋, on each card",
                             given | {"memory": memory.memory_bytes, "weights": memory.weights_bytes, "request": memory.request_bytes}, says={"zh": "放得下的请求", "en": "requests that fit"}))  # fmt: skip
    chip = facts.chip(p.chip)
    note = {"note": chip.note or (chip.source.note if chip.source else "")}
    made.append(Quantity(chip.bandwidth_bytes_per_s, "B/s", "measured" if chip.measured else "quoted", source=chip.source, conditions=note, says={"zh": f"{chip.name} 带宽", "en": f"{chip.name} bandwidth"}))
    return tuple(made)


# ---- controls and guess

OFFERED = ("same", "half", "several", "all")


def _longer(result: Result) -> Quantity:
    """At the ideal bound, the chosen batch against one alone."""
    curve = result.frontier.ideal
    chosen = curve.chosen or curve.points[-1]
    return Quantity(chosen.step_seconds / curve.alone.step_seconds, "×", "computed", "step of the batch / step of one", {"batch": chosen.batch, "context": result.params.context})


def _right(result: Result) -> str:
    ratio = _longer(result).value
    return "same" if ratio < 1.1 else "half" if ratio < 2 else "several" if ratio < 12 else "all"


def models() -> tuple[str, ...]:
    """Those whose memory is counted."""
    return tuple(id for id, shape in facts.models().items() if not shape.textbook)


def chips() -> tuple[str, ...]:
    """Those whose kernels somebody measured come first."""
    known = calibrated.classes()
    return tuple(sorted(facts.chips(), key=lambda id: calibrated.CLASSES.get(id, id) not in known))


WIDGET = Widget(
    id="frontier",
    Params=Params,
    controls=(
        Stops("batch", BATCHES),
        Stops("tpot_target", TPOTS, lambda v: f"{1000 * v:g}"),
        Stops("ttft_target", TTFTS, lambda v: f"{v:g}"),
        Stops("context", CONTEXTS),
        Choice("model", models, lambda id: facts.model(id).name),
        Choice("chip", chips, lambda id: facts.chip(id).name),
        Choice("precision", lambda: ("bf16", "fp8", "int8", "int4")),
        Stops("tensor_parallel", (1, 2, 4, 8)),
        Choice("arrival", lambda: ("one", "all")),
    ),
    run=run,
    draw=draw,
    guesses={"batch58": Guess(truth=_longer, choices=OFFERED, right=_right)},
)
