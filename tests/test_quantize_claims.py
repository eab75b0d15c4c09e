"""The figures of lesson 4, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from compute import facts, numbers, precompute

READ, LOADED = 25_623_920_640, 27_781_427_952  # parameters of the anchor: multiplied with for a token; loaded
HEAD = 248_320 * 5120
KV, STATE = 65_536, 150_994_944  # bytes of a token, of a request
BANDWIDTH, PEAK, MEMORY = 3.35e12, 989.5e12, 80e9  # of an H100
FREE = MEMORY - 2 * LOADED
FOUR = 4.125 / 8  # bytes of a 4-bit weight with its share of a 16-bit scale for 128
FREE_INT4 = MEMORY - READ * FOUR - (LOADED - READ) * 2  # what is not multiplied keeps 16 bits


@pytest.mark.parametrize(
    "name, by_hand",
    [
        ("bits.int8-channel", 8 + 16 / 4096),
        ("bits.int4-tensor", 4 + 16 / 4096**2),
        ("bits.int4-channel", 4 + 16 / 4096),
        ("bits.int4-g128", 4 + 16 / 128),
        ("bits.int4-g64", 4 + 16 / 64),
        ("bits.int4-g32", 4 + 16 / 32),
        ("bits.int4-g32-asym", 4 + (16 + 4) / 32),
        ("bits.mxfp4", 4 + 8 / 32),
        ("bits.nvfp4", 4 + 8 / 16 + 32 / 4096**2),
        ("bits.nf4", 4 + 32 / 64),
        ("bits.nf4-double", 4 + 8 / 64 + 32 / (64 * 256) + 32 / 4096**2),
        ("ratio.int4-g128", 16 / 4.125),
        ("textbook.four_bits.bytes", 35e9),
        ("textbook.int4-g128.bytes", 70e9 * FOUR),
        ("textbook.int4-g128.decode_bound", BANDWIDTH / (70e9 * FOUR)),
        ("textbook.int4-g32.bytes", 70e9 * 4.5 / 8),
        ("textbook.int4-g32.decode_bound", BANDWIDTH / (70e9 * 4.5 / 8)),
        ("anchor.g64.bytes", READ * 4.25 / 8),
        ("anchor.g64.decode_bound", BANDWIDTH / (READ * 4.25 / 8)),
        ("anchor.g32.bytes", READ * 4.5 / 8),
        ("anchor.g32.decode_bound", BANDWIDTH / (READ * 4.5 / 8)),
        ("anchor.head_share", HEAD / READ),
        ("smollm2.head_share", 49_152 * 576 / (49_152 * 576 + 30 * (576 * (576 + 2 * 192) + 576 * 576 + 3 * 576 * 1536))),
        ("anchor.head16.bytes", (READ - HEAD) * FOUR + HEAD * 2),
        ("anchor.head16.decode_bound", BANDWIDTH / ((READ - HEAD) * FOUR + HEAD * 2)),
        ("anchor.batch1.speedup", (READ * 2 + 4096 * KV + 2 * STATE) / (READ * FOUR + 4096 * KV + 2 * STATE)),
        ("anchor.batch58.speedup", (READ * 2 + 58 * (4096 * KV + 2 * STATE)) / (READ * FOUR + 58 * (4096 * KV + 2 * STATE))),
        ("anchor.even_tokens", (PEAK / BANDWIDTH) * FOUR // 2),
        ("anchor.kv8.bytes", 2 * 4 * 16 * (257 + 2)),  # K and V, 4 heads, 16 layers: 256 codes and a zero point of a byte each, a scale of two
        ("anchor.kv4.bytes", 2 * 4 * 16 * (257 / 2 + 2)),
        ("anchor.kv8.requests", FREE // (4096 * 33_152 + STATE)),
        ("anchor.kv4.requests", FREE // (4096 * 16_704 + STATE)),
        ("anchor.int4.requests", FREE_INT4 // (4096 * KV + STATE)),
        ("anchor.int4_kv8.requests", FREE_INT4 // (4096 * 33_152 + STATE)),
        ("anchor.batch58_kv8.speedup", (READ * 2 + 58 * (4096 * KV + 2 * STATE)) / (READ * FOUR + 58 * (4096 * 33_152 + 2 * STATE))),
    ],
)  # fmt: skip
def test_figures_of_lesson_4_by_hand(name: str, by_hand: float):
    """Catches: a claim whose function no longer computes what its sentence says; a scale or zero point that is not counted."""
    assert numbers.resolve(f"=quantize.{name}").value == pytest.approx(by_hand, rel=1e-9)


def test_the_example_on_paper():
    """Catches: another range than ±7, a scale kept in more bits than it is stored in. 0.9 / 7 = 0.1286 to four digits, as a 16-bit float;
    0.31 is 2.41 steps, becomes 2, and is off the most."""
    scale = 0.9 / 7
    said = {name: numbers.resolve(f"=quantize.example.{name}").value for name in ("scale", "worst_error", "half_step", "bits")}
    assert said == pytest.approx({"scale": scale, "worst_error": 0.31 - 2 * scale, "half_step": scale / 2, "bits": 8}, rel=2e-3)
    assert [round(w / scale) for w in (0.12, -0.53, 0.31, 0.90)] == [1, -4, 2, 7]


def test_the_example_of_the_quiz_on_paper():
    """Catches: three bits taken as ±4 or eight levels. 0.6 / 3 = 0.2; 0.34 is 1.7 steps."""
    assert numbers.resolve("=quantize.quiz.restored").value == pytest.approx(2 * 0.2, rel=1e-3)


def test_q4_1_as_its_own_library_counts_it():
    """Catches: a minimum forgotten. Referee: the gguf package's table of blocks."""
    import gguf

    weights, bytes_ = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q4_1]
    assert numbers.resolve("=quantize.bits.q4_1").value == 8 * bytes_ / weights


