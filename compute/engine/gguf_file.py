"""A GGUF file: the model's shape, its tensors (made float again) and its tokenizer, all from its own metadata."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from gguf import GGUFReader, dequantize
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from compute.engine.directory import Source, corrupt, not_supported
from compute.engine.model import Config, Rope, inverse_frequencies
from compute.engine.tokens import Tokenizer

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

OUTSIDE_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


def read(path: Path) -> Source:
    reader = open_gguf(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = parse_config(path, fields, set(tensors))
    frequencies = inverse_frequencies(config.rope, config.head_dim)
    if "rope_freqs.weight" in tensors:  # Llama 3.1's stretching, stored as a divisor for each pair
        frequencies = frequencies / to_float(tensors.pop("rope_freqs.weight"))
    names = {hf_name(name): name for name in tensors}

    def tensor(name: str) -> Tensor:
        values = to_float(tensors[names[name]])
        if config.architecture == "LlamaForCausalLM":
            if ".q_proj." in name:
                return half_split_order(values, config.heads)
            if ".k_proj." in name:
                return half_split_order(values, config.kv_heads)
        return values

    return Source(config, list(names), tensor, frequencies, build_tokenizer(path, fields))


class QuickReader(GGUFReader):
    """GGUFReader takes a million small slices of its memory map, and slicing a plain array is cheaper: SmolLM2's 98,000
    strings are read in 0.7 to 1.5 s instead of 4.7 to 5.0 (two runs of each, alternating, on a busy machine)."""

    @property
    def data(self) -> np.ndarray:
        return self._plain

    @data.setter
    def data(self, mapped: np.memmap) -> None:
        self._plain = mapped.view(np.ndarray)


def open_gguf(path: Path) -> GGUFReader:
    try:
        return QuickReader(path)
    except (ValueError, IndexError, KeyError, OverflowError, struct.error, UnicodeDecodeError) as wrong:
        raise corrupt(path, f"not a whole GGUF file ({wrong})", f"不是完整的 GGUF 文件（{wrong}）") from None


def to_float(tensor) -> Tensor:
    """Stored numbers, quantized or not, as float32; a copy, since the file is only mapped into memory."""
    return torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))


def half_split_order(values: Tensor, heads: int) -> Tensor:
    """Llama GGUF files store each head's rows so that a rotated pair is neighbours (2i, 2i + 1); here a pair is
    (i, i + head_dim/2). (heads·D, …) → the same shape."""
    pairs = values.unflatten(0, (heads, -1, 2))  # (heads, D/2, 2, …)
    return pairs.transpose(1, 2).reshape(values.shape)


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`; an unknown name stays as it is."""
    outside = {gguf: hf for hf, gguf in OUTSIDE_NAMES.items()}
    inside = {gguf: hf for hf, gguf in LAYER_NAMES.items()}
    stem, _, kind = name.rpartition(".")
    if stem in outside:
        return f"{outside[stem]}.{kind}"
    block, _, rest = stem.removeprefix("blk.").partition(".")
    return f"model.layers.{block}.{inside[rest]}.{kind}" if rest in inside else name


