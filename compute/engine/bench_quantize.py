"""What fewer bits buy on this machine's clock: decoding with the same model in four number formats, llama.cpp's 4-bit file beside
them, and the products alone. Written to data/measured/quantize-<model>.json.

All take turns within one process (llama.cpp in one of its own) and ratios are taken within each round. Our four differ in the
matrices alone: activations, norms, attention and the KV cache are in float32 in each, and so is what a step costs beside its
products. bf16 is our fastest way to read 16-bit weights here, not the engine's plain one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence as Row
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import gguf
import torch
from torch import Tensor

from compute import precompute
from compute.engine import registry, smollm2
from compute.engine.bench_peers import LlamaCpp, Request
from compute.engine.bench_speculate import Entries, many, one
from compute.engine.decoding import Decoder, decoder, prepared
from compute.engine.device import cores
from compute.engine.engine import Ask, Engine
from compute.engine.errors import ModelError
from compute.engine.loader import Model
from compute.engine.machine import conditions, measure
from compute.engine.model import MATRICES, Linear, Weights
from compute.engine.paged import PagedCache, Part
from compute.errors import BadInput
from compute.quantize import kernels
from compute.quantize.grid import Grid, Uniform, quantize
from compute.quantize.model import quantized
from compute.quantize.schemes import scheme

TARGETS = (smollm2.ID, "mini-256")
FORMATS = {"fp32": "", "bf16": "bf16", "int8": "int8-channel-head8", "int4": "int4-g64-head8"}  # by scheme; lm_head in each
HEAD16 = "int4-head16"  # the same with lm_head in 16 bits, as GPTQ and AWQ leave it
LLAMA = "llama-q4"
PROMPT, NEW = 32, 65  # tokens; the first new one, which pays for the prompt, is not timed
BATCH = 8
BLOCK = 16  # positions
TURNS = 15  # of the products alone
SIDE = 4096
NAMES = {
    "fp32": ("fp32", "fp32"), "bf16": ("bf16", "bf16"), "int8": ("int8", "int8"), "int4": ("int4", "int4"),
    HEAD16: ("int4，lm_head 为 16 位", "int4, lm_head in 16 bits"), LLAMA: ("llama.cpp 的 Q4_1", "llama.cpp’s Q4_1"),
}  # fmt: skip


@dataclass(frozen=True)
class Contender:
    """run(texts): seconds from the first new token of all texts to the last. bytes: of weights, read for one step."""

    run: Callable[[int], float]
    bytes: int
    about: dict[str, Any]


def main(args: argparse.Namespace) -> int:
    done = 0
    for name in args.target or TARGETS:
        try:
            entries = of_model(registry.shared().get(name), args.rounds, args.llama)
        except ModelError as lacking:
            print(lacking.message("en"), file=sys.stderr)
            continue
        for key, entry in entries.items():
            low, high = entry["conditions"].get("slowest_and_fastest", [entry["value"]] * 2)
            print(f"{key:64} {entry['value']:>10.4g} {entry['unit']:8} ({low:.4g}–{high:.4g})")
        if not args.only_print:
            command = f"python -m compute bench quantize --target {name} --rounds {args.rounds}" + (" --llama FOLDER" if args.llama else "")
            print(precompute.write_measured(f"quantize-{name}", entries, command))
        done += 1
    return 0 if done else 3


def of_model(model: Model, rounds: int, llama: Path | None) -> Entries:
    models = dict(variants(model))
    contenders = {who: ours(one) for who, one in models.items()}
    peer = None
    if llama and model.name == smollm2.ID:
        file = smollm2.gguf_path(registry.ROOT)
        peer = LlamaCpp(llama, replace(model, threads=cores()), BATCH, BATCH * (PROMPT + NEW), file)
        contenders[LLAMA] = beside(peer, file)
    around = conditions(model.weights.device) | {"model": model.name, "cores": cores(), "prompt": PROMPT, "new_tokens": NEW, "timed_tokens": NEW - 1}
    around |= {"load_before": round(os.getloadavg()[0], 1)} if hasattr(os, "getloadavg") else {}  # much above 0: others were at work
    around["instructions"] = instructions()
    del around["threads"]  # every contender has its own
    try:
        alone = race(contenders, 1, rounds)
        together = race(contenders, BATCH, max(1, rounds // 3))
    finally:
        if peer:
            peer.close()
    bandwidth = next(rate.value for rate in measure(str(model.weights.device), cores()) if rate.id == "read.gemv.float32")
    made = decoding(model.name, contenders, alone, 1, bandwidth, around) | decoding(model.name, contenders, together, BATCH, bandwidth, around)
    made |= of_products(model.name, {who: models[who] for who in FORMATS if who in models}, around)
    return made | of_squares(model.name, around)


def instructions() -> list[str]:
    """Of those that multiply short numbers, what the processor has; [] where the system does not say."""
    info = Path("/proc/cpuinfo")
    return sorted({"avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16", "asimddp", "bf16", "i8mm"} & set(info.read_text().split())) if info.exists() else []


def variants(model: Model) -> Iterator[tuple[str, Model]]:
    """The model in each format; without those whose groups do not divide its widths."""
    for who, id in FORMATS.items():
        try:
            made = quantized(model, scheme(id)) if id else model
        except BadInput as reason:
            print(f"{who}: {reason.message('en')}", file=sys.stderr)
            continue
        yield who, made
        if who == "int4":
            yield HEAD16, replace(made, name=f"{made.name}, lm_head in bf16", weights=replace(made.weights, head=kernels.half(model.weights.head)))


# ---- decoding


def ours(model: Model) -> Contender:
    prompts = [tuple((7 * n + text) % model.config.vocabulary for n in range(1, PROMPT + 1)) for text in range(BATCH)]
    engines: dict[int, Engine] = {}

    def run(texts: int) -> float:
        engine = engines.setdefault(texts, Engine(model, slots=texts, caching=False))
        ticks: list[float] = []
        for prompt in prompts[:texts]:
            engine.submit(Ask(prompt, NEW, ignore_end=True), lambda piece: ticks.append(time.perf_counter()))
        while engine.step():
            pass
        return ticks[-1] - ticks[texts - 1]

    return Contender(run, model.weights.bytes_per_decoded_token(), {"threads": model.threads, "weights": model.name})


def beside(peer: LlamaCpp, file: Path) -> Contender:
    """llama.cpp on the model's published file. With several texts from sending on, as the first tokens come one after the other."""
    requests = [Request(tuple(7 * n + text for n in range(1, PROMPT + 1)), NEW) for text in range(BATCH)]

    def run(texts: int) -> float:
        ran = peer(requests[:texts], texts)
        return ran.decoding if texts == 1 else ran.seconds

    return Contender(run, file_bytes(file), {"threads": cores(), "weights": file.name, "runs_in": "node-llama-cpp"})


