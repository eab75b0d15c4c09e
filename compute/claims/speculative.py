"""Lesson 3: what a round of guesses is worth, and what a rule makes of two real distributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from compute import facts, roofline, speculative
from compute.claims.claim import claim, computed
from compute.quantity import Quantity
from compute.sampling import Floats

ALPHA, K, COST = 0.8, 4, 0.05  # the worked example of the textbook
LEAST_K, TOO_LONG = 1, 16
CONTEXT, FULL_BATCH = 4096, 58  # lesson 1's
TARGET = "mini-256"


# ---- checking, on lesson 1's anchor


def _decode(batch: int) -> roofline.Decode:
    names = facts.anchor()
    return roofline.decode(names["model"], names["chip"], batch=batch, context=CONTEXT)


@claim("speculative.anchor.check_seconds", "锚点一次前向验 4 个猜测的计算时间", "time to compute the anchor's forward over 4 guesses")
def _():
    one = _decode(1).compute_seconds
    return computed((K + 1) * one, "s", "(k + 1) × (2 × parameters + attention over 4096 tokens) / peak", k=K, one_token_seconds=one)


@claim("speculative.anchor.busy", "batch 58、每人猜 4 个时用到的算力（理想上界）", "share of the arithmetic in use at batch 58 with 4 guesses each (ideal bound)")
def _():
    step = _decode(FULL_BATCH)
    checking = (K + 1) * step.compute_seconds
    return computed(
        checking / max(checking, step.memory_seconds), "ratio", "(k + 1) × compute / max(that, memory)",
        k=K, compute_seconds=step.compute_seconds, memory_seconds=step.memory_seconds,
    )  # fmt: skip


# ---- the worked example, and other settings of the same formula


def _expected(alpha: float, k: int) -> Quantity:
    return computed(speculative.expected_tokens(alpha, k), "token", "(1 − α^(k+1)) / (1 − α)", alpha=alpha, k=k)


def _speedup(alpha: float, k: int, cost: float) -> Quantity:
    return computed(speculative.speedup(alpha, k, cost), "×", "E / (1 + c·k)", alpha=alpha, k=k, c=cost)


@claim("speculative.example.expected", "α = 0.8、k = 4 时，一轮平均写出的 token", "tokens a round writes on average at α = 0.8, k = 4")
def _():
    return _expected(ALPHA, K)


@claim("speculative.example.speedup", "α = 0.8、k = 4、c = 0.05 时的加速比", "speed-up at α = 0.8, k = 4, c = 0.05")
def _():
    return _speedup(ALPHA, K, COST)


@claim("speculative.example.best_k", "α = 0.8、c = 0.05 时最划算的 k", "the k that pays most at α = 0.8, c = 0.05")
def _():
    return computed(speculative.best_k(ALPHA, COST), "token", "argmax over k of E / (1 + c·k)", alpha=ALPHA, c=COST)


@claim("speculative.example.best_speedup", "α = 0.8、c = 0.05 时最大的加速比", "largest speed-up at α = 0.8, c = 0.05")
def _():
    return _speedup(ALPHA, speculative.best_k(ALPHA, COST), COST)


@claim("speculative.example.too_long", "α = 0.8、c = 0.05，一轮猜 16 个的加速比", "speed-up of 16 guesses a round at α = 0.8, c = 0.05")
def _():
    return _speedup(ALPHA, TOO_LONG, COST)


@claim("speculative.example.large_draft", "α = 0.9、k = 4、c = 0.5 的加速比", "speed-up at α = 0.9, k = 4, c = 0.5")
def _():
    return _speedup(0.9, K, 0.5)


@claim("speculative.example.weak_draft", "α = 0.3、k = 8、c = 0.2 的加速比", "speed-up at α = 0.3, k = 8, c = 0.2")
def _():
    return _speedup(0.3, 8, 0.2)


@claim("speculative.quiz.expected", "α = 0.6、k = 3 时，一轮平均写出的 token", "tokens a round writes on average at α = 0.6, k = 3")
def _():
    return _expected(0.6, 3)


QUIZ_P, QUIZ_Q = np.array([0.5, 0.3, 0.2]), np.array([0.8, 0.1, 0.1])


@claim("speculative.quiz.alpha", "三个候选的例子里收下的概率", "share accepted in the example with three candidates")
def _():
    return computed(speculative.acceptance(QUIZ_P, QUIZ_Q), "ratio", "Σ min(p, q)", p=QUIZ_P.tolist(), q=QUIZ_Q.tolist())


@claim("speculative.quiz.residual", "三个候选的例子里，被拒后补抽到乙的概率", "probability in the example that the second draw gives B")
def _():
    second = float(speculative.residual(QUIZ_P, QUIZ_Q)[1])
    return computed(second, "ratio", "(p − q)+ / Σ (p − q)+", p=QUIZ_P.tolist(), q=QUIZ_Q.tolist())


# ---- the formula beside published measurements


def _leviathan(draft: str) -> Quantity:
    paper = facts.papers()["leviathan"]
    return _speedup(paper[f"{draft}_alpha"]["value"], int(paper["ende_t0_guesses"]["value"]), paper[f"{draft}_cost"]["value"])


@claim("speculative.leviathan.small", "按公式，T5-small 打草稿的加速比", "speed-up by the formula with T5-small as the draft")
def _():
    return _leviathan("ende_t0")


@claim("speculative.leviathan.large", "按公式，T5-large 打草稿的加速比", "speed-up by the formula with T5-large as the draft")
def _():
    return _leviathan("ende_t0_large")


def _second_token(end: str) -> Quantity:
    return _expected(facts.papers()["deepseek_v3"]["mtp_acceptance"][end], LEAST_K)


@claim("speculative.deepseek_v3.least", "只猜一个、接受率取公布的下限，一次前向写出的 token", "tokens a forward writes with one guess, at the lower published acceptance")
def _():
    return _second_token("low")


@claim("speculative.deepseek_v3.most", "只猜一个、接受率取公布的上限，一次前向写出的 token", "tokens a forward writes with one guess, at the upper published acceptance")
def _():
    return _second_token("high")


# ---- our own drafts: sums over stored runs, and what counting parameters promises

OURS = ("mini-64", "mini-128")
GREEDY_DRAFTS, GREEDY_KS = (*OURS, "lookup", "mtp"), range(1, 9)


def _stored(key: str) -> dict[str, Any]:
    from compute import precompute  # the store of measures knows the claims

    return precompute.stored()[key]


def _greedy() -> list[dict[str, Any]]:
    return [_stored(f"drafting.{draft}.k{k}.t0.identical") for draft in GREEDY_DRAFTS for k in GREEDY_KS]


@claim("speculative.greedy.prompts", "比较贪心文本用的提示", "prompts on which greedy texts are compared")
def _():
    return computed(_greedy()[0]["n"], "prompt", "n of drafting.mini-64.k1.t0.identical", target=TARGET)


@claim("speculative.greedy.texts", "比较过的贪心文本", "greedy texts compared")
def _():
    return computed(sum(each["n"] for each in _greedy()), "count", "prompts × drafts × k", drafts=", ".join(GREEDY_DRAFTS), k="1 … 8", target=TARGET)


@claim("speculative.greedy.same", "与目标自己写的逐 token 相同的贪心文本", "greedy texts that are the target's own, token for token")
def _():
    return computed(sum(each["value"] for each in _greedy()), "count", "Σ drafting.….t0.identical", drafts=", ".join(GREEDY_DRAFTS), k="1 … 8", target=TARGET)


def _by_parameters(draft: str) -> Quantity:
    per_forward, cost = _stored(f"drafting.{draft}.k{K}.t0.tokens_per_forward")["value"], _stored(f"drafting.{draft}.cost_by_parameters")["value"]
    return computed(per_forward / (1 + cost * K), "×", "tokens per forward / (1 + c·k), c by parameters", tokens_per_forward=per_forward, c=cost, k=K, temperature=0)


for _draft in OURS:
    claim(f"speculative.{_draft}.by_parameters", f"{_draft} 起草、k = {K}、贪心，按参数量该有的加速比", f"speed-up promised by parameters, drafted by {_draft}, k = {K}, greedy")(
        lambda draft=_draft: _by_parameters(draft)
    )


# ---- the rule on two real distributions: mini-64 drafts for mini-256 after the running example

DRAFT, PROMPT = "mini-64", "giving"
OVER, UNDER = "小明", "小王"  # a token that the draft likes too much, and one that it likes too little
RUNS = 100_000


def _two() -> tuple[Floats, Floats, dict[str, int]]:
    """p and q (V) at temperature 1, nothing cut; ids of the two tokens."""
    from compute import distributions, sampling  # the store of measures knows the claims

    said = distributions.stored(PROMPT)
    p, q = (sampling.probabilities(said.logits[model], sampling.Sampling()) for model in (TARGET, DRAFT))
    ids = {piece: token for token, piece in said.pieces.items()}
    return p, q, {piece: ids[piece] for piece in (OVER, UNDER)}


def _of(piece: str) -> tuple[float, float]:
    p, q, ids = _two()
    return float(p[ids[piece]]), float(q[ids[piece]])


def _from_logits(value: float, unit: str, formula: str, **inputs) -> Quantity:
    return computed(value, unit, formula, text="小明把苹果给了", target=TARGET, draft=DRAFT, temperature=1.0, **inputs)


@claim("speculative.giving.equal_only", "“相同才收”收下的比例", "share accepted when a guess must equal the target's own draw")
def _():
    p, q, _ids = _two()
    return _from_logits(speculative.equal_only_acceptance(p, q), "ratio", "Σ p·q")


@claim("speculative.giving.refused", "正确的规则拒绝的比例", "share that the right rule rejects")
def _():
    p, q, _ids = _two()
    return _from_logits(1 - speculative.acceptance(p, q), "ratio", "1 − Σ min(p, q)")


@claim("speculative.giving.bias", "“拒绝后从 p 再抽”的输出离 p 的总变差", "total variation between p and the outcome of drawing from p after a rejection")
def _():
    p, q, _ids = _two()
    off = float(np.abs(speculative.output("resample-from-p", p, q) - p).sum() / 2)
    return _from_logits(off, "ratio", "½ Σ |min(p, q) + (1 − α)·p − p|", alpha=speculative.acceptance(p, q))


@claim("speculative.giving.chance", "直接从 p 抽十万次，平均也有的总变差", "total variation that 100,000 draws from p itself have on average")
def _():
    return _from_logits(speculative.total_variation_by_chance(_two()[0], RUNS), "ratio", "½ Σ E|X/n − p|, X ~ Bin(n, p)", n=RUNS)


@claim("speculative.giving.over.p", "目标给“小明”的概率", "probability that the target gives 小明")
def _():
    return _from_logits(_of(OVER)[0], "ratio", "p(小明)")


@claim("speculative.giving.over.q", "草稿给“小明”的概率", "probability that the draft gives 小明")
def _():
    return _from_logits(_of(OVER)[1], "ratio", "q(小明)")


@claim("speculative.giving.over.accepted", "猜“小明”时收下的概率", "probability that the guess 小明 is accepted")
def _():
    p, q = _of(OVER)
    return _from_logits(min(1, p / q), "ratio", "min(1, p/q)", p=p, q=q)


@claim("speculative.giving.under.p", "目标给“小王”的概率", "probability that the target gives 小王")
def _():
    return _from_logits(_of(UNDER)[0], "ratio", "p(小王)")


@claim("speculative.giving.under.q", "草稿给“小王”的概率", "probability that the draft gives 小王")
def _():
    return _from_logits(_of(UNDER)[1], "ratio", "q(小王)")


@claim("speculative.giving.under.missing", "“小王”还差的概率", "probability that 小王 still lacks")
def _():
    p, q = _of(UNDER)
    return _from_logits(p - q, "ratio", "p − q", p=p, q=q)


@claim("speculative.giving.under.residual", "补抽时抽中“小王”的概率", "probability that the second draw gives 小王")
def _():
    p, q, ids = _two()
    return _from_logits(float(speculative.residual(p, q)[ids[UNDER]]), "ratio", "(p − q)+ / (1 − α)", alpha=speculative.acceptance(p, q))


@claim("speculative.giving.under.biased", "从 p 再抽时，“小王”最后得到的概率", "what 小王 ends up with when the second draw is from p")
def _():
    p, q, ids = _two()
    return _from_logits(float(speculative.output("resample-from-p", p, q)[ids[UNDER]]), "ratio", "min(p, q) + (1 − α)·p")
