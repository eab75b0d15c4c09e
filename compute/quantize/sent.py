"""A matrix of a model that only the compute process has, sent to a page that quantizes it itself."""

from __future__ import annotations

import base64
import difflib
from dataclasses import dataclass
from typing import Any

import torch

from compute.engine.registry import shared
from compute.engine.served import ModelId, circumstances
from compute.errors import BadInput, UnknownName
from compute.quantize.matrices import PARTS
from compute.quantize.model import refuse_experts


@dataclass(frozen=True)
class Sent:
    """shape (out, in); float16: the weights row by row, 16-bit floats, little-endian, base64."""

    model: str
    matrix: str
    shape: tuple[int, int]
    float16: str
    conditions: dict[str, Any]


def matrix(model: ModelId = "smollm2-135m", matrix: str = "2.down") -> Sent:
    """The weights of one matrix (0.qkv, 0.out, 0.gate_up, 0.down, …) of a registered model, as 16-bit floats."""
    loaded = shared().get(model)
    refuse_experts(loaded)
    known = {f"{i}.{part}": getattr(layer, part) for i, layer in enumerate(loaded.weights.layers) for part in PARTS}
    if matrix not in known:
        raise UnknownName("matrix", "矩阵", matrix, difflib.get_close_matches(matrix, known, 5) or [*known][: len(PARTS)])
    weight = getattr(known[matrix], "weight", None)
    if weight is None:
        raise BadInput("model", model, "it is quantized already; name the model itself", "它已经量化过了；请写原来的模型名")
    short = weight.detach().to("cpu", torch.float16).contiguous().numpy().astype("<f2")
    return Sent(model, matrix, tuple(weight.shape), base64.b64encode(short.tobytes()).decode(), circumstances(loaded))
