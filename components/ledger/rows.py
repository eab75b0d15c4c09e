"""Every number that a page may show, as the ledger's rows: one flat dict each, in one language, nothing recomputed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from components.text import Words, amount, condition, formula, said, short
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
    "speculative": ("speculative",),
    "drafting": ("drafting",),
    "quantize": ("quantize",),
}
QUOTED_GROUPS = ("chips", "configs", "papers", "runs")
LONGEST_LIST = 4


def version() -> str:
    """Changes with the files that rows are made of."""
    files = [precompute.STORE, facts.THIS_MACHINE, *sorted((precompute.STORE.parent / "measured").glob("*.json"))]
    return " ".join(str(file.stat().st_mtime_ns) if file.exists() else "-" for file in files)


@lru_cache(maxsize=8)
def rows(words: Words, version: str) -> tuple[list[dict[str, Any]], list[LabError]]:
    """(the rows by group, what is wrong with files whose numbers are missing). A row says what never changes while the
    files stay; what is empty is left out."""
    found, broken = [], []
    for part in (_stored, _timings, _this_machine, _quoted):
        try:
            found += part(words)
        except LabError as reason:
            broken.append(reason)
    broken += facts.broken().values()
    order = [*GROUPS, *(g for g in dict.fromkeys(row["group"] for row in found) if g not in GROUPS and g not in QUOTED_GROUPS), *QUOTED_GROUPS]
    found.sort(key=lambda row: order.index(row["group"]))
    return [{name: value for name, value in row.items() if not (value is None or value is False or value in ("", []))} for row in found], broken


Seen = Mapping[str, tuple[dict, verify.Row]]
"""By key the entry that was compared with a new run, and how it compares."""


def outcomes(words: Words, seen: Seen) -> dict[str, dict[str, Any]]:
    """By key what is known of it by now: that its entry was edited, or how it compares with a new run. An entry that has
    changed since counts as not recomputed."""
    try:
        entries = precompute.stored()
    except BrokenData:
        return {}  # `rows` says so
    found = {}
    for key, entry in entries.items():
        before = seen.get(key)
        if flaw := verify.tampered(key, entry):
            found[key] = _outcome("differs", before and before[1].recomputed, before and before[1].difference, flaw, entry["unit"], words)
        elif before and before[0] == entry:
            row = before[1]
            found[key] = _outcome(row.verdict, row.recomputed, row.difference, row.reason, entry["unit"], words)
    return found


def _outcome(verdict: str, recomputed: Any, difference: float | None, reason: Mapping[str, str], unit: str, words: Words) -> dict[str, Any]:
    return {
        "verdict": verdict, "recomputed": recomputed, "recomputedShown": "" if recomputed is None else shown(recomputed, unit, words.lang),
        "difference": "" if difference is None else f"{difference:.2g}", "reason": reason.get(words.lang, ""),
    }  # fmt: skip


def _stored(words: Words) -> list[dict[str, Any]]:
    entries = precompute.stored()
    made = {key: job for job in measures.jobs() for key in job.keys}
    return [_entry(key, entries.get(key), made.get(key), words) for key in dict.fromkeys((*made, *entries))]


def _entry(key: str, entry: dict | None, job: measures.Job | None, words: Words) -> dict[str, Any]:
    if entry is None:
        missing = verify.judge(key, None, verify.Again(key)).reason[words.lang]
        row = _row(key, _group(key), "computed" if job.measure == "claims" else "measured", None, "", "", words)
        return row | {"verdict": "unchecked", "reason": missing, "again": True}
    conditions = dict(entry["conditions"])
    how = formula(conditions.pop("formula", ""), words.lang) or f"{entry['recompute']}({', '.join(f'{k}={v}' for k, v in entry['params'].items())})"
    row = _row(key, _group(key), entry["kind"], entry["value"], entry["unit"], entry.get("says", {}).get(words.lang, ""), words)
    row |= {"how": how, "with": _pairs(conditions, words), **_statistics(entry, words), **_reference(entry, words)}
    row |= {"tolerance": limit(entry["tolerance"], words), "again": job is not None, "verdict": "waiting" if job else "unchecked"}
    return row if job else row | {"reason": verify.judge(key, entry, None).reason[words.lang]}


def _timings(words: Words) -> list[dict[str, Any]]:
    found = []
    for key, entry in precompute.timings().items():
        made = entry["made"]
        row = _row(key, _group(key), "timing", entry["value"], entry["unit"], entry["says"].get(words.lang, ""), words)
        around = {**entry["conditions"], **{k: made[k] for k in ("date", "commit") if k in made}}
        found.append(row | {"how": made.get("command", ""), "with": _pairs(around, words), **_statistics(entry, words), **_reference(entry, words)})
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
        row = _row(key, _where_quoted(key), "quoted", q.value, q.unit, q.says.get(words.lang, ""), words)
        found.append(row | {"source": _source(q.source, words), "with": _pairs(q.conditions, words)})
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


def _row(key: str, group: str, kind: str, value: Any, unit: str, says: str, words: Words) -> dict[str, Any]:
    value = list(value) if isinstance(value, tuple) else value
    return {"key": key, "group": group, "kind": kind, "says": says, "value": value, "unit": unit, "verdict": "shown",
            "shown": "" if value is None else shown(value, unit, words.lang)}  # fmt: skip


def _statistics(entry: Mapping[str, Any], words: Words) -> dict[str, Any]:
    interval = entry.get("interval95")
    return {"n": entry.get("n"), "interval": shown(list(interval), entry["unit"], words.lang) if interval else ""}


def _reference(entry: Mapping[str, Any], words: Words) -> dict[str, Any]:
    """The published figure beside ours, and why they differ."""
    given = entry.get("reference")
    if not given:
        return {}
    why = given["why_different"]
    value = given["value"]
    return {"reference": {"shown": shown(value, entry["unit"], words.lang), "value": value, "where": str(given["where"]),
                          "why": why.get(words.lang, "") if isinstance(why, Mapping) else str(why)}}  # fmt: skip


def _source(source: Source, words: Words) -> dict[str, str]:
    return {"title": said(source.title, words.lang), "url": source.url, "where": said(source.where, words.lang), "read_on": source.read_on, "note": said(source.note, words.lang)}


def _pairs(conditions: Mapping[str, Any], words: Words) -> list[list[str]]:
    """Names and values of inputs and conditions in the reader's language, where there is a word for them."""
    return [list(condition(name, value, words.lang)) for name, value in conditions.items()]


def shown(value: Any, unit: str, lang: str) -> str:
    """As prose would print it, with one digit more."""
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, (int, float)):
        return amount(value, unit, lang, 4)
    if len(value) == 2 and all(isinstance(v, (int, float)) for v in value):
        (low, low_unit), (_, high_unit) = (short(v, unit, lang, 4) for v in value)
        last = amount(value[1], unit, lang, 4)
        return f"{low} – {last}" if low_unit == high_unit else f"{amount(value[0], unit, lang, 4)} – {last}"
    more = ", …" if len(value) > LONGEST_LIST else ""
    return f"[{', '.join(map(str, value[:LONGEST_LIST]))}{more}] ({len(value)})"


def limit(tolerance: Mapping[str, Any], words: Words) -> str:
    ((rule, most),) = tolerance.items()
    return words(f"tolerance.{rule}", limit="" if most is True else f"{most:g}".replace("e-0", "e-"))
