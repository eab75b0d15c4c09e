"""Results that are computed once and kept: data/precomputed.json, and who makes each of them again.

An entry is made by a job: a measure (compute/measures) called with parameters. `precompute` runs the jobs whose inputs
changed since they were stored, `verify` runs them all and compares.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from compute import facts, measures
from compute.errors import BadInput, BrokenData, LabError
from compute.measures.job import Job, Report, Value, as_stored, digest, nobody

STORE = facts.DATA / "precomputed.json"
SCHEMA = 1
SEED = 0  # of every measure that draws; entries carry their own where it differs
REQUIRED = ("value", "unit", "kind", "tolerance", "recompute", "params", "conditions", "inputs", "seal")
MEASURED = ("value", "unit", "kind", "conditions", "says")  # what a timing needs
TOLERANCES = ("exact", "relative", "absolute", "at_most")


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
    return _checked(path)


def _checked(path: Path) -> dict[str, Any]:
    name, data = _name(path), _json(path)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise BrokenData(name, f"schema is {data.get('schema') if isinstance(data, dict) else data!r}, not {SCHEMA}")
    if not isinstance(data.get("entries"), dict) or not isinstance(data.get("made"), dict):
        raise BrokenData(name, "it lacks entries or made")
    for key, entry in data["entries"].items():
        if not isinstance(entry, dict):
            raise BrokenData(name, f"entry {key} is {entry!r}")
        if lacking := [f for f in REQUIRED if f not in entry]:
            raise BrokenData(name, f"entry {key} lacks {', '.join(lacking)}")
        for field, (fits, what) in FIELDS.items():
            if field in entry and not fits(entry[field]):
                raise BrokenData(name, f"entry {key}: {field} {entry[field]!r} is not {what}")
    return data


def _json(path: Path) -> Any:
    """Raises BrokenData also where JSON would silently take the last of two equal keys, or not-a-number."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:  # a JSON error, a wrong encoding, or one of ours
        raise BrokenData(_name(path), f"it is not whole JSON ({e})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} stands twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _tolerance(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((rule, limit),) = value.items()
    return limit is True if rule == "exact" else rule in TOLERANCES and _number(limit) and limit >= 0


def _said(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _trace(value: Any) -> bool:
    """The file lies in the folder beside the store and nowhere else."""
    return (isinstance(value, dict) and isinstance(value.get("sha256"), str) and isinstance(file := value.get("file"), str)
            and file.startswith("precomputed/") and ".." not in file and _trace_tolerance(value.get("tolerance", {"exact": True})))  # fmt: skip


def _trace_tolerance(value: Any) -> bool:
    share = value.get("parted", 0) if isinstance(value, dict) else None
    return _number(share) and 0 <= share < 1 and _tolerance({rule: limit for rule, limit in value.items() if rule != "parted"})


FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **{f: (lambda v: isinstance(v, str), "text") for f in ("unit", "recompute", "inputs", "seal")},
    **{f: (lambda v: isinstance(v, dict), "a table") for f in ("params", "conditions")},
    "value": (lambda v: isinstance(v, (int, float, str, list)), "a number, text or list"),
    "kind": (lambda v: v in ("computed", "measured"), "computed or measured"),
    "tolerance": (_tolerance, f"one of {', '.join(TOLERANCES)} with its limit"),
    "says": (_said, "texts by language"),
    "interval95": (lambda v: isinstance(v, list) and len(v) == 2 and all(map(_number, v)), "two numbers"),
    "n": (lambda v: isinstance(v, int) and v > 0, "a count"),
    "reference": (lambda v: isinstance(v, dict) and {"value", "where", "why_different"} <= set(v), "value, where and why_different"),
    "trace": (_trace, "file, sha256 and tolerance"),
}


@cache
def _read_trace(path: Path, changed_at: int, sha256: str, key: str) -> Any:
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise BrokenData(_name(path), f"its sha256 is not the one of entry {key}", f"sha256 与条目 {key} 记的不符")
    return json.loads(raw)


def timings(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """The entries of data/measured/*.json, each with `made`, where and when. BrokenData names file and key of what is wrong."""
    return _timings(tuple((path, path.stat().st_mtime_ns) for path in sorted((folder or STORE.parent / "measured").glob("*.json"))))


@lru_cache(maxsize=4)
def _timings(files: tuple[tuple[Path, int], ...]) -> dict[str, dict[str, Any]]:
    """files: each with when it was changed."""
    found: dict[str, dict[str, Any]] = {}
    for path, _ in files:
        data = _json(path)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("made"), dict) or not isinstance(data.get("entries"), dict):
            raise BrokenData(_name(path), f"it needs schema {SCHEMA}, made and entries")
        for key, entry in data["entries"].items():
            if not isinstance(entry, dict) or (lacking := [f for f in MEASURED if f not in entry]):
                raise BrokenData(_name(path), f"entry {key} lacks {', '.join(lacking) if isinstance(entry, dict) else 'everything'}")
            for field, (fits, what) in FIELDS.items():
                if field in entry and not fits(entry[field]):
                    raise BrokenData(_name(path), f"entry {key}: {field} {entry[field]!r} is not {what}")
            found[key] = entry | {"made": data["made"]}
    return found


def changed_at() -> tuple[int, ...]:
    """When the store and the folder of timings were last written, as numbers that change with them."""
    return facts.changed_at(STORE), facts.changed_at(STORE.parent / "measured")


def trace(key: str, path: Path | None = None) -> Any:
    """The arrays beside an entry, checked against their sha256. None when the key is not stored."""
    entry = stored(path).get(key)
    return None if entry is None else arrays(key, entry, path)


def recorded(key: str) -> Any:
    """The same, for who cannot do without. Raises BrokenData, with the command that makes the entry."""
    kept = trace(key)
    if kept is None:
        again = f"python -m compute precompute --only {key}"
        raise BrokenData(_name(STORE), f"entry {key} is missing; run {again}", f"缺少 {key} 这一条；请运行 {again}")
    return kept


def arrays(key: str, entry: Mapping[str, Any], path: Path | None = None) -> Any:
    path = path or STORE
    kept = entry.get("trace")
    if kept is None:
        raise BrokenData(_name(path), f"entry {key} has no trace")
    file = path.parent / kept["file"]
    if not file.is_file():
        raise BrokenData(_name(file), f"it is missing, and entry {key} needs it", f"文件不在，而条目 {key} 要用它")
    return _read_trace(file, file.stat().st_mtime_ns, kept["sha256"], key)


def seal(entry: Mapping[str, Any]) -> str:
    """Of everything in the entry: an edit by hand shows, also within the tolerance."""
    return digest({k: v for k, v in entry.items() if k != "seal"})


# ---- making


RETRIES = 3  # of a job whose process on a cluster died
Made = tuple[Job, dict[str, Value] | LabError]
Runner = Callable[[list[Job]], Iterator[Made]]


def in_turn(jobs: list[Job]) -> Iterator[Made]:
    for index, job in enumerate(jobs):
        yield job, made_or_not(job, progress(f"{index + 1}/{len(jobs)} {job.keys[0]}"))


def made_or_not(job: Job, report: Report = nobody) -> dict[str, Value] | LabError:
    try:
        return measures.run(job, report)
    except LabError as reason:
        return reason


def on_ray(address: str = "") -> Runner:
    """Makes the jobs on a Ray cluster, whose machines have the same files as this one; those that read the store are made here, at
    the end. A job is given as many cores as it would use here, since sums over other threads differ in their last digits.
    A job whose process dies is begun again, RETRIES times; then it counts as not made, and the others go on.
    address: "" for the cluster that runs on this machine, or else one of this machine alone. Raises BadInput."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError:
        raise BadInput("ray", address or "auto", "the package is missing; .venv/bin/python -m pip install -r requirements-cluster.lock",
                       "没有装这个包；请运行 .venv/bin/python -m pip install -r requirements-cluster.lock") from None  # fmt: skip
    from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

    from compute.engine.device import cores

    threads = int(os.environ.get("OMP_NUM_THREADS") or cores())
    try:
        ray.init(address or None, ignore_reinit_error=True, include_dashboard=None if address else False, log_to_driver=False)
    except ConnectionError:
        raise BadInput("ray", address, "no cluster answers there; start one with ray start --head", "那里没有集群；请先运行 ray start --head") from None
    if max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0) < threads:
        raise BadInput("OMP_NUM_THREADS", threads, "no machine of the cluster has so many cores for a job", "集群里没有哪台机器能给一项任务这么多核")
    if ray.available_resources().get("CPU", 0) < threads:
        print(f"what runs on the cluster leaves fewer than {threads} cores free; jobs wait until one machine has them", file=sys.stderr)
    there = {"PYTHONPATH": str(facts.DATA.parent), "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    far = ray.remote(num_cpus=threads, max_retries=RETRIES, runtime_env={"env_vars": there})(made_or_not)

    def come(made) -> dict[str, Value] | LabError:
        try:
            return ray.get(made)
        except RayTaskError:  # a mistake in a measure, which ends the command where it is made here as well
            raise
        except OutOfMemoryError:
            return LabError("out_of_memory")
        except RayError as reason:
            return LabError("worker_lost", retries=RETRIES, reason=type(reason).__name__)

    def run(jobs: list[Job]) -> Iterator[Made]:
        asked = {far.remote(job): job for job in jobs if job.measure not in measures.AT_HOME}
        waited = list(asked)
        while waited:
            (done,), waited = ray.wait(waited)
            yield asked[done], come(done)
        yield from in_turn([job for job in jobs if job.measure in measures.AT_HOME])

    return run


def precompute(
    only: str = "", force: bool = False, path: Path | None = None, say: Callable[[str], None] = print, run: Runner = in_turn
) -> list[str]:  # fmt: skip
    """Runs what changed, storing after each job, so that an interrupted run goes on where it stopped. Of the names that begin with
    `only`, those that no job makes any more are dropped. Returns what could not be made, with the reason."""
    path, under = path or STORE, only.lstrip("=~")
    chosen, due, claims, failed = measures.wanted(only), {}, {}, []
    for job in chosen:
        try:
            inputs = job.inputs()
        except LabError as reason:
            failed.append(not_made(job, reason))
            continue
        if job.measure == "claims" or force or any(stored(path).get(key, {}).get("inputs") != inputs for key in job.keys):
            due[job.keys] = inputs
    ran, began = 0, time.perf_counter()
    for job, made in run([job for job in chosen if job.keys in due]):
        if isinstance(made, LabError):
            failed.append(not_made(job, made))
            continue
        ran += 1
        if job.measure == "claims":
            claims |= {key: (job, value) for key, value in made.items()}
            continue
        with _alone(path):  # with the recordings, which another run's sweep must not find without their entries
            _write(path, {key: _entry(job, key, value, due[job.keys], path) for key, value in made.items()})
        say(f"{ran}/{len(due)} {job.keys[0]}{f' and {len(job.keys) - 1} more' * (len(job.keys) > 1)}: {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
    with _alone(path):
        before = set(stored(path))
        _write(path, {key: _entry(job, key, value, due[job.keys], path) for key, (job, value) in claims.items()}, under)
        _sweep(path, {key for job in chosen for key in job.keys}, under)
    for key in sorted(before - set(stored(path))):
        say(f"{key}: dropped, as no job makes it any more")
    say(f"{len(chosen)} jobs: {ran} run, {len(chosen) - ran - len(failed)} unchanged, {len(failed)} failed; {len(stored(path))} entries in {_name(path)}")
    return failed


def not_made(job: Job, reason: LabError) -> str:
    return f"{', '.join(job.keys)}: {reason.message('en')}"


def _entry(job: Job, key: str, value: Value, inputs: str, path: Path) -> dict[str, Any]:
    entry = {
        "value": value.value, "unit": value.unit, "kind": value.kind, "tolerance": value.tolerance, "recompute": job.measure,
        "params": job.params, "conditions": value.conditions, "says": value.says, "inputs": inputs,
    }  # fmt: skip
    entry |= {k: v for k in ("interval95", "n", "reference") if (v := getattr(value, k)) is not None}
    if value.trace is not None:
        raw = json.dumps(as_stored(value.trace), ensure_ascii=False, separators=(",", ":")).encode()
        sha256 = hashlib.sha256(raw).hexdigest()
        file = f"precomputed/{key}.{sha256[:12]}.json"
        _replace(path.parent / file, raw)
        entry["trace"] = {"file": file, "sha256": sha256, "tolerance": value.trace_tolerance}
    entry = as_stored(entry)
    return entry | {"seal": seal(entry)}


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Between reading the store and putting a new one in its place no other run may do the same, and whoever writes beside it, a
    recording or timings, waits as well. The empty file stays: whoever removes it takes away the lock that another one waits for."""
    from filelock import FileLock  # for those who write; pages only read

    path.parent.mkdir(exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        yield


def _write(path: Path, new: Mapping[str, Any], under: str | None = None) -> None:
    """Puts the new entries beside those that are there now, which another run may have written meanwhile. under: of what begins
    with it nothing stays that no job makes any more."""
    there = _checked(path)["entries"] if path.exists() else {}  # not what was read before: a clock of files is coarse
    entries = {**there, **new}
    if under is not None:
        known = {key for job in measures.jobs() for key in job.keys}
        entries = {key: entry for key, entry in entries.items() if key in known or not key.startswith(under)}
    command = "python -m compute precompute"
    data = {"schema": SCHEMA, "made": {"date": date.today().isoformat(), "command": command, "commit": _commit(), "seed": SEED,
            "versions": _versions(), "machine": _machine()}, "entries": dict(sorted(entries.items()))}  # fmt: skip
    if path.exists() and there == data["entries"]:
        return  # nothing new: the date of the last change stays
    _replace(path, (json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode())


def write_measured(name: str, entries: Mapping[str, Mapping[str, Any]], command: str, folder: Path | None = None) -> Path:
    """Timings of this machine, for the bench command that took them: data/measured/<name>.json anew. They are shown and
    never judged. entries: key → {"value", "unit", "kind": "measured", "conditions", "says": {"zh", "en"}, and where there
    are runs "interval95" and "n"}. Raises ValueError when an entry lacks one of them."""
    for key, entry in entries.items():
        if lacking := [f for f in MEASURED if not entry.get(f) and entry.get(f) != 0]:
            raise ValueError(f"{key} lacks {', '.join(lacking)}")
    made = {"date": date.today().isoformat(), "command": command, "commit": _commit(), "versions": _versions(), "machine": _machine()}
    data = {"schema": SCHEMA, "made": made, "entries": as_stored(dict(sorted(entries.items())))}
    file = (folder or STORE.parent / "measured") / f"{name}.json"
    with _alone(STORE):
        _replace(file, (json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode())
    return file


def _replace(path: Path, raw: bytes) -> None:
    """Whoever reads gets the old file or the new one, whole, also after a loss of power."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())  # before the name: otherwise the name may outlive the contents
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    _read.cache_clear()  # two writes may fall into one tick of the clock of files


def _sweep(path: Path, keys: set[str], under: str) -> None:
    """Removes former recordings of these keys and of all that begin with `under`, and what writers that were killed had begun: who
    lives does not write now, as the lock is ours."""
    for begun in (f"{path.name}.*.new", "precomputed/*.json.*.new", "measured/*.json.*.new"):
        for file in path.parent.glob(begun):
            file.unlink()
    kept = {entry["trace"]["file"] for entry in stored(path).values() if "trace" in entry}
    for file in (path.parent / "precomputed").glob("*.json"):
        if f"precomputed/{file.name}" not in kept and ((key := file.name.rsplit(".", 2)[0]) in keys or key.startswith(under)):
            file.unlink()


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


def progress(what: str) -> Report:
    """One line that renews itself, where somebody watches."""
    if not sys.stderr.isatty():
        return nobody
    return lambda fraction, note: print(f"\r{what} {fraction:4.0%} {note}\033[K", end="" if fraction < 1 else "\r\033[K", file=sys.stderr, flush=True)


def main(only: str = "", force: bool = False, ray: str | None = None) -> int:
    if not measures.wanted(only) and not any(key.startswith(only.lstrip("=~")) for key in stored()):
        print(f"no stored number begins with {only!r}", file=sys.stderr)
        return 2
    failed = precompute(only, force, run=in_turn if ray is None else on_ray(ray))
    for line in failed:
        print(f"not made: {line}", file=sys.stderr)
    return 3 if failed else 0
