import json
import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from polyarch.data.likelihood import Classification, Gaussian
from polyarch.errors import PolyarchError
from polyarch.uncertainty import (
    accuracy,
    brier,
    ece,
    ece_all_classes,
    log_likelihood,
    regression_summary,
    reliability,
    summary,
)
from polyarch.uncertainty.gaussians import Gaussians

METRICS = [accuracy, log_likelihood, brier, ece, ece_all_classes, reliability, summary]


def predictions(n=500, classes=7, sharpness=2.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    target = torch.multinomial((0.5 * logits).softmax(-1), 1, generator=generator).squeeze(-1)
    return logits.log_softmax(-1).to(dtype), target


def plain_ece_all_classes(probs, target, bins=10):
    """The definition, one entry at a time."""
    count, correct = [0] * bins, [0] * bins
    for row, true in zip(probs.tolist(), target.tolist(), strict=True):
        predicted = row.index(max(row))
        for c, p in enumerate(row):
            b = next((b for b in range(bins) if p <= (b + 1) / bins), bins - 1)
            count[b] += 1
            correct[b] += c == predicted and c == true
    total = sum(count)
    return sum(count[b] / total * abs(correct[b] / count[b] - (b + 1) / bins) for b in range(bins) if count[b] > 0)


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("sharpness", [0.3, 2.0, 8.0])
def test_ece_is_that_of_torchmetrics(classes, sharpness):
    log_probs, target = predictions(classes=classes, sharpness=sharpness)
    theirs = multiclass_calibration_error(log_probs.exp(), target, num_classes=classes, n_bins=15, norm="l1")
    assert ece(log_probs, target) == pytest.approx(theirs.item(), abs=1e-6)


def test_accuracy_likelihood_and_brier_are_those_of_scikit_learn():
    log_probs, target = predictions()
    probs = log_probs.exp().numpy()
    probs = probs / probs.sum(-1, keepdims=True)
    y, labels = target.numpy(), np.arange(7)
    assert accuracy(log_probs, target) == pytest.approx(sklearn.metrics.accuracy_score(y, probs.argmax(-1)))
    assert log_likelihood(log_probs, target) == pytest.approx(-sklearn.metrics.log_loss(y, probs, labels=labels))
    by_hand = sum(sklearn.metrics.mean_squared_error(y == c, probs[:, c]) for c in labels)
    assert brier(log_probs, target) == pytest.approx(by_hand)


@pytest.mark.parametrize(("classes", "sharpness"), [(2, 1.0), (7, 2.0), (10, 8.0)])
@pytest.mark.parametrize("bins", [1, 10])
def test_all_class_ece_is_its_definition(classes, sharpness, bins):
    log_probs, target = predictions(n=300, classes=classes, sharpness=sharpness)
    assert ece_all_classes(log_probs, target, bins) == pytest.approx(
        plain_ece_all_classes(log_probs.exp(), target, bins), abs=1e-12
    )


def test_known_answers():
    probs = torch.tensor([[0.95, 0.05], [0.75, 0.25], [0.45, 0.55], [0.15, 0.85]], dtype=torch.float64)
    target = torch.tensor([0, 1, 1, 1])
    got = summary(probs.log(), target)
    by_class = ["balanced_accuracy", "f1", "auc"]
    assert list(got) == ["accuracy", *by_class, "log_likelihood", "brier", "ece", "ece_all_classes"]
    assert got["accuracy"] == 0.75
    assert got["log_likelihood"] == pytest.approx(math.log(0.95 * 0.25 * 0.55 * 0.85) / 4)
    assert got["brier"] == pytest.approx(2 * (0.05**2 + 0.75**2 + 0.45**2 + 0.15**2) / 4)
    # Each confidence is alone in its bin of width 1/15.
    assert got["ece"] == pytest.approx((0.05 + 0.75 + 0.45 + 0.15) / 4)
    # Entry by entry against the bin's upper edge; correct are 0.95, 0.55 and 0.85.
    gaps = [1 - 1.0, 0.1, 0.8, 0.3, 0.5, 1 - 0.6, 0.2, 1 - 0.9]
    assert got["ece_all_classes"] == pytest.approx(sum(gaps) / 8)
    json.dumps(got, allow_nan=False)


def test_one_bin_compares_means():
    log_probs, target = predictions()
    confidence = log_probs.exp().max(-1).values.mean().item()
    assert ece(log_probs, target, bins=1) == pytest.approx(abs(accuracy(log_probs, target) - confidence))


def test_calibrated_predictions_have_no_error_but_all_class_error_remains():
    probs = torch.tensor([[0.7, 0.3]], dtype=torch.float64).expand(10, 2)
    target = torch.tensor([0] * 7 + [1] * 3)
    assert ece(probs.log(), target) == pytest.approx(0, abs=1e-12)
    certain = torch.eye(10, dtype=torch.float64).log()
    assert ece(certain, torch.arange(10)) == 0
    assert ece_all_classes(certain, torch.arange(10)) == pytest.approx(0.9 * 0.1)


def test_reliability_bins():
    probs = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.6, 0.4], [0.62, 0.38]], dtype=torch.float64)
    got = reliability(probs.log(), torch.tensor([0, 1, 1, 0]), bins=4)
    assert got.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    # 0.5 is in (0.25, 0.5]: bins are open on the left; exactly 1 is in the last.
    assert got.count.tolist() == [0, 1, 2, 1]
    assert got.count.dtype == torch.int64
    torch.testing.assert_close(got.confidence[1:], torch.tensor([0.5, 0.61, 1.0], dtype=torch.float64))
    assert got.accuracy[1:].tolist() == [0, 0.5, 1]
    assert got.confidence[0].isnan()
    assert got.accuracy[0].isnan()


