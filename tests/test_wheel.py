"""A wheel has the library and nothing else, and works where there is no checkout."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "polyarch"

pytestmark = pytest.mark.slow


def run(*command, **given):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **given)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="a wheel is built by hatchling")
    folder = tmp_path_factory.mktemp("wheels")
    offline = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", str(folder), str(ROOT))
    [path] = folder.glob("*.whl")
    return path


def test_it_has_the_library_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        told = archive.read(metadata).decode()
    library = {name for name in names if ".dist-info/" not in name}
    real = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert library == {path.relative_to(PACKAGE.parent).as_posix() for path in real}
    assert {"polyarch/report/page.html.j2", "polyarch/tables/digits-network.npz", "polyarch/py.typed"} <= library
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"^Provides-Extra: (\S+)$", told, re.MULTILINE)) == extras.keys()


def test_it_searches_and_reports_elsewhere(wheel, tmp_path):
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    options = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "install", *options, "--target", str(installed), str(wheel))
    given = {"cwd": elsewhere, "env": os.environ | {"PYTHONPATH": str(installed)}}
    polyarch = str(installed / "bin" / "polyarch")

    home = run(sys.executable, "-P", "-c", "import polyarch; print(polyarch.__file__)", **given)
    assert Path(home.strip()).is_relative_to(installed)
    assert re.fullmatch(r"(polyarch )?\d+\.\d+\.\d+\S*\n", run(polyarch, "--version", **given))
    tiny = ("--set", "epochs=1", "--set", "max_depth=1", "--no-plain")
    run(polyarch, "search", "--data", "digits", *tiny, "--out", "run", **given)
    assert "<svg" in (elsewhere / "run" / "report.html").read_text()
