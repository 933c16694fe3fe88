"""One column of a table as the truth: compared with the table's own numbers, looked up by hand."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.distributions import uniform
from polyarch.spaces import NasBench201, ResidualDepth
from polyarch.tables import convert, default_table, find_truth
from polyarch.testing.toy import Lines

SPACE = Lines()
TEXTS = [SPACE.format(c) for c in itertools.product(range(3), range(2))]
NUMBERS = dict(zip(TEXTS, (0.1, 0.25, 0.5, 0.7, 0.4, 0.9), strict=True))
DATA = Path(__file__).parents[2].parent / "shared" / "data"


def write_table(folder, numbers, header="valid_acc", **options):
    source = folder / "table.csv"
    rows = [f'"{text}",{number}' for text, number in numbers.items()]
    source.write_text("\n".join([f"arch,{header}", *rows]))
    convert(source, folder / "table.npz", **options)
    return folder / "table.npz"


def test_the_usual_column(tmp_path):
    def column(**columns):
        path = tmp_path / "t.npz"
        np.savez(path, arch=np.array(TEXTS), **{name: np.arange(6.0) for name in columns})
        return find_truth(SPACE, path, splits=("valid",)).column.name

    assert column(test_acc=1, valid_acc=1, valid_loss=1) == "valid_acc"
    assert column(quality=1) == "quality"
    np.savez(tmp_path / "many.npz", arch=np.array(TEXTS), valid_acc=np.arange(6.0), valid_acc_epochs=np.ones((6, 4)))
    assert find_truth(SPACE, tmp_path / "many.npz").column.name == "valid_acc", "arrays of several columns come last"


def test_the_best_is_the_lowest_where_lower_is_better_and_unknown_where_nobody_says(tmp_path):
    architecture = SPACE.parse(TEXTS[2])
    for options, best in (({"lower": ["figure"]}, 0.1), ({"higher": ["figure"]}, 0.9), ({}, None)):
        folder = tmp_path / str(best)
        folder.mkdir()
        truth = find_truth(SPACE, write_table(folder, NUMBERS, "figure", **options))
        found = truth.result(SPACE, architecture)
        assert (found["best"], found["selected"]) == (best, 0.5)


def test_rows_of_other_spaces_are_no_baseline(tmp_path):
    path = write_table(tmp_path, {**NUMBERS, "another": 99.0})
    found = find_truth(SPACE, path).result(SPACE, SPACE.parse(TEXTS[0]))
    assert (found["best"], found["random"]["architectures"]) == (0.9, 6)


def test_a_large_space_whose_cells_have_other_names_in_the_table(tmp_path):
    """Too many to enumerate, and a module hash cannot be read back: some of a few draws must be found."""
    space = pa.spaces.NasBench1Shot1(sub_space=3)
    drawn = space.decode(uniform(space.decisions).sample(400, torch.Generator().manual_seed(7)))
    numbers = {space.key(architecture): k / 7 for k, architecture in enumerate(drawn)}
    np.savez(tmp_path / "t.npz", module_hash=np.array(list(numbers)), valid_acc=np.array(list(numbers.values())))
    truth = find_truth(space, tmp_path / "t.npz")
    truth.check_fits()
    choices = torch.tensor([architecture.choices for architecture in drawn])
    assert truth.known(space, choices) == [numbers[space.key(architecture)] for architecture in drawn]


@pytest.mark.skipif(not (DATA / "nasbench201.npz").exists(), reason="the table of NAS-Bench-201 is not here")
def test_the_baselines_of_nasbench201_are_the_known_ones():
    space = pa.spaces.NasBench201()
    truth = find_truth(space, DATA / "nasbench201.npz", "cifar10_test_acc_200")
    skips = "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|"
    found = truth.result(space, space.parse(skips))
    assert found["selected"] == pytest.approx(54.30, abs=0.005)
    assert found["best"] == pytest.approx(94.37, abs=0.005)
    assert found["random"] == {
        "mean": pytest.approx(87.06, abs=0.005),
        "std": pytest.approx(12.93, abs=0.005),
        "architectures": 15_625,
    }


def table(path, **columns):
    np.savez(path, arch=np.array([f"depth={d}" for d in range(3)]), **columns)
    return path


def test_the_column_of_the_truth(tmp_path):
    space, ramp = ResidualDepth(max_depth=3), np.arange(3.0)
    path = table(tmp_path / "t.npz", test_acc=ramp, valid_acc=ramp + 1, valid_loss=-ramp, odd=ramp)
    assert find_truth(space, path).column.name == "test_acc"
    loss = find_truth(space, path, "valid_loss")
    assert loss.better == "lower"
    architectures = [space.parse(f"depth={d}") for d in (2, 0)]
    assert loss.values(architectures).tolist() == [-2, 0]
    assert find_truth(space, table(tmp_path / "v.npz", valid_acc=ramp, valid_loss=ramp)).column.name == "valid_acc"
    assert find_truth(space, table(tmp_path / "l.npz", valid_loss=ramp)).column.name == "valid_loss"
    with pytest.raises(PolyarchError, match="does not say which direction is better"):
        _ = find_truth(space, path, "odd").better
    with pytest.raises(PolyarchError, match="2 columns of test accuracy: a_test_acc, b_test_acc; name one"):
        find_truth(space, table(tmp_path / "2.npz", a_test_acc=ramp, b_test_acc=ramp))
    with pytest.raises(PolyarchError, match="no row for 1 of the architectures"):
        loss.values([space.parse("depth=3"), *architectures])


def test_without_a_table():
    assert default_table(ResidualDepth()) is None
    with pytest.raises(PolyarchError, match="--table and --column"):
        find_truth(ResidualDepth())


def test_the_table_that_comes_along():
    """Different networks of the space, in per cent, one row each; only for the size that was trained."""
    space = NasBench201(channels=8, cells=1)
    found = find_truth(space)
    assert found.column.name == "test_accuracy"
    assert found.better == "higher"
    cells = [space.parse(text) for text in found.table.architectures]
    assert len({space.canonical(cell) for cell in cells}) == len(cells) == 768
    numbers = found.values(cells)
    assert 80 < numbers.min() < numbers.mean() < numbers.max() < 95
    seeds = [name for name in found.table.columns if name.startswith("test_accuracy_seeds")]
    assert np.allclose(np.mean([found.table.whole(name) for name in seeds], 0), numbers, atol=1e-4), "their mean"
    assert default_table(NasBench201()) is None
    drawn = found.draw(20, seed=3)
    assert drawn == found.draw(50, seed=3)[:20]
    assert len(set(drawn)) == 20
