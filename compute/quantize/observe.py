"""What flows into each matrix while a model reads calibration text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from compute.engine.model import MATRICES, Layer, Matrix, Weights, block, hidden_states, place, rotation, with_matrices
from compute.errors import BadInput

ROWS = 256  # inputs of a matrix that are kept as they were
TOKENS = 2048  # read at once

Texts = list[list[int]]
Change = Callable[[int, Layer, dict[str, "Inputs"]], Layer]


@dataclass(frozen=True)
class Inputs:
    """The inputs x of one matrix (out, in) over a calibration text, one x a token."""

    hessian: NDArray[np.float64] | None  # (in, in), 2/n Σ x xᵀ: of the squared output error, by a row of weights
    largest: NDArray[np.float32]  # (in), max |x|
    mean: NDArray[np.float32]  # (in), mean |x|
    sample: NDArray[np.float32]  # (rows ≤ ROWS, in), evenly over the text
    tokens: int


class Watch:
    """A matrix that keeps account of what it is given."""

    def __init__(self, matrix: Matrix, total: int, hessian: bool):
        width = matrix.shape[1]
        self.matrix, self.stride = matrix, -(-total // ROWS)
        self.products = torch.zeros(width, width, dtype=torch.float64) if hessian else None
        self.largest, self.sum = torch.zeros(width), torch.zeros(width, dtype=torch.float64)
        self.sample: list[Tensor] = []
        self.tokens = 0

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    @property
    def bytes(self) -> int:
        return self.matrix.bytes

    @property
    def bias(self) -> Tensor | None:
        return self.matrix.bias

    def __call__(self, x: Tensor) -> Tensor:
        self.see(x)
        return self.matrix(x)

    def see(self, x: Tensor) -> None:
        rows = x.reshape(-1, x.shape[-1]).float()
        if self.products is not None:
            self.products += (rows.T @ rows).cpu()
        magnitudes = rows.abs().cpu()
        self.largest = torch.maximum(self.largest, magnitudes.amax(0))
        self.sum += magnitudes.sum(0, dtype=torch.float64)
        self.sample.append(rows[-self.tokens % self.stride :: self.stride].cpu().clone())  # a view would keep all of them
        self.tokens += len(rows)

    def inputs(self) -> Inputs:
        hessian = None if self.products is None else (2 / self.tokens * self.products).numpy()
        return Inputs(hessian, self.largest.numpy(), (self.sum / self.tokens).float().numpy(), torch.cat(self.sample).numpy(), self.tokens)


@torch.inference_mode()
def observe(weights: Weights, texts: Texts, *, hessian: bool = True, check: Callable[[], None] = lambda: None) -> dict[str, Inputs]:
    """The inputs of every matrix, lm_head included, in one pass over the texts (token ids); names as `with_matrices` has them.
    `hessian` needs 8 · in² bytes a matrix. `check` is called between batches and may raise. Raises BadInput where there is no
    token, or a text longer than the model's context."""
    total, watches = checked(weights, texts), {}

    def watch(name: str, matrix: Matrix) -> Matrix:
        watches[name] = Watch(matrix, total, hessian)
        return watches[name]

    watched = with_matrices(weights, watch)
    for tokens in batches(texts):
        check()
        positions = torch.arange(tokens.shape[1]).expand_as(tokens)
        watches["head"].see(hidden_states(watched, tokens, None, positions))
    return {name: watch.inputs() for name, watch in watches.items()}


@torch.inference_mode()
def in_turn(weights: Weights, texts: Texts, change: Change, *, check: Callable[[], None] = lambda: None) -> Weights:
    """Each layer changed by change(number, layer, inputs of its matrices as qkv, out, gate_up, down), on the inputs that the
    layers before it give when changed already; its own four matrices are observed before any of them changes."""
    total, layers = checked(weights, texts), []
    held = [F.embedding(tokens.to(weights.device), weights.embedding) for tokens in batches(texts)]
    for number, layer in enumerate(weights.layers):
        watches = {name: Watch(getattr(layer, name), total, True) for name in MATRICES}
        for _ in _through(weights, replace(layer, **watches), number, held):
            check()
        layers.append(change(number, layer, {name: watch.inputs() for name, watch in watches.items()}))
        for at, x in enumerate(_through(weights, layers[-1], number, held)):
            held[at] = x
            check()
    return replace(weights, layers=tuple(layers))


def _through(weights: Weights, layer: Layer, number: int, held: list[Tensor]) -> Iterator[Tensor]:
    for x in held:
        here = place(torch.arange(x.shape[1]).expand(x.shape[:2]), weights.device)
        yield block(weights.config, layer, number, x, rotation(here.positions, weights.inverse_frequencies), None, here)


def checked(weights: Weights, texts: Texts) -> int:
    """Tokens in all."""
    total, context = sum(map(len, texts)), weights.config.context
    if not total:
        raise BadInput("calibration", 0, "there is no token to calibrate with", "校准文本里一个 token 也没有")
    if (longest := max(map(len, texts))) > context:
        raise BadInput("calibration", longest, f"a text is longer than the model's context of {context} tokens", f"有一段文本超过了模型的上下文 {context} 个 token")
    return total


def enough(inputs: Inputs) -> Inputs:
    """Raises BadInput where there were fewer inputs than channels: Σ x xᵀ is singular then, and what GPTQ asks of it is
    decided by damping instead of by text."""
    width = len(inputs.largest)
    if inputs.tokens < width:
        raise BadInput("calibration", f"{inputs.tokens} tokens", f"a matrix of {width} input channels needs at least {width} tokens of calibration text",
                       f"矩阵有 {width} 个输入通道，校准文本至少要 {width} 个 token")  # fmt: skip
    return inputs


def batches(texts: Texts) -> Iterator[Tensor]:
    """(B, T): texts of one length together, up to TOKENS at once."""
    lengths: dict[int, Texts] = defaultdict(list)
    for text in texts:
        if text:
            lengths[len(text)].append(text)
    for length, rows in lengths.items():
        size = max(1, TOKENS // length)
        for first in range(0, len(rows), size):
            yield torch.tensor(rows[first : first + size])
