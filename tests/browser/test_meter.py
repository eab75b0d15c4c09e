"""The endpoint meter in Chromium, on a real service that measures itself: half a run is drawn, the whole one is right, one is cancelled,
the service is killed in the middle. How fast anything is plays no part; who waits, waits long."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request

import pytest
from playwright.sync_api import expect

from components.endpoint_meter import WIDGET, Params
from tests.browser.conftest import Server, assert_clean, end, leave, start_service, start_web, visit, wait_idle

SECONDS = 120_000  # ms that a busy machine may take
# Seconds also on a fast machine: what is said in the middle of a run has to be seen there.
SMALL = "endpoint-meter.requests=12&endpoint-meter.concurrency=3&endpoint-meter.output_tokens=128&endpoint-meter.prompt_tokens=16"
LONG = "endpoint-meter.requests=200&endpoint-meter.concurrency=2&endpoint-meter.output_tokens=128"
LESSON = '+++\ntitle = "Serving"\nquestion = "How fast?"\nminutes = 1\nprerequisites = []\nhero = "[[=anchor.requests_4k]]"\nhero_caption = "."\ntakeaway = "."\n+++\n\n::endpoint-meter\n'


@pytest.fixture(scope="module")
def lessons(tmp_path_factory) -> str:
    """A course of one page with nothing but the meter."""
    folder = tmp_path_factory.mktemp("lessons")
    (folder / "order.toml").write_text('[[lesson]]\nslug = "serving"\nnumber = "5"\n')
    (folder / "serving").mkdir()
    for lang in ("zh", "en"):
        (folder / "serving" / f"{lang}.md").write_text(LESSON)
    return str(folder)


@pytest.fixture(scope="module")
def course(server, lessons):
    url, web = start_web(server.compute, INFERENCE_LAB_LESSONS=lessons)
    yield Server(url, server.compute, web, None)
    end(web)


@pytest.fixture()
def open_meter(chromium, course):
    opened = []

    def open(query: str = "", *, at=course, **look):
        page = visit(chromium, at.url, f"/serving?{query}", **look)
        opened.append(page)
        expect(meter(page).locator("svg[data-picture]")).to_have_attribute("aria-label", re.compile("."), timeout=SECONDS)
        page.evaluate("""() => {   // every sentence that stood there, however shortly
            window.said = [];
            const look = () => { for (const e of document.querySelectorAll('.lab-says')) if (window.said.at(-1) !== e.textContent) window.said.push(e.textContent); };
            new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
        }""")
        return page

    yield open
    for page in opened:
        leave(page)


def meter(page):
    return page.locator(".st-key-instrument-endpoint-meter")


def says(page):
    return meter(page).locator(".lab-says")


def run_button(page):
    return page.locator(".st-key-endpoint-meter-run button")


def stop_button(page):
    return page.locator(".st-key-endpoint-meter-stop button")


def slider(page, field: str):
    return page.locator(f".st-key-endpoint-meter-{field} input[type=range]")


def mark(page):
    return meter(page).locator(".mark")


def rows(page) -> list[dict]:
    meter(page).locator("button[data-id=data]").click()
    with page.expect_download() as waiting:
        meter(page).locator("button[data-id=json]").click()
    return json.loads(waiting.value.path().read_text(encoding="utf-8"))


def test_it_measures_its_own_engine_while_one_looks(open_meter):
    """Catches: a picture that stands still until the end, a plan of the address that is not the one measured, requests that are lost or
    counted twice, figures that do not belong to the requests that are downloaded."""
    page = open_meter(SMALL, lang="en")
    expect(mark(page)).to_have_attribute("data-mark", "replay")
    expect(says(page)).to_contain_text("This plan was not measured yet")
    run_button(page).click()
    expect(says(page)).to_contain_text("of 12 make it", timeout=SECONDS)
    expect(stop_button(page)).to_have_count(0, timeout=SECONDS)
    wait_idle(page)
    assert any(re.match(r"Warming up|Measuring: \d+ of 12", said) for said in page.evaluate("window.said")), page.evaluate("window.said")
    expect(mark(page)).to_have_attribute("data-mark", "live")
    assert says(page).inner_text().startswith("The lesson’s own engine (mini-256), 3 requests at a time, 12 in all")
    assert "no errors" in meter(page).locator(".lab-figures").inner_text() and meter(page).locator(".lab-ledger").count() == 0
    found = rows(page)
    assert sorted(row["id"] for row in found) == list(range(12)) and not any(row["error"] for row in found)
    assert all(row["sent_seconds"] < row["first_seconds"] <= row["last_seconds"] and row["output_tokens"] <= 128 and row["concurrency"] == 3 for row in found)
    assert all(row["chunk_seconds"] == sorted(row["chunk_seconds"]) and len(row["chunk_seconds"]) >= 2 for row in found)
    at_once = [sum(other["sent_seconds"] <= row["sent_seconds"] < other["last_seconds"] for other in found) for row in found]
    assert max(at_once) <= 3, "a closed loop never has more under way"

    slider(page, "tpot_target").press("End")
    slider(page, "ttft_target").press("End")
    expect(says(page)).to_contain_text("12 of 12 make it (100%)", timeout=SECONDS)
    expect(mark(page)).to_have_attribute("data-mark", "live")
    assert_clean(page)


def test_a_cancelled_run_keeps_what_was_measured(open_meter, course):
    """Catches: a cancel that waits for the end, that throws away what was measured, that goes on saying “measuring”, or that leaves the
    measuring process at work."""
    page = open_meter(LONG, lang="zh", width=390, height=844, theme="dark")
    run_button(page).click()
    expect(says(page)).to_have_text(re.compile(r"正在测，200 个里结束了 [1-9]\d* 个"), timeout=SECONDS)
    expect(mark(page)).to_have_attribute("data-mark", "live")
    stop_button(page).click()
    expect(says(page)).to_have_text(re.compile(r"^在第 [1-9]\d* 个请求之后取消了（原定 200 个）"), timeout=SECONDS)
    expect(stop_button(page)).to_have_count(0, timeout=SECONDS)
    expect(mark(page)).to_have_attribute("data-mark", "live")
    ended = int(re.search(r"在第 (\d+) 个", says(page).inner_text())[1])
    assert 0 < ended < 200 and len(rows(page)) == ended
    for _ in range(300):
        with urllib.request.urlopen(f"{course.compute}/healthz", timeout=10) as reply:
            if not json.load(reply)["running"]:
                break
        page.wait_for_timeout(200)
    else:
        raise AssertionError("the service still measures, for nobody")
    assert_clean(page)


def test_the_service_is_killed_while_it_measures(open_meter, lessons):
    """Catches: a traceback, a progress bar for ever, half a run under a notice that stored ones are shown, a page that waits for a
    service that is not there."""
    compute, service = start_service()
    url, web = start_web(compute, INFERENCE_LAB_LESSONS=lessons)
    away = WIDGET.words("en")("live.away")
    try:
        page = open_meter(LONG, at=Server(url, compute, web, service), lang="en")
        run_button(page).click()
        expect(says(page)).to_have_text(re.compile(r"Measuring: \d+ of 200"), timeout=SECONDS)
        os.killpg(service.pid, signal.SIGKILL)
        service.wait()
        expect(meter(page).locator(".lab-complaint[role=alert]")).to_contain_text("the compute service is away", timeout=SECONDS)
        expect(meter(page).get_by_text(away)).to_be_visible(timeout=SECONDS)
        expect(stop_button(page)).to_have_count(0)
        expect(mark(page)).to_have_attribute("data-mark", "replay")
        stored = f"{Params().concurrency} requests at a time, {Params().requests} in all"
        expect(says(page)).to_contain_text(stored)

        page.goto(f"{url}/serving?lang=en")
        wait_idle(page)
        expect(meter(page).get_by_text(away)).to_be_visible(timeout=SECONDS)
        assert run_button(page).count() == 0 and stored in says(page).inner_text() and "not measured yet" not in says(page).inner_text()
        expect(mark(page)).to_have_attribute("data-mark", "replay")
        assert_clean(page)
    finally:
        end(web)
        end(service)
