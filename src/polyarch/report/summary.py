"""The top of a report: what was found in plain words, key numbers, and the tables of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyarch import catalogue
from polyarch.distributions.flatness import flat_in_words
from polyarch.report import formatting
from polyarch.report.formatting import Metric
from polyarch.report.report_data import MIXTURE, TEMPERED, TRAINED, UNPRUNED, ReportData
from polyarch.report.search_section import collapse
from polyarch.runs.agreement import agreement_of
from polyarch.runs.plain import over_seeds
from polyarch.runs.run import Run

LONGEST = 60
"""Characters of an architecture's text that a sentence can hold."""


def finding(report: ReportData) -> tuple[str, list[tuple[str, list[str]]]]:
    """The headline, and under it what was found, whether it was worth it, and how sure that is: sentences by name."""
    plain = over_seeds(report.plains) if report.plains else []
    selected = _selected(report)
    plain_is_better = any(one.verdict == "better" for one in report.plains)
    headline, *advice = plain if plain_is_better else [selected]
    found = [selected if plain_is_better else "", collapse(report), _scores(report), _saved(report)]
    worth = [*(advice if plain_is_better else plain), _compared(report)]
    parts = {"Worth it?": worth} if plain_is_better else {}
    sure = [_ruled_out(report), _flat(report), *_steadiness(report), _trusted(report)]
    parts |= {"Found": found, "Worth it?": worth, "How sure?": sure}
    told = {name: [sentence for sentence in sentences if sentence] for name, sentences in parts.items()}
    return headline, [(name, sentences) for name, sentences in told.items() if sentences]


def _steadiness(report: ReportData) -> list[str]:
    """What examples and seeds leave open."""
    found = []
    own = report.network_values("accuracy")
    if report.split and own:
        count, share = len(report.examples), formatting.mean(own)
        error = formatting.percent((share * (1 - share) / count) ** 0.5)
        found.append(
            f"With {formatting.whole(count)} {formatting.SPLITS[report.split]} examples, an accuracy is known to "
            f"±{formatting.THIN}{error} (one standard error)."
        )
    if report.is_optimistic:
        found.append("The search chose by these examples, so that the numbers are optimistic.")
    if report.is_point and not report.several:
        return found
    if not report.several:
        said = report.rules_nothing_out or _flat(report)
        return found if said else [*found, "One seed: another may select otherwise."]
    agreement = agreement_of(report.runs)
    return [*found, agreement.sentence(report.is_nested)] if agreement else found


def _selected(report: ReportData) -> str:
    if not report.is_nested:
        return _selected_of_many(report)
    name, options, choices = report.decision.name, report.decision.options, report.choices
    if report.is_point:
        return f"A network of fixed {name} {options[choices[0]]}."
    verdict = "explains the data" if report.meaning.kind == "posterior" else "is selected"
    if report.rules_nothing_out:
        verdict = f"is selected, though belief rules no {name} out"
    if report.several:
        low, high = options[min(choices)], options[max(choices)]
        span = f"{low} to {high}" if low != high else f"always {low}"
        return f"Over {len(choices)} seeds, {name} {report.shown(choices)} of {options[-1]} ({span}) {verdict}."
    if not report.is_pruned:
        return f"The search keeps the largest {name}, {options[-1]}: a larger one may explain the data better."
    return f"{name[0].upper()}{name[1:]} {options[choices[0]]} of {options[-1]} {verdict}."


def _ruled_out(report: ReportData) -> str:
    """How many options of a nested decision belief leaves."""
    known = [result["evidence"] for result in report.results if "evidence" in result]
    if not known or report.rules_nothing_out:
        return ""
    out = formatting.number(formatting.mean([own["ruled_out"] for own in known]), 0)
    return f"Belief rules out {out} of {known[0]['options']} {report.members}."


def _flat(report: ReportData) -> str:
    """That belief over architectures prefers hardly any, where it could have been learnt."""
    flat = (
        ""
        if report.is_nested or not report.learns
        else flat_in_words([result["distribution"]["probs"] for result in report.results])
    )
    return f"Belief is {flat}; another seed may select another architecture." if flat else ""


