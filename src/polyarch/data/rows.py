"""Inputs that are read when they are needed, since there are more of them than memory should hold.

`Rows` stands where a tensor [n, ...] of inputs does and is used as one: `len`, `shape`, `dtype`, `x[rows]`,
`x.split(size)`. What comes out is a tensor of the rows that were asked for, so that a batch is all that is ever in
memory. Who knows what it is going to ask for says so (`batches`), and processes of their own read ahead.

All examples are gone through once, when the data is loaded (`scanned`): that finds what is damaged before hours were
spent, and all that a task must know of every example, so that nothing is read again to standardise, to make a
fingerprint or to split anew.
"""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from polyarch.data.checks import Array, reason
from polyarch.errors import PolyarchError
from polyarch.trees import tree_map

Indices = NDArray[np.int64]

LARGE = 2 * 2**30
"""Bytes of inputs from which on they are read as they are needed, unless told."""
AHEAD = 4
"""Batches that each process reads ahead."""
CPU = torch.device("cpu")
SCANNED, MOVED = 256, 2**22
"""Examples that are scanned at a time; and elements at most of those that are read at a time and kept."""


class Reader(Protocol):
    """Where examples come from. Processes that read get a copy of it, so it holds no open file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example: (features,) or (channels, height, width)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of all: uint8, float32, or int64 where they are tokens."""

    @property
    def workers(self) -> int:
        """Processes that read ahead; 0 where reading takes no time that matters."""

    def __len__(self) -> int: ...

    def read(self, rows: Indices) -> tuple[Array, Array]:
        """Inputs [k, *shape] and targets [k] of some examples, in this order; the same whenever it is asked."""


