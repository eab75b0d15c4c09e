"""One learner: opens a lesson, thinks, moves a control, and now and then turns to another lesson, reloads, or asks a model."""

from __future__ import annotations

import asyncio
import html
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import websockets
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.load.page import ENDED, Page, key_of

THINK_SECONDS = (2.0, 5.0)
PATIENCE_SECONDS = {"open": 60.0, "answer": 60.0, "change": 60.0, "generate": 120.0}
TURNS_PAGE, RELOADS, ANSWERS = 0.03, 0.01, 0.25  # of what a learner does
LONGEST_TOLD = 160
GENERATES = {"kv-stepper", "truncation-explorer", "sharing", "replay", "greedy-stepper"}  # instruments whose live run writes texts
ALERT = re.compile(r'<p class="(lab-refusal|lab-complaint)" role="alert">(.*?)</p>', re.S)
REFUSED = '<div class="lab-refused" role="alert">'


@dataclass
class Deed:
    """Something a learner did, and what it took. kind: open, answer (a question before an instrument), change, generate.
    milliseconds: from sending it until the script had finished; size: bytes of its messages, uncompressed."""

    kind: str
    what: str
    at: float
    milliseconds: float
    messages: int
    size: int
    refused: bool = False  # an instrument said why it shows nothing at these settings
    processor: float = 0.0  # what the learner's clock of the processor says that it took, s


@dataclass
class Log:
    deeds: list[Deed] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


class Failed(Exception):
    """The page could not be used further."""


@dataclass
class Learner:
    url: str  # ws://127.0.0.1:port
    lessons: list[str]
    lang: str
    draw: random.Random
    log: Log
    asks: bool = False  # a model, every other time
    think: tuple[float, float] = THINK_SECONDS
    until: float = math.inf  # time.monotonic()
    enough: float = math.inf  # deeds of the whole class
    processor: Callable[[], float] = float  # s that the server has taken so far; nobody asks otherwise

    @property
    def leaves(self) -> bool:
        return time.monotonic() >= self.until or len(self.log.deeds) >= self.enough

    async def attend(self) -> None:
        seat = {"Cookie": f"seat={self.draw.getrandbits(128):032x}"}  # by which nginx finds this browser's server again
        while not self.leaves:
            try:
                async with websockets.connect(f"{self.url}/_stcore/stream", subprotocols=["streamlit"], additional_headers=seat, max_size=None, max_queue=None,
                                              ping_interval=None, proxy=None, open_timeout=PATIENCE_SECONDS["open"]) as socket:  # fmt: skip
                    await self._visit(socket)
            except (OSError, websockets.WebSocketException, TimeoutError) as reason:
                self._complain(f"connection: {type(reason).__name__}: {reason}")
            except Failed:
                pass
            if not self.leaves:
                await asyncio.sleep(self.draw.uniform(*self.think))

    async def _visit(self, socket) -> None:
        """From opening a lesson's address until the learner reloads."""
        page, asked = Page(query=f"lang={self.lang}"), False
        lesson = self.draw.choice(self.lessons)
        await self._do(socket, page, "open", lesson, page.rerun(name=lesson))
        while True:
            await asyncio.sleep(self.draw.uniform(*self.think))
            if self.leaves or self.draw.random() < RELOADS:
                return
            turn = self.draw.random() < TURNS_PAGE
            questions = page.buttons("/skip")
            writers = {key: node for key, node in page.buttons("/run").items() if key.partition(".")[0] in GENERATES}
            controls = page.movable()
            if turn or not (questions or controls):
                lesson = self.draw.choice([slug for slug in self.lessons if slug != lesson] or self.lessons)
                await self._do(socket, page, "open", lesson, page.turn_to(lesson, f"lang={self.lang}"))
            elif self.asks and not asked and writers:
                asked = True
                key = self.draw.choice(sorted(writers))
                await self._do(socket, page, "generate", key, page.rerun(fragment=writers[key].fragment, pressed=writers[key].element.id))
            elif questions and (not controls or self.draw.random() < ANSWERS):
                key = self.draw.choice(sorted(questions))
                await self._do(socket, page, "answer", key, page.rerun(fragment=questions[key].fragment, pressed=questions[key].element.id))
                asked = False
            else:
                node = self.draw.choice(controls)
                page.move(node, self.draw)
                await self._do(socket, page, "change", key_of(node), page.rerun(fragment=node.fragment))
                asked = False

    async def _do(self, socket, page: Page, kind: str, what: str, message: bytes) -> None:
        """Sends it and waits until the page is at rest."""
        deed, began, used = Deed(kind, what, time.time(), 0.0, 0, 0), time.perf_counter(), self.processor()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS[kind]):
                await socket.send(message)
                while True:
                    raw = await socket.recv()
                    deed.messages, deed.size = deed.messages + 1, deed.size + len(raw)
                    heard = page.hear(raw)
                    self._look(heard, deed)
                    if heard.WhichOneof("type") == "script_finished" and heard.script_finished in ENDED:
                        break
        except TimeoutError:
            self._complain(f"{kind} {what}: no end after {PATIENCE_SECONDS[kind]:.0f} s")
            raise Failed from None
        deed.milliseconds, deed.processor = (time.perf_counter() - began) * 1e3, self.processor() - used
        self.log.deeds.append(deed)

    def _look(self, message: ForwardMsg, deed: Deed) -> None:
        """Notes what a learner should never see."""
        where = f"{deed.kind} {deed.what}"
        match message.WhichOneof("type"):
            case "script_finished" if message.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
                self._complain(f"{where}: the script does not compile")
                raise Failed
            case "page_not_found":
                self._complain(f"{where}: page not found")
            case "auto_rerun":  # only what waits for the service asks for that
                self._complain(f"{where}: the page says that the compute service is away")
            case "delta" if message.delta.HasField("new_element"):
                element = message.delta.new_element
                kind = element.WhichOneof("type")
                if kind == "exception":
                    self._complain(f"{where}: {element.exception.type}: {element.exception.message}")
                elif kind == "html":
                    deed.refused |= REFUSED in element.html.body
                    for found in ALERT.finditer(element.html.body):
                        self._complain(f"{where}: {html.unescape(found[2])}")

    def _complain(self, text: str) -> None:
        self.log.errors[text if len(text) <= LONGEST_TOLD else text[: LONGEST_TOLD - 1] + "…"] += 1
