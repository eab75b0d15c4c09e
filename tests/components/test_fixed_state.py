"""The fixed state's picture: bytes by hand, the chosen number of pairs, the crossing of the two lines."""

import pytest

from components import Scene
from components.fixed_state import WIDGET, Params, run
from compute import recall


def draw(params=Params(), lang="zh"):
    return WIDGET.draw(run(params), Scene(WIDGET.words(lang), lang, "light", None))


def test_bytes_by_hand():
    """Catches: a cache that does not grow, a state that does. 64² × 4 B; 2 × 64 × 128 × 4 B."""
    assert run(Params()).kept * 4 == 16_384 and run(Params(pairs=8)).kept * 4 == 16_384
    assert run(Params(rule="softmax")).kept * 4 == 65_536 and run(Params(rule="softmax", pairs=8)).kept * 4 == 4_096


def test_a_number_between_means_the_nearest():
    """Catches: a read-out of 100 pairs beside the curve's 96."""
    assert run(Params(pairs=100)).chosen.pairs == 96 and "96" in draw(Params(pairs=100)).sentence


def test_lines_cross_where_it_is_said():
    """Catches: a crossing drawn apart from its lines."""
    data = draw().beside[0].data
    assert data["each"] * data["held"] == data["state"] and data["each"] * data["moved"] == 2 * data["state"]


def test_the_guess_is_the_curve():
    """Catches: a guess judged on another rule or number than it asks about."""
    found = next(f for f in recall.curve("delta", 64) if f.pairs == 128)
    guess, result = WIDGET.guesses["double"], run(Params(rule="softmax", pairs=4))
    assert guess.truth(result).value == pytest.approx(found.found) and guess.right(result) == "half"
