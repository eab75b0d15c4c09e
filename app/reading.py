"""The reading list, at /reading: what is worth reading on, by the time it takes, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from app import glossary, lesson, prose, tables, views
from app.lesson import words
from components import reader
from compute import facts

FILE = Path(__file__).resolve().parent.parent / "data" / "reading.toml"
EFFORTS = ("half_hour", "afternoon", "paper")


@dataclass(frozen=True)
class Item:
    """title, who, url: from data/papers.toml where the entry names a paper."""

    effort: str
    title: str
    who: str
    url: str
    lessons: tuple[str, ...]
    gives: Mapping[str, str]
    careful: Mapping[str, str]


@dataclass(frozen=True)
class Left:
    """What was left out, and why."""

    what: Mapping[str, str]
    why: Mapping[str, str]


@dataclass(frozen=True)
class ReadingList:
    """checked: ISO date on which the entries were last opened or found elsewhere."""

    checked: str
    items: tuple[Item, ...]
    out: tuple[Left, ...]


def reading(path: Path = FILE) -> ReadingList:
    return tables.read(path, _list)


def _list(found: dict) -> ReadingList:
    return ReadingList(found["checked"], tuple(_item(row) for row in found["item"]), tuple(Left(**row) for row in found["out"]))


def _item(row: dict) -> Item:
    named = source(row["paper"]) if "paper" in row else row
    return Item(row["effort"], named["title"], named["who"], named["url"], tuple(row["lessons"]), row["gives"], row.get("careful", {}))


def source(paper: str) -> dict[str, str]:
    """Title, authors with year, and address of a paper of data/papers.toml."""
    papers = facts.papers()
    rows = list(papers.get(paper, {}).values()) or [row for row in papers["formula"] if row["id"].split(".")[0] == paper]
    if not rows:
        raise KeyError(f"no paper {paper!r} in data/papers.toml")
    found = rows[0]["source"]
    year = str(found["year"])
    where = [found["authors"], found["venue"], "" if year in found["venue"] else year]
    return {"title": found["title"], "who": ", ".join(each for each in where if each), "url": found["url"]}


def show(lang: str, pages: dict) -> None:
    say, found = words(lang), reading()
    views.header("reading", lang)
    reader.lead()
    with st.container(key="lab-prose-reading-list"):
        st.html(f'<p class="lab-quiet">{prose.literal(say("reading_checked", date=found.checked))}</p>')
        for effort in EFFORTS:
            rows = "\n\n".join(entry(item, lang) for item in found.items if item.effort == effort)
            st.markdown(f'<h2 class="lab-section" id="{effort}">{prose.literal(say(f"reading_group.{effort}"))}</h2>\n\n{rows}', unsafe_allow_html=True)
        rows = "\n\n".join(f'<div class="lab-term">\n\n**{prose.markdown(each.what[lang], lang, say)}**\n\n{prose.markdown(each.why[lang], lang, say)}\n\n</div>'
                           for each in found.out)
        st.markdown(f'<h2 class="lab-section" id="out">{prose.literal(say("reading_out"))}</h2>\n\n{rows}', unsafe_allow_html=True)


def entry(item: Item, lang: str) -> str:
    """An item as Markdown: title and authors, what it gives, what to be careful about, with which lessons."""
    say = words(lang)
    there = {each.slug for each in lesson.existing()}
    links = [f'<a class="lab-to-lesson" href="{glossary.address(slug, lang)}">{prose.literal(lesson.load(slug, lang).title)}</a>'
             for slug in item.lessons if slug in there]
    careful = f'\n\n<p class="lab-careful"><span class="lab-quiet">{prose.literal(say("reading_careful"))}</span> {prose.markdown(item.careful[lang], lang, say)}</p>' if item.careful else ""
    foot = f'\n\n<p class="lab-term-links"><span class="lab-term-link">{prose.literal(say("reading_for"))}{("、" if lang == "zh" else ", ").join(links)}</span></p>' if links else ""
    return (f'<div class="lab-term">\n\n<p class="lab-term-name"><a href="{prose.literal(item.url)}" target="_blank" rel="noopener noreferrer">{prose.literal(item.title)}</a> '
            f'<span class="lab-term-other">{prose.literal(item.who)}</span></p>\n\n{prose.markdown(item.gives[lang], lang, say)}{careful}{foot}\n\n</div>')
