"""Requests on a card against arithmetic written out, against kv.capacity, and the picture against its numbers."""

import json
import shutil
import subprocess

import pytest

from components import Scene
from components.capacity import WIDGET, Params, models, run
from components.text import LANGUAGES
from compute import facts, kv
from compute.errors import BadInput, LabError, Refused

FREE = 80_000_000_000 - 55_562_855_904  # an H100 beside the anchor's weights
STATE, TOKEN = 48 * 48 * 128 * 128 * 4, 64 * 1024


def view(params: Params = Params(), lang: str = "en", before: Params | None = None):
    return WIDGET.draw(run(params), Scene(WIDGET.words(lang), lang, "light", before and run(before)))


def test_the_anchor_on_an_h100():
    """58 at 4,096 tokens, 1 when each reserves 262,144. Catches: a forgotten state, weights counted twice, 4K taken as 4,000."""
    found = run(Params())
    assert found.free == FREE and found.shape.context_maximum == 262_144
    assert found.paged.requests == FREE // (4096 * TOKEN + STATE) == 58 and found.reserved.requests == FREE // (262_144 * TOKEN + STATE) == 1
    assert (found.reserved.state, found.reserved.written) == (STATE, 4096 * TOKEN) and found.reserved.unwritten == (262_144 - 4096) * TOKEN
    assert found.paged.unwritten == 0 and found.paged.share(FREE) == 58 * (4096 * TOKEN + STATE) / FREE
    room = kv.capacity("qwen3.8-27b", "h100-sxm", 4096)
    assert (room.requests, room.requests_reserving_maximum) == (58, 1)
    assert [r.value for r in view().readouts[:2]] == ["58", "1"]


def test_pages_are_counted_whole():
    """1,001 tokens fill 63 blocks of 16, 1,008 cells. Catches: blocks rounded down, and a part-filled block counted as written."""
    found = run(Params(context=1001))
    assert found.paged.tokens == 63 * 16 == 1008 and found.paged.unwritten == 7 * TOKEN and found.paged.each == 1008 * TOKEN + STATE
    assert run(Params(context=1001, block=1)).paged.each == 1001 * TOKEN + STATE
    assert run(Params(context=1, block=256)).paged.each == 256 * TOKEN + STATE


@pytest.mark.parametrize("model", models())
@pytest.mark.parametrize("chip", ["h100-sxm", "rtx-4090", "b200"])
def test_agrees_with_the_command(model, chip):
    """Catches: a count of its own beside kv.capacity's, and a drawing where that refuses."""
    setting = {"weight_bits": 4, "kv_bits": 8}
    try:
        room = kv.capacity(model, chip, 512, **setting)
    except LabError as refused:
        with pytest.raises(type(refused)):
            run(Params(model=model, chip=chip, context=512, **setting))
        return
    found = run(Params(model=model, chip=chip, context=512, **setting))
    maximum = min(262_144, facts.model(model).context_maximum)
    assert found.paged.requests == room.requests and found.reserved.tokens == maximum
    if maximum < 262_144 or facts.model(model).context_maximum == maximum:
        assert found.reserved.requests == room.requests_reserving_maximum
    assert dict(found.curve)[512] == room.requests
    counts = [n for _, n in found.curve]
    assert counts == sorted(counts, reverse=True), "a longer request never leaves room for more"


def test_weights_that_do_not_fit_are_refused_with_the_bytes_that_are_missing():
    with pytest.raises(Refused, match="GB are missing"):
        run(Params(chip="rtx-4090"))


def test_a_request_longer_than_its_reservation_is_refused():
    """Catches: more written than reserved, which would draw a negative hatch."""
    with pytest.raises(BadInput, match="reserves only 2,048"):
        run(Params(reserve=2048))
    with pytest.raises(BadInput, match="Llama-3-8B reads at most 8,192 tokens"):
        run(Params(model="llama-3-8b", context=16384))


