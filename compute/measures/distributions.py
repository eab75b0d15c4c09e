"""The recorded logits behind the sampling and speculation lessons."""

from __future__ import annotations

import numpy as np

from compute import sampling, speculative
from compute.measures.job import Job, Report, Value, nobody

PROMPTS = {  # from the surest of our model's answers to the least sure
    "manual": "要删除选中的文字，",
    "english": "To open the file, click",
    "giving": "小明把苹果给了",
    "poem": "春风",
}
MODELS = ("mini-256", "mini-128", "mini-64")  # the target, and its drafts
LOGIT_TOLERANCE = {"absolute": 1e-3}  # processors add in other orders


def vocabulary(*, model: str, report: Report = nobody) -> dict[str, Value]:
    from compute.engine.registry import shared

    tokenizer, size = shared().get(model).tokenizer, shared().get(model).config.vocabulary
    says = {"zh": "我们的模型共用的词表大小", "en": "size of the vocabulary that our models share"}
    around = {"model": model, "tokenizer": "byte-level BPE"}
    return {"mini.vocabulary": Value(size, "token", {"exact": True}, around, says=says, trace=[tokenizer.piece(i) for i in range(size)])}


def next_token(*, prompt: str, report: Report = nobody) -> dict[str, Value]:
    """Entropy and acceptance at temperature 1, nothing cut; the logits themselves are the entropy's trace."""
    from compute.engine.served import next_logits

    text = PROMPTS[prompt]
    said = next_logits(text=text, models=MODELS, report=report)
    around = {k: said.conditions[k] for k in ("model", "dtype", "device", "torch")} | {"text": text, "temperature": 1.0}
    trace = {"text": text, "prompt_pieces": said.prompt_pieces, "logits": said.logits, "conditions": around}
    target, *drafts = MODELS
    p = sampling.probabilities(said.logits[target], sampling.Sampling())
    says = {"zh": f"“{text}”之后，{target} 的熵（T = 1）", "en": f"entropy of {target} after “{text}” (T = 1)"}
    top_says = {"zh": f"“{text}”之后，{target} 最看好的 token 的概率", "en": f"probability of {target}’s likeliest token after “{text}”"}
    made = {
        f"next.{prompt}.entropy": Value(float(sampling.entropy(p)), "nat", LOGIT_TOLERANCE, around, says=says, trace=trace, trace_tolerance=LOGIT_TOLERANCE),
        f"next.{prompt}.top": Value(float(np.max(p)), "ratio", LOGIT_TOLERANCE, around, says=top_says),
    }
    for draft in drafts:
        q = sampling.probabilities(said.logits[draft], sampling.Sampling())
        a_says = {"zh": f"“{text}”之后，{draft} 给 {target} 打草稿的接受率 α", "en": f"acceptance rate α of {draft} drafting for {target} after “{text}”"}
        made[f"next.{prompt}.{draft}.acceptance"] = Value(speculative.acceptance(p, q), "ratio", LOGIT_TOLERANCE, around | {"draft": draft}, says=a_says)
    return made


MEASURES = {"mini.vocabulary": vocabulary, "next.token": next_token}


def jobs() -> list[Job]:
    keys = ("entropy", "top", *(f"{draft}.acceptance" for draft in MODELS[1:]))
    return [
        Job("mini.vocabulary", {"model": MODELS[0]}, ("mini.vocabulary",), MODELS[:1]),
        *(Job("next.token", {"prompt": p}, tuple(f"next.{p}.{k}" for k in keys), MODELS) for p in PROMPTS),
    ]
