"""PARSEC (Casale et al. 2019): a distribution over architectures by importance-weighted empirical Bayes (Algorithm 1).

p(alpha | pi) is a product of categoricals. pi maximises the marginal likelihood p(y | X, v, pi), Eq. 3; with K samples
alpha_k ~ p(alpha | pi) and weights omega_k = p(y | X, v, alpha_k) / sum_j p(y | X, v, alpha_j) (Eq. 8), both gradients
are weighted sums: of log p(alpha_k | pi) for pi, and of log p(y | X, v, alpha_k) for the shared weights v.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.core import LAST, Batch, EarlyStopping, Feed, FeedSpec, Info, Meaning, Method, Problem, State, gradients
from polyarch.distributions.categorical import Categorical, gumbel_noise, masked
from polyarch.errors import PolyarchError
from polyarch.settings import NonNegative, Positive, PositiveFloat
from polyarch.spaces.base import Space
from polyarch.spaces.views import Dense
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.capture import Form
from polyarch.training.evaluation import collapse_of, evaluate_view
from polyarch.training.optimisers import DARTS_WEIGHTS, Adam, Sgd, adam_buffers, momentum_buffers
from polyarch.training.reach import Published


@dataclass(frozen=True, kw_only=True)
class Parsec(Method):
    """Learns weights on training data, and belief by how well sampled architectures fit validation data."""

    name: ClassVar[str] = "parsec"
    evaluates: ClassVar[Mapping[str, str]] = {"": "mode with shared weights"}
    meaning: ClassVar[Meaning] = Meaning(
        "sampling",
        "A learnt prior that architectures are drawn from. For fixed weights its optimum is one architecture, so that "
        "falling entropy is optimisation and not certainty.",
    )
    published: ClassVar[Published] = Published(lr=0.02, steps=39_000)  # 100 epochs of 25,000 images in batches of 64

    epochs: Positive = 100
    """Passes over the training data (section 4)."""
    batch_size: Positive = 64
    """Examples of a training batch and of a search batch, over all ranks (DARTS)."""
    stopping: EarlyStopping = LAST
    """As for every method; this search keeps the last state."""
    weights: Sgd = DARTS_WEIGHTS
    """How the shared weights are trained (DARTS)."""
    arch: Adam = Adam(lr=0.02, betas=(0.5, 0.999))
    """How pi is trained (section 4)."""
    augment: Augment = Augment()
    """How training and search images are changed at random (DARTS: crop 4, flip)."""
    samples: Positive = 16
    """K, the architectures of a step (section 4; 8 was tried too)."""
    temperature: PositiveFloat = 1.0
    """Divides log-likelihoods of the search batch before they become weights: 1 is the whole batch's likelihood, as
    printed, and nearly picks a winner; `batch_size` is the mean's, and nearly weighs all alike."""
    auxiliary: NonNegative = 0.0
    """Weight of an auxiliary tower's loss in what the weights learn, where networks have one: those of `darts` with
    network=evaluation (section 4.2: the towers of the final network, there 0.4)."""
    form: Form = "auto"
    """Run only the operations of a sample, with the memory of one network (`sparse`), or all of them with weights 0 and
    1, which a CUDA device can capture (`dense`); both learn the same. `auto` is dense where networks run fused."""

    @override
    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        if "search" not in problem.data:
            raise PolyarchError(
                f"{self.name} weighs architectures on validation data; set select (of the data) above 0"
            )
        size = problem.batch_size(self.batch_size, "train", "search")
        return {"train": FeedSpec("train", size), "search": FeedSpec("search", size)}

    @override
    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        """How images are changed, and Gumbel noise, from which belief makes K samples inside the step."""
        noise = gumbel_noise((self.samples, *problem.prior.logits.shape), streams["architecture"])
        return self.augment.draw(problem, self.feeds(problem), streams) | {"gumbel": noise}

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        return {"weights.lr": self.weights.lr_at(epoch, self.epochs), "arch.lr": self.arch.lr}

    def belief_steps(self, problem: Problem) -> int:
        """One for every training batch."""
        return problem.train_size // self.feeds(problem)["train"].size

    def belief_epochs(self) -> int:
        """All."""
        return self.epochs

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights; pi is uniform."""
        self.augment.check(problem.supernet.shape.input)
        problem.supernet.reset_parameters([s["init"] for s in streams])
        logits = torch.zeros(problem.repeats, *problem.prior.logits.shape, device=problem.prior.logits.device)
        state = State.of(problem.supernet, {"logits": logits.requires_grad_()})
        state.optimiser = {**momentum_buffers(weights=state.weights), **adam_buffers(belief=state.belief)}
        return state

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """p(alpha | pi)."""
        return Categorical(space.decisions, masked(belief["logits"], space.decisions))

    @override
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """Algorithm 1: the same K samples and their weights omega move both."""
        problem.supernet.train()
        [train], [search] = feed.batches["train"], feed.batches["search"]
        train, search = self.augment.batch(problem, train), self.augment.batch(problem, search)
        belief = self.distribution(problem.space, state.belief)
        choices = (belief.log_probs.detach().unsqueeze(1) + feed.draws["gumbel"]).argmax(-1)  # [repeats, K, decisions]
        view = problem.supernet.quickest if self.form != "dense" else Dense
        views = [view(rows) for rows in choices.unbind(1)]

        def fits(batch: Batch, k: int) -> list[Tensor]:
            """Mean log-likelihood [repeats] of a batch under the k-th sample, and after it those of its towers."""
            return [problem.log_likelihood(output, batch) for output in problem.supernet.outputs(batch.x, views[k])]

        with torch.no_grad():
            summed = torch.stack([fits(search, k)[0] for k in range(self.samples)], -1) * search.size
            omega = importance_weights(summed, self.temperature)

        weights = list(state.weights.values())
        found = [torch.zeros_like(weight) for weight in weights]
        train_fit = torch.zeros_like(omega[:, 0])
        for k in range(self.samples):  # one sample's activations in memory at a time
            fit, *towers = fits(train, k)
            objective = fit + self.auxiliary * sum(towers)
            torch._foreach_add_(found, gradients(-omega[:, k] * objective, weights))
            train_fit += (omega[:, k] * fit).detach()
        self.weights.step(state, found, feed.schedule["weights.lr"])

        # The prior speaks once for all examples that judge architectures, so here for the batch's share of them.
        prior = belief.expected(problem.prior.log_probs) * search.size / len(problem.data["search"])
        score = (omega * belief.log_prob(choices)).sum(-1) + prior
        logits = list(state.belief.values())
        self.arch.step(state, logits, gradients(-score, logits), feed.schedule["arch.lr"])
        metrics = {
            "log_likelihood": train_fit,
            "search_log_likelihood": (omega * summed).sum(-1) / search.size,
            "effective_samples": effective_samples(omega),
        }
        passed = train.size * self.samples
        return Info(metrics, forward=passed + search.size * self.samples, backward=passed)

    @override
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The mode's mean log-likelihood and everyday metric, with the shared weights."""
        return evaluate_view(problem, Dense(self.distribution(problem.space, state.belief).mode()), split)

    @override
    def end_epoch(self, problem: Problem, state: State, epoch: int, evaluated: bool) -> Info:
        """Tells how far the mode has collapsed."""
        mode = self.distribution(problem.space, state.belief).mode()
        return Info(collapse_of(problem.space, mode) if evaluated else {})


def importance_weights(log_likelihoods: Tensor, temperature: float) -> Tensor:
    """Eq. 8: omega [..., K] of log-likelihoods [..., K], each summed over a batch; never the likelihoods themselves."""
    return (log_likelihoods / temperature).softmax(-1)


def effective_samples(omega: Tensor) -> Tensor:
    """How many equal weights would be worth as much as omega [..., K]: from 1, a winner, to K."""
    return 1 / omega.square().sum(-1)
