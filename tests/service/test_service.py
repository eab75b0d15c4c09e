"""The service as a process, called by the real client."""

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import httpx
import pytest
from starlette.requests import Request

import run
from compute import functions
from compute.errors import BadInput, Busy, Internal, Refused, TimedOut, Unavailable, UnknownName
from compute.service import client
from compute.service.api import create_app
from compute.service.http import TRUSTS, client_of
from compute.service.jobs import MOST_EVENTS, Job
from compute.service.schema import Progress, Result
from tests.service import toys
from tests.service.process import ROOT


def test_progress_comes_in_order_and_then_one_result(server):
    """Catches progress that is lost, reordered, or held back until the end."""
    started, arrivals, events = time.monotonic(), [], []
    for event in client.run("toy.slow", {"steps": 10}):
        arrivals.append(time.monotonic() - started)
        events.append(event)
    *progress, result = events
    assert [p.note for p in progress if p.note] == [f"step {n}" for n in range(1, 11)]
    assert [p.fraction for p in progress] == sorted(p.fraction for p in progress)
    assert [p.seconds for p in progress] == sorted(p.seconds for p in progress)
    assert isinstance(result, Result) and result.value == {"steps": 10}
    assert arrivals[0] < 0.6 * arrivals[-1], "the first progress came only with the end"


@pytest.mark.parametrize("way", ["the process", "embedded"])
def test_what_is_known_so_far_travels_with_the_progress(server, use, way):
    """Catches a partial result that is lost on one of the two ways, is not plain JSON data, or goes on growing after it was sent."""
    if way == "embedded":
        use("embedded")
    *progress, result = client.run("toy.grows", {"steps": 8})
    partials = [p.partial["done"] for p in progress if p.partial]
    assert partials and partials == [result.value["done"][: len(done)] for done in partials]
    assert partials[-1] == result.value["done"]


def test_a_partial_result_that_json_cannot_carry_is_a_mistake_of_the_function(server):
    """Catches a stream that breaks off in the middle of an event."""
    with pytest.raises(Internal):
        client.call("toy.unsayable", {})


def test_only_the_newest_partial_result_waits_for_a_watcher_who_does_not_look():
    """Catches a thousand half results kept in memory, the newest one lost, and one that changes after it was reported."""
    job, growing = Job("f", None, lambda: None, 60.0, None), []
    for step in range(2 * MOST_EVENTS):
        growing.append(step)
        job.report(step / (2 * MOST_EVENTS), "", {"done": growing})
    job.report(1.0, "no news")
    growing.clear()
    events = job.take()
    assert len(events) == MOST_EVENTS
    assert [len(e.partial["done"]) for e in events if e.partial] == [2 * MOST_EVENTS] and events[-2].partial
    assert job.beat(0).partial is None and not job.take()


def test_conditions_name_the_machine_and_the_seed(server):
    """Catches a live number without its conditions."""
    conditions = client.call("toy.add", {"a": 1, "seed": 7}).conditions
    assert conditions.seed == 7 and conditions.machine and conditions.python and conditions.date.startswith("20")
    assert 0 <= conditions.seconds < 1


def test_a_quiet_function_still_gives_signs_of_life(server):
    """Catches a page that cannot notice a rerun, or takes a long silence for a hang."""
    events = list(client.run("toy.quiet", {"seconds": 1.2}))
    assert len(events) >= 3 and all(isinstance(e, Progress) for e in events[:-1])


@pytest.mark.parametrize("seconds,params,status,last", [(0.0, {"a": 2, "b": 3}, 200, "result"), (0.0, {"a": "two"}, 422, "error"), (1.6, {"a": 2, "b": 3}, 200, "result"), (1.6, {"a": "two"}, 200, "error")])
def test_a_service_that_still_loads_says_so(monkeypatch, seconds, params, status, last):
    """Catches a run that is retried as soon as a killed service is back, and hears nothing, until it gives up, while the function's module
    imports torch; wrong parameters that count as right when they took long to check."""
    from starlette.testclient import TestClient

    check = functions.check
    monkeypatch.setattr(functions, "TABLE", {**functions.TABLE, **toys.TOYS})
    monkeypatch.setattr(functions, "check", lambda *given: (time.sleep(seconds), check(*given))[1])
    with TestClient(create_app(preload=False), "http://127.0.0.1") as caller:
        answer = caller.post("/run/toy.add", json=params)
    events = answer.text.strip().splitlines()
    assert answer.status_code == status and f'"{last}"' in events[-1]
    assert len(events) >= 3 if seconds else len(events) == 1, "signs of life while it loads"


