"""Results that are computed once and kept: data/precomputed.json, and who makes each of them again.

An entry is made by a job: a measure (a function of MEASURES) called with parameters. `precompute` runs the jobs whose
inputs changed since they were stored, `verify` runs them all and compares. To keep a new number, write the measure, put
it into MEASURES and its jobs into `jobs`. Measures import torch themselves, so that a page may read the store without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from compute import facts
from compute.claims import CLAIMS
from compute.errors import BrokenData, LabError

STORE = facts.DATA / "precomputed.json"
SCHEMA = 1
SEED = 0  # of every measure that draws; entries carry their own where it differs
REQUIRED = ("value", "unit", "kind", "tolerance", "recompute", "params", "conditions", "inputs", "seal")
TOLERANCES = ("exact", "relative", "absolute", "at_most")
Report = Callable[[float, str], None]


@dataclass(frozen=True)
class Value:
    """What a measure returns for one key. tolerance: {"relative": 1e-9}, {"absolute": …}, {"exact": true}, or
    {"at_most": …} for what must only stay small. trace: arrays that belong to the value, kept in a file beside the store."""

    value: Any
    unit: str
    tolerance: Mapping[str, Any]
    conditions: Mapping[str, Any]
    kind: Literal["measured", "computed"] = "measured"
    says: Mapping[str, str] = field(default_factory=dict)
    interval95: tuple[float, float] | None = None
    n: int | None = None
    reference: Mapping[str, Any] | None = None
    trace: Any = None


@dataclass(frozen=True)
class Job:
    """One call of a measure and the keys that it answers. models: checkpoints that it runs."""

    measure: str
    params: Mapping[str, Any]
    keys: tuple[str, ...]
    models: tuple[str, ...] = ()

    def run(self, report: Report = lambda fraction, note: None) -> dict[str, Value]:
        made = MEASURES[self.measure](report=report, **self.params)
        if set(made) != set(self.keys):
            raise AssertionError(f"{self.measure} made {sorted(made)} instead of {sorted(self.keys)}")
        return made

    def inputs(self) -> str:
        """Changes with whatever the job's result depends on, code apart: parameters and weights."""
        weights = {model: checkpoint_hash(model) for model in self.models}
        return _digest([self.measure, self.params, weights])


# ---- the measures


def claim(*, name: str, report: Report) -> dict[str, Value]:
    q = CLAIMS[name]()
    return {name: Value(q.value, q.unit, {"relative": 1e-9}, {"formula": q.formula, **q.inputs}, q.kind, q.says)}


SENTENCES = {"zh": "小明把苹果给了", "en": "Tom gave the apple to"}
RECORDED_TOKENS = 64


def kv_stepper(*, name: str, model: str, text: str, new: int, report: Report) -> dict[str, Value]:
    """The recorded run of the kv-stepper. The timings are not kept: they belong to one machine."""
    from compute.engine.served import compare_kv

    run = compare_kv(model, text, new, report)
    around = {k: run.conditions[k] for k in ("model", "dtype", "device", "torch")} | {"text": text, "new": new, "decoding": "greedy"}
    trace = {
        "model": model, "text": text, "prompt_pieces": run.prompt_pieces, "tokens": run.tokens, "pieces": run.pieces, "equal": run.equal,
        "kv_with_cache": run.with_cache.kv_computed, "kv_without_cache": run.without_cache.kv_computed,
        "largest_logit_difference": run.largest_logit_difference, "largest_logit": run.largest_logit, "conditions": around,
    }  # fmt: skip
    tokens_say = {"zh": f"“{text}”之后贪心生成的 {new} 个 token", "en": f"the {new} tokens greedily generated after “{text}”"}
    logits_say = {"zh": "有缓存与无缓存，logits 的最大差", "en": "largest difference of logits with and without the cache"}
    return {
        f"{name}.tokens": Value(run.tokens, "token id", {"exact": True}, around, says=tokens_say, trace=trace),
        f"{name}.largest_logit_difference": Value(
            run.largest_logit_difference, "logit", {"at_most": 1e-3}, around | {"largest_logit": run.largest_logit}, says=logits_say
        ),
    }


def parameters(*, model: str, report: Report) -> dict[str, Value]:
    from compute.engine.registry import discover

    found = next(line for line in discover().listing() if line.id == model)
    says = {"zh": f"{model} 权重文件里的参数", "en": f"parameters in the weight files of {model}"}
    around = {"model": model, "counted": "tensor shapes", "file_bytes": found.bytes}
    return {f"{model}.parameters": Value(found.parameters, "parameter", {"exact": True}, around, says=says)}


