"""Settings that nobody set, from the data: how it is split, how large networks are, how they are trained and how long.

No batch size, width and number of epochs fits all data: at 512 examples a step a hundred flowers are seen in one, and a
network that suits a hundred thousand rows learns a hundred by heart. The rule goes by the number of examples, their
shape and a budget of work. It is for what people bring: published searches keep the settings that were published, and
what is set by hand always stays. It draws nothing and times nothing, so that the same data always gives the same.

docs/own-data.md has what came of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from polyarch.core import Method
from polyarch.data.files import ImageFolder
from polyarch.data.likelihood import Gaussian
from polyarch.data.source import Source, Unsplit
from polyarch.data.task import Task
from polyarch.methods.fixed_depth import FixedDepth
from polyarch.methods.variational_depth import VariationalDepth
from polyarch.settings import settings_of, updated, written
from polyarch.spaces.base import Space
from polyarch.spaces.depth import ResidualDepth
from polyarch.spaces.module import ModuleSpace
from polyarch.training.lack_of_memory import saying_what_to_lower

Settings = Mapping[str, Mapping[str, Any]]
"""By group (`data`, `space`, `method`) and dotted name."""

BUDGET = 6e10
"""Multiply-accumulates of all forward passes of training: half a minute of a core or two."""
STEPS, STEPS_OF_IMAGES = 3000, 1000
"""So many steps of weights are enough for most tables; of images each takes several times as long."""
FEWEST, MOST = 12, 150
"""Epochs, whatever the budget and the steps say."""
LEAST_BATCH, MOST_BATCH = 16, 256
BATCHES = 30
"""Of an epoch, roughly."""
LARGEST_SIDE, SCALED_SIDE = 64, 32
"""Pixels a side up to which images of a folder are kept where they are of one size, and to which others are scaled."""


@final
@dataclass(frozen=True)
class Chosen:
    """What the rule chose."""

    about: str = ""
    """What it went by, in words."""
    settings: Settings = field(default_factory=dict)

    def __str__(self) -> str:
        """One line for people."""
        told = [f"{name}={written(value)}" for group in self.settings.values() for name, value in group.items()]
        return f"chosen for {self.about}: {', '.join(told)}"

    def __bool__(self) -> bool:
        """Whether anything was chosen."""
        return any(self.settings.values())


def prepared(
    source: Source, space: Space, method: Method, told: Mapping[str, Collection[str]]
) -> tuple[Task, Space, Method, Chosen]:
    """Reads data, and sets what nobody set of it, of a space and of a method.

    Args:
        source: of the data.
        space: with the settings that were told, else the defaults of its class.
        method: likewise.
        told: names of the settings that were told, by group; they stay, and so does a group that is not here.

    Returns:
        The data, split; space and method, whose settings say all that was chosen; and what that was.
    """
    task, read = read_suited(source, told.get("data"))
    task, space, method, chosen = suited(task, space, method, told)
    return task, space, method, replace(chosen, settings={"data": read, **chosen.settings})


def read_suited(source: Source, told: Collection[str] | None) -> tuple[Task, dict[str, Any]]:
    """Reads data, and sets what nobody set of how it is read and split; gives what that was, too.

    Args:
        source: of the data.
        told: names of its settings that were told and stay; None: all do.
    """
    source, image = _scaled(source, told)
    raw = source.read()
    shares = (
        split_sizes(len(raw.y) if raw.y.ndim else 0, own_test=raw.x_test is not None)
        if isinstance(source, Unsplit)
        else {}
    )
    splits = _left(shares, told, source)
    return replace(source, **splits).split(raw), {**image, **splits}


def suited(
    task: Task, space: Space, method: Method, told: Mapping[str, Collection[str]]
) -> tuple[Task, Space, Method, Chosen]:
    """The same of data that is read and split."""
    if not told:
        return task, space, method, Chosen()
    space.check(task.shape)
    method.check(space)
    with saying_what_to_lower(method, space, 1):
        found = chosen_for(task, space, method, told)
    space, method = updated(space, found["space"]), updated(method, found["method"])
    return task, space, method, Chosen(examples_of(task), found)


def chosen_for(
    task: Task, space: Space, method: Method, told: Mapping[str, Collection[str]], budget: float = BUDGET
) -> dict[str, dict[str, Any]]:
    """What suits data in a space under a method, of the settings that these have and nobody told.

    Args:
        task: the data.
        space: what is searched; where its sizes were told, the rest goes by these.
        method: how.
        told: settings that were told, as for `prepared`.
        budget: of multiply-accumulates.

    Returns:
        Settings of `space` and of `method`.
    """
    count, images = len(task.train), len(task.input_shape) == 3
    sizes = _sizes(count, images) if isinstance(space, ResidualDepth) else {}
    sizes = _left(sizes, told.get("space"), space)
    space = updated(space, sizes)
    if not isinstance(space, ResidualDepth | ModuleSpace) or "method" not in told:
        return {"space": sizes, "method": {}}
    set_by_hand = told.get("method", ())
    size = method.batch_size if "batch_size" in set_by_hand else batch_size(count)
    deepest = space.architecture([len(decision) - 1 for decision in space.decisions])
    macs = space.cost(deepest, task.shape).macs
    steps = STEPS_OF_IMAGES if images else STEPS
    passes = method.epochs if "epochs" in set_by_hand else epochs(count, size, macs, budget, steps)
    training: dict[str, Any] = {"batch_size": size, "epochs": passes}
    if isinstance(method, VariationalDepth | FixedDepth):
        training |= {
            "stopping.patience": max(30, passes // 2),
            "weights.schedule.kind": "cosine",
            "weights.weight_decay": weight_decay(count, task.input_shape, isinstance(task.likelihood, Gaussian)),
            "weights.grad_clip": 1.0,
        }
    if images:
        training |= augmentation(task.input_shape)
    return {"space": sizes, "method": _left(training, told.get("method"), method)}


def split_sizes(count: int, own_test: bool) -> dict[str, float]:
    """Shares of validation and test data among so many examples.

    A few dozen examples hardly tell one state of a search from the next: of little data a larger share is set aside,
    and of much data a smaller one, since thousands are enough for any decision.
    """
    count = max(count, 1)
    sizes = {"select": _clipped(max(0.15, 60 / count) if count < SPLITS_FALL else 5000 / count, 0.05, 0.25)}
    if not own_test:
        sizes["test"] = _clipped(5000 / count, 0.05, 0.2)
    return {name: math.floor(100 * share + 1e-9) / 100 for name, share in sizes.items()}


SPLITS_FALL = 5000 / 0.15
"""Examples from which on validation data is no larger share, but 5,000 examples."""


def batch_size(count: int) -> int:
    """A power of two, of which an epoch of so many training examples has about `BATCHES`."""
    return int(_clipped(_power_of_two(count / BATCHES), LEAST_BATCH, MOST_BATCH))


def epochs(count: int, batch: int, macs: int, budget: float = BUDGET, steps: int = STEPS) -> int:
    """Passes over so many training examples: so many steps, or as many as the budget pays for.

    Args:
        count: of training examples.
        batch: how many make a step.
        macs: multiply-accumulates of the largest network for one example.
        budget: of multiply-accumulates in all.
        steps: of weights in all.
    """
    return int(_clipped(min(steps / max(1, count // batch), budget / (count * max(1, macs))), FEWEST, MOST))


def weight_decay(count: int, shape: Sequence[int], numbers: bool) -> float:
    """How much weights are held back, to one digit.

    The less data, the more; and of classes the fewer features, the less, which leave little to learn by heart. Where
    numbers are predicted, networks follow their noise however few features there are.

    Args:
        count: of training examples.
        shape: of what a network sees of one.
        numbers: whether numbers are predicted.
    """
    most = 0.02 if numbers else min(0.02, 0.002 * math.sqrt(math.prod(shape)))
    return float(f"{_clipped((10 if numbers else 20) / count, 1e-4, most):.1g}")


def image_side(sizes: Sequence[tuple[int, int]]) -> int:
    """Height and width that images (width, height) are scaled to; 0 where they may stay as they are."""
    if len(set(sizes)) == 1 and max(sizes[0]) <= LARGEST_SIDE:
        return 0
    shorter = sorted(min(size) for size in sizes)
    return max(8, min(SCALED_SIDE, shorter[len(shorter) // 2]) // 8 * 8)


def augmentation(shape: Sequence[int]) -> dict[str, Any]:
    """How training images (channels, height, width) are changed: shifted by an eighth of a side, in colour mirrored.

    Grey images are often of letters and digits, which mirrored are others.
    """
    return {"augment.crop": min(shape[1:]) // 8, "augment.flip": shape[0] == 3}


def examples_of(task: Task) -> str:
    """Training examples and what one looks like, in words."""
    shape = task.input_shape
    one = "x".join(map(str, shape))
    what = f"images of {one}" if len(shape) == 3 else f"{one} {'tokens' if task.tokens else 'numbers'}"
    return f"{len(task.train):,} examples of {what}"


def _sizes(count: int, images: bool) -> dict[str, Any]:
    """Depth and width of residual networks: both grow with the logarithm or the root of what there is to learn from."""
    depth = int(_clipped(round(math.log2(count)) - 3, 3, 8))
    if images:
        return {"max_depth": min(depth, 5), "width": 32}
    return {"max_depth": depth, "width": int(_clipped(_power_of_two(2 * math.sqrt(count)), 16, 128))}


def _scaled(source: Source, told: Collection[str] | None) -> tuple[Source, dict[str, Any]]:
    """A folder of images of several sizes with one that suits them."""
    if not isinstance(source, ImageFolder) or told is None or "size" in told:
        return source, {}
    side = image_side(source.sizes())
    return (replace(source, size=side), {"size": side}) if side else (source, {})


def _left(chosen: Mapping[str, Any], told: Collection[str] | None, of: object) -> dict[str, Any]:
    """What was chosen of the settings that something has and nobody told."""
    if told is None:
        return {}
    known = settings_of(type(of))
    return {name: value for name, value in chosen.items() if name in known and name not in told}


def _power_of_two(value: float) -> int:
    return int(2 ** max(0, round(math.log2(max(value, 1)))))


def _clipped(value: float, least: float, most: float) -> float:
    return max(least, min(most, value))
