"""What docs/spaces.md says of batch norm on several ranks."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

RANKS = """
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{here}/ranks", rank=me, world_size=2)
"""
OWN = """
from torch import nn
from polyarch.spaces.repeats import InTurn

whole = torch.load(here / "x.pt")
network = InTurn(lambda: nn.Sequential(nn.BatchNorm1d(3, dtype=torch.float64)), 1)
[trained] = network.run(whole.chunk(2)[me][None], {}, True)
network.network.eval()
[evaluated] = network.run(whole[None], {}, False)
said = [trained[0].tolist(), evaluated[0].tolist()]
dist.destroy_process_group()
"""
EVALUATED = """
import torch
import polyarch as pa
from polyarch.core import Problem
from polyarch.data.likelihood import Classification
from polyarch.data.task import Split, TaskShape
from polyarch.spaces.views import Dense
from polyarch.training.evaluation import evaluate_view

space, chance = pa.spaces.Darts(channels=2, layers=2), torch.Generator().manual_seed(0)
examples = Split(torch.randn(40, 1, 8, 8, generator=chance), torch.arange(40) % 3)
supernet = space.supernet(TaskShape((1, 8, 8), 3), 1)
supernet.reset_parameters([chance])
problem = Problem(space, supernet, Classification(3), space.random(), {"select": examples})
view = Dense(space.random().sample(1, chance))
said = [evaluate_view(problem, view, "select", size)["log_likelihood"].item() for size in (16, 40)]
"""


def test_a_module_of_ones_own_is_normalised_by_the_global_batch(tmp_path, two_processes):
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).double()
    torch.save(x, tmp_path / "x.pt")
    (first, evaluated), (second, evaluated_there) = two_processes(tmp_path, RANKS + OWN)
    trained = torch.tensor(first + second, dtype=torch.float64)
    norm = nn.BatchNorm1d(3).double()
    torch.testing.assert_close(trained, norm(x))
    slices = torch.cat([F.batch_norm(half, None, None, training=True) for half in x.chunk(2)])
    assert not torch.allclose(trained, slices, atol=0.1)
    # The running statistics are of the global batch too.
    torch.testing.assert_close(torch.tensor(evaluated, dtype=torch.float64), norm.eval()(x))
    assert evaluated == evaluated_there


def test_evaluation_by_the_batch_is_the_same_on_any_number_of_ranks(tmp_path, two_processes):
    """Every rank passes the whole split, as many examples at a time as one rank alone would."""
    alone = {}
    exec(EVALUATED, alone)
    assert alone["space"].statistics == "batch"
    small, large = alone["said"]
    assert small != pytest.approx(large, abs=1e-3)  # it does depend on what is passed together
    for said in two_processes(tmp_path, RANKS + EVALUATED + "dist.destroy_process_group()"):
        assert said == pytest.approx(alone["said"], abs=1e-6)
