"""Networks that answer after every block: whoever runs them says each time which inputs go on."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import islice
from typing import final

from torch import Tensor, nn

Steps = Generator[Tensor, Tensor, None]
"""Gives the answers [rows, outputs] after one block and the next; is sent which rows go on, [rows] bool."""


@final
class Stepwise(nn.Module):
    """Blocks in order, and a head for the answer before the last ones and after each of them."""

    def __init__(self, blocks: Iterable[nn.Module], heads: Iterable[nn.Module]) -> None:
        """Takes the modules over; with as many heads as blocks and one more, the first answers before any block."""
        super().__init__()
        self.blocks, self.heads = nn.ModuleList(blocks), nn.ModuleList(heads)

    def forward(self, x: Tensor) -> Steps:
        """[n, ...] -> `Steps`; a block is given the rows that go on and no others."""
        first = len(self.blocks) + 1 - len(self.heads)
        for block in islice(self.blocks, first):
            x = block(x)
        rows = yield self.heads[0](x)
        for block, head in zip(islice(self.blocks, first, None), islice(self.heads, 1, None), strict=True):
            x = block(x[rows])
            rows = yield head(x)
