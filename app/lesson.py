"""A lesson: Markdown files zh.md and en.md in app/lessons/<slug>/, and how they become a page.

Front matter, TOML between +++ lines:

    title           short, for navigation and the browser tab
    question        the lesson's question, its headline
    minutes         how long it takes
    prerequisites   a list of slugs or plain words
    hero            one number that makes the question bite: "[[=anchor.compute_share | %]]"
    hero_caption    what that number says; may name numbers too
    takeaway        the sentence to keep

Body: Markdown as in app/prose.py, and directives on a line of their own:

    ::roofline-placer chip=h100-sxm batch=58     an instrument, opened with these parameters
    ::quiz                                       the lesson's quiz (quiz.toml); at the end if no line says where
    ::takeaways                                  the sentences to keep of all other lessons, as a list in the text
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping

from components.text import LANGUAGES, load_words
from compute.errors import BrokenData

HERE = Path(__file__).parent
LESSONS = Path(os.environ.get("INFERENCE_LAB_LESSONS", HERE / "lessons"))
DIRECTIVE = re.compile(r"::([a-z][a-z0-9-]*)((?:\s+\S.*)?)\s*")
TAKEAWAYS = "::takeaways"
FENCE = re.compile(r"\s*(```|~~~)")
REQUIRED = {"title": str, "question": str, "minutes": int, "hero": str, "hero_caption": str, "takeaway": str}


def words(lang: str):
    return load_words(HERE / "text.toml", lang)


@dataclass(frozen=True)
class Entry:
    """A line of order.toml."""

    slug: str
    number: str = ""
    branch: bool = False


@dataclass(frozen=True)
class Prose:
    text: str


@dataclass(frozen=True)
class Instrument:
    widget: str
    preset: Mapping[str, Any]


@dataclass(frozen=True)
class Quiz:
    pass


Part = Prose | Instrument | Quiz


@dataclass(frozen=True)
class Lesson:
    slug: str
    lang: str
    title: str
    question: str
    minutes: int
    hero: str
    hero_caption: str
    takeaway: str
    prerequisites: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def folder(self) -> Path:
        return LESSONS / self.slug

    def keys(self) -> list[str]:
        """What addresses call its instruments: "roofline-placer", then "roofline-placer.2" for the second of that kind."""
        found: list[str] = []
        seen: Counter[str] = Counter()
        for part in self.parts:
            if isinstance(part, Instrument):
                seen[part.widget] += 1
                number = part.preset.get("instance", seen[part.widget])
                found.append(part.widget if number == 1 else f"{part.widget}.{number}")
        return found

    def texts(self) -> list[str]:
        """Everything in it that may name a number."""
        return [self.question, self.hero, self.hero_caption, self.takeaway, *(p.text for p in self.parts if isinstance(p, Prose))]


def planned(lessons: Path | None = None) -> list[Entry]:
    path = (lessons or LESSONS) / "order.toml"
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8"))["lesson"]
        entries = [Entry(**row) for row in rows]
    except OSError as reason:
        raise BrokenData("lessons/order.toml", str(reason.strerror)) from None
    except (ValueError, KeyError, TypeError) as reason:  # a TOML error is a ValueError, and so is a wrong encoding
        raise BrokenData("lessons/order.toml", f"{type(reason).__name__}: {reason}") from None
    slugs = [entry.slug for entry in entries]
    if wrong := [slug for slug in slugs if not isinstance(slug, str) or slugs.count(slug) > 1]:
        raise BrokenData("lessons/order.toml", f"slug {wrong[0]!r} is not a text or stands twice")
    return entries


def existing(lessons: Path | None = None) -> list[Entry]:
    """The chapters whose texts are there in every language, in order."""
    root = lessons or LESSONS
    return [entry for entry in planned(root) if all((root / entry.slug / f"{lang}.md").exists() for lang in LANGUAGES)]


def load(slug: str, lang: str, lessons: Path | None = None) -> Lesson:
    path = (lessons or LESSONS) / slug / f"{lang}.md"
    try:
        return _load(path, path.stat().st_mtime_ns)
    except OSError as reason:
        raise BrokenData(f"lessons/{slug}/{path.name}", str(reason.strerror)) from None
    except UnicodeDecodeError as reason:
        raise BrokenData(f"lessons/{slug}/{path.name}", str(reason)) from None


@lru_cache(maxsize=64)
def _load(path: Path, changed: int) -> Lesson:
    return parse(path.read_text(encoding="utf-8"), path.parent.name, path.stem)


def parse(source: str, slug: str, lang: str) -> Lesson:
    name = f"lessons/{slug}/{lang}.md"
    found = re.match(r"\ufeff?\+\+\+\s*\n(.*?)\n\+\+\+\s*\n(.*)\Z", source.replace("\r\n", "\n"), re.S)
    if not found:
        raise BrokenData(name, "it must begin with front matter between two +++ lines")
    try:
        front = tomllib.loads(found[1])
    except tomllib.TOMLDecodeError as reason:
        raise BrokenData(name, f"front matter: {reason}") from None
    for key, kind in REQUIRED.items():
        if not isinstance(front.get(key), kind):
            raise BrokenData(name, f"front matter needs {key} ({kind.__name__}), found {front.get(key)!r}")
    if not isinstance(front.get("prerequisites", []), list):
        raise BrokenData(name, f"front matter needs prerequisites (list), found {front['prerequisites']!r}")
    if unknown := set(front) - set(REQUIRED) - {"prerequisites"}:
        raise BrokenData(name, f"front matter has unknown keys: {', '.join(sorted(unknown))}")
    return Lesson(slug, lang, **{key: front[key] for key in REQUIRED}, prerequisites=tuple(front.get("prerequisites", ())),
                  parts=tuple(_parts(found[2], name)))


def from_heading(text: str) -> str:
    """The rest of a text from its first heading on; empty when it has none."""
    found = re.search(r"^#{1,6} ", text, re.M)
    return text[found.start():] if found else ""


def _parts(body: str, name: str):
    lines: list[str] = []
    fenced = False
    for line in body.split("\n"):
        fenced ^= bool(FENCE.match(line))
        directive = None if fenced else DIRECTIVE.fullmatch(line)
        if directive is None or line.strip() == TAKEAWAYS:
            lines.append(line)
            continue
        if text := "\n".join(lines).strip():
            yield Prose(text)
        lines = []
        preset = _preset(directive[2], name, line)
        yield Quiz() if directive[1] == "quiz" else Instrument(directive[1], preset)
    if text := "\n".join(lines).strip():
        yield Prose(text)


def _preset(arguments: str, name: str, line: str) -> dict[str, Any]:
    """chip=h100-sxm batch=58 text="小明 把" → values; what reads as JSON is a number or truth value, the rest is text."""
    preset = {}
    try:
        pairs = shlex.split(arguments)
    except ValueError as reason:
        raise BrokenData(name, f"{line!r}: {reason}") from None
    for pair in pairs:
        field, equals, value = pair.partition("=")
        if not equals or not field.isidentifier():
            raise BrokenData(name, f"{line!r}: {pair!r} is not field=value")
        try:
            preset[field] = json.loads(value)
        except json.JSONDecodeError:
            preset[field] = value
    return preset
