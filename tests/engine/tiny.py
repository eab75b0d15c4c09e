"""Tiny random models, made by transformers: the referee for every architecture that the engine claims to compute."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers

transformers = pytest.importorskip("transformers", reason="the referee; pip install -r requirements-test.txt")

TEXT = "小明把苹果给了小红，小红笑了。The cat sat on the mat 123 times. " * 4
WIDTHS = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "eos_token_id": 0,
    "bos_token_id": 0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

CASES = {
    "llama, grouped heads, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, untied, head_dim 24 ≠ 64 / 4": ("Llama", {"head_dim": 24}),
    "llama, biases everywhere": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, one key head for all": ("Llama", {"num_key_value_heads": 1}),
    "llama, as many key heads as queries": ("Llama", {"num_key_value_heads": 4}),
    "llama 3.1 rope": ("Llama", {"rope_parameters": LLAMA3}),
    "llama, linear rope, other base": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}},
    ),
    "mistral, window longer than the text": ("Mistral", {"sliding_window": 64}),
    "mixtral, 2 of 5 experts": ("Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen2, biases on q, k, v": ("Qwen2", {}),
    "qwen3, query and key norms": ("Qwen3", {"head_dim": 24, "rms_norm_eps": 0.01, "tie_word_embeddings": True}),
    "qwen3, norms and biases": ("Qwen3", {"head_dim": 16, "attention_bias": True}),
}


def reference(case: str):
    """A model with every parameter random: zero biases and unit norms would hide that one is left out."""
    kind, options = CASES[case]
    config = getattr(transformers, f"{kind}Config")(**(WIDTHS | options))
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in model.named_parameters():
            spread, middle = (0.3, 1.0) if "norm" in name else (0.15, 0.0)
            value.copy_(torch.randn(value.shape, generator=draw) * spread + middle)
    model.generation_config.eos_token_id = 0
    return model


def save(model, path: Path, **options) -> Path:
    """The directory as transformers writes it, with a tokenizer beside it."""
    model.save_pretrained(path, **options)
    tokenizer().save(str(path / "tokenizer.json"))
    return path


def tokenizer() -> tokenizers.Tokenizer:
    """Byte-level BPE of at most 320 tokens; most Chinese characters take several."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator([TEXT], trainer)
    return inner


def write_gguf(model, path: Path, *, pre: str = "gpt-2", quantize=gguf.GGMLQuantizationType.F32) -> Path:
    """The same model as GGUF, written as llama.cpp's converter does: for Llama, q and k rows are interleaved."""
    c = model.config
    kind = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}[type(model).__name__]
    rope = c.rope_parameters
    writer = gguf.GGUFWriter(path, kind)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(model.model.layers[0].self_attn.head_dim)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "llama3":
        plain = 1 / rope["rope_theta"] ** (torch.arange(0, c.head_dim, 2).float() / c.head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy())
    inner = tokenizer()
    words = sorted(inner.get_vocab().items(), key=lambda pair: pair[1])
    merges = json.loads(inner.to_str())["model"]["merges"]
    words += [(f"[PAD{n}]", n) for n in range(len(words), c.vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([word for word, _ in words])
    writer.add_token_types([gguf.TokenType.CONTROL if n == 0 else gguf.TokenType.NORMAL for _, n in words])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(0)
    architecture = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[kind]
    names = gguf.get_tensor_name_map(architecture, c.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        value = value.float().numpy()
        if kind == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = c.num_attention_heads if "q_proj" in name else c.num_key_value_heads
            value = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
            value = np.ascontiguousarray(value.swapaxes(1, 2)).reshape(-1, *value.shape[3:])
        stored = quantize if value.ndim == 2 else gguf.GGMLQuantizationType.F32
        name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(name, gguf.quantize(value, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def ids(n: int, seed: int = 0) -> torch.Tensor:
    """(1, n) token ids."""
    return torch.randint(0, 300, (1, n), generator=torch.Generator().manual_seed(seed))


def far_apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Largest difference as a share of the largest logit."""
    return float((ours - theirs).abs().max() / theirs.abs().max())
