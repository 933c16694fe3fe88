"""`polyarch evaluate`: how good a finished run is, on its test data or on other data, and how well it knows that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.metrics import counted, print_metrics, print_table
from polyarch.cli.options import AllowChanged, Json, RunFolder

if TYPE_CHECKING:
    from torch import Tensor

    from polyarch.data.task import Split
    from polyarch.runs.run import Run
    from polyarch.uncertainty.classes import Confusion
    from polyarch.uncertainty.predictive import Predictive

ATTACKS = ("pgd",)
FIGURES = (".png", ".svg")
WIDE = 30
"""A longer title would leave no room for the figures."""
UNCERTAINTY = {"entropy": "entropy", "expected_entropy": "expected", "mutual_information": "mutual inf."}
TOLD_BY = {
    "mutual_information": "mutual information",
    "entropy": "entropy",
    "confidence": "one minus top probability",
}


def evaluate(
    run: RunFolder,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Judge on this labelled data (its test split, or all of it) instead."),
    ] = None,
    select: Annotated[str, typer.Option("--select", help="Another selection rule: argmax, 95%, expectation.")] = "",
    members: Annotated[
        int | None, typer.Option("--members", metavar="T", help="So many architectures in the mixture; 20 unless told.")
    ] = None,
    ood: Annotated[
        str | None,
        typer.Option("--ood", metavar="DATA", help="Also: are inputs of this other kind noticed? A name or a path."),
    ] = None,
    attack: Annotated[
        str | None, typer.Option("--attack", help="Also: attack the mixture's inputs, which must be images: pgd.")
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", help="The most that a pixel may change, as a share of its range.")
    ] = "2/255",
    steps: Annotated[int, typer.Option("--steps", help="Steps of the attack.")] = 3,
    step_size: Annotated[str, typer.Option("--step-size", help="How far one goes, as a share of the range.")] = "1/255",
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of drawn members and of where an attack starts; else the run's.")
    ] = None,
    classes: Annotated[
        bool, typer.Option("--classes", help="Also: precision, recall and F1 of every class, and what is confused.")
    ] = False,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure", metavar="FILE", help="Draw calibration, risk and mutual information: a .png or .svg file."
        ),
    ] = None,
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Accuracy, log-likelihood, calibration and uncertainty of the selected network and the mixtures."""
    from polyarch.errors import PolyarchError, unknown
    from polyarch.runs.results import Networks, metrics_of, predictive_under
    from polyarch.runs.run import open_run
    from polyarch.uncertainty.detection import detection
    from polyarch.uncertainty.ensemble import predictive

    if attack is not None and attack not in ATTACKS:
        raise unknown("attack", attack, ATTACKS)
    if figure is not None:
        _check_figure(figure)
    strength = {"budget": _share("--budget", budget), "steps": steps, "step_size": _share("--step-size", step_size)}
    opened = open_run(run, allow_changed=allow_changed)
    architecture = opened.selected(select) if select else opened.architecture
    split = opened.task(sample=True).test if data is None else opened.other_data(data)
    if split is None:
        raise PolyarchError("this run has no test data; name some with --data")
    for_classes = {"--ood": ood, "--attack": attack, "--classes": classes or None, "--figure": figure}
    classifies = _classifies(opened, for_classes)
    outside = None if ood is None else opened.other_inputs(ood)
    attacker = None if attack is None else _attacker(opened, split, strength, opened.seed if seed is None else seed)
    ensemble = opened.ensemble(architecture, members=members, seed=seed)
    found: dict[str, Any] = {"run": str(run), "architecture": str(architecture), "members": len(ensemble.weights)}
    networks = Networks.of(opened, architecture, ensemble)
    trained = opened.trained if architecture == opened.architecture else None
    alone = None if trained is None else Networks.of(trained, trained.architecture)
    if not classifies:
        first = {} if alone is None else {"trained": alone.evaluate(split)["selected"]}
        _say(found | {"metrics": first | networks.evaluate(split)}, len(split), opened.shares_weights, as_json)
        return
    answers, others = networks.ask(split.x), {}
    is_own = architecture == opened.architecture and members is None and seed in (None, opened.seed)
    if is_own:  # to other mixtures the run's temperature was not fitted
        found["temperature"] = opened.temperature
    found["metrics"] = answers.metrics(split.y, found.get("temperature"))
    confusions = answers.confusions(split.y)
    if alone is not None:
        own = alone.ask(split.x)
        found["metrics"] = {"trained": own.metrics(split.y)["selected"]} | found["metrics"]
        confusions = {"trained": own.confusions(split.y)["selected"]} | confusions
    names = opened.config.data["classes"]
    found["per_class"] = {name: confusion.by_class(names) for name, confusion in confusions.items()}
    if ood is not None and outside is not None:
        others[Path(ood).name or ood] = said = predictive(ensemble, outside, opened.device)
        found["ood"] = {"data": ood, "examples": len(outside), **detection(answers.mixture, said)}
    if attacker is not None:
        others[f"under {attack}"] = said = predictive_under(attacker, ensemble, split, opened.device)
        found["attack"] = {"name": attack, **strength, **metrics_of(said, split.y), **detection(answers.mixture, said)}
    if figure is not None:
        several = int((ensemble.weights > 0).sum()) > 1
        _draw(figure, answers.selected, answers.mixture if several else None, split, others)
    _say(found, len(split), opened.shares_weights, as_json)
    if classes and not as_json:
        shown = ["trained" if alone else "selected", *(["ensemble"] if found["members"] > 1 else [])]
        for name in shown:
            _print_classes(_row(name, found, opened.shares_weights), found["per_class"][name], confusions[name], names)


