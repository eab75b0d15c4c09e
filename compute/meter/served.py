"""The meter for pages: a process of its own measures, so that its clock and the engine's threads do not share an interpreter."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any, Literal

from pydantic import Field

from compute.errors import Cancelled
from compute.meter import endpoints, own
from compute.meter.client import Target
from compute.meter.report import Plan

MOST_SECONDS = 100.0  # then it ends with what there is, before the service's own limit ends it with nothing
LOOK_SECONDS = 0.1  # how soon it is noticed that nobody waits any more

Positive = Annotated[float, Field(gt=0, le=3600)]


def run(
    endpoint: Annotated[str, Field(max_length=80, description="own, or a name of the operator's list")] = "own",
    loop: Literal["closed", "open"] = "closed",
    concurrency: Annotated[int, Field(ge=1, le=64)] = 4,
    rate: Annotated[float, Field(gt=0, le=100, description="requests a second, open loop")] = 2.0,
    requests: Annotated[int, Field(ge=1, le=400)] = 32,
    prompt_tokens: Annotated[int, Field(ge=1, le=8192)] = 64,
    output_tokens: Annotated[int, Field(ge=1, le=512)] = 32,
    ttft_target: Positive = 1.0,
    tpot_target: Positive = 0.05,
    seed: Annotated[int, Field(ge=0, le=2**53)] = 0,
    report: Callable[..., None] = None,
    cancelled: Callable[[], bool] = None,
) -> dict[str, Any]:
    """Measures an endpoint of the operator's list: the report of compute/meter/report.py, and while it runs the report so far."""
    plan = Plan(loop, concurrency, rate, requests, prompt_tokens, output_tokens, seed=seed, ttft_target=ttft_target, tpot_target=tpot_target)
    found = None if endpoint == endpoints.OWN else endpoints.find(endpoint)
    with own.served() if found is None else nullcontext() as address:
        return relayed(command(found or Target(endpoints.OWN, f"{address}/v1"), plan), plan, report, cancelled)


def listed() -> dict[str, Any]:
    """The endpoints that meter.run knows by name: the service itself and the operator's list."""
    return {"endpoints": endpoints.listing()}


def command(target: Target, plan: Plan) -> list[str]:
    """The meter as a process. The key travels in the environment that it inherits."""
    given = {
        "name": target.name, "model": target.model, "api": target.api, "key-from": target.key_from, "loop": plan.loop, "concurrency": plan.concurrency,
        "rate": plan.rate, "requests": plan.requests, "prompt-tokens": plan.prompt_tokens, "output-tokens": plan.output_tokens,
        "warmup": plan.warmup, "ttft": plan.ttft_target, "tpot": plan.tpot_target, "seed": plan.seed, "seconds": MOST_SECONDS,
    }  # fmt: skip
    return [sys.executable, "-m", "compute", "meter", target.url, "--events", *(f"--{name}={value}" for name, value in given.items() if value not in (None, ""))]


def relayed(command: list[str], plan: Plan, report: Callable[..., None], cancelled: Callable[[], bool]) -> dict[str, Any]:
    """The last report of the process; those before go to `report`. Raises Cancelled, after ending the process, once nobody waits."""
    process = subprocess.Popen(command, cwd=endpoints.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    news: queue.Queue[bytes | None] = queue.Queue()
    said: list[bytes] = []
    readers = [threading.Thread(target=read, args=(process.stdout, news.put), daemon=True), threading.Thread(target=lambda: said.append(process.stderr.read()), daemon=True)]
    for reader in readers:
        reader.start()
    try:
        while True:
            if cancelled():
                raise Cancelled()
            try:
                line = news.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            if line is None:
                readers[1].join(1)
                raise RuntimeError(f"the meter ended without a report: {b''.join(said)[-2000:].decode(errors='replace')}")
            event = json.loads(line)
            if "report" in event:
                return event["report"]
            partial = event["partial"]
            ended = partial["summary"]["done"] + partial["summary"]["failed"]
            report(ended / plan.requests, f"{ended} / {plan.requests}", partial)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        for reader in readers:
            reader.join(1)
        process.stdout.close()
        process.stderr.close()


def read(lines: Any, put: Callable[[bytes | None], None]) -> None:
    for line in lines:
        put(line)
    put(None)
