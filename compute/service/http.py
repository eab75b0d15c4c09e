"""What every route does with a request: who calls, what was sent, and whether somebody still listens."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
from collections.abc import Coroutine
from typing import Any

from fastapi import Request
from starlette.types import Receive

from compute.errors import BadInput
from compute.service.doors import LOOPBACK
from compute.service.rates import counted

JSON_TYPE = "application/json"
TRUSTS = "INFERENCE_LAB_COMPUTE_TRUSTS"  # addresses or networks (10.1.0.0/16) of web servers on other machines, apart by spaces


def client_of(request: Request) -> str:
    """Whose calls count together: the peer's address; of a web server, on this machine or a trusted one, which calls for everybody,
    the learner that it names (none named: not counted). Behind a proxy on this machine, or one that FORWARDED_ALLOW_IPS
    names, uvicorn has put the address in its place that the proxy saw."""
    peer = request.client.host if request.client else ""
    learner = learner_of(request)
    if peer in LOOPBACK or _trusted(peer):
        return f"learner {learner}" if learner else ""
    return counted(peer)


def _trusted(peer: str) -> bool:
    try:
        networks = [ipaddress.ip_network(each, strict=False) for each in os.environ.get(TRUSTS, "").split()]
        return any(ipaddress.ip_address(peer) in network for network in networks)
    except ValueError:  # a peer without an address, or an entry that is none: nobody is trusted by mistake
        return False


def learner_of(request: Request) -> str:
    return request.headers.get("x-learner", "")[:100]


async def read_params(request: Request, most_bytes: int) -> dict[str, Any]:
    """The body, a JSON object. Raises BadInput."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise BadInput("parameters", f"{len(body)}+ bytes", f"at most {most_bytes} bytes are read", f"至多 {most_bytes} 字节")
    try:
        params = json.loads(body or b"{}", parse_constant=_no_constant)
    except (ValueError, RecursionError) as wrong:
        raise BadInput("parameters", body[:80].decode(errors="replace"), "it is not JSON", "不是 JSON") from wrong
    if not isinstance(params, dict):
        raise BadInput("parameters", str(params)[:80], "a JSON object is needed", "要一个 JSON 对象")
    for name, value in params.items():
        if not encodable({name: value}):
            field = name if encodable(name) else "parameters"
            raise BadInput(field, ascii(value)[:40], "half of a surrogate pair is no character", "里面有半个代理对，那不是字符")
    return params


def encodable(value: Any) -> bool:
    """JSON can spell strings that no encoding can carry; neither a tokenizer nor an answer takes them."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


async def while_listened_to(telling: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Runs it to its end, or until the caller leaves."""
    tasks = [asyncio.ensure_future(telling), asyncio.ensure_future(left(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


async def left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
