"""The lesson's requests executed: the plans are the simulated ones, step by step."""

from dataclasses import replace

import pytest

from compute.batching import POLICIES
from compute.batching_requests import requests
from compute.engine.batch_run import execute, run
from compute.engine.registry import shared
from compute.errors import Cancelled
from compute.measures.batching import trace
from compute.trace import from_json

SHORT = [replace(request, output=min(request.output, 3 + 13 * number % 60)) for number, request in enumerate(requests()[:20])]
SETTINGS = [
    {"slots": 4, "blocks": 64}, {"slots": 6, "blocks": 8, "preemption": "recompute"}, {"slots": 6, "blocks": 8, "preemption": "swap"}, {"slots": 5, "blocks": 64, "budget": 3},
]  # fmt: skip


def plans(trace):
    return [(step.lanes, step.waiting, step.running, step.used, step.preempted, step.finished) for step in trace.steps]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_executed_plans_are_the_simulated_ones(policy, setting):
    """Catches: an engine that decides for itself, an end token that ends a reply early, a prefix cache that skips reading."""
    done, simulated = execute(shared().get("mini-256"), policy, SHORT, **setting), trace(policy, SHORT, **setting)
    assert plans(done) == plans(simulated)
    assert [(life.prompt, life.written, life.preemptions) for life in done.sequences] == [(life.prompt, life.written, life.preemptions) for life in simulated.sequences]
    assert done.clock == "second" and all(step.took > 0 for step in done.steps)
    if policy == "continuous" and setting["blocks"] == 8:
        assert sum(life.preemptions for life in done.sequences) > 0, "memory was to be short here"


def test_the_served_function_tells_both_policies(monkeypatch):
    """Catches: left and right exchanged, progress that goes back, a record that the reader does not take."""
    monkeypatch.setattr("compute.engine.batch_run.requests", lambda: SHORT)
    heard = []
    made = run("chunked", "static", slots=4, budget=8, report=lambda fraction, note: heard.append(fraction))
    assert [from_json(told).policy for told in made.traces] == ["chunked", "static"]
    assert plans(from_json(made.traces[1])) == plans(trace("static", SHORT, slots=4))
    assert len(heard) <= 2 * len(SHORT), "told of every step, the clock of the run stands for the telling"
    assert heard == sorted(heard) and 0 < heard[-1] <= 1 and made.conditions["model"] == "mini-256"


def test_it_can_be_cancelled(monkeypatch):
    """Catches: a learner who left, and a run that goes on to its end."""
    monkeypatch.setattr("compute.engine.batch_run.requests", lambda: SHORT)
    with pytest.raises(Cancelled):
        run(cancelled=lambda: True)
