"""One token for each text of a batch, with everything laid out beforehand: for small models on a CPU.

A processor reads a small model's matrices from its cache in half a millisecond. Allocating, shaping and dispatching some
hundred results took twice as long. Here the buffers of a batch are made once, with every view of them, and a step is
arithmetic alone, written into them: what a CUDA graph is to a GPU. The formulas are those of compute/engine/model.py.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from compute.engine.device import SMALL_MODEL_BYTES
from compute.engine.model import Layer, Weights, rotation
from compute.engine.paged import PagedCache, Part, by_text, hidden, joined

STRIDE = 16  # positions by which a batch's buffers for keys and values grow


def fits(weights: Weights) -> bool:
    """Larger models spend their time in their matrices anyway."""
    c = weights.config
    plain = not (c.qk_norm or c.qkv_bias or c.out_bias or c.mlp_bias)
    return plain and weights.device.type == "cpu" and weights.dtype == torch.float32 and weights.bytes_per_decoded_token() <= SMALL_MODEL_BYTES


@dataclass(frozen=True)
class Matrices:
    """A layer's matrices, (in, out): in this order a product of a few rows costs little more than of one. What multiplies
    their input in every row, the norm's scale, is multiplied in."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


def columns(matrix: Tensor, scale: Tensor | None = None) -> Tensor:
    return (matrix if scale is None else matrix * (scale * sqrt(len(scale)))).t().contiguous()


def matrices(layer: Layer) -> Matrices:
    return Matrices(
        columns(layer.qkv.weight, layer.attention_norm), columns(layer.out.weight),
        columns(layer.gate_up.weight, layer.mlp_norm), columns(layer.down.weight),
    )  # fmt: skip


class Decoder:
    """Forwards of single tokens over a paged cache."""

    def __init__(self, weights: Weights, cache: PagedCache):
        c = weights.config
        self.weights, self.cache = weights, cache
        self.layers = [matrices(layer) for layer in weights.layers]
        self.head = columns(weights.head.weight, weights.norm)
        turns = torch.stack(rotation(torch.arange(c.context)[:, None], weights.inverse_frequencies))[:, :, 0]  # (2, context, 1, D/2)
        still = torch.tensor([1.0, 0.0])[:, None, None, None]  # cos and sin for the values, which are turned by nothing
        sizes = (2, c.context, c.kv_heads, c.head_dim // 2)
        self.turns = torch.cat([turns.expand(-1, -1, c.heads + c.kv_heads, -1), still.expand(sizes)], 2).transpose(0, 1).contiguous()
        self.batches: dict[tuple[int, int], Batch] = {}

    @torch.inference_mode()
    def logits(self, tokens: Row[int], parts: Row[Part]) -> Tensor:
        """(B, V) for one token of each part; overwritten by the next call."""
        size = self.cache.block_size
        reach = max(part.start for part in parts) + 1
        width = -(-reach // STRIDE) * STRIDE // size if size < STRIDE else -(-reach // size)
        key = len(parts), width
        if key not in self.batches:
            self.batches[key] = Batch(self, *key)
        return self.batches[key].run(tokens, parts)


class Batch:
    """The buffers of B texts with W blocks each. Letters as in compute/engine/model.py."""

    def __init__(self, decoder: Decoder, B: int, W: int):
        c, size = decoder.weights.config, decoder.cache.block_size
        H, K, D, M, heads, S = c.heads, c.kv_heads, c.head_dim, c.hidden, c.heads + 2 * c.kv_heads, W * size
        self.decoder, self.W, self.S = decoder, W, S
        self.numbers = torch.zeros(B * (3 + W), dtype=torch.long)
        self.tokens, self.positions, self.slots, self.table = self.numbers.split([B, B, B, B * W])
        self.mask = torch.zeros(B, 1, 1, S)
        # the residual stream x, and beside it √(M·ε), which makes the norm of the row what x is divided by
        self.row = torch.zeros(B, M + 16)
        self.row[:, M] = sqrt(M * c.norm_eps)
        self.x, self.root, self.normed = self.row[:, :M], torch.zeros(B, 1), torch.zeros(B, M)
        self.turn = torch.zeros(B, 2, heads, D // 2)
        self.qkv, turned = torch.zeros(B, heads * D), torch.zeros(B, heads, D)
        self.pairs, self.turned = self.qkv.view(B, heads, 2, D // 2), turned.view(B, heads, 2, D // 2)
        self.queries, self.new = turned[:, :H].view(B, K, H // K, D), turned[:, H:]
        self.held = torch.zeros(B * W, size, 2 * K, D)
        self.keys, self.values = by_text(self.held, B).unbind()  # (B, K, S, D)
        self.looked = torch.zeros(B, H * D)
        self.looked_heads = self.looked.view(B, K, H // K, D)
        self.gate_up = torch.zeros(B, 2 * c.intermediate)
        self.gate, self.up = self.gate_up.chunk(2, dim=-1)
        self.logits = torch.zeros(B, c.vocabulary)

    def run(self, tokens: Row[int], parts: Row[Part]) -> Tensor:
        self._begin(tokens, parts)
        x, pairs, turned = self.x, self.pairs, self.turned
        (a, b), (turned_a, turned_b), (cos, sin) = pairs.unbind(2), turned.unbind(2), self.turn.unbind(1)
        cos = cos[:, :, None]
        cache = self.decoder.cache
        for layer, blocks, cells in zip(self.decoder.layers, cache.layers, cache.cells):
            torch.mm(self._norm(), layer.qkv, out=self.qkv)
            torch.mul(pairs, cos, out=turned)
            turned_a.addcmul_(b, sin, value=-1)
            turned_b.addcmul_(a, sin)
            cells.index_copy_(0, self.slots, self.new)
            torch.index_select(blocks, 0, self.table, out=self.held)
            self.looked_heads.copy_(F.scaled_dot_product_attention(self.queries, self.keys, self.values, attn_mask=self.mask))
            torch.addmm(x, self.looked, layer.out, out=x)
            torch.mm(self._norm(), layer.gate_up, out=self.gate_up)
            torch.addmm(x, F.silu(self.gate, inplace=True).mul_(self.up), layer.down, out=x)
        return torch.mm(self._norm(), self.decoder.head, out=self.logits)

    def _begin(self, tokens: Row[int], parts: Row[Part]) -> None:
        size, starts = self.decoder.cache.block_size, [part.start for part in parts]
        slots = [part.blocks[part.start // size] * size + part.start % size for part in parts]
        self.numbers.numpy()[:] = [*tokens, *starts, *slots, *joined(parts, self.W)]
        self.mask.numpy()[:, 0, 0] = hidden(self.positions.numpy(), self.S)
        torch.index_select(self.decoder.weights.embedding, 0, self.tokens, out=self.x)
        torch.index_select(self.decoder.turns, 0, self.positions, out=self.turn)

    def _norm(self) -> Tensor:
        """x / √(x² + M·ε); the matrix that reads it holds the rest of the formula."""
        torch.linalg.vector_norm(self.row, dim=-1, keepdim=True, out=self.root)
        return torch.div(self.x, self.root, out=self.normed)
