"""A long prompt arrives among readers who are being written to: how long do they get nothing, and what does it take to spare them that?

The same moment three times. Whole: the prompt is read in one step, beside the readers' decoding (policy "continuous"). Chunked: a token
budget a step, of which the readers take theirs first and the prompt gets the rest (policy "chunked"; Agrawal et al. 2024, §4). Separate:
a second card reads the prompt alone and sends its KV and state over the link, and the newcomer joins the decoders (Zhong et al. 2024).
Policies and bookkeeping are compute/batching's, the steps are run by compute/simulate and priced by a Clock of compute/calibrated.

What is left out: one newcomer, who arrives just as a step ends; nothing is sent before the whole prompt has been read, and then at the
full bandwidth of the link with nothing else on it; joining costs the decoding card nothing. The second card writes the first token, which
is shown when it arrives with the KV.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from compute import calibrated
from compute.batching import PolicyName, Scheduler, Sequence, StepPlan, continuous
from compute.calibrated import Clock, Error
from compute.errors import BadInput, Refused
from compute.facts import ChipRef, ModelRef
from compute.paging import BlockPool
from compute.simulate import Job, own_token, simulate
from compute.trace import Trace

Mode = Literal["whole", "chunked", "separate"]
POLICY: dict[Mode, PolicyName] = {"whole": "continuous", "chunked": "chunked", "separate": "continuous"}
ClockName = Literal["ideal", "calibrated"]

BLOCK_SIZE = 16  # by which memory is counted
SPAN = 4096  # positions of a block while it runs: when all fits to the end, no step depends on it, and large ones are handed out faster
MARGIN = 0.12  # of the time until the last first token: what is told of before and after it
LEAST_STEPS = 4  # told of before and after, whatever the margin
MOST_READS = 100_000  # sequences in all steps that read a chunk
MOST_STEPS, MOST_WRITES = 10_000, 1_000_000  # of the readers' card, and tokens that the readers write in them

Prompt = Annotated[int, Field(ge=1, le=1_000_000, description="tokens of the prompt that arrives")]
Readers = Annotated[int, Field(ge=1, le=1024, description="sequences that are being written meanwhile")]
Context = Annotated[int, Field(ge=2, le=1_000_000, description="tokens in the cache of each of them when it arrives")]
Budget = Annotated[int, Field(ge=1, le=1_000_000, description="tokens a step may read in chunked mode, those of the readers included")]
Target = Annotated[float, Field(gt=0, le=1e6, description="seconds from token to token, at most")]


@dataclass(frozen=True)
class Beat:
    """A step of the readers' card. read: prompt tokens; wrote: sequences that wrote a token."""

    began: float
    ended: float
    read: int
    wrote: int


@dataclass(frozen=True)
class Gap:
    """Between two tokens of a reader, the second of which came at `at`."""

    at: float
    seconds: float


@dataclass(frozen=True)
class Passage:
    """How the prompt came through in one way; all readers fare alike. Times in seconds since it arrived.

    read: from when to when the prompt was read, on whichever card; handed: its KV was on the way. lost_tokens: what the readers would
    have written until the newcomer's first token, had nobody come, and did not. disturbed_seconds: until the last step in which their
    card read some of the prompt has ended. over_target: gaps of a reader. tokens_per_second_per_card: of the readers while nobody
    disturbs them; a card that only reads prompts writes none."""

    mode: Mode
    cards: int
    beats: tuple[Beat, ...]
    gaps: tuple[Gap, ...]
    read: tuple[float, float]
    handed: tuple[float, float] | None
    first_token_seconds: float
    longest_gap_seconds: float
    over_target: int
    lost_tokens: int
    disturbed_seconds: float
    tokens_per_second_per_card: float


@dataclass(frozen=True)
class Stall:
    """refused: ways that cannot be had here, and why, in words. plain_step_seconds: of a step of the readers among themselves.
    alone_seconds: the prompt on a card of its own. handover_bytes: KV and state of the prompt. since, until: what is told, in
    seconds since the arrival. error: of the calibrated clock."""

    passages: tuple[Passage, ...]
    refused: Mapping[Mode, Mapping[str, str]]
    plain_step_seconds: float
    alone_seconds: float
    handover_bytes: float
    link_bytes_per_s: float | None
    since: float
    until: float
    clock: ClockName
    error: Error | None

    def __getitem__(self, mode: Mode) -> Passage | None:
        return next((passage for passage in self.passages if passage.mode == mode), None)


