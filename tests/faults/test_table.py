"""The table of faults."""

from __future__ import annotations

import re

from tests.conftest import ROOT

TABLE = ROOT / "docs" / "faults.md"


def test_every_fault_names_tests_that_exist():
    """Catches: a row that nothing shows any more, after a test was renamed or dropped."""
    rows = [line.strip("| ").split("|") for line in TABLE.read_text(encoding="utf-8").splitlines()
            if line.startswith("|") and not line.startswith(("|---", "| fault |"))]
    assert len(rows) > 20
    for row in rows:
        assert len(row) == 5, row[0]
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[4])
        assert named, f"nothing shows: {row[0]}"
        for file, test in named:
            assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.M), f"{row[0]}: {file}::{test}"
