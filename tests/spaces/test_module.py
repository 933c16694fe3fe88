"""A module of one's own as a space: its contract, first weights, errors, cost, and runs of it."""

import importlib
import itertools
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import polyarch as pa
from polyarch import PolyarchError
from polyarch.architecture import Decision
from polyarch.data.task import TaskShape
from polyarch.distributions import Categorical
from polyarch.runs.examples import EXAMPLES
from polyarch.runs.run import STATISTICS
from polyarch.spaces import Cost, ModuleSpace, NasBench201, Sparse, expected_cost
from polyarch.spaces.choice import ChoicePoint
from polyarch.streams import Streams
from polyarch.testing import check_method, check_space
from polyarch.testing.spaces import make_supernet
from polyarch.training.calibration import calibration_batches, recalibrate

SHAPE = TaskShape((4,), 3)
QUICK = pa.methods.Parsec(epochs=1, samples=2, batch_size=32)


class Vectors(nn.Module):
    """Choices inside options, a name at two places, an object at three, batch norm."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 5)
        self.activation = pa.Choice("activation", {"tanh": nn.Tanh(), "silu": nn.SiLU(), "slope": nn.PReLU()})
        self.blocks = nn.ModuleList([self.block(), self.block()])
        self.sides = nn.ModuleList([self.activation, self.activation])
        self.norm = pa.Choice("norm", {"none": nn.Identity(), "batch": nn.BatchNorm1d(5)})
        self.head = pa.Choice("head", {"bias": nn.Linear(5, 3), "no-bias": nn.Linear(5, 3, bias=False)})

    def block(self):
        inner = pa.Choice("inner", {"relu": nn.ReLU(), "linear": nn.Linear(3, 3), "norm": nn.BatchNorm1d(3)})
        return pa.Choice(
            "block",
            {
                "linear": nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)),
                "deep": nn.Sequential(nn.Linear(5, 3), inner, nn.Linear(3, 5)),
                "skip": nn.Identity(),
            },
        )

    def forward(self, x):
        x = self.activation(self.stem(x))
        for block, side in zip(self.blocks, self.sides, strict=True):
            x = x + side(block(x))
        return self.head(self.norm(x))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.layers = nn.Sequential(self.layer("first", 4, 4), nn.ReLU(), self.layer("second", 4, 6), nn.ReLU())
        self.pool = pa.Choice("pool", {"mean": nn.AdaptiveAvgPool2d(1), "max": nn.AdaptiveMaxPool2d(1)})
        self.head = nn.Linear(6, 3)

    def layer(self, name, inputs, outputs):
        def convolution(kernel, **settings):
            conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, stride=2, **settings)
            return nn.Sequential(conv, nn.BatchNorm2d(outputs))

        pooled = nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.Conv2d(inputs, outputs, 1))
        options = {"1x1": convolution(1), "3x3": convolution(3), "grouped": convolution(3, groups=2), "pool": pooled}
        return pa.Choice(name, options)

    def forward(self, x):
        return self.head(self.pool(self.layers(self.stem(x))).flatten(1))


class Recurrent(nn.Module):
    """[batch, channels, length] -> the same."""

    def __init__(self, channels):
        super().__init__()
        self.cell = nn.GRU(channels, channels, batch_first=True)

    def forward(self, x):
        return self.cell(x.transpose(1, 2))[0].transpose(1, 2)


class Sequences(nn.Module):
    """On [channels, length]; regression."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(3, 4, 3, padding=1),
            pa.Choice("mix", {"conv": nn.Conv1d(4, 4, 5, padding=2), "gru": Recurrent(4), "skip": nn.Identity()}),
            pa.Choice("norm", {"batch": nn.BatchNorm1d(4), "layer": nn.GroupNorm(1, 4), "none": nn.Identity()}),
            pa.Choice("pool", {"mean": nn.AdaptiveAvgPool1d(1), "max": nn.AdaptiveMaxPool1d(1)}),
        )
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.layers(x).squeeze(-1))


