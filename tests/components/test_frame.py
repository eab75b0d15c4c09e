"""The frame: state in the URL, refusals, complaints, guess, reset; seen through Streamlit's own test harness."""

import json
from dataclasses import dataclass
from html import unescape
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest, local_script_runner

import components
from components import controls, frame, kv_stepper
from components.text import load_words
from compute import numbers
from compute.errors import TimedOut, Unavailable
from compute.service.schema import Conditions, Progress, Result

PAGE = str(Path(__file__).parent / "frame_page.py")


def page(**query: str) -> AppTest:
    at = AppTest.from_file(PAGE, default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    return ran(at.run())


def ran(at: AppTest) -> AppTest:
    assert not at.exception, at.exception[0].value
    assert at.title[0].value == "page"
    return at


def html(at: AppTest) -> str:
    return "\n".join(block.proto.body for block in at.get("html"))


def address(at: AppTest) -> dict[str, str]:
    return {name: values[0] if isinstance(values, list) else values for name, values in at.query_params.items()}


def test_the_preset_is_not_in_the_address():
    """Catches a URL that repeats what the lesson already says, and a second instrument that shares the first one's state."""
    at = page()
    assert at.selectbox(key="roofline-placer.chip").value == "a100-80g-sxm"
    assert at.selectbox(key="roofline-placer.2.chip").value == "h100-sxm"
    assert not address(at)


def test_a_moved_control_is_in_the_address_and_the_picture():
    """Catches state that a copied link would lose, and a picture that lags one move behind its control."""
    at = page()
    at.select_slider(key="roofline-placer.2.batch").set_value(8)
    ran(at.run())
    assert address(at) == {"roofline-placer.2.batch": "8"}
    assert "At batch 8 a step moves" in html(at)


def test_a_link_opens_the_same_state_in_either_language():
    """Catches labels in the address: a link made in one language must keep its meaning in the other."""
    for lang, words in (("zh", "batch 16 时"), ("en", "At batch 16")):
        at = page(**{"lang": lang, "roofline-placer.batch": "16", "roofline-placer.chip": "h100-sxm"})
        assert at.select_slider(key="roofline-placer.batch").value == 16
        assert at.selectbox(key="roofline-placer.chip").value == "h100-sxm"
        assert words in html(at)


@pytest.mark.parametrize("pause, before", [(1e9, 1), (0.0, 4)])
def test_the_ghost_of_a_slider_is_where_it_set_out(monkeypatch, pause, before):
    """Catches: arrow keys held on a slider, whose picture is then compared with the stop before the last."""
    monkeypatch.setattr(frame, "ONE_MOVE_SECONDS", pause)
    at = page()
    for batch in (2, 4, 8):
        at.select_slider(key="roofline-placer.2.batch").set_value(batch)
        ran(at.run())
    assert at.session_state["instruments"]["page", "roofline-placer.2"]["previous"].batch == before


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("roofline-placer.batch", "-3", "batch = -3 不行"),
        ("roofline-placer.batch", "many", "batch"),
        ("roofline-placer.chip", "h1000", "h1000"),
        ("roofline-placer.model", "<b>x</b>", "&lt;b&gt;x"),
        ("roofline-placer.size", "3", "size"),
    ],
)
def test_a_wrong_value_in_the_address_is_one_sentence(name, value, words):
    """Catches tracebacks, silent defaults and unescaped input; the rest of the page goes on."""
    at = page(**{name: value})
    assert words in html(at)
    assert "role=\"alert\"" in html(at)
    assert "At batch 1 a step moves" in html(at), "the second instrument still works"


@pytest.mark.parametrize(("name", "value", "words"), [("block", "7", "&#x27;7&#x27;; known: 4, 8, 16"), ("t", "9" * 5000, "Prompt not computed")])
def test_numbers_that_no_control_offers_and_no_step_has(name, value, words):
    """Catches: options that are numbers, a step with more digits than Python converts; either took the whole page down."""
    at = AppTest.from_string(f"from components import frame\nimport streamlit as st\nframe.enter('page')\nst.title('page')\nframe.show('prefix-tree', lang='en')")
    at.query_params[f"prefix-tree.{name}"] = value
    assert words in html(ran(at.run(timeout=60)))
    assert f"prefix-tree.{name}" not in address(at)


