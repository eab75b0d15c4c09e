"""Our own service, measured from outside and compared with the trace that its engine keeps."""

import json
import subprocess
import sys
import time
from collections import Counter

import httpx
import pytest

from compute.service import client
from compute.service.schema import Progress
from tests.service.process import ROOT, Server


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


def measured(server: Server, *args: str) -> dict:
    ran = subprocess.run([sys.executable, "-m", "compute", "meter", server.url, "--json", "-", *args], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def lives(server: Server) -> list[dict]:
    live = httpx.get(f"{server.url}/live", trust_env=False, timeout=30).json()
    return [one for one in live["sequences"] if one["finished"] is not None]


def test_figures_agree_with_the_engine_s_own_trace(server):
    """Catches tokens lost or counted twice, and a clock that is read at the wrong moment. Tokens must be equal. As for time, the
    engine and the meter look at the same events from two ends: with one constant between their clocks, a request reaches the engine after
    it was sent, and a token reaches the meter after it was written. Whether such a constant exists does not depend on how busy
    the machine is, and it does not if a first or a last token is taken for another."""
    before = len(lives(server))
    report = measured(server, "--requests", "12", "--concurrency", "1", "--warmup", "1", "--output-tokens", "24")
    written = sorted(lives(server), key=lambda life: life["arrived"])[before + 2 :]  # but for finding out, and warming up
    requests = sorted(report["requests"], key=lambda request: request["sent"])
    assert report["done"] and len(requests) == len(written) == 12
    assert [(one["prompt_tokens"], one["output_tokens"]) for one in requests] == [(life["prompt"], life["written"]) for life in written]
    assert all(one["counted_by"] == "usage" for one in requests)
    latest = max(one["sent"] - life["arrived"] for one, life in zip(requests, written))
    earliest = min(min(one["first"] - life["first"], one["last"] - life["finished"]) for one, life in zip(requests, written))
    assert latest <= earliest + 1e-5, "no constant between the clocks fits: something was heard before it was said"
    assert all(one["first"] - one["sent"] >= life["first"] - life["arrived"] - 1e-5 for one, life in zip(requests, written))


def test_many_at_a_time_are_all_accounted_for(server):
    """Catches answers given to the wrong request, and tokens that are counted in chunks."""
    before = Counter((life["prompt"], life["written"]) for life in lives(server))
    report = measured(server, "--requests", "24", "--concurrency", "12", "--output-tokens", "16")
    found = Counter((one["prompt_tokens"], one["output_tokens"]) for one in report["requests"])
    after = Counter((life["prompt"], life["written"]) for life in lives(server))
    assert sum(found.values()) == 24 and not found - (after - before)
    assert report["conditions"]["fingerprint"].startswith("mini-256")


def test_prompts_find_nothing_in_the_prefix_cache(server):
    """Catches a prompt that a former one has paid for, also of the run before with the same seed."""
    for _ in range(2):
        report = measured(server, "--requests", "6", "--prompt-tokens", "100")
        assert [one["cached"] for one in report["requests"]] == [0] * 6


@pytest.mark.parametrize("way", ["the process", "embedded"])
def test_a_page_measures_the_service_that_it_talks_to(server, way, monkeypatch):
    """Catches "own" without an address: in the service's process it is where that listens, in one process for everything it is served
    for as long as it takes."""
    monkeypatch.setenv(client.VARIABLE, server.url if way == "the process" else client.EMBEDDED)
    before = len(lives(server))
    *progress, result = client.run("meter.run", {"requests": 4, "output_tokens": 8})
    assert all(isinstance(event, Progress) for event in progress)
    assert result.value["done"] and result.value["endpoint"]["name"] == "own" and result.value["endpoint"]["model"] == "mini-256"
    assert len(result.value["requests"]) == 4
    assert (len(lives(server)) > before) == (way == "the process")


def test_a_page_that_leaves_frees_the_engine(server, monkeypatch):
    """Catches slots of the engine that write for a meter that is gone."""
    monkeypatch.setenv(client.VARIABLE, server.url)
    events = client.run("meter.run", {"requests": 400, "output_tokens": 512, "concurrency": 8})
    for event in events:
        if event.partial and event.partial["running"]:
            break
    events.close()
    server.idle_within(30)
    for _ in range(300):
        live = httpx.get(f"{server.url}/live", trust_env=False, timeout=30).json()
        if not live["tables"] and not live["queue"]:
            break
        time.sleep(0.1)
    assert not live["tables"] and not live["queue"]
