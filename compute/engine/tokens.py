"""Text ↔ tokens. A token is a few bytes, not a few characters: 苹 may arrive as two tokens, and half of it is no text.

So everything here goes through bytes, and bytes become text in one place, where bytes that form no character are
shown as ⟨E8 8B⟩ and never replaced in silence.
"""

import codecs
import json
from collections.abc import Iterable
from functools import cached_property

import tokenizers


def _show_bytes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return f"⟨{error.object[error.start : error.end].hex(' ').upper()}⟩", error.end


codecs.register_error("show_bytes", _show_bytes)


class Stream:
    """Bytes in, whole characters out: a character whose bytes are still coming is held back."""

    def __init__(self):
        self._decoder = codecs.getincrementaldecoder("utf-8")("show_bytes")

    def push(self, piece: bytes) -> str:
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """What is left when no more bytes come: the beginning of a character, shown as its bytes."""
        return self._decoder.decode(b"", final=True)


class StopText:
    """Lets text through up to the first stop string, holding back an end that may still become one."""

    def __init__(self, stops: Iterable[str]):
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        if self.found:
            return ""
        text = self._held + text
        if hits := [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]:
            self.found, self._held = True, ""
            return text[: min(hits)[1]]  # the stop that is complete first, however the text was cut
        hold = max((n for stop in self._stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def flush(self) -> str:
        text, self._held = self._held, ""
        return text


class Tokenizer:
    """A `tokenizers` tokenizer that also knows the bytes of every token."""

    def __init__(self, inner: tokenizers.Tokenizer):
        self.inner = inner
        decoder = json.dumps(json.loads(inner.to_str())["decoder"])
        self._byte_level = '"ByteLevel"' in decoder
        self._strips_first_space = '"Strip"' in decoder or '"Metaspace"' in decoder  # SentencePiece puts one in front

    @cached_property
    def size(self) -> int:
        return self.inner.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """`special`: also what the tokenizer puts around a text, such as a beginning-of-sequence token."""
        return self.inner.encode(text, add_special_tokens=special).ids

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of all tokens, special ones included; bytes that form no character are shown."""
        text = b"".join(map(self.bytes_of, tokens)).decode("utf-8", "show_bytes")
        return text.removeprefix(" ") if self._strips_first_space else text

    def bytes_of(self, token: int) -> bytes:
        """UTF-8 bytes that a token stands for. An id in the model's padding, beyond the vocabulary, is shown as ⟨#id⟩."""
        return self._bytes.get(token) or f"⟨#{token}⟩".encode()

    def piece(self, token: int) -> str:
        """One token for display; a part of a character as its bytes."""
        return self.bytes_of(token).decode("utf-8", "show_bytes")

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        literal = {i: added.content.encode() for i, added in self.inner.get_added_tokens_decoder().items()}
        spelled = self.inner.get_vocab(with_added_tokens=False)
        to_bytes = bytes_of_byte_level if self._byte_level else bytes_of_sentencepiece
        return {i: to_bytes(word) for word, i in spelled.items() if i not in literal} | literal


def byte_letters() -> dict[str, int]:
    """GPT-2's spelling: printable bytes as themselves, the other 68 as letters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_LETTERS = byte_letters()


def bytes_of_byte_level(word: str) -> bytes:
    """`Ġthe` → b" the". A word with letters outside the alphabet is text that was added as it is."""
    if all(letter in BYTE_LETTERS for letter in word):
        return bytes(BYTE_LETTERS[letter] for letter in word)
    return word.encode()


def bytes_of_sentencepiece(word: str) -> bytes:
    """`▁the` → b" the", `<0xE8>` → b"\\xe8"."""
    if len(word) == 6 and word.startswith("<0x") and word.endswith(">"):
        return bytes([int(word[3:5], 16)])
    return word.replace("▁", " ").encode()
