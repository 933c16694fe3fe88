"""What `evaluate` and `predict` say about uncertainty equals what can be computed from the run by other means."""

import csv
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from commandline import AS_LISTED, SMALL, SPIRALS, check_one_line, cli, refused
from PIL import Image
from sklearn.metrics import roc_auc_score, roc_curve
from torch.nn.modules.module import register_module_forward_hook

import polyarch as pa
from polyarch.data.preprocess import Standardise
from polyarch.streams import Streams
from polyarch.uncertainty import pgd, threshold_for_risk

SCORES = ("mutual_information", "entropy", "confidence")
PGD = ("--attack", "pgd", "--budget", "1/8", "--steps", 2, "--step-size", "1/16")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A depth search on bytes whose white is 16, whose belief stays broad in so few epochs."""
    out = tmp_path_factory.mktemp("digits") / "run"
    data = ("--data", "digits", "--set", "calibrate=0.15", "--set", "update=sgd")
    assert cli("search", *data, *SMALL, "--set", "batch_size=64", "--set", "epochs=6", "--out", out).code == 0
    return out


def stripes(n, seed=0):
    """Images [n, 1, 6, 6] between 0 and 1 with stripes that lie or stand, and which."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, n)
    lying = np.tile(np.repeat([[0.2], [0.8]], 3, axis=0), (1, 6))
    x = np.where(y[:, None, None] == 0, lying, lying.T) + 0.15 * random.normal(size=(n, 6, 6))
    return x.clip(0, 1).astype(np.float32)[:, None], y


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """A search for cells on images between 0 and 1."""
    folder = tmp_path_factory.mktemp("cells")
    x, y = stripes(160)
    np.savez(folder / "stripes.npz", x=x, y=y)
    space = ("--space", "nasbench201", "--set", "channels=2", "--set", "cells=1", "--device", "cpu")
    method = ("--method", "parsec", "--set", "epochs=2", "--set", "batch_size=32", "--no-train", *AS_LISTED)
    assert cli("search", *space, *method, "--data", folder / "stripes.npz", "--out", folder / "run").code == 0
    return folder / "run"


def said_by(ensemble, x):
    """Probabilities, mutual information, entropy and confidence, written plainly."""
    with torch.no_grad():
        probs = ensemble.members(x).double().softmax(-1)
    mean = torch.einsum("m,mnc->nc", ensemble.weights.double(), probs)
    entropy = torch.special.entr(mean).sum(-1)
    expected = torch.einsum("m,mn->n", ensemble.weights.double(), torch.special.entr(probs).sum(-1))
    scores = {"mutual_information": entropy - expected, "entropy": entropy, "confidence": 1 - mean.max(-1).values}
    return mean, scores


def area(probs, target):
    """Under risk against coverage: at every threshold, what is kept and how much of it is wrong."""
    confidence, predicted = probs.max(-1)
    found, before = 0.0, 0.0
    for threshold in confidence.unique().flip(0):
        kept = confidence >= threshold
        coverage = kept.double().mean().item()
        found += (coverage - before) * (predicted != target)[kept].double().mean().item()
        before = coverage
    return found


def check_told(found, inside, outside):
    for name in SCORES:
        y = np.r_[np.zeros(len(inside[name])), np.ones(len(outside[name]))]
        both = np.r_[inside[name], outside[name]].round(12)
        false, true, _ = roc_curve(y, both, drop_intermediate=False)
        assert found[name]["auroc"] == pytest.approx(roc_auc_score(y, both), abs=1e-3), name
        assert found[name]["fpr95"] == pytest.approx(false[np.argmax(true >= 0.95)], abs=0.02), name


