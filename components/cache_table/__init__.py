"""Our model writes the same text with the KV cache and without: tokens per second, the gain, and whether it is the same text."""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from components import Guess, Html, Live, Readout, Scene, Vega, View, Widget, parameters, theme
from components.controls import Choice, Stops
from components.text import Words, amount, digits
from compute import precompute
from compute.errors import BrokenData
from compute.measures.lab import LENGTHS, MODEL
from compute.quantity import Quantity

ROUNDS = (1, 3, 5)
GUESSES = {"120": 120.0, "40": 40.0, "12": 12.0, "4": 4.0}  # how many times as fast: ids of the choices, as factors


@parameters
class Params:
    """new: the length that is looked at. rounds: of a run started here."""

    new: Literal[32, 64, 128, 240] = 240
    rounds: Literal[1, 3, 5] = 3


@dataclass(frozen=True)
class Spread:
    """Median and the middle half of the rounds; low and high are None where there was one round only."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Row:
    """One length on one machine in one run."""

    new: int
    cached: Spread  # token/s
    plain: Spread
    ratio: Spread
    same: bool
    rounds: int


@dataclass(frozen=True)
class Counts:
    """What is the same on every machine."""

    kv_with: int
    kv_without: int
    same: int  # prompts with the same text both ways
    prompts: int

    @property
    def ratio(self) -> float:
        return self.kv_without / self.kv_with


@dataclass(frozen=True)
class Result:
    params: Params
    stored: tuple[Row, ...]
    fresh: tuple[Row, ...]  # () until something was run here
    counts: Mapping[int, Counts]
    stored_conditions: Mapping[str, Any]
    fresh_conditions: Mapping[str, Any]
    mark: Literal["live", "precomputed"]

    @property
    def rows(self) -> tuple[Row, ...]:
        """What is drawn solid: the fresh run where there is one."""
        return self.fresh or self.stored

    def row(self, new: int) -> Row:
        return next(r for r in self.rows if r.new == new)

    @property
    def chosen(self) -> Row:
        return self.row(self.params.new)

    @property
    def conditions(self) -> Mapping[str, Any]:
        return self.fresh_conditions or self.stored_conditions


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    kept, timed = precompute.stored(), precompute.timings()
    counts = {new: _counts(kept, new) for new in LENGTHS}
    stored = tuple(_stored(timed, kept, new) for new in LENGTHS)
    fresh = tuple(_fresh(row) for row in answer["rows"]) if answer else ()
    around = timed[f"lab.cache.{LENGTHS[-1]}.ratio"]["conditions"]
    now = dict(answer["conditions"]) | {"prompt": answer["prompt"], "prompt_tokens": answer["prompt_tokens"], "rounds": answer["rounds"]} if answer else {}
    return Result(params, stored, fresh, counts, around, now, "live" if answer else "precomputed")


def _counts(kept: Mapping[str, Any], new: int) -> Counts:
    key = f"lab.cache.{new}"
    if f"{key}.same_output" not in kept:
        raise BrokenData("data/precomputed.json", f"no entry {key}.same_output; run python -m compute precompute --only lab.")
    same = kept[f"{key}.same_output"]
    return Counts(kept[f"{key}.kv_with"]["value"], kept[f"{key}.kv_without"]["value"], same["value"], same["n"])


def _stored(timed: Mapping[str, Any], kept: Mapping[str, Any], new: int) -> Row:
    key = f"lab.cache.{new}"
    if f"{key}.ratio" not in timed:
        raise BrokenData(f"data/measured/lab-cache-{MODEL}.json", f"no entry {key}.ratio; run python -m compute bench cache")

    def of(part: str) -> Spread:
        entry = timed[f"{key}.{part}"]
        return Spread(entry["value"], *entry["conditions"]["quartiles"])

    same = kept[f"{key}.same_output"]
    return Row(new, of("with.tokens_per_second"), of("without.tokens_per_second"), of("ratio"), same["value"] == same["n"], timed[f"{key}.ratio"]["n"])


def _fresh(row: Mapping[str, Any]) -> Row:
    cached, plain = row["with_cache"], row["without_cache"]
    return Row(row["new"], _spread(cached), _spread(plain), _spread([a / b for a, b in zip(cached, plain)]), row["same_output"], len(cached))


def _spread(values) -> Spread:
    low, high = (statistics.quantiles(values, n=4)[i] for i in (0, 2)) if len(values) > 1 else (None, None)
    return Spread(statistics.median(values), low, high)


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, lang, c = scene.words, scene.lang, result.conditions
    where = words("here" if result.fresh else "there")
    return View(
        picture=Vega(_speeds(result, scene), {"new": "new"}),
        beside=(Vega(_gains(result, scene)),),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, words, lang),
        after=(Html(_table(result, words, lang)),),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified", where=where, cpu=c["cpu"], threads=c["threads"], dtype=c["dtype"], rounds=c["rounds"], prompt=c["prompt"], tokens=c["prompt_tokens"], date=c["date"], load=c["load average"]),
    )  # fmt: skip


def _speeds(result: Result, scene: Scene) -> dict[str, Any]:
    """A pair of bars a length; a click takes the length. Of a stored run, behind a fresh one, the outline."""
    words, lang, tone = scene.words, scene.lang, partial(theme.colour, theme=scene.theme)
    ways = (("cached", words("way.cached")), ("plain", words("way.plain")))

    def bars(rows) -> list[dict[str, Any]]:
        return [
            {"new": r.new, "name": words("length", new=r.new), "way": name, "id": id, "value": s.value, "low": s.low if s.low is not None else s.value,
             "high": s.high if s.high is not None else s.value, "label": f"{digits(s.value)} {words('same' if r.same else 'differs') if id == 'plain' else words('gain', ratio=digits(r.ratio.value))}",
             "brief": f"{digits(s.value)}" + (f" ×{digits(r.ratio.value)}" if id == "cached" else "")}
            for r in rows for id, name in ways for s in (getattr(r, id),)
        ]  # fmt: skip

    now, before = bars(result.rows), bars(result.stored) if result.fresh else []
    most = max(b["high"] for b in now + before) * 1.02
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"grid": False, "ticks": False, "domain": False, "labelFont": theme.SANS[lang], "labelColor": tone("ink")}}
    offset = {"field": "way", "sort": [name for _, name in ways]}
    x = {"field": "value", "type": "quantitative", "title": words("axis.speed"), "scale": {"domain": [0, most * 1.55], "nice": False}, "axis": {"tickCount": 6, "format": ",d", "labelOverlap": "greedy"}}
    colour = {"field": "way", "type": "nominal", "legend": {"title": None, "orient": "top", "direction": "horizontal", "symbolType": "square"},
              "scale": {"domain": [name for _, name in ways], "range": [tone("kv"), tone("bound")]}}  # fmt: skip
    chosen = f"datum.new === {result.params.new}"
    tip = [{"field": "name", "title": words("table.length")}, {"field": "way", "title": words("table.way")}, {"field": "value", "title": "token/s", "format": ",.3~g"}]
    layers = [
        {
            "params": [{"name": "new", "select": {"type": "point", "fields": ["new"], "clear": False}}],
            "mark": {"type": "bar", "cursor": "pointer"},
            "encoding": {"y": y, "yOffset": offset, "x": x, "color": colour, "tooltip": tip, "opacity": {"condition": {"test": chosen, "value": 1}, "value": 0.55}},
        },
        {"mark": {"type": "rule", "strokeWidth": 2, "color": tone("ink")}, "encoding": {"y": y, "yOffset": offset, "x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        {"mark": {"type": "text", "align": "left", "dx": 8, "font": theme.FIGURES, "fontSize": 13, "color": tone("ink")},
         "encoding": {"y": y, "yOffset": offset, "x": {**x, "field": "high"}, "text": {"field": "shown"}}, "transform": [{"calculate": "width < 420 ? datum.brief : datum.label", "as": "shown"}]},
    ]  # fmt: skip
    if before:
        layers.append({"data": {"values": before}, "mark": {"type": "bar", "filled": False, "stroke": tone("ink"), "strokeDash": [3, 3], "strokeWidth": 1, "fillOpacity": 0},
                       "encoding": {"y": y, "yOffset": offset, "x": x, "tooltip": tip}})  # fmt: skip
    return {"height": 300, "config": theme.vega_config(scene.theme, lang), "data": {"values": now}, "layer": layers}


def _gains(result: Result, scene: Scene) -> dict[str, Any]:
    """What the count promises and what the clock gives, on one logarithmic axis."""
    words, lang, tone = scene.words, scene.lang, partial(theme.colour, theme=scene.theme)
    rows = [
        {"name": words("length", new=r.new), "clock": r.ratio.value, "count": result.counts[r.new].ratio, "clock_label": f"×{digits(r.ratio.value)}", "count_label": f"×{digits(result.counts[r.new].ratio)}"}
        for r in result.rows
    ]
    x = {"type": "quantitative", "scale": {"type": "log", "domain": [0.5, 300], "nice": False}, "title": words("axis.gain").split("\n"), "axis": {"values": [1, 3, 10, 30, 100], "format": "~g"}}
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"grid": False, "ticks": False, "domain": False, "labelFont": theme.SANS[lang], "labelColor": tone("ink")},
         "scale": {"paddingOuter": 0.4}}  # fmt: skip

    def text(field: str, colour: str) -> dict[str, Any]:
        """Outside the line between the two marks."""
        return {"mark": {"type": "text", "align": SIDE[field][0], "dx": SIDE[field][1], "font": theme.FIGURES, "fontSize": 13, "color": tone(colour)}, "encoding": {"y": y, "x": {**x, "field": field}, "text": {"field": f"{field}_label"}}}

    heads = [{"name": rows[0]["name"], "clock": rows[0]["clock"], "count": rows[0]["count"]}]
    return {
        "height": 40 * len(rows) + 70,
        "config": theme.vega_config(scene.theme, lang),
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 1, "color": tone("ghost")}, "encoding": {"y": y, "x": {**x, "field": "clock"}, "x2": {"field": "count"}}},
            {"mark": {"type": "point", "shape": "diamond", "filled": False, "size": 110, "strokeWidth": 2, "color": tone("bound")}, "encoding": {"y": y, "x": {**x, "field": "count"}}},
            {"mark": {"type": "point", "filled": True, "size": 110, "opacity": 1, "color": tone("kv")}, "encoding": {"y": y, "x": {**x, "field": "clock"}}},
            text("clock", "ink"), text("count", "ink"),
            *({"data": {"values": heads}, "mark": {"type": "text", "align": SIDE[field][0], "dx": SIDE[field][1], "dy": -15, "font": theme.SANS[lang], "fontSize": 13, "color": tone("muted")},
               "encoding": {"y": y, "x": {**x, "field": field}, "text": {"value": words(f"gain_{field}")}}} for field in ("clock", "count")),
        ],
    }  # fmt: skip


SIDE = {"clock": ("right", -9), "count": ("left", 9)}

STYLE = """
.cache-runs td.now { background: var(--lab-accent-soft); }
.cache-runs small { color: var(--lab-muted); font-size: 13px; white-space: nowrap; }
"""


def _table(result: Result, words: Words, lang: str) -> str:
    """Stored against fresh, with the counts that are the same everywhere."""
    heads = ("length", "with", "without", "ratio", "counts", "same")
    lines = []
    for new in LENGTHS:
        stored = next(r for r in result.stored if r.new == new)
        fresh = next((r for r in result.fresh if r.new == new), None)
        counts, now = result.counts[new], " now" if new == result.params.new else ""

        def cell(part: str) -> str:
            old = _figure(getattr(stored, part))
            if fresh is None:
                return f"<td class='n{now}'>{old}</td>"
            return f"<td class='n{now}'>{_figure(getattr(fresh, part))}<br><small>{_e(words('stored'))} {old}</small></td>"

        told = words("same_of", same=counts.same, of=counts.prompts)
        if fresh is not None:
            told += f"<br><small>{_e(words('here'))}{words('colon')}{words('same' if fresh.same else 'differs')}</small>"
        lines.append(f"<tr><td class='{now.strip()}'>{new}</td>{cell('cached')}{cell('plain')}{cell('ratio')}<td class='n{now}'>{counts.kv_with:,} / {counts.kv_without:,}</td><td class='{now.strip()}'>{told}</td></tr>")
    title = words("table.fresh" if result.fresh else "table.title")
    return (
        f'<style>{STYLE}</style><details class="lab-papers lab-ledger cache-runs" open><summary>{_e(title)}</summary><div class="lab-scroll"><table><thead><tr>'
        + "".join(f"<th>{_e(words(f'table.{h}'))}</th>" for h in heads) + f"</tr></thead><tbody>{''.join(lines)}</tbody></table></div></details>"
    )  # fmt: skip


def _figure(s: Spread) -> str:
    spread = f" <small>{digits(s.low)} – {digits(s.high)}</small>" if s.low is not None else ""
    return f"{digits(s.value)}{spread}"


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, row, counts = scene.words, result.chosen, result.counts[result.params.new]
    old = scene.before.chosen if scene.before is not None and scene.before.params.new != result.params.new else None

    def was(part: str) -> str:
        return words("before", value=digits(getattr(old, part).value)) if old is not None else ""

    stored = next(r for r in result.stored if r.new == row.new)

    def kept(part: str, sign: str = "") -> str:
        return words("kept", value=sign + digits(getattr(stored, part).value)) if result.fresh else ""

    return (
        Readout(words("readout.cached"), digits(row.cached.value), "token/s", was("cached"), kept("cached")),
        Readout(words("readout.plain"), digits(row.plain.value), "token/s", was("plain"), kept("plain")),
        Readout(words("readout.ratio"), f"×{digits(row.ratio.value)}", "", was("ratio"), kept("ratio", "×")),
        Readout(words("readout.count"), f"×{digits(counts.ratio)}", "", "", words("count_note", few=f"{counts.kv_with:,}", many=f"{counts.kv_without:,}")),
        Readout(words("readout.same"), words("same" if row.same else "differs"), "", "", words("same_of", same=counts.same, of=counts.prompts)),
    )  # fmt: skip


def _sentence(result: Result, words: Words, lang: str) -> str:
    row, counts = result.chosen, result.counts[result.params.new]
    said = words("sentence", new=row.new, cached=digits(row.cached.value), plain=digits(row.plain.value), ratio=digits(row.ratio.value), count=digits(counts.ratio))
    said += words("sentence_same" if all(r.same for r in result.rows) else "sentence_differs")
    if result.fresh:
        stored = next(r for r in result.stored if r.new == row.new)
        said += words("sentence_stored", ratio=digits(stored.ratio.value))
    return said


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"model": MODEL, "run": name, "new_tokens": r.new, "rounds": r.rounds, "tokens_per_second_with_cache": r.cached.value, "tokens_per_second_without_cache": r.plain.value,
         "ratio": r.ratio.value, "ratio_low": r.ratio.low, "ratio_high": r.ratio.high, "same_output": r.same, "kv_computed_with_cache": result.counts[r.new].kv_with,
         "kv_computed_without_cache": result.counts[r.new].kv_without}
        for name, rows in (("stored", result.stored), ("fresh", result.fresh)) for r in rows
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    row, counts = result.chosen, result.counts[result.params.new]
    around = dict(result.conditions) | {"new": row.new}
    spread = lambda s: (s.low, s.high) if s.low is not None else None  # noqa: E731
    clock = {"quartiles": spread(row.ratio)}
    return (
        Quantity(row.cached.value, "token/s", "measured", "new tokens / seconds, the prompt’s forward included; median of the rounds", {}, None, around | {"quartiles": spread(row.cached)}, says=SAYS["cached"]),
        Quantity(row.plain.value, "token/s", "measured", "new tokens / seconds; median of the rounds", {}, None, around | {"quartiles": spread(row.plain)}, says=SAYS["plain"]),
        Quantity(row.ratio.value, "×", "measured", "speed with / speed without, within each round; median", {}, None, around | clock, says=SAYS["ratio"]),
        Quantity(counts.ratio, "×", "computed", "Σ (prompt + i) / (prompt + new − 1)", {"without": counts.kv_without, "with": counts.kv_with}, says=SAYS["count"]),
        Quantity(counts.same, "prompt", "measured", "prompts with equal greedy tokens both ways", {}, None, {"prompts": counts.prompts, "new": row.new}, says=SAYS["same"]),
    )  # fmt: skip


SAYS = {
    "cached": {"zh": "开缓存的速度", "en": "speed with the cache"},
    "plain": {"zh": "不开缓存的速度", "en": "speed without the cache"},
    "ratio": {"zh": "有缓存的速度是没有的几倍", "en": "speed with the cache over speed without"},
    "count": {"zh": "K、V 的计算次数之比", "en": "ratio of K/V computations"},
    "same": {"zh": "两种办法写得一样的提示", "en": "prompts with the same text both ways"},
}


def _e(text: Any) -> str:
    return html.escape(str(text))


def _right(result: Result) -> str:
    ratio = result.row(LENGTHS[-1]).ratio.value
    return min(GUESSES, key=lambda id: abs(GUESSES[id] - ratio) / (GUESSES[id] + ratio))


WIDGET = Widget(
    id="cache-table",
    Params=Params,
    controls=(Choice("new", lambda: LENGTHS, name=lambda n: f"{n}"), Stops("rounds", ROUNDS)),
    run=run,
    draw=draw,
    guesses={
        "ratio": Guess(
            truth=lambda r: Quantity(r.row(LENGTHS[-1]).ratio.value, "×", "measured", "speed with the cache / without, 240 new tokens", {}, None, dict(r.conditions)),
            choices=tuple(GUESSES), right=_right,
        )
    },
    live=Live("cache.race", lambda p: {"model": MODEL, "rounds": p.rounds}, partial=True),
)  # fmt: skip
