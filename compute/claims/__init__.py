"""The figures that prose states, each as a function: arithmetic in one line, inputs by name, nothing typed twice.

    @claim("anchor.decode_bound", "…中文…", "…English…")      prose writes [[=anchor.decode_bound | token/s]]
    def _(): return computed(value, unit, "formula", **inputs)

One module a lesson.
"""

from compute.claims import architecture, batching, guide, lab, moe, quantize, roofline, sampling, serving, speculative  # noqa: F401: importing registers
from compute.claims.claim import CLAIMS

__all__ = ["CLAIMS"]
