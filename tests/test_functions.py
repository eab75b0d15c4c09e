"""The command line: every function by name, with JSON in and out, and one clear line when something is wrong."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compute import __main__, facts, functions, numbers
from compute.errors import MESSAGES, BadInput, BrokenData, LabError, UnknownName
from compute.quantity import Quantity

ROOT = Path(__file__).parents[1]


def command(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "compute", *args], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_possible_values_are_listed_in_both_languages():
    """Catches the library's English "or" in a Chinese sentence."""
    with pytest.raises(BadInput) as wrong:
        functions.check("speculative.monte_carlo", {"rule": "always"})
    assert "'equal-only' or 'resample-from-p'" in wrong.value.message("en") and "'equal-only' 或 'resample-from-p'" in wrong.value.message("zh")


def test_the_anchor_from_the_command_line():
    """Catches a broken path from argument to JSON: the figures of the README's example."""
    done = command("call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 58, "context": 4096}')
    assert done.returncode == 0, done.stderr
    step = json.loads(done.stdout)
    assert round(step["step_seconds"] * 1e3, 2) == 25.17
    assert round(step["tokens_per_second"]) == 2304


def test_list_gives_a_schema_for_every_function():
    """Catches a function whose parameters cannot be described, such as one without annotations."""
    done = command("list")
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert set(table) == set(functions.TABLE) and table
    for name, row in table.items():
        assert row["summary"], name
        assert row["parameters"]["type"] == "object", name


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["call", "roofline.decod"], ["roofline.decod", "roofline.decode"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100"}'], ["h100", "h100-sxm"]),
        (["call", "roofline.decode", '{"model": "qwen", "chip": "h100-sxm"}'], ["qwen", "qwen3.8-27b"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 0}'], ["batch", "0", "at least 1"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 1.5}'], ["batch", "1.5", "a whole number"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "size": 1}'], ["size", "batch"]),
        (["call", "kv.of_shape", '{"heads": 32, "kv_heads": 33}'], ["kv_heads", "33", "divide the 32"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 1' + "0" * 5000 + "}"], ["not JSON"]),
        (["numbers", "nosuch"], ["nosuch", "no number"]),
        (["call", "roofline.decode", '{"chip": "h100-sxm"}'], ["model", "required"]),
        (["call", "roofline.decode", "[1]"], ["object"]),
        (["call", "roofline.decode", "{batch: 1}"], ["JSON"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 59}'], ["does not fit", "0.3092 GB"]),
        (["call", "roofline.decode", '{"model": {"hidden_size": 0}, "chip": "h100-sxm"}'], ["hidden_size", "0"]),
        (["call", "roofline.decode", '{"model": {"parameters": 1e9}, "chip": {"memory_bytes": 1e9}}'], ["bandwidth_bytes_per_s"]),
    ],
)
def test_bad_input_is_one_clear_line(args, words):
    """Catches tracebacks, silent defaults, and messages that name neither the value nor the way out."""
    done = command(*args)
    assert done.returncode == 2 and not done.stdout
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_errors_survive_the_wire_in_both_languages():
    """Catches an error that loses its class or its values between service and page."""
    for error in (BadInput("batch", 0, "at least 1 is needed", "至少要 1"), UnknownName("model", "模型", "x", ["a", "b"])):
        back = LabError.from_json(json.loads(json.dumps(error.to_json())))
        assert type(back) is type(error) and back.values == error.values
        assert back.message("zh") == error.message("zh") != back.message("en")


def test_every_message_has_both_languages():
    """Catches a failure that could be told in one language only."""
    assert MESSAGES
    for code, words in MESSAGES.items():
        assert set(words) == {"zh", "en"} and all(words.values()), code


def test_numbers_lists_every_kind():
    """Catches a resolver that lost a whole table: quoted figures, claims, and nothing unknown."""
    done = command("numbers", "--json")
    assert done.returncode == 0, done.stderr
    kinds = {row["kind"] for row in json.loads(done.stdout).values()}
    assert {"quoted", "computed"} <= kinds


@pytest.mark.parametrize("prefix", ["=anchor.batch5", "anchor.batch5", "~=anchor.batch5"])
def test_a_prefix_is_found_with_its_mark_and_without(prefix):
    """Catches a prefix that is compared with its mark against names without theirs: nothing found, and no word of it."""
    done = command("numbers", prefix)
    assert done.returncode == 0 and done.stdout.startswith("=anchor.batch58"), done.stderr


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("batch", 1.5, "a whole number is needed"),
        ("batch", "nan", "a whole number is needed"),
        ("weight_bits", float("nan"), "a number is needed"),
        ("weight_bits", float("inf"), "a number is needed"),
        ("weight_bits", "nan", "a number is needed"),
        ("weight_bits", "four", "a number is needed"),
    ],
)
def test_a_wrong_number_says_which_kind_is_needed(field, value, words):
    """Catches the two kinds of number exchanged in the sentence, and a NaN that JSON cannot carry to the page."""
    with pytest.raises(BadInput) as wrong:
        functions.check("roofline.decode", {"model": "qwen3-8b", "chip": "h100-sxm", field: value})
    assert wrong.value.values["field"] == field and wrong.value.values["reason"] == words
    json.dumps(wrong.value.to_json(), allow_nan=False)


def test_chinese_sentences_use_chinese_words_and_marks():
    """Catches: two Chinese names for one thing, and a half-width comma after a full-width bracket."""
    with pytest.raises(UnknownName) as wrong:
        facts.chip("h100")
    assert "没有名为 'h100' 的卡；" in wrong.value.message("zh")
    for code, words in MESSAGES.items():
        text = re.sub(r"\{[^}]*\}", "x", words["zh"])
        assert not re.search("[\u4e00-\u9fff\u3000-\u303f\uff00-\uffef][,;:!?()]", text), code


# ---- inline models and cards

SHAPE = {"hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 100, "num_attention_heads": 4, "intermediate_size": 128}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MLA = {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
CARD = {"memory_bytes": 80e9, "bandwidth_bytes_per_s": 1e12, "flops_bf16": 1e14}


def decode(model, chip=CARD):
    return functions.call("roofline.decode", {"model": model, "chip": chip, "batch": 2, "context": 100})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"parameters": 0.5}, ["0.5", "at least 1 parameter is needed"]),
        ({"parameters": 1e-300}, ["1e-300", "at least 1 parameter is needed"]),
        ({"parameters": 10**400}, ["parameters", "up to 1e+24"]),
        ({"parameters": 1e9, "kv_bytes": 1}, ["kv_bytes", "kv_bytes_per_token"]),
        ({"text_config": 5}, ["text_config", "5", "an object"]),
        (SHAPE | {"text_config": None}, ["text_config", "None", "an object"]),
        (SHAPE | {"layer_types": 4}, ["layer_types", "4", "a list"]),
        (SHAPE | {"layer_types": ["mamba"] * 4}, ["mamba", "full_attention", "sliding_attention", "linear_attention"]),
        (SHAPE | {"layer_types": [["full_attention"]] * 4}, ["full_attention", "linear_attention"]),
        (SHAPE | {"num_hidden_layers": 10**12}, ["num_hidden_layers", "from 1 to 10000"]),
        (SHAPE | {"max_position_embeddings": "4k"}, ["max_position_embeddings", "4k", "a whole number"]),
        (SHAPE | {"max_position_embeddings": -1}, ["max_position_embeddings", "-1", "a whole number"]),
        (SHAPE | {"num_attention_heads": 65}, ["num_attention_heads", "65", "64"]),
        (SHAPE | {"tie_word_embeddings": "no"}, ["tie_word_embeddings", "no", "true or false"]),
        (SHAPE | {"model_type": "gpt_neox"}, ["gpt_neox", "llama", "deepseek_v3"]),
        (SHAPE | {"model_type": ["llama"]}, ["model_type", "llama"]),
        (SHAPE | EXPERTS | {"first_k_dense_replace": 5}, ["first_k_dense_replace", "5", "only 4 layers"]),
        (SHAPE | EXPERTS | {"first_k_dense_replace": "one"}, ["first_k_dense_replace", "one", "a whole number"]),
        (SHAPE | EXPERTS | {"n_shared_experts": -1}, ["n_shared_experts", "-1", "a whole number"]),
        (SHAPE | EXPERTS | {"decoder_sparse_step": 2}, ["decoder_sparse_step", "2", "only 1"]),
        (SHAPE | MLA | {"q_lora_rank": "x"}, ["q_lora_rank", "x", "a whole number"]),
    ],
)
def test_an_impossible_inline_model_is_one_sentence(model, words):
    """Catches tracebacks for keys of the wrong type, and figures for models that cannot be or are not counted here."""
    with pytest.raises(LabError) as wrong:
        decode(model)
    for word in words:
        assert word in wrong.value.message("en"), wrong.value.message("en")


