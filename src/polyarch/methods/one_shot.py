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
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.core import Batch, Feed, FeedSpec, Info, Problem, State, gradients
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.methods.sharing import WeightSharing, loss
from polyarch.settings import at_least, positive
from polyarch.spaces.base import Space
from polyarch.spaces.views import Dense
from polyarch.streams import Streams
from polyarch.training.judging import best_judged, judged_on_average
from polyarch.training.optimisers import momentum_buffers
from polyarch.training.snapshots import Snapshot

COMPARED = 20
"""Architectures among which the selected one is the best; `polyarch rank` and `select` compare more, and better."""
JUDGED = 4
"""Architectures whose mean an evaluation reports: the same ones every time."""


@dataclass(frozen=True, kw_only=True)
class OneShot(WeightSharing):
    """Trains shared weights; belief is the prior that architectures are drawn from, and stays it."""

    name: ClassVar[str] = "one-shot"

    epochs: int = 100
    """Passes over the training data (thesis, Table B.1)."""
    weight_decay: float = 5e-4
    """L2, on every weight (Table B.1 for NAS-Bench-201; 3e-4 elsewhere)."""
    paths: int = 1
    """P, the architectures of a step; with `sampling=fair`, as many as a decision has options (MultiPath: 4)."""
    sampling: Literal["prior", "fair"] = "prior"
    """Draw paths independently from the prior, or so that together they use every option once (FairNAS)."""
    inner_steps: int = 1
    """S, the steps that each path takes on one batch (Reptile, Metaprox: 4)."""
    proximal: float = 0.0
    """lambda, what holds a path near its start (Metaprox: 10)."""
    outer_rate: float = 1.0
    """How far w moves towards the mean of the paths' ends (the thesis's example: 1)."""
    form: Literal["sparse", "dense"] = "sparse"
    """Run only the operations of a path, or all of them with weights 0 and 1, which a CUDA device can capture. Both
    learn the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "paths", "inner_steps")
        at_least("proximal", self.proximal, 0)
        if not 0 < self.outer_rate <= 1:
            raise PolyarchError(f"outer_rate must be above 0 and at most 1, not {self.outer_rate}")
        if self.sampling == "fair" and self.paths != 1:
            raise PolyarchError(f"sampling=fair has as many paths as there are options; leave out paths={self.paths}")

    def check(self, space: Space) -> None:
        """Fairness needs paths that use every option once."""
        if self.sampling == "fair":
            space.fair_paths(torch.zeros(1, *_shape(space)))

    def takes_prior(self, space: Space) -> bool:
        """It is what paths are drawn from, unless all options get their turn."""
        return self.sampling == "prior"

    def capturable(self) -> OneShot:
        """The dense form."""
        return self if self.form == "dense" else replace(self, form="dense")

    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        """A training batch."""
        return {"train": FeedSpec("train", self.size(problem, "train"))}

    def draw(self, problem: Problem, streams: Streams) -> dict[str, Tensor]:
        """How images are changed, and uniform numbers that paths are made from inside the step."""
        several = () if self.sampling == "fair" else (self.paths,)
        shape = (*several, *_shape(problem.space))
        found = torch.rand(shape, generator=streams["architecture"]).clamp_min(torch.finfo(torch.float32).tiny)
        return super().draw(problem, streams) | {"uniform": found}

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights; the prior."""
        self.start(problem, streams)
        logits = problem.prior.log_probs.expand(problem.repeats, -1, -1).clone()
        state = State.of(problem.supernet, {"logits": logits})
        state.optimiser = momentum_buffers(weights=state.weights)
        return state

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """The prior."""
        return Categorical(space.decisions, belief["logits"])

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """Every path from w, then w towards their mean."""
        batch = self.batch(problem, feed, "train")
        problem.supernet.train()
        choices = self._paths(problem, state, feed)
        paths = choices.shape[1]
        examples = batch.y.shape[-1] * distributed.size() * paths * self.inner_steps
        if paths == 1 and self.outer_rate == 1:  # where it ends is where w goes
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
                value.copy_(end if self.outer_rate == 1 else before.lerp(end, self.outer_rate))
            torch._foreach_copy_(moved[weights:], ends[weights:])
        return Info({"log_likelihood": -torch.stack(fits).mean(0)}, forward=examples, backward=examples)

    def _paths(self, problem: Problem, state: State, feed: Feed) -> Tensor:
        """Choices [repeats, paths, decisions]."""
        uniform = feed.draws["uniform"]
        if self.sampling == "fair":
            return problem.space.fair_paths(uniform)
        gumbel = -(-uniform.log()).log()
        return (state.belief["logits"].unsqueeze(1) + gumbel).argmax(-1)

    def _along(self, problem: Problem, state: State, feed: Feed, batch: Batch, choices: Tensor) -> Tensor:
        """S steps on one path; gives the loss before the first."""
        weights = list(state.weights.values())
        start = Snapshot(weights) if self.proximal and self.inner_steps > 1 else None
        view = problem.supernet.quickest(choices) if self.form == "sparse" else Dense(choices)
        first = None
        for _ in range(self.inner_steps):
            fit = loss(problem, batch, view)
            found = gradients(fit, weights)
            if start is not None:
                pulls = zip(found, weights, start.values, strict=True)
                found = [gradient + self.proximal * (w.detach() - before) for gradient, w, before in pulls]
            self.move_weights(state, found, feed.rates["weights"])
            first = fit.detach() if first is None else first
        assert first is not None
        return first

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The mean over a few architectures of the prior, with the shared weights; always the same ones."""
        return judged_on_average(problem, problem.prior.sample(JUDGED, torch.Generator().manual_seed(0)), split)

    def preferred(self, problem: Problem, state: State) -> Tensor:
        """Of a few architectures of the prior, the one that fits validation data best with the shared weights."""
        return best_judged(problem, problem.prior.sample(COMPARED, torch.Generator().manual_seed(1)))

    def watch(self, problem: Problem, state: State) -> dict[str, Tensor]:
        """Nothing: the mode of a prior tells nothing of a search."""
        return {}


def _shape(space: Space) -> tuple[int, int]:
    """[decisions, longest]."""
    return len(space.decisions), max(len(decision) for decision in space.decisions)
