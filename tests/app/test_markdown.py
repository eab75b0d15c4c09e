"""Markdown with named numbers: what is a number, what is mathematics, what is money, and what data may not do to a page."""

from __future__ import annotations

import pytest

from app import prose
from app.lesson import words
from components import text, widget
from compute import facts, numbers
from compute.errors import UnknownName
from compute.quantity import Quantity, Source
from tests.chinese import SAME, english


def md(text: str, lang: str = "en") -> str:
    return prose.markdown(text, lang, words(lang))


@pytest.fixture()
def named(monkeypatch):
    """Resolves every name to the given quantity."""

    def give(quantity: Quantity):
        monkeypatch.setattr(numbers, "resolve", lambda name: quantity)

    prose._markdown.cache_clear()
    yield give
    prose._markdown.cache_clear()


def test_a_number_is_printed_with_its_papers(named):
    named(Quantity(3.35e12, "B/s", "quoted", source=Source("Data sheet", "https://example.org/h100", "p. 2", "2026-11-29")))
    out = md("moves [[h100-sxm.bandwidth | TB/s]].")
    assert '3&#46;35<span class="lab-u">&nbsp;TB&#47;s</span>' in out and "lab-quoted" in out and 'tabindex="0"' in out
    assert 'href="https&#58;&#47;&#47;example&#46;org&#47;h100"' in out and "Data sheet" in out and "2026" in out


def test_formula_inputs_and_conditions_are_on_the_card(named):
    named(Quantity(65.4, "token/s", "measured", "bandwidth / bytes", {"bandwidth": 3.35e12}, conditions={"device": "cpu", "n": 30}, interval95=(60, 70)))
    out = md("[[~x]]")
    for part in ("bandwidth &#47; bytes", "3&#46;35×10<sup>12</sup>", "device &#61; cpu", "60&#46;0 – 70&#46;0", "lab-measured"):
        assert part in out, part


def test_data_cannot_inject_markup_or_a_script_address(named):
    evil = "<img src=x onerror=alert(1)> **bold** $x$ `c` |"
    named(Quantity(1, "count", "quoted", source=Source(evil, "javascript:alert(1)", evil), says={"en": evil}))
    out = md("[[x.y]]")
    assert "<img" not in out and "javascript" not in out and "**" not in out and "$" not in out and "`" not in out and "|" not in out


def test_an_unknown_name_raises_with_the_name():
    with pytest.raises(UnknownName, match="h100-sxm.bandwith"):
        md("[[h100-sxm.bandwith | TB/s]]")


@pytest.mark.parametrize("text,out", [
    ("costs $30 or $40", r"costs \$30 or \$40"),
    (r"already \$30", r"already \$30"),
    (r"so \(x^2\) here", "so ${x^2}$ here"),
    (r"so \(k + 1\)、", "so ${k + 1}$\u2060、"),
    (r"so \(a_1 + a_2 + a_3 + a_4 = 4\)", "so $a_1 + a_2 + a_3 + a_4 = 4$"),
    ("`$x` and `[[y]]`", "`$x` and `[[y]]`"),
    ("``a ` $b``", "``a ` $b``"),
    ("$$a+b$$", "\n\n$$\na+b\n$$\n\n"),
    ("$$\na\n$$", "$$\na\n$$"),
    ("```py\n$5 <b>\n\nx\n```\n\nThen `$5`.", '<div class="lab-code-block"><span>&#36;5 &#60;b&#62;</span>&#10;<span></span>&#10;<span>x</span></div>\n\n\n\nThen `$5`.'),
])
def test_money_mathematics_and_code(text, out):
    assert md(text) == out


def test_names_are_found_outside_code_only():
    assert list(prose.names("[[a.b | TB/s]] `[[no]]` [[=c]]\n```\n[[no]]\n```\n")) == ["a.b", "=c"]


def test_an_instrument_is_called_by_its_title(monkeypatch):
    """Catches: a name that stays what it was when the instrument is renamed, a title's second half in running text, an unknown id in silence."""
    roofline = widget("roofline-placer")
    assert md("see [[@roofline-placer]] and `[[@roofline-placer]]`") == "see Roofline and `[[@roofline-placer]]`"
    prose._markdown.cache_clear()
    monkeypatch.setattr(type(roofline), "words", lambda self, lang: {"title": "屋顶图：落在哪"}.__getitem__)
    assert md("见[[@roofline-placer]]。", "zh") == prose.plain("见[[@roofline-placer]]。", "zh") == "见屋顶图。"
    with pytest.raises(UnknownName):
        md("[[@no-such]]")
    prose._markdown.cache_clear(), prose._plain.cache_clear()


