"""Puts a report together and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyarch import catalogue
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.files import write_whole
from polyarch.report import (
    classes_section,
    formatting,
    pareto_section,
    prediction_sections,
    search_section,
    sections,
    summary,
    trust_section,
)
from polyarch.report.report_data import ReportData
from polyarch.report.templates import render
from polyarch.runs.run import Run

NAME = "report.html"

SECTIONS = {
    "table": ("Results", summary.table),
    "seeds": ("Seeds", summary.seeds),
    "architecture": ("Architecture", sections.architecture),
    "belief": ("Belief", sections.belief),
    "trust": ("Trust", trust_section.trust),
    "belief_over_time": ("Belief over time", sections.belief_over_time),
    "search": ("Search", search_section.search_progress),
    "curves": ("Training", sections.curves),
    "classes": ("Classes", classes_section.classes),
    "calibration": ("Calibration", prediction_sections.calibration),
    "intervals": ("Intervals", prediction_sections.intervals),
    "uncertainty": ("Uncertainty", prediction_sections.uncertainty),
    "early_exit": ("Early exit", prediction_sections.early_exit),
    "maps": ("Functions", prediction_sections.maps),
    "gallery": ("Hard cases", prediction_sections.gallery),
    "pareto": ("Quality and cost", pareto_section.pareto),
    "cost": ("Cost", sections.cost),
    "made": ("How it was made", sections.made),
}
"""In the order of the page: the name in the list of contents, and what makes the section."""


SHARES = {
    "posterior": "the probability of",
    "mixing": "the mixing weight of",
    "sampling": "how often belief draws",
}
"""What belief that is learnt gives to every option, by the kind of its meaning."""


def write_report(run: Run, task: Task, *, baselines: Sequence[Run] = ()) -> Path:
    """Writes `report.html` into the folder of a finished run: one file that needs no network.

    Args:
        run: the run.
        task: its data.
        baselines: runs on the same data to compare with; those of one fixed option of a nested decision, such as a
            depth, are drawn beside the belief over it.

    Returns:
        Where the page is.
    """
    return _write(ReportData([run], task, baselines, run.folder))


def write_summary_report(folder: str | Path, runs: Sequence[Run], task: Task, *, baselines: Sequence[Run] = ()) -> Path:
    """Writes `report.html` about several repeats of one search: means, and the spread over seeds.

    Args:
        folder: where the page is put, usually the folder that holds the repeats.
        runs: the repeats.
        task: their data.
        baselines: runs on the same data to compare with.

    Returns:
        Where the page is.
    """
    if not runs:
        raise PolyarchError("a summary needs one run at least; pass the runs of open_repeats(folder)")
    return _write(ReportData(list(runs), task, baselines, Path(folder)))


def _write(report: ReportData) -> Path:
    path = report.folder / NAME
    # A folder's name may hold bytes that are no text.
    write_whole(path, render("page.html.j2", _context(report)).encode("utf-8", "backslashreplace"))
    return path


def _context(report: ReportData) -> dict[str, Any]:
    """All that the template shows; a section that has nothing to say is None."""
    config = report.run.config
    found = {key: make(report) for key, (_, make) in SECTIONS.items()}
    return {
        "data": config.data["name"],
        "space": catalogue.short(config.space_name),
        "method": catalogue.short(config.method["name"]),
        "nested": {"name": report.decision.name, "plural": report.members} if report.is_nested else None,
        "meaning": report.meaning,
        "mixture": {"name": report.mixture, "means": report.mixture_means},
        "share": SHARES.get(report.meaning.kind, ""),
        "learns": report.learns,
        "runs": len(report.runs),
        "stages": len(report.trajectories[0].stages),
        "split": formatting.SPLITS.get(report.split or "", ""),
        "optimistic": report.is_optimistic,
        "examples": formatting.whole(config.data["examples"][report.split]) if report.split else "",
        "finding": summary.finding(report),
        "tiles": summary.tiles(report),
        "contents": [(key, SECTIONS[key][0]) for key, section in found.items() if section],
        **found,
    }
