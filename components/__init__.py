"""Widgets, one folder each, under one contract.

A folder holds `__init__.py` with a `WIDGET`, `text.toml` with its words in zh and en, and `view.js` if it draws itself.
Folders are discovered; one that does not import is fatal at start-up, and tests/components holds each to the contract.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Callable, Mapping

import pydantic.dataclasses

from components.controls import Control, always
from components.text import Words, load_words
from compute.errors import UnknownName
from compute.quantity import Quantity

HERE = Path(__file__).parent

parameters = partial(pydantic.dataclasses.dataclass, frozen=True, kw_only=True, config=pydantic.ConfigDict(extra="forbid"))
"""Makes a class the Params of a widget: frozen, and checked at birth."""


@dataclass(frozen=True)
class Vega:
    """A Vega-Lite spec (data inside). clicks: selection name → the parameter that a click sets; the datum must carry a
    field of that parameter's name."""

    spec: dict[str, Any]
    clicks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """Data for the folder's own view.js. steps > 1 gives it the player's transport (play, step, scrub, speed, keys).
    picks: the parameters that a click in the picture may set, by tools.pick(field, value)."""

    data: dict[str, Any]
    steps: int = 1
    height: int = 320
    start: int = 0  # the step it opens at
    picks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Html:
    """A drawing or table that needs no script. Escape what comes from outside; colours by the --lab-… variables."""

    body: str


@dataclass(frozen=True)
class Readout:
    """A big figure under the picture; a value "32.6 | 83.8" is two that stand side by side. `change` says how it moved since the
    state before."""

    label: str
    value: str
    unit: str = ""
    change: str = ""
    note: str = ""


@dataclass(frozen=True)
class View:
    """What a widget shows for a result, in one language. The sentence is also the picture's text equivalent."""

    picture: Vega | Stage
    readouts: tuple[Readout, ...]
    sentence: str
    rows: tuple[Mapping[str, Any], ...]  # the picture's data, for CSV and JSON; SI units in the names
    papers: tuple[Quantity, ...]  # where the numbers come from
    beside: tuple[Vega | Stage | Html, ...] = ()  # further pictures under the first
    after: tuple[Vega | Stage | Html, ...] = ()  # and those that come after the controls and the sentence
    simplified: str = ""  # what is simplified, said on screen
    derivation: str = ""  # Markdown, folded


@dataclass(frozen=True)
class Scene:
    """What draw may know besides the result: words, colours, and the state before (for the ghost)."""

    words: Words
    lang: str
    theme: str  # "light" | "dark"
    before: Any = None  # the previous result, or None
    guess: float | str | None = None
    t: int | None = None  # the step at which the player came to rest; None while it stands where the Stage opens
    running: bool = False  # the result is of a live run under way: there is more to come


@dataclass(frozen=True)
class Guess:
    """Predict first: the learner commits, then the same computation tells. Choices are ids; numeric ones have bounds."""

    truth: Callable[[Any], Quantity]
    unit: str = ""
    bounds: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    right: Callable[[Any], str] | None = None  # for choices: the id that is true


@dataclass(frozen=True)
class Live:
    """A run on the compute service. arguments(params) feed its function; run(params, answer) makes the result.
    when: at which Params the button is there. about: an answer stays while this is the same; by default the arguments.
    button: which of the widget's words stands on it, where one does. partial: what the service tells before the end (`partial` of
    its progress) is an answer too, and drawn as one; a run that is cut off leaves the last of them. "live.running" among the
    widget's words stands beside its progress."""

    function: str
    arguments: Callable[[Any], dict[str, Any]]
    when: Callable[[Any], bool] = always
    about: Callable[[Any], Any] | None = None
    button: Callable[[Any], str] = lambda params: "live.button"
    partial: bool = False


@dataclass(frozen=True)
class Widget:
    """Params: frozen, checked at birth. run(params, answer=None): pure; `answer` is the service's, for live ones.
    draw(result, scene) → View: pure."""

    id: str
    Params: type
    controls: tuple[Control, ...]
    run: Callable[..., Any]
    draw: Callable[[Any, Scene], View]
    guesses: Mapping[str, Guess] = field(default_factory=dict)
    live: Live | None = None
    shown: int = 4  # controls before the fold
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # language → where Params start otherwise there

    @property
    def folder(self) -> Path:
        return HERE / self.id.replace("-", "_")

    def words(self, lang: str) -> Words:
        return load_words(self.folder / "text.toml", lang)

    def name(self, lang: str) -> str:
        """Its title up to the colon, if it has one."""
        return re.split("[：:]", self.words(lang)("title"))[0]


@cache
def widgets() -> dict[str, Widget]:
    found: dict[str, Widget] = {}
    for folder in sorted(p for p in HERE.iterdir() if (p / "text.toml").exists() and (p / "__init__.py").exists()):
        widget = importlib.import_module(f"components.{folder.name}").WIDGET
        if widget is None:  # a part of a page of its own, which its docstring explains
            continue
        if widget.id.replace("-", "_") != folder.name:
            raise ImportError(f"components/{folder.name} holds a widget called {widget.id}")
        found[widget.id] = widget
    if not found:
        raise ImportError("components/ holds no widget")
    return found


def widget(id: str) -> Widget:
    if id not in widgets():
        raise UnknownName("widget", "组件", id, list(widgets()))
    return widgets()[id]
