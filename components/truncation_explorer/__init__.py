"""The full next-token distribution, ranked: what temperature, top-k, top-p and min-p leave of it, in the order that an
engine applies them; what is drawn from the rest, and what the model writes with it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from math import exp, log
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints

from components import Guess, Html, Live, Readout, Scene, Stage, Vega, View, Widget, parameters, theme
from components.controls import Choice, Range, Stops, Text
from components.text import Words, amount, digits, ending
from compute import distributions, facts, precompute, sampling
from compute.distributions import Next
from compute.measures.sampling import SETTINGS
from compute.quantity import Quantity, Source
from compute.sampling import ORDERS, Floats, Order, Rule, Sampling, draw as drawn_tokens, entropy, probabilities, softmax, stages
from compute.speculative import wilson
from compute.trials import Prompt

MODEL = "mini-256"
HOTTEST = 3.0
LISTED = 40  # tokens listed by name
BARS = 12  # candidates in the chart of draws
USUAL = {"top_k": 40, "top_p": 0.9, "min_p": 0.1}  # what the three rules are compared at while one is off
COUNT, NEW = 4, 48  # texts written live, tokens each


@parameters
class Params:
    """text: the learner's own; empty for the stored prompt. draws, seed: of the tokens drawn and the texts written."""

    prompt: Prompt = "poem"
    text: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    temperature: Annotated[float, Field(ge=0, le=HOTTEST)] = 1.3
    top_k: Annotated[int, Field(ge=0, le=2048)] = 200
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.05
    order: Order = "transformers"
    draws: Annotated[int, Field(ge=1, le=100_000)] = 1000
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, self.order)


@dataclass(frozen=True)
class Step:
    """After one rule: how many tokens are left, and their share of the whole distribution at the temperature in force then."""

    rule: Rule
    value: float
    works: bool  # False: switched off
    count: int
    mass: float


@dataclass(frozen=True)
class Texts:
    """Continuations and the setting they were written at. exact: it is the one on the page."""

    texts: tuple[Mapping[str, Any], ...]
    sampling: Sampling
    exact: bool
    live: bool


@dataclass(frozen=True)
class Result:
    """logits, whole (after temperature alone), p (after all rules): (V). ranked (V): token ids, the likeliest first."""

    params: Params
    said: Next
    logits: Floats
    ranked: NDArray[np.intp]
    whole: Floats
    p: Floats
    steps: tuple[Step, ...]
    orders: Mapping[str, int]  # tokens left, by order
    alone: Mapping[str, float]  # the value of each rule when it is compared alone
    alone_count: Mapping[str, int]  # and how many tokens it leaves at this temperature
    drawn: NDArray[np.int64]  # (V) how often each token was drawn
    texts: Texts
    mark: Literal["live", "precomputed"]
    waiting: bool  # the learner's own text was not run yet; a stored prompt is shown

    @property
    def kept(self) -> int:
        return self.steps[-1].count

    @property
    def mass(self) -> float:
        """Share of the distribution after temperature that survives."""
        return float(self.whole[self.p > 0].sum())


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    said = distributions.answered(answer) if answer is not None else distributions.stored(_stored_prompt(params))
    logits, chosen = said.logits[MODEL], params.sampling
    whole, p = (probabilities(logits, s) for s in (Sampling(params.temperature), chosen))
    alone = {rule: getattr(params, rule) if _works(rule, chosen) else usual for rule, usual in USUAL.items()}
    counts = {rule: int((probabilities(logits, Sampling(params.temperature, **{rule: value})) > 0).sum()) for rule, value in alone.items()}
    orders = {order: int((probabilities(logits, Sampling(params.temperature, params.top_k, params.top_p, params.min_p, order)) > 0).sum()) for order in ORDERS}
    u = np.random.default_rng(params.seed).random(params.draws)
    drawn = np.bincount(drawn_tokens(p, u), minlength=len(p))
    texts = _written(answer, chosen, params.seed) if answer is not None else _recorded(_stored_prompt(params), chosen)
    return Result(
        params, said, logits, np.argsort(-logits, kind="stable"), whole, p, _steps(logits, chosen), orders, alone, counts, drawn, texts,
        "precomputed" if answer is None else "live", answer is None and params.text not in ("", said.text),
    )  # fmt: skip


