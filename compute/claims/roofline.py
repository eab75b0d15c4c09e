"""Lesson 1: the anchor under the roofline, KV bytes, capacity, upgrades."""

from __future__ import annotations

from functools import cache

from compute import facts, kv, roofline
from compute.claims.claim import claim, computed
from compute.errors import Refused
from compute.quantity import Quantity


def _anchor():
    names = facts.anchor()
    return facts.model(names["model"]), facts.chip(names["chip"])


# ---- the anchor: what one token costs


@claim("anchor.weights_read", "锚点每个 token 参与相乘的参数", "parameters the anchor multiplies with for each token")
def _():
    model, _ = _anchor()
    parts = {m.name: m.per_token for m in model.matrices}
    return computed(model.parameters_per_token, "parameter", "Σ matrices multiplied (lm_head included, embedding row not)", **parts)


@claim("anchor.weight_bytes", "锚点每个 token 要读的权重字节", "weight bytes the anchor reads for each token")
def _():
    model, _ = _anchor()
    return computed(2 * model.parameters_per_token, "B", "parameters × 2 B (bf16)", parameters=model.parameters_per_token)


@claim("anchor.decode_bound", "只读权重时，带宽允许的上限", "the most that bandwidth allows when only weights are read")
def _():
    model, chip = _anchor()
    bytes_ = 2 * model.parameters_per_token
    return computed(
        chip.bandwidth_bytes_per_s / bytes_, "token/s", "bandwidth / weight bytes", bandwidth=chip.bandwidth_bytes_per_s, weight_bytes=bytes_
    )


@claim("anchor.compute_bound", "按算力算出的上限", "the most that arithmetic would allow")
def _():
    model, chip = _anchor()
    flops = 2 * model.parameters_per_token
    return computed(chip.peak / flops, "token/s", "peak / (2 × parameters)", peak=chip.peak, parameters=model.parameters_per_token)


@claim("anchor.compute_share", "batch 1 时用到的算力", "share of the arithmetic in use at batch 1")
def _():
    model, chip = _anchor()
    ridge = roofline.ridge(chip)
    return computed(1 / ridge, "ratio", "1 FLOP/byte (2 FLOP per 2-byte weight) / ridge point", ridge=ridge)


@claim("anchor.ridge", "H100 的转折点", "the H100's ridge point")
def _():
    _, chip = _anchor()
    return computed(roofline.ridge(chip), "FLOP/B", "peak / bandwidth", peak=chip.peak, bandwidth=chip.bandwidth_bytes_per_s)


@claim("anchor.read_seconds", "读一遍权重的时间", "time to read the weights once")
def _():
    model, chip = _anchor()
    bytes_ = 2 * model.parameters_per_token
    return computed(
        bytes_ / chip.bandwidth_bytes_per_s, "s", "weight bytes / bandwidth", weight_bytes=bytes_, bandwidth=chip.bandwidth_bytes_per_s
    )


@claim("anchor.compute_seconds", "算一个 token 的时间", "time to compute one token")
def _():
    model, chip = _anchor()
    return computed(
        2 * model.parameters_per_token / chip.peak, "s", "2 × parameters / peak", parameters=model.parameters_per_token, peak=chip.peak
    )


@claim("upgrade.compute", "A100 → H100 的算力之比", "A100 → H100, ratio of arithmetic")
def _():
    a, h = facts.chip("a100-80g-sxm"), facts.chip("h100-sxm")
    return computed(h.peak / a.peak, "×", "peak(H100) / peak(A100)", h100=h.peak, a100=a.peak)


@claim("upgrade.decode", "A100 → H100 的解码之比", "A100 → H100, ratio of decode")
def _():
    a, h = facts.chip("a100-80g-sxm"), facts.chip("h100-sxm")
    ratio = h.bandwidth_bytes_per_s / a.bandwidth_bytes_per_s
    return computed(
        ratio, "×", "bandwidth(H100) / bandwidth(A100)", h100=h.bandwidth_bytes_per_s, a100=a.bandwidth_bytes_per_s
    )


# ---- what is kept


@claim("anchor.kv_per_token", "锚点每个 token 的 KV", "KV of one token of the anchor")
def _():
    model, _ = _anchor()
    kept = kv.per_token(model.id)
    layers = kept.rows[0].layers
    return computed(kept.bytes, "B", "2 × KV heads × head_dim × 2 B × layers", kv_heads=4, head_dim=256, layers=layers)


