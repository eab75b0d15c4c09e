"""The live server in Chromium, on a real service: two browsers share a batch, a learner cancels, a full queue says when,
the service is killed while it writes, and polls leave a reader alone."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from compute import trace
from compute.service import client
from tests.browser.conftest import Server, assert_clean, end, leave, sideways, start_service, start_web, visit, wait_idle

LONG = "live-server.tokens=256&live-server.temperature=1"


@pytest.fixture()
def open_live(server, chromium):
    """Opens the page at the pace of the machine, so that a test need not wait for slow motion."""
    opened = []

    def open(query: str = "", *, at=server, **look):
        page = visit(chromium, at.url, f"/live?{query}" if query else "/live", **look)
        opened.append(page)
        page.wait_for_selector(".live[data-state=live]", timeout=60_000)
        page.locator(".live [data-do=slow]").click()
        return page

    yield open
    for page in opened:
        leave(page)


def until(page, condition, seconds: float = 60) -> None:
    for _ in range(int(seconds * 10)):
        if condition():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not come about")


def lanes(page):
    return page.locator(".live .lanes canvas")


def shared(page) -> int:
    """The most sequences of one step that had one of this page's own in it."""
    return int(lanes(page).get_attribute("data-shared") or 0)


def press(page) -> None:
    page.locator(".live .send").click()


def finished(page) -> bool:
    pieces = page.locator(".live .piece")
    return pieces.count() > 0 and all(pieces.nth(i).get_attribute("data-finish") for i in range(pieces.count()))


def saved(page) -> dict:
    with page.expect_download() as waiting:
        page.locator(".live [data-do=data]").click()
    return json.loads(waiting.value.path().read_text(encoding="utf-8"))


def frames_of(page) -> list[bytes]:
    """What the server says to this page from now on."""
    heard: list[bytes] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda payload: heard.append(payload if isinstance(payload, bytes) else payload.encode())))
    page.reload()
    wait_idle(page)
    page.wait_for_selector(".live[data-state=live]")
    page.locator(".live [data-do=slow]").click()
    return heard


def test_two_browsers_share_a_batch_and_see_only_their_own_text(open_live):
    """Catches requests that wait for each other's end, a page that marks others' lanes as its own, and a prompt or text that
    reaches somebody else."""
    prompts = ("a zebra in quartz", "the walrus of onyx")
    pages = [open_live(f"{LONG}&live-server.prompt={prompt}", lang=lang) for prompt, lang in zip(prompts, ("zh", "en"))]
    heard = [frames_of(page) for page in pages]
    for attempt in range(8):  # the mini writes two hundred tokens in half a second: two presses may miss each other
        for page in pages:
            page.locator(".live .send").wait_for()
        for page in pages:
            press(page)
        for page in pages:
            until(page, lambda: finished(page), 120)
        if all(shared(page) >= 2 for page in pages):
            break
    assert all(shared(page) >= 2 for page in pages)
    for page, ours, theirs, said in zip(pages, prompts, reversed(prompts), heard):
        assert ours in page.locator(".live .texts").inner_text() and theirs not in page.locator(".stApp").inner_text()
        assert said and not any(theirs.encode() in payload for payload in said)
        run = trace.from_json(saved(page))
        requests = {life.id: life.request for life in run.sequences}
        together = [step for step in run.steps if len({requests[id] for _, id, *_ in step.lanes}) > 1]
        assert together and run.tokens == sum(lane[4] for step in run.steps for lane in step.lanes)
        assert all(len(step.lanes) <= run.slots for step in run.steps)
        assert_clean(page)


def test_the_run_replays_in_the_lesson(open_live):
    """Catches a link that leads nowhere, and a lesson that shows its own requests instead."""
    page = open_live(lang="en")
    link = page.locator("a[href*='swim-lane.source=live']")
    if not link.count():
        pytest.skip("the lesson is not there")
    link.click()
    page.wait_for_url("**/batching?**swim-lane.source=live**")
    wait_idle(page)
    assert "swim-lane.source=live" in page.url
    assert_clean(page)


