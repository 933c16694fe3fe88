"""Variational depth search (Antorán et al. 2020), here LDN.

Depth d is a latent variable with prior p(d). One pass gives every depth's likelihood, so the bound

    L(alpha, theta) = sum_n E_q[log p(y_n | x_n, d)] - KL(q || p)                     (Eq. 1)

is exact. In the paper weights theta and belief q = Cat(alpha) climb it together, from training data alone
(`update=sgd`). Here belief is by default the exact posterior of the weights (Eq. 5), by held-out data where there is
some, and the q of the bound that weights climb follows it in natural-gradient steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from polyarch import distributed
from polyarch.core import Batch, Feed, FeedSpec, Info, Meaning, Method, Problem, State, gradients
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.evidence import Evidence, posterior
from polyarch.errors import PolyarchError
from polyarch.settings import NonNegative, Share
from polyarch.spaces.base import Space
from polyarch.spaces.views import All
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.optimisers import Sgd, momentum_buffers, sgd

WEIGHTING = "weighting"
"""In a state, logits of what the weights of depths are trained by, where that is not belief itself. Who starts from
another search's belief starts from these."""
FISHER_LENGTH = 100.0
"""How far natural steps may lead in a search, in the length that a step of KL epsilon has: sqrt(2 epsilon). From one
end of the simplex to the other it is at most pi; there is room for the way that belief follows the weights."""


@dataclass(frozen=True, kw_only=True)
class BeliefSteps:
    """How belief moves."""

    lr: NonNegative = 0.0
    """Learning rate of `sgd`, which has the momentum and the schedule of the weights; 0 takes that of the weights, as
    the paper does, under which belief lags far behind the posterior."""
    evidence: Literal["auto", "search", "train"] = "auto"
    """Whose likelihood `natural` and `em` go by: that of the held-out data of `search`, or of training data, which the
    weights were fitted to, so that it favours depth; `auto` is held-out data where there is some."""
    warmup: Share = 0.25
    """Share of the epochs in which `natural` trains the weights of all depths alike."""
    limit: NonNegative = 0.0
    """Largest KL(new, old) of a natural step; 0: what fits the number of epochs (`FISHER_LENGTH`)."""


