"""Speculation without chance: a guess stays exactly when it is the token that the target would have written itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from components import Guess, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Text
from components.replay import LONGEST, Draft, Prompt, nearest, recorded, spoken
from components.text import Words, digits
from compute.measures.distributions import PROMPTS
from compute.measures.drafting import DRAFTS, REPLAY_KS, REPLAY_TOKENS, TARGET, replay_name
from compute.quantity import Quantity

EXAMPLE = (3, 0, 3)  # accepted in each round of the worked example, k = 4: 9 tokens in 3 forwards


@parameters
class Params:
    """preset: a model's run, or the worked example. text: the learner's own; empty for the recorded prompt."""

    preset: Literal["run", "example"] = "run"
    prompt: Prompt = "giving"
    text: Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST)] = ""
    draft: Draft = "mini-64"
    k: Annotated[int, Field(ge=1, le=8)] = 4


@dataclass(frozen=True)
class Turn:
    """One forward. The accepted guesses and `last`, the target's own token, are written."""

    guesses: tuple[str, ...]
    accepted: int
    last: str
    written: int  # accepted + 1, fewer only where the text ends


@dataclass(frozen=True)
class Result:
    params: Params
    turns: tuple[Turn, ...]
    k: int
    prompt: tuple[str, ...]
    run: Mapping[str, Any] | None  # the service's, or the recording; None for the example
    mark: Literal["live", "replay", "computed"]
    waiting: bool

    @property
    def ratios(self) -> tuple[float, ...]:
        """Tokens per forward after each forward."""
        return tuple(tokens / forwards for forwards, tokens in enumerate(accumulate(turn.written for turn in self.turns), 1))

    @property
    def tokens(self) -> int:
        return sum(turn.written for turn in self.turns)


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    if params.preset == "example":
        return Result(params, worked(EXAMPLE, 4), 4, (), None, "computed", False)
    if answer is not None:
        return _of(params, answer, "live", False)
    k, prompt = nearest(params.k, REPLAY_KS), next((name for name, text in PROMPTS.items() if text == params.text), params.prompt)
    kept = recorded(prompt, params.draft)[replay_name(k, 0.0)]
    return _of(params, kept, "replay", k != params.k or params.text not in ("", PROMPTS[prompt]))


def _of(params: Params, said: Mapping[str, Any], mark: Literal["live", "replay"], waiting: bool) -> Result:
    turns = tuple(
        Turn(tuple(g["piece"] for g in told["guesses"]), sum(bool(g["accepted"]) for g in told["guesses"]), told["last_piece"], told["written"])
        for told in said["rounds"]
    )
    return Result(params, turns, said["k"], (said["text"], said["first"]), said, mark, waiting)


def worked(accepted: Sequence[int], k: int) -> tuple[Turn, ...]:
    """Turns from how many guesses each keeps; a token reads as its place in the text."""
    made, place = [], 0
    for kept in accepted:
        right = tuple(str(place + 1 + i) for i in range(kept))
        wrong = ("✗",) * (kept < k) + ("·",) * (k - kept - 1)
        place += kept + 1
        made.append(Turn((*right, *wrong), kept, str(place), kept + 1))
    return tuple(made)


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words = scene.words
    return View(
        picture=Stage(_stage(result, words), steps=len(result.turns), height=520, start=len(result.turns) - 1),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, words),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified_example" if result.run is None else "simplified"),
        derivation=words("derivation", sums=_sums(result), k=result.k, most=result.k + 1),
    )


