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
from functools import cache
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
    if isinstance(block, bool) or not isinstance(block, int | np.integer) or block < 1 or width % block:
        fits = [str(size) for size in {2**k for k in range(1, 9)} | {width} if width % size == 0]
        fits.sort(key=int)
        raise BadInput(
            "group", block, f"a group of {block} does not divide rows of {width} weights; {', '.join(fits)} would",
            f"一行 {width} 个权重，分不成每组 {block} 个；可用：{'、'.join(fits)}",
        )  # fmt: skip
    return block


# ---- there and back


@dataclass(frozen=True)
class Steps:
    """What the blocks of a matrix (out, in) share: scales (out, groups) of values that their format holds, zeros (out, groups) of
    an asymmetric grid; (1, 1) where the block is the tensor. kept: the arrays in which the scales are stored (see `keep`)."""

    scales: Floats
    zeros: Codes | None = None
    kept: tuple[NDArray, ...] = ()


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
    if not (finite := np.isfinite(weights)).all():
        bad = np.argwhere(~finite)
        row, column = map(int, bad[0])
        raise BadInput("weights", str(weights[row, column]), f"{len(bad)} of {weights.size:,} weights are not finite, the first in row {row}, column {column}",
                       f"{weights.size:,} 个权重里有 {len(bad)} 个不是有限的数，第一个在第 {row} 行第 {column} 列")  # fmt: skip
    return weights


def fit(weights: Floats, grid: Grid) -> Steps:
    """The scales at which no weight leaves the range: of each block's largest magnitude, or of its range. Raises BadInput for
    groups that do not fill a row and for scales beyond their format."""
    blocks = _blocks(weights, grid.block)
    low, high = blocks.min(-1), blocks.max(-1)
    zeroed = isinstance(grid.numbers, Uniform) and not grid.numbers.symmetric
    if zeroed:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    reach = np.subtract(high, low, dtype=np.float64) if zeroed else np.maximum(high, -low).astype(np.float64)
    kept = keep(reach / grid.numbers.largest, grid)
    scales = opened(kept, grid)
    zeros = np.rint(-low / _divisor(scales)).clip(0, grid.numbers.largest).astype(np.int16) if zeroed else None
    return Steps(scales, zeros, kept)


def encode(weights: Floats, steps: Steps, grid: Grid) -> Codes:
    """The code nearest to each weight; ties go to the even one. Beyond the range: the outermost. Where the scale is 0: zero."""
    with np.errstate(over="ignore"):
        scaled = _blocks(weights, grid.block) / _divisor(steps.scales)[..., None]
    if isinstance(grid.numbers, Uniform):
        np.rint(scaled, out=scaled)
        if steps.zeros is not None:
            scaled += steps.zeros[..., None]
        codes = scaled.clip(grid.numbers.smallest, grid.numbers.largest, out=scaled).astype(np.int16)
    else:
        codes = nearest(scaled, grid.numbers)
    return codes.reshape(weights.shape)


def restore(codes: Codes, steps: Steps, grid: Grid) -> Floats:
    """(out, in) float32: (code − zero point) · scale, or table[code] · scale."""
    blocks = _blocks(codes, grid.block)
    if isinstance(grid.numbers, Uniform):
        values = (blocks if steps.zeros is None else blocks - steps.zeros[..., None]).astype(np.float32)
    else:
        values = np.array(grid.numbers.values, np.float32)[blocks]
    values *= steps.scales[..., None]
    return values.reshape(codes.shape)


def nearest(values: Floats, table: Table) -> Codes:
    """Places of the nearest table values; halfway between two, the even place, which in a floating-point format is the even
    mantissa (a table with one zero has its even numbers at the places of zero's parity)."""
    flat, borders = np.asarray(values, np.float32).ravel(), _borders(table)
    places = np.zeros(flat.size, np.int16)
    for start in range(0, flat.size, CHUNK):
        part, made = flat[start : start + CHUNK], places[start : start + CHUNK]
        for border in borders:
            made += part > border
    return places.reshape(np.shape(values))


