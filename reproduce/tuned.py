"""One search beside what people do instead: Optuna tunes depth, width and rate of the same network at equal compute.

    python -m reproduce.tuned --quick                   # minutes: one data set, two seeds
    python -m reproduce.tuned --full                    # half an hour of one core; needs polyarch[reproduce]
    python -m reproduce.tuned --table                   # what was found, as Markdown

A search has up to 20 blocks of its default width and its default rate. A trial trains one fixed depth of the same
network by the same recipe (epochs, batch size, early stopping on validation data); its depth, width and rate are
proposed by Optuna's TPE or at random, and the best by validation log-likelihood is taken. Compute is seconds of
training on one thread. Tuning begins trials as long as it has used less than the search took, or 4 times that,
and what it has begun it ends: so it is given a little more than the search. Nothing is chosen on test data.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sklearn import datasets

import polyarch as pa
from reproduce.showing import Part, Row, Section, about, chosen, keep, mean_table, page, sized_parser

if TYPE_CHECKING:
    import optuna

Rows = Iterator[Row]
DEPTH = 20
RATES = (0.01, 0.5)
"""Between which a rate is tuned, on a logarithmic scale; searches have 0.1."""
TIMES = (1, 4)
"""Compute of tuning, in searches."""


@dataclass(frozen=True)
class Data:
    """A data set, how long networks train on it, and between which widths they are tuned."""

    task: Callable[[int], pa.data.Task]
    """Of a seed."""
    training: dict[str, Any]
    widths: tuple[int, int]


def _table(load: Callable[..., Any]) -> Callable[[int], pa.data.Task]:
    x, y = load(return_X_y=True)
    return lambda seed: pa.data.load((x, y), select=0.25, test=0.25, split_seed=seed)


DATA: dict[str, Data] = {
    "breast-cancer": Data(_table(datasets.load_breast_cancer), {"batch_size": 32, "epochs": 50}, (5, 80)),
    "spirals": Data(
        lambda seed: pa.data.load("spirals", points=400, select=0.25, data_seed=seed),
        {"batch_size": 300, "epochs": 1000, "evaluation": {"every": 10}, "stopping": {"patience": 300}},
        (5, 80),
    ),
    "digits": Data(lambda seed: pa.data.load("digits", split_seed=seed), {"batch_size": 128, "epochs": 20}, (8, 64)),
}


def trained(space: pa.spaces.ResidualDepth, task: pa.data.Task, how: pa.Method, seed: int) -> tuple[pa.Run, Row]:
    """A finished run, and what it is worth."""
    with tempfile.TemporaryDirectory() as folder:
        run = pa.search(space, task, how, out=Path(folder) / "run", seed=seed, compute=pa.Compute("cpu"))
        assert isinstance(run, pa.Run)
        metrics, seconds = run.result["metrics"], run.history()[-1]["seconds"]
    own = {"depth": run.architecture.choices[0] if len(run.space.decisions[0]) > 1 else None, "seconds": seconds}
    own |= {"select": metrics["select"]["log_likelihood"], **_worth(metrics["test"])}
    return run, own | ({"mixture": _worth(metrics["test_ensemble"])} if "test_ensemble" in metrics else {})


def _worth(metrics: dict[str, float]) -> dict[str, float]:
    return {"log_likelihood": metrics["log_likelihood"], "error": 1 - metrics["accuracy"], "ece": metrics["ece"]}


def trials(sampler: optuna.samplers.BaseSampler, data: Data, task: pa.data.Task, seed: int, seconds: float) -> Rows:
    """Trials one after another, as long as they have taken less than so many seconds."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study, used = optuna.create_study(direction="maximize", sampler=sampler), 0.0
    while used < seconds:
        trial = study.ask()
        depth = trial.suggest_int("depth", 0, DEPTH)
        width, lr = trial.suggest_int("width", *data.widths, log=True), trial.suggest_float("lr", *RATES, log=True)
        how = pa.methods.FixedDepth(depth=depth, **data.training, weights={"lr": lr, "momentum": 0.5})
        try:
            _, own = trained(pa.spaces.ResidualDepth(max_depth=DEPTH, width=width), task, how, seed)
        except pa.PolyarchError:  # the rate was too large, and training diverged, which costs little
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        study.tell(trial, own["select"])
        used += own["seconds"]
        yield own | {"used": used, "depth": depth, "width": width, "lr": lr}


def rows(name: str, given: Namespace) -> Rows:
    """The search, and the best trial of every sampler within each budget, seed by seed."""
    import optuna

    torch.set_num_threads(1)
    data = DATA[name]
    samplers = {"TPE": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    for seed in range(given.seeds):
        task = data.task(seed)
        space = pa.spaces.ResidualDepth(max_depth=DEPTH)
        _, own = trained(space, task, pa.methods.VariationalDepth(**data.training), seed)
        yield {"data": name, "seed": seed, "who": "one search", **own}
        largest = TIMES[0] if given.quick else TIMES[-1]
        for who, make in samplers.items():
            found = list(trials(make(seed=seed), data, task, seed, largest * own["seconds"]))
            for times in (t for t in TIMES if t <= largest):
                until = next(k for k, row in enumerate(found, 1) if row["used"] >= times * own["seconds"])
                best = max(found[:until], key=lambda row: row["select"])
                label = {"data": name, "seed": seed, "who": f"{who}, {times} times the compute", "trials": until}
                yield best | label | {"seconds": found[until - 1]["used"]}


# ---------------------------------------------------------------------------------------------------------------------


def table(part: Part) -> str:
    """Every way to choose on every data set."""

    def mixture(name: str) -> Callable[[Row], float | None]:
        return lambda row: row.get("mixture", {}).get(name)

    columns = {
        "trials": ("trials", 1),
        "seconds": ("seconds", 1),
        "depth": ("depth", 1),
        "log-likelihood": ("log_likelihood", 3),
        "error %": ("error", 2, 100),
        "ECE": ("ece", 3),
        "mixture: log-likelihood": (mixture("log_likelihood"), 3),
        "error, %": (mixture("error"), 2, 100),
        "its ECE": (mixture("ece"), 3),
    }
    return mean_table(["data", "by"], part.groups("data", "who"), columns, left=2)


SECTIONS = (Section("One search, and tuning at equal compute and more", tuple(DATA), table),)


def main() -> None:
    """Runs the data sets asked for and writes rows; or prints what there is."""
    parser = sized_parser(__doc__, "tuned", "table", seeds=(2, 6))
    parser.add_argument("--only", default="", help=f"data sets, separated by commas, of {', '.join(DATA)}")
    given = parser.parse_args()
    if given.table:
        print(page(given.out, SECTIONS, seeds=True), end="")
        return
    usual = "breast-cancer" if given.quick else "all"
    for name in chosen(parser, "data set", given.only or usual, list(DATA)):
        say = "{data} {seed} {who}: {log_likelihood:.3f}".format_map
        keep(given.out / f"{name}.json", rows(name, given), say=say, about=about(rows))


if __name__ == "__main__":
    main()
