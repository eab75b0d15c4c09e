"""The quiz at a lesson's end: quiz.toml, graded from the same functions as the instruments.

    [[item]]
    id = "share"                      kind = "choice"
    question = {zh = "…", en = "…"}   explanation = {zh = "…", en = "…"}
    options = [{id = "a", zh = "…", en = "…"}, {id = "b", zh = "…", en = "…", right = true}]

    [[item]]
    id = "bound"                      kind = "numeric"
    truth = "=anchor.decode_bound"    unit = "tok/s"          tolerance = 0.05
    question = …                      explanation = …
"""

from __future__ import annotations

import math
import re
import tomllib
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Mapping

from components.text import COUNTED, LANGUAGES, display_factor, quantity
from compute import numbers
from compute.errors import BrokenData


@dataclass(frozen=True)
class Option:
    id: str
    text: Mapping[str, str]
    right: bool


@dataclass(frozen=True)
class Choice:
    id: str
    question: Mapping[str, str]
    explanation: Mapping[str, str]
    options: tuple[Option, ...]

    def is_right(self, answer: str) -> bool:
        return answer == next(option.id for option in self.options if option.right)


@dataclass(frozen=True)
class Numeric:
    id: str
    question: Mapping[str, str]
    explanation: Mapping[str, str]
    truth: str
    unit: str
    tolerance: float

    def expected(self) -> float:
        """The true value in the unit that the question asks for."""
        found = numbers.resolve(self.truth)
        return found.value / (display_factor(self.unit.split()[0], found.unit) if self.unit else 1)

    def read(self, answer: str) -> float | None:
        return read_number(answer, self.unit, numbers.resolve(self.truth).unit)

    def is_right(self, answer: float) -> bool:
        return math.isclose(answer, self.expected(), rel_tol=self.tolerance, abs_tol=0 if self.expected() else self.tolerance)

    def shown(self, lang: str) -> str:
        return quantity(numbers.resolve(self.truth), self.unit, lang)


Item = Choice | Numeric


SPELLED = {"×": ("倍", "x", "times"), "token/s": ("tok/s", "tokens/s")}  # as people write units, beside COUNTED
WRITTEN = re.compile(r"×?\s*([+-]?(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)?(?:\.\d*)?(?:e[+-]?\d+)?)\s*(.*)", re.I)


def read_number(text: str, unit: str = "", of: str = "") -> float | None:
    """The number that is written, in the unit that is asked for: 65.4, 2,304, ２３０４, 1.9e3. `unit` may be written after it, and
    so may another prefix of it when `of`, the unit of the truth, is given: 10,500 ms where s is asked for is 10.5. None when it
    is not a number, or one of something else. A comma only parts thousands: 93,66 may mean 93.66 or 9366."""
    found = WRITTEN.fullmatch(unicodedata.normalize("NFKC", text).replace("−", "-").replace("μ", "µ").strip())
    try:
        value = float(found[1].replace(",", "").replace(" ", "")) * factor(found[2], unit.split()[0] if unit else "", of) if found else math.nan
    except ValueError:  # no digits, or a unit of something else
        return None
    return value if math.isfinite(value) else None


def factor(written: str, asked: str, of: str) -> float:
    """By what to multiply a number with this unit behind it. Raises ValueError where that says nothing about what is asked."""
    unit = asked or of
    if written in ("", unit, *COUNTED.get(unit, ()), *SPELLED.get(unit, ())):
        return 1.0
    if not of:
        raise ValueError(f"{written!r} is not {asked!r}")
    return display_factor(written, of) / (display_factor(asked, of) if asked else 1.0)


def load(folder: Path) -> tuple[Item, ...]:
    path = folder / "quiz.toml"
    return _load(path, path.stat().st_mtime_ns) if path.exists() else ()


@lru_cache(maxsize=32)
def _load(path: Path, changed: int) -> tuple[Item, ...]:
    name = f"lessons/{path.parent.name}/quiz.toml"
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8"))["item"]
        items = tuple(_item(row) for row in rows)
    except (KeyError, TypeError, ValueError) as reason:  # a TOML error is a ValueError
        raise BrokenData(name, f"{type(reason).__name__}: {reason}") from None
    if len({item.id for item in items}) != len(items):
        raise BrokenData(name, "two items share an id")
    return items


def _item(row: dict) -> Item:
    both = {key: {lang: row[key][lang] for lang in LANGUAGES} for key in ("question", "explanation")}
    if row["kind"] == "numeric":
        tolerance = float(row["tolerance"])
        if not 0 < tolerance < 1:
            raise ValueError(f"{row['id']}: tolerance {tolerance} is not between 0 and 1")
        return Numeric(row["id"], **both, truth=row["truth"], unit=row.get("unit", ""), tolerance=tolerance)
    if row["kind"] != "choice":
        raise ValueError(f"{row['id']}: kind {row['kind']!r} is neither choice nor numeric")
    options = tuple(Option(o["id"], {lang: o[lang] for lang in LANGUAGES}, bool(o.get("right"))) for o in row["options"])
    if sum(option.right for option in options) != 1:
        raise ValueError(f"{row['id']}: exactly one option must be right")
    return Choice(row["id"], **both, options=options)
