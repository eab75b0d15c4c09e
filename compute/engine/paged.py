"""Keys and values in blocks, and attention over block tables.

One tensor holds every block of every layer; whose they are is known to compute/paging.py alone. The tokens of a step, of all
its sequences, go through the model as one flat row, so that its matrices are read once for all of them; only attention
looks at each sequence apart, or at several of the same shape together.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass

import torch
from torch import Tensor

from compute.engine.model import Place, Weights, look
from compute.paging import Copy


class PagedCache:
    """data (layers, 2, blocks, block_size, K, D): keys, then values."""

    def __init__(self, weights: Weights, blocks: int, block_size: int):
        c = weights.config
        self.blocks, self.block_size = blocks, block_size
        shape = (c.layers, 2, blocks, block_size, c.kv_heads, c.head_dim)
        self.data = torch.zeros(shape, dtype=weights.dtype, device=weights.device)

    @property
    def block_bytes(self) -> int:
        """Of one block in all layers."""
        return self.data[:, :, 0].numel() * self.data.element_size()

    def copy(self, copies: Row[Copy]) -> None:
        """Copy-on-write, all of a step at once: no target is a source."""
        if copies:
            self.data[:, :, [c.target for c in copies]] = self.data[:, :, [c.source for c in copies]]

    def take_out(self, blocks: Row[int]) -> Tensor:
        """What these blocks hold, in memory that does not belong to the device."""
        return self.data[:, :, list(blocks)].cpu()

    def put_back(self, blocks: Row[int], held: Tensor) -> None:
        self.data[:, :, list(blocks)] = held.to(self.data.device)


@dataclass(frozen=True)
class Part:
    """Tokens of one sequence in the flat row of a step: positions start … start + tokens − 1, kept in `blocks`."""

    blocks: tuple[int, ...]
    start: int
    tokens: int


@dataclass(frozen=True)
class Group:
    """Parts that attention treats together, as they have the same number of tokens. Letters as in compute/engine/model.py."""

    rows: slice  # of the flat row: B·T tokens, one part after the other
    parts: int  # B
    tables: Tensor  # (B, blocks): physical blocks, the shorter tables filled up with their first
    mask: Tensor | None  # (B, 1, T, S); None for a prompt from its beginning
    reach: int  # S


class Step:
    """A cache for one forward over the parts of a step, which stand one after the other in tokens (1, N). Parts of equal
    length that are neighbours are looked at together: decoding sequences, and guesses to be checked."""

    def __init__(self, cache: PagedCache, parts: Row[Part]):
        self.cache, device = cache, cache.data.device
        size = cache.block_size
        slots = [part.blocks[at // size] * size + at % size for part in parts for at in range(part.start, part.start + part.tokens)]
        self.slots = torch.tensor(slots, device=device)  # (N): where each token's keys and values go
        self.positions = torch.tensor([[at for part in parts for at in range(part.start, part.start + part.tokens)]])  # (1, N)
        self.groups = [self._group(parts[a:b], sum(part.tokens for part in parts[:a]), device) for a, b in neighbours(parts)]

    def _group(self, parts: Row[Part], first: int, device: torch.device) -> Group:
        tokens, reach = parts[0].tokens, max(part.start + part.tokens for part in parts)
        width = -(-reach // self.cache.block_size)
        tables = [[*part.blocks[:width], *[part.blocks[0]] * (width - len(part.blocks))] for part in parts]
        mask = None
        if len(parts) > 1 or parts[0].start:
            last = torch.tensor([part.start for part in parts])[:, None] + torch.arange(tokens)  # (B, T)
            if tokens > 1 or len(parts) > 1:
                mask = (torch.arange(reach) <= last[:, None, :, None]).to(device)
        return Group(slice(first, first + len(parts) * tokens), len(parts), torch.tensor(tables, device=device), mask, reach)

    def place(self, positions: Tensor, device: torch.device) -> Place:
        return Place(positions.to(device), None, 0, None, False)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, here: Place) -> Tensor:
        """queries (1, N, H, D), keys and values (1, N, K, D), as compute/engine/model.py asks for."""
        held = self.cache.data[layer]  # (2, blocks, block_size, K, D)
        flat = held.view(2, -1, *held.shape[3:])
        flat[0].index_copy_(0, self.slots, keys[0])
        flat[1].index_copy_(0, self.slots, values[0])
        out = [self._look(group, held, queries[0, group.rows]) for group in self.groups]
        return (out[0] if len(out) == 1 else torch.cat(out))[None]

    def _look(self, group: Group, held: Tensor, queries: Tensor) -> Tensor:
        """queries (B·T, H, D) → the same."""
        rows = held[:, group.tables.flatten()]  # (2, B·blocks, block_size, K, D)
        keys, values = rows.view(2, group.parts, -1, *held.shape[3:])[:, :, : group.reach].transpose(2, 3)  # each (B, K, S, D)
        asked = queries.view(group.parts, -1, *queries.shape[1:])  # (B, T, H, D)
        return look(asked, keys, values, group.mask, group.mask is None and asked.shape[1] > 1).reshape(queries.shape)


TOGETHER = 8  # tokens a part, up to which several are looked at at once; longer ones differ too much in length


def neighbours(parts: Row[Part]) -> list[tuple[int, int]]:
    """Ranges of parts to be looked at together."""
    ranges: list[tuple[int, int]] = []
    for at, part in enumerate(parts):
        if ranges and part.tokens == parts[at - 1].tokens <= TOGETHER:
            ranges[-1] = (ranges[-1][0], at + 1)
        else:
            ranges.append((at, at + 1))
    return ranges
