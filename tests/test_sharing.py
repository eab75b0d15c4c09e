"""What sharing makes of the block tables: contents read back, counts and sums by hand, thousands of random families."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compute import precompute
from compute.measures.sharing import TEXTS, WIDTHS, from_prompt
from compute.sharing import blocks_apart, saved, unfold


def read_back(prompt, steps, block):
    """Plays the frames on a memory of cells that knows nothing of pools, and compares every text with what its table reads."""
    cells, written = {}, {}
    for frame in unfold(prompt, steps, block):
        if frame.kind == "copy":
            for at in range(frame.moved):
                cells[frame.copy.target, at] = cells[frame.copy.source, at]
        owned = {}
        for row, text in enumerate(frame.rows):
            if text is None or text.dropped:
                written[row] = 0
                continue
            if text.parent is not None and frame.kind == "fork":
                written[row] = text.written
            for position in range(written.get(row, 0), text.written):
                where = text.blocks[position // block]
                assert sum(where in other.blocks for other in frame.rows if other) == 1, "written into a block that another text owns"
                cells[where, position % block] = text.ids[position]
            written[row] = text.written
            assert [cells[text.blocks[p // block], p % block] for p in range(text.written)] == list(text.ids[: text.written])
            for where in text.blocks:
                owned[where] = owned.get(where, 0) + 1
        assert {b: n for b, n in enumerate(frame.refs) if n} == owned, "counts are the tables that hold the block"
    return frame


@st.composite
def families(draw):
    width = draw(st.integers(2, 6))
    steps = [[(0, draw(st.integers(0, 9))) for _ in range(width)]]
    for _ in range(draw(st.integers(0, 12))):
        steps.append([(draw(st.integers(0, width - 1)), draw(st.integers(0, 9))) for _ in range(width)])
    return draw(st.lists(st.integers(0, 9), min_size=1, max_size=20)), steps, draw(st.sampled_from((1, 2, 3, 4, 8, 16)))


@settings(max_examples=150, deadline=None)
@given(families())
def test_every_text_reads_back_what_it_wrote(family):
    """Catches: a copy left out, done too late or from the wrong block, a block given to two writers, a count that is off."""
    prompt, steps, block = family
    last = read_back(prompt, steps, block)
    assert last.used <= last.apart(block) == blocks_apart(len(prompt), len(steps[0]), len(steps), block)


@pytest.mark.parametrize("prompt, new, texts, block, owned, copies", [
    (14, 16, 4, 4, 3 + 4 * 5, 3),  # 3 full blocks shared; 4 × (2 + 16 tokens in 5 blocks)
    (16, 16, 4, 4, 4 + 4 * 4, 0),  # the prompt ends with its block: nobody has to copy
    (4, 16, 4, 16, 4 * 2, 3),  # the only block of the prompt is part full
    (43, 16, 8, 16, 2 + 8 * 2, 7),
])  # fmt: skip
def test_samples_by_hand(prompt, new, texts, block, owned, copies):
    """Only the prompt's full blocks stay shared; its last, part-full one is copied by all but the last that writes into it.
    Catches: one copy too many (the last could write in place), a partly filled block counted as shared."""
    frames = unfold(range(prompt), from_prompt([[100 + i] * new for i in range(texts)]), block)
    assert frames[-1].used == owned
    assert sum(frame.kind == "copy" for frame in frames) == copies
    assert frames[-1].copied == copies * (prompt % block)
    assert saved(frames[-1], block) == pytest.approx(1 - owned / (texts * -(-(prompt + new) // block)))
    assert frames[-1].copied_apart == (texts - 1) * prompt


def test_a_count_falls_with_every_copy():
    """Four texts, a block with two of four positions written. Catches: a source that keeps its count, copies all at once."""
    frames = unfold(range(6), from_prompt([[i] for i in range(4)]), 4)
    assert [frame.kind for frame in frames] == ["read", "fork", "copy", "copy", "copy", "write"]
    assert [frame.refs[1] for frame in frames] == [1, 4, 3, 2, 1, 1]
    assert [frame.refs[0] for frame in frames] == [1, 4, 4, 4, 4, 4]


def test_a_beam_step_by_hand():
    """Two beams with block 2; prompt of 2. Step 2: both go on from beam 0, beam 1 is dropped. Catches: a dropped beam whose block
    is not free again, a fork that copies, the wrong survivor."""
    frames = unfold([1, 2], [[(0, 3), (0, 4)], [(0, 5), (0, 6)]], 2)
    told = [(f.kind, [(r.ids, r.blocks, r.dropped) if r else None for r in f.rows], f.refs[:3]) for f in frames]
    assert told == [
        ("read", [((1, 2), (0,), False), None], (1, 0, 0)),
        ("fork", [((1, 2, 3), (0,), False), ((1, 2, 4), (0,), False)], (2, 0, 0)),
        ("write", [((1, 2, 3), (0, 1), False), ((1, 2, 4), (0, 2), False)], (2, 1, 1)),
        ("drop", [((1, 2, 3), (0, 1), False), ((1, 2, 4), (), True)], (1, 1, 0)),
        ("fork", [((1, 2, 3, 5), (0, 1), False), ((1, 2, 3, 6), (0, 1), False)], (2, 2, 0)),
        ("copy", [((1, 2, 3, 5), (0, 2), False), ((1, 2, 3, 6), (0, 1), False)], (2, 1, 1)),
        ("write", [((1, 2, 3, 5), (0, 2), False), ((1, 2, 3, 6), (0, 1), False)], (2, 1, 1)),
    ]
    assert frames[5].copy.source == 1 and frames[5].copy.target == 2 and frames[5].moved == 1
    assert frames[-1].copied == 1 and frames[-1].copied_apart == 2 + 3


@pytest.mark.parametrize("texts, prompt", [(texts, prompt) for texts in TEXTS for prompt in TEXTS[texts]])
def test_what_is_stored_can_be_unfolded(texts, prompt):
    """Catches: a recording with another number of texts, a token without its reading, beams that share less than samples."""
    drawn, kept = (precompute.trace(f"sharing.{texts}.{prompt}.{mode}") for mode in ("parallel", "beam"))
    for block in (4, 8, 16):
        one = saved(read_back(drawn["prompt"], from_prompt(drawn["samples"][:4]), block), block)
        other = saved(read_back(kept["prompt"], kept["beams"]["4"], block), block)
        assert 0 <= one <= other < 1
    assert set(kept["beams"]) == set(map(str, WIDTHS)) and all(len(step) == int(width) for width, steps in kept["beams"].items() for step in steps)
    seen = {*drawn["prompt"], *(token for sample in drawn["samples"] for token in sample)}
    assert seen <= set(map(int, drawn["pieces"])) and "".join(drawn["pieces"][str(token)] for token in drawn["prompt"]) == TEXTS[texts][prompt]
