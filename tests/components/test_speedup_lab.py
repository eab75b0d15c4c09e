"""The speed-up lab against arithmetic written out, and its simulation against its formula."""

import statistics

import pytest

from components import Scene, speedup_lab
from components.text import LANGUAGES
from compute import speculative

WIDGET = speedup_lab.WIDGET


def result(**params):
    return WIDGET.run(WIDGET.Params(**params))


def view(found, lang="en", before=None):
    return WIDGET.draw(found, Scene(WIDGET.words(lang), lang, "light", before))


def test_it_opens_at_the_worked_example():
    """α = 0.8, k = 4, c = 0.05: 3.36 and 2.8. Catches: other defaults, c·k forgotten."""
    found = result()
    assert found.expected == pytest.approx(1 + 0.8 + 0.64 + 0.512 + 0.4096) and found.speedup == pytest.approx(3.3616 / 1.2)
    shown = {r.label: r.value for r in view(found).readouts}
    assert shown["Formula: per forward"] == "3.36" and shown["Speed-up"] == "2.80"


def test_best_k_is_the_top_of_the_curve():
    """Catches: a mark beside the maximum, k = 0 left out where no guess pays."""
    for alpha, c in ((0.8, 0.05), (0.5, 0.2), (0.3, 0.6), (0.95, 0.01), (0.0, 0.0)):
        found = result(alpha=alpha, c=c)
        assert found.curve[0] == 1 and found.curve[found.best] == max(found.curve)
        for k, speed in enumerate(found.curve):
            assert speed == pytest.approx(sum(alpha**i for i in range(k + 1)) / (1 + c * k))
    assert result().best == 8 and result(alpha=0.3, c=0.6).best == 0 and result(alpha=0.99, c=0).best == 16


def test_it_pays_exactly_below_the_cost_it_names():
    """Catches: a break-even that is not one."""
    found = result(alpha=0.6, k=5)
    assert speculative.speedup(0.6, 5, found.pays_below) == pytest.approx(1)
    assert result(alpha=0.6, k=5, c=min(1, found.pays_below + 0.01)).speedup < 1 < result(alpha=0.6, k=5, c=found.pays_below - 0.01).speedup


@pytest.mark.parametrize("alpha, k", [(0.8, 4), (0.4, 8), (1.0, 3), (0.0, 5)])
def test_the_simulation_agrees_with_the_formula(alpha, k):
    """Over seeds. Catches: rounds that count what comes after a rejection; an interval that covers far too rarely or always."""
    runs = [result(alpha=alpha, k=k, seed=seed) for seed in range(60)]
    assert all(len(run.accepted) == 1000 and max(run.accepted) <= k for run in runs)
    inside = sum(run.interval95[0] - 1e-9 <= run.expected <= run.interval95[1] + 1e-9 for run in runs)
    assert inside >= 51, "95 % of 60 is 57; fewer than 51 has a chance below one in a hundred"
    one = runs[0]
    assert one.mean == pytest.approx(statistics.fmean(a + 1 for a in one.accepted))
    half = 1.959964 * statistics.stdev(one.accepted) / 1000**0.5
    assert one.interval95 == pytest.approx((one.mean - half, one.mean + half))


def test_the_stage_plays_every_round():
    """Catches: a player with fewer steps than rounds, a picture of another seed."""
    for seed in (0, 1):
        stage = view(result(seed=seed)).picture
        assert stage.steps == len(stage.data["accepted"]) == 1000 and stage.start == 5
        assert list(stage.data["accepted"]) == speculative.play_rounds(0.8, 4, 1000, seed).tolist()
    assert view(result(seed=0)).picture.data["accepted"] != view(result(seed=1)).picture.data["accepted"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_sentences_say_what_the_numbers_say(lang):
    """Catches: "the best k" beside another one, a loss called a gain."""
    words = WIDGET.words(lang)
    cases = {"end.none": {"alpha": 0.1, "c": 0.5}, "end.here": {"k": 8}, "end.most": {"alpha": 1.0, "k": 16, "c": 0.0}}
    for key, params in cases.items():
        assert view(result(**params), lang).sentence.endswith(words(key, k=params.get("k", 4)).strip()), key
    assert "k = 8" in view(result(), lang).sentence and "k = 16" in view(result(alpha=0.99, c=0.0), lang).sentence
    notes = [r.note for r in view(result(alpha=0.1, c=0.5), lang).readouts]
    assert words("note.speedup.loses") in notes and words("note.best_none") in notes


def test_it_says_what_it_assumes():
    """Catches: a formula shown as if it were a measurement."""
    for lang, needed in (("zh", ("独立", "一样快", "fp32")), ("en", ("independently", "as long as", "fp32"))):
        assert all(word in view(result(), lang).simplified for word in needed)


def test_the_guess_is_judged_by_the_curve():
    """Catches: "the more, the better" called right."""
    guess = WIDGET.guesses["k"]
    assert guess.right(result()) == "8" and guess.truth(result()).value == 8
    assert guess.right(result(alpha=0.99, c=0.0)) == "16" and guess.right(result(alpha=0.3, c=0.6)) == "2"


def test_the_ghost_is_the_former_curve():
    """Catches: a ghost that is the present curve."""
    data = view(result(c=0.2), before=result()).picture.data
    assert data["ghost"] == {"curve": result().curve, "k": 4} and data["curve"] != result().curve
    assert view(result(), before=result()).picture.data["ghost"] is None


def test_measured_drafts_are_dots_at_their_fastest_k(monkeypatch):
    """Catches: a draft drawn once for each k, sampled runs among the greedy ones, a dot without its papers."""
    about = {"unit": "×", "kind": "measured", "conditions": {"machine": "this"}, "says": {"zh": "草稿", "en": "draft"}}
    stored = {f"drafting.mini-64.k{k}.t{t}.speedup": about | {"value": v, "interval95": [v - 0.1, v + 0.1]} for k, t, v in ((2, 0, 0.8), (4, 0, 0.9), (4, 1, 1.5), (32, 0, 3.0))}
    monkeypatch.setattr(speedup_lab.numbers, "measured_entries", lambda: stored)
    found = result()
    assert [(d.name, d.k, d.quantity.value) for d in found.drafts] == [("mini-64", 4, 0.9)]
    shown = view(found)
    assert shown.picture.data["drafts"] == [{"name": "mini-64", "k": 4, "speedup": 0.9, "interval": (0.8, 1.0)}]
    assert found.drafts[0].quantity in shown.papers and "own α and c" in shown.simplified
    monkeypatch.setattr(speedup_lab.numbers, "measured_entries", dict)
    assert view(result()).picture.data["drafts"] == [] and "own α and c" not in view(result()).simplified
