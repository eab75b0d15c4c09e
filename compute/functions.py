"""Every function a page calls, by the name under which the command line and the service offer it too.

Parameters are checked once, here, against the function's own annotations; formulas stay plain functions.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Callable, Literal, TypeVar

import pydantic

from compute.errors import BadInput, UnknownName


M = TypeVar("M", bound=pydantic.BaseModel)


@dataclass(frozen=True)
class Function:
    """target: "module:function". where: "web" is quick and needs no torch; "service" runs in the compute process."""

    name: str
    target: str
    where: Literal["web", "service"]

    def load(self) -> Callable[..., Any]:
        module, attribute = self.target.split(":")
        return getattr(import_module(module), attribute)

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.load()) or "").split("\n\n")[0].replace("\n", " ")


TABLE: dict[str, Function] = {
    f.name: f
    for f in (
        Function("roofline.decode", "compute.roofline:decode", "web"),
        Function("roofline.prefill", "compute.roofline:prefill", "web"),
        Function("roofline.ledger", "compute.roofline:ledger", "web"),
        Function("roofline.generate", "compute.calibrated:generate", "web"),
        Function("serving.stall", "compute.stall:stall", "web"),
        Function("serving.frontier", "compute.frontier:frontier", "web"),
        Function("kv.per_token", "compute.kv:per_token", "web"),
        Function("kv.capacity", "compute.kv:capacity", "web"),
        Function("kv.computations", "compute.kv:computations", "web"),
        Function("kv.of_shape", "compute.kv:of_shape", "web"),
        Function("pipeline.map", "compute.pipeline:pipeline", "web"),
        Function("request.loop", "compute.request_loop:loop", "web"),
        Function("kv.compare", "compute.engine.served:compare_kv", "service"),
        Function("next.logits", "compute.engine.served:next_logits", "service"),
        Function("moe.route", "compute.engine.routing:routed", "service"),
        Function("speculate.run", "compute.engine.drafts:run", "service"),
        Function("speculate.cell", "compute.engine.drafts:cell", "service"),
        Function("sampling.texts", "compute.engine.sampled:sample_texts", "service"),
        Function("batching.simulate", "compute.simulate:run", "web"),
        Function("batching.run", "compute.engine.batch_run:run", "service"),
        Function("sharing.run", "compute.engine.siblings:siblings", "service"),
        Function("quantize.matrix", "compute.quantize.sent:matrix", "service"),
        Function("quantize.score", "compute.quantize.loss:score", "service"),
        Function("speculative.monte_carlo", "compute.trials:monte_carlo", "web"),
        Function("serving.run", "compute.serving.load:run", "service"),
        Function("serving.sweep", "compute.serving.knee:sweep", "service"),
        Function("tokenizers.compare", "compute.tokenization:compare", "web"),
        Function("verify.table", "compute.verify:table", "service"),
        Function("verify.recompute", "compute.verify:recompute", "service"),
        Function("live.trace", "compute.service.live:trace", "service"),
        Function("meter.run", "compute.meter.served:run", "service"),
        Function("meter.endpoints", "compute.meter.served:listed", "service"),
        Function("sizing.plan", "compute.sizing:plan", "web"),
        Function("machine.measure", "compute.engine.own_machine:measure", "service"),
        Function("cache.race", "compute.engine.cache_race:race", "service"),
    )
}

SERVED = ("report", "cancelled")  # keywords that the caller's side fills: progress out, cancellation in


def function(name: str) -> Function:
    if name not in TABLE:
        raise UnknownName("function", "函数", name, difflib.get_close_matches(name, TABLE, 5, 0.3) or sorted(TABLE))
    return TABLE[name]


@cache
def parameters(name: str) -> type[pydantic.BaseModel]:
    """The parameters of a function as a pydantic model made from its signature."""
    target = function(name).load()
    hints = inspect.get_annotations(target, eval_str=True)
    fields = {
        p.name: (hints[p.name], ... if p.default is p.empty else p.default)
        for p in inspect.signature(target).parameters.values()
        if p.name not in SERVED
    }
    config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    return pydantic.create_model(name.replace(".", "_"), __config__=config, **fields)


def schema(name: str) -> dict[str, Any]:
    return parameters(name).model_json_schema()


def check(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Parameters in their types, defaults filled in. Raises BadInput naming the first wrong one."""
    return validated(parameters(name), params)