def _stored_prompt(params: Params) -> str:
    """The stored prompt that the text is, else the chosen one."""
    return next((name for name, text in distributions.PROMPTS.items() if text == params.text), params.prompt)


def _asked_text(params: Params) -> str:
    return params.text or distributions.PROMPTS[params.prompt]


def _works(rule: str, s: Sampling) -> bool:
    return {"temperature": s.temperature != 1, "top_k": s.top_k > 0, "top_p": s.top_p < 1, "min_p": s.min_p > 0}[rule]


def _steps(logits: Floats, chosen: Sampling) -> tuple[Step, ...]:
    """The share of what is kept is taken of the distribution at T = 1 as long as the temperature has not come yet."""
    whole, found = softmax(logits), []
    for stage in stages(logits, chosen):
        if stage.rule == "temperature":
            whole = probabilities(logits, Sampling(chosen.temperature))
        found.append(Step(stage.rule, getattr(chosen, stage.rule), _works(stage.rule, chosen), stage.count, float(whole[stage.kept].sum())))
    return tuple(found)


def _written(answer: Mapping[str, Any], chosen: Sampling, seed: int) -> Texts:
    made = dict(answer["sampling"])
    same_seed = made.pop("seed") == seed
    return Texts(tuple(answer["continuations"]), Sampling(**made), Sampling(**made) == chosen and same_seed, True)


def _recorded(prompt: str, chosen: Sampling) -> Texts:
    """The stored texts of the nearest setting."""
    kept = precompute.recorded(f"sampling.texts.{prompt}")
    name = min(SETTINGS, key=lambda name: _apart(SETTINGS[name], chosen))
    return Texts(tuple(kept["examples"][name]), SETTINGS[name], SETTINGS[name] == chosen, False)


def _apart(a: Sampling, b: Sampling) -> float:
    return abs(a.temperature - b.temperature) + abs(log(a.top_p / b.top_p)) + 4 * abs(a.min_p - b.min_p)


# ---- the three rules over T

TEMPERATURES = tuple(np.round(np.arange(0.05, HOTTEST + 0.001, 0.05), 2).tolist())


@lru_cache(maxsize=32)
def _curves(logits: bytes, top_k: int, top_p: float, min_p: float) -> dict[str, list[int]]:
    """Tokens that each rule alone leaves, over TEMPERATURES; for the same logits only once."""
    z = np.sort(np.frombuffer(logits))[::-1]
    found: dict[str, list[int]] = {"top_k": [], "top_p": [], "min_p": []}
    for t in TEMPERATURES:
        p = probabilities(z, Sampling(t))
        for rule, kept in (("top_k", sampling.top_k(p, top_k)), ("top_p", sampling.top_p(p, top_p)), ("min_p", sampling.min_p(p, min_p))):
            found[rule].append(int((kept & (p > 0)).sum()))
    return found


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, lang = scene.words, scene.lang
    before = scene.before if scene.before is not None and scene.before.said.text == result.said.text else None
    return View(
        picture=Stage(_stage(result, before, words, lang), height=600),
        beside=(Vega(_orders(result, scene), {"order": "order"}),),
        readouts=_readouts(result, before, words, lang),
        sentence=_sentence(result, words, lang),
        after=(Vega(_rules(result, scene)), Vega(_draws(result, scene)), Html(_list(result, words, lang)), Html(_texts(result, words, lang))),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified", all=f"{len(result.p):,}", listed=LISTED, bars=min(BARS, result.kept)),
        derivation=_derivation(result, words),
    )


def shown(piece: str) -> str:
    """A token on one line, with its blanks to be seen; ⟨E6 B5⟩ are bytes and stay as they are."""
    return piece if piece.startswith("⟨") else piece.replace("\n", "⏎").replace(" ", "␣") or "∅"


def _groups(result: Result, before: Result | None) -> list[int]:
    """Where the groups of ranks begin that share a bar: single at first, ever wider; never across a boundary."""
    edges = {int(e) for e in np.geomspace(1, len(result.p) + 1, 130).round()} | {*range(1, 25), len(result.p) + 1}
    edges |= {r.kept + 1 for r in (result, before) if r is not None}
    return sorted(edges)


