"""Work in threads behind a bounded queue: started in order, watched, cancelled, limited in time. Knows no HTTP."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from compute.errors import Busy, Cancelled, LabError, TimedOut, unforeseen
from compute.service.schema import Conditions, Event, Progress, Result, plain

Report = Callable[..., None]  # (fraction, note="", partial=None)
Work = Callable[[Report, Callable[[], bool]], Any]
STUCK_SECONDS = 300.0  # beyond its limit, after which a job will not end
MOST_EVENTS = 1000  # kept for a watcher that does not look; older progress is dropped first, and of partial results all but the newest


@dataclass(frozen=True)
class Limits:
    """running and waiting: jobs; seconds: running time of one; per_minute: calls of one client; drain_seconds: what
    running jobs get at shutdown; body_bytes: the longest request."""

    running: int = 2
    waiting: int = 32
    seconds: float = 120.0
    per_minute: int = 240
    body_bytes: int = 256 * 1024
    drain_seconds: float = 3.0

    def __post_init__(self):
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name not in ("waiting", "drain_seconds")):
                raise ValueError(f"limit {name} = {value!r} is too small")


class Job:
    """One call. `wake` is called, from any thread, whenever `take` has something new."""

    def __init__(self, function: str, work: Work, wake: Callable[[], None], limit_seconds: float, seed: int | None):
        self.id = uuid.uuid4().hex
        self.function, self.work, self.wake = function, work, wake
        self.limit_seconds, self.seed = limit_seconds, seed
        self.accepted_at = time.monotonic()
        self.started_at: float | None = None
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._last = Progress(0.0, "", 0.0)
        self._end: Result | LabError | None = None

    @property
    def ended(self) -> bool:
        return self._end is not None

    def take(self) -> list[Event]:
        """What happened since the last look; the result or error is the last that ever comes."""
        with self._lock:
            events = list(self._events)
            self._events.clear()
        return events

    def report(self, fraction: float, note: str = "", partial: Any = None) -> None:
        """Given to the function. partial: the result so far. Raises Cancelled once nobody waits any more, and ValueError or
        TypeError for a partial that JSON cannot carry."""
        if self.cancelled():
            raise Cancelled()
        partial = plain(partial)
        with self._lock:
            if self._end is None:
                self._last = Progress(float(min(max(fraction, 0.0), 1.0)), str(note), self._age())
                if partial is not None:
                    self._forget_partials()
                self._events.append(replace(self._last, partial=partial))
        self.wake()

    def _forget_partials(self) -> None:
        """Of the events that nobody has looked at."""
        for at, event in enumerate(self._events):
            if isinstance(event, Progress) and event.partial is not None:
                self._events[at] = replace(event, partial=None)

    def cancelled(self) -> bool:
        """Given to the function: true once it should stop, also when its time is up."""
        self.check_time()
        return self.ended

    def check_time(self) -> None:
        if self.started_at is not None and time.monotonic() - self.started_at > self.limit_seconds:
            self.finish(TimedOut("timed_out", function=self.function, limit=self.limit_seconds))

    def beat(self, waiting: int) -> Progress:
        """Where it stands now, for a watcher that has heard nothing for a while."""
        with self._lock:
            return Progress(self._last.fraction, self._last.note, self._age(), waiting)

    def finish(self, end: Result | LabError) -> None:
        """The first end counts; what the thread brings later is dropped."""
        with self._lock:
            if self._end is not None:
                return
            self._end = end
            self._events.append(end)
        self.wake()

    def _age(self) -> float:
        return time.monotonic() - self.accepted_at


class JobQueue:
    """`limits.running` threads, first come first served. A cancelled job leaves the queue at once, or its thread as
    soon as the function asks `cancelled()`; a function that never asks keeps its thread until it returns."""

    def __init__(self, limits: Limits, conditions: Callable[[float, int | None], Conditions], name: str = "job"):
        """conditions(seconds, seed) describes the machine after a run."""
        self.limits, self._conditions, self._name = limits, conditions, name
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: dict[str, Job] = {}
        self._workers: list[threading.Thread] = []
        self._typical_seconds = 1.0  # moving mean of finished runs, for Retry-After

    def submit(self, function: str, work: Work, *, wake: Callable[[], None], seed: int | None = None) -> Job:
        """Raises Busy when the queue is full."""
        job = Job(function, work, wake, self.limits.seconds, seed)
        with self._changed:
            free = self.limits.running - len(self._running)
            if len(self._waiting) >= self.limits.waiting + max(free, 0):
                raise Busy(len(self._waiting), self._retry_after())
            if len(self._alive()) < self.limits.running:
                self._hire()
            self._waiting.append(job)
            self._changed.notify()
        return job

    def mend(self) -> bool:
        """Starts threads again that ended by themselves. False where every thread hangs, which only another process can help."""
        with self._changed:
            for _ in range(min(len(self._waiting), self.limits.running - len(self._alive()))):
                self._hire()
            latest = time.monotonic() - STUCK_SECONDS
            hung = [job for job in self._running.values() if job.started_at + job.limit_seconds < latest]
            return len(hung) < self.limits.running

    def _alive(self) -> list[threading.Thread]:
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        return self._workers

    def _hire(self) -> None:
        worker = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._workers) + 1}", daemon=True)
        worker.start()
        self._workers.append(worker)

    def cancel(self, job: Job, error: LabError | None = None) -> None:
        """Ends the job for its watcher now; harmless when it has ended."""
        job.finish(error or Cancelled())
        with self._changed:
            self._waiting = deque(other for other in self._waiting if other is not job)

    def cancel_all(self, error: LabError) -> None:
        with self._changed:
            jobs = [*self._waiting, *self._running.values()]
        for job in jobs:
            self.cancel(job, error)

    def find(self, id: str) -> Job | None:
        """A job that is waiting or running."""
        with self._changed:
            return self._running.get(id) or next((job for job in self._waiting if job.id == id), None)

    def ahead(self, job: Job) -> int:
        """Jobs that start before this one; 0 when it runs or has ended."""
        with self._changed:
            return self._waiting.index(job) + len(self._running) if job in self._waiting else 0

    def counts(self) -> tuple[int, int]:
        """(running, waiting)"""
        with self._changed:
            return len(self._running), len(self._waiting)

    def _retry_after(self) -> float:
        return float(max(1, math.ceil(self._typical_seconds * (len(self._waiting) + 1) / self.limits.running)))

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                job = self._waiting.popleft()
                job.started_at = time.monotonic()
                self._running[job.id] = job
            end = self._run(job)
            with self._changed:
                del self._running[job.id]
                seconds = time.monotonic() - job.started_at
                self._typical_seconds += 0.2 * (seconds - self._typical_seconds)
            try:
                job.finish(end)
            except Exception as error:  # its watcher's ear, which hears of it at the next look
                unforeseen(f"telling of the end of {job.function}", error)
            del job, end  # an idle thread must not keep a large result alive

    def _run(self, job: Job) -> Result | LabError:
        try:
            if job.ended:
                return Cancelled()
            value = plain(job.work(job.report, job.cancelled))
            return Result(value, self._conditions(time.monotonic() - job.started_at, job.seed))
        except LabError as error:
            return error
        except BaseException as error:  # the one boundary: a mistake in a function must not end the thread
            return unforeseen(f"running {job.function}", error)
