"""A long prompt among readers: steps written out by hand from the anchor's shape, and what must hold for every setting."""

import json
from math import ceil

import pytest
from hypothesis import given, settings, strategies as st

from compute import functions, roofline, stall as stalls
from compute.calibrated import calibrated, ideal
from compute.errors import BadInput, LabError, Refused
from compute.stall import POLICY, stall

PROMPT, READERS, CONTEXT = 32_768, 48, 4096
PARAMETERS = 25_623_920_640  # of the anchor, multiplied for each token; tests/test_formulas.py counts them matrix by matrix
LAYERS, HEADS, HEAD_DIM, KV, STATE = 16, 24, 256, 65_536, 150_994_944  # full-attention layers; bytes
PEAK, BANDWIDTH, LINK = 989.5e12, 3.35e12, 450e9
READING = 2 * PARAMETERS * PROMPT + LAYERS * 2 * PROMPT**2 * HEADS * HEAD_DIM  # FLOPs
WRITING = 2 * PARAMETERS  # of a token, without what it looks back at
LOOKING = LAYERS * 4 * HEADS * HEAD_DIM  # of a token, at each cached position


@pytest.fixture(scope="module")
def anchor():
    return stall()


def decode(readers: int, cells: int) -> float:
    """Seconds of a step in which all decode: memory-bound, all bytes at full bandwidth."""
    return (2 * PARAMETERS + readers * 2 * STATE + cells * KV) / BANDWIDTH


def test_the_prompt_alone_takes_191_seconds(anchor):
    """Catches: causal pairs counted twice or halved, a forgotten matrix, readers in a prefill that should be alone."""
    assert READING / PEAK == pytest.approx(1.9105, rel=1e-4)
    assert anchor.alone_seconds == pytest.approx(READING / PEAK, rel=1e-6)
    assert roofline.prefill("qwen3.8-27b", "h100-sxm", PROMPT).seconds == pytest.approx(anchor.alone_seconds, rel=1e-12)
    assert anchor.plain_step_seconds == pytest.approx(decode(READERS, READERS * CONTEXT), rel=1e-6)


def test_whole_is_the_prompt_and_the_riding_decoders(anchor):
    """One step holds both, and arithmetic bounds it. Catches: a stall without the readers' own tokens, or with a further decode step."""
    whole, riding = anchor["whole"], READERS * (WRITING + CONTEXT * LOOKING)
    assert whole.longest_gap_seconds == pytest.approx((READING + riding) / PEAK, rel=1e-6)
    assert whole.first_token_seconds == pytest.approx(whole.longest_gap_seconds, rel=1e-9) and 1.91 < whole.first_token_seconds < 1.914
    assert whole.disturbed_seconds == whole.first_token_seconds and [beat.read for beat in whole.beats if beat.read] == [PROMPT]
    assert whole.over_target == 1


def test_chunks_sum_to_the_prompt_and_more_decoding(anchor):
    """All 71 steps are bound by arithmetic, so in sum they are the whole prompt plus 71 tokens of every reader. Catches: a budget that
    leaves out the readers, pairs with earlier chunks forgotten or counted again, a chunk lost at the end."""
    chunked = anchor["chunked"]
    reads = [beat.read for beat in chunked.beats if beat.read]
    assert reads == [512 - READERS] * 70 + [PROMPT - 70 * (512 - READERS)] and len(reads) == 71
    riding = sum(READERS * (WRITING + (CONTEXT + i) * LOOKING) for i in range(70))  # the last chunk is short: bytes bound it
    start, last = 70 * 464, PROMPT - 70 * 464
    flops = 2 * PARAMETERS * start + LAYERS * 2 * start**2 * HEADS * HEAD_DIM + riding
    end = (2 * PARAMETERS + READERS * 2 * STATE + 2 * STATE + (READERS * (CONTEXT + 70) + start + last) * KV) / BANDWIDTH
    assert chunked.first_token_seconds == pytest.approx(flops / PEAK + end, rel=1e-6)
    assert chunked.first_token_seconds > anchor["whole"].first_token_seconds and chunked.longest_gap_seconds < 0.02 * anchor["whole"].longest_gap_seconds


