"""Lesson 2: a small batch by hand, what a reservation costs, what blocks waste and copy, and what chunks, swaps and a
slower kernel cost on the anchor."""

from __future__ import annotations

from functools import cache

from compute import facts, kv, roofline
from compute.batching import PolicyName, Scheduler
from compute.batching_requests import requests
from compute.claims.claim import claim, computed
from compute.memory_story import Moment, Request, parse, tell
from compute.paging import BlockPool, Copy, NoHole, Table
from compute.quantity import Quantity
from compute.simulate import Job, simulate
from compute.trace import Trace

CONTEXT, FULL_BATCH = 4096, 58  # lesson 1's
BLOCK = 16  # tokens, vLLM's default
LOWER_MAXIMUM = 32_768  # what an operator may set instead of the model's own


def _anchor() -> dict[str, str]:
    names = facts.anchor()
    return {"model": names["model"], "chip": names["chip"]}


# ---- a batch that can be counted on paper: four slots, eight answers, the lengths in order of arrival

SLOTS, LENGTHS = 4, (3, 5, 6, 18, 4, 7, 2, 9)


@cache
def _small(policy: PolicyName, lengths: tuple[int, ...]) -> Trace:
    """Prompts of one token, so that reading it writes the first of the answer; memory without end."""
    pool = BlockPool(sum(lengths) + len(lengths), 1)
    return simulate(Scheduler(pool, SLOTS, policy), [Job(1, n) for n in lengths])


def _steps(policy: PolicyName) -> Quantity:
    return computed(len(_small(policy, LENGTHS).steps), "step", f"steps of {policy} batching", slots=SLOTS, lengths=", ".join(map(str, LENGTHS)))


@claim("batching.small.static.steps", "例子里静态批处理的步数", "steps of static batching in the example")
def _():
    return _steps("static")


@claim("batching.small.continuous.steps", "例子里连续批处理的步数", "steps of continuous batching in the example")
def _():
    return _steps("continuous")


@claim("batching.quiz.utilisation", "四个回复的例子里，静态批处理的槽位利用率", "slot utilisation of static batching in the example with four answers")
def _():
    lengths = LENGTHS[:SLOTS]
    return computed(_small("static", lengths).utilisation, "ratio", "Σ tokens / (slots × longest)", slots=SLOTS, lengths=", ".join(map(str, lengths)))


# ---- the 64 paragraphs that the instruments replay


EIGHT = 8


