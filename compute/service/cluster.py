"""The compute service on several machines, by Ray Serve: `serve run deploy/serve.yaml`; docs/cluster.md says how.

    HTTP → Door ┬→ Functions   the plain service: whatever is computed for one caller; by load
                └→ Engines     the plain service again, one a GPU: whatever asks the engine that all share; by learner

What is told of a call comes over the connection that made it, so a run and its progress stay together by themselves. A learner's calls
to the live engine go to one replica, by Serve's consistent hashing over the learner's name. A replica that dies costs no call: the door
asks the next one, which begins again, and leaves out what was told already (`Told`).

Ray encrypts nothing, and the service asks nobody who he is: the cluster's network must be trusted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.exceptions import RayActorError, TaskCancelledError
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from compute.errors import Unavailable
from compute.service import openai
from compute.service.api import answer, create_app
from compute.service.http import learner_of, while_listened_to
from compute.service.jobs import Limits
from compute.service.machine import Machine
from compute.service.schema import ADDRESS_VARIABLE, EVENT_TYPE, encode
from compute.service.serve import DEVICE_VARIABLE

TRIES = 3  # a call that ends every replica it meets must not end them all
ON_THE_ENGINE = ("live.trace", "sampling.texts", "batching.run")  # functions that ask it; batching.run shows what it has done
CARRIED = ("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path", "headers", "client", "server")
ONGOING = 1000  # calls of a replica at once; the service's own queues say when it is enough


class Settings(BaseModel):
    """What `serve run compute.service.cluster:app name=value` takes, and `args` in a file. A replica has so many cores or GPUs."""

    model_config = ConfigDict(extra="forbid")
    engines: int = Field(1, ge=1, description="at least")
    most_engines: int = Field(4, ge=1)
    engine_cpus: float = Field(1, ge=0, description="a large model takes as many threads")
    engine_gpus: float = Field(0, ge=0)
    functions: int = Field(1, ge=1, description="replicas, at least")
    most_functions: int = Field(8, ge=1)
    function_cpus: float = Field(1, ge=0)
    function_gpus: float = Field(0, ge=0)
    device: str = "auto"
    allow_hosts: list[str] = Field(["127.0.0.1"], description="names under which the service is addressed; '*' for any")
    address: str = Field("http://127.0.0.1:8502", description="where the service reaches itself, to measure itself")


class Part:
    """The plain service in a replica: what HTTP would bring and take comes and goes as ASGI messages."""

    def __init__(self, settings: Settings, limits: Limits = Limits(), preload: bool = True):
        self.wanted = settings.device
        os.environ[DEVICE_VARIABLE], os.environ[ADDRESS_VARIABLE] = settings.device, settings.address
        machine = Machine(settings.device)
        if preload:
            machine.prepare()  # who is there can work
        self.app = create_app(machine, limits, settings.allow_hosts, preload=False)

    async def answer(self, scope: dict[str, Any], body: bytes) -> AsyncIterator[Message]:
        """Who stops listening cancels the work."""
        news: asyncio.Queue[Message | None] = asyncio.Queue()
        asked = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Message:
            return next(asked, None) or await asyncio.Future()

        work = asyncio.ensure_future(self.app(scope, receive, news.put))
        work.add_done_callback(lambda done: news.put_nowait(None))
        try:
            while message := await news.get():
                yield message
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):  # a mistake has been told as an answer
                await work

    def cancel(self, id: str) -> bool:
        """Ends a run of this replica; False where there is none."""
        queue = self.app.state.service.queue
        if job := queue.find(id):
            queue.cancel(job)
        return job is not None

    def check_health(self) -> None:
        """Raises when nothing can be computed here any more; then Serve puts another replica in this one's place."""
        if not self.app.state.service.mend():
            raise RuntimeError("a computation hangs")
        if device := sys.modules.get("compute.engine.device"):  # where torch is loaded
            device.check_computes(self.wanted)


class Door:
    """Takes HTTP, chooses who answers, and asks another when that one dies."""

    def __init__(self, functions: DeploymentHandle, engines: DeploymentHandle, most_bytes: int = Limits().body_bytes):
        self.functions, self.engines, self.most_bytes = functions, engines, most_bytes

    async def __call__(self, request: Request) -> Response:
        path, learner = request.url.path, learner_of(request)
        scope = {name: value for name, value in request.scope.items() if name in CARRIED}
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.most_bytes:
                break  # the replica refuses it
        live = path.startswith("/live")
        engine = live or path.startswith("/v1/") or path == "/healthz" or path.removeprefix("/run/") in ON_THE_ENGINE
        asked = self.engines.options(session_id=learner or ("nobody" if live else "")) if engine else self.functions
        messages = self.told(asked.options(method_name="answer", stream=True), scope, body)
        start = await anext(messages)
        if start["status"] == 404 and request.method == "DELETE" and await self.cancelled(path.removeprefix("/run/")):
            return Response(status_code=204)
        return Passed(start, messages)

    async def cancelled(self, id: str) -> bool:
        """Whether the run was found in one of the replicas."""
        found = [await part.broadcast("cancel", id).results_async(return_exceptions=True) for part in (self.functions, self.engines)]
        return any(one is True for of_part in found for one in of_part)

    async def told(self, asked: DeploymentHandle, scope: dict[str, Any], body: bytes) -> AsyncIterator[Message]:
        told = Told()
        for _ in range(TRIES):
            answering = asked.remote(scope, told.continued(body))
            try:
                async for message in answering:
                    for new in told.new(message):
                        yield new
                return
            except RayActorError:
                if told.whole:
                    return
            finally:
                answering.cancel()
        for new in told.broken_off(scope["path"]):
            yield new


