"""The 64 requests of the batching lesson under the four policies, on a clock that counts steps.

All requests are there from the beginning. Latency: from arrival to the last token, in steps. The order of arrival is drawn once
(data/batching-requests.json); the interval of a utilisation says what other orders of the same requests give.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from compute import batching_requests
from compute.batching import POLICIES, Preemption, PolicyName, Scheduler
from compute.batching_requests import Request
from compute.measures.job import Job, Report, Value, nobody
from compute.paging import BlockPool
from compute.simulate import Job as Arrival, Price, simulate, unit
from compute.trace import Trace, summary

SLOTS = 8
BLOCKS, BLOCK_SIZE = 128, 16  # every slot may hold the longest request
TIGHT = 24
BUDGET = 16  # tokens a step may read, where a policy heeds it
ORDERS = 50

OTHERS = {
    "zh": "参考用的是它自己的 64 个段落；我们从自己的验证文本里按十个来源轮流抽取，长短差得更多，静态批处理等得更久",
    "en": "the reference took 64 paragraphs of its own; ours are drawn in turn from ten sources of our validation text and differ more in length, so a static batch waits longer",
}
REFERENCE = {"static": 0.587, "continuous": 0.931}
NAMES = {
    "static": ("静态批处理", "static batching"),
    "continuous": ("连续批处理", "continuous batching"),
    "prefill-first": ("预填充优先", "prefill first"),
    "chunked": ("分块预填充", "chunked prefill"),
}


def trace(
    policy: PolicyName, requests: Iterable[Request], *, slots: int = SLOTS, blocks: int = BLOCKS, budget: int = BUDGET,
    preemption: Preemption = "recompute", price: Price = unit,
) -> Trace:  # fmt: skip
    """The requests under a policy; every step as long as any other, unless a price is given."""
    scheduler = Scheduler(BlockPool(blocks, BLOCK_SIZE), slots, policy, budget=budget, preemption=preemption)
    return simulate(scheduler, [Arrival(request.prompt, request.output) for request in requests], price)


def around(**more) -> dict:
    return {"requests": batching_requests.COUNT, "clock": "simulated, every step alike", "arrival": "all at step 0", "slots": SLOTS, "block_size": BLOCK_SIZE, "order_seed": batching_requests.SEED} | more


def lengths(*, report: Report = nobody) -> dict[str, Value]:
    outputs = [request.output for request in batching_requests.requests()]
    found = (
        ("count", len(outputs), "request", "请求数", "requests"),
        ("written", sum(outputs), "token", "这些请求一共写出的 token", "tokens that the requests write in all"),
        ("mean", sum(outputs) / len(outputs), "token", "平均每个请求写出", "tokens that a request writes on average"),
        ("shortest", min(outputs), "token", "最短的回复", "the shortest reply"),
        ("longest", max(outputs), "token", "最长的回复", "the longest reply"),
    )
    conditions = {"model": batching_requests.MODEL, "context": batching_requests.CONTEXT, "seed": batching_requests.SEED}
    return {f"batching.requests.{key}": Value(value, unit, {"exact": True}, conditions, says={"zh": zh, "en": en}) for key, value, unit, zh, en in found}


def policy(*, policy: PolicyName, report: Report = nobody) -> dict[str, Value]:
    """How the requests fare under a policy, memory being plenty."""
    requests = batching_requests.requests()
    found = summary(trace(policy, requests))
    rng, used = np.random.default_rng(batching_requests.SEED), []
    for number in range(ORDERS):
        used.append(trace(policy, [requests[at] for at in rng.permutation(len(requests))]).utilisation)
        report(number / ORDERS, policy)
    zh, en = NAMES[policy]
    conditions = around(blocks=BLOCKS, budget=BUDGET)
    low, high = np.percentile(used, [2.5, 97.5])
    reference = {"value": REFERENCE[policy], "where": "reference/000", "why_different": OTHERS} if policy in REFERENCE else None

    def value(number: float, unit: str, says_zh: str, says_en: str, **more) -> Value:
        tolerance = {"exact": True} if unit == "step" and isinstance(number, int) else {"relative": 1e-9}
        return Value(number, unit, tolerance, more.pop("conditions", conditions), says={"zh": f"{zh}：{says_zh}", "en": f"{en}: {says_en}"}, **more)

    return {
        f"batching.{policy}.utilisation": value(
            found.utilisation, "ratio", "槽位利用率", "slots in use", interval95=(low, high), n=ORDERS,
            conditions=conditions | {"interval": f"95 % of {ORDERS} other orders of arrival"}, reference=reference,
        ),
        f"batching.{policy}.steps": value(found.steps, "step", "全部写完要几步", "steps until all is written"),
        f"batching.{policy}.mean_latency": value(found.mean_latency, "step", "平均延迟", "mean latency"),
        f"batching.{policy}.p99_latency": value(found.p99_latency, "step", "p99 延迟", "p99 latency"),
        f"batching.{policy}.tokens_per_step": value(found.tokens_per_step, "token", "每步写出的 token", "tokens written in a step"),
    }  # fmt: skip


def tight(*, preemption: Preemption, report: Report = nobody) -> dict[str, Value]:
    """Continuous batching when blocks run out."""
    found = summary(trace("continuous", batching_requests.requests(), blocks=TIGHT, preemption=preemption))
    conditions = around(blocks=TIGHT, policy="continuous", preemption=preemption)
    zh, en = {"recompute": ("抢占后重算", "recomputing after preemption"), "swap": ("抢占时换出", "swapping out at preemption")}[preemption]
    return {
        f"batching.tight.{preemption}.preemptions": Value(
            found.preemptions, "count", {"exact": True}, conditions, says={"zh": f"内存紧、{zh}：抢占次数", "en": f"memory is short, {en}: preemptions"}),
        f"batching.tight.{preemption}.steps": Value(
            found.steps, "step", {"exact": True}, conditions, says={"zh": f"内存紧、{zh}：全部写完要几步", "en": f"memory is short, {en}: steps until all is written"}),
    }  # fmt: skip


MEASURES = {"batching.lengths": lengths, "batching.policy": policy, "batching.tight": tight}


def jobs() -> list[Job]:
    about = ("count", "written", "mean", "shortest", "longest")
    results = ("utilisation", "steps", "mean_latency", "p99_latency", "tokens_per_step")
    return [
        Job("batching.lengths", {}, tuple(f"batching.requests.{key}" for key in about)),
        *(Job("batching.policy", {"policy": policy}, tuple(f"batching.{policy}.{key}" for key in results)) for policy in POLICIES),
        *(Job("batching.tight", {"preemption": p}, tuple(f"batching.tight.{p}.{key}" for key in ("preemptions", "steps"))) for p in ("recompute", "swap")),
    ]  # fmt: skip
