"""What this machine can do, measured: memory bandwidth and matrix peak, the two walls of its own roofline.

Takes at most about three seconds on a CPU. Reports the median and the spread of all runs: the best run alone is a speed
that nobody gets. A busy machine shows as a wide spread.
"""

import datetime
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from compute.engine.device import choose_device, cores, exact_float32, free_memory

SECONDS_EACH = 0.3  # five measurements and their warm-ups stay below three seconds
RUNS_AT_LEAST = 3


@dataclass(frozen=True)
class Measured:
    """A rate on this machine. `value` is the median; low and high are the slowest and fastest run."""

    id: str
    value: float
    unit: str  # B/s or FLOP/s
    low: float
    high: float
    runs: int
    conditions: dict[str, Any]


def measure(device: str = "auto", threads: int | None = None) -> list[Measured]:
    """Read bandwidth (sum and matrix-vector product) and matrix peak, in float32 and bfloat16.

    The matrix-vector product is what decoding does, so its bandwidth is the honest wall for tokens per second. Its
    matrix is far larger than any cache: 1 GiB, or less where memory is short (stated in the conditions).
    `threads`: CPU threads, default all cores of the process.
    """
    where = choose_device(device)
    exact_float32()
    before = torch.get_num_threads()
    torch.set_num_threads(threads or cores())
    try:
        around = conditions(where)
        return bandwidth(where, around) + matrix_peak(where, around)
    finally:
        torch.set_num_threads(before)


@torch.inference_mode()
def bandwidth(device: torch.device, around: dict[str, Any]) -> list[Measured]:
    side = 16_384 if free_memory(device) > 4 * 2**30 else 8_192
    matrix = torch.ones(side, side, device=device)  # 1 GiB at side 16,384
    halves = matrix.view(torch.bfloat16)  # the same bytes, (side, 2·side); as bf16 they read 0, 1, 0, 1, …
    around = around | {"bytes_read": matrix.nbytes}
    vector, wide = torch.ones(1, side, device=device), torch.ones(1, 2 * side, dtype=torch.bfloat16, device=device)
    return [
        rate("read.sum.float32", lambda: matrix.sum(), matrix.nbytes, "B/s", device, around),
        rate("read.gemv.float32", lambda: F.linear(vector, matrix), matrix.nbytes, "B/s", device, around),
        rate("read.gemv.bfloat16", lambda: F.linear(wide, halves), matrix.nbytes, "B/s", device, around),
    ]


@torch.inference_mode()
def matrix_peak(device: torch.device, around: dict[str, Any]) -> list[Measured]:
    side = 1_536 if device.type == "cpu" else 8_192
    around = around | {"matrix": f"{side} × {side} × {side}"}

    def square(dtype: torch.dtype) -> Callable[[], Tensor]:
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        return lambda: a @ b

    return [
        rate(f"peak.{name}", square(dtype), 2 * side**3, "FLOP/s", device, around)
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    ]


def rate(id: str, run: Callable[[], Tensor], amount: float, unit: str, device: torch.device, around: dict) -> Measured:
    """Repeats `run` after one warm-up, for SECONDS_EACH and at least RUNS_AT_LEAST times."""
    run()
    wait_for(device)
    rates, end = [], time.perf_counter() + SECONDS_EACH
    while len(rates) < RUNS_AT_LEAST or time.perf_counter() < end:
        began = time.perf_counter()
        run()
        wait_for(device)
        rates.append(amount / (time.perf_counter() - began))
    return Measured(id, statistics.median(rates), unit, min(rates), max(rates), len(rates), around)


def wait_for(device: torch.device) -> None:
    """GPU calls return before the work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def conditions(device: torch.device) -> dict[str, Any]:
    """What a timing depends on, for every measured number."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "date": datetime.date.today().isoformat(),
    }


def cpu_name() -> str:
    """The processor as the system calls it; virtual machines often hide the exact model."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()

