"""OpenAI's protocol, spoken by OpenAI's own client to the service as a process; the referee for every text is `generate`."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
import torch

from compute.engine.engine import Ask
from compute.engine.generate import generate
from compute.engine.model import forward
from compute.engine.registry import shared
from compute.engine.running import running
from compute.sampling import GREEDY, Sampling
from compute.service.api import create_app

STORY = "小明把苹果给了小红，小红又把苹果给了小军。"


@pytest.fixture(scope="module")
def model():
    return shared().get("mini-64")


def client_of(server, **headers) -> openai.OpenAI:
    http = openai.DefaultHttpxClient(trust_env=False)
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=30, http_client=http, default_headers=headers)


@pytest.fixture
def ask(talking):
    """ask(…) → what the official client gets from /v1/completions for mini-64."""
    client = client_of(talking)

    def complete(**asked):
        beyond = {name: asked.pop(name) for name in ("top_k", "min_p") if name in asked}
        return client.completions.create(**({"model": "mini-64", "prompt": STORY} | asked), extra_body=beyond)

    yield complete
    client.close()


def written(model, prompt, new: int, rule: Sampling = GREEDY, seed: int = 0, stop=()):
    """(text, steps) of one generation by itself."""
    tokens = model.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    steps = list(generate(model, tokens, new, sampling=rule, seed=seed, stop=stop))
    return "".join(step.text for step in steps), steps


# ---- texts


@pytest.mark.parametrize(
    "asked, rule",
    [
        ({"temperature": 0}, GREEDY),
        ({"temperature": 1.3, "top_p": 0.9, "seed": 5}, Sampling(1.3, 0, 0.9)),
        ({"temperature": 0.8, "top_k": 20, "min_p": 0.05, "seed": 6}, Sampling(0.8, 20, 1.0, 0.05)),
        ({"seed": 2**40}, Sampling()),
    ],
    ids=str,
)
def test_a_text_is_what_generate_writes(ask, model, asked, rule):
    """Catches: an argument that is not passed on, a default that is not OpenAI's, a seed that is cut."""
    answer = ask(max_tokens=30, **asked)
    text, steps = written(model, STORY, 30, rule, asked.get("seed", 0))
    (choice,) = answer.choices
    assert choice.text == text and choice.finish_reason == steps[-1].finish and choice.logprobs is None
    assert (answer.object, answer.model, answer.system_fingerprint) == ("text_completion", "mini-64", "mini-64-float32-cpu")
    usage, prompt = answer.usage, len(model.tokenizer.encode(STORY))
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (prompt, len(steps), prompt + len(steps))


def test_sixteen_tokens_unless_said_otherwise(ask):
    """Catches: another default than the protocol's."""
    assert ask(seed=3, temperature=2.0).usage.completion_tokens <= 16
    assert ask(temperature=0, logprobs=0, prompt="The").usage.completion_tokens == 16


def test_prompts_and_samples_are_numbered_through(ask, model):
    """Strings and token ids. Catches: choices out of order, one seed for all, a prompt that is counted n times."""
    prompts, n = [STORY, "春风", "The"], 2
    by_text = ask(prompt=prompts, n=n, max_tokens=9, seed=11)
    ids = [model.tokenizer.encode(prompt) for prompt in prompts]
    by_ids = ask(prompt=ids, n=n, max_tokens=9, seed=11)
    wanted = [written(model, prompt, 9, Sampling(), 11 + at * n + i)[0] for at, prompt in enumerate(ids) for i in range(n)]
    for answer in (by_text, by_ids):
        assert [choice.index for choice in answer.choices] == list(range(6)) and [choice.text for choice in answer.choices] == wanted
        assert answer.usage.prompt_tokens == sum(map(len, ids))
    assert ask(prompt=ids[1], max_tokens=9, seed=13).choices[0].text == wanted[2]


def test_seeds_are_counted_through_zero(ask):
    """Catches: negative seeds that are brought into range before they are counted on."""
    texts = [choice.text for choice in ask(prompt=["春", "春"], n=2, max_tokens=20, temperature=1.5, seed=-2).choices]
    assert texts == [ask(prompt="春", max_tokens=20, temperature=1.5, seed=seed).choices[0].text for seed in (-2, -1, 0, 1)]
    assert len(set(texts)) == 4


