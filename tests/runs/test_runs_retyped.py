"""Whatever is done to arrays and to the columns of tables, an answer never changes without a word."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import polyarch as pa
from polyarch.errors import PolyarchError
from polyarch.methods import FixedDepth
from polyarch.spaces import ResidualDepth

QUICK = FixedDepth(depth=1, epochs=5, batch_size=32, weights={"lr": 0.05})
SPACE = ResidualDepth(max_depth=2, width=8)
CPU = pa.Compute("cpu")
ANY = settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ROWS = np.random.default_rng(1).integers(0, 9, (10, 4)).astype(np.float64)
"""Whole numbers, which are the same in every type."""


def data():
    random = np.random.default_rng(0)
    x = random.integers(0, 9, (200, 4)).astype(np.float32)
    return x, (x[:, 0] + 2 * x[:, 1] > 12).astype(int)


@pytest.fixture(scope="module")
def nameless(tmp_path_factory):
    """A run on an array, whose columns have no names."""
    return pa.search(SPACE, data(), QUICK, out=tmp_path_factory.mktemp("nameless") / "run", compute=CPU)


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A run on a data frame of numbers."""
    x, y = data()
    frame = pd.DataFrame(x, columns=list("abcd"))
    return pa.search(SPACE, (frame, y), QUICK, out=tmp_path_factory.mktemp("named") / "run", compute=CPU)


def answered(run, x):
    """What a run says of inputs; None where it refuses them."""
    try:
        return run.predict(x).log_probs
    except PolyarchError:
        return None


TYPES = {
    **{
        kind: lambda x, kind=kind: x.astype(kind)
        for kind in ("float32", "float16", "int64", "int32", "int8", "uint8", "uint16", "object", "str", "complex64")
    },
    "fortran": np.asfortranarray,
    "backwards": lambda x: x[::-1][::-1],
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "lists": lambda x: x.tolist(),
    "tensor": torch.from_numpy,
    "tensor of float32": lambda x: torch.from_numpy(x).float(),
    "tensor of whole numbers": lambda x: torch.from_numpy(x).long(),
}
SHAPES = {
    "as it is": lambda x: x,
    "turned": lambda x: x.T,
    "lacking": lambda x: x[:, :3],
    "more": lambda x: np.concatenate([x, x[:, :1]], 1),
    "flat": lambda x: x.ravel(),
    "deep": lambda x: x[:, None],
    "gaps": lambda x: np.where(np.arange(4) == 1, np.nan, x),
    "infinite": lambda x: np.where(np.arange(4) == 1, np.inf, x),
}


@pytest.mark.parametrize("places", [[1], [0, 1, 2, 3]])
def test_numbers_in_another_unit_are_said_without_names_too(nameless, caplog, places):
    x = data()[0]
    nameless.predict(x)
    assert caplog.text == ""
    x[:, places] *= 1000
    nameless.predict(x)
    said = ", ".join(f"'{place}'" for place in places)
    assert f"{said} far from all that the run has seen" in caplog.text


@ANY
@given(kind=st.sampled_from(sorted(TYPES)), shape=st.sampled_from(sorted(SHAPES)), on=st.booleans())
def test_arrays_of_another_type_or_shape(nameless, named, caplog, kind, shape, on):
    """The same numbers have the same answer in every type; what is no such array is refused, or said."""
    whole = "int" in kind or "whole" in kind
    assume(not (whole and shape in ("gaps", "infinite")))  # numpy itself makes others of these
    run = named if on else nameless
    plain = run.predict(ROWS).log_probs
    with np.errstate(all="ignore"):
        given_x = TYPES[kind](SHAPES[shape](ROWS).copy())
    caplog.clear()
    said = answered(run, given_x)
    if said is None:
        assert (kind, shape) not in {("float32", "as it is"), ("int64", "as it is"), ("lists", "as it is")}
        return
    if said.shape != plain.shape or not torch.allclose(said, plain, atol=1e-5):
        assert "x: column" in caplog.text, (kind, shape, caplog.text)  # far off, or a gap that none had


ORDERS = st.permutations(range(4))


@ANY
@given(
    order=ORDERS,
    counted=st.sampled_from([None, 0, 1]),
    as_csv=st.booleans(),
    extra=st.booleans(),
    lost=st.booleans(),
)
def test_tables_for_a_run_that_knows_no_names(nameless, tmp_path, caplog, order, counted, as_csv, extra, lost):
    """Columns that are counted are put in order; with other names they are taken as they stand, and that is said."""
    names = list("wxyz") if counted is None else [str(k + counted) for k in range(4)]
    plain = nameless.predict(ROWS).log_probs
    frame = pd.DataFrame(ROWS, columns=names)[[names[k] for k in order]]
    frame = frame.assign(note=1.0) if extra else frame
    frame = frame.drop(columns=names[0]) if lost else frame
    given_x = frame
    if as_csv:
        given_x = tmp_path / "rows.csv"
        frame.to_csv(given_x, index=False)
    caplog.clear()
    # Of a file, a first line of numbers out of order may be one of data.
    if extra != lost or (as_csv and counted is not None and not extra and order != sorted(order)):
        with pytest.raises(PolyarchError):
            nameless.predict(given_x)
        return
    said = nameless.predict(given_x).log_probs
    in_order = counted is not None and not extra
    if in_order:
        assert torch.equal(said, plain)
    assert ("the run knows no names of columns, and takes" in caplog.text) == (not in_order)


def test_an_array_for_a_run_that_knows_names_is_taken_in_their_order_and_that_is_said(named, tmp_path, caplog):
    frame = pd.DataFrame(ROWS, columns=list("abcd"))
    wanted = named.predict(frame).log_probs
    assert caplog.text == ""
    assert torch.equal(named.predict(ROWS).log_probs, wanted)
    assert "x has no names of columns, and is taken to hold columns 'a', 'b', 'c', 'd' in this order" in caplog.text
    caplog.clear()
    assert torch.equal(named.predict(frame[list("dcba")]).log_probs, wanted)
    assert caplog.text == ""


@ANY
@given(
    order=ORDERS,
    kind=st.sampled_from(["float32", "int8", "uint8", "object", "str", "string", "category", "Int64", "bool"]),
    lost=st.sampled_from([None, *"abcd"]),
    extra=st.booleans(),
    as_csv=st.booleans(),
)
def test_tables_for_a_run_that_knows_names(named, tmp_path, caplog, order, kind, lost, extra, as_csv):
    plain = named.predict(pd.DataFrame(ROWS, columns=list("abcd"))).log_probs
    frame = pd.DataFrame(ROWS.astype(int), columns=list("abcd")).iloc[:, order].astype(kind)
    frame = frame.assign(note="x") if extra else frame
    frame = frame.drop(columns=lost) if lost else frame
    given_x = frame
    if as_csv:
        given_x = tmp_path / "rows.csv"
        frame.to_csv(given_x, index=False)
    caplog.clear()
    said = answered(named, given_x)
    if said is None:
        assert lost is not None or kind == "bool"
        return
    assert lost is None
    assert ("column 'note' left over" in caplog.text) == extra
    if kind != "bool":
        assert torch.allclose(said, plain, atol=1e-6)
    else:
        assert "True" in caplog.text or not torch.allclose(said, plain)  # truth values are 0 and 1
