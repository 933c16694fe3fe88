"""What one thing costs of which a large search needs many: reading an image, claiming a run, looking at one.

    python -m bench.scale [--runs 2000]

Prints one JSON line, milliseconds of one core for each: reading a JPEG of 500x375 pixels and about 110 kB (noise on a
smooth picture) at 64 and at 224 pixels a side, a PNG of 32, and 64 rows of a mapped `.npz` of such; claiming a run of a
comparison, looking at one that somebody else has, and a beat of its holder. docs/scale.md multiplies them.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from polyarch.data.files import read_image
from polyarch.data.readers import MappedArrays, mapped_npz
from polyarch.runs.claims import Claims

ROWS = 20_000


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps({**reading(Path(place)), **claiming(Path(place) / "claims", given.runs)}))


def reading(place: Path) -> dict[str, float]:
    """Of images and rows."""
    random = np.random.default_rng(0)
    smooth = Image.fromarray(random.integers(0, 256, (24, 32, 3), np.uint8)).resize(
        (500, 375), Image.Resampling.BICUBIC
    )
    noisy = np.asarray(smooth, np.float64) + random.normal(0, 20, (375, 500, 3))
    written = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(written, "JPEG", quality=88)
    (place / "large.jpg").write_bytes(written.getvalue())
    x = random.integers(0, 256, (ROWS, 3, 32, 32), np.uint8)
    Image.fromarray(np.moveaxis(x[0], 0, 2)).save(place / "small.png")
    np.savez(place / "rows.npz", x=x, y=np.arange(ROWS) % 10)
    mapped = mapped_npz(str(place / "rows.npz"))
    assert mapped is not None
    rows = MappedArrays(mapped["x"], mapped["y"], "x")
    return {
        "jpeg_kb": round(len(written.getvalue()) / 1000),
        "jpeg_at_64": once(lambda: read_image(place / "large.jpg", (64, 64)), 50),
        "jpeg_at_224": once(lambda: read_image(place / "large.jpg", (224, 224)), 50),
        "png_of_32": once(lambda: read_image(place / "small.png", None), 500),
        "64_mapped_rows": once(lambda: rows.read(random.integers(0, ROWS, 64)), 500),
    }


def claiming(folder: Path, runs: int) -> dict[str, float]:
    """Of runs, as workers of a comparison do it."""
    own, other = Claims(folder), Claims(folder)
    names = [f"run-{k}" for k in range(runs)]
    begun = time.perf_counter()
    held = [own.take(name) for name in names]
    claimed = time.perf_counter()
    assert not any(other.take(name) for name in names)
    looked = time.perf_counter()
    assert held[0] is not None
    return {
        "claim": round(1e3 * (claimed - begun) / runs, 3),
        "look": round(1e3 * (looked - claimed) / runs, 3),
        "beat": once(held[0].beat, 100),
    }


def once(do: Callable[[], object], times: int) -> float:
    """Milliseconds of a call, once it is warm."""
    do()
    begun = time.perf_counter()
    for _ in range(times):
        do()
    return round(1e3 * (time.perf_counter() - begun) / times, 3)


if __name__ == "__main__":
    main()
