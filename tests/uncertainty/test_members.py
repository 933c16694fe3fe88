"""Which members a mixture has, and that they answer alike wherever they run."""

import itertools

import pytest
import torch

from polyarch.data.likelihood import Gaussian
from polyarch.data.preprocess import Standardise
from polyarch.data.task import TaskShape
from polyarch.distributions import Categorical, Listed
from polyarch.distributions.categorical import pad
from polyarch.errors import PolyarchError
from polyarch.spaces import NasBench201, Wiring
from polyarch.testing.spaces import make_supernet
from polyarch.testing.toy import Lines
from polyarch.uncertainty import Ensemble, members_of
from polyarch.uncertainty.ensemble import Apart, Within
from polyarch.uncertainty.members import drawn


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def belief(space, seed=0):
    return Categorical(space.decisions, pad([torch.randn(len(d), generator=chance(seed)) for d in space.decisions]))


SPACE = Lines()
RUNNING = NasBench201(channels=4, cells=1, statistics="running")  # those of a batch would be another network's
LIST = Listed(SPACE.decisions, torch.tensor([[0, 1], [2, 0], [1, 1]]), torch.tensor([0.5, 0.2, 0.3]).log())


def test_a_small_space_is_taken_whole():
    believed = belief(SPACE)
    got = members_of(SPACE, believed, None, chance())
    sizes = [range(len(d)) for d in SPACE.decisions]
    assert got.choices.tolist() == [list(choices) for choices in itertools.product(*sizes)]
    rows = list(believed.probs().values())
    by_hand = [rows[0][a] * rows[1][b] for a, b in itertools.product(*sizes)]
    assert torch.allclose(got.weights, torch.stack(by_hand))
    assert got.weights.sum().item() == pytest.approx(1)
    assert torch.equal(members_of(SPACE, believed, SPACE.count(), chance()).weights, got.weights)


def test_a_large_one_is_drawn_from():
    space = NasBench201(channels=2, cells=1)
    believed = belief(space)
    got = members_of(space, believed, 500, chance(7))
    assert len(got.choices.unique(dim=0)) == len(got.choices), "what is drawn twice is one member"
    assert torch.allclose(got.weights * 500, (got.weights * 500).round(), atol=1e-4)
    assert got.weights.sum().item() == pytest.approx(1)
    for k, probs in enumerate(believed.probs().values()):
        share = torch.zeros(len(probs)).index_add_(0, got.choices[:, k], got.weights)
        assert torch.allclose(share, probs, atol=5 * 0.5 / 500**0.5)
    assert torch.equal(members_of(space, believed, 500, chance(7)).choices, got.choices)
    assert members_of(space, believed, None, chance()).weights.min() >= 1 / 20 - 1e-6
    few = drawn(believed, 3, chance())
    assert 1 <= len(few.weights) <= 3


def test_a_list_is_all_there_is():
    got = members_of(SPACE, LIST, None, chance())
    assert torch.equal(got.choices, LIST.choices)
    assert got.weights.tolist() == pytest.approx([0.5, 0.2, 0.3])
    first = []
    for seed in range(300):
        two = members_of(SPACE, LIST, 2, chance(seed))
        places = [LIST.choices.tolist().index(row) for row in two.choices.tolist()]
        assert len(set(places)) == 2, "all different"
        probs = [(0.5, 0.2, 0.3)[place] for place in places]
        assert two.weights.tolist() == pytest.approx([p / sum(probs) for p in probs])
        first.append(members_of(SPACE, LIST, 1, chance(seed)).choices[0].tolist())
    shares = [first.count(row) / 300 for row in LIST.choices.tolist()]
    assert shares == pytest.approx([0.5, 0.2, 0.3], abs=0.1)


