"""The judged table: what the calibrated clock predicts, beside what engines were published to do."""

from __future__ import annotations

import streamlit as st

from app import views
from components import frame


def show(lang: str, pages: dict) -> None:
    views.header("judged", lang)
    with st.container(key="lab-instrument-judged"):
        frame.show("judged", lang=lang)
