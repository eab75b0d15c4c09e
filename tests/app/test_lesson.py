"""Lessons as files: front matter, directives, and what a wrong file says."""

from __future__ import annotations

import shutil

import pytest

from app import lesson, prose, quiz, shell
from app.lesson import Instrument, Prose, Quiz
from compute import numbers
from compute.errors import BrokenData
from components import widgets
from tests.conftest import SAMPLE_LESSONS

FRONT = '+++\ntitle = "T"\nquestion = "Q?"\nminutes = 5\nhero = "1"\nhero_caption = "c"\ntakeaway = "t"\n+++\n'


def parse(body: str, front: str = FRONT):
    return lesson.parse(front + body, "sample", "en")


def test_directives_split_the_prose():
    text = parse('Before.\n\n::roofline-placer chip=h100-sxm batch=58 compare=true text="two words"\n\nAfter.\n\n::quiz\n')
    assert text.parts == (
        Prose("Before."), Instrument("roofline-placer", {"chip": "h100-sxm", "batch": 58, "compare": True, "text": "two words"}),
        Prose("After."), Quiz())


def test_a_directive_inside_code_is_code():
    assert parse("```\n::roofline-placer batch=1\n```\n").parts == (Prose("```\n::roofline-placer batch=1\n```"),)


@pytest.mark.parametrize("body,said", [("::roofline-placer batch\n", "batch"), ('::roofline-placer text="open\n', "quot")])
def test_a_wrong_directive_names_its_line(body, said):
    with pytest.raises(BrokenData, match=said):
        parse(body)


@pytest.mark.parametrize("front,said", [
    ("no front matter\n", "front matter"),
    ('+++\ntitle = "T\n+++\n', "front matter"),
    (FRONT.replace("minutes = 5", 'minutes = "five"'), "minutes"),
    (FRONT.replace('takeaway = "t"\n', ""), "takeaway"),
    (FRONT.replace("+++\n", '+++\nprerequisites = 5\n', 1), "prerequisites"),
    (FRONT.replace("+++\n", '+++\ncolour = "red"\n', 1), "colour"),
])
def test_wrong_front_matter_says_which_key(front, said):
    with pytest.raises(BrokenData, match=said):
        parse("x", front)


