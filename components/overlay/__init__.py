"""What target and draft say of the next token, laid over each other, and what a rule for accepting makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints

from components import Guess, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Stops, Text
from components.text import Words, amount, digits
from compute import distributions, speculative
from compute.distributions import Next
from compute.quantity import Quantity
from compute.sampling import Floats, Sampling, probabilities
from compute.speculative import Rule, Runs, Verdict
from compute.trials import TARGET, Draft, Prompt

SHOWN = 24  # candidates with a row of their own
LEAST = 5.0  # a token expected fewer times is not judged by itself: its count is too coarse for a band
RUNS = (1_000, 10_000, 100_000)
SEEDS = 2**32 - 1


@parameters
class Params:
    """text: the learner's own; empty for the stored prompt."""

    prompt: Prompt = "giving"
    text: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    draft: Draft = "mini-64"
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=2048)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    rule: Rule = "correct"
    runs: Annotated[int, Field(ge=100, le=100_000)] = 100_000
    seed: Annotated[int, Field(ge=0, le=SEEDS)] = 0


@dataclass(frozen=True)
class Result:
    """All (V). kept: drafted and accepted; output: what the rule gives, exactly."""

    params: Params
    said: Next
    p: Floats
    q: Floats
    kept: Floats
    output: Floats
    runs: Runs
    verdict: Verdict
    mark: Literal["live", "precomputed"]
    waiting: bool  # the learner's own text was not run yet; a stored prompt is shown


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    said = distributions.answered(answer) if answer is not None else distributions.stored(_stored(params))
    sampling = Sampling(params.temperature, params.top_k, params.top_p, params.min_p)
    p, q = (probabilities(said.logits[model], sampling) for model in (TARGET, params.draft))
    runs = speculative.monte_carlo(params.rule, p, q, params.runs, params.seed)
    return Result(
        params, said, p, q, speculative.kept(params.rule, p, q), speculative.output(params.rule, p, q), runs, speculative.judge(runs, p, q),
        "precomputed" if answer is None else "live", answer is None and params.text not in ("", said.text),
    )  # fmt: skip


def _stored(params: Params) -> str:
    """The stored prompt that the text is, else the chosen one."""
    return next((name for name, text in distributions.PROMPTS.items() if text == params.text), params.prompt)


# ---- the rows: a token each, the rest in one


@dataclass(frozen=True)
class Row:
    """token None: all that have no row of their own, added up. z: the count's distance from n·p in standard errors;
    None where it is not judged."""

    token: int | None
    p: float
    q: float
    kept: float
    output: float
    count: int
    z: float | None


def rows(result: Result) -> tuple[Row, ...]:
    """The candidates with the most of p or q, the target's favourite first; then the rest."""
    shown = _shown_tokens(result)
    rest = np.setdiff1d(np.arange(len(result.p)), shown)
    return (*(_row(result, np.array([token]), int(token)) for token in shown), _row(result, rest, None))


def _shown_tokens(result: Result) -> NDArray[np.intp]:
    most = np.maximum(result.p, result.q)
    likeliest = np.argsort(-most, kind="stable")[:SHOWN]
    likeliest = likeliest[most[likeliest] > 0]
    return likeliest[np.lexsort((-result.q[likeliest], -result.p[likeliest]))]


def _row(result: Result, tokens: NDArray[np.intp], token: int | None) -> Row:
    p, q, kept, output = (float(of[tokens].sum()) for of in (result.p, result.q, result.kept, result.output))
    count, n = int(result.runs.counts[tokens].sum()), result.runs.n
    judged = LEAST <= n * p and n * (1 - p) >= LEAST
    return Row(token, p, q, kept, output, count, _standard_errors(count / n, p, n) if judged or _certain(p) else None)


def _standard_errors(share: float, p: float, n: int) -> float:
    if _certain(p):
        return 0.0 if abs(share - p) < 0.5 / n else float(np.copysign(n, share - p))  # the impossible happened
    return float((share - p) / np.sqrt(p * (1 - p) / n))


def _certain(p: float) -> bool:
    return p < 1e-12 or p > 1 - 1e-12