def _stage(result: Result, before: Result | None, words: Words, lang: str) -> dict[str, Any]:
    edges = _groups(result, before)

    def masses(p: Floats, ranked: NDArray[np.intp]) -> list[float]:
        sums = np.concatenate([[0.0], np.cumsum(p[ranked])])
        return [round(float(sums[b - 1] - sums[a - 1]), 7) for a, b in zip(edges, edges[1:])]

    moved = before is not None and (before.params.sampling != result.params.sampling)
    old = {step.rule: step.count for step in before.steps} if moved else {}
    named = [shown(result.said.piece(int(i))) for i in result.ranked[:24]]
    return {
        "text": result.said.text, "all": len(result.p), "edges": edges, "mass": masses(result.whole, result.ranked), "kept": result.kept,
        "share": result.mass, "names": named, "order": _order_name(result.params.order, words), "waiting": result.waiting, "t": f"{result.params.temperature:g}",
        "ghost": {"kept": before.kept, "mass": masses(before.whole, result.ranked)} if moved else None,
        "steps": [
            {"rule": step.rule, "name": _rule(step.rule, step.value, step.works, words), "works": step.works, "count": step.count,
             "share": amount(step.mass, "ratio", lang), "old": old.get(step.rule)}
            for step in result.steps
        ],
        "kept_says": words("picture.kept", n=f"{result.kept:,}", p=amount(result.mass, "ratio", lang)),
        "cut_says": words("picture.cut", n=f"{len(result.p) - result.kept:,}", p=amount(max(0.0, 1 - result.mass), "ratio", lang)),
    }  # fmt: skip


def _rule(rule: str, value: float, works: bool, words: Words) -> str:
    if rule == "temperature":
        return words("rule.temperature", value=f"{value:g}")
    return words(f"rule.{rule}", value=f"{value:g}") if works else words(f"rule.{rule}_off")


def _order_name(order: str, words: Words) -> str:
    return words(f"option.order.{order}")


def _readouts(result: Result, before: Result | None, words: Words, lang: str) -> tuple[Readout, ...]:
    def of(r: Result) -> tuple[str, str, str, str]:
        return f"{r.kept:,}", amount(r.mass, "ratio", lang), digits(float(entropy(r.p))), f"{int((r.drawn > 0).sum()):,}"

    def change(i: int) -> str:
        return words("before", value=of(before)[i]) if before is not None and of(before)[i] != of(result)[i] else ""

    kept, mass, h, seen = of(result)
    return (
        Readout(words("readout.kept"), kept, words("unit.tokens"), change(0), words("note.kept", all=f"{len(result.p):,}")),
        Readout(words("readout.mass"), mass, "", change(1), words("note.mass", t=f"{result.params.temperature:g}")),
        Readout(words("readout.entropy"), h, "nat", change(2), words("note.entropy", before=digits(float(entropy(result.whole))), n=digits(exp(float(entropy(result.p)))))),
        Readout(words("readout.seen"), seen, words("unit.tokens"), change(3), words("note.seen", n=f"{result.params.draws:,}", seed=result.params.seed)),
    )


def _setting(s: Sampling, words: Words) -> str:
    if s.temperature == 0:
        return words("setting.greedy")
    on = [_rule(rule, getattr(s, rule), True, words) for rule in ("top_k", "top_p", "min_p") if _works(rule, s)]
    return words("setting.joint").join([words("rule.temperature", value=f"{s.temperature:g}"), *on])


