"""The web server: `uvicorn app.asgi:app`. Never imports torch.

Streamlit answers everything under /_stcore, /static and the like; this module serves the documents themselves, so that
language, title and styles are right before the first script runs, and so that an unknown address gets our own answer.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import html
import logging
import os
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qsl, quote, urlencode

ROOT = Path(__file__).resolve().parent.parent
if sys.path[0] != str(ROOT):  # a dependency may bring its own top-level `app`
    sys.path.insert(0, str(ROOT))

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a page multiplies small matrices; threads that wait for each other at each take many times as long
with suppress(OSError, AttributeError, TypeError):  # where the allocator has it: one heap for all threads; in one for each, what a page gives back stays with the thread's
    ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX

# Heavy imports first: what is loaded before gc.freeze() costs nothing in later collections.
import altair  # noqa: E402, F401
import numpy  # noqa: E402, F401
import pandas  # noqa: E402, F401
import plotly.graph_objects  # noqa: E402, F401
import streamlit as st  # noqa: E402
from starlette.middleware import Middleware  # noqa: E402
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response  # noqa: E402
from starlette.routing import Route  # noqa: E402
from starlette.types import ASGIApp, Message, Receive, Scope, Send  # noqa: E402
from streamlit import file_util  # noqa: E402

from app import left, lesson, notes, present, shell, views  # noqa: E402
from app.doors import Doors  # noqa: E402
from components import theme, widgets  # noqa: E402
from components.text import LANGUAGES, given  # noqa: E402
from compute import aside  # noqa: E402
from compute.errors import LabError  # noqa: E402

STYLES = "style.css"
AWAY = ROOT / "app" / "static" / "away.js"
SERVED = {"static", "app", "media", "component", "vendor", "manifest.json", "oauth2callback", "auth", "healthz", STYLES, *present.SERVED}
HEADERS = {
    # Everything a page may load comes from this server. Components arrive as blob: modules; Vega interprets its expressions, so that nothing
    # is compiled from text; styles are written into the page by the framework.
    "content-security-policy": "default-src 'self'; script-src 'self' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' blob:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'self'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
SWITCH_SECONDS = 0.001  # after so long a page that is being made lets the loop send; Python's own 5 ms were waited for at every message
log = logging.getLogger("inference_lab")


def stylesheet() -> str:
    return theme.css() + "".join((ROOT / "app" / name).read_text(encoding="utf-8") for name in ("page.css", "present.css"))


def document(lang: str, title: str) -> str:
    """Streamlit's index.html with our language, title, icon, styles and word of a lost server, and without its inline script and fonts."""
    text = (Path(file_util.get_static_dir()) / "index.html").read_text(encoding="utf-8")
    version = _version(stylesheet())
    words = {each: lesson.words(each) for each in LANGUAGES}

    def replace(start: str, end: str, new: str) -> None:
        nonlocal text
        first = text.index(start)
        last = text.index(end, first) + len(end)
        text = text[:first] + new + text[last:]

    while "<!--" in text:
        replace("<!--", "-->", "")
    replace("<html", ">", f'<html lang="{HTML_LANG[lang]}">')
    replace("<title>", "</title>", f"<title>{html.escape(title)}</title>")
    replace('<link rel="shortcut icon"', "/>", '<link rel="icon" type="image/svg+xml" href="./app/static/icon.svg" />'
            '<link rel="stylesheet" href="./app/static/fonts/fonts.css" />'
            f'<link rel="stylesheet" href="./{STYLES}?v={version}" />')
    replace("<link\n      rel=\"preload\"", "/>", "")
    replace('<link rel="service-desc"', "/>", "")
    replace("<script>", "</script>", f'<script src="./app/static/away.js?v={_version(AWAY.read_text(encoding="utf-8"))}" ' + " ".join(
        f'data-{word}-{each}="{html.escape(words[each](word))}"' for word in ("away", "gone") for each in LANGUAGES) + "></script>")
    replace("<noscript>", "</noscript>", "<noscript>" + "".join(
        f'<p lang="{HTML_LANG[each]}">{html.escape(words[each]("noscript"))}</p>' for each in LANGUAGES) + "</noscript>")
    return text


def _version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


HTML_LANG = {"zh": "zh-CN", "en": "en"}


