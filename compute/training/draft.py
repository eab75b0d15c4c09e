"""A small draft for SmolLM2, taught by SmolLM2's own answers (`teach`).

Its embedding, which is nearly all of it, begins as the leading principal components of SmolLM2's. What counts is how often
it names the token that the target would choose, so the loss is the cross-entropy to the target's distribution, cut to
its most likely tokens and renormalised, and then −log Σ min(p, q).

A step looks at a part of the vocabulary only: the tokens that the target considers somewhere in the batch, and a sample
of the others that stands for all of them in the softmax.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from compute.engine.loader import Model
from compute.facts import speculation_prompts
from compute.training import model as mini
from compute.training import teach
from compute.training.teach import Answers
from compute.training.train import CHECKPOINTS, RUNS, Loss, Recipe, run

NAME, TARGET = "smollm2-draft", teach.TARGET
RECIPE = Recipe(NAME, NAME, steps=1_200, rows=16, muon_rate=0.02, adam_rate=2e-3, warmup=40, decay=0.6, window=teach.NEW)
HELD_OUT = 16  # every n-th answer is for watching, not for training
OTHERS = 2_048  # tokens that stand for all those nobody considers in a batch
SCALE, NORM = 0.2, 2.0  # root mean square of the embedding, and the last norm's weight, at the start
LAST_PART = 0.7  # of the steps: from here on the loss is −log Σ min(p, q)


@dataclass(frozen=True)
class Batch:
    """Prompts with their answers. Row r's distribution i belongs to position `at[r, i]` where `real[r, i]`."""

    tokens: Tensor  # (rows, length)
    at: Tensor  # (rows, NEW) positions whose next token is the answer's i-th
    real: Tensor  # (rows, NEW) bool
    ids: Tensor  # (rows, NEW, TOP) what the target considers, most likely first
    p: Tensor  # (rows, NEW, TOP) float32, sums to 1


def assemble(parts: list[tuple[Answers, np.ndarray]]) -> Batch:
    """Some rows of some groups, padded behind to the longest."""
    sequences, at, lengths, ids, p = [], [], [], [], []
    for answers, rows in parts:
        for r in rows:
            start, length = int(answers.prompt_lengths[r]), int(answers.lengths[r])
            sequences.append(np.concatenate([answers.prompts[r, :start], answers.tokens[r, :length]]).astype(np.int64))
            at.append(start - 1 + np.minimum(np.arange(answers.tokens.shape[1]), length - 1))
            lengths.append(length)
            ids.append(answers.top_ids[r].astype(np.int64))
            p.append(answers.top_p[r].astype(np.float32))
    tokens = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.int64)
    for row, sequence in zip(tokens, sequences, strict=True):
        row[: len(sequence)] = torch.from_numpy(sequence)
    positions = torch.from_numpy(np.stack(at))
    real = torch.arange(positions.shape[1]) < torch.tensor(lengths)[:, None]
    weights = torch.from_numpy(np.stack(p))
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-6)
    return Batch(tokens, positions, real, torch.from_numpy(np.stack(ids)), weights)


