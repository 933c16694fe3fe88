"""The benchmark of belief: its tables are whole and hold what a training gives, and its scores are those of a hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch.methods.variational_depth import posterior, total_log_likelihood
from polyarch.runs.preparing import make_problem
from polyarch.tables import open_table


@pytest.fixture
def truth():
    from reproduce import belief_truth

    return belief_truth


@pytest.fixture
def belief():
    from reproduce import belief

    return belief


def test_the_tables_have_every_architecture_and_seed(truth):
    for benchmark in truth.BENCHMARKS:
        table = open_table(benchmark.table)
        assert list(table.architectures) == list(map(str, benchmark.architectures))
        coverage = table.coverage(benchmark.space)
        assert coverage.covered == coverage.architectures == len(table) == benchmark.space.count()
        shape = benchmark.task().shape
        for row, architecture in enumerate(benchmark.architectures):
            if row % 7 == 0:
                assert table.whole("parameters")[row] == benchmark.space.cost(architecture, shape).parameters
        for column, split in (("valid_log_likelihood", "valid"), ("test_accuracy", "test")):
            seeds = [table.whole(f"{column}_seeds[{seed}]") for seed in range(benchmark.seeds)]
            assert f"{column}_seeds[{benchmark.seeds}]" not in table.columns
            np.testing.assert_allclose(np.mean(seeds, 0), table.whole(column), rtol=1e-5)
            assert np.std(seeds, 0).max() > 0
            assert (table.column(column).split, table.column(column).better) == (split, "higher")


@pytest.mark.slow
@pytest.mark.parametrize(("place", "text"), [(0, "depth=0"), (1, "first=skip,second=skip,activation=none")])
def test_training_one_again_gives_what_the_table_has(truth, place, text):
    """Linear, or nearly: rounding hardly matters."""
    benchmark = truth.BENCHMARKS[place]
    table = open_table(benchmark.table)
    found = truth.trained(replace(benchmark, seeds=2), benchmark.space.parse(text))
    for column in ("valid_log_likelihood", "test_log_likelihood"):
        kept = [table.look_up(f"{column}_seeds[{seed}]", [text])[0] for seed in range(2)]
        assert found[f"{column}_seeds"] == pytest.approx(kept, abs=0.01)
    assert found["parameters"] == table.look_up("parameters", [text])[0]


def test_an_architecture_that_is_lacking_is_said(truth, tmp_path):
    benchmark = truth.BENCHMARKS[0]
    with pytest.raises(SystemExit, match="depth-spirals lacks 16 of 16 architectures"):
        truth.gathered(benchmark, tmp_path)


def test_quick_through_the_command_line(belief, call, tmp_path, capsys):
    call(belief, "--quick", "--only", "variational-depth,one-shot,darts", "--out", tmp_path)
    kept = {path.stem: json.loads(path.read_text())["rows"] for path in tmp_path.glob("*.json")}
    assert {name: len(rows) for name, rows in kept.items()} == {"variational-depth": 6, "one-shot": 8, "darts": 2}
    for rows in kept.values():
        for row in rows:
            assert sum(math.exp(value) for value in row["log_probs"] if value is not None) == pytest.approx(1, abs=1e-3)
    capsys.readouterr()
    call(belief, "--table", "--out", tmp_path)
    lines = {tuple(line.split(" | ")[:2]): line for line in capsys.readouterr().out.splitlines()}
    assert {("| darts", "learnt"), ("| one-shot", "softmax of standardised scores"), ("| uniform", "")} <= set(lines)
    uniform, darts = lines["| one-shot", "learnt"].split(" | "), lines["| uniform", ""].split(" | ")
    assert uniform[2].split(" ± ")[0] == darts[2], "the belief of a one-shot supernet is its prior"


def test_the_posterior_of_the_weights_is_that_of_the_depth_paper(belief, truth, tmp_path):
    """One architecture after another, and all depths in one pass."""
    space, task = pa.spaces.ResidualDepth(max_depth=4), pa.data.load("spirals", points=120, select=0.4)
    run = pa.search(space, task, pa.methods.VariationalDepth(epochs=20), out=tmp_path / "run")
    problem = make_problem(run.config, space, task, torch.device("cpu"))
    problem.supernet.load_state_dict(run.supernet().state_dict())
    for split in ("train", "select"):
        exact = posterior(total_log_likelihood(problem, split), problem.prior).repeat(0)
        choices = space.random().support()
        found = belief.posterior(run, split).log_prob(choices)
        torch.testing.assert_close(found, exact.log_prob(choices), atol=1e-4, rtol=1e-4, check_dtype=False)


def test_scores_by_hand(belief, truth):
    """Mass within a margin is added up by hand from the table; of several modes the regret is their mean."""
    for benchmark in truth.BENCHMARKS:
        worth = open_table(benchmark.table).whole("test_log_likelihood")
        probs = np.random.default_rng(0).dirichlet(np.ones(len(worth)))
        found = belief.score(benchmark, torch.tensor(probs).log(), belief.truth_of(benchmark))
        for name, e in belief.margins(benchmark).items():
            assert found[name] == pytest.approx(math.log(probs[worth >= worth.max() - e].sum()))
        assert found["regret"] == pytest.approx(worth.max() - worth[probs.argmax()])
        flat = belief.score(benchmark, torch.zeros(len(worth)), belief.truth_of(benchmark))
        assert flat["regret"] == pytest.approx(worth.max() - worth.mean())
        best = benchmark.space.format(benchmark.space.random().support()[worth.argmax()].tolist())
        assert belief.score(benchmark, torch.zeros(len(worth)), belief.truth_of(benchmark), best)["regret"] == 0


def test_minus_infinity_is_counted_not_averaged(belief):
    rows = [{"error": 0.0}, {"error": -math.inf}]
    assert [belief.log_mass(some, "error") for some in (rows, rows[1:], rows[:1] * 2)] == [
        "−∞ in 1 of 2",
        "−∞",
        "0.00 ± 0.00",
    ]
