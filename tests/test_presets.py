"""Published searches: every value is a setting, has a source, and is the paper's."""

import pytest

from polyarch import PolyarchError, presets
from polyarch.cli.choices import asked, choose, published
from polyarch.presets import PRESETS
from polyarch.settings import dotted, plain

PAPERS = {"darts": "Liu", "parsec": "Casale", "balenas": "Zhang", "sotl": "thesis", "nsa": "Deng", "ldn": "Antorán"}


def chosen(name, *assignments):
    found = asked(published(name), None, None, None)
    return choose(found.space, found.method, found.data, assignments, found.settings)


@pytest.mark.parametrize("name", PRESETS)
def test_every_value_is_set_and_has_a_source(name):
    preset, made = PRESETS[name], chosen(name)
    assert preset.data in name
    assert preset.paper
    assert preset.about
    parts = {"space": made.space, "method": made.method, "data": made.source}
    for setting, (value, source) in preset.settings.items():
        group, _, own = setting.partition(".")
        settings = made.source.settings() if group == "data" else plain(parts[group])
        assert dotted(type(parts[group]), settings)[own] == value, setting
        assert len(source) > 5
    made.method.check(made.space)


@pytest.mark.parametrize(("begins", "paper"), PAPERS.items())
def test_names_say_whose_they_are(begins, paper):
    own = [name for name in PRESETS if name.split("-")[0] == begins]
    assert own
    assert all(paper in PRESETS[name].paper or "nasbench201" in name for name in own)


def test_halves_for_weights_and_belief():
    """Whoever learns belief on CIFAR-10 has half of it for the weights and half for belief; NSA learns none."""
    for name, preset in PRESETS.items():
        if preset.data == "cifar10":
            assert preset.group("data")["select"] == (0.0 if name.startswith("nsa") else 0.5), name


def test_the_thesis_by_space():
    """Table B.1: weight decay and epochs differ by space; section 4.2: rates after each supernet."""
    rows = {
        "single-path-nasbench201-cifar10": (5e-4, 100, "lr=0.01"),
        "reptile-nasbench201-cifar10": (5e-4, 100, "lr=0.001"),
        "single-path-nasbench1shot1-2-cifar10": (3e-4, 50, "lr=0.01"),
        "multipath-metaprox-nasbench1shot1-2-cifar10": (3e-4, 50, "lr=0.001"),
        "fairnas-cifar10": (3e-4, 100, "lr=0.001"),
        "sotl-darts-nasbench201-cifar10": (5e-4, 50, ""),
        "sotl-darts-cifar10": (3e-4, 50, ""),
    }
    for name, (decay, epochs, then) in rows.items():
        method = chosen(name).method
        assert (method.weights.weight_decay, method.epochs) == (decay, epochs), name
        assert f" {then} " in f" {PRESETS[name].then} " if then else not PRESETS[name].then
    short = chosen("sotl-darts-nasbench1shot1-3-cifar10").method
    assert (short.objective.steps, short.batch_size, short.weights.grad_clip) == (10, 32, 0.0)


def test_balenas_counts_the_data_it_learns_on():
    for name in PRESETS:
        if name.startswith("balenas"):
            assert chosen(name).method.data_size == 0
    assert chosen("balenas-cifar10").method.objective.order == "second"


def test_the_towers_of_parsec_count_where_it_is_tuned():
    small, large = chosen("parsec-cifar10"), chosen("parsec-tuning-cifar10")
    assert (small.method.auxiliary, large.method.auxiliary) == (0.0, 0.4)
    assert (large.space.network, large.space.layers, large.space.channels) == ("evaluation", 20, 36)
    assert (small.method.batch_size, large.method.batch_size, large.method.augment.cutout) == (64, 96, 16)
    assert small.space.decisions == large.space.decisions


def test_what_is_said_beside_a_preset_has_the_last_word():
    assert chosen("darts-cifar10", "epochs=3", "select=0.2").method.epochs == 3
    assert chosen("darts-cifar10", "select=0.2").source.select == 0.2
    elsewhere = asked(published("nsa-semi-supervised-cifar10"), None, None, "digits")
    assert elsewhere.data == "digits"
    assert elsewhere.settings["data"] == {"select": 0.0, "labels": 4000}
    other = asked(published("darts-cifar10"), "nasbench201", None, None)
    assert "space" not in other.settings
    assert other.settings["method"]["epochs"] == 50
    assert asked(published("darts-cifar10"), "darts", None, None).settings["space"] == {"channels": 16, "layers": 8}
    assert "method" not in asked(published("darts-cifar10"), None, "gdas", None).settings
    assert asked(None, None, None, None).data == "digits"


def test_unknown_names():
    with pytest.raises(PolyarchError, match="did you mean 'darts-cifar10'"):
        presets.find("darts-cifar")
