"""The ledger: every number used anywhere, stored against recomputed, in one table.

It is a desk rather than an instrument, and does not go through the contract: its picture is a table whose rows arrive one
by one while work goes on and that has buttons of its own, and it stands on state that `run(params)` could not be pure
about (files that somebody may edit, a recomputation under way). What the contract asks of every widget it keeps itself:
title, help, words in text.toml, state in the address by neutral values, reset, link, downloads of what is shown, a
sentence that says what is seen, keys, both themes, narrow screens, stored values when the service is away.

State, in st.session_state["ledger"]:
  filter, written, complaints   as in components/frame.py
  judged      key → (stored entry, outcome) of what was recomputed in this session
  run         the Recomputation under way, or None; error: what ended the last one
  has         the version of the rows that the browser holds
  looks       counts the answers: the framework keeps one that says the same as the last from the table, which would not ask again
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import streamlit as st

from components.ledger import criteria
from components.ledger.recompute import Recomputation
from components.ledger.rows import KINDS, VERDICTS, outcomes, rows, version
from components.text import Words, load_words
from compute.errors import BadInput, LabError, UnknownName
from compute.functions import plain
from compute.service import client

WIDGET = None  # not for lessons, see above
HERE = Path(__file__).parent
KEY = "ledger"  # in the address, and of the state
TABLE = "ledger/table"
NO_FILTER = {"text": "", "kind": "", "verdict": ""}
CHOICES = {"kind": KINDS, "verdict": VERDICTS}
LONGEST_TEXT = 80

_table = st.components.v2.component(
    "ledger",
    html=(HERE / "table.html").read_text(encoding="utf-8"),
    css=(HERE / "table.css").read_text(encoding="utf-8"),
    js=(HERE.parent / "take_away.js").read_text(encoding="utf-8") + (HERE / "table.js").read_text(encoding="utf-8"),
)


def show(lang: str) -> None:
    state = _state()
    state["has"] = ""  # a full run may have begun the table anew
    _follow_url(state)
    _desk(lang)


def _state() -> dict[str, Any]:
    fresh = {"filter": dict(NO_FILTER), "written": {}, "complaints": [], "judged": {}, "run": None, "error": None, "has": "", "looks": count()}
    return st.session_state.setdefault(KEY, fresh)


@st.fragment
def _desk(lang: str) -> None:
    state, words = _state(), load_words(HERE / "text.toml", lang)
    standing, now = _follow_run(state), f"{lang} {version()}"
    found, broken = rows(words, version())
    wrong = [*state["complaints"], *broken, *([state["error"]] if state["error"] else [])]
    seen = outcomes(words, state["judged"])
    with suppress(LabError):  # a broken file is said once, by the rows
        st.html(criteria.section(words, {key for key, each in seen.items() if each["verdict"] == "differs"}))
    data = {
        "version": now, "outcomes": seen, "filter": state["filter"], "away": not client.status().up,
        "run": standing and {"done": standing.done, "total": standing.total, "now": standing.now, "fraction": standing.fraction},
        "complaints": [each.message(lang) for each in wrong], "look": next(state["looks"]),
    }  # fmt: skip
    if state["has"] != now:  # some hundred kilobytes, so only until the browser says that it has them
        names = {row["group"]: words.get(f"group.{row['group']}", row["group"]) for row in found}
        data |= {"rows": found, "groups": names, "lang": lang, "kinds": KINDS, "words": words.table}
    _table(key=TABLE, data=plain(data), on_ask_change=_asked)


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


def _asked() -> None:
    """The table has one voice: {"do", "value", "has": the version of the rows that it holds}. "look" only asks how things are."""
    said = (st.session_state.get(TABLE) or {}).get("ask")
    if not isinstance(said, dict):
        return
    state, value = _state(), said.get("value")
    state["has"] = said.get("has", "")
    match said.get("do"):
        case "filter" if isinstance(value, dict):
            state["filter"], state["complaints"] = _checked(value)
            _write_url(state)
        case "recompute" if isinstance(value, list) and state["run"] is None:
            learner = st.session_state.setdefault("learner", uuid4().hex)
            state.update(run=Recomputation([str(key) for key in value], learner), error=None)
        case "cancel":
            _cancelled()
        case "reset":
            _cancelled()
            state.update(filter=dict(NO_FILTER), complaints=[], judged={}, run=None, error=None)
            _write_url(state)


def _cancelled() -> None:
    if run := _state()["run"]:
        run.cancel()


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
