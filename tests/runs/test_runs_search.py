"""`search` and `resume` in Python: stages, priors, memory, ranks of files; and several processes at one folder."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.callbacks import Checkpoints
from polyarch.core import Stage
from polyarch.distributions import Categorical, uniform
from polyarch.files import read_json, write_json
from polyarch.runs import preparing
from polyarch.runs.config import CONFIG, FORMAT
from polyarch.runs.examples import EXAMPLES
from polyarch.runs.run import METRICS, WEIGHTS, Run, open_repeats, read_history
from polyarch.runs.search import resume, search
from polyarch.testing.callbacks import InterruptAfter
from polyarch.testing.toy import EnumeratedElbo, Lines, toy_task
from polyarch.training import checkpoints

SPACE = pa.spaces.ResidualDepth(max_depth=2, width=4)
METHOD = pa.methods.VariationalDepth(epochs=5, batch_size=20)


@pytest.fixture(scope="module")
def task():
    return pa.data.load("spirals", points=60, test_points=40, select=0.3)


def stop_after(evaluations):
    """Saves at every evaluation, and interrupts once so many are written."""
    return {"callbacks": [Checkpoints(seconds=0), InterruptAfter(evaluations)]}


def weights(folder):
    return {name: value.numpy().tobytes() for name, value in checkpoints.load(folder / WEIGHTS)[0].items()}


def timeless(folder):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(folder)]


@dataclass(frozen=True, kw_only=True)
class TwoStages(EnumeratedElbo):
    """The second stage goes on with the weights of the first."""

    name: ClassVar[str] = "two-stages"

    def stages(self, space):
        return (Stage(space, 2), Stage(space, 3))

    def init(self, problem, streams, previous):
        state = super().init(problem, streams, previous)
        if previous is not None:
            state.copy_from(previous.tensors())
        return state


@pytest.mark.parametrize("evaluations", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("repeats", [1, 2])
def test_stages_resume_bit_equal_wherever_they_were_interrupted(tmp_path, monkeypatch, evaluations, repeats):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    task, method = toy_task(tmp_path / "data"), TwoStages(batch_size=10, noise=0.1)
    search(Lines(), task, method, out=tmp_path / "whole", repeats=repeats, compute=pa.Compute("cpu"))
    with pytest.raises(KeyboardInterrupt):
        search(
            Lines(),
            task,
            method,
            out=tmp_path / "torn",
            repeats=repeats,
            compute=pa.Compute("cpu"),
            **stop_after(evaluations),
        )
    found = resume(tmp_path / "torn", task=task)
    assert [line["stage"] for line in read_history(tmp_path / "torn")] == [0, 0, 1, 1, 1]
    assert timeless(tmp_path / "torn") == timeless(tmp_path / "whole")
    for run in found if repeats > 1 else [found]:
        home = run.folder.relative_to(tmp_path / "torn")
        assert weights(run.folder) == weights(tmp_path / "whole" / home)
        assert timeless(run.folder) == timeless(tmp_path / "whole" / home)


def test_data_from_memory_that_is_not_kept_must_be_passed_again(tmp_path):
    random = np.random.default_rng(0)
    task = pa.data.load((random.normal(size=(40, 2)), np.arange(40) % 2))
    with pytest.raises(KeyboardInterrupt):
        search(SPACE, task, METHOD, out=tmp_path / "run", compute=pa.Compute("cpu"), callbacks=[InterruptAfter(1)])
    (tmp_path / "run" / EXAMPLES).unlink()
    with pytest.raises(PolyarchError, match="came from memory"):
        resume(tmp_path / "run")
    other = pa.data.load((random.normal(size=(40, 2)), np.arange(40) % 2))
    with pytest.raises(PolyarchError, match="no longer what this run was made with"):
        resume(tmp_path / "run", task=other)
    assert resume(tmp_path / "run", task=task).finished


def test_damaged_checkpoints_make_way_for_whole_ones(tmp_path, task):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        search(SPACE, task, METHOD, out=out, compute=pa.Compute("cpu"), **stop_after(2))
    older, newer = reversed(checkpoints.newest_first(out))
    newer.write_bytes(b"")
    with pytest.raises(KeyboardInterrupt):
        resume(out, task=task, **stop_after(1))
    assert checkpoints.newest_first(out)[1] == older, "the whole one must outlive the damaged one"


def test_a_checkpoint_of_another_version_stops_a_resume_and_stays(tmp_path, task, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "FORMAT", 99)
        with pytest.raises(KeyboardInterrupt):
            search(SPACE, task, METHOD, out=out, compute=pa.Compute("cpu"), **stop_after(2))
    before = sorted(os.listdir(out))
    with pytest.raises(PolyarchError, match="another version"):
        resume(out, task=task)
    assert sorted(os.listdir(out)) == before


def test_a_run_begun_on_a_gpu_says_so_where_there_is_none(tmp_path, task, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        search(SPACE, task, METHOD, out=out, compute=pa.Compute("cpu"), callbacks=[InterruptAfter(0)])
    replace(Run(out).config, device="cuda").write(out)
    with pytest.raises(PolyarchError, match="was begun on a CUDA device"):
        resume(out, task=task)


def test_priors_that_make_no_sense(tmp_path, task):
    [decision] = SPACE.decisions
    ruled_out = Categorical((decision,), torch.tensor([[0.0, 0.0, -torch.inf]]))
    for prior, says in ((ruled_out, "rules an option out"), (uniform(Lines().decisions), "over other decisions")):
        with pytest.raises(PolyarchError, match=says):
            search(SPACE, task, METHOD, out=tmp_path / "run", start=pa.Start(prior=prior))
    assert not (tmp_path / "run").exists()
    found = search(
        SPACE,
        task,
        METHOD,
        out=tmp_path / "run",
        start=pa.Start(prior=uniform(SPACE.decisions)),
        compute=pa.Compute("cpu"),
    )
    assert Run(found.folder).config.make_prior(SPACE).probs()["depth"].tolist() == pytest.approx([1 / 3] * 3)


def test_settings_that_a_class_no_longer_has(tmp_path, task):
    out = tmp_path / "run"
    config = search(SPACE, task, METHOD, out=out, compute=pa.Compute("cpu")).config
    replace(config, method={**config.method, "settings": {**config.method["settings"], "epoch": 1}}).write(out)
    with pytest.raises(PolyarchError, match=r"unknown setting of VariationalDepth 'epoch'; did you mean 'epochs'\?"):
        Run(out).space  # noqa: B018


def test_a_run_of_before_is_refused_in_one_line(tmp_path, task):
    out = tmp_path / "run"
    search(SPACE, task, METHOD, out=out, repeats=2, compute=pa.Compute("cpu"))
    write_json(out / CONFIG, read_json(out / CONFIG) | {"format": FORMAT - 1})
    before = (out / CONFIG).read_bytes()
    for opens in (pa.open_run, pa.open_best, open_repeats, resume):
        with pytest.raises(PolyarchError, match=f"has format {FORMAT - 1}, this polyarch reads {FORMAT}") as failed:
            opens(out)
        assert "use the version that wrote it" in str(failed.value)
        assert "\n" not in str(failed.value)
    assert (out / CONFIG).read_bytes() == before


def test_repeats_that_stop_early_keep_their_own_lines(tmp_path, task):
    method = pa.methods.VariationalDepth(epochs=40, batch_size=20, stopping={"patience": 2})
    search(SPACE, task, method, out=tmp_path / "run", repeats=4, compute=pa.Compute("cpu"))
    lengths = []
    for run in open_repeats(tmp_path / "run"):
        text = (run.folder / METRICS).read_text()
        assert text.endswith("\n")
        assert [json.loads(line)["epoch"] for line in text.splitlines()] == list(range(1, len(text.splitlines()) + 1))
        lengths.append(len(run.history()))
    assert max(lengths) == len(read_history(tmp_path / "run"))
    assert len(set(lengths)) > 1


# ---------------------------------------------------------------------------------------------------------------------
# Several processes at one folder.


def test_of_searches_that_begin_in_one_folder_at_once_one_goes_on(tmp_path, two_processes):
    """Config, metrics and weights must all be the winner's."""
    said = two_processes(
        tmp_path,
        """
        task = pa.data.load("spirals", points=60, test_points=40, select=0.3)
        space, said = pa.spaces.ResidualDepth(max_depth=2, width=4), []
        for k in range(8):
            method = pa.methods.VariationalDepth(epochs=1, batch_size=20)
            meet(f"go-{k}")
            try:
                search(space, task, method, out=here / f"run-{k}", seed=me, compute=pa.Compute("cpu"))
                said.append(k)
            except pa.PolyarchError as error:
                assert "already holds a run" in str(error) or "another process" in str(error), error
        """,
    )
    assert sorted(said[0] + said[1]) == list(range(8))
    for winner, rounds in enumerate(said):
        for k in rounds:
            run = Run(tmp_path / f"run-{k}")
            assert run.finished
            assert run.seed == run.result["seed"] == winner


