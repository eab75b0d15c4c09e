"""One request's round through a server, step by step: what each step takes on the anchor, and the side roads."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Literal

from components import Guess, Html, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Stops
from components.pipeline_map import show_binary
from components.text import Words, amount, short
from compute import facts, numbers, request_loop, tokenization
from compute.quantity import Quantity
from compute.request_loop import BLOCK, GUESSES, Example, Loop, New, Prefix, Round
from compute.roofline import Batch

Side = Literal["none", "prefix", "draft", "quantized", "preempted"]
SIDES: tuple[Side, ...] = Side.__args__
NEW, PREFIXES, BATCHES = (2, 16, 100, 256, 1000, 4096), (0, 100, 1000, 4096, 16_384, 32_768), (1, 2, 4, 8, 16, 32, 58)
BEGINNING = ("tokenize", "queue", "blocks", "prefill", "sample", "append", "stop")
CIRCLE = ("weights", "cache", "logits", "sample", "append", "stop")
TONES = {"tokenize": "bound", "queue": "bound", "blocks": "kv", "prefill": "prefill", "weights": "weights", "cache": "kv", "logits": "compute", "sample": "target", "append": "decode",
         "stop": "decode", "leave": "bound", "prefix": "kv", "draft": "draft", "quantized": "weights", "preempted": "rejected"}  # fmt: skip
LESSONS = {"tokenize": "serving", "queue": "batching", "blocks": "batching", "prefill": "roofline", "weights": "roofline", "cache": "roofline", "logits": "roofline", "sample": "sampling",
           "append": "batching", "stop": "batching", "leave": "serving", "prefix": "batching", "draft": "speculative", "quantized": "quantization", "preempted": "batching"}  # fmt: skip


@parameters
class Params:
    """side: the side road that is open. The place on the round is the player's step."""

    example: Example = "giving"
    new: New = 1000
    prefix: Prefix = 0
    batch: Batch = 1
    side: Side = "none"


@dataclass(frozen=True)
class Moment:
    """cell: where the request is. turn: its turn of the circle; None on the way in. written: tokens of the answer so far."""

    cell: str
    turn: Round | None
    written: int


@dataclass(frozen=True)
class Result:
    params: Params
    loop: Loop
    moments: tuple[Moment, ...]


def run(params: Params, answer: None = None) -> Result:
    loop = request_loop.loop(params.example, params.new, params.prefix, params.batch)
    moments = [Moment(cell, None, int(cell in ("append", "stop"))) for cell in BEGINNING]
    for turn in loop.rounds:
        moments += [Moment(cell, turn, turn.writes - (cell not in ("append", "stop"))) for cell in CIRCLE]
    return Result(params, loop, (*moments, Moment("leave", loop.rounds[-1], params.new)))


# ---- words


def _clock(loop: Loop, moment: Moment) -> float:
    """Seconds since reading began, when the step is over."""
    if moment.turn is None:
        return loop.prefill.seconds if moment.cell not in ("tokenize", "queue", "blocks") else 0.0
    done = moment.cell not in ("weights", "cache")
    return moment.turn.clock if done else moment.turn.clock - moment.turn.step.step_seconds


def _kept(loop: Loop, moment: Moment) -> int:
    """Tokens whose KV is in memory."""
    return loop.prompt if moment.turn is None else moment.turn.context


def _cache_bytes(loop: Loop, turn: Round) -> float:
    return loop.batch * (turn.kv_bytes + 2 * loop.state_bytes)


