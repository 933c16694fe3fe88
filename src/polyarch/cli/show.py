"""`polyarch show`: what a run found."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.metrics import print_metrics
from polyarch.cli.options import Json, RunFolder
from polyarch.cli.show_many import show_many

if TYPE_CHECKING:
    from polyarch.runs.run import Run

ROWS = (
    ("_trained", "selected network"),
    ("", "selected network"),
    ("_ensemble", "mixture"),
    ("_unpruned", "mixture, unpruned"),
    ("_tempered", "mixture, after temperature"),
)
"""Metrics by how their name ends."""
SHARED = {"": "selected network, shared weights", "_ensemble": "mixture, shared weights"}
"""The same where networks share their weights with others."""
LAG = 0.005
"""Nats from which on a distance is told."""


def show(
    run: RunFolder,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Also draw the architecture and belief into this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What a run found: the architecture, belief, and how good the network is; of a folder of runs, how far each is."""
    from polyarch.errors import PolyarchError
    from polyarch.runs.folders import holds_many
    from polyarch.runs.run import open_repeats

    if holds_many(run):
        if svg:
            raise PolyarchError(f"--svg draws one run, and {run} holds many; name one of them")
        show_many(run, as_json)
        return
    runs = open_repeats(run, allow_changed=True)  # what was found stays what it was
    if svg:
        _draw(svg, runs)
    show_runs(run, runs, as_json)


def _draw(path: Path, runs: list[Run]) -> None:
    from dataclasses import replace

    from polyarch.files import write_whole
    from polyarch.report import beliefs
    from polyarch.report.graph_svg import draw_all

    found = [
        replace(graph, title=f"{graph.title}, seed {run.seed}" if len(runs) > 1 else graph.title)
        for run in runs
        for graph in beliefs.graphs([run])
    ]
    write_whole(path, draw_all(found).encode())


def show_runs(folder: Path, runs: list[Run], as_json: bool) -> None:
    """Prints the result of one run, or of every repeat with their mean and spread and which of them is the best."""
    from dataclasses import asdict

    from polyarch.ranking import read_trust
    from polyarch.runs.agreement import agreement_of
    from polyarch.runs.plain import read_plain
    from polyarch.runs.run import best_repeat

    found = [run.result for run in runs]
    best = best_repeat(folder, allow_changed=True) if len(found) > 1 else None
    agreement = agreement_of(runs)
    if as_json:
        several: dict[str, Any] = {"run": str(folder), "runs": found, "best": best}
        several |= {"agreement": asdict(agreement)} if agreement else {}
        print(json.dumps(several | {"summary": summary(found)} if len(found) > 1 else found[0]))
        return
    trusts = [read_trust(run.folder) for run in runs]
    plains = [read_plain(run.folder) for run in runs]
    metrics = found[0]["metrics"]
    by = "on validation data" if "select" in metrics else "by the training objective"
    for run, result, trust, plain in zip(runs, found, trusts, plains, strict=True):
        mark = f", the best of {len(found)} {by}" if result["seed"] == best else ""
        print(
            f"{result['architecture']} of space {result['space']} for {result['data']} by {result['method']}, "
            f"seed {result['seed']}{mark}:\n  {_size(result)}"
        )
        for line in _limits(result):
            print(f"  {line}")
        if run.shares_weights:
            print(f"  {_training(folder, run)}")
        if "truth" in result:
            print(f"  {_truth(result['truth'])}")
        if plain and plain.verdict:
            print(f"  {' '.join(plain.sentences())}")
        if trust:
            print(f"  trust, {trust.headline()}")
    print(f"\nbelief: {_belief(found)}")
    if agreement:
        print(f"seeds: {agreement.sentence(runs[0].space.nested)}")
    split, where = "test", "on test data"
    if "test" not in metrics:
        split, where = "select", "on validation data, optimistic"  # it stopped the search
    told = dict(ROWS) | (SHARED if runs[0].shares_weights else {})
    if all(result.get("temperature", 1.0) in (None, 1.0) for result in found):
        told.pop("_tempered", None)  # the mixture as it is
    endings = {ending: told[ending] for ending in told if all(f"{split}{ending}" in r["metrics"] for r in found)}
    rows = {label: [r["metrics"][f"{split}{ending}"] for r in found] for ending, label in endings.items()}
    if f"{split}_unpruned" in metrics:
        rows = {"mixture, pruned" if label == "mixture" else label: figures for label, figures in rows.items()}
    if plains[0]:  # those of all repeats are the same
        rows |= {model.title: [model.metrics[split]] for model in plains[0].models if split in model.metrics}
    for baseline in baselines(folder):
        results = [run.result for run in baseline]
        if split in results[0]["metrics"]:
            rows[f"fixed {results[0]['architecture']}"] = [r["metrics"][split] for r in results]
    if rows:
        print()
        print_metrics(where, rows)
    if plains[0] and plains[0].lacks:
        print(plains[0].lacks)


