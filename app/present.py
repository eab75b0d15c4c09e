"""Presenting and following, on the server's side: what the browser loads for it, the room's address, the QR code.

    GET  /present.js            the stage, loaded once somebody presents, follows, or opens a link to a step
    GET  /present.json?lang=    its words, and the minutes of each lesson
    GET  /room?since=VERSION    where the teacher is; waits up to PATIENCE_S for news
    POST /room                  {"do": "take" | "show" | "leave", …}: the teacher's, see app/room.py
    POST /present/link          a place as {"slug", "step", "parameters"}: its short address and QR code
    GET  /go/CODE               what a short address stands for

Whatever changes something comes from our own pages only: another site's form or script names its own origin.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import socket
from collections import OrderedDict
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import segno
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from app import lesson
from app.room import Place, Refused, Room
from components.text import LANGUAGES
from compute.errors import BrokenData
from compute.service.rates import counted

HERE = Path(__file__).parent
PATIENCE_S = 25.0
MOST_FOLLOWERS = 400  # connections that may wait; beyond that a browser asks again by itself
LONGEST_BODY = 16_384  # bytes
KEPT_LINKS = 500
CODE = 5  # characters of a short address
ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # nothing that reads as something else on a wall
NEVER_KEPT = {"cache-control": "no-store"}
SERVED = ("present.js", "present.json", "present", "room", "go")

room = Room(os.environ.get("INFERENCE_LAB_TEACHER", ""))
_links: OrderedDict[str, str] = OrderedDict()


def routes(slugs) -> list[Route]:
    """slugs: gives the addresses of the pages there are."""

    async def teach(request: Request) -> Response:
        said = await _said(request)
        if said is None:
            return JSONResponse({"refused": "place"}, 400, NEVER_KEPT)
        token = said.get("token") if isinstance(said.get("token"), str) else ""
        try:
            match said.get("do"):
                case "take":
                    password = said.get("password")
                    token = await room.take(token, password if isinstance(password, str) else "", counted(request.client.host if request.client else ""))
                    return JSONResponse({"token": token}, headers=NEVER_KEPT)
                case "show":
                    seen = room.show(token, Place.read(said, slugs()))
                    return JSONResponse({"version": seen.version, "followers": room.followers}, headers=NEVER_KEPT)
                case "leave":
                    room.leave(token)
                    return JSONResponse({}, headers=NEVER_KEPT)
        except Refused as reason:
            return JSONResponse({"refused": str(reason)}, headers=NEVER_KEPT)  # an answer like others, no error of the console
        return JSONResponse({"refused": "place"}, 400, NEVER_KEPT)

    async def link(request: Request) -> Response:
        said = await _said(request)
        try:
            place = Place.read(said, slugs())
        except Refused:
            return JSONResponse({"refused": "place"}, 400, NEVER_KEPT)
        lang = said.get("lang") if said.get("lang") in LANGUAGES else LANGUAGES[0]
        code = keep(f"/{place.slug}?" + urlencode({"lang": lang} | ({"step": place.step} if place.step else {}) | dict(place.parameters)))
        origin, reachable = await _origin(request)
        return JSONResponse({"address": f"{origin}/go/{code}", "follow": f"{origin}/follow", "reachable": reachable,
                             "code": drawing(f"{origin}/go/{code}"), "follow_code": drawing(f"{origin}/follow")}, headers=NEVER_KEPT)

    return [Route("/present.js", script), Route("/present.json", say), Route("/room", look), Route("/room", teach, methods=["POST"]),
            Route("/present/link", link, methods=["POST"]), Route("/go/{code}", go)]


async def look(request: Request) -> Response:
    since = request.query_params.get("since", "")
    seen = room.look() if room.followers >= MOST_FOLLOWERS else await room.after(since, PATIENCE_S)
    there = {"slug": seen.place.slug, "step": seen.place.step, "parameters": dict(seen.place.parameters)} if seen.state == "on" else {}
    return JSONResponse({"version": seen.version, "state": seen.state} | there, headers=NEVER_KEPT)


async def script(request: Request) -> Response:
    return Response(source(), media_type="text/javascript", headers={"cache-control": "no-cache"})


def source() -> str:
    return (HERE / "present.js").read_text(encoding="utf-8")


async def say(request: Request) -> Response:
    lang = request.query_params.get("lang")
    lang = lang if lang in LANGUAGES else LANGUAGES[0]
    table = {name.removeprefix("present."): text for name, text in lesson.words(lang).table.items() if name.startswith("present.")}
    minutes = {}
    try:
        for entry in lesson.existing():
            minutes[entry.slug] = lesson.load(entry.slug, lang).minutes
    except BrokenData:
        pass  # the page itself says so; the timer goes without
    return JSONResponse({"words": table, "minutes": minutes}, headers={"cache-control": "no-cache"})


# ---- short addresses


def keep(address: str) -> str:
    """A code for it; the same one each time, as long as it is remembered."""
    number = int.from_bytes(hashlib.sha256(address.encode()).digest()[:8], "big")
    code = ""
    while len(code) < CODE or _links.get(code, address) != address:
        number, place = divmod(number, len(ALPHABET))
        code += ALPHABET[place]
    _links[code] = address
    _links.move_to_end(code)
    if len(_links) > KEPT_LINKS:
        _links.popitem(last=False)
    return code


async def go(request: Request) -> Response:
    return RedirectResponse(_links.get(request.path_params["code"].lower(), "/"), 302, NEVER_KEPT)


def drawing(text: str) -> str:
    """A QR code as an SVG: dark on light in both themes, as readers of QR codes expect."""
    out = io.BytesIO()
    segno.make(text, error="m", micro=False).save(out, kind="svg", xmldecl=False, svgns=True, scale=1, border=4, omitsize=True, dark="black", light="white")
    return out.getvalue().decode()


async def _origin(request: Request) -> tuple[str, bool]:
    """Where the audience finds this server, and whether it can. The teacher's own browser may call it localhost; then the address
    that this machine has in its network is taken, if the server answers there."""
    host = request.headers.get("host", "")
    scheme = urlsplit(request.headers.get("origin", "")).scheme or request.url.scheme
    name, port = urlsplit(f"//{host}").hostname or "", urlsplit(f"//{host}").port or 80
    if name not in ("localhost", "::1") and not name.startswith("127."):
        return f"{scheme}://{host}", True
    outside = _outside()
    if outside:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(outside, port), 0.5)
            writer.close()
            return f"{scheme}://{outside}:{port}", True
        except (OSError, TimeoutError):
            pass
    return f"{scheme}://{host}", False


def _outside() -> str:
    """This machine's address in its network; nothing is sent for it. Empty without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address that is kept for documents
            return probe.getsockname()[0]
        except OSError:
            return ""


# ---- what comes from a page of ours


async def _said(request: Request) -> dict[str, Any] | None:
    """The JSON object in the body; None when it is no such thing, too long, or not from our own pages."""
    if not _ours(request) or request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return None
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST_BODY:
            return None
    try:
        said = json.loads(body)
        json.dumps(said, ensure_ascii=False).encode()  # JSON can spell half a character, which no answer could carry
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _ours(request: Request) -> bool:
    origin = request.headers.get("origin", "")
    return bool(origin) and (urlsplit(origin).netloc == request.headers.get("host") or request.headers.get("sec-fetch-site") == "same-origin")
