"""Runs that are killed, interrupted, damaged, out of room or diverging; and two that want the same folder."""

import io
import logging
import resource
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from commandline import POLYARCH, SMALL, SPIRALS, TINY, assert_same_run, check_one_line, cli, files, refused

from polyarch.runs import search as searching
from polyarch.runs.run import read_history
from polyarch.runs.search import resume

LONGER = (*SPIRALS, *SMALL, "--set", "epochs=500", "--set", "stopping.split=never")
"""A search of a few seconds: long enough to be caught in the act."""


def flip(path: Path, place: int):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def resumed(folder: Path) -> str:
    """Goes on with a run in Python, which spares the report; what the library logged, as the command line prints it."""
    err, logger = io.StringIO(), logging.getLogger("polyarch")
    handler = logging.StreamHandler(err)
    handler.setFormatter(logging.Formatter("polyarch: %(message)s"))
    logger.addHandler(handler)
    try:
        resume(folder)
    finally:
        logger.removeHandler(handler)
    return err.getvalue()


def cut(path: Path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


# ---------------------------------------------------------------------------------------------------------------------
# Resuming.


def test_resume_ends_bit_equal_to_a_run_that_was_never_interrupted(interrupted, finished):
    said = cli("search", "--resume", "--out", interrupted)
    assert said.code == 0
    assert "damaged" not in said.err
    assert_same_run(interrupted, finished)


def test_resuming_a_finished_run_prints_its_result(own_copy):
    expected = cli("show", own_copy, "--json").json
    assert cli("search", "--resume", "--out", own_copy, "--json").json == expected
    assert cli("search", "--resume", "--out", own_copy, "--json").err == ""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--seed", "1"), "--seed 1 conflicts"),
        (("--repeats", "2"), "--repeats 2 conflicts"),
        (("--device", "cuda"), "--device cuda conflicts"),
        (("--data", "digits"), "--data digits conflicts"),
        (("--data", "digit"), "did you mean 'digits'?"),
        (("--method", "fixed-depth"), "--method fixed-depth conflicts"),
        (("--method", "variational-depth-images"), "which has"),
        (("--space", "polyarch.testing.toy:Lines"), "polyarch.testing.toy:Lines conflicts"),
        (("--set", "epochs=7"), "epochs=7 conflicts"),
        (("--set", "points=80"), "points=80 conflicts"),
        (("--set", "width=5"), "width=5 conflicts"),
        (("--set", "prior=uniform"), "prior=uniform conflicts"),
        (("--set", "selection=95%"), "selection=95% conflicts"),
        (("--set", "epoch=6"), "did you mean 'epochs'?"),
        (("--baselines", "3"), "'3' is no depth of this space"),
    ],
)
def test_a_flag_that_conflicts_with_the_run(interrupted, flags, says):
    before = files(interrupted)
    said = refused("search", "--resume", *flags, "--out", interrupted, says=says)
    assert "leave it out" in said.err or "did you mean" in said.err or "write some of" in said.err
    assert files(interrupted) == before


def test_flags_that_repeat_what_the_run_was_told(interrupted, tmp_path, monkeypatch):
    names = ("--space", "polyarch.spaces.depth:ResidualDepth", "--method", "variational-depth", "--seed", "0")
    rules = ("--set", "selection=auto", "--set", "prior=exponential", "--device", "auto")
    assert cli("search", "--resume", *TINY, *names, *rules, "--out", interrupted).code == 0
    # A preset's name and a relative path mean what they meant.
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", x=np.random.default_rng(0).normal(size=(40, 2)), y=np.arange(40) % 2)
    told = ("--data", "d.npz", "--method", "variational-depth-spirals", *SMALL, "--set", "epochs=2", "--out", "run")
    assert cli("search", *told).code == 0
    assert cli("search", "--resume", *told).code == 0
    monkeypatch.chdir("/")
    assert cli("search", "--resume", "--out", tmp_path / "run").code == 0
    refused("search", "--resume", "--data", "d.npz", "--out", tmp_path / "run", says="d.npz")


def test_data_that_changed(tmp_path):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=random.normal(size=(40, 2)), y=np.arange(40) % 2)
    out = tmp_path / "run"
    assert cli("search", "--data", tmp_path / "d.npz", *SMALL, "--set", "epochs=1", "--out", out).code == 0
    (out / "result.json").unlink()
    np.savez(tmp_path / "d.npz", x=random.normal(size=(40, 2)), y=np.arange(40) % 2)
    refused("search", "--resume", "--out", out, says=("no longer what this run was made with", "restore the data"))
    (tmp_path / "d.npz").unlink()
    refused("search", "--resume", "--out", out, says="no such file")


