"""PARSEC: a distribution over architectures by importance-weighted empirical Bayes (seed paper 3, Algorithm 1).

p(alpha | pi) is a product of categoricals. pi maximises the marginal likelihood p(y | X, v, pi), Eq. 3; with K samples
alpha_k ~ p(alpha | pi) and weights omega_k = p(y | X, v, alpha_k) / sum_j p(y | X, v, alpha_j) (Eq. 8), both gradients
are weighted sums: of log p(alpha_k | pi) for pi, and of log p(y | X, v, alpha_k) for the shared weights v.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.core import Batch, Feed, Info, Problem, State, gradients
from polyarch.distributions.categorical import Categorical, masked
from polyarch.errors import PolyarchError
from polyarch.methods.sharing import WeightSharing
from polyarch.settings import at_least, positive
from polyarch.spaces.base import Hard, Space
from polyarch.streams import Streams
from polyarch.training.judging import judged
from polyarch.training.optimisers import adam, adam_buffers, momentum_buffers


@dataclass(frozen=True, kw_only=True)
class Parsec(WeightSharing):
    """Learns weights on training data, and belief by how well sampled architectures fit validation data."""

    name: ClassVar[str] = "parsec"

    epochs: int = 100
    """Passes over the training data (section 4)."""
    samples: int = 16
    """K, the architectures of a step (section 4; 8 was tried too)."""
    temperature: float = 1.0
    """Divides log-likelihoods of the search batch before they become weights: 1 is the whole batch's likelihood, as
    printed, and nearly picks a winner; `batch_size` is the mean's, and nearly weighs all alike."""
    form: Literal["sparse", "dense"] = "sparse"
    """Run only the operations of a sample, with the memory of one network, or all of them with weights 0 and 1, which
    a CUDA device can capture. Both learn the same."""
    belief_rate: float = 0.02
    """Learning rate of Adam, betas 0.5 and 0.999, on pi (section 4)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "samples")
        at_least("belief_rate", self.belief_rate, 0)
        if not self.temperature > 0:
            raise PolyarchError(f"temperature must be positive, not {self.temperature}")

    def draw(self, problem: Problem, streams: Streams) -> dict[str, Tensor]:
        """Gumbel noise, from which belief makes K samples inside the step."""
        shape = (self.samples, *problem.prior.logits.shape)
        uniform = torch.rand(shape, generator=streams["architecture"]).clamp_min(torch.finfo(torch.float32).tiny)
        return super().draw(problem, streams) | {"gumbel": -(-uniform.log()).log()}

    def rates(self, epoch: int) -> dict[str, float]:
        """See `Method.rates`."""
        return super().rates(epoch) | {"belief": self.belief_rate}

    def capturable(self) -> Parsec:
        """The dense form: which operations the sparse one runs is read back in every step."""
        return self if self.form == "dense" else replace(self, form="dense")

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights; pi is uniform."""
        self.start(problem, streams)
        logits = torch.zeros(problem.repeats, *problem.prior.logits.shape, device=problem.prior.logits.device)
        state = State.of(problem.supernet, {"logits": logits.requires_grad_()})
        state.optimiser = {**momentum_buffers(weights=state.weights), **adam_buffers(belief=state.belief)}
        return state

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """p(alpha | pi)."""
        return Categorical(space.decisions, masked(belief["logits"], space.decisions))

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """Algorithm 1: the same K samples and their weights omega move both."""
        train, search = self.batch(problem, feed, "train"), self.batch(problem, feed, "search")
        problem.supernet.train()
        belief = self.distribution(problem.space, state.belief)
        choices = (belief.log_probs.detach().unsqueeze(1) + feed.draws["gumbel"]).argmax(-1)  # [repeats, K, decisions]
        views = [Hard.read(rows) if self.form == "sparse" else Hard(rows) for rows in choices.unbind(1)]

        def fit(batch: Batch, k: int) -> Tensor:
            """Mean log-likelihood [repeats] of a batch under the k-th sample."""
            outputs = problem.supernet(batch.x, views[k])
            return distributed.mean(problem.likelihood.log_likelihood(outputs, batch.y))

        with torch.no_grad():
            examples = search.y.shape[-1] * distributed.size()
            summed = torch.stack([fit(search, k) for k in range(self.samples)], -1) * examples
            omega = importance_weights(summed, self.temperature)

        weights = list(state.weights.values())
        found = [torch.zeros_like(weight) for weight in weights]
        train_fit = torch.zeros_like(omega[:, 0])
        for k in range(self.samples):  # one sample's activations in memory at a time
            weighted = omega[:, k] * fit(train, k)
            torch._foreach_add_(found, gradients(-weighted, weights))
            train_fit += weighted.detach()
        self.move_weights(state, found, feed.rates["weights"])

        # The prior speaks once for all examples that judge architectures, so here for the batch's share of them.
        prior = belief.expected(problem.prior.log_probs) * examples / len(problem.data["search"])
        score = (omega * belief.log_prob(choices)).sum(-1) + prior
        logits = list(state.belief.values())
        adam(logits, gradients(-score, logits), state.optimiser, "belief", rate=feed.rates["belief"])
        metrics = {
            "log_likelihood": train_fit,
            "search_log_likelihood": (omega * summed).sum(-1) / examples,
            "effective_samples": effective_samples(omega),
        }
        passed = train.y.shape[-1] * distributed.size() * self.samples
        return Info(metrics, forward=passed + examples * self.samples, backward=passed)

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The mode's mean log-likelihood and everyday measure, with the shared weights."""
        return judged(problem, Hard(self.distribution(problem.space, state.belief).mode()), split)


def importance_weights(log_likelihoods: Tensor, temperature: float) -> Tensor:
    """Eq. 8: omega [..., K] of log-likelihoods [..., K], each summed over a batch; never the likelihoods themselves."""
    return (log_likelihoods / temperature).softmax(-1)


def effective_samples(omega: Tensor) -> Tensor:
    """How many equal weights would be worth as much as omega [..., K]: from 1, a winner, to K."""
    return 1 / omega.square().sum(-1)
