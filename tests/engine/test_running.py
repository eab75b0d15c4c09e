"""The engine with a thread of its own: shared by many, cancelled at any moment, broken and whole again."""

import random
import subprocess
import sys
import threading
import time

import pytest

from compute.engine import running as module
from compute.engine.engine import Ask
from compute.engine.generate import generate
from compute.engine.registry import ROOT
from compute.engine.running import Pace, Running, running
from compute.errors import BadInput, Busy, Internal, Unavailable, UnknownName
from compute.sampling import GREEDY, Sampling
from compute.trace import Step, from_json

from . import tiny
from .running import Ear, empty, held, until

PROMPT = tuple(tiny.ids(9)[0].tolist())


@pytest.fixture
def engine(model):
    """engine(**settings) → Running on the tiny model; all are closed at the end."""
    made = []

    def make(model=model, **settings) -> Running:
        made.append(Running(model, **({"block_size": 4} | settings)))
        return made[-1]

    yield make
    for one in made:
        one.close(Unavailable("unavailable", reason="the test is over", reason_zh="测试结束"))


# ---- sharing


def test_texts_of_many_threads_are_those_of_generate(model, engine):
    """Twelve threads, three slots. Catches: pieces that reach another's ear, a seed that goes with the slot."""
    one, ears = engine(slots=3), {}

    def ask(seed):
        ears[seed] = Ear()
        one.submit(Ask(PROMPT, 12, Sampling(1.1, top_p=0.9) if seed % 2 else GREEDY, seed, ignore_end=True), ears[seed])

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, ear in ears.items():
        rule = Sampling(1.1, top_p=0.9) if seed % 2 else GREEDY
        assert ear.tokens() == [step.token for step in generate(model, PROMPT, 12, sampling=rule, seed=seed, ignore_end=True)]
    until(lambda: empty(one))


def test_two_models_at_once(made, engine):
    """Catches: state that two engines share."""
    ears, models = [], [made(case)[1] for case in ("llama, grouped heads, tied", "qwen3, query and key norms")]
    for one in map(engine, models):
        ears.append(Ear())
        one.submit(Ask(PROMPT, 16, Sampling(), 4, ignore_end=True), ears[-1])
    for model, ear in zip(models, ears):
        assert ear.tokens() == [step.token for step in generate(model, PROMPT, 16, sampling=Sampling(), seed=4, ignore_end=True)]


