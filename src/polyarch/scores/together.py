"""Fine-tuning many candidates at once: each is a repeat of one supernet, with weights of its own.

What comes out is what fine-tuning them one by one gives, to rounding. On a GPU a step of all of them is one launch,
which is many times faster; on a CPU it gains nothing (`bench.candidates`), and is not done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from polyarch.core import Info, gradients
from polyarch.data.task import Likelihood, Split
from polyarch.scores.base import Candidate
from polyarch.scores.curves import Clock, Curve, Look, Seen, Tuning, part_of
from polyarch.spaces.base import Supernet
from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.views import SparsePerRepeat
from polyarch.training.calibration import calibration_batches, recalibrate
from polyarch.training.capture import CapturedStep
from polyarch.training.optimisers import sgd

_PASS = 2**15
"""Examples of a forward pass when nothing is learnt, of all candidates."""


def go_together(candidates: Sequence[Candidate]) -> bool:
    """Whether to fine-tune these at once: on a GPU, of one supernet that folds repeats, on the same examples."""
    first = candidates[0] if candidates else None
    if first is None or first.supernet is None or not _runs_together(first.supernet) or first.device.type != "cuda":
        return False
    given = {(id(c.supernet), id(c.train), id(c.select), c.order) for c in candidates}
    return len(candidates) > 1 and len(given) == 1


def _runs_together(supernet: Supernet) -> bool:
    return supernet.repeats_run == "batched" and SparsePerRepeat in supernet.views


def tuned_together(
    candidates: Sequence[Candidate], steps: int, tuning: Tuning, looks: Collection[Look], measure: bool
) -> list[Curve]:
    """See `fine_tuned`; `measure` is whether to measure gradients. Every candidate has its share of the time."""
    clock = Clock(candidates[0].device)
    networks = _Networks(candidates)
    step = _Step(networks, candidates[0], tuning, measure) if steps else None
    seen: dict[Look, list[Seen]] = {}
    start_seconds = clock.lap()
    step_seconds = 0.0
    told: dict[str, list[Tensor]] = {"losses": [], "norms": [], "sums": []}
    for number in range(steps + 1):
        for recalibrated in (False, True):
            now = [look for look in looks if look.step == number and look.recalibrate == recalibrated]
            seen |= _looked(networks, candidates[0], now, clock) if now else {}
        if step is None or number == steps:
            break
        for name, value in step().items():
            told[name].append(value.clone())
        if any(look.step == number + 1 for look in looks) or number + 1 == steps:
            step_seconds += clock.lap()
    count = len(candidates)
    columns = {name: torch.stack(rows, -1).double().cpu() for name, rows in told.items() if rows}
    return [
        Curve(
            losses=columns["losses"][k] if steps else torch.zeros(0, dtype=torch.float64),
            start_seconds=start_seconds / count,
            step_seconds=step_seconds / count,
            gradient_norms=columns["norms"][k] if measure else None,
            gradient_sums=columns["sums"][k] if measure else None,
            looks={look: each[k] for look, each in seen.items()},
        )
        for k in range(count)
    ]


class _Networks(nn.Module):
    """The candidates' networks: [batch, ...] -> [candidates, batch, outputs], the same examples for all."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        super().__init__()
        device, source = candidates[0].device, candidates[0].supernet
        assert source is not None
        with torch.device(device):
            self.supernet: Supernet = source.space.supernet(source.shape, len(candidates))
        self.supernet.to(next(source.parameters()).dtype)
        first = {
            name: value[:1].expand(len(candidates), *value.shape[1:]) for name, value in source.state_dict().items()
        }
        self.supernet.load_state_dict(first)
        for module in self.supernet.modules():
            if isinstance(module, BatchNorm):
                module.statistics = "running"  # each has its own now, as a network that is taken out has
        self.view = SparsePerRepeat(tuple(c.architecture.choices for c in candidates))

    def forward(self, x: Tensor) -> Tensor:
        return self.supernet(x.expand(len(self.view.choices), *x.shape), self.view)

    def loss(self, likelihood: Likelihood, x: Tensor, y: Tensor) -> Tensor:
        """Mean negative log-likelihood [candidates]."""
        return -likelihood.log_likelihood(self(x), y.expand(len(self.view.choices), *y.shape)).mean(-1)


