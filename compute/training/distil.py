"""Drafts for speculative decoding: small models taught by mini-256 to predict what it predicts.

What counts is not the loss on text but α = Σ min(p, q), the chance that the target (p) accepts the draft's guess (q) at
temperature 1 (Leviathan et al. 2023, arXiv:2211.17192). The first half of the steps brings q near p by cross-entropy to
the whole distribution; the second half raises α itself.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from compute.training import evaluate, mixture
from compute.training import model as mini
from compute.training.tokenizer import load as load_tokenizer
from compute.training.train import CHECKPOINTS, RUNS, TOKENIZER, Loss, Recipe, publish, run, watch_losses

TEACHER = "mini-256"
RECIPES = {
    "mini-64": Recipe("mini-64", "mini-64", steps=1_500),
    "mini-128": Recipe("mini-128", "mini-128", steps=1_500),
}


def to_distribution(logits: Tensor, p: Tensor) -> Tensor:
    """−Σ p log q, mean over positions, nats; both (rows, tokens, vocabulary)."""
    return -(p * logits.log_softmax(-1)).sum(-1).mean()


def to_acceptance(logits: Tensor, p: Tensor) -> Tensor:
    """−log Σ min(p, q), mean over positions. The floor keeps the gradient finite where q misses p altogether."""
    return -torch.minimum(p, logits.softmax(-1)).sum(-1).clamp_min(1e-4).log().mean()


def loss_from(teacher: Callable[[Tensor], Tensor], steps: int) -> Loss:
    def loss(student: Callable[[Tensor], Tensor], batch: Tensor, step: int) -> Tensor:
        tokens = batch[:, :-1]
        with torch.no_grad():
            p = teacher(tokens).softmax(-1)
        logits = student(tokens)
        return to_distribution(logits, p) if 2 * step < steps else to_acceptance(logits, p)

    return loss


def watch_agreement(teacher: mini.Llama, most: int = 32):
    """α and greedy agreement on the first windows of one source a domain, beside the losses."""
    losses = watch_losses(most=most)
    tokenizer = load_tokenizer(TOKENIZER.parent)
    held = {
        d: mixture.encode(tokenizer, mixture.read_text(mixture.DOMAINS[d][0]))
        for d in ("modern", "stories", "classical")
    }

    def watch(student: mini.Llama) -> dict[str, float]:
        found = losses(student)
        for domain, stream in held.items():
            agreed = evaluate.agreement(teacher, student, stream, most)
            found |= {f"alpha_{domain}": agreed["alpha"], f"greedy_{domain}": agreed["greedy"]}
        return found

    return watch


def distil(name: str, compiled: bool = False) -> None:
    """Train one draft to its budget and write its checkpoint. Needs the teacher's."""
    recipe = RECIPES[name]
    teacher = mini.load(CHECKPOINTS / TEACHER).requires_grad_(False)
    watch = watch_agreement(teacher)
    taught = torch.compile(teacher) if compiled else teacher
    loss = loss_from(taught, recipe.steps)
    model, log = run(recipe, loss, mixture.Mixture.load(), RUNS / name, watch=watch, compiled=compiled)
    publish(model, log | {"teacher": TEACHER}, name)