# ---------------------------------------------------------------------------------------------------------------------
# Damage.


@pytest.mark.parametrize(
    "damage", [cut, lambda path: flip(path, -1), lambda path: flip(path, 60), lambda path: path.write_bytes(b"")]
)
def test_the_checkpoint_before_a_damaged_one_is_used_and_that_is_said(interrupted, finished, damage):
    before, last = sorted(interrupted.glob("checkpoint-*"))
    damage(last)
    notice = resumed(interrupted)
    check_one_line(notice)
    assert f"{last} is damaged" in notice
    assert f"going on from {before.name}" in notice
    assert_same_run(interrupted, finished)


def test_damage_is_said_on_the_command_line_too(interrupted, finished):
    for path in interrupted.glob("checkpoint-*"):
        flip(path, -1)
    said = cli("search", "--resume", "--out", interrupted, "--json")
    assert said.json["seed"] == 0
    assert said.err.count("polyarch: ") == 1
    check_one_line(said.err.splitlines(keepends=True)[0], "starting from the beginning")
    assert_same_run(interrupted, finished)


def test_all_checkpoints_damaged_starts_from_the_beginning_and_says_so(interrupted, finished):
    for path in interrupted.glob("checkpoint-*"):
        cut(path)
    notice = resumed(interrupted)
    check_one_line(notice)
    assert notice.endswith("starting from the beginning\n")
    assert_same_run(interrupted, finished)


@pytest.mark.parametrize("kept", [0, 1, 2.5, 3.5])
def test_metrics_that_lost_lines(interrupted, finished, kept):
    path = interrupted / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 4
    text = "".join(lines[: int(kept)]) + (lines[int(kept)][:20] if kept % 1 else "")
    path.write_text(text)
    notice = resumed(interrupted)
    check_one_line(notice, "is shorter than when")
    assert ("from the beginning" in notice) == (kept < 3)
    assert_same_run(interrupted, finished)


@pytest.mark.parametrize("extra", ["", '{"epoch": 5, "torn', '{"epoch": 5}\n{"ep'])
def test_metrics_written_after_the_checkpoint_are_written_again(interrupted, finished, extra):
    with (interrupted / "metrics.jsonl").open("a") as file:
        file.write(extra)
    assert resumed(interrupted) == ""
    assert_same_run(interrupted, finished)


def test_odd_files_are_no_checkpoints(interrupted, finished):
    (interrupted / "checkpoint-000001 (copy).safetensors").write_text("x")
    (interrupted / "checkpoint-old.safetensors").write_text("x")
    assert resumed(interrupted) == ""
    assert_same_run(interrupted, finished)


@pytest.mark.parametrize("damage", [cut, lambda path: flip(path, 200), lambda path: flip(path, -20), Path.unlink])
@pytest.mark.parametrize(
    ("name", "verbs"),
    [
        ("weights.safetensors", ("evaluate", "report")),
        ("config.json", ("show", "evaluate", "report", "resume")),
        ("result.json", ("show", "report", "resume")),
        ("architecture.json", ("evaluate", "report")),
    ],
)
def test_a_finished_run_that_was_damaged(own_copy, name, verbs, damage):
    path = own_copy / name
    if name == "architecture.json" and damage.__name__ == "<lambda>":
        flip(path, 25)
    else:
        damage(path)
    if path.exists() or name != "result.json":
        for verb in verbs:
            arguments = ("search", "--resume", "--out", own_copy) if verb == "resume" else (verb, own_copy)
            refused(*arguments, says=str(own_copy))


def test_damaged_weights_can_be_written_again(own_copy, finished):
    flip(own_copy / "weights.safetensors", -1)
    said = refused("evaluate", own_copy, says=("weights.safetensors is damaged", "result.json", "--resume"))
    assert f"polyarch search --resume --out {own_copy}" in said.err
    (own_copy / "result.json").unlink()
    assert resumed(own_copy) == ""
    assert_same_run(own_copy, finished)


