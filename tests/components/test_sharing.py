"""The sharing instrument: its figures by arithmetic, its recordings, and what it does with a live answer."""

import json
import shutil
import subprocess

import pytest

from components import Scene
from components.sharing import MODES, WIDGET, Params, opening
from compute import functions, precompute
from compute.errors import BrokenData
from compute.functions import plain
from compute.measures.sharing import TEXTS


def result(answer=None, **given):
    return WIDGET.run(Params(**given), answer)


def draw(found, lang="zh", before=None):
    return WIDGET.draw(found, Scene(WIDGET.words(lang), lang, "light", before))


def test_the_opening_by_hand():
    """14 prompt tokens in blocks of 4, four samples of 16: three full blocks are shared, the fourth holds 2 tokens and is copied
    three times; then 2 + 16 tokens take five blocks a text. Qwen3.8-27B keeps 64 KiB a token. Catches: bytes of another model,
    a share of what is owned instead of what is saved."""
    found = result()
    assert len(found.prompt) == 14 and found.new == 16
    assert (found.last.used, found.apart) == (3 + 4 * 5, 4 * 8)
    assert found.saved == pytest.approx(9 / 32) and found.copies == 3 and found.last.copied == 6
    assert found.bytes_saved == 9 * 4 * 64 * 1024
    first, share, bytes_saved, copied = draw(found).readouts
    assert (first.value, share.value, bytes_saved.value, bytes_saved.unit, copied.value) == ("23", "28.1", "2.25", "MiB", "6")


@pytest.mark.parametrize("texts", TEXTS)
def test_beams_share_more_and_a_longer_prompt_saves_more(texts):
    """What the papers found too. Catches: recordings that are mixed up."""
    for prompt in TEXTS[texts]:
        assert result(texts=texts, prompt=prompt, mode="beam").saved > result(texts=texts, prompt=prompt).saved
    for mode in MODES:
        shares = [result(texts=texts, prompt=prompt, mode=mode).saved for prompt in ("short", "long")]
        assert shares[0] < shares[1]


def test_a_longer_block_shares_less():
    """Catches: a block size that does not reach the pool."""
    assert result(block=4).saved > result(block=8).saved > result(block=16).saved


def test_the_seed_chooses_the_samples():
    """Sample i is drawn with seed + i. Catches: a seed without effect, or one that changes the texts that both have."""
    ids = [[row.ids for row in result(seed=seed).last.rows] for seed in (0, 1)]
    assert ids[0] != ids[1] and ids[0][1:] == ids[1][:-1]


def test_papers_are_quoted_for_the_mode_that_is_shown():
    """Catches: the paper's figure for beam search beside parallel sampling."""
    for mode, low in (("parallel", 0.061), ("beam", 0.376)):
        quoted = [q for q in draw(result(mode=mode)).papers if q.kind == "quoted"]
        assert len(quoted) == 2 and quoted[0].value[0] == low and "PagedAttention" in quoted[0].source.title


def test_it_opens_at_the_first_copy():
    """Catches: a picture that opens where nothing happens."""
    frames = result().frames
    assert frames[opening(frames)].kind == "copy" and frames[opening(frames)].refs[3] == 3
    even = result(prompt="short").frames  # four tokens: the block is full, nobody copies
    assert not any(frame.kind == "copy" for frame in even) and even[opening(even)].kind == "fork"


def test_another_text_is_not_passed_off_as_run():
    """Catches: a recording shown under the learner's own sentence without a word; a stored prompt typed by hand that waits."""
    assert result(text="春风").waiting and result(text="春风").text == TEXTS["zh"]["middle"]
    assert not result().waiting
    typed = result(text=TEXTS["en"]["long"])
    assert not typed.waiting and typed.text == TEXTS["en"]["long"]


def live_answer(mode="beam", count=3):
    kept = precompute.trace("sharing.zh.short.beam")
    return {"mode": mode, "text": "春风", "prompt": kept["prompt"], "steps": kept["beams"][str(count)], "pieces": kept["pieces"], "conditions": kept["conditions"]}


def test_a_live_answer_is_drawn():
    """Catches: a live run labelled as a replay, steps of the recording under a live prompt."""
    found = result(live_answer(), mode="beam", samples=3, text="春风")
    assert found.mark == "live" and not found.waiting and len(found.last.rows) == 3
    assert "春风" in draw(found).sentence


def test_the_live_call_is_one_that_the_service_accepts():
    """Catches: a parameter renamed on one side only."""
    for params in (Params(), Params(mode="beam", samples=8, text="x" * 200), Params(seed=8, samples=2)):
        arguments = WIDGET.live.arguments(params)
        assert functions.check(WIDGET.live.function, arguments).items() >= arguments.items()
    assert WIDGET.live.arguments(Params(block=4)) == WIDGET.live.arguments(Params(block=16)), "another block needs no new run"


def test_without_recordings_it_says_what_to_do(monkeypatch, tmp_path):
    """Catches: an empty picture when the stored file is not there."""
    monkeypatch.setattr(precompute, "STORE", tmp_path / "precomputed.json")
    with pytest.raises(BrokenData, match="sharing.zh.middle.parallel.*precompute"):
        result()


NODE = """
const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1])), data = JSON.parse(process.argv[2]), n = +process.argv[3];
const at = (t, width) => { const svg = {}; view.draw(svg, data, t, {...tools, width}); return svg.innerHTML; };
const tools = { lang: 'zh', local: {}, still: false, moved: false, colour: (n) => n, words: (k, v) => k + JSON.stringify(v ?? ''), wrap: (s) => [s], measure: (s, px) => s.length * px * .8, number: (n) => n.toLocaleString('en-US'), esc: (s) => s };
const first = at(3 % n, 1152); at(n - 1, 390);
if (at(3 % n, 1152) !== first) throw new Error('not pure');
for (const width of [358, 720, 1026]) for (let t = 0; t < n; t++) {
  const drawn = at(t, width), tall = view.height(data, width, tools);
  if (/NaN|undefined|Infinity/.test(drawn + view.says(data, t, tools))) throw new Error(`step ${t}: a coordinate is no number`);
  for (const [, y, h] of drawn.matchAll(/<rect[^>]* y="([-\\d.]+)" width="[-\\d.]+" height="([-\\d.]+)"/g)) if (+y + +h > tall + 1) throw new Error(`step ${t}, ${width} px: drawn below the picture`);
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize("given", [{}, {"mode": "beam", "samples": 8, "prompt": "long"}, {"block": 16, "prompt": "short", "samples": 2}, {"text": "春风", "texts": "en"}])
def test_the_picture_is_a_function_of_the_step(given):
    """Catches: a drawing that depends on what was drawn before, a step that breaks it, marks beyond its end."""
    stage = draw(result(**given)).picture
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps(plain(stage.data)), str(stage.steps)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
