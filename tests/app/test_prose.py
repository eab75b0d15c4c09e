"""Holds every lesson to the contract of its prose: numbers are named, and both languages say the same."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import components
from app import lesson, prose, quiz
from app.lesson import LESSONS, Instrument, Prose
from components.text import LANGUAGES
from compute import facts, numbers

SLUGS = [entry.slug for entry in lesson.existing()]
BOTH = [(slug, lang) for slug in SLUGS for lang in LANGUAGES]


def texts(slug: str, lang: str) -> list[str]:
    """Everything of a lesson that a reader reads: front matter, prose, quiz."""
    page = lesson.load(slug, lang)
    found = [page.title, *page.prerequisites, *page.texts()]
    for item in quiz.load(page.folder):
        found += [item.question[lang], item.explanation[lang]]
        found += [option.text[lang] for option in getattr(item, "options", ())]
    return found


# ---- what the checks look for; each is tested on planted mistakes further down

FORMATS = re.compile(  # what a format is called by: its bits, its groups; a matrix's shape, an interval's level
    r"(?<![\w.\-])(?:(?:2|3|4|6|8|16|32)(?:\s?位|[-\s]bits?(?!\w))|(?:16|32|64|128|256)\s?个(?=一组|另有)|95\s?%(?=\s?(?:区间|interval))|4096 × 4096)"
)
HIDDEN = re.compile(r"^```.*?^```\s*$|`[^`]+`|\$\$.+?\$\$|\\\(.+?\\\)|\[\[[^\[\]]+\]\]|https?://\S+", re.S | re.M)
LATIN_UNITS = (
    r"[kKMGTPE]?i?B(?:/s|ytes?)?|[kKMGTPE]?FLOPs?(?:/s|/B)?|[mµun]?s|[kMG]?Hz|(?:k|G|M)?bit/s|W|°C|tok/s|tokens?(?:/s)?|bytes?|bits?|"
    r"requests?|layers?|heads?|cards?|parameters?|steps?|times|fold|percent|seconds?|milliseconds?|microseconds?|minutes?|hours?|words?|weights?"
)
HAN_UNITS = r"个|张|层|倍|秒|毫秒|微秒|分钟|小时|字节|比特|位|次|步|块|条|头|人|度|亿|万|千|成|token|FLOP"
WITH_UNIT = re.compile(
    r"[×xX✕]\s?\d[\d,]*(?:\.\d+)?(?![\w.])"  # ×3.17
    rf"|(?<![\w.\-])\d[\d,]*(?:\.\d+)?\s*(?:[×%‰]|[-\s]?(?:{LATIN_UNITS})(?![A-Za-z])|\s?(?:{HAN_UNITS}))"
)


def typed_quantities(text: str) -> list[str]:
    """Digits with a unit outside [[ ]], code and mathematics. Names such as H100, bf16, Qwen3.8-27B, "4-bit" are no quantities."""
    return [found[0] for found in WITH_UNIT.finditer(FORMATS.sub(" ", HIDDEN.sub(" ", text)))]


HAN = r"[\u3400-\u4dbf\u4e00-\u9fff]"
FULL = "，。；：？！、（）“”‘’《》…"
CHINESE_SLIPS = {
    "half-width mark beside Han": re.compile(rf"{HAN}[,.;:!?()\"']|[,;:!?()\"']{HAN}"),
    "no space between Han and Latin": re.compile(rf"{HAN}[A-Za-z0-9×+]|[A-Za-z0-9%×+]{HAN}"),
    "space between Han": re.compile(rf"{HAN}[ \u00a0]+{HAN}"),
    "space beside a full-width mark": re.compile(rf"\S[ \u00a0]+[{FULL}]|[{FULL}][ \u00a0]+\S"),
}
UNCLOSED_BOLD = re.compile(r"\*\*[^*\n]*[，。；：？！、）”》]\*\*(?=[^\s，。；：？！、（）“”])")


def shown(text: str, lang: str) -> str:
    """A text as it stands on the page: numbers printed, marks of Markdown gone, displayed formulas left out."""
    text = re.sub(r"\$\$.+?\$\$", "", text, flags=re.S)
    text = re.sub(r"\\\(.+?\\\)", "x", text)
    text = prose.plain(re.sub(r"`([^`]+)`", r"\1", text), lang)
    return re.sub(r"\*\*|(?m:^(?:[-*>]|#+) )", "", text)


def chinese_slips(text: str) -> list[str]:
    return [f"{slip}: …{text[max(0, m.start() - 8) : m.end() + 8]}…" for slip, rule in CHINESE_SLIPS.items() for m in rule.finditer(text)]


def references(text: str) -> list[str]:
    """The numbers of a text with the units they are shown in."""
    return [re.sub(r"\s*\|\s*", " | ", found["number"].strip()) for found in prose.PIECE.finditer(text) if found["number"]]


def outline(slug: str, lang: str) -> list[tuple]:
    """Heading levels, instruments with their presets, the quiz: in reading order."""
    found: list[tuple] = []
    for part in lesson.load(slug, lang).parts:
        if isinstance(part, Prose):
            found += [("heading", len(marks)) for marks in re.findall(r"(?m)^(#{1,6}) ", part.text)]
        else:
            found.append(("instrument", part.widget, dict(part.preset)) if isinstance(part, Instrument) else ("quiz",))
    return found


def numbers_by_place(slug: str, lang: str) -> list[Counter]:
    """The numbers of the front matter, then of each stretch between two instruments or headings."""
    page = lesson.load(slug, lang)
    stretches = [page.question + page.hero + page.hero_caption, page.takeaway]
    for part in page.parts:
        if isinstance(part, Prose):
            stretches += re.split(r"(?m)^#{1,6} ", part.text)
    return [Counter(references(stretch)) for stretch in stretches]


# ---- every lesson


def test_lessons_were_found():
    """Catches: all checks below passing because they looked at nothing."""
    assert "roofline" in SLUGS
    assert sum(len(references(text)) for slug, lang in BOTH for text in texts(slug, lang)) > 100


def test_a_lesson_is_there_in_both_languages():
    """Catches: a lesson written in one language only, which the pages would silently leave out."""
    folders = [path for path in LESSONS.iterdir() if any((path / f"{lang}.md").exists() for lang in LANGUAGES)]
    assert folders
    assert {path.name: [lang for lang in LANGUAGES if not (path / f"{lang}.md").exists()] for path in folders} == {path.name: [] for path in folders}


@pytest.mark.parametrize("slug, lang", BOTH)
def test_every_number_has_a_name_and_a_printable_unit(slug: str, lang: str):
    """Catches: a misspelt name, a unit that does not belong to the number."""
    for text in texts(slug, lang):
        for reference in references(text):
            assert prose.plain(f"[[{reference}]]", lang), reference


@pytest.mark.parametrize("slug, lang", BOTH)
def test_no_quantity_is_typed(slug: str, lang: str):
    """Catches: a figure copied into a sentence, which would stay when the formula or the data change."""
    assert [found for text in texts(slug, lang) for found in typed_quantities(text)] == []


@pytest.mark.parametrize("slug", SLUGS)
def test_both_languages_have_the_same_outline(slug: str):
    """Catches: a section or an instrument added, moved or set differently in one language only."""
    assert outline(slug, "zh") == outline(slug, "en")


@pytest.mark.parametrize("slug", SLUGS)
def test_both_languages_use_the_same_numbers_in_the_same_places(slug: str):
    """Catches: a claim corrected, dropped or rounded differently in one language only."""
    assert numbers_by_place(slug, "zh") == numbers_by_place(slug, "en")


@pytest.mark.parametrize("slug", SLUGS)
def test_both_languages_agree_on_minutes_and_prerequisites(slug: str):
    """Catches: front matter changed in one language only."""
    zh, en = (lesson.load(slug, lang) for lang in LANGUAGES)
    assert (zh.minutes, len(zh.prerequisites)) == (en.minutes, len(en.prerequisites))


@pytest.mark.parametrize("slug", SLUGS)
def test_chinese_is_set_as_chinese(slug: str):
    """Catches: half-width marks among Han, Han and Latin without a space as the page prints them, bold that never closes."""
    for text in texts(slug, "zh"):
        assert chinese_slips(shown(text, "zh")) == []
        assert not UNCLOSED_BOLD.search(text), text


@pytest.mark.parametrize("slug", SLUGS)
def test_english_has_no_full_width_marks(slug: str):
    """Catches: a sentence pasted from the Chinese text."""
    for text in texts(slug, "en"):
        assert not re.search(r"[，。；：？！、（）《》]", text), text


@pytest.mark.parametrize("slug, lang", BOTH)
def test_every_instrument_opens_at_its_preset(slug: str, lang: str):
    """Catches: a directive with an unknown widget, parameter, value or guess."""
    for part in lesson.load(slug, lang).parts:
        if isinstance(part, Instrument):
            widget, preset = components.widget(part.widget), dict(part.preset)
            guess = preset.pop("guess", "")
            assert guess in ("", *widget.guesses), f"{part.widget} has no guess {guess!r}"
            widget.run(widget.Params(**preset))


# ---- quizzes


@pytest.mark.parametrize("slug", SLUGS)
def test_every_lesson_asks_at_the_end(slug: str):
    """Catches: a quiz.toml that the loader does not see, a lesson that asks too little."""
    assert len(quiz.load(LESSONS / slug)) >= 5


@pytest.mark.parametrize("slug", SLUGS)
def test_quiz_items_are_whole_in_both_languages(slug: str):
    """Catches: an empty question, options that read the same, a number explained in one language only."""
    for item in quiz.load(LESSONS / slug):
        for lang in LANGUAGES:
            assert item.question[lang].strip() and item.explanation[lang].strip(), (item.id, lang)
            options = [option.text[lang].strip() for option in getattr(item, "options", ())]
            assert all(options) and len(set(options)) == len(options), (item.id, lang)
        for field in (item.question, item.explanation):
            assert Counter(references(field["zh"])) == Counter(references(field["en"])), item.id


@pytest.mark.parametrize("slug", SLUGS)
def test_numeric_truths_resolve_and_a_near_miss_is_wrong(slug: str):
    """Catches: a truth without a function behind it, a unit it cannot be shown in, a tolerance that accepts anything."""
    for item in quiz.load(LESSONS / slug):
        if isinstance(item, quiz.Numeric):
            assert item.truth.startswith(("=", "~")) and numbers.resolve(item.truth).kind in ("computed", "measured"), item.id
            truth = item.expected()
            assert math.isfinite(truth) and item.is_right(truth)
            assert not item.is_right(truth * 2) and not item.is_right(truth / 2), item.id
            assert all(item.shown(lang) for lang in LANGUAGES)


@pytest.mark.parametrize("slug", SLUGS)
def test_the_right_option_is_not_always_in_one_place(slug: str):
    """Catches: a quiz that can be passed by choosing the same position throughout."""
    places = [[option.right for option in item.options].index(True) for item in quiz.load(LESSONS / slug) if isinstance(item, quiz.Choice)]
    assert len(places) < 3 or len(set(places)) > 1


# ---- the figures that lesson 1 added, by hand


@pytest.mark.parametrize(
    "name, by_hand",
    [
        # 25,623,920,640 parameters × 2 B; KV 4096 × 65,536 B; state 150,994,944 B read and written
        ("=anchor.batch1.bytes", 51_247_841_280 + 268_435_456 + 301_989_888),
        ("=anchor.kv_4k", 268_435_456),
        ("=anchor.batch58.cache_bytes", 58 * (268_435_456 + 301_989_888)),
        ("=anchor.batch58.slower_step", (51_247_841_280 + 58 * 570_425_344) / (51_247_841_280 + 570_425_344)),
        ("=anchor.batch58.more_tokens", 58 * (51_247_841_280 + 570_425_344) / (51_247_841_280 + 58 * 570_425_344)),
        # attention at 4,096 tokens: 16 layers × 24 heads × 256 × 4 FLOP a pair
        ("=anchor.batch58.intensity", 58 * (51_247_841_280 + 4096 * 16 * 24 * 256 * 4) / (51_247_841_280 + 58 * 570_425_344)),
        ("=anchor.any_batch.intensity", (51_247_841_280 + 4096 * 16 * 24 * 256 * 4) / 570_425_344),
        ("=anchor.batch58.compute_share", 58 * (51_247_841_280 + 4096 * 16 * 24 * 256 * 4) / 989.5e12 / ((51_247_841_280 + 58 * 570_425_344) / 3.35e12)),
        ("=anchor.batch1.compute_share", (51_247_841_280 + 4096 * 16 * 24 * 256 * 4) / 989.5e12 / ((51_247_841_280 + 570_425_344) / 3.35e12)),
        # 1,000 tokens: weights, and 16 layers × 24 heads × 256 × 2 n²
        ("=anchor.prefill_1000.over_decode", (1000 / ((51_247_841_280_000 + 16 * 24 * 256 * 2e6) / 989.5e12)) / (3.35e12 / 51_818_266_624)),
        ("=anchor.free_bytes", 80e9 - 55_562_855_904),
        ("=a100.batch1.compute_share", (51_247_841_280 + 4096 * 16 * 24 * 256 * 4) / 312e12 / (51_818_266_624 / 2.039e12)),
        ("=anchor.batch1.compute_seconds", (51_247_841_280 + 4096 * 16 * 24 * 256 * 4) / 989.5e12),
        ("=h200.decode_bound", 4.8e12 / 51_247_841_280),
        ("=upgrade.h200_decode", 4.8 / 3.35),
        ("=upgrade.l40s_compute", 362.05 / 312),
        ("=upgrade.l40s_decode", 864 / 2039),
        ("=anchor.attention_layers", 16),
        ("=anchor.state_layers", 48),
    ],
)
def test_figures_of_lesson_1_by_hand(name: str, by_hand: float):
    """Catches: a claim whose function no longer computes what its sentence says."""
    assert numbers.resolve(name).value == pytest.approx(by_hand, rel=1e-9)


def test_prompts_up_to_the_ridge_are_read_for_free():
    """Catches: an off-by-one at the ridge. Arithmetic of n tokens (attention included) against one reading of the weights,
    the state and n tokens of KV written."""

    def computing(n):
        return (51_247_841_280 * n + 16 * 24 * 256 * 2 * n * n) / 989.5e12

    def moving(n):
        return (51_247_841_280 + 150_994_944 + 65_536 * n) / 3.35e12

    n = numbers.resolve("=anchor.prefill_free").value
    assert computing(n) <= moving(n) and computing(n + 1) > moving(n + 1)


def test_time_saved_by_the_cache_by_hand():
    """Catches: the saving in time computed from the saving in counts. Sums written out for 1,000 forwards each way."""

    def read(n):
        return max((51_247_841_280 * n + 16 * 24 * 256 * 2 * n * n) / 989.5e12, (51_247_841_280 + 150_994_944 + 65_536 * n) / 3.35e12)

    again = sum(read(4 + i) for i in range(1000))
    kept = read(4) + sum((51_247_841_280 + 301_989_888 + 65_536 * (4 + i)) / 3.35e12 for i in range(1, 1000))
    assert numbers.resolve("=kv.without_cache_seconds").value == pytest.approx(again, rel=1e-9)
    assert numbers.resolve("=kv.with_cache_seconds").value == pytest.approx(kept, rel=1e-9)
    assert numbers.resolve("=kv.saving_in_time").value == pytest.approx(again / kept, rel=1e-9)


def test_our_model_cuts_the_running_example_as_the_text_says():
    """Catches: a tokenizer trained anew that no longer makes four tokens of the lesson's prompt."""
    tokenizer = Tokenizer.from_file(str(facts.DATA / "checkpoints" / "mini-256" / "tokenizer.json"))
    ids = tokenizer.encode("小明把苹果给了", add_special_tokens=False).ids
    assert [tokenizer.decode([id]) for id in ids] == ["小明", "把", "苹果", "给了"]