def parse_config(path: Path, fields: dict[str, Any], tensors: set[str]) -> Config:
    """The shape from the metadata; which biases and norms there are, from the tensors' names."""
    kind = fields.get("general.architecture", "none")
    if kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise not_supported(path, f'architecture "{kind}"', f"use one of {known}", f"请用其中之一：{known}")
    if fields.get(f"{kind}.expert_count", 0):
        raise not_supported(path, f"a mixture of {fields[f'{kind}.expert_count']} experts")
    scaling = fields.get(f"{kind}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise not_supported(path, f'rope scaling "{scaling}"')
    try:
        hidden, heads = fields[f"{kind}.embedding_length"], fields[f"{kind}.attention.head_count"]
        head_dim = fields.get(f"{kind}.attention.key_length", hidden // heads)
        if fields.get(f"{kind}.rope.dimension_count", head_dim) != head_dim:
            raise not_supported(path, "rope on a part of each head")
        return Config(
            architecture=ARCHITECTURES[kind],
            vocabulary=len(fields["tokenizer.ggml.tokens"]),
            hidden=hidden,
            intermediate=fields[f"{kind}.feed_forward_length"],
            layers=fields[f"{kind}.block_count"],
            heads=heads,
            kv_heads=fields.get(f"{kind}.attention.head_count_kv", heads),
            head_dim=head_dim,
            context=fields[f"{kind}.context_length"],
            norm_eps=fields[f"{kind}.attention.layer_norm_rms_epsilon"],
            rope=Rope(
                theta=fields.get(f"{kind}.rope.freq_base", 10_000.0),
                kind="linear" if scaling == "linear" else "default",
                factor=fields.get(f"{kind}.rope.scaling.factor", 1.0),
            ),
            tied="output.weight" not in tensors,
            qkv_bias="blk.0.attn_q.bias" in tensors,
            out_bias="blk.0.attn_output.bias" in tensors,
            mlp_bias="blk.0.ffn_gate.bias" in tensors,
            qk_norm="blk.0.attn_q_norm.weight" in tensors,
            stop_tokens=(fields["tokenizer.ggml.eos_token_id"],) if "tokenizer.ggml.eos_token_id" in fields else (),
        )
    except KeyError as missing:
        raise corrupt(path, f"its metadata lack {missing}", f"元数据里没有 {missing}") from None
    except (ValueError, TypeError) as wrong:
        raise corrupt(path, str(wrong), str(wrong)) from None


def words(pattern: str) -> list:
    return [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


def digits_then_bytes() -> list:
    return [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]


PRE_TOKENIZERS = {
    "default": lambda: [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "gpt-2": lambda: [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": digits_then_bytes,
    "llama-bpe": lambda: words(LLAMA3_WORDS),
    "qwen2": lambda: words(QWEN2_WORDS),
}
"""How a text is cut into words before the merges, by the file's `tokenizer.ggml.pre`."""


def build_tokenizer(path: Path, fields: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE (`gpt2`), or SentencePiece BPE (`llama`), from the token list in the metadata."""
    kind, pre = fields.get("tokenizer.ggml.model", "none"), fields.get("tokenizer.ggml.pre", "default")
    if kind == "gpt2" and pre in PRE_TOKENIZERS:
        inner = byte_level_bpe(fields, pre)
    elif kind == "llama":
        inner = sentencepiece_bpe(fields)
    else:
        known = ", ".join(PRE_TOKENIZERS)
        raise not_supported(
            path,
            f'the tokenizer "{kind}" with word rule "{pre}"',
            f"use the model's Hugging Face directory; in GGUF files known are llama, and gpt2 with {known}",
            f"请用该模型的 Hugging Face 目录；GGUF 支持 llama，以及 gpt2 配 {known}",
        )
    tokens, types = fields["tokenizer.ggml.tokens"], fields.get("tokenizer.ggml.token_type", [])
    control, user_defined = 3, 4  # as gguf.TokenType numbers them
    inner.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == control])
    inner.add_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types) if k == user_defined])
    first = fields.get("tokenizer.ggml.bos_token_id")
    if first is not None and fields.get("tokenizer.ggml.add_bos_token", kind == "llama"):
        inner.post_processor = processors.TemplateProcessing(
            single=f"{tokens[first]} $A", special_tokens=[(tokens[first], first)]
        )
    return Tokenizer(inner)


def byte_level_bpe(fields: dict[str, Any], pre: str) -> tokenizers.Tokenizer:
    merges = [tuple(pair.split(" ")) for pair in fields.get("tokenizer.ggml.merges", [])]
    numbers = {token: n for n, token in enumerate(fields["tokenizer.ggml.tokens"])}
    inner = tokenizers.Tokenizer(models.BPE(numbers, merges))
    inner.pre_tokenizer = pre_tokenizers.Sequence(PRE_TOKENIZERS[pre]())
    inner.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        inner.normalizer = normalizers.NFC()
    return inner


def sentencepiece_bpe(fields: dict[str, Any]) -> tokenizers.Tokenizer:
    """▁ for a space, unknown characters as bytes. The file has a score for each token instead of a list of merges: two
    neighbours whose joined token has the highest score are joined first."""
    tokens, scores = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.scores"]
    numbers = {token: n for n, token in enumerate(tokens)}
    merges = [
        (scores[n], token[:cut], token[cut:])
        for token, n in numbers.items()
        for cut in range(1, len(token))
        if token[:cut] in numbers and token[cut:] in numbers
    ]
    merges.sort(key=lambda merge: -merge[0])
    inner = tokenizers.Tokenizer(
        models.BPE(
            numbers,
            [(left, right) for _, left, right in merges],
            unk_token=tokens[fields.get("tokenizer.ggml.unknown_token_id", 0)],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    in_front = fields.get("tokenizer.ggml.add_space_prefix", True)
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁")] * in_front + [normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + [decoders.Strip(" ", 1, 0)] * in_front
    )
    return inner