MEASURES: dict[str, Callable[..., dict[str, Value]]] = {"claims": claim, "kv.stepper": kv_stepper, "model.parameters": parameters}
MINIS = ("mini-256", "mini-128", "mini-64")


def jobs() -> list[Job]:
    return [
        *(Job("claims", {"name": name}, (name,)) for name in CLAIMS),
        *(Job("model.parameters", {"model": m}, (f"{m}.parameters",), (m,)) for m in MINIS),
        *(
            Job("kv.stepper", {"name": f"kv-stepper.{lang}", "model": "mini-256", "text": text, "new": RECORDED_TOKENS},
                (f"kv-stepper.{lang}.tokens", f"kv-stepper.{lang}.largest_logit_difference"), ("mini-256",))
            for lang, text in SENTENCES.items()
        ),
    ]  # fmt: skip


def wanted(only: str) -> list[Job]:
    """Jobs with a key that begins with `only`; prose's marks = and ~ may stand before it."""
    return [job for job in jobs() if any(key.startswith(only.lstrip("=~")) for key in job.keys)]


def checkpoint_hash(model: str) -> str:
    """Of config, tokenizer and weights. Raises the engine's ModelMissing when they are not there."""
    folder = facts.DATA / "checkpoints" / model
    files = [folder / "config.json", folder / "tokenizer.json", *sorted(folder.glob("*.safetensors"))]
    if len(files) < 3 or not all(f.is_file() for f in files):
        raise LabError(
            "no_model", model=model, reason="its checkpoint is not there", reason_zh="没有它的权重",
            way_out=f"train it: python -m compute.training train {model}", way_out_zh=f"请训练：python -m compute.training train {model}",
        )  # fmt: skip
    return hashlib.sha256(b"".join(hashlib.sha256(f.read_bytes()).digest() for f in files)).hexdigest()[:16]


# ---- reading


def stored(path: Path | None = None) -> dict[str, dict[str, Any]]:
    """The entries by key. {} when nothing was stored yet; BrokenData names file and key of what is wrong."""
    path = path or STORE
    return _read(path, path.stat().st_mtime_ns)["entries"] if path.exists() else {}


def made(path: Path | None = None) -> dict[str, Any]:
    path = path or STORE
    return _read(path, path.stat().st_mtime_ns)["made"] if path.exists() else {}


