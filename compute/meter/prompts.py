"""Prompts of about the length asked for: real text, no two with the same beginning, so that no cache of prefixes answers."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random

TEXTS = Path(__file__).parents[2] / "data" / "texts"
FILES = ("libreoffice-en", "gnome-en", "electron-en")
GUESSED = 4.0  # characters a token, of English text with a large vocabulary; only until a server has counted


@cache
def text() -> str:
    """English help pages, documents one after the other."""
    return " ".join(" ".join((TEXTS / f"{name}.txt").read_text("utf-8").split()) for name in FILES)


def word(run: str, n: int) -> str:
    """By which a prompt differs from every other one from its first token on."""
    return sha256(f"{run} {n}".encode()).hexdigest()[:8]


class Prompts:
    """The n-th begins with a word made of run and number, then goes on with a piece of text from a place that the seed chooses."""

    def __init__(self, run: str, seed: int, tokens: int, characters_per_token: float = GUESSED):
        self.run, self.seed, self.tokens, self.characters_per_token = run, seed, tokens, characters_per_token

    def __getitem__(self, n: int) -> str:
        head, pieces = f"{word(self.run, n)}: ", text()
        length = max(1, round(self.tokens * self.characters_per_token) - len(head))
        start = Random(f"{self.seed} {n}").randrange(len(pieces))
        start = pieces.find(" ", start) + 1  # from the beginning where there is none
        found = pieces[start : start + length]
        while len(found) < length:
            found += " " + pieces[: length - len(found)]
        return head + found[:length]

    def of(self, tokens: int) -> Prompts:
        """Of another length."""
        return Prompts(self.run, self.seed, tokens, self.characters_per_token)

    def corrected(self, prompt: str, counted: int) -> Prompts:
        """After a server has counted the tokens of a prompt of this length."""
        return Prompts(self.run, self.seed, self.tokens, len(prompt) / counted)
