"""A method to copy: weights and belief learnt together from sampled architectures, on any space at all.

It climbs the bound E_q[log p(Y | X, a)] - KL(q || prior), divided by N. Weights follow its gradient at the sampled
architectures, belief the score-function gradient, each sample compared with the mean of the samples.

`CHANGE` marks what is yours to write. Everything else every method needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.core import Feed, Info, Meaning, Method, Problem, State, gradients
from polyarch.distributions.categorical import Categorical, gumbel_noise, pad
from polyarch.settings import AtLeast
from polyarch.spaces.base import Space
from polyarch.spaces.views import Dense
from polyarch.streams import Streams
from polyarch.training.optimisers import Adam, Sgd, adam_buffers, momentum_buffers


@dataclass(frozen=True, kw_only=True)
class SampledElbo(Method):
    """Weights and belief from a few sampled architectures per step."""

    name: ClassVar[str] = "sampled-elbo"  # CHANGE
    meaning: ClassVar[Meaning] = Meaning(
        "posterior", "A variational posterior given the weights as they are learnt, from training data."
    )  # CHANGE: what belief means, for the report and `polyarch show`

    # CHANGE: a field is a setting, its annotation its bounds, the text under it its help; name the source of every
    # default. `Method` already has epochs, batch_size, evaluation and stopping.
    samples: Annotated[int, AtLeast(2)] = 4  # one sample has nothing to be compared with
    """Architectures per step."""
    weights: Sgd = Sgd(lr=0.1, momentum=0.5)
    """How weights are trained; on the command line `weights.lr` and so on."""
    arch: Adam = Adam(lr=0.1, betas=(0.5, 0.999))
    """How belief is trained."""

    def schedule(self, epoch: int) -> dict[str, float]:
        """CHANGE: learning rates of an epoch, and what else changes with it; a step reads them from its feed."""
        return {"weights.lr": self.weights.lr_at(epoch, self.epochs), "arch.lr": self.arch.lr}

    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        """CHANGE: all randomness of one repeat's next step, in fixed shapes. A step draws nothing itself."""
        return {"noise": gumbel(problem, self.samples, streams["architecture"])}

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """CHANGE: first weights, first belief, and all optimiser state; each with a leading axis of repeats."""
        problem.supernet.reset_parameters([s["init"] for s in streams])
        logits = pad([torch.zeros(len(d), device=problem.device) for d in problem.space.decisions])
        logits = logits.repeat(problem.repeats, 1, 1).requires_grad_()
        state = State.of(problem.supernet, {"logits": logits})
        state.optimiser = {**momentum_buffers(weights=state.weights), **adam_buffers(belief=state.belief)}
        return state

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """CHANGE: what the tensors of `State.belief` stand for, with a leading axis of repeats."""
        return Categorical(space.decisions, belief["logits"])

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """CHANGE: one update, in place; no `.item()`, no `if` on a tensor, no new shapes."""
        [batch] = feed.batches["train"]
        problem.supernet.train()
        belief = self.distribution(problem.space, state.belief)
        choices = chosen(belief, feed.draws["noise"])
        outputs = [problem.supernet(batch.x, Dense(choices[:, k])) for k in range(self.samples)]
        # Over examples, average with `distributed.mean` and nothing else: that is what makes many ranks agree with one.
        fit = distributed.mean(problem.likelihood.log_likelihood(torch.stack(outputs, 1), batch.y.unsqueeze(1)))
        reward = fit.detach() - fit.detach().mean(1, keepdim=True)  # [repeats, samples]
        score = (belief.log_prob(choices) * reward).sum(1) / (self.samples - 1)
        kl = belief.kl(problem.prior) / problem.train_size
        weights, belief_logits = list(state.weights.values()), list(state.belief.values())
        found = gradients(-(fit.mean(1) + score - kl), [*weights, *belief_logits])
        self.weights.step(state, found[: len(weights)], feed.schedule["weights.lr"])
        self.arch.step(state, belief_logits, found[len(weights) :], feed.schedule["arch.lr"])
        examples = self.samples * batch.size  # passed forward and backward, over all ranks
        return Info({"objective": (fit.mean(1) - kl).detach()}, forward=examples, backward=examples)

    @torch.no_grad()
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """CHANGE: `objective` decides which state is kept; the others are of the mixture here. Draws nothing new."""
        problem.supernet.eval()
        belief, n, count = self.distribution(problem.space, state.belief), 16, len(problem.data[split])
        noise = gumbel(problem, n, torch.Generator().manual_seed(0)).to(belief.logits.device)  # the same every time
        choices = chosen(belief, noise.expand(problem.repeats, *noise.shape))
        weights = torch.full((n, problem.repeats), 1 / n, device=choices.device)
        expected, mixture, measured = torch.zeros(3, problem.repeats, dtype=torch.float64, device=choices.device)
        for batch in problem.passes(split):
            outputs = torch.stack([problem.supernet(batch.x, Dense(choices[:, k])) for k in range(n)])
            fit = problem.likelihood.log_likelihood(outputs, batch.y).double()  # [n, repeats, batch]
            expected += fit.mean(0).sum(-1)
            mixture += (fit.logsumexp(0) - math.log(n)).sum(-1)
            measured += problem.likelihood.metric_values(problem.likelihood.mixture(outputs, weights), batch.y).sum(-1)
        return {
            "objective": expected / count - belief.kl(problem.prior) / problem.train_size,
            "log_likelihood": mixture / count,
            problem.likelihood.metric: measured / count,
        }


def gumbel(problem: Problem, n: int, generator: torch.Generator) -> Tensor:
    """Noise [n, decisions, longest] that turns logits into samples."""
    decisions = problem.space.decisions
    return gumbel_noise((n, len(decisions), max(len(d) for d in decisions)), generator)


def chosen(belief: Categorical, noise: Tensor) -> Tensor:
    """Samples of belief from noise [repeats, n, decisions, longest]: choices [repeats, n, decisions]."""
    return (belief.logits.detach().unsqueeze(1) + noise).argmax(-1)
