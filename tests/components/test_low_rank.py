"""The latent picture: bytes and readings by hand, what is drawn is what is computed, widths that were not measured say so."""

import numpy as np
import pytest

from components import Scene
from components.low_rank import WIDGET, Params, run
from compute import latent


def draw(params=Params(), lang="zh", before=None):
    return WIDGET.draw(run(params), Scene(WIDGET.words(lang), lang, "light", before))


def test_read_outs_by_hand():
    """Catches: K and V exchanged, bytes of one layer for all. r = 64: 64 × 2 B × 4 layers."""
    result = run(Params())
    W = latent.layer(1).keys_values.astype(np.float64)
    U = np.linalg.svd(np.linalg.cholesky(latent._energy()[1] + 1e-12 * np.eye(256)))[0][:, :64]  # C = L Lᵀ: left singular vectors of L are C's eigenvectors
    y = latent.read_text(Params().text)[1][1].hidden.astype(np.float64) @ W.T
    again = y @ U @ U.T
    error = lambda part: np.linalg.norm((again - y)[:, part]) / np.linalg.norm(y[:, part])  # noqa: E731
    assert result.lost.keys == pytest.approx(error(slice(0, 128)), rel=1e-3) and result.lost.values == pytest.approx(error(slice(128, 256)), rel=1e-3)
    assert [r.value for r in draw().readouts][0] == "512"
    assert "0.252" in draw().sentence and "0.252" in draw(lang="en").sentence


def test_drawn_vectors_are_the_tokens(monkeypatch):
    """Catches: vectors of another token than the marked one; one beyond the text means its last."""
    stage = draw(Params(token=40)).picture.data
    assert stage["token"] == len(stage["tokens"]) - 1 and len(stage["c"]) == 64 and len(stage["halves"][0]["values"]) == 128
    seen = latent.read_text(Params().text)[1][1]
    assert stage["hidden"] == pytest.approx(seen.hidden[-1], abs=1e-3)


def test_every_width_or_that_it_was_not_measured():
    """Catches: the loss of a neighbouring width printed for one that was never measured; the full width called a loss."""
    assert run(Params(rank=100)).chosen is None and draw(Params(rank=100)).readouts[-1].value == "–"
    assert draw(Params(rank=256)).readouts[-1].value == "0"
    assert run(Params(rank=64, weighing="weights")).chosen.change.value > run(Params(rank=64)).chosen.change.value
    assert run(Params(rank=96, weighing="weights")).chosen is None


def test_the_guess_is_about_equal_bytes():
    """Catches: a ratio of two widths."""
    guess, result = WIDGET.guesses["mqa"], run(Params())
    assert result.of("mqa").numbers == 128 and guess.truth(result).value == pytest.approx(result.of("mqa").change.value / result.of("latent-128").change.value)
    assert guess.right(result) == "far"
