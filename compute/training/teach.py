"""SmolLM2's own text with its distributions: what its draft learns from.

The target answers prompts of `prompts_en` in batches, in float32, greedily or at a temperature, and every position keeps
the 32 most likely tokens with their probabilities (at temperature 1, of the whole distribution), so that training needs
no second pass of the target. A group of answers is one file under build/speculation; a stopped run goes on after the
last whole file.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from compute.engine.loader import Model
from compute.engine.model import KVCache, forward, hidden_states, logits
from compute.facts import speculation_prompts
from compute.training import mixture, prompts_en

FOLDER = mixture.ROOT / "build" / "speculation"
TARGET = prompts_en.TARGET
ROWS = 128  # answers written at once
POOLS = 16  # each of four groups, from the shortest prompts to the longest
GROUPS = tuple(g for g in range(4 * POOLS) if g % 4 < 3 or g < 8)  # long prompts cost much and are answered briefly
NEW = 128  # tokens of an answer, at most
TOP = 32  # tokens of each distribution that are kept
TEMPERATURES = (0.0, 0.0, 0.0, 0.7, 1.0)  # of the rows in turn


@dataclass(frozen=True)
class Answers:
    """What the target wrote after some prompts. Distribution i of a row is the one that token i was chosen from."""

    prompts: np.ndarray  # (rows, longest prompt) uint16, zeros behind
    prompt_lengths: np.ndarray  # (rows,)
    tokens: np.ndarray  # (rows, NEW) uint16; the end token is the last of an answer that ended
    lengths: np.ndarray  # (rows,)
    top_ids: np.ndarray  # (rows, NEW, TOP) uint16, most likely first
    top_p: np.ndarray  # (rows, NEW, TOP) float16

    def save(self, path: Path) -> None:
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **self.__dict__)
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Answers:
        with np.load(path) as kept:
            return cls(**kept)


def template() -> tuple[str, str]:
    """What stands before and after the user's words in the target's chat format."""
    one = speculation_prompts(TARGET)[0]
    before, after = one.sent.split(one.text)
    return before, after


def group_prompts(group: int, tokenizer) -> list[list[int]]:
    """Token ids of a group's prompts. Four groups share a pool sorted by length, so that little padding is computed."""
    pool, place = divmod(group, 4)
    texts = prompts_en.prompts(0, 4 * POOLS * ROWS)[pool * 4 * ROWS : (pool + 1) * 4 * ROWS]
    before, after = template()
    ids = sorted((tokenizer.encode(before + text + after) for text in texts), key=len)
    return ids[place * ROWS : (place + 1) * ROWS]


@torch.inference_mode()
def answer(model: Model, prompts: list[list[int]], temperatures: list[float], seed: int, new: int = NEW) -> Answers:
    """All prompts answered side by side; rows that have ended leave the batch when a fifth of it has."""
    rows, longest = len(prompts), max(map(len, prompts))
    ends = torch.tensor(model.config.stop_tokens)
    padded = torch.zeros(rows, longest, dtype=torch.int64)
    for row, ids in zip(padded, prompts, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    lengths = torch.tensor([len(ids) for ids in prompts])
    draw = torch.Generator().manual_seed(seed)
    heat = torch.tensor(temperatures)

    cache, row = prefill(model, padded, lengths, longest + new)
    alive = torch.arange(rows)  # rows of the answer that the batch still holds
    going = torch.ones(rows, dtype=torch.bool)  # of those, the ones that have not ended
    tokens, counts = np.zeros((rows, new), np.uint16), np.zeros(rows, np.int64)
    top_ids, top_p = np.zeros((rows, new, TOP), np.uint16), np.zeros((rows, new, TOP), np.float16)
    for i in range(new):
        values, ids = row.topk(TOP)
        chosen = choose(row, ids[:, 0], heat[alive], draw)
        at = alive[going].numpy()
        tokens[at, i], counts[at] = chosen[going].numpy(), i + 1
        top_ids[at, i] = ids[going].numpy()
        top_p[at, i] = (values - row.logsumexp(-1, keepdim=True)).exp()[going].numpy()
        going = going & ~torch.isin(chosen, ends)
        if i == new - 1 or not going.any():
            break
        if going.sum() < 0.8 * len(alive):
            alive, chosen = alive[going], chosen[going]
            cache.data = cache.data[:, :, going].contiguous()
            going = going[going]
            cache.rows = torch.arange(len(alive))[:, None]
        positions = (lengths[alive] + i)[:, None]
        row = forward(model.weights, chosen[:, None], cache, positions)[:, 0]
    return Answers(padded.numpy().astype(np.uint16), lengths.numpy(), tokens, counts, top_ids, top_p)


def prefill(model: Model, padded: Tensor, lengths: Tensor, capacity: int) -> tuple[KVCache, Tensor]:
    """The cache after the prompts, and the logits (rows, vocabulary) of each prompt's last token. What all prompts begin
    with is computed once. Padding lands where the answer will overwrite it."""
    rows = len(padded)
    shared = int((padded == padded[0]).all(0).cumprod(0).sum())
    shared = min(shared, int(lengths.min()) - 1)
    cache = KVCache(model.weights, rows, capacity)
    if shared:
        once = KVCache(model.weights, 1, shared)
        hidden_states(model.weights, padded[:1, :shared], once, torch.arange(shared)[None])
        cache.data[:, :, :, :, :shared] = once.data
    positions = torch.arange(shared, padded.shape[1]).expand(rows, -1)
    hidden = hidden_states(model.weights, padded[:, shared:], cache, positions)
    return cache, logits(model.weights, hidden[torch.arange(rows), lengths - 1 - shared])


def choose(row: Tensor, best: Tensor, heat: Tensor, draw: torch.Generator) -> Tensor:
    """One token a row: the most likely one where `heat` is 0, else drawn at that temperature."""
    warm = heat > 0
    chosen = best.clone()
    if warm.any():
        p = (row[warm] / heat[warm, None]).softmax(-1)
        chosen[warm] = torch.multinomial(p, 1, generator=draw)[:, 0]
    return chosen


def teach(model: Model, groups: Iterable[int] = GROUPS, folder: Path = FOLDER) -> None:
    """Writes the groups that are not there yet, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for group in groups:
        path = folder / f"group-{group:03d}.npz"
        if path.exists():
            continue
        began = time.monotonic()
        prompts = group_prompts(group, model.tokenizer)
        temperatures = [TEMPERATURES[n % len(TEMPERATURES)] for n in range(len(prompts))]
        made = answer(model, prompts, temperatures, seed=group)
        made.save(path)
        seconds, count = time.monotonic() - began, int(made.lengths.sum())
        print(f"group {group}: {count} tokens, {count / seconds:.0f} token/s", flush=True)
