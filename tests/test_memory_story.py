"""A memory's story against a bare list of cells, arithmetic written out, and the rules that every story must keep."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compute import memory_story
from compute.errors import BadInput
from compute.memory_story import Event, Request, parse, tell, text

M6 = (Request(1, 16, 5), Request(2, 8, 2), Request(3, 16, 3))


def story(events: str, block: int = 4, cells: int = 48, requests=M6):
    return tell(cells, block, requests, parse(events, cells))


def test_the_m6_story_by_arithmetic():
    """48 cells; 16 + 8 + 16 = 40 reserved; 5 + 2 + 3 = 10 written, in ⌈5/4⌉ + ⌈2/4⌉ + ⌈3/4⌉ = 4 blocks of 4. Catches: a figure of
    the story that the written counts do not give, and a refusal without its numbers."""
    start, freed, arrived = story("f2,a12")
    assert (start.reserved.fill.written, start.reserved.fill.taken, start.reserved.fill.total) == (10, 40, 48)
    assert f"{100 * start.reserved.of_all:.1f}" == "20.8" and start.reserved.fill.utilisation == 10 / 40
    assert (start.reserved.internal, start.reserved.external) == (30, 0)
    assert (start.paged.fill.written, start.paged.fill.taken, start.paged.fill.total) == (10, 16, 48) and start.paged.internal == 6
    assert [held.blocks for held in start.paged.held] == [(0, 1), (2,), (3,)]
    assert [held.span for held in freed.reserved.held] == [(0, 16), (24, 16)] and (freed.reserved.free, freed.reserved.longest) == (8 + 8, 8)
    assert freed.reserved.external == 0, "nobody waits: the holes are of no harm yet"
    refused = arrived.reserved.refused(4)
    assert (refused.wanted, refused.free, refused.largest) == (12, 16, 8) and arrived.reserved.external == 16
    assert arrived.paged.refused(4) is None and arrived.paged.holds(4).blocks == (2,), "the block that request 2 gave back"


def test_the_story_ends_the_same_however_much_was_written_before():
    """Request 2 writes its 8 cells first. Catches: a refusal that only happens at the very start, and 12 cells that pages admit but
    could not hold."""
    for tokens in range(7):
        events = ",".join(["g"] * tokens + ["f2", "a12"])
        last = story(events)[-1]
        assert (last.reserved.refused(4).wanted, last.reserved.free, last.reserved.longest) == (12, 16, 8)
        assert last.paged.holds(4) is not None
        assert len(story(events + ",g8")[-1].paged.holds(4).blocks) == 12 / 4, "4 of the prompt and 8 more: three blocks"


def test_a_waiting_request_enters_as_soon_as_a_hole_is_long_enough():
    """R3's 16 cells join the holes on both sides: 8 + 16 + 8. Catches: one that waits for ever, or holes that do not join."""
    moments = story("f2,a12,f3")
    assert moments[-1].reserved.entered == (4,) and moments[-1].reserved.holds(4).span == (16, 12)
    assert (moments[-1].reserved.free, moments[-1].reserved.longest) == (48 - 16 - 12, 20)
    assert moments[-1].reserved.holds(4).written == 4 and not moments[-1].reserved.waiting


def test_pages_that_run_out_push_the_youngest_out_and_lose_nothing():
    """Two requests of 8 in 8 cells: at 4 and 4 all is written; the younger goes, returns when the older has finished, with what it
    had. Catches: a request that deadlocks, loses tokens, or is pushed out where memory was reserved."""
    two = (Request(1, 8, 3), Request(2, 8, 3))
    moments = tell(8, 2, two, parse("g,g,f1,g", 8))
    assert [m.paged.pushed for m in moments] == [(), (), (2,), (), ()]
    assert [(h.number, h.written) for h in moments[2].paged.held] == [(1, 5)] and moments[2].paged.waiting == ((2, 4),)
    assert [(h.number, h.written) for h in moments[3].paged.held] == [(2, 4)] and moments[3].paged.entered == (2,)
    assert moments[4].paged.holds(2).written == 5
    assert not any(m.reserved.pushed for m in moments) and moments[0].reserved.waiting == ((2, 8),)


