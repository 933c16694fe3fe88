"""A first step on tensors without memory: to check a method, and to estimate what a search would need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import itemgetter

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from polyarch.core import Feed, Info, Method, Problem, State
from polyarch.data.task import Split, Task
from polyarch.distributions.priors import make_prior
from polyarch.spaces.base import Space
from polyarch.streams import Streams
from polyarch.training.capture import captured_form
from polyarch.trees import tree_map


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


def prepare(method: Method, space: Space, task: Task, examples: Split, repeats: int) -> tuple[Problem, State, Feed]:
    """Everything that a first step needs, with `examples` standing in for every split."""
    stage = method.stages(space)[0]
    problem = Problem(
        space=stage.space,
        supernet=stage.space.supernet(task.shape, repeats),
        likelihood=task.likelihood,
        prior=make_prior(method.prior(stage.space) or "uniform", stage.space.decisions),
        data=dict.fromkeys(("train", "search", "select", *task.learning_data()), examples),
    )
    streams = [Streams(k) for k in range(repeats)]
    state = method.init(problem, streams, None)
    feeds = method.feeds(problem)
    first, *others = (method.draw(problem, s) for s in streams)
    drawn = tree_map(lambda *values: torch.stack(values), first, *others)
    batches = {
        name: [
            replace(problem.some(spec.split, spec.size), draws=tree_map(itemgetter((slice(None), k)), own))
            for k in range(spec.count)
        ]
        for name, spec in feeds.items()
        for own in [drawn.get(name, {})]
    }
    draws = {name: value for name, value in drawn.items() if name not in feeds}
    schedule = {name: torch.tensor(value) for name, value in method.schedule(0).items()}
    return problem, state, Feed(batches, draws, schedule)


def one_step(method: Method, problem: Problem, state: State, feed: Feed) -> Info:
    """All parts of a first step."""
    parts = method.parts(problem, state, 0, len(next(iter(feed.batches.values()))))
    return Info.of([p.run(problem, state, feed if p.batch is None else feed.only(p.batch)) for p in parts])


def standardised(task: Task) -> Split:
    """The training split as a method sees it."""
    return Split(task.standardise(task.train.x), task.train.y)


def dry_run(method: Method, space: Space, task: Task, repeats: int = 1) -> MemoryEstimate:
    """Runs one step on fake tensors, which have shapes but no memory, and counts.

    Raises where a step reads a value back to the host or has a shape that depends on data: it could not be captured. A
    method that has a sparse form is run in its dense one, which needs more.
    """
    method = captured_form(method)
    saved: dict[int, Tensor] = {}

    def note(value: Tensor) -> Tensor:
        saved[id(value.untyped_storage())] = value
        return value

    real = Split(task.standardise(task.training.x), task.training.y)
    with FakeTensorMode() as mode, torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        examples = Split(mode.from_tensor(real.x), mode.from_tensor(real.y))
        problem, state, feed = prepare(method, space, task, examples, repeats)
        one_step(method, problem, state, feed)
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
