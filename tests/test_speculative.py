"""The rule of speculative sampling against enumeration and plain loops; statistics against published values and scipy."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from compute import distributions, functions, sampling, speculative
from compute.speculative import RULES, settle

CASES = {  # (p, q)
    "different": ([0.5, 0.3, 0.2, 0.0], [0.1, 0.6, 0.2, 0.1]),
    "equal": ([0.25, 0.25, 0.5], [0.25, 0.25, 0.5]),
    "disjoint": ([0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.7, 0.3]),
    "certain target": ([0.0, 1.0, 0.0], [0.3, 0.3, 0.4]),
    "certain draft": ([0.2, 0.5, 0.3], [0.0, 0.0, 1.0]),
    "greedy, same": ([0.0, 1.0], [0.0, 1.0]),
    "greedy, other": ([1.0, 0.0], [0.0, 1.0]),
    "rare": ([1e-9, 1 - 1e-9], [0.5, 0.5]),
}
PAIRS = [pytest.param(np.array(p), np.array(q), id=name) for name, (p, q) in CASES.items()]

weights = arrays(np.float64, st.integers(1, 9).map(lambda n: (2, n)), elements=st.sampled_from([0.0, 1e-6, 0.01, 0.3, 1.0, 7.0]))
pairs = weights.filter(lambda w: (w.sum(axis=1) > 0).all()).map(lambda w: tuple(w / w.sum(axis=1, keepdims=True)))


def integrated(rule, p, q, steps=2048):
    """(output, acceptance) of `settle` itself: every guess x with its weight q(x), u and v over an even grid of midpoints.
    A rejected token depends on v alone, so u then stands at its largest, where a guess falls through if it ever does."""
    grid = (np.arange(steps) + 0.5) / steps
    output, accepted = np.zeros(len(p)), 0.0
    for x in np.flatnonzero(q):
        guesses = np.full(steps, x)
        tokens, kept = settle(rule, p, q, guesses, grid, grid)
        accepted += q[x] * kept.mean()
        if rule != "equal-only":
            output[x] += q[x] * kept.mean()
            if kept.all():
                continue
            tokens, again = settle(rule, p, q, guesses, np.full(steps, grid[-1]), grid)
            assert not again.any()
            output += q[x] * (1 - kept.mean()) * np.bincount(tokens, minlength=len(p)) / steps
        else:
            output += q[x] * np.bincount(tokens, minlength=len(p)) / steps
    return output, accepted


@pytest.mark.parametrize("p, q", PAIRS)
@pytest.mark.parametrize("rule", RULES)
def test_the_rule_gives_what_it_claims(rule, p, q):
    """Catches: q/p for p/q, a residual that is not normalised or has the wrong sign, the biased rule passing as p."""
    output, accepted = integrated(rule, p, q)
    assert output == pytest.approx(speculative.output(rule, p, q), abs=2e-3)
    assert accepted == pytest.approx(speculative.kept(rule, p, q).sum(), abs=2e-3)
    if rule != "resample-from-p":
        assert output == pytest.approx(p, abs=2e-3)


@given(pairs)
def test_acceptance_and_residual_make_p(both):
    """Σ over x of q(x)·[accept + reject·residual], written out token by token. Catches: any rule under which some token gains
    or loses, and negative or unnormalised residuals."""
    p, q = both
    keep = [min(1.0, p[x] / q[x]) if q[x] > 0 else 1.0 for x in range(len(p))]
    rejected = sum(q[x] * (1 - keep[x]) for x in range(len(p)))
    residual = speculative.residual(p, q)
    assert residual.sum() == pytest.approx(1) and (residual >= 0).all()
    made = [q[y] * keep[y] + rejected * residual[y] for y in range(len(p))]
    assert made == pytest.approx(p.tolist(), abs=1e-12)
    assert speculative.acceptance(p, q) == pytest.approx(1 - rejected) == pytest.approx(1 - np.abs(p - q).sum() / 2)
    assert speculative.kept("correct", p, q) == pytest.approx([q[x] * keep[x] for x in range(len(p))])


@given(pairs)
def test_the_other_rules_written_out(both):
    """Catches: equal-only that is not p or accepts too often; resample-from-p taken for p."""
    p, q = both
    n = range(len(p))
    agree = sum(q[x] * p[y] for x in n for y in n if x == y)
    assert speculative.equal_only_acceptance(p, q) == pytest.approx(agree) == pytest.approx(speculative.kept("equal-only", p, q).sum())
    alpha = sum(min(p[x], q[x]) for x in n)
    biased = speculative.output("resample-from-p", p, q)
    assert biased == pytest.approx([min(p[y], q[y]) + (1 - alpha) * p[y] for y in n]) and biased.sum() == pytest.approx(1)
    if 0.01 < alpha < 0.99:
        kept_share = np.minimum(p, q) / alpha
        assert (np.abs(biased - p).max() > 1e-9) == (np.abs(kept_share - p).max() > 1e-9), "it is p only where min(p, q) is p to scale"


@given(pairs, st.sampled_from(RULES), st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_settle_is_the_plain_loop(both, rule, seed):
    """Catches: an index mixed up in the vectorised code, a v used for the wrong draw, a prepared drawer that draws otherwise."""
    p, q = both
    w, u, v = np.random.default_rng(seed).random((3, 60))
    x = sampling.draw(q, w)
    tokens, accepted = settle(rule, p, q, x, u, v)
    residual = np.maximum(p - q, 0)
    for i in range(60):
        if rule == "equal-only":
            y = invert(p, v[i])
            wanted = (y, y == x[i])
        elif u[i] < p[x[i]] / q[x[i]]:
            wanted = (x[i], True)
        else:
            wanted = (invert(residual / residual.sum() if rule == "correct" else p, v[i]), False)
        assert (tokens[i], bool(accepted[i])) == wanted
    prepared = settle(rule, p, q, x, u, v, speculative.ready(rule, p, q))
    assert (prepared[0] == tokens).all() and (prepared[1] == accepted).all()
    assert (p[tokens] > 0).all(), "a token that the target excludes came out"


def invert(p, u):
    total = 0.0
    for token, share in enumerate(p / np.cumsum(p)[-1]):
        total += share
        if u < total - 1e-15:
            return token
    return int(np.flatnonzero(p)[-1])


@given(pairs, st.integers(0, 2**32 - 1))
def test_the_guide_table_finds_what_the_search_finds(both, seed):
    """Catches: a bucket taken for sure that two tokens share; a bucket's edge counted to the wrong side."""
    p, _ = both
    edges = np.cumsum(p) / np.cumsum(p)[-1]
    u = np.concatenate([np.random.default_rng(seed).random(500), edges, np.nextafter(edges, 0), np.arange(0, 1, 1 / 64), [0.0, 1 - 2**-53]])
    u = u[u < 1]
    assert (sampling.drawer(p)(u) == sampling.draw(p, u)).all()
    assert (p[sampling.draw(p, u)] > 0).all()


