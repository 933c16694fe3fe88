"""How a search went: what it was worth from epoch to epoch, what was watched beside it, and whether it collapsed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyarch.plotting import BLUE, GREEN
from polyarch.report import time_figures, words
from polyarch.report.evidence import Course
from polyarch.report.story import Story
from polyarch.report.time_figures import Line, Panel
from polyarch.tables.columns import better_of

MEASURES = {"accuracy": "accuracy", "squared_error": "squared error", "log_likelihood": "log-likelihood, nats"}
"""What a search may be worth, with its title; the first that there is counts."""
WATCHED = {
    "skip_share": Panel("skips among the mode's operations", (), percent=True, from_zero=True),
    "cell_depth": Panel("depth of the mode's cell, edges", (), whole=True, from_zero=True),
    "sigma": Panel("deviation of the logits", ()),
    "effective_samples": Panel("effective samples", ()),
    "hessian_eigenvalue": Panel("architecture Hessian: largest eigenvalue", ()),
    "hessian_trace": Panel("architecture Hessian: trace", ()),
    "discretisation_gap": Panel("loss of the mode above the mixture's, nats", ()),
}
"""What else may have been watched, in the order of its panels, which have no lines yet."""


def trajectory(story: Story) -> dict[str, Any] | None:
    """The course of a search for anything but depth, which has a picture of its own."""
    if story.is_point or story.is_depth or len(story.courses[0].epochs) < 2:
        return None
    split = "valid" if "valid" in story.courses[0].values else "train"
    truth = _truth_panel(story)
    others = [time_figures.entropy_panel(story.courses), *_watched(story)]
    main = _main(story, split)
    if truth and truth.percent and main.percent:
        title = f"{main.title}; true: {story.run.config.column}, by the table"
        main = replace(main, title=title, lines=[*main.lines, *truth.lines], levels=truth.levels)
    elif truth:
        others.insert(0, truth)
    return {
        "svg": time_figures.trajectory(story.courses, main, others, _collapses(story.courses)),
        "where": words.SPLITS[split],
        "nested": story.run.space.nested,
        "mixed": any(line.name.startswith("supernet_") for line in main.lines),
        "notes": [sentence for sentence in (collapse(story), _changes(story), _truth(story)) if sentence],
    }


def _main(story: Story, split: str) -> Panel:
    """What the search was worth: the mode, and the mixture of all operations where that was measured."""
    values = story.courses[0].values[split]
    name = next(name for name in (*MEASURES, "objective") if name in values)
    lines = [Line(split, name, "mixture" if story.run.space.nested else "mode", colour=BLUE)]
    if f"supernet_{name}" in values:
        lines.append(Line(split, f"supernet_{name}", "mixture", colour=GREEN))
    title = f"{MEASURES.get(name, name)} on {words.SPLITS[split]} data"
    return Panel(title, lines, percent=name == "accuracy")


def _watched(story: Story) -> list[Panel]:
    """What the method watched, in whatever part of a line that stands."""
    values = story.courses[0].values
    parts = [part for part in ("train", "valid", "step", "watch") if part in values]
    homes = {name: part for name in WATCHED for part in parts if name in values[part]}
    panels = [replace(WATCHED[name], lines=[Line(part, name, colour=BLUE)]) for name, part in homes.items()]
    if "skip_share" in homes and story.run.space.most_skips < 1:
        panels[0] = replace(panels[0], levels=[(story.run.space.most_skips, "collapse above")])
    return panels


# --------------------------------------------------------------------------------------------------
# Ground truth.


def _truth_panel(story: Story) -> Panel | None:
    """What the table has for the mode; accuracies as shares, so that they can stand beside others."""
    if not all("table" in course.values for course in story.courses):
        return None
    scale, column = _scale(story), story.run.config.column
    known = story.result(story.run).get("truth", {})
    random, best = (known.get("random") or {}).get("mean"), known.get("best")
    levels = [(v / (scale or 1), name) for v, name in ((random, "random, true"), (best, "best, true")) if v is not None]
    line = Line("table", "truth", "mode, true", scale or 1)
    return Panel(f"{column} of the mode, by the table", [line], percent=scale is not None, levels=levels)


def _scale(story: Story) -> float | None:
    """What the table's numbers are to be divided by to be shares; None where they are no accuracies."""
    if better_of(story.run.config.column) != "higher":
        return None
    seen = np.concatenate([course.values["table"]["truth"] for course in story.courses])
    best = (story.result(story.run).get("truth") or {}).get("best")
    return 100.0 if max(float(np.nanmax(seen)), best or 0.0) > 1 else 1.0


def _truth(story: Story) -> str:
    """What the table has for what was selected, beside plain baselines."""
    known = [result["truth"] for result in story.results if "truth" in result]
    if not known or not all("table" in course.values for course in story.courses):
        return ""
    scale = _scale(story)

    def show(value: float, deviation: float | None = None) -> str:
        if scale is None:
            return words.number(value, 3, deviation)
        return words.percent(value / scale, None if deviation is None else deviation / scale)

    own = [truth["selected"] for truth in known if truth["selected"] is not None]
    reached = show(words.mean(own), statistics.stdev(own) if len(own) > 1 else None) if own else "nothing"
    which = "selected architectures" if story.several else "selected architecture"
    parts = [f"By the table, {known[0]['column']} of the {which} is {reached}"]
    if known[0]["random"] is not None:
        parts.append(f"of random ones {show(known[0]['random']['mean'], known[0]['random']['std'])}")
    if known[0]["best"] is not None:
        parts.append(f"of the best {show(known[0]['best'])}")
    return ", ".join(parts) + ". Nothing was chosen by it."


# --------------------------------------------------------------------------------------------------
# In words.


def _changes(story: Story) -> str:
    counts = [len(course.changes) for course in story.courses]
    if story.several:
        span = f"{min(counts)} to {max(counts)} times" if min(counts) < max(counts) else _times(counts[0])
        return f"The likeliest architecture changed {span} a seed."
    if not counts[0]:
        return "The likeliest architecture never changed."
    last = f"after epoch {story.courses[0].changes[-1]:.0f}"
    return f"The likeliest architecture changed {_times(counts[0])}, {'' if counts[0] == 1 else 'last '}{last}."


def _times(count: int) -> str:
    return {0: "not once", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _collapses(courses: Sequence[Course]) -> list[float]:
    """When each run that ever collapsed did so first."""
    found = []
    for course in courses:
        collapsed = np.nan_to_num(course.values.get("watch", {}).get("collapsed", np.zeros(len(course.epochs))))
        found += course.epochs[collapsed > 0][:1].tolist()
    return found


def _kept(course: Course, name: str) -> float:
    """One thing that was watched, of what was kept."""
    found = course.at_kept("watch", name)
    return np.nan if found is None else float(found)


def collapse(story: Story) -> str:
    """Whether cells became little more than skips, when first, and whether the selected ones are; nothing if never."""
    first = _collapses(story.courses)
    if not first:
        return ""
    ended = sum(_kept(course, "collapsed") == 1 for course in story.courses)
    if story.several:
        when = f"at epoch {first[0]:.0f}" if len(first) == 1 else f"first at epoch {min(first):.0f}"
        return (
            f"The search collapsed for {len(first)} of {len(story.runs)} seeds, {when}; of the kept cells "
            f"{ended or 'none'} {'is' if ended == 1 else 'are'} little more than skips."
        )
    for_good = "" if ended else ", but not for good"
    share = words.about_percent(_kept(story.courses[0], "skip_share"))
    return f"The search collapsed at epoch {first[0]:.0f}{for_good}: {share} of the kept mode's operations are skips."
