"""The network between browser and server goes away and comes back."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from components.text import LANGUAGES
from tests.browser.conftest import visit, wait_idle

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
