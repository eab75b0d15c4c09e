"""What travels between the service and its clients, and how it looks as lines of JSON.

A run answers with events, one JSON object a line: any number of `{"progress": …}`, then exactly one
`{"result": …, "conditions": …}` or `{"error": …}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from compute.errors import LabError

VERSION = "1"  # of this wire format; /healthz states it
EVENT_TYPE = "application/x-ndjson"
ADDRESS_VARIABLE = "INFERENCE_LAB_ADDRESS"  # where functions of the service's process read at which base URL it listens
LONGEST_LINE = 64 * 2**20  # bytes; a longer line is not ours


class NotOurs(ValueError):
    """The other side sent something that is not an event of this protocol."""


@dataclass(frozen=True)
class Progress:
    """fraction 0…1 of the work done; seconds since the call was accepted; waiting = jobs still ahead in the queue; partial: what is
    known of the result so far, as JSON data, or None where there is nothing new (not: nothing any more)."""

    fraction: float
    note: str
    seconds: float
    waiting: int = 0
    partial: Any = None


@dataclass(frozen=True)
class Conditions:
    """Under which a live number came about. seconds: of the work alone, without waiting; date: ISO, UTC."""

    device: str
    machine: str
    python: str
    torch: str | None
    threads: int | None
    seed: int | None
    seconds: float
    date: str


@dataclass(frozen=True)
class Result:
    value: dict[str, Any]
    conditions: Conditions


Event = Progress | Result | LabError


@dataclass(frozen=True)
class Status:
    """How the service is. When it is down only `address` and the reasons say something."""

    up: bool
    address: str
    reason: str = ""
    reason_zh: str = ""
    version: str = ""
    pid: int = 0
    uptime_seconds: float = 0.0
    device: str = ""  # "loading" until torch is there, "none" when it could not be loaded
    machine: str = ""
    torch: str | None = None
    models_known: tuple[str, ...] = ()
    models_loaded: tuple[str, ...] = ()
    running: int = 0
    waiting: int = 0


def plain(value: Any) -> Any:
    """The value as JSON gives it back (tuples become lists), so that every way of calling returns the same.

    Raises ValueError or TypeError for what JSON cannot carry; not-a-number and infinity belong to that.
    """
    return json.loads(json.dumps(value, allow_nan=False))


def encode(event: Event) -> bytes:
    """One line, newline included. Raises ValueError for a result that JSON cannot carry (see `plain`)."""
    if isinstance(event, LabError):  # whatever its values are, the error itself must get through
        return json.dumps({"error": event.to_json()}, separators=(",", ":"), default=_nearest).encode() + b"\n"
    match event:
        case Progress():
            body = {"progress": {name: value for name, value in vars(event).items() if name != "partial" or value is not None}}
        case Result(value, conditions):
            body = {"result": value, "conditions": asdict(conditions)}
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _nearest(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)  # numpy and torch scalars, paths


def decode(line: bytes) -> Event:
    """Raises NotOurs with the beginning of the line."""
    try:
        body = json.loads(line)
        match body:
            case {"progress": progress}:
                return Progress(**progress)
            case {"result": dict(value), "conditions": conditions}:
                return Result(value, Conditions(**conditions))
            case {"error": error}:
                return LabError.from_json(error)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as wrong:
        raise NotOurs(f"not an event: {line[:80]!r}") from wrong
    raise NotOurs(f"not an event: {line[:80]!r}")


def status_from(body: Any, address: str) -> Status:
    """Reads /healthz. Raises NotOurs when the answer is somebody else's."""
    try:
        status = Status(**{**body, "address": address})
    except TypeError as wrong:
        raise NotOurs(f"not our health report: {str(body)[:80]}") from wrong
    if status.version != VERSION:
        raise NotOurs(f"wire format {status.version!r} there, {VERSION!r} here")
    return status


LIVE_VERSION = 1  # of the live engine's snapshots


def live_from(body: bytes) -> dict[str, Any]:
    """Reads what /live and its neighbours answer. Raises NotOurs for anything else."""
    try:
        answer = json.loads(body)
        if answer["version"] == LIVE_VERSION:
            return answer
    except (ValueError, TypeError, KeyError, RecursionError) as wrong:
        raise NotOurs(f"not of the live engine: {body[:80]!r}") from wrong
    raise NotOurs(f"live version {answer['version']!r} there, {LIVE_VERSION!r} here")


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines out of chunks cut anywhere. Raises NotOurs for an endless line or a last line cut short."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        yield from (line for line in whole if line)
        if len(rest) > LONGEST_LINE:
            raise NotOurs(f"a line of more than {LONGEST_LINE} bytes")
    if rest:
        raise NotOurs(f"the last line is cut short: {rest[:80]!r}")
