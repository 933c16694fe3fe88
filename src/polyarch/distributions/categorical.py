"""Independent categorical decisions: the belief of depth search, PARSEC and every uniform sampler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Decision
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError


def pad(logits: Sequence[Tensor]) -> Tensor:
    """Stacks ragged logits [..., options_k] to [..., decisions, longest], the missing options at -inf."""
    longest = max(row.shape[-1] for row in logits)
    return torch.stack([F.pad(row, (0, longest - row.shape[-1]), value=-torch.inf) for row in logits], -2)


def masked(logits: Tensor, decisions: Sequence[Decision]) -> Tensor:
    """Logits [..., decisions, longest] with -inf for options that a decision does not have."""
    options = torch.arange(logits.shape[-1], device=logits.device)
    exists = torch.stack([options < len(d) for d in decisions])
    return logits.masked_fill(~exists, -torch.inf)


def gumbel_noise(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise: added to log-probabilities, the largest is a draw of the categorical."""
    uniform = torch.rand(tuple(shape), generator=generator).clamp_min(torch.finfo(torch.float32).tiny)
    return -(-uniform.log()).log()


@dataclass(frozen=True, eq=False)
class Categorical(Distribution):
    """A product of categoricals, one per decision.

    `logits` is [..., decisions, longest]; options that a decision does not have are at -inf. Probabilities are worked
    out once: make a new one when the logits have changed.
    """

    decisions: tuple[Decision, ...]
    logits: Tensor

    def __post_init__(self) -> None:
        longest = max(len(d) for d in self.decisions)
        if self.logits.shape[-2:] != (len(self.decisions), longest):
            raise PolyarchError(
                f"logits of shape {tuple(self.logits.shape)} do not fit {len(self.decisions)} decisions of up to "
                f"{longest} options; expected [..., {len(self.decisions)}, {longest}]"
            )

    @cached_property
    def log_probs(self) -> Tensor:
        """Normalised logits [..., decisions, longest]."""
        return self.logits.log_softmax(-1)

    @cached_property
    def _probs(self) -> Tensor:
        return self.logits.softmax(-1)

    @property
    @override
    def product(self) -> Categorical:
        """Itself."""
        return self

    @override
    def probs(self) -> dict[str, Tensor]:
        return {d.name: self._probs[..., k, : len(d)] for k, d in enumerate(self.decisions)}

    def mean_weights(self) -> tuple[Tensor, ...]:
        """The probabilities."""
        return tuple(self.probs().values())

    @override
    def log_prob(self, choices: Tensor) -> Tensor:
        table = self.log_probs.unsqueeze(-3).expand(*choices.shape, -1)
        return table.gather(-1, choices.unsqueeze(-1)).squeeze(-1).sum(-1)

    def entropy(self) -> Tensor:
        """Sum of the decisions' entropies."""
        return self.expected(-self.log_probs)  # not the negative of a sum: that of what is certain would be -0.0

    @override
    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    @override
    def kl(self, prior: Distribution) -> Tensor:
        """Exact, since both factorise alike."""
        if not isinstance(prior, Categorical) or prior.decisions != self.decisions:
            raise PolyarchError("this KL is exact only against a categorical prior over the same decisions")
        return self.expected(self.log_probs - prior.log_probs)

    @override
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        self._single("sample")
        return torch.multinomial(self._probs.cpu(), n, replacement=True, generator=generator).T.to(self.logits.device)

    def relax(self, n: int, generator: torch.Generator, temperature: float) -> tuple[Tensor, ...]:
        """Gumbel-softmax draws."""
        self._single("relax")
        gumbel = gumbel_noise((n, *self.logits.shape), generator).to(self.logits)
        soft = ((self.log_probs + gumbel) / temperature).softmax(-1)
        return tuple(soft[:, k, : len(d)] for k, d in enumerate(self.decisions))

    @override
    def repeat(self, index: int) -> Categorical:
        return Categorical(self.decisions, self.logits[index])

    def expected(self, values: Tensor) -> Tensor:
        """Sum over all options of probability times value; options that do not exist add 0, and no NaN gradient."""
        return (self._probs * values.masked_fill(self.logits == -torch.inf, 0)).sum((-1, -2))

    def _single(self, what: str) -> None:
        if self.logits.dim() != 2:
            raise PolyarchError(f"cannot {what} from the belief of several repeats at once; take repeat(k) first")
