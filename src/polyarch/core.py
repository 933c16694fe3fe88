"""What a method is given, what it keeps, and what it must answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.data.likelihood import Likelihood
from polyarch.data.rows import in_turn
from polyarch.data.task import Split, fixed_order
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.settings import AtLeast, Size, settle
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.bounds import Pricing, SpaceBounds
from polyarch.streams import Streams
from polyarch.trees import tree_map

Replay = Callable[[Hashable, Callable[[Any], tuple[Tensor, ...]], Any], tuple[Tensor, ...]]
"""Takes a kind, a pass of that kind, and a tree of tensors; gives what the pass says of them."""


@dataclass(frozen=True)
class Problem:
    """What stays as it is while a method learns: the space, its supernet, the prior and the data."""

    space: Space
    supernet: Supernet
    likelihood: Likelihood
    prior: Categorical
    data: Mapping[str, Split]
    """Standardised and on the device: `train`; where there is validation data `search`, which belief is learnt on, and
    `select`, which is evaluated and stopped on (the same examples, unless the data has some of their own for `search`);
    and what else the task has for learning, such as `unlabelled`."""
    black: Tensor | None = None
    """Of images: what a black pixel is after standardising, [channels, 1, 1]."""
    precision: str = "float32"
    """`float32` or `bfloat16`, of products and convolutions on a CUDA device; weights, statistics and losses are always
    in single precision."""
    fast: bool = True
    """Whether networks may run in a form that is fused for speed (`Supernet.allow_fast`)."""
    bounds: SpaceBounds | None = None
    """What the selected network may cost, where that is limited; for methods that prefer architectures themselves."""
    price: Pricing | None = None
    """What cost is worth in fit, where it has a price. `prior` has it already, where belief is moved by data."""
    replay: Replay | None = None
    """Where passes of an evaluation are recorded and replayed (`training.evaluation` asks): what does it."""

    def computing(self) -> AbstractContextManager[Any]:
        """In which steps are made and evaluated, so that they have the precision asked for."""
        # What is cached would be kept beyond a captured step.
        mixed = self.precision == "bfloat16"
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False) if mixed else nullcontext()

    @property
    def repeats(self) -> int:
        """How many independent runs are trained at once."""
        return self.supernet.repeats

    @property
    def train_size(self) -> int:
        """N, the number of training examples."""
        return len(self.data["train"])

    @property
    def device(self) -> torch.device:
        """Where everything is."""
        return next(iter(self.data.values())).y.device

    def batch_size(self, most: int, *splits: str) -> int:
        """Examples of a batch over all ranks: `most`, or what the smallest of the splits has."""
        size = min(most, *(len(self.data[split]) for split in splits))
        return size - size % distributed.size()

    def log_likelihood(self, output: Tensor, batch: Batch) -> Tensor:
        """Mean log-likelihood [repeats] of a batch, over all ranks, given what a network says of it."""
        return distributed.mean(self.likelihood.log_likelihood(output, batch.y))

    def passes(self, split: str, size: int = 1024) -> Iterator[Batch]:
        """All examples of a split, at most `size` at a time, the same for every repeat.

        In one fixed random order, and in batches that are equal but for one example: where batch norm goes by the
        batch, neither the order of a file, such as class by class, nor a small rest at its end decides on results.
        """
        count = math.ceil(len(self.data[split]) / size)
        if count <= 1:  # the order within a batch does not matter: nothing to copy
            yield self._batch(split, slice(None))
        else:
            order, y = self._order(split).tensor_split(count), self.data[split].y
            for rows, x in zip(order, in_turn(self.data[split].x, order), strict=True):
                yield Batch(tree_map(self._for_all, x), self._for_all(y[rows]))

    def some(self, split: str, size: int) -> Batch:
        """So many examples of a split, or all where it has fewer: the first in the order of `passes`."""
        return self._batch(split, self._order(split)[:size])

    def _order(self, split: str) -> Tensor:
        return fixed_order(len(self.data[split])).to(self.device)

    def _batch(self, split: str, rows: Tensor | slice) -> Batch:
        def taken(values: Tensor) -> Tensor:
            return self._for_all(values[rows])

        return Batch(tree_map(taken, self.data[split].x), taken(self.data[split].y))

    def _for_all(self, values: Tensor) -> Tensor:
        return values.expand(self.repeats, *values.shape)


@dataclass
class State:
    """What a checkpoint holds of a method, `scratch` aside; changed in place. Tensors have a leading axis of repeats.

    Weights and belief are disjoint and complete, also where one optimiser moves both.
    """

    weights: dict[str, Tensor]
    """Parameters of the supernet."""
    buffers: dict[str, Tensor]
    """Its batch-norm statistics."""
    belief: dict[str, Tensor]
    """Parameters of the distribution."""
    optimiser: dict[str, Tensor] = field(default_factory=dict)
    """Momenta and the like, under names `GROUP.PARAMETER`."""
    likelihood: dict[str, Tensor] = field(default_factory=dict)
    """What is learnt of the likelihood while weights are: the loop puts it there (`training.noise`)."""
    scratch: dict[str, Tensor] = field(default_factory=dict)
    """What the parts of a step hand on to each other: made in `init` and changed in place, as all else is. It is in no
    checkpoint: nothing of it outlives a step."""

    @classmethod
    def of(cls, supernet: Supernet, belief: dict[str, Tensor]) -> State:
        """A state that shares the supernet's own tensors."""
        return cls(dict(supernet.named_parameters()), dict(supernet.named_buffers()), belief)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor, under `GROUP/NAME`."""
        groups = {
            "weights": self.weights,
            "buffers": self.buffers,
            "belief": self.belief,
            "optimiser": self.optimiser,
            "likelihood": self.likelihood,
        }
        return {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}

    @torch.no_grad()
    def copy_from(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over the values of `tensors()` of a state of the same method and space."""
        own = self.tensors()
        if own.keys() != tensors.keys():
            differing = sorted(own.keys() ^ tensors.keys())
            raise PolyarchError(f"the saved state does not fit this method and space; first difference: {differing[0]}")
        torch._foreach_copy_(list(own.values()), [tensors[name] for name in own])


