"""Which models there are, and which one is meant when none is named.

Three sources: our own checkpoints in data/checkpoints, the optional SmolLM2 in models/, and the operator's models.toml:

    [qwen3-8b]
    path = "/srv/models/Qwen3-8B"   # a directory or a .gguf file; relative paths start at the file's own folder
    name = "Qwen3 8B"               # optional, as are all lines below
    dtype = "bfloat16"              # auto, float32, bfloat16, float16
    device = "cuda"                 # auto, cuda, cuda:1, mps, cpu
    default = true
"""

import math
import os
import threading
import tomllib
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from compute.engine import directory, gguf_file, smollm2
from compute.engine.device import choose_device, choose_dtype, free_memory
from compute.engine.errors import DoesNotFit, ModelError, ModelMissing, SettingWrong, shown
from compute.engine.loader import Model, load
from compute.errors import BadInput, UnknownName
from compute.quantize import schemes

ROOT = Path(__file__).parents[2]
CHECKPOINTS = {"mini-256": "Mini 256", "mini-128": "Mini 128", "mini-64": "Mini 64", "mini-moe": "Mini MoE"}
DRAFTS = {"smollm2-draft": "SmolLM2 draft"}  # guess for another model; of no use alone
SETTINGS_VARIABLE = "INFERENCE_LAB_MODELS"
ENTRY_KEYS = {"path": str, "name": str, "dtype": str, "device": str, "default": bool}


@dataclass(frozen=True)
class Entry:
    """A model that may be asked for; its files need not be there yet. Our own run in float32: lessons claim equality."""

    id: str
    name: str
    path: Path
    source: Literal["checkpoint", "draft", "optional", "operator"]
    dtype: str = "float32"
    device: str = "auto"


@dataclass(frozen=True)
class Listed:
    """One line of the list of models. `trouble`: why it cannot be loaded, in English and Chinese; None when it can."""

    id: str
    name: str
    source: str
    is_default: bool
    loaded: bool
    parameters: int | None
    bytes: int | None  # of the weight files
    trouble: dict[str, str] | None


KEPT_QUANTIZED = 3
"""Quantized models that stay in memory, of all: there are dozens for each model. Who was asked for longest ago goes first."""


@dataclass
class Registry:
    """The models of one process. Loading is lazy, once for each id, and safe from several threads."""

    entries: dict[str, Entry]
    default: str
    _loaded: dict[str, Model] = field(default_factory=dict, repr=False)
    _quantized: dict[str, Model] = field(default_factory=dict, repr=False)  # the one asked for last at the end
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)

    def get(self, id: str | None = None) -> Model:
        """The model, loaded now if it was not; "mini-256:int4-g64" is mini-256 under a scheme of compute/quantize. Raises
        UnknownName, or the ModelError of its files; BadInput where the scheme does not fit the model, or is one of the KV cache."""
        id = id or self.default
        entry, scheme = self.named(id)
        with self._locks.setdefault(id, threading.Lock()):  # of this id alone: GPTQ takes a while
            if scheme is None:
                if id not in self._loaded:
                    require(entry)
                    require_room(entry)
                    self._loaded[id] = load(entry.path, device=entry.device, dtype=entry.dtype, name=entry.id)
                return self._loaded[id]
            self._quantized[id] = model = self._quantized.pop(id, None) or self._quantize(entry, scheme)
            for oldest in [*self._quantized][:-KEPT_QUANTIZED]:
                self._quantized.pop(oldest, None)
            return model

    def named(self, id: str) -> tuple[Entry, schemes.Scheme | None]:
        """The entry, and the scheme after a colon. Raises UnknownName."""
        if id in self.entries:
            return self.entries[id], None
        base, colon, name = id.rpartition(":")
        if base not in self.entries:
            raise UnknownName("model", "模型", id, sorted(self.entries))
        return self.entries[base], schemes.scheme(name)

    def _quantize(self, entry: Entry, scheme: schemes.Scheme) -> Model:
        from compute.quantize.model import quantized  # which imports the engine

        name = f"{entry.id}:{scheme.id}"
        if scheme.kv:
            raise BadInput("model", name, "a model keeps keys and values in its own number format; this scheme is measured, not served",
                           "模型按自己的数值格式保存键和值；这个方案只用于测量，不提供服务")  # fmt: skip
        model = self.get(entry.id)
        require_room(entry)  # where no kernel reads a format, its restored weights are as large as the model
        try:
            return quantized(model, scheme)
        except BadInput as error:
            raise error.about("model", name) from None

    def listing(self) -> list[Listed]:
        """Every entry, from the files' headers alone."""
        return [self._line(entry) for entry in self.entries.values()]

    def _line(self, entry: Entry) -> Listed:
        parameters = size = trouble = None
        try:
            require(entry)
            parameters, size = weigh(entry.path, entry.path.stat().st_mtime_ns)
        except ModelError as error:
            trouble = {lang: error.message(lang) for lang in ("en", "zh")}
        is_default, loaded = entry.id == self.default, entry.id in self._loaded
        return Listed(entry.id, entry.name, entry.source, is_default, loaded, parameters, size, trouble)


