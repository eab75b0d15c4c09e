"""Four decisions about our own model: the measured table of each, the learner's choice in it, and the criterion that judges it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from components import Html, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range
from components.text import Words, amount, digits
from compute import acceptance, numbers, precompute
from compute.acceptance import DRAFTS, KS, MODEL, Criterion
from compute.errors import BrokenData
from compute.measures.sampling import SETTINGS
from compute.quantity import Quantity

OPEN = "open"
SHOWN_SCHEMES = (
    "fp32", "int8-channel", "int8-tensor", "int6-channel", "gptq-int4-g32", "gptq-int4-g128", "nf4", "int4-g32", "int4-g64", "int4-g128", "int4-channel",
    "int3-g32", "gptq-int3-g128", "int4-tensor",
)  # fmt: skip
"""Of the measured schemes, those that the table lists; int4-tensor, one scale a matrix, is there to fail."""
SPEEDS = {"fp32": "fp32", "int8-channel": "int8", "int4-g64": "int4-head16"}  # schemes that decoding was timed with, by the name of their format
DECISIONS = ("cache", "sampling", "draft", "scheme")
CRITERIA = {"cache": "cache", "sampling": "sampling", "draft": "drafting", "scheme": "quantization"}


@parameters
class Params:
    """A choice each; open: not made yet. k means something beside a draft only."""

    cache: Literal["open", "on", "off"] = "open"
    sampling: Literal[("open", *SETTINGS)] = "open"  # type: ignore[valid-type]
    draft: Literal[("open", "none", *DRAFTS)] = "open"  # type: ignore[valid-type]
    k: Annotated[int, Field(ge=KS[0], le=KS[-1])] = 2
    scheme: Literal[("open", *SHOWN_SCHEMES)] = "open"  # type: ignore[valid-type]


@dataclass(frozen=True)
class Option:
    """A row of a decision's table. value: what its bar shows. beside: further figures, by name. key: of the entry behind the value."""

    id: str
    value: float | None
    beside: Mapping[str, float]
    key: str
    meets: bool | None = None  # the fourth criterion, where it applies to the option


@dataclass(frozen=True)
class Result:
    params: Params
    tables: Mapping[str, tuple[Option, ...]]
    floor: float
    criteria: tuple[Criterion, ...]
    conditions: Mapping[str, Any]  # of the timings
    mark: Literal["precomputed"] = "precomputed"

    def chosen(self, decision: str) -> Option | None:
        return next((o for o in self.tables[decision] if o.id == getattr(self.params, decision)), None)

    def criterion(self, decision: str) -> Criterion:
        return next(c for c in self.criteria if c.id == CRITERIA[decision])

    @property
    def made(self) -> int:
        return sum(getattr(self.params, d) != OPEN for d in DECISIONS)

    @property
    def met(self) -> int:
        """Decisions that were made and whose criterion is met."""
        return sum(getattr(self.params, d) != OPEN and self.criterion(d).verdict == "met" for d in DECISIONS)


def run(params: Params, answer: None = None) -> Result:
    kept = acceptance.entries()
    if acceptance.FLOOR not in kept:
        raise BrokenData("data/precomputed.json", f"no entry {acceptance.FLOOR}; run python -m compute precompute --only {acceptance.FLOOR}")

    def value(key: str) -> float | None:
        return kept[key]["value"] if key in kept else None

    cache = tuple(Option(id, value(key), {}, key) for id, key in (("on", "lab.cache.240.with.tokens_per_second"), ("off", "lab.cache.240.without.tokens_per_second")))
    sampling = tuple(
        Option(s, value(f"sampling.{s}.repetition4"), {part: found for part in ("kept", "entropy") if (found := value(f"sampling.{s}.{part}")) is not None}, f"sampling.{s}.repetition4")
        for s in SETTINGS
    )
    draft = (Option("none", 1.0, {}, ""), *(_draft(value, d, params.k) for d in DRAFTS))
    judged = {c.of: c.verdict == "met" for c in acceptance.of_schemes(kept)} | {"fp32": True}
    scheme = tuple(
        Option(s, 0.0 if s == "fp32" else value(key := f"quantize.{MODEL}.{s}.loss_change"), _of_scheme(value, s), "" if s == "fp32" else key, judged.get(s)) for s in SHOWN_SCHEMES
    )
    criteria = acceptance.criteria(kept, "" if params.sampling == OPEN else params.sampling, "" if params.scheme == OPEN else params.scheme)
    around = precompute.timings().get("lab.cache.240.ratio", {}).get("conditions", {})
    return Result(params, {"cache": cache, "sampling": sampling, "draft": draft, "scheme": scheme}, kept[acceptance.FLOOR]["value"], criteria, around)


