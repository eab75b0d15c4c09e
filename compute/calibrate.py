"""Fits the shares and launch costs of data/calibration.json. `python -m compute calibrate` makes the file.

    pip install aiconfigurator-core==0.12.0 --no-deps      # Apache-2.0, NVIDIA; about 82 MB of measured kernels
    python -m compute calibrate [--tables FOLDER]          # its folder systems/data; found by itself where it is installed

What goes in: single kernels, timed by NVIDIA in TensorRT-LLM, SGLang and vLLM. No whole-engine figure has a part in it.
Nothing of the tables is kept but the fitted factors and, of each kind of kernel, some rows drawn with the seed as dots to look at.

The rules, each for a reason that can be argued about beforehand:

1. For each kind of kernel the engine counts that is fastest over the shapes which all of them timed: whoever tunes an engine takes the
   best kernels there are. Decoding's attention is compared where the KV is larger than the cache, since that is when it matters.
2. Matrix products: rows and columns of at least 1,024, as layers of real models have. Two shares and a launch cost; activations are
   not charged, as in the ideal bound. Where more than a quarter of the products of up to 8 tokens beat the chip's bandwidth, the
   cache held the matrices from one repetition to the next, and all that fit in it are left out.
3. Attention is charged its KV by KV heads, while decoding apart for models whose query heads share KV heads (GQA) and those that do
   not: other kernels serve them. An engine of which more than a quarter of the rows beat the chip's bandwidth shared its KV between
   requests or found it in the cache, and is left out. Single rows that do so are left out as well, and so is, while decoding, KV that the processor's cache may have held (between 1 MB and four times
   its size): in an engine the weights pass through the cache in between.
4. The loss is the relative error, soft above 5 %, so that one odd kernel does not decide.
5. Norms and activations have no table. They are charged what they read and write at the share of bandwidth of matrix products, and the
   time that the smallest products take (under 0.2 µs of work) for each launch.
6. Sums across cards: message sizes of 8 kB to 64 MB inside one node, the fastest library at each.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from compute import facts
from compute.calibrated import FILE

PACKAGE, VERSION, LICENCE = "aiconfigurator-core", "0.12.0", "Apache-2.0, NVIDIA Corporation"
FOLDERS = {"a100-80g-sxm": "a100_sxm", "h100-sxm": "h100_sxm", "h200-sxm": "h200_sxm", "b200": "b200_sxm", "l40s": "l40s"}
LAST_CACHE_BYTES = {"a100-80g-sxm": 40e6, "h100-sxm": 50e6, "h200-sxm": 50e6, "b200": 126e6, "l40s": 96e6}
GEMM_DTYPE = {"bf16": "bfloat16", "fp8": "fp8", "int8": "int8_wo", "int4": "int4_wo"}
KV_DTYPE = {"bf16": "bfloat16", "fp8": "fp8", "int8": "bfloat16", "int4": "bfloat16"}
WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5 + 2 / 128}
LEAST_SIDE, FEW, SOFT, TOO_FAST, HEAD_DIM = 1024, 8, 0.05, 0.25, 128
SMALL_KV_BYTES, CACHES, TINY_SECONDS = 1e6, 4, 2e-7
MESSAGES = (8e3, 64e6)  # bytes
LEAST_ROWS, LEAST_SIZES, SAMPLE, SEED = 80, 8, 40, 0
SAMPLED = ("bf16", "fp8")

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Kernels:
    """Timed kernels of one kind. flops, bytes: in seconds at the chip's full peak and bandwidth; seconds: measured; engine: whose."""

    flops: np.ndarray
    bytes: np.ndarray
    seconds: np.ndarray
    engine: str
    labels: list[str]


def tables(given: str | None) -> Path:
    """The folder with one folder a card. Where there is none it says how to get it and exits with 2."""
    if given:
        folder = Path(given)
    else:
        found = importlib.util.find_spec("aiconfigurator_core")
        folder = Path(found.origin).parent / "systems" / "data" if found and found.origin else Path()
    if not (folder / FOLDERS["a100-80g-sxm"]).is_dir():
        where = f"in {given!r}" if given else "on this machine"
        print(f"there are no kernel tables {where}; pip install {PACKAGE}=={VERSION} --no-deps, or give --tables FOLDER (its systems/data)", file=sys.stderr)
        sys.exit(2)
    return folder


