"""Published numbers, read from data/: models, chips, papers. Every one keeps its source."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Callable, Mapping

from pydantic import AfterValidator

from compute import shapes
from compute.errors import BadInput, BrokenData, Refused, UnknownName
from compute.quantity import Fact, Source
from compute.shapes import ModelShape

DATA = Path(__file__).resolve().parent.parent / "data"


@dataclass(frozen=True)
class Chip:
    """Memory in bytes, bandwidth and link in byte/s, dense peaks in FLOP/s by dtype (no sparsity)."""

    id: str
    name: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    flops_per_s: Mapping[str, float] = field(hash=False)
    source: Source | None = None
    note: Mapping[str, str] = field(default_factory=dict, hash=False)
    measured: bool = False
    link_bytes_per_s: float | None = None  # to the other cards of its node, one direction

    def __post_init__(self):
        for name in ("memory_bytes", "bandwidth_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise BadInput(f"chip.{name}", getattr(self, name), "it must be positive", "必须大于 0")
        if not self.flops_per_s.get("bf16", 0) > 0:
            raise BadInput("chip.flops_bf16", self.flops_per_s.get("bf16"), "it must be positive", "必须大于 0")

    @property
    def peak(self) -> float:
        """FLOP/s of 16-bit tensor arithmetic; weight-only quantization computes in 16 bits too."""
        return self.flops_per_s["bf16"]

    def peak_for(self, weight_bits: float) -> float:
        """The peak that such weights meet: 32-bit arithmetic above 16 bits, where the chip's figure is known."""
        return self.flops_per_s["fp32"] if weight_bits > 16 and "fp32" in self.flops_per_s else self.flops_per_s["bf16"]


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BrokenData(path.relative_to(DATA.parent), "it is missing", "文件不在") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise BrokenData(path.relative_to(DATA.parent), str(e)) from None


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BrokenData(path.relative_to(DATA.parent), "it is missing", "文件不在") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise BrokenData(path.relative_to(DATA.parent), str(e)) from None


