"""What happened in every step, simulated or executed: one record, which the player draws and anybody can keep as JSON.

    {"version": 1, "policy": …, "slots": …, "blocks": …, "block_size": …, "clock": "step" | "second", "first": …,
     "sequences": [{"id", "request", "prompt", "arrived", "admitted", "first", "finished", "written", "hits", "preemptions", "cancelled"}, …],
     "steps": [{"ended", "took", "lanes": [[lane, sequence, "prefill" | "decode", tokens read, tokens written], …],
                "waiting", "running", "used", "preempted": […], "finished": […]}, …]}

Times are seconds since the run began; where every step counts the same (clock "step"), steps. A null stands for what has
not happened yet.
A record that began to be kept later, or was trimmed, begins with the step of index `first`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence as Row
from dataclasses import dataclass, field, fields
from itertools import accumulate, islice
from operator import eq
from typing import Any, Literal

import numpy as np

from compute.batching import Scheduler, Sequence, StepPlan, Work

VERSION = 1


@dataclass(slots=True)
class Life:
    """One sequence from arrival to end."""

    id: int
    request: int
    prompt: int
    arrived: float
    admitted: float | None = None
    first: float | None = None  # its first token was there
    finished: float | None = None
    written: int = 0
    hits: int = 0  # prompt positions found in the prefix cache at its first admission
    preemptions: int = 0
    cancelled: bool = False  # at the time `finished`, before its end


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the batch. lanes: (slot, sequence, prefill or decode, tokens read, tokens written) for each busy slot."""

    ended: float
    took: float
    lanes: tuple[tuple[int, int, Literal["prefill", "decode"], int, int], ...]
    waiting: int  # after the step
    running: int  # in this step, those too that got no share
    used: int  # blocks, after the step
    preempted: tuple[int, ...]
    finished: tuple[int, ...]


@dataclass(frozen=True)
class Stretch:
    """Steps in which the same sequences decode, and that differ only in these three."""

    ended: tuple[float, ...]
    took: tuple[float, ...]
    used: tuple[int, ...]
    lanes: tuple[tuple[int, int, Literal["prefill", "decode"], int, int], ...]
    waiting: int
    running: int

    def __iter__(self) -> Iterator[Step]:
        for ended, took, used in zip(self.ended, self.took, self.used):
            yield Step(ended, took, self.lanes, self.waiting, self.running, used, (), ())

    def __len__(self) -> int:
        return len(self.ended)


class Steps(Row[Step]):
    """A row of steps, of which long stretches are kept as one."""

    def __init__(self, parts: Iterable[Step | Stretch]):
        self.parts = tuple(parts)
        self._ends = list(accumulate(len(part) if isinstance(part, Stretch) else 1 for part in self.parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Step]:
        for part in self.parts:
            if isinstance(part, Stretch):
                yield from part
            else:
                yield part

    def __getitem__(self, at):
        if isinstance(at, slice):
            return tuple(self[i] for i in range(*at.indices(len(self))))
        at = range(len(self))[at]
        number = bisect_right(self._ends, at)
        part = self.parts[number]
        return next(islice(part, at - self._ends[number] + len(part), None)) if isinstance(part, Stretch) else part

    def __eq__(self, other) -> bool:
        return isinstance(other, Row) and len(self) == len(other) and all(map(eq, self, other))

    @property
    def busy(self) -> int:
        """Slots in which something was read or written, over all steps."""
        return sum(len(part.lanes) * (len(part) if isinstance(part, Stretch) else 1) for part in self.parts)


@dataclass(frozen=True)
class Trace:
    policy: str
    slots: int
    blocks: int
    block_size: int
    sequences: tuple[Life, ...]
    steps: Row[Step]
    clock: Literal["step", "second"] = "step"
    first: int = 0  # index of steps[0], counted from the beginning of the run

    @property
    def utilisation(self) -> float:
        """Of all slots in all steps, the share in which a sequence read or wrote something. Steps count alike, however long."""
        busy = self.steps.busy if isinstance(self.steps, Steps) else sum(len(step.lanes) for step in self.steps)
        return busy / (self.slots * len(self.steps)) if self.steps else 0.0

    @property
    def seconds(self) -> float:
        return self.steps[-1].ended if self.steps else 0.0

    @property
    def tokens(self) -> int:
        """Written in all."""
        return sum(life.written for life in self.sequences)

    def latencies(self) -> list[float]:
        """From arrival to the last token, of every sequence that has ended by itself, in order of arrival."""
        return [life.finished - life.arrived for life in self.sequences if life.finished is not None and not life.cancelled]

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **plain(self), "sequences": [plain(life) for life in self.sequences], "steps": [plain(step) for step in self.steps]}


