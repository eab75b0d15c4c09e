"""Lines and events: whatever arrives is an event of ours or a typed error."""

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute.errors import BadInput, Unavailable
from compute.service import client
from compute.service.schema import Conditions, NotOurs, Progress, Result, decode, encode, lines, plain

CONDITIONS = Conditions("cpu", "m", "3", None, None, 1, 0.5, "2026-01-01T00:00:00+00:00")
EVENTS = [Progress(0.5, "半 \u2028\n", 1.0, 2, {"so far": [1, None]}), Result({"a": [1, None, "é"]}, CONDITIONS), BadInput("f", 3, "why", "为何")]


def test_events_survive_the_wire():
    """Catches a field that one side forgets, and text that breaks a line."""
    for event in EVENTS:
        line = encode(event)
        assert line.count(b"\n") == 1
        back = decode(line)
        assert back == event or back.to_json() == event.to_json()


def test_progress_without_a_partial_result_is_as_it_always_was():
    """Catches a client of yesterday that stumbles over a new field, and a field that today's cannot do without."""
    line = encode(Progress(0.5, "half", 1.0))
    assert b"partial" not in line and decode(line).partial is None


def test_an_error_gets_through_whatever_its_values_are():
    """Catches an error that is lost because it cannot be written."""
    numpy = pytest.importorskip("numpy")
    back = decode(encode(BadInput("f", numpy.float64(2.5), "why", "为何")))
    assert back.values["value"] == 2.5


@given(st.lists(st.integers(1, 40), max_size=60))
def test_chunks_may_be_cut_anywhere(cuts):
    """Catches a parser that takes a chunk for a line."""
    stream, chunks = b"".join(encode(e) for e in EVENTS), []
    for cut in cuts:
        chunks.append(stream[:cut])
        stream = stream[cut:]
    assert [type(decode(line)) for line in lines([*chunks, stream])] == [type(e) for e in EVENTS]


def test_a_last_line_cut_short_is_not_an_event():
    """Catches half a result taken for a whole one."""
    with pytest.raises(NotOurs, match="cut short"):
        list(lines([encode(EVENTS[0]), encode(EVENTS[1])[:-1]]))


@given(st.binary(max_size=60))
def test_no_bytes_are_trusted(line):
    """Catches an exception that no caller expects."""
    with pytest.raises(NotOurs):
        decode(line)


@pytest.mark.parametrize(
    "line",
    [b"{}", b'{"result": 3, "conditions": {}}', b'{"result": {}, "conditions": {"who": 1}}', b'{"error": {}}', b'{"error": 3}',
     b'{"error": {"code": "new", "values": {}}}', b'{"error": {"code": "busy", "values": {}}}', b'{"progress": {"fraction": 1}}',
     b"[" * 100_000],
)  # fmt: skip
def test_almost_events_are_refused(line):
    """Catches KeyError, TypeError and RecursionError out of a reader."""
    with pytest.raises(NotOurs):
        decode(line)


def test_plain_is_what_json_gives_back():
    """Catches tuples here and lists there, and infinity in a result."""
    assert plain({"a": (1, 2)}) == {"a": [1, 2]}
    with pytest.raises(ValueError):
        plain({"a": float("nan")})


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer, words",
    [
        (HEAD + b"\r\n<html>hello</html>\n", "not understood"),
        (HEAD + b"\r\n" + encode(EVENTS[0]), "middle of the answer"),
        # Half a line: told apart from a reset connection only by what the network delivers first.
        (HEAD + b"\r\n" + encode(EVENTS[1])[:30], "not understood|stopped in the middle"),
        (CHUNKED + b"5\r\n{\"pro", "middle of the answer"),
        (HEAD + b"Content-Encoding: gzip\r\n\r\nnot gzip", "not understood"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad", "not understood"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\nContent-Length: 0\r\n\r\n", "not understood"),
        (b"SSH-2.0-OpenSSH\r\n", "middle of the answer"),
        (b"", "middle of the answer"),
    ],
)
def test_whatever_answers_there_is_a_typed_error(use, answer, words):
    """Catches a page that falls over because another program has the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            for _ in range(3):  # the call, its one more try, and the status
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        use(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(Unavailable, match=words):
            client.call("toy.add", {"a": 1})
        assert not client.status().up


def test_a_connection_dropped_before_the_answer_is_tried_once_more(use):
    """Catches a call lost because the service restarted between two calls."""
    whole = CHUNKED.replace(b"Transfer-Encoding: chunked\r\n", b"") + encode(EVENTS[1])
    answers = [b"", whole]
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        use(f"http://127.0.0.1:{listening.getsockname()[1]}")
        assert client.call("toy.add", {"a": 1}) == EVENTS[1]


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "nonsense", "http://[bad", "ftp://127.0.0.1", "http://127.0.0.1:99999"])
def test_an_address_where_nothing_is(use, address):
    """Catches a typing error in the address becoming a traceback."""
    use(address)
    with pytest.raises(Unavailable):
        client.call("toy.add", {"a": 1})
    assert not client.status().up and client.status().reason
