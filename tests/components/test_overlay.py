"""The overlay against sums written out and against the command line, and its picture against its numbers."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import scipy.stats

from components import Scene, frame, overlay
from components.text import LANGUAGES
from compute import distributions, functions, numbers, precompute
from compute.errors import BadInput
from compute.sampling import Sampling, probabilities

WIDGET = overlay.WIDGET
RULES = ("correct", "equal-only", "resample-from-p")


def result(answer=None, **params):
    return WIDGET.run(WIDGET.Params(**params), answer)


def view(found, lang="en", before=None):
    return WIDGET.draw(found, Scene(WIDGET.words(lang), lang, "light", before))


def answer_for(prompt, text):
    """What the service would say, had it the recorded logits of `prompt`."""
    said = distributions.stored(prompt)
    return {"text": text, "prompt_pieces": list(said.prompt_pieces), "logits": {m: row.tolist() for m, row in said.logits.items()},
            "pieces": {}, "conditions": dict(said.conditions)}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_it_shows_what_the_command_line_says(rule):
    """Catches: other draws on the page than from the command for the same seed."""
    asked = {"prompt": "english", "draft": "mini-128", "temperature": 0.8, "top_k": 50, "rule": rule, "seed": 9}
    ours = result(**asked, runs=10_000)
    said = functions.call("speculative.monte_carlo", {**asked, "n": 10_000, "top": 2048})
    assert functions.plain(ours.verdict) == said["verdict"]
    counts = {seen["token"]: seen["count"] for seen in said["top"]}
    assert all(row["count"] == counts[row["token"]] for row in view(ours).rows if row["token"] is not None)


@pytest.mark.parametrize("prompt", distributions.PROMPTS)
@pytest.mark.parametrize("rule", RULES)
def test_areas_add_up(prompt, rule):
    """Catches: a rest that is forgotten, green that is not α, accepted plus redrawn that is not the output."""
    found = result(prompt=prompt, rule=rule)
    rows = overlay.rows(found)
    for of in ("p", "q", "output"):
        assert sum(getattr(row, of) for row in rows) == pytest.approx(1)
    assert sum(row.kept for row in rows) == pytest.approx(found.verdict.acceptance_expected)
    assert sum(row.count for row in rows) == found.runs.n == 100_000
    data = view(found).picture.data
    refused = 1 - found.verdict.acceptance_expected
    for row in data["rows"]:
        assert row["kept"] <= row["q"] + 1e-12 and row["kept"] + refused * row["second"] == pytest.approx(row["output"])
    assert sum(row["second"] for row in data["rows"]) == pytest.approx(1)
    on_the_line = all(abs(row["output"] - row["p"]) < 1e-9 for row in data["rows"])
    assert on_the_line == (rule != "resample-from-p")


def test_the_biased_rule_leaves_the_band_and_the_honest_ones_do_not():
    """12 seeds: an honest run has a row outside in 5 of 100, so more than 5 of 24 has a chance of 1 in 1,000. Catches: a band
    of the wrong width, errors counted with the wrong spread."""
    strays = 0
    for seed in range(12):
        for rule in RULES:
            rows = overlay.rows(result(rule=rule, seed=seed))
            judged = [row for row in rows if row.z is not None]
            for row in judged:
                assert row.z == pytest.approx((row.count - 100_000 * row.p) / np.sqrt(100_000 * row.p * (1 - row.p)))
            assert overlay.band(rows) == pytest.approx(scipy.stats.norm.isf(0.025 / len(judged)))
            if rule == "resample-from-p":
                assert overlay.outside(rows) > len(judged) / 2
            else:
                strays += overlay.outside(rows) > 0
    assert strays <= 5


def test_the_candidates_are_the_likeliest_in_the_targets_order():
    """Catches: a draft's favourite left out because the target does not like it; an order that jumps."""
    found = result()
    rows = overlay.rows(found)[:-1]
    assert len(rows) == overlay.SHOWN
    cut = min(max(row.p, row.q) for row in rows)
    hidden = np.setdiff1d(np.arange(2048), [row.token for row in rows])
    assert np.maximum(found.p, found.q)[hidden].max() <= cut
    assert [row.p for row in rows] == sorted((row.p for row in rows), reverse=True)
    assert int(found.q.argmax()) in [row.token for row in rows]


def test_certain_and_excluded_tokens():
    """Temperature 0 and top-k. Catches: a division by zero, a token that the target excludes shown as possible."""
    for params in ({"temperature": 0}, {"top_k": 1, "draft": "mini-128"}, {"temperature": 0, "rule": "resample-from-p"}, {"top_k": 5, "runs": 1000}):
        found = result(**params)
        shown = view(found)
        assert found.verdict.agrees and all(row["z"] in (None, 0.0) or abs(row["z"]) < 6 for row in shown.picture.data["rows"])
        assert all(row["count"] == 0 for row in shown.rows if row["p"] == 0)
    greedy = result(temperature=0)
    assert greedy.verdict.acceptance == float(greedy.p.argmax() == greedy.q.argmax())


def test_more_draws_push_the_bias_further_out():
    """Standard errors grow with √n. Catches: a scale that follows the number of draws."""
    few, many = (view(result(rule="resample-from-p", runs=runs)).picture.data for runs in (10_000, 100_000))
    assert many["farthest"] / few["farthest"] == pytest.approx(np.sqrt(10), rel=0.2)
    same = {view(result(rule=rule)).picture.data["farthest"] for rule in ("correct", "equal-only")}
    assert len(same) == 1, "rules that are compared share their scale"


