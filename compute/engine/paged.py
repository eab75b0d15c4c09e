"""Keys and values in blocks, and attention over block tables.

One tensor holds every block of every layer; whose they are is known to compute/paging.py alone. The tokens of a step, of all
its sequences, go through the model as one flat row, so that its matrices are read once for all of them; only attention
looks at each sequence apart, or at several of the same shape together.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compute.engine.model import Place, Weights, look
from compute.paging import Copy


class PagedCache:
    """data (layers, blocks, block_size, 2K, D): the keys' heads before the values'. layers and cells: views of each layer, by
    block and by position."""

    def __init__(self, weights: Weights, blocks: int, block_size: int):
        c = weights.config
        self.blocks, self.block_size = blocks, block_size
        self.data = torch.zeros((c.layers, blocks, block_size, 2 * c.kv_heads, c.head_dim), dtype=weights.dtype, device=weights.device)
        self.layers = self.data.unbind()
        self.cells = self.data.flatten(1, 2).unbind()

    @property
    def block_bytes(self) -> int:
        """Of one block in all layers."""
        return self.data[:, 0].numel() * self.data.element_size()

    def copy(self, copies: Row[Copy]) -> None:
        """Copy-on-write, all of a step at once: no target is a source."""
        if copies:
            self.data[:, [c.target for c in copies]] = self.data[:, [c.source for c in copies]]

    def take_out(self, blocks: Row[int]) -> Tensor:
        """What these blocks hold, in memory that does not belong to the device."""
        return self.data[:, list(blocks)].cpu()

    def put_back(self, blocks: Row[int], held: Tensor) -> None:
        self.data[:, list(blocks)] = held.to(self.data.device)


@dataclass(frozen=True)
class Part:
    """Tokens of one sequence in the flat row of a step: positions start … start + tokens − 1, kept in `blocks`."""

    blocks: Row[int]
    start: int
    tokens: int


@dataclass(frozen=True)
class Group:
    """Parts that attention treats together, as they have the same number of tokens. Letters as in compute/engine/model.py."""

    first: int  # of the flat row: B·T tokens, one part after the other
    parts: int  # B
    tokens: int  # T
    table: Tensor  # (B·blocks): physical blocks, the shorter tables filled up with their first
    mask: Tensor | None  # (B, 1, T, S) added to the scores; None for a prompt from its beginning
    reach: int  # S


class Step:
    """A cache for one forward over the parts of a step, which stand one after the other in tokens (1, N). Parts of equal
    length that are neighbours are looked at together: decoding sequences, and guesses to be checked."""

    def __init__(self, cache: PagedCache, parts: Row[Part]):
        self.cache, self.device = cache, cache.data.device
        size = cache.block_size
        slots = [part.blocks[at // size] * size + at % size for part in parts for at in range(part.start, part.start + part.tokens)]
        self.slots = torch.tensor(slots, device=self.device)  # (N): where each token's keys and values go
        self.positions = torch.tensor([[at for part in parts for at in range(part.start, part.start + part.tokens)]])  # (1, N)
        self.groups = [self._group(parts[a:b], sum(part.tokens for part in parts[:a])) for a, b in neighbours(parts)]

    def _group(self, parts: Row[Part], first: int) -> Group:
        tokens, reach = parts[0].tokens, max(part.start + part.tokens for part in parts)
        width = -(-reach // self.cache.block_size)
        mask = None
        if len(parts) > 1 or parts[0].start and tokens > 1:
            last = np.array([part.start for part in parts])[:, None] + np.arange(tokens)  # (B, T)
            mask = torch.from_numpy(hidden(last, reach)[:, None]).to(self.device, self.cache.data.dtype)
        return Group(first, len(parts), tokens, torch.tensor(joined(parts, width), device=self.device), mask, reach)

    def place(self, positions: Tensor, device: torch.device) -> Place:
        return Place(positions.to(device), None, 0, None, False)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, here: Place) -> Tensor:
        """queries (1, N, H, D), keys and values (1, N, K, D), as compute/engine/model.py asks for."""
        self.cache.cells[layer].index_copy_(0, self.slots, torch.cat([keys[0], values[0]], dim=1))
        out = [self._look(group, self.cache.layers[layer], queries) for group in self.groups]
        return out[0] if len(out) == 1 else torch.cat(out, dim=1)

    def _look(self, group: Group, held: Tensor, queries: Tensor) -> Tensor:
        """queries (1, N, H, D), of which the group's are looked at → (1, B·T, H, D)."""
        keys, values = by_text(held.index_select(0, group.table), group.parts).narrow(3, 0, group.reach).unbind()
        asked = queries.narrow(1, group.first, group.parts * group.tokens)
        asked = asked.reshape(group.parts, group.tokens, *queries.shape[2:])
        return look(asked, keys, values, group.mask, group.mask is None and group.tokens > 1).reshape(1, -1, *queries.shape[2:])


def joined(parts: Row[Part], width: int) -> list[int]:
    """The first `width` blocks of each part, one part after the other; where one has fewer, its first is repeated."""
    return [block for part in parts for block in (*part.blocks[:width], *part.blocks[:1] * (width - len(part.blocks)))]


def hidden(last: NDArray[np.integer], reach: int) -> NDArray[np.float32]:
    """What is added to the scores (…, reach) of queries that stand at `last`: nothing, or −∞ for what comes later."""
    return np.where(np.arange(reach) <= last[..., None], np.float32(0), np.float32(-np.inf))


def by_text(blocks: Tensor, texts: int) -> Tensor:
    """Blocks (texts · W, block_size, 2K, D), one text after the other → keys and values (2, texts, K, W · block_size, D)."""
    _, _, heads, D = blocks.shape
    return blocks.view(texts, -1, 2, heads // 2, D).permute(2, 0, 3, 1, 4)


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
