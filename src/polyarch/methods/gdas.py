"""GDAS (Dong and Yang 2019): one operation per edge, drawn by Gumbel noise, with straight-through gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.core import Feed, Meaning, Problem, State
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical, gumbel_noise
from polyarch.errors import PolyarchError
from polyarch.methods.bilevel import (
    Bilevel,
    Gradients,
    by_simplex,
    first_logits,
    mean_gradients,
    moving,
    open_logits,
    simplices_shape,
)
from polyarch.settings import Positive, PositiveFloat
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.views import Soft, one_hot
from polyarch.streams import Streams
from polyarch.training.optimisers import DARTS_ARCH, Adam
from polyarch.training.reach import Published


@dataclass(frozen=True, kw_only=True)
class Gdas(Bilevel):
    """Learns one categorical per edge; every pass runs one draw of it."""

    name: ClassVar[str] = "gdas"
    meaning: ClassVar[Meaning] = Meaning(
        "mixing",
        "Mixing weights: how often each operation is drawn in the supernet, not how likely it is to be right.",
    )
    published: ClassVar[Published] = Published(
        lr=3e-4, steps=97_500
    )  # 250 epochs of 25,000 images in batches of 64, in searches on NAS-Bench-201

    epochs: Positive = 250
    """Passes over the training data (searches on NAS-Bench-201)."""
    arch: Adam = DARTS_ARCH
    """How alpha is trained (as in DARTS)."""
    temperature: PositiveFloat = 10.0
    """Of the Gumbel softmax in the first epoch."""
    last_temperature: PositiveFloat = 0.1
    """In the last epoch; it falls linearly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last_temperature > self.temperature:
            raise PolyarchError(
                f"temperatures must fall; temperature is {self.temperature}, last_temperature {self.last_temperature}"
            )

    @override
    def first_belief(self, problem: Problem, streams: Sequence[Streams]) -> dict[str, Tensor]:
        # 1e-3 times standard normal.
        return {"alpha": first_logits(problem, streams).requires_grad_()}

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        share = epoch / max(self.epochs - 1, 1)
        falling = self.temperature + (self.last_temperature - self.temperature) * share
        return super().schedule(epoch) | {"temperature": falling}

    @override
    def noise(self, problem: Problem, generator: torch.Generator, passes: int) -> dict[str, Tensor]:
        return {"gumbel": gumbel_noise((passes, *simplices_shape(problem.space)), generator)}

    @override
    def mixture(
        self, space: Space, belief: Mapping[str, Tensor], noise: Mapping[str, Tensor], schedule: Mapping[str, Tensor]
    ) -> Soft:
        """One operation per edge; its weight is 1, and has the gradient of its Gumbel-softmax probability."""
        logits = open_logits(space, belief, belief["alpha"]).log_softmax(-1)
        probs = ((logits + noise["gumbel"]) / schedule["temperature"]).softmax(-1)
        hot = one_hot(probs.argmax(-1), probs.shape[-1])
        # Operations that were not drawn have weight 0 and no gradient, as where they are not run at all. The difference
        # is taken first, so that the weight is 1 without rounding.
        return by_simplex(space, hot * (1 + (probs - probs.detach())))

    @override
    def move_belief(self, problem: Problem, state: State, found: Sequence[Gradients], feed: Feed) -> None:
        self.arch.step(state, moving(state), mean_gradients(found), feed.schedule["arch.lr"])

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        relaxation = relaxation_of(space)
        return relaxation.belief(Categorical(relaxation.simplices, open_logits(space, belief, belief["alpha"])))
