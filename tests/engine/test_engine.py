"""Many texts at once against the same texts one by one."""

import random
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from compute.batching import POLICIES, Scheduler
from compute.engine.engine import Ask, Engine
from compute.engine.generate import generate
from compute.engine.model import forward
from compute.engine.speculate import Lookup, ModelDraft
from compute.errors import BadInput
from compute.paging import BlockPool
from compute.sampling import Sampling
from compute.simulate import Job, simulate
from compute.trace import from_json

from . import tiny
from .test_speculate import SHORT, exact, pair, small  # noqa: F401

VOCABULARY = 320


def one_by_one(model, ask):
    """The texts of a request, each alone, by the reference."""
    options = {"sampling": ask.sampling, "stop": ask.stop, "ignore_end": ask.ignore_end}
    return [[step.token for step in generate(model, ask.tokens, ask.max_new_tokens, seed=ask.seed + i, **options)] for i in range(ask.n)]


def asks(number, seed=0, longest=30, new=24, shared=0, **options):
    """Random requests that differ in everything; the first `shared` prompt tokens are the same."""
    draw = random.Random(seed)
    prefix = tuple(draw.choices(range(1, 300), k=shared))
    return [
        Ask(prefix + tuple(draw.choices(range(1, 300), k=draw.randint(1, longest))), draw.randint(1, new), seed=10 * i, ignore_end=True, **options)
        for i in range(number)
    ]  # fmt: skip


def empty(engine):
    """Nothing is left of anybody."""
    return not (engine.busy or engine.pool.used or engine.texts or engine._outside or engine._come or engine._gone) and (
        engine.scheduler._lanes == set(range(engine.scheduler.slots))
    )


def lives(engine):
    return list(engine.recorder.lives.values())


# ---- the same texts, whatever happens around them


@pytest.fixture(scope="module")
def expected(model):
    """Twelve requests, three of them sampled, and what the reference writes."""
    found = [replace(ask, sampling=Sampling(1.2, top_p=0.95)) if i % 4 == 3 else ask for i, ask in enumerate(asks(12, shared=9))]
    return found, [one_by_one(model, ask) for ask in found]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("block_size,preemption,caching,budget", [(1, "recompute", True, 11), (4, "swap", False, 5), (16, "recompute", True, 256), (4, "swap", True, 40)])
