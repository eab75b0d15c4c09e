"""The architecture side road: heads that share, latents, states of fixed size, experts that sleep."""

from __future__ import annotations

import math

from compute import facts, kv, latent, recall
from compute.claims.claim import claim, computed
from compute.quantity import Quantity

ANCHOR, DEEPSEEK, CHIP = "qwen3.8-27b", "deepseek-v3", "h100-sxm"
BYTES, STATE_BYTES = 2, 4  # of a number in a KV cache (16 bits), in a recurrent state (FP32)
LONG = 32_768


def _config(model: str) -> dict:
    c = facts.model(model).config
    return c.get("text_config", c)


# ---- many heads, one latent


@claim("arch.anchor.mha_over_gqa", "锚点：同样的层做成 MHA，KV 是 GQA 的几倍", "the anchor: KV of the same layers as MHA over GQA")
def _():
    kept = kv.per_token(ANCHOR)
    return computed(kept.as_mha_bytes / kept.bytes, "×", "query heads / KV heads", query_heads=24, kv_heads=4)


@claim("arch.deepseek.as_mha", "DeepSeek-V3 同样的层若每个头各存 K、V，每个 token 的 KV", "KV of one token of DeepSeek-V3, had each head kept its own K and V")
def _():
    c, heads = _config(DEEPSEEK), kv.heads(DEEPSEEK)
    value = heads.values("mha") * BYTES * c["num_hidden_layers"]
    return computed(value, "B", "heads × (key dim + value dim) × 2 B × layers", heads=heads.query, key_dim=heads.key_dim, value_dim=heads.value_dim, layers=c["num_hidden_layers"])


@claim("arch.deepseek.mha_over_mla", "DeepSeek-V3：各存 K、V 是存潜向量的几倍", "DeepSeek-V3: K and V of every head over the latent")
def _():
    heads = kv.heads(DEEPSEEK)
    return computed(heads.values("mha") / heads.values("mla"), "×", "heads × (key dim + value dim) / (latent + rotary key)", latent=heads.latent, rotary=heads.rope_dim, heads=heads.query)


for _field, _zh, _en in (("latent", "潜向量的宽度", "width of the latent"), ("rope_dim", "另存的旋转键的宽度", "width of the rotary key kept besides")):
    claim(f"arch.deepseek.{_field}", f"DeepSeek-V3 {_zh}", f"DeepSeek-V3: {_en}")(
        lambda field=_field: computed(getattr(kv.heads(DEEPSEEK), field), "count", "config.json", model=DEEPSEEK)
    )


# ---- mini-256 with fewer numbers


@claim("arch.mini.numbers", "mini-256 每层每个 token 存几个数", "numbers that a token leaves in a layer of mini-256")
def _():
    s = latent.shape()
    return computed(s.kept, "count", "2 × KV heads × head_dim", kv_heads=s.kv_heads, head_dim=s.head_dim)


@claim("arch.mini.copies", "mini-256 若每个查询头各存 K、V，每层每个 token 存几个数", "numbers a token would leave in a layer of mini-256 as MHA")
def _():
    s = latent.shape()
    return computed(2 * s.heads * s.head_dim, "count", "2 × query heads × head_dim", heads=s.heads, head_dim=s.head_dim)


@claim("arch.mini.one_head", "mini-256 只留一个 KV 头，每层每个 token 存几个数", "numbers a token leaves in a layer of mini-256 with one KV head")
def _():
    s = latent.shape()
    return computed(2 * s.head_dim, "count", "2 × head_dim", head_dim=s.head_dim)


def _change(key: str) -> float:
    from compute import precompute  # the store of measures knows the claims

    return precompute.stored()[f"latent.{latent.MODEL}.{key}.loss_change"]["value"]


@claim("arch.mini.mqa_over_latent", "同样存 128 个数：MQA 的损失涨幅是潜向量的几倍", "with 128 numbers kept either way: MQA's rise of loss over the latent's")
def _():
    mqa, low = _change("mqa"), _change("r128")
    return computed(mqa / low, "×", "loss change of MQA / of r = 128", mqa=mqa, latent=low)


# ---- states of fixed size


def state_layer_bytes() -> int:
    """Of one Gated DeltaNet layer of the anchor, whatever the length."""
    c = _config(ANCHOR)
    return c["linear_num_value_heads"] * c["linear_key_head_dim"] * c["linear_value_head_dim"] * STATE_BYTES