def file_bytes(file: Path) -> int:
    """Of the matrices of a GGUF file whose lm_head is its embedding."""
    return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(file).tensors if len(tensor.shape) == 2)


def race(contenders: dict[str, Contender], texts: int, rounds: int) -> dict[str, list[float]]:
    """Tokens per second of every contender in every round, each round in another order; one run before, to warm up."""
    speeds: dict[str, list[float]] = {who: [] for who in contenders}
    for turn in range(rounds + 1):
        names = list(contenders)
        random.Random(turn).shuffle(names)
        for who in names:
            if sys.stderr.isatty():
                print(f"\r{texts} at once, round {turn} of {rounds}: {who}\033[K", end="", file=sys.stderr)
            seconds = contenders[who].run(texts)
            if turn:
                speeds[who].append(texts * (NEW - 1) / seconds)
    return speeds


def decoding(model: str, contenders: dict[str, Contender], speeds: dict[str, list[float]], texts: int, bandwidth: float, around: dict[str, Any]) -> Entries:
    made: Entries = {}
    at, many_zh, many_en = ("", "", "") if texts == 1 else (f"batch{texts}.", f"，{texts} 条一起", f", {texts} texts at once")
    for who, values in speeds.items():
        it, about = contenders[who], around | contenders[who].about | {"texts": texts, "rounds": len(values)}
        if who == LLAMA and texts > 1:
            about["timed"] = "from sending, prompts included"
        zh, en, key = f"{model}，{NAMES[who][0]}{many_zh}", f"{model}, {NAMES[who][1]}{many_en}", f"quantize.{model}.{who}.{at}"
        made[f"{key}tokens_per_second"] = many(tuple(values), "token/s", about, f"{zh}：解码速度", f"{en}: decoding speed")
        if "bf16" in speeds:
            ratios = tuple(a / b for a, b in zip(values, speeds["bf16"]))
            made[f"{key}speedup"] = many(ratios, "×", about, f"{zh}：速度是 bf16 的几倍", f"{en}: speed over bf16")
        if texts == 1:
            share = it.bytes * median(values) / bandwidth
            made[f"{key}bytes_per_token"] = one(it.bytes, "B", about, f"{zh}：每个 token 读的权重", f"{en}: weights read for each token")
            made[f"{key}bandwidth_share"] = one(share, "ratio", about | {"bandwidth": bandwidth}, f"{zh}：用上的内存带宽；超过 1 说明权重留在处理器缓存里",
                                                f"{en}: share of the memory bandwidth; above 1 the weights stay in the processor’s cache")  # fmt: skip
            if "bf16" in speeds:
                predicted = contenders["bf16"].bytes / it.bytes
                made[f"{key}predicted_speedup"] = one(predicted, "×", about, f"{zh}：按字节之比，速度应是 bf16 的几倍", f"{en}: speed over bf16 by the ratio of bytes")
    if texts == 1:
        about = around | {"threads": cores()}
        made[f"quantize.{model}.bandwidth"] = one(bandwidth, "B/s", about, "矩阵乘向量读内存的带宽", "bandwidth of a matrix-vector product")
    return made


# ---- the products alone


