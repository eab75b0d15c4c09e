"""The cheat sheet, at /cheatsheet: the course on two printed pages at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from app import lesson, prose, tables, views
from app.lesson import words
from components import reader

FILE = Path(__file__).resolve().parent.parent / "data" / "cheatsheet.toml"


@dataclass(frozen=True)
class Formula:
    """tex: formulas that stand on one line where it is long enough."""

    lesson: str
    tex: tuple[str, ...]
    says: Mapping[str, str]
    worked: Mapping[str, str]


@dataclass(frozen=True)
class Decision:
    """sees: what somebody notices; first: where to look first."""

    lesson: str
    sees: Mapping[str, str]
    first: Mapping[str, str]


def sheet(path: Path = FILE) -> tuple[tuple[Formula, ...], tuple[Decision, ...]]:
    return tables.read(path, _sheet)


def _sheet(found: dict) -> tuple[tuple[Formula, ...], tuple[Decision, ...]]:
    return tuple(Formula(**row | {"tex": tuple(row["tex"])}) for row in found["formula"]), tuple(Decision(**row) for row in found["decision"])


def show(lang: str, pages: dict) -> None:
    say = words(lang)
    views.header("cheatsheet", lang)
    with st.container(key="lab-prose-print"):
        reader.print_button(lang)
    formulas, decisions = sheet()
    with st.container(key="lab-sheet"):
        st.markdown("\n\n".join([*(_lesson(entry, lang, formulas) for entry in lesson.existing()), _decisions(decisions, lang)]), unsafe_allow_html=True)
        st.html(f'<p class="lab-quiet">{prose.literal(say("cheatsheet_note"))}</p>')


def _lesson(entry: lesson.Entry, lang: str, formulas: tuple[Formula, ...]) -> str:
    """A lesson's formulas and the sentence to keep, as Markdown."""
    say, text = words(lang), lesson.load(entry.slug, lang)
    title = f"{entry.number} {text.title}".strip()
    rows = "\n\n".join(_formula(each, lang) for each in formulas if each.lesson == entry.slug)
    return (f'<div class="lab-sheet-lesson">\n\n<h2>{prose.literal(title)}</h2>\n\n{rows}\n\n'
            f'<p class="lab-sheet-keep">{prose.markdown(text.takeaway, lang, say)}</p>\n\n</div>')


def _formula(formula: Formula, lang: str) -> str:
    say = words(lang)
    set_ = " &emsp; ".join(f"$\\displaystyle {tex}$" for tex in formula.tex)
    return (f'<div class="lab-formula">\n\n{set_}\n\n<p class="lab-formula-says">{prose.markdown(formula.says[lang], lang, say)}</p>'
            f"<p>{prose.markdown(formula.worked[lang], lang, say)}</p>\n\n</div>")


def _decisions(decisions: tuple[Decision, ...], lang: str) -> str:
    say = words(lang)
    there = {entry.slug: lesson.load(entry.slug, lang).title for entry in lesson.existing()}
    rows = "".join(f"<tr><td>{prose.markdown(each.sees[lang], lang, say)}</td><td>{prose.markdown(each.first[lang], lang, say)}</td>"
                   f"<td>{prose.literal(there.get(each.lesson, ''))}</td></tr>" for each in decisions)
    heads = "".join(f'<th scope="col">{prose.literal(say(f"cheatsheet_{name}"))}</th>' for name in ("sees", "first", "lesson"))
    return (f'<div class="lab-sheet-lesson lab-sheet-wide">\n\n<h2>{prose.literal(say("cheatsheet_decisions"))}</h2>\n\n'
            f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>\n\n</div>")
