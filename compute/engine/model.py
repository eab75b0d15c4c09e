"""The decoder-only transformer, as functions over its weights: Llama, Qwen2, Qwen3 and Mixtral differ only in which of the
optional parts (biases, query/key norms, experts behind a router) are there.

Letters in the shape comments: B sequences, T new tokens of each, S positions visible so far, H query heads,
K key/value heads, D head_dim, M hidden width, F feed-forward width (of one expert), E experts, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import pi, prod
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Rope:
    """Rotary position: base frequency, and how a long-context model stretches it (`kind`: default, linear, llama3)."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True)
class Config:
    """A model's shape. Widths in elements, `context` in tokens; `head_dim` is stated, never hidden / heads."""

    architecture: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    norm_eps: float
    rope: Rope
    tied: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    stop_tokens: tuple[int, ...] = ()
    experts: int = 1  # of a layer; 1 = a plain MLP without a router
    chosen: int = 1  # of them, for each token

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and (type(value) is not int or value < 1):
                raise ValueError(f"{field.name} = {value!r} is not a positive whole number")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} query heads cannot share {self.kv_heads} key/value heads evenly")
        if self.head_dim % 2:
            raise ValueError(f"head_dim = {self.head_dim} is odd; rotary position turns pairs")
        if self.chosen > self.experts:
            raise ValueError(f"{self.chosen} experts for each token, but a layer has only {self.experts}")


PACKED_ROWS = 4  # from here on a packed matrix is the faster one; below, the plain product reads at full bandwidth


class Matrix(Protocol):
    """y = x Wᵀ + b, however W (out, in) is stored; compute/quantize has others than Linear. bytes: read for one product."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def bytes(self) -> int: ...

    @property
    def bias(self) -> Tensor | None: ...

    def __call__(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Linear:
    """The weights as they are."""

    weight: Tensor  # (out, in)
    bias: Tensor | None = None  # (out)
    packed: Tensor | None = None  # the same numbers in the order in which oneDNN's kernels read them

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.weight.shape)

    @property
    def bytes(self) -> int:
        return self.weight.numel() * self.weight.element_size()

    def __call__(self, x: Tensor) -> Tensor:
        if self.packed is not None and x.numel() >= PACKED_ROWS * x.shape[-1]:
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)


def packed_matrix(matrix: Matrix) -> Matrix:
    """With its numbers a second time, for products of a few rows (a batch, the guesses of a round): the plain kernel orders
    the whole matrix anew in each of them, which on a CPU in float32 costs as much again as reading it. A matrix that stays
    in the processor's cache is better off plain."""
    if not isinstance(matrix, Linear):
        return matrix
    plain = matrix.weight
    if plain.device.type != "cpu" or plain.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return matrix
    return Linear(plain, matrix.bias, torch.ops.mkldnn._reorder_linear_weight(plain, PACKED_ROWS))


@dataclass(frozen=True)
class Experts:
    """MLPs side by side, and the router that sends each token to `chosen` of them, as in Mixtral (Jiang et al. 2024, §2.1)."""

    router: Matrix  # (E, M)
    gate_up: tuple[Matrix, ...]  # E × (2F, M)
    down: tuple[Matrix, ...]  # E × (M, F)
    chosen: int