def test_every_text_is_what_it_is_alone(model, expected, policy, block_size, preemption, caching, budget):
    """Catches: anything that a neighbour, a policy, a block size, a lost block or a cached prefix could change in a text."""
    requests, texts = expected
    engine = Engine(model, slots=4, blocks=-(-80 // block_size), block_size=block_size, policy=policy, preemption=preemption, caching=caching, budget=budget)
    assert engine.run(requests) == texts
    assert empty(engine)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("policy", ["continuous", "prefill-first", "chunked"])
@pytest.mark.parametrize("caching", [True, False])
def test_preempted_texts_too(model, policy, preemption, caching):
    """Catches: positions that are not read again, blocks put back in the wrong place, a random generator begun anew. The pool
    holds one text and a half, so that it happens all the time."""
    requests = [replace(ask, sampling=Sampling(1.0)) if i % 2 else ask for i, ask in enumerate(asks(8, seed=1, longest=12, new=40))]
    engine = Engine(model, slots=4, blocks=26, block_size=2, policy=policy, preemption=preemption, caching=caching, budget=16)
    kept = []
    take_out = engine.cache.take_out
    engine.cache.take_out = lambda blocks: kept.append(blocks) or take_out(blocks)
    assert engine.run(requests) == [one_by_one(model, ask) for ask in requests]
    assert sum(life.preemptions for life in lives(engine)) >= 3
    assert bool(kept) == (preemption == "swap") and empty(engine)


@pytest.mark.parametrize("case", tiny.CASES)
def test_every_architecture(made, case):
    """Catches: a part of an architecture that only the plain way knows."""
    model = made(case)[1]
    requests = asks(6, seed=2)
    assert Engine(model, slots=3, blocks=20, block_size=8, budget=12).run(requests) == [one_by_one(model, ask) for ask in requests]


@pytest.mark.parametrize("name", ["mini-256", "mini-moe"])
def test_our_model(name, texts=("小明把苹果给了", "小明把苹果给了小王，", "从前有一座山，", "To open a file, ")):
    """Catches: what random models hide, which never agree with anything; and the way for one sequence alone."""
    from compute.engine import registry

    model = registry.shared().get(name)
    requests = [Ask(tuple(model.tokenizer.encode(text)), 20 + 9 * i) for i, text in enumerate(texts)]
    texts = [one_by_one(model, ask) for ask in requests]
    for slots in (1, 2, 8):
        assert Engine(model, slots=slots).run(requests) == texts


# ---- prefixes


def test_a_shared_prefix_is_computed_once(model):
    """Catches: a cache that is never hit, or hit without saving anything. Eight prompts of 40 equal tokens and a few more, in
    two slots: from the third on all but the first two find the prefix's ten blocks."""
    requests = asks(8, seed=3, longest=5, new=8, shared=40)
    engines = {caching: Engine(model, slots=2, blocks=60, block_size=4, caching=caching) for caching in (True, False)}
    texts = {caching: engine.run(requests) for caching, engine in engines.items()}
    read = {caching: sum(lane[3] for step in engine.recorder.steps for lane in step.lanes if lane[2] == "prefill") for caching, engine in engines.items()}
    assert texts[True] == texts[False] == [one_by_one(model, ask) for ask in requests]
    hits = [life.hits for life in lives(engines[True])]
    assert hits[2:] == [40] * 6 and read[False] - read[True] == sum(hits) >= 6 * 40
    assert read[False] == sum(len(ask.tokens) for ask in requests)


def test_a_cached_answer_can_be_gone_on_from(model):
    """Catches: blocks of written text cached under wrong tokens. A second turn begins with the whole first one."""
    engine = Engine(model, slots=1, blocks=40, block_size=4)
    first = Ask(tuple(range(5, 25)), 21, ignore_end=True)
    [[answer]] = engine.run([first])
    second = Ask((*first.tokens, *answer, 9, 9), 10, ignore_end=True)
    assert engine.run([second]) == [one_by_one(model, second)]
    assert lives(engine)[-1].hits == 40  # 20 + 21 tokens, of which the last was never read: ten whole blocks


# ---- several samples


@pytest.mark.parametrize("sampling", [Sampling(0.0), Sampling(1.1)])
@pytest.mark.parametrize("preemption,blocks", [("recompute", 60), ("recompute", 14), ("swap", 14)])
def test_n_samples_are_n_runs(model, sampling, preemption, blocks):
    """Catches: samples that share their random numbers, or write into each other's blocks; and that nothing is shared at all.
    Prompts end inside a block, so the first written token of all but one sample needs a copy. Where memory is short the prefix
    cache is off: equal greedy samples would find each other's blocks and need no more than one."""
    requests = [replace(ask, n=n, sampling=sampling) for ask, n in zip(asks(4, seed=4, longest=18, new=30), (3, 1, 4, 2))]
    engine = Engine(model, slots=4, blocks=blocks, block_size=4, preemption=preemption, caching=blocks == 60)
    copies = []
    copy = engine.cache.copy
    engine.cache.copy = lambda some: copies.extend(some) or copy(some)
    assert engine.run(requests) == [one_by_one(model, ask) for ask in requests]
    assert copies and empty(engine)
    if blocks == 14:
        assert sum(life.preemptions for life in lives(engine))
    else:
        assert len(copies) == sum(ask.n - 1 for ask in requests if len(ask.tokens) % 4 and ask.max_new_tokens > 1)


# ---- speculation in batches


@pytest.mark.parametrize("kind", ["lookup", "draft", "itself"])
@pytest.mark.parametrize("policy,preemption,blocks", [("chunked", "recompute", 200), ("continuous", "swap", 30), ("prefill-first", "recompute", 30)])
def test_guesses_change_no_greedy_text(pair, kind, policy, preemption, blocks):  # noqa: F811
    """Catches: rejected guesses that stay in the blocks or in the prefix cache, a bonus token from a neighbour's row, a draft
    that loses the thread when its text was preempted."""
    target, draft = pair
    guess = {"lookup": lambda: Lookup(VOCABULARY), "draft": lambda: ModelDraft(draft, 128), "itself": lambda: ModelDraft(target, 128)}[kind]
    requests = [replace(ask, n=1 + i % 2) for i, ask in enumerate(asks(6, seed=5, longest=12, new=30))]
    requests = [replace(ask, tokens=ask.tokens * 2) for ask in requests]  # something to look up
    engine = Engine(target, slots=4, blocks=blocks, block_size=2, policy=policy, preemption=preemption, ahead=3, guess=guess)
    assert engine.run(requests) == [one_by_one(target, ask) for ask in requests]
    assert empty(engine)
    written = [lane[4] for step in engine.recorder.steps for lane in step.lanes if lane[2] == "decode"]
    assert max(written) > 1 and (kind != "itself" or max(written) == 4)
    assert blocks == 200 or sum(life.preemptions for life in lives(engine))


@pytest.mark.parametrize("kind", ["lookup", "draft"])
def test_guesses_change_no_distribution(pair, kind):  # noqa: F811
    """Catches: p and q processed differently, a residual from a neighbour's row, random numbers shared by neighbours. Two
    speculated tokens against their exact joint distribution, 1,200 texts in eight slots; χ² at one in a million."""
    target, draft = (small(m) for m in pair)
    s = Sampling(1.3, top_k=5)
    engine = Engine(target, slots=8, block_size=4, ahead=2, guess=lambda: Lookup(6) if kind == "lookup" else ModelDraft(draft, 16))
    written = engine.run([Ask(tuple(SHORT), 3, sampling=s, seed=seed) for seed in range(1_200)])
    counts = np.zeros(36, dtype=np.int64)
    for [[_, b, c]] in written:
        counts[b * 6 + c] += 1
    p = exact(target, SHORT, s)
    assert not counts[p == 0].any()
    assert stats.chisquare(counts[p > 0], p[p > 0] * counts.sum()).pvalue > 1e-6
    assert sum(len(step.lanes) for step in engine.recorder.steps) < 3_600  # some guesses were right


# ---- ends, texts, probabilities


def heard(engine, ask):
    pieces = [[] for _ in range(ask.n)]
    engine.submit(ask, lambda piece: pieces[piece.index].append(piece))
    while engine.step():
        pass
    return pieces


@pytest.mark.parametrize("ahead", [0, 3])
def test_ends_as_the_reference(model, ahead):
    """Catches: an end token shown, a stop string missed where it spans tokens, text lost at the end, tokens told past it."""
    guess = (lambda: Lookup(VOCABULARY)) if ahead else None
    prompt = tuple(tiny.ids(8)[0].tolist())
    whole = "".join(step.text for step in generate(model, prompt, 40, ignore_end=True))
    third = list(generate(model, prompt, 3, ignore_end=True))[2].token
    ending = replace(model, weights=replace(model.weights, config=replace(model.config, stop_tokens=(third,))))
    for which, options in ((model, {"stop": (whole[9:12],)}), (model, {"stop": (whole[:1],)}), (ending, {}), (ending, {"ignore_end": True}), (model, {"ignore_end": True})):
        steps = list(generate(which, prompt, 40, **options))
        [pieces] = heard(Engine(which, slots=2, ahead=ahead, guess=guess), Ask(prompt, 40, **options))
        assert [piece.token for piece in pieces] == [step.token for step in steps]
        assert "".join(piece.text for piece in pieces) == "".join(step.text for step in steps)
        assert [piece.finish for piece in pieces] == [step.finish for step in steps]


@pytest.mark.parametrize("ahead", [0, 2])
def test_logprobs_are_the_models_own(model, ahead):
    """Catches: probabilities after temperature, of a neighbour's row, or unsorted; the third voice computes everything anew."""
    guess = (lambda: Lookup(VOCABULARY)) if ahead else None
    engine = Engine(model, slots=3, blocks=60, block_size=4, ahead=ahead, guess=guess)
    for ask in asks(2, seed=6):
        engine.submit(ask)  # neighbours
    ask = Ask((5, 6, 7, 5, 6), 12, sampling=Sampling(1.5), seed=3, ignore_end=True, logprobs=4)
    text = list(ask.tokens)
    for piece in heard(engine, ask)[0]:
        row = forward(model.weights, torch.tensor([text]), None, torch.arange(len(text))[None], last_only=True)[0, -1].log_softmax(0)
        assert piece.logprob == pytest.approx(float(row[piece.token]), abs=1e-4)
        assert [token for token, _ in piece.top] == row.argsort(descending=True)[:4].tolist()
        assert [value for _, value in piece.top] == pytest.approx([float(row[token]) for token, _ in piece.top], abs=1e-4)
        text.append(piece.token)
    assert all(piece.logprob is None and piece.top == () for piece in heard(engine, Ask((5,), 3))[0])


def test_logprobs_zero_means_the_chosen_one_alone(model):
    """Catches: 0 taken for none."""
    [pieces] = heard(Engine(model, slots=1), Ask((5,), 3, logprobs=0, ignore_end=True))
    assert all(piece.logprob < 0 and piece.top == () for piece in pieces)


@pytest.mark.parametrize(
    "ask, words",
    [(Ask((), 3), "empty"), (Ask((320,), 3), "320"), (Ask((1,), 0), "at least 1"), (Ask((1,) * 120, 9), "context"), (Ask((1,) * 60, 30), "80 positions"), (Ask((1,), 1, n=5), "1 and 4")],
)
def test_what_cannot_be_run_is_refused_at_once(model, ask, words):
    """Catches: a request that waits for ever, or is refused only in the middle of a step."""
    engine = Engine(model, slots=4, blocks=20, block_size=4)
    with pytest.raises(BadInput, match=words):
        engine.submit(ask)
    assert not engine.busy


def test_guesses_need_a_guesser(model):
    """Catches: silence where speculation was asked for."""
    with pytest.raises(BadInput, match="draft"):
        Engine(model, ahead=2)


# ---- leaving


@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_cancelled_at_any_time(model, after):
    """Catches: a slot or block that stays taken, a piece told after cancelling, neighbours that suffer."""
    requests = [replace(ask, n=1 + i % 2) for i, ask in enumerate(asks(6, seed=7))]
    engine, told = Engine(model, slots=3, blocks=40, block_size=2, budget=8, preemption="swap"), [[] for _ in requests]
    tickets = [engine.submit(ask, told[i].append) for i, ask in enumerate(requests)]
    for _ in range(after):
        engine.step()
    for i in (0, 3, 5):
        engine.cancel(tickets[i])
    before = [len(told[i]) for i in (0, 3, 5)]
    assert all(tickets[i].finished for i in (0, 3, 5))
    while engine.step():
        pass
    assert [len(told[i]) for i in (0, 3, 5)] == before and empty(engine)
    for i in (1, 2, 4):
        assert [[p.token for p in told[i] if p.index == j] for j in range(requests[i].n)] == one_by_one(model, requests[i])
        engine.cancel(tickets[i])  # harmless
    assert engine.step() is None and empty(engine)


def test_listeners_may_cancel_submit_and_fail(model):
    """Catches: a listener that tears a step in two: everybody else is told, and only the failing request ends."""
    requests = asks(4, seed=8, new=12)
    engine, told = Engine(model, slots=4), [[] for _ in range(5)]
    tickets = []

    def cancels(piece):
        told[0].append(piece)
        engine.cancel(tickets[0])

    def submits(piece):
        told[1].append(piece)
        if len(told[1]) == 2:
            engine.submit(requests[0], told[4].append)

    def fails(piece):
        told[2].append(piece)
        raise ConnectionError("gone")

    tickets += [engine.submit(ask, hear) for ask, hear in zip(requests, (cancels, submits, fails, told[3].append))]
    with pytest.raises(ConnectionError):
        while engine.step():
            pass
    while engine.step():
        pass
    assert [len(told[i]) for i in (0, 2)] == [1, 1] and empty(engine)
    for i, ask in ((1, requests[1]), (3, requests[3]), (4, requests[0])):
        assert [[piece.token for piece in told[i]]] == one_by_one(model, ask)


def test_ten_thousand_events_leave_nothing_behind(model):
    """Catches: a leak of slots, blocks, texts or records in any order of sending, cancelling and stepping; and counts that
    drift apart on the way."""
    model = small(model)
    draw = random.Random(0)
    for policy, preemption, ahead in (("chunked", "recompute", 0), ("continuous", "swap", 2), ("prefill-first", "recompute", 2), ("static", "swap", 0)):
        engine = Engine(model, slots=4, blocks=14, block_size=2, policy=policy, preemption=preemption, ahead=ahead, guess=(lambda: Lookup(6)) if ahead else None)
        tickets, done, most = [], [], 0
        for _ in range(2_500):
            match draw.choices(["submit", "cancel", "step"], [3, 2, 5])[0]:
                case "submit" if engine.waiting < 20:
                    ask = Ask(tuple(draw.choices(range(6), k=draw.randint(1, 8))), draw.randint(1, 10), n=draw.choice([1, 1, 1, 3]), seed=draw.randint(0, 9), sampling=Sampling(1.0))
                    tickets.append(engine.submit(ask, done.append))
                case "cancel" if tickets:
                    engine.cancel(draw.choice(tickets[-12:]))
                case _:
                    engine.step()
                    engine.recorder.trim(20)
                    most = max(most, len(engine.recorder.lives))
                    running = engine.scheduler.running
                    assert len(engine.texts) == len(running) + len(engine.scheduler.waiting)
                    assert sum(engine.pool.refs) == sum(len(s.table.blocks) for s in running)
        while engine.step():
            engine.recorder.trim(20)
        assert empty(engine) and all(ticket.finished for ticket in tickets) and done and most < 120
        assert len(engine.recorder.steps) == 20 and engine.recorder.first > 500


def test_sent_and_cancelled_from_several_threads(model):
    """Catches: a request lost or heard twice, an engine that makes a sender wait for a step, one that starves."""
    requests = asks(24, seed=9, new=10)
    engine, told, tickets = Engine(model, slots=4, budget=32), [[] for _ in requests], [None] * 24

    def send(mine):
        for i in mine:
            tickets[i] = engine.submit(requests[i], told[i].append)
            if i % 4 == 3:
                engine.cancel(tickets[i])

    threads = [threading.Thread(target=send, args=(range(first, 24, 3),)) for first in range(3)]
    for thread in threads:
        thread.start()
    while engine.busy or any(thread.is_alive() for thread in threads):
        engine.step()
    assert empty(engine) and all(ticket.finished for ticket in tickets)
    assert sorted(ticket.request for ticket in tickets) == list(range(24))
    for i, ask in enumerate(requests):
        if i % 4 != 3:
            assert [[piece.token for piece in told[i]]] == one_by_one(model, ask)


# ---- the record


def plans(trace):
    return [(step.lanes, step.waiting, step.running, step.used, step.preempted, step.finished) for step in trace.steps]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("preemption,blocks,caching", [("recompute", 30, False), ("swap", 30, False), ("recompute", 120, True), ("recompute", 34, True)])
def test_what_is_simulated_is_what_is_executed(model, policy, preemption, blocks, caching):
    """Catches: an engine that does something else than the simulator says: every step's lanes, tokens, preemptions and blocks.
    Several samples only without the cache, in which equal texts share blocks; the simulator's never are equal."""
    requests = [replace(ask, n=1 + (i % 3 == 2 and not caching)) for i, ask in enumerate(asks(12, seed=10, longest=14, new=24, shared=6))]
    engine = Engine(model, slots=4, blocks=blocks, block_size=2, policy=policy, budget=9, preemption=preemption, caching=caching)
    engine.run(requests)
    scheduler = Scheduler(BlockPool(blocks, 2, caching=caching), 4, policy, budget=9, preemption=preemption)
    simulated = simulate(scheduler, [Job(ask.tokens, ask.max_new_tokens, samples=ask.n) for ask in requests])
    executed = engine.recorder.trace()
    assert plans(executed) == plans(simulated)
    assert [(life.prompt, life.written, life.hits, life.preemptions) for life in executed.sequences] == [
        (life.prompt, life.written, life.hits, life.preemptions) for life in simulated.sequences
    ]
    assert blocks == 120 or policy == "static" or any(step.preempted for step in executed.steps)
    assert from_json(executed.to_json()) == executed


def test_times_of_a_record(model):
    """Catches: an arrival dated by the step that let it in; steps that overlap. The clock counts its own readings."""
    ticks = iter(range(10**6))
    engine = Engine(model, slots=1, clock=lambda: float(next(ticks)))
    tickets = [engine.submit(Ask((5, 6), 2, ignore_end=True)) for _ in range(2)]
    engine.step()
    engine.cancel(tickets[0])
    while engine.step():
        pass
    first, second = lives(engine)
    assert first.cancelled and first.written == 1 and first.finished < second.admitted and not second.cancelled
    assert (first.arrived, second.arrived) == (1, 2)
    assert second.arrived < first.first < second.admitted < second.first < second.finished
    steps = engine.recorder.steps
    assert all(a.ended <= b.ended - b.took for a, b in zip(steps, steps[1:]))
    assert engine.recorder.trace().latencies() == [second.finished - second.arrived]


def test_a_trimmed_record_keeps_who_was_there(model):
    """Catches: a record without the sequences that its steps speak of, or one that grows for ever."""
    engine = Engine(model, slots=2)
    engine.run(asks(10, seed=11, new=8))
    whole = engine.recorder.trace()
    engine.recorder.trim(6)
    kept = engine.recorder.trace()
    assert kept.steps == whole.steps[-6:] and kept.first == len(whole.steps) - 6
    spoken = {lane[1] for step in kept.steps for lane in step.lanes}
    assert spoken == {life.id for life in kept.sequences} < {life.id for life in whole.sequences}
    assert from_json(kept.to_json()) == kept
    engine.recorder.trim(0)
    assert engine.recorder.trace().steps == () == engine.recorder.trace().sequences and engine.recorder.first == len(whole.steps)
