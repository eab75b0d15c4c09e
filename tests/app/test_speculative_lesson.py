"""The figures of lesson 3, by hand."""

from __future__ import annotations

import math

import pytest

from app import lesson
from compute import distributions, numbers, precompute


@pytest.mark.parametrize(
    "name, by_hand",
    [
        # five tokens: 25,623,920,640 parameters × 2 FLOP, attention over 4,096 tokens of 16 layers × 24 heads × 256 × 4 FLOP a pair
        ("=speculative.anchor.check_seconds", 5 * (51_247_841_280 + 4096 * 16 * 24 * 256 * 4) / 989.5e12),
        ("=speculative.anchor.busy",
         58 * 5 * (51_247_841_280 + 4096 * 16 * 24 * 256 * 4) / 989.5e12 / ((51_247_841_280 + 58 * 570_425_344) / 3.35e12)),
        ("=speculative.example.expected", 1 + 0.8 + 0.8**2 + 0.8**3 + 0.8**4),
        ("=speculative.example.speedup", 3.3616 / 1.2),
        ("=speculative.example.best_speedup", sum(0.8**i for i in range(9)) / 1.4),
        ("=speculative.example.too_long", sum(0.8**i for i in range(17)) / 1.8),
        ("=speculative.example.large_draft", sum(0.9**i for i in range(5)) / 3),
        ("=speculative.example.weak_draft", sum(0.3**i for i in range(9)) / 2.6),
        ("=speculative.quiz.expected", 1 + 0.6 + 0.36 + 0.216),
        ("=speculative.quiz.alpha", 0.5 + 0.1 + 0.1),
        ("=speculative.quiz.residual", (0.3 - 0.1) / ((0.3 - 0.1) + (0.2 - 0.1))),
        ("=speculative.deepseek_v3.least", 1 + 0.85),
        ("=speculative.deepseek_v3.most", 1 + 0.9),
    ],
)  # fmt: skip
def test_figures_of_lesson_3_by_hand(name: str, by_hand: float):
    """Catches: a claim whose function no longer computes what its sentence says."""
    assert numbers.resolve(name).value == pytest.approx(by_hand, rel=1e-9)


def test_no_other_k_pays_more():
    """Catches: the best k of the example off by one. Neighbours written out."""

    def gain(k):
        return sum(0.8**i for i in range(k + 1)) / (1 + 0.05 * k)

    best = numbers.resolve("=speculative.example.best_k").value
    assert gain(best) > gain(best - 1) and gain(best) > gain(best + 1)


@pytest.mark.parametrize("name, published", [("small", 3.2), ("large", 2.5)])
def test_the_formula_gives_what_the_paper_says_that_it_gives(name: str, published: float):
    """Catches: α or c of the wrong row of Leviathan et al., table 4, whose column "Exp" this is."""
    assert numbers.resolve(f"=speculative.leviathan.{name}").value == pytest.approx(published, abs=0.05)


def test_figures_of_the_running_example_from_its_logits():
    """Catches: p and q swapped, a token's id looked up wrongly, the residual not normalised. Plain sums over the stored logits."""
    said = distributions.stored("giving")

    def softmax(model):
        weights = [math.exp(x) for x in said.logits[model]]
        return [w / math.fsum(weights) for w in weights]

    p, q = softmax("mini-256"), softmax("mini-64")
    over, under = (next(i for i, piece in said.pieces.items() if piece == word) for word in ("小明", "小王"))
    alpha = math.fsum(map(min, p, q))
    expected = {
        "equal_only": math.fsum(a * b for a, b in zip(p, q)),
        "refused": 1 - alpha,
        "bias": math.fsum(abs(min(a, b) + (1 - alpha) * a - a) for a, b in zip(p, q)) / 2,
        "over.p": p[over], "over.q": q[over], "over.accepted": p[over] / q[over],
        "under.p": p[under], "under.q": q[under], "under.missing": p[under] - q[under],
        "under.residual": (p[under] - q[under]) / (1 - alpha),
        "under.biased": q[under] + (1 - alpha) * p[under],
    }  # fmt: skip
    assert {name: numbers.resolve(f"=speculative.giving.{name}").value for name in expected} == pytest.approx(expected, rel=1e-9)
    assert q[over] > p[over] and p[under] > q[under]  # as the text says of them
    assert numbers.resolve("~next.giving.mini-64.acceptance").value == pytest.approx(alpha, abs=1e-9)

def test_greedy_texts_are_counted_from_the_runs():
    """Catches: a draft or a k left out of the sum, prompts counted as texts."""
    runs = [precompute.stored()[f"drafting.{draft}.k{k}.t0.identical"] for draft in ("mini-64", "mini-128", "lookup", "mtp") for k in (1, 2, 3, 4, 5, 6, 7, 8)]
    assert numbers.resolve("=speculative.greedy.texts").value == sum(run["n"] for run in runs) == 512
    assert numbers.resolve("=speculative.greedy.same").value == sum(run["value"] for run in runs)


@pytest.mark.parametrize("draft, parameters", [("mini-64", 328_256), ("mini-128", 1_049_728)])
def test_what_parameters_promise(draft: str, parameters: int):
    """Catches: c by time in its place, k left out. mini-256 has 3,672,320 parameters."""
    per_forward = precompute.stored()[f"drafting.{draft}.k4.t0.tokens_per_forward"]["value"]
    assert numbers.resolve(f"=speculative.{draft}.by_parameters").value == pytest.approx(per_forward / (1 + 4 * parameters / 3_672_320), rel=1e-9)


def test_the_lesson_shows_each_rule_once():
    """Catches: an overlay reset to the correct rule where the text speaks of a wrong one."""
    rules = [part.preset["rule"] for part in lesson.load("speculative", "zh").parts if isinstance(part, lesson.Instrument) and part.widget == "overlay"]
    assert rules == ["equal-only", "resample-from-p", "correct"]
