"""The driver: it moves controls of real pages over Streamlit's protocol and notices what goes wrong; the report keeps its shape."""

from __future__ import annotations

import asyncio
import json

import pytest

from compute import precompute
from tests.load import __main__ as command
from tests.load import report, servers
from tests.load.learner import Deed, Log

HASTE = (0.02, 0.05)


def test_two_learners_move_controls_and_nothing_goes_wrong():
    """Catches: a page that fails, a control whose move does not reach its instrument, a guess that redraws the whole page, and a driver
    that counts nothing."""
    with servers.started(servers.OURS, INFERENCE_LAB_COMPUTE="embedded") as (url, web):
        log = asyncio.run(command.attend(url, 2, 60, seed=1, think=HASTE, lessons=["sampling", "speculative"], enough=20))
        assert servers.cpu_seconds(web) > 0 and servers.resident_bytes(web) > 50e6 and len(servers.children(web)) == 1
    assert not log.errors, log.errors
    moved = {deed.what for deed in log.deeds if deed.kind == "change"}
    assert len(moved) >= 5, f"only {moved}"
    messages = {kind: [deed.messages for deed in log.deeds if deed.kind == kind] for kind in ("open", "answer")}
    assert messages["answer"] and max(messages["answer"]) < min(messages["open"]) / 2, messages
    assert all(deed.messages > 5 and deed.size > 1000 and deed.milliseconds > 0 for deed in log.deeds), "an answer without a picture"


def test_a_failing_page_is_noticed():
    """Catches: a driver that takes the sentence of a failed script for a page."""
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    from app.lesson import words
    from tests.load.learner import Learner

    log, said = Log(), ForwardMsg()
    said.delta.new_element.html.body = f'<p class="lab-refusal" role="alert">{words("en")("script_error")}</p>'
    learner = Learner("", [], "en", None, log)
    learner._look(said, Deed("change", "grid.bits", 0, 0, 0, 0))
    said.delta.new_element.exception.message = "list index out of range"
    learner._look(said, Deed("open", "roofline", 0, 0, 0, 0))
    first, second = log.errors
    assert "grid.bits" in first and "Something went wrong" in first and "list index" in second


def test_nobody_there_is_an_error_and_no_loop():
    """Catches: a refused connection that counts as a fast answer."""
    log = asyncio.run(command.attend(f"127.0.0.1:{servers._free_port()}", 1, 0.1, seed=1, think=HASTE))
    assert log.errors.total() >= 1 and not log.deeds and "connection" in next(iter(log.errors))


def test_the_processor_is_told_for_each_kind_of_deed():
    """Catches: a mean over the wrong deeds, seconds for milliseconds, an error that is not told."""
    log = Log([Deed("change", "grid.bits", 0, 20, 30, 90_000, processor=0.01), Deed("change", "grid.bits", 0, 40, 30, 90_000, processor=0.03), Deed("open", "roofline", 0, 300, 200, 500_000, processor=0.11)])
    log.errors["open roofline: page not found"] += 1
    change, opened, everything, error = report.alone(log).splitlines()
    assert change.split() == "change n=2: 20 ms of the processor, 20 ms by the clock at the median, 30 messages, 90 kB".split()
    assert opened.startswith("open ") and "n=1: 110 ms" in opened and everything.startswith("all ") and "n=3: 50 ms" in everything
    assert error.split() == ["1", "×", "open", "roofline:", "page", "not", "found"]


@pytest.fixture()
def found() -> dict:
    log = Log([Deed("change", "grid.bits", 0, ms, 30, 50_000) for ms in range(1, 101)] + [Deed("open", "roofline", 0, 500, 200, 400_000)])
    samples = [report.Sample(t, 300_000_000 + 1_000_000 * t, 400_000_000) for t in range(60)]
    return {"conditions": {"cpu": "x", "seed": 1, "minutes": 1}, "blocks": [report.block("ours", 30, 60, log, {"web": 30.0, "client": 3.0}, 290_000_000, samples)]}


def test_the_report_says_what_was_measured(found):
    """Catches: percentiles of the wrong things, a slope in the wrong unit, a report that JSON cannot carry."""
    (it,) = json.loads(json.dumps(found))["blocks"]
    assert (it["change"]["n"], it["change"]["p50_ms"], it["change"]["p95_ms"], it["change"]["p99_ms"]) == (100, 50, 95, 99)
    assert it["open"]["n"] == 1 and it["generate"] == {"n": 0} and it["error_count"] == 0 and it["cpu_percent_of_a_core"] == {"web": 50, "client": 5}
    assert it["memory_megabytes"]["per_minute_in_second_half"] == 60 and it["memory_megabytes"]["per_learner"] == round(69 / 30, 2)
    assert "30 learners" in report.line(it) and "50/95/99" in report.line(it)


def test_the_table_is_what_was_kept(found, tmp_path):
    """Catches: a table of other figures than the stored ones, rows of two runs under the conditions of one, and a document that still
    shows the last but one."""
    entries = report.entries(found, "python -m tests.load --learners 30")
    precompute.write_measured("load", entries | {"load.two.30": {**entries["load.ours.30"], "conditions": entries["load.ours.30"]["conditions"] | {"command": "another"}}}, "x", tmp_path)
    made = report.table(precompute.timings(tmp_path))
    assert "| 30 | ours | 100 | 50 | 95 | 99 | 0 | 500 | – |" in made
    assert made.endswith("ours.30: cpu x; command python -m tests.load --learners 30.\n\ntwo.30: cpu x; command another.")
    document = command.DOCUMENT.read_text(encoding="utf-8")
    stored = {key: entry for key, entry in precompute.timings().items() if key.startswith("load.")}
    assert stored and report.placed(document, report.table(stored)) == document, "python -m tests.load --table"


@pytest.mark.parametrize("asked", [
    ["--learners", "0"], ["--learners", "x"], ["--learners", "1000"], ["--minutes", "0"], ["--minutes", "100"], ["--minutes", "1,1"], ["--minutes", "x"], ["--plain", "100"],
    ["--think", "1"], ["--think", "5,2"], ["--think", "-1,2"], ["--think", "1,x"], ["--alone", "0"], ["--alone", "1000000"],
])  # fmt: skip
def test_it_is_bounded(asked):
    """Catches: a load without an end."""
    with pytest.raises(SystemExit):
        command.main(asked)
