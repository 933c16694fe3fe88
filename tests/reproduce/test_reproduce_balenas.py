"""The measurements of BaLeNAS: each against a known answer, and a short run of the whole."""

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch.testing.toy import every_choice

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "balenas" / "digits.json"
SPACE = pa.spaces.NasBench201(channels=2, cells=1)


@pytest.fixture
def balenas():
    from reproduce import balenas

    return balenas


@pytest.fixture
def given():
    return Namespace(epochs=10, hasten=140.0, augment=False)


@pytest.fixture
def convolutions(tmp_path):
    """A table whose truth is the number of 3x3 convolutions."""
    choices = every_choice(SPACE)
    texts = [architecture.text for architecture in SPACE.decode(choices)]
    np.savez(tmp_path / "convolutions.npz", arch=np.array(texts), count=(choices == 3).sum(1).numpy().astype(float))
    return tmp_path / "convolutions.npz"


def test_noise_adds_what_is_predicted_to_a_quadratic(balenas):
    """Eq. 19 is exact there, at every size of the noise, with deviations of their own for all parameters."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    curvature, mean = root @ root.T, torch.randn(1, 2, 3, generator=generator, dtype=torch.float64)
    deviation = torch.rand(2, 3, generator=generator, dtype=torch.float64)

    def at(alpha):
        return (alpha.flatten(1) @ curvature * alpha.flatten(1)).sum(1) / 2 + alpha.sum((1, 2))

    for row in balenas.expansions(at, mean, deviation, curvature, 5, seed=0):
        wanted = (row["share"] ** 2 * deviation.flatten() ** 2 * curvature.diagonal()).sum().item() / 2
        assert row["predicted"] == pytest.approx(wanted)
        assert row["measured"] == pytest.approx(wanted, abs=1e-9)


def test_noise_adds_what_an_integral_says_where_the_loss_is_no_quadratic(balenas):
    """E cos(x + s e) = cos(x) exp(-s^2 / 2), while Eq. 19 says cos(x) (1 - s^2 / 2)."""
    mean, deviation = torch.zeros(1, 1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    rows = list(balenas.expansions(lambda a: a.cos().sum((1, 2)), mean, deviation, -torch.eye(1).double(), 3000, 0))
    for row in rows:
        wanted = np.exp(-(row["share"] ** 2) / 2) - 1
        assert row["measured"] == pytest.approx(wanted, abs=5 * row["error"])
        assert row["predicted"] == pytest.approx(-(row["share"] ** 2) / 2)
    assert rows[0]["error"] < 0.02


def test_a_hastened_case_goes_as_far_in_fewer_steps(balenas, given):
    cases = {case.name: case for case in balenas.CASES}
    slow, fast = (balenas.method_of(cases[name], given) for name in ("vadam", "N of the validation data"))
    assert (slow.name, slow.arch.lr, slow.arch.beta2) == ("balenas", 3e-4, 0.999)
    assert (fast.arch.lr, fast.arch.beta2) == (pytest.approx(0.042), pytest.approx(0.86))
    given.hasten = 1.0
    assert balenas.method_of(cases["N of the validation data"], given) == slow


def test_every_update_and_the_sweep_are_there(balenas, given):
    methods = [balenas.method_of(case, given) for case in balenas.CASES]
    updates = {getattr(method.arch, "update", "darts") for method in methods}
    assert updates == {"vadam", "printed", "bayes-by-backprop", "von", "vprop", "darts"}
    assert len({case.name for case in balenas.CASES}) == len(balenas.CASES)
    assert set(balenas.QUICK) <= {case.name for case in balenas.CASES}


def test_entropies(balenas):
    assert balenas.entropies([torch.full((5,), 0.2), torch.tensor([1.0, 0.0])]) == [
        pytest.approx(np.log(5), abs=1e-4),
        0,
    ]


def test_a_short_run_and_its_report(balenas, call, little_data, monkeypatch, tmp_path, capsys, convolutions):
    monkeypatch.setattr(balenas, "EXAMPLES", 16)
    settings = ["--channels", 2, "--seeds", 1, "--draws", 2, "--pairs", 2, "--only", "N = 1e6;DARTS", "--out", tmp_path]
    call(balenas, "--quick", *settings, "--table", convolutions, "--column", "count")
    assert "N = 1e6, seed 0: sigma 1.000 to 0." in capsys.readouterr().out
    found = json.loads((tmp_path / "digits.json").read_text())
    assert str(tmp_path) not in json.dumps(found), "where things lie is nobody's business"
    kinds = {kind: [row for row in found["rows"] if row["kind"] == kind] for kind in ("search", "pick", "expansion")}
    bayes, darts = kinds["search"]
    assert 0 < bayes["sigma"][-1] < 1 == bayes["sigma"][0]
    assert "sigma" not in darts
    for row in (bayes, darts):
        assert row["truth"] == [row["mode"].count("nor_conv_3x3")]
        assert len(row["drawn_entropy"]) == len(row["mixture_entropy"]) == 6
        assert row["trace"] <= 30 * row["eigenvalue"]
    assert {row["source"] for row in kinds["pick"]} == {"belief", "uniform", "belief before"}
    for row in kinds["pick"]:
        if row["score"] != "none: mean of the draws":
            assert row["truth"] == row["architecture"].count("nor_conv_3x3")
    for activation in ("relu", "smooth"):
        rows = [row for row in kinds["expansion"] if row["activation"] == activation]
        assert [row["share"] for row in rows] == list(balenas.SHARES)
    # Sigma is below 0.01 here: second order is all there is, unless the loss has corners.
    assert rows[-1]["measured"] == pytest.approx(rows[-1]["predicted"], rel=0.02)
    call(balenas, "--report", "--out", tmp_path)
    report = capsys.readouterr().out
    for words in ("### Searches", "| DARTS | – |", "### Sample and score, best of 2 drawn", "### Eq. 19"):
        assert words in report


def test_an_unknown_case_is_refused(balenas, call, capsys):
    with pytest.raises(SystemExit):
        call(balenas, "--full", "--only", "N = 2")
    assert "no case N = 2" in capsys.readouterr().err


def test_recorded_deviation_falls_with_n():
    """What the page rests on: the larger N, the narrower belief; DARTS is its end."""
    rows = [row for row in json.loads(RESULTS.read_text())["rows"] if row["kind"] == "search"]
    names = ("N of the validation data", "N = 25,000", "N = 1e6", "N = 1e8")
    ends = [max(row["sigma"][-1] for row in rows if row["case"] == name) for name in names]
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] < 0.1
