"""The moe-router's picture against the recorded probabilities, its counts against arithmetic, and what it does with a live answer."""

import json
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from components import Scene
from components.moe_router import CHOICES, WIDGET, Params
from compute import functions, precompute
from compute.errors import BrokenData
from compute.measures.moe import BATCH, SENTENCES

VIEW_JS = WIDGET.folder / "view.js"


def draw(params: Params, lang: str = "zh", answer=None, before=None):
    return WIDGET.draw(WIDGET.run(params, answer), Scene(WIDGET.words(lang), lang, "light", before))


def answer(tokens: int = 3) -> dict:
    """What the service says, in shape. Expert t is likeliest for token t, expert 7 second, everywhere."""
    p = [[[0.4 if e == t else 0.2 if e == 7 else 0.4 / 6 for e in range(8)] for t in range(tokens)] for _ in range(4)]
    return {"model": "mini-moe", "text": "你好吗", "pieces": ["你", "⟨E5 B0⟩", "吗"][:tokens], "chosen": 2, "probabilities": p, "experts": [], "shares": [], "load": [], "conditions": {"model": "mini-moe", "device": "cpu"}}


@pytest.mark.parametrize("lang,text", SENTENCES.items())
def test_the_recorded_routes_belong_to_their_sentence(lang, text):
    """Catches: probabilities of another text, a layer lost, chosen experts that are not the likeliest, shares that do not add up."""
    routes = WIDGET.run(Params(sentence=text)).routes
    assert "".join(routes.pieces) == text and np.shape(routes.probabilities) == (4, len(routes.pieces), 8)
    assert np.sum(routes.probabilities, axis=2) == pytest.approx(1, abs=1e-4)
    for layer in range(4):
        for token in range(len(routes.pieces)):
            (first, a), (second, b) = routes.ranked(layer, token)
            p = routes.probabilities[layer][token]
            assert [first, second] == list(np.argsort([-v for v in p], kind="stable")[:2]) and a + b == pytest.approx(1) and a == pytest.approx(p[first] / (p[first] + p[second]))


def test_loads_are_shares_of_all_choices():
    """Catches: a domain or a layer left out, shares that are not of one whole."""
    s = WIDGET.run(Params()).statistics
    for table in (s["load"], *s["domains"].values(), *s["kinds"].values()):
        assert np.shape(table) == (4, 8) and np.sum(table, axis=1) == pytest.approx(1, abs=1e-3)
    for parts, counts in (("domains", "domain_tokens"), ("kinds", "kind_tokens")):
        assert sum(s[counts].values()) == s["tokens"]
        mixed = sum(np.array(s[parts][name]) * n for name, n in s[counts].items()) / s["tokens"]
        assert mixed == pytest.approx(np.array(s["load"]), abs=1e-3)


def test_a_batch_reads_between_two_and_all_eight():
    """Catches: a mean over the wrong axis. One token reads two experts, more read more, never above eight; even routing is the most."""
    s = WIDGET.run(Params()).statistics
    for name, table in s["read"].items():
        assert np.array(table)[:, 0] == pytest.approx(2), name
        assert (np.diff(table, axis=1) >= 0).all() and np.max(table) <= 8, name
    result = WIDGET.run(Params(batch=8))
    assert result.even == pytest.approx(8 * (1 - 0.75**8)) and result.read <= result.even + 0.05


def test_a_live_answer_is_shown_and_the_statistics_stay():
    """Catches: a live text labelled as stored, bytes of a character as a heading, a token beyond the text."""
    result = WIDGET.run(Params(sentence="你好吗", token=9), answer())
    assert result.mark == "live" and not result.waiting and result.token == 2
    view = draw(Params(sentence="你好吗", token=9, layer=1), "en", answer())
    assert view.picture.data["pieces"] == ["你", "·" * 2, "吗"] and view.picture.data["experts"][0] == [[0, 7], [1, 7], [2, 7]]
    assert "expert 3 first" in view.sentence and "66.7%" in view.sentence and "expert 8 second" in view.sentence
    assert [q.conditions["device"] for q in view.papers if q.unit == "ratio"][0] == "cpu"


