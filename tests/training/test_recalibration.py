import pytest
import torch
from torch import nn

from polyarch import PolyarchError
from polyarch.training.calibration import calibration_batches, recalibrate


def images(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, 5, 4, generator=generator, dtype=torch.float64) * 3 + 1


class WithHead(nn.Module):
    """Has an auxiliary head that runs in training mode only, as DARTS networks have."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.head = nn.BatchNorm1d(4)

    def forward(self, x):
        x = self.stem(x)
        return (x, self.head(x)) if self.training else x


@pytest.fixture
def deep():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.BatchNorm2d(6, momentum=0.3),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Conv2d(6, 4, 3),
            nn.BatchNorm2d(4, affine=False),
            nn.Flatten(),
            nn.Linear(24, 5),
            nn.BatchNorm1d(5, momentum=None),
            nn.BatchNorm1d(5, track_running_stats=False),
        ).double()
    return network


def norms_of(network):
    return [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]


def test_statistics_are_the_means_over_batches_of_batch_means_and_variances():
    batches = list(images(24).split(6))
    norm = nn.BatchNorm2d(3).double()
    norm(images(5, seed=1) * 100)  # old statistics leave no trace
    recalibrate(norm, iter(batches))
    by_hand = [b.movedim(1, 0).flatten(1) for b in batches]
    means = torch.stack([b.sum(1) / 120 for b in by_hand])
    variances = torch.stack([((b - b.mean(1, keepdim=True)) ** 2).sum(1) / 119 for b in by_hand])
    torch.testing.assert_close(norm.running_mean, means.mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(norm.running_var, variances.mean(0), rtol=1e-12, atol=1e-12)
    assert norm.num_batches_tracked == 4


def test_evaluation_on_the_one_batch_equals_training_mode_up_to_bessels_factor(deep):
    x = images(16)
    deep[3].p = 0.0
    expected = deep.train()(x)
    recalibrate(deep, [x])
    for norm, values in zip(norms_of(deep), (16 * 5 * 4, 16 * 3 * 2, 16), strict=True):
        norm.running_var *= (values - 1) / values
    torch.testing.assert_close(deep.eval()(x), expected, rtol=1e-10, atol=1e-10)


def test_later_layers_see_what_training_mode_gives_them(deep):
    batches = list(images(32).split(8))
    recalibrate(deep, batches)
    first, second = deep[:2].train(), deep[4:5]
    inputs = [second(first(b).relu()).movedim(1, 0).flatten(1) for b in batches]
    expected = torch.stack([b.mean(1) for b in inputs]).mean(0)
    torch.testing.assert_close(deep[5].running_mean, expected, rtol=1e-10, atol=1e-10)


def test_nothing_but_statistics_changes(deep):
    deep.train()
    deep[1].eval()
    deep[0].weight.requires_grad_(False)
    modes = [m.training for m in deep.modules()]
    flags = [p.requires_grad for p in deep.parameters()]
    weights = [p.clone() for p in deep.parameters()]
    tracked = []
    deep.register_forward_hook(lambda module, inputs, output: tracked.append(output.requires_grad))
    recalibrate(deep, images(12).split(6))
    assert tracked == [False, False]
    assert [m.training for m in deep.modules()] == modes
    assert [p.requires_grad for p in deep.parameters()] == flags
    assert [norm.momentum for norm in norms_of(deep)] == [0.3, 0.1, None]
    assert all(p.grad is None for p in deep.parameters())
    assert all(torch.equal(p, old) for p, old in zip(deep.parameters(), weights, strict=True))


def test_modes_are_restored_when_a_batch_does_not_fit(deep):
    deep.train()
    with pytest.raises(RuntimeError):
        recalibrate(deep, [images(4), images(4)[:, :2]])
    assert all(m.training for m in deep.modules())
    assert [norm.momentum for norm in norms_of(deep)] == [0.3, 0.1, None]


def test_dropout_does_not_act_and_nothing_is_random(deep):
    batches = list(images(24).split(8))
    chance = torch.random.get_rng_state()
    found = []
    for p in (0.5, 0.5, 0.0):
        deep[3].p = p
        deep.train()
        recalibrate(deep, batches)
        found.append({name: value.clone() for name, value in deep.named_buffers()})
    for other in found[1:]:
        assert all(torch.equal(value, other[name]) for name, value in found[0].items())
    assert torch.equal(torch.random.get_rng_state(), chance)


def test_a_norm_that_no_batch_reaches_keeps_its_statistics():
    network, x = WithHead(), torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        network.train()(x)
    kept = {name: value.clone() for name, value in network.head.named_buffers()}
    stem = network.stem[1].running_mean.clone()
    recalibrate(network, [x + 1])
    assert all(torch.equal(value, kept[name]) for name, value in network.head.named_buffers())
    assert kept["num_batches_tracked"] == 3
    assert not torch.equal(network.stem[1].running_mean, stem)


def test_a_network_without_running_statistics_is_not_run():
    def untouched():
        raise AssertionError("no batch is needed")
        yield

    recalibrate(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)), untouched())
    recalibrate(nn.BatchNorm1d(3, track_running_stats=False), untouched())


def test_without_a_batch_statistics_are_kept_and_the_error_says_so():
    norm = nn.BatchNorm2d(3).double()
    norm(images(4))
    kept = norm.running_mean.clone()
    with pytest.raises(PolyarchError, match="no batch to recalibrate"):
        recalibrate(norm, calibration_batches(images(1)))
    assert torch.equal(norm.running_mean, kept)


@pytest.mark.parametrize(
    ("count", "size", "most", "sizes"),
    [
        (100, 8, 3, [8, 8, 8]),
        (24, 8, 3, [8, 8, 8]),
        (20, 8, 3, [7, 7, 6]),
        (9, 8, 3, [5, 4]),
        (5, 8, 3, [5]),
        (3, 2, 3, [2]),
        (1, 8, 3, []),
        (0, 8, 3, []),
    ],
)
def test_how_many_batches_of_which_size(count, size, most, sizes):
    x = torch.arange(count * 2.0).view(count, 2)
    batches = calibration_batches(x, size, most)
    assert [len(batch) for batch in batches] == sizes
    seen = [tuple(row) for batch in batches for row in batch.tolist()]
    assert len(set(seen)) == len(seen)
    assert set(seen) <= {tuple(row) for row in x.tolist()}


def test_sorted_data_does_not_bias_the_batches():
    labels = torch.arange(10).repeat_interleave(500).double().unsqueeze(1)
    batches = calibration_batches(labels, size=128, most=32)
    assert len(batches) == 32
    for batch in batches:
        assert batch.mean().item() == pytest.approx(4.5, abs=1.1)  # more than four standard errors
        assert len(batch.unique()) == 10


def test_the_order_follows_the_seed_alone():
    x = torch.arange(300)
    chance = torch.random.get_rng_state()
    first, again, other = (torch.cat(calibration_batches(x, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), chance)


def test_bad_sizes_are_refused():
    with pytest.raises(PolyarchError, match="size is 1; it must be at least 2"):
        calibration_batches(torch.zeros(4, 2), size=1)
    with pytest.raises(PolyarchError, match="most is 0"):
        calibration_batches(torch.zeros(4, 2), most=0)