@dataclass(frozen=True)
class Layer:
    attention_norm: Tensor  # (M)
    qkv: Matrix  # ((H + 2K)·D, M): queries, keys and values in one product
    qk_norm: Tensor | None  # (H + K, D): Qwen3's q_norm for each query head, then k_norm for each key head
    out: Matrix  # (M, H·D)
    mlp_norm: Tensor  # (M)
    gate_up: Matrix | None  # (2F, M); None where there are experts
    down: Matrix | None  # (M, F)
    experts: Experts | None = None

    def matrices(self) -> dict[str, Matrix]:
        """By the names that `with_matrices` gives them."""
        if (e := self.experts) is None:
            return {name: getattr(self, name) for name in MATRICES}
        each = {f"experts.{i}.{name}": m for i, pair in enumerate(zip(e.gate_up, e.down)) for name, m in zip(("gate_up", "down"), pair)}
        return {"qkv": self.qkv, "out": self.out, "router": e.router, **each}

    def with_matrices(self, change: Callable[[str, Matrix], Matrix]) -> "Layer":
        if (e := self.experts) is None:
            return replace(self, **{name: change(name, matrix) for name, matrix in self.matrices().items()})
        made = {name: change(name, matrix) for name, matrix in self.matrices().items()}
        gate_up, down = (tuple(made[f"experts.{i}.{part}"] for i in range(len(e.down))) for part in ("gate_up", "down"))
        return replace(self, qkv=made["qkv"], out=made["out"], experts=replace(e, router=made["router"], gate_up=gate_up, down=down))

    def read(self) -> int:
        """Bytes of the matrices that one token is multiplied with: of the experts those that it is sent to."""
        if (e := self.experts) is None:
            return sum(m.bytes for m in self.matrices().values())
        return self.qkv.bytes + self.out.bytes + e.router.bytes + e.chosen * (e.gate_up[0].bytes + e.down[0].bytes)


@dataclass(frozen=True)
class Weights:
    config: Config
    embedding: Tensor  # (V, M)
    layers: tuple[Layer, ...]
    norm: Tensor  # (M)
    head: Matrix  # (V, M); holds the embedding's own tensor when tied
    inverse_frequencies: Tensor  # (D/2) float32

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    def matrices(self) -> list[Matrix]:
        """Every matrix that some token is multiplied with, lm_head included; the embedding row is looked up instead."""
        return [m for layer in self.layers for m in layer.matrices().values()] + [self.head]

    def parameters(self) -> int:
        """Numbers stored; a tied lm_head counts once."""
        vectors = [v for layer in self.layers for v in (layer.attention_norm, layer.mlp_norm)] + [self.norm]
        norms = 2 * self.config.head_dim * self.config.layers * self.config.qk_norm  # q_norm and k_norm, one head wide
        biases = sum(m.bias.numel() for m in self.matrices() if m.bias is not None)
        products = sum(prod(m.shape) for m in self.matrices())
        return products + biases + sum(v.numel() for v in vectors) + norms + (not self.config.tied) * self.embedding.numel()

    def active_parameters(self) -> int:
        """Those that take part in one token: all but the experts it is not sent to."""
        c = self.config
        return self.parameters() - c.layers * (c.experts - c.chosen) * 3 * c.hidden * c.intermediate

    def bytes_per_decoded_token(self) -> int:
        """Bytes of weights read for one token that is alone: every matrix that it is multiplied with. A batch reads the same once,
        but of the experts all those that any of its tokens is sent to."""
        return sum(layer.read() for layer in self.layers) + self.head.bytes


MATRICES = ("qkv", "out", "gate_up", "down")  # of a layer without experts


def with_matrices(weights: Weights, change: Callable[[str, Matrix], Matrix]) -> Weights:
    """The same model with each matrix changed; their names are 0.qkv, 0.out, … (0.router, 0.experts.3.down) and head."""
    layers = tuple(layer.with_matrices(lambda name, matrix, number=number: change(f"{number}.{name}", matrix)) for number, layer in enumerate(weights.layers))
    return replace(weights, layers=layers, head=change("head", weights.head))


def packed(weights: Weights) -> Weights:
    """The same weights with every matrix packed."""
    return with_matrices(weights, lambda name, matrix: packed_matrix(matrix))


@dataclass(frozen=True)
class Place:
    """Where the T new tokens of each of the B sequences stand."""

    positions: Tensor  # (B, T) on the model's device
    start: int | None  # every row stands at start, start + 1, …; None when the rows differ
    reach: int  # S: positions 0 … reach − 1 take part in attention
    mask: Tensor | None  # (B, 1, T, S), True = may look; None = sees all, or plain causal
    causal: bool


