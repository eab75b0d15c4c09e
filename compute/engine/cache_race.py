"""The same greedy text with the KV cache and without, against the clock: the lab's first table.

`race` is what a learner starts, `python -m compute bench cache` keeps a run of it in data/measured/. Both ways go through the same
`forward`, so that they differ in the cache and in nothing else; the server's own loop (compute/engine/decoding.py) is faster still.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import torch
from pydantic import Field

from compute import precompute
from compute.engine.generate import check_request, decode
from compute.engine.loader import Model
from compute.engine.machine import wait_for
from compute.engine.model import forward
from compute.engine.own_machine import measure as measure_machine
from compute.engine.registry import shared
from compute.engine.served import ModelId, circumstances
from compute.errors import Cancelled
from compute.measures.lab import LENGTHS, MODEL, PROMPT, WIDTHS

REPEATS = 9  # forwards of each width
ROUNDS = 5  # of a stored run


@dataclass(frozen=True)
class Row:
    """One length. with_cache, without_cache: tokens per second of each round, first token included; ratios: within the rounds;
    kv_with, kv_without: positions whose keys and values were computed for it. same_output: the same tokens in every round."""

    new: int
    with_cache: tuple[float, ...]
    without_cache: tuple[float, ...]
    kv_with: int
    kv_without: int
    same_output: bool

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(a / b for a, b in zip(self.with_cache, self.without_cache))


@dataclass(frozen=True)
class Race:
    model: str
    prompt: str
    prompt_tokens: int
    rounds: int
    rows: tuple[Row, ...]
    forwards: dict[int, float]  # tokens in one forward without a cache → median seconds
    conditions: dict[str, Any]


def race(
    model: ModelId = MODEL,
    rounds: Annotated[int, Field(ge=1, le=20, description="how often each length is written each way")] = 3,
    report: Callable[..., None] = lambda fraction, note, partial=None: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Race:
    """Greedy text of 32, 64, 128 and 240 new tokens with the KV cache and without, in turns; about five seconds a round.

    Who goes first changes from round to round, so that a slow phase of the machine hits both. Tells the table so far after every
    round. Raises Cancelled.
    """
    loaded = shared().get(model)
    tokens = loaded.tokenizer.encode(PROMPT)
    check_request(loaded, tokens, max(LENGTHS))
    load = os.getloadavg()[0]
    report(0.0, "warm-up")
    for use_cache in (True, False):
        timed(loaded, tokens, 8, use_cache, cancelled)
    runs: dict[int, list[tuple[Timed, Timed]]] = {new: [] for new in LENGTHS}
    widths: dict[int, list[float]] = {width: [] for width in WIDTHS}
    steps, done = rounds * 2 * sum(LENGTHS), 0
    for number in range(rounds):
        for new in LENGTHS:
            pair = {}
            for use_cache in (True, False) if number % 2 else (False, True):
                pair[use_cache] = timed(loaded, tokens, new, use_cache, cancelled)
                done += new
                report(done / steps, f"{number + 1} / {rounds}: {new} token")
            runs[new].append((pair[True], pair[False]))
        measure_forwards(loaded, widths)
        found = Race(loaded.name, PROMPT, len(tokens), number + 1, tuple(map(row, LENGTHS, runs.values())), {w: statistics.median(s) for w, s in widths.items()},
                     circumstances(loaded) | {"load average": round(load, 2)})  # fmt: skip
        report(done / steps, f"{number + 1} / {rounds}", asdict(found))
    return found


@dataclass(frozen=True)
class Timed:
    tokens: tuple[int, ...]
    seconds: float
    kv_computed: int


def timed(model: Model, tokens: Sequence[int], new: int, use_cache: bool, cancelled: Callable[[], bool]) -> Timed:
    """One text, the prompt's forward included. Goes on past an end token, so that all are equally long."""
    made, computed, began = [], 0, time.perf_counter()
    for token, _, _, computed in decode(model, tokens, new, lambda row: int(row.argmax()), use_cache):
        made.append(token)
        if cancelled():
            raise Cancelled()
    wait_for(model.weights.device)
    return Timed(tuple(made), time.perf_counter() - began, computed)


def row(new: int, pairs: Sequence[tuple[Timed, Timed]]) -> Row:
    first = pairs[0]
    return Row(
        new, tuple(new / a.seconds for a, _ in pairs), tuple(new / b.seconds for _, b in pairs), first[0].kv_computed, first[1].kv_computed,
        all(a.tokens == b.tokens for a, b in pairs),
    )  # fmt: skip


