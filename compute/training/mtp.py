"""A multi-token prediction head, here on mini-256: the target drafts for itself (DeepSeek-V3 report, arXiv:2412.19437, §2.2).

One block more, fed with what the target has computed anyway: its last hidden state h_i (after the final norm) and the
embedding of the token that follows. It guesses the token after that. A further guess feeds the head's own output where
h_i stood. The target stays as it is; embedding and output matrix are the target's.

Training unrolls the recursion exactly as inference runs it: the guess of depth d at position j attends to keys and values
that came from true hidden states up to position j − d + 1, and after those to the ones of its own chain.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from compute.training import distil, evaluate, mixture
from compute.training import model as mini
from compute.training.tokenizer import load as load_tokenizer
from compute.training.train import CHECKPOINTS, RUNS, TOKENIZER, Loss, Recipe, run

NAME, TARGET = "mini-256-mtp", "mini-256"
DEPTH = 3  # guesses in a row that training unrolls
RECIPE = Recipe(NAME, TARGET, steps=1_200)


class Head(nn.Module):
    """hidden_norm, embedding_norm, projection (M, 2M), one Llama block, norm. No embedding of its own."""

    def __init__(self, shape: mini.Shape, seed: int = 0, theta: float = mini.ROPE_THETA):
        super().__init__()
        self.shape, self.theta = shape, theta
        self.hidden_norm, self.embedding_norm = mini.Norm(shape.width), mini.Norm(shape.width)
        self.projection = nn.Linear(2 * shape.width, shape.width, bias=False)
        self.layer = mini.Block(shape)
        self.norm = mini.Norm(shape.width)
        mini.keep_turns(self, shape, theta)
        mini.reset(self, seed)

    def forward(self, hidden: Tensor, embedded: Tensor, depth: int) -> list[Tensor]:
        """The chain's outputs h' for depths 1 … `depth`, each (batch, position, width).

        hidden (batch, position, width): h_j of the target. embedded: the embedding of token j + 1. Row j of depth d
        comes from h_{j−d+1} and the tokens after it; the first d − 1 rows have none and mean nothing.
        """
        block, s = self.layer, self.shape
        B, T, _ = hidden.shape
        cos, sin = self.cos[:T], self.sin[:T]
        tokens, state = self.embedding_norm(embedded), hidden
        steps = torch.arange(T, device=hidden.device)
        keys, values, outputs = [], [], []

        def heads(x: Tensor, count: int) -> Tensor:
            return x.view(B, T, count, s.head).transpose(1, 2)  # (batch, head, position, dim)

        for d in range(depth):
            x = self.projection(torch.cat([self.hidden_norm(state), tokens], -1))
            y = block.input_layernorm(x)
            q = mini.rotate(heads(block.self_attn.q_proj(y), s.heads), cos, sin)
            k = mini.rotate(heads(block.self_attn.k_proj(y), s.kv_heads), cos, sin)
            v = heads(block.self_attn.v_proj(y), s.kv_heads)
            group = s.heads // s.kv_heads
            keys.append(k.repeat_interleave(group, 1))
            values.append(v.repeat_interleave(group, 1))
            true = (q @ keys[0].mT).masked_fill(steps > steps[:, None] - d, float("-inf"))
            chain = [later(keys[e], d - e) for e in range(1, d + 1)]  # depth e + 1 of the same chain
            own = [(q * key).sum(-1, keepdim=True) for key in chain]
            weights = (torch.cat([true, *own], -1) * s.head**-0.5).softmax(-1)
            mixed = weights[..., :T] @ values[0]
            for e in range(1, d + 1):
                mixed = mixed + weights[..., T + e - 1, None] * later(values[e], d - e)
            x = x + block.self_attn.o_proj(mixed.transpose(1, 2).reshape(B, T, -1))
            x = x + block.mlp(block.post_attention_layernorm(x))
            outputs.append(self.norm(x))
            state = later(outputs[-1], 1)
        return outputs


def later(x: Tensor, by: int) -> Tensor:
    """Moves everything `by` positions on (second to last dimension), zeros in front."""
    return F.pad(x, (0, 0, by, 0))[..., : x.shape[-2], :]


def guesses(head: Callable, target: mini.Llama, hidden: Tensor, tokens: Tensor, depth: int) -> list[tuple[Tensor, Tensor]]:
    """For each depth (p, logits of q) where the head guesses, (batch, position, vocabulary): p is the target's
    distribution of token j + 2, q the head's. hidden (batch, T, width) is the target's on `tokens` (batch, T)."""
    embedding = target.embed_tokens.weight.detach()
    p = F.linear(hidden[:, 1:], embedding).softmax(-1)
    outputs = head(hidden[:, :-1], F.embedding(tokens[:, 1:], embedding), depth)
    return [(p[:, d:], F.linear(output[:, d:], embedding)) for d, output in enumerate(outputs)]


def loss_from(target: mini.Llama, hidden_of: Callable[[Tensor], Tensor], steps: int, depth: int = DEPTH) -> Loss:
    """Mean over the depths of the cross-entropy to the target's distribution; from half of the steps on −log Σ min(p, q)."""

    def loss(head: Callable, batch: Tensor, step: int) -> Tensor:
        tokens = batch[:, :-1]
        with torch.no_grad():
            hidden = hidden_of(tokens)
        of = distil.to_distribution if 2 * step < steps else distil.to_acceptance
        return torch.stack([of(logits, p) for p, logits in guesses(head, target, hidden, tokens, depth)]).mean()

    return loss


