"""BaLeNAS (seed 004): what N and the precisions do to belief, and what its training-free read-out is worth.

    python -m reproduce.balenas --quick                               # a minute: few cases, one epoch
    python -m reproduce.balenas --full --table nasbench201            # ten minutes on two cores: digits, C=8, N=1
    python -m reproduce.balenas --full --data cifar10 --images FOLDER --device cuda --table nasbench201 \
        --channels 16 --cells 5 --epochs 50 --hasten 1 --augment      # as the paper; --only CASES takes some of it
    python -m reproduce.balenas --report                              # what was found, as Markdown

Every case is a search with a few seeds as one batch. Of each: the deviation of alpha over time, entropies, the
discretisation gap (Eq. 2), the mode's validation accuracy with shared weights, and the trace of the Hessian of the
validation loss in alpha. Of some also: what sample-and-score picks from belief, from a uniform draw and from belief
before the search, by SynFlow and by parameter count; and Eq. 19, its trace against the loss that noise really adds.

A short search is hastened: belief's rate and the share by which it learns its curvature are multiplied, so that the
mean can go as far as in 50 epochs on CIFAR-10 (19,500 steps). `--table` adds what a table of ground truth knows of the
cells. Writes docs/results/balenas/NAME.json (rows, the command, seeds, machine).
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from polyarch.methods.sharing import collapse, loss
from polyarch.training.judging import judged
from torch import Tensor, nn

import polyarch as pa
from polyarch.architecture import Architecture
from polyarch.core import Problem
from polyarch.data.task import Split
from polyarch.distributions import GaussianLogits, uniform
from polyarch.distributions.base import Distribution
from polyarch.methods.bilevel import by_simplex
from polyarch.scores.base import Candidate
from polyarch.scores.synflow import SynFlow
from polyarch.spaces.base import Space
from polyarch.spaces.cost import CostTable
from polyarch.spaces.views import Sparse
from polyarch.streams import Streams
from polyarch.tables import Table, open_table
from polyarch.training.curvature import hessian
from reproduce.depth import machine
from reproduce.depth_tables import told
from reproduce.training_speed_tables import table as markdown_table

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "balenas"
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One search of the sweep."""

    name: str
    settings: dict[str, Any]
    """Of `Balenas`, where they are not its defaults."""
    hastened: bool = True
    looked_at: bool = False
    """Whether sample-and-score and Eq. 19 are measured too."""
    darts: bool = False
    """DARTS without weight decay on alpha in its place: where N leads to as it grows."""


CASES = (
    Case("N of the validation data", {"data_size": 0}, looked_at=True),
    Case("N = 25,000", {"data_size": 25_000}, looked_at=True),
    Case("N = 1e6", {"data_size": 1_000_000}, looked_at=True),
    Case("N = 1e8", {"data_size": 100_000_000}, looked_at=True),
    Case("DARTS", {"belief_decay": 0.0}, darts=True),
    Case("delta 0.01", {"data_size": 0, "prior_precision": 0.01}),
    Case("delta 100", {"data_size": 0, "prior_precision": 100.0, "initial_precision": 100.0}),
    Case("first precision 100", {"data_size": 0, "initial_precision": 100.0}),
    Case("vadam", {"data_size": 0}, hastened=False),
    Case("printed", {"data_size": 0, "update": "printed"}, hastened=False),
    Case("bayes-by-backprop", {"data_size": 0, "update": "bayes-by-backprop"}, hastened=False),
    Case("von", {"data_size": 0, "update": "von"}, hastened=False),
    Case("vprop", {"data_size": 0, "update": "vprop"}, hastened=False),
)
QUICK = ("N of the validation data", "N = 1e6", "DARTS")


