"""From what a source read to a Task: checks, disjoint splits, statistics of the training data, fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyarch.data.checks import (
    Array,
    check_classes,
    check_pair,
    checked_inputs,
    checked_numbers,
)
from polyarch.data.frames import Frame
from polyarch.data.kinds import as_type, check_columns
from polyarch.data.labels import HIDDEN, keep_labels, turns
from polyarch.data.large_tables import CodedRows, ColumnsOnDisk, coded_on_disk
from polyarch.data.likelihood import Classification, ClassWeights, Gaussian, Likelihood, Noise
from polyarch.data.own_likelihoods import BY_KIND, likelihood_named
from polyarch.data.preprocess import AS_READ, Encode, Preprocess, Standardise, Units, Unpack
from polyarch.data.rows import Rows, ends_of, scanned
from polyarch.data.several import Parts, in_rows, parts_of
from polyarch.data.targets import (
    Kind,
    KindSetting,
    NoiseSetting,
    class_indices,
    class_labels,
    class_names,
    is_text,
    kind_of,
)
from polyarch.data.task import Split, Task
from polyarch.data.vocabulary import Columns, Reading
from polyarch.errors import PolyarchError

Indices = NDArray[np.int64]

ROLES = ("train", "search", "select", "calibrate", "test", "unlabelled")
"""The splits that a task may have, in the order in which they are named."""
HELD_OUT = ("test", "select", "search", "calibrate")
"""Those that are set aside, in the order in which they are taken, so that a later one moves no earlier one."""
CHUNK = 2**22  # elements turned to float64 at a time, so that statistics of a large uint8 set need little memory


@dataclass(frozen=True)
class RawData:
    """What a source read: inputs [n, ...] and targets [n], with a test set where the data has one."""

    x: Array | Frame | Rows | Mapping[str, Array]
    """By their names, where every example has several; `Rows` where they are read as they are needed."""
    y: Array
    where: str
    """What to call the data in an error: a file name or a source's name."""
    x_test: Array | Frame | Rows | Mapping[str, Array] | None = None
    y_test: Array | None = None
    kind: KindSetting = "classification"
    noise: NoiseSetting = "fixed"
    """Where the standard deviation of numbers to predict comes from."""
    likelihood: str = BY_KIND
    """What outputs say of targets, by name; that of classes or of numbers unless told."""
    class_weights: ClassWeights = "none"
    """How much classes count in learning."""
    classes: tuple[str, ...] = ()
    """Names of all classes in the order of their labels, or of several targets, where the data has them."""
    standardise: bool = True
    """Whether inputs and numbers to predict are brought to mean 0 and deviation 1; not where networks must see them as
    they are."""
    reading: Reading | None = None
    """Of a table, how its columns are read."""


