"""A lesson taught from the keyboard, and a class that follows, in two real browsers. No compute service stands behind either."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from app import lesson
from tests.browser.conftest import Server, assert_clean, end, start_web, wait_idle

PASSWORD = "apple"
LESSON = """+++
title = "{title}"
question = "{title}?"
minutes = 5
prerequisites = []
hero = "[[=anchor.compute_share | %]]"
hero_caption = "{title}."
takeaway = "{title}."
+++

Before.

## One

::roofline-placer batch=1

**Seen**: it is there.

## Two

After.
"""


def write_lessons(folder: Path, *slugs: str) -> Path:
    for n, slug in enumerate(slugs, 1):
        folder.joinpath(slug).mkdir(parents=True)
        for lang in ("zh", "en"):
            folder.joinpath(slug, f"{lang}.md").write_text(LESSON.format(title=f"{slug} {lang}"))
    folder.joinpath("order.toml").write_text("".join(f'[[lesson]]\nslug = "{slug}"\nnumber = "{n}"\n' for n, slug in enumerate(slugs, 1)))
    return folder


@pytest.fixture(scope="module")
def school(tmp_path_factory):
    """A server of its own, since a server has one room, with two short lessons and a password; nobody answers at its compute address."""
    lessons = write_lessons(tmp_path_factory.mktemp("lessons"), "first", "second")
    url, web = start_web("http://127.0.0.1:9", INFERENCE_LAB_LESSONS=str(lessons), INFERENCE_LAB_TEACHER=PASSWORD)
    yield Server(url, "http://127.0.0.1:9", web, None)
    end(web)


def step(page) -> str:
    return parse_qs(urlsplit(page.url).query).get("step", ["opening"])[0]


def drawn(page) -> None:
    """As wait_idle, on a step that may have no heading."""
    page.wait_for_timeout(200)
    page.wait_for_selector(".stApp[data-test-connection-state='CONNECTED'][data-test-script-state='notRunning']")


def test_a_lesson_is_taught_from_the_keyboard_alone(open_page):
    """Catches: a step that keys do not reach or leave, a step without anything to see, type too small for a room."""
    page = open_page("/roofline", lang="zh", width=1440, height=900)
    page.wait_for_function("() => window.__labPresentKey")
    page.keyboard.press("p")
    page.wait_for_function("() => document.documentElement.classList.contains('lab-stage')")
    assert page.locator("[data-testid=stSidebar]").is_hidden()
    page.keyboard.press("h")
    assert page.locator("dialog[open] dt").count() > 10
    page.keyboard.press("Escape")
    seen, stages = [], 0
    for _ in range(200):
        now = step(page)
        if now not in seen:
            seen.append(now)
            look = page.evaluate("""() => {
              const big = [...document.querySelectorAll('[data-testid="stMainBlockContainer"] :is(p, h1, h2, [class*="st-key-instrument-"])')]
                .filter((each) => each.checkVisibility({ visibilityProperty: true }) && each.getBoundingClientRect().height > 12);
              const p = big.find((each) => each.matches('[class*="st-key-lab-prose-"] [data-testid="stMarkdownContainer"] > p'));
              return { shown: big.length, px: p ? parseFloat(getComputedStyle(p).fontSize) * p.currentCSSZoom : 99,
                       stage: big.some((each) => each.matches('[class*="st-key-instrument-"]')) };
            }""")
            assert look["shown"] and look["px"] >= 24, (now, look)
            stages += look["stage"]
        page.keyboard.press("PageDown")
        page.wait_for_timeout(30)
        if "/roofline" not in page.url:
            break
    assert "/roofline" not in page.url, f"the lesson did not end: {seen}"
    instruments = sum(isinstance(part, lesson.Instrument) for part in lesson.load("roofline", "zh").parts)
    assert len(seen) > 20 and stages == instruments and seen[-1].startswith("quiz"), (stages, seen)
    page.wait_for_function("() => document.querySelector('.lab-count')?.textContent.startsWith('第 1 步')")
    wait_idle(page)
    page.keyboard.press("PageUp")  # the last step of the lesson before
    page.wait_for_function("() => location.pathname === '/roofline'")
    drawn(page)
    page.wait_for_function("() => /step=quiz/.test(location.search)")
    page.keyboard.press("l")
    page.wait_for_function("() => document.documentElement.lang === 'en'")
    drawn(page)
    assert step(page) == seen[-1]
    page.reload()
    drawn(page)
    page.wait_for_function(f"() => document.querySelector('.lab-count')?.textContent.includes('Step {len(seen)} of')")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !/present=1|step=/.test(location.search)")
    assert page.locator("html.lab-stage").count() == 0
    wait_idle(page)
    assert_clean(page)


def test_a_class_follows_until_it_lets_go(open_page, school):
    """Catches: a follower who is left behind, is dragged back after letting go, or is never told what happens; a teacher who
    mistypes the password and is not asked again."""
    learner = open_page("/follow", at=school, lang="en", width=1200, height=900)
    learner.wait_for_function("() => document.querySelector('.lab-room')?.textContent.includes('Waiting for the teacher')")
    teacher = open_page("/first?present=1", at=school, lang="zh", width=1440, height=900)
    for password, answer in (("pear", "dialog[open] .lab-warning"), (PASSWORD, "#lab-stage:not(:has(dialog[open]))")):
        teacher.wait_for_selector("dialog[open] input:focus")
        teacher.keyboard.type(password)
        teacher.keyboard.press("Enter")
        teacher.wait_for_selector(answer, state="attached")
    learner.wait_for_function("() => location.pathname === '/first'")
    wait_idle(learner)
    assert "lang=en" in learner.url and "present" not in learner.url

    teacher.wait_for_function("() => document.querySelector('.lab-room')?.textContent.includes('课堂已连上')")
    rival = learner.evaluate("""(password) => fetch('room', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ do: 'take', password }) })
      .then((reply) => reply.json())""", PASSWORD)
    assert rival == {"refused": "busy"}, "somebody else of the class cannot take the room"

    for _ in range(60):  # to the first roofline, by keys
        if teacher.locator("[class*=st-key-instrument-roofline-placer]").first.evaluate("(e) => e.checkVisibility({visibilityProperty: true})"):
            break
        teacher.keyboard.press("PageDown")
        teacher.wait_for_timeout(40)
    there = step(teacher)
    visible = "(e) => e.checkVisibility({visibilityProperty: true})"
    began = time.monotonic()
    learner.wait_for_function("() => document.querySelector('[class*=st-key-instrument-roofline-placer]')?.checkVisibility({visibilityProperty: true})")
    followed = time.monotonic() - began
    assert learner.locator(".st-key-lab-prose-opening").evaluate(visible) is False

    thumb = teacher.locator(".st-key-controls-roofline-placer input[type=range]").first
    thumb.focus()
    thumb.press("ArrowRight")
    teacher.wait_for_function("() => /roofline-placer\\.[a-z]+=/.test(location.search)")
    setting = [part for part in urlsplit(teacher.url).query.split("&") if part.startswith("roofline-placer.")]
    began = time.monotonic()
    learner.wait_for_function("(s) => location.search.includes(s)", arg=setting[0])
    set_ = time.monotonic() - began
    assert step(teacher) == there, "an arrow in a slider is the slider's"
    teacher.keyboard.press("Escape")
    teacher.keyboard.press("r")
    teacher.wait_for_function("() => !/roofline-placer\\./.test(location.search)", timeout=5000)
    learner.wait_for_function("() => !/roofline-placer\\./.test(location.search)")

    teacher.keyboard.press("End")
    for _ in range(20):
        teacher.keyboard.press("PageDown")
        teacher.wait_for_timeout(40)
        if "/first" not in teacher.url:
            break
    second = urlsplit(teacher.url).path
    assert second == "/second"
    learner.wait_for_function("(path) => location.pathname === path", arg=second)
    drawn(teacher)
    teacher.keyboard.press("Home")   # a busy browser may have turned once more, before the address told
    wait_idle(teacher)
    wait_idle(learner)

    learner.get_by_role("button", name="Look by myself").click()
    learner.wait_for_function("() => getComputedStyle(document.querySelector('[data-testid=stSidebar]')).display !== 'none'")
    wait_idle(teacher)
    teacher.keyboard.press("PageUp")
    teacher.wait_for_function("() => location.pathname === '/first'")
    learner.wait_for_timeout(1500)
    assert urlsplit(learner.url).path == second, "who lets go stays"
    learner.get_by_role("button", name="Follow again").click()
    learner.wait_for_function("() => location.pathname === '/first'")
    teacher.keyboard.press("p")
    learner.wait_for_function("() => document.querySelector('.lab-room')?.textContent.includes('The teacher has stopped')")
    wait_idle(learner)
    for page in (teacher, learner):
        assert_clean(page)
    print(f"step after {followed:.2f} s, setting after {set_:.2f} s")
