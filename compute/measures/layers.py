"""What quantization does to one matrix of a model on its real inputs: GPTQ beside rounding, W8A8 with and without smoothing.

Output error of a matrix: ‖(W − Ŵ) X‖ / ‖W X‖, Frobenius norms over the calibration text's inputs X. The stepper's parts of a
matrix are small enough to see: eight rows spread evenly, and twelve input channels, either those that go together most
strongly or the first twelve.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compute.measures.job import Job, Report, Value, nobody
from compute.quantize import outliers
from compute.quantize import smooth as smoothquant
from compute.quantize.gptq import DAMPING, output_error
from compute.quantize.gptq import gptq as gptq_of
from compute.quantize.grid import Grid, Uniform, quantize
from compute.quantize.rescale import NORMED

MODEL = "mini-256"
LAYERS, PARTS = range(4), ("qkv", "out", "gate_up", "down")
MATRICES = tuple(f"{layer}.{part}" for layer in LAYERS for part in PARTS)
SMOOTHED = tuple(name for name in MATRICES if not name.endswith("out"))
"""Whose inputs can be divided by any factors at no cost: before qkv and gate_up stands a norm, before down the up rows. The
inputs of out are shared by heads."""
PLANTED = tuple(name for name in MATRICES if name.endswith(NORMED))

ROWS, COLUMNS = 8, 12
BITS = (2, 3, 4)
ALPHAS = tuple(round(0.05 * i, 2) for i in range(21))


def relative_error(change: NDArray, weights: NDArray, hessian: NDArray) -> float:
    """‖ΔW X‖ / ‖W X‖ from the Hessian of the inputs. change, weights (out, in), hessian (in, in)."""
    return float(np.sqrt(output_error(change, hessian) / output_error(weights, hessian)))


def weight_error(change: NDArray, weights: NDArray) -> float:
    """‖ΔW‖ / ‖W‖"""
    return float(np.linalg.norm(change) / np.linalg.norm(weights))


def correlation(hessian: NDArray) -> NDArray:
    """(in, in): xᵢ·xⱼ / |xᵢ||xⱼ| over the text, 1 on the diagonal. A channel that was never on goes with none."""
    length = np.sqrt(np.diag(hessian))
    return np.divide(hessian, np.outer(length, length), out=np.zeros_like(hessian), where=np.outer(length, length) > 0)


def linked(hessian: NDArray, count: int) -> list[int]:
    """Input channels that go together: the two most strongly related, and then again and again the one that is most
    strongly related to those already chosen. Ascending."""
    strength = np.abs(correlation(hessian))
    np.fill_diagonal(strength, 0)
    chosen = list(map(int, np.unravel_index(strength.argmax(), strength.shape)))
    while len(chosen) < count:
        towards = strength[chosen].sum(0)
        towards[chosen] = -1
        chosen.append(int(towards.argmax()))
    return sorted(chosen)


def w8a8_error(sample: NDArray, weights: NDArray, s: NDArray | float = 1.0) -> float:
    """Output error of W8A8 with inputs (rows, in) divided and columns of weights (out, in) multiplied by s."""
    return float(np.sqrt(smoothquant.error(sample, weights, s)))


# ---- measures


@cache
def _observed(planted: bool = False) -> tuple[dict[str, NDArray], dict[str, Any], dict[str, Any]]:
    """Matrices (out, in) and their inputs over the calibration text, by name; and the conditions."""
    from compute.engine.registry import shared
    from compute.quantize import calibration, model, observe

    weights, texts = shared().get(MODEL).weights, calibration.texts(MODEL)
    if planted:
        weights = outliers.plant(weights)
    matrices = {f"{i}.{part}": model.plain(getattr(layer, part).weight) for i, layer in enumerate(weights.layers) for part in PARTS}
    written = {"zh": f"{calibration.WRITER} 自己写的文本，温度 1", "en": f"text that {calibration.WRITER} wrote itself at temperature 1"}
    around = {"model": MODEL, "calibration": written, "calibration_seed": calibration.SEED, "texts": len(texts), "tokens": sum(map(len, texts))}
    return matrices, observe.observe(weights, texts), around


def gptq(*, matrix: str, texts: str, report: Report = nobody) -> dict[str, Value]:
    """GPTQ and rounding to nearest over the whole matrix, one scale a row; and the parts that the stepper shows. texts: digest of
    the calibration text, so that another one makes another job."""
    matrices, inputs, around = _observed()
    weights, hessian = matrices[matrix], inputs[matrix].hessian
    whole = []
    for done, bits in enumerate(BITS):
        report(done / len(BITS), f"{bits} bit")
        grid = Grid(Uniform(bits), "channel")
        made = {"rtn": quantize(weights, grid), "gptq": gptq_of(weights, hessian, grid, DAMPING), "gptq_order": gptq_of(weights, hessian, grid, DAMPING, act_order=True)}
        changes = {name: found.restored() - weights for name, found in made.items()}
        errors = {f"{name}_output": relative_error(d, weights, hessian) for name, d in changes.items()} | {f"{name}_weight": weight_error(d, weights) for name, d in changes.items()}
        whole.append({"bits": bits} | {name: _digits(value, 6) for name, value in errors.items()})
    rows = np.linspace(0, len(weights), ROWS, endpoint=False).astype(int).tolist()
    parts = {name: _part(weights, hessian, rows, columns) for name, columns in (("linked", linked(hessian, COLUMNS)), ("neighbours", list(range(COLUMNS))))}
    trace = {"shape": weights.shape, "rows": rows, "whole": whole, "conditions": around, **parts}
    around = around | {"bits": 4, "block": "channel", "damping": DAMPING}
    four = whole[BITS.index(4)]
    says = {"zh": f"{MODEL} 的 {matrix}，4 位：GPTQ 的输出误差是直接舍入的几倍", "en": f"{matrix} of {MODEL}, 4 bits: output error of GPTQ over that of rounding"}
    out_says = {name: {"zh": f"{MODEL} 的 {matrix}，4 位，{zh}：输出误差", "en": f"{matrix} of {MODEL}, 4 bits, {en}: output error"} for name, zh, en in (("rtn", "直接舍入", "rounding"), ("gptq", "GPTQ", "GPTQ"))}
    key = f"quantize.layers.{matrix}"
    return {
        f"{key}.gptq_ratio": Value(four["gptq_output"] / four["rtn_output"], "×", CLOSE, around, says=says, trace=trace, trace_tolerance=CLOSE | {"parted": 0.02}),
        **{f"{key}.{name}_output_error": Value(four[f"{name}_output"], "ratio", CLOSE, around, says=said) for name, said in out_says.items()},
    }  # fmt: skip


CLOSE = {"relative": 0.01}
"""A weight halfway between two codes may fall the other way on another processor, and what comes after it with it."""


def _part(weights: NDArray, hessian: NDArray, rows: list[int], columns: list[int]) -> dict[str, Any]:
    """weights (rows, columns) and the Hessian of these inputs alone, to seven digits."""
    chosen = hessian[np.ix_(columns, columns)]
    return {"columns": columns, "weights": _digits(weights[np.ix_(rows, columns)], 9), "hessian": _digits(chosen, 7)}


def _digits(values: NDArray, count: int) -> Any:
    return [_digits(v, count) for v in values] if np.ndim(values) else float(f"{values:.{count}g}")


def smooth(*, matrix: str, texts: str, report: Report = nobody) -> dict[str, Value]:
    """The largest activation and weight of every input channel, and the error of W8A8 at every α; the same with outliers
    planted where a norm stands before the matrix."""
    traces = {}
    for planted in (False, True)[: 1 + (matrix in PLANTED)]:
        matrices, inputs, around = _observed(planted)
        weights, seen, errors = matrices[matrix], inputs[matrix], []
        for done, alpha in enumerate(ALPHAS):
            report(done / len(ALPHAS) / 2 + planted / 2, f"α = {alpha}")
            errors.append(w8a8_error(seen.sample, weights, smoothquant.factors(seen.largest, weights, alpha)))
        traces["planted" if planted else "real"] = {
            "activations": _digits(seen.largest, 5), "weights": _digits(np.abs(weights).max(0), 5), "plain": _digits(w8a8_error(seen.sample, weights), 5),
            "smoothed": _digits(errors, 5), "rows": len(seen.sample),
        }  # fmt: skip
    real = traces["real"]
    best = int(np.argmin(real["smoothed"]))
    trace = traces | {"conditions": around}
    key, where, where_en = f"quantize.layers.{matrix}", f"{MODEL} 的 {matrix}", f"{matrix} of {MODEL}"
    around = around | W8A8 | {"sample_tokens": real["rows"]}
    made = {
        f"{key}.outlier": Value(float(np.max(real["activations"]) / np.median(real["activations"])), "×", CLOSE, around, trace=trace, trace_tolerance=CLOSE,
                                says={"zh": f"{where}：最大的激活通道是中位通道的几倍", "en": f"{where_en}: largest activation channel over the median one"}),
        f"{key}.w8a8_error": Value(real["plain"], "ratio", CLOSE, around, says={"zh": f"{where}，W8A8：输出误差", "en": f"{where_en}, W8A8: output error"}),
        f"{key}.smooth_error": Value(real["smoothed"][ALPHAS.index(0.5)], "ratio", CLOSE, around | {"alpha": 0.5},
                                     says={"zh": f"{where}，W8A8 加平滑（α = 0.5）：输出误差", "en": f"{where_en}, W8A8 smoothed (α = 0.5): output error"}),
        f"{key}.best_alpha": Value(ALPHAS[best], "count", {"absolute": 0.1}, around, says={"zh": f"{where}：W8A8 误差最小的 α", "en": f"{where_en}: α of the least W8A8 error"}),
    }  # fmt: skip
    if "planted" in traces:
        hard = around | {"planted_channels": outliers.COUNT, "planted_factor": outliers.FACTOR}
        made[f"{key}.planted_error"] = Value(traces["planted"]["plain"], "ratio", CLOSE, hard, says={"zh": f"{where}，埋入离群通道后 W8A8：输出误差", "en": f"{where_en} with planted outliers, W8A8: output error"})
    return made


W8A8 = {
    "weights": {"zh": "int8，每行一个缩放因子", "en": "int8, a scale for each row"},
    "activations": {"zh": "int8，每个 token 一个缩放因子，现取", "en": "int8, a scale for each token, found as it comes"},
}

MEASURES = {"layers.gptq": gptq, "layers.smooth": smooth}


def jobs() -> list[Job]:
    from compute.quantize.calibration import FILE

    found, texts = [], hashlib.sha256(FILE.read_bytes()).hexdigest()[:16]
    for name in MATRICES:
        kept = ("outlier", "w8a8_error", "smooth_error", "best_alpha", *("planted_error",) * (name in PLANTED))
        found.append(Job("layers.gptq", {"matrix": name, "texts": texts}, tuple(f"quantize.layers.{name}.{k}" for k in ("gptq_ratio", "rtn_output_error", "gptq_output_error")), (MODEL,)))
        if name in SMOOTHED:
            found.append(Job("layers.smooth", {"matrix": name, "texts": texts}, tuple(f"quantize.layers.{name}.{k}" for k in kept), (MODEL,)))
    return found
