"""`python -m compute bench quantize`: what it counts and writes down; no time is judged here."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import gguf

from compute import precompute
from compute.engine import bench, bench_quantize
from compute.engine.bench_quantize import Contender, decoding, file_bytes, race
from compute.engine.model import MATRICES
from tests.engine import tiny
from tests.engine.conftest import made, model  # noqa: F401

AROUND = {"device": "cpu", "prompt": 32, "new_tokens": 65, "timed_tokens": 64}


def test_the_options_are_passed_on(monkeypatch):
    """Catches: an option that the command does not know or drops."""
    asked = []
    monkeypatch.setattr(bench_quantize, "main", lambda args: asked.append(args) or 0)
    assert bench.main(["quantize"]) == 0
    bench.main(["quantize", "--target", "mini-256", "--rounds", "2", "--llama", "there", "--print"])
    assert [(a.target, a.rounds, a.llama, a.only_print) for a in asked] == [(None, 7, None, False), (["mini-256"], 2, Path("there"), True)]


def test_ratios_are_taken_within_each_round():
    """Catches: a ratio the wrong way round, medians divided instead of rounds, a prediction from other bytes. Rounds by hand:
    int4 over bf16 is 3, 2 and 2.5; by bytes it should be 4."""
    contenders = {who: Contender(lambda texts: 0.0, bytes, {"threads": 1}) for who, bytes in (("fp32", 800), ("bf16", 400), ("int4", 100))}
    speeds = {"fp32": [5.0, 10.0, 8.0], "bf16": [10.0, 20.0, 16.0], "int4": [30.0, 40.0, 40.0]}
    made = decoding("m", contenders, speeds, 1, 8000.0, AROUND)  # noqa: F811
    value = {key.removeprefix("quantize.m."): entry["value"] for key, entry in made.items()}
    assert (value["int4.speedup"], value["fp32.speedup"], value["bf16.speedup"]) == (2.5, 0.5, 1)
    assert (value["int4.predicted_speedup"], value["fp32.predicted_speedup"]) == (4, 0.5)
    assert value["int4.tokens_per_second"] == 40 and value["int4.bytes_per_token"] == 100 and value["int4.bandwidth_share"] == 0.5
    together = decoding("m", contenders, speeds, 8, 8000.0, AROUND)
    assert {key.rsplit(".", 1)[1] for key in together} == {"tokens_per_second", "speedup"} and all(".batch8." in key for key in together)
    for key, entry in (made | together).items():
        assert all(entry["says"][lang] for lang in ("zh", "en")) and entry["conditions"]["device"] == "cpu" and entry["kind"] == "measured"
        assert ":" not in entry["says"]["zh"]


def test_every_round_has_everybody_once():
    """Catches: the warm-up counted, a contender left out, tokens of one text counted for eight."""
    ran = []
    contenders = {who: Contender(lambda texts, who=who: ran.append(who) or 2.0, 1, {}) for who in "abc"}
    speeds = race(contenders, 8, 3)
    assert speeds == {who: [8 * (bench_quantize.NEW - 1) / 2] * 3 for who in "abc"}
    assert [sorted(ran[at : at + 3]) for at in range(0, 12, 3)] == [["a", "b", "c"]] * 4


def test_bytes_of_a_gguf_file(made, tmp_path):  # noqa: F811
    """Catches: norms counted, or the size before quantization. By hand for Q8_0: 34 bytes for 32 weights; the embedding, which is
    lm_head too, once."""
    theirs = made("llama, grouped heads, tied")[0]
    file = tiny.write_gguf(theirs, tmp_path / "m.gguf", quantize=gguf.GGMLQuantizationType.Q8_0)
    matrices = 320 * 64 + 3 * (128 * 64 + 64 * 64 + 2 * 96 * 64 + 64 * 96)
    assert file_bytes(file) == matrices * 34 // 32


def test_a_whole_run(made, model, monkeypatch, tmp_path, capsys):  # noqa: F811
    """Catches: a key that pages name and the run does not write, an entry that cannot be stored, a format whose groups do not
    divide a width ending the run. Tiny, with groups of 32 and everything once."""
    monkeypatch.setattr(bench_quantize, "FORMATS", {"fp32": "", "bf16": "bf16", "int8": "int8-channel-head8", "int4": "int4-g32", "no": "int4-g128"})
    monkeypatch.setattr(bench_quantize, "TURNS", 1)
    monkeypatch.setattr(bench_quantize, "SIDE", 64)
    monkeypatch.setattr(bench_quantize, "measure", lambda device, threads: [argparse.Namespace(id="read.gemv.float32", value=1e10)])
    monkeypatch.setattr(bench_quantize, "PROMPT", 4)
    monkeypatch.setattr(bench_quantize, "NEW", 5)
    monkeypatch.setattr(bench_quantize.registry, "shared", lambda: type("Models", (), {"get": staticmethod(lambda id: replace(model, name="m"))}))
    monkeypatch.setattr(precompute, "STORE", tmp_path / "precomputed.json")
    assert bench.main(["quantize", "--target", "m", "--rounds", "1"]) == 0
    assert "no: group = 128" in capsys.readouterr().err
    stored = json.loads((tmp_path / "measured" / "quantize-m.json").read_text("utf-8"))
    assert stored["made"]["command"] == "python -m compute bench quantize --target m --rounds 1"
    keys = set(stored["entries"])
    for who in ("fp32", "bf16", "int8", "int4", "int4-head16"):
        for part in ("tokens_per_second", "speedup", "bytes_per_token", "predicted_speedup", "bandwidth_share", "batch8.tokens_per_second", "batch8.speedup"):
            assert f"quantize.m.{who}.{part}" in keys
    for who in ("fp32", "bf16", "int8", "int4"):
        assert {f"quantize.m.{who}.product.{name}.step" for name in (*MATRICES, "head")} | {f"quantize.m.{who}.products_per_token"} <= keys
        assert f"quantize.m.matrix-64.{who}.seconds" in keys
    assert "quantize.m.rest_per_token" in keys and stored["entries"]["quantize.m.rest_per_token"]["n"] == 4
    sizes = {who: stored["entries"][f"quantize.m.{who}.bytes_per_token"]["value"] for who in ("fp32", "bf16", "int4", "int4-head16")}
    assert sizes["fp32"] == 2 * sizes["bf16"] == model.weights.bytes_per_decoded_token() and sizes["int4-head16"] == sizes["int4"] - 320 * 64 * 2  # int4-g32 leaves lm_head in 32 bits
    assert precompute.timings(tmp_path / "measured").keys() == keys
