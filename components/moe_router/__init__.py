"""Which experts each token of a sentence is sent to, layer by layer; how evenly a whole text is shared out, and what a batch reads."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StringConstraints

from components import Guess, Html, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Stops, Text
from components.text import Words, amount, digits
from compute import facts, moe, precompute
from compute.measures.moe import BATCH, BATCHES, DENSE, DOMAINS, KINDS, MODEL, SENTENCES
from compute.quantity import Quantity

LONGEST = 80  # characters of a sentence
LAYERS = (1, 2, 3, 4)
SLIDER = 40  # tokens that the slider reaches; a click reaches any
STATISTICS = f"{MODEL}.balance"


@parameters
class Params:
    """token, layer: what is looked at, from 1; a token that the sentence lacks means its last. batch: tokens of a step. split: what the
    table of experts is divided by."""

    sentence: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST)] = SENTENCES["zh"]
    token: Annotated[int, Field(ge=1, le=4 * LONGEST)] = 4
    layer: Annotated[int, Field(ge=1, le=4)] = 2
    batch: Literal[BATCHES] = BATCH
    split: Literal["domain", "kind"] = "domain"
    model: Literal["mini-moe"] = MODEL


@dataclass(frozen=True)
class Routes:
    """What the routers say about one text. probabilities [layer][token][expert]."""

    text: str
    pieces: tuple[str, ...]
    chosen: int
    probabilities: tuple[tuple[tuple[float, ...], ...], ...]
    conditions: tuple[tuple[str, Any], ...]

    def ranked(self, layer: int, token: int) -> list[tuple[int, float]]:
        """(expert, share) of the chosen ones, the likeliest first; shares add up to 1."""
        p = self.probabilities[layer][token]
        best = sorted(range(len(p)), key=lambda expert: -p[expert])[: self.chosen]
        return [(expert, p[expert] / sum(p[e] for e in best)) for expert in best]


@dataclass(frozen=True)
class Result:
    params: Params
    routes: Routes
    statistics: Mapping[str, Any]  # of the validation text
    mark: Literal["live", "precomputed"]
    waiting: bool  # the learner's own sentence was not run yet; the one shown is the example

    @property
    def token(self) -> int:
        return min(self.params.token, len(self.routes.pieces)) - 1

    @property
    def layer(self) -> int:
        return min(self.params.layer, len(self.routes.probabilities)) - 1

    @property
    def read(self) -> float:
        """Distinct experts of a layer, mean over the layers, that the batch read; its tokens from anywhere."""
        return _mean(self.statistics["read"]["mixed"])[BATCHES.index(self.params.batch)]

    @property
    def even(self) -> float:
        experts = moe.experts_of(facts.model(MODEL))
        return experts.distinct(self.params.batch)


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    statistics = precompute.recorded(STATISTICS)
    if answer is not None:
        return Result(params, _routes(answer), statistics, "live", False)
    lang = next((lang for lang, text in SENTENCES.items() if text == params.sentence), None)
    shown = lang or ("zh" if any("\u4e00" <= c <= "\u9fff" for c in params.sentence) else "en")
    return Result(params, _routes(precompute.recorded(f"moe-router.{shown}.tokens")), statistics, "precomputed", lang is None)


def _routes(said: Mapping[str, Any]) -> Routes:
    nested = tuple(tuple(tuple(p) for p in layer) for layer in said["probabilities"])
    return Routes(said["text"], tuple(said["pieces"]), said["chosen"], nested, tuple(said["conditions"].items()))


def _mean(layers: list[list[float]]) -> list[float]:
    return np.mean(layers, axis=0).tolist()


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, s = scene.words, result.statistics
    return View(
        picture=Stage(_stage(result, scene), height=760, picks=("token", "layer")),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, words, scene.lang),
        rows=_rows(result),
        papers=_papers(result),
        beside=(Html(_table(result, words, scene.lang)),),
        simplified=words("simplified", tokens=f"{s['tokens']:,}"),
        derivation=_derivation(result, words),
    )


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    r, s, before = result.routes, result.statistics, scene.before
    moved = before is not None and (before.token, before.layer, before.routes.text) != (result.token, result.layer, r.text)
    ranked = [[r.ranked(layer, token) for token in range(len(r.pieces))] for layer in range(len(r.probabilities))]
    experts = moe.experts_of(facts.model(MODEL))
    return {
        "pieces": [_shown(piece) for piece in r.pieces], "experts": [[[e for e, _ in pair] for pair in layer] for layer in ranked], "shares": [[[round(v, 3) for _, v in pair] for pair in layer] for layer in ranked],
        "p": r.probabilities[result.layer][result.token], "old": before.routes.probabilities[before.layer][before.token] if moved else None,
        "token": result.token, "layer": result.layer, "load": s["load"], "balance": [digits(b) for b in s["balance"]], "tokens": f"{s['tokens']:,}",
        "batches": BATCHES, "batch": result.params.batch, "mixed": _mean(s["read"]["mixed"]), "run": _mean(s["read"]["run"]),
        "even": [experts.distinct(size) for size in BATCHES], "waiting": result.waiting,
    }  # fmt: skip


def _shown(piece: str) -> str:
    """A token as a heading. Bytes of a character are a dot for each: their values would not tell more."""
    if "⟨" in piece:
        return "·" * len(piece.split())
    return piece.replace("\n", "⏎").strip() or "␣"


def _load(result: Result) -> list[float]:
    return result.statistics["load"][result.layer]


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, s, b = scene.words, scene.lang, result.statistics, scene.before
    shape, dense = facts.model(MODEL), facts.model(DENSE)
    load, experts = _load(result), moe.experts_of(shape)

    def was(of) -> str:
        return words("before", value=of(b)) if b is not None and of(b) != of(result) else ""

    def share(value: float) -> str:
        return amount(value, "ratio", lang).removesuffix("%")

    span = lambda r: f"{share(min(_load(r)))} – {share(max(_load(r)))}"  # noqa: E731
    read = lambda r: digits(r.read)  # noqa: E731
    follows = {what: float(np.mean(values)) for what, values in s["follows"].items()}
    active, total = (amount(n, "parameter", lang).split(" ") for n in (shape.active_parameters, shape.parameters))
    return (
        Readout(words("readout.active"), active[0], active[1], "", words("note.active", total=" ".join(total), share=amount(shape.active_parameters / shape.parameters, "ratio", lang), dense=amount(dense.parameters, "parameter", lang))),
        Readout(words("readout.load", layer=result.layer + 1), span(result), "%", was(span), words("note.load", even=amount(1 / experts.copies, "ratio", lang), balance=digits(s["balance"][result.layer]))),
        Readout(words("readout.read", batch=result.params.batch), read(result), words("unit.of", all=experts.copies), was(read), words("note.read", even=digits(result.even))),
        Readout(words("readout.follows"), share(follows["token"]), "%", "", words("note.follows", domain=amount(follows["domain"], "ratio", lang), kind=amount(follows["kind"], "ratio", lang))),
    )  # fmt: skip


def _sentence(result: Result, words: Words, lang: str) -> str:
    r = result.routes
    (first, share), (second, rest) = r.ranked(result.layer, result.token)[:2]
    load = _load(result)
    return words(
        "sentence", piece=_shown(r.pieces[result.token]), token=result.token + 1, of=len(r.pieces), layer=result.layer + 1, first=first + 1, share=amount(share, "ratio", lang), second=second + 1,
        rest=amount(rest, "ratio", lang), least=amount(min(load), "ratio", lang), most=amount(max(load), "ratio", lang), batch=result.params.batch, read=digits(result.read), even=digits(result.even),
    )  # fmt: skip


def _table(result: Result, words: Words, lang: str) -> str:
    """Experts of the layer by what they are given, with the tokens that are sent to them most reliably."""
    s, layer = result.statistics, result.layer
    names = DOMAINS if result.params.split == "domain" else KINDS
    columns = {name: s["domains" if result.params.split == "domain" else "kinds"][name][layer] for name in names}
    counts = s["domain_tokens" if result.params.split == "domain" else "kind_tokens"]

    def cell(value: float) -> str:
        return f'<td style="text-align:end;padding:1px 6px;font-family:var(--lab-figures);background:color-mix(in srgb, var(--lab-weights) {min(40, round(100 * value))}%, transparent)">{100 * value:.1f}</td>'

    head = "".join(f'<th scope="col" style="text-align:end;padding:1px 6px">{html.escape(words(f"{result.params.split}.{name}"))}<br><small>{counts[name]:,}</small></th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{e + 1}</th>{"".join(cell(columns[name][e]) for name in names)}{cell(s["load"][layer][e])}<td style="padding-inline-start:16px;white-space:nowrap">{_tokens(s["favourites"][layer][e])}</td></tr>'
        for e in range(len(s["load"][layer]))
    )
    title = words("table.title", layer=layer + 1, split=words(f"table.{result.params.split}"))
    return (
        f'<p style="margin:20px 0 6px;font-weight:650">{title}</p><div style="overflow-x:auto" tabindex="0" role="region" aria-label="{html.escape(title)}"><table style="border-collapse:collapse;font-size:14px;width:100%">'
        f'<thead><tr style="vertical-align:bottom"><th scope="col" style="text-align:start;white-space:nowrap">{words("table.expert")}</th>{head}<th scope="col" style="text-align:end;padding:1px 6px">{words("table.all")}<br><small>{s["tokens"]:,}</small></th>'
        f'<th scope="col" style="text-align:start;padding-inline-start:16px">{words("table.favourites")}</th></tr></thead><tbody>{body}</tbody></table></div>'
        f'<p style="margin:6px 0 0;color:var(--lab-muted);font-size:14px">{_about(result, words, lang)}</p>'
    )  # fmt: skip


def _tokens(pieces: list[str]) -> str:
    return " ".join(f'<code style="margin-inline-end:4px">{html.escape(_shown(piece))}</code>' for piece in pieces)


def _about(result: Result, words: Words, lang: str) -> str:
    """Whether the experts of this layer go by the subject: said from the figures."""
    s, layer = result.statistics, result.layer
    known = {what: values[layer] for what, values in s["follows"].items()}
    figures = {what: amount(max(0.0, value), "ratio", lang) for what, value in known.items()}
    return words("about.token" if known["token"] > 2 * known["domain"] else "about.both", layer=layer + 1, **figures)


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    r = result.routes
    found = []
    for layer, tokens in enumerate(r.probabilities):
        for token, p in enumerate(tokens):
            shares = dict(r.ranked(layer, token))
            found += [{"of": "sentence", "layer": layer + 1, "token": token + 1, "piece": r.pieces[token], "expert": e + 1, "probability": v, "share": shares.get(e, 0.0)} for e, v in enumerate(p)]
    s = result.statistics
    for name, tables in (("all", {"all": s["load"]}), ("domain", s["domains"]), ("kind", s["kinds"])):
        found += [{"of": "validation text", "by": name, "which": which, "layer": layer + 1, "expert": e + 1, "share_of_choices": v} for which, table in tables.items() for layer, row in enumerate(table) for e, v in enumerate(row)]
    found += [{"of": "batch", "which": which, "layer": layer + 1, "tokens": size, "distinct_experts": v} for which, table in s["read"].items() for layer, row in enumerate(table) for size, v in zip(BATCHES, row)]
    return tuple(found)


def _papers(result: Result) -> tuple[Quantity, ...]:
    shape, r, stored = facts.model(MODEL), result.routes, precompute.stored()
    experts = moe.experts_of(shape)
    (first, share), *_ = r.ranked(result.layer, result.token)
    about = dict(stored[STATISTICS]["conditions"])
    inputs = {"E": experts.copies, "k": experts.used, "B": result.params.batch}
    return (
        Quantity(shape.parameters, "parameter", "computed", "Σ matrices, all experts, and vectors", {"model": MODEL}, says=SAYS["all"]),
        Quantity(shape.active_parameters, "parameter", "computed", "all − layers · idle experts · expert", {"layers": experts.layers, "idle": experts.copies - experts.used, "expert": experts.parameters}, says=SAYS["active"]),
        Quantity(share, "ratio", "measured", "softmax over the chosen scores", {"expert": first + 1, "layer": result.layer + 1, "token": result.token + 1}, None, dict(r.conditions) | {"text": r.text}, says=SAYS["share"]),
        Quantity(max(_load(result)), "ratio", "measured", "choices of an expert / all choices", {"layer": result.layer + 1}, None, about, says=SAYS["most"]),
        Quantity(result.statistics["balance"][result.layer], "count", "measured", "E · Σ f·P", {"layer": result.layer + 1}, None, about, says=SAYS["balance"]),
        Quantity(result.read, "count", "measured", "mean distinct experts a layer over 2,000 draws", {"B": result.params.batch}, None, about, says=SAYS["read"]),
        Quantity(result.even, "count", "computed", "E · (1 − (1 − k / E)^B)", inputs, says=SAYS["even"]),
    )  # fmt: skip


SAYS = {
    "all": {"zh": "全部参数", "en": "all parameters"},
    "active": {"zh": "一个 token 经过的参数", "en": "parameters that a token goes through"},
    "share": {"zh": "首选专家的份额", "en": "share of the first expert"},
    "most": {"zh": "这一层最忙的专家分到的份额", "en": "share of the layer's most used expert"},
    "balance": {"zh": "这一层的均衡度，1 是均匀", "en": "balance of the layer; 1 is even"},
    "read": {"zh": "一步在一层里读到的专家，实测", "en": "experts of a layer that a step reads, measured"},
    "even": {"zh": "假如路由均匀而独立", "en": "if routing were even and independent"},
}


def _derivation(result: Result, words: Words) -> str:
    shape = facts.model(MODEL)
    experts = moe.experts_of(shape)
    idle = experts.copies - experts.used
    return words(
        "derivation", all=f"{shape.parameters:,}", layers=experts.layers, idle=idle, expert=f"{experts.parameters:,}", active=f"{shape.active_parameters:,}",
        experts=experts.copies, chosen=experts.used, batch=result.params.batch, even=digits(result.even), read=digits(result.read),
    )  # fmt: skip


# ---- guess, live

CHOICES = {"2": 2.0, "4": 4.0, "7": 7.0}


def _truth(result: Result) -> Quantity:
    value = _mean(result.statistics["read"]["mixed"])[BATCHES.index(BATCH)]
    return Quantity(value, "count", "measured", "mean distinct experts a layer over 2,000 draws", {"B": BATCH}, None, dict(precompute.stored()[STATISTICS]["conditions"]), says=SAYS["read"])


def _nearest(result: Result) -> str:
    return min(CHOICES, key=lambda id: abs(CHOICES[id] - _truth(result).value))


WIDGET = Widget(
    id="moe-router",
    Params=Params,
    controls=(Text("sentence", LONGEST), Range("token", 1, SLIDER), Choice("layer", lambda: LAYERS, name=str), Stops("batch", BATCHES), Choice("split", lambda: ("domain", "kind"))),
    run=run,
    draw=draw,
    guesses={"read": Guess(truth=_truth, choices=tuple(CHOICES), right=_nearest)},
    live=Live("moe.route", lambda p: {"model": p.model, "text": p.sentence}),
    presets={"en": {"sentence": SENTENCES["en"]}},
    shown=5,
)
