"""Puts a widget on the page. Keys, URL state, caching, marks, errors, reset, downloads and the text equivalent happen
here and nowhere else; a widget only computes and draws.

State of one instrument, by its key ("roofline-placer", or "roofline-placer.2" for the second on a page):
  values    parameters that differ from the lesson's preset, the truth for controls and URL alike
  written   what we last wrote into the URL; when the URL says otherwise the reader came by link, back or reload
  current, previous    Params shown now and before the last move (the ghost)
  guess     None until committed
  t         the step that the player stands at; None while nobody touched it
  charts    how often each chart that can be clicked was begun anew, see _slot
  answer    (Params, what the service said) of the last live run, or so far of the one under way
  run       the live run under way, a Run
  failed    what ended the last live run, until it was told
"""

from __future__ import annotations

import html
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pydantic
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequestType

import components
from components import controls, player
from components.text import LANGUAGES, Words, amount, condition, foreign, formula, load_words, said
from compute import numbers, turns
from compute.errors import BadInput, LabError, Unavailable, UnknownName
from compute.functions import complaint, plain
from compute.quantity import Quantity
from compute.service import client

HERE = Path(__file__).parent
FOLDED = 4
LONGEST_STEP = 9  # digits of a step in the address
LOOK_AGAIN_SECONDS = 4  # while the service is away
HEAD_LABELS = ("reset", "wasReset", "link", "copied", "csv", "json", "picture", "noPicture", "help", "data")
FRAMEWORK = {  # what the framework calls parts of the page, in English whatever the page's language
    "sidebar": "Sidebar", "collapse": "Collapse sidebar", "expand": "Expand sidebar", "open": "Open", "close": "Close", "suggestions": "Suggestions",
    "more": "Increment", "less": "Decrement",
}  # fmt: skip
ONE_MOVE_SECONDS = 1.5  # a slider that moves on within this long is still on its way: the ghost stays where it set out
REDRAW_SECONDS = 0.5  # between two pictures of a live run under way

_head = st.components.v2.component(
    "instrument_head",
    html='<div class="head"></div>',
    css=(HERE / "frame_head.css").read_text(encoding="utf-8"),
    js=(HERE / "take_away.js").read_text(encoding="utf-8") + (HERE / "frame_head.js").read_text(encoding="utf-8"),
)


_framework = st.components.v2.component("framework_words", js=(HERE / "frame_words.js").read_text(encoding="utf-8"))


def enter(page: str) -> None:
    """Call once at the top of a page's run: tells a fresh visit (state comes back) from a move on the same page."""
    st.session_state["entered"] = st.session_state.get("page") != page
    st.session_state["page"] = page
    st.html(HERE / "frame.css")
    ours = load_words(HERE / "text.toml", st.session_state.get("lang", LANGUAGES[0]))
    _framework(key="framework_words", height=1, data={"skip": ours("framework.skip"), **{theirs: ours(f"framework.{name}") for name, theirs in FRAMEWORK.items()}})


def show(id: str, *, lang: str, instance: int = 1, guess: str = "", **preset: Any) -> None:
    """Show a widget at the lesson's preset, or at what the URL says."""
    widget = components.widget(id)
    key = _key(id, instance)
    base = _values(widget.Params(**{**widget.presets.get(lang, {}), **preset}))
    state = _state(key)
    _follow_url(widget, key, base, state)
    if guess and state["guess"] not in (None, "skip") and not _possible(widget.guesses[guess], state["guess"]):
        state["complaints"].append(_impossible(widget.guesses[guess], state["guess"]))
        state["guess"] = None
        _write_url(key, base, state)
    look = _look if guess and state["guess"] is None else _instrument  # an answer redraws what stands around it too
    look(id, key, lang, base, guess)


def _possible(guess: components.Guess, text: str) -> bool:
    """Whether a guess that came by the address could have been made on the page."""
    if guess.choices:
        return text in guess.choices
    try:
        return guess.bounds[0] <= float(text) <= guess.bounds[1]
    except ValueError:
        return False