def test_without_a_seed_one_is_drawn_and_told(ask):
    """Catches: the same text for everybody, and an answer that nobody can get again."""
    one, two = (ask(prompt="春", max_tokens=40, temperature=1.5) for _ in range(2))
    assert one.seed != two.seed and one.choices[0].text != two.choices[0].text
    assert ask(prompt="春", max_tokens=40, temperature=1.5, seed=one.seed).choices[0].text == one.choices[0].text


def test_a_stop_string_ends_and_is_not_shown(ask, model):
    """Catches: half a stop string that was let through, and tokens written after it."""
    whole, _ = written(model, STORY, 40)
    stop = whole[8:11]
    at = whole.index(stop)
    answer = ask(temperature=0, max_tokens=40, stop=["never there", stop])
    assert answer.choices[0].text == whole[:at] and answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(written(model, STORY, 40, stop=(stop,))[1])
    assert "".join(part.choices[0].text for part in ask(temperature=0, max_tokens=40, stop=stop, stream=True)) == whole[:at]


def test_logprobs_are_the_models_own(ask, model):
    """Recomputed from the whole text at once. Catches: logprobs after temperature or truncation, one step late, of the logits'
    order, offsets that count tokens."""
    answer = ask(max_tokens=12, seed=4, temperature=0.7, top_p=0.5, logprobs=3)
    found = answer.choices[0].logprobs
    _, steps = written(model, STORY, 12, Sampling(0.7, 0, 0.5), 4)
    prompt = model.tokenizer.encode(STORY)
    sequence = torch.tensor([prompt + [step.token for step in steps]])
    logits = forward(model.weights, sequence, None, torch.arange(sequence.shape[1])[None], last_only=False)[0, len(prompt) - 1 : -1]
    own = logits.double().log_softmax(-1)
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(found.text_offset) == len(steps)
    for i, step in enumerate(steps):
        assert found.tokens[i] == model.tokenizer.piece(step.token)
        assert found.token_logprobs[i] == pytest.approx(float(own[i, step.token]), abs=1e-4)
        best = [model.tokenizer.piece(token) for token in own[i].topk(3).indices.tolist()]
        assert set(found.top_logprobs[i]) == {*best, found.tokens[i]}
        assert answer.choices[0].text.startswith(found.tokens[i], found.text_offset[i])
    assert ask(max_tokens=2, logprobs=0, seed=1).choices[0].logprobs.top_logprobs[0].keys() == {ask(max_tokens=2, logprobs=0, seed=1).choices[0].logprobs.tokens[0]}


def test_offsets_count_what_the_text_shows(ask, model):
    """At a high temperature, where bytes come that form no character. Catches: bytes that are dropped from the count, and those
    after them counted twice."""
    choice = ask(max_tokens=60, seed=3, temperature=2, logprobs=0).choices[0]
    texts = [step.text for step in written(model, STORY, 60, Sampling(2), 3)[1]]
    assert "⟨" in choice.text, "another seed is needed"
    assert choice.logprobs.text_offset == [len("".join(texts[:i])) for i in range(len(texts))]


def test_the_prefix_cache_is_told_in_the_usage(ask):
    """Catches: hits that are never counted, and hits of somebody else."""
    prompt = list(range(100, 140))
    first, second = (ask(prompt=prompt, max_tokens=2, seed=0) for _ in range(2))
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens == 32, "two blocks of sixteen"


# ---- streaming


def test_a_stream_adds_up_to_the_whole(ask, model):
    """Several texts, characters of several tokens. Catches: a torn character, a lost last piece, chunks of one choice in the
    other, a second finish."""
    asked = {"prompt": ["春风", "寿"], "n": 2, "max_tokens": 60, "temperature": 2.0, "seed": 21, "logprobs": 0}
    whole, texts, ends, pieces = ask(**asked), [""] * 4, [""] * 4, 0
    for part in ask(stream=True, **asked):
        (choice,) = part.choices
        texts[choice.index] += choice.text
        pieces += len(choice.logprobs.tokens)
        assert not ends[choice.index] and part.usage is None and part.id.startswith("cmpl-")
        ends[choice.index] = choice.finish_reason or ""
    assert texts == [choice.text for choice in whole.choices] and ends == [choice.finish_reason for choice in whole.choices]
    tokens = [token for choice in whole.choices for token in choice.logprobs.tokens]
    assert pieces == len(tokens) and any(token.startswith("bytes:") for token in tokens), "no character had several tokens"


