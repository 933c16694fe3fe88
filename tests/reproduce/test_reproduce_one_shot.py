"""Ranking from curves, tables and supernets: against scipy, on made-up files from end to end, and on the real ones."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, spearmanr

from polyarch.blackbox import Evaluation, History, Spent
from polyarch.data.task import TaskShape
from polyarch.spaces import NasBench201
from polyarch.tables.table import Table
from polyarch.tables.truth import find_truth

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "ranking"
TABLES = ROOT.parent / "shared" / "data"
benchmark = pytest.mark.skipif(
    not (TABLES / "nasbench201_curves.npz").exists(), reason="the tables of NAS-Bench-201 are not here"
)


@pytest.fixture
def one_shot():
    from reproduce import one_shot

    return one_shot


@pytest.fixture
def curves():
    from reproduce import one_shot_curves

    return one_shot_curves


@pytest.fixture
def table_part():
    from reproduce import one_shot_table

    return one_shot_table


@pytest.fixture
def coverage():
    from reproduce import one_shot_coverage

    return one_shot_coverage


@pytest.fixture
def supernets():
    from reproduce import one_shot_supernets

    return one_shot_supernets


def rows_of(folder, part, **labels):
    rows = json.loads((folder / f"{part}.json").read_text())["rows"]
    return [row for row in rows if all(row.get(name) == value for name, value in labels.items())]


# ---------------------------------------------------------------------------------------------------------------------
# Curves.


def test_judges_by_hand(curves):
    train, valid = np.array([[4.0, 2.0, 1.0]]), np.array([[3.0, 5.0, 6.0]])
    found = curves.judges(train, valid)
    assert found[curves.LAST].tolist() == [[-4, -2, -1]]
    assert found[curves.ALL].tolist() == [[-4, -6, -7]]
    assert found[curves.AVERAGE][0] == pytest.approx([-4, -2.2, -1.12])
    assert found[curves.VALID].tolist() == [[-3, -5, -6]]


def test_correlations_of_draws(curves):
    """Epoch 1 is upside down, epoch 2 right but for the last two cells, epoch 3 right."""
    truth = np.arange(6.0)
    said = np.stack([-truth, np.array([0.0, 1, 2, 3, 5, 4]), truth])
    found = curves.correlations(said, truth, np.array([[0, 1, 2], [3, 4, 5]]))
    assert found["mean"] == [-1, 0.75, 1]
    assert found["sd"] == pytest.approx([0, 0.3536, 0], abs=1e-4)
    assert found["reaches"] == [2, 3]
    never = curves.correlations(said[:1], truth, np.array([[0, 1, 2]]))
    assert never["reaches"] == [None]
    assert never["sd"] == [0]


# ---------------------------------------------------------------------------------------------------------------------
# The table.


def test_parameters_are_those_of_the_networks(table_part):
    space, shape = NasBench201(channels=4, cells=1), TaskShape((3, 32, 32), 10)
    choices = torch.randint(5, (4, 6), generator=torch.Generator().manual_seed(0))
    built = [space.evaluated().build(cell, shape) for cell in space.decode(choices)]
    wanted = [sum(p.numel() for p in network.parameters()) for network in built]
    assert table_part.parameters(space, space.cost_table(shape), choices).tolist() == wanted


def test_correlation_and_its_interval(table_part):
    random = np.random.default_rng(0)
    truth, said = random.normal(size=(2, 200)) + random.normal(size=200)
    found = table_part.correlation(said, truth)
    low, high = found["interval"]
    assert found["spearman"] == pytest.approx(spearmanr(said, truth).statistic, abs=1e-4)
    assert low < found["spearman"] < high < low + 0.3
    assert table_part.correlation(np.arange(9.0), np.arange(9.0) ** 3) == {"spearman": 1, "interval": [1, 1]}
    assert table_part.correlation(said, truth, whole=True)["interval"] is None


def test_truth_along_a_history(table_part):
    space = NasBench201()
    cells = [(0,) * 6, (1,) * 6, (2,) * 6]
    texts = np.array([space.architecture(cell).text for cell in cells])
    table = Table("toy.npz", {"arch": texts, "cifar10_test_acc_200": np.array([10.0, 30.0, 20.0])})
    history = History(
        tuple(
            Evaluation(cell, reward, Spent(place + 1, seconds=10.0 * (place + 1)))
            for place, (cell, reward) in enumerate(zip(cells, (1.0, 0.5, 2.0), strict=True))
        )
    )
    found = table_part.along(history, np.array([9.0, 10, 19, 20, 30, 99]), space, table)
    # The second cell is truly best, but not by its reward; the third is the last incumbent.
    assert found == pytest.approx([np.nan, 10, 10, 10, 20, 20], nan_ok=True)


# ---------------------------------------------------------------------------------------------------------------------
# What intervals cover.


def test_intervals_of_one_sample(coverage):
    random = np.random.default_rng(0)
    truth, size = random.normal(90, 2, 40), random.random(40)
    said = truth + random.normal(size=40)
    found = coverage.given(said, truth, size, 200)
    best = np.argsort(-said)
    assert found["spearman"].value == pytest.approx(spearmanr(said, truth).statistic)
    assert found["with_parameters"].value == pytest.approx(spearmanr(said, size).statistic)
    assert found["top10"].value == pytest.approx(truth[best[:10]].mean())
    assert found["regret"].value == pytest.approx(truth.max() - truth[best[0]])
    assert all(estimate.low <= estimate.value <= estimate.high for estimate in found.values())
    assert coverage.holds(found["top10"], found["top10"].value)
    assert not coverage.holds(found["top10"], found["top10"].high + 0.01)


# ---------------------------------------------------------------------------------------------------------------------
# From end to end, on tables made up for it.


@pytest.fixture
def made_up(tmp_path):
    """All cells, those with many 3x3 convolutions being good; losses fall faster for the good."""
    space, random = NasBench201(), np.random.default_rng(0)
    every = torch.cartesian_prod(*(torch.arange(5) for _ in range(6)))
    quality = (every == 3).sum(1).numpy() + 0.1 * random.normal(size=len(every))
    arrays = {"arch": np.array([cell.text for cell in space.decode(every)])}
    for data in ("cifar10", "cifar100"):
        arrays[f"{data}_test_acc_200"] = 50 + quality
        arrays[f"{data}_valid_acc_12"] = 40 + quality + 0.1 * random.normal(size=len(every))
        arrays[f"{data}_valid_acc_200_naslib"] = 48 + quality
        arrays[f"{data}_train_loss_12_sub"] = -quality[:50]
    arrays["cifar10_train_time_200_s"] = random.uniform(1000, 2000, len(every))
    arrays["cifar10_params_analytic_M"] = (every == 3).sum(1).numpy() + 0.1
    arrays["trainloss_idx"] = np.arange(50)
    np.savez(tmp_path / "cells.npz", **arrays)
    kept = random.permutation(len(every))[:40]
    recorded = {"arch": arrays["arch"][kept], "epochs": np.arange(1, 201)}
    for data in ("cifar10", "cifar100"):
        speed = (1 + quality[kept])[:, None] * np.linspace(0, 1, 200)
        recorded[f"{data}_train_loss"] = np.exp(-speed) + 0.05 * random.random((40, 200))
        recorded[f"{data}_valid_loss"] = np.exp(-speed) + 0.5 * random.random((40, 200))
    np.savez(tmp_path / "losses.npz", **recorded)
    return tmp_path


def test_from_end_to_end(one_shot, call, made_up, capsys):
    out, table = made_up / "out", made_up / "cells.npz"
    call(one_shot, "curves", "--table", table, "--curves", made_up / "losses.npz",
        "--draws", 2, "--cells", 20, "--out", out,
    )  # fmt: skip
    call(one_shot, "table", "--table", table, "--synflow", 3, "--seeds", 2, "--budget", 3000, "--out", out
    )  # fmt: skip
    call(one_shot, "coverage", "--table", table, "--sizes", 15, 30, "--samples", 4, "--resamples", 50, "--out", out)
    covered = rows_of(out, "coverage", score="parameters")
    assert [row["cells"] for row in covered] == [15, 30]
    for row in covered:
        assert row["wanted"]["with_parameters"] == row["with_parameters"] == 1
        assert 0.9 < row["wanted"]["spearman"] < 1
        assert {row[name] for name in row["wanted"]} <= {0, 0.25, 0.5, 0.75, 1}
    [fast] = rows_of(out, "curves", data="cifar10", judge="SoTL, last epoch")
    assert (fast["draws"], fast["cells"], len(fast["mean"])) == (2, 20, 200)
    assert fast["mean"][-1] > 0.9
    assert len(rows_of(out, "curves")) == 2 * (4 + 2 + 3)
    searches = rows_of(out, "table", kind="search")
    assert [row["method"] for row in searches] == [
        "random search", "regularised evolution", "local search", "local search, steepest",
    ]  # fmt: skip
    for row in searches:
        assert 3000 / 120 - 1 <= row["evaluations"] <= 3000 / 60
        assert len(row["cifar10"]) == len(row["cifar100"]) == 2
        assert row["path"]["mean"][-1] == pytest.approx(np.mean(row["cifar10"]), abs=0.01)
    [most] = rows_of(out, "table", choice="the cell with the most parameters")
    assert most["cifar10"][0] > 55.5  # six 3x3 convolutions
    capsys.readouterr()
    call(one_shot, "show", "--out", out)
    printed = capsys.readouterr().out
    assert printed.count("(not run: ") == 1  # supernets, which have a test of their own
    assert "`python -m reproduce.one_shot curves --draws 2 --cells 20` on" in printed
    assert "`python -m reproduce.one_shot table --synflow 3 --seeds 2 --budget 3000` on" in printed
    call(one_shot, "figures", "--out", out)
    assert {file.name for file in out.glob("*.png")} == {"curves.png", "searches.png"}


def test_nothing_run(one_shot, call, tmp_path, capsys):
    call(one_shot, "show", "--out", tmp_path)
    parts = ("curves", "table", "coverage", "supernets")
    assert capsys.readouterr().out == "\n\n".join(f"(not run: {part})" for part in parts) + "\n"


# ---------------------------------------------------------------------------------------------------------------------
# Supernets, of raw files made up for it; the truth is the library's own.

CELLS, LENGTH = 40, 120


def own_cells():
    from reproduce.own_truth import SPACE

    truth = find_truth(SPACE)
    cells = truth.draw(CELLS, seed=0)
    return cells, truth.values(cells)


def raw_arrays(sign):
    """What orders cells like the truth (sign 1) or the other way round (-1): all but the norms."""
    truth = sign * own_cells()[1]
    arrays = {
        "losses": np.repeat(1 - truth[:, None] / 1000, LENGTH, 1),
        "gradient_sums": np.repeat(200 + truth[:, None], LENGTH, 1),
        "gradient_norms": np.repeat(200 - truth[:, None], LENGTH, 1),
        "step_seconds": np.full(CELLS, 0.6),
    }
    for step in (0, 10, 30, 100):
        for examples in (0, 64):
            name = f"{step}-{examples}-recalibrated"
            arrays[f"valid-accuracy-{name}"] = 0.5 + truth / 1000 if examples == 0 else np.full(CELLS, 0.25)
            arrays[f"valid-loss-{name}"] = 1 - truth / 1000
            arrays[f"seconds-{name}"] = np.full(CELLS, 0.25)
    return arrays | {"valid-accuracy-0-0-shared": 0.3 - truth / 1000, "seconds-0-0-shared": np.full(CELLS, 0.125)}


def write_raw(folder, name, arrays, texts=None):
    folder.mkdir(exist_ok=True)
    texts = [str(cell) for cell in own_cells()[0]] if texts is None else texts
    np.savez(folder / f"{name}.npz", cells=np.array(texts), **arrays)


def without_looks(arrays):
    return {name: array for name, array in arrays.items() if "-0-" not in name and "-64-" not in name}


def found_from(supernets, folder):
    return list(supernets.rows(argparse.Namespace(raw=folder)))


def test_estimators_on_known_orders(supernets, tmp_path):
    write_raw(tmp_path, "single-path-0-0.01-64", raw_arrays(1))
    write_raw(tmp_path, "single-path-0-0.001-64", raw_arrays(-1))
    rows = [row for row in found_from(supernets, tmp_path) if row["kind"] == "estimator"]
    assert {row["method"] for row in rows} == {"single-path"}
    best, worst = np.sort(own_cells()[1])[-10:].mean(), np.sort(own_cells()[1])[:10].mean()
    for rate, sign in ((0.01, 1), (0.001, -1)):
        by_name = {row["estimator"]: row for row in rows if row["rate"] == rate}
        assert list(by_name) == ["sotl", "train-loss", "sog", "sogn", *supernets.LOOKS]
        for name, wanted in (
            ("sotl", sign), ("train-loss", sign), ("sog", sign), ("sogn", -sign),
            ("valid-accuracy", sign), ("valid-loss", sign), ("valid-accuracy-shared", -sign),
        ):  # fmt: skip
            row = by_name[name]
            assert row["spearman"] == row["kendall"] == [wanted] * len(row["steps"])
            assert row["top10"] == pytest.approx([best if wanted == 1 else worst] * len(row["steps"]), abs=1e-4)
        assert by_name["valid-accuracy-mini"]["spearman"] == [None] * 4  # the same for all
        assert by_name["valid-accuracy-mini"]["top10"] == pytest.approx([own_cells()[1].mean()] * 4, abs=1e-4)
        assert by_name["sotl"]["steps"] == [1, 2, 3, 5, 10, 20, 30, 50, 75, 100]
        assert by_name["valid-accuracy"]["steps"] == [0, 10, 30, 100]
        assert by_name["valid-accuracy-shared"]["steps"] == [0]


def test_sums_and_single_losses_differ(supernets):
    """The third loss is the other way round: TLMini turns, SoTL does not; a loss that is no number comes last."""
    truth = np.arange(30.0)
    losses = np.repeat(-truth[:, None], 3, 1)
    losses[:, 2] *= -1
    losses[29, 1] = np.nan
    known = supernets.Known(truth, truth[:, None], truth[::-1].copy())
    arrays = {"losses": losses, "gradient_norms": losses, "gradient_sums": losses}
    rows = {row["estimator"]: row for row in supernets.judged({}, arrays, known)}
    assert rows["sotl"]["steps"] == [1, 2, 3]
    astray = spearmanr([*range(29), -1], truth).statistic
    assert rows["sotl"]["spearman"] == pytest.approx([1, astray, astray], abs=1e-4)
    assert rows["train-loss"]["spearman"] == pytest.approx([1, astray, -1], abs=1e-4)
    assert rows["sotl"]["with_parameters"] == pytest.approx([-1, -astray, -astray], abs=1e-4)
    assert rows["sotl"]["top10"][1] == pytest.approx(np.mean(range(19, 29)))


def test_best_against_middle(supernets):
    """Twenty cells: the best two lead by 0.5 in the second half of 60 steps, a cell that went astray aside."""
    losses = np.ones((20, 60))
    losses[18:, 30:] -= 0.5
    losses[[9, 10], :] += 0.25
    losses[0, 5:] = np.inf
    found = supernets.losses_of_groups(losses, np.arange(20.0))
    assert found["steps"] == [10, 20, 30, 40, 50, 60]
    assert found["best"] == [1] * 3 + [0.5] * 3
    assert found["middle"] == [1.25] * 6
    assert found["all"][0] == pytest.approx(1 + 2 * 0.25 / 19, abs=1e-4)
    few = supernets.losses_of_groups(np.arange(12.0).reshape(4, 3), np.array([3.0, 0, 1, 2]))
    assert (few["steps"], few["best"]) == ([3], [1])


def test_halves_are_of_the_truth(supernets):
    found = supernets.halves(np.array([3.0, 1, 5, 2, 4]))
    assert {half: sorted(places.tolist()) for half, places in found.items()} == {
        "worse_half": [1, 3], "better_half": [0, 2, 4]
    }  # fmt: skip


def test_ceiling_is_what_a_perfect_judge_has(supernets):
    random = np.random.default_rng(0)
    worth = random.normal(size=5000)
    for count in (2, 4):
        seeds = worth[:, None] + random.normal(size=(5000, count))
        found = supernets.trust(seeds)
        assert found["ceiling"] == pytest.approx(spearmanr(worth, seeds.mean(1)).statistic, abs=0.02)
        assert found["agreement"] == pytest.approx(spearmanr(seeds[:, 0], seeds[:, 1]).statistic, abs=0.02)
        assert found["noise"] == pytest.approx(1, abs=0.03)
    alone = supernets.trust(seeds[:, :1])
    assert set(alone.values()) == {None}


def test_truth_and_baselines(supernets, tmp_path):
    from reproduce.own_truth import SPACE

    write_raw(tmp_path, "reptile-0-0.01-128", without_looks(raw_arrays(1)))
    truth_row, *others = found_from(supernets, tmp_path)
    cells, truth = own_cells()
    assert (truth_row["kind"], truth_row["cells"]) == ("truth", CELLS)
    assert truth_row["range"] == pytest.approx([truth.min(), truth.max()], abs=1e-4)
    with torch.device("meta"):
        built = [SPACE.evaluated().build(cell, TaskShape((1, 14, 14), 10)) for cell in cells]
    size = [sum(p.numel() for p in network.parameters()) for network in built]
    named = {row["judge"]: row for row in others if row["kind"] == "baseline"}
    assert named["parameters"]["spearman"][0] == pytest.approx(spearmanr(size, truth).statistic, abs=1e-4)
    assert named["parameters"]["kendall"][0] == pytest.approx(kendalltau(size, truth).statistic, abs=1e-4)
    assert named["parameters"]["spearman"][1] < named["parameters"]["spearman"][0] < named["parameters"]["spearman"][2]
    assert (named["random"]["spearman"][0], named["best"]["spearman"][0]) == (0, 1)
    assert named["random"]["top10"][0] == pytest.approx(truth.mean(), abs=1e-4)
    assert named["best"]["top10"][0] == pytest.approx(np.sort(truth)[-10:].mean(), abs=1e-4)
    assert not [row for row in others if row["kind"] == "accuracy"]  # nothing was looked at


def test_supernets_from_end_to_end(one_shot, call, tmp_path, capsys):
    raw, out = tmp_path / "raw", tmp_path / "out"
    for seed in range(2):
        for rate, sign in ((0.01, 1), (0.001, -1)):
            write_raw(raw, f"single-path-{seed}-{rate}-64", raw_arrays(sign))
        write_raw(raw, f"single-path-{seed}-0.01-128", without_looks(raw_arrays(1)))  # and nothing of 256
    write_raw(raw, "metaprox-1-0.001-64", raw_arrays(1))
    (raw / "metaprox.pt").touch()
    call(one_shot, "supernets", "--raw", raw, "--out", out)
    [look] = rows_of(out, "supernets", kind="accuracy", method="metaprox")
    truth = own_cells()[1].mean()
    assert look["accuracy"] == pytest.approx([50 + truth / 10] * 4, abs=1e-3)
    assert look["shared"] == pytest.approx(30 - truth / 10, abs=1e-3)
    assert (look["seconds_100_steps"], look["seconds_look"], look["seconds_look_shared"]) == (0.5, 0.25, 0.125)
    gaps = rows_of(out, "supernets", kind="gap", method="single-path", seed=0, batch=64)
    assert [row["rate"] for row in gaps] == [0.001, 0.01]
    assert gaps[1]["best"][0] < gaps[1]["middle"][0]
    assert gaps[0]["best"][0] > gaps[0]["middle"][0]
    capsys.readouterr()
    call(one_shot, "show", "--out", out)
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert "| estimator | single-path | metaprox |" in lines
    assert "| SoTL, 100 steps | 1.000 ± 0.000 | 1.000 |" in lines
    assert "| SoTL, 100 steps, 0.001 for all | −1.000 ± 0.000 | 1.000 |" in lines
    assert "| thesis, CIFAR-10: SoTL | 0.78 ± 0.06 | 0.88 ± 0.01 |" in lines
    assert any(line.startswith("| 0.01, 128 | 1.000 ± 0.000 | ") and line.endswith("| – | – |") for line in lines)
    assert any(line.startswith("| 0.001, 256 | – | – | – | – |") for line in lines)
    assert "`python -m reproduce.one_shot supernets` on" in printed
    call(one_shot, "figures", "--out", out)
    assert {file.name for file in out.glob("*.png")} == {"steps.png", "batches.png", "gap.png"}


def test_raw_files_that_do_not_fit(supernets, tmp_path):
    with pytest.raises(SystemExit, match=r"no METHOD-SEED-RATE-BATCH\.npz"):
        found_from(supernets, tmp_path)
    write_raw(tmp_path, "fairnas-0-0.01-64", raw_arrays(1))
    write_raw(tmp_path, "fairnas-1-0.01-64", raw_arrays(1), [str(cell) for cell in own_cells()[0][::-1]])
    with pytest.raises(SystemExit, match="has other cells than"):
        found_from(supernets, tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# The real tables.


@benchmark
def test_training_speed_ranks_early(curves):
    """Last-epoch SoTL is at 0.90 by epoch 30 on CIFAR-10 and by 20 on CIFAR-100."""
    arguments = argparse.Namespace(
        curves=TABLES / "nasbench201_curves.npz", table=TABLES / "nasbench201.npz", draws=10, cells=200
    )
    found = {(row["data"], row["judge"]): row["mean"] for row in curves.rows(arguments) if row["kind"] == "curve"}
    assert found["cifar10", curves.LAST][29] >= 0.90
    assert found["cifar100", curves.LAST][19] >= 0.90
    assert max(found["cifar10", curves.VALID]) < 0.90


@benchmark
def test_parameters_and_searches(table_part):
    arguments = argparse.Namespace(table=TABLES / "nasbench201.npz", seeds=30, budget=20_000, synflow=0)
    rows = list(table_part.rows(arguments))
    ranking = {row["data"]: row["spearman"] for row in rows if row["kind"] == "ranking"}
    assert ranking == {"cifar10": pytest.approx(0.753, abs=5e-4), "cifar100": pytest.approx(0.728, abs=5e-4)}
    ends = {row["method"]: np.mean(row["cifar10"]) for row in rows if row["kind"] == "search"}
    assert ends["random search"] == pytest.approx(93.9, abs=0.15)
    assert ends["regularised evolution"] == pytest.approx(94.0, abs=0.2)
    assert ends["local search"] > ends["random search"]


def test_committed_results(one_shot, call, capsys):
    for data, epoch in (("cifar10", 30), ("cifar100", 20)):
        [row] = rows_of(RESULTS, "curves", kind="curve", data=data, judge="SoTL, last epoch")
        assert row["mean"][epoch - 1] >= 0.90
    ends = {row["method"]: row["cifar10"] for row in rows_of(RESULTS, "table", kind="search")}
    assert all(len(end) == 100 for end in ends.values())
    assert np.mean(ends["random search"]) == pytest.approx(93.9, abs=0.15)
    assert np.mean(ends["regularised evolution"]) == pytest.approx(94.0, abs=0.2)
    assert sum(row["seconds"] for row in rows_of(RESULTS, "table", kind="search")) < 60
    [synflow] = rows_of(RESULTS, "table", score="synflow", data="cifar10")
    assert synflow["cells"] == 1000
    assert synflow["interval"][0] < synflow["spearman"] < synflow["interval"][1]
    for row in rows_of(RESULTS, "coverage"):  # what the library gives an interval has one that covers
        assert all(row[name] >= 0.92 for name in ("spearman", "kendall", "sparse_kendall", "with_parameters"))
    assert min(row["top10"] for row in rows_of(RESULTS, "coverage")) < 0.8
    assert max(row["regret"] for row in rows_of(RESULTS, "coverage")) < 0.92
    call(one_shot, "show", "--out", RESULTS)
    printed = capsys.readouterr().out
    page = (RESULTS.parent / "ranking.md").read_text(encoding="utf-8")
    for block in printed.strip().split("\n\n"):
        assert block in page  # the page shows what the rows say