def _belief(found: list[dict[str, Any]]) -> str:
    """Whether it is flat or what it rules out, how far it moved and lags, and what it means: a line each."""
    from polyarch.distributions.flatness import flat_in_words

    beliefs = [result["distribution"] for result in found]
    moved = [belief["kl"] for belief in beliefs if "kl" in belief]
    known = [result["evidence"] for result in found if "evidence" in result]
    lines = []
    if known and not any(own["ruled_out"] for own in known):
        lines.append(f"it is flat: it rules out none of {known[0]['options']} options")
    elif known:
        out = _short([own["ruled_out"] for own in known])
        mass = _short([100 * own["ruled_out_prior_mass"] for own in known])
        lines.append(f"it rules out {out} of {known[0]['options']} options, which had {mass} % of the prior")
    elif moved and (flat := flat_in_words([belief["probs"] for belief in beliefs])):
        lines.append(f"it is {flat}")
    if moved:
        lines.append(f"the search moved it by {_short(moved)} nats, KL(belief || prior)")
    for split, name in {"select": "validation", "train": "training"}.items():
        lags = [own["lag"][split] for own in known if split in own["lag"]]
        if any(lag >= LAG for lag in lags):  # by the data that it goes by it has none
            lines.append(f"it is {_short(lags)} nats from the exact posterior of these weights by {name} data")
    return "\n  ".join([beliefs[0]["meaning"], *lines])


def _short(values: list[float]) -> str:
    """A number in three digits, or for several its mean ± standard deviation."""
    mean = f"{round(statistics.fmean(values), 4):.3g}"  # what rounding leaves of 0 is 0
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2g}"


def _training(folder: Path, run: Run) -> str:
    """Whose weights the selected network has."""
    from polyarch.runs.run import resume_command

    if run.trained is not None:
        return f"trained alone, in {run.trained.folder}"
    return f"under shared weights; `{resume_command(folder)}` trains it alone"


def _truth(truth: dict[str, Any]) -> str:
    """What the table has for the selected architecture, beside the plain baselines."""
    parts = ["not in the table" if truth["selected"] is None else f"{truth['selected']:.5g}"]
    if truth["random"] is not None:
        parts.append(f"random architectures {truth['random']['mean']:.5g} ± {truth['random']['std']:.3g}")
    if truth["best"] is not None:
        parts.append(f"the best {truth['best']:.5g}")
    return f"{'predicted' if truth.get('predicted') else 'true'} {truth['column']}: {'; '.join(parts)}"


def _limits(result: dict[str, Any]) -> list[str]:
    """What was limited, and what the selected network has of it; what cost was worth while searching."""
    from polyarch.spaces.limits import in_words

    lines = [in_words(limit, cost) for limit, cost in result.get("limits", {}).items()]
    return lines + ([f"price while searching: {result['price']}, nats per example"] if "price" in result else [])


def _size(result: dict[str, Any]) -> str:
    cost = result["cost"]
    if "largest" not in cost:
        return f"{cost['selected']['parameters']:,} parameters, {cost['selected']['macs']:,} multiply-accumulates"
    if cost["selected"]["parameters"] == cost["largest"]["parameters"]:
        return f"all of {cost['largest']['parameters']:,} parameters kept"
    saving = {name: max(share, 0.0) for name, share in result["forward_saving"].items()}
    return (
        f"{cost['selected']['parameters']:,} of {cost['largest']['parameters']:,} parameters kept; forward time saved: "
        f"{saving['selected']:.0%} by the network alone, {saving['ensemble']:.0%} by the mixture"
    )


def baselines(folder: Path) -> list[list[Run]]:
    """The finished runs of one option beneath a run, the repeats of each together, first options first."""
    from polyarch.runs.run import RESULT, open_repeats

    found = [
        open_repeats(path, allow_changed=True) for path in (folder / "baselines").glob("*") if (path / RESULT).exists()
    ]
    return sorted(found, key=lambda runs: runs[0].architecture.choices)


def summary(found: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean and standard deviation over repeats of every figure that all of them have."""
    return {
        key: {
            name: {
                "mean": statistics.fmean(r["metrics"][key][name] for r in found),
                "std": statistics.stdev(r["metrics"][key][name] for r in found),
            }
            for name in figures
        }
        for key, figures in found[0]["metrics"].items()
        if all(key in r["metrics"] for r in found)
    }
