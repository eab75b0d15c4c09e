"""The same model as a directory and as GGUF must be the same numbers."""

import gguf
import pytest
import torch

from compute.engine import errors, gguf_file
from compute.engine.loader import load, take_apart
from compute.engine.model import forward

from . import tiny

SAME_AS_DIRECTORY = [
    "llama, grouped heads, tied",
    "llama, untied, head_dim 24 ≠ 64 / 4",
    "llama 3.1 rope",
    "qwen2, biases on q, k, v",
    "qwen3, query and key norms",
]


@pytest.mark.parametrize("case", SAME_AS_DIRECTORY)
def test_gguf_equals_the_directory(made, tmp_path, case):
    """Catches: q/k rows left interleaved (or turned back where they were not: Qwen), permuted with the wrong number of
    heads, tensor names mixed up, the stretching of Llama 3.1 (rope_freqs) or the epsilon lost."""
    theirs, ours, _ = made(case)
    found = load(tiny.write_gguf(theirs, tmp_path / "m.gguf"), device="cpu", dtype="float32")
    parts = take_apart(found.weights)
    assert all(torch.equal(parts[name], value) for name, value in take_apart(ours.weights).items())
    ids, positions = tiny.ids(60), torch.arange(60)[None]
    with torch.inference_mode():
        expected = theirs(ids).logits
    assert tiny.far_apart(forward(found.weights, ids, None, positions), expected) < 2e-5
    assert found.config.stop_tokens == ours.config.stop_tokens == (0,)


def test_quantized_tensors_become_the_numbers_they_stand_for(made, tmp_path):
    """Catches: scales read as weights. Q8_0 by hand: 32 weights share a scale, max |w| / 127, and each is at most half a
    step away from its original; the scale is kept in 16 bits, which moves 127 steps by up to 127 / 2048 = 0.06 of one."""
    theirs, _, _ = made("llama, grouped heads, tied")
    file = tiny.write_gguf(theirs, tmp_path / "m.gguf", quantize=gguf.GGMLQuantizationType.Q8_0)
    parts = take_apart(load(file, device="cpu").weights)
    for name, value in theirs.state_dict().items():
        if value.ndim == 2:
            step = value.reshape(-1, 32).abs().amax(1, keepdim=True) / 127
            distance = (parts[name] - value).reshape(-1, 32).abs()
            assert (distance <= 0.57 * step).all() and distance.max() > 0


def test_the_tokenizer_comes_from_the_file_itself(made, tmp_path):
    """Catches: merges split wrongly, control tokens read as text."""
    theirs, ours, _ = made("llama, grouped heads, tied")
    found = load(tiny.write_gguf(theirs, tmp_path / "m.gguf"), device="cpu").tokenizer
    for text in ("小明把苹果给了", "The cat sat 1234  times.\n\n ok", "<|endoftext|>x", tiny.TEXT):
        tokens = ours.tokenizer.encode(text)
        assert found.encode(text) == tokens and found.decode(tokens) == text
    assert found.encode("<|endoftext|>") == [0]


@pytest.mark.parametrize(
    "pre, text, cuts",
    [
        ("smollm", "in 2048", ["in", " ", "2", "0", "4", "8"]),
        ("qwen2", "in 2048", ["in", " ", "2", "0", "4", "8"]),
        ("llama-bpe", "in 2048", ["in", " ", "204", "8"]),
        ("gpt-2", "in 2048", ["in", " 2048"]),
    ],
)
def test_words_are_cut_as_the_file_says(made, tmp_path, pre, text, cuts):
    """Catches: one word rule for all models, which tokenizes numbers otherwise than in training."""
    theirs, _, _ = made("llama, grouped heads, tied")
    inner = load(tiny.write_gguf(theirs, tmp_path / "m.gguf", pre=pre), device="cpu").tokenizer.inner
    assert [word.replace("Ġ", " ") for word, _ in inner.pre_tokenizer.pre_tokenize_str(text)] == cuts


def test_sentencepiece_joins_the_best_score_first():
    """Catches: merges in the order of the vocabulary, no space in front, unknown characters lost. `bc` scores better than
    `ab`, so abc is a·bc; é is not in the list and becomes its bytes C3 A9."""
    scores = {"<unk>": 0, "<s>": 0, "▁": -3, "a": -4, "b": -5, "c": -6, "ab": -2, "bc": -1, "<0xC3>": 0, "<0xA9>": 0}
    tokenizer = gguf_file.build_tokenizer(
        "m.gguf",
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": list(scores),
            "tokenizer.ggml.scores": list(scores.values()),
            "tokenizer.ggml.token_type": [2, 3, 1, 1, 1, 1, 1, 1, 6, 6],
            "tokenizer.ggml.bos_token_id": 1,
        },
    )
    tokens = tokenizer.encode("abc é")
    assert [list(scores)[token] for token in tokens] == ["<s>", "▁", "a", "bc", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokens[1:]) == "abc é"


def test_broken_files_are_named(made, tmp_path):
    """Catches: numpy's or struct's own error for a download that stopped half way."""
    whole = tiny.write_gguf(made("llama, grouped heads, tied")[0], tmp_path / "whole.gguf").read_bytes()
    file = tmp_path / "m.gguf"
    for part in (whole[: len(whole) // 2], whole[:1000], whole[:10], b"", b"PK\x03\x04" + whole[4:]):
        file.write_bytes(part)
        with pytest.raises(errors.FileCorrupt, match="m.gguf"):
            load(file, device="cpu")


def test_what_is_not_computed_is_refused(tmp_path):
    """Catches: a vocabulary or an architecture of another kind loaded as if it were known."""
    for kind, tokenizer, words in (("mamba", "gpt2", "mamba.*llama, qwen2, qwen3"), ("llama", "bert", 'tokenizer "bert"')):
        writer = gguf.GGUFWriter(tmp_path / "m.gguf", kind)
        for add, value in (
            (writer.add_context_length, 8),
            (writer.add_embedding_length, 8),
            (writer.add_block_count, 1),
            (writer.add_feed_forward_length, 8),
            (writer.add_head_count, 2),
            (writer.add_layer_norm_rms_eps, 1e-5),
            (writer.add_tokenizer_model, tokenizer),
            (writer.add_token_list, ["a"]),
        ):
            add(value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(errors.NotSupported, match=words):
            load(tmp_path / "m.gguf", device="cpu")
