"""A Depth in a module of one's own: its contract, the built-in depth space on the same blocks, runs, errors."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.architecture import Decision
from polyarch.core import Batch, Feed, Problem
from polyarch.data.likelihood import Classification
from polyarch.data.task import Split, TaskShape
from polyarch.distributions import exponential
from polyarch.methods import FixedDepth, VariationalDepth
from polyarch.spaces import All, Dense, ModuleSpace, PerExample, ResidualDepth, Soft, Sparse
from polyarch.streams import Streams
from polyarch.testing import check_method, check_space
from polyarch.testing.methods import check_capture
from polyarch.testing.spaces import make_supernet

VECTOR, IMAGE = TaskShape((4,), 3), TaskShape((2, 8, 8), 3)


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Mlp(nn.Module):
    """A residual MLP whose head has batch norm."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 8)
        blocks = [Residual(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())) for _ in range(4)]
        self.depth = pa.Depth("depth", blocks, nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3)))

    def forward(self, x):
        return self.depth(self.stem(x))


class First(nn.Module):
    def forward(self, x):
        return x[:, 0]


class Transformer(nn.Module):
    """An encoder over four numbers as a sequence, with a token of its own in front; dropout as usual."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8) * 0.1)
        layers = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True) for _ in range(3)]
        self.depth = pa.Depth("layers", layers, nn.Sequential(First(), nn.LayerNorm(8), nn.Linear(8, 3)))

    def forward(self, x):
        x = self.embed(x.unsqueeze(-1))
        return self.depth(torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places)


class Calm(Transformer):
    """Without dropout, so that views can be compared in training mode."""

    def __init__(self):
        super().__init__()
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0


def stages():
    """Of a ResNet: a projection among the blocks halves the image and widens it, and the head fits what follows."""

    def block(width):
        return Residual(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()))

    blocks = [block(4), nn.Sequential(nn.Conv2d(4, 6, 1, stride=2), block(6)), block(6), block(6)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    return nn.Sequential(nn.Conv2d(2, 4, 3), pa.Depth("depth", blocks, head, least=2))


def tied():
    """The whole network is a Depth; one block at all places, which the head shares its weight with."""
    block, head = nn.Linear(4, 4), nn.Linear(4, 4)
    head.weight = block.weight
    return pa.Depth("depth", [block] * 3, nn.Sequential(head, nn.Linear(4, 3)))


@pytest.mark.parametrize(("factory", "shape"), [(Mlp, VECTOR), (Calm, VECTOR), (stages, IMAGE), (tied, VECTOR)])
def test_contract(factory, shape):
    check_space(ModuleSpace(factory), shape)


@pytest.mark.parametrize(("factory", "shape"), [(Mlp, VECTOR), (stages, IMAGE), (tied, VECTOR)])
def test_all_depths_in_one_pass(factory, shape):
    """Every answer is that of its own network, each block runs once, and a pruned network has what is left."""
    space = ModuleSpace(factory)
    supernet = make_supernet(space, shape, (0, 1)).eval()
    x = torch.randn(2, 5, *shape.input, dtype=torch.float64)
    answers = supernet(x, All())
    for option in range(len(space.decisions[0])):
        architecture = space.architecture([option])
        assert torch.allclose(answers[:, option], supernet(x, Sparse((option,))), atol=1e-12)
        pruned = space.pruned(architecture)
        assert pruned.decisions[0].options == space.decisions[0].options[: option + 1]
        alone = make_supernet(pruned, shape, (0, 1)).eval()
        assert alone.state_dict().keys() <= supernet.state_dict().keys()
        assert torch.allclose(alone(x, All()), answers[:, : option + 1], atol=1e-12)  # the same first weights


def test_depths_begin_where_the_head_fits():
    space = ModuleSpace(stages)
    assert space.decisions == (Decision("depth", ("2", "3", "4")),)
    assert space.nested
    assert str(space.architecture([0])) == "depth=2"
    network = space.build(space.parse("depth=3"), IMAGE)
    assert [len(network[1].blocks), network[1].head[2].in_features] == [3, 6]
    assert space.settings() == {"factory": "test_own_depth:stages"}
    assert replace(space, max_depth=3).settings() == {"factory": "test_own_depth:stages", "max_depth": 3}


def test_outside_a_search_all_blocks_run():
    network = Mlp().eval()
    x = torch.randn(6, 4)
    expected = network.stem(x)
    for block in network.depth.blocks:
        expected = block(expected)
    assert torch.equal(network(x), network.depth.heads[0](expected))


# ---------------------------------------------------------------------------------------------------------------------
# The built-in depth space, of the same blocks.


BUILT_IN = {  # the built-in space, for vectors and for images, whose head has batch norm
    VECTOR: ResidualDepth(max_depth=4, width=6),
    IMAGE: ResidualDepth(max_depth=3, width=4, stem_kernel=3),
}


class SameBlocks(nn.Module):
    shape: TaskShape

    def __init__(self):
        super().__init__()
        space = BUILT_IN[self.shape]
        network = space.build(space.architecture([space.max_depth]), self.shape)
        self.stem = network.stem
        self.depth = pa.Depth("depth", network.blocks, network.head)

    def forward(self, x):
        return self.depth(self.stem(x))


class SameVectors(SameBlocks):
    shape = VECTOR


class SameImages(SameBlocks):
    shape = IMAGE


def own_name(name):
    """What a tensor of the built-in network is called in the module."""
    return "network." + (name if name.startswith("stem.") else "depth." + name.replace("head.", "heads.0."))


def both(factory):
    """The built-in supernet and that of the module with a Depth, of equal weights and two repeats."""
    theirs = make_supernet(BUILT_IN[factory.shape], factory.shape, (0, 1))
    ours = make_supernet(ModuleSpace(factory), factory.shape, (2, 3))
    values = dict(ours.named_parameters())
    with torch.no_grad():
        for name, value in theirs.named_parameters():
            values[own_name(name)].copy_(value)
    return theirs, ours


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("factory", [SameVectors, SameImages])
def test_the_same_blocks_give_the_built_in_space(factory, training):
    """Outputs and gradients under every view, and statistics of batch norm, to 1e-9."""
    theirs, ours = both(factory)
    assert ours.views == theirs.views
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, *factory.shape.input, dtype=torch.float64, generator=generator)
    for _ in range(3):
        theirs.train()(x * 3 + 1, All())
        ours.train()(x * 3 + 1, All())
    theirs.train(training)
    ours.train(training)
    options = len(theirs.space.decisions[0])
    per_example = torch.randint(options, (2, 7, 1), generator=generator)
    views = [All(), Dense(torch.tensor([[1], [2]])), PerExample(per_example), *(Sparse((d,)) for d in range(options))]
    for view in views:
        found, expected = ours(x, view), theirs(x, view)
        assert torch.allclose(found, expected, atol=1e-9, rtol=0), view
        slopes = dict(zip(dict(ours.named_parameters()), gradients_of(found, ours), strict=True))
        for (name, _), slope in zip(theirs.named_parameters(), gradients_of(expected, theirs), strict=True):
            assert torch.allclose(slopes[own_name(name)], slope, atol=1e-9, rtol=0), (view, name)
    for option in range(options):
        for repeat in range(2):
            pair = [s.extract(s.space.architecture([option]), repeat).double() for s in (theirs, ours)]
            assert torch.allclose(*(network(x[repeat]) for network in pair), atol=1e-6)
            states = [network.state_dict() for network in pair]
            for name, value in states[0].items():
                if not name.endswith("num_batches_tracked"):
                    own = states[1][own_name(name).removeprefix("network.").replace("heads.0.", "head.")]
                    assert torch.allclose(own, value, atol=1e-9, rtol=0), name


def gradients_of(output, supernet):
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).sin().view_as(output)
    return torch.autograd.grad((output * weights).sum(), list(supernet.parameters()), materialize_grads=True)


def problem_of(supernet, examples):
    prior = exponential(supernet.space.decisions)
    return Problem(supernet.space, supernet, Classification(3), prior, {"train": examples, "select": examples})


@pytest.mark.parametrize("factory", [SameVectors, SameImages])
def test_variational_depth_learns_the_same(factory):
    """The bound, its parts and all weights after three steps, to 1e-9."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, *factory.shape.input, dtype=torch.float64, generator=generator)
    examples = Split(x, torch.randint(3, (20,), generator=generator))
    supernets = both(factory)
    method, batch = VariationalDepth(), Batch(x.expand(2, *x.shape), examples.y.expand(2, -1))
    found = []
    for supernet in supernets:
        problem = problem_of(supernet, examples)
        weights = {name: value.detach().clone() for name, value in supernet.named_parameters()}
        state = method.init(problem, [Streams(0), Streams(1)], None)
        with torch.no_grad():
            for name, value in weights.items():
                state.weights[name].copy_(value)
        state.belief["logits"] = state.belief["logits"].detach().double().requires_grad_()
        rates = {"weights.lr": torch.tensor(0.1).double(), "arch.lr": torch.tensor(1.0).double()}
        state.optimiser = {name: value.double() for name, value in state.optimiser.items()}
        steps = [method.step(problem, state, Feed({"train": [batch]}, {}, rates)).metrics["elbo"] for _ in range(3)]
        found.append((torch.stack(steps), method.evaluate(problem, state, "select"), state))
    (steps, told, state), (own_steps, own_told, own_state) = found
    assert torch.allclose(steps, own_steps, atol=1e-9, rtol=0)
    assert told.keys() == own_told.keys()
    for name, value in told.items():
        assert torch.allclose(value, own_told[name], atol=1e-9, rtol=0), name
    assert torch.allclose(state.belief["logits"], own_state.belief["logits"], atol=1e-9, rtol=0)
    for name, value in state.weights.items():
        assert torch.allclose(value, own_state.weights[own_name(name)], atol=1e-9, rtol=0), name


