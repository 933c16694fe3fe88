"""The variance of batch means: exact by enumeration, and of supernets whose features are known."""

import json
from dataclasses import asdict
from itertools import permutations, product

import numpy as np
import pytest
import torch
from torch import nn
from unchanged import unchanged

import polyarch as pa
from polyarch.data.task import TaskShape
from polyarch.diagnostics import spread_of_means
from polyarch.diagnostics.batch_means import Moments, moments_of_pass
from polyarch.distributions import Listed, uniform
from polyarch.errors import PolyarchError
from polyarch.spaces import NasBench201, ResidualDepth, Wiring
from polyarch.testing.spaces import make_supernet
from polyarch.testing.toy import Lines

SHAPE = TaskShape((1, 6, 6), 3)
PARTS = ("feature", "total", "own", "shared", "architectures")


def inputs(count, shape=SHAPE.input, seed=0):
    """Examples that differ in their means too."""
    chance = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, *shape, generator=chance, dtype=torch.float64)
    return noise + torch.randn(count, *[1] * len(shape), generator=chance, dtype=torch.float64)


def expected(sequences, batch_size, draws):
    """Means of the estimates over equally likely sequences of passes [channels, batches, draws, batch, pixels]."""
    moments = Moments(batch_size, draws)
    for batch in sequences.unbind(1):
        moments.add(torch.stack([moments_of_pass(one.transpose(0, 1)) for one in batch.unbind(1)]))
    found = moments.variances()
    return {name: getattr(found, name).mean().item() for name in PARTS}


# ---------------------------------------------------------------------------------------------------------------------
# The estimates, by enumeration.


@pytest.mark.parametrize("draws", [2, 3])
def test_a_shift_of_the_whole_batch_and_noise_of_every_example(draws):
    """x_i = a + e_i: var(mu) = var(a) + var(e) / B. All sequences of two batches and their architectures."""
    shifts, noises, pixels = (-1.0, 0.0, 4.0), (0.0, 3.0), torch.tensor([-1.0, 1.0])
    batches = [torch.tensor(pair).double() for pair in product(noises, repeat=2)]
    sequences = torch.stack(
        [
            torch.stack(
                [
                    torch.stack([batch[:, None] + shift + pixels for shift in drawn])
                    for batch, drawn in ((one, a[:draws]), (other, a[draws:]))
                ]
            )
            for one, other in product(batches, repeat=2)
            for a in product(shifts, repeat=2 * draws)
        ]
    )
    found = expected(sequences, batch_size=2, draws=draws)
    a, e, p = np.var(shifts), np.var(noises), 1.0
    assert found == pytest.approx(
        {"feature": a + e + p, "total": a + e / 2, "own": (a + e) / 2, "shared": a / 2, "architectures": a}
    )


def test_the_decomposition_is_that_of_the_covariance_matrix():
    """Any exchangeable batch: here both kinds of it in every order, drawn anew at every pass."""
    kinds = [(1.0, 5.0, -2.0), (0.5, 0.5, 9.0)]
    batches = torch.tensor([order for kind in kinds for order in permutations(kind)]).double()
    places = torch.tensor(list(product(range(len(batches)), repeat=4)))
    found = expected(batches[places].unflatten(1, (2, 2)).unsqueeze(-1), batch_size=3, draws=2)
    covariance = np.cov(batches.numpy().T, ddof=0)
    own, everything = np.trace(covariance) / 9, covariance.sum() / 9
    assert found == pytest.approx(
        {
            "feature": batches.var(correction=0).item(),
            "total": everything,
            "own": own,
            "shared": everything - own,
            "architectures": everything,
        }
    )


def test_a_large_mean_costs_no_digits():
    chance = torch.Generator().manual_seed(0)
    features = torch.randn(20, 2, 8, 3, 4, generator=chance, dtype=torch.float64)
    spreads = []
    for shift in (0.0, 1e6):
        moments = Moments(8, 2)
        for batch in features + shift:
            moments.add(torch.stack([moments_of_pass(one) for one in batch]))
        spreads.append(asdict(moments.variances().spread()))
    assert spreads[0] == pytest.approx(spreads[1], rel=1e-5)