def place(positions: Tensor, device: torch.device) -> Place:
    """Reads the positions once per forward. They come on the CPU: asking a GPU for their maximum would wait for it."""
    tokens = positions.shape[1]
    first, reach = int(positions.min()), int(positions.max()) + 1
    together = bool((positions == torch.arange(first, first + tokens)).all())
    mask = None
    if not together or (tokens > 1 and first > 0):
        mask = (torch.arange(reach) <= positions[:, None, :, None]).to(device)  # (B, 1, T, S)
    return Place(positions.to(device), first if together else None, reach, mask, together and first == 0 and tokens > 1)


class Cache(Protocol):
    """A KV store that attention writes to and looks into; contiguous here, paged in compute/engine/paged.py."""

    def place(self, positions: Tensor, device: torch.device) -> Place: ...

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, here: Place) -> Tensor:
        """Stores the new keys and values (B, T, K, D) and lets the queries (B, T, H, D) look at all up to themselves;
        returns (B, T, H, D)."""


class KVCache:
    """Contiguous cache: every sequence owns `capacity` slots, written or not.

    A right-padded prompt may be stored: padding lands beyond the sequence's end, where no query looks before the
    real token of that position has overwritten it.
    """

    def __init__(self, weights: Weights, batch: int, capacity: int):
        c = weights.config
        shape = (c.layers, 2, batch, c.kv_heads, capacity, c.head_dim)
        self.data = torch.zeros(shape, dtype=weights.dtype, device=weights.device)
        self.rows = torch.arange(batch, device=weights.device)[:, None]  # (B, 1)

    @property
    def bytes(self) -> int:
        return self.data.numel() * self.data.element_size()

    def place(self, positions: Tensor, device: torch.device) -> Place:
        return place(positions, device)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, here: Place) -> Tensor:
        held_keys, held_values = self.data[layer].unbind(0)  # each (B, K, capacity, D), slot s = position s
        if here.start is None:
            held_keys[self.rows, :, here.positions] = keys
            held_values[self.rows, :, here.positions] = values
        else:
            held_keys[:, :, here.start : here.reach] = keys.transpose(1, 2)
            held_values[:, :, here.start : here.reach] = values.transpose(1, 2)
        return look(queries, held_keys[:, :, : here.reach], held_values[:, :, : here.reach], here.mask, here.causal)


@torch.inference_mode()
def forward(
    weights: Weights, tokens: Tensor, cache: Cache | None, positions: Tensor, *, last_only: bool = False
) -> Tensor:
    """Logits (B, T, V) in float32, or (B, 1, V) of the last token with `last_only`.

    tokens (B, T) ids; positions (B, T) on the CPU, position of each token in its own sequence. With a cache, keys and
    values of earlier positions come from it; without one, tokens are whole sequences and everything is computed.
    """
    x = hidden_states(weights, tokens, cache, positions)
    return logits(weights, x[:, -1:] if last_only else x)


@torch.inference_mode()
def hidden_states(weights: Weights, tokens: Tensor, cache: Cache | None, positions: Tensor) -> Tensor:
    """The last layer's output after the final norm, (B, T, M)."""
    here = cache.place(positions, weights.device) if cache else place(positions, weights.device)
    if cache is None and here.start != 0:
        raise ValueError("without a cache the tokens must be whole sequences, at positions 0, 1, 2, …")
    turn = rotation(here.positions, weights.inverse_frequencies)
    x = F.embedding(tokens.to(weights.device), weights.embedding)  # (B, T, M)
    for number, layer in enumerate(weights.layers):
        x = block(weights.config, layer, number, x, turn, cache, here)
    return rms_norm(x, weights.norm, weights.config.norm_eps)


@torch.inference_mode()
def logits(weights: Weights, hidden: Tensor) -> Tensor:
    """(…, M) → (…, V) in float32, whatever the weights' dtype."""
    return weights.head(hidden).float()


def block(
    config: Config, layer: Layer, number: int, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, here: Place
) -> Tensor:
    """One layer with its residual connections, (B, T, M) → (B, T, M)."""
    x = x + attention(config, layer, number, rms_norm(x, layer.attention_norm, config.norm_eps), turn, cache, here)
    return x + feed_forward(layer, rms_norm(x, layer.mlp_norm, config.norm_eps))


