"""Batched continuations against one generation a row, and the texts that the service hands out."""

from dataclasses import replace

import numpy as np
import pytest

from compute import functions
from compute import sampling as rules
from compute.engine.engine import Ask
from compute.engine.generate import generate
from compute.engine.registry import shared
from compute.engine.running import running
from compute.engine.sampled import continue_rows, described, sample_texts
from compute.errors import BadInput, Cancelled
from compute.sampling import GREEDY, ORDERS, Sampling

from . import tiny

PROMPTS = [tiny.ids(n)[0].tolist() for n in (8, 3, 1, 11, 8)]
SEEDS = (0, 1, 2, 3, 0)
RULES = (
    GREEDY, Sampling(), Sampling(1.3, top_p=0.9), Sampling(0.7, 40, 0.95, 0.05), Sampling(1.3, min_p=0.1), *(Sampling(1.5, 50, 0.8, 0.02, order) for order in ORDERS),
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_row_is_what_generate_writes(model, rule):
    """Prompts of other lengths beside it, the same seed. Catches: padding that is looked at, positions of another row, a seed
    that goes with the row's place, random numbers spent elsewhere."""
    rows = continue_rows(model, PROMPTS, 24, rule, SEEDS)
    for prompt, seed, row in zip(PROMPTS, SEEDS, rows):
        alone = [step.token for step in generate(model, prompt, 24, sampling=rule, seed=seed, ignore_end=True)]
        assert list(row.tokens) == alone
    assert rows[0].tokens == rows[4].tokens, "the same prompt and seed"


def test_the_course_model_writes_the_same_by_the_batch():
    """Catches: a shape whose rounding is not that of the tiny models. Two candidates within rounding could flip a token on some
    processor; these few hundred draws are far from that."""
    model = shared().get("mini-256")
    prompts = [model.tokenizer.encode(text) for text in ("小明把苹果给了", "春风", "To open the file, click")]
    for rule in (GREEDY, Sampling(1.0, top_p=0.9)):
        rows = continue_rows(model, prompts, 32, rule, (5, 6, 7))
        for prompt, seed, row in zip(prompts, (5, 6, 7), rows):
            assert list(row.tokens) == [step.token for step in generate(model, prompt, 32, sampling=rule, seed=seed, ignore_end=True)]


def test_entropy_and_count_are_those_of_each_draw(model):
    """Recomputed from whole sequences without a cache. Catches: measures of the unprocessed distribution, or one step late."""
    import torch

    from compute.engine.model import forward

    rule, prompt = Sampling(1.2, top_p=0.8, min_p=0.02), PROMPTS[0]
    (row,) = continue_rows(model, [prompt], 6, rule, (9,))
    for step in range(6):
        sequence = torch.tensor([[*prompt, *row.tokens[:step]]])
        logits = forward(model.weights, sequence, None, torch.arange(sequence.shape[1])[None], last_only=True)[0, -1]
        p = rules.probabilities(logits.numpy(), rule)
        assert row.kept[step] == np.count_nonzero(p)
        assert row.entropy[step] == pytest.approx(-sum(x * np.log(x) for x in p if x > 0), abs=1e-4)
    (greedy,) = continue_rows(model, [prompt], 3, GREEDY)
    assert greedy.kept == (1, 1, 1) and greedy.entropy == (0, 0, 0)


def test_it_can_be_stopped_and_refuses(model):
    """Catches: a cancelled run that goes on, and prompts that do not fit."""
    assert len(continue_rows(model, PROMPTS, 20, stepped=lambda step: step == 4, seeds=SEEDS)[0].tokens) == 5
    with pytest.raises(BadInput):
        continue_rows(model, [[]], 5)
    with pytest.raises(BadInput):
        continue_rows(model, [PROMPTS[0] * 15], 50)


def test_a_text_ends_with_its_end_token(model):
    """Catches: an end token that is shown or counted, and measures over what came after it."""
    end = model.config.stop_tokens[0]
    (row,) = continue_rows(model, [PROMPTS[0]], 12, Sampling(), (1,))
    ended = described(model, replace(row, tokens=(*row.tokens[:4], end, *row.tokens[5:])), 1)
    assert ended.tokens == 4 and ended.text == model.tokenizer.decode(row.tokens[:4])
    assert ended.entropy == pytest.approx(np.mean(row.entropy[:5])), "the end token was drawn too"
    whole = described(model, replace(row, tokens=tuple(t if t != end else 7 for t in row.tokens)), 1)
    assert whole.tokens == 12 and whole.repetition4 == rules.repetition([t if t != end else 7 for t in row.tokens])


# ---- served


def test_the_service_and_the_command_line_say_the_same():
    """Catches: a served function with a randomness of its own."""
    asked = {"text": "春风", "temperature": 1.3, "top_p": 0.9, "count": 2, "new": 8, "seed": 3}
    one, two = functions.call("sampling.texts", asked), functions.call("sampling.texts", asked)
    assert one == two and len(one["continuations"]) == 2 and [t["seed"] for t in one["continuations"]] == [3, 4]
    logits = functions.call("next.logits", {"text": "春风", "models": ["mini-256"]})["logits"]["mini-256"]
    np.testing.assert_allclose(one["logits"]["mini-256"], logits, atol=2e-5)
    assert functions.function("sampling.texts").where == "service"


@pytest.mark.parametrize("rule", [Sampling(1.3, top_p=0.9), Sampling(0.7, 40, 0.95, 0.05, "vllm"), Sampling(1.2, min_p=0.1, order="llama.cpp")], ids=str)
def test_texts_written_among_everybody_elses_are_the_same(rule):
    """Against the batch of their own, while the engine writes for others. Catches: seeds by slot, draws measured one token late
    or without the rule, an end token that ends the row."""
    model, text = shared().get("mini-64"), "春风又绿江南岸，小明把苹果给了小红，小红很高兴。"
    others = [running("mini-64").submit(Ask((7, 8, 9), 300, Sampling(), seed, ignore_end=True)) for seed in range(3)]
    asked = {"temperature": rule.temperature, "top_k": rule.top_k, "top_p": rule.top_p, "min_p": rule.min_p, "order": rule.order}
    alone = continue_rows(model, [model.tokenizer.encode(text)] * 3, 16, rule, (11, 12, 13))
    for _ in range(2):  # the second time the prompt is found in the prefix cache
        made = sample_texts("mini-64", text, count=3, new=16, seed=11, **asked)
        for ours, row, seed in zip(made.continuations, alone, (11, 12, 13)):
            wanted = described(model, row, seed)
            assert replace(ours, entropy=0) == replace(wanted, entropy=0) and ours.entropy == pytest.approx(wanted.entropy, abs=1e-4)
    assert not any(other.ended for other in others), "the neighbours had gone"
    for other in others:
        running("mini-64").cancel(other)


def test_greedy_writes_one_text_and_progress_is_told():
    """Catches: the same text four times, and a silent run."""
    heard = []
    made = sample_texts(text="小明把苹果给了", temperature=0, count=4, new=6, report=lambda fraction, note: heard.append((fraction, note)))
    assert len(made.continuations) == 1 and made.continuations[0].kept == 1
    assert heard[0] == (1 / 6, "1 / 6") and heard[-1] == (1.0, "6 / 6")


def test_cancelling_stops_it():
    """Catches: work that goes on after the learner left."""
    asked = []
    with pytest.raises(Cancelled):
        sample_texts(text="春风", new=60, report=lambda fraction, note: asked.append(fraction), cancelled=lambda: len(asked) >= 3)
    assert len(asked) == 3


@pytest.mark.parametrize("wrong", [{"text": ""}, {"text": "x" * 201}, {"temperature": -1}, {"top_p": 0}, {"count": 9}, {"new": 65}, {"order": "x"}, {"model": "none"}])
def test_bounds(wrong):
    """Catches: a request that could keep the service busy."""
    with pytest.raises(Exception) as caught:
        functions.call("sampling.texts", {"text": "春风", "new": 1, "count": 1} | wrong)
    assert next(iter(wrong)) in str(caught.value.message("en")) or "none" in str(caught.value.message("en"))
