"""What a learner sees of the engine that everybody shares, and may ask of it. Knows no HTTP.

A snapshot, of `view`:

    {"version": 1, "model", "policy", "slots", "blocks", "block_size",
     "now": seconds on the trace's clock, "first": index of the oldest step kept, "next": `since` for the next call,
     "steps": [a Step of compute/trace.py with its "index", …],
     "sequences": [the Life of each sequence that appears in these steps, runs or waits, …],
     "mine": [ids of this learner's sequences, …],
     "queue": [{"id", "request", "mine", "prompt": tokens}, …]: those that wait, in their order,
     "tables": {"sequence id": [physical blocks]},
     "filled": [cells written, by block], "refs": [owners, by block], "cached": [free blocks that can still be found],
     "tokens_per_second": written, over the last two seconds of work, "learners": seen in the last minute,
     "conditions": what a measured number says of model and machine ("dtype", "device", "threads", …),
     "texts": [{"request", "index", "sequences": [its id; empty until it has begun], "prompt", "text", "tokens",
                "finish": "" | "stop" | "length" | "cancelled" | "error", "seconds": from sending to now or its end,
                "ttft": seconds until the first token, or null, "error": null or the error's {code, values, message}}, …]}

Of others only numbers leave the service: lengths, times, blocks. Texts are the learner's own; who names no learner has none.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from compute import functions
from compute.engine.engine import Ask
from compute.engine.running import KEPT_STEPS, Look, Request, Running, everyone, running
from compute.engine.served import ModelId, circumstances
from compute.errors import BadInput, UnknownName
from compute.sampling import Sampling
from compute.service.schema import LIVE_VERSION
from compute.trace import Life, Step, Trace

SEEN_SECONDS = 60.0
MOST_OF_ONE = 8  # unfinished requests of one learner: the queue belongs to all

Known = Annotated[str, Field(max_length=80, description="a registered model; empty: the default one")]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class View(Asked):
    model: Known = ""
    since: Annotated[int, Field(ge=0, description="index of the first step wanted")] = 0


class Send(Asked):
    text: Annotated[str, Field(min_length=1, max_length=2000, description="the text to continue")]
    max_tokens: Annotated[int, Field(ge=1, le=512)] = 64
    temperature: Annotated[float, Field(ge=0, le=10)] = 1.0
    seed: Annotated[int | None, Field(ge=0, le=2**53, description="drawn where none is given")] = None
    n: Annotated[int, Field(ge=1, le=4, description="texts, with seeds seed, seed + 1, …")] = 1
    model: Known = ""


class Cancel(Asked):
    request: int


def view(asked: dict[str, Any], learner: str) -> str:
    """A snapshot, as above. Raises BadInput, UnknownName, or the ModelError of the model's files."""
    params = functions.made(View, asked)
    engine = running(params.model)
    return snapshot(engine, params.since, learner, _class.seen(learner))


def send(asked: dict[str, Any], learner: str) -> str:
    """{"version", "request", "model", "seed"}. Raises BadInput, UnknownName, Busy, or the ModelError of the model's files."""
    params = functions.made(Send, asked)
    engine = running(params.model)
    seed = secrets.randbits(31) if params.seed is None else params.seed
    tokens = tuple(engine.model.tokenizer.encode(params.text))
    _class.seen(learner)
    if sum(not request.ended for request in engine.of(learner)) >= MOST_OF_ONE:
        raise engine.busy()
    try:
        ask = Ask(tokens, params.max_tokens, Sampling(params.temperature), seed, n=params.n)
        request = engine.submit(ask, learner=learner, prompt=params.text)
    except BadInput as error:
        raise error.named(prompt="text", max_new_tokens="max_tokens") from None
    return encode({"version": LIVE_VERSION, "request": request.number, "model": engine.model.name, "seed": seed})


