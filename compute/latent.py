"""Keys and values from one short vector, on the real tensors of mini-256. No torch: pages compute with it.

A layer makes its keys and values from a hidden state h (M numbers) by one product, y = [K; V] = W h, with N = 2 · KV heads ·
head_dim rows in W. Kept instead of y is c, of r numbers:

    c = W_down h        (r, M) · (M)         what the cache would hold
    K = W_uk c          (N/2, r) · (r)       made anew when it is looked at
    V = W_uv c          (N/2, r) · (r)

The best such W_up W_down, in the sense of the least mean ‖W h − W_up W_down h‖² over a text, is a projection of y on the r
directions in which y has most energy (Eckart–Young): with U the eigenvectors of mean(y yᵀ), W_up = U_r and W_down = U_rᵀ W; what
is lost is the sum of the other eigenvalues. Keys are taken before rotation: c is the same for a token wherever it stands, and
rotation comes after expansion. A model with MLA learns W_down and W_up; here they are taken out of a model that was trained without.

The forward below is that of compute/engine/model.py in NumPy, for one text at a time, and a test holds it to the engine's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from compute import facts
from compute.errors import BadInput, BrokenData
from compute.quantize import matrices

MODEL = "mini-256"
RANKS = (16, 32, 64, 96, 128, 160, 192, 224)
LONGEST = 48  # tokens of a text that is looked at
CALIBRATING = 16  # windows of the calibration text, 4,096 tokens, whose energies choose the directions

Weighing = Literal["activations", "weights"]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    theta: float
    eps: float

    @property
    def kept(self) -> int:
        """Numbers of K and V that a token leaves in a layer."""
        return 2 * self.kv_heads * self.head_dim


@dataclass(frozen=True)
class Parameters:
    """Of a layer; matrices (out, in)."""

    attention_norm: Floats
    queries: Floats  # (H·D, M)
    keys_values: Floats  # (N, M): K rows, then V rows
    out: Floats
    mlp_norm: Floats
    gate: Floats
    up: Floats
    down: Floats


@dataclass(frozen=True)
class Seen:
    """What one layer makes of a text of T tokens. hidden (T, M): after the layer's norm; queries (T, H, D) before rotation; kept
    (T, N): keys before rotation, then values."""

    hidden: Floats
    queries: Floats
    kept: Floats


@cache
def shape() -> Shape:
    c = facts.model(MODEL).config
    return Shape(c["num_hidden_layers"], c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rope_theta"], c["rms_norm_eps"])


@cache
def _parameters() -> tuple[Floats, tuple[Parameters, ...]]:
    """Embedding (V, M) and layers. Raises BrokenData for a checkpoint that cannot be read."""
    file, s = matrices.CHECKPOINTS / MODEL / "model.safetensors", shape()
    try:
        with safe_open(file, "np") as tensors:
            def read(name: str) -> Floats:
                return tensors.get_tensor(f"model.{name}.weight").astype(np.float32, copy=False)

            layers = tuple(
                Parameters(
                    read(f"layers.{i}.input_layernorm"), read(f"layers.{i}.self_attn.q_proj"),
                    np.concatenate([read(f"layers.{i}.self_attn.{part}_proj") for part in "kv"]), read(f"layers.{i}.self_attn.o_proj"),
                    read(f"layers.{i}.post_attention_layernorm"), *(read(f"layers.{i}.mlp.{part}_proj") for part in ("gate", "up", "down")),
                )
                for i in range(s.layers)
            )  # fmt: skip
            return read("embed_tokens"), layers
    except (OSError, SafetensorError) as e:
        raise BrokenData(file, str(e)) from None


def layer(number: int) -> Parameters:
    return _parameters()[1][number]


# ---- reading a text


def _norm(x: Floats, scale: Floats) -> Floats:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + shape().eps) * scale


def rotate(x: Floats) -> Floats:
    """(T, heads, D), the token in row t at position t: pairs (i, i + D/2) turned."""
    s = shape()
    angles = np.arange(len(x))[:, None, None] / s.theta ** (np.arange(0, s.head_dim, 2) / s.head_dim)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attend(queries: Floats, kept: Floats) -> Floats:
    """Causal softmax attention, queries (T, H, D) and kept (T, N) before rotation → (T, H·D)."""
    s, T = shape(), len(kept)
    keys, values = kept.reshape(T, 2, s.kv_heads, s.head_dim).swapaxes(0, 1)
    share = s.heads // s.kv_heads
    q, k = rotate(queries), np.repeat(rotate(keys), share, axis=1)
    scores = q.transpose(1, 0, 2) @ k.transpose(1, 2, 0) / np.float32(s.head_dim**0.5)  # (H, T, S)
    scores[:, np.triu(np.ones((T, T), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ np.repeat(values, share, axis=1).transpose(1, 0, 2)).transpose(1, 0, 2).reshape(T, -1)


def read(tokens: tuple[int, ...]) -> tuple[Seen, ...]:
    """What each layer sees of a text."""
    s, (embedding, layers) = shape(), _parameters()
    x, seen = embedding[list(tokens)], []
    for p in layers:
        h = _norm(x, p.attention_norm)
        here = Seen(h, (h @ p.queries.T).reshape(len(h), s.heads, s.head_dim), h @ p.keys_values.T)
        seen.append(here)
        x = x + attend(here.queries, here.kept) @ p.out.T
        h = _norm(x, p.mlp_norm)
        gate = h @ p.gate.T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ p.up.T)) @ p.down.T
    return tuple(seen)


@lru_cache(16)
def read_text(text: str) -> tuple[tuple[str, ...], tuple[Seen, ...]]:
    """The tokens of a text as they are written, and what each layer sees. Raises BadInput for none, or more than LONGEST."""
    from compute import tokenization

    found = tokenization.encoder(MODEL)
    ids = found.encode(text)
    if not 1 <= len(ids) <= LONGEST:
        raise BadInput("text", f"{len(ids)} tokens", f"between 1 and {LONGEST} tokens can be shown", f"能显示 1 到 {LONGEST} 个 token")
    return tuple(found.bytes_of(i).decode("utf-8", "replace") for i in ids), read(tuple(ids))


# ---- the directions


@dataclass(frozen=True)
class Basis:
    """directions (N, N): orthonormal columns, the one with most energy first; energies (N): mean of the squared coordinate of y
    along each, over the calibration text."""

    directions: NDArray[np.float64]
    energies: NDArray[np.float64]


@cache
def _energy() -> tuple[NDArray[np.float64], ...]:
    """mean(y yᵀ) (N, N) of each layer over the calibration text, which mini-256 wrote itself: no validation text."""
    from compute.quantize import calibration  # brings a tokenizer along, which a page needs only here

    flat = [token for text in calibration.written() for token in text][: CALIBRATING * calibration.LENGTH]
    sums, count = [0.0] * shape().layers, 0
    for first in range(0, len(flat), calibration.LENGTH):
        for i, seen in enumerate(read(tuple(flat[first : first + calibration.LENGTH]))):
            y = seen.kept.astype(np.float64)
            sums[i] = sums[i] + y.T @ y
        count += len(flat[first : first + calibration.LENGTH])
    return tuple(total / count for total in sums)


@cache
def basis(number: int, weighing: Weighing = "activations") -> Basis:
    """activations: the directions of y = W h over real h. weights: those of W alone, as if every direction of h were alike."""
    energy = _energy()[number]
    if weighing == "weights":
        w = layer(number).keys_values.astype(np.float64)
        directions = np.linalg.eigh(w @ w.T)[1][:, ::-1]
        return Basis(directions, np.einsum("ij,ik,kj->j", directions, energy, directions, optimize=True))
    values, directions = np.linalg.eigh(energy)
    return Basis(directions[:, ::-1], np.maximum(values[::-1], 0))


@dataclass(frozen=True)
class Factors:
    down: NDArray[np.float64]  # (r, M)
    up: NDArray[np.float64]  # (N, r): W_uk above, W_uv below


def factors(number: int, rank: int, weighing: Weighing = "activations") -> Factors:
    up = basis(number, weighing).directions[:, :rank]
    return Factors(up.T @ layer(number).keys_values.astype(np.float64), up)


# ---- what is lost


@dataclass(frozen=True)
class Lost:
    """‖x̂ − x‖ / ‖x‖ over the tokens of a text: of the keys, of the values, and of what the layer's attention adds to the residual
    stream, this layer alone being changed."""

    keys: float
    values: float
    attention: float


def rebuilt(seen: Seen, made: Factors) -> tuple[Floats, Floats]:
    """c (T, r), and what is made of it (T, N)."""
    c = seen.hidden @ made.down.T
    return c.astype(np.float32), (c @ made.up.T).astype(np.float32)


def lost(number: int, seen: Seen, again: Floats) -> Lost:
    half, out = shape().kept // 2, layer(number).out.T
    before, after = attend(seen.queries, seen.kept) @ out, attend(seen.queries, again) @ out

    def relative(x: Floats, y: Floats) -> float:
        return float(np.linalg.norm(y - x) / np.linalg.norm(x))

    return Lost(relative(seen.kept[:, :half], again[:, :half]), relative(seen.kept[:, half:], again[:, half:]), relative(before, after))


def pooled(number: int) -> NDArray[np.float64]:
    """(N, M): keys and values of a layer with the mean of all KV heads in the place of each (MQA by mean pooling)."""
    s = shape()
    heads = layer(number).keys_values.astype(np.float64).reshape(2, s.kv_heads, s.head_dim, s.hidden)
    return np.broadcast_to(heads.mean(1, keepdims=True), heads.shape).reshape(s.kept, s.hidden)