def whole():
    """The whole network is a choice."""
    inner = pa.Choice("inner", {"tanh": nn.Tanh(), "linear": nn.Linear(5, 5)})
    deep = nn.Sequential(nn.Linear(4, 5), inner, nn.BatchNorm1d(5), nn.Linear(5, 3))
    return pa.Choice("whole", {"flat": nn.Linear(4, 3), "deep": deep})


class Tied(nn.Module):
    """Two layers with one weight, options of one choice that are one module, a named argument."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        shared = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.layers = nn.ModuleList([pa.Choice("layer", {"shared": shared, "tanh": nn.Tanh()}) for _ in range(2)])
        self.product = pa.Choice("product", {"full": nn.Bilinear(4, 4, 3), "plain": nn.Bilinear(4, 4, 3, bias=False)})

    def forward(self, x):
        x = self.second(self.first(x).relu())
        return self.product(self.layers[0](x), input2=self.layers[1](x))


class Unusual(nn.Module):
    """Frozen weights, a drawn buffer that is not saved, a choice at two places, and dropout."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("projection", torch.randn(4, 4), persistent=False)
        layer = pa.Choice("layer", {"linear": nn.Linear(4, 4), "norm": nn.BatchNorm1d(4)})
        self.layers = nn.ModuleList([layer, layer])
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.dropout(self.frozen(x) @ self.projection)
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(x)


class Reading(nn.Module):
    """Reads values back while it is made and run, and makes tensors while it runs."""

    def __init__(self):
        super().__init__()
        self.scales = [value.item() for value in torch.linspace(1, 2, 2)]
        self.offset = torch.arange(4.0)
        self.layer = pa.Choice("layer", {"linear": nn.Linear(4, 3), "plain": nn.Linear(4, 3, bias=False)})

    def forward(self, x):
        x = x + self.offset + torch.ones(4)
        scale = self.scales[0] if x.sum().item() > 0 else self.scales[1]
        return scale * self.layer(x)


# ---------------------------------------------------------------------------------------------------------------------
# The contract of a space.


@pytest.mark.parametrize(
    ("factory", "shape", "architectures"),
    [
        (Vectors, SHAPE, 100),
        (Images, TaskShape((2, 6, 5), 3), 50),  # of 32
        (Sequences, TaskShape((3, 7), 1), 50),  # of 18
        (whole, SHAPE, 12),  # of 4
        (Tied, SHAPE, 12),
    ],
)
def test_contract(factory, shape, architectures):
    check_space(ModuleSpace(factory), shape, architectures=architectures)


def test_decisions_are_the_names_in_the_order_of_the_module():
    space = ModuleSpace(Vectors)
    assert space.decisions == (
        Decision("activation", ("tanh", "silu", "slope")),
        Decision("block", ("linear", "deep", "skip")),
        Decision("inner", ("relu", "linear", "norm")),
        Decision("norm", ("none", "batch")),
        Decision("head", ("bias", "no-bias")),
    )
    assert space.count() == 108
    text = "activation=slope,block=deep,inner=norm,norm=none,head=no-bias"
    assert space.parse(text).choices == (2, 1, 2, 0, 1)
    assert str(space.parse(" head=no-bias, norm=none,activation=slope ,inner=norm,block=deep")) == text
    assert space.settings() == {"factory": "test_module:Vectors"}
    assert ModuleSpace("test_module:Vectors").decisions == space.decisions


