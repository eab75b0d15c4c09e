"""A story in KV memory, told twice: requests that each reserve their maximum in one contiguous span, and the same requests
in pages. Who owns which cell is compute.paging's business; here is only who comes, writes and goes.

Events are a short text that a link can carry, "g,g3,f2,a12.4":
  g, g3         every request that runs writes one token, or three
  f2            request 2 has finished
  a12, a12.4    a request arrives that may need up to 12 cells; its prompt has 4 (without a figure: 4, or all when fewer)

One rule for both: an arriving request enters if it fits; otherwise it waits, and all that wait are tried again, in order of
arrival, when one has finished. Pages that run out push the youngest request out: it gives its blocks back and waits, and
what it wrote is computed again when it returns (Kwon et al. 2023, §4.5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from compute.errors import BadInput
from compute.paging import BlockPool, Contiguous, Fill, NoHole, Table, fill

PROMPT = 4  # cells of a prompt that no figure was given for
MOST_EVENTS, MOST_TOKENS = 99, 999
EVENT = re.compile(r"g(\d{0,3})|f(\d{1,3})|a(\d{1,4})(?:\.(\d{1,4}))?")


@dataclass(frozen=True)
class Request:
    """maximum: cells it may need. cells: of them, those that it will have written when it finishes by itself; None: it goes on
    until an event says that it has finished, or the maximum is reached."""

    number: int
    maximum: int
    prompt: int
    cells: int | None = None


@dataclass(frozen=True)
class Event:
    """n: tokens to write, the request that has finished, or the maximum of the one that arrives."""

    kind: Literal["generate", "finish", "arrive"]
    n: int
    prompt: int = 0


def parse(text: str, cells: int) -> tuple[Event, ...]:
    """The events of a text. cells: the memory's, which no request may exceed. Raises BadInput with the first that is wrong."""
    parts = [part.strip().lower() for part in text.split(",") if part.strip()]
    if len(parts) > MOST_EVENTS:
        raise BadInput("events", f"{len(parts)}×", f"at most {MOST_EVENTS} events are told", f"至多 {MOST_EVENTS} 步")
    return tuple(_event(part, cells) for part in parts)


def _event(part: str, cells: int) -> Event:
    found = EVENT.fullmatch(part)
    if not found:
        raise BadInput("events", part, "an event is g, g3, f2, a12 or a12.4", "事件只能写成 g、g3、f2、a12 或 a12.4")
    tokens, finished, maximum, prompt = found.groups()
    if finished:
        return Event("finish", int(finished))
    if maximum:
        most = int(maximum)
        if not 1 <= most <= cells:
            raise BadInput("events", part, f"a request needs 1 to {cells} cells here", f"这里的请求只能要 1 到 {cells} 格")
        if not 1 <= (first := int(prompt) if prompt else min(PROMPT, most)) <= most:
            raise BadInput("events", part, f"its prompt has 1 to {most} cells", f"它的提示只能有 1 到 {most} 格")
        return Event("arrive", most, first)
    if not 1 <= (count := int(tokens or 1)) <= MOST_TOKENS:
        raise BadInput("events", part, f"1 to {MOST_TOKENS} tokens at a time", f"一次写 1 到 {MOST_TOKENS} 个 token")
    return Event("generate", count)


def text(events: Iterable[Event]) -> str:
    """The shortest text that parse understands."""

    def one(event: Event) -> str:
        if event.kind == "generate":
            return "g" if event.n == 1 else f"g{event.n}"
        if event.kind == "finish":
            return f"f{event.n}"
        return f"a{event.n}" if event.prompt == min(PROMPT, event.n) else f"a{event.n}.{event.prompt}"

    return ",".join(map(one, events))


# ---- what is seen after each event


@dataclass(frozen=True)
class Held:
    """A request that runs. span: (start, length) of its cells; blocks: its block table. One of the two is there."""

    number: int
    written: int
    span: tuple[int, int] = ()
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Side:
    """One of the two memories. Cells: written hold a token, taken belong to somebody, of `total`. waiting: each with what it
    needs (cells). longest: cells that could be handed to one request. entered, left, pushed: at this event."""

    held: tuple[Held, ...]
    fill: Fill
    longest: int
    waiting: tuple[tuple[int, int], ...]
    entered: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    pushed: tuple[int, ...] = ()

    @property
    def free(self) -> int:
        return self.fill.total - self.fill.taken

    @property
    def internal(self) -> int:
        """Cells that somebody owns and nobody has written."""
        return self.fill.taken - self.fill.written

    @property
    def external(self) -> int:
        """Free cells that would be enough for a waiting request, were they in one piece."""
        return self.free if any(self.longest < wanted <= self.free for _, wanted in self.waiting) else 0

    @property
    def of_all(self) -> float:
        """Cells that hold a token, of all."""
        return self.fill.written / self.fill.total

    def refused(self, number: int) -> NoHole | None:
        """Why a request waits; None when it does not."""
        return next((NoHole(wanted, self.free, self.longest) for waits, wanted in self.waiting if waits == number), None)

    def holds(self, number: int) -> Held | None:
        return next((held for held in self.held if held.number == number), None)


@dataclass(frozen=True)
class Moment:
    event: Event | None  # None at the start
    reserved: Side
    paged: Side


