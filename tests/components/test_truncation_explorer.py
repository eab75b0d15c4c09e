"""The truncation explorer's counts, shares and picture against the rules written out; its texts, draws and guesses."""

import json
import math
import shutil
import subprocess

import numpy as np
import pytest

from components import Scene
from components.truncation_explorer import TEMPERATURES, WIDGET, Params, _curves, _written
from compute import distributions, functions, precompute
from compute.measures.sampling import SETTINGS
from compute.sampling import ORDERS, Sampling

VIEW_JS = WIDGET.folder / "view.js"


def draw(params: Params, lang: str = "zh", answer=None, before=None):
    return WIDGET.draw(WIDGET.run(params, answer), Scene(WIDGET.words(lang), lang, "light", before))


def answer(**sampling):
    text = {"seed": 0, "text": "<script>x</script>", "tokens": 3, "repetition4": 0.25, "distinct1": 0.5, "distinct2": 0.75, "entropy": 1.5, "kept": 12.0}
    return {
        "text": "你好", "prompt_pieces": ["你", "好"], "logits": {"mini-256": np.linspace(5, -5, 2048).tolist()}, "pieces": {"0": "一", "1": "<i>"},
        "sampling": {"temperature": 1.3, "top_k": 200, "top_p": 0.9, "min_p": 0.05, "order": "transformers", "seed": 0} | sampling,
        "continuations": [text], "conditions": {"model": "mini-256", "device": "cpu"},
    }  # fmt: skip


def shares(logits, t):
    high = max(logits)
    weights = [math.exp((z - high) / t) for z in logits]
    return sorted((w / math.fsum(weights) for w in weights), reverse=True)


def nucleus(share, mass):
    taken, n = 0.0, 0
    while n < len(share) and taken < mass:
        taken, n = taken + share[n], n + 1
    return n


@pytest.mark.parametrize("prompt", distributions.PROMPTS)
def test_each_rule_alone_by_hand(prompt):
    """Catches: a rule counted after another one, on a cut list, or at another temperature."""
    logits = distributions.stored(prompt).logits["mini-256"]
    for t in (0.4, 1, 1.3, 2.5):
        share = shares(logits, t)
        result = WIDGET.run(Params(prompt=prompt, temperature=t, top_k=0, top_p=1, min_p=0))
        assert result.kept == 2048 and result.mass == pytest.approx(1) and result.alone == {"top_k": 40, "top_p": 0.9, "min_p": 0.1}
        assert result.alone_count == {"top_k": 40, "top_p": nucleus(share, 0.9), "min_p": sum(p >= 0.1 * share[0] for p in share)}


def test_the_opening_state_shows_that_order_matters():
    """The pipeline by hand at T = 1.3, top-k 200, top-p 0.9, min-p 0.05 after 春风. Catches: stages that do not see the rest of the one before."""
    logits = distributions.stored("poem").logits["mini-256"]
    hot, plain = shares(logits, 1.3), shares(logits, 1)

    def rest(share, n):
        return [p / math.fsum(share[:n]) for p in share[:n]]

    first = 200
    second = nucleus(rest(hot, first), 0.9)
    third = sum(p >= 0.05 * hot[0] for p in hot[:second])
    result = WIDGET.run(Params())
    assert [step.count for step in result.steps] == [2048, first, second, third]
    assert [step.mass for step in result.steps] == pytest.approx([1, *(math.fsum(hot[:n]) for n in (first, second, third))])
    cold = nucleus(rest(plain, 200), 0.9)
    last = sum(p >= 0.05 * plain[0] for p in plain[:cold])
    llama = WIDGET.run(Params(order="llama.cpp"))
    assert [step.count for step in llama.steps] == [200, cold, last, last]
    assert [step.mass for step in llama.steps] == pytest.approx([*(math.fsum(plain[:n]) for n in (200, cold, last)), math.fsum(hot[:last])])
    assert result.orders == llama.orders and result.orders["transformers"] == third and result.orders["llama.cpp"] == last
    assert len(set(result.orders.values())) == 3