@pytest.mark.parametrize("function", ["toy.slow", "toy.quiet"])
def test_closing_the_iterator_stops_the_work(server, function):
    """Catches work that goes on for a learner who has left."""
    params = {"steps": 1000} if function == "toy.slow" else {"seconds": 60}
    events = client.run(function, params)
    assert isinstance(next(events), Progress)
    assert server.health()["running"] == 1
    events.close()
    assert server.idle_within(1.0) < 0.6


def test_a_waiting_call_whose_caller_leaves_never_starts(server):
    """Catches a queue that fills up with calls of nobody."""
    with closing(client.run("toy.quiet", {"seconds": 60})) as one, closing(client.run("toy.quiet", {"seconds": 60})) as two:
        next(one), next(two)
        third = client.run("toy.slow", {"steps": 1})
        assert next(third).waiting == 2
        third.close()
        time.sleep(0.2)
        assert (server.health()["running"], server.health()["waiting"]) == (2, 0)


def test_delete_ends_the_run_and_tells_its_caller(server):
    """Catches a cancel button that only looks like one."""
    with httpx.stream("POST", f"{server.url}/run/toy.slow", json={"steps": 1000}, trust_env=False) as answer:
        lines = answer.iter_lines()
        next(lines)
        run = f"{server.url}/run/{answer.headers['X-Run-Id']}"
        assert httpx.delete(run, trust_env=False).status_code == 204
        assert '"cancelled"' in list(lines)[-1]
    server.idle_within(1)
    assert httpx.delete(run, trust_env=False).status_code == 404


def test_a_full_queue_is_refused_with_the_time_to_come_back(server):
    """Catches an unbounded queue."""
    busy = [client.run("toy.quiet", {"seconds": 60}) for _ in range(3)]
    try:
        for events in busy:
            next(events)
        with pytest.raises(Busy) as refused:
            client.call("toy.add", {"a": 1})
        assert refused.value.values["waiting"] == 1 and refused.value.values["retry_after"] >= 1
        raw = server.post("toy.add", {"a": 1})
        assert raw.status_code == 503 and int(raw.headers["Retry-After"]) >= 1
    finally:
        for events in busy:
            events.close()
    server.idle_within(1)
    assert client.call("toy.add", {"a": 1}).value["sum"] == 2


@pytest.mark.parametrize(
    "body, kind, code",
    [
        ({"a": "x"}, BadInput, 422),
        ({}, BadInput, 422),
        ({"a": 1, "c": 2}, UnknownName, 422),
        ("[1]", BadInput, 422),
        ('{"a": NaN}', BadInput, 422),
        ("{" * 1900, BadInput, 422),
        ('{"a": ' + "1" * 3000 + "}", BadInput, 422),
        (b"\xff\xfe", BadInput, 422),
    ],
)
def test_bad_parameters_have_a_status_and_a_sentence(server, body, kind, code):
    """Catches a 200 with an error inside, a 500, or a sentence without the value."""
    answer = server.post("toy.add", body)
    assert answer.status_code == code
    error = answer.json()["error"]
    assert error["code"] in kind.codes and error["message"]["zh"] and error["message"]["en"]


def test_an_unknown_function_names_the_closest(server):
    """Catches a bare "not found"."""
    answer = server.post("toy.ad", {"a": 1})
    assert answer.status_code == 404 and "toy.add" in answer.json()["error"]["values"]["known"]
    with pytest.raises(UnknownName, match="roofline.decode"):
        client.call("roofline.decod", {})


def test_a_refusal_keeps_its_type_and_numbers(server):
    """Catches "does not fit" becoming a server error, or losing the missing bytes."""
    assert server.post("toy.refuses").status_code == 409
    with pytest.raises(Refused) as refused:
        client.call("toy.refuses", {})
    assert refused.value.values["missing_gb"] == 19.0
    with pytest.raises(BadInput, match="it is odd"):
        client.call("toy.refuses_late", {})


@pytest.mark.parametrize("function", ["toy.broken", "toy.leaves", "toy.endless"])
def test_a_mistake_in_the_code_becomes_a_number_not_a_traceback(server, function):
    """Catches our source lines in front of a learner, a dead worker, and a log without the cause."""
    answer = server.post(function)
    assert answer.status_code == 500
    assert "Traceback" not in answer.text and toys.SECRET not in answer.text and ".py" not in answer.text
    with pytest.raises(Internal) as error:
        client.call(function, {})
    number = error.value.values["id"]
    time.sleep(0.2)
    assert number in server.log and "Traceback" in server.log
    assert client.call("toy.add", {"a": 1}).value["sum"] == 2


@pytest.mark.parametrize("function", ["toy.quiet", "toy.deaf"])
def test_the_time_limit_of_the_service_holds(server, function):
    """Catches a caller who waits for ever, also when the function cannot be stopped."""
    started = time.monotonic()
    with pytest.raises(TimedOut, match="limit of 3 s"):
        client.call(function, {"seconds": 5})
    assert time.monotonic() - started < 4
    server.idle_within(3)