class Passed(Response):
    """An answer's messages as they come, while somebody listens."""

    def __init__(self, start: Message, messages: AsyncIterator[Message]):
        self.start, self.messages = start, messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def heard() -> Message:
            try:
                return await receive()
            except TaskCancelledError:  # so Serve says that the caller has left
                return {"type": "http.disconnect"}

        await while_listened_to(self.tell(send), heard)

    async def tell(self, send: Send) -> None:
        async with aclosing(self.messages):
            await send(self.start)
            async for message in self.messages:
                await send(message)


class Told:
    """What a caller has of an answer, so that another replica can go on with it. The same parameters give the same result and the same
    seed the same tokens, so the events of a run follow upon those that were told, its progress from 0 again; and of the tokens of a
    completion those are left out that were told. A whole answer is told at once or not at all."""

    def __init__(self):
        self.start: Message | None = None  # once the caller has it
        self.first: dict[str, Any] = {}  # event of a completion
        self.parts: Counter[int] = Counter()  # told, by choice
        self.repeated: Counter[int] = Counter()  # of these, how many this replica has told again
        self.whole = False  # the caller has it to its end

    def continued(self, body: bytes) -> bytes:
        """What to ask for: the same, with the seed that was drawn."""
        self.begun: Message | None = None
        self.repeated.clear()
        return json.dumps(json.loads(body) | {"seed": self.first["seed"]}).encode() if self.first else body

    def new(self, message: Message) -> list[Message]:
        if message["type"] == "http.response.start":
            self.begun = message
            return []
        if streams(self.begun):
            message = message | {"body": b"".join(self.event(one) for one in message["body"].split(b"\n\n") if one)}
        elif self.start and streams(self.start):  # the next replica refuses, in the middle of what the caller reads
            message = message | {"body": b"data: " + message["body"] + b"\n\n"}
        start = [] if self.start else [self.begun]
        self.start = self.start or self.begun
        self.whole = not message.get("more_body", False)
        return [*start, message]

    def event(self, said: bytes) -> bytes:
        """An event of a completion's stream, or nothing where it was told before."""
        if not said.startswith(b"data: {"):
            return said + b"\n\n"
        event = json.loads(said.removeprefix(b"data: "))
        for choice in event.get("choices", ()):
            index = choice["index"]
            self.repeated[index] += 1
            if self.repeated[index] <= self.parts[index]:
                return b""
            self.parts[index] += 1
        if "seed" in event:  # not an error
            self.first = self.first or event
            event |= {name: self.first[name] for name in ("id", "created")}
        return openai.said(event)

    def broken_off(self, path: str) -> list[Message]:
        """The answer's end where nobody could give one."""
        gone = Unavailable("unavailable", reason=f"{TRIES} replicas ended over this call", reason_zh=f"有 {TRIES} 个副本因这次调用中断")
        if self.start is None:
            whole = openai.refusal(gone) if path.startswith("/v1/") else answer(gone)
            start = {"type": "http.response.start", "status": whole.status_code, "headers": whole.raw_headers}
            return [start, {"type": "http.response.body", "body": whole.body}]
        kind = dict(self.start["headers"]).get(b"content-type")
        last = encode(gone) if kind == EVENT_TYPE.encode() else openai.said(openai.shaped(gone)[1])
        return [{"type": "http.response.body", "body": last}]


def streams(start: Message) -> bool:
    """Whether a completion begins that comes event by event."""
    return dict(start["headers"]).get(b"content-type") == openai.EVENT_STREAM.encode()


def app(settings: dict[str, Any]) -> serve.Application:
    """What `serve run` builds. settings: of Settings."""
    return application(Settings(**settings))


def application(settings: Settings, part: type = Part, **more: Any) -> serve.Application:
    """more: further arguments of `part`."""
    limits = more.get("limits", Limits())
    alike = dict(
        max_ongoing_requests=ONGOING, health_check_period_s=5, health_check_timeout_s=30,
        graceful_shutdown_timeout_s=limits.seconds + 10,  # what runs may end; no run takes longer
    )  # fmt: skip

    def several(least: int, most: int, each: float) -> AutoscalingConfig:
        return AutoscalingConfig(min_replicas=least, max_replicas=max(least, most), target_ongoing_requests=each, downscale_delay_s=600)

    functions = serve.deployment(part, name="functions").options(
        autoscaling_config=several(settings.functions, settings.most_functions, limits.running),
        ray_actor_options={"num_cpus": settings.function_cpus, "num_gpus": settings.function_gpus}, **alike,
    ).bind(settings, **more)  # fmt: skip
    engines = serve.deployment(part, name="engines").options(
        autoscaling_config=several(settings.engines, settings.most_engines, 16),
        ray_actor_options={"num_cpus": settings.engine_cpus, "num_gpus": settings.engine_gpus},
        request_router_config=RequestRouterConfig(request_router_class=ConsistentHashRouter), **alike,
    ).bind(settings, **more)  # fmt: skip
    door = serve.deployment(Door, name="door").options(num_replicas=2, ray_actor_options={"num_cpus": 0}, **alike)
    return door.bind(functions, engines, limits.body_bytes)