def test_a_network_has_the_weights_of_its_options_by_name_and_no_others():
    space = ModuleSpace(Vectors)
    supernet = make_supernet(space, SHAPE, seeds=(0, 1))
    architecture = space.parse("activation=slope,block=deep,inner=linear,norm=batch,head=no-bias")
    network = supernet.extract(architecture, repeat=1)
    assert not any(isinstance(module, ChoicePoint) for module in network.modules())
    sources = {  # name in the network -> name in the supernet
        "stem.weight": "stem.weight",
        "stem.bias": "stem.bias",
        "activation.weight": "activation.options.2.weight",
        "norm.weight": "norm.options.1.weight",
        "norm.bias": "norm.options.1.bias",
        "head.weight": "head.options.1.weight",
    }
    for block, name in itertools.product("01", ("weight", "bias")):
        sources[f"blocks.{block}.0.{name}"] = f"blocks.{block}.options.1.0.{name}"
        sources[f"blocks.{block}.1.{name}"] = f"blocks.{block}.options.1.1.options.1.{name}"
        sources[f"blocks.{block}.2.{name}"] = f"blocks.{block}.options.1.2.{name}"
    assert dict(network.named_parameters()).keys() == sources.keys()
    for name, source in sources.items():
        assert torch.equal(network.get_parameter(name), supernet.network.get_parameter(source)[1])
    assert not torch.equal(network.stem.weight, supernet.network.stem.weight[0])
    assert network.activation is network.sides[0] is network.sides[1]
    with torch.no_grad():  # a copy: the supernet does not change with it
        network.stem.weight.zero_()
    assert supernet.network.stem.weight[1].abs().sum() > 0


# ---------------------------------------------------------------------------------------------------------------------
# First weights and chance.


def own_start():
    """A module with an initialisation of its own."""
    network = nn.Sequential(nn.Linear(4, 4), pa.Choice("layer", {"a": nn.Linear(4, 3), "b": nn.Linear(4, 3)}))
    nn.init.constant_(network[0].weight, 0.25)
    nn.init.orthogonal_(network[0].bias.data.view(2, 2))
    nn.init.normal_(network[1].options[1].weight, mean=7, std=0.1)
    network.register_buffer("noise", torch.randn(3))
    return network


