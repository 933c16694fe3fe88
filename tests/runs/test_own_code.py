"""What of one's own code a run knows: whatever its networks are made by, and nothing else."""

import importlib
import subprocess
import sys
import textwrap

import pytest

import polyarch as pa
from polyarch.runs.config import describe_method, describe_space
from polyarch.runs.own_code import own_code

MODEL = '''
"""A model."""
import math

import torch
from torch import nn
from torch.nn import GELU as Activation

import polyarch as pa
from code_blocks import Block
from code_package import wide
import code_package.deep as deeper

HIDDEN = 6
UNUSED = 1


class Network(nn.Module):
    """Two options."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, HIDDEN), Block(), deeper.Deep(), pa.Choice("last", options()))

    def forward(self, x):
        """Through all."""
        from code_late import scaled

        return scaled(self.layers(x))


def options():
    return {"plain": nn.Linear(HIDDEN, 3), "wide": nn.Sequential(wide.make(), nn.Linear(HIDDEN, 3))}


def unused():
    return UNUSED


setattr(Network, "margin", 0.5)

if __name__ == "__main__":
    HIDDEN = 12
'''
FILES = {
    "code_model.py": MODEL,
    "code_blocks.py": "from torch import nn\n\nclass Block(nn.LeakyReLU):\n    pass\n\nclass Other:\n    pass\n",
    "code_late.py": "FACTOR = 2\n\ndef scaled(x):\n    return FACTOR * x\n",
    "code_package/__init__.py": "",
    "code_package/wide.py": "from torch import nn\nfrom . import sizes\nmake = lambda: nn.Linear(sizes.H, 6)\n",
    "code_package/sizes.py": "H = 6\n",
    "code_package/deep.py": "from torch import nn\nfrom .sizes import *\n\nclass Deep(nn.Tanh):\n    pass\n",
    "code_package/other.py": "A = 1\n",
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with a model of several files, where Python finds it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("code_")]:
        del sys.modules[name]


def found(reference="code_model:Network"):
    return own_code([{"name": "module", "settings": {"factory": reference}}])


def edit(home, name, old, new):
    text = (home / name).read_text()
    assert old in text
    (home / name).write_text(text.replace(old, new))


def test_all_files_that_are_used_and_no_others(home):
    used = {"code_model", "code_blocks", "code_late", "code_package.wide", "code_package.sizes", "code_package.deep"}
    assert set(found()) == used
    assert set(found("code_blocks:Other")) == {"code_blocks"}


@pytest.mark.parametrize(
    ("name", "old", "new", "where"),
    [
        ("code_model.py", "HIDDEN = 6", "HIDDEN = 7", "code_model"),
        ("code_model.py", '"plain": nn', '"straight": nn', "code_model"),
        ("code_model.py", '"margin", 0.5', '"margin", 0.6', "code_model"),
        ("code_blocks.py", "nn.LeakyReLU", "nn.GELU", "code_blocks"),
        ("code_late.py", "FACTOR = 2", "FACTOR = 3", "code_late"),
        ("code_package/sizes.py", "H = 6", "H = 6.0", "code_package.sizes"),
        ("code_package/deep.py", "nn.Tanh", "nn.ReLU", "code_package.deep"),
    ],
)
def test_what_networks_are_made_by_counts(home, name, old, new, where):
    before = found()
    edit(home, name, old, new)
    after = found()
    assert {module for module in before if before[module] != after.get(module)} == {where}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("code_model.py", "HIDDEN = 6\n", "HIDDEN   =  6  # hidden\n\n\n"),
        ("code_model.py", '"""Two options."""', '"""Two options, or more."""'),
        ("code_model.py", "UNUSED = 1", "UNUSED = 2"),
        ("code_model.py", "return UNUSED", "return 2 * UNUSED"),
        ("code_model.py", "HIDDEN = 12", "HIDDEN = 13"),
        ("code_model.py", "import math", "import cmath"),
        ("code_model.py", "GELU as Activation", "ReLU as Activation"),
        ("code_blocks.py", "class Other", "class Others"),
        ("code_package/other.py", "A = 1", "A = 2"),
    ],
)
def test_what_they_are_not_made_by_does_not_count(home, name, old, new):
    before = found()
    edit(home, name, old, new)
    assert found() == before


def test_an_activation_by_another_name_counts(home):
    edit(home, "code_model.py", "Block(), deeper", "Activation(), deeper")
    before = found()
    edit(home, "code_model.py", "GELU as Activation", "ReLU as Activation")
    assert found() != before


def test_it_is_the_same_whether_modules_are_imported_or_not(home):
    before = found()
    assert not [name for name in sys.modules if name.startswith("code_")], "looking imports nothing"
    space = pa.ModuleSpace(importlib.import_module("code_model").Network)
    assert own_code([describe_space(space)]) == before
    space.check(pa.data.load(([[float(i)] * 4 for i in range(9)], [0, 1, 2] * 3), test=0, select=0).shape)
    assert "code_late" in sys.modules
    assert found() == before


def test_in_a_script_that_runs(home):
    code = """
    from polyarch.runs.own_code import own_code
    import json
    if __name__ == "__main__":
        print(json.dumps(own_code([{"factory": "code_script:Network"}])))
    """
    (home / "code_script.py").write_text(MODEL + textwrap.dedent(code))
    done = subprocess.run([sys.executable, "code_script.py"], cwd=home, capture_output=True, text=True, check=True)
    assert eval(done.stdout) == found("code_script:Network")


def test_inside_another_space_and_of_a_method(home):
    (home / "code_own.py").write_text(
        "from dataclasses import dataclass\nimport polyarch as pa\n\nWIDTH = 3\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Deep(pa.spaces.ResidualDepth):\n    width: int = WIDTH\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Searched(pa.methods.VariationalDepth):\n    epochs: int = 3\n"
    )
    own = importlib.import_module("code_own")
    space = pa.spaces.Restricted(pa.ModuleSpace(importlib.import_module("code_model").Network), {"last": ["plain"]})
    assert own_code([describe_space(space)]) == found()
    assert set(own_code([describe_space(own.Deep())])) == {"code_own"}
    before = own_code([describe_method(own.Searched())])
    assert set(before) == {"code_own"}
    edit(home, "code_own.py", "WIDTH = 3", "WIDTH = 4")
    assert own_code([describe_method(own.Searched())]) == before
    edit(home, "code_own.py", "epochs: int = 3", "epochs: int = 4")
    assert own_code([describe_method(own.Searched())]) != before


def test_what_comes_with_polyarch_python_or_an_installed_package_has_versions(home):
    assert own_code([describe_space(pa.spaces.ResidualDepth()), describe_method(pa.methods.Parsec())]) == {}
    for reference in ("torch.nn:Identity", "json:loads", "numpy:zeros", "code_nowhere:Network", "sys:path"):
        assert found(reference) == {}


@pytest.mark.parametrize(
    "text", ["class Network(", "\0", "from code_nowhere import Network", "from ... import Network"]
)
def test_a_module_that_cannot_be_read_is_left_to_its_import(home, text):
    (home / "code_broken.py").write_text(text)
    found("code_broken:Network")