def test_separate_costs_the_readers_a_plain_step(anchor):
    """Catches: a transfer that stops the decoders, a newcomer without its KV, a first token shown before it is there."""
    separate, bytes_ = anchor["separate"], PROMPT * KV + STATE
    assert anchor.handover_bytes == bytes_ == 2_298_478_592
    assert separate.read == pytest.approx((0, READING / PEAK), rel=1e-6)
    assert separate.first_token_seconds == pytest.approx(READING / PEAK + bytes_ / LINK, rel=1e-6) and separate.handed[1] == separate.first_token_seconds
    assert separate.lost_tokens == 0 and separate.disturbed_seconds == 0 and all(beat.read == 0 for beat in separate.beats)
    joined = [beat for beat in separate.beats if beat.wrote == READERS + 1]
    steps = sum(beat.ended > 1e-9 and beat.wrote == READERS for beat in separate.beats)  # made since the arrival, without it
    first = decode(READERS + 1, READERS * (CONTEXT + steps) + PROMPT)
    assert joined[0].ended - joined[0].began == pytest.approx(first, rel=1e-6) and joined[0].began >= separate.first_token_seconds
    assert separate.longest_gap_seconds == pytest.approx(decode(READERS + 1, READERS * (CONTEXT + steps + len(joined) - 1) + PROMPT + len(joined) - 1), rel=1e-6)
    assert separate.tokens_per_second_per_card == pytest.approx(anchor["whole"].tokens_per_second_per_card / 2)


def test_lost_tokens_are_the_steps_not_made(anchor):
    """Steps of an undisturbed card written out one by one. Catches: a rate times seconds, the readers' gain after the stall counted in."""
    steps, clock, first = 0, 0.0, anchor["whole"].first_token_seconds
    while (clock := clock + decode(READERS, READERS * (CONTEXT + steps))) <= first:
        steps += 1
    assert anchor["whole"].lost_tokens == READERS * (steps - 1)


def test_on_the_calibrated_clock_with_its_error():
    """Catches: an ideal figure under the name of the calibrated one, an error that is lost on the way."""
    found, clock = stall(clock="calibrated"), calibrated("qwen3.8-27b", "h100-sxm")
    assert found.error == clock.error and found.error is not None and stall().error is None
    assert found["whole"].longest_gap_seconds == pytest.approx(float(clock.step(READERS, READERS * CONTEXT, PROMPT, PROMPT**2 / 2, 1)), rel=1e-9)
    assert found["whole"].longest_gap_seconds > 1.2 * stall()["whole"].longest_gap_seconds


# ---- what must hold for every setting

SETTINGS = st.fixed_dictionaries({
    "model": st.sampled_from(["qwen3-8b", "qwen3-4b", "mistral-7b", "qwen3.8-27b"]), "chip": st.sampled_from(["h100-sxm", "h200-sxm", "a100-80g-sxm"]),
    "prompt": st.integers(1, 20_000), "readers": st.integers(1, 24), "context": st.integers(2, 6000), "budget": st.integers(200, 9000),
    "clock": st.sampled_from(["ideal", "calibrated"]),
})  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(SETTINGS)
def test_tokens_are_conserved(setting):
    """Every prompt token is read once, every step gives each reader one token, and the gaps fill the time. Catches: a token that vanishes in
    the long step, a reader left out of a chunk's step, an arrival within a step."""
    found = stall(**setting)
    assert {passage.mode for passage in found.passages} == set(POLICY)
    for passage in found.passages:
        assert sum(beat.read for beat in passage.beats) == (0 if passage.mode == "separate" else setting["prompt"])
        assert {beat.wrote - setting["readers"] for beat in passage.beats} <= {0, 1}
        newcomer = [beat.wrote > setting["readers"] for beat in passage.beats]
        assert newcomer == sorted(newcomer) and sum(newcomer) >= 1  # once it writes, it goes on
        assert all(before.ended == pytest.approx(after.began, rel=1e-9, abs=1e-12) for before, after in zip(passage.beats, passage.beats[1:]))
        assert len(passage.gaps) == len(passage.beats)
        assert sum(gap.seconds for gap in passage.gaps) == pytest.approx(passage.beats[-1].ended - passage.beats[0].began, rel=1e-9)
        assert any(abs(beat.began) <= 1e-9 * abs(found.since) for beat in passage.beats)
        assert passage.first_token_seconds <= found.until and passage.gaps[-1].at <= found.until
        assert passage.lost_tokens >= 0 and passage.lost_tokens % setting["readers"] == 0


