"""The loop that every method runs in: epochs of steps, evaluations, early stopping, the best state kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.core import Batch, Feed, FeedSpec, Info, Method, Problem, State
from polyarch.errors import PolyarchError
from polyarch.streams import Streams
from polyarch.training.capture import CapturedStep


@dataclass
class Progress:
    """Where a search stands, as plain numbers: the part of a checkpoint that is not tensors."""

    stage: int = 0
    epoch: int = 0
    """Epochs done in this stage."""
    forward: int = 0
    """Examples passed forward, over all ranks, and for one repeat."""
    backward: int = 0
    best: list[float] = field(default_factory=list)
    """Best objective a repeat."""
    best_epoch: list[int] = field(default_factory=list)
    stopped_epoch: list[int] = field(default_factory=list)
    """When a repeat stopped early; 0 while it runs."""
    ended: bool = False
    """Whether a callback ended the search here."""

    def finished(self, epochs: int) -> bool:
        """Whether the stage is over: all its epochs done, every repeat stopped, or the search ended by a callback."""
        return self.ended or self.epoch >= epochs or (bool(self.stopped_epoch) and all(self.stopped_epoch))


class Batches:
    """Fixed places for the batches of a step, refilled from shuffled data before each one.

    An epoch is one pass over the first of a method's feeds; a shorter one begins again, a longer one is not finished.
    """

    def __init__(self, problem: Problem, specs: dict[str, FeedSpec]) -> None:
        """Makes the places."""
        self._specs = specs
        self._data = {name: problem.data[spec.split] for name, spec in specs.items()}
        self._repeats = problem.repeats
        self.places: dict[str, list[Batch]] = {}
        for name, spec in specs.items():
            data, local = self._data[name], spec.size // distributed.size()
            shape = (problem.repeats, local)
            whole = spec.count == 1 and spec.size == len(data) and distributed.size() == 1
            self.places[name] = [
                Batch(data.x.expand(problem.repeats, *data.x.shape), data.y.expand(problem.repeats, -1))
                if whole  # the order within a full batch does not matter: nothing to copy, ever
                else Batch(data.x.new_empty(*shape, *data.x.shape[1:]), data.y.new_empty(shape))
                for _ in range(spec.count)
            ]
        rounds = {name: len(self._data[name]) // (spec.size * spec.count) for name, spec in specs.items()}
        self._rounds = rounds
        self._first = next(iter(specs))
        spec = specs[self._first]
        left = len(self._data[self._first]) // spec.size % spec.count
        self.counts = [spec.count] * rounds[self._first] + ([left] if spec.shorter and left else [])
        """Batches of the first feed in every step of an epoch."""
        if min(rounds.values()) < 1:
            raise PolyarchError("a step needs more examples than a split has; lower batch_size")
        self._order: dict[str, Tensor] = {}

    def shuffle(self, streams: Sequence[Streams]) -> None:
        """A new order of examples for every repeat, from its own stream."""
        for name, data in self._data.items():
            order = torch.stack([torch.randperm(len(data), generator=s["data"]) for s in streams])
            self._order[name] = order.to(data.y.device)

    def of(self, count: int) -> dict[str, list[Batch]]:
        """The places of a step with so many batches of the first feed."""
        return {**self.places, self._first: self.places[self._first][:count]}

    def fill(self, step: int) -> None:
        """Puts the batches of a step in their places; on many ranks, this rank's slice of each."""
        for name, places in self.of(self.counts[step]).items():
            spec, data, order = self._specs[name], self._data[name], self._order[name]
            begin = step if name == self._first else step % self._rounds[name]
            for k, place in enumerate(places):
                if place.y.data_ptr() == data.y.data_ptr():
                    continue
                start = (begin * spec.count + k) * spec.size
                index = distributed.share(order[:, start : start + spec.size], 1).flatten()
                torch.index_select(data.x, 0, index, out=place.x.flatten(0, 1))
                torch.index_select(data.y, 0, index, out=place.y.flatten())


