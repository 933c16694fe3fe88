"""PARSEC's bias: the tabulated estimates are the method's own, and their mean goes where enumeration says."""

import json
from pathlib import Path

import pytest
import torch

import polyarch as pa
from polyarch.testing.toy import Lines, every_choice, log_likelihoods, toy_task
from polyarch.training.dry_run import prepare

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "parsec" / "bias.json"


@pytest.fixture
def parsec():
    from reproduce import parsec

    return parsec


@pytest.fixture
def enumerated(parsec):
    """Six architectures of two decisions, whose posterior is neither flat nor a winner's."""
    logits = torch.tensor([[0.5, -0.3, 0.2], [0.4, -0.4, -torch.inf]], dtype=torch.float64)
    fits = torch.tensor([-3.0, -4.5, -1.0, -2.0, -6.0, -2.5], dtype=torch.float64)
    return parsec.Enumerated(pa.distributions.Categorical(Lines().decisions, logits), fits, 8)


def test_estimates_are_those_of_a_step(parsec, tmp_path):
    """The same samples through the method itself: Adam keeps half of its first gradient, downwards."""
    task = toy_task(tmp_path)
    for temperature in (1.0, 8.0):
        method = pa.methods.Parsec(samples=5, batch_size=8, temperature=temperature)
        problem, state, feed = prepare(method, Lines(), task, task.seen(task.train), repeats=7)
        with torch.no_grad():
            state.belief["logits"].copy_(torch.tensor([[0.5, -0.3, 0.2], [0.4, -0.4, 0.0]]))
            [batch] = feed.batches["search"]
            fits = log_likelihoods(problem, batch.x, batch.y).sum(-1).double()
        belief = method.distribution(problem.space, state.belief)
        choices = (belief.log_probs.detach().unsqueeze(1) + feed.draws["gumbel"]).argmax(-1)
        logits = belief.logits.detach().double()
        info = method.step(problem, state, feed)
        stepped = -2 * state.optimiser["belief.logits.first"].double()
        for repeat in range(7):
            one = pa.distributions.Categorical(belief.decisions, logits[repeat])
            given, own = parsec.Enumerated(one, fits[repeat], 8), choices[repeat : repeat + 1]
            omega = given.omega(own, temperature)
            torch.testing.assert_close(given.estimates(own, omega)[0], stepped[repeat], rtol=1e-4, atol=1e-5)
            effective = info.metrics["effective_samples"][repeat].item()
            assert 1 / omega.square().sum().item() == pytest.approx(effective, rel=1e-4)


def test_exact_gradient_by_hand(enumerated):
    """The posterior's marginals less the prior's."""
    for temperature in (1.0, 8.0):
        slopes, shifts = (row.exp() / row.exp().sum() for row in enumerated.belief.logits)
        weights = torch.outer(slopes, shifts[:2]) * (enumerated.fits.view(3, 2) / temperature).exp()
        weights = weights / weights.sum()
        found = enumerated.exact(temperature)
        torch.testing.assert_close(found[0], weights.sum(1) - slopes)
        torch.testing.assert_close(found[1, :2], weights.sum(0) - shifts[:2])


@pytest.mark.parametrize("temperature", [1.0, 8.0])
def test_bias_shrinks_with_samples_and_the_limit_is_exact(parsec, enumerated, temperature):
    generator = torch.Generator().manual_seed(0)
    rows = [parsec.measured(enumerated, k, temperature, 0.2, generator) for k in (1, 4, 16, 64, 1024)]
    biases = [row["bias"] for row in rows]
    assert biases[0] == pytest.approx(1, abs=1e-9), "one sample has weight 1, whatever it is, and learns nothing"
    for before, after, row in zip(biases, biases[1:-1], rows[1:], strict=False):
        assert after < before / 1.5
        assert row["error"] < 0.05
    assert biases[-1] < 4 * rows[-1]["error"] + 0.005
    assert rows[-1]["cosine"] == pytest.approx(1, abs=1e-3)
    assert (rows[-1]["cosine_eq3"] > 0.9999) == (temperature == 1), "another temperature leads elsewhere"


def test_bias_of_two_samples_by_enumeration(parsec, enumerated):
    """All pairs of architectures, each with its probability: the mean estimate without any chance."""
    pairs = torch.cartesian_prod(torch.arange(6), torch.arange(6))
    choices = every_choice(Lines())[pairs]
    chances = enumerated.belief.log_prob(every_choice(Lines())).exp()[pairs].prod(-1)
    mean = (chances.view(-1, 1, 1) * enumerated.estimates(choices, enumerated.omega(choices, 1.0))).sum(0)
    exact = enumerated.exact(1.0)
    wanted = ((mean - exact).norm() / exact.norm()).item()
    found = parsec.measured(enumerated, 2, 1.0, 1.0, torch.Generator().manual_seed(0))
    assert found["bias"] == pytest.approx(wanted, abs=4 * found["error"])
    assert found["error"] < 0.02


@pytest.mark.parametrize("samples", [2, 4, 8])
def test_nearly_equal_weights_shorten_the_gradient_by_one_over_k(parsec, enumerated, samples):
    """To first order in the log-likelihoods, the mean estimate is (1 - 1/K) times the gradient."""
    found = parsec.measured(enumerated, samples, 1000.0, 1.0, torch.Generator().manual_seed(0))
    assert found["bias"] == pytest.approx(1 / samples, abs=4 * found["error"])
    assert found["length"] == pytest.approx(1 - 1 / samples, abs=4 * found["error"])
    assert found["centred_noise"] < found["noise"] / 5, "chance that has nothing to do with fits is taken out"


def test_fits_of_cells_are_those_of_their_networks(parsec):
    space, task = pa.spaces.NasBench201(channels=2, cells=1), pa.data.load("digits", select=0.3)
    supernet = space.supernet(task.shape)
    x, y = task.preprocess(task.select.x[:16]), task.select.y[:16]
    choices = every_choice(space)
    few = [0, 7000, 15624]
    wanted = []
    for row in few:
        network = supernet.extract(space.architecture(choices[row].tolist())).train()
        wanted.append(-torch.nn.functional.cross_entropy(network(x), y, reduction="sum").item())
    found = parsec.fits_of(supernet, task, x, y, choices[few])
    assert found.tolist() == pytest.approx(wanted, rel=1e-4)


def test_quick_run_and_table(parsec, call, tmp_path, capsys):
    call(parsec, "--quick", "--seeds", 1, "--out", tmp_path)
    assert "temperature 1, K=16: bias" in capsys.readouterr().out
    found = json.loads((tmp_path / "bias.json").read_text())
    assert found["command"] == "python -m reproduce.parsec --quick --seeds 1"
    call(parsec, "--table", "--out", tmp_path)
    table = capsys.readouterr().out
    assert table.count("| 16 |") == 2
    assert table.count("### six lines") == 2


def test_recorded_rows_say_what_the_page_says():
    """What was recorded: K=1 learns nothing, large K is the gradient, and K=16 lies between."""
    rows = json.loads(RESULTS.read_text())["rows"]
    for row in rows:
        if row["samples"] == 1:
            assert row["bias"] == pytest.approx(1)
        if row["samples"] == 16:
            assert 0.01 < row["bias"] < 1
