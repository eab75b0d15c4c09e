"""The recorded texts of the sharing instrument: samples and beams of our model, with the share of blocks that they save."""

from __future__ import annotations

from compute.measures.job import SAMPLED_TRACE, Job, Report, Value, nobody
from compute.sharing import saved, unfold

MODEL = "mini-256"
TEXTS = {  # prompts of three lengths
    "zh": {
        "short": "小明把苹果给了",
        "middle": "早上，小红从家里带来一个苹果。她把苹果给了",
        "long": "下雨了，小明没有带雨伞。小红有一把雨伞，她把雨伞借给小明。第二天，小明想谢谢小红。小明看见小红很想吃水果，就把苹果给了",
    },
    "en": {
        "short": "Tom gave the apple to",
        "middle": "Lily was hungry, so Tom gave an apple to",
        "long": "It was raining, and Tom gave his umbrella to Lily. The next day, Lily saw that he was very hungry, so she gave the apple to",
    },
}
SEEDS = 16  # recorded samples; sample i is drawn with seed i
WIDTHS = tuple(range(2, 9))
SHOWN, BLOCK = 4, 4  # what the stored value is about


def parallel(*, name: str, text: str, report: Report = nobody) -> dict[str, Value]:
    from compute.engine.siblings import siblings

    run = siblings("parallel", text, SEEDS, 0, report)
    made = [[step[i][1] for step in run.steps] for i in range(SEEDS)]
    share = saved(unfold(run.prompt, from_prompt(made[:SHOWN]), BLOCK)[-1], BLOCK)
    says = {"zh": f"“{run.text}”之后并行采样 {SHOWN} 份、每块 {BLOCK} 个 token 时，共享省下的块", "en": f"blocks saved by sharing: {SHOWN} samples after “{run.text}”, {BLOCK} tokens a block"}
    trace = {"text": run.text, "prompt": run.prompt, "samples": made, "pieces": run.pieces, "conditions": around(run)}
    return {f"{name}.parallel": Value(share, "ratio", {"exact": True}, around(run) | {"seeds": SEEDS}, says=says, trace=trace, trace_tolerance=SAMPLED_TRACE)}


def beam(*, name: str, text: str, report: Report = nobody) -> dict[str, Value]:
    from compute.engine.siblings import siblings

    runs = {}
    for index, width in enumerate(WIDTHS):
        report(index / len(WIDTHS), f"{width}")
        runs[width] = siblings("beam", text, width)
    run = runs[SHOWN]
    share = saved(unfold(run.prompt, run.steps, BLOCK)[-1], BLOCK)
    says = {"zh": f"“{run.text}”之后宽 {SHOWN} 的 beam search、每块 {BLOCK} 个 token 时，共享省下的块", "en": f"blocks saved by sharing: a beam search of width {SHOWN} after “{run.text}”, {BLOCK} tokens a block"}
    pieces = {token: piece for each in runs.values() for token, piece in each.pieces.items()}
    trace = {"text": run.text, "prompt": run.prompt, "beams": {width: each.steps for width, each in runs.items()}, "pieces": pieces, "conditions": around(run)}
    return {f"{name}.beam": Value(share, "ratio", {"absolute": 0.1}, around(run) | {"widths": list(WIDTHS)}, says=says, trace=trace, trace_tolerance=SAMPLED_TRACE)}


def from_prompt(samples: list[list[int]]) -> list[list[tuple[int, int]]]:
    """Independent samples as steps: the first token goes on from the prompt, the others each from its own text."""
    return [[(i if at else 0, tokens[at]) for i, tokens in enumerate(samples)] for at in range(len(samples[0]))]


def around(run) -> dict:
    kept = ("model", "dtype", "device", "torch", "new", "temperature", "score")
    return {k: run.conditions[k] for k in kept if k in run.conditions} | {"text": run.text}


MEASURES = {"sharing.parallel": parallel, "sharing.beam": beam}


def jobs() -> list[Job]:
    return [
        Job(f"sharing.{mode}", {"name": f"sharing.{texts}.{prompt}", "text": text}, (f"sharing.{texts}.{prompt}.{mode}",), (MODEL,))
        for texts, prompts in TEXTS.items() for prompt, text in prompts.items() for mode in ("parallel", "beam")
    ]  # fmt: skip
