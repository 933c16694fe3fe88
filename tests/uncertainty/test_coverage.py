import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from polyarch.errors import PolyarchError
from polyarch.uncertainty import risk_coverage, threshold_for_risk
from polyarch.uncertainty.coverage import errors_last, risk_coverage_of


def answers(n, seed=0, digits=None):
    """Confidences, and whether the answer is right, which it is with that probability."""
    generator = torch.Generator().manual_seed(seed)
    confidence = 1 - torch.rand(n, generator=generator, dtype=torch.float64).square() / 2
    correct = torch.rand(n, generator=generator, dtype=torch.float64) < confidence
    return (confidence if digits is None else confidence.round(decimals=digits)), correct


@pytest.mark.parametrize("digits", [None, 2, 1])
def test_the_curve_by_enumeration(digits):
    confidence, correct = answers(57, digits=digits)
    curve = risk_coverage(confidence, correct)
    pairs = list(zip(confidence.tolist(), correct.tolist(), strict=True))
    thresholds = sorted(set(confidence.tolist()), reverse=True)
    assert curve.confidence.tolist() == thresholds
    area, before = 0.0, 0.0
    for k, threshold in enumerate(thresholds):
        kept = [right for c, right in pairs if c >= threshold]
        assert curve.coverage[k].item() == pytest.approx(len(kept) / len(pairs))
        assert curve.risk[k].item() == pytest.approx(kept.count(False) / len(kept))
        area += (len(kept) / len(pairs) - before) * kept.count(False) / len(kept)
        before = len(kept) / len(pairs)
    assert curve.area == pytest.approx(area)


def test_the_area_without_ties_is_the_mean_risk_of_the_k_surest():
    confidence, correct = answers(40)
    right = correct[confidence.argsort(descending=True)].tolist()
    assert risk_coverage(confidence, correct).area == pytest.approx(
        sum(right[: k + 1].count(False) / (k + 1) for k in range(40)) / 40
    )


def test_known_areas():
    confidence = torch.tensor([0.9, 0.8, 0.7, 0.6])
    assert risk_coverage(confidence, torch.ones(4, dtype=torch.bool)).area == 0
    assert risk_coverage(confidence, torch.zeros(4, dtype=torch.bool)).area == 1
    # The one error is the least sure: it is met at full coverage alone.
    assert risk_coverage(confidence, torch.tensor([True, True, True, False])).area == pytest.approx(1 / 16)
    everything = risk_coverage(torch.ones(4), torch.tensor([True, True, True, False]))
    assert (everything.coverage.tolist(), everything.risk.tolist(), everything.area) == ([1], [0.25], 0.25)


def test_a_classifier_answers_where_its_top_class_is_most_probable():
    generator = torch.Generator().manual_seed(0)
    log_probs = (3 * torch.randn(50, 4, generator=generator)).log_softmax(-1)
    target = torch.randint(4, (50,), generator=generator)
    probs = log_probs.double().exp().numpy()
    surest_first = np.argsort(-probs.max(1))
    wrong = (probs.argmax(1) != target.numpy())[surest_first]
    risk = wrong.cumsum() / np.arange(1, 51)
    curve = risk_coverage_of(log_probs, target)
    np.testing.assert_allclose(curve.risk, risk)
    np.testing.assert_allclose(curve.confidence, probs.max(1)[surest_first])
    assert curve.area == pytest.approx(risk.mean())


def test_errors_last_is_the_best_of_all_orders():
    correct = torch.tensor([False, True, True, False, True])
    areas = [
        risk_coverage(torch.tensor(order, dtype=torch.float64), correct).area
        for order in itertools.permutations(range(5))
    ]
    best = errors_last(correct)
    assert best.area == pytest.approx(min(areas)) == pytest.approx((1 / 4 + 2 / 5) / 5)
    assert best.risk.tolist() == pytest.approx([0, 0, 0, 1 / 4, 2 / 5])


def by_enumeration(confidence, correct, risk, doubt):
    """The largest tenth whose exact upper limit of the risk is at most `risk`; None where there is none."""
    ranked = [*sorted(confidence.tolist(), reverse=True), 0.0]
    for level in range(10, 0, -1):
        threshold = ranked[math.ceil(level * len(confidence) / 10)]
        kept = [right for c, right in zip(confidence.tolist(), correct.tolist(), strict=True) if c > threshold]
        if kept and binomtest(kept.count(False), len(kept), risk, alternative="less").pvalue <= doubt / 10:
            return threshold
    return None


@pytest.mark.parametrize("digits", [None, 2, 1])
@pytest.mark.parametrize("risk", [0.02, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("n", [60, 205, 1000])
def test_the_threshold_by_enumeration(n, risk, digits):
    confidence, correct = answers(n, seed=n, digits=digits)
    expected = by_enumeration(confidence, correct, risk, 0.05)
    if expected is None:
        with pytest.raises(PolyarchError, match="no threshold promises"):
            threshold_for_risk(confidence, correct, risk)
    else:
        assert threshold_for_risk(confidence, correct, risk) == expected


def test_the_promise_is_kept():
    """The true risk above a threshold is known here: errors have the probability 1 - confidence = u^2 / 2, u even."""
    risk, doubt, trials, broken, kept = 0.1, 0.2, 400, 0, 0
    for seed in range(trials):
        confidence, correct = answers(300, seed)
        try:
            threshold = threshold_for_risk(confidence, correct, risk, doubt=doubt)
        except PolyarchError:
            continue
        kept += 1
        widest = math.sqrt(min(1.0, 2 * (1 - threshold)))
        broken += widest**2 / 6 > risk  # the mean of u^2 / 2 for u up to the widest
    assert kept > trials / 2, "nothing was promised"
    assert broken <= doubt * trials


def test_all_right_and_few():
    assert 0.95**104 <= 0.05 / 10 < 0.95**103
    assert threshold_for_risk(torch.full((104,), 0.5), torch.ones(104, dtype=torch.bool), 0.05) == 0
    with pytest.raises(PolyarchError, match="must keep 104 of them without an error"):
        threshold_for_risk(torch.full((103,), 0.5), torch.ones(103, dtype=torch.bool), 0.05)


@pytest.mark.parametrize("risk", [0.0, 1.0, -0.1, math.nan])
def test_a_risk_is_a_share(risk):
    with pytest.raises(PolyarchError, match=r"risk is .*between 0 and 1"):
        threshold_for_risk(*answers(50), risk)


def test_what_does_not_fit_is_refused():
    confidence, correct = answers(5)
    for bad in ((confidence[:4], correct), (confidence, correct.long()), (confidence[:0], correct[:0])):
        with pytest.raises(PolyarchError, match="confidence and correct must be"):
            risk_coverage(*bad)
    with pytest.raises(PolyarchError, match="not a number"):
        risk_coverage(confidence * math.nan, correct)
