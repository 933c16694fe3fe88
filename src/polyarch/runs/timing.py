"""How long a search is going to take, and how many epochs of it there is time for."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from typing_extensions import override

from polyarch import distributed
from polyarch.callbacks import Callback, Evaluation, Foretold
from polyarch.core import Method
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.methods.standalone import alone
from polyarch.runs.config import Config, describe_method
from polyarch.runs.preparing import prepare, streams_of
from polyarch.runs.run import shares_weights
from polyarch.spaces.base import Space
from polyarch.streams import Streams
from polyarch.training.evaluation import MOST
from polyarch.training.loop import Progress
from polyarch.training.pace import Pace, measure, with_epochs
from polyarch.uncertainty.members import FEW

logger = logging.getLogger("polyarch")

TRIAL = 0.04
"""The share of a time limit that steps are timed for."""
SECONDS = 0.5
"""That they are timed for where there is no limit."""
AIM = 0.85
"""The share of its time that a search is planned to take: how fast steps are goes up and down."""
PASSES = 17
"""Over at most 512 examples, by which forward passes are timed when a search ends (`forward_times`)."""
TRAINING = 0.5
"""The share of a search's time limit that training its selected network alone may take."""
FEWEST = 30
"""A search of fewer steps is not foretold: it would take hardly longer than that."""
CALIBRATED = 4096
"""Examples at most, on which batch norm of members is measured (`calibration_batches`)."""


class NoTime(PolyarchError):
    """A time limit is too short for a single epoch."""


@final
@dataclass(frozen=True)
class Forecast:
    """What a search is going to take, by what a few of its steps took."""

    paces: tuple[Pace, ...]
    """Of every stage."""
    ending: float
    """Seconds to evaluate what was found, once."""

    def searching(self, method: Method, space: Space) -> float:
        """Seconds of all stages of a method, which may have other epochs than the one that was measured."""
        stages = method.stages(space)
        return sum(
            pace.seconds(stage.epochs, method.evaluation.every) for pace, stage in zip(self.paces, stages, strict=True)
        )


def forecast(config: Config, task: Task, seconds: float = SECONDS) -> Forecast:
    """Begins every stage of a search, from fresh weights, and times a few steps of each for about so many seconds."""
    method, space = config.make_method(), config.make_space()
    stages, paces = method.stages(space), list[Pace]()
    for stage in range(len(stages)):
        begun = time.monotonic()
        loop = prepare(config, task, Progress(stage=stage), streams_of(config), None)
        made = time.monotonic() - begun
        pace = measure(loop, seconds / len(stages))
        paces.append(replace(pace, start=pace.start + made))
    return Forecast(tuple(paces), _ending(stages[-1].space, task, paces[-1].example, torch.device(config.device)))


@torch.no_grad()
def _ending(space: Space, task: Task, example: float, device: torch.device) -> float:
    """Seconds of the passes by which a finished search is evaluated, by those of one plain network.

    Of a nested space they are of the largest, with the mixture that it is; of others of one drawn at random, and of as
    many others as a mixture has members.
    """
    nested, several = space.nested, space.random().architectures > 1
    choices = [len(d) - 1 for d in space.decisions]
    if not nested:
        choices = space.random().sample(1, Streams(0)["architecture"])[0].tolist()
    network = space.build(space.architecture(choices), task.shape).to(device).eval()
    x = task.preprocess(task.training.x[:256]).to(device)
    network(x)
    begun = time.monotonic()
    network(x).cpu()
    each = (time.monotonic() - begun) / len(x)
    learnt, held_out = min(len(task.train), MOST), min(len(task.select), MOST) if task.select else 0
    looked_at = held_out + (len(task.test) if task.test else 0)
    if several and not nested:
        looked_at += min(len(task.training), CALIBRATED)
    networks = 3 if nested else 1 + FEW * several
    timed = PASSES * (4 if nested else 1) * min(len(task.training), 512)
    return example * (learnt + held_out) + each * (networks * looked_at + timed)


