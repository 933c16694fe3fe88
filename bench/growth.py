"""How the time and the memory of a fast step grow with what is asked of it, as powers.

    python -m bench.growth [--sweeps cells,channels] [--precision bfloat16] [--seconds 0.5] [--out FILE]

Sweeps, each with everything else as in a search (NAS-Bench-201, C=16, N=5, batch 64, DARTS):

    cells        N
    channels     C
    operations   per edge, in the DARTS space (C=16, 8 layers): in pairs of one with a convolution and one without
    samples      K of PARSEC, dense
    repeats      seeds in one computation

A line is fitted to the logarithms by least squares; its slope is the exponent, and what follows ± is the standard error
of the slope: how far the points are from a power, not how far runs are apart (`least` and `most` of a point's rounds
say that). `last` is the exponent between the two largest points alone, where fixed costs weigh least. Prints one JSON
line a point and a sweep, and one table. `--device cpu --small` tries the script out, with the memory of tensors.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import polyarch as pa
from bench.measuring import CIFAR, SMALL, Kept, measured, problem_of, table, why_plain
from bench.steps import AUGMENTED, CASES, space_of
from polyarch.core import Method

PAIRED = (
    *("skip_connect", "sep_conv_3x3", "max_pool_3x3", "dil_conv_3x3"),
    *("avg_pool_3x3", "sep_conv_5x5", "none", "dil_conv_5x5"),
)
POINTS = {
    "cells": (1, 2, 5, 10),
    "channels": (8, 16, 32, 64),
    "operations": (2, 4, 6, 8),
    "samples": (1, 2, 4, 8),
    "repeats": (1, 2, 4),
}
SMALL_POINTS = {"cells": (1, 2, 3), "channels": (2, 4, 8), "operations": (2, 4, 8), "samples": (1, 2, 4)}


@dataclass(frozen=True)
class Point:
    """What is measured at one size."""

    method: Method
    space: pa.spaces.Space
    repeats: int = 1


def point_of(sweep: str, size: int, small: bool) -> Point:
    """A sweep at one size."""
    darts = CASES["darts"].method
    if sweep == "operations":
        layers, channels = (3, 4) if small else (8, 16)
        return Point(darts, pa.spaces.Darts(operations=PAIRED[:size], layers=layers, channels=channels))
    if sweep == "samples":
        parsec = pa.methods.Parsec(augment=AUGMENTED, samples=size, form="dense")
        return Point(parsec, space_of("nasbench201", small))
    if sweep == "repeats":
        return Point(darts, space_of("nasbench201", small), size)
    usual = {"channels": 4, "cells": 1} if small else {"channels": 16, "cells": 5}
    return Point(darts, pa.spaces.NasBench201(**{**usual, sweep: size}))


def power(sizes: Sequence[float], values: Sequence[float]) -> dict[str, float | None]:
    """The exponent of values in sizes: least squares of logarithms, with the slope's standard error."""
    x, y = ([math.log(value) for value in own] for own in (sizes, values))
    middle, height = sum(x) / len(x), sum(y) / len(y)
    width = sum((value - middle) ** 2 for value in x)
    slope = sum((a - middle) * (b - height) for a, b in zip(x, y, strict=True)) / width
    left = sum((b - height - slope * (a - middle)) ** 2 for a, b in zip(x, y, strict=True))
    error = math.sqrt(left / (len(x) - 2) / width) if len(x) > 2 else None  # two points say nothing of it
    last = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return {"exponent": round(slope, 3), "error": None if error is None else round(error, 3), "last": round(last, 3)}


def swept(sweep: str, given: argparse.Namespace, kept: Kept) -> dict[str, Any]:
    """All points of a sweep, and the powers. Where a point fails, what there is without it is fitted."""
    points = []
    why = ""
    for size in (SMALL_POINTS if given.small else POINTS).get(sweep, POINTS[sweep]):
        point = point_of(sweep, size, given.small)
        settings: Mapping[str, Any] = {
            "space": point.space,
            "repeats": point.repeats,
            "precision": given.precision,
            "fast": True,
            "device": given.device,
            "shape": SMALL if given.small else CIFAR,
        }
        row = {"sweep": sweep, "size": size}
        try:
            why = why_plain(problem_of(**settings))
            row |= measured(point.method, settings, captured=True, seconds=given.seconds)
        except (RuntimeError, pa.PolyarchError) as error:
            kept.add(row | {"failed": f"{type(error).__name__}: {str(error)[:300]}"})
            continue
        kept.add(row)
        points.append(row)
    found: dict[str, Any] = {"sweep": sweep, "why_plain": why, "sizes": [row["size"] for row in points]}
    if len(points) < 2:
        return found
    memory = "gib" if given.device == "cuda" else "gib_allocated"
    for name, key in (("time", "ms"), ("memory", memory)):
        found[name] = power(found["sizes"], [row[key] for row in points])
        found[f"{name}_values"] = [row[key] for row in points]
    return found


def shown_rows(sweeps: Sequence[Mapping[str, Any]]) -> str:
    """The table of powers."""

    def exponent(found: Mapping[str, Any]) -> str | None:
        if not found:
            return None
        return f"{found['exponent']:.2f} ± {found['error']:.2f}" if found["error"] is not None else found["exponent"]

    lines = []
    for row in sweeps:
        cells: list[Any] = [row["sweep"] + ("*" if row["why_plain"] else ""), ", ".join(map(str, row["sizes"]))]
        for name in ("time", "memory"):
            own = row.get(name, {})
            cells += [", ".join(f"{v:.3g}" for v in row.get(f"{name}_values", ())), exponent(own), own.get("last")]
        lines.append(cells)
    titles = ["sweep", "sizes", "ms", "exponent", "last", "GiB", "exponent", "last"]
    reasons = {row["why_plain"] for row in sweeps if row["why_plain"]}
    return "\n".join([table(titles, lines), *(f"* no fast form: {reason}" for reason in sorted(reasons))])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--sweeps", default=",".join(POINTS))
    made.add_argument("--precision", default="float32")
    made.add_argument("--seconds", type=float, default=0.5, help="about how long a point is measured")
    made.add_argument("--device", default="cuda")
    made.add_argument("--small", action="store_true", help="small networks and images, to try this out")
    made.add_argument("--out", type=Path, help="a file that JSON lines are added to")
    return made


def main(words: Sequence[str] | None = None) -> None:
    given = parser().parse_args(words)
    kept = Kept(
        given.out, given.device, precision=given.precision, tf32=torch.backends.cudnn.allow_tf32, rounds=5, seeds=[0]
    )
    found = []
    for sweep in given.sweeps.split(","):
        found.append(swept(sweep, given, kept))
        kept.add(found[-1])
    print(f"\n{shown_rows(found)}")


if __name__ == "__main__":
    main()
