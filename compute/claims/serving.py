"""Lesson 5: what a target leaves of a full batch, four requests judged by hand, a long prompt among readers, queues in closed form,
and the anchor on the calibrated clock."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from compute import calibrated, facts, judged, kv, roofline
from compute.calibrated import Clock, Error
from compute.claims.claim import claim, computed
from compute.quantity import Quantity
from compute.serving.queues import md1_mean, md1_p99, mm1_mean, mm1_p99

CONTEXT, FULL_BATCH = 4096, 58  # lesson 1's
LONG = 32_768  # tokens of the prompt that comes in between


def _anchor() -> dict[str, str]:
    names = facts.anchor()
    return {"model": names["model"], "chip": names["chip"]}


@cache
def _ideal() -> Clock:
    return calibrated.ideal(**_anchor())


# ---- what a full batch is to one reader, and what a target leaves of it

TPOT_TARGET = 0.020  # seconds a token, of the example


@claim("serving.each.batch58", "batch 58 时，每个读者每秒得到的 token", "tokens a second for each reader at batch 58")
def _():
    step = roofline.decode(**_anchor(), batch=FULL_BATCH, context=CONTEXT).step_seconds
    return computed(1 / step, "token/s", "1 / step", batch=FULL_BATCH, context=CONTEXT, step_seconds=step)


@claim("serving.target.tpot", "例子里对每个 token 时间的要求", "target for the time per token in the example")
def _():
    return computed(TPOT_TARGET, "s", "setting of the example")


def _within_target() -> int:
    batches = np.arange(1, FULL_BATCH + 1)
    return int(batches[_ideal().step(batches, CONTEXT * batches) <= TPOT_TARGET][-1])


@claim("serving.target.batch", "守住这个要求，一起写的请求至多几个", "requests that may write together within that target")
def _():
    return computed(
        _within_target(), "request", "largest batch with (weights + batch × (4096 × KV + 2 × state)) / bandwidth ≤ target",
        target_seconds=TPOT_TARGET, context=CONTEXT,
    )  # fmt: skip


@claim("serving.target.tokens_per_second", "守住这个要求时的总吞吐", "total throughput within that target")
def _():
    batch = _within_target()
    step = float(_ideal().step(batch, CONTEXT * batch))
    return computed(batch / step, "token/s", "batch / step", batch=batch, step_seconds=step)


@claim("serving.target.share", "守住这个要求时的总吞吐，占坐满时的", "throughput within the target, of that with every seat taken")
def _():
    batch = _within_target()
    kept = batch / float(_ideal().step(batch, CONTEXT * batch))
    full = roofline.decode(**_anchor(), batch=FULL_BATCH, context=CONTEXT).tokens_per_second
    return computed(kept / full, "ratio", "throughput within the target / throughput at batch 58", within=kept, full=full)


# ---- from the question to the last word

PROMPT, ANSWER = 1000, 300


@cache
def _alone() -> tuple[float, float]:
    """(first token, the others) of an answer that the anchor writes for a single reader, seconds at the ideal bound."""
    line = calibrated.line(_ideal(), 1, PROMPT, ANSWER)
    return line.first_token_seconds, sum(line.step_seconds)


@claim("serving.answer.first", "锚点独自回答的例子：首 token 时间", "the anchor answering a single reader: time to the first token")
def _():
    return computed(_alone()[0], "s", "time to read the prompt", prompt=PROMPT)


@claim("serving.answer.all", "同一个例子：从提问到最后一个 token", "the same: from the question to the last token")
def _():
    first, others = _alone()
    return computed(first + others, "s", "first token + Σ steps of the others", prompt=PROMPT, output=ANSWER, first=first, others=others)


@claim("serving.answer.first_share", "同一个例子：首 token 时间占全部的", "the same: the first token's share of the whole")
def _():
    first, others = _alone()
    return computed(first / (first + others), "ratio", "first token / whole", first=first, whole=first + others)


@claim("serving.quiz.end_to_end", "TTFT 0.5 秒、TPOT 40 毫秒、251 个 token 的回答，端到端", "end to end with a TTFT of 0.5 s, a TPOT of 40 ms and an answer of 251 tokens")
def _():
    return computed(0.5 + 250 * 0.040, "s", "TTFT + (n − 1) × TPOT", ttft=0.5, tpot=0.040, n=251)


# ---- requests judged by hand: (TTFT, TPOT) in seconds

REQUESTS, SECONDS = ((0.4, 0.030), (0.6, 0.080), (2.1, 0.025), (0.9, 0.045)), 10.0
QUIZ_REQUESTS, QUIZ_SECONDS = ((0.3, 0.035), (0.8, 0.055), (1.4, 0.030), (0.7, 0.048), (0.2, 0.020)), 5.0
TTFT_LIMIT, TPOT_LIMIT = 1.0, 0.050


def _good(requests: tuple[tuple[float, float], ...]) -> int:
    return sum(ttft <= TTFT_LIMIT and tpot <= TPOT_LIMIT for ttft, tpot in requests)


def _written(requests: tuple[tuple[float, float], ...]) -> str:
    return "; ".join(f"{ttft:g} s, {1000 * tpot:g} ms" for ttft, tpot in requests)


@claim("serving.example.ttft_limit", "例子里对首 token 时间的要求", "target for the time to the first token in the example")
def _():
    return computed(TTFT_LIMIT, "s", "setting of the example")


@claim("serving.example.tpot_limit", "例子里对每个 token 时间的要求", "target for the time per token in the example")
def _():
    return computed(TPOT_LIMIT, "s", "setting of the example")


@claim("serving.example.ttft_mean", "四个请求平均的首 token 时间", "mean time to the first token of the four requests")
def _():
    return computed(sum(ttft for ttft, _ in REQUESTS) / len(REQUESTS), "s", "Σ TTFT / 4", requests=_written(REQUESTS))


@claim("serving.example.tpot_mean", "四个请求平均的每 token 时间", "mean time per token of the four requests")
def _():
    return computed(sum(tpot for _, tpot in REQUESTS) / len(REQUESTS), "s", "Σ TPOT / 4", requests=_written(REQUESTS))


@claim("serving.example.rate", "例子里每秒做完的请求", "requests finished a second in the example")
def _():
    return computed(len(REQUESTS) / SECONDS, "request/s", "requests / seconds", requests=len(REQUESTS), seconds=SECONDS)


@claim("serving.example.goodput", "例子里每秒做完而且达标的请求", "requests a second in the example that met both targets")
def _():
    return computed(_good(REQUESTS) / SECONDS, "request/s", "requests with TTFT ≤ 1 s and TPOT ≤ 50 ms / seconds", requests=_written(REQUESTS), seconds=SECONDS)


@claim("serving.quiz.goodput", "五个请求的例子里每秒达标的请求", "requests a second that met both targets in the example with five")
def _():
    return computed(_good(QUIZ_REQUESTS) / QUIZ_SECONDS, "request/s", "requests with TTFT ≤ 1 s and TPOT ≤ 50 ms / seconds", requests=_written(QUIZ_REQUESTS), seconds=QUIZ_SECONDS)


@claim("serving.quiz.rate", "五个请求的例子里每秒做完的请求", "requests finished a second in the example with five")
def _():
    return computed(len(QUIZ_REQUESTS) / QUIZ_SECONDS, "request/s", "requests / seconds", requests=len(QUIZ_REQUESTS), seconds=QUIZ_SECONDS)


# ---- characters, not tokens

CHARACTERS = 800
SERVICES = {"first": (60.0, 500), "second": (90.0, 800)}  # tokens a second, tokens of the text


def _characters(service: str) -> Quantity:
    speed, tokens = SERVICES[service]
    return computed(speed * CHARACTERS / tokens, "count", "token/s × characters / tokens", tokens_per_second=speed, characters=CHARACTERS, tokens=tokens)


@claim("serving.quiz.characters", "两家的例子里，token 少的一家每秒写的字", "characters a second of the service whose tokens are fewer, in the example with two")
def _():
    return _characters("first")


@claim("serving.quiz.characters_other", "两家的例子里，token 多的一家每秒写的字", "characters a second of the service whose tokens are more, in the example with two")
def _():
    return _characters("second")


def _kept(tokenizer: str) -> Mapping[str, Any]:
    """The stored count of the Chinese sentence's tokens."""
    from compute import precompute  # which asks for the claims: some of what is stored is about them

    return precompute.stored()[f"serving.tokens.zh.{tokenizer}"]


