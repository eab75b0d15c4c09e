"""Every number that a page may show, as the ledger's rows: one flat dict each, in one language, nothing recomputed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from components.text import Words, amount, digits, quantity
from compute import facts, measures, numbers, precompute, verify
from compute.errors import BrokenData, LabError
from compute.quantity import Quantity, Source

KINDS = ("computed", "measured", "timing", "quoted")
VERDICTS = ("agrees", "differs", "unchecked", "waiting", "shown")
GROUPS = {  # our own numbers, by what their keys begin with; another beginning is a group of its own
    "roofline": ("anchor", "a100", "h200", "upgrade", "engines", "textbook", "this-machine"),
    "kv": ("kv", "kv-stepper", "llama-2-7b", "llama-3-8b", "llama-3-70b", "deepseek-v3"),
    "models": ("mini", "mini-256", "mini-128", "mini-64"),
    "sampling": ("next", "sampling", "temperature", "truncation", "generation"),
    "speculative": ("speculative", "draft", "drafts", "mtp", "overlay"),
}
QUOTED_GROUPS = ("chips", "configs", "papers", "runs")
LONGEST_LIST = 4


def rows(words: Words, judged: Mapping[str, tuple[dict, verify.Row]]) -> tuple[list[dict[str, Any]], list[LabError]]:
    """(the rows by group, what is wrong with files whose numbers are missing). judged: by key the entry that was compared
    with a new run, and the outcome; an entry that has been changed since counts as not recomputed."""
    found, broken = [], []
    for part in (lambda: _stored(words, judged), lambda: _timings(words), lambda: _this_machine(words), lambda: _quoted(words)):
        try:
            found += part()
        except LabError as reason:
            broken.append(reason)
    broken += facts.broken().values()
    order = [*GROUPS, *(g for g in dict.fromkeys(row["group"] for row in found) if g not in GROUPS and g not in QUOTED_GROUPS), *QUOTED_GROUPS]
    return sorted(found, key=lambda row: order.index(row["group"])), broken


def _stored(words: Words, judged: Mapping[str, tuple[dict, verify.Row]]) -> list[dict[str, Any]]:
    entries = precompute.stored()
    made = {key: job for job in measures.jobs() for key in job.keys}
    return [_entry(key, entries.get(key), made.get(key), judged.get(key), words) for key in dict.fromkeys((*made, *entries))]


def _entry(key: str, entry: dict | None, job: measures.Job | None, seen: tuple[dict, verify.Row] | None, words: Words) -> dict[str, Any]:
    if entry is None:
        row = verify.judge(key, None, verify.Again(key))
        outcome = _outcome("unchecked", None, None, row.reason, "", words)
        return _row(key, _group(key), "computed" if job.measure == "claims" else "measured", None, "", "", words) | outcome | {"again": True}
    conditions = dict(entry["conditions"])
    how = conditions.pop("formula", "") or f"{entry['recompute']}({', '.join(f'{k}={v}' for k, v in entry['params'].items())})"
    row = _row(key, _group(key), entry["kind"], entry["value"], entry["unit"], entry.get("says", {}).get(words.lang, ""), words)
    row |= {"how": how, "with": _pairs(conditions, words), "again": job is not None, **_statistics(entry), **_reference(entry, words)}
    row["tolerance"] = limit(entry["tolerance"], words)
    if flaw := verify.tampered(key, entry):
        old = seen[1] if seen else None
        return row | _outcome("differs", old and old.recomputed, old and old.difference, flaw, entry["unit"], words)
    if seen and seen[0] == entry:
        return row | _outcome(seen[1].verdict, seen[1].recomputed, seen[1].difference, seen[1].reason, entry["unit"], words)
    if job is None:
        return row | _outcome("unchecked", None, None, verify.judge(key, entry, None).reason, "", words)
    return row | _outcome("waiting", None, None, {}, "", words)


def _outcome(verdict: str, recomputed: Any, difference: float | None, reason: Mapping[str, str], unit: str, words: Words) -> dict[str, Any]:
    return {
        "verdict": verdict, "recomputed": recomputed, "recomputedShown": "" if recomputed is None else shown(recomputed, unit, words.lang),
        "difference": None if difference is None else f"{difference:.2g}", "reason": reason.get(words.lang, ""),
    }  # fmt: skip


def _timings(words: Words) -> list[dict[str, Any]]:
    found = []
    for key, entry in precompute.timings().items():
        made = entry["made"]
        row = _row(key, _group(key), "timing", entry["value"], entry["unit"], entry["says"].get(words.lang, ""), words)
        around = {**entry["conditions"], **{k: made[k] for k in ("date", "commit") if k in made}}
        found.append(row | {"how": made.get("command", ""), "with": _pairs(around, words), **_statistics(entry), **_reference(entry, words)})
    return found


def _this_machine(words: Words) -> list[dict[str, Any]]:
    chip = facts.this_machine()
    if chip is None:
        return []
    peaks = {f"flops_{dtype}": (peak, "FLOP/s") for dtype, peak in chip.flops_per_s.items()}
    values = {"bandwidth": (chip.bandwidth_bytes_per_s, "B/s"), **peaks}
    return [
        _row(f"this-machine.{name}", _group("this-machine"), "timing", value, unit, words(f"machine.{name}"), words)
        | {"how": chip.source.title, "with": [["", chip.source.note]]}
        for name, (value, unit) in values.items()
    ]


def _quoted(words: Words) -> list[dict[str, Any]]:
    found = []
    for key, q in (numbers.quoted_names() | _public_runs()).items():
        row = _row(key, _where_quoted(key), "quoted", q.value, q.unit, q.says.get(words.lang, ""), words, q)
        found.append(row | {"source": _source(q.source), "with": _pairs(q.conditions, words)})
    return found


@cache
def _public_runs() -> dict[str, Quantity]:
    runs = {}
    for run in facts.public_runs():
        engine = run.engine.replace(" ", "-").lower()
        key = f"public.{engine}.{run.model}.{run.chip}.{run.bits:g}bit.batch{run.batch}.context{run.context}"
        says = {lang: f"{run.engine}, {run.model}, {run.chip}, batch {run.batch}" for lang in ("zh", "en")}
        runs[key] = Quantity(run.tokens_per_second, "token/s", "quoted", source=run.source, says=says)
    return runs


def _where_quoted(key: str) -> str:
    owner = key.rpartition(".")[0]
    return "runs" if key.startswith("public.") else "chips" if owner in facts.published_chips() else "configs" if owner in facts.models() else "papers"


def _group(key: str) -> str:
    prefix = key.split(".")[0]
    return next((group for group, prefixes in GROUPS.items() if prefix in prefixes), prefix)


def _row(key: str, group: str, kind: str, value: Any, unit: str, says: str, words: Words, q: Quantity | None = None) -> dict[str, Any]:
    return {
        "key": key, "group": group, "kind": kind, "says": says, "value": list(value) if isinstance(value, tuple) else value, "unit": unit,
        "shown": "" if value is None else shown(value, unit, words.lang), "how": "", "source": None, "with": [], "n": None, "interval": "",
        "tolerance": "", "reference": None, "again": False, **_outcome("shown", None, None, {}, "", words),
    }  # fmt: skip


def _statistics(entry: Mapping[str, Any]) -> dict[str, Any]:
    low_high = entry.get("interval95")
    return {"n": entry.get("n"), "interval": f"{digits(low_high[0], 4)} – {digits(low_high[1], 4)}" if low_high else ""}


def _reference(entry: Mapping[str, Any], words: Words) -> dict[str, Any]:
    """The published figure beside ours, and why they differ."""
    given = entry.get("reference")
    if not given:
        return {}
    why = given["why_different"]
    value = given["value"]
    return {"reference": {"shown": shown(value, entry["unit"], words.lang), "value": value, "where": str(given["where"]),
                          "why": why.get(words.lang, "") if isinstance(why, Mapping) else str(why)}}  # fmt: skip


def _source(source: Source) -> dict[str, str]:
    return {"title": source.title, "url": source.url, "where": source.where, "read_on": source.read_on, "note": source.note}


def _pairs(conditions: Mapping[str, Any], words: Words) -> list[list[str]]:
    """Names and values of inputs and conditions in the reader's language, where there is a word for them."""
    return [[words.get(f"condition.{name}", name), _condition(value, words.lang)] for name, value in conditions.items()]


def _condition(value: Any, lang: str) -> str:
    if isinstance(value, Quantity):
        return quantity(value, "", lang)
    if isinstance(value, Mapping):
        return str(value[lang]) if set(value) == {"zh", "en"} else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def shown(value: Any, unit: str, lang: str) -> str:
    """As prose would print it, with one digit more."""
    if isinstance(value, bool) or isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float)):
        return amount(value, unit, lang, 4)
    if len(value) == 2 and all(isinstance(v, (int, float)) for v in value):
        return f"{amount(value[0], unit, lang, 4)} – {amount(value[1], unit, lang, 4)}"
    more = ", …" if len(value) > LONGEST_LIST else ""
    return f"[{', '.join(map(str, value[:LONGEST_LIST]))}{more}] ({len(value)})"


def limit(tolerance: Mapping[str, Any], words: Words) -> str:
    ((rule, most),) = tolerance.items()
    return words(f"tolerance.{rule}", limit=f"{most:g}" if most is not True else "")
