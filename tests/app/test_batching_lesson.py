"""What lesson 2 says of its instruments, against the instruments as it opens them."""

from __future__ import annotations

import pytest

import components
from app import lesson
from app.lesson import Instrument
from components.text import load_words
from compute import numbers


def opened(widget: str) -> list:
    """The results that the lesson's instruments of a kind open with, in order."""
    found = components.widget(widget)
    presets = [dict(part.preset) for part in lesson.load("batching", "zh").parts if isinstance(part, Instrument) and part.widget == widget]
    for preset in presets:
        preset.pop("guess", "")
    return [found.run(found.Params(**preset)) for preset in presets]


NAMED = {
    "swim-lane": ("control.preemption", "control.source", "option.source.live", "live.button.live"),
    "memory-bar": ("control.preset", "option.preset.paragraphs"),
    "prefix-tree": ("control.story",),
    "live-server": ("view.send", "view.slow"),
}


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_what_the_text_tells_to_press_is_what_stands_there(lang: str):
    """Catches: a button or list that was renamed while the lesson still calls it by its old name."""
    said = (lesson.LESSONS / "batching" / f"{lang}.md").read_text(encoding="utf-8").lower()
    for widget, keys in NAMED.items():
        for key in keys:
            assert load_words(components.HERE / widget.replace("-", "_") / "text.toml", lang)(key).lower() in said, (widget, key)


@pytest.mark.parametrize("lanes, policies", [(0, ("static", "continuous")), (1, ("prefill-first", "chunked"))])
def test_figures_of_the_lanes_are_those_of_the_picture(lanes: int, policies: tuple[str, str]):
    """Catches: a swim lane that opens with other slots, blocks or budget than the stored figures beside it were made with."""
    for policy, seen in zip(policies, opened("swim-lane")[lanes].summaries, strict=True):
        for name in ("utilisation", "steps", "mean_latency", "p99_latency", "tokens_per_step"):
            assert getattr(seen, name) == pytest.approx(numbers.resolve(f"~batching.{policy}.{name}").value, rel=1e-9), (policy, name)


def test_the_tight_memory_is_that_of_the_text():
    """Catches: blocks that no longer run out where the text says that they do, or static batching preempting after all."""
    static, continuous = opened("swim-lane")[2].summaries
    assert static.preemptions == 0
    assert continuous.preemptions == numbers.resolve("~batching.tight.recompute.preemptions").value > 0
    assert continuous.steps == numbers.resolve("~batching.tight.recompute.steps").value == numbers.resolve("~batching.tight.swap.steps").value


@pytest.mark.parametrize("texts", ["zh", "en"])
def test_sharing_opens_with_three_copies_and_gains_by_the_long_prompt(texts: str):
    """Catches: a recorded prompt that is a whole number of blocks, so that the copy the text describes never happens."""
    widget = components.widget("sharing")
    middle, long = (widget.run(widget.Params(texts=texts, prompt=prompt)) for prompt in ("middle", "long"))
    assert middle.copies == middle.params.samples - 1 == 3
    assert long.saved > middle.saved


def test_above_most_still_wait_when_all_below_are_done():
    """Catches: a story of the memory bar that no longer ends as the text says."""
    widget = components.widget("memory-bar")
    end = next(moment for moment in widget.run(widget.Params(preset="paragraphs")).moments[1:] if not moment.paged.held and not moment.paged.waiting)
    assert len(end.reserved.waiting) > 64 / 2


@pytest.mark.parametrize("texts", ["zh", "en"])
def test_a_time_in_front_spoils_the_prefix(texts: str):
    """Catches: stories whose second visitor finds nothing, or finds as much behind a time of day."""
    widget = components.widget("prefix-tree")
    shared, stamped = (widget.run(widget.Params(texts=texts, story=story)) for story in ("shared", "stamped"))
    assert shared.cost(1) < shared.cost(0)
    assert stamped.saved < shared.saved / 5
