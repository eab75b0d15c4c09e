"""The recorded runs of the kv-stepper."""

from __future__ import annotations

from compute.measures.job import Job, Report, Value, nobody

SENTENCES = {"zh": "小明把苹果给了", "en": "Tom gave the apple to"}
RECORDED_TOKENS = 64


def stepper(*, name: str, model: str, text: str, new: int, report: Report = nobody) -> dict[str, Value]:
    """A sentence continued with the cache and without. The timings are not kept: they belong to one machine."""
    from compute.engine.served import compare_kv

    run = compare_kv(model, text, new, report)
    around = {k: run.conditions[k] for k in ("model", "dtype", "device", "torch")} | {"text": text, "new": new, "decoding": "greedy"}
    trace = {
        "model": model, "text": text, "prompt_pieces": run.prompt_pieces, "tokens": run.tokens, "pieces": run.pieces, "equal": run.equal,
        "kv_with_cache": run.with_cache.kv_computed, "kv_without_cache": run.without_cache.kv_computed,
        "largest_logit_difference": run.largest_logit_difference, "largest_logit": run.largest_logit, "conditions": around,
    }  # fmt: skip
    tokens_say = {"zh": f"“{text}”之后贪心生成的 {new} 个 token", "en": f"the {new} tokens greedily generated after “{text}”"}
    logits_say = {"zh": "有缓存与无缓存，logits 的最大差", "en": "largest difference of logits with and without the cache"}
    return {
        f"{name}.tokens": Value(run.tokens, "token id", {"exact": True}, around, says=tokens_say, trace=trace),
        f"{name}.largest_logit_difference": Value(
            run.largest_logit_difference, "logit", {"at_most": 1e-3}, around | {"largest_logit": run.largest_logit}, says=logits_say
        ),
    }


MEASURES = {"kv.stepper": stepper}


def jobs() -> list[Job]:
    return [
        Job("kv.stepper", {"name": f"kv-stepper.{lang}", "model": "mini-256", "text": text, "new": RECORDED_TOKENS},
            (f"kv-stepper.{lang}.tokens", f"kv-stepper.{lang}.largest_logit_difference"), ("mini-256",))
        for lang, text in SENTENCES.items()
    ]  # fmt: skip