def _object(field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(field, value, "an object of keys is needed", "要填一个带键的对象")
    return value


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadInput(field, value, "a text is needed", "要填文字")
    return value


def _source(data: Any, field: str = "source") -> Source:
    data = {"url": "", "read_on": "", "note": "", "where": _object(field, data).get("table", "")} | data
    return Source(*(_text(f"{field}.{key}", data[key]) for key in ("title", "url", "where", "read_on", "note")))


def _read(path: Path, read: Callable[..., Any], *args: Any) -> Any:
    """What `read` makes of one entry of a data file, or what is wrong with it, kept until somebody asks for that one:
    a broken entry costs only itself."""
    where = path.relative_to(DATA.parent)
    try:
        return read(*args)
    except BrokenData as e:
        return e
    except KeyError as e:
        return BrokenData(where, f"the key {e} is missing", f"缺少键 {e}")
    except (BadInput, UnknownName) as e:
        return BrokenData(where, e.message("en").rstrip("."), e.message("zh").rstrip("。"))


def made_of(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Around what is made of one file in data/: a key that the file lacks is told with its name."""

    def around(read: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(read)
        def whole(*args: Any) -> Any:
            return _whole(_read(DATA / name, read, *args))

        return whole

    return around


@cache
def _models() -> dict[str, ModelShape | BrokenData]:
    found = {path.stem: _read(path, _read_model, path) for path in sorted((DATA / "models").glob("*.json"))}
    if not found:
        raise BrokenData("data/models", "no model is there", "里面没有模型")
    return found


def models() -> dict[str, ModelShape]:
    """Those whose files are whole; `model` says what is wrong with another."""
    return {id: found for id, found in _models().items() if isinstance(found, ModelShape)}


def _read_model(path: Path) -> ModelShape:
    data = _object("model", read_json(path))
    more = {"id": _text("id", data["id"]), "name": _text("name", data["name"]), "source": _source(data["source"])}
    if data.get("textbook"):
        return shapes.sized(_positive("parameters", data["parameters"]), textbook=True, **more)
    if data.get("checkpoint_bytes") is not None:
        more["checkpoint_bytes"] = _positive("checkpoint_bytes.value", _object("checkpoint_bytes", data["checkpoint_bytes"])["value"])
    others = _object("other_parameters", data.get("other_parameters", {}))
    more["beside_parameters"] = sum(v for v in others.values() if isinstance(v, int))
    return shapes.from_config(_object("config", data["config"]), **more)


@cache
def _chips() -> dict[str, Chip | BrokenData]:
    path = DATA / "chips.toml"
    found = {id: _read(path, _read_chip, id, row) for id, row in read_toml(path).items()}
    if not found:
        raise BrokenData("data/chips.toml", "no chip is there", "里面没有卡")
    return found


def published_chips() -> dict[str, Chip]:
    """Those whose tables are whole; `chip` says what is wrong with another."""
    return {id: found for id, found in _chips().items() if isinstance(found, Chip)}


def _read_chip(id: str, row: Any) -> Chip:
    for key in ("name", "memory_bytes", "bandwidth_bytes_per_s", "flops_bf16", "source"):
        if key not in _object(f"[{id}]", row):
            raise KeyError(f"[{id}].{key}")
    numbers = {k: _positive(f"[{id}].{k}", v) for k, v in row.items() if k.startswith(("memory_bytes", "bandwidth_bytes", "flops_", "link_bytes"))}
    flops = {key.removeprefix("flops_"): v for key, v in numbers.items() if key.startswith("flops_")}
    return Chip(
        id, _text(f"[{id}].name", row["name"]), numbers["memory_bytes"], numbers["bandwidth_bytes_per_s"], flops,
        _source(row["source"], f"[{id}].source"), _object(f"[{id}].note", row.get("note", {})), link_bytes_per_s=numbers.get("link_bytes_per_s"),
    )  # fmt: skip


def broken() -> dict[str, BrokenData]:
    """What is wrong with the models and chips that the lists leave out."""
    return {id: found for id, found in (_models() | _chips()).items() if isinstance(found, BrokenData)}


def refuse_broken(id: str) -> None:
    """Raises what is wrong with the model or chip of that name, if something is."""
    _whole(broken().get(id))


def _whole(found: Any) -> Any:
    if isinstance(found, BrokenData):
        raise found.with_traceback(None)
    return found


def chips() -> dict[str, Chip]:
    """Published chips, and this machine once it has been measured."""
    try:
        mine = this_machine()
    except BrokenData:  # `chip` says so when it is asked for
        mine = None
    return published_chips() | ({mine.id: mine} if mine else {})


MEASURING_SECONDS = 6  # about, on two cores
THIS_MACHINE = DATA.parent / "build" / "this-machine.json"


def measured_at() -> int:
    """When this machine was last measured, as a number that changes with it; 0: never."""
    return changed_at(THIS_MACHINE)


def changed_at(path: Path) -> int:
    """When a file or folder was last written, as a number that changes with it; 0: there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def this_machine() -> Chip | None:
    """The last measurement of this machine (`python -m compute call machine.measure`), None before the first."""
    if not measured_at():
        return None
    path = THIS_MACHINE
    return _whole(_read(path, _read_this_machine, path))


def _read_this_machine(path: Path) -> Chip:
    data = _object("this-machine", read_json(path))
    conditions = _object("conditions", data["conditions"])
    memory, bandwidth, bf16, fp32 = (_positive(k, data[k]) for k in ("memory_bytes", "bandwidth_bytes_per_s", "flops_bf16", "flops_fp32"))
    note = ", ".join(f"{k} {v}" for k, v in conditions.items())
    source = Source("python -m compute call machine.measure", read_on=_text("conditions.date", conditions["date"]), note=note)
    return Chip("this-machine", _text("name", data["name"]), memory, bandwidth, {"bf16": bf16, "fp32": fp32}, source, measured=True)


@dataclass(frozen=True)
class MeasuredRun:
    """Tokens per second that somebody measured on a real engine; `context` is the mean over the run. Ours carry low and
    high of the runs; a vendor's table does not."""

    model: str
    chip: str
    bits: float
    batch: int
    context: int
    tokens_per_second: float
    engine: str
    source: Source
    low: float | None = None
    high: float | None = None


@cache
@made_of("measured-public.toml")
def public_runs() -> tuple[MeasuredRun, ...]:
    """Published whole-engine throughputs of one card in which decoding rules (at least four times as many tokens out as in)."""
    data = read_toml(DATA / "measured-public.toml")
    runs = []
    for row in data["throughput"]:
        if row["output_tokens"] >= 4 * row["input_tokens"] and "tensor_parallel" not in row:
            s = data["sources"][row["source"]]
            source = Source(s["title"], s["url"].format(release=row["release"]), s.get("where", ""), s["read_on"], "self-reported")
            context = row["input_tokens"] + row["output_tokens"] // 2
            bits = 8 if row["dtype"] == "fp8" else 16
            runs.append(
                MeasuredRun(row["model"], row["chip"], bits, row["batch"], context, row["tokens_per_s"], f"{data['sources'][row['source']]['engine']} {row['release']}", source)
            )
    return tuple(runs)


def own_runs() -> tuple[MeasuredRun, ...]:
    """Our models decoding on this machine, from its last measurement."""
    if not measured_at():
        return ()
    data = read_json(THIS_MACHINE)
    source = Source(data["conditions"]["command"], read_on=data["conditions"]["date"])
    return tuple(
        MeasuredRun(d["model"], "this-machine", d["bits"], 1, d["context"], d["tokens_per_second"], f"torch {d['dtype']}", source, d["low"], d["high"])
        for d in data["decodes"]
    )


def measured_runs() -> tuple[MeasuredRun, ...]:
    return public_runs() + own_runs()


ModelRef = str | dict
ChipRef = str | dict


def model(ref: ModelRef) -> ModelShape:
    """A model by name, or an object of one's own: a Hugging Face config, or {"parameters": …, "kv_bytes_per_token": …}."""
    if isinstance(ref, str):
        if ref not in _models():
            raise UnknownName("model", "模型", ref, list(models()))
        return _whole(_models()[ref])
    if "hidden_size" in ref or "text_config" in ref:
        return shapes.from_config(ref, name=str(ref.get("name", "inline")))
    if "parameters" in ref:
        _only(ref, "parameters", "kv_bytes_per_token", "name")
        numbers = {k: _positive(f"model.{k}", ref[k]) for k in ("parameters", "kv_bytes_per_token") if k in ref}
        return shapes.sized(**numbers, name=str(ref.get("name", "inline")))
    raise BadInput(
        "model", sorted(ref), 'an object needs "hidden_size" … as in a config.json, or "parameters"',
        "对象里要有 config.json 的 hidden_size 等键，或 parameters",
    )  # fmt: skip


def chip(ref: ChipRef) -> Chip:
    """A chip by name, or {"memory_bytes": …, "bandwidth_bytes_per_s": …, "flops_bf16": …}."""
    if isinstance(ref, str):
        if ref == "this-machine" and not measured_at():
            raise Refused("not_measured", seconds=MEASURING_SECONDS)
        if ref == "this-machine":
            return this_machine()
        if ref not in _chips():
            raise UnknownName("chip", "卡", ref, list(chips()))
        return _whole(_chips()[ref])
    needed = ("memory_bytes", "bandwidth_bytes_per_s", "flops_bf16")
    _only(ref, *needed, "name")
    if missing := [k for k in needed if k not in ref]:
        raise BadInput("chip", sorted(ref), f"an object needs {', '.join(missing)}", f"对象里还缺 {', '.join(missing)}")
    memory, bandwidth, flops = (_positive(f"chip.{k}", ref[k]) for k in needed)
    if small := next((k for k in needed if ref[k] < 1), None):  # a quotient of it would overflow
        raise BadInput(f"chip.{small}", ref[small], "at least 1 is needed", "至少要 1")
    return Chip("inline", str(ref.get("name", "inline")), memory, bandwidth, {"bf16": flops})


ModelName = Annotated[str, AfterValidator(lambda id: model(id).id)]
"""A model of data/models by name, for parameters; any other name raises UnknownName."""
ChipName = Annotated[str, AfterValidator(lambda id: chip(id).id)]


def _only(ref: dict, *known: str) -> None:
    for key in ref:
        if key not in known:
            raise UnknownName("key", "键", key, list(known))


MOST = 1e24  # above every card and model, and far from where a product of two overflows


def _positive(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MOST:
        raise BadInput(field, value, f"a positive number up to {MOST:g} is needed", f"要填 {MOST:g} 以内的正数")
    return float(value)


@cache
def papers() -> dict[str, dict[str, Any]]:
    return read_toml(DATA / "papers.toml")


@dataclass(frozen=True)
class SpeculationPrompt:
    """One fixed prompt on which speculative decoding is measured; `text` as written, `sent` as it reaches the model."""

    id: str
    kind: str
    text: str
    sent: str


@cache
def training_log(name: str) -> dict[str, Any]:
    """Of data/checkpoints/<name>: recipe, curve, and what was measured at the end."""
    return read_json(DATA / "checkpoints" / name / "training-log.json")


@cache
def control(name: str) -> dict[str, Any]:
    """Of data/checkpoints/<name>: how the model it was trained on from fared on the same batches unchanged. Recipe, curve, and `windows`,
    source → nats of each window of the validation text."""
    return read_json(DATA / "checkpoints" / name / "control.json")


@cache
@made_of("speculation-prompts.toml")
def speculation_prompts(target: str) -> tuple[SpeculationPrompt, ...]:
    """The 16 prompts of data/speculation-prompts.toml for a target, "smollm2-135m" or "mini-256"."""
    sets = read_toml(DATA / "speculation-prompts.toml")
    if target not in sets:
        raise UnknownName("model", "模型", target, list(sets))
    template = sets[target]["template"]
    return tuple(SpeculationPrompt(**p, sent=template.replace("{text}", p["text"])) for p in sets[target]["prompts"])


def anchor() -> dict[str, Any]:
    return read_json(DATA / "anchor-model.json")
