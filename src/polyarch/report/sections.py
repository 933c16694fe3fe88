"""The sections of a report about a search and its belief; None where one has nothing to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup

from polyarch.distributions import selection
from polyarch.distributions.evidence import paired_errors
from polyarch.plotting import BLUE, GREEN, NARROW, Array, at_both_widths
from polyarch.report import belief_areas, belief_figures, beliefs, commands, formatting, graph_svg, time_figures
from polyarch.report.report_data import ReportData
from polyarch.runs.run import Run, resume_command
from polyarch.spaces.graph import Graph

LABELS = {"step": "steps", "train": "train", "select": "valid."}


def architecture(report: ReportData) -> dict[str, Any] | None:
    """Pictures of what was selected and of what is believed, of each seed; what is nested is told in words."""
    if report.is_nested:
        return None
    operations = belief_areas.colour_order(report.trajectories, beliefs.operations(report.run))
    drawn = [{"title": graph.title, "svg": _picture(graph, operations)} for graph in beliefs.graphs(report.runs)]
    seeds: dict[str, list[int]] = {}
    for run in report.runs:
        seeds.setdefault(str(run.architecture), []).append(run.seed)
    texts = [(formatting.seeds(own) if report.several else "", text) for text, own in seeds.items()]
    return {"pictures": drawn, "texts": texts, "is_belief": report.learns}


def _picture(graph: Graph, operations: Sequence[str]) -> Markup:
    return at_both_widths(lambda width: Markup(graph_svg.draw(graph, operations, width <= NARROW)))


def belief(report: ReportData) -> dict[str, Any] | None:
    """The distribution over architectures, beside its prior."""
    if not report.learns:
        return None
    found = [beliefs.probs(run) for run in report.runs]
    probs = {name: np.stack([p[name] for p in found]) for name in found[0]}
    prior = beliefs.prior(report.run)
    if not report.is_nested:
        used = [beliefs.selected(run) for run in report.runs]
        selected = {name: [option for own in used for option in own[name]] for name in used[0]}
        options = {d.name: d.options for d in beliefs.simplices(report.run)}
        svg = at_both_widths(partial(belief_figures.decisions, probs, prior, options, selected))
        return {"svg": svg, "rules": [], "notes": [], "fit": ""}
    name = report.decision.name
    rules = {rule: about for rule, (_, about) in selection.RULES.items()}
    if report.run.config.data["examples"].get("select"):
        rules |= {rule: about for rule, (_, about) in selection.HELD_OUT_RULES.items()}
    chosen = {rule: [run.selected(rule).choices[0] for run in report.runs] for rule in rules}
    marks = {} if report.several else {rule: options[0] for rule, options in chosen.items()}
    fit = _baseline_fit(report) or _own_fit(report)
    return {
        "svg": at_both_widths(
            partial(belief_figures.posterior, report.decision, probs[name], prior[name], report.choices, marks, fit)
        ),
        "rules": [
            {
                "rule": rule,
                "about": about,
                "option": report.shown(chosen[rule]),
                "used": rule == report.run.config.select,
            }
            for rule, about in rules.items()
        ],
        "notes": _belief_notes(report, probs[name].mean(0)),
        "fit": "" if fit is None else "baselines" if fit.colour == GREEN else "own",
    }


def _belief_notes(report: ReportData, mean: Array) -> list[str]:
    name, options = report.decision.name, report.decision.options
    plateau = [k for k in range(len(mean)) if mean[k] >= 0.95 * mean.max()]
    notes = []
    if report.moved():
        moved = formatting.number(formatting.mean(report.moved()), 2)
        notes.append(f"Belief is {moved} nats from its prior, KL(belief || prior): so far it was moved.")
    if report.rules_nothing_out:
        notes.append(
            f"It rules no {name} out (none has less than a tenth of the largest probability): the data hardly tells "
            f"these {report.members} apart, and another seed may select another {name}."
        )
    if len(plateau) > 1 and report.meaning.kind == "posterior":
        span = formatting.ranges(plateau, options)
        notes.append(
            f"{report.members.capitalize()} {span} are within 95{formatting.THIN}% of the largest probability."
        )
    known = [result["evidence"] for result in report.results if "evidence" in result]
    if known and not report.rules_nothing_out:
        out = formatting.number(formatting.mean([own["ruled_out"] for own in known]), 0)
        mass = formatting.about_percent(formatting.mean([own["ruled_out_prior_mass"] for own in known]))
        notes.append(
            f"It rules out {out} of {len(options)} {report.members}, each with less than a tenth of the largest "
            f"probability; they had {mass} of the prior's mass."
        )
    for split, by in (("train", "training"), ("select", "validation")):
        lags = [own["lag"][split] for own in known if split in own["lag"]]
        if lags and formatting.mean(lags) > LAG:
            modes = formatting.ranges(sorted({options.index(own["posterior_mode"][split]) for own in known}), options)
            notes.append(
                f"By {by} data alone, the exact posterior of the kept weights (Eq. 5) has its mode at {name} {modes}, "
                f"and belief is {formatting.number(formatting.mean(lags), 1)} nats from it."
            )
    return notes


LAG = 0.5
"""Nats from which on a distance from the exact posterior is told."""
OPTION_FIT = "depth_log_likelihood"
"""The metric that has the log-likelihood of every option of a nested decision: [evaluations, options]."""


def _baseline_fit(report: ReportData) -> belief_figures.Fit | None:
    """Fixed options on the data that results are told on."""
    points = [(g.option, report.values(g.runs, "", "log_likelihood")) for g in report.groups]
    fixed = {option: values for option, values in points if option is not None and values and np.isfinite(values).all()}
    own = report.network_values("log_likelihood")
    if not fixed or not report.split:
        return None
    return belief_figures.Fit(
        title=f"{formatting.SPLITS[report.split]} log-likelihood, nats per example",
        options=list(fixed),
        values=list(fixed.values()),
        label=f"fixed {report.members}",
        colour=GREEN,
        mixture=report.mixture_values("log_likelihood"),
        mixture_label=report.mixture,
        selected=(report.choices[0], own[0]) if own and not report.several else None,
    )


def _own_fit(report: ReportData) -> belief_figures.Fit | None:
    """The options of the search itself, on data that the search has looked at."""
    split = "select" if report.task.select is not None else "train"
    found = report.kept(split, OPTION_FIT)
    by_option = np.stack(found).T if found else np.zeros((0, 1))
    good = [k for k, values in enumerate(by_option) if np.isfinite(values).all()]
    if not good:
        return None
    name = report.decision.name
    return belief_figures.Fit(
        title=f"{formatting.SPLITS[split]} log-likelihood by {name}, nats per example",
        options=good,
        values=[by_option[k].tolist() for k in good],
        label=f"each {name}",
        colour=BLUE,
        mixture=[float(mixed) for mixed in report.kept(split, "log_likelihood")],
        mixture_label=f"mixture, all {report.members}",
        errors=[] if report.several or split == "train" else _errors(report.run)[good].tolist(),
    )


def _errors(run: Run) -> Array:
    """The standard error of how far each option is from the best one on validation examples, paired."""
    assert run.evidence is not None
    return paired_errors(run.evidence.held_out).numpy()


def belief_over_time(report: ReportData) -> dict[str, Any] | None:
    """How belief formed: over the options of a nested decision as a map, else as one panel per decision."""
    if not report.learns or len(report.trajectories[0].epochs) < 2:
        return None
    if report.is_nested:
        return {
            "svg": at_both_widths(partial(time_figures.belief_map, report.trajectories, report.decision)),
            "areas": None,
        }
    options = {d.name: d.options for d in beliefs.simplices(report.run)}
    areas = belief_areas.picture(report.trajectories, options, beliefs.operations(report.run))
    return {"svg": None, "areas": areas}


def curves(report: ReportData) -> dict[str, Any] | None:
    """How training went."""
    values, examples = report.trajectories[0].values, report.run.config.data["examples"]["train"]
    evaluated = [split for split in ("train", "select") if split in values]
    # Several seeds give lines enough.
    splits = evaluated if report.several or "step" not in values else ["step", *evaluated]
    panels = _objective(values, splits, examples)
    of = "" if report.is_point else f", {report.about()}"
    metric = report.task.likelihood.metric
    titles = {"log_likelihood": f"log-likelihood, nats{of}", metric: f"{formatting.titled(metric)}{of}"}
    for name, title in titles.items():
        lines = [time_figures.Line(split, name, LABELS[split]) for split in splits if name in values[split]]
        if lines:
            panels.append(time_figures.Panel(title, lines, percent=name in formatting.PERCENT))
    if not panels or len(report.trajectories[0].epochs) < 2:
        return None
    return {
        "svg": at_both_widths(partial(time_figures.curves, report.trajectories, panels)),
        "kept": "" if report.several else str(report.trajectories[0].kept),
        "rising": all(c.kept == c.epochs[-1] for c in report.trajectories)
        and report.run.config.method["settings"]["stopping"]["split"] != "never",
        "steps": any(line.split == "step" for panel in panels for line in panel.lines),
        "where": formatting.SPLITS[evaluated[0]] if len(evaluated) == 1 else "",
    }


def _objective(values: dict[str, dict[str, Array]], splits: Sequence[str], examples: int) -> list[time_figures.Panel]:
    """What is climbed, per training example; nothing where that is the log-likelihood, which has a panel."""
    lines = [time_figures.Line(s, "objective", LABELS[s]) for s in splits if s != "step"]
    if not all("elbo" in values[line.split] for line in lines):
        pairs = [(v["objective"], v.get("log_likelihood", ())) for v in _evaluated(values)]
        same = all(np.array_equal(climbed, fit, equal_nan=True) for climbed, fit in pairs)
        return [] if same else [time_figures.Panel("objective", lines)]
    if "step" in splits and "elbo" in values["step"]:
        lines.insert(0, time_figures.Line("step", "elbo", LABELS["step"], examples))
    return [time_figures.Panel("bound, nats per example", lines)]


def _evaluated(values: dict[str, dict[str, Array]]) -> list[dict[str, Array]]:
    return [found for split, found in values.items() if split in ("train", "select")]


def cost(report: ReportData) -> dict[str, Any] | None:
    """What the selected network costs beside the largest, and the pruned mixture beside the whole one."""
    if not report.is_pruned:
        return None
    network = [(r["cost"]["selected"], r["cost"]["largest"]) for r in report.results]
    seconds = [r["forward_seconds"] for r in report.results]
    rows = []
    for name, show, pairs in (
        ("parameters", formatting.whole, [(a["parameters"], b["parameters"]) for a, b in network]),
        ("multiply-accumulates", formatting.whole, [(a["macs"], b["macs"]) for a, b in network]),
        ("forward pass, network alone", formatting.milliseconds, [(s["selected"], s["largest"]) for s in seconds]),
        ("forward pass, mixture", formatting.milliseconds, [(s["ensemble"], s["unpruned"]) for s in seconds]),
    ):
        small, large = zip(*pairs, strict=True)
        share = formatting.mean([a / b if b else 1.0 for a, b in pairs])
        rows.append(
            {
                "name": name,
                "pruned": show(formatting.mean(small)),
                "whole": show(formatting.mean(large)),
                "width": f"{100 * min(share, 1):.1f}",
                "saved": f"{formatting.about_percent(1 - share)} saved" if share < 0.9995 else "nothing saved",
            }
        )
    examples = min(512, len(report.task.training))
    return {
        "rows": rows,
        "examples": formatting.whole(examples),
        "decision": report.decision.name,
        "mean": report.several,
    }


def made(report: ReportData) -> dict[str, Any]:
    """Settings, and how to repeat, resume and use the run."""
    config, source = report.run.config, report.run.config.data["source"]
    again = report.folder.with_name(report.folder.name + "-again")
    data: dict[str, Any] = {"name": config.data["name"], "input": config.inputs().words}
    data |= {f"{formatting.SPLITS[name]} examples": formatting.whole(n) for name, n in config.data["examples"].items()}
    data |= {"likelihood" if k == "kind" else k: value for k, value in config.data["likelihood"].items()}
    if "weights" in data:
        data["weights"] = ", ".join(formatting.number(weight) for weight in data["weights"])
    data |= {"fingerprint": config.data["fingerprint"][:12]}
    data |= source["settings"] if source else {"source": "memory"}
    general = {
        "prior": config.prior if isinstance(config.prior, str) else "given as a distribution",
        "selection rule": config.select,
        **({"limits": ", ".join(config.limits)} if config.limits else {}),
        **({"price": f"{config.price}, nats per example"} if config.price else {}),
        "seeds" if report.several else "seed": formatting.ranges([run.seed for run in report.runs]),
        "kept epoch": formatting.ranges(sorted({c.kept for c in report.trajectories})),
        **_stages(report),
        "examples passed forward": formatting.whole(report.results[0]["budget"]["forward"]),
        "examples passed backward": formatting.whole(report.results[0]["budget"]["backward"]),
        "device": config.device,
        **config.versions,
    }
    return {
        "tables": [
            ("Run", general),
            ("Data", data),
            (f"Space: {config.space_name}", _by_dotted_name(config.space["settings"])),
            (f"Method: {config.method['name']}", _by_dotted_name(config.method["settings"])),
        ],
        "command": commands.search_command(report.run, again, len(report.runs), _trained_along(report)),
        "call": commands.search_call(report.run, again, len(report.runs)),
        "resume": resume_command(report.folder),
        "python": _python(report),
        "baselines": [str(run.folder) for run in report.baselines],
    }


def _by_dotted_name(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of parts under the names that the command line has for them: `weights.lr`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        parts = _by_dotted_name(value) if isinstance(value, Mapping) else {}
        found |= {f"{name}.{own}": one for own, one in parts.items()} or {name: value}
    return found


def _stages(report: ReportData) -> dict[str, str]:
    """How many epochs each stage took, where there are several."""
    first = report.trajectories[0]
    ends = [*first.stages[1:], round(first.epochs[-1])]
    lengths = [str(end - start) for start, end in zip(first.stages, ends, strict=True)]
    return {"epochs of its stages": " + ".join(lengths)} if len(lengths) > 1 else {}


def _trained_along(report: ReportData) -> list[int]:
    """The fixed options among the baselines that `search --baselines` trained beneath a run."""
    home = report.folder / "baselines"
    return [g.option for g in report.groups if g.option is not None and home in g.runs[0].folder.parents]


def _python(report: ReportData) -> str:
    lines = [("import polyarch as pa", ""), (f"run = pa.open_run({str(report.run.folder)!r})", "")]
    if not report.is_point:
        lines.append((f"run.distribution.probs()[{beliefs.simplices(report.run)[0].name!r}]", "belief"))
    which = "the selected network, trained alone" if report.is_trained else "the selected network"
    lines.append(("model = run.model()", f"{which}: a plain nn.Module on raw inputs"))
    if report.has_mixture:
        lines.append(("ensemble = run.ensemble()", "the mixture; ensemble.output(x) predicts"))
        if report.classifies:
            lines.append(("ensemble(x).mutual_information", "where its members disagree"))
    return "\n".join(f"{code}  # {about}" if about else code for code, about in lines)
