"""The same requests in the same memory, step by step: reserved at their maximum above, in pages below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Move, Press, Stops
from components.text import Words, amount, digits
from compute import facts, kv, memory_story
from compute.batching_requests import requests as paragraphs
from compute.facts import ModelName
from compute.memory_story import Event, Moment, Request, Side
from compute.paging import NoHole
from compute.quantity import Quantity

CELLS = {"m6": 48, "paragraphs": 1024}  # a cell holds the K and V of one token
M6_REQUESTS = (Request(1, 16, 5), Request(2, 8, 2), Request(3, 16, 3))
M6_EVENTS = "g,g,g,g,g,g,f2,a12,g,g,g,f3,g,g"
PARAGRAPH_MAXIMUM, PARAGRAPH_TOKENS, PARAGRAPH_STEPS = 256, 8, 30  # until the last has finished in pages
BLOCKS = (1, 2, 4, 8, 16)
FINISH_BUTTONS = 6


def own_events(text: str) -> str:
    """In their shortest spelling; raises BadInput for what is no event."""
    return memory_story.text(memory_story.parse(text, CELLS["m6"]))


@parameters
class Params:
    """preset: "m6", three requests in 48 cells, or "paragraphs", 64 real lengths in 1,024 cells, which play by themselves.
    events: what the learner makes happen instead of the preset's own story (m6 only), as compute.memory_story reads it:
    "g,g,f2,a12". block: cells of a page. arrives: cells of the next request by button. model: whose KV a cell holds."""

    preset: Literal["m6", "paragraphs"] = "m6"
    events: Annotated[str, AfterValidator(own_events)] = ""
    block: Annotated[int, Field(ge=1, le=16)] = 4
    arrives: Annotated[int, Field(ge=1, le=48)] = 12
    model: ModelName = "qwen3.8-27b"


@dataclass(frozen=True)
class Result:
    params: Params
    moments: tuple[Moment, ...]
    cell_bytes: float
    start: int  # the moment that it opens at

    @property
    def cells(self) -> int:
        return CELLS[self.params.preset]


def run(params: Params, answer=None) -> Result:
    moments = memory_story.tell(CELLS[params.preset], params.block, _requests(params), _events(params))
    learners = params.preset == "m6" and bool(params.events)
    return Result(params, moments, kv.per_token(params.model).bytes, len(moments) - 1 if learners else 0)


def _requests(params: Params) -> tuple[Request, ...]:
    if params.preset == "m6":
        return M6_REQUESTS
    return tuple(Request(n, PARAGRAPH_MAXIMUM, len(r.prompt), len(r.prompt) + r.output) for n, r in enumerate(paragraphs(), 1))


def _events(params: Params) -> tuple[Event, ...]:
    if params.preset == "m6":
        return memory_story.parse(params.events or M6_EVENTS, CELLS["m6"])
    return (Event("generate", PARAGRAPH_TOKENS),) * PARAGRAPH_STEPS


def moves(params: Params, step: int) -> tuple[Move, ...]:
    """What can happen next. The story goes on from the step that is shown: what came after it is told anew."""
    past = _events(params)[:step]
    if len(past) >= memory_story.MOST_EVENTS:
        return ()
    now = memory_story.tell(CELLS["m6"], params.block, M6_REQUESTS, past)[-1]
    running = sorted({held.number for side in (now.reserved, now.paged) for held in side.held})

    def then(event: Event) -> str:
        return memory_story.text((*past, event))

    return (
        Move("generate", then(Event("generate", 1))),
        *(Move("finish", then(Event("finish", n)), {"n": n}) for n in running[:FINISH_BUTTONS]),
        Move("arrive", then(Event("arrive", params.arrives, min(memory_story.PROMPT, params.arrives))), {"n": params.arrives}),
    )


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, moments = scene.words, result.moments
    t = min(result.start if scene.t is None else scene.t, len(moments) - 1)
    simplified = words("simplified")
    if lost := result.cells % result.params.block:
        simplified += words("lost", cells=result.cells, block=result.params.block, lost=lost)
    return View(
        picture=Stage(_stage(result, words), steps=len(moments), height=460, start=result.start),
        readouts=_readouts(result, t, scene),
        sentence=_says(result, t, scene),
        rows=_rows(result),
        papers=_papers(result, t),
        simplified=simplified,
    )


def share(part: float, whole: float) -> str:
    return f"{digits(100 * part / whole)}%" if part else "0%" if whole else "–"


def _stage(result: Result, words: Words) -> dict[str, Any]:
    def side(side: Side) -> dict[str, Any]:
        fill = side.fill
        return {
            "held": [[h.number, h.written, *(h.span or (h.blocks,))] for h in side.held], "left": side.left,
            "waiting": [side.waiting[0][0], side.waiting[0][1], len(side.waiting)] if side.waiting else None,
            "free": side.free, "longest": side.longest, "written": fill.written, "taken": fill.taken,
            "of_all": share(fill.written, fill.total), "of_taken": share(fill.written, fill.taken),
        }  # fmt: skip

    return {
        "cells": result.cells, "block": result.params.block, "dense": result.params.preset != "m6",
        "moments": [{"says": happened(result, t, words), "a": side(m.reserved), "b": side(m.paged)} for t, m in enumerate(result.moments)],
    }  # fmt: skip


def happened(result: Result, t: int, words: Words) -> str:
    """What the step did, in words and numbers."""
    moment, event = result.moments[t], result.moments[t].event
    a, b = moment.reserved, moment.paged
    if event is None:
        requests = _requests(result.params)
        if len({r.maximum for r in requests}) == 1:
            return words("tell.start.many", n=len(requests), maximum=requests[0].maximum, a=len(a.held), b=len(b.held))
        numbers = {name: words("list").join(str(getattr(r, name)) for r in requests) for name in ("maximum", "prompt")}
        return words("tell.start", n=len(requests), **numbers)
    if event.kind == "arrive":
        number = _newest(result.moments[: t + 1])
        return words("tell.arrive", n=number, maximum=event.n) + _reserved_arrival(a, number, words) + _paged_arrival(b, number, result.params.block, words)
    if event.kind == "finish":
        where = ("both" if event.n in b.left else "reserved") if event.n in a.left else "paged" if event.n in b.left else "nowhere"
        return words(f"tell.finish.{where}", n=event.n) + _entered(moment, words)
    was = result.moments[t - 1]
    if not was.reserved.held and not was.paged.held:
        return words("tell.generate.nobody")
    said = words("tell.generate.one" if event.n == 1 else "tell.generate.more", n=event.n)
    if result.params.preset == "m6":
        return said + _pushed(b, words) + _entered(moment, words)
    if not b.held and not b.waiting:
        return said + words("tell.done", n=len(requests := _requests(result.params)), a=len(requests) - len(a.held) - len(a.waiting), waiting=len(a.waiting))
    return said + words("tell.counts", a=len(a.held), a_waiting=len(a.waiting), b=len(b.held), b_waiting=len(b.waiting)) + _pushed(b, words)


def _newest(moments: tuple[Moment, ...]) -> int:
    return len(M6_REQUESTS) + sum(m.event is not None and m.event.kind == "arrive" for m in moments)


def _reserved_arrival(side: Side, number: int, words: Words) -> str:
    if refused := side.refused(number):
        return words("tell.reserved.holes" if refused.wanted <= refused.free else "tell.reserved.full", free=refused.free, longest=refused.largest)
    return words("tell.reserved.in", cells=side.holds(number).span[1])


def _paged_arrival(side: Side, number: int, block: int, words: Words) -> str:
    if refused := side.refused(number):
        return words("tell.paged.full", free=refused.free // block, blocks=refused.wanted // block)
    blocks = len(side.holds(number).blocks)
    return words("tell.paged.in.one" if blocks == 1 else "tell.paged.in", blocks=blocks)


def _names(numbers: tuple[int, ...], words: Words) -> str:
    return words("list").join(map(str, numbers))


def _entered(moment: Moment, words: Words) -> str:
    said = "".join(
        words(f"tell.entered.{name}", n=_names(side.entered, words)) for name, side in (("reserved", moment.reserved), ("paged", moment.paged)) if side.entered
    )
    return said + "".join(words("tell.still", n=n, wanted=wanted, free=moment.reserved.free, longest=moment.reserved.longest)
                          for n, wanted in moment.reserved.waiting[:1] if wanted <= moment.reserved.free and moment.event.kind == "finish")  # fmt: skip


def _pushed(side: Side, words: Words) -> str:
    if not side.pushed:
        return ""
    return words("tell.pushed.one" if len(side.pushed) == 1 else "tell.pushed.many", n=side.pushed[0], count=len(side.pushed))


def _says(result: Result, t: int, scene: Scene) -> str:
    words, moment = scene.words, result.moments[t]
    a, b = moment.reserved, moment.paged

    def size(cells: int) -> str:
        return amount(cells * result.cell_bytes, "B", scene.lang)

    said = words("says.step", t=t + 1) + happened(result, t, words)
    said += words("says.used", a=share(a.fill.written, a.fill.total), b=share(b.fill.written, b.fill.total), total=f"{a.fill.total:,}")
    said += words("says.internal", a=a.internal, b=b.internal, a_bytes=size(a.internal), b_bytes=size(b.internal))
    return said + (words("says.external", a=a.external, a_bytes=size(a.external)) if a.external else "")


def _readouts(result: Result, t: int, scene: Scene) -> tuple[Readout, ...]:
    words, now = scene.words, result.moments[t]
    before = result.moments[t - 1] if t else None

    def pair(of) -> tuple[str, str]:
        shown = f"{of(now.reserved)} | {of(now.paged)}"
        was = before and f"{of(before.reserved)} | {of(before.paged)}"
        return shown, words("readout.before", value=was) if was and was != shown else ""

    def size(of) -> str:
        return words("readout.bytes", a=amount(of(now.reserved) * result.cell_bytes, "B", scene.lang), b=amount(of(now.paged) * result.cell_bytes, "B", scene.lang))

    def over(of) -> str:
        return words("readout.over", a=f"{now.reserved.fill.written:,}/{of(now.reserved):,}", b=f"{now.paged.fill.written:,}/{of(now.paged):,}")

    used, used_was = pair(lambda s: share(s.fill.written, s.fill.total).rstrip("%"))
    taken, taken_was = pair(lambda s: share(s.fill.written, s.fill.taken).rstrip("%"))
    inner, inner_was = pair(lambda s: s.internal)
    outer, outer_was = pair(lambda s: s.external)
    running, running_was = pair(lambda s: len(s.held))
    return (
        Readout(words("readout.used"), used, "%", used_was, over(lambda s: s.fill.total)),
        Readout(words("readout.taken"), taken, "%", taken_was, over(lambda s: s.fill.taken)),
        Readout(words("readout.internal"), inner, words("unit.cells"), inner_was, size(lambda s: s.internal)),
        Readout(words("readout.external"), outer, words("unit.cells"), outer_was, size(lambda s: s.external)),
        Readout(words("readout.running"), running, words("unit.requests"), running_was, words("readout.waiting", a=len(now.reserved.waiting), b=len(now.paged.waiting))),
    )


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "step": t + 1, "event": memory_story.text((moment.event,)) if moment.event else "start", "layout": name, "cells": side.fill.total,
            "cells_written": side.fill.written, "cells_taken": side.fill.taken, "cells_unwritten": side.internal, "cells_in_useless_holes": side.external,
            "bytes_written": side.fill.written * result.cell_bytes, "bytes_unwritten": side.internal * result.cell_bytes,
            "bytes_in_useless_holes": side.external * result.cell_bytes, "requests_running": len(side.held), "requests_waiting": len(side.waiting),
        }
        for t, moment in enumerate(result.moments)
        for name, side in (("reserved", moment.reserved), ("paged", moment.paged))
    )  # fmt: skip


def _papers(result: Result, t: int) -> tuple[Quantity, ...]:
    moment, shape = result.moments[t], facts.model(result.params.model)
    found = []
    for name, side in (("reserved", moment.reserved), ("paged", moment.paged)):
        given = {"written": side.fill.written, "taken": side.fill.taken, "cells": side.fill.total, "step": t + 1}
        found += [
            Quantity(side.of_all, "ratio", "computed", "written / all cells", given, says=SAYS["used"][name]),
            Quantity(side.fill.utilisation, "ratio", "computed", "written / taken cells", given, says=SAYS["taken"][name]),
            Quantity(side.internal * result.cell_bytes, "B", "computed", "(taken − written) × KV of one token", given, says=SAYS["internal"][name]),
            Quantity(side.external * result.cell_bytes, "B", "computed", "free cells × KV of one token, while a request that needs no more than they are waits",
                     given | {"free": side.free, "longest": side.longest}, says=SAYS["external"][name]),
        ]  # fmt: skip
    source = Quantity(result.cell_bytes, "B", "computed", "Σ layers × numbers × 2 B", {"model": shape.name}, shape.source, says=SAYS["cell"])
    return (*found, source)


def _both(zh: str, en: str) -> dict[str, dict[str, str]]:
    return {"reserved": {"zh": f"{zh}（连续）", "en": f"{en} (contiguous)"}, "paged": {"zh": f"{zh}（分页）", "en": f"{en} (pages)"}}


SAYS = {
    "used": _both("存着 token 的格子，占全部", "cells that hold a token, of all"),
    "taken": _both("存着 token 的格子，占已分配的", "cells that hold a token, of those taken"),
    "internal": _both("内部碎片", "internal fragmentation"),
    "external": _both("外部碎片", "external fragmentation"),
    "cell": {"zh": "一格：一个 token 的 KV", "en": "one cell: the KV of one token"},
}


# ---- controls and guess


def _refusal(result: Result) -> NoHole:
    """The first request that contiguous memory turns away although it has cells enough; else what it could hand out at the end."""
    for moment in result.moments:
        for number, wanted in moment.reserved.waiting:
            if wanted <= moment.reserved.free:
                return moment.reserved.refused(number)
    last = result.moments[-1].reserved
    return NoHole(result.params.arrives, last.free, last.longest)


def _truth(result: Result) -> Quantity:
    refused = _refusal(result)
    return Quantity(refused.largest, "cell", "computed", "longest hole", {"wanted": refused.wanted, "free": refused.free})


HOLES = ("16", "12", "8")


def _nearest(result: Result) -> str:
    return min(HOLES, key=lambda id: abs(int(id) - _refusal(result).largest))


def _by_hand(params: Params) -> bool:
    return params.preset == "m6"


WIDGET = Widget(
    id="memory-bar",
    Params=Params,
    controls=(
        Press("events", moves, when=_by_hand),
        Choice("preset", lambda: tuple(CELLS)),
        Stops("block", BLOCKS),
        Stops("arrives", (4, 8, 12, 16, 24), when=_by_hand),
        Choice("model", lambda: tuple(id for id, shape in facts.models().items() if shape.caches), lambda id: facts.model(id).name),
    ),
    run=run,
    draw=draw,
    guesses={"fits": Guess(truth=_truth, choices=HOLES, right=_nearest)},
)
