"""Matrices that are read in their small format: torch's weight-only products. They take bfloat16 activations (with float32 ones
they fall back to loops that are ten times slower), unpack a few weights at a time in registers, and add up in float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from compute.engine.model import Matrix
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
        return self.codes.numel() + 2 * self.scales.numel()

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1]).bfloat16()
        y = torch.ops.aten._weight_int8pack_mm(flat, self.codes, self.scales).to(x.dtype).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True)
class Int4:
    """Two weights in a byte, a scale and an offset for each group of a row."""

    packed: Tensor  # (out, in / 2) uint8, in the kernel's order
    group: int
    scales: Tensor  # (in / group, out, 2) bfloat16: scale, and what zero stands for
    bias: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.packed.shape[0], 2 * self.packed.shape[1]

    @property
    def bytes(self) -> int:
        return self.packed.numel() + 2 * self.scales.numel()

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1]).bfloat16()
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(flat, self.packed, self.group, self.scales).to(x.dtype).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


def matrix(made: Quantized, bias: Tensor | None) -> Matrix | None:
    """None where no kernel reads this format."""
    numbers, block, (rows, width) = made.grid.numbers, made.grid.block, made.codes.shape
    if not isinstance(numbers, Uniform):
        return None
    if numbers == Uniform(8) and block == "channel":
        return Int8(torch.from_numpy(made.codes).to(torch.int8), torch.from_numpy(made.steps.scales[:, 0]).bfloat16(), bias)
    if numbers.bits == 4 and (block in GROUPS and width % block == 0) and rows % ROWS == 0:
        middle = 8 if numbers.symmetric else 0
        codes = torch.from_numpy(made.codes).int() + middle  # the kernel restores (code − 8) · scale + offset
        scales = torch.from_numpy(made.steps.scales)
        offsets = torch.zeros_like(scales) if made.steps.zeros is None else (8 - torch.from_numpy(made.steps.zeros)) * scales
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        return Int4(packed, block, torch.stack([scales, offsets], -1).transpose(0, 1).contiguous().bfloat16(), bias)
    return None
