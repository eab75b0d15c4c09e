"""Our logits against transformers' on the same files."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from compute.engine import directory, errors
from compute.engine.loader import load, take_apart
from compute.engine.model import KVCache, forward

from . import tiny

FP32 = 2e-5  # of the largest logit: three layers of float32 sums in another order differ by about 1e-6


@pytest.mark.parametrize("case", tiny.CASES)
def test_logits_equal_transformers(made, case):
    """Catches: a wrong head_dim, a bias or norm left out, q/k/v cut at the wrong row, wrong key head for a query, wrong
    rope base or stretching (60 tokens, beyond the original context of 32), a wrong epsilon, tied and untied confused."""
    theirs, ours, _ = made(case)
    ids = tiny.ids(60)
    with torch.inference_mode():
        expected = theirs(ids).logits
    assert expected.abs().max() > 1, "logits near zero would agree with anything"
    assert tiny.far_apart(forward(ours.weights, ids, None, torch.arange(60)[None]), expected) < FP32


@pytest.mark.parametrize("case", tiny.CASES)
def test_cached_logits_equal_transformers_without_cache(made, case):
    """Catches: keys stored before they are turned, a mask that is off by one after the first chunk, positions that restart."""
    theirs, ours, _ = made(case)
    ids = tiny.ids(40, seed=2)
    cache = KVCache(ours.weights, 1, 40)
    cuts = [0, 17, 18, 19, 21, 30, 40]  # a prompt, single tokens, chunks of two and more
    parts = [forward(ours.weights, ids[:, a:b], cache, torch.arange(a, b)[None]) for a, b in zip(cuts, cuts[1:])]
    with torch.inference_mode():
        expected = theirs(ids, use_cache=False).logits
    assert tiny.far_apart(torch.cat(parts, 1), expected) < FP32


@pytest.mark.parametrize("case", tiny.CASES)
def test_every_tensor_of_the_file_is_held_unchanged(made, case):
    """Catches: two matrices joined in the wrong order, and a parameter count that forgets or doubles one."""
    theirs, ours, path = made(case)
    held, file = take_apart(ours.weights), load_file(path / "model.safetensors")
    assert held.keys() == file.keys() | {"lm_head.weight"}  # a tied one is stored once
    assert all(torch.equal(held[name], value) for name, value in file.items())
    assert ours.weights.parameters() == theirs.num_parameters()


def test_shards_are_read_as_one_model(made, tmp_path):
    """Catches: reading only the first shard."""
    theirs, ours, _ = made("llama, untied, head_dim 24 ≠ 64 / 4")
    path = tiny.save(theirs, tmp_path, max_shard_size="100KB")
    assert len(list(path.glob("*.safetensors"))) > 2
    sharded = load(path, device="cpu", dtype="float32")
    assert all(torch.equal(a, b) for a, b in zip(take_apart(sharded.weights).values(), take_apart(ours.weights).values()))


def test_rope_in_the_older_spelling(made, tmp_path):
    """Catches: reading only rope_parameters, so that an older config falls back to base 10,000 without stretching."""
    _, ours, path = made("llama 3.1 rope")
    shutil.copytree(path, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load(tmp_path, device="cpu").config.rope == ours.config.rope


def test_context_ends_where_a_sliding_window_would_begin(made):
    """Catches: full attention computed silently where the model was trained with a window."""
    assert made("mistral, window longer than the text")[1].config.context == 64
    assert made("qwen2, biases on q, k, v")[1].config.context == 128  # its window is switched off


def test_head_dim_that_the_config_does_not_state(made):
    """Catches: hidden / heads for Qwen3, whose default is 128 in transformers, and 128 for everybody."""
    for case, expected in (("qwen3, norms and biases", 128), ("qwen2, biases on q, k, v", 16)):
        path = made(case)[2]
        raw = json.loads((path / "config.json").read_text())
        raw.pop("head_dim", None)
        assert directory.parse_config(path, raw, {}).head_dim == expected


def test_bfloat16_is_close_to_transformers_in_bfloat16(made):
    """Catches: rope or logits computed in the wrong precision. Both round; 3 % of the largest logit is one or two steps
    of an 8-bit mantissa, summed over three layers."""
    theirs, _, path = made("qwen3, query and key norms")
    ours = load(path, device="cpu", dtype="bfloat16")
    ids = tiny.ids(30)
    logits = forward(ours.weights, ids, None, torch.arange(30)[None])
    assert ours.weights.dtype == torch.bfloat16 and logits.dtype == torch.float32
    reference = tiny.reference("qwen3, query and key norms").bfloat16()
    with torch.inference_mode():
        assert tiny.far_apart(logits, reference(ids).logits.float()) < 0.03


def broken(made, tmp_path, change):
    """A copy of a sound directory after `change(folder)`."""
    shutil.copytree(made("llama, untied, head_dim 24 ≠ 64 / 4")[2], tmp_path, dirs_exist_ok=True)
    change(tmp_path)
    return tmp_path


def edit_config(**changes):
    def change(folder):
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def edit_tensors(change):
    def on_disk(folder):
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return on_disk


def cut_in_half(folder):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def only_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


LOST = "model.layers.1.mlp.down_proj.weight"
BROKEN = {
    "a lost tensor": (edit_tensors(lambda t: t.pop(LOST)), errors.TensorWrong, LOST),
    "a tensor of another shape": (
        edit_tensors(lambda t: t.update({LOST: torch.zeros(64, 95)})),
        errors.TensorWrong,
        r"\[64, 95\], the configuration says \[64, 96\]",
    ),
    "a tensor nobody uses": (
        edit_tensors(lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(96)})),
        errors.TensorWrong,
        "q_proj.bias",
    ),
    "an unknown architecture": (
        edit_config(architectures=["MambaForCausalLM"]),
        errors.NotSupported,
        "MambaForCausalLM.*LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM",
    ),
    "an unknown rope": (edit_config(rope_parameters={"rope_type": "yarn"}), errors.NotSupported, "yarn"),
    "another activation": (edit_config(hidden_act="gelu"), errors.NotSupported, "gelu"),
    "quantized weights": (edit_config(quantization_config={"quant_method": "awq"}), errors.NotSupported, "awq"),
    "a width that is no number": (edit_config(hidden_size="64"), errors.FileCorrupt, "'64'"),
    "heads that do not divide": (edit_config(num_key_value_heads=3), errors.FileCorrupt, "4 query heads .* 3 "),
    "half a file": (cut_in_half, errors.FileCorrupt, "model.safetensors"),
    "only pickle": (only_pickle, errors.NotSupported, "pytorch_model.bin"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), errors.ModelMissing, "model.safetensors is missing"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), errors.ModelMissing, "tokenizer.json is missing"),
    "a broken tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), errors.FileCorrupt, "tokenizer"),
    "broken JSON": (lambda f: (f / "config.json").write_text("{"), errors.FileCorrupt, "not JSON"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_named(made, tmp_path, what):
    """Catches: a bare KeyError or a silent default; each message carries the value, in both languages."""
    change, kind, words = BROKEN[what]
    with pytest.raises(kind, match=words) as caught:
        load(broken(made, tmp_path, change), device="cpu")
    assert "\n" not in str(caught.value).strip() and caught.value.message("zh")


def test_lost_config_key_is_named(made, tmp_path):
    """Catches: a KeyError that reaches the page."""

    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        del config["intermediate_size"]
        (folder / "config.json").write_text(json.dumps(config))

    with pytest.raises(errors.FileCorrupt, match="intermediate_size"):
        load(broken(made, tmp_path, change), device="cpu")


def test_paths_and_settings_that_cannot_be(made, tmp_path):
    """Catches: a traceback of another library for a plain mistake of the operator."""
    path = made("llama, grouped heads, tied")[2]
    (tmp_path / "weights.pt").write_bytes(b"")
    with pytest.raises(errors.ModelMissing, match="nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(errors.NotSupported, match="weights.pt"):
        load(tmp_path / "weights.pt")
    with pytest.raises(errors.SettingWrong, match="npu"):
        load(path, device="npu")
    with pytest.raises(errors.SettingWrong, match="int3"):
        load(path, device="cpu", dtype="int3")