def test_the_time_limit_of_the_caller_holds_and_stops_the_work(server):
    """Catches a timeout that only counts silence."""
    with pytest.raises(TimedOut):
        client.call("toy.slow", {"steps": 1000}, timeout=0.3)
    server.idle_within(1)


def test_killed_in_mid_stream_then_back(start, use):
    """Catches a hang or an untyped error when the service dies, and a client that never recovers."""
    server = start()
    use(server)
    events = client.run("toy.slow", {"steps": 1000})
    next(events)
    assert client.status().up
    server.signal(signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(Unavailable, match="stopped in the middle"):
        list(events)
    assert time.monotonic() - started < 2
    server.process.wait(10)
    with pytest.raises(Unavailable, match="nothing answers"):
        client.call("toy.add", {"a": 1})
    assert not client.status().up and client.status().reason_zh
    start(port=server.port)
    assert client.call("toy.add", {"a": 1}).value["sum"] == 2


def test_a_kept_connection_of_a_restarted_service_is_replaced(start, use):
    """Catches the first call after a restart failing on the old connection."""
    server = start()
    use(server)
    client.call("toy.add", {"a": 1})
    server.stop()
    start(port=server.port)
    assert client.call("toy.add", {"a": 2}).value["sum"] == 3


def test_a_frozen_service_is_noticed(start, use, monkeypatch):
    """Catches a page that waits for a process that is there and says nothing."""
    server = start()
    use(server)
    monkeypatch.setattr(client, "SILENT_SECONDS", 1.0)
    client._http.cache_clear()
    events = client.run("toy.slow", {"steps": 1000})
    next(events)
    server.signal(signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable, match="silent for 1 s"):
            list(events)
        started = time.monotonic()
        assert not client.status().up
        assert time.monotonic() - started < 1.6
    finally:
        server.signal(signal.SIGCONT)
        client._http.cache_clear()
    server.idle_within(3)


def test_sigterm_lets_short_work_finish_and_tells_the_rest(start, use):
    """Catches lost answers at shutdown, and a shutdown that never ends."""
    server = start(drain_seconds=1)
    use(server)
    short, long = client.run("toy.slow", {"steps": 8}), client.run("toy.slow", {"steps": 1000})
    next(short), next(long)
    server.signal(signal.SIGTERM)
    assert list(short)[-1].value == {"steps": 8}
    with pytest.raises(Unavailable, match="shutting down"):
        list(long)
    assert server.process.wait(5) == 0


@pytest.mark.skipif(not hasattr(os, "nice"), reason="no priorities like these here")
def test_on_a_busy_machine_it_ends_before_it_is_killed(start, use):
    """Catches: a process that tells everybody and then takes torch apart at low priority, until whoever asked it to end kills it, on a machine
    whose processors others keep busy."""
    server, patience = start(drain_seconds=1), inspect.signature(run.stop).parameters["patience_s"].default
    use(server)
    assert client.live(model="mini-64")["model"] == "mini-64"  # torch is there
    long = client.run("toy.slow", {"steps": 1000})
    next(long)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
    try:
        server.signal(signal.SIGTERM)
        told = time.monotonic()
        with pytest.raises(Unavailable, match="shutting down"):
            list(long)
        assert server.process.wait(60) == 0 and time.monotonic() - told < patience
    finally:
        for each in busy:
            each.kill()
            each.wait()


def test_a_busy_port_is_one_sentence_and_status_2(server):
    """Catches a traceback, or a second server silently beside the first."""
    again = subprocess.run(
        [sys.executable, "-m", "tests.service.server", str(server.port), "{}"], cwd=ROOT, capture_output=True, text=True
    )
    assert again.returncode == 2 and again.stdout == ""
    assert again.stderr.count("\n") == 1 and f":{server.port}" in again.stderr and "--port" in again.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="mps may be there")
