"""The guide: all that the anchor's memory hands over for one answer, and its quiz."""

from __future__ import annotations

from functools import cache

from compute import facts, roofline, speculative
from compute.claims.claim import claim, computed

PROMPT, ANSWER = 1000, 300  # lesson 5's example: a question of a thousand tokens, an answer of three hundred


# ---- one answer


@cache
def _moved() -> tuple[float, float]:
    """(all bytes, those of the weights) that one answer moves at the ideal bound, for a single reader.

    The prompt is read in one forward, which gives the first token; the forward after it has PROMPT + 1 tokens cached, and so on.
    """
    names = facts.anchor()
    forwards = [roofline.ledger(names["model"], names["chip"], "prefill", prompt=PROMPT)]
    forwards += [roofline.ledger(names["model"], names["chip"], "decode", context=PROMPT + i) for i in range(1, ANSWER)]
    return sum(f.bytes for f in forwards), sum(op.weight_bytes for f in forwards for op in f.ops)


@claim("guide.answer.bytes", "锚点读一千个 token、写三百个，一共要搬的字节（理想上界）", "bytes that the anchor moves to read a thousand tokens and write three hundred (ideal bound)")
def _():
    total, weights = _moved()
    return computed(total, "B", "Σ over 300 forwards: weights + KV + state", prompt=PROMPT, output=ANSWER, weights_bytes=weights)


@claim("guide.answer.weights_share", "其中权重占的份额", "share of the weights in it")
def _():
    total, weights = _moved()
    return computed(weights / total, "ratio", "300 × weights / all bytes", weights_bytes=weights, bytes=total)


# ---- the quiz

PARAMETERS, BANDWIDTH = 32e9, 1.6e12


@claim("guide.quiz.bound", "三百二十亿参数、一个参数一字节、带宽 1,600 GB/s：一个人用时的上限", "32 billion parameters at one byte each, 1,600 GB/s: the bound for a single reader")
def _():
    return computed(BANDWIDTH / PARAMETERS, "token/s", "bandwidth / (parameters × 1 B)", parameters=PARAMETERS, bandwidth=BANDWIDTH)


FREE, KV_PER_TOKEN, REALLY, RESERVED = 20e9, 100e3, 4_000, 32_000


@claim("guide.quiz.seats", "显存空 20 GB，一个 token 100 KB，每人实际 4,000 个 token：按需发放放得下几个", "20 GB free, 100 KB a token, 4,000 tokens really used: requests that fit when memory is handed out on demand")
def _():
    return computed(int(FREE // (KV_PER_TOKEN * REALLY)), "request", "⌊free / (KV per token × tokens)⌋", free=FREE, kv_per_token=KV_PER_TOKEN, tokens=REALLY)


@claim("guide.quiz.seats_reserved", "同样的卡，每人预留 32,000 个 token", "the same card when each request reserves 32,000 tokens")
def _():
    return computed(int(FREE // (KV_PER_TOKEN * RESERVED)), "request", "⌊free / (KV per token × reserved)⌋", free=FREE, kv_per_token=KV_PER_TOKEN, reserved=RESERVED)


GUESSES, SMALL, LARGE = 3, (0.6, 0.05), (0.9, 0.4)  # (α, c) of two drafts


@claim("guide.quiz.small_draft", "α = 0.6、c = 0.05、k = 3 的加速", "speed-up at α = 0.6, c = 0.05, k = 3")
def _():
    alpha, cost = SMALL
    return computed(speculative.speedup(alpha, GUESSES, cost), "×", "E / (1 + c·k)", alpha=alpha, k=GUESSES, c=cost)


@claim("guide.quiz.large_draft", "α = 0.9、c = 0.4、k = 3 的加速", "speed-up at α = 0.9, c = 0.4, k = 3")
def _():
    alpha, cost = LARGE
    return computed(speculative.speedup(alpha, GUESSES, cost), "×", "E / (1 + c·k)", alpha=alpha, k=GUESSES, c=cost)