@dataclass(frozen=True)
class Batch:
    """Examples of one step: `x` [repeats, batch, ...], `y` [repeats, batch] or [repeats, batch, k].

    On many ranks, this rank's slice.
    """

    x: Any
    """A tensor, or a tree of them where networks take several inputs (`polyarch.trees`)."""
    y: Tensor
    draws: Mapping[str, Any] = field(default_factory=dict)
    """What `Method.draw` drew for this batch, by name: tensors [repeats, ...], or mappings of them."""

    @property
    def size(self) -> int:
        """How many examples it has, over all ranks."""
        return self.y.shape[1] * distributed.size()


@dataclass(frozen=True)
class FeedSpec:
    """Batches that a method wants at every step: `count` of them from `split`, of `size` examples over all ranks.

    Of the first of a method's feeds, `shorter` says that what is left at the end of an epoch, fewer than `count`
    batches, makes a last, shorter step.
    """

    split: str
    size: int
    count: int = 1
    shorter: bool = False


@dataclass(frozen=True)
class Feed:
    """All that differs from one step to the next, as tensors in fixed places: a step reads nothing else."""

    batches: Mapping[str, Sequence[Batch]]
    """Under the names of `Method.feeds`, each with its own draws."""
    draws: Mapping[str, Any]
    """What else `Method.draw` drew: tensors with a leading axis of repeats, or mappings of them."""
    schedule: Mapping[str, Tensor]
    """What `Method.schedule` says of the epoch, as scalars."""

    def only(self, batch: int) -> Feed:
        """What a part sees that is about one batch alone."""
        return replace(self, batches={name: [own[batch % len(own)]] for name, own in self.batches.items()})


