"""The figures of the meter, from request times written down by hand."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute.errors import BadInput
from compute.meter.report import PARTIAL_CHUNKS, Endpoint, Failed, Measured, Plan, Report, Underway, percentile, spread, summary

PLAN = Plan(ttft_target=0.5, tpot_target=0.1)


def measured(id=0, sent=0.0, chunks=(0.2, 0.3, 0.5), tokens=None, **more) -> Measured:
    counted = {"output_tokens": len(chunks), "counted_by": "chunks"} if tokens is None else {"output_tokens": tokens, "counted_by": "usage"}
    return Measured(id, sent, chunks[0], chunks[-1], 10, chunks=tuple(chunks), **counted | more)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_percentiles_are_numpy_s(values, share):
    """Catches a percentile that is off by one rank, or reads past the end."""
    assert percentile(sorted(values), share) == pytest.approx(np.percentile(values, 100 * share), abs=1e-6)


def test_times_of_one_request():
    """Catches TPOT over n tokens instead of n − 1 gaps, time to first token from the wrong zero, and chunks taken for tokens: five
    tokens came in three chunks."""
    one = measured(sent=0.1, chunks=(0.3, 0.4, 0.7), tokens=5)
    assert one.ttft == pytest.approx(0.2) and one.latency == pytest.approx(0.6)
    assert one.tpot == pytest.approx((0.7 - 0.3) / 4)
    assert one.gaps == pytest.approx([0.1, 0.3])


def test_a_single_token_has_no_time_per_token():
    """Catches a division by zero, and a zero that pulls the median down."""
    found = summary(PLAN, [measured(chunks=(0.2,)), measured(chunks=(0.2, 0.4))], 0, 1.0)
    assert found.tpot.n == 1 and found.tpot.p50 == pytest.approx(0.2) and found.ttft.n == 2


def test_goodput_counts_what_meets_both_targets():
    """Catches either target ignored, failures left out of the share, and a share given as a rate. Of five that ended in 4 s, one is
    slow to begin, one slow to go on, one failed."""
    requests = [
        measured(0, 0.0, (0.4, 0.5)), measured(1, 0.0, (0.5, 0.6)), measured(2, 0.0, (0.6, 0.7)), measured(3, 0.0, (0.4, 0.6)),
    ]  # fmt: skip
    found = summary(PLAN, requests, 1, 4.0)
    assert (found.done, found.failed) == (4, 1)
    assert found.goodput == pytest.approx(2 / 4) and found.good_share == pytest.approx(2 / 5)
    assert found.requests_per_second == pytest.approx(4 / 4) and found.tokens_per_second == pytest.approx(8 / 4)


def test_one_token_meets_the_target_by_its_first():
    """Catches a request without a second token that can never be good."""
    assert measured(chunks=(0.2,)).good(PLAN) and not measured(chunks=(0.6,)).good(PLAN)


def test_tokens_in_a_chunk_come_from_usage_alone():
    """Catches a ratio of 1 that is only chunks divided by chunks."""
    assert summary(PLAN, [measured()], 0, 1.0).tokens_per_chunk is None
    assert summary(PLAN, [measured(tokens=6), measured()], 0, 1.0).tokens_per_chunk == pytest.approx(2.0)


def test_nothing_measured_is_said_with_nulls():
    """Catches NaN and division by zero in a report that is stopped at once."""
    report = made([], seconds=0.0)
    json.dumps(report.to_json(), allow_nan=False)
    assert report.to_json()["summary"]["ttft"] == {"p50": None, "p90": None, "p99": None, "mean": None, "n": 0}
    assert report.partial()["summary"]["goodput"] is None


def made(requests, running=(), seconds=10.0) -> Report:
    return Report(Endpoint("own", "http://127.0.0.1:1/v1", "m"), PLAN, "2026-01-01T00:00:00+00:00", seconds, False, requests,
                  [Failed(99, 0.0, 1.0, "stalled", {"zh": "停了", "en": "stalled"})], {"seed": 0}, running)  # fmt: skip


def test_the_report_has_the_fields_that_its_readers_know():
    """Catches a renamed field: pages and files read these."""
    report = made([measured()], [Underway(7, 0.5, None, ())]).to_json()
    assert set(report) == {"version", "endpoint", "plan", "started", "seconds", "done", "stopped", "warming", "requests", "running", "errors", "summary", "conditions"}
    assert set(report["requests"][0]) == {"id", "sent", "first", "last", "prompt_tokens", "output_tokens", "counted_by", "chunks", "ok", "late", "cached"}
    assert set(report["errors"][0]) == {"id", "sent", "at", "kind", "says"}
    assert set(report["summary"]) == {"done", "failed", "ttft", "tpot", "gap", "latency", "late", "tokens_per_second", "requests_per_second",
                                      "goodput", "good_share", "tokens_per_chunk"}  # fmt: skip
    assert json.loads(json.dumps(report, allow_nan=False)) == report


@given(st.lists(st.integers(1, 900), max_size=30), st.lists(st.integers(0, 900), max_size=10))
def test_a_partial_report_stays_small_and_keeps_every_request(lengths, running):
    """Catches a partial that grows with the run, one that drops requests, and one that keeps the oldest times instead of the newest."""
    requests = [measured(n, 0.0, [0.1 + i / 100 for i in range(length)]) for n, length in enumerate(lengths)]
    partial = made(requests, [Underway(100 + n, 0.0, 0.1, tuple(i / 100 for i in range(length))) for n, length in enumerate(running)]).partial()
    assert [row["id"] for row in partial["requests"]] == list(range(len(lengths))) and len(partial["running"]) == len(running)
    kept = [len(row["chunks"]) for row in partial["requests"]]
    assert sum(kept) + sum(len(row["chunks"]) for row in partial["running"]) <= PARTIAL_CHUNKS + len(running)
    bare = kept.count(0)
    assert kept == [0] * bare + lengths[bare:]
    if sum(lengths) + sum(running) <= PARTIAL_CHUNKS // 2:
        assert not bare
    assert partial["summary"]["ttft"]["n"] == len(lengths)
    assert partial["summary"]["gap"]["n"] == sum(length - 1 for length in lengths[bare:])


@pytest.mark.parametrize(
    ("field", "value"),
    [("loop", "both"), ("rate", 0), ("rate", -1.0), ("rate", math.inf), ("rate", math.nan), ("concurrency", 0), ("requests", 0), ("requests", 1.5), ("requests", True),
     ("prompt_tokens", 0), ("output_tokens", 0), ("warmup", -1), ("ttft_target", 0), ("ttft_target", -1), ("tpot_target", 0.0)],
)  # fmt: skip
def test_an_impossible_plan_is_refused_with_its_value(field, value):
    """Catches a rate of zero that would wait for ever, and a target that nothing can meet."""
    with pytest.raises(BadInput) as wrong:
        Plan(**{field: value})
    assert wrong.value.values["field"] == field and wrong.value.message("zh") and wrong.value.message("en")


def test_the_spread_names_its_count():
    """Catches a p99 without the number of values that it stands on."""
    found = spread([3.0, 1.0, 2.0])
    assert (found.p50, found.mean, found.n) == (2.0, 2.0, 3)
