"""Limits and prices: does every selection obey, and what is it worth?

    python -m reproduce.limits obeys                       # a minute: every method, a half and a tenth of its choice
    python -m reproduce.limits truth --table nasbench201   # minutes: true accuracy within limits, with a price or not
    python -m reproduce.limits known --table nasbench201   # seconds: the same of a belief that knows something
    python -m reproduce.limits show                        # what was found, as Markdown

`truth` searches cells of NAS-Bench-201 on digits (C=4, N=1), and looks up what is selected. Its limits are on the
table's own count of multiply-accumulates at C=16, N=5 (cifar10_flops_M): a half and a tenth of what the same seed
selects without limit and price, or the fewest that any cell has. Beside it are random cells within the same limit:
their mean, and the expected best of as many as there are seeds. Test accuracy is looked up when all is chosen.
"""

from __future__ import annotations

import itertools
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import comb

import polyarch as pa
from polyarch import catalogue
from polyarch.data import Task
from polyarch.data.task import TaskShape
from polyarch.distributions import Categorical, priced, uniform
from polyarch.distributions.selection import select
from polyarch.runs.limits import make_bounds
from polyarch.scores import ValidLoss, sample_and_score
from polyarch.settings import make as made
from polyarch.spaces.counted import Counted
from polyarch.spaces.limits import COUNTED, Limit
from polyarch.tables import find_table, open_table
from reproduce.showing import RESULTS, Part, Row, Section, about, grouped, keep, mean_table, page, parser_of

Rows = Iterator[Row]
Numbers = NDArray[np.float64]
CPU = pa.Compute("cpu")
SHARES = (0.5, 0.1)
CELL_METHODS = (
    "darts",
    "gdas",
    "drnas",
    "balenas",
    "sotl-darts",
    "parsec",
    "single-path",
    "fairnas",
    "stochastic-architectures-batch",
)
OTHERS = (("darts", "darts"), ("darts", "parsec"), ("nasbench1shot1-1", "gdas"), ("depth", "variational-depth"))
SIZES: dict[str, dict[str, Any]] = {
    "nasbench201": {"channels": 4, "cells": 5},
    "darts": {"channels": 4, "layers": 6},
    "nasbench1shot1-1": {"channels": 4, "cells": 3},
    "depth": {"max_depth": 20, "width": 16},
}


def method(name: str, **settings: Any) -> pa.Method:
    """A method by its name, with other settings."""
    entry = catalogue.METHODS[name]
    return made(catalogue.load(entry.path, "method"), {**entry.settings, **settings})


def obeys() -> Rows:
    """One short search of each method, and one for each limit: a half and a tenth of what it selects without any."""
    whole = pa.data.load("digits").train  # a few of them: that beliefs have hardly formed is no matter here
    task = pa.data.load((whole.x[:200].numpy(), whole.y[:200].numpy()), select=0.4, test=0)
    for space_name, name in (*(("nasbench201", name) for name in CELL_METHODS), *OTHERS):
        space, how = pa.spaces.named(space_name, **SIZES[space_name]), method(name, epochs=1, batch_size=40)
        counted = Counted(space, task.shape)
        fewest = [float(counted(counted.cheapest(cost))[0, k]) for k, cost in enumerate(COUNTED)]
        unlimited = _counts(space, task, _selected(space, task, how))
        for k, share in itertools.product(range(len(COUNTED)), SHARES):
            limit = Limit(COUNTED[k], max(float(int(share * unlimited[k])), fewest[k]))
            found = _counts(space, task, _selected(space, task, how, [limit]))[k]
            label = {"space": space_name, "method": name, "seed": 0, "cost": COUNTED[k], "share": share}
            yield label | {"unlimited": unlimited[k], "most": limit.most, "found": found}


def _selected(space: pa.spaces.Space, task: Task, how: pa.Method, limits: list[Limit] = []) -> pa.Architecture:  # noqa: B006
    with tempfile.TemporaryDirectory() as folder:
        run = pa.search(space, task, how, out=Path(folder) / "run", select=pa.Select(limits=limits), compute=CPU)
        assert isinstance(run, pa.Run)
        return run.architecture


def _counts(space: pa.spaces.Space, task: Task, architecture: pa.Architecture) -> tuple[float, float]:
    """Counted for this network alone, not by adding up."""
    cost = space.cost(architecture, task.shape)
    return float(cost.parameters), float(cost.macs)


