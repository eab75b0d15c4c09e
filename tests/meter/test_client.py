"""One request against servers that behave, and against every way of not behaving."""

import asyncio
import socket
import sys
import time
from dataclasses import replace
from time import perf_counter
from types import SimpleNamespace

import pytest

from compute.meter import client, wire
from compute.meter.client import Asking, Dialect, Patience, Target
from compute.meter.failures import Why
from compute.meter.report import Failed, Measured
from tests.meter.fake import CHUNKED, DONE, NEVER, OPEN, SSE, Fake, answer, chunked, delta, obedient, plain, text, usage

CALM = Patience(connect=20, first=60, between=60, total=120)  # where nothing is to run out, also on a busy machine


def ask(fake: Fake, tokens: int = 5, patience: Patience = CALM, dialect: Dialect = Dialect(), key: str = "") -> Measured | Failed:
    async def once():
        asking = Asking(3, perf_counter())
        async with wire.pool() as pool:
            await client.ask(pool, Target("fake", fake.url, "m", key=key), dialect, asking, "hello", tokens, patience)
        return asking.measured(0.0)

    return asyncio.run(once())


def test_an_answer_is_counted_and_timed():
    """Catches a token count that is the chunk count, and times out of order."""
    with Fake(obedient(tokens_a_chunk=3)) as fake:
        found = ask(fake, tokens=12)
    assert (found.id, found.output_tokens, found.counted_by, len(found.chunks)) == (3, 12, "usage", 4)
    assert found.prompt_tokens == 1  # as the server counts
    assert found.sent < found.first == found.chunks[0] <= found.chunks[-1] <= found.last
    assert list(found.chunks) == sorted(found.chunks) and found.late > 0


def test_without_usage_chunks_are_counted_and_that_is_said():
    """Catches a lower bound that passes for a count."""
    with Fake(obedient(counts=False)) as fake:
        found = ask(fake)
    assert (found.output_tokens, found.counted_by, found.prompt_tokens) == (5, "chunks", None)


def test_chunks_without_text_are_no_first_token():
    """Catches a time to first token that is the time to the role, and a last one that is the count's."""
    first = answer(CHUNKED, chunked(text("")), chunked(delta(role="assistant", content="")), 0.2, chunked(text("a")), chunked(text("b", "stop")),
                   0.2, chunked(usage(2, 2)), chunked(DONE) + b"0\r\n\r\n")  # fmt: skip
    with Fake(first) as fake:
        found = ask(fake)
    head, empty, role, a, b, count, done = fake.sent
    assert len(found.chunks) == 2 and found.first >= a and found.output_tokens == 2
    assert b <= found.last
    assert found.first - found.sent >= 0.2, "the first chunk with text came so long after the request"


def test_the_end_is_part_of_the_time_where_it_comes_later():
    """Catches the end token's step left out, which usage counts: the last word is that the text has ended."""
    with Fake(answer(OPEN, text("a"), 0.2, text("", "stop"), DONE)) as fake:
        found = ask(fake)
    assert found.last >= fake.sent[2] > found.chunks[-1]


def test_arrival_lies_between_the_server_s_sending_and_our_looking():
    """Catches a clock that is read too early or late: the server sends a chunk only once the one before was seen here."""

    async def run():
        seen, asking, bounds = asyncio.Queue(), Asking(0, perf_counter()), []
        loop = asyncio.get_running_loop()

        async def turn_by_turn(request):
            yield OPEN
            for at in range(6):
                yield text("a", "length" if at == 5 else None)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(seen.get(), loop))

        with Fake(turn_by_turn) as fake:
            async with wire.pool() as pool:
                work = asyncio.ensure_future(client.ask(pool, Target("fake", fake.url, "m"), Dialect(), asking, "hello", 9, CALM))
                for at in range(6):
                    while len(asking.chunks) <= at:
                        await asyncio.sleep(0.001)
                    bounds.append(perf_counter())
                    await seen.put(None)
                await work
        return fake.sent[1:], asking, bounds

    sent, asking, seen = asyncio.run(run())
    assert len(sent) == len(asking.chunks) == 6
    for left, came, looked in zip(sent, asking.chunks, seen):
        assert left <= came <= looked


