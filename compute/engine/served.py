"""What the service and the stored results call: a model's name and plain values in, a plain record out."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Callable

from pydantic import Field

from compute.engine.generate import CacheRun, compare_cache
from compute.engine.machine import conditions
from compute.engine.registry import shared
from compute.errors import Cancelled

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
    around = conditions(loaded.weights.device) | {"model": model, "dtype": str(loaded.weights.dtype).removeprefix("torch.")}
    return KvComparison(
        model, text, made["prompt_pieces"], made["with_cache"]["tokens"], made["pieces"], CacheRun(**made["with_cache"]),
        CacheRun(**made["without_cache"]), made["largest_logit_difference"], made["largest_logit"], made["equal"], around | {"threads": loaded.threads},
    )  # fmt: skip
