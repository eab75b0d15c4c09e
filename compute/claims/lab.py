"""Figures of the lab: what the counts and the forwards of one run say about the cache, and a machine's walls about its speed.

Timings come from data/measured/lab-*.json, one run on one machine; a new one changes these figures with it.
"""

from __future__ import annotations

from compute import acceptance, kv, precompute, walls
from compute.claims.claim import claim, computed
from compute.measures.lab import LENGTHS, MODEL, WIDTHS

LONGEST = LENGTHS[-1]
SHORT, LONG = 32, 1000  # tokens of the two contexts of the project part
FP32 = 32


def _timed(key: str) -> float:
    return precompute.timings()[key]["value"]


def _counted(key: str) -> float:
    return precompute.stored()[key]["value"]


# ---- why the clock gains less than the count


def forward_line() -> tuple[float, float]:
    """(seconds of a forward that do not depend on its length, seconds for each further token): least squares through the timed
    forwards, weighted so that each counts by its relative error, since the long ones would drown the short."""
    times = {m: _timed(f"lab.forward.{m}.seconds") for m in WIDTHS}
    weights = {m: 1 / t**2 for m, t in times.items()}
    total = sum(weights.values())
    x = sum(w * m for m, w in weights.items()) / total
    y = sum(w * times[m] for m, w in weights.items()) / total
    slope = sum(w * (m - x) * (times[m] - y) for m, w in weights.items()) / sum(w * (m - x) ** 2 for m, w in weights.items())
    return y - slope * x, slope


for _new in LENGTHS:
    claim(f"lab.cache.count_ratio.{_new}", f"写 {_new} 个 token，没有缓存时要算的 K、V 是有缓存时的几倍", f"{_new} new tokens: K/V computations without the cache over those with it")(
        lambda new=_new: computed(
            _counted(f"lab.cache.{new}.kv_without") / _counted(f"lab.cache.{new}.kv_with"), "×", "Σ (prompt + i) / (prompt + new − 1)",
            without=_counted(f"lab.cache.{new}.kv_without"), with_cache=_counted(f"lab.cache.{new}.kv_with"),
        )
    )  # fmt: skip


@claim("lab.forward.tokens", "最长的一次前向是最短的几倍长", "how many times as long the longest timed forward is as the shortest")
def _():
    return computed(WIDTHS[-1] / WIDTHS[0], "×", "tokens of the longest forward / of the shortest", longest=WIDTHS[-1], shortest=WIDTHS[0])


@claim("lab.forward.growth", "它花的时间是几倍", "how many times as long it takes")
def _():
    long, short = (_timed(f"lab.forward.{m}.seconds") for m in (WIDTHS[-1], WIDTHS[0]))
    return computed(long / short, "×", "seconds(240) / seconds(1), timed", seconds_240=long, seconds_1=short)


@claim("lab.forward.fixed", "一次前向里，不随 token 数变的时间", "time of a forward that does not depend on its tokens")
def _():
    fixed, each = forward_line()
    return computed(fixed, "s", "intercept of a line through the timed forwards, each weighted by its relative error", per_token=each)


@claim("lab.forward.each", "一次前向里，每多一个 token 多花的时间", "time that each further token adds to a forward")
def _():
    fixed, each = forward_line()
    return computed(each, "s", "slope of the same line", fixed=fixed)


@claim("lab.cache.by_forwards", "按这条线推算，写 240 个 token 时缓存该快几倍", "what that line makes of the cache’s gain at 240 new tokens")
def _():
    fixed, each = forward_line()
    mean = _counted(f"lab.cache.{LONGEST}.kv_without") / LONGEST  # tokens of an average forward without the cache
    return computed((fixed + each * mean) / (fixed + each), "×", "(fixed + each × mean tokens) / (fixed + each)", fixed=fixed, each=each, mean_tokens=mean)


# ---- what was set, for sentences that name it

for _new in LENGTHS:
    claim(f"lab.new.{_new}", f"表里的长度：{_new} 个新 token", f"a length of the table: {_new} new tokens")(lambda new=_new: computed(new, "token", "as measured"))

for _name, _value, _unit, _zh, _en in (
    ("forward.short", WIDTHS[0], "token", "最短的一次前向", "the shortest timed forward"), ("forward.long", WIDTHS[-1], "token", "最长的一次前向", "the longest timed forward"),
    ("context.short", SHORT, "token", "短的上下文", "the short context"), ("context.long", LONG, "token", "长的上下文", "the long context"),
):  # fmt: skip
    claim(f"lab.{_name}", _zh, _en)(lambda value=_value, unit=_unit: computed(value, unit, "as set"))


# ---- this machine's walls


def _promised(model: str) -> walls.Promise:
    about = precompute.timings()[f"lab.machine.decode.{model}"]["conditions"]
    return walls.promise(model, _timed("lab.machine.read.gemv.float32"), _timed("lab.machine.peak.float32"), about["context"])


