"""`export` on the command line: what is written, what is said of it, and what is refused before anything is."""

import numpy as np
import pytest
import torch
from commandline import TINY, cli, refused

import polyarch as pa


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "run"
    assert cli("search", *TINY, "--out", out, "--no-plain", "--repeats", 2).code == 0
    return out


def answers(path, x):
    return {name: value.detach().numpy() for name, value in torch.export.load(path).module()(x).items()}


def test_what_predict_says_is_what_is_written(run, tmp_path):
    best = pa.runs.run.open_best(run)
    x = best.task().test.x
    said = cli("export", run, "--out", tmp_path / "mixture.pt2", "--what", "ensemble")
    assert f"what is written is of seed {best.seed}, the best of 2 on validation data" in said.err
    named = "mean, entropy, mutual_information"
    assert said.out.splitlines()[0] == (
        f"{tmp_path / 'mixture.pt2'}: ensemble {best.architecture}, which answers {named}"
    )
    found = answers(tmp_path / "mixture.pt2", x)
    assert np.allclose(found["mean"], best.predict(x).probs, atol=1e-6)
    assert np.allclose(found["entropy"], best.predict(x).entropy, atol=1e-6)

    told = cli("export", best.folder, "--out", tmp_path / "network", "--format", "torch", "--json").json
    assert told["format"] == "torch"
    assert told["files"] == [str(tmp_path / "network"), str(tmp_path / "network.md")]
    assert told["about"]["measured"]["metrics"] == best.result["metrics"]["test"]
    (tmp_path / "network").rename(tmp_path / "network.pt2")  # torch wants the ending
    found = answers(tmp_path / "network.pt2", x)
    assert np.allclose(found["output"], best.model()(x), atol=1e-6)
    assert (tmp_path / "network.md").read_text().startswith("# network\n\nA network for spirals, found by polyarch.")


def test_what_cannot_be_is_refused(run, tmp_path):
    one = run / "seed-0"
    for options, says in (
        (("--out", tmp_path / "net.txt"), "does not say what to write"),
        (("--out", tmp_path / "net.pt2", "--format", "onnx"), "leave one of the two out"),
        (("--out", tmp_path / "net.pt2", "--members", 3), "--members is of an ensemble"),
        (("--out", tmp_path / "net.pt2", "--members", 3, "--what", "ensemble"), "leave members out"),
        (("--out", tmp_path / "net.pt2", "--what", "early-exit"), "give both, such as --risk 0.01"),
        (("--out", tmp_path / "net.pt2", "--risk", 0.1), "give both, such as --risk 0.01"),
        (("--out", tmp_path / "net.pt2", "--risk", 2, "--what", "early-exit"), "risk is 2.0"),
        (("--out", tmp_path / "nowhere" / "net.pt2"), "cannot write"),
    ):
        refused("export", one, *options, says=says)
    refused("export", tmp_path / "none", "--out", tmp_path / "net.pt2", says="holds no run")
    assert not list(tmp_path.iterdir())
