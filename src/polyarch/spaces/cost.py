"""What a network costs, and what belief over architectures is expected to cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from polyarch.data.checks import reason
from polyarch.errors import PolyarchError
from polyarch.spaces.choice import ChoicePoints, DropPath, choice_points, owners, selecting
from polyarch.spaces.counting import Counting
from polyarch.spaces.relaxation import Relaxation, SimplexPerDecision
from polyarch.trees import called

if TYPE_CHECKING:
    from polyarch.architecture import Architecture
    from polyarch.data.task import TaskShape
    from polyarch.distributions.base import Distribution
    from polyarch.spaces.base import Space

AUXILIARY = "auxiliary."
"""What the parameters of an auxiliary tower begin with: it helps training and is not part of the network in use."""


@dataclass(frozen=True)
class Cost:
    """What the network in use takes, for one example."""

    parameters: int
    macs: int
    """Multiply-accumulates of convolutions, matrix products, attention and recurrent layers; a bias is one more."""
    uncounted: tuple[str, ...] = field(default=(), compare=False)
    """Operations of the network that calculate as well and are not among these, by torch's names."""


def cost_of(make: Callable[[], nn.Module], shape: TaskShape) -> Cost:
    """Counts by running what `make` gives once, on the meta device, where nothing takes memory.

    What reads values back does not run there, and is made and run in memory.
    """
    try:
        with torch.device("meta"):
            network = make()
        return _cost(network, shape)
    except Exception:  # whatever a space of one's own raises
        return cost_in_memory(make, shape)


def cost_in_memory(make: Callable[[], nn.Module], shape: TaskShape) -> Cost:
    """Counts by running what `make` gives once, on zeros: where values decide what runs, theirs do."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return _cost(make(), shape)


def _cost(network: nn.Module, shape: TaskShape) -> Cost:
    counted = _counted(network, shape)
    parameters = sum(p.numel() for name, p in network.named_parameters() if not name.startswith(AUXILIARY))
    return Cost(parameters, counted.macs.total(), tuple(sorted(counted.uncounted)))


def _counted(network: nn.Module, shape: TaskShape) -> Counting:
    """Multiply-accumulates by the path of a module, in one pass in evaluation mode.

    Operations are seen whole in inference mode. Where a network does not run in it, since it takes gradients itself,
    they are seen as torch takes them apart.
    """
    x, training, fused = shape.trial(1, _device(network)), network.training, torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # attention as one operation that has no formula
    network.eval()
    try:
        try:
            return _pass(network, x, torch.inference_mode())
        except RuntimeError:
            return _pass(network, x, torch.no_grad())
    except Exception as error:  # whatever a module of one's own raises
        raise PolyarchError(
            f"what {type(network).__name__} costs is not known, since it does not run on {shape.words}: "
            f"{type(error).__name__}: {reason(error)}"
        ) from error
    finally:
        network.train(training)
        torch.backends.mha.set_fastpath_enabled(fused)


def _pass(network: nn.Module, x: Any, gradients_off: AbstractContextManager[Any]) -> Counting:
    counting = Counting()
    with gradients_off, counting.modules_of(network), counting:
        called(network, x)
    return counting


def _device(module: nn.Module) -> torch.device:
    """Where a module is; the CPU where it has no parameters."""
    return next((p.device for p in module.parameters()), torch.device("cpu"))


# ---------------------------------------------------------------------------------------------------------------------
# Belief's cost.


@dataclass(frozen=True)
class CostTable:
    """What a network has in any case, and what every option adds: the cost of an architecture is their sum."""

    base: Cost
    options: Mapping[str, Sequence[Cost]]
    """By the names of the simplices that the space mixes, or of its decisions where it mixes none."""


@dataclass(frozen=True)
class ExpectedCost:
    """Mean cost under belief: tensors [...] through which gradients flow."""

    parameters: Tensor
    macs: Tensor


@runtime_checkable
class TabulatesCosts(Protocol):
    """A space that knows what each of its options costs."""

    def cost_table(self, shape: TaskShape) -> CostTable:
        """What every option adds to the cost."""


def cost_table(space: Space, shape: TaskShape) -> CostTable:
    """What every option adds to the cost: the space's own table, or measured where one decision differs."""
    if isinstance(space, TabulatesCosts):
        return space.cost_table(shape)
    choices = [0] * len(space.decisions)
    base = space.cost(space.architecture(choices), shape)
    options = {}
    for k, decision in enumerate(space.decisions):
        others = [[*choices[:k], option, *choices[k + 1 :]] for option in range(len(decision))]
        costs = [space.cost(space.architecture(other), shape) for other in others]
        options[decision.name] = [Cost(c.parameters - base.parameters, c.macs - base.macs) for c in costs]
    return CostTable(base, options)