CHUNK = 2**15  # numbers that stay in the processor's cache while they are compared with every border


@cache
def _borders(table: Table) -> Floats:
    """The largest float32 that still belongs to each value but the last."""
    points = np.array(table.values, np.float64)
    middles = (points[1:] + points[:-1]) / 2
    borders = middles.astype(np.float32)
    upward = (np.arange(1, len(points)) + np.searchsorted(points, 0.0)) % 2 == 0  # who lies in the middle goes to the even place
    return np.where((borders > middles) | ((borders == middles) & upward), np.nextafter(borders, np.float32(-np.inf)), borders)


def _divisor(scales: Floats) -> Floats:
    """What to divide by: a block whose scale is 0 holds nothing but zeros."""
    return np.where(scales > 0, scales, np.float32(np.inf))


def _blocks(matrix: NDArray, block: Block) -> NDArray:
    """(out, in) → (out, groups, of a group); (1, 1, all) for a tensor."""
    rows, width = matrix.shape
    if block == "tensor":
        return matrix.reshape(1, 1, -1)
    return matrix.reshape(rows, -1, grouped(width, block))


# ---- scales in their format


def keep(scales: NDArray[np.float64], grid: Grid) -> tuple[NDArray, ...]:
    """Exact scales (out, groups) → the arrays that are stored, the first of which has an entry for each block.

    float16 and float32 themselves. e8m0: exponent + 127, of 2^(floor(log2 max |w|) − the exponent of the table's largest value), as
    the OCP specification has it (§6.3): the largest weights of a block may lose up to a quarter. e4m3: places in its table, and the
    float32 that puts the matrix's largest scale at 448. double: int8, a float32 for every 256, and the mean of all.

    A float16 scale is the nearest one, but the one above where an outermost weight would lie beyond the range by more than
    the half step that rounding costs anyway (an asymmetric grid spends that on rounding its zero point). A scale too small for
    float16 or E4M3 becomes their smallest. Raises BadInput where float16 cannot hold one."""
    kind, numbers = grid.scales.name, grid.numbers
    if kind == "float32":
        return (scales.astype(np.float32),)
    if kind == "float16":
        if (most := float(scales.max())) > 65504:
            raise BadInput("weights", most, "its block's scale passes 65,504, the largest 16-bit float; use float32 scales", "这一块的缩放因子超过 16 位浮点数的上限 65,504；请改用 float32 的缩放因子")
        near = scales.astype(np.float16)
        room = 1 + 0.5 / numbers.largest if isinstance(numbers, Uniform) and numbers.symmetric else 1
        return (np.where(near.astype(np.float64) * room < scales, np.nextafter(near, np.float16(np.inf)), near),)
    if kind == "e8m0":
        largest = (scales * numbers.largest).astype(np.float32)
        exponents = np.frexp(largest)[1] - np.frexp(numbers.largest)[1]
        return (np.where(largest > 0, exponents + 127, 0).clip(0, 254).astype(np.uint8),)
    if kind == "e4m3":
        whole = np.float32(scales.max() / E4M3.largest)
        shares = scales / (whole or np.inf)
        places = nearest(shares, E4M3)
        zero = E4M3.values.index(0.0)
        return np.where(shares > 0, places.clip(zero + 1), zero).astype(np.uint8), whole[None]
    mean = np.float32(scales.mean())
    rest = (scales - mean).astype(np.float32).ravel()
    padded = np.pad(rest, (0, -rest.size % DOUBLE_BLOCK)).reshape(-1, DOUBLE_BLOCK)
    inner = quantize(padded, Grid(Uniform(8), "channel", FLOAT32))
    return inner.codes.astype(np.int8).ravel()[: rest.size].reshape(scales.shape), inner.steps.scales[:, 0], mean[None]


