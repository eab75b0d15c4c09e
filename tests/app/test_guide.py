"""What the guide says of the other lessons, against these lessons and the numbers."""

from __future__ import annotations

import re

import pytest

from app import lesson, prose, shell, views
from app.lesson import Instrument
from components.text import LANGUAGES
from compute import numbers

LESSONS = [entry.slug for entry in lesson.existing() if entry.slug != "guide"]
LINK = re.compile(r"\[([^\[\]]+)\]\((/[^)\s]*)\)")


def said(name: str) -> float:
    return numbers.resolve(name).value


def text(lang: str) -> str:
    return (lesson.LESSONS / "guide" / f"{lang}.md").read_text(encoding="utf-8")


def tables(lang: str) -> list[list[list[str]]]:
    """The tables of words: rows of cells, the head first. A bar inside [[ ]] parts no cells."""
    found = []
    for block in re.findall(r'<div class="lab-wide">\n\n(.*?)\n\n</div>', text(lang), re.S):
        rows = [line for line in block.split("\n") if not line.startswith("|:")]
        found.append([[cell.strip() for cell in re.split(r"\|(?![^\[]*\]\])", row)[1:-1]] for row in rows])
    assert [len(table[0]) for table in found] == [4, 4, 4], "chain, layers, pitfalls"
    return found


# ---- its own figures


def test_what_one_answer_moves_by_hand():
    """Catches: a forward too many or too few, KV that does not grow, the state counted once a step. The prompt is read in one forward,
    which writes a thousand tokens of KV and one state; 299 more read and write the state and read 1,001 … 1,299 tokens of KV."""
    weights, kv, state = 2 * 25_623_920_640, 65_536, 150_994_944
    cached = sum(range(1001, 1300))
    by_hand = 300 * weights + (1000 + cached) * kv + (1 + 2 * 299) * state
    assert said("=guide.answer.bytes") == pytest.approx(by_hand, rel=1e-9)
    assert said("=guide.answer.weights_share") == pytest.approx(300 * weights / by_hand, rel=1e-9)


def test_the_quiz_s_figures_by_hand():
    """Catches: a speed-up by another formula, requests that share the reserved size."""
    assert said("=guide.quiz.bound") == 1600 / 32
    assert said("=guide.quiz.seats") == 20_000 // 400 and said("=guide.quiz.seats_reserved") == 20_000 // 3_200
    assert said("=guide.quiz.small_draft") == pytest.approx((1 + 0.6 + 0.36 + 0.216) / 1.15)
    assert said("=guide.quiz.large_draft") == pytest.approx((1 + 0.9 + 0.81 + 0.729) / 2.2)


# ---- what it says of the lessons


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_chain_has_a_row_for_every_lesson_in_order(lang: str):
    """Catches: a lesson that was added or renamed and that the guide does not know, a link to another one, a row without a number."""
    rows = tables(lang)[0][1:]
    assert len(rows) == len(LESSONS)
    for slug, row in zip(LESSONS, rows):
        label, address = LINK.fullmatch(row[0]).groups()
        assert label.endswith(lesson.load(slug, lang).title) and address == f"/{slug}?lang={lang}"
        assert list(prose.names(row[2])), slug


@pytest.mark.parametrize("lang", LANGUAGES)
def test_sentences_to_keep_are_the_lessons_own(lang: str):
    """Catches: a guide that does not list them, a lesson left out, or one that lists itself."""
    assert text(lang).count("\n::takeaways\n") == 1
    kept = views.takeaways(lesson.load("guide", lang)).split("\n")
    assert [LINK.search(line)[2] for line in kept] == [f"/{slug}?lang={lang}" for slug in LESSONS]
    for slug, line in zip(LESSONS, kept):
        assert line.endswith(lesson.load(slug, lang).takeaway), slug


@pytest.mark.parametrize("lang", LANGUAGES)
def test_links_lead_to_pages_and_keep_the_language(lang: str):
    """Catches: a page that was renamed, a link that throws the reader into the other language."""
    addresses = [address for _, address in LINK.findall(text(lang))]
    assert len(addresses) > 20
    assert {address for address in addresses if not re.fullmatch(rf"/({'|'.join(shell.slugs())})\?lang={lang}", address)} == set()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_instrument_of_the_lessons_stands_in_one_layer(lang: str):
    """Catches: an instrument without a word on what kind of evidence it gives, one in two layers at once, one that no lesson has."""
    used = {part.widget for slug in ["guide", *LESSONS] for part in lesson.load(slug, lang).parts if isinstance(part, Instrument)}
    assert len(used) > 20
    cells = [row[2] for row in tables(lang)[1][1:]]
    assert len(cells) == 3 and sorted(id for cell in cells for id in prose.instruments(cell)) == sorted(used - {"decisions"})  # what the learner decides is no evidence
    assert [re.sub(r"\[\[@[a-z-]+\]\][；;]? ?", "", cell) for cell in cells] == [""] * 3, "a name by hand would outlive its instrument's title"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_pitfall_has_a_number_and_a_lesson(lang: str):
    """Catches: a remedy that is only advice. The one picture without a cache needs no number."""
    rows = tables(lang)[2][1:]
    assert len(rows) >= 13 and all(all(row) for row in rows)
    for row in rows:
        assert LINK.search(row[3]), row[0]
        assert list(prose.names(row[3])) or "bbycroft" in row[0], row[0]


# ---- what its sentences conclude from their numbers


def test_conclusions_hold_for_the_numbers_they_are_drawn_from():
    """Catches: a stored number measured anew, with a sentence that no longer follows from it."""
    assert said("=anchor.decode_bound") < said("=anchor.compute_bound") / 100
    assert said("~quantize.mini-256.int4-tensor.loss_change") > said("=quantize.floor.high")  # "does not pass", whatever the band
    for scheme in ("int8-channel", "int4-g128", "int4-g64", "int4-g32"):
        assert said(f"~quantize.mini-256.{scheme}.loss_change") < said("~quantize.noise_floor")
    assert said("~quantize.mini-256.gptq-int4-g64.loss_change") < said("=quantize.floor.low") < said("~quantize.mini-256.int4-g64.loss_change")
    small, large = (said(f"~drafting.mini-{d}.k4.t0.speedup") for d in (64, 128))
    assert large < small < 1 < said("~drafting.smollm2-both.k4.t0.speedup")
    assert said("~drafting.mini-128.k4.t0.acceptance") > said("~drafting.mini-64.k4.t0.acceptance")
    assert said("=speculative.greedy.same") == said("=speculative.greedy.texts")
    assert said("~serving.load.at90.tokens_per_second") > said("~serving.load.at60.tokens_per_second")
    assert said("~serving.load.at90.goodput") < said("~serving.load.at60.goodput")
    ours, top_p = said("~sampling.t1.minp0_05.kept"), said("~sampling.t1.p0_9.kept")
    assert ours < top_p and said("~sampling.t1.minp0_05.repetition4") > said("~sampling.t1.p0_9.repetition4")
    assert said("=kv.saving_in_time") < said("=kv.saving") / 100
    assert said("=quantize.anchor.batch58.speedup") < said("=quantize.anchor.batch1.speedup")