def test_what_does_not_fit_is_refused_with_the_missing_bytes():
    """Catches a speed shown for a setting that cannot exist."""
    at = page(**{"roofline-placer.batch": "512"})
    shown = html(at)
    assert "放不下" in shown and "还差" in shown
    assert not at.get("vega_lite_chart") or len(at.get("vega_lite_chart")) == 2, "only the second instrument draws"
    assert at.select_slider(key="roofline-placer.batch").value == 512, "the control is there to mend it"


def test_the_guess_comes_before_the_picture():
    """Catches a reveal that does not wait, a guess that is forgotten, a truth that is not told, and a wrong guess that leaves open
    which choice was right."""
    at = page(ask="upgrade")
    charts = len(at.get("vega_lite_chart"))
    at.segmented_control(key="roofline-placer/guess").set_value("compute")
    ran(at.run())
    assert len(at.get("vega_lite_chart")) == charts, "choosing is not yet committing"
    at.button(key="roofline-placer/commit").click()
    ran(at.run())
    assert len(at.get("vega_lite_chart")) == charts + 2
    assert "你猜“约 3.2 倍”，答案是“约 1.6 倍”（×1.64）。" in html(at)
    assert address(at)["roofline-placer.guess"] == "compute"


def test_the_same_numbers_stand_in_picture_and_sentence():
    """Catches a chart fed by other numbers than the text: decode's spot, by arithmetic."""
    at = page()
    spec = json.loads(at.get("vega_lite_chart")[2].proto.spec)  # the second instrument: anchor on the H100, batch 1, 4K
    points = [v for layer in spec["layer"] for v in layer["data"]["values"] if v.get("phase") == "decode" and "label" in v and "low" not in v]  # the calibrated ones have an error
    weights, kv, state = 25_623_920_640, 4096 * 65_536, 2 * 150_994_944
    seconds = (2 * weights + kv + state) / 3.35e12
    flops = 2 * weights + 4 * 4096 * 24 * 256 * 16
    assert points[0]["x"] == pytest.approx(flops / (2 * weights + kv + state))
    assert points[0]["y"] == pytest.approx(flops / seconds)
    assert "15.5 ms" in html(at)


def test_a_guess_that_nobody_could_make_is_asked_again():
    """Catches: an address with any word as the guess, told back to the learner as if it had been one."""
    at = page(**{"ask": "upgrade", "roofline-placer.guess": "<i>7</i>"})
    assert "&lt;i&gt;7" in html(at) and "你猜" not in html(at)
    assert "roofline-placer.guess" not in address(at)
    assert at.button(key="roofline-placer/commit")


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "61", "<b>"])
def test_a_number_that_nobody_could_guess_is_answered_with_the_range(text):
    """Catches: "known: skip" as the answer to a number from the address."""
    guess = components.widget("chunked-prefill").guesses["silence"]
    assert not frame._possible(guess, text)
    told = frame._impossible(guess, text)
    assert told.message("zh").endswith("要填 0 到 60 之间的数。") and "0 to 60" in told.message("en") and text in told.message("en")


def test_a_guess_is_judged_by_the_question_not_by_where_the_sliders_went():
    """Catches: a right guess that turns wrong when the learner goes on playing."""
    at = page(**{"ask": "upgrade", "roofline-placer.guess": "decode", "roofline-placer.chip": "l40s", "roofline-placer.model": "qwen3-8b"})
    assert "1.64" in html(at) and 'class="right"' in html(at)


def test_a_published_range_is_a_range():
    """Catches: a table of sources that prints a pair as Python writes it."""
    ours = load_words(frame.HERE / "text.toml", "en")
    cells = frame.paper_cells(numbers.quoted_names()["vllm.sharing_beam_alpaca"], ours, "en")
    assert "<td>37.6% – 55.2%</td>" in cells and "(0.376" not in cells