def _sentence(result: Result, words: Words, lang: str) -> str:
    p = result.params
    said = words(
        "sentence.says", text=ending(result.said.text), setting=_setting(p.sampling, words), order=_order_name(p.order, words), all=f"{len(result.p):,}",
        kept=f"{result.kept:,}", mass=amount(result.mass, "ratio", lang), before=digits(float(entropy(result.whole))), after=digits(float(entropy(result.p))),
    )  # fmt: skip
    others = {order: count for order, count in result.orders.items() if order != p.order and count != result.kept}
    said += words("sentence.orders", others=words("setting.joint").join(f"{_order_name(o, words)} {n:,}" for o, n in others.items())) if others else words("sentence.same_orders")
    return said + words("sentence.alone", **{rule: f"{result.alone_count[rule]:,}" for rule in USUAL}, **{f"{rule}_at": f"{value:g}" for rule, value in result.alone.items()})


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    """The picture's cells: a rank each at first, then neighbours together."""
    edges = _groups(result, None)
    plain, ranked = softmax(result.logits), result.ranked
    starts = np.array(edges[:-1]) - 1
    sums = {name: np.add.reduceat(of[ranked], starts) for name, of in (("p_at_temperature_1", plain), ("p_after_temperature", result.whole), ("p", result.p), ("drawn", result.drawn))}
    return tuple(
        {"first_rank": a, "last_rank": b - 1, "piece": result.said.piece(int(ranked[a - 1])) if b == a + 1 else "", "kept": a <= result.kept}
        | {name: of[i].item() for name, of in sums.items()}
        for i, (a, b) in enumerate(zip(edges, edges[1:]))
    )


# ---- charts

HIDDEN_AXIS = {"grid": False, "ticks": False, "domain": False}


def _orders(result: Result, scene: Scene) -> dict[str, Any]:
    """Tokens left under each engine's order; a click takes it."""
    words, tone = scene.words, partial(theme.colour, theme=scene.theme)
    rows = [
        {"order": order, "name": _order_name(order, words), "count": count, "steps": _chain(order, words), "label": f"{count:,}", "mine": order == result.params.order}
        for order, count in result.orders.items()
    ]
    top = max(result.orders.values()) * 1.25
    rows = [row | {"from": 0, "to": top} for row in rows]
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": HIDDEN_AXIS | {"labelLimit": 110, "labelColor": tone("ink"), "labelFont": theme.SANS[scene.lang]}}
    x = {"field": "count", "type": "quantitative", "scale": {"domain": [0, top], "nice": False}, "axis": None}
    return {
        "height": 168,
        "config": theme.vega_config(scene.theme, scene.lang),
        "title": {"text": words("orders.title"), "subtitle": words("orders.more").split("\n")},
        "data": {"values": rows},
        "layer": [
            {
                "params": [{"name": "order", "select": {"type": "point", "fields": ["order"], "clear": False}}],
                "mark": {"type": "bar", "cursor": "pointer", "height": {"band": 1}, "color": "transparent"},
                "encoding": {
                    "y": y, "x": x | {"field": "from"}, "x2": {"field": "to"},
                    "tooltip": [{"field": "name", "title": words("control.order")}, {"field": "steps", "title": words("orders.steps")}, {"field": "count", "title": words("readout.kept")}],
                },
            },
            {
                "mark": {"type": "bar", "height": {"band": 0.7}, "cursor": "pointer"},
                "encoding": {"y": y, "x": x, "color": {"condition": {"test": "datum.mine", "value": tone("accepted")}, "value": tone("ghost")}},
            },
            {"mark": {"type": "text", "align": "left", "dx": 6, "font": theme.FIGURES, "fontSize": 13, "color": tone("ink")}, "encoding": {"y": y, "x": x, "text": {"field": "label"}}},
        ],
    }  # fmt: skip


def _chain(order: str, words: Words) -> str:
    return " → ".join(words(f"short.{rule}") for rule in ORDERS[order])


