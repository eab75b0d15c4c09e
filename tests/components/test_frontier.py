"""The curve of waiting and throughput against arithmetic written out and the clocks; what the page says where it must refuse."""

import json
import re
import shutil
import subprocess

import pytest

from components import Scene
from components.frontier import WIDGET, Params, chips, models, run
from components.text import LANGUAGES
from compute import calibrated, facts, roofline
from compute.errors import BadInput, Refused

STATE, TOKEN = 48 * 48 * 128 * 128 * 4, 64 * 1024  # bytes of the anchor: a request's state, a token's KV
FREE = 80_000_000_000 - 55_562_855_904  # an H100 beside its weights


def view(params: Params = Params(), lang: str = "en", before: Params | None = None):
    return WIDGET.draw(run(params), Scene(WIDGET.words(lang), lang, "light", before and run(before)))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_anchor_stands_on_screen(lang):
    """15.5 → 25.2 ms, 64.6 → 2,304 token/s, ×35.6, beside the calibrated ones and their error. Catches one clock's number under the
    other's name, and an error that is not printed."""
    drawn, clock = view(lang=lang), calibrated.calibrated("qwen3.8-27b", "h100-sxm")
    assert all(figure in drawn.sentence for figure in ("15.5 ms", "25.2 ms", "64.6 token/s", "2,304 token/s", "×35.6", "×1.63", "2,255 token/s", WIDGET.words(lang)("says.fits", fits=58)))
    alone, full = (float(clock.step(n, n * 4096)) for n in (1, 58))
    assert f"{1e3 * full:.1f} ms" in drawn.sentence and f"{58 / full:,.0f} token/s" in drawn.sentence
    step, rate, times, first, best = drawn.readouts
    assert (step.value, rate.value, times.value) == (f"25.2 | {1e3 * full:.1f}", f"2,304 | {58 / full:,.0f}", f"×35.6 | ×{58 / full * alone:.1f}")
    error = f"{100 * clock.error.mean:.2f}%"
    assert all(error in r.note and WIDGET.words(lang)("note.ideal") in r.note for r in (step, rate)) and error in drawn.sentence and error in drawn.simplified
    assert first.value.startswith("244 | ") and error not in first.note and "%" in first.note, "a first token has an error of its own"
    limit = max(n for n in range(1, 59) if float(clock.step(n, n * 4096)) <= 0.025)
    assert best.value == f"56 | {limit}" and clock.error.where[lang] in drawn.simplified
    assert WIDGET.words(lang)("curve.ideal") == drawn.picture.data["names"][0] and error in drawn.picture.data["names"][1]


def test_the_picture_holds_the_curves():
    """Catches a curve of other sizes than its labels, throughput drawn as time, and a band that is not the clock's error."""
    data, clock = view().picture.data, calibrated.calibrated("qwen3.8-27b", "h100-sxm")
    assert data["sizes"] == list(range(1, 59)) and [data["sizes"][i] for i in data["marked"]] == [1, 8, 16, 32, 58] and data["at"] == 57
    for n in (1, 17, 58):
        assert data["ideal"]["step"][n - 1] == pytest.approx(roofline.decode("qwen3.8-27b", "h100-sxm", n, 4096).step_seconds)
        assert data["real"]["step"][n - 1] == pytest.approx(float(clock.step(n, n * 4096)))
    assert data["ideal"]["error"] == 0 and data["real"]["error"] == clock.error.mean != data["real"]["first_error"] > 0
    assert data["ideal"]["best"] == 55 and data["ideal"]["good"] == [True] * 56 + [False] * 2 and (data["tpot"], data["ttft"]) == (0.025, 1.0)
    assert view().picture.picks == ("batch",) and data["fits"] == 58
    assert data["wall"][1] == f"for 59, {(59 * (4096 * TOKEN + STATE) - FREE) / 1e6:.0f} MB are missing"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_batch_that_does_not_fit_is_said_and_not_drawn(lang):
    """Catches a figure for 64 requests, and a page that is empty because of them."""
    drawn = view(Params(batch=64), lang)
    missing = f"{(64 * (4096 * TOKEN + STATE) - FREE) / 1e9:.2f} GB"
    assert missing in drawn.sentence and "58" in drawn.sentence and missing in drawn.picture.data["wall"][1]
    assert [r.value for r in drawn.readouts[:4]] == ["–"] * 4 and drawn.readouts[4].value.startswith("56 | ")
    assert drawn.picture.data["at"] is None and len(drawn.picture.data["sizes"]) == 58
    with pytest.raises(Refused, match="GB are missing"):
        run(Params(chip="rtx-4090"))
    with pytest.raises(BadInput, match="no 8-bit floating-point units"):
        run(Params(chip="a100-80g-sxm", precision="fp8"))


