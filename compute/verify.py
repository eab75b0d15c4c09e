"""Computes every stored number again and compares: does the file still say what this code and these weights give?

Three things are looked at, each by itself: the entry's seal (was it edited after it was stored?), its value, interval and
count against a new run within the entry's tolerance, and the arrays beside it against those of the new run.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from compute import acceptance, measures, precompute
from compute.errors import BadInput, BrokenData, LabError
from compute.measures.job import Job, Report, as_stored, nobody

Verdict = Literal["agrees", "differs", "unchecked"]
Both = Mapping[str, str]  # a sentence in zh and en
LONGEST_SHOWN = 28
TRACE_TOLERANCE = {"absolute": 1e-3}  # of an entry that names none; see Value.trace_tolerance
LOOSE_COUNT = 0.05
APART = {"conditions"}  # parts of a trace that say where it was made


@dataclass(frozen=True)
class Again:
    """What a new run gave for one key; `reason` says why there is none."""

    key: str
    value: Any = None
    unit: str = ""
    kind: str = ""
    interval95: list[float] | None = None
    n: int | None = None
    trace: Any = None
    reason: Both = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One stored number beside its recomputation. reason: why it differs or could not be checked, in zh and en."""

    key: str
    unit: str
    kind: str
    stored: Any
    recomputed: Any
    difference: float | None  # relative, absolute, or how many positions are not equal: as the tolerance says
    tolerance: Mapping[str, Any]
    verdict: Verdict
    reason: Both = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """One job's rows and how long it took; no measure for entries that nothing makes any more."""

    measure: str
    seconds: float
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Recomputed:
    numbers: tuple[Again, ...]


# ---- a new run


def again(job: Job, report: Report = nobody) -> tuple[Again, ...]:
    """The job run anew; when it cannot be (its model is not there), the reason for each of its keys."""
    try:
        job.inputs()  # names the model that is not there
        made = measures.run(job, report)
    except LabError as error:
        if error.code == "cancelled":
            raise
        reason = {lang: error.message(lang) for lang in ("zh", "en")}
        return tuple(Again(key, reason=reason) for key in job.keys)
    return tuple(
        Again(key, as_stored(v.value), v.unit, v.kind, as_stored(v.interval95), v.n, as_stored(v.trace)) for key, v in made.items()
    )


def recompute(
    keys: Annotated[tuple[str, ...], Field(min_length=1, max_length=2000, description="keys of stored numbers")],
    report: Report = nobody,
) -> Recomputed:
    """Runs the jobs that make these numbers and returns all that they make, for the caller to compare with its own file."""
    chosen = [job for job in measures.jobs() if set(job.keys) & set(keys)]
    if lost := set(keys) - {key for job in chosen for key in job.keys}:
        raise BadInput("keys", sorted(lost)[0], "nothing makes that number", "没有任何测量产生这个数")
    found: list[Again] = []
    for index, job in enumerate(chosen):
        found += again(job, lambda fraction, note: report((index + fraction) / len(chosen), note or job.keys[0]))
        report((index + 1) / len(chosen), job.keys[0])
    return Recomputed(tuple(found))


# ---- the comparison


def judge(key: str, entry: Mapping[str, Any] | None, new: Again | None, path: Path | None = None) -> Row:
    """The stored entry beside the new run; `new` is None where nothing makes the number any more."""
    if entry is None:
        reason = new.reason or _both("文件里没有它；请运行 python -m compute precompute", "it is not stored; run python -m compute precompute")
        return Row(key, new.unit, new.kind, None, new.value, None, {}, "unchecked", reason)
    stored = entry["unit"], entry["kind"], entry["value"]
    if new is None or new.reason:
        made_by = entry["recompute"]
        flaw = tampered(key, entry, path)
        reason = flaw or (new.reason if new else _both(f"已没有产生它的测量（原为 {made_by}）", f"nothing makes it any more (it was {made_by})"))
        return Row(key, *stored, None, None, entry["tolerance"], "differs" if flaw else "unchecked", reason)
    difference, within = compare(entry["value"], new.value, entry["tolerance"])
    reason = tampered(key, entry, path) or ({} if within else _both("权重或代码与存入时不同", "other weights or other code than when it was stored"))
    reason = reason or _beside(key, entry, new, path)
    return Row(key, *stored, new.value, difference, entry["tolerance"], "differs" if reason else "agrees", reason)


