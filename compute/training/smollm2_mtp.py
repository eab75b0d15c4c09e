"""A multi-token prediction head on SmolLM2, which then drafts for itself: `mtp` on another target.

Its data are the target's own answers (`teach`), along which the target's hidden states are computed once and kept. It guesses
among the tokens that those texts use most (`shortlist`), so that a guess reads a sixth of the output matrix. What counts
is how often the guess is the target's most likely token; EAGLE (Li et al. 2024, arXiv:2401.15077) is the same idea.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from compute.engine.loader import Model
from compute.engine.model import Config, attention, feed_forward, hidden_states, place, rms_norm, rotation
from compute.facts import speculation_prompts
from compute.training import draft, mixture, mtp, teach
from compute.training import model as mini
from compute.training.teach import Answers
from compute.training.train import CHECKPOINTS, RUNS, Loss, Recipe, run

NAME, TARGET = "smollm2-135m-mtp", teach.TARGET
STATES = mixture.ROOT / "build" / "speculation-states"
SIDE_BY_SIDE = 16  # answers in one forward of the target
DEPTH = mtp.DEPTH  # guesses in a row that training unrolls, at the end
RECIPE = Recipe(NAME, "smollm2-mtp", steps=400, rows=16, muon_rate=0.01, adam_rate=1e-3, warmup=20, decay=0.7, window=teach.NEW)
DEEPER = (0.5, 0.8)  # of the steps: from here on two guesses in a row, from there on three
MEASURED_DEPTH = 6
SHORTLIST = 8_192  # tokens that the head can guess
LONGEST = 192  # tokens of a sequence, prompt and answer
CONSIDERED = 8  # of the target's most likely tokens
OTHERS = 1_024  # tokens that stand for all those nobody considers in a batch
SHARE = 0.5  # of the loss on the target's most likely token alone
FIT = 80  # answers in the regression at the start


# --- the target's hidden states --------------------------------------------------------------------------------------


def sequence(answers: Answers, row: int) -> NDArray[np.int64]:
    """Prompt and answer."""
    prompt = answers.prompts[row, : answers.prompt_lengths[row]]
    return np.concatenate([prompt, answers.tokens[row, : answers.lengths[row]]]).astype(np.int64)


def padded(sequences: list[NDArray[np.int64]]) -> Tensor:
    """(rows, longest), zeros behind."""
    tokens = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.int64)
    for row, ids in zip(tokens, sequences, strict=True):
        row[: len(ids)] = torch.from_numpy(ids)
    return tokens


def states(model: Model, answers: Answers) -> NDArray[np.float16]:
    """h after the final norm of every token of every row, one row after the other, (tokens, width)."""
    sequences = [sequence(answers, r) for r in range(len(answers.lengths))]
    starts = np.cumsum([0, *map(len, sequences)])
    out = np.zeros((starts[-1], model.config.hidden), np.float16)
    by_length = sorted(range(len(sequences)), key=lambda r: len(sequences[r]))
    for first in range(0, len(by_length), SIDE_BY_SIDE):
        rows = by_length[first : first + SIDE_BY_SIDE]
        tokens = padded([sequences[r] for r in rows])
        hidden = hidden_states(model.weights, tokens, None, torch.arange(tokens.shape[1]).expand(tokens.shape))
        for r, h in zip(rows, hidden, strict=True):
            out[starts[r] : starts[r + 1]] = h[: len(sequences[r])].half().numpy()
    return out


def keep_states(model: Model, answers_at: Path = teach.FOLDER, folder: Path = STATES) -> None:
    """A file for each group of answers that has none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(answers_at.glob("group-*.npz")):
        kept = folder / f"{path.stem}.npy"
        if not kept.exists():
            partial = kept.with_suffix(".partial.npy")
            np.save(partial, states(model, Answers.load(path)))
            partial.replace(kept)
            print(kept.stem, flush=True)


# --- what the head learns from ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Row r guesses the answer's token i at position `at[r, i]`, where `real[r, i]`."""

    tokens: Tensor  # (rows, T + 1)
    hidden: Tensor  # (rows, T + 1, width) float32
    at: Tensor  # (rows, NEW)
    real: Tensor  # (rows, NEW) bool; never the first token of an answer, which no draft guesses
    ids: Tensor  # (rows, NEW, CONSIDERED) places in the shortlist; where p is 0, they mean nothing
    p: Tensor  # (rows, NEW, CONSIDERED) float32: the target's, renormalised over those
    best: Tensor  # (rows, NEW) place of the target's most likely token, −1 where it is not in the shortlist


