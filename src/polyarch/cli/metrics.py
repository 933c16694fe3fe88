"""Metrics as a table on the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

HEADERS = {
    "accuracy": "accuracy",
    "rmse": "RMSE",
    "log_likelihood": "log-lik.",
    "crps": "CRPS",
    "coverage_90": "in 90%",
    "brier": "Brier",
    "ece": "ECE",
}

WIDE = 200
"""Characters of a line where nobody looks at a screen: enough for all that is told."""


def print_metrics(title: str, rows: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """One line per row: its metrics, or their mean and standard deviation where there are several (repeats)."""
    from rich.console import Console
    from rich.table import Table

    shown = [name for name in HEADERS if all(name in metrics for found in rows.values() for metrics in found)]
    table = Table(box=None, pad_edge=False)
    table.add_column(title, no_wrap=True)
    for name in shown:
        table.add_column(HEADERS[name], justify="right")
    for label, found in rows.items():
        table.add_row(label, *(mean_and_spread([metrics[name] for metrics in found]) for name in shown))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    console.print(table)


def mean_and_spread(values: Sequence[float]) -> str:
    """A number, or for several its mean ± standard deviation."""
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"
