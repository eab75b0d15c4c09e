"""What temperature and truncation do to whole texts: entropy, tokens kept, repetition, distinct n-grams.

A token can flip on another processor where two candidates, or a token and a rule's limit, lie within rounding of each
other, and the rest of that text is then another one. (Alone or in a batch, which rounds otherwise too, one of 8,192 tokens
flipped here.) So means are judged, with room for a few such texts, and the texts themselves are shown and not judged.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np

from compute import facts
from compute.measures.distributions import PROMPTS
from compute.measures.job import SAMPLED_TRACE, Job, Report, Value, nobody
from compute.sampling import GREEDY, Sampling, distinct, repetition

MODEL = "mini-256"
TOKENS = 128  # of each text, past any end token, so that all are equally long
SEEDS = (0, 1, 2, 3)
TEMPERATURES = (0.7, 1.0, 1.3)
RULES = {"p1": {}, "p0_9": {"top_p": 0.9}, "minp0_05": {"min_p": 0.05}, "minp0_1": {"min_p": 0.1}}
SETTINGS: dict[str, Sampling] = {"t0": GREEDY} | {
    f"t{t:g}".replace(".", "_") + f".{name}": Sampling(temperature=t, **rule) for t in TEMPERATURES for name, rule in RULES.items()
}
"""By the name in the keys: sampling.t1_3.p0_9.repetition4. At temperature 0 no rule changes anything."""

MEASURED = ("repetition4", "kept", "entropy", "distinct1", "distinct2")
UNITS = {"repetition4": "ratio", "kept": "token", "entropy": "nat", "distinct1": "ratio", "distinct2": "ratio"}
TOLERANCES = {
    "repetition4": {"absolute": 0.03}, "kept": {"relative": 0.1}, "entropy": {"absolute": 0.06}, "distinct1": {"absolute": 0.03},
    "distinct2": {"absolute": 0.03},
}  # fmt: skip
RESAMPLES = 10_000


@cache
def prompts() -> tuple[str, ...]:
    """The sixteen fixed prompts of our model."""
    return tuple(prompt["text"] for prompt in facts.read_toml(facts.DATA / "speculation-prompts.toml")[MODEL]["prompts"])


def table(*, setting: str, tokens: int, seeds: tuple[int, ...], report: Report = nobody) -> dict[str, Value]:
    """One setting on sixteen prompts with four seeds each: the mean over the texts, with a bootstrap interval over the
    prompts, as texts of one prompt resemble each other."""
    from compute.engine.registry import shared
    from compute.engine.sampled import continue_rows
    from compute.engine.served import circumstances

    model, rule = shared().get(MODEL), SETTINGS[setting]
    seeds = seeds if rule.temperature else seeds[:1]  # greedy has nothing to draw
    encoded = [model.tokenizer.encode(text) for text in prompts()]
    rows = continue_rows(
        model, [prompt for prompt in encoded for _ in seeds], tokens, rule, [seed for _ in encoded for seed in seeds],
        stepped=lambda step: report((step + 1) / tokens, setting),
    )  # fmt: skip
    by_measure = {
        "repetition4": [repetition(row.tokens, 4) for row in rows],
        "kept": [np.mean(row.kept) for row in rows],
        "entropy": [np.mean(row.entropy) for row in rows],
        "distinct1": [distinct(row.tokens, 1) for row in rows],
        "distinct2": [distinct(row.tokens, 2) for row in rows],
    }
    around = {k: v for k, v in circumstances(model).items() if k in ("model", "dtype", "device", "torch")} | {
        "prompts": len(encoded), "seeds": list(seeds), "tokens": tokens, "past_end_token": True, "interval": f"bootstrap over the prompts, {RESAMPLES:,} resamples, seed 0",
        "temperature": rule.temperature, "top_p": rule.top_p, "min_p": rule.min_p,
    }  # fmt: skip
    texts = [
        {"prompt": text, "runs": runs(model, row.tokens), "repetition4": repetition(row.tokens, 4)} for text, row in zip(prompts(), rows[:: len(seeds)])
    ]
    made = {}
    for name, values in by_measure.items():
        means = np.reshape(values, (len(encoded), len(seeds))).mean(axis=1)
        trace = {"examples": texts} if name == "repetition4" else None
        made[f"sampling.{setting}.{name}"] = Value(
            float(means.mean()), UNITS[name], TOLERANCES[name], around, says=_says(setting, name), interval95=interval(means), n=len(rows),
            reference=REFERENCES.get((setting, name)), trace=trace, trace_tolerance=SAMPLED_TRACE,
        )  # fmt: skip
    return made


def runs(model: Any, tokens: tuple[int, ...]) -> list[tuple[str, bool]]:
    """The text in runs, with whether their tokens end a 4-gram that occurred before; as many as repetition counts."""
    from compute.engine.tokens import Stream

    stream, seen, found = Stream(), set(), []
    for i, token in enumerate(tokens):
        gram = tokens[max(0, i - 3) : i + 1]
        again, text = len(gram) == 4 and gram in seen, stream.push(model.tokenizer.bytes_of(token))
        seen.add(gram)
        if found and found[-1][1] == again:
            found[-1] = (found[-1][0] + text, again)
        else:
            found.append((text, again))
    return found


def interval(means: np.ndarray) -> tuple[float, float]:
    """95 % bootstrap percentiles of the mean. Efron 1979."""
    chosen = np.random.default_rng(0).integers(len(means), size=(RESAMPLES, len(means)))
    low, high = np.quantile(means[chosen].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


NAMES = {
    "repetition4": ("4-gram 重复率", "4-gram repetition"), "kept": ("每步保留的 token 数", "tokens kept per step"),
    "entropy": ("每步的熵", "entropy per step"), "distinct1": ("distinct-1", "distinct-1"), "distinct2": ("distinct-2", "distinct-2"),
}  # fmt: skip


def _says(setting: str, name: str) -> dict[str, str]:
    rule = SETTINGS[setting]
    if not rule.temperature:
        zh, en = "贪心", "greedy"
    else:
        cut = f"top-p {rule.top_p:g}" if rule.top_p < 1 else f"min-p {rule.min_p:g}" if rule.min_p else ""
        zh, en = f"T = {rule.temperature:g}，{cut or '不截断'}", f"T = {rule.temperature:g}, {cut or 'nothing cut'}"
    return {"zh": f"{zh}：{NAMES[name][0]}", "en": f"{en}: {NAMES[name][1]}"}


_OTHER_MODEL = {
    "zh": "那里是另一个模型（3.7M 参数，别的语料和提示），对熵和保留个数影响很大；指南自己对高温 top-p 0.9 就给了 664 和 1,108 两个数",
    "en": "another model there (3.7M parameters, other texts and prompts), which moves entropy and counts a lot; for top-p 0.9 at high temperature the guide itself gives both 664 and 1,108",
}
_WHERE = "chapter guide of the course: branch on sampling, acceptance criteria"
REFERENCES: dict[tuple[str, str], dict[str, Any]] = {
    ("t0", "repetition4"): {"value": 0.47, "where": _WHERE, "why_different": {
        "zh": "那里是另一个模型、别的提示和长度；贪心会循环，这一点相同", "en": "another model, other prompts and length there; that greedy text loops is the same"}},
    ("t1_3.p0_9", "kept"): {"value": 664, "where": _WHERE, "why_different": _OTHER_MODEL},
    ("t1_3.minp0_1", "kept"): {"value": 34, "where": _WHERE, "why_different": _OTHER_MODEL},
}  # fmt: skip


# ---- a few texts for each stored prompt, for when no service is there

SHOWN_TOKENS, SHOWN_SEEDS = 48, (0, 1, 2, 3)


def texts(*, prompt: str, report: Report = nobody) -> dict[str, Value]:
    """Continuations of one of PROMPTS at every setting; the value is their mean 4-gram repetition."""
    from compute.engine.registry import shared
    from compute.engine.sampled import continue_rows, described
    from compute.engine.served import circumstances

    model, shown, means = shared().get(MODEL), {}, []
    tokens = model.tokenizer.encode(PROMPTS[prompt])
    for index, (name, rule) in enumerate(SETTINGS.items()):
        report(index / len(SETTINGS), name)
        seeds = SHOWN_SEEDS if rule.temperature else SHOWN_SEEDS[:1]
        rows = continue_rows(model, [tokens] * len(seeds), SHOWN_TOKENS, rule, seeds)
        shown[name] = [asdict(described(model, row, seed)) for row, seed in zip(rows, seeds)]
        means += [text["repetition4"] for text in shown[name]]
    around = {k: v for k, v in circumstances(model).items() if k in ("model", "dtype", "device", "torch")} | {
        "text": PROMPTS[prompt], "settings": len(SETTINGS), "seeds": list(SHOWN_SEEDS), "tokens": SHOWN_TOKENS, "past_end_token": False,
    }  # fmt: skip
    says = {"zh": f"“{PROMPTS[prompt]}”之后的短文，各种设置的平均 4-gram 重复率", "en": f"mean 4-gram repetition of short texts after “{PROMPTS[prompt]}”, over all settings"}
    value = Value(float(np.mean(means)), "ratio", {"absolute": 0.03}, around, says=says, n=len(means),
                  trace={"examples": shown, "conditions": around}, trace_tolerance=SAMPLED_TRACE)  # fmt: skip
    return {f"sampling.texts.{prompt}": value}


MEASURES = {"sampling.table": table, "sampling.texts": texts}


def jobs() -> list[Job]:
    return [
        *(Job("sampling.table", {"setting": s, "tokens": TOKENS, "seeds": SEEDS}, tuple(f"sampling.{s}.{m}" for m in MEASURED), (MODEL,)) for s in SETTINGS),
        *(Job("sampling.texts", {"prompt": p}, (f"sampling.texts.{p}",), (MODEL,)) for p in PROMPTS),
    ]
