import shutil

import pytest
from commandline import TINY, cli

import polyarch as pa
from polyarch.callbacks import Checkpoints
from polyarch.testing.callbacks import InterruptAfter


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A run that was never disturbed; look, but do not touch."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert cli("search", *TINY, "--out", folder).code == 0
    return folder


@pytest.fixture
def own_copy(finished, tmp_path):
    """The same, to be touched."""
    return shutil.copytree(finished, tmp_path / "copy")


@pytest.fixture(scope="session")
def interrupted_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupted") / "run"

    with pytest.raises(KeyboardInterrupt):
        pa.search(
            pa.spaces.ResidualDepth(max_depth=2, width=4),
            pa.data.load("spirals", points=60, test_points=40, select=0.3),
            pa.methods.VariationalDepth(epochs=6, batch_size=20),
            out=folder,
            compute=pa.Compute("cpu"),
            callbacks=[Checkpoints(seconds=0), InterruptAfter(4)],
        )
    return folder


@pytest.fixture
def interrupted(interrupted_once, tmp_path):
    """The same search as `finished`, interrupted after its fourth epoch, with checkpoints of epochs 3 and 4."""
    return shutil.copytree(interrupted_once, tmp_path / "interrupted")
