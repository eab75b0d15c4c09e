"""Requests with a common beginning: what of their prompts is in the cache, as a tree that grows, is hit, and loses leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import Field

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Stops
from components.text import amount, digits
from compute import numbers, precompute
from compute.batching import Scheduler
from compute.errors import BadInput
from compute.measures.prefix import stories
from compute.paging import ROOT, BlockPool, link
from compute.prefix import Event, Node, Visit, visits
from compute.quantity import Quantity

Texts = Literal["zh", "en"]
SLOTS = 2  # requests that run together
BLOCKS = (4, 8, 16)
CAPACITIES = {"zh": (112, 128, 144, 160, 192, 224, 256, 320, 512), "en": (176, 192, 208, 224, 256, 288, 320, 384, 512)}  # any holds the longest conversation
PAPERS = ("sglang.hit_rate", "sglang.throughput")


@parameters
class Params:
    """story: "shared" puts what all have in common first, "stamped" the time of day before it. texts: their language.
    capacity: positions of KV memory; a multiple of the block is used. block: positions."""

    story: Literal["shared", "stamped"] = "shared"
    capacity: Annotated[int, Field(ge=16, le=4096)] = 320
    block: Annotated[int, Field(ge=1, le=64)] = 4
    texts: Texts = "zh"


@dataclass(frozen=True)
class Place:
    """A block of text: which visit wrote it first, the row of that one, and where it begins."""

    visit: int
    row: int
    start: int


@dataclass(frozen=True)
class Result:
    """pieces: how the tokens of each visit read, prompt and answer. lines: the row of each visit, one that goes on with a
    former text in that one's. places: by the digest of the text up to a block's end."""

    params: Params
    coming: tuple[Visit, ...]
    pieces: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    places: Mapping[bytes, Place]
    events: tuple[Event, ...]

    @property
    def blocks(self) -> int:
        return self.params.capacity // self.params.block

    @property
    def hits(self) -> int:
        """Prompt positions that were found in the cache."""
        return sum(event.hits for event in self.events if event.kind == "find")

    @property
    def read(self) -> int:
        """And those that were computed."""
        return sum(event.read for event in self.events if event.kind == "read")

    @property
    def saved(self) -> float:
        return self.hits / (self.hits + self.read)

    @property
    def evicted(self) -> int:
        return sum(len(event.evicted) for event in self.events)

    @property
    def most(self) -> int:
        """Blocks in use or cached at most."""
        return max(event.used + event.idle for event in self.events)

    def cost(self, visit: int) -> int:
        """Prompt tokens that were computed for one visit."""
        return sum(event.read for event in self.events if event.kind == "read" and event.visit == visit)


def run(params: Params, answer: Any = None) -> Result:
    coming, pieces = _coming(params.texts, params.story == "stamped")
    longest = max(len(visit.prompt) + len(visit.answer) for visit in coming)
    if params.capacity // params.block * params.block < longest:
        en, zh = f"the longest conversation alone has {longest} tokens", f"最长的一段对话自己就有 {longest} 个 token"
        raise BadInput("capacity", params.capacity, en, zh)
    pool = BlockPool(params.capacity // params.block, params.block, caching=True)
    lines = _lines(coming)
    return Result(params, coming, pieces, lines, _places(coming, lines, params.block), visits(Scheduler(pool, SLOTS), coming))


def _coming(texts: Texts, stamped: bool) -> tuple[tuple[Visit, ...], tuple[tuple[str, ...], ...]]:
    """The visits in tokens, and how these read. Who comes again brings the conversation so far."""
    kept = precompute.recorded(f"prefix.{texts}.tokens")
    parts = {part["text"]: tuple(zip(part["ids"], part["pieces"])) for part in kept}
    told, talks, coming, pieces = stories()[texts], {}, [], []
    for visit in told["visits"]:
        head = (parts[visit["clock"]] if stamped else ()) + parts[told["system"]] + (parts[told["examples"]] if visit.get("examples") else ())
        talk = talks.get(visit["speaker"], ()) + parts[visit["question"]]
        talks[visit["speaker"]] = talk + parts[visit["answer"]]
        prompt, answer = head + talk, parts[visit["answer"]]
        coming.append(Visit(visit["speaker"], tuple(id for id, _ in prompt), tuple(id for id, _ in answer), visit["arrives"]))
        pieces.append(tuple(piece for _, piece in prompt + answer))
    return tuple(coming), tuple(pieces)


def _lines(coming: tuple[Visit, ...]) -> tuple[int, ...]:
    rows: list[int] = []
    for visit in coming:
        former = (row for row, other in zip(rows, coming) if visit.prompt[: len(other.prompt + other.answer)] == other.prompt + other.answer)
        rows.append(next(former, len(set(rows))))
    return tuple(rows)


def _places(coming: tuple[Visit, ...], lines: tuple[int, ...], block: int) -> dict[bytes, Place]:
    found: dict[bytes, Place] = {}
    for number, visit in enumerate(coming):
        ids, chain = visit.prompt + visit.answer, ROOT
        for start in range(0, len(ids) - block + 1, block):
            chain = link(chain, ids[start : start + block])
            found.setdefault(chain, Place(number, lines[number], start))
    return found


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    return View(
        picture=Stage(_stage(result), steps=len(result.events), height=640, start=opening(result.events)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        simplified=scene.words("simplified", slots=SLOTS),
    )


def opening(events: tuple[Event, ...]) -> int:
    """The second visitor has just been read."""
    return next(at for at, event in enumerate(events) if event.kind == "read" and event.visit == 1)


def _stage(result: Result) -> dict[str, Any]:
    coming, speakers = result.coming, stories()[result.params.texts]["speakers"]
    firsts = [result.lines.index(row) for row in sorted(set(result.lines))]  # the visit that began each row
    again = len(firsts) > len(speakers)
    return {
        "block": result.params.block, "blocks": result.blocks, "speakers": speakers,
        "rows": [speakers[coming[visit].speaker] + (f" {visit + 1}" if again else "") for visit in firsts],
        "longest": max(len(visit.prompt) + len(visit.answer) for visit in coming),
        "visits": [[visit.speaker, len(visit.prompt), row] for visit, row in zip(coming, result.lines)],
        "events": [_event(result, event) for event in result.events],
    }  # fmt: skip


def _event(result: Result, event: Event) -> dict[str, Any]:
    lines, places, block = result.lines, result.places, result.params.block
    serving = next((running for running in event.running if running.visit == event.visit), None)
    return {
        "kind": event.kind, "visit": event.visit, "edges": [edge for root in event.roots for edge in _edges(result, root, None)],
        "used": event.used, "idle": event.idle, "hits": event.hits, "read": event.read,
        "tails": [[lines[r.visit], r.sealed * block, r.written, r.visit] for r in event.running if r.written > r.sealed * block],
        "found": event.found if event.kind == "find" else serving.blocks[: event.hits // block] if event.kind == "read" and serving else (),
        "fresh": serving.blocks[event.hits // block :] if event.kind == "read" and serving else (),
        "evicted": [[places[chain].row, places[chain].start] for chain in event.evicted],
    }  # fmt: skip


def _edges(result: Result, node: Node, above: int | None) -> Iterator[dict[str, Any]]:
    """An edge, cut where its blocks stand in another row, as each stands in the row of whoever wrote it first. from: the row
    that the part hangs on."""
    for row, held in groupby(node.blocks, lambda held: result.places[held.chain].row):
        blocks = list(held)
        first, last = result.places[blocks[0].chain], result.places[blocks[-1].chain]
        text = "".join(result.pieces[last.visit][first.start : last.start + result.params.block])
        yield {"row": row, "start": first.start, "text": text, "from": above, "blocks": [[held.block, held.refs, held.rank] for held in blocks]}
        above = row
    for child in node.children:
        yield from _edges(result, child, above)


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, before = scene.words, scene.before

    def change(now: str, then: str) -> str:
        return words("before", value=then) if before is not None and now != then else ""

    share, read, second, evicted = digits(100 * result.saved), f"{result.read:,}", f"{result.cost(1):,}", f"{result.evicted:,}"
    return (
        Readout(words("readout.saved"), share, "%", change(share, digits(100 * before.saved) if before else ""), words("readout.saved_note", hits=result.hits, all=result.hits + result.read)),
        Readout(words("readout.read"), read, words("unit.tokens"), change(read, f"{before.read:,}" if before else ""), ""),
        Readout(words("readout.second"), second, words("unit.tokens"), change(second, f"{before.cost(1):,}" if before else ""),
                words("readout.second_note", first=result.cost(0), prompt=len(result.coming[1].prompt))),
        Readout(words("readout.evicted"), evicted, words("unit.blocks"), change(evicted, f"{before.evicted:,}" if before else ""), words("readout.evicted_note", blocks=result.blocks, most=result.most)),
    )  # fmt: skip


def _sentence(result: Result, scene: Scene) -> str:
    words, p = scene.words, result.params
    said = words(
        f"sentence.{p.story}", n=len(result.coming), all=result.hits + result.read, hits=result.hits, read=result.read, saved=amount(result.saved, "ratio", scene.lang),
        first=result.cost(0), second=result.cost(1),
    )  # fmt: skip
    return said + (words("sentence.evicted", blocks=result.blocks, evicted=result.evicted) if result.evicted else words("sentence.ample", blocks=result.blocks, most=result.most))


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    speakers = stories()[result.params.texts]["speakers"]
    return tuple(
        {"event": at, "step": event.step, "kind": event.kind, "speaker": speakers[result.coming[event.visit].speaker], "visit": event.visit + 1,
         "prompt_tokens": len(result.coming[event.visit].prompt), "tokens_from_cache": event.hits if event.kind == "find" else 0, "tokens_computed": event.read,
         "blocks_evicted": len(event.evicted), "blocks_in_use": event.used, "blocks_cached_unused": event.idle, "blocks_total": result.blocks}
        for at, event in enumerate(result.events, 1)
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    p = result.params
    inputs = {"found": result.hits, "computed": result.read}
    around = {"requests": len(result.coming), "block_size": p.block, "blocks": result.blocks, "slots": SLOTS}
    return (
        Quantity(result.saved, "ratio", "computed", "found in the cache / (found + computed)", inputs, says=SAYS["saved"]),
        Quantity(result.read, "token", "computed", "Σ prompt tokens read by the scheduler", around, says=SAYS["read"]),
        Quantity(result.evicted, "count", "computed", "cached blocks handed out for something else", around, says=SAYS["evicted"]),
        *(numbers.quoted_names()[name] for name in PAPERS),
    )


SAYS = {
    "saved": {"zh": "不用算的提示 token 占比", "en": "share of prompt tokens that were not computed"},
    "read": {"zh": "算了的提示 token", "en": "prompt tokens computed"},
    "evicted": {"zh": "淘汰的块", "en": "blocks evicted"},
}

SHARES = {"10": 0.1, "40": 0.4, "70": 0.7, "95": 0.95}


def _truth(result: Result) -> Quantity:
    return Quantity(result.saved, "ratio", "computed", "found in the cache / (found + computed)", {"found": result.hits, "computed": result.read})


WIDGET = Widget(
    id="prefix-tree",
    Params=Params,
    controls=(
        Choice("story", lambda: ("shared", "stamped")),
        *(Stops("capacity", stops, when=lambda p, texts=texts: p.texts == texts) for texts, stops in CAPACITIES.items()), Choice("block", lambda: BLOCKS, name=str),
        Choice("texts", lambda: ("zh", "en")),
    ),
    run=run,
    draw=draw,
    guesses={"saved": Guess(truth=_truth, choices=tuple(SHARES), right=lambda r: min(SHARES, key=lambda id: abs(SHARES[id] - r.saved)))},
    presets={"en": {"texts": "en"}},
)  # fmt: skip