@pytest.mark.parametrize("lang, says", [("zh", "没有一个 batch 达标"), ("en", "no batch will do")])
def test_targets_that_nobody_meets_are_said_in_words(lang, says):
    """A 32K prompt takes 1.91 s alone. Catches a goodput of nothing shown as a number, and the wrong target blamed."""
    drawn = view(Params(context=32_768, batch=1), lang)
    assert drawn.sentence.count(says) == 2 and "1.91 s" in drawn.sentence and drawn.picture.data["none"]
    assert drawn.readouts[4].value == " | ".join([WIDGET.words(lang)("none")] * 2) and drawn.readouts[4].note == WIDGET.words(lang)("note.none")
    both = view(Params(tpot_target=0.01, ttft_target=0.1, batch=1), lang).sentence
    assert "15.5 ms" in both.split("；" if lang == "zh" else ";")[0] and "215 ms" in both


def test_a_card_that_nobody_measured_is_drawn_with_its_bound_alone():
    """Catches a calibrated curve out of nowhere, and a pair of figures where there is one."""
    drawn = view(Params(chip="mi300x"))
    assert drawn.picture.data["real"] is None and all("|" not in r.value for r in drawn.readouts) and "MI300X" in drawn.simplified
    assert drawn.readouts[0].note == "ideal bound, not measured" and "calibrated clock" not in drawn.sentence
    assert chips()[:6] == ("a100-40g-sxm", "a100-80g-sxm", "h100-sxm", "h200-sxm", "b200", "l40s") and set(chips()) == set(facts.chips())
    assert "70b-dense" not in models() and "qwen3.8-27b" in models()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_can_be_sold_is_said_exactly(lang):
    """Catches goodput without its meaning, and a first token of which nobody knows what it waits for."""
    one, all_ = view(lang=lang).simplified, view(Params(arrival="all"), lang).simplified
    words = WIDGET.words(lang)
    assert "goodput" in one and words("simplified.one") in one and words("simplified.all") in all_ and words("simplified.one") not in all_
    assert words("simplified.beyond", model="Llama-3-8B", longest="8,192").strip() in view(Params(model="llama-3-8b", context=16_384, batch=1), lang).simplified


def test_a_clock_that_nobody_judged_says_so():
    """Catches a calibrated figure without an error and without a word about it, as for experts on a single card."""
    result = run(Params(model="gpt-oss-20b", context=8192, batch=256))
    assert result.frontier.calibrated.error is None and result.frontier.refused
    for lang in LANGUAGES:
        drawn = view(Params(model="gpt-oss-20b", context=8192, batch=16), lang)
        words = WIDGET.words(lang)
        assert words("simplified.unjudged") in drawn.simplified and words("says.unjudged") in drawn.sentence and words("note.unjudged") in drawn.readouts[0].note
        assert words("curve.calibrated_unjudged") == drawn.picture.data["names"][1] and drawn.picture.data["real"]["error"] == 0


def test_every_reason_has_its_words():
    """Catches a key that only a rare setting asks for."""
    seen = set()
    for params in (Params(), Params(tpot_target=0.2), Params(arrival="all", tpot_target=0.2), Params(chip="b200", model="qwen3-8b", context=128, tpot_target=0.2),
                   Params(chip="b200", model="qwen3-0.6b", context=128, tpot_target=0.2), Params(model="gpt-oss-20b", batch=1)):
        result = run(params)
        seen |= {curve.stops for curve in result.curves}
        for lang in LANGUAGES:
            view(params, lang)
    assert {("tpot",), ("ttft",), ("memory",), ("peak",)} <= seen
    for lang in LANGUAGES:
        assert all(WIDGET.words(lang)(f"stops.{name}") for name in ("tpot", "ttft", "tpot_ttft", "memory", "peak", "drawn"))


