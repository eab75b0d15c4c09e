"""The three rules put to the test on the recorded logits: which outcomes are p, and which cannot be.

Stated in advance: a run of 100,000 draws "cannot come from p" when its χ² p-value is below speculative.DOUBT = 0.001. Of the
80 honest runs (two rules) about 4 should then lie below 0.05 and none below 0.001; every biased run should.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

from compute import sampling, speculative
from compute.measures.distributions import MODELS, PROMPTS
from compute.measures.job import Job, Report, Value, nobody

N = 100_000
SEEDS = 5
TARGET, *DRAFTS = MODELS
SAME_DRAWS = {"absolute": 1e-6}  # seeds and recorded logits are the same everywhere


@cache
def _runs(prompt: str, draft: str) -> tuple[dict[str, Any], ...]:
    """One record a rule and seed."""
    from compute import distributions  # it reads the store, which this package makes

    logits = distributions.stored(prompt).logits
    p, q = (sampling.probabilities(logits[model], sampling.Sampling()) for model in (TARGET, draft))
    return tuple(
        {"rule": rule, "seed": seed, **asdict(speculative.judge(speculative.monte_carlo(rule, p, q, N, seed), p, q))}
        for rule in speculative.RULES for seed in range(SEEDS)
    )  # fmt: skip


def _p_values(runs, *rules: str) -> list[float]:
    return [run["chi_square"]["p_value"] for run in runs if run["rule"] in rules]


def rules(*, prompt: str, draft: str, report: Report = nobody) -> dict[str, Value]:
    runs = _runs(prompt, draft)
    around = {"target": TARGET, "draft": draft, "text": PROMPTS[prompt], "temperature": 1.0, "n": N, "seeds": SEEDS, "cannot_below": speculative.DOUBT}
    biased = next(run for run in runs if run["rule"] == "resample-from-p")
    equal = next(run for run in runs if run["rule"] == "equal-only")
    name, after_zh, after_en = f"speculative.{prompt}.{draft}", f"“{PROMPTS[prompt]}”之后，{draft} 打草稿", f"after “{PROMPTS[prompt]}”, {draft} drafting"
    return {
        f"{name}.correct.p_value_least": Value(
            min(_p_values(runs, "correct")), "p-value", SAME_DRAWS, around | {"rule": "correct"}, n=SEEDS, trace=runs, trace_tolerance=SAME_DRAWS,
            says={"zh": f"{after_zh}：补抽残差，{SEEDS} 个种子里最小的 χ² p 值", "en": f"{after_en}: residual redrawn, least χ² p-value of {SEEDS} seeds"},
        ),
        f"{name}.equal_only.acceptance": Value(
            equal["acceptance_expected"], "ratio", {"absolute": 1e-4}, around | {"rule": "equal-only"},
            says={"zh": f"{after_zh}：相同才收，收下的比例 Σ p·q", "en": f"{after_en}: accepted only if equal, Σ p·q"},
        ),
        f"{name}.biased.p_value_most": Value(
            max(_p_values(runs, "resample-from-p")), "p-value", {"at_most": 1e-9}, around | {"rule": "resample-from-p"}, n=SEEDS,
            says={"zh": f"{after_zh}：补抽 p，{SEEDS} 个种子里最大的 χ² p 值", "en": f"{after_en}: p redrawn, largest χ² p-value of {SEEDS} seeds"},
        ),
        f"{name}.biased.tv": Value(
            biased["total_variation_expected"], "total variation", {"absolute": 1e-4}, around | {"rule": "resample-from-p"},
            says={"zh": f"{after_zh}：补抽 p，输出离 p 的总变差", "en": f"{after_en}: p redrawn, total variation of the output from p"},
        ),
    }  # fmt: skip


OTHERS = {
    "zh": "参考用的是它自己的 3.7M 与 0.33M 模型和一条提示，分布不同",
    "en": "the reference measured its own models of 3.7M and 0.33M parameters on one prompt, where p and q are others",
}


def verdict(*, report: Report = nobody) -> dict[str, Value]:
    """Over all prompts, drafts and seeds."""
    pairs = [(prompt, draft) for prompt in PROMPTS for draft in DRAFTS]
    every = [run for pair in pairs for run in _runs(*pair)]
    honest, biased = _p_values(every, "correct", "equal-only"), _p_values(every, "resample-from-p")
    around = {"target": TARGET, "drafts": ", ".join(DRAFTS), "prompts": len(PROMPTS), "temperature": 1.0, "n": N, "seeds": SEEDS, "cannot_below": speculative.DOUBT}

    def count(values: list[float], below: float) -> int:
        return sum(value < below for value in values)

    least = min(run["acceptance_expected"] for run in every if run["rule"] == "equal-only")
    bias = [run["total_variation_expected"] for run in every if run["rule"] == "resample-from-p"]
    return {
        "speculative.honest_accused": Value(
            count(honest, speculative.DOUBT), "count", {"exact": True}, around | {"rules": "correct, equal-only"}, n=len(honest),
            says={"zh": "输出就是 p 的两条规则，被 χ² 判为“不可能来自 p”的次数", "en": "runs of the two rules that give p which χ² says cannot come from p"},
        ),
        "speculative.honest_below_5_percent": Value(
            count(honest, 0.05), "count", {"exact": True}, around | {"rules": "correct, equal-only", "expected": 0.05 * len(honest)}, n=len(honest),
            says={"zh": "同上，p 值低于 0.05 的次数（应约为 5%）", "en": "of these, runs with a p-value below 0.05 (5 % are to be expected)"},
        ),
        "speculative.caught": Value(
            count(biased, speculative.DOUBT), "count", {"exact": True}, around | {"rule": "resample-from-p"}, n=len(biased),
            says={"zh": "补抽 p 的规则，被 χ² 判为“不可能来自 p”的次数", "en": "runs of the rule that redraws from p which χ² says cannot come from p"},
        ),
        "speculative.equal_only.acceptance_least": Value(
            least, "ratio", {"absolute": 1e-4}, around | {"rule": "equal-only"},
            says={"zh": "相同才收：各提示里最低的收下比例", "en": "accepted only if equal: the lowest acceptance of all prompts"},
            reference={"value": 0.0073, "where": "reference/000", "why_different": OTHERS},
        ),
        "speculative.biased.tv_most": Value(
            max(bias), "total variation", {"absolute": 1e-4}, around | {"rule": "resample-from-p"},
            says={"zh": "补抽 p：各提示里偏得最多的总变差", "en": "p redrawn: the largest total variation of all prompts"},
            reference={"value": 0.166, "where": "reference/000", "why_different": OTHERS},
        ),
    }  # fmt: skip


MEASURES = {"speculative.rules": rules, "speculative.verdict": verdict}


def jobs() -> list[Job]:
    keys = ("correct.p_value_least", "equal_only.acceptance", "biased.p_value_most", "biased.tv")
    overall = ("honest_accused", "honest_below_5_percent", "caught", "equal_only.acceptance_least", "biased.tv_most")
    return [
        *(Job("speculative.rules", {"prompt": p, "draft": d}, tuple(f"speculative.{p}.{d}.{k}" for k in keys), MODELS) for p in PROMPTS for d in DRAFTS),
        Job("speculative.verdict", {}, tuple(f"speculative.{k}" for k in overall), MODELS),
    ]
