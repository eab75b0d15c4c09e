"""The shell under AppTest, in both languages: what is on the page, where links go, what a wrong address says."""

from __future__ import annotations

import json
import shutil

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from app import lesson, views
from app.lesson import words
from compute.errors import BrokenData
from tests.conftest import ROOT

LANGUAGES = ("zh", "en")


def visit(**query: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=30)
    for key, value in query.items():
        at.query_params[key] = value
    return at.run()


def assert_clean(at: AppTest) -> None:
    assert not at.exception, [each.value for each in at.exception]


def html_of(at: AppTest) -> str:
    return "\n".join(each.proto.body for each in at.get("html"))


def shell_data(at: AppTest) -> dict:
    return next(data for data in (json.loads(each.proto.json) for each in at.get("bidi_component")) if "slug" in data and "order" in data)


pytestmark = pytest.mark.usefixtures("sample_lessons", "fresh_streamlit")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_contents_list_every_lesson_with_its_question(lang):
    at = visit(lang=lang)
    assert_clean(at)
    body = html_of(at)
    for entry in lesson.existing():
        assert lesson.load(entry.slug, lang).question in body
    assert shell_data(at)["lang"] == {"zh": "zh-CN", "en": "en"}[lang]


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("slug", ["roofline", "sampling", "batching"])
def test_a_lesson_opens_in_both_languages(slug, lang):
    at = visit(lesson=slug, lang=lang)
    assert_clean(at)
    text = lesson.load(slug, lang)
    assert text.question.replace("，", "").split(" ")[0][:4] in html_of(at)
    assert any(words(lang)("takeaway") in each.value for each in at.markdown)
    assert shell_data(at)["slug"] == slug


def test_chinese_comes_first_and_an_unknown_language_is_chinese():
    assert shell_data(visit())["lang"] == "zh-CN"
    assert shell_data(visit(lang="fr"))["lang"] == "zh-CN"


def test_the_switch_changes_the_language_and_keeps_the_page():
    at = visit(lesson="roofline", lang="zh")
    at.segmented_control(key="lang").set_value("en").run()
    assert_clean(at)
    data = shell_data(at)
    assert (data["lang"], data["slug"]) == ("en", "roofline")
    assert at.query_params["lang"] in ("en", ["en"])


def test_a_link_in_the_other_language_wins_over_the_session():
    at = visit(lang="zh")
    at.query_params["lang"] = "en"
    at.run()
    assert shell_data(at)["lang"] == "en"


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("value", ["nope", "<script>alert(1)</script>", "长" * 200, "planned-only", ""])
def test_an_unknown_lesson_is_one_sentence_with_the_value(value, lang):
    at = visit(lesson=value, lang=lang)
    assert_clean(at)
    body = html_of(at)
    assert 'class="lab-refusal"' in body and "<script>" not in body
    assert (value[:60] in body) or value.startswith("<")
    links = [each.proto.label for each in at.get("page_link")]
    assert sum("30" in label for label in links) >= 4, "links to what exists, in the sidebar and under the sentence"


def test_every_link_carries_the_language():
    at = visit(lesson="sampling", lang="en")
    links = at.get("page_link")
    assert len(links) >= 6
    assert all("lang=en" in each.proto.query_string for each in links)


def test_neighbours_name_the_next_question():
    at = visit(lesson="sampling", lang="en")
    labels = " ".join(each.proto.label for each in at.get("page_link"))
    assert "Hundreds of requests decode together" in labels and "The same model reads a prompt fast" in labels


def press_check(at: AppTest, number: int) -> AppTest:
    buttons = [button for button in at.button if button.label in (words("zh")("quiz.check"), words("en")("quiz.check"))]
    return buttons[number].click().run()


def test_quiz_grades_on_submit_keeps_the_answer_and_marks_the_lesson_passed():
    at = visit(lesson="roofline", lang="zh")
    assert not any("lab-verdict" in each.value for each in at.markdown), "nothing is told before it is asked"
    at.radio(key="quiz-roofline-upgrade").set_value("compute")
    at = press_check(at, 0)
    assert any("lab-verdict-wrong" in each.value for each in at.markdown)
    at.radio(key="quiz-roofline-upgrade").set_value("bandwidth")
    at = press_check(at, 0)
    at.text_input(key="quiz-roofline-bound").set_value("七十")
    at = press_check(at, 1)
    assert "七十" in html_of(at) and not shell_data(at)["passed"]
    at.text_input(key="quiz-roofline-bound").set_value("66")
    at = press_check(at, 1)
    assert_clean(at)
    assert sum("lab-verdict-right" in each.value for each in at.markdown) == 2
    assert shell_data(at.run())["passed"]
    at.segmented_control(key="lang").set_value("en").run()
    assert_clean(at)
    assert shell_data(at)["passed"] and any("Decoding is bound by bandwidth" in each.value for each in at.markdown)


