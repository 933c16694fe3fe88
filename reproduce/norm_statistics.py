"""By which statistics should batch norm judge a cell under shared weights? Three answers, held against each cell's own.

    python -m reproduce.norm_statistics --quick                # one seed
    python -m reproduce.norm_statistics --full                 # three seeds; five minutes of one CPU core
    python -m reproduce.norm_statistics --table                # what was found, as Markdown

A supernet is trained by single-path on digits. Random cells are then evaluated on validation data with running
statistics everywhere, with those of the batch in cells and running ones around them (NATS-Bench's searches), and with
those of the batch everywhere behind the stem. A cell's own worth is that of its network taken out, batch norm measured
anew on training data. Writes docs/results/cells/statistics.json (rows, the command, seeds, machine).
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator

import torch
from scipy.stats import spearmanr
from torch import Tensor

import polyarch as pa
from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.views import Sparse
from polyarch.training.calibration import recalibrate
from reproduce.showing import Columns, Row, grouped, keep, mean_table, read, sized_parser

SPACES = {
    "nasbench201": pa.spaces.NasBench201(channels=8, cells=1),
    "nasbench1shot1-3": pa.spaces.NasBench1Shot1(sub_space=3, channels=8, cells=3),
}
EPOCHS = 12
POLICIES: dict[str, Callable[[str], bool]] = {
    "running": lambda path: False,
    "batch in cells, running around them": lambda path: "options" in path or "cells" in path,
    "batch but for the stem": lambda path: "stem" not in path,
}
"""Whether a batch norm goes by the batch, by its path in the network."""


def accuracy(outputs: Tensor, labels: Tensor) -> float:
    """The share of right answers."""
    return (outputs.argmax(-1) == labels).float().mean().item()


@torch.no_grad()
def compared(name: str, seed: int, count: int) -> Iterator[Row]:
    """A row for each policy: the mean accuracy of random cells, and how well it orders them."""
    space, task = SPACES[name], pa.data.load("digits")
    assert task.select is not None
    with tempfile.TemporaryDirectory() as folder, torch.enable_grad():
        run = pa.search(space, task, pa.methods.OneShot(epochs=EPOCHS), out=f"{folder}/run", seed=seed)
        assert isinstance(run, pa.Run)
        supernet, standardise = run.supernet().eval(), run.preprocess()
    images, labels = standardise(task.select.x), task.select.y
    batches = standardise(task.train.x).split(256)[:-1]
    cells = space.random().sample(count, torch.Generator().manual_seed(seed)).reshape(count, -1).tolist()
    own = []
    for cell in cells:
        network = supernet.extract(space.architecture(cell))
        recalibrate(network, batches)
        own.append(accuracy(network.eval()(images), labels))
    for policy, by_batch in POLICIES.items():
        for path, module in supernet.named_modules():
            if isinstance(module, BatchNorm):
                module.statistics = "batch" if by_batch(path) else "running"
        found = [accuracy(supernet(images.unsqueeze(0), Sparse(tuple(cell)))[0], labels) for cell in cells]
        yield {
            "space": name, "seed": seed, "statistics": policy, "accuracy": sum(found) / count,
            "own": sum(own) / count, "spearman": float(spearmanr(found, own)[0]),
        }  # fmt: skip


def measurements(given: Namespace) -> Iterator[Row]:
    """Every space and seed."""
    torch.set_num_threads(1)
    for name in SPACES:
        for seed in range(given.seeds):
            yield from compared(name, seed, given.cells)


COLUMNS: Columns = {
    "accuracy": ("accuracy", 3), "accuracy by own statistics": ("own", 3), "rank correlation with it": ("spearman", 3)
}  # fmt: skip


def main() -> None:
    """Runs it, or shows what there is."""
    parser = sized_parser(__doc__, "cells", "table", seeds=(1, 3), cells=(20, 60))
    given = parser.parse_args()
    if given.table:
        if part := read(given.out, "statistics"):
            print(mean_table(["space", "statistics"], grouped(part.rows, "space", "statistics"), COLUMNS, left=2))
        return
    keep(given.out / "statistics.json", measurements(given), say=str, cells=given.cells, epochs=EPOCHS)


if __name__ == "__main__":
    main()
