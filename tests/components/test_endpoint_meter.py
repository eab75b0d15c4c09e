"""The endpoint meter's figures against arithmetic on made-up reports; what it says of half a run, of failures and of servers' words."""

import json
from dataclasses import fields, replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from components import Html, Scene, endpoint_meter
from components.endpoint_meter import ENOUGH, WIDGET, Params, arguments, endpoints, read
from compute import functions
from compute.errors import BrokenData, Unavailable
from compute.functions import plain
from compute.meter.report import Plan
from compute.service.schema import Result

EVIL = "<img src=x onerror=alert(1)>&\"'"


def answered(id: int, sent: float, wait: float, gaps: list[float], tokens: int | None = None, counted_by: str = "usage") -> dict:
    """A request that waits so long for its first chunk and then so long for each further one."""
    chunks = [sent + wait]
    for gap in gaps:
        chunks.append(chunks[-1] + gap)
    return {"id": id, "sent": sent, "first": chunks[0], "last": chunks[-1], "prompt_tokens": 60, "output_tokens": tokens or len(chunks), "counted_by": counted_by,
            "chunks": chunks, "ok": True, "late": 0.0, "cached": None}  # fmt: skip


def failed(id: int, kind: str = "closed", says: str = EVIL) -> dict:
    return {"id": id, "sent": 0.5, "at": 0.9, "kind": kind, "says": {"zh": f"断了：{says}", "en": f"broken: {says}"}}


def report(requests: list[dict], errors: list[dict] = [], seconds: float = 4.0, **more) -> dict:
    plan = vars(Plan()) | more.pop("plan", {})
    return {"version": 1, "endpoint": {"name": "own", "url": "http://127.0.0.1:8502/v1", "model": "mini-256"}, "plan": plan, "started": "2026-11-30T05:00:00+00:00",
            "seconds": seconds, "done": True, "stopped": None, "warming": False, "requests": requests, "running": [], "errors": errors, "summary": {"made up": True},
            "conditions": {"meter": "Python 3, 2 cores"}} | more  # fmt: skip


def view(answer: dict, params: Params = Params(), lang: str = "en", **scene):
    return WIDGET.draw(WIDGET.run(params, answer), Scene(WIDGET.words(lang), lang, "light", **scene))


FOUR = [answered(0, 0.0, 0.050, [0.010] * 4), answered(1, 0.1, 0.090, [0.030] * 4), answered(2, 0.2, 0.150, [0.010] * 4), answered(3, 0.3, 0.070, [0.015] * 4)]


def test_the_figures_by_hand():
    """Catches: times counted from the wrong end, tokens where gaps belong, a goodput that counts one target, rates over another time.
    TTFT 50, 90, 150, 70 ms: the median lies half way from 70 to 90, p90 at 0.7 from 90 to 150. TPOT 10, 30, 10, 15 ms."""
    shown = view(report(FOUR), Params(ttft_target=0.1, tpot_target=0.02))
    values = [(r.value, r.unit) for r in shown.readouts]
    assert values[0] == ("80.0 | 132", "ms") and 90 + 0.7 * 60 == 132
    assert values[1] == ("12.5 | 25.5", "ms") and 15 + 0.7 * 15 == 25.5
    assert values[2] == ("5.00", "token/s") and 4 * 5 / 4.0 == 5
    assert values[3][0] == "0.500" and "2 of 4 met both" in shown.readouts[3].note, "0 and 3; 1 is too slow to write, 2 too late to begin"
    assert values[4] == ("4", "/ 32")
    assert "2 of 4 make it (50.0%)" in shown.sentence and "TTFT is too long in 1, TPOT in 1" in shown.sentence
    data = shown.picture.data
    assert [good for *_, good in data["dots"]] == [True, False, False, True] and [row[4] for row in data["rows"]] == ["good", "missed", "missed", "good"]
    measured = {q.says["en"]: q.value for q in shown.papers}
    assert measured["time to the first token, p50"] == pytest.approx(0.08) and measured["requests per second that met both targets"] == 0.5