def tampered(key: str, entry: Mapping[str, Any], path: Path | None = None) -> Both:
    """Why the entry is not as it was stored, without computing anything; {} when it is."""
    if precompute.seal(entry) != entry["seal"]:
        return _both("存入之后被改过：封签与内容不符", "it was edited after it was stored: its seal does not fit")
    if "trace" in entry:
        try:
            precompute.arrays(key, entry, path)
        except BrokenData as broken:
            return {lang: broken.message(lang) for lang in ("zh", "en")}
    return {}


def _beside(key: str, entry: Mapping[str, Any], new: Again, path: Path | None) -> Both:
    """What else of the entry is not as the new run gives it."""
    if (entry["unit"], entry["kind"]) != (new.unit, new.kind):
        return _both(f"现在是 {new.unit} 的 {new.kind}", f"it is now {new.kind} in {new.unit}")
    if not _same_count(entry, new.n):
        return _both(f"样本数存的是 {entry.get('n')}，现在是 {new.n}", f"n is stored as {entry.get('n')} and is now {new.n}")
    if not _same_interval(entry, new.interval95):
        return _both(f"区间存的是 {entry.get('interval95')}，现在是 {new.interval95}", f"the interval is stored as {entry.get('interval95')} and is now {new.interval95}")
    if ("trace" in entry) != (new.trace is not None):
        return _both("旁边的数组只有一边有", "only one side has arrays beside the value")
    if new.trace is not None:
        return _traces(precompute.arrays(key, entry, path), new.trace, dict(entry["trace"].get("tolerance", TRACE_TOLERANCE)))
    return {}


def _traces(stored: Any, new: Any, tolerance: dict[str, Any]) -> Both:
    share = tolerance.pop("parted", 0.0)
    found = apart(stored, new, tolerance)
    if found.parted <= share * found.leaves:
        return {}
    zh, en = f"数组里 {found.leaves} 处有 {found.parted} 处不同", f"{found.parted} of {found.leaves} places in the arrays differ"
    return _both(f"{zh}，先是 {found.first}", f"{en}, first {found.first}")


def _same_count(entry: Mapping[str, Any], new: int | None) -> bool:
    """Equal where the value has to be; where it may differ, one decision that falls otherwise moves the count too."""
    stored, ((rule, limit),) = entry.get("n"), entry["tolerance"].items()
    if stored is None or new is None:
        return stored is new
    loose = rule != "exact" and limit > 1e-6
    return abs(stored - new) <= (LOOSE_COUNT * stored if loose else 0)


def _same_interval(entry: Mapping[str, Any], new: list[float] | None) -> bool:
    """Both bounds as near as the value has to be: an interval moves with it."""
    stored, value = entry.get("interval95"), entry["value"]
    if stored is None or new is None:
        return stored is new
    ((rule, limit),) = entry["tolerance"].items()
    size = max(map(abs, (*stored, value) if isinstance(value, (int, float)) else stored))
    near = {"exact": 1e-9 * size, "relative": limit * size, "absolute": limit, "at_most": limit}[rule]
    return all(abs(a - b) <= near for a, b in zip(stored, new))


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


@dataclass(frozen=True)
class Apart:
    """How two traces compare: leaves in all, leaves that part, and where the first does, as "logits[3][17]: 1.25, now 1.5"."""

    leaves: int
    parted: int
    first: str


def apart(stored: Any, new: Any, tolerance: Mapping[str, Any], where: str = "") -> Apart:
    """Compares leaf by leaf. Floats may differ by the tolerance, all else must be equal; what is on one side only parts as a
    whole. What says where a trace was made ("conditions") is not compared."""
    if isinstance(stored, dict) and isinstance(new, dict):
        names = [name for name in dict.fromkeys((*stored, *new)) if name not in APART]
        inside = [(f"{where}.{name}" if where else name, stored.get(name, MISSING), new.get(name, MISSING)) for name in names]
    elif isinstance(stored, list) and isinstance(new, list):
        inside = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip_longest(stored, new, fillvalue=MISSING))]
    else:
        return _leaf(stored, new, tolerance, where)
    each = [apart(a, b, tolerance, place) for place, a, b in inside]
    return Apart(sum(e.leaves for e in each), sum(e.parted for e in each), next((e.first for e in each if e.first), ""))


MISSING = type("Missing", (), {"__repr__": lambda self: "nothing"})()


def _leaf(stored: Any, new: Any, tolerance: Mapping[str, Any], where: str) -> Apart:
    if float in (type(stored), type(new)) and {type(stored), type(new)} <= {int, float}:
        same = compare(stored, new, tolerance)[1]
    else:
        same = type(stored) is type(new) and stored == new
    leaves = max(_leaves(stored), _leaves(new))
    return Apart(leaves, 0, "") if same else Apart(leaves, leaves, f"{where}: {_short(stored)}, now {_short(new)}")


