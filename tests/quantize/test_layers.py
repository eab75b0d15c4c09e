"""One matrix at a time: errors against norms written out, and what is stored against the checkpoint and against reason."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from compute import facts, precompute
from compute.measures import layers
from compute.measures.layers import ALPHAS, BITS, COLUMNS, MATRICES, PLANTED, ROWS, SMOOTHED
from compute.quantize import outliers


def kept(matrix: str, name: str):
    return precompute.trace(f"quantize.layers.{matrix}.{name}")


def test_output_error_is_the_norm_of_what_comes_out():
    """Catches a square that was not undone, or a Hessian of the wrong side. Referee: the outputs themselves."""
    rng = np.random.default_rng(0)
    w, change, x = rng.normal(size=(5, 7)), rng.normal(size=(5, 7)), rng.normal(size=(40, 7))
    assert layers.relative_error(change, w, 2 / 40 * x.T @ x) == pytest.approx(np.linalg.norm(change @ x.T) / np.linalg.norm(w @ x.T))
    assert layers.weight_error(change, w) == pytest.approx(np.sqrt((change**2).sum() / (w**2).sum()))


def test_linked_finds_the_channels_that_go_together():
    """Catches: strength confused with size, or with sign. Channels 2, 5 and 9 follow one signal, 5 against it and very small;
    channel 0 is large and alone; channel 7 never was on."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 12))
    signal = rng.normal(size=500)
    x[:, 2], x[:, 5], x[:, 9], x[:, 0], x[:, 7] = signal, -0.001 * signal, signal + 0.1 * rng.normal(size=500), 100 * x[:, 0], 0
    assert layers.linked(x.T @ x, 3) == [2, 5, 9]
    assert np.allclose(layers.correlation(x.T @ x)[7], 0)


def test_w8a8_by_hand():
    """Catches a scale for the wrong axis. One token (4, −1), one row (1, 0.5): codes 127, −32 and 127, 64; steps 4/127 and 1/127,
    the latter as a 16-bit float."""
    x, w = np.array([[4, -1]], np.float32), np.array([[1, 0.5]], np.float32)
    made = (127 * 127 + -32 * 64) * (4 / 127) * float(np.float16(1 / 127))
    assert layers.w8a8_error(x, w) == pytest.approx(abs(made - 3.5) / 3.5, rel=1e-4)


FILES = {"out": "self_attn.o_proj", "down": "mlp.down_proj"}


@pytest.mark.parametrize("matrix", [name for name in MATRICES if name.split(".")[1] in FILES])
def test_the_parts_are_the_models_own_weights(matrix):
    """Catches rows taken for columns, and a part of another matrix. Referee: the checkpoint's file."""
    layer, part = matrix.split(".")
    weights = load_file(next((facts.DATA / "checkpoints" / "mini-256").glob("*.safetensors")))[f"model.layers.{layer}.{FILES[part]}.weight"]
    trace = kept(matrix, "gptq_ratio")
    assert tuple(trace["shape"]) == weights.shape
    for name in ("linked", "neighbours"):
        found = trace[name]
        assert len(trace["rows"]) == ROWS and len(found["columns"]) == COLUMNS == len(set(found["columns"]))
        assert (np.array(found["weights"], np.float32) == weights[np.ix_(trace["rows"], found["columns"])]).all()


@pytest.mark.parametrize("matrix", MATRICES)
def test_gptq_trades_weights_for_outputs_everywhere(matrix):
    """Catches two columns of the table swapped. Nearest is nearest: no rounding to the same grid lies closer to the weights; and on a
    whole matrix GPTQ's output is closer at every width of ours."""
    trace = kept(matrix, "gptq_ratio")
    assert [row["bits"] for row in trace["whole"]] == list(BITS)
    for row in trace["whole"]:
        for name in ("gptq", "gptq_order"):
            assert row[f"{name}_output"] < row["rtn_output"] and row[f"{name}_weight"] > row["rtn_weight"]
    for name in ("linked", "neighbours"):
        h = np.array(trace[name]["hessian"])
        assert np.allclose(h, h.T) and np.linalg.eigvalsh(h).min() > 0


@pytest.mark.parametrize("matrix", PLANTED)
def test_planting_is_undone_by_smoothing(matrix):
    """Catches a planted model that is another function, or outliers in other channels than are drawn. A factor f of a channel's
    activations and 1/f of its weights makes s f times larger at every α, so that the same products remain."""
    real, planted = (kept(matrix, "outlier")[name] for name in ("real", "planted"))
    f = np.ones(len(real["activations"]))
    f[outliers.planted_channels(len(f))] = outliers.FACTOR
    assert np.allclose(planted["activations"], np.array(real["activations"]) * f, rtol=1e-3)
    assert np.allclose(planted["weights"], np.array(real["weights"]) / f, rtol=1e-3)
    assert np.allclose(planted["smoothed"], real["smoothed"], rtol=0.01) and planted["plain"] > 10 * real["plain"]


def test_what_is_stored_of_w8a8():
    """Catches a curve of another length, and a best α that is not the least of its curve."""
    for matrix in SMOOTHED:
        real = kept(matrix, "outlier")["real"]
        assert len(real["smoothed"]) == len(ALPHAS) == 21
        best = precompute.stored()[f"quantize.layers.{matrix}.best_alpha"]["value"]
        assert real["smoothed"][ALPHAS.index(best)] == min(real["smoothed"]) < 0.05


def test_another_calibration_text_is_another_job(monkeypatch, tmp_path):
    """Catches stored layers of a text that is no longer there."""
    from compute.quantize import calibration

    before = {job.inputs() for job in layers.jobs()}
    other = tmp_path / "other.json"
    other.write_text('{"texts": [[0, 1]]}')
    monkeypatch.setattr(calibration, "FILE", other)
    assert not before & {job.inputs() for job in layers.jobs()}
