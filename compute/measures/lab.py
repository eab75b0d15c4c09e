"""The lab's first table, what of it is the same on every machine: equal texts with the KV cache and without, and how many
keys and values each way computes. The speeds are of one machine: compute/engine/cache_race.py."""

from __future__ import annotations

from compute.measures.job import Job, Report, Value, nobody
from compute.measures.sampling import prompts

MODEL = "mini-256"
PROMPT = "小明把苹果给了"
LENGTHS = (32, 64, 128, 240)  # new tokens
WIDTHS = (1, 32, 64, 128, 240)  # tokens of one forward that is timed
COMPARED = slice(None, None, 4)  # of the sixteen prompts, four: without a cache a text takes seconds
PARTS = ("same_output", "kv_with", "kv_without")


def cache(*, new: int, report: Report = nobody) -> dict[str, Value]:
    """Four prompts, and the one that is timed, each continued greedily both ways by `new` tokens, past any end token."""
    from compute.engine.generate import decode
    from compute.engine.registry import shared
    from compute.engine.served import circumstances

    model = shared().get(MODEL)

    def written(text: str, use_cache: bool) -> tuple[list[int], int]:
        """Tokens, and positions whose K and V were computed."""
        steps = list(decode(model, model.tokenizer.encode(text), new, lambda row: int(row.argmax()), use_cache))
        return [token for token, *_ in steps], steps[-1][-1]

    texts = (PROMPT, *prompts()[COMPARED])
    same, counts = 0, {}
    for index, text in enumerate(texts):
        report(index / len(texts), f"{index + 1} / {len(texts)}")
        (cached, few), (plain, many) = written(text, True), written(text, False)
        same += cached == plain
        counts[text] = few, many
    about = {k: v for k, v in circumstances(model).items() if k in ("model", "dtype", "device", "torch")} | {"new": new, "decoding": "greedy", "past_end_token": True}
    timed = about | {"prompt": PROMPT, "prompt_tokens": len(model.tokenizer.encode(PROMPT))}
    made = {
        f"lab.cache.{new}.same_output": Value(
            same, "prompt", {"exact": True}, about | {"prompts": len(texts)}, n=len(texts),
            says={"zh": f"写 {new} 个 token，有缓存与没有缓存写得逐 token 相同的提示", "en": f"prompts that are continued by the same {new} tokens with the cache and without"})
    }  # fmt: skip
    for count, name, zh, en in zip(counts[PROMPT], ("kv_with", "kv_without"), ("开缓存", "不开缓存"), ("with the cache", "without the cache")):
        says = {"zh": f"写 {new} 个 token，{zh}，要算几个位置的 K 和 V", "en": f"positions whose K and V are computed for {new} tokens {en}"}
        made[f"lab.cache.{new}.{name}"] = Value(count, "count", {"exact": True}, timed, says=says)
    return made


MEASURES = {"lab.cache": cache}


def jobs() -> list[Job]:
    return [Job("lab.cache", {"new": new}, tuple(f"lab.cache.{new}.{part}" for part in PARTS), (MODEL,)) for new in LENGTHS]
