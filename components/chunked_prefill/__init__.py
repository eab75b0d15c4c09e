"""A long prompt arrives among readers: whole, in chunks, or on a second card. Who gets a token when, and how long nobody does."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from math import floor, log10
from typing import Annotated, Any

from pydantic import Field

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Stops
from components.text import amount, digits, short
from compute import aside, calibrated, facts, judged, stall as stalls
from compute.facts import Chip, ChipName, ModelName
from compute.quantity import Quantity
from compute.shapes import ModelShape
from compute.stall import ClockName, Gap, Mode, POLICY, Passage, Stall, stall

MODES: tuple[Mode, ...] = tuple(POLICY)
LANES = 12  # readers that are drawn; all fare alike
SILENCE = 3  # plain steps without a token from which on a gap is pointed out
FRAMES_PER_SECOND = 50  # of the player at speed ×1; view.js has it too
SHORT = 0.8  # seconds: what is over sooner is slowed down
SLOWED, MOST = 100, 1500  # frames of the whole picture, when real time would be over at once or take too long
SHORTEST_CONTEXT = 8192  # of a model that is offered
PROMPTS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)


@parameters
class Params:
    """mode: the way that is looked at. budget: tokens of a step when in chunks, the readers' included. context: tokens that each reader
    has in the cache when the prompt arrives. target: seconds from token to token."""

    mode: Mode = "whole"
    budget: Annotated[int, Field(ge=1, le=65_536)] = 512
    prompt: Annotated[int, Field(ge=1, le=1_000_000)] = 32_768
    readers: Annotated[int, Field(ge=1, le=1024)] = 48
    context: Annotated[int, Field(ge=2, le=1_000_000)] = 4096
    target: Annotated[float, Field(gt=0, le=10)] = 0.05
    clock: ClockName = "ideal"
    model: ModelName = "qwen3.8-27b"
    chip: ChipName = "h100-sxm"


@dataclass(frozen=True)
class Result:
    params: Params
    shape: ModelShape
    chip: Chip
    stall: Stall

    @property
    def chosen(self) -> Passage:
        return self.stall[self.params.mode]


def run(params: Params, answer=None) -> Result:
    """Raises Refused where readers and prompt do not fit, or the card has no calibrated clock; BadInput where the chosen way cannot be had."""
    p = params
    found = aside.call(stall, p.model, p.chip, p.prompt, p.readers, p.context, p.budget, p.clock, p.target)
    if p.mode in found.refused:
        stalls.require(p.mode, calibrated.ideal(p.model, p.chip), p.prompt, p.readers, p.budget)
    return Result(p, facts.model(p.model), facts.chip(p.chip), found)


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    return View(
        picture=Stage(_stage(result, scene), steps=frames(result.stall), start=frames(result.stall) - 1, height=560, picks=("mode",)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        simplified=_simplified(result, scene),
        derivation=_derivation(result, scene),
    )


def frames(found: Stall) -> int:
    """Of the picture from its beginning to its end: in real time, unless that is too short to see or too long to wait."""
    seconds = found.until - found.since
    return 1 + (SLOWED if seconds < SHORT else min(round(seconds * FRAMES_PER_SECOND), MOST))


def _pace(found: Stall) -> float:
    """Simulated seconds in a second of playing at speed ×1."""
    return (found.until - found.since) * FRAMES_PER_SECOND / (frames(found) - 1)


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    words, lang, p, found, chosen, pace = scene.words, scene.lang, result.params, result.stall, result.chosen, _pace(result.stall)
    seconds = partial(amount, unit="s", lang=lang)
    now = _gap(chosen)
    highest = max(passage.longest_gap_seconds for passage in found.passages)
    low, high = min(found.plain_step_seconds, p.target) * 0.6, max(highest, p.target) * 1.8
    thousandths = found.until < 1
    return {
        "mode": p.mode, "since": found.since, "until": found.until, "unit": {"name": "ms" if thousandths else "s", "per": 1000 if thousandths else 1, "digits": 1 if thousandths else 2},
        "title": words(f"name.{p.mode}"), "told": words(f"told.{p.mode}", budget=f"{p.budget:,}"), "scale": words("scale", clock=_clock(result, scene)),
        "longest": words("longest", gap=seconds(chosen.longest_gap_seconds)), "arrives": words("arrives", prompt=f"{p.prompt:,}"),
        "lanes": min(p.readers, LANES), "readers": words("reader" if p.readers == 1 else "readers", n=f"{p.readers:,}"),
        "readers_more": words("readers_more", shown=LANES) if p.readers > LANES else "",
        "plain": found.plain_step_seconds, "tokens": [gap.at for gap in chosen.gaps],
        "pieces": [[beat.began, beat.ended] for beat in chosen.beats if beat.read] or [list(chosen.read)],
        "writes": [chosen.first_token_seconds] * bool(chosen.handed) + [beat.ended for beat in chosen.beats if beat.wrote > p.readers],
        "reads": words("reads", prompt=f"{p.prompt:,}"), "reads_short": f"{p.prompt:,}", "handed": chosen.handed,
        "handed_label": words("handed", bytes=amount(found.handover_bytes, "B", lang), seconds=seconds(chosen.handed[1] - chosen.handed[0])) if chosen.handed else "",
        "first": chosen.first_token_seconds, "first_label": words("first", seconds=seconds(chosen.first_token_seconds)),
        "silence": [now.at - now.seconds, now.at, seconds(now.seconds)] if now.seconds >= SILENCE * found.plain_step_seconds else None,
        "x_ticks": [[at, f"{at * (1000 if thousandths else 1):g} {'ms' if thousandths else 's'}" if at else "0"] for at in _even(found.until)],
        "panels": [_panel(result, scene, mode) for mode in MODES],
        "y": [low, high], "y_ticks": [[at, seconds(at, significant=1)] for at in _decades(low, high)],
        "target": p.target, "target_label": words("target", seconds=milliseconds(p.target)),
        "pace": words("pace.real") if abs(pace - 1) < 0.03 else words("pace.slow", n=digits(1 / pace, 2)) if pace < 1 else words("pace.fast", n=digits(pace, 2)),
        "says": _sentence(result, scene),
    }  # fmt: skip


def _panel(result: Result, scene: Scene, mode: Mode) -> dict[str, Any]:
    words, lang, passage, before = scene.words, scene.lang, result.stall[mode], scene.before
    name = words(f"name.{mode}")
    if passage is None:
        why = result.stall.refused[mode][lang]
        return {"mode": mode, "name": name, "refused": words("refused", why=why[0].upper() + why[1:])}
    was = before is not None and replace(before.params, mode=result.params.mode, target=result.params.target) != result.params and before.stall[mode]
    return {
        "mode": mode, "name": name, "refused": "", "gaps": _line(passage.gaps), "ghost": _line(was.gaps) if was else [],
        "longest": amount(passage.longest_gap_seconds, "s", lang), "first": passage.first_token_seconds,
        "first_label": words("first", seconds=amount(passage.first_token_seconds, "s", lang)),
        "over": words("over" if passage.over_target else "kept", n=f"{passage.over_target:,}", target=milliseconds(result.params.target)),
        "late": bool(passage.over_target),
    }  # fmt: skip


def milliseconds(seconds: float) -> str:
    """A target as it was set: 50 ms, 7.5 ms."""
    return f"{1000 * seconds:g} ms"


def _line(gaps: tuple[Gap, ...]) -> list[list[float]]:
    return [[gap.at, gap.seconds] for gap in gaps]


def _gap(passage: Passage) -> Gap:
    """The longest since the arrival."""
    return max((gap for gap in passage.gaps if gap.at > 0), key=lambda gap: gap.seconds)


def _even(until: float) -> list[float]:
    step = next(k * 10**e for e in range(floor(log10(until)) - 1, floor(log10(until)) + 2) for k in (1, 2, 5) if until / (k * 10**e) <= 6)
    return [i * step for i in range(floor(until / step) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """1, 3, 10 …; where that makes many, 1, 10, 100 …"""
    steps = (1, 3) if high / low < 1e4 else (1,)
    return [k * 10.0**e for e in range(floor(log10(low)), floor(log10(high)) + 1) for k in steps if low <= k * 10.0**e <= high]


# ---- figures


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    """Of the chosen way, the others beside it."""
    words, lang, found, before = scene.words, scene.lang, result.stall, scene.before
    def said(error) -> str:
        return words("error", error=amount(error.mean, "ratio", lang, 2)) if found.error and error else ""

    first = judged.first_token_error(result.params.prompt)

    def readout(name: str, unit: str, value, error=found.error) -> Readout:
        number, shown = short(value(result.chosen), unit, lang)
        was = before and amount(value(before.chosen), unit, lang)
        beside = [words("note.way", way=words(f"short.{mode}"), value=amount(value(found[mode]), unit, lang)) for mode in MODES if mode != result.params.mode and found[mode]]
        note = words("comma").join(beside) + said(error)
        return Readout(words(f"readout.{name}"), number, shown, words("before", value=was) if was and was != amount(value(result.chosen), unit, lang) else "", note)

    return (
        readout("gap", "s", lambda way: way.longest_gap_seconds),
        readout("first", "s", lambda way: way.first_token_seconds, first),
        readout("lost", "token", lambda way: way.lost_tokens),
        readout("normal", "s", lambda way: way.disturbed_seconds),
        readout("rate", "token/s", lambda way: way.tokens_per_second_per_card),
    )


def _sentence(result: Result, scene: Scene) -> str:
    words, lang, p, found = scene.words, scene.lang, result.params, result.stall
    seconds = partial(amount, unit="s", lang=lang)
    whole, chunked, separate = (found[mode] for mode in MODES)
    said = words("says.moment", chip=result.chip.name, model=result.shape.name, readers=f"{p.readers:,}", context=f"{p.context:,}", plain=seconds(found.plain_step_seconds),
                 clock=_clock(result, scene))  # fmt: skip
    said += words("says.whole", prompt=f"{p.prompt:,}", gap=seconds(whole.longest_gap_seconds), lost=amount(whole.lost_tokens, "token", lang))
    if chunked and p.mode != "separate":
        over = words({0: "says.kept", 1: "says.over_one"}.get(chunked.over_target, "says.over"), n=f"{chunked.over_target:,}", target=milliseconds(p.target))
        said += words("says.chunked", budget=f"{p.budget:,}", steps=amount(sum(beat.read > 0 for beat in chunked.beats), "step", lang), gap=seconds(chunked.longest_gap_seconds), over=over,
                      whole=seconds(whole.first_token_seconds), first=seconds(chunked.first_token_seconds))  # fmt: skip
        longer = chunked.first_token_seconds > whole.first_token_seconds * 1.005 and chunked.longest_gap_seconds < whole.longest_gap_seconds * 0.995
        said += words("says.trade") if longer else ""
    if p.mode == "separate":
        said += words("says.separate", gap=seconds(separate.longest_gap_seconds), first=seconds(separate.first_token_seconds), bytes=amount(found.handover_bytes, "B", lang),
                      transfer=seconds(separate.handed[1] - separate.handed[0]), one=amount(whole.tokens_per_second_per_card, "token/s", lang), each=amount(separate.tokens_per_second_per_card, "token/s", lang))  # fmt: skip
    return said


def _clock(result: Result, scene: Scene) -> str:
    error = result.stall.error
    return scene.words(f"says.clock.{result.params.clock}", error=amount(error.mean, "ratio", scene.lang, 2) if error else "")


def _simplified(result: Result, scene: Scene) -> str:
    words, found, lang = scene.words, result.stall, scene.lang
    said = words("simplified.ideal") if found.error is None else words(
        "simplified.calibrated", mean=amount(found.error.mean, "ratio", lang, 2), worst=f"{found.error.worst:+.0%}".replace("-", "−"), where=found.error.where[lang])
    said += words("simplified.moment")
    if found["separate"]:
        said += words("simplified.separate", link=amount(found.link_bytes_per_s, "B/s", lang), chip=result.chip.name)
    return said


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    setting = {name: value for name, value in asdict(result.params).items() if name not in ("mode", "target")} | {"target_seconds": result.params.target}
    rows = []
    for way in result.stall.passages:
        one = setting | {"mode": way.mode}
        rows.append(one | {"row": "way", "cards": way.cards, "longest_gap_seconds": way.longest_gap_seconds, "first_token_seconds": way.first_token_seconds, "lost_tokens": way.lost_tokens,
                           "disturbed_seconds": way.disturbed_seconds, "gaps_over_target": way.over_target, "tokens_per_second_per_card": way.tokens_per_second_per_card,
                           "plain_step_seconds": result.stall.plain_step_seconds, "mean_error": result.stall.error and result.stall.error.mean})  # fmt: skip
        rows += [one | {"row": "step", "at_seconds": gap.at, "gap_seconds": gap.seconds, "prompt_tokens": beat.read, "written_tokens": beat.wrote} for gap, beat in zip(way.gaps, way.beats)]
    return tuple(rows)


SAYS: dict[Mode, tuple[str, str]] = {"whole": ("整段读", "read whole"), "chunked": ("分块读", "read in chunks"), "separate": ("另一张卡读", "read on a second card")}
FORMULA: dict[ClockName, str] = {
    "ideal": "max(bytes / bandwidth, FLOP / peak) of each step",
    "calibrated": "Σ launches × cost + √((FLOP / share of peak)² + (bytes / share of bandwidth)²) of each step, by kind of kernel",
}


def _papers(result: Result) -> tuple[Quantity, ...]:
    p, found, chip = result.params, result.stall, result.chip
    given = {"model": result.shape.name, "chip": chip.name, "dtype": "bf16", "readers": p.readers, "context": p.context, "prompt": p.prompt}
    given |= {"mean_error": found.error.mean, "judged_on": found.error.where} if found.error else {}
    papers = []
    for way in found.passages:
        zh, en = SAYS[way.mode]
        with_ = given | {"policy": POLICY[way.mode]} | ({"budget": p.budget} if way.mode == "chunked" else {})
        papers += [
            Quantity(way.longest_gap_seconds, "s", "computed", f"longest time between two tokens; {FORMULA[p.clock]}", with_, says={"zh": f"{zh}：读者最长的间隔", "en": f"{en}: longest gap of a reader"}),
            Quantity(way.first_token_seconds, "s", "computed", "reading alone + (KV + state) / link" if way.handed else "Σ steps until the prompt has been read", with_,
                     says={"zh": f"{zh}：新来者的首 token", "en": f"{en}: first token of the newcomer"}),
            Quantity(way.lost_tokens, "token", "computed", "readers × (steps undisturbed − steps made), until the newcomer's first token", with_, says={"zh": f"{zh}：读者少收的 token", "en": f"{en}: tokens the readers did not get"}),
        ]  # fmt: skip
    papers.append(Quantity(found.plain_step_seconds, "s", "computed", FORMULA[p.clock], given, says={"zh": "没人打扰时的一步", "en": "a step that nobody disturbs"}))
    papers.append(Quantity(found.alone_seconds, "s", "computed", FORMULA[p.clock], {"prompt": p.prompt, **chip.flops_per_s}, says={"zh": "在空卡上读这个 prompt", "en": "reading this prompt on an empty card"}))
    if found.link_bytes_per_s:
        papers.append(Quantity(found.handover_bytes, "B", "computed", "prompt × KV per token + state", {"prompt": p.prompt, "state": result.shape.state_bytes}, says={"zh": "要交过去的 KV 与状态", "en": "KV and state to hand over"}))
        if chip.source:
            papers.append(Quantity(found.link_bytes_per_s, "B/s", "quoted", source=chip.source, conditions={"direction": "one"}, says={"zh": f"{chip.name} 卡间带宽，单向", "en": f"{chip.name}, card to card, one direction"}))
    return tuple(papers)


def _tex(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e4 else rf"{value / 10 ** floor(log10(value)):.4g}\times 10^{{{floor(log10(value))}}}"


def _derivation(result: Result, scene: Scene) -> str:
    """The long step at the ideal bound, with its numbers; the calibrated clock has too many terms for a line."""
    words, p, shape, chip = scene.words, result.params, result.shape, result.chip
    if p.clock != "ideal" or any(cache.window for cache in shape.caches):
        return ""
    reading = 2 * shape.parameters_per_token * p.prompt + sum(cache.layers * cache.flops_prefill for cache in shape.caches) * p.prompt**2 / 2
    riding = p.readers * (2 * shape.parameters_per_token + sum(cache.layers * cache.flops_decode for cache in shape.caches) * p.context)
    if abs((reading + riding) / chip.peak / result.stall["whole"].longest_gap_seconds - 1) > 1e-3:
        return ""  # a short prompt: bytes bound the step, not arithmetic
    line = rf"$$\frac{{{_tex(reading)} + {_tex(riding)}}}{{{_tex(chip.peak)}}} = {_tex((reading + riding) / chip.peak)}\,\mathrm{{s}}$$"
    return words("derivation", prompt=f"{p.prompt:,}", readers=f"{p.readers:,}") + "\n\n" + line


# ---- controls and guess


def _truth(result: Result) -> Quantity:
    gap = result.stall["whole"].longest_gap_seconds
    return Quantity(gap, "s", "computed", FORMULA[result.params.clock], {"prompt": result.params.prompt, "readers": result.params.readers})


def models() -> tuple[str, ...]:
    """Those that keep KV and can read a long prompt."""
    return tuple(id for id, shape in facts.models().items() if shape.caches and (shape.context_maximum or 0) >= SHORTEST_CONTEXT)


WIDGET = Widget(
    id="chunked-prefill",
    Params=Params,
    controls=(
        Choice("mode", lambda: MODES),
        Stops("budget", (128, 256, 512, 1024, 2048, 4096, 8192)),
        Stops("prompt", PROMPTS),
        Stops("readers", (1, 2, 4, 8, 16, 32, 48, 64, 128, 256)),
        Stops("context", (512, 1024, 2048, 4096, 8192, 16384, 32768)),
        Stops("target", (0.01, 0.02, 0.025, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5), milliseconds),
        Choice("clock", lambda: ("ideal", "calibrated")),
        Choice("model", models, lambda id: facts.model(id).name),
        Choice("chip", lambda: tuple(facts.chips()), lambda id: facts.chip(id).name),
    ),
    run=run,
    draw=draw,
    guesses={"silence": Guess(truth=_truth, unit="s", bounds=(0.0, 60.0))},
)
