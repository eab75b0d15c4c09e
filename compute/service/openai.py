"""OpenAI's protocol for continuing texts, so that ordinary clients can talk to the engine that everybody shares.

`POST /v1/completions`, `GET /v1/models`, `GET /v1/models/{id}`, and errors in OpenAI's shape. A model may be named with a scheme
of compute/quantize, "mini-256:int4-g64"; these are not listed. Beyond the protocol: `top_k`
and `min_p` may be sent; an answer says the `seed` that it came from (choice i with seed + i), and `system_fingerprint` names
model, number format and device. Arguments that exist and are not offered here are refused rather than ignored.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from compute import functions
from compute.errors import BadInput, LabError, UnknownName, unforeseen
from compute.sampling import Sampling
from compute.service.http import learner_of, read_params, while_listened_to

if TYPE_CHECKING:  # the engine imports torch, and the service answers before that is there
    from compute.engine.engine import Piece
    from compute.engine.running import Request as EngineRequest, Running
    from compute.engine.tokens import Stream, Tokenizer
    from compute.service.api import Service

EVENT_STREAM = "text/event-stream; charset=utf-8"
MOST_STOPS = 4


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool = False


class Completion(BaseModel):
    """What may be sent. prompt and stop are looked at apart: they come in several shapes."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    model: str
    prompt: Any
    max_tokens: Annotated[int, Field(ge=1)] = 16
    n: Annotated[int, Field(ge=1)] = 1
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Any = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str = ""
    echo: bool = False
    suffix: str = ""
    best_of: int | None = None
    frequency_penalty: float = 0
    presence_penalty: float = 0
    logit_bias: dict[str, float] = Field(default_factory=dict)


def create(service: Service) -> FastAPI:
    """An application of its own, so that whatever goes wrong in it is told in OpenAI's shape."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.add_exception_handler(LabError, lambda request, error: refusal(error))
    app.add_exception_handler(Exception, lambda request, error: refusal(unforeseen(f"answering {request.url.path}", error)))

    @app.post("/completions")
    async def completions(request: Request):
        service.admit(request)
        params = await read_params(request, service.limits.body_bytes)
        loop, news = asyncio.get_running_loop(), asyncio.Queue()

        def hear(at: int, heard: Piece | LabError) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(news.put_nowait, (at, heard))

        return Completing(await run_in_threadpool(begin, params, learner_of(request), hear), news)

    @app.get("/models")
    async def models():
        return {"object": "list", "data": await run_in_threadpool(listed)}

    @app.get("/models/{id:path}")
    async def model(id: str):
        return await run_in_threadpool(told, id)

    @app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
    async def nothing(path: str, request: Request):
        words = f"There is no {request.method} /v1/{path[:80]} here; see /docs."
        if path == "chat/completions":
            words = "Chat completions are not served here: these models continue a text. Use POST /v1/completions."
        return JSONResponse(shape(words, "invalid_request_error", code="unknown_url"), 404)

    return app


# --- errors ------------------------------------------------------------------------------------------------------

KINDS = {
    "bad_input": (400, "invalid_request_error", None), "unknown_name": (400, "invalid_request_error", None),
    "no_model": (404, "invalid_request_error", "model_not_found"), "rate_limited": (429, "rate_limit_error", "rate_limit_exceeded"),
    "busy": (503, "server_error", "overloaded"), "out_of_memory": (503, "server_error", "out_of_memory"), "unavailable": (503, "server_error", "unavailable"),
}  # fmt: skip
"""Code of ours → status, OpenAI's type and code. Everything else is a mistake of ours."""


ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"}, "type": {"type": "string"},
                "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]},
            },
        }
    },
}  # fmt: skip


