"""A reader of Chinese stories that knows only words, not the grammar: who hands what to whom, and does it fit?

It checks the grammar in the tests, and it counts how often a model's own stories contradict themselves. It sees only
sentences of the forms below; another mistake, a wrong pronoun for instance, escapes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from compute.training import words_zh

GROUPS = (words_zh.CHILDREN, words_zh.FAMILY, words_zh.TEACHERS, words_zh.NEIGHBOURS, words_zh.ANIMALS)
PEOPLE = [p.name for group in GROUPS for p in group]
THINGS = sorted({t.name for t in words_zh.THINGS + words_zh.FABLE_THINGS}, key=len, reverse=True)
PERSON = "(" + "|".join(sorted(PEOPLE, key=len, reverse=True)) + ")"
THING = "(" + "|".join(THINGS) + ")"
LOOK = "(?:[^，。：“”]{0,8}?的)?"  # 又大又红的
TO = f"({PERSON[1:-1]}|他|她)"
HANDED = re.compile(
    rf"{PERSON}(?:想了想，|笑着|马上|就|也)?(?:把|拿出)(?:那.|一.)?{LOOK}{THING}，?(?:递|交|送|借|还)?给了{TO}"
)
GAVE = re.compile(rf"{PERSON}给了{PERSON}一.{LOOK}{THING}。")
BOUGHT = re.compile(rf"{PERSON}给{PERSON}买了一.{LOOK}{THING}，交给了{PERSON}")
SAW = re.compile(rf"{PERSON}看见{PERSON}[^。”]{{2,16}}，就把{THING}(?:借|还)?给了{TO}")
HOLDS = (
    re.compile(rf"(?:现在|最后)，?{THING}(?:在|到了){PERSON}的?(?:手里|那里)"),
    re.compile(rf"{THING}现在在{PERSON}那里"),
    re.compile(rf"{THING}在(?:谁那里|谁手里)？(?:{THING[1:-1]})?在{PERSON}(?:那里|手里)"),
    re.compile(rf"谁有{THING}？{PERSON}有(?:{THING[1:-1]})"),
    re.compile(rf"所以，{THING}现在是{PERSON}的"),
)


@dataclass(frozen=True)
class Reading:
    """`handings`: (giver, thing, receiver) in order. `holders`: thing → person at the end. `statements`: sentences that
    say who has a thing. `contradictions`: what does not fit, in words."""

    handings: tuple[tuple[str, str, str], ...]
    holders: dict[str, str]
    statements: int
    contradictions: tuple[str, ...]


def read(text: str) -> Reading:
    """A holder is known from the first handing on; before that anybody may give a thing."""
    found: list[tuple[int, str, str, str]] = []  # place, person, thing, receiver ("" for a statement)
    for m in HANDED.finditer(text):
        to = m.group(3)
        if to in "他她":  # the person named last before the giver
            before = re.findall(PERSON, text[: m.start()])
            if not before:
                continue
            to = before[-1]
        found.append((m.start(), m.group(1), m.group(2), to))
    for m in GAVE.finditer(text):
        found.append((m.start(), m.group(1), m.group(3), m.group(2)))
    for m in BOUGHT.finditer(text):
        found.append((m.start(), m.group(1), m.group(3), m.group(2)))
    for m in SAW.finditer(text):
        found.append((m.start(), m.group(1), m.group(3), m.group(2) if m.group(4) in "他她" else m.group(4)))
    for pattern in HOLDS:
        found += [(m.start(), m.group(2), m.group(1), "") for m in pattern.finditer(text)]
    holders: dict[str, str] = {}
    handings, contradictions, statements = [], [], 0
    for _, person, thing, to in sorted(found):
        if holders.get(thing, person) != person:
            contradictions.append(f"{thing} is {holders[thing]}'s, not {person}'s")
        if to:
            if person == to:
                contradictions.append(f"{person} gives {thing} to themselves")
            holders[thing] = to
            handings.append((person, thing, to))
        else:
            statements += 1
    return Reading(tuple(handings), holders, statements, tuple(contradictions))