def _says(loop: Loop, moment: Moment, scene: Scene) -> str:
    """What the cell says, in a sentence or two."""
    words, lang, cell, turn = scene.words, scene.lang, moment.cell, moment.turn
    bandwidth = facts.chip(loop.chip).bandwidth_bytes_per_s

    def show(value: float, unit: str) -> str:
        return amount(value, unit, lang)

    seconds = show(_clock(loop, moment), "s")
    values: dict[str, Any] = {"vocabulary": f"{loop.vocabulary:,}", "prompt": f"{loop.prompt:,}", "batch": f"{loop.batch:,}", "new": f"{loop.new:,}", "clock": seconds, "k": f"{moment.written:,}"}
    match cell:
        case "tokenize":
            comma, quoted = ("、", "“{}”") if lang == "zh" else (", ", "“{}”")
            pieces = comma.join(quoted.format(t.piece.replace(" ", "␣")) for t in loop.tokens)
            said = words("says.tokenize", text=loop.text, n=len(loop.tokens), pieces=pieces, ids=comma.join(str(t.id) for t in loop.tokens))
            return said + (words("says.before", prefix=f"{loop.prefix:,}", prompt=f"{loop.prompt:,}") if loop.prefix else "")
        case "queue":
            return words("says.queue", last=f"{loop.prompt + loop.new - 1:,}", fits=f"{loop.fits:,}", **values)
        case "blocks":
            return words("says.blocks", blocks=_blocks(loop.blocks, words), block=BLOCK, bytes=show_binary(BLOCK * loop.kv_per_token), state=show(loop.state_bytes, "B"), **values)
        case "prefill":
            return words("says.prefill", bytes=show(loop.prefill.bytes, "B"), flops=show(loop.prefill.flops, "FLOP"), seconds=show(loop.prefill.seconds, "s"), bound=words(f"says.{loop.prefill.bound}"), **values)
        case "sample":
            return words("says.sample_first", piece=loop.answer.piece.strip(), id=loop.answer.id, **values) if turn is None else words("says.sample", **values | {"k": f"{turn.writes:,}"})
        case "append":
            kept = _kept(loop, moment)
            last = moment.written == loop.new
            full = request_loop.blocks_for(kept + 1) > request_loop.blocks_for(kept)
            said = words("says.append_last" if last else "says.append", each=show_binary(loop.kv_per_token), **values)
            return said + words("says.kept" if last else "says.opens" if full else "says.room", blocks=_blocks(request_loop.blocks_for(kept), words))
        case "stop":
            return words("says.stop_last" if moment.written == loop.new else "says.stop", **values)
        case "weights":
            shared = words("says.alone") if loop.batch == 1 else words("says.shared", batch=loop.batch)
            return words("says.weights", bytes=show(loop.weight_bytes, "B"), seconds=show(loop.weight_bytes / bandwidth, "s"), shared=shared, **values | {"k": f"{turn.writes:,}"})
        case "cache":
            bytes_ = _cache_bytes(loop, turn)
            all_ = words("says.cache_one" if loop.batch == 1 else "says.cache_all", batch=loop.batch, bytes=show(bytes_, "B"), seconds=show(bytes_ / bandwidth, "s"))
            return words("says.cache", context=f"{turn.context:,}", kv=show_binary(turn.kv_bytes), state=show(loop.state_bytes, "B"), all=all_)
        case "logits":
            step = turn.step
            return words("says.logits", head=show(loop.head_bytes, "B"), flops=show(step.flops_per_step, "FLOP"), compute=show(step.compute_seconds, "s"), memory=show(step.memory_seconds, "s"), step=show(step.step_seconds, "s"), **values)
    return words("says.leave", blocks=_blocks(turn.blocks, words), seconds=show(loop.seconds, "s"), share=_share(loop))


def _share(loop: Loop) -> str:
    """Decode's part of the time, rounded so that 99.96 % does not become all of it."""
    rest = 1 - loop.decode_share
    return f"{100 * loop.decode_share:.2f}%" if rest < 0.005 else f"{100 * loop.decode_share:.1f}%"


def _blocks(count: int, words: Words) -> str:
    """"1 block", "63 blocks" """
    return words("block.one") if count == 1 else words("block.many", n=f"{count:,}")


