"""The data files are the ground every other number stands on. The referee here is arithmetic written out per
architecture against published totals, and figures fixed by the vendors; nothing of compute/ is imported."""

import datetime
import json
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parent.parent / "data"
MODEL_FILES = sorted((DATA / "models").glob("*.json"))
WANTED_MODELS = {
    "qwen3.8-27b", "qwen3-0.6b", "qwen3-4b", "qwen3-8b", "llama-7b", "llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3-8b",
    "llama-3-70b", "mistral-7b", "mixtral-8x7b", "deepseek-v3", "glm-4.5", "gpt-oss-20b", "smollm2-135m", "70b-dense",
    "mini-256", "mini-128", "mini-64", "mini-moe",
}  # fmt: skip
WANTED_CHIPS = {
    "a100-40g-sxm", "a100-80g-sxm", "h100-sxm", "h200-sxm", "b200", "mi300x", "l40s", "rtx-4090", "rtx-5090", "tpu-v5e", "m4-max",
}  # fmt: skip


@cache
def model(id):
    return json.loads((DATA / "models" / f"{id}.json").read_text(encoding="utf-8"))


@cache
def toml(name):
    return tomllib.loads((DATA / name).read_text(encoding="utf-8"))


def figures():
    return [
        pytest.param(row, id=f"{paper}.{key}")
        for paper, rows in toml("papers.toml").items()
        if isinstance(rows, dict)
        for key, row in rows.items()
    ]


def is_source(source):
    assert source["title"].strip()
    assert re.match(r"https://[^/\s]+\.[a-z]+(/|$)|data/checkpoints/mini-", source["url"]), source["url"]
    read = datetime.date.fromisoformat(source["read_on"])
    assert datetime.date(2026, 9, 1) <= read <= datetime.date.today()


def both_languages(pair):
    assert set(pair) == {"zh", "en"}
    assert re.search("[\u4e00-\u9fff]", pair["zh"])
    assert pair["en"].strip() and not re.search("[\u4e00-\u9fff]", pair["en"])


# ---- models


def test_the_models_are_there_and_named_after_their_file():
    """Catches a lost or renamed file, and a copied one whose id still names the model it was copied from."""
    assert {p.stem for p in MODEL_FILES} == WANTED_MODELS
    assert all(json.loads(p.read_text(encoding="utf-8"))["id"] == p.stem for p in MODEL_FILES)


@pytest.mark.parametrize("path", MODEL_FILES, ids=lambda p: p.stem)
def test_every_model_says_where_its_shapes_come_from(path):
    """Catches a shape somebody remembered: no source, no link, no date, or a total without provenance."""
    data = json.loads(path.read_text(encoding="utf-8"))
    is_source(data["source"])
    assert data["name"] and data["vendor"] and data["licence"]
    assert data["published_parameters"]["source"].strip()
    if "checkpoint_bytes" in data:
        assert data["checkpoint_bytes"]["unit"] == "B" and data["checkpoint_bytes"]["source"].strip()
    assert data.get("textbook") is True or "hidden_size" in data["config"]