def _speed(tokenizer: str) -> float:
    """Characters a second of the Chinese sentence, at the tokens per second of a single reader of the anchor."""
    kept = _kept(tokenizer)
    return _alone_speed() * kept["conditions"]["characters"] / kept["value"]


def _alone_speed() -> float:
    return roofline.decode(**_anchor(), batch=1, context=CONTEXT).tokens_per_second


for _tokenizer in ("qwen3.6", "smollm2"):

    def _written_speed(tokenizer=_tokenizer) -> Quantity:
        kept = _kept(tokenizer)
        return computed(_speed(tokenizer), "count", "token/s × characters / tokens", tokens_per_second=_alone_speed(), characters=kept["conditions"]["characters"], tokens=kept["value"])

    claim(f"serving.speed.zh.{_tokenizer}", f"那句中文按 {_tokenizer} 切，每秒写的字符", f"characters a second of the Chinese sentence as {_tokenizer} cuts it")(_written_speed)


@claim("serving.speed.zh.ratio", "那句中文，两个分词器每秒写的字符之比", "characters a second of the Chinese sentence, ratio of the two tokenizers")
def _():
    most, fewest = (_kept(tokenizer)["value"] for tokenizer in ("smollm2", "qwen3.6"))
    return computed(most / fewest, "×", "tokens of SmolLM2 / tokens of Qwen3.6", smollm2=most, qwen36=fewest)


