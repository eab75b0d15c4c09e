"""One token for each text of a batch, with everything laid out beforehand: for small models on a CPU.

A processor reads a small model's matrices from its cache in half a millisecond. Allocating, shaping and dispatching some
hundred results took more than twice as long. Here the buffers of a batch are made once, with every view of them, and a step
is arithmetic alone, written into them: what a CUDA graph is to a GPU. The formulas are those of compute/engine/model.py.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import replace
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from compute.engine.device import SMALL_MODEL_BYTES
from compute.engine.model import Layer, Linear, Weights, rotation
from compute.engine.paged import PagedCache, Part, by_text, hidden, joined

STRIDE = 16  # positions by which the buffers for keys and values grow, about
KEPT = 8  # sizes of batches whose buffers are kept


def prepared(weights: Weights) -> Weights:
    """The same model as an engine on a CPU wants a small one: matrices by columns, in which order a product of eight rows costs
    half as much again as of one, instead of twice; and each norm's scale multiplied into the matrix that reads it."""
    if weights.device.type != "cpu" or weights.dtype != torch.float32 or weights.bytes_per_decoded_token() > SMALL_MODEL_BYTES:
        return weights

    def by_columns(matrix: Linear, scale: Tensor | None = None) -> Linear:
        numbers = matrix.weight if scale is None else matrix.weight * scale
        return Linear(numbers.t().contiguous().t(), matrix.bias)

    def of(layer: Layer) -> Layer:
        return replace(
            layer, attention_norm=torch.ones_like(layer.attention_norm), mlp_norm=torch.ones_like(layer.mlp_norm),
            qkv=by_columns(layer.qkv, layer.attention_norm), out=by_columns(layer.out),
            gate_up=by_columns(layer.gate_up, layer.mlp_norm), down=by_columns(layer.down),
        )  # fmt: skip

    return replace(weights, layers=tuple(map(of, weights.layers)), norm=torch.ones_like(weights.norm), head=by_columns(weights.head, weights.norm))


def decoder(weights: Weights, cache: PagedCache) -> Decoder | None:
    """None where the plain way is as good: a larger model spends its time in its matrices. weights: `prepared`."""
    c = weights.config
    simple = not (c.qk_norm or c.qkv_bias or c.out_bias or c.mlp_bias)
    return Decoder(weights, cache) if simple and weights.head.weight.stride(0) == 1 else None


