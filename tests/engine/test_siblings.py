"""Samples and beams against plain loops that keep no cache."""

import numpy as np
import pytest
import torch

from compute import functions
from compute.engine.model import forward
from compute.engine.registry import shared
from compute.engine.siblings import MODEL, beams, grow, samples, siblings
from compute.errors import BadInput, Cancelled
from compute.sampling import Sampling

TEXT = "小明把苹果给了"


@pytest.fixture(scope="module")
def model():
    return shared().get(MODEL)


def continuations(steps):
    """Each final text's tokens, followed back through its parents."""
    found = []
    for last in range(len(steps[-1])):
        at, tokens = last, []
        for step in reversed(steps):
            at, token = step[at]
            tokens.append(token)
        found.append(tokens[::-1])
    return found


def test_a_sample_is_what_it_would_be_alone(model):
    """Each text computed whole at every step, with torch's softmax and the inverse of the cumulated sum. Catches: a seed that
    belongs to the place in the batch, a cache row of another text, random numbers spent elsewhere, an end token."""
    prompt, seeds = model.tokenizer.encode(TEXT), (3, 0, 5, 11)
    texts = continuations(grow(model, prompt, 4, 12, samples(seeds, Sampling())))
    for seed, text in zip(seeds, texts):
        random, alone = np.random.default_rng(seed), list(prompt)
        for _ in range(12):
            row = forward(model.weights, torch.tensor([alone]), None, torch.arange(len(alone))[None], last_only=True)[0, -1].double()
            row[list(model.config.stop_tokens)] = -torch.inf
            alone.append(int(torch.searchsorted(row.softmax(-1).cumsum(-1), random.random(), right=True)))
        assert text == alone[len(prompt) :]
    assert len({tuple(text) for text in texts}) == 4


@pytest.mark.parametrize("width, text", [(2, TEXT), (4, "春风"), (5, "Tom gave the apple to")])
def test_beams_are_those_of_a_plain_search(model, width, text):
    """All texts computed whole, candidates in a sorted list. Catches: a cache that is not put in the parents' order, scores that
    are not summed, a first step that counts the prompt's copies as different texts."""
    prompt, new = model.tokenizer.encode(text), 6
    texts = [(0.0, ())]
    for _ in range(new):
        ids = torch.tensor([[*prompt, *tokens] for _, tokens in texts])
        rows = forward(model.weights, ids, None, torch.arange(ids.shape[1]).expand_as(ids), last_only=True)[:, -1].double()
        rows[:, list(model.config.stop_tokens)] = -torch.inf
        rows = rows.log_softmax(-1).tolist()
        candidates = [(score + rows[i][token], (*tokens, token)) for i, (score, tokens) in enumerate(texts) for token in range(len(rows[i]))]
        texts = sorted(candidates, reverse=True)[:width]
    assert continuations(grow(model, prompt, width, new, beams(width))) == [list(tokens) for _, tokens in texts]


def test_the_served_function_names_every_token():
    """Catches: a parameter that the page sends and the function does not take, pieces that are missing."""
    said = functions.call("sharing.run", {"mode": "beam", "text": "Tom said", "count": 3})
    assert len(said["steps"]) == 16 and all(len(step) == 3 for step in said["steps"])
    assert {*said["prompt"], *(token for step in said["steps"] for _, token in step)} == set(map(int, said["pieces"]))
    assert "".join(said["pieces"][str(token)] for token in said["prompt"]) == "Tom said"


def test_bad_requests_and_cancelling():
    """Catches: a run that nobody can stop, a count that would fill the machine."""
    with pytest.raises(Cancelled):
        siblings("parallel", TEXT, 2, cancelled=lambda: True)
    for params in ({"count": 1}, {"count": 17}, {"text": ""}, {"mode": "best"}):
        with pytest.raises(BadInput):
            functions.call("sharing.run", {"text": TEXT} | params)
