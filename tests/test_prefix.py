"""The prefix tree against a plain set of texts, after every event of random traces; visits against the longest common prefix."""

import random

import pytest

from compute.batching import Scheduler
from compute.errors import BadInput
from compute.paging import BlockPool, Table
from compute.prefix import Visit, tree, visits


def texts_of(nodes, before=()):
    """Every text that ends with a block of the tree, and that block."""
    found = {}
    for node in nodes:
        size = len(node.tokens) // len(node.blocks)
        assert node.start == len(before)
        for at, held in enumerate(node.blocks, 1):
            found[before + node.tokens[: at * size]] = held
        found |= texts_of(node.children, before + node.tokens)
    return found


def cached_texts(pool):
    """The same by following each cached block to its root."""

    def text(chain):
        return text(pool.cached[chain].parent) + pool.cached[chain].tokens if chain else ()

    return {text(chain): cached.block for chain, cached in pool.cached.items()}


def check(pool, tables):
    nodes = tree(pool)
    held = texts_of(nodes)
    assert {text: h.block for text, h in held.items()} == cached_texts(pool)
    for h in held.values():
        assert h.refs == sum(h.block in table.blocks for table in tables) and (h.rank is None) == (h.refs > 0)
    assert sorted(h.rank for h in held.values() if h.rank is not None) == list(range(len(pool.idle)))
    for text, h in held.items():
        if len(text) > pool.block_size:
            above = held[text[: -pool.block_size]]
            assert above.refs >= h.refs, "who uses a block uses all before it"
            assert above.rank is None or h.rank < above.rank, "leaves go first"
    for root in nodes:
        for node in root.walk():
            assert len(node.children) != 1, "a chain is one edge"
            firsts = [child.tokens[: pool.block_size] for child in node.children]
            assert len(set(firsts)) == len(firsts)


@pytest.mark.parametrize("seed", range(6))
def test_the_tree_is_the_cached_texts(seed):
    """400 arrivals, continuations and departures in a small pool, with texts that share beginnings. Catches: an orphan whose
    parent was evicted, an edge that is not merged or merged across a branch, ranks that let a parent go before its leaf, a
    block in use that was handed out."""
    rnd = random.Random(seed)
    pool, running = BlockPool(rnd.choice((9, 16, 30)), rnd.choice((1, 2, 4)), caching=True), []
    for _ in range(400):
        used = {text for text, h in texts_of(tree(pool)).items() if h.refs}
        kind = rnd.random()
        if kind < 0.45:
            ids, table = [rnd.choice((1, 1, 1, 2)) for _ in range(rnd.randint(1, 14))], Table()
            pool.adopt(table, ids)
            if pool.missing(table, len(ids) - table.written) <= pool.free:
                pool.extend(table, len(ids) - table.written)
                pool.seal(table, ids)
                running.append((ids, table))
            else:
                pool.release(table)
        elif running and kind < 0.75:
            ids, table = rnd.choice(running)
            if pool.missing(table, 1) <= pool.free:
                pool.extend(table, 1)
                ids.append(rnd.choice((1, 2)))
                pool.seal(table, ids)
        elif running:
            pool.release(running.pop(rnd.randrange(len(running)))[1])
            used = set()
        check(pool, [table for _, table in running])
        assert used <= set(cached_texts(pool)), "what was in use is still there"
    assert pool.evicted > 20