def test_first_weights_are_the_users_own_from_the_seed_of_the_repeat():
    space = ModuleSpace(own_start)
    supernet = space.supernet(SHAPE, 3)
    supernet.reset_parameters([torch.Generator().manual_seed(seed) for seed in (5, 6, 5)])
    for repeat, seed in enumerate((5, 6, 5)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            wanted = own_start().state_dict()
        for name, value in supernet.network.state_dict().items():
            assert torch.equal(value[repeat], wanted[name]), name
    single = space.supernet(SHAPE)
    single.reset_parameters([torch.Generator().manual_seed(6)])
    for name, value in single.state_dict().items():
        assert torch.equal(value[0], supernet.state_dict()[name][1]), name
    assert torch.equal(supernet.network[0].weight, torch.full((3, 4, 4), 0.25))
    assert supernet.network[1].options[1].weight.mean().item() == pytest.approx(7, abs=0.1)


def test_a_generator_goes_on_from_reset_to_reset():
    generator = torch.Generator().manual_seed(0)
    supernet = ModuleSpace(own_start).supernet(SHAPE)
    supernet.reset_parameters([generator])
    first = supernet.network.noise.clone()
    supernet.reset_parameters([generator])
    assert not torch.equal(first, supernet.network.noise)


def test_torchs_chance_is_left_alone():
    space = ModuleSpace(Unusual)
    chance = torch.get_rng_state()
    architecture = space.parse("layer=norm")
    space.check(SHAPE)
    supernet = make_supernet(space, SHAPE, seeds=(0, 1))
    supernet.extract(architecture)
    space.cost(architecture, SHAPE)
    space.cost_table(SHAPE)
    with torch.device("meta"):
        space.supernet(SHAPE)
    assert torch.equal(chance, torch.get_rng_state())


def test_build_draws_from_torchs_chance():
    space = ModuleSpace(own_start)
    built = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        built.append(space.build(space.architecture([1]), SHAPE).state_dict())
    assert torch.equal(built[0]["1.weight"], built[1]["1.weight"])
    assert not torch.equal(built[0]["1.weight"], built[2]["1.weight"])


def test_frozen_weights_are_no_parameters_to_train_and_no_buffer_is_lost():
    space = ModuleSpace(Unusual)
    supernet = make_supernet(space, SHAPE, seeds=(0, 1))
    assert not [name for name, _ in supernet.named_parameters() if "frozen" in name]
    network = supernet.extract(space.parse("layer=norm"), repeat=1)
    assert [name for name, p in network.named_parameters() if not p.requires_grad] == ["frozen.weight", "frozen.bias"]
    assert torch.equal(network.frozen.weight, supernet.network.frozen.weight[1])
    assert torch.equal(network.projection, supernet.network.projection[1])
    assert not torch.equal(supernet.network.projection[0], supernet.network.projection[1])
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    assert torch.allclose(network(x[1]), supernet.eval()(x, Sparse((1,)))[1])


# ---------------------------------------------------------------------------------------------------------------------
# What is wrong, found before training.


def disagreeing():
    return nn.Sequential(pa.Choice("width", {"narrow": nn.Linear(4, 3), "wide": nn.Linear(4, 5)}), nn.Tanh())


def disagreeing_inside():
    inner = pa.Choice("inner", {"keep": nn.Identity(), "flip": nn.Unflatten(1, (1, 3))})
    return pa.Choice("outer", {"flat": nn.Linear(4, 3), "deep": nn.Sequential(nn.Linear(4, 3), inner)})


def broadcasting():
    return pa.Choice("width", {"all": nn.Linear(4, 3), "one": nn.Linear(4, 1)})


def raising():
    return pa.Choice("layer", {"fits": nn.Linear(4, 3), "wide": nn.Linear(9, 3)})


def raising_first():
    return pa.Choice("layer", {"wide": nn.Linear(9, 3), "fits": nn.Linear(4, 3)})


def several_answers():
    return nn.Sequential(pa.Choice("cell", {"gru": nn.GRU(4, 3), "lstm": nn.LSTM(4, 3)}))


def in_place():
    return nn.Sequential(nn.Linear(4, 3), pa.Choice("act", {"tanh": nn.Tanh(), "relu": nn.ReLU(inplace=True)}))


def two_meanings():
    one = pa.Choice("act", {"tanh": nn.Tanh(), "relu": nn.ReLU()})
    return nn.Sequential(one, nn.Linear(4, 3), pa.Choice("act", {"relu": nn.ReLU(), "tanh": nn.Tanh()}))


def closed():
    return nn.Linear(4, 3)


def number():
    return 3


def nothing():
    whole()


def needy(width):
    return nn.Linear(width, 3)


def failing():
    raise ValueError("first line\nsecond line")


def lazy():
    return nn.Sequential(nn.LazyLinear(4), pa.Choice("layer", {"a": nn.Linear(4, 3)}))


ALWAYS = pa.Choice("layer", {"a": nn.Linear(4, 3)})


def same_again():
    return ALWAYS


def wrong_outputs():
    return pa.Choice("layer", {"a": nn.Linear(4, 5), "b": nn.Linear(4, 5)})


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = pa.Choice("layer", {"a": nn.Linear(4, 3)})

    def forward(self, x):
        return self.layer(x), x


def for_images():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), pa.Choice("layer", {"a": nn.Linear(8, 3)}))


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (disagreeing, "Choice 'width': its options answer two inputs in different shapes (narrow (2, 3), wide (2, 5)); "
                      "make them agree"),
        (disagreeing_inside, "Choice 'inner': its options answer two inputs in different shapes (keep (2, 3), flip (2"),
        (broadcasting, "Choice 'width': its options answer"),
        (raising, "Choice 'layer': option 'wide' does not run on its input: RuntimeError: mat1 and mat2"),
        (raising_first, "Choice 'layer': option 'wide' does not run on its input: RuntimeError: mat1 and mat2"),
        (several_answers, "Choice 'cell': option 'gru' answers with tuple; an option gives one tensor"),
        (in_place, "Choice 'act': option 'relu' changes its input in place, which other options take too; "
                   "use inplace=False"),
        (two_meanings, "two Choices are called 'act' and have different options"),
        (closed, "Linear has no open choice; put a polyarch.Choice in it"),
        (number, "test_module:number gives int, not an nn.Module; return the module"),
        (nothing, "test_module:nothing gives NoneType, not an nn.Module"),
        (needy, "test_module:needy makes no module: TypeError: needy() missing 1 required positional argument"),
        (failing, "test_module:failing makes no module: ValueError: first line; it is called without arguments"),
        ("test_module:QUICK", "test_module:QUICK makes no module: TypeError: 'Parsec' object is not callable"),
        (lazy, "test_module:lazy has lazy layers, whose sizes are still open; write their sizes down"),
        (same_again, "test_module:same_again gives the same module twice; make a new one at every call"),
        (wrong_outputs, "Choice answers two inputs with (2, 5); this data needs (2, 3): [batch, 3]"),
        (Pair, "Pair answers two inputs with tuple; this data needs (2, 3)"),
        (for_images, "Sequential does not run on inputs of shape (4,): RuntimeError: "),
        ("test_module:NotThere", "module 'test_module' has no 'NotThere'"),
        ("test_module", "module 'test_module' has no ''; write spaces as package.module:ClassName"),
        ("no_such_module:make", "cannot import space 'no_such_module:make'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_training(tmp_path, factory, message):
    task = pa.data.load((np.eye(4)[np.arange(40) % 4], np.arange(40) % 3), select=0.3)
    with pytest.raises(PolyarchError) as caught:
        pa.search(ModuleSpace(factory), task, QUICK, out=tmp_path / "run")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "says nothing of whole, inner; write NAME=OPTION,..."),
        ("flat", "says nothing of whole, inner"),
        ("whole=flat", "architecture 'whole=flat' says nothing of inner"),
        ("whole=flat,whole=deep", "is not of the form NAME=OPTION,..., with each name once"),
        ("whole=flat,junk", "is not of the form NAME=OPTION,..., with each name once"),
        ("whole=flat,inner=", "unknown option of inner ''; known: linear, tanh"),
        ("whole=flat,inner=tan", "unknown option of inner 'tan'; did you mean 'tanh'?"),
        ("whole=deep,iner=tanh", "unknown decision 'iner'; did you mean 'inner'?"),
        ("depth=3", "unknown decision 'depth'"),
        (NasBench201().format([0] * 6), "says nothing of whole, inner"),
    ],
)
def test_texts_that_are_no_architecture(text, message):
    with pytest.raises(PolyarchError) as caught:
        ModuleSpace(whole).parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_name_of_the_running_script(monkeypatch):
    def reference(main):
        monkeypatch.setitem(sys.modules, "__main__", main)
        main.make = whole
        return ModuleSpace(main_make).settings()["factory"]

    def main_make():
        return whole()

    main_make.__module__, main_make.__qualname__ = "__main__", "make"
    script, package, notebook = (ModuleType("__main__") for _ in range(3))
    script.__file__ = package.__file__ = "/somewhere/my_script.py"
    package.__spec__ = importlib.machinery.ModuleSpec("models.my_script", None)
    assert reference(script) == "my_script:make"
    assert ModuleSpace("my_script:make").make is whole  # not imported, which would run the script again
    assert reference(package) == "models.my_script:make"
    assert reference(notebook) == "__main__:make"
    assert ModuleSpace("__main__:make").make is whole


