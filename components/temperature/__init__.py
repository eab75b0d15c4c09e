"""Real logits on the left, which never move; softmax(logits / T) on the right, which does, and never changes its order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints

from components import Guess, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Text
from components.text import Words, amount, digits, ending
from compute import distributions
from compute.distributions import MODELS, Next
from compute.quantity import Quantity
from compute.sampling import Floats, Sampling, entropy, probabilities
from compute.service import client
from compute.trials import Prompt

SHOWN = 14  # candidates with a row of their own
HOTTEST = 3.0
BINS = 48


@parameters
class Params:
    """text: the learner's own; empty for the stored prompt."""

    prompt: Prompt = "giving"
    text: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    model: Annotated[str, StringConstraints(min_length=1, max_length=80)] = "mini-256"
    temperature: Annotated[float, Field(ge=0, le=HOTTEST)] = 0.5


@dataclass(frozen=True)
class Result:
    """logits, p: (V). ranked (V): token ids, the likeliest first; of equal ones the lower id."""

    t: float
    said: Next
    model: str
    logits: Floats
    p: Floats
    ranked: NDArray[np.intp]
    mark: Literal["live", "precomputed"]
    waiting: bool  # the learner's own text was not run yet; a stored prompt is shown

    @property
    def entropy(self) -> float:
        return float(entropy(self.p))

    @property
    def overtaken(self) -> int:
        """Neighbours in the order of the logits whose probabilities stand the other way round."""
        return int(np.sum(np.diff(self.p[self.ranked]) > 0))


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    said = distributions.answered(answer) if answer is not None else distributions.stored(stored_prompt(params))
    model = params.model if params.model in said.logits else MODELS[0]
    logits = said.logits[model]
    waiting = answer is None and (params.text not in ("", said.text) or model != params.model)
    p = probabilities(logits, Sampling(temperature=params.temperature))
    mark = "precomputed" if answer is None else "live"
    return Result(params.temperature, said, model, logits, p, np.argsort(-logits, kind="stable"), mark, waiting)


def stored_prompt(params: Any) -> str:
    """The stored prompt that the text is, else the chosen one."""
    return next((name for name, text in distributions.PROMPTS.items() if text == params.text), params.prompt)


def asked_text(params: Any) -> str:
    return params.text or distributions.PROMPTS[params.prompt]


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words = scene.words
    before = scene.before if scene.before is not None and (scene.before.said.text, scene.before.model) == (result.said.text, result.model) else None
    return View(
        picture=Stage(_stage(result, before, words, scene.lang), height=560),
        readouts=_readouts(result, before, words, scene.lang),
        sentence=_sentence(result, words, scene.lang),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified", shown=SHOWN, all=f"{len(result.p):,}", rest=amount(_rest(result.p, result.ranked), "ratio", scene.lang)),
        derivation=_derivation(result, words),
    )


def _stage(result: Result, before: Result | None, words: Words, lang: str) -> dict[str, Any]:
    plain = probabilities(result.logits, Sampling())
    counts, edges = np.histogram(result.logits, BINS)

    def row(name: str, of, z: float | None) -> dict[str, Any]:
        return {"name": name, "z": z, "p": of(result.p), "plain": of(plain), "old": of(before.p) if before is not None else None}

    first = [row(shown(result.said.piece(int(i))), lambda p, i=i: float(p[i]), float(result.logits[i])) for i in result.ranked[:SHOWN]]
    others = f"{len(result.p) - SHOWN:,}"
    rest = row(words("rest", n=others), lambda p: _rest(p, result.ranked), None) | {"short": words("rest_short", n=others)}
    return {
        "text": result.said.text, "t": f"{result.t:.2f}", "greedy": result.t == 0, "plain_too": result.t != 1, "rows": first, "rest": rest,
        "old_t": f"{before.t:.2f}" if before is not None and before.t != result.t else "",
        "histogram": {"counts": counts.tolist(), "low": float(edges[0]), "high": float(edges[-1])}, "all": f"{len(result.p):,}", "waiting": result.waiting,
    }  # fmt: skip


def _rest(p: Floats, ranked: NDArray[np.intp]) -> float:
    return float(p[ranked[SHOWN:]].sum())


def shown(piece: str) -> str:
    """A token on one line, with its blanks to be seen; ⟨E6 B5⟩ are bytes and stay as they are."""
    return piece if piece.startswith("⟨") else piece.replace("\n", "⏎").replace(" ", "␣") or "∅"


def _readouts(result: Result, before: Result | None, words: Words, lang: str) -> tuple[Readout, ...]:
    def of(r: Result) -> tuple[str, str, str, str]:
        top = amount(float(r.p.max()), "ratio", lang)
        return digits(r.entropy), digits(exp(r.entropy)), top, f"{r.overtaken:,}"

    def change(i: int) -> str:
        return words("before", value=of(before)[i]) if before is not None and of(before)[i] != of(result)[i] else ""

    h, n, top, moved = of(result)
    return (
        Readout(words("readout.entropy"), h, "nat", change(0), words("note.entropy", bits=digits(result.entropy / log(2)))),
        Readout(words("readout.effective"), n, words("unit.tokens"), change(1), words("note.effective", all=f"{len(result.p):,}")),
        Readout(words("readout.top"), top, "", change(2), f"“{shown(result.said.piece(int(result.ranked[0])))}”"),
        Readout(words("readout.overtaken"), moved, words("unit.places"), change(3), words("note.overtaken", all=f"{len(result.p):,}")),
    )


