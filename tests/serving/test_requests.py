"""Arrivals and lengths against their distributions."""

from __future__ import annotations

import numpy as np
import pytest

from compute.batching_requests import requests as paragraphs
from compute.errors import BadInput, UnknownName
from compute.serving.requests import KINDS, WORKLOADS, Lengths, arrivals, lengths


@pytest.mark.parametrize("kind, deviation", [("poisson", 1.0), ("even", 0.0), ("bursty", 2.0)])
def test_gaps_have_their_mean_and_deviation(kind, deviation):
    """Catches: a rate taken for a gap, bursts that change the rate, gaps that follow each other in a pattern."""
    times = arrivals(kind, 4.0, 40_000, 1)
    gaps = np.diff(times, prepend=0.0)
    assert (gaps >= 0).all() and times[-1] == pytest.approx(10_000, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(deviation, abs=0.06)
    if deviation:
        assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.03
    counts = np.histogram(times, np.arange(0, times[-1], 5.0))[0]
    assert counts.var() / counts.mean() == pytest.approx(deviation**2, rel=0.3, abs=0.3)  # Poisson: 1


def test_rates_stretch_the_same_gaps():
    """Catches: other random numbers at another rate, which would make a curve over rates ragged; a seed that changes nothing."""
    for kind in ("poisson", "bursty"):
        np.testing.assert_allclose(arrivals(kind, 8.0, 100, 3), arrivals(kind, 2.0, 100, 3) / 4)
        assert not np.allclose(arrivals(kind, 2.0, 100, 3), arrivals(kind, 2.0, 100, 4))
        assert arrivals(kind, 2.0, 100, 3)[:50].tolist() == arrivals(kind, 2.0, 50, 3).tolist()


def test_a_replay_keeps_the_record():
    """Catches: gaps in another order, a record that is stretched without being asked, one that ends too early."""
    record = [10.0, 10.5, 13.0, 11.0]
    gaps = [0.5, 0.5, 2.0]
    assert np.diff(arrivals("replay", None, 4, times=record)).tolist() == gaps
    assert np.diff(arrivals("replay", 2.0, 4, times=record)) == pytest.approx(np.array(gaps) / 2)
    again = np.diff(arrivals("replay", None, 9, times=record), prepend=0.0)
    assert again.tolist() == [1.0, *gaps, 1.0, *gaps, 1.0] and arrivals("replay", 2.0, 400, times=record)[-1] == pytest.approx(200)


@pytest.mark.parametrize("wrong, field", [
    ({"rate": 0.0}, "rate"), ({"rate": -2.0}, "rate"), ({"rate": float("nan")}, "rate"), ({"rate": float("inf")}, "rate"), ({"rate": None}, "rate"),
    ({"requests": 0}, "requests"), ({"kind": "replay"}, "times"), ({"kind": "replay", "times": [1.0, 1.0]}, "times"), ({"kind": "replay", "times": [1.0, float("nan")]}, "times"),
])  # fmt: skip
def test_impossible_arrivals_are_named(wrong, field):
    with pytest.raises(BadInput) as why:
        arrivals(**({"kind": "poisson", "rate": 1.0, "requests": 10} | wrong))
    assert why.value.values["field"] == field


def test_unknown_names_list_the_known():
    for call in (lambda: arrivals("sometimes", 1.0, 10), lambda: lengths("novels", 10)):
        with pytest.raises(UnknownName) as why:
            call()
    assert "chat" in why.value.values["known"] and KINDS


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "paragraphs"])
def test_lengths_follow_their_distribution(name):
    """Catches: median taken for mean, spread for deviation, prompts and replies drawn from the same numbers, lengths beyond the
    most or below one."""
    made, (prompts, outputs) = WORKLOADS[name], lengths(name, 40_000, 2)
    for found, asked in ((prompts, made.prompt), (outputs, made.output)):
        assert np.median(found) == pytest.approx(asked.median, rel=0.03) and found.min() >= 1 and found.max() <= asked.most
        low, high = np.quantile(found, (0.1587, 0.8413))
        assert high / low == pytest.approx(np.exp(2 * asked.spread), rel=0.06)
    assert abs(np.corrcoef(prompts, outputs)[0, 1]) < 0.03 and (prompts + outputs).max() <= made.longest
    assert lengths(name, 9, 2)[0].tolist() == lengths(name, 9, 2)[0].tolist() != lengths(name, 9, 3)[0].tolist()


def test_even_lengths_are_the_distribution_itself():
    """Catches: shares that leave out an end, or come in order, so that the longest come last."""
    means = [lengths("chat", 500, seed, even=True)[1].mean() for seed in range(5)]
    assert np.ptp(means) == 0 and means[0] == pytest.approx(lengths("chat", 400_000, 1)[1].mean(), rel=0.01)
    first, second = lengths("chat", 500, 0, even=True)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2 and abs(np.corrcoef(first, np.arange(500))[0, 1]) < 0.2


def test_paragraphs_keep_prompt_and_reply_together():
    """Catches: a long paragraph's prompt with another one's reply."""
    pairs = {(len(one.prompt), one.output) for one in paragraphs()}
    prompts, outputs = lengths("paragraphs", 64, 1, even=True)
    assert sorted(zip(prompts.tolist(), outputs.tolist())) == sorted((len(one.prompt), one.output) for one in paragraphs())
    assert set(zip(*(each.tolist() for each in lengths("paragraphs", 500, 1)))) <= pairs


def test_no_spread_is_one_length():
    assert set(Lengths(7, 0.0, 9).at(np.random.default_rng(0).random(50)).tolist()) == {7}