def test_the_state_before_is_a_ghost():
    """Catches a ghost of the same curve when only the batch or a target moved."""
    assert view(before=Params(batch=8)).picture.data["ghost"] is None and view(before=Params(tpot_target=0.05)).picture.data["ghost"] is None
    was = view(before=Params(batch=8)).picture.data["was"]
    assert was[0] * was[1] == pytest.approx(8) and view(before=Params(tpot_target=0.05)).picture.data["was"] is None
    assert len(view(before=Params(context=8192)).picture.data["ghost"]) == run(Params(context=8192)).frontier.memory.fits
    assert view(before=Params(batch=8)).readouts[0].change.startswith("was 16.7 | ") and view(before=Params(tpot_target=0.05)).readouts[0].change == ""


def test_the_guess_is_told_by_the_ideal_bound():
    """Catches the calibrated ratio, or throughput's, behind a question about the bound. 25.17 / 15.47 = 1.63."""
    guess = WIDGET.guesses["batch58"]
    assert guess.truth(run(Params())).value == pytest.approx(1.6275, abs=1e-3) and guess.right(run(Params())) == "half"
    assert guess.right(run(Params(batch=1))) == "same"
    full = Params(model="qwen3-8b", chip="b200", context=128, batch=8192)
    assert guess.right(run(full)) == "all" and guess.right(run(Params(model="qwen3-8b", chip="b200", context=128, batch=2048))) == "several"


def test_rows_are_what_is_drawn_in_si_units():
    """Catches milliseconds in a column of seconds, and one clock's rows missing."""
    rows = view().rows
    assert len(rows) == 2 * 58 and {row["clock"] for row in rows} == {"ideal", "calibrated"}
    for row in rows:
        assert row["batch"] / row["step_seconds"] == pytest.approx(row["tokens_per_second"]) and row["first_token_seconds"] > row["step_seconds"]
    assert [row["batch"] for row in rows if row["chosen"]] == [58, 58] and {row["error"] is None for row in rows if row["clock"] == "ideal"} == {True}


HARNESS = """
const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1])), stages = JSON.parse(process.argv[2]), words = JSON.parse(process.argv[3]);
const fill = (text, values = {}) => text.replace(/\\{(\\w+)\\}/g, (whole, name) => values[name] ?? whole);
const stand = (data, width, local = {}) => {
  const picked = [], handle = { focus() {} }, svg = { innerHTML: '', style: {}, insertAdjacentHTML(_, more) { this.innerHTML += more; }, querySelector: () => handle, setPointerCapture() {} };
  const tools = { width, local, colour: (n) => n, words: (k, v) => fill(words['view.' + k] ?? (() => { throw new Error(k); })(), v), measure: (s, px) => s.length * px * .55, esc: (s) => String(s),
    number: (v) => v.toLocaleString('en-US'), wrap: (s) => [s], pick: (field, value) => picked.push([field, value]), redraw: () => view.draw(svg, data, 0, tools) };
  tools.height = view.height(data, width, tools);
  svg.getBoundingClientRect = () => ({ left: 0, top: 0, width, height: tools.height });
  tools.redraw();
  return { svg, handle, picked, local, tools };
};
"""


