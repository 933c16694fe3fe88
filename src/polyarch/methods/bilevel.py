"""The two levels that DARTS and its relatives share: weights w on training data, belief on what they then achieve.

Belief minimises the loss of a validation batch (3.9 of the SoTL thesis): in first order with w as it is, in second
order with w one step ahead (3.10 to 3.12). Or it minimises the sum over T training losses, SoTL (Algorithm 3): roll T
steps of w out while summing belief's gradients (3.21), move belief, put w back, and make the T steps again. The exact
gradient of that sum looks through the T steps as well (3.18 to 3.20).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call

from polyarch import distributed
from polyarch.core import Batch, Feed, FeedSpec, Info, Problem, Stage, State, gradients
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import masked
from polyarch.errors import PolyarchError
from polyarch.methods import pdarts
from polyarch.methods.sharing import WeightSharing, loss
from polyarch.settings import at_least, positive
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.darts import SKIP_DROPOUT, Darts
from polyarch.spaces.views import Soft
from polyarch.streams import Streams
from polyarch.training.curvature import hessian
from polyarch.training.optimisers import adam, adam_buffers, momentum_buffers
from polyarch.training.snapshots import Snapshot

Gradients = list[Tensor]


@dataclass(frozen=True, kw_only=True)
class Bilevel(WeightSharing, ABC):
    """What belief minimises, and the order of a step; a subclass says how belief mixes operations and how it moves."""

    objective: Literal["valid", "sotl", "sovl"] = "valid"
    """What belief minimises: the loss of one `valid` batch, the sum of T training losses (`sotl`), or of T validation
    losses, each after a training step (`sovl`)."""
    order: Literal["first", "second", "exact"] = "first"
    """Of belief's gradient: w as it is (`first`); of the `valid` objective, w one step ahead (`second`); of `sotl`,
    through all T steps of w (`exact`, which keeps T steps in memory)."""
    steps: int = 100
    """T, the steps of a roll-out of `sotl` and `sovl` (thesis section 4.3); an epoch's last one has what is left."""
    weights_only: int = 0
    """In so many first epochs (of every stage) belief rests and weights are trained alone (P-DARTS: 10)."""
    progressive: str = ""
    """Stages of P-DARTS on the space darts, as LAYERS:OPERATIONS:DROPOUT,... with `epochs` each; empty is one stage.
    The paper's are 5:8:0.1,11:5:0.4,17:3:0.7."""
    skips: int = 2
    """With `progressive`, at most so many skips in the normal cell that is read out (P-DARTS)."""
    restore: Literal["weights", "all"] = "weights"
    """What a roll-out puts back: weights and batch-norm statistics (the thesis's code, where momentum goes on), or the
    optimiser's state as well."""
    curvature: bool = False
    """Whether every evaluation also measures the architecture Hessian: its largest eigenvalue and its trace, exactly,
    on one batch of the data that belief sees. It takes a pass back for every architecture parameter."""
    belief_rate: float = 3e-4
    """Learning rate of Adam, betas 0.5 and 0.999, on belief's parameters (DARTS)."""
    belief_decay: float = 1e-3
    """L2 on belief's parameters (DARTS)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "steps")
        at_least("belief_rate", self.belief_rate, 0)
        at_least("belief_decay", self.belief_decay, 0)
        at_least("skips", self.skips, 0)
        if not 0 <= self.weights_only < self.epochs:
            raise PolyarchError(
                f"weights_only is {self.weights_only} of {self.epochs} epochs; leave some in which belief moves"
            )
        self._check_order()
        if self.progressive:
            pdarts.parts(self.progressive)

    def _check_order(self) -> None:
        orders = {"valid": ("first", "second"), "sotl": ("first", "exact"), "sovl": ("first",)}[self.objective]
        if self.order not in orders:
            raise PolyarchError(
                f"order={self.order} is not for objective={self.objective}, which has {' and '.join(orders)} alone"
            )
        if self.order == "exact" and (self.clip or self.progressive):
            raise PolyarchError("order=exact looks through steps without clipping and dropout; set clip=0, one stage")
        if self.order == "exact" and distributed.size() > 1:
            raise PolyarchError("order=exact runs in one process; start it without torchrun, or use order=first")

    def check(self, space: Space) -> None:
        """Stages are of the space darts, whose networks can grow."""
        if self.progressive and not isinstance(space, Darts):
            raise PolyarchError(f"progressive stages are for the space darts, not {space.name!r}; set progressive=")

    @property
    def draws(self) -> int:
        """How often belief is drawn for one gradient of it."""
        return 1

    @abstractmethod
    def first_belief(self, problem: Problem, streams: Sequence[Streams]) -> dict[str, Tensor]:
        """Belief's parameters before the first step; those that require a gradient are what a step moves."""

    @abstractmethod
    def mixture(self, space: Space, belief: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Soft:
        """The mixture of one pass, differentiable in belief.

        Args:
            space: whose simplices are mixed.
            belief: the tensors of `State.belief`.
            given: the noise of that pass, with a leading axis of repeats, and the epoch's rates.
        """

    def noise(self, problem: Problem, generator: torch.Generator, passes: int) -> dict[str, Tensor]:
        """What `mixture` needs for so many passes, with a leading axis of them; nothing where belief is not drawn."""
        return {}

    def move_belief(self, problem: Problem, state: State, found: Sequence[Gradients], feed: Feed) -> None:
        """Moves belief, given its gradients at every draw; by Adam on their mean."""
        mean = [torch.stack(parts).mean(0) for parts in zip(*found, strict=True)]
        rate = feed.rates["belief"]
        adam(moving(state), mean, state.optimiser, "belief", rate=rate, weight_decay=self.belief_decay)

    # -- what a method must have -------------------------------------------------------------------------------------

    def stages(self, space: Space) -> tuple[Stage, ...]:
        """One, or those of P-DARTS."""
        if not self.progressive:
            return super().stages(space)
        assert isinstance(space, Darts)
        return tuple(Stage(own, self.epochs) for own in pdarts.spaces(self.progressive, space, self.skips))

    def takes_prior(self, space: Space) -> bool:
        """Not where weights of edges are learnt and architectures are read out of them."""
        return space.relaxation is None or space.relaxation.simplices == space.decisions

    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        """One batch of each kind, or T of them."""
        if self.objective == "valid":
            return super().feeds(problem)
        size = self.size(problem, "train", *(["valid"] if self.objective == "sovl" else []))
        steps = min(self.steps, max(problem.train_size // size, 1))
        feeds = {"train": FeedSpec("train", size, steps, shorter=True)}
        if self.objective == "sovl":
            feeds["search"] = FeedSpec("valid", size, min(steps, len(problem.data["valid"]) // size))
        return feeds

    def draw(self, problem: Problem, streams: Streams) -> dict[str, Tensor]:
        """How images are changed, belief's noise for every pass of a step, and the seeds of dropout on skips."""
        steps = self.feeds(problem)["train"].count
        passes = {"valid": self.draws + 1, "sotl": steps, "sovl": 2 * steps}[self.objective]
        found = {f"noise/{n}": v for n, v in self.noise(problem, streams["architecture"], passes).items()}
        if self.progressive:
            found["dropout"] = torch.randint(2**31, (passes,), generator=streams["noise"])
        return super().draw(problem, streams) | found

    def rates(self, epoch: int) -> dict[str, float]:
        """See `Method.rates`; with stages also the share of their dropout that is left."""
        found = super().rates(epoch) | {"belief": self.belief_rate}
        if self.progressive:
            found["dropout"] = pdarts.fading(epoch, self.epochs, self.weights_only)
        return found

    def phase(self, epoch: int) -> str:
        """`weights` while belief rests."""
        return "weights" if epoch < self.weights_only else ""

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights and belief."""
        if problem.space.relaxation is None:
            raise PolyarchError(
                f"{self.name} mixes operations, and the space {problem.space.name!r} has no mixture of its options; "
                "use parsec, which runs one architecture at a time"
            )
        self.start(problem, streams)
        self._say_if_shorter(problem)
        belief = self.first_belief(problem, streams)
        if self.progressive:
            belief["open"] = self._open(problem, previous)
        state = State.of(problem.supernet, belief)
        movable = {name: value for name, value in state.belief.items() if value.requires_grad}
        state.optimiser = {**momentum_buffers(weights=state.weights), **adam_buffers(belief=movable)}
        return state

    def _open(self, problem: Problem, previous: State | None) -> Tensor:
        """Which options a stage begins with, bool [repeats, simplices, longest]: all, or the likeliest before it."""
        space = problem.space
        zeros = torch.zeros(problem.repeats, *simplices_shape(space), device=problem.data["train"].y.device)
        if previous is None:
            return masked(zeros, relaxation_of(space).simplices) == 0
        learnt = self.distribution(space, previous.belief).mean_weights()
        return pdarts.survivors(learnt, previous.belief["open"], pdarts.part_of(self.progressive, space).operations)

    def ready(self, problem: Problem, state: State) -> None:
        """Options that no repeat has left are not run any more."""
        if self.progressive:
            rows = zip(relaxation_of(problem.space).simplices, state.belief["open"].any(0).tolist(), strict=True)
            left = {simplex.name: [k for k, is_open in enumerate(row) if is_open] for simplex, row in rows}
            problem.supernet.keep_running(left)

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """Belief first, then w (DARTS, Algorithm 1); or w alone, while belief rests."""
        problem.supernet.train()
        if feed.phase == "weights":
            return self._weights_alone(problem, state, feed)
        run = self._one_batch if self.objective == "valid" else self._rolled_out
        return run(problem, state, feed)

    def watch(self, problem: Problem, state: State) -> dict[str, Tensor]:
        """See `WeightSharing.watch`; with `curvature`, also how sharp the loss is in belief's parameters."""
        found = super().watch(problem, state)
        if not self.curvature:
            return found
        [(name, value)] = [(name, value) for name, value in state.belief.items() if value.requires_grad]
        batch = next(problem.passes("train" if self.objective == "sotl" else "valid", self.batch_size))
        kept = Snapshot(state.buffers.values())
        problem.supernet.train()

        def at(point: Tensor) -> Tensor:
            belief = self.distribution(problem.space, {**state.belief, name: point})
            return loss(problem, batch, Soft(belief.mean_weights()))

        matrix = hessian(at, value)
        kept.restore()
        largest = torch.linalg.eigvalsh(matrix)[:, -1]
        return found | {"hessian_eigenvalue": largest, "hessian_trace": matrix.diagonal(dim1=1, dim2=2).sum(-1)}

    def _say_if_shorter(self, problem: Problem) -> None:
        """Where roll-outs of T steps do not fill an epoch: how long the last is."""
        spec = self.feeds(problem)["train"]
        batches = problem.train_size // spec.size
        if self.objective != "valid" and batches % self.steps and distributed.rank() == 0:
            said = f"an epoch has {batches} batches: its last roll-out has {batches % self.steps} steps"
            print(f"polyarch: {said}, not {self.steps}", file=sys.stderr)

    def _view(self, problem: Problem, state: State, feed: Feed, k: int, *, moves: bool) -> Soft:
        """The mixture of pass k; gradients flow into belief only where it `moves`."""
        belief = state.belief if moves else {name: value.detach() for name, value in state.belief.items()}
        return self.mixture(problem.space, belief, {**noise_of(feed, k), **feed.rates})

    def _loss(self, problem: Problem, state: State, feed: Feed, batch: Batch, k: int, *, moves: bool) -> Tensor:
        """The loss of a batch in pass k; see `_view`."""
        kept = None
        if self.progressive:
            rate = pdarts.part_of(self.progressive, problem.space).dropout * feed.rates["dropout"]
            seeds = feed.draws["dropout"][:, k].double()
            kept = {SKIP_DROPOUT: torch.stack([rate.double().expand_as(seeds), seeds], -1)}
        return loss(problem, batch, self._view(problem, state, feed, k, moves=moves), kept)

    def _weights_alone(self, problem: Problem, state: State, feed: Feed) -> Info:
        batches = [self.batch(problem, feed, "train", k) for k in range(len(feed.batches["train"]))]
        fits = [self._train(problem, state, feed, batch, k) for k, batch in enumerate(batches)]
        examples = batches[0].y.shape[-1] * distributed.size() * len(batches)
        return Info({"log_likelihood": -torch.stack(fits).mean(0)}, forward=examples, backward=examples)

    def _one_batch(self, problem: Problem, state: State, feed: Feed) -> Info:
        train, search = self.batch(problem, feed, "train"), self.batch(problem, feed, "search")
        found, judged = [], []
        for k in range(self.draws):
            if self.order == "first":
                fit = self._loss(problem, state, feed, search, k, moves=True)
                found.append(gradients(fit + self._prior(problem, state, "valid"), moving(state)))
            else:
                own, fit = self._second_order(problem, state, feed, train, search, k)
                found.append(own)
            judged.append(fit.detach())
        self.move_belief(problem, state, found, feed)
        fit = self._train(problem, state, feed, train, self.draws)
        examples = train.y.shape[-1] * distributed.size()
        passes = examples * (1 + self.draws * (1 if self.order == "first" else 4))
        metrics = {"log_likelihood": -fit, "search_log_likelihood": -torch.stack(judged).mean(0)}
        return Info(metrics, forward=passes, backward=passes)

    def _train(self, problem: Problem, state: State, feed: Feed, batch: Batch, k: int) -> Tensor:
        """One step of w under the belief of now; gives the loss before it."""
        fit = self._loss(problem, state, feed, batch, k, moves=False)
        self.move_weights(state, gradients(fit, list(state.weights.values())), feed.rates["weights"])
        return fit.detach()

    def _prior(self, problem: Problem, state: State, split: str) -> Tensor | float:
        return prior_loss(problem, self.distribution(problem.space, state.belief), len(problem.data[split]))

    def _second_order(
        self, problem: Problem, state: State, feed: Feed, train: Batch, search: Batch, k: int
    ) -> tuple[Gradients, Tensor]:
        """The gradient of the validation loss after one step of w (3.11), its mixed part by central difference (3.12).

        w' = w - rate (momentum v + dL/dw + decay w), as the DARTS code looks ahead. Belief is drawn once for all of it.
        """
        weights, rate = list(state.weights.values()), feed.rates["weights"]
        before = Snapshot([*weights, *state.buffers.values()])
        ahead = gradients(self._loss(problem, state, feed, train, k, moves=False), weights)
        with torch.no_grad():
            for name, weight, slope in zip(state.weights, weights, ahead, strict=True):
                momentum = self.momentum * state.optimiser[f"weights.{name}"]
                weight.sub_(rate * (momentum + slope + self.weight_decay * weight))
        judged = self._loss(problem, state, feed, search, k, moves=True)
        movable = moving(state)
        found = gradients(judged + self._prior(problem, state, "valid"), [*movable, *weights])
        direct, direction = found[: len(movable)], found[len(movable) :]
        before.restore()

        def train_gradients() -> Gradients:
            return gradients(self._loss(problem, state, feed, train, k, moves=True), movable)

        mixed = mixed_product(train_gradients, weights, direction)
        before.restore()
        return [d - rate * m for d, m in zip(direct, mixed, strict=True)], judged

    def _rolled_out(self, problem: Problem, state: State, feed: Feed) -> Info:
        """Algorithm 3: the T steps are made twice, and belief moves in between."""
        weights, movable = list(state.weights.values()), moving(state)
        batches = [self.batch(problem, feed, "train", k) for k in range(len(feed.batches["train"]))]
        kept = [*weights, *state.buffers.values()]
        if self.restore == "all":
            kept += [value for name, value in state.optimiser.items() if name.startswith("weights.")]
        before = Snapshot(kept)
        if self.order == "exact":
            summed = self._through_steps(problem, state, feed, batches)
        else:
            summed = self._along_steps(problem, state, feed, batches)
        before.restore()
        prior = self._prior(problem, state, "train" if self.objective == "sotl" else "valid")
        if isinstance(prior, Tensor):
            torch._foreach_add_(summed, gradients(len(batches) * prior, movable))
        self.move_belief(problem, state, [summed], feed)
        fits = [self._train(problem, state, feed, batch, k) for k, batch in enumerate(batches)]
        examples = batches[0].y.shape[-1] * distributed.size() * len(batches) * (3 if self.objective == "sovl" else 2)
        return Info({"log_likelihood": -torch.stack(fits).mean(0)}, forward=examples, backward=examples)

    def _along_steps(self, problem: Problem, state: State, feed: Feed, batches: Sequence[Batch]) -> Gradients:
        """The sum of belief's direct gradients while w takes its T steps (3.21)."""
        weights, movable = list(state.weights.values()), moving(state)
        summed = [torch.zeros_like(value, requires_grad=False) for value in movable]
        for k, batch in enumerate(batches):
            if self.objective == "sotl":
                found = gradients(self._loss(problem, state, feed, batch, k, moves=True), [*movable, *weights])
                self.move_weights(state, found[len(movable) :], feed.rates["weights"])
            else:
                self._train(problem, state, feed, batch, k)
                search = self.batch(problem, feed, "search", k % len(feed.batches["search"]))
                found = gradients(self._loss(problem, state, feed, search, len(batches) + k, moves=True), movable)
            torch._foreach_add_(summed, found[: len(movable)])
        return summed

    def _through_steps(self, problem: Problem, state: State, feed: Feed, batches: Sequence[Batch]) -> Gradients:
        """The gradient of the sum of losses, through the T steps that w takes, momentum and decay among them (3.20)."""
        weights = {name: value.detach().requires_grad_() for name, value in state.weights.items()}
        velocity = {name: state.optimiser[f"weights.{name}"].clone() for name in weights}
        total = torch.zeros(problem.repeats, device=problem.data["train"].y.device)
        for k, batch in enumerate(batches):
            outputs = functional_call(
                problem.supernet, weights, (batch.x, self._view(problem, state, feed, k, moves=True))
            )
            fit = -problem.likelihood.log_likelihood(outputs, batch.y).mean(-1)
            total = total + fit
            slopes = torch.autograd.grad(fit.sum(), list(weights.values()), create_graph=True, materialize_grads=True)
            for (name, weight), slope in zip(list(weights.items()), slopes, strict=True):
                decayed = slope + self.weight_decay * weight
                velocity[name] = self.momentum * velocity[name] + decayed
                ahead = decayed + self.momentum * velocity[name] if self.nesterov else velocity[name]
                weights[name] = weight - feed.rates["weights"] * ahead
        return gradients(total, moving(state))


def moving(state: State) -> list[Tensor]:
    """Belief's tensors that have gradients."""
    return [value for value in state.belief.values() if value.requires_grad]


def noise_of(feed: Feed, k: int) -> dict[str, Tensor]:
    """Belief's noise of pass k, by the names of `Bilevel.noise`: [repeats, ...]."""
    return {name.removeprefix("noise/"): v[:, k] for name, v in feed.draws.items() if name.startswith("noise/")}


def mixed_product(belief_gradients: Callable[[], Gradients], weights: Gradients, direction: Gradients) -> Gradients:
    """d2 L / d belief d w times a direction in w (3.12), by central difference; the weights are left moved.

    The step is 0.01 over the direction's norm, each repeat's own.
    """
    squares = torch.stack([d.flatten(1).square().sum(1) if d.dim() > 1 else d.square() for d in direction])
    # Where a validation batch is fitted perfectly the direction is 0 or nearly, and so is the product.
    size = 0.01 / squares.sum(0).sqrt().clamp_min(1e-12)

    def shifted(by: float) -> Gradients:
        with torch.no_grad():
            for weight, d in zip(weights, direction, strict=True):
                weight.add_(by * _along(size, d) * d)
        return belief_gradients()

    above, below = shifted(1.0), shifted(-2.0)
    return [(a - b) / (2 * _along(size, a)) for a, b in zip(above, below, strict=True)]


def _along(values: Tensor, like: Tensor) -> Tensor:
    """[repeats] so that it multiplies [repeats, ...]."""
    return values.view(-1, *[1] * (like.dim() - 1))


def simplices_shape(space: Space) -> tuple[int, int]:
    """[simplices, longest], of what is learnt."""
    simplices = relaxation_of(space).simplices
    return len(simplices), max(len(simplex) for simplex in simplices)


def first_logits(problem: Problem, streams: Sequence[Streams], scale: float = 1e-3) -> Tensor:
    """Architecture parameters [repeats, simplices, longest], as DARTS draws them: `scale` times standard normal."""
    drawn = torch.stack([torch.randn(simplices_shape(problem.space), generator=s["architecture"]) for s in streams])
    return (scale * drawn).to(problem.data["train"].y.device)


def open_logits(space: Space, belief: Mapping[str, Tensor], logits: Tensor) -> Tensor:
    """Logits [repeats, simplices, longest] with -inf for options that do not exist, or were left out by a stage."""
    existing = masked(logits, relaxation_of(space).simplices)
    return existing.masked_fill(~belief["open"], -torch.inf) if "open" in belief else existing


def by_simplex(space: Space, weights: Tensor) -> Soft:
    """Weights [repeats, simplices, longest] as a view."""
    return Soft(tuple(weights[:, k, : len(simplex)] for k, simplex in enumerate(relaxation_of(space).simplices)))


def prior_loss(problem: Problem, belief: Distribution, examples: int) -> Tensor | float:
    """-E[log prior], a share of `examples`, to be added to a mean loss."""
    if belief.factors != problem.space.decisions:
        return 0.0
    table = problem.prior.log_probs
    return sum(-(p * table[k, : p.shape[-1]]).sum(-1) for k, p in enumerate(belief.mean_weights())) / examples
