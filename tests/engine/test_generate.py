"""Generation with and without cache, sampling, stopping; the comparison behind the KV lesson."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compute.engine.generate import compare_cache, generate, pick
from compute.errors import BadInput
from compute.sampling import Sampling

from . import tiny

PROMPT = tiny.ids(8)[0].tolist()


@pytest.mark.parametrize("case", tiny.CASES)
def test_greedy_with_cache_without_and_transformers_write_the_same(made, case):
    """Catches: any step of decoding that differs from recomputing everything; transformers is the third voice."""
    theirs, ours, _ = made(case)
    with_cache = [step.token for step in generate(ours, PROMPT, 24, ignore_end=True)]
    without = [step.token for step in generate(ours, PROMPT, 24, use_cache=False, ignore_end=True)]
    ids = torch.tensor([PROMPT])
    never = 10**6  # no token ends the text
    made_there = theirs.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, pad_token_id=1, eos_token_id=never
    )
    assert with_cache == without
    assert with_cache == made_there[0, 8:].tolist()


def test_counts_of_computed_keys_and_values(model):
    """Catches: the prompt forgotten, or the last token counted though nothing is computed for it. 4 prompt tokens and 30
    new ones: 4 + 29 = 33 with a cache, 4 + 5 + … + 33 = 555 without; the lesson's 1,003 and 503,500 are the same sums."""
    counted = {
        use: list(generate(model, PROMPT[:4], 30, use_cache=use, ignore_end=True))[-1].kv_computed for use in (True, False)
    }
    assert counted == {True: 33, False: 555}
    assert (4 + 999, sum(range(4, 1004))) == (1_003, 503_500)


@given(prompt=st.lists(st.integers(0, 319), min_size=1, max_size=20), n=st.integers(1, 20))
@settings(max_examples=25, deadline=None)
def test_comparison_holds_for_any_prompt(model, prompt, n):
    """Catches: a difference between both ways beyond rounding, steps or counts out of line."""
    found = compare_cache(model, prompt, n)
    assert found.equal and found.with_cache.tokens == found.without_cache.tokens
    assert found.largest_logit_difference < 2e-5 * found.largest_logit
    assert found.with_cache.kv_computed == (len(prompt),) + (1,) * (n - 1)
    assert found.without_cache.kv_computed == tuple(range(len(prompt), len(prompt) + n))
    assert len(found.pieces) == len(found.with_cache.seconds) == len(found.without_cache.seconds) == n


def test_comparison_of_a_text(model):
    """Catches: a text that is not tokenized like everywhere else."""
    found = compare_cache(model, "小明把苹果给了", 3)
    assert list(found.prompt) == model.tokenizer.encode("小明把苹果给了")


def test_the_text_of_the_steps_is_the_text_of_the_tokens(model):
    """Catches: characters lost between steps or at the end. A random model writes broken bytes all the time, and some of
    these 40 texts end inside a character."""
    torn = 0
    for n in range(1, 41):
        steps = list(generate(model, PROMPT, n, sampling=Sampling(1.5), seed=n, ignore_end=True))
        assert "".join(step.text for step in steps) == model.tokenizer.decode([step.token for step in steps])
        assert [step.index for step in steps] == list(range(n)) and steps[-1].finish == "length"
        torn += model.tokenizer.bytes_of(steps[-1].token)[-1] >= 0xC2
    assert torn


def test_probability_of_the_chosen_token(made):
    """Catches: a log-probability after temperature, or of the wrong position."""
    theirs, ours, _ = made("llama, grouped heads, tied")
    step = list(generate(ours, PROMPT, 1, sampling=Sampling(0.7), seed=5))[0]
    with torch.inference_mode():
        logits = theirs(torch.tensor([PROMPT])).logits[0, -1]
    assert step.logit == pytest.approx(float(logits[step.token]), rel=1e-4)
    assert step.logprob == pytest.approx(float(logits.log_softmax(0)[step.token]), abs=1e-4)


