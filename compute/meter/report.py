"""What a run of the meter found, as one record that pages, files and the command line share.

    {"version": 1, "endpoint": {"name", "url", "model"},
     "plan": {"loop", "concurrency", "rate", "requests", "prompt_tokens", "output_tokens", "warmup", "seed", "ttft_target", "tpot_target"},
     "started": ISO, UTC, "seconds": how long it measured, "done": false while it runs and where it was stopped,
     "stopped": null | "cancelled" | "time" | "failing", "warming": true before the first measured request,
     "requests": [{"id", "sent", "first", "last", "prompt_tokens", "output_tokens", "counted_by", "chunks", "ok", "late", "cached"}, …],
     "running": [{"id", "sent", "first", "chunks"}, …]: under way,
     "errors": [{"id", "sent", "at", "kind", "says": {"zh", "en"}}, …],
     "summary": {"done", "failed", "ttft", "tpot", "gap", "latency", "late": each {"p50", "p90", "p99", "mean", "n"},
                 "tokens_per_second", "requests_per_second", "goodput", "good_share", "tokens_per_chunk"},
     "conditions": {…}}

Requests stand in the order in which they ended. Times are seconds on the meter's own clock since the first measured request could be sent; what came before, to warm up, is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from compute.errors import BadInput

VERSION = 1
PLACES = 6  # of a second: a microsecond is far below what a meter on the other end of a socket can tell
MOST_REQUESTS = 10_000
MOST_TOKENS = 32_768
PARTIAL_CHUNKS = 2_000  # arrival times in a report of a run that goes on

Loop = Literal["closed", "open"]
CountedBy = Literal["usage", "chunks"]
Kind = Literal["refused", "connect", "http", "stalled", "closed", "garbage", "endless", "empty"]


@dataclass(frozen=True)
class Endpoint:
    name: str
    url: str
    model: str


@dataclass(frozen=True)
class Plan:
    """closed: `concurrency` requests at a time, the next as one ends. open: requests at random moments, `rate` a second (Poisson),
    whether or not others have ended. Targets in seconds."""

    loop: Loop = "closed"
    concurrency: int = 4
    rate: float = 2.0
    requests: int = 32
    prompt_tokens: int = 64
    output_tokens: int = 32
    warmup: int = 2
    seed: int = 0
    ttft_target: float = 1.0
    tpot_target: float = 0.05

    def __post_init__(self):
        if self.loop not in ("closed", "open"):
            raise BadInput("loop", self.loop, "it must be closed or open", "只能是 closed 或 open")
        for name, least, most in (("concurrency", 1, 1_000), ("requests", 1, MOST_REQUESTS), ("prompt_tokens", 1, MOST_TOKENS),
                                  ("output_tokens", 1, MOST_TOKENS), ("warmup", 0, 1_000)):  # fmt: skip
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise BadInput(name, value, f"a whole number from {least} to {most} is needed", f"要填 {least} 到 {most} 的整数")
        for name in ("rate", "ttft_target", "tpot_target"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
                raise BadInput(name, value, "more than 0 is needed", "要大于 0")


@dataclass(frozen=True)
class Measured:
    """A request that was answered to its end. sent: its first byte left; first, last: arrival of the first and of the last chunk with
    text (last: or of the word that the text has ended, where that came later); chunks: arrival of each chunk with text.
    output_tokens: by the server's own count (usage), else by counting chunks, which is a lower bound. late: behind the moment at
    which it was due. cached: prompt tokens that the server says it had in its cache."""

    id: int
    sent: float
    first: float
    last: float
    prompt_tokens: int | None
    output_tokens: int
    counted_by: CountedBy
    chunks: tuple[float, ...]
    late: float = 0.0
    cached: int | None = None

    @property
    def ttft(self) -> float:
        return self.first - self.sent

    @property
    def tpot(self) -> float | None:
        """Mean time of a token after the first; None where there is no second one."""
        return (self.last - self.first) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    @property
    def latency(self) -> float:
        return self.last - self.sent

    @property
    def gaps(self) -> list[float]:
        """Between chunks with text. Where a chunk carries several tokens, this is not the time of one."""
        return [after - before for before, after in zip(self.chunks, self.chunks[1:])]

    def good(self, plan: Plan) -> bool:
        return self.ttft <= plan.ttft_target and (self.tpot is None or self.tpot <= plan.tpot_target)


@dataclass(frozen=True)
class Failed:
    """A request that was not. says: one sentence in each language."""

    id: int
    sent: float
    at: float
    kind: Kind
    says: dict[str, str]


@dataclass(frozen=True)
class Underway:
    """A request that has not ended."""

    id: int
    sent: float
    first: float | None
    chunks: tuple[float, ...]


@dataclass(frozen=True)
class Spread:
    """Percentiles with linear interpolation between order statistics; null where there is nothing."""

    p50: float | None
    p90: float | None
    p99: float | None
    mean: float | None
    n: int


@dataclass(frozen=True)
class Summary:
    """goodput: requests a second that met both targets; good_share: of all that ended, failed ones too. tokens_per_chunk: tokens that
    usage counted over chunks with text, null without usage."""

    done: int
    failed: int
    ttft: Spread
    tpot: Spread
    gap: Spread
    latency: Spread
    late: Spread
    tokens_per_second: float | None
    requests_per_second: float | None
    goodput: float | None
    good_share: float | None
    tokens_per_chunk: float | None


def percentile(values: Sequence[float], share: float) -> float:
    """values sorted, at least one; share 0…1. Position (n − 1) · share among them, linear in between (Hyndman and Fan 1996, type 7)."""
    position = (len(values) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (position - below)


def spread(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread(None, None, None, None, 0)
    return Spread(*(percentile(ordered, share) for share in (0.5, 0.9, 0.99)), math.fsum(ordered) / len(ordered), len(ordered))


def summary(plan: Plan, requests: Sequence[Measured], failed: int, seconds: float) -> Summary:
    """seconds: the time over which rates are taken. Gaps are those of all chunks of all requests, so long answers count for more."""
    per_second = (lambda amount: amount / seconds) if seconds > 0 else (lambda amount: None)
    good = sum(request.good(plan) for request in requests)
    counted = [request for request in requests if request.counted_by == "usage"]
    return Summary(
        done=len(requests),
        failed=failed,
        ttft=spread(request.ttft for request in requests),
        tpot=spread(tpot for request in requests if (tpot := request.tpot) is not None),
        gap=spread(gap for request in requests for gap in request.gaps),
        latency=spread(request.latency for request in requests),
        late=spread(request.late for request in requests),
        tokens_per_second=per_second(sum(request.output_tokens for request in requests)),
        requests_per_second=per_second(len(requests)),
        goodput=per_second(good),
        good_share=good / (len(requests) + failed) if requests or failed else None,
        tokens_per_chunk=sum(r.output_tokens for r in counted) / chunks if (chunks := sum(len(r.chunks) for r in counted)) else None,
    )


@dataclass(frozen=True)
class Report:
    endpoint: Endpoint
    plan: Plan
    started: str
    seconds: float
    done: bool
    requests: Sequence[Measured]
    errors: Sequence[Failed]
    conditions: dict[str, Any]
    running: Sequence[Underway] = field(default_factory=tuple)
    stopped: Literal["cancelled", "time", "failing"] | None = None
    warming: bool = False

    def to_json(self) -> dict[str, Any]:
        return self._json(0)

    def partial(self) -> dict[str, Any]:
        """The same, small, for a run that goes on: of what is under way the newest arrival times, and those of the newest requests;
        the others have "chunks": []. The spread of gaps is that of the requests that have theirs."""
        running = [replace(one, chunks=one.chunks[-PARTIAL_CHUNKS // len(self.running) :]) for one in self.running]
        room, bare = PARTIAL_CHUNKS - sum(len(one.chunks) for one in running), len(self.requests)
        while bare and room >= len(self.requests[bare - 1].chunks):
            bare -= 1
            room -= len(self.requests[bare].chunks)
        return replace(self, running=running)._json(bare)

    def _json(self, bare: int) -> dict[str, Any]:
        """bare: of so many requests, the oldest, the chunks are left out."""
        found = summary(self.plan, self.requests, len(self.errors), self.seconds)
        if bare:
            found = replace(found, gap=spread(gap for one in self.requests[bare:] for gap in one.gaps))
        requests = [record(one) | {"ok": True} for one in self.requests]
        for row in requests[:bare]:
            row["chunks"] = []
        return {
            "version": VERSION, "endpoint": record(self.endpoint), "plan": record(self.plan), "started": self.started,
            "seconds": plain(self.seconds), "done": self.done, "stopped": self.stopped, "warming": self.warming, "requests": requests,
            "running": [record(one) for one in self.running], "errors": [record(one) for one in self.errors],
            "summary": record(found), "conditions": self.conditions,
        }  # fmt: skip


def record(one: Any) -> dict[str, Any]:
    return {name: plain(value) for name, value in vars(one).items()}


def plain(value: Any) -> Any:
    match value:
        case float():
            return round(value, PLACES)
        case tuple() | list():
            return [plain(one) for one in value]
        case Spread():
            return record(value)
    return value