class Decoder:
    """Forwards of single tokens over a paged cache."""

    def __init__(self, weights: Weights, cache: PagedCache):
        c = weights.config
        self.weights, self.cache = weights, cache
        self.layers = [tuple(m.weight.t() for m in (layer.qkv, layer.out, layer.gate_up, layer.down)) for layer in weights.layers]  # (in, out)
        self.head = weights.head.weight.t()
        turns = torch.stack(rotation(torch.arange(c.context)[:, None], weights.inverse_frequencies))[:, :, 0]  # (2, context, 1, D/2)
        still = torch.tensor([1.0, 0.0])[:, None, None, None]  # cos and sin for the values, which are turned by nothing
        sizes = (2, c.context, c.kv_heads, c.head_dim // 2)
        self.turns = torch.cat([turns.expand(-1, -1, c.heads + c.kv_heads, -1), still.expand(sizes)], 2).transpose(0, 1).contiguous()
        self._batches: dict[tuple[int, int], Batch] = {}

    @torch.inference_mode()
    def logits(self, tokens: Row[int], parts: Row[Part]) -> Tensor:
        """(B, V) for one token of each part; overwritten by the next call."""
        last = max(part.start for part in parts)
        width = last // self.cache.block_size + 1
        width += -width % max(1, STRIDE // self.cache.block_size)
        batch = self._batches.pop((len(parts), width), None) or Batch(self, len(parts), width)
        self._batches[len(parts), width] = batch  # the last one used is the last one dropped
        if len(self._batches) > KEPT:
            del self._batches[next(iter(self._batches))]
        return batch.run(tokens, parts)


class Batch:
    """The buffers of B texts with W blocks each. Letters as in compute/engine/model.py.

    Attention on a CPU wants keys and values in a row. Those of a batch are laid out once, text by text, and while the same
    texts go on, each step only adds what is new."""

    def __init__(self, decoder: Decoder, B: int, W: int):
        c, size = decoder.weights.config, decoder.cache.block_size
        H, K, D, M, heads, S = c.heads, c.kv_heads, c.head_dim, c.hidden, c.heads + 2 * c.kv_heads, W * size
        self.decoder, self.W, self.S, self.scale = decoder, W, S, sqrt(M)
        self.numbers = torch.zeros(4, B, dtype=torch.long)
        self.tokens, self.positions, self.slots, self.own = self.numbers  # slots: cells of the cache; own: of `held`
        self.mask = torch.zeros(B, 1, 1, S)
        self.row = torch.zeros(B, M + 16)  # the residual stream x, and beside it √(M·ε): its norm is what x is divided by
        self.row[:, M] = sqrt(M * c.norm_eps)
        self.x, self.root, self.normed = self.row[:, :M], torch.zeros(B, 1), torch.zeros(B, M)
        self.turn = torch.zeros(B, 2, heads, D // 2)
        self.qkv, turned = torch.zeros(B, heads * D), torch.zeros(B, heads, D)
        self.pairs, self.turned = self.qkv.view(B, heads, 2, D // 2), turned.view(B, heads, 2, D // 2)
        self.queries, self.new = turned[:, :H].view(B, K, H // K, D), turned[:, H:]
        self.held = torch.zeros(c.layers, B * W, size, 2 * K, D)
        # of each layer: blocks, cells, keys (B, K, S, D), values (B, K, S, D)
        self.views = [(blocks, blocks.flatten(0, 1), *by_text(blocks, B)) for blocks in self.held]
        self.looked = torch.zeros(B, H * D)
        self.looked_heads = self.looked.view(B, K, H // K, D)
        self.gate_up = torch.zeros(B, 2 * c.intermediate)
        self.gate, self.up = self.gate_up.chunk(2, dim=-1)
        self.logits = torch.zeros(B, c.vocabulary)
        self._last: list[tuple[Row[int], int]] = []  # whose keys and values are laid out: blocks, and the last position

    def run(self, tokens: Row[int], parts: Row[Part]) -> Tensor:
        table, cache = self._begin(tokens, parts), self.decoder.cache
        x, pairs, turned, new = self.x, self.pairs, self.turned, self.new
        (a, b), (turned_a, turned_b), (cos, sin) = pairs.unbind(2), turned.unbind(2), self.turn.unbind(1)
        cos = cos[:, :, None]
        for (qkv, out, gate_up, down), blocks, cells, held in zip(self.decoder.layers, cache.layers, cache.cells, self.views):
            held_blocks, held_cells, keys, values = held
            self._product(qkv, self.qkv)
            torch.mul(pairs, cos, out=turned)
            turned_a.addcmul_(b, sin, value=-1)
            turned_b.addcmul_(a, sin)
            cells.index_copy_(0, self.slots, new)
            if table is None:
                held_cells.index_copy_(0, self.own, new)
            else:
                torch.index_select(blocks, 0, table, out=held_blocks)
            self.looked_heads.copy_(F.scaled_dot_product_attention(self.queries, keys, values, attn_mask=self.mask))
            torch.addmm(x, self.looked, out, out=x)
            self._product(gate_up, self.gate_up)
            torch.addmm(x, F.silu(self.gate, inplace=True).mul_(self.up), down, out=x)
        return self._product(self.decoder.head, self.logits)

    def _begin(self, tokens: Row[int], parts: Row[Part]) -> Tensor | None:
        """The blocks to be laid out anew, (B·W); None where each text is one token further than the last time."""
        size, starts = self.decoder.cache.block_size, [part.start for part in parts]
        slots = [part.blocks[at // size] * size + at % size for part, at in zip(parts, starts)]
        self.numbers.numpy()[:] = tokens, starts, slots, [row * self.S + at for row, at in enumerate(starts)]
        torch.index_select(self.decoder.weights.embedding, 0, self.tokens, out=self.x)
        torch.index_select(self.decoder.turns, 0, self.positions, out=self.turn)
        # a text keeps its list of blocks as long as it runs without a break, and what lies in them does not change
        go_on = len(self._last) == len(parts) and all(blocks is part.blocks and last + 1 == part.start for (blocks, last), part in zip(self._last, parts))
        self._last = [(part.blocks, part.start) for part in parts]
        mask = self.mask.numpy().reshape(-1)
        if go_on:
            mask[self.own.numpy()] = 0
            return None
        mask[:] = hidden(self.positions.numpy(), self.S).reshape(-1)
        return torch.tensor(joined(parts, self.W))

    def _product(self, matrix: Tensor, out: Tensor) -> Tensor:
        """matrix · x √M / √(x² + M·ε): of the normed row; the norm's scale is in the matrix."""
        torch.linalg.vector_norm(self.row, dim=-1, keepdim=True, out=self.root)
        torch.div(self.x, self.root, out=self.normed)
        return torch.addmm(out, self.normed, matrix, beta=0, alpha=self.scale, out=out)
