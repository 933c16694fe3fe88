"""Several labels per example, of which any number may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from torch import Tensor
from torch.nn.functional import logsigmoid
from typing_extensions import override

from polyarch.data.checks import Array, checked_targets, first_bad
from polyarch.data.likelihood import Likelihood
from polyarch.errors import PolyarchError

BETWEEN = "|"
"""What stands between labels that hold together, in CSV."""


@final
@dataclass(frozen=True)
class MultiLabel(Likelihood):
    """Labels that hold or do not, each by itself given an output, whose numbers are their logits.

    A mixture of networks tells more: that labels go together, where networks differ in several at once. Its
    log-likelihood is of all labels of an example together; its probabilities and entropies are of each by itself.
    """

    metric: ClassVar[str] = "hamming_accuracy"
    predicts: ClassVar[str] = "labels"

    labels: int = 0
    """How many there are; 0: as many as targets have columns."""

    @property
    @override
    def outputs(self) -> int:
        return self.labels

    @property
    @override
    def words(self) -> str:
        return f"any of {self.labels} labels"

    @override
    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        # log p = z - softplus(z) where a label holds, else -softplus(z); -softplus(z) is logsigmoid(-z).
        return (target * output + logsigmoid(-output)).sum(-1)

    @override
    def mixture(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """The logits of the mean probabilities."""
        logs = weights.log()[..., None, None]
        return (logsigmoid(outputs) + logs).logsumexp(0) - (logsigmoid(-outputs) + logs).logsumexp(0)

    @override
    def mean(self, output: Tensor) -> Tensor:
        """The probability of each label."""
        return output.sigmoid()

    @override
    def variance(self, output: Tensor) -> Tensor:
        return output.sigmoid() * (-output).sigmoid()

    @override
    def entropy(self, output: Tensor) -> Tensor:
        """Summed over labels."""
        return -(output.sigmoid() * logsigmoid(output) + (-output).sigmoid() * logsigmoid(-output)).sum(-1)

    @override
    def metric_values(self, output: Tensor, target: Tensor) -> Tensor:
        """The share of an example's labels that are told rightly."""
        return ((output > 0) == (target > 0)).to(output.dtype).mean(-1)

    @override
    def figures(self, mean: Tensor, target: Tensor) -> dict[str, float]:
        """`exact_match`, the share of examples all of whose labels are right; `f1`, the mean over labels."""
        said, true = mean > 0.5, target > 0
        hits, either = (said & true).sum(0).double(), said.sum(0) + true.sum(0)
        f1 = (2 * hits / either.clamp_min(1)).mean()  # 0 of a label that neither holds nor is told
        return {"exact_match": (said == true).all(-1).double().mean().item(), "f1": f1.item()}

    @override
    def columns(self, mean: Tensor, names: Sequence[str]) -> dict[str, list[Any]]:
        names = names or [str(place) for place in range(mean.shape[1])]
        held = [BETWEEN.join(name for name, p in zip(names, row, strict=True) if p > 0.5) for row in mean.tolist()]
        return {"labels": held} | {f"p({name})": p for name, p in zip(names, mean.T.tolist(), strict=True)}

    @override
    def checked(self, y: Array, what: str) -> Array:
        if y.ndim != 2 or y.shape[1] < 2 or (self.labels and y.shape[1] != self.labels):
            wanted = self.labels or "labels"
            raise PolyarchError(
                f"{what} has the shape {list(y.shape)}; give a column of 0 or 1 for every label: [n, {wanted}]"
            )
        y = checked_targets(y, what)
        first_bad(y, (y != 0) & (y != 1), what, "a label holds, 1, or does not, 0")
        return y

    @override
    def learn(self, y: Array) -> MultiLabel:
        return replace(self, labels=y.shape[1])
