"""What the weight files of our models hold."""

from __future__ import annotations

from compute.measures.job import Job, Report, Value, nobody

MINIS = ("mini-256", "mini-128", "mini-64")


def parameters(*, model: str, report: Report = nobody) -> dict[str, Value]:
    from compute.engine.registry import discover

    found = next(line for line in discover().listing() if line.id == model)
    says = {"zh": f"{model} 权重文件里的参数", "en": f"parameters in the weight files of {model}"}
    around = {"model": model, "counted": "tensor shapes", "file_bytes": found.bytes}
    return {f"{model}.parameters": Value(found.parameters, "parameter", {"exact": True}, around, says=says)}


MEASURES = {"model.parameters": parameters}


def jobs() -> list[Job]:
    return [Job("model.parameters", {"model": m}, (f"{m}.parameters",), (m,)) for m in MINIS]
