"""The toys of the SoTL thesis: known answers, a short run of every part, and tables and figures from it."""

import json
import math
import xml.etree.ElementTree as ElementTree
from argparse import Namespace
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "training-speed"


@pytest.fixture
def speed():
    from reproduce import training_speed

    return training_speed


@pytest.fixture
def bayes():
    from reproduce import training_speed_evidence

    return training_speed_evidence


@pytest.fixture
def fourier():
    from reproduce import training_speed_fourier

    return training_speed_fourier


def rows_of(folder, part):
    return json.loads((folder / f"{part}.json").read_text())["rows"]


# ---------------------------------------------------------------------------------------------------------------------
# Evidence.


def a_regression(seed, points=12, columns=4):
    generator = torch.Generator().manual_seed(seed)
    phi = torch.randn(points, columns, generator=generator, dtype=torch.float64)
    weights = torch.randn(columns, generator=generator, dtype=torch.float64)
    return phi, phi @ weights + 0.5 * torch.randn(points, generator=generator, dtype=torch.float64), generator


def test_evidence_of_one_point_by_hand(bayes):
    phi, y = torch.tensor([[2.0]], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    variance = 4 * bayes.PRIOR + bayes.NOISE
    wanted = -0.5 * (1 / variance + math.log(2 * math.pi * variance))
    assert bayes.log_evidence(phi, y) == pytest.approx(wanted, rel=1e-12)
    found = bayes.judged(phi, y, (1,), torch.Generator().manual_seed(0))
    assert found["chain"] == pytest.approx(wanted, rel=1e-12)
    # Before any data the weights are the prior's: E log N(1; 2 w, noise) = log N(1; 0, noise) - 4 / (2 noise).
    below = -0.5 * (1 / bayes.NOISE + math.log(2 * math.pi * bayes.NOISE)) - 2 / bayes.NOISE
    assert found["bound"] == pytest.approx(below, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_chain_of_predictions_is_the_evidence(bayes, seed):
    phi, y, generator = a_regression(seed)
    found = bayes.judged(phi, y, (1,), generator)
    assert found["chain"] == pytest.approx(found["evidence"], abs=1e-8)
    assert found["bound"] < found["evidence"]


def test_sample_then_optimise_gives_the_posterior(bayes):
    phi, y, generator = a_regression(0, points=5, columns=3)
    samples = bayes.sample_then_optimise(phi, y, 200_000, generator)
    mean, covariance = bayes.posterior(phi, y)
    assert torch.allclose(samples.mean(0), mean, atol=0.01)
    assert torch.allclose(samples.T.cov(), covariance, atol=0.01)


def test_bounds_hold_and_tighten(bayes):
    """Means over many draws: Eq. 3.6 stays at the bound with less spread; inside the log it climbs to the evidence."""
    phi, y, generator = a_regression(1)
    counts = (1, 5, 50)
    found = [bayes.judged(phi, y, counts, generator) for _ in range(60)]
    sotl = {k: torch.tensor([each["sotl"][k] for each in found]) for k in counts}
    inside = {k: torch.tensor([each["inside"][k] for each in found]).mean() for k in counts}
    for k in counts:
        assert abs(sotl[k].mean() - found[0]["bound"]) < 4 * sotl[k].std() / math.sqrt(len(found))
    assert sotl[1].std() > 1.5 * sotl[5].std() > 2.25 * sotl[50].std()
    assert inside[1] < inside[5] < inside[50] < found[0]["evidence"]
    assert found[0]["evidence"] - inside[50] < 0.1 * (found[0]["evidence"] - found[0]["bound"])


# ---------------------------------------------------------------------------------------------------------------------
# The Fourier degree.


def test_true_fixed_degree_has_the_lowest_sotl(speed):
    rows = list(speed.fixed_degrees(Namespace(quick=True, seeds=1, steps=300)))
    for data in ("thesis", "code"):
        for true in speed.TRUE_DEGREES:
            own = [r for r in rows if (r["data"], r["true"], r["start"]) == (data, true, "drawn")]
            assert min(own, key=lambda row: row["sotl"])["degree"] == true


@pytest.mark.parametrize("definition", ["thesis", "code"])
@pytest.mark.parametrize("true", [3, 5])
def test_best_degree_against_ridge_regression(fourier, definition, true):
    """The closed form assumes orthogonal features; here the weights are fitted to points, degree by degree."""
    from polyarch.spaces.fourier import features, gates

    angles = torch.linspace(-math.pi, math.pi, 401, dtype=torch.float64)[:-1, None]
    columns = features(angles, fourier.HIGHEST, fourier.COLUMNS[definition])
    used = fourier.widened((torch.arange(fourier.HIGHEST + 1) <= true).double(), columns.shape[1])
    y = columns @ used

    def cost(degree):
        gated = columns * fourier.widened(gates(torch.tensor(degree, dtype=torch.float64), fourier.HIGHEST), len(used))
        precision = gated.T @ gated / len(y) + fourier.WEIGHT_L2 * torch.eye(len(used), dtype=torch.float64)
        weights = torch.linalg.solve(precision, gated.T @ y / len(y))
        fit = (gated @ weights - y).square().mean() + fourier.WEIGHT_L2 * weights.square().sum()
        return (fit + 0.01 * degree**2).item()

    degrees = torch.linspace(true - 1.5, true + 1.5, 301).tolist()
    assert fourier.best_degree(definition, true, 0.01) == pytest.approx(min(degrees, key=cost), abs=0.01)


def test_best_by_validation(fourier):
    """On the training data itself it is the closed form; where validation wants more of a degree, it is above."""
    train, valid = fourier.load_series("code", (3,), 1, fourier.HIGHEST)
    x, y = train.one(0)
    closed = fourier.best_degree("code", 3, 0.01)
    assert fourier.best_by_validation((x, y), (x, y), 3, 0.01) == pytest.approx(closed, abs=0.01)
    more = y + 0.02 * x[:, 5:7].sum(1)
    assert fourier.best_by_validation((x, y), (x, more), 3, 0.01) > closed + 0.1
    assert valid.one(0)[0].shape == (5000, 19)


def test_learnt_degree_finds_the_truth(speed):
    rows = list(speed.learn_degrees("thesis", speed.OBJECTIVES[0], Namespace(seeds=1, steps=1100)))
    assert len(rows) == 12
    for row in rows:
        if row["start"] <= 0:
            assert abs(row["end"] - row["true"]) <= 0.5
        else:
            assert row["true"] < row["end"] < row["start"]  # on its way down


def test_arrival(speed):
    assert speed.arrival(torch.tensor([-1.0, 2.0, 2.5, 4.0]), 3, 25) == 50
    assert speed.arrival(torch.tensor([-1.0, 2.4]), 3, 25) is None


# ---------------------------------------------------------------------------------------------------------------------
# The learning rate.


def test_rate_of_two_steps_is_the_product_of_gradients(speed):
    """Eq. 4.2: only the second loss depends on the rate, by minus the product of both gradients."""
    weights, generator = speed.network_weights(0), torch.Generator().manual_seed(0)
    batches = [(torch.randn(8, 784, generator=generator), torch.arange(8)) for _ in range(2)]
    gradients, path = [], [w.clone().requires_grad_() for w in weights]
    for batch in batches:
        gradients.append(torch.autograd.grad(speed.network_loss(path, batch), path))
        path = [(w - 0.1 * g).detach().requires_grad_() for w, g in zip(path, gradients[-1], strict=True)]
    wanted = -sum((a * b).sum() for a, b in zip(*gradients, strict=True))
    assert speed.rate_slope(weights, 0.1, batches) == pytest.approx(wanted.item(), rel=1e-4)
    after = speed.trained(weights, 0.1, batches)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(after, path, strict=True))


def test_next_rate(speed):
    assert speed.next_rate(0.01, -2.0) == pytest.approx(0.03)
    assert speed.next_rate(0.5, -1000.0) == pytest.approx(0.6)  # clipped to 10
    assert speed.next_rate(0.01, 2.0) == pytest.approx(0.005)  # would be negative


# ---------------------------------------------------------------------------------------------------------------------
# From end to end.


def drawn(folder):
    files = list(folder.glob("*.svg"))
    for file in files:
        root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
        assert root.find("{http://www.w3.org/2000/svg}title").text
    return {file.stem for file in files}


def test_quick_run(speed, call, tmp_path, capsys):
    call(speed, "--quick", "--seeds", 1, "--steps", 50, "--out", tmp_path)
    assert "needs --images" in capsys.readouterr().out
    assert {row["degree"] for row in rows_of(tmp_path, "evidence")} == {1, 3, 5}
    assert len(rows_of(tmp_path, "learnt_degrees")) == 2 * 3 * 12
    rates = [
        {"seed": 0, "T": steps, "accuracy": [0.5, 0.75], "rates": [0.001, 0.01, 0.02], "end": 0.02} for steps in (0, 25)
    ]
    (tmp_path / "learning_rate.json").write_text(json.dumps({"command": "c", "machine": "m", "rows": rates}))
    call(speed, "--table", "--out", tmp_path)
    printed = capsys.readouterr().out
    assert "| T=25 | 50.00 | 75.00 | 0.0200 |" in printed
    assert "`python -m reproduce.training_speed --quick --seeds 1 --steps 50` on" in printed
    assert "not run" not in printed
    call(speed, "--figures", "--out", tmp_path)
    assert drawn(tmp_path) == {"evidence", "fig4-1a", "fig4-2", "fig4-3a", "fig4-3b"}


def test_unknown_part(speed, call, tmp_path, capsys):
    with pytest.raises(SystemExit):
        call(speed, "--quick", "--only", "evidnce", "--out", tmp_path)
    assert "no part evidnce; there are evidence," in capsys.readouterr().err


def test_committed_results(speed, call, tmp_path, capsys):
    for row in rows_of(RESULTS, "evidence"):
        assert row["chain"] == pytest.approx(row["evidence"], abs=1e-8)
        assert row["bound"] < row["evidence"]
    for row in rows_of(RESULTS, "learnt_degrees"):
        if row["degree_l2"] == 0.003 and row["objective"] in ("SoTL, T=25", "SoTL, T=2"):
            assert abs(row["end"] - row["true"]) <= 0.5
    call(speed, "--table", "--out", RESULTS)
    printed = capsys.readouterr().out
    assert "not run" not in printed
    page = (RESULTS.parent / "training-speed.md").read_text(encoding="utf-8")
    assert printed in page  # the page shows what the rows say
    assert drawn(RESULTS) == {"evidence", "fig4-1a", "fig4-2", "fig4-3a", "fig4-3b"}
