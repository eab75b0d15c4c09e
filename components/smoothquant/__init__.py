"""SmoothQuant on a real matrix: what each input channel reaches before and after, and what W8A8 then gets wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Toggle
from components.text import Words, digits
from compute import numbers, precompute
from compute.measures.layers import ALPHAS, PLANTED, SMOOTHED, W8A8
from compute.quantity import Quantity, Source
from compute.quantize import outliers
from compute.quantize.smooth import LARGEST, factors

Matrix = Literal[SMOOTHED]
FLAT = 1.05  # errors within this factor of the least count as equally good


@parameters
class Params:
    """planted: with outlier channels planted into the model. order: channels by their largest activation, or as they stand."""

    matrix: Matrix = "3.qkv"
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    planted: bool = True
    order: Literal["sorted", "channel"] = "sorted"


@dataclass(frozen=True)
class Side:
    """The largest magnitude in every channel, before smoothing and after."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def spreads(self) -> tuple[float, float]:
        """The largest channel over the median one, before and after."""
        return tuple(float(np.max(side) / np.median(side)) for side in (self.before, self.after))


@dataclass(frozen=True)
class Result:
    """errors: output error of W8A8 at each of ALPHAS; plain: without smoothing."""

    params: Params
    alpha: float  # the nearest measured one
    planted: tuple[int, ...]
    activations: Side
    weights: Side
    plain: float
    errors: tuple[float, ...]
    conditions: Mapping[str, Any]
    mark: Literal["precomputed"] = "precomputed"

    @property
    def error(self) -> float:
        return self.errors[ALPHAS.index(self.alpha)]

    @property
    def best(self) -> float:
        return ALPHAS[int(np.argmin(self.errors))]

    @property
    def flat(self) -> tuple[float, float]:
        """The α around the best whose error is as good as the least."""
        good = [error <= FLAT * min(self.errors) for error in self.errors]
        first = last = ALPHAS.index(self.best)
        while first > 0 and good[first - 1]:
            first -= 1
        while last + 1 < len(good) and good[last + 1]:
            last += 1
        return ALPHAS[first], ALPHAS[last]


def run(params: Params) -> Result:
    kept = precompute.recorded(f"quantize.layers.{params.matrix}.outlier")
    planted = params.planted and params.matrix in PLANTED
    found = kept["planted" if planted else "real"]
    alpha = min(ALPHAS, key=lambda a: abs(a - params.alpha))
    x, w = np.array(found["activations"]), np.array(found["weights"])
    s = factors(x, w[None], alpha)
    return Result(
        params, alpha, tuple(outliers.planted_channels(len(x))) if planted else (), Side(tuple(x.tolist()), tuple((x / s).tolist())),
        Side(tuple(w.tolist()), tuple((w * s).tolist())), found["plain"], tuple(found["smoothed"]), kept["conditions"] | {"sample_tokens": found["rows"]},
    )  # fmt: skip


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words = scene.words
    return View(
        picture=Stage(_stage(result, scene), height=480, picks=("alpha",)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, words),
        rows=_rows(result),
        papers=_papers(result),
        simplified=_simplified(result, words),
        derivation=words("derivation", **_derived(result)),
    )


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    order = np.arange(len(result.activations.before))
    if result.params.order == "sorted":
        order = np.argsort(-np.array(result.activations.before), kind="stable")
    before = scene.before
    return {
        "sides": [
            {name: _levels(np.array(getattr(side, name))[order]) for name in ("before", "after")} | {"median": [round(LARGEST / spread, 1) for spread in side.spreads]}
            for side in (result.activations, result.weights)
        ],
        "channels": order.tolist(), "planted": [int(np.flatnonzero(order == c)[0]) for c in result.planted], "sorted": result.params.order == "sorted", "factor": outliers.FACTOR,
        "alphas": ALPHAS, "errors": result.errors, "plain": result.plain, "alpha": result.alpha, "best": result.best, "flat": result.flat, "matrix": result.params.matrix,
        "ghost": before.alpha if before is not None and before.params.matrix == result.params.matrix and before.alpha != result.alpha else None,
    }  # fmt: skip


def _simplified(result: Result, words: Words) -> str:
    tokens = result.conditions["sample_tokens"]
    if result.planted:
        return words("simplified_planted", factor=outliers.FACTOR, tokens=tokens)
    most = max(numbers.resolve(f"~quantize.layers.{name}.outlier").value for name in SMOOTHED)
    return words("simplified", tokens=tokens, most=digits(most, 2), times=numbers.resolve("llm_int8.magnitude").value)


def _levels(side: np.ndarray) -> list[float]:
    """Of the 127 int8 levels that the largest channel has, those that each channel reaches."""
    return np.round(LARGEST * side / side.max(), 1).tolist()


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, before = scene.words, scene.before
    was = percent(before.error) if before is not None else ""
    first, last = result.flat
    return (
        Readout(words("readout.error"), f"{percent(result.error)} | {percent(result.plain)}", "%", words("readout.before", value=was) if was and was != percent(result.error) else "", words("readout.error_note")),
        Readout(words("readout.activations"), _spread(result.activations), "", "", words("readout.activations_note", before=_level(result.activations.spreads[0]), after=_level(result.activations.spreads[1]))),
        Readout(words("readout.weights"), _spread(result.weights), "", "", words("readout.weights_note")),
        Readout(words("readout.best"), f"{result.best:g}", "", "", words("readout.best_note", first=f"{first:g}", last=f"{last:g}", error=percent(min(result.errors)))),
    )  # fmt: skip