# ---------------------------------------------------------------------------------------------------------------------
# Cost.


def additive():
    """No choice inside another: costs add up. A name at two places, and one object at two."""

    def layer():
        deep = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4, bias=False))
        return pa.Choice("layer", {"skip": nn.Identity(), "linear": nn.Linear(4, 4), "deep": deep})

    twice = pa.Choice("twice", {"norm": nn.BatchNorm1d(4), "linear": nn.Linear(4, 4)})
    head = pa.Choice("head", {"bias": nn.Linear(4, 3), "plain": nn.Linear(4, 3, bias=False)})
    return nn.Sequential(nn.Linear(4, 4), layer(), twice, nn.ReLU(), layer(), twice, head)


def flat_whole():
    deep = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    return pa.Choice("whole", {"flat": nn.Linear(4, 3), "deep": deep})


def sharing():
    layer = nn.Linear(4, 4)
    choices = [pa.Choice(name, {"linear": layer, "skip": nn.Identity()}) for name in ("first", "second")]
    return nn.Sequential(*choices, nn.Linear(4, 3))


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.forgotten = pa.Choice("forgotten", {"linear": nn.Linear(4, 4), "skip": nn.Identity()})
        self.head = pa.Choice("head", {"bias": nn.Linear(4, 3), "no-bias": nn.Linear(4, 3, bias=False)})

    def forward(self, x):
        return self.head(x)