def fitted(method: Method, space: Space, foretold: Forecast, seconds: float) -> Method:
    """A method with as many of its epochs as there is time for, all that counts in epochs with them.

    Args:
        method: as it was asked for.
        space: what is searched.
        foretold: what its parts take.
        seconds: that it may take, evaluating what it found included.

    Raises:
        NoTime: for a single epoch.
    """

    def takes(epochs: int) -> float:
        return foretold.searching(with_epochs(method, epochs), space)

    goal = AIM * (seconds - foretold.ending)
    if takes(method.epochs) <= goal:
        return method
    fits, too_many = 0, method.epochs
    while too_many - fits > 1:
        epochs = (fits + too_many) // 2
        fits, too_many = (epochs, too_many) if takes(epochs) <= goal else (fits, epochs)
    if fits == 0 and takes(1) + foretold.ending > seconds:
        needs = takes(1) / AIM + foretold.ending
        raise NoTime(
            f"there is no time for one epoch in what is left of the time limit, {seconds:.3g} s: it takes about "
            f"{needs:.3g} s with what belongs to it; give that and more, or take a smaller space or fewer examples"
        )
    return with_epochs(method, max(fits, 1))


def within_limit(config: Config, task: Task, seconds: float) -> tuple[Config, Forecast]:
    """A search in as many of its epochs as it can make in so many seconds from now on, and what its parts take."""
    if distributed.size() > 1:
        raise PolyarchError("a time limit is for a search in one process; start it without torchrun, or leave it out")
    begun = time.monotonic()
    foretold = forecast(config, task, TRIAL * seconds)
    method = config.make_method()
    shorter = fitted(method, config.make_space(), foretold, seconds - (time.monotonic() - begun))
    if shorter.epochs < method.epochs:
        logger.warning("there is time for %d of %d epochs", shorter.epochs, method.epochs)
    return replace(config, method=describe_method(shorter)), foretold


def makes_few_steps(config: Config, task: Task) -> bool:
    """Whether a search is over before it could be foretold."""
    method, space = config.make_method(), config.make_space()
    steps = len(task.train) / method.batch_size * sum(stage.epochs for stage in method.stages(space))
    return steps < FEWEST


def foretell(config: Config, task: Task, known: Forecast | None = None) -> Foretold:
    """How long a search takes, and training alone what it selects, as a network that is drawn at random would.

    Args:
        config: of the search.
        task: its data.
        known: what its parts take, where that was measured.
    """
    method, space = config.make_method(), config.make_space()
    known = known or forecast(config, task)
    training = 0.0
    if shares_weights(space, method):
        [choices] = space.random().sample(1, Streams(0)["architecture"]).tolist()
        recipe = alone(method, space, space.architecture(choices))
        own = forecast(replace(config, method=describe_method(recipe), prior="uniform", repeats=1), task)
        training = config.repeats * (own.searching(recipe, space) + own.ending)
    epochs = sum(stage.epochs for stage in method.stages(space))
    return Foretold(epochs, known.searching(method, space), known.ending * config.repeats, training)


@final
class Deadline(Callback):
    """Ends a search whose time is over although its epochs were fewer by plan: its steps became slower."""

    def __init__(self, seconds: float) -> None:
        """Counts from now on."""
        self._ends = time.monotonic() + seconds

    @override
    def on_evaluation(self, evaluation: Evaluation) -> None:
        if time.monotonic() > self._ends and evaluation.metrics["epoch"] < evaluation.epochs:
            logger.warning("the time limit is over: the search ends after epoch %d", evaluation.metrics["epoch"])
            evaluation.stop()


def deadline(config: Config, spent: float, callbacks: Sequence[Callback]) -> list[Callback]:
    """Callbacks, and one that ends a search at its time limit, where it has one, of which so much is spent."""
    return [*callbacks, Deadline(config.time_limit - spent)] if config.time_limit else list(callbacks)
