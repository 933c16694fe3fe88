"""Options that several verbs take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting of data, space, method or search; GROUP.NAME where a name is in several. May be repeated.",
    ),
]
AllowChanged = Annotated[
    bool,
    typer.Option("--allow-changed", help="Go on although code of your own has changed since the run was made."),
]
TimeLimitText = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="TIME",
        help="Such as 90s, 5m, 1h, for all that the command does: so many epochs as fit in, by what a few steps take.",
    ),
]
Tensorboard = Annotated[
    bool,
    typer.Option("--tensorboard", help="Also write for TensorBoard, in OUT/tensorboard; needs polyarch[tensorboard]."),
]
Limits = Annotated[
    list[str],
    typer.Option(
        "--limit",
        metavar="NAME=MOST",
        help="What the selected network may cost at most: parameters=100k, macs=5M, latency=5ms (measured here; of a "
        "batch of 64: latency=40ms@64), or a column of --table. May be repeated.",
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