def make_task(
    raw: RawData,
    *,
    name: str,
    sizes: Mapping[str, float],
    labels: int = 0,
    split_seed: int = 0,
    source: dict[str, Any] | None = None,
    again: Callable[..., Task] | None = None,
) -> Task:
    """Checks and splits what was read.

    Args:
        raw: what was read.
        name: the task's name.
        sizes: of the splits that are set aside (`HELD_OUT`), each a share (below 1) or a count of the examples; `test`
            is 0 where these have a test set.
        labels: how many training examples keep their label; 0 is all.
        split_seed: which random split.
        source: how to load it again (`Task.source`).
        again: how to split it anew (`Task.again`).
    """
    where = raw.where
    given, given_test, parts_of_x = _checked(raw)
    own = None if raw.likelihood == BY_KIND else _own_likelihood(raw)
    kind = "own" if own else kind_of(raw.y, raw.kind, f"{where}: y")
    y, y_test, classes = _targets(raw, kind, own)
    check_pair(given, y, (f"{where}: x", f"{where}: y"))
    held = {role: held_count(role, sizes.get(role, 0), len(y)) for role in HELD_OUT}
    parts = split_indices(len(y), held, strata=y if kind == "classification" else None, seed=split_seed, where=where)
    training = parts["train"]  # whether or not they keep their label
    x, x_test, preprocess, columns = _coded(raw, given, given_test, parts_of_x, training)
    if x_test is not None and y_test is not None:
        check_pair(x_test, y_test, (f"{where}: x_test", f"{where}: y_test"))
    likelihood = own.learn(y[training]) if own else _likelihood(raw, kind, y, y_test, training, classes, held["select"])
    numbers = raw.standardise and kind == "regression"

    splits = {role: _split(x, y, part) for role, part in parts.items() if len(part)}
    if x_test is not None and y_test is not None and len(y_test):
        splits["test"] = _split(x_test, y_test, np.arange(len(y_test)))

    if labels:
        if not isinstance(likelihood, Classification):
            raise PolyarchError(
                f"labels={labels}, but {name} has {likelihood.predicts} to predict, not classes; leave labels out"
            )
        kept = keep_labels(y[training], labels, classes=likelihood.classes, seed=split_seed, name=name)
        parts |= {"train": training[kept], "unlabelled": training[~kept]}
        hidden = np.full_like(y, HIDDEN)
        splits |= {"train": _split(x, y, parts["train"]), "unlabelled": _split(x, hidden, parts["unlabelled"])}
    if raw.class_weights == "balanced":
        if not isinstance(likelihood, Classification):
            raise PolyarchError(
                f"{where}: class_weights=balanced is for classes, and these are {likelihood.predicts}; leave it out"
            )
        likelihood = replace(likelihood, weights=balanced_weights(splits["train"].y, likelihood.classes))
    check_disjoint(parts.values(), len(y))
    splits = {role: splits[role] for role in ROLES if role in splits}
    return Task(
        name=name,
        splits=splits,
        likelihood=likelihood,
        preprocess=preprocess,
        units=Units.of(y[training]) if numbers else AS_READ,
        fingerprint=fingerprint(splits, preprocess),
        source=source,
        classes=classes,
        columns=columns,
        tokens=_tokens([split.x for split in splits.values()]),
        indices={role: torch.from_numpy(part) for role, part in parts.items() if len(part)},
        again=again,
    )


def _tokens(inputs: Sequence[Tensor | Rows]) -> int:
    """How many different ones there are; 0 where inputs are numbers."""
    if inputs[0].dtype != torch.int64:
        return 0
    return 1 + max(int(ends_of(x)[1]) for x in inputs)


def _own_likelihood(raw: RawData) -> Likelihood:
    """The likelihood that was named; settings that are for others are refused beside it."""
    for name, value in (("kind", raw.kind), ("noise", raw.noise)):
        if value != "auto":
            raise PolyarchError(
                f"{raw.where}: {name}={value} says nothing beside likelihood={raw.likelihood}; leave it out"
            )
    return likelihood_named(raw.likelihood)


def _targets(
    raw: RawData, kind: Kind | Literal["own"], own: Likelihood | None
) -> tuple[Array, Array | None, tuple[str, ...]]:
    """Targets and those of a test set as numbers, and the names of the classes, or of several targets."""
    given = {f"{raw.where}: {name}": y for name, y in (("y", raw.y), ("y_test", raw.y_test)) if y is not None}
    if kind != "classification":
        found = [own.checked(y, what) if own else checked_numbers(y, what) for what, y in given.items()]
        if any(y.shape[1:] != found[0].shape[1:] for y in found):
            raise PolyarchError(f"{raw.where}: y and y_test have other numbers of targets; make them equal")
        return found[0], found[1] if len(found) > 1 else None, raw.classes if own else ()
    labels = [class_labels(y, what) for what, y in given.items()]
    if len({is_text(own) for own in labels}) > 1:
        raise PolyarchError(f"{raw.where}: classes are words in one of y and y_test only; name them alike")
    classes = raw.classes or class_names(np.concatenate(labels))
    indices = [class_indices(own, classes, what) for own, what in zip(labels, given, strict=True)]
    return indices[0], indices[1] if len(indices) > 1 else None, classes


