"""Thirteen settings on the same sixteen prompts: how much the texts repeat, how many tokens each draw could choose from."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Annotated, Any, Literal

from pydantic import Field

from components import Guess, Html, Readout, Scene, Vega, View, Widget, parameters, theme
from components.controls import Choice
from components.text import Words, amount, digits
from compute import precompute
from compute.errors import BrokenData
from compute.measures.sampling import MEASURED, SEEDS, SETTINGS, UNITS, prompts
from compute.quantity import Quantity, Source

Measure = Literal["repetition4", "kept", "entropy", "distinct2"]
Setting = Literal[tuple(SETTINGS)]  # type: ignore[valid-type]
ROW_PX = 25


@parameters
class Params:
    """example: which of the sixteen prompts the text below continues."""

    measure: Measure = "repetition4"
    setting: Setting = "t0"
    example: Annotated[int, Field(ge=0, le=15)] = 0


@dataclass(frozen=True)
class Cell:
    value: float
    low: float
    high: float
    n: int  # texts


@dataclass(frozen=True)
class Text:
    """runs: (text, whether its tokens end a 4-gram that occurred before)."""

    prompt: str
    runs: tuple[tuple[str, bool], ...]
    repetition4: float


@dataclass(frozen=True)
class Result:
    params: Params
    table: Mapping[str, Mapping[str, Cell]]  # setting → measure
    text: Text
    conditions: Mapping[str, Any]
    references: Mapping[str, Mapping[str, Any]]  # "setting.measure" → the published value and why ours differs
    mark: Literal["precomputed"] = "precomputed"


def run(params: Params, answer: Any = None) -> Result:
    entries = precompute.stored()
    table = {setting: {measure: _cell(entries, f"sampling.{setting}.{measure}") for measure in MEASURED} for setting in SETTINGS}
    chosen = f"sampling.{params.setting}.repetition4"
    text = precompute.recorded(chosen)["examples"][params.example]
    references = {
        f"{setting}.{measure}": reference
        for setting in SETTINGS for measure in MEASURED if (reference := entries[f"sampling.{setting}.{measure}"].get("reference"))
    }  # fmt: skip
    return Result(
        params, table, Text(text["prompt"], tuple((run, again) for run, again in text["runs"]), text["repetition4"]), entries[chosen]["conditions"], references
    )


def _cell(entries: Mapping[str, Any], key: str) -> Cell:
    if key not in entries:
        raise BrokenData("data/precomputed.json", f"entry {key} is missing; run python -m compute precompute --only sampling")
    entry = entries[key]
    return Cell(entry["value"], *entry["interval95"], entry["n"])


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, lang = scene.words, scene.lang
    return View(
        picture=Vega(_chart(result, scene), {"setting": "setting"}),
        beside=(Html(_text(result, words, lang)),),
        readouts=_readouts(result, scene.before, words, lang),
        sentence=_sentence(result, words, lang),
        after=(Html(_table(result, words, lang)),),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified", prompts=len(prompts()), seeds=len(SEEDS), tokens=result.conditions["tokens"]),
    )


def _name(setting: str, words: Words) -> str:
    s = SETTINGS[setting]
    if s.temperature == 0:
        return words("setting.greedy")
    cut = words("setting.top_p", value=f"{s.top_p:g}") if s.top_p < 1 else words("setting.min_p", value=f"{s.min_p:g}") if s.min_p else words("setting.whole")
    return words("setting.at", t=f"{s.temperature:g}", cut=cut)


def _shown(value: float, measure: str, lang: str) -> str:
    return amount(value, "ratio", lang) if UNITS[measure] == "ratio" and measure == "repetition4" else digits(value)


def _chart(result: Result, scene: Scene) -> dict[str, Any]:
    """A row a setting: dot and interval; a click takes the row."""
    words, lang, measure, tone = scene.words, scene.lang, result.params.measure, partial(theme.colour, theme=scene.theme)
    rows = [
        {"setting": setting, "name": _name(setting, words), "t": f"{SETTINGS[setting].temperature:g}", "value": cells[measure].value, "low": cells[measure].low,
         "high": cells[measure].high, "label": _shown(cells[measure].value, measure, lang), "interval": f"{_shown(cells[measure].low, measure, lang)} – {_shown(cells[measure].high, measure, lang)}"}
        for setting, cells in result.table.items()
    ]  # fmt: skip
    logarithmic = measure == "kept"
    least, most = (0.8, 6000) if logarithmic else (0, max(row["high"] for row in rows) * 1.18)
    for row in rows:
        row |= {"from": least, "to": most}
    x = {
        "field": "value", "type": "quantitative", "title": words(f"axis.{measure}").split("\n"),
        "scale": {"type": "log" if logarithmic else "linear", "domain": [least, most], "nice": False, "zero": not logarithmic},
        "axis": {"values": [1, 3, 10, 30, 100, 300, 1000], "format": ",", "labelOverlap": "greedy", "labelSeparation": 8} if logarithmic else {"tickCount": 5, "format": ".0%" if measure == "repetition4" else "~g"},
    }  # fmt: skip
    y = {"field": "name", "type": "nominal", "sort": None, "title": None,
         "axis": {"grid": False, "ticks": False, "domain": False, "labelLimit": 170, "labelFont": theme.SANS[lang], "labelColor": tone("ink")}}  # fmt: skip
    late = "scale('x', datum.high) > width - 62"  # no room for the figure at its right
    chosen = f"datum.setting === '{result.params.setting}'"
    tip = [{"field": "name", "title": words("table.setting")}, {"field": "label", "title": words(f"measure.{measure}")}, {"field": "interval", "title": "95 %"}]
    return {
        "height": ROW_PX * len(rows) + 60,
        "config": theme.vega_config(scene.theme, lang),
        "data": {"values": rows},
        "layer": [
            {
                "params": [{"name": "setting", "select": {"type": "point", "fields": ["setting"], "clear": False}}],
                "mark": {"type": "bar", "cursor": "pointer", "height": {"band": 1}},
                "encoding": {"y": y, "x": {**x, "field": "from"}, "x2": {"field": "to"}, "tooltip": tip,
                             "color": {"condition": {"test": chosen, "value": tone("accent-soft")}, "value": "transparent"}},
            },
            {"mark": {"type": "rule", "strokeWidth": 2, "color": tone("ink")}, "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}}},
            {"mark": {"type": "point", "filled": True, "size": 80, "opacity": 1, "color": tone("ink")}, "encoding": {"y": y, "x": x}},
            {"mark": {"type": "text", "align": {"expr": f"{late} ? 'right' : 'left'"}, "dx": {"expr": f"{late} ? scale('x', datum.low) - scale('x', datum.high) - 9 : 9"}, "font": theme.FIGURES, "fontSize": 13, "color": tone("ink"), "fontWeight": 500},
             "encoding": {"y": y, "x": {**x, "field": "high"}, "text": {"field": "label"}}},
        ],
    }  # fmt: skip


END = "<|endoftext|>"


def _text(result: Result, words: Words, lang: str) -> str:
    """One real continuation; what repeats is marked."""
    body = "".join(f"<mark>{_e(text)}</mark>" if again else _e(text) for text, again in result.text.runs).replace(_e(END), "<i>¶</i>")
    head = words("text.title", setting=_name(result.params.setting, words), repetition=amount(result.text.repetition4, "ratio", lang), n=result.conditions["tokens"])
    return (
        f'<style>{STYLE}</style><section class="again"><p class="again-head">{_e(head)}</p><p class="again-text"><span>{_e(result.text.prompt)}</span>{body}</p>'
        f'<p class="again-more">{words("text.more")}</p></section>'
    )


STYLE = """
.again { border-left: 3px solid var(--lab-hairline); padding: 4px 0 4px 16px; max-width: var(--lab-prose); }
.again p { margin: 0; }
.again .again-head { font-size: 14px; font-weight: 600; }
.again .again-text { font-size: 16px; line-height: 1.75; white-space: pre-wrap; overflow-wrap: anywhere; padding: 6px 0; }
.again .again-text span { color: var(--lab-muted); }
.again mark { background: color-mix(in srgb, var(--lab-rejected) 14%, transparent); color: inherit; border-bottom: 2px solid var(--lab-rejected); }
.again i { font-style: normal; color: var(--lab-muted); padding: 0 4px; }
.again .again-more { font-size: 13px; color: var(--lab-muted); }
.again-table :is(td, th).now { background: var(--lab-accent-soft); }
.again-table small { color: var(--lab-muted); font-size: 13px; margin-left: 10px; }
@media (max-width: 1000px) { .again-table small { display: block; margin: 0; } }
"""


def _table(result: Result, words: Words, lang: str) -> str:
    order = ("repetition4", "kept", "entropy", "distinct1", "distinct2")
    heads = "".join(f'<th scope="col">{_e(words(f"measure.{m}"))}</th>' for m in order)
    lines = []
    for setting, cells in result.table.items():
        now = " now" if setting == result.params.setting else ""
        figures = "".join(
            f"<td class='n{now}'>{_shown(c.value, m, lang)}<small>{_shown(c.low, m, lang)} – {_shown(c.high, m, lang)}</small></td>" for m, c in ((m, cells[m]) for m in order)
        )
        lines.append(f"<tr><th scope='row' class='{now.strip()}'>{_e(_name(setting, words))}</th>{figures}</tr>")
    return (
        f'<details class="lab-papers lab-ledger again-table" open><summary>{_e(words("table.title"))}</summary><div class="lab-scroll"><table><thead><tr><th scope="col">{_e(words("table.setting"))}</th>'
        f"{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table></div></details>"
    )


def _readouts(result: Result, before: Result | None, words: Words, lang: str) -> tuple[Readout, ...]:
    found = []
    for measure in ("repetition4", "kept", "entropy", "distinct2"):
        cell = result.table[result.params.setting][measure]
        old = before.table[before.params.setting][measure] if before is not None else cell
        shown, then = _shown(cell.value, measure, lang), _shown(old.value, measure, lang)
        change = words("before", value=then) if then != shown else ""
        interval = words("note.interval", low=_shown(cell.low, measure, lang), high=_shown(cell.high, measure, lang))
        found.append(Readout(words(f"measure.{measure}"), shown, words(f"unit.{measure}"), change, interval))
    return tuple(found)


def _sentence(result: Result, words: Words, lang: str) -> str:
    t, now = result.table, result.table[result.params.setting]

    def of(setting: str, measure: str) -> str:
        return _shown(t[setting][measure].value, measure, lang)

    said = words("sentence.greedy", repetition=of("t0", "repetition4"))
    if result.params.setting != "t0":
        said += words(
            "sentence.chosen", setting=_name(result.params.setting, words), repetition=_shown(now["repetition4"].value, "repetition4", lang),
            kept=digits(now["kept"].value), entropy=digits(now["entropy"].value),
        )  # fmt: skip
    return said + words(
        "sentence.kept", p_cool=of("t0_7.p0_9", "kept"), p_hot=of("t1_3.p0_9", "kept"), m_cool=of("t0_7.minp0_1", "kept"), m_hot=of("t1_3.minp0_1", "kept")
    )


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"setting": setting, "temperature": SETTINGS[setting].temperature, "top_p": SETTINGS[setting].top_p, "min_p": SETTINGS[setting].min_p, "measure": measure,
         "value": cell.value, "low95": cell.low, "high95": cell.high, "texts": cell.n}
        for setting, cells in result.table.items() for measure, cell in cells.items()
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    setting, found = result.params.setting, []
    formulas = {
        "repetition4": "4-grams seen before in the text / all 4-grams", "kept": "mean over texts and steps of count(p > 0)",
        "entropy": "mean over texts and steps of −Σ p ln p", "distinct1": "different tokens / tokens", "distinct2": "different 2-grams / 2-grams",
    }  # fmt: skip
    for measure in MEASURED:
        cell = result.table[setting][measure]
        around = {k: v for k, v in result.conditions.items() if k != "past_end_token"} | {"95 %": f"{cell.low:.4g} – {cell.high:.4g}", "n": cell.n}
        found.append(Quantity(cell.value, UNITS[measure], "measured", formulas[measure], {}, None, around, (cell.low, cell.high), SAYS[measure]))
    for name, reference in result.references.items():
        of, _, measure = name.rpartition(".")
        if measure == result.params.measure:
            why = {"setting": of, "why ours differs": dict(reference["why_different"])}
            found.append(Quantity(reference["value"], UNITS[measure], "quoted", source=Source(reference["where"]), conditions=why, says=SAYS[measure]))
    return tuple(found)


SAYS = {
    "repetition4": {"zh": "4-gram 重复率", "en": "4-gram repetition"},
    "kept": {"zh": "每步保留的 token 数", "en": "tokens kept per step"},
    "entropy": {"zh": "每步的熵", "en": "entropy per step"},
    "distinct1": {"zh": "distinct-1", "en": "distinct-1"},
    "distinct2": {"zh": "distinct-2", "en": "distinct-2"},
}


def _e(text: Any) -> str:
    return html.escape(str(text))


# ---- guesses and widget

SHARES = {"4": 0.04, "13": 0.13, "40": 0.4, "80": 0.8}


def _greedy(result: Result) -> float:
    return result.table["t0"]["repetition4"].value


def _growth(result: Result) -> float:
    """Tokens that top-p 0.9 keeps per step at T = 1.3 over those at T = 0.7."""
    return result.table["t1_3.p0_9"]["kept"].value / result.table["t0_7.p0_9"]["kept"].value


WIDGET = Widget(
    id="repetition",
    Params=Params,
    controls=(
        Choice("measure", lambda: ("repetition4", "kept", "entropy", "distinct2")),
        Choice("setting", lambda: tuple(SETTINGS)),
        Choice("example", lambda: tuple(range(len(prompts()))), name=lambda i: prompts()[i].replace("\n", " ")),
    ),
    run=run,
    draw=draw,
    shown=2,
    guesses={
        "greedy": Guess(
            truth=lambda r: Quantity(_greedy(r), "ratio", "measured", "4-grams seen before / all 4-grams", conditions=dict(r.conditions)),
            choices=tuple(SHARES), right=lambda r: min(SHARES, key=lambda id: abs(log(SHARES[id] / _greedy(r)))),
        ),
        "kept": Guess(
            truth=lambda r: Quantity(_growth(r), "×", "measured", "mean count(p > 0) per step, T = 1.3 / T = 0.7", conditions=dict(r.conditions)),
            choices=("same", "double", "more"),
            right=lambda r: "more" if _growth(r) > 3 else "double" if _growth(r) > 1.3 else "same",
        ),
    },
)  # fmt: skip
