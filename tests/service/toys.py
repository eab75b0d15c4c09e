"""Functions that only the tests serve: each shows one behaviour of the service."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from compute.errors import BadInput, LabError, Refused
from compute.functions import TABLE, Function
from compute.measures.job import Job, Value

SECRET = "the inside of the machine"


def add(a: int, b: int = 1, seed: int = 0) -> dict:
    """Answers at once. The tuple becomes a list on every way; a third keeps all its digits."""
    return {"sum": a + b, "pair": (a, b), "third": a / 3, "words": "小王 \u2028 end"}


def slow(steps: int, step_seconds: float = 0.05, report=None, cancelled=None) -> dict:
    """Reports every step; report itself stops it."""
    for step in range(steps):
        time.sleep(step_seconds)
        report((step + 1) / steps, f"step {step + 1}")
    return {"steps": steps}


def grows(steps: int, step_seconds: float = 0.05, report=None) -> dict:
    """Tells what it has so far, but not with every report."""
    done = []
    for step in range(steps):
        time.sleep(step_seconds)
        done.append((step, step / 3))
        report((step + 1) / steps, partial={"done": done} if step % 2 else None)
    return {"done": done}


def unsayable(report=None) -> dict:
    """What it has so far is nothing that JSON can carry."""
    report(0.5, "half", {"value": float("nan")})
    return {}


def quiet(seconds: float, cancelled=None) -> dict:
    """Says nothing, but asks whether to stop."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not cancelled():
        time.sleep(0.02)
    return {"finished": not cancelled()}


def deaf(seconds: float) -> dict:
    """Neither reports nor asks."""
    time.sleep(seconds)
    return {"finished": True}


def made_or_dead(job: Job, report=None) -> dict[str, Value]:
    """In the place of precompute.made_or_not: "once" kills the process that makes it first, "always" each one."""
    name, folder = job.params["name"], Path(job.params["folder"])
    tries = len(list(folder.glob(f"{name}.*")))
    (folder / f"{name}.{tries}").touch()
    if name == "always" or (name == "once" and not tries):
        os.kill(os.getpid(), signal.SIGKILL)
    return {key: Value(1.0, "s", {"exact": True}, {"n": 1}) for key in job.keys}


def broken() -> dict:
    """A mistake in the code."""
    raise RuntimeError(SECRET)


def leaves() -> dict:
    """Tries to end the process."""
    raise SystemExit(SECRET)


def endless() -> dict:
    """Returns what JSON cannot carry."""
    return {"value": float("inf")}


def refuses() -> dict:
    """Does not fit."""
    gigabytes = dict(needed_gb=99.0, weights_gb=90.0, cache_gb=9.0, memory_gb=80.0, missing_gb=19.0)
    raise Refused("does_not_fit", model="m", chip="c", **gigabytes)


@dataclass(frozen=True)
class Box:
    width: int
    inside: Box | None = None


def nested(box: Box) -> dict:
    """Takes a record that contains another of its kind."""
    return {"depth": 1 if box.inside is None else 1 + nested(box.inside)["depth"]}


class Own(LabError):
    """An error of a module, with a sentence that everybody knows."""

    codes = ()


def own_error() -> dict:
    """Raises a class that only this module has."""
    words = dict(reason="r", reason_zh="原因", way_out="w", way_out_zh="办法")
    raise Own("no_model", model="m", **words)


def refuses_late(report=None) -> dict:
    """Refuses when the stream has begun."""
    report(0.5, "half")
    time.sleep(0.1)
    raise BadInput("a", 1, "it is odd", "它是奇数")


TOYS = {
    f"toy.{f.__name__}": Function(f"toy.{f.__name__}", f"{__name__}:{f.__name__}", "service")
    for f in (add, slow, grows, unsayable, quiet, deaf, broken, leaves, endless, refuses, refuses_late, own_error, nested)
}


def offer() -> None:
    """Puts the toys beside the real functions of this process."""
    TABLE.update(TOYS)
