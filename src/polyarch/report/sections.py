"""The sections of a report: what each shows and says; None where it has nothing to say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from polyarch import selection
from polyarch.plotting import BLUE, GREEN, Array
from polyarch.report import bands, evidence, figures, graph_svg, pictures, time_figures, words
from polyarch.report.story import Story
from polyarch.runs.run import resume_command
from polyarch.uncertainty.ensemble import Ensemble

LABELS = {"step": "steps", "train": "train", "valid": "valid."}


def architecture(story: Story) -> dict[str, Any] | None:
    """Pictures of what was selected and of what is believed, of each seed; a depth is told in words."""
    if story.is_depth:
        return None
    shown = [(run, graph) for run in story.runs for graph in evidence.graphs(run)]
    operations = bands.colour_order(story.courses, evidence.operations(story.run))
    drawn = [
        {
            "title": f"{graph.title}, seed {run.seed}" if story.several else graph.title,
            "svg": Markup(graph_svg.draw(graph, operations)),
        }
        for run, graph in shown
    ]
    texts = list(dict.fromkeys(str(run.architecture) for run in story.runs))
    return {"pictures": drawn, "texts": texts, "is_belief": not story.is_point}


def belief(story: Story) -> dict[str, Any] | None:
    """The distribution over architectures, beside its prior."""
    if story.is_point:
        return None
    found = [evidence.probs(run) for run in story.runs]
    probs = {name: np.stack([p[name] for p in found]) for name in found[0]}
    prior = evidence.prior(story.run)
    if not story.is_depth:
        used = [evidence.selected(run) for run in story.runs]
        selected = {name: [option for own in used for option in own[name]] for name in used[0]}
        options = {d.name: d.options for d in evidence.simplices(story.run)}
        svg = figures.decisions(probs, prior, options, selected)
        return {"svg": svg, "rules": [], "notes": [], "fit": "", "cut": False}
    chosen = {rule: [run.selected(rule).choices[0] for run in story.runs] for rule in selection.RULES}
    marks = {} if story.several else {rule: depths[0] for rule, depths in chosen.items()}
    fit = _baseline_fit(story) or _own_fit(story)
    return {
        "svg": figures.posterior(probs["depth"], prior["depth"], story.depths, marks, fit),
        "rules": [
            {
                "rule": rule,
                "about": about,
                "depth": words.spread(chosen[rule], 1),
                "used": rule == story.run.config.select,
            }
            for rule, (_, about) in selection.RULES.items()
        ],
        "notes": _belief_notes(story, probs["depth"].mean(0)),
        "cut": story.is_cut,
        "fit": "" if fit is None else "baselines" if fit.colour == GREEN else "own",
    }


def _belief_notes(story: Story, mean: Array) -> list[str]:
    plateau = [d for d in range(len(mean)) if mean[d] >= 0.95 * mean.max()]
    notes = []
    if story.is_flat:
        entropy, most = words.number(story.entropy(), 2), words.number(math.log(len(mean)), 2)
        notes.append(
            f"Belief is nearly flat (entropy {entropy} of at most {most} "
            "nats): the data hardly tells these depths apart, and another seed may select another depth."
        )
    if len(plateau) > 1:
        notes.append(f"Depths {words.ranges(plateau)} are within 95{words.THIN}% of the largest probability.")
    exact = _exact(story)
    if exact is not None and np.abs(exact - mean).sum() > 0.4:
        notes.append(
            "Belief still lags behind the weights: with them, the exact posterior (Eq. 5) has its mode at "
            f"depth {exact.argmax()}, with a probability of {words.number(float(exact.max()), 2)}."
        )
    return notes


def _exact(story: Story) -> Array | None:
    """p(d | D) of the kept weights, where the fit of every depth to the training data was measured."""
    fit = story.courses[0].at_kept("train", "depth_log_likelihood")
    if fit is None or story.several or not np.isfinite(fit).all():
        return None
    joint = story.run.config.data["examples"]["train"] * fit + np.log(evidence.prior(story.run)["depth"])
    weights: Array = np.exp(joint - joint.max())
    return weights / weights.sum()


def _baseline_fit(story: Story) -> figures.Fit | None:
    """Fixed depths on the data that results are told on."""
    points = [(g.depth, story.values(g.runs, "", "log_likelihood")) for g in story.groups]
    fixed = {depth: values for depth, values in points if depth is not None and values and np.isfinite(values).all()}
    own = story.own("log_likelihood")
    if not fixed or not story.split:
        return None
    return figures.Fit(
        title=f"{words.SPLITS[story.split]} log-likelihood, nats per example",
        depths=list(fixed),
        values=list(fixed.values()),
        label="fixed depths",
        colour=GREEN,
        mixture=story.mixed("log_likelihood"),
        selected=(story.depths[0], own[0]) if own and not story.several else None,
    )


def _own_fit(story: Story) -> figures.Fit | None:
    """The depths of the search itself, on data that the search has looked at."""
    split = "valid" if "valid" in story.courses[0].values else "train"
    found = [course.at_kept(split, "depth_log_likelihood") for course in story.courses]
    mixed = [course.at_kept(split, "log_likelihood") for course in story.courses]
    by_depth = np.stack([f for f in found if f is not None]).T if found[0] is not None else np.zeros((0, 1))
    good = [d for d, values in enumerate(by_depth) if np.isfinite(values).all()]
    if not good:
        return None
    return figures.Fit(
        title=f"{words.SPLITS[split]} log-likelihood of each depth of the shared network, nats per example",
        depths=good,
        values=[by_depth[d].tolist() for d in good],
        label="each depth",
        colour=BLUE,
        mixture=[float(m) for m in mixed if m is not None],
    )


def course(story: Story) -> dict[str, Any] | None:
    """How belief formed: over depth as a map, else a panel a decision."""
    if story.is_point or len(story.courses[0].epochs) < 2:
        return None
    if story.is_depth:
        return {"svg": time_figures.course(story.courses, "depth"), "bands": None}
    options = {d.name: d.options for d in evidence.simplices(story.run)}
    return {"svg": None, "bands": bands.picture(story.courses, options, evidence.operations(story.run))}


def curves(story: Story) -> dict[str, Any] | None:
    """How training went."""
    values, examples = story.courses[0].values, story.run.config.data["examples"]["train"]
    evaluated = [split for split in ("train", "valid") if split in values]
    # Several seeds give lines enough.
    splits = evaluated if story.several or "step" not in values else ["step", *evaluated]
    panels = _objective(values, splits, examples)
    of = "" if story.is_point else " of the mixture" if story.run.space.nested else " of the mode"
    titles = {
        "log_likelihood": f"log-likelihood{of}, nats",
        "accuracy": f"accuracy{of}",
        "squared_error": f"squared error{of}",
    }
    for name, title in titles.items():
        lines = [time_figures.Line(split, name, LABELS[split]) for split in splits if name in values[split]]
        if lines:
            panels.append(time_figures.Panel(title, lines, percent=name == "accuracy"))
    if not panels or len(story.courses[0].epochs) < 2:
        return None
    return {
        "svg": time_figures.curves(story.courses, panels),
        "kept": "" if story.several else str(story.courses[0].kept),
        "rising": all(c.kept == c.epochs[-1] for c in story.courses)
        and story.run.config.method["settings"].get("stop") != "never",
        "steps": any(line.split == "step" for panel in panels for line in panel.lines),
        "where": words.SPLITS[evaluated[0]] if len(evaluated) == 1 else "",
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
    return [time_figures.Panel("ELBO, nats per training example", lines)]


def _evaluated(values: dict[str, dict[str, Array]]) -> list[dict[str, Array]]:
    return [found for split, found in values.items() if split in ("train", "valid")]


def calibration(story: Story) -> dict[str, Any] | None:
    """Whether confidence can be trusted, before and after pruning."""
    if not story.classifies or not story.split:
        return None
    return {"svg": pictures.calibration(story)}


def uncertainty(story: Story) -> dict[str, Any] | None:
    """Whether the mixture knows when it errs: by its confidence, and by what its members disagree about."""
    if not story.classifies or not story.split or not any(_is_mixed(voice.pruned) for voice in story.voices):
        return None
    risk, disagreement = pictures.risk(story), pictures.disagreement(story)
    if risk is None and disagreement is None:
        return None
    return {
        "risk": risk and {"svg": risk[0], "areas": risk[1]},
        "disagreement": disagreement and _disagreement(*disagreement),
        "members": story.members,
    }


def _is_mixed(mixture: Ensemble | None) -> bool:
    """Whether more than one member has a say."""
    return mixture is not None and int((mixture.weights > 0).sum()) > 1


def _disagreement(svg: Markup, auroc: float | None) -> dict[str, Any]:
    return {"svg": svg, "told_apart": auroc is not None, "misleads": auroc is not None and auroc <= 0.5}


def maps(story: Story) -> dict[str, Any] | None:
    """What networks say about every point of a plane."""
    if story.task.input_shape != (2,):
        return None
    svg = pictures.functions(story)
    return {
        "svg": svg,
        "seeds": story.several,
        "classifies": story.classifies,
        "alone": not story.is_mixed,
        "depth": story.is_depth,
    }


def gallery(story: Story) -> dict[str, Any] | None:
    """The images that are hardest to tell."""
    shape = story.task.input_shape
    if not story.classifies or not story.split or len(shape) != 3 or shape[0] not in (1, 3):
        return None
    return {"cards": pictures.gallery(story)}


def cost(story: Story) -> dict[str, Any] | None:
    """What the selected network costs beside the largest."""
    if not story.is_cut:
        return None
    rows = []
    for name, place, key, show in (
        ("parameters", "cost", "parameters", words.whole),
        ("multiply-accumulates", "cost", "macs", words.whole),
        ("forward pass", "forward_seconds", "", words.milliseconds),
    ):
        pairs = [(result[place]["selected"], result[place]["largest"]) for result in story.results]
        small, large = zip(*[(a[key], b[key]) if key else (a, b) for a, b in pairs], strict=True)
        share = words.mean([a / b if b else 1.0 for a, b in zip(small, large, strict=True)])
        rows.append(
            {
                "name": name,
                "selected": show(words.mean(small)),
                "largest": show(words.mean(large)),
                "width": f"{100 * min(share, 1):.1f}",
                "saved": f"{words.about_percent(1 - share)} saved" if share < 0.9995 else "nothing saved",
            }
        )
    examples = min(512, len(story.task.train))
    return {"rows": rows, "examples": words.whole(examples), "mean": story.several}


def made(story: Story) -> dict[str, Any]:
    """Settings, and how to repeat, resume and use the run."""
    config, source = story.run.config, story.run.config.data["source"]
    again = story.folder.with_name(story.folder.name + "-again")
    data: dict[str, Any] = {"name": config.data["name"], "input": " × ".join(map(str, config.data["input"]))}
    data |= {f"{words.SPLITS[name]} examples": words.whole(n) for name, n in config.data["examples"].items()}
    data |= {"likelihood" if k == "kind" else k: value for k, value in config.data["likelihood"].items()}
    data |= {"fingerprint": config.data["fingerprint"][:12]}
    data |= source["settings"] if source else {"source": "memory"}
    general = {
        "prior": config.prior if isinstance(config.prior, str) else "given as a distribution",
        "selection rule": config.select,
        "seeds" if story.several else "seed": words.ranges([run.seed for run in story.runs]),
        "kept epoch": words.ranges(sorted({c.kept for c in story.courses})),
        **_stages(story),
        "examples passed forward": words.whole(story.results[0]["budget"]["forward"]),
        "examples passed backward": words.whole(story.results[0]["budget"]["backward"]),
        "device": config.device,
        **config.versions,
    }
    return {
        "tables": [
            ("Run", general),
            ("Data", data),
            (f"Space: {config.space['name']}", config.space["settings"]),
            (f"Method: {config.method['name']}", config.method["settings"]),
        ],
        "command": words.search_command(story.run, again, len(story.runs), _trained_along(story)),
        "call": words.search_call(story.run, again, len(story.runs)),
        "resume": resume_command(story.folder),
        "python": _python(story),
        "baselines": [str(run.folder) for run in story.baselines],
    }


def _stages(story: Story) -> dict[str, str]:
    """How many epochs each stage took, where there are several."""
    first = story.courses[0]
    ends = [*first.stages[1:], round(first.epochs[-1])]
    lengths = [str(end - start) for start, end in zip(first.stages, ends, strict=True)]
    return {"epochs of its stages": " + ".join(lengths)} if len(lengths) > 1 else {}


def _trained_along(story: Story) -> list[int]:
    """Depths of the baselines that `search --baselines` trains beneath a run."""
    home = story.folder / "baselines"
    return [g.depth for g in story.groups if g.depth is not None and home in g.runs[0].folder.parents]


def _python(story: Story) -> str:
    lines = [("import polyarch as pa", ""), (f"run = pa.open_run({str(story.run.folder)!r})", "")]
    if not story.is_point:
        lines.append((f"run.distribution.probs()[{evidence.simplices(story.run)[0].name!r}]", "belief"))
    lines.append(("model = run.model()", "the selected network: a plain nn.Module on raw inputs"))
    if any(voice.pruned for voice in story.voices):
        lines.append(("ensemble = run.ensemble()", "the mixture; ensemble.output(x) predicts"))
        if story.classifies:
            lines.append(("ensemble(x).mutual_information", "where its members disagree"))
    wide = max(len(code) for code, about in lines if about)
    return "\n".join(f"{code:{wide}}  # {about}" if about else code for code, about in lines)
