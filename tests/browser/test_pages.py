"""The pages in a real browser: what AppTest cannot see."""

from __future__ import annotations

import pytest

from app import lesson
from app.lesson import words
from tests.browser.conftest import SIZES, assert_clean, outbound, sideways, wait_idle

PAGES = ["/", "/roofline", "/sampling"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_page_opens_fits_and_stays_on_this_machine(open_page, sample_server, lang, size):
    width, height = SIZES[size]
    for path in PAGES:
        page = open_page(path, at=sample_server, lang=lang, width=width, height=height)
        assert_clean(page)
        assert sideways(page) <= 0, f"{path} scrolls sideways by {sideways(page)} px"
        assert page.evaluate("document.documentElement.lang") == {"zh": "zh-CN", "en": "en"}[lang]
        assert page.title().endswith(words(lang)("course"))
        assert len(page.requests) > 20 and not outbound(page)


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("slug", [entry.slug for entry in lesson.existing()])
def test_every_real_lesson_opens(open_page, slug, lang):
    page = open_page(f"/{slug}", lang=lang, width=390, height=844)
    assert_clean(page)
    assert sideways(page) <= 0


def test_language_switch_keeps_the_place_and_the_address(open_page, sample_server):
    page = open_page("/roofline?keep=me", at=sample_server, lang="zh")
    page.get_by_text("English", exact=True).click()
    page.wait_for_function("() => document.documentElement.lang === 'en'")
    wait_idle(page)
    assert "/roofline" in page.url and "lang=en" in page.url and "keep=me" in page.url
    assert "The same model reads a prompt fast" in page.locator("h1").inner_text()
    page.reload()
    wait_idle(page)
    assert page.evaluate("document.documentElement.lang") == "en"
    page.locator("[class*=st-key-lab-nav-branch] a").first.click()
    page.wait_for_function("() => document.querySelector('h1')?.innerText.includes('distribution')")
    assert "/sampling" in page.url and "lang=en" in page.url
    page.go_back()
    page.wait_for_function("() => document.querySelector('h1')?.innerText.includes('same model')")
    assert_clean(page)


@pytest.mark.parametrize("path", ["/nope", "/nope/deeper?x=1", "/?lesson=nope"])
def test_an_unknown_address_is_ours(open_page, sample_server, path):
    page = open_page(path, at=sample_server, lang="en")
    page.wait_for_selector(".lab-refusal")
    assert "There is no lesson called “nope" in page.locator(".lab-refusal").inner_text()
    assert page.get_by_text("Page not found").count() == 0
    page.locator("[class*=st-key-lab-prose-unknown] a").first.click()
    page.wait_for_selector("h1")
    assert "/roofline" in page.url


def test_a_number_shows_its_papers_to_the_pointer_and_to_the_keyboard(open_page, sample_server):
    page = open_page("/roofline", at=sample_server, lang="en")
    number = page.locator(".lab-quoted").first
    card = number.locator(".lab-card")
    assert not card.is_visible()
    number.locator(".lab-v").hover()
    assert card.is_visible() and "NVIDIA H100" in card.inner_text()
    page.keyboard.press("Escape")
    assert not card.is_visible(), "Escape puts the card away"
    page.mouse.move(0, 0)
    number.focus()
    assert card.is_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "A" and card.is_visible(), "its link can be reached"
    box = card.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 1440


def test_a_card_stays_inside_a_narrow_window(open_page, sample_server):
    page = open_page("/roofline", at=sample_server, lang="zh", width=390, height=844)
    numbers = page.locator(".lab-n")
    assert numbers.count() > 8
    for index in range(numbers.count()):
        numbers.nth(index).focus()
        box = numbers.nth(index).locator(".lab-card").bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 390 and box["y"] >= 0 and box["y"] + box["height"] <= 844, index


def test_mathematics_is_set_and_money_is_not(open_page, sample_server):
    page = open_page("/roofline", at=sample_server, lang="en")
    assert page.locator(".katex-display").count() == 1 and page.locator(".katex").count() == 2
    assert "$30,000 or $25,000" in page.locator("[class*=st-key-lab-prose-]").all_inner_texts()[1]


def test_code_is_shown_as_written_and_prose_goes_on_after_it(open_page, sample_server):
    page = open_page("/roofline", at=sample_server, lang="en")
    assert page.locator(".lab-code-block").inner_text() == 'price = "$30,000"  # [[not a number]]'
    assert page.locator("code").all_inner_texts() == ["$x", "[[y]]"]


def test_progress_is_kept_in_this_browser(open_page, sample_server):
    page = open_page("/roofline", at=sample_server, lang="zh")
    kept = page.evaluate("JSON.parse(localStorage.getItem('inference-lab-progress'))")
    assert kept == {"visited": ["roofline"], "passed": []}
    mark = "getComputedStyle(document.querySelector('[class*=\"st-key-lab-nav-\"][class*=\"-roofline\"] a'), '::after').content"
    assert "○" in page.evaluate(mark)
    page.locator("[data-testid=stRadioOption]").nth(1).click()
    page.locator("[data-testid=stFormSubmitButton] button").first.click()
    page.wait_for_selector(".lab-verdict-right")
    page.get_by_test_id("stTextInputField").fill("66")
    page.locator("[data-testid=stFormSubmitButton] button").nth(1).click()
    page.wait_for_selector(".lab-passed")
    assert page.locator(".lab-verdict .katex").count() == 1, "a formula in an explanation is set, not shown as it was typed"
    page.wait_for_function("() => JSON.parse(localStorage.getItem('inference-lab-progress')).passed.length === 1")
    page.goto(sample_server.url + "/sampling?lang=zh")
    wait_idle(page)
    assert "●" in page.evaluate(mark)
    assert_clean(page)


def test_a_visit_marks_its_own_lesson_only(open_page):
    """Catches: the mark of the lesson "lab" on every page, as each link's class begins with that word."""
    page = open_page("/lab", lang="zh")
    page.wait_for_function("() => localStorage.getItem('inference-lab-progress')?.includes('lab')")
    marked = page.evaluate("""() => [...document.querySelectorAll('[class*="st-key-lab-nav-"] a')]
      .filter((a) => getComputedStyle(a, '::after').content !== 'none').map((a) => new URL(a.href).pathname)""")
    assert marked == ["/lab"]


def test_quiz_answers_survive_a_change_of_language(open_page, sample_server):
    page = open_page("/roofline", at=sample_server, lang="zh")
    page.locator("[data-testid=stRadioOption]").nth(1).click()
    page.locator("[data-testid=stFormSubmitButton] button").first.click()
    page.wait_for_selector(".lab-verdict-right")
    page.get_by_text("English", exact=True).click()
    page.wait_for_function("() => document.documentElement.lang === 'en'")
    wait_idle(page)
    assert page.locator("[data-testid=stRadioOption] input").nth(1).is_checked()
    assert page.locator(".lab-verdict-right").count() == 1


@pytest.mark.parametrize("theme,paper", [("light", "rgb(251, 250, 247)"), ("dark", "rgb(20, 23, 28)")])
def test_the_theme_follows_the_system(open_page, sample_server, theme, paper):
    page = open_page("/roofline", at=sample_server, theme=theme)
    assert page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor") == paper


def test_our_faces_are_loaded_and_only_the_slices_that_are_needed(open_page, sample_server):
    page = open_page("/roofline", at=sample_server, lang="zh")
    page.evaluate("document.fonts.ready")
    files = {url.rsplit("/", 1)[1] for url in page.requests if url.endswith(".woff2")}
    slices = {name for name in files if name.startswith(("sans-sc", "serif-sc"))}
    assert any(name.startswith("ibm-plex-sans") for name in files)
    assert 10 < len(slices) < 120, len(slices)
    for face in ("sans-sc", "serif-sc"):
        assert sum(name.startswith(face) for name in slices) >= 5, f"Chinese is not set in {face}: {sorted(slices)}"
    assert not any("SourceSans" in url for url in page.requests), "the framework's own text face is not used"


def test_nothing_of_the_framework_is_on_show(open_page, sample_server):
    page = open_page("/roofline", at=sample_server)
    for clutter in ("stAppDeployButton", "stMainMenu", "stDecoration", "stStatusWidget", "stHeaderActionElements"):
        shown = [each for each in page.get_by_test_id(clutter).all() if each.is_visible()]
        assert not shown, clutter


def test_a_keyboard_reaches_the_switch_the_chapters_and_the_numbers(open_page, sample_server):
    page = open_page("/roofline", at=sample_server, lang="en")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("""() => { const e = document.activeElement;
          return e.closest('.st-key-lab-language') ? 'switch' : e.closest('[class*="st-key-lab-nav-"]') ? 'chapter' : e.matches('.lab-n') ? 'number' : e.tagName; }"""))
    assert {"switch", "chapter", "number"} <= reached, reached
