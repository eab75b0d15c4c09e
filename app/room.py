"""The class's room: where the teacher is, for everybody who follows. One in the web process, in memory, so it ends with it.

A teacher takes the room and shows a place in it: page, step, settings of the instruments. Whoever follows asks what is new since the
version it knows, and hears of it as soon as there is something. The room is held by a lease that every sign of life renews and that
ends with silence, so a closed laptop does not block the next lesson.

Nothing here knows HTTP or Streamlit; times are seconds of `clock`.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Callable, Literal, Mapping

from components import controls, widgets

LEASE_S = 20.0  # of silence, after which the room is free
GUESS_S = 1.0  # that each attempt at the password costs whoever makes it
WAITING_GUESSES = 8  # of one client
MOST_GUESSING = 32  # clients at once
REMEMBERED = 64  # teachers that gave the password
MOST_PARAMETERS = 80
LONGEST_VALUE = 120  # characters
STEP = re.compile(r"[a-z0-9-]{1,60}(\.[0-9]{1,3})?")
NAME = re.compile(r"([a-z][a-z0-9-]*)(\.[0-9]{1,2})?\.([a-z_][a-z0-9_]*)")
VALUE = re.compile(r"[^\x00-\x1f\x7f]*")

State = Literal["waiting", "on", "stopped"]


class Refused(Exception):
    """Why not, as one of the words `busy`, `password`, `wrong`, `place`, `lost`."""


@dataclass(frozen=True)
class Place:
    """A page by its slug ("" is the contents), the step shown on it, and the settings of its instruments by their names in addresses."""

    slug: str = ""
    step: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, said: Any, slugs: list[str]) -> Place:
        """From what came over the wire. What a teacher typed stays out: only numbers and choices are settings of the class. A teacher's
        guess is nobody else's; the class hears only that the answer is open now.

        Raises Refused("place") for what is no place of this course."""
        if not isinstance(said, dict):
            raise Refused("place")
        slug, step, parameters = said.get("slug", ""), said.get("step", ""), said.get("parameters", {})
        if slug not in ("", *slugs) or not isinstance(step, str) or step and not STEP.fullmatch(step):
            raise Refused("place")
        if not isinstance(parameters, dict) or len(parameters) > MOST_PARAMETERS:
            raise Refused("place")
        kept = {}
        for name, value in parameters.items():
            if not isinstance(value, str) or len(value) > LONGEST_VALUE or not VALUE.fullmatch(value):
                raise Refused("place")
            if match := NAME.fullmatch(name):
                if match[3] == "guess" and match[1] in widgets():
                    kept[name] = "skip"
                elif _is_setting(match[1], match[3]):
                    kept[name] = value
        return cls(slug, step, kept)


def _is_setting(widget: str, name: str) -> bool:
    if widget not in widgets():
        return False
    found = [control for control in widgets()[widget].controls if control.field == name]
    return name == "t" or bool(found) and not any(isinstance(control, controls.Text) for control in found)


@dataclass(frozen=True)
class Seen:
    version: str
    state: State
    place: Place


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


@dataclass
class Lane:
    """The attempts of one client."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Room:
    """password: what a teacher must give before the first lesson; empty: whoever comes first holds the room."""

    def __init__(self, password: str = "", clock: Callable[[], float] = time.monotonic):
        self.password, self.clock = password, clock
        self.boot, self.count = secrets.token_hex(4), 0  # followers of a server that was restarted know another boot
        self.holder, self.until = "", 0.0
        self.state: State = "waiting"
        self.place = Place()
        self.teachers: OrderedDict[str, None] = OrderedDict()  # tokens that came with the password
        self.followers = 0  # who waits for news now
        self._news = asyncio.Event()
        self._lanes: dict[str, Lane] = {}  # clients that try a password

    # ---- the teacher

    async def take(self, token: str = "", password: str = "", client: str = "") -> str:
        """The token by which the room is held from now on; the same one when it was known. client: who asks, by address. Raises Refused."""
        if self.password and token not in self.teachers:
            if not password:
                raise Refused("password")
            await self._check(password, client)
            token = ""
        self.look()
        if self.state == "on" and not (token and _same(token, self.holder)):
            raise Refused("busy")
        token = token if len(token) == 32 and token.isalnum() and token.isascii() else secrets.token_hex(16)
        if self.password:
            self.teachers[token] = None
            if len(self.teachers) > REMEMBERED:
                self.teachers.popitem(last=False)
        changed = self.state != "on" or self.holder != token
        self.holder, self.until, self.state = token, self.clock() + LEASE_S, "on"
        if changed:
            self.place = Place()
        return token

    async def _check(self, password: str, client: str) -> None:
        """One attempt a second for each client, so that nobody tries a dictionary. Each waits behind its own attempts alone, so
        that nobody keeps the teacher out by trying."""
        if client not in self._lanes and len(self._lanes) >= MOST_GUESSING:
            raise Refused("wrong")
        lane = self._lanes.setdefault(client, Lane())
        if lane.waiting >= WAITING_GUESSES:
            raise Refused("wrong")
        lane.waiting += 1
        try:
            async with lane.turn:
                if not _same(password, self.password):
                    await asyncio.sleep(GUESS_S)
                    raise Refused("wrong")
        finally:
            lane.waiting -= 1
            if not lane.waiting:
                del self._lanes[client]

    def show(self, token: str, place: Place) -> Seen:
        """Also the sign of life: the same place again is no news."""
        self._require(token)
        self.until = self.clock() + LEASE_S
        if place != self.place:
            self.place = place
            self._tell()
        return self.look()

    def leave(self, token: str) -> None:
        self._require(token)
        self._stop()

    def _require(self, token: str) -> None:
        self.look()
        if self.state != "on" or not token or not _same(token, self.holder):
            raise Refused("lost")

    # ---- who follows

    def look(self) -> Seen:
        if self.state == "on" and self.clock() >= self.until:
            self._stop()
        # Until a teacher has shown a first place there is nowhere to go.
        known = self.state if self.state != "on" or self.place.step else "waiting"
        return Seen(f"{self.boot}-{self.count}", known, self.place)

    async def after(self, version: str, patience_s: float) -> Seen:
        """What there is, as soon as it is another version than the one known; after patience_s whatever there is."""
        deadline = self.clock() + patience_s
        self.followers += 1
        try:
            while (seen := self.look()).version == version and (left := deadline - self.clock()) > 0:
                if self.state == "on":
                    left = min(left, max(self.until - self.clock(), 0.01))
                try:
                    await asyncio.wait_for(self._news.wait(), left)
                except TimeoutError:
                    pass
        finally:
            self.followers -= 1
        return seen

    def _stop(self) -> None:
        self.state, self.holder = "stopped", ""
        self._tell()

    def _tell(self) -> None:
        self.count += 1
        news, self._news = self._news, asyncio.Event()
        news.set()