def test_a_small_tree_by_hand():
    """Two texts that part after their first block. Catches: a split that loses a block, ranks from the wrong end."""
    pool, one, two = BlockPool(8, 2, caching=True), Table(), Table()
    for table, ids in ((one, [1, 2, 3, 4, 5]), (two, [1, 2, 6, 7])):
        pool.adopt(table, ids)
        pool.extend(table, len(ids) - table.written)
        pool.seal(table, ids)
        if table is one:
            (root,) = tree(pool)
            assert root.tokens == (1, 2, 3, 4) and [h.block for h in root.blocks] == [0, 1] and not root.children
    (root,) = tree(pool)
    assert root.tokens == (1, 2) and [h.refs for h in root.blocks] == [2]
    assert [(node.tokens, node.start, node.blocks[0].refs) for node in root.children] == [((3, 4), 2, 1), ((6, 7), 2, 1)]
    pool.release(two)
    pool.release(one)
    ranks = {node.tokens: node.blocks[0].rank for node in tree(pool)[0].walk()}
    assert ranks == {(6, 7): 0, (3, 4): 1, (1, 2): 2}


def talk(seed, n=12):
    """Visits of a few speakers, some of whom come back with all that was said."""
    rnd = random.Random(seed)
    head, past, coming = [rnd.randrange(50) for _ in range(11)], {}, []
    for number in range(n):
        speaker = rnd.randrange(5)
        prompt = past.get(speaker, head) + [rnd.randrange(50) for _ in range(rnd.randint(1, 9))]
        answer = [rnd.randrange(50) for _ in range(rnd.randint(1, 9))]
        past[speaker] = prompt + answer
        coming.append(Visit(speaker, tuple(prompt), tuple(answer), number * 5))
    return coming


@pytest.mark.parametrize("block", [1, 4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_hits_are_the_longest_common_beginning(seed, block):
    """With room for all, a visit finds the longest beginning, in whole blocks and without its last token, of anything written
    before. Catches: a hit on a block that is not full, a last token that is not computed, an answer that is not cached."""
    coming = talk(seed)
    events = visits(Scheduler(BlockPool(4000 // block, block, caching=True), 3), coming)
    written = {}
    for event in events:
        texts = {v: coming[v].prompt + coming[v].answer for v in range(len(coming))}
        for running in event.running:
            written[running.visit] = running.written
        if event.kind == "find":
            prompt, best = coming[event.visit].prompt, 0
            for v, length in written.items():
                common = next((i for i, (a, b) in enumerate(zip(prompt, texts[v][:length])) if a != b), min(len(prompt), length))
                best = max(best, min(common, len(prompt) - 1) // block * block)
            assert event.hits == best == len(event.found) * block
        if event.kind == "finish":
            written[event.visit] = len(texts[event.visit]) - 1  # the last token of an answer is never fed back
        if event.kind == "read":
            assert event.hits + event.read == len(coming[event.visit].prompt)
    assert sum(event.kind == "finish" for event in events) == len(coming) and not any(event.evicted for event in events)
    assert events[-1].used == 0 and sum(event.hits for event in events if event.kind == "find") > 0


@pytest.mark.parametrize("beyond", [0, 2, 9])
def test_with_little_memory_all_still_finish(beyond):
    """Catches: an eviction that is not told or told twice, a visit that waits for ever, blocks in use that do not add up."""
    coming = talk(1, 20)
    blocks = max(-(-len(visit.prompt + visit.answer) // 4) for visit in coming) + beyond
    pool = BlockPool(blocks, 4, caching=True)
    events = visits(Scheduler(pool, 3), coming)
    assert sorted(event.visit for event in events if event.kind == "finish") == list(range(20))
    assert sum(len(event.evicted) for event in events) == pool.evicted > 0
    for event in events:
        assert event.used + event.idle <= blocks
        assert event.used == len({block for running in event.running for block in running.blocks})
        assert event.idle == sum(h.rank is not None for h in texts_of(event.roots).values())
    generous = visits(Scheduler(BlockPool(500, 4, caching=True), 3), coming)
    assert sum(e.read for e in events) > sum(e.read for e in generous), "who lost blocks computes again"


def test_what_can_never_run_is_refused():
    """Catches: a loop without end for a prompt larger than the memory."""
    with pytest.raises(BadInput):
        visits(Scheduler(BlockPool(4, 4, caching=True), 2), [Visit(0, tuple(range(20)), (1,), 0)])
