"""The ways to quantize a model that the course compares, by name. No torch: pages list them.

A scheme applies to the matrices of the layers. lm_head, embedding and norms stay as they are, as in GPTQ's and AWQ's own
evaluations, and are counted with 16 bits; `head` says otherwise.

Names: int4-g128 is round-to-nearest, 4-bit symmetric integers, a 16-bit scale for 128 weights of a row; -channel and -tensor are
larger blocks; -asym has zero points; gptq-…, awq-… choose codes or scales with the help of calibration text; w8a8 quantizes
activations too; kv8, kv4, kv2 only the KV cache, -kivi with a scale for each channel of the keys.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import Literal

from compute.errors import UnknownName
from compute.quantize.grid import DOUBLE, E2M1, E4M3, E4M3_SCALES, E5M2, E8M0, FLOAT32, NF4, Block, Grid, Uniform, storage_bits
from compute.shapes import ModelShape

Method = Literal["rtn", "gptq", "awq"]
Family = Literal["float", "rtn", "gptq", "awq", "fp8", "fp4", "w8a8", "kv"]


@dataclass(frozen=True)
class Scheme:
    """weights: the layers' matrices, None = as they are. method: how codes are chosen; act_order is GPTQ's (columns of large
    activations first). activations: int8 of each token's vector, measured as it comes (dynamic). smooth: SmoothQuant's α.
    kv: bits of keys and values, a scale and a zero point for each head's vector; kv_group: KIVI, each channel of the keys over so
    many positions instead. head: of lm_head. planted: the model with outlier channels planted into it
    (compute/quantize/outliers.py). cast: a floating-point type for the matrices instead."""

    id: str
    family: Family
    weights: Grid | None = None
    method: Method = "rtn"
    act_order: bool = False
    activations: bool = False
    smooth: float | None = None
    kv: int | None = None
    kv_group: int | None = None
    head: Grid | None = None
    planted: bool = False
    cast: Literal["", "bfloat16", "float16"] = ""


def _block(block: Block) -> str:
    return block if isinstance(block, str) else f"g{block}"


def _integers() -> list[Scheme]:
    blocks: tuple[Block, ...] = ("tensor", "channel", 128, 64, 32)
    plain = [Scheme(f"int{bits}-{_block(block)}", "rtn", Grid(Uniform(bits), block)) for bits in (8, 6, 4, 3, 2) for block in blocks]
    zeros = [Scheme(f"int{bits}-g{group}-asym", "rtn", Grid(Uniform(bits, False), group)) for bits, group in ((4, 128), (4, 64), (4, 32), (3, 32), (2, 32))]
    return plain + zeros


def _calibrated() -> list[Scheme]:
    def of(method: Method, bits: int, block: Block, order: bool = False) -> Scheme:
        return Scheme(f"{method}-int{bits}-{_block(block)}{'-order' * order}", method, Grid(Uniform(bits), block), method, order)

    gptq = [of("gptq", bits, block) for bits, block in ((4, "channel"), (4, 128), (4, 64), (4, 32), (3, "channel"), (3, 128), (3, 32), (2, 32))]
    return [*gptq, of("gptq", 3, "channel", True), of("awq", 4, 128), of("awq", 4, 64), of("awq", 3, 128)]


def _floats() -> list[Scheme]:
    cast = [Scheme(short, "float", cast=name) for short, name in (("bf16", "bfloat16"), ("fp16", "float16"))]
    eight = [Scheme(f"{numbers.name}-channel", "fp8", Grid(numbers, "channel", FLOAT32)) for numbers in (E4M3, E5M2)]
    four = [
        Scheme("mxfp4", "fp4", Grid(E2M1, 32, E8M0)), Scheme("nvfp4", "fp4", Grid(E2M1, 16, E4M3_SCALES)),
        Scheme("nf4", "fp4", Grid(NF4, 64, FLOAT32)), Scheme("nf4-double", "fp4", Grid(NF4, 64, DOUBLE)),
    ]  # fmt: skip
    return cast + eight + four


def _others() -> list[Scheme]:
    eight = Grid(Uniform(8), "channel")
    plain = Scheme("w8a8", "w8a8", eight, activations=True)
    return [
        plain,
        replace(plain, id="w8a8-smooth", smooth=0.5),
        replace(plain, id="w8a8-planted", planted=True),
        replace(plain, id="w8a8-smooth-planted", smooth=0.5, planted=True),
        Scheme("kv8", "kv", kv=8),
        Scheme("kv4", "kv", kv=4),
        Scheme("kv2", "kv", kv=2),
        Scheme("kv4-kivi", "kv", kv=4, kv_group=32),
        Scheme("kv2-kivi", "kv", kv=2, kv_group=32),
        Scheme("int4-g64-head8", "rtn", Grid(Uniform(4), 64), head=eight),
        Scheme("int8-channel-head8", "rtn", eight, head=eight),
    ]


SCHEMES: dict[str, Scheme] = {scheme.id: scheme for scheme in (*_floats(), *_integers(), *_calibrated(), *_others())}


def scheme(id: str) -> Scheme:
    """Raises UnknownName with the closest names, or a few of all."""
    if id not in SCHEMES:
        raise UnknownName("scheme", "量化方案", id, difflib.get_close_matches(id, SCHEMES, 5, 0.3) or [*SCHEMES][::12])
    return SCHEMES[id]


# ---- what it takes


@dataclass(frozen=True)
class Stored:
    """bits_per_weight: of the quantized matrices, scales and all. model_bits_per_weight: over everything that a token is
    multiplied with, lm_head included. bytes: read for one token."""

    bits_per_weight: float
    model_bits_per_weight: float
    bytes: float


REST_BITS = 16  # of what is not quantized


def stored(scheme: Scheme, matrices: list[tuple[int, int]], head: tuple[int, int]) -> Stored:
    """matrices: shapes (out, in) of all layers' matrices as they are quantized; head: lm_head's. Counted exactly:
    the factors of AWQ and SmoothQuant are folded into norms and other matrices, groups under act-order are those of plain
    rounding, and scales of activations live for one product, so that none of these adds a bit. Raises BadInput where groups do
    not divide a width."""
    weights, heads = sum(rows * width for rows, width in matrices), head[0] * head[1]
    bits = sum(storage_bits(scheme.weights, *shape) for shape in matrices) if scheme.weights else weights * REST_BITS
    head_bits = storage_bits(scheme.head, *head) if scheme.head else heads * REST_BITS
    return Stored(bits / weights, (bits + head_bits) / (weights + heads), (bits + head_bits) / 8)
