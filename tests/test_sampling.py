"""The sampling rules against transformers' processors, against loops written out, and at their edges."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from compute.errors import BadInput
from compute.sampling import (
    GREEDY, ORDERS, Sampling, distinct, draw, entropy, min_p, probabilities, repetition, softmax, stages, top_k, top_p,
)  # fmt: skip

CASES = 4000


def random_case(random: np.random.Generator) -> tuple[np.ndarray, Sampling]:
    """Logits of any sharpness and a rule with each part on or off."""
    size = int(random.integers(1, 60)) if random.random() < 0.9 else 2048
    logits = random.normal(size=size) * random.choice([0.1, 1, 4, 15]) + random.choice([0, -80, 80])
    return logits, Sampling(
        temperature=float(random.choice([0.05, 0.3, 0.7, 1, 1.3, 2.5])),
        top_k=int(random.choice([0, 1, 2, 5, 40, 3000])),
        top_p=float(random.choice([1, 0.99, 0.9, 0.5, 0.05])),
        min_p=float(random.choice([0, 0.001, 0.05, 0.1, 0.5, 1])),
    )


def by_transformers(logits: np.ndarray, s: Sampling) -> np.ndarray:
    """The probabilities that transformers would draw from, in the order in which it puts its processors."""
    scores = torch.tensor(logits, dtype=torch.float64)[None]
    for works, processor in (
        (s.temperature != 1, lambda: TemperatureLogitsWarper(s.temperature)), (s.top_k > 0, lambda: TopKLogitsWarper(s.top_k)),
        (s.top_p < 1, lambda: TopPLogitsWarper(s.top_p)), (s.min_p > 0, lambda: MinPLogitsWarper(s.min_p)),
    ):  # fmt: skip
        scores = processor()(None, scores) if works else scores
    return scores.softmax(-1)[0].numpy()


def test_equal_to_transformers_in_thousands_of_cases():
    """Catches: another order, mass counted without the token that reaches it, a rule on the distribution before the cut."""
    random, cut = np.random.default_rng(0), 0
    for case in range(CASES):
        logits, sampling = random_case(random)
        ours, theirs = probabilities(logits, sampling), by_transformers(logits, sampling)
        assert ((ours > 0) == (theirs > 0)).all(), (case, sampling)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-14)
        cut += (ours == 0).any()
    assert cut > CASES / 2, "hardly any case cut anything"


def test_ties_against_transformers():
    """Logits on a grid, so that many are equal. transformers sorts without saying which of equal logits comes first, so where
    top-p's boundary falls among equals it keeps as many as we do, but perhaps others; everything else is equal.
    Catches: ties with the k-th that are cut, and a boundary that keeps one too many."""
    random, among_equals = np.random.default_rng(1), 0
    for case in range(CASES):
        logits, sampling = random_case(random)
        logits = np.round(logits)
        ours, theirs = probabilities(logits, sampling), by_transformers(logits, sampling)
        if not near_its_limit(logits, sampling):
            np.testing.assert_allclose(np.sort(ours), np.sort(theirs), rtol=1e-9, atol=1e-14, err_msg=f"{case} {sampling}")
            among_equals += not ((ours > 0) == (theirs > 0)).all()
        if sampling.top_p == 1 and not near_its_limit(logits, sampling):
            assert ((ours > 0) == (theirs > 0)).all(), (case, sampling)
    assert among_equals > 0, "no boundary fell among equals"


def near_its_limit(logits: np.ndarray, s: Sampling) -> bool:
    """Whether a rule's limit lies within rounding of a sum or a quotient, where two ways of adding may disagree."""
    p = softmax(logits / s.temperature)
    if s.top_k:
        p = np.where(p >= np.sort(p)[-min(s.top_k, len(p))], p, 0)
        p = p / p.sum()
    sums = np.cumsum(np.sort(p)[::-1])
    return bool((np.abs(sums - s.top_p) < 1e-12).any() or (np.abs(p - s.min_p * p.max()) < 1e-12 * p.max()).any() and s.min_p > 0)


