"""Networks that answer after every block: whoever runs them says each time which inputs go on."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import islice
from typing import final

import torch
from torch import Tensor, nn

Steps = Generator[Tensor, Tensor, None]
"""Gives the answers [rows, outputs] after one block and the next; is sent which rows go on, [rows] bool.

Sent whether anything goes on, [] bool, all rows go on together, or stay where they are with their last answer.
"""


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
        answer = self.heads[0](x)
        rows = yield answer
        for block, head in zip(islice(self.blocks, first, None), islice(self.heads, 1, None), strict=True):
            if rows.dim():
                x = block(x[rows])
                answer = head(x)
            else:
                x, answer = _together(block, head, x, answer, rows)
            rows = yield answer


def _together(block: nn.Module, head: nn.Module, x: Tensor, answer: Tensor, on: Tensor) -> tuple[Tensor, Tensor]:
    """All rows pass a block and its head, or, as a branch that can be exported, none does."""

    def go(x: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        x = block(x)
        return x, head(x)

    def stay(x: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        return x.clone(), answer.clone()

    found: tuple[Tensor, Tensor] = torch.cond(on, go, stay, (x, answer))
    return found
