"""The shell under AppTest, in both languages: what is on the page, where links go, what a wrong address says."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

from app import lesson
from app.lesson import words
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