@pytest.mark.parametrize("params", [Params(), Params(order="llama.cpp"), Params(temperature=0), Params(prompt="manual", temperature=1, top_k=0), Params(top_k=0, top_p=1, min_p=0)])
def test_the_area_is_the_probability(params):
    """Catches: a cell across the boundary, mass lost between cells, and ranks left out."""
    data, result = draw(params).picture.data, WIDGET.run(params)
    assert data["edges"][0] == 1 and data["edges"][-1] == 2049 and result.kept + 1 in data["edges"]
    assert sum(data["mass"]) == pytest.approx(1, abs=1e-4)
    inside = sum(m for edge, m in zip(data["edges"], data["mass"]) if edge <= result.kept)
    assert inside == pytest.approx(result.mass, abs=1e-4) and data["share"] == result.mass
    assert [step["count"] for step in data["steps"]] == [step.count for step in result.steps]
    rows = draw(params).rows
    assert sum(row["p"] for row in rows) == pytest.approx(1) and sum(row["drawn"] for row in rows) == params.draws
    assert rows[-1]["last_rank"] == 2048 and all(row["p"] > 0 for row in rows if row["kept"]) and not any(row["p"] for row in rows if not row["kept"])


def test_curves_are_the_counts():
    """Catches: a chart over T that is computed otherwise than the figures beside it."""
    logits = distributions.stored("poem").logits["mini-256"]
    curves = _curves(logits.tobytes(), 40, 0.9, 0.1)
    for t in (0.3, 1.0, 1.3, 3.0):
        counts = WIDGET.run(Params(temperature=t, top_k=40, top_p=0.9, min_p=0.1)).alone_count
        assert {rule: curve[TEMPERATURES.index(t)] for rule, curve in curves.items()} == counts


def test_draws_have_a_seed_and_stay_inside():
    """Catches: an unseeded draw, and a token that was cut but drawn."""
    one, two, other = (WIDGET.run(Params(seed=seed, draws=10_000)) for seed in (1, 1, 2))
    assert (one.drawn == two.drawn).all() and (one.drawn != other.drawn).any()
    assert one.drawn.sum() == 10_000 and not one.drawn[one.p == 0].any()
    spread = np.sqrt(10_000 * one.p * (1 - one.p))
    assert np.abs(one.drawn - 10_000 * one.p)[one.p > 0].max() < 5 * spread.max()


def test_texts_are_those_of_the_nearest_stored_setting():
    """Catches: texts under a setting that they were not written at."""
    for name, setting in SETTINGS.items():
        result = WIDGET.run(Params(temperature=setting.temperature, top_k=0, top_p=setting.top_p, min_p=setting.min_p))
        assert result.texts.exact and result.texts.sampling == setting and not result.texts.live
        assert list(result.texts.texts) == precompute.trace("sampling.texts.poem")["examples"][name]
    near = WIDGET.run(Params(temperature=1.2, top_k=0, top_p=0.92, min_p=0)).texts
    assert near.sampling == SETTINGS["t1_3.p0_9"] and not near.exact
    assert WIDGET.run(Params(temperature=0.05, top_k=0, top_p=1, min_p=0)).texts.sampling == SETTINGS["t0"]


def test_a_live_answer_and_moves_after_it():
    """Catches: live logits lost with a move of T, and texts passed off as of a setting that has changed."""
    params = Params(text="你好")
    assert WIDGET.live.about(params) == WIDGET.live.about(Params(text="你好", temperature=0.7)) != WIDGET.live.about(Params())
    assert functions.check(WIDGET.live.function, WIDGET.live.arguments(params)) == WIDGET.live.arguments(params)
    assert WIDGET.run(params).waiting
    fresh, stale = WIDGET.run(params, answer()), WIDGET.run(Params(text="你好", temperature=0.7), answer())
    assert fresh.mark == stale.mark == "live" and not fresh.waiting and fresh.texts.exact and not stale.texts.exact
    assert not _written(answer(), Sampling(1.3, 200, 0.9, 0.05), 4).exact, "another seed is another text"
    for lang in ("zh", "en"):
        shown = draw(params, lang, answer()).after
        html = "".join(picture.body for picture in shown if hasattr(picture, "body"))
        assert "<script" not in html and "&lt;script&gt;" in html and "<i>1</i>" in html


