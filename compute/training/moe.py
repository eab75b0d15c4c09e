"""mini-moe: mini-256 with eight experts in the place of each MLP, two of which read a token.

An expert is half as wide as mini-256's MLP, so a token goes through as many weights as there, and a router besides. Training
starts from mini-256 (sparse upcycling, Komatsuzaki et al. 2022): embedding, attention and norms as they are, each expert with half
of the neurons, drawn anew for every pair of experts. Experts then become different because the router sends them different
tokens. That none is left without is asked for by a second loss (Switch Transformer, Fedus et al. 2021, eq. 4).

The directory is Mixtral's (transformers reads it): softmax over the two chosen experts' scores.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from compute.training import evaluate, mixture
from compute.training import model as mini
from compute.training import train

NAME, SOURCE = "mini-moe", "mini-256"
EXPERTS, CHOSEN = 8, 2
BALANCE = 0.01  # weight of the second loss, as in Switch Transformer
CONTROL, DRAWN = "control.json", 128  # windows of each kind of training text
SHAPE = replace(mini.SHAPES[SOURCE], hidden=mini.SHAPES[SOURCE].hidden // CHOSEN)  # hidden: of one expert
RECIPE = train.Recipe(NAME, SOURCE, steps=900, rows=32, muon_rate=0.01, adam_rate=1.5e-3, warmup=20, decay=0.8)  # large batches: Muon costs as much as 16 rows


class Expert(nn.Module):
    """SwiGLU under Mixtral's names: w1 gate, w3 up, w2 down."""

    def __init__(self, s: mini.Shape):
        super().__init__()
        self.w1 = nn.Linear(s.width, s.hidden, bias=False)
        self.w2 = nn.Linear(s.hidden, s.width, bias=False)
        self.w3 = nn.Linear(s.width, s.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    """Router and experts, (batch, token, width) → the same."""

    def __init__(self, s: mini.Shape):
        super().__init__()
        self.gate = nn.Linear(s.width, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert(s) for _ in range(EXPERTS)])
        self.balance: Tensor | None = None  # of the last forward

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)  # (token, width)
        scores = self.gate(flat)  # (token, expert)
        top, chosen = scores.topk(CHOSEN, dim=-1)
        shares = top.softmax(-1)
        self.balance = balance(scores, chosen)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(0, rows, expert(flat[rows]) * shares[rows, place, None])
        return out.view_as(x)


def balance(scores: Tensor, chosen: Tensor) -> Tensor:
    """experts · Σᵢ fᵢ·Pᵢ, 1 when all are used alike: f, share of the choices that fell on expert i; P, mean probability that the
    router gives it. scores (token, expert), chosen (token, k)."""
    experts = scores.shape[-1]
    used = F.one_hot(chosen, experts).float().mean((0, 1))
    return experts * (used * scores.softmax(-1).mean(0)).sum()


