import json

import numpy as np
import pytest

from polyarch import PolyarchError
from polyarch.tables import Column, Table
from polyarch.tables.columns import better_of, split_of

ARCH = np.array(["a", "b", "c"])


def table(**arrays):
    return Table("t.npz", {"arch": ARCH, **arrays})


@pytest.mark.parametrize(
    ("name", "split", "better"),
    [
        ("cifar10_test_acc_200", "test", "higher"),
        ("cifar10_valid_acc_12", "valid", "higher"),
        ("val_acc", "valid", "higher"),
        ("Validation-Accuracy", "valid", "higher"),
        ("cifar100_valtest_acc_200_seeds", "valid+test", "higher"),
        ("test_valid_acc", "valid+test", "higher"),
        ("trainval_loss", "train+valid", "lower"),
        ("cifar10_train_loss", "train", "lower"),
        ("test1_error", "test", "lower"),
        ("top1_err", None, "lower"),
        ("cifar10_train_time_200_s", None, "lower"),
        ("latency_ms", None, "lower"),
        ("test_latency", None, "lower"),
        ("cifar10_params_M", None, "lower"),
        ("flops_M", None, "lower"),
        ("MACs", None, "lower"),
        ("time_to_acc", None, None),
        ("cifar10_zen_score", None, None),
        ("interval_of_latest_value", None, None),
        ("testament_evaluation", None, None),
        ("contest_acceleration", None, None),
    ],
)
def test_what_a_name_says(name, split, better):
    assert (split_of(name), better_of(name)) == (split, better)
    [column] = table(**{name: np.zeros(3)}).columns.values()
    assert column == Column(name, None, None, split, better)


def test_arrays_of_one_number_a_row_are_columns_and_all_others_are_not():
    found = table(
        f=np.zeros(3, np.float32),
        i=np.zeros(3, int),
        b=np.zeros(3, bool),
        short=np.zeros(2),
        words=ARCH,
        scalar=np.array(7),
        graphs=np.zeros((3, 2, 2)),
        wide=np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    )
    assert list(found.columns) == ["f", "i", "b", "wide[0]", "wide[1]"]
    assert list(found.others) == ["short", "words", "scalar", "graphs"]
    assert found.whole("wide[1]").tolist() == [2.0, 4.0, 6.0]
    assert found.whole("b").dtype == np.float64


def test_labels_name_the_second_axis_and_take_the_place_of_numbers():
    loss = np.arange(6.0).reshape(3, 2)
    found = table(loss=loss, epochs=np.array([1, 2]))
    assert list(found.columns) == ["loss[1]", "loss[2]"]
    assert found.whole("loss[1]").tolist() == loss[:, 0].tolist()
    assert found.columns["loss[2]"] == Column("loss", "2", 1, None, "lower")
    with pytest.raises(PolyarchError, match=r"no column 'loss\[0\]'; loss has the columns \[1, 2\]"):
        found.whole("loss[0]")


def test_of_several_lists_the_one_with_the_same_first_word_labels():
    wide = np.zeros((3, 2))
    both = {"latency_devices": np.array(["pixel", "edge"]), "op_names": np.array(["conv", "skip"])}
    found = table(latency_ms=wide, ops=wide, **both)
    assert list(found.columns) == ["latency_ms[pixel]", "latency_ms[edge]", "ops[0]", "ops[1]"]


def test_lists_that_repeat_or_are_no_names_label_nothing():
    found = table(a=np.zeros((3, 2)), same=np.array(["x", "x"]), fractions=np.array([0.1, 0.2]))
    assert list(found.columns) == ["a[0]", "a[1]"]
    found = table(a=np.zeros((3, 3)), b=np.array([5, 6, 7]))  # as long as the table: a column itself
    assert list(found.columns) == ["a[0]", "a[1]", "a[2]", "b"]


def test_the_file_has_the_last_word():
    said = {"acc": {"split": "test", "about": "mean of 3"}, "zen": {"better": "higher"}, "time": {"better": None}}
    found = table(acc=np.zeros((3, 2)), zen=np.zeros(3), time=np.zeros(3), columns=np.array(json.dumps(said)))
    assert found.columns == {
        "acc[0]": Column("acc", "0", 0, "test", "higher", "mean of 3"),
        "acc[1]": Column("acc", "1", 1, "test", "higher", "mean of 3"),
        "zen": Column("zen", None, None, None, "higher"),
        "time": Column("time", None, None, None, None),
    }
    assert found.others == {}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("{", "must be one text that holds a JSON object"),
        ("[1]", "must be one text that holds a JSON object"),
        ('{"acc": 1}', "must be one text that holds a JSON object"),
        ('{"ac": {}}', "unknown column 'ac'; did you mean 'acc'"),
        ('{"short": {}}', r"column 'short', whose array is float64 of shape \[2\]; it must be .* each of the 3"),
        ('{"acc": {"split": "tset"}}', "column 'acc': unknown split 'tset'; did you mean 'test'"),
        ('{"acc": {"better": "up"}}', "unknown better 'up'; known: higher, lower"),
        ('{"acc": {"splt": "test"}}', "unknown part of a description 'splt'; did you mean 'split'"),
        ('{"acc": {"about": 3}}', "'about' is 3; it must be text"),
    ],
)
def test_wrong_descriptions(said, message):
    with pytest.raises(PolyarchError, match=f"^t.npz: .*{message}"):
        table(acc=np.zeros(3), short=np.zeros(2), columns=np.array(said))


def test_a_description_of_several_texts_is_refused():
    with pytest.raises(PolyarchError, match="must be one text"):
        table(acc=np.zeros(3), columns=np.array(["acc", "time"]))


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(PolyarchError, match=r"two columns are called 'a\[0\]'; rename"):
        table(**{"a": np.zeros((3, 1)), "a[0]": np.zeros(3)})