def _impossible(guess: components.Guess, text: str) -> LabError:
    if guess.choices:
        return UnknownName("guess", "猜测", text, [*guess.choices, "skip"])
    low, high = guess.bounds
    return BadInput("guess", text, f"a number from {low:g} to {high:g} is needed", f"要填 {low:g} 到 {high:g} 之间的数")


def awaits_guess(id: str, instance: int = 1) -> bool:
    """Whether the instrument just shown still waits for the learner's guess: the page then keeps its answer back too."""
    return _state(_key(id, instance))["guess"] is None


def _key(id: str, instance: int) -> str:
    return id if instance == 1 else f"{id}.{instance}"


# ---- state and URL


def _state(key: str) -> dict[str, Any]:
    fresh = {"values": {}, "written": {}, "current": None, "previous": None, "guess": None, "t": None, "answer": None, "run": None, "failed": None,
             "complaints": [], "charts": {}}  # fmt: skip
    place = st.session_state.get("page", ""), key  # the same widget in another lesson is another instrument
    return st.session_state.setdefault("instruments", {}).setdefault(place, fresh)


def _values(params: Any) -> dict[str, Any]:
    return {f.name: getattr(params, f.name) for f in fields(params)}


def _follow_url(widget, key: str, base: dict[str, Any], state: dict[str, Any]) -> None:
    said = {name.removeprefix(key + "."): value for name, value in st.query_params.items() if _belongs(name, key, base)}
    came_back = st.session_state.get("entered", True) and not said
    if said != state["written"] and not came_back and not _alone():
        state["values"], state["complaints"] = {}, []
        state["guess"] = said.pop("guess", None)
        step = said.pop("t", "")
        state["t"] = int(step) if step.isdecimal() and len(step) <= LONGEST_STEP else None
        player.place(f"{key}/picture", state["t"])
        for field, text in said.items():
            try:
                if field not in base:
                    raise UnknownName("parameter", "参数", field, list(base))
                good = getattr(widget.Params(**{**base, **state["values"], field: _read(text, base[field])}), field)
                _require_option(widget, field, good)
                state["values"][field] = good
            except pydantic.ValidationError as e:
                state["complaints"].append(complaint(e, list(base)))
            except LabError as e:
                state["complaints"].append(e)
    _write_url(key, base, state)


def _read(text: str, like: Any) -> int | str:
    """An address holds text. A whole number is read here, as a field that takes only a few of them does not read text."""
    return int(text) if type(like) is int and text.isascii() and text.isdecimal() and len(text) <= LONGEST_STEP else text


def _require_option(widget, field: str, value: Any) -> None:
    """A choice has no value beside its options; Params may know only that it is text."""
    for control in widget.controls:
        if isinstance(control, controls.Choice) and control.field == field and value not in control.options():
            raise UnknownName(field, f" {field}", str(value), list(map(str, control.options())))


def _belongs(name: str, key: str, base: dict[str, Any]) -> bool:
    """"roofline-placer.batch" belongs to roofline-placer; "roofline-placer.2.batch" to its second instance."""
    return name.startswith(key + ".") and not name.removeprefix(key + ".").split(".")[0].isdigit()


def _write_url(key: str, base: dict[str, Any], state: dict[str, Any]) -> None:
    want = {field: _url_text(value) for field, value in state["values"].items() if value != base[field]}
    want |= {name: str(state[name]) for name in ("guess", "t") if state[name] is not None}
    said = {name.removeprefix(key + "."): value for name, value in st.query_params.items() if _belongs(name, key, base)}
    if said != want or _alone() and state["written"] != want:
        others = _written_elsewhere(key) if _alone() else {}
        kept = {name: st.query_params.get_all(name) for name in st.query_params if not any(_belongs(name, each, base) for each in (key, *others))}
        written = {f"{each}.{field}": text for each, fields in (others | {key: want}).items() for field, text in fields.items()}
        st.query_params.from_dict(kept | written)  # one step of the browser's history
    state["written"] = want


def _written_elsewhere(key: str) -> dict[str, dict[str, str]]:
    """What the page's other instruments wrote. A move's address is the browser's at the time of the move, which the move before it,
    still on its way, has not reached: going by it would undo that one. Only a whole page is asked for by address."""
    here = st.session_state.get("page", "")
    return {each: state["written"] for (page, each), state in st.session_state["instruments"].items() if page == here and each != key}


