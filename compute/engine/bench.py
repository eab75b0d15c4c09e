"""Decode speed, ours against transformers: the same weights, dtype and threads, in alternation in one process."""

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from compute.engine import registry
from compute.engine.errors import ModelMissing
from compute.engine.generate import decode
from compute.engine.loader import Model, take_apart
from compute.engine.machine import conditions, measure, wait_for


@dataclass(frozen=True)
class Spread:
    """Median and extremes over the rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class DecodeSpeed:
    model: str
    ours: Spread  # tokens per second
    theirs: Spread
    ratio: Spread  # ours / theirs within each round: a slow phase of the machine hits both
    same_tokens: bool  # both engines wrote the same text in every round
    bytes_per_token: int  # weights read for one token
    bandwidth_bytes_per_s: float  # this machine's median matrix-vector bandwidth, same dtype and threads
    bandwidth_share: float  # of it, reached by our decoding, weights alone; above 1: they stay in the processor's cache
    conditions: dict[str, Any]


def decode_speed(model: Model, *, new_tokens: int = 48, rounds: int = 5, threads: int | None = None) -> DecodeSpeed:
    """Greedy, batch 1, after 32 prompt tokens; the first new token, which pays for the prompt, is not timed.

    `threads`: default those the model chose at loading. Raises ModelMissing without transformers.
    """
    model = replace(model, threads=threads or model.threads)
    device = model.weights.device
    prompt = [7 * n % model.config.vocabulary for n in range(1, 33)]
    reference = in_transformers(model)

    def ours() -> tuple[float, list[int]]:
        steps = list(decode(model, prompt, new_tokens, lambda row: int(row.argmax()), use_cache=True))
        return (new_tokens - 1) / sum(seconds for _, _, seconds, _ in steps[1:]), [token for token, *_ in steps]

    def theirs() -> tuple[float, list[int]]:
        torch.set_num_threads(model.threads)
        clock = Clock()
        ids = torch.tensor([prompt], device=device)
        made = reference.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False, streamer=clock
        )
        wait_for(device)
        return (new_tokens - 1) / (clock.ticks[-1] - clock.ticks[1]), made[0, len(prompt) :].tolist()

    engines = (ours, theirs)
    for run in engines:
        run()
    pairs = []
    for n in range(rounds):  # who goes first changes from round to round
        done = {run: run() for run in engines[:: 1 if n % 2 else -1]}
        pairs.append((done[ours], done[theirs]))
    dtype = str(model.weights.dtype).removeprefix("torch.")
    rates = {measured.id: measured.value for measured in measure(str(device), model.threads)}
    wall = rates[f"read.gemv.{'float32' if dtype == 'float32' else 'bfloat16'}"]
    our_speed = spread([a for (a, _), _ in pairs])
    size = model.weights.bytes_per_decoded_token()
    return DecodeSpeed(
        model=model.name,
        ours=our_speed,
        theirs=spread([b for _, (b, _) in pairs]),
        ratio=spread([a / b for (a, _), (b, _) in pairs]),
        same_tokens=all(a == b for (_, a), (_, b) in pairs),
        bytes_per_token=size,
        bandwidth_bytes_per_s=wall,
        bandwidth_share=our_speed.median * size / wall,
        conditions=conditions(device)
        | {"threads": model.threads, "dtype": dtype, "prompt": len(prompt), "new_tokens": new_tokens, "rounds": rounds},
    )


def spread(values: list[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


class Clock:
    """A streamer for transformers that notes when the prompt and each new token arrive."""

    def __init__(self):
        self.ticks: list[float] = []

    def put(self, _) -> None:
        self.ticks.append(time.perf_counter())

    def end(self) -> None:
        pass


def in_transformers(model: Model):
    """The same tensors in transformers' own class, in evaluation mode and without an end token."""
    try:
        import transformers
        from transformers.initialization import no_init_weights
    except ImportError:
        raise ModelMissing(
            "transformers",
            "the package to compare with is not installed",
            "没有安装用来对比的 transformers 包",
            "pip install -r requirements-test.txt",
            "请运行 pip install -r requirements-test.txt",
        ) from None
    c = model.config
    kind = getattr(transformers, c.architecture)
    config = kind.config_class(
        vocab_size=c.vocabulary,
        hidden_size=c.hidden,
        intermediate_size=c.intermediate,
        num_hidden_layers=c.layers,
        num_attention_heads=c.heads,
        num_key_value_heads=c.kv_heads,
        head_dim=c.head_dim,
        max_position_embeddings=c.context,
        rms_norm_eps=c.norm_eps,
        rope_parameters={
            "rope_type": c.rope.kind,
            "rope_theta": c.rope.theta,
            "factor": c.rope.factor,
            "low_freq_factor": c.rope.low_frequency_factor,
            "high_freq_factor": c.rope.high_frequency_factor,
            "original_max_position_embeddings": c.rope.original_context,
        }
        if c.rope.kind != "default"
        else {"rope_type": "default", "rope_theta": c.rope.theta},
        tie_word_embeddings=c.tied,
        attention_bias=c.out_bias,
        mlp_bias=c.mlp_bias,
    )
    with no_init_weights():  # every number is replaced below
        reference = kind(config).to(model.weights.dtype).eval()
    reference.load_state_dict(take_apart(model.weights))
    reference.generation_config.eos_token_id = None
    reference.generation_config.pad_token_id = 0
    return reference.to(model.weights.device)