# ---- the other orders, and our own, written out


def written_out(logits, s: Sampling) -> list[float]:
    """One token at a time, in lists: {token: weight} after each rule, the weight e^(z/T) once the temperature has come."""
    heat = 1.0
    left = {i: float(z) for i, z in enumerate(logits)}

    def shares() -> dict[int, float]:
        high = max(left.values())
        weights = {i: math.exp((z - high) / heat) for i, z in left.items()}
        total = math.fsum(weights.values())
        return {i: w / total for i, w in weights.items()}

    for rule in ORDERS[s.order]:
        if rule == "temperature":
            heat = s.temperature
        elif rule == "top_k" and s.top_k:
            ranked = sorted(left.values(), reverse=True)
            bar = ranked[min(s.top_k, len(ranked)) - 1]
            left = {i: z for i, z in left.items() if z >= bar}
        elif rule == "top_p" and s.top_p < 1:
            share, taken, kept = shares(), 0.0, []
            for i in sorted(left, key=lambda i: (-share[i], i)):
                if taken >= s.top_p:
                    break
                kept.append(i)
                taken += share[i]
            left = {i: left[i] for i in kept}
        elif rule == "min_p" and s.min_p:
            share = shares()
            best = max(share.values())
            left = {i: z for i, z in left.items() if share[i] >= s.min_p * best}
    share = shares()
    return [share.get(i, 0.0) for i in range(len(logits))]


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_against_a_loop(order):
    """Catches: an order that is not the one its name says, and rules that see the distribution before the last cut."""
    random, different = np.random.default_rng(2), 0
    for _ in range(1500):
        logits, s = random_case(random)
        logits, s = logits[:60], Sampling(s.temperature, s.top_k, s.top_p, s.min_p, order)
        ours, theirs = probabilities(logits, s), np.array(written_out(logits, s))
        assert ((ours > 0) == (theirs > 0)).all(), s
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-14)
        first = probabilities(logits, Sampling(s.temperature, s.top_k, s.top_p, s.min_p, "transformers"))
        different += not np.array_equal(first > 0, ours > 0)
    assert order == "transformers" or different > 20, "the order hardly ever mattered"


def test_the_orders_are_those_that_were_read():
    """Catches: an order changed by accident. Sources: data/papers.toml, sampling.order.*"""
    from compute import facts

    words = {"temperature": "temperature", "top-k": "top_k", "top-p": "top_p", "min-p": "min_p"}
    stated = {row["id"].removeprefix("sampling.order."): row["text"] for row in facts.papers()["formula"] if row["id"].startswith("sampling.order.")}
    assert {order: tuple(words[step] for step in text.split(" → ")) for order, text in stated.items()} == dict(ORDERS)


def test_order_changes_what_is_kept():
    """p = 0.5, 0.3, 0.2 at T = 1; at T = 2 they are 0.415, 0.322, 0.263. top-p 0.75 keeps two of the first and three of the second."""
    logits = np.log([0.5, 0.3, 0.2])
    kept = {order: int((probabilities(logits, Sampling(2.0, top_p=0.75, order=order)) > 0).sum()) for order in ORDERS}
    assert kept == {"transformers": 3, "vllm": 3, "llama.cpp": 2}
    last = probabilities(logits, Sampling(2.0, top_p=0.75, order="llama.cpp"))
    np.testing.assert_allclose(last, [math.sqrt(0.5) / (math.sqrt(0.5) + math.sqrt(0.3)), math.sqrt(0.3) / (math.sqrt(0.5) + math.sqrt(0.3)), 0])


# ---- boundaries and ties, by hand


def test_top_p_keeps_the_token_that_reaches_the_mass():
    """Catches: the nucleus one token too small or too large, also where the mass is met exactly (sums of powers of two)."""
    p = np.array([0.5, 0.25, 0.125, 0.125])
    for mass, kept in ((0.01, 1), (0.5, 1), (0.5000001, 2), (0.75, 2), (0.76, 3), (0.875, 3), (0.9, 4), (1.0, 4)):
        assert top_p(p, mass).sum() == kept, mass


