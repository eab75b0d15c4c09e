"""Pages are made one at a time, in the order in which they were asked for. Python runs one thread at a time anyway; threads that
take it from each other in the middle of their work cost several times what the work costs.

    with taken():               a page, or a part of one, is made; within another `taken` nothing more happens
        with lent(): …          waits for somebody else meanwhile: others go on
        for … in waiting(it):   the same, for what comes one by one
        pass_on()               whoever waits comes first
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 60.0  # with whoever has the turn and does not pass it on: a page that hangs must not stop the course
LOOKS = 12  # within that time

_guard = threading.Lock()
_gates: deque[tuple[threading.Lock, object]] = deque()  # of those who wait: closed, and for which turn
_turn: object | None = None  # the one that somebody has
_since = 0.0  # time.monotonic() of its beginning
_mine = threading.local()


@contextmanager
def taken() -> Iterator[None]:
    if held():
        yield
        return
    _take()
    try:
        yield
    finally:
        _give()


@contextmanager
def lent() -> Iterator[None]:
    if not held():
        yield
        return
    _give()
    try:
        yield
    finally:
        _take()


def pass_on() -> None:
    if held() and _gates:
        _give()
        _take()


def waiting(items: Iterable[T]) -> Iterator[T]:
    items = iter(items)
    while True:
        with lent():
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


def held() -> bool:
    """Whether this thread has the turn."""
    return getattr(_mine, "turn", None) is not None


def _take() -> None:
    mine, gate = object(), threading.Lock()
    with _guard:
        if _turn is None:
            _begin(mine)
        else:
            gate.acquire()
            _gates.append((gate, mine))
    while _turn is not mine and not gate.acquire(timeout=PATIENCE_SECONDS / LOOKS):
        with _guard:
            if _gates and _gates[0][1] is mine and time.monotonic() - _since > PATIENCE_SECONDS:
                _gates.popleft()
                _begin(mine)
    _mine.turn = mine


def _give() -> None:
    mine, _mine.turn = _mine.turn, None
    with _guard:
        if _turn is not mine:  # it took too long and has lost it
            return
        if _gates:
            gate, next_turn = _gates.popleft()
            _begin(next_turn)
            gate.release()
        else:
            _begin(None)


def _begin(turn: object | None) -> None:
    global _turn, _since
    _turn, _since = turn, time.monotonic()
