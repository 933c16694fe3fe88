"""What is to be seen of a search while it runs and afterwards: lines, a table, curves of TensorBoard."""

import csv
import json
import shutil

import pytest
from commandline import TINY, assert_same_run, cli, refused
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import polyarch as pa
from polyarch.callbacks import Checkpoints, Evaluation
from polyarch.runs.run import read_history
from polyarch.testing.callbacks import InterruptAfter

QUICK = (*TINY, "--no-plain")


def test_quiet_says_nothing_and_verbose_every_evaluation(tmp_path):
    quiet = cli("search", *QUICK, "--quiet", "--out", tmp_path / "quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out
    verbose = cli("search", *QUICK, "--verbose", "--out", tmp_path / "verbose")
    evaluations = [line for line in verbose.err.splitlines() if line.startswith("search: epoch ")]
    assert len(evaluations) == len(read_history(tmp_path / "verbose")) == 6
    assert_same_run(tmp_path / "quiet", tmp_path / "verbose")
    refused("search", *QUICK, "--quiet", "--out", tmp_path / "quiet", says="already holds a run")
    told = cli("search", *QUICK, "--verbose", "--out", tmp_path / "quiet")
    assert "Traceback" in told.err
    assert told.err.splitlines()[-1].startswith("polyarch: ")
    assert "Traceback" not in cli("search", *QUICK, "--out", tmp_path / "quiet").err  # not remembered


def test_metrics_are_a_table_with_a_row_for_every_evaluation(tmp_path, finished):
    def table(folder):
        with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    rows, lines = table(finished), read_history(finished)
    assert [int(row["epoch"]) for row in rows] == [line["epoch"] for line in lines]
    for row, line in zip(rows, lines, strict=True):
        assert float(row["select.accuracy"]) == line["select"]["accuracy"]
        assert [float(row[f"probs.depth.{k}"]) for k in range(3)] == line["probs"]["depth"]
        assert float(row["seconds"]) == line["seconds"]
    out = tmp_path / "repeats"
    assert cli("search", *QUICK, "--repeats", "2", "--out", out).code == 0
    assert not (out / "metrics.csv").exists()
    for home in (out / "seed-0", out / "seed-1"):
        assert len(table(home)) == len(read_history(home))


def curve(folder, tag):
    events = EventAccumulator(str(folder)).Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_curves_of_tensorboard_are_the_metrics_also_of_a_search_that_was_interrupted(tmp_path):
    """Interrupted between checkpoints, it repeats an epoch: curves have it once."""
    out, board = tmp_path / "run", tmp_path / "curves"
    space, task = pa.spaces.ResidualDepth(max_depth=2, width=4), pa.data.load("spirals", points=60, select=0.3)
    method = pa.methods.VariationalDepth(epochs=6, batch_size=20)
    first = [pa.callbacks.TensorBoard(board), Checkpoints(seconds=1e6), InterruptAfter(4)]
    with pytest.raises(KeyboardInterrupt):
        pa.search(space, task, method, out=out, compute=pa.Compute("cpu"), callbacks=first)
    pa.resume(out, callbacks=[pa.callbacks.TensorBoard(board)])
    lines = read_history(out)
    for tag, value in {"select/accuracy": "select.accuracy", "probs/depth/1": "probs.depth.1"}.items():
        group, name, *option = value.split(".")
        expected = [line[group][name][int(option[0])] if option else line[group][name] for line in lines]
        found = curve(board, tag)
        assert [step for step, _ in found] == [1, 2, 3, 4, 5, 6]
        assert [one for _, one in found] == pytest.approx(expected)


def test_stages_and_repeats_have_curves_of_their_own(tmp_path):
    space = pa.spaces.ResidualDepth(max_depth=2, width=4)
    board = pa.callbacks.TensorBoard(tmp_path)
    for stage in range(2):
        for epoch in (1, 2):
            line = {"stage": stage, "epoch": epoch, "entropy": [stage + epoch / 8, 10.0], "truth": [None, 3.0]}
            board.on_evaluation(Evaluation(line, space, space.random(), {}, epochs=2, stages=2, repeats=2))
    for stage in range(2):
        home = tmp_path / f"stage-{stage}"
        assert curve(home / "repeat-0", "entropy") == [(1, stage + 0.125), (2, stage + 0.25)]
        assert curve(home / "repeat-1", "truth") == [(1, 3.0), (2, 3.0)]


def test_the_command_line_writes_curves_beneath_the_run(tmp_path):
    out = tmp_path / "run"
    assert cli("search", *QUICK, "--tensorboard", "--out", out).code == 0
    assert len(curve(out / "tensorboard", "select/accuracy")) == 6
    assert cli("train", out, "--set", "epochs=2", "--tensorboard", "--out", tmp_path / "trained").code == 0
    assert len(curve(tmp_path / "trained" / "tensorboard", "entropy")) == 2


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    refused("search", *QUICK, "--tensorboard", "--out", tmp_path / "run", says="install polyarch[tensorboard]")
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------------------------------
# The same search again.


@pytest.mark.parametrize("told", ["config.json", "toml"])
def test_a_search_is_repeated_bit_equal(tmp_path, finished, told):
    file = finished / "config.json"
    if told == "toml":
        file = tmp_path / "tiny.toml"
        file.write_text(
            'data = "spirals"\ndevice = "cpu"\nno-plain = true\n[set]\npoints = 60\ntest_points = 40\n'
            "by_data = false\nepochs = 6\nbatch_size = 20\n[set.data]\nselect = 0.3\n"
            "[set.space]\nmax_depth = 2\nwidth = 4\n"
        )
    assert cli("search", "--config", file, "--no-plain", "--out", tmp_path / "again").code == 0
    assert_same_run(finished, tmp_path / "again")
    ours, theirs = (json.loads((folder / "config.json").read_text()) for folder in (finished, tmp_path / "again"))
    assert ours == theirs


def test_what_is_said_beside_a_config_has_the_last_word(tmp_path, finished):
    shutil.copy(finished / "config.json", tmp_path / "mine.json")  # by any name, away from its run
    out = tmp_path / "other"
    other = ("--seed", "1", "--set", "epochs=2", "--space", "depth", "--data", "digits", "--set", "batch_size=64")
    assert cli("search", "--config", tmp_path / "mine.json", *other, "--no-plain", "--out", out).code == 0
    held = pa.open_run(out).config
    assert (held.seed, held.method["settings"]["epochs"], held.space["settings"]["width"]) == (1, 2, 4)
    assert held.data["name"] == "digits"
    assert held.data["source"]["settings"]["select"] == 0.3
    assert (
        cli("search", "--config", out / "config.json", "--seed", "0", "--no-plain", "--out", tmp_path / "0").code == 0
    )
    assert pa.open_run(tmp_path / "0").seed == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sede = 3", ("unknown option in", "did you mean 'seed'?")),
        ('seed = "a"', ("seed is a whole number, not 'a'",)),
        ("seed = true", ("seed is a whole number, not True",)),
        ("set = 3", ("set is a table",)),
        ("[set]\nepohcs = 3", ("unknown setting 'epohcs'", "epochs")),
        ("seed = ", ("neither a run's config.json nor a TOML",)),
        (None, ("No such file",)),
    ],
)
def test_a_file_that_is_wrong_is_said_to_be(tmp_path, text, says):
    file = tmp_path / "my.toml"
    if text is not None:
        file.write_text(text)
    refused("search", "--config", file, "--out", tmp_path / "run", says=says)
    assert not (tmp_path / "run").exists()


