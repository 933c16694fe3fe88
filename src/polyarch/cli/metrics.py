"""Metrics as a table on the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

HEADERS = {
    "accuracy": "accuracy",
    "hamming_accuracy": "Hamming",
    "exact_match": "exact",
    "rmse": "RMSE",
    "absolute_error": "MAE",
    "deviance": "deviance",
    "r2": "R²",
    "log_likelihood": "log-lik.",
    "ece": "ECE",
    "auc": "AUC",
    "f1": "F1",
    "mae": "MAE",
    "crps": "CRPS",
    "coverage_90": "in 90%",
    "brier": "Brier",
}
"""In order of importance: a table has the first of them that it has room for, and --json has all."""

FITS = 80
"""Characters of a line that a table of metrics keeps to."""
WIDE = 200
"""Characters of a line where nobody looks at a screen: enough for all that is told."""
GAP = 2


def print_metrics(title: str, rows: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """One line per row: its metrics, or their mean and standard deviation where there are several (repeats)."""
    columns: list[tuple[str, list[str]]] = []
    room = FITS - max(map(len, (title, *rows)))
    everyday = next(iter(next(iter(rows.values()))[0]))  # of a likelihood of one's own it may be any
    known = HEADERS if everyday in HEADERS else {everyday: everyday.replace("_", " ")} | HEADERS
    for name, header in known.items():
        if all(name in metrics for found in rows.values() for metrics in found):
            cells = [mean_and_spread([metrics[name] for metrics in found]) for found in rows.values()]
            room -= GAP + max(map(len, (header, *cells)))
            if room < 0 and columns:
                break
            columns.append((header, cells))
    lines = [(label, [cells[k] for _, cells in columns]) for k, label in enumerate(rows)]
    print_table(title, [header for header, _ in columns], lines)


def print_table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> None:
    """A column of labels under a title, and others to its right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(title, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for label, cells in rows:
        table.add_row(label, *cells)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    console.print(table)


def mean_and_spread(values: Sequence[float]) -> str:
    """A number, or for several its mean ± standard deviation."""
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


def counted(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