@dataclass(frozen=True)
class Lessons:
    """Answers with the target's hidden states, in the place of train.run's batches."""

    groups: tuple[Answers, ...]
    states: tuple[NDArray[np.float16], ...]  # of each group, all rows one after the other
    shortlist: NDArray[np.int64]  # (R) ascending
    vocabulary: int

    @classmethod
    def load(cls, config: Config, answers_at: Path = teach.FOLDER, folder: Path = STATES) -> Lessons:
        paths = sorted(folder.glob("group-???.npy"))
        groups = tuple(Answers.load(answers_at / f"{path.stem}.npz") for path in paths)
        states = tuple(np.load(path, mmap_mode="r") for path in paths)
        return cls(groups, states, shortlist(groups, config.vocabulary, config.stop_tokens), config.vocabulary)

    @cached_property
    def starts(self) -> list[NDArray[np.int64]]:
        """Where each row of a group begins in its states."""
        return [np.cumsum([0, *(g.prompt_lengths + g.lengths)]) for g in self.groups]

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Token id → place in the shortlist, or −1."""
        found = np.full(self.vocabulary, -1)
        found[self.shortlist] = np.arange(len(self.shortlist))
        return found

    @cached_property
    def taught(self) -> NDArray[np.int64]:
        """(group, row) of every answer that is trained on."""
        return np.array([(g, r) for g, a in enumerate(self.groups) for r in range(len(a.lengths)) if not held_out(r)])

    def batch(self, seed: int, step: int, rows: int) -> Batch:
        """Every answer comes once before one comes again."""
        epoch, place = divmod(step * rows, len(self.taught) // rows * rows)
        order = np.random.default_rng((seed, epoch)).permutation(len(self.taught))
        return self.assemble(self.taught[order[place : place + rows]])

    def watched(self, most: int) -> list[Batch]:
        """Of the first groups the greedy answers that are not trained on."""
        kept = [r for r in range(teach.ROWS) if held_out(r) and teach.TEMPERATURES[r % len(teach.TEMPERATURES)] == 0]
        sizes = [len(a.lengths) for a in self.groups[:most]]
        return [self.assemble(np.array([(g, r) for r in kept if r < size])) for g, size in enumerate(sizes)]

    def assemble(self, rows: NDArray[np.int64]) -> Batch:
        """(group, row) pairs, cut to LONGEST tokens and padded behind to the longest."""
        sequences, at, real, ids, p = [], [], [], [], []
        for g, r in rows:
            answers = self.groups[g]
            start, i = int(answers.prompt_lengths[r]), np.arange(answers.tokens.shape[1])
            sequences.append(sequence(answers, r)[:LONGEST])
            length = len(sequences[-1]) - start
            at.append(np.clip(start - 2 + i, 0, max(start + length - 2, 0)))
            real.append((i > 0) & (i < length))
            ids.append(self.places[answers.top_ids[r, :, :CONSIDERED]])
            p.append(np.where(ids[-1] >= 0, answers.top_p[r, :, :CONSIDERED].astype(np.float32), 0))
        tokens = padded(sequences)
        hidden = torch.zeros(*tokens.shape, self.states[0].shape[1])
        for row, (g, r), ids_of in zip(hidden, rows, sequences, strict=True):
            begin = self.starts[g][r]
            row[: len(ids_of)] = torch.from_numpy(self.states[g][begin : begin + len(ids_of)].astype(np.float32))
        places, weights = torch.from_numpy(np.stack(ids)), torch.from_numpy(np.stack(p))
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-6)
        return Batch(
            tokens, hidden, torch.from_numpy(np.stack(at)), torch.from_numpy(np.stack(real)), places.clamp_min(0), weights, places[..., 0]
        )  # fmt: skip


def held_out(row: int) -> bool:
    return row % draft.HELD_OUT == draft.HELD_OUT - 1


def shortlist(groups: Iterable[Answers], vocabulary: int, ends: Iterable[int], size: int = SHORTLIST) -> NDArray[np.int64]:
    """The end tokens, and those that got most of the target's probability in the answers to be taught, `size` in all. Counted
    by probability, tokens which never occurred come in the order of how near they were."""
    mass = np.zeros(vocabulary)
    for answers in groups:
        rows = [r for r in range(len(answers.lengths)) if not held_out(r)]
        np.add.at(mass, answers.top_ids[rows].reshape(-1), answers.top_p[rows].astype(np.float64).reshape(-1))
    mass[list(ends)] = np.inf
    return np.sort(np.argsort(-mass, kind="stable")[:size])


# --- where it begins -------------------------------------------------------------------------------------------------


def blank(config: Config, seed: int = 0) -> mtp.Head:
    """A head of a target's sizes and rotary positions, with random matrices."""
    shape = mini.Shape(config.hidden, config.heads, config.kv_heads, config.intermediate, vocabulary=config.vocabulary)
    return mtp.Head(shape, seed, config.rope.theta)