def read(folder: Path, kind: str, file: str) -> Iterator[tuple[str, Columns]]:
    """(engine, columns) of every engine's newest table of this kind of kernel."""
    import pyarrow.parquet as parquet  # Streamlit brings it

    for engine in sorted((folder / kind).iterdir()) if (folder / kind).is_dir() else ():
        versions = sorted(path for path in engine.glob(f"*/{file}"))
        if versions:
            table = parquet.read_table(versions[-1])
            yield engine.name, {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def chosen(columns: Columns, rows: np.ndarray) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def fastest(parts: list[tuple[str, np.ndarray, np.ndarray]], least: int = LEAST_ROWS, weighs: Callable[[np.ndarray], np.ndarray] | None = None) -> tuple[np.ndarray, np.ndarray, str]:
    """parts: (engine, shapes as rows of numbers, seconds). Those of the engine that needs the least time, by the geometric mean over
    the shapes that all of them timed (and that weigh); engines with few rows do not stand for election."""
    able = [part for part in parts if len(part[2]) >= least]
    if not able:
        return np.zeros((0, 4)), np.zeros(0), ""
    timed = [dict(zip(map(tuple, shapes), np.log(seconds))) for _, shapes, seconds in able]
    common = np.array(sorted(set(timed[0]).intersection(*timed[1:])))
    if weighs and len(common):
        common = common[weighs(common)]
    means = [np.mean([row[tuple(shape)] for shape in common]) for row in timed] if len(common) else [-len(row) for row in timed]
    engine, shapes, seconds = able[int(np.argmin(means))]
    return shapes, seconds, engine


def fit(kernels: Kernels) -> dict[str, Any]:
    """Shares and launch cost, as the clock puts them together."""
    from scipy.optimize import least_squares

    def model(p):
        return np.hypot(kernels.flops / p[0], kernels.bytes / p[1]) + p[2] * 1e-6

    def loss(p):
        return np.log(model(p) / kernels.seconds)

    starts = [(0.7, 0.75, 4.0), (0.3, 0.5, 8.0), (0.5, 0.3, 12.0)]
    best = min((least_squares(loss, start, loss="soft_l1", f_scale=SOFT, bounds=((0.02, 0.02, 0.0), (1.0, 1.0, 100.0))) for start in starts), key=lambda run: run.cost)
    off = model(best.x) / kernels.seconds - 1
    naive = np.maximum(kernels.flops, kernels.bytes) / kernels.seconds - 1
    return {
        "compute": round(float(best.x[0]), 4), "memory": round(float(best.x[1]), 4), "launch_seconds": round(float(best.x[2]) * 1e-6, 9),
        "engine": kernels.engine, "rows": len(off), "error": round(float(np.abs(off).mean()), 4), "ideal_error": round(float(np.abs(naive).mean()), 4),
    }  # fmt: skip


# ---- the kinds of kernels


def gemm(folder: Path, chip: facts.Chip, precision: str) -> Kernels:
    parts = []
    for engine, t in read(folder, "gemm", "gemm_perf.parquet"):
        t = chosen(t, (t["gemm_dtype"] == GEMM_DTYPE[precision]) & (t["n"] >= LEAST_SIDE) & (t["k"] >= LEAST_SIDE))
        shapes, seconds = np.stack([t["m"], t["n"], t["k"]], 1).astype(float), t["latency"].astype(float) * 1e-3
        m, n, k = shapes.T
        size = n * k * WEIGHT_BYTES[precision]
        too_fast, held = size / chip.bandwidth_bytes_per_s > seconds, size < LAST_CACHE_BYTES[chip.id]
        few = held & (m <= FEW)
        kept = ~too_fast & ~(held & ((too_fast & few).sum() > TOO_FAST * max(1, few.sum())))
        parts.append((engine, shapes[kept], seconds[kept]))
    shapes, seconds, engine = fastest(parts)
    m, n, k = shapes.T[:3]
    peak = chip.flops_per_s["fp8"] if precision == "fp8" else chip.peak
    labels = [f"{m:.0f} × {k:.0f} × {n:.0f}" for m, n, k in shapes]
    return Kernels(2 * m * n * k / peak, n * k * WEIGHT_BYTES[precision] / chip.bandwidth_bytes_per_s, seconds, engine, labels)


def smallest(folder: Path, chip: facts.Chip) -> dict[str, float]:
    """Seconds of a kernel that has next to nothing to do: the smallest 16-bit products of the quickest engine."""
    floors = []
    for _, t in read(folder, "gemm", "gemm_perf.parquet"):
        m, n, k = (t[name].astype(float) for name in "mnk")
        work = np.maximum(2 * m * n * k / chip.peak, 2 * n * k / chip.bandwidth_bytes_per_s)
        tiny = (t["gemm_dtype"] == GEMM_DTYPE["bf16"]) & (work < TINY_SECONDS)
        if tiny.any():
            floors.append((float(np.median(t["latency"][tiny])) * 1e-3, int(tiny.sum())))
    seconds, rows = min(floors)
    return {"launch_seconds": round(seconds, 9), "rows": rows}


def attention(folder: Path, chip: facts.Chip, precision: str, decoding: bool, grouped: bool | None = None) -> Kernels:
    """grouped: whether query heads share KV heads; None for both."""
    parts, kv_bytes = [], 1 if KV_DTYPE[precision] == "fp8" else 2
    for engine, t in read(folder, "attention", "generation_attention_perf.parquet" if decoding else "context_attention_perf.parquet"):
        kept = (t["head_dim"] == HEAD_DIM) & (t["kv_cache_dtype"] == KV_DTYPE[precision])
        if "window_size" in t:
            kept &= t["window_size"] == 0
        kept &= (t["step"] > 0) if decoding else (t["step"] == 0)
        if grouped is not None:
            kept &= (t["num_heads"] > t["num_key_value_heads"]) == grouped
        t = chosen(t, kept)
        context = (t["step"] + t["isl"] if decoding else t["isl"]).astype(float)
        shapes = np.stack([t["batch_size"], t["num_heads"], t["num_key_value_heads"], context], 1).astype(float)
        seconds = t["latency"].astype(float) * 1e-3
        if decoding:
            b, h, kv, n = shapes.T
            moved = 2 * b * kv * HEAD_DIM * n * kv_bytes
            too_fast = moved / chip.bandwidth_bytes_per_s > seconds
            large, small = moved > CACHES * LAST_CACHE_BYTES[chip.id], moved < SMALL_KV_BYTES
            if (too_fast & large).sum() > TOO_FAST * max(1, large.sum()):
                continue
            good = ~too_fast & (large | small)
            shapes, seconds = shapes[good], seconds[good]
        parts.append((engine, shapes, seconds))
    full = lambda shapes: 2 * shapes[:, 0] * shapes[:, 2] * HEAD_DIM * shapes[:, 3] * kv_bytes > CACHES * LAST_CACHE_BYTES[chip.id]  # noqa: E731
    shapes, seconds, engine = fastest(parts, weighs=full if decoding else None)
    b, h, kv, n = shapes.T
    if decoding:
        flops, moved = 4 * b * h * HEAD_DIM * n, 2 * b * kv * HEAD_DIM * n * kv_bytes
    else:
        flops, moved = 2 * b * h * HEAD_DIM * n * n, 2 * b * kv * HEAD_DIM * n * kv_bytes + 2 * b * n * h * HEAD_DIM * 2
    labels = [f"{b:.0f} × {n:.0f}, {h:.0f} / {kv:.0f}" for b, h, kv, n in shapes]
    return Kernels(flops / chip.peak, moved / chip.bandwidth_bytes_per_s, seconds, engine, labels)


def reduce(folder: Path, chip: facts.Chip) -> dict[str, dict[str, float]]:
    """By number of cards: share of the link and seconds a launch, of sums over messages of some bytes."""
    from scipy.optimize import least_squares

    made = {}
    sources = [*read(folder, "comm", "custom_allreduce_perf.parquet"), *read(folder, "comm", "nccl_perf.parquet")]
    for cards in (2, 4, 8):
        parts = []
        for engine, t in sources:
            kept = (t["op_name"] == "all_reduce") & (t["num_gpus"] == cards)
            if "nccl_dtype" in t:
                kept &= t["nccl_dtype"] == "half"
            t = chosen(t, kept)
            size = 2 * t["message_size"].astype(float)  # the tables count elements, of 16 bits
            kept = (size >= MESSAGES[0]) & (size <= MESSAGES[1])
            parts.append((engine, size[kept][:, None], t["latency"][kept].astype(float) * 1e-3))
        size, seconds, engine = fastest(parts, LEAST_SIZES)
        if not len(seconds):
            continue
        ideal = size[:, 0] * 2 * (cards - 1) / cards / chip.link_bytes_per_s
        run = least_squares(lambda p: np.log((ideal / p[0] + p[1] * 1e-6) / seconds), (0.6, 8.0), loss="soft_l1", f_scale=SOFT, bounds=([0.02, 0.0], [1.0, 200.0]))
        off = (ideal / run.x[0] + run.x[1] * 1e-6) / seconds - 1
        made[str(cards)] = {
            "memory": round(float(run.x[0]), 4), "launch_seconds": round(float(run.x[1]) * 1e-6, 9), "rows": len(seconds), "error": round(float(np.abs(off).mean()), 4),
            "engine": engine,
        }  # fmt: skip
    return made


def dots(kernels: Kernels, rng: np.random.Generator) -> list[list[Any]]:
    """A few rows to look at: [shape, seconds at the full peak, at the full bandwidth, measured]."""
    drawn = np.sort(rng.permutation(len(kernels.seconds))[:SAMPLE])
    return [[kernels.labels[at], *(float(f"{value[at]:.4g}") for value in (kernels.flops, kernels.bytes, kernels.seconds))] for at in drawn]


def calibrate(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    classes: dict[str, Any] = {}
    samples: dict[str, Any] = {}
    for id, name in FOLDERS.items():
        chip, here = facts.chip(id), folder / name
        small, summed = smallest(here, chip), reduce(here, chip)
        for precision in GEMM_DTYPE:
            if precision == "fp8" and "fp8" not in chip.flops_per_s:
                continue
            kinds = {
                "gemm": gemm(here, chip, precision), "decode_attention": attention(here, chip, precision, True, False),
                "decode_attention_grouped": attention(here, chip, precision, True, True), "prefill_attention": attention(here, chip, precision, False),
            }  # fmt: skip
            if not all(kernels.engine for kernels in kinds.values()):
                continue
            fitted = {kind: fit(kernels) for kind, kernels in kinds.items()}
            classes.setdefault(id, {})[precision] = fitted | {"small": small, "reduce": summed}
            if precision in SAMPLED:
                samples.setdefault(id, {})[precision] = {kind: dots(kernels, rng) for kind, kernels in kinds.items()}
            for kind, row in fitted.items():
                print(f"{id:13} {precision:5} {kind:25}", " ".join(f"{key} {value}" for key, value in row.items()))
    source = {"package": PACKAGE, "version": VERSION, "licence": LICENCE, "url": "https://github.com/ai-dynamo/aiconfigurator"}
    return {"schema": 1, "made": {"command": "python -m compute calibrate", "date": date.today().isoformat(), "seed": SEED, "source": source}, "classes": classes, "samples": samples}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m compute calibrate", description="Fits the calibrated clock to published kernel measurements.")
    parser.add_argument("--tables", help=f"the folder systems/data of {PACKAGE}; found by itself where that is installed")
    made = calibrate(tables(parser.parse_args(argv).tables))
    body = json.dumps(made, indent=1, ensure_ascii=False)
    FILE.write_text(_compact(body) + "\n", encoding="utf-8")
    print(f"{FILE}: {sum(len(rows) for rows in made['classes'].values())} classes")
    return 0


def _compact(body: str) -> str:
    """Rows of numbers on one line each."""
    import re

    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s*\n\s*", " ", m[1]) + "]", body)
