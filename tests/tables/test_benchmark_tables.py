"""The tables of real benchmarks, where they are at hand: what is known of them comes out."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from polyarch import PolyarchError
from polyarch.spaces.nasbench201 import NasBench201
from polyarch.tables import open_table

DATA = Path(__file__).parents[2].parent / "shared" / "data"
SPACE = NasBench201()


def opened(name):
    if not (DATA / f"{name}.npz").exists():
        pytest.skip(f"{name}.npz is not beside the checkout")
    return open_table(DATA / f"{name}.npz")


@pytest.fixture(scope="module")
def nasbench201():
    return opened("nasbench201")


def cell(operation):
    return "+".join("|" + "".join(f"{operation}~{j}|" for j in range(i)) for i in (1, 2, 3))


@pytest.mark.parametrize(
    ("data", "best", "skip", "conv"), [("cifar10", 94.37, 54.30, 93.76), ("cifar100", 73.51, 15.61, 71.11)]
)
def test_published_accuracies(nasbench201, data, best, skip, conv):
    column = f"{data}_test_acc_200"
    assert nasbench201.columns[column].split == "test"
    [(_, value)] = nasbench201.best(column, top=1)
    assert round(value, 2) == best
    skips, convs = SPACE.parse(cell("skip_connect")), SPACE.parse(cell("nor_conv_3x3"))
    assert nasbench201.value(column, SPACE, skips) == pytest.approx(skip, abs=0.005)
    assert nasbench201.value(column, SPACE, convs) == pytest.approx(conv, abs=0.005)


def test_every_cell_has_the_number_of_its_own_row(nasbench201):
    assert nasbench201.coverage(SPACE).covered == SPACE.count()
    # The file lists the operations of every row as numbers too; they are read here without any text.
    with np.load(DATA / "nasbench201.npz", allow_pickle=False) as content:
        ops, expected = content["ops"], content["cifar10_test_acc_200"].astype(np.float64)
        here = [SPACE.decisions[0].options.index(name) for name in content["op_names"].tolist()]
    choices = torch.tensor(here)[torch.from_numpy(ops.astype(np.int64))]
    assert np.array_equal(nasbench201.values("cifar10_test_acc_200", SPACE, choices).numpy(), expected)
    every = torch.tensor(list(itertools.product(range(5), repeat=6)))
    values = nasbench201.values("cifar10_test_acc_200", SPACE, every)
    assert (values.mean().item(), values.std(correction=0).item()) == pytest.approx((87.06, 12.93), abs=0.005)


def test_meaning_of_its_columns(nasbench201):
    columns = nasbench201.columns
    assert len(nasbench201) == 15_625
    assert columns["cifar10_valid_acc_200"].split == columns["cifar100_valid_acc_12"].split == "valid"
    assert columns["cifar100_valtest_acc_200_seeds[2]"].split == "valid+test"
    assert columns["cifar10_train_time_200_s"].split is None
    assert columns["latency_ms[raspi4]"].better == columns["cifar10_flops_M"].better == "lower"
    assert columns["cifar10_zen_score"].better is None
    assert "ops[3<-0]" in columns
    assert nasbench201.others["trainloss_idx"].shape == (1000,)


def test_columns_with_gaps_say_so(nasbench201):
    with pytest.raises(PolyarchError, match="'cifar10_hpobench_test_acc_200' has no finite number in 625 of its 15625"):
        nasbench201.best("cifar10_hpobench_test_acc_200")


def test_a_sample_says_what_it_covers():
    curves = opened("nasbench201_curves")
    found = curves.coverage(SPACE)
    assert (found.architectures, found.covered, found.foreign) == (15_625, 600, 0)
    assert len(found.missing) == 3
    # Labels are epochs from 1, not places from 0.
    with np.load(DATA / "nasbench201_curves.npz", allow_pickle=False) as content:
        assert np.array_equal(curves.whole("cifar10_train_loss[1]"), content["cifar10_train_loss"][:, 0])
        assert np.array_equal(curves.whole("cifar10_train_loss[200]"), content["cifar10_train_loss"][:, -1])


def test_nasbench101_goes_by_module_hash():
    table = opened("nasbench101_sample")
    assert len(table) == 20_000
    assert [c.name for c in table.columns.values() if c.array == "val_acc"] == [
        f"val_acc[{e}]" for e in (4, 12, 36, 108)
    ]
    with np.load(DATA / "nasbench101_sample.npz", allow_pickle=False) as content:
        last, hashes = content["val_acc"][:, 3], content["module_hash"]
    assert table.best("val_acc[108]", top=1) == [(str(hashes[last.argmax()]), float(last.max()))]
    assert table.look_up("val_acc[108]", [str(hashes[7])]).tolist() == [float(last[7])]
    with pytest.raises(PolyarchError, match="none of its 20000 rows is of the space 'nasbench201'"):
        table.coverage(SPACE)
