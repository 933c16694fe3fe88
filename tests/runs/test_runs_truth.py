"""A search that is watched by a table: compared with the table's own numbers, looked up by hand."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

import polyarch as pa
from polyarch import PolyarchError
from polyarch.callbacks import Callback, Checkpoints
from polyarch.runs.run import METRICS, WEIGHTS, Run, read_history
from polyarch.runs.search import resume, search
from polyarch.tables import convert
from polyarch.testing.callbacks import InterruptAfter
from polyarch.testing.toy import EnumeratedElbo, Lines, toy_task
from polyarch.training import checkpoints

SPACE = Lines()
TEXTS = [SPACE.format(c) for c in itertools.product(range(3), range(2))]
NUMBERS = dict(zip(TEXTS, (0.1, 0.25, 0.5, 0.7, 0.4, 0.9), strict=True))
METHOD = EnumeratedElbo(epochs=8, batch_size=10, noise=3.0, lr=0.5)
"""So noisy that the mode wanders."""
DATA = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return toy_task(tmp_path_factory.mktemp("data"))


def write_table(folder, numbers, header="valid_acc", **options):
    source = folder / "table.csv"
    rows = [f'"{text}",{number}' for text, number in numbers.items()]
    source.write_text("\n".join([f"arch,{header}", *rows]))
    convert(source, folder / "table.npz", **options)
    return folder / "table.npz"


@pytest.fixture
def table(tmp_path):
    return write_table(tmp_path, NUMBERS)


def looked_up(probs, repeat=None):
    """The number of the most probable architecture, from the probabilities that stand in a line."""
    rows = [row if repeat is None else row[repeat] for row in probs.values()]
    return NUMBERS[SPACE.format([max(range(len(row)), key=row.__getitem__) for row in rows])]


def watched_by(table, *callbacks, column=None):
    return {"compute": pa.Compute("cpu"), "callbacks": [pa.TableTruth(table, column), *callbacks]}


def stop_after(evaluations):
    """Saves at every evaluation, and interrupts once so many are written."""
    return [Checkpoints(seconds=0), InterruptAfter(evaluations)]


class Seen(Callback):
    """Keeps every line."""

    def __init__(self):
        self.lines = []

    def on_evaluation(self, evaluation):
        self.lines.append(evaluation.metrics)


def timeless(folder):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(folder)]


def weights(folder):
    return {name: value.numpy().tobytes() for name, value in checkpoints.load(folder / WEIGHTS)[0].items()}


def test_every_line_has_the_number_of_its_mode(tmp_path, task, table):
    seen = Seen()
    run = search(SPACE, task, METHOD, out=tmp_path / "run", **watched_by(table, seen))
    truths = [line["truth"] for line in run.history()]
    assert truths == [looked_up(line["probs"]) for line in run.history()]
    assert len(set(truths)) > 1, "the mode must move, or this shows little"
    assert [line["truth"] for line in seen.lines] == [[truth] for truth in truths]
    assert (run.config.table, run.config.column) == (str(table), "valid_acc")
    assert run.result["truth"] == {
        "table": str(table),
        "column": "valid_acc",
        "predicted": False,
        "selected": NUMBERS[run.architecture.text],
        "random": {
            "mean": pytest.approx(np.mean(list(NUMBERS.values()))),
            "std": pytest.approx(np.std(list(NUMBERS.values()))),
            "architectures": 6,
        },
        "best": 0.9,
    }


def test_of_every_repeat(tmp_path, task, table):
    runs = search(SPACE, task, METHOD, out=tmp_path / "run", repeats=3, **watched_by(table))
    lines = read_history(tmp_path / "run")
    assert [line["truth"] for line in lines] == [[looked_up(line["probs"], k) for k in range(3)] for line in lines]
    assert any(len(set(line["truth"])) > 1 for line in lines)
    for k, run in enumerate(runs):
        own = [line["truth"] for line in run.history()]
        assert own == [line["truth"][k] for line in lines][: len(own)]
        assert run.result["truth"]["selected"] == NUMBERS[run.architecture.text]


def test_it_is_only_watched(tmp_path, task, table):
    watched = search(SPACE, task, METHOD, out=tmp_path / "watched", **watched_by(table))
    plain = search(SPACE, task, METHOD, out=tmp_path / "plain", compute=pa.Compute("cpu"))
    assert weights(watched.folder) == weights(plain.folder)
    assert [{k: v for k, v in line.items() if k != "truth"} for line in timeless(watched.folder)] == timeless(
        plain.folder
    )
    assert "truth" not in plain.history()[0]
    assert "truth" not in plain.result
    assert (plain.config.table, plain.config.column) == ("", "")


@pytest.mark.parametrize("evaluations", [0, 3, 6])
@pytest.mark.parametrize("repeats", [1, 2])
def test_resumed_it_is_bit_equal(tmp_path, monkeypatch, task, table, evaluations, repeats):
    """The table is given by name; when the search goes on, the name no longer leads there."""
    monkeypatch.setenv("POLYARCH_TABLES", str(tmp_path))
    search(SPACE, task, METHOD, out=tmp_path / "whole", repeats=repeats, **watched_by("table"))
    told = watched_by("table", *stop_after(evaluations))
    with pytest.raises(KeyboardInterrupt):
        search(SPACE, task, METHOD, out=tmp_path / "torn", repeats=repeats, **told)
    monkeypatch.delenv("POLYARCH_TABLES")
    resume(tmp_path / "torn", task=task)
    assert timeless(tmp_path / "torn") == timeless(tmp_path / "whole")
    for home in [Path()] if repeats == 1 else [Path("seed-0"), Path("seed-1")]:
        torn, whole = tmp_path / "torn" / home, tmp_path / "whole" / home
        assert weights(torn) == weights(whole)
        assert timeless(torn) == timeless(whole)
        assert Run(torn).result["truth"] == Run(whole).result["truth"]


def test_a_relative_path_is_found_again_from_elsewhere(tmp_path, monkeypatch, task, table):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        search(SPACE, task, METHOD, out=tmp_path / "run", **watched_by("table.npz", InterruptAfter(1)))
    monkeypatch.chdir("/")
    assert resume(tmp_path / "run", task=task).result["truth"]["table"] == str(table)


def test_a_table_that_is_gone_stops_a_resume_and_loses_nothing(tmp_path, task, table):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        search(SPACE, task, METHOD, out=out, **watched_by(table, *stop_after(3)))
    before = (sorted(os.listdir(out)), (out / METRICS).read_bytes())
    table.rename(tmp_path / "elsewhere.npz")
    with pytest.raises(PolyarchError, match=r"table.npz: no such table; check the path"):
        resume(out, task=task)
    assert (sorted(os.listdir(out)), (out / METRICS).read_bytes()) == before
    (tmp_path / "elsewhere.npz").rename(table)
    assert resume(out, task=task).finished


def test_what_a_table_lacks_is_null_and_said_once(tmp_path, caplog, task):
    """Architectures without a row, and rows without a number."""
    whole = search(SPACE, task, METHOD, out=tmp_path / "whole", **watched_by(write_table(tmp_path, NUMBERS)))
    modes = [line["truth"] for line in whole.history()]
    kept = {text: number for text, number in NUMBERS.items() if number != modes[0]}
    assert not caplog.messages

    first = next(text for text in TEXTS if text not in kept)
    rows, gaps = tmp_path / "rows.npz", tmp_path / "gaps.npz"
    np.savez(rows, arch=np.array(list(kept)), valid_acc=np.array(list(kept.values())))
    np.savez(gaps, arch=np.array(TEXTS), valid_acc=np.array([kept.get(text, np.nan) for text in TEXTS]))
    for table in (rows, gaps):
        out = tmp_path / table.stem
        run = search(SPACE, task, METHOD, out=out, **watched_by(table))
        assert [line["truth"] for line in run.history()] == [None if n == modes[0] else n for n in modes]
        [said] = caplog.messages
        assert f"{table} has no valid_acc for {first}; its truth is null" in said
        caplog.clear()
        truth = run.result["truth"]
        assert truth["selected"] == kept.get(run.architecture.text)
        assert truth["random"]["mean"] == pytest.approx(np.mean(list(kept.values())))
        assert truth["random"]["architectures"] == 5


def test_refused_before_a_folder_is_made(tmp_path, task, table, monkeypatch):
    monkeypatch.delenv("POLYARCH_TABLES", raising=False)
    other = tmp_path / "other.npz"
    np.savez(other, arch=np.array(["|none~0|", "|skip_connect~0|"]), valid_acc=np.array([0.5, 0.25]))
    several = tmp_path / "several.npz"
    np.savez(several, arch=np.array(TEXTS), valid_acc=np.zeros(6), val_acc_12=np.zeros(6), test_acc=np.zeros(6))
    unsaid = tmp_path / "unsaid.npz"
    np.savez(unsaid, arch=np.array(TEXTS), test_acc=np.zeros(6), valid_loss=np.zeros(6))
    for told, message in (
        ({"table": other}, r"other.npz: none of its 2 rows is of the space 'lines'; the first is '\|none~0\|'"),
        ({"table": table, "column": "valid_ac"}, r"unknown column of .*table.npz 'valid_ac'; did you mean 'valid_acc'"),
        ({"table": tmp_path / "no.npz"}, r"no.npz: no such table; check the path"),
        ({"table": "nowhere"}, r"unknown table 'nowhere'; .*or set POLYARCH_TABLES"),
        ({"table": several}, "has 2 columns of validation accuracy: valid_acc, val_acc_12; name one with --column"),
        ({"table": unsaid}, "has 2 columns, and none of validation accuracy: test_acc, valid_loss; name one"),
    ):
        with pytest.raises(PolyarchError, match=message) as failed:
            search(SPACE, task, METHOD, out=tmp_path / "run", **watched_by(**told))
        assert "\n" not in str(failed.value)
    assert not (tmp_path / "run").exists()


def test_a_stage_in_a_space_of_its_own_is_looked_up_by_its_texts(tmp_path, task):
    """Training one network: its space has that alone, and the baselines are still those of the whole space."""
    space = pa.spaces.ResidualDepth(max_depth=3, width=4)
    texts = [space.format([depth]) for depth in range(4)]
    np.savez(tmp_path / "t.npz", arch=np.array(texts), valid_acc=np.arange(4.0))
    method = pa.methods.FixedDepth(depth=2, epochs=2, batch_size=10)
    run = search(space, task, method, out=tmp_path / "run", **watched_by(tmp_path / "t.npz"))
    assert [line["truth"] for line in run.history()] == [2.0, 2.0]
    assert run.result["truth"]["random"]["mean"] == 1.5


def test_a_belief_that_is_not_learnt_has_no_mode_to_look_up(tmp_path, task, table):
    """One-shot methods keep the prior: its first architecture is nobody's choice. What was selected is looked up."""
    run = search(SPACE, task, pa.methods.OneShot(epochs=2, batch_size=10), out=tmp_path / "run", **watched_by(table))
    assert [line["truth"] for line in run.history()] == [None, None]
    assert run.result["truth"]["selected"] == NUMBERS[run.architecture.text]
