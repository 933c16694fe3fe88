"""Variational depth search (Antorán et al. 2020), here LDN.

Depth d is a latent variable with prior p(d). One pass gives every depth's likelihood, so the bound

    L(alpha, theta) = sum_n E_q[log p(y_n | x_n, d)] - KL(q || p)                     (Eq. 1)

is exact, and weights theta and belief q = Cat(alpha) are learnt together from training data alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from polyarch import distributed
from polyarch.core import Batch, Feed, Info, Meaning, Method, Problem, State, gradients
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.settings import NonNegative
from polyarch.spaces.base import Space
from polyarch.spaces.views import All
from polyarch.streams import Streams
from polyarch.training.optimisers import Sgd, momentum_buffers, sgd


@dataclass(frozen=True, kw_only=True)
class BeliefSgd:
    """SGD on belief, with the momentum and the schedule of the weights."""

    lr: NonNegative = 0.0
    """Learning rate; 0 takes that of the weights, as the paper does, under which belief lags far behind the
    posterior."""


@dataclass(frozen=True, kw_only=True)
class VariationalDepth(Method):
    """Learns the weights of all depths and a distribution over depth, in one run."""

    name: ClassVar[str] = "variational-depth"
    evaluates: ClassVar[Mapping[str, str]] = {"": "mixture"}
    meaning: ClassVar[Meaning] = Meaning(
        "posterior",
        "An approximate posterior given the weights as they are learnt, from the prior and the training data; with "
        "update=em the exact one.",
    )

    update: Literal["sgd", "em"] = "sgd"
    """How belief moves: by the same SGD as the weights (the paper), or to the exact posterior after every epoch (`em`,
    Eq. 5; one more pass over the training data)."""
    weights: Sgd = Sgd(lr=0.1, momentum=0.5)
    """How weights are trained (appendix B; for images, to a tenth of the rate after 30 epochs)."""
    arch: BeliefSgd = BeliefSgd()
    """How belief is trained: by the same SGD."""

    @override
    def check(self, space: Space) -> None:
        """Needs one nested decision: a supernet that answers for all options in one pass."""
        if not space.nested:
            raise PolyarchError(
                f"variational-depth needs a nested space such as 'depth', whose options are all answered in one pass; "
                f"{space.name!r} is not"
            )

    @override
    def prior(self, space: Space) -> str:
        """The paper's."""
        return "exponential"

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        rates = {"weights": self.weights.lr, "arch": self.arch.lr or self.weights.lr}
        return {f"{name}.lr": self.weights.schedule.at(lr, epoch, self.epochs) for name, lr in rates.items()}

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Default initial weights; belief uniform, as zero logits (released code)."""
        problem.supernet.reset_parameters([s["init"] for s in streams])
        options = len(problem.space.decisions[0])
        logits = torch.zeros(problem.repeats, options, device=problem.device, requires_grad=True)
        state = State.of(problem.supernet, {"logits": logits})
        state.optimiser = momentum_buffers(weights=state.weights, belief=state.belief)
        return state

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """q(d) = Cat(softmax(logits))."""
        return Categorical(space.decisions, belief["logits"].unsqueeze(-2))

    @override
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of gradient ascent on Eq. 2 (divided by N, which leaves its optimum in place)."""
        [batch] = feed.batches["train"]
        problem.supernet.train()
        fit = distributed.mean(depth_log_likelihood(problem, batch.x, batch.y))  # [repeats, depths]
        belief = self.distribution(problem.space, state.belief)
        bound = elbo(fit * problem.train_size, belief, problem.prior)
        weights, logits = list(state.weights.values()), list(state.belief.values())
        found = gradients(-bound / problem.train_size, [*weights, *(logits if self.update == "sgd" else [])])
        self.weights.step(state, found[: len(weights)], feed.schedule["weights.lr"])
        if self.update == "sgd":
            momenta = [state.optimiser["belief.logits"]]
            slopes = found[len(weights) :]
            sgd(logits, slopes, momenta, lr=feed.schedule["arch.lr"], momentum=self.weights.momentum)
        return Info({"elbo": bound.detach()}, forward=batch.size, backward=batch.size)

    @override
    def end_epoch(self, problem: Problem, state: State, evaluated: bool) -> Info:
        """The E-step (Eq. 5), where belief is not moved by SGD."""
        if self.update == "sgd":
            return Info({})
        totals = total_log_likelihood(problem, "train")
        with torch.no_grad():
            state.belief["logits"].copy_(posterior(totals, problem.prior).logits.squeeze(-2))
        return Info({}, forward=problem.train_size)

    @override
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The bound on `train`; on `select`, its likelihood term is the mean over validation examples."""
        belief = self.distribution(problem.space, state.belief)
        return evaluate_depths(problem, belief, belief.kl(problem.prior).detach(), split)


def depth_log_likelihood(problem: Problem, x: Tensor, y: Tensor) -> Tensor:
    """Log p(y_n | x_n, d) for every depth and example: [repeats, depths, batch]."""
    return problem.likelihood.log_likelihood(problem.supernet(x, All()), y.unsqueeze(1))


def elbo(log_likelihoods: Tensor, belief: Categorical, prior: Distribution) -> Tensor:
    """Eq. 1: E_q[log p(Y | X, d)] - KL(q || p), [...].

    Args:
        log_likelihoods: log p(Y | X, d) of all data, [..., depths]; N / N' times a batch's sum estimates it (Eq. 2).
        belief: q.
        prior: p.
    """
    [alpha] = belief.probs().values()
    return (alpha * log_likelihoods).sum(-1) - belief.kl(prior)


def posterior(log_likelihoods: Tensor, prior: Distribution) -> Categorical:
    """Eq. 5: p(d | D), from log p(Y | X, d) [..., depths] of all data."""
    if not isinstance(prior, Categorical):
        raise PolyarchError("the posterior over depth is exact only for a categorical prior")
    joint = log_likelihoods + prior.log_probs.squeeze(-2)
    return Categorical(prior.decisions, joint.log_softmax(-1).unsqueeze(-2))


@torch.no_grad()
def total_log_likelihood(problem: Problem, split: str) -> Tensor:
    """Log p(Y | X, d) of a whole split in evaluation mode: [repeats, depths], summed in double precision."""
    problem.supernet.eval()
    return sum(  # type: ignore[return-value]
        depth_log_likelihood(problem, b.x, b.y).sum(-1, dtype=torch.float64) for b in problem.passes(split)
    )


@torch.no_grad()
def evaluate_depths(problem: Problem, belief: Categorical, kl: Tensor, split: str) -> dict[str, Tensor]:
    """Every depth and their mixture on a split: [repeats] and, for `depth_log_likelihood`, [repeats, depths]."""
    problem.supernet.eval()
    [alpha] = belief.probs().values()
    count = len(problem.data[split])
    depths = torch.zeros_like(alpha, dtype=torch.float64)
    mixture = torch.zeros_like(depths[:, 0])
    measured = torch.zeros_like(mixture)
    for batch in problem.passes(split):
        for total, found in zip((depths, mixture, measured), _sums(problem, batch, alpha), strict=True):
            total += found
    expected = (alpha * depths).sum(-1) / count
    # Per training example, so that early stopping on validation data weighs the KL as training does.
    objective = expected - kl / problem.train_size
    return {
        "objective": objective,
        "elbo": objective * problem.train_size,
        "kl": kl,
        "log_likelihood": mixture / count,
        problem.likelihood.metric: measured / count,
        "depth_log_likelihood": depths / count,
    }


def _sums(problem: Problem, batch: Batch, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of a batch: log-likelihoods of every depth and of the mixture, and the mixture's everyday metric."""
    outputs = problem.supernet(batch.x, All())
    fit = problem.likelihood.log_likelihood(outputs, batch.y.unsqueeze(1))
    mixture = (alpha.log().unsqueeze(-1) + fit).logsumexp(1)
    mixed = problem.likelihood.mixture(outputs.transpose(0, 1), alpha.T)
    measured = problem.likelihood.metric_values(mixed, batch.y)
    return fit.sum(-1, dtype=torch.float64), mixture.sum(-1, dtype=torch.float64), measured.sum(-1)
