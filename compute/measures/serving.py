"""Lesson 5: the load lab at the loads that prose names, and two sentences under real tokenizers.

The load lab's figures are a simulation on the calibrated clock: exact for its requests and its seed, as far off as the clock is for an
engine. Rates are parts of the capacity, which is found first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compute import calibrated, facts, serving, tokenization
from compute.engine import smollm2
from compute.measures.job import Job, Report, Value, digest, nobody
from compute.serving import load as serve
from compute.serving.flow import flow

# ---- under load, as the instrument opens

SETTING: dict[str, Any] = {"model": "qwen3.8-27b", "chip": "h100-sxm", "workload": "code", "slots": 58, "budget": 512, "clock": "calibrated", "ttft_target": 1.0, "tpot_target": 0.05}
REQUESTS, SEED = 1000, 0
LOADS = (50, 60, 80, 90)  # per cent of the capacity
OPENS_AT = 4.0  # requests a second


def run(policy: str = "continuous", arrive: str = "poisson", load: int | None = None) -> serving.Run:
    """At a part of the capacity of this policy, or at the rate that the instrument opens at."""
    most = serving.run(**SETTING, policy=policy, rate=OPENS_AT, requests=20, seed=SEED).capacity.requests_per_second if load is not None else 0.0
    return serving.run(**SETTING, policy=policy, arrive=arrive, rate=OPENS_AT if load is None else load / 100 * most, requests=REQUESTS, seed=SEED)


def fit() -> str:
    """Which calibration: a new one is a new clock, and the runs are made again."""
    return digest(facts.read_json(calibrated.FILE)["classes"])


def simulated() -> dict[str, Any]:
    """That no card was there, and how far the clock that stood for one was off."""
    error = calibrated.calibrated(SETTING["model"], SETTING["chip"]).error
    how = {"zh": "在标定时钟上模拟，没有在这张卡上跑过", "en": "simulated on the calibrated clock, not run on this card"}
    return {"how": how, "mean error of the clock": f"{error.mean:.1%}", "worst": f"{error.worst:+.0%}"}


def load(*, name: str, calibration: str, policy: str = "continuous", arrive: str = "poisson", load: int | None = None, report: Report = nobody) -> dict[str, Value]:
    found = run(policy, arrive, load)
    conditions = SETTING | {"policy": policy, "arrive": arrive, "rate": found.rate, "load": found.load, "requests": found.requests, "seed": SEED} | simulated()

    def value(number: float, unit: str, zh: str, en: str, interval: tuple[float | None, float | None] = (None, None)) -> Value:
        low, high = interval
        says = {"zh": f"负载实验，λ 是容量的 {found.load:.0%}：{zh}", "en": f"load lab, λ at {found.load:.0%} of the capacity: {en}"}
        return Value(number, unit, {"relative": 1e-6}, conditions, says=says, interval95=None if high is None else (float(low), float(high)), n=found.requests)

    ttft, tpot, good = found.ttft.p99, found.tpot.p99, found.good
    return {
        f"serving.load.{name}.rate": value(found.rate, "request/s", "每秒来的请求", "requests arriving a second"),
        f"serving.load.{name}.tokens_per_second": value(found.tokens_per_second, "token/s", "总吞吐", "total throughput"),
        f"serving.load.{name}.ttft_p99": value(ttft.seconds, "s", "首 token 时间的 p99", "p99 of the time to the first token", (ttft.low, ttft.high)),
        f"serving.load.{name}.tpot_p99": value(tpot.seconds, "s", "每 token 时间的 p99", "p99 of the time per token", (tpot.low, tpot.high)),
        f"serving.load.{name}.good_share": value(good.share, "ratio", "两个要求都做到的请求", "requests that meet both targets", (good.low, good.high)),
        f"serving.load.{name}.goodput": value(good.requests_per_second, "request/s", "goodput", "goodput"),
    }  # fmt: skip


def capacity(*, calibration: str, report: Report = nobody) -> dict[str, Value]:
    found = serving.run(**SETTING, rate=OPENS_AT, requests=20, seed=SEED).capacity
    says = {"zh": "负载实验里这台服务的容量", "en": "capacity of the service in the load lab"}
    return {"serving.load.capacity": Value(found.requests_per_second, "request/s", {"relative": 1e-6}, SETTING | {"policy": "continuous", "requests": found.requests, "seed": SEED} | simulated(), says=says)}


ALONE = 200  # requests served one after the other, for the mean time of one alone


def stay(*, load: int, calibration: str, report: Report = nobody) -> dict[str, Value]:
    """The p99 of the time in the system, in mean times of a request that has the server to itself."""
    served = serve.server(SETTING["model"], SETTING["chip"], "continuous", SETTING["slots"], SETTING["budget"], "bf16", 1, SETTING["clock"])
    lonely = flow(served, np.arange(ALONE) * 1e6, *serving.lengths(SETTING["workload"], ALONE, SEED, even=True))
    alone, found = float((lonely.finished - lonely.arrived).mean()), run(load=load)
    says = {"zh": f"负载实验，λ 是容量的 {load}%：逗留时间的 p99，是独自一人时平均的几倍", "en": f"load lab, λ at {load}% of the capacity: p99 of the time in the system, over the mean of a request alone"}
    conditions = SETTING | {"policy": "continuous", "rate": found.rate, "requests": REQUESTS, "seed": SEED, "alone_seconds": alone} | simulated()
    return {f"serving.load.at{load}.stay_p99": Value(found.latency.p99.seconds / alone, "×", {"relative": 1e-6}, conditions, says=says, n=REQUESTS)}


OPENED = ("rate", "tokens_per_second", "ttft_p99", "tpot_p99", "good_share", "goodput")

# ---- two sentences under real tokenizers

SENTENCES = {
    "zh": "小明把苹果给了小王，推理服务把这句话切成 token，再一个一个地写下去。",
    "en": "The server cuts a sentence into tokens, then writes them one by one.",
}
OF = {"zh": ("那句中文", "the Chinese sentence"), "en": ("那句英文", "the English sentence")}


def tokens(*, sentence: str, tokenizer: str, report: Report = nobody) -> dict[str, Value]:
    cut, known = tokenization.split(tokenizer, SENTENCES[sentence], 1.0), tokenization.known()[tokenizer]
    zh, en = OF[sentence]
    conditions = {"text": SENTENCES[sentence], "characters": len(SENTENCES[sentence]), "vocabulary": known.vocabulary}
    says = {"zh": f"{known.name} 把{zh}切成的 token", "en": f"tokens into which {known.name} cuts {en}"}
    return {f"serving.tokens.{sentence}.{tokenizer}": Value(cut.count, "token", {"exact": True}, conditions, says=says)}


MEASURES = {"serving.load": load, "serving.stay": stay, "serving.capacity": capacity, "serving.tokens": tokens}


def jobs() -> list[Job]:
    of = {"calibration": fit()}
    runs = [{"name": "opens"}, *({"name": f"at{load}", "load": load} for load in LOADS), {"name": "chunked80", "policy": "chunked", "load": 80}, {"name": "bursty", "arrive": "bursty"}]
    models = {"smollm2": (smollm2.ID,), "mini-256": ("mini-256",)}
    return [
        Job("serving.capacity", of, ("serving.load.capacity",)),
        Job("serving.stay", of | {"load": 80}, ("serving.load.at80.stay_p99",)),
        *(Job("serving.load", of | each, tuple(f"serving.load.{each['name']}.{field}" for field in OPENED)) for each in runs),
        *(
            Job("serving.tokens", {"sentence": sentence, "tokenizer": tokenizer}, (f"serving.tokens.{sentence}.{tokenizer}",), models.get(tokenizer, ()))
            for sentence in SENTENCES for tokenizer in tokenization.LOADERS
        ),
    ]  # fmt: skip