def test_a_choice_that_is_never_called_is_said(caplog):
    ModuleSpace(Idle).check(SHAPE)
    assert "Idle never calls its Choice 'forgotten'" in caplog.text
    caplog.clear()
    ModuleSpace(Vectors).check(SHAPE)  # where one is called by an option of another
    assert caplog.text == ""


def test_cost_by_hand():
    space = ModuleSpace(additive)
    table = space.cost_table(SHAPE)
    assert table.base == Cost(20, 20)  # 4 x 4 and a bias of 4
    assert table.options == {
        "layer": [Cost(0, 0), Cost(40, 40), Cost(108, 108)],  # two places; 4 x 6 + 6 + 6 x 4
        "twice": [Cost(8, 0), Cost(20, 40)],  # one module that runs twice
        "head": [Cost(15, 15), Cost(12, 12)],
    }
    assert space.cost(space.parse("layer=deep,twice=linear,head=plain"), SHAPE) == Cost(160, 180)
    shape = TaskShape((2, 6, 5), 3)
    conv = ModuleSpace(Images).cost(ModuleSpace(Images).parse("first=1x1,second=grouped,pool=max"), shape)
    stem, first = (2 * 9 + 1) * 4, (4 + 1) * 4
    second, head = (2 * 9 + 1) * 6, (6 + 1) * 3
    assert conv == Cost(stem + first + 8 + second + 12 + head, stem * 30 + first * 9 + second * 4 + head)


@pytest.mark.parametrize("factory", [additive, flat_whole])
def test_expected_cost_is_the_mean_over_all_networks_and_has_gradients(factory):
    space = ModuleSpace(factory)
    sizes = [len(d) for d in space.decisions]
    logits = torch.randn(len(sizes), max(sizes), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row, size in zip(logits, sizes, strict=True):
        row[size:] = -torch.inf
    logits.requires_grad_()
    belief = Categorical(space.decisions, logits)
    every = torch.tensor(list(itertools.product(*map(range, sizes))))
    assert len(every) == space.count()
    costs = [space.cost(architecture, SHAPE) for architecture in space.decode(every)]
    chances = belief.log_prob(every).exp()
    found = expected_cost(space, belief, SHAPE)
    for part in ("parameters", "macs"):
        mean = chances @ torch.tensor([float(getattr(cost, part)) for cost in costs], dtype=torch.float64)
        assert torch.allclose(getattr(found, part), mean)
        [slope] = torch.autograd.grad(getattr(found, part), logits, retain_graph=True)
        [wanted] = torch.autograd.grad(mean, logits, retain_graph=True)
        assert torch.allclose(slope, wanted)


@pytest.mark.parametrize("factory", [Vectors, whole, sharing])
def test_costs_that_do_not_add_up(factory):
    space = ModuleSpace(factory)
    with pytest.raises(PolyarchError, match="inside an option of another, or two options share weights") as caught:
        space.cost_table(SHAPE)
    assert "\n" not in str(caught.value)
    assert space.cost(space.architecture([0] * len(space.decisions)), SHAPE).parameters > 0


# ---------------------------------------------------------------------------------------------------------------------
# Runs.

OWN = """
import polyarch as pa
from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.layer = pa.Choice(
            "layer",
            {
                "linear": nn.Linear(6, 6),
                "deep": nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 6)),
                "skip": nn.Identity(),
            },
        )
        self.act = pa.Choice("act", {"relu": nn.ReLU(), "tanh": nn.Tanh()})
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.act(self.layer(self.act(self.norm(self.stem(x))))))
"""


def write_data(folder):
    x = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32) * 3 + 5
    np.savez(folder / "tiny.npz", x=x, y=np.digitize(x[:, 0] * x[:, 1], (15, 35)))


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A finished run of a module in a file on Python's path, on data in a file."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_network.py").write_text(OWN)
    write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        task = pa.data.load(folder / "tiny.npz", select=0.25)
        network = importlib.import_module("own_network").Network
        run = pa.search(ModuleSpace(network), task, QUICK, out=folder / "run", seed=3, compute=pa.Compute("cpu"))
        yield SimpleNamespace(run=run, task=task)
        del sys.modules["own_network"]


