"""What is recorded once and replayed: on a CUDA device a whole step, or pass of an evaluation, is one launch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, final

import torch
from torch import Tensor

from polyarch.core import Info, Method
from polyarch.settings import updated
from polyarch.spaces.base import Supernet
from polyarch.spaces.views import Dense
from polyarch.trees import leaves, tree_map

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE as Pool

WARM_UP_STEPS = 3

Said = TypeVar("Said")

Form = Literal["auto", "sparse", "dense"]
"""How a method runs the architectures that it samples: a setting `form` of such methods."""


def settled_form(method: Method, supernet: Supernet, device: str) -> Method:
    """The method with its form chosen where that is `auto`: the quicker one on such a device."""
    if getattr(method, "form", "") != "auto":
        return method
    # Fused, what is not chosen costs a look, and a step that is captured no work of the host.
    return updated(method, {"form": "dense" if device == "cuda" and supernet.fuses(Dense) else "sparse"})


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
        with torch.enable_grad():
            graph, self._info = record(self._step, pool)
        torch._foreach_copy_(state, before)
        self._graph = graph


@final
class Recordings:
    """Passes of an evaluation, for `Problem.replay`: recorded when one of a kind first comes, and then replayed.

    Such a pass changes nothing, and reads nothing that moves but the weights and what it is given. It is not kept: it
    knows the problem, which knows these recordings, and in a circle their memory would not be freed at once.
    """

    def __init__(self, pool: Pool | None) -> None:
        """Records into a pool, as `CapturedStep` does."""
        self._pool = pool
        self._known: dict[Hashable, tuple[Any, torch.cuda.CUDAGraph, tuple[Tensor, ...]]] = {}

    def __call__(self, kind: Hashable, run: Callable[[Any], tuple[Tensor, ...]], given: Any) -> tuple[Tensor, ...]:
        """What `run` says of a tree of tensors, which lasts until the next pass or step.

        Args:
            kind: what else the pass goes by; types, shapes and the precision of now are looked at anyway.
            run: the pass.
            given: what it is given, copied to fixed places.
        """
        key = (kind, torch.is_autocast_enabled("cuda"), tuple((value.shape, value.dtype) for value in leaves(given)))
        if key not in self._known:
            places = tree_map(torch.clone, given)
            self._known[key] = (places, *record(partial(run, places), self._pool))
        places, graph, said = self._known[key]
        torch._foreach_copy_(list(leaves(places)), list(leaves(given)))
        graph.replay()
        return said


def record(run: Callable[[], Said], pool: Pool | None) -> tuple[torch.cuda.CUDAGraph, Said]:
    """A graph of what `run` does, after warming up beside it, and where what it says will lie."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_STEPS):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        said = run()
    return graph, said