def opened(kept: tuple[NDArray, ...], grid: Grid) -> Floats:
    """The scales (out, groups) that the stored arrays stand for."""
    kind, first = grid.scales.name, kept[0]
    if kind == "e8m0":
        return np.ldexp(np.float32(1), first.astype(np.int32) - 127)
    if kind == "e4m3":
        return np.array(E4M3.values, np.float32)[first] * kept[1]
    if kind == "double":
        factors = kept[1].repeat(DOUBLE_BLOCK)[: first.size].reshape(first.shape)
        return np.maximum(first * factors + kept[2], 0)
    return first.astype(np.float32)


# ---- packed


def to_bytes(made: Quantized) -> bytes:
    """A matrix as it would lie in a file: scales, zero points, codes; each part begins with a byte of its own. Raises ValueError
    for scales that their format does not hold."""
    grid, steps = made.grid, made.steps
    kept = steps.kept or keep(steps.scales.astype(np.float64), grid)
    if not np.array_equal(opened(kept, grid), steps.scales):
        raise ValueError(f"these scales are not {grid.scales.name} numbers")
    parts = [array.tobytes() for array in kept]
    if steps.zeros is not None:
        parts.append(pack(steps.zeros, grid.numbers))
    return b"".join([*parts, pack(made.codes, grid.numbers)])


def from_bytes(data: bytes, grid: Grid, shape: tuple[int, int]) -> Quantized:
    """What `to_bytes` was given; shape (out, in)."""
    rows, width = shape
    groups = (1, 1) if grid.block == "tensor" else (rows, width // grouped(width, grid.block))
    blocks, start = groups[0] * groups[1], 0

    def take(dtype: str, count: int) -> NDArray:
        nonlocal start
        made = np.frombuffer(data, dtype, count, start)
        start += made.nbytes
        return made

    def codes(shape: tuple[int, int]) -> Codes:
        return unpack(take("uint8", -(-shape[0] * shape[1] * grid.numbers.bits // 8)).tobytes(), grid.numbers, shape)

    first, *once = _LAYOUT[grid.scales.name]
    kept = (take(first, blocks).reshape(groups), *(take(dtype, -(-blocks // per)) for dtype, per in once))
    zeros = codes(groups) if isinstance(grid.numbers, Uniform) and not grid.numbers.symmetric else None
    return Quantized(grid, codes(shape), Steps(opened(kept, grid), zeros, kept))


_WHOLE = 2**62  # blocks, of which a matrix never has more
_LAYOUT = {
    "float16": ["float16"],
    "float32": ["float32"],
    "e8m0": ["uint8"],
    "e4m3": ["uint8", ("float32", _WHOLE)],
    "double": ["int8", ("float32", DOUBLE_BLOCK), ("float32", _WHOLE)],
}
"""Of a block, then of so many blocks: what `keep` makes."""


def pack(codes: Codes, numbers: Numbers) -> bytes:
    """The codes one after the other, `numbers.bits` bits each, lowest bit first; the last byte is filled with zeros."""
    unsigned = (codes.ravel() - _lowest(numbers)).astype(np.uint8)
    lanes = np.unpackbits(unsigned[:, None], axis=1, count=numbers.bits, bitorder="little")
    return np.packbits(lanes.ravel(), bitorder="little").tobytes()


def unpack(data: bytes, numbers: Numbers, shape: tuple[int, int]) -> Codes:
    """What `pack` was given."""
    bits, count = numbers.bits, shape[0] * shape[1]
    lanes = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits, bitorder="little").reshape(count, bits)
    unsigned = np.packbits(lanes, axis=1, bitorder="little")
    return (unsigned.astype(np.int16) + _lowest(numbers)).reshape(shape)


def _lowest(numbers: Numbers) -> int:
    return numbers.smallest if isinstance(numbers, Uniform) else 0


# ---- keys and values


def kv_vector_bits(head_dim: int, bits: int) -> int:
    """Bits of the key, or of the value, of one head at one position: codes, a zero point of `bits` bits and a float16 scale, as
    compute/quantize/kv.py stores them."""
    return (head_dim + 1) * bits + 16
