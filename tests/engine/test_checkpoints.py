"""The models the lessons run on: our own, and SmolLM2."""

import hashlib

import pytest
import torch
from gguf import GGUFReader, dequantize
from transformers.initialization import no_init_weights

from compute.engine import registry, smollm2
from compute.engine.errors import ModelMissing
from compute.engine.generate import compare_cache, generate
from compute.engine.model import forward

from . import tiny

PARAMETERS = {"mini-256": 3_672_320, "mini-128": 1_049_728, "mini-64": 328_256, "mini-moe": 10_758_400}
PROMPTS = ["小明把苹果给了", "话说曹操引兵", "要在文本文档中插入表格，", "The kernel memory"]


@pytest.mark.parametrize("name", PARAMETERS)
def test_our_checkpoint_computes_what_transformers_computes(name):
    """Catches: a checkpoint that is missing or of another shape, or that only our own engine can read."""
    model = registry.discover().get(name)
    path = registry.ROOT / "data/checkpoints" / name
    theirs = tiny.transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    words = tiny.transformers.AutoTokenizer.from_pretrained(path)
    assert model.weights.parameters() == theirs.num_parameters() == PARAMETERS[name]
    for prompt in PROMPTS:
        ids = torch.tensor([model.tokenizer.encode(prompt)])
        assert ids[0].tolist() == words(prompt)["input_ids"] and model.tokenizer.decode(ids[0].tolist()) == prompt
        ours = forward(model.weights, ids.to(model.weights.device), None, torch.arange(ids.shape[1])[None])
        with torch.inference_mode():
            assert tiny.far_apart(ours.cpu(), theirs(ids).logits) < 2e-5


@pytest.mark.parametrize("name", PARAMETERS)
def test_our_checkpoint_writes_the_same_with_and_without_cache(name):
    """Catches: the lesson's live claim failing on the very model it is shown with."""
    model = registry.discover().get(name)
    for prompt in PROMPTS:
        found = compare_cache(model, prompt, 32)
        assert found.equal and found.largest_logit_difference < 1e-4


def test_a_missing_checkpoint_says_how_to_get_it(tmp_path):
    """Catches: a traceback on a fresh checkout."""
    with pytest.raises(ModelMissing, match="mini-64.*train it: python -m compute.training train mini-64"):
        registry.discover(root=tmp_path).get("mini-64")


@pytest.fixture(scope="module")
def smol():
    """SmolLM2 by the courseware's own way of fetching it; skipped only when that file cannot be had."""
    try:
        smollm2.fetch(registry.ROOT)
    except ModelMissing as missing:
        pytest.skip(f"SmolLM2 is optional and not here: {missing}")
    return registry.discover().get(smollm2.ID)


def test_smollm2_is_the_published_file(smol):
    """Catches: another file under the same name."""
    file = smollm2.gguf_path(registry.ROOT)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == smollm2.SHA256
    assert smol.weights.parameters() == 134_515_008


def test_smollm2_answers(smol):
    """Catches: anything wrong with its tokenizer or weights that a tiny random model would not show."""
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    steps = list(generate(smol, smol.tokenizer.encode(prompt), 20))
    assert "".join(step.text for step in steps) == "The capital of France is Paris." and steps[-1].finish == "stop"


def test_smollm2_computes_what_transformers_computes(smol):
    """Catches: rows of q and k in the wrong order. Referee: transformers' Llama, filled from the file by names and by the
    inverse permutation written out here."""
    config = tiny.transformers.LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        max_position_embeddings=8192,
    )
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj"}
    names |= {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"} | {f"ffn_{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")}
    names |= {"token_embd": "embed_tokens", "output_norm": "norm"}
    state = {}
    for tensor in GGUFReader(smollm2.gguf_path(registry.ROOT)).tensors:
        values = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        *block, kind, _ = tensor.name.split(".")
        if kind in ("attn_q", "attn_k"):
            order = [64 * head + 2 * i + half for head in range(len(values) // 64) for half in (0, 1) for i in range(32)]
            values = values[order]
        state[".".join(["model", *(["layers", block[1]] if block else []), names[kind], "weight"])] = values
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    with no_init_weights():
        theirs = tiny.transformers.LlamaForCausalLM(config).eval()
    theirs.load_state_dict(state)
    ids = torch.tensor([smol.tokenizer.encode("The KV cache stores keys and values, 一个一个地。")])
    with torch.inference_mode():
        expected = theirs(ids).logits
    ours = forward(smol.weights, ids, None, torch.arange(ids.shape[1])[None])
    assert tiny.far_apart(ours.cpu(), expected) < 2e-5


def test_smollm2_writes_the_same_with_and_without_cache(smol):
    """Catches: a rounding difference large enough to change a word in 30 layers."""
    found = compare_cache(smol, "Once upon a time", 16)
    assert found.equal and found.largest_logit_difference < 1e-3
