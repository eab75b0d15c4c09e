"""The memory bar: the M6 story in its figures and words, what a learner makes happen, and the picture at every step."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from components import Scene
from components.memory_bar import CELLS, WIDGET, Params, moves, run
from compute import kv
from compute.batching_requests import requests
from compute.errors import BadInput

PAGE = """
import sys
sys.path.insert(0, {root!r})
import streamlit as st
from components import frame
frame.enter("page")
st.title("page")
frame.show("memory-bar", lang="zh")
"""
ROOT = str(Path(__file__).parents[2])


def view(params: Params = Params(), t: int | None = None, lang: str = "zh"):
    return WIDGET.draw(run(params), Scene(WIDGET.words(lang), lang, "light", None, None, t))


def figures(shown) -> list[str]:
    return [readout.value for readout in shown.readouts]


def test_the_story_opens_at_20_8_percent():
    """10 of 48 cells; 10 of the 40 reserved, 10 of the 16 in blocks; 30 × 64 KiB and 6 × 64 KiB unwritten. Catches: utilisation over the
    wrong cells, and bytes of another model."""
    shown = view()
    assert figures(shown) == ["20.8 | 20.8", "25.0 | 62.5", "30 | 6", "0 | 0", "3 | 3"]
    assert "20.8%" in shown.sentence and shown.readouts[2].note == "连续 1.97 MB，分页 393 kB"
    assert 30 * 65_536 == 1_966_080 and 6 * 65_536 == 393_216 and run(Params()).cell_bytes == 64 * 1024
    assert shown.picture.start == 0 and shown.picture.steps == 15


def test_the_refusal_is_said_with_its_numbers():
    """Step 9 of the story, and the shortest way there by hand. Catches: a refusal in a colour only, or by another rule than the pages'."""
    for shown in (view(t=8), view(Params(events="f2,a12"))):
        assert "上面拒绝：空着 16 格，最长一段只有 8 格。下面放下了：先发 1 块。" in shown.sentence
        assert figures(shown)[3] == "16 | 0" and shown.readouts[3].note == "连续 1.05 MB，分页 0 B"
        side = shown.picture.data["moments"][-1 if shown.picture.steps == 3 else 8]["a"]
        assert side["waiting"] == [4, 12, 1] and (side["free"], side["longest"]) == (16, 8)
    english = view(Params(events="f2,a12"), lang="en").sentence
    assert "Refused above: 16 cells are free, but the longest stretch has only 8. Admitted below, with 1 block" in english


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_each_kind_of_step_says_what_it_did(lang):
    """Catches: a step that claims what did not happen, such as a request that finishes where it only waits."""
    said = {
        "a9": ("只空着 8 格", "only 8 cells are free"),
        "a8": ("上面给它留出 8 格", "8 cells are set aside for it"),
        "f9": ("请求 9 不在写", "Request 9 is not running"),
        "f2,a12,f4": ("下面的请求 4 写完", "Request 4 finishes below"),
        "f2,a12,f1": ("等着的请求 4 进来了", "request 4 need wait no longer"),
        "a8,f2,a12,f4": ("请求 5 还在等：它要 12 格，空着 16 格", "Request 5 still waits: it needs 12 cells, 16 are free"),
        "f1,f2,f3,g": ("没有请求在写", "No request is running"),
        "a24.24,a12.12": ("只空着 2 块，它的提示要 3 块", "2 blocks are free, its prompt needs 3"),
        "a24.24,g9": ("下面块不够", "Blocks ran out below"),
    }
    for events, words in said.items():
        assert words[lang == "en"] in view(Params(events=events), lang=lang).sentence, events


def test_buttons_go_on_from_the_step_that_is_shown():
    """Catches: a press that is told at the end of a story the learner has not reached, or that offers to finish who is gone."""
    now = {(move.id, *move.names.values()): move.value for move in moves(Params(), 0)}
    assert now == {("generate",): "g", ("finish", 1): "f1", ("finish", 2): "f2", ("finish", 3): "f3", ("arrive", 12): "a12"}
    later = {(move.id, *move.names.values()): move.value for move in moves(Params(events="f2,a12,g", arrives=3), 2)}
    assert later == {("generate",): "f2,a12,g", ("finish", 1): "f2,a12,f1", ("finish", 3): "f2,a12,f3", ("finish", 4): "f2,a12,f4", ("arrive", 3): "f2,a12,a3"}
    assert moves(Params(events=",".join(["g"] * 99)), 99) == (), "no longer than a link can say"


def test_pressing_on_the_page():
    """Catches: a button whose press is lost, told twice, or not in the address; and a picture that stays where it was."""
    at = AppTest.from_string(PAGE.format(root=ROOT), default_timeout=60).run()
    for label in ("请求 2 写完", "来一个 12 格的请求"):
        next(button for button in at.button if button.label == label).click()
        at.run()
        assert not at.exception
    assert at.query_params["memory-bar.events"] in ("f2,a12", ["f2,a12"]) and "memory-bar.t" not in at.query_params
    assert "空着 16 格，最长一段只有 8 格" in "".join(block.proto.body for block in at.get("html"))
    assert [b.label for b in at.button if b.label.startswith("请求")] == ["请求 1 写完", "请求 3 写完", "请求 4 写完"]