def plain(record) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}


def from_json(data: Mapping[str, Any]) -> Trace:
    """Raises ValueError for another version."""
    if data.get("version") != VERSION:
        raise ValueError(f"trace version {data.get('version')!r}; this reads version {VERSION}")
    steps = tuple(
        Step(**{**step, "lanes": tuple(map(tuple, step["lanes"])), "preempted": tuple(step["preempted"]), "finished": tuple(step["finished"])})
        for step in data["steps"]
    )
    rest = {name: data[name] for name in ("policy", "slots", "blocks", "block_size", "clock")}
    return Trace(**rest, sequences=tuple(Life(**life) for life in data["sequences"]), steps=steps, first=data.get("first", 0))


@dataclass(frozen=True)
class Summary:
    """What a trace comes to. Times in its clock's unit."""

    steps: int
    seconds: float
    tokens: int
    utilisation: float
    tokens_per_step: float
    mean_latency: float
    p50_latency: float
    p99_latency: float
    preemptions: int
    hit_tokens: int  # prompt positions that needed no prefill


def summary(trace: Trace) -> Summary:
    late = np.array(trace.latencies() or [0.0])
    p50, p99 = np.percentile(late, [50, 99])
    return Summary(
        len(trace.steps), trace.seconds, trace.tokens, trace.utilisation, trace.tokens / max(1, len(trace.steps)), float(late.mean()),
        float(p50), float(p99), sum(life.preemptions for life in trace.sequences), sum(life.hits for life in trace.sequences),
    )  # fmt: skip


@dataclass
class Recorder:
    """Writes a trace while it happens. Who runs without end, and step by step, calls `trim` now and then."""

    scheduler: Scheduler
    clock: Literal["step", "second"] = "step"
    lives: dict[int, Life] = field(default_factory=dict)
    steps: list[Step | Stretch] = field(default_factory=list)
    first: int = 0  # index of steps[0]

    def arrived(self, sequence: Sequence, at: float) -> None:
        self.lives[sequence.id] = Life(sequence.id, sequence.request, sequence.prompt, at)

    def cancelled(self, sequence: Sequence, at: float) -> None:
        life = self.lives[sequence.id]
        life.finished, life.cancelled = at, True

    def trim(self, steps: int) -> None:
        """Keeps the newest steps, at most so many, and of the sequences those that were there after the oldest of them began."""
        if (gone := len(self.steps) - steps) > 0:
            del self.steps[:gone]
            self.first += gone
            since = self.steps[0].ended - self.steps[0].took if self.steps else float("inf")
            self.lives = {id: life for id, life in self.lives.items() if life.finished is None or life.finished > since}

    def step(
        self, plan: StepPlan, work: Work, tokens: Mapping[Sequence, Row[int]], done: Row[Sequence], ended: float, took: float,
    ) -> Step:
        began = ended - took
        for chunk in plan.prefill:
            life = self.lives[chunk.sequence.id]
            if life.admitted is None:
                life.admitted, life.hits = began, chunk.hits
        for sequence in plan.preempted:
            self.lives[sequence.id].preemptions += 1
        for sequence, new in tokens.items():
            if sequence.id not in self.lives:  # a sample that has just begun; the one it comes from was just before it
                self.lives[sequence.id] = Life(sequence.id, sequence.request, sequence.prompt, life.arrived, life.admitted)
            life = self.lives[sequence.id]
            life.written += len(new)
            if life.first is None:
                life.first = ended
        for sequence in done:
            self.lives[sequence.id].finished = ended
        s = self.scheduler
        step = Step(
            ended, took,
            tuple((read.lane, read.sequence.id, "prefill" if read.prefill else "decode", read.tokens, len(tokens.get(read.sequence, ()))) for read in work.reads),
            len(s.waiting), len(s.running) + len(done), s.pool.used, tuple(q.id for q in plan.preempted), tuple(q.id for q in done),
        )  # fmt: skip
        self.steps.append(step)
        return step

    def stretch(self, work: Work, ended: Row[float], took: Row[float], used: Row[int]) -> None:
        """Steps of decoding that follow each other, with the reads of the first of them."""
        for read in work.reads:
            self.lives[read.sequence.id].written += len(ended)
        lanes = tuple((read.lane, read.sequence.id, "decode", read.tokens, 1) for read in work.reads)
        self.steps.append(Stretch(tuple(ended), tuple(took), tuple(used), lanes, len(self.scheduler.waiting), len(work.reads)))

    def trace(self) -> Trace:
        s = self.scheduler
        return Trace(s.policy, s.slots, s.pool.total, s.pool.block_size, tuple(self.lives.values()), Steps(self.steps), self.clock, self.first)
