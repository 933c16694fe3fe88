"""Weights of classes: those of scikit-learn, as if examples were repeated, and not where predictions are judged."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.utils.class_weight import compute_class_weight
from torch.utils._python_dispatch import TorchDispatchMode

from polyarch.data import Classification, load
from polyarch.data.likelihood import Gaussian, likelihood_from
from polyarch.errors import PolyarchError

RANDOM = np.random.default_rng(0)
Y = np.repeat([0, 1, 2], [70, 20, 10])
X = RANDOM.normal(size=(100, 3)).astype(np.float32)


def saved(kind, folder):
    """The same labels as data of a kind."""
    if kind == "arrays":
        return X, Y
    if kind == "dataset":
        return torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    if kind == "npz":
        np.savez(folder / "data.npz", x=X, y=Y)
        return folder / "data.npz"
    if kind == "csv":
        np.savetxt(folder / "data.csv", np.c_[X, Y], delimiter=",", header="a,b,c,label", comments="")
        return folder / "data.csv"
    for k, label in enumerate(Y):
        (folder / "images" / f"class-{label}").mkdir(parents=True, exist_ok=True)
        pixels = RANDOM.integers(0, 256, (4, 4), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"class-{label}" / f"{k}.png")
    return folder / "images"


@pytest.mark.parametrize("kind", ["arrays", "dataset", "npz", "csv", "images"])
def test_balanced_weights_are_those_of_scikit_learn(kind, tmp_path):
    source = saved(kind, tmp_path)
    plain, task = load(source), load(source, class_weights="balanced")
    y = task.train.y.numpy()
    assert task.likelihood.weights == tuple(compute_class_weight("balanced", classes=np.arange(3), y=y))
    assert np.take(task.likelihood.weights, y).mean() == pytest.approx(1)
    assert plain.likelihood == Classification(3)
    assert plain.fingerprint == task.fingerprint  # the examples are the same
    assert task.resplit(split_seed=1, test=0.5).likelihood.weights != task.likelihood.weights
    if task.source:
        again = load(task.source["data"], **task.source["settings"])
        assert again.likelihood == task.likelihood


def test_weights_are_of_examples_that_keep_their_label():
    task = load((X, Y), class_weights="balanced", labels=12)
    assert task.train.y.bincount().tolist() == [4, 4, 4]
    assert task.likelihood.weights == (1.0, 1.0, 1.0)


def test_what_has_no_classes_is_refused():
    with pytest.raises(PolyarchError, match="class_weights=balanced is for classes, and these are numbers"):
        load((X, Y), kind="regression", class_weights="balanced")
    with pytest.raises(PolyarchError, match=r"class_weights 'equal'; known: balanced, none"):
        load((X, Y), class_weights="equal")


def test_a_weight_is_a_number_of_repetitions():
    times = torch.tensor([1, 3, 2])
    y = torch.tensor([0, 0, 1, 2, 1, 0])
    output = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    weighted, plain = Classification(3, (1.0, 3.0, 2.0)), Classification(3)
    fit = weighted.log_likelihood(output, y)
    assert fit.shape == (4, 6)
    often = times[y]
    repeated = plain.log_likelihood(output.repeat_interleave(often, 1), y.repeat_interleave(often))
    torch.testing.assert_close(fit.sum(-1), repeated.sum(-1))
    torch.testing.assert_close(*(torch.autograd.grad(own.sum(), output)[0] for own in (fit, repeated)))
    # A target may be broadcast over the outputs of several depths.
    torch.testing.assert_close(weighted.log_likelihood(output, y.expand(1, 6)), fit)


def test_what_judges_counts_every_example_alike():
    weighted = Classification(3, (1.0, 3.0, 2.0))
    y, output = torch.tensor([0, 1, 2]), torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    plain = Classification(3).log_likelihood(output, y)
    assert weighted.unweighted == Classification(3)
    assert Classification(3).unweighted == Classification(3)
    assert Gaussian(2.0, "task").unweighted == Gaussian(2.0, "task")
    torch.testing.assert_close(weighted.counted(plain, y), weighted.log_likelihood(output, y))
    assert weighted.metric_values(output, y).tolist() == Classification(3).metric_values(output, y).tolist()
    shares = torch.tensor([0.25, 0.75])
    outputs = torch.stack([output, -output])
    torch.testing.assert_close(weighted.mixture(outputs, shares), Classification(3).mixture(outputs, shares))


def test_settings_make_it_again():
    for likelihood in (Classification(2, (0.1 + 0.2, 1 / 3)), Classification(2)):
        assert likelihood_from(json.loads(json.dumps(likelihood.settings()))) == likelihood
    assert Classification(2).settings() == {"kind": "classification", "classes": 2}  # as runs of before have it


class Operations(TorchDispatchMode):
    """Which operations are made."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(str(operation))
        return operation(*args, **(kwargs or {}))


def test_no_weight_is_copied_from_the_host_where_they_are_on_the_device():
    y, output = torch.tensor([0, 1]), torch.zeros(2, 2)
    given = Classification(2, (0.5, 2.0))

    def copies(likelihood):
        with Operations() as made:
            likelihood.log_likelihood(output, y)
        return [name for name in made.names if "lift" in name or "_to_copy" in name]

    assert copies(given)
    assert not copies(given.on(output.device))
    torch.testing.assert_close(given.on(output.device).log_likelihood(output, y), given.log_likelihood(output, y))