def _url_text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


# ---- the instrument


@lru_cache(maxsize=256)
def _result(id: str, params: Any, as_of: tuple[int, ...]) -> Any:
    """as_of: results on stored numbers, or on this machine's own, are new after each change of them, as in the prose."""
    return components.widget(id).run(params)


def _outcome(widget, params: Any, state: dict[str, Any]) -> Any:
    """The result, from the live answer as long as it is about the same."""
    if state["answer"]:
        about = widget.live.about or widget.live.arguments
        if about(state["answer"][0]) == about(params):
            return widget.run(params, state["answer"][1])
    return _result(widget.id, params, numbers.as_of())


def _look(id: str, key: str, lang: str, base: dict[str, Any], guess: str) -> None:
    widget, state = components.widget(id), _state(key)
    if state.pop("page_too", False):
        st.rerun()
    with turns.taken(), _tended(state):
        _put_instrument(widget, key, lang, base, guess, state)


_instrument = st.fragment(_look)


def _put_instrument(widget, key: str, lang: str, base: dict[str, Any], guess: str, state: dict[str, Any]) -> None:
    words, ours = widget.words(lang), load_words(HERE / "text.toml", lang)
    params = _params(widget, key, base, state)
    theme = getattr(st.context.theme, "type", None) or "light"
    with st.container(key=f"instrument-{key}"):
        try:
            result = _outcome(widget, params, state)
        except LabError as refusal:
            _put_head(widget, key, words, ours, "refused", base, lang=lang, of=repr(params), says=f'{ours("mark.refused")} {refusal.message(lang)}')
            _complain(state, lang)
            st.html(f'<div class="lab-refused" role="alert"><b>{_e(ours("mark.refused"))}</b> {_e(refusal.message(lang))}</div>')
            room = _put_live(widget, key, params, words, ours, lang, state)
            _put_controls(widget, key, words, ours, base, state)
            _follow_run(widget, key, words, ours, components.Scene(words, lang, theme, running=True), state, room)
            return
        before = _before(widget, params, state)
        reached = player.step(f"{key}/picture")
        t = state["t"] if reached is None else reached
        view = widget.draw(result, components.Scene(words, lang, theme, before, state["guess"], t, running=state["run"] is not None))
        mark, about = getattr(result, "mark", "computed"), {"lang": lang, "of": repr(params), "t": t}
        if guess and state["guess"] is None:
            _put_head(widget, key, words, ours, mark, base, **about)  # nothing to take away yet: it would be the answer
            _complain(state, lang)
            _ask(widget, key, guess, words, ours, base, state)
            return
        verdict, told = "", ""
        if guess and state["guess"] != "skip":
            verdict, told = _told(widget, guess, _asked(widget, base, result), words, ours, lang, state)
        says = None if state["run"] else " ".join(filter(None, (verdict and ours(f"guess.{verdict}"), told, view.sentence)))
        _put_head(widget, key, words, ours, mark, base, rows=view.rows, picture=True, says=says, **about)
        _complain(state, lang)
        if told:
            mark = verdict and f'<b class="{verdict}">{_e(ours(f"guess.{verdict}"))}</b>'
            st.html(f'<p class="lab-told">{mark} {_e(told)}</p>')
        _put_pictures(widget, key, view, 0, (view.picture, *view.beside), base, state, lang)
        _put_moves(widget, key, view.picture, t, words, base, state)
        _put_controls(widget, key, words, ours, base, state)
        room = _put_live(widget, key, params, words, ours, lang, state)
        st.html(_under(view, ours, lang))
        _put_pictures(widget, key, view, 1 + len(view.beside), view.after, base, state, lang)
        if view.derivation:
            with st.expander(ours("derivation")):
                st.markdown(view.derivation)
        _follow_run(widget, key, words, ours, components.Scene(words, lang, theme, before, state["guess"], t, running=True), state, room)