def test_time_is_taken_when_bytes_come_and_not_when_they_are_read():
    """Catches a stamp taken behind other streams' parsing: here the reader comes a fifth of a second later."""
    heard = wire.Wire(SimpleNamespace(came=perf_counter))
    stream = wire.Stream(heard)
    before = perf_counter()
    heard.data_received(b"first")
    between = perf_counter()
    time.sleep(0.2)
    heard.data_received(b"second")

    async def read():
        return [(await stream.read(99), stream.read_at), (await stream.read(3), stream.read_at), (await stream.read(99), stream.read_at)]

    (one, at), (two, then), (three, also) = asyncio.run(read())
    assert (one, two, three) == (b"first", b"sec", b"ond") and then == also
    assert before <= at <= between and then - at >= 0.2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps what comes over TCP")
def test_the_kernel_tells_when_bytes_came_to_a_process_that_was_not_running():
    """Catches the delay of a busy machine counted as the server's: the bytes come while the whole process sleeps."""

    async def read():
        with socket.create_server(("127.0.0.1", 0)) as listening:
            stream = await wire.Backend().connect_tcp(*listening.getsockname(), timeout=20)
            with listening.accept()[0] as server:
                until = time.monotonic() + 20
                while not stream.wire.sock.by_kernel and time.monotonic() < until:  # the first wake its clock, a moment later
                    server.sendall(b"wake up")
                    await stream.read(99)
                for size in (10, 20):
                    before = perf_counter()
                    server.sendall(b"x" * size)
                    time.sleep(0.3)
                    data, after = await stream.read(99), perf_counter()
                    assert len(data) == size and stream.wire.sock.by_kernel
                    assert before <= stream.read_at < after - 0.2
            await stream.aclose()

    asyncio.run(read())


def test_a_clock_that_was_set_does_no_harm(monkeypatch):
    """Catches times from tomorrow or from before the request, where the calendar's clock jumps."""
    sock = wire.Socket()
    for jump in (0.0, 3600.0, -3600.0):
        stamp = time.time() + jump
        before = sock._last
        sock._note([(socket.SOL_SOCKET, wire.TIMESTAMPS, wire.TIME.pack(int(stamp), int(stamp % 1 * 1e9)))])
        assert before <= sock.came() <= perf_counter()
    assert sock.came() <= perf_counter(), "without a stamp it is now"
    sock.close()


def test_a_chunk_has_the_time_of_the_bytes_that_completed_it():
    """Catches two chunks of one read with different times, and a chunk in two reads with the time of the first."""
    one, two, three = text("a"), text("b"), text("c", "length")
    reads = [(1.0, one + two), (2.0, three[:20]), (5.0, three[20:] + DONE)]
    heard = SimpleNamespace(read_at=0.0)

    class Response:
        async def aiter_stream(self):
            for heard.read_at, part in reads:
                yield part

    async def listen():
        asking = Asking(0, 0.0)
        async with asyncio.timeout(60) as limit:
            await client.listen(Response(), heard, asking, Target("here", "http://here/v1"), 5, CALM, limit, asyncio.get_running_loop().time() + 60)
        return asking

    asking = asyncio.run(listen())
    assert asking.chunks == [1.0, 1.0, 5.0] and (asking.first, asking.last) == (1.0, 5.0)


def test_a_connection_is_used_again_and_each_request_has_its_own_beginning():
    """Catches a connection for every request, and a second request that is timed from the first one's beginning."""
    with Fake(obedient(), keep=True) as fake:
        first, second = asyncio.run(twice(fake))
    assert fake.connections == 1 and len(fake.requests) == 2
    assert first.sent < first.last < second.sent < second.first


def test_a_kept_connection_that_the_server_closed_is_no_failure_of_the_server():
    """Catches an error row for what any server may do between two requests: this one hangs up after each answer, without a word."""
    with Fake(obedient(), keep=False) as fake:
        for _ in range(10):
            assert [asking.why for asking in asyncio.run(twice(fake))] == [None, None]
    assert fake.connections == len(fake.requests) == 20


async def twice(fake: Fake) -> list[Asking]:
    found = []
    async with wire.pool() as pool:
        for id in range(2):
            asking = Asking(id, perf_counter())
            await client.ask(pool, Target("fake", fake.url, "m"), Dialect(), asking, "hello", 4, CALM)
            found.append(asking)
    return found


HTML = plain(200, b"<html><body>Welcome</body></html>", kind="text/html")
QUICK = replace(CALM, first=0.3, between=0.3)