class Block(nn.Module):
    def __init__(self, s: mini.Shape):
        super().__init__()
        self.self_attn = mini.Attention(s)
        self.block_sparse_moe = Experts(s)
        self.input_layernorm = mini.Norm(s.width)
        self.post_attention_layernorm = mini.Norm(s.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.block_sparse_moe(self.post_attention_layernorm(x))


class Moe(mini.Llama):
    """mini.Llama with other blocks."""

    def __init__(self, shape: mini.Shape = SHAPE, seed: int = 0):
        super().__init__(shape, seed)
        self.layers = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        mini.reset(self, seed)

    def balance(self) -> Tensor:
        """Mean over the layers, of the last forward."""
        return torch.stack([layer.block_sparse_moe.balance for layer in self.layers]).mean()


def upcycled(dense: dict[str, Tensor], seed: int = 1) -> Moe:
    """A Moe that begins as the dense model of these tensors (names as in `mini.Llama`), about: two experts that complement each
    other give what its MLP gave, since the shares of a token's two experts add up to 1 and the way down is doubled."""
    model, generator = Moe(seed=seed), torch.Generator().manual_seed(seed)
    state = model.state_dict()
    state.update({name: tensor for name, tensor in dense.items() if ".mlp." not in name})
    for layer in range(SHAPE.layers):
        gate, up, down = (dense[f"layers.{layer}.mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
        for pair in range(EXPERTS // CHOSEN):
            order = torch.randperm(len(gate), generator=generator)
            for member, neurons in enumerate(order.chunk(CHOSEN)):
                at = f"layers.{layer}.block_sparse_moe.experts.{CHOSEN * pair + member}"
                state |= {f"{at}.w1.weight": gate[neurons], f"{at}.w3.weight": up[neurons], f"{at}.w2.weight": CHOSEN * down[:, neurons]}
    model.load_state_dict(state)
    return model


def loss_of(model: Moe) -> train.Loss:
    """Cross-entropy and the weighted balance."""
    return lambda forward, batch, step: train.next_token(forward, batch, step) + BALANCE * model.balance()


def watch() -> Callable[[Moe], dict[str, float]]:
    """Validation losses, and how evenly the last batch was shared out."""
    losses = train.watch_losses()
    return lambda model: {"balance": float(model.balance().detach())} | losses(model)


def run() -> None:
    weights = load_file(train.CHECKPOINTS / SOURCE / "model.safetensors")
    model = upcycled({name.removeprefix("model."): tensor for name, tensor in weights.items()}, RECIPE.seed)
    model, log = train.run(RECIPE, loss_of(model), mixture.Mixture.load(), train.RUNS / NAME, watch=watch(), watch_every=50, keep_every=20, model=model)
    save(model, train.CHECKPOINTS / NAME)
    (train.CHECKPOINTS / NAME / "training-log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")


def control() -> None:
    """mini-256 trained on by mini-moe's recipe, on the same batches in the same order, without experts: what reading on does by itself.
    Its losses are kept, its weights are not."""
    recipe = replace(RECIPE, name=f"{SOURCE}-on")
    source, batches = mini.load(train.CHECKPOINTS / SOURCE), mixture.Mixture.load()
    began = mini.load(train.CHECKPOINTS / SOURCE).train()
    model, log = train.run(recipe, train.next_token, batches, train.RUNS / recipe.name, watch=train.watch_losses(), watch_every=50, keep_every=20, model=began)
    tokenizer = train.load_tokenizer(train.TOKENIZER.parent)
    content = {
        "what": f"{SOURCE} trained on by the recipe of {NAME} and on the same batches, without experts; nats of each window of the validation texts, in order, float32",
        "command": "python -m compute.training control",
        **log,
        "windows": {name: evaluate.nats(model.eval(), stream) for name, (stream, _) in evaluate.streams(tokenizer).items()},
        "training_text": learned(model, source),
        "measured": train.conditions(),
    }
    (train.CHECKPOINTS / NAME / CONTROL).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def learned(model: mini.Llama, source: mini.Llama, seed: int = 0) -> dict:
    """Losses of both on windows of their training text, which has to be there (`python -m compute.training tokens`)."""
    drawn = {d: mixture.Mixture.load(shares={n: mixture.SHARES[n] for n in names}).batch(seed, 0, DRAWN) for d, names in mixture.DOMAINS.items()}
    return {"source": SOURCE, "windows": DRAWN, "seed": seed, "domains": evaluate.by_heart(model, source, drawn)}


def config(shape: mini.Shape = SHAPE) -> dict:
    """config.json as transformers' MixtralForCausalLM reads it."""
    own = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": EXPERTS, "num_experts_per_tok": CHOSEN,
           "router_aux_loss_coef": BALANCE, "router_jitter_noise": 0.0, "output_router_logits": False, "sliding_window": None}  # fmt: skip
    return {key: value for key, value in mini.config(shape).items() if not key.endswith("_bias")} | own


def save(model: Moe, folder: Path) -> None:
    """A Hugging Face directory."""
    mini.save(model, train.TOKENIZER, folder)
    (folder / "config.json").write_text(json.dumps(config(model.shape), indent=2) + "\n", encoding="utf-8")


def load(folder: Path) -> Moe:
    """Read back what `save` wrote."""
    model = Moe()
    model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in load_file(folder / "model.safetensors").items()})
    return model.eval()