# ---- the checks on planted mistakes


@pytest.mark.parametrize(
    "text",
    [
        "要搬 51.2 GB 权重", "带宽 3.35TB/s", "只用了 0.34%", "only 0.34 % in use", "2,304 token/s", "about 65 tokens a second", "快 1.64 倍",
        "×3.17 the arithmetic", "1.64× faster", "15.5 ms", "a 4.25-bit weight", "每个权重 2 字节", "58 个请求", "64 layers", "989.5 TFLOP/s",
        "295 FLOP/B", "写 1,000 个 token", "51.8 µs", "两张 80GB 的卡", "a 70B model", "twice in 3 steps", "**58** is bold, 58 requests are not",
    ],
)  # fmt: skip
def test_detector_finds_typed_quantities(text: str):
    """Catches: a detector that lets a form of typed quantity through."""
    assert typed_quantities(text)


@pytest.mark.parametrize(
    "text",
    [
        "[[=anchor.weight_bytes | GB 4]] 权重", "`70B dense (textbook)`", r"$$4+999=1{,}003\ \text{次}$$", r"\(2\,\text{B} = 2 B\)", "Qwen3.8-27B 放在 H100 上",
        "mini-256", "Llama-2-7B", "bf16", "INT4", "第 2 课", "lesson 3", "batch 1 的写", "from batch 1 until the card is full", "把 batch 从 1 加到放满",
        "[[=anchor.attention_layers]] 层是注意力", "A100 80G", "```\n51.2 GB\n```", "四个 token", "2026-11-29", "64 个一组，每组一个 16 位的 s", "three of 4-bit integers", "95 % interval", "https://example.org/7B/4 GB".replace(" ", "_"),
    ],
)  # fmt: skip
def test_detector_leaves_names_code_and_formulas_alone(text: str):
    """Catches: a detector so strict that authors would have to write around it."""
    assert typed_quantities(text) == []


