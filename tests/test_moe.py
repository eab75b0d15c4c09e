"""The account of experts: what is active, what a batch reads, how evenly, and what a choice tells. By arithmetic and by drawing."""

import numpy as np
import pytest

from compute import facts, moe, numbers
from compute.errors import BadInput
from compute.measures.moe import DOMAINS, kind
from compute.shapes import Matrices

SHAPE = facts.model("mini-moe")


@pytest.mark.parametrize("experts, chosen, tokens", [(8, 2, 1), (8, 2, 8), (8, 2, 64), (4, 3, 5), (5, 5, 2)])
def test_distinct_experts_by_drawing(experts, chosen, tokens):
    """Catches: choices with repetition, an exponent of k·B. Referee: 20,000 draws of different experts for each token."""
    random = np.random.default_rng(1)
    drawn = random.random((20_000, tokens, experts)).argsort(axis=2)[:, :, :chosen]
    counted = np.mean([len(set(row.ravel().tolist())) for row in drawn[:4000]])
    assert Matrices("experts", 1, copies=experts, used=chosen).distinct(tokens) == pytest.approx(counted, abs=0.05)
    if chosen < experts:
        bits = moe.masks(drawn[:4000].reshape(-1, chosen)).reshape(-1, tokens)
        assert moe.distinct(bits) == pytest.approx(counted)


def test_one_token_reads_what_is_active_and_a_crowd_reads_everything():
    """Catches: active and read parameters that tell two stories; the embedding counted as read twice."""
    one = moe.read_parameters(SHAPE, moe.experts_of(SHAPE).distinct(1))
    norms = 256 + 4 * 2 * 256
    assert one + norms == SHAPE.active_parameters == 3_680_512
    assert moe.read_parameters(SHAPE, moe.experts_of(SHAPE).distinct(10_000)) + norms == pytest.approx(SHAPE.parameters)
    assert facts.model("mini-256").active_parameters == facts.model("mini-256").parameters
    with pytest.raises(BadInput, match="no experts"):
        moe.experts_of(facts.model("mini-256"))


def test_published_active_counts():
    """Catches: active parameters that are right for one family only. Mixtral's count includes the embedding."""
    assert f"{facts.model('mixtral-8x7b').active_parameters:.3g}" == "1.29e+10"


def test_the_claims_by_hand():
    """Catches: a claim that drifts from the model: 8 · (1 − 0.75⁸) = 7.199, 3,680,512 / 10,758,400 = 34.2 %."""
    assert numbers.resolve("=moe.even_read").value == pytest.approx(7.1991, abs=1e-4)
    assert numbers.resolve("=moe.even_read_single").value == pytest.approx(2)
    assert numbers.resolve("=moe.active_share").value == pytest.approx(0.34211, abs=1e-5)
    assert numbers.resolve("=moe.router_parameters").value == 8192 and numbers.resolve("=moe.expert_parameters").value == 294_912
    assert numbers.resolve("=moe.memory_ratio").value == pytest.approx(10_758_400 / 3_672_320)


def test_loads_and_balance():
    """Catches: loads that do not add up, a balance below 1 for even use."""
    chosen = np.array([[0, 1], [2, 3], [0, 2], [1, 3]])
    assert moe.loads(chosen, 8).tolist() == [0.25] * 4 + [0] * 4
    assert moe.balance([1 / 8] * 8, [1 / 8] * 8) == pytest.approx(1) and moe.balance([1, 0], [1, 0]) == 2


def test_what_a_label_tells():
    """Catches: information that is not divided by the entropy, or the wrong way round. All, nothing, and one bit of two."""
    first = np.arange(400) % 4
    assert moe.known(first, first) == pytest.approx(1)
    assert moe.known(first, np.arange(400) // 4 % 5) == pytest.approx(0, abs=1e-9)
    assert moe.known(first, first // 2) == pytest.approx(0.5)
    assert moe.known(np.zeros(9, int), np.arange(9)) == 0


@pytest.mark.parametrize("piece, found", [("苹果", "han"), (" apple", "latin"), ("123", "digit"), ("。”", "mark"), ("\n", "mark"), ("⟨E5 B0⟩", "part"), ("<|endoftext|>", "mark"), ("<", "mark")])
def test_kinds_of_token(piece, found):
    """Catches: bytes of a character counted as letters, since they are shown by their hexadecimal names."""
    assert kind(piece) == found


def test_what_it_learned_from_by_hand():
    """Catches: a source left out, shares of another whole, mini-256's own training forgotten."""
    value = lambda name: numbers.resolve(f"=moe.{name}").value  # noqa: E731
    assert value("trained_tokens") == 900 * 32 * 256
    assert value("text.modern") == 411_996 + 22_051 + 71_185
    assert value("times.modern") == pytest.approx((13_107_200 + 7_372_800) * 0.29 / 505_232)
    assert sum(value(f"times.{kind}") * value(f"text.{kind}") for kind in DOMAINS) == pytest.approx(20_480_000)


def test_the_lesson_says_what_the_losses_say():
    """Catches: weights trained anew under a text that tells of the old ones. Beside mini-256 even over all, better on four kinds and worse
    on the one with the least text, read the most often; beside the one that read on it is the other way round, and no win over all."""
    span = lambda name: numbers.resolve(f"~mini-moe.{name}").interval95  # noqa: E731
    assert span("loss_change")[0] < 0 < span("loss_change")[1] and -0.001 < span("experts_change")[0]
    better = {kind for kind in DOMAINS if span(f"loss_change.{kind}")[1] < 0}
    (worse,) = {kind for kind in DOMAINS if span(f"loss_change.{kind}")[0] > 0}
    assert better == set(DOMAINS) - {worse} == {kind for kind in DOMAINS if 0 < span(f"experts_change.{kind}")[0] < span(f"experts_change.{kind}")[1] < 0.05}
    assert span(f"experts_change.{worse}")[1] < 0
    assert worse == min(DOMAINS, key=lambda kind: numbers.resolve(f"=moe.text.{kind}").value) == max(DOMAINS, key=lambda kind: numbers.resolve(f"=moe.times.{kind}").value)
    before, mine, control = (numbers.resolve(f"~mini-moe.{name}.{worse}").value for name in ("dense_learned", "learned", "control_learned"))
    assert worse == "modern" and control < mine < before - 0.5
    before, mine, control = (numbers.resolve(f"~mini-moe.{name}.{worse}").value for name in ("dense_loss", "loss", "control_loss"))
    assert before < mine < control


def test_changes_are_differences_of_the_losses_beside_them():
    """Catches: kinds of text stored under each other's names."""
    for kind in ("", *(f".{kind}" for kind in DOMAINS)):
        after = numbers.resolve(f"~mini-moe.loss{kind}").value
        for change, before in (("loss_change", "dense_loss"), ("experts_change", "control_loss")):
            assert numbers.resolve(f"~mini-moe.{change}{kind}").value == pytest.approx(after - numbers.resolve(f"~mini-moe.{before}{kind}").value, abs=1e-9)
