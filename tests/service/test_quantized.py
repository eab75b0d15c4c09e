"""Quantized models asked for by name, over OpenAI's protocol and on the live page; the referee is `generate` on the same weights."""

import httpx
import openai
import pytest

from compute.engine.generate import generate
from compute.engine.registry import shared
from compute.errors import BadInput, UnknownName
from compute.service import client

from .test_openai import STORY, client_of, written

NAME = "mini-64:int4-g32"


def test_a_quantized_model_is_asked_for_by_name(talking):
    """Catches: the scheme dropped on the way, so that the plain model answers, whose tokens are as probable as that makes them."""
    answer = client_of(talking).completions.create(model=NAME, prompt=STORY, max_tokens=24, temperature=0, logprobs=0)
    (text, steps), (_, plain) = (written(shared().get(name), STORY, 24) for name in (NAME, "mini-64"))
    assert answer.choices[0].text == text and answer.usage.completion_tokens == len(steps)
    assert answer.model == NAME and answer.system_fingerprint.startswith(NAME)
    told = answer.choices[0].logprobs.token_logprobs[0]
    assert abs(told - steps[0].logprob) < 1e-3 < abs(told - plain[0].logprob)


def test_names_are_not_listed_and_yet_known(talking):
    """Catches: a list with dozens of lines for each model, and a name that works in one place and not in the other."""
    official = client_of(talking)
    assert all(":" not in model.id for model in official.models.list())
    assert official.models.retrieve(NAME).id == NAME


@pytest.mark.parametrize("name, words", [("mini-64:int5-g32", "int4-g32"), ("mini-64:", "scheme"), ("gpt-4:int4-g32", "mini-256"), ("smollm2-draft:int4-g32", "mini-256")])
def test_names_that_nobody_knows(talking, name, words):
    """Catches: a misspelt scheme answered by the plain model or by an error of ours; a draft reached through its scheme."""
    official = client_of(talking)
    for call in (lambda: official.completions.create(model=name, prompt="x"), lambda: official.models.retrieve(name)):
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        assert caught.value.code == "model_not_found" and words in caught.value.message


@pytest.mark.parametrize("name, words", [("mini-64:int4-g128", "does not divide"), ("mini-64:kv8", "measured, not served")])
def test_schemes_that_do_not_fit(talking, name, words):
    """Catches: a complaint about a parameter that the sender never wrote, and a small cache that is none."""
    with pytest.raises(openai.BadRequestError) as caught:
        client_of(talking).completions.create(model=name, prompt="x")
    assert caught.value.param == "model" and words in caught.value.message


def test_the_live_page_and_functions_take_the_name(talking):
    """Catches: one way in that knows registered names only."""
    sent = httpx.post(f"{talking.url}/live/send", json={"text": STORY, "max_tokens": 4, "model": NAME}, headers={"X-Learner": "a" * 8}, trust_env=False)
    assert sent.status_code == 200 and sent.json()["model"] == NAME
    view = httpx.get(f"{talking.url}/live", params={"model": NAME}, trust_env=False)
    assert view.status_code == 200 and view.json()["model"] == view.json()["conditions"]["model"] == NAME
    result = client.call("kv.compare", {"model": NAME, "text": STORY, "new": 4})
    assert result.value["conditions"]["model"] == NAME
    assert result.value["tokens"] == [step.token for step in generate(shared().get(NAME), shared().get(NAME).tokenizer.encode(STORY), 4, ignore_end=True)]
    with pytest.raises(UnknownName, match="int5"):
        client.call("kv.compare", {"model": "mini-64:int5", "text": STORY, "new": 4})
    with pytest.raises(BadInput, match="group"):
        client.call("kv.compare", {"model": "mini-64:int4-g128", "text": STORY, "new": 4})
