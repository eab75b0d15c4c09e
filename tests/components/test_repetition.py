"""The repetition table against its stored numbers, and the stored numbers against counting again."""

import math

import numpy as np
import pytest

from components import Scene
from components.repetition import END, WIDGET, Params
from compute import measures, precompute
from compute.errors import BrokenData
from compute.measures import sampling
from compute.measures.sampling import MEASURED, SETTINGS


def draw(params: Params, lang: str = "zh", before=None):
    return WIDGET.draw(WIDGET.run(params), Scene(WIDGET.words(lang), lang, "light", before))


def test_every_setting_and_measure_is_there():
    """Catches: a cell that was not stored, a value outside its interval, a share above one."""
    table = WIDGET.run(Params()).table
    assert set(table) == set(SETTINGS) and len(SETTINGS) == 13
    for setting, cells in table.items():
        assert set(cells) == set(MEASURED)
        for measure, cell in cells.items():
            assert cell.low <= cell.value + 1e-12 and cell.value <= cell.high + 1e-12, (setting, measure)
            assert cell.n == (16 if setting == "t0" else 64)
            assert 0 <= cell.low and (measure in ("kept", "entropy") or cell.high <= 1)
    assert table["t0"]["kept"].value == 1 and table["t0"]["entropy"].value == 0
    assert table["t1.p1"]["kept"].value == 2048, "nothing cut"


def test_what_the_lesson_says_is_what_was_measured():
    """Catches: a sentence on the page that the numbers do not bear out."""
    table = WIDGET.run(Params()).table

    def of(measure, *settings):
        return [table[s][measure].value for s in settings]

    falling = of("repetition4", "t0", "t0_7.p1", "t1.p1", "t1_3.p1")
    assert falling == sorted(falling, reverse=True), "repetition falls with T"
    cool, hot = of("kept", "t0_7.p0_9", "t1_3.p0_9")
    cool_m, hot_m = of("kept", "t0_7.minp0_1", "t1_3.minp0_1")
    assert hot - cool > 5 * (hot_m - cool_m) and hot > 5 * hot_m, "top-p lets in far more than min-p when it is hot"


@pytest.mark.parametrize("setting", SETTINGS)
def test_marked_runs_are_the_repetition(setting):
    """Catches: text marked as repeated that is not. A run that repeats must have been there before, but for its edges."""
    for example in precompute.trace(f"sampling.{setting}.repetition4")["examples"]:
        assert any(again for _, again in example["runs"]) == (example["repetition4"] > 0)
        assert all(a != b for (_, a), (_, b) in zip(example["runs"], example["runs"][1:])), "neighbouring runs differ"
    view = draw(Params(setting=setting))
    marked = view.beside[0].body
    assert marked.count("<mark>") == 1 + sum(again for _, again in WIDGET.run(Params(setting=setting)).text.runs), "and one in the caption"
    assert END not in marked


def test_runs_by_hand():
    """Tokens a b c d a b c d a: three 4-grams come again, ended by d, a and the last a's predecessor. Catches: a mark one token late."""

    class Letters:
        class tokenizer:
            @staticmethod
            def bytes_of(token):
                return b"abcd"[token : token + 1]

    assert sampling.runs(Letters, (0, 1, 2, 3, 0, 1, 2, 3, 0)) == [("abcdabc", False), ("da", True)]
    assert sampling.runs(Letters, (0, 0, 0)) == [("aaa", False)]


def test_intervals_by_hand():
    """Catches: an interval over texts instead of prompts, or of the values instead of their mean. For 16 prompts whose means are
    0 or 1 the mean of a resample is binomial: B(16, ½)/16 lies between 4/16 and 12/16 in 95 of 100."""
    assert sampling.interval(np.array([0.0, 1.0] * 8)) == (0.25, 0.75)
    assert sampling.interval(np.full(16, 3.0)) == (3.0, 3.0)


def test_names_of_the_stored_numbers():
    """Catches: a key that prose cannot guess."""
    keys = {key for job in measures.jobs() for key in job.keys}
    assert {"sampling.t0.repetition4", "sampling.t1_3.p0_9.kept", "sampling.t1_3.minp0_1.kept", "sampling.t0_7.p1.distinct2"} <= keys
    entries = precompute.stored()
    assert entries["sampling.t1_3.p0_9.kept"]["reference"]["value"] == 664 and entries["sampling.t0.repetition4"]["reference"]["value"] == 0.47
    assert all(entries[f"sampling.{s}.{m}"]["reference"]["why_different"]["zh"] for s, m in sampling.REFERENCES)


@pytest.mark.parametrize("measure", ["repetition4", "kept", "entropy", "distinct2"])
def test_the_chart_has_a_row_a_setting_and_a_click(measure):
    """Catches: a bar that cannot be clicked, an axis that cuts a dot, a logarithm of zero."""
    view = draw(Params(measure=measure))
    rows = view.picture.spec["data"]["values"]
    assert [row["setting"] for row in rows] == list(SETTINGS) and view.picture.clicks == {"setting": "setting"}
    least, most = rows[0]["from"], rows[0]["to"]
    assert all(least <= row["low"] and row["high"] <= most for row in rows)
    assert measure != "kept" or least > 0
    assert all(math.isfinite(row["value"]) for row in rows)


def test_references_stand_beside_ours():
    """Catches: a published number without its source or the reason for the difference."""
    quoted = [q for q in draw(Params(measure="kept")).papers if q.kind == "quoted"]
    assert {q.value for q in quoted} == {664, 34} and all(q.source.title and q.conditions["why ours differs"]["en"] for q in quoted)


def test_choosing_another_setting_says_what_was():
    """Catches: read-outs without the change."""
    view = draw(Params(setting="t1_3.p0_9"), before=WIDGET.run(Params()))
    assert "37.0%" in view.readouts[0].change and view.readouts[1].change


def test_guesses():
    """Catches: a right answer that is not what was measured."""
    result = WIDGET.run(Params())
    assert WIDGET.guesses["greedy"].right(result) == "40" and WIDGET.guesses["greedy"].truth(result).value == result.table["t0"]["repetition4"].value
    assert WIDGET.guesses["kept"].right(result) == "more"


def test_without_stored_numbers_it_says_what_to_do(monkeypatch, tmp_path):
    """Catches: an empty chart or a traceback."""
    monkeypatch.setattr(precompute, "STORE", tmp_path / "precomputed.json")
    with pytest.raises(BrokenData, match="sampling.t0.*precompute"):
        WIDGET.run(Params())


def test_the_guess_about_tokens_kept_is_told_as_a_ratio():
    """Catches: choices in times, answered in tokens."""
    guess, result = WIDGET.guesses["kept"], WIDGET.run(Params())
    told = guess.truth(result)
    assert told.unit == "×" and guess.right(result) == "more"
    assert told.value == pytest.approx(result.table["t1_3.p0_9"]["kept"].value / result.table["t0_7.p0_9"]["kept"].value) and told.value > 3