def _road(result: Result, scene: Scene, side: str) -> str:
    """What a side road would do for this request."""
    words, lang, loop = scene.words, scene.lang, result.loop
    step = loop.rounds[0].step

    def named(name: str) -> str:
        q = numbers.resolve(name)
        return amount(q.value, q.unit, lang)

    match side:
        case "prefix":
            if not loop.reuse.blocks:
                return words("road.prefix_none", prompt=f"{loop.prompt:,}", block=BLOCK)
            return words("road.prefix", blocks=_blocks(loop.reuse.blocks, words), tokens=f"{loop.reuse.tokens:,}", seconds=amount(loop.reuse.seconds, "s", lang))
        case "draft":
            low, high = (f"{numbers.resolve(f'=speculative.deepseek_v3.{end}').value:.2f}" for end in ("least", "most"))
            return words("road.draft", k=GUESSES, check=amount((GUESSES + 1) * step.compute_seconds, "s", lang), memory=amount(step.memory_seconds, "s", lang), low=low, high=high)
        case "quantized":
            return words("road.quantized", bytes=named("=anchor.int4.bytes"), before=named("=anchor.weight_bytes"), slow=named("=anchor.decode_bound"), fast=named("=anchor.int4.decode_bound"))
    last = loop.rounds[-1]
    return words("road.preempted", blocks=_blocks(last.blocks, words), tokens=f"{last.context:,}", seconds=amount(loop.again_seconds, "s", lang), bytes=amount(loop.swap_bytes, "B", lang))


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    moment = result.moments[min(scene.t or 0, len(result.moments) - 1)]
    said, side = _says(result.loop, moment, scene), result.params.side
    gap = "" if scene.lang == "zh" else " "
    return View(
        picture=Stage(_picture(result, scene), steps=len(result.moments), height=560, picks=("side",)),
        readouts=_readouts(result, scene),
        sentence=said + (gap + _road(result, scene, side) if side != "none" else ""),
        rows=_rows(result),
        papers=_papers(result, moment),
        beside=(Html(_panel(result, moment, scene)),),
        simplified=scene.words("simplified.all"),
    )


def _picture(result: Result, scene: Scene) -> dict[str, Any]:
    words, lang, loop = scene.words, scene.lang, result.loop
    figures = {
        "tokenize": words("figure.tokenize", n=len(loop.tokens)), "queue": words("figure.queue", fits=f"{loop.fits:,}"),
        "blocks": words("figure.blocks", blocks=_blocks(loop.blocks, words), state=amount(loop.state_bytes, "B", lang)), "prefill": words("figure.prefill", seconds=amount(loop.prefill.seconds, "s", lang)),
        "leave": words("figure.leave", seconds=amount(loop.seconds, "s", lang)),
    }  # fmt: skip
    moments = [
        {
            "cell": m.cell, "written": m.written, "clock": amount(_clock(loop, m), "s", lang), "says": _says(loop, m, scene), "figures": _turn_figures(loop, m, scene),
            "label": words("view.label", name=words(f"cell.{m.cell}")) if m.turn is None or m.cell == "leave" else words("view.label_k", k=f"{m.turn.writes:,}", name=words(f"cell.{m.cell}")),
            "turn": loop.rounds.index(m.turn) + 1 if m.turn else 0,
        }
        for m in result.moments
    ]  # fmt: skip
    later = [f"{turn.writes:,}" for turn in loop.rounds]
    return {
        "cells": {cell: {"name": words(f"cell.{cell}"), "tone": TONES[cell], "figure": figures.get(cell, "")} for cell in (*BEGINNING, *CIRCLE, "leave")},
        "roads": [{"id": side, "name": words(f"side.{side}"), "tone": TONES[side]} for side in SIDES[1:]],
        "side": result.params.side, "road": _road(result, scene, result.params.side) if result.params.side != "none" else "",
        "tokens": [[t.piece.replace(" ", "␣"), str(t.id)] for t in loop.tokens], "answer": [loop.answer.piece.replace(" ", "␣"), str(loop.answer.id)],
        "later": later, "skips": loop.new > 4, "prefix": f"{loop.prefix:,}" if loop.prefix else "", "new": f"{loop.new:,}", "writes": [1, *(turn.writes for turn in loop.rounds)], "moments": moments,
    }  # fmt: skip


