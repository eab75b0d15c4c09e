"""Speculative decoding: k guesses, one forward of the target over all of them, and the rule of compute/speculative.py.

Who guesses is a Drafter: a smaller model, a look-up in the text so far, or the MTP head (compute/engine/mtp.py). Nothing
is undone after a rejection: a cache slot belongs to a position, attention never looks beyond the position it stands at,
and the next forward writes over what the rejected guesses left.

"Identical under greedy decoding" means: the tokens that `generate` writes. It is a theorem for exact arithmetic. Here a
forward of k + 1 tokens adds in another order than k + 1 forwards of one, so in float32 logits differ by some 10⁻⁶ of the
largest, and two candidates closer than that may change places; in bfloat16 the difference is some 10⁻², and they do. The products
of a quantized model round activations to bfloat16: some 10⁻³.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from compute import sampling as rules
from compute.engine.generate import check_request
from compute.engine.loader import Model
from compute.engine.model import KVCache, forward, hidden_states, logits
from compute.engine.tokens import StopText, Stream
from compute.errors import BadInput
from compute.sampling import GREEDY, Floats, Sampling
from compute.speculative import Round, Rule, play_round


@dataclass(frozen=True)
class Draft:
    """At most k guesses, and q (guesses, V): the distributions that they were drawn from."""

    tokens: tuple[int, ...]
    q: Floats


class Drafter(Protocol):
    """Guesses how one text goes on. It belongs to one run, and finds out by itself how much of its last guesses was kept."""

    def draft(self, text: Sequence[int], hidden: Tensor, k: int, sampling: Sampling, random: np.random.Generator) -> Draft:
        """`text`: everything written so far. hidden (T, M): the target's last hidden states at the newest T positions that
        it has read, the last but one of the text being the newest."""


@dataclass(frozen=True)
class Turn:
    """One forward of the target. The first reads the prompt and has no guesses."""

    index: int
    played: Round
    guesses: tuple[int, ...]  # all of them, also those after the first rejection
    overlaps: tuple[float, ...]  # Σ min(p, q) at each guess
    tokens: tuple[int, ...]  # written: what was decided, up to the end of the text
    text: str  # what a reader sees arrive
    draft_seconds: float
    target_seconds: float  # forward and decision
    finish: Literal["", "stop", "length", "cancelled"] = ""


def speculate(
    target: Model,
    drafter: Drafter,
    tokens: Sequence[int],
    max_new_tokens: int,
    k: int,
    *,
    sampling: Sampling = GREEDY,
    seed: int = 0,
    stop: Sequence[str] = (),
    ignore_end: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
    rule: Rule = "correct",
    cache: KVCache | None = None,
) -> Iterator[Turn]:
    """Continues `tokens` as `generate` does, several tokens a forward. Every p and q went through `sampling`; `seed` decides
    guesses, acceptance and second draws. A shorter run is the beginning of a longer one with the same seed.

    Ends as `generate` does; `cancelled` is asked after each round. cache: the target's, made here unless given. Raises
    BadInput for what `generate` refuses, and for k < 1.
    """
    check_request(target, tokens, max_new_tokens)
    if k < 1:
        raise BadInput("k", k, "at least one guess a round is needed", "每轮至少猜 1 个")
    weights, context = target.weights, target.config.context
    cache = cache or KVCache(weights, 1, min(context, len(tokens) + max_new_tokens + k))
    random, stream, gate = np.random.default_rng(seed), Stream(), StopText(stop)
    text, left, hidden = list(tokens), max_new_tokens, None
    for index in count():
        began = time.perf_counter()
        draft = NO_DRAFT if hidden is None else drafter.draft(text, hidden, min(k, context - len(text)), sampling, random)
        drafted = time.perf_counter()
        read = 0 if hidden is None else len(text) - 1  # all but the last token; what was kept of the guesses included
        torch.set_num_threads(target.threads)
        new = torch.tensor([[*text[read:], *draft.tokens]])  # (1, T)
        states = hidden_states(weights, new, cache, torch.arange(read, read + new.shape[1])[None])[0]  # (T, M)
        p = distribution(logits(weights, states[-1 - len(draft.tokens) :]), sampling)  # (guesses + 1, V)
        played = play_round(p, draft.q, list(draft.tokens), random, rule)
        hidden = states[: len(states) - len(draft.tokens) + played.accepted]
        decided = time.perf_counter()

        ended, shown, written = False, "", []
        for token in played.tokens[:left]:
            written.append(token)
            ended = token in target.config.stop_tokens and not ignore_end
            shown += "" if ended else gate.push(stream.push(target.tokenizer.bytes_of(token)))
            ended = ended or gate.found
            if ended:
                break
        text, left = text + written, left - len(written)
        finish = "stop" if ended else "length" if not left else "cancelled" if cancelled() else ""
        if finish and not gate.found:
            shown += gate.push(stream.flush()) + gate.flush()
        overlaps = np.minimum(p[: len(draft.tokens)], draft.q).sum(-1) if draft.tokens else ()
        yield Turn(
            index, played, draft.tokens, tuple(map(float, overlaps)), tuple(written), shown, drafted - began, decided - drafted, finish
        )
        if finish:
            return


NO_DRAFT = Draft((), np.zeros((0, 0)))


def distribution(logits: Tensor, sampling: Sampling) -> Floats:
    """What is drawn from: logits (…, V) → (…, V) in float64. At temperature 0 all of it on the token that `generate` takes,
    without a softmax over the vocabulary."""
    logits = logits.cpu()
    if sampling.temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).double().numpy()
    return rules.probabilities(logits.numpy(), sampling)


# ---- who guesses


class ModelDraft:
    """A smaller model of the same vocabulary, with a cache of its own. It stops guessing where its likeliest token has less
    than the probability `sure`; that depends on q alone, so the rule stays exact."""

    def __init__(self, model: Model, capacity: int, sure: float = 0.0):
        self.model, self.sure, self.read = model, sure, []  # read: the tokens whose keys and values the cache holds
        self.cache = KVCache(model.weights, 1, min(capacity, model.config.context))

    def draft(self, text: Sequence[int], hidden: Tensor, k: int, sampling: Sampling, random: np.random.Generator) -> Draft:
        torch.set_num_threads(self.model.threads)
        kept = min(common(self.read, text), len(text) - 1)
        del self.read[kept:]
        room = self.model.config.context + 1 - len(text)  # its context may be shorter than the target's
        new, guesses, q = list(text[kept:]), [], []
        for _ in range(min(k, room)):
            row = self._after(new)
            if largest_probability(row) < self.sure:
                break
            q.append(distribution(row, sampling))
            guesses.append(int(rules.draw(q[-1], [random.random()])[0]))
            new = guesses[-1:]
        return Draft(tuple(guesses), np.stack(q)) if guesses else NO_DRAFT

    def _after(self, new: list[int]) -> Tensor:
        """Logits (V) of what follows, once the cache has read these too."""
        positions = torch.arange(len(self.read), len(self.read) + len(new))[None]
        self.read += new
        return forward(self.model.weights, torch.tensor([new]), self.cache, positions, last_only=True)[0, -1]


def largest_probability(logits: Tensor) -> float:
    """Of the softmax of logits (V), at temperature 1."""
    return float((logits.max() - logits.logsumexp(0)).exp())


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class Lookup:
    """Prompt lookup: where the last tokens stood before, the text may go on as it did there. No model; q is certain of the
    guess. Saxena 2023 ("prompt lookup decoding")."""

    def __init__(self, vocabulary: int, longest: int = 3, shortest: int = 1):
        self.vocabulary, self.longest, self.shortest = vocabulary, longest, shortest

    def draft(self, text: Sequence[int], hidden: Tensor, k: int, sampling: Sampling, random: np.random.Generator) -> Draft:
        start, copied = continuation(text, self.longest, self.shortest), list(text)
        if start is None or k < 1:
            return NO_DRAFT
        for at in range(start, start + k):
            copied.append(copied[at])  # may run into its own guesses: a loop goes on as a loop
        guesses = tuple(copied[len(text) :])
        return Draft(guesses, one_hot(guesses, self.vocabulary))


def one_hot(tokens: Sequence[int], vocabulary: int) -> Floats:
    q = np.zeros((len(tokens), vocabulary))
    q[np.arange(len(tokens)), tokens] = 1
    return q


class Either:
    """What the first drafter guesses; what the second does where the first has nothing to say. The second keeps up by itself:
    it reads what it missed when it is asked again."""

    def __init__(self, first: Drafter, second: Drafter):
        self.first, self.second = first, second

    def draft(self, text: Sequence[int], hidden: Tensor, k: int, sampling: Sampling, random: np.random.Generator) -> Draft:
        found = self.first.draft(text, hidden, k, sampling, random)
        return found if found.tokens else self.second.draft(text, hidden, k, sampling, random)


def continuation(text: Sequence[int], longest: int, shortest: int = 1) -> int | None:
    """Where to copy from: after the latest earlier place of the text's last n tokens, with the largest n from shortest to
    longest that has one."""
    for n in range(min(longest, len(text) - 1), shortest - 1, -1):
        ending = list(text[-n:])
        for start in range(len(text) - n - 1, -1, -1):
            if list(text[start : start + n]) == ending:
                return start + n
    return None


def same_vocabulary(target: Model, draft: Model) -> None:
    """Raises BadInput when the draft's token ids mean something else."""
    a, b = target.tokenizer.inner, draft.tokenizer.inner
    if target.config.vocabulary != draft.config.vocabulary or (a is not b and a.get_vocab() != b.get_vocab()):
        raise BadInput(
            "draft",
            draft.name,
            f"its vocabulary is not that of {target.name}, so its guesses mean other words; a draft shares the target's tokenizer",
            f"它的词表和 {target.name} 不同，同一个编号不是同一个词；草稿要和目标共用分词器",
        )


