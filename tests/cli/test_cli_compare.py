"""`polyarch compare`, and `polyarch show` of a folder of runs."""

import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from commandline import POLYARCH, SMALL, SPIRALS, check_one_line, cli, refused

from polyarch.cli.choices import choose_each
from polyarch.cli.compare import names, seeds_of
from polyarch.errors import PolyarchError
from polyarch.files import locked
from polyarch.runs.grid import RUNS

ASKED = (
    "--methods",
    "variational-depth,fixed-depth",
    *SPIRALS,
    *SMALL[:-4],
    "--set",
    "epochs=4",
    "--set",
    "by_data=false",
)
SEEDS = ("--seeds", "0..1", "--device", "cpu")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "comparison"
    said = cli("compare", *ASKED, *SEEDS, "--workers", 1, "--out", folder)
    assert said.code == 0, said.err
    return folder, said


def test_a_table_and_a_page(compared):
    folder, said = compared
    assert (folder / "comparison.html").stat().st_size > 10_000
    title, _, header, *rows = said.out.splitlines()
    assert title.startswith("8 runs on spirals, a budget of ")
    assert header.split()[:3] == ["on", "test", "data"]
    assert {re.split(r"  +", row)[0][2:] for row in rows[:4]} == {
        "variational-depth",
        "fixed-depth",
        "random architecture *",
        "uniform belief *",
    }  # the largest network was asked for by name
    assert "compare: 8 runs of 4 methods and baselines, 0 finished; " in said.err
    assert len(re.findall(r"compare: \d of 8: \S+-seed-[01] is finished", said.err)) == 8


def test_given_the_folder_alone_it_tells_again_and_does_nothing(compared):
    folder, said = compared
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json*")}
    again = cli("compare", "--out", folder)
    assert (again.out, again.err) == (said.out, "")
    page = cli("report", folder)
    assert page.out == f"{folder / 'comparison.html'}\n"
    found = cli("compare", *ASKED, *SEEDS, "--out", folder, "--json").json
    assert found["budget"] == 4 * 2 * 40  # what fixed-depth asks for: two steps of 20 examples an epoch
    assert [row["n"] for row in found["rows"]] == [2, 2, 2, 2]
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--seeds", "0..2"), "other seeds: 0, 1, not 0, 1, 2; to go on with that, give --out alone"),
        (("--set", "width=5"), "other settings;"),
        (("--set", "points=70"), "other data"),
        (("--seeds", "2..1"), "write a range such as 0..9"),
        (("--seeds", "1,1"), "each given once; not 1, 1"),
        (("--budget", "0"), "above 0 examples"),
        (("--set", "widht=5"), "did you mean 'width'?"),
        (("--set", "width=five"), "width"),
        (("--methods", "fixed-dept"), "did you mean"),
        (("--spaces", "nasbench201"), "unknown setting 'max_depth'"),
        (("--workers", "0"), "workers is 0; it must be at least 1"),
        (("--cpus", "0"), "cpus is 0"),
    ],
)
def test_what_is_refused(compared, flags, says):
    refused("compare", *ASKED, *SEEDS, "--out", compared[0], *flags, says=says)


def test_what_is_refused_leaves_nothing(tmp_path):
    out = tmp_path / "new"
    refused("compare", "--out", out, says="holds no comparison")
    refused("compare", "--out", out, "--seeds", "0..3", says="--seeds is for a comparison of some methods")
    refused("compare", *ASKED, *SEEDS, "--budget", 10, "--out", out, says="does not pay for one epoch of")
    assert not out.exists()


def test_a_setting_is_for_all_that_have_it():
    pairs = [("depth", "variational-depth"), ("depth", "fixed-depth"), ("depth", "variational-depth-spirals")]
    told = ["arch.warmup=0.5", "weights.lr=0.2", "depth=1", "space.width=7", "epochs=9"]
    mine, fixed, published = choose_each(pairs, "spirals", told)
    assert (mine.method.arch.warmup, mine.method.weights.lr, mine.space.width) == (0.5, 0.2, 7)
    assert (fixed.method.depth, fixed.method.weights.lr, fixed.method.epochs) == (1, 0.2, 9)
    assert (published.method.epochs, published.method.evaluation.every) == (9, 10)
    # The space of a published method goes by the data as that of the others does.
    assert set(published.told) == {"space"}
    assert set(mine.told) == set(fixed.told) == {"data", "space", "method", "search"}
    with pytest.raises(PolyarchError, match=r"did you mean 'arch\.warmup'"):
        choose_each(pairs, "spirals", ["arch.warmp=0.5"])
    with pytest.raises(PolyarchError, match="write NAME=VALUE"):
        choose_each(pairs, "spirals", ["epochs"])


def test_names_and_seeds():
    assert names("darts, gdas,m:Net(a=1,b=2),darts") == ["darts", "gdas", "m:Net(a=1,b=2)"]
    assert seeds_of("0..3,7") == (0, 1, 2, 3, 7)


def test_a_folder_of_runs(compared, tmp_path):
    folder = shutil.copytree(compared[0], tmp_path / "copy")
    live, interrupted = (folder / RUNS / f"fixed-depth-seed-{k}" for k in (0, 1))
    waiting = folder / RUNS / "uniform-belief-seed-0"
    for home in (live, interrupted):
        (home / "result.json").unlink()
    shutil.rmtree(waiting)
    with locked(live):
        found = {one["name"]: one for one in cli("show", folder, "--json").json["runs"]}
        said = cli("show", folder)
    assert found["runs/fixed-depth-seed-0"]["state"] == "live"
    assert found["runs/fixed-depth-seed-1"]["state"] == "interrupted"
    assert found["runs/uniform-belief-seed-0"]["state"] == "waiting"
    done = found["runs/variational-depth-seed-1"]
    assert (done["state"], done["epoch"], done["epochs"], done["seed"], done["split"]) == ("finished", 3, 3, 1, "test")
    result = cli("show", folder / RUNS / "variational-depth-seed-1", "--json").json
    assert done["value"] == result["metrics"]["test_ensemble"]["accuracy"]
    assert len(said.out.splitlines()) == 1 + 8 + 2
    assert said.out.endswith("8 runs: 5 finished, 1 live, 1 waiting, 1 interrupted\n")
    assert cli("show", folder / RUNS).out.splitlines()[0].startswith("run ")  # any folder with runs in it
    refused("show", folder, "--svg", tmp_path / "a.svg", says="--svg draws one run")
    refused("show", tmp_path, "--svg", tmp_path / "a.svg", says="--svg draws one run")


def test_ray_that_is_not_there(compared, tmp_path, monkeypatch):
    folder = shutil.copytree(compared[0], tmp_path / "copy")
    (folder / RUNS / "fixed-depth-seed-0" / "result.json").unlink()
    monkeypatch.setitem(sys.modules, "ray", None)
    said = refused("compare", "--out", folder, "--ray", "auto", says="pip install 'polyarch[ray]'")
    check_one_line(said.err)


@pytest.mark.slow
def test_control_c_says_how_to_go_on(tmp_path):
    out = tmp_path / "a comparison"
    process = subprocess.Popen(
        [POLYARCH, "compare", *ASKED, *SEEDS, "--set", "epochs=3000", "--workers", "1", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not list(out.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    *_, last = process.communicate(timeout=30)[1].splitlines(keepends=True)
    assert process.returncode == 130
    check_one_line(last, f"interrupted; go on with `polyarch compare --out '{out}'`")
    states = [one["state"] for one in cli("show", out, "--json").json["runs"]]
    assert states == ["interrupted", *["waiting"] * 7]