@torch.no_grad()
def agreement(target: mini.Llama, head: Head, stream: np.ndarray, depth: int = DEPTH, most: int | None = None) -> list[dict]:
    """For each depth alpha, the mean of Σ min(p, q), and greedy agreement, over windows of real text."""
    sums = np.zeros((depth, 3))
    for group in evaluate.windows(stream, most):
        tokens = group[:, :-1]
        if tokens.shape[1] < depth + 2:
            continue
        for d, (p, logits) in enumerate(guesses(head, target, target.hidden(tokens), tokens, depth)):
            same = p.argmax(-1) == logits.argmax(-1)
            sums[d] += float(torch.minimum(p, logits.softmax(-1)).sum()), int(same.sum()), same.numel()
    return [{"alpha": a / n, "greedy": g / n} for a, g, n in sums.tolist()]


def watch_agreement(target: mini.Llama, most: int = 16) -> Callable[[Head], dict[str, float]]:
    tokenizer = load_tokenizer(TOKENIZER.parent)
    held = {d: mixture.encode(tokenizer, mixture.read_text(mixture.DOMAINS[d][0])) for d in ("modern", "stories", "classical")}

    def watch(head: Head) -> dict[str, float]:
        rows = {domain: agreement(target, head, stream, DEPTH, most) for domain, stream in held.items()}
        return {f"alpha_{domain}_{d + 1}": row["alpha"] for domain, found in rows.items() for d, row in enumerate(found)}

    return watch


def begin(target: mini.Llama, recipe: Recipe) -> Head:
    """A head with random matrices, whose outputs start in the scale that the target's output matrix expects."""
    head = Head(target.shape, recipe.seed)
    head.norm.weight.data.copy_(target.norm.weight.data)
    return head


def train(compiled: bool = False) -> None:
    """The head to its budget; checkpoint and log under data/checkpoints. Needs mini-256."""
    target = mini.load(CHECKPOINTS / TARGET).requires_grad_(False)
    hidden_of = torch.compile(target.hidden) if compiled else target.hidden
    loss = loss_from(target, hidden_of, RECIPE.steps)
    head, log = run(
        RECIPE, loss, mixture.Mixture.load(), RUNS / NAME, watch=watch_agreement(target), compiled=compiled,
        model=begin(target, RECIPE),
    )  # fmt: skip
    folder = CHECKPOINTS / NAME
    save(head, folder)
    log |= {"target": TARGET, "depth": DEPTH}
    (folder / "training-log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")


def save(
    head: Head, folder: Path, *, target: str = TARGET, dtype: torch.dtype = torch.float32, shortlist: Tensor | None = None
) -> None:
    """model.safetensors and config.json: the target's sizes, and its name. `shortlist` (R): ids of the tokens that the head
    guesses among, if not all."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / "model.safetensors.partial"
    tensors = {k: v.detach().to(dtype).clone().contiguous() for k, v in head.state_dict().items()}
    save_file(tensors | ({} if shortlist is None else {"shortlist": shortlist}), partial, metadata={"format": "pt"})
    partial.chmod(0o644)
    partial.replace(folder / "model.safetensors")
    s = head.shape
    about = {
        "target": target, "depth_trained": DEPTH, "hidden_size": s.width, "intermediate_size": s.hidden,
        "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads, "head_dim": s.head,
        "rms_norm_eps": mini.NORM_EPS, "rope_theta": head.theta, "max_position_embeddings": mini.POSITIONS,
        "dtype": str(dtype).removeprefix("torch."),
    }  # fmt: skip
    if shortlist is not None:
        about["shortlist"] = len(shortlist)
    (folder / "config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def load(folder: Path) -> Head:
    """In float32, without the shortlist."""
    c = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shape = mini.Shape(c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["intermediate_size"])
    head = Head(shape, theta=c["rope_theta"])
    head.load_state_dict({k: v.float() for k, v in load_file(folder / "model.safetensors").items() if k != "shortlist"})
    return head.eval()