def _spread(side: Side) -> str:
    before, after = side.spreads
    return f"×{digits(after, 2 if after < 10 else 3)} | ×{digits(before, 2 if before < 10 else 3)}"


def _level(spread: float) -> str:
    return digits(LARGEST / spread, 2)


def percent(ratio: float) -> str:
    return digits(100 * ratio, 3)


def _sentence(result: Result, words: Words) -> str:
    largest, spread, heavy = int(np.argmax(result.activations.before)), result.activations.spreads, result.weights.spreads
    values = {
        "matrix": result.params.matrix, "alpha": f"{result.alpha:g}", "plain": percent(result.plain), "error": percent(result.error), "channel": largest, "spread": digits(spread[0], 2 if spread[0] < 10 else 3),
        "after": digits(spread[1], 2), "weights": digits(heavy[0], 2), "weights_after": digits(heavy[1], 2), "count": len(result.planted), "factor": outliers.FACTOR, "before_level": _level(spread[0]), "after_level": _level(spread[1]),
    }  # fmt: skip
    if result.planted:
        return words("sentence_planted", **values)
    return words("sentence" if result.error < result.plain else "sentence_worse", **values)


def _derived(result: Result) -> dict[str, str]:
    j = int(np.argmax(result.activations.before))
    x, w, alpha = result.activations.before[j], result.weights.before[j], result.alpha
    return {"j": str(j), "x": digits(x), "w": digits(w), "alpha": f"{alpha:g}", "rest": f"{1 - alpha:g}", "s": digits(x / result.activations.after[j]), "x_after": digits(result.activations.after[j]), "w_after": digits(result.weights.after[j])}


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    channels = tuple(
        {"about": "channel", "channel": j, "planted": j in result.planted, "activation_max": a, "activation_max_smoothed": b, "weight_max": c, "weight_max_smoothed": d, "alpha": result.alpha, "output_error": None}
        for j, (a, b, c, d) in enumerate(zip(result.activations.before, result.activations.after, result.weights.before, result.weights.after))
    )
    empty = dict.fromkeys(("channel", "planted", "activation_max", "activation_max_smoothed", "weight_max", "weight_max_smoothed"))
    curve = tuple({"about": "W8A8", **empty, "alpha": alpha, "output_error": error} for alpha, error in (("none", result.plain), *zip(ALPHAS, result.errors)))
    return channels + curve


FACTOR = Source("SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models", "https://arxiv.org/abs/2211.10438", "eq. 4", "2026-11-29")


def _papers(result: Result) -> tuple[Quantity, ...]:
    around = dict(result.conditions) | {"matrix": result.params.matrix} | W8A8
    if result.planted:
        around |= {"planted_channels": list(result.planted), "planted_factor": outliers.FACTOR}
    formula, spread = "‖Ŷ − Y‖ / ‖Y‖", "max_j max|X_j| / median_j max|X_j|"
    given = {"matrix": result.params.matrix, "alpha": result.alpha}
    return (
        Quantity(result.error, "ratio", "measured", formula, given, None, around, says={"zh": f"平滑后（α = {result.alpha:g}）W8A8 的输出误差", "en": f"W8A8 output error, smoothed (α = {result.alpha:g})"}),
        Quantity(result.plain, "ratio", "measured", formula, {}, None, around, says={"zh": "不平滑，W8A8 的输出误差", "en": "W8A8 output error without smoothing"}),
        Quantity(result.activations.spreads[0], "×", "measured", spread, {}, None, around, says={"zh": "激活：最大通道与中位通道之比", "en": "activations: largest channel over the median one"}),
        Quantity(result.activations.spreads[1], "×", "computed", "s_j = max|X_j|^α / max|W_j|^(1−α); X_j / s_j", given, FACTOR, says={"zh": "平滑后的激活：最大与中位之比", "en": "activations smoothed: largest over median"}),
        Quantity(result.weights.spreads[1], "×", "computed", "s_j = max|X_j|^α / max|W_j|^(1−α); W_j · s_j", given, FACTOR, says={"zh": "平滑后的权重：最大与中位之比", "en": "weights smoothed: largest over median"}),
        *(numbers.resolve(name) for name in ("smoothquant.alpha", "llm_int8.magnitude", "llm_int8.emergence")),
    )  # fmt: skip


def _flattest(result: Result) -> str:
    return "yes" if result.best == 1 else "no"


def _gone(result: Result) -> float:
    """How much of the error is gone at this α."""
    return 1 - result.error / result.plain


def _repaired(result: Result) -> str:
    gone = _gone(result)
    return "all" if gone > 0.9 else "half" if gone > 0.3 else "little"


WIDGET = Widget(
    id="smoothquant",
    Params=Params,
    controls=(
        Range("alpha", 0.0, 1.0, 0.05), Toggle("planted", when=lambda p: p.matrix in PLANTED), Choice("matrix", lambda: SMOOTHED, name=lambda id: id),
        Choice("order", lambda: ("sorted", "channel")),
    ),
    run=run,
    draw=draw,
    guesses={
        "one": Guess(truth=lambda result: Quantity(result.best, "count", "measured", "argmin over α", conditions=result.conditions), choices=("yes", "no"), right=_flattest),
        "repair": Guess(truth=lambda result: Quantity(_gone(result), "ratio", "measured", "1 − error smoothed / error not smoothed", conditions=result.conditions), choices=("little", "half", "all"), right=_repaired),
    },
)  # fmt: skip