# ---- live runs that tell what they have so far


@components.parameters
class Counted:
    tokens: int = 3


@dataclass(frozen=True)
class Count:
    value: int
    mark: str


class Toy:
    """An instrument that counts on the service. seen: (value, running) of every picture; closed: whether the events were."""

    def __init__(self, monkeypatch, events, partial: bool = True):
        self.seen, self.closed, self.asked, self.events = [], 0, 0, events
        words = kv_stepper.WIDGET.words  # its table has all that the frame asks for
        toy = components.Widget(id="kv-stepper", Params=Counted, controls=(controls.Stops("tokens", (3, 4)),), run=self.compute, draw=self.draw,
                                live=components.Live("toy.count", lambda params: {"n": params.tokens}, partial=partial))  # fmt: skip
        assert "control.tokens" in words("en").table
        monkeypatch.setattr(components, "widget", lambda id: toy)
        monkeypatch.setattr(frame, "REDRAW_SECONDS", 0)
        monkeypatch.setattr(frame.client, "status", lambda: SimpleNamespace(up=True))
        monkeypatch.setattr(frame.client, "run", self.run)

    @staticmethod
    def compute(params, answer=None):
        return Count(answer["count"], "live") if answer else Count(0, "replay")

    def draw(self, result, scene):
        if result.value < 0:
            raise LookupError("nothing to draw yet")
        self.seen.append((result.value, scene.running))
        return components.View(components.Vega({"data": {"values": []}, "mark": "point"}), (), f"counted {result.value}", ({"count": result.value},), ())

    def run(self, function, params, learner):
        self.asked += 1
        try:
            for event in self.events:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed += 1

    def shown(self) -> list[tuple[int, bool]]:
        """Without the trials, each of which is drawn a second time when it is put on the page."""
        return [pair for pair, _ in groupby(self.seen)]


def so_far(count: int) -> Progress:
    return Progress(abs(count) / 10, "", 0.1, partial={"count": count})


WHOLE = Result({"count": 9}, Conditions("cpu", "machine", "3", None, None, None, 1.0, "2026-01-01"))


def instrument(monkeypatch) -> AppTest:
    """A page with the toy, and from now on each press reruns the instrument alone, as in a browser; Streamlit's harness reruns the page."""
    at = AppTest.from_string("from components import frame\nimport streamlit as st\nframe.enter('page')\nst.title('page')\nframe.show('kv-stepper', lang='en')",
                             default_timeout=60)  # fmt: skip
    ran(at.run())
    (fragment,) = at._fragment_storage._fragments
    real = local_script_runner.RerunData
    monkeypatch.setattr(local_script_runner, "RerunData", lambda **given: real(**given, fragment_id_queue=[fragment] if given.get("widget_states") else []))
    return at


def press(at: AppTest) -> AppTest:
    at.button(key="kv-stepper/run").click()
    return ran(at.run())


def mark(at: AppTest) -> str:
    return next(data["mark"] for data in (json.loads(each.proto.json) for each in at.get("bidi_component")) if "mark" in data)


def kept(at: AppTest) -> dict:
    return at.session_state["instruments"]["page", "kv-stepper"]


def test_a_run_under_way_is_drawn_by_the_same_draw(monkeypatch):
    """Catches: a picture that waits for the end; one that says that it is over when it is not; keys that are there twice; a whole
    answer that is not kept."""
    toy = Toy(monkeypatch, [Progress(0.0, "", 0.0), so_far(2), so_far(5), Progress(0.6, "", 0.2), WHOLE])
    at = press(instrument(monkeypatch))
    assert toy.shown() == [(0, False), (2, True), (5, True), (9, False)]
    assert "counted 9" in html(at) and mark(at) == "live" and toy.closed == toy.asked == 1
    assert not [button for button in at.button if button.key == "kv-stepper/stop"] and not kept(at)["run"]
    assert "counted 9" in html(ran(at.run())), "as any live answer"


