"""Lesson 4: a worked example, what four bits really take, what fewer bytes promise on the anchor, and what a full batch leaves
of the promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from compute import facts, kv, roofline
from compute.claims.claim import claim, computed
from compute.quantity import Quantity
from compute.quantize import matrices
from compute.quantize.examples import WORKED, squeeze
from compute.quantize.examples import weights as few
from compute.quantize.grid import Block, Grid, Quantized, Uniform, kv_vector_bits, quantize, storage_bits
from compute.quantize.paired import Change, Verdict, noise_floor, verdict
from compute.quantize.schemes import REST_BITS, SCHEMES

CONTEXT, FULL_BATCH = 4096, 58  # lesson 1's
GROUP = 128  # weights to a scale, where nothing else is said
MINI = "mini-256"


# ---- four weights by hand

QUIZ = (0.60, -0.25, 0.07, 0.34)


def _squeezed(weights: tuple[float, ...], bits: int) -> Quantized:
    return quantize(np.array([weights], np.float32), Grid(Uniform(bits), "channel"))


def _row(weights: tuple[float, ...]) -> str:
    return ", ".join(f"{w:g}" for w in weights)


@claim("quantize.example.scale", "例子里的缩放因子", "scale of the example")
def _():
    scale = float(_squeezed(WORKED, 4).steps.scales[0, 0])
    return computed(scale, "count", "max |w| / (2^(bits − 1) − 1), as a 16-bit float", weights=_row(WORKED), bits=4)


@claim("quantize.example.worst_error", "例子里偏得最多的权重偏了多少", "largest error of the example")
def _():
    made = _squeezed(WORKED, 4)
    worst = float(np.abs(made.restored() - np.float32(WORKED)).max())
    return computed(worst, "count", "max |round(w / s) · s − w|", weights=_row(WORKED), scale=float(made.steps.scales[0, 0]))


@claim("quantize.example.half_step", "例子里误差的上限：半格", "half a step of the example, which no error exceeds")
def _():
    scale = float(_squeezed(WORKED, 4).steps.scales[0, 0])
    return computed(scale / 2, "count", "s / 2", scale=scale)


@claim("quantize.example.bits", "例子里每个权重真正占的位数", "bits that a weight of the example really takes")
def _():
    made = _squeezed(WORKED, 4)
    return computed(made.bits_per_weight, "bit", "4 + 16 / weights that share the scale", weights=len(WORKED))


@claim("quantize.quiz.restored", "三位的例子里，0.34 还原成多少", "what 0.34 becomes in the example with three bits")
def _():
    made = _squeezed(QUIZ, 3)
    return computed(float(made.restored()[0, 3]), "count", "round(w / s) · s, s = max |w| / 3", weights=_row(QUIZ), scale=float(made.steps.scales[0, 0]))


# ---- bits of a weight, everything included

SIZE = 4096  # rows and columns of the matrix that they are counted on
COUNTED = ("int8-channel", "int4-tensor", "int4-channel", "int4-g128", "int4-g64", "int4-g32", "int4-g32-asym", "mxfp4", "nvfp4", "nf4", "nf4-double")


def _bits(grid: Grid) -> float:
    return storage_bits(grid, SIZE, SIZE) / SIZE**2


for _name in COUNTED:

    def _bits_of(name=_name) -> Quantity:
        grid = SCHEMES[name].weights
        return computed(
            _bits(grid), "bit", "(codes + scales + zero points) / weights", scheme=name, matrix=f"{SIZE} × {SIZE}", code_bits=grid.numbers.bits,
            block=grid.block, scale_bits=grid.scales.bits,
        )  # fmt: skip

    claim(f"quantize.bits.{_name}", f"{_name}：每个权重真正占的位数", f"{_name}: bits that a weight really takes")(_bits_of)


@claim("quantize.bits.q4_1", "Q4_1：每个权重真正占的位数", "Q4_1: bits that a weight really takes")
def _():
    return computed(4 + (16 + 16) / 32, "bit", "4 + (scale + minimum) / 32 weights", scale_bits=16, minimum_bits=16, block=32)


@claim("quantize.ratio.int4-g128", "INT4、128 个一组，字节少到几分之一", "INT4 with groups of 128: times fewer bytes than 16 bits")
def _():
    bits = _bits(SCHEMES["int4-g128"].weights)
    return computed(16 / bits, "×", "16 / bits per weight", bits=bits)


# ---- the textbook's 70B


def _textbook(bits: float) -> float:
    return facts.model("70b-dense").parameters_per_token * bits / 8


@claim("quantize.textbook.four_bits.bytes", "70B 模型，按正好 4 位算", "70B weights at exactly four bits")
def _():
    return computed(_textbook(4), "B", "parameters × 4 / 8", parameters=facts.model("70b-dense").parameters_per_token)


for _name in ("int4-g128", "int4-g32"):

    def _textbook_bytes(name=_name) -> Quantity:
        bits = _bits(SCHEMES[name].weights)
        return computed(_textbook(bits), "B", "parameters × bits per weight / 8", parameters=facts.model("70b-dense").parameters_per_token, bits=bits)

    def _textbook_speed(name=_name) -> Quantity:
        bits, bandwidth = _bits(SCHEMES[name].weights), facts.chip("h100-sxm").bandwidth_bytes_per_s
        return computed(bandwidth / _textbook(bits), "token/s", "bandwidth / weight bytes", bandwidth=bandwidth, bytes=_textbook(bits))

    claim(f"quantize.textbook.{_name}.bytes", f"70B 模型，{_name} 真正占的字节", f"70B weights as {_name}, everything included")(_textbook_bytes)
    claim(f"quantize.textbook.{_name}.decode_bound", f"70B 模型，{_name} 的带宽上限", f"bandwidth bound of the 70B model as {_name}")(_textbook_speed)


# ---- the anchor, writing for one


def _anchor():
    names = facts.anchor()
    return facts.model(names["model"]), facts.chip(names["chip"])


for _group in (64, 32):

    def _group_bytes(group=_group) -> Quantity:
        model, _chip = _anchor()
        each = roofline.weight_bytes(4, group)
        return computed(model.parameters_per_token * each, "B", "parameters × (4 + 16 / group) / 8", parameters=model.parameters_per_token, group=group)

    def _group_bound(group=_group) -> Quantity:
        model, chip = _anchor()
        bytes_ = model.parameters_per_token * roofline.weight_bytes(4, group)
        return computed(chip.bandwidth_bytes_per_s / bytes_, "token/s", "bandwidth / INT4 bytes", bandwidth=chip.bandwidth_bytes_per_s, bytes=bytes_)

    claim(f"quantize.anchor.g{_group}.bytes", f"锚点 INT4、{_group} 个一组，每个 token 要读的字节", f"bytes read per token of the anchor, INT4, groups of {_group}")(_group_bytes)
    claim(f"quantize.anchor.g{_group}.decode_bound", f"锚点 INT4、{_group} 个一组的带宽上限", f"bandwidth bound of the anchor, INT4, groups of {_group}")(_group_bound)


def _with_plain_head() -> float:
    model, _chip = _anchor()
    head = sum(m.per_token for m in model.matrices if m.name == "lm_head")
    return (model.parameters_per_token - head) * roofline.weight_bytes(4, GROUP) + head * REST_BITS / 8


@claim("quantize.anchor.head_share", "锚点的 lm_head 占相乘参数的比例", "lm_head's share of the anchor's multiplied parameters")
def _():
    model, _chip = _anchor()
    head = sum(m.per_token for m in model.matrices if m.name == "lm_head")
    return computed(head / model.parameters_per_token, "ratio", "lm_head / parameters", lm_head=head, parameters=model.parameters_per_token)


@claim("quantize.anchor.head16.bytes", "锚点 INT4、lm_head 留在 16 位，每个 token 要读的字节", "bytes read per token of the anchor in INT4 with lm_head left in 16 bits")
def _():
    head = sum(m.per_token for m in _anchor()[0].matrices if m.name == "lm_head")
    return computed(_with_plain_head(), "B", "(parameters − lm_head) × (4 + 16/128) / 8 + lm_head × 2", parameters=_anchor()[0].parameters_per_token, lm_head=head)


@claim("quantize.anchor.head16.decode_bound", "锚点 INT4、lm_head 留在 16 位的带宽上限", "bandwidth bound of the anchor in INT4 with lm_head left in 16 bits")
def _():
    bandwidth = _anchor()[1].bandwidth_bytes_per_s
    return computed(bandwidth / _with_plain_head(), "token/s", "bandwidth / bytes", bandwidth=bandwidth, bytes=_with_plain_head())


@claim("quantize.smollm2.head_share", "SmolLM2 的 lm_head 占相乘参数的比例", "lm_head's share of SmolLM2's multiplied parameters")
def _():
    model = facts.model("smollm2-135m")
    head = sum(m.per_token for m in model.matrices if m.name == "lm_head")
    return computed(head / model.parameters_per_token, "ratio", "lm_head / parameters", lm_head=head, parameters=model.parameters_per_token)


# ---- the anchor, with a context and with company


def _decode(batch: int, weight_bits: int) -> roofline.Decode:
    model, chip = _anchor()
    return roofline.decode(model.id, chip.id, batch=batch, context=CONTEXT, weight_bits=weight_bits, group=GROUP)


def _gain(batch: int) -> Quantity:
    plain, small = _decode(batch, 16), _decode(batch, 4)
    return computed(
        plain.step_seconds / small.step_seconds, "×", "step in 16 bits / step in INT4, KV and state in 16 and 32 bits as before",
        batch=batch, context=CONTEXT, bytes_16=plain.bytes_per_step, bytes_int4=small.bytes_per_step,
    )  # fmt: skip


@claim("quantize.anchor.batch1.speedup", "batch 1、4K 上下文，权重改成 INT4 的加速（理想上界）", "speed-up by INT4 weights at batch 1, 4K context (ideal bound)")
def _():
    return _gain(1)


@claim("quantize.anchor.batch58.speedup", "batch 58、4K 上下文，权重改成 INT4 的加速（理想上界）", "speed-up by INT4 weights at batch 58, 4K context (ideal bound)")
def _():
    return _gain(FULL_BATCH)


@claim("quantize.anchor.even_tokens", "一步里有多少个 token 时，算的时间赶上读 INT4 权重的时间", "tokens in a step at which computing takes as long as reading INT4 weights")
def _():
    """Weights alone: 2 FLOP a weight and token, in 16-bit arithmetic, against the bytes of the weight."""
    _model, chip = _anchor()
    each = roofline.weight_bytes(4, GROUP)
    return computed(int(roofline.ridge(chip) * each / 2), "token", "⌊ridge × bytes per weight / 2⌋", ridge=roofline.ridge(chip), bytes_per_weight=each)


# ---- keys and values in fewer bits: each head's vector with a 16-bit scale and a zero point of its own


def _kv_bits(bits: int) -> float:
    """Of one number in the cache."""
    width = kv.heads(_anchor()[0].id).key_dim
    return kv_vector_bits(width, bits) / width


def _requests(weight_bits: int, kv_bits: float) -> Quantity:
    model, chip = _anchor()
    room = kv.capacity(model.id, chip.id, CONTEXT, weight_bits=weight_bits, group=GROUP, kv_bits=kv_bits)
    return computed(
        room.requests, "request", "⌊(memory − all weights) / (4096 × KV + state)⌋",
        free=room.free_bytes, per_request=room.bytes_per_request, weight_bits=weight_bits, kv_bits=kv_bits,
    )  # fmt: skip


for _kv in (8, 4):

    def _kv_bytes(bits=_kv) -> Quantity:
        each = _kv_bits(bits)
        return computed(kv.per_token(_anchor()[0].id, each).bytes, "B", "values × ((head_dim + 1) × bits + 16) / head_dim / 8", bits_per_value=each, bits=bits)

    claim(f"quantize.anchor.kv{_kv}.bytes", f"锚点每个 token 的 KV，{_kv} 位", f"KV of one token of the anchor in {_kv} bits")(_kv_bytes)
    claim(f"quantize.anchor.kv{_kv}.requests", f"KV 是 {_kv} 位时，一张 H100 能放的 4K 请求", f"requests of 4K tokens on one H100 with KV in {_kv} bits")(
        lambda bits=_kv: _requests(16, _kv_bits(bits))
    )


@claim("quantize.anchor.int4_kv8.requests", "权重 INT4、KV 8 位时，一张 H100 能放的 4K 请求", "requests of 4K tokens on one H100 with INT4 weights and KV in 8 bits")
def _():
    return _requests(4, _kv_bits(8))


@claim("quantize.anchor.int4.requests", "权重是 INT4 时，一张 H100 能放的 4K 请求", "requests of 4K tokens on one H100 beside INT4 weights")
def _():
    return _requests(4, 16)


@claim("quantize.anchor.batch58_kv8.speedup", "batch 58、4K 上下文，权重改成 INT4、KV 改成 8 位的加速（理想上界）", "speed-up by INT4 weights and 8-bit KV at batch 58, 4K context (ideal bound)")
def _():
    model, chip = _anchor()
    plain = _decode(FULL_BATCH, 16)
    small = roofline.decode(model.id, chip.id, batch=FULL_BATCH, context=CONTEXT, weight_bits=4, group=GROUP, kv_bits=_kv_bits(8))
    return computed(
        plain.step_seconds / small.step_seconds, "×", "step in 16 bits / step in INT4 with 8-bit KV",
        batch=FULL_BATCH, context=CONTEXT, bytes_16=plain.bytes_per_step, bytes_small=small.bytes_per_step,
    )  # fmt: skip


# ---- the 24 weights that the instrument opens with

OUTLIER, FEW_TO_A_GROUP = 6.0, 8


def _of_few(field: str, unit: str, formula: str, outlier: float, block: Block) -> Quantity:
    made = squeeze(few("normal", 0, outlier), Grid(Uniform(4), block))
    return computed(getattr(made, field), unit, formula, weights="24 of N(0, 0.3²), seed 0", outlier=outlier, bits=4, block=block)


for _state, _outlier, _block, _zh, _en in (
    ("plain", 0.0, "tensor", "24 个权重，没有离群值", "24 weights without an outlier"),
    ("outlier", OUTLIER, "tensor", "24 个权重，一个离群值", "24 weights with an outlier"),
    ("groups", OUTLIER, FEW_TO_A_GROUP, "24 个权重，一个离群值，8 个一组", "24 weights with an outlier, in groups of 8"),
):
    for _field, _unit, _formula, _what, _which in (
        ("zeros", "count", "weights with ŵ = 0 and w ≠ 0", "被挤成 0 的权重", "weights squeezed to 0"),
        ("relative_error", "ratio", "mean of |ŵ − w| / |w| over w ≠ 0", "平均相对误差", "mean relative error"),
        ("bits_per_weight", "bit", "(codes + scales) / weights", "每个权重真正占的位数", "bits that a weight really takes"),
    ):
        claim(f"quantize.few.{_state}.{_field}", f"{_zh}：{_what}", f"{_en}: {_which}")(
            lambda field=_field, unit=_unit, formula=_formula, outlier=_outlier, block=_block: _of_few(field, unit, formula, outlier, block)
        )


# ---- a row of our own model, and the matrix around it

ROW_OF, ROW = "3.down", 157


def _real(block: Block, field: str, unit: str, formula: str, whole: bool = False) -> Quantity:
    source, grid = matrices.source(MINI, ROW_OF), Grid(Uniform(4), block)
    seen = matrices.whole(source, grid) if whole else matrices.row(source, ROW, grid)
    given = {"model": MINI, "matrix": ROW_OF} | ({} if whole else {"row": ROW}) | {"bits": 4, "block": block}
    return computed(getattr(seen, field), unit, formula, **given)


@claim("quantize.row.peak", "mini-256 的 3.down 第 157 行：最大的权重是均方根的几倍", "row 157 of 3.down of mini-256: largest weight over the root mean square")
def _():
    return _real("channel", "peak", "×", "max |w| / √(mean w²)")


for _block, _name in (("channel", "channel"), (32, "g32")):
    claim(f"quantize.row.{_name}.zeros", f"同一行，INT4，{_name}：变成 0 的权重", f"the same row, INT4, {_name}: weights that become 0")(
        lambda block=_block: _real(block, "zeros", "count", "weights with ŵ = 0 and w ≠ 0")
    )

for _block, _name in (("tensor", "tensor"), ("channel", "channel"), (32, "g32")):
    claim(f"quantize.row.{_name}.matrix_error", f"整个矩阵，INT4，{_name}：误差", f"the whole matrix, INT4, {_name}: error")(
        lambda block=_block: _real(block, "relative_rms", "ratio", "√(Σ(ŵ − w)² / Σw²)", whole=True)
    )


# ---- GPTQ on one matrix: what it does to the output, and to the weights

STEPPED, STEPPED_BITS = "1.out", 3  # as the stepper opens


def _stepped(method: str, what: str) -> Quantity:
    from compute import precompute  # the store of measures knows the claims

    told = precompute.recorded(f"quantize.layers.{STEPPED}.gptq_ratio")
    found = next(row for row in told["whole"] if row["bits"] == STEPPED_BITS)
    formula = "‖(W − Ŵ)X‖ / ‖WX‖" if what == "output" else "‖W − Ŵ‖ / ‖W‖"
    return computed(found[f"{method}_{what}"], "ratio", formula, model=MINI, matrix=STEPPED, bits=STEPPED_BITS, block="channel", method=method)


for _method, _zh in (("rtn", "直接舍入"), ("gptq", "GPTQ")):
    for _what, _zh_what, _en_what in (("output", "输出误差", "output error"), ("weight", "权重误差", "weight error")):
        claim(f"quantize.gptq.{_method}.{_what}", f"mini-256 的 1.out，3 位，{_zh}：{_zh_what}", f"1.out of mini-256, 3 bits, {_method.upper()}: {_en_what}")(
            lambda method=_method, what=_what: _stepped(method, what)
        )


# ---- the noise floor: its own uncertainty

for _end, _zh, _en in (("low", "下端", "lower end"), ("high", "上端", "upper end")):
    claim(f"quantize.floor.{_end}", f"噪声带的 95% 区间：{_zh}", f"95 % interval of the noise floor: {_en}")(
        lambda end=_end: computed(
            getattr(noise_floor(), end), "nat/token", "3σ · √((n − 1) / χ²), n = 5 trainings", floor=noise_floor().value, trainings=len(noise_floor().losses)
        )
    )


@claim("quantize.floor.steps", "噪声带的每次训练有多少步", "steps of each training behind the noise floor")
def _():
    return computed(noise_floor().steps, "step", "steps of the recipe in data/checkpoints/noise-floor.json", tokens=noise_floor().tokens)


# ---- the whole model: which schemes differ, and from what


def _measured() -> dict[str, Change]:
    """Every scheme that is stored for mini-256, with its change of loss: the points of the picture."""
    from compute import precompute  # the store of measures knows the claims

    kept = precompute.stored()
    entries = {name: kept[key] for name in SCHEMES if (key := f"quantize.{MINI}.{name}.loss_change") in kept}
    return {name: Change(e["value"], *e["interval95"], e["n"], 0) for name, e in entries.items()}


def _judged() -> dict[str, Verdict]:
    floor = noise_floor().value
    return {name: verdict(change, floor) for name, change in _measured().items()}


def _given() -> dict[str, Any]:
    return {"model": MINI, "noise_floor": noise_floor().value}


@claim("quantize.mini.schemes", "在 mini-256 上量过的方案", "schemes measured on mini-256")
def _():
    return computed(len(_measured()), "count", "entries quantize.mini-256.….loss_change", model=MINI)


for _verdict, _zh, _en in (
    ("none", "测不出差别的方案（95% 区间含零）", "schemes without a measurable difference (the 95 % interval holds zero)"),
    ("noise", "测得出、没有超出噪声带的方案", "schemes whose difference is measurable and within the noise floor"),
    ("beyond", "超出噪声带的方案", "schemes beyond the noise floor"),
):
    claim(f"quantize.mini.{_verdict}", f"mini-256 上{_zh}", f"{_en}, on mini-256")(
        lambda which=_verdict: computed(list(_judged().values()).count(which), "count", f"schemes judged “{which}”", **_given())
    )


@claim("quantize.mini.least_bits", "mini-256 上没有超出噪声带的方案里，权重占位最少的", "fewest bits per weight among the schemes within the noise floor, on mini-256")
def _():
    from compute import precompute

    judged = _judged()
    bits = {name: precompute.stored()[f"quantize.{MINI}.{name}.bits_per_weight"]["value"] for name in judged if SCHEMES[name].weights and judged[name] != "beyond"}
    least = min(bits, key=bits.get)
    return computed(bits[least], "bit", "least bits per weight among those not beyond", scheme=least, **_given())


# ---- one scheme on each kind of text

DOMAINS_OF = "int4-channel"

for _domain, _zh, _en in (
    ("modern", "现代中文", "modern Chinese"), ("classical", "古文诗词", "classical Chinese"), ("english", "英文", "English"),
    ("stories", "中文故事", "Chinese stories"), ("stories-en", "英文故事", "English stories"),
):  # fmt: skip

    def _on(domain=_domain) -> Quantity:
        from compute import precompute

        told = precompute.recorded(f"quantize.{MINI}.{DOMAINS_OF}.loss_change")["domains"][domain]
        made = computed(told["change"], "nat/token", "loss(scheme) − loss(fp32) on this kind of text", model=MINI, scheme=DOMAINS_OF, domain=domain, tokens=told["tokens"])
        return replace(made, interval95=(told["low"], told["high"]))

    claim(f"quantize.mini.{DOMAINS_OF}.{_domain}", f"{DOMAINS_OF}，{MINI}，{_zh}：损失比 fp32 多多少", f"{DOMAINS_OF} on {MINI}, {_en}: loss above fp32")(_on)


# ---- the giants that SmolLM2 grew by itself

PUBLIC = "smollm2-135m"


def _giant(part: str = "qkv") -> list[dict[str, Any]]:
    """Matrices of this kind whose largest input channel is the one that is largest most often, the worst first."""
    from compute import precompute

    rows = [row for row in precompute.recorded(f"quantize.{PUBLIC}.outlier_ratio")["matrices"] if row["matrix"].endswith(f".{part}")]
    channels = [row["channel"] for row in rows]
    usual = max(channels, key=channels.count)
    return sorted((row for row in rows if row["channel"] == usual), key=lambda row: -row["ratio"])


@claim("quantize.outlier.smollm2.channel", "SmolLM2 的 qkv 里，最常是最大的那个输入通道的编号", "number of the input channel that is most often the largest of SmolLM2's qkv")
def _():
    return computed(_giant()[0]["channel"], "count", "argmax over channels of max |x|, most frequent over layers", model=PUBLIC, matrices="qkv of every layer")


@claim("quantize.outlier.smollm2.layers", "SmolLM2 有多少层的 qkv，最大的输入通道是它", "layers of SmolLM2 in whose qkv this channel is the largest")
def _():
    return computed(len(_giant()), "layer", "layers whose argmax is this channel", model=PUBLIC, channel=_giant()[0]["channel"])


@claim("quantize.outlier.smollm2.ratio", "最突出的一层里，它是中位通道的几倍", "in the worst of these layers, its maximum over the median channel's")
def _():
    worst = _giant()[0]
    return computed(worst["ratio"], "×", "max |x| of the channel / median over channels of max |x|", model=PUBLIC, matrix=worst["matrix"], channel=worst["channel"])
