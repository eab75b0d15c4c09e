"""Who runs in the next step: policies, and the bookkeeping they decide over.

A policy is a function plan(state) → StepPlan. It looks and changes nothing. `Scheduler.apply` carries the plan out on the
block tables, somebody executes it (compute/simulate.py puts a price on it, compute/engine runs it), and `Scheduler.commit`
writes down what came of it. So what is simulated and what is executed is one thing.

All policies are first come first served: nobody overtakes the head of the queue, and when blocks run out the youngest is
preempted, so the oldest always gets on and nobody starves. Iteration-level scheduling: Yu et al. 2022 (Orca, §3.1);
preemption by recompute and swap: Kwon et al. 2023 (§4.5); chunked prefill: Agrawal et al. 2024 (Sarathi-Serve, §4).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence as Row
from dataclasses import dataclass, field
from typing import Literal

from compute.errors import BadInput
from compute.paging import BlockPool, Copy, Table

PolicyName = Literal["static", "continuous", "prefill-first", "chunked"]
Preemption = Literal["recompute", "swap"]


@dataclass(eq=False, slots=True)
class Sequence:
    """One text in the making. ids: the prompt and what was written since; table.written of them have their keys and values
    in the cache, the rest is still to be read."""

    id: int  # in order of arrival
    request: int  # several samples of one request share it
    ids: list[int]
    prompt: int  # tokens that the request brought
    limit: int  # tokens that it may write at most
    samples: int = 1  # texts that begin from this prompt, until it has been read; each needs a slot
    table: Table = field(default_factory=Table)
    lane: int | None = None  # the slot that it runs in
    swapped: int = 0  # positions whose keys and values wait outside the pool
    finished: bool = False

    @property
    def left(self) -> int:
        """Tokens to be read before the next one can be written; 1 while it decodes."""
        return len(self.ids) - self.table.written

    @property
    def decoding(self) -> bool:
        return len(self.ids) > self.prompt and len(self.ids) - self.table.written - self.swapped == 1

    @property
    def written(self) -> int:
        return len(self.ids) - self.prompt


@dataclass(frozen=True, slots=True)
class Chunk:
    """So many tokens of a prompt (or of what was lost by preemption) are read in this step; hits: positions before them that
    are found in the prefix cache, at admission."""

    sequence: Sequence
    tokens: int
    hits: int = 0


@dataclass(frozen=True, slots=True)
class StepPlan:
    prefill: tuple[Chunk, ...] = ()
    decode: tuple[Sequence, ...] = ()
    preempted: tuple[Sequence, ...] = ()


@dataclass(frozen=True, slots=True)
class Read:
    """Positions start … start + tokens − 1 of a sequence are computed in this step."""

    sequence: Sequence
    start: int
    tokens: int
    prefill: bool
    lane: int


@dataclass(frozen=True, slots=True)
class Move:
    """A sequence's blocks to or from outside the pool."""

    sequence: Sequence
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What a step has to do, in this order: swap out, swap in, copy, compute the reads."""

    reads: tuple[Read, ...] = ()
    copies: tuple[Copy, ...] = ()
    swapped_out: tuple[Move, ...] = ()
    swapped_in: tuple[Move, ...] = ()
    admitted: tuple[Sequence, ...] = ()


class Scheduler:
    """The state that policies look at, and the only one that changes it. budget: tokens a step may read, for the policies
    that heed it; ahead: guesses that are checked together with each decoded token (speculative decoding)."""

    def __init__(
        self, pool: BlockPool, slots: int, policy: PolicyName = "continuous", *,
        budget: int = 256, preemption: Preemption = "recompute", ahead: int = 0,
    ):  # fmt: skip
        for name, value, least in (("slots", slots, 1), ("budget", budget, 1), ("ahead", ahead, 0)):
            if value < least:
                raise BadInput(name, value, f"at least {least} is needed", f"至少要 {least}")
        if policy not in POLICIES:
            raise BadInput("policy", policy, f"it must be one of {', '.join(POLICIES)}", f"只能是 {'、'.join(POLICIES)}")
        self.pool, self.slots, self.policy, self.budget, self.preemption, self.ahead = pool, slots, policy, budget, preemption, ahead
        self.waiting: list[Sequence] = []  # in order of arrival
        self.running: list[Sequence] = []  # in order of arrival
        self._lanes = set(range(slots))  # free ones
        self._made = 0

    # ---- arrivals and departures

    def submit(self, ids: Row[int], limit: int, *, request: int | None = None, samples: int = 1) -> Sequence:
        """Raises BadInput as `check` does."""
        self.check(ids, limit, samples)
        number = self._made
        self._made += 1
        sequence = Sequence(number, number if request is None else request, list(ids), len(ids), limit, samples)
        self.waiting.append(sequence)
        return sequence

    def check(self, ids: Row[int], limit: int, samples: int = 1) -> None:
        """Raises BadInput for what could never run: no token, more samples than slots, or more than the whole pool holds."""
        if not ids:
            raise BadInput("prompt", "", "it is empty; write at least one character", "不能为空，请至少写一个字")
        if limit < 1:
            raise BadInput("max_tokens", limit, "it must be at least 1", "至少为 1")
        if not 1 <= samples <= self.slots:
            raise BadInput("n", samples, f"between 1 and {self.slots} samples can run together", f"一次可以要 1 到 {self.slots} 份")
        most = self.pool.total * self.pool.block_size
        if len(ids) + limit + self.ahead > most:
            en = f"with {len(ids)} prompt tokens it passes the {most} positions of the whole KV memory; shorten one of them"
            raise BadInput("max_tokens", limit, en, f"加上 {len(ids)} 个提示 token，超过了整个 KV 内存的 {most} 个位置；请缩短其一")

    def cancel(self, sequence: Sequence) -> None:
        """Its slot and blocks are free at once; harmless when it has ended."""
        if not sequence.finished:
            sequence.finished = True
            (self.waiting if sequence.lane is None else self.running).remove(sequence)
            self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        self.pool.release(sequence.table)
        if sequence.lane is not None:
            self._lanes.add(sequence.lane)
            sequence.lane = None

    @property
    def free_slots(self) -> int:
        """Slots that nobody runs in and no sample will need."""
        return self.slots - sum(sequence.samples for sequence in self.running)

    # ---- a step

    def plan(self) -> StepPlan:
        return POLICIES[self.policy](self)

    def reach(self, sequence: Sequence) -> int:
        """Positions that a decoding sequence writes in a step: one, and its guesses as far as its end."""
        return 1 + min(self.ahead, sequence.limit - sequence.written - 1) if self.ahead else 1

    def apply(self, plan: StepPlan) -> Work:
        pool, out, back, copies, reads = self.pool, [], [], [], []
        for sequence in plan.preempted:
            if self.preemption == "swap":
                sequence.swapped = sequence.table.written
                out.append(Move(sequence, tuple(sequence.table.blocks[: pool.blocks_for(sequence.swapped)])))
            self.running.remove(sequence)
            self._leave(sequence)
            insort(self.waiting, sequence, key=_order)
        admitted = sorted((s for s in (*(chunk.sequence for chunk in plan.prefill), *plan.decode) if s.lane is None), key=_order)
        for sequence in admitted:
            self.waiting.remove(sequence)
            insort(self.running, sequence, key=_order)
            sequence.lane = min(self._lanes)
            self._lanes.remove(sequence.lane)
            if not sequence.swapped:
                pool.adopt(sequence.table, sequence.ids)  # all hits are taken before any block is handed out
        for sequence in admitted:
            if sequence.swapped:
                pool.extend(sequence.table, sequence.swapped)
                back.append(Move(sequence, tuple(sequence.table.blocks)))
                sequence.swapped = 0
        for sequence in plan.decode:
            start = sequence.table.written
            copies += pool.extend(sequence.table, self.reach(sequence))
            reads.append(Read(sequence, start, sequence.table.written - start, False, sequence.lane))
        for chunk in plan.prefill:
            start = chunk.sequence.table.written
            copies += pool.extend(chunk.sequence.table, chunk.tokens)
            reads.append(Read(chunk.sequence, start, chunk.tokens, True, chunk.sequence.lane))
        return Work(tuple(reads), tuple(copies), tuple(out), tuple(back), tuple(admitted))

    def fork(self, sequence: Sequence) -> list[Sequence]:
        """The other samples of a request whose prompt has just been read: each in a slot of its own, sharing every block."""
        others = []
        for _ in range(sequence.samples - 1):
            other = Sequence(self._made, sequence.request, list(sequence.ids), sequence.prompt, sequence.limit)
            self._made += 1
            other.table, other.lane = self.pool.fork(sequence.table), min(self._lanes)
            self._lanes.remove(other.lane)
            insort(self.running, other, key=_order)
            others.append(other)
        sequence.samples = 1
        return others

    def commit(self, work: Work, tokens: Mapping[Sequence, Row[int]], ended: Iterable[Sequence] = ()) -> list[Sequence]:
        """Writes down what each sequence wrote (those that are still reading wrote nothing), and lets go of those that are
        `ended` or at their limit. Returns them."""
        tokens = {sequence: new for sequence, new in tokens.items() if not sequence.finished}  # nor was cancelled meanwhile
        for sequence, new in tokens.items():
            sequence.ids.extend(new)
            self.pool.rewind(sequence.table, sequence.table.written - len(sequence.ids) + 1)  # rejected guesses
        done = [sequence for sequence in tokens if sequence.written >= sequence.limit]
        done += [sequence for sequence in ended if sequence.written < sequence.limit and not sequence.finished]
        if self.pool.caching:
            for sequence in dict.fromkeys([*(read.sequence for read in work.reads), *tokens]):
                if not sequence.finished:
                    self.pool.seal(sequence.table, sequence.ids)
        for sequence in done:
            sequence.finished = True
            self.running.remove(sequence)
            self._leave(sequence)
        return done

    # ---- many steps at once

    def steady(self, plan: StepPlan) -> tuple[Work, int]:
        """The work of a plan in which all decode, and for how many steps, this one included, the same plan is certain to come
        out while nobody arrives or leaves and each writes one token that no other text holds; 0 for any other plan. Nobody
        reaches the end in them. Who was not admitted now is not admitted later: slots stay taken, and blocks only get fewer."""
        if plan.prefill or plan.preempted or not plan.decode or plan.decode != tuple(self.running):
            return Work(), 0
        if any(self.pool.writes_shared(sequence.table) is not None for sequence in plan.decode):
            return Work(), 0
        steps = min(sequence.limit - sequence.written - max(1, self.ahead) for sequence in plan.decode)
        if self._opened(plan, steps) > self.pool.free:
            steps = bisect_right(range(steps), self.pool.free, key=lambda n: self._opened(plan, n)) - 1
        reads = (Read(sequence, sequence.table.written, self.reach(sequence), False, sequence.lane) for sequence in plan.decode)
        return Work(tuple(reads)), max(steps, 0)

    def _opened(self, plan: StepPlan, steps: int) -> int:
        """Blocks that so many steps of decoding hand out."""
        if steps < 1:
            return 0
        tables = [(len(sequence.table.blocks), sequence.table.written + steps - 1 + self.reach(sequence)) for sequence in plan.decode]
        return sum(max(0, self.pool.blocks_for(positions) - blocks) for blocks, positions in tables)

    def repeat(self, plan: StepPlan, steps: int, token: Callable[[Sequence], int]) -> list[int]:
        """What so many times plan, apply and commit would do, for no more steps than `steady` says; token: what a sequence
        writes in each of them. Only steps in which a block is handed out or becomes full are visited. Returns the used blocks
        after each step."""
        pool, size = self.pool, self.pool.block_size
        before = [(sequence.table.written, self.reach(sequence)) for sequence in plan.decode]
        events = []  # (step, 0: a block is handed out, 1: one is full; sequence)
        for at, (sequence, (written, reach)) in enumerate(zip(plan.decode, before)):
            sequence.ids += [token(sequence)] * steps
            first = len(sequence.table.blocks) * size - written - reach + 1  # the step in which it writes past its blocks
            events += [(step, 0, at) for step in range(first if first > 0 else first % size, steps, size)]
            events += [(0, 0, at)] * (first < 0)
            if pool.caching:
                events += [(step, 1, at) for step in range(-(written + 1) % size, steps, size)]
        used, counted = [], pool.used
        for step, full, at in sorted(events):
            used += [counted] * (step - len(used))
            sequence, (written, reach) = plan.decode[at], before[at]
            if full:
                sequence.table.written = written + step + 1
                pool.seal(sequence.table, sequence.ids)
            else:
                pool.cover(sequence.table, written + step + reach)
            counted = pool.used
        for sequence, (written, _) in zip(plan.decode, before):
            sequence.table.written = written + steps
        return used + [counted] * (steps - len(used))


def _order(sequence: Sequence) -> int:
    return sequence.id


# ---- what a plan may take


class Room:
    """Blocks and slots that are left while a plan is being made; taken in the order in which `apply` will take them."""

    def __init__(self, state: Scheduler):
        self.state, self.pool = state, state.pool
        self.blocks, self.slots = state.pool.free, state.free_slots
        self.shared: dict[int, int] = {}  # planned changes of reference counts

    def take(self, sequence: Sequence, tokens: int) -> bool:
        """Blocks for a running sequence to write so many tokens; False, and nothing taken, where they are missing."""
        need = self.pool.missing(sequence.table, tokens, self.shared)
        if need > self.blocks:
            return False
        self.blocks -= need
        if need and (block := self.pool.writes_shared(sequence.table, self.shared)) is not None:
            self._count(block, -1)
        return True

    def give_back(self, sequence: Sequence) -> None:
        """What a preempted sequence leaves."""
        self.slots += sequence.samples
        for block in sequence.table.blocks:
            if self._count(block, -1) == 0:
                self.blocks += 1

    def admit(self, sequence: Sequence, most: int) -> Chunk | None:
        """Slots and blocks for a waiting sequence to read what it lacks, at most `most` tokens; None where they are missing."""
        if sequence.samples > self.slots:
            return None
        found = [] if sequence.swapped else self.pool.match(sequence.ids)
        hits = len(found) * self.pool.block_size
        tokens = min(most, len(sequence.ids) - sequence.swapped - hits)
        need = self.pool.blocks_for(sequence.swapped + hits + tokens) - len(found)
        need += sum(self.pool.refs[cached.block] + self.shared.get(cached.block, 0) == 0 for cached in found)
        if sequence.decoding:
            need = self.pool.blocks_for(sequence.swapped + self.state.reach(sequence))
        if need + len(self.state.running) > self.blocks:  # each of the running can still open a block, or it would go in vain
            return None
        self.blocks -= need
        self.slots -= sequence.samples
        for cached in found:
            self._count(cached.block, +1)
        return Chunk(sequence, tokens, hits)

    def _count(self, block: int, change: int) -> int:
        self.shared[block] = self.shared.get(block, 0) + change
        return self.pool.refs[block] + self.shared[block]


# ---- policies


def static(state: Scheduler) -> StepPlan:
    """A batch is filled when the one before has ended to the last sequence: who is done waits for the longest."""
    if state.running:
        return keep(state, Room(state), whole)
    return admit(state, Room(state), StepPlan(), whole)


def continuous(state: Scheduler) -> StepPlan:
    """After every step the finished leave and the waiting come in; their prompts are read whole, beside the others' decoding."""
    room = Room(state)
    return admit(state, room, keep(state, room, whole), whole)


