"""A first step on tensors without memory: to check a method, and to estimate what a search would need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from polyarch.core import Feed, Info, Method, Problem, State
from polyarch.data.rows import Rows
from polyarch.data.task import Split, Task
from polyarch.distributions.priors import make_prior
from polyarch.spaces.base import Space
from polyarch.spaces.views import All, Dense
from polyarch.streams import Streams
from polyarch.training.allocation import Allocation
from polyarch.training.capture import captured_form, settled_form
from polyarch.training.loop import Batches, Recording, recording_of
from polyarch.trees import leaves, tree_map


@dataclass(frozen=True)
class MemoryEstimate:
    """What a search holds in memory, in bytes, and how many parameters it trains (of one repeat).

    What torch and a device take for themselves comes on top, such as the workspaces of CUDA's libraries.
    """

    parameters: int
    state: int
    """Weights, statistics, belief and optimiser state; kept twice, since the best state is too."""
    scratch: int
    """What the parts of a step hand on to each other."""
    data: int
    """The examples that are learnt from, and the places that a step's batches and draws are copied to."""
    step: int
    """The most that a part of a step has alive at a time: activations, gradients, temporaries."""
    evaluation: int
    """The same of a pass of an evaluation."""
    recordings: tuple[int, ...]
    """The same of every part that is recorded on a CUDA device, in order; none where steps cannot be captured."""

    @property
    def total(self) -> int:
        """All of it, where steps are simply called."""
        return self._held + max(self.step, self.evaluation)

    @property
    def graphs(self) -> int:
        """What recordings take on a CUDA device: the pool that they share keeps room for the largest of them.

        And each is warmed up outside of the pool before it is recorded, when those before it have filled theirs.
        """
        pools = accumulate(self.recordings, max, initial=0)
        return max((pool + own for pool, own in zip(pools, self.recordings, strict=False)), default=0)

    @property
    def cuda_total(self) -> int:
        """All of it on a CUDA device, as `torch.cuda.max_memory_reserved` counts.

        While a part is recorded there is a copy of what it changes. Passes of an evaluation change nothing; they run,
        or warm up, when the pool is full.
        """
        if not self.recordings:
            return self.total
        return self._held + max(self.graphs + self.state + self.scratch, max(self.recordings) + self.evaluation)

    @property
    def _held(self) -> int:
        return 2 * self.state + self.scratch + self.data


def prepare(method: Method, space: Space, task: Task, examples: Split, repeats: int) -> tuple[Problem, State, Feed]:
    """Everything that a first step needs, with `examples` standing in for every split."""
    stage = method.stages(space)[0]
    problem = Problem(
        space=stage.space,
        supernet=stage.space.supernet(task.shape, repeats),
        likelihood=task.likelihood.on(examples.y.device),
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


def dry_run(method: Method, space: Space, task: Task, repeats: int = 1) -> MemoryEstimate:
    """Runs every part of a step once on fake tensors, which have shapes but no memory, and counts.

    Raises where a step reads a value back to the host or has a shape that depends on data: it could not be captured. A
    method that has a sparse form is run in its dense one, which needs more. Of several stages the first is counted.
    """
    dense = captured_form(method)
    training = task.training
    one = task.preprocess(training.x[:1])
    with FakeTensorMode():
        x = tree_map(lambda part: torch.empty(len(training), *part.shape[1:], dtype=part.dtype), one)
        examples = Split(x, torch.empty(training.y.shape, dtype=training.y.dtype))
        problem, state, feed = prepare(dense, space, task, examples, repeats)
        parts = _recordings(dense, problem, state, feed, dense.stages(space)[0].epochs)
        peaks = tuple(_peak(part) for part in parts.values())
        return MemoryEstimate(
            parameters=sum(p.numel() for p in state.weights.values()) // repeats,
            state=_bytes(state.tensors().values()),
            scratch=_bytes(state.scratch.values()),
            data=_data(task, one) + _places(feed, parts),
            step=max(peaks),
            evaluation=_peak(partial(_pass_of_an_evaluation, problem)),
            recordings=peaks if settled_form(method, problem.supernet, "cuda") == dense else (),
        )


def _recordings(
    method: Method, problem: Problem, state: State, feed: Feed, epochs: int
) -> dict[Recording, Callable[[], Info]]:
    """Everything that a loop records, in the order in which it comes."""
    found: dict[Recording, Callable[[], Info]] = {}
    first, *_ = feed.batches
    counts = dict.fromkeys(Batches(problem, method.feeds(problem)).counts)
    for epoch in range(epochs):
        for count in counts:
            own = replace(feed, batches={**feed.batches, first: feed.batches[first][:count]})
            for part in method.parts(problem, state, epoch, count):
                seen = own if part.batch is None else own.only(part.batch)
                found.setdefault(recording_of(part, count), partial(part.run, problem, state, seen))
    return found


@torch.no_grad()
def _pass_of_an_evaluation(problem: Problem) -> None:
    """All members where they are nested, else one architecture; a batch is there until the next one is."""
    supernet = problem.supernet.eval()
    choices = torch.zeros(problem.repeats, len(problem.space.decisions), dtype=torch.int64)
    for batch in islice(problem.passes("train"), 2):
        supernet(batch.x, All() if All in supernet.views else Dense(choices))


def _peak(run: Callable[[], object]) -> int:
    with Allocation() as made:
        run()
    return made.peak


def _data(task: Task, one: Any) -> int:
    """All that a method is given, standardised as `one` example is; a split of two roles is there once.

    Of inputs that stay on the disk only targets are.
    """
    splits = {id(split): split for split in task.learning_data().values()}.values()
    inputs = sum(len(split) * _bytes(leaves(one)) for split in splits if not isinstance(split.x, Rows))
    return inputs + sum(split.y.nbytes for split in splits)


def _places(feed: Feed, parts: Iterable[Recording]) -> int:
    """What a feed is copied to: every batch where a part sees all of them, else one at a time; and all draws."""
    every = any(recording.batches is not None for recording in parts)
    batches = [batch for own in feed.batches.values() for batch in own]
    seen = batches if every else [own[0] for own in feed.batches.values()]
    draws = [*leaves(feed.draws), *(value for batch in batches for value in leaves(batch.draws))]
    return _bytes(value for batch in seen for value in (*leaves(batch.x), batch.y)) + _bytes(draws)


def _bytes(values: Iterable[Tensor]) -> int:
    return sum(value.nbytes for value in values)
