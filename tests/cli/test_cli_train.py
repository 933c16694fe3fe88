"""`polyarch train`: one network, from a space or from a search; the same folder, resume and report as a search."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from commandline import assert_same_run, cli, files, refused, timeless

import polyarch as pa
from polyarch import catalogue
from polyarch.runs.run import open_run
from polyarch.settings import dotted, plain

CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
OTHER = "|skip_connect~0|+|none~0|nor_conv_1x1~1|+|avg_pool_3x3~0|none~1|skip_connect~2|"
SMALL = ("--space", "nasbench201", "--set", "channels=2", "--set", "cells=1", "--device", "cpu")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path, random = tmp_path_factory.mktemp("images") / "images.npz", np.random.default_rng(0)
    np.savez(path, x=random.integers(0, 256, (48, 1, 8, 8), np.uint8), y=np.arange(48) % 3)
    return path


@pytest.fixture(scope="module")
def searched(images, tmp_path_factory):
    out = tmp_path_factory.mktemp("searched") / "run"
    learnt = ("--method", "parsec", "--set", "epochs=1", "--set", "samples=2", "--set", "batch_size=8")
    assert cli("search", *SMALL, *learnt, "--data", images, "--set", "select=0.3", "--no-train", "--out", out).code == 0
    return out


@pytest.fixture(scope="module")
def told(images):
    """A training of a few steps, with every sort of randomness in it."""
    changed = ("--set", "crop=1", "--set", "flip=true", "--set", "cutout=2")
    return (*SMALL, "--arch", CELL, "--data", images, *changed, "--set", "epochs=4", "--set", "batch_size=8")


@pytest.fixture(scope="module")
def trained(told, tmp_path_factory):
    """A training that was never disturbed; look, but do not touch."""
    out = tmp_path_factory.mktemp("trained") / "run"
    assert cli("train", *told, "--out", out).code == 0
    return out


def settings(folder, group="method"):
    return getattr(open_run(folder).config, group)["settings"]


def test_a_known_good_cell_learns_digits(tmp_path):
    small = ("--set", "channels=4", "--set", "cells=1", "--set", "epochs=8", "--set", "batch_size=64")
    told = ("train", "--space", "nasbench201", "--arch", CELL, "--data", "digits", *small, "--out", tmp_path / "run")
    found = cli(*told, "--json").json
    assert found["metrics"]["test"]["accuracy"] >= 0.97
    assert found["architecture"] == CELL
    assert found["cost"]["selected"] == plain(
        pa.spaces.NasBench201(channels=4, cells=1).cost(
            pa.spaces.NasBench201().parse(CELL), pa.data.load("digits").shape
        )
    )
    assert (tmp_path / "run" / "report.html").exists()


# ---------------------------------------------------------------------------------------------------------------------
# From a search.


def test_what_a_search_selected(tmp_path, searched):
    """Its architecture, space, data and their settings; weights are fresh, in the form of evaluation."""
    out = tmp_path / "run"
    found = cli("train", searched, "--set", "epochs=1", "--out", out, "--json").json
    source, run = open_run(searched), open_run(out)
    assert found["architecture"] == str(source.architecture)
    assert found["method"] == "standalone"
    assert run.config.space == source.config.space
    assert run.config.data == source.config.data
    assert run.config.weights_from == ""
    assert settings(out) == plain(pa.methods.Standalone(architecture=str(source.architecture), epochs=1))
    space = source.config.make_space().evaluated()
    expected = space.build(source.architecture, run.config.shape())
    assert run.model()[1].state_dict().keys() == expected.state_dict().keys()
    assert not torch.equal(source.model()[1].stem.conv.weight, run.model()[1].stem.conv.weight)


def test_another_architecture_other_data_several_seeds(tmp_path, searched):
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(1).random((30, 3, 6, 6)), y=np.arange(30) % 2)
    out = tmp_path / "run"
    given = ("--arch", OTHER, "--data", tmp_path / "d.npz", "--set", "channels=3", "--set", "epochs=1")
    found = cli("train", searched, *given, "--repeats", 2, "--seed", 5, "--out", out, "--json").json
    assert [run["seed"] for run in found["runs"]] == [5, 6]
    assert {run["architecture"] for run in found["runs"]} == {OTHER}
    assert settings(out / "seed-5", "space") == {**settings(searched, "space"), "channels": 3}
    assert settings(out / "seed-6", "space") == settings(out / "seed-5", "space")
    first, second = (open_run(out / f"seed-{seed}") for seed in (5, 6))
    assert not torch.equal(*(r.model().state_dict()["1.head.weight"] for r in (first, second)))
    assert first.config.shape().input == (3, 6, 6)
    refused("train", out, "--out", tmp_path / "no", says=("holds 2 repeats", f"seed-{found['best']}, the best"))


def test_inherited_weights(tmp_path, searched):
    """So small a rate changes nothing that a float can hold, but for the statistics of batch norm."""
    out = tmp_path / "run"
    still = ("--set", "epochs=1", "--set", "weights.lr=1e-30", "--set", "weight_decay=0")
    assert cli("train", searched, "--inherit", *still, "--out", out).code == 0
    source, run = open_run(searched), open_run(out)
    assert run.config.weights_from == str(searched)
    assert settings(out)["network"] == "search"
    expected = dict(source.model().named_parameters())
    assert dict(run.model().named_parameters()).keys() == expected.keys()
    for name, value in run.model().named_parameters():
        assert torch.equal(value, expected[name]), name
    # And on from there, in the form of that run, whatever it was.
    assert cli("train", out, "--inherit", *still, "--out", tmp_path / "again").code == 0
    assert torch.equal(open_run(tmp_path / "again").model()[1].head.weight, run.model()[1].head.weight)


def test_a_trained_network_is_trained_further(tmp_path, trained):
    out = tmp_path / "run"
    assert cli("train", trained, "--inherit", "--set", "epochs=1", "--set", "weights.lr=1e-30", "--out", out).code == 0
    assert settings(out)["network"] == "evaluation"
    before, after = (r.model()[1].head.weight for r in (open_run(trained), open_run(out)))
    assert torch.equal(before, after)


def test_a_published_recipe(tmp_path, images):
    out = tmp_path / "run"
    given = ("--arch", OTHER, "--data", images, "--recipe", "nasbench201-12", "--set", "epochs=1")
    assert cli("train", *SMALL, *given, "--out", out).code == 0
    recipe = catalogue.METHODS["standalone-nasbench201-12"].settings
    assert recipe["epochs"] == 12
    for name, value in (recipe | {"epochs": 1, "architecture": OTHER}).items():
        assert dotted(pa.methods.Standalone, settings(out))[name] == value, name
    # Told again, resuming is content with it; the recipe alone has other epochs.
    assert cli("train", "--resume", *SMALL, *given, "--out", out).code == 0
    refused("train", "--resume", "--recipe", "nasbench201-12", "--out", out, says="epochs=12 conflicts")


# ---------------------------------------------------------------------------------------------------------------------
# Its folder.


KILLED = """
import os, signal
from polyarch.callbacks import Callback, Checkpoints
from polyarch.cli.main import run
from polyarch.runs import search as searching

