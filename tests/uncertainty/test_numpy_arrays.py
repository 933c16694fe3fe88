"""Numpy arrays where tensors are: the same numbers come out."""

import numpy as np
import pytest
import torch

from polyarch import uncertainty
from polyarch.data import Split
from polyarch.errors import PolyarchError
from polyarch.uncertainty import Confusion, Gaussians, Predictive

RNG = np.random.default_rng(0)
LOG_PROBS = np.log(RNG.dirichlet(np.ones(3), 200))
CLASSES = RNG.integers(0, 3, 200)
MEAN, DEVIATION, NUMBERS = RNG.normal(size=200), RNG.uniform(0.5, 2, 200), RNG.normal(size=200)
RIGHT = LOG_PROBS.argmax(1) == CLASSES
OF_CLASSES = ("accuracy", "auc", "brier", "ece", "ece_all_classes", "log_likelihood", "summary", "reliability")
CALLS = {
    **dict.fromkeys((*OF_CLASSES, "class_scores", "fit_temperature"), (LOG_PROBS, CLASSES)),
    "class_sets": (LOG_PROBS, 0.7),
    "number_scores": (MEAN, DEVIATION, NUMBERS),
    "intervals": (MEAN, DEVIATION, 1.5),
    "conformal_quantile": (DEVIATION, 0.9),
    "auroc": (MEAN, NUMBERS),
    "fpr95": (MEAN, NUMBERS),
    "risk_coverage": (DEVIATION, RIGHT),
    "threshold_for_risk": (DEVIATION, RIGHT, 0.9),
    "exit_curve": (RNG.uniform(0.3, 1, (4, 50)), RNG.random((4, 50)) < 0.7),
    "image_range": (RNG.integers(0, 256, (4, 1, 5, 5)).astype(np.uint8),),
}


def plain(value):
    """What can be compared."""
    if isinstance(value, torch.Tensor):
        return value.nan_to_num(-1.0).tolist()
    return {name: plain(own) for name, own in vars(value).items()} if hasattr(value, "__dict__") else value


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_what_others_predict(name):
    function = getattr(uncertainty, name)
    tensors = [torch.tensor(value) if isinstance(value, np.ndarray) else value for value in CALLS[name]]
    backwards = [value[::-1][::-1] if isinstance(value, np.ndarray) else value for value in CALLS[name]]
    wanted = plain(function(*tensors))
    assert plain(function(*CALLS[name])) == wanted
    assert plain(function(*backwards)) == wanted


def test_classes_of_any_whole_type_count_the_same():
    for dtype in (np.int32, np.uint8, np.int64):
        assert uncertainty.accuracy(LOG_PROBS, CLASSES.astype(dtype)) == RIGHT.mean()
        assert torch.equal(
            Confusion.of(LOG_PROBS, CLASSES.astype(dtype)).counts,
            Confusion.of(torch.tensor(LOG_PROBS), torch.tensor(CLASSES)).counts,
        )
    with pytest.raises(PolyarchError, match="targets must be class numbers"):
        uncertainty.accuracy(LOG_PROBS, CLASSES.astype(float))


def test_members_and_numbers_that_are_predicted():
    members, weights = np.stack([LOG_PROBS, LOG_PROBS[::-1]]), np.array([0.25, 0.75])
    wanted = Predictive.from_members(torch.tensor(members), torch.tensor(weights))
    assert torch.equal(Predictive.from_members(members, weights).entropy, wanted.entropy)
    said = Gaussians(torch.tensor(MEAN[None]), torch.tensor(DEVIATION[None]), torch.ones(1, dtype=torch.float64))
    for name in ("log_prob", "cdf", "crps", "centrality"):
        assert torch.equal(getattr(said, name)(NUMBERS), getattr(said, name)(torch.tensor(NUMBERS)))
    assert uncertainty.regression_summary(said, NUMBERS)["mae"] == pytest.approx(np.abs(MEAN - NUMBERS).mean())


def test_splits_are_made_of_them():
    split = Split(MEAN[:, None], CLASSES)
    assert isinstance(split.x, torch.Tensor)
    assert torch.equal(split.some(50).y, Split(torch.tensor(MEAN[:, None]), torch.tensor(CLASSES)).some(50).y)
