"""Which drafts a target has, and runs with them: what the service, the stored numbers and the benchmark call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Annotated, Any

import torch
from pydantic import Field

from compute import facts
from compute.engine import mtp
from compute.engine.device import choose_device
from compute.engine.errors import ModelMissing, shown
from compute.engine.generate import decode, generate
from compute.engine.loader import Model, load
from compute.engine.model import forward
from compute.engine.registry import shared, unquantized
from compute.engine.served import ModelId, Sentence, circumstances
from compute.engine.speculate import Drafter, Either, Lookup, ModelDraft, Tally, Turn, same_vocabulary, speculate, tally
from compute.errors import BadInput, Cancelled, UnknownName
from compute.sampling import Order, Sampling

LOOKUP, MTP, BOTH = "lookup", "mtp", "both"
DRAFTS = {"mini-256": ("mini-64", "mini-128", LOOKUP, MTP), "smollm2-135m": ("smollm2-draft", MTP, LOOKUP, BOTH)}
SURE = 0.45  # below this probability the head keeps its guess to itself: a check of a likely miss costs more than it brings
MOST = 96  # tokens of a served run
Temperature = Annotated[float, Field(ge=0, le=5, description="0 is greedy")]
Guesses = Annotated[int, Field(ge=1, le=16, description="guesses a round")]


@dataclass(frozen=True)
class Source:
    """Where guesses come from. new(capacity): a Drafter for one run. parameters: multiplied for one guess."""

    name: str
    new: Callable[[int], Drafter]
    parameters: int


def source(name: str, target: Model, dtype: str = "float32") -> Source:
    """lookup, mtp, both (look-up where three tokens match, else the MTP head where it is sure), or a model of the target's
    vocabulary. Raises BadInput for another vocabulary, UnknownName, or the ModelError of files that are not there."""
    if name == LOOKUP:
        return Source(name, lambda capacity: Lookup(target.config.vocabulary), 0)
    if name == MTP:
        head = mtp.load(target)
        return Source(name, lambda capacity: mtp.MtpDraft(head, target, capacity), head.parameters())
    if name == BOTH:
        head = mtp.load(target)
        return Source(name, lambda capacity: Either(Lookup(target.config.vocabulary, 4, shortest=3), mtp.MtpDraft(head, target, capacity, SURE)), head.parameters())
    draft = _model(name, dtype)
    same_vocabulary(target, draft)
    return Source(name, lambda capacity: ModelDraft(draft, capacity), draft.weights.parameters())


def _model(name: str, dtype: str) -> Model:
    """A registered model, quantized or not, or a checkpoint that is only good for drafting and so on no list of models to talk to."""
    entries, drafting_only = shared().entries, {draft for drafts in DRAFTS.values() for draft in drafts} - {LOOKUP, MTP, BOTH}
    if unquantized(name) in entries and dtype == "float32":
        return shared().get(name)
    if name not in entries and name not in drafting_only:
        raise UnknownName("draft", "草稿", name, sorted({*drafting_only, *entries}))
    return _checkpoint(name, dtype)


@cache
def _checkpoint(name: str, dtype: str) -> Model:
    folder = mtp.CHECKPOINTS / name
    if not folder.is_dir():
        raise ModelMissing(name, f"{shown(folder)} is not there", f"{shown(folder)} 不存在", f"train it: python -m compute.training train {name}", f"请训练：python -m compute.training train {name}")
    return load(folder, device=str(choose_device("auto")), dtype=dtype, name=name)


def cost_by_parameters(name: str, target: Model) -> float:
    """c: numbers multiplied for a guess over those for a token of the target."""
    return source(name, target).parameters / target.weights.parameters()


@dataclass(frozen=True)
class Prompt:
    id: str
    kind: str
    text: str
    sent: str  # as the model reads it


@cache
@facts.made_of("speculation-prompts.toml")
def prompts(target: str) -> tuple[Prompt, ...]:
    """The fixed ones of data/speculation-prompts.toml."""
    table = facts.read_toml(facts.DATA / "speculation-prompts.toml")[target]
    return tuple(Prompt(p["id"], p["kind"], p["text"], table["template"].format(text=p["text"])) for p in table["prompts"])


# ---- one run, round by round


@dataclass(frozen=True)
class Guess:
    """p, q of the guessed token and the number u that decided; None where an earlier guess of the round was rejected."""

    token: int
    piece: str
    p: float | None
    q: float | None
    u: float | None
    accepted: bool | None


@dataclass(frozen=True)
class Told:
    """A round for drawing. bonus: every guess was accepted and `last` came from the target's next distribution; otherwise
    from the residual. written: tokens that reached the text, fewer only where it ends."""

    guesses: tuple[Guess, ...]
    last: int
    last_piece: str
    bonus: bool
    v: float
    written: int
    text: str
    draft_seconds: float
    target_seconds: float


@dataclass(frozen=True)
class Run:
    target: str
    draft: str
    k: int
    temperature: float
    seed: int
    text: str
    prompt_pieces: tuple[str, ...]
    first: str  # the token that the prompt's own forward gave
    rounds: tuple[Told, ...]
    finish: str
    tally: Tally
    conditions: dict[str, Any]


def run(
    target: ModelId = "mini-256",
    draft: Annotated[str, Field(min_length=1, max_length=80, description="a model of the target's vocabulary, lookup, or mtp")] = "mini-64",
    k: Guesses = 4,
    text: Sentence = "小明把苹果给了",
    temperature: Temperature = 1.0,
    top_k: Annotated[int, Field(ge=0, le=200_000, description="0: off")] = 0,
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0,
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0,
    order: Order = "transformers",
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0,
    new: Annotated[int, Field(ge=2, le=MOST, description="tokens to write")] = 48,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Run:
    """Continues a text by speculative decoding: every guess with p, q and the number that decided, round by round.

    Raises BadInput for a draft of another vocabulary, and for a text that the target ends at once.
    """
    model = shared().get(target)
    s = Sampling(temperature, top_k, top_p, min_p, order)
    tokens = model.tokenizer.encode(text)
    drafter = source(draft, model).new(len(tokens) + new + k)
    turns, count, said = [], 0, ""
    for turn in speculate(model, drafter, tokens, new, k, sampling=s, seed=seed, cancelled=cancelled):
        turns.append(turn)
        count, said = count + len(turn.tokens), said + turn.text
        report(count / new, said)
    if turns[-1].finish == "cancelled":
        raise Cancelled()
    if len(turns) == 1:
        raise BadInput("text", text, "the target ends it with its very next token, so there is nothing to guess; try another beginning", "目标写一个 token 就收尾了，没有可猜的；请换一个开头")
    around = circumstances(model) | {"draft": draft, "k": k, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "order": order, "seed": seed, "new": new}
    return Run(
        target, draft, k, temperature, seed, text, tuple(map(model.tokenizer.piece, tokens)), model.tokenizer.piece(turns[0].played.last),
        tuple(told(turn, model) for turn in turns[1:]), turns[-1].finish, tally(turns), around,
    )  # fmt: skip


def told(turn: Turn, model: Model) -> Told:
    piece, checks = model.tokenizer.piece, turn.played.checks
    seen = [Guess(c.token, piece(c.token), round(c.p, 6), round(c.q, 6), round(c.u, 6), c.accepted) for c in checks]
    unseen = [Guess(token, piece(token), None, None, None, None) for token in turn.guesses[len(checks) :]]
    return Told(
        (*seen, *unseen), turn.played.last, piece(turn.played.last), turn.played.bonus, round(turn.played.v, 6), len(turn.tokens), turn.text,
        turn.draft_seconds, turn.target_seconds,
    )  # fmt: skip


# ---- against plain decoding, on the clock


@dataclass(frozen=True)
class Race:
    """One draft and k against plain decoding on the same prompts; a prompt's own forward is not timed. Tuples: one a prompt."""

    draft: str
    k: int
    plain_speeds: tuple[float, ...]  # tokens per second
    speeds: tuple[float, ...]
    step_seconds: float  # median forward of the target with one token, choice included
    check_seconds: float  # median forward of the target with the guesses, decision included
    guess_seconds: float  # median over the rounds: time of the guesses over their number; 0 where nothing was guessed
    same: int  # prompts on which both wrote the same tokens
    tally: Tally

    @property
    def speedups(self) -> tuple[float, ...]:
        """Within each prompt, so that a slow phase of the machine hits both."""
        return tuple(fast / plain for fast, plain in zip(self.speeds, self.plain_speeds))

    @property
    def cost_by_time(self) -> float:
        """c: a guess over a plain step of the target."""
        return self.guess_seconds / self.step_seconds


