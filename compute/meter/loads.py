"""Many requests: `concurrency` at a time (closed loop), or at random moments that do not wait for answers (open loop).

Before: one request that finds out how the server is spoken to and how long its tokens are, then `warmup` requests of the
plan's size. None of them is in the figures.
"""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from random import Random
from time import perf_counter
from typing import Any

from compute.meter import wire
from compute.meter.answers import shown
from compute.meter.client import Asking, Dialect, Patience, Target, ask, first_model
from compute.meter.failures import Why
from compute.meter.prompts import Prompts
from compute.meter.report import Endpoint, Failed, Measured, Plan, Report, record, spread

TELL_SECONDS = 0.5
PROBE_PROMPT, PROBE_TOKENS = 64, 8  # until a server has counted, nobody knows how long a prompt is for it
MOST_TRIES = 8  # to find out what a server refuses
FUTILE = 8  # failures with no success, beyond one a worker: then the run ends
LONGEST_WAIT = 5.0  # seconds that a worker waits because it was asked to come back later

Tell = Callable[[Report], None]


class Run:
    """One run of the meter. Not for use twice."""

    def __init__(self, target: Target, plan: Plan, patience: Patience = Patience(), seconds: float = 0.0, tell: Tell | None = None):
        """seconds: after so many the run ends with what there is; 0 for no limit. tell: hears how it stands twice a second."""
        self.target, self.plan, self.patience, self.seconds, self.tell = target, plan, patience, seconds, tell
        self.stop = asyncio.Event()
        self.why_stopped: str | None = None
        self.dialect = Dialect(target.api or "completions")
        self.prompts = Prompts(secrets.token_hex(4), plan.seed, plan.prompt_tokens)
        self.requests: list[Measured] = []
        self.errors: list[Failed] = []
        self.running: dict[int, Asking] = {}
        self.started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None  # of the machine that the meter runs on
        self.lags = array("f")
        self.zero = perf_counter()
        self.ended: float | None = None
        self.warming, self.counts, self.server, self.fingerprint = True, False, "", ""

    def end(self, why: str) -> None:
        """Stops sending and hangs up on what is under way."""
        if self.ended is None and self.why_stopped is None:
            self.why_stopped = why
        self.stop.set()

    async def measure(self) -> Report:
        """Everything, until all requests have ended or `end` is called."""
        begun = perf_counter()
        async with wire.pool(self.lags) as self.pool:
            work = asyncio.ensure_future(self._work())
            stopped = asyncio.ensure_future(self.stop.wait())
            try:
                while not work.done() and not self.stop.is_set():
                    left = self.seconds - (perf_counter() - begun) if self.seconds else TELL_SECONDS
                    if left <= 0:
                        self.end("time")
                    await asyncio.wait({work, stopped}, timeout=min(max(left, 0.0), TELL_SECONDS), return_when=asyncio.FIRST_COMPLETED)
                    if self.tell and not work.done():
                        self.tell(self.report())
                if work.done():
                    work.result()
            finally:
                self.ended = perf_counter()
                for task in (work, stopped):
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
        return self.report(done=self.why_stopped is None)

    async def _work(self) -> None:
        if not await self._acquaint():
            self.end("failing")
            return
        await self._closed(range(-self.plan.warmup, 0), counted=False)
        self.warming, self.zero = False, perf_counter()
        self.started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        await (self._closed(range(self.plan.requests)) if self.plan.loop == "closed" else self._open())

    # ---- before

    async def _acquaint(self) -> bool:
        """Finds model, protocol and parameters by asking. False where that failed, with the row that says why."""
        asking, unheard, probing = Asking(0, perf_counter()), None, self.prompts.of(min(PROBE_PROMPT, self.plan.prompt_tokens))
        try:
            if not self.target.model:
                self.target = replace(self.target, model=await first_model(self.pool, self.target, self.patience))
        except Why as why:
            asking.why, asking.ended = why, perf_counter()
            asking.keep(self.target)
        for _ in range(MOST_TRIES):
            if asking.why:
                break
            asking = Asking(0, perf_counter())
            prompt = probing[-self.plan.warmup - 1]
            await ask(self.pool, self.target, self.dialect, asking, prompt, min(PROBE_TOKENS, self.plan.output_tokens), self.patience)
            other = asking.why and self.dialect.without(asking.why, self.target.api is None)
            if not other:
                break
            if other.api != self.dialect.api:
                unheard = asking.why
            self.dialect, asking.why = other, None
        if asking.why and asking.why.status in (404, 405, 501) and unheard:  # it has neither: then what it said first is the reason
            asking.why = unheard
        self.server, self.fingerprint = asking.server, shown(asking.fingerprint)
        if asking.why and asking.why.kind != "empty":  # a few tokens may well be an end, or half a character
            self.errors.append(asking.measured(self.zero))
            return False
        if asking.usage and asking.usage.prompt:
            self.counts = True
            self.prompts = self.prompts.corrected(prompt, asking.usage.prompt)
        return True

    # ---- the loops

    async def _one(self, id: int, due: float, counted: bool) -> Asking:
        asking = self.running[id] = Asking(id, due)
        try:
            await ask(self.pool, self.target, self.dialect, asking, self.prompts[id], self.plan.output_tokens, self.patience)
        finally:
            del self.running[id]
        if counted:
            found = asking.measured(self.zero)
            (self.errors if isinstance(found, Failed) else self.requests).append(found)
            if not self.requests and len(self.errors) >= FUTILE + self.plan.concurrency:
                self.end("failing")
        return asking

    async def _closed(self, ids: range, counted: bool = True) -> None:
        left = iter(ids)

        async def worker() -> None:
            for id in left:
                asking = await self._one(id, perf_counter(), counted)
                if asking.why and asking.why.status in (429, 503):  # whoever is turned away and comes back at once only makes it worse
                    await asyncio.sleep(min(1.0 if asking.why.wait is None else asking.why.wait, LONGEST_WAIT))

        await together([worker() for _ in range(min(self.plan.concurrency, len(ids)))])

    async def _open(self) -> None:
        """Moments that are drawn beforehand: a slow server gets no fewer requests, and the load does not depend on its answers."""
        random, due = Random(self.plan.seed), 0.0
        async with asyncio.TaskGroup() as group:
            for id in range(self.plan.requests):
                due += random.expovariate(self.plan.rate)
                await asyncio.sleep(self.zero + due - perf_counter())
                group.create_task(self._one(id, self.zero + due, True))

    # ---- what is known

    def report(self, done: bool = False) -> Report:
        now = self.ended or perf_counter()
        if done:  # the last thing that happened; looking for it took no time
            now = max([self.zero, *(self.zero + one.last for one in self.requests), *(self.zero + one.at for one in self.errors)])
        seconds = 0.0 if self.warming else now - self.zero
        endpoint = Endpoint(self.target.name, self.target.url, self.target.model)
        under = [asking.underway(self.zero) for id, asking in sorted(self.running.items()) if id >= 0]
        return Report(endpoint, self.plan, self.started, seconds, done, list(self.requests), list(self.errors), self.conditions(), under, self.why_stopped, self.warming and not done)

    def conditions(self) -> dict[str, Any]:
        """What a reader of the figures has to know."""
        options = [name for name, _ in self.dialect.options]
        return {
            "api": self.dialect.api, "usage": self.counts, "ignore_eos": "ignore_eos" in options, "temperature": 0 if "temperature" in options else None,
            "characters_per_token": round(self.prompts.characters_per_token, 3), "characters_per_token_from": "usage" if self.counts else "guess",
            "run": self.prompts.run, "server": self.server, "fingerprint": self.fingerprint, "clock": "kernel" if self.lags else "process",
            "python": platform.python_version(), "cores": os.cpu_count(), "load_average": self.load, "read_late": record(spread(self.lags)) if self.ended else None,
        }  # fmt: skip


async def together(work: list[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
