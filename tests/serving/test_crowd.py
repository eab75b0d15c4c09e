"""The crowd against the scheduler, request by request; the quick clock against the clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from compute import calibrated
from compute.batching import POLICIES, Read, Work
from compute.errors import LabError
from compute.serving.flow import Server, flow, step_by_step
from compute.serving.quick import quick

FIELDS = ("arrived", "admitted", "first", "finished")


@dataclass(frozen=True)
class Binary:
    """A price that adds up without rounding, and to which everything matters: its terms are multiples of 2^-20 of a second."""

    windows: tuple[int, ...] = (5,)
    kind = "ideal"

    def decode(self, decoding, cells, in_windows):
        return self.mixed(decoding, cells, in_windows, [])

    def mixed(self, decoding, cells, in_windows, chunks):
        read = sum(3 * tokens + 5 * start * tokens + 7 * ends + 11 * (start > 0) for start, tokens, ends in chunks)
        return (1000 + 13 * decoding + 17 * cells + 19 * sum(in_windows) + 23 * read) / 2**20

    def __call__(self, work: Work) -> float:
        decoding = [read for read in work.reads if not read.prefill]
        chunks = [(read.start, read.tokens, read.start + read.tokens >= len(read.sequence.ids)) for read in work.reads if read.prefill]
        cells, seen = sum(read.start for read in decoding), [sum(min(read.start, 5) for read in decoding)]
        return self.mixed(len(decoding), cells, seen, chunks)


def both(server: Server, arrives, prompts, outputs):
    given_ = np.array(arrives, float), np.array(prompts), np.array(outputs)
    return flow(server, *given_), step_by_step(server, *given_)


@settings(max_examples=300, deadline=None)
@given(st.data())
@pytest.mark.parametrize("policy", POLICIES)
def test_the_crowd_is_the_scheduler(policy, data):
    """Catches: a member that ends a step early or late, a block opened in the wrong step or not given back, a plan kept too long
    (past an arrival, an end, a lack of blocks), somebody else preempted, a prompt read again in part, sums that drift."""
    n = data.draw(st.integers(1, 14))
    prompts = data.draw(st.lists(st.integers(1, 20), min_size=n, max_size=n))
    outputs = data.draw(st.lists(st.integers(1, 20), min_size=n, max_size=n))
    arrives = sorted(at / 1024 for at in data.draw(st.lists(st.integers(0, 60), min_size=n, max_size=n)))
    size = data.draw(st.integers(1, 6))
    least = max(-(-(p + o) // size) for p, o in zip(prompts, outputs))
    blocks = data.draw(st.integers(least, 3 * least + 2))
    server = Server(policy, data.draw(st.integers(1, 6)), data.draw(st.integers(1, 24)), blocks, size, Binary())
    ours, truth = both(server, arrives, prompts, outputs)
    for name in FIELDS:
        assert getattr(ours, name).tolist() == getattr(truth, name).tolist(), name
    assert (ours.steps, ours.preemptions) == (truth.steps, truth.preemptions)


# ---- the clock on single numbers

CLOCKS = [
    ("qwen3.8-27b", "h100-sxm", "bf16", 1), ("qwen3.8-27b", "h200-sxm", "fp8", 2), ("llama-2-7b", "a100-80g-sxm", "int8", 1),
    ("llama-3-70b", "h100-sxm", "int4", 4), ("gpt-oss-20b", "h100-sxm", "bf16", 1), ("mixtral-8x7b", "h200-sxm", "bf16", 1), ("mistral-7b", "a100-80g-sxm", "bf16", 2),
]  # fmt: skip


@dataclass
class Text:
    ids: range


def work_of(random, decoding: int, chunks: int) -> tuple[Work, tuple]:
    reads, cells, parts = [], [], []
    for _ in range(decoding):
        cells.append(int(random.integers(1, 20_000)))
        reads.append(Read(None, cells[-1], 1, False, 0))
    for _ in range(chunks):
        start, tokens, more = int(random.choice([0, random.integers(1, 9000)])), int(random.integers(1, 3000)), int(random.choice([0, 5]))
        reads.append(Read(Text(range(start + tokens + more)), start, tokens, True, 0))
        parts.append((start, tokens, not more))
    return Work(tuple(reads)), (cells, parts)


@pytest.mark.parametrize("clock", (calibrated.ideal, calibrated.calibrated))
@pytest.mark.parametrize("case", CLOCKS, ids=lambda case: f"{case[0]} {case[1]} {case[2]} x{case[3]}")
def test_the_quick_clock_is_the_clock(clock, case):
    """Catches: any term of a step that is not there on single numbers, or counted otherwise: launches, windows, states, lm_head,
    sums across cards, what chunks look back at."""
    try:
        slow = clock(*case)
    except LabError as why:
        pytest.skip(str(why))
    fast, random = quick(slow), np.random.default_rng(1)
    for decoding, chunks in ((1, 0), (58, 0), (300, 0), (0, 1), (0, 3), (1, 1), (40, 2), (5000, 0)):
        for _ in range(6):
            work, (cells, parts) = work_of(random, decoding, chunks)
            seen = [sum(min(n, window) for n in cells) for window in fast.windows]
            found = fast.mixed(decoding, sum(cells), seen, parts)
            assert found == pytest.approx(slow(work), rel=1e-9)
            if not chunks:
                assert fast.decode(decoding, sum(cells), seen) == found
