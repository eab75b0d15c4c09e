"""Work beside the pages: it happens in another process, errors come back whole, and nothing is lost when the process is."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time

import pytest

import components
from compute import aside, facts
from compute.errors import TimedOut, UnknownName


@pytest.fixture()
def started():
    aside.start()
    yield
    aside.stop()


def test_a_call_runs_in_another_process_and_again_after_that_died(started):
    """Catches: work that still holds the pages up, and a page that fails, or never gets help again, once the process was killed."""
    first = aside.call(os.getpid)
    assert first not in (os.getpid(), None) and aside.call(os.getpid) == first, "one process for all calls"
    os.kill(first, 9)
    assert aside.call(os.getpid) in (os.getpid(), aside.call(os.getpid)), "answered nevertheless"
    assert aside.call(os.getpid) not in (os.getpid(), first)


@pytest.mark.parametrize("widget", ["chunked-prefill", "fixed-state", "load-lab"])
def test_what_simulates_for_long_does_so_beside(widget, monkeypatch):
    """Catches: an instrument whose one move holds every other learner's page up."""
    sent = []
    monkeypatch.setattr(aside, "call", lambda function, *arguments: sent.append(pickle.loads(pickle.dumps(function))) or function(*arguments))
    found = components.widget(widget)
    found.run(found.Params())
    assert sent


def test_a_refusal_comes_back_as_itself_and_other_failures_as_they_are(started):
    """Catches: a learner who reads of a broken process where a wrong name is to blame, and a failure that is swallowed."""
    with pytest.raises(UnknownName, match="h1000"):
        aside.call(facts.chip, "h1000")
    assert aside.call(facts.chip, "h100-sxm") == facts.chip("h100-sxm")
    with pytest.raises(ZeroDivisionError):
        aside.call(divmod, 1, 0)
    assert aside.call(len, (1, 2)) == 2


def test_a_call_that_never_ends_is_told_and_the_next_one_is_answered(started, monkeypatch):
    """Catches: a process that hangs, and with it everybody who comes to the same page, for ever."""
    first = aside.call(os.getpid)
    with monkeypatch.context() as hasty, pytest.raises(TimedOut, match="sleep"):
        hasty.setattr(aside, "PATIENCE_SECONDS", 0.3)
        aside.call(time.sleep, 60)
    assert aside.call(os.getpid) not in (first, os.getpid())


def test_a_server_that_stops_waits_for_no_call(started):
    """Catches: a web server that cannot be ended while the process beside it hangs."""
    os.kill(aside.call(os.getpid), signal.SIGSTOP)
    heard = []
    waiting = threading.Thread(target=lambda: heard.append(aside.call(os.getpid)), daemon=True)
    waiting.start()
    while not aside._turn.locked():
        time.sleep(0.01)
    began = time.monotonic()
    aside.stop()
    waiting.join(10)
    assert heard == [os.getpid()] and time.monotonic() - began < 10, "answered here, and nobody waited for the end of patience"


def test_without_a_start_it_runs_here():
    """Catches: a command or test that starts a process for one call."""
    assert aside.call(os.getpid) == os.getpid() and aside._worker is None
