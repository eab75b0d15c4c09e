"""Runs a policy over requests without a model: every step has a price, and every sequence a known length.

The same scheduler and block tables as the engine's; only what a step takes and which tokens are written is made up here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence as Row
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, Protocol

from pydantic import Field

from compute import facts
from compute.batching import PolicyName, Preemption, Scheduler, Sequence, StepPlan, Work
from compute.calibrated import PCIE_5_X16, Clock, Format
from compute.errors import BadInput
from compute.facts import ChipRef, ModelRef
from compute.paging import BlockPool
from compute.roofline import memory, require_fit, weight_bytes
from compute.trace import Recorder, Summary, Trace, summary


REQUESTS, TOKENS = 1_000, 100_000  # what `run` takes


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


def roofline(
    model: ModelRef, chip: ChipRef, *, weight_bits: float = 16, group: int = 128, kv_bits: float = 16, block_size: int = 16,
    link_bytes_per_s: float = PCIE_5_X16,
) -> Clock:  # fmt: skip
    """The ideal price of a step of `model` on `chip`: the bound of compute/roofline.py, for steps that read and write at once.
    link_bytes_per_s: between the chip and where sequences are swapped to; by default what PCIe 5.0 x16 carries at most, which is an
    assumption about the machine. Raises Refused when the weights alone do not fit; whether the blocks fit too is for the caller to know."""
    shape, card = facts.model(model), facts.chip(chip)
    require_fit(shape, card, memory(shape, card, 0, 0, weight_bits, group, kv_bits))
    format = Format(8 * weight_bytes(weight_bits, group), kv_bits, "fp32" if weight_bits > 16 else "bf16")
    return Clock(shape, card, format, block_size=block_size, link_bytes_per_s=link_bytes_per_s)


# ---- the run


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


# ---- from the command line

Lengths = Annotated[list[Annotated[int, Field(ge=1, le=TOKENS)]], Field(min_length=1, max_length=REQUESTS)]


@dataclass(frozen=True)
class Simulated:
    """trace: as compute/trace.py writes it."""

    summary: Summary
    trace: dict[str, Any]


def run(
    prompts: Annotated[Lengths, Field(description="tokens of each request's prompt")],
    outputs: Annotated[Lengths, Field(description="tokens that each request writes")],
    arrivals: Annotated[list[Annotated[float, Field(ge=0, le=1e9)]], Field(max_length=REQUESTS, description="when each arrives, in steps, or in seconds where model and chip are given; none: all at 0")] = [],
    policy: PolicyName = "continuous",
    slots: Annotated[int, Field(ge=1, le=256, description="sequences that run together")] = 8,
    blocks: Annotated[int, Field(ge=1, le=1_000_000, description="blocks of KV memory")] = 1024,
    block_size: Annotated[int, Field(ge=1, le=1024, description="positions in a block")] = 16,
    budget: Annotated[int, Field(ge=1, le=TOKENS, description="tokens a step may read, where a policy heeds it")] = 256,
    preemption: Preemption = "recompute",
    model: Annotated[ModelRef | None, Field(description="with chip: steps take as long as the roofline says")] = None,
    chip: ChipRef | None = None,
) -> Simulated:
    """Runs requests of known lengths through a policy, without a model. Every step counts 1, or what the roofline of a model on a
    chip says that it takes. Gives what it comes to, and the trace of every step."""
    for name, given in (("outputs", outputs), ("arrivals", arrivals)):
        if given and len(given) != len(prompts):
            en, zh = f"as many entries are needed as there are prompts, {len(prompts)}", f"要和提示一样多，即 {len(prompts)} 项"
            raise BadInput(name, len(given), en, zh)
    if (total := sum(prompts) + sum(outputs)) > TOKENS:
        raise BadInput("outputs", total, f"prompts and outputs together may be {TOKENS} tokens at most", f"提示和输出合计最多 {TOKENS} 个 token")
    if (model is None) != (chip is None):
        raise BadInput("chip" if chip is None else "model", None, "a price needs both model and chip; give both or neither", "按时间计价要同时给出 model 和 chip，要么都不给")
    price = unit if model is None else roofline(model, chip, block_size=block_size)
    scheduler = Scheduler(BlockPool(blocks, block_size), slots, policy, budget=budget, preemption=preemption)
    jobs = [Job(*each) for each in zip(prompts, outputs, arrivals or [0.0] * len(prompts))]
    for number, job in enumerate(jobs):
        try:
            scheduler.check(range(job.prompt), job.output)
        except BadInput as wrong:
            raise BadInput(f"outputs.{number}", job.output, wrong.values["reason"], wrong.values["reason_zh"]) from None
    trace = simulate(scheduler, jobs, price)
    return Simulated(summary(trace), trace.to_json())
