"""One at a time and in order; who waits for somebody else does not keep the others waiting."""

from __future__ import annotations

import threading
import time

import pytest

from compute import turns


def run(*works) -> None:
    """Each in a thread of its own, begun in order."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive(), "it waits for ever"


def test_one_at_a_time_in_the_order_of_asking():
    """Catches: two pages made at once, and a late one that goes first."""
    seen, first_is_in = [], threading.Event()

    def work(number: int):
        with turns.taken(), turns.taken():
            seen.append(number)
            assert turns.held()
            if number == 0:
                first_is_in.wait(5)
            seen.append(number)

    def open_later():
        time.sleep(0.05)
        first_is_in.set()

    run(lambda: work(0), lambda: work(1), lambda: work(2), open_later)
    assert seen == [0, 0, 1, 1, 2, 2] and not turns.held() and turns._turn is None


def wait_for_another():
    with turns.lent():
        time.sleep(0.02)


@pytest.mark.parametrize("let_go", [turns.pass_on, lambda: list(turns.waiting(iter((1, 2)))), wait_for_another])
def test_others_go_on_meanwhile(let_go):
    """Catches: a learner's page that stands still while another one's run waits for the service."""
    seen, other_waits = [], threading.Event()

    def page():
        with turns.taken():
            seen.append("page begins")
            other_waits.wait(5)
            time.sleep(0.05)
            let_go()
            time.sleep(0.05)
            seen.append("page ends")

    def change():
        other_waits.set()
        with turns.taken():
            seen.append("change")

    run(page, change)
    assert seen == ["page begins", "change", "page ends"]


def test_a_failure_gives_the_turn_back():
    """Catches: a page with an error that stops the whole course."""
    with pytest.raises(ZeroDivisionError), turns.taken():
        1 / 0
    with pytest.raises(ZeroDivisionError), turns.taken(), turns.lent():
        1 / 0
    assert not turns.held() and turns._turn is None


def test_a_page_that_hangs_loses_its_turn(monkeypatch):
    """Catches: one page that never ends and stops the whole course; a turn that is given twice when it ends after all."""
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 0.2)
    seen, others_are_done = [], threading.Event()

    def hung():
        with turns.taken():
            others_are_done.wait(5)
            turns.pass_on()
        seen.append("hung")

    def page(name: str):
        with turns.taken():
            time.sleep(0.05)
            seen.append(name)
        if name == "second":
            others_are_done.set()

    run(hung, lambda: page("first"), lambda: page("second"))
    assert seen == ["first", "second", "hung"] and turns._turn is None and not turns._gates


def test_a_long_queue_is_no_reason_to_push_in(monkeypatch):
    """Catches: patience with the queue in place of patience with the one who has the turn."""
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 0.2)
    seen, now = [], []

    def page(number: int):
        with turns.taken():
            now.append(number)
            time.sleep(0.1)
            seen.append(tuple(now))
            now.remove(number)

    run(*(lambda number=number: page(number) for number in range(6)))
    assert seen == [(number,) for number in range(6)]