@pytest.mark.parametrize(
    "text", ["先读,再写", "一张H100", "共 64层", "请求 满了", "读完 ，再写", "写。 再读", "(约)", "只用了 0.34%的算力", "×3.17倍", "他说:好"]
)
def test_chinese_checks_find_slips(text: str):
    """Catches: a typesetting rule that matches nothing."""
    assert chinese_slips(text)


@pytest.mark.parametrize("text", ["先读，再写。一张 H100，3.35 TB/s。", "58 个请求，×3.17；batch 从 1 加起", "“小明把苹果给了”是 4 个 token", "K/V 与 lm_head", "1,003 次"])
def test_chinese_checks_accept_good_setting(text: str):
    """Catches: a rule that forbids correct Chinese."""
    assert chinese_slips(text) == []


def test_bold_that_never_closes_is_found():
    """Catches: **…。** directly before Han, which Markdown shows as asterisks."""
    assert UNCLOSED_BOLD.search("**先猜。**然后看") and not UNCLOSED_BOLD.search("**先猜**。然后看")


def test_planted_differences_between_languages_are_found(tmp_path: Path):
    """Catches: comparisons that would call two different lessons equal."""
    front = '+++\ntitle = "t"\nquestion = "q"\nminutes = 1\nhero = "[[=anchor.ridge]]"\nhero_caption = "c"\ntakeaway = "k"\n+++\n'
    one = lesson.parse(front + "## a\n\n[[=anchor.ridge]]\n\n::roofline-placer batch=8\n", "x", "zh")
    other = lesson.parse(front + "### a\n\n[[=anchor.ridge | FLOP/B]]\n\n::roofline-placer batch=16\n", "x", "en")
    assert one.parts[1] != other.parts[1]
    assert references(one.parts[0].text) != references(other.parts[0].text)