def _params(widget, key: str, base: dict[str, Any], state: dict[str, Any]) -> Any:
    try:
        params = widget.Params(**{**base, **state["values"]})
    except pydantic.ValidationError as e:
        state["complaints"].append(complaint(e, list(base)))
        wrong = {field for error in e.errors() for field in error["loc"][:1] if field in state["values"]}
        # Only what is wrong goes; all of it when each value is possible and together they are not.
        state["values"] = {field: value for field, value in state["values"].items() if wrong and field not in wrong}
        _write_url(key, base, state)
        return _params(widget, key, base, state)
    if params != state["current"]:
        before, now = state["current"], time.monotonic()
        moved = before and [field.name for field in fields(params) if getattr(params, field.name) != getattr(before, field.name)]
        slid = moved and [control.field for control in widget.controls if isinstance(control, (controls.Range, controls.Stops))]
        if not (slid and moved[0] in slid and moved == state.get("moved") and now - state["moved_at"] < ONE_MOVE_SECONDS):
            state["previous"] = before
        state.update(current=params, moved=moved, moved_at=now)
    return params


def _before(widget, params: Any, state: dict[str, Any]) -> Any:
    if state["previous"] is None or state["previous"] == params:
        return None
    try:
        return _outcome(widget, state["previous"], state)
    except LabError:
        return None


def _complain(state: dict[str, Any], lang: str) -> None:
    for error in state["complaints"]:
        st.html(f'<p class="lab-complaint" role="alert">{_e(error.message(lang))}</p>')


def _put_head(widget, key, words: Words, ours: Words, mark: str, base, *, lang: str, of: str, t: int | None = None, says: str | None = None,
              rows=(), picture: bool = False) -> None:  # fmt: skip
    """says: what a screen reader hears, once, when it has changed; None while there is nothing to say. of, t: what it is about, and
    the player's step, which the player says itself."""

    def reset():
        state = _state(key)
        asks_again = state["guess"] is not None  # and what stands around it must not tell the answer
        state.update(values={}, guess=None, t=None, page_too=asks_again, previous=None, current=None, complaints=[])
        state["charts"] = {name: count + 1 for name, count in state["charts"].items()}
        player.place(f"{key}/picture", None)
        _write_url(key, base, state)

    labels = {name: ours(f"head.{name}") for name in HEAD_LABELS}
    _head(
        key=f"{key}/head",
        data={
            "name": words("title"), "mark": mark, "markText": ours(f"mark.{mark}"), "labels": labels, "help": words("help"),
            "rows": plain(rows), "picture": picture, "file": key, "lang": lang, "of": of, "t": t, "says": says,
        },
        on_reset_change=reset,
    )  # fmt: skip


def _put_pictures(widget, key: str, view, first: int, pictures, base, state, lang: str) -> None:
    for number, picture in enumerate(pictures, first):
        slot = f"{key}/picture{number or ''}"
        match picture:
            case components.Vega(spec, clicks):
                slot = _slot(slot, clicks, {**base, **state["values"]}, state) if clicks else slot
                selecting = {"on_select": _picked(key, slot, clicks, base, state), "selection_mode": list(clicks)} if clicks else {}
                st.vega_lite_chart(spec=spec, key=slot, theme=None, width="stretch", alt=view.sentence, **selecting)
            case components.Stage():
                player.show(widget, slot, picture, view.sentence, lang, t=state["t"], moved=_moved(key, base, state), picked=_set(key, base, state))
            case components.Html(body):
                st.html(body)


def _moved(key: str, base, state):
    """The player came to rest at a step."""

    def moved(t: int | None):
        state["t"] = t
        _write_url(key, base, state)

    return moved


def _set(key: str, base, state):
    """A click in a Stage sets a parameter."""

    def picked(field: str, value: Any):
        state["values"][field] = value
        state["complaints"] = []
        _write_url(key, base, state)

    return picked


def _slot(name: str, clicks, values, state) -> str:
    """A chart's key: a new one once its selection stands for something else than the state (a list, the address or reset moved
    it since), as a chart that still holds a mark does not answer to a click on it."""
    slot = f"{name}/{state['charts'].setdefault(name, 0)}"
    if any(_points(slot, selection).get(field, values[field]) != values[field] for selection, field in clicks.items()):
        state["charts"][name] += 1
    return f"{name}/{state['charts'][name]}"


