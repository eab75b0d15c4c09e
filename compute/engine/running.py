"""An engine that runs by itself: one for each model, with a thread of its own, shared by everybody in this process.

The thread makes steps while there is work and sleeps otherwise; others leave their requests and read what was last written
down, and never wait for a step.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal
from weakref import WeakSet

from compute.engine.engine import Ask, Engine, Piece, Ticket
from compute.engine.loader import Model
from compute.engine.registry import KEPT_QUANTIZED, shared, unquantized
from compute.errors import Busy, LabError, Unavailable, unforeseen
from compute.trace import Life, Step, Trace

SLOTS = 8
MOST_WAITING = 128  # requests, of all
KEPT_STEPS = 4000  # a small model makes a thousand a second, and pages look every second or two
TRACE_STEPS = 1200  # of these, what is replayed
KEPT_TEXTS = 8  # finished requests of one learner
KEPT_LEARNERS = 1000
STUCK_SECONDS = 600.0  # a step that takes longer will not end
PACE_SECONDS = 2.0  # of work, over which tokens per second are counted
LONGEST_RETRY = 60.0  # seconds; clients give up on a longer Retry-After

log = logging.getLogger(__name__)

Finish = Literal["", "stop", "length", "cancelled", "error"]
Hear = Callable[[Piece | LabError], None]


@dataclass(eq=False)
class Writing:
    """One text as it comes about. Times on the engine's clock, in seconds."""

    text: str = ""
    tokens: int = 0
    first: float | None = None
    ended: float | None = None
    finish: Finish = ""


@dataclass(eq=False)
class Request:
    """One ask, from being sent to its end. prompt: as its learner wrote it; hits: prompt tokens found in the prefix cache."""

    ask: Ask
    hear: Hear
    learner: str
    prompt: str
    sent: float
    writings: list[Writing]
    ticket: Ticket | None = None
    hits: int = 0
    error: LabError | None = None

    @property
    def number(self) -> int:
        return self.ticket.request

    @property
    def ended(self) -> bool:
        return all(writing.finish for writing in self.writings)


@dataclass(frozen=True)
class Look:
    """The engine after a step. tables: (id, blocks, positions written) of those that run; queue: (id, request, prompt tokens)
    of those that wait, in their order; steps have the indices first … next − 1."""

    first: int
    next: int
    tables: tuple[tuple[int, tuple[int, ...], int], ...]
    queue: tuple[tuple[int, int, int], ...]
    refs: tuple[int, ...]
    cached: tuple[int, ...]
    tokens_per_second: float


@dataclass
class Pace:
    """Tokens written per second, over the last seconds of work."""

    seconds: float = 0.0
    tokens: int = 0
    _steps: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, step: Step) -> None:
        self._steps.append((step.took, sum(lane[4] for lane in step.lanes)))
        self.seconds += self._steps[-1][0]
        self.tokens += self._steps[-1][1]
        while self.seconds - self._steps[0][0] >= PACE_SECONDS:
            took, tokens = self._steps.popleft()
            self.seconds -= took
            self.tokens -= tokens

    @property
    def per_second(self) -> float:
        return self.tokens / self.seconds if self.tokens else 0.0


