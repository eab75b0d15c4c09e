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
from math import inf
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
        if end in self.ending:
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
            return self.ending.pop(self.made)
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
        self.together = Running(self.crowd)
        self.running: Running | list[Sequence] = self.together
        self.readers = self.together.readers
        self.waiting: deque[Sequence] = deque()

    def reach(self, sequence: Sequence | Crowd) -> int:
        return self.crowd.size if sequence is self.crowd else 1

    @property
    def free_slots(self) -> int:
        return self.slots - len(self.running)

    def plan(self, policy: Callable[[State], StepPlan]) -> StepPlan:
        plan = policy(self)
        if self.crowd in plan.preempted:
            self.running = self.each()
            plan = policy(self)
            self.running = self.together
        return plan

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

    def apart(self, plan: StepPlan) -> tuple[bool, list[Sequence]]:
        """Whether the crowd decodes, and who does beside it: a reader that had written before it was preempted, and lacks one token."""
        alone = [sequence for sequence in plan.decode if sequence is not self.crowd and sequence.id not in self.crowd.members]
        return len(plan.decode) > len(alone), alone

    def preempt(self, sequence: Sequence) -> None:
        if sequence.id in self.crowd.members:
            written = self.crowd.leave(sequence.id)[1]
        else:
            self.readers.remove(sequence)
            written = sequence.table.written
        self.give_back(written)
        sequence.table.written, sequence.table.blocks, sequence.lane = 0, (), None
        self.waiting.appendleft(sequence)

    def read(self, sequence: Sequence, tokens: int) -> None:
        table = sequence.table
        table.written += tokens
        blocks = self.pool.blocks_for(table.written)
        self.pool.free -= blocks - len(table.blocks)
        table.blocks = blocks_of(sequence, blocks)

    def give_back(self, written: int) -> None:
        self.pool.free += self.pool.blocks_for(written)


def blocks_of(sequence: Sequence, number: int) -> range:
    """Blocks that are like nobody else's."""
    return range(sequence.id << 24, (sequence.id << 24) + number)


# ---- from the first arrival to the last token


class Service:
    """Seconds by request, as they come true. Requests in order of arrival, each of which fits into the blocks alone."""

    def __init__(
        self, policy: PolicyName, slots: int, budget: int, blocks: int, block_size: int, price: Amounts,
        arrives: list[float], prompts: list[int], outputs: list[int],
    ):  # fmt: skip
        self.policy, self.price = POLICIES[policy], price
        self.state = State(slots, budget, blocks, block_size, price.windows)
        self.arrives, self.prompts, self.outputs = [*arrives, inf], prompts, outputs
        self.admitted, self.first, self.finished = ([None] * len(arrives) for _ in range(3))
        self.clock, self.coming, self.steps, self.preemptions = 0.0, 0, 0, 0

    def run(self, cancelled: Callable[[], bool]) -> None:
        """Raises Cancelled."""
        state, crowd, ask = self.state, self.state.crowd, ASK
        while self.coming < len(self.prompts) or state.waiting or state.running:
            if self.steps >= ask:
                ask = self.steps + ASK
                if cancelled():
                    raise Cancelled()
            if not state.waiting and not state.running:
                self.clock = max(self.clock, self.arrives[self.coming])
            self.arrive()
            plan = state.plan(self.policy)
            for sequence in plan.preempted:  # the youngest first
                state.preempt(sequence)
                self.preemptions += 1
            crowd_decodes, alone = state.apart(plan)
            if crowd_decodes and not plan.prefill and not alone:
                self.decode(once=bool(plan.preempted))  # after a preemption the next plan is another one
                wrote = []
            else:
                wrote = self.mixed(plan, crowd_decodes, alone)
            for id in crowd.ended():
                self.end(*crowd.leave(id))
            for sequence in wrote:
                self.write(sequence)

    def arrive(self) -> None:
        while self.arrives[self.coming] <= self.clock:
            at = self.coming
            self.state.waiting.append(Sequence(at, at, range(self.prompts[at]), self.prompts[at], self.outputs[at]))
            self.coming += 1

    def decode(self, once: bool) -> None:
        """The same plan comes out until somebody ends, blocks run out, or somebody arrives who may come in."""
        state, crowd, pool, price, arrives = self.state, self.state.crowd, self.state.pool, self.price.decode, self.arrives[self.coming]
        if state.waiting or not state.free_slots:
            arrives = inf
        clock, size, until, opening = self.clock, crowd.size, crowd.made + 1 if once else crowd.next_end(), crowd.opening()
        before = crowd.made
        while True:
            pool.free -= opening
            clock += price(size, crowd.cells, crowd.in_windows)
            crowd.step()
            if crowd.made == until or arrives <= clock or (opening := crowd.opening()) > pool.free:
                break
        self.clock, self.steps = clock, self.steps + crowd.made - before

    def mixed(self, plan: StepPlan, crowd_decodes: bool, alone: list[Sequence]) -> list[Sequence]:
        """One step in which somebody reads. Returns who reads to the end in it, and so writes a token."""
        state, crowd, windows = self.state, self.state.crowd, self.price.windows
        decoding, cells, in_windows = (crowd.size, crowd.cells, list(crowd.in_windows)) if crowd_decodes else (0, 0, [0] * len(windows))
        chunks, wrote = [], []
        for chunk in plan.prefill:
            sequence, start = chunk.sequence, chunk.sequence.table.written
            if sequence.lane is None:
                state.readers.append(state.waiting.popleft())
                sequence.lane = 0
                if self.admitted[sequence.id] is None:
                    self.admitted[sequence.id] = self.clock
            ends = start + chunk.tokens >= len(sequence.ids)
            chunks.append((start, chunk.tokens, ends))
            state.read(sequence, chunk.tokens)
            if ends:
                wrote.append(sequence)
        for sequence in alone:
            start = sequence.table.written
            decoding, cells, in_windows = decoding + 1, cells + start, [n + min(start, window) for n, window in zip(in_windows, windows)]
            state.read(sequence, 1)
            wrote.append(sequence)
        self.clock += self.price.mixed(decoding, cells, in_windows, chunks)
        self.steps += 1
        if crowd_decodes:
            state.pool.free -= crowd.opening()
            crowd.step()
        return wrote

    def write(self, sequence: Sequence) -> None:
        """The token that follows what was read."""
        self.state.readers.remove(sequence)
        sequence.ids = range(len(sequence.ids) + 1)
        if sequence.written == 1:
            self.first[sequence.id] = self.clock
        if sequence.written < sequence.limit:
            self.state.crowd.join(sequence, sequence.table.written, sequence.limit - sequence.written)
        else:
            self.end(sequence, sequence.table.written)

    def end(self, sequence: Sequence, written: int) -> None:
        self.finished[sequence.id] = self.clock
        self.state.give_back(written)