# ---- the slowest of a hundred

ASKED = 20


@claim("serving.p99.of_twenty", "问二十次，至少一次慢过 p99 的概率", "chance that at least one of twenty questions is slower than the p99")
def _():
    return computed(1 - 0.99**ASKED, "ratio", "1 − 0.99^n", n=ASKED)


@claim("serving.p99.even", "问几次，就多半碰上一次 p99", "questions after which meeting the p99 is more likely than not")
def _():
    return computed(next(n for n in range(1, 1000) if 1 - 0.99**n >= 0.5), "count", "smallest n with 1 − 0.99^n ≥ 1/2")


# ---- a long prompt among readers, as the timeline opens

READERS = 48
BUDGET, SMALL_BUDGET = 512, 256  # tokens a step may read, those of the readers included


@claim("serving.long.tokens", "闯进来的 prompt", "the prompt that comes in between")
def _():
    return computed(LONG, "token", "32 × 1024")


@claim("serving.long.readers", "旁边正在看字的读者", "readers beside it, who are being written to")
def _():
    return computed(READERS, "request", "setting of the example: with room for the prompt's KV, a few short of a full card")


def _steps(clock: Clock, budget: int | None) -> np.ndarray:
    """Seconds of each step in which some of the prompt is read beside the readers, all of it at once where budget is None. (steps,)"""
    each = LONG if budget is None else budget - READERS
    starts = np.arange(0, LONG, each)
    ends, at = np.minimum(starts + each, LONG), np.arange(len(starts))
    return clock.step(
        READERS + 0 * at, READERS * (CONTEXT + at), ends - starts, (ends**2 - starts**2) / 2, ends == LONG, starts,
        states_moved=2 * READERS + np.where(starts > 0, 2, 1),
    )  # fmt: skip


def _plain(clock: Clock) -> float:
    return float(clock.step(READERS, READERS * CONTEXT))


STEP = "max(bytes / bandwidth, FLOPs / peak), the readers' tokens in every step"


@claim("serving.long.step", "没有人打扰时，这些读者的一步", "a step of these readers when nobody disturbs them")
def _():
    return computed(_plain(_ideal()), "s", "(weights + readers × (4096 × KV + 2 × state)) / bandwidth", readers=READERS)


@claim("serving.long.silence", "整段读这个 prompt 的那一步", "the step that reads this prompt whole")
def _():
    return computed(float(_steps(_ideal(), None)[0]), "s", STEP, prompt=LONG, readers=READERS)