def _points(slot: str, selection: str) -> dict[str, Any]:
    """The mark that a chart's selection holds."""
    held = st.session_state.get(slot)
    return next(iter(held.selection.get(selection) or ()), {}) if held else {}


def _picked(key: str, slot: str, clicks, base, state):
    """A click on a mark sets the parameter that the selection stands for."""

    def picked():
        name, _, count = slot.rpartition("/")
        if int(count) != state["charts"][name]:
            return  # a chart that was there before; a slow browser still speaks of its selection
        for selection, field in clicks.items():
            point = _points(slot, selection)
            if field in point:
                state["values"][field] = point[field]
                state["complaints"] = []
                _write_url(key, base, state)

    return picked


def _put_moves(widget, key: str, picture, t: int | None, words: Words, base, state) -> None:
    """The buttons that go on from the step at which the player stands."""
    for control in widget.controls:
        if not isinstance(control, controls.Press) or not control.when(state["current"]):
            continue

        def done(value, field=control.field):
            state["values"][field] = value
            state.update(t=None, complaints=[])
            player.place(f"{key}/picture", None)
            _write_url(key, base, state)

        at = min(picture.start if t is None else t, picture.steps - 1) if isinstance(picture, components.Stage) else 0
        controls.render_moves(control, f"{key}.{control.field}", control.moves(state["current"], at), words, done)


def _put_controls(widget, key: str, words: Words, ours: Words, base, state) -> None:
    def one(control, segments=controls.SEGMENTS):
        field = control.field

        def changed():
            state["values"][field] = st.session_state[f"{key}.{field}"]
            state["complaints"] = []
            _write_url(key, base, state)

        controls.render(control, f"{key}.{field}", {**base, **state["values"]}[field], words, changed, segments)

    used = [control for control in widget.controls if not isinstance(control, controls.Press) and control.when(state["current"])]
    first, folded = used[: widget.shown], used[widget.shown :]
    with st.container(key=f"controls-{key}"):
        for column, control in zip(st.columns(len(first)) if first else (), first):
            with column:
                one(control)
        if folded:
            with st.expander(ours("more")):
                for row in range(0, len(folded), FOLDED):
                    for column, control in zip(st.columns(FOLDED), folded[row : row + FOLDED]):
                        with column:
                            one(control, controls.NARROW_SEGMENTS)


# ---- predict first


def _ask(widget, key, name, words: Words, ours: Words, base, state) -> None:
    guess = widget.guesses[name]
    with st.container(key=f"guess-{key}"):
        st.html(f'<p class="lab-guess"><span>{_e(ours("guess.first"))}</span> {_e(words(f"guess.{name}.question"))}</p>')
        slot = f"{key}/guess"
        if guess.choices:
            st.segmented_control(
                words(f"guess.{name}.question"), guess.choices, key=slot, label_visibility="collapsed",
                format_func=lambda id: words(f"guess.{name}.choice.{id}"),
            )  # fmt: skip
        else:
            low, high = guess.bounds
            st.number_input(f"{low:g} – {high:g} {guess.unit}", low, high, value=None, key=slot)

        def commit():
            if st.session_state.get(slot) is not None:
                state["guess"] = str(st.session_state[slot])
                _write_url(key, base, state)

        def skip():
            state["guess"] = "skip"
            _write_url(key, base, state)

        with st.container(horizontal=True):
            st.button(ours("guess.commit"), key=f"{key}/commit", on_click=commit, type="primary")
            st.button(ours("guess.skip"), key=f"{key}/skip", on_click=skip, type="tertiary")


def _asked(widget, base: dict[str, Any], shown: Any) -> Any:
    """The result that the question was about: the lesson's preset, wherever the controls have gone since."""
    try:
        return _result(widget.id, widget.Params(**base), numbers.as_of())
    except LabError:
        return shown