def test_the_stream_ends_as_the_protocol_says(talking):
    """The bytes themselves. Catches: a missing [DONE], usage where it was not asked for, a line that is no event."""
    body = {"model": "mini-64", "prompt": "春", "max_tokens": 3, "temperature": 0, "stream": True}
    for more, usages in (({}, [None] * 3), ({"stream_options": {"include_usage": True}}, [None, None, None, 4])):
        answer = httpx.post(f"{talking.url}/v1/completions", json=body | more, trust_env=False)
        assert answer.headers["content-type"].startswith("text/event-stream")
        *events, done, nothing = answer.text.split("\n\n")
        assert done == "data: [DONE]" and nothing == "" and all(event.startswith("data: {") for event in events)
        events = [json.loads(event.removeprefix("data: ")) for event in events]
        assert [("usage" in event) for event in events] == [bool(more)] * len(usages)
        assert [(event.get("usage") or {}).get("total_tokens") for event in events] == usages
        assert events[-1]["choices"] == [] if more else events[-1]["choices"][0]["finish_reason"] == "length"


def test_texts_arrive_while_they_are_written(ask):
    """Catches: a stream that is sent when all is over."""
    parts = iter(ask(stream=True, max_tokens=900, temperature=2.0, seed=3, prompt="The"))
    next(parts)
    engine_steps = [next(parts) for _ in range(3)]
    assert all(part.choices[0].finish_reason is None for part in engine_steps)
    parts.close()


# ---- models


def test_models_are_listed(talking):
    """Catches: a draft that cannot be talked to, and an unknown name answered by the default model."""
    client = client_of(talking)
    names = [model.id for model in client.models.list()]
    assert names[0] == "mini-256" and {"mini-128", "mini-64"} < set(names) and "smollm2-draft" not in names
    assert client.models.retrieve("mini-64").id == "mini-64"
    for call in (lambda: client.models.retrieve("gpt-4"), lambda: client.completions.create(model="gpt-4", prompt="x"),
                 lambda: client.completions.create(model="smollm2-draft", prompt="x")):  # fmt: skip
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        assert caught.value.code == "model_not_found" and "mini-256" in caught.value.message


# ---- errors


@pytest.mark.parametrize(
    "wrong, param",
    [
        ({"prompt": "好" * 1500}, "prompt"),
        ({"prompt": [5] * 1024}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, 99_999]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1020}, "max_tokens"),
        ({"max_tokens": 2.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 9}, "n"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"logprobs": 21}, "logprobs"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": 7}, "stop"),
        ({"stop": False}, "stop"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"model": "\ud800"}, "model"),
        ({"stop": ["\udfff"]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"echo": True}, "echo"),
        ({"suffix": "."}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"frequency_penalty": 1.0}, "frequency_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"top_q": 1}, "top_q"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_input_is_400_with_the_name_of_the_field(talking, wrong, param):
    """Catches: an argument that is taken and ignored, a 422 of ours, a complaint about another field, a 500."""
    body = {"model": "mini-64", "prompt": STORY} | wrong
    answer = httpx.post(f"{talking.url}/v1/completions", content=json.dumps(body), trust_env=False)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["param"] == param and param in error["message"]
    assert error["type"] == "invalid_request_error"


def test_no_argument_is_missed_and_nulls_are_as_if_not_sent(talking, ask):
    """Catches: a default prompt, and a client that sends null for what it does not set."""
    answer = httpx.post(f"{talking.url}/v1/completions", json={"model": "mini-64"}, trust_env=False)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"
    for body in (b"{", b"[1]", b"\xff"):
        answer = httpx.post(f"{talking.url}/v1/completions", content=body, trust_env=False)
        assert answer.status_code == 400 and answer.json()["error"]["param"] is None
    assert ask(max_tokens=2, seed=1, stop=None, logprobs=None, best_of=None, user="me", echo=False, suffix=None).choices[0].text


def test_the_clients_own_classes_of_errors(ask, talking):
    """Catches: an error whose type, field or sentence the official client cannot read."""
    with pytest.raises(openai.BadRequestError, match="passes the model's context of 1024") as caught:
        ask(max_tokens=1020)
    assert caught.value.param == "max_tokens" and caught.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError, match="Chat completions are not served here"):
        client_of(talking).chat.completions.create(model="mini-64", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.NotFoundError, match="POST /v1/embeddings"):
        client_of(talking).embeddings.create(model="mini-64", input="x")
    answer = httpx.get(f"{talking.url}/v1/models", headers={"Host": "evil.example"}, trust_env=False)
    assert answer.status_code == 403


