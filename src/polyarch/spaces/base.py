"""Spaces and supernets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.distributions.base import Distribution
from polyarch.distributions.priors import uniform
from polyarch.errors import PolyarchError, unknown
from polyarch.settings import plain, settle
from polyarch.spaces.cost import Cost, cost_of
from polyarch.spaces.layers import ResetsParameters
from polyarch.spaces.relaxation import Relaxation
from polyarch.spaces.repeats import How
from polyarch.spaces.views import Dense, SparsePerRepeat, View


class Supernet(nn.Module, ABC):
    """Shared weights of all architectures of a space, for `repeats` independent runs at once.

    Every parameter and buffer has a leading axis of repeats, of length 1 in a single run: repeats are trained as one
    batched computation, and nothing else in the library needs to know.
    """

    views: frozenset[type]
    """The views that `forward` takes: `Sparse` and `Dense` at least."""
    shares_statistics: bool = False
    """Whether batch norm's running statistics are those of many architectures, so that a network that is taken out
    needs its own (`training.calibration.recalibrate`)."""
    repeats_run: How = "batched"
    """All in one pass, or one after another (`spaces/repeats.py`)."""
    repeats: int
    space: Space
    shape: TaskShape

    @abstractmethod
    def forward(self, x: Tensor, view: View) -> Tensor:
        """Outputs under a view.

        Args:
            x: standardised inputs, [repeats, batch, ...].
            view: which architecture(s) to run.

        Returns:
            [repeats, batch, outputs], with a second axis [repeats, options, batch, outputs] under `All`.
        """

    drop_paths: tuple[str, ...] = ()
    """Names of the choice points that training may leave out (drop path), if the space has any."""

    def outputs(self, x: Tensor, view: View, kept: Mapping[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        """What `forward` gives, and after it, when training, what auxiliary towers say; each like `forward`'s.

        Args:
            x: as for `forward`.
            view: as for `forward`.
            kept: for `drop_paths`, weights [repeats, batch] by which their values are multiplied.
        """
        return (self(x, view),)

    def quickest(self, choices: Tensor, *, replayed: bool = False) -> SparsePerRepeat | Dense:
        """How choices [repeats, decisions] run quickest where the host may read them back.

        `replayed` says that a pass under `Dense` is recorded once and then replayed for any choices.
        """
        return SparsePerRepeat.read(choices) if SparsePerRepeat in self.views else Dense(choices)

    def fuses(self, view: type[View]) -> bool:
        """Whether passes under such views take a form that is fused for speed, on a CUDA device."""
        return False

    def keep_running(self, options: Mapping[str, Collection[int]]) -> None:
        """From now on only these options of every simplex run; the others must have weight 0 in every view.

        By default everything runs, which only takes longer: what has weight 0 adds nothing.
        """

    def allow_fast(self, allowed: bool) -> str:
        """Lets passes on a CUDA device take a form that is fused for speed, or not.

        Returns:
            Why they take the plain form even where another is allowed; nothing where they do not, or where none is
            expected.
        """
        return ""

    def draw_from(self, generators: Sequence[torch.Generator]) -> None:
        """Says where modules that draw by themselves while training, such as dropout, draw from; most have none.

        Args:
            generators: one per repeat.
        """

    @abstractmethod
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        """The weights and buffers of one architecture, under the names `space.build(architecture)` uses."""

    def nested_members(self, architecture: Architecture, belief: Distribution) -> tuple[Supernet, Tensor]:
        """For nested decisions: a supernet of one repeat cut at `architecture`, and the members' weights under `All`.

        Call it on a supernet of one repeat, with the belief of that repeat.
        """
        raise PolyarchError(f"the space {self.space.name!r} is not nested: its members do not share one pass")

    def stepwise(self, architecture: Architecture) -> nn.Module:
        """For a nested decision about blocks in a row: the network of `architecture`, answering after every block.

        Call it on a supernet of one repeat. The module has copies of its weights; what it gives for inputs [batch, ...]
        is `polyarch.spaces.stepwise.Steps`.
        """
        raise PolyarchError(f"networks of the space {self.space.name!r} have no blocks after which they could answer")

    def extract(self, architecture: Architecture, repeat: int = 0) -> nn.Module:
        """A plain module for one architecture, holding copies of its weights and nothing else."""
        state = {name: value.detach().clone() for name, value in self.member_state(architecture, repeat).items()}
        with torch.random.fork_rng(devices=[]):  # first weights that are thrown away must not move the user's chance
            module = self.space.build(architecture, self.shape)
        module.to(next(self.parameters()).dtype).load_state_dict(state)
        return module.eval()

    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        """Draws fresh weights; repeat r uses `generators[r]` alone, so that it starts like its single run."""
        for module in self.modules():
            if isinstance(module, ResetsParameters):
                module.reset_parameters(generators)


@dataclass(frozen=True, kw_only=True)
class Space(ABC):
    """What may be chosen. A subclass is a frozen dataclass whose fields are its settings."""

    def __post_init__(self) -> None:
        settle(self)

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in messages; a class has `name: ClassVar[str] = "..."`."""

    @property
    @abstractmethod
    def decisions(self) -> tuple[Decision, ...]:
        """What an architecture fixes."""

    @property
    def nested(self) -> bool:
        """Whether it is one decision whose options contain each other: `All` answers for every one in one pass."""
        return False

    @property
    def relaxation(self) -> Relaxation | None:
        """How its options are mixed; None where they cannot be."""
        return None

    @abstractmethod
    def supernet(self, shape: TaskShape, repeats: int = 1) -> Supernet:
        """The shared weights of all architectures, on the default device."""

    @abstractmethod
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        """The network of one architecture as a plain module: [batch, ...] -> [batch, outputs]."""

    def check(self, shape: TaskShape) -> None:
        """Raises when the space has no networks for such inputs; by default, where these are several."""
        if shape.parts:
            raise PolyarchError(
                f"the networks of the space {self.name!r} take one input, and this data has {len(shape.parts.names)} "
                f"({shape.parts.words}); give them to a module of your own, or put them side by side in one array"
            )

    def random(self) -> Distribution:
        """What random architectures are drawn from where nothing is believed yet; by default every one is as likely."""
        return uniform(self.decisions)

    @property
    def listed_only(self) -> bool:
        """Whether there are networks for what `random` draws alone, so that no other architecture may be run."""
        return False

    @property
    def has_dropout(self) -> bool:
        """Whether its networks have dropout that predictions draw as well, so that every pass is another member."""
        return False

    def format(self, choices: Sequence[int]) -> str:
        """The text of an architecture; `parse` reads it back."""
        return ",".join(f"{d.name}={d.options[c]}" for d, c in zip(self.decisions, choices, strict=True))

    def parse(self, text: str) -> Architecture:
        """The architecture that a text names."""
        parts = [part for part in text.replace(" ", "").split(",") if part]
        given = dict(part.split("=", 1) for part in parts if "=" in part)
        if given and len(given) < len(parts):
            raise PolyarchError(f"architecture {text!r} is not of the form NAME=OPTION,..., with each name once")
        names = [d.name for d in self.decisions]
        for name in given:
            if name not in names:
                raise unknown("decision", name, names)
        missing = [name for name in names if name not in given]
        if missing:
            raise PolyarchError(f"architecture {text!r} says nothing of {', '.join(missing)}; write NAME=OPTION,...")
        choices = []
        for decision in self.decisions:
            if given[decision.name] not in decision.options:
                raise unknown(f"option of {decision.name}", given[decision.name], decision.options)
            choices.append(decision.options.index(given[decision.name]))
        return self.architecture(choices)

    def architecture(self, choices: Sequence[int]) -> Architecture:
        """The architecture with these option numbers."""
        return Architecture(self.format(choices), tuple(int(c) for c in choices))

    def decode(self, choices: Tensor) -> list[Architecture]:
        """Architectures of choices [n, decisions]."""
        return [self.architecture(row) for row in choices.tolist()]

    def count(self) -> int:
        """How many architectures there are."""
        total = 1
        for decision in self.decisions:
            total *= len(decision)
        return total

    def evaluated(self) -> Space:
        """The space whose `build` gives the network to train and use; another where a search has a form of its own."""
        return self

    def cost(self, architecture: Architecture, shape: TaskShape) -> Cost:
        """Parameters and multiply-accumulates of the network to train, computed without memory for its weights."""
        return cost_of(lambda: self.evaluated().build(architecture, shape), shape)

    def canonical(self, architecture: Architecture) -> str:
        """A text that is the same for architectures that are the same network, differently written."""
        return architecture.text

    def key(self, architecture: Architecture) -> str:
        """What names an architecture in a table of ground truth; its text, unless a benchmark has another name."""
        return architecture.text

    def settings(self) -> dict[str, Any]:
        """The fields as a plain dictionary."""
        return dict(plain(self))


def relaxation_of(space: Space) -> Relaxation:
    """The relaxation that a space must have here."""
    if space.relaxation is None:
        raise PolyarchError(f"the options of the space {space.name!r} cannot be mixed: it has no relaxation")
    return space.relaxation
