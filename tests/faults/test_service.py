"""The compute service when a thread dies, hangs or runs out of memory or disk, and the command line beside it."""

from __future__ import annotations

import ctypes
import errno
import subprocess
import sys
import threading
import time

import pytest
from starlette.testclient import TestClient

from compute import functions
from compute.errors import Internal
from compute.functions import Function
from compute.service import api, client, jobs
from compute.service.jobs import JobQueue, Limits
from compute.service.machine import Machine
from compute.service.schema import Result, Status, status_from
from tests.conftest import ROOT
from tests.service import toys

FAILURES = {"out_of_memory": MemoryError(), "disk_full": OSError(errno.ENOSPC, "No space left on device")}


def lacks(what: str) -> dict:
    """Fails as a function does where something has run out."""
    raise FAILURES[what]


@pytest.fixture()
def known(monkeypatch):
    monkeypatch.setattr(functions, "TABLE", {**functions.TABLE, **toys.TOYS, "toy.lacks": Function("toy.lacks", f"{__name__}:lacks", "service")})


@pytest.fixture()
def service(known):
    """The service in this process, with one thread that is given 0.2 s."""
    with TestClient(api.create_app(Machine(), Limits(running=1, seconds=0.2), ["testserver"], preload=False)) as http:
        yield http


# ---- threads


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_is_replaced_at_the_next_look():
    """Catches: jobs that wait for ever for a thread that is no more."""
    queue, heard = JobQueue(Limits(running=1), Machine().conditions), threading.Event()
    queue.submit("f", lambda report, cancelled: {}, wake=heard.set)
    assert heard.wait(10)
    (worker,) = queue._workers
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident), ctypes.py_object(SystemExit))  # ends it as it wakes up
    heard.clear()
    job = queue.submit("f", lambda report, cancelled: {"n": 2}, wake=heard.set)
    worker.join(10)
    assert not worker.is_alive() and not heard.is_set() and queue.counts() == (0, 1), "nobody has noticed yet"
    assert queue.mend()
    assert heard.wait(10) and job.take()[-1].value == {"n": 2}


def test_a_watcher_that_fails_costs_no_thread(caplog):
    """Catches: a caller's mistake that takes a thread away from everybody."""
    queue, heard = JobQueue(Limits(running=1), Machine().conditions), threading.Event()

    def fails():
        raise RuntimeError("an ear that fails")

    lost = queue.submit("f", lambda report, cancelled: {}, wake=fails)
    queue.submit("g", lambda report, cancelled: {}, wake=heard.set)
    assert heard.wait(10) and "an ear that fails" in caplog.text and len(queue._workers) == 1
    assert isinstance(lost.take()[-1], Result), "it is there for whoever looks"


def test_a_computation_that_hangs_makes_the_service_unwell(service, monkeypatch):
    """Catches: a service all of whose threads hang and which says that it is well, so that nobody starts another; and one that is given up
    while it only works long."""
    assert service.post("/run/toy.deaf", json={"seconds": 1.5}).json()["error"]["code"] == "timed_out"
    assert service.get("/healthz").status_code == 200, "patience first"
    monkeypatch.setattr(jobs, "STUCK_SECONDS", 0.0)
    reply = service.get("/healthz")
    seen = status_from(reply.json(), "here")
    assert reply.status_code == 503 and not seen.up and seen.reason and seen.reason_zh, "run.py takes this for no answer, a page reads why"
    end = time.monotonic() + 10
    while service.get("/healthz").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_many_who_look_at_a_service_that_does_not_answer_wait_for_one_look(monkeypatch):
    """Catches: thirty pages that ask one after the other, a second each."""
    asked, go = [], threading.Event()

    def look(base):
        asked.append(base)
        go.wait(10)
        return Status(False, base, "it does not answer in time", "没有及时应答")

    monkeypatch.setenv(client.VARIABLE, "http://127.0.0.1:9")
    monkeypatch.setattr(client, "_look", look)
    monkeypatch.setattr(client, "_statuses", {})
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(client.status())) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(seen) == 8 and not any(status.up for status in seen) and len(asked) == 1


# ---- memory and disk


@pytest.mark.parametrize("code,status", [("out_of_memory", 503), ("disk_full", 507)])
@pytest.mark.parametrize("way", ["service", "embedded"])
def test_what_ran_out_is_said_and_the_next_call_is_served(service, monkeypatch, code, status, way):
    """Catches: "something went wrong on our side" where the reader or the operator could do something."""
    if way == "service":
        reply = service.post("/run/toy.lacks", json={"what": code})
        assert reply.status_code == status and reply.json()["error"]["code"] == code and "Traceback" not in reply.text
        assert service.post("/run/toy.add", json={"a": 1}).status_code == 200
    else:
        monkeypatch.setenv(client.VARIABLE, client.EMBEDDED)
        with pytest.raises(Internal) as said:
            client.call("toy.lacks", {"what": code})
        assert said.value.code == code and {"out_of_memory": "内存不够", "disk_full": "磁盘满了"}[code] in said.value.message("zh")
        assert client.call("toy.add", {"a": 1}).value["sum"] == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
def test_a_full_disk_under_a_command_is_one_sentence():
    """Catches: a traceback, and an exit code that says that all is well."""
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "compute", "call", "kv.computations", '{"prompt": 4, "new": 10}'], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "the disk is full" in done.stderr and done.stderr.count("\n") == 1
