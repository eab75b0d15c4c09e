"""Attention over block tables against the contiguous cache and against computing every text anew."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from compute.engine import decoding
from compute.engine.model import KVCache, forward, hidden_states, logits, packed
from compute.engine.paged import PagedCache, Part, Step, neighbours
from compute.paging import Copy

from . import tiny

STALE = 1e3  # what free blocks hold: nothing of it may ever be seen


@dataclass
class Text:
    """ids: the whole text; blocks: where it will lie; read: tokens that went through the model."""

    ids: list[int]
    blocks: tuple[int, ...]
    read: int = 0
    states: list[torch.Tensor] = field(default_factory=list)


def stale(model, blocks, block_size):
    cache = PagedCache(model.weights, blocks, block_size)
    cache.data.fill_(STALE)
    return cache


def texts_in(cache, lengths, random):
    """Random texts; their blocks are drawn from all over the cache, in no order."""
    size, free = cache.block_size, random.permutation(cache.blocks).tolist()
    return [Text(random.integers(1, 300, n).tolist(), tuple(free.pop() for _ in range(-(-n // size)))) for n in lengths]


def read(model, cache, taken):
    """One forward over (text, tokens) pairs; every text keeps its own states."""
    parts = [Part(text.blocks[: -(-(text.read + n) // cache.block_size)], text.read, n) for text, n in taken]
    fed = [token for text, n in taken for token in text.ids[text.read : text.read + n]]
    step = Step(cache, parts)
    states = hidden_states(model.weights, torch.tensor([fed]), step, step.positions)[0]
    for (text, n), mine in zip(taken, states.split([n for _, n in taken])):
        text.read += n
        text.states.append(mine)


def anew(model, ids):
    return hidden_states(model.weights, torch.tensor([ids]), None, torch.arange(len(ids))[None])[0]


def agree(model, texts):
    for text in texts:
        assert tiny.far_apart(torch.cat(text.states), anew(model, text.ids[: text.read])) < 2e-5


@pytest.mark.parametrize("case,block_size", [*((case, 5) for case in tiny.CASES), *((next(iter(tiny.CASES)), size) for size in (1, 16))])
def test_any_mixture_of_parts_equals_computing_anew(made, case, block_size):
    """Catches: a wrong block or cell, a mask that lets a look past the end or at a neighbour, heads grouped the wrong way, on
    every architecture. Prompts in pieces of any length, decoding and guesses come in one forward, in any order."""
    model, random = made(case)[1], np.random.default_rng(block_size)
    cache = stale(model, 200 // block_size + 8, block_size)
    texts = texts_in(cache, [40, 33, 7, 21, 16], random)
    while left := [text for text in texts if text.read < len(text.ids)]:
        some = [left[i] for i in random.permutation(len(left))[: random.integers(1, len(left) + 1)]]
        read(model, cache, [(text, min(int(random.choice([1, 1, 1, 3, 3, 12])), len(text.ids) - text.read)) for text in some])
    agree(model, texts)


@pytest.mark.parametrize("block_size", [1, 4, 64])
def test_decoding_equals_the_contiguous_cache(model, block_size):
    """Catches: what a comparison with recomputing alone would put down to rounding; the same forward by the other cache."""
    cache, random = stale(model, 128 // block_size, block_size), np.random.default_rng(0)
    text = texts_in(cache, [50], random)[0]
    plain = KVCache(model.weights, 1, 50)
    for n in (9, *[1] * 30, 11):
        expected = hidden_states(model.weights, torch.tensor([text.ids[text.read : text.read + n]]), plain, torch.arange(text.read, text.read + n)[None])[0]
        read(model, cache, [(text, n)])
        assert tiny.far_apart(text.states[-1], expected) < 5e-6


def test_blocks_in_their_natural_order_and_out_of_it(model):
    """Catches: a short cut for blocks that follow each other which takes others for such: 3, 4, 5 against 5, 4, 3 and 3, 5, 4."""
    random = np.random.default_rng(2)
    ids = random.integers(1, 300, 12).tolist()
    for blocks in ((3, 4, 5), (5, 4, 3), (3, 5, 4), (0, 1, 2), (7, 0, 1)):
        cache = stale(model, 8, 4)
        text = Text(ids, blocks)
        for n in (5, 1, 1, 1, 1, 1, 2):
            read(model, cache, [(text, n)])
        agree(model, [text])


def test_rejected_guesses_leave_nothing(model):
    """Catches: attention beyond the position it stands at. Wrong tokens are read at positions that the right ones take later."""
    cache, random = stale(model, 30, 4), np.random.default_rng(3)
    texts = texts_in(cache, [30, 25], random)
    read(model, cache, [(text, 9) for text in texts])
    for _ in range(4):
        for text in texts:  # the right token and three wrong ones
            wrong = Text(text.ids[: text.read + 1] + [7, 8, 9], text.blocks, text.read)
            read(model, cache, [(wrong, 4)])
        read(model, cache, [(text, 2) for text in texts])
    agree(model, texts)


def test_a_copied_block_is_a_copy(model):
    """Catches: copy-on-write that shares, or copies some layers or only keys."""
    cache, random = stale(model, 20, 4), np.random.default_rng(4)
    first = texts_in(cache, [12], random)[0]
    read(model, cache, [(first, 6)])
    free = [b for b in range(20) if b not in first.blocks]
    second = Text(first.ids[:6] + random.integers(1, 300, 6).tolist(), (first.blocks[0], *free[:2]), 6, list(first.states))
    cache.copy([Copy(first.blocks[1], free[0])])
    read(model, cache, [(first, 6), (second, 6)])
    agree(model, [first, second])


def test_what_was_taken_out_comes_back_elsewhere(model):
    """Catches: swap that loses a layer, keys or values, or the order of blocks."""
    cache, random = stale(model, 20, 4), np.random.default_rng(5)
    text = texts_in(cache, [20], random)[0]
    read(model, cache, [(text, 11)])
    held = cache.take_out(text.blocks[:3])
    cache.data.fill_(-STALE)
    text.blocks = tuple(b for b in range(20) if b not in text.blocks)[:5]
    cache.put_back(text.blocks[:3], held)
    read(model, cache, [(text, 9)])
    agree(model, [text])


def test_who_is_looked_at_together():
    """Catches: a prompt's long piece joined with others, which would make all as long as the longest."""
    lengths = [1, 1, 1, 3, 3, 1, 40, 40, 2]
    ranges = neighbours([Part((0,), 0, n) for n in lengths])
    assert [lengths[a:b] for a, b in ranges] == [[1, 1, 1], [3, 3], [1], [40], [40], [2]]


