"""Glossary, reading list and cheat sheet: what the references name is there, and every link and number leads somewhere."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from app import cheatsheet, glossary, lesson, prose, reading
from app.lesson import words
from components.text import LANGUAGES
from compute import facts, numbers
from compute.errors import BrokenData

# The concept indexes of the chapter guide and of the older module, typed from them.
LISTED = """prefill; decode; 算术强度; 屋顶线; 带宽受限; 算力受限; GEMM; GEMV; 静态批处理; 连续批处理; 迭代级调度; PagedAttention; 块表; 内部碎片; 外部碎片;
写时复制; 前缀缓存; 投机解码; 接受率 α; 残差分布; MTP 自投机; EAGLE-3; DSpark; RTN; 按组缩放; GPTQ; W8A8; SmoothQuant; 离群特征; TTFT; TPOT; goodput;
分块 prefill; P/D 分离; 温度; top-k; top-p; min-p;
自回归生成; KV cache; MHA; MQA; GQA; MLA; 低秩压缩; MoE; 路由器; top-k 稀疏; 虚拟内存分页; continuous batching; 量化; NF4; 知识蒸馏; 暗知识; ITL"""
HAN, LATIN = r"[\u4e00-\u9fff]", r"[A-Za-z0-9]"


def sentences():
    """(where, language, text) of everything that these pages say in two languages."""
    for term in glossary.terms():
        for lang in LANGUAGES:
            yield term.id, lang, term.says[lang]
    found = reading.reading()
    for item in found.items:
        for lang in LANGUAGES:
            yield item.title, lang, item.gives[lang] + " " + item.careful.get(lang, "")
    for left in found.out:
        for lang in LANGUAGES:
            yield left.what["en"], lang, left.what[lang] + " " + left.why[lang]
    formulas, decisions = cheatsheet.sheet()
    for each in formulas:
        for lang in LANGUAGES:
            yield each.tex[0], lang, each.says[lang] + " " + each.worked[lang]
    for each in decisions:
        for lang in LANGUAGES:
            yield each.sees["en"], lang, each.sees[lang] + " " + each.first[lang]


@pytest.mark.parametrize("name", [each.strip() for each in LISTED.split(";")])
def test_every_listed_term_has_an_entry(name):
    """Catches a term of the concept indexes that the glossary forgot."""
    assert any(name.lower() in f"{term.zh} {term.en}".lower() for term in glossary.terms()), name


def test_addresses_are_unique_and_related_terms_exist():
    """Catches two terms under one anchor, and a see-also that leads nowhere or back to itself."""
    ids = [term.id for term in glossary.terms()]
    assert len(ids) > 80 and len(ids) == len(set(ids)) and all(re.fullmatch(r"[a-z][a-z0-9-]*", id) for id in ids)
    assert not set(ids) & {f"{group}-terms" for group in glossary.GROUPS}
    for term in glossary.terms():
        assert term.group in glossary.GROUPS and term.see and term.id not in term.see and set(term.see) <= set(ids), term.id


@pytest.mark.parametrize("term", glossary.terms(), ids=lambda term: term.id)
def test_every_term_is_taught_where_it_says(term):
    """Catches a lesson or heading that was renamed: the heading stands in the Chinese lesson, and the English one has as many."""
    assert term.lesson in {entry.slug for entry in lesson.planned()}
    if term.lesson in {entry.slug for entry in lesson.existing()}:
        zh, en = (glossary.headings(term.lesson, lang) for lang in LANGUAGES)
        assert len(zh) == len(en) and zh.count(term.section) == 1, f"{term.lesson} has no heading “{term.section}”: {zh}"
        assert [glossary.taught(term.lesson, term.section, lang)[1] for lang in LANGUAGES] == [term.section, en[zh.index(term.section)]]


def test_both_languages_say_the_same_with_known_numbers():
    """Catches a number in one language only, an unknown name, and a unit in which it cannot be shown."""
    seen = 0
    named: dict[tuple[str, str], list[str]] = {}
    for where, lang, text in sentences():
        named[where, lang] = sorted(prose.names(text))
        for name in prose.names(text):
            numbers.resolve(name)
            seen += 1
        assert text.strip() and prose.plain(text, lang) and "[[" not in prose.plain(text, lang), where
    assert seen > 60
    for where, lang in named:
        assert named[where, "zh"] == named[where, "en"], where


def test_typography():
    """Catches half-width marks and missing spaces in Chinese, and full-width marks in English."""
    for where, lang, text in sentences():
        said = re.sub(r"\[\[.*?\]\]", "", text)
        if lang == "zh":
            assert not re.search(rf"{HAN}{LATIN}|{LATIN}{HAN}|{HAN}[,;:?!()]", said), (where, said)
        else:
            assert not re.search(r"[，。；：？！（）]", said), (where, said)


def test_no_figure_is_typed():
    """Catches a number with a unit that was typed instead of named."""
    for where, _, text in sentences():
        said = re.sub(r"\[\[.*?\]\]", "", text)
        assert not re.search(r"\d\s?(GB|KiB|MB|ms|µs|TB/s|token/s|TFLOP|%|％|×)", said), (where, said)


def test_a_broken_file_is_one_sentence_with_its_name(tmp_path):
    """Catches a traceback where a teacher mistyped an entry."""
    wrong = tmp_path / "glossary.toml"
    for text in ('[[term]\n', '[[term]]\nid = "x"\n', "term = 5\n"):
        wrong.write_text(text, encoding="utf-8")
        with pytest.raises(BrokenData, match="glossary.toml"):
            glossary.terms(wrong)
    with pytest.raises(BrokenData, match="nowhere.toml"):
        reading.reading(tmp_path / "nowhere.toml")


# ---- reading


def test_every_item_has_an_address_and_lessons_that_are_planned():
    """Catches an address that is none, twice the same, and a lesson that does not exist."""
    found = reading.reading()
    urls = [item.url for item in found.items]
    assert len(urls) == len(set(urls)) and len(urls) >= 30
    planned = {entry.slug for entry in lesson.planned()}
    for item in found.items:
        assert urlsplit(item.url).scheme == "https" and "." in urlsplit(item.url).netloc and item.effort in reading.EFFORTS
        assert item.title and item.who and item.lessons and set(item.lessons) <= planned


def test_an_address_that_papers_knows_is_not_typed_again():
    """Catches a second copy of a paper's address, which would drift from the first."""
    rows = [row["source"]["url"] for name, table in facts.papers().items() for row in (table if name == "formula" else table.values())]
    typed = re.findall(r'^url = "(.*)"', reading.FILE.read_text(encoding="utf-8"), re.M)
    assert typed and not set(typed) & set(rows)


# ---- cheat sheet


def test_the_sheet_has_every_numbered_lesson():
    """Catches a lesson without a formula on the sheet."""
    formulas, decisions = cheatsheet.sheet()
    numbered = {entry.slug for entry in lesson.planned() if entry.number}
    assert numbered <= {each.lesson for each in formulas} and len(decisions) >= 6
    assert {each.lesson for each in (*formulas, *decisions)} <= {entry.slug for entry in lesson.planned()}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_pages_have_their_words(lang):
    """Catches a page beside the lessons whose name, headline or groups are not in text.toml."""
    say = words(lang)
    for page in ("glossary", "reading", "cheatsheet"):
        assert say(page) and say(f"{page}_question") and say(f"{page}_lead")
    assert all(say(f"glossary_group.{group}") for group in glossary.GROUPS) and all(say(f"reading_group.{each}") for each in reading.EFFORTS)
