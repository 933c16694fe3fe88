"""Fine-tuning candidates for a few minibatches from the supernet's weights.

Where that pays, many candidates are fine-tuned at once, each a repeat of one supernet with weights of its own: on a GPU
a step of all of them is one launch, which is many times faster (`bench.candidates`). Elsewhere it gains nothing, and
every candidate's network is trained alone. Both give the same, to rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.core import LAST, Info, Problem, State
from polyarch.distributions.priors import uniform
from polyarch.scores.base import Candidate, answer, chance
from polyarch.scores.curves import Clock, Curve, Look, Seen, Tuning, part_of
from polyarch.settings import at_least
from polyarch.spaces.base import Supernet
from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.views import SparsePerRepeat, View
from polyarch.streams import Streams
from polyarch.training.calibration import calibration_batches, recalibrate
from polyarch.training.evaluation import evaluate_view
from polyarch.training.loop import Loop, Progress
from polyarch.training.optimisers import Sgd
from polyarch.training.side_by_side import SideBySide
from polyarch.training.snapshots import Snapshot
from polyarch.trees import tree_map

_PASS = 2**15
"""Examples of a forward pass when nothing is learnt, of all candidates."""


def fine_tuned(
    candidates: Sequence[Candidate],
    steps: int,
    tuning: Tuning,
    generator: torch.Generator,
    *,
    looks: Collection[Look] = (),
    gradients: bool = False,
) -> list[Curve]:
    """Fine-tunes a copy of each candidate's network and says how it went; many at once where that pays.

    Every candidate starts from the supernet's weights with a fresh optimiser, and sees the same batches in the same
    order (`Candidate.batches`). Neither the supernet nor torch's own chance is touched.

    Args:
        candidates: with weights and training data; with validation data where there are looks.
        steps: how many minibatches; 0 only looks.
        tuning: the recipe.
        generator: for networks that draw while they are trained, such as dropout; one seed for all candidates.
        looks: when and how to look at validation data.
        gradients: whether to measure gradients as well, which takes a little time and the memory of the weights.

    Returns:
        One curve per candidate.
    """
    at_least("steps", min([steps, *(look.step for look in looks)]), 0)
    assert all(look.step <= steps for look in looks), "a look comes after the last step"
    seed = int(torch.randint(2**62, (), generator=generator))
    parts = [candidates] if _go_together(candidates) else [[candidate] for candidate in candidates]
    return [curve for part in parts for curve in _as_memory_allows(part, steps, tuning, looks, gradients, seed)]


def _go_together(candidates: Sequence[Candidate]) -> bool:
    """Whether to fine-tune these at once: on a GPU, of one supernet that folds repeats, on the same examples."""
    first = candidates[0] if candidates else None
    if first is None or first.supernet is None or first.device.type != "cuda":
        return False
    if first.supernet.repeats_run != "batched" or SparsePerRepeat not in first.supernet.views:
        return False
    given = {(id(c.supernet), id(c.train), id(c.select), c.order) for c in candidates}
    return len(given) == 1


def _as_memory_allows(
    candidates: Sequence[Candidate],
    steps: int,
    tuning: Tuning,
    looks: Collection[Look],
    gradients: bool,
    seed: int,
) -> list[Curve]:
    """All at once; where memory is too small, in two parts."""
    try:
        return tuned_at_once(candidates, steps, tuning, looks, gradients, seed)
    except torch.OutOfMemoryError:
        if len(candidates) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(candidates) // 2
    return [
        curve
        for part in (candidates[:half], candidates[half:])
        for curve in _as_memory_allows(part, steps, tuning, looks, gradients, seed)
    ]


def tuned_at_once(
    candidates: Sequence[Candidate],
    steps: int,
    tuning: Tuning,
    looks: Collection[Look] = (),
    gradients: bool = False,
    seed: int = 0,
) -> list[Curve]:
    """See `fine_tuned`: candidates of one supernet and with the same examples. Each has its share of the time."""
    first, number = candidates[0], len(candidates)
    clock = Clock(first.device)
    view = SparsePerRepeat(tuple(candidate.architecture.choices for candidate in candidates))
    with chance(torch.Generator().manual_seed(seed)):  # dropout draws from torch's own
        loop = _loop_of(candidates, tuning, looks, gradients, seed)
        start_seconds, step_seconds = clock.lap(), 0.0
        infos = _endless(loop)
        told: dict[str, list[Tensor]] = {}
        seen: dict[Look, list[Seen]] = {}
        for step in range(steps + 1):
            now = [look for look in looks if look.step == step]
            if step and (now or step == steps):
                step_seconds += clock.lap()
            for recalibrated in (False, True):
                own = [look for look in now if look.recalibrate == recalibrated]
                seen |= _looked(loop, view, own, first.order, clock)
            if step < steps:
                for name, value in next(infos).metrics.items():
                    told.setdefault(name, []).append(value.clone())
    # Read back together, since reading each would make a GPU wait at every step.
    columns = {name: torch.stack(rows, -1).double().cpu() for name, rows in told.items()}
    losses = -columns["log_likelihood"] if steps else torch.zeros(number, 0, dtype=torch.float64)
    return [
        Curve(
            losses=losses[k],
            start_seconds=start_seconds / number,
            step_seconds=step_seconds / number,
            gradient_norms=columns["gradient_norm"][k] if gradients else None,
            gradient_sums=columns["gradient_sum"][k] if gradients else None,
            looks={look: seen[look][k] for look in looks},
        )
        for k in range(number)
    ]


def _loop_of(
    candidates: Sequence[Candidate], tuning: Tuning, looks: Collection[Look], gradients: bool, seed: int
) -> Loop:
    """The loop that trains the candidates' networks, from the supernet's weights."""
    first = candidates[0]
    first.check("weights")
    first.check("train")
    if looks:
        first.check("select")
    assert first.supernet is not None
    assert first.train is not None
    assert first.likelihood is not None
    supernet = _Alone(first) if len(candidates) == 1 else _repeated(first.supernet, len(candidates), first.device)
    data = {"train": first.train}
    if first.select is not None:
        data |= {_split(look): part_of(first.select, look.examples, first.order) for look in looks}
    likelihood = first.likelihood.on(first.device)
    problem = Problem(supernet.space, supernet, likelihood, uniform(supernet.space.decisions), data)
    method = SideBySide(
        tuple(candidate.architecture for candidate in candidates),
        batch_size=tuning.batch_size,
        weights=Sgd(lr=tuning.lr, momentum=tuning.momentum, weight_decay=tuning.weight_decay),
        tells_gradients=gradients,
        stopping=LAST,
    )
    streams = [Streams(seed) for _ in candidates]
    for each in streams:
        each["data"].manual_seed(first.order)
    state = method.init(problem, streams, State.of(supernet, {}))
    return Loop(method, problem, state, streams, Progress(), method.epochs)


def _repeated(source: Supernet, repeats: int, device: torch.device) -> Supernet:
    """A supernet of many repeats, each with the weights of the source's first."""
    with torch.device(device):
        supernet = source.space.supernet(source.shape, repeats)
    supernet.to(next(source.parameters()).dtype)
    supernet.load_state_dict(
        {name: value[:1].expand(repeats, *value.shape[1:]) for name, value in source.state_dict().items()}
    )
    for module in supernet.modules():
        if isinstance(module, BatchNorm):
            module.statistics = "running"  # each has its own now, as a network that is taken out has
    return supernet


