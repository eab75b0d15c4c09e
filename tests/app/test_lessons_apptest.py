"""Every lesson under AppTest, in both languages: as it opens, with every control moved, before and after a guess, and its quiz."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from math import log
from typing import Any, Iterator, NamedTuple

import pytest
from streamlit.testing.v1 import AppTest

import components
from app import lesson, prose, quiz
from app.lesson import Instrument, Prose, words
from components import Scene, Stage, Vega, Widget
from components.controls import Choice, Control, Range, Stops, Text, Toggle
from compute.errors import LabError
from tests.conftest import ROOT

LANGUAGES = ("zh", "en")
LESSONS = [entry.slug for entry in lesson.existing()]
assert LESSONS, "no lessons found"
every_lesson = pytest.mark.parametrize("slug", LESSONS)
both_languages = pytest.mark.parametrize("lang", LANGUAGES)
pytestmark = pytest.mark.usefixtures("fresh_streamlit")


@pytest.fixture(autouse=True)
def nobody_computes(monkeypatch):
    """Pages must not need the service; at this address nobody answers."""
    monkeypatch.setenv("INFERENCE_LAB_COMPUTE", "http://127.0.0.1:9")


class Placed(NamedTuple):
    """An instrument where a lesson puts it."""

    key: str
    widget: Widget
    base: Any  # Params as the lesson opens it
    guess: str  # its question's name, or ""


def placed(slug: str, lang: str) -> list[Placed]:
    found, seen = [], Counter()
    for part in lesson.load(slug, lang).parts:
        if isinstance(part, Instrument):
            seen[part.widget] += 1
            key = part.widget if seen[part.widget] == 1 else f"{part.widget}.{seen[part.widget]}"
            widget, preset = components.widget(part.widget), dict(part.preset)
            guess = preset.pop("guess", "")
            found.append(Placed(key, widget, widget.Params(**{**widget.presets.get(lang, {}), **preset}), guess))
    assert found, f"{slug} has no instrument"
    return found


def visit(slug: str, lang: str, query: dict[str, Any]) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=60)
    for name, value in {"lesson": slug, "lang": lang, **query}.items():
        at.query_params[name] = str(value)
    return clean(at.run())


def clean(at: AppTest) -> AppTest:
    assert not at.exception, [each.value for each in at.exception]
    return at


def skipped(instruments: list[Placed]) -> dict[str, str]:
    return {f"{each.key}.guess": "skip" for each in instruments if each.guess}


def markup(at: AppTest) -> str:
    return as_read("\n".join(each.proto.body for each in at.get("html")))


def prose_of(at: AppTest) -> str:
    return as_read("\n".join(each.value for each in at.markdown))


def as_read(text: str) -> str:
    """Without the marks that tell a screen reader which words of an English text are Chinese."""
    return re.sub(r'<span lang="zh-CN">([^<]*)</span>', r"\1", text)


def stages(at: AppTest) -> list[dict]:
    data = [json.loads(each.proto.json) for each in at.get("bidi_component")]
    return [each for each in data if "stage" in each]


def expected_view(each: Placed, lang: str, params: Any) -> components.View:
    return each.widget.draw(each.widget.run(params), Scene(each.widget.words(lang), lang, "light", None, "skip"))


def assert_drawn(at: AppTest, instruments: list[Placed], lang: str, states: list[Any]) -> None:
    """Each instrument says what its own computation says at that state, and has its picture."""
    body, views = markup(at), [expected_view(each, lang, params) for each, params in zip(instruments, states)]
    assert 'class="lab-complaint"' not in body and 'class="lab-refused"' not in body and 'class="lab-refusal"' not in body
    for each, view in zip(instruments, views):
        assert html.escape(view.sentence) in body, f"{each.key} does not say: {view.sentence}"
    pictures = Counter(type(picture) for view in views for picture in (view.picture, *view.beside, *view.after))
    assert len(at.get("vega_lite_chart")) == pictures[Vega]
    assert len(stages(at)) == pictures[Stage]
    assert pictures[Vega] + pictures[Stage] >= len(instruments)


@every_lesson
@both_languages
def test_a_lesson_opens_whole(slug, lang):
    """Catches: an instrument that opens at another state than its line in the lesson says, or does not open; a lost
    headline, takeaway or quiz item; prose that is not printed."""
    instruments, text = placed(slug, lang), lesson.load(slug, lang)
    at = visit(slug, lang, skipped(instruments))
    assert_drawn(at, instruments, lang, [each.base for each in instruments])
    squeezed = "".join(text.question.split())
    assert squeezed in "".join(markup(at).replace('<span class="lab-clause">', "").replace("</span>", "").split())
    said = prose_of(at)
    assert words(lang)("takeaway") in said and text.takeaway in said
    for heading in [line for part in text.parts if isinstance(part, Prose) for line in part.text.splitlines() if line.startswith("## ")]:
        assert heading in said
    items = quiz.load(text.folder)
    assert len([b for b in at.button if b.label == words(lang)("quiz.check")]) == len(items) > 0


# ---- off default


def candidates(control: Control, now: Any) -> Iterator[Any]:
    match control:
        case Stops(_, stops):
            yield from sorted((s for s in stops if s != now), key=lambda s: abs(stops.index(s) - len(stops) // 3))
        case Range(_, low, high, step):
            yield from (v for v in (now + step, now - step) if low <= v <= high)
        case Choice(_, options):
            yield from (o for o in options() if o != now)
        case Toggle():
            yield not now
        case Text():
            yield now + "！"


def moved(each: Placed) -> dict[str, Any]:
    """Every control somewhere else, such that the whole is still possible."""
    values: dict[str, Any] = {}
    for control in sorted(each.widget.controls, key=lambda c: c.field != "requests"):  # fewer requests first: all that follows takes less
        for candidate in candidates(control, getattr(each.base, control.field)):
            try:
                params = each.widget.Params(**{**_fields(each.base), **values, control.field: candidate})
                each.widget.run(params)
            except (LabError, ValueError):
                continue
            values[control.field] = candidate
            break
    assert len(values) >= len({c.field for c in each.widget.controls}) / 2, f"{each.key}: only {list(values)} could be moved"
    return values


def _fields(params: Any) -> dict[str, Any]:
    return {name: getattr(params, name) for name in params.__dataclass_fields__}


def url_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()) else str(value)


@every_lesson
@both_languages
def test_every_control_can_be_moved_by_the_address(slug, lang):
    """Catches: a parameter that a link cannot carry, instruments that share a key, a control that shows another value than
    the picture, a state that is dropped from the address."""
    instruments = placed(slug, lang)
    moves = [moved(each) for each in instruments]
    query = {f"{each.key}.{field}": url_text(value) for each, values in zip(instruments, moves) for field, value in values.items()}
    at = visit(slug, lang, skipped(instruments) | query)
    states = [each.widget.Params(**{**_fields(each.base), **values}) for each, values in zip(instruments, moves)]
    assert_drawn(at, instruments, lang, states)
    kept = {name: value[0] if isinstance(value, list) else value for name, value in at.query_params.items()}
    assert {name: kept.get(name) for name in query} == query
    for each, values, params in zip(instruments, moves, states):
        for control in each.widget.controls:
            if control.field in values and control.when(params):
                assert _control(at, control, f"{each.key}.{control.field}").value == values[control.field]


def _control(at: AppTest, control: Control, key: str):
    kinds = {Stops: ("select_slider",), Range: ("slider",), Toggle: ("toggle",), Text: ("text_input",), Choice: ("segmented_control", "selectbox")}
    for kind in kinds[type(control)]:
        try:
            return getattr(at, kind)(key=key)
        except KeyError:
            continue
    raise AssertionError(f"{key} is not on the page")


# ---- predict first


@every_lesson
@both_languages
def test_the_answer_waits_for_the_guess(slug, lang):
    """Catches: prose that tells what the instrument shows while the question is still open, and that stays away afterwards."""
    text, instruments = lesson.load(slug, lang), placed(slug, lang)
    asking = [each for each in instruments if each.guess]
    if not asking:
        pytest.skip(f"{slug} asks no question first")
    parts = iter(zip(text.parts, text.parts[1:]))
    behind = [after.text for part, after in parts if isinstance(part, Instrument) and "guess" in part.preset and isinstance(after, Prose)]
    assert len(behind) == len(asking)
    at = visit(slug, lang, {})
    assert markup(at).count(html.escape(words(lang)("after_guess"))) == len(asking)
    for each, told in zip(asking, behind):
        assert opening_words(told) not in prose_of(at), f"told before the guess of {each.key}"
        assert html.escape(expected_view(each, lang, each.base).sentence) not in markup(at), f"{each.key} shows before the guess"
    for each in asking:
        at.button(key=f"{each.key}/skip").click()
        clean(at.run())
    for told in behind:
        assert opening_words(told) in prose_of(at)
    assert html.escape(words(lang)("after_guess")) not in markup(at)
    assert_drawn(at, instruments, lang, [each.base for each in instruments])


def opening_words(text: str) -> str:
    """The beginning of a text, up to its first number."""
    return text.split("[[")[0][:40]


@every_lesson
@both_languages
def test_a_committed_guess_is_told_and_stands_in_the_address(slug, lang):
    """Catches: a right guess called wrong or the other way round, a guess lost by the reload that shows the prose."""
    instruments = placed(slug, lang)
    asking = [each for each in instruments if each.guess and each.widget.guesses[each.guess].choices]
    if not asking:
        pytest.skip(f"{slug} asks no question with choices")
    for pick, verdict, css in ((True, "guess.right", "right"), (False, "guess.wrong", "wrong")):
        at = visit(slug, lang, {})
        for each in asking:
            guess = each.widget.guesses[each.guess]
            right = guess.right(each.widget.run(each.base))
            at.segmented_control(key=f"{each.key}/guess").set_value(right if pick else next(c for c in guess.choices if c != right))
            at.button(key=f"{each.key}/commit").click()
            clean(at.run())
        assert markup(at).count(f'<p class="lab-told"><b class="{css}">') == len(asking)
        for each in asking:
            assert at.query_params[f"{each.key}.guess"]


# ---- quiz

BY_HAND = {  # (lesson, item) → the answer, written out
    ("roofline", "h200"): 4.8e12 / (2 * 25_623_920_640),
    ("roofline", "kv-bytes"): 2 * 32 * 32 * 128 * 2 / 1024,
    ("batching", "static"): 100 * (3 + 5 + 6 + 18) / (4 * 18),
    ("batching", "blocks"): 63,
    ("batching", "copies"): 3,
    ("quantization", "bits"): 4 + 16 / 64,
    ("serving", "end-to-end"): 0.5 + 250 * 0.04,
    ("serving", "goodput"): 3 / 5,
    ("serving", "load"): log(100) / (1 - 0.9),
    ("serving", "characters"): 60 * 800 / 500,
    ("quantization", "by-hand"): 2 * 0.2,
}


@every_lesson
@both_languages
def test_the_quiz_grades_right_and_wrong(slug, lang):
    """Catches: a wrong key, an answer graded in another unit, a pass with one item wrong, an explanation that is missing."""
    folder = lesson.load(slug, lang).folder
    items, say = quiz.load(folder), words(lang)
    at = visit(slug, lang, {})
    assert "lab-verdict" not in prose_of(at)
    for right in (False, True):
        for number, item in enumerate(items):
            key = f"quiz-{slug}-{item.id}"
            if isinstance(item, quiz.Choice):
                at.radio(key=key).set_value(next(option.id for option in item.options if option.right is right))
            else:
                truth = BY_HAND.get((slug, item.id), item.expected())
                at.text_input(key=key).set_value(f"{truth if right else truth * (1 + 3 * item.tolerance):.6g}")
            [b for b in at.button if b.label == say("quiz.check")][number].click()
        clean(at.run())  # all at once, as a rerun draws the whole lesson
        said = prose_of(at)
        assert said.count("lab-verdict-right") == (len(items) if right else 0)
        assert said.count("lab-verdict-wrong") == (0 if right else len(items))
        assert ('class="lab-passed"' in markup(at)) is right
        for item in items:
            assert as_read(prose.markdown(item.explanation[lang].split("[[")[0], lang, say)) in said