@torch.inference_mode()
def before_last_layer(model: Model, tokens: Tensor) -> Tensor:
    """What the target's last layer reads, (rows, T, width)."""
    w, c = model.weights, model.config
    here = place(torch.arange(tokens.shape[1]).expand(tokens.shape), w.device)
    turn = rotation(here.positions, w.inverse_frequencies)
    x = F.embedding(tokens, w.embedding)
    for number, layer in enumerate(w.layers[:-1]):
        x = x + attention(c, layer, number, rms_norm(x, layer.attention_norm, c.norm_eps), turn, None, here)
        x = x + feed_forward(layer, rms_norm(x, layer.mlp_norm, c.norm_eps))
    return x


def begin(target: Model, lessons: Lessons, seed: int = 0, answers: int = FIT) -> mtp.Head:
    """The block is the target's last layer, and the projection guesses what that layer would read one position on: the
    solution of a ridge regression over some answers. All in the scale in which that is about 1, as the outputs of block
    and projection are only ever normed."""
    c, w = target.config, target.weights
    head = blank(c, seed)
    batch = lessons.assemble(lessons.taught[np.random.default_rng(seed).permutation(len(lessons.taught))[:answers]])
    real = (batch.tokens[:, 1:] > 0) & (torch.arange(batch.tokens.shape[1] - 1) > 0)
    inputs, read = [], []
    for rows in torch.arange(len(batch.tokens)).split(SIDE_BY_SIDE):
        tokens, ok = batch.tokens[rows], real[rows]
        following = head.embedding_norm(F.embedding(tokens[:, 1:], w.embedding))
        inputs.append(torch.cat([head.hidden_norm(batch.hidden[rows, :-1]), following], -1)[ok])
        read.append(before_last_layer(target, tokens)[:, 1:][ok])
    x, y = torch.cat(inputs).detach(), torch.cat(read)
    scale = float(y.pow(2).mean().rsqrt())
    gram = x.T @ x
    solved = torch.linalg.solve(gram + 1e-2 * gram.diagonal().mean() * torch.eye(len(gram)), x.T @ (y * scale))
    last, q, kv = w.layers[-1], c.heads * c.head_dim, c.kv_heads * c.head_dim
    block = head.layer
    copies = {
        head.projection: solved.T, block.self_attn.o_proj: last.out.weight * scale, block.mlp.down_proj: last.down.weight * scale,
        block.input_layernorm: last.attention_norm, block.post_attention_layernorm: last.mlp_norm, head.norm: w.norm,
    }  # fmt: skip
    copies |= zip((block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj), last.qkv.weight.split([q, kv, kv]))
    copies |= zip((block.mlp.gate_proj, block.mlp.up_proj), last.gate_up.weight.chunk(2))
    for module, values in copies.items():
        module.weight.data.copy_(values)
    return head


# --- training --------------------------------------------------------------------------------------------------------


def depth_at(step: int) -> int:
    """How many guesses in a row are unrolled: the first one settles before others build on it, and costs the least."""
    return 1 + sum(step >= part * RECIPE.steps for part in DEEPER)


def loss_from(head: mtp.Head, embedding: Tensor, guesses: Tensor, depth_at: Callable[[int], int], others: int = OTHERS) -> Loss:
    """Mean over the depths of the cross-entropy to a mixture: SHARE on the target's most likely token, the rest as the target
    distributes it. embedding (vocabulary, width), guesses (R, width): the target's, and its rows of the shortlist."""

    def loss(forward: Callable, b: Batch, step: int) -> Tensor:
        real = b.real & (b.best >= 0)
        ids, p = b.ids[real], (1 - SHARE) * b.p[real]
        p[:, 0] += SHARE
        draw, rows, parts = torch.Generator().manual_seed(step), torch.arange(len(b.tokens))[:, None], []
        for output in forward(b.hidden[:, :-1], F.embedding(b.tokens[:, 1:], embedding), depth_at(step)):
            top, denominator = draft.sampled_logits(output[rows, b.at][real], guesses, ids, others, draw)
            parts.append(-(p * (top - denominator[:, None])).sum(-1).mean())
        return torch.stack(parts).mean()

    return loss