def dense(c, *, qk_norm=False):
    """Llama and kin: gated MLP of three matrices, grouped heads, two norms a layer, one at the end."""
    d, f, layers = c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]
    heads = c["num_attention_heads"]
    kv = c.get("num_key_value_heads", heads)
    hd = c.get("head_dim", d // heads)
    attention = d * heads * hd + 2 * d * kv * hd + heads * hd * d + (2 * hd if qk_norm else 0)
    tables = c["vocab_size"] * d * (1 if c["tie_word_embeddings"] else 2)
    return tables + layers * (attention + 3 * d * f + 2 * d) + d


def mixtral(c):
    d, f, layers, e = c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"], c["num_local_experts"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    hd = c.get("head_dim", d // heads)
    attention = 2 * d * heads * hd + 2 * d * kv * hd

    def total(used):
        return (2 - c["tie_word_embeddings"]) * c["vocab_size"] * d + layers * (attention + d * e + used * 3 * d * f + 2 * d) + d

    return total(e), total(c["num_experts_per_tok"])


def deepseek(c):
    """The main model; its multi-token-prediction layer comes on top. MLA: queries and KV through low-rank pairs."""
    d, heads = c["hidden_size"], c["num_attention_heads"]
    q, kv, rope, nope, v = (c[k] for k in ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    mla = d * q + q + q * heads * (nope + rope) + d * (kv + rope) + kv + kv * heads * (nope + v) + heads * v * d
    router = c["n_routed_experts"] * d + c["n_routed_experts"]
    expert = 3 * d * c["moe_intermediate_size"]
    first = c["first_k_dense_replace"]

    def total(used):
        moe = router + (used + c["n_shared_experts"]) * expert
        layers = c["num_hidden_layers"] * (mla + 2 * d) + first * 3 * d * c["intermediate_size"] + (c["num_hidden_layers"] - first) * moe
        return 2 * c["vocab_size"] * d + layers + d

    mtp = mla + 2 * d + router + (c["n_routed_experts"] + c["n_shared_experts"]) * expert + 2 * d * d + 3 * d
    return total(c["n_routed_experts"]), total(c["num_experts_per_tok"]), mtp


def glm(c):
    """Grouped heads with biases on q, k and v, per-head q/k norms, sigmoid router with a correction per expert."""
    d, heads, kv, hd = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    attention = 2 * d * heads * hd + 2 * d * kv * hd + (heads + 2 * kv) * hd + 2 * hd
    router = c["n_routed_experts"] * d + c["n_routed_experts"]
    expert = 3 * d * c["moe_intermediate_size"]
    first, layers = c["first_k_dense_replace"], c["num_hidden_layers"]

    def total(used):
        moe = router + (used + c["n_shared_experts"]) * expert
        return 2 * c["vocab_size"] * d + layers * (attention + 2 * d) + first * 3 * d * c["intermediate_size"] + (layers - first) * moe + d

    mtp = attention + 2 * d + router + (c["n_routed_experts"] + c["n_shared_experts"]) * expert + 2 * d * d + 3 * d
    return total(c["n_routed_experts"]), total(c["num_experts_per_tok"]), mtp


def gpt_oss(c):
    """Biases everywhere, a sink per head, experts with a fused gate and up matrix. Also the bytes: experts in MXFP4."""
    d, heads, kv, hd, i = (c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"))
    e, layers = c["num_local_experts"], c["num_hidden_layers"]
    attention = d * heads * hd + heads * hd + 2 * (d * kv * hd + kv * hd) + heads * hd * d + d + heads
    matrices, biases = d * 2 * i + i * d, 2 * i + d
    rest = layers * (attention + d * e + e + 2 * d) + 2 * c["vocab_size"] * d + d

    def total(used):
        return rest + layers * used * (matrices + biases)

    stored = 2 * (rest + layers * e * biases) + layers * e * matrices * 17 // 32  # 4 bits each and a byte for 32
    return total(e), total(c["num_experts_per_tok"]) - c["vocab_size"] * d, stored


def anchor(c):
    """Text part: (embedding, matrices multiplied per token, conv1d, vectors)."""
    d, hd = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    gk, gv = c["linear_num_key_heads"] * c["linear_key_head_dim"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    hv = c["linear_num_value_heads"]
    full = c["layer_types"].count("full_attention")
    gdn = c["layer_types"].count("linear_attention")
    gated_attention = d * 2 * q + 2 * d * kv + q * d  # q_proj carries the output gate as well
    gated_delta = d * (2 * gk + gv) + d * gv + 2 * d * hv + gv * d  # qkv, z, a and b, out
    mlp = 3 * d * c["intermediate_size"]
    matrices = full * gated_attention + gdn * gated_delta + (full + gdn) * mlp + c["vocab_size"] * d
    conv = gdn * (2 * gk + gv) * c["linear_conv_kernel_dim"]
    vectors = (full + gdn) * 2 * d + d + full * 2 * hd + gdn * (c["linear_value_head_dim"] + 2 * hv)
    mtp = 2 * d * d + gated_attention + mlp + 2 * d + 2 * hd + 3 * d
    return c["vocab_size"] * d, matrices, conv, vectors, mtp


def vision(v):
    h, f, out = v["hidden_size"], v["intermediate_size"], v["out_hidden_size"]
    block = 3 * h * h + 3 * h + h * h + h + h * f + f + f * h + h + 4 * h
    patch = v["in_channels"] * v["temporal_patch_size"] * v["patch_size"] ** 2 * h + h
    m = h * v["spatial_merge_size"] ** 2
    return v["depth"] * block + patch + v["num_position_embeddings"] * h + 2 * h + m * m + m + m * out + out


PUBLISHED_DENSE = [  # id, total counted, digits of the published total it must round to
    ("qwen3-0.6b", 596_049_920, 1),
    ("qwen3-4b", 4_022_468_096, 2),
    ("qwen3-8b", 8_190_735_360, 2),
    ("llama-7b", 6_738_415_616, 2),
    ("llama-2-7b", 6_738_415_616, 3),
    ("llama-2-13b", 13_015_864_320, 3),
    ("llama-2-70b", 68_976_648_192, 1),
    ("llama-3-8b", 8_030_261_248, 3),
    ("llama-3-70b", 70_553_706_496, 3),
    ("mistral-7b", 7_241_732_096, 3),
    ("smollm2-135m", 134_515_008, 9),
    ("mini-256", 3_672_320, 7),
    ("mini-128", 1_049_728, 7),
    ("mini-64", 328_256, 6),
]


def rounds_to(value, published, digits):
    return float(f"{value:.{digits - 1}e}") == pytest.approx(published, rel=1e-12)


@pytest.mark.parametrize("id, counted, digits", PUBLISHED_DENSE)
def test_dense_shapes_add_up_to_the_published_total(id, counted, digits):
    """Catches one wrong shape: a head count, a hidden size, head_dim derived where it is published, a tied head."""
    data = model(id)
    assert dense(data["config"], qk_norm=id.startswith("qwen3-")) == counted
    assert rounds_to(counted, data["published_parameters"]["total"], digits)


@pytest.mark.parametrize("id, extra", [("qwen3-4b", 0), ("qwen3-8b", 0), ("llama-2-7b", 8192), ("llama-3-8b", 0), ("llama-3-70b", 0), ("mistral-7b", 0)])
def test_sixteen_bit_checkpoints_are_two_bytes_a_parameter(id, extra):
    """Catches a shape that is wrong by less than rounding shows: these totals are published to the byte.
    Llama 2 7B stores 32 rotary tables of 64 FP32 numbers beside its weights."""
    data = model(id)
    assert 2 * dense(data["config"], qk_norm=id.startswith("qwen3-")) + extra == data["checkpoint_bytes"]["value"]


def test_every_model_has_its_total_checked():
    """Catches a model added without arithmetic of its own."""
    own = {"qwen3.8-27b", "mixtral-8x7b", "deepseek-v3", "glm-4.5", "gpt-oss-20b", "70b-dense", "mini-moe"}
    assert {id for id, *_ in PUBLISHED_DENSE} | own == WANTED_MODELS


def test_mixtral_all_and_active():
    """Catches experts counted once too often, or the active share taken as 2/8 of everything."""
    data = model("mixtral-8x7b")
    total, active = mixtral(data["config"])
    assert (total, active) == (46_702_792_704, 12_879_925_248)
    assert 2 * total == data["checkpoint_bytes"]["value"]
    assert rounds_to(total, data["published_parameters"]["total"], 3) and rounds_to(active, data["published_parameters"]["active"], 3)


def test_mini_moe_all_and_active():
    """Catches: a tied embedding counted twice, or half an expert. By hand: 4 layers of 8 · 3 · 256 · 384 for experts."""
    data = model("mini-moe")
    total, active = mixtral(data["config"])
    assert (total, active) == (data["published_parameters"]["total"], data["published_parameters"]["active"]) == (10_758_400, 3_680_512)
    assert total - active == 4 * (8 - 2) * 3 * 256 * 384


def test_deepseek_v3_main_active_and_hub_total():
    """Catches a wrong MLA rank, a dense layer taken as MoE, or the prediction layer counted into the main model."""
    data = model("deepseek-v3")
    c = data["config"]
    total, active, mtp = deepseek(c)
    assert total == 671_026_419_200 and rounds_to(total, data["published_parameters"]["total"], 3)
    assert rounds_to(active - c["vocab_size"] * c["hidden_size"], data["published_parameters"]["active"], 2)
    assert total + mtp + 2 * c["vocab_size"] * c["hidden_size"] == 684_489_845_504  # the Hub's 685B: it stores both tables twice


def test_glm_45_hub_total_and_the_reports_counts():
    """Catches a missing bias or q/k norm: the Hub's count is exact. The report leaves embedding and head out."""
    data = model("glm-4.5")
    c = data["config"]
    total, active, mtp = glm(c)
    tables = 2 * c["vocab_size"] * c["hidden_size"]
    assert total + mtp + tables == 358_337_791_296
    assert rounds_to(total + mtp - tables, data["published_parameters"]["total"], 3)
    assert rounds_to(active - tables, data["published_parameters"]["active"], 2)


def test_gpt_oss_parameters_and_mxfp4_bytes():
    """Catches biases or sinks left out, and MXFP4 taken as 4.0 bits: a shared scale makes it 4.25."""
    data = model("gpt-oss-20b")
    total, active, stored = gpt_oss(data["config"])
    assert rounds_to(total, data["published_parameters"]["total"], 3) and rounds_to(active, data["published_parameters"]["active"], 2)
    assert stored == data["checkpoint_bytes"]["value"]


def test_textbook_model_is_a_number_only():
    """Catches layers invented for the lesson's 70B, whose whole point is 2 bytes times 70 billion."""
    data = model("70b-dense")
    assert data["textbook"] is True and data["parameters"] == 70e9 and "num_hidden_layers" not in data.get("config", {})


def test_anchor_weights_read_per_token():
    """Catches q_proj without its gate, the embedding row counted, lm_head forgotten, or the wrong layer mix."""
    c = model("qwen3.8-27b")["config"]
    embedding, matrices, conv, vectors, _ = anchor(c)
    assert (c["layer_types"].count("full_attention"), c["layer_types"].count("linear_attention")) == (16, 48)
    assert all((kind == "full_attention") == ((i + 1) % c["full_attention_interval"] == 0) for i, kind in enumerate(c["layer_types"]))
    assert matrices + conv == 25_623_920_640
    assert 2 * (matrices + conv) == pytest.approx(51.25e9, abs=0.005e9)
    assert embedding + matrices + conv + vectors == 26_895_998_464


def test_anchor_checkpoint_with_vision_and_prediction_layer():
    """Catches capacity computed from the text part alone: what is loaded includes both other parts."""
    data = model("qwen3.8-27b")
    *text, mtp = anchor(data["config"])
    parts = sum(text), vision(data["vision_config"]), mtp
    assert parts[1:] == (data["other_parameters"]["vision_encoder"], data["other_parameters"]["mtp"]) == (460_730_096, 424_699_392)
    assert sum(parts) == data["published_parameters"]["total"] == 27_781_427_952
    assert 2 * sum(parts) == data["checkpoint_bytes"]["value"] == pytest.approx(55.56e9, abs=0.005e9)


def test_anchor_kv_and_state():
    """Catches KV counted on all 64 layers, heads from hidden/heads, or a state of 16 heads instead of 48."""
    c = model("qwen3.8-27b")["config"]
    full, gdn = c["layer_types"].count("full_attention"), c["layer_types"].count("linear_attention")
    assert full * 2 * c["num_key_value_heads"] * c["head_dim"] * 2 == 64 * 1024
    assert full * 2 * c["num_attention_heads"] * c["head_dim"] * 2 == 384 * 1024
    assert gdn * c["linear_num_value_heads"] * c["linear_key_head_dim"] * c["linear_value_head_dim"] * 4 == 150_994_944


@pytest.mark.parametrize("id, kib", [("llama-2-7b", 512), ("llama-3-8b", 128), ("llama-3-70b", 320)])
def test_kv_per_token_of_known_models(id, kib):
    """Catches query heads where KV heads belong."""
    c = model(id)["config"]
    kv = c.get("num_key_value_heads", c["num_attention_heads"])
    assert c["num_hidden_layers"] * 2 * kv * c.get("head_dim", c["hidden_size"] // c["num_attention_heads"]) * 2 == kib * 1024


def test_anchor_file_names_things_that_exist():
    """Catches an anchor renamed in one place only, and a prompt whose pieces and ids no longer match."""
    data = json.loads((DATA / "anchor-model.json").read_text(encoding="utf-8"))
    assert data["model"] in WANTED_MODELS and data["chip"] in toml("chips.toml")
    example = data["running_example"]
    assert "".join(example["prompt_tokens"]) == example["prompt"]["zh"]
    assert example["prompt_token_ids"] == [115942, 96373, 99203, 100105] and example["answer_token_id"] == 126835
    assert max(*example["prompt_token_ids"], example["answer_token_id"]) < model(data["model"])["config"]["vocab_size"]
    is_source(data["source"])


# ---- chips


def test_the_chips_are_there_with_their_sources():
    """Catches a lost table and a figure without provenance; a measured machine has no place here."""
    assert set(toml("chips.toml")) == WANTED_CHIPS
    for row in toml("chips.toml").values():
        is_source(row["source"])
        both_languages(row["note"])
        assert row["kind"] in ("quoted (vendor)", "quoted (third party)")
        assert row["name"] and 2018 <= row["year"] <= 2026


@pytest.mark.parametrize("id", sorted(WANTED_CHIPS))
def test_chip_figures_are_in_si_units(id):
    """Catches GB, GB/s or TFLOP/s written where bytes, bytes/s or FLOP/s belong, and sparse peaks: twice the dense."""
    row = toml("chips.toml")[id]
    assert 16e9 <= row["memory_bytes"] <= 300e9
    assert 1e11 <= row["bandwidth_bytes_per_s"] <= 1e13
    assert 1e13 <= row["flops_bf16"] <= 2.6e15
    assert {k for k in row if k.startswith("flops_")} <= {"flops_bf16", "flops_fp8", "flops_int8", "flops_fp4"}
    for eight in ("flops_fp8", "flops_int8"):
        if eight in row:  # eight bits run at the 16-bit rate or up to four times (GeForce halves FP16 with FP32 sums)
            assert 0.9 <= row[eight] / row["flops_bf16"] <= 4.1
    assert 10 <= row["flops_bf16"] / row["bandwidth_bytes_per_s"] <= 500


@pytest.mark.parametrize("id, flops, bandwidth, memory", [
    ("h100-sxm", 989.5e12, 3.35e12, 80e9),
    ("a100-80g-sxm", 312e12, 2.039e12, 80e9),
    ("a100-40g-sxm", 312e12, 1.555e12, 40e9),
])  # fmt: skip
def test_the_cards_the_lessons_calculate_with(id, flops, bandwidth, memory):
    """Catches a small slip that every lesson's figure would inherit."""
    row = toml("chips.toml")[id]
    assert (row["flops_bf16"], row["bandwidth_bytes_per_s"], row["memory_bytes"]) == (flops, bandwidth, memory)


def test_a100_without_fp8():
    """Catches a peak invented for a card that has no such unit."""
    assert not any("flops_fp8" in toml("chips.toml")[id] for id in ("a100-40g-sxm", "a100-80g-sxm"))


# ---- quoted figures


def test_the_quoted_figures_are_there():
    """Catches a parametrized test below that passes because it found nothing."""
    assert len(figures()) >= 100
    named = {p.id for p in figures()}
    assert {
        "vllm.kv_used_before", "vllm.kv_used_paged", "vllm.throughput", "vllm.kernel_slower", "vllm.default_block",
        "orca.throughput", "distserve.requests", "deepseek_v3.mtp_acceptance", "deepseek_v3.mtp_speed", "smoothquant.alpha",
        "smoothquant.speedup", "anyscale.vllm", "anyscale.continuous_batching", "min_p.base", "chen.speedup",
        "eagle3.speedup", "dspark.flash_speed", "llm_int8.emergence", "gptq.ppl_gptq4", "gloeckle.code_speed",
        "deepseek_v4.pro_kv", "kimi_k3.kda_layers",
    } <= named  # fmt: skip


@pytest.mark.parametrize("row", figures())
def test_a_quoted_figure_keeps_its_papers(row):
    """Catches a number without source, a percentage written as 85 instead of 0.85, a range upside down,
    a claim in one language only, and a figure whose proposer's own measurement is not called that."""
    is_source(row["source"])
    assert row["source"]["where"] and row["source"]["authors"] and 2009 <= row["source"]["year"] <= 2026
    assert ("value" in row) != ("low" in row and "high" in row)
    values = [row["value"]] if "value" in row else [row["low"], row["high"]]
    assert values == sorted(values) and all(v > 0 for v in values)
    assert row["unit"] in {"ratio", "×", "token", "card", "layer", "step", "parameter", "count", "FLOP/B", "s"}
    if row["unit"] == "ratio":
        assert values[-1] <= 1 or "perplexity" in row["claim"]["en"]
    if row["unit"] == "×":
        assert 1 <= values[0] and values[-1] <= 40
    both_languages(row["claim"])
    assert isinstance(row["self_reported"], bool)
    if "baseline" in row:
        both_languages(row["baseline"])
    assert row["verified"].strip()


@pytest.mark.parametrize("name, value", [
    ("vllm.kv_used_before", (0.204, 0.382)), ("vllm.kv_used_paged", 0.963), ("vllm.throughput", (2, 4)),
    ("vllm.kernel_slower", (0.20, 0.26)), ("vllm.default_block", 16), ("orca.throughput", 36.9), ("distserve.requests", 7.4),
    ("deepseek_v3.mtp_acceptance", (0.85, 0.90)), ("deepseek_v3.mtp_speed", 1.8), ("smoothquant.alpha", 0.5),
    ("smoothquant.speedup", 1.56), ("anyscale.vllm", 23), ("anyscale.continuous_batching", 8), ("min_p.base", (0.05, 0.1)),
])  # fmt: skip
def test_figures_the_lessons_were_given(name, value):
    """Catches a digit changed in passing."""
    paper, key = name.split(".")
    row = toml("papers.toml")[paper][key]
    assert (row["value"] if "value" in row else (row["low"], row["high"])) == value


def test_multiples_measured_against_something_say_against_what():
    """Catches "36.9 times faster" without "than what": the 23 times is against naive static batching."""
    plain = {"llm_int8.magnitude", "eagle3.over_eagle2"}  # their claim itself names the other side
    bare = {p.id for p in figures() if p.values[0]["unit"] == "×" and "baseline" not in p.values[0]}
    assert bare <= plain
    assert "static batching" in toml("papers.toml")["anyscale"]["vllm"]["baseline"]["en"]


def test_formulas_keep_their_papers():
    """Catches an equation quoted without where it stands."""
    rows = toml("papers.toml")["formula"]
    assert {"leviathan.expected_tokens", "leviathan.acceptance"} <= {r["id"] for r in rows}
    for row in rows:
        is_source(row["source"])
        both_languages(row["claim"])
        assert row["text"] and row["verified"] and row["source"]["where"]


# ---- measured by vendors, for judging only


def test_public_measurements_name_known_models_and_chips():
    """Catches a row that cannot be simulated, a doubled row, and a table that lost the two rows everything is judged on."""
    data = toml("measured-public.toml")
    rows = data["throughput"]
    for row in rows + data["first_token"]:
        assert row["model"] in WANTED_MODELS and row["chip"] in WANTED_CHIPS and row["dtype"] in ("fp16", "fp8")
        assert row["dtype"] != "fp8" or "flops_fp8" in toml("chips.toml")[row["chip"]]
        source = dict(data["sources"][row["source"]])
        is_source(source | {"url": source["url"].format(release=row["release"])})
    key = ("source", "release", "chip", "model", "batch", "input_tokens", "output_tokens")
    table = {tuple(r[k] for k in key): r["tokens_per_s"] for r in rows}
    assert len(table) == len(rows) >= 130
    assert table["trtllm", "0.8.0", "a100-80g-sxm", "llama-7b", 256, 128, 128] == 5353
    assert table["trtllm", "0.8.0", "a100-80g-sxm", "llama-7b", 32, 128, 2048] == 1518


def test_public_measurements_are_below_the_bandwidth_bound():
    """Catches a figure from another card or column: no engine reads its weights faster than the memory delivers them."""
    data = toml("measured-public.toml")
    for row in data["throughput"]:
        chip, c = toml("chips.toml")[row["chip"]], model(row["model"])["config"]
        cards, size = row.get("tensor_parallel", 1), {"fp16": 2, "fp8": 1}[row["dtype"]]
        kv_heads = c.get("num_key_value_heads", c["num_attention_heads"])
        hd = c["hidden_size"] // c["num_attention_heads"]
        weights = size * (dense(c) - c["vocab_size"] * c["hidden_size"])
        context = row["input_tokens"] + row["output_tokens"] / 2
        kv = row["batch"] * context * c["num_hidden_layers"] * 2 * kv_heads * hd * size
        assert row["tokens_per_s"] < cards * row["batch"] * chip["bandwidth_bytes_per_s"] / (weights + kv), row
        largest = kv * (row["input_tokens"] + row["output_tokens"]) / context
        assert weights + largest <= 1.074 * cards * chip["memory_bytes"], row  # the stacks are binary: "80 GB" holds up to 80 GiB
