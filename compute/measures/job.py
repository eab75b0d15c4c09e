"""What a measure returns, and what says when it must run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from compute import facts
from compute.engine import smollm2
from compute.errors import LabError

Report = Callable[[float, str], None]


def nobody(fraction: float, note: str) -> None:
    """The report of a run that nobody watches."""


SAMPLED_TRACE = {"absolute": 1e-3, "parted": 0.25}
"""trace_tolerance of recorded sampled text: among thousands of draws one lies so near a boundary that another processor's
last digit decides it, and that run goes another way."""


@dataclass(frozen=True)
class Value:
    """What a measure returns for one key. tolerance: {"relative": 1e-9}, {"absolute": …}, {"exact": true}, or
    {"at_most": …} for what must only stay small. trace: lists and dicts that belong to the value, kept in a file beside
    the store; their floats may differ by trace_tolerance (logits differ in the last digits from processor to processor),
    everything else in them must be equal; with SAMPLED_TRACE a share of it may part altogether, as sampled text does from
    where one draw falls otherwise. reference: {"value", "where", "why_different": {"zh", "en"}} of a published one."""

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
    trace_tolerance: Mapping[str, Any] = field(default_factory=lambda: {"absolute": 1e-3})


@dataclass(frozen=True)
class Job:
    """One call of a measure and the keys that it answers. models: those that it runs, checkpoints of ours or smollm2-135m."""

    measure: str
    params: Mapping[str, Any]
    keys: tuple[str, ...]
    models: tuple[str, ...] = ()

    def inputs(self) -> str:
        """Changes with whatever the job's result depends on, code apart: parameters and weights. Raises LabError no_model."""
        return digest([self.measure, self.params, {model: model_hash(model) for model in self.models}])


def as_stored(value: Any) -> Any:
    """As it comes back from the file: lists for tuples and arrays. Raises ValueError at a NaN or an infinity."""
    return json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False, default=lambda array: array.tolist()))


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def model_hash(model: str) -> str:
    """Of a model's files: configuration, tokenizer (a draft may borrow its target's) and weights. Raises LabError no_model
    with the way out when they are not there."""
    files = model_files(model)
    return hashlib.sha256(b"".join(_file_hash(f, f.stat().st_mtime_ns) for f in files)).hexdigest()[:16]


def model_files(model: str) -> list[Path]:
    if model == smollm2.ID:
        files = [smollm2.gguf_path(facts.DATA.parent)]
        reason, reason_zh, do, do_zh = "it was not fetched", "还没有下载", "fetch it: python3 run.py models", "请下载：python3 run.py models"
    else:
        folder, train = facts.DATA / "checkpoints" / model, f"python -m compute.training train {model}"
        weights = sorted(folder.glob("*.safetensors")) or [folder / "model.safetensors"]
        files = [folder / "config.json", *(f for f in [folder / "tokenizer.json"] if f.is_file()), *weights]
        reason, reason_zh, do, do_zh = "its checkpoint is not there", "没有它的权重", f"train it: {train}", f"请训练：{train}"
    if not all(f.is_file() for f in files):
        raise LabError("no_model", model=model, reason=reason, reason_zh=reason_zh, way_out=do, way_out_zh=do_zh)
    return files


@cache
def _file_hash(file: Path, changed_at: int) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()