def test_a_search_that_was_overtaken_while_it_prepared_leaves_the_winner_alone(tmp_path, task, monkeypatch):
    prepare = preparing.prepare

    def overtaken(*arguments):
        monkeypatch.setattr(preparing, "prepare", prepare)
        search(SPACE, task, METHOD, out=tmp_path / "run", seed=1, compute=pa.Compute("cpu"))
        return prepare(*arguments)

    monkeypatch.setattr(preparing, "prepare", overtaken)
    with pytest.raises(PolyarchError, match="already holds a run"):
        search(SPACE, task, METHOD, out=tmp_path / "run", seed=2, compute=pa.Compute("cpu"))
    assert Run(tmp_path / "run").seed == Run(tmp_path / "run").result["seed"] == 1


def test_metrics_are_on_the_disk_before_the_checkpoint_that_counts_on_them(tmp_path, task, monkeypatch):
    synced, fsync = [], os.fsync
    place = "/proc/self/fd/{}".format
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(Path(os.readlink(place(fd))).name), fsync(fd))[1])
    search(SPACE, task, METHOD, out=tmp_path / "run", compute=pa.Compute("cpu"), callbacks=[Checkpoints(seconds=0)])
    order = [name for name in synced if name == METRICS or name.startswith(".checkpoint")]
    assert order[0::2] == [METRICS] * (len(order) // 2)
    assert all(name.startswith(".checkpoint") for name in order[1::2])


def test_of_two_resumes_at_once_one_goes_on(tmp_path, task, two_processes):
    method = pa.methods.VariationalDepth(epochs=150, batch_size=20, stopping={"split": "never"})
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        search(SPACE, task, method, out=out, compute=pa.Compute("cpu"), **stop_after(2))
    said = two_processes(
        tmp_path,
        """
        meet("go")
        try:
            resume(here / "run")
            said = "done"
        except pa.PolyarchError as error:
            said = str(error)
        """,
    )
    assert sorted(text == "done" for text in said) == [False, True]
    assert any("is being written by another process" in text for text in said)
    assert Run(out).finished
    assert [line["epoch"] for line in read_history(out)] == list(range(1, 151))


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    """A few of the many kills of `python -m bench.faults`."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.faults", "--kills", "5"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kills"], found["lost"]) == (5, 0)


@pytest.mark.parametrize(("precision", "says"), [("bfloat16", "is for CUDA devices"), ("half", "unknown precision")])
def test_precision_that_is_not_to_be_had(tmp_path, task, precision, says):
    with pytest.raises(PolyarchError, match=says):
        search(SPACE, task, METHOD, out=tmp_path / "run", compute=pa.Compute("cpu", precision))
    assert not (tmp_path / "run").exists()


def images(test=0):
    random = np.random.default_rng(0)
    return pa.data.load((random.normal(size=(40, 1, 6, 6)), np.arange(40) % 4), select=0.4, test=test)


WIRES = {"stages": 1, "nodes": 3, "channels": 2}


def test_weights_for_listed_architectures_alone(tmp_path):
    """Methods that draw others would train nothing but numbers that are none."""
    space = pa.spaces.Wiring(**WIRES, listed=3, own_affine=True)
    with pytest.raises(PolyarchError, match="single-path draws architectures of its own"):
        search(space, images(), pa.methods.OneShot(epochs=1), out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert not (tmp_path / "run").exists()


def test_belief_of_another_list(tmp_path):
    method = pa.methods.StochasticArchitectures(epochs=1, batch_size=8)
    task = images()
    search(pa.spaces.Wiring(**WIRES, listed=3), task, method, out=tmp_path / "a", compute=pa.Compute("cpu"))
    for number, settings in enumerate(({"listed": 5}, {"listed": 3, "list_seed": 1})):
        other = pa.spaces.Wiring(**WIRES, **settings)
        with pytest.raises(PolyarchError, match="lists other architectures"):
            search(
                other,
                task,
                method,
                out=tmp_path / f"b{number}",
                compute=pa.Compute("cpu"),
                start=pa.Start(belief_from=tmp_path / "a"),
            )


def test_a_list_of_one_is_no_mixture(tmp_path):
    task = images(test=0.2)
    method = pa.methods.StochasticArchitectures(epochs=1, batch_size=8)
    alone = search(
        pa.spaces.Wiring(**WIRES, wirings="residual"), task, method, out=tmp_path / "a", compute=pa.Compute("cpu")
    )
    assert not any("mutual_information" in figures for figures in alone.result["metrics"].values())
    assert set(alone.result["metrics"]) == {"select", "test", "test_tempered"}