@pytest.mark.parametrize("which", ["digits", "cells"])
def test_uncertainty_other_data_and_attack(which, tmp_path, request):
    folder = request.getfixturevalue(which)
    run = pa.open_run(folder)
    split, white = run.task().test, 16.0 if which == "digits" else 1.0
    random = np.random.default_rng(0).uniform(0, white, (50, *split.x.shape[1:]))
    np.savez(tmp_path / "noise.npz", x=random.astype(split.x.numpy().dtype))
    found = cli("evaluate", folder, "--ood", tmp_path / "noise.npz", *PGD, "--json").json
    plain = cli("evaluate", folder, "--json").json
    assert (
        found["metrics"]
        == plain["metrics"]
        == {
            name: cli("show", folder, "--json").json["metrics"][f"test_{name}".removesuffix("_selected")]
            for name in plain["metrics"]
        }
    )
    assert not {"ood", "attack"} & set(plain)

    ensemble = run.ensemble()
    assert found["members"] == len(ensemble.weights)
    probs, scores = said_by(ensemble, split.x)
    mixture = found["metrics"]["ensemble"]
    assert mixture["accuracy"] == pytest.approx((probs.argmax(-1) == split.y).double().mean().item())
    assert mixture["entropy"] == pytest.approx(scores["entropy"].mean().item())
    assert mixture["mutual_information"] == pytest.approx(scores["mutual_information"].mean().item(), abs=1e-9)
    assert mixture["expected_entropy"] == pytest.approx(mixture["entropy"] - mixture["mutual_information"])
    assert mixture["mutual_information"] > 0
    assert mixture["aurc"] == pytest.approx(area(probs, split.y))
    with torch.no_grad():
        assert found["metrics"]["selected"]["aurc"] == pytest.approx(area(run.model()(split.x).softmax(-1), split.y))

    assert (found["ood"]["data"], found["ood"]["examples"]) == (str(tmp_path / "noise.npz"), 50)
    x = torch.from_numpy(np.load(tmp_path / "noise.npz")["x"])
    check_told(found["ood"], scores, said_by(ensemble, x)[1])

    strength = {"budget": 1 / 8, "steps": 2, "step_size": 1 / 16}
    assert {name: found["attack"][name] for name in ("name", *strength)} == {"name": "pgd", **strength}
    chance = Streams(run.seed)["noise"]
    moved = pgd(ensemble.output, split.x, split.y, **strength, generator=chance, high=white)
    attacked, under = said_by(ensemble, moved)
    assert found["attack"]["accuracy"] == pytest.approx((attacked.argmax(-1) == split.y).double().mean().item())
    assert found["attack"]["accuracy"] < mixture["accuracy"]
    assert found["attack"]["log_likelihood"] < mixture["log_likelihood"]
    assert found["attack"]["aurc"] == pytest.approx(area(attacked, split.y), abs=1e-4)
    check_told(found["attack"], scores, under)


def test_for_people(digits, tmp_path):
    np.savez(tmp_path / "noise.npz", x=np.random.default_rng(0).integers(0, 17, (20, 1, 8, 8), dtype=np.uint8))
    said = cli("evaluate", digits, "--ood", tmp_path / "noise.npz", *PGD)
    assert said.code == 0
    assert said.err == ""
    for shown in (
        "AURC",
        "mutual inf.",
        "AUROC",
        "FPR95",
        "noticed by",
        "selected network",  # as show has it
        "mixture",
        " members ",
        "under pgd (budget 0.125, 2 steps of 0.0625)",
    ):
        assert shown in said.out


def passed(*arguments):
    """What a command says in JSON, and how many examples networks were given for it."""
    given = []

    def note(module, inputs, output):
        if isinstance(module, Standardise):  # in front of every network and mixture
            given.append(len(inputs[0]))

    hook = register_module_forward_hook(note)
    try:
        return cli(*arguments, "--json").json, sum(given)
    finally:
        hook.remove()


@pytest.mark.parametrize("which", ["digits", "cells"])
def test_every_example_is_passed_once(which, tmp_path, request):
    folder = request.getfixturevalue(which)
    x = pa.open_run(folder).task().test.x
    np.savez(tmp_path / "other.npz", x=x[:20].numpy())
    plain, at_least = passed("evaluate", folder)
    assert set(plain["metrics"]) == {"selected", "ensemble", "tempered", *(["unpruned"] if which == "digits" else [])}
    if which == "digits":
        assert at_least == 3 * len(x)
    _, with_other = passed("evaluate", folder, "--ood", tmp_path / "other.npz", "--figure", tmp_path / "all.png")
    assert with_other == at_least + 20
    _, attacked = passed("evaluate", folder, *PGD)
    assert attacked == at_least + 2 * len(x) + len(x)  # two steps, and then what is said of where they lead