@claim("anchor.kv_as_mha", "同样的层若用 MHA", "the same layers as MHA")
def _():
    model, _ = _anchor()
    kept = kv.per_token(model.id)
    return computed(kept.as_mha_bytes, "B", "2 × query heads × head_dim × 2 B × layers", query_heads=24, head_dim=256, layers=kept.rows[0].layers)


@claim("anchor.state_bytes", "锚点每个请求的循环状态", "recurrent state of one request of the anchor")
def _():
    model, _ = _anchor()
    return computed(model.state_bytes, "B", "layers × value heads × key dim × value dim × 4 B", layers=48, value_heads=48, key_dim=128, value_dim=128)


@claim("anchor.requests_4k", "一张 H100 能放的 4K 请求", "requests of 4K tokens on one H100")
def _():
    model, chip = _anchor()
    room = kv.capacity(model.id, chip.id, 4096)
    return computed(
        room.requests, "request", "⌊(memory − all weights) / (4096 × KV + state)⌋", free=room.free_bytes, per_request=room.bytes_per_request
    )


@claim("anchor.requests_reserving_maximum", "每个都按最大长度预留时", "requests when each reserves the maximum length")
def _():
    model, chip = _anchor()
    room = kv.capacity(model.id, chip.id, 4096)
    return computed(
        room.requests_reserving_maximum, "request", "⌊(memory − all weights) / (maximum × KV + state)⌋",
        free=room.free_bytes, maximum=room.maximum_context,
    )  # fmt: skip


def _decode_claim(batch: int, field: str, unit: str, formula: str) -> Quantity:
    model, chip = _anchor()
    step = roofline.decode(model.id, chip.id, batch=batch, context=4096)
    return computed(
        getattr(step, field), unit, formula, batch=batch, context=4096, bytes_per_step=step.bytes_per_step, bandwidth=chip.bandwidth_bytes_per_s
    )


STEP_FORMULA = "(weights + batch × (4096 × KV + 2 × state)) / bandwidth"


@claim("anchor.batch1.step_seconds", "batch 1、4K 上下文的一步", "one step at batch 1, 4K context")
def _():
    return _decode_claim(1, "step_seconds", "s", STEP_FORMULA)


@claim("anchor.batch1.tokens_per_second", "batch 1 的吞吐", "throughput at batch 1")
def _():
    return _decode_claim(1, "tokens_per_second", "token/s", f"batch / ({STEP_FORMULA})")


@claim("anchor.batch58.step_seconds", "batch 58、4K 上下文的一步", "one step at batch 58, 4K context")
def _():
    return _decode_claim(58, "step_seconds", "s", STEP_FORMULA)


@claim("anchor.batch58.tokens_per_second", "batch 58 的总吞吐", "total throughput at batch 58")
def _():
    return _decode_claim(58, "tokens_per_second", "token/s", f"batch / ({STEP_FORMULA})")


@claim("anchor.prefill_1000.seconds", "读 1,000 个 token 的 prompt", "reading a prompt of 1,000 tokens")
def _():
    model, chip = _anchor()
    p = roofline.prefill(model.id, chip.id, prompt=1000)
    return computed(p.seconds, "s", "(2 × parameters × n + attention) / peak", n=1000, flops=p.flops, peak=chip.peak)


@claim("anchor.prefill_1000.tokens_per_second", "读 1,000 个 token 的速度", "speed of reading 1,000 tokens")
def _():
    model, chip = _anchor()
    p = roofline.prefill(model.id, chip.id, prompt=1000)
    return computed(p.tokens_per_second, "token/s", "n / prefill time", n=1000, seconds=p.seconds)


@claim("anchor.prefill_32k.seconds", "读 32,768 个 token 的 prompt", "reading a prompt of 32,768 tokens")
def _():
    model, chip = _anchor()
    p = roofline.prefill(model.id, chip.id, prompt=32768)
    return computed(p.seconds, "s", "(2 × parameters × n + Σ 2 n² × heads × head_dim) / peak", n=32768, flops=p.flops, peak=chip.peak)


@claim("anchor.int4.bytes", "INT4 每个 token 要读的字节", "bytes read per token in INT4")
def _():
    model, _ = _anchor()
    each = roofline.weight_bytes(4, 128)
    return computed(
        model.parameters_per_token * each, "B", "parameters × (4 + 16/128) / 8 B", parameters=model.parameters_per_token, bytes_per_weight=each
    )