begin = searching.search

class Kill(Callback):
    def on_evaluation(self, evaluation):
        if evaluation.metrics["epoch"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)

def at_every_epoch(*arguments, callbacks, **settings):
    return begin(*arguments, callbacks=[Checkpoints(seconds=0), Kill()], **settings)

searching.search = at_every_epoch
run()
"""


def test_killed_and_resumed(tmp_path, told, trained):
    """A checkpoint after every epoch, and the process killed after the second."""
    out = tmp_path / "run"
    arguments = [sys.executable, "-c", KILLED, "train", *map(str, told), "--out", str(out)]
    threads = os.environ | {"OMP_NUM_THREADS": "1"}  # as many as here: sums are taken in another order by more
    killed = subprocess.run(arguments, capture_output=True, text=True, check=False, env=threads)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [line["epoch"] for line in timeless(out)] == [1, 2]
    assert len(list(out.glob("checkpoint-*"))) == 2
    assert cli("train", "--resume", "--out", out).code == 0
    assert_same_run(out, trained)


def test_what_reads_a_search_reads_a_training(tmp_path, trained, images):
    found = cli("show", trained, "--json").json
    assert cli("train", "--resume", "--out", trained, "--json").json == found
    assert found["distribution"]["entropy"] == 0
    assert "ensemble" not in str(found["metrics"].keys())
    judged = cli("evaluate", trained, "--json").json
    assert judged["metrics"]["selected"]["accuracy"] == pytest.approx(found["metrics"]["test"]["accuracy"])
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 1, 8, 8), np.uint8))
    predicted = json.loads(cli("predict", trained, "--inputs", tmp_path / "x.npz", "--json").out)
    assert len(predicted["predictions"]) == 2


# ---------------------------------------------------------------------------------------------------------------------
# Bad input.


@pytest.fixture
def out(tmp_path):
    """Where a run would go, which must not exist afterwards."""
    folder = tmp_path / "run"
    yield folder
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "say what to train: --space S --arch TEXT, or the folder of a search"),
        (("--space", "nasbench201"), "say what to train"),
        (("--arch", CELL), "say what to train"),
        (("--space", "nasbench201", "--arch", ""), "say what to train"),
        ((*SMALL, "--arch", CELL, "--inherit"), "--inherit takes the weights of a search; give its folder"),
        ((*SMALL, "--arch", CELL, "--recipe", "dart"), "unknown recipe 'dart'; did you mean 'darts'?"),
        ((*SMALL, "--arch", "depth=3"), "is no cell of nasbench201"),
        ((*SMALL, "--arch", CELL.replace("skip", "slip")), "did you mean 'skip_connect'?"),
        ((*SMALL, "--arch", CELL.replace("~2", "~3")), "cyclic"),
        ((*SMALL, "--arch", CELL.replace("nor_conv_3x3~2|", "")), "has 5 edges"),
        ((*SMALL, "--arch", CELL, "--set", "cutout=9"), ("cutout is 9", "8x8", "set cutout to 8 or less")),
        ((*SMALL, "--arch", CELL, "--recipe", "darts"), ("cutout is 16", "set cutout to 8 or less")),
        ((*SMALL, "--arch", CELL, "--set", "drop_path=1"), "drop_path is 1.0; it must be at least 0 and below 1"),
        ((*SMALL, "--arch", CELL, "--set", "drop_pth=0.1"), "did you mean 'drop_path'?"),
        ((*SMALL, "--arch", CELL, "--set", "network=search"), "write space.network or method.network"),
        ((*SMALL, "--arch", CELL, "--set", "selection=best"), "unknown selection rule 'best'"),
        ((*SMALL, "--arch", CELL, "--set", "prior=unifrm"), "did you mean 'uniform'?"),
        ((*SMALL, "--arch", CELL, "--set", "weights.lr=0"), "lr is 0.0; it must be above 0"),
        ((*SMALL, "--arch", CELL, "--data", "spirals"), "needs images"),
        ((*SMALL, "--arch", CELL, "--repeats", "0"), "repeats must be 1 or more"),
        ((*SMALL, "--arch", CELL, "--seed", "-1"), "seed must be 0 or more"),
        (("--space", "depht", "--arch", "depth=1"), "did you mean 'depth'?"),
        (("--space", "depth", "--arch", "depth=21"), "unknown option of depth '21'"),
        (("absent",), "holds no run"),
        (("absent", "--inherit"), "holds no run"),
        (("--resume",), "holds no run"),
    ],
)
def test_bad_input(out, arguments, says):
    refused("train", *arguments, "--out", out, says=says)


def test_a_search_that_does_not_fit(out, searched, tmp_path):
    refused("train", searched, "--space", "nasbench201", "--out", out, says="give one of them")
    refused("train", searched, "--arch", "depth=1", "--out", out, says="is no cell of nasbench201")
    for wider in (("--set", "channels=3"), ("--data", "digits")):
        says = ("inherited weights do not fit", "train it from scratch")
        refused("train", searched, "--inherit", *wider, "--out", out, says=says)
    unfinished = shutil.copytree(searched, tmp_path / "unfinished")
    (unfinished / "result.json").unlink()
    refused("train", unfinished, "--out", out, says="is not finished")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--arch", OTHER), ("architecture=", "conflicts with the run")),
        (("--recipe", "darts"), "conflicts with the run"),
        (("--space", "depth"), "--space depth conflicts"),
        (("--data", "digits"), "--data digits conflicts"),
        (("--seed", "1"), "--seed 1 conflicts"),
        (("--repeats", "2"), "--repeats 2 conflicts"),
        (("--set", "epochs=7"), "epochs=7 conflicts"),
        (("--set", "channels=3"), "channels=3 conflicts"),
        (("--set", "selection=95%"), "use argmax"),
        (("--inherit",), "leave --inherit out"),
        (("elsewhere",), "leave RUN out"),
    ],
)
def test_a_flag_that_conflicts_with_the_run(trained, flags, says):
    before = files(trained)
    refused("train", "--resume", *flags, "--out", trained, says=says)
    assert files(trained) == before


def test_flags_that_repeat_what_the_run_was_told(trained, told):
    before = files(trained)
    assert cli("train", "--resume", *told, "--seed", 0, "--out", trained).code == 0
    changed = {name for name, content in files(trained).items() if before[name] != content}
    assert changed <= {"report.html"}
