"""The Llama architecture in the size of a page, with Hugging Face's parameter names.

A checkpoint is a directory that transformers, vLLM and llama.cpp's converter read too: model.safetensors (float32),
config.json, tokenizer.json, tokenizer_config.json, generation_config.json.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from compute.training.tokenizer import SPECIALS, VOCABULARY

POSITIONS = 1024  # rotary angles exist up to here; training windows are 256 tokens long
ROPE_THETA = 10_000.0
NORM_EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama model with tied embeddings."""

    width: int
    heads: int
    kv_heads: int
    hidden: int
    layers: int = 4
    vocabulary: int = VOCABULARY

    def __post_init__(self) -> None:
        if self.width % self.heads or self.heads % self.kv_heads or (self.width // self.heads) % 2:
            raise ValueError(f"width {self.width} into {self.heads} heads and {self.kv_heads} KV heads does not go")

    @property
    def head(self) -> int:
        return self.width // self.heads


SHAPES = {
    "mini-256": Shape(width=256, heads=4, kv_heads=2, hidden=768),
    "mini-128": Shape(width=128, heads=4, kv_heads=2, hidden=384),
    "mini-64": Shape(width=64, heads=2, kv_heads=1, hidden=192),
    "smollm2-draft": Shape(width=128, heads=4, kv_heads=2, hidden=512, layers=3, vocabulary=49_152),
    "smollm2-mtp": Shape(width=576, heads=9, kv_heads=3, hidden=1536, layers=1, vocabulary=49_152),
}


class Norm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), NORM_EPS)


class Attention(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.shape = s
        self.q_proj = nn.Linear(s.width, s.heads * s.head, bias=False)
        self.k_proj = nn.Linear(s.width, s.kv_heads * s.head, bias=False)
        self.v_proj = nn.Linear(s.width, s.kv_heads * s.head, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head, s.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        s, (B, T, _) = self.shape, x.shape
        q = self.q_proj(x).view(B, T, s.heads, s.head).transpose(1, 2)  # (batch, head, token, dim)
        k = self.k_proj(x).view(B, T, s.kv_heads, s.head).transpose(1, 2)
        v = self.v_proj(x).view(B, T, s.kv_heads, s.head).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = s.heads // s.kv_heads  # query heads that share one K/V head
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(B, T, -1))


class MLP(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.gate_proj = nn.Linear(s.width, s.hidden, bias=False)
        self.up_proj = nn.Linear(s.width, s.hidden, bias=False)
        self.down_proj = nn.Linear(s.hidden, s.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.self_attn = Attention(s)
        self.mlp = MLP(s)
        self.input_layernorm = Norm(s.width)
        self.post_attention_layernorm = Norm(s.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Token ids (batch, token) → logits (batch, token, vocabulary). Output weights are the embedding (tied)."""

    def __init__(self, shape: Shape, seed: int = 0):
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.norm = Norm(shape.width)
        keep_turns(self, shape)
        reset(self, seed)

    def hidden(self, tokens: Tensor) -> Tensor:
        """The last layer's output after the final norm, (batch, token, width)."""
        x = self.embed_tokens(tokens)
        length = tokens.shape[1]
        cos, sin = self.cos[:length].to(x.dtype), self.sin[:length].to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(self.hidden(tokens), self.embed_tokens.weight)


def keep_turns(module: nn.Module, shape: Shape, theta: float = ROPE_THETA) -> None:
    """Buffers cos and sin, (position, head dimension)."""
    frequencies = 1 / theta ** (torch.arange(0, shape.head, 2).float() / shape.head)
    angles = torch.outer(torch.arange(POSITIONS).float(), frequencies)  # (position, dim / 2)
    module.register_buffer("cos", torch.cat([angles.cos()] * 2, -1), persistent=False)
    module.register_buffer("sin", torch.cat([angles.sin()] * 2, -1), persistent=False)


def reset(module: nn.Module, seed: int) -> None:
    """Embedding N(0, 0.02); matrices N(0, 1/sqrt(inputs)), half of that where they write into the residual stream."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if parameter.ndim != 2:
            continue
        if "embed" in name:
            nn.init.normal_(parameter, 0, 0.02, generator=generator)
        else:
            scale = 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            nn.init.normal_(parameter, 0, scale * parameter.shape[1] ** -0.5, generator=generator)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position: dimensions i and i + dim/2 turn together (Llama's layout in transformers)."""
    left, right = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat([-right, left], -1) * sin.to(x.dtype)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def config(shape: Shape) -> dict:
    """config.json as transformers' LlamaForCausalLM reads it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head,
        "hidden_act": "silu",
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "dtype": "float32",
    }


def save(model: Llama, tokenizer_json: Path, folder: Path) -> None:
    """Write a Hugging Face directory. Each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"model.{k}": v.detach().float().clone().contiguous() for k, v in model.state_dict().items()}
    partial = folder / "model.safetensors.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.chmod(0o644)  # safetensors writes files for the owner alone
    partial.replace(folder / "model.safetensors")
    if tokenizer_json.resolve() != (folder / "tokenizer.json").resolve():
        shutil.copy(tokenizer_json, folder / "tokenizer.json")
    special = {"bos_token": SPECIALS[0], "eos_token": SPECIALS[0], "pad_token": SPECIALS[0]}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS, **special}
    for name, content in (
        ("config.json", config(model.shape)),
        ("tokenizer_config.json", {**about, "clean_up_tokenization_spaces": False}),
        ("generation_config.json", {"bos_token_id": 0, "eos_token_id": 0}),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load(folder: Path) -> Llama:
    """Read back what `save` wrote."""
    c = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shape = Shape(
        width=c["hidden_size"],
        heads=c["num_attention_heads"],
        kv_heads=c["num_key_value_heads"],
        hidden=c["intermediate_size"],
        layers=c["num_hidden_layers"],
        vocabulary=c["vocab_size"],
    )
    model = Llama(shape)
    weights = load_file(folder / "model.safetensors")
    model.load_state_dict({k.removeprefix("model."): v for k, v in weights.items()})
    return model.eval()