# ---------------------------------------------------------------------------------------------------------------------

SPACE = pa.spaces.NasBench201(channels=4, cells=1)
COST, SEEN, TRUTH = "cifar10_flops_M", "cifar10_valid_acc_12", "cifar10_test_acc_200"
PRICES = ("", "macs=0.01/100k", "macs=0.1/100k")
"""From the cheapest cell to the dearest there are 166 thousand at this size."""
SEARCHES: dict[str, dict[str, Any]] = {
    "darts": {"arch": {"lr": 0.03}},
    "gdas": {"arch": {"lr": 0.03}},
    "parsec": {"arch": {"lr": 0.1}, "samples": 4, "temperature": 8.0},
    "single-path": {},
}


def truth(given: Namespace) -> Rows:
    """True accuracy of what is selected under limits, by searches with and without a price."""
    file = str(find_table(given.table).resolve())
    table, every = open_table(file), SPACE.random().support()
    costs, worth = (table.values(name, SPACE, every).numpy() for name in (COST, TRUTH))
    task = pa.data.load("digits")
    for name, settings in SEARCHES.items():
        how, unlimited = method(name, **{"epochs": given.epochs, "batch_size": 64, **settings}), dict[int, float]()
        for price in PRICES:
            for run in _searches(task, how, price, given.seeds):
                whole = unlimited.setdefault(run.seed, costs[_number(run.architecture.choices)])
                for share in (None, *SHARES):
                    if share and price and run.meaning.kind == "fixed":
                        continue  # belief is as without a price
                    most = np.inf if share is None else max(share * whole, costs.min())
                    architecture = run.architecture if share is None else _within(run, Limit(COST, most), file)
                    label = {"method": name, "price": price, "seed": run.seed}
                    yield label | _beside(architecture.choices, share, most, costs, worth, given.seeds)


def known(given: Namespace) -> Rows:
    """The same of a belief that knows something: the product of categoricals nearest to exp(12-epoch accuracy in %)."""
    file, space = str(find_table(given.table).resolve()), pa.spaces.NasBench201()
    table, every = open_table(file), space.random().support()
    costs, worth, seen = (table.values(name, space, every).numpy() for name in (COST, TRUTH, SEEN))
    counted, unlimited = Counted(space, TaskShape((3, 32, 32), 10)), 0.0
    for nats in (0.0, 0.02, 0.1):
        prior = priced(uniform(space.decisions), [nats * own[:, 1] / 1e6 for own in counted.decisions])
        belief = nearest_product(prior, torch.from_numpy(seen))
        unlimited = unlimited or costs[_number(belief.mode().tolist())]
        for share in (None, *SHARES):
            most = np.inf if share is None else max(share * unlimited, costs.min())
            limits = [Limit(COST, 1.0001 * min(most, 1e6))]  # the table has single precision
            bounds = make_bounds(limits, space, counted.shape, file)
            yield {
                "price": f"macs={nats:g}/1M" if nats else "",
                "seed": 0,
                **_beside(select(belief, "argmax", bounds=bounds), share, most, costs, worth, given.seeds),
            }


def nearest_product(prior: Categorical, fits: torch.Tensor, sweeps: int = 50) -> Categorical:
    """The product q of categoricals that minimises KL(q || p) locally, p(a) being proportional to prior(a) exp(fit(a)).

    Args:
        prior: over decisions with equally many options.
        fits: of all architectures, the last decision counting fastest.
        sweeps: over decisions, each of which takes its best distribution given the others.
    """
    sizes = [len(decision) for decision in prior.decisions]
    joint, logits = fits.double().reshape(sizes), prior.log_probs.double().clone()
    for k in list(range(len(sizes))) * sweeps:
        expected = joint
        for other in reversed([j for j in range(len(sizes)) if j != k]):
            expected = torch.tensordot(expected, logits[other].softmax(-1), dims=([other], [0]))
        logits[k] = prior.log_probs[k] + expected
    return Categorical(prior.decisions, logits.log_softmax(-1))


def _searches(task: Task, how: pa.Method, price: str, seeds: int) -> Iterator[pa.Run]:
    """All seeds as one batched computation; their folders are there until the next one is asked for."""
    with tempfile.TemporaryDirectory() as folder:
        start = pa.Start(price=price)
        found = pa.search(SPACE, task, how, out=Path(folder) / "run", repeats=seeds, start=start, compute=CPU)
        yield from found if isinstance(found, list) else [found]


