"""One request's way through a server on the anchor: tokens, a place, blocks, prefill, and the decode circle until it stops.

Every quantity comes from the formulas of the lessons (`roofline`, `kv`) and from the anchor's real tokenizer; times are ideal bounds.
The anchor itself is not run: the first token of the answer is the course's own convention, and the later ones are only counted.
Conventions: forward k of the answer (k = 1 is the prefill) writes token k; the step for token k reads k − 1 tokens of the answer, so
the last token is never fed back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from compute import facts, kv, roofline, tokenization
from compute.roofline import Batch, Decode, Prefill
from compute.tokenization import Token

Example = Literal["giving", "sentence"]
New = Annotated[int, Field(ge=2, le=100_000, description="tokens that the answer takes")]
Prefix = Annotated[int, Field(ge=0, le=200_000, description="tokens before the text, such as a system prompt")]
TEXTS: dict[Example, tuple[str, str]] = {"giving": ("小明把苹果给了", "小王"), "sentence": ("Tom gave the apple to", " Lucy")}
TOKENIZER = "qwen3.6"  # the anchor's vocabulary
BLOCK = 16  # tokens of a KV block, vLLM's default
GUESSES = 4  # tokens guessed a round, on the side road of speculation


@dataclass(frozen=True)
class Round:
    """One turn of the decode circle. writes: which token of the answer; context: tokens whose KV the step reads, its own included;
    clock: seconds since the prefill began, when the token is there; blocks: held after the step; opened: whether the step needed a
    new one."""

    writes: int
    context: int
    step: Decode
    kv_bytes: float
    clock: float
    blocks: int
    opened: bool


@dataclass(frozen=True)
class Reuse:
    """What the prefix cache would save when another request has read the same prompt: whole blocks only, and never the last token,
    whose logits are needed."""

    blocks: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Loop:
    """tokens, answer: of the text and of its first answer; prompt: tokens read in all; fits: requests of the final length on the card
    together. rounds: the first two turns of the circle and the last one."""

    model: str
    chip: str
    text: str
    tokens: tuple[Token, ...]
    answer: Token
    prefix: int
    new: int
    batch: int
    prompt: int
    fits: int
    free_bytes: float
    kv_per_token: float
    state_bytes: float
    weight_bytes: float
    head_bytes: float
    vocabulary: int
    blocks: int
    prefill: Prefill
    rounds: tuple[Round, ...]
    decode_seconds: float
    reuse: Reuse
    again_seconds: float  # reading everything once more, after a preemption at the very end
    swap_bytes: float

    @property
    def seconds(self) -> float:
        return self.prefill.seconds + self.decode_seconds

    @property
    def decode_share(self) -> float:
        return self.decode_seconds / self.seconds


def loop(example: Example = "giving", new: New = 1000, prefix: Prefix = 0, batch: Batch = 1) -> Loop:
    """The way of one request among `batch` alike, each of `new` tokens written after `prefix` + the example's tokens. Raises Refused
    when so many do not fit on the card at their final length."""
    names = facts.anchor()
    model, chip = names["model"], names["chip"]
    shape = facts.model(model)
    text, answer = TEXTS[example]
    tokens = tokenization.split(TOKENIZER, text, 1.0).tokens
    first = tokenization.split(TOKENIZER, answer, 1.0).tokens[0]
    n = prefix + len(tokens)
    last = n + new - 1
    steps = {writes: roofline.decode(model, chip, batch, n + writes - 1) for writes in sorted({2, min(3, new), new}, reverse=True)}  # the longest first: it may not fit
    prefill = roofline.prefill(model, chip, n)
    each = kv.per_token(model).bytes
    rounds = tuple(
        Round(
            writes, n + writes - 1, step, (n + writes - 1) * each, prefill.seconds + _decode_seconds(model, chip, batch, n, writes),
            blocks_for(n + writes - 1), blocks_for(n + writes - 1) > blocks_for(n + writes - 2),
        )
        for writes, step in sorted(steps.items())
    )  # fmt: skip
    room = kv.capacity(model, chip, last)
    return Loop(
        model, chip, text, tokens, first, prefix, new, batch, n, room.requests, room.free_bytes, each, shape.state_bytes, 2.0 * shape.parameters_per_token,
        2.0 * next(m.parameters for m in shape.matrices if m.name == "lm_head"), shape.config["vocab_size"], blocks_for(n), prefill, rounds,
        _decode_seconds(model, chip, batch, n, new), _reuse(model, chip, n), roofline.prefill(model, chip, last).seconds, last * each + shape.state_bytes,
    )  # fmt: skip


def blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK)


def _decode_seconds(model: str, chip: str, batch: int, prompt: int, writes: int) -> float:
    """Seconds of the steps that write tokens 2 … `writes`. Bytes and FLOPs of the anchor are straight lines in the context, so where the
    same wall binds at both ends the sum is count × mean of the ends."""
    count = writes - 1
    first, last = (roofline.decode(model, chip, batch, prompt + i) for i in (1, count))
    if first.bound == last.bound:
        return count * (first.step_seconds + last.step_seconds) / 2
    return sum(roofline.decode(model, chip, batch, prompt + i).step_seconds for i in range(1, writes))


def _reuse(model: str, chip: str, prompt: int) -> Reuse:
    blocks = (prompt - 1) // BLOCK
    whole = roofline.prefill(model, chip, prompt).seconds
    return Reuse(blocks, blocks * BLOCK, whole - _rest_seconds(model, chip, prompt, blocks * BLOCK))


def _rest_seconds(model: str, chip: str, prompt: int, found: int) -> float:
    """Reading the rest of a prompt behind `found` cached tokens: FLOPs of the whole less those of the part, one read of the weights and
    of the cached KV."""
    card = facts.chip(chip)
    if not found:
        return roofline.prefill(model, chip, prompt).seconds
    whole, part = roofline.prefill(model, chip, prompt), roofline.prefill(model, chip, found)
    bytes_ = whole.bytes  # the weights once, all of the KV once: what is cached is read, the rest is written
    return max(bytes_ / card.bandwidth_bytes_per_s, (whole.flops - part.flops) / card.peak)
