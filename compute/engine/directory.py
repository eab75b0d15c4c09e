"""A Hugging Face model directory: config.json, model.safetensors (or shards with an index), tokenizer.json."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from safetensors import SafetensorError, safe_open
from torch import Tensor

from compute.engine.errors import FileCorrupt, ModelMissing, NotSupported
from compute.engine.model import Config, Rope, inverse_frequencies
from compute.engine.tokens import Tokenizer

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ROPES = ("default", "linear", "llama3")


@dataclass(frozen=True)
class Source:
    """A model as found in its files; tensors are read one at a time, by their Hugging Face names."""

    config: Config
    names: list[str]
    tensor: Callable[[str], Tensor]
    inverse_frequencies: Tensor
    tokenizer: Tokenizer


def read(path: Path) -> Source:
    raw = read_json(path / "config.json")
    generation = read_json(path / "generation_config.json") if (path / "generation_config.json").exists() else {}
    config = parse_config(path, raw, generation)
    files = {name: file for file in weight_files(path) for name in tensor_shapes(file)}

    def tensor(name: str) -> Tensor:
        with open_safetensors(files[name]) as file:
            return file.get_tensor(name)

    return Source(
        config, list(files), tensor, inverse_frequencies(config.rope, config.head_dim), read_tokenizer(path)
    )


def parse_config(path: Path, raw: dict[str, Any], generation: dict[str, Any]) -> Config:
    """config.json as transformers reads it, defaults included; what this engine does not compute is refused.

    `generation`: generation_config.json, whose end-of-sequence tokens count when it names any.
    """
    architecture = (raw.get("architectures") or ["none"])[0]
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise not_supported(path, f'architecture "{architecture}"', f"use one of {known}", f"请用其中之一：{known}")
    if raw.get("hidden_act", "silu") != "silu":
        raise not_supported(path, f'hidden_act "{raw["hidden_act"]}"')
    if "quantization_config" in raw:
        method = raw["quantization_config"].get("quant_method", "unknown")
        raise not_supported(
            path, f'quantized weights "{method}"', "use the unquantized model or a GGUF file", "请用未量化的模型或 GGUF"
        )
    bias = raw.get("attention_bias", False)
    parts = {
        "LlamaForCausalLM": {"qkv_bias": bias, "out_bias": bias, "mlp_bias": raw.get("mlp_bias", False)},
        "MistralForCausalLM": {},
        "MixtralForCausalLM": {"experts": raw.get("num_local_experts", 8), "chosen": raw.get("num_experts_per_tok", 2)},
        "Qwen2ForCausalLM": {"qkv_bias": True},
        "Qwen3ForCausalLM": {"qkv_bias": bias, "out_bias": bias, "qk_norm": True},
    }[architecture]
    stop = generation.get("eos_token_id", raw.get("eos_token_id"))
    try:
        heads = raw["num_attention_heads"]
        head_dim = raw.get("head_dim") or (128 if architecture == "Qwen3ForCausalLM" else raw["hidden_size"] // heads)
        return Config(
            architecture=architecture,
            vocabulary=raw["vocab_size"],
            hidden=raw["hidden_size"],
            intermediate=raw["intermediate_size"],
            layers=raw["num_hidden_layers"],
            heads=heads,
            kv_heads=raw.get("num_key_value_heads") or heads,
            head_dim=head_dim,
            context=context_without_sliding(raw, architecture),
            norm_eps=raw.get("rms_norm_eps", 1e-6),
            rope=parse_rope(path, raw),
            tied=raw.get("tie_word_embeddings", False),
            stop_tokens=tuple(stop) if isinstance(stop, list) else () if stop is None else (stop,),
            **parts,
        )
    except KeyError as missing:
        raise corrupt(path / "config.json", f"it has no {missing}", f"其中没有 {missing}") from None
    except (ValueError, TypeError) as wrong:
        raise corrupt(path / "config.json", str(wrong), str(wrong)) from None


def context_without_sliding(raw: dict[str, Any], architecture: str) -> int:
    """The longest sequence, tokens. A sliding window is not computed: within one window it changes nothing, so the
    context ends there."""
    context = raw["max_position_embeddings"]
    slides = raw.get("use_sliding_window", architecture in ("MistralForCausalLM", "MixtralForCausalLM"))
    return min(context, raw.get("sliding_window") or context) if slides else context


def parse_rope(path: Path, raw: dict[str, Any]) -> Rope:
    """`rope_parameters` (transformers 5), or `rope_theta` with `rope_scaling` (before)."""
    rope = (raw.get("rope_scaling") or {}) | (raw.get("rope_parameters") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPES:
        known = ", ".join(ROPES)
        raise not_supported(path, f'rope type "{kind}"', f"known are {known}", f"支持的有 {known}")
    if rope.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise not_supported(path, "rope on a part of each head")
    return Rope(
        theta=float(rope.get("rope_theta", raw.get("rope_theta", 10_000.0))),
        kind=kind,
        factor=rope.get("factor", 1.0),
        low_frequency_factor=rope.get("low_freq_factor", 1.0),
        high_frequency_factor=rope.get("high_freq_factor", 4.0),
        original_context=rope.get("original_max_position_embeddings", raw["max_position_embeddings"]),
    )


def weight_files(path: Path) -> list[Path]:
    """model.safetensors, or the shards that model.safetensors.index.json lists."""
    index = path / "model.safetensors.index.json"
    if index.exists():
        shards = sorted({path / Path(name).name for name in read_json(index).get("weight_map", {}).values()})
        if lost := [shard.name for shard in shards if not shard.exists()]:
            raise missing(path, f"the shards {', '.join(lost)} are missing", f"缺少分片 {', '.join(lost)}")
        return shards
    if (path / "model.safetensors").exists():
        return [path / "model.safetensors"]
    if pickled := sorted(path.glob("*.bin")) + sorted(path.glob("*.pt")):
        raise not_supported(
            path,
            f"pickled weights ({pickled[0].name}), which can run code when opened,",
            "save the model again as safetensors",
            "请把模型另存为 safetensors",
        )
    raise missing(path, "model.safetensors is missing", "缺少 model.safetensors")


def tensor_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes from the header alone; the numbers are not read."""
    with open_safetensors(file) as opened:
        return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}


