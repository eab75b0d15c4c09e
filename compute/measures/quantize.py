"""What quantization costs: each scheme's loss on the whole validation text against the model's own, in pairs, and the band of
differences that another seed's training makes as well.

Tolerances, from the same rows computed with AVX2 instead of AVX-512 instructions (a part of the text): where weights alone decide
the codes, and where GPTQ's Hessian in float64 does, they came out equal, and the losses differed by 1e-7 at most. Activations in
few bits are rounded as they come, and a tie falls as the last digit says: 4e-5 at most.
"""

from __future__ import annotations

from typing import Any

from compute.measures.job import Job, Report, Value, nobody
from compute.quantize.schemes import SCHEMES, Scheme

MODEL, PUBLIC = "mini-256", "smollm2-135m"
LEFT = (
    "int8-g128", "int8-g64", "int8-g32", "int6-tensor", "int6-g128", "int6-g64", "int6-g32", "int3-g64", "int3-tensor", "int2-tensor", "int2-channel", "int2-g128", "int2-g64",
    "gptq-int2-g32", "int4-g64-asym", "int8-channel-head8", "fp16",
)  # fmt: skip
"""Not measured, so that verify stays at minutes: their neighbours tell the same. Any of them: quantize.score."""
TABLES: dict[str, tuple[str, ...]] = {
    MODEL: tuple(name for name in SCHEMES if name not in LEFT),
    PUBLIC: ("bf16", "int8-channel", "int8-channel-head8", "int4-g64", "int4-g64-head8", "int4-g32", "int4-g32-asym", "int3-g32", "nf4", "gptq-int4-g64", "awq-int4-g64", "w8a8", "w8a8-smooth", "kv4", "kv4-kivi"),
}
PARTS = ("loss_change", "bits_per_weight", "bytes")
TOLERANCES = {"weights": 2e-5, "observed": 3e-4}  # nats per token

TEXTS = {
    MODEL: "data/texts, all 12 files, windows of 256 tokens without earlier context",
    PUBLIC: "data/texts: gnome-en and electron-en, windows of 256 tokens without earlier context",
}
CALIBRATION = {
    MODEL: "192 texts, 20,371 tokens, that mini-256 wrote itself at temperature 1; no validation text",
    PUBLIC: "data/texts/libreoffice-en.txt, which this table leaves out",
}
PUBLISHED_4_BITS = "the file that is read stores its matrices in 4 bits (GGUF Q4_1, 32 weights to a scale and a minimum); fp32 here means these restored"
NAMED = 4  # outstanding channels of a matrix that are kept by number
INTERVAL = "paired; units of 4 neighbouring windows, stratified by source, Student’s t"


def loss(*, model: str, report: Report = nobody) -> dict[str, Value]:
    """The model as it is."""
    from compute.quantize.loss import DOMAIN_OF, unquantized
    from compute.quantize.paired import change

    text, sums = unquantized(model, report=report)
    mean = change(0 * sums, sums, text.counts, text.sources)  # over a loss of nothing: the loss itself
    where = {domain: [DOMAIN_OF[s] == domain for s in text.sources.tolist()] for domain in dict.fromkeys(DOMAIN_OF[s] for s in text.sources.tolist())}
    domains = {domain: {"loss": float(sums[mine].sum() / text.counts[mine].sum()), "tokens": int(text.counts[mine].sum())} for domain, mine in where.items()}
    says = {"zh": f"{model} 在验证文本上的损失（fp32）", "en": f"loss of {model} on the validation text (fp32)"}
    around = circumstances(model) | {"interval": INTERVAL.removeprefix("paired; ")}
    return {f"quantize.{model}.loss": Value(mean.value, "nat/token", {"absolute": 1e-5}, around, says=says, interval95=(mean.low, mean.high), n=mean.tokens,
                                            trace={"domains": domains}, trace_tolerance={"absolute": 1e-5})}  # fmt: skip


