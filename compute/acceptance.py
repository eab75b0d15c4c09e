"""Acceptance criteria of the project part: four decisions about our own model, each judged by stored measurements.

A criterion names the numbers it rests on, so that a reader finds them at the desk and `verify` can say when one of them no longer
comes out. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from compute import precompute
from compute.measures import lab
from compute.measures.quantize import MODEL, TABLES
from compute.measures.sampling import MEASURED, SETTINGS
from compute.quantize.schemes import SCHEMES

Verdict = Literal["met", "not_met", "unchecked"]
Subject = Literal["cache", "sampling", "drafting", "quantization"]
Entries = Mapping[str, Mapping[str, Any]]
SUBJECTS: tuple[Subject, ...] = ("cache", "sampling", "drafting", "quantization")
DRAFTS, KS = ("mini-64", "mini-128", "mtp", "lookup"), tuple(range(1, 9))
FLOOR = "quantize.noise_floor"
WEIGHT_SCHEMES = tuple(name for name in TABLES[MODEL] if SCHEMES[name].weights and not SCHEMES[name].activations and not SCHEMES[name].planted)
"""Schemes of mini-256's weights alone: what the fourth decision is about."""


@dataclass(frozen=True)
class Criterion:
    """says: what is demanded. value against threshold decides, both as text, since some count and some measure. rests_on: keys
    of stored entries. of: the option that it judges, "" for the whole table. reason: why it is not met or unchecked."""

    id: Subject
    says: Mapping[str, str]
    verdict: Verdict
    value: str
    threshold: str
    rests_on: tuple[str, ...]
    of: str = ""
    reason: Mapping[str, str] | None = None


def entries() -> dict[str, Mapping[str, Any]]:
    """Everything that was measured: judged results and timings."""
    return {**precompute.stored(), **precompute.timings()}


def criteria(kept: Entries, sampling: str = "", scheme: str = "") -> tuple[Criterion, ...]:
    """The four, at the learner's choices: a setting of SETTINGS and a scheme; "" where nothing is chosen yet, which leaves the part
    about the choice unchecked. scheme "fp32" changes nothing, and so meets the fourth."""
    return cache(kept), default_sampling(kept, sampling), drafting(kept), quantization(kept, scheme)


def cache(kept: Entries) -> Criterion:
    same = tuple(f"lab.cache.{new}.same_output" for new in lab.LENGTHS)
    speeds = tuple(f"lab.cache.{new}.{way}.tokens_per_second" for new in lab.LENGTHS for way in ("with", "without"))
    says = _both("32、64、128、240 个新 token 的速度表齐全，有缓存与没有缓存写得逐 token 相同", "speeds for 32, 64, 128 and 240 new tokens are all there, and both ways write the same tokens")
    if lacking := _lacking(kept, same + speeds):
        return Criterion("cache", says, "not_met", f"{len(same + speeds) - len(lacking)}", f"{len(same + speeds)}", same + speeds, reason=_missing(lacking))
    equal, of = sum(kept[key]["value"] for key in same), sum(kept[key]["n"] for key in same)
    return Criterion("cache", says, "met" if equal == of else "not_met", f"{equal}", f"{of}", same + speeds)


def sampling_table(kept: Entries) -> Criterion:
    """Whether the table is complete, nothing being chosen."""
    found = default_sampling(kept)
    return found if found.verdict == "not_met" else replace(found, verdict="met", reason=None)


def default_sampling(kept: Entries, chosen: str = "") -> Criterion:
    """The table; and of the setting that was chosen its own figures, which a decision has to cite."""
    table = tuple(f"sampling.{setting}.{measure}" for setting in SETTINGS for measure in MEASURED)
    says = _both("温度 × 截断的重复率表齐全，选定的设置引用自己的数", "the table of temperature × truncation is complete, and the chosen setting cites its own figures")
    if lacking := _lacking(kept, table):
        return Criterion("sampling", says, "not_met", f"{len(table) - len(lacking)}", f"{len(table)}", table, chosen, _missing(lacking))
    if not chosen:
        return Criterion("sampling", says, "unchecked", f"{len(table)}", f"{len(table)}", table, reason=_both("还没有选定设置", "no setting is chosen yet"))
    own = tuple(f"sampling.{chosen}.{measure}" for measure in ("repetition4", "kept", "entropy"))
    repeats, greedy = kept[own[0]]["value"], kept["sampling.t0.repetition4"]["value"]
    return Criterion("sampling", says, "met", f"{repeats:.1%}", f"{greedy:.1%}", own + ("sampling.t0.repetition4",), chosen)