def open_safetensors(file: Path):
    try:
        return safe_open(file, framework="pt")
    except SafetensorError as wrong:
        raise corrupt(file, f"not a whole safetensors file ({wrong})", f"不是完整的 safetensors 文件（{wrong}）") from None


def read_tokenizer(path: Path) -> Tokenizer:
    file = path / "tokenizer.json"
    if not file.exists():
        raise missing(path, "tokenizer.json is missing", "缺少 tokenizer.json")
    try:
        return Tokenizer(tokenizers.Tokenizer.from_str(file.read_text("utf-8")))
    except Exception as wrong:  # the library raises bare Exception
        raise corrupt(file, f"not a tokenizer ({wrong})", f"不是分词器文件（{wrong}）") from None


def read_json(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise missing(file.parent, f"{file.name} is missing", f"缺少 {file.name}")
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as wrong:
        raise corrupt(file, f"not JSON ({wrong})", f"不是 JSON（{wrong}）") from None
    if not isinstance(content, dict):
        raise corrupt(file, "not a JSON object", "不是 JSON 对象")
    return content


def missing(path: Path, reason: str, reason_zh: str) -> ModelMissing:
    return ModelMissing(path, reason, reason_zh, "copy the model again, all of its files", "请重新完整地复制模型文件")


def corrupt(file: Path, reason: str, reason_zh: str) -> FileCorrupt:
    return FileCorrupt(
        file, reason, reason_zh, "copy this file again from where it came", "请从来源处重新复制这个文件"
    )


def not_supported(path: Path, what: str, way_out: str = "choose another model", way_out_zh: str = "请换一个模型"):
    return NotSupported(path, f"{what} is not computed here", f"这里不计算 {what}", way_out, way_out_zh)
