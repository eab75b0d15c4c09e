"""What lesson 5 says of its instruments, against the instruments as it opens them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace

import pytest

import components
from app import lesson, quiz
from app.lesson import Instrument
from components.text import load_words
from compute import facts, numbers
from compute.claims import serving as claims


def opened(widget: str) -> list:
    """The results that the lesson's instruments of a kind open with, in order."""
    found = components.widget(widget)
    presets = [dict(part.preset) for part in lesson.load("serving", "zh").parts if isinstance(part, Instrument) and part.widget == widget]
    for preset in presets:
        preset.pop("guess", "")
    return [found.run(found.Params(**preset)) for preset in presets]


def said(name: str) -> float:
    return numbers.resolve(name).value


def text(lang: str) -> str:
    return (lesson.LESSONS / "serving" / f"{lang}.md").read_text(encoding="utf-8")


NAMED = {
    "chunked-prefill": ("control.mode", "option.mode.chunked", "option.mode.separate", "control.clock", "option.clock.calibrated"),
    "load-lab": ("control.policy", "option.policy.chunked", "control.arrive", "option.arrive.bursty"),
    "endpoint-meter": ("live.button", "control.concurrency", "control.rate", "option.loop.open"),
}


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_what_the_text_tells_to_press_is_what_stands_there(lang: str):
    """Catches: a button or list that was renamed while the lesson still calls it by its old name."""
    for widget, keys in NAMED.items():
        for key in keys:
            assert load_words(components.HERE / widget.replace("-", "_") / "text.toml", lang)(key).lower() in text(lang).lower(), (widget, key)


# ---- the frontier


def test_the_frontier_opens_at_the_text_s_batch_and_target():
    """Catches: another batch or target than the sentences beside it, a curve that leaves out what the text asks the reader to look at."""
    (seen,) = opened("frontier")
    assert (seen.params.batch, seen.params.tpot_target) == (58, said("=serving.target.tpot"))
    ideal, real = seen.frontier.ideal, seen.frontier.calibrated
    assert ideal.alone.step_seconds == pytest.approx(said("=anchor.batch1.step_seconds"), rel=1e-9)
    assert ideal.chosen.step_seconds == pytest.approx(said("=anchor.batch58.step_seconds"), rel=1e-9)
    assert ideal.chosen.tokens_per_second == pytest.approx(said("=anchor.batch58.tokens_per_second"), rel=1e-9)
    assert ideal.best.batch == said("=serving.target.batch") and ideal.best.tokens_per_second == pytest.approx(said("=serving.target.tokens_per_second"), rel=1e-9)
    assert real.best.batch == said("=serving.calibrated.target.batch")
    assert real.chosen.step_seconds == pytest.approx(said("=serving.calibrated.batch58"), rel=1e-9)


def test_a_full_card_writes_several_times_as_fast_as_one_reads():
    """Catches: words a minute taken for words a second. A word is a token or two."""
    words = said("brysbaert.words_per_minute") / 60
    assert said("=serving.each.batch58") > 4 * 1.5 * words


# ---- the table


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_table_of_four_requests_is_the_claim_s(lang: str):
    """Catches: a cell changed without the means beneath it, a verdict that its row does not bear out."""
    rows = re.findall(r"(?m)^\| (?:甲|乙|丙|丁|[A-D]) \| ([\d.]+) \| (\d+) \| (.+) \|$", text(lang))
    assert [(float(ttft), int(tpot) / 1000) for ttft, tpot, _ in rows] == list(claims.REQUESTS)
    good = [ttft <= claims.TTFT_LIMIT and tpot <= claims.TPOT_LIMIT for ttft, tpot in claims.REQUESTS]
    assert [verdict in ("是", "yes") for *_, verdict in rows] == good