def _told(widget, name, result, words: Words, ours: Words, lang: str, state) -> tuple[str, str]:
    """Whether the guess was "right" or "wrong" ("" where it is neither); then guess and truth, and what follows from it."""
    guess, choice = widget.guesses[name], f"guess.{name}.choice"
    truth = guess.truth(result)
    told = words(f"{choice}.{state['guess']}") if state["guess"] in guess.choices else f"{state['guess']} {guess.unit}".strip()
    right = guess.right(result) if guess.right else None
    verdict = "" if right is None else "right" if right == state["guess"] else "wrong"
    figures = {"guess": told, "truth": amount(truth.value, truth.unit, lang)}
    line = ours("guess.missed", right=words(f"{choice}.{right}"), **figures) if verdict == "wrong" else ours("guess.told", **figures)
    return verdict, f"{line} {words.get(f'guess.{name}.after')}"


# ---- live


@dataclass
class Run:
    """A live run under way. Its events outlive the script that began it: where the service tells how far it is, the instrument is
    drawn again and again, each time by a fresh run of the same script."""

    params: Any
    events: Iterator[client.Progress | client.Result]
    before: Any  # the answer that there was
    fraction: float = 0.0
    drawn: float = 0.0  # time.monotonic() of the last picture
    redraws: bool = False  # the script ends only to draw the next one


@contextmanager
def _tended(state: dict[str, Any]) -> Iterator[None]:
    """Whatever ends the script ends the run under way and cancels its work, but for a redraw. What was measured stays."""
    run = state["run"]
    if run and not _alone():
        _end(state)  # the page was asked for anew in between
    elif run:
        run.redraws = False
    try:
        yield
    finally:
        if state["run"] and not state["run"].redraws:
            _end(state)


def _end(state: dict[str, Any]) -> None:
    if state["run"]:
        state["run"].events.close()
        state["run"] = None


def _put_live(widget, key, params, words: Words, ours: Words, lang: str, state) -> tuple | None:
    """The button; where progress and the cancelling button go, when there is a run to follow."""
    if not widget.live or not widget.live.when(params):
        return None
    if state["run"] and state["run"].params != params:
        _end(state)
    if failed := state["failed"]:
        state["failed"] = None
        st.html(f'<p class="lab-complaint" role="alert">{_e(failed.message(lang))}</p>')
    if not state["run"] and not client.status().up:
        _await_service(words.get("live.away", ours("live.away")))
        return None
    with st.container(key=f"live-{key}", horizontal=True, vertical_alignment="center"):
        if st.button(words.get(widget.live.button(params), ours("live.button")), key=f"{key}/run", type="primary"):
            state["run"] = Run(params, client.run(widget.live.function, widget.live.arguments(params), learner=_learner()), state["answer"])
        return st.empty(), st.empty()


def _follow_run(widget, key, words: Words, ours: Words, scene: components.Scene, state, room: tuple | None) -> None:
    """Waits for what the service says, when everything else is on the page."""
    run = state["run"]
    if not room or not run:
        return
    place, stop = room
    stop.button(ours("live.cancel"), key=f"{key}/stop", type="tertiary", on_click=_end, args=(state,))  # see also _pressed_meanwhile

    def tell():
        percent = {"percent": f"{run.fraction:.0%}"}
        place.progress(run.fraction, text=words("live.running", **percent) if "live.running" in words.table else ours("live.running", **percent))

    tell()  # also before there is news, as a redraw shall not blink
    try:
        for event in run.events:
            if isinstance(event, client.Result):
                state.update(answer=(run.params, event.value), complaints=[])
                break
            if _pressed_meanwhile():
                break
            run.fraction = min(1.0, event.fraction)
            tell()
            if widget.live.partial and event.partial is not None and _can_draw(widget, run.params, event.partial, scene):
                state["answer"] = run.params, event.partial
                if time.monotonic() - run.drawn >= REDRAW_SECONDS and _alone():
                    run.drawn, run.redraws = time.monotonic(), True
                    break
    except LabError as error:
        state["failed"] = error
        if isinstance(error, Unavailable):
            state["answer"] = run.before  # the page says that it shows what is stored
    if not run.redraws:
        _end(state)
    st.rerun(scope="fragment" if _alone() else "app")


def _alone() -> bool:
    """Whether the script runs for this instrument and not for the whole page."""
    run = get_script_run_ctx()
    return bool(run and run.fragment_ids_this_run)


