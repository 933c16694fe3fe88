"""Few labels, many examples without (Deng et al. 2020, section 5.3): any two architectures should say the same.

    loss = mean over labelled examples of -log p(y | x', a')
         + w mean over all examples and classes of (f(x', a') - f(x'', a''))^2

f are logits, a' and a'' two architectures that are drawn for every example, x' and x'' its image changed at random
twice. No gradient goes through the second pass. w = consistency * exp(-5 (1 - t)^2) rises step by step, where t is the
part done of the first half of all steps, and then 1. Batch norm is in training mode in both passes, and its running
statistics move in both.

With one architecture and dropout (settings of the space `wiring`) this is the Pi-model of Laine and Aila: the passes
differ by dropout and changed images alone. `consistency=0` learns from labels alone, by as many steps.

What differs from the released code: there, labels are drawn without regard to classes; labelled examples are shuffled
whenever they begin again, here once per epoch; and for learning from labels alone all others still pass through the
network, with a weight of 0, and so into the statistics of batch norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch import distributed
from polyarch.core import Feed, FeedSpec, Info, Problem, State, gradients
from polyarch.errors import PolyarchError
from polyarch.methods.drawn import DrawnArchitectures
from polyarch.settings import AtLeast, NonNegative, Positive
from polyarch.spaces.views import PerExample
from polyarch.streams import Streams
from polyarch.training.optimisers import Schedule, Sgd
from polyarch.trees import tree_map

STEPS = "consistency.steps"
"""In a state's `optimiser`: how many steps were made, [repeats]."""


@dataclass(frozen=True, kw_only=True)
class SemiSupervised(DrawnArchitectures):
    """Trains shared weights on a few labels and on what architectures should agree about."""

    name: ClassVar[str] = "semi-supervised"

    consistency: NonNegative = 20.0
    """Weight of the squared distance between the logits of two passes, once it has risen; 0 learns from labels alone
    (the paper: 20)."""
    epochs: Positive = 100
    """Passes over the examples without a label (the released code)."""
    batch_size: Annotated[int, AtLeast(2)] = 128
    """Examples per step, over all ranks, half of them labelled (the released code)."""
    weights: Sgd = Sgd(
        lr=0.1, nesterov=True, weight_decay=5e-4, schedule=Schedule(kind="multistep", milestones=(0.4, 0.8), gamma=0.2)
    )
    """How the shared weights are trained (the released code: milestones at epochs 40 and 80)."""

    @override
    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        """A batch of each kind; the first says how long an epoch is, the other begins again until it is over."""
        labelled = self.batch_size // 2
        most = {"unlabelled": self.batch_size - labelled, "train": labelled}
        sizes = {name: min(size, len(problem.data[name])) for name, size in most.items()}
        return {name: FeedSpec(name, size - size % distributed.size()) for name, size in sizes.items()}

    @override
    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        """Architectures and changes of images, for every pass its own."""
        passes = [super(SemiSupervised, self).draw(problem, streams) for _ in range(2 if self.consistency else 1)]
        return {feed: {str(number): own[feed] for number, own in enumerate(passes)} for feed in self.feeds(problem)}

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights; what the space draws from; no step made."""
        if "unlabelled" not in problem.data:
            raise PolyarchError(f"{self.name} needs examples without a label; say how many keep theirs: --set labels=N")
        if PerExample not in problem.supernet.views:
            raise PolyarchError(
                f"networks of the space {problem.space.name!r} run no batch of several; {self.name} needs another space"
            )
        state = super().init(problem, streams, previous)
        state.optimiser[STEPS] = torch.zeros(problem.repeats, dtype=torch.float64, device=problem.device)
        return state

    @override
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step on the log-likelihood of the labelled half, less the weighted distance between two passes."""
        problem.supernet.train()
        labels = feed.batches["train"][0].y
        logits = self._logits(problem, state, feed, 0)
        examples = logits.shape[1] * distributed.size()
        fit = distributed.mean(problem.likelihood.log_likelihood(logits[:, : labels.shape[-1]], labels))
        objective, metrics = fit, {"log_likelihood": fit.detach()}
        if self.consistency:
            with torch.no_grad():
                again = self._logits(problem, state, feed, 1)
            distance = distributed.mean((logits - again).square().mean(-1))
            weight = self.weight(problem, state.optimiser[STEPS]).to(distance.dtype)
            objective = fit - weight * distance
            metrics |= {"distance": distance.detach(), "consistency_weight": weight}
        self.weights.step(state, gradients(-objective, list(state.weights.values())), feed.schedule["weights.lr"])
        state.optimiser[STEPS].add_(1)
        return Info(metrics, forward=examples * (2 if self.consistency else 1), backward=examples)

    def weight(self, problem: Problem, steps: Tensor) -> Tensor:
        """Of the distance, after so many steps; shaped like `steps`."""
        an_epoch = len(problem.data["unlabelled"]) // self.feeds(problem)["unlabelled"].size
        done = (steps / (an_epoch * self.epochs / 2)).clamp(max=1)
        return self.consistency * (-5 * (1 - done).square()).exp()

    def _logits(self, problem: Problem, state: State, feed: Feed, number: int) -> Tensor:
        """What a pass says of the labelled examples, and after them, where they count, of the others.

        Args:
            problem: as for `step`.
            state: as for `step`.
            feed: as for `step`.
            number: of the pass, 0 or 1.

        Returns:
            [repeats, examples, outputs].
        """
        names = ("train", "unlabelled") if self.consistency else ("train",)
        given = [feed.batches[name][0] for name in names]
        batches = [replace(batch, draws=batch.draws[str(number)]) for batch in given]
        inputs = [self.augment.batch(problem, batch).x for batch in batches]
        x = tree_map(lambda *parts: torch.cat(parts, 1), *inputs)
        uniform = torch.cat([distributed.share(batch.draws["uniform"], 1) for batch in batches], 1)
        # Whatever the precision of the pass, squares and their sum are in single.
        return problem.supernet(x, self.view(problem, state, uniform)).float()
