"""Keys and values in 8 or 4 bits, as engines keep them: the vector of each head at each position has a scale (float16) and a zero
point of its own, so nothing that is stored changes when the next token comes.

    forward(weights, tokens, KVRoundTrip(4), positions)            # a whole text, to measure the loss
    forward(weights, tokens, KVRoundTrip(2, group=32), positions)  # keys by channel
    generate(model, tokens, 64, cache=QuantizedKVCache(model.weights, 1, 128, 4))

The same grid as grid.py's Uniform(bits, symmetric=False), on tensors. Memory is what this saves: torch has no kernel that attends
to codes, so a look restores all that it sees, and takes longer than one into a plain cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compute.engine.model import Place, Weights, look, place
from compute.errors import BadInput
from compute.quantize.grid import Uniform


def encode(x: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """x (…, D) → codes (…, D) uint8, scales (…, 1) float16, zeros (…, 1) uint8. The range is min … max with zero in it; a
    scale is rounded up, so that its range reaches both ends."""
    top = 2**bits - 1
    x = x.float()
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    exact = ((high.double() - low.double()) / top).clamp(max=torch.finfo(torch.float16).max)
    near = exact.half()
    scales = (near.view(torch.int16) + (near.double() < exact)).to(torch.int16).view(torch.float16)  # the next float16 is the next integer
    steps = torch.where(scales > 0, scales.float(), torch.inf)
    zeros = (-low / steps).round().clamp(0, top)
    codes = ((x / steps).round() + zeros).clamp(0, top)
    return codes.to(torch.uint8), scales, zeros.to(torch.uint8)


def restore(codes: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """(…, D) float32: (code − zero point) · scale"""
    return (codes.float() - zeros.float()) * scales.float()


def there_and_back(x: Tensor, bits: int) -> Tensor:
    """What is read of x (…, D) after it was stored; in x's dtype."""
    return restore(*encode(x, bits)).to(x.dtype)


def from_the_least(x: Tensor, bits: int) -> Tensor:
    """The same with KIVI's grid: code · scale + least value, both float16. A channel that is 100 ± 1 everywhere gets small steps,
    which a range with zero in it would not give."""
    least, most = x.float().aminmax(dim=-1, keepdim=True)
    scale, least = ((most - least) / (2**bits - 1)).half().float(), least.half().float()
    codes = ((x - least) / torch.where(scale > 0, scale, torch.inf)).round().clamp(0, 2**bits - 1)
    return (codes * scale + least).to(x.dtype)


class KVRoundTrip:
    """For texts that are scored in one forward: nothing is kept, but every query sees keys and values as a quantized cache of
    `bits` bits, 2 to 8, would give them back, its own position's included.

    group: KIVI's way (Liu et al. 2024, §3.2). Some channels of the keys are large at every position, and take the scale of a whole
    vector with them; so each channel of the keys has a scale of its own, over `group` positions, and values one for each vector as
    before. Positions are quantized when their group is full, hence a query sees those of its own group as they are. (KIVI keeps
    up to 128 positions so; here the least that its way allows.)"""

    def __init__(self, bits: int, group: int | None = None):
        self.bits, self.group = Uniform(bits, symmetric=False).bits, group
        if group is not None and group < 1:
            raise BadInput("group", group, "it must be at least 1", "至少为 1")

    def place(self, positions: Tensor, device: torch.device) -> Place:
        here = place(positions, device)
        if here.start != 0:
            raise ValueError("nothing is kept, so the tokens must be whole sequences, at positions 0, 1, 2, …")
        return here

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, here: Place) -> Tensor:
        mask, causal = here.mask, here.causal
        if self.group is None:
            keys, values = there_and_back(keys, self.bits), there_and_back(values, self.bits)
        else:
            keys, values, mask, causal = *self.by_channel(keys, values), self.sees(keys.shape[1]).to(keys.device), False
        return look(queries, keys.transpose(1, 2), values.transpose(1, 2), mask, causal)

    def by_channel(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Of full groups as they are given back, then all as they are: (B, full + T, K, D) each."""
        full = keys.shape[1] // self.group * self.group
        channels = keys[:, :full].unflatten(1, (-1, self.group)).transpose(2, 4)  # (B, groups, D, K, group)
        old_keys = from_the_least(channels, self.bits).transpose(2, 4).flatten(1, 2)
        return torch.cat([old_keys, keys], 1), torch.cat([from_the_least(values[:, :full], self.bits), values], 1)

    def sees(self, tokens: int) -> Tensor:
        """(1, 1, T, full + T): earlier groups quantized, one's own as it is."""
        t = torch.arange(tokens)
        group, full = t // self.group, tokens // self.group * self.group
        return torch.cat([group[:full] < group[:, None], (group == group[:, None]) & (t <= t[:, None])], 1)[None, None]


class QuantizedKVCache:
    """Like KVCache, in codes: every sequence owns `capacity` slots. A slot of a head holds D codes and the zero point of the key,
    the same of the value, and two scales: 2·(D + 1)·bits + 32 bits."""

    def __init__(self, weights: Weights, batch: int, capacity: int, bits: int):
        c = weights.config
        if bits not in (4, 8):
            raise BadInput("kv_bits", bits, "the quantized cache stores 8 or 4 bits", "量化缓存存 8 位或 4 位")
        self.bits, self.width, self.dtype = bits, c.head_dim, weights.dtype
        slots = (c.layers, batch, c.kv_heads, capacity)
        self.codes = torch.zeros(*slots, 2 * (c.head_dim + 1) * bits // 8, dtype=torch.uint8, device=weights.device)
        self.scales = torch.zeros(*slots, 2, dtype=torch.float16, device=weights.device)
        self.rows = torch.arange(batch, device=weights.device)[:, None]  # (B, 1)

    @property
    def bytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes

    def place(self, positions: Tensor, device: torch.device) -> Place:
        return place(positions, device)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, here: Place) -> Tensor:
        (key, key_scale, key_zero), (value, value_scale, value_zero) = encode(keys, self.bits), encode(values, self.bits)
        slot = torch.cat([key, key_zero, value, value_zero], -1)  # (B, T, K, 2·(D + 1))
        self.codes[layer][self.rows, :, here.positions] = slot if self.bits == 8 else slot[..., ::2] | slot[..., 1::2] << 4
        self.scales[layer][self.rows, :, here.positions] = torch.cat([key_scale, value_scale], -1)
        return look(queries, *self.held(layer, here.reach), here.mask, here.causal)

    def held(self, layer: int, reach: int) -> tuple[Tensor, Tensor]:
        """Keys and values of positions 0 … reach − 1, restored: (B, K, reach, D) each."""
        codes, scales = self.codes[layer][:, :, :reach], self.scales[layer][:, :, :reach]
        if self.bits == 4:
            codes = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
        halves = zip(codes.split(self.width + 1, -1), scales.split(1, -1))
        keys, values = (restore(half[..., :-1], scale, half[..., -1:]).to(self.dtype) for half, scale in halves)
        return keys, values