def test_requests_that_end_by_themselves_do():
    """Catches: one that writes past its own length, and a successor that has to wait for the next event."""
    moments = tell(8, 2, (Request(1, 8, 2, 3), Request(2, 8, 2, 4)), parse("g,g,g", 8))
    assert [m.reserved.left for m in moments] == [(), (1,), (), (2,)] and moments[1].reserved.entered == (2,)
    assert [m.paged.left for m in moments] == [(), (1,), (2,), ()]


def test_nothing_is_written_past_the_maximum():
    last = story("g99")[-1]
    assert [(h.number, h.written) for h in last.reserved.held] == [(1, 16), (2, 8), (3, 16)] == [(h.number, h.written) for h in last.paged.held]
    assert last.reserved.fill.utilisation == last.paged.fill.utilisation == 1


@pytest.mark.parametrize(
    ("wrong", "part"), [("x3", "x3"), ("g,f", "f"), ("a49", "a49"), ("a0", "a0"), ("a12.13", "a12.13"), ("a12.0", "a12.0"), ("g0", "g0"), ("g;f2", "g;f2"), ("g" + ",g" * 99, "100×")]
)  # fmt: skip
def test_what_is_no_event_is_named(wrong, part):
    """Catches: a link whose mistake is dropped in silence, and one that is told for minutes."""
    with pytest.raises(BadInput) as error:
        parse(wrong, 48)
    assert repr(part) in error.value.message("en") and part in error.value.message("zh")


def test_a_request_longer_than_the_memory_is_refused():
    with pytest.raises(BadInput, match="1 to 8 cells"):
        tell(8, 2, (Request(1, 9, 1),), ())


EVENTS = st.lists(
    st.one_of(
        st.builds(lambda n: Event("generate", n), st.integers(1, 5)),
        st.builds(lambda n: Event("finish", n), st.integers(1, 12)),
        st.integers(1, 32).flatmap(lambda n: st.builds(lambda p: Event("arrive", n, p), st.integers(1, n))),
    ),
    max_size=24,
)


@given(EVENTS)
def test_a_story_survives_its_address(events):
    """Catches: a copied link that tells another story."""
    assert parse(text(events), 32) == tuple(events)
    assert text(parse(text(events).upper().replace(",", " , "), 32)) == text(events)


@settings(max_examples=150, deadline=None)
@given(EVENTS, st.integers(1, 9))
def test_every_story_keeps_the_books(events, block):
    """Each moment is drawn into a bare list of cells, from what the pictures are drawn from. Catches: a cell with two owners, figures
    that are not those of the cells, a request that is lost, one that waits although it fits, and a past that depends on the future."""
    moments = tell(32, block, (), events)
    maxima: dict[int, int] = {}
    for moment in moments:
        if moment.event is not None and moment.event.kind == "arrive":
            maxima[len(maxima) + 1] = moment.event.n
        for side in (moment.reserved, moment.paged):
            owner, written = [None] * 32, 0
            for held in side.held:
                cells = range(held.span[0], sum(held.span)) if held.span else [b * block + i for b in held.blocks for i in range(block)]
                assert held.written <= min(len(cells), maxima[held.number])
                assert not held.blocks or len(held.blocks) == -(-held.written // block), "no block without a token"
                for cell in cells:
                    assert owner[cell] is None
                    owner[cell] = held.number
                written += held.written
            free = owner.count(None)
            assert (side.fill.written, side.fill.taken, side.free) == (written, 32 - free, free)
            waiting = {number for number, _ in side.waiting}
            assert waiting.isdisjoint(held.number for held in side.held)
            if side is moment.reserved:
                runs = "".join("." if o is None else "#" for o in owner).split("#")
                assert side.longest == max(map(len, runs)) and all(wanted > side.longest for _, wanted in side.waiting)
                assert side.external == (free if any(maxima[n] <= free for n in waiting) else 0)
            else:
                assert side.external == 0
    gone = {"reserved": set(), "paged": set()}
    for moment in moments:
        for name, there in gone.items():
            side = getattr(moment, name)
            there |= set(side.left)
    for name, there in gone.items():
        last = getattr(moments[-1], name)
        assert there | {h.number for h in last.held} | {n for n, _ in last.waiting} == set(maxima)
    assert tell(32, block, (), events[: len(events) // 2]) == moments[: len(events) // 2 + 1]
