import pytest
import torch

from polyarch import PolyarchError
from polyarch.distributions import Categorical, Dirichlet, Discretized, GaussianLogits, uniform
from polyarch.distributions.categorical import pad
from polyarch.spaces import Darts, NasBench1Shot1, NasBench201
from polyarch.testing import check_distribution

DARTS = Darts(channels=2, layers=3)
ONE_SHOT = NasBench1Shot1(sub_space=1, channels=2, cells=3)


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def logits(space, seed):
    return pad([torch.randn(len(d), generator=chance(seed + k)) for k, d in enumerate(space.relaxation.simplices)])


def categorical(space, seed=0):
    return Categorical(space.relaxation.simplices, logits(space, seed))


def dirichlet(space):
    return Dirichlet(space.relaxation.simplices, logits(space, 0).exp())


def gaussian(space):
    mean = logits(space, 0)
    return GaussianLogits(space.relaxation.simplices, mean, (mean > -torch.inf) * 0.5)


@pytest.mark.parametrize("make", [categorical, dirichlet, gaussian])
@pytest.mark.parametrize("space", [DARTS, ONE_SHOT], ids=["darts", "nasbench1shot1"])
def test_contract(make, space):
    belief = space.relaxation.belief(make(space))
    assert isinstance(belief, Discretized)
    assert not belief.exact
    assert belief.factors == space.relaxation.simplices
    check_distribution(belief)


def test_where_nothing_is_read_out_the_simplices_are_the_belief():
    space = NasBench201()
    simplices = categorical(space)
    assert space.relaxation.belief(simplices) is simplices
    assert simplices.exact
    assert simplices.factors == space.decisions


def test_the_mode_is_read_out_of_the_mean_weights():
    mean = torch.full((len(DARTS.relaxation.simplices), 8), -1.0)
    mean[:, 0] = 5  # `none` everywhere, which no architecture has
    mean[:, 4] = torch.arange(len(DARTS.relaxation.simplices)) / 100  # later edges the better
    belief = DARTS.relaxation.belief(GaussianLogits(DARTS.relaxation.simplices, mean, torch.ones_like(mean)))
    [architecture] = DARTS.decode(belief.mode().unsqueeze(0))
    expected = [("sep_conv_3x3", source) for pair in ((1, 0), (2, 1), (3, 2), (4, 3)) for source in pair]
    assert str(architecture).startswith(f"Genotype(normal={expected}, ")


def test_samples_of_a_categorical_have_its_probabilities_and_take_parents_without_replacement():
    """The largest k of Gumbel draws are options taken one after the other, in proportion to what is left."""
    belief = ONE_SHOT.relaxation.belief(categorical(ONE_SHOT))
    n = 20_000
    sampled = belief.sample(n, chance())
    for k, decision in enumerate(ONE_SHOT.decisions):
        counted = torch.bincount(sampled[:, k], minlength=len(decision)) / n
        row = list(belief.probs().values())[k].tolist()
        if decision.name.startswith("parents"):
            row = [successive(row, [int(parent) for parent in option.split("+")]) for option in decision.options]
        assert counted.tolist() == pytest.approx(row, abs=0.02)


def successive(row, taken):
    """The probability of taking just these, in whatever order."""
    if not taken:
        return 1.0
    return sum(row[one] * successive(without(row, one), [other for other in taken if other != one]) for one in taken)


def without(row, one):
    return [0.0 if k == one else p / (1 - row[one]) for k, p in enumerate(row)]


def test_gaussian_samples_are_read_out_of_drawn_logits():
    simplices = gaussian(DARTS)
    noise = torch.randn(6, *simplices.mean.shape, generator=chance())
    expected = DARTS.relaxation.discretize(simplices.drawn(noise).softmax(-1).unbind(1))
    assert torch.equal(DARTS.relaxation.belief(simplices).sample(6, chance()), expected)


def test_what_has_no_closed_form_says_so():
    belief = DARTS.relaxation.belief(categorical(DARTS))
    with pytest.raises(PolyarchError, match=r"log-probability.*28 simplices.*sample"):
        belief.log_prob(belief.mode().unsqueeze(0))
    with pytest.raises(PolyarchError, match=r"KL.*sample"):
        belief.kl(uniform(DARTS.decisions))
    assert torch.equal(belief.entropy(), categorical(DARTS).entropy())


def test_leading_axes_are_kept():
    both = torch.stack([logits(DARTS, 0), logits(DARTS, 100)])
    stacked = DARTS.relaxation.belief(Categorical(DARTS.relaxation.simplices, both))
    assert stacked.mode().shape == (2, len(DARTS.decisions))
    for k in range(2):
        single = DARTS.relaxation.belief(Categorical(DARTS.relaxation.simplices, both[k]))
        assert torch.equal(stacked.mode()[k], single.mode())
        assert torch.equal(stacked.repeat(k).mode(), single.mode())
        assert torch.equal(stacked.repeat(k).sample(4, chance()), single.sample(4, chance()))
