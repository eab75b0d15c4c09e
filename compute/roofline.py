"""The roofline: a step takes the longer of moving its bytes and doing its arithmetic.

Ideal bound (Williams, Waterman, Patterson 2009): perfect overlap, peak rates, no launch cost, activations stay on the
chip. Conventions: 2 FLOP per multiply-add; dense peaks; decode reads every matrix that is multiplied (lm_head yes, the
embedding row no) plus, per request, the KV of its context and its recurrent state twice (read and written back).
Bits below 16 carry one 16-bit scale per group. Units are SI.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Annotated, Literal

from pydantic import Field

from compute import facts
from compute.errors import Refused
from compute.facts import Chip, ChipRef, MeasuredRun, ModelRef
from compute.shapes import ModelShape

Batch = Annotated[int, Field(ge=1, le=65_536, description="requests decoded together")]
Context = Annotated[int, Field(ge=0, le=100_000_000, description="tokens already cached per request")]
Prompt = Annotated[int, Field(ge=1, le=100_000_000, description="tokens read in one prefill")]
Bits = Annotated[float, Field(ge=1, le=32, description="bits stored per weight, scales apart")]
Group = Annotated[int, Field(ge=1, le=1_000_000, description="weights that share one 16-bit scale (below 16 bits)")]
KvBits = Annotated[float, Field(ge=1, le=32, description="bits stored per number in the KV cache")]
Bound = Literal["memory", "compute"]

SCALE_BITS = 16


@dataclass(frozen=True)
class Op:
    """A row of the ledger, one step of the whole batch. activation_bytes are shown and not charged: ideally they never
    leave the chip."""

    name: str
    layers: int
    flops: float
    weight_bytes: float = 0.0
    kv_bytes: float = 0.0
    state_bytes: float = 0.0
    activation_bytes: float = 0.0

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.state_bytes


@dataclass(frozen=True)
class Memory:
    """What must lie on the card at once, in bytes."""

    weights_bytes: float
    cache_bytes: float
    chip_bytes: float

    @property
    def missing_bytes(self) -> float:
        return max(0.0, self.weights_bytes + self.cache_bytes - self.chip_bytes)

    @property
    def cards_needed(self) -> int:
        return ceil((self.weights_bytes + self.cache_bytes) / self.chip_bytes)


@dataclass(frozen=True)
class Decode:
    step_seconds: float
    tokens_per_second: float
    bytes_per_step: float
    flops_per_step: float
    compute_share: float  # of the peak, while a step runs
    bound: Bound
    memory_seconds: float
    compute_seconds: float
    intensity: float  # FLOP/byte
    memory_needed_bytes: float
    cards_needed: int
    textbook: bool  # arithmetic on one card's bandwidth, even where the model would not fit on it


@dataclass(frozen=True)
class Prefill:
    seconds: float
    flops: float
    bytes: float
    bound: Bound
    tokens_per_second: float
    memory_seconds: float
    compute_seconds: float
    intensity: float


@dataclass(frozen=True)
class Ledger:
    phase: Literal["decode", "prefill"]
    ops: tuple[Op, ...]
    bytes: float
    flops: float
    memory_seconds: float
    compute_seconds: float


def ridge(chip: Chip) -> float:
    """FLOP/byte where compute time equals memory time. Ignores caches and launch cost."""
    return chip.peak / chip.bandwidth_bytes_per_s


def weight_bytes(bits: float, group: int) -> float:
    """Bytes per stored weight, its share of the group's scale included; 16 bits and more need no scale."""
    return (bits + (SCALE_BITS / group if bits < 16 else 0)) / 8


def cache_bytes(shape: ModelShape, context: int, kv_bits: float) -> float:
    """Bytes of one request's KV at `context` tokens, without its recurrent state."""
    return sum(c.layers * c.values_per_token * c.tokens(context) for c in shape.caches) * kv_bits / 8


def memory(shape: ModelShape, chip: Chip, batch: int, context: int, bits: float, group: int, kv_bits: float) -> Memory:
    per_request = cache_bytes(shape, context, kv_bits) + shape.state_bytes
    return Memory(shape.loaded_bytes(weight_bytes(bits, group)), batch * per_request, chip.memory_bytes)


def require_fit(shape: ModelShape, chip: Chip, need: Memory) -> None:
    """A bound for a setting that cannot exist is no bound: refuse with the bytes that are missing."""
    if shape.textbook or not need.missing_bytes:
        return
    gb = {
        "needed_gb": (need.weights_bytes + need.cache_bytes) / 1e9,
        "weights_gb": need.weights_bytes / 1e9,
        "cache_gb": need.cache_bytes / 1e9,
        "memory_gb": need.chip_bytes / 1e9,
        "missing_gb": need.missing_bytes / 1e9,
    }
    raise Refused("does_not_fit", model=shape.name, chip=chip.name, missing_bytes=need.missing_bytes, **gb)


def decode_ops(shape: ModelShape, batch: int, context: int, bits: float, group: int, kv_bits: float) -> tuple[Op, ...]:
    """Every row of one decode step of `batch` requests."""
    per_weight = weight_bytes(bits, group)
    rows = [Op(m.name, m.layers, 2 * m.per_token * batch, weight_bytes=m.read(batch) * per_weight) for m in shape.matrices]
    for cache in shape.caches:
        cached = batch * cache.layers * cache.tokens(context)
        rows.append(
            Op(_cache_row(cache), cache.layers, cached * cache.flops_decode, kv_bytes=cached * cache.values_per_token * kv_bits / 8)
        )
    if shape.state_bytes:
        rows.append(Op("state", 0, 0, state_bytes=2 * shape.state_bytes * batch))
    if shape.hidden:
        new_kv = batch * cache_bytes(shape, 1, kv_bits)
        rows.append(Op("activations", shape.layers, 0, activation_bytes=2 * 2 * batch * shape.hidden * shape.layers + new_kv))
    return tuple(rows)


