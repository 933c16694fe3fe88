"""BaLeNAS (Zhang et al. 2022): what N and the precisions do to belief, and what its training-free read-out is worth.

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

import copy
import math
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import polyarch as pa
from polyarch.core import Problem
from polyarch.data.task import Split
from polyarch.distributions import GaussianLogits, uniform
from polyarch.distributions.base import Distribution
from polyarch.methods.bilevel import by_simplex
from polyarch.scores.base import Candidate
from polyarch.scores.synflow import SynFlow
from polyarch.settings import dotted, make, plain
from polyarch.spaces.cells import collapse
from polyarch.spaces.views import Sparse
from polyarch.streams import Streams
from polyarch.tables import open_table
from polyarch.training.curvature import hessian
from polyarch.training.evaluation import evaluate_view
from reproduce.one_shot_table import parameters
from reproduce.showing import Columns, Part, Row, as_table, chosen, grouped, keep, mean_table, over, read, sized_parser


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
    Case("DARTS", {"arch.weight_decay": 0.0}, darts=True),
    Case("delta 0.01", {"data_size": 0, "prior_precision": 0.01}),
    Case("delta 100", {"data_size": 0, "prior_precision": 100.0, "initial_precision": 100.0}),
    Case("first precision 100", {"data_size": 0, "initial_precision": 100.0}),
    Case("vadam", {"data_size": 0}, hastened=False),
    Case("printed", {"data_size": 0, "arch.update": "printed"}, hastened=False),
    Case("bayes-by-backprop", {"data_size": 0, "arch.update": "bayes-by-backprop"}, hastened=False),
    Case("von", {"data_size": 0, "arch.update": "von"}, hastened=False),
    Case("vprop", {"data_size": 0, "arch.update": "vprop"}, hastened=False),
)
EXAMPLES = 128
"""Validation examples whose loss is looked at around the mean of belief."""
QUICK = ("N of the validation data", "N = 1e6", "DARTS")


def truth_of(given: Namespace, choices: Tensor) -> list[float] | None:
    """What a table of ground truth, if there is one, knows of architectures [n, decisions]."""
    if given.table is None:
        return None
    found: list[float] = given.table.values(given.column, given.space, choices).tolist()
    return found


def method_of(case: Case, given: Namespace) -> pa.methods.Balenas | pa.methods.Darts:
    """A case's method; its last evaluations are at the quarters of the search."""
    common: dict[str, Any] = {"epochs": given.epochs, "evaluation.every": max(1, given.epochs // 4)}
    if given.augment:
        common |= {"augment.crop": 4, "augment.flip": True}
    factor = given.hasten if case.hastened else 1.0
    common["arch.lr"] = 3e-4 * factor
    if case.darts:
        return make(pa.methods.Darts, {**common, **case.settings})
    return make(pa.methods.Balenas, {**common, **case.settings, "arch.beta2": 1 - 0.001 * factor})


def searched(case: Case, given: Namespace, folder: Path) -> list[pa.Run]:
    """All seeds of a case, as one batch."""
    how = method_of(case, given)
    runs = pa.search(given.space, given.task, how, out=folder, repeats=given.seeds, compute=pa.Compute(given.device))
    return runs if isinstance(runs, list) else [runs]


def problem_of(run: pa.Run, given: Namespace) -> Problem:
    """The weights of a run, on its device, and validation data to judge by."""
    valid, device = given.task.select, run.device
    assert valid is not None
    data = Split(given.task.preprocess(valid.x).to(device), valid.y.to(device))
    supernet = run.supernet().to(device).requires_grad_(False)
    return Problem(run.space, supernet, given.task.likelihood, uniform(run.space.decisions), {"select": data})


# ---------------------------------------------------------------------------------------------------------------------
# What a search found.


def entropies(probs: Sequence[Tensor]) -> list[float]:
    """In nats, one per edge."""
    return [round(torch.special.entr(p.double()).sum().item(), 4) for p in probs]


def summary(case: Case, run: pa.Run, given: Namespace, curvature: Tensor) -> Row:
    """One seed's search in numbers."""
    belief, lines = run.distribution, run.history()
    how = method_of(case, given)
    settings = dotted(type(how), plain(how))
    last = lines[-1]["select"]
    row = {
        "case": case.name,
        "seed": run.seed,
        "settings": {name: settings[name] for name in (*case.settings, "arch.lr")},
        "drawn_entropy": entropies(list(belief.probs().values())),
        "mixture_entropy": entropies(belief.mean_weights()),
        "gap": last["supernet_log_likelihood"] - last["log_likelihood"],
        "mode_accuracy": last["accuracy"],
        "supernet_accuracy": last["supernet_accuracy"],
        "mode": str(run.architecture),
        "skip_share": collapse(run.space, run.architecture)["skip_share"],
        "trace": curvature.diagonal().sum().item(),
        "eigenvalue": torch.linalg.eigvalsh(curvature)[-1].item(),
        "truth": truth_of(given, torch.tensor([run.architecture.choices])),
    }
    if isinstance(belief, GaussianLogits):
        row["sigma"] = [settings["initial_precision"] ** -0.5, *(line["select"]["sigma"] for line in lines)]
        row["mean_spread"] = belief.mean.std(-1).mean().item()
        examples = settings["data_size"] or len(given.task.select or ())
        curvatures = (run.belief["precision"] - settings["prior_precision"]) / examples
        row["slope"] = curvatures.mean().clamp_min(0).sqrt().item()
    else:
        row["mean_spread"] = torch.stack(belief.mean_weights()).log().std(-1).mean().item()
    return row


def loss_at(problem: Problem) -> Callable[[Tensor], Tensor]:
    """The loss of one validation batch as a function of alpha [1, edges, operations], with batch norm as in a step."""
    problem.supernet.train()
    batch = problem.some("select", EXAMPLES)

    def loss(alpha: Tensor) -> Tensor:
        view = by_simplex(problem.space, alpha.softmax(-1))
        return -problem.log_likelihood(problem.supernet(batch.x, view), batch)

    return loss


def centre_of(belief: Distribution, device: torch.device) -> Tensor:
    """Alpha at which a search mixes, [1, edges, operations]; up to a constant per edge, which softmax does not see."""
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


def picks(run: pa.Run, problem: Problem, given: Namespace, flows: dict[str, float]) -> Iterator[Row]:
    """What each score picks of M drawn cells, and beside it their mean; `flows` keeps SynFlow by text."""
    space, shape = run.space, given.task.shape
    costs = space.cost_table(shape)
    for source, belief in sources(run).items():
        for trial in range(given.trials):
            generator = torch.Generator().manual_seed(1000 * run.seed + trial)
            choices = belief.sample(given.draws, generator)
            drawn = space.decode(choices)
            new = {cell.text: Candidate(cell, space, shape) for cell in drawn if cell.text not in flows}
            flows |= dict(zip(new, SynFlow()(list(new.values()), generator).tolist(), strict=True)) if new else {}
            sizes = [int(size) for size in parameters(space, costs, choices)]
            truth = truth_of(given, choices)
            common = {"seed": run.seed, "source": source, "trial": trial, "draws": given.draws}
            if truth:
                yield common | {"score": "none: mean of the draws", "truth": fmean(truth)}
            for score, values in (("synflow", [flows[cell.text] for cell in drawn]), ("parameters", sizes)):
                best = max(range(len(drawn)), key=values.__getitem__)
                yield common | {
                    "score": score,
                    "architecture": str(drawn[best]),
                    "synflow": flows[drawn[best].text],
                    "parameters": sizes[best],
                    "shared_accuracy": evaluate_view(problem, Sparse(drawn[best].choices), "select")["accuracy"].item(),
                    "truth": truth[best] if truth else None,
                }


# ---------------------------------------------------------------------------------------------------------------------


def examined(case: Case, given: Namespace, flows: dict[str, float]) -> Iterator[Row]:
    """One case: its searches, and of some cases all that is measured afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        for run in searched(case, given, Path(folder) / "run"):
            problem, mean = problem_of(run, given), centre_of(run.distribution, run.device)
            yield {"kind": "search", **summary(case, run, given, hessian(loss_at(problem), mean)[0])}
            if not (case.looked_at and given.checks):
                continue
            label, belief = {"case": case.name, "seed": run.seed}, run.distribution
            assert isinstance(belief, GaussianLogits)
            for activation in ("relu", "smooth"):
                at, centre = loss_at(in_double(problem, smooth=activation == "smooth")), mean.double()
                deviation, curvature = belief.deviation.to(centre), hessian(at, centre)[0]
                for row in expansions(at, centre, deviation, curvature, given.pairs, run.seed):
                    yield {"kind": "expansion", **label, "activation": activation, **row}
            yield from ({"kind": "pick", **label, **row} for row in picks(run, problem, given, flows))


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def sigma_at(share: float) -> Callable[[Row], float | None]:
    """The mean deviation after a share of the search; None for a method without."""
    return lambda row: row["sigma"][round(share * (len(row["sigma"]) - 1))] if "sigma" in row else None


SEARCH_COLUMNS: Columns = {
    "sigma at first": (sigma_at(0), 2),
    "half-way": (sigma_at(0.5), 4),
    "at the end": (sigma_at(1), 4),
    "root of s": ("slope", 4),
    "spread of the mean": ("mean_spread", 3),
    "entropy of a draw": (lambda row: fmean(row["drawn_entropy"]), 3),
    "of the mixture": (lambda row: fmean(row["mixture_entropy"]), 3),
    "gap": ("gap", 2),
    "mode, %": ("mode_accuracy", 1, 100),
    "supernet, %": ("supernet_accuracy", 1, 100),
    "skips": ("skip_share", 2),
    "trace of H": ("trace", 3),
    "table, %": (lambda row: row["truth"] and row["truth"][0], 2),
}
PICK_COLUMNS: Columns = {
    "log10 SynFlow": (lambda row: row.get("synflow") and math.log10(row["synflow"]), 2),
    "parameters": ("parameters", 0),
    "table, %": ("truth", 2),
}


def picks_table(rows: Sequence[Row]) -> str:
    """One line per case, source and score; what does not depend on the case stands there once."""
    shown = [
        {**row, "case": row["case"] if row["source"] == "belief" else "any"}
        for row in sorted(rows, key=lambda row: row["source"])
        if row["source"] == "belief" or row["case"] == rows[0]["case"]
    ]
    return mean_table(["drawn from", "case", "score"], grouped(shown, "source", "case", "score"), PICK_COLUMNS)


def expansions_table(rows: Sequence[Row]) -> str:
    """One line per case, activation and share of the deviation."""
    lines = []
    for (case, activation, share), own in grouped(rows, "case", "activation", "share").items():
        predicted = f"{fmean(row['predicted'] for row in own):.1e}"
        ratio = over(own, lambda row: row["measured"] / row["predicted"], 3)
        chance = over(own, lambda row: row["error"] / abs(row["predicted"]), 3)
        lines.append([case, activation, f"{share:g}", over(own, "sigma", 4), predicted, ratio, chance])
    head = ["case", "activation", "share of sigma", "sigma", "predicted", "measured / predicted", "of it by chance"]
    return as_table(head, lines)


def markdown(part: Part) -> str:
    """Everything in three tables."""
    searches = mean_table(["case"], part.groups("case", kind="search"), SEARCH_COLUMNS)
    texts = ["### Searches", f"Entropies are nats per edge; a uniform one has {math.log(5):.3f}.", searches]
    if rows := part.having(kind="pick"):
        texts += [f"### Sample and score, best of {rows[0]['draws']} drawn", picks_table(rows)]
    if rows := part.having(kind="expansion"):
        texts += ["### Eq. 19: what noise adds to the loss", expansions_table(rows)]
    return "\n\n".join([*texts, f"{part.seeds}; {part.source}"]) + "\n"


def said(row: Row) -> str:
    """A row in short."""
    if row["kind"] != "search":
        return f"{row['case']}, seed {row['seed']}: {row['kind']}"
    ends = " to ".join(f"{row['sigma'][k]:.3f}" for k in (0, -1)) if "sigma" in row else "none"
    return (
        f"{row['case']}, seed {row['seed']}: sigma {ends}, entropy of a draw {fmean(row['drawn_entropy']):.3f} nats "
        f"per edge, gap {row['gap']:.2f}, mode {100 * row['mode_accuracy']:.1f} %: {row['mode']}"
    )


# ---------------------------------------------------------------------------------------------------------------------


def main() -> None:
    """Runs the cases asked for and writes their rows; or prints what there is."""
    parser = sized_parser(__doc__, "balenas", "report", epochs=(1, 10), trials=(1, 3), pairs=(4, 15))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--draws", type=int, default=100, help="architectures that sample-and-score draws")
    parser.add_argument("--only", help="cases, separated by semicolons; see CASES")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--images", default="", help="folder with the images of --data")
    parser.add_argument("--limit", type=int, default=0, help="use so many images of --data alone")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--table", type=open_table, help="of ground truth, by path or name")
    parser.add_argument("--column", default="cifar10_test_acc_200")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=1)
    parser.add_argument("--hasten", type=float, default=140.0, help="factor of belief's speed; below 1000")
    parser.add_argument("--augment", action="store_true", help="crop and flip images, as for CIFAR-10")
    words = "searches alone: no sample-and-score, no Eq. 19"
    parser.add_argument("--no-checks", dest="checks", action="store_false", help=words)
    parser.add_argument("--name", default="", help="of the JSON file; default: the data's")
    given = parser.parse_args()
    if given.report:
        part = read(given.out, given.name or given.data)
        print(markdown(part) if part else "(not run)\n", end="")
        return
    cases = {case.name: case for case in CASES}
    names = chosen(parser, "case", given.only or (";".join(QUICK) if given.quick else "all"), list(cases), ";")
    # Of digits no test data is held out, since none is looked at; other sets have their own.
    where = {"test": 0} if given.data == "digits" else {"folder": given.images, "limit": given.limit}
    given.task = pa.data.load(given.data, select=0.5, **where)
    given.space = pa.spaces.NasBench201(channels=given.channels, cells=given.cells)
    flows: dict[str, float] = {}
    rows = (row for name in cases if name in names for row in examined(cases[name], given, flows))
    keep(given.out / f"{given.name or given.data}.json", rows, device=given.device, say=said, epochs=given.epochs)


if __name__ == "__main__":
    main()