def _share(option: str, text: str) -> float:
    """A share of the range of pixels, from "2/255" or "0.01"."""
    from fractions import Fraction

    from polyarch.errors import PolyarchError

    try:
        share = float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        share = 0.0
    if not 0 < share <= 1:
        raise PolyarchError(f"{option} is {text!r}; give a share of the range of pixels, such as 2/255 or 0.01")
    return share


def _check_figure(file: Path) -> None:
    """Before anything is computed."""
    from polyarch.errors import PolyarchError

    if file.suffix not in FIGURES:
        raise PolyarchError(f"--figure is {str(file)!r}; end its name in {' or '.join(FIGURES)}")
    if not file.parent.is_dir():
        raise PolyarchError(f"--figure is {str(file)!r}, and there is no folder {file.parent}; make it first")


def _classifies(run: Run, given: Mapping[str, object]) -> bool:
    """Whether a run predicts classes; options that are for those alone are refused elsewhere."""
    from polyarch.errors import PolyarchError

    asked = [option for option, value in given.items() if value is not None]
    if asked and not run.classifies:
        raise PolyarchError(f"{asked[0]} is for classification, and this run predicts {run.predicts}; leave it out")
    return run.classifies


def _attacker(run: Run, split: Split, strength: dict[str, Any], seed: int) -> Callable[..., Tensor]:
    """The attack with its settings; refused where the inputs are no images in a known range."""
    from functools import partial

    from polyarch.streams import Streams
    from polyarch.uncertainty.attack import image_range, pgd

    low, high = image_range(split.x, run.highest_byte)
    return partial(pgd, **strength, generator=Streams(seed)["noise"], low=low, high=high)


def _draw(
    file: Path, selected: Predictive, mixture: Predictive | None, split: Split, others: Mapping[str, Predictive]
) -> None:
    from polyarch.files import write_whole
    from polyarch.report.uncertainty_figures import draw_evaluation

    write_whole(file, draw_evaluation(selected, mixture, split.y, others, file.suffix[1:]))