# ---------------------------------------------------------------------------------------------------------------------
# Runs.


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    x = np.random.default_rng(0).normal(size=(240, 4)).astype(np.float32)
    np.savez(path, x=x, y=np.digitize(x[:, 0] * x[:, 1], (-0.3, 0.3)))
    return pa.data.load(path, select=0.25)


@pytest.mark.parametrize(("factory", "method"), [(Mlp, VariationalDepth), (Transformer, VariationalDepth)])
def test_methods_on_an_own_depth(factory, method, task, tmp_path):
    """Resumes bit-equally, repeats, runs dry."""
    check_method(method(epochs=2, batch_size=48), ModuleSpace(factory), task, tmp_path, ranks=False)


def test_a_run(task, tmp_path):
    """The network, the pruned mixture and the whole one, read again from disk; and a baseline of one depth."""
    space = ModuleSpace(Mlp)
    method = VariationalDepth(epochs=3, batch_size=48)
    run = pa.search(space, task, method, out=tmp_path / "run", compute=pa.Compute("cpu"), select="95%")
    run = pa.open_run(tmp_path / "run")
    x = task.test.x
    middle = space.parse("depth=2")
    alone = torch.stack([run.model(space.architecture([d]))(x) for d in range(5)])
    whole, pruned = run.ensemble(space.parse("depth=4")), run.ensemble(middle)
    assert torch.allclose(whole.members(x), alone, atol=1e-6)
    assert torch.allclose(pruned.members(x), alone[:3], atol=1e-6)
    probs = run.distribution.probs()["depth"]
    assert torch.allclose(pruned.weights, torch.cat([probs[:2], probs[2:].sum(0, keepdim=True)]))
    assert sum(p.numel() for p in pruned.parameters()) < sum(p.numel() for p in whole.parameters())
    assert len(run.model(middle)[1].depth.blocks) == 2
    assert {"test", "test_ensemble", "test_unpruned"} <= run.result["metrics"].keys()
    assert run.result["cost"]["largest"]["parameters"] == sum(p.numel() for p in Mlp().parameters())

    fixed = FixedDepth(depth=1, epochs=1, batch_size=48)
    baseline = pa.search(space, task, fixed, out=tmp_path / "fixed", compute=pa.Compute("cpu"))
    assert baseline.space.max_depth == 1
    assert len(baseline.model()[1].depth.blocks) == 1
    assert not any(".blocks.1." in name for name in baseline.supernet().state_dict())


