"""Likelihoods besides those of classes and of numbers: labels, counts, and one's own, by name or as they are."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, hamming_loss, mean_poisson_deviance

import polyarch as pa
from polyarch.data import Classification, Counts, Gaussian, MultiLabel
from polyarch.errors import PolyarchError
from polyarch.testing import check_likelihood

OWN = """
from dataclasses import dataclass
import math
import polyarch as pa

@dataclass(frozen=True)
class Laplace(pa.Likelihood):
    metric = "absolute_error"
    higher_is_better = False
    width: float = 1.0

    outputs = 1

    def log_likelihood(self, output, target):
        return -(output[..., 0] - target).abs() / self.width - math.log(2 * self.width)

    def mixture(self, outputs, weights):
        return (outputs * weights[..., None, None]).sum(0)

    def mean(self, output):
        return output[..., 0]

    def metric_values(self, output, target):
        return (output[..., 0] - target).abs()


class Half(pa.Likelihood):
    outputs = 1


NUMBER = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "likelihoods_of_ours.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    import likelihoods_of_ours

    yield likelihoods_of_ours
    import sys

    del sys.modules["likelihoods_of_ours"]


def some(n=40, k=3, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(n, 4)).astype(np.float32), random.integers(0, 2, (n, k)), random.poisson(3, n)


@pytest.mark.parametrize(
    "likelihood",
    [
        Classification(3),
        Classification(3, (0.5, 1.0, 1.5)),
        Gaussian(),
        Gaussian(0.5, "task"),
        Gaussian(2.0, "input"),
        MultiLabel(),
        Counts(),
        Counts(20.0),
    ],
    ids=str,
)
def test_every_likelihood_of_the_library_passes_the_check(likelihood):
    _, labels, counts = some()
    of = {Classification: counts % 3, Gaussian: counts - 2.5, MultiLabel: labels, Counts: counts}
    check_likelihood(likelihood, of[type(likelihood)])


def test_one_s_own_passes_it_and_what_is_wrong_with_one_is_said(own):
    y = np.arange(8.0)
    check_likelihood(own.Laplace(2.0), y)
    wrong = {
        "log_likelihood": (lambda self, output, target: (output[..., 0] - target).mean(), "one number per example"),
        "mixture": (lambda self, outputs, weights: outputs[0], "mean of its members' means"),
        "metric_values": (lambda self, output, target: output, "metric_values must be"),
        "mean": (lambda self, output: output[..., 0].exp(), "mean of its members' means"),
    }
    for name, (method, message) in wrong.items():
        broken = type("Broken", (own.Laplace,), {name: method})
        with pytest.raises(AssertionError, match=message):
            check_likelihood(broken(), y)

    class Downhill(own.Laplace):
        def log_likelihood(self, output, target):
            return super().log_likelihood(2 * output.detach() - output, target)

    with pytest.raises(AssertionError, match="lead to where log_likelihood is larger"):
        check_likelihood(Downhill(), y)


