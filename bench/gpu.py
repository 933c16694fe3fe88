"""Everything that needs a CUDA device, one after another: the tests of captured steps and kernels, and the benches.

    python -m bench.gpu [--minutes 8]

Prints one JSON line per check, each with the commit it was made on; exits with 1 where one failed. A check that does
not end in its share of the time has failed. Needs pytest; with pytest-xdist the tests run side by side.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BENCHES = {
    "bench.depth": ["--device", "cuda", "--rounds", "30"],
    "bench.wiring": ["--device", "cuda", "--width", "4", "--batch", "128", "--own"],
    "bench.candidates": ["--device", "cuda", "--candidates", "16", "--rounds", "1"],
}
TESTS_SHARE = 0.55
"""Of the time, for the tests; the benches have the rest in equal parts."""


def commit() -> str:
    """What is measured, as POLYARCH_COMMIT says, else as the repository does; `unknown` outside of one."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return os.environ.get("POLYARCH_COMMIT") or asked.stdout.strip() or "unknown"


def tests(seconds: float) -> Iterator[dict[str, Any]]:
    """Every test that is marked `cuda`."""
    workers = ["-n", str(min(8, os.cpu_count() or 1))] if importlib.util.find_spec("xdist") else []
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "tests.xml"
        options = ["-m", "cuda", "-v", *workers, f"--junitxml={told}", "-p", "no:cacheprovider", "-p", "no:benchmark"]
        command = [sys.executable, "-m", "pytest", *options]
        try:
            done = subprocess.run(command, timeout=seconds, capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired as late:
            done_by_then = (late.stdout or b"").decode().count("PASSED")
            yield {"check": "tests", "ok": False, "why": f"not done after {seconds:.0f} s; {done_by_then} had passed"}
            return
        if not told.exists():
            yield {"check": "tests", "ok": False, "why": done.stdout[-500:] + done.stderr[-500:]}
            return
        for case in ElementTree.parse(told).iter("testcase"):
            said = [part for part in case if part.tag in ("failure", "error", "skipped")]
            ok = all(part.tag == "skipped" for part in said)
            name = f"{case.get('classname')}::{case.get('name')}"
            why = {"why": (said[0].get("message") or "")[:300]} if said else {}
            yield {"check": name, "ok": ok, "seconds": float(case.get("time") or 0), **why}


def bench(module: str, options: list[str], seconds: float) -> dict[str, Any]:
    """One bench; what it printed as JSON is under `printed`."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *options], timeout=seconds, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        return {"check": module, "ok": False, "why": f"not done after {seconds:.0f} s"}
    printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    ok = done.returncode == 0 and bool(printed)
    why = {} if ok else {"why": done.stderr[-500:]}
    return {"check": module, "ok": ok, "seconds": round(time.monotonic() - began, 1), "printed": printed, **why}


def main() -> None:
    """Runs all checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0)
    seconds = 60 * parser.parse_args().minutes
    on, ok = commit(), True

    def tell(found: dict[str, Any]) -> None:
        nonlocal ok
        ok = ok and found["ok"]
        print(json.dumps({"commit": on, **found}), flush=True)

    for found in tests(TESTS_SHARE * seconds):
        tell(found)
    for module, options in BENCHES.items():
        tell(bench(module, options, (1 - TESTS_SHARE) * seconds / len(BENCHES)))
    sys.exit(not ok)


if __name__ == "__main__":
    main()