def test_percentiles_lie_on_the_curve_they_are_marked_on():
    """Catches: a curve of one definition and a mark of another, which would float beside it."""
    gaps = [0.001 * (1 + (7 * i) % 11) for i in range(60)]
    for curve in view(report([answered(i, 0.1 * i, 0.02 + 0.003 * ((5 * i) % 7), gaps) for i in range(12)])).picture.data["curves"]:
        for name, share, value, label in curve["marks"]:
            low, high = next((a, b) for a, b in pairwise(curve["points"]) if a[1] <= share <= b[1])
            along = low[0] + (high[0] - low[0]) * (share - low[1]) / (high[1] - low[1])
            assert value == pytest.approx(along, rel=0.05), (name, "thinned points keep the shape")
        assert curve["points"][0][1] == 0 and curve["points"][-1][1] == 1 and curve["n"] in (12, 12 * 60)


def test_the_slowest_hundredth_needs_a_hundred():
    """Catches: a p99 that is the slowest of a few dozen, printed as if it were one."""
    some = [answered(i, 0.01 * i, 0.05, [0.01] * 3) for i in range(ENOUGH - 1)]
    few, enough = view(report(some)), view(report([*some, answered(ENOUGH, 2.0, 0.05, [0.01] * 3)]))
    assert "p90" in few.readouts[0].note and str(ENOUGH) in few.readouts[0].note and str(ENOUGH - 1) in few.readouts[0].note
    assert "p50 | p99" in enough.readouts[0].note
    assert not [q for q in few.papers if q.says["en"] == "time to the first token, p99"] and [q for q in enough.papers if q.says["en"] == "time to the first token, p99"]
    assert "rough" in few.simplified and "rough" not in enough.simplified


def test_targets_move_without_measuring_again():
    """Catches: a live answer that is dropped because a target moved, and a goodput that stays where it was measured."""
    loose, tight = Params(ttft_target=1, tpot_target=0.5), Params(ttft_target=0.06, tpot_target=0.5)
    assert WIDGET.live.about(loose) == WIDGET.live.about(tight) != WIDGET.live.about(Params(concurrency=8))
    assert WIDGET.live.about(Params(rate=9)) == WIDGET.live.about(Params()) and WIDGET.live.about(Params(loop="open", rate=9)) != WIDGET.live.about(Params(loop="open"))
    whole = read(report(FOUR))
    before, after = (endpoint_meter.Result(p, whole, "live") for p in (loose, tight))
    shown = WIDGET.draw(after, Scene(WIDGET.words("en"), "en", "light", before))
    assert (before.good, after.good) == (4, 1) and shown.readouts[3].value == "0.250" and shown.readouts[3].change == "was 1.00"
    assert shown.picture.data["ghost"] == [1, 0.5] and shown.picture.data["targets"] == [0.06, 0.5]


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize(
    ("more", "running", "words"),
    [
        ({"done": False}, True, ("32 个里结束了 5 个", "5 of 32 have ended")),
        ({"done": False, "warming": True, "requests": [], "errors": []}, True, ("预热", "Warming up with 2")),
        ({"done": False}, False, ("在第 5 个请求之后取消了", "Cancelled after 5 of 32")),
        ({"done": False, "stopped": "time"}, False, ("时间到了", "The time was up after 5 of 32")),
        ({"done": False, "stopped": "failing"}, False, ("只有失败", "stopped after 5 of 32")),
    ],
)
def test_half_a_run_says_so(more, running, words, lang):
    """Catches: figures of what was measured so far, passed off as those of the whole plan."""
    shown = view(report(FOUR, [failed(4)]) | more, lang=lang, running=running)
    assert shown.sentence.startswith(words[lang == "en"]) or words[lang == "en"] in shown.sentence.split("。" if lang == "zh" else ". ")[0]
    assert len(shown.readouts) == 5
    assert "取消" not in view(report(FOUR), lang="zh").sentence and "Cancelled" not in view(report(FOUR)).sentence


def test_what_is_under_way_is_drawn_and_not_counted():
    """Catches: a request that has not ended, judged by its targets, and one whose first chunk has not come, which breaks the picture."""
    running = [{"id": 4, "sent": 0.4, "first": 0.6, "chunks": [0.6, 0.7]}, {"id": 5, "sent": 0.5, "first": None, "chunks": []}]
    shown = view(report(FOUR, running=running, done=False), running=True)
    assert [(row[0], row[2], row[4]) for row in shown.picture.data["rows"]][4:] == [(5, 0.6, "running"), (6, None, "running")]
    assert len(shown.picture.data["dots"]) == 4 and shown.readouts[4].value == "4" and shown.picture.data["running"]