@claim("serving.long.steps_missed", "这段时间本来够读者写的步数", "steps that the readers would have made meanwhile")
def _():
    whole, step = float(_steps(_ideal(), None)[0]), _plain(_ideal())
    return computed(whole / step, "step", "step with the whole prompt / step without", whole=whole, step=step)


@claim("serving.long.in_tpot", "一次这样的停顿，摊到 300 个 token 的 TPOT 上", "one such stall, spread over the TPOT of an answer of 300 tokens")
def _():
    whole, step = float(_steps(_ideal(), None)[0]), _plain(_ideal())
    return computed((whole - step) / (ANSWER - 1), "s", "(stall − step) / (n − 1)", stall=whole, step=step, n=ANSWER)


for _name, _budget, _zh, _en in (("long", BUDGET, "每步预算 512 个 token", "512 tokens to a step"), ("long.small", SMALL_BUDGET, "每步预算 256 个 token", "256 tokens to a step")):

    def _set(budget=_budget) -> Quantity:
        return computed(budget, "token", "setting of the example, the readers' tokens included")

    def _count(budget=_budget) -> Quantity:
        return computed(len(_steps(_ideal(), budget)), "step", "⌈prompt / (budget − readers)⌉", prompt=LONG, budget=budget, readers=READERS)

    def _longest(budget=_budget) -> Quantity:
        return computed(float(_steps(_ideal(), budget).max()), "s", STEP, prompt=LONG, budget=budget, readers=READERS)

    def _first(budget=_budget) -> Quantity:
        steps = _steps(_ideal(), budget)
        return computed(float(steps.sum()), "s", "Σ steps that read some of the prompt", prompt=LONG, budget=budget, steps=len(steps), readers=READERS)

    claim(f"serving.{_name}.budget", f"{_zh}", f"{_en}")(_set)
    claim(f"serving.{_name}.chunks", f"{_zh}，读完这个 prompt 的步数", f"{_en}: steps in which this prompt is read")(_count)
    claim(f"serving.{_name}.longest", f"{_zh}，读者最长的一步", f"{_en}: the longest step of the readers")(_longest)
    claim(f"serving.{_name}.chunked_ttft", f"{_zh}，这个 prompt 等到第一个 token", f"{_en}: time to this prompt's first token")(_first)


@claim("serving.long.calibrated_whole", "标定时钟上，整段读这个 prompt 的首 token", "first token of this prompt when read whole, on the calibrated clock")
def _():
    return _predicted(float(_steps(_calibrated(), None)[0]), CLOCK, prompt=LONG, readers=READERS)


@claim("serving.long.calibrated_chunked", "标定时钟上，切成段读这个 prompt 的首 token", "first token of this prompt when read in chunks, on the calibrated clock")
def _():
    steps = _steps(_calibrated(), BUDGET)
    return _predicted(float(steps.sum()), f"Σ steps that read some of the prompt, each {CLOCK}", prompt=LONG, budget=BUDGET, steps=len(steps), readers=READERS)


@claim("serving.long.calibrated_overhead", "标定时钟上，没有读者时，切成这样的段来读多花的时间", "how much longer reading in such chunks takes on the calibrated clock, with no readers there")
def _():
    starts = np.arange(0, LONG, BUDGET - READERS)
    ends = np.minimum(starts + BUDGET - READERS, LONG)
    chunks = _calibrated().step(0 * starts, 0, ends - starts, (ends**2 - starts**2) / 2, ends == LONG, starts, states_moved=np.where(starts > 0, 2, 1))
    whole = float(_calibrated().step(0, 0, LONG, LONG**2 / 2, 1))
    inputs = {"chunk": BUDGET - READERS, "whole": whole}
    return Quantity(float(chunks.sum()) / whole - 1, "ratio", "computed", "Σ steps with a chunk / step with the whole prompt − 1", inputs, conditions=_papers(judged.first_token_error(LONG)))


@claim("serving.long.handover_bytes", "读完后要交给另一张卡的 KV 与状态", "KV and state handed to another card once the prompt has been read")
def _():
    each, state = kv.per_token(_anchor()["model"]).bytes, facts.model(_anchor()["model"]).state_bytes
    return computed(LONG * each + state, "B", "32768 × KV per token + state", kv_per_token=each, state=state)


