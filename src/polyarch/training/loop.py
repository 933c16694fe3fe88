"""The loop that every method runs in: epochs of steps, evaluations, early stopping, the best state kept."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.core import Batch, Feed, FeedSpec, Info, Method, Part, Problem, State
from polyarch.data.rows import Rows
from polyarch.data.task import Split
from polyarch.errors import PolyarchError
from polyarch.streams import Streams
from polyarch.training.capture import CapturedStep, Recordings, captured_form, settled_form
from polyarch.training.noise import NoiseScale
from polyarch.trees import leaves, tree_map

logger = logging.getLogger("polyarch")


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
    """Best objective per repeat."""
    best_epoch: list[int] = field(default_factory=list)
    stopped_epoch: list[int] = field(default_factory=list)
    """When a repeat stopped early; 0 while it runs."""
    ended: bool = False
    """Whether a callback ended the search here."""

    def finished(self, epochs: int) -> bool:
        """Whether the stage is over: all its epochs done, every repeat stopped, or the search ended by a callback."""
        return self.ended or self.epoch >= epochs or (bool(self.stopped_epoch) and all(self.stopped_epoch))


class Recording(NamedTuple):
    """What parts have in common that are recorded once, and replayed for other batches."""

    name: str
    batches: int | None
    """How many it sees of the first feed; None where it sees one alone, whichever that is."""


def recording_of(part: Part, batches: int) -> Recording:
    """What a part of a step with so many batches is recorded as."""
    return Recording(part.name, batches if part.batch is None else None)


class Batches:
    """Fixed places for the batches of a step, refilled from shuffled data.

    An epoch is one pass over the first of a method's feeds; a shorter one begins again, a longer one is not finished.
    """

    def __init__(self, problem: Problem, specs: dict[str, FeedSpec]) -> None:
        """Makes no place yet: those that are asked for are made then."""
        self._specs, self._repeats = specs, problem.repeats
        self._data = {name: _at_hand(problem.data[spec.split], spec) for name, spec in specs.items()}
        self._rounds = {name: len(self._data[name]) // (spec.size * spec.count) for name, spec in specs.items()}
        self._first = next(iter(specs))
        spec = specs[self._first]
        left = len(self._data[self._first]) // spec.size % spec.count
        self.counts = [spec.count] * self._rounds[self._first] + ([left] if spec.shorter and left else [])
        """Batches of the first feed in every step of an epoch."""
        if min(self._rounds.values()) < 1:
            raise PolyarchError("a step needs more examples than a split has; lower batch_size")
        self._order: dict[str, Tensor] = {}
        self._places: dict[str, list[tuple[Any, Tensor]]] = {name: [] for name in specs}
        self._draws: dict[str, Any] = {}
        self._slots: dict[str, Any] = {}
        self._ahead = {name: _Ahead(data.x) for name, data in self._data.items() if isinstance(data.x, Rows)}

    @property
    def names(self) -> Collection[str]:
        """Of the feeds."""
        return self._specs

    def shuffle(self, streams: Sequence[Streams]) -> None:
        """A new order of examples for every repeat, from its own stream."""
        for name, data in self._data.items():
            order = torch.stack([torch.randperm(len(data), generator=s["data"]) for s in streams])
            self._order[name] = order.to(data.y.device)
        for name, ahead in self._ahead.items():
            ahead.begin([self._batches_of(name, step) for step in range(len(self.counts))])

    def _batches_of(self, name: str, step: int) -> list[Tensor]:
        """Places of the examples of all batches of a feed in a step, [repeats, size] each."""
        count = self.counts[step] if name == self._first else self._specs[name].count
        return [self._rows(name, step, k) for k in range(count)]

    def _rows(self, name: str, step: int, k: int) -> Tensor:
        """Places of the examples of a batch; on many ranks, of this rank's slice."""
        spec = self._specs[name]
        begin = step if name == self._first else step % self._rounds[name]
        start = (begin * spec.count + k) * spec.size
        return distributed.share(self._order[name][:, start : start + spec.size], 1)

    def draws(self, drawn: Mapping[str, Any]) -> None:
        """Takes what was drawn for the next step: of every feed, tensors [repeats, count, ...]."""
        self._draws = dict(drawn)

    def every(self, step: int) -> dict[str, list[Batch]]:
        """All batches of a step, in their places; on many ranks, this rank's slice of each."""
        found = {}
        for name, spec in self._specs.items():
            count = self.counts[step] if name == self._first else spec.count
            found[name] = [self._filled(name, step, k, place=k, draws=self._of(name, k)) for k in range(count)]
        return found

    def only(self, step: int, batch: int) -> dict[str, list[Batch]]:
        """One batch of every feed, always in the same places, and its draws as well."""
        found = {}
        for name, spec in self._specs.items():
            k = batch if name == self._first else batch % spec.count
            own = self._of(name, k)
            if name not in self._slots:
                self._slots[name] = tree_map(torch.clone, own)
            else:
                tree_map(Tensor.copy_, self._slots[name], own)
            found[name] = [self._filled(name, step, k, place=0, draws=self._slots[name])]
        return found

    def _of(self, name: str, k: int) -> Any:
        return tree_map(lambda value: value[:, k], self._draws.get(name, {}))

    def _filled(self, name: str, step: int, k: int, *, place: int, draws: Any) -> Batch:
        """The k-th batch of a feed in a step."""
        spec, data = self._specs[name], self._data[name]
        if spec.count == 1 and spec.size == len(data) and distributed.size() == 1:
            # The order within a full batch does not matter: nothing to copy, ever.
            x, y = tree_map(lambda rows: rows.expand(self._repeats, *rows.shape), (data.x, data.y))
            return Batch(x, y, draws)
        index = self._rows(name, step, k)
        places = self._places[name]
        if place == len(places):
            places.append(tree_map(partial(_place, index.shape), (data.x, data.y)))
        x, y = places[place]

        def fill(values: Tensor, into: Tensor) -> None:
            torch.index_select(values, 0, index.flatten(), out=into.flatten(0, 1))

        ahead = self._ahead.get(name)
        if ahead:
            x.flatten(0, 1).copy_(ahead.batch(step, k))
        else:
            for values, into in zip(leaves(data.x), leaves(x), strict=True):
                fill(values, into)
        fill(data.y, y)
        return Batch(x, y, draws)