def idle(server, model: str = "mini-64"):
    """Waits until the engine holds nothing; the snapshot."""
    end = time.monotonic() + 20
    while True:
        seen = httpx.get(f"{server.url}/live", params={"model": model}, trust_env=False).json()
        if not seen["tables"] and not seen["queue"]:
            assert not any(seen["refs"])
            return seen
        assert time.monotonic() < end, "slots or blocks are still held"
        time.sleep(0.02)


def test_a_full_queue_is_503_with_the_time_to_come_back(talking):
    """Eight run and 120 wait. Catches: an unbounded queue, prompts of a refused call that run all the same."""
    client, body = client_of(talking), {"model": "mini-64", "prompt": ["春"] * 128, "max_tokens": 1000, "temperature": 2.0}
    with client.completions.create(**body, stream=True) as parts:
        next(iter(parts))
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(**body)
        assert caught.value.status_code == 503 and 1 <= int(caught.value.response.headers["Retry-After"]) <= 60
        assert "busy" in caught.value.message and caught.value.code == "overloaded"
    idle(talking)
    assert client.completions.create(model="mini-64", prompt="春", max_tokens=1).usage.completion_tokens == 1


# ---- leaving


@pytest.mark.parametrize("stream", [True, False])
def test_a_caller_who_left_is_in_no_further_step(stream, monkeypatch):
    """The application in this process, counted in the engine's steps, while a neighbour goes on. A step takes a while here, and
    the seed's text is hundreds of tokens long, so that neither ends by itself before it is looked at. Catches: slots and blocks held for nobody."""
    engine = running("mini-64")
    step = engine.engine.step
    monkeypatch.setattr(engine.engine, "step", lambda: (time.sleep(0.01), step())[1])
    neighbour = engine.submit(Ask((5, 6, 7), 900, ignore_end=True))
    body = json.dumps({"model": "mini-64", "prompt": STORY, "max_tokens": 900, "temperature": 2.0, "seed": 3, "stream": stream}).encode()
    with ThreadPoolExecutor(1) as apart:  # a browser's tests leave an event loop in this thread
        request, making = apart.submit(lambda: asyncio.run(leave_after(engine, body, pieces=5))).result()
    end = time.monotonic() + 20
    while len(engine.look(making)[1]) < 5:
        assert time.monotonic() < end, "the neighbour does not go on"
        time.sleep(0.01)
    look, steps, _ = engine.look()
    (sequence,) = request.ticket.sequences
    assert [index for index, step in steps if sequence.id in [lane[1] for lane in step.lanes]][-1] <= making
    assert list(id for id, *_ in look.tables) == [neighbour.ticket.sequences[0].id]
    engine.cancel(neighbour)


async def leave_after(engine, body: bytes, pieces: int):
    """Calls the application and goes away when `pieces` tokens are written: (the engine's request, the index of the step that
    was being made when it noticed)."""
    app, leaving, asked = create_app(preload=False), asyncio.Event(), [{"type": "http.request", "body": body, "more_body": False}]
    before, noticed, cancel = set(engine._open), [], engine.cancel

    def watched(request, error=None):
        noticed.append((request, engine.look()[0].next))
        cancel(request, error)

    async def receive():
        if asked:
            return asked.pop()
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    async def watch():
        async with asyncio.timeout(20):
            while not any(request.writings[0].tokens >= pieces for request in engine._open - before):
                await asyncio.sleep(0.005)
        leaving.set()

    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/completions", "raw_path": b"/v1/completions", "root_path": "",
        "scheme": "http", "query_string": b"", "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    engine.cancel = watched
    try:
        await asyncio.gather(app(scope, receive, send), watch())
    finally:
        engine.cancel = cancel
    ((request, making),) = noticed
    return request, making


def test_leaving_a_connection_frees_what_it_held(talking, ask):
    """The same over a real connection. Catches: a server that does not notice who has gone."""
    parts = ask(stream=True, prompt="春风", n=4, max_tokens=1000, temperature=2.0)
    next(iter(parts))
    parts.close()
    assert any(life["cancelled"] for life in idle(talking)["sequences"][-4:])
