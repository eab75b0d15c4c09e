"""How many machines a class needs, for those who run the course."""

from __future__ import annotations

import streamlit as st

from app import views
from components import frame


def show(lang: str, pages: dict) -> None:
    views.header("sizing", lang)
    with st.container(key="lab-instrument-sizing"):
        frame.show("sizing", lang=lang)
