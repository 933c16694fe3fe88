"""Many networks at once, against the same networks one at a time."""

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import LAST, Problem
from polyarch.data.task import Split
from polyarch.streams import Streams
from polyarch.training.loop import Loop, Progress
from polyarch.training.optimisers import Schedule, Sgd
from polyarch.training.side_by_side import SideBySide

CELLS = pa.spaces.NasBench201(channels=2, cells=1)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path, random = tmp_path_factory.mktemp("images") / "images.npz", np.random.default_rng(0)
    np.savez(path, x=random.integers(0, 256, (40, 1, 6, 6), np.uint8), y=np.arange(40) % 3)
    return pa.data.load(path, select=0.4, test=0)


def loop_of(architectures, task, seeds):
    weights = Sgd(lr=0.1, nesterov=True, weight_decay=5e-4, schedule=Schedule(kind="cosine"))
    method = SideBySide(tuple(architectures), epochs=2, batch_size=8, weights=weights, stopping=LAST)
    space = CELLS.evaluated()
    data = {"train": task.train, "select": task.select}
    problem = Problem(
        space,
        space.supernet(task.shape, len(architectures)),
        task.likelihood,
        pa.distributions.uniform(space.decisions),
        {name: Split(task.preprocess(split.x), split.y) for name, split in data.items()},
    )
    streams = [Streams(seed) for seed in seeds]
    return Loop(method, problem, method.init(problem, streams, None), streams, Progress(), 2)


def test_each_is_trained_as_if_alone(images):
    cells = CELLS.decode(torch.randint(5, (3, 6), generator=torch.Generator().manual_seed(0)))
    together = loop_of(cells, images, [5, 6, 7])
    lines = [together.epoch() for _ in range(2)]
    for k, cell in enumerate(cells):
        alone = loop_of([cell], images, [5 + k])
        for line in lines:
            own = alone.epoch()
            for room in ("step", "select"):
                for name, values in line[room].items():
                    assert values[k] == pytest.approx(own[room][name][0], rel=1e-3, abs=1e-4), (room, name)
        network = together.problem.supernet.extract(cell, k).train()
        same = alone.problem.supernet.extract(cell, 0).train()
        x = images.preprocess(images.select.x)
        assert torch.allclose(network(x), same(x), atol=1e-3)
        assert together.method.distribution(CELLS, together.state.belief).mode()[k].tolist() == list(cell.choices)


def test_as_many_repeats_as_architectures(images):
    cells = CELLS.decode(torch.zeros(2, 6, dtype=torch.int64))
    loop = loop_of(cells, images, [0, 1])
    with pytest.raises(PolyarchError, match="3 architectures need as many repeats, not 2"):
        SideBySide((*cells, cells[0])).init(loop.problem, loop.streams, None)
