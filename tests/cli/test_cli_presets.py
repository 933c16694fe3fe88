"""Published searches from the command line, at a size that a test can have; and how they are listed."""

import numpy as np
import pytest
from commandline import cli, refused

from polyarch.runs.run import Run

TINY = {
    "nasbench201": ("channels=2", "cells=1"),
    "nasbench1shot1-3": ("channels=2", "cells=3"),
    "darts": ("channels=2", "layers=3"),
    "darts-parsec": ("channels=2", "layers=3"),
    "wiring-own": ("width=1", "channels=4", "nodes=2"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixty noisy images in CIFAR-10's own files."""
    random, home = np.random.default_rng(0), tmp_path_factory.mktemp("cifar")
    for name, count in [*((f"data_batch_{k}.bin", 12) for k in range(1, 6)), ("test_batch.bin", 10)]:
        rows = np.concatenate([np.arange(count)[:, None] % 10, random.integers(0, 256, (count, 3072))], 1)
        (home / name).write_bytes(rows.astype(np.uint8).tobytes())
    return home


def searched(preset, space, folder, out, *more):
    small = [word for value in TINY[space] for word in ("--set", f"space.{value}")]
    sizes = (
        "--set",
        "epochs=1",
        "--set",
        "method.batch_size=8",
        "--set",
        f"folder={folder}",
        "--repeats",
        1,
        "--no-train",
    )
    said = cli("search", "--preset", preset, *small, *sizes, "--out", out, "--device", "cpu", *more)
    assert said.code == 0, said.err
    return Run(out)


@pytest.mark.parametrize(
    ("preset", "space", "settings"),
    [
        ("darts-nasbench201-cifar10", "nasbench201", {"weights": {"nesterov": True}}),
        ("sotl-darts-nasbench201-cifar10", "nasbench201", {"objective": {"loss": "sotl"}}),
        ("single-path-nasbench201-cifar10", "nasbench201", {"weights": {"weight_decay": 5e-4}}),
        ("balenas-nasbench1shot1-cifar10", "nasbench1shot1-3", {"data_size": 0}),
        ("nsa-cifar10", "wiring-own", {"auxiliary": 0.1}),
    ],
)
def test_a_published_search(preset, space, settings, folder, tmp_path):
    run = searched(preset, space, folder, tmp_path / "run")
    assert run.config.data["name"] == "cifar10"
    examples = run.config.data["examples"]
    assert examples == ({"train": 60, "test": 10} if preset.startswith("nsa") else
                        {"train": 30, "select": 30, "test": 10})  # fmt: skip
    told = run.config.method["settings"]
    for name, value in settings.items():
        assert told[name] == value if not isinstance(value, dict) else value.items() <= told[name].items()
    assert told["augment"]["crop"] == 4


@pytest.mark.nightly
def test_parsec_is_tuned_with_towers(folder, tmp_path):
    few = ("--set", "samples=2")
    searched("parsec-cifar10", "darts-parsec", folder, tmp_path / "small", *few)
    tuned = searched(
        "parsec-tuning-cifar10", "darts-parsec", folder, tmp_path / "tuned", *few, "--belief-from", tmp_path / "small"
    )
    assert tuned.config.method["settings"]["auxiliary"] == 0.4
    assert tuned.config.space["settings"]["network"] == "evaluation"


def test_they_are_listed_with_sources():
    said = cli("list")
    assert "balenas-nasbench201-cifar10" in said.out
    found = cli("list", "--settings", "--json").json["presets"]["parsec-cifar10"]
    assert found["settings"]["method.samples"] == [16, "section 4.1"]
    assert "--repeats 2" in found["means"]
    assert "section 4.1:" in cli("list", "--settings").out


def test_bad_words(tmp_path, folder):
    refused("search", "--preset", "darts-cifar", "--out", tmp_path / "run", says="did you mean 'darts-cifar10'")
    run = searched("single-path-nasbench201-cifar10", "nasbench201", folder, tmp_path / "run")
    refused("search", "--resume", "--preset", "darts-cifar10", "--out", run.folder, says="leave it out")
    sizes = ("--set", f"folder={folder}", "--set", "cells=1", "--set", "channels=2", "--set", "method.batch_size=4")
    assert cli("doctor", "--preset", "darts-nasbench201-cifar10", *sizes).code == 0
