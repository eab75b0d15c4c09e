"""The pages themselves: the contents, a lesson, its quiz."""

from __future__ import annotations

import html
from collections import Counter
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Callable, Iterable

import pydantic
import streamlit as st
from streamlit.errors import FragmentHandledException

from app import prose, question_box, quiz
from app.lesson import TAKEAWAYS, Entry, Instrument, Lesson, Prose, existing, from_heading, load, words
from components import frame, reader, widget
from compute import turns
from compute.errors import BrokenData, LabError
from compute.functions import complaint

ROOT = Path(__file__).resolve().parent.parent
SHOWN_VALUE = 60  # characters of a wrong value that are repeated to the reader
SHOWN_NAMES = 3  # of those that an address makes up


def home(lang: str, entries: list[Entry], pages: dict, broken: BrokenData | None = None) -> None:
    """broken: what is wrong with the order of the lessons, when that is why there are none."""
    say = words(lang)
    with st.container(key="lab-prose-home"):
        st.html(f'<header class="lab-open"><p class="lab-eyebrow">{_text(say("subtitle"))}</p>'
                f'<h1>{prose.clauses(say("home_question"))}</h1><p class="lab-lead">{_text(say("home_lead"))}</p></header>')
        if not entries:
            refuse(told(broken, lang) if broken else say("no_lessons"))
            return
        with st.container(key="lab-progress"):
            reader.progress(lang, minutes_of(entries, lang))
        with st.container(key="lab-contents"):
            for entry in entries:
                with st.container(key=f"lab-entry-{'branch' if entry.branch else 'chapter'}-{entry.slug}"):
                    _contents_entry(entry, lang, pages[entry.slug])


def minutes_of(entries: list[Entry], lang: str) -> list[tuple[str, int]]:
    """(slug, minutes) of those that can be read."""
    found = []
    for entry in entries:
        with suppress(BrokenData):
            found.append((entry.slug, load(entry.slug, lang).minutes))
    return found


def _contents_entry(entry: Entry, lang: str, page) -> None:
    try:
        question = prose.plain(load(entry.slug, lang).question, lang)
    except LabError as reason:
        refuse(told(reason, lang))
        return
    chapter_link(entry, lang, page)
    st.html(f'<p class="lab-entry-question">{_text(question)}</p>')


def chapter_link(entry: Entry, lang: str, page) -> None:
    """Number, short title, minutes."""
    try:
        minutes = words(lang)("minutes", n=load(entry.slug, lang).minutes)
    except BrokenData:
        minutes = ""
    number = f"**{entry.number}** " if entry.number else ""
    st.page_link(page, label=f"{number}{prose.literal(page.title)} *{minutes}*" if minutes else f"{number}{prose.literal(page.title)}",
                 query_params={"lang": lang}, width="stretch")


def lesson_page(entry: Entry, lang: str, entries: list[Entry], pages: dict) -> None:
    try:
        text = load(entry.slug, lang)
    except BrokenData as reason:
        with st.container(key="lab-prose-refused-lesson"):
            refuse(told(reason, lang))
    else:
        name_strangers(text)
        _part("opening", lang, opening, entry, text, entries, pages)
        _body(text)
    neighbours(entry, lang, entries, pages)


def _body(text: Lesson) -> None:
    takeaway_shown, seen, parts = False, Counter(), list(enumerate(text.parts))
    while parts:
        position, part = parts.pop(0)
        if isinstance(part, Instrument):
            seen[part.widget] += 1
            shown = replace(part, preset={"instance": seen[part.widget]} | part.preset)
            if "guess" in part.preset:
                follows = parts.pop(0)[1] if parts and isinstance(parts[0][1], Prose) else None
                _asking(position, shown, follows, text)
            else:
                _part(str(position), text.lang, instrument_part, position, shown, text.lang)
        elif isinstance(part, Prose):
            _part(str(position), text.lang, prose_part, position, part, text)
        elif not takeaway_shown:
            takeaway_shown = True
            _ending(text)
    if not takeaway_shown:
        _ending(text)


@st.fragment
def _asking(position: int, part: Instrument, follows: Prose | None, text: Lesson) -> None:
    """An instrument that asks first, and the prose after it, which must not tell the answer: a guess redraws these two and not the page."""
    with turns.taken():
        _part(str(position), text.lang, instrument_part, position, part, text.lang)
        if follows:
            _part(str(position + 1), text.lang, prose_part, position + 1, follows, text, frame.awaits_guess(part.widget, part.preset["instance"]))


def instrument_part(position: int, part: Instrument, lang: str) -> None:
    with st.container(key=f"lab-instrument-{position}"):
        try:
            frame.show(part.widget, lang=lang, **part.preset)
        except pydantic.ValidationError as reason:  # its line in the lesson asks for what it cannot do
            raise complaint(reason, [field.name for field in fields(widget(part.widget).Params)]) from None