def test_an_answer_is_still_there_after_another_page():
    at = visit(lesson="roofline", lang="en")
    at.radio(key="quiz-roofline-upgrade").set_value("bandwidth")
    at = press_check(at, 0)
    at.text_input(key="quiz-roofline-bound").set_value("66")
    at = press_check(at, 1)
    for slug in ("sampling", "roofline"):
        at.query_params["lesson"] = slug
        at.run()
    assert_clean(at)
    assert at.radio(key="quiz-roofline-upgrade").value == "bandwidth" and at.text_input(key="quiz-roofline-bound").value == "66"
    assert sum("lab-verdict-right" in each.value for each in at.markdown) == 2


def test_an_empty_answer_is_asked_for():
    at = press_check(visit(lesson="roofline", lang="en"), 1)
    assert words("en")("quiz.empty_number") in html_of(at)


def test_words_exist_in_both_languages():
    assert set(words("zh").table) == set(words("en").table)
    assert all(value.strip() for lang in LANGUAGES for value in words(lang).table.values())


# ---- broken files


@pytest.fixture()
def course(tmp_path, monkeypatch, sample_lessons):
    """A copy of the small course that a test may break."""
    shutil.copytree(sample_lessons, tmp_path / "lessons")
    monkeypatch.setattr(lesson, "LESSONS", tmp_path / "lessons")
    return tmp_path / "lessons"


@pytest.fixture()
def placed(course):
    """The small course with an instrument in its first lesson."""
    for lang in LANGUAGES:
        path = course / "roofline" / f"{lang}.md"
        path.write_text(path.read_text(encoding="utf-8") + "\n\n::roofline-placer\n", encoding="utf-8")


def refusals(at: AppTest) -> list[str]:
    return [body for body in (each.proto.body for each in at.get("html")) if "lab-refusal" in body]


def links(at: AppTest) -> str:
    return " ".join(each.proto.label for each in at.get("page_link"))


