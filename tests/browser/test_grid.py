"""The few weights and the real row in a real Chromium: an outlier dragged by hand, a row chosen in the map."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import assert_clean
from tests.browser.test_lesson_one import frame, says

LESSON = "/quantization?grid.2.guess=skip"
SECONDS = 30_000  # ms


def test_the_outlier_is_dragged_and_the_rest_follows(open_page):
    """Catches: a picture that waits for the server, a size that is not the hand's, a release that nobody hears of."""
    page = open_page(LESSON, lang="en")
    picture = frame(page, "grid.2").locator("svg[data-picture]")
    handle = picture.locator("circle.handle")
    handle.wait_for(timeout=2 * SECONDS)
    handle.scroll_into_view_if_needed()
    expect(says(page, "grid.2")).to_contain_text("22 squeezed to 0")
    box, whole = handle.bounding_box(), picture.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(whole["x"] + whole["width"] - 8, y, steps=5)
    assert "s = 1.71" in picture.inner_html(), "12 over 7, in the browser alone"
    assert "22 squeezed to 0" in says(page, "grid.2").inner_text()
    page.mouse.up()
    expect(says(page, "grid.2")).to_contain_text("23 squeezed to 0", timeout=SECONDS)
    assert "grid.2.outlier=12" in page.url
    handle.focus()
    for _ in range(12):
        page.keyboard.press("ArrowLeft")  # half a unit each; a new handle is drawn every time and has to keep the focus
    assert "s = 0.857" in picture.inner_html()
    expect(says(page, "grid.2")).to_contain_text("22 squeezed to 0", timeout=SECONDS)
    expect(handle).to_have_attribute("aria-valuenow", "6")
    assert "grid.2.outlier" not in page.url, "the lesson's own value"
    page.keyboard.press("ArrowRight")
    expect(says(page, "grid.2")).to_contain_text("outlier of 6.5", timeout=SECONDS)
    assert_clean(page)


def test_a_line_of_the_map_is_its_worst_row(open_page):
    """Catches: a click that is a line off, or that chooses a harmless row of a dark line."""
    page = open_page(LESSON, lang="zh")
    area = frame(page, "real-row").locator("svg[data-picture] rect.map")
    area.wait_for(timeout=2 * SECONDS)
    expect(says(page, "real-row")).to_contain_text("第 157 行")
    high = area.bounding_box()["height"]
    area.click(position={"x": 30, "y": high * 10.5 / 32})  # rows 80 to 87
    expect(says(page, "real-row")).to_contain_text(re.compile("第 81 行.*9.52 倍"), timeout=SECONDS)
    assert_clean(page)