def expected_cost(space: Space, belief: Distribution, shape: TaskShape) -> ExpectedCost:
    """The cost that belief expects: exact, since decisions are independent and every option adds its own."""
    if not belief.exact:
        raise PolyarchError(
            f"architectures of {space.name!r} are read out of this belief, so their cost has no expectation in closed "
            "form; sample architectures and average space.cost"
        )
    table = cost_table(space, shape)
    relaxation = space.relaxation or SimplexPerDecision(space.decisions)
    used = relaxation.usage(belief.probs())

    def expected(part: str) -> Tensor:
        whole = torch.full_like(used[0][..., 0], getattr(table.base, part), dtype=torch.float64)
        for simplex, probability in zip(relaxation.simplices, used, strict=True):
            each = torch.tensor([getattr(cost, part) for cost in table.options[simplex.name]], device=whole.device)
            whole = whole + (probability.double() * each).sum(-1)
        return whole

    return ExpectedCost(expected("parameters"), expected("macs"))


Owner = tuple[str, int] | None
"""The simplex and the option of it that something is part of; None for what a network has in any case."""


def choice_costs(make: Callable[[], nn.Module], relaxation: Relaxation, shape: TaskShape) -> CostTable:
    """The table of a network with choice points, by one pass in which every option runs.

    `make` is called for the meta device, so that weights take no memory.
    """
    with torch.device("meta"):
        network = make()
    points = choice_points(network)
    owners: dict[Tensor, set[Owner]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        owners.setdefault(parameter, set()).add(_owner(name, points))
    nested = any(_owner(path, points) for path, point in points.items() if not isinstance(point, DropPath))
    if nested or any(len(several) > 1 for several in owners.values()):
        raise PolyarchError(
            "a Choice is inside an option of another, or two options share weights, so costs do not add up; "
            "count one network at a time"
        )
    everything = {d.name: torch.ones(len(d), 1, 1, device=_device(network)) for d in relaxation.simplices}
    with selecting(points, everything):
        macs = _counted(network, shape).macs
    sizes = {name: p.numel() for name, p in network.named_parameters() if not name.startswith(AUXILIARY)}
    options = {d.name: [[0, 0] for _ in d.options] for d in relaxation.simplices}
    base = [0, 0]
    for part, counts in enumerate((sizes, macs)):
        for name, count in counts.items():
            owner = _owner(name, points)
            (base if owner is None else options[owner[0]][owner[1]])[part] += count
    costs = {name: [Cost(parameters, macs) for parameters, macs in rows] for name, rows in options.items()}
    return CostTable(Cost(base[0], base[1]), costs)


def _owner(name: str, points: ChoicePoints) -> Owner:
    """Of a parameter, layer or choice point, by its path; the outermost where there are several."""
    found = owners(name, points)
    return found[0] if found else None


# ---------------------------------------------------------------------------------------------------------------------
# Time.


@torch.no_grad()
def forward_seconds(models: Mapping[str, Callable[[Tensor], Tensor]], x: Tensor, rounds: int = 15) -> dict[str, float]:
    """Median seconds of a forward pass of each model, taken in turn so that a busy moment hits all alike.

    Models are where `x` is; that an answer comes back to the host is part of the time.
    """
    taken: dict[str, list[float]] = {name: [] for name in models}
    for k in range(rounds + 2):  # the first two warm up
        for name, model in models.items():
            start = time.perf_counter()
            model(x).cpu()
            if k >= 2:
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def network_seconds(
    space: Space, architecture: Architecture, shape: TaskShape, batch: int, device: torch.device
) -> float:
    """Median seconds of a forward pass of the network to train and use, on this machine, with fresh weights."""
    with torch.random.fork_rng(devices=[]):  # weights that are thrown away must not move the user's chance
        network = space.evaluated().build(architecture, shape).eval().to(device)
    return forward_seconds({"network": network}, shape.trial(batch, device))["network"]
