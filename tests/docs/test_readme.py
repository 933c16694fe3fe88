"""The README's own model is searched by exactly the lines that stand there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import polyarch as pa

README = (Path(__file__).parents[2] / "README.md").read_text()


def own_model():
    [code] = [block for block in re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S) if "pa.Choice(" in block]
    return code


def test_the_own_model_is_short():
    lines = [line for line in own_model().splitlines() if line.strip()]
    assert len(lines) <= 30


@pytest.mark.slow
def test_the_own_model_runs(tmp_path):
    script = tmp_path / "my_model.py"
    script.write_text(own_model())
    done = subprocess.run([sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = pa.Run(tmp_path / "runs" / "own")
    assert run.finished
    assert run.result["metrics"]["test"]["accuracy"] > 0.9
    assert re.match(r"layer=\w+,activation=\w+,norm=\w+ \{'layer': tensor", done.stdout)
    # By which another process finds the model.
    assert run.config.space["settings"] == {"factory": "my_model:Network"}
