"""Which experts the routers of a model send each token to.

A router is a matrix like any other, so it is watched by putting one in its place that keeps what it says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compute.engine.generate import check_request
from compute.engine.loader import Model
from compute.engine.model import Matrix, Weights, forward, route
from compute.engine.registry import shared
from compute.engine.served import ModelId, Sentence, circumstances
from compute.errors import BadInput


class Watched:
    """A router that keeps its scores: seen, one (N, E) for each forward."""

    def __init__(self, router: Matrix):
        self.router, self.shape, self.bytes, self.bias = router, router.shape, router.bytes, router.bias
        self.seen: list[Tensor] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.seen.append(scores := self.router(x))
        return scores

    def said(self) -> NDArray[np.float32]:
        """All of them, (N, E)."""
        return torch.cat(self.seen).float().cpu().numpy()


def watched(weights: Weights) -> tuple[Weights, list[Watched]]:
    """The same model, and its routers, layer by layer. Raises BadInput where there are none."""
    routers = [Watched(layer.experts.router) for layer in weights.layers if layer.experts is not None]
    if not routers:
        raise BadInput("model", weights.config.architecture, "it has one MLP in each layer, and no router", "它每层只有一个 MLP，没有路由器")
    layers = tuple(replace(layer, experts=replace(layer.experts, router=router)) for layer, router in zip(weights.layers, routers))
    return replace(weights, layers=layers), routers


def scores(weights: Weights, tokens: Tensor) -> Tensor:
    """What every layer's router says about every token: (B, T) ids of whole sequences → (layers, B, T, E) float32."""
    seeing, routers = watched(weights)
    forward(seeing, tokens, None, torch.arange(tokens.shape[1]).expand_as(tokens), last_only=True)
    return torch.stack([router.seen[0].float().cpu().view(*tokens.shape, -1) for router in routers])


@dataclass(frozen=True)
class Route:
    """probabilities [layer][token][expert]: the router's softmax over all experts; experts and shares [layer][token]: the chosen ones, the
    likeliest first, and what their outputs are weighted with, adding up to 1; load [layer][expert]: tokens sent there."""

    model: str
    text: str
    pieces: tuple[str, ...]
    chosen: int
    probabilities: list[list[list[float]]]
    experts: list[list[list[int]]]
    shares: list[list[list[float]]]
    load: list[list[int]]
    conditions: dict[str, Any]


def routed(model: ModelId = "mini-moe", text: Sentence = "小明把苹果给了小红。", report: Callable[[float, str], None] = lambda fraction, note: None) -> Route:
    """For each token of a text and each layer: what the router says of every expert, which ones it chooses, with which shares. Raises
    BadInput for a model without experts."""
    report(0.0, model)
    try:
        return of_text(shared().get(model), text)
    except BadInput as error:
        raise error.about("model", model) if error.values["field"] == "model" else error from None


def of_text(model: Model, text: str) -> Route:
    tokens = model.tokenizer.encode(text)
    check_request(model, tokens, 1)
    torch.set_num_threads(model.threads)
    said = scores(model.weights, torch.tensor([tokens]))[:, 0]  # (layers, T, E)
    layers, _, experts = said.shape
    chosen, shares = route(said.flatten(0, 1), model.config.chosen)
    chosen = chosen.view(layers, -1, model.config.chosen)
    load = [torch.bincount(layer.flatten(), minlength=experts).tolist() for layer in chosen]
    pieces = tuple(map(model.tokenizer.piece, tokens))
    return Route(model.name, text, pieces, model.config.chosen, rounded(said.softmax(-1)), chosen.tolist(), rounded(shares.view_as(chosen)), load, circumstances(model))


def rounded(values: Tensor) -> Any:
    """Nested lists to six decimals."""
    return values.double().mul(1e6).round().div(1e6).tolist()
