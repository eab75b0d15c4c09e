"""Figures on the committed validation texts: loss, bits per byte, and how well a draft agrees with its target. And on text that a model
was trained on, which it may have by heart."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from compute.quantize.paired import change
from compute.training import mixture
from compute.training.model import Llama

ROWS = 32  # windows evaluated at once


def windows(stream: np.ndarray, most: int | None = None) -> list[Tensor]:
    """Consecutive windows of CONTEXT + 1 tokens, each overlapping the next by one, so that every token but the first
    is predicted exactly once; the last window is shorter. Groups of up to ROWS windows, shape (rows, tokens)."""
    ids = torch.from_numpy(stream.astype(np.int64))
    whole = (len(ids) - 1) // mixture.CONTEXT
    if most is not None:
        whole = min(whole, most)
    rows = [ids[i * mixture.CONTEXT : (i + 1) * mixture.CONTEXT + 1] for i in range(whole)]
    groups = [torch.stack(rows[i : i + ROWS]) for i in range(0, whole, ROWS)]
    rest = ids[whole * mixture.CONTEXT :]
    if most is None and len(rest) > 1:
        groups.append(rest[None])
    if not groups:
        raise ValueError(f"{len(ids)} tokens hold no window")
    return groups


def loss(model: Llama, stream: np.ndarray, most: int | None = None) -> float:
    """Nats per token, float32. Each window starts without context. `most`: only so many windows."""
    groups = windows(stream, most)
    return sum(float(_nats(model, group).sum()) for group in groups) / sum(group[:, 1:].numel() for group in groups)


def nats(model: Llama, stream: np.ndarray) -> list[float]:
    """Of each window, summed over its tokens, in order."""
    return [value for group in windows(stream) for value in _nats(model, group).tolist()]


@torch.no_grad()
def _nats(model: Llama, group: Tensor) -> Tensor:
    """(rows, tokens) → (rows): summed over the tokens of each."""
    return F.cross_entropy(model(group[:, :-1]).float().transpose(1, 2), group[:, 1:], reduction="none").sum(1)


@torch.no_grad()
def agreement(target: Llama, draft: Llama, stream: np.ndarray, most: int | None = None) -> dict[str, float]:
    """Over all positions of real text: `alpha`, mean of Σ min(p, q), which is the chance that speculative sampling at
    temperature 1 accepts a guess there; `greedy`, how often both name the same most likely token."""
    alpha, same, count = 0.0, 0, 0
    for group in windows(stream, most):
        p, q = target(group[:, :-1]).float().softmax(-1), draft(group[:, :-1]).float().softmax(-1)
        alpha += float(torch.minimum(p, q).sum())
        same += int((p.argmax(-1) == q.argmax(-1)).sum())
        count += group[:, 1:].numel()
    return {"alpha": alpha / count, "greedy": same / count}


def by_heart(model: Llama, source: Llama, drawn: dict[str, Tensor]) -> dict[str, dict[str, float]]:
    """What a model has by heart that the one it began from has not. drawn: kind of text → windows of what training draws from, (rows,
    CONTEXT + 1). For each kind: nats_per_token and source_nats_per_token, and low and high, 95 % of their difference, window by window."""
    found = {}
    for domain, rows in drawn.items():
        mine, before = (torch.cat([_nats(m, group) for group in rows.split(ROWS)]).numpy() for m in (model, source))
        counts = np.full(len(rows), rows.shape[1] - 1)
        difference = change(before, mine, counts, np.zeros(len(rows)), together=1)
        found[domain] = {
            "nats_per_token": float(mine.sum() / counts.sum()), "source_nats_per_token": float(before.sum() / counts.sum()),
            "low": difference.low, "high": difference.high,
        }  # fmt: skip
    return found


def streams(tokenizer, texts: Path = mixture.TEXTS) -> dict[str, tuple[np.ndarray, int]]:
    """Validation source → (token stream, bytes of its text)."""
    found = {}
    for name in (n for names in mixture.DOMAINS.values() for n in names):
        documents = mixture.read_text(name, texts)
        found[name] = mixture.encode(tokenizer, documents), sum(len(d.encode()) for d in documents)
    return found


def report(model: Llama, tokenizer, target: Llama | None = None, texts: Path = mixture.TEXTS) -> dict[str, dict]:
    """{"sources": …, "domains": …}, whole files, float32: tokens, bytes, nats_per_token, bits_per_byte; with a target also
    alpha and greedy. A domain is the sum over its sources. <|endoftext|> costs nats and counts as a token, not a byte."""
    sources: dict[str, dict] = {}
    for name, (stream, size) in streams(tokenizer, texts).items():
        sources[name] = {"tokens": len(stream) - 1, "bytes": size, "nats_per_token": loss(model, stream)}
        if target is not None:
            sources[name] |= agreement(target, model, stream)
    domains: dict[str, dict] = {}
    for domain, names in mixture.DOMAINS.items():
        rows = [sources[n] for n in names]
        total = {key: sum(r[key] for r in rows) for key in ("tokens", "bytes")}
        for key in rows[0].keys() - total.keys():
            total[key] = sum(r[key] * r["tokens"] for r in rows) / total["tokens"]
        domains[domain] = total
    for row in (*sources.values(), *domains.values()):
        row["bits_per_byte"] = row["nats_per_token"] * row["tokens"] / row["bytes"] / math.log(2)
    return {"sources": sources, "domains": domains}