def attention(
    config: Config, layer: Layer, number: int, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, here: Place
) -> Tensor:
    """Grouped-query attention over everything visible, (B, T, M) → (B, T, M)."""
    B, T, _ = x.shape
    H, K, D = config.heads, config.kv_heads, config.head_dim
    qkv = layer.qkv(x).view(B, T, H + 2 * K, D)
    qk, v = qkv.split([H + K, K], dim=2)
    if layer.qk_norm is not None:
        qk = F.rms_norm(qk, (D,), eps=config.norm_eps) * layer.qk_norm
    q, k = rotate(qk, turn).split([H, K], dim=2)  # (B, T, H, D), (B, T, K, D)
    if cache:
        y = cache.attend(number, q, k, v, here)
    else:
        y = look(q, k.transpose(1, 2), v.transpose(1, 2), here.mask, here.causal)
    return layer.out(y.reshape(B, T, H * D))


def look(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Softmax attention: queries (B, T, H, D) over keys and values (B, K, S, D), H / K query heads to each of theirs; mask
    (B or 1, 1, T, S), True = may look. Returns (B, T, H, D)."""
    grouped = queries.shape[2] != keys.shape[1]
    y = F.scaled_dot_product_attention(queries.transpose(1, 2), keys, values, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
    return y.transpose(1, 2)


def feed_forward(layer: Layer, x: Tensor) -> Tensor:
    """One MLP for all tokens, or for each the experts that it is sent to."""
    return swiglu(layer.gate_up, layer.down, x) if layer.experts is None else mixture(layer.experts, x)


def swiglu(gate_up: Matrix, down: Matrix, x: Tensor) -> Tensor:
    """down(silu(gate x) · up x)"""
    gate, up = gate_up(x).chunk(2, dim=-1)  # (…, F) each
    return down(F.silu(gate) * up)


def mixture(experts: Experts, x: Tensor) -> Tensor:
    """The outputs of each token's experts, weighted by their shares, (B, T, M) → (B, T, M). An expert is read once for all tokens that
    are sent to it, and not at all where there is none."""
    flat = x.flatten(0, -2)  # (N, M)
    chosen, shares = route(experts.router(flat), experts.chosen)
    out = torch.zeros_like(flat)
    for number in chosen.unique().tolist():
        rows, place = (chosen == number).nonzero(as_tuple=True)
        made = swiglu(experts.gate_up[number], experts.down[number], flat[rows])
        out.index_add_(0, rows, made * shares[rows, place, None].to(made.dtype))
    return out.view_as(x)


def route(scores: Tensor, chosen: int) -> tuple[Tensor, Tensor]:
    """From a router's scores (N, E) the experts of each token, the likeliest first, and their shares, (N, chosen) each. Shares are the
    softmax over the chosen scores alone, so they add up to 1."""
    top, experts = scores.float().topk(chosen, dim=-1)
    return experts, top.softmax(-1)


def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · scale, over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), scale, eps)


def rotation(positions: Tensor, inverse_frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of position × frequency, (B, T, 1, D/2) float32: one angle for each pair, the same for all heads."""
    angles = positions[..., None, None] * inverse_frequencies
    return angles.cos(), angles.sin()


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turns the pairs (i, i + D/2) of each head by their angle; in float32, given back in x's dtype. (B, T, heads, D)"""
    cos, sin = turn
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def inverse_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """Radians per position for each of the head_dim/2 pairs, float32.

    llama3 (Llama 3.1's `rope_scaling`): wavelengths longer than the original context allows are stretched by `factor`,
    short ones are left, and those between are blended linearly in original_context / wavelength.
    """
    frequencies = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        turns = rope.original_context * frequencies / (2 * pi)  # full turns within the original context
        low, high = rope.low_frequency_factor, rope.high_frequency_factor
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        return frequencies * (keep + (1 - keep) / rope.factor)
    return frequencies
