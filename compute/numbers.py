"""Names of numbers, as prose writes them, to Quantities.

  h100-sxm.bandwidth             a published figure of a chip or model (quoted), or vllm.kv_used_before of a paper
  =anchor.decode_bound           a claim, computed now
  ~speculative.mini-64.k4.…      measured: an entry of data/precomputed.json or data/measured/*.json
An unknown name raises UnknownName with the closest ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from compute import facts, precompute
from compute.claims import CLAIMS
from compute.errors import BrokenData, UnknownName
from compute.quantity import Quantity, Source

CHIP_FIELDS = {
    "memory": ("memory_bytes", "B", "显存", "memory"),
    "bandwidth": ("bandwidth_bytes_per_s", "B/s", "显存带宽", "memory bandwidth"),
}


def resolve(name: str) -> Quantity:
    if name.startswith("="):
        return _claimed(_known("number", "数", name, CLAIMS, "="), as_of())
    if name.startswith("~"):
        return _measured(name[1:], _known("number", "数", name, measured_entries(), "~"))
    facts.refuse_broken(name.rpartition(".")[0])
    return _known("number", "数", name, quoted_names())


@lru_cache(maxsize=2048)
def _claimed(claim: Callable[[], Quantity], as_of: tuple[int, ...]) -> Quantity:
    """Pages ask for the same ones at every redraw, and some of them read files or simulate."""
    return claim()


def as_of() -> tuple[int, ...]:
    """Changes whenever a number may: with the store, the timings, and the measurement of this machine."""
    return (*precompute.changed_at(), facts.measured_at())


def names() -> list[str]:
    """Every name that prose may use."""
    return [*quoted_names(), *("=" + n for n in CLAIMS), *("~" + n for n in measured_entries())]


def _known(what: str, what_zh: str, name: str, table: Mapping[str, Any], prefix: str = "") -> Any:
    """Of `table`, whose keys lack the prefix that the name has."""
    key = name.removeprefix(prefix)
    if key not in table:
        every = [prefix + each for each in table]
        raise UnknownName(what, what_zh, name, difflib.get_close_matches(name, every, 5, 0.4) or sorted(every)[:5])
    return table[key]


@cache
def quoted_names() -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for chip in facts.published_chips().values():
        for field, (attribute, unit, zh, en) in CHIP_FIELDS.items():
            found[f"{chip.id}.{field}"] = _quoted(getattr(chip, attribute), unit, chip, zh, en)
        for dtype, flops in chip.flops_per_s.items():
            found[f"{chip.id}.flops_{dtype}"] = _quoted(flops, "FLOP/s", chip, f"{dtype} 峰值（稠密）", f"{dtype} peak (dense)")
    for model in facts.models().values():
        if model.context_maximum:
            says = {"zh": f"{model.name} 的最大上下文", "en": f"longest context of {model.name}"}
            found[f"{model.id}.context_maximum"] = Quantity(model.context_maximum, "token", "quoted", source=model.source, says=says)
        if model.checkpoint_bytes:
            says = {"zh": f"{model.name} 全部权重文件", "en": f"all weight files of {model.name}"}
            found[f"{model.id}.checkpoint"] = Quantity(model.checkpoint_bytes, "B", "quoted", source=model.source, says=says)
        for key, unit in CONFIG_COUNTS.items():
            value = dict(model.config.get("text_config", model.config)).get(key)
            if value is not None:
                says = {"zh": f"{model.name} config 的 {key}", "en": f"{key} in the config of {model.name}"}
                found[f"{model.id}.{key}"] = Quantity(value, unit, "quoted", source=model.source, says=says)
    for paper, rows in facts.papers().items():
        for key, row in rows.items() if isinstance(rows, dict) else ():
            if isinstance(row, dict):
                found[f"{paper}.{key}"] = _from_paper(f"{paper}.{key}", row)
    return found


CONFIG_COUNTS = {
    "num_hidden_layers": "layer",
    "num_attention_heads": "head",
    "num_key_value_heads": "head",
    "head_dim": "count",
    "hidden_size": "count",
    "intermediate_size": "count",
    "vocab_size": "token",
}


def _quoted(value: float, unit: str, chip: facts.Chip, zh: str, en: str) -> Quantity:
    note = {"note": chip.note} if chip.note else {}
    return Quantity(value, unit, "quoted", source=chip.source, conditions=note, says={"zh": f"{chip.name} {zh}", "en": f"{chip.name} {en}"})


def _from_paper(name: str, row: dict[str, Any]) -> Quantity:
    try:
        value = row["value"] if "value" in row else (row["low"], row["high"])
        s = row["source"]
        source = Source(s["title"], s.get("url", ""), s.get("where", ""), s.get("read_on", ""), s.get("authors", ""))
        conditions = {k: row[k] for k in ("self_reported", "baseline", "verified") if row.get(k)}
        return Quantity(value, row["unit"], "quoted", source=source, conditions=conditions, says=row.get("claim", {}))
    except KeyError as e:
        raise BrokenData("data/papers.toml", f"[{name}] lacks {e}", f"[{name}] 缺少 {e}") from None


def measured_entries() -> Mapping[str, dict[str, Any]]:
    """Entries of data/precomputed.json (deterministic) and data/measured/*.json (timings of one machine)."""
    return _measured_entries(as_of())


@lru_cache(maxsize=2)
def _measured_entries(as_of: tuple[int, ...]) -> Mapping[str, dict[str, Any]]:
    return {key: entry for key, entry in precompute.stored().items() if entry["kind"] == "measured"} | precompute.timings()


def _measured(key: str, entry: Mapping[str, Any]) -> Quantity:
    try:
        interval = entry.get("interval95")
        return Quantity(
            entry["value"], entry["unit"], "measured", entry.get("recompute", ""), entry.get("params", {}), None,
            entry["conditions"], tuple(interval) if interval else None, entry.get("says", {}),
        )  # fmt: skip
    except KeyError as e:
        raise BrokenData("data/precomputed.json", f"entry {key} lacks {e}", f"条目 {key} 缺少 {e}") from None
