"""Glossary, question notes, progress as a file and the printed sheet in a real browser, against a server with notes of its own."""

from __future__ import annotations

import json
import re
import zipfile

import pytest

from app import notes
from tests.browser.conftest import Server, assert_clean, end, sideways, start_web, wait_idle
from tests.conftest import SAMPLE_LESSONS


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """The small course, with notes in a file that no other test sees; the page counts four notes of one browser as too many."""
    folder = tmp_path_factory.mktemp("notes")
    url, web = start_web("http://127.0.0.1:9", INFERENCE_LAB_LESSONS=str(SAMPLE_LESSONS), INFERENCE_LAB_NOTES=str(folder / "notes.sqlite"))
    yield Server(url, "", web, None), folder / "notes.sqlite"
    end(web)


def test_the_glossary_is_searched_and_leads_to_its_lesson(open_page, desk):
    """Catches a filter that hides nothing, an anchor that is not reached, and a link that throws the session away."""
    page = open_page("/glossary#kv-cache", at=desk[0], lang=None, width=390, height=844)
    page.wait_for_function("() => Math.abs(document.getElementById('kv-cache').getBoundingClientRect().top) < 200")
    assert_clean(page)
    assert sideways(page) <= 0
    every = page.locator(".lab-term").count()
    page.locator(".st-key-lab-prose-find input").fill("goodput")
    page.wait_for_function("() => document.querySelector('#kv-cache').offsetParent === null")
    shown = [term.get_attribute("id") for term in page.locator(".lab-term").all() if term.is_visible()]
    assert "goodput" in shown and len(shown) < every / 4
    page.locator("#goodput a[href='#slo']").click()
    page.wait_for_function("() => document.querySelector('#slo').offsetParent !== null", timeout=5000)
    page.evaluate("window.here = true")
    page.locator("#kv-cache a.lab-to-lesson").click()
    page.wait_for_function("() => document.querySelector('h1')?.innerText.includes('读 prompt')")
    assert page.evaluate("window.here") and "/roofline" in page.url


def test_notes_are_kept_deleted_and_taken_away_and_a_failure_loses_nothing(open_page, desk):
    """Catches a note shown to another browser, HTML in a note, and a text that vanishes when the file is broken."""
    server, path = desk
    page = open_page("/roofline", at=server, lang="en")
    box, keep = page.locator(".st-key-lab-prose-question textarea"), page.get_by_role("button", name="Keep it")
    box.fill("Why is <b>decode</b> slow?")
    keep.click()
    page.wait_for_selector(".lab-note")
    assert "Why is <b>decode</b> slow?" in page.locator(".lab-note").inner_text() and box.input_value() == ""
    with page.expect_download() as taken:
        page.locator(".st-key-lab-prose-question [data-testid=stDownloadButton] button").click()
    with zipfile.ZipFile(taken.value.path()) as bundle:
        assert bundle.namelist() == ["roofline.md"]
    other = open_page("/roofline", at=server, lang="en")
    other.wait_for_selector(".st-key-lab-prose-question textarea")
    assert other.locator(".lab-note").count() == 0
    page.reload()
    wait_idle(page)
    page.wait_for_selector(".lab-note")
    page.get_by_role("button", name="Delete").click()
    page.wait_for_selector(".lab-note", state="detached")
    assert notes.Store(notes.Sqlite(path)).all() == []
    for file in path.parent.iterdir():
        file.unlink()
    path.write_bytes(b"damaged " * 500)
    box.fill("Do not lose me")
    keep.click()
    page.wait_for_selector(".st-key-lab-prose-question .lab-refusal")
    assert "damaged" in (said := page.locator(".st-key-lab-prose-question .lab-refusal").first.inner_text()) and "still in the box" in said and box.input_value() == "Do not lose me"


def test_progress_goes_out_to_a_file_and_comes_back(open_page, desk, tmp_path):
    """Catches marks lost on import, a wrong file taken, and marks that are drawn only after a reload."""
    page = open_page("/", at=desk[0], lang="en")
    page.evaluate("localStorage.setItem('inference-lab-progress', JSON.stringify({visited: ['sampling'], passed: ['sampling']}))")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save progress").click()
    out = json.loads(saved.value.path().read_text())
    assert out == {"format": "inference-lab-progress-1", "visited": ["sampling"], "passed": ["sampling"]}
    wrong, right = tmp_path / "wrong.json", tmp_path / "right.json"
    wrong.write_text('{"visited": ["<b>"], "passed": 5}')
    right.write_text(json.dumps(out | {"passed": ["roofline"], "visited": ["roofline"]}))
    page.set_input_files(".st-key-lab-progress input[type=file]", wrong)
    told = page.locator(".st-key-lab-progress [role=status]")
    page.wait_for_function("() => document.querySelector('.st-key-lab-progress [data-testid=stBidiComponentIsolated], .st-key-lab-progress') !== null")
    told.filter(has_text="no progress file").wait_for()
    page.set_input_files(".st-key-lab-progress input[type=file]", right)
    told.filter(has_text="1 passed").wait_for()
    assert page.evaluate("JSON.parse(localStorage.getItem('inference-lab-progress')).passed.sort()") == ["roofline", "sampling"]
    assert "2 of 3 quizzes passed" in page.locator(".st-key-lab-progress .far").inner_text()
    assert "●" in page.evaluate("getComputedStyle(document.querySelector('[class*=\"st-key-lab-nav-\"][class*=\"-roofline\"] a'), '::after').content")


@pytest.mark.parametrize("lang,theme", [("zh", "dark"), ("en", "light")])
def test_the_sheet_prints_on_two_pages_at_most(open_page, desk, lang, theme):
    """Catches a print style that keeps the sidebar, cuts the sheet after a screen, or runs over many pages. Chromium only."""
    page = open_page("/cheatsheet", at=desk[0], lang=lang, theme=theme)
    page.wait_for_selector(".st-key-lab-sheet .katex")
    assert_clean(page)
    printed = page.pdf(prefer_css_page_size=True)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 2
    page.emulate_media(media="print")
    assert not page.locator("[data-testid=stSidebar]").is_visible() and not page.get_by_role("button", name=re.compile("Print|打印")).is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
