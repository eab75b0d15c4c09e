"""run.py where what it stands on gives way: the disk under its log, the port that it chose for the service."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.test_run import answers, free_port, run, scratch, watcher  # noqa: F401


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
def test_a_full_disk_under_the_log_ends_nothing(scratch):  # noqa: F811
    """Catches: a lesson that stops because a line could not be written into a log."""
    port = free_port()
    with open("/dev/full", "w") as full:
        lab = subprocess.Popen([sys.executable, "run.py", "--port", str(port)], cwd=scratch, stdout=full, stderr=full, start_new_session=True)
    try:
        log, end = scratch / "compute" / "compute.log", time.monotonic() + 60
        while not (answers(port) and log.exists()):
            assert lab.poll() is None and time.monotonic() < end
            time.sleep(0.1)
        os.kill(int(log.read_text().split()[0]), signal.SIGKILL)
        while len(log.read_text().splitlines()) < 2:  # it has something to say now, and goes on all the same
            assert lab.poll() is None and time.monotonic() < end
            time.sleep(0.1)
    finally:
        os.killpg(lab.pid, signal.SIGTERM)
        lab.wait(20)


def test_a_port_that_somebody_took_meanwhile_is_tried_again(watcher, monkeypatch):  # noqa: F811
    """Catches: pages that end because another program got hold of the service's port before the service did."""
    compute, begun, said, _ = watcher
    with socket.create_server(("127.0.0.1", 0)) as taken:
        compute.port = taken.getsockname()[1]
        compute.watch(0)
        monkeypatch.setattr(compute.process, "poll", lambda: run.CANNOT_START)
        compute.watch(0.5)
        assert compute.process is None and "Starting it again" in said[-1]
    compute.watch(2)
    assert len(begun) == 2
    monkeypatch.setattr(compute.process, "poll", lambda: run.CANNOT_START)
    with pytest.raises(run.Stop, match="cannot start like this"):
        compute.watch(2.5)