@dataclass(frozen=True)
class Lessons:
    """The groups on the disk, in the place of train.run's batches."""

    groups: tuple[Answers, ...]

    @classmethod
    def load(cls, folder: Path = teach.FOLDER) -> Lessons:
        return cls(tuple(Answers.load(path) for path in sorted(folder.glob("group-*.npz"))))

    def batch(self, seed: int, step: int, rows: int) -> Batch:
        """Half of the rows from one group, half from another: prompts of a group are about equally long."""
        rng = np.random.default_rng((seed, step))
        picked = rng.choice(len(self.groups), size=2, replace=len(self.groups) < 2)
        parts = []
        for group in (self.groups[g] for g in picked):
            taught = np.flatnonzero(np.arange(len(group.lengths)) % HELD_OUT != HELD_OUT - 1)
            parts.append((group, rng.choice(taught, size=rows // 2, replace=False)))
        return assemble(parts)

    def held_out(self, most: int) -> list[Batch]:
        """The rows of the first groups that are never trained on, one batch a group."""
        return [assemble([(g, np.arange(HELD_OUT - 1, len(g.lengths), HELD_OUT))]) for g in self.groups[:most]]

    def weights(self, vocabulary: int) -> np.ndarray:
        """How much of the target's probability each token got, plus a little for those it never considered."""
        mass = np.full(vocabulary, 1e-7)
        for g in self.groups:
            np.add.at(mass, g.top_ids.reshape(-1), g.top_p.reshape(-1).astype(np.float64) / g.lengths.sum())
        return mass / mass.sum()


def principal(embedding: Tensor, weights: Tensor, width: int) -> Tensor:
    """The embedding (V, M) in its `width` leading principal components, (V, width): those that keep most of
    Σ weight · |row|² of centred rows, turned so that no component stands out, in the scale SCALE."""
    rows = embedding.double()
    centred = rows - weights.double() @ rows
    _, axes = torch.linalg.eigh(centred.T @ (weights.double()[:, None] * centred))  # ascending
    kept = centred @ axes[:, -width:]
    turn, _ = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    kept = kept @ turn
    return (kept * SCALE / kept.pow(2).mean().sqrt()).float()


def begin(target: Model, lessons: Lessons, recipe: Recipe = RECIPE) -> mini.Llama:
    """A draft with random matrices and the target's compressed embedding."""
    draft = mini.Llama(mini.SHAPES[recipe.shape], recipe.seed)
    embedding = target.weights.embedding.float()
    weights = torch.from_numpy(lessons.weights(len(embedding)))
    draft.embed_tokens.weight.data.copy_(principal(embedding, weights, draft.shape.width))
    draft.norm.weight.data.fill_(NORM)
    return draft


class Considered(torch.autograd.Function):
    """(logits, columns, offset) → (logits at the columns, logsumexp(logits + offset)). Works in the logits' own memory, forth
    and back: the plain expression spends more time on copies of that matrix than on its product."""

    @staticmethod
    def forward(ctx, logits: Tensor, columns: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        top = logits.gather(1, columns)
        weights = logits.add_(offset)
        largest = weights.amax(1, keepdim=True)
        weights.sub_(largest).exp_()
        total = weights.sum(1, keepdim=True)
        ctx.save_for_backward(weights, columns, total)
        return top, (total.log() + largest)[:, 0]

    @staticmethod
    def backward(ctx, top: Tensor, denominator: Tensor) -> tuple[Tensor, None, None]:
        weights, columns, total = ctx.saved_tensors
        return weights.mul_(denominator[:, None] / total).scatter_add_(1, columns, top), None, None


def sampled_logits(hidden: Tensor, embedding: Tensor, ids: Tensor, others: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Logits of the considered tokens, and the logarithm of the softmax's denominator.

    hidden (n, width), ids (n, TOP) → (n, TOP), (n). The denominator takes all tokens that occur in `ids` as they are, and
    `others` drawn from the rest, each standing for an equal part of the rest.
    """
    vocabulary = len(embedding)
    considered = torch.zeros(vocabulary, dtype=torch.bool)
    considered[ids.reshape(-1)] = True
    rest = (~considered).nonzero()[:, 0]
    drawn = rest[torch.randperm(len(rest), generator=draw)[:others]]
    columns = torch.cat([considered.nonzero()[:, 0], drawn])
    place = torch.zeros(vocabulary, dtype=torch.int64)
    place[columns] = torch.arange(len(columns))
    stands_for = torch.zeros(len(columns))
    if len(drawn):
        stands_for[-len(drawn) :] = math.log(len(rest) / len(drawn))
    return Considered.apply(F.linear(hidden, embedding[columns]), place[ids], stands_for)


def loss_from(draft: mini.Llama, steps: int, others: int = OTHERS) -> Loss:
    """Mean over the answers' tokens: cross-entropy to the target, and in the last part of the steps −log Σ min(p, q)."""

    def loss(_: Callable, batch: Batch, step: int) -> Tensor:
        hidden = draft.hidden(batch.tokens)
        chosen = hidden[torch.arange(len(hidden))[:, None], batch.at][batch.real]  # (n, width)
        p = batch.p[batch.real]
        draw = torch.Generator().manual_seed(step)
        top, denominator = sampled_logits(chosen, draft.embed_tokens.weight, batch.ids[batch.real], others, draw)
        logq = top - denominator[:, None]
        if step < LAST_PART * steps:
            return -(p * logq).sum(-1).mean()
        return -torch.minimum(p, logq.exp()).sum(-1).clamp_min(1e-4).log().mean()

    return loss


def watch(lessons: Lessons, most: int = 8) -> Callable[[mini.Llama], dict[str, float]]:
    """On answers that are not trained on: how often the draft's first choice is the target's; Σ min(p, q) over the tokens
    that the target keeps; cross-entropy."""
    batches = lessons.held_out(most)

    @torch.no_grad()
    def figures(draft: mini.Llama) -> dict[str, float]:
        sums, count = np.zeros(3), 0
        for b in batches:
            hidden = draft.hidden(b.tokens)[torch.arange(len(b.tokens))[:, None], b.at][b.real]
            logq = F.linear(hidden, draft.embed_tokens.weight).log_softmax(-1)
            p, ids = b.p[b.real], b.ids[b.real]
            q = logq.gather(1, ids)
            same = logq.argmax(-1) == ids[:, 0]
            sums += float(same.sum()), float(torch.minimum(p, q.exp()).sum()), -float((p * q).sum())
            count += len(p)
        return dict(zip(("val_greedy", "val_alpha", "val_loss"), (sums / count).tolist(), strict=True))

    return figures


def save(draft: mini.Llama, target: Model, folder: Path) -> None:
    """A Hugging Face directory: float16 weights, SmolLM2's tokenizer, its special tokens and its chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / "model.safetensors.partial"
    save_file(
        {f"model.{k}": v.detach().half().contiguous() for k, v in draft.state_dict().items()}, partial, metadata={"format": "pt"}
    )
    partial.chmod(0o644)
    partial.replace(folder / "model.safetensors")
    target.tokenizer.inner.save(str(folder / "tokenizer.json"), pretty=False)
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
    for name, content in (
        ("config.json", mini.config(draft.shape) | {"bos_token_id": 1, "eos_token_id": 2, "dtype": "float16"}),
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": mini.POSITIONS, **special}),
        ("generation_config.json", {"bos_token_id": 1, "eos_token_id": 2}),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def train(target: Model) -> None:
    """The draft to its budget; checkpoint and log under data/checkpoints. Needs the target and its answers."""
    lessons = Lessons.load()
    draft = begin(target, lessons)
    draft, log = run(
        RECIPE, loss_from(draft, RECIPE.steps), lessons, RUNS / NAME, watch=watch(lessons), watch_every=100, keep_every=50,
        model=draft,
    )  # fmt: skip
    folder = CHECKPOINTS / NAME
    save(draft, target, folder)
    answers = sum(len(g.lengths) for g in lessons.groups)
    tokens = int(sum(g.lengths.sum() for g in lessons.groups))
    log |= {"teacher": TARGET, "taught": {"groups": len(lessons.groups), "answers": answers, "tokens": tokens}}
    (folder / "training-log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")


# --- figures on the fixed prompts ------------------------------------------------------------------------------------


def held_out_answers(target: Model, new: int = 96) -> tuple[list[list[int]], list[list[int]]]:
    """The fixed prompts as ids, and the target's greedy answers."""
    prompts = [target.tokenizer.encode(p.sent) for p in speculation_prompts(TARGET)]
    made = teach.answer(target, prompts, [0.0] * len(prompts), 0, new)
    return prompts, [t[:n].tolist() for t, n in zip(made.tokens, made.lengths, strict=True)]


@torch.no_grad()
def measure(target: Model, draft: mini.Llama, new: int = 96) -> dict:
    """On the fixed prompts along the target's greedy answers, in float32: greedy agreement, α = Σ min(p, q) at
    temperature 1, and for k = 1 … 8 the tokens that one verification gains at temperature 0 (accepted run + 1)."""
    from compute.engine.model import forward

    rows, total = [], {"tokens": 0, "same": 0.0, "alpha": 0.0}
    runs = {k: [0, 0] for k in range(1, 9)}  # tokens, rounds
    for prompt, (ids, answer) in zip(speculation_prompts(TARGET), zip(*held_out_answers(target, new), strict=True), strict=True):
        tokens = torch.tensor([ids + answer[:-1]])
        p = forward(target.weights, tokens, None, torch.arange(tokens.shape[1])[None])[0, len(ids) - 1 :].softmax(-1)
        q = draft(tokens)[0, len(ids) - 1 :].softmax(-1)
        same = (q.argmax(-1) == torch.tensor(answer)).numpy()
        alpha = float(torch.minimum(p, q).sum(-1).mean())
        for k, counts in runs.items():
            counts[0], counts[1] = counts[0] + len(same), counts[1] + rounds(same, k)
        rows.append({"id": prompt.id, "kind": prompt.kind, "tokens": len(answer), "greedy": float(same.mean()), "alpha": alpha})
        total["tokens"] += len(answer)
        total["same"] += float(same.sum())
        total["alpha"] += alpha * len(answer)
    return {
        "tokens": total["tokens"],
        "greedy": total["same"] / total["tokens"],
        "alpha": total["alpha"] / total["tokens"],
        "tokens_a_round": {str(k): made / turns for k, (made, turns) in runs.items()},
        "prompts": rows,
    }


def rounds(same: np.ndarray, k: int) -> int:
    """How many verifications an answer takes when `same[t]` says whether the draft names its token t: each takes the run of
    agreements, k at most, and one token of the target's own."""
    at = count = 0
    while at < len(same):
        guessed = same[at : at + k]
        at += (len(guessed) if guessed.all() else int(guessed.argmin())) + 1
        count += 1
    return count