def _at_hand(data: Split, spec: FeedSpec) -> Split:
    """A feed's examples; those that are one batch in all are read once."""
    return Split(data.x[:], data.y) if isinstance(data.x, Rows) and spec.size == len(data) else data


def _place(shape: torch.Size, values: Tensor | Rows) -> Tensor:
    """Where batches of such a shape, repeats and examples, are put."""
    return torch.empty(*shape, *values.shape[1:], dtype=values.dtype, device=values.device)


class _Ahead:
    """The batches of an epoch's steps of inputs that are read as they are needed, in the order in which they come."""

    def __init__(self, rows: Rows) -> None:
        self._inputs, self._step, self._held = rows, 0, list[Tensor]()
        self._counts: list[int] = []
        self._coming: Iterator[Tensor] | None = None

    def begin(self, steps: Sequence[Sequence[Tensor]]) -> None:
        """Begins to read the batches of an epoch, by the places of their examples."""
        self._coming = None  # of an epoch that was not finished: who read for it is free
        self._step, self._held = 0, []
        self._coming = self._inputs.batches([rows.flatten() for step in steps for rows in step])
        self._counts = [len(step) for step in steps]

    def batch(self, step: int, k: int) -> Tensor:
        """The k-th batch of a step; those of a step may be asked for in any order, as often as it takes."""
        assert self._coming is not None
        while self._step < step:  # what a step does not look at is passed over
            for _ in range(self._counts[self._step] - len(self._held)):
                next(self._coming)
            self._step, self._held = self._step + 1, []
        while len(self._held) <= k:
            self._held.append(next(self._coming))
        if step + 1 == len(self._counts) and len(self._held) == self._counts[-1]:
            next(self._coming, None)  # it is over: who read for it is free
        return self._held[k]


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
        self.state, self.streams = state, streams
        self.progress, self.epochs = progress, epochs
        self.device = problem.device
        self._allow_fast(problem)
        self.method = method = settled_form(method, problem.supernet, self.device.type)
        self._captures = self.device.type == "cuda" and captured_form(method) is method
        # One for all recordings: parts follow each other, and what one says is read or copied before the next.
        self._pool = torch.cuda.graph_pool_handle() if self._captures else None
        problem = replace(problem, replay=Recordings(self._pool) if self._captures else None)
        self._noise = NoiseScale.of(problem)
        if self._noise:
            problem, state.likelihood = self._noise.problem, {"scale": self._noise.scale}
        self.problem = problem
        self.split = stopping_split(method, problem)
        problem.supernet.draw_from([s["noise"] for s in streams])
        self.batches = Batches(problem, method.feeds(problem))
        self._schedule = {name: torch.tensor(value, device=self.device) for name, value in method.schedule(0).items()}
        self._draws: dict[str, Any] = {}
        self._captured: dict[Recording, CapturedStep] = {}
        self.best = {name: value.detach().clone() for name, value in state.tensors().items()}
        self.on_step: Callable[[Info], None] | None = None
        """Called after every step with what it says of itself, as tensors on the device."""
        if not progress.best:
            progress.best = [-math.inf] * problem.repeats
            progress.best_epoch = [0] * problem.repeats
            progress.stopped_epoch = [0] * problem.repeats

    def _allow_fast(self, problem: Problem) -> None:
        """Lets networks run in a form that is fused for speed; where they cannot, says why."""
        why = problem.supernet.allow_fast(problem.fast)
        if why and problem.fast and self.device.type == "cuda" and distributed.rank() == 0:
            logger.warning("steps are made in the plain form: %s", why)

    def epoch(self) -> dict[str, Any] | None:
        """One epoch; returns what there is to tell when it was one after which to evaluate, else None."""
        progress, counts = self.progress, self.batches.counts
        totals: dict[str, Tensor] = {}
        for count, info in zip(counts, self.steps(), strict=True):
            if self.on_step:
                self.on_step(info)
            for name, value in info.metrics.items():
                share = value * (count / sum(counts))
                totals[name] = totals[name] + share if name in totals else share
        progress.epoch += 1
        evaluated = progress.epoch % self.method.evaluation.every == 0 or progress.epoch >= self.epochs
        end = self.method.end_epoch(self.problem, self.state, progress.epoch - 1, evaluated)
        progress.forward += end.forward
        progress.backward += end.backward
        return self._evaluate(totals, end.metrics) if evaluated else None

    def steps(self) -> Iterator[Info]:
        """The steps of one epoch, each made when it is asked for: between two of them the state may be looked at.

        What a step says lies in fixed places on a CUDA device; copy what is kept before the next one.
        """
        progress, counts = self.progress, self.batches.counts
        for name, now in self.method.schedule(progress.epoch).items():
            self._schedule[name].fill_(now)
        parts = {
            count: self.method.parts(self.problem, self.state, progress.epoch, count) for count in dict.fromkeys(counts)
        }
        self.batches.shuffle(self.streams)
        for step, count in enumerate(counts):
            self._draw()
            info = self._step(step, parts[count])
            progress.forward += info.forward
            progress.backward += info.backward
            yield info

    def _draw(self) -> None:
        """Draws for the next step, into fixed places."""
        drawn = [self.method.draw(self.problem, s) for s in self.streams]
        stacked = tree_map(lambda *values: torch.stack(values), drawn[0], *drawn[1:])
        if not self._draws:
            self._draws = tree_map(lambda value: value.to(self.device), stacked)
        else:
            # So small a copy is not waited for: the host draws for the next step while this one runs. Its source
            # is not pinned, and may be let go at once.
            tree_map(lambda place, value: place.copy_(value, non_blocking=True), self._draws, stacked)
        self.batches.draws({name: self._draws[name] for name in self._draws if name in self.batches.names})

    def _step(self, step: int, parts: Sequence[Part]) -> Info:
        """All parts of a step."""
        if len(parts) == 1:
            return self._run(step, parts[0])
        # Parts of one name are one recording, which tells its metrics in the same place every time.
        infos = (self._run(step, part) for part in parts)
        return Info.of([replace(info, metrics=tree_map(torch.clone, info.metrics)) for info in infos])

    def _run(self, step: int, part: Part) -> Info:
        """One part, captured when one of its name and with as many batches first comes."""
        batches = self.batches.every(step) if part.batch is None else self.batches.only(step, part.batch)
        key = recording_of(part, len(next(iter(batches.values()))))
        if key not in self._captured:
            feed = Feed(batches, self._own_draws(), self._schedule)
            changed = {**self.state.tensors(), **{f"scratch/{n}": v for n, v in self.state.scratch.items()}}
            self._captured[key] = CapturedStep(
                partial(_compute, self.problem, self.state, part, feed), changed, self._captures, self._pool
            )
        return self._captured[key]()

    def _own_draws(self) -> dict[str, Any]:
        return {name: value for name, value in self._draws.items() if name not in self.batches.names}

    def _evaluate(self, steps: Mapping[str, Tensor], watched: Mapping[str, Tensor]) -> dict[str, Any]:
        """Evaluates, keeps the best, and says what happened: every value a list with one entry per repeat."""
        progress = self.progress
        decides = self.split or evaluated_splits(self.problem)[-1]
        found = self.evaluate(self.looked_at())
        belief = self.method.distribution(self.problem.space, self.state.belief)
        objective = found[decides]["objective"].tolist()
        running = [stopped == 0 for stopped in progress.stopped_epoch]
        if not all(math.isfinite(v) for v, runs in zip(objective, running, strict=True) if runs):
            raise Diverged(progress.epoch)
        better = [
            runs and (v > best or self.split is None)
            for v, best, runs in zip(objective, progress.best, running, strict=True)
        ]
        self._keep(better)
        if self._noise:  # after the best state was kept, whose objective was measured with the scale before
            self._noise.update(found["select"])
        for k, is_better in enumerate(better):
            if is_better:
                progress.best[k], progress.best_epoch[k] = objective[k], progress.epoch
            elif running[k] and progress.epoch - progress.best_epoch[k] >= self.method.stopping.patience:
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
            "watch": {name: value.tolist() for name, value in watched.items()},
        }

    def looked_at(self) -> list[str]:
        """The splits that every evaluation while it runs is about."""
        known = evaluated_splits(self.problem)
        splits = known if self.method.evaluation.splits == "all" else [self.split or known[-1]]
        return [*splits, "select"] if self._noise and "select" not in splits else splits

    def evaluate(self, splits: Sequence[str], most: int | None = None) -> dict[str, dict[str, Tensor]]:
        """What the state is worth on each of these splits, or on at most so many examples of each."""
        problem = self.problem
        if most is not None:
            some = {split: problem.data[split].some(most) for split in splits}
            problem = replace(problem, data={**problem.data, **some})
        with problem.computing():
            return {split: self.method.evaluate(problem, self.state, split) for split in splits}

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


def _compute(problem: Problem, state: State, part: Part, feed: Feed) -> Info:
    # It does not know the loop, so that a loop that is done with frees the memory of its recordings at once.
    with problem.computing():
        return part.run(problem, state, feed)


class Diverged(PolyarchError):
    """The objective is no longer a number."""

    def __init__(self, epoch: int) -> None:
        """Remembers when."""
        super().__init__(f"training diverged: the objective was no longer a finite number after epoch {epoch}")
        self.epoch = epoch


def evaluated_splits(problem: Problem) -> list[str]:
    """The splits that a state can be evaluated on: training data, and validation data where there is some."""
    return ["train", "select"] if "select" in problem.data else ["train"]


def stopping_split(method: Method, problem: Problem) -> str | None:
    """The split whose objective decides which state is kept; None keeps the last."""
    split = method.stopping.split
    if split == "never":
        return None
    if split == "select" and "select" not in problem.data:
        raise PolyarchError(
            "stopping.split=select needs a validation split; set select (of the data) above 0, or stopping.split=train"
        )
    return evaluated_splits(problem)[-1] if split == "auto" else split