def _checked(raw: RawData) -> tuple[Array | Frame | Rows, Array | Frame | Rows | None, Parts | None]:
    """Inputs and those of a test set, alike and as networks can take them; of a table its columns alone are checked.

    Several of one example come as rows, with what stands where in them. What is read as it is needed was checked when
    it was scanned.
    """
    if isinstance(raw.x, Rows):
        assert raw.x_test is None or isinstance(raw.x_test, Rows)
        if raw.x_test is not None:
            _check_alike(raw.where, raw.x, raw.x_test)
        return raw.x, raw.x_test, None
    if isinstance(raw.x, Mapping):
        return _in_rows(raw, raw.x)
    if isinstance(raw.x_test, Mapping):
        raise PolyarchError(f"{raw.where}: x_test is several inputs and x is one; give both alike")
    if isinstance(raw.x, Frame):
        if isinstance(raw.x_test, Frame):
            check_columns(f"{raw.where}: x_test", list(raw.x_test.columns), list(raw.x.columns))
        elif raw.x_test is not None:
            raise PolyarchError(f"{raw.where}: x is a table and x_test is none; give both alike")
        return raw.x, raw.x_test, None
    assert not isinstance(raw.x_test, Rows)
    x = checked_inputs(raw.x, f"{raw.where}: x")
    if raw.x_test is None:
        return x, None, None
    if isinstance(raw.x_test, Frame):
        raise PolyarchError(f"{raw.where}: x_test is a table and x is none; give both alike")
    x_test = checked_inputs(raw.x_test, f"{raw.where}: x_test")
    _check_alike(raw.where, x, x_test)
    return x, x_test, None


def _check_alike(where: str, x: Array | Rows, x_test: Array | Rows) -> None:
    """Raises where single examples of two sets differ in shape or type."""
    for what, ours, theirs in (("shape", tuple(x.shape[1:]), tuple(x_test.shape[1:])), ("type", x.dtype, x_test.dtype)):
        if ours != theirs:
            raise PolyarchError(
                f"{where}: examples of x have the {what} {ours} but those of x_test {theirs}; make them equal"
            )


def _in_rows(raw: RawData, x: Mapping[str, Array]) -> tuple[Array, Array | None, Parts]:
    """Several inputs, and those of a test set, side by side."""
    given = {"x": x}
    if raw.x_test is not None:
        if not isinstance(raw.x_test, Mapping) or raw.x_test.keys() != x.keys():
            raise PolyarchError(f"{raw.where}: x_test does not have the inputs of x; give both alike")
        given["x_test"] = raw.x_test
    checked = {
        what: {name: checked_inputs(one, f"{raw.where}: {what}[{name}]") for name, one in own.items()}
        for what, own in given.items()
    }
    kinds = [[(one.shape[1:], one.dtype) for one in own.values()] for own in checked.values()]
    if kinds[0] != kinds[-1]:
        raise PolyarchError(
            f"{raw.where}: the inputs of x_test have other shapes or types than those of x; make them equal"
        )
    everything = {name: np.concatenate([own[name] for own in checked.values()]) for name in x}
    rows = [in_rows(list(own.values())) for own in checked.values()]
    return rows[0], rows[1] if len(rows) > 1 else None, parts_of(everything)