def of_products(model: str, models: dict[str, Model], around: dict[str, Any]) -> Entries:
    """Each matrix as decoding multiplies with it, one row: all layers one after the other, as in a step, so that a matrix has to
    come from where the step before left it; and the first layer's again and again, from the nearest cache."""
    decoders = {who: alone(one.weights, one.threads) for who, one in models.items()}
    seconds: dict[tuple[str, str, str], list[float]] = {}
    for turn in range(TURNS + 1):
        for who, it in decoders.items():
            for place, name, runs in products(it):
                took = timed(runs)
                if turn:
                    seconds.setdefault((who, name, place), []).append(took)
    made: Entries = {}
    for (who, name, place), values in seconds.items():
        matrix = getattr(models[who].weights.layers[0], name) if name != "head" else models[who].weights.head
        out, width = matrix.shape
        about = around | {"threads": models[who].threads, "shape": [out, width], "bytes": matrix.bytes, "turns": TURNS}
        where = ("逐层", "layer by layer") if place == "step" else ("反复乘同一个", "the same one again and again")
        made[f"quantize.{model}.{who}.product.{name}.{place}"] = many(
            tuple(values), "s", about, f"{model}，{who}：{name}（{out} × {width}）乘一行，{where[0]}", f"{model}, {who}: {name} ({out} × {width}) times one row, {where[1]}")
    for who, one_model in models.items():
        layers, about = one_model.config.layers, around | {"threads": one_model.threads}
        total = sum(median(seconds[who, name, "step"]) * (1 if name == "head" else layers) for name in (*MATRICES, "head"))
        made[f"quantize.{model}.{who}.products_per_token"] = one(total, "s", about, f"{model}，{who}：一个 token 里所有乘积的时间", f"{model}, {who}: time of all products of one token")
    beside = unmultiplied(models["fp32"].weights, models["fp32"].threads)
    made[f"quantize.{model}.rest_per_token"] = many(
        beside, "s", around | {"threads": models["fp32"].threads}, f"{model}：一个 token 里乘积以外的计算时间，每种格式都一样", f"{model}: time of what is computed beside the products of one token, the same in every format")
    return made


def alone(weights: Weights, threads: int) -> Decoder:
    return decoder(prepared(weights), PagedCache(weights, -(-(PROMPT + NEW) // BLOCK), BLOCK), threads)


def unmultiplied(weights: Weights, threads: int) -> tuple[float, ...]:
    """Seconds of each step of a text whose products are left out: norms, rotation, attention, the cache."""
    it, seconds = alone(weights, threads), []
    it.layers, it.head = [(norm, nothing, nothing, another, nothing, nothing) for norm, _, _, another, _, _ in it.layers], nothing
    blocks = tuple(range(it.cache.blocks))
    for at in range(PROMPT, PROMPT + NEW):
        seconds.append(timed([lambda at=at: it.logits([0], [Part(blocks, at, 1)])]))
    return tuple(seconds[1:])


def nothing(x: Tensor, out: Tensor) -> Tensor:
    return out


def products(it: Decoder) -> Iterator[tuple[str, str, list[Callable[[], Tensor]]]]:
    """(step or cached, name, what is run one after the other)"""
    weights = it.weights
    for name, at in zip((*MATRICES, "head"), (1, 2, 4, 5, 0)):
        matrix = weights.head if name == "head" else getattr(weights.layers[0], name)
        x, out = torch.ones(1, matrix.shape[1]), torch.zeros(1, matrix.shape[0])
        each = [it.head] if name == "head" else [layer[at] for layer in it.layers]
        runs = [lambda run=run, x=x, out=out: run(x, out) for run in each]
        yield "step", name, runs
        if name != "head":
            yield "cached", name, runs[:1] * len(runs)


@torch.inference_mode()
def timed(runs: Row[Callable[[], Any]]) -> float:
    """Seconds of one."""
    began = time.perf_counter()
    for run in runs:
        run()
    return (time.perf_counter() - began) / len(runs)


def of_squares(model: str, around: dict[str, Any]) -> Entries:
    """A matrix of a larger model, one row, one thread; in the same run, so that it compares."""
    torch.manual_seed(0)
    plain = Linear(torch.randn(SIDE, SIDE))
    held = {"fp32": plain, "bf16": kernels.half(plain)}
    held |= {who: kernels.matrix(quantize(plain.weight.numpy(), grid), None) for who, grid in (("int8", Grid(Uniform(8), "channel")), ("int4", Grid(Uniform(4), 64)))}
    x, made, seconds = torch.randn(1, SIDE), {}, {who: [] for who in held}
    torch.set_num_threads(1)
    for turn in range(TURNS + 1):
        for who, matrix in held.items():
            took = timed([lambda: matrix(x)] * 3)
            if turn:
                seconds[who].append(took)
    about = around | {"threads": 1, "shape": [SIDE, SIDE], "turns": TURNS}
    del about["prompt"], about["new_tokens"], about["timed_tokens"]
    for who, values in seconds.items():
        made[f"quantize.{model}.matrix-{SIDE}.{who}.seconds"] = many(
            tuple(values), "s", about | {"bytes": held[who].bytes}, f"{who}：{SIDE} × {SIDE} 的矩阵乘一行，一个线程", f"{who}: a matrix of {SIDE} × {SIDE} times one row, one thread")
    return made