def _stage(result: Result, words: Words) -> dict[str, Any]:
    return {
        "turns": [[[spoken(piece, words) for piece in turn.guesses], turn.accepted, spoken(turn.last, words), turn.written] for turn in result.turns], "ratios": result.ratios, "k": result.k,
        "prompt": result.prompt, "waiting": result.waiting, "example": result.run is None,
    }  # fmt: skip


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, before, ratio = scene.words, scene.before, f"{result.ratios[-1]:.2f}"
    old = f"{before.ratios[-1]:.2f}" if before is not None else ratio
    written, right = [turn.written for turn in result.turns], sum(turn.accepted for turn in result.turns)
    return (
        Readout(words("readout.ratio"), ratio, words("unit.per_forward"), words("readout.before", value=old) if old != ratio else "",
                words("readout.ratio_note", tokens=result.tokens, forwards=len(result.turns))),
        Readout(words("readout.worst"), str(min(written)), _unit(min(written), words), "", words("readout.worst_note", n=sum(turn.accepted == 0 for turn in result.turns))),
        Readout(words("readout.best"), str(max(written)), _unit(max(written), words), "", words("readout.best_note", most=result.k + 1)),
        Readout(words("readout.kept"), f"{right}", _unit(right, words), "",
                words("readout.kept_note", own=result.tokens - sum(min(t.accepted, t.written) for t in result.turns))),
    )  # fmt: skip


def _unit(count: int, words: Words) -> str:
    return words("unit.one" if count == 1 else "unit.many")


def _sentence(result: Result, words: Words) -> str:
    values = {
        "tokens": result.tokens, "forwards": len(result.turns), "ratio": f"{result.ratios[-1]:.2f}", "k": result.k, "most": result.k + 1,
        "alone": sum(turn.accepted == 0 for turn in result.turns), "path": " → ".join(f"{ratio:.2f}" for ratio in result.ratios[:3]),
    }  # fmt: skip
    if result.run is None:
        return words("sentence_example", **values)
    said = words("sentence", text=result.run["text"], draft=words(f"option.draft.{result.run['draft']}"), **values)
    return said + (words("sentence_alone", **values) if values["alone"] else "")


def _sums(result: Result) -> str:
    shown = result.turns[:8]
    more = " + …" if len(result.turns) > len(shown) else ""
    return f"({' + '.join(str(turn.written) for turn in shown)}{more}) / {len(result.turns)} = {result.tokens} / {len(result.turns)} = {result.ratios[-1]:.2f}"


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"forward": i, "guesses": " ".join(turn.guesses), "accepted": turn.accepted, "target_token": turn.last, "tokens_written": turn.written, "tokens_per_forward": ratio}
        for i, (turn, ratio) in enumerate(zip(result.turns, result.ratios), 1)
    )


def _papers(result: Result) -> tuple[Quantity, ...]:
    counted = {"tokens": result.tokens, "forwards": len(result.turns)}
    if result.run is None:
        return (Quantity(result.ratios[-1], "token/forward", "computed", "Σ (accepted + 1) / forwards", {"accepted": EXAMPLE, "k": 4}, says=SAYS),)
    around = dict(result.run["conditions"]) | {"text": result.run["text"]}
    return (Quantity(result.ratios[-1], "token/forward", "measured", "Σ (accepted + 1) / forwards", counted, None, around, says=SAYS),)


SAYS = {"zh": "目标每次前向写出的 token", "en": "tokens per forward of the target"}


def _arguments(params: Params) -> dict[str, Any]:
    text = params.text or PROMPTS[params.prompt]
    return {"target": TARGET, "draft": params.draft, "k": params.k, "text": text, "temperature": 0.0, "new": REPLAY_TOKENS}


def _runs(params: Params) -> bool:
    return params.preset == "run"


WIDGET = Widget(
    id="greedy-stepper",
    Params=Params,
    controls=(
        Choice("preset", lambda: ("run", "example")), Choice("draft", lambda: DRAFTS, when=_runs), Range("k", 1, 8, when=_runs),
        Choice("prompt", lambda: tuple(PROMPTS), when=lambda p: _runs(p) and not p.text), Text("text", LONGEST, when=_runs),
    ),
    shown=3,
    run=run,
    draw=draw,
    guesses={"worst": Guess(truth=lambda result: Quantity(1, "token", "computed", "accepted + 1, accepted = 0"), choices=("0", "1", "k"), right=lambda result: "1")},
    live=Live("speculate.run", _arguments, when=_runs),
    presets={"en": {"prompt": "english"}},
)  # fmt: skip