def _coded(
    raw: RawData, x: Array | Frame | Rows, x_test: Array | Frame | Rows | None, parts: Parts | None, training: Indices
) -> tuple[Array | Rows, Array | Rows | None, Preprocess, Columns | None]:
    """Inputs and those of a test set as numbers, and what training examples say of how networks should see them."""
    if isinstance(x, Rows):
        assert not isinstance(x_test, Frame)
        return x, x_test, _standardise(raw, x.of(training)), None
    if isinstance(x, Frame):
        assert raw.reading is not None
        columns = raw.reading.learnt(x, training)
        if isinstance(x.columns, ColumnsOnDisk):
            coded = coded_on_disk(columns, x, raw.where)
            seen = Encode(columns).learn(coded, raw.standardise, training)
            return scanned(CodedRows(coded), raw.where)[0], None, seen, columns
        rows = columns.coded(x, raw.where, tell=False)
        test = columns.coded(x_test, f"{raw.where}: x_test") if isinstance(x_test, Frame) else None
        return rows, test, Encode(columns).learn(rows[training], raw.standardise), columns
    assert not isinstance(x_test, Frame | Rows)
    if parts is not None:
        each = zip(parts.unpacked(torch.from_numpy(x[training])), parts.types, strict=True)
        return x, x_test, Unpack(parts, [_standardise(raw, as_type(own, kind).numpy()) for own, kind in each]), None
    return x, x_test, _standardise(raw, x[training]), None


def _standardise(raw: RawData, x: Array | Rows) -> Standardise:
    """What training examples say of how networks should see inputs [n, ...]."""
    mean, std = x.statistics() if isinstance(x, Rows) else statistics(x)
    if not raw.standardise:
        mean, std = np.zeros_like(mean), np.ones_like(std)
    return Standardise(torch.from_numpy(mean), torch.from_numpy(std))


def _likelihood(
    raw: RawData,
    kind: Kind | Literal["own"],
    y: Array,
    y_test: Array | None,
    training: Indices,
    classes: tuple[str, ...],
    select: int,
) -> Likelihood:
    """What outputs say of targets; of numbers in the units in which they are learnt."""
    if kind == "regression":
        noise: Noise = ("task" if select else "fixed") if raw.noise == "auto" else raw.noise
        # As weights begin to be learnt; a scale that is learnt starts at that of the targets.
        spread = 1.0 if raw.standardise or noise == "fixed" else float(y[training].std(dtype=np.float64)) or 1.0
        return Gaussian(spread, noise)
    if raw.noise not in ("auto", "fixed"):
        raise PolyarchError(
            f"{raw.where}: noise={raw.noise} is for numbers to predict; set kind=regression, or leave it out"
        )
    everything = y if y_test is None else np.concatenate([y, y_test])
    return Classification(check_classes(y[training], everything, classes, raw.where))


def balanced_weights(y: Tensor, classes: int) -> tuple[float, ...]:
    """Weights with which every class counts alike, 1 in the mean over examples: n / (classes * examples of the class).

    Args:
        y: [n], labels of training examples, some of every class.
        classes: how many there are.
    """
    return tuple(len(y) / (classes * count) for count in y.bincount(minlength=classes).tolist())


def _split(x: Array | Rows, y: Array, part: Indices) -> Split:
    if isinstance(x, Rows):
        return Split(x.of(part), torch.from_numpy(y[part]))
    # Indexing copies, so that what was read can be split anew whatever becomes of a split. A copy from a
    # transposed view may still be transposed, hence ascontiguousarray.
    return Split(torch.from_numpy(np.ascontiguousarray(x[part])), torch.from_numpy(y[part]))


def held_count(name: str, amount: float, n: int) -> int:
    """How many of `n` examples a share (below 1; at least one example) or a count is."""
    if 0 <= amount < 1:
        return max(1, round(amount * n)) if amount else 0
    if amount < 0 or amount != int(amount):
        raise PolyarchError(
            f"{name}={amount} is out of range; give a share from 0 to below 1, or a whole number of examples"
        )
    return int(amount)