@claim("anchor.int4.decode_bound", "INT4 的带宽上限", "bandwidth bound in INT4")
def _():
    model, chip = _anchor()
    bytes_ = model.parameters_per_token * roofline.weight_bytes(4, 128)
    return computed(chip.bandwidth_bytes_per_s / bytes_, "token/s", "bandwidth / INT4 bytes", bandwidth=chip.bandwidth_bytes_per_s, bytes=bytes_)


@claim("kv.without_cache", "不用缓存，K/V 计算次数", "K/V computations without a cache")
def _():
    return computed(kv.computations(4, 1000).without_cache, "count", "Σ (4 + i), i = 0 … 999", prompt=4, new=1000)


@claim("kv.with_cache", "用缓存，K/V 计算次数", "K/V computations with a cache")
def _():
    return computed(kv.computations(4, 1000).with_cache, "count", "4 + 1000 − 1", prompt=4, new=1000)


@claim("kv.saving", "缓存省下的倍数", "times fewer with a cache")
def _():
    c = kv.computations(4, 1000)
    return computed(c.without_cache / c.with_cache, "×", "without / with", without=c.without_cache, with_cache=c.with_cache)


for _model in ("llama-2-7b", "llama-3-8b", "llama-3-70b", "deepseek-v3"):

    def _kv(model=_model):
        kept = kv.per_token(model)
        row = kept.rows[0]
        return computed(kept.bytes, "B", "layers × values per token × 2 B", layers=row.layers, values=row.values_per_token)

    claim(f"{_model}.kv_per_token", f"{_model} 每个 token 的 KV", f"KV of one token, {_model}")(_kv)


# ---- the textbook: 70 billion parameters at two bytes


def _textbook():
    return facts.model("70b-dense"), facts.chip("h100-sxm")


@claim("textbook.bytes", "70B 的权重字节", "weight bytes of 70B")
def _():
    model, _ = _textbook()
    return computed(2 * model.parameters, "B", "parameters × 2 B", parameters=model.parameters)


@claim("textbook.read_seconds", "读一遍 70B 权重", "reading 70B weights once")
def _():
    step = roofline.decode("70b-dense", "h100-sxm", context=0)
    return computed(step.memory_seconds, "s", "bytes / bandwidth", bytes=step.bytes_per_step, bandwidth=facts.chip("h100-sxm").bandwidth_bytes_per_s)


@claim("textbook.tokens_per_second", "一张卡带宽上的上限", "bound on one card's bandwidth")
def _():
    step = roofline.decode("70b-dense", "h100-sxm", context=0)
    return computed(step.tokens_per_second, "token/s", "1 / read time (needs two 80 GB cards)", cards=step.cards_needed)


LECTURE_PEAK = 1000e12  # lesson 38 rounds the H100's 989.5 TFLOP/s


@claim("textbook.compute_seconds", "算一个 token", "computing one token")
def _():
    flops = 2 * facts.model("70b-dense").parameters
    return computed(flops / LECTURE_PEAK, "s", "2 × parameters / 1,000 TFLOP/s (rounded peak)", flops=flops, peak=LECTURE_PEAK)


@claim("textbook.ratio", "搬与算的时间之比", "moving against computing")
def _():
    step = roofline.decode("70b-dense", "h100-sxm", context=0)
    compute_seconds = step.flops_per_step / LECTURE_PEAK
    return computed(step.memory_seconds / compute_seconds, "×", "read time / compute time", read=step.memory_seconds, compute=compute_seconds)


@claim("textbook.cards", "70B 需要的 80 GB 卡", "80 GB cards that 70B needs")
def _():
    step = roofline.decode("70b-dense", "h100-sxm", context=0)
    return computed(step.cards_needed, "card", "⌈140 GB / 80 GB⌉", bytes=step.memory_needed_bytes)


# ---- lesson 1: what a batch shares, what an upgrade buys, what a cache saves

CONTEXT = 4096  # tokens already cached by each request, wherever this course says "4K"


@claim("anchor.context", "本课里每个请求已有的上下文", "context of each request in this lesson")
def _():
    return computed(CONTEXT, "token", "4 × 1024, the setting of this lesson")


@claim("anchor.batch1.bytes", "batch 1、4K 上下文每一步要搬的字节", "bytes moved by one step at batch 1, 4K context")
def _():
    return _decode_claim(1, "bytes_per_step", "B", "weights + 4096 × KV + 2 × state")


@claim("anchor.batch1.compute_seconds", "batch 1、4K 上下文一步的计算时间", "time to compute one step at batch 1, 4K context")
def _():
    return _decode_claim(1, "compute_seconds", "s", "(2 × parameters + attention over 4096 tokens) / peak")


