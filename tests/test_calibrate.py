"""The fit, on tables that were made up from known shares: what comes out must be what went in, and rows that no engine would see
must not count."""

from __future__ import annotations

import numpy as np
import pytest

from compute import calibrate, facts

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as parquet  # noqa: E402

CHIP = facts.chip("h100-sxm")
PEAK, BANDWIDTH = CHIP.peak, CHIP.bandwidth_bytes_per_s


def write(folder, kind: str, engine: str, file: str, columns: dict) -> None:
    place = folder / kind / engine / "1.0"
    place.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), place / file)


def products(compute: float, memory: float, launch: float, *, slower: float = 1.0, noise: float = 0.02, seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    m, n, k = (grid.ravel().astype(float) for grid in np.meshgrid([1, 4, 16, 64, 256, 1024, 4096], [1024, 2048, 4096, 12288, 28672], [1024, 2048, 4096, 8192, 16384]))
    seconds = slower * (np.hypot(2 * m * n * k / (compute * PEAK), 2 * n * k / (memory * BANDWIDTH)) + launch) * np.exp(noise * rng.standard_normal(len(m)))
    return {"gemm_dtype": ["bfloat16"] * len(m), "m": m.astype(int), "n": n.astype(int), "k": k.astype(int), "latency": seconds * 1e3}


def test_the_fit_finds_the_shares_that_made_the_table(tmp_path):
    """Catches milliseconds taken for seconds, FLOPs without the 2, and a share of the wrong peak."""
    write(tmp_path, "gemm", "one", "gemm_perf.parquet", products(0.8, 0.85, 4e-6))
    found = calibrate.fit(calibrate.gemm(tmp_path, CHIP, "bf16"))
    assert found["compute"] == pytest.approx(0.8, rel=0.02) and found["memory"] == pytest.approx(0.85, rel=0.02)
    assert found["launch_seconds"] == pytest.approx(4e-6, rel=0.05) and found["error"] < 0.02 < found["ideal_error"]


def test_the_fastest_engine_counts(tmp_path):
    """Catches an average over engines, and an engine chosen for timing easier shapes."""
    write(tmp_path, "gemm", "slow", "gemm_perf.parquet", products(0.8, 0.85, 4e-6, slower=1.3))
    easy = products(0.5, 0.5, 9e-6, slower=1.0)
    keep = np.asarray(easy["latency"]) < np.quantile(easy["latency"], 0.6)
    write(tmp_path, "gemm", "easy", "gemm_perf.parquet", {name: np.asarray(values)[keep] for name, values in easy.items()})
    write(tmp_path, "gemm", "quick", "gemm_perf.parquet", products(0.8, 0.85, 4e-6))
    assert calibrate.gemm(tmp_path, CHIP, "bf16").engine == "quick"


def test_matrices_that_the_cache_held_are_left_out(tmp_path):
    """Catches a share of the bandwidth that is the cache's: small matrices here are read three times as fast as memory can."""
    table = products(0.8, 0.85, 2e-6)
    size = 2 * np.asarray(table["n"]) * np.asarray(table["k"])
    held = (size < 50e6) & (np.asarray(table["m"]) <= 16)
    table["latency"] = np.where(held, 1e3 * size / (3 * BANDWIDTH), table["latency"])
    write(tmp_path, "gemm", "one", "gemm_perf.parquet", table)
    kernels = calibrate.gemm(tmp_path, CHIP, "bf16")
    assert (kernels.bytes * BANDWIDTH >= 50e6).all()
    assert calibrate.fit(kernels)["memory"] == pytest.approx(0.85, rel=0.03)


def cached(kv_heads: int, share: float, *, heads: int = 32) -> dict:
    b, n = (grid.ravel() for grid in np.meshgrid([1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256], [2, 4, 8, 16, 512, 1024, 2048, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536]))
    moved = 2.0 * b * kv_heads * 128 * n * 2
    rows = len(b)
    return {"head_dim": [128] * rows, "kv_cache_dtype": ["bfloat16"] * rows, "step": n - 1, "isl": [1] * rows, "batch_size": b, "num_heads": [heads] * rows,
            "num_key_value_heads": [kv_heads] * rows, "latency": 1e3 * (moved / (share * BANDWIDTH) + 9e-6)}  # fmt: skip


def test_attention_is_charged_by_kv_heads(tmp_path):
    """Catches KV read once for each query head, which would quarter the share here."""
    write(tmp_path, "attention", "one", "generation_attention_perf.parquet", cached(8, 0.8))
    found = calibrate.fit(calibrate.attention(tmp_path, CHIP, "bf16", True, True))
    assert found["memory"] == pytest.approx(0.8, rel=0.03)


def test_an_engine_faster_than_the_memory_is_not_believed(tmp_path):
    """Catches tables whose KV was shared between requests: the other engine counts, though it is slower."""
    write(tmp_path, "attention", "dreamt", "generation_attention_perf.parquet", cached(8, 1.5))
    write(tmp_path, "attention", "real", "generation_attention_perf.parquet", cached(8, 0.7))
    assert calibrate.attention(tmp_path, CHIP, "bf16", True, True).engine == "real"


def test_sums_across_cards(tmp_path):
    """Catches elements counted as bytes, and a ring that forgets 2 (n − 1) / n."""
    elements = 2 ** np.arange(10, 26)
    seconds = 2 * elements * 2 * 3 / 4 / (0.6 * CHIP.link_bytes_per_s) + 5e-6
    rows = len(elements)
    write(tmp_path, "comm", "one", "custom_allreduce_perf.parquet", {"op_name": ["all_reduce"] * rows, "num_gpus": [4] * rows, "message_size": elements, "latency": seconds * 1e3})
    found = calibrate.reduce(tmp_path, CHIP)
    assert set(found) == {"4"} and found["4"]["memory"] == pytest.approx(0.6, rel=0.02) and found["4"]["launch_seconds"] == pytest.approx(5e-6, rel=0.05)


def test_without_tables_the_way_to_them_is_named(tmp_path, capsys):
    """Catches a traceback where one line is wanted."""
    with pytest.raises(SystemExit) as left:
        calibrate.main(["--tables", str(tmp_path)])
    assert left.value.code == 2 and "pip install aiconfigurator-core==0.12.0" in capsys.readouterr().err


def test_the_stored_factors_are_possible():
    """Catches a file edited by hand or made by another version: shares of a whole, launches of microseconds, an attributed source."""
    from compute.calibrated import classes, file

    made = file()["made"]
    assert made["source"]["licence"].startswith("Apache-2.0") and made["command"] == "python -m compute calibrate"
    for chip, rows in classes().items():
        for rates in rows.values():
            for rate in (rates.gemm, rates.decode_attention, rates.decode_attention_grouped, rates.prefill_attention):
                assert 0.02 < rate.compute <= 1 and 0.1 < rate.memory <= 1 and 0 <= rate.launch_seconds < 5e-5 and rate.rows >= calibrate.LEAST_ROWS
            assert 1e-6 < rates.small_launch_seconds < 1e-5
    sampled = [row for kinds in file()["samples"].values() for precision in kinds.values() for kind in precision.values() for row in kind]
    assert len(sampled) <= 40 * 4 * 2 * len(classes())  # a small sample, not the tables