def watch(lessons: Lessons, embedding: Tensor, most: int = 5, depth: int = DEPTH) -> Callable[[mtp.Head], dict[str, float]]:
    """Greedy agreement by depth on greedy answers that are not trained on."""
    batches, guesses = lessons.watched(most), embedding[lessons.shortlist]

    @torch.no_grad()
    def figures(head: mtp.Head) -> dict[str, float]:
        same, count = np.zeros(depth), np.zeros(depth)
        for b in batches:
            outputs = head(b.hidden[:, :-1], F.embedding(b.tokens[:, 1:], embedding), depth)
            for d, output in enumerate(outputs):
                real = b.real & (torch.arange(b.real.shape[1]) > d)
                guessed = (output[torch.arange(len(output))[:, None], b.at][real] @ guesses.T).argmax(-1)
                same[d] += int((guessed == b.best[real]).sum())
                count[d] += int(real.sum())
        return {f"greedy_{d + 1}": float(same[d] / count[d]) for d in range(depth)}

    return figures


def train(target: Model) -> None:
    """The head to its budget; checkpoint and log under data/checkpoints. Needs the target and its answers."""
    keep_states(target)
    lessons = Lessons.load(target.config)
    embedding, kept = target.weights.embedding.float(), torch.from_numpy(lessons.shortlist)
    head, folder = begin(target, lessons, RECIPE.seed), CHECKPOINTS / NAME

    def save(head: mtp.Head, _: int = 0) -> None:
        mtp.save(head, folder, target=TARGET, dtype=torch.float16, shortlist=kept)

    figures = watch(lessons, embedding)
    before = figures(head)
    head, log = run(
        RECIPE, loss_from(head, embedding, embedding[kept], depth_at), lessons, RUNS / NAME, watch=figures, watch_every=50,
        keep_every=50, on_watch=save, model=head,
    )  # fmt: skip
    save(head)
    taught = [lessons.groups[g].lengths[r] for g, r in lessons.taught]
    log |= {
        "target": TARGET, "depth": DEPTH, "deeper_from": DEEPER, "before": before,
        "taught": {"groups": len(lessons.groups), "answers": len(taught), "tokens": int(sum(taught))},
    }  # fmt: skip
    (folder / "training-log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")


# --- figures on the fixed prompts ------------------------------------------------------------------------------------


@torch.no_grad()
def measure(target: Model, head: mtp.Head, kept: Tensor, new: int = 96, depth: int = MEASURED_DEPTH) -> dict:
    """On the fixed prompts along the target's greedy answers: greedy agreement of guess 1 … `depth`, the tokens before it being
    those of the answer; and for as many guesses k the tokens that one verification yields (accepted run + 1). The first token
    comes from the prompt and is counted nowhere."""
    embedding, rows, same_of = target.weights.embedding.float(), [], []
    prompts, answers = draft.held_out_answers(target, new)
    for prompt, ids, answer in zip(speculation_prompts(TARGET), prompts, answers, strict=True):
        tokens = torch.tensor([ids + answer])
        hidden = hidden_states(target.weights, tokens, None, torch.arange(tokens.shape[1])[None])[:, :-1].clone()
        outputs = head(hidden, F.embedding(tokens[:, 1:], embedding), depth)
        chosen = [kept[(o[0, len(ids) - 1 : -1] @ embedding[kept].T).argmax(-1)] for o in outputs]  # of the answer's token 1, 2, …
        same = np.stack([(c == tokens[0, len(ids) + 1 :]).numpy() for c in chosen])
        same_of.append(same)
        rows.append({"id": prompt.id, "kind": prompt.kind, "tokens": len(answer), "greedy": float(same[0].mean())})
    yields = {}
    for k in range(1, depth + 1):
        yields[str(k)] = sum(s.shape[1] for s in same_of) / sum(rounds(s, k) for s in same_of)
    greedy = [float(np.concatenate([s[d, d:] for s in same_of]).mean()) for d in range(depth)]
    return {"tokens": sum(len(a) for a in answers), "greedy": greedy, "tokens_a_round": yields, "prompts": rows}


def rounds(same: NDArray[np.bool_], k: int) -> int:
    """Verifications that the tokens 0 … n − 1 take. same (depth, n): whether the guess of depth d + 1 of token t is right, if
    those before it in its chain are."""
    at = count = 0
    while at < same.shape[1]:
        run = 0
        while run < k and at + run < same.shape[1] and same[run, at + run]:
            run += 1
        at, count = at + run + 1, count + 1
    return count
