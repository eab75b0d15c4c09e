"""Matrices that are read in their small format, by torch's products for a CPU.

The two weight-only products take bfloat16 activations (with float32 ones they fall back to loops that are ten times slower),
unpack a few weights at a time in registers, add up in float32 and round what comes out to bfloat16. A row's result is the same
to the bit, however many rows there are and however many threads. Logits of a quantized lm_head are bfloat16 numbers too, among
which the best two are equal now and then.

What these roundings add to a scheme's loss, against its restored weights in float32: 0.0002 ± 0.0004 nat/token (int4-g64) on 6,120
tokens for mini-256, 0.004 ± 0.003 (int4-g64-head8) on 1,533 for SmolLM2.

Elsewhere than on a CPU a quantized model computes with its restored weights: tinygemm, torch's 4-bit product for CUDA, wants
another packing, which was never run here and so is not offered.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from compute.engine.model import Linear, Matrix, Weights, with_matrices
from compute.quantize.grid import Quantized, Uniform

GROUPS = (32, 64, 128, 256)  # what the 4-bit kernel knows
ROWS = 16  # and its rows come in sixteens


@dataclass(frozen=True)
class Int8:
    """An int8 for each weight, a scale for each row."""

    codes: Tensor  # (out, in) int8
    scales: Tensor  # (out) bfloat16
    bias: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.codes.shape)

    @property
    def bytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes

    def product(self, x: Tensor) -> Tensor:
        """(rows, in) bfloat16 → (rows, out) bfloat16, without the bias."""
        return torch._weight_int8pack_mm(x, self.codes, self.scales)

    def __call__(self, x: Tensor) -> Tensor:
        return applied(self, x)


@dataclass(frozen=True)
class Int4:
    """Two weights in a byte, a scale and an offset for each group of a row."""

    packed: Tensor  # (out, in / 2) uint8, in the kernel's order
    group: int
    scales: Tensor  # (in / group, out, 2) bfloat16: scale, and what is added for each weight
    bias: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.packed.shape[0], 2 * self.packed.shape[1]

    @property
    def bytes(self) -> int:
        return self.packed.nbytes + self.scales.nbytes

    def product(self, x: Tensor) -> Tensor:
        """As Int8's."""
        return torch._weight_int4pack_mm_for_cpu(x, self.packed, self.group, self.scales)

    def __call__(self, x: Tensor) -> Tensor:
        return applied(self, x)


@dataclass(frozen=True)
class Half:
    """Weights in bfloat16, by columns: where a processor has no bfloat16 units, that is much the faster order for a few rows."""

    columns: Tensor  # (in, out) bfloat16
    bias: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.columns.shape[1], self.columns.shape[0]

    @property
    def bytes(self) -> int:
        return self.columns.nbytes

    def product(self, x: Tensor) -> Tensor:
        """As Int8's."""
        return torch.mm(x, self.columns)

    def __call__(self, x: Tensor) -> Tensor:
        return applied(self, x)


def applied(matrix: Int8 | Int4 | Half, x: Tensor) -> Tensor:
    """x (…, in) → (…, out) in x's dtype."""
    y = matrix.product(x.reshape(-1, x.shape[-1]).bfloat16()).to(x.dtype).view(*x.shape[:-1], -1)
    return y if matrix.bias is None else y + matrix.bias


def matrix(made: Quantized, bias: Tensor | None) -> Matrix | None:
    """On the CPU. None where no kernel reads this format."""
    numbers, block, (rows, width) = made.grid.numbers, made.grid.block, made.codes.shape
    if not isinstance(numbers, Uniform):
        return None
    if numbers == Uniform(8) and block == "channel":
        return Int8(torch.from_numpy(made.codes).to(torch.int8), torch.from_numpy(made.steps.scales[:, 0]).bfloat16(), bias)
    if numbers.bits == 4 and block in GROUPS and rows % ROWS == 0:
        middle = 8 if numbers.symmetric else 0
        codes = torch.from_numpy(made.codes).int() + middle  # the kernel restores (code − 8) · scale + offset
        scales = torch.from_numpy(made.steps.scales)
        offsets = torch.zeros_like(scales) if made.steps.zeros is None else (8 - torch.from_numpy(made.steps.zeros)) * scales
        packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
        return Int4(packed, block, torch.stack([scales, offsets], -1).transpose(0, 1).contiguous().bfloat16(), bias)
    return None


def halved(weights: Weights) -> Weights:
    """The same model with every matrix in bfloat16, on the CPU."""
    return with_matrices(weights, lambda name, matrix: half(matrix) if isinstance(matrix, Linear) else matrix)


def half(matrix: Linear) -> Half:
    return Half(matrix.weight.t().to(torch.bfloat16).contiguous(), matrix.bias)
