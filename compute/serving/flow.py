"""All requests through a policy, from the first arrival to the last token: what became of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from compute.batching import PolicyName, Scheduler
from compute.calibrated import Clock
from compute.errors import BadInput, Cancelled
from compute.paging import BlockPool
from compute.serving.crowd import Amounts, Service
from compute.serving.quick import quick
from compute.serving.requests import Floats, Whole
from compute.simulate import Job, Price, simulate


@dataclass(frozen=True)
class Server:
    """blocks: of KV memory, of block_size positions. budget: tokens a step may read, for the policies that heed it."""

    policy: PolicyName
    slots: int
    budget: int
    blocks: int
    block_size: int
    price: Price


@dataclass(frozen=True)
class Flow:
    """Of every request, in order of arrival, the seconds at which it arrived, was first admitted, had its first token and its last
    one. (requests,)"""

    arrived: Floats
    admitted: Floats
    first: Floats
    finished: Floats
    prompts: Whole
    outputs: Whole
    preemptions: int
    steps: int


def never() -> bool:
    return False


def flow(server: Server, arrives: Floats, prompts: Whole, outputs: Whole, cancelled: Callable[[], bool] = never) -> Flow:
    """Raises BadInput for a request that could never run, Cancelled."""
    most = server.blocks * server.block_size
    if (longest := int((prompts + outputs).max())) > most:
        raise BadInput("workload", longest, f"a request of so many tokens passes the {most} positions of the whole KV memory", f"这么长的请求超过了整个 KV 内存的 {most} 个位置")
    price = amounts(server.price)
    if price is None:
        return step_by_step(server, arrives, prompts, outputs, cancelled)
    service = Service(
        server.policy, server.slots, server.budget, server.blocks, server.block_size, price, arrives.tolist(), prompts.tolist(), outputs.tolist(),
    )  # fmt: skip
    service.run(cancelled)
    times = (np.array(each) for each in (service.admitted, service.first, service.finished))
    return Flow(arrives, *times, prompts, outputs, service.preemptions, service.steps)


def amounts(price: Price | Amounts) -> Amounts | None:
    """The price on sums, where there is one."""
    if isinstance(price, Clock):
        return quick(price)
    return price if hasattr(price, "mixed") else None


def step_by_step(server: Server, arrives: Floats, prompts: Whole, outputs: Whole, cancelled: Callable[[], bool] = never) -> Flow:
    """By the scheduler and the blocks of the engine."""
    if cancelled():
        raise Cancelled()
    scheduler = Scheduler(BlockPool(server.blocks, server.block_size), server.slots, server.policy, budget=server.budget)
    jobs = [Job(p, o, a) for p, o, a in zip(prompts.tolist(), outputs.tolist(), arrives.tolist())]
    trace = simulate(scheduler, jobs, server.price)
    lives = trace.sequences
    times = (np.array([getattr(life, name) for life in lives]) for name in ("arrived", "admitted", "first", "finished"))
    return Flow(*times, prompts, outputs, sum(life.preemptions for life in lives), len(trace.steps))
