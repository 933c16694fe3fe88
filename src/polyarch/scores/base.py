"""What a score is given and must answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from polyarch.architecture import Architecture
from polyarch.data.likelihood import Likelihood
from polyarch.data.task import Split, TaskShape
from polyarch.errors import PolyarchError
from polyarch.settings import check
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.cost import Cost
from polyarch.trees import called

if TYPE_CHECKING:
    from polyarch.tables.benchmark import Benchmark

Need = Literal["data", "weights", "train", "select", "table"]
"""What a score may ask for beside the architecture: a batch of examples, the supernet's weights, the splits of the
data, a benchmark's table."""
_WANTED: dict[Need, str] = {
    "data": "data, a batch of training examples; name some with --data, or give a run",
    "weights": "trained weights; give a run, not a bare space",
    "train": "training data; name some with --data, or give a run",
    "select": "validation data; give data that has a validation split, such as by --set select=0.2",
    "table": "a table and a column; name them with --table and --column",
}
_NEEDS_LIKELIHOOD = frozenset({"data", "train", "select"})
"""What is of no use without a likelihood."""


@dataclass(frozen=True)
class Candidate:
    """An architecture to be scored. Whatever network a score asks for is its own to change."""

    architecture: Architecture
    space: Space
    shape: TaskShape
    supernet: Supernet | None = None
    data: Split | None = None
    """One batch of training examples, standardised: `x` [n, ...], `y` [n]; the same for all that are compared."""
    likelihood: Likelihood | None = None
    """How outputs are compared with targets."""
    train: Split | None = None
    """All training examples, standardised."""
    select: Split | None = None
    """All validation examples, standardised."""
    order: int = 0
    """The seed of the one order in which `batches` come; the same for all that are compared."""
    table: Benchmark | None = None
    """What a benchmark says of the space's architectures."""
    column: str = ""
    """The column of the table that is meant where a score does not name another."""

    def fresh(self, generator: torch.Generator) -> nn.Module:
        """The network to train, with first weights drawn from `generator` alone."""
        with chance(generator):
            return self.space.evaluated().build(self.architecture, self.shape).to(self.device)

    def inherited(self) -> nn.Module:
        """A copy of the network with the supernet's weights, in evaluation mode."""
        self.check("weights")
        assert self.supernet is not None
        return self.supernet.extract(self.architecture).to(self.device)

    def loss(self, network: nn.Module) -> Tensor:
        """Mean negative log-likelihood of the batch under a network; for classes that is the cross-entropy."""
        self.check("data")
        assert self.data is not None
        assert self.likelihood is not None
        return -self.likelihood.log_likelihood(answer(network, self.data.x), self.data.y).mean()

    def batches(self, size: int) -> Iterator[Split]:
        """Minibatches of the training examples without end, in the order that `order` fixes.

        Every epoch has an order of its own; what is left at its end and does not fill a batch is left out. Where there
        are fewer examples than `size`, a batch is all of them.
        """
        self.check("train")
        assert self.train is not None
        chance, size = torch.Generator().manual_seed(self.order), min(size, len(self.train))
        while True:
            order = torch.randperm(len(self.train), generator=chance)[: len(self.train) // size * size]
            for part in order.to(self.device).split(size):
                yield self.train.rows(part)

    @property
    def device(self) -> torch.device:
        """Where its examples are, and so its networks."""
        given = self.data or self.train or self.select
        return given.y.device if given else torch.device("cpu")

    def check(self, need: Need, who: str = "this score") -> None:
        """Raises, with advice, where it lacks what `who` needs."""
        held = {
            "data": self.data,
            "weights": self.supernet,
            "train": self.train,
            "select": self.select,
            "table": self.table,
        }
        if held[need] is None or (need in _NEEDS_LIKELIHOOD and self.likelihood is None):
            raise PolyarchError(f"{who} needs {_WANTED[need]}")

    def check_numbers(self, who: str) -> None:
        """Raises where inputs are tokens, which cannot be changed a little, as `who` needs."""
        if self.shape.tokens or self.shape.parts:
            told = "tokens" if self.shape.tokens else "several"
            raise PolyarchError(f"{who} needs one input of numbers, and these are {told}; take another score")

    def cost(self) -> Cost:
        """Parameters and multiply-accumulates."""
        return self.space.cost(self.architecture, self.shape)


@dataclass(frozen=True, kw_only=True)
class Score(ABC):
    """Scores many candidates at once. A subclass is a frozen dataclass whose fields are its settings."""

    name: ClassVar[str]
    larger_is_better: ClassVar[bool]
    meaning: ClassVar[str]
    """One sentence for a person."""
    cost: ClassVar[str]
    """What scoring one candidate takes, in a sentence."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What its candidates must have."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def trained_examples(self) -> int:
        """Examples that scoring one candidate passes forward and backward, where the score trains it; 0 by default."""
        return 0

    @abstractmethod
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        """One number per candidate, [n], float64; the same for the same generator state."""

    def check(self, candidate: Candidate) -> None:
        """Raises, with advice, where a candidate lacks what the score needs: to be asked before any work."""
        for need in get_args(Need):
            if need in self.needs:
                candidate.check(need, self.name)


@contextmanager
def chance(generator: torch.Generator) -> Iterator[None]:
    """Torch's own chance, seeded from `generator` and afterwards put back: for code that takes no generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        yield


def answer(network: nn.Module, x: Any) -> Tensor:
    """What a network says of x, [n, ...] -> [n, outputs], without an auxiliary tower, which speaks in training mode."""
    said = called(network, x)
    output: Tensor = said[0] if isinstance(said, tuple) else said
    return output
