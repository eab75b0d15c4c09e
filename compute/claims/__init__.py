"""The figures that prose states, each as a function: arithmetic in one line, inputs by name, nothing typed twice.

    @claim("anchor.decode_bound", "…中文…", "…English…")      prose writes [[=anchor.decode_bound | token/s]]
    def _(): return computed(value, unit, "formula", **inputs)

One module a lesson; they are discovered.
"""

from importlib import import_module
from pkgutil import iter_modules

from compute.claims.claim import CLAIMS

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")  # which registers its claims

__all__ = ["CLAIMS"]
