"""Many thousand requests through a policy, where all who decode count as one.

A step of the scheduler touches every sequence, which takes most of the time of a long simulation. But those who decode all do the
same in a step: each writes one token and looks at one position more. So they are kept as one sequence, the crowd, with the sums
that a policy and a price ask for, and only who joins or leaves is looked at. The policies are those of compute/batching, run as
they are written: to them the crowd is a sequence whose reach is as many positions as it has members. Blocks are counted and not
numbered. In the rare step in which the crowd would not get its blocks, the policy is asked again about every member.

That nobody loses a token by this is tested: every time of every request, against the scheduler, for all policies.

Not for what depends on contents or makes sequences unequal: prefix caching, samples, guesses, swapping.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Protocol

from compute.batching import POLICIES, PolicyName, Sequence, StepPlan
from compute.errors import Cancelled
from compute.paging import Table

ASK = 2000  # steps between two looks at whether somebody has cancelled


class Amounts(Protocol):
    """A price on sums. cells: positions that the decoding look at; in_windows: the same, each counted up to the window, for each
    window of the model; chunks: (positions before, tokens, whether the prompt ends) of each piece of a prompt. Seconds."""

    windows: tuple[int, ...]

    def decode(self, decoding: int, cells: int, in_windows: list[int]) -> float: ...

    def mixed(self, decoding: int, cells: int, in_windows: list[int], chunks: list[tuple[int, int, bool]]) -> float: ...


class Crowd:
    """Those who decode, as policies see them: one sequence. A member's `origin` is its written positions less the steps that the
    crowd had made when it joined, so that nothing of it changes while it stays."""

    decoding = True
    lane = 0

    def __init__(self, block_size: int, windows: tuple[int, ...]):
        self.block_size, self.windows = block_size, windows
        self.table = self
        self.blocks = ()  # counted, not listed
        self.members: dict[int, tuple[Sequence, int, int]] = {}  # by id: with its origin and the step in which it ends
        self.made = 0  # steps
        self.size = 0
        self.cells = 0  # positions written, all members together
        self.ends: list[int] = []  # a heap of steps in which somebody ends
        self.ending: dict[int, list[int]] = {}  # who
        self.phases = [0] * block_size  # members by origin modulo block size: those of one phase open blocks in the same steps
        self.in_windows = [0] * len(windows)
        self.growing = [0] * len(windows)  # members that a window still holds whole
        self.outgrow: list[dict[int, int]] = [{} for _ in windows]  # how many stop growing, by step

    @property
    def samples(self) -> int:
        return self.size

    def join(self, sequence: Sequence, written: int, steps: int) -> None:
        """written: positions in the cache; steps: until it has written its last token."""
        origin, end = written - self.made, self.made + steps
        self.members[sequence.id] = (sequence, origin, end)
        self.size += 1
        self.cells += written
        self.phases[origin % self.block_size] += 1
        if end in self.ending:
            self.ending[end].append(sequence.id)
        else:
            self.ending[end] = [sequence.id]
            heappush(self.ends, end)
        for n, window in enumerate(self.windows):
            self.in_windows[n] += min(written, window)
            if written < window:
                self.growing[n] += 1
                self.outgrow[n][window - origin] = self.outgrow[n].get(window - origin, 0) + 1

    def leave(self, id: int) -> tuple[Sequence, int]:
        """The sequence, and the positions that it has written."""
        sequence, origin, end = self.members.pop(id)
        written = origin + self.made
        self.size -= 1
        self.cells -= written
        self.phases[origin % self.block_size] -= 1
        self.ending[end].remove(id)
        for n, window in enumerate(self.windows):
            self.in_windows[n] -= min(written, window)
            if written < window:
                self.growing[n] -= 1
                self.outgrow[n][window - origin] -= 1
        return sequence, written

    def opening(self) -> int:
        """Blocks that the next step opens."""
        return self.phases[-self.made % self.block_size]

    def step(self) -> None:
        """All have written one token."""
        self.made += 1
        self.cells += self.size
        for n in range(len(self.windows)):
            self.in_windows[n] += self.growing[n]
            self.growing[n] -= self.outgrow[n].pop(self.made, 0)

    def next_end(self) -> int:
        """The step with which somebody is the next to end."""
        while not self.ending[self.ends[0]]:  # who was to end then was preempted
            del self.ending[heappop(self.ends)]
        return self.ends[0]

    def ended(self) -> list[int]:
        """Who has written the last token with the last step."""
        if self.ends and self.ends[0] == self.made:
            heappop(self.ends)
            return list(self.ending[self.made])
        return []


class Counted:
    """A block pool as far as policies ask: how many are free."""

    caching = False

    def __init__(self, total: int, block_size: int):
        self.free, self.block_size = total, block_size
        self.refs = Once()

    def blocks_for(self, positions: int) -> int:
        return -(-positions // self.block_size)

    def missing(self, table: Table | Crowd, tokens: int, shared=None) -> int:
        if type(table) is Crowd:
            return table.opening()
        return -(-(table.written + tokens) // self.block_size) - len(table.blocks)

    def writes_shared(self, table, shared=None) -> None:
        return None

    def match(self, ids) -> list:
        return []


class Once:
    """Every block is held by one table."""

    def __getitem__(self, block: int) -> int:
        return 1


class Running:
    """What runs, as policies go through it: the crowd as one, then those who still read; its length counts everybody."""

    def __init__(self, crowd: Crowd):
        self.crowd = crowd
        self.readers: list[Sequence] = []  # in order of arrival, all younger than the crowd

    def __iter__(self) -> Iterator[Sequence | Crowd]:
        if self.crowd.size:
            yield self.crowd
        yield from self.readers

    def __len__(self) -> int:
        return self.crowd.size + len(self.readers)


class State:
    """The state that policies look at, in place of a Scheduler."""

    def __init__(self, slots: int, budget: int, blocks: int, block_size: int, windows: tuple[int, ...]):
        self.slots, self.budget = slots, budget
        self.pool = Counted(blocks, block_size)
        self.crowd = Crowd(block_size, windows)
        self.running: Running | list[Sequence] = Running(self.crowd)
        self.readers = self.running.readers
        self.waiting: deque[Sequence] = deque()

    def reach(self, sequence: Sequence | Crowd) -> int:
        return self.crowd.size if sequence is self.crowd else 1

    @property
    def free_slots(self) -> int:
        return self.slots - len(self.running)

    def each(self) -> list[Sequence]:
        """Everybody who runs, one by one, in order of arrival, with tables as long as theirs."""
        found = []
        for sequence, origin, _ in self.crowd.members.values():
            written = origin + self.crowd.made
            sequence.table.written, sequence.ids = written, range(written + 1)
            sequence.table.blocks = blocks_of(sequence, self.pool.blocks_for(written))
            found.append(sequence)
        found.sort(key=lambda sequence: sequence.id)
        return found + self.readers


def blocks_of(sequence: Sequence, number: int) -> range:
    """Blocks that are like nobody else's."""
    return range(sequence.id << 24, (sequence.id << 24) + number)


