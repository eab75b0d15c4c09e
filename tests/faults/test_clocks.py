"""The machine's clock is set, forward or back. Durations, leases, limits and back-offs go by clocks that nobody sets."""

from __future__ import annotations

import ast
import re
from datetime import datetime, timedelta, timezone

import pytest

from app import notes
from tests.conftest import ROOT

# Who may ask what time of day it is: for a date that is shown or written down, never for a difference.
PYTHON = {
    "app/notes.py": "when a note was written; the rate limit goes by it and passes over notes of the future, see below",
    "compute/calibrate.py": "the date in a file", "compute/precompute.py": "the date in a file", "compute/engine/machine.py": "the date in a file",
    "compute/meter/loads.py": "when a run began", "compute/meter/wire.py": "the network's time stamps are of this clock; turned into the other one, see tests/meter/test_client.py",
    "compute/service/machine.py": "the date of a result", "compute/service/openai.py": "`created`, which the protocol wants",
}  # fmt: skip
BROWSER = {
    "components/live_server/history.js": "the time of day at the axis", "components/live_server/page.js": "the time of day in a file's name",
}
WALL = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}


def ours(ending: str) -> list[str]:
    found = [str(path.relative_to(ROOT)) for top in ("app", "compute", "components") for path in (ROOT / top).rglob(f"*.{ending}")]
    assert len(found) > 20
    return [*found, *(["run.py"] if ending == "py" else [])]


def asks_the_time_of_day(name: str) -> bool:
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".js"):
        return bool(re.search(r"Date\.now|new Date\(\)", text))
    return bool(re.search(r"\b(time|now|utcnow|today|time_ns)\(", text)) and any(isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today", "time", "time_ns")
               and (getattr(node.value, "id", getattr(node.value, "attr", "")), node.attr) in WALL for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("ending,known", [("py", PYTHON), ("js", BROWSER)])
def test_nobody_measures_by_the_time_of_day(ending, known):
    """Catches: a time-out, a lease or a limit that a clock set by an hour ends at once or not for an hour. Whoever needs the time of day
    stands above with the reason."""
    assert {name for name in ours(ending) if asks_the_time_of_day(name)} == set(known)


def test_a_clock_that_was_set_back_keeps_nobody_from_writing(tmp_path):
    """Catches: a class that has written too fast for an hour, because the clock went back by one."""
    store, now = notes.Store(notes.Sqlite(tmp_path / "notes.sqlite")), datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
    for _ in range(notes.MOST_A_MINUTE):
        store.add("a" * 32, "roofline", "zh", "before", now)
    with pytest.raises(notes.NotKept, match="too_fast"):
        store.add("a" * 32, "roofline", "zh", "too many", now)
    for n in range(notes.MOST_A_MINUTE):
        store.add("a" * 32, "roofline", "zh", "after", now - timedelta(hours=1))
    with pytest.raises(notes.NotKept, match="too_fast"):
        store.add("a" * 32, "roofline", "zh", "too many again", now - timedelta(hours=1))
    assert [note.text for note in store.of("a" * 32)] == ["after"] * notes.MOST_A_MINUTE + ["before"] * notes.MOST_A_MINUTE
