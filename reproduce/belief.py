"""A benchmark of belief: how much of it lies on architectures that are as good as the best, by method.

    python -m reproduce.belief --quick                        # seconds: every search for two epochs, into runs/belief
    python -m reproduce.belief --full                         # half an hour of one core
    python -m reproduce.belief --full --only parsec,darts     # some searches
    python -m reproduce.belief --table                        # what was found, as Markdown

Two spaces whose every architecture was trained alone over many seeds (`reproduce.belief_truth`, tables of the library)
are searched by every method that can. What is kept of a run is its belief over all architectures, and what it
selected: docs/results/belief/SEARCH.json. Scores follow from these and the tables alone, so that they can be changed
without another search. A method is a row of `SEARCHES`, a way to make belief of a run an entry of its `beliefs`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

import polyarch as pa
from polyarch.catalogue import find
from polyarch.distributions import Distribution, make_prior
from polyarch.distributions.gaussian import winning
from polyarch.distributions.listed import Listed
from polyarch.settings import make
from polyarch.spaces.views import Sparse
from polyarch.tables import Table, Truth, find_truth, good_architectures, log_mass_on_good, open_table, regret
from reproduce.belief_truth import BENCHMARKS, DEPTH_EPOCHS, Benchmark
from reproduce.factorised import factorised
from reproduce.showing import Part, Row, Section, as_table, chosen, keep, over, page, sized_parser

Belief = Callable[[pa.Run], Distribution]
DEPTHS, NETWORKS = BENCHMARKS

# ---------------------------------------------------------------------------------------------------------------------
# What belief is made of a run.


def learnt(run: pa.Run) -> Distribution:
    """What the method says."""
    return run.distribution


def posterior(run: pa.Run, split: str) -> Distribution:
    """The exact posterior given the shared weights: prior times likelihood of a split, for every architecture."""
    choices, fits = fits_of(run, split)
    return Listed(run.space.decisions, choices, run.config.make_prior(run.space).log_prob(choices) + fits.sum(-1))


def standardised(run: pa.Run) -> Distribution:
    """Softmax of validation log-likelihoods by shared weights, in units of their spread over architectures."""
    choices, fits = fits_of(run, "select")
    scores = fits.mean(-1)
    return Listed(run.space.decisions, choices, (scores - scores.mean()) / scores.std())


def natural_steps(run: pa.Run) -> Distribution:
    """What factorises and natural steps lead to, by validation data in sampled contexts (`reproduce.factorised`)."""
    choices, fits = fits_of(run, "select")
    totals = dict(zip(map(tuple, choices.tolist()), fits.sum(-1).tolist(), strict=True))
    return factorised(run.space.decisions, lambda asked: torch.tensor([totals[tuple(row)] for row in asked.tolist()]))


@torch.no_grad()
def fits_of(run: pa.Run, split: str) -> tuple[Tensor, Tensor]:
    """Choices [n, decisions] of all architectures, and log p(y | x) [n, examples] by the shared weights."""
    choices, examples = run.space.random().support(), run.task().splits[split]
    supernet, x = run.supernet(), run.preprocess()(examples.x).unsqueeze(0)
    outputs = torch.cat([supernet(x, Sparse(tuple(row))) for row in choices.tolist()])
    return choices, run.config.likelihood().log_likelihood(outputs, examples.y).double()


LEARNT: Mapping[str, Belief] = {"learnt": learnt}
OF_WEIGHTS: Mapping[str, Belief] = {
    "posterior of the weights, training data": partial(posterior, split="train"),
    "posterior of the weights, validation data": partial(posterior, split="select"),
}
OF_SCORES: Mapping[str, Belief] = {
    "posterior of the weights, validation data": partial(posterior, split="select"),
    "softmax of standardised scores": standardised,
}
OF_STEPS: Mapping[str, Belief] = {"factorised, natural steps, validation data": natural_steps}


# ---------------------------------------------------------------------------------------------------------------------
# What is searched, and how.


@dataclass(frozen=True)
class Search:
    """A method's search of a space."""

    name: str
    benchmark: Benchmark
    method: str
    """Its name in the catalogue."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    beliefs: Mapping[str, Belief] = field(default_factory=lambda: LEARNT)

    def runs(self, seeds: int, quick: bool) -> Iterator[tuple[int, pa.Run]]:
        """Every seed's finished run."""
        cls, preset = find("method", self.method)
        epochs = 2 if quick else self.settings["epochs"]
        method = make(cls, {**preset, **self.settings, "epochs": epochs, "evaluation.every": epochs})
        benchmark = self.benchmark
        with TemporaryDirectory() as folder:
            runs = pa.search(benchmark.space, benchmark.task(), method, out=Path(folder) / "run", repeats=seeds)
            yield from enumerate(runs if isinstance(runs, list) else [runs])


