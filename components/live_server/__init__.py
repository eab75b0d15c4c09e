"""The live server: the engine that everybody connected shares, as it is at this moment, and a button that asks it for a text.

It is a page rather than an instrument, and does not go through the contract: its picture follows from what all learners do
just now, not from parameters. What the contract asks of every widget it keeps itself: title, help, words in text.toml, the
form in the address by neutral values, reset, link, the trace to take away, a sentence that says what is seen, keys, both
themes, narrow screens, and the last picture when the service is away.

How news travels. The browser asks for it, often while something runs and seldom while nothing does, and says which step it
lacks first; the answer carries what is new, and the browser keeps the rest. It comes by a second component, which draws
nothing, since every answer of a component carries its scripts and styles. What the learner presses goes along with the next
question, numbered, until an answer says that it is done: so a press is neither lost nor done twice, however the framework
merges questions.

State, in st.session_state["live-server"]:
  form, written, complaints   as `values`, `written` and `complaints` in components/frame.py
  lang          of the page
  since, run    the first step that the browser lacks, and of which run of the service and which model
  done          numbers of the latest presses that were done
  refused       what was not possible when it was last asked for, or None
  beat          counts answers: one that was like the one before would not reach the browser
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import pydantic
import streamlit as st
from pydantic import Field

from components import parameters
from components.text import load_words
from compute.distributions import PROMPTS
from compute.errors import LabError, UnknownName
from compute.functions import complaint, plain
from compute.service import client

WIDGET = None  # not for lessons, see above
HERE = Path(__file__).parent
KEY = "live-server"  # in the address, and of the state
NEWS = "live-server/news"
TOKENS, TEMPERATURES, SAMPLES = (16, 32, 64, 128, 256), (0.0, 0.5, 0.8, 1.0, 1.5), (1, 2, 4)  # to choose from
LONGEST_PROMPT = 400
REMEMBERED = 50  # presses
RECENT = 600  # steps that a page begins with; the service keeps more
NEVER = 2**53  # a step that no engine reaches
PROMPT = {"zh": PROMPTS["giving"], "en": PROMPTS["english"]}


@parameters
class Form:
    """What a learner asks for. prompt: empty for the one of the page's language. model: empty for the service's own choice."""

    prompt: Annotated[str, Field(max_length=LONGEST_PROMPT)] = ""
    tokens: Annotated[int, Field(ge=1, le=TOKENS[-1])] = 128
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 0.8
    n: Annotated[int, Field(ge=1, le=SAMPLES[-1])] = 1
    model: Annotated[str, Field(max_length=80)] = ""


SCRIPTS = ("../take_away.js", "history.js", "lanes.js", "blocks.js", "page.js")
_page = st.components.v2.component(
    "live_server",
    html=(HERE / "page.html").read_text(encoding="utf-8"),
    css=(HERE / "page.css").read_text(encoding="utf-8"),
    js="".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS),
)
_news = st.components.v2.component("live_server_news", js=(HERE / "news.js").read_text(encoding="utf-8"))


def show(lang: str) -> None:
    state = _state()
    state.update(lang=lang, since=0)  # a full run may have begun the page anew
    _follow_url(state)
    choices = {"tokens": TOKENS, "temperature": TEMPERATURES, "n": SAMPLES, "model": _models()}
    _page(key=f"{KEY}/page", data=plain({"lang": lang, "words": load_words(HERE / "text.toml", lang).table, "choices": choices, "prompt": PROMPT[lang]}))
    _tell(lang)


def _models() -> list[tuple[str, str]]:
    """(value, label) of those that can be talked to; the service's own choice, the first, has an empty value."""
    return [(name if at else "", name) for at, name in enumerate(client.status().models_known)]


def _state() -> dict[str, Any]:
    fresh = {"lang": "zh", "form": Form(), "written": {}, "complaints": [], "since": 0, "run": "", "done": [], "refused": None, "beat": 0}
    return st.session_state.setdefault(KEY, fresh)


@st.fragment
def _tell(lang: str) -> None:
    state = _state()
    state["beat"] += 1
    seen, away = _look(state)
    if seen and state["run"] not in ("", seen["run"]):
        state["refused"] = None  # by a service that is no more
    data = {
        "beat": state["beat"], "done": state["done"], "form": asdict(state["form"]), "seen": seen, "away": _missing(away, lang),
        "refused": _told(state["refused"], lang), "complaints": [each.message(lang) for each in state["complaints"]],
    }  # fmt: skip
    _news(key=NEWS, data=plain(data), height=1, on_ask_change=_asked)


