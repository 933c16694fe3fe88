"""The best of several seeds: by validation data, found again by hand; and what each repeat keeps of several stages."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import Stage
from polyarch.files import read_json
from polyarch.runs.finishing import best_seed
from polyarch.runs.run import RESULT, open_best, open_run, read_history
from polyarch.runs.search import search
from polyarch.testing.toy import EnumeratedElbo, Lines, toy_task

SPACE = pa.spaces.ResidualDepth(max_depth=2, width=4)
METHOD = pa.methods.VariationalDepth(epochs=4, batch_size=20)


def result(seed, **valid):
    return {"seed": seed, "metrics": {"select": valid} if valid else {"test": {"accuracy": 1 / (seed + 1)}}}


def test_accuracy_decides_then_log_likelihood_then_the_first():
    found = [result(3, accuracy=0.5, log_likelihood=-1.0), result(4, accuracy=0.6, log_likelihood=-2.0)]
    assert best_seed(found, [9.0, 1.0]) == 4
    found += [result(5, accuracy=0.6, log_likelihood=-1.5), result(6, accuracy=0.6, log_likelihood=-1.5)]
    assert best_seed(found, [9.0, 1.0, 1.0, 9.0]) == 5


def test_where_classes_count_alike_so_they_do_here():
    found = [
        result(0, accuracy=0.9, balanced_accuracy=0.5, log_likelihood=-1.0),
        result(1, accuracy=0.8, balanced_accuracy=0.7, log_likelihood=-2.0),
    ]
    assert best_seed(found, [1.0, 1.0]) == 0
    assert best_seed(found, [1.0, 1.0], "balanced_accuracy") == 1


def test_of_regression_log_likelihood_alone():
    found = [result(0, rmse=0.1, log_likelihood=-3.0), result(1, rmse=0.4, log_likelihood=-2.0)]
    assert best_seed(found, [9.0, 1.0]) == 1


def test_without_validation_data_the_objective_decides_and_never_the_test():
    assert best_seed([result(0), result(1), result(2)], [-3.0, -1.0, -2.0]) == 1


def test_the_best_repeat_is_that_of_the_most_accurate_network(tmp_path):
    task = pa.data.load("spirals", points=60, test_points=40, select=0.3)
    runs = search(SPACE, task, METHOD, out=tmp_path / "run", seed=5, repeats=6, compute=pa.Compute("cpu"))

    def merit(run):
        with torch.no_grad():
            log_probs = run.model()(task.select.x).log_softmax(-1)
        right = (log_probs.argmax(-1) == task.select.y).double().mean().item()
        return right, log_probs.gather(1, task.select.y[:, None]).double().mean().item()

    merits = [merit(run) for run in runs]
    assert len(set(merits)) > 1
    expected = 5 + merits.index(max(merits))
    assert read_json(tmp_path / "run" / RESULT)["best"] == expected
    assert open_best(tmp_path / "run").folder == tmp_path / "run" / f"seed-{expected}"
    assert open_best(tmp_path / "run").seed == expected
    with pytest.raises(
        PolyarchError, match=rf"holds 6 repeats; open one of them, such as .*/seed-{expected}, the best"
    ):
        open_run(tmp_path / "run")
    assert open_best(runs[2].folder).folder == runs[2].folder, "a single run is its own best"


def test_without_validation_data_it_is_the_best_training_objective(tmp_path):
    task = pa.data.load("spirals", points=60, test_points=40, select=0.0)
    runs = search(SPACE, task, METHOD, out=tmp_path / "run", repeats=4, compute=pa.Compute("cpu"))
    reached = [max(line["train"]["objective"] for line in run.history()) for run in runs]
    assert len(set(reached)) > 1
    assert open_best(tmp_path / "run").seed == reached.index(max(reached))


@dataclass(frozen=True, kw_only=True)
class LongThenShort(EnumeratedElbo):
    """The second stage of a repeat can stop at an epoch that the first went beyond."""

    name: ClassVar[str] = "long-then-short"

    def stages(self, space):
        return (Stage(space, 6), Stage(space, 6))


def test_a_repeat_that_stopped_in_the_last_stage_keeps_the_lines_of_those_before(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    method = LongThenShort(batch_size=10, noise=1.0, stopping={"patience": 2})
    runs = search(
        Lines(), toy_task(tmp_path / "data"), method, out=tmp_path / "run", repeats=6, compute=pa.Compute("cpu")
    )
    lines = read_history(tmp_path / "run")
    first = [(line["stage"], line["epoch"]) for line in lines if line["stage"] == 0]
    last = [line["epoch"] for line in lines if line["stage"] == 1]
    lengths = []
    for run in runs:
        own = [(line["stage"], line["epoch"]) for line in run.history()]
        assert own[: len(first)] == first
        assert [epoch for stage, epoch in own if stage == 1] == last[: len(own) - len(first)]
        lengths.append(len(own) - len(first))
    assert min(lengths) < len(first), "one must have stopped early, or this shows nothing"
