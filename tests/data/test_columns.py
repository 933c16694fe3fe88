"""Tables as people have them: words, gaps, columns to leave out; held against scikit-learn."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from polyarch.data import load, read_inputs
from polyarch.data.kinds import inputs_from
from polyarch.data.preprocess import feature_names, preprocess_from

ROWS = 400
NUMBERS, WORDS = ["age", "income"], ["city", "plan"]


@pytest.fixture
def table():
    """Numbers far from 0 and with gaps, words with gaps, and words of which many are rare."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"row-{k}" for k in range(ROWS)],
            "age": random.integers(18, 90, ROWS).astype(float),
            "plan": random.choice(["basic", "plus", "pro"], ROWS, p=[0.6, 0.3, 0.1]),
            "income": 1e6 + random.normal(size=ROWS),
            "city": [f"city {int(k)}" for k in random.exponential(30, ROWS)],
            "label": random.choice(["no", "yes"], ROWS),
        }
    )
    frame.loc[random.random(ROWS) < 0.2, "age"] = np.nan
    frame.loc[random.random(ROWS) < 0.1, "plan"] = None
    return frame


def seen(task, split):
    return task.preprocess(split.x).numpy()


def rows_of(task, frame, role):
    return frame.iloc[task.indices[role].numpy()]


def words_in(frame, name):
    """A column with None in its gaps."""
    return frame[[name]].astype(object).where(frame[[name]].notna(), None)


@pytest.mark.parametrize("source", ["csv", "parquet", "frame"])
def test_what_networks_see_is_what_scikit_learn_makes_of_it(table, source, tmp_path, caplog):
    if source == "csv":
        table.to_csv(tmp_path / "d.csv", index=False)
        task = load(tmp_path / "d.csv")
    elif source == "parquet":
        table.to_parquet(tmp_path / "d.parquet")
        task = load(tmp_path / "d.parquet")
    else:
        task = load((table.drop(columns="label"), table["label"]))
    assert "column 'id' has 400 different texts" in caplog.text
    assert task.columns.names == ("age", "plan", "income", "city")
    training = rows_of(task, table, "train")
    imputer, scaler = SimpleImputer(strategy="median"), StandardScaler()
    gaps = MissingIndicator(features="missing-only")
    words = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=64, sparse_output=False)
    filled = SimpleImputer(strategy="constant", fill_value="~", missing_values=None)  # last in the alphabet, as here
    order = ["plan", "city"]
    scaler.fit(imputer.fit_transform(training[NUMBERS]))
    gaps.fit(training[NUMBERS])
    one_hot = [clone(words).fit(filled.fit_transform(words_in(training, name))) for name in order]
    for role in ("train", "select", "test"):
        rows = rows_of(task, table, role)
        parts = [scaler.transform(imputer.transform(rows[NUMBERS])), gaps.transform(rows[NUMBERS])]
        for encoder, name in zip(one_hot, order, strict=True):
            parts.append(encoder.transform(filled.fit_transform(words_in(rows, name))))
        wanted = np.concatenate(parts, 1)
        found = seen(task, task.splits[role])
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert task.shape.input == (found.shape[1],)
    assert task.classes == ("no", "yes")


def test_a_vocabulary_is_json_and_makes_the_same_module(table):
    task = load((table.drop(columns=["label", "id"]), table["label"]))
    told = inputs_from(json.loads(json.dumps(task.inputs.settings())))
    assert told == task.inputs
    again = preprocess_from(told.columns, task.preprocess.state_dict())
    assert torch.equal(again(task.test.x), task.preprocess(task.test.x))
    names = feature_names(task.columns)
    assert len(names) == task.shape.input[0]
    assert names[:4] == ["age", "income", "age is missing", "plan = basic"]
    exported = torch.export.export(task.preprocess, (task.test.x,)).module()
    assert torch.equal(exported(task.test.x), task.preprocess(task.test.x))


def test_statistics_and_words_come_from_training_examples_alone(table):
    first = load((table.drop(columns=["label", "id"]), table["label"]))
    changed = table.copy()
    held = np.concatenate([first.indices["select"].numpy(), first.indices["test"].numpy()])
    changed.loc[held, "age"] = 1000.0
    changed.loc[held, "plan"] = "unheard of"
    again = load((changed.drop(columns=["label", "id"]), changed["label"]))
    assert again.columns == first.columns
    for name, value in first.preprocess.state_dict().items():
        assert torch.equal(value, again.preprocess.state_dict()[name])


def test_large_numbers_keep_their_differences(table):
    """In single precision 1,000,000.3 and 1,000,000.31 would be one."""
    task = load((table[["income", "age"]], table["label"]))
    column = table["income"].to_numpy()[task.indices["train"].numpy()]
    found = task.preprocess(task.train.x)[:, 0].double().numpy()
    np.testing.assert_allclose(found, (column - column.mean()) / column.std(), atol=1e-6)


def test_columns_may_be_left_out_and_numbers_may_be_categories(tmp_path, caplog):
    lines = ["id,zip,size,label"] + [f"{k},{10 + k % 3},{k * 7 % 11},{'ab'[k % 2]}" for k in range(40)]
    (tmp_path / "d.csv").write_text("\n".join(lines))
    task = load(tmp_path / "d.csv", drop=("id",), categories=("zip",))
    assert task.columns.names == ("zip", "size")
    assert task.columns.columns[0].categories == ("10", "11", "12")
    assert caplog.text == ""
    load(tmp_path / "d.csv")
    assert "column 'id' counts the rows" in caplog.text