def test_the_guide_table_on_real_distributions():
    """Catches: the same on 2,048 tokens of which most are rarer than a bucket."""
    u = np.random.default_rng(3).random(200_000)
    for prompt in distributions.PROMPTS:
        p = sampling.probabilities(distributions.stored(prompt).logits["mini-256"], sampling.Sampling())
        assert (sampling.drawer(p)(u) == sampling.draw(p, u)).all(), prompt


def test_greedy_falls_out():
    """Temperature 0 makes p and q certain: a guess stays exactly when both models name the same token. Catches: a rule that
    needs a special case for greedy decoding."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        target, draft = rng.normal(size=(2, 12)).round(1)
        p, q = (sampling.probabilities(z, sampling.GREEDY) for z in (target, draft))
        x, u, v = np.array([int(draft.argmax())] * 3), np.array([0.0, 0.5, 1 - 2**-53]), np.array([0.0, 0.4, 1 - 2**-53])
        for rule in RULES:
            tokens, accepted = settle(rule, p, q, x, u, v)
            assert (tokens == target.argmax()).all()
            assert (accepted == (target.argmax() == draft.argmax())).all()


# ---- rounds


def naive_round(p, q, guesses, random, rule):
    """A round as the papers tell it, one token at a time."""
    written, checks = [], []
    for i, guess in enumerate(guesses):
        u, v = random.random(2)
        if rule == "equal-only":
            own = invert(p[i], v)
            kept = own == guess
        else:
            kept = u < p[i][guess] / q[i][guess]
            over = [max(0.0, a - b) for a, b in zip(p[i], q[i])]
            own = guess if kept else invert(np.array(over) / sum(over) if rule == "correct" else p[i], v)
        checks.append(kept)
        written.append(own)
        if not kept:
            return written, checks
    return [*written, invert(p[-1], random.random())], checks


@pytest.mark.parametrize("rule", RULES)
def test_a_round_is_the_naive_round(rule):
    """Catches: a round that goes on after a rejection, a missing bonus token, distributions one place off."""
    rng = np.random.default_rng(1)
    for seed in range(300):
        k = seed % 5
        p, q = rng.dirichlet([0.4] * 6, k + 1), rng.dirichlet([0.4] * 6, k + 1)[:k]
        guesses = [int(sampling.draw(row, rng.random(1))[0]) for row in q]
        played = speculative.play_round(p, q, guesses, np.random.default_rng(seed), rule)
        written, checks = naive_round(p, q, guesses, np.random.default_rng(seed), rule)
        assert list(played.tokens) == written and [c.accepted for c in played.checks] == checks
        assert played.bonus == all(checks) and played.accepted == sum(checks) == len(written) - 1
        for check, guess, row, draft in zip(played.checks, guesses, p, q):
            assert (check.token, check.p, check.q) == (guess, row[guess], draft[guess])


V = 3
FIRST = np.array([0.6, 0.3, 0.1])  # a toy language of two tokens: the first, and the second after each first
AFTER = np.array([[0.2, 0.5, 0.3], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
LAST = np.array([0.4, 0.4, 0.2])
DRAFT_FIRST = np.array([0.2, 0.5, 0.3])
DRAFT_AFTER = np.array([[0.3, 0.3, 0.4], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]])


def pair_of_tokens(random, rule):
    """The first two tokens, written by rounds of two guesses."""
    first = int(sampling.draw(DRAFT_FIRST, [random.random()])[0])
    second = int(sampling.draw(DRAFT_AFTER[first], [random.random()])[0])
    played = speculative.play_round(np.array([FIRST, AFTER[first], LAST]), np.array([DRAFT_FIRST, DRAFT_AFTER[first]]), [first, second], random, rule)
    if len(played.tokens) > 1:
        return played.tokens[:2]
    start = played.tokens[0]  # rejected at once: the next round begins after it
    guess = int(sampling.draw(DRAFT_AFTER[start], [random.random()])[0])
    again = speculative.play_round(np.array([AFTER[start], LAST]), np.array([DRAFT_AFTER[start]]), [guess], random, rule)
    return start, again.tokens[0]


@pytest.mark.parametrize("rule, honest", [("correct", True), ("equal-only", True), ("resample-from-p", False)])
def test_two_tokens_in_a_row_follow_the_target(rule, honest):
    """Joint distribution over rounds, χ² from scipy. Catches: rounds whose tokens are right one by one but not together, and a
    bias that a single place would hide."""
    random = np.random.default_rng(7)
    counts = np.zeros((V, V))
    for _ in range(12_000):
        counts[pair_of_tokens(random, rule)] += 1
    wanted = FIRST[:, None] * AFTER
    p_value = scipy.stats.chisquare(counts.ravel(), wanted.ravel() * counts.sum()).pvalue
    assert (p_value > 0.001) == honest, p_value


# ---- what it is worth


def test_the_worked_example():
    """α = 0.8, k = 4, c = 0.05. Catches: k for k + 1 in the sum, the draft's cost left out."""
    expected = 1 + 0.8 + 0.64 + 0.512 + 0.4096
    assert speculative.expected_tokens(0.8, 4) == pytest.approx(expected) == pytest.approx(3.3616)
    assert speculative.speedup(0.8, 4, 0.05) == pytest.approx(expected / 1.2) and round(expected / 1.2, 1) == 2.8
    assert speculative.expected_tokens(1.0, 4) == 5 and speculative.expected_tokens(0.0, 4) == 1 and speculative.speedup(0.3, 0, 0.5) == 1


