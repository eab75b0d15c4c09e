"""Other weights, the same function: what a matrix's input channels are multiplied by is divided out where these inputs come from.
SmoothQuant, AWQ and the planted outliers are all this, with other factors.

    inputs of qkv, gate_up    from a norm                      its scale is divided
    inputs of out             weighted means of the values     the value rows of qkv (one for all query heads that share it)
    inputs of down            silu(gate) · up                  the up rows of gate_up

Nothing is stored that was not stored before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from compute.engine.model import Config, Layer, Linear, Weights

NORMED = ("qkv", "gate_up")
"""Matrices that a norm stands before."""


def rescaled(weights: Weights, factors: Mapping[str, NDArray]) -> Weights:
    """Columns of the named matrices multiplied by their factors (in), positive; of an out they must be `tied`. Exact but for
    rounding, and exactly so for powers of two."""
    layers = tuple(_layer(weights.config, layer, lambda matrix: factors.get(f"{n}.{matrix}")) for n, layer in enumerate(weights.layers))
    return replace(weights, layers=layers)


def _layer(config: Config, layer: Layer, factor: Callable[[str], NDArray | None]) -> Layer:
    values = config.kv_heads * config.head_dim
    if (s := factor("qkv")) is not None:
        layer = replace(layer, qkv=_columns(layer.qkv, s), attention_norm=layer.attention_norm / _like(s, layer.attention_norm))
    if (s := factor("out")) is not None:
        shared = s.reshape(config.kv_heads, -1, config.head_dim)[:, 0].ravel()
        layer = replace(layer, out=_columns(layer.out, s), qkv=_last_rows(layer.qkv, shared, values))
    if (s := factor("gate_up")) is not None:
        layer = replace(layer, gate_up=_columns(layer.gate_up, s), mlp_norm=layer.mlp_norm / _like(s, layer.mlp_norm))
    if (s := factor("down")) is not None:
        layer = replace(layer, down=_columns(layer.down, s), gate_up=_last_rows(layer.gate_up, s, config.intermediate))
    return layer


def tied(config: Config, per_channel: NDArray) -> NDArray:
    """Means over the query heads that share a value head, for the inputs of an out (H · D)."""
    shared = per_channel.reshape(config.kv_heads, -1, config.head_dim)
    return np.broadcast_to(shared.mean(1, keepdims=True), shared.shape).reshape(-1)


def _columns(matrix: Linear, s: NDArray) -> Linear:
    return _with(matrix, matrix.weight * _like(s, matrix.weight), matrix.bias)


def _last_rows(matrix: Linear, s: NDArray, count: int) -> Linear:
    divisor = _like(np.concatenate([np.ones(matrix.shape[0] - count), s]), matrix.weight)
    bias = None if matrix.bias is None else matrix.bias / divisor
    return _with(matrix, matrix.weight / divisor[:, None], bias)


def _with(matrix: Linear, weight: Tensor, bias: Tensor | None) -> Linear:
    from compute.engine.model import packed_matrix  # pages import this module, without torch

    made = replace(matrix, weight=weight, bias=bias, packed=None)
    return packed_matrix(made) if matrix.packed is not None else made


def _like(s: NDArray, tensor: Tensor) -> Tensor:
    return tensor.new_tensor(np.asarray(s, np.float32))
