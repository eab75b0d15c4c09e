"""What a scheme costs in loss: nats per token of the validation text with it and without, in pairs.

    cost("mini-256", "int4-g64").change      # Change(value=0.0316, low=0.0303, high=0.0330, …)

Every token of the text is predicted once, in windows of the training context that start without earlier context, as
compute/training/evaluate.py does it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional as F

from compute.engine import smollm2
from compute.engine.device import cores
from compute.engine.loader import Model
from compute.engine.model import Cache, Weights, hidden_states, logits
from compute.engine.registry import CHECKPOINTS, shared
from compute.engine.served import ModelId, circumstances
from compute.errors import BadInput, Cancelled
from compute.quantize import calibration
from compute.quantize.kv import KVRoundTrip
from compute.quantize.model import quantized, refuse_experts, stored_bytes
from compute.quantize.paired import TOGETHER, Change, Verdict, change, noise_floor, verdict
from compute.quantize.schemes import Scheme
from compute.quantize.schemes import scheme as named
from compute.training import mixture

CONTEXT = mixture.CONTEXT
ROWS = 8  # windows in a forward; more leave the processor's cache
SOURCES = {smollm2.ID: ("gnome-en", "electron-en")}
"""What a public model is measured on, where that is not everything."""
QUICK_WINDOWS, QUICK_WINDOWS_LARGE, LARGE = 96, 12, 50_000_000
DOMAIN_OF = {source: domain for domain, sources in mixture.DOMAINS.items() for source in sources}

Report = Callable[[float, str], None]
Domain = Literal["all", "modern", "stories", "classical", "english", "stories-en"]


def silent(fraction: float, note: str) -> None:
    """The report of a run that nobody watches."""


def never() -> bool:
    return False


# ---- the text


@dataclass(frozen=True)
class Text:
    """Windows of CONTEXT + 1 tokens, each overlapping the next by one, so that every token but a source's first is predicted
    once; a source's last window is shorter. tokens (N, CONTEXT + 1), filled up with zeros; counts (N): tokens predicted; sources
    (N)."""

    tokens: NDArray[np.int64]
    counts: NDArray[np.int64]
    sources: NDArray[np.str_]
    whole: bool = True

    @property
    def together(self) -> int:
        """Windows that are one unit of an interval: neighbours, where there are any."""
        return TOGETHER if self.whole else 1

    def some(self, windows: int) -> Text:
        """So many of them, evenly spread; all, where there are no more."""
        if len(self.counts) <= windows:
            return self
        kept = np.linspace(0, len(self.counts) - 1, windows).round().astype(int)
        return Text(self.tokens[kept], self.counts[kept], self.sources[kept], False)


def read_text(model: Model, domain: Domain = "all") -> Text:
    """The whole validation text of data/texts, or a domain of it; for a model that is not ours without what calibrates it, and
    only what SOURCES says. Raises BadInput where that is nothing."""
    calibrating = () if model.name in CHECKPOINTS else (calibration.OTHERS.stem,)
    names = [n for n in SOURCES.get(model.name, DOMAIN_OF) if n not in calibrating and domain in ("all", DOMAIN_OF[n])]
    if not names:
        raise BadInput("domain", domain, f"{model.name} is measured on English software help only", f"{model.name} 只在英文软件帮助上测")
    return cut({name: stream(model, mixture.read_text(name)) for name in names})


def stream(model: Model, documents: list[str]) -> NDArray[np.int64]:
    """(tokens): each document and what ends one, <|endoftext|> where the model's token 0 is that."""
    end = 0 if model.tokenizer.piece(0) == "<|endoftext|>" else (*model.config.stop_tokens, 0)[0]
    return np.array([token for text in documents for token in (*model.tokenizer.encode(text), end)])


def cut(streams: dict[str, NDArray[np.int64]]) -> Text:
    """Source → token ids (tokens). Raises BadInput where none predicts a token."""
    windows, counts, sources = [], [], []
    for name, ids in streams.items():
        for start in range(0, len(ids) - 1, CONTEXT):
            window = ids[start : start + CONTEXT + 1]
            windows.append(np.pad(window, (0, CONTEXT + 1 - len(window))))
            counts.append(len(window) - 1)
            sources.append(name)
    if not windows:
        raise BadInput("text", 0, "two tokens are needed for one to be predicted", "至少要两个 token，才有一个可预测")
    return Text(np.stack(windows), np.array(counts), np.array(sources))


# ---- the loss


def losses(weights: Weights, text: Text, cache: Cache | None = None, report: Report = silent, cancelled: Callable[[], bool] = never) -> NDArray[np.float64]:
    """(N): nats of each window, summed over its tokens. cache: what keys and values go through. Raises Cancelled between two
    forwards."""
    torch.set_num_threads(threads())
    found = np.zeros(len(text.counts))
    for first in range(0, len(found), ROWS):
        if cancelled():
            raise Cancelled()
        report(first / len(found), f"{first} / {len(found)}")
        tokens = torch.from_numpy(text.tokens[first : first + ROWS])
        states = hidden_states(weights, tokens[:, :-1], cache, torch.arange(CONTEXT).expand(len(tokens), -1))
        for row in range(len(tokens)):  # one window's logits at a time: with 49,152 words they take 50 MB
            found[first + row] = float(of_tokens(weights, states[row], tokens[row], int(text.counts[first + row])).sum())
    return found


