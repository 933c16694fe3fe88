"""`polyarch show`: what a run found."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyarch.cli.options import Json, RunFolder

if TYPE_CHECKING:
    from polyarch.runs.run import Run

ROWS = (
    ("test", "selected network"),
    ("test_ensemble", "mixture, pruned"),
    ("test_unpruned", "mixture, unpruned"),
)
FIGURES = ("accuracy", "rmse", "log_likelihood", "brier", "ece", "ece_all_classes")


def show(run: RunFolder, as_json: Json = False) -> None:
    """What a run found: the architecture, belief, and how good the network is."""
    from polyarch.runs.run import open_repeats

    show_runs(run, open_repeats(run), as_json)


def show_runs(folder: Path, runs: list[Run], as_json: bool) -> None:
    """Prints the result of one run, or of every repeat with their mean and spread."""
    found = [run.result for run in runs]
    if as_json:
        print(
            json.dumps(found[0] if len(found) == 1 else {"run": str(folder), "runs": found, "summary": summary(found)})
        )
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for result in found:
        cost = result["cost"]
        console.print(
            f"[bold]{result['architecture']}[/bold] of {result['space']} for {result['data']} by {result['method']}, "
            f"seed {result['seed']}: {cost['selected']['parameters']:,} of {cost['largest']['parameters']:,} "
            f"parameters, {result['forward_seconds']['saving']:.0%} of the forward time saved"
        )
    rows = [(key, label) for key, label in ROWS if key in found[0]["metrics"]]
    if not rows:
        return
    figures = [name for name in FIGURES if name in found[0]["metrics"][rows[0][0]]]
    table = Table("test set", *figures)
    for key, label in rows:
        table.add_row(label, *(_mean_and_spread([r["metrics"][key][name] for r in found]) for name in figures))
    console.print(table)


def summary(found: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and standard deviation over repeats of every figure."""
    return {
        key: {
            name: {
                "mean": statistics.fmean(r["metrics"][key][name] for r in found),
                "std": statistics.stdev(r["metrics"][key][name] for r in found),
            }
            for name in figures
        }
        for key, figures in found[0]["metrics"].items()
    }


def _mean_and_spread(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}"
