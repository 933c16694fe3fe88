"""Callbacks: what they are told and when, what they may add, and that they can stop a search."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import polyarch as pa
from polyarch import Callback, PolyarchError
from polyarch.callbacks import Checkpoints
from polyarch.core import Stage
from polyarch.runs import search as searching
from polyarch.runs.run import Run, read_history
from polyarch.runs.search import resume, search
from polyarch.testing.toy import EnumeratedElbo, Lines, toy_task
from polyarch.training import checkpoints

CPU = pa.Compute("cpu")
METHOD = EnumeratedElbo(epochs=6, batch_size=10, noise=0.5)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return toy_task(tmp_path_factory.mktemp("data"))


class Heard(Callback):
    """Remembers all that it is told."""

    def __init__(self):
        self.steps, self.evaluations, self.endings = [], [], []

    def on_step(self, step):
        self.steps.append((step.stage, step.epoch, step.step, {name: v.clone() for name, v in step.metrics.items()}))

    def on_evaluation(self, evaluation):
        self.evaluations.append((evaluation, json.loads(json.dumps(evaluation.metrics))))

    def on_end(self, ending):
        self.endings.append(ending)


class StopAt(Callback):
    """Stops a search at an epoch of a stage."""

    def __init__(self, epoch, stage=0):
        self.epoch, self.stage = epoch, stage

    def on_evaluation(self, evaluation):
        if (evaluation.metrics["stage"], evaluation.metrics["epoch"]) == (self.stage, self.epoch):
            evaluation.stop()


@dataclass(frozen=True, kw_only=True)
class Growing(EnumeratedElbo):
    """Three stages, each in a space of its own: of the same decisions under another class."""

    name: ClassVar[str] = "growing"

    def stages(self, space):
        return (Stage(space, 3), Stage(Wider(), 3), Stage(space, 3))


@dataclass(frozen=True, kw_only=True)
class Wider(Lines):
    name: ClassVar[str] = "wider"


def timeless(folder):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(folder)]


@pytest.mark.parametrize("repeats", [1, 2])
def test_what_a_callback_is_told(tmp_path, task, repeats):
    heard = Heard()
    found = search(Lines(), task, METHOD, out=tmp_path / "run", repeats=repeats, compute=CPU, callbacks=[heard])
    runs = found if repeats > 1 else [found]
    assert [(stage, epoch, step) for stage, epoch, step, _ in heard.steps] == [
        (0, epoch, step) for epoch in range(6) for step in range(4)
    ]
    assert all(metrics["elbo"].shape == (repeats,) for *_, metrics in heard.steps)
    lines = read_history(tmp_path / "run")
    for (evaluation, line), written in zip(heard.evaluations, lines, strict=True):
        assert (evaluation.epochs, evaluation.stages, evaluation.repeats) == (6, 1, repeats)
        assert evaluation.space == Lines()
        assert len(evaluation.belief.mode()) == repeats
        assert line["seconds"] == written["seconds"]
        assert line["train"]["objective"] == (
            written["train"]["objective"] if repeats > 1 else [written["train"]["objective"]]
        )
    # A step's metrics are those of which the line has the mean over an epoch.
    for epoch, (_, line) in enumerate(heard.evaluations):
        own = torch.stack([metrics["elbo"] for _, at, _, metrics in heard.steps if at == epoch])
        assert own.mean(0).tolist() == pytest.approx(line["step"]["elbo"])
    [ending] = heard.endings
    assert list(ending.architectures) == [run.architecture for run in runs]
    assert [{**result, "run": str(run.folder)} for result, run in zip(ending.results, runs, strict=True)] == [
        run.result for run in runs
    ]


def test_steps_are_told_to_those_alone_that_define_it(tmp_path, task, monkeypatch):
    made = []
    monkeypatch.setattr(searching, "Step", lambda *told: made.append(told))

    class Evaluations(Callback):
        def on_evaluation(self, evaluation):
            pass

    search(Lines(), task, METHOD, out=tmp_path / "run", compute=CPU, callbacks=[Evaluations()])
    assert made == []


def test_what_a_callback_adds_is_seen_by_the_next_and_written(tmp_path, task):
    class Adds(Callback):
        def on_evaluation(self, evaluation):
            evaluation.metrics["mine"] = [10 * k + evaluation.metrics["epoch"] for k in range(evaluation.repeats)]

        def on_end(self, ending):
            for k, result in enumerate(ending.results):
                result["mine"] = k

    heard = Heard()
    runs = search(Lines(), task, METHOD, out=tmp_path / "run", repeats=2, compute=CPU, callbacks=[Adds(), heard])
    assert [line["mine"] for _, line in heard.evaluations] == [[epoch, 10 + epoch] for epoch in range(1, 7)]
    assert [line["mine"] for line in runs[1].history()] == [10 + epoch for epoch in range(1, 7)]
    assert [run.result["mine"] for run in runs] == [0, 1]


def test_looking_on_changes_nothing(tmp_path, task):
    plain = search(Lines(), task, METHOD, out=tmp_path / "plain", compute=CPU)
    watched = search(Lines(), task, METHOD, out=tmp_path / "watched", compute=CPU, callbacks=[Heard()])
    assert timeless(plain.folder) == timeless(watched.folder)
    for name, value in plain._tensors.items():
        assert torch.equal(value, watched._tensors[name])


@pytest.mark.parametrize("hook", ["on_step", "on_evaluation", "on_end"])
def test_what_a_callback_raises_reaches_the_user_and_the_run_can_go_on(tmp_path, task, hook):
    class Raises(Callback):
        pass

    def fail(self, _):
        raise ZeroDivisionError("mine")

    setattr(Raises, hook, fail)
    with pytest.raises(ZeroDivisionError, match="mine"):
        search(Lines(), task, METHOD, out=tmp_path / "run", compute=CPU, callbacks=[Raises()])
    assert not Run(tmp_path / "run").finished
    whole = search(Lines(), task, METHOD, out=tmp_path / "whole", compute=CPU)
    resumed = resume(tmp_path / "run", task=task)
    assert timeless(resumed.folder) == timeless(whole.folder)


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_callback_stops_a_search(tmp_path, task, repeats):
    """All repeats at once; what was learnt until then is what a search of so many epochs learns."""
    told = {"repeats": repeats, "compute": CPU}
    search(Lines(), task, METHOD, out=tmp_path / "stopped", callbacks=[StopAt(3)], **told)
    short = EnumeratedElbo(epochs=3, batch_size=10, noise=0.5)
    search(Lines(), task, short, out=tmp_path / "short", **told)
    assert timeless(tmp_path / "stopped") == timeless(tmp_path / "short")
    for home in [Path()] if repeats == 1 else [Path("seed-0"), Path("seed-1")]:
        stopped, short = Run(tmp_path / "stopped" / home), Run(tmp_path / "short" / home)
        assert stopped.architecture == short.architecture
        assert stopped._tensors.keys() == short._tensors.keys()
        assert all(torch.equal(value, short._tensors[name]) for name, value in stopped._tensors.items())


def test_stopped_and_killed_while_finishing_it_ends_where_it_was_stopped(tmp_path, task):
    """Without the callback that stopped it: the checkpoint says so."""

    class Killed(Callback):
        def on_end(self, ending):
            raise KeyboardInterrupt

    whole = search(Lines(), task, METHOD, out=tmp_path / "whole", compute=CPU, callbacks=[StopAt(2)])
    with pytest.raises(KeyboardInterrupt):
        search(Lines(), task, METHOD, out=tmp_path / "torn", compute=CPU, callbacks=[StopAt(2), Killed()])
    heard = Heard()
    torn = resume(tmp_path / "torn", task=task, callbacks=[heard])
    assert (len(heard.evaluations), len(heard.endings)) == (0, 1)
    assert timeless(torn.folder) == timeless(whole.folder)
    assert torn.architecture == whole.architecture


def test_killed_before_it_was_stopped_it_is_stopped_again(tmp_path, task):
    """What a callback decides and the checkpoint that knows of it are one."""
    whole = search(Lines(), task, METHOD, out=tmp_path / "whole", compute=CPU, callbacks=[StopAt(4)])

    class Interrupts(Callback):
        def on_evaluation(self, evaluation):
            if evaluation.metrics["epoch"] == 4:
                raise KeyboardInterrupt

    callbacks = [Checkpoints(seconds=0), StopAt(4), Interrupts()]
    with pytest.raises(KeyboardInterrupt):
        search(Lines(), task, METHOD, out=tmp_path / "torn", compute=CPU, callbacks=callbacks)
    torn = resume(tmp_path / "torn", task=task, callbacks=[StopAt(4)])
    assert timeless(torn.folder) == timeless(whole.folder)


@pytest.mark.parametrize(("stage", "space"), [(0, "lines"), (1, "wider"), (2, "lines")])
def test_stopped_in_an_earlier_stage_it_is_a_run_of_that_stage(tmp_path, task, monkeypatch, stage, space):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    method, heard = Growing(batch_size=10), Heard()
    run = search(Lines(), task, method, out=tmp_path / "run", compute=CPU, callbacks=[StopAt(2, stage), heard])
    assert [(line["stage"], line["epoch"]) for line in run.history()] == [
        *((before, epoch) for before in range(stage) for epoch in (1, 2, 3)),
        (stage, 1),
        (stage, 2),
    ]
    assert run.space.name == pa.open_run(run.folder).space.name == heard.endings[0].space.name == space
    assert run.model()(task.train.x).shape == (len(task.train), 1)


def test_checkpoints_by_time_and_by_request(tmp_path, task):
    class Asks(Callback):
        def on_evaluation(self, evaluation):
            if evaluation.metrics["epoch"] == 2:
                evaluation.checkpoint()

    def written(name, *callbacks):
        search(Lines(), task, METHOD, out=tmp_path / name, compute=CPU, callbacks=callbacks)
        return [checkpoints.number(path) for path in checkpoints.newest_first(tmp_path / name)]

    assert written("default") == [0], "at its end alone, since it took less than ten seconds"
    assert written("always", Checkpoints(seconds=0)) == [6, 5]
    assert written("never", Checkpoints(seconds=1e9)) == [0]
    assert written("asked", Asks()) == [1, 0]


def test_two_tables_are_refused(tmp_path, task):
    callbacks = [pa.TableTruth("a"), pa.TableTruth("b")]
    with pytest.raises(PolyarchError, match="watched by one table, not by 2"):
        search(Lines(), task, METHOD, out=tmp_path / "run", compute=CPU, callbacks=callbacks)


def test_rank_0_decides_for_all(tmp_path, two_processes):
    """Another rank that went on would wait for ever; callbacks are called on rank 0 alone."""
    toy_task(tmp_path)
    heard = two_processes(
        tmp_path,
        """
        import torch.distributed as dist
        from polyarch.testing.toy import EnumeratedElbo, Lines

        class Stops(pa.Callback):
            def on_step(self, step):
                heard.add("step")

            def on_evaluation(self, evaluation):
                heard.add("evaluation")
                if evaluation.metrics["epoch"] == 2:
                    evaluation.stop()

            def on_end(self, ending):
                heard.add("end")

        heard = set()
        dist.init_process_group("gloo", init_method=f"file://{here}/ranks", rank=me, world_size=2)
        task = pa.data.load(here / "line.npz", kind="regression", select=0, test=0)
        method = EnumeratedElbo(epochs=5, batch_size=10)
        search(Lines(), task, method, out=here / "run", compute=pa.Compute("cpu"), callbacks=[Stops()])
        dist.destroy_process_group()
        said = sorted(heard)
        """,
    )
    assert heard == [["end", "evaluation", "step"], []]
    assert [line["epoch"] for line in read_history(tmp_path / "run")] == [1, 2]
