import pytest
import torch

from polyarch import PolyarchError
from polyarch.data.task import TaskShape
from polyarch.distributions import exponential
from polyarch.spaces import All, ResidualDepth, Soft, Sparse
from polyarch.spaces.depth import prune
from polyarch.spaces.layers import BatchNorm
from polyarch.testing import check_space
from polyarch.testing.spaces import make_supernet

VECTOR, IMAGE = TaskShape((2,), 3), TaskShape((3, 9, 8), 4)


@pytest.mark.parametrize("shape", [VECTOR, IMAGE, TaskShape((1, 6, 6), 2)])
@pytest.mark.parametrize("statistics", ["per-depth", "shared"])
def test_contract(shape, statistics):
    check_space(ResidualDepth(max_depth=5, width=6, head_statistics=statistics), shape)


def test_images_may_be_flattened():
    check_space(ResidualDepth(max_depth=3, width=6, block="linear"), IMAGE)


def test_sizes_are_the_papers():
    space = ResidualDepth(max_depth=50)
    mnist = TaskShape((1, 28, 28), 10)
    per_block = [space.cost(space.architecture([d]), mnist).parameters for d in (3, 4)]
    assert per_block[1] - per_block[0] == 13_696  # spec: 64 outer and 32 inner channels, biases kept
    spirals = TaskShape((2,), 2)
    assert space.cost(space.architecture([0]), spirals).parameters == 2 * 20 + 20 + 20 * 2 + 2  # depth 0 is linear
    assert space.cost(space.architecture([1]), spirals).parameters == 102 + 20 * 20 + 20 + 2 * 20


def test_texts():
    space = ResidualDepth(max_depth=12)
    assert str(space.architecture([9])) == "depth=9"
    assert space.parse(" depth = 9 ") == space.architecture([9])
    for wrong in ("depth=13", "deth=3", "9"):
        with pytest.raises(PolyarchError):
            space.parse(wrong)


@pytest.mark.parametrize(
    ("settings", "shape"),
    [({}, TaskShape((1, 5, 8), 2)), ({"block": "conv"}, VECTOR), ({"stem_kernel": 9}, TaskShape((1, 8, 8), 2))],
)
def test_inputs_it_has_no_networks_for(settings, shape):
    with pytest.raises(PolyarchError, match=r"set stem_kernel|needs images"):
        ResidualDepth(**settings).check(shape)


@pytest.mark.parametrize(
    "settings", [{"max_depth": -1}, {"width": -3}, {"block": "cnov"}, {"stem_kernel": 0}, {"max_depth": 2.5}]
)
def test_settings_out_of_range(settings):
    with pytest.raises(PolyarchError):
        ResidualDepth(**settings)


def test_soft_is_refused_with_the_way_out():
    supernet = make_supernet(ResidualDepth(max_depth=2), VECTOR, (0,))
    with pytest.raises(PolyarchError, match="All"):
        supernet(torch.zeros(1, 4, 2, dtype=torch.float64), Soft((torch.ones(1, 3),)))


def test_gradients_of_one_depth_equal_those_read_out_of_all_depths():
    supernet = make_supernet(ResidualDepth(max_depth=4, width=6), IMAGE, (0, 1)).train()
    x = torch.randn(2, 10, *IMAGE.input, dtype=torch.float64)
    parameters = [p for name, p in supernet.named_parameters() if not name.startswith("blocks.3")]
    sparse = torch.autograd.grad(supernet(x, Sparse((3,))).square().sum(), parameters)
    nested = torch.autograd.grad(supernet(x, All())[:, 3].square().sum(), parameters)
    for one, other in zip(sparse, nested, strict=True):
        assert torch.allclose(one, other, atol=1e-9)


def test_deeper_blocks_are_not_run_when_the_depth_is_known():
    supernet = make_supernet(ResidualDepth(max_depth=4), VECTOR, (0,))
    ran = []
    for k, block in enumerate(supernet.blocks):
        block.register_forward_hook(lambda *_, k=k: ran.append(k))
    supernet(torch.zeros(1, 4, 2, dtype=torch.float64), Sparse((2,)))
    assert ran == [0, 1]


def test_pruning_moves_the_mass_and_drops_the_blocks():
    space = ResidualDepth(max_depth=6)
    supernet = make_supernet(space, VECTOR, (0,)).float().eval()
    belief = exponential(space.decisions, 0.7)
    small, weights = supernet.nested_members(space.architecture([4]), belief)
    probs = belief.probs()["depth"]
    assert len(small.blocks) == 4
    assert torch.allclose(weights, torch.cat([probs[:4], probs[4:].sum(0, keepdim=True)]))
    assert weights.sum().item() == pytest.approx(1)
    x = torch.randn(1, 7, 2)
    assert torch.allclose(small(x, All()), supernet(x, All())[:, :5])


@pytest.mark.parametrize("depth", range(5))
def test_pruning_keeps_total_mass_one(depth):
    probs = torch.rand(3, 5).softmax(-1)
    assert torch.allclose(prune(probs, depth).sum(-1), torch.ones(3))
    assert prune(probs, depth).shape == (3, depth + 1)


def plain_statistics(x):
    """A torch.nn batch norm called once an option, as the released code does."""
    norm = torch.nn.BatchNorm1d(x.shape[1])
    outputs = [norm(x[0, :, k].T).T for k in range(x.shape[2])]
    return torch.stack(outputs, 1)[None], norm


def test_shared_statistics_are_those_of_one_batch_norm_called_once_an_option():
    x = torch.randn(1, 3, 6, 20) * torch.arange(1, 7)[:, None]
    ours = BatchNorm(1, 3, options=6, shared_statistics=True)
    expected, norm = plain_statistics(x)
    assert torch.allclose(ours.all_options(x), expected, atol=1e-5)
    assert torch.allclose(ours.running_mean[0], norm.running_mean, atol=1e-6)
    assert torch.allclose(ours.running_var[0], norm.running_var, atol=1e-4)
    ours.eval()
    norm.eval()
    assert torch.allclose(ours.all_options(x), plain_eval(norm, x), atol=1e-5)


def plain_eval(norm, x):
    return torch.stack([norm(x[0, :, k].T).T for k in range(x.shape[2])], 1)[None]


def test_statistics_per_depth_are_each_depths_own():
    x = torch.randn(2, 3, 4, 50) * torch.arange(1, 5)[:, None] + torch.arange(4)[:, None]
    norm = BatchNorm(2, 3, options=4)
    for _ in range(200):
        norm.all_options(x)
    assert torch.allclose(norm.running_mean, x.mean(-1), atol=1e-4)
    assert torch.allclose(norm.running_var, x.var(-1), atol=1e-3)
    together = norm.eval().all_options(x)
    for k in range(4):
        assert torch.allclose(norm.option(x[:, :, k], k), together[:, :, k], atol=1e-5)


def test_a_digit_too_many_is_refused_at_once():
    with pytest.raises(PolyarchError, match="no network of more than 1000 blocks"):
        ResidualDepth(max_depth=1_000_000)
