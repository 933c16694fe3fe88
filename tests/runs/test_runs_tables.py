"""A search on tables as people have them, and what the run then says of others."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyarch as pa
from polyarch.errors import PolyarchError
from polyarch.methods.fixed_depth import FixedDepth
from polyarch.spaces.depth import ResidualDepth
from polyarch.training.optimisers import Sgd

ROWS = 300
SLOW = Sgd(lr=0.02)


def people(rows=ROWS, seed=0):
    """Words that matter, numbers with gaps; the price follows from them, in the tens of thousands."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": random.normal(100, 30, rows),
            "city": random.choice(["Bonn", "Oslo", "Rome"], rows),
            "age": random.integers(0, 90, rows).astype(float),
        }
    )
    dear = frame["city"].map({"Bonn": 0.0, "Oslo": 60_000.0, "Rome": -40_000.0})
    frame["price"] = 300_000 + 1000 * (frame["size"] - 100) + dear + random.normal(0, 5000, rows)
    frame.loc[random.random(rows) < 0.15, "age"] = np.nan
    return frame


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Of prices, from a .csv file."""
    home = tmp_path_factory.mktemp("people")
    people().to_csv(home / "people.csv", index=False)
    task = pa.data.load(home / "people.csv", label="price", calibrate=30)
    return pa.search(
        ResidualDepth(max_depth=2), task, FixedDepth(depth=1, epochs=60, batch_size=32, weights=SLOW), out=home / "run"
    )


def test_numbers_are_said_in_the_users_unit(run):
    task = run.task()
    x, y = task.test.x, task.test.y.double()
    with torch.no_grad():
        said = run.model()(x)[:, 0].double()
    rmse = (said - y).square().mean().sqrt().item()
    assert rmse < 0.4 * y.std().item()
    assert run.result["metrics"]["test"]["rmse"] == pytest.approx(rmse, rel=1e-5)
    assert 3000 < run.likelihood().scale < 3 * rmse
    found = run.ensemble().gaussians(x)
    assert torch.allclose(found.mean, run.ensemble().output(x)[:, 0].double(), rtol=1e-5)
    assert found.std.min() >= 3000
    outputs = run.model()(x)
    told = run.likelihood().log_likelihood(outputs, task.test.y).mean().item()
    assert run.result["metrics"]["test"]["log_likelihood"] == pytest.approx(told, rel=1e-4)


def test_a_run_reads_others_as_its_own(run, tmp_path, caplog):
    task = run.task()
    rows = people().iloc[task.indices["test"].numpy()]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    names, x = run.inputs_at(str(tmp_path / "rows.csv"))
    assert len(names) == len(rows)
    np.testing.assert_array_equal(x.numpy(), task.test.x.numpy())
    np.testing.assert_array_equal(run.inputs_at(str(tmp_path / "rows.parquet"))[1].numpy(), task.test.x.numpy())
    assert "column 'price' left over" in caplog.text
    for name in ("rows.csv", "rows.parquet"):
        split = run.other_data(str(tmp_path / name))
        np.testing.assert_array_equal(split.x.numpy(), task.test.x.numpy())
        np.testing.assert_allclose(split.y.numpy(), task.test.y.numpy(), rtol=1e-6)


def test_what_no_training_example_had_is_said(run, tmp_path, caplog):
    rows = people(6, seed=1).drop(columns="price")
    rows.loc[0, "city"], rows.loc[1, "size"], rows.loc[2, "city"] = "Lima", np.nan, None
    rows.to_csv(tmp_path / "rows.csv", index=False)
    _, x = run.inputs_at(str(tmp_path / "rows.csv"))
    assert "column 'city' has 'Lima', which no training example had, in 1 of 6 rows" in caplog.text
    assert "column 'size' has a gap in 1 of 6 rows" in caplog.text
    assert "column 'city' has a gap in 1 of 6 rows" in caplog.text
    assert run.model()(x).isfinite().all()


def test_data_frames_arrays_and_tensors_are_answered_alike(run, tmp_path, caplog):
    task = run.task()
    rows = people().iloc[task.indices["test"].numpy()]
    wanted = run.ensemble().gaussians(task.test.x)
    turned = rows[["city", "price", "age", "size"]]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for x in (rows, turned, task.test.x, tmp_path / "rows.csv"):
        said = run.predict(x)
        assert torch.equal(said.mean, wanted.mean)
        assert torch.equal(said.std, wanted.std)
    assert "x: column 'price' left over" in caplog.text
    for x, says in (
        (rows.drop(columns="age"), "x: no column 'age', which the run takes"),
        (rows.to_numpy(), "this run takes a table of 3 columns, 1 of words"),
        (task.test.x[:, :2], r"x has the shape \[60, 2\]; give inputs \[n, 3\]"),
    ):
        with pytest.raises(PolyarchError, match=says):
            run.predict(x)


def test_promises_are_made_of_whatever_is_predicted(run, tmp_path):
    task = run.task()
    wanted = run.prediction_intervals(task.test.x, 0.8)
    assert (wanted[:, 0] < wanted[:, 1]).all()
    rows = people().iloc[task.indices["test"].numpy()][["city", "age", "size"]]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for x in (rows, tmp_path / "rows.csv"):
        assert torch.equal(run.prediction_intervals(x, 0.8), wanted)
    with pytest.raises(PolyarchError, match="ask for prediction_intervals"):
        run.prediction_sets(rows, 0.8)


def test_a_task_and_a_run_say_what_they_are(run, tmp_path):
    first, inputs, splits = repr(run.task()).split("\n")
    assert first == "Task 'people': predicts a number with one noise for all"
    low, high = run.task().train.y.min().item(), run.task().train.y.max().item()
    assert inputs == f"  inputs: 3 columns, 1 of words; targets: {low:g} to {high:g}"
    assert splits == "  splits: train 165, select 45, calibrate 30, test 60"
    told = repr(run).split("\n")
    assert told[:2] == [f"Run('{run.folder}'): fixed-depth on the space depth for people, seed 0", "  found: depth=1"]
    rmse = run.result["metrics"]["test"]["rmse"]
    assert told[2].startswith(f"  selected network on test data: rmse {rmse:.4g}, log_likelihood ")
    assert len(told) == 3  # of one depth the mixture is the network
    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text("{")
    assert "result.json is damaged" in repr(pa.Run(tmp_path / "run"))
    (tmp_path / "run" / "result.json").unlink()
    assert "not finished: fixed-depth on the space depth" in repr(pa.Run(tmp_path / "run"))


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("city", [1, 2, 3], "column 'city' holds numbers, such as '1', and the run knows words there"),
        ("size", ["small", "large", "huge"], "has 'small' in column 'size', no number"),
    ],
)
def test_columns_that_hold_something_else_are_refused(run, tmp_path, name, values, says):
    rows = people(3)
    rows[name] = values
    rows.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(PolyarchError, match=says):
        run.inputs_at(str(tmp_path / "rows.csv"))


def test_the_model_is_a_plain_module_that_exports(run):
    x = run.task().test.x
    exported = torch.export.export(run.model(), (x,)).module()
    assert torch.allclose(exported(x), run.model()(x), rtol=1e-5)


ROW = people(12, seed=3).drop(columns="price").fillna({"age": 40.0})
CHANGES = {
    "as texts": lambda column: column.astype(str),
    "scaled": lambda column: column * 1000 if column.dtype.kind == "f" else column,
    "words": lambda column: [f"word {k % 3}" for k in range(len(column))],
    "codes": lambda column: [k % 3 for k in range(len(column))] if column.dtype.kind != "f" else column,
    "capitals": lambda column: column.str.upper() if column.dtype.kind != "f" else column,
    "gaps": lambda column: column.where(np.arange(len(column)) > 5) if column.name != "age" else column,
    "empty": lambda column: [None] * len(column),
    "truth": lambda column: [k % 2 == 0 for k in range(len(column))],
    "spaces": lambda column: column.map(lambda cell: f"  {cell} "),
    "as objects": lambda column: column.astype(object),
    "as categories": lambda column: column.astype("category"),
    "as whole numbers": lambda column: column.astype("Int64") if column.name == "age" else column,
}


@settings(max_examples=90, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.permutations(["size", "city", "age", "extra"]),
    changes=st.dictionaries(st.sampled_from(["size", "city", "age"]), st.sampled_from(sorted(CHANGES)), max_size=2),
    lost=st.sampled_from([None, "size", "city", "age"]),
    renamed=st.sampled_from([None, "size", "city", "age"]),
    form=st.sampled_from(["frame", "csv", "parquet"]),
)
def test_no_change_of_columns_changes_an_answer_silently(run, caplog, tmp_path, order, changes, lost, renamed, form):
    """Shuffled, added, lost, renamed, of another type: the same answers, or a refusal, or a word about the column."""
    caplog.clear()
    plain = run.predict(ROW).mean
    caplog.clear()
    rows = ROW.assign(extra=1.0)[list(order)]
    for name, change in changes.items():
        rows[name] = CHANGES[change](rows[name])
    rows = rows.drop(columns=[lost] if lost else [])
    rows = rows.rename(columns={renamed: f"{renamed} " + "2"} if renamed else {})
    path = tmp_path / f"rows.{form}"
    if form == "csv":
        rows.to_csv(path, index=False)
    elif form == "parquet":
        rows.to_parquet(path)
    said, refusal = None, ""
    try:
        said = run.predict(rows if form == "frame" else path).mean
    except PolyarchError as error:
        refusal = str(error)
    if refusal:
        assert any(f"{name!r}" in refusal for name in (*changes, lost, renamed) if name)
        return
    assert (lost, renamed) == (None, None)
    if not torch.allclose(said, plain):
        assert any(f"{name!r}" in caplog.text for name in changes), (changes, caplog.text)
