"""How fast the overlay's draws are: against a plain loop of one draw after another, and against only making the uniform
numbers, which no way of drawing can do without."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from bisect import bisect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import numpy as np

from compute import distributions, sampling, speculative
from compute.sampling import Floats
from compute.speculative import Rule

LOOP_DRAWS = 20_000  # the loop is timed on so many, and scaled up


@dataclass(frozen=True)
class Spread:
    """Median and extremes over the rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class OverlaySpeed:
    prompt: str
    rule: Rule
    draws: int
    ours_ms: Spread
    uniforms_ms: Spread
    loop_ms: Spread  # scaled up from LOOP_DRAWS
    over_uniforms: Spread  # ours / uniforms within each round: a slow phase of the machine hits both
    loop_over_ours: Spread
    conditions: dict[str, Any]


def overlay_speed(prompt: str, rule: Rule = "correct", draws: int = 100_000, rounds: int = 15) -> OverlaySpeed:
    logits = distributions.stored(prompt).logits
    p, q = (sampling.probabilities(logits[model], sampling.Sampling()) for model in ("mini-256", "mini-64"))

    def ours() -> None:
        speculative.monte_carlo(rule, p, q, draws, 0)

    def uniforms() -> None:
        random = np.random.default_rng(0)
        for start in range(0, draws, speculative.CHUNK):
            random.random((3, min(speculative.CHUNK, draws - start)))

    def loop() -> None:
        plain_loop(rule, p, q, LOOP_DRAWS, 0)

    ways, scale = (ours, uniforms, loop), draws / LOOP_DRAWS
    for way in ways:
        way()
    found = []
    for n in range(rounds):  # who goes first changes from round to round
        took = {way: _milliseconds(way) for way in ways[:: 1 if n % 2 else -1]}
        found.append((took[ours], took[uniforms], took[loop] * scale))
    return OverlaySpeed(
        prompt, rule, draws, *(_spread([row[i] for row in found]) for i in range(3)), _spread([a / b for a, b, _ in found]), _spread([c / a for a, _, c in found]),
        {"rounds": rounds, "vocabulary": len(p), "numpy": np.__version__, "cores": os.cpu_count(), "load_average": _load(), "clock": "processor time", "loop_draws": LOOP_DRAWS},
    )  # fmt: skip


def plain_loop(rule: Rule, p: Floats, q: Floats, n: int, seed: int) -> np.ndarray:
    """The rule a draw at a time, in plain Python; what can be prepared is. Counts (V)."""
    uniform, counts = Random(seed).random, [0] * len(p)
    draft, again = (np.cumsum(x).tolist() for x in (q, speculative.second(rule, p, q)))
    last, p_, q_ = len(p) - 1, p.tolist(), q.tolist()
    for _ in range(n):
        x = min(bisect(draft, uniform()), last)
        if rule == "equal-only" or uniform() * q_[x] >= p_[x]:
            x = min(bisect(again, uniform()), last)
        counts[x] += 1
    return np.array(counts)


def _milliseconds(way: Callable[[], None]) -> float:
    """Of the processor's time: one thread that never waits, and other programs must not count."""
    start = time.process_time()
    way()
    return 1e3 * (time.process_time() - start)


def _spread(values: list[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def _load() -> float | None:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def main(argv: list[str]) -> int:
    """`python -m compute bench overlay`: a line a prompt and rule, or everything as JSON."""
    parser = argparse.ArgumentParser(prog="python -m compute bench overlay", description="The overlay's draws against a plain loop and against the uniform numbers alone.")
    parser.add_argument("--prompt", action="append", choices=list(distributions.PROMPTS), help="may be repeated (default all)")
    parser.add_argument("--draws", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.draws < 1 or args.rounds < 1:
        parser.error("--draws and --rounds: at least 1")
    found = [overlay_speed(prompt, rule, args.draws, args.rounds) for prompt in args.prompt or distributions.PROMPTS for rule in speculative.RULES]
    if args.json:
        print(json.dumps([asdict(f) for f in found], ensure_ascii=False, indent=2))
        return 0
    print(f"{found[0].draws:,} draws; median (least–most) of {args.rounds} alternating rounds; {found[0].conditions}")
    for f in found:
        print(
            f"{f.prompt:8} {f.rule:16} ours {_shown(f.ours_ms)} ms, uniforms alone {_shown(f.uniforms_ms)} ms, ratio {_shown(f.over_uniforms)}; "
            f"plain loop {_shown(f.loop_ms, 0)} ms, {_shown(f.loop_over_ours, 0)} times as long"
        )
    return 0


def _shown(spread: Spread, places: int = 2) -> str:
    return f"{spread.median:,.{places}f} ({spread.low:,.{places}f}–{spread.high:,.{places}f})"
