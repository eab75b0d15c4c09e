"""A matrix of int8 codes that meets int8 activations: real integer products, for every token its own scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from compute.quantize.grid import Quantized

CUDA_ROWS = 32  # cuBLAS wants more than 16


@dataclass(frozen=True)
class Int8Both:
    """y = (codes(x) · codesᵀ) · scale(x) · scales + b; codes(x) = round(x / scale(x)), scale(x) = max |x| / 127 of a token. The
    sums are exact integers."""

    codes: Tensor  # (out, in) int8
    scales: Tensor  # (out) float32, of 16-bit values
    bias: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.codes.shape)

    @property
    def bytes(self) -> int:
        return self.codes.numel() + 2 * self.scales.numel()

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1]).float()
        scales = flat.abs().amax(-1, keepdim=True) / 127
        codes = (flat / scales.clamp_min(torch.finfo(torch.float32).tiny)).round().to(torch.int8)
        y = (integer_product(codes, self.codes).float() * scales * self.scales).to(x.dtype).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


def integer_product(x: Tensor, w: Tensor) -> Tensor:
    """x (rows, in) int8, w (out, in) int8 → (rows, out) int32, exact."""
    if x.device.type == "cpu":
        return torch._int_mm(x, w.t()) if cpu_adds_exactly() else in_floats(x, w)
    if x.device.type == "cuda" and not (w.shape[0] % 8 or w.shape[1] % 8):
        return torch._int_mm(F.pad(x, (0, 0, 0, -len(x) % CUDA_ROWS)), w.t())[: len(x)]
    return integer_product(x.cpu(), w.cpu()).to(x.device)


@cache
def cpu_adds_exactly() -> bool:
    """Without VNNI instructions oneDNN adds pairs of products in 16 bits, which cuts off what is larger."""
    largest = torch.full((8, 64), 127, dtype=torch.int8)
    return bool((torch._int_mm(largest, largest.t()) == 64 * 127**2).all())


def in_floats(x: Tensor, w: Tensor) -> Tensor:
    """The same, by float32 products that are short enough to be exact: 1024 · 127² < 2²⁴."""
    pieces = zip(x.split(1024, -1), w.split(1024, -1))
    return sum((a.float() @ b.float().t()).int() for a, b in pieces)


def matrix(made: Quantized, like: Tensor, bias: Tensor | None) -> Int8Both:
    """made: 8-bit symmetric integers, a scale for each row."""
    codes = torch.from_numpy(made.codes).to(like.device, torch.int8)
    return Int8Both(codes, torch.from_numpy(made.steps.scales[:, 0].copy()).to(like.device), bias)
