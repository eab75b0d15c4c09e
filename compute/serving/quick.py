"""A clock of compute/calibrated.py for one step at a time: the same seconds in a few microseconds instead of hundreds.

The clock is written for arrays. What it says of weights, norms and sums across cards depends on nothing but numbers of tokens, so
it is asked for those once, without caches and states. Only attention, which grows with contexts, is written down again, and a
test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import inf

import numpy as np

from compute.calibrated import Clock, both
from compute.serving.requests import Floats
from compute.shapes import Cache

MANY = 2**40  # the clock grows in proportion to what is asked so many times
FIRST = 4096  # tokens of a step for which a clock is asked beforehand; for others, when they come


class Table(dict[int, float]):
    """Values of a function of whole numbers, from zero on."""

    def __init__(self, values: Callable[[Floats], Floats]):
        found = np.broadcast_to(values(np.arange(FIRST)), FIRST)
        super().__init__(enumerate(found.tolist()))
        self.values_at = values

    def __missing__(self, number: int) -> float:
        self[number] = float(self.values_at(np.array([number]))[0])
        return self[number]


@lru_cache(16)
def quick(clock: Clock) -> Calibrated | Ideal:
    return Calibrated(clock) if clock.rates else Ideal(clock)


class Calibrated:
    """Amounts of compute/serving/crowd.py at the price of a clock that adds up one kernel after the other."""

    def __init__(self, clock: Clock):
        self.clock, self.windows = clock, _windows(clock)
        every, rest = _bare(clock), _bare(clock, "lm_head")
        self.body, self.head = Table(lambda tokens: rest.step(prefilled=tokens)), Table(lambda rows: every.step(prompts=rows) - rest.step(prompts=rows))
        none = {window: (0, 0, 0.0, 0) for window in self.windows}
        self.alone = Table(lambda n: clock.step(n, 0, within=none))
        grows = lambda **amount: float(clock.step(1, **{"cells": 0, "within": none, **amount}) - self.alone[1]) / MANY  # noqa: E731
        self.slope = grows(cells=MANY)
        self.slopes = [grows(within=none | {window: (MANY, 0, 0.0, 0)}) for window in self.windows]
        self.state = grows(states_moved=2 + MANY)

    def decode(self, decoding: int, cells: int, in_windows: list[int]) -> float:
        seconds = self.alone[decoding] + self.slope * cells
        for slope, seen in zip(self.slopes, in_windows):
            seconds += slope * seen
        return seconds

    def mixed(self, decoding: int, cells: int, in_windows: list[int], chunks: list[tuple[int, int, bool]]) -> float:
        seconds = self.decode(decoding, cells, in_windows) if decoding else 0.0
        if not chunks:
            return seconds
        clock, (read, rows, states) = self.clock, _sums(chunks)
        seconds += self.body[decoding + read] - self.body[decoding] * (decoding > 0) + self.state * states
        seconds += self.head[decoding + rows] - self.head[decoding]
        kernel = clock.rates.prefill_attention
        for cache, kv, _, flops in clock.caches:
            pairs, passed = _attended(cache, chunks)
            seconds += cache.layers * kernel.launch_seconds + float(both(flops * pairs, kv * passed + clock.query_bytes * read, clock.chip.peak, clock.chip, kernel))
        return seconds


class Ideal:
    """The same at the bound: all bytes or all arithmetic, whichever takes longer. Without a limit on one the clock tells the other."""

    def __init__(self, clock: Clock):
        self.windows, chip = _windows(clock), clock.chip
        self.moving = Side(clock, self.windows, flops_per_s=dict.fromkeys(chip.flops_per_s, inf))
        self.working = Side(clock, self.windows, bandwidth_bytes_per_s=inf)
        self.caches = [Cache("", 1, 0, 0, 0, window) for window in (None, *self.windows)]

    def decode(self, decoding: int, cells: int, in_windows: list[int]) -> float:
        return self.mixed(decoding, cells, in_windows, [])

    def mixed(self, decoding: int, cells: int, in_windows: list[int], chunks: list[tuple[int, int, bool]]) -> float:
        read, _, states = _sums(chunks)
        moved, worked = (side.of_tokens[decoding + read] + side.state * (2 * decoding + states) for side in (self.moving, self.working))
        for at, cache in enumerate(self.caches):
            seen = in_windows[at - 1] if at else cells
            pairs, passed = _attended(cache, chunks)
            moved += self.moving.decoded[at] * seen + self.moving.passed[at] * passed
            worked += self.working.decoded[at] * seen + self.working.paired[at] * pairs
        return moved if moved > worked else worked


class Side:
    """What a clock takes for bytes alone, or for arithmetic alone, which is in proportion: seconds a cell, a pair, a position passed
    and a state, the former by cache (the whole one first, then by window)."""

    def __init__(self, clock: Clock, windows: tuple[int, ...], **without):
        side, bare = (replace(each, chip=replace(clock.chip, **without)) for each in (clock, _bare(clock)))
        self.of_tokens = Table(lambda tokens: bare.step(prefilled=tokens))
        none = dict.fromkeys(windows, (0, 0, 0.0, 0))

        def grows(window: int | None, cells=0, back=0, pairs=0.0) -> float:
            amounts = {"within": none | {window: (cells, back, pairs, 0)}} if window else {"cells": cells, "read_before": back, "pairs": pairs, "within": none}
            return float(side.step(1, prefilled=1, states_moved=0, **amounts) - side.step(1, prefilled=1, states_moved=0, within=none)) / MANY

        self.decoded, self.passed, self.paired = ([grows(window, **{name: MANY}) for window in (None, *windows)] for name in ("cells", "back", "pairs"))
        self.state = float(side.step(1, states_moved=MANY, within=none) - side.step(1, states_moved=0, within=none)) / MANY


def _windows(clock: Clock) -> tuple[int, ...]:
    return tuple(sorted({cache.window for cache in clock.shape.caches if cache.window}))


def _bare(clock: Clock, *names: str) -> Clock:
    """Without caches and states, and without the matrices of these names."""
    return replace(clock, shape=replace(clock.shape, caches=(), state_bytes=0, matrices=tuple(m for m in clock.shape.matrices if m.name not in names)))


def _sums(chunks: list[tuple[int, int, bool]]) -> tuple[int, int, int]:
    """Tokens, prompts that end, states read or written."""
    tokens = rows = states = 0
    for start, length, ends in chunks:
        tokens += length
        rows += ends
        states += 2 if start else 1
    return tokens, rows, states


def _attended(cache: Cache, chunks: list[tuple[int, int, bool]]) -> tuple[float, int]:
    """Causal pairs of the chunks, and the positions that are read or written for them."""
    pairs, passed = 0.0, 0
    for start, tokens, _ in chunks:
        pairs += cache.causal_pairs(start + tokens) - cache.causal_pairs(start)
        passed += cache.tokens(start) + cache.tokens(tokens)
    return pairs, passed
