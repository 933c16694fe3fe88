import math

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve
from torchmetrics.functional.classification import binary_auroc

from polyarch.errors import PolyarchError
from polyarch.uncertainty import Predictive, auroc, detection, fpr95


def scores(inside=83, outside=61, shift=0.8, digits=None, seed=0):
    """Normal scores, the outside ones shifted; rounded, they have many ties."""
    generator = torch.Generator().manual_seed(seed)
    both = torch.randn(inside + outside, generator=generator, dtype=torch.float64)
    both[inside:] += shift
    return (both if digits is None else both.round(decimals=digits)).split([inside, outside])


def labelled(inside, outside):
    """As scikit-learn takes them: 1 is outside."""
    return np.r_[np.zeros(len(inside)), np.ones(len(outside))], np.r_[inside, outside]


@pytest.mark.parametrize("digits", [None, 1, 0])
@pytest.mark.parametrize("shift", [-1.0, 0.0, 0.8, 3.0])
def test_auroc_is_that_of_scikit_learn_and_torchmetrics(shift, digits):
    inside, outside = scores(shift=shift, digits=digits)
    y, both = labelled(inside, outside)
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(y, both), abs=1e-12)
    # torchmetrics wants scores within [0, 1], and would round them by a sigmoid of its own otherwise.
    scaled = (torch.from_numpy(both) + 10) / 20
    assert auroc(inside, outside) == pytest.approx(binary_auroc(scaled, torch.from_numpy(y).long()).item(), abs=1e-6)


@pytest.mark.parametrize("outside", [1, 19, 20, 21, 60, 61, 100])
@pytest.mark.parametrize("digits", [None, 1, 0])
def test_fpr95_is_that_of_scikit_learn(outside, digits):
    inside, outside = scores(outside=outside, digits=digits)
    false, true, _ = roc_curve(*labelled(inside, outside), drop_intermediate=False)
    assert fpr95(inside, outside) == pytest.approx(false[np.argmax(true >= 0.95)], abs=1e-12)


def test_auroc_counts_pairs():
    inside, outside = scores(inside=7, outside=9, digits=0)
    pairs = [(o > i) + 0.5 * (o == i) for i in inside.tolist() for o in outside.tolist()]
    assert auroc(inside, outside) == pytest.approx(sum(pairs) / len(pairs))
    assert auroc(outside, inside) == pytest.approx(1 - auroc(inside, outside))


def test_known_answers():
    low, high = torch.tensor([0.0, 0.1, 0.2]), torch.tensor([0.5, 0.6])
    assert (auroc(low, high), fpr95(low, high)) == (1, 0)
    assert (auroc(high, low), fpr95(high, low)) == (0, 1)
    same = torch.zeros(5)
    assert (auroc(same, same), fpr95(same, same)) == (0.5, 1)
    # One of 20 may be missed, and none of 19.
    outside = torch.cat([torch.full((19,), 2.0), torch.zeros(1)])
    assert fpr95(torch.ones(4), outside) == 0
    assert fpr95(torch.ones(4), outside[1:]) == 1
    assert auroc(torch.tensor([0.0]), torch.tensor([math.inf])) == 1


def test_inside_as_the_positive_ones():
    inside, outside = scores()
    false, true, _ = roc_curve(*labelled(-outside, -inside), drop_intermediate=False)
    assert fpr95(-outside, -inside) == pytest.approx(false[np.argmax(true >= 0.95)])


def test_detection_is_by_the_three_numbers_of_a_mixture():
    generator = torch.Generator().manual_seed(0)

    def said(sharpness):
        logits = sharpness * torch.randn(3, 50, 4, generator=generator, dtype=torch.float64)
        return Predictive.from_members(logits.log_softmax(-1), torch.full((3,), 1 / 3))

    inside, outside = said(0.5), said(3.0)
    found = detection(inside, outside)
    assert list(found) == ["mutual_information", "entropy", "confidence"]
    for name, of in (
        ("mutual_information", lambda p: p.mutual_information),
        ("entropy", lambda p: p.entropy),
        ("confidence", lambda p: 1 - p.log_probs.exp().max(-1).values),
    ):
        y, both = labelled(of(inside), of(outside))
        assert found[name]["auroc"] == pytest.approx(roc_auc_score(y, both), abs=1e-12)
        assert found[name]["fpr95"] == fpr95(of(inside), of(outside))
    assert found["mutual_information"]["auroc"] > 0.9  # sharp members disagree
    assert found["entropy"]["auroc"] < 0.5  # and are surer than blunt ones


@pytest.mark.parametrize("bad", [torch.zeros(0), torch.zeros(2, 2), torch.tensor([math.nan])])
@pytest.mark.parametrize("measure", [auroc, fpr95])
def test_what_is_no_row_of_numbers_is_refused(measure, bad):
    for pair in ((bad, torch.ones(2)), (torch.ones(2), bad)):
        with pytest.raises(PolyarchError, match=r"scores must be \[n\]"):
            measure(*pair)
