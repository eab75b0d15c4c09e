"""Many texts at once on one model: the policies of compute/batching.py, executed.

A step is one forward of everything that was planned, prompts and decoding alike. What comes out for a text does not depend
on its neighbours, the policy, the block size or preemption: under greedy decoding it is what `generate` writes (compare
compute/engine/speculate.py for what that means in floating point), and sampled text uses one random generator a text, as
`generate` does. `submit` and `cancel` may be called from any thread and never wait for a step: they leave word, and the next
step begins with what was left.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence as Row
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from compute import sampling as rules
from compute.batching import PolicyName, Preemption, Read, Scheduler, Sequence
from compute.engine.decoding import decoder, prepared
from compute.engine.generate import check_request, pick
from compute.engine.loader import Model
from compute.engine.model import hidden_states, logits
from compute.engine.paged import PagedCache, Part, Step
from compute.engine.speculate import NO_DRAFT, Draft, Drafter, distribution
from compute.engine.tokens import StopText, Stream
from compute.errors import BadInput
from compute.paging import BlockPool
from compute.sampling import GREEDY, Sampling
from compute.speculative import play_round
from compute.trace import Recorder
from compute.trace import Step as Recorded

KV_BYTES = 256 * 2**20  # for the block pool, unless a number of blocks is given


@dataclass(frozen=True)
class Ask:
    """One request. n texts are written from the prompt, the i-th with the random numbers of seed + i (modulo 2**64). logprobs: how many of
    the likeliest tokens come along with each one's own, None for neither; measured: with what each was drawn from."""

    tokens: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = GREEDY
    seed: int = 0
    stop: tuple[str, ...] = ()
    n: int = 1
    ignore_end: bool = False
    logprobs: int | None = None
    measured: bool = False


@dataclass(frozen=True)
class Piece:
    """One written token of the index-th text. text: what a reader sees arrive. logprob and top (token, logprob): nats, under
    the model itself, temperature 1 and nothing cut; entropy (nats) and kept (tokens that could have been drawn) of the
    distribution that it was drawn from; both only if asked for. finish as in `generate`."""

    index: int
    token: int
    text: str
    finish: Literal["", "stop", "length"] = ""
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    entropy: float | None = None
    kept: int | None = None


Hear = Callable[[Piece], None]


@dataclass(eq=False)
class Ticket:
    """What `submit` gives back, and `cancel` takes."""

    ask: Ask
    hear: Hear
    lost: Callable[[Exception], None] | None
    request: int  # in order of arrival
    arrived: float
    sequences: list[Sequence] = field(default_factory=list)  # those that have begun, in order of their index
    cancelled: bool = False

    @property
    def finished(self) -> bool:
        return self.cancelled or bool(self.sequences) and all(sequence.finished for sequence in self.sequences)


@dataclass(eq=False)
class Text:
    """What the engine keeps of one text beside its sequence."""

    ticket: Ticket
    index: int
    random: np.random.Generator
    stream: Stream
    gate: StopText
    drafter: Drafter | None


Written = tuple[dict[Sequence, list[int]], list[Sequence], list[tuple[Ticket, Piece | Exception]]]
"""What each text wrote in a step, those that ended before their limit, and what is to be told of it."""


