"""Numbers on a grid: each weight becomes a code of a few bits, each block of weights shares a scale.

    grid = Grid(Uniform(4), 32)              # 4-bit integers, a 16-bit scale for every 32 weights of a row
    made = quantize(weights, grid)           # codes and scales as they would be stored
    made.restored()                          # what the model then computes with
    made.bits_per_weight                     # 4.5: scales count

Matrices are (out, in): a row holds the weights of one output channel. Scales are rounded to the format in which they are
stored before anything is divided by them. NumPy only; float32 in and out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from compute.errors import BadInput

Floats = NDArray[np.float32]
Codes = NDArray[np.int16]
Block = Literal["tensor", "channel"] | int
"""Which weights share a scale: all of a matrix, a row, or so many neighbours in a row."""


# ---- what a code may say


@dataclass(frozen=True)
class Uniform:
    """Integers of `bits` bits. symmetric: −(2^(bits−1) − 1) … 2^(bits−1) − 1, so that zero stays zero and the range is
    max |w|. Otherwise 0 … 2^bits − 1 with a zero point, an integer too, and the range is min w … max w, zero included.
    Jacob et al. 2018, §2.1. Raises BadInput unless 2 ≤ bits ≤ 8."""

    bits: int
    symmetric: bool = True

    def __post_init__(self):
        if not 2 <= self.bits <= 8:
            raise BadInput("bits", self.bits, "a grid has 2 to 8 bits; one bit would leave a symmetric grid nothing but zero", "网格要 2 到 8 位；1 位的对称网格只剩下零")

    @property
    def largest(self) -> int:
        return 2 ** (self.bits - 1) - 1 if self.symmetric else 2**self.bits - 1

    @property
    def smallest(self) -> int:
        return -self.largest if self.symmetric else 0

    @property
    def levels(self) -> int:
        return self.largest - self.smallest + 1


@dataclass(frozen=True)
class Table:
    """A short format as the list of all its values, ascending. A code is an index into it; the scale maps the largest
    magnitude of a block onto the largest value."""

    name: str
    bits: int
    values: tuple[float, ...] = field(repr=False)

    @property
    def largest(self) -> float:
        return max(abs(self.values[0]), abs(self.values[-1]))

    @property
    def levels(self) -> int:
        return len(self.values)


Numbers = Uniform | Table


def _short_float(exponent: int, mantissa: int, most: float) -> tuple[float, ...]:
    """All finite values of a sign, `exponent` and `mantissa` bits, subnormals included, up to ±most."""
    bias, found = 2 ** (exponent - 1) - 1, set()
    for e in range(2**exponent):
        for m in range(2**mantissa):
            part = m / 2**mantissa
            value = part * 2.0 ** (1 - bias) if e == 0 else (1 + part) * 2.0 ** (e - bias)
            if value <= most:
                found |= {value, -value}
    return tuple(sorted(found))


E4M3 = Table("fp8-e4m3", 8, _short_float(4, 3, 448.0))
"""Finite numbers only, up to 448 (its 480 is not a number). Micikevicius et al. 2022, table 1."""
E5M2 = Table("fp8-e5m2", 8, _short_float(5, 2, 57344.0))
"""As IEEE formats: the largest exponent is infinity. The same table."""
E2M1 = Table("fp4-e2m1", 4, _short_float(2, 1, 6.0))
"""0, 0.5, 1, 1.5, 2, 3, 4, 6 with a sign. OCP Microscaling Formats 1.0, §5.3.3."""
NF4 = Table(
    "nf4", 4,
    (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
     0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)  # fmt: skip
"""Equally filled by a normal distribution, with a zero. Dettmers et al. 2023 (QLoRA), appendix E."""


# ---- how scales are stored


@dataclass(frozen=True)
class Scales:
    """The format of a block's scale. `bits` each; `tensor_bits`: one float32 a matrix, by which the scales are divided first
    (NVFP4), and 8-bit scales of scales for QLoRA's double quantization, 256 blocks to a float32 (`double`)."""

    name: Literal["float16", "float32", "e8m0", "e4m3", "double"]
    bits: int
    tensor_bits: int = 0


FLOAT16 = Scales("float16", 16)
FLOAT32 = Scales("float32", 32)
E8M0 = Scales("e8m0", 8)
"""A power of two, 2^−127 … 2^127. OCP Microscaling Formats 1.0, §5.4.1."""
E4M3_SCALES = Scales("e4m3", 8, 32)
"""NVFP4's: E4M3 for each block, over a float32 for the matrix."""
DOUBLE = Scales("double", 8, 32)
"""QLoRA §3: 8 bits a scale, their mean and, for every 256 of them, a float32."""
DOUBLE_BLOCK = 256