@given(st.floats(0, 1), st.integers(0, 16), st.floats(0, 1))
def test_formulas_against_the_sum_over_outcomes(alpha, k, cost):
    """Catches: a closed form that fails near α = 1, a spread of the wrong variable, a best k that is not the best."""
    chance = [alpha**a * (1 - alpha) for a in range(k)] + [alpha**k]
    mean = sum(c * (a + 1) for a, c in enumerate(chance))
    assert speculative.expected_tokens(alpha, k) == pytest.approx(mean, rel=1e-9)
    variance = sum(c * (a + 1 - mean) ** 2 for a, c in enumerate(chance))
    assert speculative.tokens_spread(alpha, k) == pytest.approx(math.sqrt(variance), abs=1e-6)
    best = speculative.best_k(alpha, cost, 16)
    assert all(speculative.speedup(alpha, best, cost) >= speculative.speedup(alpha, other, cost) for other in range(17))


@pytest.mark.parametrize("alpha, k", [(0.8, 4), (0.3, 8), (0.95, 16), (0.0, 3), (1.0, 3)])
def test_simulated_rounds_agree_with_the_formula(alpha, k):
    """Catches: rounds that count guesses after the first rejection, or forget the target's own token."""
    rounds = speculative.play_rounds(alpha, k, 40_000, seed=5)
    assert rounds.min() >= 0 and rounds.max() <= k
    error = speculative.tokens_spread(alpha, k) / math.sqrt(40_000)
    assert abs(rounds.mean() + 1 - speculative.expected_tokens(alpha, k)) <= 4 * error + 1e-12