def _selected_of_many(report: ReportData) -> str:
    """Of a space whose architectures are drawn rather than told; short texts are told as well."""
    if report.is_point:
        seeds = f" with {len(report.runs)} seeds" if report.several else ""
        return f"One network of the space {catalogue.short(report.run.config.space_name)}, trained alone{seeds}."
    texts = {str(run.architecture) for run in report.runs}
    if len(texts) > 1:
        return f"Over {len(report.runs)} seeds, the search selects {len(texts)} different architectures."
    [text] = texts
    tells = len(text) <= LONGEST and any(character.isalnum() for character in text)  # a wiring without links is "-"
    what = text if tells else "the architecture drawn below"
    who = f"Over {len(report.runs)} seeds, the search always" if report.several else "The search"
    return f"{who} selects {what}."


def _saved(report: ReportData) -> str:
    if not report.is_pruned:
        return ""
    share, options = formatting.about_percent(1 - _kept(report)), report.decision.options
    what = f"Pruning {report.decision.name} {options[-1]} to {options[report.choices[0]]}"
    alone, mixture = (_faster(report, name) for name in ("selected", "ensemble"))
    shown = [formatting.about_percent(max(saving, 0)) for saving in (alone, mixture)]
    time = f", and saves {shown[0]} of the forward time of the network alone, {shown[1]} of that of the mixture"
    time = time if max(alone, mixture) >= 0.005 else ""
    return f"{'On average, pruning' if report.several else what} drops {share} of the parameters{time}."


def _kept(report: ReportData) -> float:
    """Share of the parameters that pruning keeps, mean over seeds."""
    costs = [result["cost"] for result in report.results]
    return formatting.mean([c["selected"]["parameters"] / c["largest"]["parameters"] for c in costs])


def _faster(report: ReportData, name: str) -> float:
    """Share of the forward time that pruning saves, `selected` of the network or `ensemble`, mean over seeds."""
    return formatting.mean([result["forward_saving"][name] for result in report.results])


def _scores(report: ReportData) -> str:
    if not report.split:
        return "The data has no validation or test examples, so how well it predicts was not measured."
    main = report.metrics[0]
    own, mixed = report.network_values(main.name), report.mixture_values(main.name)
    where = f"{formatting.SPLITS[report.split]} {main.title}"
    if not own:
        return ""
    if report.shares_weights:
        return _shared_scores(report, main)
    if not mixed:
        return f"Its {where} is {main.show(own)}."
    which = "selected networks reach" if report.several else "selected network reaches"
    which = "network reaches" if report.is_point else which
    if main.percent:
        return f"The {which} {main.show(own)} {where}, the {report.mixture} over {report.members} {main.show(mixed)}."
    return f"The {which} a {where} of {main.show(own)}, the {report.mixture} over {report.members} {main.show(mixed)}."


def _shared_scores(report: ReportData, main: Metric) -> str:
    """Of a search whose networks share weights: what the selected one does with its own, and with those."""
    where = f"{formatting.SPLITS[report.split or '']} {main.title}"
    shared = main.show(report.shared_values(main.name))
    which, reach, they = ("networks", "reach", "they have") if report.several else ("network", "reaches", "it has")
    if not report.is_trained:
        return f"Under shared weights the selected {which} {reach} {_told(main, where, shared)}."
    own = _told(main, where, main.show(report.network_values(main.name)))
    return f"Trained alone, the selected {which} {reach} {own}; under the shared weights of the search {they} {shared}."


def _told(metric: Metric, where: str, value: str) -> str:
    """A number and what it is of."""
    return f"{value} {where}" if metric.percent else f"a {where} of {value}"


