"""A state of fixed size: what it remembers as more and more is written into it, and from which length on it is the smaller one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Stops, Toggle
from components.text import Words, amount, digits, short
from compute import aside, numbers, recall
from compute.claims.architecture import even_tokens, full_layer_bytes, state_layer_bytes
from compute.quantity import Quantity
from compute.recall import PAIRS, RULES, WIDTHS, Pairs, Recall, Seed

BYTES = 4  # of a number of the state, FP32, as Gated DeltaNet layers keep it; pairs in the same, for the comparison
LONGEST = 4096  # tokens of the lower picture


@parameters
class Params:
    """pairs: written into the state. width: of a key, of a value, and of the state either way. rule: the one that is looked at."""

    pairs: Pairs = 128
    width: Literal[16, 32, 64, 128] = 64
    rule: Literal["additive", "delta", "softmax"] = "delta"
    rewritten: bool = False
    seed: Seed = 0


@dataclass(frozen=True)
class Result:
    params: Params
    curves: dict[str, tuple[Recall, ...]]
    mark: Literal["computed"] = "computed"

    def at(self, rule: str) -> Recall:
        """Of the number of pairs asked for, or the nearest that was looked at."""
        return min(self.curves[rule], key=lambda found: abs(found.pairs - self.params.pairs))

    @property
    def chosen(self) -> Recall:
        return self.at(self.params.rule)

    @property
    def state_numbers(self) -> int:
        return self.params.width**2

    @property
    def cache_numbers(self) -> int:
        return 2 * self.params.width * self.chosen.pairs

    @property
    def kept(self) -> int:
        """Numbers that the chosen way keeps."""
        return self.cache_numbers if self.params.rule == "softmax" else self.state_numbers


def run(params: Params, answer: None = None) -> Result:
    return Result(params, aside.call(recall.curves, params.width, params.rewritten, params.seed))


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words = scene.words
    return View(
        picture=Stage(_recall(result, scene), height=400, picks=("pairs",)),
        beside=(Stage(_bytes(scene), height=300),),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, words, scene.lang),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified", sharp=f"{recall.SHARP:g}", drawings=recall.DRAWINGS),
    )


def _recall(result: Result, scene: Scene) -> dict[str, Any]:
    p, chosen = result.params, result.chosen
    return {
        "part": "recall", "width": p.width, "rule": p.rule, "pairs": chosen.pairs,
        "curves": [{"rule": rule, "chosen": rule == p.rule, "points": [[f.pairs, round(f.cosine, 4)] for f in result.curves[rule]]} for rule in RULES],
        "ages": [round(v, 3) for v in chosen.cosines], "says": _sentence(result, scene.words, scene.lang),
    }  # fmt: skip


def _bytes(scene: Scene) -> dict[str, Any]:
    held, moved = even_tokens(1), even_tokens(2)
    says = scene.words("bytes_say", state=amount(state_layer_bytes(), "B", scene.lang), each=f"{full_layer_bytes():,}", held=f"{held:,}", moved=f"{moved:,}")
    return {"part": "bytes", "state": state_layer_bytes(), "each": full_layer_bytes(), "held": held, "moved": moved, "end": LONGEST, "says": says}


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, p, chosen = scene.words, scene.lang, result.params, result.chosen
    old = scene.before if scene.before is not None and scene.before.params != p else None

    def was(of) -> str:
        return words("before", value=of(old)) if old is not None and of(old) != of(result) else ""

    found = lambda r: amount(r.chosen.found, "ratio", lang)  # noqa: E731
    cosine = lambda r: digits(r.chosen.cosine)  # noqa: E731
    kept = lambda r: amount(r.kept * BYTES, "B", lang)  # noqa: E731
    ends = chosen.cosines[0], chosen.cosines[-1]
    return (
        Readout(words("readout.cosine"), cosine(result), "", was(cosine), words("note.cosine")),
        Readout(words("readout.found"), found(result).removesuffix("%"), "%", was(found), words("note.found", pairs=chosen.pairs)),
        Readout(words("readout.ends"), f"{digits(ends[0], 2)} | {digits(ends[1], 2)}", "", "", words("note.ends")),
        Readout(words("readout.kept"), *short(result.kept * BYTES, "B", lang), was(kept), words("note.kept", pairs=chosen.pairs, cache=amount(result.cache_numbers * BYTES, "B", lang))),
    )  # fmt: skip


def _sentence(result: Result, words: Words, lang: str) -> str:
    p, chosen = result.params, result.chosen
    return words(
        f"sentence.{'cache' if p.rule == 'softmax' else 'state'}", rule=words(f"option.rule.{p.rule}"), width=p.width, pairs=chosen.pairs, cosine=digits(chosen.cosine),
        found=amount(chosen.found, "ratio", lang), kept=f"{result.kept:,}", cache=f"{result.cache_numbers:,}", first=digits(chosen.cosines[0], 2), last=digits(chosen.cosines[-1], 2),
    )  # fmt: skip


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    p = result.params
    return tuple(
        {"rule": rule, "width": p.width, "rewritten": p.rewritten, "seed": p.seed, "pairs": f.pairs, "mean_cosine": f.cosine, "right_is_nearest": f.found, "cosine_of_first": f.cosines[0],
         "cosine_of_last": f.cosines[-1], "numbers_kept": 2 * p.width * f.pairs if rule == "softmax" else result.state_numbers}
        for rule in RULES for f in result.curves[rule]
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    p, chosen = result.params, result.chosen
    given = {"rule": p.rule, "width": p.width, "pairs": chosen.pairs, "rewritten": p.rewritten, "seed": p.seed, "drawings": recall.DRAWINGS, "keys and values": "random directions"}
    return (
        Quantity(chosen.cosine, "count", "computed", "mean of cos(what the key returns, its value), after the last pair", given, says=SAYS["cosine"]),
        Quantity(chosen.found, "ratio", "computed", "share of keys whose own value is the nearest of all stored", given, says=SAYS["found"]),
        Quantity(result.kept * BYTES, "B", "computed", "2 × width × pairs × 4 B" if p.rule == "softmax" else "width² × 4 B", given, says=SAYS["kept"]),
        numbers.resolve("=arch.even.held"), numbers.resolve("=arch.even.moved"),
    )  # fmt: skip


SAYS = {
    "cosine": {"zh": "取回来的值与原值的余弦，平均", "en": "mean cosine between what comes back and the value"},
    "found": {"zh": "最近的就是对的那个值", "en": "the right value is the nearest one"},
    "kept": {"zh": "要存的字节", "en": "bytes kept"},
}


# ---- guess


def _found(result: Result) -> Quantity:
    made = aside.call(recall.curves, result.params.width, False, result.params.seed)["delta"]
    found = next(f for f in made if f.pairs == 2 * result.params.width)
    given = {"rule": "delta", "width": result.params.width, "pairs": found.pairs}
    return Quantity(found.found, "ratio", "computed", "share of keys whose own value is the nearest of all stored", given, says=SAYS["found"])


def _right(result: Result) -> str:
    share = _found(result).value
    return "most" if share > 0.85 else "half" if share > 0.25 else "few"


WIDGET = Widget(
    id="fixed-state",
    Params=Params,
    controls=(
        Stops("pairs", PAIRS),
        Choice("rule", lambda: RULES),
        Choice("width", lambda: WIDTHS, str),
        Toggle("rewritten"),
        Range("seed", 0, 999),
    ),
    run=run,
    draw=draw,
    guesses={"double": Guess(truth=_found, choices=("most", "half", "few"), right=_right)},
)
