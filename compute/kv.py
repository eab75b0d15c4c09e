"""What attention keeps: bytes per token, requests per card, and the work that keeping saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Callable, Literal

from pydantic import Field

from compute import facts
from compute.errors import BadInput
from compute.facts import ChipRef, ModelRef
from compute.roofline import Bits, Context, Group, KvBits, cache_bytes, require_fit, memory, weight_bytes


@dataclass(frozen=True)
class CacheRow:
    """One kind of attention layer: layers × values × bits / 8 = bytes per token."""

    kind: str
    layers: int
    values_per_token: float  # per layer: 2·KV heads·head_dim, or latent + rotary width for MLA
    bytes_per_token: float
    window: int | None


@dataclass(frozen=True)
class PerToken:
    bytes: float  # added by each token while no window is full
    bytes_beyond_window: float  # added by each token once every sliding window is full
    state_bytes: float  # fixed, per request
    rows: tuple[CacheRow, ...]
    as_mha_bytes: float | None  # the same attention layers, had each query head kept its own K and V


@dataclass(frozen=True)
class Capacity:
    requests: int
    requests_reserving_maximum: int | None  # None: the model states no maximum
    free_bytes: float  # memory left beside the weights
    bytes_per_request: float
    weights_bytes: float
    maximum_context: int | None


@dataclass(frozen=True)
class Computations:
    """Token positions whose K and V are computed while `new` tokens are generated."""

    without_cache: int
    with_cache: int


def per_token(model: ModelRef, kv_bits: KvBits = 16) -> PerToken:
    """KV bytes of one token. head_dim comes from the config; MLA stores one latent a layer; a recurrent layer stores
    a fixed state instead."""
    shape = facts.model(model)
    rows = tuple(
        CacheRow(c.kind, c.layers, c.values_per_token, c.layers * c.values_per_token * kv_bits / 8, c.window) for c in shape.caches
    )
    growing = sum(r.bytes_per_token for r in rows if not r.window)
    return PerToken(sum(r.bytes_per_token for r in rows), growing, shape.state_bytes, rows, _as_mha(shape, kv_bits))


def _as_mha(shape, kv_bits: float) -> float | None:
    softmax = [c for c in shape.caches if c.kind in ("mha", "gqa", "mqa")]
    if not softmax or len(softmax) < len(shape.caches):
        return None
    return sum(c.layers * c.flops_decode / 2 for c in softmax) * kv_bits / 8  # flops_decode = 4·heads·head_dim


def capacity(
    model: ModelRef, chip: ChipRef, context: Context = 4096, weight_bits: Bits = 16, group: Group = 128, kv_bits: KvBits = 16
) -> Capacity:
    """Requests of `context` tokens that fit beside all loaded weights, and how many if each reserved the model's
    maximum. Ignores activations and the allocator's own needs. Raises Refused when the weights alone do not fit."""
    shape, card = facts.model(model), facts.chip(chip)
    if not shape.textbook:
        require_fit(shape, card, memory(shape, card, 0, 0, weight_bits, group, kv_bits))
    weights = shape.loaded_bytes(weight_bytes(weight_bits, group))
    free = max(0.0, card.memory_bytes - weights)
    each = cache_bytes(shape, context, kv_bits) + shape.state_bytes
    if each < 1:  # not a byte a request
        raise BadInput("model", shape.name, "a bare parameter count keeps no KV; give kv_bytes_per_token", "只有参数量就没有 KV；请给 kv_bytes_per_token")
    longest = shape.context_maximum
    reserved = longest and int(free // (cache_bytes(shape, longest, kv_bits) + shape.state_bytes))
    return Capacity(int(free // each), reserved, free, each, weights, longest)


def computations(
    prompt: Annotated[int, Field(ge=1, le=10_000_000, description="tokens of the prompt")] = 4,
    new: Annotated[int, Field(ge=1, le=10_000_000, description="tokens generated")] = 1000,
) -> Computations:
    """Forward i sees prompt + i tokens (i = 0 … new − 1). Without a cache all their K/V are computed again, with one only
    those of the tokens not seen before: the prompt once, then one a step. The last new token is never fed back."""
    return Computations(new * prompt + new * (new - 1) // 2, prompt + new - 1)


Kind = Literal["mha", "gqa", "mqa", "mla"]


@dataclass(frozen=True)
class Heads:
    """One attention layer, as far as its cache is concerned."""

    query: int
    kv: int
    key_dim: int
    value_dim: int
    latent: int
    rope_dim: int

    def values(self, kind: Kind) -> int:
        """Numbers that one token leaves behind in one layer, had the layer been of that kind."""
        each = self.key_dim + self.value_dim
        return {"mha": self.query * each, "gqa": self.kv * each, "mqa": each, "mla": self.latent + self.rope_dim}[kind]


GROUPS = 8  # K/V groups that a model without GQA is compared at, as most published GQA models have


def heads(model: ModelRef) -> Heads:
    """The heads of a model's attention layers. What its config lacks for a comparison: eight K/V groups (or the next
    smaller divisor of the heads), and a latent by DeepSeek-V2's rule (§2.1.3), 4·head_dim + head_dim/2."""
    shape = facts.model(model)
    if not shape.caches or not shape.config:
        raise BadInput("model", shape.name, "a bare parameter count has no heads", "只有参数量就没有注意力头")
    c = shape.config.get("text_config", shape.config)
    query, own = c["num_attention_heads"], c.get("num_key_value_heads") or c["num_attention_heads"]
    if "kv_lora_rank" in c:
        key, value, latent, rope = c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"], c["qk_rope_head_dim"]
    else:
        key = value = c.get("head_dim") or shape.hidden // query
        latent, rope = 4 * key, key // 2
    grouped = shape.caches[0].kind == "gqa"
    return Heads(query, own if grouped else _groups(query), key, value, latent, rope)


def _groups(query: int) -> int:
    return next(g for g in range(min(GROUPS, query), 0, -1) if query % g == 0)


def longest(bytes_at: Callable[[int], float], budget: float) -> int | None:
    """The most tokens whose bytes stay within the budget; None where they never fill it (every layer has a window)."""
    high = 1
    while bytes_at(high) <= budget:
        high *= 2
        if high > 2**40:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bytes_at(middle) <= budget else (low, middle)
    return low


def of_shape(
    kind: Kind = "gqa",
    layers: Annotated[int, Field(ge=1, le=1000)] = 32,
    heads: Annotated[int, Field(ge=1, le=1024)] = 32,
    kv_heads: Annotated[int, Field(ge=1, le=1024)] = 8,
    head_dim: Annotated[int, Field(ge=1, le=2048)] = 128,
    latent: Annotated[int, Field(ge=1, le=16384, description="MLA: width of the latent")] = 512,
    rope_dim: Annotated[int, Field(ge=0, le=1024, description="MLA: width of the shared rotary key")] = 64,
    kv_bits: KvBits = 16,
) -> float:
    """Bytes per token of a cache described by hand. `kv_heads` matters for GQA only: MHA keeps all heads, MQA one."""
    if kind == "gqa" and heads % kv_heads:
        raise BadInput("kv_heads", kv_heads, f"it must divide the {heads} query heads", f"要能整除 {heads} 个查询头")
    return layers * Heads(heads, kv_heads, head_dim, head_dim, latent, rope_dim).values(kind) * kv_bits / 8
