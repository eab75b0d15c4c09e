"""Whom the web server answers: who calls it by its own name or by an IP address, and pages of its own. See compute/service/doors.py.

INFERENCE_LAB_HOSTS="lab.example.org other.example.org" are further names, those of a proxy in front among them; * is any.
Streamlit has such a check for WebSockets too, which answers pages of every other server on this machine and, before it refuses a page,
asks a host on the Internet for this machine's address. So it comes after this one, and no longer sees the origin.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app import lesson, present
from components.text import LANGUAGES
from compute.service.doors import LOOPBACK, is_address, name_of, stranger

SETTING = "INFERENCE_LAB_HOSTS"
PLAIN = {"content-type": "text/plain; charset=utf-8", "cache-control": "no-store"}


def listed() -> set[str]:
    """Without the ports that somebody copied with them."""
    said = os.environ.get(SETTING, "").lower().replace(",", " ").split()
    return {name if name == "*" else name_of(f"//{name}") for name in said} - {""}


class Doors:
    def __init__(self, app: ASGIApp, headers: Mapping[str, str]):
        """headers: of a refusal."""
        self.inner, self.listed, self.headers = app, listed(), {**headers, **PLAIN}
        machine = socket.gethostname().lower().rstrip(".")
        self.names = {*LOOPBACK, machine, f"{machine.partition('.')[0]}.local", *self.listed}

    def named(self, name: str) -> bool:
        return "*" in self.listed or name in self.names or is_address(name)

    def ours(self, origin: str, host: str) -> bool:
        """A proxy may have written another Host; then the name that the learner's browser knows is a listed one."""
        return origin.partition("://")[2] == host or "*" in self.listed or name_of(origin) in self.listed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.inner(scope, receive, send)
            return
        if wrong := stranger(scope, self.named, self.ours):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})  # before it was accepted: 403
                return
            key, values = "stranger_host" if wrong[0] == "Host" else "stranger_page", {"value": wrong[1], "setting": SETTING}
            said = "\n".join(lesson.words(lang)(key, **values) for lang in LANGUAGES)
            await PlainTextResponse(said, 403, self.headers)(scope, receive, send)
            return
        if scope["path"].strip("/").split("/")[0] not in present.SERVED:
            scope = {**scope, "headers": [header for header in scope["headers"] if header[0] != b"origin"]}
        await self.inner(scope, receive, send)