@claim("serving.long.handover", "经卡间互联交过去，至少要的时间", "least time to hand them over the link between cards")
def _():
    bytes_, link = _ideal().request_bytes(LONG), facts.chip(_anchor()["chip"]).link_bytes_per_s
    return computed(bytes_ / link, "s", "bytes / link (one direction, nothing else on it)", bytes=bytes_, link=link)


# ---- the same on the calibrated clock, and how far that clock is off


@cache
def _calibrated() -> Clock:
    return calibrated.calibrated(**_anchor())


def _papers(error: Error) -> dict[str, Any]:
    return {"mean error": f"{error.mean:.1%}", "worst": f"{error.worst:+.0%}", "note": dict(error.where)}


def _predicted(seconds: float, formula: str, **inputs) -> Quantity:
    """With the error that the clock had on the published runs most like the anchor's; of first tokens where a prompt is read."""
    error = judged.first_token_error(inputs["prompt"]) if "prompt" in inputs else _calibrated().error
    return Quantity(seconds, "s", "computed", formula, inputs, conditions=_papers(error))


CLOCK = "Σ over kernels: launches × launch cost + √((FLOPs / FLOP/s reached)² + (bytes / B/s reached)²)"


@claim("serving.calibrated.batch1", "标定时钟上，锚点 batch 1、4K 上下文的一步", "a step of the anchor at batch 1, 4K context, on the calibrated clock")
def _():
    return _predicted(float(_calibrated().step(1, CONTEXT)), CLOCK, batch=1, context=CONTEXT)


@claim("serving.calibrated.batch58", "标定时钟上，锚点 batch 58、4K 上下文的一步", "a step of the anchor at batch 58, 4K context, on the calibrated clock")
def _():
    return _predicted(float(_calibrated().step(FULL_BATCH, FULL_BATCH * CONTEXT)), CLOCK, batch=FULL_BATCH, context=CONTEXT)


@claim("serving.calibrated.target.batch", "标定时钟上，守住每个 token 的要求，一起写的请求至多几个", "requests that may write together within the target, on the calibrated clock")
def _():
    batches = np.arange(1, FULL_BATCH + 1)
    fast = batches[_calibrated().step(batches, CONTEXT * batches) <= TPOT_TARGET]
    inputs = {"target_seconds": TPOT_TARGET, "context": CONTEXT}
    return Quantity(int(fast[-1]), "request", "computed", "largest batch whose step stays within the target", inputs, conditions=_papers(_calibrated().error))


@claim("serving.calibrated.long", "标定时钟上，锚点读 32,768 个 token 的 prompt", "the anchor reading a prompt of 32,768 tokens on the calibrated clock")
def _():
    return _predicted(float(_calibrated().step(0, 0, LONG, LONG**2 / 2, 1)), CLOCK, prompt=LONG)


JUDGED = {  # the rows of the instrument that prose names
    "a100": ("16 位、一张 A100 的公布运行", "published runs in 16 bits on one A100", lambda row: row.kind == "dense" and row.tensor_parallel == 1 and row.chip == "a100-80g-sxm"),
    "h100": ("FP8、一张 H100 的公布运行", "published runs in FP8 on one H100", lambda row: row.kind == "dense" and row.tensor_parallel == 1 and row.chip == "h100-sxm"),
    "cards": ("几张卡张量并行的公布运行", "published runs on several cards, tensor parallel", lambda row: row.kind == "dense" and row.tensor_parallel > 1),
    "experts": ("混合专家模型的公布运行", "published runs of mixtures of experts", lambda row: row.kind == "experts"),
}


@cache
def _verdict(group: str) -> judged.Summary:
    return judged.summary(row for row in judged.judgements() if row.what == "throughput" and JUDGED[group][2](row))


@cache
def _short() -> judged.Summary:
    return judged.summary(row for row in judged.judgements() if row.what == "first_token" and row.prompt < 1000)


