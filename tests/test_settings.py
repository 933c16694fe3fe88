import json
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import pytest

from polyarch import PolyarchError, catalogue
from polyarch.cli import choices
from polyarch.cli.choices import assign
from polyarch.settings import (
    Above,
    AtLeast,
    AtMost,
    Below,
    Count,
    NonNegative,
    Positive,
    PositiveFloat,
    Share,
    at_least,
    check,
    check_names,
    dotted,
    make,
    parsed,
    parts_of,
    plain,
    settings_of,
    updated,
    written,
)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    epochs: Positive = 10
    """Passes over the data."""
    last: NonNegative = 0.0
    """The last learning rate."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    lr: PositiveFloat = 0.1
    """Learning rate."""
    momentum: Share = 0.9
    """Of the past."""
    nesterov: bool = False
    """Looks ahead."""
    schedule: Schedule = Schedule()
    """How the rate falls."""


@dataclass(frozen=True, kw_only=True)
class Adam:
    lr: PositiveFloat = 3e-4
    """Learning rate of Adam."""
    betas: tuple[Share, ...] = (0.5, 0.999)
    """Of both moments."""


@dataclass(frozen=True)
class Stage:
    layers: Positive
    operations: Annotated[int, AtLeast(3)]
    dropout: Share = 0.0


@dataclass(frozen=True, kw_only=True)
class Base:
    name: ClassVar[str] = "base"

    weights: Sgd = Sgd()
    """How weights are trained."""
    seed: Count = 0
    """Which draw."""

    def __post_init__(self):
        check(self)


@dataclass(frozen=True, kw_only=True)
class Search(Base):
    weights: Sgd = Sgd(lr=0.025, schedule=Schedule(epochs=50))
    arch: Adam = Adam()
    """How belief is learnt."""
    stages: tuple[Stage, ...] = (Stage(5, 8, 0.1), Stage(11, 5, 0.4))
    """The stages."""
    operations: tuple[Literal["none", "skip", "conv"], ...] = ("skip", "conv")
    """On an edge."""
    widths: tuple[Positive, ...] = ()
    """Of layers."""
    grad_clip: Annotated[float, Above(0), AtMost(10)] | None = 5.0
    """The largest norm, or none."""
    last: Stage | None = None
    """A stage at the end."""
    order: Literal["first", "second"] = "first"
    """Of the gradient."""
    tag: str = ""
    """Any text."""


@dataclass(frozen=True, kw_only=True)
class Data:
    path: str = field(kw_only=False)
    noise: Annotated[float, AtLeast(0), Below(2)] = 0.5
    """How much."""

    def __post_init__(self):
        check(self)


def test_settings_are_flat_with_the_defaults_of_the_class_and_the_help_of_the_part():
    found = settings_of(Search)
    assert list(found)[:6] == [
        "weights.lr",
        "weights.momentum",
        "weights.nesterov",
        "weights.schedule.epochs",
        "weights.schedule.last",
        "seed",
    ]
    assert (found["weights.lr"].default, settings_of(Base)["weights.lr"].default) == (0.025, 0.1)
    assert found["weights.schedule.epochs"].default == 50
    assert found["weights.schedule.epochs"].help == "Passes over the data."
    assert (found["arch.lr"].default, found["arch.lr"].help) == (3e-4, "Learning rate of Adam.")
    assert found["seed"].type == Count
    assert found["stages"].default == Search().stages
    assert list(settings_of(Data)) == ["noise"]  # a positional field is data
    assert {name: part.help for name, part in parts_of(Search).items()} == {
        "weights": "How weights are trained.",  # of the base: the nearest class that says it
        "weights.schedule": "How the rate falls.",
        "arch": "How belief is learnt.",
    }


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"weights.lr": 1, "weights.schedule.last": 0.1, "seed": 3},
        {"weights": {"lr": 1.0, "schedule": {"last": 0.1}}, "arch": {"betas": [0.9, 0.99]}},
        {"stages": [{"layers": 2, "operations": 3}], "operations": [], "widths": [1, 2], "grad_clip": None},
        {"last": {"layers": 1, "operations": 4, "dropout": 0.5}, "order": "second", "tag": "a,b"},
    ],
)
def test_round_trips(values):
    made = make(Search, values)
    assert make(Search, plain(made)) == made
    assert make(Search, json.loads(json.dumps(plain(made)))) == made
    assert make(Search, dotted(Search, plain(made))) == made
    assert updated(Search(), values) == made
    assert updated(made, plain(Search())) == Search()
    texts = [f"{name}={written(value)}" for name, value in dotted(Search, plain(made)).items()]
    assert make(Search, assign({"method": Search}, [f"method.{text}" for text in texts])["method"]) == made


def test_what_is_not_given_stays():
    made = make(Search, {"weights.momentum": 0.5, "weights.schedule": {"last": 1}})
    assert made.weights == Sgd(lr=0.025, momentum=0.5, schedule=Schedule(epochs=50, last=1))
    assert made.arch == Adam()
    again = updated(made, {"weights": {"schedule.last": 0}, "arch.lr": 1})
    assert again.weights == replace(made.weights, schedule=Schedule(epochs=50))
    assert again.arch == Adam(lr=1)
    assert make(Search, {"weights": Sgd(lr=3)}).weights == Sgd(lr=3)  # a part as a whole
    assert make(Search, {"weights": Sgd(lr=3), "weights.lr": 4}).weights == Sgd(lr=4)  # the later one counts
    assert make(Search, {"stages": (Stage(1, 3),)}).stages == (Stage(1, 3),)


def test_data_is_given_by_name_and_is_no_setting():
    assert make(Data, {"path": "here", "noise": 1}) == Data("here", noise=1)
    assert plain(Data("here")) == {"path": "here", "noise": 0.5}
    with pytest.raises(PolyarchError, match="Data lacks path; give a value"):
        make(Data, {"noise": 1})
    with pytest.raises(PolyarchError, match="unknown setting of Data 'path'"):
        check_names(Data, ["path"])


def test_plain_values_are_nested():
    told = plain(Search(last=Stage(1, 3)))
    assert told["weights"]["schedule"] == {"epochs": 50, "last": 0.0}
    assert told["stages"][1] == {"layers": 11, "operations": 5, "dropout": 0.4}
    assert (told["operations"], told["last"]["layers"]) == (["skip", "conv"], 1)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"seed": -1}, "^seed is -1; it must be at least 0$"),
        ({"seed": 1.0}, "^Search.seed is 1.0; it must be a whole number$"),
        ({"seed": True}, "^Search.seed is True; it must be a whole number$"),
        ({"seed": None}, "^Search.seed is None; it must be a whole number$"),
        ({"tag": 3}, "^Search.tag is 3; it must be text$"),
        ({"order": "frist"}, "^unknown value of Search.order 'frist'; did you mean 'first'?"),
        ({"weights.lr": 0}, "^weights.lr is 0; it must be above 0$"),
        ({"weights.lr": float("inf")}, "^Search.weights.lr is inf; it must be a finite number$"),
        ({"weights.lr": "1"}, "^Search.weights.lr is '1'; it must be a finite number$"),
        ({"weights.momentum": 1}, "^weights.momentum is 1; it must be at least 0 and below 1$"),
        ({"weights.nesterov": 1}, "^Search.weights.nesterov is 1; it must be true or false$"),
        ({"weights": {"schedule": {"epochs": 0}}}, "^weights.schedule.epochs is 0; it must be at least 1$"),
        ({"grad_clip": 11}, "^grad_clip is 11; it must be above 0 and at most 10$"),
        ({"grad_clip": "none"}, "^Search.grad_clip is 'none'; it must be a finite number or None$"),
        ({"arch.betas": [0.5, 1]}, r"^arch.betas\[1\] is 1; it must be at least 0 and below 1$"),
        ({"widths": [1, "2"]}, r"^Search.widths\[1\] is '2'; it must be a whole number$"),
        ({"widths": 3}, "^Search.widths is 3; it must be a tuple of whole numbers$"),
        ({"operations": "skip"}, "^Search.operations is 'skip'; it must be a tuple of none, skip or conv$"),
        ({"operations": ["skp"]}, r"^unknown value of Search.operations\[0\] 'skp'; did you mean 'skip'"),
        ({"stages": [{"layers": 0, "operations": 3}]}, r"^stages\[0\].layers is 0; it must be at least 1$"),
        ({"stages": [{"layers": 1}]}, r"^Search.stages\[0\] lacks operations; give a value$"),
        ({"stages": [{"layres": 1}]}, r"^unknown part of Search.stages\[0\] 'layres'; did you mean 'layers'"),
        ({"stages": [3]}, r"^Search.stages\[0\] is 3; it must be an instance of Stage$"),
        ({"stages": {"layers": 1}}, r"it must be a tuple of Stage instances$"),
        ({"last": 3}, "^Search.last is 3; it must be an instance of Stage or None$"),
        ({"weights": 3}, "^weights is 3; it is not one value: give weights.lr, weights.momentum, weights.nesterov, "),
        ({"weights": Adam()}, "^weights is Adam"),
        ({"wieghts": {"lr": 1}}, "^unknown setting of Search 'wieghts'; did you mean 'weights.lr'"),
        ({"weights.momentun": 1}, "^unknown setting of Search 'weights.momentun'; did you mean 'weights.momentum'"),
        ({"weights": {"lrr": 1}}, "^unknown setting of Search 'weights.lrr'; did you mean 'weights.lr'"),
        ({"seed.x": 1}, "^unknown setting of Search 'seed.x'; did you mean 'seed'"),
        ({"lr": 1}, "^unknown setting of Search 'lr'; did you mean 'weights.lr' or 'arch.lr'"),
        ({"qqqqqqq": 1}, "^unknown setting of Search 'qqqqqqq'; known: arch.betas, arch.lr, grad_clip, "),
    ],
)
def test_what_is_wrong_is_named(values, says):
    for attempt in (make, lambda cls, values: updated(cls(), values)):
        with pytest.raises(PolyarchError, match=says):
            attempt(Search, values)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"weights": Sgd(lr=-1)}, "^weights.lr is -1; it must be above 0$"),
        ({"weights": Sgd(schedule=Schedule(epochs=0))}, "^weights.schedule.epochs is 0; it must be at least 1$"),
        ({"weights": {"lr": 1}}, "^Search.weights is {'lr': 1}; it must be an instance of Sgd$"),
        ({"stages": (Stage(1, 2),)}, r"^stages\[0\].operations is 2; it must be at least 3$"),
        ({"stages": [Stage(1, 3)]}, r"it must be a tuple of Stage instances$"),
        ({"last": Stage(1, 3, 1.5)}, "^last.dropout is 1.5; it must be at least 0 and below 1$"),
        ({"grad_clip": 0.0}, "^grad_clip is 0.0; it must be above 0 and at most 10$"),
    ],
)
def test_instances_are_checked_at_every_level(values, says):
    with pytest.raises(PolyarchError, match=says):
        Search(**values)


def test_a_part_is_of_its_class_and_no_other():
    @dataclass(frozen=True, kw_only=True)
    class Own(Sgd):
        pass

    with pytest.raises(PolyarchError, match="it must be an instance of Sgd"):
        Search(weights=Own())


def test_required_settings():
    assert make(Required, {"stage.layers": 1, "stage.operations": 3}) == Required(stage=Stage(1, 3))
    with pytest.raises(PolyarchError, match="Required lacks stage; give a value"):
        make(Required, {})
    with pytest.raises(PolyarchError, match=r"Required.stage lacks operations; give a value"):
        make(Required, {"stage.layers": 1})


@dataclass(frozen=True, kw_only=True)
class Required:
    stage: Stage
    made: Adam = field(default_factory=lambda: Adam(lr=2))


def test_a_default_may_be_made():
    assert settings_of(Required)["made.lr"].default == 2
    assert make(Required, {"stage": Stage(1, 3), "made": {"betas": []}}).made == Adam(lr=2, betas=())


@dataclass(frozen=True, kw_only=True)
class Strange:
    one: dict[str, int] | None = None
    two: tuple[int, int] = (1, 2)
    three: int | str = 1


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_other_types_are_the_writers_mistake(name):
    with pytest.raises(TypeError, match="a setting cannot be of type"):
        make(Strange, {name: {}})


def test_hand_written_bounds_say_the_same():
    at_least("rate", 0, 0)
    with pytest.raises(PolyarchError, match=r"^rate is -1; it must be at least 0$"):
        at_least("rate", -1, 0)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("seed", "3", 3),
        ("weights.lr", "1e-3", 1e-3),
        ("weights.nesterov", "Yes", True),
        ("weights.nesterov", "0", False),
        ("order", "second", "second"),
        ("tag", "a, b", "a, b"),
        ("operations", "none,skip", ("none", "skip")),
        ("operations", " none , skip ", ("none", "skip")),
        ("operations", "none", ("none",)),
        ("operations", "", ()),
        ("widths", "1,2", (1, 2)),
        ("grad_clip", "none", None),
        ("grad_clip", "0.5", 0.5),
        ("stages", "5:8:0.1,11:5", (Stage(5, 8, 0.1), Stage(11, 5))),
        ("stages", "", ()),
        ("last", "1:3:0.5", Stage(1, 3, 0.5)),
        ("last", "None", None),
    ],
)
def test_texts(name, text, value):
    found = parsed(settings_of(Search)[name], text)
    assert dotted(Search, {name: found}) == {name: value}
    assert dotted(Search, {name: parsed(settings_of(Search)[name], written(value))}) == {name: value}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("seed", "", "setting seed needs a whole number, not ''"),
        ("seed", "1.5", "setting seed needs a whole number, not '1.5'"),
        ("weights.lr", "fast", "setting weights.lr needs a number, not 'fast'"),
        ("weights.nesterov", "maybe", "setting weights.nesterov needs true or false, not 'maybe'"),
        ("grad_clip", "off", "setting grad_clip needs a number, or none, not 'off'"),
        ("widths", "1,x", "setting widths needs whole numbers, separated by commas, not '1,x'"),
        ("arch.betas", "1,", "setting arch.betas needs numbers, separated by commas, such as 0.5,0.999, not '1,'"),
        (
            "stages",
            "5",
            "setting stages needs LAYERS:OPERATIONS:DROPOUT, separated by commas, such as 5:8:0.1,11:5:0.4, not '5'",
        ),
        ("stages", "5:8:x", "needs LAYERS:OPERATIONS:DROPOUT, separated by commas, .* not '5:8:x'"),
        ("stages", "5:8:0:1", "not '5:8:0:1'"),
        ("last", "5", "setting last needs LAYERS:OPERATIONS:DROPOUT, or none, not '5'"),
    ],
)
def test_errors_say_how_to_write_it(name, text, says):
    with pytest.raises(PolyarchError, match=says):
        parsed(settings_of(Search)[name], text)


GROUPS = {"data": Data, "method": Search}


@pytest.mark.parametrize(
    ("text", "group", "values"),
    [
        ("noise=1", "data", {"noise": 1.0}),
        ("data.noise=1", "data", {"noise": 1.0}),
        ("grad_clip=none", "method", {"grad_clip": None}),
        ("weights.lr=0.1", "method", {"weights.lr": 0.1}),
        ("method.weights.lr=0.1", "method", {"weights.lr": 0.1}),
        ("momentum = 0.5", "method", {"weights.momentum": 0.5}),
        ("method.momentum=0.5", "method", {"weights.momentum": 0.5}),
        ("schedule.epochs=3", "method", {"weights.schedule.epochs": 3}),
        ("method.epochs=3", "method", {"weights.schedule.epochs": 3}),
        ("method.last=1:3", "method", {"last": {"layers": 1, "operations": 3}}),  # in full, though another ends in it
        ("last=1:3", "method", {"last": {"layers": 1, "operations": 3}}),
        ("tag=a=b", "method", {"tag": "a=b"}),
    ],
)
def test_names_on_the_command_line(text, group, values):
    other = {"data": "method", "method": "data"}[group]
    assert assign(GROUPS, [text]) == {group: values, other: {}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lr=1", "setting 'lr' is in several places; write method.weights.lr or method.arch.lr"),
        ("method.lr=1", "setting 'method.lr' is in several places; write method.weights.lr or method.arch.lr"),
        ("weights=1", "setting 'weights' is not one value; write method.weights.lr or method.weights.momentum or"),
        ("method.arch=1", "setting 'method.arch' is not one value; write method.arch.lr or method.arch.betas"),
        ("grad_clp=1", "unknown setting 'grad_clp'; did you mean 'grad_clip'"),
        ("momentun=1", "unknown setting 'momentun'; did you mean 'momentum'"),
        ("weights.momentun=1", "unknown setting 'weights.momentun'; did you mean 'weights.momentum'"),
        ("method.wieghts.lr=1", "unknown setting of method 'wieghts.lr'; did you mean 'weights.lr'"),
        ("data.lr=1", "unknown setting of data 'lr'; known: noise"),
        ("path=here", "unknown setting 'path'"),
        ("lr", "--set lr: write NAME=VALUE"),
        ("weights.lr=", "setting weights.lr needs a number, not ''"),
    ],
)
def test_wrong_names_on_the_command_line(text, says):
    with pytest.raises(PolyarchError, match=says):
        assign(GROUPS, [text])


def test_the_same_name_in_two_groups():
    with pytest.raises(PolyarchError, match=r"'seed' is in several places; write one.seed or two.seed"):
        assign({"one": Search, "two": Base}, ["seed=1"])


@pytest.fixture
def presets(monkeypatch):
    path = f"{Search.__module__}:Search"
    entries = {
        "plain": catalogue.Entry(path, ""),
        "fast": catalogue.Entry(path, "", {"weights.lr": 0.1}),
        "faster": catalogue.Entry(path, "", {"weights": {"lr": 0.1}, "weights.momentum": 0.5}),
        "staged": catalogue.Entry(path, "", {"stages": [{"layers": 1, "operations": 3}], "weights.lr": 0.1}),
        "twice": catalogue.Entry(path, "", {"weights.lr": 0.1, "seed": 0}, repeats=2),
    }
    monkeypatch.setitem(catalogue.KINDS, "method", entries)
    return entries


@pytest.mark.parametrize("name", ["plain", "fast", "faster", "staged"])
def test_a_preset_is_known_by_its_settings(presets, name):
    cls, preset = catalogue.find("method", name)
    made = make(cls, preset)
    assert catalogue.name_of("method", cls, plain(made)) == name
    assert catalogue.name_of("method", cls, plain(updated(made, {"arch.lr": 1}))) == name
    assert catalogue.name_of("method", cls, plain(updated(made, {"weights.lr": 1}))) == "plain"


def test_choices_change_presets(presets, monkeypatch):
    monkeypatch.setattr(choices, "Method", Base)
    found = choices.choose(
        "depth",
        "faster",
        "digits",
        ["weights.lr=1", "method.epochs=3"],
        {"method": {"weights": {"lr": 2.0, "nesterov": True}}},
    )
    assert found.method == Search(weights=Sgd(lr=1, momentum=0.5, nesterov=True, schedule=Schedule(epochs=3)))


def test_listing_shows_parts_above_their_settings(presets, monkeypatch, capsys):
    from polyarch.cli.listing import list_all

    for kind in ("space", "score", "baseline"):
        monkeypatch.delitem(catalogue.KINDS, kind)
    list_all(settings=True, as_json=True)
    entry = json.loads(capsys.readouterr().out)["methods"]["staged"]
    assert entry["settings"]["weights.lr"] == [0.1, "Learning rate."]
    assert entry["settings"]["stages"][0] == [{"layers": 1, "operations": 3, "dropout": 0.0}]
    assert entry["parts"]["weights.schedule"] == "How the rate falls."
    list_all(settings=True)
    shown = capsys.readouterr().out
    lines = [line.strip() for line in shown[shown.index("  staged") :].splitlines()]
    assert lines[1:5] == ["weights", "How weights are trained.", "weights.lr = 0.1", "Learning rate."]
    assert lines.index("weights.schedule") + 2 == lines.index("weights.schedule.epochs = 50")
    assert "stages = 1:3:0.0" in lines
    assert "operations = skip,conv" in lines
    assert "last = none" in lines