def race(
    target: Model,
    contenders: Sequence[tuple[Source, int]],
    texts: Sequence[str],
    new: int,
    sampling: Sampling,
    seed: int = 0,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[Race, ...]:
    """Plain decoding and every (draft, k), prompt by prompt, starting with another one each time; text i draws with seed + i.
    Raises Cancelled."""
    plain: list[tuple[float, list[int]]] = []
    runs: list[list[list[Turn]]] = [[] for _ in contenders]
    steps: list[float] = []
    for index, text in enumerate(texts):
        tokens = target.tokenizer.encode(text)
        common = {"sampling": sampling, "seed": seed + index, "cancelled": cancelled}
        order = [None, *range(len(contenders))]
        for who in order[index % len(order) :] + order[: index % len(order)]:
            if who is None:
                own = list(generate(target, tokens, new, **common))
                steps += [step.seconds for step in own[1:]]
                plain.append(((len(own) - 1) / sum(step.seconds for step in own[1:]) if len(own) > 1 else 0.0, [step.token for step in own]))
            else:
                draft, k = contenders[who]
                runs[who].append(list(speculate(target, draft.new(len(tokens) + new + k), tokens, new, k, **common)))
            if cancelled():
                raise Cancelled()
        report((index + 1) / len(texts), text[:40])
    return tuple(_raced(draft.name, k, turns, plain, median(steps)) for (draft, k), turns in zip(contenders, runs))


def _raced(name: str, k: int, runs: list[list[Turn]], plain: list[tuple[float, list[int]]], step_seconds: float) -> Race:
    rounds = [turn for turns in runs for turn in turns if turn.index]
    timed = [(speed, turns) for (speed, _), turns in zip(plain, runs) if speed and len(turns) > 1]  # else the answer was one token
    written = [[token for turn in turns for token in turn.tokens] for turns in runs]
    return Race(
        name, k, tuple(speed for speed, _ in timed), tuple(_speed(turns) for _, turns in timed), step_seconds,
        median(turn.target_seconds for turn in rounds), median([turn.draft_seconds / len(turn.guesses) for turn in rounds if turn.guesses] or [0.0]),
        sum(own == tokens for (_, own), tokens in zip(plain, written)), tally(turn for turns in runs for turn in turns),
    )  # fmt: skip


def _speed(turns: Sequence[Turn]) -> float:
    return sum(len(turn.tokens) for turn in turns[1:]) / sum(turn.draft_seconds + turn.target_seconds for turn in turns[1:])


def closest_call(target: Model, texts: Sequence[str], new: int, report: Callable[[float, str], None] = lambda fraction, note: None) -> tuple[float, float]:
    """Along greedy texts: the smallest distance of the two best logits, and the largest difference between the logits of one
    wide forward and of steps of one token. The first much larger than the second: no tie decides which text comes out."""
    gaps, apart = [], []
    for index, text in enumerate(texts):
        report(index / len(texts), text[:40])
        tokens = target.tokenizer.encode(text)
        steps = [(token, row) for token, row, *_ in decode(target, tokens, new, lambda row: int(row.argmax()), True)]
        whole = torch.tensor([[*tokens, *(token for token, _ in steps[:-1])]])
        wide = forward(target.weights, whole, None, torch.arange(whole.shape[1])[None])[0, len(tokens) - 1 :].cpu()
        rows = torch.stack([row for _, row in steps])
        best, second = rows.topk(2, -1).values.unbind(-1)
        gaps.append(float((best - second).min()))
        apart.append(float((wide - rows).abs().max()))
    return min(gaps), max(apart)


@dataclass(frozen=True)
class Cell:
    """One cell of the table of drafts, measured now."""

    target: str
    draft: str
    k: int
    temperature: float
    prompts: int
    new: int
    acceptance: float
    tokens_per_forward: float
    cost_by_parameters: float
    cost_by_time: float
    check_over_step: float
    plain_tokens_per_second: float
    tokens_per_second: float
    speedup: float
    same: int | None  # when greedy
    conditions: dict[str, Any]


def cell(
    target: ModelId = "mini-256",
    draft: Annotated[str, Field(min_length=1, max_length=80)] = "mini-64",
    k: Guesses = 4,
    temperature: Temperature = 0.0,
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Cell:
    """Plain decoding against speculation on this machine, now: four of the fixed prompts, in alternation."""
    model, new = shared().get(target), 32
    base = unquantized(target)
    chosen = prompts(base if base in DRAFTS else "mini-256")[::4]
    (found,) = race(model, [(source(draft, model), k)], [p.sent for p in chosen], new, Sampling(temperature), seed, report, cancelled)
    around = circumstances(model) | {"draft": draft, "k": k, "temperature": temperature, "seed": seed, "new": new, "prompts": ", ".join(p.id for p in chosen)}
    return Cell(
        target, draft, k, temperature, len(chosen), new, found.tally.acceptance, found.tally.tokens_per_forward, cost_by_parameters(draft, model),
        found.cost_by_time, found.check_seconds / found.step_seconds, median(found.plain_speeds), median(found.speeds), median(found.speedups),
        found.same if temperature == 0 else None, around,
    )  # fmt: skip
