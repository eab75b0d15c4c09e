"""KV memory in blocks: who owns which, counted references, copy-on-write, and a cache of prefixes; beside it the
allocator that came before, which reserves one contiguous span a request.

The one implementation for the simulator, the engine and the drawings: the engine's tensors are indexed by the same block
numbers. Kwon et al. 2023 ("PagedAttention", §4.2–4.5); prefix cache after Zheng et al. 2024 (RadixAttention, §3).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heappop, heappush

from compute.errors import BadInput

ROOT = b""  # the chain of a sequence that has no full block yet


@dataclass(slots=True)
class Table:
    """A sequence's block table. blocks: physical block of each logical one; written: positions whose keys and values are
    there; chain: for each full block that was sealed, the digest of it and all before it."""

    blocks: list[int] = field(default_factory=list)
    written: int = 0
    chain: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Cached:
    """A full block that others may find: a node of the prefix tree, under `parent`."""

    block: int
    parent: bytes
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Copy:
    """Copy-on-write: what `source` holds goes to `target`, which only one sequence owns, before it is written to."""

    source: int
    target: int


class BlockPool:
    """`total` blocks of `block_size` positions. Every block is owned by refs ≥ 1 tables, or is free; a free block may still
    be cached (found by its content until it is handed out again, the least recently used first)."""

    def __init__(self, total: int, block_size: int, *, caching: bool = False):
        for name, value in (("blocks", total), ("block_size", block_size)):
            if value < 1:
                raise BadInput(name, value, "at least 1 is needed", "至少要 1")
        self.total, self.block_size, self.caching = total, block_size, caching
        self.refs = [0] * total
        self.cached: dict[bytes, Cached] = {}
        self.evicted = 0  # cached blocks that were handed out for something else
        self._digest: dict[int, bytes] = {}  # of each cached block
        self._blank = list(range(total))  # a heap: free and not cached; the lowest number goes first
        self._idle: OrderedDict[int, None] = OrderedDict()  # free and cached, the least recently used first

    @property
    def free(self) -> int:
        """Blocks that can be handed out, cached ones included."""
        return len(self._blank) + len(self._idle)

    @property
    def used(self) -> int:
        return self.total - len(self._blank) - len(self._idle)

    @property
    def idle(self) -> tuple[int, ...]:
        """Free blocks that are still cached, the next to be evicted first."""
        return tuple(self._idle)

    def blocks_for(self, positions: int) -> int:
        return -(-positions // self.block_size)

    # ---- one sequence's blocks

    def missing(self, table: Table, tokens: int, shared: Mapping[int, int] | None = None) -> int:
        """Blocks to be handed out before `tokens` more positions can be written, a copy of a shared one included.
        shared: changes of reference counts that are planned and not done."""
        need = self.blocks_for(table.written + tokens) - len(table.blocks)
        return max(need, 0) + (self.writes_shared(table, shared) is not None)

    def writes_shared(self, table: Table, shared: Mapping[int, int] | None = None) -> int | None:
        """The block that the next position lies in, when another table owns it too: it has to be copied first."""
        at = table.written // self.block_size
        if at >= len(table.blocks):
            return None
        block = table.blocks[at]
        return block if self.refs[block] + (shared.get(block, 0) if shared else 0) > 1 else None

    def extend(self, table: Table, tokens: int) -> list[Copy]:
        """Makes room for `tokens` more positions and counts them as written. Asked for more than `missing` allowed, it
        raises MemoryError: who plans has to ask first."""
        shared, copies = self.writes_shared(table), []
        if shared is not None or table.written + tokens > len(table.blocks) * self.block_size:
            if (missing := self.missing(table, tokens)) > self.free:
                raise MemoryError(f"{missing} blocks are missing, {self.free} are free")
        if shared is not None:
            copies.append(Copy(shared, self._hand_out()))
            table.blocks[table.written // self.block_size] = copies[0].target
            self._drop(shared)
        self.cover(table, table.written + tokens)
        table.written += tokens
        return copies

    def cover(self, table: Table, positions: int) -> None:
        """Hands out blocks until there is room for so many positions in all; `extend` for a table whose last block nobody shares."""
        while len(table.blocks) * self.block_size < positions:
            table.blocks.append(self._hand_out())

    def rewind(self, table: Table, tokens: int) -> None:
        """The last `tokens` positions do not count after all (rejected guesses); their blocks stay for the next ones. Only what
        was written since the last fork or seal: others may read the rest."""
        table.written -= tokens

    def fork(self, table: Table) -> Table:
        """A second sequence with the same past: every block shared, none copied. Both are sealed before anything else happens,
        lest one alone keeps a cached block whose parent is evicted."""
        blocks = table.blocks[: self.blocks_for(table.written)]
        for block in blocks:
            self.refs[block] += 1
        return Table(list(blocks), table.written, list(table.chain))

    def release(self, table: Table) -> None:
        """Gives all blocks back; full ones stay cached. The end of the chain is freed first, so it is evicted first."""
        for block in reversed(table.blocks):
            self._drop(block)
        table.blocks, table.written, table.chain = [], 0, []

    # ---- prefixes

    def match(self, ids: Sequence[int]) -> list[Cached]:
        """The longest cached prefix in whole blocks. The last token is left out: its logits have to be computed."""
        found: list[Cached] = []
        if self.caching:
            chain = ROOT
            for at in range(0, (len(ids) - 1) // self.block_size * self.block_size, self.block_size):
                chain = link(chain, ids[at : at + self.block_size])
                if chain not in self.cached:
                    break
                found.append(self.cached[chain])
        return found

    def adopt(self, table: Table, ids: Sequence[int]) -> int:
        """Gives an empty table the cached prefix of `ids`; the positions that need no computing."""
        for cached in self.match(ids):
            self._share(cached.block)
            table.blocks.append(cached.block)
            table.chain.append(self._digest[cached.block])
        table.written = len(table.blocks) * self.block_size
        return table.written

    def seal(self, table: Table, ids: Sequence[int]) -> None:
        """Lets others find the full blocks of a table whose tokens are `ids`. Where the same content is cached already, as
        when two read one prompt at the same time, the table takes that block and gives its own back."""
        if not self.caching:
            return
        for at in range(len(table.chain), table.written // self.block_size):
            tokens, parent = tuple(ids[at * self.block_size : (at + 1) * self.block_size]), table.chain[-1] if at else ROOT
            chain, own = link(parent, tokens), table.blocks[at]
            table.chain.append(chain)
            if chain not in self.cached:
                self.cached[chain], self._digest[own] = Cached(own, parent, tokens), chain
            elif (block := self.cached[chain].block) != own:
                self._share(block)
                table.blocks[at] = block
                self._drop(own)

    # ---- references

    def _hand_out(self) -> int:
        if self._blank:
            block = heappop(self._blank)
        else:
            block, _ = self._idle.popitem(last=False)
            del self.cached[self._digest.pop(block)]
            self.evicted += 1
        self.refs[block] = 1
        return block

    def _share(self, block: int) -> None:
        if self.refs[block] == 0:
            del self._idle[block]
        self.refs[block] += 1

    def _drop(self, block: int) -> None:
        self.refs[block] -= 1
        if self.refs[block] == 0:
            if block in self._digest:
                self._idle[block] = None
            else:
                heappush(self._blank, block)


def link(parent: bytes, tokens: Iterable[int]) -> bytes:
    """The digest of a block and all before it: equal for equal texts only."""
    return blake2b(parent + array("q", tokens).tobytes(), digest_size=16).digest()


@dataclass(frozen=True)
class Fill:
    """Cells: positions of KV memory. written: holding a token, each once however many share it; taken: in blocks or spans
    that somebody owns; total: all."""

    written: int
    taken: int
    total: int

    @property
    def utilisation(self) -> float:
        """Of the taken cells, those that hold a token: what is left was reserved for nothing yet. 1 where none is taken."""
        return self.written / self.taken if self.taken else 1.0


def fill(pool: BlockPool, tables: Iterable[Table]) -> Fill:
    """How much of the taken blocks holds tokens. tables: all that own blocks."""
    held: dict[int, int] = {}
    for table in tables:
        for at, block in enumerate(table.blocks):
            cells = min(max(table.written - at * pool.block_size, 0), pool.block_size)
            held[block] = max(held.get(block, 0), cells)
    return Fill(sum(held.values()), len(held) * pool.block_size, pool.total * pool.block_size)


# ---- the way before: one contiguous span a request


@dataclass(frozen=True)
class Span:
    """`length` cells reserved from `start` on, the first `written` of them hold tokens."""

    start: int
    length: int
    written: int = 0


@dataclass(frozen=True)
class NoHole:
    """Refused: no hole is long enough, though `free` cells may be enough in all."""

    wanted: int
    free: int
    largest: int


class Contiguous:
    """`total` cells; a request reserves its maximum at once, in the first hole that is long enough (first fit)."""

    def __init__(self, total: int):
        if total < 1:
            raise BadInput("cells", total, "at least 1 is needed", "至少要 1")
        self.total = total
        self.spans: dict[int, Span] = {}  # by owner

    def holes(self) -> list[Span]:
        """Free stretches from left to right."""
        found, at = [], 0
        for span in sorted(self.spans.values(), key=lambda span: span.start):
            if span.start > at:
                found.append(Span(at, span.start - at))
            at = span.start + span.length
        return found + ([Span(at, self.total - at)] if at < self.total else [])

    def reserve(self, owner: int, length: int) -> Span | NoHole:
        holes = self.holes()
        for hole in holes:
            if hole.length >= length:
                self.spans[owner] = Span(hole.start, length)
                return self.spans[owner]
        return NoHole(length, sum(h.length for h in holes), max((h.length for h in holes), default=0))

    def write(self, owner: int, tokens: int = 1) -> Span:
        """Raises MemoryError past the reservation: who reserved the maximum never gets there."""
        span = self.spans[owner]
        if span.written + tokens > span.length:
            raise MemoryError(f"{span.length} cells are reserved, {span.written + tokens} are wanted")
        self.spans[owner] = Span(span.start, span.length, span.written + tokens)
        return self.spans[owner]

    def release(self, owner: int) -> None:
        del self.spans[owner]

    def fill(self) -> Fill:
        spans = self.spans.values()
        return Fill(sum(s.written for s in spans), sum(s.length for s in spans), self.total)