@pytest.mark.parametrize("bins", [1, 2, 10, 15])
def test_certainty_is_in_the_last_bin(bins):
    log_probs = torch.tensor([[0.0, -torch.inf]] * 3)
    got = reliability(log_probs, torch.tensor([0, 0, 1]), bins)
    assert got.count.tolist() == [0] * (bins - 1) + [3]
    # Rounding may leave a mixture's probability a little above 1.
    above = reliability(log_probs + 1e-6, torch.tensor([0, 0, 1]), bins)
    assert above.count.tolist() == got.count.tolist()


def test_reliability_holds_every_example_and_gives_ece():
    log_probs, target = predictions()
    got = reliability(log_probs, target)
    assert got.count.sum() == len(target)
    assert (got.count == 0).any()
    full = got.count > 0
    assert ((got.confidence > got.edges[:-1]) & (got.confidence <= got.edges[1:]))[full].all()
    gaps = (got.count * (got.accuracy - got.confidence).abs())[full]
    assert ece(log_probs, target) == pytest.approx(gaps.sum().item() / len(target))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_log_probs_stay_finite(dtype):
    log_probs = torch.tensor([[0.0, -1e4, -2e4], [-1e4, 0.0, -1e4]], dtype=dtype)
    got = summary(log_probs, torch.tensor([0, 0]))
    assert got["log_likelihood"] == pytest.approx(-5e3)
    assert got["brier"] == pytest.approx(1.0)
    assert got["ece"] == pytest.approx(0.5)
    assert all(math.isfinite(value) for value in got.values())


def test_probability_zero_of_the_true_class():
    got = summary(torch.tensor([[0.0, -torch.inf]]), torch.tensor([1]))
    assert got.pop("log_likelihood") == -math.inf
    wrong = {"accuracy": 0, "balanced_accuracy": 0, "f1": 0}
    assert got == wrong | {"brier": 2, "ece": 1, "ece_all_classes": pytest.approx((0.1 + 1) / 2)}


def test_likelihood_is_a_logarithm_and_that_of_the_task():
    log_probs, target = predictions()
    want = Classification(7).log_likelihood(log_probs, target).mean().item()
    assert log_likelihood(log_probs, target) == pytest.approx(want)
    assert log_likelihood(log_probs, target) < 0