def test_without_a_single_answer_there_is_no_figure():
    """Catches: a division by nothing, and a row of zeros where nothing was measured."""
    shown = view(report([], [failed(n) for n in range(32)], seconds=0.0))
    assert [r.value for r in shown.readouts] == ["–", "–", "–", "–", "0"] and "no request was answered, 32 failed" in shown.sentence
    assert all(curve["n"] == 0 for curve in shown.picture.data["curves"])
    assert shown.picture.data["seconds"] == 0.9, "the axis reaches to what failed last"


def test_answers_of_one_token_have_no_time_between():
    """Catches: a TPOT of nothing, and a request that misses a target which it does not have."""
    shown = view(report([answered(i, 0.1 * i, 0.05, []) for i in range(3)]), Params(ttft_target=0.1, tpot_target=0.001))
    assert shown.readouts[1].value == "–" and "3 of 3 make it" in shown.sentence and "–" not in shown.sentence and "each one after" not in shown.sentence
    assert shown.picture.data["curves"][1] == {"n": 0, "longest": "", "points": [], "marks": []}


def test_errors_are_a_table_and_servers_words_are_text():
    """Catches: a sentence of a server that becomes part of the page; the wrong language; hundreds of rows; failures left out of the share."""
    shown = view(report(FOUR, [failed(4), failed(5, "http")]), Params(ttft_target=1, tpot_target=1), lang="zh")
    (table,) = shown.after
    assert isinstance(table, Html) and "<img" not in table.body and "断了：&lt;img src=x" in table.body and "broken" not in table.body
    assert table.body.count("<tr>") == 3 and "提前断开" in table.body and "HTTP 错误" in table.body and "900 ms" in table.body
    assert "6 个里 4 个做到（66.7%）" in shown.sentence and "另有 2 个请求失败了" in shown.sentence
    many = view(report([], [failed(n) for n in range(200)])).after[0].body
    assert many.count("<tr>") == 21 and "180 more" in many
    assert view(report(FOUR)).after == ()


def test_every_kind_of_failure_has_its_words():
    """Catches: a kind that the meter knows and the page does not, which would take the page down when it happens."""
    from typing import get_args

    from compute.meter.report import Kind

    for lang in ("zh", "en"):
        assert {key.removeprefix("kind.") for key in WIDGET.words(lang).table if key.startswith("kind.")} == set(get_args(Kind))


def test_chunks_that_hold_several_tokens_and_servers_that_do_not_count():
    """Catches: a gap between chunks taken for the time of a token, and a guess at tokens that is not called one."""
    packed = view(report([answered(i, 0.0, 0.1, [0.04] * 4, tokens=13) for i in range(3)]))
    assert "2.60 on average" in packed.simplified and packed.readouts[1].value.startswith("13.3"), "160 ms over 12 tokens"
    assert "3 answers came without a count" in view(report([answered(i, 0.0, 0.1, [0.04] * 4, counted_by="chunks") for i in range(3)])).simplified
    assert "on average" not in view(report(FOUR)).simplified and "without a count" not in view(report(FOUR)).simplified


def test_a_queue_that_grows_is_called_one():
    """Catches: the percentiles of an overloaded service, shown as if they were its own and not those of the time it was measured for."""
    growing, steady = [answered(i, 0.1 * i, 0.05 + 0.1 * i, [0.01] * 3) for i in range(30)], [answered(i, 0.1 * i, 0.05 + 0.02 * (i % 3), [0.01] * 3) for i in range(30)]
    open_loop = {"loop": "open", "rate": 10.0}
    assert "the first third waits 500 ms for its first token, the last third 2.50 s" in view(report(growing, plan=open_loop)).sentence
    assert "third" not in view(report(steady, plan=open_loop)).sentence and "third" not in view(report(growing)).sentence


def test_the_rows_are_enough_to_make_the_report_again():
    """Catches: a download that lacks what a reader needs to check the figures: chunks, failures, the plan."""
    asked = Params(ttft_target=0.1, tpot_target=0.02)
    shown = view(report(FOUR, [failed(4)]), asked)
    rows = json.loads(json.dumps(plain(shown.rows)))
    again = [
        {"id": r["id"], "sent": r["sent_seconds"], "first": r["first_seconds"], "last": r["last_seconds"], "late": r["late_seconds"], "cached": r["cached_tokens"], "chunks": r["chunk_seconds"],
         "ok": True} | {k: r[k] for k in ("prompt_tokens", "output_tokens", "counted_by")}
        for r in rows if r["error"] is None
    ]  # fmt: skip
    errors = [{"id": r["id"], "sent": r["sent_seconds"], "at": r["error_seconds"], "kind": r["error"], "says": {"zh": "", "en": r["error_says"]}} for r in rows if r["error"]]
    made = WIDGET.run(asked, report(again, errors, rows[0]["measured_seconds"]))
    assert made.summary == WIDGET.run(asked, report(FOUR, [failed(4)])).summary
    assert rows[0]["loop"] == "closed" and rows[0]["concurrency"] == 4 and rows[0]["requests_per_second"] is None and rows[0]["ttft_target_seconds"] == 0.1