def other_than(run):
    """An architecture that was not selected, with a batch norm of its own."""
    text = "layer=deep,act=tanh"
    return run.space.parse(text if str(run.architecture) != text else "layer=deep,act=relu")


def parameters_of(architecture):
    layer = {"linear": ("layer",), "deep": ("layer.0", "layer.2", "layer.3"), "skip": ()}
    parts = ("stem", "norm", *layer[str(architecture).split(",")[0].partition("=")[2]], "head")
    return {f"1.{part}.{name}" for part in parts for name in ("weight", "bias")}  # 0 standardises


def test_the_model_of_a_run_has_the_chosen_modules_alone(own):
    for architecture in (own.run.architecture, other_than(own.run)):
        model = own.run.model(architecture)
        assert set(dict(model.named_parameters())) == parameters_of(architecture)
        assert not any(isinstance(module, ChoicePoint) for module in model.modules())
        assert not model.training
        assert model(own.task.test.x).shape == (len(own.task.test), 3)


def test_the_model_has_statistics_of_its_own(own):
    run, task = own.run, own.task
    batches = [run.preprocess()(batch) for batch in calibration_batches(task.train.x, seed=run.seed)]
    shared = run.supernet()
    for architecture in (run.architecture, other_than(run)):
        network = run.model(architecture)[1]
        seen = [network.stem(batch) for batch in batches]
        mean = torch.stack([values.mean(0) for values in seen]).mean(0)
        variance = torch.stack([values.var(0) for values in seen]).mean(0)
        assert torch.allclose(network.norm.running_mean, mean, atol=1e-5)
        assert torch.allclose(network.norm.running_var, variance, atol=1e-5)
        old = shared.member_state(architecture, 0)
        assert not torch.allclose(old["norm.running_mean"], mean, atol=1e-3)
        by_hand = shared.extract(architecture)
        recalibrate(by_hand, batches)
        for name, value in by_hand.state_dict().items():
            assert torch.allclose(network.state_dict()[name].double(), value.double(), atol=1e-5), name


def test_a_reopened_run_is_the_same(own):
    run = pa.open_run(own.run.folder)
    assert run.config.space["settings"] == {"factory": "own_network:Network"}
    assert run.architecture == own.run.architecture
    x = own.task.test.x
    for architecture in (None, other_than(run)):
        assert torch.equal(run.model(architecture)(x), own.run.model(architecture)(x))


def test_the_mixture_of_a_run(own):
    run, x = own.run, own.task.test.x
    every = torch.tensor(list(itertools.product(range(3), range(2))))
    ensemble = run.ensemble()
    assert torch.allclose(ensemble.weights, run.distribution.log_prob(every).exp())
    assert ensemble.weights.sum().item() == pytest.approx(1)
    alone = torch.stack([run.model(architecture)(x) for architecture in run.space.decode(every)])
    assert torch.allclose(ensemble.members(x), alone, atol=1e-6)
    mixed = (alone.softmax(-1) * ensemble.weights[:, None, None]).sum(0)
    assert torch.allclose(ensemble(x).log_probs.exp(), mixed, atol=1e-6)

    sampled = run.ensemble(members=4).weights
    assert sampled.sum().item() == pytest.approx(1)
    assert torch.allclose(sampled * 4, (sampled * 4).round())


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_data_in_memory(own, tmp_path, kind):
    x, y = own.task.train.x, own.task.train.y
    task = pa.data.load((x, y) if kind == "arrays" else TensorDataset(x, y), select=0.25)
    run = pa.search(own.run.space, task, QUICK, out=tmp_path / "run", compute=pa.Compute("cpu"))
    other = other_than(run)
    assert run.model()(x).isfinite().all()
    assert run.model(other)(x).isfinite().all()
    assert len(run.ensemble().weights) == 6

    reopened = pa.open_run(tmp_path / "run")  # has batch-norm statistics of the selected network and of all members
    assert torch.equal(reopened.model()(x), run.model()(x))
    assert torch.equal(reopened.model(other)(x), run.model(other)(x))
    (tmp_path / "run" / STATISTICS).unlink()
    (tmp_path / "run" / EXAMPLES).unlink()
    with pytest.raises(PolyarchError, match="came from memory"):
        pa.open_run(tmp_path / "run").model(other)


