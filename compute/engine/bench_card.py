"""One card in one short run: does it compute what the processor claims, and how near to its own walls does it decode?

    python -m compute bench --device cuda --json      # at most four minutes; with --device cpu the same, smaller

Each part runs in a process of its own with a limit of its own: a part that fails, hangs or spoils the card's context is told by name
and the others go on. What was measured goes to data/measured/card-<name>.json. Equality is claimed in float32 with TF32 off; in
bfloat16 a bound is stated, see KL_BOUND. Bandwidth is measured in the same run, by a streaming read and by a matrix-vector product.

Not yet run on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from compute import precompute
from compute.engine import bench, drafts, registry
from compute.engine.bench_quantize import BATCH, NEW, PROMPT, ours, race
from compute.engine.bench_speculate import Entries, many, one
from compute.engine.device import choose_device
from compute.engine.engine import Ask, Engine
from compute.engine.generate import generate
from compute.engine.loader import Model, load
from compute.engine.machine import conditions, measure, wait_for
from compute.engine.model import forward
from compute.quantize import kernels
from compute.quantize.grid import Grid, Quantized, Uniform, quantize
from compute.quantize.model import quantized
from compute.quantize.schemes import scheme
from compute.sampling import Sampling

KL_BOUND = 0.01  # nat a token, mean, from float32 to bfloat16 along the same texts; on a processor `--size cpu` gave 0.00025 for mini-256
BLOCK = 16  # positions
INNER_TILES = 8  # of tinygemm's packing
INT4_BOUND = 0.02  # of the 4-bit product against the restored weights, relative: its own rounding to bfloat16


@dataclass(frozen=True)
class Size:
    """What a run does. texts, new: of the equality checks; matrices: that the product of few bits walks through, so that no cache holds them."""

    models: tuple[str, ...]
    texts: int
    new: int
    rounds: int
    batches: tuple[int, ...]
    prompts: int
    side: int
    matrices: int


SIZES = {
    "cuda": Size(("mini-256", "smollm2-135m"), 8, 64, 5, (1, 8, 32, 128, 512), 8, 4096, 64),
    "cpu": Size(("mini-256",), 2, 24, 2, (1, 8), 2, 2048, 8),
    "tiny": Size(("mini-64",), 1, 4, 1, (1, 2), 1, 256, 2),  # for the tests
}
LIMITS = {"machine": 20, "equality": 60, "decode": 45, "batch": 45, "speculate": 40, "int4": 30}  # s; 240 in all


# ---- the parts


def machine(device: torch.device, size: Size) -> Entries:
    """The walls: memory bandwidth by a streaming read and by a matrix-vector product, and the peak of square products."""
    return {
        found.id: one(found.value, found.unit, found.conditions | {"slowest_and_fastest": [found.low, found.high]}, f"这张卡：{found.id}", f"this card: {found.id}") | {"n": found.runs}
        for found in measure(str(device))
    }


def equality(device: torch.device, size: Size) -> Entries:
    """Greedy texts of the engine against naive generation without a cache and against transformers, token for token in float32; and how
    far bfloat16 is from float32 along the same texts."""
    made: Entries = {}
    for name in available(size):
        model = loaded(name, device)
        prompts = [tuple((7 * n + 31 * text) % model.config.vocabulary for n in range(1, 17 + text)) for text in range(size.texts)]
        naive = [[step.token for step in generate(model, prompt, size.new, use_cache=False, ignore_end=True)] for prompt in prompts]
        around = about(device, model) | {"of": len(prompts), "new": size.new, "tf32": torch.backends.cuda.matmul.allow_tf32}
        for other, texts, zh, en in (
            ("naive", in_engine(model, prompts, size.new), "引擎与无缓存的逐个生成", "the engine and naive generation without a cache"),
            ("transformers", in_peer(model, prompts, size.new), "无缓存的逐个生成与 transformers", "naive generation and transformers"),
        ):
            same = sum(a == b for a, b in zip(texts, naive, strict=True))
            made[f"{name}.same_as_{other}"] = one(same, "text", around | {"decoding": "greedy"}, f"{name}：{zh}写出同样的 token 的文本数", f"{name}: texts of the same tokens, {en}")
        kl, agrees = apart(model, loaded(name, device, "bfloat16"), [(*prompt, *text) for prompt, text in zip(prompts, naive)])
        made[f"{name}.bfloat16_kl"] = one(kl, "nat/token", around | {"bound": KL_BOUND}, f"{name}：bfloat16 与 float32 的平均 KL 散度", f"{name}: mean KL divergence from float32 to bfloat16")
        made[f"{name}.bfloat16_same_best"] = one(agrees, "ratio", around, f"{name}：bfloat16 与 float32 首选 token 相同的位置", f"{name}: positions at which bfloat16 prefers the token that float32 prefers")
    return made


def decode(device: torch.device, size: Size) -> Entries:
    """One text alone, ours and transformers in alternation, against the bandwidth of a matrix-vector product."""
    made: Entries = {}
    for name in available(size):
        for dtype in ("float32", "bfloat16"):
            found = bench.decode_speed(loaded(name, device, dtype), new_tokens=size.new, rounds=size.rounds)
            around, key, which = found.conditions | {"model": name}, f"{name}.{dtype}", f"{name}，{dtype}"
            made[f"{key}.tokens_per_second"] = spread(found.ours, "token/s", around, f"{which}：一条文本的解码速度", f"{name}, {dtype}: decoding speed of one text")
            made[f"{key}.transformers_tokens_per_second"] = spread(found.theirs, "token/s", around, f"{which}：transformers 的解码速度", f"{name}, {dtype}: decoding speed of transformers")
            made[f"{key}.over_transformers"] = spread(found.ratio, "×", around, f"{which}：速度是 transformers 的几倍", f"{name}, {dtype}: speed over transformers")
            made[f"{key}.bandwidth_share"] = one(found.bandwidth_share, "ratio", around | {"bandwidth": found.bandwidth_bytes_per_s, "bytes_per_token": found.bytes_per_token},
                                                 f"{which}：用上的内存带宽（只算权重）", f"{name}, {dtype}: share of the memory bandwidth, weights alone")  # fmt: skip
    return made


def batch(device: torch.device, size: Size) -> Entries:
    """Texts that decode together: tokens per second of all, ours and transformers. Where memory ends, the batches before stay."""
    made: Entries = {}
    for name in available(size):
        model = loaded(name, device, "bfloat16" if device.type == "cuda" else "float32")
        peer = bench.in_transformers(model)
        for texts in size.batches:
            prompts = [tuple((7 * n + text) % model.config.vocabulary for n in range(1, PROMPT + 1)) for text in range(texts)]
            try:
                rounds = [(timed_engine(model, prompts, size.new), timed_peer(peer, model, prompts, size.new)) for _ in range(size.rounds + 1)][1:]
            except torch.OutOfMemoryError as full:
                made[f"{name}.batch{texts}.out_of_memory"] = one(texts, "text", about(device, model) | {"said": str(full).splitlines()[0]}, f"{name}：{texts} 条一起放不下", f"{name}: {texts} texts at once do not fit")
                break
            around = about(device, model) | {"texts": texts, "prompt": PROMPT, "new_tokens": size.new, "rounds": size.rounds} | memory(device)
            for who, speeds in zip(("", "transformers_"), zip(*rounds)):
                made[f"{name}.batch{texts}.{who}tokens_per_second"] = many(tuple(speeds), "token/s", around, f"{name}，{texts} 条一起：{who or '引擎'} 每秒写出的 token", f"{name}, {texts} texts at once: tokens per second, {who or 'the engine'}")
    return made


def speculate(device: torch.device, size: Size) -> Entries:
    """Guesses of a small model and of look-up against plain decoding, greedy, on the same prompts."""
    made: Entries = {}
    target = registry.shared().get("mini-256")
    texts = [prompt.sent for prompt in drafts.prompts("mini-256")[:: max(1, 16 // size.prompts)]][: size.prompts]
    contenders = [(drafts.source(draft, target), 4) for draft in ("mini-64", drafts.LOOKUP)]
    drafts.race(target, contenders, texts[:1], 8, Sampling(0.0))  # warm
    for found in drafts.race(target, contenders, texts, size.new, Sampling(0.0)):
        around = about(device, target) | {"draft": found.draft, "k": found.k, "prompts": len(found.speedups), "new": size.new, "same texts": found.same, "of": len(texts)}
        key = f"mini-256.{found.draft}.k{found.k}"
        made[f"{key}.speedup"] = many(found.speedups, "×", around, f"投机解码的提速：{found.draft} 起草", f"speed-up of speculative decoding, drafted by {found.draft}")
        made[f"{key}.tokens_per_second"] = many(found.speeds, "token/s", around, f"投机解码的速度：{found.draft} 起草", f"speed of speculative decoding, drafted by {found.draft}")
        made[f"{key}.tokens_per_forward"] = one(found.tally.tokens_per_forward, "token/forward", around, f"目标每次前向写出的 token：{found.draft} 起草", f"tokens per forward of the target, drafted by {found.draft}")
    return made


def int4(device: torch.device, size: Size) -> Entries:
    """A 4-bit model beside the 16-bit one, as the engine runs it here; and one 4-bit product alone, checked against its restored weights."""
    made: Entries = {}
    for name in available(size):
        plain = loaded(name, device, "bfloat16" if device.type == "cuda" else "float32")
        contenders = {"bf16": ours(plain if device.type == "cuda" else quantized(plain, scheme("bf16"))), "int4": ours(quantized(plain, scheme("int4-g64-head8")))}
        for texts in (1, BATCH):
            speeds = race(contenders, texts, size.rounds)
            for who, values in speeds.items():
                around = about(device, plain) | {"texts": texts, "new_tokens": NEW, "rounds": len(values), "bytes_per_step": contenders[who].bytes, "reads": "small format" if device.type == "cpu" else "restored weights"}
                made[f"{name}.{who}.batch{texts}.tokens_per_second"] = many(tuple(values), "token/s", around, f"{name}，{who}，{texts} 条一起：解码速度", f"{name}, {who}, {texts} at once: decoding speed")
    return made | product(device, size)


def product(device: torch.device, size: Size) -> Entries:
    """One row times many matrices, each of them elsewhere in memory."""
    torch.manual_seed(0)
    weight = torch.randn(size.side, size.side)
    coded = quantize(weight.numpy(), Grid(Uniform(4), 64))
    x = torch.randn(1, size.side, device=device, dtype=torch.bfloat16)
    small, small_bytes = product4(coded, device, size.matrices)
    plain = [weight.to(device, torch.bfloat16, copy=True) for _ in range(size.matrices)]
    exact = x.float() @ torch.from_numpy(coded.restored()).float().to(device).t()
    off = float((small[0](x).float() - exact).abs().max() / exact.abs().max())
    runs = {"int4": (small, small_bytes), "bf16": ([lambda x, w=w: torch.nn.functional.linear(x, w) for w in plain], plain[0].nbytes)}
    made: Entries = {}
    around = conditions(device) | {"shape": [size.side, size.side], "matrices": size.matrices, "group": 64}
    seconds = {who: [per_product(products, x, device) for _ in range(size.rounds + 1)][1:] for who, (products, _) in runs.items()}
    for who, values in seconds.items():
        bytes_read = runs[who][1]
        made[f"product.{who}.seconds"] = many(tuple(values), "s", around | {"bytes": bytes_read}, f"{who}：{size.side} × {size.side} 的矩阵乘一行", f"{who}: a matrix of {size.side} × {size.side} times one row")
        made[f"product.{who}.bandwidth"] = one(bytes_read / median(values), "B/s", around | {"bytes": bytes_read}, f"{who}：乘一行时读权重的带宽", f"{who}: bandwidth at which a row's product reads the weights")
    made["product.int4.error"] = one(off, "ratio", around | {"bound": INT4_BOUND}, "4 位乘积与还原权重之积的最大相对误差", "largest error of the 4-bit product against the restored weights, relative to the largest result")
    return made


def product4(coded: Quantized, device: torch.device, copies: int) -> tuple[list[Callable[[torch.Tensor], torch.Tensor]], int]:
    """The same 4-bit matrix `copies` times: what multiplies a row with each, and bytes of one. On CUDA torch's tinygemm: two codes in a
    byte, the even column above, then its own tiles; it restores (code − 8) · scale + offset, as the CPU's does."""
    if device.type != "cuda":
        held = [kernels.matrix(coded, None) for _ in range(copies)]
        return [matrix.product for matrix in held], held[0].bytes
    group, codes = coded.grid.block, torch.from_numpy(coded.codes).int().to(device) + (8 if coded.grid.numbers.symmetric else 0)
    scales = torch.from_numpy(coded.steps.scales)
    offsets = torch.zeros_like(scales) if coded.steps.zeros is None else (8 - torch.from_numpy(coded.steps.zeros)) * scales
    pairs = torch.stack([scales, offsets], -1).transpose(0, 1).contiguous().to(device, torch.bfloat16)  # (in / group, out, 2)
    packed = tiles((codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8))
    held = [packed.clone() for _ in range(copies)]
    return [lambda x, w=w: torch.ops.aten._weight_int4pack_mm(x, w, group, pairs) for w in held], packed.nbytes + pairs.nbytes