def drawn(file):
    """The texts of an SVG file."""
    return ["".join(text.itertext()) for text in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")]


def test_a_figure_shows_what_is_printed(digits, tmp_path):
    np.savez(tmp_path / "noise.npz", x=np.random.default_rng(0).integers(0, 17, (20, 1, 8, 8), dtype=np.uint8))
    asked = ("evaluate", digits, "--ood", tmp_path / "noise.npz", *PGD)
    found = cli(*asked, "--figure", tmp_path / "all.svg", "--json").json
    assert found == cli(*asked, "--json").json
    shown = drawn(tmp_path / "all.svg")
    for row, name in (("selected", "selected network"), ("ensemble", "mixture")):
        assert f"{name}, AURC {found['metrics'][row]['aurc']:.4f}" in shown
        assert any(text.startswith(f"ECE {found['metrics'][row]['ece']:.3f};") for text in shown)
    assert "test data (359)" in shown
    assert f"noise.npz (20), AUROC {found['ood']['mutual_information']['auroc']:.3f}" in shown
    assert f"under pgd (359), AUROC {found['attack']['mutual_information']['auroc']:.3f}" in shown

    said = cli("evaluate", digits, "--figure", tmp_path / "plain.svg")
    assert (said.code, said.err) == (0, "")
    assert "AURC" in said.out
    assert len([text for text in drawn(tmp_path / "plain.svg") if text.startswith(("right (", "wrong ("))]) == 2
    assert cli("evaluate", digits, "--figure", tmp_path / "plain.png").code == 0
    with Image.open(tmp_path / "plain.png") as image:
        assert image.format == "PNG"
        assert len(np.unique(np.asarray(image.convert("L")))) > 20, "it is empty"


def test_a_figure_of_one_network_has_no_mixture(tmp_path):
    out = tmp_path / "run"
    fixed = ("--method", "fixed-depth", "--set", "epochs=1")
    assert cli("search", *SPIRALS, *SMALL, *fixed, "--out", out).code == 0
    assert cli("evaluate", out, "--figure", tmp_path / "one.svg").code == 0
    shown = " ".join(drawn(tmp_path / "one.svg"))
    assert "selected network, AURC" in shown
    assert "mixture" not in shown
    assert "mutual information" not in shown


def test_figures_that_cannot_be_are_refused(digits, tmp_path):
    refused("evaluate", digits, "--figure", tmp_path / "all.pdf", says=("all.pdf", ".png or .svg"))
    refused("evaluate", digits, "--figure", tmp_path / "none" / "all.png", says=("no folder", "make it first"))
    assert not list(tmp_path.iterdir())


def test_a_budget_is_a_fraction_or_a_number(digits):
    said = [cli("evaluate", digits, "--attack", "pgd", "--budget", text, "--json").json for text in ("1/8", "0.125")]
    assert said[0] == said[1]
    default = cli("evaluate", digits, "--attack", "pgd", "--json").json["attack"]
    assert [default[name] for name in ("budget", "steps", "step_size")] == [2 / 255, 3, 1 / 255]


def test_members_are_drawn_by_a_seed(cells):
    few = cli("evaluate", cells, "--members", 3, "--json").json
    assert 1 <= few["members"] <= 3
    assert few == cli("evaluate", cells, "--members", 3, "--seed", 0, "--json").json
    others = [cli("evaluate", cells, "--members", 3, "--seed", seed, "--json").json for seed in (1, 2)]
    assert any(other["metrics"]["ensemble"] != few["metrics"]["ensemble"] for other in others)
    assert all(other["metrics"]["selected"] == few["metrics"]["selected"] for other in others)
    assert "tempered" not in few["metrics"]  # the run's temperature is of its own mixture
    refused("evaluate", cells, "--members", 15626, says="15626 members of 15625 architectures")
    refused("evaluate", cells, "--members", 0, says="members is 0")


def test_other_data_may_be_images_of_any_size_or_a_name(tmp_path):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "bytes.npz", x=random.integers(0, 256, (80, 1, 8, 8), dtype=np.uint8), y=np.arange(80) % 2)
    out = tmp_path / "run"
    assert cli("search", "--data", tmp_path / "bytes.npz", *SMALL, "--set", "epochs=1", "--out", out).code == 0
    (tmp_path / "images").mkdir()
    for k in range(3):
        Image.fromarray(random.integers(0, 256, (20, 30), dtype=np.uint8)).save(tmp_path / "images" / f"{k}.png")
    assert cli("evaluate", out, "--ood", tmp_path / "images", "--json").json["ood"]["examples"] == 3
    assert cli("evaluate", out, "--ood", "digits", "--json").json["ood"]["examples"] == 359


