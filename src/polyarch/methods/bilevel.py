"""The two levels that DARTS and its relatives share: weights w on training data, belief on what they then achieve.

Belief minimises the loss of a validation batch (Eq. 3.9 of the SoTL thesis): in first order with w as it is, in second
order with w one step ahead (3.10 to 3.12). Or it minimises the sum over T training losses, SoTL (Algorithm 3): roll T
steps of w out while summing belief's gradients (3.21), move belief, put w back, and make the T steps again. The exact
gradient of that sum looks through the T steps as well (3.18 to 3.20).
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from polyarch import distributed
from polyarch.core import (
    LAST,
    Batch,
    EarlyStopping,
    Feed,
    FeedSpec,
    Info,
    Method,
    Part,
    Problem,
    Stage,
    State,
    gradients,
)
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import masked
from polyarch.errors import PolyarchError
from polyarch.methods.pdarts import OPEN, Progressive
from polyarch.settings import Count, InEpochs, Positive, TakesMemory, settle
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.views import Dense, Soft
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.curvature import hessian
from polyarch.training.evaluation import collapse_of, evaluate_view
from polyarch.training.hypergradients import exact_mixed_product, mixed_product, sotl_reverse
from polyarch.training.natural import NaturalGradient
from polyarch.training.optimisers import DARTS_WEIGHTS, Adam, Sgd, adam_buffers, momentum_buffers
from polyarch.training.reach import Published
from polyarch.training.snapshots import Snapshot
from polyarch.trees import tree_map

logger = logging.getLogger("polyarch")
Gradients = list[Tensor]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What belief minimises."""

    loss: Literal["valid", "sotl", "sovl"] = "valid"
    """The loss of one `valid` batch, the sum of T training losses (`sotl`), or of T validation losses, each after a
    training step (`sovl`)."""
    order: Literal["first", "second", "exact"] = "first"
    """Of belief's gradient: w as it is (`first`); of `valid`, w one step ahead, by the published central difference
    (`second`) or by differentiating through the step (`exact`); of `sotl`, through all T steps of w (`exact`, which
    keeps T steps in memory)."""
    steps: Annotated[Positive, TakesMemory(beside=("order", "exact"))] = 100
    """T, the steps of a roll-out of `sotl` and `sovl` (thesis section 4.3); an epoch's last one has what is left."""
    restore: Literal["weights", "all"] = "weights"
    """What a roll-out puts back: weights and batch-norm statistics (the thesis's code, where momentum goes on), or the
    optimiser's state as well."""

    def __post_init__(self) -> None:
        settle(self)
        orders = {"valid": ("first", "second", "exact"), "sotl": ("first", "exact"), "sovl": ("first",)}[self.loss]
        if self.order not in orders:
            raise PolyarchError(
                f"objective.order={self.order} is not for objective.loss={self.loss}, which has "
                f"{' and '.join(orders)} alone"
            )