class Served:
    """Seconds by request, filled in as they come true; and what all steps come to."""

    def __init__(self, requests: int):
        self.admitted: list[float | None] = [None] * requests
        self.first: list[float | None] = [None] * requests
        self.finished: list[float | None] = [None] * requests
        self.preemptions = self.steps = 0
        self.busy_seconds = self.slot_seconds = 0.0


def serve(
    policy: PolicyName, slots: int, budget: int, blocks: int, block_size: int, price: Amounts,
    arrives: list[float], prompts: list[int], outputs: list[int], cancelled: Callable[[], bool],
) -> Served:  # fmt: skip
    """Requests in order of arrival, each of which fits into the blocks alone. Raises Cancelled."""
    state, decide, requests = State(slots, budget, blocks, block_size, price.windows), POLICIES[policy], len(arrives)
    crowd, pool, readers, waiting, running = state.crowd, state.pool, state.readers, state.waiting, state.running
    arrives = [*arrives, float("inf")]
    served, clock, coming, ask = Served(requests), 0.0, 0, ASK

    def end(sequence: Sequence, written: int) -> None:
        served.finished[sequence.id] = clock
        pool.free += -(-written // block_size)

    while coming < requests or waiting or running:
        if served.steps >= ask:
            ask = served.steps + ASK
            if cancelled():
                raise Cancelled()
        if not waiting and not running:
            clock = max(clock, arrives[coming])
        while arrives[coming] <= clock:
            waiting.append(Sequence(coming, coming, range(prompts[coming]), prompts[coming], outputs[coming]))
            coming += 1

        plan = decide(state)
        if crowd in plan.preempted:
            state.running = state.each()
            plan = decide(state)
            state.running = running
        for sequence in plan.preempted:  # the youngest first
            if sequence.id in crowd.members:
                written = crowd.leave(sequence.id)[1]
            else:
                readers.remove(sequence)
                written = sequence.table.written
            pool.free += -(-written // block_size)
            sequence.table.written, sequence.table.blocks, sequence.lane = 0, (), None
            waiting.appendleft(sequence)
            served.preemptions += 1

        began = clock
        crowd_decodes, alone = apart(plan, crowd)
        if crowd_decodes and not plan.prefill and not alone:
            # All decode. The same plan comes out until somebody ends, blocks run out, or somebody arrives who may come in.
            stop, size, decode = crowd.next_end(), crowd.size, price.decode
            closed = bool(waiting) or len(running) >= slots
            until = crowd.made + 1 if plan.preempted else stop  # after a preemption the next plan is another one
            opening = crowd.opening()
            while True:
                pool.free -= opening
                clock += decode(size, crowd.cells, crowd.in_windows)
                crowd.step()
                served.steps += 1
                if crowd.made == until or (arrives[coming] <= clock and not closed) or (opening := crowd.opening()) > pool.free:
                    break
            served.slot_seconds += (clock - began) * len(running)
            if crowd.made == stop:
                for id in crowd.ended():
                    end(*crowd.leave(id))
        else:
            decoding, cells, in_windows = (crowd.size, crowd.cells, list(crowd.in_windows)) if crowd_decodes else (0, 0, [0] * len(price.windows))
            chunks, wrote = [], []
            for chunk in plan.prefill:
                sequence, start = chunk.sequence, chunk.sequence.table.written
                if sequence.lane is None:
                    readers.append(waiting.popleft())
                    sequence.lane = 0
                    if served.admitted[sequence.id] is None:
                        served.admitted[sequence.id] = began
                ends = start + chunk.tokens >= len(sequence.ids)
                chunks.append((start, chunk.tokens, ends))
                read(sequence, chunk.tokens, pool)
                if ends:
                    wrote.append(sequence)
            for sequence in alone:
                start = sequence.table.written
                decoding, cells, in_windows = decoding + 1, cells + start, [n + min(start, window) for n, window in zip(in_windows, price.windows)]
                read(sequence, 1, pool)
                wrote.append(sequence)
            served.slot_seconds -= clock * len(running)
            clock += price.mixed(decoding, cells, in_windows, chunks)
            served.slot_seconds += clock * len(running)
            served.steps += 1
            if crowd_decodes:
                pool.free -= crowd.opening()
                crowd.step()
                for id in crowd.ended():
                    end(*crowd.leave(id))
            for sequence in wrote:
                readers.remove(sequence)
                sequence.ids = range(len(sequence.ids) + 1)
                if sequence.written == 1:
                    served.first[sequence.id] = clock
                if sequence.written < sequence.limit:
                    crowd.join(sequence, sequence.table.written, sequence.limit - sequence.written)
                else:
                    end(sequence, sequence.table.written)
        served.busy_seconds += clock - began
    return served


def apart(plan: StepPlan, crowd: Crowd) -> tuple[bool, list[Sequence]]:
    """Whether the crowd decodes, and who does beside it: a reader with one token left of what it had written before it was preempted."""
    alone = [sequence for sequence in plan.decode if sequence is not crowd and sequence.id not in crowd.members]
    return len(plan.decode) > len(alone), alone


def read(sequence: Sequence, tokens: int, pool: Counted) -> None:
    table = sequence.table
    table.written += tokens
    blocks = pool.blocks_for(table.written)
    pool.free -= blocks - len(table.blocks)
    table.blocks = blocks_of(sequence, blocks)
