"""What each draft is worth: acceptance, tokens per forward of the target, and whether greedy text stays the target's own.

Greedy: every k is run. Sampled: only those of SAMPLED; for others the formula says what α promises, and says so.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from compute import speculative
from compute.measures.distributions import PROMPTS
from compute.measures.job import SAMPLED_TRACE, Job, Report, Value, nobody

TARGET, PUBLIC = "mini-256", "smollm2-135m"
DRAFTS = ("mini-64", "mini-128", "lookup", "mtp")
PUBLIC_DRAFTS = ("smollm2-draft", "mtp", "lookup", "both")
GREEDY_KS, SAMPLED = tuple(range(1, 9)), {0.7: (4,), 1.0: (4,)}
NEW, PUBLIC_NEW, PUBLIC_K = 64, 32, 4
REPLAY_TOKENS = 40
REPLAY_KS, REPLAY_TEMPERATURES = (2, 4, 8), (0.0, 0.7, 1.0)
REFERENCE = {
    "where": "reference/000",
    "why_different": {
        "zh": "参考用的是它自己训练的模型与文本（目标 3.7M、草稿 0.33M，分别训练）；我们的草稿由目标蒸馏而来，提示也不同",
        "en": "the reference used models and texts of its own (target 3.7M, draft 0.33M, trained apart); our draft was distilled from the target, on other prompts",
    },
}
COUNTED = ("tokens_per_forward", "acceptance", "accepted_share", "expected")


def name_of(target: str, draft: str) -> str:
    """A draft's name in keys: look-up and the MTP head are one thing on each target."""
    return f"smollm2-{draft}" if target == PUBLIC and draft in ("lookup", "mtp", "both") else draft


def key_of(target: str, draft: str, k: int, temperature: float) -> str:
    return f"drafting.{name_of(target, draft)}.k{k}.t{temperature:g}"


def keys_of(target: str, draft: str, ks: tuple[int, ...], temperature: float) -> tuple[str, ...]:
    parts = (*COUNTED, *(("identical",) if temperature == 0 else ()))
    return tuple(f"{key_of(target, draft, k, temperature)}.{part}" for k in ks for part in parts)


def draft(*, target: str, draft: str, temperature: float, ks: list[int], new: int, every: int = 1, report: Report = nobody) -> dict[str, Value]:
    """The fixed prompts (each `every`-th), for each k; sampled text i draws with seed i."""
    from compute.engine import drafts
    from compute.engine.registry import shared
    from compute.engine.speculate import speculate, tally
    from compute.sampling import Sampling

    model = shared().get(target)
    guesses, texts = drafts.source(draft, model), drafts.prompts(target)[::every]
    around = circumstances(model) | {"target": target, "draft": draft, "temperature": temperature, "prompts": len(texts), "new": new}
    made: dict[str, Value] = {}
    for step, k in enumerate(ks):
        report(step / len(ks), f"{draft} k = {k}, T = {temperature:g}")
        runs = []
        for seed, prompt in enumerate(texts):
            tokens = model.tokenizer.encode(prompt.sent)
            drafter = guesses.new(len(tokens) + new + k)
            runs.append(list(speculate(model, drafter, tokens, new, k, sampling=Sampling(temperature), seed=seed)))
        guessed = sum(bool(turn.guesses) for turns in runs for turn in turns) / sum(len(turns) - 1 for turns in runs)
        made |= _values(key_of(target, draft, k, temperature), k, [tally(turns) for turns in runs], guessed, around | {"k": k})
        if temperature == 0:
            same = sum([t for turn in turns for t in turn.tokens] == plain(target, prompt.sent, new) for turns, prompt in zip(runs, texts))
            says = {"zh": f"{draft} 起草、k = {k}，贪心文本与目标自己写的逐 token 相同的提示数", "en": f"prompts on which greedy text drafted by {draft}, k = {k}, is the target’s own, token for token"}
            made[f"{key_of(target, draft, k, 0)}.identical"] = Value(same, "prompt", {"exact": True}, around | {"k": k}, says=says, n=len(texts))
    return made


@cache
def plain(target: str, text: str, new: int) -> list[int]:
    """What the target writes by itself, greedily."""
    from compute.engine.generate import generate
    from compute.engine.registry import shared

    model = shared().get(target)
    return [step.token for step in generate(model, model.tokenizer.encode(text), new)]


def circumstances(model: Any) -> dict[str, Any]:
    from compute.engine import served

    return {k: v for k, v in served.circumstances(model).items() if k in ("dtype", "device", "torch")}