@final
@dataclass(frozen=True, eq=False)
class Scan:
    """What is known of every example."""

    digests: NDArray[np.uint8]
    """[n, 16], of the bytes of each."""
    low: Array
    high: Array
    """The least and the greatest number of all: in every column of vectors, else of all together, [1]."""
    mean: NDArray[np.float64] | None = None
    square: NDArray[np.float64] | None = None
    """Of images: mean and mean square deviation from it in every channel, [n, channels]."""


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Some of the inputs of a reader, [n, ...]; as networks see them where `preprocess` is given."""

    ahead: Ahead = field(repr=False)
    index: Indices
    """Which of the reader's they are, in order."""
    scan: Scan
    """Of all that the reader has."""
    preprocess: nn.Module | None = field(default=None, repr=False)
    device: torch.device = CPU

    @property
    def reader(self) -> Reader:
        """Where they come from."""
        return self.ahead.reader

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def shape(self) -> torch.Size:
        """As that of a tensor, [n, ...]: of a table as networks see it, features."""
        one = torch.from_numpy(np.zeros((1, *self.reader.shape), self.reader.dtype))
        seen = one if self.preprocess is None else self.preprocess(one.to(self.device))
        return torch.Size((len(self.index), *seen.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """Of what comes out."""
        read = torch.from_numpy(np.empty(0, self.reader.dtype)).dtype
        return torch.float32 if self.preprocess is not None and read != torch.int64 else read

    @property
    def nbytes(self) -> int:
        """What all of them would take as they are read."""
        return len(self) * math.prod(self.reader.shape) * self.reader.dtype.itemsize

    def of(self, rows: Tensor | Indices) -> Rows:
        """Some of them; nothing is read yet."""
        return replace(self, index=self.index[np.asarray(rows)])

    def beside(self, *others: Rows) -> Rows:
        """These and others of the same reader, one after the other."""
        return replace(self, index=np.concatenate([self.index, *(other.index for other in others)]))

    def seen(self, preprocess: nn.Module, device: torch.device | None) -> Rows:
        """The same as networks see them, on a device; they travel there as they were read."""
        device = device or CPU
        return replace(self, preprocess=deepcopy(preprocess).to(device), device=device)

    def __getitem__(self, rows: Any) -> Tensor:
        """Reads some, by a tensor of places or a slice; or one, by its place."""
        place = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        index = self.index[place]
        if index.ndim == 0:
            return self[[place]][0]
        size = max(1, MOVED // max(1, math.prod(self.reader.shape)))
        if len(index) <= size:
            return self._moved(_inputs(*self.reader.read(index)))
        parts = [torch.arange(start, min(start + size, len(index))) for start in range(0, len(index), size)]
        return torch.cat(list(replace(self, index=index).batches(parts)))

    def split(self, size: int) -> Iterator[Tensor]:
        """All of them, so many at a time, each read while the one before it is in use."""
        return self.batches([torch.arange(k, min(k + size, len(self))) for k in range(0, len(self), size)])

    def to(self, device: torch.device) -> Tensor:
        """All of them at once: for few."""
        return self[:].to(device)

    def batches(self, order: Sequence[Tensor]) -> Iterator[Tensor]:
        """What stands in these places, one batch after the other; the next ones are read ahead."""
        wanted = [self.index[rows.cpu().numpy()] for rows in order]
        return map(self._moved, self.ahead.read(_inputs, wanted, pin=self.device.type == "cuda"))

    def _moved(self, read: Tensor) -> Tensor:
        moved = read.to(self.device, non_blocking=True)
        return moved if self.preprocess is None else self.preprocess(moved)

    def digest(self) -> bytes:
        """Of all of them in their order, by those of every example."""
        return hashlib.sha256(np.ascontiguousarray(self.scan.digests[self.index]).data).digest()

    def statistics(self) -> tuple[Array, Array]:
        """Mean and deviation, [features] or [channels, 1, 1], as `splitting.statistics` has them of arrays."""
        if self.reader.dtype == np.int64:
            return np.zeros(self.reader.shape, np.int64), np.ones(self.reader.shape, np.int64)
        if self.scan.mean is not None and self.scan.square is not None:
            mean, square = _together(self.scan.mean[self.index], self.scan.square[self.index])
            mean, square = mean[:, None, None], square[:, None, None]
        else:
            mean, square = self._of_features()
        std = np.sqrt(square).astype(np.float32)
        std[std == 0] = 1.0
        return mean.astype(np.float32), std

    def _of_features(self) -> tuple[Array, Array]:
        """Mean and mean square deviation of vectors; each chunk's are put together."""
        parts = [part.double().numpy() for part in replace(self, preprocess=None).split(SCANNED)]
        counts = np.array([[len(part)] for part in parts], np.float64)
        means, squares = (np.stack([of(part, 0) for part in parts]) for of in (np.mean, np.var))
        return _together(means, squares, counts)


def _together(means: Array, squares: Array, counts: Array | float = 1.0) -> tuple[Array, Array]:
    """Mean and mean square deviation of groups [n, k] taken together: within, and of their means (Chan et al. 1983)."""
    counts = np.broadcast_to(np.asarray(counts, np.float64), (len(means), 1))
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    return mean, (counts * (squares + (means - mean) ** 2)).sum(0) / total


def ends_of(x: Tensor | Rows) -> tuple[float, float]:
    """The least and the greatest of all numbers of inputs; of `Rows`, of all that their reader has."""
    low, high = (x.scan.low, x.scan.high) if isinstance(x, Rows) else (x, x)
    return low.min().item(), high.max().item()


def in_turn(x: Any, order: Sequence[Tensor]) -> Iterator[Any]:
    """What stands in these places of inputs, one batch after the other: of a tensor, a tree of tensors, or `Rows`."""
    if isinstance(x, Rows):
        return x.batches(order)
    return (tree_map(itemgetter(rows), x) for rows in order)


# ---------------------------------------------------------------------------------------------------------------------
# Processes that read ahead.


@final
class _Items(Dataset[Any]):
    """Batches of examples: what is asked for is a function of inputs and targets, and places."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __getitem__(self, asked: tuple[Callable[[Array, Array], Any], Indices]) -> Any:
        make, rows = asked
        try:
            return make(*self.reader.read(rows))
        except PolyarchError as error:
            return error  # a raised one would come with a traceback in its text


def _inputs(x: Array, y: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def _known(x: Array, y: Array) -> tuple[Array, ...]:
    """Targets, digests, least and greatest number; of images also mean and variance of every channel."""
    x = np.ascontiguousarray(x)
    digests = [hashlib.blake2b(one.data, digest_size=16).digest() for one in x]
    columns = x if x.ndim == 2 and x.dtype != np.int64 else x.reshape(-1, 1)
    ends = np.stack([np.fmin.reduce(columns), np.fmax.reduce(columns)]).astype(np.float64)[None]  # gaps have none
    found = y, np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16), ends
    if x.ndim != 4:
        return found
    pixels = x.reshape(*x.shape[:2], -1).astype(np.float64)
    return *found, pixels.mean(-1), pixels.var(-1)


def scanned(reader: Reader, where: str) -> tuple[Rows, Array]:
    """All inputs of a reader, after one pass over them, and their targets.

    Args:
        reader: of the examples.
        where: what to call them in an error.
    """
    if not len(reader):
        raise PolyarchError(f"{where}: no examples; add some")
    wanted = [np.arange(start, min(start + SCANNED, len(reader))) for start in range(0, len(reader), SCANNED)]
    ahead = Ahead(reader)
    found = list(ahead.read(_known, wanted))
    y, digests, ends, *moments = (np.concatenate(parts) for parts in zip(*found, strict=True))
    low, high = (np.nan_to_num(own) for own in (np.fmin.reduce(ends[:, 0]), np.fmax.reduce(ends[:, 1])))
    return Rows(ahead, np.arange(len(reader)), Scan(digests, low, high, *moments)), y


@final
class Ahead:
    """A reader, with processes that read ahead for whoever says what comes next.

    They begin while this process is still small, since each keeps what this one held then, and stay for the next epoch.
    """

    def __init__(self, reader: Reader) -> None:
        """Begins none yet."""
        self.reader = reader
        self._idle: dict[tuple[int, bool], list[tuple[list[Any], DataLoader[Any]]]] = {}

    def read(self, make: Callable[[Array, Array], Any], wanted: Sequence[Indices], pin: bool = False) -> Iterator[Any]:
        """What is made of inputs and targets in these places, one batch after the other.

        Args:
            make: what the processes make of a batch.
            wanted: places of the examples of each.
            pin: whether tensors go to pinned memory, from where a CUDA device fetches them while it computes.
        """
        workers = self.reader.workers
        if not workers or not len(wanted):
            return (_whole(_Items(self.reader)[make, rows]) for rows in wanted)
        return self._by_others([(make, rows) for rows in wanted], pin)

    def _by_others(self, asked: list[Any], pin: bool) -> Generator[Any, None, None]:
        idle = self._idle.setdefault((os.getpid(), pin), [])  # a fork cannot ask its parent's
        order, loader = idle.pop() if idle else self._begun(pin)
        order[:] = asked
        try:
            with warnings.catch_warnings():  # Python 3.12 warns of every fork beside threads; these only read
                warnings.simplefilter("ignore", DeprecationWarning)
                coming = iter(loader)
            for read in coming:
                yield _whole(read)
            idle.append((order, loader))
        except GeneratorExit:  # nobody wants the rest; what was read of it is thrown away when they are asked again
            idle.append((order, loader))
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise PolyarchError(
                f"a process that read examples ended ({reason(error)}); is there enough memory? set workers=0 to read "
                "without any"
            ) from None

    def _begun(self, pin: bool) -> tuple[list[Any], DataLoader[Any]]:
        order: list[Any] = []
        return order, DataLoader(
            _Items(self.reader),
            batch_size=None,  # an item is a batch
            sampler=order,
            collate_fn=_as_it_is,
            num_workers=self.reader.workers,
            prefetch_factor=AHEAD,
            pin_memory=pin,
            persistent_workers=True,
            generator=torch.Generator(),  # else it draws from torch's own
        )


def _as_it_is(batch: Any) -> Any:
    return batch


def _whole(read: Any) -> Any:
    if isinstance(read, PolyarchError):
        raise read
    return read
