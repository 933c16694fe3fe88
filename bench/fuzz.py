"""Feeds polyarch what is damaged or wrong: every input is taken, or refused in one line, and nothing else happens.

    python -m bench.fuzz [--inputs 10000] [--seed 0]

Inputs are valid ones, mutated: bytes of tables, arrays, images, ground-truth tables, TOMLs and the files of a run's
folder are changed, cut, doubled and inserted; values of a run's JSON are replaced by others under a digest that is
right; so are texts of architectures and settings. All in this process, the kinds in turn, by hypothesis, which shrinks
what fails. Fails where anything but a `PolyarchError` of one line is raised, where a file changes outside of the folder
that the input is in, and where one input takes longer than `LONGEST` seconds. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as some
from PIL import Image

import polyarch as pa
from polyarch.cli.config_file import read_config
from polyarch.errors import PolyarchError
from polyarch.files import read_json, write_json
from polyarch.settings import make, parsed, settings_of
from polyarch.tables import open_table

LONGEST = 20
"""Seconds for one input; some take one, when training data is read anew."""
RUN_FILES = (
    "config.json", "result.json", "architecture.json", "distribution.json", "weights.safetensors", "metrics.jsonl",
    "statistics.safetensors", "checkpoint-000000.safetensors",
)  # fmt: skip
ODD = (None, True, -1, 0, 1.5, 1e308, float("nan"), "", "x", "../../x", "<b>", [], {}, [[]], {"x": 1}, "\0", "é" * 300)
SPACES = ("depth", "nasbench201", "nasbench1shot1-1", "darts", "nasbench101", "fourier")


# ---------------------------------------------------------------------------------------------------------------------
# What is mutated.


def seeds_of(place: Path) -> dict[str, Path]:
    """A valid input of every kind of file, in a folder."""
    random = np.random.default_rng(0)
    rows = [f"{a:.3f},{b},{'red' if a > 0 else 'blue'},{int(a > 0)}" for a, b in random.normal(size=(24, 2)).round(3)]
    (place / "table.csv").write_text("\n".join(["width,height,colour,label", *rows]) + "\n", encoding="utf-8")
    np.savez(place / "arrays.npz", x=random.normal(size=(24, 4)).astype(np.float32), y=np.arange(24) % 2)
    texts = [f"depth={k}" for k in range(4)]
    np.savez(place / "truth.npz", arch=np.array(texts), valid_accuracy=np.arange(4.0), test_accuracy=np.arange(4.0))
    (place / "search.toml").write_text(
        'space = "depth"\ndata = "digits"\nseed = 3\n[set]\nepochs = 2\n', encoding="utf-8"
    )
    for k in range(8):
        file = place / "images" / str(k % 2) / f"{k}.{'png' if k < 4 else 'jpg'}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(file)
    found = {"csv": "table.csv", "npz": "arrays.npz", "truth": "truth.npz", "toml": "search.toml", "images": "images"}
    found["run"] = "run"
    with suppress(ImportError):
        from pyarrow import parquet
        from pyarrow import table as arrow

        found["parquet"] = "table.parquet"
        columns = {"a": random.normal(size=24), "b": ["x", "y"] * 12, "label": [0, 1] * 12}
        parquet.write_table(arrow(columns), place / found["parquet"])
    space, method = pa.spaces.ResidualDepth(max_depth=2, width=4), pa.methods.VariationalDepth(epochs=2, batch_size=16)
    task = pa.data.load(place / "arrays.npz", select=0.25, test=0.2)
    pa.search(space, task, method, out=place / "run", compute=pa.Compute("cpu"))
    return {kind: place / name for kind, name in found.items()}


EDITS = some.lists(
    some.tuples(
        some.sampled_from(("flip", "cut", "insert", "double", "zero")), some.floats(0, 1), some.binary(max_size=8)
    ),
    min_size=1,
    max_size=6,
)


def edited(content: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    """Bytes after some edits, each at a place from 0 (the beginning) to 1."""
    for kind, where, new in edits:
        at = int(where * max(0, len(content) - 1))
        length = len(new) + 1
        if kind == "flip" and content:
            content = content[:at] + bytes([content[at] ^ (new[0] if new else 1) or 1]) + content[at + 1 :]
        elif kind == "cut":
            content = content[:at]
        elif kind == "insert":
            content = content[:at] + new + content[at:]
        elif kind == "double":
            content = content[:at] + content[at : at + 8 * length] + content[at:]
        else:
            content = content[:at] + bytes(length) + content[at + length :]
    return content


def values_in(values: Any) -> list[list[Any]]:
    """Ways to all values in JSON, as keys and places."""
    pairs = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [[], *([key, *way] for key, value in pairs for way in values_in(value))]


# ---------------------------------------------------------------------------------------------------------------------
# What is asked of it.


def kinds(files: dict[str, Path], place: Path) -> dict[str, Callable[[some.DataObject], object]]:
    """How each kind of input is drawn and used; `place` is where what is mutated lies."""

    def of_bytes(kind: str, use: Callable[[Path], object]) -> Callable[[some.DataObject], object]:
        content = files[kind].read_bytes()

        def run(data: some.DataObject) -> object:
            path = place / files[kind].name
            path.write_bytes(edited(content, data.draw(EDITS)))
            return use(path)

        return run

    def images(data: some.DataObject) -> object:
        folder = place / "images"
        shutil.copytree(files["images"], folder)
        file = data.draw(some.sampled_from(sorted(folder.rglob("*.*g"))))
        file.write_bytes(edited(file.read_bytes(), data.draw(EDITS)))
        return pa.data.load(folder, keep=data.draw(some.sampled_from(("memory", "disk"))), workers=0, size=8)

    def a_run(data: some.DataObject) -> object:
        folder = place / "run"
        shutil.copytree(files["run"], folder)
        present = [name for name in RUN_FILES if (folder / name).exists()]
        file = folder / data.draw(some.sampled_from(present))
        if file.suffix == ".json" and data.draw(some.booleans()):
            values = read_json(file)
            way = data.draw(some.sampled_from(values_in(values)[1:]))
            inner = values
            for key in way[:-1]:
                inner = inner[key]
            inner[way[-1]] = data.draw(some.sampled_from(ODD))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                write_json(file, values)
        else:
            file.write_bytes(edited(file.read_bytes(), data.draw(EDITS)))
        run = pa.open_run(folder)
        return run.distribution.probs(), run.architecture, run.model(), run.history(), run.result, repr(run)

    def architectures(data: some.DataObject) -> object:
        space = pa.spaces.named(data.draw(some.sampled_from(SPACES)))
        valid = space.format(space.random().sample(1, torch.Generator().manual_seed(0))[0].tolist())
        text = edited(valid.encode(), data.draw(EDITS)).decode("utf-8", "replace")
        return space.format(space.parse(text).choices)

    def setting(data: some.DataObject) -> object:
        owner = data.draw(
            some.sampled_from((pa.methods.Darts, pa.spaces.NasBench201, pa.spaces.ResidualDepth, pa.methods.Parsec))
        )
        known = settings_of(owner)
        name = data.draw(some.sampled_from(sorted(known)))
        text = data.draw(
            some.one_of(some.text(max_size=12), some.sampled_from(("nan", "inf", "-1", "1e400", "true", "1:2,3")))
        )
        return make(owner, {name: parsed(known[name], text)})

    found = {
        "architecture": architectures,
        "csv": of_bytes("csv", lambda path: pa.data.load(path)),
        "images": images,
        "npz": of_bytes("npz", lambda path: pa.data.load(path)),
        "run": a_run,
        "setting": setting,
        "toml": of_bytes("toml", read_config),
        "truth": of_bytes("truth", open_table),
    }
    if "parquet" in files:
        found["parquet"] = of_bytes("parquet", lambda path: pa.data.load(path))
    return found


# ---------------------------------------------------------------------------------------------------------------------
# What must not happen.


@contextmanager
def in_time() -> Iterator[None]:
    """Raises where what is done takes too long."""

    def late(*_: object) -> None:
        raise AssertionError(f"it takes longer than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def contents(folder: Path) -> dict[str, str]:
    """Digests of all files in a folder."""
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


def fuzz(inputs: int, begin: int = 0) -> dict[str, dict[str, int]]:
    """How many inputs of every kind were taken and refused; raises at the first that did anything else."""
    logger = logging.getLogger("polyarch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    counts: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as home:
        valid, place = Path(home) / "valid", Path(home) / "mutated"
        valid.mkdir()
        files = seeds_of(valid)
        before, here = contents(valid), os.getcwd()
        asked = kinds(files, place)
        try:
            for kind, use in asked.items():
                counts[kind] = {"taken": 0, "refused": 0}
                _fuzz_kind(use, counts[kind], place, max(1, inputs // len(asked)), begin)
                assert contents(valid) == before, f"{kind}: a file outside of the input's folder has changed"
        finally:
            os.chdir(here)
            logger.setLevel(level)
    return counts


def _fuzz_kind(use: Callable[[Any], object], count: dict[str, int], place: Path, inputs: int, begin: int) -> None:
    @seed(begin)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(some.data())
    def one(data: some.DataObject) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        os.chdir(place)
        with in_time(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, about what they read
            refused = ""
            try:
                use(data)
            except PolyarchError as error:
                refused = str(error)
            assert "\n" not in refused, f"an error of several lines: {refused}"
            count["refused" if refused else "taken"] += 1

    one()


def main() -> None:
    """Feeds, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begun = time.monotonic()
    counts = fuzz(asked.inputs, asked.seed)
    print(
        json.dumps(
            {
                "inputs": sum(sum(own.values()) for own in counts.values()),
                "seconds": round(time.monotonic() - begun),
                **counts,
            }
        )
    )


if __name__ == "__main__":
    main()
