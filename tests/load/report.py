"""What a class did, as figures: JSON, and the table of docs/load.md."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.load.learner import Deed, Log

KINDS = ("change", "answer", "open", "generate")
MOST_ERRORS, MOST_SLOW = 30, 12
MARKS = "<!-- table -->", "<!-- /table -->"


@dataclass
class Sample:
    """The processes at a moment: seconds since the class began, resident bytes of the web process and of the service."""

    seconds: float
    web: int
    service: int


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def times(deeds: list[Deed]) -> dict[str, Any]:
    """n, and where there are any: percentiles in ms, messages and kB (10³ bytes, uncompressed) of each in the mean."""
    found: dict[str, Any] = {"n": len(deeds)}
    if deeds:
        taken = [deed.milliseconds for deed in deeds]
        found |= {f"p{share}_ms": round(percentile(taken, share / 100), 1) for share in (50, 95, 99)}
        found |= {"slowest_ms": round(max(taken), 1), "messages": round(sum(d.messages for d in deeds) / len(deeds), 1),
                  "kilobytes": round(sum(d.size for d in deeds) / len(deeds) / 1e3, 1), "refused": sum(d.refused for d in deeds)}  # fmt: skip
    return found


def slope(samples: list[Sample]) -> float:
    """Resident bytes of the web process per second, by least squares over the second half, when caches are warm."""
    late = samples[len(samples) // 2 :]
    if len(late) < 3:
        return 0.0
    mean_t, mean_b = (sum(v) / len(late) for v in zip(*((s.seconds, s.web) for s in late)))
    spread = sum((s.seconds - mean_t) ** 2 for s in late)
    return sum((s.seconds - mean_t) * (s.web - mean_b) for s in late) / spread


def block(server: str, learners: int, seconds: float, log: Log, cpu: dict[str, float], before: int, samples: list[Sample]) -> dict[str, Any]:
    """One class on one server. cpu: seconds of the web process, of what it started, of service and client; before: resident bytes of the web process when nobody had come."""
    by_kind = {kind: [deed for deed in log.deeds if deed.kind == kind] for kind in KINDS}
    after = samples[-1].web if samples else before
    return {
        "server": server, "learners": learners, "seconds": round(seconds, 1),
        **{kind: times(deeds) for kind, deeds in by_kind.items()},
        "errors": [{"text": text, "count": count} for text, count in log.errors.most_common(MOST_ERRORS)],
        "error_count": log.errors.total(),
        "cpu_percent_of_a_core": {name: round(100 * used / seconds, 1) for name, used in cpu.items()},
        "memory_megabytes": {
            "before": round(before / 1e6, 1), "after": round(after / 1e6, 1), "per_learner": round((after - before) / 1e6 / learners, 2),
            "per_minute_in_second_half": round(slope(samples) * 60 / 1e6, 2),
            "over_time": [[round(s.seconds), round(s.web / 1e6, 1), round(s.service / 1e6, 1)] for s in samples[:: max(1, len(samples) // 20)]],
        },
        "slow": slow(by_kind["change"]),
    }  # fmt: skip


def slow(changes: list[Deed]) -> list[dict[str, Any]]:
    """The controls that took most time in all."""
    total: Counter[str] = Counter()
    for deed in changes:
        total[deed.what] += deed.milliseconds
    found = []
    for what, _ in total.most_common(MOST_SLOW):
        found.append({"what": what} | times([deed for deed in changes if deed.what == what]))
    return found


def alone(log: Log) -> str:
    """What deeds of one learner took of the processor, a line for each kind and one for all, and what went wrong."""
    kinds = {kind: [deed for deed in log.deeds if deed.kind == kind] for kind in KINDS} | {"all": log.deeds}
    lines = []
    for kind, deeds in kinds.items():
        if deeds:
            it, taken = times(deeds), sum(deed.processor for deed in deeds) / len(deeds) * 1e3
            lines.append(f"{kind:<9} n={it['n']}: {taken:.0f} ms of the processor, {it['p50_ms']:.0f} ms by the clock at the median, {it['messages']:.0f} messages, {it['kilobytes']:.0f} kB")
    return "\n".join([*lines, *(f"   {count} × {text}" for text, count in log.errors.most_common(MOST_ERRORS))])


def line(found: dict[str, Any]) -> str:
    """A block in a line or two."""
    change, cpu, memory = found["change"], found["cpu_percent_of_a_core"], found["memory_megabytes"]
    parts = [f"{found['server']:<6}{found['learners']:>4} learners, {found['seconds']:.0f} s"]
    for kind in KINDS:
        if found[kind]["n"]:
            parts.append(f"{kind} n={found[kind]['n']} p50/95/99 " + "/".join(f"{found[kind][f'p{p}_ms']:.0f}" for p in (50, 95, 99)) + " ms")
    parts.append(f"errors {found['error_count']}")
    parts.append("CPU " + ", ".join(f"{name} {used:.0f} %" for name, used in cpu.items()))
    parts.append(f"memory {memory['before']:.0f} → {memory['after']:.0f} MB, {memory['per_minute_in_second_half']:+.2f} MB/min")
    if change["n"]:
        parts.append(f"{change['messages']:.0f} messages and {change['kilobytes']:.0f} kB a change")
    return "; ".join(parts)


# ---- kept with the repository


def entries(found: dict[str, Any], command: str) -> dict[str, dict[str, Any]]:
    """A report as entries of data/measured/load.json: the 95th percentile of a change of a control, everything else beside it."""
    around = {name: value for name, value in found["conditions"].items() if name != "seed"} | {"command": command}
    kept = {}
    for it in found["blocks"]:
        change, memory = it["change"], it["memory_megabytes"]
        beside = {
            "learners": it["learners"], "seconds": it["seconds"], "p50_ms": change["p50_ms"], "p99_ms": change["p99_ms"], "errors": it["error_count"],
            **{f"{kind}_p95_ms": it[kind]["p95_ms"] for kind in KINDS[1:] if it[kind]["n"]}, "cpu_percent_of_a_core": it["cpu_percent_of_a_core"],
            "megabytes_before": memory["before"], "megabytes_after": memory["after"], "megabytes_per_minute": memory["per_minute_in_second_half"],
            "kilobytes_a_change": change["kilobytes"], "messages_a_change": change["messages"],
        }  # fmt: skip
        kept[f"load.{it['server']}.{it['learners']}"] = {
            "value": change["p95_ms"], "unit": "ms", "kind": "measured", "n": change["n"], "conditions": around | beside,
            "says": {"zh": f"{it['learners']} 人上课，动一个控件到页面算完，95% 不超过", "en": f"{it['learners']} learners: from moving a control until the page is done, 95 % within"},
        }  # fmt: skip
    return kept


COLUMNS = (
    "learners", "server", "changes", "p50 ms", "p95 ms", "p99 ms", "errors", "opening p95 ms", "generation p95 ms", "answer p95 ms", "CPU of a core: web, beside, service, client",
    "memory MB", "MB/min", "kB a change", "seconds",
)  # fmt: skip

SHOWN = ("date", "cpu", "cores", "system", "python", "streamlit", "load average", "load average after", "think_seconds", "figures", "command")


def table(kept: dict[str, dict[str, Any]]) -> str:
    """Markdown of what `entries` made."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for key, entry in sorted(kept.items(), key=lambda pair: (pair[1]["conditions"]["learners"], pair[0])):
        it = entry["conditions"]
        cells = (
            it["learners"], key.split(".")[1], entry["n"], *(f"{ms:,.0f}" for ms in (it["p50_ms"], entry["value"], it["p99_ms"])), it["errors"],
            *(f"{it[name]:,.0f}" if name in it else "–" for name in ("open_p95_ms", "generate_p95_ms", "answer_p95_ms")),
            ", ".join(f"{used:.0f} %" for used in it["cpu_percent_of_a_core"].values()),
            f"{it['megabytes_before']:.0f} → {it['megabytes_after']:.0f}", f"{it['megabytes_per_minute']:+.1f}", f"{it['kilobytes_a_change']:.0f}",
            f"{it['seconds']:.0f}",
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    runs: dict[str, list[str]] = {}  # conditions → the rows measured under them
    for key, entry in sorted(kept.items()):
        runs.setdefault("; ".join(f"{name.replace('_', ' ')} {entry['conditions'][name]}" for name in SHOWN if name in entry["conditions"]), []).append(key.removeprefix("load."))
    return "\n".join([*lines, *(f"\n{', '.join(rows)}: {around}." for around, rows in runs.items())])


def placed(text: str, table: str) -> str:
    """A document with the table between its two marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}"
