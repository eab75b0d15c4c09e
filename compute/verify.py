"""Computes every stored number again and compares: does the file still say what this code and these weights give?"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from compute import measures, precompute
from compute.errors import BrokenData, LabError
from compute.measures.job import Value, as_json

Verdict = Literal["agrees", "differs", "unchecked"]
LONGEST_SHOWN = 28


@dataclass(frozen=True)
class Row:
    """One stored number beside its recomputation. reason: why it differs or could not be checked."""

    key: str
    unit: str
    kind: str
    stored: Any
    recomputed: Any
    difference: float | None  # relative, absolute, or how many positions are not equal: as the tolerance says
    tolerance: Mapping[str, Any]
    verdict: Verdict
    reason: str = ""


def rows(only: str = "", path: Path | None = None, report: Callable[[float, str], None] = lambda fraction, note: None) -> Iterator[Row]:
    """Every entry that begins with `only`, and every one that should be stored and is not."""
    only = only.lstrip("=~")
    entries, known = precompute.stored(path), measures.jobs()
    chosen = [(job, keys) for job in known if (keys := [k for k in job.keys if k.startswith(only)])]
    for index, (job, keys) in enumerate(chosen):
        report(index / len(chosen), keys[0])
        try:
            job.inputs()  # names the checkpoint that is not there
            new, reason = measures.run(job), ""
        except LabError as error:
            new, reason = {}, error.message("en")
        for key in keys:
            yield _row(key, entries.get(key), new.get(key), reason, path)
    jobless = set(entries) - {key for job in known for key in job.keys}
    for key in sorted(k for k in jobless if k.startswith(only)):
        yield _unchecked(key, entries[key], f"nothing makes it any more (it was {entries[key]['recompute']})")


def _row(key: str, entry: Mapping[str, Any] | None, new: Value | None, reason: str, path: Path | None) -> Row:
    if entry is None:
        value = as_json(new.value) if new else None
        return Row(key, new.unit if new else "", new.kind if new else "", None, value, None, {}, "unchecked",
                   reason or "it is not stored; run python -m compute precompute")  # fmt: skip
    if new is None:
        return _unchecked(key, entry, reason)
    recomputed = as_json(new.value)
    difference, within = compare(entry["value"], recomputed, entry["tolerance"])
    flaw = _flaw(key, entry, new, path)
    verdict = "agrees" if within and not flaw else "differs"
    why = flaw or ("" if within else "other weights or other code than when it was stored")
    return Row(key, entry["unit"], entry["kind"], entry["value"], recomputed, difference, entry["tolerance"], verdict, why)


def _unchecked(key: str, entry: Mapping[str, Any], reason: str) -> Row:
    return Row(key, entry["unit"], entry["kind"], entry["value"], None, None, entry["tolerance"], "unchecked", reason)


def _flaw(key: str, entry: Mapping[str, Any], new: Value, path: Path | None) -> str:
    if precompute.seal(entry) != entry["seal"]:
        return "the entry was edited after it was stored"
    if (entry["unit"], entry["kind"]) != (new.unit, new.kind):
        return f"it is now {new.kind} in {new.unit}"
    if "trace" in entry:
        try:
            precompute.trace(key, path)
        except BrokenData as broken:
            return broken.message("en")
    return ""


def compare(stored: Any, recomputed: Any, tolerance: Mapping[str, Any]) -> tuple[float, bool]:
    """(difference, whether it lies within the tolerance)."""
    ((rule, limit),) = tolerance.items()
    if rule == "exact":
        apart = _apart(stored, recomputed)
        return apart, apart == 0
    if isinstance(stored, list) and isinstance(recomputed, list) and len(stored) == len(recomputed):  # a range, a few values
        each = [compare(a, b, tolerance) for a, b in zip(stored, recomputed)]
        return max((apart for apart, _ in each), default=0.0), all(within for _, within in each)
    if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in (stored, recomputed)):
        return math.inf, False
    apart = abs(stored - recomputed)
    if rule == "at_most":
        return apart, max(stored, recomputed) <= limit
    if rule == "relative":
        apart = apart / abs(stored) if stored else (math.inf if recomputed else 0.0)
    return apart, apart <= limit


def _apart(a: Any, b: Any) -> float:
    if isinstance(a, list) and isinstance(b, list):
        return sum(x != y for x, y in zip(a, b)) + abs(len(a) - len(b))
    return 0.0 if a == b else abs(a - b) if isinstance(a, (int, float)) and isinstance(b, (int, float)) else 1.0


def table(
    only: Annotated[str, Field(max_length=120, description="beginning of the keys; empty: all")] = "",
    report: Callable[[float, str], None] = lambda fraction, note: None,
) -> tuple[Row, ...]:
    """Every stored number beside its recomputation, with the difference, the tolerance and the verdict."""
    return tuple(rows(only, report=report))


def main(only: str = "", as_json: bool = False, path: Path | None = None) -> int:
    """Prints the table. 0: all agree; 1: something differs; 2: nothing to compare; 3: something could not be checked."""
    found = []
    for row in rows(only, path):
        found.append(row)
        if not as_json:
            print(_line(row), flush=True)
    if not found:
        print(f"no stored number begins with {only!r}", file=sys.stderr)
        return 2
    count = {verdict: sum(r.verdict == verdict for r in found) for verdict in ("agrees", "differs", "unchecked")}
    if as_json:
        print(json.dumps({"count": count, "rows": [asdict(r) for r in found]}, ensure_ascii=False, indent=1))
    else:
        print(f"\n{len(found)} compared: {count['agrees']} agree, {count['differs']} differ, {count['unchecked']} could not be checked")
    return 1 if count["differs"] else 3 if count["unchecked"] else 0


MARKS = {"agrees": "✓", "differs": "✗", "unchecked": "?"}


def _line(row: Row) -> str:
    limit = " ".join(f"{rule} {limit:g}" if not isinstance(limit, bool) else rule for rule, limit in row.tolerance.items())
    difference = "" if row.difference is None else f"{row.difference:.2g}"
    line = f"{MARKS[row.verdict]} {row.key:44} {_shown(row.stored):>{LONGEST_SHOWN}} {_shown(row.recomputed):>{LONGEST_SHOWN}} {difference:>9} {limit:16} {row.unit}"
    return line + (f"\n    {row.verdict}: {row.reason}" if row.reason else "")


def _shown(value: Any) -> str:
    text = "–" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
