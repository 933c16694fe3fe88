"""What a run exports answers where there is no polyarch, in every format, as the run itself does."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from exported import apart
from safetensors import safe_open
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.runs.exporting import network_temperature

CPU = pa.Compute("cpu")
RANDOM = np.random.default_rng(0)
COUNT = 160
X = RANDOM.normal(3, 5, size=(COUNT, 4)).astype(np.float32)
NESTED = pa.methods.VariationalDepth(epochs=3, batch_size=20)
PARSEC = pa.methods.Parsec(epochs=1, samples=2, batch_size=20)
DEPTH = pa.spaces.ResidualDepth(max_depth=3, width=8)
ENDINGS = ("pt2", "safetensors", "onnx")


class Pictured(nn.Module):
    """An image and one number, by name, and an open depth."""

    def __init__(self):
        super().__init__()
        self.image, self.size = nn.Conv2d(1, 4, 3), nn.Linear(1, 4)
        blocks = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2)]
        self.depth = pa.Depth("depth", blocks, nn.Linear(4, 2))

    def forward(self, image, size):
        return self.depth(self.image(image).mean((2, 3)) + self.size(size))


class Words(nn.Module):
    """Tokens, recurrence and attention."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.mix = pa.Choice("mix", {"gru": Recurrent(), "attention": attention})
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.mix(self.embedding(x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(8, 8, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


def only_one():
    return nn.Sequential(pa.Choice("only", {"one": nn.Linear(4, 2)}))


def table(folder):
    """Numbers with gaps, one of them far from 0, and words; two classes that cannot be told apart for sure."""
    lines = ["size,kind,year,label"]
    for k in range(COUNT):
        size = "" if k % 11 == 0 else f"{k % 7}"
        lines.append(f"{size},{'abc'[k % 3]},{1e6 + k % 5},{'yes' if (k * 7919) % 13 > 6 else 'no'}")
    path = folder / "table.csv"
    path.write_text("\n".join(lines))
    return path


def search(folder, space, given, method=NESTED, **settings):
    task = pa.data.load(given, select=0.3, test=0.3, **settings)
    return pa.search(space, task, method, out=folder, compute=CPU)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exporting")


@pytest.fixture(scope="module")
def classes(folder):
    """Of a depth whose belief is on several, so that members disagree."""
    y = (X[:, 0] + 3 * RANDOM.normal(size=COUNT) > 3).astype(int)
    run = search(folder / "classes", DEPTH, (X, y))
    run.__dict__["architecture"] = run.space.architecture([3])  # so that there are members, and depths to leave at
    return run


@pytest.fixture(scope="module")
def named(folder):
    given = {"size": X[:, :1], "image": RANDOM.integers(0, 256, size=(COUNT, 1, 6, 6)).astype(np.uint8)}
    y = 1000 + 50 * RANDOM.normal(size=COUNT)
    return search(folder / "named", pa.ModuleSpace(Pictured), (given, y), noise="input", kind="regression")


@pytest.fixture(autouse=True)
def _untold(monkeypatch):
    """What torch traces of itself is much, and pytest would keep it all."""
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)


ELSEWHERE = """
import json, sys
sys.modules["polyarch"] = None
sys.path.insert(0, sys.argv[1])
import numpy as np
from exported import of_onnx, of_program, of_source
from pathlib import Path

for name, by_name in json.loads(sys.argv[2]).items():
    given = dict(np.load(f"{name}-given.npz"))
    told = {"pt2": of_program(f"{name}.pt2", given, by_name)}
    told["safetensors"] = of_source(Path(f"{name}.py"), given, by_name)
    one = {key: value[:1] for key, value in given.items()}
    told["onnx"], alone = of_onnx(f"{name}.onnx", given, one)
    assert all(np.allclose(alone[key], told["onnx"][key][:1], atol=1e-5, rtol=1e-5) for key in alone)
    for form, answers in told.items():
        np.savez(f"{name}-{form}", **answers)
assert not [name for name in sys.modules if name.startswith("polyarch.")]
"""


def as_given(run):
    """A hundred inputs of a run, by the names that files have for them, and as the run takes them."""
    x = run.task().training.x[:100]
    if run.inputs.parts:
        each = run.inputs.parts.unpacked(x)
        kinds = run.inputs.parts.types
        arrays = [one.long() if kind == "tokens" else one for one, kind in zip(each, kinds, strict=True)]
        return {name: one.numpy() for name, one in zip(run.inputs.parts.names, arrays, strict=True)}, x
    return {"x": x.numpy().astype(np.float32) if x.dtype == torch.uint8 else x.numpy()}, x


def as_said(said):
    """What `predict` says, by the names that files have for it."""
    if hasattr(said, "log_probs"):
        return {
            "mean": said.probs,
            "entropy": said.entropy,
            "mutual_information": said.mutual_information,
        }
    named = {"mean": said.mean, "std": said.std if said.mean.dim() == 1 else None}
    named |= {
        "entropy": getattr(said, "entropy", None),
        "mutual_information": getattr(said, "mutual_information", None),
    }
    return {name: value for name, value in named.items() if value is not None}


def check(tmp_path, exports, **tolerances):
    """Writes predictors by name, in all formats, and compares what they answer elsewhere.

    Args:
        tmp_path: an empty folder.
        exports: by name the run, what is written of it, its temperature, and what its answers should be.
        tolerances: by name, where they are not 1e-4.
    """
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    for name, (run, model, temperature, _) in exports.items():
        for ending in ENDINGS:
            run.save(tmp_path / f"{name}.{ending}", model, temperature=temperature)
        np.savez(tmp_path / f"{name}-given", **as_given(run)[0])
    by_name = {name: bool(run.inputs.parts) for name, (run, *_) in exports.items()}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(Path(__file__).parent), json.dumps(by_name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name, (*_, wanted) in exports.items():
        for form in ENDINGS:
            answers = dict(np.load(tmp_path / f"{name}-{form}.npz"))
            assert apart(answers, wanted) < tolerances.get(name, 1e-4), (name, form)


def network_of(run, temperature):
    """What a network is to answer."""
    x = as_given(run)[1]
    output, likelihood = run.model()(x), run.likelihood()
    mean = likelihood.mean(output.double() / temperature)
    told = {"output": output, "mean": mean}
    if mean.dim() == 1:
        told["std"] = likelihood.variance(output.double()).sqrt()
    entropy = likelihood.entropy(output.double() / temperature)
    return told | ({} if entropy is None else {"entropy": entropy})


def both(run, temperature=1.0):
    """A run's network and its mixture."""
    said = run.predictor().ensemble
    x = as_given(run)[1]
    mixture = run.predict(x)
    if run.classifies:
        mixture = said.precisely(x).tempered(temperature)
    return {
        "network": (run, None, temperature, network_of(run, temperature)),
        "ensemble": (run, run.ensemble(), temperature, as_said(mixture)),
    }


def test_classes_by_a_network_a_mixture_and_early_exit(classes, tmp_path):
    early = classes.early_exit(0.3)
    early.threshold = 0.75  # so that some leave, and others stay
    exits = early.exits(as_given(classes)[1])
    assert len(exits.depth.unique()) > 1
    probs = (exits.log_probs / 1.7).softmax(-1)
    told = {"mean": probs, "entropy": -(probs * probs.log()).sum(-1), "depth": exits.depth}
    exports = both(classes, 1.7) | {"early": (classes, early, 1.7, told)}
    assert exports["ensemble"][3]["mutual_information"].max() > 1e-6
    check(tmp_path, exports)


def test_numbers_in_their_unit_and_inputs_by_name(named, tmp_path):
    check(tmp_path, both(named), network=1e-2, ensemble=1e-2)  # of numbers around a thousand, in single precision


@pytest.mark.slow
def test_tables_tokens_labels_and_counts(folder, tmp_path):
    images = RANDOM.integers(0, 256, size=(COUNT, 1, 8, 8)).astype(np.uint8)
    labels, counts = (X[:, :3] > 3).astype(np.float32), RANDOM.poisson(20 + X[:, 0].clip(-9)).astype(np.float32)
    tokens = (RANDOM.integers(0, 9, size=(COUNT, 5)), np.arange(COUNT) % 3)
    thinned = pa.spaces.Wiring(width=1, stages=1, nodes=3, listed=3, dropout=0.2)
    samples = pa.methods.StochasticArchitectures(epochs=1, batch_size=20)
    runs = {
        "table": search(folder / "table", DEPTH, table(folder)),
        "labels": search(folder / "labels", DEPTH, (X, labels), likelihood="multi-label"),
        "counts": search(folder / "counts", DEPTH, (X, counts), likelihood="counts"),
        "tokens": search(folder / "tokens", pa.ModuleSpace(Words), tokens, PARSEC),
        "thinned": search(folder / "thinned", thinned, (images, np.arange(COUNT) % 3), samples),
    }
    exports = {}
    for name, what in {"table": "network", "labels": "ensemble", "counts": "ensemble", "tokens": "network"}.items():
        exports[name] = both(runs[name], 1.3 if runs[name].classifies else 1.0)[what]
    exports["thinned"] = both(runs["thinned"], 1.3)["ensemble"]
    check(tmp_path, exports)


def test_the_temperature_is_that_of_the_network(classes, folder):
    assert network_temperature(classes) == 1  # what was fitted is the mixture's
    alone = search(folder / "alone", pa.ModuleSpace(only_one), (X, (X[:, 0] > 3).astype(int)), PARSEC)
    assert network_temperature(alone) == alone.temperature


def test_the_card_says_what_it_is(classes, tmp_path):
    written = classes.save(tmp_path / "net.safetensors", classes.ensemble(), temperature=2.0)
    assert [file.name for file in written.files] == ["net.safetensors", "net.py", "net.safetensors.md"]
    assert {file.name for file in tmp_path.iterdir()} == {file.name for file in written.files}
    with safe_open(tmp_path / "net.safetensors", "pt") as file:
        about = json.loads(file.metadata()["about"])
        assert set(file.keys()) == set(classes.ensemble().state_dict())
    assert about == json.loads(json.dumps(written.about))
    assert about["measured"]["metrics"] == classes.result["metrics"]["test_tempered"]
    page = (tmp_path / "net.safetensors.md").read_text()
    for told in (
        about["fingerprint"],
        f"torch {torch.__version__}",
        f"| log_likelihood | {about['measured']['metrics']['log_likelihood']:.4g} | calibration |",
        "from net import load",
        "a temperature of 2",
        "depth, variational-depth, seed 0",
        "| `mutual_information` |",
    ):
        assert told in page
    further = classes.save(tmp_path / "further.pt2", classes.model())
    assert not further.about["measured"]
    assert "Not measured" in (tmp_path / "further.pt2.md").read_text()


def test_the_source_can_be_trained(classes, tmp_path):
    from exported import module_at

    files = classes.save(tmp_path / "net.safetensors").files
    assert not re.search("^(import|from) polyarch", files[1].read_text(), re.MULTILINE)
    classes.save(tmp_path / "net.safetensors")  # where it stands already
    network = module_at(tmp_path / "net.py").load()
    assert network.state_dict().keys() == classes.model().state_dict().keys()
    assert {name for name, _ in network.named_parameters()} == {name for name, _ in classes.model().named_parameters()}
    x, y = classes.task().training.x, classes.task().training.y
    optimiser = torch.optim.Adam(network.requires_grad_().parameters(), 0.05)
    losses = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(network(x)["output"], y)
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[-1] < losses[0]


def test_what_cannot_be_written_leaves_nothing(classes, tmp_path, monkeypatch):
    for path, form, says in (
        ("net.pt2", "onnx", "ends as torch does, and the format is onnx"),
        ("net.bin", "pickle", "format is 'pickle'; it is one of onnx, torch, safetensors"),
        ("nowhere/net.pt2", None, "cannot write"),
    ):
        with pytest.raises(PolyarchError, match=says):
            classes.save(tmp_path / path, format=form)
    (tmp_path / "mine.py").write_text("precious = 1")
    with pytest.raises(PolyarchError, match=r"mine\.py would be replaced by the source"):
        classes.save(tmp_path / "mine.safetensors")
    (tmp_path / "mine.py").unlink()
    with pytest.raises(PolyarchError, match="temperature is 0"):
        classes.save(tmp_path / "net.pt2", temperature=0.0)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(PolyarchError, match=r"install polyarch\[onnx\], or write a .pt2") as caught:
        classes.save(tmp_path / "net.onnx")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
