"""A first step on tensors without memory: to check a method, and to estimate what a search would need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from polyarch.core import Examples, Feed, Method, Problem, State
from polyarch.data.labels import HIDDEN
from polyarch.data.task import Task
from polyarch.distributions.priors import make_prior
from polyarch.spaces.base import Space
from polyarch.streams import Streams


@dataclass(frozen=True)
class MemoryEstimate:
    """What one step of a search holds in memory, in bytes, and how many parameters it trains (of one repeat)."""

    parameters: int
    state: int
    """Weights, statistics, belief and optimiser state; kept twice, since the best state is too."""
    gradients: int
    activations: int
    """What the backward pass needs of the forward pass."""
    data: int

    @property
    def total(self) -> int:
        """All of it."""
        return 2 * self.state + self.gradients + self.activations + self.data


def prepare(method: Method, space: Space, task: Task, examples: Examples, repeats: int) -> tuple[Problem, State, Feed]:
    """Everything that a first step needs, with `examples` standing in for every split: in one, without labels."""
    stage = method.stages(space)[0]
    problem = Problem(
        space=stage.space,
        supernet=stage.space.supernet(task.shape, repeats),
        likelihood=task.likelihood,
        prior=make_prior(method.default_prior, stage.space.decisions),
        data={
            "train": examples,
            "valid": examples,
            "unlabelled": Examples(examples.x, torch.full_like(examples.y, HIDDEN)),
        },
    )
    streams = [Streams(k) for k in range(repeats)]
    state = method.init(problem, streams, None)
    batches = {
        name: [next(problem.passes(spec.split, spec.size))] * spec.count for name, spec in method.feeds(problem).items()
    }
    drawn = [method.draw(problem, s) for s in streams]
    draws = {name: torch.stack([d[name] for d in drawn]) for name in drawn[0]}
    rates = {name: torch.tensor(rate) for name, rate in method.rates(0).items()}
    return problem, state, Feed(batches, draws, rates)


def standardised(task: Task) -> Examples:
    """The training split as a method sees it."""
    return Examples(task.standardise(task.train.x), task.train.y)


def dry_run(method: Method, space: Space, task: Task, repeats: int = 1) -> MemoryEstimate:
    """Runs one step on fake tensors, which have shapes but no memory, and counts.

    Raises where a step reads a value back to the host or has a shape that depends on data: it could not be captured. A
    method that has a sparse form is run in its dense one, which needs more.
    """
    method = method.capturable()
    saved: dict[int, Tensor] = {}

    def note(value: Tensor) -> Tensor:
        saved[id(value.untyped_storage())] = value
        return value

    real = standardised(task)
    with FakeTensorMode() as mode, torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        examples = Examples(mode.from_tensor(real.x), mode.from_tensor(real.y))
        problem, state, feed = prepare(method, space, task, examples, repeats)
        method.step(problem, state, feed)
        own = {id(value.untyped_storage()) for value in state.tensors().values()}
        activations = sum(_bytes(v.untyped_storage()) for key, v in saved.items() if key not in own)
        return MemoryEstimate(
            parameters=sum(p.numel() for p in state.weights.values()) // repeats,
            state=sum(_bytes(value) for value in state.tensors().values()),
            gradients=sum(_bytes(value) for value in (*state.weights.values(), *state.belief.values())),
            activations=activations,
            data=_bytes(real.x) + _bytes(real.y),
        )


def _bytes(value: Tensor | torch.UntypedStorage) -> int:
    return int(value.nbytes if isinstance(value, Tensor) else value.nbytes())