def scheme(*, model: str, scheme: str, report: Report = nobody) -> dict[str, Value]:
    """One row of the table."""
    from compute.quantize.loss import cost

    found, key = cost(model, scheme, report=report), f"quantize.{model}.{scheme}"
    rule, limit = SCHEMES[scheme], {"absolute": TOLERANCES[steadiness(SCHEMES[scheme])]}
    counted = {"model": model, "scheme": scheme, "head": "8 bits" if rule.head else "16 bits, counted in bytes, not in bits per weight", "counted": "codes, scales, zero points"}
    around = circumstances(model) | {"scheme": scheme, "interval": INTERVAL, "loss_fp32": found.loss} | special(model, rule)
    trace = {"domains": {name: {"change": c.value, "low": c.low, "high": c.high, "tokens": c.tokens} for name, c in found.domains.items()}}
    zh, en = f"{scheme}，{model}", f"{scheme} on {model}"
    return {
        f"{key}.loss_change": Value(
            found.change.value, "nat/token", limit, around, says={"zh": f"{zh}：损失比 fp32 多多少", "en": f"{en}: loss above fp32"},
            interval95=(found.change.low, found.change.high), n=found.change.tokens, trace=trace, trace_tolerance={"absolute": 5 * limit["absolute"]}),
        f"{key}.bits_per_weight": Value(
            found.bits_per_weight, "bit/weight", {"relative": 1e-12}, counted, "computed", says={"zh": f"{zh}：每权重的位数，缩放因子在内", "en": f"{en}: bits per weight, scales included"}),
        f"{key}.bytes": Value(
            found.bytes, "B", {"relative": 1e-12}, counted, "computed", says={"zh": f"{zh}：每个 token 要读的矩阵字节", "en": f"{en}: bytes of matrices read for one token"}),
    }  # fmt: skip


def steadiness(scheme: Scheme) -> str:
    """Which of TOLERANCES: whether weights alone decide its codes, or what was observed of activations too."""
    return "observed" if scheme.method != "rtn" or scheme.smooth is not None or scheme.activations or scheme.kv else "weights"


def special(model: str, scheme: Scheme) -> dict[str, Any]:
    """What a reader of this row has to know."""
    told: dict[str, Any] = {}
    if scheme.method != "rtn" or scheme.smooth is not None:
        told["calibration"] = CALIBRATION[model]
    if scheme.planted:
        told["planted"] = "outlier channels were planted into the model; it computes the same function"
    if model == PUBLIC:
        told["published_weights"] = PUBLISHED_4_BITS
        if scheme.id == "int4-g32-asym":
            told["not_the_file_s_grid"] = "its zero point is a whole number, where the file has a minimum: the 16 values of 32 weights are not met again"
    return told


def circumstances(model: str) -> dict[str, Any]:
    from compute.engine import served
    from compute.engine.registry import shared

    return {k: v for k, v in served.circumstances(shared().get(model)).items() if k in ("model", "dtype", "device", "torch")} | {"text": TEXTS[model]}


def noise_floor(*, sigmas: int, report: Report = nobody) -> dict[str, Value]:
    from compute.quantize.paired import SIGMAS, noise_floor

    if sigmas != SIGMAS:
        raise AssertionError(f"the floor is made of {SIGMAS} standard deviations")
    floor = noise_floor()
    around = {
        "model": MODEL, "text": TEXTS[MODEL], "trainings": len(floor.losses), "differ_in": "seed", "sigmas": sigmas, "command": "python -m compute.training noise",
        "steps_each": floor.steps, "tokens_each": floor.tokens, "budget": "reduced; the model itself was trained for 3,200 steps and 13,107,200 tokens",
        "note": "a hint from above: seeds of a fully trained model may differ less", "interval": "of a standard deviation of five, χ²",
    }  # fmt: skip
    says = {"zh": "噪声下限：只换随机种子重新训练，损失的 3σ（五次、缩减的训练量）", "en": "noise floor: 3σ of the loss when only the seed of the training changes (five runs, reduced budget)"}
    return {"quantize.noise_floor": Value(floor.value, "nat/token", {"relative": 1e-9}, around, says=says, interval95=(floor.low, floor.high), n=len(floor.losses),
                                          trace={"losses": list(floor.losses)})}  # fmt: skip


