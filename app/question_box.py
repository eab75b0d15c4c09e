"""The box at a lesson's end: note a question, see one's own, delete them, take them away. What keeps them is app/notes.py."""

from __future__ import annotations

import html
import re
import time
from datetime import datetime, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from app import notes
from app.lesson import words
from components import reader
from compute.errors import Busy, LabError
from compute.service.rates import Rates, counted

OF_THE_NOTE = {"empty", "too_long", "too_many", "too_fast"}  # the other reasons not to keep it are the store's
PASSING = {"locked", "unreachable"}
_rates = Rates(per_minute=60)  # notes of one address: a browser may call itself as it likes, and a class may share an address


@st.fragment
def show(slug: str, lang: str) -> None:
    say = words(lang)
    with st.container(key="lab-prose-question"):
        st.html(f'<h2 class="lab-section">{html.escape(say("notes.title"))}</h2><p class="lab-quiet">{html.escape(say("notes.lead"))}</p>')
        browser = reader.browser("reader/browser")
        key, told = f"question:{slug}", f"question-told:{slug}"
        # No max_chars: the browser would throw a text away that is pasted and too long; here it is refused and stays.
        st.text_area(say("notes.label", most=f"{notes.LONGEST:,}"), key=key, placeholder=say("notes.placeholder"), height=120, persist_state="session")
        st.button(say("notes.keep"), key=f"question-keep:{slug}", on_click=_keep, args=(browser, slug, lang))
        if sentence := st.session_state.pop(told, None):
            kind, text, values, *more = sentence
            body = html.escape(("" if lang == "zh" else " ").join((say(f"notes.{text}", **values), *(say(f"notes.{each}") for each in more))))
            st.html(f'<p class="lab-refusal" role="alert">{body}</p>' if kind == "wrong" else f'<p class="lab-kept" role="status">{body}</p>')
        if browser:
            _own(browser, slug, lang)


def _keep(browser: str, slug: str, lang: str) -> None:
    """When the button is pressed. What was not kept stays in the box."""
    state = st.session_state
    if not re.fullmatch(reader.BROWSER_ID, browser):
        state[f"question-told:{slug}"] = ("wrong", "no_browser", {})
        return
    try:
        if address := st.context.ip_address:  # none on this machine
            _rates.take(counted(address), time.monotonic())
        notes.store().add(browser, slug, lang, state.get(f"question:{slug}") or "")
    except Busy:
        state[f"question-told:{slug}"] = ("wrong", "too_fast", {})
    except notes.NotKept as reason:
        in_box = () if reason.key in OF_THE_NOTE else ("in_box_again" if reason.key in PASSING else "in_box",)
        state[f"question-told:{slug}"] = ("wrong", reason.key, reason.values, *in_box)
    else:
        state[f"question:{slug}"] = ""
        state[f"question-told:{slug}"] = ("kept", "kept", {})


def _delete(browser: str, slug: str, id: int) -> None:
    try:
        notes.store().delete(browser, id)
    except notes.NotKept as reason:
        st.session_state[f"question-told:{slug}"] = ("wrong", reason.key, reason.values)
    else:
        st.session_state[f"question-told:{slug}"] = ("kept", "deleted", {})


def _own(browser: str, slug: str, lang: str) -> None:
    say = words(lang)
    try:
        every = notes.store().of(browser)
    except notes.NotKept as reason:  # nothing of it is shown, and the box goes on
        st.html(f'<p class="lab-refusal" role="status">{html.escape(say(f"notes.{reason.key}", **reason.values))}</p>')
        return
    if not every:
        return
    here = [note for note in every if note.lesson == slug]
    if here:
        st.html(f'<h3 class="lab-own-notes">{html.escape(say("notes.own", n=len(here)))}</h3>')
    for note in here:
        with st.container(key=f"lab-note-{note.id}", horizontal=True, vertical_alignment="top"):
            st.html(f'<p class="lab-note"><time datetime="{note.written}">{html.escape(local(note.written))}</time>{html.escape(note.text)}</p>')
            st.button(say("notes.delete"), key=f"question-delete:{note.id}", on_click=_delete, args=(browser, slug, note.id), type="tertiary",
                      help=say("notes.delete_which", when=local(note.written)))
    st.download_button(say("notes.download", n=len(every)), key=f"question-download:{slug}", file_name="inference-lab-notes.zip",
                       mime="application/zip", on_click="ignore", data=lambda: packed(browser), type="tertiary")


def packed(browser: str) -> bytes:
    """One browser's notes as a zip. What cannot be read is said in the file instead."""
    try:
        titles = notes.titles()
    except LabError:
        titles = {}
    return notes.archive(notes.files(notes.store().of(browser), titles))


def local(written: str) -> str:
    """A time as the reader's clock shows it, to the minute."""
    try:
        zone = ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        zone = timezone.utc
    return datetime.fromisoformat(written).astimezone(zone).strftime("%Y-%m-%d %H:%M")
