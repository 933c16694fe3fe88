"""What methods are compared at: examples that training steps pass forward and backward.

A budget pays for the search and, where its networks share weights, for training alone what it selects. Every method
gets as many epochs as the budget pays for, and what counts in epochs keeps its share of them (`with_epochs`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from polyarch.core import Method
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.methods.standalone import alone
from polyarch.runs.config import Config, describe_method
from polyarch.runs.preparing import prepare, streams_of
from polyarch.runs.run import Run, shares_weights
from polyarch.spaces.base import Space
from polyarch.training.loop import Progress
from polyarch.training.pace import kinds_of_epochs, with_epochs


@final
@dataclass(frozen=True)
class Price:
    """What the epochs of a method cost, in examples passed forward and backward."""

    stages: tuple[float, ...]
    """An epoch of every stage, mean over its epochs."""
    examples: int
    """Training examples."""

    def of(self, method: Method, space: Space) -> float:
        """All epochs of a method, which may be other ones than those that were counted."""
        stages = zip(method.stages(space), self.stages, strict=True)
        return sum(stage.epochs * each for stage, each in stages) + self._training(method, space)

    def _training(self, method: Method, space: Space) -> float:
        if not shares_weights(space, method):
            return 0.0
        recipe = alone(method, space, space.architecture([0] * len(space.decisions)))
        return 2.0 * recipe.epochs * (self.examples // recipe.batch_size) * recipe.batch_size


def price_of(config: Config, task: Task) -> Price:
    """Counts what a method's epochs cost at most, by one step of every kind and by what ends the last epoch."""
    method = config.make_method()
    found = []
    for stage in range(len(method.stages(config.make_space()))):
        loop = prepare(config, task, Progress(stage=stage), streams_of(config), None)
        each = 0.0
        for epoch, share in kinds_of_epochs(loop).items():
            loop.progress.epoch = epoch
            step, counts = next(loop.steps()), loop.batches.counts
            each += share * (step.forward + step.backward) * sum(counts) / counts[0]
        end = loop.method.end_epoch(loop.problem, loop.state, loop.epochs - 1, False)
        found.append(each + end.forward + end.backward)
    return Price(tuple(found), len(task.train))


def fitted(config: Config, price: Price, budget: float, name: str) -> Config:
    """A search in as many epochs as a budget pays for; says which one it is that it does not pay for at all."""
    method, space = config.make_method(), config.make_space()

    def costs(epochs: int) -> float:
        return price.of(with_epochs(method, epochs), space)

    if costs(method.epochs) == budget or costs(1) == 0:  # of a method of one's own that does not say what it passes
        return config
    if costs(1) > budget:
        raise PolyarchError(
            f"a budget of {budget:,.0f} examples does not pay for one epoch of {name}, which takes {costs(1):,.0f}; "
            "give a larger one, or leave it out of the comparison"
        )
    fits, too_many = 1, 2
    while costs(too_many) <= budget:
        fits, too_many = too_many, 2 * too_many
    while too_many - fits > 1:
        epochs = (fits + too_many) // 2
        fits, too_many = (epochs, too_many) if costs(epochs) <= budget else (fits, epochs)
    return replace(config, method=describe_method(with_epochs(method, fits)))


def spent(run: Run) -> int:
    """What a finished run and the training of what it selected took."""
    each = [run.result["budget"], *([run.trained.result["budget"]] if run.trained else [])]
    return sum(int(own["forward"] + own["backward"]) for own in each)