def _can_draw(widget, params: Any, partial: Any, scene: components.Scene) -> bool:
    """Whether half an answer is enough for a picture."""
    try:
        widget.draw(widget.run(params, partial), scene)
    except (LabError, ArithmeticError, LookupError, TypeError, ValueError):
        return False
    return True


def _pressed_meanwhile() -> bool:
    """Whether a press or move waits for this run to end, as every one inside a fragment does: Streamlit finishes the running
    script first. A learner shall not wait for a long run, so it looks itself; there is no public call for that."""
    context = get_script_run_ctx()
    requests = context.script_requests if context else None
    return requests is not None and requests._state is ScriptRequestType.RERUN


@st.fragment(run_every=LOOK_AGAIN_SECONDS)
def _await_service(away: str) -> None:
    """Says that the service is away, and brings the page back by itself once it answers."""
    if client.status().up:
        st.rerun()
    st.html(f'<p class="lab-quiet" role="status">{_e(away)}</p>')


def _learner() -> str:
    """A name for this session, by which the service counts calls."""
    return st.session_state.setdefault("learner", uuid4().hex)


# ---- under the picture


def _under(view, ours: Words, lang: str) -> str:
    figures = "".join(
        f'<div class="lab-figure"><dt>{_e(r.label)}</dt><dd>{_figure(r.value)} <span>{_e(r.unit)}</span>'
        + (f'<i class="lab-change">{_e(r.change)}</i>' if r.change else "")
        + (f"<small>{_e(r.note)}</small>" if r.note else "")
        + "</dd></div>"
        for r in view.readouts
    )
    simplified = f'<p class="lab-simplified">{_e(view.simplified)}</p>' if view.simplified else ""
    return (
        f'<dl class="lab-figures">{figures}</dl><p class="lab-says">{foreign(_e(view.sentence), lang)}</p>'
        f"{simplified}{papers(view.papers, ours, lang)}"
    )


def _figure(value: str) -> str:
    if " | " not in value:
        return f"<b>{_e(value)}</b>"
    return f'<b class="lab-pair">{"<i> | </i>".join(map(_e, value.split(" | ")))}</b>'


def papers(quantities: tuple[Quantity, ...], ours: Words, lang: str) -> str:
    """The source line: kinds at a glance, formula, inputs, source and conditions one click away."""
    if not quantities:
        return ""
    kinds = " · ".join(dict.fromkeys(ours(f"kind.{q.kind}") for q in quantities))
    rows = "".join(f"<tr>{paper_cells(q, ours, lang)}</tr>" for q in quantities)
    first = next((q.formula for q in quantities if q.formula), "")
    heads = "".join(f'<th scope="col">{_e(ours(f"paper.{c}"))}</th>' for c in ("what", "value", "kind", "how", "with"))
    return (
        f'<details class="lab-papers"><summary><span class="lab-kind">{_e(kinds)}</span> <code>{_e(formula(first, lang))}</code></summary>'
        f'<div class="lab-scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


def paper_cells(q: Quantity, ours: Words, lang: str) -> str:
    how = _e(formula(q.formula, lang))
    if q.source:
        title = _e(said(q.source.title, lang))
        link = f'<a href="{_e(q.source.url)}" target="_blank" rel="noopener noreferrer">{title}</a>' if q.source.url.startswith("http") else title
        how += f"{'<br>' if how else ''}{link} {_e(said(q.source.where, lang))} {_e(q.source.read_on)}"
    equals, joint = ("：", "；") if lang == "zh" else (" = ", "; ")
    with_ = joint.join(equals.join(condition(name, value, lang)) for name, value in {**q.inputs, **q.conditions}.items())
    match q.value:
        case int() | float():
            value = amount(q.value, q.unit, lang, 4)
        case (low, high) if isinstance(q.value, tuple):  # a published range
            value = f"{amount(low, q.unit, lang)} – {amount(high, q.unit, lang)}"
        case other:
            value = said(other, lang)
    says = q.says.get(lang, "")
    return f"<td>{_e(says)}</td><td>{_e(value)}</td><td>{_e(ours(f'kind.{q.kind}'))}</td><td>{how}</td><td>{_e(with_)}</td>"


def _e(text: Any) -> str:
    return html.escape(str(text))
