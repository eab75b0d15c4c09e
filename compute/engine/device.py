"""Where and in which number format a model runs, and on how many threads."""

import os
from pathlib import Path

import torch

from compute.engine.errors import SettingWrong

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

SMALL_MODEL_BYTES = 64 * 2**20
"""Weights read per token below which one thread decodes faster than two.

A decode step is a chain of small matrix-vector products, and sharing one out costs a wake-up of the other thread each
time. Measured (2 cores, AVX-512, torch 2.13.0, OMP_WAIT_POLICY=PASSIVE, float32, cache of 64 to 164 tokens, median of 100
steps (SmolLM2: 40), middle of three alternating rounds, random weights of the same shapes), ms a token with 1 and with
2 threads: mini-64 (1.3 MB) 0.53 and 1.6, mini-128 (4.2 MB) 0.72 and 2.2, mini-256 (15 MB) 1.23 and 2.9, SmolLM2-135M
(538 MB) 43.7 and 37.7.
"""


def choose_device(name: str = "auto") -> torch.device:
    """`auto` = what INFERENCE_LAB_DEVICE says, else cuda, else mps, else cpu. Raises SettingWrong for one that is not here."""
    name = os.environ.get("INFERENCE_LAB_DEVICE", "auto") if name == "auto" else name
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    found = [kind for kind, is_there in there.items() if is_there]
    if name == "auto":
        return torch.device(found[0])
    if name.split(":")[0] not in found:
        raise SettingWrong(
            "settings",
            f'the device "{name}" is not here, this machine has {", ".join(found)}',
            f"没有设备 “{name}”，本机有 {', '.join(found)}",
            'use one of them, or "auto"',
            "请改用其中之一，或 auto",
        )
    return torch.device(name)


def described(device: torch.device) -> str:
    """For people: "cpu", "cuda:0 (NVIDIA H200)"."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` = bfloat16 on cuda, float32 elsewhere. Raises SettingWrong for a pair that cannot be."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    possible = [known for known in DTYPES if device.type == "cuda" or known != "float16"]
    if name not in possible:
        raise SettingWrong(
            "settings",
            f'the dtype "{name}" cannot be used on {device.type}',
            f"dtype “{name}” 不能用于 {device.type}",
            f"use auto, {', '.join(possible)}",
            f"请用 auto、{'、'.join(possible)}",
        )
    return DTYPES[name]


def exact_float32() -> None:
    """No TF32 and no bf16 short cut inside float32 products: the lessons claim equality of float32 results."""
    torch.set_float32_matmul_precision("highest")


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken; 0 when the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    info = Path("/proc/meminfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 0)


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(bytes_per_token: int) -> int:
    """How many threads decode fastest for a model that reads this many bytes of weights per token; at most as many as OMP_NUM_THREADS
    says, which Ray sets to the cores of a replica."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list is for nested regions
    most = min(cores(), int(said)) if said.isdecimal() and int(said) else cores()
    return 1 if bytes_per_token < SMALL_MODEL_BYTES else most


def check_computes(name: str = "auto") -> None:
    """Raises what torch raises when the device computes no more: after an illegal access a GPU refuses everything to this process."""
    torch.ones(1, device=choose_device(name)).sum().item()