def prefill_first(state: Scheduler) -> StepPlan:
    """Whoever waits and fits has the prompt read at once, in a step without decoding; else all decode."""
    reading = admit(state, Room(state), StepPlan(), state.budget, at_least_one=True)
    return reading if reading.prefill or reading.decode else keep(state, Room(state), whole)


def chunked(state: Scheduler) -> StepPlan:
    """All decode in every step; what the token budget leaves goes to prompts, in pieces."""
    room = Room(state)
    left = max(0, state.budget - sum(state.reach(s) for s in state.running if s.decoding))
    plan = keep(state, room, left)
    return admit(state, room, plan, left - sum(chunk.tokens for chunk in plan.prefill))


POLICIES: dict[PolicyName, Callable[[Scheduler], StepPlan]] = {
    "static": static, "continuous": continuous, "prefill-first": prefill_first, "chunked": chunked,
}  # fmt: skip

whole = 2**62  # a budget that never ends


def keep(state: Scheduler, room: Room, budget: int) -> StepPlan:
    """The running go on, the oldest first; where blocks are missing the youngest that has not got its share is preempted."""
    prefill, decode, preempted = [], [], []
    todo = list(state.running)
    at = 0
    while at < len(todo):
        sequence = todo[at]
        decoding = sequence.decoding
        tokens = state.reach(sequence) if decoding else min(sequence.left, budget)
        while tokens and not room.take(sequence, tokens):
            preempted.append(todo.pop())
            room.give_back(preempted[-1])
            if preempted[-1] is sequence:
                break
        else:
            if decoding:
                decode.append(sequence)
            elif tokens:
                prefill.append(Chunk(sequence, tokens))
                budget -= tokens
        at += 1
    return StepPlan(tuple(prefill), tuple(decode), tuple(preempted))


def admit(state: Scheduler, room: Room, plan: StepPlan, budget: int, at_least_one: bool = False) -> StepPlan:
    """Adds the waiting in their order until one does not fit; nobody is admitted in a step that preempts.
    at_least_one: prompts are read whole, the first also beyond the budget, the next only if they stay within it."""
    if plan.preempted:
        return plan
    prefill, decode = list(plan.prefill), list(plan.decode)
    for sequence in state.waiting:
        least = state.reach(sequence) if sequence.decoding else len(sequence.ids) - sequence.swapped if at_least_one else 1
        if least > budget and (prefill or decode):
            break
        chunk = room.admit(sequence, whole if at_least_one else budget)
        if chunk is None:
            break
        if sequence.decoding:  # it was swapped out and has nothing to read again
            decode.append(sequence)
            budget -= state.reach(sequence)
        else:
            prefill.append(chunk)
            budget -= chunk.tokens
    return StepPlan(tuple(prefill), tuple(decode), plan.preempted)