@settings(max_examples=15, deadline=None)
@given(SETTINGS, st.lists(st.integers(64, 12_000), min_size=2, max_size=4, unique=True))
def test_smaller_chunks_never_make_a_longer_gap(setting, budgets):
    """Down to the step that reads the weights and the caches whatever the chunk. The newcomer waits longer for it. Catches: a budget that is not
    heeded, one that leaves out the readers, a floor that a chunk falls through."""
    found = [stall(**setting | {"budget": budget}) for budget in sorted(budgets)]
    clock = {"ideal": ideal, "calibrated": calibrated}[setting["clock"]](setting["model"], setting["chip"])
    whole = found[0]["whole"]
    for smaller, larger in zip(found, found[1:]):
        a, b = smaller["chunked"], larger["chunked"]
        steps = sum(beat.ended > 0 for beat in a.beats)
        cells = setting["readers"] * (setting["context"] + steps) + setting["prompt"] + steps
        floor = float(clock.step(setting["readers"] + 1, cells))  # all decode, at the end of what is told
        assert a.longest_gap_seconds <= max(b.longest_gap_seconds, 1.15 * floor) * (1 + 1e-9)
        assert a.longest_gap_seconds >= smaller.plain_step_seconds * (1 - 1e-9)
        assert a.longest_gap_seconds <= whole.longest_gap_seconds * 1.15
        assert b.first_token_seconds >= whole.first_token_seconds * (1 - 1e-6)


@settings(max_examples=15, deadline=None)
@given(SETTINGS)
def test_a_second_card_leaves_only_plain_steps(setting):
    """Catches: a prefill that slips onto the readers' card, a newcomer who stops them when it joins."""
    found = stall(**setting)
    clock = {"ideal": ideal, "calibrated": calibrated}[setting["clock"]](setting["model"], setting["chip"])
    separate = found["separate"]
    made = sum(beat.ended > 1e-12 for beat in separate.beats)
    cells = setting["readers"] * (setting["context"] + made) + setting["prompt"] + made
    assert separate.longest_gap_seconds <= float(clock.step(setting["readers"] + 1, cells)) * (1 + 1e-9)
    assert separate.first_token_seconds == pytest.approx(found.alone_seconds + found.handover_bytes / found.link_bytes_per_s, rel=1e-9)


def test_nothing_depends_on_how_blocks_are_cut(monkeypatch):
    """Memory is counted in blocks of 16, the run hands out larger ones. Catches: blocks that run out on the way, and a price with copies."""
    large = stall(readers=20)
    monkeypatch.setattr(stalls, "SPAN", 16)
    assert stall(readers=20) == large


# ---- what cannot be had


def test_readers_that_do_not_fit_are_refused_with_numbers():
    """Catches: a picture of a moment for which there is no memory, and a newcomer that silently waits for it."""
    with pytest.raises(Refused) as told:
        stall(readers=60)
    assert told.value.code == "does_not_fit"
    tokens = 60 * CONTEXT + PROMPT
    least = 55_562_855_904 + tokens * KV + 61 * STATE
    assert least < told.value.values["needed_gb"] * 1e9 < 1.03 * least
    assert told.value.values["missing_gb"] == pytest.approx(told.value.values["needed_gb"] - 80)
    assert stall(readers=51)["chunked"]


def test_ways_that_cannot_be_had_say_why():
    """Catches: a made-up link, a prompt that is never read, a loop of a hundred thousand steps."""
    unlinked = stall(chip="mi300x")
    assert unlinked["separate"] is None and "MI300X" in unlinked.refused["separate"]["zh"] and unlinked["whole"] and unlinked["chunked"]
    full = stall(budget=READERS)
    assert full["chunked"] is None and set(full.refused) == {"chunked"} and str(READERS) in full.refused["chunked"]["en"]
    assert "32,768" in stall(budget=READERS + 1).refused["chunked"]["en"]


@pytest.mark.parametrize("setting, kind", [
    ({"model": "llama-2-7b"}, BadInput), ({"model": "qwen3-8b", "context": 50_000}, BadInput), ({"chip": "rtx-4090"}, Refused),
    ({"chip": "mi300x", "clock": "calibrated"}, Refused),
])  # fmt: skip
def test_impossible_settings_are_refused(setting, kind):
    """Catches: a prompt longer than the model reads, weights larger than the card, a calibrated clock without measurements."""
    with pytest.raises(kind) as told:
        stall(**setting)
    assert told.value.message("zh") and told.value.message("en")


def test_served_by_name():
    """Catches: a result that is no JSON, defaults that differ from the function's, bounds that let nonsense through."""
    told = functions.call("serving.stall", {})
    json.dumps(told, allow_nan=False)
    assert [passage["mode"] for passage in told["passages"]] == list(POLICY)
    assert told["passages"][0]["first_token_seconds"] == stall()["whole"].first_token_seconds
    for wrong in ({"readers": 0}, {"prompt": 0}, {"context": 1}, {"tpot_target": 0}, {"clock": "real"}):
        with pytest.raises(LabError):
            functions.call("serving.stall", wrong)
    assert ceil(PROMPT / (512 - READERS)) == sum(beat["read"] > 0 for beat in told["passages"][1]["beats"])