@claim("anchor.batch1.compute_share", "batch 1、4K 上下文时用到的算力", "share of the arithmetic in use at batch 1, 4K context")
def _():
    return _decode_claim(1, "compute_share", "ratio", "compute time / step time")


@claim("anchor.batch58.compute_share", "batch 58、4K 上下文时用到的算力", "share of the arithmetic in use at batch 58, 4K context")
def _():
    return _decode_claim(58, "compute_share", "ratio", "compute time / step time")


@claim("anchor.batch58.intensity", "batch 58 的算术强度", "arithmetic intensity at batch 58")
def _():
    return _decode_claim(58, "intensity", "FLOP/B", "FLOPs / bytes of a step")


@claim("anchor.batch58.cache_bytes", "batch 58 每一步为 KV 与状态搬的字节", "bytes of KV and state moved by one step at batch 58")
def _():
    model, _ = _anchor()
    keys, state = roofline.cache_bytes(model, CONTEXT, 16), model.state_bytes
    return computed(58 * (keys + 2 * state), "B", "batch × (4096 × KV + 2 × state)", batch=58, kv_bytes=keys, state_bytes=state)


@claim("anchor.batch58.slower_step", "batch 1 → 58，一步的时间之比", "batch 1 → 58, ratio of step times")
def _():
    one, full = (_decode_claim(b, "step_seconds", "s", STEP_FORMULA).value for b in (1, 58))
    return computed(full / one, "×", "step(58) / step(1)", batch_58=full, batch_1=one)


@claim("anchor.batch58.more_tokens", "batch 1 → 58，总吞吐之比", "batch 1 → 58, ratio of total throughput")
def _():
    one, full = (_decode_claim(b, "tokens_per_second", "token/s", "batch / step").value for b in (1, 58))
    return computed(full / one, "×", "throughput(58) / throughput(1)", batch_58=full, batch_1=one)


@claim("anchor.any_batch.intensity", "4K 上下文、batch 再大也到不了的算术强度", "intensity that no batch exceeds at 4K context")
def _():
    model, _ = _anchor()
    ops = roofline.decode_ops(model, 1, CONTEXT, 16, 128, 16)
    flops, shared_by_none = sum(op.flops for op in ops), sum(op.kv_bytes + op.state_bytes for op in ops)
    return computed(
        flops / shared_by_none, "FLOP/B", "FLOPs of one request / its own KV and state bytes (weights shared by infinitely many)",
        flops=flops, kv_and_state_bytes=shared_by_none,
    )  # fmt: skip


@claim("anchor.prefill_1000.over_decode", "读 prompt 与逐字写的速度之比", "reading a prompt against writing, ratio of speeds")
def _():
    model, chip = _anchor()
    reading = roofline.prefill(model.id, chip.id, prompt=1000).tokens_per_second
    writing = roofline.decode(model.id, chip.id, batch=1, context=CONTEXT).tokens_per_second
    return computed(reading / writing, "×", "prefill token/s / decode token/s", prefill=reading, decode=writing)


@claim("anchor.prefill_free", "算完之前权重还没读完的最长 prompt", "longest prompt computed before the weights have been read")
def _():
    model, chip = _anchor()
    n = 1
    while roofline.prefill(model.id, chip.id, prompt=n + 1).bound == "memory":
        n += 1
    return computed(n, "token", "largest n with compute time ≤ memory time", ridge=roofline.ridge(chip))


@claim("a100.batch1.compute_share", "A100 上 batch 1、4K 上下文时用到的算力", "share of the A100's arithmetic in use at batch 1, 4K context")
def _():
    model, _ = _anchor()
    step = roofline.decode(model.id, "a100-80g-sxm", batch=1, context=CONTEXT)
    return computed(step.compute_share, "ratio", "compute time / step time", compute_seconds=step.compute_seconds, step_seconds=step.step_seconds)


def _swap(old: str, new: str, attribute: str, formula: str) -> Quantity:
    before, after = (getattr(facts.chip(id), attribute) for id in (old, new))
    return computed(after / before, "×", formula, **{old: before, new: after})


@claim("upgrade.h200_compute", "H100 → H200 的算力之比", "H100 → H200, ratio of arithmetic")
def _():
    return _swap("h100-sxm", "h200-sxm", "peak", "peak(H200) / peak(H100)")


@claim("upgrade.h200_decode", "H100 → H200 的解码之比", "H100 → H200, ratio of decode")
def _():
    return _swap("h100-sxm", "h200-sxm", "bandwidth_bytes_per_s", "bandwidth(H200) / bandwidth(H100)")


