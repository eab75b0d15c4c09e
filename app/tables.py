"""TOML files of data/ that pages are made of."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, TypeVar

from compute.errors import BrokenData

T = TypeVar("T")


def read(path: Path, make: Callable[[dict[str, Any]], T]) -> T:
    """What `make` makes of the file, kept until the file changes. make: a plain function, the same at each call. Raises BrokenData."""
    try:
        return _read(path, make, path.stat().st_mtime_ns)
    except OSError as reason:
        raise BrokenData(f"data/{path.name}", str(reason.strerror)) from None
    except (ValueError, KeyError, TypeError) as reason:  # a TOML error is a ValueError, and so is a wrong encoding
        raise BrokenData(f"data/{path.name}", f"{type(reason).__name__}: {reason}") from None


@lru_cache(maxsize=16)
def _read(path: Path, make: Callable[[dict[str, Any]], T], changed: int) -> T:
    return make(tomllib.loads(path.read_text(encoding="utf-8")))
