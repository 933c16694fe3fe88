"""The network that a search selected, trained alone beneath it: by which recipe, of which runs, and who has it then."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import Stage
from polyarch.methods import Standalone
from polyarch.methods.standalone import alone
from polyarch.report import write_report
from polyarch.runs.results import Networks
from polyarch.testing.toy import EnumeratedElbo
from polyarch.training.augment import Augment
from polyarch.training.optimisers import Adam, Sgd

CPU = pa.Compute("cpu")
PARSEC = pa.methods.Parsec(epochs=2, samples=2, batch_size=16)


def network(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 6), pa.Choice("act", {"relu": nn.ReLU(), "tanh": nn.Tanh()}), nn.Linear(6, outputs)
    )


def of_points():
    return network(2, 2)


def of_numbers():
    return network(1, 2)


@pytest.fixture(scope="module")
def spirals():
    return pa.data.load("spirals", points=60, test_points=20, select=0.3)


@pytest.fixture(scope="module")
def searched(tmp_path_factory, spirals):
    """A search; look, but do not touch."""
    return pa.search(
        pa.ModuleSpace(of_points), spirals, PARSEC, out=tmp_path_factory.mktemp("own") / "run", compute=CPU
    )


@dataclass(frozen=True, kw_only=True)
class ByAdam(EnumeratedElbo):
    """A method of one's own: weights by another optimiser, in two stages."""

    weights: Adam = Adam()

    def stages(self, space):
        return (Stage(space, 2), Stage(space, 3))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (
            pa.methods.OneShot(epochs=3, weights=Sgd(lr=0.3, momentum=0.5), augment=Augment(flip=True)),
            {"epochs": 3, "batch_size": 64, "weights": Sgd(lr=0.3, momentum=0.5), "augment": Augment(flip=True)},
        ),
        # What nobody set is as `polyarch train` has it: rates of searches are for weights that many networks share.
        (pa.methods.Gdas(), {}),
        (pa.methods.Gdas(epochs=7), {"epochs": 7}),
        (pa.methods.Gdas(epochs=300, batch_size=8), {"epochs": 300, "batch_size": 8}),
        (ByAdam(batch_size=9), {"epochs": 5, "batch_size": 9, "weights": Standalone().weights}),
    ],
)
def test_what_was_set_for_the_search_stays(searched, method, expected):
    found = alone(method, searched.config.make_space(), searched.architecture)
    assert found == Standalone(architecture=str(searched.architecture), **expected)


def test_in_python(tmp_path, spirals):
    run = pa.search(pa.ModuleSpace(of_points), spirals, PARSEC, out=tmp_path / "run", compute=CPU)
    assert run.trained is None
    shared = run.model().state_dict()
    trained = pa.train_selected(run)
    assert run.trained.folder == trained.folder == tmp_path / "run" / "trained"
    assert not torch.equal(run.model().state_dict()["1.0.weight"], shared["1.0.weight"])
    assert torch.equal(run.model(run.architecture).state_dict()["1.0.weight"], shared["1.0.weight"])
    before = (trained.folder / "result.json").read_bytes()
    assert pa.train_selected(run).folder == trained.folder, "what is trained is not trained again"
    assert (trained.folder / "result.json").read_bytes() == before


def test_noise_is_that_of_the_network_that_is_handed_over(tmp_path):
    x = np.linspace(-2, 2, 120)
    y = np.sin(2 * x) + 0.3 * np.random.default_rng(0).normal(size=120)
    task = pa.data.load((x[:, None], y), kind="regression", noise="input", select=0.3, test=0.2)
    run = pa.search(pa.ModuleSpace(of_numbers), task, PARSEC, out=tmp_path / "run", compute=CPU)
    before = run.likelihood()
    trained = pa.train_selected(run)
    assert run.likelihood() == trained.likelihood() != before
    assert run.likelihood("shared") == before
    text = write_report(run, task).read_text(encoding="utf-8")
    assert "Trained alone, the selected network reaches a test RMSE of" in text
    held, width = (trained.result["metrics"]["test"][f"{name}_90"] for name in ("coverage", "width"))
    assert f"{100 * held:.1f}\u202f%, {width:.3f}" in text
    ensemble = pa.train_members(run, 2)
    worth = Networks(trained, run.model(), {"ensemble": ensemble}).evaluate(task.select)["ensemble"]
    # Its noise is that of these members by validation data: no other scale fits that better.
    for factor in (0.9, 1.1):
        ensemble.likelihood = replace(ensemble.likelihood, scale=ensemble.likelihood.scale * factor)
        other = Networks(trained, run.model(), {"ensemble": ensemble}).evaluate(task.select)["ensemble"]
        ensemble.likelihood = replace(ensemble.likelihood, scale=ensemble.likelihood.scale / factor)
        assert other["log_likelihood"] < worth["log_likelihood"]


def test_where_no_weights_are_shared(tmp_path, spirals):
    images = pa.data.load((np.random.default_rng(0).random((24, 1, 8, 8), np.float32), np.arange(24) % 2), select=0.3)
    wired = pa.methods.StochasticArchitectures(epochs=1, batch_size=8)
    alone = Standalone(architecture="act=relu", epochs=1, batch_size=16)
    one = pa.spaces.Restricted.to(pa.ModuleSpace(of_points), pa.ModuleSpace(of_points).parse("act=relu"))
    depth = pa.spaces.ResidualDepth(max_depth=2, width=4)
    for k, (space, task, method) in enumerate(
        (
            (depth, spirals, pa.methods.VariationalDepth(epochs=1, batch_size=16)),
            (depth, spirals, PARSEC),
            (pa.spaces.Wiring(stages=1, nodes=2, channels=2, listed=2), images, wired),
            (pa.ModuleSpace(of_points), spirals, alone),
            (one, spirals, PARSEC),
        )
    ):
        run = pa.search(space, task, method, out=tmp_path / str(k), compute=CPU)
        assert not run.shares_weights, k
        with pytest.raises(PolyarchError, match="do not share weights with others"):
            pa.train_selected(run)
        assert not (run.folder / "trained").exists()
