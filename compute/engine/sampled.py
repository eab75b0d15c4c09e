"""Many continuations at once under one sampling rule, with what each draw had to choose from.

Row for row the tokens of generate(): the same rule, the same uniform numbers. Only the sums inside a matrix product are
added in another order, so two candidates would have to lie within rounding of each other for a token to differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from compute import sampling as rules
from compute.engine.engine import Ask, Piece
from compute.engine.generate import check_request
from compute.engine.loader import Model
from compute.engine.model import KVCache, hidden_states, logits
from compute.engine.registry import shared
from compute.engine.running import Running, running
from compute.engine.served import ModelId, Sentence, circumstances
from compute.errors import Cancelled, LabError
from compute.sampling import GREEDY, Order, Sampling


@dataclass(frozen=True)
class Row:
    """One continuation; each tuple has an entry per token."""

    tokens: tuple[int, ...]
    entropy: tuple[float, ...]  # nats, of the distribution that the token was drawn from
    kept: tuple[int, ...]  # tokens that could have been drawn


def continue_rows(
    model: Model,
    prompts: Sequence[Sequence[int]],
    n: int,
    sampling: Sampling = GREEDY,
    seeds: Sequence[int] = (0,),
    *,
    stepped: Callable[[int], bool] = lambda step: False,
) -> list[Row]:
    """Continues every prompt by n tokens, past any end token; row i draws with seeds[i], as generate does.

    `stepped(step)` is told of each token; True ends the run there, with shorter rows.
    """
    for prompt in prompts:
        check_request(model, prompt, n)
    torch.set_num_threads(model.threads)
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    cache = KVCache(model.weights, len(prompts), int(lengths.max()) + n)
    randoms = [np.random.default_rng(seed) for seed in seeds]
    made = np.zeros((len(prompts), n), dtype=np.int64)
    entropy, kept = np.zeros((len(prompts), n)), np.ones((len(prompts), n), dtype=np.int64)
    rows, done = _prefill(model, prompts, lengths, cache), 0
    for step in range(n):
        if sampling.temperature == 0:
            made[:, step] = rows.argmax(-1).numpy()
        else:
            p = rules.probabilities(rows.numpy(), sampling)  # (B, V)
            made[:, step] = [rules.draw(row, [random.random()])[0] for row, random in zip(p, randoms)]
            entropy[:, step], kept[:, step] = rules.entropy(p), (p > 0).sum(-1)
        done = step + 1
        if stepped(step) or done == n:
            break
        rows = _next(model, torch.from_numpy(made[:, step, None]), (lengths + step)[:, None], cache)
    return [Row(tuple(made[i, :done].tolist()), tuple(entropy[i, :done].tolist()), tuple(kept[i, :done].tolist())) for i in range(len(prompts))]


def _prefill(model: Model, prompts: Sequence[Sequence[int]], lengths: Tensor, cache: KVCache) -> Tensor:
    """Logits (B, V) after each prompt. Shorter prompts are padded at their right, where no query looks before real tokens
    have taken the places."""
    padded = torch.zeros((len(prompts), int(lengths.max())), dtype=torch.long)
    for row, prompt in zip(padded, prompts):
        row[: len(prompt)] = torch.tensor(prompt)
    positions = torch.arange(padded.shape[1]).expand_as(padded)
    hidden = hidden_states(model.weights, padded, cache, positions)
    last = hidden[torch.arange(len(prompts)), lengths - 1]
    with torch.inference_mode():
        return logits(model.weights, last).cpu()


def _next(model: Model, tokens: Tensor, positions: Tensor, cache: KVCache) -> Tensor:
    with torch.inference_mode():
        return logits(model.weights, hidden_states(model.weights, tokens, cache, positions)[:, -1]).cpu()


# ---- what the service is asked


@dataclass(frozen=True)
class Text:
    """A continuation, as far as the model wrote it (an end token is not shown), and its measures."""

    seed: int
    text: str
    tokens: int
    repetition4: float
    distinct1: float
    distinct2: float
    entropy: float  # nats, mean over its draws
    kept: float  # mean over its draws


@dataclass(frozen=True)
class Continuations:
    text: str
    prompt_pieces: tuple[str, ...]
    logits: dict[str, list[float]]  # of the first token, by model, (V), to six decimals
    pieces: dict[int, str]  # of all tokens of small vocabularies, else of the likeliest
    sampling: dict[str, Any]
    continuations: tuple[Text, ...]
    conditions: dict[str, Any]


NAMED = 2048  # tokens whose text comes along


def sample_texts(
    model: ModelId = "mini-256",
    text: Sentence = "小明把苹果给了",
    temperature: Annotated[float, Field(ge=0, le=10)] = 1.0,
    top_k: Annotated[int, Field(ge=0, le=1_000_000, description="0: off")] = 0,
    top_p: Annotated[float, Field(gt=0, le=1, description="1: off")] = 1.0,
    min_p: Annotated[float, Field(ge=0, le=1, description="0: off")] = 0.0,
    order: Order = "transformers",
    count: Annotated[int, Field(ge=1, le=8, description="continuations; seeds seed, seed + 1, …")] = 4,
    new: Annotated[int, Field(ge=1, le=64, description="tokens each")] = 48,
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Continuations:
    """Continues a text several times under one sampling rule: the logits of its first token, the texts, and their measures."""
    loaded, rule = shared().get(model), Sampling(temperature, top_k, top_p, min_p, order)
    tokens = loaded.tokenizer.encode(text)
    check_request(loaded, tokens, new)
    count = 1 if temperature == 0 else count  # greedy writes one text

    def stepped(step: int) -> bool:
        report((step + 1) / new, f"{step + 1} / {new}")
        return cancelled()

    first = _first(loaded, tokens)
    seeds = range(seed, seed + count)
    ask = Ask(tuple(tokens), new, rule, seed, n=count, ignore_end=True, measured=True)
    rows = rows_of(running(model), ask, stepped, cancelled)
    named = first.topk(min(NAMED, len(first))).indices.tolist()
    return Continuations(
        text, tuple(map(loaded.tokenizer.piece, tokens)), {model: [round(x, 6) for x in first.tolist()]},
        {token: loaded.tokenizer.piece(token) for token in sorted(named)},
        {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "order": order, "seed": seed},
        tuple(described(loaded, row, s) for row, s in zip(rows, seeds)), circumstances(loaded) | {"new": new},
    )  # fmt: skip


LOOK_SECONDS = 0.5  # how often somebody who waits for a token asks whether it is still wanted


def rows_of(engine: Running, ask: Ask, stepped: Callable[[int], bool], cancelled: Callable[[], bool]) -> list[Row]:
    """The texts of a measured ask, written among everybody else's; `stepped` as in `continue_rows`. Raises Cancelled when it
    or `cancelled` says so, and whatever ends the request."""
    heard: SimpleQueue[Piece | LabError] = SimpleQueue()
    pieces: list[list[Piece]] = [[] for _ in range(ask.n)]
    request = engine.submit(ask, heard.put)
    try:
        for step in range(ask.max_new_tokens):
            while min(map(len, pieces)) <= step:
                try:
                    one = heard.get(timeout=LOOK_SECONDS)
                except Empty:
                    if cancelled():
                        raise Cancelled() from None
                    continue
                if isinstance(one, LabError):
                    raise one
                pieces[one.index].append(one)
            if stepped(step):
                raise Cancelled()
    finally:
        engine.cancel(request)
    return [Row(tuple(p.token for p in row), tuple(p.entropy for p in row), tuple(p.kept for p in row)) for row in pieces]


def _first(model: Model, tokens: Sequence[int]) -> Tensor:
    """Logits (V) after one prompt."""
    return _prefill(model, [tokens], torch.tensor([len(tokens)]), KVCache(model.weights, 1, len(tokens)))[0]


def described(model: Model, row: Row, seed: int) -> Text:
    """A row as text with its measures, up to its first end token."""
    ends = [i for i, token in enumerate(row.tokens) if token in model.config.stop_tokens]
    n = ends[0] if ends else len(row.tokens)
    tokens, drawn = row.tokens[:n], max(1, n + bool(ends))  # the end token was drawn as well
    return Text(
        seed, model.tokenizer.decode(tokens), n, rules.repetition(tokens, 4), rules.distinct(tokens, 1), rules.distinct(tokens, 2),
        float(np.mean(row.entropy[:drawn])), float(np.mean(row.kept[:drawn])),
    )  # fmt: skip
