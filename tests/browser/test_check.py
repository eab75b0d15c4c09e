"""The verification desk in Chromium: a spoilt number is red, one is recomputed, a long run is cancelled, what is shown is
taken away, and stored values stay when the service is away."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil

import pytest

from compute import precompute
from tests.browser.conftest import assert_clean, end, free_port, launch, sideways, wait_idle, wait_until_healthy

KEY = "anchor.decode_bound"


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory, server):
    """The app on a copy of the store in which one digit of one number was edited."""
    store = tmp_path_factory.mktemp("spoilt") / "precomputed.json"
    shutil.copy(precompute.STORE, store)
    shutil.copytree(precompute.STORE.parent / "precomputed", store.parent / "precomputed")
    text = store.read_text(encoding="utf-8")
    digits = json.dumps(precompute.stored()[KEY]["value"])
    at = text.index(digits, text.index(f'"{KEY}": {{')) + len(digits) - 1
    store.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :], encoding="utf-8")
    port = free_port()
    web = launch(["tests.browser.desk_server", str(store), str(port)], os.environ | {"INFERENCE_LAB_COMPUTE": server.compute})
    wait_until_healthy(f"http://127.0.0.1:{port}", web)
    yield type(server)(f"http://127.0.0.1:{port}", server.compute, web, None)
    end(web)


def desk(page):
    page.wait_for_selector(".ledger tr.number")
    return page.locator(".ledger")


def row(page, key):
    return page.locator(f".ledger tr.number[data-key='{key}']")


def count(page, verdict: str) -> int:
    return int(page.locator(f".ledger .count[data-value={verdict}] b").inner_text().replace(",", ""))


def until(page, condition, seconds: float = 60) -> None:
    for _ in range(int(seconds * 5)):
        if condition():
            return
        page.wait_for_timeout(200)
    raise AssertionError("it did not come about")


def ran(page) -> None:
    """Until no recomputation runs any more."""
    page.wait_for_selector(".ledger button[data-do=all]", timeout=120_000)


def test_an_edited_digit_is_exactly_one_red_row(spoilt, open_page):
    """Catches a page that trusts its file, one that blames the neighbours, and one that needs a recomputation to see an edit."""
    page = open_page("/check", at=spoilt, lang="en")
    desk(page)
    assert count(page, "differs") == 1 and row(page, KEY).get_attribute("data-verdict") == "differs"
    assert "edited after it was stored" in row(page, KEY).inner_text()
    page.locator(".ledger .search").fill("anchor.")
    page.wait_for_timeout(600)
    page.locator(".ledger button[data-do=all]").click()
    until(page, lambda: count(page, "agrees") > 20, 120)
    ran(page)
    reds = page.locator(".ledger tr.number[data-verdict=differs]:visible")
    assert [reds.nth(i).get_attribute("data-key") for i in range(reds.count())] == [KEY] and count(page, "differs") == 1
    stored, recomputed = (row(page, KEY).locator(f"td.{name} span").inner_text() for name in ("stored", "recomputed"))
    assert stored != recomputed and recomputed.startswith("65.3686")  # they differ in the last digit, and it is shown
    assert_clean(page)


def test_one_number_is_recomputed(server, open_page):
    """Catches a button that recomputes everything, and an outcome that never arrives."""
    page = open_page("/check", at=server, lang="zh")
    desk(page)
    before = count(page, "waiting")
    row(page, KEY).locator("button.again").click()
    until(page, lambda: row(page, KEY).get_attribute("data-verdict") == "agrees", 120)
    ran(page)
    assert count(page, "agrees") == 1 and count(page, "waiting") == before - 1
    assert "一致" in row(page, KEY).inner_text()
    page.locator(".ledger button[data-do=reset]").click()
    until(page, lambda: count(page, "agrees") == 0)
    assert_clean(page)


def test_a_cancelled_run_keeps_what_it_found(server, open_page):
    """Catches a cancel that waits for everything, and one that forgets what was done."""
    page = open_page("/check", at=server, lang="en")
    desk(page)
    page.locator(".ledger button[data-do=all]").click()
    until(page, lambda: count(page, "agrees") > 40, 180)
    assert page.locator(".ledger .progress").is_visible()
    page.locator(".ledger button[data-do=cancel]").click()
    ran(page)
    agreed, left = count(page, "agrees"), count(page, "waiting")
    assert agreed > 40 and left > 0, "the run was over before it could be cancelled"
    page.wait_for_timeout(2500)
    assert (count(page, "agrees"), count(page, "waiting")) == (agreed, left)
    assert_clean(page)


def test_what_is_shown_is_taken_away(server, open_page):
    """Catches an export of other rows than the filtered ones, and digits that were lost on the way."""
    page = open_page(f"/check?ledger.text={KEY}&ledger.kind=computed", at=server, lang="en")
    desk(page)
    assert page.locator(".ledger .search").input_value() == KEY
    page.locator(".ledger button[data-do=data]").click()
    with page.expect_download() as waiting:
        page.locator(".ledger button[data-do=json]").click()
    taken = json.loads(waiting.value.path().read_text(encoding="utf-8"))
    shown = page.locator(".ledger tr.number:visible")
    assert [each["key"] for each in taken] == [shown.nth(i).get_attribute("data-key") for i in range(shown.count())]
    ours = next(each for each in taken if each["key"] == KEY)
    assert ours["value"] == precompute.stored()[KEY]["value"] and ours["verdict"] == "waiting" and ours["how"]
    with page.expect_download() as waiting:
        page.locator(".ledger button[data-do=csv]").click()
    lines = list(csv.DictReader(io.StringIO(waiting.value.path().read_text(encoding="utf-8-sig"))))
    assert [each["key"] for each in lines] == [each["key"] for each in taken] and float(lines[0]["value"]) == taken[0]["value"]


def test_the_address_holds_the_filter(server, open_page):
    """Catches a filter that a copied link, a reload or the other language would lose."""
    page = open_page("/check", at=server, lang="en")
    desk(page)
    page.locator(".ledger .search").fill("vllm")
    page.locator(".ledger button[data-do=kind][data-value=quoted]").click()
    page.wait_for_url("**ledger.kind=quoted**")
    assert "ledger.text=vllm" in page.url
    shown = page.locator(".ledger tr.number:visible").count()
    page.reload()
    wait_idle(page)
    desk(page)
    assert page.locator(".ledger tr.number:visible").count() == shown > 5
    page.get_by_role("radio", name="中文").or_(page.get_by_text("中文", exact=True)).first.click()
    wait_idle(page)
    until(page, lambda: "引用" in page.locator(".ledger .kinds").inner_text())
    assert "ledger.kind=quoted" in page.url and page.locator(".ledger tr.number:visible").count() == shown
    assert_clean(page)


def test_without_the_service_the_stored_values_stay(spoilt, open_page):
    """Catches a page that is empty, or that calls its numbers checked, when nobody can compute."""
    port = free_port()
    web = launch(["uvicorn", "app.asgi:app", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"],
                 os.environ | {"INFERENCE_LAB_COMPUTE": "http://127.0.0.1:9"})
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}", web)
        page = open_page("/check", at=type(spoilt)(f"http://127.0.0.1:{port}", "", web, None), lang="zh")
        desk(page)
        assert "计算服务不在" in page.locator(".ledger .away").inner_text()
        assert page.locator(".ledger button[data-do=all]").is_disabled() and row(page, KEY).locator("button.again").is_disabled()
        assert row(page, KEY).get_attribute("data-verdict") == "waiting" and "65.37" in row(page, KEY).inner_text()
        assert count(page, "agrees") == 0 and count(page, "waiting") > 60
    finally:
        end(web)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_keys_and_a_narrow_screen(server, open_page, theme):
    """Catches a row that opens only by mouse, and a table that pushes a phone's page sideways."""
    page = open_page("/check?ledger.text=anchor.decode_bound", at=server, lang="en", width=390, height=844, theme=theme)
    desk(page)
    button = row(page, KEY).locator("button.open")
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert "bandwidth" in page.locator(".ledger tr.more:visible").inner_text()
    assert sideways(page) <= 0
    page.keyboard.press("Space")
    assert button.get_attribute("aria-expanded") == "false" and page.locator(".ledger tr.more:visible").count() == 0
    assert_clean(page)