def band(found: tuple[Row, ...]) -> float:
    """Standard errors within which all judged rows stay together in 95 of 100 runs that do come from p (Bonferroni)."""
    return NormalDist().inv_cdf(1 - 0.025 / max(1, len(_judged(found))))


def _judged(found: tuple[Row, ...]) -> list[Row]:
    return [row for row in found if row.z is not None]


def outside(found: tuple[Row, ...]) -> int:
    return sum(abs(row.z) > band(found) for row in _judged(found))


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, found = scene.words, rows(result)
    show = partial(amount, lang=scene.lang)
    before = scene.before if scene.before is not None and scene.before.said.text == result.said.text else None
    p_shown, q_shown = (1 - getattr(found[-1], of) for of in ("p", "q"))
    return View(
        picture=Stage(_stage(result, before, found, words, scene.lang), height=620),
        readouts=_readouts(result, before, found, words, scene.lang),
        sentence=_sentence(result, found, words, scene.lang),
        rows=_table(result, found),
        papers=_papers(result),
        simplified=words(
            "simplified", shown=len(found) - 1, all=f"{len(result.p):,}", p=show(p_shown, "ratio"), q=show(q_shown, "ratio"), least=f"{LEAST:g}"
        ),
        derivation=_derivation(result, words),
    )


def _stage(result: Result, before: Result | None, found: tuple[Row, ...], words: Words, lang: str) -> dict[str, Any]:
    params, verdict = result.params, result.verdict
    show = partial(amount, lang=lang)
    refused = 1 - verdict.acceptance_expected
    old = {row.token: row for row in rows(before)} if before is not None else {}
    biased = speculative.output("resample-from-p", result.p, result.q)
    farthest = max((abs(_standard_errors(float(biased[row.token]), row.p, params.runs)) for row in _judged(found) if row.token is not None), default=0)
    farthest = max(farthest, *(abs(row.z) for row in _judged(found)), 0) if _judged(found) else farthest
    return {
        "rows": [
            {
                "name": shown(result.said.piece(row.token)) if row.token is not None else words("rest", n=f"{len(result.p) - len(found) + 1:,}"),
                "rest": row.token is None, "p": row.p, "q": row.q, "kept": row.kept, "output": row.output,
                "second": max(0.0, row.output - row.kept) / refused if refused > 1e-12 else 0.0, "z": row.z, "tip": _tip(result, row, words, lang),
                "old": _old(old.get(row.token)),
            }
            for row in found
        ],
        "rule": params.rule, "band": band(found), "farthest": farthest, "ghost": bool(old), "never": refused <= 1e-12,
        "says": {
            "kept": show(verdict.acceptance_expected, "ratio"), "refused": show(max(0.0, refused), "ratio"),
            "off": digits(verdict.total_variation_expected), "runs": f"{params.runs:,}", "verdict": _verdict(verdict, words), "agrees": verdict.agrees,
            "outside": outside(found), "judged": len(_judged(found)), "draft": params.draft, "target": TARGET,
        },
        "waiting": result.waiting,
    }  # fmt: skip


def _old(row: Row | None) -> dict[str, float | None] | None:
    return None if row is None else {"p": row.p, "z": row.z}


def _tip(result: Result, row: Row, words: Words, lang: str) -> str:
    show = partial(amount, unit="ratio", lang=lang)
    name = shown(result.said.piece(row.token)) if row.token is not None else words("rest", n=f"{len(result.p) - SHOWN:,}")
    return words(
        "tip", name=name, p=show(row.p), q=show(row.q), kept=show(row.kept), second=show(max(0.0, row.output - row.kept)),
        count=f"{row.count:,}", expected=f"{row.p * result.runs.n:,.0f}",
    )  # fmt: skip


def shown(piece: str) -> str:
    """A token on one line, with its blanks to be seen."""
    return piece.replace("\n", "⏎").replace(" ", "␣") or "∅"


