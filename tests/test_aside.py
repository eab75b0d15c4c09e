"""Work beside the pages: it happens in another process, errors come back whole, and nothing is lost when the process is."""

from __future__ import annotations

import os

import pytest

from compute import aside, facts
from compute.errors import UnknownName


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


def test_a_refusal_comes_back_as_itself_and_other_failures_as_they_are(started):
    """Catches: a learner who reads of a broken process where a wrong name is to blame, and a failure that is swallowed."""
    with pytest.raises(UnknownName, match="h1000"):
        aside.call(facts.chip, "h1000")
    assert aside.call(facts.chip, "h100-sxm") == facts.chip("h100-sxm")
    with pytest.raises(ZeroDivisionError):
        aside.call(divmod, 1, 0)
    assert aside.call(len, (1, 2)) == 2


def test_without_a_start_it_runs_here():
    """Catches: a command or test that starts a process for one call."""
    assert aside.call(os.getpid) == os.getpid() and aside._worker is None
