"""Whole matrices on a grid, summed up for a picture: a row as it is, everything else added together band by band.

The weights are those of our checkpoints, read without torch, under the engine's names (0.qkv, 0.out, 0.gate_up, 0.down, …), or
4,096 × 4,096 draws from a normal distribution, which are never in memory all at once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from compute import facts
from compute.errors import BadInput, BrokenData, UnknownName
from compute.quantize.grid import Codes, Floats, Grid, Quantized, Steps, Uniform, encode, fit, quantize

CHECKPOINTS = Path(__file__).resolve().parents[2] / "data" / "checkpoints"
MODELS = ("mini-256", "mini-128", "mini-64")
LAYERS = 4
PARTS = {  # as compute/engine/loader.py joins them
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"), "down": ("mlp.down_proj",),
}  # fmt: skip
NAMES = tuple(f"{layer}.{part}" for layer in range(LAYERS) for part in PARTS)
SERVED = "smollm2-135m"  # whose weights come from the compute process (compute/quantize/sent.py)
DRAWN = "normal-4096"
DRAWN_SIZE, DRAWN_SPREAD = 4096, 0.02
MOST_CELLS = 48  # of a map, along either side


@dataclass(frozen=True)
class Source:
    """A matrix in bands of rows from above; band(i) → (rows of a band, width) float32, the same each time."""

    rows: int
    width: int
    bands: int
    band: Callable[[int], Floats]

    def row(self, row: int) -> Floats:
        """(1, width)"""
        deep = self.rows // self.bands
        return self.band(row // deep)[row % deep : row % deep + 1]

    def __iter__(self) -> Iterator[Floats]:
        return map(self.band, range(self.bands))


@lru_cache(8)
def source(model: str, matrix: str) -> Source:
    """Raises UnknownName, or BrokenData for a checkpoint that cannot be read. The drawn matrix has no other name than its own."""
    if model == DRAWN:
        bands = _cells(DRAWN_SIZE)
        return Source(DRAWN_SIZE, DRAWN_SIZE, bands, lambda i: _draw(i, DRAWN_SIZE // bands))
    if model not in MODELS:
        raise UnknownName("model", "模型", model, [*MODELS, DRAWN])
    if matrix not in NAMES:
        raise UnknownName("matrix", "矩阵", matrix, list(NAMES))
    return in_bands(_read(CHECKPOINTS / model / "model.safetensors", matrix))


def received(answer: Mapping[str, Any]) -> Source:
    """What compute/quantize/sent.py sent."""
    return in_bands(np.frombuffer(base64.b64decode(answer["float16"]), "<f2").astype(np.float32).reshape(answer["shape"]))


def rows(model: str, matrix: str) -> int:
    """How many the matrix has, by the model's published shape: also where the weights are not here."""
    if model == DRAWN:
        return DRAWN_SIZE
    c = facts.model(model).config
    heads = c["num_attention_heads"] + 2 * c["num_key_value_heads"]
    wide = {"qkv": heads * c.get("head_dim", c["hidden_size"] // c["num_attention_heads"]), "gate_up": 2 * c["intermediate_size"]}
    return wide.get(matrix.split(".")[1], c["hidden_size"])


def in_bands(weights: Floats) -> Source:
    """weights (out, in), already in memory."""
    rows, width = weights.shape
    bands = _cells(rows)
    return Source(rows, width, bands, lambda i: weights[i * rows // bands : (i + 1) * rows // bands])


def _draw(band: int, deep: int) -> Floats:
    return np.random.default_rng([0, band]).standard_normal((deep, DRAWN_SIZE), np.float32) * np.float32(DRAWN_SPREAD)


def _read(file: Path, matrix: str) -> Floats:
    """One matrix out of the mapped file, its parts one under the other: (out, in) float32."""
    layer, part = matrix.split(".")
    try:
        with safe_open(file, "np") as tensors:
            found = [tensors.get_tensor(f"model.layers.{layer}.{name}.weight") for name in PARTS[part]]
    except (OSError, SafetensorError) as e:
        raise BrokenData(file, str(e)) from None
    return np.concatenate(found).astype(np.float32, copy=False)


def _cells(size: int) -> int:
    """The most equal parts, up to MOST_CELLS, that a side can be divided into."""
    return max(n for n in range(1, MOST_CELLS + 1) if size % n == 0)


# ---- what a grid makes of them


@dataclass(frozen=True)
class Whole:
    """Of all weights of a matrix. relative_rms: √(Σ(ŵ − w)² / Σw²). codes: how many weights have each code, from the grid's
    smallest on. zeros: weights that were not 0 and are now. errors (up, across): the same √ of ratio for cells of the matrix, each
    over the whole matrix's mean square. worst: for each line of cells, its row with the largest error. peak: the largest of all
    rows' max |w| / RMS, peak_row where."""

    rows: int
    width: int
    bits: int
    relative_rms: float
    codes: tuple[int, ...]
    zeros: int
    errors: NDArray[np.float32]
    worst: tuple[int, ...]
    peak: float
    peak_row: int

    @property
    def weights(self) -> int:
        return self.rows * self.width

    @property
    def bits_per_weight(self) -> float:
        return self.bits / self.weights


@dataclass(frozen=True)
class Row:
    """One row (in,), with the scale and zero point that each weight has from its block. relative_rms, zeros: as of a whole
    matrix; peak: its max |w| / RMS, 0 for a row of zeros."""

    weights: Floats
    restored: Floats
    codes: Codes
    scales: Floats
    zero_points: Codes
    relative_rms: float
    zeros: int
    peak: float


def whole(source: Source, grid: Grid) -> Whole:
    """Adds up band by band: no more than a band is in memory twice. Raises BadInput for groups that do not fill a row."""
    steps, across = _common(source, grid), _cells(source.width)
    low, count = (grid.numbers.smallest, grid.numbers.levels) if isinstance(grid.numbers, Uniform) else (0, grid.numbers.levels)
    codes, zeros, square, errors, worst, peaks, bits = np.zeros(count, np.int64), 0, 0.0, [], [], [], 0
    for band in source:
        made = _onto(band, grid, steps)
        restored = made.restored()
        zeros += int(np.count_nonzero((restored == 0) & (band != 0)))
        codes += np.bincount((made.codes - low).ravel(), minlength=count)
        squares = np.square(band, dtype=np.float32).sum(1, dtype=np.float64)
        square += squares.sum()
        peaks.append(np.abs(band).max(1) / np.sqrt(np.maximum(squares / source.width, 1e-30)))
        restored -= band
        np.square(restored, out=restored)
        worst.append(len(worst) * len(band) + int(restored.sum(1).argmax()))
        errors.append(restored.sum(0, dtype=np.float64).reshape(across, -1).sum(1))
        bits += made.bits
    if grid.block == "tensor":
        bits -= (source.bands - 1) * (made.bits - band.size * grid.numbers.bits)  # what the matrix has once
    lost, peak = np.array(errors), np.concatenate(peaks)
    mean = square / (source.rows * source.width)
    cell = source.rows * source.width / lost.size
    return Whole(
        source.rows, source.width, bits, float(np.sqrt(lost.sum() / square)) if square else 0.0, tuple(codes.tolist()), zeros,
        np.sqrt(lost / cell / mean if mean else lost).astype(np.float32), tuple(worst), float(peak.max()), int(peak.argmax()),
    )  # fmt: skip


def row(source: Source, number: int, grid: Grid) -> Row:
    """The row as it lies in the quantized matrix. Raises BadInput where there is no such row."""
    if not 0 <= number < source.rows:
        raise BadInput("row", number, f"rows are numbered 0 to {source.rows - 1}", f"行号从 0 到 {source.rows - 1}")
    weights = source.row(number)
    made = _onto(weights, grid, _common(source, grid))
    restored, size = made.restored()[0], weights.size // made.steps.scales.shape[1]
    zeros = made.steps.zeros if made.steps.zeros is not None else np.zeros_like(made.steps.scales, np.int16)
    square = float(np.square(weights, dtype=np.float64).sum())
    return Row(
        weights[0], restored, made.codes[0], made.steps.scales[0].repeat(size), zeros[0].repeat(size),
        float(np.sqrt(np.square(restored - weights[0], dtype=np.float64).sum() / square)) if square else 0.0,
        int(np.count_nonzero((restored == 0) & (weights[0] != 0))), float(np.abs(weights).max() / np.sqrt(square / weights.size)) if square else 0.0,
    )  # fmt: skip


def _common(source: Source, grid: Grid) -> Steps | None:
    """The steps that all bands share, where the block is the tensor: those of its two extremes."""
    return fit(np.array([_extremes(source)], np.float32), grid) if grid.block == "tensor" else None


@lru_cache(16)
def _extremes(source: Source) -> tuple[float, float]:
    bands = [(float(band.min()), float(band.max())) for band in source]
    return min(low for low, _ in bands), max(high for _, high in bands)


def _onto(weights: Floats, grid: Grid, steps: Steps | None) -> Quantized:
    return quantize(weights, grid) if steps is None else Quantized(grid, encode(weights, steps, grid), steps)