def test_what_never_varies_counts_as_nothing():
    features = torch.randn(2, 4, 2, 3, generator=torch.Generator().manual_seed(0)).double()
    features[:, :, 1] = 0
    both, one = Moments(4, 2), Moments(4, 2)
    for scale in (1.0, 2.0):
        both.add(torch.stack([moments_of_pass(x) for x in scale * features]))
        one.add(torch.stack([moments_of_pass(x[:, :1]) for x in scale * features]))
    assert both.variances().spread().total == pytest.approx(one.variances().spread().total / 2)


# ---------------------------------------------------------------------------------------------------------------------
# Supernets.


def features_of(supernet, architecture, x, name):
    """What a batch norm of one architecture's plain network is given: [n, channels, pixels]."""
    network, heard = supernet.extract(architecture).train(), []
    network.get_submodule(name).register_forward_pre_hook(lambda _, given: heard.append(given[0].flatten(2)))
    with torch.no_grad():
        network(x)
    return heard[0]


def test_two_wirings_on_one_batch():
    """All examples are in every batch, so that only wirings move its mean: by the difference of two known means.

    The second node is the first that wirings differ in, and what comes before it is the same for all examples.
    """
    space = Wiring(stages=1, nodes=2, channels=3, aggregation="sum")
    supernet, x = make_supernet(space, SHAPE, (0,)), inputs(16)
    chain, skip = space.parse("-"), space.parse("2<-0")
    belief = Listed(space.decisions, torch.tensor([chain.choices, skip.choices]), torch.zeros(2))
    name = "network.stages.0.1.norm"
    features = torch.stack([features_of(supernet, one, x, name) for one in (chain, skip)])  # [2, n, channels, pixels]
    means = features.mean(-1)
    variance = features.var((0, 1, 3), correction=0)
    wanted = {
        "batch": means.mean(1).var(0, correction=0) / variance,
        "instance": means.var(0, correction=0).mean(0) / len(x) / variance,
    }
    for per, share in wanted.items():
        found = spread_of_means(supernet, x, belief, per=per, batch_size=16, batches=150)
        layer = found.layers[found.names.index(name)]
        assert layer.total == pytest.approx(share.mean().item(), rel=0.2), per
        assert layer.architectures == pytest.approx(share.mean().item(), rel=0.2), per
        assert found.layers[0].total == pytest.approx(0, abs=1e-12), "the stem's mean is that of all examples"
    assert wanted["batch"].mean() > 2 * wanted["instance"].mean()


STRONG = [Wiring(stages=2, nodes=3, channels=3, aggregation="sum"), NasBench201(channels=3, cells=1)]


@pytest.mark.parametrize("space", STRONG, ids=lambda space: space.name)
def test_one_architecture_a_batch_moves_its_mean_more(space):
    supernet, x, belief = make_supernet(space, SHAPE, (0,)), inputs(200), space.random()
    with unchanged(supernet):
        found = {
            per: spread_of_means(supernet, x, belief, per=per, batch_size=16, batches=15)
            for per in ("batch", "instance")
        }
    batch, instance = found["batch"].overall, found["instance"].overall
    assert batch.total > 2 * instance.total
    assert batch.architectures > 2 * instance.architectures
    assert batch.shared > 0 > instance.shared
    for means in found.values():
        assert len(means.names) == len(means.layers) == len(set(means.names))
        for layer in means.layers:
            assert layer.own + layer.shared == pytest.approx(layer.total)
        assert means.overall.total == pytest.approx(np.mean([layer.total for layer in means.layers]))
        json.dumps(asdict(means), allow_nan=False)
    # The stem comes before every choice, and sees the same examples.
    assert found["batch"].layers[0] == found["instance"].layers[0]
    again = spread_of_means(supernet, x, belief, per="batch", batch_size=16, batches=15)
    assert again == found["batch"]
    other = spread_of_means(supernet, x, belief, per="batch", batch_size=16, batches=15, seed=1)
    assert other != again


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (Wiring(stages=2, nodes=3, channels=3, listed=1), SHAPE),
        (ResidualDepth(max_depth=2, width=4), TaskShape((5,), 2)),
    ],
    ids=["one wiring", "depths that share their blocks"],
)
def test_where_architectures_make_no_difference_both_are_equal(space, shape):
    supernet, x = make_supernet(space, shape, (0,)), inputs(100, shape.input)
    batch, instance = (
        spread_of_means(supernet, x, space.random(), per=per, batch_size=10, batches=10)
        for per in ("batch", "instance")
    )
    assert asdict(batch.overall) == pytest.approx(asdict(instance.overall), abs=1e-12)
    assert batch.overall.total > 1e-4
    assert batch.overall.architectures == pytest.approx(0, abs=1e-12)
    assert batch.names == instance.names
    if len(shape.input) == 1:  # a vector's features are its examples' means
        assert [layer.own for layer in batch.layers] == pytest.approx([1 / 10] * len(batch.layers))


