"""mini-256 with its keys and values made from fewer numbers: low-rank (MLA's picture), or one head for all (MQA). And a cache that
holds nothing but the small vectors, which a model runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from compute import latent
from compute.engine.model import Linear, Matrix, Place, Weights, look, place, rotate, rotation, with_matrices


def with_keys_values(weights: Weights, made: Callable[[int], np.ndarray]) -> Weights:
    """Rows of K and V in each layer's qkv replaced by made(layer) (N, M)."""

    def change(name: str, matrix: Matrix) -> Matrix:
        layer, _, part = name.partition(".")
        if part != "qkv":
            return matrix
        rows = torch.from_numpy(np.ascontiguousarray(made(int(layer)))).to(matrix.weight)
        return Linear(torch.cat([matrix.weight[: -len(rows)], rows]), matrix.bias)

    return with_matrices(weights, change)


def low_rank(weights: Weights, rank: int, weighing: latent.Weighing = "activations") -> Weights:
    """W_up W_down in the place of W: the function that a cache of `rank` numbers a layer computes."""

    def made(layer: int) -> np.ndarray:
        found = latent.factors(layer, rank, weighing)
        return found.up @ found.down

    return with_keys_values(weights, made)


def pooled(weights: Weights) -> Weights:
    """All KV heads of a layer the mean of what they were."""
    return with_keys_values(weights, latent.pooled)


class LatentCache:
    """Holds c of every token, `rank` numbers a layer, before rotation; expands and rotates at each look. Positions are 0, 1, 2, …"""

    def __init__(self, weights: Weights, batch: int, capacity: int, rank: int):
        c = weights.config
        self.up: Sequence[Tensor] = [torch.from_numpy(latent.factors(i, rank).up.astype(np.float32)) for i in range(c.layers)]
        self.data = torch.zeros(c.layers, batch, capacity, rank, dtype=weights.dtype)
        self.shape, self.frequencies = (c.kv_heads, c.head_dim), weights.inverse_frequencies

    @property
    def bytes(self) -> int:
        return self.data.numel() * self.data.element_size()

    def place(self, positions: Tensor, device: torch.device) -> Place:
        return place(positions, device)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, here: Place) -> Tensor:
        """The engine hands over rotated keys; they are turned back before they are put into c. up has orthonormal columns, so
        c = upᵀ [K; V], which is W_down h."""
        B, T = keys.shape[:2]
        cos, sin = rotation(here.positions, self.frequencies)
        plain = rotate(keys, (cos, -sin))
        y = torch.cat([plain.reshape(B, T, -1), values.reshape(B, T, -1)], dim=-1)
        self.data[layer, :, here.start : here.reach] = y @ self.up[layer]
        again = self.data[layer, :, : here.reach] @ self.up[layer].T
        k, v = (half.reshape(B, here.reach, *self.shape) for half in again.chunk(2, dim=-1))
        k = rotate(k, rotation(torch.arange(here.reach).expand(B, -1), self.frequencies))
        return look(queries, k.transpose(1, 2), v.transpose(1, 2), here.mask, here.causal)
