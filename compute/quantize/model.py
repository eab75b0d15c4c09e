"""A model under a scheme.

    small = quantized(model, scheme("int4-g64"))                  # runs on kernels that read the small format, where there are
    exact = quantized(model, scheme("int4-g64"), kernels=False)   # the restored weights in the model's own dtype: what loss is measured on

Both come from the same codes and scales; W8A8 computes with integers in both. A quantized model is called "mini-256:int4-g64",
also by the registry. A scheme of the KV cache changes no weights.

What calibration sees: GPTQ quantizes layer by layer, and a layer looks at what the layers before it give when quantized already,
as the paper's code does; its own four matrices are observed before any of them changes. AWQ and SmoothQuant look at the model
as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
import torch
from torch import Tensor

from compute.engine.device import threads_for
from compute.engine.loader import Model
from compute.engine.model import MATRICES, Layer, Linear, Matrix, Weights, packed_matrix, with_matrices
from compute.errors import BadInput, Cancelled
from compute.quantize import awq, calibration, outliers, smooth, w8a8
from compute.quantize import kernels as fast
from compute.quantize.gptq import gptq
from compute.quantize.grid import Quantized, quantize
from compute.quantize.observe import Inputs, Texts, batches, enough, in_turn, observe
from compute.quantize.rescale import NORMED, rescaled, tied
from compute.quantize.schemes import Scheme, Stored, stored

Report = Callable[[float, str], None]
Tell = Callable[..., None]
"""tell(name of the matrix that is next), or tell() inside of it and between two batches: one step more, or Cancelled."""
Factors = dict[str, np.ndarray]


def quantized(
    model: Model, scheme: Scheme, *, kernels: bool = True, texts: Texts | None = None,
    report: Report = lambda fraction, note: None, cancelled: Callable[[], bool] = lambda: False,
) -> Model:  # fmt: skip
    """texts: token ids to calibrate with, else those of compute/quantize/calibration.py; most schemes read none.

    Raises BadInput where a group does not divide a width, weights are not finite, the calibration text is too short or the model has
    experts, and Cancelled between two matrices or two batches of calibration text."""
    refuse_experts(model)
    if texts is None and (scheme.method != "rtn" or scheme.smooth is not None):
        texts = calibration.texts(model.name, model.tokenizer)
    total, done, now = step_count(model.weights, scheme, texts), count(), "calibration"

    def tell(name: str = "") -> None:
        nonlocal now
        if cancelled():
            raise Cancelled()
        now = name or now
        report(next(done) / total, f"{scheme.id}: {now}")

    kernels = kernels and model.weights.device.type == "cpu"
    weights = _weights(model.weights, scheme, kernels, texts, tell)
    return replace(model, name=f"{model.name}:{scheme.id}", weights=weights, threads=threads_for(weights.bytes_per_decoded_token()))


def refuse_experts(model: Model) -> None:
    """An expert sees the tokens that are sent to it alone; calibration and the count of bytes here know one MLP a layer."""
    if (experts := model.config.experts) > 1:
        raise BadInput("model", model.name, f"it has {experts} experts in a layer, and only models without experts are quantized here",
                       f"它每层有 {experts} 个专家，这里只量化没有专家的模型")  # fmt: skip


def step_count(weights: Weights, scheme: Scheme, texts: Texts | None) -> int:
    """How often `tell` is called."""
    layers, read = len(weights.layers), len(list(batches(texts))) if texts else 0
    of = {"rtn": 0, "gptq": 2 * layers * read, "awq": read + layers * len(MATRICES) * (1 + awq.POINTS)}
    return len(weights.matrices()) + of[scheme.method] + (read if scheme.smooth is not None else 0)


def _weights(weights: Weights, scheme: Scheme, kernels: bool, texts: Texts | None, tell: Tell) -> Weights:
    if scheme.cast:
        made = cast(weights, getattr(torch, scheme.cast), tell)
        return fast.halved(made) if kernels and scheme.cast == "bfloat16" else made
    if scheme.planted:
        weights = outliers.plant(weights)
    if scheme.smooth is not None:
        weights = rescaled(weights, smoothing(weights, texts, scheme.smooth, tell))
    if scheme.method == "awq":
        weights = rescaled(weights, awq_scales(weights, texts, scheme, tell))

    compensated = gptq_codes(weights, texts, scheme, tell) if scheme.method == "gptq" else {}

    def change(name: str, matrix: Linear) -> Matrix:
        grid = scheme.head if name == "head" else scheme.weights
        if name not in compensated:
            tell(name)
        return held(matrix, compensated.get(name) or quantize(plain(matrix.weight), grid)) if grid else matrix

    def held(matrix: Linear, made: Quantized) -> Matrix:
        if scheme.activations:
            return w8a8.matrix(made, matrix.weight, matrix.bias)
        return (fast.matrix(made, matrix.bias) if kernels else None) or with_weight(matrix, made.restored())

    return with_matrices(weights, change)


def gptq_codes(weights: Weights, texts: Texts, scheme: Scheme, tell: Tell = lambda name="": None) -> dict[str, Quantized]:
    """Of every matrix of the layers, by name. What a layer looks at comes from restored weights in the model's own dtype,
    whichever kernels will read the codes."""
    found: dict[str, Quantized] = {}

    def change(number: int, layer: Layer, inputs: dict[str, Inputs]) -> Layer:
        def compensated(name: str, matrix: Linear) -> Linear:
            tell(f"{number}.{name}")
            made = gptq(plain(matrix.weight), enough(inputs[name]).hessian, scheme.weights, act_order=scheme.act_order)
            found[f"{number}.{name}"] = made
            return with_weight(matrix, made.restored())

        return replace(layer, **{name: compensated(name, getattr(layer, name)) for name in MATRICES})

    in_turn(weights, texts, change, check=tell)
    return found


def cast(weights: Weights, dtype: torch.dtype, tell: Tell = lambda name: None) -> Weights:
    """Every matrix and the embedding rounded to `dtype`, kept and computed with in the model's own."""

    def rounded(name: str, matrix: Linear) -> Linear:
        tell(name)
        return with_weight(matrix, plain(matrix.weight.to(dtype)))

    return with_matrices(replace(weights, embedding=weights.embedding.to(dtype).to(weights.dtype)), rounded)


