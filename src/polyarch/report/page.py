"""Puts a report together and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.report import headline, sections, trajectory, words
from polyarch.report.story import Story
from polyarch.report.templates import render
from polyarch.runs.files import write_whole
from polyarch.runs.run import Run

NAME = "report.html"

SECTIONS = {
    "table": ("Results", headline.table),
    "seeds": ("Seeds", headline.seeds),
    "architecture": ("Architecture", sections.architecture),
    "belief": ("Belief", sections.belief),
    "course": ("Course", sections.course),
    "trajectory": ("Trajectory", trajectory.trajectory),
    "curves": ("Training", sections.curves),
    "calibration": ("Calibration", sections.calibration),
    "uncertainty": ("Uncertainty", sections.uncertainty),
    "maps": ("Functions", sections.maps),
    "gallery": ("Hard cases", sections.gallery),
    "cost": ("Cost", sections.cost),
    "made": ("How it was made", sections.made),
}
"""In the order of the page: the name in the list of contents, and what makes the section."""


def write_report(run: Run, task: Task, *, baselines: Sequence[Run] = ()) -> Path:
    """Writes `report.html` into the folder of a finished run: one file that needs no network.

    Args:
        run: the run.
        task: its data.
        baselines: runs on the same data to compare with; fixed depths are drawn beside the belief over depth.

    Returns:
        Where the page is.
    """
    return _write(Story([run], task, baselines, run.folder))


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
    return _write(Story(list(runs), task, baselines, Path(folder)))


def _write(story: Story) -> Path:
    path = story.folder / NAME
    # A folder's name may hold bytes that are no text.
    write_whole(path, render("template.html.j2", _context(story)).encode("utf-8", "backslashreplace"))
    return path


def _context(story: Story) -> dict[str, Any]:
    """All that the template shows; a section that has nothing to say is None."""
    config = story.run.config
    found = {key: make(story) for key, (_, make) in SECTIONS.items()}
    return {
        "data": config.data["name"],
        "space": config.space["name"].rpartition(":")[2],
        "method": config.method["name"].rpartition(":")[2],
        "runs": len(story.runs),
        "stages": len(story.courses[0].stages),
        "split": words.SPLITS.get(story.split or "", ""),
        "examples": words.whole(config.data["examples"][story.split]) if story.split else "",
        "finding": headline.finding(story),
        "tiles": headline.tiles(story),
        "contents": [(key, SECTIONS[key][0]) for key, section in found.items() if section],
        **found,
    }
