"""Every function that is served, called with whatever its schema allows and with what it does not.

INFERENCE_LAB_FUZZ=N multiplies the number of tries, with fresh ones each time.
"""

from __future__ import annotations

import json
import os
import resource
import time

import pytest
from hypothesis import HealthCheck, given, settings

from compute import functions
from compute.errors import Cancelled, LabError
from compute.facts import chips, models
from tests.security.strategies import broken, good

DEEPER = int(os.environ.get("INFERENCE_LAB_FUZZ", "0"))
TRIES = 6
NEAR = {
    "model": ["qwen3.8-27b", "mini-256", "mini-64", "mini-moe", "mini-256:int4-g64", *models()], "chip": [*chips(), "this-machine"], "models": ["mini-256", "mini-64"],
    "target": ["mini-256"], "draft": ["mini-64", "lookup", "mtp"], "scheme": ["int4-g64", "fp8"], "matrix": ["0.q", "2.down", "head"], "text": ["小明把苹果给了", "a"],
    "workload": ["chat", "agent"], "tokenizers": ["mini", "qwen"], "endpoint": ["own"], "device": ["cpu", "auto"], "only": ["anchor", "speculative"], "keys": ["sampling.texts", "anchor.ridge"],
}  # fmt: skip
APART = {  # what starts a process, measures for seconds or writes a file: broken parameters only
    "machine.measure", "meter.run", "cache.race", "speculate.cell", "quantize.score", "batching.run",
}  # fmt: skip
STOPPED_AFTER = 1.0  # seconds of this process's own work, after which a call is told to stop, as the service does after two minutes
MOST_SECONDS = 12.0  # by which it has to have ended: a function that does not ask keeps one of the service's two threads
MOST_BYTES = 1_500 * 2**20  # by which one call may raise the process


def called(name: str, params: dict) -> None:
    """A result that JSON carries, or one sentence in both languages; and neither takes long nor much memory."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def cancelled() -> bool:
        return time.process_time() - began > STOPPED_AFTER

    def report(fraction, note="", partial=None):
        json.dumps(partial, allow_nan=False)
        if cancelled():
            raise Cancelled

    try:
        json.dumps(functions.call(name, params, report=report, cancelled=cancelled), allow_nan=False)
    except LabError as refusal:
        assert refusal.code != "internal"
        assert all(refusal.message(lang) and len(refusal.message(lang)) < 5_000 for lang in ("zh", "en"))
        json.dumps(refusal.to_json(), allow_nan=False)
    assert time.process_time() - began < MOST_SECONDS, f"{name} worked for {time.process_time() - began:.0f} s on {params}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_BYTES, f"{name} took {grown / 2**20:.0f} MiB for {params}"


def tries(much: int = 1):
    return settings(max_examples=TRIES * much * max(1, DEEPER), deadline=None, derandomize=not DEEPER, database=None,
                    suppress_health_check=list(HealthCheck), print_blob=True)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in functions.TABLE if name not in APART])
def test_what_a_schema_allows_is_answered_or_refused(name):
    """Catches: a traceback, a figure that JSON has no word for, and parameters in range that keep a thread or fill the memory."""
    tries()(given(good(functions.schema(name), NEAR))(lambda params: called(name, params)))()


@pytest.mark.parametrize("name", functions.TABLE)
def test_what_a_schema_forbids_is_refused_or_harmless(name):
    """Catches: a wrong type or name that gets past the check and raises inside."""
    if name in APART:
        tries(2)(given(broken(functions.schema(name), NEAR))(lambda params: checked(name, params)))()
    else:
        tries(2)(given(broken(functions.schema(name), NEAR))(lambda params: called(name, params)))()


def checked(name: str, params: dict) -> None:
    try:
        functions.check(name, params)
    except LabError as refusal:
        assert all(refusal.message(lang) for lang in ("zh", "en"))


def test_something_was_tried():
    assert len(functions.TABLE) - len(APART) > 20 and APART < set(functions.TABLE)
