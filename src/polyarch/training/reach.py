"""How far belief can go in a search that learns it by Adam, where a parameter moves about its learning rate in a step.

Published rates of architecture parameters are for some 20,000 steps. In a search of 450, alpha of DARTS moves by 0.135,
and softmax(alpha) over five operations from 0.2 to 0.25 at most, whatever the data say.
"""

from __future__ import annotations

import logging
import math
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch

from polyarch.core import Method, Problem, State
from polyarch.spaces.views import one_hot
from polyarch.training.natural import NaturalGradient
from polyarch.training.optimisers import Adam

logger = logging.getLogger("polyarch")

FORMED = 0.75
"""Belief that cannot give this share to any option cannot form."""
FAR = 6.0
"""Softmax is nearly one-hot once its logits are twice as far apart: nothing needs to go further."""
FASTEST = 0.1
"""Above this rate, Adam's first steps alone would decide."""


class Published(NamedTuple):
    """How a paper learns belief: in so many steps at such a rate."""

    lr: float
    steps: int


@runtime_checkable
class StepsByRate(Protocol):
    """A method whose belief moves by about `arch.lr` in a step."""

    published: ClassVar[Published]

    @property
    def arch(self) -> Adam | NaturalGradient:
        """How belief is trained."""

    def belief_steps(self, problem: Problem) -> int:
        """How many steps belief makes in an epoch in which it moves; 0 where `arch.lr` does not bound them."""

    def belief_epochs(self) -> int:
        """Epochs of a stage in which belief moves."""


@torch.no_grad()
def largest_share(method: Method, problem: Problem, state: State, distance: float) -> float:
    """The largest share of an option once all parameters of belief have moved by `distance`, each to help one option.

    That option is, in every simplex, the one that has the largest share now.
    """
    now = method.distribution(problem.space, state.belief).mean_weights()
    best = torch.stack([weights.argmax(-1) for weights in now], -1)  # [repeats, simplices]
    moved = {
        name: value + distance * (2 * one_hot(best, value.shape[-1]).to(value) - 1) if value.requires_grad else value
        for name, value in state.belief.items()
    }
    weights = method.distribution(problem.space, moved).mean_weights()
    return max(own.max().item() for own in weights)


def say_if_too_short(method: Method, problem: Problem, state: State) -> None:
    """Says before a search begins that its belief cannot form, and what would let it go as far as in the paper."""
    if not isinstance(method, StepsByRate) or not method.arch.lr:
        return
    lr, each, epochs = method.arch.lr, method.belief_steps(problem), method.belief_epochs()
    share = largest_share(method, problem, state, lr * each * epochs)
    if not each or share >= FORMED:
        return
    far = min(method.published.lr * method.published.steps, FAR)
    longer = method.epochs - epochs + math.ceil(far / (lr * each))
    faster = far / (each * epochs)
    logger.warning(
        "belief cannot form: %d steps at arch.lr=%g leave every option a share below %.2f, whatever the data say (its "
        "paper: %s steps at %g); epochs=%d would let it%s",
        *(each * epochs, lr, share + 0.005, f"{method.published.steps:,}", method.published.lr, longer),
        f", as would arch.lr={faster:.2g}, but see docs/methods.md" if faster <= FASTEST else "",
    )