def p_value(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else digits(value, 2)


def _verdict(verdict: Verdict, words: Words) -> str:
    return words("verdict.agrees" if verdict.agrees else "verdict.cannot")


def _readouts(result: Result, before: Result | None, found: tuple[Row, ...], words: Words, lang: str) -> tuple[Readout, ...]:
    v, old = result.verdict, before.verdict if before is not None else None
    low, high = v.acceptance_interval95
    show = partial(amount, unit="ratio", lang=lang)

    def was(now: str, then: str | None) -> str:
        return words("before", value=then) if then is not None and then != now else ""

    return (
        Readout(words("readout.alpha"), show(v.acceptance_expected).removesuffix("%"), "%",
                was(show(v.acceptance_expected), old and show(old.acceptance_expected)), words(f"note.alpha.{result.params.rule}")),
        Readout(words("readout.accepted"), show(v.acceptance).removesuffix("%"), "%", "",
                words("note.accepted.says", low=show(low), high=show(high), n=f"{result.runs.n:,}")),
        Readout(words("readout.distance"), digits(v.total_variation), "", was(digits(v.total_variation), old and digits(old.total_variation)),
                words("note.distance.says", chance=digits(v.total_variation_by_chance))),
        Readout(words("readout.chi"), p_value(v.chi_square.p_value), "", was(p_value(v.chi_square.p_value), old and p_value(old.chi_square.p_value)),
                words("note.chi.says", statistic=digits(v.chi_square.statistic), degrees=f"{v.chi_square.degrees:,}")),
        Readout(words("readout.outside"), f"{outside(found)}", f"/ {len(_judged(found))}", "", words("note.outside.says")),
    )  # fmt: skip


def _sentence(result: Result, found: tuple[Row, ...], words: Words, lang: str) -> str:
    v, params = result.verdict, result.params
    return words(
        f"sentence.{params.rule}", text=result.said.text, draft=params.draft, target=TARGET, kept=amount(v.acceptance_expected, "ratio", lang),
        off=digits(v.total_variation_expected),
    ) + words(
        "sentence.seen", n=f"{result.runs.n:,}", distance=digits(v.total_variation), chance=digits(v.total_variation_by_chance), p=p_value(v.chi_square.p_value),
        verdict=_verdict(v, words), outside=outside(found), judged=len(_judged(found)),
    )  # fmt: skip


def _table(result: Result, found: tuple[Row, ...]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "token": row.token, "piece": result.said.piece(row.token) if row.token is not None else "rest", "p": row.p, "q": row.q,
            "accepted": row.kept, "second_draw": row.output - row.kept, "output": row.output, "count": row.count, "expected_count": row.p * result.runs.n,
            "standard_errors": row.z, "rule": result.params.rule, "n": result.runs.n, "seed": result.runs.seed,
        }
        for row in found
    )  # fmt: skip


# ---- the proof, with this prompt's numbers


def _derivation(result: Result, words: Words) -> str:
    p, q = result.p, result.q
    alpha = speculative.acceptance(p, q)
    if 1 - alpha < 1e-9:
        return words("derivation.same")

    def of(token: int) -> dict[str, str]:
        return {"name": _markdown(shown(result.said.piece(token))), "p": f"{p[token]:.4f}", "q": f"{q[token]:.4f}", "over": f"{p[token] - q[token]:.4f}",
                "ratio": f"{p[token] / q[token]:.4f}" if q[token] > 0 else ""}  # fmt: skip

    under, over = int(np.argmax(p - q)), int(np.argmax(q - p))
    said = words("derivation.over", **of(over)) + words("derivation.under", alpha=f"{alpha:.4f}", refused=f"{1 - alpha:.4f}", **of(under))
    biased = speculative.output("resample-from-p", p, q)
    return said + words("derivation.biased", refused=f"{1 - alpha:.4f}", output=f"{biased[over]:.4f}", **of(over))


def _markdown(text: str) -> str:
    return "".join(f"\\{c}" if c in r"\`*_{}[]()#+-.!|<>~$&:^=" else c for c in text)


