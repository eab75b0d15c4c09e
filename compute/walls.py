"""A small machine's own account: where decoding one text lands under its two measured walls, and what that promises.

The same arithmetic as compute/roofline.py, with the walls given instead of a chip's sheet.
"""

from __future__ import annotations

from dataclasses import dataclass

from compute import facts, roofline


@dataclass(frozen=True)
class Promise:
    """One decode step at batch 1. weight_bytes: what is read of the weights; bytes_per_step: KV and activations too.
    tokens_per_second: the bound, the slower of both walls."""

    weight_bytes: float
    bytes_per_step: float
    flops_per_step: float
    tokens_per_second: float

    @property
    def intensity(self) -> float:
        """FLOP/byte."""
        return self.flops_per_step / self.bytes_per_step


def promise(model: str, bandwidth_bytes_per_s: float, flops_per_s: float, context: int, bits: float = 32) -> Promise:
    """Every matrix once, the KV of `context` tokens once; ideal: no launches, no waiting, nothing kept in a cache."""
    ops = roofline.decode_ops(facts.model(model), 1, context, bits, 128, bits)
    bytes_, flops = sum(op.bytes for op in ops), sum(op.flops for op in ops)
    return Promise(sum(op.weight_bytes for op in ops), bytes_, flops, 1 / max(bytes_ / bandwidth_bytes_per_s, flops / flops_per_s))
