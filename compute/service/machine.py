"""What the service runs on: device, processor, torch, models. Nothing here imports torch until `prepare` is called."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from compute.measures.models import MINIS
from compute.service.schema import Conditions

CHECKPOINTS = Path(__file__).parents[2] / "data" / "checkpoints"
LOADING, MISSING = "loading", "none"  # the device before torch is there, and when it could not be loaded


@cache
def processor() -> str:
    """The CPU's own name where the system tells it, with its cores."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            name = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), name)
    except OSError:
        pass  # not Linux
    return f"{name}, {os.cpu_count()} cores"


@dataclass
class Machine:
    """wanted: auto, cpu, cuda, cuda:1, mps."""

    wanted: str = "auto"
    device: str = LOADING
    processor: str = field(default_factory=processor)
    registry: Any = None  # the engine's, once torch is there

    def prepare(self) -> None:
        """Imports torch (seconds) and settles the device. Raises the engine's SettingWrong for one that is not there."""
        from compute.engine import device, registry

        device.exact_float32()
        self.device = device.described(device.choose_device(self.wanted))
        known = registry.shared()
        known.listing()  # reads the headers of all files, which /healthz must not do on the event loop
        self.registry = known

    @property
    def torch(self) -> str | None:
        """Version, or None while nothing has imported it."""
        torch = sys.modules.get("torch")
        return getattr(torch, "__version__", None)

    @property
    def threads(self) -> int | None:
        """Threads of one torch operation started from the calling thread: torch keeps this number for each thread."""
        torch = sys.modules.get("torch")
        return torch.get_num_threads() if hasattr(torch, "get_num_threads") else None

    def conditions(self, seconds: float, seed: int | None) -> Conditions:
        return Conditions(
            device="cpu" if self.device in (LOADING, MISSING) else self.device,
            machine=self.processor,
            python=platform.python_version(),
            torch=self.torch,
            threads=self.threads,
            seed=seed,
            seconds=seconds,
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )

    def models_known(self) -> tuple[str, ...]:
        """Models that can be loaded and talked to, the default first; those that only draft for another are not among them."""
        if self.registry is None:
            return tuple(name for name in MINIS if (CHECKPOINTS / name / "config.json").is_file())
        usable = [line for line in self.registry.listing() if not line.trouble and line.source != "draft"]
        return tuple(line.id for line in sorted(usable, key=lambda line: not line.is_default))

    def models_loaded(self) -> tuple[str, ...]:
        return tuple(line.id for line in self.registry.listing() if line.loaded) if self.registry else ()

    def facts(self) -> dict[str, Any]:
        """What a Status says about the machine."""
        return dict(
            device=self.device,
            machine=self.processor,
            torch=self.torch,
            models_known=self.models_known(),
            models_loaded=self.models_loaded(),
        )