def _draft(value, draft: str, k: int) -> Option:
    key = f"drafting.{draft}.k{k}.t0"
    beside = {"tokens": value(f"{key}.tokens_per_forward"), "cost": value(f"drafting.{draft}.cost_by_parameters"), "same": value(f"{key}.identical")}
    return Option(draft, value(f"{key}.speedup"), {name: v for name, v in beside.items() if v is not None}, f"{key}.speedup")


def _of_scheme(value, scheme: str) -> dict[str, float]:
    bits = 32.0 if scheme == "fp32" else value(f"quantize.{MODEL}.{scheme}.bits_per_weight")
    speed = value(f"quantize.{MODEL}.{SPEEDS[scheme]}.tokens_per_second") if scheme in SPEEDS else None
    return {name: v for name, v in (("bits", bits), ("speed", speed)) if v is not None}


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, lang, c = scene.words, scene.lang, result.conditions
    return View(
        picture=Stage(_stage(result, scene), height=760, picks=DECISIONS),
        readouts=_readouts(result, words, lang),
        sentence=_sentence(result, words, lang),
        after=(Html(_criteria(result, words, lang)), Html(_markdown(result, words, lang))),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified", cpu=c.get("cpu", "–"), date=c.get("date", "–")),
    )


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    words, lang = scene.words, scene.lang
    panels = []
    for number, decision in enumerate(DECISIONS, 1):
        chosen = getattr(result.params, decision)
        values = [o.value for o in result.tables[decision] if o.value is not None]
        panels.append({
            "field": decision, "title": f"{number}  {words(f'decision.{decision}')}", "axis": words(f"axis.{decision}", k=result.params.k),
            "most": 2.2 * result.floor if decision == "scheme" else max([*values, 1.0 if decision == "draft" else 0.0]),
            "line": result.floor if decision == "scheme" else 1.0 if decision == "draft" else None, "band": decision == "scheme",
            "lineText": words(f"line.{decision}", floor=digits(result.floor)) if decision in ("scheme", "draft") else "",
            "tone": {"cache": "kv", "sampling": "target", "draft": "draft", "scheme": "weights"}[decision],
            "verdict": "" if chosen == OPEN else result.criterion(decision).verdict, "state": _state_of(result, decision, words),
            "rows": [
                {"id": o.id, "name": words(f"option.{decision}.{o.id}"), "value": o.value, "text": _figure(decision, o, words, lang), "chosen": o.id == chosen, "fails": o.meets is False}
                for o in result.tables[decision]
            ],
        })  # fmt: skip
    return {"panels": panels, "says": _sentence(result, words, lang)}


def _state_of(result: Result, decision: str, words: Words) -> str:
    if getattr(result.params, decision) == OPEN:
        return words("state.open")
    return words(f"verdict.{result.criterion(decision).verdict}")


def _figure(decision: str, o: Option, words: Words, lang: str) -> str:
    if o.value is None:
        return words("untimed")
    if decision == "cache":
        return amount(o.value, "token/s", lang)
    if decision == "sampling":
        return words("figure.sampling", repeats=amount(o.value, "ratio", lang), kept=digits(o.beside["kept"]))
    if decision == "draft":
        return "×1" if o.id == "none" else words("figure.draft", speedup=digits(o.value), tokens=digits(o.beside["tokens"]))
    return words("figure.scheme", change=f"+{digits(o.value)}" if o.value else "0", bits=digits(o.beside["bits"]))


def _readouts(result: Result, words: Words, lang: str) -> tuple[Readout, ...]:
    ratio = numbers.measured_entries().get("lab.cache.240.ratio")
    found = []
    for decision in DECISIONS:
        o, label = result.chosen(decision), words(f"readout.{decision}")
        if o is None or o.value is None:
            found.append(Readout(label, "–", "", "", words("state.open") if o is None else words("untimed")))
            continue
        value, unit = {
            "cache": lambda: (f"×{digits(ratio['value'])}" if o.id == "on" and ratio else "×1", ""), "sampling": lambda: (amount(o.value, "ratio", lang), ""),
            "draft": lambda: (f"×{digits(o.value)}", ""), "scheme": lambda: (f"+{digits(o.value)}" if o.value else "0", "nat/token"),
        }[decision]()  # fmt: skip
        found.append(Readout(label, value, unit, "", words(f"option.{decision}.{o.id}")))
    return (*found, Readout(words("readout.met"), f"{result.met} | {len(DECISIONS)}", "", "", words("readout.made", made=result.made)))


def _sentence(result: Result, words: Words, lang: str) -> str:
    said = words("sentence.made", made=result.made, met=result.met)
    for decision in DECISIONS:
        o = result.chosen(decision)
        if o is not None and o.value is not None:
            name = words(f"option.{decision}.{o.id}") + (f" (k = {result.params.k})" if decision == "draft" and o.id != "none" else "")
            said += words(f"sentence.{decision}", name=name, figure=_figure(decision, o, words, lang),
                          verdict=words(f"verdict.{result.criterion(decision).verdict}"), floor=digits(result.floor))  # fmt: skip
    if result.made == 0:
        floor = sum(bool(o.meets) for o in result.tables["scheme"])
        said += words("sentence.open", schemes=len(result.tables["scheme"]), met=floor)
    return said


