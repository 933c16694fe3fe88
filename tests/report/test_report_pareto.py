"""Quality against cost in the report."""

import numpy as np
import pytest

import polyarch as pa
from polyarch.report.pareto_section import best_by_cost, pareto
from polyarch.report.report_data import ReportData


def test_the_best_at_every_cost():
    costs, worth = np.array([5.0, 1, 3, 3, 4, 1]), np.array([9.0, 2, 1, 7, 7, 3])
    found = best_by_cost(costs, worth)
    assert [list(own) for own in found] == [[1, 3, 5], [3, 7, 9]]
    found = best_by_cost(costs, -worth, larger_is_better=False)
    assert [list(own) for own in found] == [[1, 3, 5], [-3, -7, -9]]


def data(runs, task, baselines=()):
    return ReportData(runs, task, list(baselines), runs[0].folder)


def test_depths_with_baselines_have_both_panels(digits, digits_fixed):
    found = pareto(data(digits.runs, digits.task, digits_fixed.runs))
    assert (found["cost"], found["worth"]) == ("parameters", "test accuracy")
    assert str(found["svg"]).count("trained alone") == 2  # at both widths
    assert "log-probability of depths" in found["svg"]


def test_cells_have_what_belief_says(cell_search, images):
    assert pareto(data(cell_search.runs, images)) is None  # it is about one run
    found = pareto(data(cell_search.runs[:1], images))
    assert (found["drawn"], found["worth"], found["limited"]) == (True, "", False)


@pytest.mark.slow
def test_cells_that_are_read_out_have_shares_of_draws(images, home):
    space, method = pa.spaces.Darts(channels=2, layers=3), pa.methods.Darts(epochs=1, batch_size=8)
    run = pa.search(
        space, images, method, out=home / "read-out", select=pa.Select(limits=["macs=1M"]), compute=pa.Compute("cpu")
    )
    found = pareto(data([run], images))
    assert (found["cost"], found["shares"], found["drawn"]) == ("multiply-accumulates", True, False)


def test_nothing_is_said_of_one_network_and_of_equal_costs(digits_fixed, cell_alone, images):
    assert pareto(data(digits_fixed.runs[:1], digits_fixed.task)) is None
    assert pareto(data(cell_alone.runs, images)) is None


def test_wirings_all_cost_the_same(wiring):
    assert pareto(data(wiring.runs[:1], wiring.task)) is None