def _compared(report: ReportData) -> str:
    fixed = [group for group in report.groups if group.option is not None]
    rows = [(group.name, report.values(group.runs, "", "log_likelihood")) for group in fixed]
    means = {name.removeprefix("Fixed "): formatting.mean(values) for name, values in rows if values}
    mixed = report.mixture_values("log_likelihood")
    if len(means) < 2 or not mixed or not report.split:
        return ""
    best, mine = max(means, key=lambda name: means[name]), formatting.mean(mixed)
    return (
        f"Of {len(means)} fixed {report.members} trained alone, {best} does best on {formatting.SPLITS[report.split]} "
        f"data (log-likelihood {formatting.number(means[best])}); the {report.mixture} reaches "
        f"{formatting.number(mine)}."
    )


def _trusted(report: ReportData) -> str:
    """Whether belief orders architectures, where networks were trained or looked up to find out."""
    return report.trust.sentences()[0] if report.trust else ""


def tiles(report: ReportData) -> list[tuple[str, str, list[str]]]:
    """Key numbers: name, value, and notes."""
    found = [*_what_tiles(report), *_score_tiles(report)]
    costs = [result["cost"]["selected"] for result in report.results]
    parameters, macs = (formatting.whole(formatting.mean([c[name] for c in costs])) for name in ("parameters", "macs"))
    if not report.is_pruned:
        return [*found, ("parameters", parameters, [f"{macs} MACs"])]
    alone, mixture = (formatting.about_percent(max(_faster(report, name), 0)) for name in ("selected", "ensemble"))
    kept = ("parameters kept", formatting.about_percent(_kept(report)), [parameters])
    return [*found, kept, ("forward time saved", alone, [f"{report.mixture} {mixture}"])]


def _what_tiles(report: ReportData) -> list[tuple[str, str, list[str]]]:
    if not report.is_nested:
        if report.is_point:
            return [("kept epoch", formatting.ranges(sorted({c.kept for c in report.trajectories})), [])]
        moved = report.moved()
        return (
            [("belief moved", formatting.number(formatting.mean(moved), 2), ["nats, KL from prior"])] if moved else []
        )
    name, options = report.decision.name, report.decision.options
    if report.is_point:
        return [(name, options[report.choices[0]], [])]
    middle, _, deviation = report.shown(report.choices).partition("±")
    spread = [f"±{deviation}"] if deviation else []
    return [(f"selected {name}", middle.strip(formatting.THIN), [*spread, f"of {options[-1]}"])]


def _score_tiles(report: ReportData) -> list[tuple[str, str, list[str]]]:
    found = []
    for metric in report.metrics:
        if metric.name not in (report.metrics[0].name, "log_likelihood", "ece"):
            continue
        values = report.network_values(metric.name)
        if report.split and values:
            mixed = report.mixture_values(metric.name)
            title = metric.title if metric.name == "ece" else f"{formatting.SPLITS[report.split]} {metric.title}"
            notes = [metric.show_deviation(values)]
            if report.is_trained:
                notes.append(f"shared weights {_middle(metric, report.shared_values(metric.name))}")
            else:
                notes.append("shared weights" if report.shares_weights else "")
                notes.append(f"{report.mixture} {_middle(metric, mixed)}" if mixed else "")
            found.append((title, _middle(metric, values), [note for note in notes if note]))
        elif not report.split:
            values = [float(value) for value in report.kept("train", metric.name) if np.isfinite(value)]
            if values:
                found.append((f"training {metric.title}", _middle(metric, values), ["data it was fitted to"]))
    return found


def _middle(metric: Metric, values: Sequence[float]) -> str:
    """The mean alone."""
    return metric.show([formatting.mean(values)])


# --------------------------------------------------------------------------------------------------
# Tables.


def table(report: ReportData) -> dict[str, Any] | None:
    """Every network and mixture in every metric, the best of each column marked."""
    rows = [row for row in _lines(report) if any(row[3])]
    if not rows:
        return None
    best = [_best(metric, [row[3][k] for row in rows]) for k, metric in enumerate(report.metrics)]
    shown = []
    for name, note, is_baseline, values in rows:
        cells = [
            {"text": m.show(v) if v else "–", "best": bool(v) and m.show([formatting.mean(v)]) == b}
            for m, v, b in zip(report.metrics, values, best, strict=True)
        ]
        shown.append({"name": name, "note": note, "cells": cells, "baseline": is_baseline})
    return {"metrics": report.metrics, "rows": shown, "lacks": report.plains[0].lacks if report.plains else ""}


