"""Fine-tuning candidates for a few minibatches from the supernet's weights, and scores that are read from it.

One pass over a candidate serves every score with the same recipe, at any number of steps up to its length: the batches
come in one fixed order, so that a short pass is the beginning of a long one (seed 002, section 4.2).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from polyarch.scores.base import Candidate, Need, Score, answer, chance
from polyarch.scores.curves import Clock, Curve, Look, Seen, Tuning, part_of
from polyarch.scores.together import go_together, tuned_together
from polyarch.settings import Positive, at_least
from polyarch.training.calibration import calibration_batches, recalibrate

_PASS = 1024
"""Examples of a forward pass when nothing is learnt."""


def fine_tuned(
    candidates: Sequence[Candidate],
    steps: int,
    tuning: Tuning,
    generator: torch.Generator,
    *,
    looks: Collection[Look] = (),
    gradients: bool = False,
) -> list[Curve]:
    """Fine-tunes a copy of each candidate's network and says how it went; many at once where that pays.

    Every candidate starts from the supernet's weights with a fresh optimiser, and sees the same batches in the same
    order (`Candidate.batches`). Neither the supernet nor torch's own chance is touched.

    Args:
        candidates: with weights and training data; with validation data where there are looks.
        steps: how many minibatches; 0 only looks.
        tuning: the recipe.
        generator: for networks that draw while they are trained, such as dropout; one seed for all candidates.
        looks: when and how to look at validation data.
        gradients: whether to measure gradients as well, which takes a little time and the memory of the weights.

    Returns:
        A curve a candidate.
    """
    tuning.check()
    at_least("steps", min([steps, *(look.step for look in looks)]), 0)
    assert all(look.step <= steps for look in looks), "a look comes after the last step"
    seed = int(torch.randint(2**62, (), generator=generator))
    if go_together(candidates):
        return _many(candidates, steps, tuning, looks, gradients)
    found = []
    for candidate in candidates:
        with chance(torch.Generator().manual_seed(seed)):
            found.append(_one(candidate, steps, tuning, looks, gradients))
    return found


def _many(
    candidates: Sequence[Candidate], steps: int, tuning: Tuning, looks: Collection[Look], gradients: bool
) -> list[Curve]:
    """All at once; where memory is too small, in two parts."""
    try:
        return tuned_together(candidates, steps, tuning, looks, gradients)
    except torch.OutOfMemoryError:
        if len(candidates) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(candidates) // 2
    return [
        curve
        for part in (candidates[:half], candidates[half:])
        for curve in _many(part, steps, tuning, looks, gradients)
    ]


def _one(candidate: Candidate, steps: int, tuning: Tuning, looks: Collection[Look], gradients: bool) -> Curve:
    clock = Clock(candidate.device)
    network = candidate.inherited().train()
    trained = [p for p in network.parameters() if p.requires_grad]
    optimiser = _sgd(trained, tuning) if steps and trained else None  # a network may be without weights
    batches = candidate.batches(tuning.batch_size)
    watched = _Gradients(trained) if gradients else None
    seen: dict[Look, Seen] = {}
    losses: list[Tensor] = []
    start_seconds = clock.lap()
    step_seconds = gradient_seconds = 0.0
    for step in range(steps + 1):
        for look in looks:
            if look.step == step:
                loss, measure = _looked(candidate, network, look)
                seen[look] = Seen(loss, measure, clock.lap())
        if step == steps:
            break
        loss_now = candidate.loss_of(network, next(batches))
        losses.append(loss_now.detach())
        if optimiser:
            optimiser.zero_grad()
            loss_now.backward()
        if watched:
            step_seconds += clock.lap()
            watched.add()
            gradient_seconds += clock.lap()
        if optimiser:
            optimiser.step()
        if any(look.step == step + 1 for look in looks) or step + 1 == steps:
            step_seconds += clock.lap()
    return Curve(
        losses=_numbers(losses),
        start_seconds=start_seconds,
        step_seconds=step_seconds,
        gradient_norms=_numbers(watched.norms) if watched else None,
        gradient_sums=_numbers(watched.sums) if watched else None,
        gradient_seconds=gradient_seconds,
        looks=seen,
    )


def _sgd(trained: list[nn.Parameter], tuning: Tuning) -> torch.optim.SGD:
    return torch.optim.SGD(trained, lr=tuning.rate, momentum=tuning.momentum, weight_decay=tuning.weight_decay)


def _numbers(scalars: list[Tensor]) -> Tensor:
    """Scalars as one tensor; read back together, since reading each would make a GPU wait at every step."""
    return torch.stack(scalars).double().cpu() if scalars else torch.zeros(0, dtype=torch.float64)


class _Gradients:
    """Adds up gradients, step by step."""

    def __init__(self, trained: list[nn.Parameter]) -> None:
        self._trained = trained
        self._sum = [torch.zeros_like(p, dtype=torch.float64) for p in trained]
        self.norms: list[Tensor] = []
        self.sums: list[Tensor] = []

    @torch.no_grad()
    def add(self) -> None:
        """Takes the gradients as they are now; a parameter that the loss does not reach has none."""
        for total, parameter in zip(self._sum, self._trained, strict=True):
            if parameter.grad is not None:
                total.add_(parameter.grad)
        self.norms.append(_size([p.grad for p in self._trained if p.grad is not None]))
        self.sums.append(_size(self._sum))


def _size(tensors: list[Tensor]) -> Tensor:
    """The L1 norm over all entries of all tensors, in double precision."""
    return sum((t.double().abs().sum() for t in tensors), start=torch.zeros((), dtype=torch.float64))


@torch.no_grad()
def _looked(candidate: Candidate, network: nn.Module, look: Look) -> tuple[float, float]:
    """Mean loss and measure on validation data, in evaluation mode; the network is afterwards as it was."""
    candidate.check("select")
    assert candidate.select is not None
    assert candidate.likelihood is not None
    judged = copy.deepcopy(network).eval() if look.recalibrate else network.eval()
    if look.recalibrate:
        candidate.check("train")
        assert candidate.train is not None
        recalibrate(judged, calibration_batches(candidate.train.x, seed=candidate.order))
    loss = measure = 0.0
    part = part_of(candidate.select, look.examples, candidate.order)
    for x, y in zip(part.x.split(_PASS), part.y.split(_PASS), strict=True):
        output = answer(judged, x)
        loss -= float(candidate.likelihood.log_likelihood(output, y).sum(dtype=torch.float64))
        measure += float(candidate.likelihood.measured(output, y).sum(dtype=torch.float64))
    network.train()
    return loss / len(part), measure / len(part)


# ---------------------------------------------------------------------------------------------------------------------
# Scores that are read from a curve.


@dataclass(frozen=True, kw_only=True)
class Tuned(Score, ABC):
    """A score that is read from the curve of a candidate; a subclass says how."""

    needs: ClassVar[frozenset[Need]] = frozenset({"weights", "train"})
    gradients: ClassVar[bool] = False
    """Whether it reads gradients."""

    steps: Positive = 100
    """Minibatches of fine-tuning (the thesis reports its estimators at 100)."""
    rate: float = 0.01
    """Constant learning rate (the thesis: 0.01 after single-path training, 0.001 after its variants)."""
    batch_size: int = 64
    """Training examples a minibatch (the thesis: 64)."""
    momentum: float = 0.9
    """Of the fresh optimiser (the thesis: 0.9)."""
    weight_decay: float = 5e-4
    """L2, on every weight (the thesis: 5e-4); it is not part of a loss or gradient that is read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tuning.check()

    @property
    def trained_examples(self) -> int:
        """See `Score.trained_examples`."""
        return self.steps * self.batch_size

    @property
    def tuning(self) -> Tuning:
        """Its recipe."""
        return Tuning(self.rate, self.batch_size, self.momentum, self.weight_decay)

    @property
    def looks(self) -> tuple[Look, ...]:
        """What it must see of validation data."""
        return ()

    @abstractmethod
    def read(self, curve: Curve) -> float:
        """Its number, from a curve of at least `steps` steps with its looks."""

    def seconds(self, curve: Curve) -> float:
        """What its number took of a curve's time."""
        return curve.seconds_of(self.steps)

    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        """See `Score.__call__`."""
        read = read_together([self], candidates, generator)
        return torch.tensor([value for [(value, _)] in read], dtype=torch.float64)


def read_together(
    scores: Sequence[Tuned], candidates: Sequence[Candidate], generator: torch.Generator
) -> list[list[tuple[float, float]]]:
    """Reads many scores from as few passes as their recipes allow: one for all that share a recipe.

    Args:
        scores: to be read; each as its own call would, for the same state of the generator.
        candidates: with what they need.
        generator: see `fine_tuned`.

    Returns:
        For every candidate, a number and its seconds for every score.
    """
    for score in scores:
        for candidate in candidates:
            score.check(candidate)
    state = generator.get_state()
    read: list[list[tuple[float, float]]] = [[(0.0, 0.0)] * len(scores) for _ in candidates]
    for tuning in dict.fromkeys(score.tuning for score in scores):
        own = {place: score for place, score in enumerate(scores) if score.tuning == tuning}
        generator.set_state(state)
        curves = fine_tuned(
            candidates,
            max(score.steps for score in own.values()),
            tuning,
            generator,
            looks=dict.fromkeys(look for score in own.values() for look in score.looks),
            gradients=any(score.gradients for score in own.values()),
        )
        for row, curve in zip(read, curves, strict=True):
            for place, score in own.items():
                row[place] = (score.read(curve), score.seconds(curve))
    return read
