import json
import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from torchmetrics.functional.classification import binary_auroc, multiclass_auroc, multiclass_f1_score

from polyarch.errors import PolyarchError
from polyarch.uncertainty import Confusion, auc, auroc, summary


def predictions(n=400, classes=5, seed=0, rare=True):
    """Log-probabilities and classes of which the last are seldom."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.arange(classes, 0, -1, dtype=torch.float64) ** 2 if rare else torch.ones(classes, dtype=torch.float64)
    target = torch.multinomial(share, n, replacement=True, generator=generator)
    logits = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    logits[torch.arange(n), target] += 1
    return logits.log_softmax(-1), target


def coarse(log_probs, steps=8):
    """The same with few different values, so that most scores are tied."""
    shares = (log_probs.exp() * steps).round() + 1
    return (shares / shares.sum(-1, keepdim=True)).log()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_auc_is_that_of_scikit_learn_and_torchmetrics(classes, tied):
    log_probs, target = predictions(classes=classes)
    log_probs = coarse(log_probs) if tied else log_probs
    probs = log_probs.exp()
    if classes == 2:
        theirs = sklearn.metrics.roc_auc_score(target.numpy(), probs[:, 1].numpy())
        torchs = binary_auroc(probs[:, 1], target).item()
    else:
        theirs = sklearn.metrics.roc_auc_score(target.numpy(), probs.numpy(), multi_class="ovr", average="macro")
        torchs = multiclass_auroc(probs, target, num_classes=classes, average="macro").item()
    assert auc(log_probs, target) == pytest.approx(theirs, abs=1e-12)
    assert auc(log_probs, target) == pytest.approx(torchs, abs=1e-6)


def test_auc_leaves_out_classes_that_no_example_is_of():
    log_probs, target = predictions(classes=4)
    absent, known = target != 2, [0, 1, 3]
    log_probs, target = log_probs[absent], target[absent]
    each = [auroc(log_probs[target != c, c], log_probs[target == c, c]) for c in known]
    assert auc(log_probs, target) == pytest.approx(np.mean(each), abs=1e-12)
    binary = [sklearn.metrics.roc_auc_score(target == c, log_probs[:, c]) for c in known]
    assert auc(log_probs, target) == pytest.approx(np.mean(binary), abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_auc_is_not_defined_for_examples_of_one_class(classes):
    log_probs, _ = predictions(n=20, classes=classes)
    target = torch.ones(20, dtype=torch.int64)
    assert auc(log_probs, target) is None
    got = summary(log_probs, target)
    assert "auc" not in got
    assert got["balanced_accuracy"] == got["accuracy"]
    json.dumps(got, allow_nan=False)


def test_auc_of_two_classes_holds_where_probabilities_are_rounded_to_one():
    odds = torch.tensor([25.0, 20.0, 30.0, 40.0])  # in single precision the probability of class 1 is 1 for all
    log_probs = torch.stack([-odds, torch.zeros(4)], -1)
    assert auc(log_probs, torch.tensor([0, 0, 1, 1])) == 1
    assert auc(log_probs.flip(-1), torch.tensor([1, 1, 0, 0])) == 1


def test_auc_knows_guessing_and_certainty():
    target = torch.tensor([0, 1, 2, 0])
    assert auc(torch.full((4, 3), 1 / 3, dtype=torch.float64).log(), target) == 0.5
    assert auc(torch.eye(3, dtype=torch.float64)[target].log(), target) == 1  # with minus infinity among the scores


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_figures_by_class_are_those_of_scikit_learn(classes, dtype):
    log_probs, target = predictions(classes=classes)
    y, guess = target.numpy(), log_probs.argmax(-1).numpy()
    got = Confusion.of(log_probs.to(dtype), target)
    precision, recall, f1, count = sklearn.metrics.precision_recall_fscore_support(y, guess)
    np.testing.assert_array_equal(got.counts, sklearn.metrics.confusion_matrix(y, guess))
    np.testing.assert_array_equal(got.examples, count)
    np.testing.assert_allclose(got.precision, precision, rtol=1e-12)
    np.testing.assert_allclose(got.recall, recall, rtol=1e-12)
    np.testing.assert_allclose(got.f1, f1, rtol=1e-12)
    assert got.macro_f1 == pytest.approx(sklearn.metrics.f1_score(y, guess, average="macro"), abs=1e-12)
    theirs = multiclass_f1_score(torch.from_numpy(guess), target, num_classes=classes, average="macro")
    assert got.macro_f1 == pytest.approx(theirs.item(), abs=1e-6)
    want = sklearn.metrics.balanced_accuracy_score(y, guess)
    assert got.balanced_accuracy == pytest.approx(want, abs=1e-12)
    found = summary(log_probs.to(dtype), target)
    assert (found["f1"], found["balanced_accuracy"]) == (got.macro_f1, got.balanced_accuracy)


def known():
    """Four classes: the third is neither true nor predicted, the last never true, but once predicted."""
    target = torch.tensor([0, 0, 0, 0, 1, 1])
    guess = torch.tensor([0, 0, 1, 3, 1, 0])
    probs = torch.full((6, 4), 0.1, dtype=torch.float64)
    probs[torch.arange(6), guess] = 0.7
    return probs.log(), target, guess


def test_absent_classes():
    log_probs, target, guess = known()
    got = Confusion.of(log_probs, target)
    assert got.by_class(["a", "b", "c", "d"]) == [
        {"class": "a", "examples": 4, "precision": 2 / 3, "recall": 0.5, "f1": pytest.approx(4 / 7)},
        {"class": "b", "examples": 2, "precision": 0.5, "recall": 0.5, "f1": 0.5},
        {"class": "c", "examples": 0, "precision": None, "recall": None, "f1": None},
        {"class": "d", "examples": 0, "precision": 0.0, "recall": None, "f1": 0.0},
    ]
    assert got.balanced_accuracy == 0.5  # of the two that are true
    assert got.macro_f1 == pytest.approx((4 / 7 + 0.5 + 0) / 3)
    assert got.macro_f1 == pytest.approx(sklearn.metrics.f1_score(target, guess, average="macro"))
    json.dumps(got.by_class(), allow_nan=False)
    assert [row["class"] for row in got.by_class()] == ["0", "1", "2", "3"]


def test_what_is_confused_most():
    log_probs, target, _ = known()
    got = Confusion.of(log_probs.repeat(2, 1)[:-1], target.repeat(2)[:-1])
    assert got.most() == [(0, 1, 2), (0, 3, 2), (1, 0, 1)]
    assert got.in_words(["a", "b", "c", "d"], 2) == ["a taken for b (2 of 8)", "a taken for d (2 of 8)"]
    right = Confusion.of(torch.eye(3).log(), torch.arange(3))
    assert right.most() == []
    assert right.in_words() == []
    assert right.macro_f1 == right.balanced_accuracy == 1


@pytest.mark.parametrize("measure", [auc, Confusion.of])
def test_what_does_not_fit_is_refused(measure):
    with pytest.raises(PolyarchError, match="neither logits nor probabilities"):
        measure(torch.full((2, 2), 0.5), torch.tensor([0, 1]))
    with pytest.raises(PolyarchError, match="there are 2 classes"):
        measure(torch.full((2, 2), 0.5).log(), torch.tensor([0, 2]))


def test_extreme_log_probs_stay_finite():
    log_probs = torch.tensor([[0.0, -1e4, -2e4], [-1e4, 0.0, -1e4]])
    assert all(math.isfinite(value) for value in summary(log_probs, torch.tensor([0, 0])).values())