def test_what_a_config_cannot_be_for_is_said(tmp_path, own_copy):
    config, out = own_copy / "config.json", tmp_path / "run"
    refused("search", "--config", config, "--preset", "darts-cifar10", "--out", out, says="give one of them")
    refused("search", "--resume", "--config", config, "--out", own_copy, says="--config is for a new run")
    values = json.loads(config.read_text())
    values.pop("digest")
    values["data"]["fingerprint"] = "another"
    config.write_text(json.dumps(values))
    refused("search", "--config", config, "--out", out, says="no longer what this run was made with")
    values["data"]["source"] = None
    config.write_text(json.dumps(values))
    refused("search", "--config", config, "--out", out, says="came from memory")
    config.write_text("{}")
    refused("search", "--config", config, "--out", out, says="has format None")
    assert not out.exists()


# ---------------------------------------------------------------------------------------------------------------------
# Devices.


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("cuda:1", ("no CUDA device is available", "--device cpu")),
        ("gpu", ("device must be auto, cpu, cuda",)),
        ("cuda:", ("such as cuda:1",)),
        ("cuda:-1", ("such as cuda:1",)),
    ],
)
def test_a_device_that_is_not_here_is_said(tmp_path, finished, device, says):
    arch = ("--arch", "depth=1", "--input", "2", "--classes", "2", "--latency")
    commands = [("search", *QUICK), ("train", finished), ("cost", "--space", "depth", *arch)]
    for command in commands:
        out = () if command[0] == "cost" else ("--out", tmp_path / "run")
        refused(*command, *out, "--device", device, says=says)
    refused("trust", finished, "--train", "2", "--device", device)
    assert not (tmp_path / "run").exists()


def test_one_of_several_cuda_devices_is_named(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert str(pa.Compute("cuda:1").find_device()) == "cuda:1"
    with pytest.raises(pa.PolyarchError, match="there is no cuda:2 here; torch sees cuda:0, cuda:1"):
        pa.Compute("cuda:2").find_device()