def tiles(codes: torch.Tensor) -> torch.Tensor:
    """codes (out, in / 2) uint8 on a card, in the order of its tensor cores."""
    return torch.ops.aten._convert_weight_to_int4pack(codes, INNER_TILES)


@torch.inference_mode()
def per_product(products: list[Callable[[torch.Tensor], torch.Tensor]], x: torch.Tensor, device: torch.device) -> float:
    """Seconds of one. Waits once, at the end: a card is given its work faster than it does it."""
    wait_for(device)
    began = time.perf_counter()
    for product in products:
        product(x)
    wait_for(device)
    return (time.perf_counter() - began) / len(products)


PARTS: dict[str, Callable[[torch.device, Size], Entries]] = {"machine": machine, "equality": equality, "decode": decode, "batch": batch, "speculate": speculate, "int4": int4}


# ---- what the parts share


def available(size: Size) -> list[str]:
    """Those of the models whose files are here."""
    entries = registry.shared().entries
    return [name for name in size.models if entries[name].path.exists()]


def loaded(name: str, device: torch.device, dtype: str = "float32") -> Model:
    return load(registry.shared().entries[name].path, device=str(device), dtype=dtype, name=name)


def about(device: torch.device, model: Model) -> dict[str, Any]:
    return conditions(device) | {"model": model.name, "dtype": str(model.weights.dtype).removeprefix("torch."), "threads": model.threads}