@pytest.mark.parametrize(
    ("behaviour", "patience", "kind", "words"),
    [
        (answer(b"\x00\xff\x80 what?\r\n\r\n"), CALM, "garbage", "HTTP"),
        (answer(b"SSH-2.0-OpenSSH_9\r\n"), CALM, "closed", "before any text"),
        (answer(HTML), CALM, "garbage", "text/html"),
        (answer(plain(200, {"choices": [{"text": "all at once"}]})), CALM, "garbage", "application/json"),
        (answer(OPEN, b"data: {not json}\n\n"), CALM, "garbage", "{not json}"),
        (answer(OPEN, b"data: \xff\xfe\n\n"), CALM, "garbage", "UTF-8"),
        (answer(OPEN, text("a"), b'data: {"answer": 42}\n\n'), CALM, "garbage", "42"),
        (answer(CHUNKED, b"zz\r\nnot a length\r\n"), CALM, "garbage", "HTTP"),
        (answer(SSE + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n", b"\x1f\x8b\x08\x00", NEVER), CALM, "garbage", "compressed (gzip)"),
        (answer(), CALM, "closed", "before any text"),
        (answer(b"HTTP/1.1 200 OK\r\nContent-"), CALM, "closed", "before any text"),
        (answer(OPEN), CALM, "closed", "before any text"),
        (answer(OPEN, text("a") + text("b")), CALM, "closed", "after 2 chunks"),
        (answer(CHUNKED, chunked(text("a"))), CALM, "closed", "after 1 chunk"),
        (answer(NEVER), QUICK, "stalled", "no answer within 0.3 s"),
        (answer(b"HTTP/1.1 200 OK\r\nContent-", NEVER), QUICK, "stalled", "no answer within 0.3 s"),
        (answer(OPEN, NEVER), QUICK, "stalled", "no answer within 0.3 s"),
        (answer(OPEN, text("a") + text("b"), NEVER), replace(CALM, between=0.3), "stalled", "after 2 chunks"),
        (answer(OPEN, *[b": still here\n\n", 0.05] * 400), QUICK, "stalled", "no answer within 0.3 s"),
        (answer(OPEN, *[text("a"), 0.01] * 10_000), replace(CALM, total=0.6), "endless", "0.6 s"),
        (answer(OPEN, *[text("a" * 1000)] * 1000), replace(CALM, bytes=5000), "endless", "5,000 bytes"),
        (answer(OPEN, text("a") * 5000), CALM, "endless", "84 chunks"),
        (answer(OPEN, b"data: " + b"x" * 3_000_000), CALM, "garbage", "a line of more than"),
        (answer(plain(503, {"error": {"message": "overloaded"}}, "Retry-After: 7")), CALM, "http", "status 503: overloaded; it asks to come back after 7 s"),
        (answer(plain(500, b"<h1>oops</h1>", kind="text/html")), CALM, "http", "<h1>oops</h1>"),
        (answer(plain(200, {"error": {"message": "no"}}).replace(b"200", b"404")), CALM, "http", "404"),
        (answer(OPEN, text("a"), b'data: {"error": {"message": "out of memory"}}\n\n'), CALM, "http", "out of memory"),
        (answer(plain(307, b"", "Location: http://elsewhere.example/v1/completions")), CALM, "refused", "elsewhere.example"),
        (answer(OPEN, text("", "stop"), DONE), CALM, "empty", "without any text"),
        (answer(OPEN, DONE), CALM, "empty", "without any text"),
    ],
)  # fmt: skip
def test_every_way_of_not_behaving_is_a_row_with_a_reason(behaviour, patience, kind, words):
    """Catches an exception, a hang, and a wrong word for what happened."""
    with Fake(behaviour) as fake:
        found = ask(fake, patience=patience)
    assert isinstance(found, Failed) and found.kind == kind, found
    assert words in found.says["en"] and found.says["zh"] and found.at >= found.sent


def test_what_goes_on_after_the_text_has_ended_is_not_waited_for():
    """Catches a whole answer given up because the server keeps the connection open, without the last word."""
    with Fake(answer(CHUNKED, chunked(text("a")), chunked(text("b", "length")), NEVER)) as fake:
        found = ask(fake, patience=replace(CALM, after=0.1))
    assert isinstance(found, Measured) and found.output_tokens == 2


def test_nobody_answers_there():
    """Catches a traceback where nothing listens."""
    with Fake(answer()) as fake:
        pass
    found = ask(fake)
    assert found.kind == "connect" and "Connect call failed" in found.says["en"]


def test_the_key_is_sent_and_never_shown():
    """Catches a key in the errors table, where a server repeats it."""

    async def repeats(request):
        yield plain(401, {"error": {"message": f"Incorrect API key provided: {request.headers['authorization']}"}})

    with Fake(repeats) as fake:
        found = ask(fake, key="sk-very-secret")
    assert fake.requests[0].headers["authorization"] == "Bearer sk-very-secret"
    assert "secret" not in str(found) and "Incorrect API key" in found.says["en"] and "secret" not in repr(Target("a", "b", key="sk-very-secret"))


@pytest.mark.parametrize("said", [
    answer(b'HTTP/1.1 401 No\r\nConnection: close\r\n\r\n{"error": "bad key \\u0073k-very-secret"}'), answer(OPEN, text("a"), b'data: {"error": {"message": "bad key sk-very-secret"}}\n\n'),
    answer(OPEN, b"data: " + b"x" * 50 + b" sk-very-secret\n\n"), answer(b"HTTQ sk-very-secret\r\n\r\n"),
    answer(b"HTTP/1.1 200 OK\r\nContent-Type: text/html; k=sk-very-secret\r\nConnection: close\r\n\r\nyour key is sk-very-secret"),
])  # fmt: skip
def test_the_key_is_shown_nowhere(said):
    """Catches a key in a stream's error, in garbage (also cut short), in a header, and written with escapes."""
    with Fake(said) as fake:
        found = ask(fake, key="sk-very-secret")
    assert isinstance(found, Failed) and "sk-very" not in str(found), found


def test_nothing_follows_a_redirect():
    """Catches a request that leaves for a place that the operator did not list."""
    with Fake(obedient()) as other, Fake(answer(plain(308, b"", f"Location: {other.url}/completions"))) as fake:
        assert ask(fake).kind == "refused"
    assert other.connections == 0 and len(fake.requests) == 1


def test_no_proxy_of_the_environment_is_used(monkeypatch):
    """Catches a measurement of the proxy, and prompts sent to it."""
    with Fake(obedient()) as proxy, Fake(obedient()) as fake:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert isinstance(ask(fake), Measured)
    assert proxy.connections == 0 and fake.connections == 1


def test_who_leaves_hangs_up():
    """Catches a server that goes on writing for nobody."""

    async def leave(fake):
        async with wire.pool() as pool:
            asking = Asking(0, perf_counter())
            work = asyncio.ensure_future(client.ask(pool, Target("fake", fake.url, "m"), Dialect(), asking, "hello", 99, CALM))
            while not asking.chunks:
                await asyncio.sleep(0.01)
            work.cancel()
            await asyncio.wait({work})
            until = time.monotonic() + 20
            while not fake.left and time.monotonic() < until:
                await asyncio.sleep(0.01)

    with Fake(answer(OPEN, text("a"), NEVER)) as fake:
        asyncio.run(leave(fake))
        assert fake.left == 1


@pytest.mark.parametrize(
    ("refusal", "free", "then"),
    [
        (Why("http", "", "", 400, message="Unrecognized request argument supplied: ignore_eos"), True, {"stream_options", "temperature"}),
        (Why("http", "", "", 422, message="stream_options: extra fields not permitted"), True, {"ignore_eos", "temperature"}),
        (Why("http", "", "", 400, message="no"), True, set()),
        (Why("http", "", "", 404, message="no"), False, None),
        (Why("http", "", "", 401, message="no key"), True, None),
        (Why("http", "", "", 503, message="busy"), True, None),
    ],
)  # fmt: skip
def test_what_is_refused_is_left_out(refusal, free, then):
    """Catches a server that cannot be measured because of a parameter that it does not know, and everything dropped for one."""
    found = Dialect().without(refusal, free)
    assert (found and {name for name, _ in found.options}) == then


def test_the_other_protocol_and_the_other_name_are_tried():
    """Catches servers that have only chat, and those that renamed the limit."""
    assert Dialect().without(Why("http", "", "", 404), True).api == "chat"
    renamed = Dialect().without(Why("http", "", "", 400, message="Use 'max_completion_tokens' instead."), True)
    assert b'"max_completion_tokens": 7' in renamed.body("m", "p", 7)
    assert Dialect(options=()).without(Why("http", "", "", 400, message="too long"), True) is None
