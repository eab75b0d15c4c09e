"""The live view of the engine that everybody shares: the same over HTTP and embedded, and nobody sees another's words."""

import json
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import nullcontext

import httpx
import httpx2  # comes with the official client
import openai
import pytest
import uvicorn

from compute import turns
from compute.engine import running as module
from compute.engine.engine import Ask
from compute.engine.registry import shared
from compute.engine.running import Running
from compute.errors import BadInput, Busy, Internal, Unavailable, UnknownName
from compute.sampling import Sampling
from compute.service import client, live
from compute.service.api import create_app
from compute.service.serve import listen, reachable
from compute.trace import from_json
from tests.service.test_openai import client_of

FIELDS = {
    "version", "model", "policy", "slots", "blocks", "block_size", "now", "first", "next", "steps", "sequences", "mine", "queue", "tables", "filled",
    "refs", "cached", "tokens_per_second", "learners", "conditions", "texts",
}  # fmt: skip
ANN, BOB = "ann-4f1c", "bob-97e2"


@pytest.fixture(params=["http", "embedded"])
def reach(request, use):
    """Both ways to the same functions."""
    if request.param == "embedded":
        use(client.EMBEDDED)
    else:
        use(request.getfixturevalue("_talking"))
    return request.param


def settled(learner: str = "", model: str = "mini-64", since: int = 0) -> dict:
    """The snapshot when nothing runs and nothing waits."""
    end = time.monotonic() + 20
    while True:
        seen = client.live(since, model=model, learner=learner)
        if not seen["tables"] and not seen["queue"] and all(text["finish"] for text in seen["texts"]):
            return seen
        assert time.monotonic() < end, "it never came to rest"
        time.sleep(0.02)


def test_what_is_sent_is_found_in_the_snapshots(reach):
    """Catches: a text that never comes back, a step that is not told, times of another clock, a tuple here and a list there."""
    first = client.live(model="mini-64", learner=ANN)
    assert set(first) == FIELDS and first["model"] == "mini-64" == first["conditions"]["model"] and first["conditions"]["dtype"] == "float32"
    sent = client.send("小明把苹果给了", max_tokens=12, temperature=0, n=2, model="mini-64", learner=ANN)
    seen = settled(ANN, since=first["next"])
    mine = [text for text in seen["texts"] if text["request"] == sent["request"]]
    assert [text["index"] for text in mine] == [0, 1] and mine[0]["text"] == mine[1]["text"] != "", "both are greedy"
    for text in mine:
        assert text["prompt"] == "小明把苹果给了" and text["finish"] in ("stop", "length") and text["error"] is None
        assert 0 < text["ttft"] <= text["seconds"] and 0 < text["tokens"] <= 12
    ids = [text["sequences"][0] for text in mine]
    assert set(ids) <= set(seen["mine"])
    lives = {life["id"]: life for life in seen["sequences"]}
    assert all(lives[id]["request"] == sent["request"] and lives[id]["written"] == text["tokens"] for id, text in zip(ids, mine))
    assert [step["index"] for step in seen["steps"]] == list(range(first["next"], seen["next"])), "all since the first look"
    counted = Counter()
    for step in seen["steps"]:
        for _, id, _, _, written in step["lanes"]:
            counted[id] += written
    assert counted[ids[1]] == mine[1]["tokens"] - 1 and counted[ids[0]] == mine[0]["tokens"], "the second began with its first token read"
    assert seen["now"] >= seen["steps"][-1]["ended"] and seen["tokens_per_second"] > 0
    assert json.loads(json.dumps(seen)) == seen