@dataclass(frozen=True, kw_only=True)
class VariationalDepth(Method):
    """Learns the weights of all depths and a distribution over depth, in one run."""

    name: ClassVar[str] = "variational-depth"
    evaluates: ClassVar[Mapping[str, str]] = {"": "mixture"}
    meaning: ClassVar[Meaning] = Meaning(
        "posterior",
        "The posterior given the weights as they were learnt, from the prior and held-out data where there is some; "
        "with update=sgd an approximate one, from training data.",
    )

    update: Literal["natural", "sgd", "em"] = "natural"
    """How belief moves. With `sgd`, the paper's, at every step by the same SGD as the weights. Else it is the exact
    posterior (Eq. 5) after every epoch, at the price of a pass over the data that it goes by; and what the weights of
    depths are trained by follows it: at once (`em`), or by natural-gradient steps of limited length (`natural`), so
    that no depth is given up before it was trained."""
    weights: Sgd = Sgd(lr=0.1, momentum=0.5)
    """How weights are trained (appendix B; for images, to a tenth of the rate after 30 epochs)."""
    arch: BeliefSteps = BeliefSteps()
    """How belief is trained."""
    augment: Augment = Augment()
    """How training images are changed, for steps alone: belief goes by images as they are, unless `update=sgd`."""

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
    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        if self._evidence(problem) not in problem.data:
            raise PolyarchError("arch.evidence=search needs held-out data; set select or search (of the data) above 0")
        return super().feeds(problem)

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        rates = {"weights": self.weights.lr, "arch": self.arch.lr or self.weights.lr}
        return {f"{name}.lr": self.weights.schedule.at(lr, epoch, self.epochs) for name, lr in rates.items()}

    @override
    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        return self.augment.draw(problem, self.feeds(problem), streams)

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Default initial weights; belief uniform, as zero logits (released code)."""
        self.augment.check(problem.supernet.shape.input)
        problem.supernet.reset_parameters([s["init"] for s in streams])
        options = len(problem.space.decisions[0])
        logits = torch.zeros(problem.repeats, options, device=problem.device, requires_grad=True)
        state = State.of(problem.supernet, {"logits": logits})
        state.optimiser = momentum_buffers(weights=state.weights, belief=state.belief)
        if self.update != "sgd":
            state.belief[WEIGHTING] = torch.zeros_like(logits)
        return state

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """q(d) = Cat(softmax(logits))."""
        return Categorical(space.decisions, belief["logits"].unsqueeze(-2))

    @override
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of gradient ascent on Eq. 2 (divided by N, which leaves its optimum in place)."""
        batch = self.augment.batch(problem, feed.batches["train"][0])
        problem.supernet.train()
        fit = distributed.mean(depth_log_likelihood(problem, batch.x, batch.y))  # [repeats, depths]
        bound = elbo(fit * problem.train_size, self._weighting(problem, state), problem.prior)
        weights, logits = list(state.weights.values()), list(state.belief.values())
        found = gradients(-bound / problem.train_size, [*weights, *(logits if self.update == "sgd" else [])])
        self.weights.step(state, found[: len(weights)], feed.schedule["weights.lr"])
        if self.update == "sgd":
            momenta = [state.optimiser["belief.logits"]]
            slopes = found[len(weights) :]
            sgd(logits, slopes, momenta, lr=feed.schedule["arch.lr"], momentum=self.weights.momentum)
        return Info({"elbo": bound.detach()}, forward=batch.size, backward=batch.size)

    @override
    def end_epoch(self, problem: Problem, state: State, epoch: int, evaluated: bool) -> Info:
        """The E-step (Eq. 5), or a part of the way there, where belief is not moved by SGD."""
        waits = self.update == "natural" and epoch < self._warmup
        if self.update == "sgd" or (waits and not evaluated):
            return Info({})
        exact = posterior(total_log_likelihood(problem, self._evidence(problem)), problem.prior)
        with torch.no_grad():
            state.belief["logits"].copy_(exact.logits.squeeze(-2))
            if self.update == "em":
                state.belief[WEIGHTING].copy_(state.belief["logits"])
            elif not waits:
                moved = natural_step(self._weighting(problem, state), exact, self._limit)
                state.belief[WEIGHTING].copy_(moved.logits.squeeze(-2))
        return Info({}, forward=len(problem.data[self._evidence(problem)]))

    def _weighting(self, problem: Problem, state: State) -> Categorical:
        """The q of the bound that weights climb: belief itself, or what follows it."""
        logits = state.belief["logits" if self.update == "sgd" else WEIGHTING]
        return self.distribution(problem.space, {"logits": logits})

    def judged_by(self, splits: Collection[str]) -> str:
        """The split whose likelihood belief goes by; SGD has that of the batches that the weights see."""
        if self.update == "sgd":
            return "train"
        known = "search" if "search" in splits else "train"
        return known if self.arch.evidence == "auto" else self.arch.evidence

    def _evidence(self, problem: Problem) -> str:
        return self.judged_by(problem.data)

    @property
    def _warmup(self) -> int:
        """Epochs at whose end no natural step is made."""
        return min(math.ceil(self.arch.warmup * self.epochs), self.epochs - 1)

    @property
    def _limit(self) -> float:
        """Of KL(new, old): n steps of this size are FISHER_LENGTH long."""
        return self.arch.limit or (FISHER_LENGTH / (self.epochs - self._warmup)) ** 2 / 2

    @override
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The bound of the examples of a split, and, as the objective, the same per example."""
        belief = self.distribution(problem.space, state.belief)
        return evaluate_depths(problem, belief, belief.kl(problem.prior).detach(), split, self._evidence(problem))


def depth_log_likelihood(problem: Problem, x: Tensor, y: Tensor) -> Tensor:
    """Log p(y_n | x_n, d) for every depth and example, as learning counts it: [repeats, depths, batch]."""
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


def natural_step(belief: Categorical, exact: Categorical, limit: float) -> Categorical:
    """From q towards the exact posterior p(d | D): log q' = (1 - r) log q + r log p(d | D) + const.

    This is a step of size r along the natural gradient of the bound, whose natural parameters are the logits (Khan and
    Nielsen 2018); r = 1 is the E-step. r is the largest up to 1 for which KL(q' || q) <= limit, each repeat's own.
    """
    start, end = (each.log_probs.double().squeeze(-2) for each in (belief, exact))

    def at(r: Tensor) -> Tensor:
        return ((1 - r) * start + r * end).log_softmax(-1)

    def too_far(r: Tensor) -> Tensor:
        moved = at(r)
        return (moved.exp() * (moved - start)).sum(-1, keepdim=True) > limit

    high = torch.ones_like(start[..., :1])
    low = torch.where(too_far(high), 0.0, high)  # KL grows with r, so that halving finds where it is the limit
    for _ in range(60):
        middle = (low + high) / 2
        far = too_far(middle)
        low, high = torch.where(far, low, middle), torch.where(far, middle, high)
    return Categorical(belief.decisions, at(low).to(belief.logits.dtype).unsqueeze(-2))


@torch.no_grad()
def total_log_likelihood(problem: Problem, split: str) -> Tensor:
    """Log p(Y | X, d) of a whole split in evaluation mode: [repeats, depths], summed in double precision."""
    problem.supernet.eval()
    return sum(  # type: ignore[return-value]
        depth_log_likelihood(problem, b.x, b.y).sum(-1, dtype=torch.float64) for b in problem.passes(split)
    )


@torch.no_grad()
def evidence(problem: Problem) -> list[Evidence]:
    """What training and validation data say of every depth, of each repeat."""
    train = total_log_likelihood(problem, "train").cpu()
    select = list(problem.passes("select")) if "select" in problem.data else []
    if not select:
        return [Evidence(own, train.new_zeros(len(own), 0)) for own in train]
    plain = replace(problem, likelihood=problem.likelihood.unweighted)
    held_out = torch.cat([depth_log_likelihood(plain, batch.x, batch.y).cpu() for batch in select], -1)
    target = torch.cat([batch.y[0] for batch in select])
    counts = problem.likelihood.counted(torch.ones(len(target), device=target.device), target).cpu()
    return [Evidence(*own, counts) for own in zip(train, held_out, strict=True)]


@torch.no_grad()
def evaluate_depths(
    problem: Problem, belief: Categorical, kl: Tensor, split: str, evidence: str = "train"
) -> dict[str, Tensor]:
    """Every depth and their mixture on a split: [repeats] and, for `depth_log_likelihood`, [repeats, depths]."""
    problem.supernet.eval()
    [alpha] = belief.probs().values()
    count = len(problem.data[split])
    counted = torch.zeros_like(alpha, dtype=torch.float64)
    depths = torch.zeros_like(counted)
    mixture = torch.zeros_like(depths[:, 0])
    measured = torch.zeros_like(mixture)
    for batch in problem.passes(split):
        for total, found in zip((counted, depths, mixture, measured), _sums(problem, batch, alpha), strict=True):
            total += found
    expected = (alpha * counted).sum(-1)
    # Per example of those that belief is learnt on, so that early stopping weighs the KL as learning does.
    objective = expected / count - kl / len(problem.data[evidence])
    return {
        "objective": objective,
        "elbo": expected - kl,
        "kl": kl,
        "log_likelihood": mixture / count,
        problem.likelihood.metric: measured / count,
        "depth_log_likelihood": depths / count,
    }


def _sums(problem: Problem, batch: Batch, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of a batch: log-likelihoods of every depth, as learning counts them and plain ones; the mixture's, its metric."""
    outputs, y = problem.supernet(batch.x, All()), batch.y.unsqueeze(1)
    fit = problem.likelihood.unweighted.log_likelihood(outputs, y)
    counted = problem.likelihood.counted(fit, y)
    mixture = (alpha.log().unsqueeze(-1) + fit).logsumexp(1)
    mixed = problem.likelihood.mixture(outputs.transpose(0, 1), alpha.T)
    measured = problem.likelihood.metric_values(mixed, batch.y)
    return (
        counted.sum(-1, dtype=torch.float64),
        fit.sum(-1, dtype=torch.float64),
        mixture.sum(-1, dtype=torch.float64),
        measured.sum(-1),
    )
