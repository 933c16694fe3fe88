import math

import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from polyarch.errors import PolyarchError
from polyarch.uncertainty import Predictive, fit_temperature
from polyarch.uncertainty.temperature import HOTTEST


def answers(n, sharpness, seed=0, classes=4):
    """Log-probabilities, and classes as they would be at `sharpness` times the logits."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=random, dtype=torch.float64)
    target = torch.multinomial((sharpness * logits).softmax(-1), 1, generator=random).squeeze(1)
    return logits.log_softmax(-1), target


def log_likelihood(log_probs, target, temperature):
    return (log_probs / temperature).log_softmax(-1).gather(-1, target[:, None]).mean().item()


@pytest.mark.parametrize("sharpness", [0.2, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("n", [30, 2000])
def test_it_has_the_largest_log_likelihood(n, sharpness):
    log_probs, target = answers(n, sharpness)
    found = fit_temperature(log_probs, target)
    best = minimize_scalar(
        lambda t: -log_likelihood(log_probs, target, t), bounds=(1 / HOTTEST, HOTTEST), options={"xatol": 1e-10}
    )
    gain = n * (log_likelihood(log_probs, target, best.x) - log_likelihood(log_probs, target, 1.0))
    assert found == pytest.approx(best.x if gain >= chi2.ppf(0.95, 1) / 2 else 1.0, rel=1e-5)
    if n == 2000:
        assert found == pytest.approx(1 / sharpness, rel=0.2)


def test_few_examples_that_are_calibrated_are_left_alone():
    """Where 1 is right, the test at 5 % says another about as often; the fit alone would always."""
    found = [fit_temperature(*answers(30, 1.0, seed)) for seed in range(400)]
    assert 0.02 < sum(temperature != 1 for temperature in found) / 400 < 0.09


def test_of_other_precision_the_same():
    log_probs, target = answers(200, 0.5)
    assert fit_temperature(log_probs.float(), target) == pytest.approx(fit_temperature(log_probs, target), rel=1e-5)


def test_it_stays_within_bounds():
    log_probs, _ = answers(50, 1.0)
    assert fit_temperature(log_probs, log_probs.argmax(-1)) == 1.0  # nothing is known of errors
    assert fit_temperature(log_probs, log_probs.argmin(-1)) == HOTTEST
    nearly = log_probs.argmax(-1)
    log_probs[0] = torch.tensor([0.5 + 1e-9, 0.5 - 1e-9, 1e-30, 1e-30], dtype=torch.float64).log()
    nearly[0] = 1
    assert fit_temperature(log_probs, nearly) == pytest.approx(1 / HOTTEST)
    impossible = torch.tensor([[0.0, -math.inf], [-1.0, math.log(1 - math.exp(-1))]])
    assert fit_temperature(impossible, torch.tensor([1, 1])) == HOTTEST


def test_a_prediction_after_it():
    log_probs, _ = answers(20, 1.0)
    members = torch.stack([log_probs, log_probs.flip(-1)])
    said = Predictive.from_members(members, torch.tensor([0.5, 0.5], dtype=torch.float64))
    after = said.tempered(2.0)
    roots = said.log_probs.exp().sqrt()
    torch.testing.assert_close(after.log_probs.exp(), roots / roots.sum(-1, keepdim=True))
    torch.testing.assert_close(after.entropy, torch.special.entr(after.log_probs.exp()).sum(-1))
    assert torch.equal(after.mutual_information, said.mutual_information)
    torch.testing.assert_close(said.tempered(1.0).log_probs, said.log_probs)


def test_what_does_not_fit_is_refused():
    log_probs, target = answers(5, 1.0)
    for bad in ((log_probs[:4], target), (log_probs[0], target), (log_probs[:0], target[:0])):
        with pytest.raises(PolyarchError, match=r"must be \[n, classes\]"):
            fit_temperature(*bad)


def test_counts_are_repetitions():
    log_probs, target = answers(200, 3.0, 0)
    times = torch.arange(200) % 3 + 1
    often = fit_temperature(log_probs.repeat_interleave(times, 0), target.repeat_interleave(times))
    assert fit_temperature(log_probs, target, times) == pytest.approx(often)
    assert fit_temperature(log_probs, target, torch.full((200,), 5.0)) == fit_temperature(log_probs, target)
    assert often != pytest.approx(fit_temperature(log_probs, target), rel=1e-4)


def test_unequal_counts_notice_no_more_than_they_should():
    """Well calibrated predictions, of which a tenth counts a hundred times as much as the others."""
    counts = torch.where(torch.arange(300) % 10 == 0, 100.0, 1.0)
    found = [fit_temperature(*answers(300, 1.0, seed), counts) for seed in range(200)]
    assert sum(temperature != 1 for temperature in found) <= 30  # 10 at the level of 5 %, were there many examples
