"""Shared by every test: no torch warnings about threads, no Streamlit caches leaking from one test to the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
ROOT = Path(__file__).resolve().parent.parent
SAMPLE_LESSONS = ROOT / "tests" / "app" / "lessons"


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture()
def sample_lessons(monkeypatch) -> Path:
    """The small course of tests/app/lessons instead of the real one."""
    from app import lesson

    monkeypatch.setattr(lesson, "LESSONS", SAMPLE_LESSONS)
    return SAMPLE_LESSONS


@pytest.fixture()
def fresh_streamlit():
    """Caches are per process: a result cached by one AppTest would hide a fault from the next."""
    import streamlit as st

    st.cache_data.clear()
    st.cache_resource.clear()
    yield
    st.cache_data.clear()
    st.cache_resource.clear()


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.browser)
