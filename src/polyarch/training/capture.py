"""A step recorded once and replayed: on a CUDA device a whole step is one launch; elsewhere it is simply called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyarch.core import Info, Method
from polyarch.settings import updated

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE as Pool

WARM_UP_STEPS = 3


def captured_form(method: Method) -> Method:
    """The method itself where its step can be captured; one with a setting `form` in its dense form."""
    return updated(method, {"form": "dense"}) if getattr(method, "form", "dense") != "dense" else method


class CapturedStep:
    """Runs `step`, through a CUDA graph where it is to be captured.

    What the step reads must sit in fixed places: the caller refills those tensors before each call. `state` names every
    tensor that the step changes; warming up and capturing leave no trace in them.

    A graph keeps the memory of all that the step allocates, in a pool. Steps of which no two run at once may share one,
    and run in any order: whatever outlives a step is in `state`, so what it reads of the pool it has written before.
    But what a step says is in the pool, too, and lasts until any step of the same pool runs.
    """

    def __init__(
        self, step: Callable[[], Info], state: Mapping[str, Tensor], captures: bool, pool: Pool | None = None
    ) -> None:
        """Warms up and captures at once, if asked to; into a pool of its own, unless one is given."""
        self._step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        if captures:
            self._capture(list(state.values()), pool)

    def __call__(self) -> Info:
        """Runs one step."""
        if self._graph is None:
            return self._step()
        self._graph.replay()
        return self._info

    @torch.no_grad()
    def _capture(self, state: list[Tensor], pool: Pool | None) -> None:
        before = [value.clone() for value in state]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.enable_grad():
            for _ in range(WARM_UP_STEPS):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.enable_grad(), torch.cuda.graph(graph, pool=pool):
            self._info = self._step()
        torch._foreach_copy_(state, before)
        self._graph = graph