def _look(state: dict[str, Any]) -> tuple[dict[str, Any] | None, LabError | None]:
    """How the engine stands, with the steps that the browser lacks; or why nobody can say."""
    try:
        run = f"{client.status().pid} {state['form'].model}"  # each model has an engine, with steps of its own
        who = {"model": state["form"].model, "learner": learner()}
        since = state["since"] if run == state["run"] else 0
        seen = client.live(since or max(0, client.live(NEVER, **who)["next"] - RECENT), **who)
    except LabError as away:
        return None, away
    return brief(seen) | {"run": run}, None


def brief(seen: Mapping[str, Any]) -> dict[str, Any]:
    """The snapshot in fewer bytes: steps as rows [index, ended, took, lanes, waiting, running, used, preempted, finished], and of
    the blocks only those in use, [block, owners, cells written]."""
    steps = [
        [step["index"], round(step["ended"], 6), round(step["took"], 6), *(step[name] for name in ("lanes", "waiting", "running", "used", "preempted", "finished"))]
        for step in seen["steps"]
    ]  # fmt: skip
    used = [[block, owners, cells] for block, (owners, cells) in enumerate(zip(seen["refs"], seen["filled"])) if owners]
    rest = {name: value for name, value in seen.items() if name not in ("refs", "filled")}
    return rest | {"steps": steps, "used": used}


def _missing(away: LabError | None, lang: str) -> str:
    """Why nothing new is seen."""
    if away and away.code == "unavailable":  # whose own sentence speaks of stored results
        return load_words(HERE / "text.toml", lang)("view.away")
    return away.message(lang) if away else ""


def _told(error: LabError | None, lang: str) -> dict[str, Any] | None:
    """waiting: in the queue that is full; the page then says it in its own words, with the seconds running down."""
    return error and {"says": error.message(lang), "seconds": error.values.get("retry_after"), "waiting": error.values.get("waiting")}


def learner() -> str:
    """The name of this session, which the service keeps its texts under: known to the two of them."""
    return st.session_state.setdefault("learner", uuid4().hex)


# ---- what the learner does


def _asked() -> None:
    said = (st.session_state.get(NEWS) or {}).get("ask")
    if isinstance(said, Mapping):
        hear(_state(), said)


def hear(state: dict[str, Any], said: Mapping[str, Any]) -> None:
    """The page has one voice: {"since", "run", "presses": [{"number", "do", "value"}, …]}."""
    state.update(since=int(said.get("since") or 0), run=str(said.get("run") or ""))
    for press in said.get("presses") or ():
        if press["number"] not in state["done"]:
            state["done"] = [*state["done"], press["number"]][-REMEMBERED:]
            _do(state, press["do"], press.get("value"))


def _do(state: dict[str, Any], what: str, value: Any) -> None:
    try:
        match what:
            case "form" | "send":
                state["form"], state["complaints"] = _checked({**asdict(state["form"]), **value})
                _write_url(state)
                if what == "send" and not state["complaints"]:
                    _send(state["form"], state["lang"])
                    state["refused"] = None
            case "cancel":
                client.cancel_live(int(value), learner=learner())
            case "reset":
                state.update(form=Form(), complaints=[], refused=None)
                _write_url(state)
    except LabError as refused:
        state["refused"] = refused


def _send(form: Form, lang: str) -> None:
    client.send(form.prompt or PROMPT[lang], max_tokens=form.tokens, temperature=form.temperature, n=form.n, model=form.model, learner=learner())


# ---- the address


def _follow_url(state: dict[str, Any]) -> None:
    said = {name.removeprefix(f"{KEY}."): value for name, value in st.query_params.items() if name.startswith(f"{KEY}.")}
    came_back = st.session_state.get("entered", True) and not said
    if said != state["written"] and not came_back:
        state["form"], state["complaints"] = _checked(said)
    _write_url(state)


def _checked(said: Mapping[str, Any]) -> tuple[Form, list[LabError]]:
    """The form, and what of it is not possible."""
    names, form, complaints = [field.name for field in fields(Form)], Form(), []
    for name, value in said.items():
        try:
            if name not in names:
                raise UnknownName("parameter", "参数", str(name)[:80], names)
            form = Form(**{**asdict(form), name: value})
        except pydantic.ValidationError as wrong:
            complaints.append(complaint(wrong, names))
        except LabError as wrong:
            complaints.append(wrong)
    return form, complaints


def _write_url(state: dict[str, Any]) -> None:
    fresh = Form()
    want = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in asdict(state["form"]).items() if value != getattr(fresh, name)}
    said = {name.removeprefix(f"{KEY}."): value for name, value in st.query_params.items() if name.startswith(f"{KEY}.")}
    if said != want:
        others = {name: st.query_params.get_all(name) for name in st.query_params if not name.startswith(f"{KEY}.")}
        st.query_params.from_dict(others | {f"{KEY}.{name}": value for name, value in want.items()})
    state["written"] = want
