"""Whole numbers [n, length] are tokens: they have no order and no size, and stay what they are."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from polyarch.data import load
from polyarch.data.inputs import read_inputs
from polyarch.data.kinds import Inputs, inputs_from, inputs_of
from polyarch.errors import PolyarchError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 50, (40, 6))
X[0, 0] = 49
Y = np.arange(40) % 2


@pytest.mark.parametrize("dtype", [np.int64, np.int32, ">i4"])
@pytest.mark.parametrize("standardise", [True, False])
def test_tokens_stay_what_they_are(tmp_path, dtype, standardise):
    x = X.astype(dtype)
    np.savez(tmp_path / "d.npz", x=x, y=Y)
    own = np.ascontiguousarray(x, dtype=np.dtype(dtype).newbyteorder("="))
    sources = (tmp_path / "d.npz", (x, Y), TensorDataset(torch.from_numpy(own), torch.from_numpy(Y)))
    for source in sources:
        task = load(source, select=0.2, test=0.2, standardise=standardise)
        assert task.train.x.dtype == torch.int64
        assert np.array_equal(task.train.x, X[task.indices["train"]])
        assert torch.equal(task.preprocess(task.train.x), task.train.x)
        assert task.preprocess(task.train.x).dtype == torch.int64
        assert (task.shape.input, task.shape.tokens) == ((6,), 50)
        assert (task.inputs.type, task.inputs.tokens, task.inputs.words) == ("tokens", 50, "6 tokens")


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (X.astype(np.uint8), torch.uint8),
        (X.astype(np.int16), torch.float32),
        (X.astype(np.float64), torch.float32),
        (X > 20, torch.float32),
        (RNG.integers(0, 50, (40, 5, 6)), torch.float32),
        (RNG.integers(0, 50, (40, 1, 5, 6)), torch.float32),
    ],
)
def test_other_arrays_are_no_tokens(x, dtype):
    task = load((x, Y), select=0, test=0)
    assert task.train.x.dtype == dtype
    assert task.shape.tokens == 0
    assert task.inputs.type == ("bytes" if dtype == torch.uint8 else "numbers")


def test_tokens_run_from_zero(fails):
    fails((X - 1, Y), "arrays: x[", "is -1; whole numbers are tokens", "save numbers as float32")


def test_a_test_set_of_another_type(fails):
    fails((X, Y, X.astype(float), Y), "have the type int64 but those of x_test float32; make them equal")


def test_tokens_of_all_splits_are_known():
    task = load((X, Y, X[:4] + 50, Y[:4]), select=0)
    assert task.shape.tokens == 100
    assert torch.equal(task.shape.trial(2), torch.full((2, 6), 99))


def test_inputs_to_predict_are_tokens_where_the_runs_own_are(tmp_path):
    like = inputs_of([torch.from_numpy(X)], None)
    for dtype in (np.int64, np.int32, np.int16, np.uint8):
        np.savez(tmp_path / "d.npz", x=X.astype(dtype))
        _, found = read_inputs(str(tmp_path / "d.npz"), like)
        assert found.dtype == torch.int64
        assert np.array_equal(found, X)
    np.savez(tmp_path / "d.npz", x=X.astype(np.float32))
    with pytest.raises(PolyarchError, match="holds values of type float32, and this run takes tokens; give whole"):
        read_inputs(str(tmp_path / "d.npz"), like)
    np.savez(tmp_path / "d.npz", x=X)
    assert read_inputs(str(tmp_path / "d.npz"), Inputs((6,)))[1].dtype == torch.float32


def test_tokens_that_a_run_does_not_know():
    like = inputs_of([torch.from_numpy(X)], None)
    like.check("d.npz", torch.from_numpy(X), 255.0)
    with pytest.raises(PolyarchError, match="has inputs up to 50, and this run knows the tokens 0 to 49"):
        like.check("d.npz", torch.from_numpy(X + 1), 255.0)
    with pytest.raises(PolyarchError, match="knows the tokens"):
        like.check("d.npz", torch.from_numpy(X).float(), 255.0)


def test_what_inputs_are_is_written_and_read_again(tmp_path):
    (tmp_path / "d.csv").write_text("a,b,label\n" + "".join(f"{i},{i * i},{i % 2}\n" for i in range(20)))
    for task in (load((X, Y)), load(tmp_path / "d.csv"), load("digits")):
        assert inputs_from(task.inputs.settings()) == task.inputs