def _leaves(value: Any) -> int:
    return sum(map(_leaves, value.values() if isinstance(value, dict) else value)) if isinstance(value, (dict, list)) else 1


def _short(value: Any) -> str:
    return repr(value) if len(repr(value)) < 40 else repr(value)[:39] + "…"


def _both(zh: str, en: str) -> Both:
    return {"zh": zh, "en": en}


# ---- all of them


def checked(only: str = "", path: Path | None = None, report: Report = nobody) -> Iterator[Checked]:
    """Every job with a key that begins with `only`, then the entries that nothing makes any more."""
    only = only.lstrip("=~")
    entries, chosen = precompute.stored(path), measures.wanted(only)
    for index, job in enumerate(chosen):
        report(index / len(chosen), job.keys[0])
        began = time.perf_counter()
        new = again(job, lambda fraction, note: report((index + fraction) / len(chosen), note or job.keys[0]))
        rows = tuple(judge(one.key, entries.get(one.key), one, path) for one in new if one.key.startswith(only))
        yield Checked(job.measure, time.perf_counter() - began, rows)
    known = {key for job in measures.jobs() for key in job.keys}
    if lost := sorted(key for key in entries if key not in known and key.startswith(only)):
        yield Checked("", 0.0, tuple(judge(key, entries[key], None, path) for key in lost))


def rows(only: str = "", path: Path | None = None, report: Report = nobody) -> Iterator[Row]:
    for each in checked(only, path, report):
        yield from each.rows


def table(
    only: Annotated[str, Field(max_length=120, description="beginning of the keys; empty: all")] = "",
    report: Callable[[float, str], None] = nobody,
) -> Table:
    """Every stored number beside its recomputation, with the difference, the tolerance and the verdict."""
    return Table(tuple(rows(only, report=report)))


def main(only: str = "", as_json: bool = False, path: Path | None = None) -> int:
    """Prints the table, then the acceptance criteria that rest on it. 0: all agree; 1: something differs, or a whole table's criterion
    is not met; 2: nothing to compare; 3: something could not be checked."""
    jobs: list[Checked] = []
    if not as_json:
        print(HEAD)
    for each in checked(only, path, precompute.progress("verify")):
        jobs.append(each)
        if not as_json:
            print("".join(_line(row) + "\n" for row in each.rows), end="", flush=True)
    found = [row for each in jobs for row in each.rows]
    if not found:
        print(f"no stored number begins with {only!r}", file=sys.stderr)
        return 2
    count = {verdict: sum(r.verdict == verdict for r in found) for verdict in ("agrees", "differs", "unchecked")}
    seconds = sum(each.seconds for each in jobs)
    kept = {**precompute.stored(path), **precompute.timings()}
    compared, apart = {r.key for r in found}, {r.key for r in found if r.verdict == "differs"}
    if as_json:
        took = [{"measure": j.measure, "keys": [r.key for r in j.rows], "seconds": round(j.seconds, 3)} for j in jobs]
        print(json.dumps({"count": count, "seconds": round(seconds, 3), "made": precompute.made(path), "criteria": [asdict(c) for c in acceptance.judged(kept, compared, apart)], "jobs": took, "rows": [asdict(r) for r in found]},
                         ensure_ascii=False, indent=1))  # fmt: skip
    else:
        print(f"\n{len(found)} compared in {seconds:.0f} s: {count['agrees']} agree, {count['differs']} differ, {count['unchecked']} could not be checked")
        print("".join(line + "\n" for line in acceptance.lines(kept, compared, apart)), end="")
    return 1 if count["differs"] or acceptance.failed(kept, compared) else 3 if count["unchecked"] else 0


MARKS = {"agrees": "✓", "differs": "✗", "unchecked": "?"}
HEAD = f"  {'key':44} {'stored':>{LONGEST_SHOWN}} {'recomputed':>{LONGEST_SHOWN}} {'apart':>9} {'tolerance':16} unit"


def _line(row: Row) -> str:
    difference = "" if row.difference is None else f"{row.difference:.2g}"
    line = f"{MARKS[row.verdict]} {row.key:44} {shown(row.stored):>{LONGEST_SHOWN}} {shown(row.recomputed):>{LONGEST_SHOWN}} {difference:>9} {limit(row.tolerance):16} {row.unit}"
    return line + (f"\n    {row.verdict}: {row.reason['en']}" if row.reason else "")


def limit(tolerance: Mapping[str, Any]) -> str:
    return " ".join(rule if limit is True else f"{rule} {limit:g}" for rule, limit in tolerance.items())


def shown(value: Any) -> str:
    text = "–" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
