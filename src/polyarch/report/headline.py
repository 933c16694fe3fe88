"""The top of a report: what was found in plain words, key numbers, and the tables of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyarch.report import evidence, words
from polyarch.report.story import MIXED, UNPRUNED, Story
from polyarch.report.trajectory import collapse
from polyarch.report.words import Measure
from polyarch.runs.run import Run

LONGEST = 60
"""Characters of an architecture's text that a sentence can hold."""


def finding(story: Story) -> list[str]:
    """What was found, a sentence each."""
    sentences = (_selected(story), collapse(story), _saved(story), _scores(story), _compared(story))
    return [sentence for sentence in sentences if sentence]


def _selected(story: Story) -> str:
    depths, most = story.depths, story.most
    if not story.is_depth:
        return _selected_of_many(story)
    if story.is_point:
        return f"A residual network of fixed depth {depths[0]}."
    verdict = "is selected, though belief is nearly flat" if story.is_flat else "explains the data"
    if story.several:
        span = f"{min(depths)} to {max(depths)}" if len(set(depths)) > 1 else f"always {depths[0]}"
        return f"Over {len(depths)} seeds, depth {words.spread(depths, 1)} of {most} ({span}) {verdict}."
    if depths[0] == most:
        kept = words.plural(most, "block")
        return f"The search keeps all {kept}: a larger max_depth may explain the data better."
    return f"Depth {depths[0]} of {most} {verdict}."


def _selected_of_many(story: Story) -> str:
    """Of a space whose architectures are drawn rather than told; short texts are told as well."""
    if story.is_point:
        seeds = f" with {len(story.runs)} seeds" if story.several else ""
        return f"One network of the space {story.run.config.space['name'].rpartition(':')[2]}, trained alone{seeds}."
    texts = {str(run.architecture) for run in story.runs}
    if len(texts) > 1:
        return f"Over {len(story.runs)} seeds, the search selects {len(texts)} different architectures."
    [text] = texts
    tells = len(text) <= LONGEST and any(character.isalnum() for character in text)  # a wiring without links is "-"
    what = text if tells else "the architecture drawn below"
    return (
        f"Over {len(story.runs)} seeds, the search always selects {what}."
        if story.several
        else (f"The search selects {what}.")
    )


def _saved(story: Story) -> str:
    if not story.is_cut:
        return ""
    share = words.about_percent(1 - _kept(story))
    dropped = words.plural(story.most - story.depths[0], "block")
    what = f"On average, pruning drops {share}" if story.several else f"Pruning drops {dropped}, {share}"
    faster = _faster(story)
    time = f", and a forward pass takes {words.about_percent(faster)} less time" if faster >= 0.005 else ""
    return f"{what} of the parameters{time}."


def _kept(story: Story) -> float:
    """Share of the parameters that pruning keeps, mean over seeds."""
    costs = [result["cost"] for result in story.results]
    return words.mean([c["selected"]["parameters"] / c["largest"]["parameters"] for c in costs])


def _faster(story: Story) -> float:
    """Share of the forward time that pruning saves, mean over seeds."""
    return words.mean([result["forward_seconds"]["saving"] for result in story.results])


def _scores(story: Story) -> str:
    if not story.split:
        return "The data has no validation or test examples, so how well it predicts was not measured."
    main = story.measures[0]
    own, mixed = story.own(main.name), story.mixed(main.name)
    where = f"{words.SPLITS[story.split]} {main.title}"
    if not own:
        return ""
    if not mixed:
        return f"Its {where} is {main.show(own)}."
    which = "selected networks reach" if story.several else "selected network reaches"
    which = "network reaches" if story.is_point else which
    if main.percent:
        return f"The {which} {main.show(own)} {where}, the mixture over {story.members} {main.show(mixed)}."
    return f"The {which} a {where} of {main.show(own)}, the mixture over {story.members} {main.show(mixed)}."


def _compared(story: Story) -> str:
    rows = [(g.depth, story.values(g.runs, "", "log_likelihood")) for g in story.groups if g.depth is not None]
    means = {depth: words.mean(values) for depth, values in rows if values}
    mixed = story.mixed("log_likelihood")
    if len(means) < 2 or not mixed or not story.split:
        return ""
    best, mine = max(means, key=lambda depth: means[depth]), words.mean(mixed)
    return (
        f"Of {len(means)} fixed depths trained alone, depth {best} does best on {words.SPLITS[story.split]} "
        f"data (log-likelihood {words.number(means[best])}); the mixture reaches {words.number(mine)}."
    )


