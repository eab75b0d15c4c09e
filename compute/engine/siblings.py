"""Several texts from one prompt: independent samples, or the beams of a beam search.

Both are told the same way, step by step: which text of the step before each goes on from, and with which token. What this
means for the KV blocks is compute/sharing's to say. No text ends before its length: the end token is never chosen, so that
all stay equally long (vLLM calls it min_tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from compute import sampling as rules
from compute.engine.generate import check_request
from compute.engine.loader import Model
from compute.engine.model import KVCache, forward
from compute.engine.registry import shared
from compute.engine.served import Sentence, circumstances
from compute.errors import Cancelled
from compute.sampling import Floats, Sampling
from compute.sharing import Child

MODEL = "mini-256"
NEW = 16  # tokens of each text

Choose = Callable[[Floats], list[Child]]
"""From the log-probabilities (n, V) of the tokens after each of the n texts (1 text in the first step) to the next texts."""


def grow(model: Model, prompt: Sequence[int], n: int, new: int, choose: Choose, stepped: Callable[[int], bool] = lambda step: False) -> list[list[Child]]:
    """What `choose` took in each of `new` steps. `stepped(step)` is told of each; True ends the run there."""
    check_request(model, prompt, new)
    torch.set_num_threads(model.threads)
    cache = KVCache(model.weights, n, len(prompt) + new)
    tokens, steps = torch.tensor([list(prompt)] * n), []
    positions = torch.arange(len(prompt)).expand(n, -1)
    for step in range(new):
        rows = forward(model.weights, tokens, cache, positions, last_only=True)[:, -1].cpu().numpy().astype(np.float64)
        rows[:, list(model.config.stop_tokens)] = -np.inf
        rows = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)  # (n, V), nats
        steps.append(choose(rows if steps else rows[:1]))
        if stepped(step):
            break
        parents = torch.tensor([parent for parent, _ in steps[-1]])
        cache.data = cache.data[:, :, parents.to(cache.data.device)]
        tokens = torch.tensor([[token] for _, token in steps[-1]])
        positions = torch.full((n, 1), len(prompt) + step)
    return steps


def samples(seeds: Sequence[int], sampling: Sampling) -> Choose:
    """Text i is drawn with seeds[i], one uniform number a token, as generate() draws."""
    randoms = [np.random.default_rng(seed) for seed in seeds]

    def choose(rows: Floats) -> list[Child]:
        p = rules.probabilities(np.broadcast_to(rows, (len(seeds), rows.shape[1])), sampling)
        return [(i if len(rows) > 1 else 0, int(rules.draw(row, [random.random()])[0])) for i, (row, random) in enumerate(zip(p, randoms))]

    return choose


def beams(width: int) -> Choose:
    """The `width` likeliest texts among all that go on by one token; the sum of log-probabilities decides."""
    scores = np.zeros(1)

    def choose(rows: Floats) -> list[Child]:
        nonlocal scores
        total = (scores[:, None] + rows).ravel()
        best = np.argsort(-total, kind="stable")[:width]
        scores = total[best]
        return [divmod(int(at), rows.shape[1]) for at in best]

    return choose


# ---- what the service is asked


@dataclass(frozen=True)
class Siblings:
    mode: str
    text: str
    prompt: tuple[int, ...]
    steps: tuple[tuple[Child, ...], ...]
    pieces: dict[int, str]  # of every token in it
    conditions: dict[str, Any]


def siblings(
    mode: Literal["parallel", "beam"] = "parallel",
    text: Sentence = "小明把苹果给了",
    count: Annotated[int, Field(ge=2, le=16, description="samples, or beams")] = 4,
    seed: Annotated[int, Field(ge=0, le=2**31, description="parallel: sample i draws with seed + i")] = 0,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Siblings:
    """Continues a text several times by 16 tokens: samples at temperature 1, or a beam search; which text each step goes on
    from, and with which token."""
    model = shared().get(MODEL)
    prompt = model.tokenizer.encode(text)

    def stepped(step: int) -> bool:
        report((step + 1) / NEW, f"{step + 1} / {NEW}")
        return cancelled()

    choose = beams(count) if mode == "beam" else samples(range(seed, seed + count), Sampling())
    steps = grow(model, prompt, count, NEW, choose, stepped)
    if cancelled():
        raise Cancelled()
    pieces = {token: model.tokenizer.piece(token) for token in sorted({*prompt, *(token for step in steps for _, token in step)})}
    around = {"new": NEW} | ({"seed": seed, "temperature": 1.0} if mode == "parallel" else {"score": "sum of log-probabilities"})
    return Siblings(mode, text, tuple(prompt), tuple(map(tuple, steps)), pieces, circumstances(model) | around)