def _ending(text: Lesson) -> None:
    _part("takeaway", text.lang, takeaway, text)
    _quiz(text)
    _part("question", text.lang, question_box.show, text.slug, text.lang)


def takeaways(text: Lesson) -> str:
    """What the other lessons leave to be kept, as a Markdown list."""
    colon, rows = "：" if text.lang == "zh" else ": ", []
    for entry in existing():
        if entry.slug != text.slug:
            with suppress(BrokenData):
                each = load(entry.slug, text.lang)
                rows.append(f"- [{f'{entry.number} {each.title}'.strip()}](/{entry.slug}?lang={text.lang}){colon}{each.takeaway}")
    return "\n".join(rows)


def _part(name: str, lang: str, show: Callable[..., None], *arguments) -> None:
    """A failure is said where it happened; the rest of the page goes on."""
    turns.pass_on()  # a whole page takes as long as several moves of a control
    try:
        show(*arguments)
    except LabError as reason:
        with st.container(key=f"lab-prose-refused-{name}"):
            refuse(told(reason, lang))
    except FragmentHandledException:
        pass  # an instrument's own failure, which the server has said in its place


def prose_part(position: int, part: Prose, of: Lesson, awaited: bool = False) -> None:
    say, said = words(of.lang), part.text.replace(TAKEAWAYS, takeaways(of)) if TAKEAWAYS in part.text else part.text
    with st.container(key=f"lab-prose-{position}"):
        if awaited:
            st.html(f'<p class="lab-quiet" role="status">{_text(say("after_guess"))}</p>')
            said = from_heading(said)
        if said:
            st.markdown(prose.markdown(said, of.lang, say), unsafe_allow_html=True)


def name_strangers(text: Lesson) -> None:
    """A parameter for an instrument that is not on this page would otherwise be passed over in silence."""
    keys, lost = text.keys(), strangers(st.query_params, text.keys())
    if not lost:
        return
    shown = [cut(f"{name}={st.query_params[name]}") for name in lost[:SHOWN_NAMES]] + ["…"] * (len(lost) > SHOWN_NAMES)
    comma = "、" if text.lang == "zh" else ", "
    say = words(text.lang)
    with st.container(key="lab-prose-strangers"):
        refuse(say("unknown_parameter", value=comma.join(shown), known=comma.join(keys)) if keys
               else say("unknown_parameter_none", value=comma.join(shown)))


def strangers(names: Iterable[str], keys: list[str]) -> list[str]:
    """Names with a dot that no instrument takes for its own; "roofline-placer.2.batch" is the second one's."""
    return [name for name in names if "." in name and not any(
        name.startswith(key + ".") and not name.removeprefix(key + ".").split(".")[0].isdigit() for key in keys)]


def cut(value: str) -> str:
    return value if len(value) <= SHOWN_VALUE else value[:SHOWN_VALUE] + "…"


def told(reason: LabError, lang: str) -> str:
    """Its sentence, with the paths of our own files as the repository has them: where it lies here is nobody's business."""
    return reason.message(lang).replace(f"{ROOT}/", "")


def refuse(sentence: str) -> None:
    st.html(f'<p class="lab-refusal" role="alert">{_text(sentence)}</p>')


def header(address: str, lang: str) -> None:
    """The head of a page that is no lesson: its words are `address`, `address_question` and `address_lead`."""
    say = words(lang)
    with st.container(key=f"lab-prose-{address}"):
        st.html(f'<header class="lab-open"><p class="lab-eyebrow">{_text(say(address))}</p>'
                f'<h1>{prose.clauses(say(f"{address}_question"))}</h1><p class="lab-lead">{_text(say(f"{address}_lead"))}</p></header>')


def opening(entry: Entry, text: Lesson, entries: list[Entry], pages: dict) -> None:
    say = words(text.lang)
    place = say("branch") if entry.branch else say("chapter", n=entry.number) if entry.number else say("course")
    titles = {each.slug: pages[each.slug].title for each in entries}
    needed = [titles.get(each, each) for each in text.prerequisites]
    listed = ("、" if text.lang == "zh" else ", ").join(needed)
    meta = [place, say("minutes", n=text.minutes), say("prerequisites", list=listed) if needed else say("no_prerequisites")]
    with st.container(key="lab-prose-opening"):
        st.html('<header class="lab-open"><p class="lab-eyebrow">' + "".join(f"<span>{_text(each)}</span>" for each in meta)
                + f"</p><h1>{prose.clauses(prose.plain(text.question, text.lang))}</h1></header>")
        # Markdown, because the hero's number carries its papers like every other number.
        st.markdown(f'<div class="lab-hero"><p class="lab-hero-figure">{prose.markdown(text.hero, text.lang, say)}</p>'
                    f'<p class="lab-hero-caption">{prose.markdown(text.hero_caption, text.lang, say)}</p></div>', unsafe_allow_html=True)


