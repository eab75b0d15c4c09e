"""One prompt, several texts: what parallel sampling and beam search make of the block tables.

The bookkeeping is compute/paging's; here is only the order in which it is asked: who is dropped, who goes on from whom, who
writes. Kwon et al. 2023 (PagedAttention), §4.4.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Literal

from compute.paging import BlockPool, Copy, Table

Child = tuple[int, int]
"""(which text of the step before it goes on from, the token that it adds)"""


@dataclass(frozen=True)
class Text:
    """One of the texts. ids: all its tokens, of which the block table holds `written`; those after it were chosen and not
    written yet. parent: the row that it was forked from in this step, None where it goes on with its own."""

    ids: tuple[int, ...]
    written: int
    blocks: tuple[int, ...]
    parent: int | None = None
    dropped: bool = False


@dataclass(frozen=True)
class Frame:
    """The block tables after one event of step `step` (0: the prompt). who: the row that it happened to.

    read: the prompt is there. drop: texts that nobody goes on from gave their blocks back. fork: others took their rows and
    share their parent's blocks. copy: who had to write into a shared block got a copy of it first. write: the others wrote
    in place.
    """

    kind: Literal["read", "drop", "fork", "copy", "write"]
    step: int
    rows: tuple[Text | None, ...]  # None: nobody there
    refs: tuple[int, ...]  # of each block, 0: free
    filled: tuple[int, ...]  # positions of each block that hold a token
    who: int | None = None
    copy: Copy | None = None
    moved: int = 0  # positions that this copy carried over
    copied: int = 0  # positions copied so far
    copied_apart: int = 0  # and had every text kept blocks of its own, copied whole at each fork

    @property
    def used(self) -> int:
        """Blocks that somebody owns."""
        return sum(count > 0 for count in self.refs)

    def apart(self, block_size: int) -> int:
        """Blocks that the same texts would own if none were shared."""
        return sum(-(-row.written // block_size) for row in self.rows if row and not row.dropped)


def saved(frame: Frame, block_size: int) -> float:
    """Share of the blocks that sharing saves."""
    return 1 - frame.used / frame.apart(block_size)


def blocks_apart(prompt: int, texts: int, new: int, block_size: int) -> int:
    """Blocks for `texts` texts of prompt + new tokens that share nothing."""
    return texts * -(-(prompt + new) // block_size)


def unfold(prompt: Row[int], steps: Row[Row[Child]], block_size: int) -> tuple[Frame, ...]:
    """Every event of the run. steps: for each step the texts that go on, as many each time; the first step's all come from
    the prompt. The pool is as large as the texts would need without sharing."""
    width = max(len(step) for step in steps)
    pool = BlockPool(blocks_apart(len(prompt), width, len(steps), block_size), block_size)
    run = _Run(pool, width)
    run.read(prompt)
    for number, step in enumerate(steps, 1):
        run.step(number, step)
    return tuple(run.frames)


class _Run:
    def __init__(self, pool: BlockPool, width: int):
        self.pool, self.width = pool, width
        self.texts: list[tuple[int, ...]] = []  # by row
        self.tables: list[Table | None] = []
        self.row_of: list[int] = []  # of the texts in the step's own order
        self.frames: list[Frame] = []
        self.parents: dict[int, int] = {}  # row → row, of this step's forks
        self.copied = self.copied_apart = 0

    def read(self, prompt: Row[int]) -> None:
        table = Table()
        self.pool.extend(table, len(prompt))
        self.texts, self.tables = [tuple(prompt)], [table]
        self.texts += [()] * (self.width - 1)
        self.tables += [None] * (self.width - 1)
        self.row_of = [0]
        self.note("read", 0)

    def step(self, number: int, children: Row[Child]) -> None:
        """First child of a text keeps its row and table; the others move into rows that became free."""
        kept = {self.row_of[parent] for parent, _ in children}
        gone = [row for row in self.row_of if row not in kept]
        self.parents = {}
        for row in gone:
            self.pool.release(self.tables[row])
        if gone:
            self.note("drop", number, dropped=gone)
        free = [row for row in range(self.width) if row not in kept]
        rows, heirs = [], set()
        for parent, _ in children:
            row = self.row_of[parent]
            if row in heirs:
                row = free.pop(0)
                self.parents[row] = self.row_of[parent]
                self.tables[row] = self.pool.fork(self.tables[self.row_of[parent]])
                self.copied_apart += self.tables[row].written
            heirs.add(row)
            rows.append(row)
        before = list(self.texts)
        for row, (parent, token) in zip(rows, children):
            self.texts[row] = (*before[self.row_of[parent]], token)
        for row in set(range(self.width)) - set(rows):
            self.texts[row], self.tables[row] = (), None
        self.row_of = rows
        if self.parents:
            self.note("fork", number)
        in_place = []
        for row in sorted(rows):
            if self.pool.writes_shared(self.tables[row]) is None:
                in_place.append(row)
                continue
            carried = self.tables[row].written % self.pool.block_size
            (copy,) = self.pool.extend(self.tables[row], 1)
            self.copied += carried
            self.note("copy", number, who=row, copy=copy, moved=carried)
        for row in in_place:
            self.pool.extend(self.tables[row], 1)
        self.note("write", number)

    def note(self, kind: str, step: int, *, dropped: Row[int] = (), who: int | None = None, copy: Copy | None = None, moved: int = 0) -> None:
        filled = [0] * self.pool.total
        rows: list[Text | None] = []
        for row, (ids, table) in enumerate(zip(self.texts, self.tables)):
            if table is None:
                rows.append(None)
                continue
            for at, block in enumerate(table.blocks):
                filled[block] = max(filled[block], min(self.pool.block_size, table.written - at * self.pool.block_size))
            rows.append(Text(ids, table.written, tuple(table.blocks), self.parents.get(row), row in dropped))
        self.frames.append(Frame(kind, step, tuple(rows), tuple(self.pool.refs), tuple(filled), who, copy, moved, self.copied, self.copied_apart))