def prefill_ops(shape: ModelShape, prompt: int, bits: float, group: int, kv_bits: float) -> tuple[Op, ...]:
    """Every row of reading `prompt` tokens at once: the weights are read once for all of them, the KV is written."""
    per_weight = weight_bytes(bits, group)
    rows = [Op(m.name, m.layers, 2 * m.per_token * prompt, weight_bytes=m.read(prompt) * per_weight) for m in shape.matrices]
    for cache in shape.caches:
        written = cache.layers * cache.tokens(prompt) * cache.values_per_token * kv_bits / 8
        rows.append(Op(_cache_row(cache), cache.layers, cache.layers * cache.causal_pairs(prompt) * cache.flops_prefill, kv_bytes=written))
    if shape.state_bytes:
        rows.append(Op("state", 0, 0, state_bytes=shape.state_bytes))
    if shape.hidden:
        rows.append(Op("activations", shape.layers, 0, activation_bytes=2 * 2 * prompt * shape.hidden * shape.layers))
    return tuple(rows)


def _cache_row(cache) -> str:
    return f"{cache.kind}.window.cache" if cache.window else f"{cache.kind}.cache"


def decode(
    model: ModelRef, chip: ChipRef, batch: Batch = 1, context: Context = 4096, weight_bits: Bits = 16, group: Group = 128, kv_bits: KvBits = 16
) -> Decode:
    """One decode step of `batch` requests, each with `context` tokens cached: ideal bound. Raises Refused when weights,
    KV and state do not fit on the card (a textbook model is arithmetic and says how many cards it would need)."""
    shape, card = facts.model(model), facts.chip(chip)
    need = memory(shape, card, batch, context, weight_bits, group, kv_bits)
    require_fit(shape, card, need)
    ops = decode_ops(shape, batch, context, weight_bits, group, kv_bits)
    bytes_, flops = sum(op.bytes for op in ops), sum(op.flops for op in ops)
    memory_seconds, compute_seconds = bytes_ / card.bandwidth_bytes_per_s, flops / card.peak_for(weight_bits)
    seconds = max(memory_seconds, compute_seconds)
    return Decode(
        step_seconds=seconds,
        tokens_per_second=batch / seconds,
        bytes_per_step=bytes_,
        flops_per_step=flops,
        compute_share=compute_seconds / seconds,
        bound="memory" if memory_seconds >= compute_seconds else "compute",
        memory_seconds=memory_seconds,
        compute_seconds=compute_seconds,
        intensity=flops / bytes_,
        memory_needed_bytes=need.weights_bytes + need.cache_bytes,
        cards_needed=need.cards_needed,
        textbook=shape.textbook,
    )


def prefill(
    model: ModelRef, chip: ChipRef, prompt: Prompt = 4096, weight_bits: Bits = 16, group: Group = 128, kv_bits: KvBits = 16
) -> Prefill:
    """One request's prompt of `prompt` tokens read at once: ideal bound, causal attention. Raises Refused as decode does."""
    shape, card = facts.model(model), facts.chip(chip)
    require_fit(shape, card, memory(shape, card, 1, prompt, weight_bits, group, kv_bits))
    ops = prefill_ops(shape, prompt, weight_bits, group, kv_bits)
    bytes_, flops = sum(op.bytes for op in ops), sum(op.flops for op in ops)
    memory_seconds, compute_seconds = bytes_ / card.bandwidth_bytes_per_s, flops / card.peak_for(weight_bits)
    seconds = max(memory_seconds, compute_seconds)
    bound: Bound = "memory" if memory_seconds >= compute_seconds else "compute"
    return Prefill(seconds, flops, bytes_, bound, prompt / seconds, memory_seconds, compute_seconds, flops / bytes_)


def bound_of_run(run: MeasuredRun) -> Decode:
    """The ideal decode step at a measured run's own setting (its mean context). Raises Refused as decode does."""
    return decode(run.model, run.chip, run.batch, run.context, weight_bits=run.bits, kv_bits=run.bits)


def ledger(
    model: ModelRef,
    chip: ChipRef,
    phase: Literal["decode", "prefill"] = "decode",
    batch: Batch = 1,
    context: Context = 4096,
    prompt: Prompt = 4096,
    weight_bits: Bits = 16,
    group: Group = 128,
    kv_bits: KvBits = 16,
) -> Ledger:
    """The rows behind decode or prefill; their bytes and FLOPs add up to its totals."""
    shape, card = facts.model(model), facts.chip(chip)
    if phase == "decode":
        require_fit(shape, card, memory(shape, card, batch, context, weight_bits, group, kv_bits))
        ops = decode_ops(shape, batch, context, weight_bits, group, kv_bits)
    else:
        require_fit(shape, card, memory(shape, card, 1, prompt, weight_bits, group, kv_bits))
        ops = prefill_ops(shape, prompt, weight_bits, group, kv_bits)
    bytes_, flops = sum(op.bytes for op in ops), sum(op.flops for op in ops)
    return Ledger(phase, ops, bytes_, flops, bytes_ / card.bandwidth_bytes_per_s, flops / card.peak_for(weight_bits))