def full_layer_bytes() -> int:
    """That a token adds in one full-attention layer of the anchor."""
    return kv.heads(ANCHOR).values("gqa") * BYTES


def even_tokens(passes: int) -> int:
    """Tokens at which a full layer's KV, read once, weighs as much as a state that is passed over so many times."""
    return math.ceil(passes * state_layer_bytes() / full_layer_bytes())


@claim("arch.layer.state", "锚点一层固定状态的大小", "size of the fixed state of one layer of the anchor")
def _():
    c = _config(ANCHOR)
    return computed(state_layer_bytes(), "B", "value heads × key dim × value dim × 4 B", value_heads=c["linear_num_value_heads"], key_dim=c["linear_key_head_dim"], value_dim=c["linear_value_head_dim"])


@claim("arch.layer.kv", "锚点一层完整注意力，每个 token 的 KV", "KV of one token in one full-attention layer of the anchor")
def _():
    return computed(full_layer_bytes(), "B", "2 × KV heads × head_dim × 2 B", kv_heads=4, head_dim=256)


for _passes, _name, _zh, _en in ((1, "held", "存得一样多", "are the same size"), (2, "moved", "每步搬得一样多（状态要读也要写）", "move the same bytes in a step (a state is read and written)")):

    def _even(passes=_passes) -> Quantity:
        return computed(even_tokens(passes), "token", f"⌈{'2 × ' * (passes == 2)}state / KV per token⌉, one layer each", state=state_layer_bytes(), kv=full_layer_bytes())

    claim(f"arch.even.{_name}", f"锚点：到多长，一层完整注意力和一层固定状态{_zh}", f"the anchor: length at which a full layer and a layer with a fixed state {_en}")(_even)


@claim("arch.anchor.even", "锚点：到多长，各层的 KV 才和固定状态一样大", "the anchor: length at which all its KV is as large as its fixed states")
def _():
    state, each = facts.model(ANCHOR).state_bytes, kv.per_token(ANCHOR).bytes
    return computed(math.ceil(state / each), "token", "⌈state / KV per token⌉, 48 layers against 16", state=state, kv=each)


def _layers() -> tuple[int, int]:
    """All, and those with full attention."""
    return _config(ANCHOR)["num_hidden_layers"], kv.per_token(ANCHOR).rows[0].layers


@claim("arch.anchor.hybrid_32k", "锚点一个三万二千 token 的请求存多少", "what one request of 32K tokens of the anchor keeps")
def _():
    state, each = facts.model(ANCHOR).state_bytes, kv.per_token(ANCHOR).bytes
    return computed(LONG * each + state, "B", "32768 × KV + state", kv=each, state=state)


@claim("arch.anchor.all_full_32k", "若 64 层都是完整注意力，同一个请求存多少", "what the same request would keep, were all 64 layers full attention")
def _():
    layers, _full = _layers()
    return computed(LONG * layers * full_layer_bytes(), "B", "32768 × layers × KV per layer", layers=layers, kv=full_layer_bytes())


# ---- what a fixed state remembers: 64 × 64, random pairs (compute/recall.py)

D = 64


def _recall(rule: recall.Rule, pairs: int, rewritten: bool = False) -> recall.Recall:
    return next(f for f in recall.curve(rule, D, rewritten) if f.pairs == pairs)


@claim("arch.recall.state_numbers", "64 × 64 的状态有多少个数", "numbers of a 64 × 64 state")
def _():
    return computed(D * D, "count", "d²", d=D)


@claim("arch.recall.pair_numbers", "128 条键值一共多少个数", "numbers of 128 pairs")
def _():
    return computed(2 * D * 2 * D, "count", "2 d × pairs", d=D, pairs=2 * D)