def shape(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def shaped(error: LabError) -> tuple[int, dict[str, Any]]:
    """(status, body)"""
    status, kind, code = KINDS.get(error.code, (500, "server_error", error.code))
    message, values, param = error.message("en"), error.values, None
    match error.code, values.get("what"):
        case "bad_input", _:
            param = values["field"] if values["field"] != "parameters" else None
        case "unknown_name", "model" | "scheme":
            status, param, code = 404, "model", "model_not_found"
        case "unknown_name", "parameter":
            message, param = f"Unrecognized request argument supplied: {values['value']}", str(values["value"])
        case "no_model", _:
            param = "model"
        case "unavailable", _:
            message = f"the service is away ({values['reason']}); try again later."  # our sentence is about pages
    return status, shape(message, kind, param, code)


def refusal(error: LabError) -> JSONResponse:
    status, body = shaped(error)
    retry = {"Retry-After": str(math.ceil(error.values["retry_after"]))} if "retry_after" in error.values else None
    return JSONResponse(body, status, retry)


# --- models ------------------------------------------------------------------------------------------------------


def listed() -> list[dict[str, Any]]:
    """Those that can be talked to, the default one first."""
    from compute.engine.registry import shared

    registry = shared()
    usable = [line for line in registry.listing() if not line.trouble and line.source != "draft"]
    return [
        {"id": line.id, "object": "model", "created": int(registry.entries[line.id].path.stat().st_mtime), "owned_by": "inference-lab"}
        for line in sorted(usable, key=lambda line: not line.is_default)
    ]


def told(id: str) -> dict[str, Any]:
    """One of them, or one under a scheme of compute/quantize, which is not listed: there are dozens for each. Raises UnknownName."""
    known = {one["id"]: one for one in listed()}
    return known[base_of(id, list(known))] | {"id": id}


def base_of(model: str, known: list[str]) -> str:
    """The model that is meant, without its scheme. Raises UnknownName."""
    from compute.engine.registry import shared

    base = model if model in known else model.rpartition(":")[0]
    if base not in known:
        raise UnknownName("model", "模型", model[:80], known)
    shared().named(model)
    return base


def engine_of(model: str) -> Running:
    from compute.engine.registry import shared
    from compute.engine.running import running

    base_of(model, [entry.id for entry in shared().entries.values() if entry.source != "draft"])
    return running(model)


# --- a call ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A request of the protocol and the engine's requests that it became, one for each prompt."""

    asked: Completion
    engine: Running
    requests: list[EngineRequest]
    seed: int
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def body(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        weights = self.engine.model.weights
        fingerprint = f"{self.asked.model}-{str(weights.dtype).removeprefix('torch.')}-{weights.device.type}"
        head = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.asked.model}
        return head | {"choices": choices, "system_fingerprint": fingerprint, "seed": self.seed} | more

    def usage(self) -> dict[str, Any]:
        """Tokens of each prompt once, and all that were drawn, end tokens too."""
        prompt = sum(len(request.ask.tokens) for request in self.requests)
        written = sum(writing.tokens for request in self.requests for writing in request.writings)
        cached = sum(request.hits for request in self.requests)
        return {
            "prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }  # fmt: skip

    def choices(self) -> list[list[Choice]]:
        """By prompt, then by sample; their indices go on through all."""
        from compute.engine.tokens import Stream

        n, model = self.asked.n, self.engine.model
        return [[Choice(at * n + i, model.tokenizer, model.config.stop_tokens, Stream()) for i in range(n)] for at in range(len(self.requests))]

    def cancel(self) -> None:
        for request in self.requests:
            self.engine.cancel(request)


def begin(params: dict[str, Any], learner: str, hear: Callable[[int, Piece | LabError], None]) -> Call:
    """Checks everything, then hands all prompts to the engine, or none. hear(number of the prompt, what is heard of it)."""
    from compute.engine.engine import Ask

    asked = functions.made(Completion, {name: value for name, value in params.items() if value is not None})
    refuse_what_is_not_offered(asked)
    engine = engine_of(asked.model)
    prompts = prompts_of(asked.prompt, engine)
    engine.require_room(len(prompts))
    seed = secrets.randbits(31) if asked.seed is None else asked.seed
    sampling, stop = Sampling(asked.temperature, asked.top_k, asked.top_p, asked.min_p), stops_of(asked.stop)
    call = Call(asked, engine, [], seed)
    try:
        for at, (tokens, text) in enumerate(prompts):
            ask = Ask(tokens, asked.max_tokens, sampling, seed + at * asked.n, stop, asked.n, logprobs=asked.logprobs)
            call.requests.append(engine.submit(ask, partial(hear, at), learner=learner, prompt=text))
    except LabError as error:
        call.cancel()
        raise error.named(max_new_tokens="max_tokens") if isinstance(error, BadInput) else error from None
    return call


def refuse_what_is_not_offered(asked: Completion) -> None:
    """Raises BadInput."""
    for name, value, wrong, en, zh in (
        ("echo", True, asked.echo, "the prompt is not repeated here", "这里不回显提示"),
        ("suffix", asked.suffix, asked.suffix, "these models do not fill in before a suffix", "这些模型不会在后缀之前补全"),
        ("best_of", asked.best_of, asked.best_of not in (None, asked.n), "only n texts are written, and all are returned", "只写 n 份，并且全部返回"),
        ("frequency_penalty", asked.frequency_penalty, asked.frequency_penalty, "penalties are not offered here", "这里不提供惩罚项"),
        ("presence_penalty", asked.presence_penalty, asked.presence_penalty, "penalties are not offered here", "这里不提供惩罚项"),
        ("logit_bias", "{…}", asked.logit_bias, "a bias is not offered here", "这里不提供偏置"),
        ("stream_options", "{…}", asked.stream_options and not asked.stream, "it is only allowed with stream = true", "只有 stream = true 时才能用"),
    ):  # fmt: skip
        if wrong:
            raise BadInput(name, value, en, zh)


def prompts_of(prompt: Any, engine: Running) -> list[tuple[tuple[int, ...], str]]:
    """Tokens and text of each. Raises BadInput for another shape, or too many."""
    tokenizer, found = engine.model.tokenizer, []
    several = prompt if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)) else [prompt]
    if len(several) > engine.most_waiting:
        raise BadInput("prompt", f"{len(several)} prompts", f"at most {engine.most_waiting} fit in the queue", f"队列里至多 {engine.most_waiting} 条")
    for one in several:
        if isinstance(one, str):
            found.append((tuple(tokenizer.encode(one)), one))
        elif isinstance(one, list) and all(type(token) is int for token in one):
            vocabulary = range(engine.model.config.vocabulary)  # what is outside is refused with the others
            found.append((tuple(one), tokenizer.decode(token for token in one if token in vocabulary)))
        else:
            raise BadInput("prompt", str(one)[:40], "a string, a list of strings, a list of token ids or a list of such lists is needed",
                           "要一个字符串、字符串的列表、token 编号的列表，或这种列表的列表")  # fmt: skip
    return found


