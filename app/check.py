"""The verification desk: every number of the courseware, stored against recomputed. The table itself is components/ledger."""

from __future__ import annotations

import streamlit as st

from app import views
from components import ledger


def show(lang: str, pages: dict) -> None:
    views.header("check", lang)
    with st.container(key="lab-instrument-ledger"):
        ledger.show(lang)
