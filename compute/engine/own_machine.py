"""This machine as a chip: its walls measured, and real models decoding under them. `machine.measure` of the command line.

The result is kept in build/this-machine.json, from where facts.this_machine() and the pages read it.
"""

import json
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from compute import facts
from compute.engine import generate, machine, registry
from compute.engine.device import choose_device
from compute.engine.errors import ModelError
from compute.errors import Cancelled

DECODED = ("mini-256", "smollm2-135m")  # the public model only where it has been fetched
PROMPT = "小明把苹果给了"
NEW_TOKENS = 48
SKIPPED = 8  # first steps, the prompt's among them, are not counted


def measure(
    device: str = "auto",
    keep_it: bool = True,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Measures bandwidth (matrix-vector product), matrix peaks, and the decode speed of our models; about six seconds.

    Medians with the slowest and fastest run. A busy machine measures slow: the spread shows it. keep_it: whether pages take it as
    this machine from now on.
    """
    report(0.0, "bandwidth and matrix peaks")
    load = os.getloadavg()[0]  # before our own
    rates = {m.id: m for m in machine.measure(device)}
    where = choose_device(device)
    conditions = rates["peak.float32"].conditions
    decodes = []
    for done, id in enumerate(DECODED):
        if cancelled():
            raise Cancelled()
        report(0.5 + 0.5 * done / len(DECODED), f"decode {id}")
        try:
            decodes.append(decode_speed(id, cancelled))
        except ModelError:
            continue  # not fetched on this machine
    measured = {
        "name": conditions["cpu"] if where.type != "cuda" else conditions["device"],
        "memory_bytes": memory_bytes(where),
        **walls(rates),
        "conditions": conditions | came_from(rates) | {"load average": round(load, 2), "command": "python -m compute call machine.measure"},
        "rates": [asdict(m) for m in rates.values()],
        "decodes": decodes,
    }
    if keep_it:
        keep(measured)
    return measured


PEAKS = ("peak.bfloat16", "peak.float32")
READS = ("read.gemv.bfloat16", "read.gemv.float32")


def walls(rates: Mapping[str, machine.Measured]) -> dict[str, float]:
    """Bandwidth and peaks of the chip. A processor without bf16 units computes 16-bit weights faster in fp32, as an engine
    on it would: its 16-bit peak is the faster of the two."""
    return {
        "bandwidth_bytes_per_s": rates[fastest(rates, READS)].value,
        "flops_bf16": rates[fastest(rates, PEAKS)].value,
        "flops_fp32": rates["peak.float32"].value,
    }


def came_from(rates: Mapping[str, machine.Measured]) -> dict[str, str]:
    """Which measurement each wall is, for its conditions."""
    return {"16-bit peak from": fastest(rates, PEAKS), "bandwidth from": fastest(rates, READS)}


def fastest(rates: Mapping[str, machine.Measured], ids: tuple[str, ...]) -> str:
    return max(ids, key=lambda id: rates[id].value)


def decode_speed(id: str, cancelled: Callable[[], bool]) -> dict[str, Any]:
    """Tokens per second of greedy decoding with the cache, batch 1, from the median step after SKIPPED of them."""
    model = registry.shared().get(id)
    tokens = model.tokenizer.encode(PROMPT)
    steps = list(generate.generate(model, tokens, NEW_TOKENS, ignore_end=True, cancelled=cancelled))
    seconds = [step.seconds for step in steps[SKIPPED:]]
    if not seconds:
        raise Cancelled()
    middle = statistics.median(seconds)
    return {
        "model": id,
        "dtype": str(model.weights.dtype).removeprefix("torch."),
        "bits": model.weights.dtype.itemsize * 8,
        "threads": model.threads,
        "context": len(tokens) + NEW_TOKENS // 2,
        "tokens_per_second": 1 / middle,
        "low": 1 / max(seconds),
        "high": 1 / min(seconds),
        "runs": len(seconds),
    }


def memory_bytes(device) -> int:
    if device.type == "cuda":
        return machine.torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def keep(measured: dict[str, Any]) -> None:
    """Atomic: a reader never sees half a file."""
    path = facts.THIS_MACHINE
    path.parent.mkdir(exist_ok=True)
    half = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        half.write_text(json.dumps(measured, ensure_ascii=False, indent=1), encoding="utf-8")
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
