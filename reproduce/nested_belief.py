"""Belief over depth without lag: how it is learnt, by what data, and which depth a rule then takes home.

    python -m reproduce.nested_belief --quick                   # minutes: two data sets, two seeds
    python -m reproduce.nested_belief --full --images FOLDER    # six data sets, six seeds; FOLDER has fashion-mnist/
    python -m reproduce.nested_belief --table                   # what was found, as Markdown

Every data set is a part, kept in docs/results/nested-belief. The same splits, networks and epochs for every way to
learn belief; the state with the best objective on validation data is kept, and nothing is chosen on test data:

    sgd              SGD on the logits (Antorán et al. 2020)
    natural          limited natural-gradient steps, by the likelihood of training data
    natural-held     the same by the likelihood of validation data

and of each kept network the belief itself (`q`) beside the exact posteriors of its weights, by training and by
validation data. Fixed depths 0, 2, 5 and the largest, trained alone, are the plain baselines; which of them is taken is
decided on validation data.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sklearn import datasets
from torch import Tensor

import polyarch as pa
from polyarch.distributions import Categorical, selection
from polyarch.distributions.evidence import Evidence, posterior, ruled_out
from polyarch.runs.run import Run
from polyarch.spaces.views import All
from reproduce.showing import Part, Row, Section, about, as_table, chosen, keep, over, page, sized_parser

WAYS: dict[str, dict[str, Any]] = {
    "sgd": {"update": "sgd"},
    "natural": {"update": "natural", "arch": {"evidence": "train"}},
    "natural-held": {"update": "natural", "arch": {"evidence": "search"}},
}
FIXED = (0, 2, 5, -1)
RULES = (*selection.RULES, *selection.HELD_OUT_RULES)
Rows = Iterator[Row]


@dataclass(frozen=True)
class Data:
    """A data set, and how long networks train on it."""

    task: Callable[[int], pa.data.Task]
    """Of a seed."""
    space: pa.spaces.ResidualDepth
    training: dict[str, Any]
    together: bool
    """Whether all seeds share one split, and are trained as one batch."""


def _arrays(load: Callable[..., Any]) -> Callable[[int], pa.data.Task]:
    x, y = load(return_X_y=True)
    return lambda seed: pa.data.load((x, y), select=0.25, test=0.25, split_seed=seed)


TABLES: dict[str, Any] = {"batch_size": 32, "epochs": 50}
DATA: dict[str, Data] = {
    "spirals": Data(
        lambda _: pa.data.load("spirals", points=400, select=0.25),
        pa.spaces.ResidualDepth(max_depth=20),
        {"batch_size": 300, "epochs": 2000, "evaluation": {"every": 10}},
        together=True,
    ),
    "digits": Data(
        lambda _: pa.data.load("digits"),
        pa.spaces.ResidualDepth(max_depth=20),
        {"batch_size": 128, "epochs": 40},
        together=True,
    ),
    "iris": Data(_arrays(datasets.load_iris), pa.spaces.ResidualDepth(max_depth=20), TABLES, together=False),
    "wine": Data(_arrays(datasets.load_wine), pa.spaces.ResidualDepth(max_depth=20), TABLES, together=False),
    "breast-cancer": Data(
        _arrays(datasets.load_breast_cancer), pa.spaces.ResidualDepth(max_depth=20), TABLES, together=False
    ),
    "fashion-mnist": Data(
        lambda _: pa.data.load("fashion-mnist", limit=3000),
        pa.spaces.ResidualDepth(max_depth=10, width=16),
        {"batch_size": 128, "epochs": 40},
        together=True,
    ),
}


def trained(data: Data, method: pa.Method, given: Namespace) -> Iterator[tuple[Run, pa.data.Task]]:
    """A run for every seed, with its data."""
    search = partial(pa.search, data.space, method=method, compute=pa.Compute(given.device))
    if data.together:
        task = data.task(0)
        with tempfile.TemporaryDirectory() as folder:
            found = search(task=task, out=Path(folder) / "run", repeats=given.seeds)
            yield from ((run, task) for run in (found if isinstance(found, list) else [found]))
        return
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            task = data.task(seed)
            yield search(task=task, out=Path(folder) / "run", seed=seed), task


@torch.no_grad()
def answers(run: Run, task: pa.data.Task) -> Tensor:
    """Probabilities [depths, n, classes] of test data by every depth, in double precision."""
    assert task.test is not None
    x = run.preprocess()(task.test.x)
    parts = [run.supernet()(part[None], All())[0].double().softmax(-1) for part in x.split(1024)]
    return torch.cat(parts, 1)


def worth(probs: Tensor, target: Tensor) -> dict[str, float]:
    """Of predictions [n, classes]: log-likelihood, mean probability of the true class (as the paper plots), error."""
    true = probs.gather(1, target[:, None]).squeeze(1)
    wrong = (probs.argmax(-1) != target).double()
    return {"log_likelihood": true.log().mean().item(), "p_true": true.mean().item(), "error": wrong.mean().item()}


def pruned(weights: Tensor, depth: int) -> Tensor:
    """The weights of the mixture cut at a depth, to which all later mass goes (Eq. 3)."""
    cut = weights.clone()
    cut[depth], cut[depth + 1 :] = weights[depth:].sum(), 0
    return cut


def described(belief: Categorical, prior: Categorical, known: Evidence, probs: Tensor, target: Tensor) -> Row:
    """What a belief is like, and what every rule makes of it."""
    [weights] = belief.probs().values()
    weights = weights.double()
    found: Row = {
        "probs": [round(p, 4) for p in weights.tolist()],
        "ruled_out": int(ruled_out(belief).sum()),
        "kl_prior": belief.kl(prior).item(),
        "full": worth(torch.einsum("d,dnc->nc", weights, probs), target),
    }
    for rule in RULES:
        [depth] = selection.select(belief, rule, known)
        mixture = torch.einsum("d,dnc->nc", pruned(weights, depth), probs)
        found[rule] = {"depth": depth, "network": worth(probs[depth], target), "mixture": worth(mixture, target)}
    return found


def study(name: str, given: Namespace) -> Rows:
    """Rows of one data set: every way to learn belief and every fixed depth, seed by seed."""
    data = DATA[name]
    training = {**data.training, "stopping": {"split": "select", "patience": data.training["epochs"]}}
    if given.quick:
        training["epochs"] = min(training["epochs"], 10)
    for way, settings in WAYS.items():
        for run, task in trained(data, pa.methods.VariationalDepth(**training, **settings), given):
            assert run.evidence is not None
            assert task.test is not None
            prior, known = run.config.make_prior(run.space), run.evidence
            exact = {split: posterior(fit, prior) for split, fit in known.by_split().items()}
            probs, beliefs = answers(run, task), {"q": run.distribution, **exact}
            row: Row = {"data": name, "way": way, "seed": run.seed, "kept": run.result["kept"]["epoch"]}
            row["lag"] = {split: run.distribution.kl(own).item() for split, own in exact.items()}
            for belief, own in beliefs.items():
                assert isinstance(own, Categorical)
                row[belief] = described(own, prior, known, probs, task.test.y)
            yield row
    for depth in FIXED:
        for run, _ in trained(data, pa.methods.FixedDepth(depth=depth, **training), given):
            metrics = run.result["metrics"]
            yield {
                "data": name,
                "way": "fixed",
                "depth": int(run.architecture.text.partition("=")[2]),
                "seed": run.seed,
                "select": metrics["select"]["log_likelihood"],
                "log_likelihood": metrics["test"]["log_likelihood"],
                "error": 1 - metrics["test"]["accuracy"],
            }


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def _learnt(part: Part) -> dict[tuple[Any, ...], list[Row]]:
    return Part(tuple(row for row in part.rows if row["way"] != "fixed")).groups("data", "way")


def beliefs(part: Part) -> str:
    """Test log-likelihood of the mixture of all depths, by belief."""
    lines = [
        [
            *labels,
            *(over(rows, lambda row, belief=belief: row[belief]["full"]["log_likelihood"], 3) for belief in BELIEFS),
            over(rows, lambda row: row["lag"]["train"], 1),
            over(rows, lambda row: row["q"]["ruled_out"], 1),
            over(rows, lambda row: row["q"]["kl_prior"], 1),
        ]
        for labels, rows in _learnt(part).items()
    ]
    head = ["data", "belief learnt by", "q", "posterior, training data", "posterior, validation data"]
    return as_table([*head, "lag of q", "ruled out", "KL(q, prior)"], lines, left=2)


BELIEFS = ("q", "train", "select")


def rules(part: Part) -> str:
    """What every rule takes, and what the network alone and the pruned mixture are then worth."""
    ways = ("network", "mixture")
    lines = [
        [
            *labels,
            rule,
            over(rows, lambda row, rule=rule: row["q"][rule]["depth"], 1),
            *(over(rows, lambda row, rule=rule, of=of: row["q"][rule][of]["log_likelihood"], 3) for of in ways),
            *(over(rows, lambda row, rule=rule, of=of: row["q"][rule][of]["error"], 2, 100) for of in ways),
        ]
        for labels, rows in _learnt(part).items()
        for rule in RULES
    ]
    head = ["data", "belief learnt by", "rule", "depth", "network", "mixture", "network, error %", "mixture, error %"]
    return as_table(head, lines, left=3)


def fixed(part: Part) -> str:
    """Fixed depths trained alone; the last line of each data set is the one that is best on validation data."""
    lines = []
    for (name,), rows in Part(tuple(row for row in part.rows if row["way"] == "fixed")).groups("data").items():
        own = Part(tuple(rows))
        best = [max(ofseed, key=lambda row: row["select"]) for ofseed in own.groups("seed").values()]
        groups = {f"depth {depth}": group for (depth,), group in own.groups("depth").items()}
        for title, group in (groups | {"by validation data": best}).items():
            depth = over(group, "depth", 1)
            lines.append([name, title, depth, over(group, "log_likelihood", 3), over(group, "error", 2, 100)])
    return as_table(["data", "network", "depth", "test log-likelihood", "error %"], lines, left=2)


PARTS = tuple(DATA)
SECTIONS = (
    Section("Belief: test log-likelihood of the mixture of all depths", PARTS, beliefs),
    Section("Rules, under the belief that was learnt: test log-likelihood and error", PARTS, rules),
    Section("Fixed depths, trained alone", PARTS, fixed),
)


def main() -> None:
    """Runs the parts asked for and writes their rows; or prints what there is."""
    parser = sized_parser(__doc__, "nested-belief", "table", seeds=(2, 6))
    parser.add_argument("--only", default="", help=f"parts, separated by commas, of {', '.join(PARTS)}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", default="", help="the folder that has fashion-mnist/")
    given = parser.parse_args()
    if given.table:
        print(page(given.out, SECTIONS, seeds=True), end="")
        return
    if given.images:
        DATA["fashion-mnist"] = replace(
            DATA["fashion-mnist"], task=lambda _: pa.data.load("fashion-mnist", folder=given.images, limit=3000)
        )
    usual = "wine,breast-cancer" if given.quick else "all"
    for name in chosen(parser, "part", given.only or usual, PARTS):
        say = "{data} {way} {seed}".format_map
        keep(given.out / f"{name}.json", study(name, given), device=given.device, say=say, about=about(study))


if __name__ == "__main__":
    main()
