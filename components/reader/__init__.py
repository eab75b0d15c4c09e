"""What only a browser can do for pages that are no instruments: filter terms, print, keep marks and an anonymous name.

Nothing here goes through the contract: there is no result to draw. Words stand in text.toml, like a widget's.

    find(lang, texts, groups)  a field that hides the terms which do not hold what was typed, and leads to lessons
    lead()                   the same for links to lessons on a page without that field
    print_button(lang)       opens the browser's print dialogue
    browser(key)             this browser's random name, 32 hex digits; "" until it has said so
    progress(lang, lessons)  lessons passed, minutes left, and the marks as a file, out and in
"""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, Sequence

import streamlit as st

from components.text import load_words

WIDGET = None  # not for lessons, see above
HERE = Path(__file__).parent
TAKE_AWAY = (HERE.parent / "take_away.js").read_text(encoding="utf-8")
KEEP = (HERE / "keep.js").read_text(encoding="utf-8")
"""The marks in the browser's storage; app/shell.py puts it before its own script."""
BROWSER_ID = r"[0-9a-f]{32}"


def _component(name: str, script: str):
    return st.components.v2.component(f"reader_{name}", css=(HERE / "reader.css").read_text(encoding="utf-8"),
                                      js=script + (HERE / f"{name}.js").read_text(encoding="utf-8"))


LEAD = (HERE / "lead.js").read_text(encoding="utf-8")
_find = _component("find", LEAD)
_links = _component("links", LEAD)
_print = _component("print", "")
_browser = _component("browser", "")
_progress = _component("progress", TAKE_AWAY + KEEP)


def _words(lang: str) -> Mapping[str, str]:
    return load_words(HERE / "text.toml", lang).table


def find(lang: str, texts: Mapping[str, str], groups: Mapping[str, Sequence[str]]) -> None:
    """texts: by the id of the element on the page, what is looked through, in lower case. groups: by the id of the element
    around them, the ids of its terms; it goes when they all do."""
    _find(key="reader/find", data={"words": _words(lang), "texts": dict(texts), "groups": {id: list(of) for id, of in groups.items()}})


def lead() -> None:
    _links(key="reader/links", height=1, data={})


def print_button(lang: str) -> None:
    _print(key="reader/print", data={"words": _words(lang)})


def browser(key: str) -> str:
    """The browser's name for itself, "" until it has told it: once a session, since a component's own state ends with its page, and an
    answer that comes while the reader already turns to another page breaks the framework's client."""
    known = st.session_state.get("browser", "")
    found = _browser(key=key, data={"known": known}, default={"id": known}, on_id_change=lambda: None)
    st.session_state["browser"] = found.id or known
    return st.session_state["browser"]


def progress(lang: str, lessons: Sequence[tuple[str, int]]) -> None:
    """lessons: (slug, minutes), in order."""
    _progress(key="reader/progress", data={"words": _words(lang), "lessons": [{"slug": slug, "minutes": n} for slug, n in lessons]})