def validated(model: type[pydantic.BaseModel], params: dict[str, Any]) -> dict[str, Any]:
    good = made(model, params)
    return {k: getattr(good, k) for k in model.model_fields}


def made(model: type[M], params: dict[str, Any]) -> M:
    """Raises BadInput naming the first wrong parameter, UnknownName for one that there is not."""
    try:
        return model.model_validate(params)
    except pydantic.ValidationError as e:
        raise complaint(e, list(model.model_fields)) from None


def call(
    name: str,
    params: dict[str, Any],
    report: Callable[..., None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Any:
    """Check, run, and return plain JSON data; what is reported on the way is such data too."""
    target = function(name).load()

    def told(fraction: float, note: str = "", partial: Any = None) -> None:
        if report:
            report(fraction, note, *([] if partial is None else [plain(partial)]))

    served = {"report": told, "cancelled": cancelled or (lambda: False)}
    takes = inspect.signature(target).parameters
    return plain(target(**check(name, params), **{k: v for k, v in served.items() if k in takes}))


def plain(value: Any) -> Any:
    """Records and arrays as JSON data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return value.tolist()
    return value


KINDS = ("int", "float", "str", "bool", "constrained-int", "constrained-float", "constrained-str")  # pydantic's names for the parts of a union


def complaint(e: pydantic.ValidationError, known: list[str]) -> BadInput | UnknownName:
    """The first thing wrong, as one sentence in both languages."""
    every = e.errors(include_url=False)
    of_one = [error for error in every if error["loc"][:1] == every[0]["loc"][:1]]  # several, where a field takes a name or a number
    first = next((error for error in of_one if error["type"].startswith(("greater", "less"))), every[0])
    field = ".".join(str(part) for part in first["loc"] if not (isinstance(part, str) and (part[:1].isupper() or part in KINDS or "[" in part)))
    kind, limits, value = first["type"], first.get("ctx", {}), first["input"]
    if kind == "extra_forbidden":
        return UnknownName("parameter", "参数", field, known)
    if kind == "missing":
        return BadInput(field, None, "it is required", "这个参数必须给出")
    bounds = {
        "greater_than_equal": ("at least {ge} is needed", "至少要 {ge}"),
        "less_than_equal": ("at most {le} is possible", "至多 {le}"),
        "greater_than": ("more than {gt:g} is needed", "要大于 {gt:g}"),
        "less_than": ("less than {lt:g} is needed", "要小于 {lt:g}"),
        "literal_error": ("it must be {expected}", "只能是 {expected}"),
        "multiple_of": ("a multiple of {multiple_of} is needed", "要是 {multiple_of} 的倍数"),
        "string_too_long": ("at most {max_length} characters are possible", "至多 {max_length} 个字符"),
        "string_too_short": ("at least {min_length} characters are needed", "至少 {min_length} 个字符"),
        "too_long": ("at most {max_length} entries are possible", "至多 {max_length} 项"),
        "too_short": ("at least {min_length} entry is needed", "至少 {min_length} 项"),
    }
    if kind in bounds:
        en, zh = (words.format(**limits) for words in bounds[kind])
        zh = zh.replace(" or ", " 或 ")  # pydantic lists the possible values in English
    elif kind.startswith("int"):
        en, zh = "a whole number is needed", "要填整数"
    elif kind.startswith("string"):
        en, zh = ("a name or an object is needed", "要填名字或对象") if len(of_one) > 1 else ("a text is needed", "要填文字")
    elif kind == "list_type":
        en, zh = "a list is needed", "要填一个列表"
    elif kind.startswith(("float", "finite")):
        en, zh = "a number is needed", "要填数字"
    else:
        en, zh = first["msg"][0].lower() + first["msg"][1:], f"类型不对（{kind}）"
    shown = value if isinstance(value, (int, float, bool, type(None))) else str(value)[:80]
    if kind.startswith(("greater", "less")) and isinstance(shown, str):  # a number that came as text, in a URL
        shown = int(shown) if shown.lstrip("+-").isdigit() else float(shown)
    return BadInput(field or "parameters", shown, en, zh)