@dataclass(frozen=True)
class Grid:
    """How the weights of a matrix are stored."""

    numbers: Numbers
    block: Block
    scales: Scales = FLOAT16


def grouped(width: int, block: Block) -> int:
    """Weights of one row that share a scale. Raises BadInput where groups do not fill the row."""
    if block in ("tensor", "channel"):
        return width
    if not isinstance(block, int) or block < 1 or width % block:
        fits = [g for g in (16, 32, 64, 128, 256) if width % g == 0]
        raise BadInput(
            "group", block, f"it does not divide rows of {width} weights; {', '.join(map(str, fits)) or width} would",
            f"一行 {width} 个权重，分不成这样的组；可用：{'、'.join(map(str, fits)) or width}",
        )  # fmt: skip
    return block


# ---- there and back


@dataclass(frozen=True)
class Steps:
    """What the blocks of a matrix (out, in) share: scales (out, groups) of values that their format holds, zeros (out, groups) of
    an asymmetric grid. One row for all where the block is the tensor."""

    scales: Floats
    zeros: Codes | None = None


@dataclass(frozen=True)
class Quantized:
    """A matrix as stored. codes (out, in): integers of the grid, or places in its table."""

    grid: Grid
    codes: Codes
    steps: Steps

    def restored(self) -> Floats:
        """(out, in)"""
        return restore(self.codes, self.steps, self.grid)

    @property
    def bits(self) -> int:
        """All of it: codes, scales, zero points, and what a matrix has once."""
        return storage_bits(self.grid, *self.codes.shape)

    @property
    def bits_per_weight(self) -> float:
        return self.bits / self.codes.size