def _turn_figures(loop: Loop, moment: Moment, scene: Scene) -> dict[str, str]:
    """The figures that stand on the cells of the circle in this turn; on the way in those of the first."""
    words, lang = scene.words, scene.lang
    turn = moment.turn or loop.rounds[0]
    k = f"{turn.writes if moment.turn else 1:,}"
    clock = amount(turn.clock if moment.turn else loop.prefill.seconds, "s", lang)
    return {
        "weights": words("figure.weights", bytes=amount(loop.weight_bytes, "B", lang)), "cache": words("figure.cache", bytes=amount(_cache_bytes(loop, turn), "B", lang)),
        "logits": words("figure.logits", vocabulary=f"{loop.vocabulary:,}"), "sample": words("figure.sample", clock=clock), "append": words("figure.append", k=k),
        "stop": words("figure.stop", k=k, new=f"{loop.new:,}"),
    }  # fmt: skip


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, loop = scene.words, scene.lang, result.loop
    first, last = loop.rounds[0].step.step_seconds, loop.rounds[-1].step.step_seconds
    mean = loop.decode_seconds / (loop.new - 1)
    return (
        Readout(words("readout.first"), *short(loop.prefill.seconds, "s", lang), "", words("note.first", prompt=f"{loop.prompt:,}")),
        Readout(words("readout.each"), *short(mean, "s", lang), "", words("note.each", first=amount(first, "s", lang, 4), last=amount(last, "s", lang, 4))),
        Readout(words("readout.all"), *short(loop.seconds, "s", lang), "", words("note.all", new=f"{loop.new:,}")),
        Readout(words("readout.share"), _share(loop), "", "", words("note.share", steps=f"{loop.new - 1:,}")),
        Readout(words("readout.kept"), *short(loop.swap_bytes, "B", lang), "", words("note.kept", blocks=_blocks(loop.rounds[-1].blocks, words), tokens=f"{loop.rounds[-1].context:,}")),
    )


def _panel(result: Result, moment: Moment, scene: Scene) -> str:
    """The ways to the lessons of the cell and of the open side road, and what the road would do."""
    words, e, side = scene.words, html.escape, result.params.side

    def link(id: str) -> str:
        lesson = LESSONS[id]
        return f'<a href="/{lesson}?lang={scene.lang}" target="_self" style="color:var(--lab-accent)">{e(words(f"lesson.{lesson}"))}</a>'

    def way(name: str, id: str) -> str:
        return f'<p style="margin:0 0 6px;font-size:.9375rem"><b>{e(name)}</b>&ensp;<span style="color:var(--lab-muted)">{e(words("road.more"))}</span>{link(id)}</p>'

    body = way(words(f"cell.{moment.cell}"), moment.cell)
    if side != "none":
        body += (
            f'<div style="border-left:3px dashed var(--lab-{TONES[side]});padding:2px 0 2px 14px;margin-top:8px"><p style="margin:0 0 6px;max-width:var(--lab-prose);line-height:var(--lab-line)">{e(_road(result, scene, side))}</p>'
            f"{way(words(f'side.{side}'), side)}</div>"
        )
    return body


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    loop = result.loop
    return tuple(
        {
            "step": n, "cell": m.cell, "answer_tokens": m.written, "clock_seconds": _clock(loop, m), "kept_tokens": 0 if m.cell in ("tokenize", "queue") else _kept(loop, m),
            "blocks": 0 if m.cell in ("tokenize", "queue") else request_loop.blocks_for(_kept(loop, m)), "weight_bytes": loop.weight_bytes if m.turn and m.cell == "weights" else 0,
            "cache_bytes": _cache_bytes(loop, m.turn) if m.turn and m.cell == "cache" else 0, "batch": loop.batch, "prompt_tokens": loop.prompt, "new_tokens": loop.new,
        }
        for n, m in enumerate(result.moments)
    )  # fmt: skip


# ---- papers


