"""A number with its papers: what it is, how it came about, and where that can be checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Mapping

Kind = Literal["computed", "measured", "quoted"]


@dataclass(frozen=True)
class Source:
    """Where a published figure stands. `where` is the section or table, `read_on` an ISO date."""

    title: str
    url: str = ""
    where: str = ""
    read_on: str = ""
    note: str = ""


@dataclass(frozen=True)
class Fact:
    """A number somebody published, in SI units."""

    value: float
    unit: str
    source: Source
    note: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Quantity:
    """What a sentence prints.

    unit: SI ("B", "s", "FLOP/s", "token/s", "ratio", "count" …); prefixes are chosen only when it is displayed.
    kind: "computed" from a formula and published inputs; "measured" by running something of ours; "quoted".
    formula: the arithmetic in one line, readable without the code; inputs: the named numbers that went in.
    conditions: for measured values model, dtype, device, versions, seed, n, date, command; for quoted ones the baseline.
    """

    value: Any
    unit: str
    kind: Kind
    formula: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    interval95: tuple[float, float] | None = None
    says: Mapping[str, str] = field(default_factory=dict)  # what the number is, in zh and en

    def __post_init__(self):
        if self.kind == "computed" and not self.formula:
            raise ValueError(f"a computed quantity states its formula (value {self.value} {self.unit})")
        if self.kind == "quoted" and self.source is None:
            raise ValueError(f"a quoted quantity names its source (value {self.value} {self.unit})")
        if self.kind == "measured" and not self.conditions:
            raise ValueError(f"a measured quantity states its conditions (value {self.value} {self.unit})")
