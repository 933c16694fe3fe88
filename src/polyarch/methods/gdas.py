"""GDAS: one operation an edge, drawn by Gumbel noise at a falling temperature, with straight-through gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyarch.core import Problem
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.methods.bilevel import Bilevel, by_simplex, first_logits, open_logits, simplices_shape
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.views import Soft, one_hot
from polyarch.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Gdas(Bilevel):
    """Learns a categorical an edge; every pass runs one draw of it."""

    name: ClassVar[str] = "gdas"

    epochs: int = 250
    """Passes over the training data (searches on NAS-Bench-201)."""
    temperature: float = 10.0
    """Of the Gumbel softmax in the first epoch."""
    last_temperature: float = 0.1
    """In the last epoch; it falls linearly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.last_temperature <= self.temperature:
            raise PolyarchError(
                f"temperatures must fall and stay positive; temperature is {self.temperature}, last_temperature "
                f"{self.last_temperature}"
            )

    def first_belief(self, problem: Problem, streams: Sequence[Streams]) -> dict[str, Tensor]:
        """Alpha is 1e-3 times standard normal."""
        return {"alpha": first_logits(problem, streams).requires_grad_()}

    def rates(self, epoch: int) -> dict[str, float]:
        """See `Method.rates`; among them the temperature."""
        share = epoch / max(self.epochs - 1, 1)
        falling = self.temperature + (self.last_temperature - self.temperature) * share
        return super().rates(epoch) | {"temperature": falling}

    def noise(self, problem: Problem, generator: torch.Generator, passes: int) -> dict[str, Tensor]:
        """Gumbel noise for every option."""
        shape = (passes, *simplices_shape(problem.space))
        uniform = torch.rand(shape, generator=generator).clamp_min(torch.finfo(torch.float32).tiny)
        return {"gumbel": -(-uniform.log()).log()}

    def mixture(self, space: Space, belief: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Soft:
        """One operation an edge; its weight is 1, and has the gradient of its Gumbel-softmax probability."""
        logits = open_logits(space, belief, belief["alpha"]).log_softmax(-1)
        probs = ((logits + given["gumbel"]) / given["temperature"]).softmax(-1)
        hot = one_hot(probs.argmax(-1), probs.shape[-1])
        # Operations that were not drawn have weight 0 and no gradient, as where they are not run at all. The difference
        # is taken first, so that the weight is 1 without rounding.
        return by_simplex(space, hot * (1 + (probs - probs.detach())))

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        """Softmax of alpha for every edge, from which architectures are read out."""
        relaxation = relaxation_of(space)
        return relaxation.belief(Categorical(relaxation.simplices, open_logits(space, belief, belief["alpha"])))