def test_an_engine_of_a_name_is_made_once(monkeypatch):
    """Catches: an engine for each caller, requests of two models with one number, and a name that nobody knows."""
    monkeypatch.setattr(module, "_runnings", {})
    found = []
    threads = [threading.Thread(target=lambda: found.append(running("mini-64"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(map(id, found))) == 1
    numbers = [one.submit(Ask((1, 2, 3), 1)).number for one in (running("mini-64"), running("mini-128"), running("mini-64"))]
    assert len(set(numbers)) == 3
    with pytest.raises(UnknownName, match="mini-1"):
        running("mini-1")
    module.close_all(Unavailable("unavailable", reason="the test is over", reason_zh="测试结束"))
    assert running("mini-64") is not found[0], "after all were closed there is a new one"


def test_what_cannot_run_is_refused_at_once(engine):
    """Catches: a complaint that only the engine's thread hears."""
    one = engine(blocks=4)
    for wrong in (Ask((), 3), Ask(PROMPT, 0), Ask(PROMPT, 200), Ask((999,), 3), Ask(PROMPT, 9), Ask(PROMPT[:2], 2, n=99)):
        with pytest.raises(BadInput):
            one.submit(wrong)
    assert not one._open


# ---- leaving


def test_a_cancelled_request_is_in_no_further_step(engine):
    """Counted in steps, while a neighbour goes on: the one in the making when `cancel` was called is the last.
    Catches: slots and blocks that a caller who left still holds."""
    one, other, gone = engine(slots=2), Ear(), Ear()
    other_request = one.submit(Ask(PROMPT, 110, ignore_end=True), other)
    request = one.submit(Ask(PROMPT[::-1], 110, ignore_end=True), gone)
    until(lambda: len(gone.heard) >= 5)
    one.cancel(request)
    making, heard = one.look()[0].next, len(gone.heard)
    other.tokens()
    _, steps, lives = one.look()
    (id,), (stays,) = ([sequence.id for sequence in each.ticket.sequences] for each in (request, other_request))
    with_it = [index for index, step in steps if id in [lane[1] for lane in step.lanes]]
    assert with_it and with_it[-1] <= making
    assert len([index for index, step in steps if stays in [lane[1] for lane in step.lanes]]) > len(with_it)
    assert len(gone.heard) <= heard + 1 and request.writings[0].finish == "cancelled" and lives[id].cancelled
    until(lambda: empty(one))


def test_blocks_are_free_when_the_next_step_begins(engine):
    """Nobody else is there, so that step has nothing to do but this. Catches: a sleeping engine that holds blocks."""
    one = engine()
    with held(one) as first:
        waiting = one.submit(Ask(PROMPT, 20))
        one.cancel(first)
        one.cancel(waiting)
        one.cancel(waiting)
    until(lambda: empty(one) and not one.look()[0].tables)
    assert one.look()[0].refs == (0,) * one.engine.pool.total


def test_ten_thousand_random_events_leave_nothing_behind(engine):
    """Few blocks and slots, so that there is waiting, preemption and sharing; several samples, equal prompts, stops, errors of
    listeners. Catches: any way in which a block, a slot or a record outlives its request."""
    one, draw, requests, refused = engine(slots=3, blocks=7, most_waiting=12), random.Random(7), [], 0

    def deaf(heard):
        raise RuntimeError("an ear that fails")

    prompts = [tuple(tiny.ids(n, seed=n % 3)[0].tolist()) for n in range(1, 15)]
    events = 0
    while events < 10_000:
        events += 1
        still = [request for request in requests[-20:] if not request.ended]
        if still and draw.random() < 0.5:
            one.cancel(draw.choice(still))
            continue
        rule, n = draw.choice((GREEDY, Sampling())), draw.choice((1, 1, 1, 2, 3))
        ask = Ask(draw.choice(prompts), draw.randint(1, 6), rule, draw.randint(0, 99), ("e",) if draw.random() < 0.2 else (), n)
        try:
            requests.append(one.submit(ask, *([deaf] if draw.random() < 0.01 else []), learner=draw.choice(("", "ann", "bob"))))
        except Busy:
            refused += 1
            until(lambda: one.engine.waiting < 9)
    until(lambda: empty(one))
    preempted = any(step.preempted for _, step in one.look()[1])
    finishes = {writing.finish for request in requests for writing in request.writings}
    assert finishes == {"stop", "length", "cancelled"} and refused and preempted, "not all of what was meant has happened"
    assert len(one.of("ann")) <= module.KEPT_TEXTS + 12 + 3 and len(one.engine.recorder.lives) <= 3 * (module.KEPT_STEPS + 100)  # at most one a slot and step


# ---- faults


def test_a_failing_step_ends_its_requests_and_nothing_else(engine, caplog):
    """Catches: a dead thread, half a pool that stays taken, a caller who waits for ever, numbers of sequences used twice, and a
    log without the cause."""
    one, good, lost, after = engine(slots=2), Ear(), [Ear() for _ in range(4)], Ear()
    one.submit(Ask(PROMPT, 5), good)
    good.tokens()
    until(lambda: empty(one))
    before, compute = one.look()[0], one.engine._compute

    def broken(*args):
        raise RuntimeError("not enough of something")

    with held(one):
        for ear in lost:
            one.submit(Ask(PROMPT, 50, n=2), ear)
        one.engine._compute = broken
    one.engine._compute = broken
    for ear in lost:
        assert ear.ended.wait(20)
        assert isinstance(ear.heard[-1], Internal) and ear.heard[-1].values["id"] in caplog.text
    assert "not enough of something" in caplog.text
    one.engine._compute = compute
    until(lambda: empty(one))
    request = one.submit(Ask(PROMPT, 5), after)
    assert after.tokens() == good.tokens()
    until(lambda: one.look()[0].next > before.next + 5)
    look, steps, lives = one.look()
    assert [index for index, _ in steps] == list(range(look.next))
    assert all(a.ended < b.ended for (_, a), (_, b) in zip(steps, steps[1:])), "the clock goes on"
    assert len(lives) == len(set(lives)) and request.ticket.sequences[0].id == max(lives)
    assert all(life.finished is not None for life in lives.values())


def test_a_listener_that_fails_ends_its_own_request_alone(engine, caplog):
    """Catches: one caller's mistake that takes the batch down."""
    one, other = engine(), Ear()

    def deaf(heard):
        raise RuntimeError("an ear that fails")

    with held(one):
        request = one.submit(Ask(PROMPT, 40), deaf)
        one.submit(Ask(PROMPT, 40, ignore_end=True), other)
    assert len(other.tokens()) == 40 and request.writings[0].finish == "cancelled" and "an ear that fails" in caplog.text
    until(lambda: empty(one))


def test_a_full_queue_says_when_to_come_back(engine):
    """Catches: an unbounded queue, and a time that has nothing to do with what is waiting."""
    one = engine(most_waiting=3)
    with held(one):
        one._pace.add(Step(1.0, 0.5, ((0, 0, "decode", 1, 10),), 0, 1, 0, (), ()))  # 20 tokens a second
        ears = [Ear() for _ in range(3)]
        for ear in ears:
            one.submit(Ask(PROMPT, 40, n=2, ignore_end=True), ear)
        with pytest.raises(Busy) as refused:
            one.submit(Ask(PROMPT, 1))
        assert refused.value.values == {"waiting": 3, "retry_after": 13.0}, "3 · 2 · 40 tokens and one more, at 20 a second"
        with pytest.raises(Busy):
            one.require_room(1)
    for ear in ears:
        ear.ended.wait(20)
    until(lambda: empty(one))
    one.require_room(3)


def test_closing_tells_everybody(engine):
    """Catches: callers who wait for an engine that is gone, and a thread that stays."""
    one, ears = engine(slots=1), [Ear() for _ in range(3)]
    goes = Unavailable("unavailable", reason="it goes", reason_zh="要走了")
    with held(one):
        for ear in ears:
            one.submit(Ask(PROMPT, 90), ear)
        one.close(goes)
    assert all(ear.ended.wait(20) and ear.heard == [goes] for ear in ears)
    with pytest.raises(Unavailable, match="it goes"):
        one.submit(Ask(PROMPT, 1))
    until(lambda: empty(one))


def test_an_idle_engine_sleeps(engine):
    """Catches: a loop that looks for work all the time."""
    one, ear, asked = engine(), Ear(), []
    step = one.engine.step
    one.engine.step = lambda: asked.append(1) or step()
    one.submit(Ask(PROMPT, 3, ignore_end=True), ear)
    ear.tokens()
    until(lambda: empty(one))
    time.sleep(0.05)
    assert len(asked) == 3


# ---- what is seen


def test_looks_follow_each_other_without_a_gap(engine, monkeypatch):
    """Catches: a step that is shown twice or never, an endless record, and a sequence without its life."""
    monkeypatch.setattr(module, "KEPT_STEPS", 20)
    one, ear, since, seen, latest = engine(slots=2), Ear(3 * 2), 0, [], 0
    for seed in range(3):
        one.submit(Ask(PROMPT, 100, Sampling(), seed, n=2, ignore_end=True), ear)
    while not ear.ended.is_set():
        look, steps, lives = one.look(since)
        assert look.next >= latest and all(lane[1] in lives for _, step in steps for lane in step.lanes)
        assert all(id in lives for id, *_ in look.tables + look.queue)
        seen += [index for index, _ in steps]
        since = latest = look.next
        time.sleep(0.002)
    look, steps, _ = one.look(since)
    seen += [index for index, _ in steps]
    assert seen == list(range(seen[0], look.next)) and seen[0] == 0, "somebody who looks often misses nothing"
    assert 20 <= len(one.look()[1]) <= 120 and look.first > 0 and one.look(10**6)[1] == []
    trace = one.trace()
    assert from_json(trace.to_json()) == trace and trace.first == look.first and len(trace.sequences) <= 6
    monkeypatch.setattr(module, "TRACE_STEPS", 7)
    assert one.trace().steps == trace.steps[-7:] and one.trace().first == look.next - 7


def test_a_request_knows_how_it_went(model, engine):
    """Catches: times of another clock, a text that is not what was heard, tokens of the prefix cache that nobody counts."""
    one, ear, again = engine(), Ear(2), Ear()
    request = one.submit(Ask(PROMPT, 8, Sampling(), 3, n=2, ignore_end=True), ear, learner="ann", prompt="words")
    ear.tokens()
    second = one.submit(Ask(PROMPT, 2), again)
    again.tokens()
    for index, writing in enumerate(request.writings):
        assert writing.text == model.tokenizer.decode(ear.tokens(index)) and writing.tokens == 8 and writing.finish == "length"
        assert request.sent <= writing.first < writing.ended <= one.engine.now()
    assert (request.hits, second.hits) == (0, 8), "two blocks of four of the nine prompt tokens"
    assert one.of("ann") == [request] and one.of("bob") == one.of("") == []


def test_pace_is_of_the_last_seconds_of_work():
    """By hand. Catches: a mean over all time, or over idle time."""
    pace = Pace()
    assert pace.per_second == 0

    def step(took, written):
        return Step(0.0, took, ((0, 0, "decode", 1, written), (1, 1, "prefill", 50, 0)), 0, 2, 0, (), ())

    for _ in range(10):
        pace.add(step(0.5, 100))
    assert pace.per_second == pytest.approx(200)
    for _ in range(4):
        pace.add(step(0.5, 1))
    assert pace.per_second == pytest.approx(2) and len(pace._steps) == 4


def test_a_process_ends_quietly_in_the_middle_of_a_step():
    """Catches a process, of whatever kind, that ends while a thread of its own is inside torch, which aborts it."""
    code = """
from compute.engine.engine import Ask
from compute.engine.running import running
engine = running("mini-64")
for _ in range(8):
    engine.submit(Ask(tuple(range(100, 900)), 100, ignore_end=True))
while not engine._look.tables:
    pass
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