def _values(key: str, k: int, tallies: list, guessed: float, around: dict[str, Any]) -> dict[str, Value]:
    draft_, t = around["draft"], around["temperature"]
    rounds, checked = (sum(getattr(t_, part) for t_ in tallies) for part in ("rounds", "checked"))
    alpha = sum(t_.overlap for t_ in tallies) / checked if checked else 0.0
    share, per = (sum(t_.accepted for t_ in tallies) / checked if checked else 0.0), sum(t_.tokens for t_ in tallies) / rounds
    loose = {"relative": 0.02} if t == 0 else {"relative": 0.05}  # a tie decided otherwise by another processor changes what follows
    zh, en = f"{draft_} 起草，k = {k}，T = {t:g}", f"drafted by {draft_}, k = {k}, T = {t:g}"
    reference = {"value": 1.96} | REFERENCE if (draft_, k, t) == ("mini-64", 4, 1.0) else None
    alphas = {"value": 0.567} | REFERENCE if reference else None
    return {
        f"{key}.tokens_per_forward": Value(per, "token/forward", loose, around, says={"zh": f"目标模型每次前向写出的 token：{zh}", "en": f"tokens per forward of the target: {en}"},
                                           interval95=interval([t_.tokens for t_ in tallies], [t_.rounds for t_ in tallies], 1, k + 1), n=rounds, reference=reference),
        f"{key}.acceptance": Value(alpha, "ratio", loose, around, says={"zh": f"接受率 α，检查过的猜测上 Σ min(p, q) 的均值：{zh}", "en": f"acceptance α, mean of Σ min(p, q) over the checked guesses: {en}"},
                                   interval95=interval([t_.overlap for t_ in tallies], [t_.checked for t_ in tallies]) if checked else None, n=checked, reference=alphas),
        f"{key}.accepted_share": Value(share, "ratio", loose, around, says={"zh": f"检查过的猜测中收下的比例：{zh}", "en": f"share of the checked guesses that were accepted: {en}"},
                                       interval95=interval([t_.accepted for t_ in tallies], [t_.checked for t_ in tallies]) if checked else None, n=checked),
        f"{key}.expected": Value(1 + guessed * (speculative.expected_tokens(alpha, k) - 1), "token/forward", loose, around | {"acceptance": alpha, "rounds_with_guesses": guessed, "formula": "(1 − α^(k+1)) / (1 − α), and 1 where nothing was guessed"},
                                 says={"zh": f"由 α 按公式算的 E：{zh}", "en": f"E by the formula from α: {en}"}),
    }  # fmt: skip


def interval(sums: list[float], counts: list[float], least: float = 0.0, most: float = 1.0) -> tuple[float, float]:
    """95 % interval of Σ sums / Σ counts over prompts, which differ more than the rounds of one: linearised ratio, Student's t,
    cut at what is possible."""
    from scipy.special import stdtrit

    m, ratio = len(sums), sum(sums) / sum(counts)
    spread = math.sqrt(sum((s - ratio * c) ** 2 for s, c in zip(sums, counts)) * m / (m - 1)) / sum(counts)
    t = float(stdtrit(m - 1, 0.975))
    return max(least, ratio - t * spread), min(most, ratio + t * spread)


# ---- what "identical" rests on


def ties(*, target: str, new: int, report: Report = nobody) -> dict[str, Value]:
    """Along the target's own greedy texts: the smallest distance of the two best logits, and how far the logits of one wide
    forward lie from those of steps of one token."""
    from compute.engine import drafts
    from compute.engine.registry import shared

    model, texts = shared().get(target), drafts.prompts(target)
    gap, apart = drafts.closest_call(model, [p.sent for p in texts], new, report)
    around = circumstances(model) | {"target": target, "prompts": len(texts), "new": new, "decoding": "greedy"}
    return {
        f"drafting.{target}.smallest_gap": Value(gap, "logit", {"absolute": 1e-3}, around, n=new * len(texts), says={
            "zh": f"{target} 的贪心文本里，前两名 logit 的最小差距", "en": f"smallest distance of the two best logits in greedy texts of {target}"}),
        f"drafting.{target}.widths_apart": Value(apart, "logit", {"at_most": 1e-3}, around, n=new * len(texts), says={
            "zh": "一次前向多个 token 与一次一个，logit 的最大差", "en": "largest difference of logits between a forward of many tokens and one token at a time"}),
    }  # fmt: skip


