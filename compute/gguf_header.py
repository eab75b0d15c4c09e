"""The metadata at the head of a GGUF file: names and values, in the order of the file, without torch and without the tensors.

The layout is that of the GGUF specification, version 2 and 3, little-endian: magic, version, count of tensors, count of entries;
an entry is a name, a type and a value; a string is its length in bytes and its bytes; a list is the type of its items, their
count, and the items.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

from compute.errors import BrokenData

NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, LIST = 8, 9
VERSIONS = (2, 3)


def metadata(path: Path) -> dict[str, Any]:
    """Every entry of the header. Raises BrokenData where the file is no whole GGUF file; FileNotFoundError where there is none."""
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _entries(data)
        except (struct.error, UnicodeDecodeError, KeyError, ValueError, OverflowError) as wrong:
            raise BrokenData(path, f"not a whole GGUF file ({wrong})", f"不是完整的 GGUF 文件（{wrong}）") from None


def _entries(data: mmap.mmap) -> dict[str, Any]:
    magic, version, _, count = struct.unpack_from("<4sIQQ", data, 0)
    if magic != b"GGUF" or version not in VERSIONS:
        raise ValueError(f"begins with {magic!r}, version {version}")
    at, found = 24, {}
    for _ in range(count):
        name, at = _string(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        found[name], at = _value(data, at + 4, kind)
    return found


def _value(data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    """A value and where the next thing begins."""
    if kind == STRING:
        return _string(data, at)
    if kind != LIST:
        return struct.unpack_from(NUMBERS[kind], data, at)[0], at + struct.calcsize(NUMBERS[kind])
    of, count = struct.unpack_from("<IQ", data, at)
    at, items = at + 12, []
    for _ in range(count):
        item, at = _value(data, at, of)
        items.append(item)
    return items, at


def _string(data: mmap.mmap, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    end = at + 8 + length
    if end > len(data):
        raise ValueError(f"ends inside a string at byte {at}")
    return data[at + 8 : end].decode("utf-8"), end