def _sentence(result: Result, words: Words, lang: str) -> str:
    key = "sentence.greedy" if result.t == 0 else "sentence.sharp" if result.t < 1 else "sentence.plain" if result.t == 1 else "sentence.flat"
    plain = probabilities(result.logits, Sampling())
    top = int(result.ranked[0])
    return words(
        key, text=ending(result.said.text), token=shown(result.said.piece(top)), t=f"{result.t:g}", p=amount(float(result.p[top]), "ratio", lang),
        plain=amount(float(plain[top]), "ratio", lang), n=digits(exp(result.entropy)), plain_n=digits(exp(float(entropy(plain)))), z=digits(float(result.logits[top])),
        all=f"{len(result.p):,}",
    )  # fmt: skip


LISTED = 128  # ranks in the data to download, before the rest as one row


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    plain = probabilities(result.logits, Sampling())
    first, rest = result.ranked[:LISTED], result.ranked[LISTED:]
    rows = [
        {"rank": rank + 1, "token": int(i), "piece": result.said.piece(int(i)), "logit": float(result.logits[i]), "p": float(result.p[i]),
         "p_at_temperature_1": float(plain[i]), "temperature": result.t}
        for rank, i in enumerate(first)
    ]  # fmt: skip
    others = {"rank": f"{LISTED + 1} – {len(result.p)}", "token": None, "piece": "all others", "logit": None, "p": float(result.p[rest].sum()),
              "p_at_temperature_1": float(plain[rest].sum()), "temperature": result.t}  # fmt: skip
    return (*rows, others)


def _derivation(result: Result, words: Words) -> str:
    a, b = (int(i) for i in result.ranked[:2])
    za, zb = (float(result.logits[i]) for i in (a, b))
    names = {"a": _markdown(shown(result.said.piece(a))), "b": _markdown(shown(result.said.piece(b))), "za": f"{za:.3f}", "zb": f"{zb:.3f}", "gap": f"{za - zb:.3f}"}
    if result.t == 0:
        return words("derivation.greedy", **names)
    return words(
        "derivation.says", **names, t=f"{result.t:g}", ratio=_ratio((za - zb) / result.t), plain=_ratio(za - zb), pa=f"{result.p[a]:.4f}", pb=f"{result.p[b]:.4f}"
    )


def _ratio(exponent: float) -> str:
    return digits(exp(exponent)) if exponent < 15 else f"e^{{{exponent:.1f}}}"


def _markdown(text: str) -> str:
    return "".join(f"\\{c}" if c in r"\`*_{}[]()#+-.!|<>~$&:^=" else c for c in text)


def _papers(result: Result) -> tuple[Quantity, ...]:
    around = {k: v for k, v in result.said.conditions.items() if k in ("dtype", "device", "torch")} | {"model": result.model, "text": result.said.text}
    top = int(result.ranked[0])
    inputs = {"T": result.t}
    return (
        Quantity(float(result.logits[top]), "logit", "measured", "z = model(text), last position", {}, None, around, says=SAYS["logit"]),
        Quantity(float(result.p[top]), "ratio", "computed", "softmax(z / T)", inputs, conditions=around, says=SAYS["top"]),
        Quantity(result.entropy, "nat", "computed", "−Σ p ln p", inputs, conditions=around, says=SAYS["entropy"]),
        Quantity(exp(result.entropy), "token", "computed", "exp(−Σ p ln p)", inputs, conditions=around, says=SAYS["effective"]),
    )


SAYS = {
    "logit": {"zh": "最大的 logit", "en": "largest logit"},
    "top": {"zh": "最大的概率", "en": "largest probability"},
    "entropy": {"zh": "熵", "en": "entropy"},
    "effective": {"zh": "有效 token 数", "en": "effective number of tokens"},
}


# ---- guess and widget


def _models() -> tuple[str, ...]:
    """Ours, and what the operator's service knows besides."""
    return tuple(dict.fromkeys((*MODELS, *client.status().models_known)))


WIDGET = Widget(
    id="temperature",
    Params=Params,
    controls=(
        Range("temperature", 0.0, HOTTEST, 0.05, "%.2f"), Choice("prompt", lambda: tuple(distributions.PROMPTS)), Text("text", 200), Choice("model", _models, lambda id: id),
    ),
    run=run,
    draw=draw,
    shown=3,
    guesses={
        "order": Guess(
            truth=lambda r: Quantity(r.overtaken, "count", "computed", "Σ [p(i+1) > p(i)], i by falling logit", {"T": r.t}),
            choices=("never", "hot", "cold"), right=lambda r: "hot" if r.overtaken else "never",
        ),
    },
    live=Live("next.logits", lambda p: {"text": asked_text(p), "models": (p.model,)}),
    presets={"en": {"prompt": "english"}},
)  # fmt: skip
