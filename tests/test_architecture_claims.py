"""Figures of the architecture lesson, with the arithmetic written out."""

import math

import pytest

from compute import numbers


@pytest.mark.parametrize("name,value", [
    ("=arch.anchor.mha_over_gqa", 24 / 4),
    ("=arch.deepseek.as_mha", 61 * 128 * (192 + 128) * 2), ("=arch.deepseek.mha_over_mla", 128 * (192 + 128) / (512 + 64)),
    ("=arch.mini.numbers", 2 * 2 * 64), ("=arch.mini.copies", 2 * 4 * 64), ("=arch.mini.one_head", 2 * 64),
    ("=arch.layer.state", 48 * 128 * 128 * 4), ("=arch.layer.kv", 2 * 4 * 256 * 2),
    ("=arch.even.held", 3 * 2**20 / 4096), ("=arch.even.moved", 6 * 2**20 / 4096), ("=arch.anchor.even", math.ceil(150_994_944 / 65_536)),
    ("=arch.anchor.hybrid_32k", 32768 * 65_536 + 150_994_944), ("=arch.anchor.all_full_32k", 32768 * 64 * 4096),
    ("=arch.recall.state_numbers", 64 * 64), ("=arch.recall.pair_numbers", 128 * 2 * 64),
    ("=arch.deepseek.experts", 256), ("=arch.deepseek.chosen", 8), ("=arch.deepseek.shared", 1),
    ("=arch.deepseek_v3.active_share", 37 / 671), ("=arch.glm_5.active_share", 40 / 744), ("=arch.deepseek.cards", 9), ("=arch.deepseek.active_bytes", 37e9),
    ("=arch.quiz.mla", 576 * 2 * 60), ("=arch.quiz.even", 32 * 128 * 128 * 4 / (2 * 8 * 128 * 2)),
])  # fmt: skip
def test_by_hand(name, value):
    """Catches: a state counted in 16 bits, K and V forgotten or counted twice, a layer too many, shares the wrong way round."""
    assert numbers.resolve(name).value == pytest.approx(value, rel=1e-12)


def test_the_price_falls_as_more_is_kept():
    """Catches: losses stored under each other's names. Equal bytes: the latent is far ahead of the mean of heads, and directions by
    activations ahead of directions by weights."""
    change = [numbers.resolve(f"~latent.mini-256.r{r}.loss_change").value for r in (16, 32, 64, 96, 128, 160, 192, 224)]
    assert change == sorted(change, reverse=True)
    of = lambda key: numbers.resolve(f"~latent.mini-256.{key}.loss_change").value  # noqa: E731
    assert of("mqa") > 50 * of("r128") and of("weights-r64") > 1.5 * of("r64")
    assert numbers.resolve("=arch.mini.mqa_over_latent").value == pytest.approx(of("mqa") / of("r128"))


def test_the_stored_loss_comes_out_on_a_few_windows():
    """Catches: a change measured on other weights than the ones that are named; eight windows of the same text, r = 64."""
    import numpy as np

    from compute.engine import latents
    from compute.engine.registry import shared
    from compute.quantize import loss

    model = shared().get("mini-256")
    text = loss.read_text(model).some(8)
    before, after = loss.losses(model.weights, text), loss.losses(latents.low_rank(model.weights, 64), text)
    found = float((after - before).sum() / np.sum(text.counts))
    assert 0.1 < found < 0.5 and numbers.resolve("~latent.mini-256.r64.loss_change").value == pytest.approx(found, abs=0.15)