@dataclass(frozen=True)
class Info:
    """What a step says of itself: scalars per repeat [repeats], and how many examples went forward and backward."""

    metrics: Mapping[str, Tensor]
    forward: int = 0
    backward: int = 0

    @classmethod
    def of(cls, parts: Sequence[Info]) -> Info:
        """What the parts of a step say together; a metric that several of them tell is the mean of theirs."""
        told: dict[str, list[Tensor]] = {}
        for part in parts:
            for name, value in part.metrics.items():
                told.setdefault(name, []).append(value)
        metrics = {name: torch.stack(values).mean(0) if len(values) > 1 else values[0] for name, values in told.items()}
        return cls(metrics, sum(part.forward for part in parts), sum(part.backward for part in parts))


@dataclass(frozen=True)
class Part:
    """A part of a step that is captured by itself. Parts of one name are one recording, replayed for other batches."""

    name: str
    run: Callable[[Problem, State, Feed], Info]
    batch: int | None = None
    """The only batch of every feed that it sees, counted from the step's first (where a feed has fewer, it begins
    again); by default all of them."""


@dataclass(frozen=True)
class Stage:
    """A part of a search: its space and its length. Most methods have one."""

    space: Space
    epochs: int


@dataclass(frozen=True)
class Meaning:
    """What a method's belief means, for whoever reads its numbers."""

    kind: Literal["posterior", "mixing", "sampling", "fixed"]
    """Its probabilities say how likely options are to be right (`posterior`), how much they count in a mixture
    (`mixing`), or how often they are drawn (`sampling`); `fixed` is belief that no data moves."""
    text: str
    """In one or two plain sentences."""


@dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """Which state is kept, and when a search ends before its last epoch."""

    split: Literal["auto", "train", "select", "never"] = "auto"
    """Keep the best state by the objective on `train` data or on `select` (validation) data, or `never` stop early and
    keep the last; `auto` is select where there is such a split, else train."""
    patience: Annotated[int, AtLeast(1)] = 30
    """Stop after so many epochs without a better objective."""


LAST = EarlyStopping(split="never")
"""Keeps the last state."""