def test_the_quiz_s_requests_are_the_claim_s():
    """Catches: figures of a question changed without its truth."""
    (item,) = [item for item in quiz.load(lesson.LESSONS / "serving") if item.id == "goodput"]
    for lang in ("zh", "en"):
        pairs = re.findall(r"(\d\.\d) (?:和|and) (\d+)", item.question[lang])
        assert [(float(ttft), int(tpot) / 1000) for ttft, tpot in pairs] == list(claims.QUIZ_REQUESTS)


# ---- the long prompt


def test_the_timeline_shows_the_text_s_figures():
    """Catches: another number of readers, another budget or clock than the figures beside the picture were computed with."""
    (seen,) = opened("chunked-prefill")
    widget = components.widget("chunked-prefill")
    assert (seen.params.mode, seen.params.clock, seen.params.readers, seen.params.budget) == ("whole", "ideal", said("=serving.long.readers"), said("=serving.long.budget"))
    assert seen.stall["whole"].longest_gap_seconds == pytest.approx(said("=serving.long.silence"), rel=1e-9)
    chunked = seen.stall["chunked"]
    assert chunked.first_token_seconds == pytest.approx(said("=serving.long.chunked_ttft"), rel=1e-9) and chunked.first_token_seconds > said("=serving.long.silence")
    assert sum(beat.read > 0 for beat in chunked.beats) == said("=serving.long.chunks")
    assert chunked.longest_gap_seconds == pytest.approx(said("=serving.long.longest"), rel=1e-9)
    assert seen.stall["separate"].longest_gap_seconds < 1.1 * said("=serving.long.step")  # "the writers never pause"
    assert seen.stall.handover_bytes == said("=serving.long.handover_bytes")
    assert seen.stall.handover_bytes / seen.stall.link_bytes_per_s == pytest.approx(said("=serving.long.handover"), rel=1e-9)
    smaller = widget.run(replace(seen.params, mode="chunked", budget=int(said("=serving.long.small.budget"))))
    assert smaller.chosen.first_token_seconds == pytest.approx(said("=serving.long.small.chunked_ttft"), rel=1e-9)
    real = widget.run(replace(seen.params, clock="calibrated"))
    assert real.stall["chunked"].first_token_seconds == pytest.approx(said("=serving.long.calibrated_chunked"), rel=1e-9)


def test_most_of_what_chunks_cost_is_what_is_written_in_them():
    """Catches: "most of it for what those steps write", when reading in pieces would be the larger part."""
    whole, chunked = said("=serving.long.calibrated_whole"), said("=serving.long.calibrated_chunked")
    reading = said("=serving.long.calibrated_overhead") * said("=serving.calibrated.long")
    assert reading < (chunked - whole) / 2 and said("=serving.long.calibrated_overhead") < said("sarathi.chunk_overhead")


# ---- bounds and engines


def test_the_verdicts_are_those_of_the_picture():
    """Catches: rows counted otherwise in prose than in the picture; a lane that the text calls worse and is not."""
    (seen,) = opened("judged")
    assert seen.params.group == "a100"
    for group in ("a100", "h100", "cards", "experts"):
        for field in ("n", "mean", "ideal_mean", "worst"):
            assert getattr(seen.summaries[group], field) == pytest.approx(said(f"=serving.judged.{group}.{field}"), rel=1e-9), (group, field)
    assert seen.summaries["short"].bias == pytest.approx(said("=serving.judged.short.bias"), rel=1e-9)
    assert all(seen.summaries["a100"].mean < s.mean for id, s in seen.summaries.items() if id != "a100")


def test_nobody_published_the_anchor_s_case():
    """Catches: "nobody has published a whole engine in 16 bits on this card", or of a model with recurrent states, once somebody has."""
    data = tomllib.loads((facts.DATA / "measured-public.toml").read_text(encoding="utf-8"))
    assert not [row for row in data["throughput"] if row["chip"] == "h100-sxm" and row["dtype"] in ("bf16", "fp16")]
    assert not [row for row in data["throughput"] if facts.model(row["model"]).state_bytes]
    assert said("=anchor.state_layers") > said("=anchor.attention_layers")  # "most layers of the anchor keep a recurrent state"


