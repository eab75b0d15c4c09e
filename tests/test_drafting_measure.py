"""The interval behind the drafts' numbers, and the names that prose writes."""

import numpy as np
import pytest

from compute.measures import drafting


def test_the_interval_by_hand():
    """Catches: a normal quantile for four prompts, rounds taken as independent. With one count each the ratio is the mean, and
    the interval is Student's: 2.5 ± 3.182 · 1.291 / √4."""
    assert drafting.interval([1, 2, 3, 4], [1, 1, 1, 1], 0, 9) == pytest.approx((2.5 - 3.1824 * 1.29099 / 2, 2.5 + 3.1824 * 1.29099 / 2), abs=1e-4)
    assert drafting.interval([1, 2, 3, 4], [4, 4, 4, 4])[1] == 1.0 and drafting.interval([0, 0, 0, 9], [9, 9, 9, 9])[0] == 0.0


def test_the_interval_covers_the_truth():
    """Catches: an interval that is too narrow. 16 prompts that differ, 400 times; 95 % should hold the true ratio of 2."""
    random, held = np.random.default_rng(0), 0
    for _ in range(400):
        counts = random.integers(10, 40, 16)
        sums = counts * random.normal(2, 0.5, 16) + random.normal(0, np.sqrt(counts))
        low, high = drafting.interval(list(sums), list(counts), -9, 9)
        held += low <= 2 <= high
    assert 360 <= held <= 395, held


def test_names_of_numbers():
    """Catches: two jobs that make the same key, look-up on both targets under one name, and a key of another shape."""
    keys = [key for job in drafting.jobs() for key in job.keys]
    assert len(keys) == len(set(keys)) > 150
    assert "drafting.mini-64.k4.t1.tokens_per_forward" in keys and "drafting.mtp.k8.t0.identical" in keys
    assert "drafting.smollm2-lookup.k4.t0.acceptance" in keys and "drafting.lookup.k4.t0.7.acceptance" in keys
    assert {model for job in drafting.jobs() for model in job.models} == {"mini-256", "mini-128", "mini-64", "mini-256-mtp", "smollm2-135m", "smollm2-draft", "smollm2-135m-mtp"}