@cache
def _read(path: Path, changed_at: int) -> dict[str, Any]:
    name = _name(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise BrokenData(name, f"it is not whole JSON ({e})") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise BrokenData(name, f"schema is {data.get('schema') if isinstance(data, dict) else data!r}, not {SCHEMA}")
    if not isinstance(data.get("entries"), dict) or not isinstance(data.get("made"), dict):
        raise BrokenData(name, "it lacks entries or made")
    for key, entry in data["entries"].items():
        if not isinstance(entry, dict):
            raise BrokenData(name, f"entry {key} is {entry!r}")
        if lacking := [f for f in REQUIRED if f not in entry]:
            raise BrokenData(name, f"entry {key} lacks {', '.join(lacking)}")
        if not isinstance(entry["tolerance"], dict) or not set(entry["tolerance"]) <= set(TOLERANCES) or len(entry["tolerance"]) != 1:
            raise BrokenData(name, f"entry {key}: tolerance {entry['tolerance']!r} is none of {', '.join(TOLERANCES)}")
    return data


@cache
def _read_trace(path: Path, sha256: str, key: str) -> Any:
    if not path.exists():
        raise BrokenData(_name(path), f"it is missing, and entry {key} needs it")
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise BrokenData(_name(path), f"its sha256 is not the one of entry {key}")
    return json.loads(raw)


def trace(key: str, path: Path | None = None) -> Any:
    """The arrays beside an entry, checked against their sha256. None when the key is not stored."""
    path = path or STORE
    entry = stored(path).get(key)
    if entry is None:
        return None
    kept = entry.get("trace")
    if not isinstance(kept, dict) or not {"file", "sha256"} <= set(kept):
        raise BrokenData(_name(path), f"entry {key} has no trace")
    return _read_trace(path.parent / kept["file"], kept["sha256"], key)


def seal(entry: Mapping[str, Any]) -> str:
    """Of everything in the entry: an edit by hand shows, also within the tolerance."""
    return _digest({k: v for k, v in entry.items() if k != "seal"})


# ---- making


def precompute(only: str = "", force: bool = False, path: Path | None = None, say: Callable[[str], None] = print) -> list[str]:
    """Runs what changed, storing after each job, so that an interrupted run goes on where it stopped. Returns what could
    not be made, with the reason."""
    path = path or STORE
    entries, chosen, failed = dict(stored(path)), wanted(only), []
    if not only.lstrip("=~"):
        known = {key for job in jobs() for key in job.keys}
        entries = {key: entry for key, entry in entries.items() if key in known}
    unchanged = 0
    for index, job in enumerate(chosen):
        try:
            inputs = job.inputs()
            if job.measure != "claims" and not force and all(entries.get(key, {}).get("inputs") == inputs for key in job.keys):
                unchanged += 1
                continue
            new = job.run(_progress(f"{index + 1}/{len(chosen)} {job.keys[0]}"))
        except LabError as reason:
            failed.append(f"{', '.join(job.keys)}: {reason.message('en')}")
            continue
        for key, value in new.items():
            entries[key] = _entry(job, key, value, inputs, path)
        if job.measure != "claims":
            _write(path, entries)
    _write(path, entries)
    _sweep(path, entries)
    ran = len(chosen) - unchanged - len(failed)
    say(f"{len(chosen)} jobs: {ran} run, {unchanged} unchanged, {len(failed)} failed; {len(entries)} entries in {_name(path)}")
    return failed


def _entry(job: Job, key: str, value: Value, inputs: str, path: Path) -> dict[str, Any]:
    entry = {
        "value": value.value, "unit": value.unit, "kind": value.kind, "tolerance": value.tolerance, "recompute": job.measure,
        "params": job.params, "conditions": value.conditions, "says": value.says, "inputs": inputs,
    }  # fmt: skip
    entry |= {k: v for k in ("interval95", "n", "reference") if (v := getattr(value, k)) is not None}
    if value.trace is not None:
        raw = json.dumps(value.trace, ensure_ascii=False, separators=(",", ":")).encode()
        sha256 = hashlib.sha256(raw).hexdigest()
        file = f"precomputed/{key}.{sha256[:12]}.json"
        _replace(path.parent / file, raw)
        entry["trace"] = {"file": file, "sha256": sha256}
    entry = json.loads(json.dumps(entry, ensure_ascii=False, allow_nan=False))
    return entry | {"seal": seal(entry)}


def _write(path: Path, entries: Mapping[str, Any]) -> None:
    command = "python -m compute precompute"
    data = {"schema": SCHEMA, "made": {"date": date.today().isoformat(), "command": command, "commit": _commit(), "seed": SEED,
            "versions": _versions(), "machine": _machine()}, "entries": dict(sorted(entries.items()))}  # fmt: skip
    if path.exists() and stored(path) == data["entries"]:
        return  # nothing new: the date of the last change stays
    _replace(path, (json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode())


def _replace(path: Path, raw: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_bytes(raw)
    os.replace(new, path)


def _sweep(path: Path, entries: Mapping[str, Any]) -> None:
    kept = {entry["trace"]["file"] for entry in entries.values() if "trace" in entry}
    for file in (path.parent / "precomputed").glob("*.json"):
        if f"precomputed/{file.name}" not in kept:
            file.unlink()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def _name(path: Path) -> str:
    return str(path.relative_to(facts.DATA.parent)) if path.is_relative_to(facts.DATA.parent) else path.name


def _commit() -> str:
    try:
        asked = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=facts.DATA, capture_output=True, text=True, timeout=10)
        return asked.stdout.strip() or "unknown"
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in ("torch", "numpy", "tokenizers", "safetensors")}


def _machine() -> dict[str, Any]:
    return {"processor": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}


def _progress(what: str) -> Report:
    if not sys.stderr.isatty():
        return lambda fraction, note: None
    return lambda fraction, note: print(f"\r{what} {fraction:4.0%}\033[K", end="" if fraction < 1 else "\n", file=sys.stderr)


def main(only: str = "", force: bool = False) -> int:
    if not wanted(only):
        print(f"no stored number begins with {only!r}", file=sys.stderr)
        return 2
    failed = precompute(only, force)
    for line in failed:
        print(f"not made: {line}", file=sys.stderr)
    return 3 if failed else 0