class Features(nn.Module):
    """Two batch norms on vectors: the inputs', and one that runs twice."""

    def __init__(self):
        super().__init__()
        self.first, self.twice = nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=None)
        self.scale = pa.Choice("scale", {"one": nn.Identity(), "relu": nn.ReLU()})
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.dropout(self.twice(self.twice(self.scale(self.first(x))))))


def test_a_module_of_ones_own():
    """The mean of B out of N without replacement varies by var(x) (N - B) / (N - 1) / B; dropout does not act."""
    space, shape = pa.ModuleSpace(Features), TaskShape((4,), 2)
    supernet, x = make_supernet(space, shape, (0,)), inputs(60, (4,))
    with unchanged(supernet):
        found = spread_of_means(supernet, x, uniform(space.decisions), per="batch", batch_size=20, batches=800)
    assert found.names == ["network.first", "network.twice", "network.twice"]
    assert found.layers[0].total == pytest.approx((60 - 20) / 59 / 20, rel=0.1)
    assert found.layers[0].own == pytest.approx(1 / 20, rel=1e-3)
    assert found.layers[0].architectures == pytest.approx(0, abs=1e-12)
    assert found.layers[1].architectures > 0.01
    assert found.layers[2].total == pytest.approx(0, abs=1e-6), "what was just normalised has mean 0"


# ---------------------------------------------------------------------------------------------------------------------
# Refusals.


def test_a_pass_that_fails_changes_nothing():
    space = Wiring(stages=1, nodes=2, channels=2)
    supernet = make_supernet(space, SHAPE, (0,))
    with unchanged(supernet), pytest.raises(RuntimeError):
        spread_of_means(supernet, inputs(8, (2, 6, 6)), space.random(), per="batch", batch_size=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 1}, "batch_size is 1; it must be at least 2"),
        ({"batches": 1}, "batches is 1"),
        ({"draws": 1}, "draws is 1"),
        ({"batch_size": 9}, "batches of 9 out of 8 examples; set"),
    ],
)
def test_too_little_is_refused(change, message):
    space = Wiring(stages=1, nodes=2, channels=2)
    settings = {"per": "batch", "batch_size": 4} | change
    with pytest.raises(PolyarchError, match=message):
        spread_of_means(make_supernet(space, SHAPE, (0,)), inputs(8), space.random(), **settings)


def test_supernets_that_do_not_fit_are_refused():
    space = Wiring(stages=1, nodes=2, channels=2)
    with pytest.raises(PolyarchError, match="holds 2 repeats; give that of one"):
        spread_of_means(make_supernet(space, SHAPE, (0, 1)), inputs(8), space.random(), per="batch", batch_size=4)
    lines = make_supernet(Lines(), TaskShape((1,), 1), (0,))
    for per, message in (("instance", "'lines' run no batch of several"), ("batch", "no batch norm with running")):
        with pytest.raises(PolyarchError, match=message):
            spread_of_means(lines, inputs(8, (1,)), uniform(Lines().decisions), per=per, batch_size=4)