def _rules(result: Result, scene: Scene) -> dict[str, Any]:
    """Tokens that each rule alone keeps, over the temperature."""
    words, tone, lang = scene.words, partial(theme.colour, theme=scene.theme), scene.lang
    curves = _curves(result.logits.tobytes(), int(result.alone["top_k"]), result.alone["top_p"], result.alone["min_p"])
    dash, shape = {"top_k": [2, 3], "top_p": [1, 0], "min_p": [8, 4]}, {"top_k": "square", "top_p": "circle", "min_p": "triangle-up"}
    name = {rule: _rule(rule, result.alone[rule], True, words) for rule in USUAL}
    t, most = result.params.temperature, len(result.p) * 1.15
    x = {"field": "t", "type": "quantitative", "title": words("axis.t"), "scale": {"domain": [0, HOTTEST]}, "axis": {"values": [0, 0.5, 1, 1.5, 2, 2.5, 3]}}
    ticks = [v for v in (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000) if v <= most]
    y = {"field": "n", "type": "quantitative", "title": None, "scale": {"type": "log", "domain": [1, most], "nice": False}, "axis": {"values": ticks, "format": ","}}
    tip = [{"field": "rule", "title": words("axis.rule")}, {"field": "t", "title": "T"}, {"field": "n", "title": words("axis.kept"), "format": ","}]
    lines = [{"t": at, "n": n, "rule": name[rule], "id": rule} for rule, counts in curves.items() for at, n in zip(TEMPERATURES, counts)]
    here = [{"t": t, "n": n, "rule": name[rule], "id": rule, "label": words("rules.label", rule=name[rule], n=f"{n:,}")} for rule, n in result.alone_count.items()]
    for row, offset in zip(here, _apart_px([row["n"] for row in here], most)):
        row["dy"] = offset
    by = {"field": "id", "type": "nominal", "legend": None}
    ink, halo = {"color": tone("ink")}, {"color": tone("paper"), "stroke": tone("paper"), "strokeWidth": 9}
    right = t > HOTTEST / 2
    label = {"type": "text", "fontSize": 13, "fontWeight": 600, "baseline": "middle", "align": "right" if right else "left", "dx": -12 if right else 12, "dy": {"expr": "datum.dy"}}
    return {
        "height": RULES_HIGH + 110, "config": theme.vega_config(scene.theme, lang), "title": {"text": words("rules.title"), "subtitle": words("rules.more").split("\n")},
        "layer": [
            {"data": {"values": [{"t": t}]}, "mark": {"type": "rule", "color": tone("ghost")}, "encoding": {"x": x}},
            {"data": {"values": lines}, "mark": {"type": "line", **ink}, "encoding": {"x": x, "y": y, "tooltip": tip, "strokeDash": {**by, "scale": {"domain": list(dash), "range": list(dash.values())}}}},
            {"data": {"values": here}, "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, **ink}, "encoding": {"x": x, "y": y, "tooltip": tip, "shape": {**by, "scale": {"domain": list(shape), "range": list(shape.values())}}}},
            *({"data": {"values": here}, "mark": label | paint, "encoding": {"x": x, "y": y, "text": {"field": "label"}}} for paint in (halo, ink)),
        ],
    }  # fmt: skip


RULES_HIGH = 220  # px of the plot, about
LINE = 17


def _apart_px(counts: list[int], most: float) -> list[float]:
    """By how many px each label moves so that none lies on another, on the chart's logarithmic scale."""
    at = [RULES_HIGH * (1 - log(max(1, n)) / log(most)) for n in counts]
    order = sorted(range(len(at)), key=lambda i: at[i])
    placed = dict(zip(order, np.maximum.accumulate([at[i] - LINE * rank for rank, i in enumerate(order)]) + LINE * np.arange(len(order))))
    middle = sum(placed[i] - at[i] for i in order) / len(order)  # up and down alike
    return [float(placed[i] - at[i] - middle) for i in range(len(at))]


def _draws(result: Result, scene: Scene) -> dict[str, Any]:
    """Shares among the drawn tokens, with Wilson's interval, beside the probabilities they were drawn from."""
    words, tone, n = scene.words, partial(theme.colour, theme=scene.theme), result.params.draws
    first = [int(i) for i in result.ranked[: min(BARS, result.kept)]]
    rows = [{"name": f"{rank + 1} {shown(result.said.piece(i))}", "p": float(result.p[i]), "count": int(result.drawn[i])} for rank, i in enumerate(first)]
    others = result.kept - len(first)
    said = words("draws.more")
    if others:
        theory, share = 1 - sum(row["p"] for row in rows), 1 - sum(row["count"] for row in rows) / n
        said += "\n" + words("draws.rest", n=f"{others:,}", p=amount(theory, "ratio", scene.lang), share=amount(share, "ratio", scene.lang))
    for row in rows:
        low, high = wilson(row["count"], n)
        row |= {"share": row["count"] / n, "low": low, "high": high, "says": f"{row['count']:,} / {n:,}"}
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": HIDDEN_AXIS | {"labelLimit": 150, "labelColor": tone("ink"), "labelFont": theme.SANS[scene.lang]}}
    top = max(max(row["p"], row["high"]) for row in rows)
    x = {"type": "quantitative", "title": words("axis.share"), "scale": {"domain": [0, min(1.0, top * 1.05)], "nice": False}, "axis": {"format": ".0%" if top > 0.05 else ".1%", "tickCount": 5}}
    tip = [{"field": "name", "title": "token"}, {"field": "p", "title": words("draws.theory"), "format": ".3%"}, {"field": "share", "title": words("draws.share"), "format": ".3%"}, {"field": "says", "title": words("draws.count")}]
    return {
        "height": 24 * len(rows) + 140, "config": theme.vega_config(scene.theme, scene.lang),
        "title": {"text": words("draws.title", n=f"{n:,}", seed=result.params.seed).split("\n"), "subtitle": said.split("\n")},
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "bar", "height": {"band": 0.62}, "fill": tone("target"), "fillOpacity": 0.16, "stroke": tone("target"), "strokeWidth": 1.5}, "encoding": {"y": y, "x": {**x, "field": "p"}, "tooltip": tip}},
            {"mark": {"type": "rule", "strokeWidth": 1.5, "color": tone("ink")}, "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}}},
            {"mark": {"type": "point", "filled": True, "size": 55, "opacity": 1, "color": tone("ink")}, "encoding": {"y": y, "x": {**x, "field": "share"}, "tooltip": tip}},
        ],
    }  # fmt: skip


