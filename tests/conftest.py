"""Shared by every test: no torch warnings about threads, no Streamlit caches leaking from one test to the next."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:  # as many processes as cores: two threads in each would wait for those of the others
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ |= {"UVICORN_LOOP": "asyncio", "UVICORN_HTTP": "h11"}  # as it is installed to run; Ray brings others along
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


FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")


@pytest.fixture(scope="session")
def chromium():
    """One browser for the whole run: Playwright allows one at a time in a process."""
    from playwright.sync_api import sync_playwright

    found = os.environ.get("INFERENCE_LAB_CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "no Chromium here; `python3 run.py test` installs it where it can"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture()
def fresh_streamlit():
    """Caches are per process: a result cached by one AppTest would hide a fault from the next."""
    import streamlit as st

    from app import prose

    def forget():
        for kept in (st.cache_data.clear, st.cache_resource.clear, prose._markdown.cache_clear, prose._plain.cache_clear):
            kept()

    forget()
    yield
    forget()


def pytest_collection_modifyitems(items):
    """Files with a browser in them come last: once Playwright's loop has begun, asyncio.run refuses to begin another."""
    for item in items:
        if "tests/browser" in str(item.path):
            item.add_marker(pytest.mark.browser)
    with_browser = {item.path for item in items if "chromium" in item.fixturenames}
    items.sort(key=lambda item: item.path in with_browser)
