"""The page for those who run the course, in a real Chromium: the class dragged, kept in the address, and refused where it cannot be."""

from playwright.sync_api import expect

from tests.browser.conftest import assert_clean, sideways, wait_idle
from tests.browser.test_lesson_one import frame, says

SECONDS = 30_000  # ms


def test_the_class_is_dragged_and_the_address_keeps_it(open_page):
    """Catches: a picture that waits for the server, a release that nobody hears of, a new handle that loses the focus, an address that
    does not bring the class back."""
    page = open_page("/sizing", lang="en")
    picture = frame(page, "sizing").locator("svg[data-picture]").first
    handle = picture.locator("circle.handle")
    handle.wait_for(timeout=2 * SECONDS)
    handle.scroll_into_view_if_needed()
    before = says(page, "sizing").inner_text()
    assert before.startswith("3,000 learners")
    box, whole = handle.bounding_box(), picture.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(whole["x"] + whole["width"], box["y"], steps=5)
    expect(handle).to_have_attribute("aria-valuenow", "100000")
    assert says(page, "sizing").inner_text() == before, "the server has not been asked"
    page.mouse.up()
    expect(says(page, "sizing")).to_contain_text("100,000 learners", timeout=SECONDS)
    assert "sizing.learners=100000" in page.url
    handle.focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")  # a tenth of a decade each
    expect(handle).to_have_attribute("aria-valuenow", "10000")
    expect(says(page, "sizing")).to_contain_text("10,000 learners", timeout=SECONDS)
    page.keyboard.press("Home")
    expect(says(page, "sizing")).to_contain_text("10 learners", timeout=SECONDS)
    page.reload()
    expect(says(page, "sizing")).to_contain_text("10 learners", timeout=2 * SECONDS)
    page.go_back()
    expect(says(page, "sizing")).to_contain_text("10,000 learners", timeout=SECONDS)
    assert_clean(page)


def test_an_engine_that_was_not_measured_is_refused_and_a_chip_is_the_way_out(open_page):
    """Catches: a refusal without controls, and a page that a chip does not bring back; on a narrow screen and in Chinese."""
    page = open_page("/sizing?sizing.model=qwen3-8b", lang="zh", width=390, height=844)
    refused = frame(page, "sizing").locator(".lab-refused")
    expect(refused).to_contain_text("mini-256", timeout=2 * SECONDS)
    wait_idle(page)
    chip = frame(page, "sizing").get_by_role("combobox").first
    chip.scroll_into_view_if_needed()  # a list that opens while the page scrolls closes again
    chip.click()
    page.get_by_role("option", name="NVIDIA H100 SXM 80 GB").click()
    expect(says(page, "sizing")).to_contain_text("GPU", timeout=SECONDS)
    assert refused.count() == 0 and "sizing.chip=h100-sxm" in page.url
    assert sideways(page) <= 0
    assert_clean(page)
