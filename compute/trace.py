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

from collections.abc import Mapping, Sequence as Row
from dataclasses import asdict, dataclass, field
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
class Trace:
    policy: str
    slots: int
    blocks: int
    block_size: int
    sequences: tuple[Life, ...]
    steps: tuple[Step, ...]
    clock: Literal["step", "second"] = "step"
    first: int = 0  # index of steps[0], counted from the beginning of the run

    @property
    def utilisation(self) -> float:
        """Of all slots in all steps, the share in which a sequence read or wrote something. Steps count alike, however long."""
        return sum(len(step.lanes) for step in self.steps) / (self.slots * len(self.steps)) if self.steps else 0.0

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
        return {"version": VERSION, **asdict(self)}


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
    """Writes a trace while it happens. Who runs without end calls `trim` now and then."""

    scheduler: Scheduler
    clock: Literal["step", "second"] = "step"
    lives: dict[int, Life] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
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
            if sequence.id not in self.lives:  # a sample that has just begun
                parent = next(life for life in self.lives.values() if life.request == sequence.request)
                self.lives[sequence.id] = Life(sequence.id, sequence.request, sequence.prompt, parent.arrived, parent.admitted)
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

    def trace(self) -> Trace:
        s = self.scheduler
        return Trace(s.policy, s.slots, s.pool.total, s.pool.block_size, tuple(self.lives.values()), tuple(self.steps), self.clock, self.first)
