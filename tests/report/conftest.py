import functools
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pages import PAGES
from report_own_model import Own
from rewriting import in_stages, rewritten

import polyarch as pa
from polyarch.data.task import Task
from polyarch.report import write_report, write_summary_report
from polyarch.runs.run import Run

ODD = "odd <b>&amp; \"quoted\" 'name' $x$ é"


@dataclass
class Made:
    """A finished search and its data."""

    runs: list[Run]
    task: Task
    folder: Path

    @property
    def run(self) -> Run:
        [run] = self.runs
        return run


def made(folder, space, task, method, **settings) -> Made:
    found = pa.search(space, task, method, out=folder, compute=pa.Compute("cpu"), **settings)
    return Made(found if isinstance(found, list) else [found], task, folder)


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="session")
def digits(home):
    space = pa.spaces.ResidualDepth(max_depth=3, width=8)
    return made(
        home / ODD,
        space,
        pa.data.load("digits"),
        pa.methods.VariationalDepth(epochs=2, batch_size=256),
        select="expectation",
    )


@pytest.fixture(scope="session")
def digits_fixed(home, digits):
    space = pa.spaces.ResidualDepth(max_depth=3, width=8)
    method = pa.methods.FixedDepth
    runs = [
        made(home / f"fixed-{d}", space, digits.task, method(depth=d, epochs=2, batch_size=256)).run for d in (0, 2)
    ]
    return Made(runs, digits.task, home)


@pytest.fixture(scope="session")
def spirals(home):
    space = pa.spaces.ResidualDepth(max_depth=14, width=8)
    method = pa.methods.VariationalDepth(epochs=4)
    return made(home / "spirals", space, pa.data.load("spirals", test_points=200), method, select="95%")


@pytest.fixture(scope="session")
def repeats(home):
    space, method = pa.spaces.ResidualDepth(max_depth=3, width=8), pa.methods.VariationalDepth(epochs=3)
    return made(home / "repeats", space, pa.data.load("spirals", test_points=200), method, repeats=3)


@pytest.fixture(scope="session")
def spirals_fixed(home):
    space, method = pa.spaces.ResidualDepth(max_depth=3, width=8), pa.methods.FixedDepth(depth=2, epochs=3)
    return made(home / "spirals-fixed", space, pa.data.load("spirals", test_points=200), method)


@pytest.fixture(scope="session")
def images(home):
    """Few and small, for searches of which it does not matter what they find."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(48, 1, 8, 8)).astype(np.float32), random.integers(0, 3, 48)
    np.savez(home / "images.npz", x=x, y=y)
    return pa.data.load(home / "images.npz", select=0.3, test=0.2)


@pytest.fixture(scope="session")
def cell_search(home, images):
    space, method = pa.spaces.NasBench201(channels=2, cells=1), pa.methods.Parsec(epochs=2, samples=1, batch_size=8)
    return made(home / "cells", space, images, method, repeats=2)


@pytest.fixture(scope="session")
def cell_alone(home, images):
    cell = "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|skip_connect~0|nor_conv_3x3~1|avg_pool_3x3~2|"
    method = pa.methods.Standalone(architecture=cell, epochs=2, batch_size=8)
    return made(home / "cell", pa.spaces.NasBench201(channels=2, cells=1), images, method)


@pytest.fixture(scope="session")
def quick_cells(home, images):
    space = pa.spaces.NasBench201(channels=2, cells=1)
    method = pa.methods.Darts(epochs=6, batch_size=8, arch={"lr": 0.3})
    return made(home / "quick", space, images, method)


@pytest.fixture(scope="session")
def staged(home, quick_cells):
    return Made([rewritten(quick_cells.run, home / "staged", in_stages)], quick_cells.task, home / "staged")


@pytest.fixture(scope="session")
def parents(home, images):
    """Belief about simplices that architectures are read out of."""
    space = pa.spaces.NasBench1Shot1(channels=2, cells=1)
    return made(home / "parents", space, images, pa.methods.Darts(epochs=2, batch_size=8, arch={"lr": 0.3}))


@pytest.fixture(scope="session")
def pairs(home, images):
    """Sixteen decisions of up to 35 options."""
    space = pa.spaces.Darts(layers=2, channels=2)
    return made(home / "pairs", space, images, pa.methods.Parsec(epochs=2, batch_size=8, samples=1, arch={"lr": 0.3}))


WIRING = pa.spaces.Wiring(stages=2, nodes=6, channels=2)


@pytest.fixture(scope="session")
def wiring(home, images):
    """A method that learns no belief."""
    return made(home / "wiring", WIRING, images, pa.methods.StochasticArchitectures(epochs=2, batch_size=8))


@pytest.fixture(scope="session")
def wirings(home, images):
    method = pa.methods.StochasticArchitectures(epochs=2, batch_size=8)
    return made(home / "wirings", WIRING, images, method, repeats=3)


OWN_METHOD = pa.methods.Parsec(epochs=2, batch_size=8, samples=1, arch={"lr": 0.3})


@pytest.fixture(scope="session")
def own(home, images):
    return made(home / "own", pa.ModuleSpace(Own), images, OWN_METHOD)


@pytest.fixture(scope="session")
def owns(home, images):
    return made(home / "owns", pa.ModuleSpace(Own), images, OWN_METHOD, repeats=3)


@pytest.fixture(scope="session")
def unsplit(home):
    space, method = pa.spaces.ResidualDepth(max_depth=3, width=8), pa.methods.VariationalDepth(epochs=3)
    return made(home / "unsplit", space, pa.data.load("spirals", test_points=0), method)


@pytest.fixture(scope="session")
def regression(home):
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + 0.1 * random.normal(size=200)).astype(np.float32)
    task = pa.data.load((x, y), kind="regression", select=0.2, test=0.2)
    space, method = pa.spaces.ResidualDepth(max_depth=3, width=8), pa.methods.VariationalDepth(epochs=3)
    return made(home / "regression", space, task, method)


@pytest.fixture(scope="session")
def page(request, home):
    """Where the page of a name is; each is written once."""

    @functools.cache
    def written(name: str) -> Path:
        found = request.getfixturevalue(name)
        baselines = request.getfixturevalue(PAGES[name]).runs if PAGES[name] else ()
        if len(found.runs) > 1:
            path = write_summary_report(found.folder, found.runs, found.task, baselines=baselines)
        else:
            path = write_report(found.run, found.task, baselines=baselines)
        (home / "pages" / name).mkdir(parents=True)
        return Path(shutil.copy(path, home / "pages" / name))

    return written
