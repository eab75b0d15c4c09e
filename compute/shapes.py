"""From a published config.json to the few numbers that every formula needs.

A model is a list of matrices (read once a step) and of caches (read once a request). Names follow Hugging Face configs:
`head_dim` is taken as published; only when the key is absent does hidden_size / num_attention_heads hold, as in
transformers. Norm scales and biases are counted as loaded, not as multiplied.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Mapping

from compute.errors import BadInput, UnknownName
from compute.quantity import Source

LAYER_KINDS = ("full_attention", "sliding_attention", "linear_attention")
FAMILIES = (  # model_type of configs whose attention and SwiGLU are those counted here
    "llama", "mistral", "mixtral", "phi3", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text",
    "deepseek_v2", "deepseek_v3", "glm4_moe", "gpt_oss",
)  # fmt: skip
STATE_BYTES_PER_VALUE = 4  # recurrent states are kept in FP32


@dataclass(frozen=True)
class Matrices:
    """One kind of weight matrix. `parameters` counts one copy in one layer; experts are copies, `used` of them a token."""

    name: str
    parameters: int
    layers: int = 1
    copies: int = 1
    used: int = 1

    @property
    def loaded(self) -> int:
        return self.parameters * self.layers * self.copies

    @property
    def per_token(self) -> int:
        """Parameters that one token is multiplied with."""
        return self.parameters * self.layers * self.used

    def distinct(self, tokens):
        """How many of the copies `tokens` tokens (a number, or an array of them) go to between them. Experts: expected if routing were
        uniform and independent, as one is left out by all with probability (1 − used / copies)^tokens; real routers are neither, so
        this is a simplification to be named where it shows."""
        return self.copies * (1 - (1 - self.used / self.copies) ** tokens) if self.copies > self.used else self.copies

    def read(self, tokens):
        """Parameters read to serve `tokens` at once."""
        return self.parameters * self.layers * self.distinct(tokens)


@dataclass(frozen=True)
class Cache:
    """Attention layers that keep something for every token. flops_* are per pair (query token, cached token), one layer."""

    kind: str  # "mha" | "gqa" | "mqa" | "mla"
    layers: int
    values_per_token: float  # numbers stored per token and layer
    flops_decode: float
    flops_prefill: float
    window: int | None = None

    def tokens(self, context: int) -> int:
        return min(context, self.window) if self.window else context

    def causal_pairs(self, tokens: int) -> float:
        """Pairs of a causal prefill, in the convention n²/2 (the diagonal's half is ignored)."""
        if not self.window or tokens <= self.window:
            return tokens * tokens / 2
        return tokens * self.window - self.window**2 / 2


@dataclass(frozen=True)
class ModelShape:
    id: str
    name: str
    matrices: tuple[Matrices, ...]
    caches: tuple[Cache, ...]
    state_bytes: int  # fixed recurrent state of one request
    other_parameters: int  # loaded, never multiplied: untied embedding, norms, biases
    beside_parameters: int = 0  # parts that come with the checkpoint and serve no text token: vision encoder, MTP
    hidden: int = 0
    layers: int = 0
    context_maximum: int | None = None
    checkpoint_bytes: float | None = None  # everything in the published files, vision and MTP parts included
    textbook: bool = False  # a bare parameter count: arithmetic, not a machine
    source: Source | None = None
    config: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)

    @property
    def parameters_per_token(self) -> int:
        return sum(m.per_token for m in self.matrices)

    @property
    def parameters(self) -> int:
        """Of the text model, without the parts beside it."""
        return sum(m.loaded for m in self.matrices) + self.other_parameters

    @property
    def active_parameters(self) -> int:
        """All but the experts that a token is not sent to; embedding and norms included."""
        return self.parameters - sum(m.loaded - m.per_token for m in self.matrices)

    def loaded_bytes(self, weight_bytes: float) -> float:
        """Bytes of all weights on the card when each multiplied parameter takes `weight_bytes`; the rest stays 16-bit."""
        multiplied = sum(m.loaded for m in self.matrices)
        published_rest = self.checkpoint_bytes - 2 * multiplied if self.checkpoint_bytes else 0
        return multiplied * weight_bytes + max(published_rest, 2 * (self.other_parameters + self.beside_parameters))


