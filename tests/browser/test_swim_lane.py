"""The swim lanes in a real Chromium: pointing at a request, the step in the address, and the live server's trace in the lesson."""

import re
import time

from playwright.sync_api import expect

from compute.service import client
from tests.browser.conftest import assert_clean, wait_idle

LESSON = "/batching?swim-lane.guess=skip"
SECONDS = 30_000  # ms


def instrument(page):
    found = page.locator("[class*='st-key-instrument-swim-lane']").first
    found.locator("canvas[data-picture]").wait_for(timeout=2 * SECONDS)
    found.locator("canvas[data-picture]").scroll_into_view_if_needed()
    return found


def test_a_click_follows_a_request_on_both_sides(open_page):
    """Catches: a pointer that reads another lane or step than was drawn, a highlight that the text equivalent does not know."""
    page = open_page(LESSON, lang="en")
    canvas = instrument(page).locator("canvas[data-picture]")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 260, box["y"] + 106)  # the third slot of the upper panel, early in the run
    assert canvas.evaluate("canvas => canvas.style.cursor") == "pointer"
    page.mouse.click(box["x"] + 260, box["y"] + 106)
    expect(canvas).to_have_attribute("aria-label", "Step 1163. static batching: all written at step 1163, 32.6% in use. continuous batching: all written at step 453, "
                                     "83.8% in use. Request 3: a prompt of 12, 189 tokens written. static batching: waits 0 steps, done at step 189. "
                                     "continuous batching: waits 0 steps, done at step 189. ", timeout=SECONDS)  # fmt: skip
    page.mouse.click(box["x"] + 260, box["y"] + 106)
    page.mouse.move(0, 0)
    assert "Request" not in canvas.get_attribute("aria-label")
    assert_clean(page)


def test_the_step_is_in_the_address_and_the_same_after_going_back(open_page):
    """Catches: a picture that cannot be linked to, and one that depends on the way there."""
    page = open_page(f"{LESSON}&swim-lane.t=150", width=390, height=844)
    canvas = instrument(page).locator("canvas[data-picture]")
    said, seen = canvas.get_attribute("aria-label"), canvas.evaluate("canvas => canvas.toDataURL()")
    assert said.startswith("第 151 步。静态批处理：8 个槽位里 1 个在忙")
    player = instrument(page).locator(".player")
    player.focus()
    page.keyboard.press("End")
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => new URL(location).searchParams.get('swim-lane.t') === '3'", timeout=SECONDS)
    wait_idle(page)
    page.go_back()
    page.wait_for_function("() => new URL(location).searchParams.get('swim-lane.t') === '150'", timeout=SECONDS)
    expect(canvas).to_have_attribute("aria-label", said, timeout=SECONDS)
    assert canvas.evaluate("canvas => canvas.toDataURL()") == seen


def test_going_back_at_once_after_two_quick_steps(open_page):
    """Catches a step that the address asks for and the player takes for its own word of a moment ago: they disagree then."""
    page = open_page(f"{LESSON}&swim-lane.t=150", lang="en")
    player = instrument(page).locator(".player")
    at = "(t) => new URL(location).searchParams.get('swim-lane.t') === String(t)"
    for t in (151, 152, 153):
        player.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(at, arg=t, polling=2, timeout=SECONDS)
        page.keyboard.press("ArrowRight")
        page.evaluate(f"""(t) => new Promise((done) => {{
          const look = () => (({at})(t + 1) ? done(history.back()) : setTimeout(look, 2));
          look();
        }})""", t)
        page.wait_for_function(at, arg=t, timeout=SECONDS)
        page.wait_for_timeout(700)
        wait_idle(page)
        assert player.get_attribute("data-t") == str(t) and page.evaluate(at, t)


def test_the_live_servers_trace_replays_in_the_lesson(open_page, server, monkeypatch):
    """Catches: a record of the engine that the lesson's player cannot draw."""
    monkeypatch.setenv("INFERENCE_LAB_COMPUTE", server.compute)
    for number in range(3):
        client.send("小明把苹果给了", max_tokens=12 + number, learner=f"learner-{number}")
    for _ in range(100):
        if sum(life["finished"] is not None for life in client.live()["sequences"]) >= 3:
            break
        time.sleep(0.2)
    page = open_page(f"{LESSON}&swim-lane.source=live")
    lanes = instrument(page)
    page.get_by_role("button", name="取来实时服务的记录").first.click()
    expect(lanes.locator("canvas[data-picture]")).to_have_attribute("aria-label", re.compile(r"^第 \d+ 步。分块预填充：第 \d+ 步已全部写完，利用率 [\d.]+%。$"), timeout=SECONDS)
    expect(lanes.locator(".lab-says")).to_contain_text("实时服务最近的", timeout=SECONDS)
    assert_clean(page)
