"""The multi-token prediction head: the target drafts for itself (DeepSeek-V3 report, arXiv:2412.19437, §2.2).

One block more. At position i it reads the target's hidden state h_i (after the final norm) and the embedding of token
i + 1, and its output h'_i guesses token i + 2 through the target's own embedding and output matrix. For a further guess h'_i
stands in h's place and the guess is the token. Keys and values of verified positions come from true hidden states: they
are computed again from those once the target has read the position. Where the vocabulary is large, a head guesses from a
shortlist of frequent tokens only (FR-Spec, arXiv:2502.14856): reading the whole output matrix would cost more than the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from compute import sampling as rules
from compute.engine import directory
from compute.engine.errors import ModelMissing
from compute.engine.loader import Model, Tensors, assemble_layer
from compute.engine.model import Config, KVCache, Layer, Linear, Matrix, attention, feed_forward, place, rms_norm, rotation
from compute.engine.registry import unquantized
from compute.engine.speculate import NO_DRAFT, Draft, distribution, largest_probability
from compute.sampling import Sampling

CHECKPOINTS = Path(__file__).parents[2] / "data" / "checkpoints"


@dataclass(frozen=True)
class Head:
    """config: the target's, with one layer."""

    config: Config
    hidden_norm: Tensor  # (M)
    embedding_norm: Tensor  # (M)
    projection: Linear  # (M, 2M)
    layer: Layer
    norm: Tensor  # (M)
    output: Matrix  # (V, M), the target's; or (R, M), its rows of the shortlist
    shortlist: Tensor | None = None  # (R) token ids

    @property
    def device(self) -> torch.device:
        return self.norm.device

    @property
    def dtype(self) -> torch.dtype:
        return self.norm.dtype

    def parameters(self) -> int:
        """Multiplied for one guess; embedding and output matrix are the target's."""
        l = self.layer
        matrices = (self.projection, l.qkv, l.out, l.gate_up, l.down, self.output)
        vectors = (self.hidden_norm, self.embedding_norm, l.attention_norm, l.mlp_norm, self.norm)
        return sum(prod(m.shape) for m in matrices) + sum(v.numel() for v in vectors)


def load(target: Model, folder: Path | None = None) -> Head:
    """The head that was trained on this target, also where that is quantized now. Raises a ModelError: ModelMissing, FileCorrupt or TensorWrong."""
    folder = folder or CHECKPOINTS / f"{unquantized(target.name)}-mtp"
    if not folder.is_dir():
        raise ModelMissing(
            folder.name,
            f"{target.name} has no MTP head here",
            f"这里没有 {target.name} 的 MTP 头",
            "draft with another model or by look-up",
            "请换草稿模型，或用查找",
        )
    files = {name: file for file in directory.weight_files(folder) for name in directory.tensor_shapes(file)}

    def read(name: str) -> Tensor:
        with directory.open_safetensors(files[name]) as file:
            return file.get_tensor(name)

    c, w = target.config, target.weights
    tensors, width = Tensors(folder, files, read, w.device, w.dtype), c.hidden
    shortlist = tensors.take("shortlist", *directory.tensor_shapes(files["shortlist"])["shortlist"], dtype=torch.int64) if "shortlist" in files else None
    head = Head(
        config=replace(c, layers=1, qkv_bias=False, out_bias=False, mlp_bias=False, qk_norm=False),
        hidden_norm=tensors.take("hidden_norm.weight", width),
        embedding_norm=tensors.take("embedding_norm.weight", width),
        projection=Linear(tensors.take("projection.weight", width, 2 * width)),
        layer=assemble_layer(replace(c, qkv_bias=False, out_bias=False, mlp_bias=False, qk_norm=False), tensors, "layer"),
        norm=tensors.take("norm.weight", width),
        output=w.head if shortlist is None else Linear((w.embedding if c.tied else w.head.weight)[shortlist]),
        shortlist=shortlist,
    )
    tensors.refuse_leftovers()
    return head


@torch.inference_mode()
def outputs(head: Head, target: Model, hidden: Tensor, following: Tensor, cache: KVCache, positions: Tensor) -> Tensor:
    """h' (1, T, M). hidden (1, T, M): h or h' at the T positions; following (1, T): the tokens after them."""
    c, w, layer = head.config, target.weights, head.layer
    here = place(positions, w.device)
    turn = rotation(here.positions, w.inverse_frequencies)
    embedded = F.embedding(following.to(w.device), w.embedding)
    both = torch.cat([rms_norm(hidden, head.hidden_norm, c.norm_eps), rms_norm(embedded, head.embedding_norm, c.norm_eps)], -1)
    x = head.projection(both)
    x = x + attention(c, layer, 0, rms_norm(x, layer.attention_norm, c.norm_eps), turn, cache, here)
    x = x + feed_forward(layer, rms_norm(x, layer.mlp_norm, c.norm_eps))
    return rms_norm(x, head.norm, c.norm_eps)


@torch.inference_mode()
def guess_logits(head: Head, out: Tensor, vocabulary: int) -> Tensor:
    """h' (M) → logits (V) in float32, −inf beside the shortlist."""
    row = head.output(out).float()
    if head.shortlist is None:
        return row
    return row.new_full((vocabulary,), -torch.inf).index_copy(0, head.shortlist, row)


class MtpDraft:
    """A Drafter. What its last guesses left in the cache is written over, from true hidden states. `sure` as for ModelDraft."""

    def __init__(self, head: Head, target: Model, capacity: int, sure: float = 0.0):
        self.head, self.target, self.sure = head, target, sure
        self.cache = KVCache(head, 1, min(capacity, target.config.context))

    def draft(self, text: Sequence[int], hidden: Tensor, k: int, sampling: Sampling, random: np.random.Generator) -> Draft:
        torch.set_num_threads(self.target.threads)
        start = len(text) - 1 - len(hidden)
        states, following, guesses, q = hidden[None], list(text[start + 1 :]), [], []
        for _ in range(k):
            positions = torch.arange(start, start + len(following))[None]
            out = outputs(self.head, self.target, states, torch.tensor([following]), self.cache, positions)
            row = guess_logits(self.head, out[0, -1], self.target.config.vocabulary)
            if largest_probability(row) < self.sure:
                break
            q.append(distribution(row, sampling))
            guesses.append(int(rules.draw(q[-1], [random.random()])[0]))
            start, states, following = start + len(following), out[:, -1:], guesses[-1:]
        return Draft(tuple(guesses), np.stack(q)) if guesses else NO_DRAFT