def test_nobody_sees_anothers_words(reach):
    """The whole answer is searched, not only the fields meant for texts. Catches: a prompt, a text or a name that leaves the
    service to somebody else, also while it is waiting or being written."""
    words = ("小红的秘密是一只猫", "小军的秘密是一条狗")
    sent = {who: client.send(text, max_tokens=200, temperature=1.0, seed=5, model="mini-64", learner=who) for who, text in zip((ANN, BOB), words)}
    looks = {who: [] for who in (ANN, BOB, "", "somebody else")}
    while True:
        for who, seen in looks.items():
            seen.append(client.live(model="mini-64", learner=who))
        time.sleep(0.03)
        if all(text["finish"] for who in (ANN, BOB) for text in looks[who][-1]["texts"]):
            break
    texts = {who: next(text for text in looks[who][-1]["texts"] if text["request"] == sent[who]["request"]) for who in (ANN, BOB)}
    assert all(len(text["text"]) > 5 for text in texts.values())
    for who, seen in looks.items():
        everything = json.dumps([seen, client.call("live.trace", {"model": "mini-64"}).value], ensure_ascii=False)
        for owner, prompt in zip((ANN, BOB), words):
            assert (prompt in everything) == (owner == who)
            assert (texts[owner]["text"] in everything) == (owner == who)
            assert owner not in everything
    ids = {who: set(looks[who][-1]["mine"]) for who in looks}
    assert ids[ANN] and ids[BOB] and not ids[ANN] & ids[BOB] and not ids[""] and not looks[""][-1]["texts"]
    assert {sent[who]["request"] for who in (ANN, BOB)} <= {life["request"] for life in looks[""][-1]["sequences"]}, "that somebody runs is seen"


def test_only_ones_own_request_can_be_taken_back(reach):
    """Catches: a number guessed, and a cancelled text that goes on."""
    sent = client.send("春风", max_tokens=500, temperature=2.0, n=4, model="mini-64", learner=ANN)["request"]
    for number, who in ((sent, BOB), (sent, ""), (10**9, ANN)):
        with pytest.raises(UnknownName, match=str(number)):
            client.cancel_live(number, learner=who)
    client.cancel_live(sent, learner=ANN)
    client.cancel_live(sent, learner=ANN)
    texts = [text for text in settled(ANN)["texts"] if text["request"] == sent]
    assert len(texts) == 4 and {text["finish"] for text in texts} <= {"cancelled", "stop"} and "cancelled" in {text["finish"] for text in texts}


