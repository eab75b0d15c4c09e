"""Many requests: how many at a time, when, with which prompts, and how a run ends."""

import asyncio
import threading
import time
from dataclasses import replace
from random import Random

import pytest

from compute.meter.client import Patience, Target
from compute.meter.loads import FUTILE, Run
from compute.meter.prompts import FILES, TEXTS, Prompts
from compute.meter.report import Plan, Report
from tests.meter.fake import CHUNKED, DONE, NEVER, OPEN, Fake, answer, chunked, obedient, plain, text

CALM = Patience(connect=20, first=60, between=60, total=120)
PLAN = Plan(concurrency=3, requests=9, prompt_tokens=20, output_tokens=4, warmup=2)


def measure(fake: Fake, plan: Plan = PLAN, model: str = "m", api=None, **more) -> Report:
    return asyncio.run(Run(Target("fake", fake.url, model, api), plan, CALM, **more).measure())


def test_a_closed_loop_keeps_its_number_at_a_time():
    """Catches more or fewer under way than asked for: the server answers nobody until so many wait, and notes the most."""
    together = []

    async def in_threes(request):
        if request.number > 2:  # those before find out how to speak, and warm up
            mine = asyncio.get_running_loop().create_future()
            together.append(mine)
            if len(together) == 3:
                for one in together:
                    one.set_result(None)
                together.clear()
            await mine
        async for piece in obedient()(request):
            yield piece

    with Fake(in_threes, keep=True) as fake:
        report = measure(fake)
    assert report.done and len(report.requests) == 9 and fake.most == 3
    assert len(fake.requests) == 1 + 2 + 9 and fake.connections == 3, "one to find out, two to warm up, on connections that are kept"


def test_an_open_loop_waits_for_nobody():
    """Catches a load that slows down with its server: no answer comes before the last request has been sent."""
    last = []

    async def after_the_last(request):
        last[:] = last or [asyncio.Event()]
        if request.number == 2 + 12:
            last[0].set()
        if request.number > 2:
            await last[0].wait()
        async for piece in obedient()(request):
            yield piece

    with Fake(after_the_last) as fake:
        report = measure(fake, replace(PLAN, loop="open", rate=200.0, requests=12))
    assert report.done and len(report.requests) == 12 and fake.most == 12


def test_arrivals_are_poisson_at_the_rate_and_repeat_with_the_seed():
    """Catches evenly spaced requests, a rate that is a gap, and a seed without effect. The moments are those of exponential gaps, drawn
    here again; a request may be late, never early."""

    def due(rate, seed):
        with Fake(obedient(), keep=True) as fake:
            report = measure(fake, replace(PLAN, loop="open", rate=rate, requests=20, seed=seed))
        assert all(one.late >= 0 for one in report.requests)
        return [one.sent - one.late for one in sorted(report.requests, key=lambda one: one.id)]

    found, random = due(100.0, 5), Random(5)
    expected, at = [], 0.0
    for _ in range(20):
        at += random.expovariate(1.0) / 100.0
        expected.append(at)
    assert found == pytest.approx(expected, abs=1e-9)
    assert due(50.0, 5) == pytest.approx([2 * at for at in expected], abs=1e-9)
    assert due(100.0, 6) != pytest.approx(expected, abs=1e-3)


def test_warming_up_is_not_in_the_figures():
    """Catches the first requests of a cold server in its percentiles."""
    with Fake(obedient(), keep=True) as fake:
        report = measure(fake, replace(PLAN, warmup=5, requests=2))
    assert sorted(one.id for one in report.requests) == [0, 1] and len(fake.requests) == 1 + 5 + 2
    assert all(one.sent >= 0 for one in report.requests)


def test_prompt_lengths_follow_the_server_s_own_count():
    """Catches prompts four times as long as asked for, where a server's tokens are short. This one counts five characters a token."""
    with Fake(obedient(), keep=True) as fake:
        report = measure(fake, replace(PLAN, prompt_tokens=40))
    assert report.conditions["characters_per_token_from"] == "usage"
    assert all(abs(one.prompt_tokens - 40) <= 1 for one in report.requests)
    with Fake(obedient(counts=False), keep=True) as fake:
        report = measure(fake)
    assert report.conditions["characters_per_token_from"] == "guess" and report.requests[0].prompt_tokens is None
    assert not report.conditions["usage"] and report.requests[0].counted_by == "chunks"


def test_prompts_are_real_text_and_share_no_beginning():
    """Catches a cache of prefixes that answers for the model: within a run, and from the run before with the same seed. A cache may
    know a prompt by its first few tokens."""
    prompts, again = Prompts("run1", 0, 100), Prompts("run2", 0, 100)
    beginnings = {prompt[:8] for n in range(300) for prompt in (prompts[n], again[n])}
    assert len(beginnings) == 600 and len({beginning[:2] for beginning in beginnings}) > 200
    assert all(len(prompts[n]) == 400 for n in range(50))
    everything = " ".join(" ".join((TEXTS / f"{name}.txt").read_text("utf-8").split()) for name in FILES)
    assert prompts[7].partition(": ")[2] in everything and prompts[7].partition(": ")[2] == again[7].partition(": ")[2]
    assert Prompts("r", 1, 100)[7] != Prompts("r", 0, 100)[7] and len(Prompts("r", 0, 100_000)[0]) == 400_000


def test_a_server_that_only_chats():
    """Catches a meter that knows one of the two protocols."""

    async def chats(request):
        if request.path.endswith("/chat/completions"):
            async for piece in obedient()(request):
                yield piece
        else:
            yield plain(404, {"error": {"message": "Not Found"}})

    with Fake(chats) as fake:
        report = measure(fake)
    assert report.done and len(report.requests) == 9 and report.conditions["api"] == "chat"
    assert fake.requests[-1].body["messages"][0]["role"] == "user"
    with Fake(chats) as fake:
        assert measure(fake, api="completions").errors[0].kind == "http"


