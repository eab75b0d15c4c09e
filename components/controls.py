"""The controls a widget may ask for. Each names a field of its Params; words come from the widget's text.toml
("control.<field>", and "option.<field>.<id>" for options whose id is not itself the label)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

import streamlit as st

from components.text import Words


When = Callable[[Any], bool]
"""Whether a control means anything at these Params; one that does not is not shown."""


def always(params: Any) -> bool:
    return True


@dataclass(frozen=True)
class Stops:
    """A slider over chosen numbers, for quantities that span decades. show(value) → label."""

    field: str
    stops: tuple[float, ...]
    show: Callable[[float], str] = lambda v: f"{v:,}"
    when: When = always


@dataclass(frozen=True)
class Range:
    field: str
    low: float
    high: float
    step: float = 1
    format: str | None = None
    when: When = always


@dataclass(frozen=True)
class Choice:
    """One of a few ids. name(id) labels those that are not in text.toml (models, chips)."""

    field: str
    options: Callable[[], tuple[str, ...]]
    name: Callable[[str], str] | None = None
    when: When = always


@dataclass(frozen=True)
class Toggle:
    field: str
    when: When = always


@dataclass(frozen=True)
class Text:
    field: str
    longest: int
    when: When = always


@dataclass(frozen=True)
class Move:
    """A button of a Press: the field becomes `value`. Its words are "move.<field>.<id>", filled with `names`."""

    id: str
    value: Any
    names: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Press:
    """A row of buttons right under the picture. moves(params, step) → what can be done now; step: where the player stands.
    After a press the picture opens where the new Stage says."""

    field: str
    moves: Callable[[Any, int], tuple[Move, ...]]
    when: When = always


Control = Stops | Range | Choice | Toggle | Text | Press
SEGMENTS = 5  # more options than this become a select box
NARROW_SEGMENTS = 3  # in a quarter of the width


def render(control: Control, key: str, value: Any, words: Words, changed: Callable[[], None], segments: int = SEGMENTS) -> None:
    """Put the control on the page with `value`; `changed` runs when the learner moves it."""
    label = words(f"control.{control.field}")
    common = {"key": key, "on_change": changed, "help": words.get(f"help.{control.field}") or None}

    def seed(v):
        """Moves a control that is there already. The value is its default too: a slow browser may draw it only after the next
        run, which no longer says that it was moved, and would answer with the default."""
        if st.session_state.get(key, v) != v:
            st.session_state[key] = v

    match control:
        case Stops(field, stops, show):
            seed(value)
            st.select_slider(label, options=sorted({*stops, value}), value=value, format_func=show, **common)
        case Range(field, low, high, step, format):
            value = type(step)(min(max(value, low), high))
            seed(value)
            st.slider(label, low, high, value=value, step=step, format=format, **common)
        case Choice(field, options, name):
            ids = list(dict.fromkeys((*options(), value)))  # what was chosen stays, also when it can be had no longer
            seed(value)

            def labelled(id: str) -> str:
                ours = f"option.{field}.{id}"
                return words(ours) if name is None or ours in words.table else name(id)

            if len(ids) <= segments:
                st.segmented_control(label, ids, default=value, format_func=labelled, required=True, **common)
            else:
                st.selectbox(label, ids, index=ids.index(value), format_func=labelled, placeholder="…", **common)
        case Toggle():
            seed(value)
            st.toggle(label, value=value, **common)
        case Text(field, longest):
            seed(value)
            st.text_input(label, value=value, max_chars=longest, **common)


def render_moves(press: Press, key: str, moves: tuple[Move, ...], words: Words, done: Callable[[Any], None]) -> None:
    """Put the buttons on the page; `done` gets the value of the one that is pressed."""
    with st.container(key=f"{key}/moves", horizontal=True):
        for move in moves:
            label = words(f"move.{press.field}.{move.id}", **move.names)
            name = ".".join((move.id, *map(str, move.names.values())))
            st.button(label, key=f"{key}/{name}", on_click=done, args=(move.value,))