STYLE = """
.criteria { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 12px 24px; }
.criteria > div { border-left: 3px solid var(--lab-hairline); padding: 4px 0 4px 14px; font-size: 15px; line-height: 1.6; margin: 0; }
.criteria > .met { border-color: var(--lab-accepted); }
.criteria > .not_met { border-color: var(--lab-rejected); border-left-style: double; border-left-width: 6px; }
.criteria b { margin-right: .5em; }
.criteria .met b { color: var(--lab-accepted); }
.criteria .not_met b { color: var(--lab-rejected); }
.criteria small { display: block; color: var(--lab-muted); font-size: 13px; overflow-wrap: anywhere; }
.criteria code { font-family: var(--lab-figures); font-size: 13px; background: none; color: inherit; padding: 0; }
.decided pre { white-space: pre-wrap; overflow-wrap: anywhere; font-family: var(--lab-figures); font-size: 13px; line-height: 1.6; padding: 12px 16px; background: var(--lab-panel); color: var(--lab-ink); user-select: all; margin: 0; }
"""


def _criteria(result: Result, words: Words, lang: str) -> str:
    items = []
    for c in result.criteria:
        head = words(f"verdict.{c.verdict}")
        why = f"{words('colon')}{c.reason[lang]}" if c.reason else ""
        values = "" if c.verdict == "unchecked" else words(f"criterion.{c.id}", value=c.value, threshold=c.threshold)
        named = "".join(f" <code>{_e(key)}</code>" for key in c.rests_on[:3]) + (words("criterion.more", n=len(c.rests_on) - 3) if len(c.rests_on) > 3 else "")
        items.append(f'<div role="listitem" class="{c.verdict}"><b>{_e(words("mark." + c.verdict))} {_e(head)}</b>{_e(c.says[lang])}{_e(why)}{_e(values)}<small>{_e(words("criterion.rests"))}{named}</small></div>')
    return f'<style>{STYLE}</style><section aria-label="{_e(words("criterion.title"))}"><div role="list" class="criteria">{"".join(items)}</div></section>'


def _markdown(result: Result, words: Words, lang: str) -> str:
    """The decisions as Markdown, to be taken into a report."""
    lines = [f"| {words('md.decision')} | {words('md.choice')} | {words('md.figures')} | {words('md.criterion')} |", "|---|---|---|---|"]
    for decision in DECISIONS:
        o, c = result.chosen(decision), result.criterion(decision)
        name = words("state.open") if o is None else words(f"option.{decision}.{o.id}") + (f", k = {result.params.k}" if decision == "draft" and o.id != "none" else "")
        figure = "" if o is None else _figure(decision, o, words, lang) + (f" (`{o.key}`)" if o.key else "")
        verdict = words("state.open") if o is None else words(f"verdict.{c.verdict}")
        lines.append(f"| {words(f'decision.{decision}')} | {name} | {figure} | {verdict}{words('colon')}{c.says[lang]} |")
    lines += ["", words("md.conditions", cpu=result.conditions.get("cpu", "–"), date=result.conditions.get("date", "–"), floor=digits(result.floor))]
    return f'<details class="lab-papers decided"><summary>{_e(words("md.title"))}</summary><pre>{_e(chr(10).join(lines))}</pre></details>'


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"decision": decision, "option": o.id, "chosen": o.id == getattr(result.params, decision), "k": result.params.k if decision == "draft" else None, "value": o.value,
         **{name: o.beside.get(name) for name in ("kept", "entropy", "tokens", "cost", "same", "bits", "speed")}, "number": o.key, "meets": o.meets,
         "criterion": result.criterion(decision).verdict}
        for decision in DECISIONS for o in result.tables[decision]
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    keys = [f"~{o.key}" for decision in DECISIONS if (o := result.chosen(decision)) and o.key in numbers.measured_entries()]
    return tuple(numbers.resolve(name) for name in dict.fromkeys([*keys, f"~{acceptance.FLOOR}", "~lab.cache.240.ratio"]))


def _e(text: Any) -> str:
    return html.escape(str(text))


WIDGET = Widget(
    id="decisions",
    Params=Params,
    controls=(
        Choice("cache", lambda: (OPEN, "on", "off")), Choice("sampling", lambda: (OPEN, *SETTINGS)), Choice("draft", lambda: (OPEN, "none", *DRAFTS)),
        Choice("scheme", lambda: (OPEN, *SHOWN_SCHEMES)), Range("k", KS[0], KS[-1]),
    ),
    run=run,
    draw=draw,
    shown=5,
)  # fmt: skip