# ---- Monte Carlo and its statistics


@pytest.mark.parametrize("rule", RULES)
def test_monte_carlo_counts_what_the_loop_counts(rule):
    """Over more than one chunk. Catches: a chunk counted twice or left out, drafts that depend on the rule."""
    p, q = np.array(CASES["different"][0]), np.array(CASES["different"][1])
    n = speculative.CHUNK + 1000
    runs = speculative.monte_carlo(rule, p, q, n, seed=11)
    random, counts, accepted = np.random.default_rng(11), np.zeros(4, dtype=int), 0
    for size in (speculative.CHUNK, 1000):
        w, u, v = random.random((3, size))
        tokens, kept = settle(rule, p, q, sampling.draw(q, w), u, v)
        counts += np.bincount(tokens, minlength=4)
        accepted += kept.sum()
    assert (runs.counts == counts).all() and runs.accepted == accepted and runs.counts.sum() == runs.n == n


def test_wilson_against_the_published_example():
    """Newcombe 1998, table I: 81 of 263 and 0 of 20. Catches: the Wald interval, z for one side."""
    assert speculative.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert speculative.wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    for successes, n in ((1, 29), (15, 148), (100, 100)):
        ours, theirs = speculative.wilson(successes, n), scipy.stats.binomtest(successes, n).proportion_ci(method="wilson")
        assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-6)


def test_chi_square_against_the_table():
    """5 % points of the χ² table: 3.841 (1), 18.307 (10), 124.342 (100). Catches: the lower tail, degrees off by one."""
    for degrees, point in ((1, 3.841), (10, 18.307), (100, 124.342)):
        n = degrees + 1
        shift = math.sqrt(point * 100 / 2)  # two cells of 100 off by `shift`: the statistic is `point`
        counts = np.full(n, 100.0)
        counts[0] += shift
        counts[1] -= shift
        test = speculative.chi_square(counts, np.full(n, 1 / n))
        assert test.degrees == degrees and test.statistic == pytest.approx(point) and test.p_value == pytest.approx(0.05, abs=2e-5)


