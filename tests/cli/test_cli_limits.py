"""`--limit` and `--price` on the command line."""

import shutil

import pytest
from commandline import TINY, cli, refused

import polyarch as pa
from polyarch.callbacks import Checkpoints
from polyarch.runs.config import Config
from polyarch.testing.callbacks import InterruptAfter

SEARCH = ("--space", "nasbench201", "--method", "parsec", "--data", "digits", "--device", "cpu", "--no-plain")
SMALL = (
    "channels=8",
    "space.cells=1",
    "space.network=search",
    "epochs=1",
    "samples=2",
    "batch_size=512",
    "arch.lr=0.5",
)
SETTINGS = tuple(part for text in SMALL for part in ("--set", text))
MOST = 24_000


def parameters(folder, architecture):
    run = pa.open_run(folder)
    return run.space.cost(run.space.parse(architecture), run.config.shape()).parameters


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("limits") / "run"
    told = ("--limit", "parameters=24k", "--limit", "latency=10s", "--price", "macs=0.01/1M")
    said = cli("search", *SEARCH, *SETTINGS, "--no-train", *told, "--out", out)
    assert said.code == 0, said.err
    assert "of 24k at most" in said.out
    assert "a forward pass of 1 example: " in said.out
    assert "price while searching: macs=0.01/1M" in said.out
    return out


def test_what_is_selected_obeys_and_is_told(folder):
    found = cli("show", folder, "--json").json
    assert found["limits"]["parameters=24k"] == parameters(folder, found["architecture"]) <= MOST
    assert found["price"] == "macs=0.01/1M"
    config = Config.read(folder)
    assert (config.limits, config.price) == (["parameters=24k", "latency=10s"], "macs=0.01/1M")
    page = (folder / "report.html").read_text()
    assert "What does quality cost?" in page
    assert "--limit parameters=24k" in page
    assert "--price macs=0.01/1M" in page


def test_select_by_belief_and_by_a_score(folder):
    own = cli("select", folder, "--limit", "parameters=22k", "--json").json
    assert own["limits"]["parameters=22k"] == parameters(folder, own["architecture"]) <= 22_000
    assert own["rule"] == "argmax"
    assert own["architecture"] in cli("select", folder, "--limit", "parameters=22k").out
    found = cli("select", folder, "--by", "parameters", "--sample", 5, "--limit", "parameters=22k", "--json").json
    assert found["candidates"][0]["score"] <= 22_000
    assert found["argmax"]["architecture"] == own["architecture"]
    within = cli("select", folder, "--by", "parameters", "--sample", 20, "--json").json
    assert within["candidates"][0]["score"] <= MOST  # the run's own


def test_rank_within_a_limit(folder):
    told = ("--space", "nasbench201", "--set", "channels=8", "--set", "space.cells=1", "--input", "1x14x14")
    ranked = cli("rank", *told, "--by", "parameters", "--sample", 20, "--limit", "parameters=24k", "--json").json
    assert ranked["sampled"] == "table, within parameters=24k"
    refused("rank", *told, "--by", "parameters", "--limit", "parameters=1", says="no network of the space")


def test_train_takes_what_is_selected_within_a_limit(folder, tmp_path):
    quick = ("--set", "epochs=1", "--set", "batch_size=512", "--device", "cpu")
    said = cli("train", folder, "--limit", "parameters=22k", *quick, "--out", tmp_path / "alone", "--json")
    own = cli("select", folder, "--limit", "parameters=22k", "--json").json
    assert said.json["architecture"] == own["architecture"]
    refused(
        "train", folder, "--limit", "parameters=22k", "--arch", "x", "--out", tmp_path / "a", says="leave --arch out"
    )
    refused("train", folder, "--members", 3, "--limit", "parameters=22k", says="leave --limit out")


def test_what_is_refused_leaves_nothing(folder, tmp_path):
    out = tmp_path / "none"
    for told, says in (
        (("--limit", "parameters"), "is not NAME=VALUE"),
        (("--limit", "parameters=10"), "the fewest parameters are"),
        (("--limit", "speed=10"), "it can be on parameters, macs, latency, or on a column of a table"),
        (("--price", "parameters=1"), "is not NAME=NATS/UNIT"),
    ):
        refused("search", *TINY, *told, "--out", out, says=says)
    assert not out.exists()
    refused("select", folder, "--limit", "macs=1", says="the fewest macs are")
    refused(
        "select", folder, "--method", "random-search", "--by", "macs", "--limit", "macs=1M", says="leave one of them"
    )


def test_resuming_keeps_the_limits(tmp_path):
    space, method = pa.spaces.ResidualDepth(max_depth=3, width=4), pa.methods.VariationalDepth(epochs=3, batch_size=20)
    task, out = pa.data.load("spirals", points=60, test_points=40, select=0.3), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        pa.search(
            space, task, method, out=out, compute=pa.Compute("cpu"),
            select=pa.Select(limits=["parameters=70"]), start=pa.Start(price="macs=0.1/1k"),
            callbacks=[Checkpoints(seconds=0), InterruptAfter(1)],
        )  # fmt: skip
    again = shutil.copytree(out, tmp_path / "again")
    refused("search", "--resume", "--out", out, "--limit", "parameters=71", says="conflicts with the run")
    refused("search", "--resume", "--out", out, "--price", "macs=0.2/1k", says="conflicts with the run")
    said = cli("search", "--resume", "--out", again, "--limit", "parameters=70", "--price", "macs=0.1/1k", "--json")
    assert said.json["limits"]["parameters=70"] <= 70
