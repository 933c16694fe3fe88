"""A surrogate: a model that predicts what NAS-Bench-301 would have measured of the cells of DARTS (Zela et al. 2022).

The benchmark trained some 60,000 cells on CIFAR-10 and fitted models to what came of it; the one that is read here is
YAHPO Gym's (Pfisterer et al. 2022), a network in an ONNX file that answers for every epoch from 1 to 98. It is a table
of about 10^18 cells, none of which it holds: every number is a prediction, and is said to be one.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.cells import cells_of
from polyarch.spaces.darts import CELLS, EDGES, INPUTS, NODES, PARSEC_OPERATIONS, SLOTS, Darts
from polyarch.tables.any_batch import any_batch
from polyarch.tables.benchmark import Benchmark, Coverage
from polyarch.tables.columns import PREDICTION, Better, Column
from polyarch.tables.index import check_choices

ENCODING = "encoding.json"
"""The file beside a model that has the number of every option."""
EPOCH = 98
"""Predictions are of the end of training; the model knows no later epoch."""
COLUMNS: dict[str, tuple[Better, str]] = {
    "val_accuracy": ("higher", "validation accuracy in % on CIFAR-10"),
    "runtime": ("lower", "run time in seconds"),
}
"""What the model gives, in its own order."""
ABSENT = "#na#"
"""The option of an edge that a cell does not have."""
_PREFIX = "NetworkSelectorDatasetInfo_COLON_darts_COLON_"
EDGE_NAMES = [f"{_PREFIX}edge_{cell}_{k}" for cell in CELLS for k in range(len(EDGES))]
PAIR_NAMES = [f"{_PREFIX}inputs_node_{cell}_{node + INPUTS}" for cell in CELLS for node in range(1, NODES)]
"""What the model is given, in its own order: operations of edges, then which two inputs a node takes. The first node
has no choice. Edges are counted to ten and beyond, where the file of numbers sorts them as texts."""
_AT_ONCE = 8192
"""Architectures in one pass of the model, and draws in one go."""
_PATIENCE = 50
Codes = NDArray[np.int32]


@final
class Surrogate(Benchmark):
    """Predicts validation accuracy and run time of any cell of DARTS whose nodes each take two different inputs.

    How many layers and channels a space has is not asked: the numbers are of the benchmark's own training.
    """

    def __init__(self, path: Path) -> None:
        """Reads the model and the encoding that lies beside it."""
        self.where = str(path)
        when = f"in NAS-Bench-301's training, after {EPOCH} epochs; a prediction by a model, not a measurement"
        self.columns = {
            name: Column(name, None, None, PREDICTION, better, f"{about} {when}")
            for name, (better, about) in COLUMNS.items()
        }
        self.space = Darts()
        """Reads the texts of architectures."""
        self._edges, self._pairs = _read_encoding(path.with_name(ENCODING))
        self._session = _open_model(path)

    @override
    def values(self, column: str, space: Space, choices: Tensor) -> Tensor:
        numbers = self.known(column, space, choices)
        lacking = np.flatnonzero(np.isnan(numbers))
        if len(lacking):
            first = space.architecture(choices[int(lacking[0])].tolist())
            raise PolyarchError(
                f"{self.where}: no prediction for {len(lacking)} of the {len(numbers)} architectures asked for, where "
                "a node takes the same input twice, as in no cell of NAS-Bench-301; draw cells that it knows, as "
                f"`polyarch rank --from table` does; the first is {first}"
            )
        return torch.from_numpy(numbers).to(choices.device)

    @override
    def known(self, column: str, space: Space, choices: Tensor) -> NDArray[np.float64]:
        place = list(self.columns).index(self.column(column).name)
        asked = choices.cpu().numpy()
        check_choices(space, asked)
        operations, inputs = _read(space, asked, self.where)
        fits = _fits(inputs)
        numbers = np.full(len(asked), np.nan)
        numbers[fits] = self._predict(operations[fits], inputs[fits])[:, place]
        return numbers

    @override
    def with_gaps(self, name: str) -> NDArray[np.float64]:
        self.column(name)
        return np.empty(0)

    @override
    def check_whole(self, name: str) -> None:
        self.column(name)

    @override
    def coverage(self, space: Space) -> Coverage:
        """Exact: nodes are independent unless architectures are listed."""
        options = _options(space, self.where)[1]
        if space.listed_only:
            covered = int(_fits(_read(space, space.random().support().numpy(), self.where)[1]).sum())
        else:
            pairs = zip(options[::SLOTS], options[1::SLOTS], strict=True)
            covered = math.prod(int((one[:, None] != other).sum()) for one, other in pairs)
        if not covered:
            raise PolyarchError(
                f"{self.where}: it predicts for none of this space, where a node always takes the same input twice; "
                "take another table"
            )
        return Coverage(space.count(), covered, (), 0)

    @override
    def draw(self, space: Space, n: int, generator: torch.Generator) -> list[Architecture]:
        wanted = min(n, space.random().architectures)
        found: dict[tuple[int, ...], None] = {}
        for choices in self._drawn(space, n, generator):
            found |= dict.fromkeys(tuple(row) for row in choices.tolist())
            if len(found) >= wanted:
                break
        return [space.architecture(choices) for choices in list(found)[:n]]

    @override
    def random(self, space: Space, n: int, generator: torch.Generator) -> Tensor:
        """Draws of the space that have a prediction: one in 25, where nothing is known of the inputs."""
        found: list[Tensor] = []
        for choices in self._drawn(space, n, generator):
            found.append(choices)
            if sum(map(len, found)) >= n:
                break
        return torch.cat(found)[:n]

    def _drawn(self, space: Space, n: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Again and again some draws of a space, those that have a prediction; not for ever."""
        drawn = space.random()
        for _ in range(_PATIENCE * math.ceil(n / _AT_ONCE)):
            choices = drawn.sample(_AT_ONCE, generator)
            yield choices[torch.from_numpy(_fits(_read(space, choices.numpy(), self.where)[1]))]

    def _predict(self, operations: Codes, inputs: Codes) -> NDArray[np.float64]:
        """[n, columns] of operations and inputs [n, slots], two a node."""
        codes = self._encoded(operations, inputs)
        parts = [codes[start : start + _AT_ONCE] for start in range(0, len(codes), _AT_ONCE)]
        found = [
            self._session.run(None, {"x_cat": part, "x_cont": np.full((len(part), 1), EPOCH, np.float32)})[0]
            for part in parts
        ]
        return np.concatenate([np.empty((0, len(self.columns))), *found], dtype=np.float64)

    def _encoded(self, operations: Codes, inputs: Codes) -> Codes:
        """What the model is given [n, 34]."""
        codes = np.empty((len(inputs), len(EDGE_NAMES) + len(PAIR_NAMES)), np.int32)
        edges, pairs = codes[:, : len(EDGE_NAMES)], codes[:, len(EDGE_NAMES) :]
        edges[:] = self._edges[:, -1]
        everyone = np.arange(len(inputs))
        for slot in range(inputs.shape[1]):
            cell, node = divmod(slot // SLOTS, NODES)
            edge = cell * len(EDGES) + EDGES.index((node, 0)) + inputs[:, slot]
            edges[everyone, edge] = self._edges[edge, operations[:, slot]]
        for number, (cell, node) in enumerate(itertools.product(range(len(CELLS)), range(1, NODES))):
            first = (cell * NODES + node) * SLOTS
            pairs[:, number] = self._pairs[number, inputs[:, first], inputs[:, first + 1]]
        return codes


def _options(space: Space, where: str) -> tuple[list[Codes], list[Codes]]:
    """For every decision of a space of DARTS cells the operation, a number, and the input of each option."""
    if not isinstance(cells_of(space), Darts):
        raise PolyarchError(
            f"{where}: it predicts for cells of the space 'darts', not for the space {space.name!r}; take another table"
        )
    read = [[option.rsplit("~", 1) for option in decision.options] for decision in space.decisions]
    operations = [np.array([PARSEC_OPERATIONS.index(name) for name, _ in pairs], np.int32) for pairs in read]
    return operations, [np.array([int(source) for _, source in pairs], np.int32) for pairs in read]


def _read(space: Space, choices: NDArray[np.int64], where: str) -> tuple[Codes, Codes]:
    """Operations and inputs [n, slots] of choices."""
    operations, inputs = (
        np.stack([own[choices[:, k]] for k, own in enumerate(options)], 1) for options in _options(space, where)
    )
    return operations, inputs


def _fits(inputs: Codes) -> NDArray[np.bool_]:
    """Which of the inputs [n, slots] are two different ones for every node."""
    fits: NDArray[np.bool_] = (inputs[:, ::SLOTS] != inputs[:, 1::SLOTS]).all(1)
    return fits


def _read_encoding(path: Path) -> tuple[Codes, Codes]:
    """Numbers of operations [edges, operations], the last of an absent edge, and of pairs [nodes, inputs, inputs]."""
    most = NODES - 1 + INPUTS
    try:
        said: Mapping[str, Mapping[str, int]] = json.loads(path.read_text(encoding="utf-8"))
        edges = [[int(said[name][option]) for option in (*PARSEC_OPERATIONS, ABSENT)] for name in EDGE_NAMES]
        pairs = np.zeros((len(PAIR_NAMES), most, most), np.int32)
        for number, name in enumerate(PAIR_NAMES):
            for one, other in itertools.combinations(range(number % (NODES - 1) + 1 + INPUTS), 2):
                pairs[number, one, other] = pairs[number, other, one] = int(said[name][f"{one}_{other}"])
    except FileNotFoundError:
        raise PolyarchError(f"{path}: there is none, and the model beside it needs it; put it there") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolyarchError(
            f"{path}: it is no encoding of NAS-Bench-301 ({error!r}); take the one of the model"
        ) from None
    return np.array(edges, np.int32), pairs


def _open_model(path: Path) -> Any:
    """A session that takes any number of architectures, on one thread."""
    try:
        import onnxruntime
    except ImportError:
        raise PolyarchError(
            f"{path}: predicting needs onnxruntime; install polyarch[onnx], or take a table that is a .npz file"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(any_batch(path.read_bytes()), options, ["CPUExecutionProvider"])
        inputs = [(given.name, given.shape[-1]) for given in session.get_inputs()]
    except Exception as error:  # the runtime has errors of its own for everything that a file can lack
        raise PolyarchError(f"{path}: it cannot be read as an ONNX model: {str(error).splitlines()[0]}") from None
    if inputs != [("x_cat", len(EDGE_NAMES) + len(PAIR_NAMES)), ("x_cont", 1)]:
        raise PolyarchError(
            f"{path}: its inputs are {inputs}, so it is not the surrogate of NAS-Bench-301; take that one"
        )
    return session