@pytest.mark.parametrize(
    "wrong, field",
    [
        ({"text": ""}, "text"), ({"text": "字" * 1500}, "text"), ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 513}, "max_tokens"),
        ({"text": "字" * 700, "max_tokens": 500}, "max_tokens"), ({"temperature": -1.0}, "temperature"), ({"temperature": "warm"}, "temperature"),
        ({"n": 5}, "n"), ({"seed": -1}, "seed"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_bad_input_names_the_field(reach, wrong, field):
    """Catches: a complaint about a field that the sender does not know, and a difference between the two ways."""
    asked = {"text": "春风", "model": "mini-64", "learner": ANN} | wrong
    with pytest.raises(BadInput) as caught:
        client.send(asked.pop("text"), **asked)
    assert caught.value.values["field"] == field and type(caught.value) is BadInput


def test_unknown_models_and_negative_steps(reach):
    """Catches: the default model in the place of another."""
    for call in (lambda: client.live(model="gpt"), lambda: client.send("x", model="gpt")):
        with pytest.raises(UnknownName, match="mini-256"):
            call()
    with pytest.raises(BadInput, match="since"):
        client.live(-1)


def test_a_learner_cannot_fill_the_queue_of_all(reach):
    """Catches: one learner who takes the class's engine, and one limit for all of them together."""
    sent = [client.send("春风", max_tokens=500, temperature=2.0, model="mini-64", learner=ANN)["request"] for _ in range(live.MOST_OF_ONE)]
    try:
        with pytest.raises(Busy) as refused:
            client.send("春风", model="mini-64", learner=ANN)
        assert 1 <= refused.value.values["retry_after"] <= 60
        client.send("春风", max_tokens=1, model="mini-64", learner=BOB)
    finally:
        for request in sent:
            client.cancel_live(request, learner=ANN)
    settled(ANN)


def test_learners_of_the_last_minute_are_counted(monkeypatch):
    """With a clock of its own. Catches: the same one counted twice, somebody long gone, somebody without a name."""
    here, now = live.Class(), 100.0
    monkeypatch.setattr(live.time, "monotonic", lambda: now)
    assert [here.seen(who) for who in ("a", "b", "", "a")] == [1, 2, 2, 2]
    now = 159.0
    assert here.seen("b") == 2
    now = 161.0
    assert here.seen("") == 1, "a was last seen 61 s ago"


def test_the_trace_of_everybody_replays(reach):
    """Catches: a recent trace that the player cannot read, or that is another than what was seen live."""
    client.send("小明把苹果给了小红", max_tokens=30, model="mini-64", learner=ANN)
    seen = settled(ANN)
    trace = from_json(client.call("live.trace", {"model": "mini-64"}).value)
    assert (trace.clock, trace.slots, trace.blocks, trace.first) == ("second", seen["slots"], seen["blocks"], seen["first"])
    assert [step.ended for step in trace.steps] == [step["ended"] for step in seen["steps"]]
    assert trace.tokens and {lane[1] for step in trace.steps for lane in step.lanes} <= {life.id for life in trace.sequences}


def test_the_first_look_in_the_web_process_keeps_no_page_waiting(use, monkeypatch):
    """Catches: every other page standing still for the seconds in which one of them imports torch and loads a model."""
    held, make = [], module.running

    class Import:
        def find_spec(self, name, *_):
            if name == "compute.service.live":
                held.append(("import", turns.held()))

    def running(id):
        held.append(("engine", turns.held()))
        return make(id)

    use(client.EMBEDDED)
    monkeypatch.setattr(module, "running", running)
    monkeypatch.setattr(sys, "meta_path", [Import(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "compute.service.live")
    monkeypatch.delattr("compute.service.live")
    with turns.taken():
        assert client.live(model="mini-64")["model"] == "mini-64" and turns.held()
    assert held == [("import", False), ("engine", False)]


# ---- blocks, counted again


def test_the_picture_of_the_blocks_is_that_of_the_tables(monkeypatch):
    """Recounted from what the scheduler holds, while the engine stands still. Catches: cells counted twice, owners that are not
    there, a free block shown as taken."""
    one = Running(shared().get("mini-64"), slots=4, blocks=40, block_size=4)
    monkeypatch.setattr(module, "_runnings", {"mini-64": one})
    shared_start = tuple(range(20, 31))
    for seed, more in enumerate(((), (1, 2, 3), (7,), (9, 9, 9, 9), (4, 5))):
        one.submit(Ask(shared_start + more, 14, Sampling(), seed, n=1 + seed % 2, ignore_end=True), learner=ANN if seed == 1 else "")
    pictures, look = [], one._written_down

    def written_down(step):
        look(step)
        scheduler = one.engine.scheduler
        pictures.append((json.loads(live.snapshot(one, 0, ANN, 1)), [(s.id, list(s.table.blocks), s.table.written) for s in scheduler.running], scheduler.pool.used))

    one._written_down = written_down
    while one._open or not pictures:
        time.sleep(0.01)
    assert any(len(tables) == 4 for _, tables, _ in pictures)
    for seen, tables, used in pictures:
        owners, cells = Counter(), {}
        for _, blocks, written in tables:
            owners.update(blocks)
            for position in range(written):
                cells.setdefault(blocks[position // 4], set()).add(position % 4)
        assert seen["refs"] == [owners[block] for block in range(40)] and sum(map(bool, seen["refs"])) == used
        assert seen["tables"] == {str(id): blocks for id, blocks, _ in tables}
        assert all(seen["refs"][block] == 0 and seen["filled"][block] == 4 for block in seen["cached"])
        for block in set(range(40)) - set(seen["cached"]):
            assert seen["filled"][block] == len(cells.get(block, ()))
        assert all(entry["id"] not in dict((id, 0) for id, *_ in tables) for entry in seen["queue"])
    assert any(any(count > 1 for count in seen["refs"]) for seen, *_ in pictures), "nothing was shared"
    assert any(entry["mine"] for seen, *_ in pictures for entry in seen["queue"]) or any(seen["mine"] for seen, *_ in pictures)


# ---- faults


def test_rates_and_names_of_hosts_apply(start):
    """With bodies that are no JSON, so that no model is needed. Catches: a way around the limits of the other routes."""
    server = start(per_minute=2)

    def post(path, **headers):
        return httpx.post(f"{server.url}{path}", content=b"{", headers=headers, trust_env=False)

    for path, refused in (("/live/send", 422), ("/live/cancel", 422), ("/v1/completions", 400)):
        ann = {"X-Learner": f"ann {path}"}
        assert [post(path, **ann).status_code for _ in range(2)] == [refused] * 2
        limited = post(path, **ann)
        assert limited.status_code == 429 and int(limited.headers["Retry-After"]) >= 1 and "error" in limited.json()
        assert post(path, **{"X-Learner": f"bob {path}"}).status_code == refused
        assert post(path, Origin="https://evil.example").status_code == post(path, Host="evil.example").status_code == 403


def test_killed_in_mid_stream_and_back(start, use):
    """Catches: a reader who waits for a process that is no more, an untyped error, a client that never recovers, a look that
    counts as a call."""
    server = start(per_minute=2)
    use(server)
    for _ in range(4):
        client.live(model="mini-64", learner=ANN)
    client.send("春", max_tokens=500, temperature=2.0, model="mini-64", learner=ANN)
    parts = iter(client_of(server).completions.create(model="mini-64", prompt="春", n=8, max_tokens=1000, temperature=2.0, stream=True))
    next(parts)
    server.signal(signal.SIGKILL)
    with pytest.raises((openai.APIError, httpx2.TransportError)):  # the official client lets errors of its HTTP library through
        list(parts)
    server.process.wait(10)
    for call in (lambda: client.live(model="mini-64"), lambda: client.send("x"), lambda: client.cancel_live(0)):
        with pytest.raises(Unavailable, match="nothing answers"):
            call()
    start(port=server.port)
    with pytest.raises(UnknownName):
        client.cancel_live(0, learner=ANN)


def test_stopping_lets_short_texts_finish_and_tells_the_rest(start, use):
    """Catches: lost answers, a stream that just breaks off, and a service that waits for texts of nobody."""
    server = start(drain_seconds=2)
    use(server)
    official, body = client_of(server), {"prompt": "春", "temperature": 0, "stream": True}
    short = iter(official.completions.create(model="mini-128", max_tokens=20, **body))
    long = iter(official.completions.create(model="mini-64", max_tokens=1000, **body | {"prompt": ["春"] * 60, "temperature": 2.0}))
    client.send("春", max_tokens=512, temperature=2.0, n=4, model="mini-64", learner=ANN)
    next(long), next(short)
    server.signal(signal.SIGTERM)
    assert list(short)[-1].choices[0].finish_reason
    with pytest.raises(openai.APIError, match="shutting down"):
        list(long)
    assert server.process.wait(10) == 0


@pytest.fixture
def here(use):
    """The service in a thread of this process, where what it calls can be replaced; its client has no connections left from before."""
    server = uvicorn.Server(uvicorn.Config(create_app(preload=False), port=0, log_level="error", loop="asyncio", http="h11"))
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    client._http.cache_clear()
    use(reachable(listening))
    yield
    client._http.cache_clear()
    server.should_exit = True
    thread.join(20)


@pytest.mark.parametrize("failure,told", [(None, None), (UnknownName("model", "模型", "nope", ["mini-64"]), UnknownName), (RuntimeError("of ours"), Internal)])
def test_a_service_that_still_loads_is_not_silent(monkeypatch, here, failure, told):
    """Catches: a look while torch or a model is loaded that hears nothing, so that on a busy machine the service counts as one that hangs;
    an error that comes late and is taken for a snapshot."""
    view = live.ROUTES["/live"]

    def loading(asked, learner):
        time.sleep(2.5)
        if failure:
            raise failure
        return view(asked, learner)

    monkeypatch.setitem(live.ROUTES, "/live", loading)
    monkeypatch.setattr(client, "SILENT_SECONDS", 1.0)
    with pytest.raises(told) if told else nullcontext():
        assert client.live(model="mini-64")["model"] == "mini-64"


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"{}", b'{"version": 2}', b"\xff", b"null"])
def test_an_answer_of_somebody_else_is_not_taken_for_a_snapshot(answer):
    """Catches: a KeyError on a page because another program has the port."""
    from compute.service.schema import NotOurs, live_from

    with pytest.raises(NotOurs):
        live_from(answer)
