"""One sequence, token by token, with the KV cache or without.

What every cleverer engine must equal under greedy decoding.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from compute import sampling as rules
from compute.engine.loader import Model
from compute.engine.model import Cache, KVCache, forward
from compute.engine.tokens import StopText, Stream
from compute.errors import BadInput
from compute.sampling import GREEDY, Sampling


@dataclass(frozen=True)
class Step:
    """One generated token."""

    index: int
    token: int
    text: str  # what a reader sees arrive: "" while a character is incomplete
    logit: float
    logprob: float  # nats, of this token under the model itself: temperature 1, nothing cut
    seconds: float  # forward and choice; the first one includes the whole prompt
    kv_computed: int  # positions whose K and V were computed so far, recomputations counted (each in every layer)
    finish: Literal["", "stop", "length", "cancelled"] = ""


def generate(
    model: Model,
    tokens: Sequence[int],
    max_new_tokens: int,
    *,
    use_cache: bool = True,
    cache: Cache | None = None,
    sampling: Sampling = GREEDY,
    seed: int = 0,
    stop: Sequence[str] = (),
    ignore_end: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Step]:
    """Continues `tokens`, greedily unless `sampling` says otherwise; then `seed` decides, one uniform number a token.

    Ends with `finish` = stop (the model's end token, or a string of `stop`, neither of which is shown), length, or
    cancelled (`cancelled()` is asked after each token; threading.Event().is_set will do). `ignore_end` goes on past the
    end token. `cache`: an empty one with room for all of it, to use instead of a plain one (compute/quantize/kv.py).
    Raises BadInput for an empty or too long prompt, or a token outside the vocabulary.
    """
    check_request(model, tokens, max_new_tokens)
    stream, gate = Stream(), StopText(stop)
    random = np.random.default_rng(seed)

    def choose(logits: Tensor) -> int:
        return pick(logits, sampling, random)

    for index, (token, logits, seconds, computed) in enumerate(decode(model, tokens, max_new_tokens, choose, use_cache, cache)):
        ends = token in model.config.stop_tokens and not ignore_end
        text = "" if ends else gate.push(stream.push(model.tokenizer.bytes_of(token)))
        finish = "stop" if ends or gate.found else "length" if index == max_new_tokens - 1 else ""
        if not finish and cancelled():
            finish = "cancelled"
        if finish and not gate.found:
            text += gate.push(stream.flush()) + gate.flush()
        logit = float(logits[token])
        yield Step(index, token, text, logit, logit - float(logits.logsumexp(0)), seconds, computed, finish)
        if finish:
            return


def decode(
    model: Model, tokens: Sequence[int], n: int, choose: Callable[[Tensor], int], use_cache: bool, cache: Cache | None = None
) -> Iterator[tuple[int, Tensor, float, int]]:
    """The loop itself: (token, its logits (V) on the CPU, seconds, K/V positions computed so far), n times."""
    cache = cache or (KVCache(model.weights, 1, len(tokens) + n) if use_cache else None)
    written, computed = 0, 0  # positions that the cache holds; positions computed in all
    sequence = list(tokens)
    for _ in range(n):
        torch.set_num_threads(model.threads)  # torch keeps it per thread, and each step may be asked for by another one
        began = time.perf_counter()
        new = torch.tensor([sequence[written:]])  # (1, T): the whole prompt first, then one token with a cache
        positions = torch.arange(written, len(sequence))[None]
        logits = forward(model.weights, new, cache, positions, last_only=True)[0, -1].cpu()
        sequence.append(choose(logits))
        computed += new.shape[1]
        if cache:
            written += new.shape[1]
        yield sequence[-1], logits, time.perf_counter() - began, computed


def pick(logits: Tensor, sampling: Sampling, random: np.random.Generator) -> int:
    """The next token from its logits (V); greedy uses no random number."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    return int(rules.draw(rules.probabilities(logits.numpy(), sampling), [random.random()])[0])


def check_request(model: Model, tokens: Sequence[int], max_new_tokens: int) -> None:
    context, vocabulary = model.config.context, model.config.vocabulary
    if not tokens:
        raise BadInput("prompt", "", "it is empty; write at least one character", "不能为空，请至少写一个字")
    if outside := [token for token in tokens if not 0 <= token < vocabulary]:
        raise BadInput(
            "prompt", outside[0], f"token ids go from 0 to {vocabulary - 1}", f"token 编号应在 0 到 {vocabulary - 1} 之间"
        )
    if len(tokens) >= context:
        raise BadInput(
            "prompt", f"{len(tokens)} tokens", f"it leaves no room in the model's context of {context} tokens; shorten it",
            f"模型的上下文只有 {context} 个 token，放不下续写；请缩短",
        )  # fmt: skip
    if max_new_tokens < 1:
        raise BadInput("max_new_tokens", max_new_tokens, "it must be at least 1", "至少为 1")
    if len(tokens) + max_new_tokens > context:
        raise BadInput(
            "max_new_tokens",
            max_new_tokens,
            f"with {len(tokens)} prompt tokens it passes the model's context of {context}; shorten one of them",
            f"加上 {len(tokens)} 个提示 token 超过了模型的上下文 {context}，请缩短其一",
        )


@dataclass(frozen=True)
class CacheRun:
    """One way of generating; each tuple has an entry per generated token."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    kv_computed: tuple[int, ...]  # K/V positions computed in this step alone


@dataclass(frozen=True)
class CacheComparison:
    prompt: tuple[int, ...]
    prompt_pieces: tuple[str, ...]
    pieces: tuple[str, ...]  # of the tokens generated with the cache
    with_cache: CacheRun
    without_cache: CacheRun
    largest_logit_difference: float  # over the vocabulary and the steps up to the first different token
    largest_logit: float  # in absolute value, to judge the difference by
    equal: bool  # the same tokens both ways


def compare_cache(
    model: Model, prompt: str | Sequence[int], n: int, *, cancelled: Callable[[], bool] = lambda: False
) -> CacheComparison:
    """Greedy both ways on the same prompt, past any end token. The counts are exact; the seconds are of this machine,
    after one unmeasured token each way. When cancelled, compares the steps that were made."""
    tokens = model.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    check_request(model, tokens, n)

    def run(use_cache: bool, steps: int) -> tuple[CacheRun, list[Tensor]]:
        made, rows, before = [], [], 0
        for token, logits, seconds, computed in decode(model, tokens, steps, lambda row: int(row.argmax()), use_cache):
            made.append((token, seconds, computed - before))
            rows.append(logits)
            before = computed
            if cancelled():
                break
        return CacheRun(*map(tuple, zip(*made))), rows

    run(True, 1), run(False, 1)
    cached, cached_rows = run(True, n)
    plain, plain_rows = run(False, n)
    same = [a == b for a, b in zip(cached.tokens, plain.tokens)]
    until = same.index(False) + 1 if False in same else len(same)  # later logits follow different texts
    return CacheComparison(
        prompt=tuple(tokens),
        prompt_pieces=tuple(map(model.tokenizer.piece, tokens)),
        pieces=tuple(map(model.tokenizer.piece, cached.tokens)),
        with_cache=cached,
        without_cache=plain,
        largest_logit_difference=max(float((a - b).abs().max()) for a, b in zip(cached_rows[:until], plain_rows)),
        largest_logit=max(float(row.abs().max()) for row in plain_rows[:until]),
        equal=all(same),
    )
