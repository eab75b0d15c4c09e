"""How decoding became fast: what each step solved, and the number that forced the next. Every number by name."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Literal

from components import Html, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice
from components.text import Words, quantity
from compute import numbers
from compute.quantity import Quantity

NodeId = Literal["recompute", "cache", "batching", "continuous", "paged", "speculative", "mtp", "quantization", "slo", "truncation", "architecture"]
IDS: tuple[NodeId, ...] = NodeId.__args__
Names = dict[str, tuple[str, str]]  # a word of text.toml → the number's name, and the unit it is shown in


@dataclass(frozen=True)
class Node:
    """solved, stuck: the numbers of its two texts; the first of each is the one that stands alone. of: what a side branch belongs to."""

    id: NodeId
    lesson: str
    solved: Names
    stuck: Names
    of: NodeId | None = None


NODES: tuple[Node, ...] = (
    Node("recompute", "roofline", {}, {"without": ("=kv.without_cache", "")}),
    Node("cache", "roofline", {"with": ("=kv.with_cache", ""), "kv": ("=anchor.kv_per_token", "KiB")},
         {"bound": ("=anchor.decode_bound", "token/s"), "weights": ("=anchor.weight_bytes", "GB 4"), "share": ("=anchor.compute_share", "% 2")}),
    Node("batching", "batching", {"times": ("=anchor.batch58.more_tokens", ""), "n": ("=anchor.requests_4k", "")},
         {"static": ("~batching.static.utilisation", "%"), "count": ("~batching.requests.count", "")}),
    Node("continuous", "batching", {"after": ("~batching.continuous.steps", ""), "before": ("~batching.static.steps", ""), "share": ("~batching.continuous.utilisation", "%"),
                                    "count": ("~batching.requests.count", ""), "orca": ("orca.throughput", "")},
         {"one": ("=anchor.requests_reserving_maximum", ""), "used": ("vllm.kv_used_before", "%")}),
    Node("paged", "batching", {"paged": ("vllm.kv_used_paged", "%"), "fits": ("=anchor.requests_4k", "")}, {"share": ("=anchor.batch1.compute_share", "%")}),
    Node("speculative", "speculative", {"tokens": ("~drafting.mini-64.k4.t1.tokens_per_forward", ""), "alpha": ("~drafting.mini-64.k4.t1.acceptance", "%"),
                                        "same": ("=speculative.greedy.same", ""), "texts": ("=speculative.greedy.texts", "")},
         {"speedup": ("~drafting.mini-64.k4.t1.speedup", "× 2")}),
    Node("mtp", "speculative", {"tokens": ("~drafting.mtp.k4.t1.tokens_per_forward", ""), "acceptance": ("deepseek_v3.mtp_acceptance", "% 2"), "speed": ("deepseek_v3.mtp_speed", "× 2")},
         {"weights": ("=anchor.weight_bytes", "GB 4")}),
    Node("quantization", "quantization", {"bound": ("=anchor.int4.decode_bound", "token/s"), "bytes": ("=anchor.int4.bytes", "GB"), "loss": ("~quantize.mini-256.gptq-int4-g64.loss_change", ""),
                                          "floor": ("~quantize.noise_floor", "")},
         {"s58": ("=anchor.batch58.step_seconds", "ms"), "s1": ("=anchor.batch1.step_seconds", "ms"), "r1": ("=anchor.batch1.tokens_per_second", "token/s"),
          "r58": ("=anchor.batch58.tokens_per_second", "token/s 4"), "n": ("=anchor.requests_4k", ""), "long": ("=anchor.prefill_32k.seconds", "s")}),
    Node("slo", "serving", {"batch": ("=serving.target.batch", ""), "target": ("=serving.target.tpot", "ms 2"), "distserve": ("distserve.requests", "× 2")},
         {"loss": ("~quantize.smollm2-135m.int4-g64.loss_change", "")}),
    Node("truncation", "sampling", {"minp": ("=sampling.poem.t1_3.min_p", ""), "topp": ("=sampling.poem.t1_3.top_p", ""), "greedy": ("~sampling.t0.repetition4", "%")},
         {"rm": ("~sampling.t1_3.minp0_1.repetition4", "% 2"), "rp": ("~sampling.t1_3.p0_9.repetition4", "% 2")}, "recompute"),
    Node("architecture", "architecture", {"gqa": ("=anchor.kv_per_token", "KiB"), "mha": ("=anchor.kv_as_mha", "KiB"), "mla": ("=deepseek-v3.kv_per_token", "KiB"), "layers": ("deepseek-v3.num_hidden_layers", "")},
         {"state": ("=anchor.state_bytes", "MB"), "blocks": ("=batching.state_in_blocks", "")}, "cache"),
)  # fmt: skip
CHAIN = tuple(node.id for node in NODES if node.of is None)
STORY = {"prompt": 4, "new": 1000}  # the setting of kv.with_cache and kv.without_cache


@parameters
class Params:
    node: NodeId = "recompute"


@dataclass(frozen=True)
class Result:
    params: Params

    @property
    def chosen(self) -> Node:
        return node_of(self.params.node)


def node_of(id: str) -> Node:
    return next(node for node in NODES if node.id == id)


def run(params: Params, answer: None = None) -> Result:
    return Result(params)


# ---- words


def _values(node: Node, lang: str) -> dict[str, str]:
    shown = {word: quantity(numbers.resolve(name), unit, lang) for word, (name, unit) in (node.solved | node.stuck).items()}
    return {**{k: f"{v:,}" for k, v in STORY.items()}, **shown}


def _text(kind: str, node: Node, words: Words) -> str:
    return words(f"{kind}.{node.id}", **_values(node, words.lang))


def _name(node: Node, words: Words) -> str:
    return words(f"option.node.{node.id}")


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, node = scene.words, result.chosen
    sentence = words("says.all", name=_name(node, words), solved=_text("solved", node, words), stuck=_text("stuck", node, words))
    return View(
        picture=Stage(_picture(result, words, sentence), height=560, picks=("node",)),
        readouts=_readouts(node, words),
        sentence=sentence,
        rows=_rows(),
        papers=_papers(node),
        beside=(Html(_panel(node, words)),),
        simplified=words("simplified.all"),
    )


def _picture(result: Result, words: Words, sentence: str) -> dict[str, Any]:
    nodes = [
        {"id": node.id, "name": _name(node, words), "of": node.of, "place": 0 if node.of else CHAIN.index(node.id) + 1, "solved": _text("card.solved", node, words), "stuck": _text("card.stuck", node, words)}
        for node in NODES
    ]
    return {"nodes": nodes, "chosen": result.params.node, "says": sentence}


def _readouts(node: Node, words: Words) -> tuple[Readout, ...]:
    def first(names: Names) -> tuple[str, str]:
        name, unit = next(iter(names.values()))
        value, _, unit = quantity(numbers.resolve(name), unit, words.lang).partition(" ")
        return value, unit

    solved = first(node.solved) if node.solved else ("0", "B")  # it keeps nothing
    place = Readout(words("readout.place"), words("place.main", n=CHAIN.index(node.id) + 1, all=len(CHAIN))) if node.of is None else Readout(words("readout.branch"), words("place.branch", n=CHAIN.index(node.of) + 1), "", "", _name(node_of(node.of), words))
    return (
        Readout(words("readout.solved"), *solved, "", _text("card.solved", node, words)),
        Readout(words("readout.stuck"), *first(node.stuck), "", _text("card.stuck", node, words)),
        place,
    )


def _panel(node: Node, words: Words) -> str:
    """Both texts in full, the way to the lesson, and what comes next."""
    e = html.escape
    line = "margin:0 0 8px;max-width:var(--lab-prose);line-height:var(--lab-line)"
    link = f'<a href="/{node.lesson}?lang={words.lang}" target="_self" style="color:var(--lab-accent)">{e(words(f"lesson.{node.lesson}"))}</a>'
    after = ""
    if node.of:
        after = words("panel.branch") + _name(node_of(node.of), words)
    elif node.id != CHAIN[-1]:
        after = words("panel.next") + _name(node_of(CHAIN[CHAIN.index(node.id) + 1]), words)
    return (
        f'<h4 style="font-size:1.125rem;margin:0 0 6px;padding:0">{e(_name(node, words))}</h4>'
        f'<p style="{line}"><b style="color:var(--lab-accepted)">✓ {e(words("panel.solved"))}</b>&ensp;{e(_text("solved", node, words))}</p>'
        f'<p style="{line}"><b style="color:var(--lab-rejected)">✕ {e(words("panel.stuck"))}</b>&ensp;{e(_text("stuck", node, words))}</p>'
        f'<p style="margin:0;font-size:.9375rem"><span style="color:var(--lab-muted)">{e(words("panel.lesson"))}</span>{link}{"&emsp;" + e(after) if after else ""}</p>'
    )


def _rows() -> tuple[dict[str, Any], ...]:
    """A row for each number of each step; a published range has two ends."""
    found = []
    for node in NODES:
        for role, names in (("solved", node.solved), ("stuck", node.stuck)):
            for name, _ in names.values():
                q = numbers.resolve(name)
                low, high = q.value if isinstance(q.value, (tuple, list)) else (q.value, q.value)
                found.append({"step": node.id, "branch_of": node.of, "lesson": node.lesson, "role": role, "number": name, "low": low, "high": high, "unit": q.unit, "kind": q.kind})
    return tuple(found)


def _papers(node: Node) -> tuple[Quantity, ...]:
    return tuple(numbers.resolve(name) for name in dict.fromkeys(name for name, _ in (node.solved | node.stuck).values()))


WIDGET = Widget(id="evolution-map", Params=Params, controls=(Choice("node", lambda: IDS),), run=run, draw=draw)