# ---- lists


def _list(result: Result, words: Words, lang: str) -> str:
    """The likeliest tokens by name, kept and cut, and the two at the boundary."""
    chips = []
    for rank, i in enumerate(int(i) for i in result.ranked[:LISTED]):
        chips.append(_chip(rank + 1, shown(result.said.piece(i)), float(result.whole[i]), float(result.p[i]), words, lang))
    if result.kept > LISTED:
        chips.append('<span class="cut-gap">…</span>')
        for rank in (result.kept - 1, result.kept):
            if rank < len(result.p):
                i = int(result.ranked[rank])
                chips.append(_chip(rank + 1, shown(result.said.piece(i)), float(result.whole[i]), float(result.p[i]), words, lang))
    boundary = words("list.boundary") if result.kept > LISTED else ""
    return (
        f'<style>{STYLE}</style><section class="cut-list"><p class="cut-head">{_e(words("list.title", listed=min(LISTED, len(result.p)), all=f"{len(result.p):,}"))}</p>'
        f'<p class="cut-more">{_e(words("list.more"))}<var>{_e(words("list.after"))}</var>{_e(words("list.stop"))}{_e(boundary)}</p><div>{"".join(chips)}</div></section>'
    )


def _chip(rank: int, name: str, before: float, after: float, words: Words, lang: str) -> str:
    kept = after > 0
    share = f"{_percent(before)}<var> → {_percent(after)}</var>" if kept else f"{_percent(before)} ✕"
    return f'<span class="{"kept" if kept else "cut"}" title="{_e(words("list.kept" if kept else "list.cut"))}"><i>{rank}</i><b>{_e(name)}</b><small>{share}</small></span>'


def _percent(p: float) -> str:
    return "0" if p == 0 else f"{100 * p:.1f}%" if p >= 0.00995 else f"{100 * p:.2f}%" if p >= 0.00005 else "<0.01%"


def _texts(result: Result, words: Words, lang: str) -> str:
    """Continuations with their measures; repetition as a bar."""
    texts = result.texts
    key = "texts.live" if texts.live and texts.exact else "texts.stale" if texts.live else "texts.stored" if texts.exact else "texts.near"
    mark = words("texts.mark_live" if texts.live else "texts.mark_stored")
    items = []
    for t in texts.texts:
        figures = words(
            "texts.figures", seed=t["seed"], tokens=t["tokens"], repetition=amount(t["repetition4"], "ratio", lang), distinct1=digits(t["distinct1"]),
            distinct2=digits(t["distinct2"]), kept=digits(t["kept"]), entropy=digits(t["entropy"]),
        )  # fmt: skip
        body = _e(t["text"].strip()) or f"<i>{_e(words('texts.empty'))}</i>"
        items.append(f'<li><p><span>{_e(result.said.text)}</span>{body}</p><small>{_e(figures)}</small></li>')
    return (
        f'<section class="cut-texts"><p class="cut-head">{_e(words("texts.title"))} <span>{_e(mark)}</span></p>'
        f'<p class="cut-more">{_e(words(key, setting=_setting(texts.sampling, words), order=_order_name(texts.sampling.order, words), now=_setting(result.params.sampling, words)))}</p><ul>{"".join(items)}</ul></section>'
    )


