"""Which of the measured rates become this machine's walls."""

import json

from compute import facts
from compute.engine import machine, own_machine

AROUND = {"device": "cpu", "cpu": "a processor", "threads": 2, "torch": "2", "date": "2026-11-29"}


def rates(**values):
    given = {"read.sum.float32": 30e9, "read.gemv.float32": 9e9, "read.gemv.bfloat16": 7e9, "peak.float32": 120e9, "peak.bfloat16": 15e9}
    return {id: machine.Measured(id, value, "", value, value, 3, AROUND) for id, value in (given | values).items()}


def test_a_processor_without_bf16_units_has_its_fp32_peak():
    """Catches: 15 GFLOP/s stored as the 16-bit peak of a processor that does 120 in fp32, under which every decode looks
    bound by arithmetic; a sum, which no decode does, taken as bandwidth."""
    assert own_machine.walls(rates()) == {"bandwidth_bytes_per_s": 9e9, "flops_bf16": 120e9, "flops_fp32": 120e9}
    assert own_machine.came_from(rates()) == {"16-bit peak from": "peak.float32", "bandwidth from": "read.gemv.float32"}


def test_bf16_units_are_used_where_they_are():
    """Catches: fp32 taken always; the fp32 peak replaced too."""
    fast = rates(**{"peak.bfloat16": 900e9, "read.gemv.bfloat16": 11e9})
    assert own_machine.walls(fast) == {"bandwidth_bytes_per_s": 11e9, "flops_bf16": 900e9, "flops_fp32": 120e9}
    assert own_machine.came_from(fast) == {"16-bit peak from": "peak.bfloat16", "bandwidth from": "read.gemv.bfloat16"}


def test_what_is_kept_says_where_the_walls_come_from(monkeypatch, tmp_path):
    """Catches: a file without the load that slowed the measuring, or without the dtype; a note that hides them from readers."""
    kept = tmp_path / "this-machine.json"
    monkeypatch.setattr(own_machine.facts, "THIS_MACHINE", kept)
    monkeypatch.setattr(facts, "DATA", tmp_path / "data")
    monkeypatch.setattr(machine, "measure", lambda device: list(rates().values()))
    monkeypatch.setattr(own_machine, "DECODED", ())
    own_machine.measure("cpu")
    conditions = json.loads(kept.read_text(encoding="utf-8"))["conditions"]
    assert conditions["16-bit peak from"] == "peak.float32" and conditions["load average"] >= 0
    chip = facts.this_machine()
    assert chip.peak == 120e9 and chip.bandwidth_bytes_per_s == 9e9
    assert "16-bit peak from peak.float32" in chip.source.note and "load average" in chip.source.note
