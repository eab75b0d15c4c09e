"""Callers of a running engine: what they hear, and the engine held in the middle of a step."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

from compute.engine.engine import Ask
from compute.engine.running import Running


class Ear:
    """Keeps what it hears; `ended` once the request's last text or an error is there."""

    def __init__(self, texts: int = 1):
        self.heard, self.left, self.ended = [], texts, threading.Event()

    def __call__(self, heard):
        self.heard.append(heard)
        self.left -= bool(getattr(heard, "finish", "error"))
        if self.left <= 0 or isinstance(heard, Exception):
            self.ended.set()

    def tokens(self, index: int = 0) -> list[int]:
        assert self.ended.wait(20), "it never ended"
        return [piece.token for piece in self.heard if piece.index == index]


def until(condition, seconds: float = 20.0) -> None:
    """Waits for what another thread does; that it is quick is not the question here."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


@contextmanager
def held(one: Running):
    """The engine's thread stands still in the middle of a step, before anything is written down."""
    inside, go, compute = threading.Event(), threading.Event(), one.engine._compute

    def wait(*args):
        inside.set()
        go.wait(20)
        return compute(*args)

    one.engine._compute = wait
    request = one.submit(Ask((1, 2), 1))
    assert inside.wait(20)
    try:
        yield request
    finally:
        del one.engine._compute
        go.set()


def empty(one: Running) -> bool:
    """No block, slot or record is held for anybody."""
    s, pool = one.engine.scheduler, one.engine.pool
    return (
        not one._open and not one.engine.texts and not one.engine._outside and not s.waiting and not s.running and s.free_slots == s.slots
        and s._lanes == set(range(s.slots)) and pool.free == pool.total and pool.refs == [0] * pool.total
    )  # fmt: skip
