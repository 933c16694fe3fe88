"""What a run hands over is a plain module: saved, loaded and trained without polyarch."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import polyarch as pa
from polyarch import PolyarchError

CPU = pa.Compute("cpu")
QUICK = pa.methods.Parsec(epochs=1, samples=2, batch_size=20)
RANDOM = np.random.default_rng(0)
COUNT = 80


def vectors(width=6):
    inner = pa.Choice("inner", {"tanh": nn.Tanh(), "linear": nn.Sequential(nn.Linear(width, width), nn.ReLU())})
    return nn.Sequential(nn.Linear(4, width), inner, nn.BatchNorm1d(width), nn.Linear(width, 3))


class Words(nn.Module):
    """Tokens, recurrence, attention and dropout."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.mix = pa.Choice("mix", {"gru": Recurrent(), "attention": attention})
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.mix(self.embedding(x)).mean(1))


class Series(nn.Module):
    """Sequences of numbers, [batch, 1, length, features]."""

    def __init__(self):
        super().__init__()
        self.mix = pa.Choice("mix", {"gru": Recurrent(), "keep": nn.Identity()})
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.mix(x.squeeze(1)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(8, 8, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


def deep():
    blocks = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)]
    return nn.Sequential(nn.Linear(4, 6), pa.Depth("depth", blocks, nn.Linear(6, 1)))


def rows():
    return RANDOM.normal(3, 5, size=(COUNT, 4)).astype(np.float32)


def images():
    return RANDOM.integers(0, 256, size=(COUNT, 3, 8, 8)).astype(np.uint8)


def classes(count=3):
    return np.arange(COUNT) % count


def table(folder):
    path = folder / "table.csv"
    lines = [f"{k % 7},{'abc'[k % 3]},{k % 2}" if k % 11 else f",a,{k % 2}" for k in range(COUNT)]
    path.write_text("\n".join(["size,kind,label", *lines]))
    return path


def searches(folder):
    """Of every sort of network, a space, data and a method."""
    nested = pa.methods.VariationalDepth(epochs=2, batch_size=20)
    raw = 1000 + 50 * RANDOM.normal(size=COUNT)
    samples = pa.methods.StochasticArchitectures(epochs=1, batch_size=20)
    tokens = RANDOM.integers(0, 9, size=(COUNT, 5))
    series = RANDOM.normal(3, 5, size=(COUNT, 5, 8)).astype(np.float32)
    return {
        "depth": (pa.spaces.ResidualDepth(max_depth=3, width=8), (rows(), classes()), nested),
        "depth of images": (pa.spaces.ResidualDepth(max_depth=2, width=4), (images(), classes()), nested),
        "table": (pa.spaces.ResidualDepth(max_depth=2, width=8), table(folder), nested),
        "cell": (pa.spaces.NasBench201(channels=4, cells=1), (images(), classes()), QUICK),
        "wiring": (pa.spaces.Wiring(width=1, listed=3), (images(), classes()), samples),
        "own": (pa.ModuleSpace(vectors), (rows(), classes()), QUICK),
        "own depth of numbers": (pa.ModuleSpace(deep), (rows(), raw), nested),
        "tokens": (pa.ModuleSpace(Words), (tokens, classes()), QUICK),
        "series": (pa.ModuleSpace(Series), (series, classes()), QUICK),
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for name, (space, given, method) in searches(folder).items():
        found[name] = pa.search(space, pa.data.load(given, select=0.2), method, out=folder / name, compute=CPU)
    pa.train_selected(found["own"])
    return found


ELSEWHERE = """
import json, sys
sys.modules["polyarch"] = None
import numpy as np, torch

found = {}
for name in json.loads(sys.argv[1]):
    about = {"about.json": ""}
    net = torch.export.load(f"{name}.pt2", extra_files=about).module()
    given = np.load(f"{name}.npz")
    x = torch.from_numpy(given["x"])
    y = torch.from_numpy(given["y"])
    worst = max((net(x[:n])["output"].detach() - y[:n]).abs().max().item() for n in (1, 2, len(x)))
    found[name] = [worst, list(json.loads(about["about.json"])["outputs"])]

net = torch.export.load("own.pt2").module().requires_grad_()
given = np.load("own.npz")
x, y = torch.from_numpy(given["x"]), torch.from_numpy(given["target"])
optimiser = torch.optim.Adam(net.parameters(), 0.02)
losses = []
for _ in range(30):
    loss = torch.nn.functional.cross_entropy(net(x)["output"], y)
    losses.append(loss.item())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
found["losses"] = losses
assert not [name for name in sys.modules if name.startswith("polyarch.")]
print(json.dumps(found))
"""


def as_floats(x):
    """Bytes as the numbers that they are."""
    return x.float() if x.dtype == torch.uint8 else x


def test_programs_run_where_there_is_no_polyarch(runs, tmp_path):
    for name, run in runs.items():
        run.save(tmp_path / f"{name}.pt2")
        test = run.task().test
        said = run.model()(test.x)
        np.savez(tmp_path / name, x=as_floats(test.x).numpy(), y=said.numpy(), target=test.y.numpy())
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, json.dumps(list(runs))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    losses = found.pop("losses")
    assert losses[-1] < 0.9 * losses[0]
    for name, (worst, outputs) in found.items():
        numbers = name == "own depth of numbers"  # around a thousand
        assert worst <= (1e-5 * 1000 if numbers else 1e-5), name
        assert outputs == ["output", "mean", "std" if numbers else "entropy"]


def test_weights_by_their_names(runs, tmp_path):
    for name, run in runs.items():
        run.save(tmp_path / "net.safetensors")
        weights = load_file(tmp_path / "net.safetensors")
        assert weights.keys() == run.model().state_dict().keys(), name
        model = run.model()
        with torch.no_grad():
            for value in model.parameters():
                value.zero_()
        model.load_state_dict(weights)
        x = run.task().test.x
        assert torch.equal(model(x), run.model()(x))


@pytest.mark.parametrize("name", ["own", "cell", "depth"])
def test_a_model_is_trained_further_and_saved(runs, tmp_path, name):
    run = runs[name]
    deepest = run.space.parse("depth=3") if name == "depth" else run.architecture  # the selected one is linear
    train, model = run.task().train, run.model(deepest).requires_grad_().train()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(15):
        loss = nn.functional.cross_entropy(model(train.x), train.y)
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[-1] < 0.9 * losses[0]
    run.save(tmp_path / "further.pt2", model)
    assert model.training  # the caller's own stays as it is
    program = torch.export.load(tmp_path / "further.pt2").module()
    x = run.task().test.x
    answers = program(as_floats(x))
    assert torch.allclose(answers["output"], model.eval()(x), atol=1e-5)
    assert torch.allclose(answers["mean"], model(x).softmax(-1), atol=1e-5)
    assert not torch.allclose(answers["output"], run.model()(x), atol=1e-3)


def branching():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = vectors()

        def forward(self, x):
            return self.layers(x) if x.sum() > 0 else self.layers(-x)

    return Branching()


def test_what_cannot_be_saved_is_said(runs, tmp_path):
    run = runs["own"]
    for path, says in {
        "net.pth": "end in .onnx or .pt2 for what runs without polyarch, or in .safetensors for weights",
        "net": "does not say what to write",
        "nowhere/net.pt2": "cannot write",
    }.items():
        with pytest.raises(PolyarchError, match=says):
            run.save(tmp_path / path)
    with pytest.raises(PolyarchError, match=r"torch.export cannot follow this network .*its weights alone") as caught:
        run.save(tmp_path / "net.pt2", nn.Sequential(run.model()[0], branching()))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