@claim("batching.requests.least_steps", "八个槽位一刻不闲时的步数", "steps if none of the eight slots were ever idle")
def _():
    lengths = [request.output for request in requests()]
    total = sum(lengths)
    return computed(max(-(-total // EIGHT), max(lengths)), "step", "⌈tokens written / slots⌉, no less than the longest", tokens=total, slots=EIGHT)


# ---- a step that reads and writes at once, on the anchor


@claim("batching.anchor.rides_free", "58 个请求写字的一步里，还能捎带读的 prompt", "prompt tokens that can be read in the step that writes for 58 requests without making it longer")
def _():
    """The largest chunk of one new prompt whose arithmetic, beside the decoders', still fits into the time of moving weights,
    KV and states. The chunk's own KV and state are moved too."""
    model, chip = facts.model(_anchor()["model"]), facts.chip(_anchor()["chip"])
    step = roofline.decode(**_anchor(), batch=FULL_BATCH, context=CONTEXT)
    weights_seconds = 2 * model.parameters_per_token / chip.bandwidth_bytes_per_s

    def fits(tokens: int) -> bool:
        chunk = roofline.prefill(**_anchor(), prompt=tokens)
        own_seconds = chunk.memory_seconds - weights_seconds
        return step.compute_seconds + chunk.compute_seconds <= step.memory_seconds + own_seconds

    tokens = next(n for n in range(1, CONTEXT) if not fits(n + 1))
    return computed(
        tokens, "token", "largest n: compute of the batch + compute of n prompt tokens ≤ memory time of both, weights read once",
        batch=FULL_BATCH, context=CONTEXT, memory_seconds=step.memory_seconds, compute_seconds=step.compute_seconds,
    )  # fmt: skip


# ---- reserving


@claim("batching.reserved.bytes", "按锚点的最大长度预留，一个请求的 KV", "KV of one request that reserves the anchor's maximum length")
def _():
    maximum, each = kv.capacity(**_anchor(), context=CONTEXT).maximum_context, kv.per_token(_anchor()["model"]).bytes
    return computed(maximum * each, "B", "maximum context × KV per token", maximum=maximum, kv_per_token=each)


@claim("batching.reserved.used", "按最大长度预留、只写到 4K 时，存着 token 的比例", "share that holds tokens when the maximum is reserved and 4K are written")
def _():
    maximum = kv.capacity(**_anchor(), context=CONTEXT).maximum_context
    return computed(CONTEXT / maximum, "ratio", "written / reserved", written=CONTEXT, reserved=maximum)


@claim("batching.reserved.lower_maximum", "改按 32,768 个 token 预留时", "tokens reserved when the operator lowers the maximum")
def _():
    return computed(LOWER_MAXIMUM, "token", "setting of the example")


@claim("batching.reserved.lower_requests", "每个请求预留 32,768 个 token，一张 H100 能放的请求", "requests on one H100 when each reserves 32,768 tokens")
def _():
    room = kv.capacity(**_anchor(), context=LOWER_MAXIMUM)
    return computed(room.requests, "request", "⌊(memory − all weights) / (32768 × KV + state)⌋", free=room.free_bytes, per_request=room.bytes_per_request)


# ---- three requests in forty-eight cells, told twice: the story that the memory bar opens with

CELLS, CELLS_IN_BLOCK = 48, 4
THREE = (Request(1, 16, 5), Request(2, 8, 2), Request(3, 16, 3))  # maximum, written at the start
EVENTS = "g,g,g,g,g,g,f2,a12"  # six tokens each; request 2 has finished; one comes that may need twelve cells


@cache
def _story() -> tuple[Moment, ...]:
    return tell(CELLS, CELLS_IN_BLOCK, THREE, parse(EVENTS, CELLS))


def _refused() -> NoHole:
    return _story()[-1].reserved.refused(len(THREE) + 1)


@claim("batching.m6.used", "显存条开头，存着 token 的格子占全部的比例", "cells that hold a token at the start of the memory bar, of all")
def _():
    filled = _story()[0].reserved.fill
    return computed(filled.written / filled.total, "ratio", "cells written / all cells", written=filled.written, cells=filled.total)


@claim("batching.m6.reserved", "显存条开头，预留掉的格子", "cells reserved at the start of the memory bar")
def _():
    return computed(_story()[0].reserved.fill.taken, "count", "Σ maximum", maximum=", ".join(str(r.maximum) for r in THREE))


@claim("batching.m6.taken_in_pages", "显存条开头，分页领走的格子", "cells taken by pages at the start of the memory bar")
def _():
    written = ", ".join(str(r.prompt) for r in THREE)
    return computed(_story()[0].paged.fill.taken, "count", "Σ ⌈written / block⌉ × block", written=written, block=CELLS_IN_BLOCK)


@claim("batching.m6.wanted", "请求 4 至多要写的格子", "cells that request 4 may need")
def _():
    return computed(_refused().wanted, "count", "setting of the example")


@claim("batching.m6.free", "拒绝请求 4 时空着的格子", "cells free when request 4 is refused")
def _():
    return computed(_refused().free, "count", "cells − Σ reserved", cells=CELLS, reserved=_story()[-1].reserved.fill.taken)


@claim("batching.m6.longest", "拒绝请求 4 时最长的一段空格", "longest hole when request 4 is refused")
def _():
    return computed(_refused().largest, "count", "longest hole", cells=CELLS, free=_refused().free)


# ---- blocks


@claim("batching.block.bytes", "锚点一块 KV 的大小", "KV bytes of one block of the anchor")
def _():
    each = kv.per_token(_anchor()["model"]).bytes
    return computed(BLOCK * each, "B", "tokens per block × KV per token", block=BLOCK, kv_per_token=each)


@claim("batching.block.waste_bytes", "锚点一个请求最后一块里最多空着的", "at most this much is empty in the last block of one request")
def _():
    each = kv.per_token(_anchor()["model"]).bytes
    return computed((BLOCK - 1) * each, "B", "(tokens per block − 1) × KV per token", block=BLOCK, kv_per_token=each)


@claim("batching.block.waste_share", "4K 的请求里，最后一块最多空着的比例", "the same as a share of the blocks of a request of 4K tokens")
def _():
    """Worst for 4,081 tokens, which open the last block for a single one."""
    blocks = BlockPool(CONTEXT, BLOCK).blocks_for(CONTEXT)
    return computed((BLOCK - 1) / (blocks * BLOCK), "ratio", "(tokens per block − 1) / (blocks × tokens per block)", block=BLOCK, blocks=blocks)


@claim("batching.state_in_blocks", "锚点一份循环状态相当于几块 KV", "blocks of KV that one recurrent state of the anchor is as large as")
def _():
    state, block = facts.model(_anchor()["model"]).state_bytes, BLOCK * kv.per_token(_anchor()["model"]).bytes
    return computed(state / block, "count", "state / block", state=state, block=block)


# ---- what it costs on the anchor


@claim("batching.anchor.kernel_cost", "分页内核慢到上限时，batch 58 的一步变长的比例", "how much longer the step at batch 58 takes if the paged kernel is slower by the most reported")
def _():
    """An extrapolation: the share of the step that reads KV grows by the published figure, the rest stays."""
    step = roofline.decode(**_anchor(), batch=FULL_BATCH, context=CONTEXT)
    slower = facts.papers()["vllm"]["kernel_slower"]["high"]
    bytes_ = FULL_BATCH * CONTEXT * kv.per_token(_anchor()["model"]).bytes
    return computed(
        slower * bytes_ / step.bytes_per_step, "ratio", "kernel slower × KV bytes / bytes of the step",
        kernel_slower=slower, kv_bytes=bytes_, step_bytes=step.bytes_per_step, batch=FULL_BATCH, context=CONTEXT,
    )  # fmt: skip


@claim("batching.anchor.recompute_seconds", "锚点重读 4K 个 token", "the anchor reading 4K tokens again")
def _():
    again = roofline.prefill(**_anchor(), prompt=CONTEXT)
    return computed(again.seconds, "s", "max(FLOPs / peak, bytes / bandwidth)", tokens=CONTEXT, flops=again.flops, bytes=again.bytes)


def _swapped() -> float:
    model = facts.model(_anchor()["model"])
    return CONTEXT * kv.per_token(model.id).bytes + model.state_bytes


@claim("batching.anchor.swap_bytes", "换出一个 4K 请求要搬的字节", "bytes moved to swap a request of 4K tokens out")
def _():
    model = facts.model(_anchor()["model"])
    return computed(_swapped(), "B", "4096 × KV per token + state", kv_per_token=kv.per_token(model.id).bytes, state=model.state_bytes)


@claim("batching.anchor.swap_even", "换出再换回，与重读一样快的通道", "link at which swapping out and in takes as long as reading again")
def _():
    seconds = roofline.prefill(**_anchor(), prompt=CONTEXT).seconds
    return computed(2 * _swapped() / seconds, "B/s", "2 × bytes swapped / time to read again", bytes=_swapped(), seconds=seconds)


# ---- one prompt, four answers: its length is no multiple of a block

PROMPT, ANSWERS = 1000, 4
SHORT, WRITTEN = 20, 200


def _answers(prompt: int, written: int) -> tuple[BlockPool, list[Copy]]:
    """The pool and the copies made, once each answer has written so many tokens."""
    pool, first, copies = BlockPool(ANSWERS * (prompt + written), BLOCK), Table(), []
    pool.extend(first, prompt)
    tables = [first, *(pool.fork(first) for _ in range(ANSWERS - 1))]
    for _ in range(written):
        for table in tables:
            copies += pool.extend(table, 1)
    return pool, copies


def _saved(prompt: int) -> Quantity:
    pool, _copies = _answers(prompt, WRITTEN)
    apart = ANSWERS * pool.blocks_for(prompt + WRITTEN)
    return computed(
        1 - pool.used / apart, "ratio", "1 − blocks shared / blocks apart",
        prompt=prompt, answers=ANSWERS, written=WRITTEN, block=BLOCK, shared=pool.used, apart=apart,
    )  # fmt: skip


@claim("batching.sharing.long", "四个回答共享 1,000 个 token 的 prompt、各写 200 个时省下的块", "blocks saved by four answers of 200 tokens that share a prompt of 1,000")
def _():
    return _saved(PROMPT)


@claim("batching.sharing.short", "四个回答共享 20 个 token 的 prompt、各写 200 个时省下的块", "blocks saved by four answers of 200 tokens that share a prompt of 20")
def _():
    return _saved(SHORT)


@claim("batching.quiz.blocks", "1,000 个 token 要几块", "blocks for 1,000 tokens")
def _():
    return computed(BlockPool(PROMPT, BLOCK).blocks_for(PROMPT), "count", "⌈tokens / tokens per block⌉", tokens=PROMPT, block=BLOCK)


@claim("batching.quiz.copies", "四个回答都写下第一个 token 后，复制过的块", "blocks copied once each of four answers has written its first token")
def _():
    _pool, copies = _answers(PROMPT, 1)
    return computed(len(copies), "count", "answers − 1: the last to write has the block to itself", answers=ANSWERS, tokens=PROMPT, block=BLOCK)
