"""Muon (Jordan et al. 2024): momentum whose step is made orthogonal, for weight matrices.

torch.optim.Muon orthogonalises in bfloat16, which a processor without bfloat16 arithmetic emulates several times slower
than float32. This one stays in float32 and handles all matrices of one shape in one batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic that pushes all singular values into about 0.7 … 1.2
ITERATIONS = 5


def orthogonal(update: Tensor) -> Tensor:
    """U Vᵀ of update = U S Vᵀ, roughly, by Newton-Schulz iteration; shape (batch, rows, columns)."""
    a, b, c = COEFFICIENTS
    tall = update.shape[-2] > update.shape[-1]
    x = update.mT if tall else update
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonal step scaled by sqrt(max(1, rows / columns)), decoupled weight decay."""

    def __init__(self, matrices: list[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.01):
        if any(m.ndim != 2 for m in matrices):
            raise ValueError("Muon is for matrices only")
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            for (rows, columns), matrices in by_shape.items():
                updates = []
                for p in matrices:
                    velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                    velocity.lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(velocity, group["momentum"]))
                scale = max(1.0, rows / columns) ** 0.5
                for p, update in zip(matrices, orthogonal(torch.stack(updates)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update, alpha=-group["lr"] * scale)