def edit(path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("content", [b"no front matter", b"\xff\xfe+++"])
def test_a_broken_lesson_is_one_sentence_and_the_way_to_the_others_stays(course, lang, content):
    """Catches: a page that loses sidebar and neighbours to the general error when its own file is broken."""
    (course / "sampling" / f"{lang}.md").write_bytes(content)
    at = visit(lesson="sampling", lang=lang)
    assert_clean(at)
    (said,) = refusals(at)
    assert f"lessons/sampling/{lang}.md" in said and str(course) not in said and words(lang)("script_error") not in html_of(at)
    assert lesson.load("batching", lang).title in links(at) and lesson.load("batching", lang).question[:8] in links(at)
    assert shell_data(at)["slug"] == "sampling"


@pytest.mark.parametrize("where", ["hero", "hero_caption", "takeaway", "question"])
@pytest.mark.parametrize("number", ["[[=no.such.number]]", "[[h100-sxm.bandwidth | token/s]]"])
def test_an_unknown_number_costs_its_own_part_only(course, where, number):
    """Catches: a hero, takeaway or headline that takes the whole page with it, and the contents as well."""
    path = course / "roofline" / "en.md"
    value = getattr(lesson.load("roofline", "en"), where)
    edit(path, f'{where} = "{value}"', f'{where} = "{number}"')
    at = visit(lesson="roofline", lang="en")
    assert_clean(at)
    (said,) = refusals(at)
    assert "number" in said
    assert lesson.load("sampling", "en").title in links(at)
    assert [each for each in at.button if each.label == words("en")("quiz.check")], "the rest of the page is there"
    assert_clean(home := visit(lang="en"))
    assert lesson.load("sampling", "en").question in html_of(home) and words("en")("script_error") not in html_of(home)


def test_a_broken_quiz_leaves_takeaway_and_neighbours(course):
    """Catches: a takeaway shown twice, or a page cut off at its quiz."""
    (course / "roofline" / "quiz.toml").write_text("[[")
    at = visit(lesson="roofline", lang="en")
    assert_clean(at)
    assert "quiz.toml" in refusals(at)[0] and len(refusals(at)) == 1
    assert sum("lab-takeaway" in each.value for each in at.markdown) == 1 and words("en")("next") in html_of(at)


def test_data_that_cannot_be_read_leaves_the_sidebar(monkeypatch):
    """Catches: one broken data file that turns every page into the general error."""
    from compute import numbers

    def resolve(name):
        raise BrokenData("data/chips.toml", "no table")

    monkeypatch.setattr(numbers, "resolve", resolve)
    at = visit(lesson="roofline", lang="en")
    assert_clean(at)
    assert "data/chips.toml" in refusals(at)[0] and words("en")("script_error") not in html_of(at)
    assert lesson.load("sampling", "en").title in links(at)


@pytest.mark.parametrize("line", ["::roofline-placer batch=many", "::roofline-placer colour=red", "::no-such-widget"])
def test_a_wrong_directive_costs_its_instrument_only(course, line):
    """Catches: a lesson lost because one line asks an instrument for what it cannot do."""
    path = course / "sampling" / "en.md"
    path.write_text(path.read_text(encoding="utf-8") + f"\n\n{line}\n\nAfter all.\n", encoding="utf-8")
    at = visit(lesson="sampling", lang="en")
    assert_clean(at)
    (said,) = refusals(at)
    assert any(word in said for word in ("many", "colour", "no-such-widget")) and any("After all." in each.value for each in at.markdown)


def test_an_instrument_that_fails_within_leaves_the_rest_of_the_page(placed, monkeypatch):
    """Catches: a page cut off behind an instrument whose controls need a broken data file."""
    @st.fragment
    def show(*_, **__):
        raise BrokenData("data/chips.toml", "no table")

    monkeypatch.setattr(views.frame, "show", show)
    at = visit(lesson="roofline", lang="en")
    assert len(at.exception) == 1, "the framework's own, in place of the sentence that the server gives"
    assert words("en")("next") in html_of(at) and any("lab-takeaway" in each.value for each in at.markdown)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_broken_order_is_said_on_the_pages(course, lang):
    """Catches: the general error at every address, or "no lessons yet" where the order is broken."""
    (course / "order.toml").write_text("[[")
    for query in ({}, {"lesson": "roofline"}):
        at = visit(lang=lang, **query)
        assert_clean(at)
        (said,) = refusals(at)
        assert "lessons/order.toml" in said and words(lang)("course") in links(at)


# ---- parameters of no instrument


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name,value", [("nosuch-widget.foo", "1"), ("roofline-placer.9.batch", "4"), ("roofline-placer.9", "4"), ("a.b", "<script>" + "x" * 200)])
def test_a_parameter_of_no_instrument_is_said_with_its_value(placed, lang, name, value):
    """Catches: a link that sets nothing and says nothing."""
    at = visit(lesson="roofline", lang=lang, utm_source="mail", **{name: value, "roofline-placer.batch": "8"})
    assert_clean(at)
    (said,) = refusals(at)
    assert f"{name}={value[:20]}".replace("<", "&lt;").replace(">", "&gt;") in said and "roofline-placer" in said and len(said) < 400
    assert "utm_source" not in said and "batch=8" not in said
    first = next(each.proto.body for each in at.main.get("html") if "lab-" in each.proto.body and "<style" not in each.proto.body)
    assert first == said, "at the top of the lesson"


def test_the_parameters_of_the_page_and_of_others_are_no_strangers(placed):
    """Catches: a complaint about a second instrument's parameter, or about a visitor's campaign."""
    at = visit(lesson="roofline", lang="en", utm_source="mail", **{"roofline-placer.batch": "8"})
    assert not refusals(at)
    assert views.strangers(["x.a", "x.2.a", "x.3.a", "x.2", "xy.a", "utm"], ["x", "x.2"]) == ["x.3.a", "x.2", "xy.a"]


def test_a_lesson_without_instruments_says_so():
    """Catches: a way out that lists no instrument."""
    (said,) = refusals(visit(lesson="roofline", lang="en", **{"roofline-placer.batch": "8"}))
    assert "roofline-placer.batch=8" in said and "no instrument" in said


def test_a_sentence_has_no_path_of_this_machine():
    """Catches: where the repository lies, told to every reader."""
    said = views.told(BrokenData(ROOT / "components" / "x" / "text.toml", "no table"), "en")
    assert "components/x/text.toml" in said and str(ROOT) not in said