def test_plain_text_has_no_card():
    assert prose.plain("[[=anchor.decode_bound | tok/s]]", "en") == "65.4 token/s"


def test_a_chinese_headline_breaks_after_punctuation():
    assert prose.clauses("读得快，写得慢：为什么？").count("lab-clause") == 3
    assert "&lt;b&gt;" in prose.clauses("<b>")


def test_a_text_is_made_anew_when_its_numbers_may_have_changed(named, monkeypatch):
    """Catches: figures of yesterday's measurement on a server that runs since the day before, and a page in the other language."""
    said = iter((1, 2))
    monkeypatch.setattr(numbers, "resolve", lambda name: Quantity(next(said), "count", "computed", "x"))
    for state in ((1,), (1,), (2,)):
        monkeypatch.setattr(numbers, "as_of", lambda state=state: state)
        last = md("now [[x]]")
    assert '<span class="lab-v">2</span>' in last and next(said, None) is None, "made once for each state"
    named(Quantity(1, "count", "computed", "x"))
    assert words("zh")("kind.computed") in md("now [[x]]", "zh"), "not the English card"


def test_chinese_in_english_prose_is_marked_as_chinese():
    """Catches: a screen reader that spells 小王 in an English voice, marks inside code or a formula, marks in a Chinese text."""
    assert md("it goes on with 小王, “高兴” 。") == 'it goes on with <span lang="zh-CN">小王</span>, “<span lang="zh-CN">高兴</span>” 。'
    assert md("`小王` and \\(小\\)") == "`小王` and ${小}$"
    assert md("接着写“小王”。", "zh") == "接着写“小王”。"


def test_a_chinese_card_has_no_english_conditions(named):
    """Catches: self_reported = True and "confirmed in a stored copy" on a Chinese page."""
    named(Quantity(2.0, "×", "quoted", source=Source("Paper"), conditions={"self_reported": True, "verified": "confirmed in a stored copy of the text"}))
    assert all(part in md("[[x]]", "zh") for part in ("自报：是", "核实情况：对过存下的正文"))
    prose._markdown.cache_clear()
    assert all(part in md("[[x]]", "en") for part in ("self&#45;reported &#61; yes", "verified &#61; confirmed in a stored copy of the text"))


def test_what_sources_say_has_a_chinese_wording():
    """Catches: a note or a state of verification that was added or reworded in data/ and would stand in English on Chinese cards."""
    known = text._given()["said"]
    authors = {row["source"].get("authors", "") for table in facts.papers().values() if isinstance(table, dict) for row in table.values()}
    notes = {q.source.note for q in numbers.quoted_names().values() if q.source} - authors - {""}
    verified = {q.conditions["verified"] for q in numbers.quoted_names().values() if "verified" in q.conditions}
    assert len(notes) > 20 and len(verified) > 3 and (notes | verified) - set(known) == set()


def test_cards_of_numbers_have_chinese_words():
    """Catches: a claim, a measure or a source whose formula, input or condition is new or reworded, in English on a Chinese page."""
    found = {name: english(numbers.resolve(name)) for name in numbers.names()}
    assert len(found) > 1000 and {name: words for name, words in found.items() if words} == {}
    assert english(Quantity(1, "count", "computed", "bytes / fathoms", {"depth_below": 1})) == ["fathoms", "depth", "below"], "which words it would find"
    assert text._given()["en"].keys() <= text._given()["zh"].keys() | SAME


@pytest.mark.parametrize("line,words", [
    ("⌊(memory − all weights) / (4096 × KV + state)⌋", "⌊(显存 − 全部权重) / (4096 × KV + 状态)⌋"),
    ("Σ matrices multiplied (lm_head included, embedding row not)", "Σ 相乘的矩阵（含 lm_head，不含 embedding 的一行）"),
    ("max(bytes / bandwidth, FLOP / peak)", "max(字节 / 带宽，FLOP / 峰值)"),
    ("Σ min(p, q)", "Σ min(p, q)"),
])  # fmt: skip
def test_a_formula_in_chinese(line, words):
    """Catches: an operator or a bracket that is lost or moved between the terms, half-width marks between Chinese words, a symbol taken for a word."""
    assert text.formula(line, "zh") == words and text.formula(line, "en") == line
