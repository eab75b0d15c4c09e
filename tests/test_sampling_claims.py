"""What the branch on sampling says about four recorded distributions, counted again by hand: sorted lists and plain loops."""

from __future__ import annotations

import math

import pytest

from compute import distributions
from compute.claims import CLAIMS


def table(prompt: str, temperature: float = 1.0) -> list[float]:
    """softmax(logits / T) of mini-256, the likeliest first."""
    logits = distributions.stored(prompt).logits["mini-256"].tolist()
    weights = [math.exp((z - max(logits)) / temperature) for z in logits]
    return sorted((w / math.fsum(weights) for w in weights), reverse=True)


def up_to(p: list[float], mass: float) -> int:
    total = 0.0
    for count, each in enumerate(p, 1):
        total += each
        if total >= mass:
            return count
    return len(p)


def said(name: str) -> float:
    return CLAIMS[name]().value


@pytest.mark.parametrize("prompt, name, t", [("manual", "t1_3", 1.3), ("poem", "t1_3", 1.3), ("poem", "t1", 1.0), ("giving", "t1", 1.0), ("giving", "t2", 2.0)])
def test_tokens_kept(prompt: str, name: str, t: float):
    """Catches a rule applied before the temperature, or the token that crosses the line left out."""
    p = table(prompt, t)
    assert said(f"sampling.{prompt}.{name}.top_k") == 40
    assert said(f"sampling.{prompt}.{name}.top_p") == up_to(p, 0.9)
    assert said(f"sampling.{prompt}.{name}.min_p") == sum(each >= 0.1 * p[0] for each in p)


def test_the_tail_is_one_set_of_tokens():
    """Catches a tail chosen anew at another temperature."""
    head = sum(each >= 0.001 for each in table("giving"))
    assert (said("sampling.giving.head"), said("sampling.giving.tail")) == (head, 2048 - head)
    for name, t in (("t1", 1.0), ("t1_3", 1.3)):
        mass = math.fsum(table("giving", t)[head:])
        assert said(f"sampling.giving.{name}.tail_mass") == pytest.approx(mass, rel=1e-9)
        assert said(f"sampling.giving.{name}.tail_once") == pytest.approx(1 - (1 - mass) ** 30, rel=1e-9)


def test_halving_the_temperature_squares_the_ratio():
    """Catches a temperature that multiplies instead of dividing."""
    plain = said("sampling.giving.t1.ratio")
    assert said("sampling.giving.t0_5.ratio") == pytest.approx(plain**2, rel=1e-9)
    assert said("sampling.giving.t2.ratio") == pytest.approx(math.sqrt(plain), rel=1e-9)
    assert said("sampling.giving.t1.hesitates") == pytest.approx(math.prod(each**-each for each in table("giving")), rel=1e-9)


def test_three_orders():
    """Catches two engines' orders exchanged, and a sum not taken over what the rule before had left."""
    hot, plain = table("giving", 1.3), table("giving")
    transformers = [each / math.fsum(hot[:40]) for each in hot[:40]]
    transformers = transformers[: up_to(transformers, 0.9)]
    vllm = [each for each in hot if each >= 0.1 * hot[0]][:40]
    llama = [each / math.fsum(plain[:40]) for each in plain[:40]]
    llama = llama[: up_to(llama, 0.9)]
    assert said("sampling.giving.order.transformers") == sum(each >= 0.1 * transformers[0] for each in transformers)
    assert said("sampling.giving.order.vllm") == up_to([each / math.fsum(vllm) for each in vllm], 0.9)
    assert said("sampling.giving.order.llama.cpp") == sum(each >= 0.1 * llama[0] for each in llama)
    before = said("sampling.min_p.before_temperature")
    assert sum(each >= before * plain[0] for each in plain) == sum(each >= 0.1 * hot[0] for each in hot)


def test_a_list_of_fifty_normalised_first():
    """Catches the claim about another interface's fifty candidates drifting from what it describes."""
    p = table("poem")[:50]
    shown = [each / math.fsum(p) for each in p]
    assert said("sampling.poem.fifty_mass") == pytest.approx(math.fsum(p), rel=1e-9)
    assert said("sampling.poem.fifty_best") == pytest.approx(shown[0], rel=1e-9)
    assert said("sampling.poem.fifty_top_p") == up_to(shown, 0.9)
