import pytest

from polyarch import PolyarchError, catalogue
from polyarch.blackbox import BlackBox
from polyarch.data import Likelihood
from polyarch.methods import Method, VariationalDepth
from polyarch.scores import Score
from polyarch.settings import make, parts_of, settings_of
from polyarch.spaces import Space

BASES = {"space": Space, "method": Method, "score": Score, "baseline": BlackBox, "likelihood": Likelihood}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in catalogue.KINDS.items() for name in names])
def test_every_name_makes_its_thing_and_every_setting_is_explained(kind, name):
    cls, preset = catalogue.find(kind, name)
    made = cls("torch.nn:Identity") if name == "module" else make(cls, preset)
    assert isinstance(made, BASES[kind])
    assert catalogue.find(kind, catalogue.name_of(kind, cls))[0] is cls
    for setting in (settings_of(cls) | parts_of(cls)).values():
        assert setting.help, f"{setting.name} of {name} needs a sentence on what it means"


@pytest.mark.parametrize("name", catalogue.METHODS)
def test_every_method_says_what_its_belief_means(name):
    """In its own words, and of mixing weights that they are no certainty."""
    meaning = catalogue.find("method", name)[0].meaning
    assert meaning != Method.meaning
    assert 40 < len(meaning.text) < 250
    assert meaning.text.endswith(".")
    assert (meaning.kind == "mixing") == ("not how likely it is to be right" in meaning.text)
    assert (meaning.kind == "posterior") == ("posterior given the weights" in meaning.text)


def test_presets_are_the_papers():
    cls, preset = catalogue.find("method", "variational-depth-images")
    method = make(cls, preset)
    assert (method.batch_size, method.weights.lr, method.weights.momentum) == (512, 0.1, 0.5)
    assert (method.stopping.patience, method.weights.schedule.milestones) == (30, (30,))
    assert [round(method.schedule(epoch)["weights.lr"], 4) for epoch in (0, 29, 30, 99)] == [0.1, 0.1, 0.01, 0.01]
    spirals = make(*catalogue.find("method", "variational-depth-spirals"))
    assert (spirals.stopping.patience, spirals.epochs, spirals.stopping.split) == (500, 8000, "train")
    assert spirals.weights.schedule.kind == "constant"


def test_own_classes_by_package_and_name():
    path = "polyarch.methods.variational_depth:VariationalDepth"
    assert catalogue.find("method", path) == (VariationalDepth, {})
    for wrong in ("no.such.module:Thing", "polyarch.methods:Nothing", "polyarch.errors:unknown"):
        with pytest.raises(PolyarchError, match=r"package|PYTHONPATH"):
            catalogue.find("method", wrong)
    with pytest.raises(PolyarchError, match="did you mean 'fixed-depth'"):
        catalogue.find("method", "fixd-depth")