def test_a_device_that_is_not_there_is_one_sentence_and_status_2():
    """Catches a service that promises a device and computes on another."""
    command = [sys.executable, "-m", "tests.service.server", "0", "{}", "mps"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2 and ran.stderr.count("\n") == 1 and "mps" in ran.stderr


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Host": ""}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "[::1"}]
)
def test_other_names_and_other_pages_are_turned_away(server, headers):
    """Catches another web site using a visitor's browser to reach the service."""
    answer = server.post("toy.add", {"a": 1}, headers=headers)
    assert answer.status_code in (400, 403) and "sum" not in answer.text


def test_our_own_page_is_served(server):
    """Catches a check that locks out our own page."""
    for name in ("127.0.0.1", "localhost", "[::1]"):
        headers = {"Host": f"{name}:8502", "Origin": f"http://{name}:8502"}
        assert server.post("toy.add", {"a": 1}, headers=headers).status_code == 200


def test_one_learner_cannot_take_the_rate_of_all(start, use):
    """Catches a limit that counts the whole class as one, or nobody."""
    server = start(per_minute=3)
    use(server)
    for _ in range(3):
        client.call("toy.add", {"a": 1}, learner="ann")
    with pytest.raises(Busy) as refused:
        client.call("toy.add", {"a": 1}, learner="ann")
    assert 0 < refused.value.values["retry_after"] <= 20
    assert server.post("toy.add", {"a": 1}, headers={"X-Learner": "ann"}).status_code == 429
    client.call("toy.add", {"a": 1}, learner="bob")


def test_many_threads_share_the_client(start, use):
    """Catches answers that reach the wrong thread."""
    server = start(running=4, waiting=64)
    use(server)
    answers = {}

    def ask(n):
        answers[n] = [client.call("toy.add", {"a": n, "b": k}).value["sum"] - k for k in range(5)]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {n: [n] * 5 for n in range(16)}


def test_embedded_gives_the_same_answers_and_errors(server, use):
    """Catches a difference between the two ways: types, digits, errors, events."""
    def outcome(function, params):
        try:
            return client.call(function, params).value
        except Exception as error:
            return type(error), {k: v for k, v in getattr(error, "values", {}).items() if k != "id"}

    calls = [
        ("toy.add", {"a": 1}), ("toy.add", {"a": "x"}), ("toy.add", {"a": 1, "z": 1}), ("toy.refuses", {}),
        ("toy.broken", {}), ("toy.endless", {}), ("toy.slow", {"steps": 3}), ("toy.nothing", {}), ("toy.own_error", {}),
        ("kv.computations", {"prompt": 4, "new": 10}),
    ]  # fmt: skip
    over_http = [outcome(*call) for call in calls]
    use(client.EMBEDDED)
    assert [outcome(*call) for call in calls] == over_http
    assert over_http[0]["pair"] == [1, 1]


def test_embedded_reports_and_cancels(use):
    """Catches embedded work that cannot be followed or stopped."""
    use(client.EMBEDDED)
    events = client.run("toy.slow", {"steps": 1000})
    assert next(events).note == "step 1" and next(events).note == "step 2"
    assert client.status().up and client.status().running == 1
    events.close()
    until = time.monotonic() + 1
    while client.status().running and time.monotonic() < until:
        time.sleep(0.02)
    assert client.status().running == 0
    with pytest.raises(TimedOut):
        client.call("toy.quiet", {"seconds": 60}, timeout=0.2)


def test_the_two_ways_agree_on_a_served_formula(server):
    """Catches digits lost on the wire: the same floats, compared exactly."""
    params = {"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 58, "context": 4096}
    here = client.call("roofline.decode", params).value
    there = server.post("roofline.decode", params)
    from compute.service.schema import decode

    assert decode(there.content).value == here


def test_the_client_needs_neither_torch_nor_fastapi():
    """Catches the web process growing by what only the service needs."""
    code = (
        "import sys, compute.service.client as c\n"
        "c.call('kv.computations', {'prompt': 4, 'new': 10})\n"
        "print([m for m in ('torch', 'fastapi', 'starlette', 'uvicorn', 'streamlit') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_every_error_has_a_status():
    """Catches a new kind of error that goes out as a mistake of ours."""
    from compute.errors import MESSAGES
    from compute.service.api import STATUS_CODES

    assert set(STATUS_CODES) == set(MESSAGES)


def test_a_web_server_elsewhere_calls_for_many_learners(monkeypatch):
    """Catches a class that shares one allowance since its web server is on another machine, and a stranger who names learners to have many."""
    def told(peer: str) -> str:
        return client_of(Request({"type": "http", "client": (peer, 4000), "headers": [(b"x-learner", b"ann")]}))

    monkeypatch.setenv(TRUSTS, "10.0.0.5 10.0.0.6")
    assert [told(peer) for peer in ("127.0.0.1", "10.0.0.6", "10.0.0.7")] == ["learner ann", "learner ann", "10.0.0.7"]
    monkeypatch.setenv(TRUSTS, "10.1.0.0/16")
    assert [told(peer) for peer in ("10.1.2.3", "10.2.2.3", "testclient")] == ["learner ann", "10.2.2.3", "testclient"]
    monkeypatch.setenv(TRUSTS, "0.0.0.0/0 everybody")
    assert told("10.0.0.7") == "10.0.0.7", "an entry that is no address trusts nobody"