class Running:
    """engine_settings go to the Engine."""

    def __init__(self, model: Model, *, most_waiting: int = MOST_WAITING, slots: int = SLOTS, **engine_settings: Any):
        self.model, self.most_waiting = model, most_waiting
        self.engine = Engine(model, slots=slots, numbers=_numbers, **engine_settings)
        self._changed = threading.Condition()  # guards all below; never held during a step
        self._open: set[Request] = set()
        self._of: OrderedDict[str, list[Request]] = OrderedDict()  # by learner, the one heard of last at the end
        self._pace = Pace()
        self._closed: LabError | None = None
        self._look = self._looked()
        self._step_began: float | None = None  # seconds of time.monotonic, while one is made
        self.thread = self._begin()
        _alive.add(self)

    def _begin(self, fault: Exception | None = None) -> threading.Thread:
        thread = threading.Thread(target=self._serve, args=(fault,), name="engine", daemon=True)
        thread.start()
        return thread

    def mend(self) -> None:
        """Begins anew where the thread ended though nobody closed the engine: as after a step that failed."""
        with self._changed:
            if not self._closed and not self.thread.is_alive():
                log.error("the thread of %s ended; it is started again", self.model.name)
                self.thread = self._begin(RuntimeError("the engine's thread ended"))

    @property
    def stuck(self) -> bool:
        began = self._step_began
        return began is not None and time.monotonic() - began > STUCK_SECONDS

    # ---- requests

    def submit(self, ask: Ask, hear: Hear = lambda heard: None, *, learner: str = "", prompt: str = "") -> Request:
        """`hear` is told of every token, in the engine's thread, or of the error that ended the request. learner and prompt:
        under whose name, and with which words, `of` shows it. Raises BadInput for what cannot be run, Busy when too
        many wait, and after `close` its error."""
        with self._changed:
            self.require_room()
            request = Request(ask, hear, learner, prompt, self.engine.now(), [Writing() for _ in range(ask.n)])
            request.ticket = self.engine.submit(ask, lambda piece: self._told(request, piece), lambda error: self._lost(request, error))
            self._open.add(request)
            if learner:
                self._remember(request)
            self._changed.notify_all()
        return request

    def require_room(self, requests: int = 1) -> None:
        """Raises Busy where so many more would not be taken."""
        with self._changed:
            if self._closed:
                raise self._closed
            if self.engine.waiting + requests > self.most_waiting:
                raise self.busy()

    def busy(self) -> Busy:
        """With the seconds until what is open now is written, at the present pace."""
        with self._changed:
            left = sum(request.ask.max_new_tokens - writing.tokens for request in self._open for writing in request.writings if not writing.finish)
            pace, waiting = self._pace.per_second, self.engine.waiting
        return Busy(waiting, float(min(max(1, math.ceil(left / pace)), LONGEST_RETRY)) if pace else 1.0)

    def cancel(self, request: Request, error: LabError | None = None) -> None:
        """The next step begins with its slots and blocks free. An error is heard, otherwise nothing more. Harmless when it
        has ended."""
        with self._changed:
            if request not in self._open:
                return
            self._end(request, error)
            self.engine.cancel(request.ticket)
            self._changed.notify_all()
        if error:
            self._say(request, error)

    def close(self, error: LabError) -> None:
        """Ends everything and takes nothing more; the thread ends too."""
        with self._changed:
            self._closed, requests = error, list(self._open)
            self._changed.notify_all()
        for request in requests:
            self.cancel(request, error)

    def of(self, learner: str) -> list[Request]:
        """The requests of one learner: those that run or wait, and the last that have ended."""
        with self._changed:
            return list(self._of.get(learner, ())) if learner else []

    def _remember(self, request: Request) -> None:
        mine = self._of.setdefault(request.learner, [])
        self._of.move_to_end(request.learner)
        forgotten = [old for old in mine if old.ended][:-KEPT_TEXTS]
        mine[:] = [old for old in mine if old not in forgotten] + [request]
        while len(self._of) > KEPT_LEARNERS:
            self._of.popitem(last=False)

    def _end(self, request: Request, error: LabError | None) -> None:
        self._open.discard(request)
        request.error = error
        for writing in request.writings:
            if not writing.finish:
                writing.finish, writing.ended = "error" if error else "cancelled", self.engine.now()

    # ---- in the engine's thread

    def _serve(self, fault: Exception | None) -> None:
        if fault:
            self._failed(fault)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.engine.busy or self._closed)
                if not self.engine.busy:
                    return
            self._step_began = time.monotonic()
            try:
                self._written_down(self.engine.step())
            except Exception as error:  # the one boundary: a mistake in a step must not end the thread
                self._failed(error)
            finally:
                self._step_began = None

    def _written_down(self, step: Step | None) -> None:
        with self._changed:
            recorder = self.engine.recorder
            if step:
                self._pace.add(step)
            if len(recorder.steps) > KEPT_STEPS + 100:
                recorder.trim(KEPT_STEPS)
            self._look = self._looked()

    def _failed(self, error: Exception) -> None:
        fault = unforeseen(f"making a step of {self.model.name}", error)
        with self._changed:
            requests = list(self._open)
            for request in requests:
                self._end(request, fault)
            self.engine.reset()
            self._look = self._looked()
        for request in requests:
            self._say(request, fault)

    def _told(self, request: Request, piece: Piece) -> None:
        with self._changed:
            writing = request.writings[piece.index]
            if writing.finish:
                return
            now = self.engine.now()
            if writing.first is None:
                writing.first = now
                request.hits = self.engine.recorder.lives[request.ticket.sequences[0].id].hits
            writing.text += piece.text
            writing.tokens += 1
            if piece.finish:
                writing.finish, writing.ended = piece.finish, now
                if request.ended:
                    self._open.discard(request)
        self._say(request, piece)

    def _lost(self, request: Request, error: Exception) -> None:
        self.cancel(request, unforeseen(f"writing a text of {self.model.name}", error))

    def _say(self, request: Request, heard: Piece | LabError) -> None:
        try:
            request.hear(heard)
        except Exception as error:  # somebody's ear, not the engine: only this request ends
            unforeseen("telling of a token", error)
            self.cancel(request)

    # ---- what is seen

    def _looked(self) -> Look:
        engine, pool = self.engine, self.engine.pool
        first = engine.recorder.first
        return Look(
            first, first + len(engine.recorder.steps),
            tuple((s.id, tuple(s.table.blocks), s.table.written) for s in engine.scheduler.running),
            tuple((s.id, s.request, s.prompt) for s in engine.scheduler.waiting),
            tuple(pool.refs), pool.idle, self._pace.per_second,
        )  # fmt: skip

    def look(self, since: int = 0) -> tuple[Look, list[tuple[int, Step]], dict[int, Life]]:
        """After the last step: the engine, the steps from index `since` on, and the lives of all sequences that appear in
        either. A life may be ahead of the steps, as it is written down while the next one is made."""
        with self._changed:
            look, recorder = self._look, self.engine.recorder
            begin = max(since, look.first)
            steps = list(enumerate(recorder.steps[begin - look.first : look.next - look.first], begin))
            lives = recorder.lives
        ids = {id for id, *_ in look.tables + look.queue}
        for _, step in steps:
            ids.update((lane[1] for lane in step.lanes), step.preempted, step.finished)
        return look, steps, {id: lives[id] for id in sorted(ids) if id in lives}

    def trace(self) -> Trace:
        """The latest steps, as the player reads them."""
        look, steps, lives = self.look(self._look.next - TRACE_STEPS)
        steps, s = steps[-TRACE_STEPS:], self.engine.scheduler
        first = look.next - len(steps)
        return Trace(s.policy, s.slots, s.pool.total, s.pool.block_size, tuple(lives.values()), tuple(step for _, step in steps), "second", first)


