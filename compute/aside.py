"""Pure Python that takes long, in a process beside the pages: in theirs it would hold up every other learner. One call at a time.

`start` is for the web server; where nobody started it, or it fails, functions run where they are called.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from compute import turns
from compute.errors import LabError, TimedOut

ROOT = Path(__file__).resolve().parents[1]
NICE = 5  # between the pages and the models
PATIENCE_SECONDS = 120.0  # with a call; as with one of the service

P, T = ParamSpec("P"), TypeVar("T")
_turn = threading.Lock()
_started = False
_worker: subprocess.Popen | None = None


def start() -> None:
    global _started
    with _turn:
        _started = True
        with suppress(OSError):  # tried again at the first call
            _begin()


def stop() -> None:
    global _started
    _started = False
    if worker := _worker:
        worker.kill()  # whoever waits for an answer hears that none comes
    with _turn:
        _end()


def call(function: Callable[P, T], *arguments: Any) -> T:
    """function(*arguments): a function of a module in compute/ that needs nothing but its arguments and keeps what it likes. Raises
    the LabError that it raises, and TimedOut."""
    if _started:
        with turns.lent(), _turn:
            try:
                if _started:  # and not stopped meanwhile
                    return _ask(function, arguments)
            except (OSError, EOFError, pickle.PickleError, AttributeError):  # AttributeError: cannot be pickled
                _end()
    return function(*arguments)


def _ask(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    asked = pickle.dumps((function, arguments))
    worker = _worker if _worker and _worker.poll() is None else _begin()
    began, late = time.monotonic(), threading.Timer(PATIENCE_SECONDS, worker.kill)
    late.daemon = True
    late.start()
    try:
        worker.stdin.write(asked)
        worker.stdin.flush()
        answer = pickle.load(worker.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):
        if time.monotonic() - began < PATIENCE_SECONDS:
            raise
        _end()
        raise TimedOut("timed_out", function=function.__qualname__, limit=PATIENCE_SECONDS) from None
    finally:
        late.cancel()
    if isinstance(answer, LabError):
        raise answer
    return answer


def _begin() -> subprocess.Popen:
    """Raises OSError, also once the pages have stopped: whoever still asks then is answered where they are."""
    global _worker
    if not _started:
        raise OSError("stopped")
    _worker = subprocess.Popen([sys.executable, "-m", "compute.aside"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return _worker


def _end() -> None:
    global _worker
    if _worker:
        _worker.kill()
        _worker.communicate()
        _worker = None


def serve() -> None:
    """Answers until the pages are gone. An error that nobody foresaw ends it; the pages then run the same call and tell of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pages
    if hasattr(os, "nice"):  # not on Windows
        os.nice(NICE)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a function prints is no answer
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = function(*arguments)
        except LabError as refusal:
            answer = refusal
        answers.write(pickle.dumps(answer))
        answers.flush()


if __name__ == "__main__":
    serve()