# ---- under load


def test_the_counter_opens_where_the_text_asks():
    """Catches: another load than the 0.8 of the formula."""
    counter = opened("load-lab")[0]
    assert (counter.params.mode, counter.params.rho) == ("mm1", 0.8)
    assert counter.exact.p99 == pytest.approx(said("=serving.mm1.p99.80"), rel=1e-12)


def test_the_service_opens_with_the_stored_run_s_setting():
    """Catches: stored figures that are not those of the picture: another workload, clock, seed or target."""
    seen = opened("load-lab")[1]
    widget = components.widget("load-lab")
    at = {"opens": seen.run, "bursty": widget.run(replace(seen.params, arrive="bursty")).run}
    for name, run in at.items():
        assert run.rate == pytest.approx(said(f"~serving.load.{name}.rate"))
        assert run.good.share == pytest.approx(said(f"~serving.load.{name}.good_share"))
        assert run.ttft.p99.seconds == pytest.approx(said(f"~serving.load.{name}.ttft_p99"))
    assert seen.run.capacity.requests_per_second == pytest.approx(said("~serving.load.capacity"))
    for load in (60, 80, 90):
        run = widget.run(replace(seen.params, rate=load / 100 * seen.run.capacity.requests_per_second)).run
        assert run.good.requests_per_second == pytest.approx(said(f"~serving.load.at{load}.goodput"))
        assert run.tokens_per_second == pytest.approx(said(f"~serving.load.at{load}.tokens_per_second"))
    assert widget.guesses["p99"].truth(seen).value == pytest.approx(said("~serving.load.at80.stay_p99"))


def test_what_the_text_says_of_the_load():
    """Catches: goodput that no longer turns while throughput rises, a knee beyond half of the capacity, first tokens that give first,
    chunks that no longer help, bursts that do no harm."""
    seen = opened("load-lab")[1]
    good = {load: said(f"~serving.load.at{load}.goodput") for load in (50, 60, 80, 90)}
    assert good[60] == max(good.values()) and good[90] < good[60] / 2 and said("~serving.load.at90.tokens_per_second") > said("~serving.load.at60.tokens_per_second")
    assert seen.curve.knee < seen.curve.capacity / 2
    assert said("~serving.load.at60.ttft_p99") <= seen.params.ttft_target and said("~serving.load.at60.tpot_p99") > seen.params.tpot_target
    assert said("~serving.load.chunked80.goodput") > max(good.values()) and said("~serving.load.chunked80.rate") < said("~serving.load.at80.rate")
    assert said("~serving.load.bursty.good_share") < said("~serving.load.opens.good_share")
    assert said("~serving.load.at80.stay_p99") < said("=serving.mm1.p99.80")


# ---- tokens


def test_the_sentences_are_those_of_the_picture():
    """Catches: a sentence of the prose that the instrument does not open with, or another than was counted."""
    (seen,) = opened("tokenizers")
    counted = numbers.resolve("~serving.tokens.zh.qwen3.6").conditions["text"]
    assert seen.params.text == counted
    assert {s.id: s.count for s in seen.said.splits if s.id != "smollm2"} == {id: said(f"~serving.tokens.zh.{id}") for id in ("qwen3.6", "qwen2.5", "mini-256")}
    assert numbers.resolve("~serving.tokens.en.qwen3.6").conditions["text"] in text("zh") and numbers.resolve("~serving.tokens.en.qwen3.6").conditions["text"] in text("en")
    assert said("~serving.tokens.en.qwen3.6") == said("~serving.tokens.en.smollm2") < said("~serving.tokens.en.mini-256")
    assert seen.best.id == "qwen3.6" and seen.best.characters_per_second == pytest.approx(said("=serving.speed.zh.qwen3.6"), rel=1e-9)
    assert said("=serving.speed.zh.qwen3.6") / said("=serving.speed.zh.smollm2") == pytest.approx(said("=serving.speed.zh.ratio"), rel=1e-9)
