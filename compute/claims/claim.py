"""How a claim is written."""

from __future__ import annotations

from typing import Any, Callable

from compute.quantity import Quantity

CLAIMS: dict[str, Callable[[], Quantity]] = {}


def claim(name: str, zh: str, en: str):
    """Register a computed figure under the name that prose uses; zh and en say what it is."""

    def register(function: Callable[[], Quantity]):
        def stated() -> Quantity:
            q = function()
            return Quantity(q.value, q.unit, q.kind, q.formula, q.inputs, q.source, q.conditions, q.interval95, {"zh": zh, "en": en})

        stated.__doc__ = function.__doc__
        CLAIMS[name] = stated
        return stated

    return register


def computed(value: Any, unit: str, formula: str, **inputs: Any) -> Quantity:
    return Quantity(value, unit, "computed", formula, inputs)
