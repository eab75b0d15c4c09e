"""The verification desk: every number of the courseware, stored against recomputed. The table itself is components/ledger."""

from __future__ import annotations

import html

import streamlit as st

from app import prose
from app.lesson import words
from components import ledger


def show(lang: str) -> None:
    say = words(lang)
    with st.container(key="lab-prose-check"):
        st.html(f'<header class="lab-open"><p class="lab-eyebrow">{html.escape(say("check"))}</p>'
                f'<h1>{prose.clauses(say("check_question"))}</h1><p class="lab-lead">{html.escape(say("check_lead"))}</p></header>')
    with st.container(key="lab-instrument-ledger"):
        ledger.show(lang)
