"""The live server: what the one engine behind everybody's requests is doing now. The page itself is components/live_server."""

from __future__ import annotations

import streamlit as st

from app import prose, views
from app.lesson import words
from components import live_server

LESSON = "batching"
REPLAY = {"swim-lane.source": "live"}  # the lesson's player, on what has just run


def show(lang: str, pages: dict) -> None:
    """pages: by slug, for the way to the lesson."""
    say = words(lang)
    views.header("live", lang)
    with st.container(key="lab-instrument-live"):
        live_server.show(lang)
        if LESSON in pages:
            st.page_link(pages[LESSON], label=prose.literal(say("live_replay", lesson=pages[LESSON].title)), query_params={"lang": lang, **REPLAY}, width="stretch")