def tiles(story: Story) -> list[tuple[str, str, str]]:
    """Key numbers: name, value, and a note."""
    found = [_what_tile(story), *_score_tiles(story)]
    costs = [result["cost"]["selected"] for result in story.results]
    parameters, macs = (words.whole(words.mean([c[name] for c in costs])) for name in ("parameters", "macs"))
    if not story.is_cut:
        return [*found, ("parameters", parameters, f"{macs} MACs")]
    faster = words.about_percent(max(_faster(story), 0))
    kept = ("parameters kept", words.about_percent(_kept(story)), parameters)
    return [*found, kept, ("time saved", faster, "of a forward pass")]


def _what_tile(story: Story) -> tuple[str, str, str]:
    if not story.is_depth:
        if story.is_point:
            return "kept epoch", words.ranges(sorted({c.kept for c in story.courses})), ""
        return "entropy of belief", words.number(story.entropy(), 2), "nats"
    if story.is_point:
        return "depth", str(story.depths[0]), ""
    return "selected depth", words.spread(story.depths, 1), f"of {story.most}"


def _score_tiles(story: Story) -> list[tuple[str, str, str]]:
    found = []
    for measure in story.measures:
        if measure.name not in ("accuracy", "rmse", "log_likelihood", "ece"):
            continue
        if story.split and story.own(measure.name):
            mixed = story.mixed(measure.name)
            title = measure.title if measure.name == "ece" else f"{words.SPLITS[story.split]} {measure.title}"
            note = f"mixture {measure.show([words.mean(mixed)])}" if mixed else ""
            found.append((title, measure.show(story.own(measure.name)), note))
        elif not story.split:
            at_kept = [course.at_kept("train", measure.name) for course in story.courses]
            values = [float(value) for value in at_kept if value is not None and np.isfinite(value)]
            if values:
                found.append((f"training {measure.title}", measure.show(values), "data it was fitted to"))
    return found


# --------------------------------------------------------------------------------------------------
# Tables.


def table(story: Story) -> dict[str, Any] | None:
    """Every network and mixture in every measure, the best of each column marked."""
    rows = [(*row, [story.values(row[2], row[3], m.name) for m in story.measures]) for row in _rows(story)]
    rows = [row for row in rows if any(row[4])]
    if not rows:
        return None
    best = [_best(measure, [row[4][k] for row in rows]) for k, measure in enumerate(story.measures)]
    shown = []
    for name, note, runs, _, values in rows:
        cells = [
            {"text": m.show(v) if v else "–", "best": bool(v) and m.show([words.mean(v)]) == b}
            for m, v, b in zip(story.measures, values, best, strict=True)
        ]
        shown.append({"name": name, "note": note, "cells": cells, "baseline": runs is not story.runs})
    return {"measures": story.measures, "rows": shown}


def _rows(story: Story) -> list[tuple[str, str, Sequence[Run], str]]:
    """Name, note, runs and kind of measure of each line."""
    one = story.is_depth and not story.several
    rows: list[tuple[str, str, Sequence[Run], str]] = [
        (
            "This network" if story.is_point else "Selected network",
            f"depth {story.depths[0]}" if one else "",
            story.runs,
            "",
        )
    ]
    if story.is_mixed:
        note = "draws of dropout" if story.is_point else ""
        if story.is_depth:
            note = f"depths 0 to {story.depths[0]}, Eq. 3" if one else "up to the selected depth, Eq. 3"
        rows.append(("Mixture, pruned" if story.is_cut else "Mixture", note, story.runs, MIXED))
    if story.is_cut:
        rows.append(("Mixture, all depths", "", story.runs, UNPRUNED))
    rows += [(g.name, f"{len(g.runs)} seeds" if len(g.runs) > 1 else "", g.runs, g.kind) for g in story.groups]
    return rows


def _best(measure: Measure, column: Sequence[Sequence[float]]) -> str | None:
    """The best mean of a column, as it is shown; None where there is nothing to compare."""
    means = [words.mean(values) for values in column if values]
    if len(means) < 2:
        return None
    return measure.show([max(means) if measure.higher_is_better else min(means)])


def seeds(story: Story) -> dict[str, Any] | None:
    """One line a seed."""
    if not story.several:
        return None
    kind = MIXED if story.is_mixed else ""
    rows = []
    for run, course in zip(story.runs, story.courses, strict=True):
        found = [(m, story.values([run], kind, m.name)) for m in story.measures]
        rows.append(
            {
                "seed": run.seed,
                "architecture": str(evidence.depth_of(run)) if story.is_depth else str(run.architecture),
                "kept": course.kept,
                "entropy": words.number(story.result(run)["distribution"]["entropy"], 2),
                "cells": [m.show(values) if values else "–" for m, values in found],
            }
        )
    return {
        "rows": rows,
        "measures": story.measures,
        "of": "pruned mixture" if story.is_cut else "mixture" if story.is_mixed else "network",
    }