@pytest.mark.parametrize("missing", ["result.json", "architecture.json", "weights.safetensors"])
def test_killed_while_finishing(own_copy, finished, missing):
    """Files are written in the order weights, architecture, distribution, result."""
    names = ["weights.safetensors", "architecture.json", "distribution.json", "result.json"]
    for name in names[names.index(missing) :]:
        (own_copy / name).unlink()
    (own_copy / f".{missing}.99.part").write_text("half")
    assert resumed(own_copy) == ""
    assert_same_run(own_copy, finished)


def test_repeats_killed_while_finishing(tmp_path):
    whole = tmp_path / "whole"
    assert cli("search", *TINY, "--repeats", 2, "--out", whole).code == 0
    torn = shutil.copytree(whole, tmp_path / "torn")
    (torn / "result.json").unlink()
    for name in ("result.json", "weights.safetensors", "metrics.jsonl"):
        (torn / "seed-1" / name).unlink()
    (torn / "seed-1" / ".metrics.jsonl.99.part").write_text("half")
    refused("show", torn, says=f"{torn} is not finished")
    assert resumed(torn) == ""
    for seed in ("seed-0", "seed-1"):
        assert_same_run(torn / seed, whole / seed)


# ---------------------------------------------------------------------------------------------------------------------
# No room.


@contextmanager
def small_disk(folder: Path):
    """A file system of half a megabyte."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("pages", [0, 1, 2, 11, 12, 14, 16])
def test_a_full_disk(tmp_path, finished, pages):
    with small_disk(tmp_path / "disk"):
        out, filler = tmp_path / "disk" / "run", tmp_path / "disk" / "filler"
        filler.write_bytes(bytes(512 * 1024 - 4096 * pages))
        said = cli("search", *TINY, "--out", out)
        assert said.code == 2
        check_one_line(said.err.splitlines(keepends=True)[-1], ("no room left to write", "free some space", "--resume"))
        assert (out / "config.json").exists() == (pages > 0)
        assert out.exists() == (pages > 0)
        assert not list(out.rglob(".*.part"))
        filler.unlink()
        if not pages:
            assert cli("search", *TINY, "--out", out).code == 0
        assert resumed(out) == ""
        assert_same_run(out, finished)


@contextmanager
def largest_file(size: int):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [100, 3000, 4000, 20_000])
def test_a_limit_on_the_size_of_files(tmp_path, finished, size):
    out = tmp_path / "run"
    with largest_file(size):
        said = cli("search", *TINY, "--out", out)
    assert said.code == 2
    check_one_line(said.err.splitlines(keepends=True)[-1], ("no room left to write", "free some space", "--resume"))
    assert out.exists() == (size > 100)
    if out.exists():
        assert resumed(out) == ""
        assert_same_run(out, finished)


# ---------------------------------------------------------------------------------------------------------------------
# Divergence.


def test_a_search_that_diverges_at_once(tmp_path):
    out = tmp_path / "run"
    says = ("training diverged", "after epoch 1", "with weights.lr=1e+20", "in another --out")
    advice = "--set weights.lr=0.1 --set weights.grad_clip=5"
    for command in (("search", *TINY, "--set", "weights.lr=1e20", "--out", out), ("search", "--resume", "--out", out)):
        said = cli(*command)
        assert said.code == 2
        begun, error = said.err.splitlines(keepends=True)
        assert begun == "search: 42 train, 18 select, 40 test examples\n"
        check_one_line(error, says)
        assert error.endswith(f", such as with {advice}\n")
        assert (out / "config.json").exists()
    assert cli("search", *TINY, "--set", "weights.lr=1e20", *advice.split(), "--out", tmp_path / "slower").code == 0


def test_what_is_not_standardised_is_told_to_be(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2))
    np.savez(tmp_path / "prices.npz", x=x, y=200_000 + 50_000 * x[:, 0])
    command = ("search", *SMALL, "--data", tmp_path / "prices.npz", "--set", "select=0.3", "--set", "epochs=20")
    said = cli(*command, "--set", "standardise=false", "--out", tmp_path / "run")
    assert said.code == 2
    _, advice = said.err.strip().split(", such as with ")
    assert advice == "--set standardise=true --set weights.lr=0.01 --set weights.grad_clip=5"
    found = cli(*command, *advice.split(), "--out", tmp_path / "again", "--json").json
    assert found["metrics"]["test"]["rmse"] < 50_000
    assert "looks like regression" in said.err
    assert "looks like regression" not in cli("evaluate", tmp_path / "again").err  # the run knows


def test_a_search_that_diverges_later_keeps_what_it_measured(tmp_path, monkeypatch):
    (tmp_path / "diverging.py").write_text(
        "from dataclasses import dataclass\n"
        "from polyarch.testing.toy import EnumeratedElbo\n"
        "calls = 0\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Diverging(EnumeratedElbo):\n"
        "    def evaluate(self, problem, state, split):\n"
        "        global calls\n"
        "        calls += 1\n"
        "        found = super().evaluate(problem, state, split)\n"
        "        return found | {'objective': found['objective'] * float('nan' if calls == 3 else 1)}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    np.savez(tmp_path / "line.npz", x=np.arange(40.0)[:, None], y=np.arange(40.0))
    toy = ("--space", "polyarch.testing.toy:Lines", "--method", "diverging:Diverging", "--set", "kind=regression")
    out = tmp_path / "run"
    said = cli("search", *toy, "--data", tmp_path / "line.npz", "--set", "select=0", "--out", out)
    assert said.code == 2
    says = ("training diverged", "after epoch 3", "lr=0.05", str(out / "metrics.jsonl"), "--set lr=0.005")
    check_one_line(said.err.splitlines(keepends=True)[-1], says)
    assert [line["epoch"] for line in read_history(out)] == [1, 2]
    assert (out / "config.json").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Real processes.


def started(*arguments) -> subprocess.Popen:
    """A process that Control-C reaches, also where the tests themselves run in the background and ignore it."""
    return subprocess.Popen(
        [POLYARCH, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def caught_learning(out: Path, *arguments) -> subprocess.Popen:
    """A command's process, once it has written metrics."""
    began = time.time()
    process = started(*arguments, "--out", out)
    path = out / "metrics.jsonl"
    while not path.exists() or path.stat().st_mtime < began:
        assert process.poll() is None, process.communicate()
        assert time.time() < began + 60
        time.sleep(0.005)
    return process


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert cli("search", *LONGER, "--out", out).code == 0
    return out


