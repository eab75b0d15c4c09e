"""Text ↔ tokens ↔ bytes, and the streams that must not tear a character."""

import json
from functools import cache

import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, trainers

from compute.engine.tokens import StopText, Stream, Tokenizer

from . import tiny


@cache
def byte_level() -> Tokenizer:
    return Tokenizer(tiny.tokenizer())


@cache
def sentencepiece() -> Tokenizer:
    """As Llama 2 and Mistral have it: ▁ for a space, one put in front, unknown characters as <0xE8>."""
    special = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    inner = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.train_from_iterator(
        ["the cat sat on the mat"], trainers.BpeTrainer(vocab_size=290, special_tokens=special[:2], show_progress=False)
    )
    state = json.loads(inner.to_str())
    size = len(state["model"]["vocab"])
    state["model"]["vocab"] |= {piece: size + n for n, piece in enumerate(special[2:])}
    inner = tokenizers.Tokenizer.from_str(json.dumps(state))
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(inner)


@given(st.text())
def test_decoding_undoes_encoding(text):
    """Catches: a wrong letter in the byte alphabet, a lost space."""
    assert byte_level().decode(byte_level().encode(text)) == text


@given(st.text(alphabet=st.characters(exclude_characters="▁", exclude_categories=["Cs"])))
def test_decoding_undoes_encoding_for_sentencepiece(text):
    """Catches: ▁ or <0xE8> shown as they are spelled, the space in front kept or one too many taken."""
    tokens = sentencepiece().encode(text, special=False)
    assert sentencepiece().decode(tokens) == text == sentencepiece().inner.decode(tokens)


@given(st.text(), st.data())
def test_streaming_never_tears_a_character(text, data):
    """Catches: a token decoded alone, which shows � until the next one comes. Any text, its bytes cut anywhere."""
    raw, stream, shown = text.encode(), Stream(), ""
    while raw:
        n = data.draw(st.integers(1, len(raw)))
        shown += stream.push(raw[:n])
        raw = raw[n:]
        assert text.startswith(shown)
    assert shown + stream.flush() == text and stream.flush() == ""


@given(st.text(min_size=1))
def test_streaming_by_tokens_equals_decoding_at_once(text):
    """Catches: a held-back character dropped or sent twice."""
    tokens, stream = byte_level().encode(text), Stream()
    deltas = [stream.push(byte_level().bytes_of(token)) for token in tokens]
    assert "".join(deltas) + stream.flush() == byte_level().decode(tokens) == text


@given(st.lists(st.binary(max_size=4)))
def test_bytes_that_are_no_text_are_shown_not_replaced(pieces):
    """Catches: � put in silently. Every byte is either part of a whole character or shown as ⟨hex⟩, wherever it is cut."""
    raw, stream = b"".join(pieces), Stream()
    shown = "".join(map(stream.push, pieces)) + stream.flush()
    assert shown == raw.decode("utf-8", "show_bytes")
    replaced = raw.decode("utf-8", "replace")
    assert ("\ufffd" in shown) == (b"\xef\xbf\xbd" in raw)
    assert ("⟨" in shown) == (replaced != raw.decode("utf-8", "ignore") or "⟨" in replaced)


def test_the_beginning_of_a_character_is_held_then_shown():
    """Catches: bytes lost when generation stops inside a character. 苹 is E8 8B B9."""
    stream = Stream()
    assert [stream.push(b"a\xe8"), stream.push(b"\x8b"), stream.push(b"\xb9")] == ["a", "", "苹"]
    assert stream.push(b"\xe8\x8b") == "" and stream.flush() == "⟨E8 8B⟩"


def test_pieces_show_parts_of_characters_as_bytes():
    """Catches: � on screen for a token that is a part of a character, and special tokens that vanish."""
    tokenizer = byte_level()
    tokens = tokenizer.encode("a鸭")
    assert [tokenizer.piece(token) for token in tokens] == ["a", "⟨E9⟩", "⟨B8⟩", "⟨AD⟩"]
    assert tokenizer.piece(0) == "<|endoftext|>" == tokenizer.decode([0])


def test_ids_beyond_the_vocabulary_are_visible():
    """Catches: a KeyError when a model with a padded vocabulary chooses a padding row."""
    assert byte_level().piece(9_999) == "⟨#9999⟩"


TEXTS = st.text("ab。", max_size=12)


@given(TEXTS, st.lists(TEXTS.filter(len), max_size=3), st.data())
def test_a_stop_string_is_found_wherever_the_text_is_cut(text, stops, data):
    """Catches: a stop string across two tokens missed or half of it sent; text held back and never released."""
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    gate, shown, rest = StopText(stops), "", text
    while rest:
        n = data.draw(st.integers(1, len(rest)))
        shown += gate.push(rest[:n])
        rest = rest[n:]
    assert gate.found == bool(ends)
    assert shown + gate.flush() == (text[: min(ends)[1]] if ends else text)


def test_of_several_stop_strings_the_one_complete_first_counts():
    """Catches: a result that depends on how the text was cut: abcd ends later than bc, though it begins earlier."""
    whole, single = StopText(["d", "abcd", "bc"]), StopText(["d", "abcd", "bc"])
    assert whole.push("abcd") == "a" == "".join(map(single.push, "abcd"))
