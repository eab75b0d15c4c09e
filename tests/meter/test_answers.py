"""What streamed bytes say, whatever they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compute.meter.answers import LONGEST_EVENT, Events, Garbage, Said, Usage, read, refusal
from tests.meter.fake import DONE, delta, event, text, usage

STREAM = (
    b": a comment\n\n" + text("半") + b"event: message\r\nid: 3\r\ndata: {\"choices\": [],\r\ndata: \"n\": 1}\r\n\r\n" + text("", "length") + usage(7, 3) + DONE
)


def heard(stream: bytes) -> list[str]:
    return Events().push(stream)


def test_events_as_the_standard_has_them():
    """Catches comments and other fields taken for data, a second data line that is lost, and CRLF."""
    first, second, *_, last = heard(STREAM)
    assert "半" in first or "\\u534a" in first
    assert second == '{"choices": [],\n"n": 1}' and last == "[DONE]" and len(heard(STREAM)) == 5


@given(st.lists(st.integers(1, 50), max_size=40))
def test_bytes_may_be_cut_anywhere(cuts):
    """Catches a parser that takes what one read brings for an event, or cuts a character in two."""
    events, rest, found = Events(), STREAM, []
    for cut in cuts:
        found += events.push(rest[:cut])
        rest = rest[cut:]
    assert found + events.push(rest) == heard(STREAM)


def test_an_event_without_end_is_no_event():
    """Catches a meter whose memory a server can fill."""
    with pytest.raises(Garbage):
        heard(b"data: " + b"x" * LONGEST_EVENT)


@given(st.binary(max_size=200))
def test_no_bytes_are_trusted(data):
    """Catches an exception that no caller expects."""
    try:
        for one in heard(data + b"\n\n"):
            read(one)
    except Garbage as garbage:
        assert garbage.en and garbage.zh


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (text("a"), Said(text=True)),
        (text(""), Said()),
        (text("", "length"), Said(finish="length")),
        (text("a", "stop", usage={"prompt_tokens": 4, "completion_tokens": 2}), Said(True, "stop", Usage(4, 2))),
        (text("a", usage=None), Said(text=True)),
        (text("a", system_fingerprint="f"), Said(text=True, fingerprint="f")),
        (delta(role="assistant"), Said()),
        (delta(role="assistant", content=""), Said()),
        (delta(content=None), Said()),
        (delta(content="a"), Said(text=True)),
        (delta(reasoning_content="a"), Said(text=True)),
        (delta("tool_calls", tool_calls=[{}]), Said(True, "tool_calls")),
        (event({"choices": []}), Said()),
        (usage(5, 6), Said(usage=Usage(5, 6))),
        (event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 3}}}), Said(usage=Usage(5, 6, 3))),
        (event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 6, "prompt_tokens_details": None}}), Said(usage=Usage(5, 6))),
        (DONE, Said(over=True)),
        (event({"error": {"message": "out of memory"}}), Said(error="out of memory")),
        (event({"error": "out of memory"}), Said(error="out of memory")),
    ],
)
def test_what_each_chunk_means(sent, meant):
    """Catches a role or an empty text taken for a token, thinking taken for silence, and usage missed where it rides along."""
    assert read(heard(sent)[0]) == meant


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"[]", b"3", b"null", b"{}", b'{"choices": [3]}', b'{"choices": [{}]}', b'{"choices": {}}', b'{"choices": ["text"]}', b'{"choices": [{"delta": 3}]}',
     b'{"usage": {"prompt_tokens": "many"}}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_chunk_is_said_to_be_none(data):
    """Catches KeyError, TypeError and RecursionError out of a reader, and an empty line that counts as a token."""
    with pytest.raises(Garbage):
        read(data.decode())


@pytest.mark.parametrize("counts", [{"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": 1, "completion_tokens": 10**400}, {"prompt_tokens": 1}, [], "x"])
def test_usage_that_cannot_be_is_no_usage(counts):
    """Catches tokens per second made of a count without bounds."""
    assert read(heard(text("a", usage=counts))[0]).usage is None


@pytest.mark.parametrize(
    ("body", "words"),
    [(b'{"error": {"message": "no such model"}}', "no such model"), (b'{"detail": "gone"}', "gone"), (b'{"detail": [{"msg": "x"}]}', "msg"), (b"<h1>502</h1>\n", "<h1>502</h1>"),
     (b"\xff\x00\x1b[31mred", "red"), (b"", ""), (b"x" * 9999, "x"), (b"[" * 9999, "[")],
)  # fmt: skip
def test_a_refusal_is_told_in_one_short_line(body, words):
    """Catches control characters and pages of HTML in the errors table."""
    said = refusal(body)
    assert words in said and len(said) <= 200 and (said.isprintable())