def test_memory_of_the_cache(model):
    """Catches: bytes of a block that leave out a layer or count keys alone. 3 layers × 2 × 4 positions × 2 heads × 16 × 4 B."""
    assert PagedCache(model.weights, 3, 4).block_bytes == 3 * 2 * 4 * 2 * 16 * 4


# ---- one token for each text, with everything laid out beforehand


KNOWN = [case for case in tiny.CASES if not case.startswith(("qwen3", "mixtral"))]


def test_who_decodes_that_way(made):
    """Catches: query and key norms, or experts, left out in silence."""
    for case in tiny.CASES:
        weights = decoding.prepared(made(case)[1].weights)
        assert (decoding.decoder(weights, PagedCache(weights, 1, 16)) is not None) == (case in KNOWN)


@pytest.mark.parametrize("case", tiny.CASES)
def test_prepared_weights_are_the_same_model(made, case):
    """Catches: a matrix in the wrong order, a bias lost, or the output matrix forgotten."""
    weights, ids = made(case)[1].weights, tiny.ids(20)
    plain, other = (forward(w, ids, None, torch.arange(20)[None]) for w in (weights, decoding.prepared(weights)))
    assert tiny.far_apart(other, plain) < 1e-5


@pytest.mark.parametrize("case,block_size", [*((case, 5) for case in KNOWN), *((KNOWN[0], size) for size in (1, 16, 32))])
def test_decoding_in_any_company_equals_computing_anew(made, case, block_size):
    """Catches: keys and values that were laid out for another text, or before a break in which the text went on elsewhere; a
    mask that stays open for a shorter text in the same row; buffers of another size taken up again too late."""
    model, random = made(case)[1], np.random.default_rng(block_size)
    weights, cache = decoding.prepared(model.weights), stale(model, 350 // block_size + 16, block_size)
    decoder = decoding.decoder(weights, cache)
    texts, company = texts_in(cache, [64, 55, 47, 36, 30, 18], random), []
    for text in texts:
        text.blocks = list(text.blocks)
    read(model, cache, [(text, int(random.integers(1, 9))) for text in texts])
    while left := [text for text in texts if text.read < len(text.ids)]:
        if not company or random.random() < 0.15 or any(text.read == len(text.ids) for text in company):
            company = [left[i] for i in random.permutation(len(left))[: random.integers(1, len(left) + 1)]]
        if random.random() < 0.1:  # some go on another way for a step
            read(model, cache, [(text, 1) for text in company[: random.integers(1, len(company) + 1)]])
            continue
        if random.random() < 0.1:  # one moves, as after a swap
            text = company[0]
            held, others = cache.take_out(text.blocks), [b for b in range(cache.blocks) if not any(b in other.blocks for other in texts)]
            text.blocks = [int(b) for b in random.permutation(others)[: len(text.blocks)]]
            cache.put_back(text.blocks, held)
        found = decoder.logits([text.ids[text.read] for text in company], [Part(text.blocks, text.read, 1) for text in company]).clone()
        for text, row in zip(company, found):
            text.read += 1
            expected = logits(model.weights, anew(model, text.ids[: text.read])[-1:])
            assert tiny.far_apart(row, expected[0]) < 3e-5
    assert len(decoder._batches) <= decoding.KEPT


def test_large_matrices_stay_as_they_are(model):
    """Catches: a second copy of a large model's matrices, and a decoder that knows only small ones; packed ones too."""
    whole = packed(model.weights)
    cache, random = stale(model, 40, 4), np.random.default_rng(7)
    texts = texts_in(cache, [12, 15, 9, 20, 11], random)
    read(model, cache, [(text, 8) for text in texts])
    found = decoding.decoder(whole, cache).logits([text.ids[8] for text in texts], [Part(text.blocks, 8, 1) for text in texts])
    for text, row in zip(texts, found):
        assert tiny.far_apart(row, logits(model.weights, anew(model, text.ids[:9])[-1:])[0]) < 3e-5


def test_what_would_take_too_much_memory_goes_the_general_way(model, monkeypatch):
    """Catches: a long text beside short ones, for which all are laid out as long as it."""
    monkeypatch.setattr(decoding, "HELD", 2 * 32 * 3 * 4 * 16)  # two texts of 32 positions: 3 layers, 4 heads of 16
    cache, random = stale(model, 60, 4), np.random.default_rng(8)
    texts = texts_in(cache, [40, 30, 12], random)
    read(model, cache, [(text, n) for text, n in zip(texts, (32, 10, 8))])
    decoder = decoding.decoder(model.weights, cache)
    ask = lambda *some: decoder.logits([text.ids[text.read] for text in some], [Part(text.blocks, text.read, 1) for text in some])  # noqa: E731
    assert ask(texts[1], texts[2]) is not None and ask(texts[0], texts[1]) is None and ask(texts[0]) is not None


def test_another_text_at_the_next_position(model):
    """Catches: one text taken for another because it stands where that one would stand next."""
    cache, random = stale(model, 20, 4), np.random.default_rng(6)
    weights = decoding.prepared(model.weights)
    decoder = decoding.decoder(weights, cache)
    first, second = texts_in(cache, [20, 20], random)
    read(model, cache, [(first, 6), (second, 7)])
    for text in (first, second, first, second, first):
        [row] = decoder.logits([text.ids[text.read]], [Part(text.blocks, text.read, 1)]).clone()
        text.read += 1
        assert tiny.far_apart(row, logits(model.weights, anew(model, text.ids[: text.read])[-1:])[0]) < 3e-5