def test_it_opens_with_a_run_that_was_measured():
    """Catches: a stored run of another plan than the page opens with, which would call itself not measured; a file that was cut short."""
    result = WIDGET.run(Params())
    assert result.mark == "replay" and not result.waiting and result.report.done and result.report.endpoint.name == "own"
    assert len(result.report.requests) == Params().requests and not result.report.errors
    assert not WIDGET.run(Params(ttft_target=5, rate=9)).waiting, "these change nothing that was measured"
    other = WIDGET.run(Params(concurrency=16))
    assert other.waiting and WIDGET.draw(other, Scene(WIDGET.words("en"), "en", "light")).sentence.startswith("This plan was not measured yet")


def test_a_broken_store_is_named(monkeypatch, tmp_path):
    """Catches: a traceback on the page for a file that somebody edited."""
    (tmp_path / "meter-own.json").write_text('{"report": {"version": 1}}')
    monkeypatch.setattr(endpoint_meter, "STORED", tmp_path / "meter-own.json")
    with pytest.raises(BrokenData, match="meter-own.json"):
        WIDGET.run(Params())


@pytest.mark.parametrize("broken", [{}, {"requests": []}, report([{"id": 1}]), report(FOUR, plan={"no_such": 1}), report(FOUR) | {"endpoint": None}])
def test_what_is_no_report_raises_what_the_frame_expects(broken):
    """Catches: half an answer that ends a run, or the page, instead of being skipped."""
    with pytest.raises((LookupError, TypeError)):
        view(broken)


def test_the_service_takes_what_the_controls_offer():
    """Catches: a setting that the page offers and the function refuses, and an address that reaches the service from a page."""
    bounds = {"concurrency": (1, 64), "rate": (0.01, 100), "requests": (1, 200), "prompt_tokens": (1, 8192), "output_tokens": (1, 512), "ttft_target": (0.001, 600), "tpot_target": (0.001, 60),
              "seed": (0, 9_999), "loop": ("closed", "open")}  # fmt: skip
    for end in (0, 1):
        assert functions.check("meter.run", arguments(Params(**{name: values[end] for name, values in bounds.items()})))
    assert set(arguments(Params())) == {f.name for f in fields(Params)} and "url" not in arguments(Params())


def test_endpoints_are_those_of_the_operators_list(monkeypatch):
    """Catches: a list asked for at every move, names that vanish with the service, and a page that fails because the list does."""
    asked = []

    def call(name, params, **more):
        asked.append(name)
        return Result({"endpoints": [{"name": "own", "url": "", "model": "", "trouble": None}, {"name": "vllm", "url": "http://10.0.0.5/v1", "model": "", "trouble": None}]}, None)

    monkeypatch.setattr(endpoint_meter, "_listed", {})
    monkeypatch.setattr(endpoint_meter, "client", SimpleNamespace(address=lambda: "here", status=lambda: SimpleNamespace(up=True), call=call))
    assert endpoints() == endpoints() == ("own", "vllm") and asked == ["meter.endpoints"]
    assert endpoint_meter.several(Params())

    def gone(*args, **more):
        raise Unavailable("unavailable", reason="gone", reason_zh="没了")

    monkeypatch.setattr(endpoint_meter, "_listed", {})
    monkeypatch.setattr(endpoint_meter.client, "call", gone)
    assert endpoints() == ("own",) and not endpoint_meter.several(Params())
    assert endpoint_meter.several(Params(endpoint="vllm")), "a link's endpoint is shown, also when the list cannot be had"


def test_a_seconds_worth_of_targets_reads_like_one():
    """Catches: targets in a unit that the reader must convert."""
    labels = view(report(FOUR), replace(Params(), ttft_target=0.05, tpot_target=2.0)).picture.data["labels"]
    assert labels == ["target 50.0 ms", "target 2.00 s"]
