"""How long a step takes: at the ideal bound, and as kernels really run.

The ideal clock is the roofline of compute/roofline.py: all bytes at the full bandwidth or all arithmetic at the full peak,
whichever takes longer. The calibrated clock goes through a step operation by operation, because kernels run one after the other:

    seconds = Σ launches · launch cost + √(c² + m²)    c = FLOPs / (share of the peak · peak), m = bytes / (share of the bandwidth · bandwidth)

with one pair of shares and one cost a launch for each kind of kernel (matrix products, attention while decoding, attention while
reading a prompt, sums across cards). Near the ridge arithmetic and memory hide each other only in part, which the root of squares
fits better than the larger of the two. They were fitted by compute/calibrate.py on published measurements of single kernels, and
only on those; data/calibration.json keeps them. How far the clock is off was then judged on published measurements of whole
engines (compute/judged.py). Counted as in the ideal bound: 2 FLOP per multiply-add, KV by KV heads, experts as many as the
tokens of a step are expected to meet; otherwise than there, lm_head only for positions whose next token is wanted.

What is not in it: sampling, the scheduler, the network, detokenizing. Prompts of a few hundred tokens come out too fast, since an
engine's own work between kernels counts for more there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from compute import facts
from compute.batching import Work
from compute.errors import BadInput, Refused
from compute.facts import Chip, ChipRef, ModelRef
from compute.roofline import Batch, Prompt, SCALE_BITS
from compute.shapes import Cache, Matrices, ModelShape

FILE = facts.DATA / "calibration.json"
CLASSES = {"a100-40g-sxm": "a100-80g-sxm"}  # the same silicon with other memory; any other card is a class of its own
GROUP = 128  # weights that share a scale, in int4
PCIE_5_X16 = 32e9 * 16 * (128 / 130) / 8
"""Bytes/s in one direction: 32 GT/s a lane, 16 lanes, 128b/130b (PCI Express Base Specification 5.0). Copies reach less."""

Precision = Literal["bf16", "fp8", "int8", "int4"]
"""bf16: everything in 16 bits. fp8: weights, activations and KV in 8 bits, 8-bit arithmetic in matrix products.
int8, int4: the weights alone, int4 with a 16-bit scale for every 128; KV and arithmetic stay in 16 bits."""
Parallel = Annotated[int, Field(ge=1, le=8, description="cards of one node that share every layer (tensor parallelism)")]
Output = Annotated[int, Field(ge=1, le=100_000, description="tokens that each request writes")]

WEIGHT_BITS: dict[str, float] = {"bf16": 16, "fp8": 8, "int8": 8, "int4": 4 + SCALE_BITS / GROUP}


@dataclass(frozen=True)
class Format:
    """weight_bits: stored per weight, scales included. arithmetic: of matrix products, by the peak's name; a chip that does not say
    how fast it is in that works in 16 bits."""

    weight_bits: float
    kv_bits: float
    arithmetic: Literal["bf16", "fp8", "fp32"] = "bf16"


FORMATS: dict[str, Format] = {name: Format(bits, 8, "fp8") if name == "fp8" else Format(bits, 16) for name, bits in WEIGHT_BITS.items()}

GEMMS = {"kv": 0, "swiglu": 2, "experts": 2, "shared_expert": 2, "weights": 0}
"""Kernels of one layer for matrices of this name, where it is not one: keys and values come out of the same product as queries,
SwiGLU is two (gate and up are one), and a bare parameter count has no layers."""
NORMS_AND_ACTIVATION = 3  # kernels a layer beside the products and attention: two norms (each with its residual), SwiGLU's product
REDUCTIONS = 2  # sums across cards a layer: after attention and after the feed-forward part


@dataclass(frozen=True)
class Rate:
    """What one kind of kernel reaches: shares of the chip's peak and bandwidth (for sums across cards: of the link), and seconds
    that a launch costs. rows: kernels it was fitted on; error: the mean |relative error| on them."""

    compute: float
    memory: float
    launch_seconds: float
    rows: int = 0
    error: float = 0.0


@dataclass(frozen=True)
class Rates:
    """Of a chip class in one precision. reduce: by number of cards."""

    gemm: Rate
    decode_attention: Rate  # every query head with KV of its own
    decode_attention_grouped: Rate  # query heads that share KV heads
    prefill_attention: Rate
    small_launch_seconds: float  # of a kernel with next to nothing to do
    reduce: Mapping[int, Rate] = field(hash=False)


@dataclass(frozen=True)
class Error:
    """Predicted over published throughput, minus 1, on whole engines that had no part in the fit. where: in words."""

    mean: float  # of |error|
    worst: float  # signed
    n: int
    where: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True)
class Line:
    """A batch that is read together and then decodes to its end. step_seconds: of each token after the first, in which the context
    has grown by one each time. tokens_per_second: generated ones of the whole batch, over first token and steps together. error: of
    that; first_token_error: of the first token, which for short prompts is much more. None at the ideal bound, and where too few runs were
    published."""

    first_token_seconds: float
    step_seconds: list[float]
    tokens_per_second: float
    total_seconds: float
    error: Error | None = None
    first_token_error: Error | None = None


@dataclass(frozen=True)
class Generated:
    """calibrated is None where nobody published kernel measurements of the card; why_not says so."""

    ideal: Line
    calibrated: Line | None
    why_not: Mapping[str, str] | None = None


@cache
def file() -> Mapping[str, Any]:
    return facts.read_json(FILE)


def classes() -> dict[str, dict[str, Rates]]:
    """By chip class and precision."""
    return {chip: {name: _rates(row) for name, row in rows.items()} for chip, rows in file()["classes"].items()}


def _rates(row: Mapping[str, Any]) -> Rates:
    one = lambda kind: Rate(**{name: row[kind][name] for name in ("compute", "memory", "launch_seconds", "rows", "error")})  # noqa: E731
    reduce = {int(cards): Rate(0.0, *(rate[name] for name in ("memory", "launch_seconds", "rows", "error"))) for cards, rate in row["reduce"].items()}
    kinds = (one(kind) for kind in ("gemm", "decode_attention", "decode_attention_grouped", "prefill_attention"))
    return Rates(*kinds, row["small"]["launch_seconds"], reduce)


def rates(chip: Chip, precision: Precision) -> Rates:
    """Raises Refused where no kernel measurements of this card in this precision were published."""
    known = classes().get(CLASSES.get(chip.id, chip.id), {})
    if precision not in known:
        can = sorted({f"{facts.chip(id).name} ({', '.join(rows)})" for id, rows in classes().items()})
        raise Refused("not_calibrated", chip=chip.name, precision=precision, known=" / ".join(can))
    return known[precision]


# ---- the clock


@dataclass(frozen=True)
class Clock:
    """Seconds of a step, as a Price of compute/simulate.py and for whole arrays of steps at once. rates: None at the ideal bound.

    Tensor parallelism: each of the cards holds its share of every matrix and of the KV (a KV head is not cut: more cards than KV
    heads keep copies), works as one card would on its share, and the cards add their results twice a layer over the link."""

    shape: ModelShape
    chip: Chip
    format: Format
    cards: int = 1
    rates: Rates | None = None
    error: Error | None = None
    block_size: int = 16
    link_bytes_per_s: float = PCIE_5_X16  # to where sequences are swapped

    @property
    def kind(self) -> Literal["ideal", "calibrated"]:
        return "calibrated" if self.rates else "ideal"

    # ---- what must lie on the card

    @cached_property
    def kv_bytes(self) -> float:
        """Of one position, on one card; as if no layer had a window."""
        return sum(kv for _, kv, *_ in self.caches)

    @cached_property
    def free_bytes(self) -> float:
        """For KV and states, on one card, beside its share of the weights."""
        return self.chip.memory_bytes - self.shape.loaded_bytes(self.format.weight_bits / 8) / self.cards

    def request_bytes(self, tokens: int) -> float:
        """KV of so many positions and the state of one request, on one card."""
        return sum(kv * cache.tokens(tokens) for cache, kv, *_ in self.caches) + self.shape.state_bytes / self.cards

    def capacity(self, tokens: int) -> int:
        """Requests that fit, each with so many positions of KV and its state."""
        each = self.request_bytes(tokens)
        return max(0, int(self.free_bytes // each)) if each else 10**9

    def blocks(self, block_size: int = 16, states: int = 0) -> int:
        """Blocks of KV that fit beside the states of so many requests."""
        left = self.free_bytes - states * self.shape.state_bytes / self.cards
        return max(0, int(left // (block_size * self.kv_bytes))) if self.kv_bytes else 10**9

    # ---- a step

    def step(self, decoding=0, cells=0, prefilled=0, pairs=0.0, prompts=0, read_before=0, *, looks=None, states_moved=None, within=None):
        """Seconds; every argument a number or an array of them.

        decoding: sequences that write one token each, looking at `cells` cached positions in all. prefilled: prompt tokens read
        beside them, with `pairs` causal pairs of query and key, looking back at `read_before` positions of earlier chunks; prompts:
        those that are read to their end. Where layers have a window, contexts and prompts are taken as equal, unless `within` gives
        (cells, read_before, pairs, positions written by prompts[, looks]) by window. looks: pairs of a query and a cached position, where
        that is not `cells` because several guesses look at the same positions. states_moved: recurrent states read or written; by default two a decoding sequence and one a prompt."""
        tokens, rows = np.add(decoding, prefilled), np.add(decoding, prompts)
        states = np.multiply(2, decoding) + prompts if states_moved is None else states_moved
        flops, bytes_ = np.zeros(np.shape(tokens)), np.zeros(np.shape(tokens))
        seconds = np.zeros(np.shape(tokens))
        chip, rates = self.chip, self.rates
        peak = self.peak
        for matrices in self.shape.matrices:
            count = rows if rates and matrices.name == "lm_head" else tokens
            work, moved = 2 * matrices.per_token * count / self.cards, self._read(matrices, count) / self.cards
            if rates:
                launches = matrices.layers * GEMMS.get(matrices.name.rpartition(".")[2], 1)
                seconds = seconds + np.where(np.greater(count, 0), launches * rates.gemm.launch_seconds + both(work, moved, peak, chip, rates.gemm), 0)
            flops, bytes_ = flops + work, bytes_ + moved
        for cache_, kv, flops_decode, flops_prefill in self.caches:
            seen, back, paired, kept, looked = cells, read_before, pairs, prefilled, looks
            if cache_.window:
                inside = within[cache_.window] if within else _equal(cache_.window, decoding, cells, prefilled, pairs, prompts, read_before)
                seen, back, paired, kept, looked = (*inside, None)[:5]
            looked = seen if looked is None else looked
            work, moved = flops_decode * looked, kv * seen
            if rates:
                rate = rates.decode_attention if cache_.kind == "mha" else rates.decode_attention_grouped
                seconds = seconds + np.where(np.greater(decoding, 0), cache_.layers * rate.launch_seconds + both(work, moved, chip.peak, chip, rate), 0)
            flops, bytes_ = flops + work, bytes_ + moved
            work, moved = flops_prefill * paired, kv * np.add(back, kept)
            if rates:
                passed = moved + self.query_bytes * np.asarray(prefilled)
                seconds = seconds + np.where(np.greater(prefilled, 0), cache_.layers * rates.prefill_attention.launch_seconds + both(work, passed, chip.peak, chip, rates.prefill_attention), 0)
            flops, bytes_ = flops + work, bytes_ + moved
        state_bytes = states * (self.shape.state_bytes / self.cards)
        if not rates:
            bound = np.maximum((bytes_ + state_bytes) / chip.bandwidth_bytes_per_s, flops / peak)
            return bound + self._sums(tokens)
        seconds = seconds + state_bytes / (rates.decode_attention.memory * chip.bandwidth_bytes_per_s)
        if self.shape.hidden:
            passed = tokens * self._passed
            seconds = seconds + NORMS_AND_ACTIVATION * self.shape.layers * rates.small_launch_seconds + passed / (rates.gemm.memory * chip.bandwidth_bytes_per_s)
        return seconds + self._sums(tokens)

    def _read(self, matrices: Matrices, tokens):
        """Bytes of one kind of matrix that so many tokens read."""
        return matrices.read(np.asarray(tokens, float)) * self.format.weight_bits / 8

    def _sums(self, tokens):
        """Seconds of adding up across cards: every card sends and receives 2 (cards − 1) / cards of the activations, twice a layer."""
        if self.cards == 1:
            return 0.0
        moved = tokens * (2 * self.shape.hidden * 2 * (self.cards - 1) / self.cards)
        times = REDUCTIONS * self.shape.layers
        if not self.rates:
            return times * moved / self.chip.link_bytes_per_s
        rate = self.rates.reduce[self.cards]
        return times * (rate.launch_seconds + moved / (rate.memory * self.chip.link_bytes_per_s))

    @cached_property
    def peak(self) -> float:
        """Of matrix products, FLOP/s."""
        return self.chip.flops_per_s.get(self.format.arithmetic, self.chip.peak)

    @cached_property
    def caches(self) -> list[tuple[Cache, float, float, float]]:
        """With each cache, on one card: bytes a position, FLOPs a pair in decode and in prefill, all its layers together."""
        made = []
        for cache_ in self.shape.caches:
            share = self._kv_share(cache_)
            kv = cache_.layers * cache_.values_per_token * share * self.format.kv_bits / 8
            made.append((cache_, kv, cache_.layers * cache_.flops_decode / self.cards, cache_.layers * cache_.flops_prefill / self.cards))
        return made

    def _kv_share(self, cache_: Cache) -> float:
        """Of the KV, that one card keeps: heads are not cut, and a latent (MLA) is kept by every card."""
        heads = self.shape.config.get("num_key_value_heads") or self.shape.config.get("num_attention_heads") or self.cards
        return 1.0 if cache_.kind == "mla" else 1 / min(self.cards, heads)

    @cached_property
    def query_bytes(self) -> float:
        """Bytes of queries and outputs that attention passes a prompt token, one layer of every cache, on one card, in 16 bits."""
        return sum(cache_.layers * 2 * (cache_.flops_prefill / 4) * 2 for cache_ in self.shape.caches) / self.cards

    @cached_property
    def _passed(self) -> float:
        """Bytes of activations that norms and SwiGLU read and write, a token: two norms read and write the stream and its residual,
        the product of gate and up reads two and writes one."""
        width = sum(m.parameters * m.used * m.layers / (3 * self.shape.hidden) for m in self.shape.matrices if m.name in ("swiglu", "experts", "shared_expert"))
        return 2 * (8 * self.shape.hidden * self.shape.layers + 3 * width / self.cards)

    # ---- as a Price

    def __call__(self, work: Work) -> float:
        return float(self._priced(work, 0))

    def many(self, work: Work, steps: int) -> list[float]:
        return np.broadcast_to(self._priced(work, np.arange(steps)), (steps,)).tolist()

    def _priced(self, work: Work, later):
        """Guesses that are checked together read their KV once; a chunk reads that of the positions before it; a copy-on-write reads
        and writes a block; a sequence that is swapped passes the host link while nothing else goes on."""
        decoding = cells = prefilled = pairs = prompts = back = states = looks = 0
        within = {cache_.window: [0, 0, 0.0, 0, 0] for cache_ in self.shape.caches if cache_.window}
        for read in work.reads:
            start, end = read.start + later, read.start + read.tokens
            states += 1 if read.prefill and not read.start else 2
            if read.prefill:
                prefilled += read.tokens
                pairs += (end**2 - read.start**2) / 2
                prompts += self.rates is not None and end >= len(read.sequence.ids)
                back = back + start
            else:
                decoding += read.tokens
                cells = cells + start
                looks = looks + read.tokens * start + read.tokens * (read.tokens - 1) / 2
            for window, amounts in within.items():
                amounts[read.prefill] = amounts[read.prefill] + np.minimum(start, window)
                if read.prefill:
                    amounts[2] += _inside(end, window) - _inside(read.start, window)
                    amounts[3] += min(read.tokens, window)
                else:
                    amounts[4] = amounts[4] + sum(np.minimum(start + guess, window) for guess in range(read.tokens))
        seconds = self.step(decoding + 0 * np.asarray(later), cells, prefilled, pairs, prompts, back, looks=looks, states_moved=states, within=within)
        seconds = seconds + 2 * self.block_size * self.kv_bytes * len(work.copies) / self.chip.bandwidth_bytes_per_s
        if moves := work.swapped_out + work.swapped_in:
            moved = sum(self.block_size * self.kv_bytes * len(move.blocks) + self.shape.state_bytes / self.cards for move in moves)
            seconds = seconds + moved / self.link_bytes_per_s
        return seconds


def _inside(tokens: int, window: int) -> float:
    """Causal pairs of a prompt of so many tokens, with a window."""
    return tokens**2 / 2 if tokens <= window else tokens * window - window**2 / 2


def _equal(window: int, decoding, cells, prefilled, pairs, prompts, back):
    """What of equal contexts and prompts lies inside a window: cells, read_before, pairs, positions written."""
    readers = np.maximum(prompts, 1)
    long = np.greater(np.divide(prefilled, readers), window)
    inside = np.where(long, np.multiply(prefilled, window) - readers * window**2 / 2, pairs)
    return np.minimum(cells, np.multiply(decoding, window)), np.minimum(back, readers * window), np.minimum(pairs, inside), np.minimum(prefilled, readers * window)


def both(flops, bytes_, peak: float, chip: Chip, rate: Rate):
    """Seconds of arithmetic and of memory together: near the ridge neither hides the other entirely."""
    return np.hypot(np.divide(flops, rate.compute * peak), np.divide(bytes_, rate.memory * chip.bandwidth_bytes_per_s))


# ---- what pages and simulations ask for


def ideal(model: ModelRef, chip: ChipRef, precision: Precision = "bf16", tensor_parallel: int = 1) -> Clock:
    """Raises Refused when the weights do not fit, BadInput for cards that cannot share the model."""
    shape, card = facts.model(model), facts.chip(chip)
    _require(shape, card, precision, tensor_parallel)
    return Clock(shape, card, FORMATS[precision], tensor_parallel)


def calibrated(model: ModelRef, chip: ChipRef, precision: Precision = "bf16", tensor_parallel: int = 1) -> Clock:
    """Raises as `ideal` does, and Refused("not_calibrated")."""
    from compute import judged

    shape, card = facts.model(model), facts.chip(chip)
    _require(shape, card, precision, tensor_parallel)
    found = rates(card, precision)
    if tensor_parallel > 1 and tensor_parallel not in found.reduce:
        raise Refused("not_calibrated", chip=f"{card.name} × {tensor_parallel}", precision=precision, known=", ".join(f"× {n}" for n in found.reduce))
    return Clock(shape, card, FORMATS[precision], tensor_parallel, found, judged.expected(judged.kind(shape), CLASSES.get(card.id, card.id), precision, tensor_parallel > 1))


def _require(shape: ModelShape, card: Chip, precision: Precision, cards: int) -> None:
    if precision == "fp8" and "fp8" not in card.flops_per_s:
        raise BadInput("precision", precision, f"{card.name} has no 8-bit floating-point units", f"{card.name} 没有 FP8 单元")
    if cards > 1:
        heads = shape.config.get("num_attention_heads")
        if not heads:
            raise BadInput("tensor_parallel", cards, "a model known by its size alone has no heads to share out", "只知道参数量的模型没有头可分")
        if heads % cards:
            en, zh = f"it must divide the {heads} query heads of {shape.name}", f"要能整除 {shape.name} 的 {heads} 个查询头"
            raise BadInput("tensor_parallel", cards, en, zh)
        groups = 0 if any(cache_.kind == "mla" for cache_ in shape.caches) else shape.config.get("num_key_value_heads") or heads
        if groups % cards and cards % groups:
            en = f"the {groups} KV heads of {shape.name} cannot be shared out among so many cards, nor copied evenly"
            raise BadInput("tensor_parallel", cards, en, f"{shape.name} 的 {groups} 个 KV 头既不能平分到这么多卡上，也不能平均地复制")
        if not card.link_bytes_per_s:
            raise BadInput("tensor_parallel", cards, f"the link between cards is not known for {card.name}; take 1", f"不知道 {card.name} 卡间互联的带宽；请取 1")
    weights = shape.loaded_bytes(WEIGHT_BITS[precision] / 8) / cards
    if weights > card.memory_bytes and not shape.textbook:
        raise _too_large(shape, card, cards, weights, 0.0)


def _too_large(shape: ModelShape, card: Chip, cards: int, weights: float, cached: float) -> Refused:
    gb = {"needed_gb": (weights + cached) / 1e9, "weights_gb": weights / 1e9, "cache_gb": cached / 1e9, "memory_gb": card.memory_bytes / 1e9}
    missing = weights + cached - card.memory_bytes
    name = card.name if cards == 1 else f"{card.name} × {cards}"
    return Refused("does_not_fit", model=shape.name, chip=name, missing_bytes=missing, missing_gb=missing / 1e9, **gb)


def require_fit(clock: Clock, batch: int, tokens: int) -> None:
    """Raises Refused, with the bytes that are missing, when so many requests of so many positions do not fit."""
    if clock.capacity(tokens) < batch and not clock.shape.textbook:
        weights = clock.chip.memory_bytes - clock.free_bytes
        raise _too_large(clock.shape, clock.chip, clock.cards, weights, batch * clock.request_bytes(tokens))


def line(clock: Clock, batch: int, prompt: int, output: int) -> Line:
    """A batch of equal requests, read together and decoded to the end, step by step."""
    first = float(clock.step(0, 0, batch * prompt, batch * prompt**2 / 2, batch))
    contexts = prompt + np.arange(1, output)
    steps = np.broadcast_to(clock.step(np.full(len(contexts), batch), batch * contexts), contexts.shape)
    total = first + float(steps.sum())
    return Line(first, steps.tolist(), batch * output / total, total, clock.error)


def judged_line(clock: Clock, batch: int, prompt: int, output: int) -> Line:
    """The same with the error of its first token, which published first tokens of prompts about as long tell."""
    from compute import judged

    return replace(line(clock, batch, prompt, output), first_token_error=judged.first_token_error(prompt))


def generate(
    model: ModelRef, chip: ChipRef, batch: Batch = 1, prompt: Prompt = 4096, output: Output = 128,
    tensor_parallel: Parallel = 1, precision: Precision = "bf16",
) -> Generated:  # fmt: skip
    """A batch of equal requests from their first prompt token to their last written one: at the ideal bound, and as measured kernels
    make it, with the error that this clock had on published whole-engine results. Tensor parallel within one node.

    The context grows step by step, prompts are read causally, and KV, states and weights must fit (Refused otherwise)."""
    bound = ideal(model, chip, precision, tensor_parallel)
    require_fit(bound, batch, prompt + output)
    try:
        real, why_not = judged_line(calibrated(model, chip, precision, tensor_parallel), batch, prompt, output), None
    except Refused as reason:
        if reason.code != "not_calibrated":
            raise
        real, why_not = None, {lang: reason.message(lang) for lang in ("zh", "en")}
    return Generated(line(bound, batch, prompt, output), real, why_not)