def test_only_lessons_with_both_languages_are_listed(tmp_path):
    (tmp_path / "order.toml").write_text('[[lesson]]\nslug="a"\n[[lesson]]\nslug="b"\n')
    for name in ("a/zh.md", "a/en.md", "b/zh.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(FRONT)
    assert [entry.slug for entry in lesson.existing(tmp_path)] == ["a"]


def test_the_order_names_the_planned_chapters_once():
    slugs = [entry.slug for entry in lesson.planned()]
    course = ["guide", "roofline", "sampling", "batching", "speculative", "quantization", "serving", "architecture", "lab"]
    assert [slug for slug in slugs if slug in course] == course and len(slugs) == len(set(slugs))


def test_a_broken_lesson_does_not_take_the_others_along(tmp_path, monkeypatch):
    (tmp_path / "order.toml").write_text('[[lesson]]\nslug="a"\n')
    (tmp_path / "a").mkdir()
    for lang in ("zh", "en"):
        (tmp_path / "a" / f"{lang}.md").write_text("broken")
    monkeypatch.setattr(lesson, "LESSONS", tmp_path)
    assert shell.title_of("a", "en") == "a"
    assert len(shell.problems()) == 2


@pytest.mark.parametrize("line", ["::no-such", "see [[@no-such]]"])
def test_an_unknown_instrument_is_told_at_the_start(tmp_path, monkeypatch, line):
    """Catches: a name in running text that nobody looks for before a learner opens the page."""
    shutil.copytree(SAMPLE_LESSONS, tmp_path, dirs_exist_ok=True)
    page = tmp_path / "roofline" / "en.md"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    monkeypatch.setattr(lesson, "LESSONS", tmp_path)
    (problem,) = shell.problems()
    assert problem.startswith("roofline/en: ") and "no-such" in problem


def test_sample_course_is_without_problems(sample_lessons):
    assert [entry.slug for entry in lesson.existing()] == ["roofline", "sampling", "batching"]
    assert shell.problems() == []


def test_real_course_is_without_problems():
    assert shell.problems() == []


@pytest.mark.parametrize("entry", lesson.existing(), ids=lambda entry: entry.slug)
def test_both_languages_say_the_same(entry):
    """Same headings' depth, numbers, instruments and presets, in the same order."""

    def skeleton(lang: str):
        text = lesson.load(entry.slug, lang)
        headings = [line.split(" ")[0] for part in text.parts if isinstance(part, Prose) for line in part.text.splitlines() if line.startswith("#")]
        used = sorted({name for part in text.texts() for name in (*prose.names(part), *prose.instruments(part))})
        return headings, used, [part for part in text.parts if not isinstance(part, Prose)], text.minutes, len(text.prerequisites)

    assert skeleton("zh") == skeleton("en")


@pytest.mark.parametrize("entry", lesson.existing(), ids=lambda entry: entry.slug)
def test_real_lessons_use_known_numbers_and_widgets(entry):
    for lang in ("zh", "en"):
        text = lesson.load(entry.slug, lang)
        for name in (name for part in text.texts() for name in prose.names(part)):
            numbers.resolve(name)
        assert {id for part in text.texts() for id in prose.instruments(part)} <= set(widgets())
        for part in text.parts:
            if isinstance(part, Instrument):
                assert part.widget in widgets()
                widgets()[part.widget].Params(**{k: v for k, v in part.preset.items() if k not in ("instance", "guess")})


# ---- quiz

CHOICE = """[[item]]
id = "a"
kind = "choice"
question = {zh = "问", en = "q"}
explanation = {zh = "因", en = "e"}
options = [{id = "x", zh = "甲", en = "x"}, {id = "y", zh = "乙", en = "y", right = true}]
"""


@pytest.mark.parametrize("text,number", [("65.4", 65.4), ("2,304", 2304), ("２３０４", 2304), ("1.9e3", 1900), ("−3", -3), ("1,234", 1234), ("12,345,678.5", 12345678.5),
                                         ("2 304", 2304), (" .5 ", 0.5), ("93,66", None), ("0,5", None), ("1,2345", None), ("1,,234", None),
                                         ("93 66", None), ("1_000", None), (",", None), (".", None), ("0.34%", None), ("66 ms", None), ("66 k", None), ("66 token/s", 66), ("66tok/s", 66),
                                         ("七十", None), ("", None), ("nan", None), ("inf", None), ("1.2.3", None)])
def test_numbers_as_people_write_them(text, number):
    """Catches: a comma for the decimal point read as nothing, a number a hundred times too large."""
    assert quiz.read_number(text, "token/s") == number


@pytest.mark.parametrize("unit", ["%", "% 3"])
def test_a_percent_sign_is_read_where_percent_is_asked_for(unit):
    """Catches: 0.34% called no number where the question asks for %, or taken as token/s where it does not."""
    assert quiz.read_number("0.34%", unit) == quiz.read_number("0.34 ％", unit) == quiz.read_number("0.34", unit) == 0.34
    assert quiz.read_number("0.34%") is None


@pytest.mark.parametrize("text,unit,of,number", [
    ("10.5 s", "s", "s", 10.5), ("10,500 ms", "s", "s", 10.5), ("10500000 µs", "s", "s", 10.5), ("67.5 KiB", "KiB", "B", 67.5), ("69,120 B", "KiB", "B", 67.5),
    ("63 个 token", "", "token", 63), ("9 cards", "", "card", 9), ("×1.89", "", "×", 1.89), ("1.89 倍", "", "×", 1.89), ("0.6 request/s", "", "request/s", 0.6),
    ("3.2 GB", "s", "s", None), ("44 s", "%", "ratio", None), ("63 blocks", "", "count", None),
])  # fmt: skip
def test_a_unit_behind_the_number_is_read_as_what_it_means(text, unit, of, number):
    """Catches: a right answer refused for its unit, milliseconds taken for seconds, a unit of something else taken for none."""
    assert quiz.read_number(text, unit, of) == (number if number is None else pytest.approx(number))


def test_a_numeric_answer_is_graded_from_the_function_in_the_asked_unit(sample_lessons):
    item = next(item for item in quiz.load(sample_lessons / "roofline") if item.id == "bound")
    assert item.expected() == pytest.approx(3.35e12 / 51_247_841_280, rel=1e-9)  # bandwidth over weight bytes, written out
    assert item.is_right(66) and not item.is_right(70)


def test_a_choice_has_exactly_one_right_answer(tmp_path):
    (tmp_path / "quiz.toml").write_text(CHOICE, encoding="utf-8")
    (item,) = quiz.load(tmp_path)
    assert item.is_right("y") and not item.is_right("x")


@pytest.mark.parametrize("change,said", [
    ((", right = true", ""), "exactly one"),
    (('kind = "choice"', 'kind = "essay"'), "essay"),
    (('zh = "问", ', ""), "zh"),
])
def test_a_wrong_quiz_says_what_is_wrong(tmp_path, change, said):
    (tmp_path / "quiz.toml").write_text(CHOICE.replace(*change), encoding="utf-8")
    with pytest.raises(BrokenData, match=said):
        quiz.load(tmp_path)
