"""Documents for training and for validation, and the batches drawn from them.

Validation documents are every n-th document of a source (`HOLD_OUT`), the stories come from seeds of their own. They
are committed as `data/texts/<name>.txt`, documents separated by an empty line, so that every later measurement uses
the same text. A batch is a pure function of (seed, step): a resumed run needs no generator state.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from compute.training import corpus, grammar

ROOT = corpus.ROOT
TEXTS = ROOT / "data" / "texts"
TOKENS = ROOT / "build" / "tokens"
END = 0  # <|endoftext|>
CONTEXT = 256  # tokens a training window predicts

STORY_CHARACTERS = {"stories-zh": 5_600_000, "stories-en": 1_300_000}
HELD_OUT_CHARACTERS = {"stories-zh": 45_000, "stories-en": 40_000}
STORY_NOTICE = "Written by the grammar in compute/training/grammar.py of this project; same licence as the project."

HOLD_OUT = {  # every n-th document of the source is for validation
    "libreoffice-zh": 17, "gnome-zh": 9, "electron-zh": 13, "sanguo": 20, "songci": 60, "tang": 60, "primers": 25,
    "libreoffice-en": 33, "gnome-en": 17, "electron-en": 25,
}  # fmt: skip
SHARES = {  # of the training windows, in percent; modern Chinese is small, so it is read about 12 times over
    "libreoffice-zh": 24, "gnome-zh": 1.5, "electron-zh": 3.5, "stories-zh": 27, "sanguo": 9, "songci": 6, "tang": 5,
    "primers": 2, "libreoffice-en": 8, "gnome-en": 3, "electron-en": 3, "stories-en": 8,
}  # fmt: skip
DOMAINS = {
    "modern": ("libreoffice-zh", "gnome-zh", "electron-zh"),
    "stories": ("stories-zh",),
    "classical": ("sanguo", "songci", "tang", "primers"),
    "english": ("libreoffice-en", "gnome-en", "electron-en"),
    "stories-en": ("stories-en",),
}


def split(documents: list[str], every: int) -> tuple[list[str], list[str]]:
    """(training, validation): the n-th, 2n-th … document is held out."""
    held = documents[every - 1 :: every]
    return [d for i, d in enumerate(documents) if (i + 1) % every], held


def story_documents(name: str) -> tuple[list[str], list[str]]:
    """(training, validation) stories, from seeds that never meet and without a text in common."""
    write = {"stories-zh": grammar.chinese, "stories-en": grammar.english}[name]
    train = list(grammar.stories(write, grammar.TRAIN_SEED, STORY_CHARACTERS[name]))
    held = grammar.stories(write, grammar.HELD_OUT_SEED, HELD_OUT_CHARACTERS[name], frozenset(train))
    return train, list(held)


def all_documents() -> dict[str, tuple[list[str], list[str]]]:
    """name -> (training, validation) for every real source and both grammars."""
    real = {s.name: split(corpus.documents(s), HOLD_OUT[s.name]) for s in corpus.SOURCES}
    return real | {name: story_documents(name) for name in STORY_CHARACTERS}


def read_text(name: str, texts: Path = TEXTS) -> list[str]:
    """Validation documents of one source, as committed."""
    return (texts / f"{name}.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n\n")


def write_text(name: str, documents: list[str], texts: Path = TEXTS) -> None:
    if any("\n\n" in d or d != d.strip("\n") for d in documents):
        raise ValueError(f"{name}: an empty line inside a document would split it")
    (texts / f"{name}.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")


def encode(tokenizer, documents: list[str]) -> np.ndarray:
    """One stream of token ids, each document followed by <|endoftext|>; uint16, shape (tokens,)."""
    encodings = tokenizer.encode_batch_fast(documents)
    return np.concatenate([np.array([*e.ids, END], dtype=np.uint16) for e in encodings])


@dataclass(frozen=True)
class Mixture:
    """Training streams with their shares. `starts[name]`: where a paragraph or document begins."""

    streams: dict[str, np.ndarray]
    starts: dict[str, np.ndarray]
    shares: dict[str, float]

    @classmethod
    def load(cls, tokens: Path = TOKENS, shares: dict[str, float] = SHARES) -> Mixture:
        newline = json.loads((tokens / "about.json").read_text(encoding="utf-8"))["newline"]
        streams = {name: np.load(tokens / f"{name}.npy") for name in shares}
        return cls.of(streams, newline, shares)

    @classmethod
    def of(cls, streams: dict[str, np.ndarray], newline: int, shares: dict[str, float]) -> Mixture:
        starts = {}
        for name, stream in streams.items():
            if len(stream) <= CONTEXT + 1:
                raise ValueError(f"{name}: {len(stream)} tokens, a window needs {CONTEXT + 2}")
            breaks = np.flatnonzero((stream == END) | (stream == newline)) + 1
            breaks = breaks[breaks < len(stream) - CONTEXT - 1]
            starts[name] = breaks if len(breaks) else np.zeros(1, dtype=np.int64)
        return cls(streams, starts, shares)

    def batch(self, seed: int, step: int, rows: int) -> torch.Tensor:
        """(rows, CONTEXT + 1) int64 token ids. Half of the windows begin where a paragraph does, as a prompt would."""
        rng = np.random.default_rng((seed, step))
        names = list(self.streams)
        weights = np.array([self.shares[n] for n in names], dtype=np.float64)
        windows = []
        for pick in rng.choice(len(names), size=rows, p=weights / weights.sum()):
            stream, starts = self.streams[names[pick]], self.starts[names[pick]]
            if rng.random() < 0.5:
                at = starts[rng.integers(len(starts))]
            else:
                at = rng.integers(len(stream) - CONTEXT - 1)
            windows.append(stream[at : at + CONTEXT + 1].astype(np.int64))
        return torch.from_numpy(np.stack(windows))
