"""Pages are made one at a time, in the order in which they were asked for. Python runs one thread at a time anyway; threads that
take it from each other in the middle of their work cost several times what the work costs.

    with taken():               a page, or a part of one, is made; within another `taken` nothing more happens
        with lent(): …          waits for somebody else meanwhile: others go on
        for … in waiting(it):   the same, for what comes one by one
        pass_on()               whoever waits comes first
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
_guard = threading.Lock()
_gates: deque[threading.Lock] = deque()  # of those who wait, closed
_busy = False
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
    return getattr(_mine, "held", False)


def _take() -> None:
    global _busy
    with _guard:
        gate = threading.Lock() if _busy else None
        if gate:
            gate.acquire()
            _gates.append(gate)
        _busy = True
    if gate:
        gate.acquire()  # until it is opened
    _mine.held = True


def _give() -> None:
    global _busy
    _mine.held = False
    with _guard:
        if _gates:
            _gates.popleft().release()  # still busy: the turn is the next one's
        else:
            _busy = False
