"""Noise that a search learns: from held-out data alone, kept in checkpoints, and honest where the truth is known."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.callbacks import Checkpoints
from polyarch.core import LAST, EarlyStopping, Stage
from polyarch.files import read_json
from polyarch.methods import FixedDepth, VariationalDepth
from polyarch.runs.results import Networks
from polyarch.runs.run import NOISE, RESULT, WEIGHTS, read_history
from polyarch.testing.callbacks import InterruptAfter
from polyarch.testing.toy import EnumeratedElbo, Lines
from polyarch.training import checkpoints
from polyarch.training.optimisers import Sgd

SPACE = pa.spaces.ResidualDepth(max_depth=3, width=16)
SLOW = Sgd(lr=0.01, momentum=0.5)
CPU = pa.Compute("cpu")


def waves(n, seed=0, deviation=lambda x: np.full(len(x), 0.3)):
    """A sine with noise: x [n, 1] and y [n]."""
    random = np.random.default_rng(seed)
    x = random.uniform(-2, 2, (n, 1))
    return x, np.sin(2 * x[:, 0]) + deviation(x[:, 0]) * random.normal(size=n)


def loaded(data, noise, **splits):
    return pa.data.load(data, kind="regression", noise=noise, **{"select": 0.3, "test": 0.2, **splits})


def searched(out, task, method, space=SPACE, **options):
    return pa.search(space, task, method, out=out, compute=CPU, **options)


def tensors(run):
    return {name: value.numpy().tobytes() for name, value in checkpoints.load(run.folder / WEIGHTS)[0].items()}


def timeless(folder):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(folder)]


def test_the_scale_is_the_root_mean_square_of_held_out_residuals(tmp_path):
    task = loaded(waves(150), "task")
    run = searched(tmp_path / "run", task, FixedDepth(epochs=10, batch_size=32, weights=SLOW))
    with torch.no_grad():
        residuals = task.select.y.double() - run.model()(task.select.x).squeeze(-1).double()
    wanted = residuals.square().mean().sqrt().item()
    assert run.likelihood().scale == pytest.approx(wanted, rel=1e-9)
    assert read_json(run.folder / NOISE) == run.result["noise"]
    assert run.result["noise"]["network"] == pytest.approx(wanted, rel=1e-9)
    said = run.ensemble().gaussians(task.test.x)
    assert torch.allclose(said.variance, torch.full_like(said.mean, wanted**2), rtol=1e-6)  # of one member


def test_while_it_searches_the_scale_is_that_of_the_evaluation_before(tmp_path):
    task = loaded(waves(150), "task")
    for stopping in (EarlyStopping(), EarlyStopping(split="train"), LAST):
        method = VariationalDepth(epochs=4, batch_size=32, weights=SLOW, stopping=stopping)
        out = tmp_path / str(stopping.split)
        runs = searched(out, task, method, repeats=2)
        for k, run in enumerate(runs):
            scale = checkpoints.load(run.folder / WEIGHTS)[0]["likelihood/scale"].item()
            kept = run.result["kept"]["epoch"]
            told = [line["select"]["squared_error"][k] ** 0.5 for line in read_history(out)]
            before = told[kept - 2] if kept > 1 else task.likelihood.scale
            assert scale == pytest.approx(before, rel=1e-6)


def test_overfitting_does_not_shrink_it(tmp_path):
    """As many inputs as training examples, most of which say nothing: the last state passes through the examples."""
    random = np.random.default_rng(0)
    x = random.normal(size=(440, 40))
    task = loaded((x, x[:, 0] + 0.5 * random.normal(size=440)), "task", select=200, test=200)
    run = searched(tmp_path / "run", task, FixedDepth(epochs=300, batch_size=40, weights=SLOW, stopping=LAST))

    def error(split):
        with torch.no_grad():
            return (split.y - run.model()(split.x).squeeze(-1)).square().mean().sqrt().item()

    assert error(task.train) < 0.2, "it does not overfit enough for this to say something"
    assert run.likelihood().scale > 0.5
    assert run.likelihood().scale == pytest.approx(error(task.test), rel=0.1)
    searching = checkpoints.load(run.folder / WEIGHTS)[0]["likelihood/scale"].item()
    assert searching * task.units.scale == pytest.approx(run.likelihood().scale, rel=0.01)
    assert run.result["metrics"]["test"]["coverage_90"] == pytest.approx(0.9, abs=0.06)


@pytest.mark.slow
def test_where_noise_differs_by_input_only_a_network_that_says_it_is_honest_everywhere(tmp_path):
    def deviation(x):
        return np.where(x < 0, 0.2, 0.8)

    data = waves(2600, deviation=deviation)
    method = FixedDepth(epochs=60, batch_size=50, weights=Sgd(lr=0.02, momentum=0.5))
    held, widths = {}, {}
    for noise in ("fixed", "task", "input"):
        task = loaded(data, noise, select=600, test=1000)
        run = searched(tmp_path / noise, task, method)
        said, y = run.ensemble().gaussians(task.test.x), task.test.y.double()
        quiet, inside = task.test.x[:, 0] < 0, said.centrality(y) <= 0.9
        held[noise] = [inside[quiet].double().mean().item(), inside[~quiet].double().mean().item()]
        widths[noise] = run.result["metrics"]["test"]["width_90"]
        assert run.result["metrics"]["test"]["coverage_90"] == inside.double().mean().item()
    assert held["input"] == [pytest.approx(0.9, abs=0.05)] * 2
    assert held["fixed"][0] == 1
    assert held["task"][0] > 0.97
    assert held["task"][1] < 0.87
    assert widths["input"] < widths["task"] < widths["fixed"]


def test_the_weights_of_one_network_are_those_of_fixed_noise(tmp_path):
    """What is learnt of noise does not move the mean, and validation data keeps the same epoch."""
    method = FixedDepth(epochs=6, batch_size=32, weights=SLOW)
    fixed, learnt = (searched(tmp_path / n, loaded(waves(150), n), method) for n in ("fixed", "task"))
    one, other = fixed.model().state_dict(), learnt.model().state_dict()
    for name, value in one.items():
        assert torch.allclose(value, other[name], atol=1e-5), name


@pytest.mark.parametrize("noise", ["task", "input"])
@pytest.mark.parametrize("evaluations", [1, 3])
def test_resume_is_bit_equal(tmp_path, noise, evaluations):
    task, method = loaded(waves(150), noise), VariationalDepth(epochs=5, batch_size=32, weights=SLOW)
    [*whole] = searched(tmp_path / "whole", task, method, repeats=2)
    torn = {"repeats": 2, "callbacks": [Checkpoints(seconds=0), InterruptAfter(evaluations)]}
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "torn", task, method, **torn)
    for one, other in zip(whole, pa.resume(tmp_path / "torn", task=task), strict=True):
        assert tensors(one) == tensors(other)
        assert timeless(one.folder) == timeless(other.folder)
        assert one.result["noise"] == other.result["noise"]
        assert one.result["metrics"] == other.result["metrics"]


@dataclass(frozen=True, kw_only=True)
class TwoStages(VariationalDepth):
    """The second stage goes on with all that the first has learnt."""

    name: ClassVar[str] = "two-stages-of-noise"

    def stages(self, space):
        return (Stage(space, 2), Stage(space, 2))

    def init(self, problem, streams, previous):
        state = super().init(problem, streams, previous)
        if previous is not None:
            state.copy_from(previous.tensors())
        return state


def test_every_stage_learns_its_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(__file__.rpartition("/")[0])
    task = loaded(waves(150), "task")
    run = searched(tmp_path / "run", task, TwoStages(batch_size=32, weights=SLOW))
    first, *_ = [line for line in run.history() if line["stage"] == 1]
    assert first["epoch"] == 1
    assert run.finished


def test_what_cannot_be_learnt_is_refused(tmp_path):
    method = VariationalDepth(epochs=1, batch_size=32, weights=SLOW)
    for noise in ("task", "input"):
        with pytest.raises(PolyarchError, match=r"needs validation data.*set select=0.15, or noise=fixed"):
            searched(tmp_path / "no", loaded(waves(60), noise, select=0), method)
    toy = searched(tmp_path / "toy", loaded(waves(60), "task"), EnumeratedElbo(epochs=1, batch_size=10), Lines())
    assert toy.likelihood().scale != toy.likelihood("before").scale  # its evaluations tell no error, so at the end
    run = searched(tmp_path / "run", loaded(waves(60), "task"), method)
    with pytest.raises(PolyarchError, match="load it with noise=task"):
        pa.resume(tmp_path / "run", task=loaded(waves(60), "fixed")) if not run.finished else _again(run)
    (run.folder / NOISE).unlink()
    with pytest.raises(PolyarchError, match=r"noise\.json is missing"):
        pa.open_run(run.folder).ensemble()


def _again(run):
    """An interrupted end: all is there but the result."""
    (run.folder / RESULT).rename(run.folder / "aside")
    try:
        pa.resume(run.folder, task=loaded(waves(60), "fixed"))
    finally:
        (run.folder / "aside").rename(run.folder / RESULT)


def test_networks_and_their_mixture_have_scales_of_their_own(tmp_path):
    task = loaded(waves(200), "task")
    run = searched(tmp_path / "run", task, VariationalDepth(epochs=8, batch_size=32, weights=SLOW))
    said = Networks.of(run, run.architecture).predict(task.select.x)
    assert list(said) == ["selected", "ensemble", "unpruned"]
    scales = run.result["noise"]
    errors = (said["ensemble"].mean - task.select.y).square().mean().sqrt().item()
    assert scales["mixture"] < errors  # some of its uncertainty is disagreement
    assert said["selected"].std[0].item() == pytest.approx(scales["network"], rel=1e-6)
    assert (said["ensemble"].std > scales["mixture"]).all()
