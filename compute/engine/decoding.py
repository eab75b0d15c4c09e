"""One token for each text of a batch, with everything laid out beforehand: decoding on a CPU.

A processor reads a small model's matrices from its cache in half a millisecond. Allocating, shaping and dispatching some
hundred results took more than twice as long. Here the buffers of a batch are made once, with every view of them, and a step
is arithmetic alone, written into them: what a CUDA graph is to a GPU. The formulas are those of compute/engine/model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence as Row
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from compute.engine.device import SMALL_MODEL_BYTES
from compute.engine.model import Linear, Matrix, Weights, rotation, with_matrices
from compute.engine.paged import PagedCache, Part, by_text, hidden, joined

STRIDE = 16  # positions by which the buffers for keys and values grow, about
KEPT = 16  # sizes of batches whose buffers are kept
HELD = 64 * 2**20  # numbers: the most of keys and values that are laid out in a row
SHARED_BYTES = 3 * 2**19  # of a matrix, times rows, or of keys and values: from here on several threads are faster than one


def prepared(weights: Weights) -> Weights:
    """The same numbers as an engine on a CPU wants a small model's: matrices by columns, in which order a product of eight rows
    costs half as much again as of one, instead of twice."""
    if not on_cpu(weights) or weights.bytes_per_decoded_token() > SMALL_MODEL_BYTES:
        return weights
    return with_matrices(weights, lambda name, matrix: by_columns(matrix) if isinstance(matrix, Linear) else matrix)


def by_columns(matrix: Linear) -> Linear:
    return Linear(matrix.weight.t().contiguous().t(), matrix.bias)


def on_cpu(weights: Weights) -> bool:
    return weights.device.type == "cpu" and weights.dtype == torch.float32


def decoder(weights: Weights, cache: PagedCache, threads: int = 1) -> Decoder | None:
    """None where only the general way is known: which experts a step reads is not known beforehand. weights: `prepared`; threads: at
    most so many."""
    c = weights.config
    return Decoder(weights, cache, threads) if on_cpu(weights) and not c.qk_norm and c.experts == 1 else None


Product = Callable[[Tensor, Tensor], Tensor]


def into(matrix: Matrix) -> Product:
    """(x, out): out becomes the product."""
    if (columns := plain_columns(matrix)) is not None:
        return lambda x, out: torch.mm(x, columns, out=out)
    if (short := short_product(matrix)) is not None:
        return lambda x, out: out.copy_(short(x.bfloat16()))
    return lambda x, out: out.copy_(matrix(x))


def onto(matrix: Matrix) -> Product:
    """(x, out): the product is added to out."""
    if (columns := plain_columns(matrix)) is not None:
        return lambda x, out: torch.addmm(out, x, columns, out=out)
    if (short := short_product(matrix)) is not None:
        return lambda x, out: out.add_(short(x.bfloat16()))
    return lambda x, out: out.add_(matrix(x))


def shared_out(product: Product, bytes: int, threads: int) -> Product:
    """On several threads only where that is worth waking them. bytes: read of the matrix for one row."""
    if threads == 1:
        return product

    def run(x: Tensor, out: Tensor) -> Tensor:
        torch.set_num_threads(threads if bytes * len(x) >= SHARED_BYTES else 1)
        return product(x, out)

    return run


def plain_columns(matrix: Matrix) -> Tensor | None:
    """(in, out), where nothing but a product is to be done."""
    if isinstance(matrix, Linear) and matrix.bias is None and (columns := matrix.weight.t()).is_contiguous():
        return columns
    return None


def short_product(matrix: Matrix) -> Callable[[Tensor], Tensor] | None:
    """From bfloat16 to bfloat16, as the matrices of compute/quantize/kernels.py compute; where nothing else is to be done."""
    return getattr(matrix, "product", None) if matrix.bias is None else None


class Decoder:
    """Forwards of single tokens over a paged cache."""

    def __init__(self, weights: Weights, cache: PagedCache, threads: int = 1):
        c = weights.config
        self.weights, self.cache = weights, cache
        turns = torch.stack(rotation(torch.arange(c.context)[:, None], weights.inverse_frequencies))[:, :, 0]  # (2, context, 1, D/2)
        still = torch.tensor([1.0, 0.0])[:, None, None, None]  # cos and sin for the values, which are turned by nothing
        sizes = (2, c.context, c.kv_heads, c.head_dim // 2)
        self.turns = torch.cat([turns.expand(-1, -1, c.heads + c.kv_heads, -1), still.expand(sizes)], 2).transpose(0, 1).contiguous()
        scale = sqrt(c.hidden)
        self.threads = threads

        def ready(way: Callable[[Matrix], Product], matrix: Matrix) -> Product:
            return shared_out(way(matrix), matrix.bytes, threads)

        self.layers = [
            (layer.attention_norm * scale, ready(into, layer.qkv), ready(onto, layer.out), layer.mlp_norm * scale, ready(into, layer.gate_up), ready(onto, layer.down))
            for layer in weights.layers
        ]  # fmt: skip
        self.norm, self.head = weights.norm * scale, ready(into, weights.head)
        self.held = torch.zeros(0)  # what the batches lay out, one at a time
        self._batches: dict[tuple[int, int], Batch] = {}
        self._last: tuple[Batch | None, list[tuple[Row[int], int]]] = None, []  # whose: blocks of each text, and its last position

    @torch.inference_mode()
    def logits(self, tokens: Row[int], parts: Row[Part]) -> Tensor | None:
        """(B, V) for one token of each part; overwritten by the next call. None where laying out would take too much memory."""
        size, last = self.cache.block_size, max(part.start for part in parts)
        width = last // size + 1
        width += -width % max(1, STRIDE // size)
        B = len(parts)
        if (need := B * width * self.cache.block_bytes // 4) > HELD:
            return None
        if need > len(self.held):
            self.held = torch.zeros(min(max(need, 2 * len(self.held)), HELD))
            self._batches.clear()
        batch = self._batches.pop((B, width), None) or Batch(self, B, width)
        self._batches[B, width] = batch  # the longest unused one is the first
        if len(self._batches) > KEPT:
            del self._batches[next(iter(self._batches))]
        of, texts = self._last
        # a text keeps its list of blocks as long as it runs without a break, and what lies in them does not change
        go_on = of is batch and all(blocks is part.blocks and at + 1 == part.start for (blocks, at), part in zip(texts, parts))
        self._last = batch, [(part.blocks, part.start) for part in parts]
        return batch.run(tokens, parts, go_on)


class Batch:
    """The buffers of B texts with W blocks each. Letters as in compute/engine/model.py.

    Attention on a CPU wants keys and values in a row. Those of a batch are laid out once, text by text, and while the same
    texts go on, each step only adds what is new."""

    def __init__(self, decoder: Decoder, B: int, W: int):
        c, size = decoder.weights.config, decoder.cache.block_size
        H, K, D, M, heads, S = c.heads, c.kv_heads, c.head_dim, c.hidden, c.heads + 2 * c.kv_heads, W * size
        self.decoder, self.W, self.S = decoder, W, S
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
        held = decoder.held[: c.layers * B * S * 2 * K * D].view(c.layers, B * W, size, 2 * K, D)
        # of each layer: blocks, cells, keys (B, K, S, D), values (B, K, S, D)
        self.views = [(blocks, blocks.flatten(0, 1), *by_text(blocks, B)) for blocks in held]
        self.threads = decoder.threads if B * S * 2 * K * D * 4 >= SHARED_BYTES else 1  # of attention
        self.looked = torch.zeros(B, H * D)
        self.looked_heads = self.looked.view(B, K, H // K, D)
        self.gate_up = torch.zeros(B, 2 * c.intermediate)
        self.gate, self.up = self.gate_up.chunk(2, dim=-1)
        self.logits = torch.zeros(B, c.vocabulary)

    def run(self, tokens: Row[int], parts: Row[Part], go_on: bool) -> Tensor:
        table, cache = self._begin(tokens, parts, go_on), self.decoder.cache
        x, pairs, turned, new = self.x, self.pairs, self.turned, self.new
        (a, b), (turned_a, turned_b), (cos, sin) = pairs.unbind(2), turned.unbind(2), self.turn.unbind(1)
        cos = cos[:, :, None]
        for layer, blocks, cells, held in zip(self.decoder.layers, cache.layers, cache.cells, self.views):
            attention_norm, qkv, out, mlp_norm, gate_up, down = layer
            held_blocks, held_cells, keys, values = held
            qkv(self._norm(attention_norm), self.qkv)
            torch.mul(pairs, cos, out=turned)
            turned_a.addcmul_(b, sin, value=-1)
            turned_b.addcmul_(a, sin)
            cells.index_copy_(0, self.slots, new)
            if table is None:
                held_cells.index_copy_(0, self.own, new)
            else:
                torch.index_select(blocks, 0, table, out=held_blocks)
            torch.set_num_threads(self.threads)
            self.looked_heads.copy_(F.scaled_dot_product_attention(self.queries, keys, values, attn_mask=self.mask))
            out(self.looked, x)
            gate_up(self._norm(mlp_norm), self.gate_up)
            down(F.silu(self.gate, inplace=True).mul_(self.up), x)
        return self.decoder.head(self._norm(self.decoder.norm), self.logits)

    def _begin(self, tokens: Row[int], parts: Row[Part], go_on: bool) -> Tensor | None:
        """The blocks to be laid out anew, (B·W); None where each text is one token further than the last time."""
        size, starts = self.decoder.cache.block_size, [part.start for part in parts]
        slots = [part.blocks[at // size] * size + at % size for part, at in zip(parts, starts)]
        self.numbers.numpy()[:] = tokens, starts, slots, [row * self.S + at for row, at in enumerate(starts)]
        torch.index_select(self.decoder.weights.embedding, 0, self.tokens, out=self.x)
        torch.index_select(self.decoder.turns, 0, self.positions, out=self.turn)
        mask = self.mask.numpy().reshape(-1)
        if go_on:
            mask[self.own.numpy()] = 0
            return None
        mask[:] = hidden(self.positions.numpy(), self.S).reshape(-1)
        return torch.tensor(joined(parts, self.W))

    def _norm(self, scale: Tensor) -> Tensor:
        """x · scale / √(x² + M·ε)"""
        torch.linalg.vector_norm(self.row, dim=-1, keepdim=True, out=self.root)
        return torch.div(self.x, self.root, out=self.normed).mul_(scale)
