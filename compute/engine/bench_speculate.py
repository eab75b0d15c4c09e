"""Speculative decoding on this machine's clock: against plain decoding for each draft and k, what a forward costs by the
number of its tokens, and so what a guess and a check cost. Written to data/measured/drafting-<target>.json."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import torch

from compute import precompute
from compute.engine import drafts, registry
from compute.engine.drafts import Race, Source
from compute.engine.errors import ModelError
from compute.engine.loader import Model, load
from compute.engine.machine import conditions, wait_for
from compute.engine.model import KVCache, forward
from compute.measures.drafting import key_of, name_of
from compute.sampling import Sampling

WIDTHS = tuple(range(1, 10))
CACHED, REPEATS = 128, 15  # positions before the timed forward; forwards of each width
GREEDY_KS = {"mini-256": tuple(range(1, 9)), "smollm2-135m": (2, 4, 6)}
SAMPLED = {"mini-256": {0.7: (4,), 1.0: (4,)}, "smollm2-135m": {}}
HALF_KS = (4,)  # in bfloat16, which a processor without such units only emulates
DTYPES = {"mini-256": ("float32",), "smollm2-135m": ("float32", "bfloat16")}
Entries = dict[str, dict[str, Any]]


def main(args: argparse.Namespace) -> int:
    found: dict[str, Entries] = {}
    for target in args.target or tuple(drafts.DRAFTS):
        for dtype in DTYPES[target]:
            try:
                found.setdefault(target, {}).update(of_target(target, dtype, args.prompts, args.new_tokens))
            except ModelError as lacking:
                print(lacking.message("en"), file=sys.stderr)
    for target, entries in found.items():
        for key, entry in entries.items():
            value = entry["value"]
            print(f"{key:56} {value if isinstance(value, (list, int)) else round(value, 4)!s:>12} {entry['unit']}")
        if not args.only_print:
            command = f"python -m compute bench speculate --target {target} --prompts {args.prompts} --new-tokens {args.new_tokens}"
            print(precompute.write_measured(f"drafting-{target}", entries, command))
    return 0 if found else 3


def of_target(name: str, dtype: str, prompts: int, new: int) -> Entries:
    target = model(name, dtype)
    around = conditions(target.weights.device) | {"target": name, "dtype": dtype, "threads": target.threads}
    sources, entries = [], forwards(name, target, around)
    for draft in drafts.DRAFTS[name]:
        try:
            sources.append(drafts.source(draft, target, dtype))
        except ModelError as lacking:
            print(lacking.message("en"), file=sys.stderr)
    texts = [p.sent for p in drafts.prompts(name)[:: max(1, 16 // prompts)]]
    for temperature, ks in ({0.0: GREEDY_KS[name]} | SAMPLED[name] if dtype == "float32" else {0.0: HALF_KS}).items():
        contenders = [(source, k) for source in sources for k in ks]
        drafts.race(target, contenders[:1], texts[:1], 8, Sampling(temperature))  # warm
        shared = around | {"temperature": temperature, "prompts": len(texts), "new": new}
        for found in drafts.race(target, contenders, texts, new, Sampling(temperature), report=show):
            entries |= of_race(name, target, found, temperature, dtype, shared)
    return entries


def model(name: str, dtype: str) -> Model:
    registered = registry.shared().get(name)
    return registered if dtype == "float32" else load(registry.shared().entries[name].path, dtype=dtype, name=name)


def show(fraction: float, note: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{fraction:4.0%}\033[K", end="" if fraction < 1 else "\n", file=sys.stderr)


def suffix(dtype: str) -> str:
    """Keys of float32 say nothing of it."""
    return "" if dtype == "float32" else ".bf16"


def of_race(name: str, target: Model, found: Race, temperature: float, dtype: str, around: dict[str, Any]) -> Entries:
    key = key_of(name, found.draft, found.k, temperature) + suffix(dtype)
    around = around | {"draft": found.draft, "k": found.k}
    zh, en = f"{found.draft} 起草，k = {found.k}，T = {temperature:g}，{dtype}", f"drafted by {found.draft}, k = {found.k}, T = {temperature:g}, {dtype}"
    made = {
        "speedup": many(found.speedups, "×", around, f"实测提速：{zh}", f"measured speed-up: {en}"),
        "tokens_per_second": many(found.speeds, "token/s", around, f"投机解码的速度：{zh}", f"speed of speculative decoding: {en}"),
        "plain_tokens_per_second": many(found.plain_speeds, "token/s", around, f"同一批提示、逐个 token 解码的速度（{zh}）", f"speed of plain decoding on the same prompts ({en})"),
        "cost_by_time": one(found.cost_by_time, "ratio", around, f"猜一个 token 的代价 c（按时间）：{zh}", f"cost c of a guess, by time: {en}"),
        "check_over_step": one(found.check_seconds / found.step_seconds, "ratio", around, f"验收一轮比写一个 token 慢几倍：{zh}", f"a check of the guesses over a plain step: {en}"),
        "predicted_by_time": one(
            found.tally.tokens_per_forward / (1 + found.cost_by_time * found.k), "×", around | {"E": found.tally.tokens_per_forward, "c": found.cost_by_time},
            f"按时间之比估的提速 E/(1 + c·k)：{zh}", f"speed-up predicted by the ratio of times, E/(1 + c·k): {en}"),
        "tokens_per_forward_raced": one(found.tally.tokens_per_forward, "token/forward", around, f"计时那批提示上，目标每次前向写出的 token：{zh}", f"tokens per forward on the timed prompts: {en}"),
        "acceptance_raced": one(found.tally.acceptance, "ratio", around, f"计时那批提示上的 α：{zh}", f"α on the timed prompts: {en}"),
    }  # fmt: skip
    if temperature == 0:
        made["same_raced"] = one(found.same, "prompt", around | {"of": around["prompts"]}, f"计时那批提示上，文本与逐个解码相同的提示数：{zh}", f"timed prompts on which both texts are the same: {en}")
    return {f"{key}.{part}": entry for part, entry in made.items()}


def forwards(name: str, target: Model, around: dict[str, Any]) -> Entries:
    """Median time of one forward with M tokens after CACHED positions; the widths take turns."""
    dtype = around["dtype"]
    entries, models = {}, [(name, target)]
    for draft in drafts.DRAFTS[name]:
        if draft not in (drafts.LOOKUP, drafts.MTP, drafts.BOTH):
            try:
                drafts.source(draft, target, dtype)
                models.append((draft, drafts._model(draft, dtype)))
            except ModelError:
                continue
    for which, loaded in models:
        seconds = {width: [] for width in WIDTHS}
        cache = KVCache(loaded.weights, 1, CACHED + max(WIDTHS))
        torch.set_num_threads(loaded.threads)
        tokens = torch.arange(1, CACHED + 1)[None] % loaded.config.vocabulary
        forward(loaded.weights, tokens, cache, torch.arange(CACHED)[None], last_only=True)
        for repeat in range(REPEATS + 2):
            for width in WIDTHS:
                began = time.perf_counter()
                forward(loaded.weights, tokens[:, :width], cache, torch.arange(CACHED, CACHED + width)[None])
                wait_for(loaded.weights.device)
                if repeat >= 2:
                    seconds[width].append(time.perf_counter() - began)
        for width, times in seconds.items():
            says = f"{which} 一次前向 {width} 个 token（{dtype}）", f"one forward of {which} with {width} tokens ({dtype})"
            entries[f"drafting.forward.{which}{suffix(dtype)}.m{width}"] = many(
                tuple(times), "s", around | {"model": which, "tokens": width, "cached": CACHED, "threads": loaded.threads}, *says)
    return entries


def many(values: tuple[float, ...], unit: str, around: dict[str, Any], zh: str, en: str) -> dict[str, Any]:
    """Their median, with the middle half as spread."""
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    spread = {"quartiles": [low, high], "slowest_and_fastest": [min(values), max(values)]}
    return one(statistics.median(values), unit, around | spread, zh, en) | {"n": len(values)}


def one(value: Any, unit: str, around: dict[str, Any], zh: str, en: str) -> dict[str, Any]:
    return {"value": value, "unit": unit, "kind": "measured", "conditions": around, "says": {"zh": zh, "en": en}}
