"""Which draft, how many guesses: what it saves in forwards, what that promises, and what the clock says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from components import Guess, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range
from components.text import Words, digits
from compute import numbers, precompute, speculative
from compute.errors import BrokenData
from compute.measures.drafting import DRAFTS, PUBLIC, PUBLIC_DRAFTS, TARGET, key_of, name_of
from compute.quantity import Quantity

TARGETS = {TARGET: DRAFTS, PUBLIC: PUBLIC_DRAFTS}
KS = tuple(range(1, 9))
TEMPERATURES = ("0", "0.7", "1")
WIDTHS = tuple(range(1, 10))


@parameters
class Params:
    """draft (public_draft for SmolLM2) and k: the cell that is looked at. dtype: of SmolLM2's clock; our own models run in
    float32, and SmolLM2 is measured at temperature 0."""

    target: Literal["mini-256", "smollm2-135m"] = TARGET
    temperature: Literal["0", "0.7", "1"] = "0"
    draft: Literal["mini-64", "mini-128", "lookup", "mtp"] = "mini-64"
    public_draft: Literal["smollm2-draft", "mtp", "lookup", "both"] = "smollm2-draft"
    k: Annotated[int, Field(ge=1, le=8)] = 4
    dtype: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class Cell:
    """One draft and k. None: not known here. tokens come from a run (ran), else from the formula. Speeds are of one machine."""

    draft: str
    k: int
    acceptance: float | None
    tokens: float | None
    ran: bool
    cost_by_parameters: float | None
    cost_by_time: float | None = None
    check_over_step: float | None = None
    speedup: float | None = None
    quartiles: tuple[float, float] | None = None
    speed: float | None = None  # token/s
    plain: float | None = None
    same: tuple[int, int] | None = None  # prompts with the target's own greedy text, of how many
    now: bool = False  # measured just now

    @property
    def predicted_by_parameters(self) -> float | None:
        return self._predicted(self.cost_by_parameters)

    @property
    def predicted_by_time(self) -> float | None:
        return self._predicted(self.cost_by_time)

    def _predicted(self, cost: float | None) -> float | None:
        """E / (1 + c·k), with the tokens per forward that were counted for E."""
        return None if cost is None or self.tokens is None else self.tokens / (1 + cost * self.k)


@dataclass(frozen=True)
class Result:
    params: Params
    cells: tuple[Cell, ...]
    forwards: Mapping[str, tuple[float, ...]]  # model → seconds of one forward with 1 … 9 tokens
    conditions: Mapping[str, Any]  # of the clock; {} where nothing was timed
    mark: Literal["live", "precomputed"]

    @property
    def chosen(self) -> Cell:
        return next(cell for cell in self.cells if (cell.draft, cell.k) == (drafted(self.params), self.params.k))

    @property
    def best(self) -> Cell | None:
        """The fastest by the clock, else None."""
        timed = [cell for cell in self.cells if cell.speedup is not None]
        return max(timed, key=lambda cell: cell.speedup, default=None)


def drafted(params: Params) -> str:
    return params.draft if params.target == TARGET else params.public_draft


def temperature(params: Params) -> float:
    return float(params.temperature) if params.target == TARGET else 0.0


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    kept = precompute.stored() | numbers.measured_entries()
    cells = tuple(_cell(kept, params, draft, k) for draft in TARGETS[params.target] for k in KS)
    around = next((entry["conditions"] for key, entry in kept.items() if key.startswith("drafting.forward.")), {})
    if answer is not None:
        cells = tuple(_live(cell, answer) if (cell.draft, cell.k) == (answer["draft"], answer["k"]) else cell for cell in cells)
        around = answer["conditions"]
    result = Result(params, cells, _forwards(kept, params), around, "precomputed" if answer is None else "live")
    if result.chosen.acceptance is None:
        key = f"drafting.{name_of(params.target, drafted(params))}"
        raise BrokenData("data/precomputed.json", f"no entry {key}.…; run python -m compute precompute --only {key}")
    return result


def _cell(kept: Mapping[str, Any], params: Params, draft: str, k: int) -> Cell:
    t = temperature(params)
    key, clock = key_of(params.target, draft, k, t), key_of(params.target, draft, k, t) + _suffix(params)

    def value(name: str) -> Any:
        return kept[name]["value"] if name in kept else None

    alpha, tokens = value(f"{key}.acceptance"), value(f"{key}.tokens_per_forward")
    if alpha is None:
        alpha, tokens = value(f"{clock}.acceptance_raced"), value(f"{clock}.tokens_per_forward_raced")
    ran = tokens is not None
    if alpha is None:  # not run at this k: what the formula makes of α at k = 4; look-up does not always have a guess
        alpha = value(f"{key_of(params.target, draft, 4, t)}.acceptance")
        tokens = None if alpha is None or draft in ("lookup", "both") else speculative.expected_tokens(alpha, k)
    same = (value(f"{key}.identical"), kept[f"{key}.identical"]["n"]) if f"{key}.identical" in kept else None
    if _suffix(params) or same is None:
        raced = kept.get(f"{clock}.same_raced")
        same = (raced["value"], raced["conditions"]["of"]) if raced else None if _suffix(params) else same
    found = Cell(draft, k, alpha, tokens, ran, value(f"drafting.{name_of(params.target, draft)}.cost_by_parameters"), same=same)
    if f"{clock}.speedup" not in kept:
        return found
    return replace(
        found, cost_by_time=value(f"{clock}.cost_by_time"), check_over_step=value(f"{clock}.check_over_step"), speedup=value(f"{clock}.speedup"),
        quartiles=tuple(kept[f"{clock}.speedup"]["conditions"]["quartiles"]), speed=value(f"{clock}.tokens_per_second"), plain=value(f"{clock}.plain_tokens_per_second"),
    )  # fmt: skip


def _suffix(params: Params) -> str:
    return ".bf16" if params.target == PUBLIC and params.dtype == "bfloat16" else ""


def _live(cell: Cell, said: Mapping[str, Any]) -> Cell:
    return replace(
        cell, acceptance=said["acceptance"], tokens=said["tokens_per_forward"], ran=True, cost_by_parameters=said["cost_by_parameters"], cost_by_time=said["cost_by_time"],
        check_over_step=said["check_over_step"], speedup=said["speedup"], quartiles=None, speed=said["tokens_per_second"], plain=said["plain_tokens_per_second"],
        same=None if said["same"] is None else (said["same"], said["prompts"]), now=True,
    )  # fmt: skip


def _forwards(kept: Mapping[str, Any], params: Params) -> dict[str, tuple[float, ...]]:
    found = {}
    for model in (params.target, *TARGETS[params.target]):
        keys = [f"drafting.forward.{model}{_suffix(params)}.m{width}" for width in WIDTHS]
        if all(key in kept for key in keys):
            found[model] = tuple(kept[key]["value"] for key in keys)
    return found


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words = scene.words
    return View(
        picture=Stage(_stage(result, scene), height=640),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, words),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified_timed" if result.conditions else "simplified", prompts=result.conditions.get("prompts", ""), model=result.conditions.get("cpu", "")),
        derivation=_derivation(result, words),
    )


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    words, chosen, best = scene.words, result.chosen, result.best
    before = scene.before.cells if scene.before is not None and scene.before.params.target == result.params.target else ()
    rows = [
        {
            "draft": words(f"option.draft.{cell.draft}"), "chosen": cell is chosen, "tokens": cell.tokens, "ran": cell.ran,
            "parameters": cell.predicted_by_parameters, "time": cell.predicted_by_time, "speedup": cell.speedup, "quartiles": cell.quartiles, "now": cell.now,
            "ghost": next((old.speedup for old in before if old.draft == cell.draft and old.k == scene.before.params.k), None),
        }
        for cell in result.cells if cell.k == result.params.k
    ]  # fmt: skip
    table = [
        {"draft": words(f"option.draft.{draft}"), "cells": [[c.k, c.speedup, c is chosen, c is best] for c in result.cells if c.draft == draft]}
        for draft in TARGETS[result.params.target]
    ]
    forwards = [{"name": words.get(f"option.draft.{model}", model), "target": model == result.params.target, "ms": [1e3 * s for s in seconds]} for model, seconds in result.forwards.items()]
    return {"rows": rows, "table": table, "forwards": forwards, "k": result.params.k, "wins": bool(best and best.speedup > 1)}


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, cell = scene.words, result.chosen
    old = scene.before.chosen if scene.before is not None else None

    def figure(label: str, value: float | None, was: float | None, unit: str = "", note: str = "") -> Readout:
        now, then = _shown(value), _shown(was)
        return Readout(words(f"readout.{label}"), now, unit, words("readout.before", value=then) if old is not None and now != then else "", note)

    per = lambda part: getattr(old, part) if old is not None else None  # noqa: E731
    cost = words("readout.cost_note", time=_shown(cell.cost_by_time)) if cell.cost_by_time is not None else words("readout.untimed")
    clock = words("readout.speed_note", plain=_shown(cell.plain), fast=_shown(cell.speed)) if cell.speed is not None else words("readout.untimed")
    same = words("readout.same_note", n=cell.same[0], of=cell.same[1]) if cell.same else words("readout.same_sampled" if temperature(result.params) else "readout.untimed")
    return (
        figure("tokens", cell.tokens, per("tokens"), words("unit.per_forward"), words("readout.alpha_note" if cell.ran else "readout.formula_note", alpha=_shown(cell.acceptance))),
        figure("cost", cell.cost_by_parameters, per("cost_by_parameters"), "", cost),
        figure("predicted", cell.predicted_by_parameters, per("predicted_by_parameters"), words("unit.times"), words("readout.predicted_note", time=_shown(cell.predicted_by_time))),
        figure("speedup", cell.speedup, per("speedup"), words("unit.times"), clock),
        Readout(words("readout.same"), f"{cell.same[0]}/{cell.same[1]}" if cell.same else "–", "", "", same),
    )  # fmt: skip


def _shown(value: float | None) -> str:
    return "–" if value is None else digits(value)


def _sentence(result: Result, words: Words) -> str:
    cell, best = result.chosen, result.best
    said = words(
        "sentence", target=words(f"option.target.{result.params.target}"), draft=words(f"option.draft.{cell.draft}"), k=cell.k, t=f"{temperature(result.params):g}",
        tokens=_shown(cell.tokens), parameters=_shown(cell.predicted_by_parameters), c=_shown(cell.cost_by_parameters),
    )  # fmt: skip
    if cell.speedup is None:
        return said + words("sentence_untimed")
    said += words("sentence_timed_win" if cell.speedup > 1 else "sentence_timed_loss", speedup=_shown(cell.speedup), c=_shown(cell.cost_by_time), check=_shown(cell.check_over_step))
    if best is None or cell.now:
        return said
    return said + words("sentence_best" if best.speedup > 1 else "sentence_none", draft=words(f"option.draft.{best.draft}"), k=best.k, speedup=_shown(best.speedup))


def _derivation(result: Result, words: Words) -> str:
    cell = result.chosen
    if cell.tokens is None or cell.predicted_by_parameters is None:
        return ""
    values = {"tokens": digits(cell.tokens), "k": cell.k, "c": digits(cell.cost_by_parameters), "parameters": digits(cell.predicted_by_parameters)}
    said = words("derivation", **values)
    if cell.cost_by_time is None:
        return said
    return said + words("derivation_time", **values, ct=digits(cell.cost_by_time), time=digits(cell.predicted_by_time), check=digits(cell.check_over_step),
                        both=digits(cell.tokens / (cell.check_over_step + cell.cost_by_time * cell.k)), speedup=digits(cell.speedup))  # fmt: skip


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "target": result.params.target, "draft": c.draft, "k": c.k, "temperature": temperature(result.params), "acceptance": c.acceptance,
            "tokens_per_forward": c.tokens, "tokens_were_counted": c.ran, "cost_by_parameters": c.cost_by_parameters, "cost_by_time": c.cost_by_time,
            "speedup_predicted_by_parameters": c.predicted_by_parameters, "speedup_predicted_by_time": c.predicted_by_time, "speedup_measured": c.speedup,
            "tokens_per_second": c.speed, "plain_tokens_per_second": c.plain, "prompts_with_the_same_greedy_text": c.same[0] if c.same else None,
        }
        for c in result.cells
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    cell, around = result.chosen, {"target": result.params.target, "draft": result.chosen.draft, "k": result.chosen.k, "temperature": temperature(result.params)}
    found = []
    if cell.tokens is not None and cell.ran:
        found.append(Quantity(cell.tokens, "token/forward", "measured", "tokens / forwards of the target", {}, None, around, says=SAYS["tokens"]))
    elif cell.tokens is not None:
        found.append(Quantity(cell.tokens, "token/forward", "computed", "E = (1 − α^(k+1)) / (1 − α)", {"α": cell.acceptance, "k": cell.k}, says=SAYS["tokens"]))
    if cell.predicted_by_parameters is not None:
        found.append(Quantity(cell.predicted_by_parameters, "×", "computed", "E / (1 + c·k)", {"E": cell.tokens, "c": cell.cost_by_parameters, "k": cell.k}, says=SAYS["parameters"]))
    if cell.speedup is not None:
        found.append(Quantity(cell.predicted_by_time, "×", "computed", "E / (1 + c·k)", {"E": cell.tokens, "c": cell.cost_by_time, "k": cell.k}, says=SAYS["time"]))
        clock = dict(result.conditions) | around | ({"quartiles": cell.quartiles} if cell.quartiles else {})
        found.append(Quantity(cell.speedup, "×", "measured", "tokens/s with speculation over tokens/s without, median over prompts", {}, None, clock, says=SAYS["speedup"]))
    return tuple(found)


SAYS = {
    "tokens": {"zh": "目标每次前向写出的 token", "en": "tokens per forward of the target"},
    "parameters": {"zh": "按参数量估的提速", "en": "speed-up predicted by parameters"},
    "time": {"zh": "按时间之比估的提速", "en": "speed-up predicted by the ratio of times"},
    "speedup": {"zh": "实测的提速", "en": "speed-up, measured"},
}


# ---- guess, live


def _larger(result: Result) -> Quantity:
    """mini-128 against mini-64 at the k shown: by the clock where it was measured, else as the parameters predict."""
    small, large = (next(c for c in result.cells if (c.draft, c.k) == (name, result.params.k)) for name in ("mini-64", "mini-128"))
    if small.speed is not None and large.speed is not None:
        around = dict(result.conditions) | {"k": result.params.k}
        return Quantity(large.speed / small.speed, "×", "measured", "tokens/s drafted by mini-128 over tokens/s drafted by mini-64", {}, None, around)
    return Quantity(large.predicted_by_parameters / small.predicted_by_parameters, "×", "computed", "E / (1 + c·k) of mini-128 over that of mini-64")


def _right(result: Result) -> str:
    ratio = _larger(result).value
    return "faster" if ratio > 1.03 else "slower" if ratio < 0.97 else "same"


def _arguments(params: Params) -> dict[str, Any]:
    return {"target": params.target, "draft": drafted(params), "k": params.k, "temperature": temperature(params)}


WIDGET = Widget(
    id="draft-choice",
    Params=Params,
    controls=(
        Choice("target", lambda: tuple(TARGETS)), Choice("draft", lambda: DRAFTS, when=lambda p: p.target == TARGET),
        Choice("public_draft", lambda: PUBLIC_DRAFTS, when=lambda p: p.target == PUBLIC),
        Range("k", KS[0], KS[-1]), Choice("temperature", lambda: TEMPERATURES, name=lambda id: id, when=lambda p: p.target == TARGET),
        Choice("dtype", lambda: ("float32", "bfloat16"), when=lambda p: p.target == PUBLIC),
    ),
    shown=3,
    run=run,
    draw=draw,
    guesses={"larger": Guess(truth=_larger, choices=("faster", "same", "slower"), right=_right)},
    live=Live("speculate.cell", _arguments, when=lambda p: p.dtype == "float32"),
)  # fmt: skip
