"""`python -m compute bench load`."""

import json

import pytest

from compute import __main__ as command
from compute.batching import POLICIES


def test_the_command_prints_a_line_or_json(capsys):
    """Catches: an option that is not passed on, a ratio the wrong way round, a race between two different results."""
    small = ["load", "--requests", "300", "--small", "60", "--rounds", "1"]
    assert command.main(["bench", *small]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(POLICIES) + 1 and all(line.startswith(name) and "same times: True" in line for name, line in zip(POLICIES, lines))
    assert command.main(["bench", *small, "--policy", "chunked", "--workload", "paragraphs", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["policy"], only["requests"], only["small"], only["same"]) == ("chunked", 300, 60, True)
    assert only["conditions"]["workload"] == "paragraphs" and only["ratio"]["median"] > 1 and only["scheduler_seconds"]["low"] > only["small_seconds"]["low"]
    with pytest.raises(SystemExit):
        command.main(["bench", "load", "--rounds", "0"])
