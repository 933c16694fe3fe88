"""Limits and prices as measured: the script, what was committed, and a limit on a column of the real table."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch.distributions import Categorical
from polyarch.distributions.selection import select
from polyarch.runs.limits import make_bounds
from polyarch.spaces.limits import limits_of

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "limits"
TABLE = ROOT.parent / "shared" / "data" / "nasbench201.npz"


@pytest.fixture
def limits():
    from reproduce import limits

    return limits


def test_the_expected_best_is_the_mean_over_all_samples(limits):
    values = np.random.default_rng(0).normal(size=7)
    for count in (1, 2, 3, 7, 9):
        wanted = np.mean([max(own) for own in itertools.combinations(values, min(count, 7))])
        assert limits.expected_best(values, count) == pytest.approx(wanted)


def test_what_was_committed_obeys(limits, call, capsys):
    rows = json.loads((RESULTS / "obeys.json").read_text())["rows"]
    assert {row["method"] for row in rows} >= {*limits.CELL_METHODS, *(name for _, name in limits.OTHERS)}
    assert all(row["found"] <= row["most"] for row in rows)
    proper = [row for row in rows if row["most"] <= row["share"] * row["unlimited"]]  # not the fewest there are
    assert len(proper) > 12
    for row in json.loads((RESULTS / "truth.json").read_text())["rows"]:
        assert row["most"] is None or row["flops"] <= row["most"] + 1e-6
    call(limits, "show")
    told = capsys.readouterr().out
    page = (RESULTS.parent / "limits.md").read_text()
    assert all(line in page for line in told.splitlines() if line.startswith("| "))


@pytest.mark.skipif(not TABLE.exists(), reason="the table of NAS-Bench-201 is not here")
def test_a_limit_on_a_latency_of_the_table():
    from polyarch.data.task import TaskShape
    from polyarch.tables import open_table

    space = pa.spaces.NasBench201()
    belief = Categorical(space.decisions, torch.randn(6, 5, generator=torch.Generator().manual_seed(0)))
    every = space.random().support()
    known = open_table(TABLE).values("latency_ms[pixel2]", space, every)
    most = known.quantile(0.05).item()
    bounds = make_bounds(limits_of([f"latency_ms[pixel2]={most:.6g}"]), space, TaskShape((3, 32, 32), 10), str(TABLE))
    found = torch.tensor([select(belief, "argmax", bounds=bounds)])
    best = belief.log_prob(every[known <= float(f"{most:.6g}")]).max()
    assert belief.log_prob(found).item() == pytest.approx(best.item(), abs=1e-5)