def stops_of(stop: Any) -> tuple[str, ...]:
    """Raises BadInput."""
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(one, str) and one for one in stops):
        raise BadInput("stop", str(stop)[:40], f"a string or a list of at most {MOST_STOPS}, none of them empty, is needed",
                       f"要一个字符串，或至多 {MOST_STOPS} 个字符串的列表，都不能为空")  # fmt: skip
    return tuple(stops)


# --- answers -----------------------------------------------------------------------------------------------------


@dataclass
class Choice:
    """One text of an answer as it grows."""

    index: int
    tokenizer: Tokenizer
    stop_tokens: tuple[int, ...]
    stream: Stream
    offset: int = 0  # characters that all tokens so far have made whole

    def part(self, piece: Piece) -> dict[str, Any]:
        """What a piece adds."""
        return {"index": self.index, "text": piece.text, "logprobs": self.logprobs(piece), "finish_reason": piece.finish or None}

    def logprobs(self, piece: Piece) -> dict[str, list[Any]] | None:
        """Of the piece's token, unless it is the end token, which no text shows."""
        if piece.logprob is None:
            return None
        if piece.finish == "stop" and piece.token in self.stop_tokens:
            return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        top = {shown(self.tokenizer, token): logprob for token, logprob in ((piece.token, piece.logprob), *piece.top)}
        found = {"tokens": [shown(self.tokenizer, piece.token)], "token_logprobs": [piece.logprob], "top_logprobs": [top], "text_offset": [self.offset]}
        self.offset += len(self.stream.push(self.tokenizer.bytes_of(piece.token)))
        return found


def shown(tokenizer: Tokenizer, token: int) -> str:
    """A token's text; bytes that form no text as OpenAI spells them."""
    piece = tokenizer.bytes_of(token)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts of one choice as the whole."""
    logprobs = None
    if parts[0]["logprobs"] is not None:
        logprobs = {name: [entry for part in parts for entry in part["logprobs"][name]] for name in parts[0]["logprobs"]}
    return parts[-1] | {"text": "".join(part["text"] for part in parts), "logprobs": logprobs}


def said(event: dict[str, Any] | str) -> bytes:
    """One event of a stream."""
    return f"data: {event if isinstance(event, str) else json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


class Completing(Response):
    """Answers while somebody listens; the caller's leaving frees what the engine holds for it."""

    def __init__(self, call: Call, news: asyncio.Queue[tuple[int, Piece | LabError]]):
        self.call, self.news, self.background = call, news, None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tell = self.stream if self.call.asked.stream else self.whole
        try:
            await while_listened_to(tell(scope, receive, send), receive)
        finally:
            self.call.cancel()

    async def parts(self) -> AsyncIterator[list[dict[str, Any]]]:
        """What each token adds, those together that came together. Raises the LabError that ends the call."""
        choices, left = self.call.choices(), len(self.call.requests) * self.call.asked.n
        while left:
            heard = [await self.news.get()]
            while not self.news.empty():
                heard.append(self.news.get_nowait())
            for _, one in heard:
                if isinstance(one, LabError):
                    raise one
            left -= sum(bool(piece.finish) for _, piece in heard)
            yield [choices[at][piece.index].part(piece) for at, piece in heard]

    async def whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        grown: dict[int, list[dict[str, Any]]] = {}
        try:
            async for parts in self.parts():
                for part in parts:
                    grown.setdefault(part["index"], []).append(part)
        except LabError as error:
            return await refusal(error)(scope, receive, send)
        body = self.call.body([joined(grown[index]) for index in sorted(grown)], usage=self.call.usage())
        await JSONResponse(body)(scope, receive, send)

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", EVENT_STREAM.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def say(*events: dict[str, Any] | str, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": b"".join(map(said, events)), "more_body": more})

        options = self.call.asked.stream_options
        counted = options is not None and options.include_usage
        try:
            async for parts in self.parts():
                await say(*(self.call.body([part], **({"usage": None} if counted else {})) for part in parts))
        except LabError as error:
            return await say(shaped(error)[1], more=False)
        await say(*([self.call.body([], usage=self.call.usage())] if counted else []), "[DONE]", more=False)