def _papers(result: Result, moment: Moment) -> tuple[Quantity, ...]:
    """Of the cell, of the open side road, and of the whole request."""
    loop, chip, shape = result.loop, facts.chip(result.loop.chip), facts.model(result.loop.model)
    turn, bandwidth = moment.turn, {"bandwidth": chip.bandwidth_bytes_per_s}

    def q(value, unit, formula, zh, en, source=None, **inputs) -> Quantity:
        return Quantity(value, unit, "computed", formula, inputs, source, says={"zh": zh, "en": en})

    found: list[Quantity] = []
    match moment.cell:
        case "tokenize":
            found.append(q(len(loop.tokens), "token", "text cut by the vocabulary of the anchor", "例句的 token", "tokens of the example", tokenization.known()[request_loop.TOKENIZER].source, ids=", ".join(str(t.id) for t in loop.tokens)))
        case "queue":
            found.append(q(loop.fits, "request", "⌊(memory − all weights) / (tokens × KV + state)⌋", "放得下的请求", "requests that fit", free=loop.free_bytes, tokens=loop.prompt + loop.new - 1))
        case "blocks":
            found += [q(loop.blocks, "count", "⌈tokens / tokens per block⌉", "分到的块", "blocks handed out", tokens=loop.prompt, block=BLOCK), numbers.resolve("vllm.default_block"), numbers.resolve("=batching.block.bytes"), numbers.resolve("=anchor.state_bytes")]
        case "weights":
            found += [numbers.resolve("=anchor.weight_bytes"), numbers.resolve("=anchor.read_seconds")]
        case "cache":
            found += [q(_cache_bytes(loop, turn), "B", "batch × (context × KV per token + 2 × state)", "这一步读写的 KV 和状态", "KV and state read and written by the step", batch=loop.batch, context=turn.context), numbers.resolve("=anchor.kv_per_token")]
        case "logits":
            found += [q(turn.step.step_seconds, "s", "max(bytes / bandwidth, FLOPs / peak)", "这一步的时间", "time of the step", bytes=turn.step.bytes_per_step, flops=turn.step.flops_per_step, peak=chip.peak, **bandwidth),
                      q(loop.head_bytes, "B", "hidden × vocabulary × 2 B", "lm_head 的字节", "bytes of lm_head", shape.source)]  # fmt: skip
        case "append":
            found.append(numbers.resolve("=anchor.kv_per_token"))
        case "sample":
            found.append(Quantity(loop.vocabulary, "count", "quoted", source=shape.source, says={"zh": "词表的项数", "en": "entries of the vocabulary"}))
    match result.params.side:
        case "prefix":
            found.append(q(loop.reuse.seconds, "s", "prefill(prompt) − prefill(what is not in full blocks)", "前缀缓存省下的时间", "time that the prefix cache saves", prompt=loop.prompt, cached=loop.reuse.tokens))
        case "draft":
            found += [numbers.resolve(name) for name in ("=speculative.deepseek_v3.least", "=speculative.deepseek_v3.most", "deepseek_v3.mtp_acceptance")]
            found.append(q((GUESSES + 1) * loop.rounds[0].step.compute_seconds, "s", "(k + 1) × FLOPs of a step / peak", "验 4 个猜测的计算时间", "computing time of checking 4 guesses", k=GUESSES))
        case "quantized":
            found += [numbers.resolve(name) for name in ("=anchor.int4.bytes", "=anchor.decode_bound", "=anchor.int4.decode_bound")]
        case "preempted":
            found += [q(loop.again_seconds, "s", "prefill of all tokens kept", "重读一遍的时间", "time to read it all again", tokens=loop.rounds[-1].context), q(loop.swap_bytes, "B", "tokens × KV per token + state", "换出的字节", "bytes swapped", tokens=loop.rounds[-1].context)]
    found += [
        q(loop.prefill.seconds, "s", "max(bytes / bandwidth, FLOPs / peak)", "prefill 的时间", "time of the prefill", tokens=loop.prompt, bytes=loop.prefill.bytes, flops=loop.prefill.flops, **bandwidth),
        q(loop.seconds, "s", "prefill + Σ decode step at context prompt + i, i = 1 … new − 1", "写完一共", "until all is written", prompt=loop.prompt, new=loop.new, batch=loop.batch),
        _decode_share(result),
    ]  # fmt: skip
    return tuple(found)


def _decode_share(result: Result) -> Quantity:
    loop = result.loop
    return Quantity(loop.decode_share, "ratio", "computed", "Σ decode steps / (prefill + Σ decode steps)", {"prefill": loop.prefill.seconds, "decode": loop.decode_seconds, "new": loop.new}, says={"zh": "decode 占的时间", "en": "decode’s share of the time"})


def _right(result: Result) -> str:
    share = result.loop.decode_share
    return "all" if share > 0.99 else "most" if share > 0.7 else "half"


WIDGET = Widget(
    id="request-loop",
    Params=Params,
    controls=(
        Choice("side", lambda: SIDES),
        Stops("new", NEW),
        Stops("prefix", PREFIXES),
        Stops("batch", BATCHES),
        Choice("example", lambda: tuple(request_loop.TEXTS)),
    ),
    run=run,
    draw=draw,
    guesses={"share": Guess(truth=_decode_share, choices=("half", "most", "all"), right=_right)},
    shown=5,
    presets={"en": {"example": "sentence"}},
)