def node(script: str, *arguments: str) -> str:
    done = subprocess.run(["node", "--input-type=module", "-e", HARNESS + script, (WIDGET.folder / "view.js").read_text(encoding="utf-8"), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
SETTINGS = (
    Params(), Params(batch=64), Params(batch=1, tpot_target=0.2), Params(chip="mi300x", batch=300), Params(context=32_768, batch=3), Params(context=131_072, batch=1),
    Params(chip="b200", model="qwen3-8b", context=128, batch=4096), Params(arrival="all", ttft_target=0.1, batch=2), Params(model="deepseek-v3", chip="b200", precision="fp8", tensor_parallel=8, batch=16),
)  # fmt: skip


@needs_node
def test_the_picture_is_a_function_of_its_data():
    """Catches coordinates that are no numbers, marks outside of the picture, and words of another language or that are not there."""
    stages = [view(params, before=Params(context=2048)).picture.data for params in SETTINGS]
    node(
        """
    for (const data of stages) for (const width of [1152, 358]) {
      const { svg, tools } = stand(data, width);
      const bad = svg.innerHTML.match(/.{60}(NaN|undefined|Infinity|null|[\\u4e00-\\u9fff])/);
      if (bad) throw new Error(bad[0]);
      for (const [, cx, cy] of svg.innerHTML.matchAll(/class="handle" cx="([^"]+)" cy="([^"]+)"/g)) if (cx < 0 || +cx > width || cy < 0 || +cy > tools.height) throw new Error(`the ring is outside: ${cx} ${cy}`);
      for (const [, x, y, w, h] of svg.innerHTML.matchAll(/<rect x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"/g)) if (+x < 0 || +y < 0 || +x + +w > width + 1 || +y + +h > tools.height) throw new Error([width, x, y, w, h].join(' '));
    }""",
        json.dumps(stages), json.dumps(WIDGET.words("en").table),
    )  # fmt: skip


@needs_node
def test_the_ring_goes_where_the_hand_is():
    """Catches a ring that takes the neighbouring batch, keys that skip sizes, a pick at every step of a drag, and an answer to an earlier
    move that throws the ring back."""
    data = view().picture.data
    said = node(
        """
    const { svg, handle, picked, local, tools } = stand(stages[0], 1152), at = (n) => { const [, cx, cy] = svg.innerHTML.match(/class="handle" cx="([^"]+)" cy="([^"]+)"/); return [+cx, +cy]; };
    const event = (x, y) => ({ clientX: x, clientY: y, pointerType: 'mouse', pointerId: 1, preventDefault() {}, stopPropagation() {} });
    const places = {};
    for (const n of [8, 16, 40]) { local.at = n - 1; tools.redraw(); places[n] = at(); }
    local.at = 57; tools.redraw();
    svg.onpointerdown(event(...places[40])); svg.onpointermove(event(...places[16])); svg.onpointermove(event(...places[8]));
    const during = picked.length, shown = stages[0].sizes[local.at];
    svg.onpointerup(event(...places[8]));
    const key = (key) => handle.onkeydown({ key, preventDefault() {}, stopPropagation() {} });
    key('ArrowRight'); key('ArrowUp'); key('PageUp'); key('ArrowLeft');
    const keyed = stages[0].sizes[local.at];
    await new Promise((done) => setTimeout(done, 400));
    view.draw(svg, { ...stages[0], asked: 8, at: 7 }, 0, tools);
    const stayed = stages[0].sizes[local.at];
    view.draw(svg, { ...stages[0], asked: 19, at: 18 }, 0, tools);
    view.draw(svg, { ...stages[0], asked: 30, at: 29 }, 0, tools);
    console.log(JSON.stringify({ during, shown, picked, keyed, stayed, slider: stages[0].sizes[local.at] }));""",
        json.dumps([data]), json.dumps(WIDGET.words("en").table),
    )  # fmt: skip
    assert json.loads(said) == {"during": 0, "shown": 8, "picked": [["batch", 8], ["batch", 19]], "keyed": 19, "stayed": 19, "slider": 30}


@needs_node
def test_both_clocks_stand_where_their_numbers_say():
    """The same batch lies on one hyperbola on both curves. Catches an axis in other units than its ticks, and a curve scaled by its own."""
    data = view().picture.data
    markup = node("const { svg } = stand(stages[0], 1152); console.log(svg.innerHTML);", json.dumps([data]), json.dumps(WIDGET.words("en").table))
    ticks = {int(label): float(x) for x, label in re.findall(r'<text x="([\d.]+)" y="513" class="small figure muted"[^>]*>(\d+)</text>', markup)}
    assert {0, 10, 20, 30} <= set(ticks)
    per_ms = (ticks[20] - ticks[10]) / 10
    dots = [float(x) for x in re.findall(r'<circle cx="([\d.]+)" cy="[\d.]+" r="3" fill="bound"', markup)]
    assert dots == pytest.approx([ticks[0] + per_ms * 1e3 * data["ideal"]["step"][n - 1] for n in (1, 8, 16, 32, 58)], abs=0.1)
    real = [float(x) for x in re.findall(r'<circle cx="([\d.]+)" cy="[\d.]+" r="3.5" fill="decode"', markup)][:5]
    assert real == pytest.approx([ticks[0] + per_ms * 1e3 * data["real"]["step"][n - 1] for n in (1, 8, 16, 32, 58)], abs=0.1)