@claim("upgrade.l40s_compute", "A100 → L40S 的算力之比", "A100 → L40S, ratio of arithmetic")
def _():
    return _swap("a100-80g-sxm", "l40s", "peak", "peak(L40S) / peak(A100)")


@claim("upgrade.l40s_decode", "A100 → L40S 的解码之比", "A100 → L40S, ratio of decode")
def _():
    return _swap("a100-80g-sxm", "l40s", "bandwidth_bytes_per_s", "bandwidth(L40S) / bandwidth(A100)")


@claim("anchor.kv_4k", "4K 上下文的 KV", "KV of a 4K context")
def _():
    model, _ = _anchor()
    each = kv.per_token(model.id).bytes
    return computed(CONTEXT * each, "B", "4096 × KV per token", kv_per_token=each)


@claim("anchor.free_bytes", "放下全部权重后剩余的显存", "memory left beside all weights")
def _():
    model, chip = _anchor()
    room = kv.capacity(model.id, chip.id, CONTEXT)
    return computed(room.free_bytes, "B", "memory − all weights (vision and MTP parts included)", memory=chip.memory_bytes, weights=room.weights_bytes)


@cache
def _thousand_seconds() -> tuple[float, float]:
    """A prompt of 4 and 1,000 new tokens on the anchor, ideal bound: (every forward over all tokens, prefill then decode)."""
    model, chip = _anchor()
    again = sum(roofline.prefill(model.id, chip.id, prompt=4 + i).seconds for i in range(1000))
    first = roofline.prefill(model.id, chip.id, prompt=4).seconds
    return again, first + sum(roofline.decode(model.id, chip.id, context=4 + i).step_seconds for i in range(1, 1000))


@claim("kv.without_cache_seconds", "不用缓存写 1,000 个 token", "writing 1,000 tokens without a cache")
def _():
    again, _ = _thousand_seconds()
    return computed(again, "s", "Σ prefill time of 4 + i tokens, i = 0 … 999 (ideal bound, batch 1)", prompt=4, new=1000)


@claim("kv.with_cache_seconds", "用缓存写 1,000 个 token", "writing 1,000 tokens with a cache")
def _():
    _, kept = _thousand_seconds()
    return computed(kept, "s", "prefill of 4 + Σ decode step at context 4 + i, i = 1 … 999 (ideal bound, batch 1)", prompt=4, new=1000)


@claim("kv.saving_in_time", "缓存省下的时间倍数", "times faster with a cache")
def _():
    again, kept = _thousand_seconds()
    return computed(again / kept, "×", "time without / time with (ideal bound, batch 1)", without=again, with_cache=kept)


@claim("h200.decode_bound", "锚点在 H200 上,只读权重时的上限", "bandwidth bound of the anchor on an H200, weights only")
def _():
    model, _ = _anchor()
    chip, bytes_ = facts.chip("h200-sxm"), 2 * model.parameters_per_token
    return computed(chip.bandwidth_bytes_per_s / bytes_, "token/s", "bandwidth / weight bytes", bandwidth=chip.bandwidth_bytes_per_s, weight_bytes=bytes_)


@claim("anchor.attention_layers", "锚点里存 KV 的注意力层数", "attention layers of the anchor, which keep KV")
def _():
    model, _ = _anchor()
    return computed(sum(c.layers for c in model.caches), "count", "layers of the config that are full attention", layers=model.layers)


@claim("anchor.state_layers", "锚点里只留循环状态的层数", "layers of the anchor that keep a recurrent state only")
def _():
    model, _ = _anchor()
    attention = sum(c.layers for c in model.caches)
    return computed(model.layers - attention, "count", "all layers − attention layers", layers=model.layers, attention=attention)


# ---- how near real engines come


@claim("engines.of_bound", "真引擎的解码吞吐占理想上界", "decode throughput of real engines over the ideal bound")
def _():
    """Published runs in which decoding rules, 16-bit, on cards whose stated memory holds them."""
    shares = []
    for run in facts.public_runs():
        if run.bits == 16:
            try:
                shares.append(run.tokens_per_second / roofline.bound_of_run(run).tokens_per_second)
            except Refused:
                continue
    first = facts.public_runs()[0]
    return Quantity(
        (min(shares), max(shares)), "ratio", "computed", "published token/s / (batch / ideal step at the mean context)",
        {"runs": len(shares), "engine": "TensorRT-LLM"}, first.source,
    )  # fmt: skip
