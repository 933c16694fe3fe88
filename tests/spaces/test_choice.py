"""What runs at an open place: on its own, sparse and dense, mixed, an example at a time."""

from collections import Counter

import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.data.task import TaskShape
from polyarch.spaces import All, Dense, ModuleSpace, PerExample, Soft, Sparse
from polyarch.spaces.choice import Choice, DropPath, choice_points, selecting
from polyarch.spaces.supernets import chosen_module, member_name
from polyarch.testing.spaces import make_supernet

SHAPE = TaskShape((4,), 3)


class Layers(nn.Module):
    """A choice inside an option, and a name at two places."""

    def __init__(self):
        super().__init__()
        self.first = self.layer()
        self.second = self.layer()
        self.head = nn.Linear(4, 3)

    def layer(self):
        inner = pa.Choice("inner", {"wide": nn.Linear(6, 6), "tanh": nn.Tanh()})
        return pa.Choice(
            "layer",
            {
                "norm": nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
                "deep": nn.Sequential(nn.Linear(4, 6), inner, nn.Linear(6, 4)),
                "skip": nn.Identity(),
            },
        )

    def forward(self, x):
        return self.head(x + self.second(torch.relu(self.first(x))))


SPACE = ModuleSpace(Layers)


@pytest.fixture
def supernet():
    """Two repeats whose batch-norm statistics are not those of the start."""
    network = make_supernet(SPACE, SHAPE, seeds=(0, 1)).train()
    network(inputs(20), Sparse((0, 0)))
    return network.eval()


def inputs(batch, repeats=2):
    generator = torch.Generator().manual_seed(batch)
    return torch.randn(repeats, batch, 4, generator=generator, dtype=torch.float64)


def calls_of(network, run):
    """How often each leaf module ran, by its path."""
    counts = Counter()
    leaves = {path: module for path, module in network.named_modules() if not list(module.children())}
    hooks = [leaf.register_forward_hook(lambda *_, path=path: counts.update([path])) for path, leaf in leaves.items()]
    run()
    for hook in hooks:
        hook.remove()
    return counts


# ---------------------------------------------------------------------------------------------------------------------
# A Choice.


def test_on_its_own_the_first_option_runs():
    torch.manual_seed(0)
    choice = pa.Choice("act", {"tanh": nn.Tanh(), "relu": nn.ReLU()})
    x = torch.randn(5)
    assert torch.equal(choice(x), x.tanh())


