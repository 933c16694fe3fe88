import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKELETONS = ROOT / "docs" / "skeletons"


@pytest.fixture
def skeletons(monkeypatch):
    """The skeletons can be imported, here and in other processes, as a newcomer's own modules would be."""
    monkeypatch.syspath_prepend(SKELETONS)
    python_path = [str(SKELETONS), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(python_path))
    yield SKELETONS
    for path in SKELETONS.glob("*.py"):
        sys.modules.pop(path.stem, None)