def test_labels_are_independent_bernoullis():
    output = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double() * 3
    target = torch.randint(2, (6, 3), generator=torch.Generator().manual_seed(1)).double()
    said, p = MultiLabel(3), torch.sigmoid(output).numpy()
    expected = stats.bernoulli.logpmf(target.numpy(), p).sum(-1)
    assert said.log_likelihood(output, target).numpy() == pytest.approx(expected)
    assert said.entropy(output).numpy() == pytest.approx(stats.bernoulli.entropy(p).sum(-1))
    assert said.variance(output).numpy() == pytest.approx(stats.bernoulli.var(p))
    far = said.log_likelihood(torch.tensor([[200.0, -200.0, 0.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    assert far.item() == pytest.approx(np.log(0.5))


def test_a_mixture_of_labels_averages_probabilities():
    outputs = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0)).double()
    weights = torch.tensor([0.2, 0.5, 0.3]).double()
    mixed = MultiLabel(2).mixture(outputs, weights)
    assert torch.allclose(mixed.sigmoid(), (weights[:, None, None] * outputs.sigmoid()).sum(0))


def test_figures_of_labels_are_those_of_scikit_learn():
    output = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    target = torch.randint(2, (50, 4), generator=torch.Generator().manual_seed(1)).double()
    target[:, 3], output[:, 3] = 0, -1.0  # a label that neither holds nor is told
    said, true = (output > 0).numpy(), target.numpy()
    figures = MultiLabel(4).figures(output.double().sigmoid(), target)
    assert figures["f1"] == pytest.approx(f1_score(true, said, average="macro", zero_division=0))
    assert figures["exact_match"] == pytest.approx(accuracy_score(true, said))
    hamming = MultiLabel(4).metric_values(output.double(), target).mean().item()
    assert hamming == pytest.approx(1 - hamming_loss(true, said))


def test_counts_are_poisson():
    output = torch.randn(30, 1, generator=torch.Generator().manual_seed(0)).double()
    target = torch.poisson(torch.full((30,), 9.0), generator=torch.Generator().manual_seed(1)).double()
    said = Counts(8.0)
    rate = 8 * output[:, 0].exp().numpy()
    assert said.log_likelihood(output, target).numpy() == pytest.approx(stats.poisson.logpmf(target.numpy(), rate))
    assert said.mean(output).numpy() == pytest.approx(rate)
    figures = said.figures(said.mean(output), target)
    assert figures["deviance"] == pytest.approx(mean_poisson_deviance(target.numpy(), rate))
    assert said.figures(torch.tensor([2.0]).double(), torch.zeros(1).double())["deviance"] == pytest.approx(4.0)


@pytest.mark.parametrize("unit", [0.3, 1.0, 2000.0])
def test_counts_are_learnt_alike_whatever_their_size(unit):
    """Gradients are those of the log-likelihood, each divided by its rate or by what is usual; none is beyond size."""
    output = torch.tensor([[-20.0], [-1.0], [0.0], [1.0], [20.0]], dtype=torch.float64, requires_grad=True)
    target = torch.full((5,), 2 * unit, dtype=torch.float64)
    said = Counts(unit, 1.5 * unit)
    [gradient] = torch.autograd.grad(said.log_likelihood(output, target).sum(), output)
    rate = unit * output.detach()[:, 0].exp()
    assert torch.allclose(gradient[:, 0], (target - rate) / rate.clamp_min(1.5 * unit))
    assert gradient.abs().max() <= 2
    far = torch.tensor([[-500.0], [500.0]], requires_grad=True)
    fit = said.log_likelihood(far, torch.tensor([3.0, 0.0]))
    fit.sum().backward()
    assert fit.isfinite().all()
    assert far.grad[:, 0].tolist() == pytest.approx([3 / (1.5 * unit), -1.0])


def test_labels_and_counts_by_name():
    x, labels, counts = some()
    task = pa.data.load((x, labels), likelihood="multi-label", select=8, test=8)
    assert task.likelihood == MultiLabel(3)
    assert task.train.y.shape == (24, 3)
    assert task.units.plain
    task = pa.data.load((x, counts), likelihood="counts", select=8, test=8)
    counts = task.train.y.double()
    assert task.likelihood == Counts(counts.mean().item(), counts.std(correction=0).item())
    assert task.train.y.dtype == torch.float32


def test_one_s_own_as_a_text_a_class_or_an_instance(own):
    x, _, counts = some()
    for given, width in (
        ("likelihoods_of_ours:Laplace", 1.0),
        ("likelihoods_of_ours:Laplace(width=2.0)", 2.0),
        (own.Laplace, 1.0),
        (own.Laplace(0.5), 0.5),
    ):
        task = pa.data.load((x, counts), likelihood=given, select=8, test=8)
        assert task.likelihood == own.Laplace(width)
        assert task.likelihood.settings() == {"kind": "likelihoods_of_ours:Laplace", "width": width}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"likelihood": "multi_label"}, "unknown likelihood 'multi_label'; did you mean 'multi-label'"),
        ({"likelihood": "likelihoods_of_ours:Nothing"}, "has no 'Nothing'"),
        ({"likelihood": "likelihoods_of_ours:NUMBER"}, "is not a class"),
        ({"likelihood": "collections:OrderedDict"}, "is no likelihood"),
        ({"likelihood": "likelihoods_of_ours:Half"}, "Half lacks log_likelihood, mean, metric_values, mixture, metric"),
        ({"likelihood": "likelihoods_of_ours:Laplace(width=print(1))"}, r"print\(1\) is no plain value"),
        ({"likelihood": "likelihoods_of_ours:Laplace(3.0)"}, "say settings by their names"),
        ({"likelihood": "counts", "kind": "regression"}, "kind=regression says nothing beside likelihood=counts"),
        ({"likelihood": "counts", "noise": "task"}, "noise=task says nothing beside likelihood=counts"),
        ({"likelihood": "counts", "class_weights": "balanced"}, "for classes, and these are counts"),
        ({"likelihood": "counts", "labels": 10}, "has counts to predict, not classes"),
        ({"likelihood": "multi-label"}, r"give a column of 0 or 1 for every label: \[n, labels\]"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_meant_is_refused(own, settings, message):
    x, _, counts = some()
    with pytest.raises(PolyarchError, match=message) as caught:
        pa.data.load((x, counts), **settings)
    assert "\n" not in str(caught.value)


def test_a_class_that_no_run_could_find_again_is_refused():
    class Inside(Counts.__base__):
        pass

    x, _, counts = some()
    with pytest.raises(PolyarchError, match="put the class at the top level of a file"):
        pa.data.load((x, counts), likelihood=Inside)


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        ("counts", [1, 2, -1, 3, 4, 5], r"y\[2\] is -1.0; counts are whole numbers from 0 up"),
        ("counts", [1, 2, 0.5, 3, 4, 5], r"y\[2\] is 0.5; counts are"),
        ("counts", [[1, 2]] * 6, "give one number per example"),
        ("multi-label", [[0, 1], [0, 2], [1, 1], [0, 0], [1, 0], [1, 0]], r"y\[1, 1\] is 2.0; a label holds, 1"),
        ("multi-label", [["a", "b"]] * 6, "give numbers"),
    ],
)
def test_targets_that_are_none_are_refused(likelihood, y, message):
    x = np.zeros((6, 2), np.float32)
    with pytest.raises(PolyarchError, match=message):
        pa.data.load((x, np.array(y)), likelihood=likelihood)


@pytest.fixture
def table(tmp_path):
    x, labels, _ = some()
    rows = [",".join(map(str, [*a, *b])) for a, b in zip(x.tolist(), labels.tolist(), strict=True)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["a,b,c,d,red,green,blue", *rows]))
    return path, labels


def test_a_table_has_several_label_columns(table):
    path, labels = table
    settings = {"likelihood": "multi-label", "select": 8, "test": 8}
    task = pa.data.load(path, label="blue, red", **settings, drop=("green",))
    assert task.classes == ("blue", "red")
    assert task.columns.names == ("a", "b", "c", "d")
    assert np.array_equal(task.train.y.numpy(), labels[task.indices["train"]][:, [2, 0]])
    with pytest.raises(PolyarchError, match="has no column 'reed' to predict"):
        pa.data.load(path, label="reed,blue", **settings)


def test_a_label_column_of_words_among_several_is_refused(table):
    path, _ = table
    path.write_text(path.read_text().replace(",0\n", ",no\n").replace(",1\n", ",yes\n"))
    with pytest.raises(PolyarchError, match="the label column 'blue' holds words"):
        pa.data.load(path, label="red,blue", likelihood="multi-label", select=8, test=8)
