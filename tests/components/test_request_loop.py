"""What each cell of the request's round says; where a click leads; the side roads."""

import pytest

from components import Scene
from components.request_loop import LESSONS, SIDES, TONES, WIDGET, Params, run
from components.text import LANGUAGES
from components.theme import CONCEPTS


def view(lang="en", t=None, **params):
    return WIDGET.draw(run(Params(**params)), Scene(WIDGET.words(lang), lang, "light", t=t))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_cell_says_a_number_and_leads_to_a_lesson(lang):
    """Catches a cell without words, a placeholder that is not filled, and a step whose papers are another's."""
    result = run(Params(prefix=1000, batch=8))
    for t, moment in enumerate(result.moments):
        drawn = view(lang, t, prefix=1000, batch=8)
        assert any(c.isdigit() for c in drawn.sentence) and "{" not in drawn.sentence and drawn.sentence == drawn.picture.data["moments"][t]["says"]
        assert f'/{LESSONS[moment.cell]}?lang={lang}"' in drawn.beside[0].body and len(drawn.papers) >= 3
    assert drawn.picture.steps == len(result.moments) == len(drawn.rows)


def test_the_round_is_walked_in_order():
    """Catches a circle that begins elsewhere, and a last token whose K and V are written."""
    result = run(Params())
    cells = [m.cell for m in result.moments]
    assert cells[:7] == ["tokenize", "queue", "blocks", "prefill", "sample", "append", "stop"] and cells[-1] == "leave"
    assert cells[7:13] == cells[13:19] == cells[19:25] == ["weights", "cache", "logits", "sample", "append", "stop"] and len(cells) == 26
    clocks = [row["clock_seconds"] for row in view().rows]
    assert clocks == sorted(clocks) and [m.written for m in result.moments][-3:] == [1000, 1000, 1000]
    assert "are never computed" in view(t=23).sentence and "never" not in view(t=5).sentence


def test_figures_of_the_running_example():
    """15.3 ms of prefill, 51.2 GB a token, 302 MB of state. Catches a figure on the wrong cell."""
    data = view("zh", 8).picture.data
    assert data["tokens"] == [["小明", "115942"], ["把", "96373"], ["苹果", "99203"], ["给了", "100105"]] and data["answer"] == ["小王", "126835"]
    assert data["cells"]["prefill"]["figure"] == "15.3 ms" and data["moments"][7]["figures"]["weights"] == "51.2 GB" and data["moments"][8]["figures"]["cache"] == "302 MB"
    assert "320 KiB" in view("zh", 8).sentence, "five tokens of 64 KiB"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_side_roads_speak_for_this_request(lang):
    """Catches a road that says the same for every prompt, and one that opens without its numbers' papers."""
    said = {side: view(lang, side=side) for side in SIDES}
    assert len({v.sentence for v in said.values()}) == len(SIDES) and said["none"].picture.data["road"] == ""
    assert all(len(said[side].papers) > len(said["none"].papers) - 1 and said[side].sentence.endswith(said[side].picture.data["road"]) for side in SIDES)
    assert view(lang, side="prefix", prefix=1000).picture.data["road"] != said["prefix"].picture.data["road"]
    assert said["none"].picture.picks == ("side",) and set(TONES.values()) <= set(CONCEPTS)


def test_the_guess_follows_the_request():
    """Catches a truth that does not look at the answer's length: after a long prompt two tokens are no decode at all."""
    guess = WIDGET.guesses["share"]
    assert guess.right(run(Params())) == "all" and guess.right(run(Params(new=16, prefix=1000))) == "most" and guess.right(run(Params(new=2, prefix=32_768))) == "half"
    assert 0.99 < guess.truth(run(Params())).value < 1
