"""Whether the intervals of trust cover: on made-up truth, on the whole table, and what was committed."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from polyarch.ranking import Estimate

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "trust"
TABLES = ROOT.parent / "shared" / "data"
benchmark = pytest.mark.skipif(
    not (TABLES / "nasbench201.npz").exists(), reason="the table of NAS-Bench-201 is not here"
)


@pytest.fixture
def trust():
    from reproduce import trust

    return trust


@pytest.fixture
def landscape():
    """As skewed as truth is: most are good, and some are very bad."""
    random = np.random.default_rng(0)
    return 94 - random.gamma(0.6, 4, size=3000)


def test_a_belief_knows_as_much_as_it_is_told_to(trust, landscape):
    belief = trust.belief_of(landscape, 0.5, 4.0, np.random.default_rng(1))
    assert belief.probs.sum() == pytest.approx(1)
    random = np.random.default_rng(2)
    cells = np.concatenate(belief.draw(40_000, random))
    assert kendalltau(belief.logits[cells], landscape[cells]).statistic == pytest.approx(0.5, abs=0.02)
    by_belief, uniform = belief.draw(40_000, random)
    assert (landscape[by_belief] > landscape[uniform]).mean() == pytest.approx(belief.known["draws"], abs=0.01)
    assert (belief.selected > landscape[uniform]).mean() == pytest.approx(belief.known["selected"], abs=0.01)
    assert belief.selected - np.median(landscape[uniform]) == pytest.approx(belief.known["above"], abs=0.1)


def test_rivals_of_gaussian_variables(trust):
    """All but the bound agree roughly for what they are all made for."""
    random = np.random.default_rng(0)
    one = random.normal(size=64)
    other = one + random.normal(size=64)
    ends = {name: interval(one, other) for name, interval in trust.RIVALS.items()}
    widths = {name: high - low for name, (low, high) in ends.items()}
    assert all(low < kendalltau(one, other).statistic < high for low, high in ends.values())
    assert max(widths, key=widths.get) == "bound"
    assert max(width for name, width in widths.items() if name != "bound") < 1.5 * min(widths.values())


def test_judging(trust):
    found = [Estimate(0.1, -0.1, 0.3), Estimate(0.4, 0.2, 0.6)]
    assert trust.judged(found, 0.25, 0.0) == {"known": 0.25, "width": 0.4, "holds": 1.0, "noticed": 0.5}
    assert trust.judged([*found, Estimate(0.4)], 0.25, 0.0) is None


def test_committed_results(trust, call, capsys):
    """At a nominal 95 % intervals of tau cover in 92 to 98 %, up to two standard errors of so many repetitions."""
    rows = json.loads((RESULTS / "coverage.json").read_text())["rows"]
    assert {row["data"] for row in rows} == set(trust.COLUMNS)
    for row in rows:
        off = 2 * (0.05 * 0.95 / row["repetitions"]) ** 0.5
        assert 0.92 - off <= row["order"]["holds"] <= 0.98 + off, row
        assert 0.92 - off <= row["draws"]["holds"] <= 0.98 + off, row
        assert row["selected"]["holds"] >= 0.95 - off, row
        assert row["above"] is None or 0.92 - off <= row["above"]["holds"] <= 0.98 + off, row
        assert row["above"] is not None or row["trainings"] < 12
    noticed = {row["trainings"]: row["order"]["noticed"] for row in rows if row["tau"] == 0.5}
    assert noticed[8] < 0.5 < noticed[16] < 0.95 < noticed[64]
    call(trust, "show", "--out", RESULTS)
    page = (RESULTS.parent / "trust.md").read_text(encoding="utf-8")
    for block in capsys.readouterr().out.strip().split("\n\n"):
        assert block in page  # the page shows what the rows say


@benchmark
@pytest.mark.slow
def test_intervals_cover_on_the_table(trust):
    """As the committed results, by fewer repetitions, on CIFAR-10 alone."""
    rows = list(trust.coverage(str(TABLES / "nasbench201.npz"), 100, data=("CIFAR-10",)))
    assert len(rows) == 24
    for row in rows:
        assert row["order"]["holds"] >= 0.89, row
        assert row["draws"]["holds"] >= 0.89, row
    assert 0.92 <= np.mean([row["order"]["holds"] for row in rows]) <= 0.98
    assert 0.92 <= np.mean([row["draws"]["holds"] for row in rows]) <= 0.98