@pytest.mark.parametrize(("believed", "count"), [(LIST, 4), (belief(SPACE), 7)])
def test_more_than_there_are_is_refused(believed, count):
    with pytest.raises(PolyarchError, match=rf"{count} members of {count - 1} architectures; ask for {count - 1}"):
        members_of(SPACE, believed, count, chance())
    with pytest.raises(PolyarchError, match="members is 0"):
        members_of(SPACE, believed, 0, chance())


@pytest.mark.parametrize(
    ("space", "shape"),
    [(SPACE, TaskShape((1,), 1)), (RUNNING, TaskShape((1, 8, 8), 3))],
    ids=["lines", "nasbench201"],
)
def test_members_answer_alike_inside_a_supernet_and_apart(space, shape):
    supernet = make_supernet(space, shape, seeds=(0,)).eval()
    chosen = members_of(space, belief(space), 4, chance())
    x = torch.randn(5, *shape.input, generator=chance(), dtype=torch.float64)
    standardise = Standardise(torch.zeros(1, dtype=torch.float64), torch.full((1,), 2.0, dtype=torch.float64))
    outputs, gradients = [], []
    for networks in (
        Within(supernet, chosen.choices),
        Apart([supernet.extract(a) for a in space.decode(chosen.choices)]),
    ):
        ensemble = Ensemble(standardise, networks, chosen.weights.double(), Gaussian()).eval()
        outputs.append(ensemble.members(x))
        z = x.clone().requires_grad_()
        gradients.append(torch.autograd.grad(ensemble.members(z).square().sum(), z)[0])
    assert outputs[0].shape == (len(chosen.weights), 5, shape.outputs)
    assert torch.allclose(*outputs, atol=1e-9)
    assert torch.allclose(*gradients, atol=1e-9)
    assert outputs[0].std(0).max() > 1e-3, "members must differ for this to say something"


# ---------------------------------------------------------------------------------------------------------------------
# Dropout: every draw of it is a member.

DROPPING = Wiring(stages=2, nodes=2, channels=2, wirings="residual", dropout=0.3)


def test_with_dropout_there_are_as_many_members_as_asked_for():
    got = members_of(DROPPING, DROPPING.random(), 7, chance())
    assert got.choices.tolist() == [list(DROPPING.residual.choices)] * 7
    assert torch.allclose(got.weights, torch.full((7,), 1 / 7))
    assert len(set(got.seeds)) == 7
    assert got.seeds != members_of(DROPPING, DROPPING.random(), 7, chance(1)).seeds
    assert len(members_of(DROPPING, DROPPING.random(), None, chance()).weights) == 20


def test_a_member_keeps_its_draw_of_dropout():
    """So that an attack's gradient is that of what is attacked, also where it is computed twice."""
    supernet = make_supernet(DROPPING, TaskShape((1, 6, 6), 3), (0,)).eval()
    members = Within(supernet, members_of(DROPPING, DROPPING.random(), 3, chance()).choices)
    x = torch.randn(4, 1, 6, 6, generator=chance(), dtype=torch.float64)
    with torch.no_grad():
        said = members(x)
        assert torch.equal(members(x), said)
        assert torch.allclose(members(x[2:]), said[:, 2:], atol=1e-12), "in any company"
        assert not any(torch.allclose(said[a], said[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
        without = supernet(x.unsqueeze(0), members.views[0])[0]
    assert not torch.allclose(said[0], without)
    with pytest.raises(RuntimeError):
        members(x[:, :, :1, :1].expand(-1, 5, -1, -1))
    with torch.no_grad():
        assert torch.equal(supernet(x.unsqueeze(0), members.views[0])[0], without), "also after an error"
    given = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(members(given)[1, 0, 0], given)
    small = torch.zeros_like(x)
    small[0, 0, 2, 3] = 1e-6
    with torch.no_grad():
        slope = (members(x + small)[1, 0, 0] - members(x - small)[1, 0, 0]) / 2e-6
    assert gradient[0, 0, 2, 3].item() == pytest.approx(slope.item(), rel=1e-4, abs=1e-9)
