"""A recomputation that goes on beside the page: jobs one after the other through the compute service, outcomes as they come.

The page looks at it about once a second. What was found before a cancel stays.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass

from compute import measures, precompute, verify
from compute.errors import LabError
from compute.service import client

JOB_SECONDS = 120.0  # what the service gives one call
ABANDONED_SECONDS = 150.0  # nobody looked for so long: the learner has left (a tab in the background looks once a minute)
TRIES, PAUSE_SECONDS = 5, 2.0  # when the service is busy


def batches(keys: list[str]) -> list[tuple[str, ...]]:
    """What is asked of the service at once: all claims together, every other job by itself. Only what belongs to these keys."""
    wanted, claims, others = set(keys), [], []
    for job in measures.jobs():
        if wanted & set(job.keys):
            claims.extend(job.keys) if job.measure == "claims" else others.append(job.keys)
    return [tuple(claims)] * bool(claims) + others


@dataclass(frozen=True)
class Standing:
    """Where a recomputation stands: keys done and in all, those that are running now with the share that is done."""

    done: int
    total: int
    now: tuple[str, ...]
    fraction: float
    running: bool
    error: LabError | None


class Recomputation:
    """Begins at once, in a thread. Nothing here may touch the page."""

    def __init__(self, keys: list[str], learner: str):
        self._batches, self._learner = batches(keys), learner
        self.found: dict[str, tuple[dict, verify.Row]] = {}  # key → the stored entry and how it compares
        self._now: tuple[str, ...] = ()
        self._done, self._fraction, self._error = 0, 0.0, None
        self._stop, self._looked_at = threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._work, name="recomputation", daemon=True)
        self._thread.start()

    def look(self) -> Standing:
        self._looked_at = time.monotonic()
        running = self._thread.is_alive() and not self._stop.is_set()
        return Standing(self._done, sum(map(len, self._batches)), self._now, self._fraction, running, self._error)

    def cancel(self) -> None:
        self._stop.set()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _work(self) -> None:
        try:
            for keys in self._batches:
                self._now, self._fraction = keys, 0.0
                if not self._ask(keys):
                    return
                self._done += len(keys)
        except LabError as error:
            self._error = error
        finally:
            self._now = ()

    def _ask(self, keys: tuple[str, ...]) -> bool:
        """Whether the answer came: false when it was cancelled first."""
        for rest in reversed(range(TRIES)):
            try:
                return self._listen(keys)
            except LabError as error:
                if error.code not in ("busy", "rate_limited") or not rest:
                    raise
                if self._stop.wait(min(error.values["retry_after"], PAUSE_SECONDS)):
                    return False
        return False

    def _listen(self, keys: tuple[str, ...]) -> bool:
        with closing(client.run("verify.recompute", {"keys": list(keys)}, timeout=JOB_SECONDS, learner=self._learner)) as events:
            for event in events:
                if self._stop.is_set() or time.monotonic() - self._looked_at > ABANDONED_SECONDS:
                    return False
                if isinstance(event, client.Progress):
                    self._fraction = event.fraction
                else:
                    self._compare(event.value["numbers"])
        return True

    def _compare(self, numbers: list[dict]) -> None:
        """With the file as it is now, on this side: the service may run on another machine with another copy."""
        entries = precompute.stored()
        for each in numbers:
            new = verify.Again(**each)
            if new.key in entries:
                self.found[new.key] = entries[new.key], verify.judge(new.key, entries[new.key], new)
