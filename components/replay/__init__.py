"""A real speculative run, event by event: guesses, the number that decides each, the second draw, the text that grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from components import Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Stops, Text
from components.text import Words, digits
from compute import precompute, speculative
from compute.measures.distributions import PROMPTS
from compute.measures.drafting import DRAFTS, REPLAY_KS, REPLAY_TEMPERATURES, REPLAY_TOKENS, TARGET, replay_name
from compute.quantity import Quantity

Prompt = Literal["manual", "english", "giving", "poem"]
Draft = Literal["mini-64", "mini-128", "lookup", "mtp"]
TEMPERATURES = (0.0, 0.3, 0.7, 1.0, 1.3, 1.6)
LONGEST = 200
END = "<|endoftext|>"


@parameters
class Params:
    """text: the learner's own; empty for the recorded prompt."""

    prompt: Prompt = "giving"
    text: Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST)] = ""
    draft: Draft = "mini-64"
    k: Annotated[int, Field(ge=1, le=8)] = 4
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


@dataclass(frozen=True)
class Result:
    """run: as the service's speculate.run says it; a recording has no seconds."""

    params: Params
    run: Mapping[str, Any]
    mark: Literal["live", "replay"]
    waiting: bool  # these settings were not run yet; the nearest recording is shown

    @property
    def acceptance(self) -> float:
        """α of this run: mean of Σ min(p, q) over its checked guesses."""
        tally = self.run["tally"]
        return tally["overlap"] / tally["checked"] if tally["checked"] else 0.0

    @property
    def tokens_per_forward(self) -> float:
        return self.run["tally"]["tokens"] / self.run["tally"]["rounds"]

    @property
    def expected(self) -> float:
        """E by the formula, from this run's α; a round in which nothing could be guessed gives 1."""
        guessed = sum(bool(told["guesses"]) for told in self.run["rounds"]) / len(self.run["rounds"])
        return 1 + guessed * (speculative.expected_tokens(self.acceptance, self.run["k"]) - 1)


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    if answer is not None:
        return Result(params, answer, "live", False)
    k, temperature = nearest(params.k, REPLAY_KS), nearest(params.temperature, REPLAY_TEMPERATURES)
    prompt = next((name for name, text in PROMPTS.items() if text == params.text), params.prompt)
    kept = recorded(prompt, params.draft)[replay_name(k, temperature)]
    asked = (params.text or PROMPTS[prompt], params.k, params.temperature, params.seed)
    return Result(params, kept, "replay", asked != (PROMPTS[prompt], k, temperature, kept["seed"]))


def recorded(prompt: str, draft: str) -> Mapping[str, Any]:
    """The stored runs of one draft on one prompt, by replay_name. Raises BrokenData when they are not there."""
    return precompute.recorded(f"drafting.replay.{prompt}.{draft}")


def nearest(value: float, stops: tuple[float, ...]) -> Any:
    return min(stops, key=lambda stop: abs(stop - value))


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    events = steps(result.run)
    return View(
        picture=Stage(_stage(result, events, scene.words), steps=len(events), height=560, start=opening(result.run, events)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene.words),
        rows=_rows(result.run),
        papers=_papers(result),
        simplified=scene.words("simplified"),
    )


def steps(run: Mapping[str, Any]) -> list[tuple[int, int]]:
    """(round, event): 0 the guesses are there, 1 … their checks, and last the token that ends the round."""
    return [(i, event) for i, told in enumerate(run["rounds"]) for event in range(_checked(told) + 2)]


def _checked(told: Mapping[str, Any]) -> int:
    return sum(guess["accepted"] is not None for guess in told["guesses"])


def opening(run: Mapping[str, Any], events: list[tuple[int, int]]) -> int:
    """The end of the first round that keeps two guesses and rejects one; else of any with a rejection."""
    ends = [(index, run["rounds"][i]) for index, (i, event) in enumerate(events) if event == _checked(run["rounds"][i]) + 1]
    for kept in (2, 1, 0):
        for index, told in ends:
            if not told["bonus"] and sum(bool(g["accepted"]) for g in told["guesses"]) >= kept:
                return index
    return len(events) - 1


def _stage(result: Result, events: list[tuple[int, int]], words: Words) -> dict[str, Any]:
    run = result.run
    rounds = [
        {
            "guesses": [[spoken(g["piece"], words), g["p"], g["q"], g["u"], g["accepted"]] for g in told["guesses"]],
            "last": spoken(told["last_piece"], words), "bonus": told["bonus"], "written": told["written"],
        }
        for told in run["rounds"]
    ]  # fmt: skip
    return {
        "prompt": [run["text"]], "first": spoken(run["first"], words), "rounds": rounds, "events": events, "k": run["k"],
        "drafter": words(f"option.draft.{run['draft']}"), "expected": result.expected, "waiting": result.waiting,
    }  # fmt: skip


