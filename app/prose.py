"""Prose with named numbers → Markdown that Streamlit renders.

    [[h100-sxm.bandwidth | TB/s]]   a published figure        [[=anchor.decode_bound | tok/s]]   computed now
    [[~name]]                       measured                  [[name | ms 4]]   unit and significant digits
    [[@roofline-placer]]            an instrument's name
    \\( … \\) and $$ … $$            mathematics; a lone $ is a dollar sign

A number becomes a span with a mark for its kind and, inside it, the card with its papers: hidden until the span is
hovered or holds the focus, so it works from the keyboard and without any script. Everything that comes from data is
written as character references, which neither Markdown nor HTML can take for markup.
"""

from __future__ import annotations

import html
import math
import re
from functools import lru_cache
from typing import Any, Iterator, Mapping

from components import widget
from components.text import HAN, Words, condition, digits, foreign, formula, quantity, said
from compute import numbers
from compute.errors import BadInput
from compute.quantity import Quantity, Source

PIECE = re.compile(
    r"(?P<fence>^(?P<ticks>```+|~~~+).*?^(?P=ticks)[ \t]*$)"
    r"|(?P<code>(?P<tick>`+)(?!`).+?(?<!`)(?P=tick)(?!`))"
    r"|(?P<display>\$\$.+?\$\$)"
    r"|\\\((?P<inline>.+?)\\\)"
    r"|\[\[@(?P<instrument>[^\[\]]+)\]\]"
    r"|\[\[(?P<number>[^\[\]]+)\]\]"
    r"|(?P<dollar>(?<!\\)\$)"
    rf"|(?P<han>{HAN})",
    re.S | re.M,
)
KEPT = 4096  # texts; the whole course in both languages
JOINER, CLOSING = "\u2060", tuple("、。，；：！？）”")  # behind mathematics, which is a box to the browser, these would begin a line
UNBROKEN = 20  # characters of a formula's source
WEB = re.compile(r"https?://", re.I)


def literal(text: str) -> str:
    """Text that stays text in Markdown and in HTML: every ASCII mark becomes a character reference."""
    return "".join(c if c.isalnum() or c == " " or ord(c) > 126 else " " if c in "\r\n\t" else f"&#{ord(c)};" for c in text)


def markdown(text: str, lang: str, words: Words) -> str:
    """A lesson's Markdown with its numbers, mathematics and dollars resolved. An unknown name raises UnknownName."""
    return _markdown(text, lang, words, numbers.as_of())


@lru_cache(maxsize=KEPT)
def _markdown(text: str, lang: str, words: Words, as_of: tuple[int, ...]) -> str:
    def replace(found: re.Match[str]) -> str:
        if found["number"]:
            return number(found["number"], lang, words)
        if found["instrument"]:
            return literal(widget(found["instrument"]).name(lang))
        if found["inline"]:
            return inline(found["inline"]) + (JOINER if text.startswith(CLOSING, found.end()) else "")
        if found["dollar"]:
            return r"\$"
        if found["display"]:
            return display(found["display"])
        if found["fence"]:
            return code_block(found["fence"])
        if found["han"]:
            return foreign(found["han"], lang)
        return found[0]

    return PIECE.sub(replace, text)


def inline(formula: str) -> str:
    """In braces a formula is one piece: a short one is not broken at its + or =."""
    return f"${{{formula}}}$" if len(formula) <= UNBROKEN else f"${formula}$"


def display(formula: str) -> str:
    """$$…$$ on one line would be set as inline mathematics; on lines of its own it is displayed."""
    return formula if formula.startswith("$$\n") else f"\n\n$$\n{formula.strip('$').strip()}\n$$\n\n"


def code_block(fence: str) -> str:
    """A fenced block as plain figures: the framework's own highlighter costs a browser more than the rest of the page."""
    lines = fence.split("\n")[1:-1]
    return '<div class="lab-code-block">' + "&#10;".join(f"<span>{literal(line)}</span>" for line in lines) + "</div>\n\n"


def clauses(text: str) -> str:
    """A headline as HTML that prefers to break after Chinese punctuation rather than inside a word."""
    return "".join(f'<span class="lab-clause">{html.escape(part)}</span>' for part in re.findall(r"[^，：；。？！、]+[，：；。？！、]*", text)) or html.escape(text)


