"""Slots over steps: the same requests under two policies, side by side in time; simulated, or executed by the real engine."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Annotated, Any, Literal

from pydantic import Field

from components import Guess, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Stops
from components.text import Words, amount, digits
from compute import facts, trace as traces
from compute.batching import POLICIES, PolicyName, Preemption
from compute.batching_requests import COUNT, CONTEXT, requests
from compute.measures.batching import BLOCK_SIZE, BLOCKS, BUDGET, NAMES, SLOTS, TIGHT, trace
from compute.quantity import Quantity
from compute.simulate import roofline, unit
from compute.trace import Summary, Trace, summary

MOST_SLOTS = 16
MODEL, CHIP = "qwen3.8-27b", "h100-sxm"  # whose seconds a priced step has
LEAST_BLOCKS = CONTEXT // BLOCK_SIZE  # the longest request fits, alone


@parameters
class Params:
    """blocks: KV memory in blocks of 16 tokens. budget: tokens a step may read, for the policies that heed it. clock: every step
    alike, or priced by the roofline of MODEL on CHIP. request: the one that is picked out, 0 for none. source: our requests, or
    what the live server has just done."""

    left: PolicyName = "static"
    right: PolicyName = "continuous"
    slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)] = SLOTS
    blocks: Annotated[int, Field(ge=LEAST_BLOCKS, le=1024)] = BLOCKS
    budget: Annotated[int, Field(ge=1, le=256)] = BUDGET
    preemption: Preemption = "recompute"
    clock: Literal["step", "priced"] = "step"
    request: Annotated[int, Field(ge=0, le=COUNT)] = 0
    source: Literal["lesson", "live"] = "lesson"


@dataclass(frozen=True)
class Result:
    """traces: left and right, or the live server's alone. conditions: of the machine that executed them."""

    params: Params
    traces: tuple[Trace, ...]
    mark: Literal["computed", "live"] = "computed"
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        return tuple(map(summary, self.traces))

    @cached_property
    def lives(self) -> tuple[dict[int, dict[str, int]], ...]:
        return tuple(map(lives, self.traces))

    @property
    def waiting(self) -> bool:
        """The live server's trace was asked for and is not here yet."""
        return self.params.source == "live" and self.mark != "live"


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    """answer: {"traces": [trace, …] as compute.trace writes them, "conditions": {…}}."""
    if answer is not None:
        return Result(params, tuple(map(traces.from_json, answer["traces"])), "live", answer["conditions"])
    asked = params.slots, params.blocks, params.budget, params.preemption, params.clock
    return Result(params, tuple(_simulated(policy, *asked) for policy in (params.left, params.right)))


@lru_cache(maxsize=64)
def _simulated(policy: PolicyName, slots: int, blocks: int, budget: int, preemption: Preemption, clock: str) -> Trace:
    """With its steps one by one: the drawing goes over them again and again."""
    price = roofline(MODEL, CHIP, block_size=BLOCK_SIZE) if clock == "priced" else unit
    found = trace(policy, requests(), slots=slots, blocks=blocks, budget=budget, preemption=preemption, price=price)
    return replace(found, steps=tuple(found.steps))


def kind(result: Result) -> str:
    """What made the clock: "step", "priced", "executed", or "server" for the live server's own trace."""
    if result.mark == "live":
        return "server" if len(result.traces) == 1 else "executed"
    return "step" if result.traces[0].clock == "step" else "priced"


PRICED = {"model": facts.model(MODEL).name, "chip": facts.chip(CHIP).name}


# ---- what the picture needs of a trace


PREFILL, DECODE, STALLED = range(3)


def segments(trace: Trace) -> list[list[int]]:
    """[lane, sequence, first step, steps, kind] for each stretch in which a slot does one thing for one sequence. A slot whose
    sequence got no share in a step is STALLED: occupied, and not at work."""
    found: list[list[int]] = []
    last: dict[int, list[int]] = {}  # the stretch that each occupied slot is in
    left = {life.id: life.finished for life in trace.sequences if life.cancelled}

    def go_on(lane: int, sequence: int, step: int, kind: int) -> None:
        now = last.get(lane)
        if now and now[1] == sequence and now[4] == kind and now[2] + now[3] == step:
            now[3] += 1
        else:
            last[lane] = [lane, sequence, step, 1, kind]
            found.append(last[lane])

    for at, step in enumerate(trace.steps):
        began = step.ended - step.took
        last = {lane: stretch for lane, stretch in last.items() if stretch[1] not in step.preempted and left.get(stretch[1], step.ended) > began}
        at_work = {lane: (sequence, PREFILL if what == "prefill" else DECODE) for lane, sequence, what, *_ in step.lanes}
        for lane in sorted({*last, *at_work}):
            sequence, kind = at_work[lane] if lane in at_work else (last[lane][1], STALLED)
            go_on(lane, sequence, at, kind)
        last = {lane: stretch for lane, stretch in last.items() if stretch[1] not in step.finished}
    return found