def _lines(report: ReportData) -> list[tuple[str, str, bool, list[list[float]]]]:
    """Of each line its name, its note, whether it is there to compare with, and its values by metric."""
    names = [metric.name for metric in report.metrics]

    def of_runs(rows: Sequence[tuple[str, str, Sequence[Run], str]]) -> list[tuple[str, str, bool, list[list[float]]]]:
        return [
            (name, note, runs is not report.runs, [report.values(runs, kind, metric) for metric in names])
            for name, note, runs, kind in rows
        ]

    plain = [
        (model.name.capitalize(), model.note, True, [report.plain_values(model, metric) for metric in names])
        for model in (report.plains[0].models if report.plains else ())  # those of all seeds are the same
    ]
    groups = [(g.name, f"{len(g.runs)} seeds" if len(g.runs) > 1 else "", g.runs, g.kind) for g in report.groups]
    return [*of_runs(_rows(report)), *plain, *of_runs(groups)]


def _rows(report: ReportData) -> list[tuple[str, str, Sequence[Run], str]]:
    """Name, note, runs and kind of metric of each line that is about the runs themselves."""
    own = note = ""
    if report.is_nested:
        name, chosen = report.decision.name, report.decision.options[report.choices[0]]
        own = "" if report.several else f"{name} {chosen}"
        upto = f"{report.members} {report.decision.options[0]} to {chosen}"
        note = f"up to the selected {name}, Eq. 3" if report.several else f"{upto}, Eq. 3"
    elif report.is_point:
        note = "draws of dropout"
    title = "This network" if report.is_point else "Selected network"
    rows: list[tuple[str, str, Sequence[Run], str]] = [(title, own, report.runs, "")]
    if report.shares_weights:
        rows = [("Selected network", "trained alone", report.runs, TRAINED)] if report.is_trained else []
        rows.append(("Selected network, shared weights", "", report.runs, ""))
    if report.has_mixture:
        rows.append((report.mixture_title, note, report.runs, MIXTURE))
    if report.is_pruned:
        rows.append((f"Mixture, all {report.members}", "", report.runs, UNPRUNED))
    temperatures = [found["temperature"] for found in report.results if found.get("temperature") is not None]
    if any(temperature != 1 for temperature in temperatures):
        told = f"temperature {formatting.number(formatting.mean(temperatures), 2)}"
        what = "This network" if report.is_point else report.mixture.capitalize()
        rows.append((f"{what}, tempered", told, report.runs, TEMPERED))
    return rows


def _best(metric: Metric, column: Sequence[Sequence[float]]) -> str | None:
    """The best mean of a column, as it is shown; None where there is nothing to compare."""
    means = [formatting.mean(values) for values in column if values]
    if len(means) < 2:
        return None
    return metric.show([max(means) if metric.higher_is_better else min(means)])


def seeds(report: ReportData) -> dict[str, Any] | None:
    """One line per seed."""
    if not report.several:
        return None
    kind = TRAINED if report.is_trained else MIXTURE if report.has_mixture else ""
    names = {TRAINED: "selected network, trained alone", MIXTURE: report.mixture_title.lower(), "": "network"}
    rows = []
    for run, trajectory in zip(report.runs, report.trajectories, strict=True):
        found = [(m, report.values([run], kind, m.name)) for m in report.metrics]
        rows.append(
            {
                "seed": run.seed,
                "architecture": report.shown(run.architecture.choices) if report.is_nested else "",
                "kept": trajectory.kept,
                "moved": formatting.number(report.result(run)["distribution"]["kl"], 2) if report.learns else "",
                "cells": [m.show(values) if values else "–" for m, values in found],
            }
        )
    return {
        "rows": rows,
        "learns": report.learns,
        "metrics": report.metrics,
        "selects": report.is_nested,
        "of": names[kind],
    }