def _say(found: Mapping[str, Any], examples: int, shares_weights: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
    else:
        _print(found, examples, shares_weights)


def _print(found: Mapping[str, Any], examples: int, shares_weights: bool) -> None:
    metrics, title = found["metrics"], f"{found['architecture']}, {examples} examples"
    if len(title) > WIDE:
        print(found["architecture"])
        title = f"{examples} examples"
    if found.get("temperature") == 1:
        metrics = {name: figures for name, figures in metrics.items() if name != "tempered"}
    metrics = {_row(name, found, shares_weights): figures for name, figures in metrics.items()}
    print_metrics(title, {row: [figures] for row, figures in metrics.items()})
    if all("aurc" in figures for figures in metrics.values()):
        print()
        rows = {row: [figures["aurc"]] for row, figures in metrics.items()}
        _table("answering where it is surest", ["AURC"], rows)
    if all("coverage_90" in figures for figures in metrics.values()):
        _print_intervals(metrics)
    mixtures = {row: figures for row, figures in metrics.items() if "mutual_information" in figures}
    if mixtures:
        print()
        rows = {row: [figures[name] for name in UNCERTAINTY] for row, figures in mixtures.items()}
        _table(f"means in nats, {counted(found['members'], 'member')}", list(UNCERTAINTY.values()), rows)
    if "ood" in found:
        print()
        _table_of_detection(f"{found['ood']['data']} ({found['ood']['examples']}) noticed by", found["ood"])
    if "attack" in found:
        attack = found["attack"]
        print(
            f"\nunder {attack['name']} (budget {attack['budget']:.4g}, {counted(attack['steps'], 'step')} of "
            f"{attack['step_size']:.4g}): accuracy {attack['accuracy']:.4f}"
        )
        _table_of_detection("attacked inputs noticed by", attack)


def _row(name: str, found: Mapping[str, Any], shares_weights: bool) -> str:
    """What `show` calls it, and by which temperature it is."""
    pruned = "mixture, pruned" if "unpruned" in found["metrics"] else "mixture"
    known = {"selected": "selected network", "ensemble": pruned, "unpruned": "mixture, unpruned"}
    if name == "tempered":
        return f"mixture, temperature {found['temperature']:.3g}"
    if name == "trained":
        return known["selected"]
    return f"{known[name]}, shared weights" if shares_weights else known[name]


def _print_classes(title: str, rows: Sequence[Mapping[str, Any]], confusion: Confusion, names: Sequence[str]) -> None:
    """Figures of every class, and which were confused most."""
    columns = {"precision": "precision", "recall": "recall", "f1": "F1"}
    lines = []
    for row in rows:
        label = row["class"] if len(row["class"]) <= WIDE else f"{row['class'][: WIDE - 1]}…"
        figures = ["–" if row[name] is None else f"{row[name]:.4f}" for name in columns]
        lines.append((label, [str(row["examples"]), *figures]))
    print()
    print_table(title, ["examples", *columns.values()], lines)
    for sentence in confusion.in_words(names):
        print(f"confused: {sentence}")


def _print_intervals(metrics: Mapping[str, Mapping[str, float]]) -> None:
    from polyarch.uncertainty.calibration import COVERAGES

    names = [f"{round(100 * coverage)}" for coverage in COVERAGES]
    for title, kind in (("share of targets within", "coverage"), ("mean width of intervals", "width")):
        print()
        rows = {row: [figures[f"{kind}_{name}"] for name in names] for row, figures in metrics.items()}
        _table(title, [f"{name} %" for name in names], rows)


def _table_of_detection(title: str, told: Mapping[str, Any]) -> None:
    rows = {label: [told[name]["auroc"], told[name]["fpr95"]] for name, label in TOLD_BY.items()}
    _table(title, ["AUROC", "FPR95"], rows)


def _table(title: str, columns: list[str], rows: Mapping[str, list[float]]) -> None:
    print_table(title, columns, [(label, [f"{value:.4f}" for value in values]) for label, values in rows.items()])