STYLE = """
.cut-list .cut-head, .cut-texts .cut-head { font-size: 14px; font-weight: 600; margin: 0; padding: 12px 0 0; color: var(--lab-ink); }
.cut-texts .cut-head span { font-weight: 400; color: var(--lab-muted); }
.cut-list .cut-more, .cut-texts .cut-more { font-size: 13px; color: var(--lab-muted); margin: 4px 0 8px; line-height: 1.5; }
.cut-list div { display: flex; flex-wrap: wrap; gap: 4px; }
.cut-list span { display: inline-flex; align-items: baseline; gap: 5px; padding: 2px 7px; border: 1px solid var(--lab-hairline); border-radius: var(--lab-radius); font-size: 14px; line-height: 1.5; }
.cut-list i, .cut-list small { font: 13px var(--lab-figures); color: var(--lab-muted); }
.cut-list b { font-weight: 500; white-space: pre; max-width: 12em; overflow: hidden; text-overflow: ellipsis; }
.cut-list .kept { background: color-mix(in srgb, var(--lab-accepted) 16%, transparent); border-color: var(--lab-accepted); }
.cut-list .cut { border-color: var(--lab-rejected); background: repeating-linear-gradient(135deg, transparent 0 5px, color-mix(in srgb, var(--lab-rejected) 18%, transparent) 5px 7px); }
.cut-list .cut b { text-decoration: line-through; text-decoration-color: var(--lab-rejected); }
.cut-list .cut-gap { border: 0; }
.cut-list var { font-style: normal; }
.cut-list span var { color: var(--lab-ink); }
@media (max-width: 480px) { .cut-list var { display: none; } .cut-list span { padding: 1px 5px; } }
.cut-texts ul { list-style: none; margin: 0; padding: 0; display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 8px 24px; }
.cut-texts li { margin: 0; padding: 8px 0; border-top: 1px solid var(--lab-hairline); }
.cut-texts li p { margin: 0; font-size: 15px; line-height: 1.6; white-space: pre-wrap; overflow-wrap: anywhere; }
.cut-texts li p span { color: var(--lab-muted); }
.cut-texts small { font-size: 13px; color: var(--lab-muted); font-variant-numeric: tabular-nums; }
"""


def _e(text: Any) -> str:
    return html.escape(str(text))


# ---- where the numbers come from


def _papers(result: Result) -> tuple[Quantity, ...]:
    p = result.params
    around = {k: v for k, v in result.said.conditions.items() if k in ("dtype", "device", "torch")} | {"model": MODEL, "text": result.said.text}
    inputs = {"T": p.temperature, "top-k": p.top_k, "top-p": p.top_p, "min-p": p.min_p, "order": p.order}
    drawn = int((result.drawn > 0).sum())
    return (
        Quantity(result.kept, "token", "computed", "count(p > 0)", inputs, conditions=around, says=SAYS["kept"]),
        Quantity(result.mass, "ratio", "computed", "Σ softmax(z / T) over the kept", inputs, conditions=around, says=SAYS["mass"]),
        Quantity(float(entropy(result.whole)), "nat", "computed", "−Σ p ln p, p = softmax(z / T)", {"T": p.temperature}, conditions=around, says=SAYS["before"]),
        Quantity(float(entropy(result.p)), "nat", "computed", "−Σ p ln p, p over the kept", inputs, conditions=around, says=SAYS["after"]),
        Quantity(drawn, "token", "measured", "different tokens among the draws", inputs, None, around | {"n": p.draws, "seed": p.seed}, says=SAYS["seen"]),
        _source(p.order),
    )