def test_chi_square_against_scipy_with_rare_tokens_together():
    """Catches: rare tokens each with a cell of their own, where the test means nothing."""
    rng = np.random.default_rng(2)
    p = rng.dirichlet([0.05] * 200)
    counts = rng.multinomial(5000, p)
    rare = 5000 * p < 5
    seen, wanted = [np.append(x[~rare], x[rare].sum()) for x in (counts, 5000 * p)]
    assert wanted[-1] >= 5
    theirs = scipy.stats.chisquare(seen, wanted)
    ours = speculative.chi_square(counts, p)
    assert (ours.statistic, ours.p_value) == pytest.approx((theirs.statistic, theirs.pvalue)) and ours.degrees == len(seen) - 1


def test_chi_square_at_the_edges():
    """Catches: a crash with few draws or one possible token, and a token that p excludes going unnoticed."""
    assert speculative.chi_square(np.array([7, 0]), np.array([1.0, 0.0])).p_value == 1
    assert speculative.chi_square(np.array([1, 0, 0]), np.array([0.5, 0.3, 0.2])).p_value == 1
    assert speculative.chi_square(np.array([99, 1]), np.array([1.0, 0.0])).p_value == 0


def test_p_values_of_honest_runs_are_spread_evenly():
    """Kolmogorov–Smirnov over 300 seeds. Catches: a test that accuses honest runs too often, or never anybody."""
    p, q = np.array(CASES["different"][0]), np.array(CASES["different"][1])
    values = [speculative.chi_square(speculative.monte_carlo("correct", p, q, 5000, seed).counts, p).p_value for seed in range(300)]
    assert scipy.stats.kstest(values, "uniform").pvalue > 0.001


def test_distance_by_chance():
    """Against scipy's binomial, summed outcome by outcome, and against draws. Catches: the normal approximation for rare tokens."""
    p, n = np.array([0.6, 0.3, 0.0999, 0.0001, 0.0]), 50
    exact = sum(abs(x / n - share) * scipy.stats.binom.pmf(x, n, share) for share in p for x in range(n + 1)) / 2
    assert speculative.total_variation_by_chance(p, n) == pytest.approx(exact, rel=1e-9)
    seen = [speculative.total_variation(counts, p) for counts in np.random.default_rng(0).multinomial(n, p, size=4000)]
    assert np.mean(seen) == pytest.approx(exact, rel=0.03)
    assert speculative.total_variation_by_chance(np.array([1.0, 0.0]), n) == 0


# ---- the verdict on real prompts, as the pages and the command line give it


@pytest.mark.parametrize("prompt", distributions.PROMPTS)
@pytest.mark.parametrize("draft", distributions.MODELS[1:])
def test_the_correct_rule_passes_and_the_biased_one_is_caught(prompt, draft):
    """100,000 draws. Catches: a rule that bends a real distribution, a test too weak to see it."""
    for rule in RULES:
        said = functions.call("speculative.monte_carlo", {"prompt": prompt, "draft": draft, "rule": rule, "seed": 1, "top": 3})["verdict"]
        assert said["agrees"] == (rule != "resample-from-p"), (rule, said)
        low, high = speculative.wilson(said["acceptance"] * 100_000, 100_000, z=4)
        assert low <= said["acceptance_expected"] <= high
        if rule == "resample-from-p":
            assert said["total_variation"] == pytest.approx(said["total_variation_expected"], abs=0.03) and said["total_variation"] > 2 * said["total_variation_by_chance"]
        else:
            assert said["total_variation_expected"] == 0 and said["total_variation"] < 1.5 * said["total_variation_by_chance"]


def test_the_command_gives_the_same_twice_and_refuses_nonsense():
    """Catches: a clock or global seed in the result; eleven million draws."""
    asked = {"n": 20_000, "temperature": 0.7, "top_k": 50, "seed": 3}
    first = functions.call("speculative.monte_carlo", asked)
    assert first == functions.call("speculative.monte_carlo", asked) != functions.call("speculative.monte_carlo", asked | {"seed": 4})
    assert sum(seen["count"] for seen in functions.call("speculative.monte_carlo", asked | {"top": 2048})["top"]) == 20_000
    for wrong in ({"n": 11_000_000}, {"prompt": "mine"}, {"rule": "lucky"}, {"top_p": 0}):
        with pytest.raises(functions.BadInput):
            functions.call("speculative.monte_carlo", wrong)
