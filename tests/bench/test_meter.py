"""The meter's own benchmark, small: who listens hears everything, and what is kept is what the page reads."""

import json
import subprocess
import sys

import pytest

from compute import precompute
from compute.meter import bench
from tests.service.process import ROOT


@pytest.mark.parametrize("together", [True, False])
def test_both_listeners_hear_every_chunk_after_it_was_sent(together):
    """Catches streams that are taken for each other, chunks that are lost, and an arrival before its sending: all times are on one clock."""
    for listen in (bench.by_the_meter, bench.by_a_bare_loop):
        with bench.clock(3, 9, 0.01, int(together)) as (port, lines):
            heard = dict(listen(port, 3, 9, 0.01))
            sent = {line["asked"]: line["sent"] for line in (json.loads(lines.get(timeout=60)) for _ in range(3))}
        assert heard.keys() == sent.keys() and len(heard) == 3
        for name, times in sent.items():
            assert len(times) == len(heard[name]) == 9
            gaps = [later - earlier for earlier, later in zip(heard[name], heard[name][1:])]
            assert all(gap >= 0 for gap in gaps)
            if listen is bench.by_a_bare_loop:  # the meter's times have another zero
                assert all(left <= came for left, came in zip(times, heard[name]))


def test_an_error_is_the_difference_of_two_gaps():
    """Catches a constant delay counted as an error, and lost chunks passed over."""
    assert list(bench.gap_errors([0.0, 1.0, 3.0], [5.0, 6.0, 8.5])) == pytest.approx([0.0, 0.5])
    with pytest.raises(ValueError):
        list(bench.gap_errors([0.0, 1.0], [5.0, 6.0, 7.0]))


def test_what_is_kept_is_a_report_and_its_figures(tmp_path, monkeypatch):
    """Catches figures of another run than the report's, a file that the page cannot read, and a number without conditions."""
    monkeypatch.setattr(precompute, "STORE", tmp_path / "precomputed.json")
    ran = subprocess.run([sys.executable, "-m", "compute", "bench", "meter", "--streams", "2", "--chunks", "9", "--rounds", "1", "--json"],
                         cwd=ROOT, capture_output=True, text=True, timeout=300)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert [one["together"] for one in json.loads(ran.stdout)] == [True, False]
    found = [bench.clocked(2, 9, 0.01, True, 1)]
    own, alone = (bench.compared(bench.replace(bench.OWN, concurrency=at_a_time, requests=4, output_tokens=5)) for at_a_time in (2, 1))
    assert own.tokens[0] == own.tokens[1] == 20 and own.way is None
    assert alone.way[0] > 0 and alone.way[1] >= 0, "a request reached the engine before it was sent"
    file = bench.write(found, own, alone, "python -m compute bench meter --own --write")
    kept = json.loads(file.read_text("utf-8"))
    entries = precompute.timings(tmp_path / "measured")
    assert kept["report"] == own.report and kept["report"]["endpoint"]["name"] == "own"
    assert entries["serving.meter.own.ttft.p50"]["value"] == own.report["summary"]["ttft"]["p50"]
    assert all(entry["conditions"] and entry["says"]["zh"] for entry in entries.values()) and len(entries) == 12