def test_own_text_waits_for_the_model_then_is_live():
    """Catches: the example's numbers under the learner's words, pieces that are not escaped or not known."""
    waiting = result(text="Tom gave the <b>ball</b> to")
    assert waiting.waiting and waiting.mark == "precomputed" and waiting.said.text == distributions.PROMPTS["giving"]
    assert view(waiting).picture.data["waiting"]
    assert not result(text=distributions.PROMPTS["poem"]).waiting and result(text=distributions.PROMPTS["poem"]).said.text == distributions.PROMPTS["poem"]
    answer = answer_for("english", "Tom gave the <b>ball</b> to")
    live = result(answer, text="Tom gave the <b>ball</b> to")
    assert live.mark == "live" and not live.waiting
    p = probabilities(np.array(answer["logits"]["mini-256"]), Sampling())
    assert live.p == pytest.approx(p)
    assert "Tom gave the <b>ball</b> to" in view(live).sentence, "the frame escapes it"
    cooler = result(answer, text="Tom gave the <b>ball</b> to", temperature=0.5)
    arguments = WIDGET.live.arguments
    assert cooler.mark == "live" and arguments(cooler.params) == arguments(live.params), "a live answer outlasts the sliders"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_verdict_is_in_words(lang):
    """Catches: a sentence that says p where it is not."""
    words = WIDGET.words(lang)
    for rule in RULES:
        found = result(rule=rule, prompt="english")
        said = view(found, lang).sentence
        right, wrong = ("cannot", "agrees") if rule == "resample-from-p" else ("agrees", "cannot")
        assert words(f"verdict.{right}") in said and words(f"verdict.{wrong}") not in said
        assert view(found, lang).picture.data["says"]["agrees"] == (right == "agrees")


def test_the_derivation_holds_this_prompts_numbers():
    """Catches: a derivation whose arithmetic does not come out."""
    found = result()
    token = int(np.argmax(found.q - found.p))
    text = view(found).derivation
    p, q, refused = found.p[token], found.q[token], 1 - np.minimum(found.p, found.q).sum()
    for number in (f"{q:.4f} \\times {p / q:.4f} = {p:.4f}", f"{refused:.4f}", f"{p + refused * p:.4f}"):
        assert number in text, number
    assert "equal everywhere" in view(result(top_k=1, draft="mini-128")).derivation


def test_guesses():
    """Catches: a truth that depends on the rule chosen, a right answer far from the truth."""
    for rule in RULES:
        found = result(rule=rule)
        alpha, bias = WIDGET.guesses["alpha"], WIDGET.guesses["bias"]
        assert alpha.truth(found).value == pytest.approx(0.4555, abs=1e-4) and bias.truth(found).value == pytest.approx(0.1922, abs=1e-4)
        assert bias.right(found) == "20"


def test_impossible_settings():
    """Catches: a link with a top-p of 0 that empties the distribution."""
    for wrong in ({"top_p": 0}, {"temperature": -1}, {"runs": 10**7}, {"rule": "lucky"}, {"prompt": "mine"}, {"text": "x" * 201}):
        with pytest.raises((BadInput, ValueError)):
            WIDGET.Params(**wrong)


def test_the_former_state_is_a_ghost_only_of_the_same_text():
    """Catches: hollow dots of another prompt's tokens."""
    now = result(temperature=0.7)
    data = view(now, before=result()).picture.data
    assert data["ghost"] and all(row["old"] is None or row["old"]["p"] > 0 for row in data["rows"])
    assert not view(now, before=result(prompt="poem")).picture.data["ghost"]


def test_prose_and_picture_follow_the_store_together(monkeypatch, tmp_path):
    """Catches: a server on which the store is made again, and a picture of the old figures beside prose with the new ones, or the other way
    round: each has caches of its own."""
    shutil.copytree(precompute.STORE.parent / "precomputed", tmp_path / "precomputed")
    shutil.copy(precompute.STORE, tmp_path)
    monkeypatch.setattr(precompute, "STORE", tmp_path / precompute.STORE.name)

    def told():
        found = frame._outcome(WIDGET, WIDGET.Params(prompt="giving", temperature=1.0), {"answer": None})
        token = next(token for token, piece in found.said.pieces.items() if piece == "小明")
        return found.p[token], numbers.resolve("=speculative.giving.over.p").value, numbers.resolve("=sampling.giving.second").value

    before = told()
    assert before[0] == before[1]
    kept = precompute.trace("next.giving.entropy")
    kept = kept | {"logits": kept["logits"] | {overlay.TARGET: [0.5 * each for each in kept["logits"][overlay.TARGET]]}}
    entries = json.loads(precompute.STORE.read_text(encoding="utf-8"))
    file = json.dumps(kept).encode()
    (tmp_path / "precomputed" / "again.json").write_bytes(file)
    entries["entries"]["next.giving.entropy"]["trace"] |= {"file": "precomputed/again.json", "sha256": hashlib.sha256(file).hexdigest()}
    precompute.STORE.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    after = told()
    assert after[0] == after[1] and all(new != old for new, old in zip(after, before))