def asked_of(tmp_path, own, others):
    """What a run on `own` says of other inputs, by name: figures, or what it is told on standard error."""
    np.savez(tmp_path / "own.npz", x=own, y=np.arange(len(own)) % 2)
    out = tmp_path / "run"
    quick = ("--set", "epochs=1", "--set", "batch_size=32")
    assert cli("search", "--data", tmp_path / "own.npz", *SMALL, *quick, "--out", out).code == 0
    found = {}
    for name, x in others.items():
        np.savez(tmp_path / f"{name}.npz", x=x)
        said = cli("evaluate", out, "--ood", tmp_path / f"{name}.npz", "--json")
        if said.code:
            check_one_line(said.err, says=("scale them to that range", ".npz"))
        found[name] = said.err if said.code else said.json["ood"] | {"data": ""}
    return found


def test_other_images_may_be_numbers_of_the_same_range(tmp_path):
    """The type of an array is nobody's business: the same numbers give the same figures."""
    random = np.random.default_rng(0)
    own, other = (random.integers(0, 256, (n, 1, 8, 8), dtype=np.uint8) for n in (80, 20))
    found = asked_of(
        tmp_path,
        own,
        {
            "bytes": other,
            "single": other.astype(np.float32),
            "double": other.astype(np.float64),
            "black": np.zeros((5, 1, 8, 8)),
            "unit": other / 255,
            "centred": other - 128.0,
            "bright": other * 2.0,
        },
    )
    assert found["bytes"] == found["single"] == found["double"]
    assert found["black"]["examples"] == 5  # that is black on any scale
    assert "numbers from 0 to 1, and this run's own are from 0 to 255" in found["unit"]
    assert "numbers from -128 to 127, and this run's own are from 0 to 255" in found["centred"]
    assert "numbers from 0 to 510" in found["bright"]


def test_other_images_for_a_run_on_numbers(tmp_path):
    random = np.random.default_rng(0)
    own, other = random.random((80, 1, 8, 8)).astype(np.float32), random.integers(0, 256, (20, 1, 8, 8), dtype=np.uint8)
    found = asked_of(
        tmp_path,
        own,
        {
            "single": (other / 255).astype(np.float32),
            "double": (other / 255).astype(np.float32).astype(np.float64),
            "noise": random.normal(0.5, 0.5, (20, 1, 8, 8)),
            "binary": other // 128,  # bytes, but 0 and 1
            "bytes": other,
            "large": other.astype(np.float32),
        },
    )
    assert found["single"] == found["double"]
    assert found["noise"]["examples"] == found["binary"]["examples"] == 20
    for name in ("bytes", "large"):
        assert re.search(r"from 1 to 255, and this run's own are from 0\.0\d+ to (1|0\.99\d),", found[name])


def test_other_features(tmp_path):
    """A table far from the run's own is what is to be noticed; what is in bytes there must fit all the same."""
    random = np.random.default_rng(0)
    own, other = random.normal(size=(80, 3)), random.integers(0, 3, (20, 3))
    found = asked_of(
        tmp_path,
        own,
        {
            "double": other.astype(np.float64),
            "integers": other,
            "bytes": other.astype(np.uint8),
            "far": 1000.0 + other,
            "other_bytes": np.full((4, 3), 200, np.uint8),
        },
    )
    assert found["double"] == found["integers"] == found["bytes"]
    assert found["far"]["examples"] == 20
    assert "numbers from 200 to 200" in found["other_bytes"]


