"""The figures of lesson 2, by hand."""

from __future__ import annotations

import pytest

from components import memory_bar
from compute import numbers
from compute.batching_requests import requests
from compute.claims import batching

KV, STATE = 65_536, 150_994_944  # of the anchor, bytes: a token, a request
FREE = 24_437_144_096  # bytes of an H100 beside all of the anchor's weights
READ = 16 * 24 * 256 * 2  # FLOP of attention for n² tokens read at once


@pytest.mark.parametrize(
    "name, by_hand",
    [
        ("reserved.bytes", 262_144 * KV),
        ("reserved.used", 1 / 64),
        ("reserved.lower_maximum", 2**15),
        ("reserved.lower_requests", FREE // (32_768 * KV + STATE)),
        ("m6.used", (5 + 2 + 3) / 48),
        ("m6.reserved", 16 + 8 + 16),
        ("m6.taken_in_pages", 8 + 4 + 4),
        ("m6.wanted", 12),
        ("m6.free", 8 + (48 - 40)),  # what request 2 left, and what nobody had reserved
        ("m6.longest", 8),
        ("block.bytes", 2**20),
        ("block.waste_bytes", 15 * KV),
        ("block.waste_share", 15 / 4096),
        ("state_in_blocks", 144),
        ("anchor.kernel_cost", 0.26 * 58 * 4096 * KV / (51_247_841_280 + 58 * (4096 * KV + 2 * STATE))),
        ("anchor.recompute_seconds", (51_247_841_280 * 4096 + READ * 4096**2) / 989.5e12),
        ("anchor.swap_bytes", 4096 * KV + STATE),
        ("anchor.swap_even", 2 * (4096 * KV + STATE) / ((51_247_841_280 * 4096 + READ * 4096**2) / 989.5e12)),
        ("quiz.utilisation", (3 + 5 + 6 + 18) / (4 * 18)),
        ("quiz.blocks", 62 + 1),  # 62 × 16 = 992, and eight more
        ("sharing.long", 1 - (62 + 4 * (75 - 62)) / (4 * 75)),  # 1,200 tokens are 75 blocks, 62 of them full of the prompt
        ("sharing.short", 1 - (1 + 4 * (14 - 1)) / (4 * 14)),  # 220 tokens are 14 blocks, one of them full of the prompt
    ],
)  # fmt: skip
def test_figures_of_lesson_2_by_hand(name: str, by_hand: float):
    """Catches: a claim whose function no longer computes what its sentence says."""
    assert numbers.resolve(f"=batching.{name}").value == pytest.approx(by_hand, rel=1e-9)


def test_the_small_example_on_paper():
    """Catches: a slot that is refilled early, or late. Lengths 3 5 6 18 | 4 7 2 9 in four slots: static takes the longest of
    each half; when the slots of 3, 5 and 6 fall free, 4, 7 and 2 follow, then 9 after the 4 or the 2: all end before the 18."""
    assert numbers.resolve("=batching.small.static.steps").value == 18 + 9
    assert max(3 + 4, 5 + 7, 6 + 2, 3 + 4 + 9) < 18
    assert numbers.resolve("=batching.small.continuous.steps").value == 18


def test_the_chunk_that_rides_along():
    """Catches: weights moved twice, attention of the chunk left out, an off-by-one."""

    def computing(n):
        return (58 * (51_247_841_280 + 4096 * 16 * 24 * 256 * 4) + 51_247_841_280 * n + READ * n * n) / 989.5e12

    def moving(n):
        return (51_247_841_280 + 58 * (4096 * KV + 2 * STATE) + n * KV + STATE) / 3.35e12

    n = numbers.resolve("=batching.anchor.rides_free").value
    assert computing(n) <= moving(n) and computing(n + 1) > moving(n + 1)


def test_least_steps_of_the_real_requests():
    """Catches: prompts counted as answers, a step that is not full rounded away."""
    lengths = [request.output for request in requests()]
    steps = numbers.resolve("=batching.requests.least_steps").value
    assert len(lengths) == 64 and steps > max(lengths)
    assert 8 * (steps - 1) < sum(lengths) <= 8 * steps


def test_copies_of_a_block_that_is_partly_filled():
    """Catches: the whole prompt copied, or a copy for the one who ends up alone. 1,000 tokens leave eight in the last block:
    three of four answers copy it."""
    assert 1000 % 16 == 8
    assert numbers.resolve("=batching.quiz.copies").value == 4 - 1


def test_the_text_tells_the_story_that_the_instrument_opens_with():
    """Catches: other requests, cells or events in the instrument than in the sentences above it."""
    assert (memory_bar.M6_REQUESTS, memory_bar.CELLS["m6"], memory_bar.Params().block) == (batching.THREE, batching.CELLS, batching.CELLS_IN_BLOCK)
    assert memory_bar.M6_EVENTS.startswith(batching.EVENTS)
