"""How fast requests are simulated: all together as a crowd, against the scheduler step by step, the same requests in turn."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from compute import calibrated
from compute.batching import POLICIES, PolicyName
from compute.serving import load
from compute.serving.flow import Flow, Server, flow, step_by_step
from compute.serving.requests import WORKLOADS, arrivals, lengths

MODEL, CHIP, CLOCK = "qwen3.8-27b", "h100-sxm", "calibrated"


@dataclass(frozen=True)
class Spread:
    """Median and extremes over the rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class LoadSpeed:
    """seconds: of so many requests; small_seconds and scheduler_seconds: of `small` requests, which both ways simulated in turn;
    ratio: the latter over the former within each round. same: both ways gave every request the same times, to 1e-9."""

    policy: PolicyName
    requests: int
    seconds: Spread
    steps: int
    small: int
    small_seconds: Spread
    scheduler_seconds: Spread
    ratio: Spread
    same: bool
    conditions: dict[str, Any]


def load_speed(policy: PolicyName, requests: int = 100_000, small: int = 500, rounds: int = 3, workload: str = "chat", slots: int = 58, part: float = 0.8) -> LoadSpeed:
    """Poisson arrivals at a part of the capacity."""
    served, work = load.server(MODEL, CHIP, policy, slots, 512, "bf16", 1, CLOCK), WORKLOADS[workload]
    rate = part * load.capacity(served, work, load.backlog(slots), 0).requests_per_second
    asked = {n: (arrivals("poisson", rate, n), *lengths(work, n)) for n in (requests, small)}

    def timed(way: Callable[..., Flow], n: int) -> tuple[float, Flow]:
        """Seconds of the processor's time: one thread that never waits, and other programs must not count."""
        start = time.process_time()
        found = way(served, *asked[n])
        return time.process_time() - start, found

    rows, steps, same = [], 0, True
    for n in range(rounds):  # who goes first changes from round to round
        done = {way: timed(way, small) for way in (flow, step_by_step)[:: 1 if n % 2 else -1]}
        whole, all_of_them = timed(flow, requests)
        steps = all_of_them.steps
        same &= all(np.allclose(getattr(done[flow][1], name), getattr(done[step_by_step][1], name), rtol=1e-9) for name in ("admitted", "first", "finished"))
        rows.append((whole, done[flow][0], done[step_by_step][0]))
    conditions = {
        "model": MODEL, "chip": CHIP, "clock": CLOCK, "workload": workload, "slots": slots, "requests_per_second": rate, "of_capacity": part, "rounds": rounds,
        "numpy": np.__version__, "cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None, "measured": "processor time",
    }  # fmt: skip
    spreads = [_spread([row[i] for row in rows]) for i in range(3)]
    return LoadSpeed(policy, requests, spreads[0], steps, small, spreads[1], spreads[2], _spread([c / b for _, b, c in rows]), bool(same), conditions)


def _spread(values: list[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def main(argv: list[str]) -> int:
    """`python -m compute bench load`: a line a policy, or everything as JSON."""
    parser = argparse.ArgumentParser(prog="python -m compute bench load", description="Requests simulated as a crowd against the scheduler step by step.")
    parser.add_argument("--policy", action="append", choices=get_args(PolicyName), help="may be repeated (default all)")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--small", type=int, default=500, help="requests that the scheduler simulates too")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="chat")
    parser.add_argument("--slots", type=int, default=58)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if min(args.requests, args.small, args.rounds) < 1:
        parser.error("--requests, --small and --rounds: at least 1")
    found = []
    for policy in args.policy or POLICIES:
        found.append(f := load_speed(policy, args.requests, args.small, args.rounds, args.workload, args.slots))
        if not args.json:
            print(
                f"{f.policy:14} {f.requests:,} requests at {f.conditions['requests_per_second']:.3g} a second in {_shown(f.seconds)} s ({f.steps:,} steps); {f.small:,} requests: ours {_shown(f.small_seconds, 3)} s, "
                f"step by step {_shown(f.scheduler_seconds)} s, {_shown(f.ratio, 0)} times as long; same times: {f.same}",
                flush=True,
            )
    print(json.dumps([asdict(f) for f in found], ensure_ascii=False, indent=2) if args.json else {k: v for k, v in found[0].conditions.items() if k != "requests_per_second"})
    return 0


def _shown(spread: Spread, places: int = 1) -> str:
    return f"{spread.median:,.{places}f} ({spread.low:,.{places}f}–{spread.high:,.{places}f})"