def main(argv: list[str]) -> int:
    """`python -m compute bench decode | speculate | batching | quantize | cache | card`, and `bench --device …` for card."""
    parser = argparse.ArgumentParser(prog="python -m compute bench", description="Ratios from one alternating run.")
    kinds = parser.add_subparsers(dest="what", required=True)
    speculating = kinds.add_parser("speculate", help="speculative decoding against plain, into data/measured/")
    speculating.add_argument("--prompts", type=int, default=8, help="of each target's sixteen")
    speculating.add_argument("--new-tokens", type=int, default=48)
    speculating.add_argument("--target", action="append", help="mini-256, smollm2-135m (default: both)")
    speculating.add_argument("--print", action="store_true", dest="only_print", help="do not write the file")
    batching = kinds.add_parser("batching", help="the engine beside transformers and llama.cpp, into data/measured/")
    batching.add_argument("--model", action="append", help="id; may be repeated (default mini-256 and smollm2-135m)")
    batching.add_argument("--rounds", type=int, default=5)
    batching.add_argument("--threads", type=int, help="default: those the model chose at loading")
    batching.add_argument("--llama", type=Path, metavar="FOLDER", help="where node-llama-cpp was installed; see compute/engine/bench_peers.py")
    batching.add_argument("--print", action="store_true", dest="only_print", help="do not write the file")
    quantizing = kinds.add_parser("quantize", help="one model in four number formats, into data/measured/")
    quantizing.add_argument("--target", action="append", help="id; may be repeated (default smollm2-135m and mini-256)")
    quantizing.add_argument("--rounds", type=int, default=7)
    quantizing.add_argument("--llama", type=Path, metavar="FOLDER", help="where node-llama-cpp was installed; see compute/engine/bench_peers.py")
    quantizing.add_argument("--print", action="store_true", dest="only_print", help="do not write the file")
    caching = kinds.add_parser("cache", help="with the KV cache and without, and this machine's walls, into data/measured/")
    caching.add_argument("--rounds", type=int, default=5)
    caching.add_argument("--print", action="store_true", dest="only_print", help="do not write the files")
    card = kinds.add_parser("card", help="one device in a few minutes: equality, bandwidth, decoding, into data/measured/")
    card.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    card.add_argument("--only", action="append", help="a part; may be repeated (default all; compute/engine/bench_card.py has them)")
    card.add_argument("--size", help="cuda, cpu or tiny (default: by the device)")
    card.add_argument("--patience", type=float, default=1.0, help="times the limit of every part")
    card.add_argument("--part", help=argparse.SUPPRESS)  # in this process, to stdout
    card.add_argument("--json", action="store_true")
    card.add_argument("--print", action="store_true", dest="only_print", help="do not write the file")
    decoding = kinds.add_parser("decode", help="against transformers.generate")
    decoding.add_argument("--model", action="append", help="id; may be repeated (default mini-256 and smollm2-135m)")
    decoding.add_argument("--new-tokens", type=int, default=48)
    decoding.add_argument("--rounds", type=int, default=5)
    decoding.add_argument("--threads", type=int, help="default: those the model chose at loading")
    decoding.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.what == "card":
        from compute.engine import bench_card

        return bench_card.main(args)
    if args.what == "cache":
        from compute.engine import cache_race

        return cache_race.main(args)
    if args.what == "speculate":
        from compute.engine import bench_speculate

        return bench_speculate.main(args)
    if args.what == "batching":
        from compute.engine import bench_batching

        return bench_batching.main(args)
    if args.what == "quantize":
        from compute.engine import bench_quantize

        return bench_quantize.main(args)
    found = [
        decode_speed(registry.shared().get(id), new_tokens=args.new_tokens, rounds=args.rounds, threads=args.threads)
        for id in args.model or ("mini-256", "smollm2-135m")
    ]
    if args.json:
        print(json.dumps([asdict(f) for f in found], ensure_ascii=False, indent=2))
        return 0
    for f in found:
        print(
            f"{f.model}: ours {shown(f.ours)} tok/s, transformers {shown(f.theirs)}, ratio {shown(f.ratio, 2)}, same tokens: "
            f"{f.same_tokens}; {f.bandwidth_share:.0%} of {f.bandwidth_bytes_per_s / 1e9:.1f} GB/s; {f.conditions}"
        )
    return 0


def shown(spread: Spread, digits: int = 1) -> str:
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f}–{spread.high:.{digits}f})"