class Engine:
    """slots: texts that are written together; blocks: default as many as KV_BYTES and the slots' contexts need. guess makes a
    Drafter for each text, and `ahead` is how many guesses it makes a step; drafters that need the target's hidden states
    (the MTP head) are not for here, as prefix hits skip them. numbers: of the requests, where several engines' must differ."""

    def __init__(
        self, model: Model, *, slots: int = 8, blocks: int | None = None, block_size: int = 16, policy: PolicyName = "chunked", budget: int = 256,
        preemption: Preemption = "recompute", caching: bool = True, ahead: int = 0, guess: Callable[[], Drafter] | None = None,
        clock: Callable[[], float] = time.perf_counter, numbers: Iterator[int] | None = None,
    ):  # fmt: skip
        if ahead and guess is None:
            raise BadInput("ahead", ahead, "guesses need somebody who makes them; name a draft", "要猜测就得有人来猜；请指定草稿")
        self.model = model
        wanted = blocks or default_blocks(model, slots, block_size)
        self.pool = BlockPool(wanted, block_size, caching=caching)
        self.scheduler = Scheduler(self.pool, slots, policy, budget=budget, preemption=preemption, ahead=ahead)
        self.cache = PagedCache(model.weights, wanted, block_size)
        self.weights = prepared(model.weights)
        self.decoder = decoder(self.weights, self.cache, model.threads)
        self.guess = guess
        self.recorder = Recorder(self.scheduler, "second")
        self.texts: dict[Sequence, Text] = {}
        self._outside: dict[Sequence, Tensor] = {}  # what was swapped out
        self._requests = numbers or count()
        self._come: deque[Ticket] = deque()  # submitted and cancelled since the last step
        self._gone: deque[Ticket] = deque()
        self._clock, self._began = clock, clock()
        self._stepping = threading.Lock()

    # ---- requests

    def submit(self, ask: Ask, hear: Hear = lambda piece: None, lost: Callable[[Exception], None] | None = None) -> Ticket:
        """`hear` is told of every token, in the thread that calls `step`; `lost` of the mistake that ended this request and no other,
        which without it is raised by `step`. Raises BadInput for what cannot be run."""
        check_request(self.model, ask.tokens, ask.max_new_tokens)
        self.scheduler.check(ask.tokens, ask.max_new_tokens, ask.n)
        ticket = Ticket(ask, hear, lost, next(self._requests), self.now())
        self._come.append(ticket)
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """No further step tells of it, and the next one begins with its slots and blocks free. Harmless when it has ended."""
        ticket.cancelled = True
        self._gone.append(ticket)

    @property
    def busy(self) -> bool:
        """Something is left for `step` to do."""
        return bool(self.scheduler.waiting or self.scheduler.running or self._come or self._gone)

    @property
    def waiting(self) -> int:
        """Requests that have not begun, or wait again for a slot."""
        return len(self.scheduler.waiting) + len(self._come)

    def now(self) -> float:
        """Seconds on the trace's clock."""
        return self._clock() - self._began

    def _settle(self) -> None:
        """Lets in who has come since the last step, and out who has gone."""
        while self._come:
            ticket = self._come.popleft()
            if not ticket.cancelled:
                sequence = self.scheduler.submit(ticket.ask.tokens, ticket.ask.max_new_tokens, request=ticket.request, samples=ticket.ask.n)
                self.recorder.arrived(sequence, ticket.arrived)
                self._begin(ticket, sequence)
        while self._gone:
            for sequence in self._gone.popleft().sequences:
                if not sequence.finished:
                    self.scheduler.cancel(sequence)
                    self.recorder.cancelled(sequence, self.now())
                    self._forget(sequence)

    def reset(self) -> None:
        """Everybody out and an empty pool, after a step that failed halfway. Nobody is told; the record and its clock go on."""
        with self._stepping:
            for life in self.recorder.lives.values():
                if life.finished is None:
                    life.finished, life.cancelled = self.now(), True
            pool, old = self.pool, self.scheduler
            self.pool = BlockPool(pool.total, pool.block_size, caching=pool.caching)
            self.scheduler = Scheduler(self.pool, old.slots, old.policy, budget=old.budget, preemption=old.preemption, ahead=old.ahead)
            self.scheduler._made = old._made
            self.recorder.scheduler = self.scheduler
            for left in (self.texts, self._outside, self._come, self._gone):
                left.clear()

    def _begin(self, ticket: Ticket, sequence: Sequence) -> None:
        index = len(ticket.sequences)
        random, gate = np.random.default_rng((ticket.ask.seed + index) % 2**64), StopText(ticket.ask.stop)
        self.texts[sequence] = Text(ticket, index, random, Stream(), gate, self.guess() if self.guess else None)
        ticket.sequences.append(sequence)

    def _forget(self, sequence: Sequence) -> None:
        del self.texts[sequence]
        self._outside.pop(sequence, None)

    # ---- a step

    @torch.inference_mode()
    def step(self) -> Recorded | None:
        """Plans, computes and tells of one step; None when there is nothing to do. A `hear` that raises cancels its request, and so does
        a mistake in choosing one text's token; the step raises when all the others have been told."""
        with self._stepping:
            self._settle()
            if not self.busy:
                return None
            began = self.now()
            plan = self.scheduler.plan()
            work = self.scheduler.apply(plan)
            for move in work.swapped_out:
                self._outside[move.sequence] = self.cache.take_out(move.blocks)
            for move in work.swapped_in:
                self.cache.put_back(move.blocks[: -(-move.sequence.table.written // self.pool.block_size)], self._outside.pop(move.sequence))
            self.cache.copy(work.copies)
            drafts = {read.sequence: self._draft(read) for read in work.reads if not read.prefill and read.tokens > 1}
            tokens, ended, told = self._compute(work.reads, drafts)
            done = self.scheduler.commit(work, tokens, ended)
            ended_at = self.now()
            recorded = self.recorder.step(plan, work, tokens, done, ended_at, ended_at - began)
            for sequence in done:
                self._forget(sequence)
            self._tell(told)
            return recorded

    def _tell(self, told: list[tuple[Ticket, Piece | Exception]]) -> None:
        """After everything is written down, so that `hear` may submit, cancel and fail."""
        fault = None
        for ticket, heard in told:
            if not ticket.cancelled:
                try:
                    if isinstance(heard, Piece):
                        ticket.hear(heard)
                    elif ticket.lost is None:
                        raise heard
                    else:
                        self.cancel(ticket)
                        ticket.lost(heard)
                except Exception as raised:
                    self.cancel(ticket)
                    fault = fault or raised
        if fault:
            raise fault

    def _draft(self, read: Read) -> Draft:
        text = self.texts[read.sequence]
        return text.drafter.draft(read.sequence.ids, None, read.tokens - 1, text.ticket.ask.sampling, text.random)

    def _compute(self, reads: Row[Read], drafts: dict[Sequence, Draft]) -> Written:
        """One forward of all reads, and what each text writes by it."""
        if not reads:
            return {}, [], []
        torch.set_num_threads(self.model.threads)
        new = [self._new(read, drafts) for read in reads]
        parts = [Part(read.sequence.table.blocks, read.start, len(tokens)) for read, tokens in zip(reads, new)]
        # how many of each read's last rows are needed: none in the middle of a prompt
        counts = [0 if read.sequence.left > 0 else 1 if read.prefill else len(tokens) for read, tokens in zip(reads, new)]
        single = self.decoder and not any(read.prefill or len(tokens) > 1 for read, tokens in zip(reads, new))
        found = self.decoder.logits([token for token, in new], parts) if single else None
        if found is None:
            found = self._forward(new, parts, counts)
        return self._write(found, [(read.sequence, count) for read, count in zip(reads, counts) if count], drafts)

    def _new(self, read: Read, drafts: dict[Sequence, Draft]) -> list[int]:
        """The tokens that are read."""
        ids = read.sequence.ids
        return ids[read.start : read.start + read.tokens] if read.prefill else [ids[-1], *drafts.get(read.sequence, NO_DRAFT).tokens]

    def _forward(self, new: Row[list[int]], parts: Row[Part], counts: Row[int]) -> Tensor:
        """Logits (rows, V) of the last so many tokens of each part."""
        step = Step(self.cache, parts)
        states = hidden_states(self.weights, torch.tensor([[token for tokens in new for token in tokens]]), step, step.positions)[0]  # (N, M)
        ends = accumulate(map(len, new))
        rows = [row for end, count in zip(ends, counts) for row in range(end - count, end)]
        return logits(self.weights, states[torch.tensor(rows, dtype=torch.long, device=states.device)]).cpu()

    def _write(self, found: Tensor, writers: Row[tuple[Sequence, int]], drafts: dict[Sequence, Draft]) -> Written:
        """found (rows, V): logits, `count` rows for each writer one after the other."""
        best = found.numpy().argmax(-1).tolist()  # many times as fast as torch on a CPU
        tokens, ended, told, at = {}, [], [], 0
        for sequence, count in writers:
            mine = found[at : at + count]
            first = best[at]
            at += count
            for writer in (sequence, *(self._fork(sequence) if sequence.samples > 1 else ())):
                text = self.texts[writer]
                try:
                    new = self._chosen(text, mine, first, drafts[sequence] if count > 1 else None)
                    pieces = self._pieces(writer, text, new[: writer.limit - writer.written], mine)
                except Exception as error:  # the boundary between one text and its neighbours
                    tokens[writer] = [first]  # as if it ended here: its slot and blocks go the usual way
                    ended.append(writer)
                    told.append((text.ticket, error))
                    continue
                tokens[writer] = [piece.token for piece in pieces]
                told += [(text.ticket, piece) for piece in pieces]
                if pieces[-1].finish == "stop":
                    ended.append(writer)
        return tokens, ended, told

    def _chosen(self, text: Text, rows: Tensor, best: int, draft: Draft | None) -> list[int]:
        """rows (guesses + 1, V): logits; best: the likeliest token of the first."""
        sampling = text.ticket.ask.sampling
        if draft:
            return list(play_round(distribution(rows, sampling), draft.q, list(draft.tokens), text.random).tokens)
        return [best if sampling.temperature == 0 else pick(rows[0], sampling, text.random)]

    def _fork(self, sequence: Sequence) -> list[Sequence]:
        others = self.scheduler.fork(sequence)
        for other in others:
            self._begin(self.texts[sequence].ticket, other)
        return others

    def _pieces(self, sequence: Sequence, text: Text, new: list[int], found: Tensor) -> list[Piece]:
        """What is told of each token, up to the end of the text. found (len(new) or more, V): logits."""
        model, ask, pieces = self.model, text.ticket.ask, []
        for i, token in enumerate(new):
            ends = token in model.config.stop_tokens and not ask.ignore_end
            shown = "" if ends else text.gate.push(text.stream.push(model.tokenizer.bytes_of(token)))
            finish = "stop" if ends or text.gate.found else "length" if sequence.written + i + 1 == sequence.limit else ""
            if finish and not text.gate.found:
                shown += text.gate.push(text.stream.flush()) + text.gate.flush()
            logprob, top = (None, ()) if ask.logprobs is None else logprobs(found[i], token, ask.logprobs)
            entropy, kept = spread(found[i], ask.sampling) if ask.measured else (None, None)
            pieces.append(Piece(text.index, token, shown, finish, logprob, top, entropy, kept))
            if finish:
                break
        return pieces

    # ---- without a service

    def run(self, asks: Row[Ask]) -> list[list[list[int]]]:
        """The tokens of each ask's texts, all submitted at once."""
        written: list[list[list[int]]] = [[[] for _ in range(ask.n)] for ask in asks]
        for ask, texts in zip(asks, written):
            self.submit(ask, lambda piece, texts=texts: texts[piece.index].append(piece.token))
        while self.step():
            pass
        return written


def logprobs(row: Tensor, token: int, most: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """Of a token and of the `most` likeliest, from logits (V): nats."""
    row = row.double()
    total = row.logsumexp(0)
    values, tokens = row.topk(min(most, len(row))) if most else (row[:0], torch.arange(0))
    return float(row[token] - total), tuple(zip(tokens.tolist(), (values - total).tolist()))


def spread(row: Tensor, sampling: Sampling) -> tuple[float, int]:
    """(entropy in nats, tokens kept) of the distribution that logits (V) and the rule give."""
    p = rules.probabilities(row.numpy(), sampling)
    return float(rules.entropy(p)), int((p > 0).sum())


def default_blocks(model: Model, slots: int, block_size: int) -> int:
    """As many as every slot's full context needs, within KV_BYTES."""
    c = model.config
    each = c.layers * 2 * c.kv_heads * c.head_dim * model.weights.embedding.element_size() * block_size
    return max(-(-c.context // block_size), min(slots * -(-c.context // block_size), KV_BYTES // each))