@pytest.mark.parametrize("state, outlier, size", [("plain", 0, 24), ("outlier", 6, 24), ("groups", 6, 8)])
def test_the_24_weights_by_hand(state: str, outlier: float, size: int):
    """Catches: an outlier put elsewhere, groups of another size, a weight that was zero counted as squeezed. A weight falls to zero
    when it is less than half of largest / 7."""
    drawn = np.random.default_rng(0).normal(0, 0.3, 24).round(2)
    if outlier:
        drawn[20] = outlier
    groups = drawn.reshape(-1, size)
    steps = np.abs(groups).max(1, keepdims=True) / 7
    back = np.round(groups / steps) * steps
    said = {field: numbers.resolve(f"=quantize.few.{state}.{field}").value for field in ("zeros", "relative_error", "bits_per_weight")}
    lost = (back == 0) & (groups != 0)
    error = np.abs(back - groups)[groups != 0] / np.abs(groups[groups != 0])
    assert said == pytest.approx({"zeros": int(lost.sum()), "relative_error": error.mean(), "bits_per_weight": 4 + 16 / size}, rel=2e-3)


def test_the_real_row_by_hand():
    """Catches: another row or layer than the text names, zeros of the matrix given for those of the row."""
    from safetensors.numpy import load_file

    matrix = load_file(facts.DATA / "checkpoints" / "mini-256" / "model.safetensors")["model.layers.3.mlp.down_proj.weight"].astype(np.float64)
    row = matrix[157]
    assert numbers.resolve("=quantize.row.peak").value == pytest.approx(np.abs(row).max() / np.sqrt((row**2).mean()), rel=1e-5)
    for name, size in (("channel", 768), ("g32", 32)):
        groups = row.reshape(-1, size)
        zeros = np.abs(groups) < np.abs(groups).max(1, keepdims=True) / 14
        assert abs(numbers.resolve(f"=quantize.row.{name}.zeros").value - int((zeros & (groups != 0)).sum())) <= 2
        blocks = matrix.reshape(len(matrix), -1, size)
        steps = np.abs(blocks).max(-1, keepdims=True) / 7
        off = np.round(blocks / steps) * steps - blocks
        assert numbers.resolve(f"=quantize.row.{name}.matrix_error").value == pytest.approx(np.sqrt((off**2).sum() / (blocks**2).sum()), rel=2e-3)


def test_gptq_is_nearer_in_the_output_and_farther_in_the_weights():
    """Catches: the two methods or the two errors exchanged; another matrix than the stepper opens with."""
    said = {(m, w): numbers.resolve(f"=quantize.gptq.{m}.{w}").value for m in ("rtn", "gptq") for w in ("output", "weight")}
    assert said["gptq", "output"] < said["rtn", "output"] and said["gptq", "weight"] > said["rtn", "weight"]
    from components.gptq_stepper import Params, run

    opened = run(Params())
    assert (opened.params.matrix, opened.params.bits) == ("1.out", 3)
    assert opened.whole["gptq_output"] == said["gptq", "output"] and opened.whole["rtn_weight"] == said["rtn", "weight"]


def test_the_noise_floor_is_as_wide_as_five_trainings_leave_it():
    """Catches: σ taken for 3σ, n for n − 1. Quantiles of χ² with four degrees of freedom from its table: 0.4844 and 11.143."""
    losses = precompute.trace("quantize.noise_floor")["losses"]
    three_sigma = 3 * float(np.std(losses, ddof=1))
    assert numbers.resolve("~quantize.noise_floor").value == pytest.approx(three_sigma, rel=1e-9)
    assert numbers.resolve("=quantize.floor.low").value == pytest.approx(three_sigma * (4 / 11.143) ** 0.5, rel=1e-3)
    assert numbers.resolve("=quantize.floor.high").value == pytest.approx(three_sigma * (4 / 0.4844) ** 0.5, rel=1e-3)


def test_the_giant_of_smollm2_from_the_stored_channels():
    """Catches: another channel or another kind of matrix than the text names. Counted anew, layer by layer."""
    from collections import Counter

    rows = {row["matrix"]: row for row in precompute.trace("quantize.smollm2-135m.outlier_ratio")["matrices"]}
    largest = [rows[f"{layer}.qkv"]["channel"] for layer in range(30)]
    (channel, times), = Counter(largest).most_common(1)
    assert numbers.resolve("=quantize.outlier.smollm2.channel").value == channel
    assert numbers.resolve("=quantize.outlier.smollm2.layers").value == times > 10
    worst = max(rows[f"{layer}.qkv"]["largest"] / rows[f"{layer}.qkv"]["median"] for layer in range(30) if largest[layer] == channel)
    assert numbers.resolve("=quantize.outlier.smollm2.ratio").value == pytest.approx(worst, rel=1e-6)  # float32 divided in float64
    most = max(rows.values(), key=lambda row: row["ratio"])
    assert most["matrix"].endswith(".down") and numbers.resolve("~quantize.smollm2-135m.outlier_ratio").value == pytest.approx(most["ratio"])