def memory(device: torch.device) -> dict[str, int]:
    """Most that this process held on the card so far."""
    return {"memory_bytes": torch.cuda.max_memory_allocated(device)} if device.type == "cuda" else {}


def spread(found: bench.Spread, unit: str, around: dict[str, Any], zh: str, en: str) -> dict[str, Any]:
    return one(found.median, unit, around | {"slowest_and_fastest": [found.low, found.high]}, zh, en) | {"n": around["rounds"]}


def engine_for(model: Model, texts: int, positions: int) -> Engine:
    """With blocks for all of them: nobody is preempted."""
    return Engine(model, slots=texts, blocks=texts * -(-positions // BLOCK) + 1, block_size=BLOCK, budget=max(256, texts * PROMPT), caching=False)


def in_engine(model: Model, prompts: list[tuple[int, ...]], new: int) -> list[list[int]]:
    engine, texts = engine_for(model, len(prompts), max(map(len, prompts)) + new), [[] for _ in prompts]
    for prompt, text in zip(prompts, texts):
        engine.submit(Ask(prompt, new, ignore_end=True), lambda piece, text=text: text.append(piece.token))
    while engine.step():
        pass
    return texts


def timed_engine(model: Model, prompts: list[tuple[int, ...]], new: int) -> float:
    """Tokens per second from everybody's first token to the last."""
    engine, ticks = engine_for(model, len(prompts), PROMPT + new), []
    for prompt in prompts:
        engine.submit(Ask(prompt, new, ignore_end=True), lambda piece: ticks.append(time.perf_counter()))
    while engine.step():
        pass
    return len(prompts) * (new - 1) / (ticks[-1] - ticks[len(prompts) - 1])


def in_peer(model: Model, prompts: list[tuple[int, ...]], new: int) -> list[list[int]]:
    peer, device = bench.in_transformers(model), model.weights.device
    texts = []
    for prompt in prompts:
        ids = torch.tensor([prompt], device=device)
        made = peer.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False)
        texts.append(made[0, len(prompt) :].tolist())
    return texts


def timed_peer(peer: Any, model: Model, prompts: list[tuple[int, ...]], new: int) -> float:
    """As timed_engine, of `generate` on a batch of prompts of one length."""
    torch.set_num_threads(model.threads)
    clock, ids = bench.Clock(), torch.tensor(prompts, device=model.weights.device)
    peer.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, streamer=clock)
    wait_for(model.weights.device)
    return len(prompts) * (new - 1) / (time.perf_counter() - clock.ticks[1])


