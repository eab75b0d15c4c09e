"""The stored table of what quantization costs: its names, its tolerances, and that its parts fit together."""

import json

import pytest

from compute import facts, measures, precompute
from compute.engine.registry import shared
from compute.measures import quantize
from compute.quantize import loss
from compute.quantize.paired import noise_floor
from compute.quantize.schemes import SCHEMES, scheme, stored

SHAPES = {
    quantize.MODEL: ([(512, 256), (256, 256), (1536, 256), (256, 768)], 4, (2048, 256)),
    quantize.PUBLIC: ([(960, 576), (576, 576), (3072, 576), (576, 1536)], 30, (49152, 576)),
}
ENTRIES = {key: entry for key, entry in precompute.stored().items() if key.startswith(("quantize.mini-256.", "quantize.smollm2-135m.", "quantize.noise_floor"))}
ROWS = [(model, name) for model, names in quantize.TABLES.items() for name in names]


def test_names_of_numbers():
    """Catches: two jobs that make the same key, a scheme that is neither measured nor named as left out, a dot inside an id."""
    keys = [key for job in quantize.jobs() for key in job.keys]
    assert len(keys) == len(set(keys))
    assert set(quantize.TABLES[quantize.MODEL]) | set(quantize.LEFT) == set(SCHEMES) and not set(quantize.TABLES[quantize.MODEL]) & set(quantize.LEFT)
    assert len(quantize.TABLES[quantize.MODEL]) >= 22 and set(quantize.TABLES[quantize.PUBLIC]) <= set(SCHEMES)
    assert all("." not in name for name in SCHEMES)
    assert {model for job in quantize.jobs() for model in job.models} == set(quantize.TABLES)


@pytest.mark.parametrize(("name", "kind"), [
    ("int4-g64", "weights"), ("mxfp4", "weights"), ("bf16", "weights"), ("int4-g64-head8", "weights"), ("kv4", "observed"), ("w8a8", "observed"),
    ("w8a8-smooth", "observed"), ("gptq-int4-g64", "observed"), ("awq-int4-g64", "observed"),
])  # fmt: skip
def test_the_tolerance_follows_what_decides_the_codes(name, kind):
    """Catches: a tolerance so loose that another result passes, for codes that are the same on every machine."""
    assert quantize.steadiness(SCHEMES[name]) == kind
    assert quantize.TOLERANCES["weights"] < quantize.TOLERANCES["observed"] < noise_floor().value / 100


def test_what_a_reader_of_a_row_has_to_know():
    """Catches: calibrated numbers without their text, planted outliers that pass for real ones, and a 4-bit file called full precision."""
    assert "wrote itself" in quantize.special("mini-256", SCHEMES["gptq-int4-g64"])["calibration"]
    assert "libreoffice-en" in quantize.special("smollm2-135m", SCHEMES["w8a8-smooth"])["calibration"]
    assert "planted" in quantize.special("mini-256", SCHEMES["w8a8-planted"]) and "planted" not in quantize.special("mini-256", SCHEMES["w8a8"])
    assert "Q4_1" in quantize.special("smollm2-135m", SCHEMES["bf16"])["published_weights"]
    assert "not_the_file_s_grid" in quantize.special("smollm2-135m", SCHEMES["int4-g32-asym"]) and quantize.special("mini-256", SCHEMES["int4-g32-asym"]) == {}


def test_a_row_is_what_the_function_measures(monkeypatch):
    """Catches: a row whose interval, count or domains come from another run. Six windows of two sources stand in for the text."""
    model = shared().get("mini-256")
    whole = loss.read_text(model)
    kept = [i for name in ("gnome-zh", "tang") for i in (whole.sources == name).nonzero()[0][:6]]
    text = loss.Text(whole.tokens[kept], whole.counts[kept], whole.sources[kept])
    monkeypatch.setattr(loss, "_own", {("mini-256", "all", False): (text, loss.losses(model.weights, text))})
    job = next(job for job in quantize.jobs() if job.keys[0] == "quantize.mini-256.int3-g32.loss_change")
    made = measures.run(job)
    row = made["quantize.mini-256.int3-g32.loss_change"]
    assert row.n == 12 * 256 and row.interval95[0] < row.value < row.interval95[1] and row.value > 0.05
    parts = row.trace["domains"]
    assert set(parts) == {"modern", "classical"} and sum(p["change"] * p["tokens"] for p in parts.values()) / row.n == pytest.approx(row.value)
    assert made["quantize.mini-256.int3-g32.bits_per_weight"].value == 3 + 16 / 32
    plain = measures.run(next(job for job in quantize.jobs() if job.keys == ("quantize.mini-256.loss",)))["quantize.mini-256.loss"]
    assert row.conditions["loss_fp32"] == pytest.approx(plain.value) and plain.n == row.n


@pytest.mark.parametrize(("model", "name"), ROWS)
def test_storage_is_arithmetic_on_shapes(model, name):
    """Catches: bits per weight of other matrices than the model's, and a scheme in a table whose groups do not divide its widths.
    Shapes written down here; the stored value beside them, where there is one."""
    matrices, layers, head = SHAPES[model]
    bits = stored(scheme(name), matrices * layers, head)
    for part, value in (("bits_per_weight", bits.bits_per_weight), ("bytes", bits.bytes)):
        if entry := ENTRIES.get(f"quantize.{model}.{name}.{part}"):
            assert entry["value"] == pytest.approx(value) and entry["kind"] == "computed"
    assert not SCHEMES[name].weights or 2 <= bits.bits_per_weight <= 8.6


def test_the_stored_table_is_one_table():
    """Catches: rows measured on another text or against another loss than the rest, and domains that do not add up to the whole."""
    for model in quantize.TABLES:
        rows = {key: entry for key, entry in ENTRIES.items() if key.startswith(f"quantize.{model}.") and key.endswith(".loss_change")}
        own = ENTRIES.get(f"quantize.{model}.loss")
        for key, entry in rows.items():
            assert own and entry["n"] == own["n"] and entry["conditions"]["loss_fp32"] == pytest.approx(own["value"], abs=1e-5), key
            assert entry["interval95"][0] < entry["value"] < entry["interval95"][1], key
            parts = precompute.arrays(key, entry)["domains"].values()
            assert sum(p["change"] * p["tokens"] for p in parts) / entry["n"] == pytest.approx(entry["value"], abs=1e-9), key


def test_our_own_loss_is_the_published_one():
    """Catches: a table measured against something else than the published model. Its training log, all domains."""
    if not (own := ENTRIES.get("quantize.mini-256.loss")):
        pytest.skip("not stored yet")
    final = json.loads((facts.DATA / "checkpoints/mini-256/training-log.json").read_text(encoding="utf-8"))["final"]["domains"]
    for domain, row in precompute.arrays("quantize.mini-256.loss", own)["domains"].items():
        assert row["tokens"] == final[domain]["tokens"] and row["loss"] == pytest.approx(final[domain]["nats_per_token"], abs=1e-5)
    assert own["n"] == 265_672
