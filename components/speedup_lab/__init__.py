"""What a round of guesses is worth: tokens per forward and speed-up, for any acceptance, number of guesses and cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import log, sqrt
from typing import Annotated, Any

from pydantic import Field

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Range, Stops
from components.text import Words, digits
from compute import numbers, speculative
from compute.quantity import Quantity

MOST = 16  # guesses in a round that the lab offers and draws
ROUNDS = 1000
OPENS_AT = 5  # the step, six rounds played


@parameters
class Params:
    """alpha: chance that a guess is accepted. k: guesses a round. c: a forward of the draft over one of the target."""

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.8
    k: Annotated[int, Field(ge=1, le=MOST)] = 4
    c: Annotated[float, Field(ge=0, le=1)] = 0.05
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0


@dataclass(frozen=True)
class Draft:
    """One of ours at the k where it was fastest, in seconds, on the machine that measured it."""

    name: str
    k: int
    quantity: Quantity


def measured() -> tuple[Draft, ...]:
    """Greedy decoding's wall-clock speed-up, where it was measured."""
    found: dict[str, Draft] = {}
    for key in numbers.measured_entries():
        if named := re.fullmatch(r"drafting\.([\w-]+)\.k(\d+)\.t0\.speedup", key):
            name, k = named[1], int(named[2])
            quantity = numbers.resolve(f"~{key}")
            if k <= MOST and (name not in found or quantity.value > found[name].quantity.value):
                found[name] = Draft(name, k, quantity)
    return tuple(found.values())


@dataclass(frozen=True)
class Result:
    params: Params
    expected: float  # tokens per forward of the target
    spread: float  # standard deviation of one round's tokens
    speedup: float
    curve: tuple[float, ...]  # speed-up of k = 0 … MOST
    best: int
    pays_below: float  # the cost c at which the speed-up is 1
    accepted: tuple[int, ...]  # by round
    drafts: tuple[Draft, ...]  # measured

    @property
    def mean(self) -> float:
        return 1 + sum(self.accepted) / len(self.accepted)

    @property
    def interval95(self) -> tuple[float, float]:
        """Of the mean, from the spread of the rounds themselves."""
        n, mean = len(self.accepted), self.mean
        half = 1.959964 * sqrt(sum((a + 1 - mean) ** 2 for a in self.accepted) / (n - 1) / n)
        return mean - half, mean + half


def run(params: Params, answer: None = None) -> Result:
    alpha, k, c = params.alpha, params.k, params.c
    expected = speculative.expected_tokens(alpha, k)
    return Result(
        params, expected, speculative.tokens_spread(alpha, k), speculative.speedup(alpha, k, c),
        tuple(speculative.speedup(alpha, guesses, c) for guesses in range(MOST + 1)), speculative.best_k(alpha, c, MOST), (expected - 1) / k,
        tuple(speculative.play_rounds(alpha, k, ROUNDS, params.seed).tolist()), measured(),
    )  # fmt: skip


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, p = scene.words, result.params
    return View(
        picture=Stage(_stage(result, scene), steps=ROUNDS, height=520, start=OPENS_AT),
        readouts=_readouts(result, scene.before, words),
        sentence=_sentence(result, words),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified") + (words("measured") if result.drafts else ""),
        derivation=words(
            "derivation", alpha=f"{p.alpha:g}", k=p.k, c=f"{p.c:g}", terms=_terms(p), expected=digits(result.expected), below=f"{1 + p.c * p.k:.4g}",
            speedup=digits(result.speedup), next=p.k + 1,
        ),
    )  # fmt: skip


def _terms(p: Params) -> str:
    """"1 + 0.8 + 0.8^2 + … + 0.8^4" """
    a, terms = f"{p.alpha:g}", ["1", f"{p.alpha:g}", *(f"{p.alpha:g}^{{{i}}}" for i in range(2, p.k + 1))]
    return " + ".join(terms if len(terms) <= 5 else [*terms[:3], r"\cdots", rf"{a}^{{{p.k}}}"])


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    p, before = result.params, scene.before
    moved = before is not None and before.curve != result.curve
    return {
        "alpha": p.alpha, "k": p.k, "c": p.c, "accepted": result.accepted, "expected": result.expected, "spread": result.spread,
        "curve": result.curve, "best": result.best, "open": result.best == MOST,
        "ghost": {"curve": before.curve, "k": before.params.k} if moved else None,
        "drafts": [{"name": d.name, "k": d.k, "speedup": d.quantity.value, "interval": d.quantity.interval95} for d in result.drafts],
    }  # fmt: skip