@dataclass(frozen=True, kw_only=True)
class Bilevel(Method, ABC):
    """The order of a step; a subclass says how belief mixes operations and how it moves."""

    evaluates: ClassVar[Mapping[str, str]] = {"supernet_": "supernet", "": "mode with shared weights"}
    published: ClassVar[Published]
    """How the method's paper learns belief on CIFAR-10."""

    epochs: Positive = 50
    """Passes over the training data (DARTS)."""
    batch_size: Positive = 64
    """Examples of a training batch and of a search batch, over all ranks (DARTS)."""
    stopping: EarlyStopping = LAST
    """As for every method; these searches keep the last state."""
    weights: Sgd = DARTS_WEIGHTS
    """How the shared weights are trained (DARTS)."""
    arch: Adam | NaturalGradient
    """How belief is trained."""
    augment: Augment = Augment()
    """How training and search images are changed at random (DARTS: crop 4, flip)."""
    objective: Objective = Objective()
    """What belief minimises (DARTS: the validation loss)."""
    warmup_epochs: Annotated[Count, InEpochs()] = 0
    """In so many first epochs (of every stage) belief rests and weights are trained alone (P-DARTS: 10)."""
    plan: Progressive = Progressive()
    """Stages of P-DARTS, with `epochs` each."""
    curvature: bool = False
    """Whether every evaluation also measures the architecture Hessian: its largest eigenvalue and its trace, exactly,
    on one batch of the data that belief sees. It takes a backward pass for every architecture parameter."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_epochs >= self.epochs:
            raise PolyarchError(
                f"warmup_epochs is {self.warmup_epochs} of {self.epochs} epochs; leave some in which belief moves"
            )
        through_steps = self.objective.loss == "sotl" and self.objective.order == "exact"
        if through_steps and (self.weights.grad_clip or self.plan):
            raise PolyarchError(
                "objective.order=exact looks through steps without clipping and dropout; set weights.grad_clip=0 and "
                "no plan.stages"
            )
        if self.objective.order == "exact" and distributed.size() > 1:
            raise PolyarchError("objective.order=exact runs in one process; start it without torchrun, or use first")

    # -- what a subclass says ------------------------------------------------------------------------------------------

    @property
    def draws(self) -> int:
        """How often belief is drawn for one gradient of it."""
        return 1

    @abstractmethod
    def first_belief(self, problem: Problem, streams: Sequence[Streams]) -> dict[str, Tensor]:
        """Belief's parameters before the first step; those that require a gradient are what a step moves."""

    @abstractmethod
    def mixture(
        self, space: Space, belief: Mapping[str, Tensor], noise: Mapping[str, Tensor], schedule: Mapping[str, Tensor]
    ) -> Soft:
        """The mixture of one pass, differentiable in belief.

        Args:
            space: whose simplices are mixed.
            belief: the tensors of `State.belief`.
            noise: that of the pass, [repeats, ...].
            schedule: what the epoch has.
        """

    def noise(self, problem: Problem, generator: torch.Generator, passes: int) -> dict[str, Tensor]:
        """What `mixture` needs for so many passes, with a leading axis of them; nothing where belief is not drawn."""
        return {}

    @abstractmethod
    def move_belief(self, problem: Problem, state: State, found: Sequence[Gradients], feed: Feed) -> None:
        """Moves belief, given its gradients at every draw."""

    def belief_buffers(self, movable: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What `move_belief` keeps from step to step; Adam's moments by default."""
        return adam_buffers(belief=movable)

    # -- what a method must have ---------------------------------------------------------------------------------------

    def check(self, space: Space) -> None:
        """Stages are of a space whose networks can grow."""
        self.plan.check(space)

    def prior(self, space: Space) -> str | None:
        """None where weights of edges are learnt and architectures are read out of them."""
        return "uniform" if space.relaxation is None or space.relaxation.simplices == space.decisions else None

    def judged_by(self, splits: Collection[str]) -> str:
        """Training data, where it is its losses that are summed."""
        return "train" if self.objective.loss == "sotl" else "search"

    def stages(self, space: Space) -> tuple[Stage, ...]:
        """One, or those of the plan."""
        return self.plan.spaces(space, self.epochs) if self.plan else super().stages(space)

    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        """A training batch for the weights and a search batch for belief; or T of them."""
        loss = self.objective.loss
        if loss != "sotl" and "search" not in problem.data:
            raise PolyarchError(f"{self.name} learns belief on validation data; set select (of the data) above 0")
        size = problem.batch_size(self.batch_size, *(["train"] if loss == "sotl" else ["train", "search"]))
        if loss == "valid":
            return {"train": FeedSpec("train", size), "search": FeedSpec("search", size)}
        steps = min(self.objective.steps, max(problem.train_size // size, 1))
        feeds = {"train": FeedSpec("train", size, steps, shorter=True)}
        if loss == "sovl":
            feeds["search"] = FeedSpec("search", size, min(steps, len(problem.data["search"]) // size))
        return feeds

    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        """How images are changed, and for every pass of a training batch belief's noise and the seed of dropout.

        The passes of a batch: with `valid`, belief's draws and then that of the weights; with `sotl`, one; with
        `sovl`, that of the weights and belief's.
        """
        feeds = self.feeds(problem)
        count = feeds["train"].count
        each = {"valid": self.draws + 1, "sotl": 1, "sovl": 2}[self.objective.loss]

        def by_batch(values: Tensor) -> Tensor:
            return values.unflatten(0, (each, count)).transpose(0, 1)

        drawn: dict[str, Any] = self.augment.draw(problem, feeds, streams)
        drawn["train"]["noise"] = tree_map(by_batch, self.noise(problem, streams["architecture"], each * count))
        if self.plan:
            drawn["train"]["dropout"] = by_batch(torch.randint(2**31, (each * count,), generator=streams["noise"]))
        return drawn

    def schedule(self, epoch: int) -> dict[str, float]:
        """The rates; with stages also the share of their dropout that is left."""
        found = {"weights.lr": self.weights.lr_at(epoch, self.epochs), "arch.lr": self.arch.lr}
        return found | ({"dropout": self.plan.fading(self, epoch)} if self.plan else {})

    def belief_steps(self, problem: Problem) -> int:
        """One for every training batch, or for every roll-out of them."""
        feed = self.feeds(problem)["train"]
        return math.ceil(problem.train_size // feed.size / feed.count)

    def belief_epochs(self) -> int:
        """All but those in which belief rests."""
        return self.epochs - self.warmup_epochs

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights and belief."""
        if problem.space.relaxation is None:
            raise PolyarchError(
                f"{self.name} mixes operations, and the space {problem.space.name!r} has no mixture of its options; "
                "use parsec, which runs one architecture at a time"
            )
        self.augment.check(problem.supernet.shape.input)
        self._say_if_shorter(problem)
        problem.supernet.reset_parameters([s["init"] for s in streams])
        belief = self.first_belief(problem, streams)
        if self.plan:
            belief[OPEN] = self.plan.open_options(self, problem, previous)
        state = State.of(problem.supernet, belief)
        movable = {name: value for name, value in state.belief.items() if value.requires_grad}
        state.optimiser = {**momentum_buffers(weights=state.weights), **self.belief_buffers(movable)}
        if self.objective.loss != "valid":
            state.scratch = {f"before/{k}": torch.empty_like(v) for k, v in enumerate(self._put_back(state))}
            state.scratch |= {f"summed/{k}": torch.zeros_like(v) for k, v in enumerate(moving(state))}
        return state

    def _say_if_shorter(self, problem: Problem) -> None:
        """Where roll-outs of T steps do not fill an epoch: how long the last is."""
        batches, steps = problem.train_size // self.feeds(problem)["train"].size, self.objective.steps
        if self.objective.loss != "valid" and batches % steps and distributed.rank() == 0:
            logger.warning(
                "an epoch has %d batches: its last roll-out has %d steps, not %d", batches, batches % steps, steps
            )

    def parts(self, problem: Problem, state: State, epoch: int, batches: int) -> Sequence[Part]:
        """A step on one batch is one part; a roll-out is one part per batch, so that its length takes no recording."""
        if self.plan:
            self.plan.leave_out(problem, state)
        if epoch < self.warmup_epochs:
            return [Part("warm up", self._train_alone, k) for k in range(batches)]
        if self.objective.loss == "valid":
            return (Part("step", self.step),)
        if self.objective.order == "exact":
            rolled_out = [Part("through steps", self._through_steps)]
        else:
            rolled_out = [Part("begin", self._begin, 0), *(Part("along", self._along, k) for k in range(batches))]
        again = [Part("train again", self._train_alone, k) for k in range(batches)]
        move_belief = partial(self._move_belief, batches=batches)
        return [*rolled_out, Part(f"belief after {batches}", move_belief, 0), *again]

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The mode's mean log-likelihood and everyday metric, with the shared weights; the objective is the mixture's.

        `supernet_...` is the supernet mixed by belief.
        """
        belief = self.distribution(problem.space, state.belief)
        found = evaluate_view(problem, Dense(belief.mode()), split)
        mixed = evaluate_view(problem, Soft(belief.mean_weights()), split)
        found |= {f"supernet_{name}": value for name, value in mixed.items() if name != "objective"}
        return found | {"objective": mixed["objective"]}

    def end_epoch(self, problem: Problem, state: State, epoch: int, evaluated: bool) -> Info:
        """Tells how far the mode has collapsed; with `curvature`, also how sharp the loss is in belief's parameters."""
        if not evaluated:
            return Info({})
        found = collapse_of(problem.space, self.distribution(problem.space, state.belief).mode())
        return Info(found | (self._curvature(problem, state) if self.curvature else {}))

    def _curvature(self, problem: Problem, state: State) -> dict[str, Tensor]:
        """Largest eigenvalue and trace of the Hessian of a batch's loss in belief's parameters."""
        [(name, value)] = [(name, value) for name, value in state.belief.items() if value.requires_grad]
        batch = problem.some("train" if self.objective.loss == "sotl" else "search", self.batch_size)
        kept = Snapshot(state.buffers.values())
        problem.supernet.train()

        def at(point: Tensor) -> Tensor:
            belief = self.distribution(problem.space, {**state.belief, name: point})
            return -problem.log_likelihood(problem.supernet(batch.x, Soft(belief.mean_weights())), batch)

        matrix = hessian(at, value)
        kept.restore()
        # That a search has diverged is said by the evaluation that follows.
        largest = torch.linalg.eigvalsh(matrix.nan_to_num())[:, -1]
        return {"hessian_eigenvalue": largest, "hessian_trace": matrix.diagonal(dim1=1, dim2=2).sum(-1)}

    # -- one batch -----------------------------------------------------------------------------------------------------

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """Belief first, then w (DARTS, Algorithm 1)."""
        problem.supernet.train()
        [train], [search] = feed.batches["train"], feed.batches["search"]
        train, search = self.augment.batch(problem, train), self.augment.batch(problem, search)
        found, fits = [], []
        for k in range(self.draws):
            if self.objective.order == "first":
                fit = self._loss(problem, state, feed, search, k, moves=True)
                found.append(gradients(fit + self._prior(problem, state), moving(state)))
            else:
                own, fit = self._second_order(problem, state, feed, train, search, k)
                found.append(own)
            fits.append(fit.detach())
        self.move_belief(problem, state, found, feed)
        fit = self._train(problem, state, feed, train, self.draws)
        metrics = {"log_likelihood": -fit, "search_log_likelihood": -torch.stack(fits).mean(0)}
        # Of one gradient of belief; a second derivative is a pass back through both passes of a batch.
        forward, backward = {"first": (1, 1), "second": (4, 4), "exact": (3, 5)}[self.objective.order]
        return Info(metrics, train.size * (1 + self.draws * forward), train.size * (1 + self.draws * backward))

    def _view(self, problem: Problem, state: State, feed: Feed, k: int, *, moves: bool) -> Soft:
        """The mixture of a training batch's pass k; gradients flow into belief only where it `moves`."""
        belief = state.belief if moves else {name: value.detach() for name, value in state.belief.items()}
        return self.mixture(problem.space, belief, noise_of(feed, k), feed.schedule)

    def _loss(self, problem: Problem, state: State, feed: Feed, batch: Batch, k: int, *, moves: bool) -> Tensor:
        """The loss of a batch in pass k; see `_view`."""
        dropout = None
        if self.plan:
            seeds = feed.batches["train"][0].draws["dropout"][:, k]
            dropout = self.plan.dropout(problem.space, feed.schedule["dropout"], seeds)
        view = self._view(problem, state, feed, k, moves=moves)
        return -problem.log_likelihood(problem.supernet.outputs(batch.x, view, dropout)[0], batch)

    def _train(self, problem: Problem, state: State, feed: Feed, batch: Batch, k: int) -> Tensor:
        """One step of w under the belief of now; gives the loss before it."""
        fit = self._loss(problem, state, feed, batch, k, moves=False)
        self.weights.step(state, gradients(fit, list(state.weights.values())), feed.schedule["weights.lr"])
        return fit.detach()

    def _train_alone(self, problem: Problem, state: State, feed: Feed) -> Info:
        """A step of w under the belief of now, alone."""
        problem.supernet.train()
        [batch] = feed.batches["train"]
        fit = self._train(problem, state, feed, self.augment.batch(problem, batch), 0)
        return Info({"log_likelihood": -fit}, forward=batch.size, backward=batch.size)

    def _prior(self, problem: Problem, state: State) -> Tensor | float:
        examples = len(problem.data[self.judged_by(problem.data)])
        return prior_loss(problem, self.distribution(problem.space, state.belief), examples)

    def _second_order(
        self, problem: Problem, state: State, feed: Feed, train: Batch, search: Batch, k: int
    ) -> tuple[Gradients, Tensor]:
        """The gradient of the validation loss after one step of w (3.11); its mixed part by central difference (3.12).

        w' = w - lr (momentum v + dL/dw + decay w), as the DARTS code looks ahead. Belief is drawn once for all of it.
        The difference is off where w leads across kinks, as with ReLU (docs/methods.md has by how much); `exact`
        differentiates twice instead.
        """
        weights, lr = list(state.weights.values()), feed.schedule["weights.lr"]
        before = Snapshot([*weights, *state.buffers.values()])
        ahead = gradients(self._loss(problem, state, feed, train, k, moves=False), weights)
        with torch.no_grad():
            for name, weight, slope in zip(state.weights, weights, ahead, strict=True):
                momentum = self.weights.momentum * state.optimiser[f"weights.{name}"]
                weight.sub_(lr * (momentum + slope + self.weights.weight_decay * weight))
        after = self._loss(problem, state, feed, search, k, moves=True)
        movable = moving(state)
        found = gradients(after + self._prior(problem, state), [*movable, *weights])
        direct, direction = found[: len(movable)], found[len(movable) :]
        before.restore()

        def train_loss() -> Tensor:
            return self._loss(problem, state, feed, train, k, moves=True)

        if self.objective.order == "exact":
            mixed = exact_mixed_product(train_loss(), movable, weights, direction)
        else:
            mixed = mixed_product(lambda: gradients(train_loss(), movable), weights, direction)
        before.restore()
        return [d - lr * m for d, m in zip(direct, mixed, strict=True)], after

    # -- roll-outs: the T steps are made twice, and belief moves in between (Algorithm 3) ------------------------------

    def _put_back(self, state: State) -> list[Tensor]:
        """What a roll-out leaves as it was."""
        kept = [*state.weights.values(), *state.buffers.values()]
        if self.objective.restore == "all":
            kept += [value for name, value in state.optimiser.items() if name.startswith("weights.")]
        return kept

    @torch.no_grad()
    def _begin(self, problem: Problem, state: State, feed: Feed) -> Info:
        """Puts aside what will be put back; nothing is summed yet."""
        torch._foreach_copy_(scratch(state, "before"), self._put_back(state))
        torch._foreach_zero_(scratch(state, "summed"))
        return Info({})

    def _along(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of w, and belief's direct gradient (3.21)."""
        problem.supernet.train()
        weights, movable = list(state.weights.values()), moving(state)
        [batch] = feed.batches["train"]
        train = self.augment.batch(problem, batch)
        if self.objective.loss == "sotl":
            found = gradients(self._loss(problem, state, feed, train, 0, moves=True), [*movable, *weights])
            self.weights.step(state, found[len(movable) :], feed.schedule["weights.lr"])
            passed = batch.size
        else:
            self._train(problem, state, feed, train, 0)
            search = self.augment.batch(problem, feed.batches["search"][0])
            found = gradients(self._loss(problem, state, feed, search, 1, moves=True), movable)
            passed = 2 * batch.size
        torch._foreach_add_(scratch(state, "summed"), found[: len(movable)])
        return Info({}, forward=passed, backward=passed)

    def _through_steps(self, problem: Problem, state: State, feed: Feed) -> Info:
        """The gradient of the sum of losses, through the T steps that w takes, momentum and decay among them (3.20)."""
        problem.supernet.train()
        self._begin(problem, state, feed)
        names, optimiser = list(state.weights), self.weights
        moved = [name for name, value in state.belief.items() if value.requires_grad]
        velocity = [state.optimiser[f"weights.{name}"].clone() for name in names]

        def loss(weights: Sequence[Tensor], alpha: Sequence[Tensor], batch: Batch) -> Tensor:
            belief = {**state.belief, **dict(zip(moved, alpha, strict=True))}
            own = {name: value[:, 0] for name, value in batch.draws["noise"].items()}
            view = self.mixture(problem.space, belief, own, feed.schedule)
            x = self.augment.batch(problem, batch).x
            output = functional_call(problem.supernet, dict(zip(names, weights, strict=True)), (x, view))
            return -problem.likelihood.log_likelihood(output, batch.y).mean(-1).sum()

        def step(weights: Sequence[Tensor], slopes: Sequence[Tensor]) -> list[Tensor]:
            stepped = []
            for k, (weight, slope) in enumerate(zip(weights, slopes, strict=True)):
                decayed = slope + optimiser.weight_decay * weight
                velocity[k] = optimiser.momentum * velocity[k] + decayed
                ahead = decayed + optimiser.momentum * velocity[k] if optimiser.nesterov else velocity[k]
                stepped.append(weight - feed.schedule["weights.lr"] * ahead)
            return stepped

        batches = feed.batches["train"]
        rolled = sotl_reverse(loss, list(state.weights.values()), moving(state), batches, step=step)
        torch._foreach_copy_(scratch(state, "summed"), rolled.gradient)
        passed = batches[0].size * len(batches)
        return Info({}, forward=passed, backward=passed)

    def _move_belief(self, problem: Problem, state: State, feed: Feed, batches: int) -> Info:
        """Puts w back and moves belief by what was summed over so many batches."""
        with torch.no_grad():
            torch._foreach_copy_(self._put_back(state), scratch(state, "before"))
        summed, prior = scratch(state, "summed"), self._prior(problem, state)
        if isinstance(prior, Tensor):
            torch._foreach_add_(summed, gradients(batches * prior, moving(state)))
        self.move_belief(problem, state, [summed], feed)
        return Info({})


def moving(state: State) -> list[Tensor]:
    """Belief's tensors that have gradients."""
    return [value for value in state.belief.values() if value.requires_grad]


def scratch(state: State, group: str) -> list[Tensor]:
    """The tensors of a group of `State.scratch`."""
    return [value for name, value in state.scratch.items() if name.startswith(f"{group}/")]


def noise_of(feed: Feed, k: int) -> dict[str, Tensor]:
    """Belief's noise in pass k of a training batch, by the names of `Bilevel.noise`: [repeats, ...]."""
    return {name: value[:, k] for name, value in feed.batches["train"][0].draws["noise"].items()}


def mean_gradients(found: Sequence[Gradients]) -> Gradients:
    """The mean over draws."""
    return [torch.stack(parts).mean(0) for parts in zip(*found, strict=True)]


def simplices_shape(space: Space) -> tuple[int, int]:
    """[simplices, longest], of what is learnt."""
    simplices = relaxation_of(space).simplices
    return len(simplices), max(len(simplex) for simplex in simplices)


def first_logits(problem: Problem, streams: Sequence[Streams], scale: float = 1e-3) -> Tensor:
    """Architecture parameters [repeats, simplices, longest], as DARTS draws them: `scale` times standard normal."""
    drawn = torch.stack([torch.randn(simplices_shape(problem.space), generator=s["architecture"]) for s in streams])
    return (scale * drawn).to(problem.device)


def open_logits(space: Space, belief: Mapping[str, Tensor], logits: Tensor) -> Tensor:
    """Logits [repeats, simplices, longest] with -inf for options that do not exist, or were left out by a stage."""
    existing = masked(logits, relaxation_of(space).simplices)
    return existing.masked_fill(~belief[OPEN], -torch.inf) if OPEN in belief else existing


def by_simplex(space: Space, weights: Tensor) -> Soft:
    """Weights [repeats, simplices, longest] as a view."""
    return Soft(tuple(weights[:, k, : len(simplex)] for k, simplex in enumerate(relaxation_of(space).simplices)))


def prior_loss(problem: Problem, belief: Distribution, examples: int) -> Tensor | float:
    """-E[log prior], a share of `examples`, to be added to a mean loss: where cost has a price, the cost expected.

    Where weights of edges are learnt there is no prior, and the cost is that of the mixture: every option's by weight.
    """
    if belief.factors != problem.space.decisions:
        if problem.price is None:
            return 0.0
        priced = zip(belief.mean_weights(), problem.price.simplices, strict=True)
        return sum((weights * price).sum(-1) for weights, price in priced)
    table = problem.prior.log_probs
    return sum(-(p * table[k, : p.shape[-1]]).sum(-1) for k, p in enumerate(belief.mean_weights())) / examples