def spoken(piece: str, words: Words) -> str:
    """A piece as the picture names it: the model's mark for the end is no text to be read."""
    return words("view.end") if piece == END else piece


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, tally, before = scene.words, result.run["tally"], scene.before

    def change(now: str, then: str) -> str:
        return words("readout.before", value=then) if before is not None and now != then else ""

    per, share = digits(result.tokens_per_forward), _share(tally)
    found = [
        Readout(words("readout.per_forward"), per, words("unit.per_forward"), change(per, digits(before.tokens_per_forward) if before else ""),
                words("readout.per_forward_note", tokens=tally["tokens"], rounds=tally["rounds"])),
        Readout(words("readout.expected"), digits(result.expected), words("unit.per_forward"), "", words("readout.expected_note", alpha=digits(result.acceptance), k=result.run["k"])),
        Readout(words("readout.share"), share, "%", change(share, _share(before.run["tally"]) if before else ""),
                words("readout.share_note", accepted=tally["accepted"], checked=tally["checked"])),
    ]  # fmt: skip
    if clock := _clock(result.run):
        found.append(Readout(words("readout.clock"), f"{digits(clock[0])} + {digits(clock[1])}", "ms", "", words("readout.clock_note", n=tally["rounds"])))
    return tuple(found)


def _share(tally: Mapping[str, Any]) -> str:
    return digits(100 * tally["accepted"] / tally["checked"]) if tally["checked"] else "–"


def _clock(run: Mapping[str, Any]) -> tuple[float, float] | None:
    """Milliseconds of guessing and of checking, medians over the rounds; None for a recording."""
    if not run["rounds"] or "draft_seconds" not in run["rounds"][0]:
        return None
    return tuple(1e3 * median(told[part] for told in run["rounds"]) for part in ("draft_seconds", "target_seconds"))


def _sentence(result: Result, words: Words) -> str:
    run, tally = result.run, result.run["tally"]
    said = words(
        "sentence", text=run["text"], draft=words(f"option.draft.{run['draft']}"), k=run["k"], t=f"{run['temperature']:g}", rounds=tally["rounds"],
        tokens=tally["tokens"], per=digits(result.tokens_per_forward), expected=digits(result.expected), alpha=digits(result.acceptance),
    )  # fmt: skip
    bonus = sum(told["bonus"] and bool(told["guesses"]) for told in run["rounds"])
    alone = sum(not any(g["accepted"] for g in told["guesses"]) for told in run["rounds"])
    return said + words("sentence_rounds", bonus=bonus, alone=alone) + (words("sentence_alone") if alone else "")


def _rows(run: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    found = []
    for number, told in enumerate(run["rounds"], 1):
        for place, g in enumerate(told["guesses"], 1):
            ratio = g["p"] / g["q"] if g["q"] else None
            found.append({"round": number, "guess": place, "token": g["piece"], "p": g["p"], "q": g["q"], "p_over_q": ratio, "u": g["u"], "accepted": g["accepted"], "from": "draft"})
        source = "bonus" if told["bonus"] else "residual"
        found.append({"round": number, "guess": None, "token": told["last_piece"], "p": None, "q": None, "p_over_q": None, "u": told["v"], "accepted": None, "from": source})
    return tuple(found)


def _papers(result: Result) -> tuple[Quantity, ...]:
    tally, around = result.run["tally"], dict(result.run["conditions"]) | {"text": result.run["text"]}
    return (
        Quantity(result.tokens_per_forward, "token/forward", "measured", "tokens / forwards of the target", {k: tally[k] for k in ("tokens", "rounds")}, None, around, says=SAYS["per"]),
        Quantity(result.acceptance, "ratio", "measured", "mean Σ min(p, q) over the checked guesses", {"checked": tally["checked"]}, None, around, says=SAYS["alpha"]),
        Quantity(result.expected, "token/forward", "computed", "E = (1 − α^(k+1)) / (1 − α)", {"α": result.acceptance, "k": result.run["k"]}, says=SAYS["expected"]),
    )


SAYS = {
    "per": {"zh": "目标每次前向写出的 token", "en": "tokens per forward of the target"},
    "alpha": {"zh": "这次运行的接受率 α", "en": "acceptance α of this run"},
    "expected": {"zh": "公式的期望 E", "en": "what the formula expects, E"},
}


def _arguments(params: Params) -> dict[str, Any]:
    text = params.text or PROMPTS[params.prompt]
    return {"target": TARGET, "draft": params.draft, "k": params.k, "text": text, "temperature": params.temperature, "seed": params.seed, "new": REPLAY_TOKENS}


WIDGET = Widget(
    id="replay",
    Params=Params,
    controls=(
        Choice("draft", lambda: DRAFTS), Range("k", 1, 8), Stops("temperature", TEMPERATURES, show=lambda v: f"{v:g}"),
        Choice("prompt", lambda: tuple(PROMPTS), when=lambda p: not p.text), Text("text", LONGEST), Range("seed", 0, 99),
    ),
    shown=3,
    run=run,
    draw=draw,
    live=Live("speculate.run", _arguments),
    presets={"en": {"prompt": "english"}},
)  # fmt: skip