def tell(cells: int, block: int, requests: tuple[Request, ...], events: Iterable[Event]) -> tuple[Moment, ...]:
    """The moments of a story: the start, at which `requests` have just arrived, and the one after each event. block: cells of
    a page; cells that make no whole block are lost to the pages. Raises BadInput for a request that no memory can hold."""
    for request in requests:
        if request.maximum > cells:
            raise BadInput("requests", request.maximum, f"a request needs 1 to {cells} cells here", f"这里的请求只能要 1 到 {cells} 格")
    known = {request.number: request for request in requests}
    reserved, paged = _Memory(_Spans(cells)), _Memory(_Pages(cells, block))
    told = []
    for event in (None, *events):
        newcomers = requests
        if event is not None:
            newcomers = (Request(max(known, default=0) + 1, event.n, event.prompt),) if event.kind == "arrive" else ()
            known |= {request.number: request for request in newcomers}
        told.append(Moment(event, reserved.happen(event, newcomers), paged.happen(event, newcomers)))
    return tuple(told)


class _Spans:
    """Each request reserves its maximum."""

    def __init__(self, cells: int):
        self.memory = Contiguous(cells)

    def needs(self, request: Request, written: int) -> int:
        return request.maximum

    def longest(self) -> int:
        return max((hole.length for hole in self.memory.holes()), default=0)

    def enter(self, request: Request, written: int) -> bool:
        if isinstance(self.memory.reserve(request.number, request.maximum), NoHole):
            return False
        self.memory.write(request.number, written)
        return True

    def has_room(self, number: int) -> bool:
        return True

    def write(self, number: int) -> None:
        self.memory.write(number)

    def leave(self, number: int) -> None:
        self.memory.release(number)

    def held(self) -> list[Held]:
        return [Held(number, span.written, span=(span.start, span.length)) for number, span in self.memory.spans.items()]

    def fill(self) -> Fill:
        return self.memory.fill()


class _Pages:
    """Each request gets the blocks that it writes to."""

    def __init__(self, cells: int, block: int):
        self.cells, self.pool, self.tables = cells, BlockPool(cells // block, block), {}

    def needs(self, request: Request, written: int) -> int:
        return self.pool.blocks_for(written) * self.pool.block_size

    def longest(self) -> int:
        return self.pool.free * self.pool.block_size

    def enter(self, request: Request, written: int) -> bool:
        table = Table()
        if self.pool.missing(table, written) > self.pool.free:
            return False
        self.pool.extend(table, written)
        self.tables[request.number] = table
        return True

    def has_room(self, number: int) -> bool:
        return self.pool.missing(self.tables[number], 1) <= self.pool.free

    def write(self, number: int) -> None:
        self.pool.extend(self.tables[number], 1)

    def leave(self, number: int) -> None:
        self.pool.release(self.tables.pop(number))

    def held(self) -> list[Held]:
        return [Held(number, table.written, blocks=tuple(table.blocks)) for number, table in self.tables.items()]

    def fill(self) -> Fill:
        found = fill(self.pool, self.tables.values())
        return Fill(found.written, found.taken, self.cells)


class _Memory:
    """Who runs and who waits in one of the two."""

    def __init__(self, place: _Spans | _Pages):
        self.place = place
        self.requests: dict[int, Request] = {}  # that have arrived and not finished
        self.written: dict[int, int] = {}  # cells of each of them, what was pushed out included
        self.running: set[int] = set()

    def happen(self, event: Event | None, newcomers: tuple[Request, ...]) -> Side:
        self.entered, self.left, self.pushed = [], [], []
        for request in newcomers:
            self.requests[request.number], self.written[request.number] = request, request.prompt
            self.enter(request)
        if event and event.kind == "finish" and event.n in self.running:
            self.finish(event.n)
            self.enter_waiting()
        if event and event.kind == "generate":
            for _ in range(event.n):
                self.generate()
        return self.seen()

    def enter(self, request: Request) -> None:
        if self.place.enter(request, self.written[request.number]):
            self.running.add(request.number)
            self.entered.append(request.number)

    def enter_waiting(self) -> None:
        for number in sorted(self.requests.keys() - self.running):
            self.enter(self.requests[number])

    def finish(self, number: int) -> None:
        self.place.leave(number)
        self.running.remove(number)
        del self.requests[number], self.written[number]
        self.left.append(number)

    def push_out(self, number: int) -> None:
        self.place.leave(number)
        self.running.remove(number)
        self.pushed.append(number)

    def make_room(self, number: int) -> bool:
        """Pushes out the youngest until this one can write; it may be the youngest itself."""
        while not self.place.has_room(number) and len(self.running) > 1:
            self.push_out(max(self.running))
            if number not in self.running:
                return False
        return self.place.has_room(number)

    def generate(self) -> None:
        """One token for each that runs, the oldest first."""
        for number in sorted(self.running):
            if number in self.running and self.written[number] < self.requests[number].maximum and self.make_room(number):
                self.place.write(number)
                self.written[number] += 1
        done = [number for number in sorted(self.running) if self.written[number] == self.requests[number].cells]
        for number in done:
            self.finish(number)
        if done:
            self.enter_waiting()

    def seen(self) -> Side:
        waiting = tuple((n, self.place.needs(self.requests[n], self.written[n])) for n in sorted(self.requests.keys() - self.running))
        held = tuple(sorted(self.place.held(), key=lambda held: held.number))
        return Side(held, self.place.fill(), self.place.longest(), waiting, tuple(self.entered), tuple(self.left), tuple(self.pushed))