# ---- what it was worth


@dataclass(frozen=True)
class Tally:
    """Sums over the rounds of one or more runs; the prompts' own forwards are not rounds."""

    rounds: int  # forwards of the target
    tokens: int  # decided in them: accepted guesses and one more each
    drafted: int
    checked: int  # up to the first rejection of each round
    accepted: int
    overlap: float  # Σ min(p, q), summed over the checked; what follows a rejection stands in a text that is not written

    @property
    def tokens_per_forward(self) -> float:
        return self.tokens / self.rounds

    @property
    def acceptance(self) -> float:
        """α: mean of Σ min(p, q) over the checked guesses, 0 without any: what `accepted_share` fluctuates around."""
        return self.overlap / self.checked if self.checked else 0.0

    @property
    def accepted_share(self) -> float:
        """Of the guesses that were checked."""
        return self.accepted / self.checked if self.checked else 0.0


def tally(turns: Iterable[Turn]) -> Tally:
    rounds = [turn for turn in turns if turn.index]
    return Tally(
        rounds=len(rounds),
        tokens=sum(len(turn.played.tokens) for turn in rounds),
        drafted=sum(len(turn.guesses) for turn in rounds),
        checked=sum(len(turn.played.checks) for turn in rounds),
        accepted=sum(turn.played.accepted for turn in rounds),
        overlap=sum(sum(turn.overlaps[: len(turn.played.checks)]) for turn in rounds),
    )