class Among(Scheduler):
    """A card whose readers are in the middle of their texts: how they got there is not told, so all their prompts are read in the first
    step, and the policy decides from then on. handed: whoever comes after them was read elsewhere and has its first token; its
    KV waits outside the pool, as that of one who was swapped out."""

    def __init__(self, pool: BlockPool, readers: int, policy: PolicyName, budget: int, handed: bool = False):
        super().__init__(pool, readers + 1, policy, budget=budget)
        self.readers, self.handed = readers, handed

    def plan(self) -> StepPlan:
        return super().plan() if self.running else continuous(self)

    def submit(self, ids, limit: int, **more) -> Sequence:
        sequence = super().submit(ids, limit, **more)
        if self.handed and sequence.id >= self.readers:
            sequence.swapped = len(sequence.ids)
            sequence.ids.append(own_token(sequence))
        return sequence


def stall(
    model: ModelRef = "qwen3.8-27b", chip: ChipRef = "h100-sxm", prompt: Prompt = 32_768, readers: Readers = 48, context: Context = 4096, budget: Budget = 512,
    clock: ClockName = "ideal", tpot_target: Target = 0.05,
) -> Stall:  # fmt: skip
    """A prompt arrives among readers: read whole, in chunks, or on a second card. The gaps that a reader sees, and the newcomer's wait for its first token.

    All in 16 bits, on one card (two where prefill is separate). Raises Refused when the readers and the prompt do not fit beside the
    weights, BadInput for what the model cannot read."""
    price = (calibrated.ideal if clock == "ideal" else calibrated.calibrated)(model, chip)
    for field, value in (("prompt", prompt), ("context", context)):
        if (longest := price.shape.context_maximum) and value > longest:
            raise BadInput(field, value, f"{price.shape.name} reads at most {longest:,} tokens", f"{price.shape.name} 最多读 {longest:,} 个 token")
    refused: dict[Mode, dict[str, str]] = {}
    for mode in POLICY:
        try:
            require(mode, price, prompt, readers, budget)
        except BadInput as wrong:
            refused[mode] = {"zh": wrong.values["reason_zh"], "en": wrong.values["reason"]}
    setting = _Setting(price, prompt, readers, context, budget, tuple(mode for mode in POLICY if mode not in refused))
    setting.require_fit()
    if setting.writes > min(MOST_STEPS, MOST_WRITES // readers):
        en, zh = f"while it is read the {readers:,} readers would write for {setting.writes:,} steps, which is too long to tell", f"读它的这段时间里 {readers:,} 位读者要写 {setting.writes:,} 步，太长，讲不完"
        raise BadInput("prompt", prompt, en, zh)
    before = setting.run("whole", None)
    arrives = before.steps[setting.lead].ended
    alone, moved, link = setting.alone, price.request_bytes(prompt), price.chip.link_bytes_per_s
    passages = []
    for mode in setting.modes:
        if mode != "separate":
            passages.append(setting.passage(mode, setting.run(mode, arrives), before, arrives, tpot_target))
            continue
        reading = simulate(Scheduler(pool(prompt + 1), 1), [Job(prompt, 1, arrives)], price)
        read = reading.sequences[0].first
        there = read + moved / link
        passages.append(setting.passage(mode, setting.run(mode, there), before, arrives, tpot_target, (read - arrives, there - arrives)))
    since = before.steps[1].ended - before.steps[1].took - arrives
    return Stall(tuple(passages), refused, setting.plain, alone, moved, link, since, setting.until, clock, price.error)


def require(mode: Mode, price: Clock, prompt: int, readers: int, budget: int) -> None:
    """Raises BadInput where a way cannot be had."""
    left = budget - readers
    if mode == "chunked" and left < 1:
        en, zh = f"the {readers:,} readers use it up, and the prompt would never be read", f"{readers:,} 位读者就用完了，prompt 永远读不到"
        raise BadInput("budget", budget, en, zh)
    if mode == "chunked" and (steps := ceil(prompt / left)) * (readers + 1) > MOST_READS:
        en, zh = f"beside {readers:,} readers it leaves {left:,} tokens a step, so that the prompt would take {steps:,} steps", f"{readers:,} 位读者之外每步只剩 {left:,} 个 token，这个 prompt 要读 {steps:,} 步"
        raise BadInput("budget", budget, en, zh)
    if mode == "separate" and not price.chip.link_bytes_per_s:
        name = price.chip.name
        raise BadInput("chip", price.chip.id, f"the bandwidth from card to card is not known for {name}, so nothing can be said of a second one", f"不知道 {name} 卡间的带宽，算不了两张卡")


def pool(*positions: int) -> BlockPool:
    """Enough for sequences of so many positions, and the one more for each that the scheduler wants free."""
    return BlockPool(sum(ceil(each / SPAN) + 1 for each in positions), SPAN)


class _Setting:
    """One moment: who is there, how long it is told of, and the blocks for that."""

    def __init__(self, price: Clock, prompt: int, readers: int, context: int, budget: int, modes: tuple[Mode, ...]):
        self.price, self.prompt, self.readers, self.context, self.budget, self.modes = price, prompt, readers, context, budget, modes
        self.plain = float(price.step(readers, readers * context))
        self.alone = float(price.step(0, 0, prompt, prompt**2 / 2, 1))
        last = max(self._first_token(mode) for mode in modes)
        self.until = last + max(MARGIN * last, LEAST_STEPS * self.plain)
        self.lead = min(context - 1, ceil(max(MARGIN * last / self.plain, LEAST_STEPS)))  # steps that are told of before the arrival
        self.later = ceil(self.until / self.plain) + 2  # no step is shorter than the plain one
        self.writes = 1 + self.lead + self.later  # tokens of a reader, the first in the step that puts it there
        each = BlockPool(1, BLOCK_SIZE).blocks_for
        self.blocks = readers * (each(context + 1 + self.later) + 1) + each(prompt + self.later) + 1  # the scheduler keeps one more for each that runs

    def _first_token(self, mode: Mode) -> float:
        """About when the newcomer's comes, by the clock alone: so long must the readers' texts be."""
        cells = self.readers * self.context
        if mode == "separate":
            return self.alone + self.price.request_bytes(self.prompt) / self.price.chip.link_bytes_per_s
        each = self.prompt if mode == "whole" else min(self.prompt, self.budget - self.readers)
        starts = np.arange(0, self.prompt, each)
        ends = np.minimum(starts + each, self.prompt)
        at = np.arange(len(starts))
        return float(np.sum(self.price.step(self.readers + 0 * at, cells + self.readers * at, ends - starts, (ends**2 - starts**2) / 2, ends == self.prompt, starts)))

    def require_fit(self) -> None:
        """Raises Refused, with what is missing, when readers and newcomer do not fit beside the weights to the end of what is told."""
        price, shape = self.price, self.price.shape
        if self.blocks <= price.blocks(BLOCK_SIZE, states=self.readers + 1) or shape.textbook:
            return
        memory = price.chip.memory_bytes
        weights, cached = memory - price.free_bytes, self.blocks * BLOCK_SIZE * price.kv_bytes + (self.readers + 1) * shape.state_bytes
        missing = weights + cached - memory
        gb = {"needed_gb": (weights + cached) / 1e9, "weights_gb": weights / 1e9, "cache_gb": cached / 1e9, "memory_gb": memory / 1e9}
        raise Refused("does_not_fit", model=shape.name, chip=price.chip.name, missing_bytes=missing, missing_gb=missing / 1e9, **gb)

    def run(self, mode: Mode, arrives: float | None) -> Trace:
        """The readers' card; the readers come first, and a newcomer where it comes at all."""
        handed = mode == "separate"
        price = replace(self.price, link_bytes_per_s=inf) if handed else self.price  # the way over the link is over when it joins
        blocks = pool(*[self.context + 1 + self.later] * self.readers, self.prompt + self.later)
        scheduler = Among(blocks, self.readers, POLICY[mode], self.budget, handed)
        jobs = [Job(self.context - self.lead, self.writes)] * self.readers
        return simulate(scheduler, jobs if arrives is None else [*jobs, Job(self.prompt, self.later, arrives)], price)

    def passage(self, mode: Mode, trace: Trace, before: Trace, arrives: float, target: float, handed: tuple[float, float] | None = None) -> Passage:
        steps = [step for step in trace.steps if step.ended - arrives <= self.until][1:]  # without the one that put the readers there
        beats = tuple(
            Beat(step.ended - step.took - arrives, step.ended - arrives, sum(read for _, _, kind, read, _ in step.lanes if kind == "prefill"), sum(wrote for *_, wrote in step.lanes))
            for step in steps
        )  # fmt: skip
        told = [step.ended - arrives for step in trace.steps if any(who == 0 and wrote for _, who, _, _, wrote in step.lanes)]
        gaps = tuple(Gap(now, now - last) for last, now in zip(told, told[1:]) if now <= self.until)
        after = [gap.seconds for gap in gaps if gap.at > 0]
        reading = [beat for beat in beats if beat.read]
        first = handed[1] if handed else reading[-1].ended
        undisturbed = sum(step.ended - arrives <= first for step in before.steps) - sum(at <= first for at in told)
        return Passage(
            mode, 2 if handed else 1, beats, gaps, (0.0, handed[0] if handed else first), handed, first, max(after), sum(seconds > target for seconds in after),
            self.readers * undisturbed, reading[-1].ended if reading else 0.0, self.readers / self.plain / (2 if handed else 1),
        )  # fmt: skip
