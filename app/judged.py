"""The judged table: what the calibrated clock predicts, beside what engines were published to do."""

from __future__ import annotations

import html

import streamlit as st

from app import prose
from app.lesson import words
from components import frame


def show(lang: str) -> None:
    say = words(lang)
    with st.container(key="lab-prose-judged"):
        st.html(f'<header class="lab-open"><p class="lab-eyebrow">{html.escape(say("judged"))}</p>'
                f'<h1>{prose.clauses(say("judged_question"))}</h1><p class="lab-lead">{html.escape(say("judged_lead"))}</p></header>')
    with st.container(key="lab-instrument-judged"):
        frame.show("judged", lang=lang)
