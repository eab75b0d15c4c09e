"""Who goes first on a processor that pages and models share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GROUP = Path("/proc/self/autogroup")


@pytest.mark.skipif(not GROUP.exists(), reason="this system does not share the processor out by sessions")
@pytest.mark.parametrize("leads", [True, False])
def test_the_service_gives_way_also_from_a_session_of_its_own(leads):
    """Catches: a nice value that counts for nothing, as run.py starts the service in a session of its own; and a whole terminal that
    becomes slow because a service was started in it."""
    code = f"from compute.service.serve import give_way; give_way(); import os; print(os.nice(0), open('{GROUP}').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, start_new_session=leads, timeout=60)
    nice, _, group = done.stdout.partition(" ")  # a process that no session ever had for itself has no group to tell of
    assert int(nice) == min(19, os.nice(0) + 10) and group.strip().endswith("nice 10") == leads, done.stdout + done.stderr