PRETRAINED = [Residual(nn.Linear(4, 4)) for _ in range(3)]


def pretrained():
    """Blocks that were trained before, the first of them frozen, under a new head; in the folder of the test."""
    blocks = nn.ModuleList([Residual(nn.Linear(4, 4)) for _ in range(3)])
    blocks.load_state_dict(torch.load("blocks.pt", weights_only=True))
    blocks[0].requires_grad_(False)
    return pa.Depth("depth", blocks, nn.Linear(4, 3))


def copied():
    return pa.Depth("depth", copy.deepcopy(PRETRAINED), nn.Linear(4, 3))


def sharing():
    return pa.Depth("depth", PRETRAINED, nn.Linear(4, 3))


@pytest.mark.parametrize("factory", [pretrained, copied])
def test_pretrained_blocks_are_where_a_search_begins(factory, task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(nn.ModuleList(PRETRAINED).state_dict(), "blocks.pt")
    space = ModuleSpace(factory)
    supernet = make_supernet(space, VECTOR, (0, 1))
    for repeat in range(2):
        for k, block in enumerate(PRETRAINED):
            assert torch.equal(supernet.network.blocks[k].inner.weight[repeat], block.inner.weight.double())
    assert not torch.equal(supernet.network.heads[0].weight[0], supernet.network.heads[0].weight[1])

    method = VariationalDepth(epochs=1, batch_size=48)
    if factory is pretrained:
        check_capture(method, space, task)
    run = pa.search(space, task, method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    trained = run.supernet().network.blocks
    assert torch.equal(trained[0].inner.weight[0], PRETRAINED[0].inner.weight) == (factory is pretrained)  # frozen
    assert not torch.equal(trained[1].inner.weight[0], PRETRAINED[1].inner.weight)


# ---------------------------------------------------------------------------------------------------------------------
# What cannot be.


def no_blocks_list():
    return pa.Depth("depth", nn.Linear(4, 4), nn.Linear(4, 3))


def not_modules():
    return pa.Depth("depth", [nn.Linear(4, 4), torch.tanh], nn.Linear(4, 3))


def no_name():
    return pa.Depth("my depth", [nn.Linear(4, 4)], nn.Linear(4, 3))


def too_late():
    return pa.Depth("depth", [nn.Linear(4, 4)], nn.Linear(4, 3), least=2)


def misfit():
    return pa.Depth("depth", [nn.Linear(4, 5), nn.Linear(5, 5)], nn.Linear(5, 3))


def broken():
    return pa.Depth("depth", [nn.Linear(4, 4), nn.Linear(5, 4)], nn.Linear(4, 3))


def in_place():
    return pa.Depth("depth", [nn.ReLU(inplace=True)], nn.Linear(4, 3))


def several():
    return pa.Depth("depth", [nn.GRU(4, 4)], nn.Linear(4, 3))


def not_the_end():
    return nn.Sequential(pa.Depth("depth", [nn.Linear(4, 4)], nn.Linear(4, 3)), nn.Linear(3, 3))


def beside_a_choice():
    return nn.Sequential(pa.Choice("act", {"a": nn.ReLU(), "b": nn.Tanh()}), misfit())


def closed():
    return nn.Linear(4, 3)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (no_blocks_list, "Depth 'depth': blocks are Linear; give a list of modules"),
        (not_modules, "Depth 'depth': block 2 is builtin_function_or_method, not an nn.Module; wrap it in one"),
        (no_name, "Depth 'my depth': 'my depth' cannot be a name; use text without spaces"),
        (too_late, "Depth 'depth': least is 2; with 1 blocks, 0 to 1 fit"),
        (misfit, "Depth 'depth': its head does not run after 0 of 2 blocks, on (2, 4) (keep the shape, or begin where "
                 "it fits: least=1 or more): RuntimeError: mat1 and mat2"),
        (broken, "Depth 'depth': block 2 of 2 does not run on its input: RuntimeError: mat1 and mat2"),
        (in_place, "Depth 'depth': a block or head changes its input in place"),
        (several, "Depth 'depth': a block or head gives tuple, not one tensor"),
        (not_the_end, "Sequential must end in its Depth: call it once, return what it gives"),
        (beside_a_choice, "Sequential has a Depth and another open choice; leave one Depth, or Choices"),
        (sharing, "test_own_depth:sharing gives two modules that share the weight blocks.0.inner.weight; make new ones "
                  "at every call, such as by copy.deepcopy"),
        (closed, "Linear has no open choice; put a polyarch.Choice in it, or end in a polyarch.Depth"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_training(task, tmp_path, factory, message):
    with pytest.raises(PolyarchError) as caught:
        pa.search(ModuleSpace(factory), task, VariationalDepth(epochs=1), out=tmp_path / "run")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_blocks_left_out():
    assert replace(ModuleSpace(Mlp), max_depth=2).decisions == (Decision("depth", ("0", "1", "2")),)
    with pytest.raises(PolyarchError, match="max_depth is 9; of Depth 'depth' it can be 0 to 4"):
        _ = ModuleSpace(Mlp, max_depth=9).decisions
    with pytest.raises(PolyarchError, match="it can be 2 to 4"):
        _ = ModuleSpace(stages, max_depth=1).decisions
    with pytest.raises(PolyarchError, match="max_depth is for a module with a Depth"):
        _ = ModuleSpace(closed, max_depth=1).decisions


def test_soft_is_refused_with_the_way_out():
    supernet = make_supernet(ModuleSpace(Mlp), VECTOR, (0,))
    with pytest.raises(PolyarchError, match="All"):
        supernet(torch.zeros(1, 4, 4, dtype=torch.float64), Soft((torch.ones(1, 5),)))