def _within(run: pa.Run, limit: Limit, file: str) -> pa.Architecture:
    """What a run selects within a limit; where belief is fixed, of 20 draws that obey the best on validation data."""
    if run.meaning.kind == "fixed":
        return sample_and_score(run, ValidLoss(), 20, limits=[limit], table=file).best.architecture
    return run.selected("argmax", run.within([limit], file))


def _beside(
    choices: Sequence[int], share: float | None, most: float, costs: Numbers, worth: Numbers, seeds: int
) -> Row:
    """What was selected, beside random cells within the same limit."""
    place, allowed = _number(choices), costs <= most
    return {
        "limit": "none" if share is None else f"{share:g} of it",
        "architecture": SPACE.architecture(choices).text,
        "flops": float(costs[place]),
        "most": None if share is None else float(most),
        "truth": float(worth[place]),
        "feasible": float(allowed.mean()),
        "random": float(worth[allowed].mean()),
        "best_of_random": expected_best(worth[allowed], seeds),
        "best": float(worth[allowed].max()),
    }


def _number(choices: Sequence[int]) -> int:
    """The place of a cell among all, the last decision counting fastest."""
    return int(np.ravel_multi_index(tuple(choices), [len(d) for d in SPACE.decisions]))


def expected_best(values: Numbers, count: int) -> float:
    """The mean of the largest of so many different values, drawn from all of them alike."""
    ordered, n = np.sort(values), len(values)
    if n <= count:
        return float(ordered[-1])
    ranks = np.arange(count, n + 1)
    return float((ordered[count - 1 :] * comb(ranks - 1, count - 1) / comb(n, count)).sum())


# ---------------------------------------------------------------------------------------------------------------------


def obeying(part: Part) -> str:
    """What was selected, beside the limit and what is selected without."""
    columns = {
        "unlimited": ("unlimited", 0),
        "at most": ("most", 0),
        "selected": ("found", 0),
    }
    return mean_table(["space", "method", "of", "share"], part.groups("space", "method", "cost", "share"), columns, 4)


def worth(part: Part) -> str:
    """What is selected beside random cells within the same limits."""
    labels = [row | {"method": row.get("method", "12 epochs known")} for row in part.rows]
    groups = {
        (name, price or "none", limit): rows
        for (name, price, limit), rows in grouped(labels, "method", "price", "limit").items()
    }
    columns = {
        "MMACs": ("flops", 1),
        "feasible, %": ("feasible", 1, 100),
        "true accuracy": ("truth", 2),
        "random": ("random", 2),
        "best of as many random": ("best_of_random", 2),
        "best there is": ("best", 2),
    }
    table = mean_table(["method", "price", "limit"], groups, columns, 3)
    best = [max(row["truth"] for row in rows) for rows in groups.values()]
    head, rule, *lines = table.splitlines()
    more = (f"{line} {value:.2f} |" for line, value in zip(lines, best, strict=True))
    return "\n".join([f"{head} best of the seeds |", f"{rule} --: |", *more])


SECTIONS = (
    Section("True accuracy within limits, with and without a price", ("truth",), worth),
    Section("The same of a belief that knows accuracy after 12 epochs", ("known",), worth),
    Section("Every method within half and a tenth of its own choice", ("obeys",), obeying),
)


def main() -> None:
    """Runs a part and writes its rows, or prints what there is."""
    parser = parser_of(__doc__)
    parser.add_argument("part", choices=["obeys", "truth", "known", "show"])
    parser.add_argument("--table", default="nasbench201", help="the table of NAS-Bench-201, a name or a file")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5, help="of a search of `truth`")
    parser.add_argument("--out", type=Path, default=RESULTS / "limits", help="folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.part == "show":
        print(page(given.out, SECTIONS), end="")
    elif given.part == "obeys":
        say = "{space} {method} {cost} {share}: {found} of {most:.0f}".format_map
        keep(given.out / "obeys.json", obeys(), say=say, about=about(obeys))
    else:
        make, say = {"truth": truth, "known": known}[given.part], "{price} {limit} {seed}: {truth:.2f} at {flops:.1f}"
        keep(given.out / f"{given.part}.json", make(given), say=say.format_map, about=about(make))


if __name__ == "__main__":
    main()