def plain(text: str, lang: str) -> str:
    """The same for places that hold text only (a browser tab, a link): numbers without their cards."""
    return _plain(text, lang, numbers.as_of())


@lru_cache(maxsize=KEPT)
def _plain(text: str, lang: str, as_of: tuple[int, ...]) -> str:
    def replace(found: re.Match[str]) -> str:
        if found["instrument"]:
            return widget(found["instrument"]).name(lang)
        return _written(found["number"], lang)[1] if found["number"] else found[0]

    return PIECE.sub(replace, text)


def names(text: str) -> Iterator[str]:
    """The names of the numbers that a text uses."""
    for found in PIECE.finditer(text):
        if found["number"]:
            yield found["number"].partition("|")[0].strip()


def instruments(text: str) -> Iterator[str]:
    """The ids of the instruments that a text names."""
    return (found["instrument"] for found in PIECE.finditer(text) if found["instrument"])


def _resolved(reference: str) -> tuple[Quantity, str]:
    name, _, unit = reference.partition("|")
    return numbers.resolve(name.strip()), unit.strip()


def _written(reference: str, lang: str) -> tuple[Quantity, str]:
    found, unit = _resolved(reference)
    try:
        return found, quantity(found, unit, lang)
    except ValueError as reason:
        raise BadInput("number", reference, str(reason), str(reason)) from None


def number(reference: str, lang: str, words: Words) -> str:
    found, shown = _written(reference, lang)
    value, space, of = shown.partition(" ")
    shown = literal(value) + (f'<span class="lab-u">&nbsp;{literal(of)}</span>' if space else "")
    return (
        f'<span class="lab-n lab-{found.kind}" tabindex="0"><span class="lab-v">{shown}</span>'
        f'<span class="lab-card" role="note">{card(found, lang, words)}</span></span>'
    )


def card(found: Quantity, lang: str, words: Words) -> str:
    """The papers of a number as inline HTML: what it is, formula, inputs, source, conditions."""
    head = f'<span class="lab-card-kind">{literal(words("kind." + found.kind))}</span>'
    if found.says.get(lang):
        head += f'<span class="lab-card-says">{literal(found.says[lang])}</span>'
    rows = [f'<span class="lab-card-head">{head}</span>']
    if found.formula:
        rows.append(_row(words("card.formula"), f'<span class="lab-code">{literal(formula(found.formula, lang))}</span>'))
    if found.inputs:
        rows.append(_row(words("card.inputs"), _pairs(found.inputs, lang)))
    if found.interval95:
        low, high = found.interval95
        rows.append(_row(words("card.interval95"), literal(f"{digits(low)} – {digits(high)}")))
    if found.source:
        rows.append(_row(words("card.source"), _source(found.source, words)))
    if found.conditions:
        rows.append(_row(words("card.conditions"), _pairs(found.conditions, lang)))
    return "".join(rows)


def _row(label: str, content: str) -> str:
    return f'<span class="lab-card-row"><span class="lab-card-label">{literal(label)}</span><span class="lab-card-body">{content}</span></span>'


def _pairs(pairs: Mapping[str, Any], lang: str) -> str:
    equals = "：" if lang == "zh" else " = "

    def pair(key: str, value: Any) -> str:
        name, text = condition(key, value, lang)
        return f'<span class="lab-card-pair">{"" if key == "note" else literal(name + equals)}{_power_of_ten(value) or literal(text)}</span>'

    return "".join(pair(key, value) for key, value in pairs.items())


def _power_of_ten(value: Any) -> str:
    """A very large or very small number as mantissa × 10^n; "" for all else."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not value or not math.isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return ""
    mantissa, exponent = f"{value:.3e}".split("e")
    return literal(mantissa.rstrip("0").rstrip(".")) + f"×10<sup>{int(exponent)}</sup>".replace("-", "−")


def _source(source: Source, words: Words) -> str:
    title = literal(said(source.title, words.lang) or source.url)
    if WEB.match(source.url):
        title = f'<a href="{literal(source.url)}" target="_blank" rel="noopener noreferrer">{title}</a>'
    details = [said(source.where, words.lang), f"{words('card.read_on')} {source.read_on}" if source.read_on else "", said(source.note, words.lang)]
    return title + "".join(f'<span class="lab-card-pair">{literal(detail)}</span>' for detail in details if detail)