def test_other_data_that_does_not_fit_is_refused(tmp_path, cells, digits):
    refused("evaluate", cells, "--ood", "digits", says=("[1, 8, 8]", "[1, 6, 6]", "resize", "folder", ".npz"))
    np.savez(tmp_path / "large.npz", x=np.zeros((4, 1, 28, 28), np.uint8))
    refused("evaluate", digits, "--ood", tmp_path / "large.npz", says=("[1, 28, 28]", "[1, 8, 8]"))
    np.savez(tmp_path / "bright.npz", x=np.full((4, 1, 8, 8), 200, np.uint8))
    refused("evaluate", digits, "--ood", tmp_path / "bright.npz", says=("from 200 to 200", "from 0 to 16"))
    refused("evaluate", digits, "--ood", tmp_path / "missing.npz", says="no such file")
    refused("evaluate", digits, "--ood", "digit", says="did you mean 'digits'?")


def test_attacks_that_make_no_sense_are_refused(tmp_path, finished, digits):
    refused("evaluate", finished, "--attack", "pgd", says=("images", "known range", "not inputs [2]"))
    refused("evaluate", digits, "--attack", "pdg", says="unknown attack 'pdg'; did you mean 'pgd'?")
    for budget in ("0", "-1/255", "2/0", "two", "1.5", "nan"):
        refused("evaluate", digits, "--attack", "pgd", "--budget", budget, says=("--budget", "such as 2/255 or 0.01"))
    refused("evaluate", digits, "--attack", "pgd", "--step-size", "x", says="--step-size is 'x'")
    refused("evaluate", digits, "--attack", "pgd", "--steps", 0, says="steps is 0")
    refused("evaluate", finished, "--members", 2, says=("share one pass", "leave members out"))
    x, y = stripes(60)
    np.savez(tmp_path / "centred.npz", x=x - 0.5, y=y)
    out = tmp_path / "centred"
    assert cli("search", "--data", tmp_path / "centred.npz", *SMALL, "--set", "epochs=1", "--out", out).code == 0
    refused("evaluate", out, "--attack", "pgd", says=("known range", "from -0.5", "scale them"))


def test_numbers_to_predict_have_no_such_uncertainty(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 3))
    np.savez(tmp_path / "line.npz", x=x, y=x.sum(1))
    data, out = ("--data", tmp_path / "line.npz", "--set", "kind=regression"), tmp_path / "run"
    assert cli("search", *data, *SMALL, "--set", "epochs=1", "--out", out).code == 0
    assert "ensemble" in cli("evaluate", out, "--json").json["metrics"]
    assert cli("evaluate", out).code == 0
    refused("evaluate", out, "--ood", tmp_path / "line.npz", says="--ood is for classification")
    refused("evaluate", out, "--figure", tmp_path / "all.png", says="--figure is for classification")
    refused("predict", out, "--inputs", tmp_path / "line.npz", "--risk", 0.1, says="for classification")


def test_predict_abstains_where_calibration_data_promises_nothing(tmp_path, digits):
    run = pa.open_run(digits)
    task, ensemble = run.task(), run.ensemble()
    np.savez(tmp_path / "x.npz", x=task.test.x.numpy())
    held_out = ensemble.precisely(task.calibrate.x).tempered(run.temperature)
    right = held_out.log_probs.argmax(-1) == task.calibrate.y
    errors = 1 - right.double().mean().item()
    risk = 0.7 * errors
    threshold = threshold_for_risk(held_out.confidence, right, risk)
    found = cli("predict", digits, "--inputs", tmp_path / "x.npz", "--risk", risk, "--json").json
    assert (found["risk"], found["threshold"]) == (risk, pytest.approx(threshold, abs=1e-12))
    rows = found["predictions"]
    assert [row["abstain"] for row in rows] == [not row["probability"] > found["threshold"] for row in rows]
    assert 0 < sum(row["abstain"] for row in rows) < len(rows)
    right = [int(row["class"]) == y for row, y in zip(rows, task.test.y.tolist(), strict=True) if not row["abstain"]]
    assert 1 - sum(right) / len(right) < errors

    lines = csv_of("predict", digits, "--inputs", tmp_path / "x.npz", "--risk", risk)
    assert [line["abstain"] for line in lines] == [str(row["abstain"]) for row in rows]
    plain = cli("predict", digits, "--inputs", tmp_path / "x.npz", "--json").json
    assert not {"risk", "threshold", "coverage", "quantile"} & set(plain)
    assert plain["predictions"] == [{k: v for k, v in row.items() if k != "abstain"} for row in rows]


