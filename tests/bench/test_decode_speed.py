"""The decode benchmark: a fair pair on one small model. Speeds are for reports; tests only hold what must be so."""

import sys

import pytest
import torch

from compute.engine import bench, machine
from compute.engine.errors import ModelMissing
from compute.engine.loader import load

from tests.engine import tiny


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tiny.save(tiny.reference("qwen3, norms and biases"), tmp_path_factory.mktemp("model"))
    return load(path, device="cpu", dtype="float32")


def test_both_engines_write_the_same_and_are_timed_alike(small, monkeypatch):
    """Catches: two engines with different weights or settings compared, a ratio of values from different rounds."""
    monkeypatch.setattr(machine, "SECONDS_EACH", 0.01)
    monkeypatch.setattr(machine, "free_memory", lambda device: 0)
    found = bench.decode_speed(small, new_tokens=8, rounds=3)
    assert found.same_tokens
    assert found.ratio.low <= found.ratio.median <= found.ratio.high
    assert found.ours.low / found.theirs.high <= found.ratio.low
    assert found.bandwidth_share == pytest.approx(found.ours.median * found.bytes_per_token / found.bandwidth_bytes_per_s)
    assert found.conditions["threads"] == torch.get_num_threads() == 1 and found.conditions["dtype"] == "float32"


def test_without_transformers_it_says_what_to_install(small, monkeypatch):
    """Catches: an ImportError as the answer to `bench`."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelMissing, match="requirements-test.txt"):
        bench.decode_speed(small)
