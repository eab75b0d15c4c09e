"""Runs a policy over requests without a model: every step has a price, and every sequence a known length.

The same scheduler and block tables as the engine's; only what a step takes and which tokens are written is made up here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence as Row
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from compute.batching import Scheduler, Sequence, StepPlan, Work
from compute.trace import Recorder, Trace


@dataclass(frozen=True)
class Job:
    """A request whose length is known beforehand to the simulation, and to no policy. prompt: tokens, or their ids where
    prefixes count; output: tokens written in the end; arrives: seconds of the simulated clock."""

    prompt: int | tuple[int, ...]
    output: int
    arrives: float = 0.0
    samples: int = 1


class Price(Protocol):
    """Seconds that a step takes. A price that also knows `many(work, steps)`, the seconds of steps that begin like `work` and
    find every read one position further on each time, lets long stretches of decoding be taken at once."""

    def __call__(self, work: Work) -> float: ...


@dataclass(frozen=True)
class Constant:
    """Every step takes as long as any other."""

    seconds: float

    def __call__(self, work: Work) -> float:
        return self.seconds

    def many(self, work: Work, steps: int) -> list[float]:
        return [self.seconds] * steps


unit = Constant(1.0)


def simulate(scheduler: Scheduler, jobs: Iterable[Job], price: Price = unit, *, watch: Callable[[Work, StepPlan], None] | None = None) -> Trace:
    """Runs until every job has ended. Jobs in order of arrival; the clock jumps over times when there is nothing to do.
    watch: told of each step before it is written down, for tests and for pictures of the block tables; nothing is taken at
    once then, and the trace is the same."""
    recorder, clock = Recorder(scheduler, "step" if price is unit else "second"), 0.0
    coming = sorted(jobs, key=lambda job: job.arrives)
    coming.reverse()
    many = None if watch else getattr(price, "many", None)
    made = 0
    while coming or scheduler.waiting or scheduler.running:
        if coming and not (scheduler.waiting or scheduler.running):
            clock = max(clock, coming[-1].arrives)
        while coming and coming[-1].arrives <= clock:
            job = coming.pop()
            ids = job.prompt if isinstance(job.prompt, tuple) else unknown(job.prompt, made)
            made += 1
            recorder.arrived(scheduler.submit(ids, job.output, samples=job.samples), job.arrives)
        plan = scheduler.plan()
        if many:
            work, steps = scheduler.steady(plan)
            if steps > 1:
                took = many(work, steps)
                ended = list(accumulate(took, initial=clock))[1:]
                if coming:
                    steps = min(steps, bisect_left(ended, coming[-1].arrives) + 1)
                recorder.stretch(work, ended[:steps], took[:steps], scheduler.repeat(plan, steps, own_token))
                clock = ended[steps - 1]
                continue
        work = scheduler.apply(plan)
        took = price(work)
        if watch:
            watch(work, plan)
        tokens: dict[Sequence, Row[int]] = {}
        for read in work.reads:
            sequence = read.sequence
            if sequence.table.written >= len(sequence.ids):
                for writer in (sequence, *(scheduler.fork(sequence) if sequence.samples > 1 else ())):
                    tokens[writer] = (own_token(writer),)
        done = scheduler.commit(work, tokens)
        clock += took
        recorder.step(plan, work, tokens, done, clock, took)
    return recorder.trace()


def own_token(sequence: Sequence) -> int:
    """One that no other sequence writes."""
    return -1 - sequence.id


def unknown(length: int, number: int) -> range:
    """Ids for a prompt of which only the length is known: shared with no other."""
    start = -(2**40) * (number + 1)
    return range(start, start + length)