def test_precision_and_graph_do_not_matter():
    log_probs, target = predictions()
    want = summary(log_probs, target)
    assert summary(log_probs.float().requires_grad_(), target) == pytest.approx(want, abs=1e-6)
    coarse = summary(log_probs.bfloat16(), target)
    assert coarse["log_likelihood"] == pytest.approx(want["log_likelihood"], abs=1e-2)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("log_probs", "target", "message"),
    [
        (torch.zeros(4), torch.zeros(4, dtype=torch.int64), r"\[n, classes\].*got \[4\]"),
        (torch.full((4, 2), 0.5).log(), torch.zeros(3, dtype=torch.int64), r"got \[4, 2\] and \[3\]"),
        (torch.full((4, 2), 0.5).log(), torch.zeros(4, 1, dtype=torch.int64), r"got \[4, 2\] and \[4, 1\]"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), "neither empty"),
        (torch.full((4, 2), 0.5).log(), torch.zeros(4), r"int64.*\.long\(\)"),
        (torch.full((2, 2), 0.5).log(), torch.tensor([0, 2]), "from 0 to 2, but there are 2 classes"),
        (torch.full((2, 2), 0.5).log(), torch.tensor([-1, 1]), "from -1 to 1, but there are 2 classes"),
        (torch.full((2, 2), 0.5), torch.tensor([0, 1]), "neither logits nor probabilities"),
        (torch.tensor([[0.5, 0.5], [0.5, torch.nan]]).log(), torch.tensor([0, 1]), "row 1 .* not a number"),
        (torch.tensor([[0.0, torch.inf]]), torch.tensor([0]), "row 0"),
        (torch.tensor([[-torch.inf, -torch.inf]]), torch.tensor([0]), "row 0"),
    ],
)
def test_what_does_not_fit_is_refused(metric, log_probs, target, message):
    with pytest.raises(PolyarchError, match=message):
        metric(log_probs, target)


@pytest.mark.parametrize("metric", [reliability, ece, ece_all_classes])
def test_no_bins_are_refused(metric):
    with pytest.raises(PolyarchError, match="bins=0"):
        metric(torch.full((2, 2), 0.5).log(), torch.tensor([0, 1]), bins=0)


def test_regression_known_answer():
    outputs, target = torch.tensor([[[1.0], [3.0], [1.0], [-7.0]]]), torch.ones(4)
    got = regression_summary(Gaussians.of(outputs, torch.ones(1), Gaussian(2.0)), target)
    constant = -math.log(2.0) - 0.5 * math.log(2 * math.pi)
    assert got["rmse"] == pytest.approx(math.sqrt(17))
    assert got["log_likelihood"] == pytest.approx(constant - 0.5 * (1 + 16) / 4)
    for name, z in (("50", 0.674490), ("80", 1.281552), ("90", 1.644854), ("95", 1.959964)):
        assert got[f"width_{name}"] == pytest.approx(2 * z * 2.0, abs=1e-5)
        assert got[f"coverage_{name}"] == (0.75 if z > 1 else 0.5)  # residuals are 0, 1, 0 and 4 deviations


def test_regression_errors_are_those_of_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    target = 1e4 + 30 * torch.randn(200, generator=generator, dtype=torch.float64)
    outputs = (target + 20 * torch.randn(200, generator=generator, dtype=torch.float64)).view(1, -1, 1)
    got = regression_summary(Gaussians.of(outputs, torch.ones(1), Gaussian()), target)
    mean = outputs.flatten()
    assert got["r2"] == pytest.approx(sklearn.metrics.r2_score(target, mean), abs=1e-12)
    assert 0 < got["r2"] < 1
    assert got["mae"] == pytest.approx(sklearn.metrics.mean_absolute_error(target, mean), abs=1e-12)
    assert got["rmse"] == pytest.approx(math.sqrt(sklearn.metrics.mean_squared_error(target, mean)))
    guess = Gaussians.of(torch.full((1, 200, 1), target.mean().item()), torch.ones(1), Gaussian())
    assert regression_summary(guess, target)["r2"] == pytest.approx(0, abs=1e-6)  # the mean explains nothing


def test_nothing_is_explained_where_all_targets_are_equal():
    said = Gaussians.of(torch.zeros(1, 3, 1), torch.ones(1), Gaussian())
    got = regression_summary(said, torch.full((3,), 0.1))
    assert "r2" not in got
    json.dumps(got, allow_nan=False)


@pytest.mark.parametrize("target", [(3, 1), (2,), (0,)])
def test_regression_shapes_are_checked(target):
    said = Gaussians.of(torch.zeros(1, 0 if target == (0,) else 3, 1), torch.ones(1), Gaussian())
    with pytest.raises(PolyarchError, match=r"pass targets \[n\]"):
        regression_summary(said, torch.zeros(target))