def test_top_p_takes_the_lower_id_among_equals():
    """Catches: which of equal tokens survives left to the sort."""
    assert top_p(np.array([0.125, 0.25, 0.25, 0.25, 0.125]), 0.6).tolist() == [False, True, True, True, False]
    assert top_p(np.array([0.125, 0.25, 0.25, 0.25, 0.125]), 0.5).tolist() == [False, True, True, False, False]
    assert top_p(np.full(8, 0.125), 0.3).tolist() == [True] * 3 + [False] * 5


def test_top_k_keeps_all_that_tie_with_the_kth():
    """Catches: an accident of sorting that decides between equals."""
    p = np.array([0.1, 0.3, 0.2, 0.2, 0.2])
    assert top_k(p, 1).tolist() == [False, True, False, False, False]
    assert top_k(p, 2).tolist() == [False, True, True, True, True]
    assert top_k(p, 4).tolist() == [False, True, True, True, True]
    assert top_k(p, 99).all()


def test_min_p_keeps_equality():
    """Catches: < instead of ≤ at the bar."""
    assert min_p(np.array([0.5, 0.25, 0.125, 0.125]), 0.5).tolist() == [True, True, False, False]
    assert min_p(np.array([0.5, 0.25, 0.125, 0.125]), 0.25).all()
    assert min_p(np.array([0.4, 0.4, 0.2]), 1).tolist() == [True, True, False]


# ---- temperature 0


# To six decimals: logits nearer than 1e-16 have one probability in float64, and the rules then take them for equal.
LOGITS = st.lists(st.floats(-30, 30).map(lambda z: round(z, 6)), min_size=1, max_size=40)
RULES = st.builds(
    Sampling, temperature=st.floats(0.01, 5), top_k=st.integers(0, 50), top_p=st.floats(0.01, 1), min_p=st.floats(0, 1), order=st.sampled_from(sorted(ORDERS))
)


@given(LOGITS, RULES)
@settings(max_examples=300)
def test_temperature_zero_is_greedy_exactly(logits, rule):
    """Catches: a tiny temperature in its place, a division by zero, a tie that goes to a higher id, and rules that get in its way."""
    cold = Sampling(0.0, rule.top_k, rule.top_p, rule.min_p, rule.order)
    best = int(np.argmax(logits))
    for p in (probabilities(logits, cold), stages(logits, cold)[-1].p):
        assert p[best] == 1 and p.sum() == 1 and np.count_nonzero(p) == 1


def test_a_falling_temperature_ends_at_greedy():
    """Catches: overflow on the way down; at T = 1e-4 a gap of 0.1 is e^1000."""
    logits = np.array([700.0, 700.1, -700.0])
    for t in (1e-1, 1e-2, 1e-4, 1e-300):
        p = probabilities(logits, Sampling(t))
        assert np.isfinite(p).all() and p.argmax() == 1
    np.testing.assert_array_equal(probabilities(logits, Sampling(1e-4)), probabilities(logits, GREEDY))


# ---- properties


@given(LOGITS, RULES)
@settings(max_examples=300)
def test_what_always_holds(logits, rule):
    """Catches: a distribution that does not sum to 1, an order of tokens that changes, a rule that brings tokens back, a best
    token that is cut, and stages that end elsewhere than probabilities."""
    p, found = probabilities(logits, rule), stages(logits, rule)
    assert p.min() >= 0 and p.sum() == pytest.approx(1)
    assert p[int(np.argmax(logits))] == p.max() > 0
    ranked = np.argsort(-np.array(logits), kind="stable")
    assert (np.diff(p[ranked]) <= 1e-15).all(), "a less likely token overtook"
    assert [s.rule for s in found] == list(ORDERS[rule.order])
    assert all((later.kept <= earlier.kept).all() for earlier, later in zip(found, found[1:]))
    np.testing.assert_array_equal(found[-1].p, p)