def storage_bits(grid: Grid, rows: int, width: int) -> int:
    """Bits that a matrix of this shape takes. A zero point takes as many as a weight. The two zeros of a floating-point format
    are two codes, so a table's code takes all its bits."""
    blocks = 1 if grid.block == "tensor" else rows * (width // grouped(width, grid.block))
    scales, once = grid.scales, grid.scales.tensor_bits
    if scales.name == "double":
        once = scales.tensor_bits * (1 + -(-blocks // DOUBLE_BLOCK))  # their mean, and a scale for every 256
    zeros = 0 if isinstance(grid.numbers, Table) or grid.numbers.symmetric else grid.numbers.bits
    return rows * width * grid.numbers.bits + blocks * (scales.bits + zeros) + once


def quantize(weights: Floats, grid: Grid) -> Quantized:
    """Round to nearest (RTN). weights (out, in). A block of zeros stays zeros. Raises BadInput for what is not finite, for
    groups that do not fill a row, and for scales beyond their format."""
    weights = checked(weights)
    steps = fit(weights, grid)
    return Quantized(grid, encode(weights, steps, grid), steps)


def checked(weights: Floats) -> Floats:
    """As float32 (out, in). Raises BadInput for NaN, infinities, nothing, or another number of dimensions."""
    weights = np.asarray(weights, np.float32)
    if weights.ndim != 2 or not weights.size:
        raise BadInput("weights", list(weights.shape), "a matrix (out, in) with at least one weight is needed", "需要至少含一个权重的矩阵 (out, in)")
    if len(bad := np.argwhere(~np.isfinite(weights))):
        row, column = map(int, bad[0])
        raise BadInput("weights", str(weights[row, column]), f"{len(bad)} of {weights.size:,} weights are not finite, the first in row {row}, column {column}",
                       f"{weights.size:,} 个权重里有 {len(bad)} 个不是有限的数，第一个在第 {row} 行第 {column} 列")  # fmt: skip
    return weights


def fit(weights: Floats, grid: Grid) -> Steps:
    """The scales at which no weight leaves the range: rows of blocks, each by its largest magnitude (or its range)."""
    blocks = _blocks(weights, grid.block)
    if isinstance(grid.numbers, Uniform) and not grid.numbers.symmetric:
        low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
        scales = stored_scales((high - low) / grid.numbers.largest, grid)
        zeros = np.rint(np.divide(-low, scales, out=np.zeros_like(low), where=scales > 0)).clip(0, grid.numbers.largest)
        return Steps(scales, zeros.astype(np.int16))
    return Steps(stored_scales(np.abs(blocks).max(-1) / np.float32(grid.numbers.largest), grid))


def encode(weights: Floats, steps: Steps, grid: Grid) -> Codes:
    """The code nearest to each weight; ties go to the even one. Beyond the range: the outermost."""
    blocks, scales = _blocks(weights, grid.block), steps.scales[..., None]
    scaled = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0)
    if isinstance(grid.numbers, Uniform):
        zeros = 0 if steps.zeros is None else steps.zeros[..., None]
        codes = (np.rint(scaled) + zeros).clip(grid.numbers.smallest, grid.numbers.largest)
    else:
        codes = nearest(scaled, grid.numbers)
    return codes.astype(np.int16).reshape(weights.shape)


def restore(codes: Codes, steps: Steps, grid: Grid) -> Floats:
    """(out, in) float32: (code − zero point) · scale, or table[code] · scale."""
    blocks = _blocks(codes, grid.block)
    if isinstance(grid.numbers, Uniform):
        values = (blocks - (0 if steps.zeros is None else steps.zeros[..., None])).astype(np.float32)
    else:
        values = np.array(grid.numbers.values, np.float32)[blocks]
    return (values * steps.scales[..., None]).reshape(codes.shape)


def nearest(values: Floats, table: Table) -> Codes:
    """Places of the nearest table values; halfway between two, the even place, which in a floating-point format is the even
    mantissa (a table with one zero has its even numbers at the places of zero's parity)."""
    points = np.array(table.values, np.float64)
    parity = int(np.searchsorted(points, 0.0)) % 2
    right = np.searchsorted(points, values).clip(1, len(points) - 1)
    below, above = values - points[right - 1], points[right] - values
    even_right = (right + parity) % 2 == 0
    return np.where((above < below) | ((above == below) & even_right), right, right - 1).astype(np.int16)


def stored_scales(scales: Floats, grid: Grid) -> Floats:
    """Rounded to the format in which they are kept. Raises BadInput where float16 cannot hold one."""
    kind = grid.scales.name
    if kind == "float32":
        return scales.astype(np.float32)
    if kind == "float16":
        if scales.max() > 65504:
            raise BadInput("weights", float(scales.max()), "its block's scale passes 65,504, the largest 16-bit float; use float32 scales", "这一块的缩放因子超过 16 位浮点数的上限 65,504；请改用 float32 的缩放因子")
        return scales.astype(np.float16).astype(np.float32)
    if kind == "e8m0":  # MX: 2^(floor(log2 max|w|) − the exponent of the format's largest value)
        largest = scales * np.float32(grid.numbers.largest)
        exponent = np.floor(np.log2(largest, out=np.full_like(largest, -127), where=largest > 0)) - np.floor(np.log2(grid.numbers.largest))
        return np.where(largest > 0, np.exp2(exponent.clip(-127, 127)), 0).astype(np.float32)
    if kind == "e4m3":
        whole = np.float32(scales.max() / E4M3.largest)
        if whole == 0:
            return scales
        return np.array(E4M3.values, np.float32)[nearest(scales / whole, E4M3)] * whole
    mean = np.float32(scales.mean())
    flat = (scales - mean).ravel()
    padded = np.pad(flat, (0, -len(flat) % DOUBLE_BLOCK)).reshape(-1, DOUBLE_BLOCK)
    inner = quantize(padded, Grid(Uniform(8), "channel", FLOAT32))
    return np.maximum(inner.restored().ravel()[: len(flat)].reshape(scales.shape) + mean, 0).astype(np.float32)


def _blocks(matrix: NDArray, block: Block) -> NDArray:
    """(out, in) → (out, groups, of a group); (1, 1, all) for a tensor."""
    rows, width = matrix.shape
    if block == "tensor":
        return matrix.reshape(1, 1, -1)
    return matrix.reshape(rows, -1, grouped(width, block))


# ---- packed


def pack(codes: Codes, numbers: Numbers) -> bytes:
    """The codes one after the other, `numbers.bits` bits each, lowest bit first; the last byte is filled with zeros."""
    bits = numbers.bits
    unsigned = codes.ravel().astype(np.int64) - (numbers.smallest if isinstance(numbers, Uniform) else 0)
    lanes = (unsigned[:, None] >> np.arange(bits)) & 1
    return np.packbits(lanes.astype(np.uint8).ravel(), bitorder="little").tobytes()


def unpack(data: bytes, numbers: Numbers, shape: tuple[int, int]) -> Codes:
    """What `pack` was given."""
    bits, count = numbers.bits, shape[0] * shape[1]
    lanes = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits, bitorder="little").reshape(count, bits)
    unsigned = (lanes.astype(np.int64) << np.arange(bits)).sum(-1)
    return (unsigned + (numbers.smallest if isinstance(numbers, Uniform) else 0)).astype(np.int16).reshape(shape)



# ---- keys and values


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bits: int = 16) -> float:
    """Bytes that the keys and values of one position take in all layers. Below 16 bits each head's key, and each head's value,
    has a float16 scale and a zero point of `bits` bits: what compute/quantize/kv.py stores."""
    vector = head_dim * bits + (16 + bits if bits < 16 else 0)
    return layers * kv_heads * 2 * vector / 8