@lru_cache
def _source(order: str) -> Quantity:
    row = next(row for row in facts.papers()["formula"] if row["id"] == f"sampling.order.{order}")
    s = row["source"]
    return Quantity(row["text"], "", "quoted", source=Source(s["title"], s["url"], s["where"], s["read_on"], s["authors"]), conditions={"verified": row["verified"]}, says=row["claim"])


SAYS = {
    "kept": {"zh": "保留的 token 数", "en": "tokens kept"},
    "mass": {"zh": "保留的概率", "en": "probability kept"},
    "before": {"zh": "截断前的熵", "en": "entropy before the cut"},
    "after": {"zh": "截断后的熵", "en": "entropy after the cut"},
    "seen": {"zh": "抽到的不同 token", "en": "different tokens drawn"},
}


def _derivation(result: Result, words: Words) -> str:
    lines = []
    count = len(result.p)
    for number, step in enumerate(result.steps, 1):
        values = {"number": number, "value": f"{step.value:g}", "count": f"{step.count:,}", "was": f"{count:,}", "mass": amount(step.mass, "ratio", words.lang)}
        lines.append(words("derivation.greedy" if step.rule == "temperature" and not step.value else f"derivation.{step.rule}" if step.works or step.rule == "temperature" else "derivation.off", name=words(f"short.{step.rule}"), **values))
        count = step.count
    return words("derivation.first", order=_order_name(result.params.order, words)) + "\n\n" + "\n".join(lines) + "\n\n" + words("derivation.ties")


# ---- guesses and widget

SURVIVORS = {"5": 5, "50": 50, "500": 500, "1500": 1500}
NARROW = {"6": 6, "60": 60, "600": 600}


def _nearest(choices: Mapping[str, int], count: int) -> str:
    return min(choices, key=lambda id: abs(log(choices[id] / max(1, count))))


def _alone(result: Result, rule: Rule) -> Quantity:
    inputs = {"T": result.params.temperature, rule: result.alone[rule], "text": result.said.text}
    return Quantity(result.alone_count[rule], "token", "computed", f"count kept by {rule} alone", inputs)


def _last(result: Result) -> str:
    ours, theirs = result.orders["transformers"], result.orders["llama.cpp"]
    return "fewer" if theirs < ours else "more" if theirs > ours else "same"


WIDGET = Widget(
    id="truncation-explorer",
    Params=Params,
    controls=(
        Range("temperature", 0.0, HOTTEST, 0.05, "%.2f"),
        Stops("top_k", (0, 1, 2, 5, 10, 20, 40, 100, 200, 500, 1000, 2048), lambda v: "–" if v == 0 else f"{v:,}"),
        Range("top_p", 0.05, 1.0, 0.05, "%.2f"),
        Range("min_p", 0.0, 0.5, 0.01, "%.2f"),
        Choice("order", lambda: tuple(ORDERS)),
        Choice("prompt", lambda: tuple(distributions.PROMPTS)),
        Text("text", 200),
        Stops("draws", (10, 100, 1000, 10_000, 100_000)),
        Range("seed", 0, 99),
    ),
    run=run,
    draw=draw,
    guesses={
        "survivors": Guess(truth=partial(_alone, rule="top_p"), choices=tuple(SURVIVORS), right=lambda r: _nearest(SURVIVORS, r.alone_count["top_p"])),
        "minp": Guess(truth=partial(_alone, rule="min_p"), choices=tuple(NARROW), right=lambda r: _nearest(NARROW, r.alone_count["min_p"])),
        "order": Guess(
            truth=lambda r: Quantity(r.orders["llama.cpp"], "token", "computed", "count(p > 0), temperature last", {"transformers": r.orders["transformers"]}),
            choices=("fewer", "same", "more"), right=_last,
        ),
    },
    live=Live(
        "sampling.texts",
        lambda p: {"model": MODEL, "text": _asked_text(p), "temperature": p.temperature, "top_k": p.top_k, "top_p": p.top_p, "min_p": p.min_p,
                   "order": p.order, "count": COUNT, "new": NEW, "seed": p.seed},
        about=_asked_text,
    ),
)  # fmt: skip