def test_a_wrong_link_is_a_sentence():
    for events in ("hello", "a49", "g,,x"):
        with pytest.raises(BadInput):
            Params(events=events)
    assert Params(events=" F2 , A12.4 ").events == "f2,a12", "one spelling, so that equal stories have equal links"


def test_steps_beyond_a_shortened_story_are_its_last():
    """Catches an IndexError when the address names a step that the learner's own story does not have."""
    assert "第 2 步" in view(Params(events="f2"), t=14).sentence


def test_64_real_lengths():
    """Catches: lengths that are not those of the lesson's requests, and a picture whose pages never finish at some block size."""
    total = sum(len(r.prompt) + r.output for r in requests())
    for block in (1, 16):
        result = run(Params(preset="paragraphs", block=block))
        start, last = result.moments[0], result.moments[-1]
        assert len(start.reserved.held) == CELLS["paragraphs"] // 256 == 4 and len(start.reserved.waiting) == 60
        assert not last.paged.held and not last.paged.waiting
        written = {}
        for moment in result.moments:
            written |= {held.number: held.written for held in moment.paged.held}
        assert len(written) == 64 and sum(written.values()) <= total
        assert max(m.paged.of_all for m in result.moments) > 0.85 > 0.3 > max(m.reserved.of_all for m in result.moments)
    assert "events" not in [c.field for c in WIDGET.controls if c.when(Params(preset="paragraphs"))]


def test_bytes_follow_the_model():
    for model in ("llama-3-8b", "gpt-oss-20b"):
        assert run(Params(model=model)).cell_bytes == kv.per_token(model).bytes
    row = view(Params(model="llama-3-8b"), 0).rows[0]
    assert row["bytes_unwritten"] == 30 * 128 * 1024 and row["event"] == "start" and row["layout"] == "reserved"


def test_cells_that_make_no_block_are_admitted():
    """48 = 9 × 5 + 3. Catches: pages that count cells they cannot hand out."""
    shown = view(Params(block=5), lang="en")
    assert "the last 3" in shown.simplified and "the last" not in view(lang="en").simplified
    assert shown.picture.data["moments"][0]["b"]["longest"] == 45 - 3 * 5


def test_the_guess_is_about_the_hole():
    guess = WIDGET.guesses["fits"]
    assert guess.right(run(Params())) == "8" and guess.truth(run(Params())).value == 8
    assert guess.truth(run(Params())).inputs == {"wanted": 12, "free": 16}


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize("params", [Params(), Params(events="f2,a12,a30,f1", block=1), Params(preset="paragraphs", block=16), Params(block=5, events="f1,f2,f3")])
def test_the_picture_is_a_function_of_the_step(params):
    """Catches: a drawing that depends on what was drawn before, coordinates that are no numbers, marks outside the picture, and a
    height that changes while it plays."""
    data = json.dumps(view(params).picture.data)
    script = """
    const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1])), data = JSON.parse(process.argv[2]), words = JSON.parse(process.argv[3]);
    const fill = (s, v = {}) => s.replace(/\\{(\\w+)\\}/g, (whole, k) => v[k] ?? whole);
    const tools = { lang: 'zh', still: false, moved: true, local: {}, colour: (n) => n, words: (k, v) => { if (!words['view.' + k]) throw new Error(k); return fill(words['view.' + k], v); },
      wrap: (s) => [s], measure: (s, px) => s.length * px * .8, number: (n) => n.toLocaleString('en-US'), esc: (s) => String(s), redraw() {} };
    const at = (t, width) => { const svg = { setAttribute() {}, querySelector() {} }; view.height(data, width, tools); view.draw(svg, data, t, { ...tools, width }); return svg.innerHTML; };
    const last = data.moments.length - 1;
    for (const width of [1152, 358]) {
      const first = at(1, width); at(last, width); at(0, 700);
      if (at(1, width) !== first) throw new Error('not pure');
      const high = view.height(data, width, tools);
      for (let t = 0; t <= last; t++) {
        const drawn = at(t, width);
        if (/NaN|undefined|Infinity|\\{\\w+\\}/.test(drawn)) throw new Error('step ' + t + ': ' + drawn.match(/.{40}(NaN|undefined|Infinity|\\{\\w+\\})/)[0]);
        for (const [, x, y, w, h] of drawn.matchAll(/<rect[^>]* x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"/g))
          if (+x < -0.1 || +y < 0 || +x + +w > width + 0.6 || +y + +h > high + 0.6) throw new Error(`step ${t}, ${width} px: ${x} ${y} ${w} ${h} of ${high}`);
        const cells = data.moments[t].b.held.reduce((n, h) => n + h[2].length, 0);
        if (new Set([...drawn.matchAll(/data-block="(\\d+)"/g)].map((m) => m[1])).size !== cells) throw new Error('blocks drawn');
      }
    }
    """
    words = json.dumps(WIDGET.words("zh").table)
    done = subprocess.run(["node", "--input-type=module", "-e", script, (WIDGET.folder / "view.js").read_text(encoding="utf-8"), data, words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-600:]