@final
class _Alone(Supernet):
    """One candidate's network as a supernet of one repeat.

    Its tensors do without the axis of repeats, which the network would have to be rid of at every pass: for small
    networks that takes a quarter of a step.
    """

    views: frozenset[type] = frozenset({SparsePerRepeat})

    def __init__(self, candidate: Candidate) -> None:
        super().__init__()
        assert candidate.supernet is not None
        self.space, self.shape, self.repeats = candidate.supernet.space, candidate.supernet.shape, 1
        self.network = candidate.inherited()

    @override
    def forward(self, x: Any, view: View) -> Tensor:
        return answer(self.network, tree_map(lambda part: part.squeeze(0), x)).unsqueeze(0)

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        return self.network.state_dict()


def _endless(loop: Loop) -> Iterator[Info]:
    """Step after step, epoch after epoch."""
    for _ in count():
        yield from loop.steps()


def _split(look: Look) -> str:
    """What the examples of a look are called among the data."""
    return f"select-{look.examples}"


class _Networks(nn.Module):
    """What is trained, as one network: [batch, ...] -> [candidates, batch, outputs], the same examples for all."""

    def __init__(self, supernet: Supernet, view: SparsePerRepeat) -> None:
        super().__init__()
        self.supernet, self.view = supernet, view

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        given = named or (inputs[0] if len(inputs) == 1 else inputs)
        x = tree_map(lambda part: part.expand(self.supernet.repeats, *part.shape), given)
        return self.supernet(x, self.view)


@torch.no_grad()
def _looked(
    loop: Loop, view: SparsePerRepeat, looks: Sequence[Look], order: int, clock: Clock
) -> dict[Look, list[Seen]]:
    """What looks of one step see that agree on recalibration; the networks are afterwards as they were."""
    if not looks:
        return {}
    problem = loop.problem
    before = Snapshot(loop.state.buffers.values())
    if looks[0].recalibrate:
        batches = calibration_batches(problem.data["train"].x, seed=order)
        recalibrate(_Networks(problem.supernet, view), batches)
    prepared = clock.lap()
    found = {}
    for look in looks:
        said = evaluate_view(problem, view, _split(look), max(1, min(1024, _PASS // problem.repeats)))
        losses, metrics = (-said["log_likelihood"]).tolist(), said[problem.likelihood.metric].tolist()
        seconds = (prepared + clock.lap()) / problem.repeats
        found[look] = [Seen(loss, metric, seconds) for loss, metric in zip(losses, metrics, strict=True)]
    before.restore()
    clock.lap()
    return found
