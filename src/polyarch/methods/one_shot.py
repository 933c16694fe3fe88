"""One-shot supernets: shared weights trained under sampled architectures, with no distribution to be learnt.

A step draws P paths. Each starts from the shared weights w and takes S steps of SGD on the same batch; then w moves
towards the mean of where they ended, by the outer rate. The SoTL thesis's methods (section 3.2) are cases of this:

    single-path          P = 1, S = 1 (SPOS; random sampling with weight sharing)
    fairnas              S = 1, and P paths that use every option of every decision exactly once
    multipath            P = 4, S = 1
    reptile              P = 1, S = 4 (Algorithm 4)
    metaprox             P = 1, S = 4, and lambda / 2 |w - start|^2 is added to the loss of each path
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.core import LAST, Batch, EarlyStopping, Feed, Info, Meaning, Method, Problem, State, gradients
from polyarch.distributions.categorical import Categorical, gumbel_noise
from polyarch.errors import PolyarchError
from polyarch.settings import Above, AtMost, NonNegative, Positive
from polyarch.spaces.base import Space
from polyarch.spaces.views import Dense
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.capture import Form
from polyarch.training.evaluation import best_architecture, drawn_within, evaluate_mean
from polyarch.training.optimisers import DARTS_WEIGHTS, Sgd, momentum_buffers
from polyarch.training.snapshots import Snapshot

COMPARED = 20
"""Architectures among which the selected one is the best; `polyarch rank` and `select` compare more, and better."""
EVALUATED = 4
"""Architectures whose mean an evaluation reports: the same ones every time."""


@dataclass(frozen=True, kw_only=True)
class OneShot(Method):
    """Trains shared weights; belief is the prior that architectures are drawn from, and stays it."""

    name: ClassVar[str] = "one-shot"
    evaluates: ClassVar[Mapping[str, str]] = {"": f"mean of {EVALUATED} drawn"}
    meaning: ClassVar[Meaning] = Meaning("fixed", "None is learnt: it is the prior that architectures are drawn from.")

    epochs: Positive = 100
    """Passes over the training data (thesis, Table B.1)."""
    batch_size: Positive = 64
    """Examples of a training batch, over all ranks (DARTS)."""
    stopping: EarlyStopping = LAST
    """As for every method; this search keeps the last state."""
    weights: Sgd = replace(DARTS_WEIGHTS, weight_decay=5e-4)
    """How the shared weights are trained: as in DARTS, but for L2 (Table B.1 for NAS-Bench-201; 3e-4 elsewhere)."""
    augment: Augment = Augment()
    """How images are changed at random (DARTS: crop 4, flip)."""
    paths: Positive = 1
    """P, the architectures of a step; with `sampling=fair`, as many as a decision has options (MultiPath: 4)."""
    sampling: Literal["prior", "fair"] = "prior"
    """Draw paths independently from the prior, or so that together they use every option once (FairNAS)."""
    inner_steps: Positive = 1
    """S, the steps that each path takes on one batch (Reptile, Metaprox: 4)."""
    proximal: NonNegative = 0.0
    """lambda, what holds a path near its start (Metaprox: 10)."""
    outer_lr: Annotated[float, Above(0), AtMost(1)] = 1.0
    """How far w moves towards the mean of the paths' ends (the thesis's example: 1)."""
    form: Form = "auto"
    """Run only the operations of a path (`sparse`), or all of them with weights 0 and 1, which a CUDA device can
    capture (`dense`); both learn the same. `auto` is dense where networks run fused."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling == "fair" and self.paths != 1:
            raise PolyarchError(f"sampling=fair has as many paths as there are options; leave out paths={self.paths}")

    def check(self, space: Space) -> None:
        """Fairness needs paths that use every option once."""
        if self.sampling == "fair":
            fair_paths(space, torch.zeros(1, *_shape(space)))

    def prior(self, space: Space) -> str | None:
        """It is what paths are drawn from, unless all options get their turn."""
        return "uniform" if self.sampling == "prior" else None

    @override
    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        """How images are changed, and the noise that paths are made from inside the step."""
        shape, generator = _shape(problem.space), streams["architecture"]
        if self.sampling == "fair":
            noise = {"uniform": torch.rand(shape, generator=generator).clamp_min(torch.finfo(torch.float32).tiny)}
        else:
            noise = {"gumbel": gumbel_noise((self.paths, *shape), generator)}
        return self.augment.draw(problem, self.feeds(problem), streams) | noise

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        return {"weights.lr": self.weights.lr_at(epoch, self.epochs)}

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights; the prior."""
        self.augment.check(problem.supernet.shape.input)
        problem.supernet.reset_parameters([s["init"] for s in streams])
        logits = problem.prior.log_probs.expand(problem.repeats, -1, -1).clone()
        state = State.of(problem.supernet, {"logits": logits})
        state.optimiser = momentum_buffers(weights=state.weights)
        return state

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """The prior."""
        return Categorical(space.decisions, belief["logits"])

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """Every path from w, then w towards their mean."""
        problem.supernet.train()
        batch = self.augment.batch(problem, feed.batches["train"][0])
        choices = self._paths(problem, state, feed)
        paths = choices.shape[1]
        examples = batch.size * paths * self.inner_steps
        if paths == 1 and self.outer_lr == 1:  # where it ends is where w goes
            fit = self._along(problem, state, feed, batch, choices[:, 0])
            return Info({"log_likelihood": -fit}, forward=examples, backward=examples)
        moved = [*state.weights.values(), *state.optimiser.values()]
        start = Snapshot(moved)
        ends = [torch.zeros_like(value, requires_grad=False) for value in moved]
        fits = []
        for k in range(paths):
            start.restore()
            fits.append(self._along(problem, state, feed, batch, choices[:, k]))
            torch._foreach_add_(ends, [value.detach() for value in moved], alpha=1 / paths)
        weights = len(state.weights)
        with torch.no_grad():
            for before, value, end in zip(start.values[:weights], moved[:weights], ends[:weights], strict=True):
                value.copy_(end if self.outer_lr == 1 else before.lerp(end, self.outer_lr))
            torch._foreach_copy_(moved[weights:], ends[weights:])
        return Info({"log_likelihood": -torch.stack(fits).mean(0)}, forward=examples, backward=examples)

    def _paths(self, problem: Problem, state: State, feed: Feed) -> Tensor:
        """Choices [repeats, paths, decisions]."""
        if self.sampling == "fair":
            return fair_paths(problem.space, feed.draws["uniform"])
        return (state.belief["logits"].unsqueeze(1) + feed.draws["gumbel"]).argmax(-1)

    def _along(self, problem: Problem, state: State, feed: Feed, batch: Batch, choices: Tensor) -> Tensor:
        """S steps on one path; gives the loss before the first."""
        weights = list(state.weights.values())
        start = Snapshot(weights) if self.proximal and self.inner_steps > 1 else None
        view = problem.supernet.quickest(choices) if self.form != "dense" else Dense(choices)
        first = None
        for _ in range(self.inner_steps):
            fit = -problem.log_likelihood(problem.supernet(batch.x, view), batch)
            found = gradients(fit, weights)
            if start is not None:
                pulls = zip(found, weights, start.values, strict=True)
                found = [gradient + self.proximal * (w.detach() - before) for gradient, w, before in pulls]
            self.weights.step(state, found, feed.schedule["weights.lr"])
            first = fit.detach() if first is None else first
        assert first is not None
        return first

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The mean over a few architectures of the prior, with the shared weights; always the same ones."""
        return evaluate_mean(problem, problem.prior.sample(EVALUATED, torch.Generator().manual_seed(0)), split)

    def preferred(self, problem: Problem, state: State) -> Tensor:
        """Of a few architectures of the prior, the one that fits validation data best with the shared weights."""
        return best_architecture(problem, drawn_within(problem, problem.prior, COMPARED, seed=1))


@runtime_checkable
class HasFairPaths(Protocol):
    """A space that has fair paths of its own."""

    def fair_paths(self, uniform: Tensor) -> Tensor:
        """See the function."""


def fair_paths(space: Space, uniform: Tensor) -> Tensor:
    """Architectures that together use every option exactly once (FairNAS): of every decision, or as a space has it.

    Args:
        space: whose architectures they are.
        uniform: random numbers [n, decisions, longest], of which each decision's order is made.

    Returns:
        Choices [n, options, decisions].
    """
    if isinstance(space, HasFairPaths):
        return space.fair_paths(uniform)
    if len({len(decision) for decision in space.decisions}) > 1:
        raise PolyarchError(
            f"fair paths use every option once, and the decisions of the space {space.name!r} have different "
            "numbers of options; use single-path or multipath"
        )
    return uniform.argsort(-1).transpose(1, 2)


def _shape(space: Space) -> tuple[int, int]:
    """[decisions, longest]."""
    return len(space.decisions), max(len(decision) for decision in space.decisions)