@given(LOGITS, st.integers(-200, 200))
def test_a_shift_of_all_logits_changes_nothing(logits, shift):
    """Catches: a rule on raw logits, where it should be on probabilities."""
    rule = Sampling(0.8, top_p=0.9)
    if not near_its_limit(np.array(logits), rule):
        np.testing.assert_allclose(probabilities([z + shift for z in logits], rule), probabilities(logits, rule), atol=1e-9)


def test_rows_are_independent():
    """Catches: a rule that looks across the batch."""
    random = np.random.default_rng(3)
    logits = random.normal(size=(2, 3, 50)) * 3
    rule = Sampling(1.2, 20, 0.8, 0.05)
    together = probabilities(logits, rule)
    for i in range(2):
        for j in range(3):
            np.testing.assert_array_equal(together[i, j], probabilities(logits[i, j], rule))


# ---- the draw


@given(st.lists(st.sampled_from([0.0, 1e-300, 0.1, 1.0, 3.0]), min_size=1, max_size=30).filter(any), st.lists(st.floats(0, 1, exclude_max=True), min_size=1))
def test_a_token_of_probability_zero_is_never_drawn(weights, u):
    """Catches: u = 0 that falls on a leading zero, and u near 1 that falls past the end."""
    p = np.array(weights) / sum(weights)
    tokens = draw(p, [*u, 0.0, np.nextafter(1, 0)])
    assert (p[tokens] > 0).all()


def test_the_draw_follows_the_distribution():
    """A comb of a million evenly spaced numbers hits each token in proportion, to within one tooth an edge.
    Catches: shares shifted by one token, or an end that gets more than its own."""
    p = probabilities(np.random.default_rng(4).normal(size=300) * 2, Sampling(top_p=0.95))
    n = 1_000_000
    counts = np.bincount(draw(p, (np.arange(n) + 0.5) / n), minlength=len(p))
    assert np.abs(counts - n * p).max() <= 1
    for u in (0.0, 0.1234, 0.77, 0.999999):
        below = [sum(p[: i + 1]) for i in range(len(p))]
        assert draw(p, [u])[0] == next(i for i, edge in enumerate(below) if edge > u)


# ---- measures


def test_entropy_by_hand():
    """Catches: bits for nats, and 0 · log 0."""
    assert entropy([0.5, 0.25, 0.25, 0]) == pytest.approx(1.5 * math.log(2))
    assert entropy([1.0, 0.0]) == 0
    np.testing.assert_allclose(entropy(np.full((2, 8), 0.125)), math.log(8))


def test_repetition_and_distinct_by_hand():
    """a b c a b c a b: 4-grams abca bcab cabc abca bcab: 2 of 5 were there before; 3 of 8 tokens and 3 of 7 pairs are different.
    Catches: grams counted as repeated on both sides, or over another total."""
    text = [1, 2, 3, 1, 2, 3, 1, 2]
    assert repetition(text) == pytest.approx(2 / 5)
    assert distinct(text, 1) == pytest.approx(3 / 8) and distinct(text, 2) == pytest.approx(3 / 7)
    assert repetition([7] * 10) == pytest.approx(6 / 7) and repetition([1, 2, 3]) == 0 and distinct([], 2) == 1


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 5))
def test_repetition_against_a_loop(tokens, n):
    """Catches: an off-by-one in the windows."""
    seen, again, grams = [], 0, 0
    for i in range(len(tokens) - n + 1):
        gram = tokens[i : i + n]
        again, grams = again + (gram in seen), grams + 1
        seen.append(gram)
    assert repetition(tokens, n) == pytest.approx(again / grams if grams else 0)
    assert distinct(tokens, n) == pytest.approx((grams - again) / grams if grams else 1)


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"temperature": math.inf}, {"temperature": math.nan}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.1}, {"min_p": 2}, {"min_p": -0.1}, {"order": "none"}])
def test_impossible_rules_are_refused(wrong):
    """Catches: a nonsense setting that samples from something."""
    with pytest.raises(BadInput, match=next(iter(wrong))):
        Sampling(**wrong)
