"""`python -m tests.bench.cluster [--calls 200]`: the service on a Ray cluster of two nodes on this machine, beside the plain one.

Seconds until the cluster answers; calls lost of 100 while a replica of the functions, and then a door, is killed under eight at once; and the
milliseconds that one call takes, at the cluster and at the plain service in turn. JSON to stdout. Needs requirements-cluster.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from tests.service.several import Several, several  # isort: skip; first, as Ray reads the environment when it is imported

import numpy as np

from compute.errors import LabError
from compute.service import client
from compute.service.machine import processor
from tests.service import toys
from tests.service.process import Server

CALLS_UNDER_KILL, AT_ONCE = 100, 8


def ask(url: str, function: str, params: dict) -> dict:
    return next(event for event in client._run_remote(url, function, params, 120.0, "") if hasattr(event, "value")).value


def lost(two: Several, deployment: str) -> int:
    """Of CALLS_UNDER_KILL; the replica is killed when a third has been asked."""
    def call(n: int) -> bool:
        if n == CALLS_UNDER_KILL // 3:
            two.kill(deployment)
        try:
            return ask(two.url, "toy.slow", {"steps": 10, "step_seconds": 0.02}) != {"steps": 10}
        except LabError as error:
            print(f"lost: {error}", flush=True)
            return True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(call, range(CALLS_UNDER_KILL)))


def timed(url: str) -> float:
    began = time.perf_counter()
    ask(url, "toy.add", {"a": 1})
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=200)
    calls = parser.parse_args().calls
    toys.offer()
    plain = Server(per_minute=10**6)
    try:
        with several() as two:
            for url in (plain.url, two.url) * 10:
                timed(url)
            pairs = np.array([(timed(plain.url), timed(two.url)) for _ in range(calls)])
            more = pairs[:, 1] - pairs[:, 0]
            resampled = np.median(np.random.default_rng(0).choice(more, (2000, calls)), axis=1)
            print(json.dumps({
                "seconds_until_it_answers": round(two.seconds, 1),
                "lost": {name: lost(two, name) for name in ("functions", "door")}, "of": CALLS_UNDER_KILL, "at_once": AT_ONCE,
                "plain_ms": round(statistics.median(pairs[:, 0]), 2), "cluster_ms": round(statistics.median(pairs[:, 1]), 2),
                "more_ms": round(float(np.median(more)), 2), "more_ms_interval95": [round(float(x), 2) for x in np.quantile(resampled, (0.025, 0.975))],
                "calls": calls, "load_average": round(os.getloadavg()[0], 1), "machine": processor(),
            }, indent=1))  # fmt: skip
    finally:
        plain.stop()


if __name__ == "__main__":
    main()