def discover(root: Path = ROOT, settings: Path | None = None) -> Registry:
    """What there is. `settings`: the models.toml; else the one INFERENCE_LAB_MODELS names, else root/models.toml if there."""
    ours = (("checkpoint", CHECKPOINTS), ("draft", DRAFTS))
    entries = [Entry(id, name, root / "data/checkpoints" / id, source) for source, names in ours for id, name in names.items()]
    entries.append(Entry(smollm2.ID, smollm2.NAME, smollm2.gguf_path(root), "optional"))
    named = settings or os.environ.get(SETTINGS_VARIABLE)
    file = Path(named) if named else root / "models.toml"
    chosen = []
    if named or file.exists():
        table = read_settings(file)
        entries += [entry_from(file, id, values) for id, values in table.items()]
        chosen = [id for id, values in table.items() if values.get("default", False)]
    if len(chosen) > 1:
        raise wrong(file, f"{' and '.join(chosen)} are both default", f"{'、'.join(chosen)} 都写了 default", "keep one", "只留一个")
    return Registry({entry.id: entry for entry in entries}, chosen[0] if chosen else "mini-256")


@cache
def shared() -> Registry:
    """The models of this process, so that everything in it loads each of them once."""
    return discover()


def unquantized(name: str) -> str:
    """Of "mini-256:int4-g64" what stands before the colon; of another name, all."""
    base, _, scheme = name.rpartition(":")
    return base if base and scheme in schemes.SCHEMES else name


def read_settings(file: Path) -> dict[str, dict[str, Any]]:
    if not file.is_file():
        raise ModelMissing(
            file,
            "the list of models is not there",
            "模型清单文件不存在",
            f"write it, or unset {SETTINGS_VARIABLE}",
            f"请写好该文件，或取消 {SETTINGS_VARIABLE}",
        )
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise wrong(file, f"not TOML ({error})", f"不是 TOML（{error}）", "correct that line", "请改正这一行") from None


def entry_from(file: Path, id: str, values: Any) -> Entry:
    """One table of models.toml, checked. Raises SettingWrong with the key and the value."""
    if not isinstance(values, dict) or "path" not in values:
        raise wrong(file, f"[{id}] has no path", f"[{id}] 没有 path", 'add path = "…"', '请加上 path = "…"')
    for key, value in values.items():
        if not isinstance(value, ENTRY_KEYS.get(key, ())):
            known = ", ".join(f"{k} ({kind.__name__})" for k, kind in ENTRY_KEYS.items())
            text = f"[{id}] {key} = {value!r}"
            raise wrong(file, f"{text} is not possible", f"{text} 不可用", f"use {known}", f"可用：{known}")
    path = file.parent / Path(values["path"]).expanduser()
    return Entry(
        id, values.get("name", id), path, "operator", values.get("dtype", "auto"), values.get("device", "auto")
    )


def require(entry: Entry) -> None:
    """Raises ModelMissing with the way out that fits the model's source, when its files are not there."""
    if entry.path.exists():
        return
    step = "moe" if entry.id == "mini-moe" else f"train {entry.id}"
    out, out_zh = {
        "checkpoint": (f"train it: python -m compute.training {step}", f"请训练：python -m compute.training {step}"),
        "draft": ("train it: python -m compute.training teach, then the same with draft", "请训练：先 python -m compute.training teach，再同样用 draft"),
        "optional": ("fetch it: python3 run.py models", "请下载：python3 run.py models"),
        "operator": ("correct path in models.toml", "请改正 models.toml 里的 path"),
    }[entry.source]
    raise ModelMissing(entry.id, f"{shown(entry.path)} is not there", f"{shown(entry.path)} 不存在", out, out_zh)


def require_room(entry: Entry) -> None:
    """Raises DoesNotFit when the weights, in the number format asked for, are larger than the free memory."""
    device = choose_device(entry.device)
    dtype = choose_dtype(entry.dtype, device)
    parameters, _ = weigh(entry.path, entry.path.stat().st_mtime_ns)
    needed, free = parameters * dtype.itemsize / 1e9, free_memory(device) / 1e9
    if 0 < free < needed:
        name = str(dtype).removeprefix("torch.")
        raise DoesNotFit(
            entry.id,
            f"{parameters / 1e9:.3g} B parameters in {name} need {needed:.3g} GB, {free:.3g} GB are free on {device}",
            f"{parameters / 1e9:.3g} B 参数以 {name} 存放需要 {needed:.3g} GB，{device} 上只剩 {free:.3g} GB",
            "use a smaller dtype or model, or free some memory",
            "请换更小的 dtype 或模型，或腾出内存",
        )


@lru_cache
def weigh(path: Path, changed: int) -> tuple[int, int]:
    """(parameters, bytes of the weight files), from headers; remembered until the path's time of change is another."""
    if path.is_dir():
        files = directory.weight_files(path)
        shapes = [shape for file in files for shape in directory.tensor_shapes(file).values()]
        return sum(map(math.prod, shapes)), sum(file.stat().st_size for file in files)
    return sum(int(t.n_elements) for t in gguf_file.open_gguf(path).tensors), path.stat().st_size


def wrong(file: Path, reason: str, reason_zh: str, way_out: str, way_out_zh: str) -> SettingWrong:
    return SettingWrong(file, reason, reason_zh, way_out, way_out_zh)