@dataclass(frozen=True)
class Effort:
    """On what is run, and how much."""

    task: pa.data.Task
    space: pa.spaces.NasBench201
    table: Table | None
    column: str
    device: str
    epochs: int
    seeds: int
    hasten: float
    draws: int
    """M, the architectures that sample-and-score draws."""
    trials: int
    """How often it draws them."""
    pairs: int
    """Draws of noise for Eq. 19, and as many of its opposite."""
    augment: bool
    checks: bool
    """Whether sample-and-score and Eq. 19 are measured, where a case asks for it."""

    def truth(self, architectures: Sequence[Architecture]) -> list[float] | None:
        """What the table knows of architectures."""
        if self.table is None:
            return None
        choices = torch.tensor([architecture.choices for architecture in architectures])
        found: list[float] = self.table.values(self.column, self.space, choices).tolist()
        return found


def method_of(case: Case, effort: Effort) -> pa.methods.Balenas | pa.methods.Darts:
    """A case's method; its last evaluations are at the quarters of the search."""
    common: dict[str, Any] = {"epochs": effort.epochs, "evaluate_every": max(1, effort.epochs // 4)}
    if effort.augment:
        common |= {"crop": 4, "flip": True}
    factor = effort.hasten if case.hastened else 1.0
    common["belief_rate"] = 3e-4 * factor
    if case.darts:
        return pa.methods.Darts(**common, **case.settings)
    return pa.methods.Balenas(**common, **case.settings, arch={"beta2": 1 - 0.001 * factor})


def searched(case: Case, effort: Effort, folder: Path) -> list[pa.Run]:
    """All seeds of a case, as one batch."""
    runs = pa.search(
        effort.space,
        effort.task,
        method_of(case, effort),
        out=folder,
        repeats=effort.seeds,
        compute=pa.Compute(effort.device),
    )
    return runs if isinstance(runs, list) else [runs]


def problem_of(run: pa.Run, effort: Effort) -> Problem:
    """The weights of a run, on its device, and validation data to judge by."""
    valid, device = effort.task.select, run.device
    assert valid is not None
    data = Split(effort.task.standardise(valid.x).to(device), valid.y.to(device))
    supernet = run.supernet().to(device)
    return Problem(run.space, supernet, effort.task.likelihood, uniform(run.space.decisions), {"select": data})


# ---------------------------------------------------------------------------------------------------------------------
# What a search found.


def entropies(probs: Sequence[Tensor]) -> list[float]:
    """In nats, one an edge."""
    return [round(torch.special.entr(p.double()).sum().item(), 4) for p in probs]


def summary(case: Case, run: pa.Run, effort: Effort, curvature: Tensor) -> Row:
    """One seed's search in numbers."""
    belief, lines = run.distribution, run.history()
    settings = method_of(case, effort).settings()
    last = lines[-1]["select"]
    row = {
        "case": case.name,
        "seed": run.seed,
        "settings": {name: settings[name] for name in (*case.settings, "belief_rate")},
        "drawn_entropy": entropies(list(belief.probs().values())),
        "mixture_entropy": entropies(belief.mean_weights()),
        "gap": last["supernet_log_likelihood"] - last["log_likelihood"],
        "mode_accuracy": last["accuracy"],
        "supernet_accuracy": last["supernet_accuracy"],
        "mode": str(run.architecture),
        "skip_share": collapse(run.space, run.architecture)["skip_share"],
        "trace": curvature.diagonal().sum().item(),
        "eigenvalue": torch.linalg.eigvalsh(curvature)[-1].item(),
        "truth": effort.truth([run.architecture]),
    }
    if isinstance(belief, GaussianLogits):
        row["sigma"] = [settings["initial_precision"] ** -0.5, *(line["select"]["sigma"] for line in lines)]
        row["mean_spread"] = belief.mean.std(-1).mean().item()
        examples = settings["data_size"] or len(effort.task.select or ())
        curvatures = (run.belief["precision"] - settings["prior_precision"]) / examples
        row["slope"] = curvatures.mean().clamp_min(0).sqrt().item()
    else:
        row["mean_spread"] = torch.stack(belief.mean_weights()).log().std(-1).mean().item()
    return row


def loss_at(problem: Problem, examples: int = 128) -> Callable[[Tensor], Tensor]:
    """The loss of one validation batch as a function of alpha [1, edges, operations], with batch norm as in a step."""
    problem.supernet.train()
    batch = next(problem.passes("select", examples))
    return lambda alpha: loss(problem, batch, by_simplex(problem.space, alpha.softmax(-1)))


def centre_of(belief: Distribution, device: torch.device) -> Tensor:
    """Alpha at which a search mixes, [1, edges, operations]; up to a constant an edge, which softmax does not see."""
    mean = belief.mean if isinstance(belief, GaussianLogits) else torch.stack(belief.mean_weights()).log()
    return mean.detach().to(device).unsqueeze(0)


# ---------------------------------------------------------------------------------------------------------------------
# Eq. 19: E[L(mean + noise)] is about L(mean) + sum_i sigma_i^2 H_ii / 2.

SHARES = (1.0, 0.3, 0.1, 0.03)
"""Of the learnt deviation: where the expansion ends to hold can so be seen."""


class Smooth(nn.Module):
    """A ReLU with its corner rounded off."""

    def forward(self, x: Tensor) -> Tensor:
        """Softplus, four times as sharp as usual."""
        return F.softplus(4 * x) / 4


def in_double(problem: Problem, *, smooth: bool) -> Problem:
    """The same weights in double precision, since small noise adds little; if asked, with smooth activations.

    Second derivatives do not see the corners of a ReLU, but noise does.
    """
    supernet = copy.deepcopy(problem.supernet).double()
    for path, module in list(supernet.named_modules(remove_duplicate=False)):
        if smooth and isinstance(module, nn.ReLU):
            supernet.set_submodule(path, Smooth())
    data = {name: Split(split.x.double(), split.y) for name, split in problem.data.items()}
    return replace(problem, supernet=supernet, data=data)


@torch.no_grad()
def expansions(
    at: Callable[[Tensor], Tensor], mean: Tensor, deviation: Tensor, curvature: Tensor, pairs: int, seed: int
) -> Iterator[Row]:
    """What noise adds to a loss, measured and as Eq. 19 predicts it.

    Args:
        at: the loss [1] of alpha [1, edges, operations].
        mean: where, [1, edges, operations].
        deviation: of alpha, [edges, operations].
        curvature: the Hessian of the loss there, [n, n].
        pairs: draws of noise; each is taken with its opposite, which cancels odd terms.
        seed: of the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    middle = at(mean).item()
    for share in SHARES:
        beyond = []
        for _ in range(pairs):
            noise = share * deviation * torch.randn(mean.shape, generator=generator).to(mean)
            quadratic = (noise.flatten() @ curvature @ noise.flatten()).item() / 2
            # On average the quadratic term is what is predicted; its own chance is taken out, that of the rest stays.
            beyond.append((at(mean + noise).item() + at(mean - noise).item()) / 2 - middle - quadratic)
        values = torch.tensor(beyond, dtype=torch.float64)
        predicted = ((share * deviation).square().flatten() * curvature.diagonal()).sum().item() / 2
        yield {
            "share": share,
            "sigma": (share * deviation).mean().item(),
            "measured": predicted + values.mean().item(),
            "error": (values.std() / pairs**0.5).item(),
            "predicted": predicted,
        }


# ---------------------------------------------------------------------------------------------------------------------
# Sample and score: from belief, from a uniform draw, and from belief as it was before the search.


def sources(run: pa.Run) -> dict[str, Distribution]:
    """What may be drawn from."""
    decisions, belief = run.space.decisions, run.distribution
    assert isinstance(belief, GaussianLogits)
    first = 1e-3 * torch.randn(belief.mean.shape, generator=Streams(run.seed)["architecture"])
    return {
        "belief": belief,
        "uniform": uniform(decisions),
        "belief before": GaussianLogits(decisions, first, torch.ones_like(first)),
    }


def picks(run: pa.Run, problem: Problem, effort: Effort, flows: dict[str, float]) -> Iterator[Row]:
    """What each score picks of M drawn cells, and beside it their mean; `flows` keeps SynFlow by text."""
    space, shape = run.space, effort.task.shape
    costs = space.cost_table(shape)
    for source, belief in sources(run).items():
        for trial in range(effort.trials):
            generator = torch.Generator().manual_seed(1000 * run.seed + trial)
            drawn = space.decode(belief.sample(effort.draws, generator))
            new = {cell.text: Candidate(cell, space, shape) for cell in drawn if cell.text not in flows}
            flows |= dict(zip(new, SynFlow()(list(new.values()), generator).tolist(), strict=True)) if new else {}
            sizes = [parameters(costs, space, cell) for cell in drawn]
            by_score: dict[str, Sequence[float]] = {
                "synflow": [flows[cell.text] for cell in drawn],
                "parameters": sizes,
            }
            truth = effort.truth(drawn)
            common = {"seed": run.seed, "source": source, "trial": trial}
            if truth:
                yield common | {"score": "none: mean of the draws", "truth": mean_of(truth)}
            for score, values in by_score.items():
                best = max(range(len(drawn)), key=values.__getitem__)
                yield common | {
                    "score": score,
                    "architecture": str(drawn[best]),
                    "synflow": flows[drawn[best].text],
                    "parameters": sizes[best],
                    "shared_accuracy": judged(problem, Sparse(drawn[best].choices), "select")["accuracy"].item(),
                    "truth": truth[best] if truth else None,
                }


def parameters(costs: CostTable, space: Space, cell: Architecture) -> int:
    """Of the network to train."""
    added = (costs.options[d.name][choice].parameters for d, choice in zip(space.decisions, cell.choices, strict=True))
    return costs.base.parameters + sum(added)


# ---------------------------------------------------------------------------------------------------------------------


def examined(case: Case, effort: Effort, flows: dict[str, float]) -> dict[str, list[Row]]:
    """One case: its searches, and of some cases all that is measured afterwards."""
    found: dict[str, list[Row]] = {"searches": [], "expansions": [], "picks": []}
    with tempfile.TemporaryDirectory() as folder:
        for run in searched(case, effort, Path(folder) / "run"):
            problem, mean = problem_of(run, effort), centre_of(run.distribution, run.device)
            found["searches"].append(summary(case, run, effort, hessian(loss_at(problem), mean)[0]))
            if not (case.looked_at and effort.checks):
                continue
            label, belief = {"case": case.name, "seed": run.seed}, run.distribution
            assert isinstance(belief, GaussianLogits)
            for smooth in (False, True):
                at, centre = loss_at(in_double(problem, smooth=smooth)), mean.double()
                rows = expansions(
                    at, centre, belief.deviation.to(centre), hessian(at, centre)[0], effort.pairs, run.seed
                )
                found["expansions"] += [label | {"activation": "smooth" if smooth else "relu"} | row for row in rows]
            found["picks"] += [label | row for row in picks(run, problem, effort, flows)]
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def grouped(rows: Sequence[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by labels, in the order in which they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def numbers(rows: Sequence[Row], value: Callable[[Row], float | None], digits: int) -> str:
    """Mean ± standard deviation; a dash where there is nothing."""
    given = [number for number in map(value, rows) if number is not None]
    return told(given, digits) if given else "–"


def mean_of(values: Sequence[float]) -> float:
    """Of a few numbers."""
    return sum(values) / len(values)


def markdown(found: dict[str, Any]) -> str:
    """Everything in three tables."""
    parts = [
        "### Searches",
        "",
        f"Entropies are nats an edge; a uniform one has {math.log(5):.3f}.",
        "",
        searches_table(found),
    ]
    if found["picks"]:
        parts += ["", f"### Sample and score, best of {found['draws']} drawn", "", picks_table(found)]
    if found["expansions"]:
        parts += ["", "### Eq. 19: what noise adds to the loss", "", expansions_table(found)]
    seeds = sorted({row["seed"] for row in found["searches"]})
    source = f"Seeds {', '.join(map(str, seeds))}; `{found['command']}` on {found['machine']}"
    return "\n".join([*parts, "", source, ""])


def sigma_at(row: Row, part: float) -> float | None:
    """The mean deviation after a part of the search; None for a method without."""
    return row["sigma"][round(part * (len(row["sigma"]) - 1))] if "sigma" in row else None


SEARCH_COLUMNS: dict[str, tuple[Callable[[Row], float | None], int]] = {
    "sigma at first": (lambda row: sigma_at(row, 0), 2),
    "half-way": (lambda row: sigma_at(row, 0.5), 4),
    "at the end": (lambda row: sigma_at(row, 1), 4),
    "root of s": (lambda row: row.get("slope"), 4),
    "spread of the mean": (lambda row: row["mean_spread"], 3),
    "entropy of a draw": (lambda row: mean_of(row["drawn_entropy"]), 3),
    "of the mixture": (lambda row: mean_of(row["mixture_entropy"]), 3),
    "gap": (lambda row: row["gap"], 2),
    "mode, %": (lambda row: 100 * row["mode_accuracy"], 1),
    "supernet, %": (lambda row: 100 * row["supernet_accuracy"], 1),
    "skips": (lambda row: row["skip_share"], 2),
    "trace of H": (lambda row: row["trace"], 3),
    "table, %": (lambda row: row["truth"] and row["truth"][0], 2),
}


def searches_table(found: dict[str, Any]) -> str:
    """A line a case."""
    lines = []
    for (name,), rows in grouped(found["searches"], "case").items():
        lines.append([name, *(numbers(rows, value, digits) for value, digits in SEARCH_COLUMNS.values())])
    return markdown_table(["case", *SEARCH_COLUMNS], lines)


def picks_table(found: dict[str, Any]) -> str:
    """A line a case, source and score; what does not depend on the case stands there once."""
    first = found["picks"][0]["case"]
    shown = [
        row | {"case": row["case"] if row["source"] == "belief" else "any"}
        for row in found["picks"]
        if row["source"] == "belief" or row["case"] == first
    ]
    lines = []
    for labels, rows in grouped(shown, "source", "case", "score").items():
        lines.append(
            [
                *labels,
                numbers(rows, lambda row: row.get("synflow") and math.log10(row["synflow"]), 2),
                numbers(rows, lambda row: row.get("parameters"), 0),
                numbers(rows, lambda row: row["truth"], 2),
            ]
        )
    head = ["drawn from", "case", "score", "log10 SynFlow", "parameters", "table, %"]
    return markdown_table(head, sorted(lines, key=lambda line: line[0]))


def expansions_table(found: dict[str, Any]) -> str:
    """A line a case, activation and share of the deviation."""
    lines = []
    for (case, activation, share), rows in grouped(found["expansions"], "case", "activation", "share").items():
        ratio = numbers(rows, lambda row: row["measured"] / row["predicted"], 3)
        chance = numbers(rows, lambda row: row["error"] / abs(row["predicted"]), 3)
        predicted = f"{mean_of([row['predicted'] for row in rows]):.1e}"
        lines.append(
            [case, activation, f"{share:g}", numbers(rows, lambda row: row["sigma"], 4), predicted, ratio, chance]
        )
    head = ["case", "activation", "share of sigma", "sigma", "predicted", "measured / predicted", "of it by chance"]
    return markdown_table(head, lines)


# ---------------------------------------------------------------------------------------------------------------------


def command(words: Sequence[str]) -> str:
    """How to run this again; where images and tables lie and results went is nobody's business."""
    text = re.sub(r"\s*--out[= ]\S+", "", shlex.join(words))
    text = re.sub(r"--table[= ]\S*/(\w+)\.npz", r"--table \1", text)
    return "python -m reproduce.balenas " + re.sub(r"--images[= ]\S+", "--images FOLDER", text).strip()


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--quick", action="store_true")
    size.add_argument("--full", action="store_true")
    size.add_argument("--report", action="store_true", help="print what was found as Markdown, and stop")
    parser.add_argument("--only", default="", help="cases, separated by semicolons; see CASES")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--images", default="", help="folder with the images of --data")
    parser.add_argument("--limit", type=int, default=0, help="use so many images of --data alone")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--table", default="", help="of ground truth, by path or name")
    parser.add_argument("--column", default="cifar10_test_acc_200")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=0, help="default: 10, or 1 for --quick")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--hasten", type=float, default=140.0, help="factor of belief's speed; below 1000")
    parser.add_argument("--augment", action="store_true", help="crop and flip images, as for CIFAR-10")
    parser.add_argument("--no-checks", action="store_true", help="searches alone: no sample-and-score, no Eq. 19")
    parser.add_argument("--name", default="", help="of the JSON file; default: the data's")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--trials", type=int, default=0, help="default: 3, or 1 for --quick")
    parser.add_argument("--pairs", type=int, default=0, help="at least 2; default: 15, or 4 for --quick")
    parser.add_argument("--out", type=Path, help="default: docs/results/balenas; runs/balenas for --quick")
    arguments = parser.parse_args()
    names = [case.name for case in CASES]
    arguments.only = arguments.only.split(";") if arguments.only else list(QUICK if arguments.quick else names)
    if unknown := set(arguments.only) - set(names):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {'; '.join(names)}")
    return arguments


def main() -> None:
    """Runs the cases asked for and writes their rows; or prints what there is."""
    arguments = parsed()
    folder = arguments.out or (Path("runs/balenas") if arguments.quick else RESULTS)
    file = folder / f"{arguments.name or arguments.data}.json"
    if arguments.report:
        print(markdown(json.loads(file.read_text(encoding="utf-8"))), end="")
        return
    where: dict[str, Any] = {"folder": arguments.images} if arguments.images else {}
    if arguments.limit:
        where["limit"] = arguments.limit
    unheld = {"test": 0} if arguments.data == "digits" else {}  # no test data is looked at; other sets have their own
    effort = Effort(
        task=pa.data.load(arguments.data, select=0.5, **where, **unheld),
        space=pa.spaces.NasBench201(channels=arguments.channels, cells=arguments.cells),
        table=open_table(arguments.table) if arguments.table else None,
        column=arguments.column,
        device=arguments.device,
        epochs=arguments.epochs or (1 if arguments.quick else 10),
        seeds=arguments.seeds,
        hasten=arguments.hasten,
        draws=arguments.draws,
        trials=arguments.trials or (1 if arguments.quick else 3),
        pairs=arguments.pairs or (4 if arguments.quick else 15),
        augment=arguments.augment,
        checks=not arguments.no_checks,
    )
    found: dict[str, Any] = {
        "command": command(sys.argv[1:]), "machine": machine(effort.device), "draws": effort.draws,
        "epochs": effort.epochs, "searches": [], "expansions": [], "picks": [],
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    flows: dict[str, float] = {}
    for case in CASES:
        if case.name not in arguments.only:
            continue
        for name, rows in examined(case, effort, flows).items():
            found[name] += rows
        file.write_text(json.dumps(found) + "\n", encoding="utf-8")
        for row in found["searches"][-effort.seeds :]:
            ends = " to ".join(f"{row['sigma'][k]:.3f}" for k in (0, -1)) if "sigma" in row else "none"
            print(
                f"{case.name}, seed {row['seed']}: sigma {ends}, entropy of a draw {mean_of(row['drawn_entropy']):.3f} "
                f"nats an edge, gap {row['gap']:.2f}, mode {100 * row['mode_accuracy']:.1f} %: {row['mode']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