def takeaway(text: Lesson) -> None:
    say = words(text.lang)
    with st.container(key="lab-prose-takeaway"):
        st.markdown(f'<aside class="lab-takeaway"><p class="lab-eyebrow">{_text(say("takeaway"))}</p>'
                    f"<p>{prose.markdown(text.takeaway, text.lang, say)}</p></aside>", unsafe_allow_html=True)


def neighbours(entry: Entry, lang: str, entries: list[Entry], pages: dict) -> None:
    say, place = words(lang), entries.index(entry)
    with st.container(key="lab-prose-neighbours"):
        sides = st.columns(2)
        for side, name, index in ((sides[0], "previous", place - 1), (sides[1], "next", place + 1)):
            if not 0 <= index < len(entries):
                continue
            other = entries[index]
            try:
                teaser = prose.plain(load(other.slug, lang).question, lang)
            except LabError:
                teaser = other.slug
            with side.container(key=f"lab-{name}"):
                st.html(f'<p class="lab-eyebrow">{_text(say(name))}</p>')
                st.page_link(pages[other.slug], label=prose.literal(teaser), query_params={"lang": lang}, width="stretch")


# ---- quiz


@st.fragment
def _quiz(text: Lesson) -> None:
    with turns.taken():
        _part("quiz", text.lang, ask, text)


def ask(text: Lesson) -> None:
    items = quiz.load(text.folder)
    if not items:
        return
    say = words(text.lang)
    with st.container(key="lab-prose-quiz"):
        st.html(f'<h2 class="lab-section">{_text(say("quiz.title"))}</h2>')
        right = [_item(text, item, number) for number, item in enumerate(items, 1)]
        if all(right):
            if not st.session_state.get(passed := f"passed:{text.slug}"):
                st.session_state[passed] = True
                st.rerun()  # the shell tells the browser, which keeps it
            st.html(f'<p class="lab-passed" role="status">{_text(say("quiz.all_right"))}</p>')


def _item(text: Lesson, item: quiz.Item, number: int) -> bool:
    """Shows one question; true once it has been answered correctly."""
    lang, say = text.lang, words(text.lang)
    key = f"quiz-{text.slug}-{item.id}"
    with st.container(key=f"lab-{key}"):
        st.markdown(f"**{number}**&ensp;" + prose.markdown(item.question[lang], lang, say), unsafe_allow_html=True)
        if key not in st.session_state and st.session_state.get(f"answer:{key}"):
            st.session_state[key] = st.session_state[f"answer:{key}"]  # back from another page
        with st.form(f"form-{key}", border=False):
            if isinstance(item, quiz.Choice):
                options = {option.id: option.text[lang] for option in item.options}
                # The browser keeps the label that it showed, which no option has after a change of language: say it again
                # as an id. Only then, since it would undo a choice that is not yet submitted.
                if st.session_state.setdefault(f"lang:{key}", lang) != lang and st.session_state.get(key) in options:
                    st.session_state[key] = st.session_state[key]
                st.session_state[f"lang:{key}"] = lang
                given = st.radio(prose.plain(item.question[lang], lang), list(options), index=None, key=key, label_visibility="collapsed",
                                 format_func=lambda id: prose.plain(options[id], lang))
            else:
                tolerance = say("quiz.tolerance", percent=f"{item.tolerance * 100:g}")
                given = st.text_input(say("quiz.your_answer", unit=item.unit.split()[0], tolerance=tolerance) if item.unit
                                      else say("quiz.your_answer_plain", tolerance=tolerance), key=key, max_chars=24)
            if st.form_submit_button(say("quiz.check")):
                st.session_state[f"answer:{key}"] = given
        answer = st.session_state.get(f"answer:{key}", ...)
        if answer is ...:
            return False
        return _grade(item, answer, lang)


def _grade(item: quiz.Item, answer: str | None, lang: str) -> bool:
    say = words(lang)
    if not answer:
        st.html(f'<p class="lab-refusal">{_text(say("quiz.empty" if isinstance(item, quiz.Choice) else "quiz.empty_number"))}</p>')
        return False
    if isinstance(item, quiz.Numeric):
        value = item.read(answer)
        if value is None:
            said = say("quiz.not_in_unit", value=answer, unit=item.unit.split()[0]) if item.unit else say("quiz.not_a_number", value=answer)
            st.html(f'<p class="lab-refusal">{_text(said)}</p>')
            return False
        right, truth = item.is_right(value), say("quiz.truth", value=item.shown(lang)) + ("。" if lang == "zh" else ". ")
    else:
        right, truth = item.is_right(answer), ""
    verdict = "right" if right else "wrong"
    # Blank lines inside the tag: without them the whole is HTML, in which a formula stays as it was typed.
    st.markdown(f'<div class="lab-verdict lab-verdict-{verdict}" role="status">\n\n<strong>{_text(say(f"quiz.{verdict}"))}</strong> '
                f"{_text(truth)}{prose.markdown(item.explanation[lang], lang, say)}\n\n</div>", unsafe_allow_html=True)
    return right


def _text(text: str) -> str:
    return html.escape(text)
