import torch
from torch import nn

from polyarch.training.snapshots import Snapshot


def test_everything_is_as_it_was():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    kept = [*network.parameters(), *network.buffers()]
    places, values = [value.data_ptr() for value in kept], [value.detach().clone() for value in kept]
    before = Snapshot(kept)
    for _ in range(2):  # it can be restored again and again
        optimiser = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9)
        for _ in range(3):
            optimiser.zero_grad()
            network(torch.randn(8, 3)).square().sum().backward()
            optimiser.step()
        assert network[1].num_batches_tracked == 3, "counts are whole numbers, and kept too"
        assert not any(torch.equal(now, then) for now, then in zip(kept, values, strict=True))
        before.restore()
        assert all(torch.equal(now, then) for now, then in zip(kept, values, strict=True))
    assert [value.data_ptr() for value in kept] == places, "in place"
    assert all(value.requires_grad for value in network.parameters())


def test_later_changes_do_not_reach_it():
    value = torch.zeros(2)
    before = Snapshot([value])
    value.add_(1)
    again = Snapshot([value])
    value.add_(1)
    again.restore()
    assert value.tolist() == [1, 1]
    before.restore()
    assert value.tolist() == [0, 0]


def test_a_generator_is_read_once():
    values = [torch.zeros(2), torch.ones(3)]
    before = Snapshot(value for value in values)
    for value in values:
        value.fill_(7)
    before.restore()
    assert [value.tolist() for value in values] == [[0, 0], [1, 1, 1]]