for _group, (_zh, _en, _) in JUDGED.items():
    for _field, _unit, _said, _tells, _formula in (
        ("n", "count", "次数", "their number", "published whole-engine results, none of which had a part in the fit"),
        ("ideal_mean", "ratio", "理想上界平均差多少", "mean error of the ideal bound", "mean of |ideal speed / published speed − 1|"),
        ("mean", "ratio", "标定时钟平均差多少", "mean error of the calibrated clock", "mean of |calibrated speed / published speed − 1|"),
        ("worst", "ratio", "标定时钟差得最多的一次", "worst run of the calibrated clock", "calibrated speed / published speed − 1, the largest"),
    ):

        def _judged(group=_group, field=_field, unit=_unit, formula=_formula) -> Quantity:
            return computed(getattr(_verdict(group), field), unit, formula, runs=_verdict(group).n)

        claim(f"serving.judged.{_group}.{_field}", f"{_zh}：{_said}", f"{_en}: {_tells}")(_judged)


@claim("serving.judged.short.bias", "128 个 token 的 prompt，标定时钟的首 token 平均说快了多少", "first token of a prompt of 128 tokens: by how much the calibrated clock is too fast, on average")
def _():
    return computed(_short().bias, "ratio", "mean of published seconds / calibrated seconds − 1", runs=_short().n)


# ---- one server and a queue: times in service times


LOADS = (0.5, 0.8, 0.9, 0.95)
for _rho in LOADS:
    for _name, _zh, _en, _of, _formula in (
        ("mm1.mean", "M/M/1 平均逗留时间", "mean time in an M/M/1 system", mm1_mean, "1 / (1 − ρ)"),
        ("mm1.p99", "M/M/1 逗留时间的 p99", "p99 of the time in an M/M/1 system", mm1_p99, "ln(100) / (1 − ρ)"),
        ("md1.mean", "M/D/1 平均逗留时间", "mean time in an M/D/1 system", md1_mean, "1 + ρ / (2 (1 − ρ))"),
        ("md1.p99", "M/D/1 逗留时间的 p99", "p99 of the time in an M/D/1 system", md1_p99, "1 + t with P(wait ≤ t) = 0.99 (Franx 2001)"),
    ):

        def _queue(rho=_rho, of=_of, formula=_formula) -> Quantity:
            return computed(of(rho), "count", f"{formula}, in service times", rho=rho)

        claim(f"serving.{_name}.{round(100 * _rho)}", f"{_zh}，负载 {_rho:g}，以服务时间为单位", f"{_en} at load {_rho:g}, in service times")(_queue)


@claim("serving.little.in_flight", "Little 定律的例子：同时在里面的请求", "the example of Little's law: requests inside at once")
def _():
    return computed(4 * 12.0, "request", "L = λ × W", rate=4, seconds=12.0)


@claim("serving.little.rate", "Little 定律的例子：每秒来的请求", "the example of Little's law: requests that arrive a second")
def _():
    return computed(4.0, "request/s", "setting of the example")


@claim("serving.little.seconds", "Little 定律的例子：每个请求逗留的时间", "the example of Little's law: time that each request stays")
def _():
    return computed(12.0, "s", "setting of the example")


CAPACITY, ARRIVING, MINUTES = 10.0, 11.0, 10


@claim("serving.overload.capacity", "过载的例子：容量", "the example of overload: capacity")
def _():
    return computed(CAPACITY, "request/s", "setting of the example")


@claim("serving.overload.arriving", "过载的例子：来的请求", "the example of overload: requests arriving")
def _():
    return computed(ARRIVING, "request/s", "setting of the example")


@claim("serving.overload.waiting", "过载的例子：十分钟后在排队的", "the example of overload: waiting after ten minutes")
def _():
    return computed(int((ARRIVING - CAPACITY) * 60 * MINUTES), "request", "(λ − capacity) × seconds", arriving=ARRIVING, capacity=CAPACITY, seconds=60 * MINUTES)


@claim("serving.overload.wait", "过载的例子：十分钟后刚到的人要等", "the example of overload: what somebody waits who comes after ten minutes")
def _():
    waiting = (ARRIVING - CAPACITY) * 60 * MINUTES
    return computed(waiting / CAPACITY, "s", "waiting / capacity", waiting=waiting, capacity=CAPACITY)