def cancel(asked: dict[str, Any], learner: str) -> str:
    """Ends a request of this learner; harmless when it has ended. Raises UnknownName for anybody else's."""
    number = functions.made(Cancel, asked).request
    mine = {request.number: (engine, request) for engine in everyone() for request in engine.of(learner)}
    if number not in mine:
        raise UnknownName("request", "请求", number, [str(one) for one in sorted(mine)] or ["—"])
    engine, request = mine[number]
    engine.cancel(request)
    return encode({"version": LIVE_VERSION})


ROUTES = {"/live": view, "/live/send": send, "/live/cancel": cancel}  # (what was asked, learner) → JSON


def trace(model: ModelId = "mini-256") -> Trace:
    """What the engine that everybody shares did in its last few hundred steps, as the player replays it."""
    return running(model).trace().to_json()


# ---- a snapshot


def snapshot(engine: Running, since: int, learner: str, learners: int) -> str:
    """The JSON of a snapshot. A class looks once a second, so what is the same for all is written once."""
    look, steps, lives = engine.look(since)
    mine = engine.of(learner)
    ids = {sequence.id for request in mine for sequence in request.ticket.sequences}
    scheduler, pool = engine.engine.scheduler, engine.engine.pool
    now = engine.engine.now()
    head = encode({
        "version": LIVE_VERSION, "model": engine.model.name, "policy": scheduler.policy, "slots": scheduler.slots,
        "blocks": pool.total, "block_size": pool.block_size, "now": now, "first": look.first, "next": look.next,
        "sequences": [record(life) for life in lives.values()],
        "mine": sorted(ids),
        "queue": [{"id": id, "request": request, "mine": id in ids, "prompt": prompt} for id, request, prompt in look.queue],
        "tables": {str(id): blocks for id, blocks, _ in look.tables},
        "filled": filled(look, pool.block_size), "refs": look.refs, "cached": look.cached,
        "tokens_per_second": look.tokens_per_second, "learners": learners,
        "conditions": circumstances(engine.model),
        "texts": [text for request in mine for text in texts(request, now)],
    })  # fmt: skip
    return f'{head[:-1]},"steps":[{",".join(encoded(index, step) for index, step in steps)}]}}'


def encode(value: dict[str, Any]) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


@lru_cache(2 * KEPT_STEPS)
def encoded(index: int, step: Step) -> str:
    return encode(record(step) | {"index": index})


def record(one: Step | Life) -> dict[str, Any]:
    names, values = FIELDS[type(one)]
    return dict(zip(names, values(one)))


FIELDS = {kind: (names := [field.name for field in fields(kind)], attrgetter(*names)) for kind in (Step, Life)}


def filled(look: Look, block_size: int) -> list[int]:
    """Cells of each block that hold a token somebody can still find."""
    cells = [0] * len(look.refs)
    for block in look.cached:
        cells[block] = block_size  # only full ones are cached
    for _, blocks, written in look.tables:
        for at, block in enumerate(blocks):
            cells[block] = max(cells[block], min(max(written - at * block_size, 0), block_size))
    return cells


def texts(request: Request, now: float) -> list[dict[str, Any]]:
    """One entry for each text of a request."""
    sequences = [sequence.id for sequence in request.ticket.sequences]
    return [
        {
            "request": request.number, "index": index, "sequences": sequences[index : index + 1], "prompt": request.prompt,
            "text": writing.text, "tokens": writing.tokens, "finish": writing.finish,
            "seconds": (now if writing.ended is None else writing.ended) - request.sent,
            "ttft": None if writing.first is None else writing.first - request.sent,
            "error": request.error and request.error.to_json(),
        }
        for index, writing in enumerate(request.writings)
    ]  # fmt: skip


class Class:
    """Who was here in the last minute."""

    def __init__(self):
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def seen(self, learner: str) -> int:
        """Notes this one, and says how many there are."""
        now = time.monotonic()
        with self._lock:
            if learner:
                self._seen.pop(learner, None)
                self._seen[learner] = now
            while self._seen and now - next(iter(self._seen.values())) > SEEN_SECONDS:  # in order of being seen
                del self._seen[next(iter(self._seen))]
            return len(self._seen)


_class = Class()