def test_a_live_run_is_left_alone_and_control_c_says_how_to_go_on(tmp_path, undisturbed):
    out = tmp_path / "a run"
    process = caught_learning(out, "search", *LONGER)
    config = (out / "config.json").read_bytes()
    refused("search", *LONGER, "--seed", 5, "--out", out, says="already holds a run")
    refused("search", "--resume", "--out", out, says=("is being written by another process", "wait for it"))
    assert process.poll() is None, "too quick to be caught"
    assert (out / "config.json").read_bytes() == config
    process.send_signal(signal.SIGINT)
    printed, err = process.communicate(timeout=30)
    assert (process.returncode, printed) == (130, "")
    check_one_line(
        err.splitlines(keepends=True)[-1], f"interrupted; go on with `polyarch search --resume --out '{out}'`"
    )
    assert "Traceback" not in err
    assert cli("search", "--resume", "--out", out).code == 0
    assert_same_run(out, undisturbed)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("run", "nothing had been learnt yet, so start again"),
        ("depth-1", "go on with `polyarch search --resume --out {} --baselines 0,1`"),
    ],
)
def test_control_c_before_the_run_and_in_a_baseline(tmp_path, monkeypatch, place, says):
    out, search = tmp_path / "run", searching.search

    def interrupt(*arguments, out, **settings):
        if out.name == place:
            raise KeyboardInterrupt
        return search(*arguments, out=out, **settings)

    with monkeypatch.context() as patched:
        patched.setattr(searching, "search", interrupt)
        said = cli("search", *TINY, "--baselines", "0,1", "--out", out)
    assert (said.code, said.out) == (130, "")
    check_one_line(said.err.splitlines(keepends=True)[-1], f"interrupted; {says.format(out)}")
    if place == "depth-1":
        assert cli("search", "--resume", "--out", out, "--baselines", "0,1").code == 0
        assert cli("show", out / "baselines" / "depth-1").code == 0
    else:
        assert not out.exists()


def test_killed_then_resumed(tmp_path, undisturbed):
    """Many more kills, at any moment: bench/faults.py."""
    out = tmp_path / "run"
    for flags in (LONGER, ("--resume",)):
        process = caught_learning(out, "search", *flags)
        process.kill()
        process.communicate()
        assert not (out / "result.json").exists(), "too quick to be caught"
    assert resumed(out) == ""
    assert_same_run(out, undisturbed)
