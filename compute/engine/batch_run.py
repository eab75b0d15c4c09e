"""The 64 requests of the batching lesson, executed: the plans of compute/simulate.py, with the real model in every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from compute.batching import PolicyName, Preemption
from compute.batching_requests import COUNT, MODEL, Request, requests
from compute.engine.engine import Ask, Engine
from compute.engine.loader import Model
from compute.engine.registry import shared
from compute.engine.running import running
from compute.engine.served import circumstances
from compute.errors import BadInput, Cancelled
from compute.measures.batching import BLOCK_SIZE, BLOCKS, BUDGET, SLOTS
from compute.trace import Trace


def execute(
    model: Model, policy: PolicyName, asked: Sequence[Request], *, slots: int = SLOTS, blocks: int = BLOCKS, budget: int = BUDGET,
    preemption: Preemption = "recompute", stepped: Callable[[int, int], None] = lambda finished, now: None,
) -> Trace:  # fmt: skip
    """All requests are there from the beginning; each writes its own number of tokens, greedily and whatever end the model
    writes. No prefix cache, as the simulation has none. stepped: told after each step how many have finished, in all and in it."""
    engine = Engine(model, slots=slots, blocks=blocks, block_size=BLOCK_SIZE, policy=policy, budget=budget, preemption=preemption, caching=False)
    for request in asked:
        engine.submit(Ask(request.prompt, request.output, ignore_end=True))
    finished = 0
    while step := engine.step():
        finished += len(step.finished)
        stepped(finished, len(step.finished))
    return engine.recorder.trace()


@dataclass(frozen=True)
class BatchRun:
    """traces: as compute.trace writes them; two of the lesson's requests, or the live server's own."""

    traces: tuple[dict[str, Any], ...]
    conditions: dict[str, Any]


def run(
    left: PolicyName = "static",
    right: PolicyName = "continuous",
    slots: Annotated[int, Field(ge=1, le=16)] = SLOTS,
    blocks: Annotated[int, Field(ge=16, le=1024, description="of 16 tokens each")] = BLOCKS,
    budget: Annotated[int, Field(ge=1, le=256, description="tokens a step may read, where a policy heeds it")] = BUDGET,
    preemption: Preemption = "recompute",
    source: Annotated[Literal["lesson", "live"], Field(description="live: what the engine that everybody shares has just done; the rest is not heeded")] = "lesson",
    report: Callable[[float, str], None] = lambda fraction, note: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> BatchRun:
    """Executes the 64 requests of the batching lesson on mini-256 under two policies, one after the other; or tells what the
    live server has just done."""
    if source == "live":
        server = running()
        trace = server.trace()
        if not trace.steps:
            raise BadInput("source", source, "the live server has made no step yet; send it a request first", "实时服务还没有跑过一步，请先给它发一个请求")
        return BatchRun((trace.to_json(),), circumstances(server.model))
    model, made = shared().get(MODEL), []
    for side, policy in enumerate((left, right)):

        def stepped(finished: int, now: int) -> None:
            if cancelled():
                raise Cancelled()
            if now:  # telling takes time, and the clock runs on
                report((side + finished / COUNT) / 2, f"{policy}: {finished} / {COUNT}")

        made.append(execute(model, policy, requests(), slots=slots, blocks=blocks, budget=budget, preemption=preemption, stepped=stepped))
    return BatchRun(tuple(trace.to_json() for trace in made), circumstances(model) | {"decoding": "greedy"})