def _papers(result: Result) -> tuple[Quantity, ...]:
    params, v, said = result.params, result.verdict, dict(result.said.conditions)
    setting = {k: said[k] for k in ("dtype", "device", "torch") if k in said} | {
        "target": TARGET, "draft": params.draft, "text": result.said.text, "temperature": params.temperature, "top_k": params.top_k,
        "top_p": params.top_p, "min_p": params.min_p,
    }  # fmt: skip
    drawn = setting | {"rule": params.rule, "n": result.runs.n, "seed": params.seed, "command": "python -m compute call speculative.monte_carlo"}
    formula = "Σ p·q" if params.rule == "equal-only" else "Σ min(p, q)"
    lowest, highest = v.acceptance_interval95
    return (
        Quantity(v.acceptance_expected, "ratio", "computed", formula, {}, conditions=setting, says=SAYS["alpha"]),
        Quantity(v.acceptance, "ratio", "measured", "accepted / n", {}, None, drawn | {"95 %": f"{lowest:.4f} – {highest:.4f}"}, v.acceptance_interval95, SAYS["accepted"]),
        Quantity(v.total_variation, "", "measured", "½ Σ |count/n − p|", {}, None, drawn, says=SAYS["distance"]),
        Quantity(v.total_variation_by_chance, "", "computed", "½ Σ E|X/n − p|, X ~ Bin(n, p)", {"n": result.runs.n}, conditions=setting, says=SAYS["chance"]),
        Quantity(v.total_variation_expected, "", "computed", "½ Σ |output − p|", {"rule": params.rule}, conditions=setting, says=SAYS["off"]),
        Quantity(v.chi_square.p_value, "", "measured", "Pearson’s χ², tokens expected under 5 times together", {"χ²": v.chi_square.statistic, "df": v.chi_square.degrees}, None, drawn, says=SAYS["chi"]),
    )  # fmt: skip


SAYS = {
    "alpha": {"zh": "草稿被收下的概率", "en": "probability that a guess is accepted"},
    "accepted": {"zh": "这次抽样里被收下的比例", "en": "share accepted in this run"},
    "distance": {"zh": "抽出的分布离 p 的总变差", "en": "total variation between the draws and p"},
    "chance": {"zh": "直接从 p 抽这么多次，平均也有的总变差", "en": "total variation that as many draws from p itself have on average"},
    "off": {"zh": "这条规则的输出离 p 的总变差（抽无穷多次）", "en": "total variation between the rule’s output and p (infinitely many draws)"},
    "chi": {"zh": "χ² 检验的 p 值", "en": "p-value of the χ² test"},
}

BIAS = {"0": 0.0, "2": 0.02, "20": 0.2, "60": 0.6}


def _bias(result: Result) -> float:
    return float(np.abs(speculative.output("resample-from-p", result.p, result.q) - result.p).sum() / 2)


WIDGET = Widget(
    id="overlay",
    Params=Params,
    controls=(
        Choice("rule", lambda: speculative.RULES),
        Choice("prompt", lambda: tuple(distributions.PROMPTS), when=lambda p: not p.text),
        Range("temperature", 0.0, 2.0, 0.05, "%.2f"),
        Choice("draft", lambda: distributions.MODELS[1:], lambda id: id),
        Stops("runs", RUNS),
        Text("text", 200),
        Stops("top_k", (0, 1, 2, 5, 10, 20, 50, 100)),
        Range("top_p", 0.05, 1.0, 0.05, "%.2f"),
        Range("min_p", 0.0, 0.5, 0.01, "%.2f"),
        Range("seed", 0, 99),
    ),
    run=run,
    draw=draw,
    guesses={
        "alpha": Guess(
            truth=lambda r: Quantity(speculative.acceptance(r.p, r.q), "ratio", "computed", "Σ min(p, q)"), unit="%", bounds=(0, 100),
        ),
        "bias": Guess(
            truth=lambda r: Quantity(_bias(r), "ratio", "computed", "½ Σ |output − p|"),
            choices=tuple(BIAS), right=lambda r: min(BIAS, key=lambda id: abs(BIAS[id] - _bias(r))),
        ),
    },
    shown=3,
    live=Live("next.logits", lambda p: {"text": p.text, "models": [TARGET, *distributions.MODELS[1:]]}, when=lambda p: bool(p.text)),
)  # fmt: skip