def test_an_unrun_sentence_is_not_passed_off_as_run():
    """Catches: the example shown as if it were the learner's sentence."""
    own = WIDGET.run(Params(sentence="一只小猫在树上"))
    assert own.waiting and own.mark == "precomputed" and own.routes.text == SENTENCES["zh"]
    assert WIDGET.run(Params(sentence="A cat sat on")).routes.text == SENTENCES["en"]
    assert not WIDGET.run(Params()).waiting


def test_the_live_call_is_one_that_the_service_accepts():
    """Catches: a parameter renamed on one side only, and bounds that differ."""
    for params in (Params(), Params(sentence="x" * 80)):
        arguments = WIDGET.live.arguments(params)
        assert functions.check(WIDGET.live.function, arguments) == arguments
    assert functions.function(WIDGET.live.function).where == "service"


def test_the_guess_is_about_a_batch_of_eight_whatever_is_shown():
    """Catches: a right answer that moves with the slider, and one that is not among the choices."""
    guess = WIDGET.guesses["read"]
    truths = {guess.truth(WIDGET.run(Params(batch=size))).value for size in (1, 64)}
    assert truths == {guess.truth(WIDGET.run(Params(batch=BATCH))).value}
    assert guess.right(WIDGET.run(Params(batch=1))) == min(CHOICES, key=lambda id: abs(CHOICES[id] - truths.copy().pop()))


def test_tokens_in_the_table_are_escaped():
    """Catches: a token of the text that becomes markup in the table."""
    result = WIDGET.run(Params())
    statistics = result.statistics | {"favourites": [[["<b>", "&"]] * 8] * 4}
    body = WIDGET.draw(replace(result, statistics=statistics), Scene(WIDGET.words("zh"), "zh", "light")).beside[0].body
    assert body.count("&lt;b&gt;") == 8 and "<b>" not in body and body.count('scope="row"') == 8


def test_without_recordings_it_says_what_to_do(monkeypatch, tmp_path):
    """Catches: an empty picture or a traceback when the stored file is not there."""
    monkeypatch.setattr(precompute, "STORE", tmp_path / "precomputed.json")
    with pytest.raises(BrokenData, match="mini-moe.balance.*precompute"):
        WIDGET.run(Params())


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
def test_the_picture_is_pure_and_shows_the_chosen_token():
    """Catches: a coordinate that is no number, a long text whose chosen token is not drawn, a click on the wrong column."""
    data = json.dumps(functions.plain(draw(Params()).picture.data))
    script = """
    const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1])), data = JSON.parse(process.argv[2]);
    const tools = { lang: 'zh', width: 1152, colour: (n) => n, words: (k, v) => k + JSON.stringify(v ?? ''), measure: (s, px) => s.length * px * .6, wrap: (s) => [s], number: String, esc: (s) => s };
    const at = (d, width) => { const svg = {}; view.draw(svg, d, 0, { ...tools, width }); return svg; };
    const first = at(data, 1152).innerHTML; at(data, 390);
    if (at(data, 1152).innerHTML !== first) throw new Error('not pure');
    if (/NaN|undefined|Infinity/.test(first + at(data, 390).innerHTML + at(data, 720).innerHTML)) throw new Error('a coordinate is no number');
    if (view.height(data, 390, tools) <= view.height(data, 1152, tools)) throw new Error('a phone stacks the two');
    const many = (list) => [].concat(...Array(20).fill(list)), long = { ...data, pieces: many(data.pieces), experts: data.experts.map(many), shares: data.shares.map(many) };
    long.token = long.pieces.length - 2;
    let picked; const svg = {}; view.draw(svg, long, 0, { ...tools, pick: (f, v) => { picked = [f, v]; } });
    if (!svg.innerHTML.includes('part{')) throw new Error('it does not say that a part is drawn');
    const hit = { dataset: { pick: 'token' }, getBoundingClientRect: () => ({ left: 0, width: 1000 }) };
    svg.onclick({ target: { closest: () => hit }, clientX: 999 });
    if (picked[0] !== 'token' || picked[1] !== long.pieces.length) throw new Error('the last column is not the last token: ' + picked);
    """
    run = subprocess.run(["node", "--input-type=module", "-e", script, VIEW_JS.read_text(encoding="utf-8"), data], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