def from_config(config: Mapping[str, Any], id: str = "inline", name: str = "", **more: Any) -> ModelShape:
    """Read a Hugging Face config. Raises BadInput for a missing or impossible key."""
    if not isinstance(text := config.get("text_config", config), dict):
        raise BadInput("model.text_config", text, "an object of keys is needed", "要填一个带键的对象")
    c = _Keys(text)
    if c.has("model_type") and c.get("model_type") not in FAMILIES:
        raise UnknownName("model_type", "模型类型（model_type）", c.get("model_type"), list(FAMILIES))
    hidden, layers, vocabulary = c.whole("hidden_size"), c.whole("num_hidden_layers", most=10_000), c.whole("vocab_size")
    kinds = Counter(_layer_kinds(c, layers))
    matrices: list[Matrices] = []
    caches: list[Cache] = []
    vectors = hidden + layers * 2 * hidden  # final norm, two norms a layer
    state_bytes = 0
    for kind, count in sorted(kinds.items()):
        if kind == "linear_attention":
            add, bytes_, small = _gated_delta_net(c, hidden, count)
            state_bytes += bytes_
        elif c.has("kv_lora_rank"):
            add, cache, small = _mla(c, hidden, count)
            caches.append(cache)
        else:
            window = c.whole("sliding_window") if kind == "sliding_attention" else None
            add, cache, small = _softmax_attention(c, hidden, count, window)
            caches.append(cache)
        matrices += add
        vectors += small
    feed_forward, small = _feed_forward(c, hidden, layers)
    matrices += feed_forward
    matrices.append(Matrices("lm_head", hidden * vocabulary))
    tied = c.flag("tie_word_embeddings", _Keys(config).flag("tie_word_embeddings"))
    embedding = 0 if tied else hidden * vocabulary
    return ModelShape(
        id=id,
        name=name or id,
        matrices=tuple(matrices),
        caches=tuple(caches),
        state_bytes=state_bytes,
        other_parameters=embedding + vectors + small,
        hidden=hidden,
        layers=layers,
        context_maximum=c.whole("max_position_embeddings") if c.has("max_position_embeddings") else None,
        config=dict(config),
        **more,
    )


def sized(parameters: float, kv_bytes_per_token: float = 0, id: str = "inline", name: str = "", **more: Any) -> ModelShape:
    """A model known by its size alone: no shapes, no attention FLOPs. It must fit like any other, unless `textbook=True`
    marks it as a lecture's arithmetic."""
    if parameters < 1:
        raise BadInput("model.parameters", parameters, "at least 1 parameter is needed", "至少要 1 个参数")
    caches = (Cache("given", 1, kv_bytes_per_token / 2, 0, 0),) if kv_bytes_per_token else ()
    return ModelShape(id, name or id, (Matrices("weights", int(parameters)),), caches, 0, 0, **more)


class _Keys:
    """A config that complains with the key's name and value."""

    def __init__(self, config: Mapping[str, Any]):
        self.config = config

    def has(self, key: str) -> bool:
        return self.config.get(key) is not None

    def get(self, key: str, default: Any = None) -> Any:
        return self.config[key] if self.has(key) else default

    def whole(self, *keys: str, least: int = 1, most: int = 10**9) -> int:
        for key in keys:
            if self.has(key):
                value = self.config[key]
                if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                    raise BadInput(f"model.{key}", value, f"a whole number from {least} to {most} is needed", f"要填 {least} 到 {most} 的整数")
                return value
        raise BadInput(f"model.{keys[0]}", None, "the config lacks this key", "配置里缺少这个键")

    def count(self, key: str) -> int:
        """0 where the key is absent."""
        return self.whole(key, least=0) if self.has(key) else 0

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise BadInput(f"model.{key}", value, "true or false is needed", "要填 true 或 false")
        return value


def _layer_kinds(c: _Keys, layers: int) -> list[str]:
    if c.has("layer_types"):
        kinds = c.get("layer_types")
        if not isinstance(kinds, list):
            raise BadInput("model.layer_types", kinds, "a list with one entry a layer is needed", "要填一个列表，每层一项")
        if len(kinds) != layers:
            raise BadInput("model.layer_types", len(kinds), f"{layers} layers need {layers} entries", f"{layers} 层需要 {layers} 项")
        for kind in kinds:
            if kind not in LAYER_KINDS:
                raise UnknownName("layer type", "层类型", kind, list(LAYER_KINDS))
        return kinds
    if c.has("full_attention_interval"):
        every = c.whole("full_attention_interval")
        return ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(layers)]
    windowed = c.has("sliding_window") and c.flag("use_sliding_window", True)
    return ["sliding_attention" if windowed else "full_attention"] * layers


def _softmax_attention(c: _Keys, hidden: int, layers: int, window: int | None) -> tuple[list[Matrices], Cache, int]:
    heads = c.whole("num_attention_heads")
    kv_heads = c.whole("num_key_value_heads", "num_attention_heads")
    head_dim = c.whole("head_dim") if c.has("head_dim") else hidden // heads
    if heads % kv_heads:
        raise BadInput("model.num_key_value_heads", kv_heads, f"it must divide the {heads} query heads", f"要能整除 {heads} 个查询头")
    if head_dim < 1:
        raise BadInput("model.num_attention_heads", heads, f"hidden_size {hidden} is too small for so many heads", f"hidden_size 只有 {hidden}，分不成这么多头")
    always = c.get("model_type") == "qwen3_next"  # its configs do not say so
    gate = 2 if c.flag("attn_output_gate", always) else 1  # the gate comes out of a q_proj of twice the width
    q, kv = heads * head_dim, kv_heads * head_dim
    biases = {"qwen2": q + 2 * kv}.get(c.get("model_type"), (q * gate + 2 * kv + hidden) if c.flag("attention_bias") else 0)
    norms = 2 * head_dim if str(c.get("model_type", "")).startswith("qwen3") or c.flag("use_qk_norm") else 0
    sinks = heads if c.get("model_type") == "gpt_oss" else 0
    kind = "mha" if kv_heads == heads else "mqa" if kv_heads == 1 else "gqa"
    name = f"{kind}.window" if window else kind
    return (
        [
            Matrices(f"{name}.q", hidden * q * gate, layers),
            Matrices(f"{name}.kv", hidden * 2 * kv, layers),
            Matrices(f"{name}.out", q * hidden, layers),
        ],
        Cache(kind, layers, 2 * kv, 4 * q, 4 * q, window),
        layers * (biases + norms + sinks),
    )


