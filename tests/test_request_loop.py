"""A request's round against the claims of the lessons and sums written out."""

import pytest

from compute import kv, numbers, roofline
from compute.errors import Refused
from compute.request_loop import BLOCK, blocks_for, loop

MODEL, CHIP = "qwen3.8-27b", "h100-sxm"


def test_the_running_example_is_four_tokens():
    """Catches another vocabulary than the anchor's."""
    made = loop()
    assert [(t.id, t.piece) for t in made.tokens] == [(115942, "小明"), (96373, "把"), (99203, "苹果"), (100105, "给了")] and (made.answer.id, made.answer.piece) == (126835, "小王")
    assert made.prompt == 4 and made.blocks == 1 and loop("sentence").prompt == len(loop("sentence").tokens) == 5


def test_a_thousand_tokens_take_what_lesson_one_says():
    """Catches a step too many or too few, and a context that is one off."""
    made = loop(new=1000)
    assert made.seconds == pytest.approx(numbers.resolve("=kv.with_cache_seconds").value, rel=1e-9)
    assert made.rounds[-1].clock == pytest.approx(made.seconds) and made.rounds[-1].context == kv.computations(4, 1000).with_cache == 1003
    assert made.decode_share == pytest.approx(1 - made.prefill.seconds / made.seconds)


def test_the_sum_of_the_steps_is_the_sum_of_the_steps():
    """Catches the short cut over a straight line, at a batch and in the middle of a block."""
    made = loop(new=40, prefix=300, batch=7)
    steps = [roofline.decode(MODEL, CHIP, 7, 304 + i).step_seconds for i in range(1, 40)]
    assert made.decode_seconds == pytest.approx(sum(steps), rel=1e-12) and made.rounds[1].clock == pytest.approx(made.prefill.seconds + sum(steps[:2]))
    assert [turn.writes for turn in made.rounds] == [2, 3, 40] and [turn.writes for turn in loop(new=2).rounds] == [2]


def test_blocks_are_fetched_when_one_is_full():
    """304 tokens fill 19 blocks of 16. Catches a block that comes a token early or late."""
    made = loop(prefix=300, new=40)
    assert made.blocks == 19 and made.rounds[0].opened and made.rounds[0].blocks == 20 and not made.rounds[1].opened
    assert made.rounds[-1].blocks == -(-(304 + 39) // BLOCK) == blocks_for(343)


def test_only_whole_blocks_are_shared():
    """Catches: a saving on a prompt shorter than a block, and one that leaves no token to read."""
    assert loop().reuse.blocks == 0 and loop().reuse.seconds == 0
    exact = loop(prefix=4096 - 4)
    assert exact.prompt == 4096 and exact.reuse.tokens == 4096 - BLOCK and 0.9 * exact.prefill.seconds < exact.reuse.seconds + 0.0156 < exact.prefill.seconds + 0.0156


def test_too_many_are_refused():
    """Catches a step for requests that will not fit at their end: 112 fit, and 113 do not."""
    assert loop(batch=112).fits == 112
    with pytest.raises(Refused):
        loop(batch=113)
