"""A model under a scheme.

    small = quantized(model, scheme("int4-g64"))                  # runs on kernels that read the small format, where there are
    exact = quantized(model, scheme("int4-g64"), kernels=False)   # the restored weights in the model's own dtype: what loss is measured on

Both come from the same codes and scales. A quantized model is called "mini-256:int4-g64", also by the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from compute.engine.loader import Model
from compute.engine.model import Linear, Matrix, Weights, with_matrices
from compute.errors import Cancelled
from compute.quantize import kernels as fast
from compute.quantize.grid import Grid, quantize
from compute.quantize.schemes import Scheme, Stored, stored

Report = Callable[[float, str], None]


def quantized(
    model: Model, scheme: Scheme, *, kernels: bool = True, report: Report = lambda fraction, note: None, cancelled: Callable[[], bool] = lambda: False
) -> Model:
    """Raises BadInput where a group does not divide a width or weights are not finite, and Cancelled between two matrices."""
    count = len(model.weights.matrices())
    done = 0

    def change(name: str, matrix: Matrix) -> Matrix:
        nonlocal done
        if cancelled():
            raise Cancelled()
        report(done / count, f"{scheme.id}: {name}")
        done += 1
        return changed(matrix, scheme.head if name == "head" else scheme.weights, kernels)

    return replace(model, name=f"{model.name}:{scheme.id}", weights=with_matrices(model.weights, change))


def changed(matrix: Linear, grid: Grid | None, kernels: bool) -> Matrix:
    if grid is None:
        return matrix
    made = quantize(plain(matrix.weight), grid)
    return (fast.matrix(made, matrix.bias) if kernels else None) or Linear(as_tensor(made.restored(), matrix.weight), matrix.bias)


def plain(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


def as_tensor(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like)


def stored_bytes(weights: Weights, scheme: Scheme) -> Stored:
    """What the scheme's storage takes on this model. Raises BadInput where groups do not divide a width."""
    *matrices, head = weights.matrices()
    return stored(scheme, [m.shape for m in matrices], head.shape)
