"""The network between browser and server goes away and comes back."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from app.lesson import words
from components.text import LANGUAGES
from tests.browser.conftest import fresh_page, visit, wait_idle

pytestmark = pytest.mark.browser
SAID = {"zh": "正在自动重连", "en": "tries again by itself"}


def test_a_page_that_lost_its_server_says_so_and_goes_on_where_it_was(chromium, pages, wire):
    """Catches: a page that is dead without a word or speaks English to a Chinese reader, a dialog over what could be read on, settings lost,
    and controls that stay dead afterwards."""
    cable = wire(urlsplit(pages.url).port)
    page = visit(chromium, cable.url, "/roofline?roofline-placer.batch=4", "zh")
    try:
        batch = page.get_by_role("slider", name="batch").first
        bar, dialog = page.locator(".lab-away"), page.get_by_role("dialog")
        expect(bar).to_be_hidden()
        cable.cut()
        expect(bar).to_contain_text(SAID["zh"], timeout=10_000)
        page.get_by_role("heading").first.click(timeout=2000)  # nothing lies over the text
        assert dialog.count() == 0
        cable.mend()
        expect(bar).to_be_empty(timeout=30_000)
        wait_idle(page)
        assert "roofline-placer.batch=4" in page.url and dialog.count() == 0
        batch.press("ArrowRight")
        page.wait_for_url(lambda url: "roofline-placer.batch=4" not in url)
        # A server that stopped answering without the connection being closed, as behind a router that lost its own.
        page.context.set_offline(True)
        expect(bar).to_contain_text(SAID["zh"], timeout=10_000)
        page.context.set_offline(False)
        expect(bar).to_be_empty(timeout=10_000)
    finally:
        page.context.close()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_word_of_a_lost_server_comes_with_the_document(lang):
    """Catches: words that would have to be fetched from the server that is away."""
    from app import asgi

    assert SAID[lang] in asgi.document(lang, "x") and asgi.document(lang, "x").index("away.js") < asgi.document(lang, "x").index("index.")


def test_a_page_whose_framework_broke_is_loaded_again_once(chromium, pages):
    """Catches: a white window for ever after a mistake of the framework's, the settings lost with it, and a page that loads itself for ever."""
    page, browsers, loads = fresh_page(chromium), [], []

    def between(browser) -> None:
        browser.connect_to_server()
        browsers.append(browser)

    page.route_web_socket("**/_stcore/stream*", between)
    page.on("load", lambda: loads.append(page.url))
    page.goto(f"{pages.url}/roofline?lang=en&roofline-placer.batch=4")
    try:
        wait_idle(page)
        nowhere = ForwardMsg()
        nowhere.metadata.delta_path[:] = [0, 1_000, 0]
        nowhere.delta.new_element.empty.SetInParent()
        browsers[-1].send(nowhere.SerializeToString())
        expect(page.locator(".stApp")).to_have_count(0)
        expect(page.locator(".stApp")).to_have_count(1, timeout=10_000)
        wait_idle(page)
        assert "roofline-placer.batch=4" in page.url and page.get_by_role("slider", name="batch").first.get_attribute("aria-valuetext").startswith("4")
        browsers[-1].send(nowhere.SerializeToString())
        expect(page.locator(".lab-away")).to_contain_text("again after it was loaded anew", timeout=10_000)
        page.wait_for_timeout(2000)
        assert len(loads) == 2, "the second time it is left to the reader"
    finally:
        page.context.close()


def test_what_is_pressed_on_a_page_just_left_takes_nothing_from_the_next(chromium, pages):
    """Catches: a fragment of the page that was left, made in the midst of the one that was turned to, which then stands empty or ends in a
    white window."""
    page = visit(chromium, pages.url, "/judged", "en")
    try:
        for slug in ("guide", "batching") * 3:
            page.locator(f"[class*=st-key-lab-nav] a[href^='{slug}?']").first.click()
            page.wait_for_url(f"**/{slug}*")
            wait_idle(page)
            keep = page.locator(f"[class*='st-key-question-keep'] button")
            expect(keep).to_be_visible()
            keep.evaluate("button => { history.back(); setTimeout(() => button.click(), 5); }")
            page.wait_for_url("**/judged*")
            expect(page.locator("h1")).to_contain_text(words("en")("judged_question"), timeout=5000)
            page.wait_for_timeout(1000)
            expect(page.locator("h1")).to_contain_text(words("en")("judged_question"), timeout=1000)
        assert not [each for each in page.problems if "delta path" in each]
    finally:
        page.context.close()