def drafting(kept: Entries) -> Criterion:
    keys = tuple(f"drafting.{draft}.k{k}.t0.identical" for draft in DRAFTS for k in KS)
    says = _both("贪心时，投机采样写出的与目标模型自己写的逐 token 相同：16 个提示 × 每种草稿 × 每个 k", "greedy speculative output is the target’s own, token for token: 16 prompts × every draft × every k")
    if lacking := _lacking(kept, keys):
        return Criterion("drafting", says, "not_met", f"{len(keys) - len(lacking)}", f"{len(keys)}", keys, reason=_missing(lacking))
    same, of = sum(kept[key]["value"] for key in keys), sum(kept[key]["n"] for key in keys)
    return Criterion("drafting", says, "met" if same == of else "not_met", f"{same}", f"{of}", keys)


def quantization(kept: Entries, scheme: str = "") -> Criterion:
    says = _both("量化方案让损失涨得比噪声底线（换种子重新训练的 3σ）少", "the scheme raises the loss by less than the noise floor, 3σ of trainings with other seeds")
    if scheme == "fp32":
        return Criterion("quantization", says, "met", "0", _nats(kept[FLOOR]["value"]) if FLOOR in kept else "", (FLOOR,), scheme)
    if not scheme:
        return Criterion("quantization", says, "unchecked", "", _nats(kept[FLOOR]["value"]) if FLOOR in kept else "", (FLOOR,), reason=_both("还没有选定方案", "no scheme is chosen yet"))
    keys = (f"quantize.{MODEL}.{scheme}.loss_change", FLOOR)
    if lacking := _lacking(kept, keys):
        return Criterion("quantization", says, "unchecked", "", "", keys, scheme, _missing(lacking))
    change, floor = (kept[key]["value"] for key in keys)
    return Criterion("quantization", says, "met" if change < floor else "not_met", _nats(change), _nats(floor), keys, scheme)


def of_schemes(kept: Entries) -> tuple[Criterion, ...]:
    """The fourth criterion for every scheme of the weights that was measured."""
    return tuple(quantization(kept, scheme) for scheme in WEIGHT_SCHEMES if f"quantize.{MODEL}.{scheme}.loss_change" in kept)


def doubted(found: Iterable[Criterion], apart: Collection[str]) -> tuple[Criterion, ...]:
    """The same criteria, where a number they rest on did not come out again: what it decided is unchecked."""
    return tuple(replace(c, verdict="unchecked", reason=_both(f"{lost[0]} 重算时对不上", f"{lost[0]} did not come out again")) if (lost := [key for key in c.rests_on if key in apart]) else c for c in found)


def _lacking(kept: Entries, keys: tuple[str, ...]) -> list[str]:
    return [key for key in keys if key not in kept]


def _missing(keys: list[str]) -> dict[str, str]:
    return _both(f"缺 {keys[0]} 等 {len(keys)} 个数", f"{len(keys)} numbers are missing, first {keys[0]}")


def _nats(value: float) -> str:
    return f"{value:.4f}"


def _both(zh: str, en: str) -> dict[str, str]:
    return {"zh": zh, "en": en}


# ---- for the command line

MARKS = {"met": "✓", "not_met": "✗", "unchecked": "?"}
WORDS = {"met": "met", "not_met": "NOT met", "unchecked": "unchecked"}


def judged(kept: Entries, compared: Collection[str], apart: Collection[str]) -> tuple[Criterion, ...]:
    """Of whole tables and of every scheme, those that rest on something that was compared; `apart`: what did not come out again."""
    every = (cache(kept), sampling_table(kept), drafting(kept), *of_schemes(kept))
    return doubted((c for c in every if set(c.rests_on) & set(compared)), apart)


def lines(kept: Entries, compared: Collection[str], apart: Collection[str]) -> list[str]:
    """What `verify` prints at its end."""
    found = judged(kept, compared, apart)
    schemes = [c for c in found if c.of]
    told = [f"{MARKS[c.verdict]} {WORDS[c.verdict]:9} {c.id}: {c.says['en']}: {c.value} of {c.threshold}{_because(c)}" for c in found if not c.of]
    if schemes:
        met = sum(c.verdict == "met" for c in schemes)
        told.append(f"  quantization: {schemes[0].says['en']}: {met} of {len(schemes)} schemes. A scheme that is too coarse fails, as it should.")
        told += [f"{MARKS[c.verdict]} {WORDS[c.verdict]:9} {c.of:24} {c.value:>8} against {c.threshold}{_because(c)}" for c in schemes]
    return ["", "acceptance criteria of the project part", *told] if told else []


def _because(c: Criterion) -> str:
    return f" ({c.reason['en']})" if c.reason else ""


def failed(kept: Entries, compared: Collection[str]) -> bool:
    """Whether a criterion about a whole table is not met; that a coarse scheme fails is its result, not a fault."""
    return any(c.verdict == "not_met" for c in (cache(kept), sampling_table(kept), drafting(kept)) if set(c.rests_on) & set(compared))
