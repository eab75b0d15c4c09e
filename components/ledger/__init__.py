"""The ledger: every number used anywhere, stored against recomputed, in one table.

It is a desk rather than an instrument, and does not go through the contract: its picture is a table whose rows arrive one
by one while work goes on and that has buttons of its own, and it stands on state that `run(params)` could not be pure
about (files that somebody may edit, a recomputation under way). What the contract asks of every widget it keeps itself:
title, help, words in text.toml, state in the address by neutral values, reset, link, downloads of what is shown, a
sentence that says what is seen, keys, both themes, narrow screens, stored values when the service is away.

State, in st.session_state["ledger"]:
  filter, written, complaints   as in components/frame.py
  judged      key → (stored entry, outcome) of what was recomputed in this session
  run         the Recomputation under way, or None
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import streamlit as st

from components.ledger.recompute import Recomputation
from components.ledger.rows import KINDS, VERDICTS, rows
from components.text import Words, load_words
from compute.errors import BadInput, LabError, UnknownName
from compute.service import client

WIDGET = None  # not for lessons, see above
HERE = Path(__file__).parent
KEY = "ledger"
NO_FILTER = {"text": "", "kind": "", "verdict": ""}
CHOICES = {"kind": KINDS, "verdict": VERDICTS}
LONGEST_TEXT = 80
TICK_SECONDS, LOOK_AGAIN_SECONDS = 0.7, 4.0  # while work goes on; while the service is away

_table = st.components.v2.component(
    "ledger",
    html=(HERE / "table.html").read_text(encoding="utf-8"),
    css=(HERE / "table.css").read_text(encoding="utf-8"),
    js=(HERE.parent / "take_away.js").read_text(encoding="utf-8") + (HERE / "table.js").read_text(encoding="utf-8"),
)


def show(lang: str) -> None:
    state = _state()
    _follow_url(state)
    every = TICK_SECONDS if state["run"] else None if client.status().up else LOOK_AGAIN_SECONDS
    st.fragment(_desk, run_every=every)(lang, every)


def _state() -> dict[str, Any]:
    fresh = {"filter": dict(NO_FILTER), "written": {}, "complaints": [], "judged": {}, "run": None, "error": None}
    return st.session_state.setdefault("ledger", fresh)


def _desk(lang: str, every: float | None) -> None:
    state, words, up = _state(), load_words(HERE / "text.toml", lang), client.status().up
    standing = _follow_run(state)
    found, broken = rows(words, state["judged"])
    _table(
        key=KEY,
        data={
            "rows": found, "filter": state["filter"], "lang": lang, "kinds": KINDS, "verdicts": VERDICTS, "away": not up,
            "run": standing and {"done": standing.done, "total": standing.total, "now": list(standing.now), "fraction": standing.fraction},
            "complaints": [each.message(lang) for each in (*state["complaints"], *broken, *([state["error"]] if state["error"] else []))],
            "words": words.table, "groups": {row["group"]: words.get(f"group.{row['group']}", row["group"]) for row in found},
        },
        on_filter_change=_filtered, on_recompute_change=_asked, on_cancel_change=_cancelled, on_reset_change=_reset,
    )  # fmt: skip
    if (TICK_SECONDS if state["run"] else None if up else LOOK_AGAIN_SECONDS) != every:
        st.rerun()  # the page looks more or less often from now on


def _follow_run(state: dict[str, Any]):
    """How the recomputation stands, with what it has found; None when there is none any more."""
    run = state["run"]
    if run is None:
        return None
    standing = run.look()
    state["judged"] |= dict(run.found)
    if standing.running:
        return standing
    state["run"], state["error"] = None, standing.error
    return None


# ---- what the learner does


def _said(name: str) -> Any:
    return (st.session_state.get(KEY) or {}).get(name)


def _filtered() -> None:
    state, said = _state(), _said("filter")
    if isinstance(said, dict):
        state["filter"], state["complaints"] = _checked(said)
        _write_url(state)


def _asked() -> None:
    state, keys = _state(), _said("recompute")
    if isinstance(keys, list) and state["run"] is None:
        learner = st.session_state.setdefault("learner", uuid4().hex)
        state.update(run=Recomputation([str(key) for key in keys], learner), error=None)


def _cancelled() -> None:
    if run := _state()["run"]:
        run.cancel()


def _reset() -> None:
    state = _state()
    _cancelled()
    state.update(filter=dict(NO_FILTER), complaints=[], judged={}, run=None, error=None)
    _write_url(state)


# ---- the address


def _follow_url(state: dict[str, Any]) -> None:
    said = {name.removeprefix(f"{KEY}."): value for name, value in st.query_params.items() if name.startswith(f"{KEY}.")}
    came_back = st.session_state.get("entered", True) and not said
    if said != state["written"] and not came_back:
        state["filter"], state["complaints"] = _checked(said)
    _write_url(state)


def _checked(said: dict[str, Any]) -> tuple[dict[str, str], list[LabError]]:
    """The filter, and what of it is not possible."""
    good, complaints = dict(NO_FILTER), []
    for name, value in said.items():
        if name not in NO_FILTER:
            complaints.append(UnknownName("parameter", "参数", name, list(NO_FILTER)))
        elif name == "text" and len(str(value)) > LONGEST_TEXT:
            complaints.append(BadInput(name, str(value)[:LONGEST_TEXT], f"at most {LONGEST_TEXT} characters are possible", f"至多 {LONGEST_TEXT} 个字符"))
        elif value and value not in CHOICES.get(name, (value,)):
            complaints.append(UnknownName(name, name, str(value)[:LONGEST_TEXT], list(CHOICES[name])))
        else:
            good[name] = str(value)
    return good, complaints


def _write_url(state: dict[str, Any]) -> None:
    want = {name: value for name, value in state["filter"].items() if value}
    said = {name.removeprefix(f"{KEY}."): value for name, value in st.query_params.items() if name.startswith(f"{KEY}.")}
    if said != want:
        others = {name: st.query_params.get_all(name) for name in st.query_params if not name.startswith(f"{KEY}.")}
        st.query_params.from_dict(others | {f"{KEY}.{name}": value for name, value in want.items()})
    state["written"] = want
