"""The long prompt among readers: what is shown against the runs themselves, and the picture, at every moment, in a browser."""

import json

import pytest

from components import Scene
from components.chunked_prefill import FRAMES_PER_SECOND, MODES, WIDGET, Params, frames, models, run
from components.text import LANGUAGES
from compute import facts
from compute.errors import BadInput, Refused
from compute.judged import first_token_error
from compute.stall import stall

WHOLE = (2 * 25_623_920_640 * 32_768 + 16 * 2 * 32_768**2 * 24 * 256 + 48 * (2 * 25_623_920_640 + 16 * 4 * 24 * 256 * 4096)) / 989.5e12  # seconds


def view(params: Params = Params(), lang: str = "en", before: Params | None = None):
    return WIDGET.draw(run(params), Scene(WIDGET.words(lang), lang, "light", before and run(before)))


def test_the_anchor_read_whole():
    """Catches: read-outs of another way than the chosen one, seconds shown as milliseconds, the others left out beside it."""
    gap, first, lost, normal, rate = view().readouts
    assert WHOLE == pytest.approx(1.913, abs=5e-4)
    assert (gap.value, gap.unit, first.value, normal.value) == ("1.91", "s", "1.91", "1.91")
    assert gap.note == "chunks 32.5 ms, 2nd card 24.3 ms" and normal.note == "chunks 2.10 s, 2nd card 0 s"
    assert (lost.value, lost.unit) == ("3,840", "tokens") and rate.note.endswith("2nd card 1,023 token/s")
    assert [r.value for r in view(Params(mode="separate")).readouts] == ["24.3", "1.92", "0", "0", "1,023"]


def test_the_picture_shows_the_run():
    """Catches: tokens of one way under the name of another, chunks drawn as one, a silence that is not between two tokens."""
    for mode in MODES:
        data, way = view(Params(mode=mode)).picture.data, stall()[mode]
        assert data["tokens"] == [beat.ended for beat in way.beats] and data["first"] == way.first_token_seconds
        assert len(data["pieces"]) == {"whole": 1, "chunked": 71, "separate": 1}[mode] and data["writes"][0] == way.first_token_seconds
        assert [panel["mode"] for panel in data["panels"]] == list(MODES)
        for panel in data["panels"]:
            assert max(seconds for at, seconds in panel["gaps"] if at > 0) == stall()[panel["mode"]].longest_gap_seconds
    silence = view().picture.data["silence"]
    tokens = view().picture.data["tokens"]
    assert silence[1] - silence[0] == pytest.approx(WHOLE, rel=1e-6) and not [at for at in tokens if silence[0] + 1e-9 < at < silence[1] - 1e-9]
    assert view(Params(mode="chunked")).picture.data["silence"] is None and view(Params(mode="separate")).picture.data["handed"]