def _mla(c: _Keys, hidden: int, layers: int) -> tuple[list[Matrices], Cache, int]:
    """Multi-head latent attention (DeepSeek-V2, §2.1): one latent and one rotary key a layer, not two copies.
    Decode is counted in the absorbed form, which multiplies queries with the latent itself."""
    heads, latent, rope = c.whole("num_attention_heads"), c.whole("kv_lora_rank"), c.whole("qk_rope_head_dim")
    nope, value = c.whole("qk_nope_head_dim"), c.whole("v_head_dim")
    q_latent = c.count("q_lora_rank")
    q = hidden * q_latent + q_latent * heads * (nope + rope) if q_latent else hidden * heads * (nope + rope)
    return (
        [
            Matrices("mla.q", q, layers),
            Matrices("mla.kv", hidden * (latent + rope) + latent * heads * (nope + value), layers),
            Matrices("mla.out", heads * value * hidden, layers),
        ],
        Cache("mla", layers, latent + rope, 2 * heads * (2 * latent + rope), 2 * heads * (nope + rope + value)),
        layers * (latent + q_latent),
    )


def _gated_delta_net(c: _Keys, hidden: int, layers: int) -> tuple[list[Matrices], int, int]:
    """Gated DeltaNet layer: a state of value heads × key dim × value dim, whatever the length. The FLOPs of its update
    (under half a per cent of a layer) are ignored, as in the project's conventions."""
    key_heads, value_heads = c.whole("linear_num_key_heads"), c.whole("linear_num_value_heads")
    key_dim, value_dim = c.whole("linear_key_head_dim"), c.whole("linear_value_head_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    mixed = 2 * keys + values
    state = layers * value_heads * key_dim * value_dim * STATE_BYTES_PER_VALUE
    return (
        [
            Matrices("gdn.qkvz", hidden * (mixed + values), layers),
            Matrices("gdn.ab", hidden * 2 * value_heads, layers),
            Matrices("gdn.conv", mixed * c.whole("linear_conv_kernel_dim"), layers),
            Matrices("gdn.out", values * hidden, layers),
        ],
        state,
        layers * (2 * value_heads + value_dim),
    )


def _feed_forward(c: _Keys, hidden: int, layers: int) -> tuple[list[Matrices], int]:
    """SwiGLU (three matrices), dense or as experts behind a router."""
    experts_key = next((k for k in ("n_routed_experts", "num_local_experts", "num_experts") if c.has(k)), None)
    if not experts_key:
        return [Matrices("swiglu", 3 * hidden * c.whole("intermediate_size"), layers)], 0
    experts, used = c.whole(experts_key), c.whole("num_experts_per_tok", "experts_per_token")
    if used > experts:
        raise BadInput("model.num_experts_per_tok", used, f"there are only {experts} experts", f"总共只有 {experts} 个专家")
    dense = c.count("first_k_dense_replace")
    if dense > layers:
        raise BadInput("model.first_k_dense_replace", dense, f"there are only {layers} layers", f"总共只有 {layers} 层")
    for key, everywhere in (("mlp_only_layers", []), ("decoder_sparse_step", 1), ("moe_layer_freq", 1)):
        if c.get(key, everywhere) != everywhere:
            raise BadInput(f"model.{key}", c.get(key), f"only {everywhere} can be counted", f"只能计算 {everywhere} 的情形")
    sparse = layers - dense
    width = c.whole("moe_intermediate_size", "intermediate_size")
    parts = [Matrices("swiglu", 3 * hidden * c.whole("intermediate_size"), dense)] if dense else []
    parts += [Matrices("router", hidden * experts, sparse), Matrices("experts", 3 * hidden * width, sparse, experts, used)]
    if shared := c.count("n_shared_experts") * width:
        parts.append(Matrices("shared_expert", 3 * hidden * shared, sparse))
    if shared := c.count("shared_expert_intermediate_size"):  # Qwen: one, of its own width, behind a gate of one output
        parts.append(Matrices("shared_expert", 3 * hidden * shared + hidden, sparse))
    biases = 0
    if c.get("model_type") == "gpt_oss":  # router and expert biases
        biases = sparse * (experts + experts * (2 * width + hidden))
    elif c.get("model_type") in ("deepseek_v3", "glm4_moe"):  # the router's correction bias
        biases = sparse * experts
    return parts, biases
