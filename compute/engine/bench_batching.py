"""Our engine's speed beside other engines': one text alone, and many requests at a few slots under each policy.

All take turns within one process, on the same weights and threads (llama.cpp in a process of its own, with as many threads),
and ratios are taken within each round. Written to data/measured/batching-<model>.json. Where the peers come from:
compute/engine/bench_peers.py.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence as Row
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from compute import precompute
from compute.batching import PolicyName
from compute.engine import registry
from compute.engine.bench_peers import LlamaCpp, Ran, Request, Transformers
from compute.engine.engine import Ask, Engine
from compute.engine.errors import ModelError
from compute.engine.generate import decode
from compute.engine.loader import Model
from compute.engine.machine import conditions, measure
from compute.trace import Trace

MODELS = ("mini-256", "smollm2-135m")
SLOTS, REQUESTS, SEED = 8, 32, 0
PROMPTS, ANSWERS = (8, 64), (8, 128)  # tokens, shortest and longest
ALONE = Request(tuple(range(1, 33)), 97)  # 96 steps are timed
POLICIES: tuple[PolicyName, ...] = ("static", "continuous", "prefill-first", "chunked")
Entries = dict[str, dict[str, Any]]
Contender = Callable[[Row[Request]], Ran]


def main(args: argparse.Namespace) -> int:
    done = 0
    for name in args.model or MODELS:
        try:
            model = registry.shared().get(name)
        except ModelError as lacking:
            print(lacking.message("en"), file=sys.stderr)
            continue
        entries = of_model(replace(model, threads=args.threads or model.threads), args.rounds, args.llama)
        for key, entry in entries.items():
            around = entry["conditions"]
            low, high = around["slowest_and_fastest"]
            texts = f"  texts as ours: {around['texts_as_ours']}" if "texts_as_ours" in around else ""
            print(f"{key:66} {entry['value']:>10.4g} {entry['unit']:8} ({low:.4g}–{high:.4g}){texts}")
        if not args.only_print:
            command = f"python -m compute bench batching --model {name} --rounds {args.rounds}"
            command += (f" --threads {args.threads}" if args.threads else "") + (" --llama FOLDER" if args.llama else "")
            print(precompute.write_measured(f"batching-{name}", entries, command))
        done += 1
    return 0 if done else 3


def workload(vocabulary: int) -> list[Request]:
    """The same requests in every run. A prompt may have any length in its range; answers are mostly short, as many from 8 to
    16 tokens as from 64 to 128 (their logarithm is drawn evenly)."""
    draw, (shortest, longest) = random.Random(SEED), ANSWERS
    sizes = [(draw.randint(*PROMPTS), round(shortest * (longest / shortest) ** draw.random())) for _ in range(REQUESTS)]
    return [Request(tuple(draw.choices(range(vocabulary), k=prompt)), answer) for prompt, answer in sizes]


def of_model(model: Model, rounds: int, llama: Path | None) -> Entries:
    torch.set_num_threads(model.threads)
    many, capacity = workload(model.config.vocabulary), PROMPTS[1] + ANSWERS[1]
    traces: dict[str, Trace] = {}
    single: dict[str, Contender] = {
        "engine": lambda requests: ours(model, requests, 1, "continuous", traces, "single"),
        "generate": lambda requests: reference(model, requests),
    }
    batched: dict[str, Contender] = {
        policy: lambda requests, policy=policy: ours(model, requests, SLOTS, policy, traces, policy) for policy in POLICIES
    } | {"one-by-one": lambda requests: ours(model, requests, 1, "continuous", traces, "one-by-one")}
    peers = []
    try:
        transformers = Transformers(model, SLOTS, capacity)
        peers.append(transformers)
        single["transformers"] = transformers.alone
        batched |= {"transformers-batches": transformers.batches, "transformers-continuous": transformers.continuous}
    except ModelError as lacking:
        print(lacking.message("en"), file=sys.stderr)
    if llama:
        peers.append(cpp := LlamaCpp(llama, model, SLOTS, SLOTS * capacity))
        single["llama-cpp"] = lambda requests: cpp(requests, 1)
        batched["llama-cpp"] = lambda requests: cpp(requests, SLOTS)
    try:
        alone_runs, many_runs = race(single, [ALONE], rounds), race(batched, many, rounds)
    finally:
        for peer in peers:
            peer.close()
    rates = {rate.id: rate.value for rate in measure(str(model.weights.device), model.threads)}
    around = conditions(model.weights.device) | {"model": model.name, "dtype": "float32", "threads": model.threads, "rounds": rounds}
    return entries_of(model, alone_runs, many_runs, traces, rates["read.gemv.float32"], around)


def race(contenders: dict[str, Contender], requests: Row[Request], rounds: int) -> dict[str, list[Ran]]:
    """Every contender once to warm up, then `rounds` times, each round in another order."""
    runs: dict[str, list[Ran]] = {name: [] for name in contenders}
    for run in contenders.values():
        run(requests[:2] if len(requests) > 2 else requests)
    for n in range(rounds):
        names = list(contenders)
        random.Random(n).shuffle(names)
        for name in names:
            runs[name].append(contenders[name](requests))
            if sys.stderr.isatty():
                print(f"\rround {n + 1} of {rounds}: {name}\033[K", end="", file=sys.stderr)
    return runs


def ours(model: Model, requests: Row[Request], slots: int, policy: PolicyName, traces: dict[str, Trace], name: str) -> Ran:
    engine, ticks = Engine(model, slots=slots, policy=policy), []
    texts: list[list[int]] = [[] for _ in requests]

    def hear(piece, text):
        text.append(piece.token)
        ticks.append(time.perf_counter())

    began = time.perf_counter()
    for request, text in zip(requests, texts):
        engine.submit(Ask(request.prompt, request.limit, ignore_end=True), lambda piece, text=text: hear(piece, text))
    while engine.step():
        pass
    traces[name] = engine.recorder.trace()
    return Ran(texts, time.perf_counter() - began, ticks[-1] - ticks[0])


def reference(model: Model, requests: Row[Request]) -> Ran:
    """`generate`, which the engine has to equal."""
    texts, decoding, began = [], 0.0, time.perf_counter()
    for request in requests:
        steps = list(decode(model, request.prompt, request.limit, lambda row: int(row.argmax()), use_cache=True))
        texts.append([token for token, *_ in steps])
        decoding += sum(seconds for _, _, seconds, _ in steps[1:])
    return Ran(texts, time.perf_counter() - began, decoding)


# ---- what is written down


NAMES = {
    "engine": ("我们的引擎", "our engine"), "generate": ("我们的参照实现", "our reference"), "transformers": ("transformers 的 generate", "transformers’ generate"),
    "llama-cpp": ("llama.cpp", "llama.cpp"), "one-by-one": ("引擎逐个处理", "the engine, one request after the other"),
    "transformers-batches": ("transformers 的 generate，一批八个", "transformers’ generate, batches of eight"),
    "transformers-continuous": ("transformers 的连续批处理", "transformers’ continuous batching"),
    "static": ("引擎的静态批处理", "the engine’s static batching"), "continuous": ("引擎的连续批处理", "the engine’s continuous batching"),
    "prefill-first": ("引擎的预填充优先", "the engine, prefill first"), "chunked": ("引擎的分块预填充", "the engine’s chunked prefill"),
}  # fmt: skip


def entries_of(
    model: Model, alone: dict[str, list[Ran]], many: dict[str, list[Ran]], traces: dict[str, Trace], bandwidth: float, around: dict[str, Any]
) -> Entries:
    """Keys: engine.<model>.single.<who>.… and engine.<model>.many.<who>.…"""
    one_text = around | {"prompt": len(ALONE.prompt), "timed_tokens": ALONE.limit - 1}
    requests = around | {"requests": REQUESTS, "slots": SLOTS, "seed": SEED, "prompt_tokens": list(PROMPTS), "new_tokens": list(ANSWERS), "block_size": 16}
    wanted, made = sum(map(len, many["one-by-one"][0].texts)), {}

    def add(key: str, values: Row[float], unit: str, conditions: dict[str, Any], zh: str, en: str) -> None:
        spread = {"slowest_and_fastest": [min(values), max(values)]}
        made[f"engine.{model.name}.{key}"] = {
            "value": statistics.median(values), "unit": unit, "kind": "measured", "n": len(values),
            "conditions": conditions | spread, "says": {"zh": f"{model.name}：{spaced(zh)}", "en": f"{model.name}: {en}"},
        }  # fmt: skip

    def faster(key: str, fast: Row[Ran], slow: Row[Ran], conditions: dict[str, Any], zh: str, en: str, seconds: str = "seconds") -> None:
        add(key, [getattr(b, seconds) / getattr(a, seconds) for a, b in zip(fast, slow)], "×", conditions, zh, en)

    for who, runs in alone.items():
        zh, en = NAMES[who]
        speeds = [(ALONE.limit - 1) / run.decoding for run in runs]
        add(f"single.{who}.tokens_per_second", speeds, "token/s", one_text | same(runs, alone["generate"]), f"{zh}，单条生成", f"{en}, one text alone")
        if who != "engine":
            says = f"单条生成，引擎比{zh}快几倍", f"one text alone, the engine over {en}"
            faster(f"single.engine_over_{who}", alone["engine"], runs, one_text, *says, seconds="decoding")
    for who, runs in many.items():
        zh, en = NAMES[who]
        speeds = [wanted / run.seconds for run in runs]
        says = f"{zh}，{REQUESTS} 个请求", f"{en}, {REQUESTS} requests"
        add(f"many.{who}.tokens_per_second", speeds, "token/s", requests | same(runs, many["one-by-one"]), *says)
        for policy in ("continuous", "chunked"):
            if who == policy or policy == "chunked" and who not in ("static", "one-by-one"):
                continue
            says = f"{REQUESTS} 个请求，{NAMES[policy][0]}比{zh}快几倍", f"{REQUESTS} requests, {NAMES[policy][1]} over {en}"
            faster(f"many.{policy}_over_{who}", many[policy], runs, requests, *says)
    add("bandwidth", [bandwidth], "B/s", around, "矩阵乘向量读内存的带宽", "bandwidth of a matrix-vector product")
    for name, trace in traces.items():
        runs, where, key = (alone["engine"], one_text, "single.engine") if name == "single" else (many[name], requests, f"many.{name}")
        (zh, en), size = NAMES.get(name, NAMES["engine"]), moved(model, trace)
        says = f"{zh}用上的带宽；超过 1 说明权重留在处理器缓存里", f"share of that bandwidth, {en}; above 1 the weights stay in the processor’s cache"
        add(f"{key}.bandwidth_share", [size / run.seconds / bandwidth for run in runs], "ratio", where | {"bytes": size, "bandwidth": bandwidth}, *says)
        if name in POLICIES:
            add(f"{key}.utilisation", [trace.utilisation], "ratio", requests, f"{zh}，槽位利用率", f"use of the slots, {en}")
            add(f"{key}.steps", [len(trace.steps)], "step", requests, f"{zh}，步数", f"steps, {en}")
    return made


def spaced(zh: str) -> str:
    """With a space between Han and Latin."""
    return re.sub(r"(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[\u4e00-\u9fff])", " ", zh)


def same(runs: Row[Ran], as_those: Row[Ran]) -> dict[str, Any]:
    """Sums in another order may decide a tie of two candidates otherwise."""
    return {"texts_as_ours": f"{sum(a == b for a, b in zip(runs[0].texts, as_those[0].texts))} of {len(runs[0].texts)}"}


def moved(model: Model, trace: Trace) -> int:
    """Bytes that the steps have to read and write at least: the matrices once a step, and keys and values of every position
    that was looked at, once for each sequence and step."""
    c, size = model.config, model.weights.embedding.element_size()
    position, total = c.layers * 2 * c.kv_heads * c.head_dim * size, 0
    read: dict[int, int] = {life.id: life.hits for life in trace.sequences}
    for step in trace.steps:
        for _, sequence, _, tokens, _ in step.lanes:
            read[sequence] += tokens
            total += position * (read[sequence] + tokens)
        total += bool(step.lanes) * model.weights.bytes_per_decoded_token()
    return total