for _key, _rule, _pairs, _part, _unit, _again, _zh, _en in (
    ("half.found", "delta", D // 2, "found", "ratio", False, "delta 规则写 32 条，认得出自己值的键", "delta rule, 32 pairs: keys that find their value"),
    ("half.cosine", "delta", D // 2, "cosine", "count", False, "delta 规则写 32 条，平均余弦", "delta rule, 32 pairs: mean cosine"),
    ("double.found", "delta", 2 * D, "found", "ratio", False, "delta 规则写 128 条，认得出自己值的键", "delta rule, 128 pairs: keys that find their value"),
    ("double.cosine", "delta", 2 * D, "cosine", "count", False, "delta 规则写 128 条，平均余弦", "delta rule, 128 pairs: mean cosine"),
    ("additive.rewritten", "additive", D // 4, "cosine", "count", True, "加法，16 个键各写两次，后一次的平均余弦", "additive, 16 keys written twice: mean cosine to the later value"),
    ("delta.rewritten", "delta", D // 4, "cosine", "count", True, "delta 规则，16 个键各写两次，后一次的平均余弦", "delta rule, 16 keys written twice: mean cosine to the later value"),
):  # fmt: skip
    claim(f"arch.recall.{_key}", f"64 × 64 的状态，{_zh}", f"a 64 × 64 state, {_en}")(
        lambda rule=_rule, pairs=_pairs, part=_part, unit=_unit, again=_again: computed(
            getattr(_recall(rule, pairs, again), part), unit, f"{part} after the last pair, mean of {recall.DRAWINGS} drawings", rule=rule, d=D, pairs=pairs, rewritten=again)
    )  # fmt: skip

for _end, _at, _zh, _en in (("first", 0, "最早一条", "the first pair"), ("last", -1, "最后一条", "the last pair")):
    claim(f"arch.recall.double.{_end}", f"64 × 64 的状态，delta 规则写 128 条，{_zh}的余弦", f"a 64 × 64 state, delta rule, 128 pairs: cosine of {_en}")(
        lambda at=_at: computed(_recall("delta", 2 * D).cosines[at], "count", "cosine of this pair after the last one", d=D, pairs=2 * D)
    )


# ---- experts

for _field, _key, _zh, _en in (("experts", "n_routed_experts", "每层可选的专家", "experts of a layer that may be chosen"), ("chosen", "num_experts_per_tok", "每个 token 选中的专家", "experts chosen for a token"), ("shared", "n_shared_experts", "每个 token 都经过的专家", "experts that every token goes through")):
    claim(f"arch.deepseek.{_field}", f"DeepSeek-V3 {_zh}", f"DeepSeek-V3: {_en}")(lambda key=_key: computed(_config(DEEPSEEK)[key], "count", f"{key} of config.json", model=DEEPSEEK))

for _model, _zh in ((DEEPSEEK.replace("-", "_"), "DeepSeek-V3"), ("glm_5", "GLM-5")):

    def _share(model=_model) -> Quantity:
        papers = facts.papers()
        active, all_ = papers[model]["active_parameters"]["value"], papers[model]["parameters"]["value"]
        return computed(active / all_, "ratio", "active parameters / parameters", active=active, parameters=all_)

    claim(f"arch.{_model}.active_share", f"{_zh} 每个 token 用到的参数占全部的比例", f"{_zh}: parameters used by a token as a share of all")(_share)


@claim("arch.deepseek.cards", "DeepSeek-V3 的权重（每个 8 位）至少要几张 80 GB 的卡", "cards of 80 GB that DeepSeek-V3's weights take at least, in 8 bits each")
def _():
    papers, memory = facts.papers(), facts.chip(CHIP).memory_bytes
    all_ = papers["deepseek_v3"]["parameters"]["value"]
    return computed(math.ceil(all_ / memory), "card", "⌈parameters × 1 B / memory⌉", parameters=all_, memory=memory)


@claim("arch.deepseek.active_bytes", "DeepSeek-V3 一个 token 用到的权重（每个 8 位）", "weights that one token of DeepSeek-V3 uses, in 8 bits each")
def _():
    active = facts.papers()["deepseek_v3"]["active_parameters"]["value"]
    return computed(active, "B", "active parameters × 1 B", active=active)


# ---- quiz


@claim("arch.quiz.mla", "六十层、潜向量 512 加旋转键 64、16 位：每个 token 存多少", "sixty layers, a latent of 512 and a rotary key of 64, 16 bits: kept of a token")
def _():
    return computed(kv.of_shape("mla", 60, 128, 128, 128, 512, 64), "B", "(512 + 64) × 2 B × 60", latent=512, rotary=64, layers=60)


@claim("arch.quiz.even", "32 个头、每头 128 × 128 的 FP32 状态，对 8 个 KV 头、head_dim 128 的 16 位 KV：到多长一样大", "32 heads with a 128 × 128 FP32 state against 8 KV heads of 128 in 16 bits: length at which they are the same size")
def _():
    state, each = 32 * 128 * 128 * STATE_BYTES, 2 * 8 * 128 * BYTES
    return computed(state // each, "token", "heads × d × d × 4 B / (2 × KV heads × head_dim × 2 B)", state=state, kv=each)