def threads() -> int:
    """All cores, or as many as OMP_NUM_THREADS says, for a machine that has other work."""
    return int(os.environ.get("OMP_NUM_THREADS") or cores())


def of_tokens(weights: Weights, states: torch.Tensor, tokens: torch.Tensor, count: int) -> torch.Tensor:
    """(count) float64: nats of each token of a window. states (CONTEXT, M); tokens (CONTEXT + 1)"""
    target = tokens[1 : count + 1].to(states.device)
    return F.cross_entropy(logits(weights, states[:count]), target, reduction="none").double()


_own: dict[tuple[str, Domain, bool], tuple[Text, NDArray[np.float64]]] = {}  # what was read and lost before, by what was asked for


def unquantized(
    model: str, domain: Domain = "all", quick: bool = False, report: Report = silent, cancelled: Callable[[], bool] = never
) -> tuple[Text, NDArray[np.float64]]:
    """The text, or the quick part of it, and the model's own losses on it, computed once."""
    if (model, domain, quick) not in _own:
        loaded = shared().get(model)
        text = read_text(loaded, domain)
        if quick:
            text = text.some(QUICK_WINDOWS_LARGE if loaded.weights.parameters() > LARGE else QUICK_WINDOWS)
        _own[model, domain, quick] = text, losses(loaded.weights, text, None, report, cancelled)
    return _own[model, domain, quick]


# ---- a scheme


@dataclass(frozen=True)
class Cost:
    """A scheme's loss against the model's own, on the same windows. loss: the model's own, nats per token; change, and the
    change in each domain; windows: how many, of the whole text or not; bits_per_weight of the quantized matrices; bytes of all
    matrices, read for one token."""

    loss: float
    change: Change
    domains: dict[str, Change]
    windows: int
    whole: bool
    bits_per_weight: float
    bytes: float


def cost(model: str, scheme: str, domain: Domain = "all", quick: bool = False, report: Report = silent, cancelled: Callable[[], bool] = never) -> Cost:
    """Raises UnknownName, BadInput where the scheme's groups do not divide a width, the model has a scheme already or experts, or a
    loss is not finite, and Cancelled."""
    if ":" in model:
        raise BadInput("model", model, "it is quantized already; name the model and the scheme apart", "它已经量化过；请把模型和方案分开写")
    found, loaded = named(scheme), shared().get(model)
    refuse_experts(loaded)
    try:
        storage = stored_bytes(loaded.weights, found)
    except BadInput as error:
        raise error.about("scheme", scheme) from None
    text, before = unquantized(model, domain, quick, lambda part, note: report(0.4 * part, f"{model}: {note}"), cancelled)
    after = under(loaded, found, text, lambda part, note: report(0.4 + 0.6 * part, note), cancelled)
    for field, name, sums in (("model", model, before), ("scheme", scheme, after)):
        if not np.isfinite(sums).all():
            raise BadInput(field, name, "the loss is not a finite number", "损失不是有限的数")

    def on(mine: NDArray[np.bool_]) -> Change:
        return change(before[mine], after[mine], text.counts[mine], text.sources[mine], text.together)

    where = np.array([DOMAIN_OF[source] for source in text.sources])
    domains = {domain: on(where == domain) for domain in dict.fromkeys(where.tolist())}
    return Cost(float(before.sum() / text.counts.sum()), on(text.counts > 0), domains, len(before), text.whole, storage.bits_per_weight, storage.bytes)


def under(model: Model, scheme: Scheme, text: Text, report: Report = silent, cancelled: Callable[[], bool] = never) -> NDArray[np.float64]:
    """(N): the model's losses under the scheme."""
    small = quantized(model, scheme, kernels=False, report=lambda part, note: report(0.2 * part, note), cancelled=cancelled)
    cache = KVRoundTrip(scheme.kv, scheme.kv_group) if scheme.kv else None
    return losses(small.weights, text, cache, lambda part, note: report(0.2 + 0.8 * part, f"{scheme.id}: {note}"), cancelled)


@dataclass(frozen=True)
class Score:
    """A scheme measured now. floor: what another seed's training changes in mini-256's loss on all text, None for another
    model or a domain alone. verdict: how the change stands to zero and to the floor; None where it is measurable and no floor known."""

    model: str
    scheme: str
    domain: str
    cost: Cost
    floor: float | None
    verdict: Verdict | None
    seconds: float
    conditions: dict[str, Any]


def score(
    model: ModelId = "mini-256",
    scheme: Annotated[str, Field(min_length=1, max_length=40, description="a scheme of compute/quantize/schemes.py")] = "int4-g64",
    domain: Annotated[Domain, Field(description="which of the validation texts; another's model has english alone")] = "all",
    quick: Annotated[bool, Field(description="a part of the text, evenly spread: an answer in seconds, with a wider interval")] = True,
    report: Report = silent,
    cancelled: Callable[[], bool] = never,
) -> Score:
    """Quantizes a model under a scheme and compares its loss with the model's own, with a paired 95 % interval."""
    began = time.perf_counter()
    found = cost(model, scheme, domain, quick, report, cancelled)
    floor = noise_floor().value if (model, domain) == ("mini-256", "all") else None
    around = circumstances(shared().get(model)) | {"threads": threads(), "window_tokens": CONTEXT}
    judged = verdict(found.change, floor or 0.0)
    return Score(model, scheme, domain, found, floor, judged if floor is not None or judged == "none" else None, time.perf_counter() - began, around)
