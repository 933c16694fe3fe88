"""What an exported file answers: under names, and the same of a network, of a mixture and of early exit."""

from __future__ import annotations

import inspect
from typing import Any, final

from torch import Tensor, nn

from polyarch.data.kinds import Inputs
from polyarch.data.likelihood import Classification, Likelihood
from polyarch.trees import called
from polyarch.uncertainty.early_exit import EarlyExit
from polyarch.uncertainty.ensemble import Ensemble
from polyarch.uncertainty.mixtures import Mixtures
from polyarch.uncertainty.predictive import Predictive

MEANINGS = {
    "output": "what the network says before anything is made of it: logits of classes or labels, the number to predict "
    "in its own unit, the logarithm of a rate",
    "mean": "what is predicted: the probability of each class or label, after the temperature, or the number itself",
    "std": "standard deviation of what is predicted: noise, and what members disagree about",
    "entropy": "all uncertainty of the prediction, in nats",
    "mutual_information": "what members disagree about, in nats",
    "depth": "after so many blocks the input was answered",
}
"""Of outputs, in the order in which they are given; a file has those of them that its likelihood tells."""


def input_names(inputs: Inputs) -> list[str]:
    """What an exported file calls its inputs: `x`, or where there are several their names, or `x0`, `x1`, ..."""
    if inputs.parts is None:
        return ["x"]
    return [f"x{name}" if inputs.parts.in_order else name for name in inputs.parts.names]


@final
class Answering(nn.Module):
    """A predictor on raw inputs, whose answers have names: `MEANINGS`."""

    def __init__(self, predictor: nn.Module, inputs: Inputs, likelihood: Likelihood, temperature: float) -> None:
        """Takes the predictor over.

        Args:
            predictor: an `Ensemble`, an `EarlyExit`, or any other network, whose outputs those of the likelihood are.
            inputs: which it takes, and which `forward` has as its arguments.
            likelihood: what outputs say of targets as they were read.
            temperature: what log-probabilities of classes are divided by.
        """
        super().__init__()
        self.predictor, self.likelihood, self.temperature = predictor, likelihood.unweighted, temperature
        if isinstance(predictor, Ensemble):  # members of weight 0 say nothing, not even what is no number
            self.kept = predictor.weights.nonzero().flatten().tolist()
        several, names = inputs.parts, input_names(inputs)
        by_name = several is not None and not several.in_order

        def forward(*given: Tensor, **named: Tensor) -> dict[str, Tensor]:
            return self._answers(named if by_name else given if several else given[0])

        kind = inspect.Parameter.KEYWORD_ONLY if by_name else inspect.Parameter.POSITIONAL_OR_KEYWORD
        forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind) for name in names]
        )  # torch.export asks for the names of arguments
        self.forward = forward

    def _answers(self, x: Any) -> dict[str, Tensor]:
        found: dict[str, Tensor]
        if isinstance(self.predictor, EarlyExit):
            exits = self.predictor.together(x)
            found = self._alone(exits.log_probs) | {"depth": exits.depth}
        elif isinstance(self.predictor, Ensemble):
            outputs, weights = self.predictor.members(x), self.predictor.weights
            if len(self.kept) < len(weights):
                outputs, weights = outputs[self.kept], weights[self.kept]
            found = self._mixed(outputs.double(), weights.double())
        else:
            output: Tensor = called(self.predictor, x)
            found = {"output": output} | self._alone(output.double())
        # Double precision within, since mutual information is a small difference; without, what networks have.
        return {name: found[name].float() if name != "depth" else found[name] for name in MEANINGS if name in found}

    def _alone(self, output: Tensor) -> dict[str, Tensor]:
        """What one output says."""
        likelihood, output = self.likelihood, output if self.temperature == 1 else output / self.temperature
        mean, variance = likelihood.mean(output), likelihood.variance(output)
        return _told(mean, None if variance is None else variance.sqrt(), entropy=likelihood.entropy(output))

    def _mixed(self, outputs: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """What members say together, as `predict` has it."""
        if not isinstance(self.likelihood, Classification):
            mixture = Mixtures(outputs, weights, self.likelihood)
            uncertain = {"entropy": mixture.entropy, "mutual_information": mixture.mutual_information}
            return _told(mixture.mean, mixture.std, **uncertain)
        said = Predictive.from_members(outputs.log_softmax(-1), weights)
        said = said if self.temperature == 1 else said.tempered(self.temperature)
        return {"mean": said.probs, "entropy": said.entropy, "mutual_information": said.mutual_information}


def _told(mean: Tensor, std: Tensor | None, **others: Tensor | None) -> dict[str, Tensor]:
    """Of what a likelihood tells, what there is; a deviation, as in `predict`, of single numbers alone."""
    found = {"mean": mean, "std": std if mean.dim() == 1 else None, **others}
    return {name: value for name, value in found.items() if value is not None}