@pytest.mark.parametrize(("key", "value", "word"), [("flops_int4", 1e14, "flops_bf16"), ("flops_bf16", "fast", "positive"), ("memory_bytes", 1e300, "up to")])
def test_an_impossible_inline_card_is_one_sentence(key, value, word):
    """Catches a misspelt key that is ignored, and a figure that is no number."""
    with pytest.raises(LabError, match=key) as wrong:
        decode(SHAPE, CARD | {key: value})
    assert word in wrong.value.message("en")


def test_possible_inline_models_pass():
    """Catches checks that refuse what is right: no model_type, nothing behind optional keys, dense layers all the way."""
    for more in ({}, {"model_type": None}, {"q_lora_rank": None}, EXPERTS, EXPERTS | {"first_k_dense_replace": 4}, MLA | {"q_lora_rank": 8}):
        assert decode(SHAPE | more)["tokens_per_second"] > 0
    assert decode({"parameters": 1})["step_seconds"] > 0


scalars = st.none() | st.booleans() | st.integers() | st.integers(0, 12) | st.floats() | st.text(max_size=5)
anything = scalars | st.lists(scalars, max_size=4) | st.dictionaries(st.text(max_size=3), scalars, max_size=2)
KINDS = st.lists(st.sampled_from(["full_attention", "sliding_attention", "linear_attention", "mamba"]), min_size=4, max_size=4)
KEYS = [
    *SHAPE, *EXPERTS, *MLA, "q_lora_rank", "num_key_value_heads", "head_dim", "layer_types", "sliding_window", "use_sliding_window",
    "first_k_dense_replace", "n_shared_experts", "shared_expert_intermediate_size", "max_position_embeddings", "model_type",
    "tie_word_embeddings", "attention_bias", "attn_output_gate", "full_attention_interval", "text_config", "mlp_only_layers",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
]  # fmt: skip
strange = st.dictionaries(st.sampled_from(KEYS), anything | KINDS | st.integers(1, 8) | st.integers(1, 8), max_size=6)
sized = st.fixed_dictionaries({"parameters": anything}, optional={"kv_bytes_per_token": anything})
base = st.sampled_from([{}, SHAPE, SHAPE, SHAPE | EXPERTS, SHAPE | MLA, {"text_config": SHAPE}])