def cost(*, target: str, name: str, report: Report = nobody) -> dict[str, Value]:
    from compute.engine import drafts
    from compute.engine.registry import shared

    model = shared().get(target)
    parameters, all_ = drafts.source(name, model).parameters, model.weights.parameters()
    around = {"target": target, "draft": name, "draft_parameters": parameters, "target_parameters": all_, "counted": "numbers multiplied for one token"}
    says = {"zh": f"{name} 猜一个 token 的代价 c（按参数量，目标 = 1）", "en": f"cost c of a guess by {name}, by parameters (target = 1)"}
    return {f"drafting.{name_of(target, name)}.cost_by_parameters": Value(parameters / all_, "ratio", {"relative": 1e-9}, around, says=says)}


# ---- recorded runs


def replays(*, prompt: str, target: str, name: str, new: int, report: Report = nobody) -> dict[str, Value]:
    """Every k and temperature of the replay, for one prompt and one draft. Seconds are not kept: they belong to one machine."""
    from compute.engine import drafts
    from compute.functions import plain as as_plain

    settings, runs = [(k, t) for k in REPLAY_KS for t in REPLAY_TEMPERATURES], {}
    for index, (k, t) in enumerate(settings):
        report(index / len(settings), replay_name(k, t))
        run = as_plain(drafts.run(target=target, draft=name, k=k, text=PROMPTS[prompt], temperature=t, new=new))
        run["rounds"] = [{part: value for part, value in told.items() if not part.endswith("_seconds")} for told in run["rounds"]]
        run["conditions"] = {part: value for part, value in run["conditions"].items() if part not in ("cpu", "system", "date", "threads")}
        runs[replay_name(k, t)] = run
    shown = runs[replay_name(4, 1.0)]["tally"]
    around = {"text": PROMPTS[prompt], "target": target, "draft": name, "k": 4, "temperature": 1.0, "new": new, "seed": 0}
    says = {"zh": f"回放“{PROMPTS[prompt]}”，{name} 起草：目标每次前向写出的 token", "en": f"replay of “{PROMPTS[prompt]}”, drafted by {name}: tokens per forward of the target"}
    return {f"drafting.replay.{prompt}.{name}": Value(shown["tokens"] / shown["rounds"], "token/forward", {"relative": 0.05}, around, says=says, n=shown["rounds"], trace=runs, trace_tolerance=SAMPLED_TRACE)}


def replay_name(k: int, temperature: float) -> str:
    return f"k{k}.t{temperature:g}"


MEASURES = {"drafting.draft": draft, "drafting.ties": ties, "drafting.cost": cost, "drafting.replays": replays}


def _models(target: str, names: tuple[str, ...]) -> tuple[str, ...]:
    files = {"mtp": f"{target}-mtp", "both": f"{target}-mtp"}
    return (target, *(files.get(name, name) for name in names if name != "lookup"))


def jobs() -> list[Job]:
    found = []
    for name in DRAFTS:
        for t, ks in ({0.0: GREEDY_KS} | SAMPLED).items():
            params = {"target": TARGET, "draft": name, "temperature": t, "ks": list(ks), "new": NEW}
            found.append(Job("drafting.draft", params, keys_of(TARGET, name, ks, t), _models(TARGET, (name,))))
    for name in PUBLIC_DRAFTS:
        params = {"target": PUBLIC, "draft": name, "temperature": 0.0, "ks": [PUBLIC_K], "new": PUBLIC_NEW, "every": 2}
        found.append(Job("drafting.draft", params, keys_of(PUBLIC, name, (PUBLIC_K,), 0.0), _models(PUBLIC, (name,))))
    for target, names in ((TARGET, DRAFTS), (PUBLIC, PUBLIC_DRAFTS)):
        for name in names:
            key = f"drafting.{name_of(target, name)}.cost_by_parameters"
            found.append(Job("drafting.cost", {"target": target, "name": name}, (key,), _models(target, (name,))))
    found.append(Job("drafting.ties", {"target": TARGET, "new": NEW}, tuple(f"drafting.{TARGET}.{part}" for part in ("smallest_gap", "widths_apart")), (TARGET,)))
    for prompt in PROMPTS:
        for name in DRAFTS:
            params = {"prompt": prompt, "target": TARGET, "name": name, "new": REPLAY_TOKENS}
            found.append(Job("drafting.replays", params, (f"drafting.replay.{prompt}.{name}",), _models(TARGET, (name,))))
    return found
