"""The machine's own walls: what is recorded, and that rates are rates."""

import time

import pytest
import torch

from compute.engine import machine


def test_each_rate_carries_spread_and_conditions(monkeypatch):
    """Catches: the best run reported as the value, a peak that counts a multiply-add once, a rate without its conditions.
    Small and short here: only the form is tested, not the speed."""
    monkeypatch.setattr(machine, "SECONDS_EACH", 0.01)
    monkeypatch.setattr(machine, "free_memory", lambda device: 0)
    before = torch.get_num_threads()
    found = {measured.id: measured for measured in machine.measure("cpu", threads=1)}
    assert found.keys() == {
        "read.sum.float32",
        "read.gemv.float32",
        "read.gemv.bfloat16",
        "peak.float32",
        "peak.bfloat16",
    }
    for measured in found.values():
        assert 0 < measured.low <= measured.value <= measured.high and measured.runs >= 3
        assert {"device", "cpu", "threads", "torch", "date"} <= measured.conditions.keys()
        assert measured.conditions["threads"] == 1
    assert torch.get_num_threads() == before


def test_a_rate_is_amount_over_time(monkeypatch):
    """Catches: time over amount, a warm-up that counts, the fastest run as the value. Of three runs of 1,000 bytes two sleep
    20 ms: the median is at most 50 kB/s, the fastest is not."""
    monkeypatch.setattr(machine, "SECONDS_EACH", 0.0)
    runs, naps = [], iter([0.0, 0.02, 0.002, 0.02])
    found = machine.rate("x", lambda: runs.append(time.sleep(next(naps))), 1_000, "B/s", torch.device("cpu"), {})
    assert 5_000 < found.value <= 50_000 < found.high <= 500_000 and found.runs == len(runs) - 1 == 3


def test_measuring_on_a_device_that_is_not_here_is_refused():
    """Catches: CPU rates shown as a GPU's."""
    from compute.engine.errors import SettingWrong

    with pytest.raises(SettingWrong, match="npu"):
        machine.measure("npu")