def test_a_model_that_is_not_there_is_the_reason_and_not_the_missing_chat():
    """Catches the words of the second protocol, which was only tried, in the place of those that help."""

    async def no_such_model(request):
        yield plain(404, {"error": {"message": "no chat here" if "chat" in request.path else "no model called m"}})

    with Fake(no_such_model) as fake:
        assert [row.says["en"] for row in measure(fake).errors] == ["status 404: no model called m"]


def test_a_server_that_knows_no_extras():
    """Catches a run lost to a parameter that this server refuses, and the parameters that it would have taken."""

    async def strict(request):
        if unknown := set(request.body) - {"model", "prompt", "max_tokens", "stream", "temperature"}:
            yield plain(400, {"error": {"message": f"Unrecognized request argument supplied: {sorted(unknown)[0]}"}})
        else:
            async for piece in obedient()(request):
                yield piece

    with Fake(strict) as fake:
        report = measure(fake)
    assert report.done and len(report.requests) == 9
    assert set(fake.requests[-1].body) == {"model", "prompt", "max_tokens", "stream", "temperature"} and not report.conditions["ignore_eos"]


def test_without_a_model_the_first_of_the_server_is_taken():
    """Catches an empty name sent to a server."""
    with Fake(obedient()) as fake:
        report = measure(fake, model="")
    assert report.endpoint.model == "fake" and {request.body["model"] for request in fake.requests[1:]} == {"fake"}


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (answer(plain(200, b"<html>", kind="text/html")), "garbage"),
        (answer(plain(301, b"", "Location: http://elsewhere.example/")), "refused"),
        (answer(plain(401, {"error": {"message": "no key"}})), "http"),
        (answer(), "closed"),
    ],
)
@pytest.mark.parametrize("model", ["", "m"])
def test_a_server_that_cannot_be_measured_is_one_row(behaviour, kind, model):
    """Catches a thousand requests to a server that answered the first one wrongly, and an exception before the first."""
    with Fake(behaviour) as fake:
        report = measure(fake, model=model)
    assert (report.stopped, report.done, report.requests) == ("failing", False, [])
    assert [row.kind for row in report.errors] == [kind] and len(fake.requests) <= 3


def test_failures_among_answers_are_counted_apart():
    """Catches a failed request that ends the run, or stands among the answered ones."""

    async def every_third_breaks(request):
        if request.number > 2 and request.number % 3 == 0:
            yield OPEN
            yield text("a")
        else:
            async for piece in obedient()(request):
                yield piece

    with Fake(every_third_breaks) as fake:
        report = measure(fake)
    assert report.done and (len(report.requests), len(report.errors)) == (6, 3)
    assert {row.kind for row in report.errors} == {"closed"} and report.to_json()["summary"]["good_share"] == pytest.approx(6 / 9, abs=1e-6)


def test_a_run_in_which_nothing_succeeds_is_given_up():
    """Catches thousands of requests to a server that has fallen over."""

    async def falls_over(request):
        if request.number <= 2:
            async for piece in obedient()(request):
                yield piece

    with Fake(falls_over) as fake:
        report = measure(fake, replace(PLAN, requests=5000))
    assert report.stopped == "failing" and FUTILE + 3 <= len(report.errors) <= FUTILE + 2 * 3


@pytest.mark.parametrize("why", ["cancelled", "time"])
def test_a_run_that_is_stopped_hangs_up_and_keeps_what_there_is(why):
    """Catches requests that go on in the server, and figures that are lost with the last request. The server answers six measured
    requests and no other."""

    async def some(request):
        if request.number <= 8:
            async for piece in obedient()(request):
                yield piece
        else:
            yield CHUNKED
            yield chunked(text("a"))
            await asyncio.sleep(NEVER)

    with Fake(some) as fake:
        run = Run(Target("fake", fake.url, "m"), PLAN, CALM)

        def told(report):
            if len(report.requests) == 6 and len(report.running) == 3 and all(one.chunks for one in report.running):
                run.end(why)

        run.tell = told
        report = asyncio.run(run.measure())
        until = time.monotonic() + 20
        while fake.left < 3 and time.monotonic() < until:
            time.sleep(0.02)
        assert fake.left == 3
    assert (report.stopped, report.done, len(report.requests), report.errors) == (why, False, 6, [])
    assert report.seconds > 0 and report.to_json()["summary"]["requests_per_second"] > 0


def test_the_time_of_a_run_is_limited():
    """Catches a run without end: nobody stops it by hand."""
    with Fake(answer(OPEN, *[text("a"), 0.05] * 10_000)) as fake:
        report = measure(fake, replace(PLAN, output_tokens=1000), seconds=0.7)
    assert report.stopped == "time" and not report.done


def test_whoever_watches_hears_how_it_stands():
    """Catches a live chart that sees nothing before the end."""
    released, told = threading.Event(), []

    async def held(request):
        yield CHUNKED
        yield chunked(text("a", "length"))
        while request.number > 5 and not released.is_set():
            await asyncio.sleep(0.01)
        yield chunked(DONE) + b"0\r\n\r\n"

    def tell(report):
        told.append(report)
        if len(report.requests) == 3 and len(report.running) == 3:
            released.set()

    with Fake(held) as fake:
        report = asyncio.run(Run(Target("fake", fake.url, "m"), replace(PLAN, requests=6), replace(CALM, after=60), tell=tell).measure())
    assert released.is_set() and report.done and len(report.requests) == 6
    assert all(not one.done for one in told)
