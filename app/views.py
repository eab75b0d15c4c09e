"""The pages themselves: the contents, a lesson, its quiz."""

from __future__ import annotations

import html
from collections import Counter

import streamlit as st

from app import prose, quiz
from app.lesson import Entry, Instrument, Lesson, Prose, from_heading, load, words
from components import frame
from compute.errors import BrokenData, LabError


def home(lang: str, entries: list[Entry], pages: dict) -> None:
    say = words(lang)
    with st.container(key="lab-prose-home"):
        st.html(f'<header class="lab-open"><p class="lab-eyebrow">{_text(say("subtitle"))}</p>'
                f'<h1>{prose.clauses(say("home_question"))}</h1><p class="lab-lead">{_text(say("home_lead"))}</p></header>')
        if not entries:
            st.html(f'<p class="lab-refusal">{_text(say("no_lessons"))}</p>')
            return
        with st.container(key="lab-contents"):
            for entry in entries:
                with st.container(key=f"lab-entry-{'branch' if entry.branch else 'chapter'}-{entry.slug}"):
                    _contents_entry(entry, lang, pages[entry.slug])


def _contents_entry(entry: Entry, lang: str, page) -> None:
    try:
        text = load(entry.slug, lang)
    except BrokenData as reason:
        st.html(f'<p class="lab-refusal">{_text(reason.message(lang))}</p>')
        return
    chapter_link(entry, lang, page)
    st.html(f'<p class="lab-entry-question">{_text(prose.plain(text.question, lang))}</p>')


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
    text = load(entry.slug, lang)
    opening(entry, text, entries, pages)
    takeaway_shown, seen, awaited = False, Counter(), False
    for position, part in enumerate(text.parts):
        try:
            if isinstance(part, Prose):
                with st.container(key=f"lab-prose-{position}"):
                    if awaited:
                        st.html(f'<p class="lab-quiet" role="status">{_text(words(lang)("after_guess"))}</p>')
                    if told := from_heading(part.text) if awaited else part.text:
                        st.markdown(prose.markdown(told, lang, words(lang)), unsafe_allow_html=True)
                awaited = False
            elif isinstance(part, Instrument):
                seen[part.widget] += 1
                with st.container(key=f"lab-instrument-{position}"):
                    frame.show(part.widget, lang=lang, **{"instance": seen[part.widget]} | part.preset)
                awaited = "guess" in part.preset and frame.awaits_guess(part.widget, part.preset.get("instance", seen[part.widget]))
            else:
                takeaway(text)
                takeaway_shown = True
                ask(text)
        except LabError as reason:  # said where it happened; the rest of the page goes on
            with st.container(key=f"lab-prose-refused-{position}"):
                refuse(reason.message(lang))
    if not takeaway_shown:
        takeaway(text)
        ask(text)
    neighbours(entry, lang, entries, pages)


def refuse(sentence: str) -> None:
    st.html(f'<p class="lab-refusal" role="alert">{_text(sentence)}</p>')


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
            except BrokenData:
                teaser = other.slug
            with side.container(key=f"lab-{name}"):
                st.html(f'<p class="lab-eyebrow">{_text(say(name))}</p>')
                st.page_link(pages[other.slug], label=prose.literal(teaser), query_params={"lang": lang}, width="stretch")


# ---- quiz


def ask(text: Lesson) -> None:
    items = quiz.load(text.folder)
    if not items:
        return
    say = words(text.lang)
    with st.container(key="lab-prose-quiz"):
        st.html(f'<h2 class="lab-section">{_text(say("quiz.title"))}</h2>')
        right = [_item(text, item, number) for number, item in enumerate(items, 1)]
        if all(right):
            st.session_state[f"passed:{text.slug}"] = True
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
        value = quiz.read_number(answer)
        if value is None:
            st.html(f'<p class="lab-refusal">{_text(say("quiz.not_a_number", value=answer))}</p>')
            return False
        right, truth = item.is_right(value), say("quiz.truth", value=item.shown(lang)) + ("。" if lang == "zh" else ". ")
    else:
        right, truth = item.is_right(answer), ""
    verdict = "right" if right else "wrong"
    st.markdown(f'<div class="lab-verdict lab-verdict-{verdict}" role="status"><p><strong>{_text(say(f"quiz.{verdict}"))}</strong> '
                f"{_text(truth)}{prose.markdown(item.explanation[lang], lang, say)}</p></div>", unsafe_allow_html=True)
    return right


def _text(text: str) -> str:
    return html.escape(text)
