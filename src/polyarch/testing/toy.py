"""The smallest complete space and method: a line whose slope and shift are chosen, with a posterior by enumeration.

Everything a space and a method must have is here, and little else; docs/skeletons has commented ones to copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch import data, distributed
from polyarch.architecture import Architecture, Decision
from polyarch.core import Feed, Info, Meaning, Method, Problem, State, gradients
from polyarch.data.task import Task, TaskShape
from polyarch.distributions.categorical import Categorical, masked
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.views import Dense, Sparse, View
from polyarch.streams import Streams
from polyarch.training.optimisers import momentum_buffers, sgd

SLOPES, SHIFTS = (-1.0, 0.0, 1.0), (0.0, 0.5)


@dataclass(frozen=True, kw_only=True)
class Lines(Space):
    """y = slope x + shift + offset: slope and shift are chosen, the offset is learnt."""

    name: ClassVar[str] = "lines"

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Two, with three and two options."""
        return (Decision("slope", tuple(map(str, SLOPES))), Decision("shift", tuple(map(str, SHIFTS))))

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> LinesSupernet:
        return LinesSupernet(self, shape, repeats)

    @override
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        slope, shift = architecture.choices
        return Line(SLOPES[slope], SHIFTS[shift])


class Line(nn.Module):
    """One member: [batch, 1] -> [batch, 1]."""

    def __init__(self, slope: float, shift: float) -> None:
        """Fixes what is chosen."""
        super().__init__()
        self.slope, self.shift = slope, shift
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Slope x + shift + offset."""
        return self.slope * x + self.shift + self.offset


class LinesSupernet(Supernet):
    """All lines share the offset."""

    views: frozenset[type] = frozenset({Sparse, Dense})

    def __init__(self, space: Lines, shape: TaskShape, repeats: int) -> None:
        """One offset per repeat."""
        super().__init__()
        self.space, self.shape, self.repeats = space, shape, repeats
        self.offset = nn.Parameter(torch.zeros(repeats))

    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        """Draws the offsets."""
        with torch.no_grad():
            self.offset.copy_(torch.stack([torch.randn((), generator=g) for g in generators]))

    def forward(self, x: Tensor, view: View) -> Tensor:
        """[repeats, batch, 1] -> [repeats, batch, 1]."""
        assert isinstance(view, Sparse | Dense)
        choices = torch.as_tensor(view.choices, device=x.device).expand(self.repeats, 2)
        slope, shift = choices[:, 0] - 1, choices[:, 1] / 2  # SLOPES and SHIFTS, without a copy from the host
        return slope[:, None, None] * x + (shift + self.offset)[:, None, None]

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        return {"offset": self.offset[repeat]}


@dataclass(frozen=True, kw_only=True)
class EnumeratedElbo(Method):
    """Gradient ascent on the exact ELBO, all architectures enumerated; its belief must become the posterior."""

    name: ClassVar[str] = "enumerated-elbo"
    meaning: ClassVar[Meaning] = Meaning("posterior", "A variational posterior, exact where the weights stand still.")

    lr: float = 0.05
    """Learning rate of weights and belief alike."""
    noise: float = 0.0
    """Standard deviation of noise added to the belief's gradient: a draw for the streams to be checked on."""

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        return {"lr": self.lr}

    @override
    def draw(self, problem: Problem, streams: Streams) -> dict[str, Tensor]:
        return {"noise": torch.randn(2, len(SLOPES), generator=streams["noise"])}

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        problem.supernet.reset_parameters([s["init"] for s in streams])
        logits = torch.zeros(problem.repeats, 2, len(SLOPES), device=problem.device)
        state = State.of(problem.supernet, {"logits": logits.requires_grad_()})
        state.optimiser = momentum_buffers(weights=state.weights, belief=state.belief)
        return state

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """Shift has an option less than slope."""
        return Categorical(space.decisions, masked(belief["logits"], space.decisions))

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of gradient ascent on the ELBO divided by N."""
        [batch] = feed.batches["train"]
        fits = (
            distributed.mean(log_likelihoods(problem, batch.x, batch.y)) * problem.train_size
        )  # [repeats, architectures]
        belief = self.distribution(problem.space, state.belief)
        probs = belief.log_prob(every_choice(problem.space, fits.device).expand(problem.repeats, -1, -1)).exp()
        bound = (probs * fits).sum(-1) - belief.kl(problem.prior)
        moving = {**state.weights, **state.belief}
        found = gradients(-bound / problem.train_size, list(moving.values()))
        found[-1] += self.noise * feed.draws["noise"]
        momenta = list(state.optimiser.values())
        sgd(list(moving.values()), found, momenta, lr=feed.schedule["lr"], momentum=0.5)
        examples = batch.size * fits.shape[-1]
        return Info({"elbo": bound.detach()}, forward=examples, backward=examples)

    @torch.no_grad()
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The ELBO, and the mixture's log-likelihood."""
        examples = problem.data[split]
        x, y = examples.x.expand(problem.repeats, -1, -1), examples.y.expand(problem.repeats, -1)
        fits = log_likelihoods(problem, x, y).double()
        belief = self.distribution(problem.space, state.belief)
        weights = belief.log_prob(every_choice(problem.space, y.device).expand(problem.repeats, -1, -1)).double()
        objective = (weights.exp() * fits.mean(-1)).sum(-1) - belief.kl(problem.prior) / problem.train_size
        return {"objective": objective, "log_likelihood": (weights[..., None] + fits).logsumexp(1).mean(-1)}


def every_choice(space: Space, device: torch.device | str = "cpu") -> Tensor:
    """All choices of a small space: [architectures, decisions]."""
    return torch.cartesian_prod(*(torch.arange(len(d), device=device) for d in space.decisions))


def log_likelihoods(problem: Problem, x: Tensor, y: Tensor) -> Tensor:
    """Log p(y_n | x_n, architecture): [repeats, architectures, batch]."""
    outputs = [problem.supernet(x, Dense(c.expand(problem.repeats, -1))) for c in every_choice(problem.space, y.device)]
    return problem.likelihood.log_likelihood(torch.stack(outputs, 1), y.unsqueeze(1))


def toy_task(folder: Path, examples: int = 40) -> Task:
    """A noisy line whose inputs have mean 0 and deviation 1, so that the two decisions have independent posteriors."""
    random = np.random.default_rng(0)
    half = random.normal(size=examples // 2)
    x = np.concatenate([half, -half]).astype(np.float32)
    y = (0.6 * x + 0.3 + 0.5 * random.normal(size=examples)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "line.npz", x=x[:, None] / x.std(), y=y)
    return data.load(folder / "line.npz", kind="regression", standardise=False, select=0, test=0)