class _Step:
    """A step of SGD of every network, on the next batch; gives tensors [candidates]."""

    def __init__(self, networks: _Networks, candidate: Candidate, tuning: Tuning, measure: bool) -> None:
        assert candidate.likelihood is not None
        networks.train()
        self._networks, self._likelihood, self._tuning = networks, candidate.likelihood, tuning
        batches = candidate.batches(tuning.batch_size)
        first = next(batches)
        self._batches = chain([first], batches)
        self._batch = Split(first.x.clone(), first.y.clone())  # in a fixed place, for a captured step
        self._weights: list[Tensor] = list(networks.parameters())
        self._momenta = [torch.zeros_like(w, requires_grad=False) for w in self._weights]
        self._sums = [torch.zeros_like(m, dtype=torch.float64) for m in self._momenta] if measure else []
        self._rate = torch.tensor(tuning.rate, device=first.x.device, dtype=self._weights[0].dtype)
        changed = [*self._weights, *networks.buffers(), *self._momenta, *self._sums]
        captures = first.x.device.type == "cuda"
        self._run = CapturedStep(self._step, {str(k): tensor for k, tensor in enumerate(changed)}, captures)

    def __call__(self) -> Mapping[str, Tensor]:
        batch = next(self._batches)
        self._batch.x.copy_(batch.x)
        self._batch.y.copy_(batch.y)
        return self._run().metrics

    def _step(self) -> Info:
        loss = self._networks.loss(self._likelihood, self._batch.x, self._batch.y)
        found = gradients(loss, self._weights)
        told = {"losses": loss.detach()}
        if self._sums:
            torch._foreach_add_(self._sums, found)
            told |= {"norms": _size(found), "sums": _size(self._sums)}
        recipe = self._tuning
        sgd(
            self._weights, found, self._momenta,
            lr=self._rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay,
        )  # fmt: skip
        examples = self._batch.y.shape[0] * len(loss)
        return Info(told, forward=examples, backward=examples)


def _size(tensors: Sequence[Tensor]) -> Tensor:
    """The L1 norm over all entries of all tensors, [candidates], in double precision."""
    return torch.cat([t.flatten(1) for t in tensors], 1).double().abs().sum(1)


@torch.no_grad()
def _looked(networks: _Networks, candidate: Candidate, looks: Sequence[Look], clock: Clock) -> dict[Look, list[Seen]]:
    """What looks of one step see that agree on recalibration; the networks are afterwards as they were."""
    candidate.check("select")
    assert candidate.select is not None
    before = {name: value.clone() for name, value in networks.named_buffers()}
    networks.eval()
    if looks[0].recalibrate:
        candidate.check("train")
        assert candidate.train is not None
        recalibrate(networks, calibration_batches(candidate.train.x, seed=candidate.order))
    prepared = clock.lap()
    found = {}
    for look in looks:
        loss, measure = _judged(networks, candidate, part_of(candidate.select, look.examples, candidate.order))
        seconds = (prepared + clock.lap()) / len(loss)
        found[look] = [Seen(a, b, seconds) for a, b in zip(loss, measure, strict=True)]
    for name, value in before.items():
        networks.get_buffer(name).copy_(value)
    networks.train()
    clock.lap()
    return found


def _judged(networks: _Networks, candidate: Candidate, examples: Split) -> tuple[list[float], list[float]]:
    """Mean loss and measure of every network."""
    assert candidate.likelihood is not None
    count = len(networks.view.choices)
    size = max(1, min(1024, _PASS // count))
    totals = torch.zeros(2, count, dtype=torch.float64, device=examples.x.device)
    for x, y in zip(examples.x.split(size), examples.y.split(size), strict=True):
        output, wanted = networks(x), y.expand(count, *y.shape)
        totals[0] -= candidate.likelihood.log_likelihood(output, wanted).sum(-1, dtype=torch.float64)
        totals[1] += candidate.likelihood.measured(output, wanted).sum(-1, dtype=torch.float64)
    loss, measure = (totals / len(examples)).tolist()
    return loss, measure
