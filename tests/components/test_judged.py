"""The judged table as an instrument: every published run is in it once, and its figures are those of the clock."""

from __future__ import annotations

import numpy as np
import pytest

from components import Scene, judged
from compute import calibrated
from compute.judged import judgements


def seen(lang: str = "en", **params):
    result = judged.run(judged.Params(**params))
    return result, judged.draw(result, Scene(judged.WIDGET.words(lang), lang, "light"))


def test_every_published_run_is_in_exactly_one_lane():
    """Catches a run that fits no lane, and one that counts twice."""
    for run in judgements():
        assert sum(holds(run) for holds in judged.GROUPS.values()) == 1, run
    result, view = seen()
    assert len([row for row in view.rows if row["row"] == "run"]) == len(judgements()) == len(result.runs)


@pytest.mark.parametrize("group", judged.GROUPS)
@pytest.mark.parametrize("lang", ("zh", "en"))
def test_the_figures_are_means_of_the_rows(group, lang):
    """Catches a lane whose figure is another's."""
    result, view = seen(lang, group=group)
    rows = [row for row in view.rows if row["row"] == "run" and row["group"] == group]
    speeds = [row["calibrated"] / row["published"] if row["what"] == "throughput" else row["published"] / row["calibrated"] for row in rows]
    mean = np.mean([abs(speed - 1) for speed in speeds])
    assert result.summary.mean == pytest.approx(mean)
    assert judged.percent(mean) in view.sentence and view.readouts[0].value == judged.percent(mean).rstrip("%")


def test_the_table_shows_the_two_runs_that_count():
    """Catches a table that leaves out or rounds away what was published."""
    _, view = seen()
    table = view.after[0].body
    assert "5,353" in table or "5,350" in table
    made = calibrated.generate("llama-7b", "a100-80g-sxm", 256, 128, 128)
    row = next(row for row in view.rows if row["row"] == "run" and row["published"] == 5353)
    assert row["calibrated"] == pytest.approx(made.calibrated.tokens_per_second) and row["ideal"] == pytest.approx(made.ideal.tokens_per_second)


def test_kernels_are_predicted_by_the_fitted_shares():
    """Catches dots drawn by another class's factors: written out for the first kernel of the sample."""
    result, _ = seen(chip="h100-sxm", kernel="gemm")
    shape, flops, bytes_, measured = calibrated.file()["samples"]["h100-sxm"]["bf16"]["gemm"][0]
    rate = calibrated.classes()["h100-sxm"]["bf16"].gemm
    first = result.kernels[0]
    assert (first.shape, first.measured) == (shape, measured)
    assert first.fitted == pytest.approx(((flops / rate.compute) ** 2 + (bytes_ / rate.memory) ** 2) ** 0.5 + rate.launch_seconds)
    m, k, n = (int(part) for part in shape.split(" × "))
    assert flops == pytest.approx(2 * m * k * n / 989.5e12, rel=1e-3) and bytes_ == pytest.approx(2 * k * n / 3.35e12, rel=1e-3)