def test_orders_can_be_clicked():
    """Catches: a bar without the field that its click sets."""
    orders = draw(Params()).beside[0]
    assert orders.clicks == {"order": "order"} and [row["order"] for row in orders.spec["data"]["values"]] == list(ORDERS)


def test_the_former_state_is_a_ghost():
    """Catches: a move without a trace, and the ghost of another text."""
    before = WIDGET.run(Params(temperature=1))
    data = draw(Params(), before=before).picture.data
    assert data["ghost"]["kept"] == before.kept and len(data["ghost"]["mass"]) == len(data["mass"])
    assert [step["old"] for step in data["steps"]] == [step.count for step in before.steps]
    assert draw(Params(), before=WIDGET.run(Params(prompt="manual"))).picture.data["ghost"] is None


def test_guesses():
    """Catches: a right answer that belongs to another state than the question's."""
    result, guesses = WIDGET.run(Params(top_p=0.9, min_p=0.1)), WIDGET.guesses
    share = shares(distributions.stored("poem").logits["mini-256"], 1.3)
    assert guesses["survivors"].truth(result).value == nucleus(share, 0.9) and guesses["survivors"].right(result) == "500"
    assert guesses["minp"].truth(result).value == sum(p >= 0.1 * share[0] for p in share) and guesses["minp"].right(result) == "60"
    assert guesses["order"].right(WIDGET.run(Params())) == "fewer"


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser shows the same picture")
def test_the_picture_draws_at_every_size():
    """Catches: a coordinate that is no number, at one token kept as at all of them; on a phone one label on the other."""
    moved = WIDGET.run(Params(temperature=2))
    states = (Params(), Params(temperature=0), Params(top_k=0, top_p=1, min_p=0), Params(prompt="manual", temperature=0.2), Params(text="something else"))
    pictures = [draw(params, before=before).picture.data for params in states for before in (None, moved)]
    script = """
    const view = await import('data:text/javascript,' + encodeURIComponent(process.argv[1]));
    const tools = { lang: 'zh', still: false, moved: false, colour: (n) => n, words: (k, v) => k + JSON.stringify(v ?? ''), measure: (s, px) => s.length * px * .8, number: (n) => n.toLocaleString('en-US'), esc: (s) => s };
    for (const data of JSON.parse(process.argv[2])) for (const width of [300, 390, 720, 1152]) {
      const svg = {}; view.draw(svg, data, 0, { ...tools, width });
      if (/NaN|undefined|Infinity/.test(svg.innerHTML)) throw new Error('a coordinate is no number at ' + width + svg.innerHTML.match(/.{80}(NaN|undefined|Infinity)/));
      if (view.height(data, width, { ...tools, width }) > 680) throw new Error('too tall');
      const boxes = [data.kept_says, data.cut_says].map((says) => svg.innerHTML.match(`<text x="([-0-9.]+)" y="([-0-9.]+)" ([^>]*)>${says}<`)).filter(Boolean).map(([all, x, y, more]) => {
        const wide = all.split('>')[1].slice(0, -1).length * 14 * .8, left = more.includes('"end"') ? x - wide : +x;
        return { left, right: left + wide, y };
      });
      if (boxes.length === 2 && boxes[0].y === boxes[1].y && boxes[0].right > boxes[1].left && boxes[1].right > boxes[0].left) throw new Error('labels lie on each other at ' + width);
    }
    """
    run = subprocess.run(["node", "--input-type=module", "-e", script, VIEW_JS.read_text(encoding="utf-8"), json.dumps(pictures)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