def test_options_may_be_a_module_dict_and_take_named_arguments():
    choice = pa.Choice("shape", nn.ModuleDict({"same": nn.Identity(), "bilinear": nn.Bilinear(2, 2, 2)}))
    assert choice.labels == ("same", "bilinear")
    x = torch.ones(3, 2)
    with selecting({"": choice}, {"shape": ((1, 1.0),)}):
        assert torch.equal(choice(x, input2=x), choice.options[1](x, x))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("act", {}, "Choice 'act' has no options; give a dictionary of at least one module"),
        ("act", [], "Choice 'act': options are list; give a dictionary of modules"),
        ("act", [nn.ReLU(), nn.Tanh()], "Choice 'act': options are list"),
        ("act", {"relu": nn.ReLU(), "tanh": torch.tanh}, "option 'tanh' is builtin_function_or_method, not"),
        ("act", {"relu": nn.ReLU}, "option 'relu' is type, not an nn.Module"),
        ("act", {"relu": None}, "option 'relu' is NoneType"),
        ("an act", {"relu": nn.ReLU()}, "Choice 'an act': 'an act' cannot be a name"),
        ("act=1", {"relu": nn.ReLU()}, "'act=1' cannot be a name"),
        ("act", {"relu,6": nn.ReLU()}, "Choice 'act': 'relu,6' cannot be a name; use text without spaces, commas"),
        ("act", {"a\nb": nn.ReLU()}, "cannot be a name"),
        ("act", {"": nn.ReLU()}, "'' cannot be a name"),
        ("", {"relu": nn.ReLU()}, "'' cannot be a name"),
        ("act", {3: nn.ReLU()}, "3 cannot be a name"),
        (7, {"relu": nn.ReLU()}, "7 cannot be a name"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_choice(name, options, message):
    with pytest.raises(PolyarchError) as caught:
        pa.Choice(name, options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_after_a_pass_that_failed_the_first_option_runs_again():
    choice = pa.Choice("act", {"tanh": nn.Tanh(), "relu": nn.ReLU()})

    def fail():
        with selecting(choice_points(choice), {"act": ((1, 1.0),)}):
            assert torch.equal(choice(-torch.ones(2)), torch.zeros(2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.equal(choice(-torch.ones(2)), -torch.ones(2).tanh())


def test_drop_path_multiplies_by_weights_only_where_they_are_given():
    point, x = DropPath("edge"), torch.randn(3, 2, 5)
    with selecting({"edge": point}, {}):
        assert point(x) is x
    kept = torch.tensor([[0.0, 2.0, 1.0]])  # one repeat, three examples
    with selecting({"edge": point}, {"edge": kept.unsqueeze(0)}):
        assert torch.equal(point(x), x * kept[0, :, None, None])


# ---------------------------------------------------------------------------------------------------------------------
# What runs.


@pytest.mark.parametrize(
    ("text", "ran"),
    [
        ("layer=norm,inner=wide", {"options.0.0", "options.0.1"}),
        ("layer=deep,inner=tanh", {"options.1.0", "options.1.1.options.1", "options.1.2"}),
        ("layer=skip,inner=wide", {"options.2"}),
    ],
)
def test_sparse_runs_the_chosen_options_alone_and_dense_runs_all(supernet, text, ran):
    choices = SPACE.parse(text).choices
    x = inputs(6)
    wanted = {f"{place}.{path}": 2 for place in ("first", "second") for path in ran}  # once a repeat
    assert calls_of(supernet.network, lambda: supernet(x, Sparse(choices))) == wanted | {"head": 2}
    dense = Dense(torch.tensor([choices, choices]))
    leaves = {path for path, module in supernet.network.named_modules() if not list(module.children())}
    assert calls_of(supernet.network, lambda: supernet(x, dense)) == dict.fromkeys(leaves, 2)


def test_memory_of_a_sparse_step_is_that_of_the_network_alone():
    def saved(run):
        """Bytes that the backward pass needs of the forward pass, parameters left out."""
        storages = {}

        def note(value):
            if not value.is_leaf or not value.requires_grad:
                storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
            return value

        with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
            output = run()
        assert output.requires_grad
        return sum(storages.values())

    supernet = make_supernet(SPACE, SHAPE, seeds=(0,)).train()
    own = {value.untyped_storage().nbytes() for value in (*supernet.parameters(), *supernet.buffers())}
    x = inputs(256, repeats=1)
    assert max(own) < 1024  # nothing beside 256 examples of 4 to 6 doubles
    for text in ("layer=norm,inner=wide", "layer=deep,inner=wide"):
        architecture = SPACE.parse(text)
        plain = supernet.extract(architecture).train()
        alone, sparse = saved(lambda: plain(x[0])), saved(lambda: supernet(x, Sparse(architecture.choices)))  # noqa: B023
        assert sparse <= 1.1 * alone
        dense = Dense(torch.tensor([architecture.choices]))
        assert saved(lambda: supernet(x, dense)) > 1.5 * alone  # noqa: B023


def test_an_architecture_of_its_own_for_every_example(supernet):
    x = inputs(12)
    generator = torch.Generator().manual_seed(0)
    choices = torch.stack([torch.randint(len(d), (2, 12), generator=generator) for d in SPACE.decisions], -1)
    assert len(choices.flatten(0, 1).unique(dim=0)) == SPACE.count()
    together = supernet(x, PerExample(choices))
    for repeat in range(2):
        for example in range(12):
            alone = supernet(x, Sparse(tuple(choices[repeat, example].tolist())))
            assert torch.allclose(together[repeat, example], alone[repeat, example], atol=1e-12)


def test_dense_choices_differ_between_repeats(supernet):
    x, choices = inputs(5), torch.tensor([[0, 1], [1, 0]])
    dense = supernet(x, Dense(choices))
    for repeat, own in enumerate(choices.tolist()):
        assert torch.allclose(dense[repeat], supernet(x, Sparse(tuple(own)))[repeat], atol=1e-12)


def test_soft_is_the_weighted_sum_at_every_place(supernet):
    layer = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.0, 0.9]], dtype=torch.float64)
    inner = torch.tensor([[0.6, 0.4], [0.3, 0.7]], dtype=torch.float64)
    x = inputs(7)
    soft = supernet(x, Soft((layer, inner)))
    for repeat in range(2):
        norm, wide, tanh = (
            supernet.extract(SPACE.parse(text), repeat)
            for text in ("layer=norm,inner=wide", "layer=deep,inner=wide", "layer=deep,inner=tanh")
        )

        def mixed(place, x, norm=norm, wide=wide, tanh=tanh, repeat=repeat):
            deep = getattr(wide, place)
            hidden = deep[0](x)
            hidden = inner[repeat, 0] * deep[1](hidden) + inner[repeat, 1] * getattr(tanh, place)[1](hidden)
            return (
                layer[repeat, 0] * getattr(norm, place)(x) + layer[repeat, 1] * deep[2](hidden) + layer[repeat, 2] * x
            )

        by_hand = norm.head(x[repeat] + mixed("second", torch.relu(mixed("first", x[repeat]))))
        assert torch.allclose(soft[repeat], by_hand, atol=1e-12)


def test_no_view_of_nested_spaces(supernet):
    with pytest.raises(PolyarchError, match="'test_choice:Layers' is not nested: it does not run under All"):
        supernet(inputs(3), All())


# ---------------------------------------------------------------------------------------------------------------------
# Names.


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("stem.weight", "stem.weight"),
        ("a.options.1.weight", "a.weight"),
        ("a.options.0.weight", None),
        ("a.options.1.0.inner.options.0.bias", "a.0.inner.bias"),
        ("a.options.1.0.inner.options.1.bias", None),
        ("a.options.0.0.inner.options.0.bias", None),
        ("b.options.2.weight", "b.parts.1.weight"),
        ("b.options.0.weight", "b.parts.0.weight"),
        ("b.options.1.weight", None),
        ("c.options.0.weight", "c.parts.0.weight"),  # one option, twice
        ("d.options.0.weight", None),  # nothing runs there
    ],
)
def test_names_in_the_network_of_one_architecture(name, member):
    found = {path: Choice(path[-1], {"x": nn.Identity()}) for path in "abcd"}
    found["a.options.0.0.inner"] = found["a.options.1.0.inner"] = Choice("inner", {"x": nn.Identity()})
    selections = {
        "a": ((1, 1.0),),
        "inner": ((0, 1.0),),
        "b": ((0, 1.0), (2, 1.0)),
        "c": ((0, 2.0),),
        "d": (),
    }
    assert member_name(name, found, selections) == member


def test_names_where_the_whole_network_is_one_choice_point():
    found = {"": Choice("whole", {"x": nn.Identity()})}
    assert member_name("options.1.weight", found, {"whole": ((1, 1.0),)}) == "weight"
    assert member_name("options.0.weight", found, {"whole": ((1, 1.0),)}) is None


def test_what_stands_at_a_choice_point():
    made = [nn.Linear(2, 2), nn.Tanh()]
    x = torch.randn(3, 2)
    assert chosen_module((), made.__getitem__) is None
    assert chosen_module(((1, 1.0),), made.__getitem__) is made[1]
    both = chosen_module(((0, 2.0), (1, 0.5)), made.__getitem__)
    assert torch.allclose(both(x), 2 * made[0](x) + 0.5 * x.tanh())
    assert set(both.state_dict()) == {"parts.0.weight", "parts.0.bias"}