class Documents:
    """Serves the page addresses, sends unknown ones to /?lesson=…, and puts the security headers on everything."""

    def __init__(self, app: ASGIApp):
        self.inner = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in present)]
            await send(message)

        path = scope["path"].strip("/")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        address = scope.get("raw_path", scope["path"].encode()).partition(b"?")[0].decode("latin-1")
        foreign = False

        async def send_files(message: Message) -> None:
            """Streamlit answers what it does not know with its document, which finds none of its own files there."""
            nonlocal foreign
            if message["type"] == "http.response.start" and message["status"] == 200:
                foreign = any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in message["headers"])
                if foreign:
                    await page(path, query, address)(scope, receive, send_with_headers)
            if not foreign:
                await send_with_headers(message)

        # The client looks for its server under the page's own address too (/roofline/_stcore/health), and needs the 404.
        if scope["method"] not in ("GET", "HEAD") or path.split("/")[0] in SERVED or "_stcore" in path.split("/"):
            await self.inner(scope, receive, send_with_headers if path.startswith("component/") else send_files)
            return
        await page(path, query, address)(scope, receive, send_with_headers)


def page(path: str, query: list[tuple[str, str]], address: str) -> Response:
    """The answer for a page's name. address: as the browser wrote it, in case it wrote a known page's otherwise."""
    lang = next((value for key, value in query if key == "lang" and value in LANGUAGES), LANGUAGES[0])
    slugs = shell.slugs()
    if path in slugs or path == "":
        if address != f"/{path}":  # under /roofline/ or //, our relative addresses of scripts and styles lead nowhere
            return RedirectResponse(f"/{path}" + ("?" + urlencode(query) if query else ""), 302)
        course = lesson.words(lang)("course")
        title = course
        if path and (entry := shell.title_of(path, lang)):
            title = f"{entry} · {course}"
        return HTMLResponse(document(lang, title), headers={"cache-control": "no-cache"})
    if path == "index.html":
        return RedirectResponse("/?" + urlencode(query), 302)
    return RedirectResponse("/?" + urlencode([("lesson", path), *((k, v) for k, v in query if k != "lesson")], quote_via=quote), 302)


async def healthz(request) -> JSONResponse:
    return JSONResponse({"ok": True})


async def failed(request, error: Exception) -> Response:
    """Starlette sends it past every middleware, so it brings the headers itself; the log has the traceback."""
    words = "\n".join(lesson.words(lang)("script_error") for lang in LANGUAGES)
    return Response(words, 500, HEADERS | {"cache-control": "no-store"}, "text/plain; charset=utf-8")


async def styles(request) -> Response:
    return Response(stylesheet(), media_type="text/css", headers={"cache-control": "no-cache"})


def explain(error: Exception) -> bool:
    """One clear sentence in the reader's language instead of a traceback; the log has the rest."""
    lang = st.session_state.get("lang", LANGUAGES[0])
    sentence = views.told(error, lang) if isinstance(error, LabError) else lesson.words(lang)("script_error")
    st.html(f'<p class="lab-refusal" role="alert">{html.escape(sentence)}</p>')
    return True


def tell_of_notes() -> None:
    for problem in notes.complaints():
        log.error("%s", problem)


@asynccontextmanager
async def lifespan(_):
    sys.setswitchinterval(SWITCH_SECONDS)
    aside.start()
    for problem in shell.problems():
        log.error("%s", problem)
    Thread(target=tell_of_notes, daemon=True).start()  # no page waits for a database
    gc.collect()
    gc.freeze()
    yield {}
    aside.stop()


def require() -> None:
    """Without its instruments and words there is nothing to serve: fatal here, not on a learner's page. A widget that does
    not import keeps its traceback; a broken file is one sentence."""
    try:
        widgets()
        for lang in LANGUAGES:
            lesson.words(lang)
            given("", lang)  # the words on papers
    except LabError as reason:
        sys.exit("\n".join(views.told(reason, lang) for lang in LANGUAGES))


require()
left.pass_over()
app = st.App(
    ROOT / "app" / "main.py", lifespan=lifespan, on_script_error=explain,
    middleware=[Middleware(Doors, headers=HEADERS), Middleware(Documents)], exception_handlers={Exception: failed},
    routes=[Route("/healthz", healthz), Route(f"/{STYLES}", styles), *present.routes(shell.slugs)],
)