def test_dates_are_refused_where_they_are_wanted_and_nowhere_else(table, tmp_path, caplog, fails):
    """What is left out, or is no column of the run's, need not be anything that can be learnt from."""
    table["label"] = np.arange(ROWS) % 2
    dated = pd.concat([pd.DataFrame({"when": pd.date_range("2024-01-01", periods=ROWS)}), table], axis=1)
    dated.to_parquet(tmp_path / "d.parquet")
    fails(tmp_path / "d.parquet", "column 'when' holds dates", "leave the column out")
    fails(tmp_path / "d.parquet", "column 'when' holds dates", label="when")
    task = load(tmp_path / "d.parquet", drop=("id", "when"))
    _, x = read_inputs(str(tmp_path / "d.parquet"), task.inputs)
    assert torch.equal(x[task.indices["train"]].nan_to_num(-9), task.train.x.nan_to_num(-9))
    caplog.clear()
    load((table.drop(columns="label"), table["label"]))
    assert "column 'id' has 400 different texts in 400 rows" in caplog.text
    assert "categories=" not in caplog.text  # which a data frame has no setting for


def test_gaps_have_many_names_and_may_have_more(tmp_path):
    cells = ["1", "", "NA", "n/a", "NaN", "null", "None", "?", "-999", "2"] * 4
    lines = ["a,b,label"] + [f"{cell},{k},{k % 2}" for k, cell in enumerate(cells)]
    (tmp_path / "d.csv").write_text("\n".join(lines))
    task = load(tmp_path / "d.csv", select=0, test=0, missing=("-999",))
    assert task.train.x[:, 0].isnan().sum() == 4 * 8
    assert task.columns.columns[0].gaps
    assert not task.columns.columns[1].gaps


def test_gaps_in_arrays_are_filled_and_said(caplog):
    x = np.random.default_rng(0).normal(size=(40, 3))
    x[::5, 1] = np.nan
    with caplog.at_level(logging.WARNING):
        task = load((x, np.arange(40) % 2), select=0, test=0)
    assert "x has gaps (NaN) in 8 of 40 examples" in caplog.text
    assert task.shape.input == (4,)
    assert not task.preprocess(task.train.x).isnan().any()


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (["a", "b"] * 20, "classification"),
        ([True, False] * 20, "classification"),
        ([1, 2] * 20, "classification"),
        ([-1, 1] * 20, "classification"),
        (np.arange(40) % 4 + 3.0, "classification"),
        (np.arange(40) / 7, "regression"),
        (np.arange(40) * 3, "regression"),
        (np.arange(40) % 25, "regression"),
        (np.arange(1000) % 100, "classification"),  # counted, and ten of each
        (np.arange(1000) % 100 + 7, "regression"),
    ],
)
def test_what_is_to_be_predicted_is_recognised(y, kind, caplog):
    task = load((np.random.default_rng(0).normal(size=(len(y), 2)), np.array(y)), select=0.2, test=0.1)
    found = {"Classification": "classification", "Gaussian": "regression"}[type(task.likelihood).__name__]
    assert found == kind
    assert ("looks like regression" in caplog.text) == (kind == "regression")


@pytest.mark.parametrize("y", [["pear", "fig"] * 20, [3, 8] * 20, [-1.0, 1.0] * 20, [True, False] * 20])
def test_classes_keep_their_names(y):
    task = load((np.random.default_rng(0).normal(size=(40, 2)), y), select=0, test=0)
    names = task.classes or ("0", "1")
    assert [names[k] for k in task.train.y.tolist()] == [
        str(int(v)) if isinstance(v, float | bool) else str(v) for v in y
    ]


def test_numbers_to_predict_are_learnt_in_their_own_unit():
    y = np.random.default_rng(0).normal(1e4, 300, 60)
    task = load((np.random.default_rng(1).normal(size=(60, 2)), y))
    learnt = task.seen(task.train).y.double()
    assert learnt.mean().item() == pytest.approx(0, abs=1e-4)
    assert learnt.std(correction=0).item() == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(task.train.y, y[task.indices["train"].numpy()], rtol=1e-6)  # as they were read


def test_a_parquet_of_typed_columns_is_read_as_its_values_are(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from polyarch.data.files import parquet_frame
    from polyarch.data.frames import typed_frame

    columns = {
        "int": arrow.array([1, None, 2**60, -3], arrow.int64()),
        "byte": arrow.array([1, 2, 255, 0], arrow.uint8()),
        "float": arrow.array([0.5, None, float("nan"), 1e300]),
        "half": arrow.array(np.array([0.5, 1, 2, 3], np.float16)),
        "text": arrow.array([" a ", None, "", "b"]),
        "large": arrow.array(["x", "y", "x", None], arrow.large_string()),
        "coded": arrow.array(["x", "y", None, "x"]).dictionary_encode(),
        "bool": arrow.array([True, None, False, True]),
        "empty": arrow.array([None] * 4, arrow.float32()),
    }
    table = arrow.table(columns)
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=2)  # several chunks
    frame = parquet_frame(str(tmp_path / "t.parquet"))
    own = typed_frame(((name, table[name].to_pylist(), str(table[name].type)) for name in columns), "t")
    for name in columns:
        assert frame.missing(name).tolist() == own.missing(name).tolist(), name
        if name != "empty":
            assert frame.columns[name].dtype == own.columns[name].dtype, name
            np.testing.assert_array_equal(frame.columns[name], own.columns[name])