def split_indices(
    n: int, held: Mapping[str, int], *, strata: Array | None, seed: int, where: str
) -> dict[str, Indices]:
    """Indices of a random split by name, `train` first, each sorted, so that a split keeps the data's order.

    What is held for `calibrate` comes last and is drawn plainly at random from what the others leave: a guarantee is
    for inputs as they come, and a sample that keeps proportions, which are rounded, can be some points off.

    Args:
        n: how many examples there are.
        held: how many are set aside for each of the other splits, which are taken in this order.
        strata: [n] labels that every other split should hold in proportion; None for a plain random split.
        seed: which split.
        where: what to call the data in an error.
    """
    if n - sum(held.values()) < 2:
        names = [role for role, count in held.items() if count]
        less = f" less {' and '.join(f'{held[role]} for {role}' for role in names)}" if names else ""
        advice = f"lower {' or '.join(names)}" if names else "add examples"
        raise PolyarchError(f"{where}: {n} examples{less} leave fewer than 2 for training; {advice}")
    random = np.random.default_rng(seed)
    order = random.permutation(n)
    if strata is not None:
        # Within its class, example k of c gets the place k/c; sorted by place, every stretch of the order
        # holds the classes in proportion. The last of each class has the place 1: it stays in training.
        labels = strata[order]
        _, members, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        place = (turns(labels) + 1) / sizes[members]
        order = order[np.argsort(place, kind="stable")]
        in_proportion = sum(count for role, count in held.items() if role != "calibrate")
        random.shuffle(order[in_proportion : n - len(sizes)])
    ends = np.cumsum(list(held.values()))
    *taken, rest = np.split(order, ends)
    return {"train": np.sort(rest)} | {role: np.sort(part) for role, part in zip(held, taken, strict=True)}


def check_disjoint(parts: Iterable[Indices], n: int) -> None:
    """Raises unless every one of `n` examples is in exactly one part."""
    uses = np.bincount(np.concatenate(list(parts)), minlength=n)
    if len(uses) != n or (uses != 1).any():
        raise PolyarchError("splits overlap or leave examples out; please report this as a bug in polyarch")


def statistics(x: Array) -> tuple[Array, Array]:
    """Mean and standard deviation per feature [f] or per channel [c, 1, 1]; the deviation of a constant is 1.

    Of tokens it is 0 and 1 as whole numbers, since they have neither order nor size.

    Args:
        x: the training inputs, [n, f] or [n, c, h, w].
    """
    if x.dtype == np.int64:
        return np.zeros(x.shape[1:], np.int64), np.ones(x.shape[1:], np.int64)
    axes = (0,) if x.ndim == 2 else (0, 2, 3)
    rows = max(1, CHUNK // int(np.prod(x.shape[1:])))
    chunks = [slice(start, start + rows) for start in range(0, len(x), rows)]
    count = x.size // x.shape[1]

    def total(power: int, centre: Array | float) -> Array:
        return np.sum(
            [((x[chunk].astype(np.float64) - centre) ** power).sum(axes, keepdims=True) for chunk in chunks],
            0,
        )

    mean = total(1, 0.0) / count
    std = np.sqrt(total(2, mean) / count).astype(np.float32)
    # Rounding may leave a constant a deviation of 1e-17, and any other value at test time would then explode.
    constant = x.min(axes, keepdims=True) == x.max(axes, keepdims=True)
    std[constant | (std == 0)] = 1.0
    return mean.astype(np.float32)[0], std[0]


def fingerprint(splits: Mapping[str, Split], preprocess: Preprocess) -> str:
    """Sha256 over names, types, shapes and little-endian bytes of all splits and of the statistics.

    Inputs that are not in memory stand there by the digests of single examples.
    """
    arrays = {name: value.numpy() for name, value in preprocess.state_dict().items()}
    for name, split in splits.items():
        x = np.frombuffer(split.x.digest(), np.uint8) if isinstance(split.x, Rows) else split.x.numpy()
        arrays |= {f"{name}.x": x, f"{name}.y": split.y.numpy()}
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{name} {little.dtype.str} {little.shape};".encode())
        digest.update(little.data)
    return digest.hexdigest()
