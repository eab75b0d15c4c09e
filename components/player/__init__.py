"""Plays a Stage in the browser: one component for every widget folder that has a view.js.

player.js keeps the time, the transport, the keys, the size and the theme; the folder's view.js says what step t looks
like. It may export
  draw(picture, data, t, tools)   the picture at step t, from `data` and t alone, so that a step back is exact;
                                  `picture` is an empty <svg> of tools.width × tools.height, or a 2-D canvas context
  surface = 'canvas'              for pictures of thousands of marks; default 'svg'
  height(data, width, tools)      px; default the Stage's
  says(data, t, tools)            the text equivalent at t; default the View's sentence
  label(data, t, tools)           what the transport shows instead of "step t of n"
  walk(along, data, t, tools)     ↑ and ↓: go to the mark before (-1) or after (1), as pointing at it would, and return what is
                                  said of it; for marks that tell something when a pointer is over them
  rate                            steps per second at speed ×1; default: the whole run in 20 s, at least 1.5

tools.pick(field, value) sets a parameter of the widget that the Stage names in `picks`.
tools.slide({field, at, takes(x, y), value(x), on(steps), ends: [least, most]}), after each drawing, lets pointer and keys move the
`.handle` of the picture on a line: `field` is set when it comes to rest, `at` is its value now; the others say whether a pointer there
takes the handle, and what it is then, so many key steps on, and at the ends. The view draws it at `tools.local.at`, and keeps that from
answers that come late while `tools.local.moving`.

Nothing goes to the server while it plays. On pause and release `t` becomes the component's state, so a rerun or a
return to the page finds the same step.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Callable

import streamlit as st

from components.text import load_words
from compute.errors import BrokenData

HERE = Path(__file__).parent
LABELS = ("play", "pause", "back", "forward", "start", "speed", "step", "keys", "walk")
EXPORTED = re.compile(r"^export (?:const|let|function) (\w+)", re.MULTILINE)


def source(view: str) -> str:
    """The component's module: the player, and the view in a scope of its own with what it exports."""
    names = EXPORTED.findall(view)
    if "draw" not in names:
        raise ImportError("a view.js exports a function draw(picture, data, t, tools)")
    body = re.sub(r"^export ", "", view, flags=re.MULTILINE)
    player = (HERE / "player.js").read_text(encoding="utf-8")
    return f"{player}\nconst VIEW = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();\n"


def _register(folder: Path) -> Callable[..., Any]:
    styles = [HERE / "player.css", *folder.glob("view.css")]
    return st.components.v2.component(
        f"player_{folder.name}",
        html=(HERE / "player.html").read_text(encoding="utf-8"),
        css="\n".join(path.read_text(encoding="utf-8") for path in styles),
        js=source((folder / "view.js").read_text(encoding="utf-8")),
    )


# At import: a component that is registered in the middle of a run is unknown to the sessions that are already open.
_MOUNTS = {folder.name: _register(folder) for folder in sorted(HERE.parent.iterdir()) if (folder / "view.js").exists()}


def show(widget, key: str, stage, alt: str, lang: str, t: int | None = None, moved: Callable[[int], None] | None = None,
         picked: Callable[[str, Any], None] | None = None) -> None:  # fmt: skip
    """Put the stage on the page. alt: the sentence that stands for the picture where the view does not say more.
    t: the step to open at, for instance the URL's. moved: called with the step that the learner reached; picked: with the field and
    the value that a click in the picture sets, where the stage lets it."""
    folder = widget.folder.name
    if folder not in _MOUNTS:
        raise BrokenData(f"components/{folder}/view.js", "it is missing, and the widget draws a Stage")
    words, reached = widget.words(lang), step(key)
    if reached is None:
        reached = stage.start if t is None else t
    _MOUNTS[folder](
        key=key,
        data={
            "stage": stage.data, "steps": stage.steps, "height": stage.height, "start": stage.start, "t": min(max(reached, 0), stage.steps - 1),
            "placed": st.session_state.get(f"{key}/placed", 0),
            "alt": alt, "lang": lang, "name": words("title"), "labels": _labels(lang),
            "words": {k: v for k, v in words.table.items() if k.startswith("view.")},
        },
        on_t_change=lambda: moved(step(key)) if moved else None,
        **({"on_pick_change": lambda: _pick(key, stage.picks, picked)} if picked and stage.picks else {}),
    )  # fmt: skip


def _pick(key: str, fields: tuple[str, ...], picked: Callable[[str, Any], None]) -> None:
    said = dict(st.session_state.get(key) or {}).get("pick")
    if said and said["field"] in fields:
        picked(said["field"], said["value"])


def step(key: str) -> int | None:
    """The step that the learner reached by hand or by playing; None while nobody touched it."""
    held = st.session_state.get(key)
    t = dict(held).get("t") if held else None
    return None if t is None else int(t)


def place(key: str, t: int | None) -> None:
    """Move it from Python: to a step, or back to where the stage opens. Nothing happens where no step was ever reached,
    as under a chart, whose selection is kept by the same key and may not be written to. The browser hears how often that was, as
    it must tell this from its own steps coming back."""
    st.session_state[f"{key}/placed"] = st.session_state.get(f"{key}/placed", 0) + 1
    if "t" in (st.session_state.get(key) or ()):
        st.session_state[key]["t"] = t


@cache
def _labels(lang: str) -> dict[str, str]:
    words = load_words(HERE.parent / "text.toml", lang)
    return {name: words(f"player.{name}") for name in LABELS}