@torch.inference_mode()
def apart(model: Model, other: Model, texts: list[tuple[int, ...]]) -> tuple[float, float]:
    """Mean KL divergence (nat) from one model's next-token distribution to the other's along the texts, and the share of positions at
    which both prefer the same token."""
    kl, same = [], []
    for text in texts:
        ids, positions = torch.tensor([text]), torch.arange(len(text))[None]
        p, q = (forward(each.weights, ids, None, positions)[0].float().log_softmax(-1) for each in (model, other))
        kl.append((p.exp() * (p - q)).sum(-1))
        same.append((p.argmax(-1) == q.argmax(-1)).float())
    return float(torch.cat(kl).mean()), float(torch.cat(same).mean())


# ---- the run


def broken(entries: Entries) -> list[str]:
    """What was claimed and did not hold: texts that differ in float32, and values beyond their stated bound."""
    def holds(key: str, entry: dict[str, Any]) -> bool:
        around = entry["conditions"]
        return (".same_as_" not in key or entry["value"] == around["of"]) and entry["value"] <= around.get("bound", entry["value"])

    return [key for key, entry in entries.items() if not holds(key, entry)]


def in_a_process(part: str, device: str, size: str, seconds: float) -> tuple[Entries, str]:
    """(entries, what went wrong or "") of one part."""
    command = [sys.executable, "-m", "compute", "bench", "card", "--part", part, "--device", device, "--size", size]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=seconds, cwd=registry.ROOT)
    except subprocess.TimeoutExpired:
        return {}, f"not done within {seconds:.0f} s"
    if ran.returncode:
        return {}, (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
    return json.loads(ran.stdout.splitlines()[-1]), ""


def main(args: argparse.Namespace) -> int:
    """0: all parts ran and every claim held; 1: a claim did not; 3: a part failed."""
    device = choose_device(args.device)
    size = args.size or ("cuda" if device.type == "cuda" else "cpu")
    if args.part:
        os.environ["INFERENCE_LAB_DEVICE"] = str(device)  # for every model that is "auto"
        print(json.dumps(PARTS[args.part](device, SIZES[size])))
        return 0
    name = slug(torch.cuda.get_device_name(device) if device.type == "cuda" else device.type)
    entries, failed, took = {}, {}, {}
    for part in args.only or PARTS:
        began = time.perf_counter()
        found, reason = in_a_process(part, str(device), size, LIMITS[part] * args.patience)
        took[part] = round(time.perf_counter() - began, 1)
        entries |= {f"card.{name}.{part}.{key}": entry for key, entry in found.items()}
        if reason:
            failed[part] = reason
            print(f"{part}: {reason}", file=sys.stderr)
    wrong, file = broken(entries), None
    if entries and not args.only_print:
        file = precompute.write_measured(f"card-{name}", entries, f"python -m compute bench --device {args.device}")
    if args.json:
        print(json.dumps({"device": name, "size": size, "seconds": took, "failed": failed, "broken": wrong, "file": file and str(file), "entries": entries}, ensure_ascii=False, indent=1))
    else:
        for key, entry in entries.items():
            print(f"{key:72} {entry['value']:>12.5g} {entry['unit']}{'   ✗' if key in wrong else ''}")
    return 3 if failed else 1 if wrong else 0


def slug(name: str) -> str:
    """ "NVIDIA H200" → "nvidia-h200" """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