for _model in ("mini-256", "smollm2-135m"):
    claim(f"lab.machine.{_model}.promised", f"按带宽，{_model} 每秒该写多少", f"what the bandwidth promises {_model}")(
        lambda model=_model: computed(
            _promised(model).tokens_per_second, "token/s", "bandwidth of a matrix-vector product in fp32 / bytes of a step",
            bandwidth=_timed("lab.machine.read.gemv.float32"), bytes=_promised(model).bytes_per_step,
        )
    )  # fmt: skip
    claim(f"lab.machine.{_model}.kept", f"{_model} 实测的速度是带宽许诺的几成", f"{_model}: measured speed over what the bandwidth promises")(
        lambda model=_model: computed(
            _timed(f"lab.machine.decode.{model}") / _promised(model).tokens_per_second, "ratio", "measured / promised",
            measured=_timed(f"lab.machine.decode.{model}"), promised=_promised(model).tokens_per_second,
        )
    )  # fmt: skip
    claim(f"lab.machine.{_model}.bytes", f"{_model} 写一个 token 要读的权重，fp32", f"weights of {_model} read for one token in fp32")(
        lambda model=_model: computed(_promised(model).weight_bytes, "B", "Σ matrices × 4", model=model)
    )


@claim("lab.machine.ridge", "这台机器的拐点", "the ridge of this machine")
def _():
    peak, bandwidth = _timed("lab.machine.peak.float32"), _timed("lab.machine.read.gemv.float32")
    return computed(peak / bandwidth, "FLOP/B", "peak / bandwidth, fp32", peak=peak, bandwidth=bandwidth)


# ---- the criteria


@claim("lab.schemes.judged", "按第四条标准判过的权重方案", "schemes of weights judged by the fourth criterion")
def _():
    return computed(len(acceptance.of_schemes(precompute.stored())), "count", "schemes of weights alone, measured on mini-256", model=MODEL)


@claim("lab.schemes.met", "其中达标的", "of these, how many meet it")
def _():
    return computed(sum(c.verdict == "met" for c in acceptance.of_schemes(precompute.stored())), "count", "loss change < 3σ of re-trainings", floor=_counted(acceptance.FLOOR))


@claim("lab.drafting.compared", "第三条标准比过的文本", "texts compared for the third criterion")
def _():
    return computed(int(acceptance.drafting(precompute.stored()).threshold), "count", "16 prompts × 4 drafts × k = 1 … 8", drafts=len(acceptance.DRAFTS), ks=len(acceptance.KS))


@claim("lab.drafting.same", "其中与目标自己写的逐 token 相同的", "of these, equal to the target’s own, token for token")
def _():
    return computed(int(acceptance.drafting(precompute.stored()).value), "count", "Σ identical", model=MODEL)


# ---- the project part: memory of short and long contexts


@claim("lab.kv.per_token", "mini-256 每个 token 的 KV，fp32", "KV of one token of mini-256 in fp32")
def _():
    return computed(kv.per_token(MODEL, FP32).bytes, "B", "layers × 2 × KV heads × head_dim × 4", bits=FP32)


for _name, _tokens in (("short", SHORT), ("long", LONG)):
    claim(f"lab.kv.{_name}", f"mini-256 的 {_tokens} 个 token 的 KV，fp32", f"KV of {_tokens} tokens of mini-256 in fp32")(
        lambda tokens=_tokens: computed(tokens * kv.per_token(MODEL, FP32).bytes, "B", "tokens × KV per token", tokens=tokens)
    )


@claim("lab.weights", "mini-256 的全部权重，fp32", "all weights of mini-256 in fp32")
def _():
    parameters = _counted("mini-256.parameters")
    return computed(4 * parameters, "B", "parameters × 4", parameters=parameters)


# ---- the quiz

QUIZ_PROMPT, QUIZ_NEW = 4, 100
QUIZ_BANDWIDTH, QUIZ_BYTES = 20e9, 400e6

for _name, _value, _unit, _zh, _en in (
    ("prompt", QUIZ_PROMPT, "token", "测验里的提示", "the prompt of the quiz"), ("new", QUIZ_NEW, "token", "测验里的新 token", "new tokens of the quiz"),
    ("bandwidth", QUIZ_BANDWIDTH, "B/s", "测验里的带宽", "the bandwidth of the quiz"), ("bytes", QUIZ_BYTES, "B", "测验里每个 token 的字节", "bytes a token of the quiz"),
):  # fmt: skip
    claim(f"lab.quiz.{_name}", _zh, _en)(lambda value=_value, unit=_unit: computed(value, unit, "as set"))


@claim("lab.quiz.without", "4 个 token 的提示，没有缓存写 100 个 token 要算的 K、V", "K/V computations for 100 tokens after a prompt of 4 without a cache")
def _():
    return computed(sum(QUIZ_PROMPT + i for i in range(QUIZ_NEW)), "count", "Σ (4 + i), i = 0 … 99", prompt=QUIZ_PROMPT, new=QUIZ_NEW)


@claim("lab.quiz.bound", "20 GB/s 的机器上，每个 token 读 400 MB 的模型，每秒最多写多少", "most tokens per second of a model that reads 400 MB a token at 20 GB/s")
def _():
    return computed(QUIZ_BANDWIDTH / QUIZ_BYTES, "token/s", "bandwidth / bytes", bandwidth=QUIZ_BANDWIDTH, bytes=QUIZ_BYTES)
