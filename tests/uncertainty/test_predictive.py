import math

import pytest
import torch

from polyarch.data.likelihood import Classification
from polyarch.errors import PolyarchError
from polyarch.uncertainty import Predictive


def members(m=5, n=20, classes=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(m, n, classes, generator=generator, dtype=dtype)
    return logits.log_softmax(-1), torch.rand(m, generator=generator, dtype=dtype).softmax(0)


def test_is_its_definition():
    log_probs, weights = members()
    got = Predictive.from_members(log_probs, weights)
    probs = sum(w * p for w, p in zip(weights, log_probs.exp(), strict=True))
    torch.testing.assert_close(got.log_probs.exp(), probs)
    torch.testing.assert_close(got.entropy, torch.distributions.Categorical(probs).entropy())
    each = torch.distributions.Categorical(logits=log_probs).entropy()
    torch.testing.assert_close(got.expected_entropy, sum(w * h for w, h in zip(weights, each, strict=True)))
    # Equally, the mean divergence of a member from the mixture.
    divergence = (log_probs.exp() * (log_probs - probs.log())).sum(-1)
    torch.testing.assert_close(got.mutual_information, (weights[:, None] * divergence).sum(0))


def test_mixes_probabilities_not_logits():
    log_probs = torch.tensor([[[0.99, 0.01]], [[0.2, 0.8]]]).log()
    weights = torch.tensor([0.25, 0.75])
    got = Predictive.from_members(log_probs, weights).log_probs.exp()
    torch.testing.assert_close(got, torch.tensor([[0.3975, 0.6025]]))
    of_logits = (weights[:, None, None] * log_probs).sum(0).softmax(-1)
    assert (got - of_logits).abs().max() > 0.01
    torch.testing.assert_close(got, Classification(2).mixture(log_probs, weights).exp())


def test_identical_members_share_no_information():
    log_probs, weights = members()
    got = Predictive.from_members(log_probs[:1].expand(5, -1, -1), weights)
    torch.testing.assert_close(got.log_probs, log_probs[0])
    torch.testing.assert_close(got.mutual_information, torch.zeros(20, dtype=torch.float64), atol=1e-12, rtol=0)
    assert (got.mutual_information >= 0).all()


@pytest.mark.parametrize("off", [-math.inf, -1e4])
def test_opposite_certain_members(off):
    log_probs = torch.tensor([[[0.0, off]], [[off, 0.0]]])
    got = Predictive.from_members(log_probs, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(got.log_probs, torch.tensor([[-math.log(2)] * 2]))
    assert got.entropy.item() == pytest.approx(math.log(2))
    assert got.expected_entropy.item() == 0
    assert got.mutual_information.item() == pytest.approx(math.log(2))


def test_members_of_weight_zero_have_no_part():
    log_probs, weights = members()
    padded = torch.cat([log_probs, torch.eye(4, dtype=torch.float64)[0].log().expand(2, 20, 4)])
    got = Predictive.from_members(padded, torch.cat([weights, torch.zeros(2, dtype=torch.float64)]))
    want = Predictive.from_members(log_probs, weights)
    for name in ("log_probs", "entropy", "expected_entropy", "mutual_information"):
        torch.testing.assert_close(getattr(got, name), getattr(want, name))


def test_one_member_is_itself():
    log_probs, _ = members(m=1)
    got = Predictive.from_members(log_probs, torch.ones(1))
    torch.testing.assert_close(got.log_probs, log_probs[0])
    assert got.mutual_information.tolist() == [0] * 20


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_extremes_stay_finite(dtype):
    log_probs = torch.tensor([[[0.0, -1e4, -2e4]], [[0.0, -2e4, -math.inf]]], dtype=dtype)
    got = Predictive.from_members(log_probs, torch.tensor([0.5, 0.5]))
    assert got.log_probs.dtype == dtype
    assert got.log_probs.isfinite().all()
    assert got.log_probs[0, 1].item() == pytest.approx(-1e4 - math.log(2), rel=1e-2)
    assert got.entropy.item() == 0
    assert got.mutual_information.item() == 0


def test_nothing_is_negative_in_single_precision():
    log_probs, _ = members(m=1, n=2000, dtype=torch.float32)
    got = Predictive.from_members(log_probs.expand(3, -1, -1), torch.full((3,), 1 / 3))
    assert (got.mutual_information >= 0).all()
    assert (got.mutual_information < 1e-6).all()


def test_the_entropy_of_a_sure_mixture_is_not_below_zero():
    """Weights sum to 1 but for rounding, so that the probability of a sure mixture may come out just above 1."""
    log_probs = torch.log_softmax(torch.tensor([[[40.0, 0.0, -3.0]]]), -1).expand(8, -1, -1)
    got = Predictive.from_members(log_probs, torch.full((8,), 0.1250001))
    assert got.log_probs.max() > 0, "nothing is rounded up here"
    for told in (got.entropy, got.expected_entropy, got.mutual_information, got.tempered(0.5).entropy):
        assert math.copysign(1, told.item()) == 1


def test_gradients_reach_members():
    log_probs, weights = members()
    log_probs[0, 0] = torch.tensor([0.0, -math.inf, -math.inf, -math.inf])
    log_probs.requires_grad_()
    Predictive.from_members(log_probs, weights).mutual_information.sum().backward()
    assert log_probs.grad.isfinite().all()
    assert log_probs.grad.abs().sum() > 0


def test_no_value_is_read_back():
    fake = torch._subclasses.FakeTensorMode()
    with fake:
        got = Predictive.from_members(torch.empty(3, 5, 2), torch.empty(3))
    assert got.log_probs.shape == (5, 2)
    assert got.mutual_information.shape == (5,)


@pytest.mark.parametrize(
    ("log_probs", "weights"), [((4, 2), (4,)), ((3, 4, 2), (4,)), ((3, 4, 2), (3, 1)), ((0, 4, 2), (0,))]
)
def test_shapes_are_checked(log_probs, weights):
    with pytest.raises(PolyarchError, match=r"members must be \[members, n, classes\]"):
        Predictive.from_members(torch.zeros(log_probs), torch.zeros(weights))
