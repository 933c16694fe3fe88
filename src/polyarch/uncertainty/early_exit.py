"""Early exit: every input by itself stops at the first depth that is sure enough of it.

At depth i an input is answered by the mixture cut there, as `Run.ensemble` has it: q(0), ..., q(i - 1), and all the
rest of belief on i. It leaves where that gives a class at least a chosen probability, and later blocks never see it. At
the last depth all leave, with the answer of the whole mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from polyarch.data.preprocess import Preprocess
from polyarch.spaces.stepwise import Steps
from polyarch.trees import called
from polyarch.uncertainty.arrays import takes_arrays
from polyarch.uncertainty.ensemble import Ensemble

BATCH = 1024


@final
@dataclass(frozen=True, eq=False)
class Exits:
    """What is said of inputs, and where they left."""

    log_probs: Tensor
    """[n, classes], of the mixture cut at the depth at which an input left."""
    depth: Tensor
    """[n] int64, how many blocks an input passed."""


@final
@dataclass(frozen=True, eq=False)
class ExitCurve:
    """Accuracy against mean depth: one point for every threshold that matters, those that save least first.

    At the first point nothing leaves before the last depth; at the last one everything leaves at the first.
    """

    threshold: Tensor
    """[points], falling; an input leaves at the first depth whose confidence is at least that."""
    depth: Tensor
    """[points], mean number of the depth at which inputs leave, from 0."""
    accuracy: Tensor
    """[points], share of right answers."""
    excess: Tensor
    """[points], of what leaves before the last depth: the share of wrong answers, less that which the last depth would
    give to the same inputs; 0 where nothing leaves."""
    together: Tensor
    """[depths], share of right answers where all inputs leave at the same depth."""

    def allowed(self, risk: float) -> int:
        """The point that saves most among those whose excess is at most `risk`."""
        return int((self.excess <= risk).nonzero()[-1])


@takes_arrays
def exit_curve(confidence: Tensor, correct: Tensor) -> ExitCurve:
    """The curve of accuracy against mean depth.

    Args:
        confidence: [depths, n], of what is said at each depth, the shallowest first; above 0.
        correct: [depths, n] bool, whether that is right.
    """
    last, n, right = len(confidence) - 1, confidence.shape[1], correct.double()
    earlier = confidence[:last].T.double()
    highest = torch.cat([torch.zeros(n, 1, dtype=torch.float64), earlier], 1).cummax(1).values
    records = highest[:, 1:] > highest[:, :-1]  # where a depth is surer than all before it: only there an input leaves
    row, to = records.nonzero().unbind(-1)
    # As the threshold falls past a record, the input comes to leave there, and no longer at its next one or at the end.
    off = torch.where(row == row.roll(-1), to.roll(-1), last)
    off[to >= off] = last  # an input's last record
    value, order = earlier[records].sort(descending=True)
    ends = torch.ones_like(value, dtype=torch.bool)
    ends[:-1] = value[1:] < value[:-1]  # of every group of equals

    def running(changes: Tensor) -> Tensor:
        return torch.cat([torch.zeros(1, dtype=torch.float64), changes[order].double().cumsum(0)[ends]])

    early, gained = running(off == last), running(right[to, row] - right[off, row])
    # Half way to the next value: rounding, which differs with the size of a batch, moves no input to another depth.
    values = torch.cat([value[ends], torch.zeros(1, dtype=torch.float64)])
    return ExitCurve(
        threshold=torch.cat([torch.full((1,), torch.inf, dtype=torch.float64), (values[1:] + values[:-1]) / 2]),
        depth=last + running(to - off) / n,
        accuracy=right[last].mean() + gained / n,
        excess=-gained / early.clamp_min(1),
        together=right.mean(1),
    )


def cut_mixtures(member_log_probs: Tensor, weights: Tensor) -> Tensor:
    """What the mixture says when it is cut at every depth: [depths, n, classes] -> the same.

    Args:
        member_log_probs: log-probabilities of every depth alone.
        weights: [depths], belief.
    """
    weights = weights.to(member_log_probs)
    mixed = (member_log_probs + weights.log()[:, None, None]).logcumsumexp(0)
    before = torch.cat([torch.full_like(mixed[:1], -torch.inf), mixed[:-1]])
    return torch.logaddexp(before, member_log_probs + _beyond(weights).log()[:, None, None])


def exit_curve_of(ensemble: Ensemble, x: Tensor, target: Tensor) -> ExitCurve:
    """The curve of a mixture of nested members, on raw inputs [n, ...] of known classes [n]; all on its device."""
    found = []
    for inputs, classes in zip(x.split(BATCH), target.split(BATCH), strict=True):
        with torch.no_grad():
            said = cut_mixtures(ensemble.members(inputs).double().log_softmax(-1), ensemble.weights)
        sure, predicted = said.max(-1)
        found.append((sure.exp().cpu(), (predicted == classes).cpu()))
    confidence, correct = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
    return exit_curve(confidence, correct)


def _beyond(weights: Tensor) -> Tensor:
    """The mass on each depth and all deeper ones."""
    return weights.flip(0).cumsum(0).flip(0)


@final
class EarlyExit(nn.Module):
    """The mixture on raw inputs, in which every input leaves at the first depth that is sure enough of it."""

    weights: Tensor

    def __init__(
        self, preprocess: Preprocess, network: nn.Module, weights: Tensor, least: int, threshold: float = torch.inf
    ) -> None:
        """Takes the network over.

        Args:
            preprocess: from raw inputs to what the network takes.
            network: what answers after every block (`Supernet.stepwise`).
            weights: [depths], belief; all beyond the last depth has been moved onto it.
            least: the number of blocks before the first answer.
            threshold: the probability of a class from which on an input leaves.
        """
        super().__init__()
        self.preprocess, self.network = preprocess, network.requires_grad_(False)
        self.register_buffer("weights", weights)
        self.least, self.threshold = least, threshold

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities [n, classes] of raw inputs [n, ...]."""
        return self.exits(x).log_probs

    @torch.no_grad()
    def exits(self, x: Tensor) -> Exits:
        """What is said of raw inputs [n, ...], in double precision, and where each left."""
        weights = self.weights.double()
        steps: Steps = called(self.network, self.preprocess(x))
        answer = next(steps)
        log_probs = torch.empty(answer.shape, dtype=torch.float64, device=x.device)
        depths = torch.empty(len(x), dtype=torch.int64, device=x.device)
        going, before = torch.arange(len(x), device=x.device), torch.full_like(log_probs, -torch.inf)
        for depth, (weight, beyond) in enumerate(zip(weights, _beyond(weights), strict=True)):
            own = answer.double().log_softmax(-1)
            said = torch.logaddexp(before, own + beyond.log())
            stays = (said.amax(-1).exp() < self.threshold) & (depth < len(weights) - 1)
            log_probs[going[~stays]], depths[going[~stays]] = said[~stays], self.least + depth
            if not stays.any():
                break
            going, before = going[stays], torch.logaddexp(before, own + weight.log())[stays]
            answer = steps.send(stays)
        return Exits(log_probs, depths)

    @torch.no_grad()
    def together(self, x: Tensor) -> Exits:
        """The same, where a batch stays together until all of it has left: so nothing branches by single inputs.

        It is what can be exported; a batch of one saves as many blocks as in `exits`.
        """
        weights = self.weights.double()
        steps: Steps = called(self.network, self.preprocess(x))
        answer = next(steps)
        before = log_probs = torch.full_like(answer, -torch.inf, dtype=torch.float64)
        depths = torch.full_like(answer[:, 0], self.least, dtype=torch.int64)
        going = depths >= 0
        for depth, (weight, beyond) in enumerate(zip(weights.unbind(), _beyond(weights).unbind(), strict=True)):
            own = answer.double().log_softmax(-1)
            said = torch.logaddexp(before, own + beyond.log())
            log_probs = torch.where(going[:, None], said, log_probs)
            depths = torch.where(going, self.least + depth, depths)
            if depth == len(weights) - 1:
                break
            going = going & (said.amax(-1).exp() < self.threshold)
            before = torch.logaddexp(before, own + weight.log())
            answer = steps.send(going.any())
        return Exits(log_probs, depths)