@torch.inference_mode()
def measure_forwards(model: Model, widths: dict[int, list[float]]) -> None:
    """Seconds of one forward over so many tokens at once, without a cache: what a step costs that recomputes everything."""
    torch.set_num_threads(model.threads)
    for _ in range(REPEATS):
        for width, seconds in widths.items():
            ids = torch.arange(width)[None] % model.config.vocabulary
            began = time.perf_counter()
            forward(model.weights, ids, None, torch.arange(width)[None], last_only=True)
            wait_for(model.weights.device)
            seconds.append(time.perf_counter() - began)


# ---- a run that is kept


def main(args: argparse.Namespace) -> int:
    """`python -m compute bench cache`: data/measured/lab-cache-….json, and lab-machine.json with this machine's walls."""
    found = race(MODEL, args.rounds, report=show)
    entries = of_race(found)
    machine = of_machine(measure_machine(keep_it=False))
    for key, entry in (entries | machine).items():
        print(f"{key:44} {round(entry['value'], 6)!s:>16} {entry['unit']}")
    if not args.only_print:
        command = f"python -m compute bench cache --rounds {args.rounds}"
        print(precompute.write_measured(f"lab-cache-{MODEL}", entries, command))
        print(precompute.write_measured("lab-machine", machine, command))
    return 0


def show(fraction: float, note: str, partial: Any = None) -> None:
    if sys.stderr.isatty():
        print(f"\r{fraction:4.0%} {note}\033[K", end="" if fraction < 1 else "\n", file=sys.stderr)


def of_race(found: Race) -> dict[str, dict[str, Any]]:
    around = found.conditions | {"prompt": found.prompt, "prompt_tokens": found.prompt_tokens, "rounds": found.rounds, "decoding": "greedy"}
    made: dict[str, dict[str, Any]] = {}
    for r in found.rows:
        about, key = around | {"new": r.new}, f"lab.cache.{r.new}"
        made[f"{key}.with.tokens_per_second"] = many(r.with_cache, "token/s", about, f"写 {r.new} 个 token，开缓存", f"{r.new} new tokens with the cache")
        made[f"{key}.without.tokens_per_second"] = many(r.without_cache, "token/s", about, f"写 {r.new} 个 token，不开缓存", f"{r.new} new tokens without the cache")
        made[f"{key}.ratio"] = many(r.ratios, "×", about, f"写 {r.new} 个 token，有缓存的速度是没有的几倍", f"{r.new} new tokens: speed with the cache over speed without")
    for width, seconds in found.forwards.items():
        about = around | {"tokens": width, "repeats": REPEATS * found.rounds}
        made[f"lab.forward.{width}.seconds"] = one(seconds, "s", about, f"mini-256 一次前向读 {width} 个 token", f"one forward of mini-256 over {width} tokens")
    return made


def of_machine(measured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    for rate in measured["rates"]:
        about = measured["conditions"] | {"slowest_and_fastest": [rate["low"], rate["high"]]} | {k: v for k, v in rate["conditions"].items() if k in ("bytes_read", "matrix")}
        made[f"lab.machine.{rate['id']}"] = one(rate["value"], rate["unit"], about, f"这台机器：{rate['id']}", f"this machine: {rate['id']}") | {"n": rate["runs"]}
    for run in measured["decodes"]:
        about = measured["conditions"] | {k: run[k] for k in ("model", "dtype", "threads", "context")} | {"slowest_and_fastest": [run["low"], run["high"]]}
        says = f"这台机器上 {run['model']} 的解码速度", f"decode speed of {run['model']} on this machine"
        made[f"lab.machine.decode.{run['model']}"] = one(run["tokens_per_second"], "token/s", about, *says) | {"n": run["runs"]}
    return made


def many(values: Sequence[float], unit: str, around: dict[str, Any], zh: str, en: str) -> dict[str, Any]:
    """Their median, with the middle half as spread."""
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return one(statistics.median(values), unit, around | {"quartiles": [low, high], "slowest_and_fastest": [min(values), max(values)]}, zh, en) | {"n": len(values)}


def one(value: float, unit: str, around: dict[str, Any], zh: str, en: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "kind": "measured", "conditions": around, "says": {"zh": zh, "en": en}}
