"""`python -m compute bench overlay`."""

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from compute import __main__ as command
from compute import bench_overlay
from tests.conftest import ROOT


def test_the_command_prints_a_line_or_json(capsys):
    """Catches: an option that is not passed on, a ratio the wrong way round, JSON that does not parse."""
    small = ["overlay", "--prompt", "giving", "--draws", "4000", "--rounds", "3"]
    assert command.main(["bench", *small]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 and "4,000 draws" in lines[0] and all("ratio" in line for line in lines[1:])
    assert command.main(["bench", *small, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert first["draws"] == 4000 and first["conditions"]["rounds"] == 3
    assert first["over_uniforms"]["low"] <= first["over_uniforms"]["median"] <= first["over_uniforms"]["high"]
    assert first["loop_ms"]["median"] > first["uniforms_ms"]["low"]
    with pytest.raises(SystemExit):
        command.main(["bench", "overlay", "--rounds", "0"])


def test_it_does_not_import_torch():
    """Catches: seconds of import before a benchmark of milliseconds, in a process that needs no torch."""
    code = "import sys\nfrom compute import bench_overlay\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("rule, honest", [("correct", True), ("equal-only", True), ("resample-from-p", False)])
def test_the_plain_loop_is_the_same_rule(rule, honest):
    """Catches: a race against something that computes another distribution."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.6, 0.3])
    counts = bench_overlay.plain_loop(rule, p, q, 20_000, 1)
    assert (scipy.stats.chisquare(counts, p * 20_000).pvalue > 0.001) == honest
