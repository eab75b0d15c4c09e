"""The acceptance criteria: what makes one met, what makes it fail, and when it may not be believed."""

import pytest

from compute import acceptance, precompute, verify
from compute.measures import lab


@pytest.fixture(scope="module")
def kept():
    return acceptance.entries()


def changed(kept, key, **fields):
    return {**kept, key: {**kept[key], **fields}}


def test_a_criterion_fails_when_one_of_its_numbers_is_missing_or_wrong(kept):
    """Catches: a table with a hole, or one text of 512 that is another, counted as complete."""
    assert acceptance.cache(kept).verdict == acceptance.drafting(kept).verdict == acceptance.sampling_table(kept).verdict == "met"
    lost = {key: entry for key, entry in kept.items() if key != "lab.cache.64.without.tokens_per_second"}
    assert acceptance.cache(lost).verdict == "not_met" and "lab.cache.64.without" in acceptance.cache(lost).reason["en"]
    assert acceptance.cache(changed(kept, "lab.cache.240.same_output", value=4)).verdict == "not_met"
    assert acceptance.drafting(changed(kept, "drafting.mtp.k3.t0.identical", value=15)).verdict == "not_met"
    assert acceptance.sampling_table({k: v for k, v in kept.items() if k != "sampling.t1_3.p1.kept"}).verdict == "not_met"


def test_a_scheme_is_held_against_our_own_noise_floor(kept):
    """Catches: a threshold that is typed, a comparison the wrong way round, every scheme let through. The reference demands that one
    scale a matrix in four bits fails and 128 to a group passes."""
    floor = kept["quantize.noise_floor"]["value"]
    judged = {c.of: c.verdict for c in acceptance.of_schemes(kept)}
    assert judged["int4-tensor"] == "not_met" and judged["int4-g128"] == judged["gptq-int4-g128"] == judged["int8-channel"] == "met"
    assert all((kept[f"quantize.mini-256.{name}.loss_change"]["value"] < floor) == (verdict == "met") for name, verdict in judged.items())
    strict = changed(kept, "quantize.noise_floor", value=0.0001)
    assert acceptance.quantization(strict, "int8-channel").verdict == "not_met"


def test_nothing_chosen_is_unchecked_and_says_so(kept):
    """Catches: a decision that nobody made shown as met."""
    *_, sampling, drafting, quantization = acceptance.criteria(kept)
    assert (sampling.verdict, drafting.verdict, quantization.verdict) == ("unchecked", "met", "unchecked") and sampling.reason and quantization.reason
    _, sampling, _, quantization = acceptance.criteria(kept, "t1.minp0_1", "int4-tensor")
    assert sampling.verdict == "met" and "sampling.t1.minp0_1.repetition4" in sampling.rests_on
    assert quantization.verdict == "not_met" and quantization.rests_on[0] == "quantize.mini-256.int4-tensor.loss_change"


def test_a_number_that_does_not_come_out_again_decides_nothing(kept):
    """Catches: verify that says "differs" above and "met" below, from the same number."""
    lines = acceptance.lines(kept, ["quantize.noise_floor"], ["quantize.noise_floor"])
    assert len(lines) > 20 and not any(line.startswith("✓") for line in lines)
    assert acceptance.lines(kept, ["mini.vocabulary"], []) == []


def test_verify_prints_the_criteria_that_rest_on_what_it_compared(capsys):
    """Catches: a section that never appears, or one that is printed beside numbers it has nothing to do with."""
    assert verify.main("quantize.noise_floor") == 0
    said = capsys.readouterr().out
    assert "acceptance criteria" in said and "NOT met   int4-tensor" in said and "cache:" not in said


def test_counts_without_a_cache_are_a_sum_and_with_one_a_line():
    """Catches: counts that forget the prompt, or count it twice. The referee is the sum, step by step."""
    stored = precompute.stored()
    prompt = stored["lab.cache.32.kv_with"]["conditions"]["prompt_tokens"]
    for new in lab.LENGTHS:
        assert stored[f"lab.cache.{new}.kv_without"]["value"] == sum(prompt + i for i in range(new))
        assert stored[f"lab.cache.{new}.kv_with"]["value"] == prompt + new - 1