def _readouts(result: Result, before: Result | None, words: Words) -> tuple[Readout, ...]:
    low, high = result.interval95

    def was(now: str, then: str | None) -> str:
        return words("before", value=then) if then is not None and then != now else ""

    best = _best(result, words)
    return (
        Readout(words("readout.expected"), digits(result.expected), words("unit.expected"), was(digits(result.expected), before and digits(before.expected)),
                words("note.expected")),
        Readout(words("readout.speedup"), digits(result.speedup), words("unit.times"), was(digits(result.speedup), before and digits(before.speedup)),
                words("note.speedup.pays" if result.speedup > 1 else "note.speedup.loses")),
        Readout(words("readout.best"), best, "", was(best, before and _best(before, words)),
                words("note.best", speedup=digits(result.curve[result.best])) if result.best else words("note.best_none")),
        Readout(words("readout.pays"), digits(result.pays_below, 2), "", was(digits(result.pays_below, 2), before and digits(before.pays_below, 2)), words("note.pays")),
        Readout(words("readout.simulated"), digits(result.mean), words("unit.expected"), "",
                words("note.simulated", low=digits(low), high=digits(high), n=f"{ROUNDS:,}")),
    )  # fmt: skip


def _best(result: Result, words: Words) -> str:
    return words("best.more", k=MOST) if result.best == MOST else str(result.best)


def _sentence(result: Result, words: Words) -> str:
    p = result.params
    said = words(
        "sentence", alpha=f"{p.alpha:g}", k=p.k, c=f"{p.c:g}", expected=digits(result.expected), cost=f"{1 + p.c * p.k:.3g}", speedup=digits(result.speedup)
    )
    if result.best == 0:
        return said + words("end.none")
    if result.best == p.k:
        return said + words("end.here" if p.k < MOST else "end.most", k=p.k)
    return said + words("end.best" if result.best < MOST else "end.best_most", k=result.best, speedup=digits(result.curve[result.best]))


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    p = result.params
    return tuple(
        {"k": k, "tokens_per_forward": speculative.expected_tokens(p.alpha, k), "cost_forwards": 1 + p.c * k, "speedup": speedup, "alpha": p.alpha, "c": p.c}
        for k, speedup in enumerate(result.curve)
    ) + tuple({"measured_draft": d.name, "k": d.k, "speedup": d.quantity.value} for d in result.drafts)


def _papers(result: Result) -> tuple[Quantity, ...]:
    p, (low, high) = result.params, result.interval95
    given = {"α": p.alpha, "k": p.k}
    rounds = given | {"rounds": ROUNDS, "seed": p.seed, "95 %": f"{low:.4g} – {high:.4g}"}
    return (
        Quantity(result.expected, "token", "computed", "E = (1 − α^(k+1)) / (1 − α)", given, says=SAYS["expected"]),
        Quantity(result.speedup, "×", "computed", "E / (1 + c·k)", given | {"c": p.c}, says=SAYS["speedup"]),
        Quantity(result.best, "count", "computed", "argmax over k of E / (1 + c·k)", {"α": p.alpha, "c": p.c, "k": f"0 … {MOST}"}, says=SAYS["best"]),
        Quantity(result.pays_below, "", "computed", "(E − 1) / k", given, says=SAYS["pays"]),
        Quantity(result.mean, "token", "measured", "mean of the rounds", {}, None, rounds, (low, high), SAYS["simulated"]),
        *(draft.quantity for draft in result.drafts),
    )


SAYS = {
    "expected": {"zh": "目标每次前向平均写出的 token（Leviathan 等 2023，式 1）", "en": "tokens per forward of the target, on average (Leviathan et al. 2023, eq. 1)"},
    "speedup": {"zh": "加速比（同上，定理 3.8）", "en": "speed-up (there, theorem 3.8)"},
    "best": {"zh": "最快的 k", "en": "the fastest k"},
    "pays": {"zh": "c 低于它才有得赚", "en": "it pays where c is below this"},
    "simulated": {"zh": "模拟：每轮平均写出的 token", "en": "simulated: tokens a round, on average"},
}

OFFERED = ("2", "4", "8", "16")


def _fastest(result: Result) -> str:
    return min(OFFERED, key=lambda k: abs(log(int(k) / max(1, result.best))))


WIDGET = Widget(
    id="speedup-lab",
    Params=Params,
    controls=(
        Range("alpha", 0.0, 1.0, 0.01, "%.2f"),
        Range("k", 1, MOST),
        Stops("c", (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0), lambda c: f"{c:g}"),
        Range("seed", 0, 99),
    ),
    run=run,
    draw=draw,
    guesses={
        "k": Guess(
            truth=lambda r: Quantity(r.best, "count", "computed", "argmax over k of E / (1 + c·k)", {"α": r.params.alpha, "c": r.params.c}),
            choices=OFFERED, right=_fastest,
        ),
    },
    shown=3,
)  # fmt: skip