ALONE = {"weights.lr": 0.1, "weights.momentum": 0.5, "stopping.split": "never", "epochs": DEPTH_EPOCHS}
"""As the depths were trained alone; no data decides when to stop."""
STEPS = 60 * (600 // 64)
"""Of a search of small networks: epochs times batches."""
PAPERS = 3e-4 * 50 * 390 / STEPS
"""A rate of belief by which it can go as far in these steps as in those of DARTS, 50 epochs of 390 steps at 3e-4."""
BILEVEL = ("darts", "drnas", "gdas", "balenas")
EXACT = {**LEARNT, **OF_WEIGHTS}

SEARCHES = (
    Search("variational-depth", DEPTHS, "variational-depth", ALONE, EXACT),
    Search("variational-depth-em", DEPTHS, "variational-depth", {**ALONE, "update": "em"}, EXACT),
    Search("parsec-depth", DEPTHS, "parsec-8", {"epochs": 500, "batch_size": 200}),
    Search("one-shot-depth", DEPTHS, "single-path", {"epochs": DEPTH_EPOCHS, "batch_size": 200}, LEARNT | OF_SCORES),
    Search("parsec", NETWORKS, "parsec", {"epochs": 60}),
    *(Search(name, NETWORKS, name, {"epochs": 60}) for name in BILEVEL),
    *(Search(f"{name}-faster", NETWORKS, name, {"epochs": 60, "arch.lr": PAPERS}) for name in BILEVEL),
    Search("one-shot", NETWORKS, "single-path", {"epochs": 60}, {**LEARNT, **OF_SCORES, **OF_STEPS}),
    Search("fairnas", NETWORKS, "fairnas", {"epochs": 60}, OF_SCORES),
)


def rows(search: Search, seeds: int, quick: bool) -> Iterator[Row]:
    """Every seed's beliefs, as log-probabilities of all architectures in the order of the space."""
    choices = search.benchmark.space.random().support()
    for seed, run in search.runs(seeds, quick):
        for name, belief in search.beliefs.items():
            log_probs = belief(run).log_prob(choices).double()
            yield {
                "benchmark": search.benchmark.table,
                "search": search.name,
                "belief": name,
                "seed": seed,
                "log_probs": [round(value, 5) if math.isfinite(value) else None for value in log_probs.tolist()],
                # What the search selected stands for what it learnt; of other beliefs it is the mode.
                "selected": str(run.architecture) if name == "learnt" else None,
            }


# ---------------------------------------------------------------------------------------------------------------------
# Scores.


def score(benchmark: Benchmark, log_probs: Tensor, truth: Truth, selected: str | None = None) -> Row:
    """Log mass within both margins of the best, and regrets.

    Args:
        benchmark: whose space it is.
        log_probs: of all architectures in the order of the space [n].
        truth: mean test log-likelihoods.
        selected: the architecture that was selected; by default the mode, or, of several, their mean.
    """
    space, choices = benchmark.space, benchmark.space.random().support()
    belief = Listed(space.decisions, choices, log_probs)
    modes = space.decode(choices[log_probs == log_probs.max()])
    taken = modes if selected is None else [space.parse(selected)]
    accuracy = find_truth(space, benchmark.file, "test_accuracy")
    masses = {name: log_mass_on_good(belief, truth, e) for name, e in margins(benchmark).items()}
    return {
        **masses,
        "mass": math.exp(masses["deviation"]),
        "regret": float(np.mean([regret(truth, architecture) for architecture in taken])),
        "accuracy_regret": float(np.mean([regret(accuracy, architecture) for architecture in taken])),
    }


def truth_of(benchmark: Benchmark) -> Truth:
    """Mean test log-likelihoods."""
    return find_truth(benchmark.space, benchmark.file, "test_log_likelihood")


def by_seed(benchmark: Benchmark, column: str) -> np.ndarray:
    """A column of the table, seed by seed: [architectures, seeds]."""
    table = open_table(benchmark.file)
    return np.stack([table.whole(f"{column}_seeds[{seed}]") for seed in range(benchmark.seeds)], -1)


def margins(benchmark: Benchmark) -> dict[str, float]:
    """Of the best architecture, one standard error of its mean, and one standard deviation over its seeds.

    The first is what the table can tell apart, the second what a single training of each could.
    """
    seeds = by_seed(benchmark, "test_log_likelihood")
    best = seeds[seeds.mean(1).argmax()]
    deviation = float(best.std(ddof=1))
    return {"error": deviation / len(best) ** 0.5, "deviation": deviation}


def unlearnt(benchmark: Benchmark) -> Iterator[Row]:
    """What can be believed without a search."""
    space, truth = benchmark.space, truth_of(benchmark)
    parameters = torch.tensor(open_table(benchmark.file).whole("parameters"))
    never = torch.full_like(parameters, -torch.inf)
    beliefs = {
        "uniform": torch.zeros_like(parameters),
        "in proportion to parameters": parameters.log(),
        "in inverse proportion": -parameters.log(),
        "the largest": never.masked_fill(parameters == parameters.max(), 0),
        "the smallest": never.masked_fill(parameters == parameters.min(), 0),
    }
    if space.nested:
        prior = make_prior("exponential", space.decisions)
        beliefs = {"the prior, exponential(0.85)": prior.log_prob(space.random().support()).double()} | beliefs
    for name, log_probs in beliefs.items():
        yield {"search": name, "belief": "", **score(benchmark, log_probs, truth)}


def trained_once(benchmark: Benchmark) -> Iterator[Row]:
    """What can be believed after one training of every architecture, of every seed; the truth is of the others."""
    fits, tests = by_seed(benchmark, "valid_log_likelihood"), by_seed(benchmark, "test_log_likelihood")
    examples, names = len(benchmark.task().splits["select"]), open_table(benchmark.file).architectures
    spread = torch.from_numpy(fits.std(1, ddof=1))
    for seed in range(benchmark.seeds):
        others = np.delete(tests, seed, 1).mean(1)
        table = Table(str(benchmark.file), {"arch": np.array(names), "worth": others, "columns": HIGHER})
        truth, fit = Truth(table, table.column("worth"), benchmark.space), torch.from_numpy(fits[:, seed])
        never = torch.full_like(fit, -torch.inf)
        beliefs = {
            "the best by validation": never.masked_fill(fit == fit.max(), 0),
            "posterior, validation data": examples * fit,
            "how often the best, given the spread of seeds": winning(fit, spread).log(),
        }
        for name, log_probs in beliefs.items():
            yield {"search": "each trained once", "belief": name, **score(benchmark, log_probs, truth)}


HIGHER = np.array(json.dumps({"worth": {"better": "higher"}}))


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def markdown(part: Part, benchmark: Benchmark) -> str:
    """Scores of all beliefs about a space."""
    truth, known = truth_of(benchmark), margins(benchmark)
    found = [
        row | score(benchmark, _tensor(row["log_probs"]), truth, row["selected"])
        for row in part.having(benchmark=benchmark.table)
    ]
    every = Part((*unlearnt(benchmark), *found, *trained_once(benchmark)))
    good = {name: len(good_architectures(truth, e)) for name, e in known.items()}
    head = [f"log mass within {e:.3f} ({good[name]} of {len(truth.table)})" for name, e in known.items()]
    lines = [
        [
            *labels,
            *(log_mass(rows, name) for name in known),
            over(rows, "mass", 3),
            over(rows, "regret", 3),
            over(rows, "accuracy_regret", 2),
        ]
        for labels, rows in every.groups("search", "belief").items()
    ]
    head += [f"mass within {known['deviation']:.3f}", "regret, nats", "regret, points"]
    return as_table(["search", "belief", *head], lines, left=2)


def log_mass(rows: Sequence[Row], name: str) -> str:
    """Mean ± standard deviation, or how often it is minus infinity."""
    never = sum(row[name] == -math.inf for row in rows)
    return over(rows, name, 2) if not never else "−∞" if never == len(rows) else f"−∞ in {never} of {len(rows)}"


def _tensor(log_probs: list[float | None]) -> Tensor:
    return torch.tensor([-math.inf if value is None else value for value in log_probs], dtype=torch.float64)


SECTIONS = [
    Section(
        f"`{benchmark.table}`",
        tuple(search.name for search in SEARCHES if search.benchmark is benchmark),
        partial(markdown, benchmark=benchmark),
    )
    for benchmark in BENCHMARKS
]


def said(row: Row) -> str:
    """A row in short."""
    selected = row["selected"] or "its mode"
    return f"{row['search']}, {row['belief']}, seed {row['seed']}: {selected}"


def main() -> None:
    """Searches, or prints what there is."""
    parser = sized_parser(__doc__, "belief", "table", seeds=(2, 6))
    parser.add_argument("--only", default="all", help="names of searches, between commas")
    given = parser.parse_args()
    if given.table:
        print(page(given.out, SECTIONS, seeds=True), end="")
        return
    names = chosen(parser, "search", given.only, [search.name for search in SEARCHES])
    for search in SEARCHES:
        if search.name in names:
            keep(given.out / f"{search.name}.json", rows(search, given.seeds, given.quick), say=said)


if __name__ == "__main__":
    main()
