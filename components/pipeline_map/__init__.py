"""A model from text to the next token, stage by stage: shapes, parameters, bytes, arithmetic, and what each is there for."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from components import Guess, Html, Readout, Scene, View, Widget, parameters
from components import Stage as Picture
from components.controls import Choice, Stops
from components.text import Words, amount, short
from compute import facts, pipeline
from compute.facts import ModelName
from compute.pipeline import ROLES, Pipeline, Role, Stage, Tokens
from compute.quantity import Quantity
from compute.roofline import Batch

BATCHES, TOKENS = (1, 2, 4, 8, 16, 32, 58, 128), (1, 2, 4, 16, 64, 128, 512, 1000, 4096, 32_768)
TONES: dict[Role, str] = {"recurrent": "state", "window": "kv", "attention": "kv"}  # all else that has parameters: weights
LESSONS: dict[Role, str] = {
    "tokenizer": "serving", "embedding": "roofline", "vectors": "roofline", "recurrent": "architecture", "window": "architecture", "attention": "roofline",
    "feed_forward": "roofline", "experts": "architecture", "norm": "roofline", "lm_head": "quantization", "softmax": "sampling", "decoding": "sampling",
}  # fmt: skip
MIXING = ("recurrent", "window", "attention")


@parameters
class Params:
    model: ModelName = "qwen3.8-27b"
    batch: Batch = 1
    tokens: Tokens = 4
    stage: Literal[ROLES] = "feed_forward"


@dataclass(frozen=True)
class Result:
    params: Params
    flow: Pipeline

    @property
    def chosen(self) -> Stage:
        return self.flow.stage(self.params.stage)

    @property
    def window(self) -> int:
        return next((c.window for c in facts.model(self.params.model).caches if c.window), 0)


def run(params: Params, answer: None = None) -> Result:
    return Result(params, pipeline.pipeline(params.model, params.batch, params.tokens))


# ---- words of a stage


def name_of(stage: Stage, words: Words) -> str:
    """"GQA attention", "SwiGLU", "lm_head"."""
    if stage.role == "window":
        return words(f"kind.{stage.kind}_window")
    key = f"kind.{stage.kind or stage.role}"
    return words(key) if key in words.table else words(f"option.stage.{stage.role}")


def lesson_of(stage: Stage) -> str:
    return "architecture" if stage.kind == "mla" else LESSONS[stage.role]


def dims(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{n:,}" for n in shape)


def takes(stage: Stage, words: Words) -> str:
    return _some("takes", stage.takes[0], words) if stage.role == "tokenizer" else dims(stage.takes)


def gives(stage: Stage, words: Words) -> str:
    return _some("gives", stage.gives[0], words) if stage.role == "decoding" else dims(stage.gives)


def _some(what: str, count: int, words: Words) -> str:
    """"1 text", "8 ids" """
    return words(f"{what}.one") if count == 1 else words(f"{what}.many", b=f"{count:,}")


def solves(result: Result, words: Words) -> str:
    stage, flow = result.chosen, result.flow
    experts = next((m for m in stage.matrices if m.name == "experts"), None)
    key = "embedding_shared" if stage.shared else stage.kind if stage.role == "attention" else stage.role
    return words(f"solves.{key}", hidden=f"{flow.hidden:,}", vocabulary=f"{flow.vocabulary:,}", window=f"{result.window:,}",
                 copies=experts.copies if experts else "", used=experts.used if experts else "")  # fmt: skip


def show_binary(value: float) -> str:
    """"64 KiB", "1.51 MiB", as caches are laid out in powers of two."""
    for name, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:,.3g} {name}" if value < 1000 * factor else f"{value / factor:,.0f} {name}"
    return f"{value:,.0f} B"


def kept(stage: Stage, lang: str) -> str:
    """What a stage leaves in memory; a state in powers of ten, as everywhere in this course."""
    return amount(stage.kept_bytes, "B", lang) if stage.role == "recurrent" or not stage.kept_bytes else show_binary(stage.kept_bytes)


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    return View(
        picture=Picture(_picture(result, scene), height=430, picks=("stage",)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene.words, scene.lang),
        rows=_rows(result),
        papers=_papers(result),
        beside=(Html(_panel(result, scene)),),
        simplified=_simplified(result, scene),
    )


def _picture(result: Result, scene: Scene) -> dict[str, Any]:
    words, lang, flow = scene.words, scene.lang, result.flow
    stages = [
        {
            "id": s.role, "name": name_of(s, words), "tone": TONES.get(s.role, "weights" if s.parameters else ""), "share": s.parameters / flow.parameters,
            "parameters": _count(s.parameters, lang) if s.parameters else "", "percent": amount(s.parameters / flow.parameters, "ratio", lang), "layers": s.layers,
            "inside": s.role in pipeline.IN_LAYERS, "shared": s.shared, "out": gives(s, words).replace(",", ""), "times": words("pair", n=s.layers) if s.role in pipeline.IN_LAYERS else "",
        }
        for s in flow.stages
    ]  # fmt: skip
    return {"stages": stages, "chosen": result.chosen.role, "pattern": list(flow.pattern), "dense": flow.dense, "total": _count(flow.parameters, lang),
            "kinds": _pattern_says(result, words), "says": _sentence(result, words, lang)}  # fmt: skip


def _count(parameters: float, lang: str) -> str:
    return amount(parameters, "parameter", lang) if parameters >= 1e6 else f"{parameters:,}"


def _pattern_says(result: Result, words: Words) -> str:
    """"48 GDN, 16 GQA attention" """
    names = {s.role: name_of(s, words) for s in result.flow.stages}
    return words("says.and").join(words("says.of_pattern", count=n, name=names[role]) for role, n in Counter(result.flow.pattern).items())


def _per_token(stage: Stage, flow: Pipeline) -> float:
    return stage.flops / (flow.batch * flow.tokens)


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, s, flow = scene.words, scene.lang, result.chosen, result.flow
    then = scene.before
    was = then.chosen if then is not None and then.chosen.role == s.role and then.params != result.params else None

    def change(text: str, before: str) -> str:
        return words("before", value=before) if was is not None and before != text else ""

    found = [Readout(words("readout.gives"), f"{prod(s.gives):,}", "", change(f"{prod(s.gives):,}", f"{prod(was.gives):,}" if was else ""), gives(s, words))]
    if s.parameters:
        used = words("note.used", n=_count(s.per_token, lang)) if s.role == "experts" else ""
        found.append(Readout(words("readout.parameters"), _count(s.parameters, lang), "", change(_count(s.parameters, lang), _count(was.parameters, lang) if was else ""),
                             words("says.and").join(filter(None, (words("note.share", share=amount(s.parameters / flow.parameters, "ratio", lang)), used)))))  # fmt: skip
        read = "" if s.role in ("vectors", "norm") else words("note.read", bytes=amount(s.read_bytes, "B", lang))
        found.append(Readout(words("readout.bytes"), *short(s.bytes, "B", lang), change(amount(s.bytes, "B", lang), amount(was.bytes, "B", lang) if was else ""), read))
    else:
        found.append(Readout(words("readout.parameters"), "0", "", "", words("note.lookup") if s.shared else words("none")))
    flops = _per_token(s, flow)
    found.append(Readout(words("readout.flops"), *(short(flops, "FLOP", lang) if flops else ("0", "FLOP")), "", words("note.lookup") if s.role == "embedding" and not s.shared else ""))
    note = words("note.nothing") if not s.kept_bytes else words("note.state") if s.role == "recurrent" else words("note.cache", bytes=show_binary(s.kept_bytes / (flow.batch * flow.tokens)))
    value, _, unit = kept(s, lang).partition(" ")
    found.append(Readout(words("readout.kept"), value, unit or "B", change(kept(s, lang), kept(was, lang) if was else ""), note))
    return tuple(found)


def _sentence(result: Result, words: Words, lang: str) -> str:
    s, flow = result.chosen, result.flow
    said = words("says.stage", model=flow.name, name=name_of(s, words), takes=takes(s, words), gives=gives(s, words))
    if s.role in pipeline.IN_LAYERS:
        said += words("says.layers", n=s.layers)
    key = "shared" if s.shared else "none" if not s.parameters else "parameters" if s.flops else "held"
    said += words(f"says.{key}", parameters=_count(s.parameters, lang), total=_count(flow.parameters, lang), share=amount(s.parameters / flow.parameters, "ratio", lang),
                  bytes=amount(s.bytes, "B", lang), flops=amount(_per_token(s, flow), "FLOP", lang))  # fmt: skip
    return said + (words("says.kept", bytes=kept(s, lang)) if s.kept_bytes else "")


def _simplified(result: Result, scene: Scene) -> str:
    beside = result.flow.beside
    return scene.words("simplified.bytes") + (scene.words("simplified.beside", beside=_count(beside, scene.lang)) if beside else "")


def _panel(result: Result, scene: Scene) -> str:
    """What the chosen stage is there for, its matrices, and the way to its lesson."""
    words, s, e = scene.words, result.chosen, html.escape
    number = 'style="border:0;border-top:1px solid var(--lab-hairline);padding:5px 0 5px 14px;text-align:right;font-family:var(--lab-figures);font-variant-numeric:tabular-nums;white-space:nowrap"'
    first = 'style="border:0;border-top:1px solid var(--lab-hairline);padding:5px 0;white-space:nowrap"'
    rows = [(m.name, m.parameters, m.layers, m.copies, m.loaded) for m in s.matrices]
    if rest := s.parameters - sum(r[4] for r in rows):
        rows.append((words("panel.table") if s.role == "embedding" else words("panel.vectors"), None, s.layers, 1, rest))
    table = ""
    if rows:
        heads = "".join(f'<th style="border:0;padding:2px 0 4px {"0" if n == 0 else "14px"};text-align:{"left" if n == 0 else "right"};font-weight:500;color:var(--lab-muted)">{e(words(f"panel.{key}"))}</th>'
                        for n, key in enumerate(("matrix", "each", "layers", "copies", "all")))  # fmt: skip
        body = "".join(f'<tr><td {first}>{e(name)}</td><td {number}>{"" if each is None else f"{each:,}"}</td><td {number}>{layers:,}</td><td {number}>{copies:,}</td><td {number}>{all_:,}</td></tr>'
                       for name, each, layers, copies, all_ in rows)  # fmt: skip
        table = f'<div class="lab-scroll" tabindex="0" role="group" aria-label="{e(words("panel.matrix"))}"><table style="border-collapse:collapse;font-size:.875rem;margin:8px 0 0"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    lesson = lesson_of(s)
    link = f'<a href="/{lesson}?lang={scene.lang}" target="_self" style="color:var(--lab-accent)">{e(words(f"lesson.{lesson}"))}</a>'
    shape = f'<p style="margin:0;font-family:var(--lab-figures);font-size:.9375rem;overflow-wrap:anywhere"><span style="font-family:var(--lab-sans);color:var(--lab-muted)">{e(words("panel.shape"))}</span>&ensp;{e(takes(s, words))} → {e(gives(s, words))}</p>'
    return (
        f'<div style="border-left:3px solid var(--lab-ink);padding:2px 0 2px 14px"><h4 style="font-size:1.125rem;margin:0 0 4px;padding:0">{e(name_of(s, words))}</h4>{shape}'
        f'<p style="margin:8px 0 0;max-width:var(--lab-prose);line-height:var(--lab-line)">{e(solves(result, words))}</p>{table}'
        f'<p style="margin:8px 0 0;font-size:.9375rem"><span style="color:var(--lab-muted)">{e(words("lesson.more"))}</span>{link}</p></div>'
    )


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    flow = result.flow
    return tuple(
        {
            "model": flow.model, "batch": flow.batch, "tokens": flow.tokens, "stage": s.role, "kind": s.kind, "layers": s.layers, "takes": dims(s.takes), "gives": dims(s.gives),
            "parameters": s.parameters, "parameters_per_token": s.per_token, "weight_bytes": s.bytes, "read_bytes": s.read_bytes, "flops": s.flops, "kept_bytes": s.kept_bytes,
        }
        for s in flow.stages
    )  # fmt: skip


SAYS = {
    "parameters": {"zh": "这个环节的参数", "en": "parameters of the stage"},
    "total": {"zh": "文字部分的全部参数", "en": "all parameters of the text model"},
    "flops": {"zh": "每个 token 的运算", "en": "arithmetic for one token"},
    "kept": {"zh": "这一趟过后留在内存里的", "en": "left in memory by this forward"},
}


def _papers(result: Result) -> tuple[Quantity, ...]:
    s, flow = result.chosen, result.flow
    source = facts.model(result.params.model).source
    each = {m.name: f"{m.parameters} × {m.layers}" + (f" × {m.copies}" if m.copies > 1 else "") for m in s.matrices}
    found = [
        Quantity(s.parameters, "parameter", "computed", "Σ rows × columns × layers × copies, and what is in no matrix", {"stage": s.role, **each}, source, says=SAYS["parameters"]),
        Quantity(flow.parameters, "parameter", "computed", "Σ over the stages", {stage.role: stage.parameters for stage in flow.stages if stage.parameters}, source, says=SAYS["total"]),
        Quantity(_per_token(s, flow), "FLOP", "computed", "2 × parameters used + attention over n/2 earlier tokens", {"n": flow.tokens, "parameters_used": s.per_token}, says=SAYS["flops"]),
    ]  # fmt: skip
    if s.kept_bytes:
        formula = "batch × layers × value heads × key dim × value dim × 4 B" if s.role == "recurrent" else "batch × tokens × values per token × layers × 2 B"
        found.append(Quantity(s.kept_bytes, "B", "computed", formula, {"batch": flow.batch, "tokens": flow.tokens, "layers": s.layers}, source, says=SAYS["kept"]))
    return tuple(found)


# ---- guess


def _group(role: str) -> str:
    return "mixing" if role in MIXING else "feed_forward" if role in ("feed_forward", "experts") else "lm_head" if role == "lm_head" else "embedding"


def _shares(result: Result) -> dict[str, int]:
    """Parameters of the four parts that the guess is about; what is in no matrix belongs to none."""
    found: Counter[str] = Counter()
    for s in result.flow.stages:
        if s.role not in ("vectors", "norm"):
            found[_group(s.role)] += s.parameters
    return found


def _truth(result: Result) -> Quantity:
    shares = _shares(result)
    return Quantity(max(shares.values()) / result.flow.parameters, "ratio", "computed", "parameters of the largest part / all", dict(shares), facts.model(result.params.model).source)


def _right(result: Result) -> str:
    shares = _shares(result)
    return max(shares, key=shares.get)


def models() -> tuple[str, ...]:
    return tuple(id for id, shape in facts.models().items() if shape.config)


WIDGET = Widget(
    id="pipeline-map",
    Params=Params,
    controls=(
        Choice("stage", lambda: ROLES),
        Choice("model", models, lambda id: facts.model(id).name),
        Stops("batch", BATCHES),
        Stops("tokens", TOKENS),
    ),
    run=run,
    draw=draw,
    guesses={"largest": Guess(truth=_truth, choices=("embedding", "mixing", "feed_forward", "lm_head"), right=_right)},
)