def csv_of(*arguments):
    return list(csv.DictReader(io.StringIO(cli(*arguments).out)))


def test_probabilities_are_told_after_temperature(tmp_path, digits):
    run = pa.open_run(digits)
    x = run.task().test.x
    np.savez(tmp_path / "x.npz", x=x.numpy())
    said = cli("predict", digits, "--inputs", tmp_path / "x.npz", "--json")
    assert said.json["temperature"] == run.temperature == run.result["temperature"] != 1
    assert f"after temperature {run.temperature:.3g}, fitted on validation data" in said.err
    probs, scores = said_by(run.ensemble(), x)
    tempered = (probs.log() / run.temperature).softmax(-1)
    rows = said.json["predictions"]
    found = torch.tensor([list(row["probabilities"].values()) for row in rows], dtype=torch.float64)
    torch.testing.assert_close(found, tempered)
    for name, expected in (
        ("probability", tempered.amax(-1)),
        ("entropy", torch.special.entr(tempered).sum(-1)),
        ("mutual_information", scores["mutual_information"]),
    ):
        assert [row[name] for row in rows] == pytest.approx(expected.tolist(), abs=1e-9), name

    worth = cli("evaluate", digits, "--json").json
    assert worth["temperature"] == run.temperature
    target = run.task().test.y.unsqueeze(-1)
    assert worth["metrics"]["tempered"]["log_likelihood"] == pytest.approx(tempered.log().gather(-1, target).mean())
    assert worth["metrics"]["tempered"]["accuracy"] == worth["metrics"]["ensemble"]["accuracy"]
    assert f"mixture, temperature {run.temperature:.3g}" in cli("evaluate", digits).out
    assert "after temperature" in cli("show", digits).out


def test_sets_hold_the_classes_that_calibration_data_allows(tmp_path, digits):
    run = pa.open_run(digits)
    task = run.task()
    np.savez(tmp_path / "x.npz", x=task.test.x.numpy())
    asked = ("predict", digits, "--inputs", tmp_path / "x.npz", "--coverage", 0.9)
    said = cli(*asked, "--json")
    for part in ("probability 0.9", "on average", f"exchangeable with the {len(task.calibrate)} examples of calibrate"):
        assert part in said.err
    found = said.json
    own = run.ensemble().precisely(task.calibrate.x).tempered(run.temperature).log_probs.exp()
    scores = 1 - own[torch.arange(len(own)), task.calibrate.y]
    quantile = scores.sort().values[int(np.ceil((len(own) + 1) * 0.9)) - 1].item()
    assert (found["coverage"], found["guarantee"]) == (0.9, "marginal")
    assert found["quantile"] == pytest.approx(quantile, abs=1e-12)
    for row in found["predictions"]:
        likely = [name for name, p in row["probabilities"].items() if 1 - p <= found["quantile"]]
        assert row["set"] == (likely or [row["class"]])
    held = [str(y) in row["set"] for row, y in zip(found["predictions"], task.test.y.tolist(), strict=True)]
    assert np.mean(held) > 0.85
    sets = run.prediction_sets(task.test.x, 0.9)
    assert [row["set"] for row in found["predictions"]] == [[str(k) for k in np.flatnonzero(own)] for own in sets]
    assert [line["set"].split("|") for line in csv_of(*asked)] == [row["set"] for row in found["predictions"]]
    with pytest.raises(pa.PolyarchError, match="predicts a class"):
        run.prediction_intervals(task.test.x, 0.9)


