"""What the service and the stored results call: a model's name and plain values in, a plain record out."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Callable

from pydantic import Field

import torch

from compute.engine.generate import CacheRun, check_request, compare_cache
from compute.engine.loader import Model
from compute.engine.machine import conditions
from compute.engine.model import forward
from compute.engine.registry import shared
from compute.errors import BadInput, Cancelled

ModelId = Annotated[str, Field(min_length=1, max_length=80, description="a registered model")]
Sentence = Annotated[str, Field(min_length=1, max_length=200, description="the text to continue")]


@dataclass(frozen=True)
class KvComparison:
    model: str
    text: str
    prompt_pieces: tuple[str, ...]
    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    with_cache: CacheRun
    without_cache: CacheRun
    largest_logit_difference: float
    largest_logit: float
    equal: bool
    conditions: dict[str, Any]


def compare_kv(
    model: ModelId = "mini-256",
    text: Sentence = "小明把苹果给了",
    new: Annotated[int, Field(ge=1, le=64, description="tokens to generate")] = 12,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> KvComparison:
    """Continues a text greedily with the KV cache and without: tokens, logits, K/V computations and seconds of each step."""
    loaded, steps = shared().get(model), 0

    def stepped() -> bool:
        nonlocal steps
        steps += 1
        report(min(1.0, steps / (2 * new)), f"{steps} / {2 * new}")
        return cancelled()

    made = asdict(compare_cache(loaded, text, new, cancelled=stepped))
    if cancelled():
        raise Cancelled()
    return KvComparison(
        model, text, made["prompt_pieces"], made["with_cache"]["tokens"], made["pieces"], CacheRun(**made["with_cache"]),
        CacheRun(**made["without_cache"]), made["largest_logit_difference"], made["largest_logit"], made["equal"], circumstances(loaded),
    )  # fmt: skip


def circumstances(model: Model) -> dict[str, Any]:
    """What a measured result says about its model and machine."""
    dtype = str(model.weights.dtype).removeprefix("torch.")
    return conditions(model.weights.device) | {"model": model.name, "dtype": dtype, "threads": model.threads}


@dataclass(frozen=True)
class NextLogits:
    text: str
    prompt_pieces: tuple[str, ...]
    logits: dict[str, list[float]]  # by model, (V), to six decimals
    pieces: dict[int, str]  # of the likeliest tokens of each model
    conditions: dict[str, Any]


NAMED = 256  # tokens of each model whose text comes along


def next_logits(
    text: Sentence = "小明把苹果给了",
    models: Annotated[tuple[ModelId, ...], Field(min_length=1, max_length=3, description="the target first; one tokenizer")] = ("mini-256",),
    report: Callable[[float, str], None] = lambda fraction, note: None,
) -> NextLogits:
    """The logits of the next token over the full vocabulary, from a target and its drafts. Raises BadInput when the models
    do not share a vocabulary."""
    loaded = [shared().get(model) for model in models]
    target = loaded[0]
    tokens = target.tokenizer.encode(text)
    logits, named = {}, set()
    for index, model in enumerate(loaded):
        report(index / len(loaded), model.name)
        if model.config.vocabulary != target.config.vocabulary:
            raise BadInput("models", model.name, f"it does not share the vocabulary of {target.name}", f"它和 {target.name} 的词表不同")
        check_request(model, tokens, 1)
        torch.set_num_threads(model.threads)
        row = forward(model.weights, torch.tensor([tokens]), None, torch.arange(len(tokens))[None], last_only=True)[0, -1].cpu()
        logits[model.name] = [round(x, 6) for x in row.tolist()]
        named |= set(row.topk(min(NAMED, len(row))).indices.tolist())
    pieces = {token: target.tokenizer.piece(token) for token in sorted(named)}
    return NextLogits(text, tuple(map(target.tokenizer.piece, tokens)), logits, pieces, circumstances(target) | {"models": ", ".join(models)})
