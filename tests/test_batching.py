"""Policies and scheduler over thousands of random little workloads, with an executor that keeps a memory of cells: whatever
a plan says, the texts must be read back right, everybody must get on, and nothing may be lost."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from itertools import product
from random import Random

import pytest

from compute.batching import POLICIES, Scheduler, Sequence, StepPlan
from compute.errors import BadInput
from compute.paging import BlockPool

ALL = list(product(POLICIES, ("recompute", "swap"), (0, 1, 3), (False, True)))


def whole_state(s: Scheduler) -> tuple:
    """Everything that a plan could have changed, taken apart into values."""
    everybody = [(q.id, tuple(q.ids), q.samples, q.lane, q.swapped, q.finished, *map(tuple, (q.table.blocks, q.table.chain)), q.table.written)
                 for q in s.waiting + s.running]  # fmt: skip
    pool = s.pool
    return everybody, len(s.waiting), set(s._lanes), list(pool.refs), sorted(pool._blank), pool.idle, dict(pool.cached), pool.evicted


class World:
    """Executes plans by the documented order of `Work`, with tokens that it makes up."""

    def __init__(self, seed, policy, preemption, ahead, caching):
        self.random = r = Random(f"{seed} {policy} {preemption} {ahead} {caching}")
        slots, size = r.randint(1, 5), r.randint(1, 4)
        pool = BlockPool(r.randint(12, 32) // size, size, caching=caching)
        self.s = Scheduler(pool, slots, policy, budget=r.randint(1, 14), preemption=preemption, ahead=ahead)
        self.memory = [[None] * size for _ in range(pool.total)]
        self.host: dict[Sequence, list[list]] = {}
        self.everybody: list[Sequence] = []
        self.wishes: dict[Sequence, int] = {}  # tokens after which it ends
        self.counts = Counter()

    def submit(self):
        r, most = self.random, self.s.pool.total * self.s.pool.block_size
        start = [r.randrange(2) for _ in range(6)] if r.random() < 0.3 else [0, 1, 1, 0, 1, 0]
        ids = (start + [r.randrange(2) for _ in range(6)])[r.choice([0, 0, 5]) :][: r.randint(1, min(12, most - 1 - self.s.ahead))]
        limit = r.randint(1, min(14, most - len(ids) - self.s.ahead))
        sequence = self.s.submit(ids, limit, samples=r.choice([1, 1, r.randint(1, self.s.slots)]))
        self.made(sequence)
        return sequence

    def made(self, sequence):
        self.everybody.append(sequence)
        self.wishes[sequence] = self.random.choice([sequence.limit, self.random.randint(1, sequence.limit)])

    def step(self):
        s = self.s
        before = whole_state(s)
        plan = s.plan()
        assert whole_state(s) == before and s.plan() == plan  # pure
        self.look_at(plan)
        waiting, running, last = list(s.waiting), list(s.running), {q: (len(q.ids), q.table.written + q.swapped) for q in s.waiting + s.running}
        if plan.preempted and s.policy != "chunked":
            self.one_less_would_not_do(plan)
        work = s.apply(plan)
        assert list(work.admitted) == waiting[: len(work.admitted)], "somebody overtook the head of the queue"
        assert not (s.policy == "static" and work.admitted and running)
        assert sum(q.samples for q in s.running) <= s.slots and len({q.lane for q in s.running}) == len(s.running)
        assert [(r.sequence, r.tokens) for r in work.reads if r.prefill] == [(c.sequence, c.tokens) for c in plan.prefill]
        assert tuple(r.sequence for r in work.reads if not r.prefill) == plan.decode
        for chunk, read in zip(plan.prefill, (r for r in work.reads if r.prefill)):
            assert chunk.hits == (read.start - last[chunk.sequence][1] if chunk.sequence in work.admitted else 0)
        tokens, ended = self.execute(work)
        s.commit(work, tokens, ended)
        self.counts.update(steps=1, preempted=len(plan.preempted), copies=len(work.copies), swapped=len(work.swapped_in), hits=sum(c.hits for c in plan.prefill))
        self.check()

    def look_at(self, plan: StepPlan):
        """What each policy promises about a single plan."""
        s, shares = self.s, {chunk.sequence for chunk in plan.prefill} | set(plan.decode)
        assert shares or not (s.waiting or s.running), "nobody gets on"
        assert all(q.decoding for q in plan.decode) and not any(c.sequence.decoding for c in plan.prefill)
        young = s.running[len(s.running) - len(plan.preempted) :]
        assert set(plan.preempted) == set(young) and not shares & set(young)
        decoded = sum(s.reach(q) for q in plan.decode)
        if s.policy == "chunked":
            assert decoded + sum(c.tokens for c in plan.prefill) <= max(s.budget, decoded)
        else:
            assert all(c.tokens == len(c.sequence.ids) - c.sequence.table.written - c.sequence.swapped - c.hits for c in plan.prefill)
        if s.policy == "prefill-first" and any(q.lane is None for q in shares):
            assert all(q.lane is None for q in shares)
        elif s.running:
            first = s.running[0]
            others = sum(s.reach(q) for q in s.running if q.decoding)  # those too that turn out to be preempted
            assert first in shares or (s.policy == "chunked" and not first.decoding and others >= s.budget), "the oldest does not get on"
            assert all(q in shares or q in plan.preempted for q in s.running if q.decoding)

    def one_less_would_not_do(self, plan: StepPlan):
        """A sequence was preempted because there was no other way: keeping the oldest of them would have passed the pool."""
        s = deepcopy(self.s)
        mine = {q.id: q for q in s.running}
        keep = mine[min(q.id for q in plan.preempted)]
        decode = [mine[q.id] for q in plan.decode] + [keep] * keep.decoding
        prefill = [(mine[c.sequence.id], c.tokens) for c in plan.prefill] + ([] if keep.decoding else [(keep, keep.left)])
        for sequence in plan.preempted:
            if sequence.id != keep.id:
                s.pool.release(mine[sequence.id].table)
        with pytest.raises(MemoryError):
            for sequence in decode:
                s.pool.extend(sequence.table, s.reach(sequence))
            for sequence, tokens in prefill:
                s.pool.extend(sequence.table, tokens)

    def execute(self, work):
        """In the documented order. Writes what each position holds, reads every text back, and writes the next tokens: of the
        guesses that were read along, the first few come true."""
        s, size, memory = self.s, self.s.pool.block_size, self.memory
        for move in work.swapped_out:
            self.host[move.sequence] = [list(memory[block]) for block in move.blocks]
        for move in work.swapped_in:
            for block, cells in zip(move.blocks, self.host.pop(move.sequence), strict=True):
                memory[block] = cells
        for copy in work.copies:
            memory[copy.target] = list(memory[copy.source])
        guessed = {}
        for read in work.reads:
            sequence, end = read.sequence, read.start + read.tokens
            guesses = [self.random.randrange(2) for _ in range(max(0, end - len(sequence.ids)))]
            assert not (guesses and read.prefill) and len(sequence.ids) >= read.start + (read.tokens if read.prefill else 1)
            assert read.prefill or sequence.written + read.tokens <= sequence.limit, "guesses past the end"
            for at in range(read.start, end):
                memory[sequence.table.blocks[at // size]][at % size] = (sequence.ids + guesses)[at]
            guessed[sequence] = guesses
        tokens, ended = {}, []
        for read in work.reads:
            sequence, guesses = read.sequence, guessed[read.sequence]
            assert self.read_back(sequence, sequence.table.written) == sequence.ids + guesses if guesses or sequence.left == 0 else True
            if sequence.left > 0:
                continue
            for writer in [sequence, *(s.fork(sequence) if sequence.samples > 1 else [])]:
                if writer is not sequence:
                    self.made(writer)
                new = guesses[: self.random.randint(0, len(guesses))] + [self.random.randrange(2)]
                tokens[writer] = new[: self.wishes[writer] - writer.written]
                if writer.written + len(tokens[writer]) >= self.wishes[writer]:
                    ended.append(writer)
        return tokens, ended

    def read_back(self, sequence, positions):
        size = self.s.pool.block_size
        return [self.memory[sequence.table.blocks[at // size]][at % size] for at in range(positions)]

    def check(self):
        s, pool = self.s, self.s.pool
        owners = Counter(block for q in s.running for block in q.table.blocks)
        assert pool.refs == [owners[block] for block in range(pool.total)] and pool.used == len(owners)
        assert [q.id for q in s.running] == sorted(q.id for q in s.running) and [q.id for q in s.waiting] == sorted(q.id for q in s.waiting)
        assert s._lanes | {q.lane for q in s.running} == set(range(s.slots)) and len(s._lanes) + len(s.running) == s.slots
        for q in s.running:
            assert not q.finished and self.read_back(q, q.table.written) == q.ids[: q.table.written]
        for q in s.waiting:
            assert not q.finished and q.lane is None and not q.table.blocks and len(self.host.get(q, ())) == pool.blocks_for(q.swapped)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_ends_with_its_own_length(policy):
    """Catches: starvation, overtaking, a slot lent twice, blocks counted otherwise by the plan than by what is done, contents
    lost by preemption, copying or swapping, a budget passed, a batch that is joined in the middle, plans that change things."""
    seen = Counter()
    for seed, (_, preemption, ahead, caching) in product(range(50), [each for each in ALL if each[0] == policy]):
        world = World(seed, policy, preemption, ahead, caching)
        left, asked = world.random.randint(1, 9), []
        bound = 0
        while left or world.s.waiting or world.s.running:
            while left and (world.random.random() < 0.3 or not (world.s.waiting or world.s.running)):
                asked.append(world.submit())
                bound += asked[-1].samples * (asked[-1].limit + asked[-1].prompt) + 1
                left -= 1
            world.step()
            assert world.counts["steps"] <= 3 * bound, "it goes on for ever"
        assert all(q.finished and q.written == world.wishes[q] for q in world.everybody) and len(world.everybody) >= len(asked)
        assert world.s.pool.free == world.s.pool.total and not world.host
        seen += world.counts
        seen[preemption] += world.counts["preempted"]
    assert min(seen[what] for what in ("copies", "swapped", "hits", "recompute", "swap")) > 50, seen  # it looked at something


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_leaks_when_requests_are_cancelled_at_any_moment(policy):
    """10,000 random events in all. Catches: a cancelled request that keeps its slot, its samples' slots, a block or its place
    in the queue; one that is cancelled twice and gives them back twice."""
    for seed in range(5):
        r = Random(seed)
        world = World(seed, policy, *r.choice([each[1:] for each in ALL]))
        for _ in range(500):
            event = r.random()
            if event < 0.3:
                world.submit()
            elif event < 0.55 and world.everybody:
                gone = r.choice(world.everybody[-8:])
                world.s.cancel(gone)
                world.s.cancel(gone)
                world.host.pop(gone, None)
                world.check()
            else:
                world.step()
        for sequence in world.everybody:
            world.s.cancel(sequence)
        world.check()
        assert world.s.pool.free == world.s.pool.total and world.s.free_slots == world.s.slots and not world.s.waiting


def run(s: Scheduler, steps: int) -> list[StepPlan]:
    plans = []
    for _ in range(steps):
        plans.append(s.plan())
        work = s.apply(plans[-1])
        s.commit(work, {read.sequence: (9,) for read in work.reads if read.sequence.left == 0})
    return plans


def test_nobody_is_admitted_only_to_be_preempted():
    """Catches: a prompt read in vain, into the block that the other needs in the next step."""
    s = Scheduler(BlockPool(4, 2), 2)
    one = s.submit([1, 2, 3], 3)
    run(s, 1)
    two = s.submit([4, 5, 6, 7], 1)
    plans = run(s, 4)
    assert not any(plan.preempted for plan in plans) and [bool(plan.prefill) for plan in plans] == [False, False, True, False]
    assert one.finished and two.finished


def test_a_prefix_found_twice_is_counted_once():
    """Catches: the cached block of two newcomers asked for twice, so that the second waits for room that is there."""
    s = Scheduler(BlockPool(3, 2, caching=True), 2)
    s.submit([1, 2, 3], 1)
    run(s, 1)
    assert s.pool.free == 3 and s.pool.idle
    for last in (4, 5):
        s.submit([1, 2, last], 1)
    assert [(chunk.tokens, chunk.hits) for chunk in s.plan().prefill] == [(1, 2), (1, 2)]
    run(s, 1)
    assert s.pool.free == 3 and not s.running


def test_who_is_cancelled_during_a_step_takes_nothing_back():
    """Catches: a client that leaves between apply and commit, whose token then brings it back into a table without blocks."""
    s = Scheduler(BlockPool(8, 2, caching=True), 2)
    one, two = s.submit([1, 2, 3], 1), s.submit([1, 2, 3], 5)
    work = s.apply(s.plan())
    s.cancel(one)
    s.cancel(two)
    assert s.commit(work, {one: [7], two: [8]}, [two]) == [] and one.ids == [1, 2, 3]
    assert s.pool.free == 8 and s.free_slots == 2 and not s.pool.cached


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda s: s.submit([], 1), "prompt"),
        (lambda s: s.submit([1], 0), "max_tokens"),
        (lambda s: s.submit([1], 1, samples=3), "between 1 and 2 samples"),
        (lambda s: s.submit([1] * 5, 4), "8 positions"),
        (lambda s: Scheduler(s.pool, 0), "slots"),
        (lambda s: Scheduler(s.pool, 1, "random"), "static, continuous"),
    ],
)
def test_what_could_never_run_is_refused_at_once(ask, words):
    """Catches: a request that waits for ever, because no pool and no batch will ever hold it."""
    with pytest.raises(BadInput, match=words):
        ask(Scheduler(BlockPool(4, 2), 2))