def test_no_room_for_a_single_reservation():
    """An RTX 4090 with the anchor at 4 bits. Catches: a division by nothing, and an empty bar that says nothing."""
    params = Params(chip="rtx-4090", weight_bits=4, context=16384)
    found = run(params)
    assert found.reserved.requests == 0 < found.paged.requests
    bar = view(params).picture.data["bars"][0]
    assert bar["left"] == "one needs 17.3 GB, there are 6.47 GB" and bar["count"] == "0"


def test_a_window_keeps_no_more_than_itself():
    """Mistral 7B v0.1 keeps 4,096 tokens a layer. Catches: a reservation of 32,768 counted where no layer would keep it."""
    found = run(Params(model="mistral-7b", context=1024, reserve=32768))
    assert found.reserved.each == run(Params(model="mistral-7b", context=1024, reserve=4096)).reserved.each
    assert "sliding window" in view(Params(model="mistral-7b", context=1024)).simplified


def test_a_move_shows_what_was_before():
    shown = view(Params(context=8192), before=Params())
    assert shown.readouts[0].change == "was 58 requests" and shown.readouts[1].change == ""
    assert not shown.picture.data["plot"]["ghost"], "the curve is the same, only the place on it moved"
    assert view(Params(kv_bits=8), before=Params()).picture.data["plot"]["ghost"]


def test_the_guess_is_the_count_of_reservations():
    guess = WIDGET.guesses["reserved"]
    assert guess.truth(run(Params())).value == 1 and guess.right(run(Params())) == "1"
    assert guess.right(run(Params(reserve=4096))) == "58"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_sentence_says_both_counts(lang):
    said = view(lang=lang).sentence
    assert all(number in said for number in ("55.6 GB", "24.4 GB", "419 MB", "58", "17.3 GB", "1.72%", "99.5%"))


def test_a_reservation_beyond_what_the_model_reads_is_said():
    """Catches: a slider at 1,048,576 beside a count made for 262,144, without a word."""
    for lang, words in (("zh", "最多读 262,144 个 token"), ("en", "reads at most 262,144")):
        assert words in view(Params(reserve=1_048_576), lang).sentence and words not in view(lang=lang).sentence


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize(
    "params", [Params(), Params(chip="rtx-4090", weight_bits=4, context=16384), Params(model="mini-256", reserve=1024, context=128), Params(chip="b200", context=200_000)]
)  # fmt: skip
def test_the_picture_stays_inside_itself(params):
    """Catches: coordinates that are no numbers, slices past the card, and words of another language."""
    data, words = json.dumps(view(params).picture.data), json.dumps(WIDGET.words("en").table)
    script = """
    const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1])), data = JSON.parse(process.argv[2]), words = JSON.parse(process.argv[3]);
    const tools = { colour: (n) => n, words: (k) => words['view.' + k] ?? (() => { throw new Error(k); })(), measure: (s, px) => s.length * px * .55, esc: (s) => String(s) };
    for (const width of [1152, 358]) {
      const high = view.height(data, width, tools), svg = {};
      view.draw(svg);
      if (/NaN|undefined|Infinity|[\\u4e00-\\u9fff]/.test(svg.innerHTML)) throw new Error(svg.innerHTML.match(/.{60}(NaN|undefined|Infinity|[\\u4e00-\\u9fff])/)[0]);
      for (const [, x, y, w, h] of svg.innerHTML.matchAll(/<rect x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"/g))
        if (+x < 0 || +y < 0 || +x + +w > width + 0.5 || +y + +h > high) throw new Error([width, x, y, w, h].join(' '));
      for (const [, x, y] of svg.innerHTML.matchAll(/<circle cx="([^"]+)" cy="([^"]+)" r="5.5"/g)) if (+x < 0 || +x > width || +y < 0 || +y > high) throw new Error('the point is outside');
    }
    """
    done = subprocess.run(["node", "--input-type=module", "-e", script, (WIDGET.folder / "view.js").read_text(encoding="utf-8"), data, words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-600:]
