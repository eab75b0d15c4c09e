"""Speculative decoding against the target's own decoding: tokens, distributions, caches, ends."""

import threading
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compute import facts, sampling, speculative
from compute.engine import mtp, registry
from compute.engine.generate import generate
from compute.engine.model import KVCache, Linear, forward, hidden_states
from compute.engine.speculate import (
    Draft, Either, Lookup, ModelDraft, common, continuation, distribution, one_hot, same_vocabulary, speculate, tally,
)  # fmt: skip
from compute.errors import BadInput
from compute.sampling import GREEDY, Sampling

from . import tiny
from .test_mtp import random_head

PROMPT = tiny.ids(8)[0].tolist()
TARGET, SMALL = "llama, grouped heads, tied", "llama, one key head for all"
PROMPTS = [p["text"] for p in tomllib.loads((facts.DATA / "speculation-prompts.toml").read_text("utf-8"))["mini-256"]["prompts"]]


@pytest.fixture(scope="module")
def pair(made):
    """A target and a draft with different weights, key heads and outputs; one vocabulary."""
    target, draft = made(TARGET)[1], made(SMALL)[1]
    return target, replace(draft, tokenizer=target.tokenizer)


def drafters(target, draft, n):
    """Each kind, new: a weak draft, the target itself (never rejected when greedy), a look-up, an untrained MTP head."""
    return {
        "draft": ModelDraft(draft, n), "itself": ModelDraft(target, n), "lookup": Lookup(target.config.vocabulary),
        "mtp": mtp.MtpDraft(random_head(target), target, n),
        "either": Either(Lookup(target.config.vocabulary, shortest=2), ModelDraft(draft, n)),
    }  # fmt: skip


def written(turns):
    return [token for turn in turns for token in turn.tokens]


# ---- greedy


