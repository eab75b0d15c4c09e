"""What the weight files of our models hold."""

from __future__ import annotations

from compute.measures.job import Job, Report, Value, nobody

MINIS = ("mini-256", "mini-128", "mini-64")
REFERENCES = {"mini-256": 3.7e6, "mini-128": 1.07e6, "mini-64": 0.33e6}
WHY = {
    "zh": "参考资料只写到两三位数；我们按同样的大小另训了自己的模型，词表和层的细节是自己定的",
    "en": "the reference rounds to two or three digits; ours were trained anew at those sizes, with a vocabulary and layers of our own",
}


def parameters(*, model: str, report: Report = nobody) -> dict[str, Value]:
    from compute.engine.registry import discover

    found = next(line for line in discover().listing() if line.id == model)
    says = {"zh": f"{model} 权重文件里的参数", "en": f"parameters in the weight files of {model}"}
    around = {"model": model, "counted": "tensor shapes", "file_bytes": found.bytes}
    reference = {"value": REFERENCES[model], "where": "reference/000", "why_different": WHY}
    return {f"{model}.parameters": Value(found.parameters, "parameter", {"exact": True}, around, says=says, reference=reference)}


MEASURES = {"model.parameters": parameters}


def jobs() -> list[Job]:
    return [Job("model.parameters", {"model": m}, (f"{m}.parameters",), (m,)) for m in MINIS]
