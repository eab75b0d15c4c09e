"""Every place that docs/coverage.md names is there, and every item has one."""

from __future__ import annotations

import re
import tomllib
from functools import cache

import pytest

import components
from app import glossary, lesson, quiz, reading, shell
from compute import numbers
from compute.facts import DATA

ROOT = DATA.parent
ROW = re.compile(r"^\| (?P<item>.+?) \| (?P<where>.+?) \|$")
PLACE = re.compile(r"`([^`]+)`")
LEAST = {  # items that the references have, counted there
    "Chapter guide C13 / Chain of questions": 7, "Chapter guide C13 / Evolution map": 11, "Chapter guide C13 / Pitfalls": 12,
    "Chapter guide C13 / Takeaways and questions": 8, "Chapter guide C13 / Concept index": 33, "Chapter guide C13 / Resources: for a picture": 5,
    "Chapter guide C13 / Resources: for understanding": 10, "Chapter guide C13 / Resources: originals": 16, "Chapter guide C13 / Left out by the guide": 9,
    "Module M6 / Project steps": 5, "Module M6 / Pitfalls": 6, "Module M6 / Takeaways": 7, "Module M6 / Concept index": 14,
    "Lesson 38 / Toolbox, summary, quiz": 12,
}  # fmt: skip


def rows() -> list[tuple[str, str, str]]:
    """(section, item, where) of every row."""
    found, reference, part = [], "", ""
    for line in (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            reference, part = line[3:], ""
        elif line.startswith("### "):
            part = line[4:]
        elif (row := ROW.match(line)) and row["item"] != "Item":
            found.append((f"{reference} / {part}", row["item"], row["where"]))
    return found


ROWS = rows()
PLACES = sorted({place for _, _, where in ROWS for place in PLACE.findall(where)})


def setting(words: list[str]) -> dict[str, object]:
    return lesson._preset(" ".join(words), "docs/coverage.md", " ".join(words))


@cache
def read() -> set[str]:
    """What the reading list calls its entries: the paper's key, or the title."""
    items = tomllib.loads(reading.FILE.read_text(encoding="utf-8"))["item"]
    return {item.get("paper") or item["title"] for item in items}


def missing(place: str) -> str | None:
    """What is wrong with a place; None when it is there."""
    kind, _, rest = place.partition(" ")
    match kind:
        case "lesson":
            slug, _, heading = rest.partition(" § ")
            if slug not in {entry.slug for entry in lesson.existing()}:
                return "no such lesson"
            return None if not heading or heading in glossary.headings(slug, "en") else "no such heading"
        case "widget":
            id, *words = rest.split()
            if id not in components.widgets():
                return "no such instrument"
            components.widget(id).Params(**setting(words))
            return None
        case "number":
            numbers.resolve(rest)
            return None
        case "quiz":
            slug, id = rest.split()
            return None if id in {item.id for item in quiz.load(lesson.LESSONS / slug)} else "no such question"
        case "term":
            return None if rest in {term.id for term in glossary.terms()} else "no such term"
        case "reading":
            return None if rest in read() else "not in the reading list"
        case "page":
            return None if rest.removeprefix("/") in shell.slugs() else "no such page"
        case "file":
            return None if (ROOT / rest).exists() else "no such file"
    return "no kind of place"


@pytest.mark.parametrize("place", PLACES)
def test_the_place_is_there(place: str):
    """Catches: a row that points nowhere: a heading reworded, an instrument renamed or without that setting, a number or term dropped."""
    assert missing(place) is None


def test_every_item_has_a_place_or_a_reason():
    """Catches: a row left blank, a reason that is only the words “left out”."""
    assert [item for _, item, where in ROWS if not PLACE.search(where) and not re.match(r"left out: .{20}", where)] == []


def test_no_reference_lost_an_item():
    """Catches: rows dropped together with the part that they were about."""
    held = {section: sum(row[0] == section for row in ROWS) for section in LEAST}
    assert {section: n for section, n in held.items() if n < LEAST[section]} == {}
    assert len({row[:2] for row in ROWS}) == len(ROWS) > 250


@pytest.mark.parametrize("place", ["lesson roofline § No such heading", "lesson nowhere", "widget nowhere", "quiz roofline nothing", "term nothing", "reading nothing", "page /nothing", "file docs/nothing.md", "rumour of it"])
def test_a_place_that_is_not_there_is_found_out(place: str):
    """Catches: a check that lets a kind of place through unseen."""
    assert missing(place)
