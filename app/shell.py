"""What surrounds every page: language, navigation, addresses, progress marks, and the page itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Callable

import streamlit as st

from app import cheatsheet, check, follow, glossary, judged, lesson, live, prose, quiz, reading, sizing, views
from app.lesson import Entry, words
from components import frame, reader, widgets
from components.text import LANGUAGES
from compute import numbers, turns
from compute.errors import BrokenData, LabError, UnknownName

HERE = Path(__file__).parent
HTML_LANG = {"zh": "zh-CN", "en": "en"}
OWN_NAME = {"zh": "中文", "en": "English"}
BESIDE: dict[str, Callable[[str, dict], None]] = {  # pages that are no lessons, by address; their names are words
    "live": live.show,
    "follow": follow.show,
    "glossary": glossary.show,
    "reading": reading.show,
    "cheatsheet": cheatsheet.show,
    "judged": judged.show,
    "sizing": sizing.show,
    "check": check.show,
}

_browser = st.components.v2.component("lab_shell", js=reader.KEEP + (HERE / "shell.js").read_text(encoding="utf-8"))


def slugs() -> list[str]:
    """The addresses that exist."""
    return [entry.slug for entry in course()[0]] + [*BESIDE]


def course() -> tuple[list[Entry], BrokenData | None]:
    """The lessons in order; none, and what is wrong, when their order cannot be read."""
    try:
        return lesson.existing(), None
    except BrokenData as reason:
        return [], reason


def title_of(slug: str, lang: str) -> str:
    """A page's short name; a lesson whose file is broken goes by its slug, so that the other pages still list it."""
    if slug in BESIDE:
        return words(lang)(slug)
    try:
        return lesson.load(slug, lang).title
    except BrokenData:
        return slug


def problems() -> list[str]:
    """What a start-up should complain about: broken lessons and quizzes, unknown numbers, unknown instruments."""
    entries, broken = course()
    found = [str(broken)] if broken else []
    for entry in entries:
        for lang in LANGUAGES:
            try:
                text = lesson.load(entry.slug, lang)
                for name in (name for part in text.texts() for name in prose.names(part)):
                    numbers.resolve(name)
                shown = [part.widget for part in text.parts if isinstance(part, lesson.Instrument)]
                for id in (*shown, *(id for part in text.texts() for id in prose.instruments(part))):
                    if id not in widgets():
                        raise UnknownName("widget", "组件", id, list(widgets()))
                for item in quiz.load(text.folder):
                    if isinstance(item, quiz.Numeric):
                        item.expected()
            except (LabError, ValueError) as reason:  # ValueError: a number cannot be shown in that unit
                found.append(f"{entry.slug}/{lang}: {reason}")
    return found


def run() -> None:
    with turns.taken():
        _run()


def _run() -> None:
    lang = reader_language()
    name = words(lang)("course")
    entries, broken = course()
    home = st.Page(_named("home", lambda: views.home(lang, entries, pages, broken)), title=name, default=True)
    pages: dict[str, st.Page] = {"": home}
    for entry in entries:
        pages[entry.slug] = _lesson_page(entry, lang, entries, pages)
    for address, show in BESIDE.items():
        pages[address] = st.Page(_named(address, partial(show, lang, pages)), title=words(lang)(address), url_path=address)
    current = st.navigation(list(pages.values()), position="hidden")
    asked = st.query_params.get("lesson")  # from an address that is no page, or written by hand
    slug = next((slug for slug, page in pages.items() if page is current), "") if asked is None else asked
    known = slug in pages
    st.set_page_config(page_title=f"{title_of(slug, lang)} · {name}" if slug and known else name, layout="wide")
    frame.enter(slug)
    with st.sidebar:
        sidebar(lang, entries, pages, slug)
    if asked is None:
        current.run()
    elif asked in {entry.slug for entry in entries}:
        views.lesson_page(next(entry for entry in entries if entry.slug == asked), lang, entries, pages)
    elif asked in BESIDE:
        BESIDE[asked](lang, pages)
    else:
        unknown(asked, lang, entries, pages, broken)
    _browser(key="lab_shell", height=1, data={
        "lang": HTML_LANG[lang],
        "slug": slug if known else "",
        "passed": bool(known and slug and st.session_state.get(f"passed:{slug}")),
        "words": {"visited": words(lang)("visited"), "passed": words(lang)("passed")},
        "order": [entry.slug for entry in entries],
    })


def reader_language() -> str:
    """The switch wins in the run in which it was pressed; otherwise the address does when it differs from what we last
    wrote there (a copied link, the browser's back button); otherwise the language stays."""
    state, address = st.session_state, st.query_params.get("lang")
    pressed = "lang" in state and state["lang"] != state.get("lang_shown", state["lang"])
    if not pressed and address in LANGUAGES and address != state.get("lang_written"):
        state["lang"] = address
    if state.get("lang") not in LANGUAGES:
        state["lang"] = LANGUAGES[0]
    with st.sidebar.container(key="lab-language"):
        st.segmented_control(" / ".join(words(each)("language") for each in LANGUAGES), LANGUAGES, key="lang", required=True,
                             format_func=OWN_NAME.get, label_visibility="collapsed")
    lang = state["lang"]
    state["lang_shown"] = state["lang_written"] = lang
    if address != lang:
        st.query_params["lang"] = lang
    return lang


def _named(name: str, show: Callable[[], None]) -> Callable[[], None]:
    show.__name__ = name
    return show


def _lesson_page(entry: Entry, lang: str, entries: list[Entry], pages: dict) -> st.Page:
    show = _named(entry.slug.replace("-", "_"), lambda: views.lesson_page(entry, lang, entries, pages))
    return st.Page(show, title=title_of(entry.slug, lang), url_path=entry.slug)


def sidebar(lang: str, entries: list[Entry], pages: dict, slug: str) -> None:
    say = words(lang)
    with st.container(key="lab-home"):
        st.page_link(pages[""], label=say("course"), query_params={"lang": lang}, width="stretch")
    with st.container(key="lab-chapters"):
        for entry in entries:
            here = "-here" if entry.slug == slug else ""
            kind = "branch" if entry.branch else "chapter"
            with st.container(key=f"lab-nav-{kind}{here}-{entry.slug}"):
                views.chapter_link(entry, lang, pages[entry.slug])
    with st.container(key="lab-beside"):
        for address in BESIDE:
            with st.container(key=f"lab-nav-{address}"):
                st.page_link(pages[address], label=say(address), query_params={"lang": lang}, width="stretch")


def unknown(value: str, lang: str, entries: list[Entry], pages: dict, broken: BrokenData | None) -> None:
    say = words(lang)
    with st.container(key="lab-prose-unknown"):
        views.refuse(views.told(broken, lang) if broken else say("unknown_lesson" if entries else "unknown_none", value=views.cut(value)))
        for entry in entries:
            views.chapter_link(entry, lang, pages[entry.slug])
        st.page_link(pages[""], label=say("back_home"), query_params={"lang": lang}, width="stretch")