def test_intervals_of_numbers(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 3))
    np.savez(tmp_path / "line.npz", x=x, y=x.sum(1) + random.normal(size=400))
    data, out = ("--data", tmp_path / "line.npz", "--set", "kind=regression"), tmp_path / "run"
    assert cli("search", *data, *SMALL, "--set", "calibrate=59", "--set", "epochs=3", "--out", out).code == 0
    run = pa.open_run(out)
    task, ensemble = run.task(), run.ensemble()
    assert run.temperature == 1
    np.savez(tmp_path / "x.npz", x=task.test.x.numpy())
    asked = ("predict", out, "--inputs", tmp_path / "x.npz")

    variance = run.likelihood("mixture").scale ** 2

    def mean_and_deviation(x):
        with torch.no_grad():
            means = ensemble.members(x).squeeze(-1).double()
        mean = (ensemble.weights.double()[:, None] * means).sum(0)
        second = (ensemble.weights.double()[:, None] * (means.square() + variance)).sum(0)
        return mean, (second - mean.square()).sqrt()

    mean, deviation = mean_and_deviation(task.calibrate.x)
    quantile = ((task.calibrate.y - mean).abs() / deviation).sort().values[53]  # number 54 of 59: 60 * 0.9
    mean, deviation = mean_and_deviation(task.test.x)
    found = cli(*asked, "--coverage", 0.9, "--json").json
    assert found["quantile"] == pytest.approx(quantile.item(), rel=1e-5)
    assert "temperature" not in found
    rows = found["predictions"]
    assert [row["low"] for row in rows] == pytest.approx((mean - quantile * deviation).tolist(), rel=1e-4, abs=1e-5)
    assert [row["high"] for row in rows] == pytest.approx((mean + quantile * deviation).tolist(), rel=1e-4, abs=1e-5)
    assert run.prediction_intervals(task.test.x, 0.9).tolist() == [[row["low"], row["high"]] for row in rows]
    always = {"input", "mean", "std", "quantile_5", "quantile_50", "quantile_95"}
    assert csv_of(*asked, "--coverage", 0.9)[0].keys() == {*always, "low", "high"}
    assert csv_of(*asked)[0].keys() == always
    with pytest.raises(pa.PolyarchError, match="predicts numbers"):
        run.prediction_sets(task.test.x, 0.9)


def test_what_cannot_be_promised_is_refused(tmp_path, digits):
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 1, 8, 8), np.uint8))
    asked = ("predict", digits, "--inputs", tmp_path / "x.npz")
    refused(*asked, "--risk", 0.001, says=("needs at least 5296", "set 270 aside", "--set calibrate=5296"))
    refused(*asked, "--risk", 0.02, says=("270 held-out", "larger risk"))
    refused(*asked, "--risk", 2, says="risk is 2.0")
    refused(*asked, "--coverage", 0.999, says=("needs at least 999", "set 270 aside", "--set calibrate=999 or more"))
    for wrong in (0, 1, 90, -0.1, "nan"):
        refused(*asked, "--coverage", wrong, says=("coverage is", "such as 0.9"))


def test_validation_data_promises_nothing(tmp_path, finished):
    """A search has stopped by it and fitted a temperature."""
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 2), np.float32))
    asked = ("predict", finished, "--inputs", tmp_path / "x.npz")
    refused(*asked, "--risk", 0.1, says=("needs at least 51", "set none aside", "--set calibrate=51"))
    refused(*asked, "--coverage", 0.9, says=("needs at least 9", "set none aside", "--set calibrate=9"))


def test_without_test_data_numbers_are_optimistic(tmp_path):
    out = tmp_path / "run"
    data = ("--data", "digits", "--set", "test=0")
    assert cli("search", *data, *SMALL, "--set", "batch_size=64", "--set", "epochs=1", "--out", out).code == 0
    said = cli("show", out).out
    assert "on validation data, optimistic" in said
    assert "after temperature" not in said  # which was fitted there
    assert "optimistic" in (out / "report.html").read_text()