def test_it_plays_in_real_time_where_that_can_be_watched():
    """Catches: a silence that passes in one step of the player; a picture of three frames, or of an hour."""
    found = run(Params()).stall
    assert (frames(found) - 1) / FRAMES_PER_SECOND == pytest.approx(found.until - found.since, abs=0.011)
    assert f"export const rate = {FRAMES_PER_SECOND};" in (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    assert "in real time" in view().picture.data["pace"]
    assert "slow motion" in view(Params(model="qwen3-0.6b", prompt=2048, readers=1)).picture.data["pace"]
    slow = view(Params(chip="m4-max", readers=1)).picture
    assert slow.steps == 1501 and "as fast" in slow.data["pace"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_sentence_states_the_trade(lang):
    """Catches: a trade that is said where nothing is traded, a target that is missed and called kept."""
    trade, kept = WIDGET.words(lang)("says.trade"), WIDGET.words(lang)("says.kept", target="50 ms")
    said = view(lang=lang).sentence
    assert all(number in said for number in ("1.91 s", "3,840", "512", "71", "32.5 ms", "2.10 s")) and trade in said and kept in said
    assert trade not in view(Params(mode="separate"), lang).sentence and "5.11 ms" in view(Params(mode="separate"), lang).sentence
    missed = view(Params(budget=2048), lang).sentence
    assert kept not in missed and WIDGET.words(lang)("says.over", n="17", target="50 ms") in missed
    assert trade not in view(Params(prompt=256), lang).sentence, "a prompt of one chunk"


def test_the_error_stands_beside_every_calibrated_time():
    """Catches: a calibrated figure that looks exact; an error under the ideal bound; a first token that carries the throughput's error, where
    published first tokens tell of a larger one."""
    calibrated = Params(clock="calibrated")
    found = run(calibrated).stall.error.mean, first_token_error(calibrated.prompt).mean
    error, first = (f"give or take {100 * mean:.1f}%" for mean in found)
    shown = view(calibrated)
    assert error != first and first in shown.readouts[1].note
    assert all(error in r.note for r in shown.readouts[:1] + shown.readouts[2:]) and error in shown.sentence and error in shown.picture.data["scale"]
    assert "published" in shown.simplified and "ideal bound" not in shown.simplified
    assert not any("give or take" in r.note for r in view().readouts) and "ideal bound" in view().simplified


def test_what_cannot_be_had_is_refused_or_said():
    """Catches: an empty picture of two cards whose link nobody knows, a crowded card drawn all the same."""
    unlinked = view(Params(chip="mi300x")).picture.data["panels"][2]
    assert unlinked["refused"].startswith("The bandwidth from card to card is not known for AMD Instinct MI300X") and "gaps" not in unlinked
    with pytest.raises(BadInput, match="not known"):
        run(Params(chip="mi300x", mode="separate"))
    with pytest.raises(BadInput, match="never be read"):
        run(Params(mode="chunked", budget=48))
    with pytest.raises(Refused, match="GB are missing"):
        run(Params(readers=64))
    with pytest.raises(BadInput, match="reads at most 8,192"):
        run(Params(model="llama-3-8b"))
    assert all(facts.model(id).context_maximum >= 8192 for id in models()) and "mini-256" not in models()


def test_what_was_before_stays_as_a_ghost():
    """Catches: a ghost of the same curve after a click on another way, none after the budget moved."""
    moved = view(Params(budget=2048, mode="chunked"), before=Params(mode="chunked"))
    assert [bool(panel["ghost"]) for panel in moved.picture.data["panels"]] == [True] * 3 and moved.readouts[0].change == "was 32.5 ms"
    other = view(Params(mode="chunked"), before=Params())
    assert not any(panel["ghost"] for panel in other.picture.data["panels"]) and other.readouts[0].change == "was 1.91 s"


def test_the_guess_is_the_silence():
    guess = WIDGET.guesses["silence"]
    for params in (Params(), Params(mode="chunked"), Params(mode="separate")):
        truth = guess.truth(run(params))
        assert truth.value == pytest.approx(WHOLE, rel=1e-6) and truth.unit == guess.unit == "s" and guess.bounds[0] < truth.value < guess.bounds[1]


def test_rows_give_every_step():
    """Catches: a table that cannot be added up to the picture."""
    rows = [row for row in view().rows if row["row"] == "step"]
    for mode in MODES:
        ours = [row for row in rows if row["mode"] == mode]
        assert sum(row["prompt_tokens"] for row in ours) == (0 if mode == "separate" else 32_768)
        assert len([row for row in view().rows if row["row"] == "way" and row["mode"] == mode]) == 1


SCRIPT = """async ([source, data, words, steps]) => {
  const view = await import('data:text/javascript,' + encodeURIComponent(source)), ruler = document.createElement('canvas').getContext('2d'), found = [];
  const fill = (said, values = {}) => said.replace(/\\{(\\w+)\\}/g, (whole, name) => values[name] ?? whole);
  for (const width of [1152, 358]) {
    const svg = document.body.appendChild(document.createElementNS('http://www.w3.org/2000/svg', 'svg'));
    document.head.insertAdjacentHTML('beforeend', '<style>text { font: 14px sans-serif } text.small { font-size: 13px }</style>');   // as player.css
    const measure = (said, px) => { ruler.font = `${px}px sans-serif`; return ruler.measureText(said).width; };
    const wrap = (said, px, room) => said.split(' ').reduce((lines, word) => (measure(`${lines.at(-1)} ${word}`, px) > room && lines.at(-1) ? [...lines, word] : [...lines.slice(0, -1), `${lines.at(-1)} ${word}`.trim()]), ['']);
    const tools = { width, steps, colour: (name) => name, measure, wrap, esc: String, pick: (...said) => found.push(said),
                    words: (key, values) => { if (!(`view.${key}` in words)) throw new Error(key); return fill(words[`view.${key}`], values); } };
    const high = view.height(data, width, tools);
    svg.setAttribute('viewBox', `0 0 ${width} ${high}`); svg.setAttribute('width', width); svg.setAttribute('height', high);
    for (const t of [0, 1, Math.floor(steps / 3), Math.floor(steps / 2), steps - 2, steps - 1]) {
      view.draw(svg, data, t, tools);
      const bad = (svg.innerHTML + view.says(data, t, tools) + view.label(data, t, tools)).match(/.{0,60}(NaN|undefined|Infinity|[\\u4e00-\\u9fff])/);
      if (bad) throw new Error(bad[0]);
      for (const node of svg.querySelectorAll('rect, path:not(pattern path), text')) {
        const box = node.getBBox();
        if (box.x < -8 || box.y < -1 || box.x + box.width > width + 2.5 || box.y + box.height > high + 1) throw new Error([width, t, node.outerHTML.slice(0, 200), box.x, box.y, box.width, box.height, high].join(' '));
      }
    }
    svg.querySelectorAll('[data-mode]').forEach((node) => node.dispatchEvent(new MouseEvent('click')));
    svg.remove();
  }
  return found;
}"""


@pytest.mark.parametrize("params", [
    Params(), Params(mode="chunked", budget=2048, clock="calibrated"), Params(mode="separate"), Params(chip="mi300x", readers=1), Params(chip="m4-max", readers=2, mode="chunked"),
    Params(model="qwen3-0.6b", prompt=2048, readers=8, mode="separate"), Params(model="llama-3-8b", prompt=256, context=512, readers=128, mode="chunked"),
], ids=str)  # fmt: skip
def test_the_picture_stays_inside_itself(chromium, params):
    """At several moments and two widths. Catches: coordinates that are no numbers, words cut at the edge or of another language, a panel whose
    click sets nothing."""
    shown = view(params, before=Params())
    page = chromium.new_page()
    try:
        picked = page.evaluate(SCRIPT, [(WIDGET.folder / "view.js").read_text(encoding="utf-8"), json.loads(json.dumps(shown.picture.data)), dict(WIDGET.words("en").table), shown.picture.steps])
    finally:
        page.close()
    assert picked == [["mode", mode] for mode in MODES if mode != params.mode] * 2