_runnings: dict[str, Running] = {}  # the one asked for last at the end
_alive: WeakSet[Running] = WeakSet()  # those whose thread has not ended, closed ones too
_numbers = count()  # of all requests, so that each is known by its number alone
_making = threading.Lock()


def running(id: str = "") -> Running:
    """The engine of a model in this process, made at the first call. Raises UnknownName, or the ModelError of its files; for a
    quantized model BadInput where its scheme does not fit, and Busy where KEPT_QUANTIZED others are at work."""
    id = id or shared().default
    with _making:
        if found := _runnings.pop(id, None):
            _runnings[id] = found
            return found
    model = shared().get(id)  # takes a while, so nobody is kept from the engines that are there
    with _making:
        if id not in _runnings:
            if unquantized(id) != id:
                _make_room()
            _runnings[id] = Running(model)
        return _runnings[id]


def _make_room() -> None:
    """For one more quantized model: the longest unused engine of those leaves that has nothing to do."""
    names = [name for name in _runnings if unquantized(name) != name]
    idle = [name for name in names if not _runnings[name].engine.busy]
    if len(names) < KEPT_QUANTIZED:
        return
    if not idle:
        raise _runnings[names[0]].busy()
    _runnings.pop(idle[0]).close(Unavailable("unavailable", reason="its place went to another model", reason_zh="位置让给了另一个模型"))


def everyone() -> list[Running]:
    """The engines of this process."""
    return list(_runnings.values())


def mend() -> bool:
    """Starts threads again that ended by themselves. False where a step hangs, which only another process can help."""
    for one in everyone():
        one.mend()
    return not any(one.stuck for one in everyone())


def close_all(error: LabError) -> None:
    """Ends them all; who asks for one later gets a new one."""
    with _making:
        closed = everyone()
        _runnings.clear()
    for one in closed:
        one.close(error)


@atexit.register
def leave(seconds: float = 2.0) -> None:
    """At the end of the process, whoever started it: one that exits while a thread of its own is inside torch aborts."""
    engines = list(_alive)
    for one in engines:
        one.close(Unavailable("unavailable", reason="it is shutting down", reason_zh="正在关闭"))
    for one in engines:
        one.thread.join(seconds)
