"""Prefixes that requests have in common: the pool's cached blocks as a radix tree, and visits that find them.

`tree` is a pure function of a pool. The bookkeeping is compute/paging's and compute/batching's; nothing here decides what
is kept or evicted. Zheng et al. 2024 (RadixAttention), §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence as Row
from dataclasses import dataclass
from typing import Any, Literal

from compute.batching import Scheduler, Sequence
from compute.paging import ROOT, BlockPool, link


@dataclass(frozen=True)
class Held:
    """A cached block. chain: digest of everything up to its end; refs: sequences that use it now; rank: how many blocks are
    evicted before it, None while it is used."""

    block: int
    chain: bytes
    refs: int
    rank: int | None


@dataclass(frozen=True)
class Node:
    """An edge of the radix tree and what hangs on its end: blocks of which each is the only child of the one before.
    start: position of the first token."""

    start: int
    tokens: tuple[int, ...]
    blocks: tuple[Held, ...]
    children: tuple[Node, ...]

    def walk(self) -> Iterable[Node]:
        yield self
        for child in self.children:
            yield from child.walk()


def tree(pool: BlockPool) -> tuple[Node, ...]:
    """The cached blocks as a forest under the empty text; children in the order in which they were cached."""
    below: dict[bytes, list[bytes]] = {}
    for chain, cached in pool.cached.items():
        below.setdefault(cached.parent, []).append(chain)
    ranks = {block: rank for rank, block in enumerate(pool.idle)}

    def grow(chain: bytes, start: int) -> Node:
        tokens, blocks = [], []
        while True:
            cached = pool.cached[chain]
            tokens += cached.tokens
            blocks.append(Held(cached.block, chain, pool.refs[cached.block], ranks.get(cached.block)))
            children = below.get(chain, [])
            if len(children) != 1:
                break
            chain = children[0]
        end = start + len(tokens)
        return Node(start, tuple(tokens), tuple(blocks), tuple(grow(child, end) for child in children))

    return tuple(grow(chain, 0) for chain in below.get(ROOT, []))


# ---- visits


@dataclass(frozen=True)
class Visit:
    """A request whose answer is known beforehand. speaker: whose conversation it belongs to; arrives: step."""

    speaker: int
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    arrives: int


@dataclass(frozen=True)
class Running:
    """A visit that is being served. blocks: its table, of which the tree holds the first `sealed`; written: positions in it."""

    visit: int
    blocks: tuple[int, ...]
    written: int
    sealed: int


@dataclass(frozen=True)
class Event:
    """The pool after something happened to a visit.

    wait: it came and there is no room yet. find: it is let in, and the first `hits` positions of its text are in the cache, in
    the blocks `found`. read: the other `read` ones were computed. write: a token of an answer took a cached block. preempt: it
    gave its blocks back and waits again. finish: its answer is complete, and its blocks stay cached.
    evicted: what was lost to it, the digests of the texts that these blocks ended.
    """

    kind: Literal["wait", "find", "read", "write", "preempt", "finish"]
    visit: int
    step: int
    roots: tuple[Node, ...]
    running: tuple[Running, ...]
    used: int  # blocks
    idle: int  # cached blocks that nobody uses
    found: tuple[int, ...] = ()
    hits: int = 0
    read: int = 0
    evicted: tuple[bytes, ...] = ()


def visits(scheduler: Scheduler, coming: Row[Visit]) -> tuple[Event, ...]:
    """Runs visits, in order of arrival, through a scheduler whose pool caches, and tells what happened to the tree."""
    pool, events, numbers, left, step = scheduler.pool, [], {}, list(range(len(coming))), 0

    def note(kind: str, sequence: Sequence, **more: Any) -> None:
        running = tuple(Running(numbers[s], tuple(s.table.blocks), s.table.written, len(s.table.chain)) for s in scheduler.running)
        events.append(Event(kind, numbers[sequence], step, tree(pool), running, pool.used, len(pool.idle), **more))

    while left or scheduler.waiting or scheduler.running:
        new = []
        while left and coming[left[0]].arrives <= step:
            visit = coming[left[0]]
            new.append(scheduler.submit(visit.prompt, len(visit.answer)))
            numbers[new[-1]] = left.pop(0)
        plan = scheduler.plan()
        for chunk in plan.prefill:
            if chunk.sequence.lane is None:
                note("find", chunk.sequence, found=tuple(cached.block for cached in pool.match(chunk.sequence.ids)), hits=chunk.hits)
        before = list(pool.cached)
        work = scheduler.apply(plan)
        lost = tuple(chain for chain in before if chain not in pool.cached)
        tokens = {}
        for read in work.reads:
            if read.sequence.table.written >= len(read.sequence.ids):
                tokens[read.sequence] = (coming[numbers[read.sequence]].answer[read.sequence.written],)
        done = scheduler.commit(work, tokens)
        for sequence in plan.preempted:
            note("preempt", sequence)
        for read in work.reads:
            if read.prefill:
                note("read", read.sequence, hits=read.start, read=read.tokens, evicted=lost)
                lost = ()
        if lost:
            note("write", work.reads[0].sequence, evicted=lost)
        for sequence in done:
            note("finish", sequence)
        for sequence in new:
            if sequence.lane is None and not sequence.finished:
                note("wait", sequence)
        step += 1
    return tuple(events)