def test_the_seed_decides(model):
    """Catches: a global random state; the same seed with and without cache, another seed differs."""

    def run(seed, use_cache=True):
        return [s.token for s in generate(model, PROMPT, 20, sampling=Sampling(2.0), seed=seed, use_cache=use_cache, ignore_end=True)]

    torch.manual_seed(1)
    first = run(7)
    torch.manual_seed(2)
    assert run(7) == first == run(7, use_cache=False)
    assert run(8) != first


def test_sampled_frequencies_follow_the_distribution():
    """Catches: temperature multiplied instead of divided, a draw that never reaches the first or last token. 20,000 draws;
    6 standard deviations, so chance fails it less than once in 10⁸ runs."""
    logits, n = torch.tensor([2.0, 0.0, -1.0, 1.0, float("-inf")]), 20_000
    expected = (logits / 0.8).softmax(0)
    random = np.random.default_rng(0)
    counts = torch.bincount(torch.tensor([pick(logits, Sampling(0.8), random) for _ in range(n)]), minlength=5)
    spread = (expected * (1 - expected) / n).sqrt()
    assert ((counts / n - expected).abs() <= 6 * spread).all() and counts[4] == 0


def test_truncation_binds_the_choice_and_not_the_report(made):
    """Catches: truncation applied after the choice, and probabilities reported after truncation. Only the two likeliest
    tokens may come, at a temperature at which all 320 would; their reported probability is the untruncated one."""
    theirs, ours, _ = made("llama, grouped heads, tied")
    text, came = list(PROMPT), set()
    for step in generate(ours, PROMPT, 20, sampling=Sampling(50.0, top_k=2), ignore_end=True):
        with torch.inference_mode():
            expected = theirs(torch.tensor([text])).logits[0, -1].log_softmax(0)
        ranked = expected.argsort(descending=True).tolist()
        assert step.token in ranked[:2] and step.logprob == pytest.approx(float(expected[step.token]), abs=1e-3)
        came.add(ranked.index(step.token))
        text.append(step.token)
    assert came == {0, 1}


def test_the_end_token_stops_and_is_not_shown(model):
    """Catches: <|endoftext|> in the learner's text, or a model that talks on after it."""
    first = next(generate(model, PROMPT, 1, ignore_end=True)).token
    config = replace(model.config, stop_tokens=(first,))
    ending = replace(model, weights=replace(model.weights, config=config))
    steps = list(generate(ending, PROMPT, 20))
    assert [(step.token, step.text, step.finish) for step in steps] == [(first, "", "stop")]


def test_a_stop_string_ends_the_text_before_it(model):
    """Catches: the stop string shown, or found only when it is one token."""
    whole = "".join(step.text for step in generate(model, PROMPT, 40, sampling=Sampling(1.5), seed=3, ignore_end=True))
    stop = whole[10:13]
    steps = list(generate(model, PROMPT, 40, sampling=Sampling(1.5), seed=3, ignore_end=True, stop=[stop]))
    assert "".join(step.text for step in steps) == whole[: whole.index(stop)] and steps[-1].finish == "stop"


def test_cancelling_ends_with_the_token_being_made(model):
    """Catches: work that goes on for a reader who has left."""
    event = threading.Event()
    steps = []
    for step in generate(model, PROMPT, 50, cancelled=event.is_set, ignore_end=True):
        steps.append(step)
        if len(steps) == 3:
            event.set()
    assert len(steps) == 4 and steps[-1].finish == "cancelled"
    assert len(compare_cache(model, PROMPT, 50, cancelled=event.is_set).pieces) == 1


@pytest.mark.parametrize(
    "prompt, n, options, words",
    [
        ([], 5, {}, "empty"),
        ([320], 5, {}, "320.*0 to 319"),
        ([-1], 5, {}, "-1"),
        ([1] * 100, 29, {}, "29.*100 prompt tokens.*context of 128"),
        ([1], 0, {}, "at least 1"),
    ],
)
def test_impossible_requests_are_refused_with_the_value(model, prompt, n, options, words):
    """Catches: an index error of torch, or a silently shortened answer."""
    with pytest.raises(BadInput, match=words):
        next(generate(model, prompt, n, **options))
