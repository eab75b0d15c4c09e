"""The load of a queue in the load lab, in a real Chromium: dragged, moved by keys, and kept in the address."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import assert_clean, wait_idle
from tests.browser.test_lesson_one import frame

SECONDS = 30_000  # ms


def test_the_load_is_dragged_and_moved_by_keys(open_page):
    """Catches: a release that nobody hears of, a load that the handle cannot show, keys that go past the ends, a new handle without the focus."""
    page = open_page("/serving?load-lab.guess=skip", lang="en")
    picture = frame(page, "load-lab").locator("svg[data-picture]").first
    handle = picture.locator("circle.handle")
    handle.wait_for(timeout=2 * SECONDS)
    handle.scroll_into_view_if_needed()
    handle.hover()  # once it stands still
    box, whole, top = handle.bounding_box(), picture.bounding_box(), handle.get_attribute("aria-valuemax")
    page.mouse.down()
    page.mouse.move(whole["x"] + whole["width"] / 4, box["y"], steps=5)
    held = handle.get_attribute("aria-valuenow")
    assert "load-lab.rho" not in page.url, "the server has not been asked"
    page.mouse.up()
    page.wait_for_url(lambda url: f"load-lab.rho={held}" in url, timeout=SECONDS)
    wait_idle(page)
    handle.focus()
    page.keyboard.press("End")
    expect(handle).to_have_attribute("aria-valuenow", re.compile(rf"^{float(top):.3g}"))
    page.keyboard.press("ArrowRight")
    expect(handle).to_have_attribute("aria-valuenow", re.compile(rf"^{float(top):.3g}"))
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(lambda url: (found := re.search(r"load-lab\.rho=([\d.]+)", url)) and abs(float(found[1]) - 0.98 * float(top)) < 0.006, timeout=SECONDS)
    expect(handle).to_be_focused()
    wait_idle(page)
    assert_clean(page)