def outliers(*, model: str, report: Report = nobody) -> dict[str, Value]:
    """How far the largest input channel of a matrix (by max |x| over the calibration text) stands above the median one: of all
    matrices, and of those behind a norm, where SmoothQuant works."""
    import numpy as np

    from compute.engine.registry import shared
    from compute.quantize import calibration
    from compute.quantize.observe import observe
    from compute.quantize.outliers import RATIO
    from compute.quantize.outliers import found as outstanding
    from compute.quantize.rescale import NORMED

    loaded = shared().get(model)
    seen = observe(loaded.weights, calibration.texts(model, loaded.tokenizer), hessian=False)
    found = {matrix: outstanding(inputs.largest) for matrix, inputs in seen.items()}
    rows = [
        {"matrix": matrix, "channel": int(inputs.largest.argmax()), "largest": float(inputs.largest.max()), "median": float(np.median(inputs.largest)),
         "ratio": float(inputs.largest.max() / np.median(inputs.largest)), "channels": [c.channel for c in found[matrix][:NAMED]]}
        for matrix, inputs in seen.items()
    ]  # fmt: skip
    around = circumstances(model) | {"text": CALIBRATION[model], "tokens": next(iter(seen.values())).tokens}

    def most(rows: list[dict[str, Any]], zh: str, en: str, trace: Any = None) -> Value:
        row = max(rows, key=lambda row: row["ratio"])
        here = around | {"matrix": row["matrix"], "channel": row["channel"], "largest": row["largest"], "median_channel": row["median"]}
        says = {"zh": f"{model} 的真实激活，{zh}：最突出的输入通道的最大值是通道中位数的几倍", "en": f"real activations of {model}, {en}: the most outstanding input channel’s maximum over the median channel’s"}
        return Value(row["ratio"], "×", {"relative": 1e-3}, here, says=says, trace=trace, trace_tolerance={"relative": 1e-3, "parted": 0.02})

    return {
        f"quantize.{model}.outlier_ratio": most(rows, "所有矩阵", "all matrices", {"matrices": rows}),
        f"quantize.{model}.normed_outlier_ratio": most([r for r in rows if r["matrix"].endswith(NORMED)], "归一化之后的矩阵", "matrices behind a norm"),
        f"quantize.{model}.outlier_channels": Value(
            sum(map(len, found.values())), "channel", {"absolute": 2}, around | {"at_least": RATIO, "input_channels": sum(len(i.largest) for i in seen.values())},
            says={"zh": f"{model}：最大值达到通道中位数 {RATIO:g} 倍的输入通道", "en": f"{model}: input channels whose maximum is at least {RATIO:g} times the median channel’s"}),
    }  # fmt: skip


MEASURES = {"quantize.loss": loss, "quantize.scheme": scheme, "quantize.noise_floor": noise_floor, "quantize.outliers": outliers}


def jobs() -> list[Job]:
    made = [Job("quantize.noise_floor", {"sigmas": 3}, ("quantize.noise_floor",))]
    for model, names in TABLES.items():
        made.append(Job("quantize.loss", {"model": model}, (f"quantize.{model}.loss",), (model,)))
        made += [Job("quantize.scheme", {"model": model, "scheme": name}, tuple(f"quantize.{model}.{name}.{part}" for part in PARTS), (model,)) for name in names]
        made.append(Job("quantize.outliers", {"model": model}, tuple(f"quantize.{model}.{part}" for part in ("outlier_ratio", "normed_outlier_ratio", "outlier_channels")), (model,)))
    return made