def test_polls_leave_a_reader_alone(server, open_live, monkeypatch):
    """Catches a field that loses focus or letters, a page that jumps, and parts that are made anew, while news come in."""
    page = open_live(lang="zh")
    field, main = page.locator(".live .prompt"), page.locator("[data-testid=stMain]")
    parts = [page.locator(f".live {name}").first.element_handle() for name in (".prompt", ".send", ".lanes canvas", ".strip b")]
    main.evaluate("main => (main.scrollTop = 260)")
    field.focus()
    before = main.evaluate("main => main.scrollTop")
    monkeypatch.setenv("INFERENCE_LAB_COMPUTE", server.compute)
    for seed in range(6):
        client.send("从前", max_tokens=256, n=4, seed=seed, learner=f"scripted {seed}")
    field.fill("")
    page.keyboard.type("春天来了，小鸟在树上唱歌，河水", delay=60)
    until(page, lambda: int(lanes(page).get_attribute("data-lanes")) > 1)
    assert field.input_value() == "春天来了，小鸟在树上唱歌，河水" and page.evaluate("document.activeElement.shadowRoot?.activeElement?.className") == "prompt"
    assert main.evaluate("main => main.scrollTop") == before
    assert all(part.evaluate("part => part.isConnected") for part in parts)
    page.wait_for_url("**live-server.prompt=**")
    assert_clean(page)


def test_ones_own_request_is_cancelled(open_live):
    """Catches a cancel that ends nothing, or everything."""
    page = open_live(f"{LONG}&live-server.n=4", lang="en")
    for _ in range(4):
        press(page)
    until(page, lambda: page.locator(".live article").count() == 4)
    last = page.locator(".live article").first
    last.locator("button[data-do=cancel]").click()
    until(page, lambda: finished(page), 120)
    said = last.inner_text()
    assert "cancelled" in said, said
    assert "cancelled" not in page.locator(".live article").last.inner_text()
    assert_clean(page)


def test_too_many_requests_are_refused_with_the_seconds(open_live):
    """Catches a refusal without the time, and a press that is lost without a word."""
    page = open_live(f"{LONG}&live-server.n=4", lang="zh")
    refused = page.locator(".live .refused")
    page.locator(".live .ask").evaluate("form => { for (let i = 0; i < 20; i++) form.requestSubmit(); }")
    until(page, refused.is_visible)
    assert re.search(r"约 \d+ 秒后再试", refused.inner_text()), refused.inner_text()
    assert page.locator(".live .send").is_enabled()
    assert_clean(page)
    page.locator(".live [data-do=cancel]").evaluate_all("buttons => buttons.forEach((button) => button.click())")  # nobody waits for these texts
    page.wait_for_timeout(300)


def test_a_narrow_screen_and_keys(open_live):
    """Catches a page that a phone must scroll sideways, and a request that needs a mouse."""
    page = open_live(lang="en", width=390, height=844, theme="dark")
    page.locator(".live .prompt").focus()
    page.keyboard.press("Enter")
    until(page, lambda: finished(page), 60)
    assert sideways(page) <= 0
    scrub = page.locator(".live .scrub")
    scrub.focus()
    page.keyboard.press("Home")
    assert page.locator(".live [data-do=now]").is_visible()
    page.keyboard.press("End")
    assert not page.locator(".live [data-do=now]").is_visible()
    assert_clean(page)


def test_the_service_is_killed_while_it_writes_and_comes_back(open_live):
    """Catches a page that breaks, goes blank or goes on as if nothing were, and one that has to be reloaded."""
    compute, service = start_service()
    url, web = start_web(compute)
    try:
        page = open_live(f"{LONG}&live-server.n=4", at=Server(url, compute, web, service), lang="zh")
        press(page)
        until(page, lambda: int(lanes(page).get_attribute("data-steps")) > 3)
        steps = int(lanes(page).get_attribute("data-steps"))
        os.killpg(service.pid, signal.SIGKILL)
        service.wait()
        page.wait_for_selector(".live[data-state=away]", timeout=20_000)
        assert "计算服务不在" in page.locator(".live .away").inner_text() and page.locator(".live .send").is_disabled()
        assert int(lanes(page).get_attribute("data-steps")) >= steps, "the last picture stays"
        assert page.locator("[data-testid=stException]").count() == 0 and page.locator(".stApp h1").count() == 1
        service = start_service(int(compute.rpartition(":")[2]))[1]
        page.wait_for_selector(".live[data-state=live]", timeout=60_000)
        assert not page.locator(".live .away").is_visible()
        press(page)
        until(page, lambda: page.locator(".live article").count() == 1 and finished(page), 120)
        assert_clean(page)
    finally:
        end(web)
        end(service)
