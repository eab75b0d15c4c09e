"""What the page says about a text, by hand; bytes shown as bytes; nothing of the text read as markup."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from components import Scene
from components.text import LANGUAGES
from components.tokenizers import TEXTS, WIDGET, Params, visible
from compute import tokenization

EXAMPLE = "小明把苹果给了"
HOSTILE = '<b>球</b><script>alert(1)</script>"&\u202e\x04'
needs_smollm2 = pytest.mark.skipif(not tokenization.SMOLLM2.exists(), reason="SmolLM2 was not fetched: python3 run.py models")


def draw(lang="zh", before=None, **params):
    return WIDGET.draw(WIDGET.run(Params(**params)), Scene(WIDGET.words(lang), lang, "light", before))


@pytest.fixture()
def no_smollm2(monkeypatch):
    loaders = {**tokenization.LOADERS, "smollm2": lambda: tokenization._smollm2()}
    monkeypatch.setattr(tokenization, "SMOLLM2", Path("no such file"))
    monkeypatch.setattr(tokenization, "LOADERS", loaders)
    kept = tokenization._loaded
    monkeypatch.setattr(tokenization, "_loaded", lambda id: loaders[id]() if id == "smollm2" else kept(id))


def test_fewer_characters_by_hand(no_smollm2):
    """Catches: a share of the wrong one. 7 characters in 5 tokens instead of 4: 7/5 · 10 = 14 against 17.5, 20 % fewer."""
    view = draw("en", text=EXAMPLE, speed=10)
    assert "Qwen2.5 needs 5 tokens where Qwen3.5 / 3.6 needs 4 tokens: at an equal 10.0 token/s it writes 20.0% fewer characters per second (14.0 against 17.5)" in view.sentence
    assert [r.value for r in view.readouts] == ["7", "4", "5", "17.5 | 14.0"] and view.readouts[1].note == "Qwen3.5 / 3.6, mini-256"
    rows = view.picture.data["rows"]
    assert [(row["says"], row["less"]) for row in rows] == [("17.5", "most, with others"), ("14.0", "20.0% less than the most"), ("17.5", "most, with others")]


def test_a_row_for_each_token(no_smollm2):
    """Catches: ids and pieces that are out of step in what is downloaded."""
    rows = [row for row in draw(text=EXAMPLE).rows if row["tokenizer"] == "qwen3.6"]
    assert [(row["position"], row["id"], row["piece"], row["tokens"]) for row in rows] == [(0, 115942, "小明", 4), (1, 96373, "把", 4), (2, 99203, "苹果", 4), (3, 100105, "给了", 4)]
    assert rows[2]["utf8_bytes"] == "E8 8B B9 E6 9E 9C"


def test_part_of_a_character_is_shown_as_its_bytes():
    """Catches: ⟨E6 8E⟩ with its blank made visible, and a lone byte shown as a letter. 推 is cut in two in our vocabulary."""
    ours = next(row for row in draw(text="推 x").picture.data["rows"] if row["name"] == "mini-256")
    (whole, parts), *others = ours["groups"]
    assert whole == "推" and [p[0] for p in parts] == ["⟨E6 8E⟩", "⟨A8⟩"] and [p[2] for p in parts] == ["E6 8E", "A8"]
    assert "".join(piece for _, tokens in others for piece, _, _ in tokens) == "␣x"
    assert visible("a\u202e\n\u0301") == "a⟨U+202E⟩⏎◌\u0301" and visible(b" \xe5\xb0") == "␣⟨E5 B0⟩"


def test_the_speed_changes_the_bars_and_nothing_else(no_smollm2):
    """Catches: tokens that depend on the speed, and a ghost of what did not move."""
    before = WIDGET.run(Params(text=EXAMPLE, speed=10))
    rows, same = (draw(before=before, text=EXAMPLE, speed=v).picture.data["rows"] for v in (20, 10))
    assert [row["speed"] for row in rows] == [35, 28, 35] and [row["ghost"] for row in rows] == [17.5, 14, 17.5]
    assert [row["ghost"] for row in same] == [None] * 3 and [row["groups"] for row in same] == [row["groups"] for row in rows]


def test_without_smollm2_the_page_says_so_and_goes_on(no_smollm2):
    """Catches: a hole in the list that nobody explains."""
    for lang, says in (("zh", "没有它"), ("en", "run.py models")):
        data = draw(lang).picture.data
        assert [row["name"] for row in data["rows"]] == ["Qwen3.5 / 3.6", "Qwen2.5", "mini-256"]
        assert data["missing"][0]["name"] == "SmolLM2" and says in data["missing"][0]["why"]


@needs_smollm2
def test_who_drops_part_of_the_text_is_not_compared():
    """Catches: a tokenizer that looks fast because it leaves characters out. SmolLM2 has no token for U+0004."""
    result = WIDGET.run(Params(text="\x04" * 50))
    view = draw("en", text="\x04" * 50)
    smollm2 = next(row for row in view.picture.data["rows"] if row["name"] == "SmolLM2")
    assert smollm2["count"] == 0 and not smollm2["lossless"] and "drops them" in smollm2["note"] and smollm2["less"] == ""
    assert "smollm2" not in {s.id for s in result.fair} and "SmolLM2 needs" not in view.sentence and "SmolLM2" not in view.readouts[1].note


def test_the_guess_knows_a_tie():
    """Catches: one winner named where two are level."""
    guess = WIDGET.guesses["writes"]
    assert guess.right(WIDGET.run(Params(text=EXAMPLE))) == "tie"
    for lang in LANGUAGES:
        result = WIDGET.run(Params(**{"text": TEXTS["zh"], **WIDGET.presets.get(lang, {})}))
        assert result.params.text == TEXTS[lang] and guess.right(result) == "qwen3.6"  # the lesson's question has one answer
        assert guess.truth(result).value == result.best.characters_per_second


def test_equal_counts_are_called_equal():
    """Catches: 0.00% fewer."""
    said = draw("en", text="a").sentence
    assert "All need 1 token:" in said and "fewer" not in said


def test_every_number_has_its_papers(no_smollm2):
    """Catches: a vocabulary without its licence, and a speed of the anchor without its formula."""
    papers = draw().papers
    vocabularies = [q for q in papers if q.source]
    assert [q.inputs["licence"] for q in vocabularies] == ["Apache-2.0", "Apache-2.0", "as the project"] and all(q.inputs["read_from"] for q in vocabularies)
    assert [q.value for q in vocabularies] == [248_077, 151_665, 2048] and papers[-1].inputs["batch"] == 1
    assert all(q.formula or q.source for q in papers) and all(set(q.says) == {"zh", "en"} for q in papers)


NODE = """
const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1]));
const esc = (t) => String(t).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
const tools = { colour: (n) => n, words: (k, v) => k + JSON.stringify(v ?? ''), wrap: (s) => [s], measure: (s, px) => String(s).length * px * .8, esc, number: String };
for (const data of JSON.parse(process.argv[2])) {
  for (const width of [350, 759, 1152]) {
    const svg = {}, high = view.height(data, width, { ...tools, width });
    view.draw(svg);
    if (/NaN|undefined|Infinity/.test(svg.innerHTML + high)) throw new Error('a coordinate is no number');
    const pieces = [...svg.innerHTML.matchAll(/<rect x="([-.\\d]+)" y="([-.\\d]+)" width="([-.\\d]+)" height="\\d+" fill="[a-z]+" rx="3"/g)];
    console.log(JSON.stringify({ width, high, tags: [...new Set(svg.innerHTML.match(/<\\/?[a-z]+/g))].sort(), pieces: pieces.length, right: Math.max(...pieces.map((p) => +p[1] + +p[3])), low: Math.max(...pieces.map((p) => +p[2])), more: [...svg.innerHTML.matchAll(/more\\{&quot;n&quot;:&quot;(\\d+)/g)].map((m) => +m[1]) }));
  }
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
def test_the_picture_holds_every_piece_and_no_markup_of_the_learners(no_smollm2):
    """Catches: a tag out of the text, a piece beyond the edge of a phone, and tokens that are neither drawn nor counted as more."""
    long = "推理服务的延迟，由首 token 时间和之后每个 token 的时间组成；" * 16
    settings = [{"text": HOSTILE}, {"text": long, "ids": True}, {"text": " " * 300}, {"text": TEXTS["en"], "speed": 10}]
    views = [draw(before=WIDGET.run(Params(text=EXAMPLE)), **params) for params in settings]
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps([v.picture.data for v in views])], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-300:]
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(found) == 3 * len(views)
    allowed = {f"<{end}{tag}" for end in ("", "/") for tag in ("svg", "g", "title", "rect", "text", "path", "pattern", "defs")}
    for number, picture in enumerate(found):
        data = views[number // 3].picture.data
        assert set(picture["tags"]) <= allowed, picture["tags"]
        assert picture["right"] <= picture["width"] and picture["low"] + 26 < picture["high"]
        assert picture["pieces"] + sum(picture["more"]) == sum(row["count"] for row in data["rows"])
    assert any(picture["more"] for picture in found)
