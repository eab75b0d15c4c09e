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

from compute import functions, tokenization
from compute.errors import Cancelled, LabError
from compute.facts import chips, models
from tests.security.strategies import broken, good, likely

DEEPER = int(os.environ.get("INFERENCE_LAB_FUZZ", "0"))
TRIES = 6
DEEP = 30  # tries with likely parameters, of what answers within a second or so
NEAR = {
    "model": ["qwen3.8-27b", "mini-256", "mini-64", "mini-moe", "mini-256:int4-g64", *models()], "chip": [*chips(), "this-machine"], "models": ["mini-256", "mini-64"],
    "target": ["mini-256"], "draft": ["mini-64", "lookup", "mtp"], "scheme": ["int4-g64", "fp8"], "matrix": ["0.q", "2.down", "head"], "text": ["小明把苹果给了", "a"],
    "workload": ["chat", "agent"], "tokenizers": ["mini", "qwen"], "endpoint": ["own"], "device": ["cpu", "auto"], "only": ["anchor", "speculative"], "keys": ["sampling.texts", "anchor.ridge"],
}  # fmt: skip
OURS = ["mini-256", "mini-128", "mini-64"]
THERE = {  # as NEAR, but names that are all there
    "model": [*models()], "chip": [*chips()], "models": OURS, "target": ["mini-256"], "draft": [*OURS[1:], "lookup", "mtp"], "text": ["小明把苹果给了", "a", "The quick brown fox"],
    "workload": ["chat", "agent"], "tokenizers": [*tokenization.known()], "matrix": ["0.qkv", "2.down", "head"], "only": ["anchor"], "top_k": [0, 1, 40],
}  # fmt: skip
ON_ENGINE = {"kv.compare": OURS, "quantize.matrix": OURS, "next.logits": OURS, "sampling.texts": OURS, "live.trace": OURS, "moe.route": ["mini-moe"]}  # models that run here
SLOW = {"serving.sweep", "verify.table", "verify.recompute"}  # answer after seconds
APART = {  # what starts a process, measures for seconds or writes a file: broken parameters only
    "machine.measure", "meter.run", "cache.race", "speculate.cell", "quantize.score", "batching.run",
}  # fmt: skip
STOPPED_AFTER = 1.0  # seconds of this process's own work, after which a call is told to stop, as the service does after two minutes
MOST_SECONDS = 12.0  # by which it has to have ended: a function that does not ask keeps one of the service's two threads
MOST_BYTES = 1_500 * 2**20  # by which one call may raise the process


def called(name: str, params: dict) -> bool:
    """A result that JSON carries, or one sentence in both languages; and neither takes long nor much memory. Whether it was a result."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def cancelled() -> bool:
        return time.process_time() - began > STOPPED_AFTER

    def report(fraction, note="", partial=None):
        json.dumps(partial, allow_nan=False)
        if cancelled():
            raise Cancelled

    try:
        json.dumps(functions.call(name, params, report=report, cancelled=cancelled), allow_nan=False)
        answered = True
    except LabError as refusal:
        answered = False
        assert refusal.code != "internal"
        assert all(refusal.message(lang) and len(refusal.message(lang)) < 5_000 for lang in ("zh", "en"))
        json.dumps(refusal.to_json(), allow_nan=False)
    assert time.process_time() - began < MOST_SECONDS, f"{name} worked for {time.process_time() - began:.0f} s on {params}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_BYTES, f"{name} took {grown / 2**20:.0f} MiB for {params}"
    return answered


def tries(much: int = 1):
    return settings(max_examples=TRIES * much * max(1, DEEPER), deadline=None, derandomize=not DEEPER, database=None,
                    suppress_health_check=list(HealthCheck), print_blob=True)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in functions.TABLE if name not in APART])
def test_what_a_schema_allows_is_answered_or_refused(name):
    """Catches: a traceback, a figure that JSON has no word for, and parameters in range that keep a thread or fill the memory."""
    tries()(given(good(functions.schema(name), NEAR))(lambda params: tried(name, params)))()


@pytest.mark.parametrize("name", [name for name in functions.TABLE if name not in APART | SLOW])
def test_what_a_learner_may_set_is_mostly_answered(name):
    """Catches: a traceback or a figure that JSON has no word for, behind parameters that pass all checks; tries that are all refused."""
    there, outcomes = THERE | ({"model": ON_ENGINE[name]} if name in ON_ENGINE else {}), []
    deep = settings(tries(), max_examples=DEEP * max(1, DEEPER))
    deep(given(likely(functions.schema(name), there))(lambda params: outcomes.append(called(name, params))))()
    assert sum(outcomes) > len(outcomes) / 4, f"{len(outcomes) - sum(outcomes)} of {len(outcomes)} tries were refused"


@pytest.mark.parametrize("name", functions.TABLE)
def test_what_a_schema_forbids_is_refused_or_harmless(name):
    """Catches: a wrong type or name that gets past the check and raises inside."""
    if name in APART:
        tries(2)(given(broken(functions.schema(name), NEAR))(lambda params: checked(name, params)))()
    else:
        tries(2)(given(broken(functions.schema(name), NEAR))(lambda params: tried(name, params)))()


def tried(name: str, params: dict) -> None:
    """Hypothesis takes a test that returns something for a mistake."""
    called(name, params)


def checked(name: str, params: dict) -> None:
    try:
        functions.check(name, params)
    except LabError as refusal:
        assert all(refusal.message(lang) for lang in ("zh", "en"))


def test_something_was_tried():
    assert len(functions.TABLE) - len(APART | SLOW) > 20 and APART | SLOW < set(functions.TABLE)