class Loop:
    """One stage of a search: owns the feed, the (captured) step, and the best state so far."""

    def __init__(
        self,
        method: Method,
        problem: Problem,
        state: State,
        streams: Sequence[Streams],
        progress: Progress,
        epochs: int,
    ) -> None:
        """Prepares everything that is made once; `state` is as `method.init` left it, or restored."""
        self.method, self.problem, self.state, self.streams = method, problem, state, streams
        self.progress, self.epochs = progress, epochs
        self.device = problem.data["train"].y.device
        self.split = stopping_split(method, problem)
        problem.supernet.draw_from([s["noise"] for s in streams])
        self.batches = Batches(problem, method.feeds(problem))
        self._rates = {name: torch.tensor(r, device=self.device) for name, r in method.rates(0).items()}
        self._draws: dict[str, Tensor] = {}
        self._steps: dict[tuple[int, str], CapturedStep] = {}
        self.best = {name: value.detach().clone() for name, value in state.tensors().items()}
        self.on_step: Callable[[Info], None] | None = None
        """Called after every step with what it says of itself, as tensors on the device."""
        if not progress.best:
            progress.best = [-math.inf] * problem.repeats
            progress.best_epoch = [0] * problem.repeats
            progress.stopped_epoch = [0] * problem.repeats

    def epoch(self) -> dict[str, Any] | None:
        """One epoch; returns what there is to tell when it was one after which to evaluate, else None."""
        progress = self.progress
        if not self._steps:
            self.method.ready(self.problem, self.state)
        for name, rate in self.method.rates(progress.epoch).items():
            self._rates[name].fill_(rate)
        phase = self.method.phase(progress.epoch)
        self.batches.shuffle(self.streams)
        totals: dict[str, Tensor] = {}
        for step, count in enumerate(self.batches.counts):
            self.batches.fill(step)
            self._fill_draws()
            info = self._run_step(count, phase)
            if self.on_step:
                self.on_step(info)
            for name, value in info.metrics.items():
                share = value * (count / sum(self.batches.counts))
                totals[name] = totals[name] + share if name in totals else share
            progress.forward += info.forward
            progress.backward += info.backward
        progress.forward += self.method.end_epoch(self.problem, self.state)
        progress.epoch += 1
        if progress.epoch % self.method.evaluate_every and progress.epoch < self.epochs:
            return None
        return self._evaluate(totals)

    def _fill_draws(self) -> None:
        drawn = [self.method.draw(self.problem, s) for s in self.streams]
        for name in drawn[0]:
            value = torch.stack([d[name] for d in drawn])
            if name in self._draws:
                # So small a copy is not waited for: the host draws for the next step while this one runs. Its source
                # is not pinned, and may be let go at once.
                self._draws[name].copy_(value, non_blocking=True)
            else:
                self._draws[name] = value.to(self.device)

    def _run_step(self, count: int, phase: str) -> Info:
        """A step with so many batches of the first feed; each kind of step is captured when it first comes."""
        if (count, phase) not in self._steps:
            feed = Feed(self.batches.of(count), self._draws, self._rates, phase)
            captures = self.device.type == "cuda" and self.method.capturable() is self.method
            self._steps[count, phase] = CapturedStep(lambda: self._step(feed), self.state.tensors(), captures)
        return self._steps[count, phase]()

    def _step(self, feed: Feed) -> Info:
        with self.problem.computing():
            return self.method.step(self.problem, self.state, feed)

    def _evaluate(self, steps: dict[str, Tensor]) -> dict[str, Any]:
        """Evaluates, keeps the best, and says what happened: every value a list with one entry a repeat."""
        progress = self.progress
        splits = {self.split or "train"} | ({"valid"} if "valid" in self.problem.data else set())
        with self.problem.computing():
            found = {split: self.method.evaluate(self.problem, self.state, split) for split in sorted(splits)}
        belief = self.method.distribution(self.problem.space, self.state.belief)
        objective = found[self.split or "train"]["objective"].tolist()
        running = [stopped == 0 for stopped in progress.stopped_epoch]
        if not all(math.isfinite(v) for v, runs in zip(objective, running, strict=True) if runs):
            raise Diverged(progress.epoch)
        better = [
            runs and (v > best or self.split is None)
            for v, best, runs in zip(objective, progress.best, running, strict=True)
        ]
        self._keep(better)
        for k, is_better in enumerate(better):
            if is_better:
                progress.best[k], progress.best_epoch[k] = objective[k], progress.epoch
            elif running[k] and progress.epoch - progress.best_epoch[k] >= self.method.patience:
                progress.stopped_epoch[k] = progress.epoch
        return {
            "stage": progress.stage,
            "epoch": progress.epoch,
            "forward": progress.forward,
            "backward": progress.backward,
            "step": {name: value.tolist() for name, value in steps.items()},
            **{split: {name: v.tolist() for name, v in values.items()} for split, values in found.items()},
            "probs": {name: p.detach().tolist() for name, p in belief.probs().items()},
            "entropy": belief.entropy().detach().tolist(),
            "watch": {name: value.tolist() for name, value in self.method.watch(self.problem, self.state).items()},
        }

    @torch.no_grad()
    def _keep(self, better: list[bool]) -> None:
        """Copies the state of the repeats that improved into `best`."""
        if not any(better):
            return
        current = [value.detach() for value in self.state.tensors().values()]
        if all(better):
            torch._foreach_copy_(list(self.best.values()), current)
            return
        chosen = torch.tensor(better, device=self.device).nonzero().squeeze(-1)
        for kept, value in zip(self.best.values(), current, strict=True):
            kept[chosen] = value[chosen]


class Diverged(PolyarchError):
    """The objective is no longer a number."""

    def __init__(self, epoch: int) -> None:
        """Remembers when."""
        super().__init__(f"training diverged: the objective was no longer a finite number after epoch {epoch}")
        self.epoch = epoch


def stopping_split(method: Method, problem: Problem) -> str | None:
    """The split whose objective decides which state is kept; None keeps the last."""
    if method.stop == "never":
        return None
    if method.stop == "valid" and "valid" not in problem.data:
        raise PolyarchError("stop=valid needs a validation split; set valid (of the data) above 0, or stop=train")
    if method.stop == "auto":
        return "valid" if "valid" in problem.data else "train"
    return method.stop