def preemptions(trace: Trace) -> list[list[int]]:
    """[step, lane, sequence]: the slot that a sequence had to leave before the step."""
    lane_of: dict[int, int] = {}
    found = []
    for at, step in enumerate(trace.steps):
        found += [[at, lane_of[sequence], sequence] for sequence in step.preempted if sequence in lane_of]
        lane_of |= {sequence: lane for lane, sequence, *_ in step.lanes}
    return found


def lives(trace: Trace) -> dict[int, dict[str, int]]:
    """For each sequence that ran: the steps in which it arrived, was first at work and finished (None while it is not)."""
    ended = [step.ended for step in trace.steps]
    found: dict[int, dict[str, int | None]] = {}
    for at, step in enumerate(trace.steps):
        for _, sequence, *_ in step.lanes:
            found.setdefault(sequence, {"admitted": at, "finished": None})
        for sequence in step.finished:
            if sequence in found:
                found[sequence]["finished"] = at
    for life in trace.sequences:
        if life.id in found:
            found[life.id] |= {"arrived": bisect_left(ended, life.arrived) if life.arrived > 0 else 0, "request": life.request + 1, "prompt": life.prompt,
                               "written": life.written, "preemptions": life.preemptions}  # fmt: skip
    return {id: life for id, life in found.items() if "request" in life}


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, steps = scene.words, max(len(trace.steps) for trace in result.traces)
    return View(
        picture=Stage(_stage(result, scene), steps=max(1, steps), height=560, start=max(0, steps - 1)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words(f"simplified_{kind(result)}", **PRICED),
        derivation=words("derivation") + "\n\n" + "\n\n".join(_derived(trace, words) for trace in result.traces),
    )


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    words, before = scene.words, scene.before
    comparable = before is not None and len(before.traces) == len(result.traces) and before.params.source == result.params.source
    return {
        "runs": [_run(trace, known, words) for trace, known in zip(result.traces, result.lives)],
        "before": [{"steps": len(t.steps), "utilisation": t.utilisation} for t in before.traces] if comparable else None,
        "request": result.params.request, "waiting": result.waiting,
    }  # fmt: skip


def _run(trace: Trace, known: dict[int, dict[str, int]], words: Words) -> dict[str, Any]:
    finished = list(accumulate(len(step.finished) for step in trace.steps))
    of = {sequence: life["request"] for sequence, life in known.items()}
    return {
        "name": words(f"policy.{trace.policy}"), "slots": trace.slots, "blocks": trace.blocks, "steps": len(trace.steps), "of": len({life.id for life in trace.sequences}),
        "segments": [[lane, of.get(sequence, sequence + 1), start, length, kind] for lane, sequence, start, length, kind in segments(trace)],
        "preempted": [[at, lane, of.get(sequence, sequence + 1)] for at, lane, sequence in preemptions(trace)],
        "queue": [step.waiting for step in trace.steps], "used": [step.used for step in trace.steps], "finished": finished,
        "lives": {life["request"]: [life[k] for k in ("arrived", "admitted", "finished", "prompt", "written", "preemptions")] for life in known.values()},
    }  # fmt: skip


def _pair(values: Iterable[str]) -> str:
    """"32.6 | 83.8"; one value where there is one trace."""
    return " | ".join(values)


def _pace(trace: Trace, idle: bool) -> tuple[int, float]:
    """Tokens written, and seconds: from the beginning to the last token, as latencies count; of the live server's record, which
    has idle times in it, of its steps alone."""
    written = sum(lane[4] for step in trace.steps for lane in step.lanes)
    return written, sum(step.took for step in trace.steps) if idle else trace.seconds


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, found, before = scene.words, result.summaries, scene.before
    then = before.summaries if before is not None and len(before.summaries) == len(found) else None
    clock = result.traces[0].clock

    def readout(name: str, unit: str, show, note: str = "") -> Readout:
        now = _pair(show(s) for s in found)
        was = _pair(show(s) for s in then) if then and before.traces[0].clock == clock else now
        return Readout(words(f"readout.{name}"), now, unit, words("before", value=was) if was != now else "", note)

    unit = words("unit.step") if clock == "step" else "s"
    names = _pair(words(f"short.{trace.policy}") for trace in result.traces)
    last = (
        readout("tokens_per_step", words("unit.token"), lambda s: digits(s.tokens_per_step), words("note.tokens_per_step", most=result.traces[0].slots))
        if clock == "step"
        else Readout(words("readout.tokens_per_second"), _pair(digits(written / took) for written, took in (_pace(trace, len(result.traces) == 1) for trace in result.traces)), "token/s", "",
                     words("note.priced" if kind(result) == "priced" else "note.measured", **PRICED))
    )
    return (
        readout("utilisation", "%", lambda s: digits(100 * s.utilisation), names),
        readout("steps", "", lambda s: f"{s.steps:,}", words("note.steps", tokens=f"{found[0].tokens:,}")),
        readout("mean_latency", unit, lambda s: digits(s.mean_latency), words("note.latency")),
        readout("p99_latency", unit, lambda s: digits(s.p99_latency), words("note.p99")),
        last,
    )


def _sentence(result: Result, scene: Scene) -> str:
    words, found = scene.words, result.summaries
    clock, slots = result.traces[0].clock, result.traces[0].slots

    def time(value: float) -> str:
        return amount(value, "s", scene.lang) if clock == "second" else words("steps", n=digits(value))

    if len(found) == 1:
        return words("sentence_one", requests=len(result.traces[0].sequences), slots=slots, policy=words(f"policy.{result.traces[0].policy}"),
                     steps=f"{found[0].steps:,}", utilisation=digits(100 * found[0].utilisation), mean=time(found[0].mean_latency))  # fmt: skip
    (a, b), (left, right) = found, (words(f"policy.{trace.policy}") for trace in result.traces)
    said = words(
        "sentence", requests=len(result.traces[0].sequences), slots=slots, left=left, right=right, left_steps=f"{a.steps:,}", right_steps=f"{b.steps:,}",
        left_used=digits(100 * a.utilisation), right_used=digits(100 * b.utilisation), left_mean=time(a.mean_latency), right_mean=time(b.mean_latency),
    )  # fmt: skip
    if a.preemptions or b.preemptions:
        said += words("sentence_preempted", blocks=result.traces[0].blocks, left=left, right=right, left_times=a.preemptions, right_times=b.preemptions)
    if clock == "second":
        (left_tokens, left_seconds), (right_tokens, right_seconds) = (_pace(trace, idle=False) for trace in result.traces)
        by = words("by.priced", **PRICED) if kind(result) == "priced" else words("by.executed", model=result.conditions["model"])
        said += words("sentence_clock", by=by, left_seconds=amount(left_seconds, "s", scene.lang), right_seconds=amount(right_seconds, "s", scene.lang),
                      left_rate=digits(left_tokens / left_seconds), right_rate=digits(right_tokens / right_seconds))  # fmt: skip
    return words("waiting") + said if result.waiting else said


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    """A row for each sequence and policy; steps count from 1, as on the axis."""
    unit = "steps" if result.traces[0].clock == "step" else "seconds"
    ours = requests() if result.params.source == "lesson" or result.waiting else ()
    rows = []
    for trace, known in zip(result.traces, result.lives):
        for life in trace.sequences:
            seen = known.get(life.id)
            late = None if life.finished is None else life.finished - life.arrived
            rows.append({
                "policy": trace.policy, "request": life.request + 1, "source": ours[life.request].source if life.request < len(ours) else None,
                "prompt_tokens": life.prompt, "written_tokens": life.written, "first_step": seen["admitted"] + 1 if seen else None,
                "last_step": seen["finished"] + 1 if seen and seen["finished"] is not None else None, f"latency_{unit}": late, "preemptions": life.preemptions,
            })  # fmt: skip
    return tuple(rows)


UTILISATION = "Σ busy slots / (slots × steps)"
SAYS = {
    "utilisation": ("槽位利用率", "slots in use"),
    "steps": ("全部写完要几步", "steps until all is written"),
    "mean_latency": ("平均延迟", "mean latency"),
    "p99_latency": ("p99 延迟", "p99 latency"),
    "tokens_per_step": ("每步写出的 token", "tokens written in a step"),
    "tokens_per_second": ("每秒写出的 token", "tokens written per second"),
}


def _papers(result: Result) -> tuple[Quantity, ...]:
    found = []
    clock = {
        "step": {"requests": "data/batching-requests.json", "clock": "every step alike"},
        "priced": {"requests": "data/batching-requests.json", "clock": "roofline, ideal bound", **PRICED},
    }.get(kind(result), result.conditions)
    for trace, s in zip(result.traces, result.summaries):
        given = {"policy": trace.policy, "slots": trace.slots, "blocks": trace.blocks, "requests": len(trace.sequences)}
        unit = "step" if trace.clock == "step" else "s"

        def paper(name: str, value: float, unit: str, formula: str, inputs: Mapping[str, Any], timed: bool = False) -> Quantity:
            zh, en = SAYS[name]
            says = {"zh": f"{NAMES[trace.policy][0]}：{zh}", "en": f"{NAMES[trace.policy][1]}: {en}"}
            return Quantity(value, unit, "measured" if timed and result.mark == "live" else "computed", formula, inputs, None, clock, says=says)

        found += [
            paper("utilisation", s.utilisation, "ratio", UTILISATION, given | {"busy": _busy(trace), "steps": s.steps}),
            paper("steps", s.steps, "step", "steps until the last request is written", given),
            paper("mean_latency", s.mean_latency, unit, "mean (finished − arrived)", given, timed=True),
            paper("p99_latency", s.p99_latency, unit, "99th percentile of (finished − arrived)", given, timed=True),
        ]
        if trace.clock == "second":
            tokens, seconds = _pace(trace, len(result.traces) == 1)
            found.append(paper("tokens_per_second", tokens / seconds, "token/s", "tokens / seconds", {"tokens": tokens, "seconds": seconds}, timed=True))
        else:
            found.append(paper("tokens_per_step", s.tokens_per_step, "token", "tokens / steps", {"tokens": s.tokens, "steps": s.steps}))
    return tuple(found)


def _busy(trace: Trace) -> int:
    return sum(len(step.lanes) for step in trace.steps)


def _derived(trace: Trace, words: Words) -> str:
    busy, steps, share = f"{_busy(trace):,}", f"{len(trace.steps):,}", digits(100 * trace.utilisation)
    return words("derived", policy=words(f"policy.{trace.policy}"), busy=busy, slots=trace.slots, steps=steps, share=share)


# ---- predict first

SHARES = {"95": 0.95, "80": 0.8, "55": 0.55, "33": 0.33}


def _static(result: Result) -> Trace:
    return next((trace for trace in result.traces if trace.policy == "static"), result.traces[0])


def _truth(result: Result) -> Quantity:
    found = _static(result)
    return Quantity(found.utilisation, "ratio", "computed", UTILISATION, {"busy": _busy(found), "slots": found.slots, "steps": len(found.steps)})


def _right(result: Result) -> str:
    used = _static(result).utilisation
    return min(SHARES, key=lambda choice: abs(SHARES[choice] - used))


def _arguments(params: Params) -> dict[str, Any]:
    if params.source == "live":
        return {"source": "live"}
    return {name: getattr(params, name) for name in ("left", "right", "slots", "blocks", "budget", "preemption")}


def heeds_budget(params: Params) -> bool:
    return params.source == "lesson" and bool({"chunked", "prefill-first"} & {params.left, params.right})


def lesson(params: Params) -> bool:
    return params.source == "lesson"


WIDGET = Widget(
    id="swim-lane",
    Params=Params,
    controls=(
        Choice("left", lambda: tuple(POLICIES), when=lesson), Choice("right", lambda: tuple(POLICIES), when=lesson),
        Stops("slots", (1, 2, 4, 8, 12, 16), when=lesson), Stops("blocks", (LEAST_BLOCKS, TIGHT, 32, 48, 64, BLOCKS, 256), when=lesson),
        Stops("budget", (2, 4, 8, 16, 32, 64), when=heeds_budget), Choice("preemption", lambda: ("recompute", "swap"), when=lesson),
        Choice("clock", lambda: ("step", "priced"), when=lesson), Range("request", 0, COUNT, when=lesson), Choice("source", lambda: ("lesson", "live")),
    ),
    shown=3,
    run=run,
    draw=draw,
    live=Live("batching.run", _arguments, about=lambda params: (params.clock, _arguments(params)), button=lambda params: f"live.button.{params.source}"),
    guesses={"utilisation": Guess(_truth, choices=tuple(SHARES), right=_right)},
)  # fmt: skip