@example(model={"parameters": 1, "kv_bytes_per_token": 7e-307}, chip=CARD)
@settings(max_examples=400, deadline=None)
@given(model=st.builds(lambda a, b: a | b, base, strange) | sized, chip=st.builds(lambda b: CARD | b, st.dictionaries(st.sampled_from([*CARD, "name", "x"]), anything, max_size=1)))
def test_any_inline_object_gives_a_figure_or_a_sentence(model, chip):
    """Catches every other traceback, and zero, infinite or missing figures from objects that no list above foresaw."""
    for name in ("roofline.decode", "roofline.prefill", "kv.per_token", "kv.capacity"):
        try:
            result = functions.call(name, {"model": model} | ({} if name == "kv.per_token" else {"chip": chip}))
        except LabError as sentence:
            assert all(sentence.message(lang) for lang in ("zh", "en"))
            continue
        json.dumps(result, allow_nan=False)
        if name.startswith("roofline"):
            assert result["tokens_per_second"] > 0


def test_a_claim_is_computed_once_for_each_state_of_what_is_stored(monkeypatch):
    """Catches pages that compute every number anew at every redraw, and numbers that stay when the store has changed."""
    asked, state = [], [(1, 1, 0)]

    def count() -> Quantity:
        asked.append(1)
        return Quantity(len(asked), "count", "computed", "times asked")

    monkeypatch.setitem(numbers.CLAIMS, "toy.count", count)
    monkeypatch.setattr(numbers, "as_of", lambda: state[0])
    assert [numbers.resolve("=toy.count").value for _ in range(3)] == [1, 1, 1]
    state[0] = (2, 1, 0)
    assert numbers.resolve("=toy.count").value == 2


