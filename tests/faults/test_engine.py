"""The engine that everybody shares, when one text, a whole step or its thread fails. The model is our smallest."""

from __future__ import annotations

import ctypes
import time

import pytest
import torch

from compute.engine import engine as engine_module
from compute.engine import registry
from compute.engine import running as running_module
from compute.engine.engine import Ask
from compute.engine.running import Running
from compute.errors import Internal, Unavailable
from compute.sampling import GREEDY, Sampling
from tests.engine.running import Ear, empty, held, until

PROMPT = tuple(range(40, 49))
BAD = Sampling(0.7)


@pytest.fixture()
def shared(monkeypatch):
    """The engine of a name that /healthz looks after."""
    one = Running(registry.shared().get("mini-64"), block_size=4, blocks=64)
    monkeypatch.setattr(running_module, "_runnings", {"mini-64": one})
    yield one
    one.close(Unavailable("unavailable", reason="the test is over", reason_zh="测试结束"))


def alone(one: Running, ask: Ask) -> list[int]:
    ear = Ear()
    one.submit(ask, ear)
    return ear.tokens()


def test_one_text_that_fails_leaves_its_neighbours_alone(shared, monkeypatch, caplog):
    """Catches: a batch that ends for everybody because the numbers of one text cannot be drawn from, and slots or blocks that stay taken."""
    asks = [Ask(PROMPT, 12, ignore_end=True), Ask(PROMPT[:5], 12, Sampling(), 3, ignore_end=True)]
    expected, right = [alone(shared, ask) for ask in asks], engine_module.pick
    left = [3, 1]

    def pick(row, sampling, random):
        if sampling == BAD:
            left[0] -= 1
            if left[0] < 0:
                raise ValueError("probabilities contain NaN")
        return right(row, sampling, random)

    monkeypatch.setattr(engine_module, "pick", pick)
    ears, bad = [Ear(), Ear()], Ear(2)
    with held(shared):
        shared.submit(asks[0], ears[0])
        request = shared.submit(Ask(PROMPT, 12, BAD, n=2, ignore_end=True), bad, learner="ann")
        shared.submit(asks[1], ears[1])
    assert [ear.tokens() for ear in ears] == expected
    assert bad.ended.wait(20) and isinstance(bad.heard[-1], Internal) and bad.heard[-1].values["id"] in caplog.text and "NaN" in caplog.text
    assert [writing.finish for writing in request.writings] == ["error", "error"] and request.writings[0].tokens > 0, "what was written stays"
    until(lambda: empty(shared))


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
                                   RuntimeError("[enforce fail at alloc_cpu.cpp:126] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")],
                         ids=["python", "cuda", "cpu"])
def test_a_step_without_memory_says_so_and_the_next_one_runs(shared, monkeypatch, error):
    """Catches: "something went wrong on our side" where shorter input would do, and an engine that stays broken."""
    ask, forward, ear = Ask(PROMPT, 6, GREEDY, ignore_end=True), engine_module.Engine._compute, Ear()
    expected = alone(shared, ask)

    def starved(*_):
        raise error

    monkeypatch.setattr(engine_module.Engine, "_compute", starved)
    request = shared.submit(ask, ear, learner="ann")
    assert ear.ended.wait(20) and ear.heard[-1].code == "out_of_memory"
    assert "内存不够" in request.error.message("zh") and "not enough memory" in request.error.message("en")
    monkeypatch.setattr(engine_module.Engine, "_compute", forward)
    until(lambda: empty(shared))
    assert alone(shared, ask) == expected


def kill(thread) -> None:
    """As near as Python comes to it: the thread ends at its next instruction, whatever it is doing."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_whose_thread_died_is_started_again(shared, caplog):
    """Catches: callers who wait for ever for a thread that is no more, which no look at the process shows."""
    ask, lost, queued = Ask(PROMPT, 6, ignore_end=True), Ear(), Ear()
    expected, dead = alone(shared, ask), shared.thread
    with held(shared):
        kill(dead)
        shared.submit(ask, lost)
    until(lambda: not dead.is_alive())
    shared.submit(ask, queued)
    time.sleep(0.05)
    assert not lost.ended.is_set() and not queued.ended.is_set(), "nobody has noticed yet"
    assert running_module.mend() and shared.thread is not dead
    for ear in (lost, queued):
        assert ear.ended.wait(20) and isinstance(ear.heard[-1], Internal)
    assert "started again" in caplog.text
    until(lambda: empty(shared))
    assert alone(shared, ask) == expected
    assert running_module.mend() and shared.thread.is_alive()


def test_a_step_that_never_ends_is_noticed(shared, monkeypatch):
    """Catches: a hung kernel behind a service that says it is well."""
    until(lambda: empty(shared))
    with held(shared):
        monkeypatch.setattr(running_module, "STUCK_SECONDS", 0.0)
        shared.submit(Ask(PROMPT, 4), Ear())
        until(lambda: not running_module.mend())
    until(lambda: running_module.mend())
