"""The prefix tree's instrument: its story in numbers, rows that stay, and who pays after an eviction."""

import json
import shutil
import subprocess

import pytest

from components import Scene
from components.prefix_tree import CAPACITIES, WIDGET, Params, opening
from compute import precompute
from compute.errors import BadInput, BrokenData
from compute.functions import plain
from compute.measures.prefix import parts, stories
from tests.components.test_sharing import NODE


def result(**given):
    return WIDGET.run(Params(**given))


def draw(found, lang="zh", before=None):
    return WIDGET.draw(found, Scene(WIDGET.words(lang), lang, "light", before))


@pytest.mark.parametrize("texts", ["zh", "en"])
def test_the_second_visitor_computes_what_the_first_did_not(texts):
    """The prompts have the system prompt and the question's opening in common; found are their whole blocks of 4. Catches: a
    part tokenised otherwise beside another one, a hit beyond what is common."""
    found = result(texts=texts)
    first, second = (visit.prompt for visit in found.coming[:2])
    common = next(i for i, (a, b) in enumerate(zip(first, second)) if a != b)
    assert found.cost(0) == len(first) and found.cost(1) == len(second) - common // 4 * 4
    assert found.cost(1) < found.cost(0) / 2


def test_what_is_found_and_computed_is_all_that_was_asked():
    """Without preemption. Catches: a token that is counted twice or not at all."""
    for story in ("shared", "stamped"):
        found = result(story=story)
        assert found.hits + found.read == sum(len(visit.prompt) for visit in found.coming)
        assert found.saved == pytest.approx(found.hits / sum(len(visit.prompt) for visit in found.coming))


def test_a_clock_in_front_spoils_it():
    """Catches: a cache that would find text at another position."""
    for texts in ("zh", "en"):
        assert result(texts=texts).saved > 0.6 and result(texts=texts, story="stamped").saved < 0.06
        assert result(texts=texts, story="stamped", block=16, capacity=512).hits == 0


def test_less_memory_evicts_and_costs():
    """Catches: a capacity that does not reach the pool, an eviction that costs nobody."""
    ample, tight = result(), result(capacity=112)
    assert (ample.blocks, ample.evicted) == (80, 0) and ample.most < 80
    assert tight.blocks == 28 and tight.evicted > 10 and tight.read > ample.read and tight.most == 28
    last = max(range(len(tight.coming)), key=lambda visit: tight.cost(visit) - ample.cost(visit))
    assert last in (6, 7), "who comes back after the eviction pays"


@pytest.mark.parametrize("texts", ["zh", "en"])
def test_every_capacity_on_offer_finishes(texts):
    """Catches: a slider position that raises, refuses or never ends; the longest conversation is longer in English."""
    offered = [control.stops for control in WIDGET.controls if control.field == "capacity" and control.when(Params(texts=texts))]
    assert offered == [CAPACITIES[texts]]
    for capacity in CAPACITIES[texts]:
        for story in ("shared", "stamped"):
            found = result(capacity=capacity, texts=texts, story=story, block=16)
            assert sum(event.kind == "finish" for event in found.events) == 8
    assert result(capacity=CAPACITIES[texts][0], texts=texts).evicted > 10


def test_a_memory_too_small_for_one_is_refused():
    """Catches: a conversation that waits for ever for room that will not come."""
    with pytest.raises(BadInput) as refusal:
        result(capacity=112, texts="en")
    assert refusal.value.values["field"] == "capacity"


def test_a_block_stays_in_its_row():
    """Catches: a row that jumps when another's leaf is evicted and two edges become one."""
    for given in ({}, {"capacity": 112}, {"story": "stamped"}, {"texts": "en", "capacity": 192}):
        found, seen = result(**given), {}
        for event, drawn in zip(found.events, draw(found).picture.data["events"]):
            at = {}
            for edge in drawn["edges"]:
                for i, (block, refs, rank) in enumerate(edge["blocks"]):
                    place = edge["row"], edge["start"] + i * found.params.block
                    assert place not in at, "two blocks in one place"
                    at[place] = block
            chains = {held.chain: held.block for root in event.roots for node in root.walk() for held in node.blocks}
            assert len(chains) == len(at)
            for chain, block in chains.items():
                place = next(place for place, other in at.items() if other == block)
                assert seen.setdefault(chain, place) == place


def test_rows_are_conversations():
    """Who comes back goes on in the same row, unless the text begins otherwise. Catches: two texts drawn over each other."""
    assert result().lines == (0, 1, 2, 0, 3, 4, 2, 0)
    assert result(story="stamped").lines == tuple(range(8))


def test_it_opens_when_the_second_visitor_was_read():
    """Catches: an opening picture without the point."""
    found = result()
    event = found.events[opening(found.events)]
    assert event.kind == "read" and event.visit == 1 and event.hits > event.read


def test_the_guess_has_its_answer():
    """Catches: a truth between two choices."""
    guess = WIDGET.guesses["saved"]
    for texts in ("zh", "en"):
        assert guess.right(result(texts=texts)) == "70" and guess.truth(result(texts=texts)).value == pytest.approx(0.7, abs=0.05)


def test_the_stored_tokens_are_those_of_the_story():
    """Catches: a story that was edited and not tokenised again."""
    for language in ("zh", "en"):
        kept = precompute.trace(f"prefix.{language}.tokens")
        assert [part["text"] for part in kept] == parts(language)
        assert all("".join(part["pieces"]) == part["text"] and len(part["ids"]) == len(part["pieces"]) for part in kept)
        assert [visit["arrives"] for visit in stories()[language]["visits"]] == sorted(visit["arrives"] for visit in stories()[language]["visits"])


def test_without_recordings_it_says_what_to_do(monkeypatch, tmp_path):
    """Catches: an empty picture when the stored file is not there."""
    monkeypatch.setattr(precompute, "STORE", tmp_path / "precomputed.json")
    with pytest.raises(BrokenData, match="prefix.zh.tokens.*precompute"):
        result()


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize("given", [{}, {"capacity": 112, "block": 8}, {"story": "stamped"}, {"texts": "en", "block": 16}])
def test_the_picture_is_a_function_of_the_step(given):
    """Catches: a drawing that depends on what was drawn before, a step that breaks it, marks beyond its end."""
    stage = draw(result(**given)).picture
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps(plain(stage.data)), str(stage.steps)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