def test_regression(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 3, 1, 7, generator=generator)
    task = pa.data.load((x, x.mean((1, 2, 3))), kind="regression", select=0.3)
    run = pa.search(ModuleSpace(on_rows), task, QUICK, out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert run.ensemble().output(task.test.x).shape == (len(task.test), 1)
    assert run.result["metrics"]["test"]["rmse"] > 0


def on_rows():
    return nn.Sequential(nn.Flatten(2), Sequences())


def test_a_module_that_has_changed_is_refused(tmp_path, monkeypatch):
    def become(source):
        (tmp_path / "changing.py").write_text(source)
        importlib.invalidate_caches()
        sys.modules.pop("changing", None)

    def refused(message, allow_changed=False):
        with pytest.raises(PolyarchError, match=message) as caught:
            pa.open_run(tmp_path / "run", allow_changed=allow_changed).model()
        assert "\n" not in str(caught.value)

    monkeypatch.syspath_prepend(tmp_path)
    become(OWN)
    write_data(tmp_path)
    task = pa.data.load(tmp_path / "tiny.npz", select=0.25)
    pa.search(ModuleSpace("changing:Network"), task, QUICK, out=tmp_path / "run", compute=pa.Compute("cpu"))
    become(OWN.replace('"tanh": nn.Tanh()', '"silu": nn.SiLU()'))
    refused("the code that this run was made with has changed since, in changing")
    changed = "no longer has the decisions that this run was made with; use the version of its code that wrote the run"
    refused(changed, allow_changed=True)
    become(OWN.replace("class Network", "class Renamed"))
    refused("module 'changing' has no 'Network'")
    become(OWN.replace("class Network", "class Network(nn.Module:"))
    refused("cannot import space 'changing:Network': SyntaxError")
    become(OWN)
    assert pa.open_run(tmp_path / "run").model()(task.test.x).isfinite().all()
    sys.modules.pop("changing")


def test_a_method_on_an_unusual_module(tmp_path):
    """Resumes, repeats and runs dry; what is frozen stays as it was drawn."""
    write_data(tmp_path)
    task = pa.data.load(tmp_path / "tiny.npz", select=0.25)
    space = ModuleSpace(Unusual)
    check_method(pa.methods.Parsec(epochs=2, samples=2, batch_size=64), space, task, tmp_path, ranks=False)

    run = pa.search(space, task, QUICK, out=tmp_path / "unusual", seed=2, compute=pa.Compute("cpu"))
    fresh = space.supernet(SHAPE)
    fresh.reset_parameters([Streams(2)["init"]])
    model = pa.open_run(tmp_path / "unusual").model()
    for name in ("frozen.weight", "frozen.bias", "projection"):
        assert torch.equal(model[1].state_dict()[name], fresh.network.state_dict()[name][0]), name
    assert not torch.equal(model[1].head.weight, fresh.network.head.weight[0])
    assert torch.equal(model(task.test.x), run.model()(task.test.x))
    assert model[1].layers[0] is model[1].layers[1]


def test_a_module_that_reads_values_back(tmp_path):
    write_data(tmp_path)
    task = pa.data.load(tmp_path / "tiny.npz", select=0.25)
    space = ModuleSpace(Reading)
    run = pa.search(space, task, QUICK, out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert run.model()(task.test.x).isfinite().all()
    assert run.supernet()(task.test.x.unsqueeze(0), Sparse((1,))).isfinite().all()
    assert space.cost_table(SHAPE).options == {"layer": [Cost(15, 15), Cost(12, 12)]}