def awq_scales(weights: Weights, texts: Texts, scheme: Scheme, tell: Tell = lambda name="": None) -> Factors:
    """Of every matrix of the layers, by name (in)."""
    seen = observe(weights, texts, hessian=False, check=tell)

    def search(name: str, matrix: Linear) -> np.ndarray:
        tell(name)
        mean = tied(weights.config, seen[name].mean) if name.endswith(".out") else seen[name].mean
        return awq.search(plain(matrix.weight), mean, seen[name].sample, scheme.weights, check=tell).scales

    return {name: search(name, matrix) for name, matrix in named(weights, MATRICES)}


def smoothing(weights: Weights, texts: Texts, alpha: float, tell: Tell = lambda name="": None) -> Factors:
    """Of the matrices that a norm stands before, as in the paper (§4), by name (in)."""
    seen = observe(weights, texts, hessian=False, check=tell)
    return {name: smooth.factors(seen[name].largest, plain(matrix.weight), alpha) for name, matrix in named(weights, NORMED)}


def named(weights: Weights, names: tuple[str, ...]) -> list[tuple[str, Linear]]:
    return [(f"{number}.{name}", getattr(layer, name)) for number, layer in enumerate(weights.layers) for name in names]


def with_weight(matrix: Linear, weight: np.ndarray) -> Linear:
    """In the same dtype, on the same device, and packed where it was."""
    made = Linear(torch.from_numpy(np.ascontiguousarray(weight)).to(matrix.weight), matrix.bias)
    return packed_matrix(made) if matrix.packed is not None else made


def plain(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


def stored_bytes(weights: Weights, scheme: Scheme) -> Stored:
    """What the scheme's storage takes on this model. Raises BadInput where groups do not divide a width."""
    *matrices, head = weights.matrices()
    return stored(scheme, [m.shape for m in matrices], head.shape)