def test_half_an_answer_that_cannot_be_drawn_is_skipped(monkeypatch):
    """Catches: a traceback on the page, or a run that is thrown away, because its first half was too little for a picture."""
    toy = Toy(monkeypatch, [so_far(-1), so_far(4), so_far(-1), WHOLE])
    assert "counted 9" in html(press(instrument(monkeypatch)))
    assert toy.shown() == [(0, False), (4, True), (9, False)]


def test_only_who_asks_for_it_is_drawn_before_the_end(monkeypatch):
    """Catches: the answer of an instrument that knows nothing of halves, replaced by one."""
    toy = Toy(monkeypatch, [so_far(2), so_far(5), WHOLE], partial=False)
    press(instrument(monkeypatch))
    assert toy.shown() == [(0, False), (9, False)]


def test_a_cancelled_run_keeps_what_it_told(monkeypatch):
    """Catches: work that goes on after the cancel, a result that is thrown away, and one that still says that more will come."""
    toy = Toy(monkeypatch, [so_far(2), so_far(5), so_far(7), WHOLE])
    presses = iter([False, False, True])
    monkeypatch.setattr(frame, "_pressed_meanwhile", lambda: next(presses))
    at = press(instrument(monkeypatch))
    assert toy.shown() == [(0, False), (2, True), (5, True), (5, False)]
    assert "counted 5" in html(at) and mark(at) == "live" and toy.closed == 1 and not kept(at)["run"]


@pytest.mark.parametrize(("error", "left"), [(Unavailable("unavailable", reason="gone", reason_zh="没了"), 0), (TimedOut("timed_out", function="toy", limit=1), 5)])
def test_what_a_run_that_fails_leaves(monkeypatch, error, left):
    """Catches: half a result under the notice that stored ones are shown; minutes of measuring lost when the time is up; a failure
    without a word, or told for ever."""
    toy = Toy(monkeypatch, [so_far(2), so_far(5), error])
    at = press(instrument(monkeypatch))
    assert f"counted {left}" in html(at) and error.message("en") in unescape(html(at))
    assert toy.closed == 1 and not toy.seen[-1][1]
    assert error.message("en") not in unescape(html(ran(at.run())))


def test_a_page_that_is_asked_for_anew_ends_the_run(monkeypatch):
    """Catches: work for a reader who has moved on in the moment between two pictures, and the exception of redrawing an instrument alone while
    the whole page runs."""
    toy = Toy(monkeypatch, [so_far(5), WHOLE])
    at = instrument(monkeypatch)
    events = toy.run("toy.count", {}, "")
    next(events)
    kept(at)["run"] = frame.Run(Counted(), events, None, redraws=True)
    assert "counted 0" in html(ran(at.run()))
    assert toy.closed == 1 and kept(at)["run"] is None


def test_two_moves_in_one_round_trip_are_both_kept(monkeypatch):
    """Catches: a second instrument's move, sent before the browser had the address of the first one's, that takes it out of the address
    and so back at the next whole page; a move straight back that leaves the address at the place in between."""
    at = page()
    with monkeypatch.context() as moves:
        moves.setattr(frame, "_alone", lambda: True)
        for key, batch in (("roofline-placer.batch", 4), ("roofline-placer.2.batch", 8)):
            at.query_params.clear()  # as the browser's still is
            at.select_slider(key=key).set_value(batch)
            ran(at.run())
        assert address(at) == {"roofline-placer.batch": "4", "roofline-placer.2.batch": "8"}
        at.query_params.clear()
        at.query_params["roofline-placer.batch"] = "4"
        at.select_slider(key="roofline-placer.2.batch").set_value(1)
        ran(at.run())
        assert address(at) == {"roofline-placer.batch": "4"}
    ran(at.run())
    assert at.select_slider(key="roofline-placer.batch").value == 4 and at.select_slider(key="roofline-placer.2.batch").value == 1