# ---- broken data files


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A copy of data/ that a test may break."""
    shutil.copytree(facts.DATA / "models", tmp_path / "data" / "models")
    for path in facts.DATA.glob("*.toml"):
        shutil.copy(path, tmp_path / "data")
    shutil.copy(facts.DATA / "anchor-model.json", tmp_path / "data")
    cached = (facts._models, facts._chips, facts.papers, numbers.quoted_names)
    monkeypatch.setattr(facts, "DATA", tmp_path / "data")
    for f in cached:
        f.cache_clear()
    yield tmp_path / "data"
    monkeypatch.undo()
    for f in cached:
        f.cache_clear()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r"\{", "", ["Extra data"]),
        (r"[\s\S]*", "[]", ["an object"]),
        ('"num_hidden_layers": 36', '"num_hidden_layers": "x"', ["num_hidden_layers", "'x'"]),
        ('"num_hidden_layers": 36,', "", ["num_hidden_layers", "lacks"]),
        ('"model_type": "qwen3"', '"model_type": "gpt_neox"', ["model_type", "gpt_neox"]),
        ('"name": "[^"]*"', '"name": 5', ["name", "5"]),
        ('"source": ', '"sauce": ', ["source", "missing"]),
        ('"source": ', '"source": "a book", "x": ', ["source", "a book"]),
        ('"config": ', '"config": 5, "x": ', ["config", "5"]),
        ('"checkpoint_bytes": ', '"checkpoint_bytes": {"value": "big"}, "x": ', ["checkpoint_bytes.value", "big"]),
    ],
)
def test_a_broken_model_costs_only_itself(data, capsys, old, new, words):
    """Catches: one broken file taking all models away, blamed on another model, or left out without a word."""
    path = data / "models" / "qwen3-8b.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(changed := re.sub(old, new, text, count=1), encoding="utf-8")
    assert changed != text
    assert "qwen3-8b" not in facts.models() and "qwen3.8-27b" in facts.models()
    assert facts.model("qwen3.8-27b").layers == 64
    for ask in (lambda: facts.model("qwen3-8b"), lambda: numbers.resolve("qwen3-8b.context_maximum")):
        with pytest.raises(BrokenData) as wrong:
            ask()
        for word in ["data/models/qwen3-8b.json", *words]:
            assert word in wrong.value.message("en")
        assert re.search("[\u4e00-\u9fff]", wrong.value.values["reason_zh"]) or words == ["Extra data"]  # a parser's words stay English
    assert __main__.main(["numbers", "qwen3"]) == 2
    out, err = capsys.readouterr()
    assert "qwen3-4b.context_maximum" in out and "qwen3-8b." not in out
    assert err.count("qwen3-8b.json") == len(err.splitlines()) == 1
    assert __main__.main(["numbers", "h100-sxm"]) == 0 and __main__.main(["numbers", "qwen3-8b.hidden_size"]) == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bandwidth_bytes_per_s = 3.35e12", 'bandwidth_bytes_per_s = "fast"', ["[h100-sxm].bandwidth_bytes_per_s", "'fast'"]),
        ("memory_bytes = 80e9\nbandwidth_bytes_per_s = 3.35e12", "bandwidth_bytes_per_s = 3.35e12", ["[h100-sxm].memory_bytes", "missing"]),
        ("bandwidth_bytes_per_s = 3.35e12", "bandwidth_bytes_per_s = 3.35e12\nflops_x = -1", ["[h100-sxm].flops_x", "-1"]),
    ],
)
def test_a_broken_chip_costs_only_itself(data, capsys, old, new, words):
    """Catches: a word in place of a figure taking all chips away, or told as a mistake of the reader's."""
    path = data / "chips.toml"
    before, start, rest = path.read_text(encoding="utf-8").partition("[h100-sxm]")
    assert old in rest
    path.write_text(before + start + rest.replace(old, new, 1), encoding="utf-8")
    assert "h100-sxm" not in facts.published_chips() and "h200-sxm" in facts.published_chips()
    for ask in (lambda: facts.chip("h100-sxm"), lambda: numbers.resolve("h100-sxm.bandwidth")):
        with pytest.raises(BrokenData) as wrong:
            ask()
        for word in ["data/chips.toml", *words]:
            assert word in wrong.value.message("en")
    assert __main__.main(["numbers", "h"]) == 2
    out, err = capsys.readouterr()
    assert "h200-sxm.memory" in out and len(err.splitlines()) == 1


def test_a_syntax_error_in_the_chips_is_one_complaint(data, capsys):
    """Catches a traceback of the parser."""
    (data / "chips.toml").write_text("[h100-sxm\n", encoding="utf-8")
    for args in (["numbers"], ["call", "roofline.decode", '{"model": "qwen3-8b", "chip": "h200-sxm"}']):
        assert __main__.main(args) == 2
        assert capsys.readouterr().err.count("data/chips.toml is broken") == 1


def test_a_broken_measurement_costs_only_this_machine(tmp_path, monkeypatch):
    """Catches a half-written file of build/ that takes the published chips away."""
    monkeypatch.setattr(facts, "THIS_MACHINE", facts.DATA.parent / "build" / f"{tmp_path.name}.json")
    facts.THIS_MACHINE.parent.mkdir(exist_ok=True)
    facts.THIS_MACHINE.write_text('{"name": 5, "conditions": {"date": "2026-11-29"}, "memory_bytes": "all"}', encoding="utf-8")
    try:
        assert "h100-sxm" in facts.chips() and "this-machine" not in facts.chips()
        with pytest.raises(BrokenData, match="memory_bytes|bandwidth_bytes_per_s"):
            facts.chip("this-machine")
    finally:
        facts.THIS_MACHINE.unlink()


def test_a_stopped_call_promises_nothing(monkeypatch, capsys):
    """Catches: “the same command goes on from there” after a command that stores nothing; the last line of progress left standing."""

    def stopped(name, params, report):
        report(0.5, "half")
        raise KeyboardInterrupt

    monkeypatch.setattr(functions, "call", stopped)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert __main__.main(["call", "roofline.decode"]) == 130
    assert capsys.readouterr().err.endswith("half\033[K\r\033[Kstopped\n")