@dataclass(frozen=True, kw_only=True)
class Evaluating:
    """When a state is evaluated, and on what; early stopping and metrics look there only."""

    every: Annotated[int, AtLeast(1)] = 1
    """Epochs between two evaluations."""
    splits: Literal["used", "all"] = "used"
    """The split that stopping goes by, or, where the last state is kept, validation data where there is some (`used`);
    or training and validation data (`all`). What the kept state is worth on both is measured at the end in any case."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """How belief and weights are learnt. A subclass is a frozen dataclass whose fields are its settings.

    A method is written once and runs for any number of repeats (the leading axis), on any number of ranks (reduce over
    examples with `distributed.mean`), and captured (fixed shapes, nothing read back, all randomness in `draw`).

    A step that runs chosen operations alone reads back which they are. Such a method has a setting `form`, `sparse` or
    `dense`, and its dense form is the one that is captured.
    """

    name: ClassVar[str]
    draws_from_space: ClassVar[bool] = False
    """Whether it runs no architectures but those that `space.random` draws, or one that it is told."""
    evaluates: ClassVar[Mapping[str, str]] = {"": "network"}
    """What the numbers of `evaluate` are about, by the beginning of their names, in the order in which a person wants
    to hear of them."""
    meaning: ClassVar[Meaning] = Meaning(
        "sampling", "Its method does not say what this belief means: do not take it for certainty."
    )
    """What belief means."""

    epochs: Annotated[int, AtLeast(1)] = 100
    """At most so many passes over the training data."""
    batch_size: Size = 512
    """Examples per step, over all ranks; a last partial batch is dropped."""
    evaluation: Evaluating = Evaluating()
    """When a state is evaluated, and on what."""
    stopping: EarlyStopping = EarlyStopping()
    """Which state is kept, and when to stop."""

    def __post_init__(self) -> None:
        settle(self)

    def check(self, space: Space) -> None:
        """Raises when the method does not work on such a space, and says why."""

    def prior(self, space: Space) -> str | None:
        """The prior over architectures where none is given; None where one has no meaning, and none may be given."""
        return "uniform"

    def stages(self, space: Space) -> tuple[Stage, ...]:
        """The parts of the search, in order."""
        return (Stage(space, self.epochs),)

    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        """Which batches a step needs; one from the training data by default."""
        return {"train": FeedSpec("train", problem.batch_size(self.batch_size, "train"))}

    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        """All randomness of one repeat's next step, for the global batch, in fixed shapes; none by default.

        Tensors, or mappings of them. What stands under the name of a feed is handed out with its batches: each of
        those tensors has a leading axis of `FeedSpec.count`.
        """
        return {}

    def schedule(self, epoch: int) -> dict[str, float]:
        """Learning rates of an epoch (from 0), and whatever else changes with it."""
        return {}

    def parts(self, problem: Problem, state: State, epoch: int, batches: int) -> Sequence[Part]:
        """What a step of an epoch (from 0) with so many batches is made of, in order; by default `step` alone.

        Asked for in every epoch, and the same for all steps of an epoch that have as many batches. A name stands for
        one recording: what the host knows and is not in the name must not change.
        """
        return (Part("step", self.step),)

    @abstractmethod
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """The state before the first step, with all optimiser state made; `previous` is the stage before, if any."""

    @abstractmethod
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """Changes `state` in place."""

    def end_epoch(self, problem: Problem, state: State, epoch: int, evaluated: bool) -> Info:
        """What is done after the steps of an epoch (from 0), such as an E-step over all data; nothing by default.

        Its metrics are what else is worth watching. They are told with the evaluation that follows, so that those of an
        epoch that is not `evaluated` need not be made.
        """
        return Info({})

    @abstractmethod
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        """What `State.belief` stands for, with its leading axis of repeats; a run asks this of what it kept."""

    @abstractmethod
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """What the state is worth on a split, in evaluation mode: tensors [repeats, ...].

        `objective` (larger is better) decides early stopping; `accuracy` and `log_likelihood` are of the mixture where
        the space is nested, else of the mode.
        """

    def preferred(self, problem: Problem, state: State) -> Tensor | None:
        """Choices [repeats, decisions] to select at the end where belief prefers none; by default belief is asked.

        Where costs are limited, what is not within `problem.bounds` is not taken, and belief is asked after all.
        """
        return None


@runtime_checkable
class SaysWhatJudges(Protocol):
    """A method that moves belief by other data than most."""

    def judged_by(self, splits: Collection[str]) -> str:
        """See the function."""


def judged_by(method: Method, splits: Collection[str]) -> str | None:
    """The split by whose examples a method moves belief, of those there are; None where no data moves it.

    A price on cost counts in the prior for as many examples, so that data does not swamp it.
    """
    if isinstance(method, SaysWhatJudges):
        return method.judged_by(splits)
    return None if method.meaning.kind == "fixed" else "search" if "search" in splits else "train"


def gradients(loss: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of the repeats' losses [repeats], over all ranks; repeats do not touch each other.

    Zero for a parameter that no chosen operation has. They lie in memory as their parameters do, so that an optimiser
    can go over all at once.
    """
    made = torch.autograd.grad(loss.sum(), parameters, allow_unused=True)
    lacking = [parameter for parameter, own in zip(parameters, made, strict=True) if own is None]
    # One zero for all: hundreds of small tensors would be as many kernels.
    zeros = iter(loss.new_zeros(sum(p.numel() for p in lacking)).split([p.numel() for p in lacking]))
    found = []
    for parameter, own in zip(parameters, made, strict=True):
        if own is None:
            found.append(next(zeros).view(parameter.shape).to(parameter.dtype))
        elif own.stride() == parameter.stride():
            found.append(own)
        else:
            found.append(torch.empty_like(parameter).copy_(own))
    distributed.average(found)
    return found