@given(
    prompt=st.lists(st.integers(0, 319), min_size=1, max_size=20), n=st.integers(1, 30), k=st.integers(1, 10),
    kind=st.sampled_from(["draft", "itself", "lookup", "mtp", "either"]),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_greedy_writes_what_the_target_writes(pair, prompt, n, k, kind):
    """Catches: a cache not rolled back, a position off by one, a bonus token from the wrong row, for any k and drafter."""
    target, draft = pair
    plain = [step.token for step in generate(target, prompt, n)]
    assert written(speculate(target, drafters(target, draft, 64)[kind], prompt, n, k)) == plain


@pytest.mark.parametrize("name", ["mini-64", "mini-128", "lookup", "mtp"])
def test_greedy_on_our_models(name):
    """Catches: what random models hide, as they hardly ever agree. 16 Chinese prompts, k = 1 … 8 (data/precomputed.json has 64 tokens of each); the smallest distance of
    the two best logits on the way is over 60 times what the two ways of computing them differ by, so no tie decides."""
    target = registry.shared().get("mini-256")
    assert len(PROMPTS) >= 16
    if name == "mtp":
        head = mtp.load(target) if (mtp.CHECKPOINTS / "mini-256-mtp").is_dir() else random_head(target)
    for text in PROMPTS:
        tokens = target.tokenizer.encode(text)
        plain = [step.token for step in generate(target, tokens, 16)]
        for k in range(1, 9):
            n = len(tokens) + 16 + k
            if name == "mtp":
                drafter = mtp.MtpDraft(head, target, n)
            else:
                drafter = Lookup(2048) if name == "lookup" else ModelDraft(registry.shared().get(name), n)
            assert written(speculate(target, drafter, tokens, 16, k)) == plain, (text, k)


def test_the_target_as_its_own_draft_is_never_rejected(pair):
    """Catches: a bonus token left out, and the last guess, which the draft itself has not read, missing from its cache:
    k + 1 tokens every round."""
    target, _ = pair
    for k in (1, 3, 5):
        turns = list(speculate(target, ModelDraft(target, 64), PROMPT, 1 + 4 * (k + 1), k, ignore_end=True))
        assert [len(turn.tokens) for turn in turns] == [1, *[k + 1] * 4]
        assert all(turn.played.bonus for turn in turns) and tally(turns).tokens_per_forward == k + 1


# ---- sampled


def small(model, vocabulary=6):
    """One layer and few tokens, so that two of them can be counted."""
    w = model.weights
    config = replace(model.config, vocabulary=vocabulary, layers=1, stop_tokens=())
    return replace(model, weights=replace(w, config=config, layers=w.layers[:1], head=Linear(w.head.weight[:vocabulary] * 0.6)))


def exact(model, prompt, s):
    """The distribution of the second and third token after the prompt, (36): the first one comes from the prompt's own forward."""

    def after(*more):
        tokens = [*prompt, *more]
        return distribution(forward(model.weights, torch.tensor([tokens]), None, torch.arange(len(tokens))[None], last_only=True)[0, -1], s)

    six = range(6)
    return np.array([sum(after()[a] * after(a)[b] * after(a, b)[c] for a in six if after()[a]) for b in six for c in six])


def counted(target, new_drafter, s, seeds, rule="correct"):
    """How often each pair came out, and how many guesses were accepted."""
    counts, accepted = np.zeros(36, dtype=np.int64), 0
    for seed in range(seeds):
        turns = list(speculate(target, new_drafter(), SHORT, 3, 2, sampling=s, seed=seed, rule=rule))
        _, b, c = written(turns)
        counts[b * 6 + c] += 1
        accepted += sum(turn.played.accepted for turn in turns)
    return counts, accepted


SHORT = [1, 2, 3, 1, 2]
SETTINGS = {
    "plain": Sampling(1.0), "cool, top-p": Sampling(0.7, top_p=0.9), "hot, top-k": Sampling(1.6, top_k=4),
    "min-p, vllm": Sampling(1.2, min_p=0.1, order="vllm"),
}  # fmt: skip


@pytest.mark.parametrize("name,kind", [*((name, "draft") for name in SETTINGS), ("hot, top-k", "lookup"), ("cool, top-p", "mtp")])
def test_sampled_tokens_follow_the_targets_distribution(pair, name, kind):
    """Catches: p and q that were not processed alike, a second draw from p, a residual of the wrong row. Two speculated
    tokens against their exact joint distribution, 2,000 seeds; χ² at one in a million, which chance hardly ever reaches."""
    target, draft = (small(m) for m in pair)
    s = SETTINGS[name]
    new = {"draft": lambda: ModelDraft(draft, 16), "lookup": lambda: Lookup(6), "mtp": lambda: mtp.MtpDraft(random_head(target), target, 16)}
    counts, accepted = counted(target, new[kind], s, 2_000)
    found = speculative.chi_square(counts, exact(target, SHORT, s))
    assert accepted > 300 and found.degrees >= 5 and found.p_value > 1e-6, (accepted, found)


def test_the_biased_rule_is_caught_by_the_same_test(pair):
    """Catches: a χ² that passes anything. A rejected guess that is drawn from p again does not give p."""
    target, draft = (small(m) for m in pair)
    s, p_value = Sampling(1.0), {}
    for rule in ("correct", "resample-from-p"):
        counts, _ = counted(target, lambda: Colder(ModelDraft(draft, 16)), s, 2_000, rule)
        p_value[rule] = speculative.chi_square(counts, exact(target, SHORT, s)).p_value
    assert p_value["correct"] > 1e-6 > p_value["resample-from-p"], p_value


class Colder:
    """Guesses at a third of the temperature, so that q is far from p, and says so."""

    def __init__(self, inner):
        self.inner = inner

    def draft(self, text, hidden, k, s, random):
        return self.inner.draft(text, hidden, k, Sampling(s.temperature / 3), random)


def test_one_processed_distribution_serves_all(pair):
    """Catches: an acceptance decided with untruncated q. Under top-k 1 all is certain, as in greedy decoding."""
    target, draft = pair
    plain = [step.token for step in generate(target, PROMPT, 20)]
    for kind, drafter in drafters(target, draft, 64).items():
        turns = list(speculate(target, drafter, PROMPT, 20, 4, sampling=Sampling(1.3, top_k=1), seed=3))
        assert written(turns) == plain, kind
        assert {check.q for turn in turns for check in turn.played.checks} <= {1.0}
        assert {check.p for turn in turns for check in turn.played.checks} <= {0.0, 1.0}


def test_the_seed_decides(pair):
    """Catches: a global random state, and a shorter run that is not the beginning of the longer one."""
    target, draft = pair

    def run(seed, n=20):
        return written(speculate(target, ModelDraft(draft, 64), PROMPT, n, 3, sampling=Sampling(1.2), seed=seed, ignore_end=True))

    torch.manual_seed(1)
    first = run(7)
    torch.manual_seed(2)
    assert run(7) == first and run(8) != first
    for n in range(1, 20):
        assert run(7, n) == first[:n]


# ---- caches


@given(k=st.integers(1, 6), n=st.integers(2, 30), seed=st.integers(0, 99), kind=st.sampled_from(["draft", "mtp"]))
@settings(max_examples=40, deadline=None)
def test_caches_hold_what_a_fresh_run_would(pair, k, n, seed, kind):
    """Catches: a slot that still holds a rejected guess. After rounds with rejections, keys and values of every kept position
    equal those of one forward over the finished text, to 10⁻⁵ of the largest: forwards of other widths round differently.
    A rejected guess that stayed would be off by more than a tenth (the next test)."""
    target, draft = pair
    mine = KVCache(target.weights, 1, 64)
    drafter = drafters(target, draft, 64)[kind]
    turns = list(speculate(target, drafter, PROMPT, n, k, sampling=Sampling(1.0), seed=seed, ignore_end=True, cache=mine))
    text = PROMPT + written(turns)
    assert furthest(mine, fresh(target, text), len(text) - 1) < 1e-5
    if kind == "draft":
        held = common(drafter.read, text)
        assert held >= len(PROMPT) and furthest(drafter.cache, fresh(draft, text), held) < 1e-5


def test_a_slot_that_was_not_rolled_back_would_be_seen(pair):
    """Catches: a comparison of caches that could not fail. One rejected token in its place moves the slot by over a tenth."""
    target, _ = pair
    other = [*PROMPT[:-1], (PROMPT[-1] + 1) % 320]
    assert furthest(fresh(target, other), fresh(target, PROMPT), len(PROMPT) - 1) < 1e-5
    assert furthest(fresh(target, other), fresh(target, PROMPT), len(PROMPT)) > 0.1


def test_the_same_forwards_leave_the_same_bits(pair):
    """Catches: a dependence on what lies in rejected slots. The run is made twice, once in a cache full of junk; kept slots
    agree bit for bit, as the kernels are the same."""
    target, draft = pair
    clean, dirty = KVCache(target.weights, 1, 64), KVCache(target.weights, 1, 64)
    dirty.data.fill_(1e6)
    runs = [
        written(speculate(target, ModelDraft(draft, 64), PROMPT, 24, 4, sampling=Sampling(1.0), seed=5, ignore_end=True, cache=c))
        for c in (clean, dirty)
    ]
    kept = len(PROMPT) + 23
    assert runs[0] == runs[1] and torch.equal(clean.data[..., :kept, :], dirty.data[..., :kept, :])


def test_mtp_positions_that_were_verified_come_from_true_states(pair):
    """Catches: the head's own guesses left in its cache as if the target had read them."""
    target, _ = pair
    head = random_head(target)
    drafter = mtp.MtpDraft(head, target, 64)
    turns = list(speculate(target, drafter, PROMPT, 20, 4, sampling=Sampling(1.0), seed=1, ignore_end=True))
    text = PROMPT + written(turns)
    before = len(text) - len(turns[-1].tokens) - 1  # what the head had read as verified when it last guessed
    clean = mtp.MtpDraft(head, target, 64)
    states = hidden_states(target.weights, torch.tensor([text[:before]]), None, torch.arange(before)[None])[0]
    clean.draft(text[: before + 1], states, 1, GREEDY, np.random.default_rng(0))
    assert before > len(PROMPT) and furthest(drafter.cache, clean.cache, before) < 1e-5


def fresh(model, text):
    cache = KVCache(model.weights, 1, 64)
    forward(model.weights, torch.tensor([text]), cache, torch.arange(len(text))[None])
    return cache


def furthest(a, b, kept):
    """Largest difference in the first `kept` slots, as a share of the largest value."""
    x, y = a.data[..., :kept, :], b.data[..., :kept, :]
    return float((x - y).abs().max() / y.abs().max())


# ---- ends


def test_an_end_token_inside_an_accepted_run_ends_the_text(pair):
    """Catches: tokens after the end that were accepted in the same round, and the end token shown as text."""
    target, _ = pair
    plain = [step.token for step in generate(target, PROMPT, 20, ignore_end=True)]
    for end in dict.fromkeys(plain[1:]):
        ends = replace(target, weights=replace(target.weights, config=replace(target.config, stop_tokens=(end,))))
        turns = list(speculate(ends, ModelDraft(target, 64), PROMPT, 20, 5))
        cut = plain.index(end) + 1
        assert written(turns) == plain[:cut] and turns[-1].finish == "stop"
        assert "".join(turn.text for turn in turns) == target.tokenizer.decode(plain[: cut - 1])


def test_a_stop_string_inside_an_accepted_run(pair):
    """Catches: a stop string that is only looked for at the end of a round."""
    target, _ = pair
    steps = list(generate(target, PROMPT, 24, ignore_end=True))
    whole = "".join(step.text for step in steps)
    for at in range(2, len(whole) - 2, 3):
        stop = whole[at : at + 2]
        plain = list(generate(target, PROMPT, 24, stop=[stop], ignore_end=True))
        turns = list(speculate(target, ModelDraft(target, 64), PROMPT, 24, 5, stop=[stop], ignore_end=True))
        assert "".join(turn.text for turn in turns) == "".join(step.text for step in plain)
        assert written(turns) == [step.token for step in plain] and turns[-1].finish == plain[-1].finish


@pytest.mark.parametrize("n", range(1, 14))
def test_the_length_is_kept_inside_an_accepted_run(pair, n):
    """Catches: up to k tokens too many."""
    target, draft = pair
    for drafter in drafters(target, draft, 64).values():
        turns = list(speculate(target, drafter, PROMPT, n, 5, ignore_end=True))
        assert len(written(turns)) == n and turns[-1].finish == "length" and not any(turn.finish for turn in turns[:-1])


def test_up_to_the_models_last_position(pair):
    """Catches: a guess beyond the context, where there is no position for it. Prompt 8, context 128."""
    target, draft = pair
    for kind, drafter in drafters(target, draft, 128).items():
        turns = list(speculate(target, drafter, PROMPT, 120, 8, ignore_end=True))
        assert len(written(turns)) == 120, kind
    with pytest.raises(BadInput, match="128"):
        next(speculate(target, Lookup(320), PROMPT, 121, 8))


def test_a_draft_with_a_shorter_context_guesses_as_long_as_it_can(pair):
    """Catches: a draft asked beyond its own positions; the target then goes on alone."""
    target, draft = pair
    short = replace(draft, weights=replace(draft.weights, config=replace(draft.config, context=20)))
    turns = list(speculate(target, ModelDraft(short, 64), PROMPT, 40, 3, ignore_end=True))
    assert written(turns) == [step.token for step in generate(target, PROMPT, 40, ignore_end=True)]
    assert len(turns[1].guesses) == 3 and not turns[-1].guesses


def test_cancelling_keeps_what_was_written(pair):
    """Catches: a run that cannot be stopped, and a cancelled one that says it was finished."""
    target, draft = pair
    event = threading.Event()
    turns = []
    for turn in speculate(target, ModelDraft(draft, 64), PROMPT, 60, 3, ignore_end=True, cancelled=event.is_set):
        turns.append(turn)
        if len(turns) == 3:
            event.set()
    assert turns[-1].finish == "cancelled" and len(turns) == 4 and len(written(turns)) < 60


def test_text_arrives_whole(pair):
    """Catches: characters torn between rounds. The pieces that arrive are the text of the tokens."""
    target, draft = pair
    for seed in range(20):
        turns = list(speculate(target, ModelDraft(draft, 64), PROMPT, 15, 3, sampling=Sampling(1.5), seed=seed, ignore_end=True))
        assert "".join(turn.text for turn in turns) == target.tokenizer.decode(written(turns))


@pytest.mark.parametrize("k", [0, -1])
def test_no_guess_is_no_speculation(pair, k):
    """Catches: a loop that never guesses, silently."""
    with pytest.raises(BadInput, match="k = "):
        next(speculate(pair[0], Lookup(320), PROMPT, 5, k))


# ---- who guesses


def test_another_vocabulary_is_refused_with_a_sentence(pair, made):
    """Catches: a draft whose ids mean other words, also when it has as many."""
    target, draft = pair
    with pytest.raises(BadInput, match="vocabulary"):
        same_vocabulary(target, small(draft))
    with pytest.raises(BadInput, match="mini-256") as other:
        same_vocabulary(registry.shared().get("mini-256"), target)
    assert "词表" in other.value.message("zh")


def test_where_look_up_copies_from():
    """Catches: the shortest match instead of the longest, the first instead of the latest, and the text's own end as match."""
    assert continuation([1, 2, 3, 9, 1, 2, 3], 3) == 3
    assert continuation([1, 2, 3, 4, 9, 3, 5, 2, 3], 3) == 3  # "2 3" at 1 wins over the later "3" at 5
    assert continuation([5, 1, 5, 2, 5], 3) == 3  # the latest 5 before the last
    assert continuation([1, 2, 3], 3) is None and continuation([1], 3) is None
    assert continuation([5, 1, 5], 3, shortest=2) is None and continuation([1, 2, 9, 1, 2], 3, shortest=2) == 2
    copy = Lookup(10).draft([1, 2, 7, 1, 2], None, 5, GREEDY, None)
    assert copy.tokens == (7, 1, 2, 7, 1)  # goes on into its own guesses
    assert (copy.q == one_hot(copy.tokens, 10)).all() and copy.q.sum() == 5
    assert Lookup(10).draft([1, 2, 3], None, 5, GREEDY, None).tokens == ()


def test_counts_of_a_run(pair):
    """Catches: the prompt's forward counted as a round, unchecked guesses counted as checked. Σ min(p, q) of a greedy guess
    is 1 or 0, and it is 1 exactly where a checked guess was accepted."""
    target, draft = pair
    turns = list(speculate(target, ModelDraft(draft, 64), PROMPT, 30, 4, ignore_end=True))
    found = tally(turns)
    assert found.rounds == len(turns) - 1 and found.drafted == 4 * found.rounds
    assert found.tokens == found.accepted + found.rounds and found.checked <= found.drafted
    for turn in turns[1:]:
        assert [c.accepted for c in turn.played.checks] == [o == 1 for o in turn.overlaps[: len(turn.played.checks)]]
    assert tally([]).acceptance == 0.0 == tally([]).accepted_share


def test_greedy_distribution_is_the_rules_own():
    """Catches: a short cut for temperature 0 that differs from compute/sampling.py, which the pages show."""
    logits_ = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    assert (distribution(logits_, GREEDY) == sampling.probabilities(logits_.numpy(), GREEDY)).all()
    assert isinstance(Draft((), np.zeros((0, 0))).tokens, tuple)
