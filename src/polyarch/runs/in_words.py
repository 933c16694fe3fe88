"""A run in a few lines, for people who print one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyarch.errors import PolyarchError

if TYPE_CHECKING:
    from polyarch.runs.run import Run

ROWS = {"_trained": "selected network, trained alone", "": "selected network", "_ensemble": "mixture"}
"""Metrics by how their name ends; of a network that was trained alone, what it was before is left out."""
WHERE = {"test": "test data", "select": "validation data"}
SHOWN = ("accuracy", "rmse", "log_likelihood")


def run_in_words(run: Run) -> str:
    """What was searched, what was found, and what it is worth; a run that cannot be read says so."""
    config = run.config
    name = f"Run({str(run.folder)!r})"
    asked = f"{config.method['name']} on the space {config.space['name']} for {config.data['name']}, seed {run.seed}"
    if not run.finished:
        return f"{name}, not finished: {asked}"
    try:
        result = run.result
    except PolyarchError as error:
        return f"{name}: {error}"
    if config.repeats > 1:
        return f"{name}: {config.repeats} repeats of {asked}"
    lines = [f"{name}: {asked}", f"  found: {result['architecture']}"]
    split = next((split for split in WHERE if split in result["metrics"]), None)
    said: list[str] = []
    for ending, title in ROWS.items() if split else ():
        figures = result["metrics"].get(f"{split}{ending}", {})
        told = ", ".join(f"{metric} {figures[metric]:.4g}" for metric in SHOWN if metric in figures)
        if told and told not in said and not (ending == "" and said):  # a mixture of one is the network
            said.append(told)
            lines.append(f"  {title} on {WHERE[str(split)]}: {told}")
    return "\n".join(lines)
