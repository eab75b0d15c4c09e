"""The glossary, at /glossary: every term of the course, in a sentence or three, with the place where it is taught."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping
from urllib.parse import quote

import streamlit as st

from app import lesson, prose, tables, views
from app.lesson import words
from components import reader

FILE = Path(__file__).resolve().parent.parent / "data" / "glossary.toml"
GROUPS = ("token", "roof", "shape", "sampling", "batching", "speculative", "quantization", "serving")
HEADING = re.compile(r"^#{2,6} +(.+?) *$", re.M)


@dataclass(frozen=True)
class Term:
    """section: the Chinese heading under which the lesson teaches it; empty for the lesson as a whole."""

    id: str
    group: str
    zh: str
    en: str
    lesson: str
    says: Mapping[str, str]
    see: tuple[str, ...] = ()
    section: str = ""


def terms(path: Path = FILE) -> list[Term]:
    return tables.read(path, _terms)


def _terms(found: dict) -> list[Term]:
    return [Term(**{**row, "see": tuple(row.get("see", ()))}) for row in found["term"]]


def headings(slug: str, lang: str) -> list[str]:
    """A lesson's headings in their order."""
    texts = (part.text for part in lesson.load(slug, lang).parts if isinstance(part, lesson.Prose))
    return [found for text in texts for found in HEADING.findall(text)]


def taught(slug: str, section: str, lang: str) -> tuple[str, str] | None:
    """The title of a lesson and, in the reader's language, the heading that stands where the Chinese one does; None while
    the lesson is not there. A heading that is not there any more is left out: the link then leads to the lesson."""
    if slug not in {entry.slug for entry in lesson.existing()}:
        return None
    place = headings(slug, "zh").index(section) if section in headings(slug, "zh") else None
    here = headings(slug, lang)
    return lesson.load(slug, lang).title, here[place] if place is not None and place < len(here) else ""


def address(slug: str, lang: str, heading: str = "") -> str:
    """Relative, as the pages may be served under a path; components/reader leads to the heading."""
    return f"{slug}?lang={lang}" + (f"#{quote(heading)}" if heading else "")


def show(lang: str, pages: dict) -> None:
    say, found = words(lang), terms()
    views.header("glossary", lang)
    with st.container(key="lab-prose-find"):
        reader.find(lang, {term.id: searched(term, lang) for term in found},
                    {f"{group}-terms": [term.id for term in found if term.group == group] for group in GROUPS})
    with st.container(key="lab-prose-terms"):
        for group in GROUPS:
            rows = "\n\n".join(entry(term, lang) for term in found if term.group == group)
            st.markdown(f'<div id="{group}-terms">\n\n<h2 class="lab-section">{prose.literal(say(f"glossary_group.{group}"))}</h2>\n\n'
                        f"{rows}\n\n</div>", unsafe_allow_html=True)


def searched(term: Term, lang: str) -> str:
    """What the filter looks through: names in both languages and the definition in the reader's."""
    return " ".join([term.id, term.zh, term.en, prose.plain(term.says[lang], lang)]).lower()


def entry(term: Term, lang: str) -> str:
    """A term as Markdown: the reader's language first, the other one beside it."""
    say, other = words(lang), "en" if lang == "zh" else "zh"
    first, second = getattr(term, lang), getattr(term, other)
    name = f"<strong>{prose.literal(first)}</strong>"
    if second.lower() != first.lower():
        name += f' <span class="lab-term-other" lang="{"en" if other == "en" else "zh-CN"}">{prose.literal(second)}</span>'
    by_id = {each.id: each for each in terms()}
    links = []
    if place := taught(term.lesson, term.section, lang):
        title, heading = place
        label = f"{title} · {heading}" if heading else title
        links.append(f'<a class="lab-to-lesson" href="{address(term.lesson, lang, heading)}">{prose.literal(label)}</a>')
    if related := [f'<a href="#{id}">{prose.literal(getattr(by_id[id], lang))}</a>' for id in term.see]:
        links.append(prose.literal(say("glossary_see")) + ("、" if lang == "zh" else ", ").join(related))
    foot = "".join(f'<span class="lab-term-link">{each}</span>' for each in links)
    return (f'<div class="lab-term" id="{term.id}">\n\n<p class="lab-term-name">{name}</p>\n\n'
            f'{prose.markdown(term.says[lang], lang, say)}\n\n<p class="lab-term-links">{foot}</p>\n\n</div>')
